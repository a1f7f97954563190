//! A lease in a session's hands: it must be resolved, or it counts as abandoned.
//!
//! Purpose: invariant 7 as a type. Only an observed release resolves a lease
//! ([`Lease::answered`]: the engine's ReadyForQuery with status I behind everything forwarded);
//! dropping it in any other way leaves the slot published and abandoned. Made by
//! `gate/admission.rs` alone; `wire/` holds it and passes `&Lease` to whatever forwards a client's
//! statement (invariant 1).

use std::sync::Arc;

use crate::base::arm::{Removable, removed};
use crate::base::ids::Namespace;
use crate::gate::admission::{Guard, Refusal, Seat};
use crate::gate::slot::{Running, Stamp};
use crate::sql::StatementClass;

/// The right to have one program, or one transaction, run on the engine.
#[derive(Debug)]
#[must_use = "a lease that is dropped without an outcome blocks drains until the engine is asked"]
pub struct Lease {
    seat: Arc<Seat>,
    stamp: Stamp,
    /// What the gates had counted when it began: see [`Slot::note_alive`].
    ///
    /// [`Slot::note_alive`]: crate::gate::slot::Slot::note_alive
    looks: u64,
    resolved: bool,
}

impl Lease {
    pub(super) fn new(seat: Arc<Seat>, stamp: Stamp) -> Self {
        let looks = seat.gate().looks();
        Self { seat, stamp, looks, resolved: false }
    }

    /// What is published for it.
    #[must_use]
    pub const fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// The namespace whose gate gave it.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        self.seat.gate().namespace()
    }

    /// The seat it was given at.
    #[must_use]
    pub const fn seat(&self) -> &Arc<Seat> {
        &self.seat
    }

    /// Admits more work under it: see [`Seat::extend`].
    ///
    /// # Errors
    /// [`Refusal`]; the lease stays as it was.
    pub fn extend(&mut self, class: StatementClass, begins: bool) -> Result<Guard, Box<Refusal>> {
        let seat = Arc::clone(&self.seat);
        seat.extend(self, class, begins)
    }

    /// Admits new work of a class that this lease, still held for earlier work, covers as well. It
    /// is judged as new: what the earlier work may finish doesn't count.
    ///
    /// # Errors
    /// [`Refusal`]; the lease stays as it was.
    pub fn take_more(&self, class: StatementClass) -> Result<(), Box<Refusal>> {
        debug_assert!(self.stamp.writer || !class.is_writer(), "a reader's lease doesn't cover it");
        self.seat.judge_new(class)
    }

    pub(super) const fn set_stamp(&mut self, stamp: Stamp) {
        self.stamp = stamp;
    }

    /// Resolves it: the engine's own answer has shown that nothing of it is left (wire.md W4).
    pub fn answered(mut self) {
        self.resolved = true;
        self.seat.slot().note_alive(self.looks);
        self.seat.release();
    }

    /// The program has been answered and the transaction is still open: the lease stays, nothing
    /// runs under it.
    pub fn paused(&mut self) {
        if self.stamp.running != Running::No {
            self.stamp.running = Running::No;
            self.seat.slot().note_alive(self.looks);
            self.seat.publish(self.stamp);
        }
    }

    /// Makes the lease what it was before it was extended for a program that was refused elsewhere:
    /// nothing of that program was forwarded. A drain that saw the extended lease looks again.
    pub fn taken_back(&mut self, before: Stamp) {
        if self.stamp != before {
            self.stamp = before;
            self.seat.publish(before);
        }
    }

    /// Gives it back: nothing was forwarded under it.
    pub fn unused(mut self) {
        self.resolved = true;
        self.seat.release();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.resolved && removed(Removable::ObservedRelease) {
            self.seat.release();
        } else if !self.resolved {
            self.seat.slot().abandon();
            self.seat.wake_drains();
        }
    }
}
