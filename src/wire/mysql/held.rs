//! Which programs of a MySQL session are held at the closed gate, and what their clients see.
//!
//! Purpose: wire.md W20, the twin of `wire/pg/held.rs`. A held command's bytes stay where they
//! are, unsorted, in front of what the client sends behind it; nothing of it has been forwarded,
//! and it has no lease. Held is one command at a time, outside transactions and with nothing owed:
//! else the engine's own state matters (W9).
//!
//! The protocol has no cancel of its own: another session says KILL QUERY. That is the engine's to
//! allow, and when it has, the program that the engine has never seen is answered here. KILL of the
//! whole connection needs nothing here: the engine ends it, and the held program with it.
//!
//! Called by `client.rs` (a refusal), `effects.rs` (a KILL) and `relay.rs`. What is the same for
//! every protocol is in `wire/shared/waiting.rs`, the queue in `gate/hold.rs`.

use bytes::BytesMut;

use crate::base::ids::Generation;
use crate::fence::code::Denial;
use crate::fence::verdict::HoldRule;
use crate::gate::admission::Refusal;
use crate::gate::slot::Order;
use crate::sql::StatementClass;
use crate::wire::mysql::conversation::{Conversation, Inbound, Stand};
use crate::wire::mysql::refusal::{self, INTERRUPTED};
use crate::wire::shared::forced::Forced;
use crate::wire::shared::waiting::{Parting, Size};

impl Conversation {
    /// Has a refused command wait instead, where the rule and its place in the session allow it.
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
        let at = (&**self.seats.home(), &*self.denials);
        self.held.park(at, rule, seen, size, now_ms).map_err(|_expired_or_no_room| {
            refusal.denial = Denial::HoldExpired;
            refusal
        })
    }

    /// Whether a program that was refused now may be held. What another gate refused isn't waited
    /// for, because this gate's movements call nobody there.
    fn hold_rule(&self, refusal: &Refusal) -> Option<HoldRule> {
        let alone = !self.tracker.is_owing()
            && self.stand == Stand::Outside
            && !self.seats.is_holding()
            && self.forced == Forced::No
            && self.inbound == Inbound::Commands
            && !self.lost;
        let own = refusal.namespace == *self.seats.home().gate().namespace();
        refusal.published.policy.holds(refusal.denial).filter(|_| alone && own)
    }

    /// The program is held no longer, if it was.
    #[inline]
    pub(crate) fn leave_hold(&mut self, parting: Parting) {
        self.held.leave(parting, &self.denials);
    }

    /// The control arm of the second judgement: a called program goes straight on.
    pub(crate) fn begin_unjudged(&mut self, class: StatementClass, now_ms: u64) -> bool {
        self.held.is_called() && self.seats.begin_unjudged(class, now_ms)
    }

    /// Answers a killed program here, as the engine would. False when there is none.
    pub(crate) fn answer_cancelled(&mut self, sequence: u8, to_client: &mut BytesMut) -> bool {
        if !self.held.is_cancelled() {
            return false;
        }
        self.leave_hold(Parting::Cancelled);
        let text = "Query execution was interrupted: it waited for a fence to lift and was not \
                    sent to the engine";
        refusal::error(to_client, sequence, INTERRUPTED, "70100", text);
        true
    }

    /// The engine has taken this session's KILL QUERY of a connection: what that one has held here
    /// is to be answered as killed.
    pub(crate) fn killed_query(&self, connection: u64) {
        let Ok(thread) = u32::try_from(connection) else { return };
        let pid = i32::from_ne_bytes(thread.to_ne_bytes());
        for slot in self.seats.sessions_of_engine() {
            if slot.engine_pid() == pid && slot.held_since_ms().is_some() {
                slot.order(Order::CANCEL_HELD, Generation(0));
            }
        }
    }
}
