//! Every cell of both matrices of the contract, and the order of the checks around them.

use super::*;
use crate::fence::command::Command;
use crate::fence::record::{InFlight, OnDeadline, ValidationResult};
use crate::fence::sample::{self, NOW_MS, facts, operation, record, view};

const OWN_COLUMNS: [CommandKind; 10] = [
    CommandKind::AcquireSourceWriteFence,
    CommandKind::SetSourceReadFence,
    CommandKind::ClearSourceReadFence,
    CommandKind::ReleaseSourceWriteFence,
    CommandKind::CreateTargetQuarantined,
    CommandKind::SealTargetImport,
    CommandKind::RecordTargetValidation,
    CommandKind::PublishTargetReadableWriteFenced,
    CommandKind::EnableTargetWrites,
    CommandKind::AbortQuarantinedTarget,
];

/// The owner's matrix, as the contract has it.
const OWNER: &str = "
| UNFENCED | D | INV | INV | INV | EX | INV/r | INV/r | INV/r | INV/r | INV/r |
| ABSENT | INV/r | INV/r | INV/r | INV/r | A | INV | INV | INV | INV | INV |
| SOURCE_DRAINING | J | INV | INV | A | EX | INV/r | INV/r | INV/r | INV/r | INV/r |
| SOURCE_WRITE_FENCED | AA | D | AA | A | EX | INV/r | INV/r | INV/r | INV/r | INV/r |
| SOURCE_READ_DRAINING | INV | J | A | INV | EX | INV/r | INV/r | INV/r | INV/r | INV/r |
| SOURCE_READ_FENCED | INV | AA | A | INV | EX | INV/r | INV/r | INV/r | INV/r | INV/r |
| RELEASED | INV/f | INV/f | INV/f | AA | INV/f | INV/f | INV/f | INV/f | INV/f | INV/f |
| TARGET_QUARANTINED | INV/r | INV/r | INV/r | INV/r | AA | D | INV | INV | INV | A |
| TARGET_IMPORT_DRAINING | INV/r | INV/r | INV/r | INV/r | EX | J | INV | INV | INV | A |
| TARGET_VALIDATING | INV/r | INV/r | INV/r | INV/r | EX | AA | A | A (needs validation) | INV | A |
| TARGET_WRITE_FENCED | INV/r | INV/r | INV/r | INV/r | EX | INV | INV | AA | A | A |
| TARGET_WRITABLE | INV/f | INV/f | INV/f | INV/f | INV/f | INV/f | INV/f | INV/f | AA | INV/f |
| TARGET_ABORTED | INV/f | INV/f | INV/f | INV/f | INV/f | INV/f | INV/f | INV/f | INV/f | AA |
";

/// Another operation on finished records: Acq, other source commands, Create, other target ones.
const OTHER_FINISHED: &str = "
| RELEASED, TARGET_WRITABLE | D (new move) | INV | EX | INV/r |
| TARGET_ABORTED | INV/r | INV/r | EX | INV |
";

fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table.lines().filter(|line| line.starts_with('|')).map(cells)
}

fn first_word(cell: &str) -> &str {
    cell.split([' ', ',']).next().unwrap()
}

fn decide_fresh(view: &ControlView, command: &Command) -> Decision {
    decide(NOW_MS, view, command, None, &facts())
}

/// The cell of the contract's table that a decision stands for.
fn cell_of(decision: &Decision) -> String {
    match decision {
        Decision::Commit { next, receipt, drains, .. } => {
            match (next.is_some(), receipt.outcome, drains) {
                (true, Outcome::Applied, false) => "A",
                (true, Outcome::Draining, true) => "D",
                (false, Outcome::AlreadyApplied, false) => "AA",
                (false, Outcome::Draining, true) => "J",
                other => panic!("no cell is called {other:?}"),
            }
        }
        .to_owned(),
        Decision::Refuse(refusal) => match (refusal.code, refusal.detail) {
            (ControlCode::InvalidTransition, None) => "INV".to_owned(),
            (ControlCode::InvalidTransition, Some(Detail::RoleMismatch)) => "INV/r".to_owned(),
            (ControlCode::InvalidTransition, Some(Detail::OperationFinished)) => "INV/f".to_owned(),
            (ControlCode::OwnedByAnotherOperation, None) => "OWN".to_owned(),
            (ControlCode::PreconditionFailed, Some(Detail::NamespaceExists)) => "EX".to_owned(),
            (code, detail) => format!("{} {detail:?}", code.name()),
        },
        Decision::Replay(_) | Decision::Resume(_) | Decision::Historical(_) => "replay".to_owned(),
    }
}

