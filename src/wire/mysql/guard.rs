//! The guard: while writes are closed the engine itself refuses them in this session.
//!
//! Purpose: W15 and W17 of wire.md on MySQL and MariaDB. `SET SESSION TRANSACTION READ ONLY` goes
//! in front of each program outside a transaction, and the program waits for the engine's OK: a
//! guard that is cancelled must not have the program run behind it. It may have been sent behind
//! the program before (`ahead.rs`). It is undone, to the session's own value, at the first program
//! after opening.
//!
//! A transaction that was open before the fence can't be made read-only (facts: the setting counts
//! from the next one). Its reads go between a savepoint and a rollback to it, so that nothing a
//! hidden function writes there is ever committed, and its own end stays its own. What would begin
//! another transaction in place of it is preceded by a COMMIT of the proxy's: the same effect, and
//! then the guard is in time.
//!
//! None of the proxy's own statements may fail unnoticed. Nothing of the client's passes before the
//! engine has confirmed the rollback to the savepoint: one that fails is tried again, then the
//! whole transaction is rolled back (ZF009), then the session ends. A COMMIT that fails is tried
//! again, and where the engine has rolled back instead the client gets ZF009 for what it sent. What
//! a program needs in front of it takes a bounded number of rounds. A savepoint that can't be had
//! costs its program alone (ZF008): a transaction of an open schema isn't ended for it.
//!
//! Pure; part of `conversation.rs`.

use std::sync::OnceLock;

use bytes::BytesMut;

use crate::base::arm::{Removable, removed};
use crate::base::{fault, limits};
use crate::gate::admission::Guard;
use crate::sql::{MyFlavour, StatementClass, Toggle, TxEffect};
use crate::wire::mysql::ahead::Ahead;
use crate::wire::mysql::conversation::{Conversation, Stand, Whose};
use crate::wire::mysql::program::Program;
use crate::wire::mysql::refusal::{INTERRUPTED, KILLED, READ_ONLY_SERVER, READ_ONLY_TRANSACTION};
use crate::wire::shared::forced::Forced;
use crate::wire::shared::outgoing::Outgoing;

pub(super) const SET_READ_ONLY: &str = "SET SESSION TRANSACTION READ ONLY";
const SET_READ_WRITE: &str = "SET SESSION TRANSACTION READ WRITE";
/// Whatever the session's `completion_type` is: no other transaction follows, and no goodbye.
const COMMIT: &str = "COMMIT AND NO CHAIN NO RELEASE";
/// The same for a rollback.
pub(crate) const ROLLBACK: &str = "ROLLBACK AND NO CHAIN NO RELEASE";

/// What is known of the guard.
#[derive(Debug)]
pub(crate) struct GuardState {
    flavour: MyFlavour,
    /// A name that no client guesses.
    savepoint: OnceLock<String>,
    /// The client's own setting: whether its transactions are read-only.
    pub(crate) own: Toggle,
    /// The guard has set it on this session, and must undo that once writes are open.
    pub(super) on: bool,
    /// The transaction that is open is read-only because the guard was on when it began.
    began_under: bool,
    /// It is in force for the program that begins next: the engine has said so.
    pub(super) ready: bool,
    /// It was sent behind the program that runs.
    pub(super) ahead: Ahead,
    /// The savepoint is set for the program that begins next.
    saved: bool,
    /// The engine has refused that savepoint, and would again: MariaDB does once a table of an
    /// engine without savepoints (Aria) takes part in the transaction.
    unsavable: bool,
    /// What the last program may have written isn't shown to be taken back.
    pub(crate) unwrapping: bool,
    /// The proxy's COMMIT has failed, and what became of the transaction isn't known.
    commit_failed: bool,
    /// How often in a row the program that begins next had to wait for something.
    rounds: u32,
    /// How often in a row the proxy's own statements failed.
    tries: u32,
    /// They go on failing: the session can't go on.
    pub(crate) failed: bool,
}

/// Whether the guard is as a program needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Armed {
    Done,
    /// By a savepoint.
    Wrapped,
    NotYet,
    /// It can't be: nothing takes back what the program may write. It must not run.
    Never,
}

impl GuardState {
    pub(crate) fn new(flavour: MyFlavour) -> Self {
        Self {
            flavour,
            savepoint: OnceLock::new(),
            own: Toggle::Unknown,
            on: false,
            began_under: false,
            ready: false,
            ahead: Ahead::No,
            saved: false,
            unsavable: false,
            unwrapping: false,
            commit_failed: false,
            rounds: 0,
            tries: 0,
            failed: false,
        }
    }

    /// The savepoint's name, random per session. Most sessions end without one.
    fn savepoint(&self) -> &str {
        self.savepoint.get_or_init(|| format!("fencewire_{}", uuid::Uuid::new_v4().simple()))
    }

    /// The session was reset: its settings are the engine's defaults.
    pub(crate) fn reset(&mut self) {
        (self.own, self.on, self.ready, self.saved) = (Toggle::Unknown, false, false, false);
        (self.began_under, self.unsavable) = (false, false);
    }

