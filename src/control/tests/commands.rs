//! Decisions, commits and their failures, joins, callers that go away.

use super::*;

#[tokio::test]
async fn a_clean_acquire_proves_its_drain_and_a_release_opens_again() {
    let rig = Rig::new().await;
    assert!(rig.may_write());
    let answer = rig.run(patient(1, 1)).await;
    assert_eq!(code(&answer), ControlCode::Applied, "{:?}", answer.message);
    assert_eq!((revision_after(&answer), state(&answer)), (2, FenceState::SourceWriteFenced));
    assert!(!rig.may_write() && rig.engine.is_locked());
    let sight = rig.inspect().await.sight;
    let evidence = sight.record.unwrap().evidence.unwrap();
    assert_eq!(evidence.engine_lock.tables, 3);
    assert_eq!(sight.marker_consistent, Some(true));
    assert!(sight.lock.unwrap().held);
    let order = rig.engine.log();
    let at = |what: &str| order.iter().position(|entry| entry.starts_with(what)).unwrap();
    assert!(at("cutoff") < at("census") && at("census") < at("lock"));
    assert!(at("lock") < at("boundary 2") && rig.engine.count("census") == 2);

    rig.engine.watch_gate(rig.gate());
    let answer = rig.run(release(1, 2, FenceState::SourceWriteFenced, 2)).await;
    assert_eq!((code(&answer), revision_after(&answer)), (ControlCode::Applied, 3));
    assert!(rig.may_write() && !rig.engine.is_locked());
    assert_eq!(rig.engine.open_at_release(), [false], "the lock goes before the gate opens");
}

/// Who inspects takes no lock: a row of before a commit beside a marker of behind it would look
/// like a store that was restored.
#[tokio::test]
async fn an_inspection_beside_a_commit_sees_no_marker_ahead_of_its_row() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    let mut held = rig.store.hold_load(HoldAt::Behind);
    let control = Arc::clone(&rig.control);
    let looks = tokio::spawn(async move { control.inspect(&namespace(), true).await.unwrap() });
    held.reached().await;
    rig.run(release(1, 2, FenceState::SourceWriteFenced, 2)).await;
    drop(held);
    let sight = looks.await.unwrap().sight;
    assert!(sight.unavailable.is_none(), "{:?}", sight.unavailable);
    assert_eq!((sight.state, sight.revision), (FenceState::SourceWriteFenced, Revision(2)));
    assert_eq!(rig.inspect().await.sight.state, FenceState::Released);
}