/// What must hold of every commit, whichever cell it is from.
fn assert_sound(view: &ControlView, command: &Command, decision: &Decision) {
    let Decision::Commit { replaces, next, receipt, .. } = decision else { return };
    assert_eq!(*replaces, view.revision());
    assert_eq!(receipt.revision_before, view.revision());
    assert_eq!(receipt.fingerprint, Fingerprint::of(command));
    assert_eq!(receipt.key(), command.key());
    match next {
        Some(next) => {
            next.check().unwrap();
            assert_eq!(next.revision, view.revision().next());
            assert_eq!(receipt.revision_after, next.revision);
            assert_eq!(receipt.state_after, next.state);
            assert_eq!(next.operation, command.operation);
            assert_eq!(next.last_command, command.command);
            assert_eq!(next.last_transition_at_ms, NOW_MS);
        }
        None => assert_eq!(receipt.revision_after, view.revision()),
    }
}

#[test]
fn every_cell_of_the_owners_matrix() {
    let mut seen = 0;
    for row in rows(OWNER) {
        let state = FenceState::parse(first_word(row[0])).unwrap();
        for (kind, expected) in OWN_COLUMNS.into_iter().zip(&row[1..]) {
            let view = view(state);
            let command = sample::command(kind, &view, 1, 10);
            let decision = decide_fresh(&view, &command);
            assert_eq!(cell_of(&decision), first_word(expected), "{kind} in {state}");
            assert_sound(&view, &command, &decision);
            seen += 1;
        }
    }
    assert_eq!(seen, 13 * 10);
}

#[test]
fn every_cell_of_another_operations_matrix() {
    let mut seen = 0;
    for row in rows(OTHER_FINISHED) {
        for name in row[0].split(", ") {
            let state = FenceState::parse(name).unwrap();
            for kind in OWN_COLUMNS {
                let column = match (kind, kind.role()) {
                    (CommandKind::AcquireSourceWriteFence, _) => 1,
                    (_, Some(Role::Source)) => 2,
                    (CommandKind::CreateTargetQuarantined, _) => 3,
                    _ => 4,
                };
                let view = view(state);
                let command = sample::command(kind, &view, 2, 10);
                let decision = decide_fresh(&view, &command);
                assert_eq!(cell_of(&decision), first_word(row[column]), "{kind} in {state}");
                assert_sound(&view, &command, &decision);
                seen += 1;
            }
        }
    }
    for state in FenceState::ALL.into_iter().filter(|state| state.is_durable()) {
        if state.is_operation_finished() {
            continue;
        }
        for kind in OWN_COLUMNS {
            let view = view(state);
            let decision = decide_fresh(&view, &sample::command(kind, &view, 2, 10));
            assert_eq!(cell_of(&decision), "OWN", "{kind} in {state}");
            seen += 1;
        }
    }
    assert_eq!(seen, 11 * 10);
}

#[test]
fn every_durable_state_has_a_row() {
    let named: Vec<_> =
        rows(OWNER).map(|row| FenceState::parse(first_word(row[0])).unwrap()).collect();
    let missing: Vec<_> = FenceState::ALL.into_iter().filter(|s| !named.contains(s)).collect();
    assert_eq!(missing, [FenceState::UnknownUnavailable]);
}

fn commit_parts(decision: Decision) -> (Option<FenceRecord>, Receipt) {
    let Decision::Commit { next, receipt, .. } = decision else {
        panic!("not a commit: {decision:?}");
    };
    (next.map(|next| *next), receipt)
}

fn refusal(decision: Decision) -> (ControlCode, Option<Detail>) {
    let Decision::Refuse(refusal) = decision else { panic!("not refused: {decision:?}") };
    assert!(!refusal.message.is_empty());
    (refusal.code, refusal.detail)
}