    /// A program was to set the client's own setting, and has been answered; `alone`: it was one
    /// statement.
    ///
    /// While the guard is on the engine can't be asked: it would tell the guard's setting. Then a
    /// statement that failed has set nothing, of several that failed half way this one is taken to
    /// have run, and what isn't known isn't the client's.
    pub(crate) fn note_own(&mut self, own: Toggle, well: bool, alone: bool) {
        if !self.on {
            self.own = if well { own } else { Toggle::Unknown };
        } else if own != Toggle::Unknown && (well || !alone) {
            self.own = own;
        }
    }

    /// The engine has told whether a transaction is open, in an answer to whatever: behind the end
    /// of one that began under the guard no refusal is the guard's.
    pub(crate) const fn note_status(&mut self, in_transaction: bool) {
        self.began_under &= in_transaction;
        self.unsavable &= in_transaction;
    }

    /// The engine has refused the savepoint: for good, unless something interrupted it.
    pub(crate) fn note_no_savepoint(&mut self, errno: u16) {
        self.unsavable = errno != INTERRUPTED && !KILLED.contains(&errno);
    }

    const fn question(&self) -> &'static str {
        match self.flavour {
            MyFlavour::MariaDb => "SELECT @@session.tx_read_only",
            MyFlavour::MySql => "SELECT @@session.transaction_read_only",
        }
    }
}

impl Conversation {
    /// Whether a program could get around the guard: one in an older XA transaction, which takes
    /// neither the setting nor a savepoint nor a COMMIT in front of what begins another one; or
    /// several statements, of which an earlier one (a function behind a view) may lift the setting
    /// for a later one.
    pub(crate) fn escapes_guard(&self, program: &Program) -> bool {
        let writable = self.stand == Stand::Inside { read_only: false };
        let begins = program.tx() == TxEffect::Begin;
        if self.xa && writable && (begins || program.class >= StatementClass::Read) {
            return true;
        }
        if !program.is_several() {
            return false;
        }
        match self.stand {
            Stand::Inside { read_only: true } => {
                program.tx() != TxEffect::None || program.commits_implicitly()
            }
            Stand::Inside { read_only: false } => true,
            Stand::Outside | Stand::Unknown => program.class >= StatementClass::Read,
        }
    }

    /// Whether the guard would have to commit what the open transaction has written, in front of a
    /// program that perhaps doesn't: a text that the engine can't parse commits nothing, and the
    /// client may still mean to roll back.
    pub(crate) fn would_commit(&self, program: &Program) -> bool {
        matches!(self.stand, Stand::Inside { .. })
            && program.tx() != TxEffect::Begin
            && begins_anew(program)
            && self.seats.is_writing()
    }

    /// Injects what a program needs in front of it, or what the guard left behind.
    pub(crate) fn arm(&mut self, guard: Guard, program: &Program, out: &mut Outgoing<'_>) -> Armed {
        if removed(Removable::ReadOnlyGuard) {
            return Armed::Done;
        }
        let ready = std::mem::take(&mut self.guard.ready);
        let saved = std::mem::take(&mut self.guard.saved);
        let (whose, sql) = match (guard, self.stand) {
            // It would begin under the guard, in an open proxy, or be taken for one that did.
            (Guard::Off, Stand::Inside { .. })
                if self.guard.on && !self.xa && begins_anew(program) =>
            {
                (Whose::Commit, COMMIT.to_owned())
            }
            (Guard::Off, Stand::Inside { .. }) => return Armed::Done,
            (Guard::Off, Stand::Outside | Stand::Unknown) if !self.guard.on => return Armed::Done,
            (Guard::Off | Guard::On, Stand::Unknown) => {
                out.inject(|buffer| self.ping(buffer));
                return Armed::NotYet;
            }
            (Guard::Off, Stand::Outside) => {
                self.guard.on = false;
                if self.guard.own == Toggle::On {
                    return Armed::Done;
                }
                (Whose::Undo, SET_READ_WRITE.to_owned())
            }
            (Guard::On, Stand::Outside) if ready => return Armed::Done,
            (Guard::On, Stand::Outside) if self.guard.own == Toggle::Unknown => {
                (Whose::OwnSetting(None), self.guard.question().to_owned())
            }
            (Guard::On, Stand::Outside) => {
                self.guard.on = true;
                (Whose::Guard, SET_READ_ONLY.to_owned())
            }
            (Guard::On, Stand::Inside { .. }) if begins_anew(program) => {
                (Whose::Commit, COMMIT.to_owned())
            }
            (Guard::On, Stand::Inside { read_only: true }) => return Armed::Done,
            (Guard::On, Stand::Inside { read_only: false }) => {
                let bare = program.class != StatementClass::Read || program.tx() != TxEffect::None;
                if bare {
                    return Armed::Done;
                }
                if saved {
                    return Armed::Wrapped;
                }
                if std::mem::take(&mut self.guard.unsavable) {
                    return Armed::Never;
                }
                (Whose::Savepoint, format!("SAVEPOINT {}", self.guard.savepoint()))
            }
        };
        out.inject(|buffer| self.run(whose, &sql, buffer));
        Armed::NotYet
    }

