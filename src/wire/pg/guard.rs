//! The read-only guard of a PostgreSQL session: in front of a program, or behind the one before.
//!
//! Purpose: W17. Every program that is admitted while writes are closed runs behind the engine's
//! word that its session is read-only. Outside transactions that is a SET of the session's default,
//! which anything that the session runs may lift unseen, so that each program needs one of its own.
//!
//! **The guard for the next program goes out behind the one that runs now**, in the same write,
//! where that one leaves the session idle whatever becomes of it ([`Conversation::arm_ahead`]).
//! When the next program comes its guard is confirmed, as a rule, and it waits for nothing. What is
//! known by then is what a guard in front would tell: the engine has done the SET in a transaction
//! of its own, behind all that the session ran before, and nothing of the client's has run since.
//! A guard ahead that failed, or that isn't answered by the status that it was sent for, counts for
//! nothing, and the next program gets one in front. To leave the SET out where none is seen to have
//! been lifted would be no evidence: a RESET behind a view and two reloads of the engine's settings
//! leave the default where it was as far as anybody is told, and off in between.
//!
//! Called by `conversation.rs` and `client.rs`; `answers.rs` tells it what the engine says. What is
//! brought back by the undoing is `own_setting.rs`'s to know. Pure; it judges no statement.

use crate::base::arm::{Removable, removed};
use crate::base::fault;
use crate::base::limits;
use crate::gate::admission::Guard;
use crate::wire::pg::conversation::{Conversation, Forced, Mode};
use crate::wire::pg::owed::{Entry, Whose};
use crate::wire::pg::own_setting::SET_READ_ONLY;
use crate::wire::pg::refusal::{self, Status};
use crate::wire::shared::outgoing::Outgoing;

/// Whether the guard is as a program needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Armed {
    Done,
    NotYet,
}

impl Conversation {
    /// Injects the guard's statement, or its undoing, in front of a program (wire.md W17).
    ///
    /// The guarded program waits for the engine's word that the guard is in force: a guard that is
    /// cancelled or runs into a timeout must not have the program run behind it all the same.
    ///
    /// It is a simple query where it may be: that is what costs the engine least. But it drops the
    /// client's unnamed statement, and in a transaction its unnamed portal.
    #[inline]
    pub(super) fn arm(&mut self, guard: Guard, out: &mut Outgoing<'_>) -> Armed {
        let ready = std::mem::take(&mut self.guard_ready);
        // No fence now, and none that left something to undo: the usual case.
        if guard == Guard::Off && !self.guard_on {
            Armed::Done
        } else {
            self.change(guard, ready, out)
        }
    }

    #[inline(never)]
    fn change(&mut self, guard: Guard, ready: bool, out: &mut Outgoing<'_>) -> Armed {
        let bare = self.mode == Mode::PhysicalReplication || removed(Removable::ReadOnlyGuard);
        let (whose, statement) = match (guard, self.status) {
            (Guard::On, _) if bare => return Armed::Done,
            (Guard::On, _) if !self.owed.is_empty() => return Armed::NotYet,
            (Guard::On, Status::Idle | Status::Open) if ready => return Armed::Done,
            (Guard::On, Status::Idle) => {
                self.guard_on = true;
                (Whose::Guard, SET_READ_ONLY)
            }
            (Guard::On, Status::Open) => (Whose::Guard, "SET TRANSACTION READ ONLY"),
            (Guard::Off, Status::Idle) if self.guard_on && self.owed.is_empty() => {
                self.guard_on = false;
                // At the fault point it is a setting that the engine doesn't know.
                let undone = match fault::point("wire.undo") {
                    Ok(()) => self.own.undo(),
                    Err(_) => "SET fencewire_injected = off",
                };
                (Whose::Undo, undone)
            }
            (Guard::On | Guard::Off, Status::Idle | Status::Open | Status::Failed) => {
                return Armed::Done;
            }
        };
        self.owed.simple(whose);
        // A pipeline's own block would end at the Sync of another one: committed by the proxy. It
        // is open behind a simple query, which has dropped the unnamed statement already.
        let in_place = self.implicit && !removed(Removable::GuardStatus);
        let spares = whose == Whose::Undo || self.status != Status::Idle || self.unnamed;
        out.inject(|buffer| match self.mode {
            Mode::Sql if spares && !in_place => self.stand_in.as_pipeline(buffer, statement),
            // A walsender knows simple queries only.
            Mode::Sql | Mode::LogicalReplication | Mode::PhysicalReplication => {
                refusal::query(buffer, statement);
            }
        });
        if whose == Whose::Guard { Armed::NotYet } else { Armed::Done }
    }

