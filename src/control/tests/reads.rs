//! Read fences: what closes and opens, who is waited for, what the deadline does.

use crate::fence::record::ForcedKind;
use crate::gate::slot::Order;

use super::*;

fn set_read(command: u8, deadline_ms: u64) -> Command {
    Command {
        namespace: namespace(),
        operation: op(1),
        command: id(command),
        expected_state: FenceState::SourceWriteFenced,
        expected_revision: Revision(2),
        arguments: Arguments::SetSourceReadFence {
            drain_policy: Some(policy(deadline_ms, OnDeadline::Fail)),
        },
    }
}

fn clear_read(command: u8, state: FenceState, revision: u64) -> Command {
    Command {
        namespace: namespace(),
        operation: op(1),
        command: id(command),
        expected_state: state,
        expected_revision: Revision(revision),
        arguments: Arguments::ClearSourceReadFence,
    }
}

impl Rig {
    /// With a proven write fence of operation 1, at revision 2.
    async fn fenced() -> Self {
        let rig = Self::new().await;
        assert_eq!(code(&rig.run(patient(1, 1)).await), ControlCode::Applied);
        rig
    }

    fn reader(&self, session: u64, class: StatementClass) -> (Arc<Seat>, Lease) {
        let seat = self.seat(session, i32::try_from(session).unwrap() + 10);
        let (lease, _) = seat.begin(class, 0).unwrap();
        (seat, lease)
    }

    fn may_read(&self) -> bool {
        let seat = self.seat(998, 998);
        let admitted = seat.begin(StatementClass::Read, 0).map(|(lease, _)| lease.answered());
        admitted.is_ok()
    }
}