    /// Counts the rounds that a program waits before it may begin: an engine that answers well and
    /// does something else must not keep a session busy for ever.
    pub(crate) const fn note_round(&mut self, waits: bool) {
        self.guard.rounds = if waits { self.guard.rounds + 1 } else { 0 };
        if self.guard.rounds > limits::GUARD_ROUNDS_MAX {
            self.guard.failed = true;
        }
    }

    /// Goes on with what the proxy owes the transaction, once nothing is owed and the stand is
    /// known: takes back what a program may have written in a transaction that isn't read-only, or
    /// finds out what became of a COMMIT that failed.
    pub(crate) fn guard_goes_on(&mut self, to_engine: &mut BytesMut) {
        let inside = self.stand != Stand::Outside;
        if std::mem::take(&mut self.guard.commit_failed) && !inside {
            // The client meant to commit: it must hear that this isn't so.
            self.forced = Forced::RolledBack { told: false };
        }
        if !self.guard.unwrapping {
            return;
        }
        if !inside {
            // Asked for before the first try: so the transaction has gone without its client's
            // knowing.
            self.guard.unwrapping = false;
            if self.guard.tries > 0 {
                self.forced = Forced::RolledBack { told: false };
            }
        } else if self.guard.tries < limits::UNWRAP_TRIES_MAX {
            // At the fault point it is another savepoint, which the engine doesn't know.
            let there = fault::point("wire.unwrap").is_ok();
            let name = if there { self.guard.savepoint() } else { "fencewire_injected" };
            let sql = format!("ROLLBACK TO SAVEPOINT {name}");
            self.run(Whose::Unwrap, &sql, to_engine);
        } else {
            self.roll_back(0, false, to_engine);
        }
    }

    /// Whether the stand must be asked for before anything else.
    pub(crate) const fn guard_wants_word(&self) -> bool {
        self.guard.unwrapping || self.guard.commit_failed
    }

    /// The engine has answered something of the proxy's own.
    pub(crate) fn guard_answered(&mut self, whose: Whose, well: bool) {
        match whose {
            Whose::Guard => self.guard.ready = well && self.stand == Stand::Outside,
            Whose::Ahead => self.ahead_answered(well),
            Whose::Savepoint => {
                self.guard.saved = well && self.stand == Stand::Inside { read_only: false };
            }
            // It would stay read-only for a client that is told otherwise.
            Whose::Undo => self.guard.failed |= !well,
            Whose::OwnSetting(answer) => {
                if let Some(own) = answer.filter(|_| well) {
                    self.guard.own = Toggle::from(own);
                }
            }
            Whose::Unwrap => self.guard.unwrapping &= !well,
            Whose::Commit => self.guard.commit_failed = !well,
            Whose::Ping
            | Whose::Rollback
            | Whose::Cursor
            | Whose::WhichSchema
            | Whose::Client { .. } => {}
        }
        if !well && whose != Whose::Ahead {
            self.guard.tries += 1;
        } else if well && !matches!(whose, Whose::Ping | Whose::Cursor) {
            self.guard.tries = 0;
        }
        let spent = self.guard.tries >= limits::GUARD_TRIES_MAX;
        if whose == Whose::Savepoint && !well && (spent || self.guard.unsavable) {
            // Nothing of the program has run: it is refused, and its transaction stays.
            (self.guard.unsavable, self.guard.tries) = (true, 0);
        }
        self.guard.failed |= self.guard.tries >= limits::GUARD_TRIES_MAX;
    }

    /// A program of the client's has been answered: whether a transaction that is open behind it
    /// is read-only by the guard. With autocommit off a guarded read begins one, and what another
    /// schema's open gate lets through afterwards is refused by the engine in it (W15).
    pub(crate) fn note_transaction(&mut self, guarded: bool) {
        match self.stand {
            Stand::Inside { read_only: true } => self.guard.began_under |= guarded,
            Stand::Inside { read_only: false } | Stand::Outside | Stand::Unknown => {}
        }
    }

    /// Whether an error is the guard's own refusal (wire.md W15). `packet` is the ERR packet, as
    /// far as it is there.
    pub(crate) fn is_guards_refusal(&self, errno: u16, packet: &[u8]) -> bool {
        let clients = matches!(self.owed, Some(Whose::Client { .. }));
        let guarded = matches!(self.owed, Some(Whose::Client { guarded: true, .. }))
            || (clients && self.guard.began_under);
        let says = |word: &[u8]| packet.windows(word.len()).any(|window| window == word);
        guarded
            && match errno {
                READ_ONLY_TRANSACTION => true,
                // The same number stands for other settings that prevent a statement.
                READ_ONLY_SERVER => says(b"read-only") || says(b"read_only"),
                _ => false,
            }
    }
}

/// Whether a program ends an open transaction for another one that begins in its place, or reads
/// beside ending it. UNLOCK TABLES and a plain SET autocommit only end one, if even that: a dump
/// keeps its snapshot across them, and where they do end it that is the client's own COMMIT.
fn begins_anew(program: &Program) -> bool {
    let reads = program.class >= StatementClass::Read;
    program.tx() == TxEffect::Begin || (reads && program.commits_implicitly())
}