#[test]
fn a_clean_acquire_goes_from_0_over_1_to_2() {
    let before = view(FenceState::Unfenced);
    let command = sample::command(CommandKind::AcquireSourceWriteFence, &before, 1, 10);
    let (next, receipt) = commit_parts(decide_fresh(&before, &command));
    let draining = next.unwrap();
    assert_eq!((draining.state, draining.revision.0), (FenceState::SourceDraining, 1));
    assert_eq!(draining.drain_policy, Some(sample::policy()));
    let end = DrainEnd::Writes(sample::proof(&sample::namespace()));
    let (fenced, last) =
        complete_drain(NOW_MS + 5, &draining, &receipt, end, &sample::written_by()).unwrap();
    assert_eq!((fenced.state, fenced.revision.0), (FenceState::SourceWriteFenced, 2));
    assert_eq!((last.revision_before.0, last.revision_after.0), (0, 2));
    assert_eq!((last.outcome, last.key()), (Outcome::Applied, receipt.key()));
    assert_eq!(fenced.frozen_boundary, Some(sample::boundary()));
    assert_eq!((fenced.drain_policy, fenced.drain_started_at_ms), (None, None));
}

#[test]
fn a_new_operation_keeps_the_counter_and_nothing_else() {
    let mut old = record(FenceState::TargetWritable);
    old.adoptions = vec![adoption_of(&old)];
    let before = ControlView::Record(Box::new(old));
    let command = sample::command(CommandKind::AcquireSourceWriteFence, &before, 2, 10);
    let (next, _) = commit_parts(decide_fresh(&before, &command));
    let next = next.unwrap();
    assert_eq!((next.revision.0, next.created_at_ms), (6, NOW_MS));
    assert_eq!((next.role, next.target_incarnation), (Role::Source, None));
    assert_eq!((next.evidence, next.validation, next.adoptions.len()), (None, None, 0));
}

fn adoption_of(record: &FenceRecord) -> crate::fence::record::Adoption {
    crate::fence::record::Adoption {
        previous_operation: operation(9),
        new_operation: record.operation,
        command: sample::command_id(80),
        approvers: ["ada".to_owned(), "grace".to_owned()],
        incident_ref: "INC-1".to_owned(),
        reason: "lost".to_owned(),
        at_ms: NOW_MS,
        revision: record.revision,
    }
}

#[test]
fn a_final_receipt_is_replayed_whatever_the_record_is_now() {
    let first = record(FenceState::SourceDraining);
    let view_then = ControlView::Record(Box::new(first.clone()));
    let command = sample::command(CommandKind::ReleaseSourceWriteFence, &view_then, 1, 10);
    let stored = sample::receipt(&command, Outcome::Applied, &first);
    let mut taken = record(FenceState::TargetQuarantined);
    taken.operation = operation(2);
    let unknown = unavailable(Detail::CorruptRecord, None, 0);
    for now in [ControlView::Record(Box::new(taken)), view(FenceState::Unfenced), unknown] {
        let decision = decide(NOW_MS, &now, &command, Some(&stored), &facts());
        assert_eq!(decision, Decision::Replay(stored.clone()), "in {}", now.state());
    }
}

#[test]
fn a_drain_is_resumed_at_exactly_its_revision_only() {
    let draining = record(FenceState::SourceDraining);
    let same = ControlView::Record(Box::new(draining.clone()));
    let command = sample::command(CommandKind::AcquireSourceWriteFence, &same, 1, 10);
    let stored = sample::receipt(&command, Outcome::Draining, &draining);
    let ask = |view: &ControlView| decide(NOW_MS, view, &command, Some(&stored), &facts());
    assert_eq!(ask(&same), Decision::Resume(stored.clone()));
    let mut later = draining.clone();
    later.revision = later.revision.next();
    let history = Decision::Historical(stored.clone());
    assert_eq!(ask(&ControlView::Record(Box::new(later))), history);
    for state in [FenceState::Released, FenceState::SourceWriteFenced] {
        assert_eq!(ask(&view(state)), history, "in {state}");
    }
    let unknown = unavailable(Detail::CorruptRecord, None, 0);
    assert_eq!(refusal(ask(&unknown)).0, ControlCode::StateUnavailable);
}

#[test]
fn a_reused_id_is_a_conflict_and_replay_precedes_the_owner() {
    let mut theirs = record(FenceState::SourceWriteFenced);
    theirs.operation = operation(2);
    let now = ControlView::Record(Box::new(theirs.clone()));
    let mut command = sample::command(CommandKind::AcquireSourceWriteFence, &now, 1, 10);
    let stored = sample::receipt(&command, Outcome::Applied, &theirs);
    let decision = decide(NOW_MS, &now, &command, Some(&stored), &facts());
    assert_eq!(decision, Decision::Replay(stored.clone()));
    command.expected_revision = Revision(77);
    let decision = decide(NOW_MS, &now, &command, Some(&stored), &facts());
    assert_eq!(refusal(decision), (ControlCode::CommandConflict, None));
}

