//! The client's own `default_transaction_read_only`, which the guard borrows for a fence.
//!
//! Purpose: what the guard's undoing must bring back (W17). A session that has not set it follows
//! the engine's default, which a reload may move at any time (an operator's freeze): that one is
//! given back by RESET. Startup options and the settings of roles and databases are what RESET goes
//! back to. Only a session that has set it itself is given its value back by SET, which keeps it
//! from following the engine for the rest of its life.
//!
//! In doubt it counts as set. What isn't noticed is in `docs/CONTRACT.md`: a trigger, or a function
//! behind a view, that sets it for the session.
//!
//! Pure; a part of `conversation.rs`. `client.rs` tells it what is forwarded, `answers.rs` what the
//! engine says. It sends nothing.

use crate::sql::TxEffect;
use crate::wire::pg::prepared::Traits;
use crate::wire::pg::refusal::Status;

/// What takes the guard back.
const RESET: &str = "RESET default_transaction_read_only";
const SET_READ_WRITE: &str = "SET default_transaction_read_only = off";
/// What sets the guard, and what gives a session that set the same itself its own back.
pub(crate) const SET_READ_ONLY: &str = "SET default_transaction_read_only = on";

/// The setting, as far as its reports and the session's texts tell.
#[derive(Debug, Default)]
pub(crate) struct OwnSetting {
    /// What the client was told of it last.
    value: bool,
    /// What it was when the guard was last set. With the guard on, a transaction that is rolled
    /// back has the engine report the guard's value once more: not the client's, which is this.
    before: bool,
    /// What the engine reported last, whoever was told.
    engine: bool,
    /// The session may have set it itself.
    set: bool,
    /// What takes that back is on its way, in a transaction of its own.
    leaving: bool,
    /// Something that begins or ends transactions is on its way.
    moving: bool,
}

impl OwnSetting {
    /// What the engine reported at the login.
    pub(crate) const fn logged_in(&mut self, on: bool) {
        (self.value, self.engine) = (on, on);
    }

    /// What the client was told of it last.
    #[cfg(test)]
    pub(crate) const fn value(&self) -> bool {
        self.value
    }

    /// The guard is about to be set for the session.
    pub(crate) const fn guarded(&mut self) {
        self.before = self.value;
    }

    /// The statement that takes the guard back.
    pub(crate) const fn undo(&self) -> &'static str {
        match (self.set, self.value) {
            (false, _) => RESET,
            (true, true) => SET_READ_ONLY,
            (true, false) => SET_READ_WRITE,
        }
    }

    /// The guard was taken back: what it is now is what the engine has reported since.
    pub(crate) const fn undone(&mut self) {
        self.value = self.engine;
    }

    /// A text is forwarded, or what was prepared of it.
    pub(crate) const fn forwarded(&mut self, traits: Traits) {
        if traits.owns_read_only {
            (self.set, self.leaving) = (true, false);
        }
    }

    /// A program is run, or one of a pipeline's; `alone` says that no transaction is open and no
    /// other program on its way.
    pub(crate) fn runs(&mut self, traits: Traits, alone: bool) {
        self.moving |= traits.tx != TxEffect::None;
        self.leaving |= traits.disowns_read_only && alone;
        self.leaving &= !self.moving;
    }

    /// The engine has answered the client with an error.
    pub(crate) const fn failed(&mut self) {
        self.leaving = false;
    }

    /// Nothing is owed any more.
    pub(crate) fn settled(&mut self, status: Status) {
        self.set &= !(self.leaving && status == Status::Idle);
        (self.leaving, self.moving) = (false, false);
    }

    /// The engine reports it in an answer to the proxy itself.
    pub(crate) const fn reported_to_us(&mut self, on: bool) {
        self.engine = on;
    }

    /// The engine reports it to the client. `opaque` says that what it answers may do anything: DO,
    /// CALL or a function that sets it, behind a reset in its program, too. Anything else only
    /// shows what a reload has made of it. Returns whether the client is told.
    pub(crate) const fn reported(&mut self, on: bool, guard_on: bool, opaque: bool) -> bool {
        self.engine = on;
        self.set |= opaque;
        self.leaving &= !opaque;
        // Under a fence a client sets it to off at most, unseen: an on is that taken back.
        let back = guard_on && on;
        self.value = if back { self.before } else { on };
        !back || self.value
    }
}
