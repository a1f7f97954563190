//! The decision: given what is durable, what is asked and what is true outside, what happens.
//!
//! Purpose: [`decide`] is the whole command table as one pure function, in a fixed order: replay
//! first, then availability, owner, goal, join, role, table, expectation, preconditions. Time and
//! every outside fact are arguments.
//!
//! Invariants: 4, 8, 10. A refusal writes nothing. Nothing here advances by time.
//!
//! Callers: `control/fences.rs`, inside the namespace's transition lock and with the row it is
//! going to replace. Closing gates, waiting for drains and committing are not here.

use crate::base::ids::Revision;

use super::code::{ControlCode, Detail};
use super::command::CommandKey;
use super::receipt::Receipt;
use super::record::{Boundary, DrainPolicy, FenceRecord, Identity, IncarnationId, WrittenBy};
use super::state::FenceState;

/// What is known of a namespace's control state, after store and marker were compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlView {
    /// It can't be established; everything is closed.
    UnknownUnavailable {
        /// Which of the known reasons.
        detail: Detail,
        /// The reason in words, for the operator.
        reason: String,
        /// The marker's record, where it could be read.
        marker: Option<Box<FenceRecord>>,
        /// The revision of the row that a commit would have to replace; 0 without a row.
        row_revision: Revision,
    },
    /// There is no fence.
    NoRecord {
        /// Whether the database itself exists.
        exists: bool,
    },
    /// There is one.
    Record(Box<FenceRecord>),
}

impl ControlView {
    /// The state as shown and as expected by commands.
    #[must_use]
    pub fn state(&self) -> FenceState {
        match self {
            Self::UnknownUnavailable { .. } => FenceState::UnknownUnavailable,
            Self::NoRecord { exists: true } => FenceState::Unfenced,
            Self::NoRecord { exists: false } => FenceState::Absent,
            Self::Record(record) => record.state,
        }
    }

    /// The revision as shown and as expected by commands; 0 without a record.
    #[must_use]
    pub fn revision(&self) -> Revision {
        match self {
            Self::UnknownUnavailable { .. } | Self::NoRecord { .. } => Revision(0),
            Self::Record(record) => record.revision,
        }
    }

    /// The record, where there is one that is believed.
    #[must_use]
    pub fn record(&self) -> Option<&FenceRecord> {
        match self {
            Self::UnknownUnavailable { .. } | Self::NoRecord { .. } => None,
            Self::Record(record) => Some(record),
        }
    }
}

/// What is true outside the record, gathered by the caller before it asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Who writes.
    pub written_by: WrittenBy,
    /// The command whose commit isn't known to have landed, if there is one.
    pub indeterminate: Option<CommandKey>,
    /// The live database's identity; `None` when the engine couldn't be asked.
    pub live_identity: Option<Identity>,
    /// Whether others reach into the schema in a way a fence couldn't cover.
    pub shared_schema: bool,
    /// Whether anything at all (database, route, marker, session) goes by a new target's name.
    pub name_in_use: bool,
    /// The id a created target would get.
    pub fresh_incarnation: IncarnationId,
    /// The target's own position, for a validation's record.
    pub snapshot: Option<Boundary>,
    /// The policy of a write or import drain that doesn't bring its own.
    pub default_write_drain: DrainPolicy,
    /// The policy of a read drain that doesn't bring its own.
    pub default_read_drain: DrainPolicy,
    /// Whether the adoption key is configured and was given.
    pub adoption_key_matched: bool,
    /// Whether the namespace's engine is configured here.
    pub namespace_configured: bool,
}

/// A command that was not done. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ControlRefusal {
    /// The stable code.
    pub code: ControlCode,
    /// The detail under it.
    pub detail: Option<Detail>,
    /// What happened, to what, and what to do.
    pub message: String,
}

/// What to do about a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Answer with this final receipt, marked as replayed. Write nothing.
    Replay(Receipt),
    /// Go on with the drain this receipt began.
    Resume(Receipt),
    /// Answer with this DRAINING receipt of a drain that was superseded. Do nothing else.
    Historical(Receipt),
    /// Persist, then publish, then answer (or drain).
    Commit {
        /// The revision of the row that is replaced; 0 to insert.
        replaces: Revision,
        /// The record to store; `None` leaves the row as it is.
        next: Option<Box<FenceRecord>>,
        /// The receipt to store with it.
        receipt: Receipt,
        /// Whether a drain runs after the commit.
        drains: bool,
    },
    /// Answer with an error. Write nothing.
    Refuse(ControlRefusal),
}
