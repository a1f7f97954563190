//! Targets against a scripted engine: creation with every way it can break, capabilities, seal,
//! validation, and the rest of a target's life.

use super::engine::CreateScript;
use super::*;
use crate::control::targets::{TargetError, ValidationQuery};
use crate::engine::ReadError;
use crate::fence::code::Denial;
use crate::fence::record::{Identity, LockMode, ValidationResult};
use crate::fence::verdict::Purpose;
use crate::sql::StatementClass;

pub(super) fn ask(command: u8, state: FenceState, revision: u64, arguments: Arguments) -> Command {
    Command {
        namespace: namespace(),
        operation: op(1),
        command: id(command),
        expected_state: state,
        expected_revision: Revision(revision),
        arguments,
    }
}

pub(super) fn create(command: u8) -> Command {
    let arguments = Arguments::CreateTargetQuarantined {
        owner: None,
        encoding: None,
        locale: None,
        template: None,
    };
    ask(command, FenceState::Absent, 0, arguments)
}

pub(super) fn seal(command: u8, deadline_ms: u64) -> Command {
    let drain_policy = Some(policy(deadline_ms, OnDeadline::Fail));
    ask(command, FenceState::TargetQuarantined, 1, Arguments::SealTargetImport { drain_policy })
}

pub(super) fn validated(command: u8, revision: u64, result: ValidationResult) -> Command {
    let arguments = Arguments::RecordTargetValidation { result, summary: Some("fine".into()) };
    ask(command, FenceState::TargetValidating, revision, arguments)
}

async fn rig() -> Rig {
    let rig = Rig::new().await;
    rig.engine.missing();
    rig
}

pub(super) async fn created() -> Rig {
    let rig = rig().await;
    let answer = rig.run(create(1)).await;
    assert_eq!(code(&answer), ControlCode::Applied, "{:?}", answer.message);
    rig
}

/// What a client of the proxy meets.
fn denial(rig: &Rig, class: StatementClass) -> Option<Denial> {
    match rig.seat(998, 998).begin(class, 0) {
        Ok((lease, _)) => {
            lease.answered();
            None
        }
        Err(refusal) => Some(refusal.denial),
    }
}

pub(super) fn importer(rig: &Rig) -> (Arc<Seat>, String) {
    let issued =
        rig.control.issue_capability(&namespace(), Purpose::Import, op(1), Revision(1)).unwrap();
    let secret = issued.secret().expose().to_owned();
    let capability = rig.gate().present(secret.as_bytes()).unwrap();
    (rig.seat(5, 55).bearing(capability), secret)
}