#[tokio::test]
async fn replay_comes_before_everything_that_changed_since() {
    let rig = Rig::new().await;
    let first = rig.run(patient(1, 1)).await;
    rig.run(release(1, 2, FenceState::SourceWriteFenced, 2)).await;
    let replay = rig.run(patient(1, 1)).await;
    assert!(replay.replayed && !first.replayed);
    assert_eq!(replay.receipt, first.receipt);
    assert_eq!(state(&replay), FenceState::Released, "the view is of now");
    assert!(rig.may_write(), "a replay closes nothing");

    let mut other = patient(1, 1);
    other.expected_revision = Revision(7);
    let conflict = rig.run(other).await;
    assert_eq!(code(&conflict), ControlCode::CommandConflict);
    let text = rig.metrics.encode();
    assert!(text.contains(r#"fencewire_fence_replays_total{result="replay"} 1"#), "{text}");
    assert!(text.contains(r#"fencewire_fence_replays_total{result="conflict"} 1"#), "{text}");
}

#[tokio::test]
async fn refusals_write_nothing_and_leave_the_gate_open() {
    let rig = Rig::new().await;
    let mut stale = patient(1, 1);
    stale.expected_revision = Revision(4);
    assert_eq!(code(&rig.run(stale).await), ControlCode::RevisionMismatch);
    let mut other = patient(1, 2);
    other.arguments = Arguments::AcquireSourceWriteFence {
        identity: crate::fence::record::Identity { engine_id: "1".to_owned(), ..identity() },
        drain_policy: None,
    };
    let answer = rig.run(other).await;
    assert_eq!(answer.detail, Some(Detail::NamespaceIdentityMismatch));
    let wrong = rig.run(release(1, 3, FenceState::Unfenced, 0)).await;
    assert_eq!(code(&wrong), ControlCode::InvalidTransition);
    let inspection = rig.inspect().await;
    assert_eq!(inspection.sight.revision, Revision(0));
    assert!(inspection.receipts.is_empty() && rig.may_write());
}

#[tokio::test]
async fn a_missing_database_is_absent_and_an_unasked_engine_is_no_identity() {
    let rig = Rig::new().await;
    rig.engine.unreachable(true);
    let answer = rig.run(patient(1, 1)).await;
    assert_eq!((answer.code, answer.detail), (AnswerCode::Failed, None));
    let message = answer.message.as_ref().unwrap();
    assert!(message.contains("old is unreachable") && message.contains("again"), "{message}");
    assert!(rig.may_write());
    rig.engine.unreachable(false);
    rig.engine.missing();
    let mut absent = patient(1, 2);
    absent.expected_state = FenceState::Absent;
    let answer = rig.run(absent).await;
    assert_eq!(answer.detail, Some(Detail::RoleMismatch));
    assert!(answer.sight.is_none());
    assert!(rig.control.inspect(&namespace(), false).await.is_err());
}

#[tokio::test]
async fn another_operation_sees_the_owner() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    let mut second = patient(2, 2);
    second.expected_state = FenceState::SourceWriteFenced;
    second.expected_revision = Revision(2);
    let answer = rig.run(second).await;
    assert_eq!(code(&answer), ControlCode::OwnedByAnotherOperation);
    assert_eq!(answer.sight.as_ref().unwrap().record.as_ref().unwrap().operation, op(1));
    let again = rig.run(patient(1, 3)).await;
    assert_eq!(code(&again), ControlCode::AlreadyApplied, "before expectations");
}

#[tokio::test]
async fn two_operations_over_one_file_have_one_winner() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fence.db");
    let open = || Arc::new(SqliteStore::open(&path).unwrap());
    let one = Rig::with(open(), NamespaceSettings::default()).await;
    let two = Rig::with(open(), NamespaceSettings::default()).await;
    let (a, b) = tokio::join!(one.run(patient(1, 1)), two.run(patient(2, 2)));
    let mut codes = [code(&a), code(&b)];
    codes.sort();
    assert!(codes == [ControlCode::Applied, ControlCode::OwnedByAnotherOperation], "{a:?}\n{b:?}");
    assert!(!one.may_write() && !two.may_write(), "the loser's gate shows what the store says");
}

#[tokio::test]
async fn the_same_request_twice_at_once_is_one_command() {
    let rig = Rig::new().await;
    let (_seat, lease) = rig.writer(1, 11);
    let first = rig.spawn(patient(1, 1));
    rig.until_blocked().await;
    let second = rig.spawn(patient(1, 1));
    lease.answered();
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!(code(&first), ControlCode::Applied);
    assert!(Arc::ptr_eq(&first, &second), "one answer");
    assert_eq!(rig.engine.count("boundary"), 1, "one drain");
}

#[tokio::test]
async fn a_caller_who_goes_away_interrupts_nothing() {
    let rig = Rig::new().await;
    let (_seat, lease) = rig.writer(1, 11);
    let caller = rig.spawn(patient(1, 1));
    rig.until_blocked().await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    lease.answered();
    rig.until("the fence", |rig| {
        rig.gate().published().policy.state == FenceState::SourceWriteFenced
    })
    .await;
    assert_eq!(code(&rig.run(patient(1, 1)).await), ControlCode::Applied);
}

#[tokio::test]
async fn a_commit_that_did_not_happen_reopens_with_another_generation() {
    let rig = Rig::new().await;
    let before = rig.gate().word().generation();
    rig.store.plan_commits([CommitFault::NotCommitted]);
    let answer = rig.run(patient(1, 1)).await;
    assert_eq!(answer.code, AnswerCode::Failed);
    assert!(answer.message.as_ref().unwrap().contains("nothing was committed"), "{answer:?}");
    assert!(rig.may_write());
    assert!(rig.gate().word().generation().0 >= before.0 + 2, "closed and opened again");
    let inspection = rig.inspect().await;
    assert_eq!(inspection.sight.state, FenceState::Unfenced);
    assert!(inspection.receipts.is_empty());
    assert_eq!(code(&rig.run(patient(1, 1)).await), ControlCode::Applied, "replay does it");
}

#[tokio::test]
async fn an_unknown_commit_closes_everything_and_only_its_command_gets_on() {
    for fault in [CommitFault::UnknownCommitted, CommitFault::UnknownNotCommitted] {
        let rig = Rig::new().await;
        rig.store.plan_commits([fault]);
        let answer = rig.run(patient(1, 1)).await;
        assert_eq!(code(&answer), ControlCode::CommitIndeterminate);
        let seat = rig.seat(1, 11);
        assert!(seat.begin(StatementClass::Read, 0).is_err(), "reads are closed too");
        assert!(rig.inspect().await.sight.admission.indeterminate.is_some());
        let other = rig.run(patient(2, 2)).await;
        assert_eq!(code(&other), ControlCode::CommitIndeterminate);
        let mut differs = patient(1, 1);
        differs.expected_revision = Revision(9);
        assert_eq!(code(&rig.run(differs).await), ControlCode::CommitIndeterminate);
        rig.store.fail_reads(true);
        assert_eq!(code(&rig.run(patient(1, 1)).await), ControlCode::CommitIndeterminate);
        rig.store.fail_reads(false);
        let answer = rig.run(patient(1, 1)).await;
        assert_eq!((code(&answer), revision_after(&answer)), (ControlCode::Applied, 2));
        assert!(seat.begin(StatementClass::Read, 0).is_ok());
        assert!(!rig.may_write());
    }
}

#[tokio::test]
async fn an_unknown_final_commit_and_an_unknown_release_are_read_back() {
    for fault in [CommitFault::UnknownCommitted, CommitFault::UnknownNotCommitted] {
        let rig = Rig::new().await;
        rig.store.plan_commits([CommitFault::Pass, fault]);
        let answer = rig.run(patient(1, 1)).await;
        assert_eq!(code(&answer), ControlCode::CommitIndeterminate);
        let answer = rig.run(patient(1, 1)).await;
        assert_eq!((code(&answer), revision_after(&answer)), (ControlCode::Applied, 2));
        assert!(rig.engine.is_locked());

        rig.store.plan_commits([fault]);
        let out = release(1, 2, FenceState::SourceWriteFenced, 2);
        assert_eq!(code(&rig.run(out.clone()).await), ControlCode::CommitIndeterminate);
        assert!(!rig.may_write() && rig.engine.is_locked(), "closed until it is known");
        let answer = rig.run(out).await;
        assert_eq!((code(&answer), revision_after(&answer)), (ControlCode::Applied, 3));
        assert!(rig.may_write() && !rig.engine.is_locked());
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_read_changes_no_gate() {
    let rig = Rig::new().await;
    rig.store.fail_reads(true);
    assert_eq!(rig.run(patient(1, 1)).await.code, AnswerCode::Failed);
    assert!(rig.may_write());
}

#[tokio::test]
async fn a_task_that_dies_is_answered() {
    let rig = Rig::new().await;
    rig.engine.panics(true);
    let answer = rig.run(patient(1, 1)).await;
    assert_eq!(answer.code, AnswerCode::Failed);
    assert!(answer.message.as_ref().unwrap().contains("died"));
    rig.engine.panics(false);
    assert_eq!(code(&rig.run(patient(1, 1)).await), ControlCode::Applied);
}

#[tokio::test]
async fn a_command_of_the_other_end_is_refused_whole() {
    let rig = Rig::new().await;
    let mut seal = release(1, 1, FenceState::TargetQuarantined, 2);
    seal.arguments = Arguments::SealTargetImport { drain_policy: None };
    assert_eq!(rig.run(seal).await.detail, Some(Detail::RoleMismatch));
    assert!(rig.may_write());
}

#[tokio::test]
async fn w20_the_command_says_whether_programs_are_held_else_the_settings() {
    let rig = Rig::new().await;
    let held_for = |rig: &Rig| rig.gate().published().policy.hold.hold_ms;
    let by_command = DrainPolicy { hold_ms: Some(5), ..policy(60_000, OnDeadline::Fail) };
    rig.run(acquire(1, 2, by_command)).await;
    assert!(!rig.may_write());
    assert_eq!(held_for(&rig), 5);
    let settings = NamespaceSettings { hold_ms: 70, held_max: 3, ..NamespaceSettings::default() };
    rig.control.replace_settings(Arc::new(move |_| settings.clone()));
    rig.run(release(1, 3, FenceState::SourceWriteFenced, 2)).await;
    let again = Command {
        expected_state: FenceState::Released,
        expected_revision: Revision(3),
        ..acquire(2, 4, policy(60_000, OnDeadline::Fail))
    };
    assert_eq!(code(&rig.run(again).await), ControlCode::Applied);
    assert_eq!(held_for(&rig), 70);
}

/// The audit event is emitted beside the number; `tests/control_pg.rs` reads the events.
#[tokio::test]
async fn every_answer_is_counted_once() {
    let rig = Rig::new().await;
    let (_seat, lease) = rig.writer(1, 11);
    rig.run(at_once(1, 1)).await;
    lease.answered();
    rig.run(at_once(1, 1)).await;
    rig.run(patient(2, 2)).await;
    rig.run(release(1, 3, FenceState::SourceWriteFenced, 2)).await;
    rig.engine.panics(true);
    rig.run(patient(2, 4)).await;
    let text = rig.metrics.encode();
    for (command, outcome) in [
        ("acquire_source_write_fence", "DRAINING"),
        ("acquire_source_write_fence", "APPLIED"),
        ("acquire_source_write_fence", "FENCE_OWNED_BY_ANOTHER_OPERATION"),
        ("release_source_write_fence", "APPLIED"),
        ("acquire_source_write_fence", "ERROR"),
    ] {
        let name = "fencewire_fence_transitions_total";
        let line = format!("{name}{{command=\"{command}\",outcome=\"{outcome}\"}} 1");
        assert!(text.contains(&line), "{line}\n{text}");
    }
    assert!(
        text.contains("fencewire_fence_drain_duration_seconds_count{kind=\"write\"} 1"),
        "{text}"
    );
}