#[test]
fn an_unknown_commit_lets_only_its_own_command_through() {
    let now = view(FenceState::SourceWriteFenced);
    let mine = sample::command(CommandKind::ReleaseSourceWriteFence, &now, 1, 10);
    let stored = sample::receipt(&mine, Outcome::Applied, &record(FenceState::Released));
    let mut facts = facts();
    facts.indeterminate =
        Some(CommandKey { operation: operation(1), command: sample::command_id(11) });
    let expected = (ControlCode::CommitIndeterminate, Some(Detail::IndeterminateCommit));
    assert_eq!(refusal(decide(NOW_MS, &now, &mine, Some(&stored), &facts)), expected);
    assert_eq!(refusal(decide(NOW_MS, &now, &mine, None, &facts)), expected);
    facts.indeterminate = Some(mine.key());
    assert_eq!(cell_of(&decide(NOW_MS, &now, &mine, None, &facts)), "A");
}

#[test]
fn expectations_are_checked_when_acting_and_joining_but_not_when_already_applied() {
    for (state, kind, expected) in [
        (FenceState::SourceWriteFenced, CommandKind::ReleaseSourceWriteFence, "mismatch"),
        (FenceState::SourceDraining, CommandKind::AcquireSourceWriteFence, "mismatch"),
        (FenceState::SourceWriteFenced, CommandKind::AcquireSourceWriteFence, "AA"),
    ] {
        let now = view(state);
        let good = sample::command(kind, &now, 1, 10);
        for command in [
            Command { expected_revision: Revision(4), ..good.clone() },
            Command { expected_state: FenceState::Unfenced, ..good },
        ] {
            let decision = decide_fresh(&now, &command);
            if expected == "mismatch" {
                assert_eq!(refusal(decision), (ControlCode::RevisionMismatch, None), "{kind}");
            } else {
                assert_eq!(cell_of(&decision), expected);
            }
        }
    }
}

#[test]
fn already_applied_comes_before_preconditions() {
    let now = view(FenceState::SourceWriteFenced);
    let command = sample::command(CommandKind::AcquireSourceWriteFence, &now, 1, 10);
    let facts = Facts { live_identity: None, shared_schema: true, ..facts() };
    assert_eq!(cell_of(&decide(NOW_MS, &now, &command, None, &facts)), "AA");
}

#[test]
fn the_transition_table_comes_before_expectations_and_these_before_preconditions() {
    let now = view(FenceState::SourceReadFenced);
    let mut command = sample::command(CommandKind::ReleaseSourceWriteFence, &now, 1, 10);
    command.expected_revision = Revision(1);
    assert_eq!(cell_of(&decide_fresh(&now, &command)), "INV");
    let now = view(FenceState::Unfenced);
    let mut command = sample::command(CommandKind::AcquireSourceWriteFence, &now, 1, 10);
    command.expected_revision = Revision(1);
    let facts = Facts { live_identity: None, ..facts() };
    let decision = decide(NOW_MS, &now, &command, None, &facts);
    assert_eq!(refusal(decision).0, ControlCode::RevisionMismatch);
}

fn precondition(kind: CommandKind, state: FenceState, facts: &Facts, args: Arguments) -> Detail {
    let now = view(state);
    let command = Command { arguments: args, ..sample::command(kind, &now, 1, 10) };
    let (code, detail) = refusal(decide(NOW_MS, &now, &command, None, facts));
    assert_eq!(code, ControlCode::PreconditionFailed);
    detail.unwrap()
}

#[test]
fn acquire_needs_the_named_database_and_no_shared_schema() {
    let kind = CommandKind::AcquireSourceWriteFence;
    let args = sample::arguments(kind);
    let ask = |facts: &Facts| precondition(kind, FenceState::Unfenced, facts, args.clone());
    let live = |edit: fn(&mut Identity)| {
        let mut identity = sample::identity();
        edit(&mut identity);
        Facts { live_identity: Some(identity), ..facts() }
    };
    for facts in [
        Facts { live_identity: None, ..facts() },
        live(|live| live.engine_id.push('0')),
        live(|live| live.database_id.push('0')),
        live(|live| live.timeline = Some(2)),
    ] {
        assert_eq!(ask(&facts), Detail::NamespaceIdentityMismatch);
    }
    let both = Facts { live_identity: None, shared_schema: true, ..facts() };
    assert_eq!(ask(&both), Detail::SharedSchemaUnsupported);
}

