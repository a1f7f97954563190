//! Rollbacks by force, and what the client is told of them.
//!
//! Purpose: W11 to W13 of wire.md. An idle transaction gets an injected ROLLBACK; a running
//! statement is killed (`KILL QUERY`, by a control connection) and the rollback follows. The
//! release is the engine's OK without a transaction, as ever. The client's next program gets
//! ZF009, COMMIT included; what is sent behind that begins anew, as behind a deadlock.
//!
//! Pure; part of `conversation.rs`.

use bytes::BytesMut;

use crate::base::ids::Generation;
use crate::base::limits;
use crate::fence::code::Denial;
use crate::gate::admission::Refusal;
use crate::sql::TxEffect;
use crate::wire::mysql::commands::{Command, Judge};
use crate::wire::mysql::conversation::{Conversation, Stand, Whose};
use crate::wire::mysql::guard::ROLLBACK;
use crate::wire::mysql::program::Program;
use crate::wire::mysql::refusal::{INTERRUPTED, KILLED};
use crate::wire::shared::forced::{Action, Forced};

impl Conversation {
    /// The order to roll back what was admitted before `before`. `midway` says that a command is
    /// only partly forwarded.
    #[cold]
    pub(crate) fn order_roll_back(
        &mut self,
        before: Generation,
        midway: bool,
        to_engine: &mut BytesMut,
    ) -> Action {
        if !self.holds_older(before) {
            return Action::None;
        }
        match self.forced {
            Forced::No | Forced::Stopping { delivered: true } => {}
            // What is on its way stops the statement, and now the rollback follows.
            Forced::Stopping { delivered: false } => {
                self.forced_why = Denial::RolledBack;
                self.forced = Forced::Cancelling { delivered: false, told: false };
                return Action::None;
            }
            Forced::Cancelling { .. } | Forced::RollingBack { .. } | Forced::RolledBack { .. } => {
                return Action::None;
            }
        }
        self.forced_why = Denial::RolledBack;
        if !self.tracker.is_owing() && !midway {
            self.roll_back(0, false, to_engine);
            return Action::None;
        }
        self.forced = Forced::Cancelling { delivered: false, told: false };
        Action::Cancel
    }

    /// The order to stop what was admitted to read before `before`, because reads are fenced. A
    /// running program is killed; open cursors are closed, and a dump's transaction is rolled back.
    /// `midway` says that a command is only partly forwarded. An order may come again behind a kill
    /// that met nothing.
    #[cold]
    pub(crate) fn order_stop_reading(
        &mut self,
        before: Generation,
        midway: bool,
        to_engine: &mut BytesMut,
    ) -> Action {
        if !self.reads_older(before) {
            return Action::None;
        }
        match self.forced {
            Forced::No | Forced::Stopping { delivered: true } => {}
            Forced::Stopping { delivered: false }
            | Forced::Cancelling { .. }
            | Forced::RollingBack { .. }
            | Forced::RolledBack { .. } => return Action::None,
        }
        if self.tracker.is_owing() || midway {
            self.forced_why = Denial::ReadFenced;
            self.forced = Forced::Stopping { delivered: false };
            return Action::Cancel;
        }
        self.forced = Forced::No;
        if self.cursors.cut(before) {
            self.close_cut(to_engine);
        } else if matches!(self.stand, Stand::Inside { .. }) {
            self.forced_why = Denial::ReadFenced;
            self.roll_back(0, false, to_engine);
        }
        Action::None
    }

    /// Whether something reads that was admitted before `before`.
    pub(crate) fn reads_older(&self, before: Generation) -> bool {
        self.seats.reads_older(before) || self.cursors.any_older(before)
    }

    /// The order to stop a program that waits for the fence's own engine lock: it tries to write
    /// under a fence, so it is killed and gets the fence's code (promise 7: never a hang). What the
    /// session wrote in its transaction at other gates stays, as behind any error: the order names
    /// its program (`Slot::take_orders`), and the next one waits until the kill is delivered; where
    /// that isn't known the session ends ([`Conversation::may_meet_a_stop`]).
    #[cold]
    pub(crate) fn order_stop(&mut self) -> Action {
        if !self.tracker.is_owing() {
            return Action::None;
        }
        match self.forced {
            Forced::No | Forced::Stopping { delivered: true } => {
                self.forced_why = Denial::WriteFenced;
                self.forced = Forced::Stopping { delivered: false };
                Action::Cancel
            }
            Forced::Stopping { delivered: false }
            | Forced::Cancelling { .. }
            | Forced::RollingBack { .. }
            | Forced::RolledBack { .. } => Action::None,
        }
    }

    /// Whether a kill of which nothing is known, and that may still come, could meet the COMMIT of
    /// what the session wrote at an open gate: it stops one statement, and the rest should go on.
    pub(crate) fn may_meet_a_stop(&self) -> bool {
        matches!(self.forced, Forced::Stopping { .. }) && self.seats.is_writing()
    }

