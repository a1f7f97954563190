//! Sound records, commands and facts for tests of this crate. Not part of any build but tests.

use crate::base::ids::{CommandId, Generation, Namespace, OperationId, Revision};

use super::command::{Arguments, Command, CommandKind};
use super::proof::{BoundaryClaim, CensusClaim, DrainProof, DrainedClaim};
use super::receipt::{Fingerprint, Outcome, Receipt};
use super::record::{
    Boundary, BoundaryKind, Census, DrainPolicy, EngineLock, FenceRecord, Forced, ForcedKind,
    Identity, IncarnationId, LockMode, OnDeadline, ReadEvidence, Releases, Validation,
    ValidationResult, WrittenBy,
};
use super::state::{FenceState, Role};
use super::transition::{ControlView, Facts};

pub(crate) const NOW_MS: u64 = 1_750_000_000_000;

pub(crate) fn namespace() -> Namespace {
    Namespace::parse("old/app").unwrap()
}

pub(crate) fn operation(number: u8) -> OperationId {
    OperationId::parse(&format!("00000000-0000-4000-8000-0000000000{number:02x}")).unwrap()
}

pub(crate) fn command_id(number: u8) -> CommandId {
    CommandId::parse(&format!("00000000-0000-4000-9000-0000000000{number:02x}")).unwrap()
}

pub(crate) fn identity() -> Identity {
    Identity { engine_id: "7412".to_owned(), timeline: Some(1), database_id: "16384".to_owned() }
}

pub(crate) fn boundary() -> Boundary {
    Boundary {
        kind: BoundaryKind::Lsn,
        value: "0/16B3748".to_owned(),
        engine_id: "7412".to_owned(),
        timeline: Some(1),
        marker: true,
    }
}

pub(crate) fn policy() -> DrainPolicy {
    DrainPolicy {
        deadline_ms: 30_000,
        on_deadline: OnDeadline::Fail,
        in_flight: None,
        hold_ms: None,
    }
}

pub(crate) fn written_by() -> WrittenBy {
    WrittenBy { build: "0.1.0".to_owned(), instance: "fw-1".to_owned() }
}

pub(crate) fn drained(namespace: &Namespace) -> DrainedClaim {
    DrainedClaim {
        namespace: namespace.clone(),
        generation: Generation(7),
        releases: Releases { by_answer: 3, by_engine: 1 },
        forced: vec![Forced {
            kind: ForcedKind::Rollback,
            session: None,
            engine_pid: 4711,
            at_ms: NOW_MS,
            why: "idle in a transaction at the deadline".to_owned(),
        }],
    }
}

pub(crate) fn census(namespace: &Namespace) -> CensusClaim {
    let clear = Census {
        at_engine_clock: "2025-06-15T15:06:40.000Z".to_owned(),
        virtual_transactions: 2,
        waited_for: 1,
        ..Census::default()
    };
    CensusClaim {
        namespace: namespace.clone(),
        generation: Generation(7),
        identity: identity(),
        before: clear.clone(),
        after: clear,
        direct_sessions: vec!["psql, idle".to_owned()],
        engine_lock: EngineLock {
            mode: LockMode::Hold,
            outcome: "granted".to_owned(),
            tables: 4,
            gaps: vec!["sequences".to_owned()],
        },
        non_transactional_tables: Vec::new(),
    }
}

pub(crate) fn boundary_claim(namespace: &Namespace) -> BoundaryClaim {
    BoundaryClaim { namespace: namespace.clone(), generation: Generation(7), boundary: boundary() }
}

pub(crate) fn proof(ns: &Namespace) -> DrainProof {
    DrainProof::assemble(drained(ns), census(ns), boundary_claim(ns), NOW_MS).unwrap()
}

pub(crate) fn read_evidence() -> ReadEvidence {
    ReadEvidence {
        generation: Generation(8),
        releases: Releases { by_answer: 2, by_engine: 0 },
        forced: Vec::new(),
        proven_at_ms: NOW_MS,
    }
}

