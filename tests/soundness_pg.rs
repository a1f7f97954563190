//! The classifier on a corpus that nobody here wrote: PostgreSQL's own regression scripts, as the
//! package `pglast` on PyPI carries them (`tools/setup.sh test` unpacks them into the tools
//! folder).
//!
//! The engine is the oracle. Every statement is run, in the scripts' order, on a server where
//! nothing else happens. Where the classifier says that it doesn't write, the server's next
//! transaction id must not move; where it does move, the same statement must be stopped by the
//! read-only guard. What the classifier can't prove is counted: too much of it would make a fence
//! a nuisance for readers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod support;

use std::path::PathBuf;
use std::sync::Arc;

use fencewire::sql::{Classifier, Lexing, StatementClass, Trusted};
use support::{Options, PgCluster, Wire};

/// Scripts that stop the server, wait for other sessions, or need files of the source tree.
const LEFT_OUT: [&str; 3] = ["tablespace.sql", "stats.sql", "vacuum_parallel.sql"];

fn corpus() -> Vec<PathBuf> {
    let tools = std::env::var_os("FENCEWIRE_TOOLS_DIR").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/fencewire-tools"),
        PathBuf::from,
    );
    let folder = tools.join("corpus/postgres_regress");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| {
        panic!("no corpus in {}: {error}; run tools/setup.sh test", folder.display())
    });
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| !LEFT_OUT.contains(&file.file_name().unwrap().to_str().unwrap()));
    files.sort();
    files
}

/// Splits a script for psql into statements: its own commands and the data behind COPY go.
fn statements(script: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut current = String::new();
    let mut scan = Scan::default();
    let mut data = false;
    for line in script.lines() {
        if data {
            data = line != "\\.";
            continue;
        }
        if !scan.inside() && line.trim_start().starts_with('\\') {
            continue;
        }
        for piece in scan.split(line) {
            match piece {
                Piece::Text(text) => current.push_str(text),
                Piece::End => {
                    let text = std::mem::take(&mut current);
                    let lower = text.trim_start().to_ascii_lowercase();
                    data |= lower.starts_with("copy") && lower.contains("from stdin");
                    if !text.trim().is_empty() {
                        all.push(text);
                    }
                }
            }
        }
        current.push('\n');
    }
    all
}

enum Piece<'a> {
    Text(&'a str),
    End,
}

/// Where a scan of lines stands: quotes, dollar quotes, comments, and brackets (CREATE RULE and
/// CREATE FUNCTION … BEGIN ATOMIC have semicolons inside).
#[derive(Default)]
struct Scan {
    quote: Option<char>,
    dollar: Option<String>,
    comment: u32,
    brackets: u32,
    atomic: bool,
}

impl Scan {
    fn inside(&self) -> bool {
        self.quote.is_some() || self.dollar.is_some() || self.comment > 0
    }

    fn split<'a>(&mut self, line: &'a str) -> Vec<Piece<'a>> {
        let mut pieces = Vec::new();
        let (mut from, mut at) = (0, 0);
        while at < line.len() {
            let rest = &line[at..];
            let step = rest.chars().next().unwrap().len_utf8();
            if let Some(tag) = &self.dollar {
                if rest.starts_with(tag.as_str()) {
                    at += tag.len();
                    self.dollar = None;
                } else {
                    at += step;
                }
                continue;
            }
            if let Some(quote) = self.quote {
                self.quote = (!rest.starts_with(quote)).then_some(quote);
                at += step;
                continue;
            }
            if rest.starts_with("/*") {
                self.comment += 1;
                at += 2;
            } else if self.comment > 0 {
                if rest.starts_with("*/") {
                    self.comment -= 1;
                    at += 2;
                } else {
                    at += step;
                }
            } else if rest.starts_with("--") {
                break;
            } else if let Some(tag) = dollar_tag(line, at) {
                at += tag.len();
                self.dollar = Some(tag.to_owned());
            } else {
                let lower = rest.get(..12).unwrap_or("").to_ascii_lowercase();
                self.atomic |= lower == "begin atomic";
                self.atomic &= !lower.starts_with("end;");
                match rest.chars().next().unwrap() {
                    quote @ ('\'' | '"') => self.quote = Some(quote),
                    '(' => self.brackets += 1,
                    ')' => self.brackets = self.brackets.saturating_sub(1),
                    end @ (';' | '\\') if end == '\\' || (self.brackets == 0 && !self.atomic) => {
                        pieces.push(Piece::Text(&line[from..at]));
                        pieces.push(Piece::End);
                        self.brackets = 0;
                        if end == '\\' {
                            // `\gset` and the like: psql sends what stands before.
                            return pieces;
                        }
                        from = at + 1;
                    }
                    _ => {}
                }
                at += step;
            }
        }
        pieces.push(Piece::Text(&line[from..]));
        pieces
    }
}