    /// The kill was delivered, or could not be.
    pub(crate) fn cancel_delivered(&mut self, to_engine: &mut BytesMut) {
        self.forced = self.forced.after_cancel();
        if self.tracker.is_owing() {
            return;
        }
        if self.stand == Stand::Unknown {
            self.ping(to_engine);
        } else {
            self.goes_on(to_engine);
        }
    }

    /// Whether the client leaves in the middle of an idle transaction that holds a lease at a
    /// closed gate. That is rolled back in front of the goodbye: the engine's answer ends the
    /// lease. Else only the end of the connection would, which a drain can but ask the engine for.
    pub(crate) fn leaves_open(&self) -> bool {
        let inside = matches!(self.stand, Stand::Inside { .. }) && !self.tracker.is_owing();
        inside && self.forced == Forced::No && self.seats.holds_closed()
    }

    /// Sends a ROLLBACK; with it everything is taken back that ever had to be.
    #[cold]
    pub(crate) fn roll_back(&mut self, tries: u32, told: bool, to_engine: &mut BytesMut) {
        self.guard.unwrapping = false;
        self.forced = Forced::RollingBack { tries: tries + 1, told };
        self.run(Whose::Rollback, ROLLBACK, to_engine);
    }

    /// A transaction whose reads are fenced, or whose capability has died, is rolled back (wire.md
    /// W11); the client has been told.
    /// One that had nothing to do with the schema that refused stays, as behind any error (W10).
    #[cold]
    pub(crate) fn give_up_transaction(&mut self, refusal: &Refusal, to_engine: &mut BytesMut) {
        let concerned = matches!(self.stand, Stand::Inside { .. })
            && self.seats.holds_lease_of(&refusal.namespace);
        let ends = self.ends_transaction(refusal.denial);
        if ends && concerned && self.forced == Forced::No {
            self.forced_why = refusal.denial;
            self.roll_back(0, true, to_engine);
        }
    }

    /// Takes a forced rollback one step on, once nothing is owed and the status is known.
    pub(crate) fn forced_goes_on(&mut self, to_engine: &mut BytesMut) {
        match (self.forced, self.stand) {
            (Forced::Cancelling { delivered: true, .. }, Stand::Outside)
            | (Forced::Stopping { delivered: true }, Stand::Outside | Stand::Inside { .. }) => {
                self.forced = Forced::No;
            }
            (Forced::Cancelling { delivered: true, told }, Stand::Inside { .. }) => {
                self.roll_back(0, told, to_engine);
            }
            (Forced::RollingBack { told, .. }, Stand::Outside) => {
                self.forced = Forced::RolledBack { told };
            }
            (Forced::RollingBack { tries, told }, Stand::Inside { .. })
                if tries < limits::FORCED_ROLLBACK_TRIES_MAX =>
            {
                self.roll_back(tries, told, to_engine);
            }
            // Not delivered yet, given up (the control side ends the connection: a session in an
            // XA transaction can't be rolled back otherwise), not known, or nothing.
            (
                Forced::Cancelling { .. }
                | Forced::Stopping { .. }
                | Forced::RollingBack { .. }
                | Forced::RolledBack { .. }
                | Forced::No,
                Stand::Outside | Stand::Inside { .. } | Stand::Unknown,
            ) => {}
        }
    }

    /// What the client is told in place of an error, if that is the fence's doing.
    pub(crate) fn forced_denial(&mut self, errno: u16) -> Option<Denial> {
        let cut = self.forced_why == Denial::ReadFenced && KILLED.contains(&errno);
        if errno != INTERRUPTED && !cut {
            return None;
        }
        match &mut self.forced {
            Forced::Cancelling { told, .. } => {
                *told = true;
                Some(self.forced_why)
            }
            Forced::Stopping { .. } => Some(self.forced_why),
            Forced::No | Forced::RollingBack { .. } | Forced::RolledBack { .. } => None,
        }
    }

    /// The first program after a forced rollback (W12): what the client is told instead of an
    /// answer, or nothing if the program goes the usual way.
    pub(crate) fn after_forced(&mut self, program: &Program) -> Option<Denial> {
        let Forced::RolledBack { told } = self.forced else { return None };
        let is_program = match program.command.judge() {
            Judge::Text | Judge::Statement => true,
            Judge::Opcode(_) => !matches!(
                program.command,
                Command::Ping | Command::Statistics | Command::ProcessKill | Command::SetOption
            ),
            Judge::Nothing => false,
        };
        if !is_program {
            return None;
        }
        let tx = program.tx();
        let commits = matches!(tx, TxEffect::Commit | TxEffect::Prepare | TxEffect::Mixed);
        self.forced = Forced::No;
        self.ending = tx == TxEffect::Rollback;
        if tx == TxEffect::Rollback || program.command.resets() || (told && !commits) {
            return None;
        }
        if !commits {
            // A COMMIT behind this one must not look like success either.
            self.forced = Forced::RolledBack { told: true };
        }
        Some(self.forced_why)
    }
}
