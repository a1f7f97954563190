//! Adoption: moving ownership in an incident. It opens nothing.
//!
//! The order of its checks is its own: record, unfinished, named owner, another adopter,
//! expectation, key, people and words, configuration.
//!
//! Callers: `decide` alone, after replay (which needs no key).

use crate::base::ids::{OperationId, Revision};
use crate::base::limits;

use super::{Arguments, ControlRefusal, Decision, Detail, FenceRecord, Outcome, Request};
use crate::fence::record::Adoption;

struct Plea<'a> {
    current_operation: OperationId,
    approvers: &'a [String],
    incident_ref: &'a str,
    reason: &'a str,
}

impl Request<'_> {
    /// Adopts `record`: the stored one, or the marker's where the store fell behind it.
    /// `replaces` is the stored row's revision, 0 without a row.
    pub(super) fn adopt(
        &self,
        record: &FenceRecord,
        replaces: Revision,
    ) -> Result<Decision, ControlRefusal> {
        let Some(plea) = self.plea() else {
            return Err(self.invalid(record.state, None, "it is not an adoption"));
        };
        if record.state.is_operation_finished() {
            let why = "the operation has finished, there is nothing to adopt";
            return Err(self.invalid(record.state, Some(Detail::OperationFinished), why));
        }
        if plea.current_operation != record.operation {
            return Err(self.owned(record));
        }
        if self.command.operation == record.operation {
            return Err(self.invalid(record.state, None, "the adopter is the owner already"));
        }
        self.must_expect(record.state, record.revision)?;
        let approvers = self.authorised(&plea, record)?;
        if !self.facts.namespace_configured {
            return Err(ControlRefusal::precondition(
                Detail::NamespaceConfigMissing,
                format!(
                    "{} is not configured here, so its fence could not be enforced; configure its \
                     engine first, nothing was written",
                    self.command.namespace
                ),
            ));
        }
        let adoption = Adoption {
            previous_operation: record.operation,
            new_operation: self.command.operation,
            command: self.command.command,
            approvers,
            incident_ref: plea.incident_ref.trim().to_owned(),
            reason: plea.reason.trim().to_owned(),
            at_ms: self.now_ms,
            revision: record.revision.next(),
        };
        let mut next = record.clone();
        next.revision = record.revision.next();
        self.stamp(&mut next);
        next.adoptions.push(adoption.clone());
        let mut receipt = self.receipt(Outcome::Applied, &next, record.revision);
        receipt.adoption = Some(adoption);
        Ok(Decision::Commit { replaces, next: Some(Box::new(next)), receipt, drains: false })
    }

    fn plea(&self) -> Option<Plea<'_>> {
        match &self.command.arguments {
            Arguments::AdoptFence { current_operation, approvers, incident_ref, reason } => {
                Some(Plea {
                    current_operation: *current_operation,
                    approvers,
                    incident_ref,
                    reason,
                })
            }
            Arguments::AcquireSourceWriteFence { .. }
            | Arguments::SetSourceReadFence { .. }
            | Arguments::ClearSourceReadFence
            | Arguments::ReleaseSourceWriteFence
            | Arguments::CreateTargetQuarantined { .. }
            | Arguments::SealTargetImport { .. }
            | Arguments::RecordTargetValidation { .. }
            | Arguments::PublishTargetReadableWriteFenced
            | Arguments::EnableTargetWrites
            | Arguments::AbortQuarantinedTarget => None,
        }
    }

    fn authorised(
        &self,
        plea: &Plea<'_>,
        record: &FenceRecord,
    ) -> Result<[String; 2], ControlRefusal> {
        let refuse = |what: &str| {
            let message = format!("adoption of {} refused: {what}", self.command.namespace);
            Err(ControlRefusal::precondition(Detail::AdoptionNotAuthorised, message))
        };
        if !self.facts.adoption_key_matched {
            return refuse("the adoption key is not configured, or not the one that was given");
        }
        let [first, second] = plea.approvers else {
            return refuse("exactly two approvers are needed");
        };
        let (first, second) = (first.trim(), second.trim());
        if first.is_empty() || second.is_empty() || first == second {
            return refuse("the two approvers must be named and be different people");
        }
        if plea.incident_ref.trim().is_empty() || plea.reason.trim().is_empty() {
            return refuse("an incident reference and a reason are needed");
        }
        let longest = [first, second, plea.incident_ref, plea.reason].map(str::len);
        if longest.into_iter().any(|bytes| bytes > limits::ADOPTION_TEXT_BYTES) {
            return refuse("a text is too long; give the incident reference, not the incident");
        }
        if record.adoptions.len() >= limits::ADOPTIONS_MAX {
            return refuse("this fence has been adopted too often; end its operation instead");
        }
        Ok([first.to_owned(), second.to_owned()])
    }
}
