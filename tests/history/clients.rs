//! Clients that write numbered rows in every way, and note what they are told.
//!
//! Purpose: each kind of work is one function; its ids are in the history however it ends. A client
//! that lost its connection makes a new one. Called by `history_pg.rs` on one thread per client.
//! It judges nothing but that reads go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::lane::Crewed;
use super::{Dice, Done, End, History, Try};
use crate::acceptance::{PATIENCE, Site};
use crate::support::wire::{
    Answer, Failed, bind, copy_data, copy_done, execute, parse, query, sync,
};
use crate::support::{Wire, poll};

/// One client.
struct Client<'a> {
    site: &'a Site<'a>,
    history: &'a History,
    name: String,
    dice: Dice,
    wire: Option<Wire>,
    direct: bool,
}

impl Crewed for Site<'_> {
    fn work(&self, history: &History, name: &str, direct: bool, dice: Dice, stop: &AtomicBool) {
        let client =
            Client { site: self, history, name: name.to_owned(), dice, wire: None, direct };
        client.run(stop);
    }
}

impl Client<'_> {
    /// Works until `stop`.
    fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::SeqCst) {
            if self.direct {
                self.around();
                self.think(400);
                continue;
            }
            match self.dice.below(16) {
                0 | 1 => self.one("autocommit", |ids| query(&insert(ids))),
                2 | 3 => self.explicit(false),
                4 => self.explicit(true),
                5 => self.one("string", |ids| query(&format!("BEGIN; {}; COMMIT", insert(ids)))),
                6 => self.one("extended", |ids| {
                    [parse("", &insert(ids)), bind("", "", &[]), execute("", 0), sync()].concat()
                }),
                7 => self.one("prepared", |ids| [prepared(ids[0]), sync()].concat()),
                8 => self.many_syncs(),
                9 => self.pipeline_rows(),
                10 => self.one("copy", |ids| {
                    let rows = copy_data(format!("{}\tcopy\n", ids[0]).as_bytes());
                    [query("COPY h FROM STDIN"), rows, copy_done()].concat()
                }),
                11 => self.hidden(),
                12 => self.two_phase(),
                13 => self.savepoint(),
                14 => self.hang_up(),
                _ => self.read(),
            }
            self.think(12);
        }
    }

    /// A pause as clients have them.
    fn think(&mut self, ms: u64) {
        let pause = Duration::from_millis(self.dice.below(ms));
        std::thread::sleep(pause); // tidy: not a race: paces a client
    }

    fn wire(&mut self) -> &mut Wire {
        self.wire.get_or_insert_with(|| {
            if self.direct {
                let mut wire = self.site.direct();
                wire.query("SET lock_timeout = '20ms'").ok();
                return wire;
            }
            let mut wire = self.site.client();
            let prepare = parse("ins", "INSERT INTO h VALUES ($1, 'prepared')");
            let prepare = [prepare, sync()].concat();
            // A fence that stands now refuses it, one whose deadline comes may end it: the client
            // comes back until it is down.
            let prepared = poll(PATIENCE, || {
                wire.send_raw(&prepare);
                let code = wire.until_ready().code();
                let known = matches!(code.as_deref(), None | Some("ZF001" | "ZF009" | "ZF010"));
                assert!(known, "{code:?}");
                code.is_none().then_some(())
            });
            prepared.expect("the write could never be prepared");
            wire
        })
    }

    /// Sends something whole and reads up to ReadyForQuery. The connection is gone after `Err`
    /// unless the error was an answer.
    fn say(&mut self, bytes: &[u8]) -> Result<Answer, End> {
        let outcome = self.wire().try_exchange(bytes);
        let code = match &outcome {
            Ok(answer) => answer.code(),
            Err(_) => None,
        };
        match (outcome, code) {
            (Ok(answer), None) => Ok(answer),
            (Ok(_), Some(code)) => Err(End::Refused(code)),
            (Err(failed), _) => {
                self.wire = None;
                Err(self.lost(failed))
            }
        }
    }

    fn lost(&self, failed: Failed) -> End {
        match failed {
            Failed::Closed(Some(code)) if code != "08007" => End::Refused(code),
            Failed::Closed(Some(code)) => End::Lost(code),
            Failed::Closed(None) => End::Lost("closed".to_owned()),
            Failed::Silent => {
                self.history.fault(format!("{}: no answer at all", self.name));
                End::Lost("silent".to_owned())
            }
        }
    }

    fn begin(&self, kind: &'static str, rows: usize) -> Try {
        self.history.begin(kind, rows)
    }

    fn note(&self, attempt: Try, done: Done) {
        self.history.note(&self.name, attempt, done);
    }

    /// One exchange that is one transaction.
    fn one(&mut self, kind: &'static str, message: impl Fn(&[i64]) -> Vec<u8>) {
        let mut attempt = self.begin(kind, 1);
        attempt.committing = Some(self.history.now());
        let done = self.say(&message(&attempt.ids)).map(|_| ());
        self.note(attempt, done);
        self.roll_back_if_needed();
    }

    /// Leaves a transaction that an error left open.
    fn roll_back_if_needed(&mut self) {
        let open = self.wire.as_ref().is_some_and(|wire| wire.status != 'I');
        if open && self.say(&query("ROLLBACK")).is_err() {
            self.wire = None;
        }
    }

    /// A transaction of several exchanges; `reads` begins it with a read and a pause.
    fn explicit(&mut self, reads: bool) {
        let rows = if reads { 1 } else { 2 };
        let mut attempt = self.begin(if reads { "read-then-write" } else { "explicit" }, rows);
        let done = self.explicit_steps(reads, &mut attempt);
        self.note(attempt, done);
        self.roll_back_if_needed();
    }

    fn explicit_steps(&mut self, reads: bool, attempt: &mut Try) -> Done {
        self.say(&query("BEGIN"))?;
        if reads {
            self.say(&query("SELECT count(*) FROM h WHERE id < 0"))?;
            attempt.open = Some(self.history.now());
            self.think(120);
        }
        for id in attempt.ids.clone() {
            attempt.wrote.get_or_insert(self.history.now());
            self.say(&query(&insert(&[id])))?;
            let pause = if self.dice.below(8) == 0 { 600 } else { 20 };
            self.think(pause);
        }
        attempt.committing = Some(self.history.now());
        let answer = self.say(&query("COMMIT"))?;
        committed(&answer)
    }

    /// Several transactions sent at once, each with a Sync of its own.
    fn many_syncs(&mut self) {
        let tries: Vec<Try> = (0..3).map(|_| self.begin("syncs", 1)).collect();
        let bytes: Vec<u8> =
            tries.iter().flat_map(|one| [prepared(one.ids[0]), sync()].concat()).collect();
        let mut next = bytes;
        let mut over = false;
        for mut attempt in tries {
            attempt.committing = Some(attempt.begun);
            // The others were sent as well; a new connection has no answers of theirs.
            let done = if over {
                Err(End::Lost("behind a loss".to_owned()))
            } else {
                self.say(&std::mem::take(&mut next)).map(|_| ())
            };
            over |= self.wire.is_none();
            self.note(attempt, done);
        }
    }

    /// Several rows in one pipeline with one Sync: one implicit transaction.
    fn pipeline_rows(&mut self) {
        let mut attempt = self.begin("pipeline", 3);
        attempt.committing = Some(self.history.now());
        let mut bytes: Vec<u8> = attempt.ids.iter().flat_map(|id| prepared(*id)).collect();
        bytes.extend(sync());
        let done = self.say(&bytes).map(|_| ());
        self.note(attempt, done);
    }

    /// A write behind something that looks like a read.
    fn hidden(&mut self) {
        self.wire();
        let mut attempt = self.begin("hidden", 1);
        let set = format!("SET h.n = '{}'", attempt.ids[0]);
        if let Err(end) = self.say(&query(&set)) {
            return self.history.note_read(&self.name, attempt.begun, Err(end));
        }
        attempt.begun = self.history.now();
        attempt.committing = Some(attempt.begun);
        let done = self.say(&query("SELECT * FROM hidden")).map(|_| ());
        self.note(attempt, done);
    }

    /// Two phases; what the fence keeps from ending here is ended around the proxy.
    fn two_phase(&mut self) {
        let mut attempt = self.begin("two-phase", 1);
        let gid = format!("h-{}-{}", self.site.db, attempt.ids[0]);
        let steps = format!("BEGIN; {}; PREPARE TRANSACTION '{gid}'", insert(&attempt.ids));
        let prepared = self.say(&query(&steps)).map(|_| ());
        if prepared.is_err() {
            let there = format!("SELECT count(*) FROM pg_prepared_xacts WHERE gid = '{gid}'");
            if self.site.sql(&there) != "0" {
                self.history.fault(format!("{gid} was refused and is prepared: {prepared:?}"));
            }
            self.note(attempt, prepared);
            return self.roll_back_if_needed();
        }
        self.think(30);
        attempt.committing = Some(self.history.now());
        let commit = format!("COMMIT PREPARED '{gid}'");
        let mut done = self.say(&query(&commit)).map(|_| ());
        if done.is_err() {
            attempt.committing = Some(self.history.now());
            done = match self.site.cluster.try_sql(&self.site.db, &commit) {
                Ok(_) => Ok(()),
                Err(words) => Err(End::Refused(words)),
            };
        }
        self.note(attempt, done);
    }

    /// One row undone by its client, one kept.
    fn savepoint(&mut self) {
        let undone = self.begin("savepoint", 1);
        let mut kept = self.begin("savepoint", 1);
        let steps = format!(
            "BEGIN; SAVEPOINT a; {}; ROLLBACK TO a; {}",
            insert(&undone.ids),
            insert(&kept.ids)
        );
        let mut done = self.say(&query(&steps)).map(|_| ());
        if done.is_ok() {
            self.think(40);
            kept.committing = Some(self.history.now());
            done = self.say(&query("COMMIT")).and_then(|answer| committed(&answer));
        }
        self.note(undone, Err(End::Refused("undone".to_owned())));
        self.note(kept, done);
        self.roll_back_if_needed();
    }

    /// A client that goes away in the middle, or right behind its COMMIT.
    fn hang_up(&mut self) {
        let mut attempt = self.begin("hang-up", 1);
        let steps = format!("BEGIN; {}", insert(&attempt.ids));
        if let Err(end) = self.say(&query(&steps)) {
            self.note(attempt, Err(end));
            return self.roll_back_if_needed();
        }
        self.think(30);
        if self.dice.below(2) == 0 {
            attempt.committing = Some(self.history.now());
            self.wire().send_raw(&query("COMMIT"));
        }
        self.wire = None;
        self.note(attempt, Err(End::Lost("hung up".to_owned())));
    }

    /// A read: fence or not, it is answered; only force may end one of before the fence.
    fn read(&mut self) {
        // A new connection may wait for a fence to fall: the read is sent behind that.
        self.wire();
        let begun = self.history.now();
        let done = self.say(&query("SELECT count(*) FROM h WHERE id < 0")).map(|_| ());
        self.history.note_read(&self.name, begun, done);
    }

    /// A write around the proxy, with a bound on its wait.
    fn around(&mut self) {
        let mut attempt = self.begin("direct", 1);
        attempt.committing = Some(self.history.now());
        let done = self.say(&query(&insert(&attempt.ids))).map(|_| ());
        self.note(attempt, done);
    }
}

/// COMMIT of a failed transaction answers ROLLBACK.
fn committed(answer: &Answer) -> Done {
    match answer.tags().first().map(String::as_str) {
        Some("COMMIT") => Ok(()),
        other => Err(End::Refused(format!("COMMIT answered {other:?}"))),
    }
}

fn insert(ids: &[i64]) -> String {
    let rows: Vec<String> = ids.iter().map(|id| format!("({id}, 'row')")).collect();
    format!("INSERT INTO h VALUES {}", rows.join(", "))
}

fn prepared(id: i64) -> Vec<u8> {
    [bind("", "ins", &[Some(&id.to_string())]), execute("", 0)].concat()
}