fn query(revision: u64) -> ValidationQuery {
    ValidationQuery {
        namespace: namespace(),
        operation: op(1),
        expected_revision: Revision(revision),
        expected_state: None,
        statements: vec!["select 1".to_owned()],
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, TargetError>) -> (ControlCode, Option<Detail>) {
    match answer.unwrap_err() {
        TargetError::Refused(refusal) => (refusal.code, refusal.detail),
        TargetError::Failed(words) => panic!("failed: {words}"),
    }
}

#[tokio::test]
async fn acceptance_17_a_target_is_closed_from_creation_to_publication() {
    let rig = rig().await;
    let made = rig.run(create(1)).await;
    assert_eq!((code(&made), revision_after(&made)), (ControlCode::Applied, 1));
    assert_eq!(state(&made), FenceState::TargetQuarantined);
    for class in [StatementClass::Read, StatementClass::Write, StatementClass::Lifecycle] {
        assert_eq!(denial(&rig, class), Some(Denial::TargetQuarantined));
    }
    let (seat, _) = importer(&rig);
    let (lease, _) = seat.begin(StatementClass::Write, 0).unwrap();
    lease.answered();

    let sealed = rig.run(seal(2, 60_000)).await;
    assert_eq!((code(&sealed), revision_after(&sealed)), (ControlCode::Applied, 3));
    assert_eq!(denial(&rig, StatementClass::Read), Some(Denial::TargetQuarantined));
    let refusal = seat.begin(StatementClass::Write, 0).unwrap_err();
    assert_eq!(refusal.denial, Denial::CapabilityRequired, "it can't be undone");
    let evidence = rig.inspect().await.sight.record.unwrap().evidence.unwrap();
    assert_eq!(evidence.engine_lock.mode, LockMode::Confirm);
    assert!(evidence.engine_lock.gaps.iter().any(|gap| gap.contains("not kept locked")));
    assert!(!rig.engine.is_locked());

    let publish = |command, revision| {
        let arguments = Arguments::PublishTargetReadableWriteFenced;
        ask(command, FenceState::TargetValidating, revision, arguments)
    };
    let early = rig.run(publish(3, 3)).await;
    assert_eq!(early.detail, Some(Detail::ValidationReceiptRequired));
    let bad = rig.run(validated(4, 3, ValidationResult::Failed)).await;
    assert_eq!(revision_after(&bad), 4);
    let early = rig.run(publish(5, 4)).await;
    assert_eq!(early.detail, Some(Detail::ValidationReceiptRequired));
    let good = rig.run(validated(6, 4, ValidationResult::Ok)).await;
    assert_eq!(revision_after(&good), 5);
    let snapshot = rig.inspect().await.sight.record.unwrap().validation.unwrap().snapshot;
    assert!(snapshot.is_some(), "the server's own");
    assert_eq!(denial(&rig, StatementClass::Read), Some(Denial::TargetQuarantined));

    let published = rig.run(publish(7, 5)).await;
    assert_eq!((code(&published), revision_after(&published)), (ControlCode::Applied, 6));
    assert_eq!(denial(&rig, StatementClass::Read), None);
    assert_eq!(denial(&rig, StatementClass::Write), Some(Denial::WriteFenced));

    // A transaction from before can't upgrade.
    let old = rig.seat(7, 77);
    let (mut reader, _) = old.begin(StatementClass::Read, 0).unwrap();
    reader.paused();
    let enable =
        |command| ask(command, FenceState::TargetWriteFenced, 6, Arguments::EnableTargetWrites);
    let enabled = rig.run(enable(8)).await;
    assert_eq!((code(&enabled), revision_after(&enabled)), (ControlCode::Applied, 7));
    assert!(rig.may_write());
    let stale = reader.extend(StatementClass::Write, true).unwrap_err();
    assert_eq!(stale.denial, Denial::StaleTransaction);
    reader.answered();
    assert!(rig.run(enable(8)).await.replayed);
    assert_eq!(code(&rig.run(enable(9)).await), ControlCode::AlreadyApplied);
    let undo = ask(10, FenceState::TargetWritable, 7, Arguments::AbortQuarantinedTarget);
    assert_eq!(rig.run(undo).await.detail, Some(Detail::OperationFinished), "irreversible");
    let after = rig.restarted();
    after.control.recover().await.unwrap();
    assert!(after.may_write());
}

#[tokio::test]
async fn a_name_in_use_is_refused_and_stays_as_it_was() {
    let taken = Rig::new().await;
    let answer = taken.run(create(1)).await;
    assert_eq!(answer.detail, Some(Detail::NamespaceExists));
    assert!(taken.may_write(), "untouched");
    let rig = rig().await;
    let seat = rig.seat(3, 33);
    let answer = rig.run(create(1)).await;
    assert_eq!(answer.detail, Some(Detail::NamespaceExists), "a session is there");
    drop(seat);
    rig.engine.next_creation(CreateScript::Exists);
    let answer = rig.run(create(2)).await;
    assert_eq!(answer.detail, Some(Detail::NamespaceExists), "made by somebody in between");
    assert!(rig.may_write(), "so it is theirs");
    assert!(rig.restarted().control.recover().await.unwrap().fences.is_empty());
}

#[tokio::test]
async fn an_engine_that_refuses_or_is_not_there_leaves_nothing_behind() {
    let rig = rig().await;
    for (script, code, detail) in [
        (
            CreateScript::Refused,
            AnswerCode::Control(ControlCode::PreconditionFailed),
            Some(Detail::InvalidArgument),
        ),
        (CreateScript::NotAsked, AnswerCode::Failed, None),
    ] {
        rig.engine.next_creation(script);
        let answer = rig.run(create(1)).await;
        assert_eq!((answer.code, answer.detail), (code, detail), "{:?}", answer.message);
        let recovered = rig.restarted().control.recover().await.unwrap();
        assert!(recovered.fences.is_empty(), "{script:?}");
    }
    rig.engine.unreachable(true);
    let answer = rig.run(create(1)).await;
    assert_eq!(answer.code, AnswerCode::Failed, "{:?}", answer.message);
    rig.engine.unreachable(false);
    assert_eq!(code(&rig.run(create(1)).await), ControlCode::Applied);
}

#[tokio::test]
async fn a_creation_of_which_nothing_is_known_stays_closed_until_its_replay() {
    for made in [true, false] {
        let rig = rig().await;
        rig.engine.next_creation(CreateScript::Unknown { made });
        let answer = rig.run(create(1)).await;
        assert_eq!(answer.code, AnswerCode::Failed);
        assert!(!rig.may_write(), "closed");
        let other = rig.run(create(2)).await;
        assert_eq!(other.detail, Some(Detail::IncompleteTargetCreation));
        assert!(!rig.may_write(), "still closed");
        let after = rig.restarted();
        let found = after.control.recover().await.unwrap();
        assert_eq!(found.unavailable[0].1, Detail::IncompleteTargetCreation);
        assert_eq!(denial(&after, StatementClass::Read), Some(Denial::StateUnavailable));
        let replay = after.run(create(1)).await;
        assert_eq!((code(&replay), revision_after(&replay)), (ControlCode::Applied, 1));
        assert_eq!(after.engine.count("create"), if made { 1 } else { 2 });
        assert_eq!(denial(&after, StatementClass::Read), Some(Denial::TargetQuarantined));
    }
}

#[tokio::test]
async fn acceptance_11_a_creation_that_was_not_committed_opens_nothing_while_nothing_can_be_read() {
    let begun = [None, Some(CreateScript::Unknown { made: true })];
    for (script, unreadable) in begun.into_iter().flat_map(|made| [(made, true), (made, false)]) {
        let rig = rig().await;
        rig.store.plan_commits([CommitFault::NotCommitted]);
        rig.engine.creations_wait();
        if let Some(script) = script {
            rig.engine.next_creation(script);
        }
        let answer = rig.spawn(create(1));
        rig.until("the creation", |rig| rig.engine.count("create") == 1).await;
        rig.store.fail_reads(unreadable);
        rig.engine.creations_go_on();
        let answer = answer.await.unwrap();
        assert_eq!(answer.code, AnswerCode::Failed, "{:?}", answer.message);
        for class in [StatementClass::Read, StatementClass::Write] {
            assert!(denial(&rig, class).is_some(), "{script:?}, unreadable {unreadable}");
        }
        rig.store.replan([]);
        assert_eq!(rig.run(create(1)).await.code == AnswerCode::Failed, unreadable);
        rig.store.fail_reads(false);
        assert_eq!(code(&rig.run(create(1)).await), ControlCode::Applied);
        assert_eq!(denial(&rig, StatementClass::Read), Some(Denial::TargetQuarantined));
    }
}

#[tokio::test]
async fn invariant_08_a_target_is_of_the_database_that_was_made_for_it() {
    let rig = created().await;
    let of = |rig: &Rig| rig.gate().published().policy.state;
    let after = rig.restarted();
    after.control.recover().await.unwrap();
    assert_eq!(after.inspect().await.sight.record.unwrap().identity, Some(identity()));
    // The name leads to another server by now.
    let moved = Identity { engine_id: "9999".to_owned(), ..identity() };
    after.engine.becomes(moved);
    let answer = after.run(seal(2, 0)).await;
    assert_eq!(code(&answer), ControlCode::Draining);
    assert_eq!(of(&after), FenceState::TargetImportDraining);
    let reason = answer.sight.as_ref().unwrap().drain.reason.clone().unwrap_or_default();
    assert!(reason.contains("9999"), "{reason}");
    assert_eq!(after.engine.count("lock"), 0, "its tables are left alone");
    after.engine.becomes(identity());
    assert_eq!(code(&after.run(seal(2, 0)).await), ControlCode::Applied);
}

#[tokio::test]
async fn a_new_database_that_does_not_say_which_it_is_stays_closed_until_the_replay() {
    let rig = rig().await;
    rig.engine.creations_wait();
    let answer = rig.spawn(create(1));
    rig.until("the creation", |rig| rig.engine.count("create") == 1).await;
    rig.engine.unanswered_at("identity");
    rig.engine.creations_go_on();
    assert_eq!(answer.await.unwrap().code, AnswerCode::Failed);
    assert_eq!(denial(&rig, StatementClass::Read), Some(Denial::StateUnavailable));
    assert_eq!(code(&rig.run(create(1)).await), ControlCode::Applied);
    assert_eq!(rig.inspect().await.sight.record.unwrap().identity, Some(identity()));
}

/// A target's marker is there before its row, and once more with the identity of what was made.
#[tokio::test]
async fn an_inspection_beside_a_creation_takes_no_marker_of_before_for_a_lost_store() {
    let rig = rig().await;
    rig.engine.creations_wait();
    let answer = rig.spawn(create(1));
    rig.until("the creation", |rig| rig.engine.count("create") == 1).await;
    let mut held = rig.store.hold_load(HoldAt::Before);
    let control = Arc::clone(&rig.control);
    let looks = tokio::spawn(async move { control.inspect(&namespace(), true).await.unwrap() });
    held.reached().await;
    rig.engine.creations_go_on();
    assert_eq!(code(&answer.await.unwrap()), ControlCode::Applied);
    drop(held);
    let sight = looks.await.unwrap().sight;
    assert!(sight.unavailable.is_none(), "{:?}", sight.unavailable);
    assert_eq!(sight.state, FenceState::TargetQuarantined);
}

#[tokio::test]
async fn row_and_marker_of_a_creation_are_one_record_also_behind_a_replay() {
    for first in [None, Some(CreateScript::Unknown { made: true })] {
        let rig = rig().await;
        if let Some(script) = first {
            rig.engine.next_creation(script);
            assert_eq!(rig.run(create(1)).await.code, AnswerCode::Failed);
        }
        // Committed, and the process dies before it knows: the marker is of before the commit.
        rig.store.plan_commits([CommitFault::UnknownCommitted]);
        assert_eq!(code(&rig.run(create(1)).await), ControlCode::CommitIndeterminate);
        let after = rig.restarted();
        assert!(after.control.recover().await.unwrap().unavailable.is_empty(), "{first:?}");
        assert_eq!(denial(&after, StatementClass::Read), Some(Denial::TargetQuarantined));
    }
}

/// A program at another gate of the target's engine, as it ran before anybody knew of the target.
fn elsewhere(rig: &Rig, class: StatementClass) -> (Arc<Seat>, Lease) {
    let other = Namespace::parse("old/other").unwrap();
    let seat = Seat::take(rig.control.gates.gate(&other), SessionId(41), Card::default());
    let (lease, _) = seat.begin(class, 0).unwrap();
    (seat, lease)
}

#[tokio::test(start_paused = true)]
async fn invariant_15_what_ran_before_a_target_has_ended_before_it_is_made() {
    let rig = rig().await;
    rig.engine.reaches_every_database();
    let (seat, lease) = elsewhere(&rig, StatementClass::Read);
    let answer = rig.spawn(create(1));
    rig.until("the overlay", |rig| denial(rig, StatementClass::Read).is_some()).await;
    // Looks at the programs come after the overlay; none of them may get past this one.
    rig.looks_pass().await;
    assert_eq!(rig.engine.count("create"), 0, "VIOLATION: invariant 15, made beside a program");
    assert!(!answer.is_finished(), "VIOLATION: invariant 15, made beside a program");
    lease.answered();
    // What begins behind the overlay isn't waited for, nor is what idles.
    let (mut next, _) = seat.begin(StatementClass::Write, 0).unwrap();
    assert_eq!(code(&answer.await.unwrap()), ControlCode::Applied);
    next.paused();
    next.answered();
}

#[cfg(debug_assertions)]
#[test]
fn invariant_15_a_target_that_waits_for_no_program_is_reported() {
    let check = "control::tests::targets::\
                 invariant_15_what_ran_before_a_target_has_ended_before_it_is_made";
    crate::base::arm::missed(check, &[("target-programs", "invariant 15")]).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_program_that_does_not_end_has_a_creation_refused_and_nothing_made() {
    let rig = rig().await;
    rig.engine.reaches_every_database();
    let (seat, lease) = elsewhere(&rig, StatementClass::Write);
    let answer = rig.run(create(1)).await;
    assert_eq!(code(&answer), ControlCode::PreconditionFailed);
    assert_eq!(answer.detail, Some(Detail::NamespaceExists));
    let words = answer.message.clone().unwrap();
    assert!(words.contains("sessions 41") && words.contains("30 s"), "{words}");
    assert_eq!(rig.engine.count("create"), 0);
    assert!(rig.may_write(), "the overlay is down");
    assert!(rig.restarted().control.recover().await.unwrap().fences.is_empty(), "no marker");
    lease.answered();
    drop(seat);
    assert_eq!(code(&rig.run(create(1)).await), ControlCode::Applied);
}

#[tokio::test]
async fn where_a_session_has_one_database_and_for_what_is_guarded_nobody_waits() {
    let rig = rig().await;
    let (_seat, lease) = elsewhere(&rig, StatementClass::Write);
    assert_eq!(code(&rig.run(create(1)).await), ControlCode::Applied);
    lease.answered();
    let rig = self::rig().await;
    rig.engine.reaches_every_database();
    let (_seat, lease) = elsewhere(&rig, StatementClass::Stream);
    assert_eq!(code(&rig.run(create(1)).await), ControlCode::Applied);
    lease.answered();
}

#[tokio::test]
async fn what_came_to_be_by_another_hand_is_not_taken_for_the_target() {
    let rig = rig().await;
    rig.engine.next_creation(CreateScript::Unknown { made: true });
    rig.run(create(1)).await;
    rig.engine.fill();
    let answer = rig.run(create(1)).await;
    assert_eq!(answer.detail, Some(Detail::NamespaceExists), "{:?}", answer.message);
    assert!(!rig.may_write(), "closed all the same");
}

#[tokio::test]
async fn acceptance_11_doubt_about_a_commit_closes_a_target_and_its_replay_settles_it() {
    for fault in [CommitFault::UnknownCommitted, CommitFault::UnknownNotCommitted] {
        let rig = rig().await;
        rig.store.plan_commits([fault]);
        let answer = rig.run(create(1)).await;
        assert_eq!(code(&answer), ControlCode::CommitIndeterminate);
        assert_eq!(denial(&rig, StatementClass::Read), Some(Denial::StateUnavailable));
        let other = rig.run(create(2)).await;
        assert_eq!(code(&other), ControlCode::CommitIndeterminate);
        assert_eq!(code(&rig.run(create(1)).await), ControlCode::Applied);
        let (seat, _) = importer(&rig);
        rig.store.plan_commits([fault]);
        let answer = rig.run(seal(3, 60_000)).await;
        assert_eq!(code(&answer), ControlCode::CommitIndeterminate);
        let refusal = seat.begin(StatementClass::Write, 0).unwrap_err();
        assert_eq!(refusal.denial, Denial::StateUnavailable);
        assert_eq!(code(&rig.run(seal(3, 60_000)).await), ControlCode::Applied);
    }
}

#[tokio::test]
async fn acceptance_18_a_seal_waits_for_imports_and_names_them() {
    let rig = created().await;
    let (seat, secret) = importer(&rig);
    let (mut lease, _) = seat.begin(StatementClass::Write, 0).unwrap();
    let answer = rig.run(seal(2, 0)).await;
    assert_eq!(code(&answer), ControlCode::Draining);
    let drain = answer.sight.as_ref().unwrap().drain.clone();
    assert_eq!((drain.import_writers, drain.blockers.len()), (1, 1));
    assert!(rig.gate().present(secret.as_bytes()).is_none(), "dead");
    lease.paused();
    let more = lease.extend(StatementClass::Write, true).unwrap_err();
    assert_eq!(more.denial, Denial::CapabilityRequired);
    assert_eq!(
        refused(rig.control.issue_capability(&namespace(), Purpose::Import, op(1), Revision(2))).0,
        ControlCode::CapabilityRequired
    );
    let joined = rig.spawn(seal(2, 0));
    assert_eq!(code(&joined.await.unwrap()), ControlCode::Draining, "no time ends it");
    lease.extend(StatementClass::TransactionControl, true).unwrap();
    lease.answered();
    let answer = rig.run(seal(2, 0)).await;
    assert_eq!(code(&answer), ControlCode::Applied, "{:?}", answer.message);
    let text = rig.metrics.encode();
    let drained = r#"fencewire_fence_drain_duration_seconds_count{kind="import"} 1"#;
    assert!(text.contains(drained), "{text}");
}

#[tokio::test]
async fn a_restart_in_a_seal_leaves_it_closed_and_its_replay_ends_it() {
    let rig = created().await;
    let (seat, _) = importer(&rig);
    let (lease, _) = seat.begin(StatementClass::Write, 0).unwrap();
    assert_eq!(code(&rig.run(seal(2, 0)).await), ControlCode::Draining);
    let after = rig.restarted();
    after.control.recover().await.unwrap();
    assert_eq!(denial(&after, StatementClass::Read), Some(Denial::TargetQuarantined));
    assert_eq!(code(&after.run(seal(2, 0)).await), ControlCode::Applied);
    lease.answered();
}

#[tokio::test]
async fn capabilities_are_refused_by_state_owner_and_revision() {
    let rig = created().await;
    let give = |purpose, operation: u8, revision| {
        rig.control.issue_capability(&namespace(), purpose, op(operation), Revision(revision))
    };
    for (purpose, operation, revision, wanted) in [
        (Purpose::Validation, 1, 1, ControlCode::CapabilityRequired),
        (Purpose::Import, 2, 1, ControlCode::OwnedByAnotherOperation),
        (Purpose::Import, 1, 2, ControlCode::RevisionMismatch),
    ] {
        assert_eq!(refused(give(purpose, operation, revision)).0, wanted);
    }
    let unknown = Namespace::parse("old/nobody").unwrap();
    let none = rig.control.issue_capability(&unknown, Purpose::Import, op(1), Revision(1));
    assert_eq!(refused(none).0, ControlCode::CapabilityRequired);
    for _ in 0..crate::base::limits::CAPABILITIES_ALIVE_MAX {
        give(Purpose::Import, 1, 1).unwrap();
    }
    assert_eq!(refused(give(Purpose::Import, 1, 1)).1, Some(Detail::InvalidArgument));
}

#[tokio::test]
async fn acceptance_23_adoption_ends_capabilities_and_opens_nothing() {
    let rig = created().await;
    let (seat, secret) = importer(&rig);
    let arguments = Arguments::AdoptFence {
        current_operation: op(1),
        approvers: vec!["Ada".to_owned(), "Grace".to_owned()],
        incident_ref: "INC-7".to_owned(),
        reason: "gone".to_owned(),
    };
    let adopt = Command { operation: op(2), ..ask(9, FenceState::TargetQuarantined, 1, arguments) };
    let answer = rig.control.execute(Actor { has_adoption_key: true, ..actor() }, adopt).await;
    assert_eq!(code(&answer), ControlCode::Applied, "{:?}", answer.message);
    assert!(rig.gate().present(secret.as_bytes()).is_none());
    let refusal = seat.begin(StatementClass::Write, 0).unwrap_err();
    assert_eq!(refusal.denial, Denial::CapabilityRequired);
    assert_eq!(denial(&rig, StatementClass::Read), Some(Denial::TargetQuarantined));
    rig.control.issue_capability(&namespace(), Purpose::Import, op(2), Revision(2)).unwrap();
}

#[tokio::test]
async fn acceptance_18_a_question_is_answered_at_the_owners_revision_only() {
    let rig = created().await;
    let early = rig.control.validation_query(&query(1)).await;
    assert_eq!(refused(early).0, ControlCode::CapabilityRequired);
    rig.run(seal(2, 60_000)).await;
    assert_eq!(rig.control.validation_query(&query(3)).await.unwrap(), Vec::new());
    let stale = rig.control.validation_query(&query(2)).await;
    assert_eq!(refused(stale).0, ControlCode::RevisionMismatch);
    let other = ValidationQuery { operation: op(2), ..query(3) };
    let other = rig.control.validation_query(&other).await;
    assert_eq!(refused(other).0, ControlCode::OwnedByAnotherOperation);
    let expected_state = Some(FenceState::TargetWriteFenced);
    let other = ValidationQuery { expected_state, ..query(3) };
    let other = rig.control.validation_query(&other).await;
    assert_eq!(refused(other).0, ControlCode::RevisionMismatch);
    let none = ValidationQuery { statements: Vec::new(), ..query(3) };
    let none = rig.control.validation_query(&none).await;
    assert_eq!(refused(none).1, Some(Detail::InvalidArgument));
    let words = || "no".to_owned();
    for (error, wanted) in [
        (ReadError::Writes { statement: 1, words: words() }, ControlCode::CapabilityRequired),
        (ReadError::Sql { statement: 1, words: words() }, ControlCode::PreconditionFailed),
        (
            ReadError::ImportedCode { what: "views", rights: "is a superuser".to_owned() },
            ControlCode::CapabilityRequired,
        ),
        (ReadError::TooManyRows, ControlCode::PreconditionFailed),
        (ReadError::TooManyBytes, ControlCode::PreconditionFailed),
    ] {
        rig.engine.answers(Err(error));
        assert_eq!(refused(rig.control.validation_query(&query(3)).await).0, wanted);
    }
    assert_eq!(rig.gate().capabilities_alive(), 0, "lent for one question each");
}

#[tokio::test]
async fn an_answer_of_a_revision_that_has_passed_is_not_given() {
    let rig = created().await;
    rig.run(seal(2, 60_000)).await;
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    rig.engine.reads_wait_for(Arc::clone(&gate));
    let control = Arc::clone(&rig.control);
    let asked = tokio::spawn(async move { control.validation_query(&query(3)).await });
    rig.until("the question", |rig| rig.engine.count("read") == 1).await;
    rig.run(validated(3, 3, ValidationResult::Ok)).await;
    gate.add_permits(1);
    assert_eq!(refused(asked.await.unwrap()).0, ControlCode::RevisionMismatch);
}

#[tokio::test]
async fn a_validation_without_the_engines_position_is_not_recorded() {
    let rig = created().await;
    rig.run(seal(2, 60_000)).await;
    rig.engine.unreachable(true);
    let answer = rig.run(validated(3, 3, ValidationResult::Ok)).await;
    assert_eq!(answer.code, AnswerCode::Failed, "{:?}", answer.message);
    rig.engine.unreachable(false);
    let answer = rig.run(validated(3, 3, ValidationResult::Ok)).await;
    assert_eq!(code(&answer), ControlCode::Applied);
    rig.engine.unreachable(true);
    assert!(rig.run(validated(3, 3, ValidationResult::Ok)).await.replayed, "needs no engine");
}

#[tokio::test]
async fn an_aborted_target_stays_closed_and_keeps_its_name() {
    let rig = created().await;
    let (seat, _) = importer(&rig);
    let abort = ask(2, FenceState::TargetQuarantined, 1, Arguments::AbortQuarantinedTarget);
    let answer = rig.run(abort).await;
    assert_eq!((code(&answer), state(&answer)), (ControlCode::Applied, FenceState::TargetAborted));
    let refusal = seat.begin(StatementClass::Write, 0).unwrap_err();
    assert_eq!(refusal.denial, Denial::CapabilityRequired);
    let after = rig.restarted();
    after.control.recover().await.unwrap();
    for class in [StatementClass::Read, StatementClass::Write, StatementClass::Lifecycle] {
        assert_eq!(denial(&after, class), Some(Denial::TargetQuarantined));
    }
    let again = Command { operation: op(2), ..create(3) };
    assert_eq!(after.run(again).await.detail, Some(Detail::NamespaceExists));
}

/// What is validated is the database that was sealed (invariant 8), by the engine's word before and
/// behind the question.
#[tokio::test]
async fn invariant_08_another_database_behind_the_seal_is_not_validated() {
    let others = [
        Identity { engine_id: "9999".to_owned(), ..identity() },
        Identity { database_id: "5".to_owned(), ..identity() },
        Identity { timeline: Some(2), ..identity() },
    ];
    for other in others {
        let rig = created().await;
        rig.run(seal(2, 60_000)).await;
        let boundaries = rig.engine.count("boundary");
        rig.engine.becomes(other);
        let asked = rig.control.validation_query(&query(3)).await;
        assert!(asked.is_err(), "VIOLATION: another database was asked");
        let wanted = (ControlCode::PreconditionFailed, Some(Detail::NamespaceIdentityMismatch));
        assert_eq!(refused(asked), wanted);
        assert_eq!(rig.engine.count("read"), 0);
        let answer = rig.run(validated(3, 3, ValidationResult::Ok)).await;
        let got = (code(&answer), answer.detail.unwrap());
        assert_eq!(got, (wanted.0, Detail::NamespaceIdentityMismatch), "VIOLATION: {answer:?}");
        assert_eq!(rig.engine.count("boundary"), boundaries, "nothing is written to it");
        let words = answer.message.clone().unwrap();
        assert!(words.contains("another one now") && words.contains("abort"), "{words}");
        assert!(rig.inspect().await.sight.record.unwrap().validation.is_none());
        rig.engine.becomes(identity());
        assert!(rig.control.validation_query(&query(3)).await.is_ok());
        let answer = rig.run(validated(4, 3, ValidationResult::Ok)).await;
        assert_eq!(code(&answer), ControlCode::Applied);
    }
}

#[cfg(debug_assertions)]
#[test]
fn invariant_08_a_validation_of_whatever_answers_is_reported() {
    let check = "control::tests::targets::\
                 invariant_08_another_database_behind_the_seal_is_not_validated";
    crate::base::arm::missed(check, &[("target-identity", "another database was asked")]).unwrap();
}

/// It may be replaced while the question is answered.
#[tokio::test]
async fn invariant_08_an_answer_of_a_database_that_was_replaced_meanwhile_is_not_given() {
    let rig = created().await;
    rig.run(seal(2, 60_000)).await;
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    rig.engine.reads_wait_for(Arc::clone(&gate));
    let control = Arc::clone(&rig.control);
    let asked = tokio::spawn(async move { control.validation_query(&query(3)).await });
    rig.until("the question", |rig| rig.engine.count("read") == 1).await;
    rig.engine.becomes(Identity { database_id: "5".to_owned(), ..identity() });
    gate.add_permits(1);
    assert_eq!(refused(asked.await.unwrap()).1, Some(Detail::NamespaceIdentityMismatch));
}

#[tokio::test]
async fn a_seal_of_another_database_says_what_a_target_can_do() {
    let rig = created().await;
    rig.engine.evidence_of(Some(Identity { database_id: "5".to_owned(), ..identity() }));
    let answer = rig.run(seal(2, 60)).await;
    assert_eq!(code(&answer), ControlCode::Draining);
    let words = answer.message.clone().unwrap();
    assert!(words.contains("another one now") && words.contains("abort"), "{words}");
    assert!(!words.to_lowercase().contains("release"), "a target has none: {words}");
}

/// What runs by itself blocks a seal; behind a source's fence a lock is held.
#[tokio::test]
async fn a_census_is_told_that_it_is_of_an_import() {
    let rig = created().await;
    rig.run(seal(2, 60_000)).await;
    assert!(!rig.engine.views().is_empty() && rig.engine.views().iter().all(|v| v.is_import));
    let source = Rig::new().await;
    source.run(patient(1, 1)).await;
    assert!(!source.engine.views().is_empty());
    assert!(source.engine.views().iter().all(|view| !view.is_import));
}

/// Its database is gone when the engine says so, and only for as long as it does.
#[tokio::test]
async fn an_aborted_target_that_is_gone_is_in_nobodys_way() {
    let rig = created().await;
    let gate = rig.gate();
    rig.engine.missing();
    assert!(gate.may_be_meant());
    rig.control.look_for_aborted().await;
    assert!(gate.may_be_meant(), "it isn't aborted");
    rig.run(ask(2, FenceState::TargetQuarantined, 1, Arguments::AbortQuarantinedTarget)).await;
    let asked = rig.engine.count("identity");
    rig.control.look_for_aborted().await;
    assert_eq!(rig.engine.count("identity"), asked, "nothing came by");
    assert!(gate.may_be_meant(), "nobody has asked");
    rig.control.look_for_aborted().await;
    assert!(!gate.may_be_meant(), "the engine has said so");
    for class in [StatementClass::Read, StatementClass::Write, StatementClass::Lifecycle] {
        assert_eq!(denial(&rig, class), Some(Denial::TargetQuarantined), "it keeps its name");
    }
    rig.engine.unreachable(true);
    rig.control.look_for_aborted().await;
    assert!(!gate.may_be_meant(), "silence takes nothing back");
    rig.engine.unreachable(false);
    rig.engine.made_again();
    rig.control.look_for_aborted().await;
    assert!(gate.may_be_meant(), "somebody has made one of this name");
    let after = rig.restarted();
    after.control.recover().await.unwrap();
    assert!(after.gate().may_be_meant(), "a start knows nothing of it");
    let asked = rig.engine.count("identity");
    let again = rig.restarted();
    again.control.recover().await.unwrap();
    rig.engine.missing();
    again.control.look_for_aborted().await;
    assert!(rig.engine.count("identity") > asked, "but it is asked without a refusal");
    assert!(!again.gate().may_be_meant());
    rig.engine.unreachable(true);
    rig.engine.made_again();
    again.control.replace_engines(BTreeMap::new());
    again.control.replace_engines(engines([("old", &rig.engine)]));
    assert!(again.gate().may_be_meant(), "an engine that is new has said nothing yet");
}

/// Of several the first refuses; behind one look none is in the way.
#[tokio::test]
async fn one_question_asks_for_all_aborted_targets_of_its_engine() {
    let rig = rig().await;
    let names = ["old/gone1", "old/gone2", "old/gone3"];
    for name in names {
        let named =
            |command: Command| Command { namespace: Namespace::parse(name).unwrap(), ..command };
        rig.engine.missing();
        let made = rig.run(named(create(1))).await;
        assert_eq!(code(&made), ControlCode::Applied, "{:?}", made.message);
        let abort = Arguments::AbortQuarantinedTarget;
        rig.run(named(ask(2, FenceState::TargetQuarantined, 1, abort))).await;
    }
    rig.engine.missing();
    let gate = |name| rig.control.gates.gate(&Namespace::parse(name).unwrap());
    rig.control.look_for_aborted().await;
    assert!(gate(names[0]).may_be_meant(), "it refuses, and is asked for");
    rig.control.look_for_aborted().await;
    for name in names {
        assert!(!gate(name).may_be_meant(), "{name} refuses once more");
    }
}
