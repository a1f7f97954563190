//! The guard: while writes are closed the engine itself refuses them in this session.
//!
//! Purpose: W15 and W17 of wire.md on MySQL and MariaDB. `SET SESSION TRANSACTION READ ONLY` goes
//! in front of each program outside a transaction, and the program waits for the engine's OK: a
//! guard that is cancelled must not have the program run behind it. It is undone, to the session's
//! own value, at the first program after opening.
//!
//! A transaction that was open before the fence can't be made read-only (facts: the setting counts
//! from the next one). Its reads go between a savepoint and a rollback to it, so that nothing a
//! hidden function writes there is ever committed, and its own end stays its own. What would begin
//! another transaction in place of it is preceded by a COMMIT of the proxy's: the same effect, and
//! then the guard is in time.
//!
//! Pure; part of `conversation.rs`.

use bytes::BytesMut;

use crate::base::arm::{Removable, removed};
use crate::base::limits;
use crate::gate::admission::Guard;
use crate::sql::{MyFlavour, StatementClass, Toggle, TxEffect};
use crate::wire::mysql::conversation::{Conversation, Stand, Whose};
use crate::wire::mysql::program::Program;
use crate::wire::mysql::refusal::{READ_ONLY_SERVER, READ_ONLY_TRANSACTION};
use crate::wire::shared::outgoing::Outgoing;

const SET_READ_ONLY: &str = "SET SESSION TRANSACTION READ ONLY";
const SET_READ_WRITE: &str = "SET SESSION TRANSACTION READ WRITE";

/// What is known of the guard.
#[derive(Debug)]
pub(crate) struct GuardState {
    flavour: MyFlavour,
    /// A name that no client guesses.
    savepoint: String,
    /// The client's own setting: whether its transactions are read-only.
    pub(crate) own: Toggle,
    /// The guard has set it on this session, and must undo that once writes are open.
    on: bool,
    /// It is in force for the program that begins next: the engine has said so.
    ready: bool,
    /// The savepoint is set for the program that begins next.
    saved: bool,
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
}

impl GuardState {
    pub(crate) fn new(flavour: MyFlavour) -> Self {
        Self {
            flavour,
            savepoint: format!("fencewire_{}", uuid::Uuid::new_v4().simple()),
            own: Toggle::Unknown,
            on: false,
            ready: false,
            saved: false,
            tries: 0,
            failed: false,
        }
    }

    /// The session was reset: its settings are the engine's defaults.
    pub(crate) fn reset(&mut self) {
        (self.own, self.on, self.ready, self.saved) = (Toggle::Unknown, false, false, false);
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
    /// neither the setting nor a savepoint; or several statements, of which an earlier one (a
    /// function behind a view) may lift the setting for a later one.
    pub(crate) fn escapes_guard(&self, program: &Program) -> bool {
        let writable = self.stand == Stand::Inside { read_only: false };
        if self.xa && writable && program.class >= StatementClass::Read {
            return true;
        }
        if !program.is_several() {
            return false;
        }
        match self.stand {
            Stand::Inside { read_only: true } => {
                program.tx() != TxEffect::None || program.commits_implicitly(false)
            }
            Stand::Inside { read_only: false } => true,
            Stand::Outside | Stand::Unknown => program.class >= StatementClass::Read,
        }
    }

    /// Injects what a program needs in front of it, or what the guard left behind.
    pub(crate) fn arm(&mut self, guard: Guard, program: &Program, out: &mut Outgoing<'_>) -> Armed {
        if removed(Removable::ReadOnlyGuard) {
            return Armed::Done;
        }
        let ready = std::mem::take(&mut self.guard.ready);
        let saved = std::mem::take(&mut self.guard.saved);
        let (whose, sql) = match (guard, self.stand) {
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
            (Guard::On, Stand::Inside { .. })
                if program.tx() == TxEffect::Begin
                    || program.commits_implicitly(self.status.autocommit()) =>
            {
                (Whose::Own, "COMMIT".to_owned())
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
                (Whose::Savepoint, format!("SAVEPOINT {}", self.guard.savepoint))
            }
        };
        out.inject(|buffer| self.run(whose, &sql, buffer));
        Armed::NotYet
    }

    /// Takes back what a program may have written in a transaction that isn't read-only.
    pub(crate) fn unwrap(&mut self, to_engine: &mut BytesMut) {
        let sql = format!("ROLLBACK TO SAVEPOINT {}", self.guard.savepoint);
        self.run(Whose::Own, &sql, to_engine);
    }

    /// The engine has answered something of the proxy's own.
    pub(crate) fn guard_answered(&mut self, whose: Whose, well: bool) {
        match whose {
            Whose::Guard => self.guard.ready = well && self.stand == Stand::Outside,
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
            Whose::Ping | Whose::Own | Whose::Client { .. } => {}
        }
        if !well {
            self.guard.tries += 1;
        } else if matches!(whose, Whose::Guard | Whose::Savepoint) {
            self.guard.tries = 0;
        }
        self.guard.failed |= self.guard.tries >= limits::GUARD_TRIES_MAX;
    }

    /// Whether an error is the guard's own refusal (wire.md W15). `packet` is the ERR packet, as
    /// far as it is there.
    pub(crate) fn is_guards_refusal(&self, errno: u16, packet: &[u8]) -> bool {
        let guarded = matches!(self.owed, Some(Whose::Client { guarded: true, .. }));
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
