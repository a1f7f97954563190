//! What an answer that is a success says beside its code.
//!
//! Purpose: some commands are applied and leave something that whoever sent them must know: a
//! validation that was recorded as failed, a name that stays closed, options that nobody compared,
//! a source that was opened beside its target. It is said in the answer's reason, on every surface.
//!
//! It decides nothing, and is in no receipt: a replay is told what holds when it is sent. No
//! invariant is its. Caller: `control/fences/turn.rs`, under the transition lock.

use super::answer::{Answer, AnswerCode};
use super::fences::Control;
use crate::base::ids::{Namespace, OperationId};
use crate::fence::code::ControlCode;
use crate::fence::command::{Arguments, Command};
use crate::fence::record::ValidationResult;
use crate::fence::state::FenceState;
use crate::fence::verdict::Overlay;

impl Control {
    /// The note of an answer; `before` is the state that the command met.
    pub(super) fn note(
        &self,
        command: &Command,
        before: FenceState,
        answer: &Answer,
    ) -> Option<String> {
        let done = match answer.code {
            AnswerCode::Control(ControlCode::Applied) => true,
            AnswerCode::Control(ControlCode::AlreadyApplied) => false,
            AnswerCode::Control(
                ControlCode::Draining
                | ControlCode::StateUnavailable
                | ControlCode::CapabilityRequired
                | ControlCode::OwnedByAnotherOperation
                | ControlCode::RevisionMismatch
                | ControlCode::InvalidTransition
                | ControlCode::CommandConflict
                | ControlCode::CommitIndeterminate
                | ControlCode::PreconditionFailed,
            )
            | AnswerCode::Failed => return None,
        };
        match &command.arguments {
            Arguments::CreateTargetQuarantined { .. } => not_compared(done, before),
            Arguments::RecordTargetValidation { result, .. } => match result {
                ValidationResult::Ok => None,
                ValidationResult::Failed => Some(
                    "the validation was recorded as failed, so the target can't be published; \
                     record one that is ok when it is, or abort the target"
                        .to_owned(),
                ),
            },
            Arguments::AbortQuarantinedTarget => Some(format!(
                "{} stays closed for ever, and its name isn't freed; drop the database around the \
                 proxy when nobody needs it, and make the next target under another name",
                command.namespace
            )),
            Arguments::ReleaseSourceWriteFence => self.beside_its_targets(command.operation),
            Arguments::AcquireSourceWriteFence { .. }
            | Arguments::SetSourceReadFence { .. }
            | Arguments::ClearSourceReadFence
            | Arguments::SealTargetImport { .. }
            | Arguments::PublishTargetReadableWriteFenced
            | Arguments::EnableTargetWrites
            | Arguments::AdoptFence { .. } => None,
        }
    }

    /// Targets of an operation that take writes, or may: their opening's commit isn't known.
    /// Sorted by name. Only of this proxy's own store.
    #[must_use]
    pub(super) fn writable_targets(&self, operation: OperationId) -> Vec<Namespace> {
        let may_write = |gate: &crate::gate::registry::Gate| {
            let policy = &gate.published().policy;
            let opening = policy.state == FenceState::TargetWriteFenced
                && policy.overlay == Overlay::Indeterminate;
            policy.operation == Some(operation)
                && (policy.state == FenceState::TargetWritable || opening)
        };
        let gates = self.gates.all();
        let mut names: Vec<_> = gates
            .iter()
            .filter(|gate| may_write(gate))
            .map(|gate| gate.namespace().clone())
            .collect();
        names.sort();
        names
    }

    fn beside_its_targets(&self, operation: OperationId) -> Option<String> {
        let names = self.writable_targets(operation);
        (!names.is_empty()).then(|| {
            let names: Vec<_> = names.iter().map(Namespace::to_string).collect();
            format!(
                "WARNING: this operation has enabled writes of {} too. If this was its source, \
                 both take writes now: fence one of them again under a new operation, and look \
                 what each has that the other hasn't",
                names.join(", ")
            )
        })
    }
}

/// Options of a creation that nobody has held against what is there.
fn not_compared(done: bool, before: FenceState) -> Option<String> {
    let words = if !done {
        "the target had been made before"
    } else if before == FenceState::UnknownUnavailable {
        "an earlier attempt of this command had begun, and may have made the database"
    } else {
        return None;
    };
    Some(format!(
        "{words}; owner, encoding, locale and template of this one were not compared with what it \
         has: look at the database before you import into it"
    ))
}
