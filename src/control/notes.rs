//! What an answer that is a success says beside its code.
//!
//! Purpose: some commands are applied and leave something that whoever sent them must know: a
//! validation that was recorded as failed, a name that stays closed, options that nobody compared,
//! a source that was opened beside its target. It is said in the answer's reason, on every surface.
//!
//! It decides nothing, and is in no receipt: a replay is told what holds when it is sent. No
//! invariant is its. Callers: `control/fences/turn.rs`, under the transition lock; which targets of
//! an operation take writes is asked by `control/status.rs` and `control/doubles.rs`, too.

use super::answer::{Answer, AnswerCode};
use super::fences::Control;
use crate::base::ids::{Namespace, OperationId};
use crate::fence::code::ControlCode;
use crate::fence::command::{Arguments, Command};
use crate::fence::record::ValidationResult;
use crate::fence::state::FenceState;
use crate::fence::transition::ControlView;
use crate::store::{Row, StoreError};

impl Control {
    /// The note of an answer; `before` is the state that the command met.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub(super) async fn note(
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
            Arguments::ReleaseSourceWriteFence => self.beside_its_targets(command.operation).await,
            Arguments::AcquireSourceWriteFence { .. }
            | Arguments::SetSourceReadFence { .. }
            | Arguments::ClearSourceReadFence
            | Arguments::SealTargetImport { .. }
            | Arguments::PublishTargetReadableWriteFenced
            | Arguments::EnableTargetWrites
            | Arguments::AdoptFence { .. } => None,
        }
    }

    /// Targets of an operation that take writes, or may: their opening's commit isn't known. Sorted
    /// by name. By the records of this proxy's own store, and by a marker that is ahead of them:
    /// what gates say is not asked, because that of an engine that is shut says nothing.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    ///
    /// # Errors
    /// [`StoreError`] where the records can't be listed; nothing is known then.
    pub(super) async fn writable_targets(
        &self,
        operation: OperationId,
    ) -> Result<Vec<Namespace>, StoreError> {
        let mut names = Vec::new();
        for row in self.store.fence_list().await? {
            let of_another = match row.row() {
                Row::Good(persisted) => {
                    persisted.record().is_none_or(|record| record.operation != operation)
                }
                // Its marker may say what the row can't.
                Row::Bad { .. } => false,
                Row::Absent => true,
            };
            if of_another {
                continue;
            }
            let namespace = row.namespace().clone();
            let truth = self.compared(row, false).await;
            if self.may_take_writes(&namespace, operation, &truth.view) {
                names.push(namespace);
            }
        }
        names.sort();
        Ok(names)
    }

    fn may_take_writes(
        &self,
        namespace: &Namespace,
        operation: OperationId,
        view: &ControlView,
    ) -> bool {
        let record = match view {
            ControlView::Record(record) => Some(record.as_ref()),
            ControlView::UnknownUnavailable { marker, .. } => marker.as_deref(),
            ControlView::NoRecord { .. } => None,
        };
        let in_doubt = || self.known_line(namespace).is_some_and(|line| line.pending().is_some());
        record.filter(|record| record.operation == operation).is_some_and(|record| {
            record.state == FenceState::TargetWritable
                || record.state == FenceState::TargetWriteFenced && in_doubt()
        })
    }

    async fn beside_its_targets(&self, operation: OperationId) -> Option<String> {
        let names = match self.writable_targets(operation).await {
            Ok(names) => names,
            Err(error) => {
                return Some(format!(
                    "WARNING: it could not be read whether this operation has enabled writes of a \
                     target too ({error}); look at its targets before clients write here"
                ));
            }
        };
        (!names.is_empty()).then(|| {
            format!(
                "WARNING: this operation has enabled writes of {} too. If this was its source, \
                 both take writes now: fence one of them again under a new operation, and look \
                 what each has that the other hasn't",
                listed(&names)
            )
        })
    }
}

/// Names in one line.
pub(super) fn listed(names: &[Namespace]) -> String {
    names.iter().map(Namespace::to_string).collect::<Vec<_>>().join(", ")
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
