//! The decision: given what is durable, what is asked and what is true outside, what happens.
//!
//! Purpose: [`decide`] is the whole command table as one pure function, in a fixed order: replay
//! first, then availability, owner, goal, join, role, table, expectation, preconditions. Time and
//! every outside fact are arguments.
//!
//! Invariants: 4, 8, 10. A refusal writes nothing. Nothing here advances by time.
//!
//! Callers: `control/fences.rs`, inside the namespace's transition lock and with the row it is
//! going to replace. Closing gates, waiting for drains and committing are not here.

mod adopt;
mod complete;
mod next;
mod precondition;
#[cfg(test)]
mod tests;

use crate::base::ids::Revision;

use super::code::{ControlCode, Detail};
use super::command::{Arguments, Command, CommandKey, CommandKind};
use super::receipt::{Fingerprint, Outcome, Receipt, Replay};
use super::record::{Boundary, DrainPolicy, FenceRecord, Identity, IncarnationId, WrittenBy};
use super::state::{FenceState, Role};

pub use complete::{CompletionError, DrainEnd, complete_drain};

/// What is known of a namespace's control state, after store and marker were compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlView {
    /// It can't be established; everything is closed.
    UnknownUnavailable {
        /// Which of the known reasons.
        detail: Detail,
        /// The reason in words, for the operator.
        reason: String,
        /// The marker's record, where it could be read.
        marker: Option<Box<FenceRecord>>,
        /// The revision of the row that a commit would have to replace; 0 without a row.
        row_revision: Revision,
    },
    /// There is no fence.
    NoRecord {
        /// Whether the database itself exists.
        exists: bool,
    },
    /// There is one.
    Record(Box<FenceRecord>),
}

impl ControlView {
    /// The state as shown and as expected by commands.
    #[must_use]
    pub fn state(&self) -> FenceState {
        match self {
            Self::UnknownUnavailable { .. } => FenceState::UnknownUnavailable,
            Self::NoRecord { exists: true } => FenceState::Unfenced,
            Self::NoRecord { exists: false } => FenceState::Absent,
            Self::Record(record) => record.state,
        }
    }

    /// The revision as shown and as expected by commands; 0 without a record.
    #[must_use]
    pub fn revision(&self) -> Revision {
        match self {
            Self::UnknownUnavailable { .. } | Self::NoRecord { .. } => Revision(0),
            Self::Record(record) => record.revision,
        }
    }

    /// The record, where there is one that is believed.
    #[must_use]
    pub fn record(&self) -> Option<&FenceRecord> {
        match self {
            Self::UnknownUnavailable { .. } | Self::NoRecord { .. } => None,
            Self::Record(record) => Some(record),
        }
    }
}

/// What is true outside the record, gathered by the caller before it asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Who writes.
    pub written_by: WrittenBy,
    /// The command whose commit isn't known to have landed, if there is one.
    pub indeterminate: Option<CommandKey>,
    /// The live database's identity; `None` when the engine couldn't be asked.
    pub live_identity: Option<Identity>,
    /// Whether others reach into the schema in a way a fence couldn't cover.
    pub shared_schema: bool,
    /// Whether anything at all (database, route, marker, session) goes by a new target's name.
    pub name_in_use: bool,
    /// The id a created target would get.
    pub fresh_incarnation: IncarnationId,
    /// The target's own position, for a validation's record.
    pub snapshot: Option<Boundary>,
    /// The policy of a write or import drain that doesn't bring its own.
    pub default_write_drain: DrainPolicy,
    /// The policy of a read drain that doesn't bring its own.
    pub default_read_drain: DrainPolicy,
    /// Whether the adoption key is configured and was given.
    pub adoption_key_matched: bool,
    /// Whether the namespace's engine is configured here.
    pub namespace_configured: bool,
    /// When the engine lock was missing while the fence stood, one sentence each: a release keeps
    /// them beside the proof, which they limit.
    pub lock_gaps: Vec<String>,
}

/// A command that was not done. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ControlRefusal {
    /// The stable code.
    pub code: ControlCode,
    /// The detail under it.
    pub detail: Option<Detail>,
    /// What happened, to what, and what to do.
    pub message: String,
}