#[test]
fn a_timeline_that_is_not_named_is_taken_from_the_engine() {
    let now = view(FenceState::Unfenced);
    let mut command = sample::command(CommandKind::AcquireSourceWriteFence, &now, 1, 10);
    let identity = Identity { timeline: None, ..sample::identity() };
    command.arguments = Arguments::AcquireSourceWriteFence { identity, drain_policy: None };
    let (next, _) = commit_parts(decide_fresh(&now, &command));
    assert_eq!(next.unwrap().identity, Some(sample::identity()));
}

#[test]
fn drain_policies_are_bounded_and_the_commands_own_wins() {
    let kind = CommandKind::SetSourceReadFence;
    let with = |policy| Arguments::SetSourceReadFence { drain_policy: Some(policy) };
    let own = DrainPolicy { deadline_ms: 1, in_flight: Some(InFlight::Refuse), ..sample::policy() };
    for bad in [
        DrainPolicy { deadline_ms: crate::base::limits::DRAIN_DEADLINE_MAX_MS + 1, ..own },
        DrainPolicy { hold_ms: Some(crate::base::limits::HOLD_MAX_MS + 1), ..own },
    ] {
        let detail = precondition(kind, FenceState::SourceWriteFenced, &facts(), with(bad));
        assert_eq!(detail, Detail::InvalidArgument);
    }
    let now = view(FenceState::SourceWriteFenced);
    let command = Command { arguments: with(own), ..sample::command(kind, &now, 1, 10) };
    let (next, _) = commit_parts(decide_fresh(&now, &command));
    assert_eq!(next.unwrap().drain_policy, Some(own));
}

#[test]
fn a_target_starts_empty_under_an_unused_name() {
    let kind = CommandKind::CreateTargetQuarantined;
    let with = |owner: Option<&str>, template: Option<&str>| Arguments::CreateTargetQuarantined {
        owner: owner.map(str::to_owned),
        encoding: None,
        locale: None,
        template: template.map(str::to_owned),
    };
    let ask = |facts: &Facts, args| precondition(kind, FenceState::Absent, facts, args);
    let used = Facts { name_in_use: true, ..facts() };
    let both = Facts { shared_schema: true, ..used.clone() };
    assert_eq!(ask(&both, with(None, Some("app"))), Detail::RestoreNotAllowed);
    assert_eq!(ask(&both, with(None, Some("template0"))), Detail::SharedSchemaUnsupported);
    assert_eq!(ask(&used, with(Some(""), None)), Detail::NamespaceExists);
    assert_eq!(ask(&facts(), with(Some(""), None)), Detail::InvalidArgument);
}

#[test]
fn publishing_needs_the_owners_own_latest_ok() {
    let kind = CommandKind::PublishTargetReadableWriteFenced;
    let sound = record(FenceState::TargetValidating);
    let ok = sound.validation.clone().unwrap();
    let mut other = ok.clone();
    other.operation = operation(2);
    let mut failed = ok;
    failed.result = ValidationResult::Failed;
    for validation in [None, Some(other), Some(failed)] {
        let now = ControlView::Record(Box::new(FenceRecord { validation, ..sound.clone() }));
        let decision = decide_fresh(&now, &sample::command(kind, &now, 1, 10));
        let expected = (ControlCode::PreconditionFailed, Some(Detail::ValidationReceiptRequired));
        assert_eq!(refusal(decision), expected);
    }
}

#[test]
fn a_validation_is_kept_with_the_servers_own_snapshot_and_a_bounded_summary() {
    let kind = CommandKind::RecordTargetValidation;
    let with = |bytes: usize| Arguments::RecordTargetValidation {
        result: ValidationResult::Failed,
        summary: Some("x".repeat(bytes)),
    };
    let detail = precondition(kind, FenceState::TargetValidating, &facts(), with(4097));
    assert_eq!(detail, Detail::InvalidArgument);
    let now = view(FenceState::TargetValidating);
    let command = Command { arguments: with(4096), ..sample::command(kind, &now, 1, 10) };
    let next = commit_parts(decide_fresh(&now, &command)).0.unwrap();
    let validation = next.validation.unwrap();
    assert_eq!(validation.snapshot, Some(sample::boundary()));
    assert_eq!(validation.result, ValidationResult::Failed);
    assert_eq!(next.revision, Revision(6));
}

