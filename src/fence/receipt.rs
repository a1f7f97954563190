//! The durable answer to a command, and what sending the command again means.
//!
//! Purpose: a lost answer is resolved by replaying the same command. The fingerprint tells the
//! same request from another one under a reused id; the replay rule tells an answer that stands
//! from a drain that goes on.
//!
//! Invariant 10: a command with the same key has one effect.
//!
//! Callers: `fence::transition`, `store`, `admin`. The fingerprint's encoding is frozen: changing
//! it would turn every stored receipt into a conflict.

use crate::base::ids::{CommandId, Namespace, OperationId, Revision};

use super::command::{CommandKey, CommandKind};
use super::record::Adoption;
use super::state::FenceState;

/// What a stored answer says. Errors are never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The transition committed. Final.
    Applied,
    /// The record was in the wanted state. Final.
    AlreadyApplied,
    /// Closed and durable, drain not proven yet.
    Draining,
}

impl Outcome {
    /// `APPLIED`, `ALREADY_APPLIED` or `DRAINING`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Applied => "APPLIED",
            Self::AlreadyApplied => "ALREADY_APPLIED",
            Self::Draining => "DRAINING",
        }
    }

    /// Reads the name; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Applied, Self::AlreadyApplied, Self::Draining].into_iter().find(|o| o.name() == text)
    }

    /// Whether nothing can follow.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Applied | Self::AlreadyApplied => true,
            Self::Draining => false,
        }
    }
}

/// SHA-256 of everything a request asks for, its command id excepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

/// The durable answer to one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Which database.
    pub namespace: Namespace,
    /// On whose behalf.
    pub operation: OperationId,
    /// Which request.
    pub command: CommandId,
    /// What was asked.
    pub kind: CommandKind,
    /// The whole request, condensed.
    pub fingerprint: Fingerprint,
    /// The answer.
    pub outcome: Outcome,
    /// The record's revision before; 0 without a record.
    pub revision_before: Revision,
    /// The record's revision after; equal to `revision_before` where nothing moved.
    pub revision_after: Revision,
    /// The record's state after.
    pub state_after: FenceState,
    /// When, in milliseconds since the Unix epoch.
    pub applied_at_ms: u64,
    /// The instance that answered.
    pub instance: String,
    /// What an adoption moved; `None` for every other command.
    pub adoption: Option<Adoption>,
}

impl Receipt {
    /// Operation and command id.
    #[must_use]
    pub const fn key(&self) -> CommandKey {
        CommandKey { operation: self.operation, command: self.command }
    }
}