/// What to do about a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Answer with this final receipt, marked as replayed. Write nothing.
    Replay(Receipt),
    /// Go on with the drain this receipt began.
    Resume(Receipt),
    /// Answer with this DRAINING receipt of a drain that was superseded. Do nothing else.
    Historical(Receipt),
    /// Persist, then publish, then answer (or drain).
    Commit {
        /// The revision of the row that is replaced; 0 to insert.
        replaces: Revision,
        /// The record to store; `None` leaves the row as it is.
        next: Option<Box<FenceRecord>>,
        /// The receipt to store with it.
        receipt: Receipt,
        /// Whether a drain runs after the commit.
        drains: bool,
    },
    /// Answer with an error. Write nothing.
    Refuse(ControlRefusal),
}

impl ControlRefusal {
    fn new(code: ControlCode, detail: Option<Detail>, message: String) -> Self {
        Self { code, detail, message }
    }

    fn precondition(detail: Detail, message: String) -> Self {
        Self::new(detail.parent(), Some(detail), message)
    }
}

/// Decides one command. Call it under the namespace's transition lock.
///
/// `receipt` is what is stored under the command's key, `view` what store and marker agree on. The
/// order of the checks is part of the contract; see the numbers in the code.
#[must_use]
pub fn decide(
    now_ms: u64,
    view: &ControlView,
    command: &Command,
    receipt: Option<&Receipt>,
    facts: &Facts,
) -> Decision {
    // 0. While one commit is unknown, only its own command can find out.
    if let Some(pending) = facts.indeterminate.filter(|pending| *pending != command.key()) {
        let message = format!(
            "it is not known whether command {} of operation {} on {} was committed, and nothing \
             else is accepted until it is; replay exactly that command",
            pending.command, pending.operation, command.namespace
        );
        let detail = Some(Detail::IndeterminateCommit);
        return Decision::Refuse(ControlRefusal::new(
            ControlCode::CommitIndeterminate,
            detail,
            message,
        ));
    }
    // 2 and 3. Replay comes before everything that could have changed since.
    let request = Request { now_ms, command, facts, fingerprint: Fingerprint::of(command) };
    if let Some(receipt) = receipt {
        return request.replay(view, receipt);
    }
    let fresh = match view {
        // 4. Unknown is closed for commands too, with two exceptions.
        ControlView::UnknownUnavailable { detail, reason, marker, row_revision } => {
            request.unavailable(*detail, reason, marker.as_deref(), *row_revision)
        }
        ControlView::NoRecord { .. } | ControlView::Record(_) => request.known(view),
    };
    fresh.unwrap_or_else(Decision::Refuse)
}

/// One command with everything it is judged by.
struct Request<'a> {
    now_ms: u64,
    command: &'a Command,
    facts: &'a Facts,
    fingerprint: Fingerprint,
}

