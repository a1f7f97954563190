//! Which programs of a PostgreSQL session are held at the closed gate, and what their clients see.
//!
//! Purpose: wire.md W20. A held program's bytes stay where they are, unsorted, in front of what
//! the client sends behind it; nothing of it has been forwarded, and it has no lease. Held are only
//! programs outside transactions with nothing owed: else the engine's own state matters (W9).
//!
//! Called by `client.rs` (a refusal) and `relay.rs`. What is the same for every protocol is in
//! `wire/shared/waiting.rs`, the queue in `gate/hold.rs`.

use bytes::BytesMut;

use crate::fence::code::Denial;
use crate::fence::verdict::HoldRule;
use crate::gate::admission::Refusal;
use crate::gate::lease::Lease;
use crate::sql::StatementClass;
use crate::wire::pg::conversation::{Conversation, Discard, Forced, Mode};
use crate::wire::pg::refusal::{self, CANCELLED_SQLSTATE, Severity, Status};
use crate::wire::shared::waiting::{Parting, Size};

impl Conversation {
    /// Has a refused program wait instead, where the rule and its place in the session allow it.
    ///
    /// # Errors
    /// The refusal to be told: the gate's own, or ZF010 when the program's time or the room ran
    /// out.
    pub(crate) fn hold(
        &mut self,
        mut refusal: Box<Refusal>,
        size: Size,
        now_ms: u64,
    ) -> Result<(), Box<Refusal>> {
        let Some(rule) = self.hold_rule(&refusal) else {
            self.leave_hold(Parting::Refused);
            return Err(refusal);
        };
        let seen = refusal.published.generation;
        let at = (&*self.seat, &*self.denials);
        self.held.park(at, rule, seen, size, now_ms).map_err(|_expired_or_no_room| {
            refusal.denial = Denial::HoldExpired;
            refusal
        })
    }

    /// Whether a program that was refused now may be held. Where something is owed, or a
    /// transaction is open, the engine must be told; what another gate refused isn't waited for,
    /// because this gate's movements call nobody there.
    fn hold_rule(&self, refusal: &Refusal) -> Option<HoldRule> {
        let alone = self.owed.is_empty()
            && self.status == Status::Idle
            && self.lease.is_none()
            && self.forced == Forced::No
            && self.mode == Mode::Sql;
        let own = refusal.namespace == *self.seat.gate().namespace();
        refusal.published.policy.holds(refusal.denial).filter(|_| alone && own)
    }

    /// The program is held no longer, if it was.
    #[inline]
    pub(crate) fn leave_hold(&mut self, parting: Parting) {
        self.held.leave(parting, &self.denials);
    }

    /// The control arm of the second judgement: a called program goes straight on.
    pub(crate) fn begin_unjudged(&self, class: StatementClass, now_ms: u64) -> Option<Lease> {
        if self.held.is_called() { self.seat.begin_unjudged(class, now_ms) } else { None }
    }

    /// Answers a cancelled program here, as the engine would. False when there is none.
    #[inline]
    pub(crate) fn answer_cancelled(&mut self, simple: bool, to_client: &mut BytesMut) -> bool {
        if !self.held.is_cancelled() {
            return false;
        }
        self.tell_cancelled(simple, to_client);
        true
    }

    #[cold]
    fn tell_cancelled(&mut self, simple: bool, to_client: &mut BytesMut) {
        self.leave_hold(Parting::Cancelled);
        refusal::plain_error(
            to_client,
            Severity::Error,
            CANCELLED_SQLSTATE,
            "canceling statement due to user request",
            "It waited for a fence to lift and was not sent to the engine.",
        );
        if simple {
            refusal::ready(to_client, Status::Idle);
        } else {
            self.discard = Discard::Local(Status::Idle);
        }
    }
}