fn dollar_tag(line: &str, at: usize) -> Option<&str> {
    let rest = line[at..].strip_prefix('$')?;
    let before = line[..at].chars().next_back();
    if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let end = rest.find('$')?;
    let name = &rest[..end];
    let fine = name.chars().all(|c| c.is_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    fine.then(|| &line[at..at + end + 2])
}

/// One server, one session that runs the scripts, one that watches the next transaction id.
struct Oracle<'a> {
    cluster: &'a PgCluster,
    session: Wire,
    watch: Wire,
}

impl Oracle<'_> {
    fn connect(cluster: &PgCluster) -> Wire {
        let mut wire = Wire::connect(cluster.port(), "wire", "soundness");
        for setting in ["statement_timeout = '2s'", "lock_timeout = '1s'"] {
            wire.query(&format!("SET {setting}")).ok();
        }
        wire
    }

    fn next_id(&mut self) -> u64 {
        let sql = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text";
        self.watch.query(sql).ok().cell().parse().unwrap()
    }

    /// Runs a statement; answers whether the server gave out a transaction id meanwhile.
    fn writes(&mut self, text: &str) -> bool {
        let before = self.next_id();
        self.run(text);
        self.next_id() != before
    }

    /// Runs a statement; answers whether it went without an error.
    fn run(&mut self, text: &str) -> bool {
        let mut fine = true;
        self.session.send_raw(&support::wire::query(text));
        while let Ok(Some((tag, _))) =
            self.session.try_read_frame(std::time::Duration::from_secs(20))
        {
            match tag {
                b'Z' => return fine,
                b'E' => fine = false,
                b'G' => self.session.send(b'f', b"no data\0"),
                _ => {}
            }
        }
        // The script ended its own session, or it hangs: another one goes on.
        self.session = Self::connect(self.cluster);
        false
    }

    /// Whether a statement calls a function that the scripts made themselves.
    fn calls_own_function(&mut self, text: &str) -> bool {
        let names: Vec<String> = text
            .match_indices('(')
            .filter_map(|(at, _)| {
                let before = text[..at].trim_end();
                let from = before
                    .rfind(|c: char| !(c.is_alphanumeric() || c == '_'))
                    .map_or(0, |found| found + before[found..].chars().next().unwrap().len_utf8());
                let name = before[from..].to_ascii_lowercase();
                (!name.is_empty()).then(|| format!("'{name}'"))
            })
            .collect();
        if names.is_empty() {
            return false;
        }
        let sql = format!(
            "SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE \
             p.proname IN ({}) AND n.nspname NOT IN ('pg_catalog', 'information_schema')",
            names.join(", ")
        );
        self.watch.query(&sql).ok().cell() != "0"
    }

    /// Whether a statement names a temporary table of the session that runs it.
    fn reads_own_temporary(&mut self, text: &str) -> bool {
        let sql = "SELECT coalesce(string_agg(relname, ' '), '') FROM pg_catalog.pg_class \
                   WHERE relnamespace = pg_catalog.pg_my_temp_schema()";
        let answer = self.session.query(sql);
        answer.error().is_none()
            && answer.cell().split(' ').any(|name| !name.is_empty() && text.contains(name))
    }

    /// Whether the guard stops it: read-only, it gives out no id.
    fn is_stopped_by_guard(&mut self, text: &str) -> bool {
        self.run("ROLLBACK");
        self.run("SET default_transaction_read_only = on");
        let wrote = self.writes(text);
        self.run("SET default_transaction_read_only = off");
        !wrote
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

fn play(oracle: &mut Oracle<'_>, classifier: &mut Classifier, script: &str, tally: &mut Tally) {
    oracle.session = Oracle::connect(oracle.cluster);
    for text in statements(script) {
        tally.statements += 1;
        let class = classifier.classify(text.as_bytes(), Lexing::STANDARD).class();
        let plain = text.trim_start().get(..7).unwrap_or("").to_ascii_lowercase();
        let plain = plain.starts_with("select");
        if class.is_writer() {
            let fine = oracle.run(&text);
            if plain && fine && class == StatementClass::Unprovable {
                if oracle.calls_own_function(&text) {
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
        if oracle.writes(&text) && class == StatementClass::Read {
            // A temporary table that empties itself at COMMIT does so after a read, too: an id, and
            // nothing that anybody else could see.
            if oracle.reads_own_temporary(&text) {
                continue;
            }
            if oracle.is_stopped_by_guard(&text) {
                tally.guarded += 1;
            } else {
                tally.wrong.push(text);
            }
        }
    }
}

#[test]
fn nothing_the_engine_writes_for_is_called_a_read_unless_the_guard_stops_it() {
    let cluster = PgCluster::start(Options {
        settings: vec![("autovacuum".to_owned(), "off".to_owned())],
        ..Options::default()
    });
    cluster.create_db("soundness");
    cluster.sql("soundness", "ALTER ROLE wire SUPERUSER");
    let watch = Wire::connect(cluster.port(), "wire", "soundness");
    let session = Oracle::connect(&cluster);
    let mut oracle = Oracle { cluster: &cluster, session, watch };
    // The control: the oracle sees a write, and the guard stops it.
    assert!(oracle.writes("CREATE TABLE control_arm (a int)"));
    assert!(!oracle.writes("SELECT 1"));
    assert!(oracle.is_stopped_by_guard("INSERT INTO control_arm VALUES (1)"));

    let mut classifier = Classifier::new(Arc::new(Trusted::default()), 16_384);
    let mut tally = Tally::default();
    let wanted = std::env::var("FENCEWIRE_SOUNDNESS_STATEMENTS").ok();
    let wanted = wanted.map_or(8_000, |text| text.parse().unwrap());
    for file in corpus() {
        // A few scripts are in other encodings.
        let Ok(script) = String::from_utf8(std::fs::read(&file).unwrap()) else { continue };
        play(&mut oracle, &mut classifier, &script, &mut tally);
        if tally.statements > wanted {
            break;
        }
    }
    let share = 100.0 * tally.unprovable as f64 / tally.selects as f64;
    eprintln!(
        "{} statements; {} SELECTs of the engine's own functions, {} of them unprovable \
         ({share:.1} %); {} more call functions of the scripts; {} reads that write were stopped \
         by the guard",
        tally.statements, tally.selects, tally.unprovable, tally.own, tally.guarded
    );
    if std::env::var_os("FENCEWIRE_SOUNDNESS_LIST").is_some() {
        eprintln!("unprovable:\n{}", tally.odd.join("\n"));
    }
    assert!(tally.statements >= 5_000, "the corpus has only {} statements", tally.statements);
    let odd = tally.odd.join("\n");
    assert!(share < 5.0, "{share:.1} % of plain SELECTs are unprovable:\n{odd}");
    let wrong = tally.wrong.join("\n---\n");
    assert!(wrong.is_empty(), "called reads, and write:\n{wrong}");
}
