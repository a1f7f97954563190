//! What must be true outside the record before a command is done (step 14).
//!
//! Callers: `decide` alone. Each refusal is FENCE_PRECONDITION_FAILED with its detail.

use super::{Arguments, ControlRefusal, Decision, Detail, DrainPolicy, FenceRecord, Request};
use crate::base::limits;
use crate::fence::record::{Identity, ValidationResult};

/// Templates that hold nothing of anybody's.
const EMPTY_TEMPLATES: [&str; 2] = ["template0", "template1"];

impl Request<'_> {
    pub(super) fn preconditions(&self, record: Option<&FenceRecord>) -> Result<(), ControlRefusal> {
        match &self.command.arguments {
            Arguments::AcquireSourceWriteFence { identity, drain_policy } => {
                self.must_not_be_shared()?;
                self.must_be_the_live_one(identity)?;
                self.must_be_a_policy(drain_policy.as_ref())
            }
            Arguments::SetSourceReadFence { drain_policy }
            | Arguments::SealTargetImport { drain_policy } => {
                self.must_be_a_policy(drain_policy.as_ref())
            }
            Arguments::CreateTargetQuarantined { template, .. } => {
                self.must_start_empty(template.as_deref())?;
                self.must_not_be_shared()?;
                self.must_be_unused()?;
                self.must_be_options()
            }
            Arguments::RecordTargetValidation { summary, .. } => {
                self.must_be_short(summary.as_deref())?;
                self.must_be_the_targets_own(record)
            }
            Arguments::PublishTargetReadableWriteFenced => self.must_be_validated(record),
            Arguments::ClearSourceReadFence
            | Arguments::ReleaseSourceWriteFence
            | Arguments::EnableTargetWrites
            | Arguments::AbortQuarantinedTarget
            // Adoption has its own order; see `adopt`.
            | Arguments::AdoptFence { .. } => Ok(()),
        }
    }

    /// Completes the creation whose marker is `marker`: the request's own preconditions still hold,
    /// but the name is of course in use, by the marker.
    pub(super) fn finish_creating(&self, marker: &FenceRecord) -> Result<Decision, ControlRefusal> {
        let Some(incarnation) = marker.target_incarnation else {
            return Err(self.state_unavailable(
                Detail::IncompleteTargetCreation,
                "the marker has no incarnation id",
            ));
        };
        // Its body may be another than the one that began: nothing of it is durable but the ids.
        if let Arguments::CreateTargetQuarantined { template, .. } = &self.command.arguments {
            self.must_start_empty(template.as_deref())?;
            self.must_be_options()?;
        }
        Ok(self.commit_created(incarnation))
    }

    fn refuse(&self, detail: Detail, what: &str) -> ControlRefusal {
        let message = format!("{} on {}: {what}", self.command.kind(), self.command.namespace);
        ControlRefusal::precondition(detail, message)
    }

    fn must_not_be_shared(&self) -> Result<(), ControlRefusal> {
        if self.facts.shared_schema {
            let what = "other databases reach into this one, so a fence here would not cover every \
                        write; remove those links first";
            return Err(self.refuse(Detail::SharedSchemaUnsupported, what));
        }
        Ok(())
    }

    fn must_be_the_live_one(&self, wanted: &Identity) -> Result<(), ControlRefusal> {
        let what = match &self.facts.live_identity {
            Some(live) if wanted.is_met_by(live) => return Ok(()),
            Some(live) => format!(
                "the live database is {} on engine {} (timeline {:?}), the command named {} on {} \
                 (timeline {:?}); make sure that you mean this one, then inspect and ask again",
                live.database_id,
                live.engine_id,
                live.timeline,
                wanted.database_id,
                wanted.engine_id,
                wanted.timeline
            ),
            None => "the engine could not be asked which database this is; see to the engine's \
                     control connection"
                .to_owned(),
        };
        Err(self.refuse(Detail::NamespaceIdentityMismatch, &what))
    }

    /// What of the preconditions is about the drain alone: for a command that joins one.
    pub(super) fn must_drain_in_bounds(&self) -> Result<(), ControlRefusal> {
        match &self.command.arguments {
            Arguments::AcquireSourceWriteFence { drain_policy, .. }
            | Arguments::SetSourceReadFence { drain_policy }
            | Arguments::SealTargetImport { drain_policy } => {
                self.must_be_a_policy(drain_policy.as_ref())
            }
            Arguments::ClearSourceReadFence
            | Arguments::ReleaseSourceWriteFence
            | Arguments::CreateTargetQuarantined { .. }
            | Arguments::RecordTargetValidation { .. }
            | Arguments::PublishTargetReadableWriteFenced
            | Arguments::EnableTargetWrites
            | Arguments::AbortQuarantinedTarget
            | Arguments::AdoptFence { .. } => Ok(()),
        }
    }

    fn must_be_a_policy(&self, policy: Option<&DrainPolicy>) -> Result<(), ControlRefusal> {
        let Some(policy) = policy else { return Ok(()) };
        if policy.deadline_ms > limits::DRAIN_DEADLINE_MAX_MS {
            let what = format!(
                "deadline_ms is {}, at most {} is allowed",
                policy.deadline_ms,
                limits::DRAIN_DEADLINE_MAX_MS
            );
            return Err(self.refuse(Detail::InvalidArgument, &what));
        }
        match policy.hold_ms {
            Some(hold_ms) if hold_ms > limits::HOLD_MAX_MS => {
                let what =
                    format!("hold_ms is {hold_ms}, at most {} is allowed", limits::HOLD_MAX_MS);
                Err(self.refuse(Detail::InvalidArgument, &what))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn must_start_empty(&self, template: Option<&str>) -> Result<(), ControlRefusal> {
        match template {
            Some(template) if !EMPTY_TEMPLATES.contains(&template) => {
                let what = "a target starts empty and is filled through its import; leave out the \
                            template";
                Err(self.refuse(Detail::RestoreNotAllowed, what))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn must_be_unused(&self) -> Result<(), ControlRefusal> {
        if self.facts.name_in_use {
            let what = "something goes by this name already; choose another";
            return Err(self.refuse(Detail::NamespaceExists, what));
        }
        Ok(())
    }

    fn must_be_options(&self) -> Result<(), ControlRefusal> {
        let Arguments::CreateTargetQuarantined { owner, encoding, locale, template } =
            &self.command.arguments
        else {
            return Ok(());
        };
        let mut said = [owner, encoding, locale, template].into_iter().flatten();
        said.try_for_each(|option| self.must_be_an_option(option))
    }

    /// The position is of the server that the target was made on (invariant 8). Without one the
    /// caller stores nothing.
    fn must_be_the_targets_own(&self, record: Option<&FenceRecord>) -> Result<(), ControlRefusal> {
        let made = record.and_then(|record| record.identity.as_ref());
        let (Some(made), Some(at)) = (made, self.facts.snapshot.as_ref()) else { return Ok(()) };
        let met = made.engine_id == at.engine_id
            && (made.timeline.is_none() || made.timeline == at.timeline);
        if met {
            return Ok(());
        }
        let what = format!(
            "the target is {made}, and engine {} (timeline {:?}) answers under its name now, so \
             nothing is recorded; see where the engine's address leads, then send it again",
            at.engine_id, at.timeline
        );
        Err(self.refuse(Detail::NamespaceIdentityMismatch, &what))
    }

    fn must_be_an_option(&self, option: &str) -> Result<(), ControlRefusal> {
        let good = !option.is_empty()
            && option.len() <= limits::CREATE_OPTION_BYTES
            && !option.chars().any(char::is_control);
        if good {
            return Ok(());
        }
        let what = format!(
            "an option of the new database is empty, longer than {} bytes or holds control \
             characters",
            limits::CREATE_OPTION_BYTES
        );
        Err(self.refuse(Detail::InvalidArgument, &what))
    }

    fn must_be_short(&self, summary: Option<&str>) -> Result<(), ControlRefusal> {
        match summary {
            Some(summary) if summary.len() > limits::VALIDATION_SUMMARY_BYTES => {
                let what = format!(
                    "the summary has {} bytes, at most {} are kept; shorten it",
                    summary.len(),
                    limits::VALIDATION_SUMMARY_BYTES
                );
                Err(self.refuse(Detail::InvalidArgument, &what))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn must_be_validated(&self, record: Option<&FenceRecord>) -> Result<(), ControlRefusal> {
        let found = record.and_then(|record| record.validation.as_ref());
        let missing = match found.map(|found| (found.operation, found.result)) {
            None => "no validation is recorded of this target".to_owned(),
            Some((operation, _)) if operation != self.command.operation => format!(
                "the latest validation was recorded by operation {operation}, which isn't the \
                 owner any more; {} has recorded none",
                self.command.operation
            ),
            Some((_, ValidationResult::Failed)) => {
                "the latest validation was recorded as failed".to_owned()
            }
            Some((_, ValidationResult::Ok)) => return Ok(()),
        };
        let what = format!(
            "{missing}; look at the target (validation-query, or a session that shows a validation \
             capability), record an ok (ctl validate {} --operation {} --result ok), then send a \
             new publish",
            self.command.namespace, self.command.operation
        );
        Err(self.refuse(Detail::ValidationReceiptRequired, &what))
    }
}