fn unavailable(detail: Detail, marker: Option<FenceRecord>, row: u64) -> ControlView {
    let marker = marker.map(Box::new);
    let reason = "test".to_owned();
    ControlView::UnknownUnavailable { detail, reason, marker, row_revision: Revision(row) }
}

#[test]
fn an_unavailable_state_refuses_every_command() {
    for detail in [
        Detail::CorruptRecord,
        Detail::UnsupportedFormatVersion,
        Detail::IncompleteTargetCreation,
        Detail::MetastoreBehindMarker,
    ] {
        for kind in CommandKind::ALL {
            let adoptable =
                kind == CommandKind::AdoptFence && detail == Detail::MetastoreBehindMarker;
            let marker = (!adoptable).then(|| record(FenceState::SourceWriteFenced));
            let now = unavailable(detail, marker, 0);
            let decision = decide_fresh(&now, &sample::command(kind, &now, 2, 10));
            let expected = (ControlCode::StateUnavailable, Some(detail));
            assert_eq!(refusal(decision), expected, "{kind} with {}", detail.name());
        }
    }
}

#[test]
fn an_incomplete_creation_is_completed_by_its_own_command_only() {
    let absent = view(FenceState::Absent);
    let command = sample::command(CommandKind::CreateTargetQuarantined, &absent, 1, 10);
    let mut marker = record(FenceState::TargetQuarantined);
    marker.revision = Revision(1);
    marker.last_command = command.command;
    let now = unavailable(Detail::IncompleteTargetCreation, Some(marker.clone()), 0);
    let (next, receipt) = commit_parts(decide_fresh(&now, &command));
    let next = next.unwrap();
    assert_eq!(next.target_incarnation, marker.target_incarnation);
    assert_eq!((next.revision.0, receipt.revision_before.0), (1, 0));
    let other_command = Command { command: sample::command_id(11), ..command.clone() };
    let other_operation = Command { operation: operation(2), ..command };
    for command in [other_command, other_operation] {
        assert_eq!(refusal(decide_fresh(&now, &command)).0, ControlCode::StateUnavailable);
    }
}

#[test]
fn adoption_moves_the_owner_and_nothing_else() {
    for state in FenceState::ALL.into_iter().filter(|state| state.is_durable()) {
        let now = view(state);
        let command = sample::command(CommandKind::AdoptFence, &now, 2, 10);
        let decision = decide_fresh(&now, &command);
        if state.is_operation_finished() {
            let expected = (ControlCode::InvalidTransition, Some(Detail::OperationFinished));
            assert_eq!(refusal(decision), expected);
            continue;
        }
        assert_sound(&now, &command, &decision);
        let (next, receipt) = commit_parts(decision);
        let next = next.unwrap();
        assert_eq!(receipt.adoption.as_ref(), next.adoptions.last());
        let before = record(state);
        let expected = FenceRecord {
            operation: operation(2),
            revision: before.revision.next(),
            last_command: command.command,
            last_transition_at_ms: NOW_MS,
            adoptions: next.adoptions.clone(),
            ..before
        };
        assert_eq!(next, expected);
    }
}

type Spoil = fn(&mut Command, &mut Facts);

