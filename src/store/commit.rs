//! What every backend checks before it writes a commit. Pure.
//!
//! Purpose: the compare-and-swap is the same whatever holds the rows. A backend reads the row and
//! the receipt inside its transaction, asks [`prepare`], writes exactly what it answers, and
//! checks that exactly one row changed.
//!
//! Invariants: 5, 10. Callers: the backends.

use super::record::{FORMAT_VERSION, Undecodable, encode_receipt, encode_record};
use super::{Commit, CommitError, Persisted, Row, StoreError};
use crate::base::ids::Revision;
use crate::fence::code::Detail;
use crate::fence::receipt::Receipt;

/// The receipt under a commit's key, as read in the same transaction.
pub(in crate::store) type FoundReceipt = Result<Option<Receipt>, Undecodable>;

/// The bytes to write.
#[derive(Debug)]
pub(in crate::store) struct Prepared {
    /// Record bytes and revision column; `None` leaves the row as it is.
    pub(in crate::store) record: Option<(Vec<u8>, i64)>,
    /// Receipt bytes.
    pub(in crate::store) receipt: Vec<u8>,
    /// Receipt revision column.
    pub(in crate::store) receipt_revision: i64,
    /// Format version column of both.
    pub(in crate::store) format_version: i64,
    /// What to answer once it is durable.
    pub(in crate::store) answer: Persisted,
}

/// Checks a commit against what is stored now.
pub(in crate::store) fn prepare(
    commit: Commit,
    row: Row,
    found: FoundReceipt,
) -> Result<Prepared, CommitError> {
    let current = match row {
        Row::Absent => None,
        Row::Good(persisted) => Some(persisted),
        Row::Bad { detail, reason } => {
            return Err(CommitError::NotCommitted(corrupt("record", &commit, detail, reason)));
        }
    };
    let revision =
        current.as_ref().and_then(Persisted::record).map_or(Revision(0), |record| record.revision);
    if revision != commit.expected_revision {
        return Err(CommitError::Conflict { current: revision });
    }
    match found {
        Err(Undecodable { detail, reason }) => {
            return Err(CommitError::NotCommitted(corrupt("receipt", &commit, detail, reason)));
        }
        // The same id was answered meanwhile: the caller must decide again, and will replay it.
        Ok(Some(old))
            if old.outcome.is_final() || old.fingerprint != commit.receipt.fingerprint =>
        {
            return Err(CommitError::Conflict { current: revision });
        }
        Ok(Some(_) | None) => {}
    }
    let refuse = |reason: String| {
        let namespace = commit.namespace.clone();
        CommitError::NotCommitted(StoreError::Inconsistent { namespace, reason })
    };
    must_fit(&commit).map_err(&refuse)?;
    let receipt = encode_receipt(&commit.receipt).map_err(&refuse)?;
    let receipt_revision = column(commit.receipt.revision_after).map_err(&refuse)?;
    let (record, answer) = match (commit.next, current) {
        (Some(next), _) => {
            let bytes = encode_record(&next).map_err(&refuse)?;
            let revision = column(next.revision).map_err(&refuse)?;
            (Some((bytes, revision)), Persisted::of(*next))
        }
        (None, Some(current)) => (None, current),
        (None, None) => return Err(refuse("a receipt for a fence that does not exist".to_owned())),
    };
    Ok(Prepared { record, receipt, receipt_revision, format_version: FORMAT_VERSION, answer })
}

fn must_fit(commit: &Commit) -> Result<(), String> {
    if commit.receipt.namespace != commit.namespace {
        return Err(format!("the receipt is that of {}", commit.receipt.namespace));
    }
    let after = match &commit.next {
        Some(next) if next.namespace != commit.namespace => {
            return Err(format!("the record is that of {}", next.namespace));
        }
        Some(next) if next.revision <= commit.expected_revision => {
            return Err(format!(
                "revision {} would follow {}",
                next.revision, commit.expected_revision
            ));
        }
        Some(next) => next.revision,
        None => commit.expected_revision,
    };
    if commit.receipt.revision_after != after {
        return Err(format!(
            "the receipt says revision {}, the record {after}",
            commit.receipt.revision_after
        ));
    }
    Ok(())
}

fn column(revision: Revision) -> Result<i64, String> {
    i64::try_from(revision.0).map_err(|_| format!("revision {revision} cannot be stored"))
}

fn corrupt(what: &'static str, commit: &Commit, detail: Detail, reason: String) -> StoreError {
    StoreError::Corrupt { what, namespace: commit.namespace.clone(), detail, reason }
}
