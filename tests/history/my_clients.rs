//! Clients that write numbered rows in every way that MySQL's protocol has, and note what they are
//! told: the twin of `clients.rs`.
//!
//! Purpose: each kind of work is one function; its ids are in the history however it ends. A client
//! that lost its connection makes a new one. Called by `history_mysql.rs` on one thread per client.
//! It judges nothing but that reads go on.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::acceptance::PATIENCE;
use crate::acceptance_mysql::{MySite, thread};
use crate::history::lane::Crewed;
use crate::history::{Dice, Done, End, History, Try};
use crate::my_place::end_of;
use crate::support::my_wire::{MyAnswer, MyError, MyLogin, Prepared, flag};
use crate::support::{MyFlavour, MyWire, poll};

/// One client.
struct Client<'a> {
    site: &'a MySite<'a>,
    history: &'a History,
    name: String,
    dice: Dice,
    wire: Option<Link>,
    direct: bool,
    /// Its last work was refused: it takes its time, and leaves the machine to the drain.
    refused: bool,
}

/// A connection with the write that was prepared on it, once no fence refused that.
struct Link {
    wire: MyWire,
    insert: Option<Prepared>,
}

impl Crewed for MySite<'_> {
    fn work(&self, history: &History, name: &str, direct: bool, dice: Dice, stop: &AtomicBool) {
        let client = Client {
            site: self,
            history,
            name: name.to_owned(),
            dice,
            wire: None,
            direct,
            refused: false,
        };
        client.run(stop);
    }
}

type Asked<T> = std::io::Result<T>;

