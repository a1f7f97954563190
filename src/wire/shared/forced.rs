//! Steps of a rollback by force, the same in every protocol.
//!
//! Purpose: W12 and W13 of wire.md as states. What is injected, and what shows that it worked, is
//! each protocol's own (`pg/conversation.rs`, `mysql/forced.rs`). Plain values.

/// A rollback by force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forced {
    /// None.
    No,
    /// A cancel is on its way for the running statement.
    Cancelling {
        /// The cancel has been delivered, or given up.
        delivered: bool,
        /// The client has been told, in place of the cancelled statement's error.
        told: bool,
    },
    /// A cancel is on its way for a program that tries to write under the fence. Nothing is
    /// rolled back beyond what the engine itself does with a cancelled statement.
    Stopping {
        /// The cancel has been delivered, or given up.
        delivered: bool,
    },
    /// The injected ROLLBACK is on its way.
    RollingBack {
        /// How often it was sent.
        tries: u32,
        /// The client has been told.
        told: bool,
    },
    /// The engine has rolled back; the client is told at its next program.
    RolledBack {
        /// It was told before.
        told: bool,
    },
}

impl Forced {
    /// Whether something is on its way to the engine that the next program must not meet.
    pub(crate) const fn is_under_way(self) -> bool {
        match self {
            Self::Cancelling { .. } | Self::Stopping { .. } | Self::RollingBack { .. } => true,
            Self::No | Self::RolledBack { .. } => false,
        }
    }

    /// The cancel was delivered, or could not be.
    pub(crate) const fn after_cancel(self) -> Self {
        match self {
            Self::Cancelling { told, .. } => Self::Cancelling { delivered: true, told },
            Self::Stopping { .. } => Self::Stopping { delivered: true },
            Self::No | Self::RollingBack { .. } | Self::RolledBack { .. } => self,
        }
    }
}

/// What the relay must do after an order or an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing but moving bytes.
    None,
    /// Have the engine cancel what this session runs.
    Cancel,
}