impl Request<'_> {
    fn replay(&self, view: &ControlView, receipt: &Receipt) -> Decision {
        match receipt.replay(self.fingerprint, view.record()) {
            Replay::Final => Decision::Replay(receipt.clone()),
            Replay::Resume => Decision::Resume(receipt.clone()),
            Replay::Historical => match view {
                // Whether that drain goes on can't be told from a record that can't be read.
                ControlView::UnknownUnavailable { detail, reason, .. } => {
                    Decision::Refuse(self.state_unavailable(*detail, reason))
                }
                ControlView::NoRecord { .. } | ControlView::Record(_) => {
                    Decision::Historical(receipt.clone())
                }
            },
            Replay::Conflict => Decision::Refuse(ControlRefusal::new(
                ControlCode::CommandConflict,
                None,
                format!(
                    "command {} of operation {} on {} was used before for another request ({}); \
                     nothing changed, send this one under a new command id",
                    receipt.command, receipt.operation, receipt.namespace, receipt.kind
                ),
            )),
        }
    }

    fn unavailable(
        &self,
        detail: Detail,
        reason: &str,
        marker: Option<&FenceRecord>,
        row_revision: Revision,
    ) -> Result<Decision, ControlRefusal> {
        if let (Detail::IncompleteTargetCreation, Some(marker)) = (detail, marker)
            && self.began_creating(marker)
        {
            return self.finish_creating(marker);
        }
        if let (CommandKind::AdoptFence, Detail::MetastoreBehindMarker, Some(marker)) =
            (self.command.kind(), detail, marker)
        {
            return self.adopt(marker, row_revision);
        }
        Err(self.state_unavailable(detail, reason))
    }

    fn began_creating(&self, marker: &FenceRecord) -> bool {
        self.command.kind() == CommandKind::CreateTargetQuarantined
            && marker.operation == self.command.operation
            && marker.last_command == self.command.command
            && marker.state == FenceState::TargetQuarantined
            && marker.revision == Revision(1)
    }

    /// Steps 5 to 15, for a state that is known.
    fn known(&self, view: &ControlView) -> Result<Decision, ControlRefusal> {
        let state = view.state();
        let record = view.record();
        // 5. Adoption has an order of its own.
        if self.command.kind() == CommandKind::AdoptFence {
            let record = record.ok_or_else(|| self.invalid(state, None, "there is no fence"))?;
            return self.adopt(record, record.revision);
        }
        if let Some(record) = record {
            // 6.
            self.must_own(record)?;
            if record.operation == self.command.operation {
                // 7 to 9.
                if let Some(decision) = self.own_record(view, record)? {
                    return Ok(decision);
                }
            }
        }
        // 10.
        if self.command.kind() == CommandKind::CreateTargetQuarantined
            && state != FenceState::Absent
        {
            return Err(ControlRefusal::precondition(
                Detail::NamespaceExists,
                format!(
                    "{} exists (state {state}{}) and a target must be made under a name that \
                     nothing uses; choose another name",
                    self.command.namespace,
                    if state == FenceState::TargetAborted {
                        ": an aborted target's name isn't freed"
                    } else {
                        ""
                    }
                ),
            ));
        }
        // 11.
        if self.command.kind().role() != Some(commandable_as(state)) {
            let why = "the command is for the other end of a move";
            return Err(self.invalid(state, Some(Detail::RoleMismatch), why));
        }
        // 12.
        if !is_legal(self.command.kind(), state) {
            return Err(self.invalid(state, None, "it is not legal from here"));
        }
        // 13.
        self.must_match_expectation(view)?;
        // 14.
        self.preconditions(record)?;
        // 15.
        Ok(self.transition(view.revision(), record))
    }

    /// What the owner's command means on the owner's record; `None` where the table decides.
    fn own_record(
        &self,
        view: &ControlView,
        record: &FenceRecord,
    ) -> Result<Option<Decision>, ControlRefusal> {
        let kind = self.command.kind();
        // 7. Before expectations: the wish is fulfilled, whatever the caller believed.
        if kind.goal() == Some(record.state) {
            let receipt = self.receipt(Outcome::AlreadyApplied, record, record.revision);
            let replaces = record.revision;
            return Ok(Some(Decision::Commit { replaces, next: None, receipt, drains: false }));
        }
        // 8. A second command of the owner joins the drain, but must know which one.
        if kind.draining() == Some(record.state) {
            self.must_match_expectation(view)?;
            self.must_drain_in_bounds()?;
            let receipt = self.receipt(Outcome::Draining, record, record.revision);
            let replaces = record.revision;
            return Ok(Some(Decision::Commit { replaces, next: None, receipt, drains: true }));
        }
        // 9.
        if record.state.is_operation_finished() {
            let why = "the operation has finished with this namespace";
            return Err(self.invalid(record.state, Some(Detail::OperationFinished), why));
        }
        Ok(None)
    }

    fn must_own(&self, record: &FenceRecord) -> Result<(), ControlRefusal> {
        if record.operation == self.command.operation || record.state.is_operation_finished() {
            return Ok(());
        }
        Err(self.owned(record))
    }

    fn owned(&self, record: &FenceRecord) -> ControlRefusal {
        let message = format!(
            "{} is owned by operation {} (state {}, revision {}), not by {}; that operation must \
             finish or be adopted",
            record.namespace,
            record.operation,
            record.state,
            record.revision,
            self.command.operation
        );
        ControlRefusal::new(ControlCode::OwnedByAnotherOperation, None, message)
    }

    fn must_match_expectation(&self, view: &ControlView) -> Result<(), ControlRefusal> {
        self.must_expect(view.state(), view.revision())
    }

    fn must_expect(&self, state: FenceState, revision: Revision) -> Result<(), ControlRefusal> {
        let command = self.command;
        if command.expected_state == state && command.expected_revision == revision {
            return Ok(());
        }
        let message = format!(
            "{} is in state {state} at revision {revision}, the command expected {} at {}; inspect \
             it and decide anew under a new command id",
            command.namespace, command.expected_state, command.expected_revision
        );
        Err(ControlRefusal::new(ControlCode::RevisionMismatch, None, message))
    }

    fn invalid(&self, state: FenceState, detail: Option<Detail>, why: &str) -> ControlRefusal {
        let commands = CommandKind::ALL.into_iter().filter(|kind| is_legal(*kind, state));
        let legal: Vec<&str> =
            commands.map(CommandKind::word).chain(questions(state).iter().copied()).collect();
        let legal = if legal.is_empty() { "none".to_owned() } else { legal.join(", ") };
        let whose = match detail {
            Some(Detail::OperationFinished) => "legal now for a new operation",
            Some(_) | None => "legal now",
        };
        let message = format!(
            "{} on {} in state {state}: {why}; {whose}: {legal}",
            self.command.kind(),
            self.command.namespace
        );
        ControlRefusal::new(ControlCode::InvalidTransition, detail, message)
    }

    fn state_unavailable(&self, detail: Detail, reason: &str) -> ControlRefusal {
        let message = format!(
            "the fence state of {} cannot be established ({}): {reason}; everything is closed \
             until an operator resolves it",
            self.command.namespace,
            detail.name()
        );
        ControlRefusal::new(ControlCode::StateUnavailable, Some(detail), message)
    }

    /// A receipt for a record that stays as it is, or for `record` as it will be.
    fn receipt(&self, outcome: Outcome, record: &FenceRecord, before: Revision) -> Receipt {
        Receipt {
            namespace: self.command.namespace.clone(),
            operation: self.command.operation,
            command: self.command.command,
            kind: self.command.kind(),
            fingerprint: self.fingerprint,
            outcome,
            revision_before: before,
            revision_after: record.revision,
            state_after: record.state,
            applied_at_ms: self.now_ms,
            instance: self.facts.written_by.instance.clone(),
            adoption: None,
        }
    }
}

