//! The classifier on a corpus that nobody here wrote: the main test scripts of MariaDB and of
//! MySQL, as Debian packages them (`tools/setup.sh test` brings them into the tools folder), each
//! on its own engine.
//!
//! The engine is the oracle. Every statement is run, in the scripts' order, on a server where
//! nothing else happens. Where the classifier says `read`, the binary log must not grow (and on
//! MariaDB InnoDB must count no changed row); where it does, the same statement must be stopped by
//! the read-only guard. What the classifier can't prove is counted: too much of it would make a
//! fence a nuisance for readers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

#[path = "soundness/scripts.rs"]
mod scripts;
mod support;

use std::collections::HashMap;
use std::sync::Arc;

use fencewire::sql::{Classified, Classifier, MyLexing, MyServer, StatementClass, Trusted};
use support::{MyCluster, MyFlavour, MyOptions, MyWire};

/// One script in so many is played; all of them take many minutes.
const STEP: usize = 7;

/// Parts of writing statements that would take the server or this test's account away.
const LEFT_OUT: &[&str] = &[
    "mysql.",
    "`mysql`",
    "use mysql",
    "sql_log_bin",
    "read_only",
    "shutdown",
    "root",
    "wire",
    "sleep(",
    "innodb_trx",
];

/// First words of statements that would do the same.
const LEFT_OUT_VERBS: &[&str] = &["flush", "grant", "revoke", "kill", "rename user", "drop role"];

/// One server, one session that runs the scripts, one that watches.
struct Oracle<'a> {
    cluster: &'a MyCluster,
    session: MyWire,
    watch: MyWire,
}

impl<'a> Oracle<'a> {
    fn new(cluster: &'a MyCluster) -> Self {
        Self {
            cluster,
            session: MyWire::connect(cluster.port(), "wire", ""),
            watch: MyWire::connect(cluster.port(), "wire", ""),
        }
    }

    /// A new session in a new, empty schema `test`.
    fn begin(&mut self) {
        for sql in ["DROP DATABASE IF EXISTS test", "CREATE DATABASE test"] {
            self.watch.query(sql).ok();
        }
        self.connect();
    }

    fn connect(&mut self) {
        self.session = MyWire::connect(self.cluster.port(), "wire", "");
        let most = match self.cluster.flavour() {
            MyFlavour::MariaDb => "max_statement_time = 5",
            MyFlavour::MySql => "max_execution_time = 5000",
        };
        for setting in ["lock_wait_timeout = 1", "innodb_lock_wait_timeout = 1", most] {
            self.session.query(&format!("SET SESSION {setting}")).ok();
        }
        // A script may have dropped it.
        drop(self.session.query("USE test"));
    }

    /// What grows when something is written.
    fn mark(&mut self) -> Vec<Vec<Option<String>>> {
        let (position, rows) = match self.cluster.flavour() {
            MyFlavour::MariaDb => ("SHOW MASTER STATUS", true),
            // MySQL counts its own temporary and dictionary rows with the others.
            MyFlavour::MySql => ("SHOW BINARY LOG STATUS", false),
        };
        let mut mark: Vec<_> = self.watch.query(position).ok().rows().to_vec();
        if rows {
            let sql = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_rows_inserted', \
                       'Innodb_rows_updated', 'Innodb_rows_deleted')";
            mark.extend_from_slice(self.watch.query(sql).ok().rows());
        }
        mark
    }

    /// Runs a statement; answers whether it went without an error.
    fn run(&mut self, text: &str) -> bool {
        if let Ok(answer) = self.session.try_query(text) {
            return answer.code() == 0;
        }
        // The statement ended its own session.
        self.connect();
        false
    }

    /// Runs a statement; answers whether it went well, and whether something was written.
    fn writes(&mut self, text: &str) -> (bool, bool) {
        let before = self.mark();
        let fine = self.run(text);
        (fine, self.mark() != before)
    }

    /// Whether the guard stops it. The server may write something by itself meanwhile, but not
    /// every time.
    fn is_stopped_by_guard(&mut self, text: &str) -> bool {
        self.run("ROLLBACK");
        self.run("SET SESSION TRANSACTION READ ONLY");
        let stopped = (0..3).any(|_| !self.writes(text).1);
        self.run("SET SESSION TRANSACTION READ WRITE");
        stopped
    }

    /// Whether a statement calls a function that the scripts made themselves.
    fn calls_own_function(&mut self, text: &str) -> bool {
        let names: Vec<String> = text
            .match_indices('(')
            .filter_map(|(at, _)| {
                let before = text[..at].trim_end().trim_end_matches('`');
                let from = before
                    .rfind(|c: char| !(c.is_alphanumeric() || c == '_'))
                    .map_or(0, |found| found + before[found..].chars().next().unwrap().len_utf8());
                let name = &before[from..];
                (!name.is_empty()).then(|| format!("'{name}'"))
            })
            .collect();
        if names.is_empty() {
            return false;
        }
        let sql = format!(
            "SELECT COUNT(*) FROM information_schema.routines WHERE routine_name IN ({})",
            names.join(", ")
        );
        self.watch.query(&sql).ok().cell() != "0"
    }
}

/// What one session's statements are, with what the relay would remember of it.
struct Judge<'a> {
    classifier: &'a mut Classifier,
    lexing: MyLexing,
    prepared: HashMap<String, StatementClass>,
}

