//! L2: durable truth about fences.
//!
//! Purpose: [`FenceStore`] keeps one row per fenced namespace and one receipt per command, and
//! changes them by compare-and-swap in one transaction. [`Persisted`] is the only key to a gate
//! change: it exists only for what this layer has read or committed.
//!
//! Invariants: 3 (a gate changes only from a persisted record), 5, 10, 11 (an ambiguous commit is
//! resolved by reading).
//!
//! Callers: `control` (commands, recovery) and `gate` (for the type `Persisted` alone). No backend
//! decides whether a transition is legal, and none repairs a row it can't read.

mod commit;
#[cfg(test)]
mod contract;
#[cfg(any(test, debug_assertions))]
pub mod faulty;
pub mod marker;
pub mod memory;
pub mod reconcile;
mod record;
pub mod sqlite;
#[cfg(test)]
mod sqlite_tests;

use std::future::Future;
use std::pin::Pin;

use crate::base::ids::{CommandId, Namespace, OperationId, Revision};
use crate::fence::code::Detail;
use crate::fence::receipt::Receipt;
use crate::fence::record::FenceRecord;

/// What every store method returns: object-safe, and free to be awaited anywhere.
///
/// Cancel safety, for all of them: dropping the future doesn't undo work that was begun; a commit
/// whose future was dropped must be treated as [`CommitError::Unknown`].
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why the store couldn't answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store can't be reached or used now.
    #[error("the fence store cannot {doing}: {reason}; fences stay as they are, see to the store")]
    Unavailable {
        /// What was being done, as `read a fence`.
        doing: &'static str,
        /// The backend's own words.
        reason: String,
    },
    /// What is stored can't be believed.
    #[error(
        "stored {what} of {namespace} is not usable ({}): {reason}; it is left as it is",
        detail.name()
    )]
    Corrupt {
        /// `record` or `receipt`.
        what: &'static str,
        /// Whose.
        namespace: Namespace,
        /// `corrupt_record` or `unsupported_format_version`.
        detail: Detail,
        /// What doesn't fit.
        reason: String,
    },
    /// A change that must not be written. A fault of ours; nothing was written.
    #[error(
        "a change of the fence of {namespace} was refused as inconsistent: {reason}; report \
         this, nothing was written"
    )]
    Inconsistent {
        /// Whose.
        namespace: Namespace,
        /// What doesn't fit.
        reason: String,
    },
    /// A row is stored under a name that can't be one. Stops the start.
    #[error(
        "the fence store has a row for {name:?}, which is no namespace: {reason}; find out who \
         wrote it before starting"
    )]
    BadName {
        /// The name as stored.
        name: String,
        /// Why it is none.
        reason: String,
    },
    /// The store was written by a build that this one can't follow.
    #[error(
        "the fence store has schema version {found}, this build knows {known}; start the \
         newer build"
    )]
    Schema {
        /// What is there.
        found: i64,
        /// What this build writes.
        known: i64,
    },
}

/// Why a commit didn't return the new record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// Somebody else committed first; nothing of this one was written.
    #[error(
        "the fence record is at revision {current}, not at the one this change was made \
         from; decide again"
    )]
    Conflict {
        /// The revision that is stored now; 0 without a record.
        current: Revision,
    },
    /// Proven: nothing was written.
    #[error("nothing was committed: {0}")]
    NotCommitted(StoreError),
    /// It may have been written. Read back by the receipt's key before anything else.
    #[error("it is not known whether the commit landed: {0}")]
    Unknown(StoreError),
}

/// Something this layer has read from, or committed to, durable storage.
///
/// The only key to a gate change. Its constructor is private to `store`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Persisted {
    namespace: Namespace,
    record: Option<Box<FenceRecord>>,
}

impl Persisted {
    pub(in crate::store) fn of(record: FenceRecord) -> Self {
        Self { namespace: record.namespace.clone(), record: Some(Box::new(record)) }
    }

    pub(in crate::store) const fn nothing(namespace: Namespace) -> Self {
        Self { namespace, record: None }
    }

    /// The durable record; `None` where it is established that there is no fence.
    #[must_use]
    pub fn record(&self) -> Option<&FenceRecord> {
        self.record.as_deref()
    }

