//! Building the record and receipt of a command that may be done (step 15).
//!
//! Callers: `decide` alone, after every check. Nothing here refuses.

use crate::base::ids::Revision;

use super::{
    Arguments, Decision, DrainPolicy, FenceRecord, FenceState, IncarnationId, Outcome, Request,
    Role,
};
use crate::fence::record::{GAP_WHILE_UP, Validation, ValidationResult};

impl Request<'_> {
    /// The commit of a legal command. `record` is the present one, at revision `before`.
    pub(super) fn transition(&self, before: Revision, record: Option<&FenceRecord>) -> Decision {
        let mut next = match record {
            Some(record) if record.operation == self.command.operation => record.clone(),
            // A new operation keeps the counter and nothing else.
            Some(_) | None => self.fresh_record(self.facts.fresh_incarnation),
        };
        next.revision = before.next();
        let outcome = self.shape(&mut next);
        self.commit(before, next, outcome)
    }

    /// The commit that completes a creation whose marker was left behind.
    pub(super) fn commit_created(&self, incarnation: IncarnationId) -> Decision {
        let mut next = self.fresh_record(incarnation);
        next.revision = Revision(1);
        let outcome = self.shape(&mut next);
        self.commit(Revision(0), next, outcome)
    }

    fn commit(&self, replaces: Revision, next: FenceRecord, outcome: Outcome) -> Decision {
        let receipt = self.receipt(outcome, &next, replaces);
        let drains = outcome == Outcome::Draining;
        Decision::Commit { replaces, next: Some(Box::new(next)), receipt, drains }
    }

    /// Sets what the command changes, and says whether a drain follows.
    fn shape(&self, next: &mut FenceRecord) -> Outcome {
        self.stamp(next);
        match &self.command.arguments {
            Arguments::AcquireSourceWriteFence { identity, drain_policy } => {
                next.role = Role::Source;
                next.target_incarnation = None;
                // The live one: it also names the timeline where the caller didn't.
                let live = self.facts.live_identity.as_ref().unwrap_or(identity);
                next.identity = Some(live.clone());
                let policy = drain_policy.unwrap_or(self.facts.default_write_drain);
                next.hold_ms = policy.hold_ms;
                self.begin_drain(next, FenceState::SourceDraining, policy)
            }
            Arguments::SetSourceReadFence { drain_policy } => {
                let policy = drain_policy.unwrap_or(self.facts.default_read_drain);
                next.hold_ms = policy.hold_ms.or(next.hold_ms);
                self.begin_drain(next, FenceState::SourceReadDraining, policy)
            }
            Arguments::SealTargetImport { drain_policy } => {
                let policy = drain_policy.unwrap_or(self.facts.default_write_drain);
                self.begin_drain(next, FenceState::TargetImportDraining, policy)
            }
            Arguments::ClearSourceReadFence => settle(next, FenceState::SourceWriteFenced),
            Arguments::ReleaseSourceWriteFence => {
                next.hold_ms = None;
                if let Some(evidence) = &mut next.evidence {
                    let gaps = self.facts.lock_gaps.iter();
                    evidence
                        .engine_lock
                        .gaps
                        .extend(gaps.map(|gap| format!("{GAP_WHILE_UP}{gap}")));
                }
                settle(next, FenceState::Released)
            }
            Arguments::CreateTargetQuarantined { .. } => {
                settle(next, FenceState::TargetQuarantined)
            }
            Arguments::RecordTargetValidation { result, summary } => {
                next.validation = Some(self.validation(*result, summary.clone()));
                Outcome::Applied
            }
            Arguments::PublishTargetReadableWriteFenced => {
                settle(next, FenceState::TargetWriteFenced)
            }
            Arguments::EnableTargetWrites => settle(next, FenceState::TargetWritable),
            Arguments::AbortQuarantinedTarget => settle(next, FenceState::TargetAborted),
            // Adoption builds its own record; see `adopt`.
            Arguments::AdoptFence { .. } => Outcome::Applied,
        }
    }

    pub(super) fn stamp(&self, next: &mut FenceRecord) {
        next.operation = self.command.operation;
        next.last_command = self.command.command;
        next.last_transition_at_ms = self.now_ms;
        next.written_by = self.facts.written_by.clone();
    }

    fn begin_drain(
        &self,
        next: &mut FenceRecord,
        state: FenceState,
        policy: DrainPolicy,
    ) -> Outcome {
        next.state = state;
        next.drain_policy = Some(policy);
        next.drain_started_at_ms = Some(self.now_ms);
        Outcome::Draining
    }

    fn validation(&self, result: ValidationResult, summary: Option<String>) -> Validation {
        Validation {
            operation: self.command.operation,
            command: self.command.command,
            result,
            summary,
            snapshot: self.facts.snapshot.clone(),
            recorded_at_ms: self.now_ms,
        }
    }

    fn fresh_record(&self, incarnation: IncarnationId) -> FenceRecord {
        FenceRecord {
            namespace: self.command.namespace.clone(),
            role: Role::Target,
            state: FenceState::TargetQuarantined,
            revision: Revision(0),
            operation: self.command.operation,
            identity: None,
            target_incarnation: Some(incarnation),
            drain_policy: None,
            drain_started_at_ms: None,
            hold_ms: None,
            frozen_boundary: None,
            evidence: None,
            read_evidence: None,
            validation: None,
            created_at_ms: self.now_ms,
            last_transition_at_ms: self.now_ms,
            last_command: self.command.command,
            written_by: self.facts.written_by.clone(),
            adoptions: Vec::new(),
        }
    }
}

/// Moves to a state without a drain of its own, and ends one that was running.
fn settle(next: &mut FenceRecord, state: FenceState) -> Outcome {
    next.state = state;
    next.drain_policy = None;
    next.drain_started_at_ms = None;
    next.read_evidence = None;
    Outcome::Applied
}
