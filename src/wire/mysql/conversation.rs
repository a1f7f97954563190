//! Where one MySQL session stands: its lease, what is owed, a login that goes on.
//!
//! Purpose: the pure state behind the relay. `client.rs` sorts what the client sends, `engine.rs`
//! what the engine says; both change it only through what is here, and neither does I/O. Invariants
//! 1 and 7. The relay (`relay.rs`) moves bytes.

use std::sync::Arc;

use crate::base::ids::Generation;
use crate::gate::admission::{Refusal, Seat};
use crate::gate::lease::Lease;
use crate::gate::registry::Gates;
use crate::gate::slot::Running;
use crate::sql::StatementClass;
use crate::wire::mysql::answers::{Rules, Status, Tracker};
use crate::wire::mysql::auth::Exchange;
use crate::wire::mysql::capabilities::{self as bits, Capabilities};
use crate::wire::shared::denials::Denials;

/// What is known of a session when its login is over.
#[derive(Debug)]
pub(crate) struct Begun {
    /// What both ends agreed on.
    pub(crate) agreed: Capabilities,
    /// The payload of the OK that ended the login.
    pub(crate) ok: Vec<u8>,
    /// The number of the character set that the client asked for.
    pub(crate) charset: u8,
    /// The engine is MariaDB.
    pub(crate) mariadb: bool,
    /// The login, over; a change of user goes on from it.
    pub(crate) exchange: Exchange,
}

/// What the client's next packets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inbound {
    /// Commands.
    Commands,
    /// The contents of a file, up to an empty packet.
    File,
    /// Steps of a login.
    Login,
}

/// The session's state.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) seat: Arc<Seat>,
    pub(crate) lease: Option<Lease>,
    pub(crate) tracker: Tracker,
    pub(crate) inbound: Inbound,
    pub(crate) denials: Arc<Denials>,
    pub(crate) gates: Arc<Gates>,
    pub(crate) begun: Begun,
    /// As the engine last said; `None` behind an error, which doesn't say.
    pub(crate) status: Option<Status>,
    sequence: u8,
}

impl Conversation {
    /// A session right after its login.
    pub(crate) fn new(
        seat: Arc<Seat>,
        gates: Arc<Gates>,
        denials: Arc<Denials>,
        begun: Begun,
    ) -> Self {
        let rules = rules(begun.agreed);
        Self {
            seat,
            lease: None,
            tracker: Tracker::new(rules),
            inbound: Inbound::Commands,
            denials,
            gates,
            begun,
            status: None,
            sequence: 0,
        }
    }

    /// Whether the next command must wait for the answer to the last one.
    pub(crate) fn must_wait(&self) -> bool {
        self.inbound == Inbound::Commands && self.tracker.is_owing() && !self.tracker.is_streaming()
    }

    /// Asks admission for a command.
    ///
    /// # Errors
    /// The refusal; nothing was forwarded and no lease was taken.
    pub(crate) fn enter(
        &mut self,
        class: StatementClass,
        now_ms: u64,
    ) -> Result<&Lease, Box<Refusal>> {
        match self.lease.take() {
            Some(mut lease) => {
                let extended = self.seat.extend(&mut lease, class, true);
                let lease = self.lease.insert(lease);
                extended.map(|_| &*lease)
            }
            None => {
                let (lease, _) = self.seat.begin(class, now_ms)?;
                Ok(self.lease.insert(lease))
            }
        }
    }

    /// An answer is over, with this status if it told one (wire.md W4).
    pub(crate) fn answered(&mut self, status: Option<Status>) {
        self.status = status;
        let idle = status.is_some_and(|status| !status.in_transaction());
        if idle {
            if let Some(lease) = self.lease.take() {
                lease.answered();
            }
        } else if let Some(lease) = &mut self.lease {
            lease.paused();
        }
    }

    /// Takes note of a packet's number, of either direction.
    pub(crate) const fn note_sequence(&mut self, sequence: u8) {
        self.sequence = sequence.wrapping_add(1);
    }

    /// The number of the next packet.
    pub(crate) const fn next_sequence(&self) -> u8 {
        self.sequence
    }

    /// Whether nothing runs, nothing is open and nothing is owed.
    pub(crate) fn is_idle(&self) -> bool {
        self.lease.is_none() && !self.tracker.is_owing()
    }

    /// Whether what is running may have been committed by the time its engine is lost.
    pub(crate) fn may_have_committed(&self) -> bool {
        self.tracker.is_owing() && self.lease.as_ref().is_some_and(|lease| lease.stamp().writer)
    }

    /// Whether the session holds a lease of a generation before `before` that a drain may wait
    /// for: a writer's, or one under which a read runs without the guard.
    pub(crate) fn holds_older(&self, before: Generation) -> bool {
        let stamp = self.lease.as_ref().map(Lease::stamp);
        stamp.is_some_and(|stamp| {
            let counts = stamp.writer || stamp.running == Running::Unguarded;
            counts && stamp.generation < before
        })
    }
}

/// What of the agreement shapes answers.
fn rules(agreed: Capabilities) -> Rules {
    Rules {
        deprecate_eof: agreed.has(bits::DEPRECATE_EOF),
        session_track: agreed.has(bits::SESSION_TRACK),
        progress: agreed.has_extended(bits::EXT_PROGRESS),
        metadata_byte: agreed.has(bits::OPTIONAL_RESULTSET_METADATA)
            || agreed.has_extended(bits::EXT_CACHE_METADATA),
    }
}