#[tokio::test]
async fn reads_close_with_a_proof_and_open_again_while_writes_stay_closed() {
    let rig = Rig::fenced().await;
    assert!(rig.may_read());
    let answer = rig.run(set_read(2, 60_000)).await;
    assert_eq!(code(&answer), ControlCode::Applied, "{:?}", answer.message);
    assert_eq!((revision_after(&answer), state(&answer)), (4, FenceState::SourceReadFenced));
    assert!(!rig.may_read() && !rig.may_write() && rig.engine.is_locked());
    let record = rig.inspect().await.sight.record.unwrap();
    assert!(record.read_evidence.is_some() && record.evidence.is_some());
    let again = rig.run(set_read(2, 60_000)).await;
    assert!(again.replayed && again.receipt == answer.receipt);
    let goal = rig.run(set_read(3, 60_000)).await;
    assert_eq!(code(&goal), ControlCode::AlreadyApplied);

    let refused = rig.run(release(1, 4, FenceState::SourceReadFenced, 4)).await;
    assert_eq!(code(&refused), ControlCode::InvalidTransition);
    let answer = rig.run(clear_read(5, FenceState::SourceReadFenced, 4)).await;
    assert_eq!((code(&answer), revision_after(&answer)), (ControlCode::Applied, 5));
    assert!(rig.may_read() && !rig.may_write() && rig.engine.is_locked());
    assert!(rig.inspect().await.sight.record.unwrap().read_evidence.is_none());
    let text = rig.metrics.encode();
    assert!(text.contains(r#"drain_duration_seconds_count{kind="read"} 1"#), "{text}");
}

#[tokio::test]
async fn a_read_is_waited_for_and_its_release_proves() {
    let rig = Rig::fenced().await;
    let (_seat, lease) = rig.reader(1, StatementClass::Read);
    let set = rig.spawn(set_read(2, 60_000));
    rig.until_blocked().await;
    let report = rig.inspect().await.sight.drain;
    assert_eq!((report.blockers[0].class, report.read_leases.sql), ("reader", 1));
    assert!(!rig.may_read(), "closed while it drains");
    lease.answered();
    assert_eq!(code(&set.await.unwrap()), ControlCode::Applied);
    let evidence = rig.inspect().await.sight.record.unwrap().read_evidence.unwrap();
    assert_eq!((evidence.releases.by_answer, evidence.forced.len()), (1, 0));
}

#[tokio::test]
async fn at_the_deadline_reads_are_cancelled_then_ended_and_only_their_release_completes() {
    let rig = Rig::fenced().await;
    rig.engine.survives_terminate();
    let (seat, lease) = rig.reader(1, StatementClass::Read);
    let answer = rig.run(set_read(2, 0)).await;
    assert_eq!((code(&answer), revision_after(&answer)), (ControlCode::Draining, 3));
    assert!(answer.message.as_ref().unwrap().contains("session 1"), "{answer:?}");
    let (orders, before) = seat.slot().take_orders();
    assert!(orders.has(Order::STOP_READING) && orders.has(Order::GIVE_UP_READING));
    assert!(lease.stamp().generation < before);
    let forced: Vec<ForcedKind> =
        answer.sight.as_ref().unwrap().drain.forced.iter().map(|forced| forced.kind).collect();
    assert_eq!(forced, [ForcedKind::SqlCancel, ForcedKind::BackendTermination]);
    assert!(!rig.may_read());
    let again = rig.run(set_read(2, 0)).await;
    assert_eq!((code(&again), again.replayed), (ControlCode::Draining, true), "it goes on");
    lease.answered();
    let done = rig.run(set_read(2, 0)).await;
    assert_eq!((code(&done), revision_after(&done)), (ControlCode::Applied, 4));
}

#[tokio::test]
async fn a_stream_is_ended_long_before_the_deadline() {
    let rig = Rig::fenced().await;
    let (seat, lease) = rig.reader(1, StatementClass::Stream);
    let set = rig.spawn(set_read(2, 60_000));
    rig.until("the order", |_| seat.slot().take_orders().0.has(Order::STOP_READING)).await;
    assert_eq!(rig.inspect().await.sight.drain.read_leases.replication, 1);
    lease.answered();
    assert_eq!(code(&set.await.unwrap()), ControlCode::Applied);
    let evidence = rig.inspect().await.sight.record.unwrap().read_evidence.unwrap();
    assert_eq!(evidence.forced[0].kind, ForcedKind::StreamTermination);
}

#[tokio::test]
async fn a_lost_reader_is_settled_by_the_engines_word_alone() {
    let rig = Rig::fenced().await;
    let (seat, lease) = rig.reader(1, StatementClass::Read);
    drop(lease);
    drop(seat);
    let set = rig.spawn(set_read(2, 60_000));
    rig.until_blocked().await;
    assert_eq!(rig.inspect().await.sight.drain.blockers[0].class, "orphan");
    rig.engine.backend_gone(11);
    assert_eq!(code(&set.await.unwrap()), ControlCode::Applied);
    let evidence = rig.inspect().await.sight.record.unwrap().read_evidence.unwrap();
    assert_eq!(evidence.releases.by_engine, 1);
}

#[tokio::test]
async fn a_clear_supersedes_a_running_read_drain() {
    let rig = Rig::fenced().await;
    let (_seat, lease) = rig.reader(1, StatementClass::Read);
    let set = rig.spawn(set_read(2, 60_000));
    rig.until_blocked().await;
    let answer = rig.run(clear_read(3, FenceState::SourceReadDraining, 3)).await;
    assert_eq!((code(&answer), revision_after(&answer)), (ControlCode::Applied, 4));
    let drained = set.await.unwrap();
    assert_eq!(code(&drained), ControlCode::Draining);
    assert!(drained.message.as_ref().unwrap().contains("superseded"), "{drained:?}");
    assert!(rig.may_read() && !rig.may_write());
    lease.answered();
    let history = rig.run(set_read(2, 60_000)).await;
    assert_eq!((code(&history), history.replayed), (ControlCode::Draining, true));
    assert!(rig.may_read(), "history closes nothing");
}

#[tokio::test]
async fn a_commit_that_did_not_happen_opens_reads_again_and_an_unknown_one_closes_all() {
    let rig = Rig::fenced().await;
    rig.store.plan_commits([CommitFault::NotCommitted]);
    assert_eq!(rig.run(set_read(2, 60_000)).await.code, AnswerCode::Failed);
    assert!(rig.may_read() && !rig.may_write());
    assert_eq!(rig.inspect().await.sight.state, FenceState::SourceWriteFenced);

    rig.store.plan_commits([CommitFault::UnknownCommitted]);
    assert_eq!(code(&rig.run(set_read(3, 60_000)).await), ControlCode::CommitIndeterminate);
    assert!(!rig.may_read());
    let other = rig.run(clear_read(4, FenceState::SourceReadDraining, 3)).await;
    assert_eq!(code(&other), ControlCode::CommitIndeterminate);
    let answer = rig.run(set_read(3, 60_000)).await;
    assert_eq!((code(&answer), revision_after(&answer)), (ControlCode::Applied, 4));
}

#[tokio::test]
async fn a_restart_keeps_reads_closed_and_the_replay_completes() {
    let rig = Rig::fenced().await;
    let (_seat, lease) = rig.reader(1, StatementClass::Read);
    rig.engine.survives_terminate();
    assert_eq!(code(&rig.run(set_read(2, 0)).await), ControlCode::Draining);
    let next = rig.restarted();
    next.control.recover().await.unwrap();
    assert!(!next.may_read() && !next.may_write());
    assert_eq!(next.inspect().await.sight.state, FenceState::SourceReadDraining);
    let answer = next.run(set_read(2, 0)).await;
    assert_eq!((code(&answer), answer.replayed), (ControlCode::Applied, true));
    let last = next.restarted();
    last.control.recover().await.unwrap();
    assert!(!last.may_read());
    lease.answered();
}