impl Client<'_> {
    /// Works until `stop`.
    fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::SeqCst) {
            if self.direct {
                // Whoever waits for the fence's own lock holds up its proof: it comes back later.
                let pause = if self.around() { 400 } else { 4_000 };
                self.think(pause);
                continue;
            }
            match self.dice.below(32) {
                0..=3 => self.one("autocommit", |link, id| link.wire.try_query(&insert(&[id]))),
                4..=6 => self.explicit(false),
                7 | 8 => self.explicit(true),
                9 | 10 => self.string(),
                11 | 12 => self.one("prepared", execute),
                13 | 14 => self.prepare_and_execute(),
                15 | 16 => self.several_commands(),
                17 | 18 => self.several_rows(),
                19 | 20 => self.one("load", |link, id| {
                    link.wire.begin_query("LOAD DATA LOCAL INFILE 'rows' INTO TABLE h")?;
                    link.wire.answer(format!("{id}\tload\n").as_bytes())
                }),
                21 | 22 => self.hidden(),
                // On MariaDB a prepared branch holds up the fences of every schema.
                23 => self.two_phase(),
                24 | 25 => self.savepoint(),
                26 | 27 => self.hang_up(),
                28 | 29 => self.implicit(),
                _ => self.read(),
            }
            let pause = if std::mem::take(&mut self.refused) { 160 } else { 20 };
            self.think(pause);
        }
    }

    /// A pause as clients have them.
    fn think(&mut self, ms: u64) {
        let pause = Duration::from_millis(self.dice.below(ms));
        std::thread::sleep(pause); // tidy: not a race: paces a client
    }

    fn link(&mut self) -> &mut Link {
        self.wire.get_or_insert_with(|| {
            if self.direct {
                let mut wire = self.site.direct();
                wire.query("SET SESSION lock_wait_timeout = 1").ok();
                return Link { wire, insert: None };
            }
            let login = MyLogin::of("wire", &self.site.db);
            let login = login.with(flag::MULTI_STATEMENTS | flag::LOCAL_FILES);
            let wire = MyWire::login(self.site.proxy.port(), &login);
            let wire = wire.unwrap_or_else(|e| panic!("{}: no login: {e:?}", self.name));
            Link { wire, insert: None }
        })
    }

    /// Sends something whole and reads its answer. The connection is gone after `Err` unless the
    /// error was an answer.
    fn ask(&mut self, act: impl FnOnce(&mut Link) -> Asked<MyAnswer>) -> Result<MyAnswer, End> {
        match act(self.link()) {
            Ok(answer) => match end_of(&answer) {
                End::Acknowledged => Ok(answer),
                end @ End::Refused(_) => Err(end),
                end @ End::Lost(_) => {
                    self.wire = None;
                    Err(end)
                }
            },
            Err(broken) => {
                self.wire = None;
                if matches!(broken.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) {
                    self.history.late(format!("{}: no answer at all", self.name));
                }
                Err(End::Lost(format!("closed: {:?}", broken.kind())))
            }
        }
    }

    fn say(&mut self, sql: &str) -> Result<MyAnswer, End> {
        self.ask(|link| link.wire.try_query(sql))
    }

    fn begin(&self, kind: &'static str, rows: usize) -> Try {
        self.history.begin(kind, rows)
    }

    fn note(&mut self, attempt: Try, done: Done) {
        self.refused |= done.is_err();
        self.history.note(&self.name, attempt, done);
    }

    /// One command that is one transaction.
    fn one(&mut self, kind: &'static str, act: impl FnOnce(&mut Link, i64) -> Asked<MyAnswer>) {
        self.link();
        let mut attempt = self.begin(kind, 1);
        attempt.committing = Some(attempt.begun);
        let id = attempt.ids[0];
        let done = self.ask(|link| act(link, id)).map(|_| ());
        self.note(attempt, done);
    }

    /// Leaves a transaction that an error may have left open: errors tell no status.
    fn roll_back(&mut self) {
        if self.wire.is_some() && self.say("ROLLBACK").is_err() {
            self.wire = None;
        }
    }

    /// Notes it, and rolls back what failed.
    fn finish(&mut self, attempt: Try, done: Done) {
        let failed = done.is_err();
        self.note(attempt, done);
        if failed {
            self.roll_back();
        }
    }

    /// A transaction of several commands; `reads` begins it with a read and a pause.
    fn explicit(&mut self, reads: bool) {
        self.link();
        let rows = if reads { 1 } else { 2 };
        let mut attempt = self.begin(if reads { "read-then-write" } else { "explicit" }, rows);
        let done = self.explicit_steps(reads, &mut attempt);
        self.finish(attempt, done);
    }

    fn explicit_steps(&mut self, reads: bool, attempt: &mut Try) -> Done {
        self.say("BEGIN")?;
        if reads {
            self.say("SELECT count(*) FROM h WHERE id < 0")?;
            attempt.open = Some(self.history.now());
            self.think(120);
        }
        for id in attempt.ids.clone() {
            attempt.wrote.get_or_insert(self.history.now());
            self.say(&insert(&[id]))?;
            let pause = if self.dice.below(8) == 0 { 600 } else { 20 };
            self.think(pause);
        }
        attempt.committing = Some(self.history.now());
        self.say("COMMIT").map(|_| ())
    }

    /// A transaction that nobody began: autocommit is off for it.
    fn implicit(&mut self) {
        self.link();
        let mut attempt = self.begin("implicit", 1);
        let done = self.implicit_steps(&mut attempt);
        let failed = done.is_err();
        self.note(attempt, done);
        // The setting goes with the connection.
        if failed || self.say("SET autocommit = 1").is_err() {
            self.wire = None;
        }
    }

    fn implicit_steps(&mut self, attempt: &mut Try) -> Done {
        self.say("SET autocommit = 0")?;
        attempt.wrote = Some(self.history.now());
        self.say(&insert(&attempt.ids))?;
        self.think(30);
        attempt.committing = Some(self.history.now());
        self.say("COMMIT").map(|_| ())
    }

    /// A whole transaction in one command.
    fn string(&mut self) {
        self.link();
        let mut attempt = self.begin("string", 1);
        attempt.committing = Some(attempt.begun);
        let done = self.say(&format!("BEGIN; {}; COMMIT", insert(&attempt.ids))).map(|_| ());
        self.finish(attempt, done);
    }

    /// Prepared, executed once, closed.
    fn prepare_and_execute(&mut self) {
        self.link();
        let mut attempt = self.begin("prepare-execute", 1);
        attempt.committing = Some(attempt.begun);
        let sql = insert(&attempt.ids);
        let done = self.ask(|link| {
            let prepared = match link.wire.prepare(&sql)? {
                Ok(prepared) => prepared,
                Err(error) => return Ok(refused(error)),
            };
            link.wire.command(&prepared.execute(&[]));
            let answer = link.wire.answer(&[]);
            let close = [&[0x19][..], &prepared.id.to_le_bytes()].concat();
            link.wire.command(&close);
            answer
        });
        self.note(attempt, done.map(|_| ()));
    }

    /// Several commands sent before the first is answered, each a transaction of its own.
    fn several_commands(&mut self) {
        self.link();
        let tries: Vec<Try> = (0..3).map(|_| self.begin("pipelined", 1)).collect();
        let all: Vec<String> = tries.iter().map(|one| insert(&one.ids)).collect();
        let mut unsent = true;
        let mut over = false;
        for mut attempt in tries {
            attempt.committing = Some(attempt.begun);
            // The others were sent as well; a new connection has no answers of theirs.
            let done = if over {
                Err(End::Lost("behind a loss".to_owned()))
            } else {
                let first = std::mem::take(&mut unsent);
                let answer = self.ask(|link| {
                    for sql in all.iter().filter(|_| first) {
                        link.wire.begin_query(sql)?;
                    }
                    link.wire.answer(&[])
                });
                answer.map(|_| ())
            };
            over |= self.wire.is_none();
            self.note(attempt, done);
        }
    }

    /// Several rows in one statement.
    fn several_rows(&mut self) {
        self.link();
        let mut attempt = self.begin("rows", 3);
        attempt.committing = Some(attempt.begun);
        let done = self.say(&insert(&attempt.ids)).map(|_| ());
        self.note(attempt, done);
    }

    /// A write in a function behind a view, or called by its name.
    fn hidden(&mut self) {
        self.link();
        let mut attempt = self.begin("hidden", 1);
        let set = format!("SET @h_n = {}", attempt.ids[0]);
        if let Err(end) = self.say(&set) {
            return self.history.note_read(&self.name, attempt.begun, Err(end));
        }
        attempt.begun = self.history.now();
        attempt.committing = Some(attempt.begun);
        let by_name = self.dice.below(2) == 0;
        let sql = if by_name { "SELECT hidden_write()" } else { "SELECT * FROM hidden" };
        let done = self.say(sql).map(|_| ());
        self.note(attempt, done);
    }

    /// Two phases; what the fence keeps from ending here is ended around the proxy.
    fn two_phase(&mut self) {
        let id = thread(&self.link().wire);
        let mut attempt = self.begin("two-phase", 1);
        let branch = format!("h-{}-{}", self.site.db, attempt.ids[0]);
        if let Err(end) = self.prepare_branch(&branch, &attempt.ids) {
            self.leave(id);
            if self.is_prepared(&branch) {
                if matches!(end, End::Refused(_)) {
                    self.history.fault(format!("{branch} was refused and is prepared: {end:?}"));
                }
                self.end_branch("ROLLBACK", &branch);
            }
            return self.note(attempt, Err(end));
        }
        self.think(30);
        attempt.committing = Some(self.history.now());
        let mut done = self.say(&format!("XA COMMIT '{branch}'")).map(|_| ());
        if done.is_err() {
            // On MariaDB nobody else may end it while its session lives.
            self.leave(id);
            if self.is_prepared(&branch) {
                attempt.committing = Some(self.history.now());
                self.end_branch("COMMIT", &branch);
                done = Ok(());
            } else if matches!(done, Err(End::Refused(_))) {
                self.history.fault(format!("{branch}: its XA COMMIT was refused and it is gone"));
            }
        }
        self.note(attempt, done);
    }

    fn prepare_branch(&mut self, branch: &str, ids: &[i64]) -> Done {
        self.say(&format!("XA START '{branch}'"))?;
        self.say(&insert(ids))?;
        self.say(&format!("XA END '{branch}'"))?;
        let prepared = self.say(&format!("XA PREPARE '{branch}'")).map(|_| ());
        let by_fence = matches!(&prepared, Err(End::Refused(code)) if code == "ZF001");
        if by_fence && self.site.cluster.flavour() == MyFlavour::MySql {
            // Refused there beside another schema's fence, too (docs/CONTRACT.md): its session has
            // to be able to undo it, fenced or not.
            self.say(&format!("XA ROLLBACK '{branch}'"))?;
            return Err(End::Refused("undone".to_owned()));
        }
        prepared
    }

    /// Closes the connection and waits until the engine's thread is gone.
    fn leave(&mut self, id: u32) {
        self.wire = None;
        let sql = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {id}");
        let gone = poll(PATIENCE, || (self.site.cluster.sql("mysql", &sql) == "0").then_some(()));
        if gone.is_none() {
            self.history.late(format!("{}: thread {id} stays", self.name));
        }
    }

    fn is_prepared(&self, branch: &str) -> bool {
        let branches = self.site.cluster.sql("mysql", "XA RECOVER");
        branches.lines().any(|line| line.ends_with(&format!("\t{branch}")))
    }

    /// Ends a detached branch around the proxy.
    fn end_branch(&self, how: &str, branch: &str) {
        let sql = format!("XA {how} '{branch}'");
        let mut last = String::new();
        let done = poll(PATIENCE, || {
            let ended = self.site.cluster.try_sql("mysql", &sql);
            ended.map_err(|words| last = words).ok()
        });
        if done.is_none() {
            self.history.late(format!("{sql}: {last}"));
        }
    }

    /// One row undone by its client, one kept.
    fn savepoint(&mut self) {
        self.link();
        let undone = self.begin("savepoint", 1);
        let mut kept = self.begin("savepoint", 1);
        let steps = format!(
            "BEGIN; SAVEPOINT a; {}; ROLLBACK TO a; {}",
            insert(&undone.ids),
            insert(&kept.ids)
        );
        let mut done = self.say(&steps).map(|_| ());
        if done.is_ok() {
            let pause = if std::mem::take(&mut self.refused) { 160 } else { 20 };
            self.think(pause);
            kept.committing = Some(self.history.now());
            done = self.say("COMMIT").map(|_| ());
        }
        self.note(undone, Err(End::Refused("undone".to_owned())));
        self.finish(kept, done);
    }

    /// A client that goes away in the middle, or right behind its COMMIT.
    fn hang_up(&mut self) {
        self.link();
        let mut attempt = self.begin("hang-up", 1);
        let begun = self.say("BEGIN").and_then(|_| self.say(&insert(&attempt.ids)));
        if let Err(end) = begun {
            return self.finish(attempt, Err(end));
        }
        self.think(30);
        if self.dice.below(2) == 0 {
            attempt.committing = Some(self.history.now());
            // Whether it was sent doesn't matter: nobody waits for what becomes of it.
            drop(self.link().wire.begin_query("COMMIT"));
        }
        self.wire = None;
        self.note(attempt, Err(End::Lost("hung up".to_owned())));
    }

    /// A read: fence or not, it is answered; only force may end one of before the fence.
    fn read(&mut self) {
        self.link();
        let begun = self.history.now();
        let done = self.say("SELECT count(*) FROM h WHERE id < 0").map(|_| ());
        self.history.note_read(&self.name, begun, done);
    }

    /// A write around the proxy, with a bound on its wait; whether it was done.
    fn around(&mut self) -> bool {
        self.link();
        let mut attempt = self.begin("direct", 1);
        attempt.committing = Some(self.history.now());
        let done = self.say(&insert(&attempt.ids)).map(|_| ());
        let written = done.is_ok();
        self.note(attempt, done);
        written
    }
}

/// Executes the connection's prepared write; prepares it first where that hasn't been done.
fn execute(link: &mut Link, id: i64) -> Asked<MyAnswer> {
    if link.insert.is_none() {
        match link.wire.prepare("INSERT INTO h VALUES (?, 'prepared')")? {
            Ok(prepared) => link.insert = Some(prepared),
            Err(error) => return Ok(refused(error)),
        }
    }
    let insert = link.insert.expect("it was prepared above, or before");
    link.wire.command(&insert.execute(&[Some(&id.to_string())]));
    link.wire.answer(&[])
}

/// Nothing but an error, as the answer to a command.
fn refused(error: MyError) -> MyAnswer {
    MyAnswer { results: Vec::new(), error: Some(error), files: Vec::new() }
}

fn insert(ids: &[i64]) -> String {
    let rows: Vec<String> = ids.iter().map(|id| format!("({id}, 'row')")).collect();
    format!("INSERT INTO h VALUES {}", rows.join(", "))
}