#[test]
fn adoption_checks_in_its_own_order() {
    // Each step spoils one more thing, from the last check to the first.
    let steps: [(Spoil, ControlCode, Option<Detail>); 7] = [
        (
            |_, facts| facts.namespace_configured = false,
            ControlCode::PreconditionFailed,
            Some(Detail::NamespaceConfigMissing),
        ),
        (
            |command, _| edit_plea(command, |_, approvers| approvers[1] = " ada ".to_owned()),
            ControlCode::PreconditionFailed,
            Some(Detail::AdoptionNotAuthorised),
        ),
        (
            |command, facts| {
                edit_plea(command, |_, approvers| approvers[1] = "grace".to_owned());
                facts.adoption_key_matched = false;
            },
            ControlCode::PreconditionFailed,
            Some(Detail::AdoptionNotAuthorised),
        ),
        (|command, _| command.expected_revision = Revision(1), ControlCode::RevisionMismatch, None),
        (|command, _| command.operation = operation(1), ControlCode::InvalidTransition, None),
        (
            |command, _| edit_plea(command, |current, _| *current = operation(3)),
            ControlCode::OwnedByAnotherOperation,
            None,
        ),
        (|_, _| (), ControlCode::OwnedByAnotherOperation, None),
    ];
    let now = view(FenceState::SourceWriteFenced);
    let mut command = sample::command(CommandKind::AdoptFence, &now, 2, 10);
    let mut facts = facts();
    for (spoil, code, detail) in steps {
        spoil(&mut command, &mut facts);
        let decision = decide(NOW_MS, &now, &command, None, &facts);
        assert_eq!(refusal(decision), (code, detail), "{command:?}");
    }
    let none = view(FenceState::Unfenced);
    let decision = decide(NOW_MS, &none, &command, None, &facts);
    assert_eq!(refusal(decision), (ControlCode::InvalidTransition, None));
}

fn edit_plea(
    command: &mut Command,
    edit: impl FnOnce(&mut crate::base::ids::OperationId, &mut Vec<String>),
) {
    if let Arguments::AdoptFence { current_operation, approvers, .. } = &mut command.arguments {
        edit(current_operation, approvers);
    }
}

#[test]
fn adoption_needs_two_different_people_an_incident_and_a_reason() {
    let now = view(FenceState::SourceWriteFenced);
    for (approvers, incident_ref, reason) in [
        (vec!["ada"], "INC", "why"),
        (vec!["ada", "grace", "joan"], "INC", "why"),
        (vec!["ada", "ada"], "INC", "why"),
        (vec!["ada", "  "], "INC", "why"),
        (vec!["ada", "grace"], " ", "why"),
        (vec!["ada", "grace"], "INC", ""),
    ] {
        let mut command = sample::command(CommandKind::AdoptFence, &now, 2, 10);
        command.arguments = Arguments::AdoptFence {
            current_operation: operation(1),
            approvers: approvers.into_iter().map(str::to_owned).collect(),
            incident_ref: incident_ref.to_owned(),
            reason: reason.to_owned(),
        };
        let expected = (ControlCode::PreconditionFailed, Some(Detail::AdoptionNotAuthorised));
        assert_eq!(refusal(decide_fresh(&now, &command)), expected);
    }
}

#[test]
fn a_rolled_back_store_is_adopted_from_the_marker() {
    let marker = record(FenceState::SourceWriteFenced);
    for row in [0, 3] {
        let now = unavailable(Detail::MetastoreBehindMarker, Some(marker.clone()), row);
        let mut command = sample::command(CommandKind::AdoptFence, &now, 2, 10);
        assert_eq!(refusal(decide_fresh(&now, &command)).0, ControlCode::RevisionMismatch);
        command.expected_state = marker.state;
        command.expected_revision = marker.revision;
        let decision = decide_fresh(&now, &command);
        let Decision::Commit { replaces, next: Some(next), .. } = decision else {
            panic!("{decision:?}");
        };
        assert_eq!(replaces, Revision(row));
        assert_eq!((next.revision.0, next.state), (6, marker.state));
        assert_eq!(next.operation, operation(2));
    }
}

#[test]
fn a_replayed_adoption_needs_no_key() {
    let now = view(FenceState::SourceWriteFenced);
    let command = sample::command(CommandKind::AdoptFence, &now, 2, 10);
    let stored = commit_parts(decide_fresh(&now, &command)).1;
    let facts = Facts { adoption_key_matched: false, ..facts() };
    let decision = decide(NOW_MS, &now, &command, Some(&stored), &facts);
    assert_eq!(decision, Decision::Replay(stored));
}