    /// Whose fence.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }
}

/// The row that decoding it amounts to.
fn row_of(decoded: Result<FenceRecord, record::Undecodable>) -> Row {
    match decoded {
        Ok(record) => Row::Good(Persisted::of(record)),
        Err(record::Undecodable { detail, reason }) => Row::Bad { detail, reason },
    }
}

impl record::Undecodable {
    fn of_receipt(self, namespace: &Namespace) -> StoreError {
        let (detail, reason) = (self.detail, self.reason);
        StoreError::Corrupt { what: "receipt", namespace: namespace.clone(), detail, reason }
    }
}

/// One namespace's row as read. Compare it with the marker (`reconcile`) before believing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    /// There is none.
    Absent,
    /// There is one, and it is sound.
    Good(Persisted),
    /// There is one that can't be believed. It is left as it is.
    Bad {
        /// `corrupt_record` or `unsupported_format_version`.
        detail: Detail,
        /// What doesn't fit, in words.
        reason: String,
    },
}

/// A row with its namespace, as a store has answered it: only this layer makes one, because "there
/// is no row" opens a gate as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedFence {
    namespace: Namespace,
    row: Row,
}

impl LoadedFence {
    /// What an empty store answers: for tests and fuzzing. Code that used it elsewhere wouldn't
    /// compile in a release build.
    #[cfg(any(test, debug_assertions))]
    #[must_use]
    pub const fn of_an_empty_store(namespace: Namespace) -> Self {
        Self { namespace, row: Row::Absent }
    }

    /// A sound row with this record, as a store would answer it: for tests of what a gate does
    /// with records.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn of_a_record(record: FenceRecord) -> Self {
        Self { namespace: record.namespace.clone(), row: Row::Good(Persisted::of(record)) }
    }

    /// Whose row.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// What was read.
    #[must_use]
    pub const fn row(&self) -> &Row {
        &self.row
    }
}

/// One change, all of it or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Whose fence.
    pub namespace: Namespace,
    /// The revision the row must have now; 0 for "no row".
    pub expected_revision: Revision,
    /// The record to store; `None` stores the receipt alone, the revision is checked all the same.
    pub next: Option<Box<FenceRecord>>,
    /// The receipt; it replaces the one under the same key (a final one replaces DRAINING).
    pub receipt: Receipt,
}

/// Durable fences and receipts. One contract suite runs against every backend.
pub trait FenceStore: Send + Sync {
    /// Reads one row. A row that can't be believed is [`Row::Bad`], not an error.
    fn fence_load<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> StoreFuture<'a, Result<LoadedFence, StoreError>>;

    /// Reads every row.
    ///
    /// [`StoreError::BadName`] for a row whose name is no namespace: that must stop the start.
    fn fence_list(&self) -> StoreFuture<'_, Result<Vec<LoadedFence>, StoreError>>;

    /// Reads one receipt. A receipt that can't be believed is an error, never "not found".
    fn receipt_find<'a>(
        &'a self,
        namespace: &'a Namespace,
        operation: OperationId,
        command: CommandId,
    ) -> StoreFuture<'a, Result<Option<Receipt>, StoreError>>;

    /// Reads the receipts of one namespace, oldest first; of one operation if given.
    fn receipt_list<'a>(
        &'a self,
        namespace: &'a Namespace,
        operation: Option<OperationId>,
    ) -> StoreFuture<'a, Result<Vec<Receipt>, StoreError>>;

    /// Commits a change if the row still has the expected revision.
    ///
    /// Answers with the row as it is after the commit. On [`CommitError::Unknown`] nothing may
    /// proceed before the row and the receipt have been read back.
    fn fence_commit(&self, commit: Commit) -> StoreFuture<'_, Result<Persisted, CommitError>>;

    /// Removes receipts older than `retention_ms`, never those of the record's operation.
    /// Answers how many went.
    fn receipts_prune<'a>(
        &'a self,
        namespace: &'a Namespace,
        now_ms: u64,
        retention_ms: u64,
    ) -> StoreFuture<'a, Result<u64, StoreError>>;
}