/// As which end of a move a namespace in this state may be commanded.
///
/// A finished or unfenced namespace may become a source; a name that doesn't exist, a target.
const fn commandable_as(state: FenceState) -> Role {
    match state {
        FenceState::Unfenced
        | FenceState::SourceDraining
        | FenceState::SourceWriteFenced
        | FenceState::SourceReadDraining
        | FenceState::SourceReadFenced
        | FenceState::Released
        | FenceState::TargetWritable => Role::Source,
        FenceState::Absent
        | FenceState::TargetQuarantined
        | FenceState::TargetImportDraining
        | FenceState::TargetValidating
        | FenceState::TargetWriteFenced
        | FenceState::TargetAborted
        // Never reached with this state: unavailability is decided before roles are.
        | FenceState::UnknownUnavailable => Role::Target,
    }
}

/// What a target's owner may ask for beside commands, by the names that `ctl` has for it.
const fn questions(state: FenceState) -> &'static [&'static str] {
    use FenceState as S;
    match state {
        S::TargetQuarantined => &["import-capability"],
        S::TargetValidating | S::TargetWriteFenced => {
            &["import-capability --purpose validation", "validation-query"]
        }
        S::Unfenced
        | S::Absent
        | S::SourceDraining
        | S::SourceWriteFenced
        | S::SourceReadDraining
        | S::SourceReadFenced
        | S::Released
        | S::TargetImportDraining
        | S::TargetWritable
        | S::TargetAborted
        | S::UnknownUnavailable => &[],
    }
}

/// The transition table: from which states a command starts something.
const fn is_legal(kind: CommandKind, state: FenceState) -> bool {
    use FenceState as S;
    match kind {
        CommandKind::AcquireSourceWriteFence => {
            matches!(state, S::Unfenced | S::Released | S::TargetWritable)
        }
        CommandKind::SetSourceReadFence => matches!(state, S::SourceWriteFenced),
        CommandKind::ClearSourceReadFence => {
            matches!(state, S::SourceReadDraining | S::SourceReadFenced)
        }
        CommandKind::ReleaseSourceWriteFence => {
            matches!(state, S::SourceDraining | S::SourceWriteFenced)
        }
        CommandKind::CreateTargetQuarantined => matches!(state, S::Absent),
        CommandKind::SealTargetImport => matches!(state, S::TargetQuarantined),
        CommandKind::RecordTargetValidation | CommandKind::PublishTargetReadableWriteFenced => {
            matches!(state, S::TargetValidating)
        }
        CommandKind::EnableTargetWrites => matches!(state, S::TargetWriteFenced),
        CommandKind::AbortQuarantinedTarget => matches!(
            state,
            S::TargetQuarantined
                | S::TargetImportDraining
                | S::TargetValidating
                | S::TargetWriteFenced
        ),
        CommandKind::AdoptFence => state.is_durable() && !state.is_operation_finished(),
    }
}