#[test]
fn only_the_right_proof_of_the_running_drain_completes_it() {
    let ns = sample::namespace();
    let other = crate::base::ids::Namespace::parse("old/other").unwrap();
    let ends = |ns: &crate::base::ids::Namespace| {
        [
            DrainEnd::Writes(sample::proof(ns)),
            DrainEnd::Reads(sample::drained(ns)),
            DrainEnd::Import(sample::proof(ns)),
        ]
    };
    for (kind, good) in [
        (CommandKind::AcquireSourceWriteFence, 0),
        (CommandKind::SetSourceReadFence, 1),
        (CommandKind::SealTargetImport, 2),
    ] {
        let draining = record(kind.draining().unwrap());
        let now = ControlView::Record(Box::new(draining.clone()));
        let command = sample::command(kind, &now, 1, 10);
        let receipt = sample::receipt(&command, Outcome::Draining, &draining);
        let by = sample::written_by();
        for (index, end) in ends(&ns).into_iter().enumerate() {
            let done = complete_drain(NOW_MS, &draining, &receipt, end, &by);
            assert_eq!(done.is_ok(), index == good, "{kind} with end {index}: {done:?}");
            if let Ok((next, receipt)) = done {
                assert_eq!(Some(next.state), kind.goal());
                assert_eq!(receipt.state_after, next.state);
            }
        }
        let end = ends(&other).into_iter().nth(good).unwrap();
        let done = complete_drain(NOW_MS, &draining, &receipt, end, &by);
        assert!(matches!(done, Err(CompletionError::WrongProof { .. })), "{done:?}");
        let mut moved = draining.clone();
        moved.revision = moved.revision.next();
        let end = ends(&ns).into_iter().nth(good).unwrap();
        let done = complete_drain(NOW_MS, &moved, &receipt, end, &by);
        assert!(matches!(done, Err(CompletionError::Superseded { .. })), "{done:?}");
    }
}

#[test]
fn a_command_that_joins_a_drain_needs_a_policy_that_is_one() {
    for kind in [
        CommandKind::AcquireSourceWriteFence,
        CommandKind::SetSourceReadFence,
        CommandKind::SealTargetImport,
    ] {
        let draining = view(kind.draining().unwrap());
        let asks = |deadline_ms: u64| {
            let mut command = sample::command(kind, &draining, 1, 10);
            let (Arguments::AcquireSourceWriteFence { drain_policy, .. }
            | Arguments::SetSourceReadFence { drain_policy }
            | Arguments::SealTargetImport { drain_policy }) = &mut command.arguments
            else {
                panic!("{kind} doesn't drain");
            };
            *drain_policy = Some(DrainPolicy {
                deadline_ms,
                on_deadline: OnDeadline::Fail,
                in_flight: None,
                hold_ms: None,
            });
            decide_fresh(&draining, &command)
        };
        let most = crate::base::limits::DRAIN_DEADLINE_MAX_MS;
        assert!(matches!(asks(most), Decision::Commit { drains: true, .. }), "{kind}");
        let refused = asks(most + 1);
        let Decision::Refuse(refused) = refused else {
            panic!("{kind} joins with a drain of years: {refused:?}");
        };
        assert_eq!(refused.detail, Some(Detail::InvalidArgument), "{kind}");
    }
}

#[test]
fn a_proof_of_another_database_completes_nothing() {
    let acquired: [fn(&mut Identity); 3] = [
        |identity| identity.engine_id = "1".to_owned(),
        |identity| identity.timeline = Some(2),
        |identity| identity.database_id = "5".to_owned(),
    ];
    for differs in acquired {
        let mut draining = record(FenceState::SourceDraining);
        differs(draining.identity.as_mut().unwrap());
        let now = ControlView::Record(Box::new(draining.clone()));
        let command = sample::command(CommandKind::AcquireSourceWriteFence, &now, 1, 10);
        let receipt = sample::receipt(&command, Outcome::Draining, &draining);
        let end = DrainEnd::Writes(sample::proof(&sample::namespace()));
        let done = complete_drain(NOW_MS, &draining, &receipt, end, &sample::written_by());
        let Err(error @ CompletionError::OtherDatabase { .. }) = done else {
            panic!("{done:?}");
        };
        assert!(error.to_string().contains("another one now"), "{error}");
    }
}

#[test]
fn clearing_and_releasing_end_the_drain_and_forget_the_readers() {
    for (state, kind) in [
        (FenceState::SourceReadFenced, CommandKind::ClearSourceReadFence),
        (FenceState::SourceReadDraining, CommandKind::ClearSourceReadFence),
        (FenceState::SourceDraining, CommandKind::ReleaseSourceWriteFence),
        (FenceState::TargetImportDraining, CommandKind::AbortQuarantinedTarget),
    ] {
        let now = view(state);
        let next = commit_parts(decide_fresh(&now, &sample::command(kind, &now, 1, 10))).0.unwrap();
        assert_eq!((next.drain_policy, next.drain_started_at_ms), (None, None));
        assert_eq!(next.read_evidence, None);
    }
}