/// A sound record in a durable state, at revision 5, owned by `operation(1)`.
pub(crate) fn record(state: FenceState) -> FenceRecord {
    let role = state.role().expect("a durable state");
    let source = role == Role::Source;
    let proven = state.is_proven() == Some(true);
    let record = FenceRecord {
        namespace: namespace(),
        role,
        state,
        revision: Revision(5),
        operation: operation(1),
        identity: source.then(identity),
        target_incarnation: (!source).then(|| IncarnationId(uuid::Uuid::from_u128(77))),
        drain_policy: state.is_draining().then(policy),
        drain_started_at_ms: state.is_draining().then_some(NOW_MS),
        hold_ms: source.then_some(1500),
        frozen_boundary: (proven && source).then(boundary),
        evidence: proven.then(|| proof(&namespace()).into_evidence()),
        read_evidence: (state == FenceState::SourceReadFenced).then(read_evidence),
        validation: (state == FenceState::TargetValidating).then(|| Validation {
            operation: operation(1),
            command: command_id(90),
            result: ValidationResult::Ok,
            summary: Some("1200 rows compared".to_owned()),
            snapshot: Some(boundary()),
            recorded_at_ms: NOW_MS,
        }),
        created_at_ms: NOW_MS - 1000,
        last_transition_at_ms: NOW_MS - 500,
        last_command: command_id(91),
        written_by: written_by(),
        adoptions: Vec::new(),
    };
    record.check().unwrap();
    record
}

pub(crate) fn view(state: FenceState) -> ControlView {
    match state {
        FenceState::Unfenced => ControlView::NoRecord { exists: true },
        FenceState::Absent => ControlView::NoRecord { exists: false },
        FenceState::SourceDraining
        | FenceState::SourceWriteFenced
        | FenceState::SourceReadDraining
        | FenceState::SourceReadFenced
        | FenceState::Released
        | FenceState::TargetQuarantined
        | FenceState::TargetImportDraining
        | FenceState::TargetValidating
        | FenceState::TargetWriteFenced
        | FenceState::TargetWritable
        | FenceState::TargetAborted
        | FenceState::UnknownUnavailable => ControlView::Record(Box::new(record(state))),
    }
}

pub(crate) fn facts() -> Facts {
    Facts {
        written_by: written_by(),
        indeterminate: None,
        live_identity: Some(identity()),
        shared_schema: false,
        name_in_use: false,
        fresh_incarnation: IncarnationId(uuid::Uuid::from_u128(99)),
        snapshot: Some(boundary()),
        default_write_drain: policy(),
        default_read_drain: policy(),
        adoption_key_matched: true,
        namespace_configured: true,
        lock_gaps: Vec::new(),
    }
}

pub(crate) fn arguments(kind: CommandKind) -> Arguments {
    match kind {
        CommandKind::AcquireSourceWriteFence => {
            Arguments::AcquireSourceWriteFence { identity: identity(), drain_policy: None }
        }
        CommandKind::SetSourceReadFence => Arguments::SetSourceReadFence { drain_policy: None },
        CommandKind::ClearSourceReadFence => Arguments::ClearSourceReadFence,
        CommandKind::ReleaseSourceWriteFence => Arguments::ReleaseSourceWriteFence,
        CommandKind::CreateTargetQuarantined => Arguments::CreateTargetQuarantined {
            owner: None,
            encoding: None,
            locale: None,
            template: None,
        },
        CommandKind::SealTargetImport => Arguments::SealTargetImport { drain_policy: None },
        CommandKind::RecordTargetValidation => {
            Arguments::RecordTargetValidation { result: ValidationResult::Ok, summary: None }
        }
        CommandKind::PublishTargetReadableWriteFenced => {
            Arguments::PublishTargetReadableWriteFenced
        }
        CommandKind::EnableTargetWrites => Arguments::EnableTargetWrites,
        CommandKind::AbortQuarantinedTarget => Arguments::AbortQuarantinedTarget,
        CommandKind::AdoptFence => Arguments::AdoptFence {
            current_operation: operation(1),
            approvers: vec!["ada".to_owned(), "grace".to_owned()],
            incident_ref: "INC-7".to_owned(),
            reason: "the orchestrator is lost".to_owned(),
        },
    }
}

/// A command of `operation(by)` with id `command_id(id)` that expects what `view` shows.
pub(crate) fn command(kind: CommandKind, view: &ControlView, by: u8, id: u8) -> Command {
    Command {
        namespace: namespace(),
        operation: operation(by),
        command: command_id(id),
        expected_state: view.state(),
        expected_revision: view.revision(),
        arguments: arguments(kind),
    }
}

/// A receipt for `command` as if it had been answered with `outcome` on `record`.
pub(crate) fn receipt(command: &Command, outcome: Outcome, record: &FenceRecord) -> Receipt {
    Receipt {
        namespace: command.namespace.clone(),
        operation: command.operation,
        command: command.command,
        kind: command.kind(),
        fingerprint: Fingerprint::of(command),
        outcome,
        revision_before: Revision(record.revision.0 - 1),
        revision_after: record.revision,
        state_after: record.state,
        applied_at_ms: NOW_MS,
        instance: "fw-1".to_owned(),
        adoption: None,
    }
}