    /// The engine has answered a statement of the proxy's own. Only its word that the SET was done
    /// counts: a statement that was skipped is answered without an error. And it counts only where
    /// the status is still the one that it was set in. Set for a transaction it is gone with that,
    /// which on PostgreSQL 18 the guard's own Sync may have ended; set for the session in a
    /// transaction that nobody knew of, it would be rolled back with it.
    pub(crate) fn own_answered(&mut self, entry: &Entry, status: Status) {
        let there = status == self.status || removed(Removable::GuardStatus);
        let done = entry.confirmed && !entry.failed && there;
        // In force for the program that it was set for, and for nothing behind another answer.
        self.guard_ready &= entry.is_lone();
        if entry.has_run_a_query() && self.owed.is_free_of_programs() {
            self.unnamed = false;
        }
        match entry.whose {
            Whose::Guard => self.guard_answered(done, status, entry.ahead),
            Whose::Client if status != Status::Idle => self.spoil_ahead(),
            Whose::Undo if done => self.own.undone(),
            Whose::Undo => self.fail_undo(),
            // Behind a Sync that stood alone: its ROLLBACK met nothing, so that Sync did end what
            // was open, and committed it. Nobody may be told that it was rolled back.
            Whose::Own if self.doubted && !entry.failed => self.forced = Forced::No,
            Whose::Client | Whose::Own => {}
        }
    }

    /// The guard's undoing failed.
    pub(crate) const fn fail_undo(&mut self) {
        self.guard_failed = true;
        self.undo_failed = true;
    }

    /// Sends the guard for the program that comes next behind the one that was forwarded to its end
    /// just now. Called with nothing of a message left to be forwarded.
    ///
    /// Only behind a program that can leave the session in nothing but status `I`: a SET in a
    /// transaction of the client's would be rolled back with it, or be seen. So it began outside
    /// of one, with nothing else owed, and holds nothing but reads ([`Entry::is_calm`]): these may
    /// fail, but open no block, and take no COPY data, which the guard would be taken for. Its
    /// lease is held until the guard is answered as well.
    #[inline]
    pub(crate) fn arm_ahead(&mut self, out: &mut Outgoing<'_>) {
        if self.guard_on && self.may_arm_ahead() {
            self.send_ahead(out);
        }
    }

    fn may_arm_ahead(&self) -> bool {
        let idle = self.status == Status::Idle && !self.implicit && !self.doubted;
        let guarded = self.lease.as_ref().is_some_and(|lease| lease.stamp().is_guarded_read());
        // Behind a change of the seat the next program may have none.
        let seated = self.seat.capability().is_none() && !self.bearing.must_wait();
        idle && guarded
            && seated
            && self.mode == Mode::Sql
            && self.forced == Forced::No
            && !self.lexing_uncertain
            && !self.guard_failed
            && self.elsewhere.is_empty()
            && !self.seat.gate().word().writes_open()
            && self.owed.is_one_calm()
            && !removed(Removable::ReadOnlyGuard)
    }

    fn send_ahead(&mut self, out: &mut Outgoing<'_>) {
        self.owed.simple(Whose::Guard).ahead = true;
        out.inject(|buffer| {
            if self.unnamed {
                self.stand_in.as_short_pipeline(buffer, SET_READ_ONLY);
            } else {
                refusal::query(buffer, SET_READ_ONLY);
            }
        });
    }

    /// Whether nothing is owed but a guard that was sent ahead. Its answer is read whether or not
    /// the client takes what the program before has said: a lease hangs on it.
    pub(crate) fn awaits_ahead(&self) -> bool {
        self.guard_on && self.owed.is_one_ahead()
    }

    /// The program in front of a guard that was sent ahead has not left the session idle: the SET
    /// was done in a transaction that isn't its own.
    fn spoil_ahead(&mut self) {
        if let Some(next) = self.owed.front_mut().filter(|next| next.ahead) {
            next.failed |= !removed(Removable::GuardStatus);
        }
    }

    /// One that was sent ahead may fail as often as it likes: in front of the program there is
    /// another one then, and that is counted.
    const fn guard_answered(&mut self, done: bool, status: Status, ahead: bool) {
        self.guard_ready = done;
        match (done, ahead) {
            (true, _) => self.guard_tries = 0,
            (false, false) => self.guard_tries += 1,
            (false, true) => {}
        }
        self.guard_failed |= self.guard_tries >= limits::GUARD_TRIES_MAX;
        if done && matches!(status, Status::Idle) {
            // Not when it was sent: a program that was still to be answered may have changed it.
            self.own.guarded();
        }
    }
}
