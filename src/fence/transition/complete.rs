//! The end of a drain: from a draining state and its proof to the drained state.
//!
//! Purpose: the only way out of a draining state that isn't a command. It takes the proof by value
//! and moves the record by one revision.
//!
//! Invariants: 6, 8. Callers: `control/drain.rs`, under the transition lock, with the record as it
//! is now. It does not look at the time a drain took.

use super::{FenceRecord, FenceState, Outcome, Receipt, WrittenBy};
use crate::base::ids::{Namespace, Revision};
use crate::fence::proof::{DrainProof, DrainedClaim};
use crate::fence::record::{Evidence, Identity, ReadEvidence, RecordError, another_database};
use crate::fence::state::Role;

/// How a drain ended.
#[derive(Debug, PartialEq, Eq)]
pub enum DrainEnd {
    /// No earlier write is left: the gate, the engine and the log agree.
    Writes(DrainProof),
    /// No earlier read lease is left.
    Reads(DrainedClaim),
    /// No earlier import call or writer is left on the target.
    Import(DrainProof),
}

/// Why a proof doesn't complete this drain. The record stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompletionError {
    /// The record has moved on, or the receipt is of another drain.
    #[error(
        "the drain of {namespace} begun at revision {begun} is not the one that runs (state \
         {state}, revision {revision}); nothing was completed, inspect it"
    )]
    Superseded {
        /// Whose.
        namespace: Namespace,
        /// The revision the drain began at.
        begun: Revision,
        /// The record's state now.
        state: FenceState,
        /// The record's revision now.
        revision: Revision,
    },
    /// The proof is of another kind of drain, or of another namespace.
    #[error("the proof does not fit the drain of {namespace} in state {state}; replay the command")]
    WrongProof {
        /// Whose.
        namespace: Namespace,
        /// The record's state.
        state: FenceState,
    },
    /// The evidence is of another database than the fence was acquired on.
    #[error("{}", another_database(namespace, *role, was, now))]
    OtherDatabase {
        /// Whose.
        namespace: Namespace,
        /// Which end of a move it is.
        role: Option<Role>,
        /// As acquired.
        was: Box<Identity>,
        /// As proven.
        now: Box<Identity>,
    },
    /// The drained record would not be consistent.
    #[error(transparent)]
    Inconsistent(#[from] RecordError),
}

/// Completes a drain. `receipt` is the DRAINING receipt the drain runs under.
///
/// Answers with the next record, one revision on, and the final receipt that replaces `receipt`.
///
/// # Errors
/// [`CompletionError`]; nothing may be stored then.
pub fn complete_drain(
    now_ms: u64,
    record: &FenceRecord,
    receipt: &Receipt,
    end: DrainEnd,
    written_by: &WrittenBy,
) -> Result<(FenceRecord, Receipt), CompletionError> {
    if receipt.kind.draining() != Some(record.state)
        || receipt.outcome != Outcome::Draining
        || receipt.revision_after != record.revision
    {
        return Err(CompletionError::Superseded {
            namespace: record.namespace.clone(),
            begun: receipt.revision_after,
            state: record.state,
            revision: record.revision,
        });
    }
    let wrong =
        || CompletionError::WrongProof { namespace: record.namespace.clone(), state: record.state };
    let mut next = record.clone();
    match end {
        DrainEnd::Writes(proof) if record.state == FenceState::SourceDraining => {
            let evidence = evidence_for(record, proof)?;
            next.state = FenceState::SourceWriteFenced;
            next.frozen_boundary = Some(evidence.boundary.clone());
            next.evidence = Some(evidence);
        }
        DrainEnd::Import(proof) if record.state == FenceState::TargetImportDraining => {
            next.evidence = Some(evidence_for(record, proof)?);
            next.state = FenceState::TargetValidating;
        }
        DrainEnd::Reads(drained)
            if record.state == FenceState::SourceReadDraining
                && drained.namespace == record.namespace =>
        {
            next.state = FenceState::SourceReadFenced;
            next.read_evidence = Some(ReadEvidence {
                generation: drained.generation,
                releases: drained.releases,
                forced: drained.forced,
                proven_at_ms: now_ms,
            });
        }
        DrainEnd::Writes(_) | DrainEnd::Import(_) | DrainEnd::Reads(_) => return Err(wrong()),
    }
    next.revision = record.revision.next();
    next.drain_policy = None;
    next.drain_started_at_ms = None;
    next.last_transition_at_ms = now_ms;
    next.last_command = receipt.command;
    next.written_by = written_by.clone();
    next.check()?;
    let finished = Receipt {
        outcome: Outcome::Applied,
        revision_after: next.revision,
        state_after: next.state,
        applied_at_ms: now_ms,
        instance: written_by.instance.clone(),
        ..receipt.clone()
    };
    Ok((next, finished))
}

fn evidence_for(record: &FenceRecord, proof: DrainProof) -> Result<Evidence, CompletionError> {
    let namespace = &record.namespace;
    if proof.namespace() != namespace {
        return Err(CompletionError::WrongProof {
            namespace: namespace.clone(),
            state: record.state,
        });
    }
    match &record.identity {
        Some(identity) if !identity.is_met_by(proof.identity()) => {
            Err(CompletionError::OtherDatabase {
                namespace: namespace.clone(),
                role: record.state.role(),
                was: Box::new(identity.clone()),
                now: Box::new(proof.identity().clone()),
            })
        }
        Some(_) | None => Ok(proof.into_evidence()),
    }
}
