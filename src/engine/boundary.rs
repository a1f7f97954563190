//! The boundary: the engine's log position read after a drain is proven.
//!
//! Purpose: evidence that everything committed before is at or below one position. Made by
//! `engine::postgres` only (private constructor); taken by value by `control` for the drain proof.

use super::identity::{EngineTime, Lsn};
use crate::base::ids::{Namespace, OperationId, Revision};

/// A durable log position with the marker that was written just before it.
#[derive(Debug)]
pub struct Boundary {
    pub(in crate::engine) namespace: Namespace,
    pub(in crate::engine) operation: OperationId,
    pub(in crate::engine) revision: Revision,
    pub(in crate::engine) engine_id: String,
    pub(in crate::engine) timeline: i32,
    pub(in crate::engine) marker: Lsn,
    pub(in crate::engine) lsn: Lsn,
    pub(in crate::engine) at: EngineTime,
}

impl Boundary {
    /// The namespace in whose database the marker was written.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The operation that the marker names.
    #[must_use]
    pub fn operation(&self) -> OperationId {
        self.operation
    }

    /// The fence revision that the marker names.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The engine's system identifier.
    #[must_use]
    pub fn engine_id(&self) -> &str {
        &self.engine_id
    }

    /// The timeline that the positions belong to.
    #[must_use]
    pub fn timeline(&self) -> i32 {
        self.timeline
    }

    /// End of the marker's own record.
    #[must_use]
    pub fn marker(&self) -> Lsn {
        self.marker
    }

    /// The boundary: flushed up to here, the marker's commit included.
    ///
    /// It is an end position. A transaction is after the boundary when its commit record *ends*
    /// above it; a record that starts exactly here is after it too.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// When it was read, by the engine's clock.
    #[must_use]
    pub fn at(&self) -> EngineTime {
        self.at
    }
}

/// A position in a binary log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogPosition {
    /// A set of transaction ids (MySQL), or the last one of each domain (MariaDB).
    Gtid(String),
    /// `file:offset`.
    Binlog(String),
    /// The engine keeps no log.
    Off,
}

/// The position of a binary log, read after a drain was proven. Made by `engine::mysql` only.
#[derive(Debug)]
pub struct LogBoundary {
    pub(in crate::engine) namespace: Namespace,
    pub(in crate::engine) operation: OperationId,
    pub(in crate::engine) revision: Revision,
    pub(in crate::engine) engine_id: String,
    pub(in crate::engine) position: LogPosition,
    pub(in crate::engine) locked: bool,
    pub(in crate::engine) at: EngineTime,
}

impl LogBoundary {
    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The operation that asked.
    #[must_use]
    pub fn operation(&self) -> OperationId {
        self.operation
    }

    /// The fence revision that it is read for.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The engine's own id.
    #[must_use]
    pub fn engine_id(&self) -> &str {
        &self.engine_id
    }

    /// The boundary: everything committed before is at or below it.
    #[must_use]
    pub fn position(&self) -> &LogPosition {
        &self.position
    }

    /// Whether the thread that held the engine lock read it.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.locked
    }

    /// When it was read, by the engine's clock.
    #[must_use]
    pub fn at(&self) -> EngineTime {
        self.at
    }
}