impl Judge<'_> {
    fn judge(&mut self, text: &str) -> (Classified, StatementClass) {
        let found = self.classifier.classify(text.as_bytes(), self.lexing);
        let mut class = found.class();
        if let Some(detail) = found.detail() {
            for (name, inner) in &detail.my.prepared {
                self.prepared.insert(name.clone(), inner.class());
            }
            for name in &detail.executes {
                let inner = self.prepared.get(name).copied();
                class = class.strongest(inner.unwrap_or(StatementClass::Unprovable));
            }
        }
        (found, class)
    }

    /// The statement was run: its settings hold, or may hold.
    fn ran(&mut self, found: &Classified, fine: bool) {
        let after = found.lexing_after(self.lexing);
        self.lexing = if fine { after } else { self.lexing.or(after) };
    }
}

#[derive(Default)]
struct Tally {
    statements: usize,
    selects: usize,
    unprovable: usize,
    own: usize,
    guarded: usize,
    wrong: Vec<String>,
    odd: Vec<String>,
}

/// Whether a statement must not be run here.
fn left_out(text: &str, class: StatementClass) -> bool {
    let lower = text.to_ascii_lowercase();
    let schema = ["create database", "create schema", "drop database", "drop schema"];
    if class == StatementClass::Lifecycle && !schema.iter().any(|form| lower.starts_with(form)) {
        return true;
    }
    LEFT_OUT_VERBS.iter().any(|verb| lower.starts_with(verb))
        || LEFT_OUT.iter().any(|part| lower.contains(part)) && class != StatementClass::Read
        || (lower.contains(" user ") && class.is_writer())
}

fn play(oracle: &mut Oracle<'_>, judge: &mut Judge<'_>, texts: &[String], tally: &mut Tally) {
    oracle.begin();
    for text in texts {
        tally.statements += 1;
        let (found, class) = judge.judge(text);
        if left_out(text, class) {
            continue;
        }
        let plain = text.get(..7).unwrap_or("").to_ascii_lowercase().starts_with("select");
        if class != StatementClass::Read {
            let fine = oracle.run(text);
            judge.ran(&found, fine);
            if plain && fine && class == StatementClass::Unprovable {
                if oracle.calls_own_function(text) {
                    tally.own += 1;
                } else {
                    tally.selects += 1;
                    tally.unprovable += 1;
                    tally.odd.push(text.split_whitespace().collect::<Vec<_>>().join(" "));
                }
            }
            continue;
        }
        tally.selects += usize::from(plain);
        let (_, wrote) = oracle.writes(text);
        if wrote && oracle.is_stopped_by_guard(text) {
            tally.guarded += 1;
        } else if wrote {
            tally.wrong.push(text.clone());
        }
    }
}

fn nothing_written_is_called_a_read_unless_the_guard_stops_it(flavour: MyFlavour, folder: &str) {
    let quiet = ["innodb_stats_auto_recalc = OFF", "event_scheduler = OFF"];
    let settings = quiet.map(|line| line.split_once(" = ").unwrap());
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let cluster = MyCluster::start(flavour, MyOptions { settings, ..MyOptions::default() });
    cluster.sql("mysql", "GRANT ALL ON *.* TO wire@'127.0.0.1' WITH GRANT OPTION");
    let mut oracle = Oracle::new(&cluster);
    let server = MyServer::from_greeting(&oracle.session.greeting.version);
    oracle.begin();
    // The control: the oracle sees a write, and the guard stops it.
    assert_eq!(oracle.writes("CREATE TABLE control_arm (a int)"), (true, true));
    assert_eq!(oracle.writes("SELECT 1"), (true, false));
    assert!(oracle.is_stopped_by_guard("INSERT INTO control_arm VALUES (1)"));
    assert!(!oracle.is_stopped_by_guard("FLUSH STATUS"), "the guard doesn't stop everything");

    let mut classifier = Classifier::new(Arc::new(Trusted::default()), 16_384);
    let mut tally = Tally::default();
    let wanted = std::env::var("FENCEWIRE_SOUNDNESS_STATEMENTS").ok();
    let wanted = wanted.map_or(6_000, |text| text.parse().unwrap());
    for file in scripts::corpus(folder).iter().step_by(STEP) {
        let mut judge = Judge {
            classifier: &mut classifier,
            lexing: MyLexing::standard(server),
            prepared: HashMap::new(),
        };
        play(&mut oracle, &mut judge, &scripts::statements(file), &mut tally);
        if tally.statements > wanted {
            break;
        }
    }
    let share = 100.0 * tally.unprovable as f64 / tally.selects as f64;
    eprintln!(
        "{}: {} statements; {} SELECTs of the engine's own functions, {} of them unprovable \
         ({share:.1} %); {} more call functions of the scripts; {} reads that write were stopped \
         by the guard",
        flavour.name(),
        tally.statements,
        tally.selects,
        tally.unprovable,
        tally.own,
        tally.guarded
    );
    assert!(tally.statements >= 5_000, "the corpus has only {} statements", tally.statements);
    assert!(tally.selects >= 500, "the corpus has only {} SELECTs", tally.selects);
    let odd = tally.odd.join("\n");
    assert!(share < 5.0, "{share:.1} % of plain SELECTs are unprovable:\n{odd}");
    let wrong = tally.wrong.join("\n---\n");
    assert!(wrong.is_empty(), "called reads, and write:\n{wrong}");
}

#[test]
fn mariadb() {
    nothing_written_is_called_a_read_unless_the_guard_stops_it(MyFlavour::MariaDb, "mariadb_test");
}

#[test]
fn mysql() {
    nothing_written_is_called_a_read_unless_the_guard_stops_it(MyFlavour::MySql, "mysql_test");
}
