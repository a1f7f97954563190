//! Drains: who is waited for, what deadlines do, what force reaches.

use crate::base::limits;
use crate::engine::{Blocker, Why};
use crate::fence::command::CommandKind;
use crate::fence::record::{ForcedKind, Identity, LockMode};
use crate::fence::transition::ControlView;
use crate::gate::slot::Order;

use super::*;

#[tokio::test]
async fn a_zero_deadline_names_the_writer_and_its_replay_completes() {
    let rig = Rig::new().await;
    let (_seat, lease) = rig.writer(1, 11);
    let answer = rig.run(at_once(1, 1)).await;
    assert_eq!((code(&answer), revision_after(&answer)), (ControlCode::Draining, 1));
    assert!(answer.message.as_ref().unwrap().contains("session 1"), "{answer:?}");
    assert!(!rig.may_write());
    let report = rig.inspect().await.sight.drain;
    assert_eq!(report.active_writers, 1);
    assert_eq!(report.blockers[0].session, Some(SessionId(1)));
    lease.answered();
    let answer = rig.run(at_once(1, 1)).await;
    assert_eq!((code(&answer), revision_after(&answer)), (ControlCode::Applied, 2));
    assert!(answer.replayed, "a resumed drain is a replay");
}

#[tokio::test]
async fn a_running_drain_shows_its_blocker_with_the_engines_word_and_waits_for_its_release() {
    let rig = Rig::new().await;
    let (_seat, lease) = rig.writer(1, 11);
    let answer = rig.spawn(patient(1, 1));
    rig.until_blocked().await;
    let report = rig.inspect().await.sight.drain;
    let named = &report.blockers[0];
    assert_eq!((named.engine_pid, named.age_ms), (Some(11), Some(4321)));
    assert_eq!(named.statement, "insert into t values (1)");
    assert_eq!(report.phase.name(), "leases");
    assert!(rig.engine.count("cutoff") == 1, "taken before leases are waited for");
    lease.answered();
    let answer = answer.await.unwrap();
    assert_eq!(code(&answer), ControlCode::Applied);
    let evidence = rig.inspect().await.sight.record.unwrap().evidence.unwrap();
    assert_eq!((evidence.releases.by_answer, evidence.releases.by_engine), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_ends_soon_is_not_asked_about() {
    let rig = Rig::new().await;
    let (_seat, lease) = rig.writer(1, 11);
    let answer = rig.spawn(patient(1, 1));
    rig.until("a waiting drain", waits_for_a_writer).await;
    lease.answered();
    assert_eq!(code(&answer.await.unwrap()), ControlCode::Applied);
    assert_eq!(rig.engine.count("activity"), 0, "nobody had to be named");
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_ends_does_not_wait_for_its_writers_names() {
    let rig = Rig::new().await;
    rig.engine.silent_of_activity();
    let (_seat, lease) = rig.writer(1, 11);
    let answer = rig.spawn(patient(1, 1));
    rig.until("the question", |rig| rig.engine.count("activity") == 1).await;
    lease.answered();
    assert_eq!(code(&answer.await.unwrap()), ControlCode::Applied);
}

fn waits_for_a_writer(rig: &Rig) -> bool {
    rig.control.drain_report(&namespace()).active_writers == 1
}

#[tokio::test]
async fn a_release_supersedes_a_running_drain() {
    let rig = Rig::new().await;
    let (seat, lease) = rig.writer(1, 11);
    let (reader, mut read) = {
        let seat = rig.seat(2, 12);
        let lease = seat.begin(StatementClass::Read, 0).unwrap().0;
        (seat, lease)
    };
    let drain = rig.spawn(patient(1, 1));
    rig.until_blocked().await;
    let answer = rig.run(release(1, 2, FenceState::SourceDraining, 1)).await;
    assert_eq!((code(&answer), revision_after(&answer)), (ControlCode::Applied, 2));
    let drained = drain.await.unwrap();
    assert_eq!((code(&drained), revision_after(&drained)), (ControlCode::Draining, 1));
    assert!(drained.message.as_ref().unwrap().contains("superseded"), "{drained:?}");
    assert!(rig.may_write() && !rig.engine.is_locked());
    assert!(reader.extend(&mut read, StatementClass::Write, true).is_err(), "stale although open");
    lease.answered();
    read.answered();
    drop((seat, reader));
    let history = rig.run(patient(1, 1)).await;
    assert_eq!((code(&history), history.replayed), (ControlCode::Draining, true));
    assert_eq!(state(&history), FenceState::Released);
}

#[tokio::test]
async fn a_release_frees_a_lock_that_an_unfinished_drain_has_taken() {
    let rig = Rig::new().await;
    let permits = rig.engine.park_at_boundary();
    let drain = rig.spawn(patient(1, 1));
    rig.until("the boundary", |rig| rig.engine.count("boundary") == 1).await;
    assert!(rig.engine.is_locked());
    rig.engine.watch_gate(rig.gate());
    let answer = rig.run(release(1, 2, FenceState::SourceDraining, 1)).await;
    assert_eq!(code(&answer), ControlCode::Applied);
    assert!(!rig.engine.is_locked());
    assert_eq!(rig.engine.open_at_release(), [false]);
    permits.add_permits(1);
    assert_eq!(code(&drain.await.unwrap()), ControlCode::Draining);
    assert!(!rig.engine.is_locked() && rig.may_write());
}

/// A direct session that waits for the fence's own lock is in a transaction: while the lock is
/// held the census waits for it, and it for the lock.
#[tokio::test]
async fn a_lock_without_a_proof_is_given_back_before_the_next_look() {
    let rig = Rig::new().await;
    rig.engine.residue_once(Vec::new());
    rig.engine.residue(vec![blocker(42, Why::DirectInTransaction)]);
    let drain = rig.spawn(patient(1, 1));
    rig.until_blocked().await;
    rig.until("the lock given back", |rig| !rig.engine.is_locked()).await;
    rig.engine.residue(Vec::new());
    assert_eq!(code(&drain.await.unwrap()), ControlCode::Applied);
    assert!(rig.engine.is_locked() && rig.engine.count("lock") >= 2, "and taken anew");
}

/// The answer to the commit that proved the fence was lost. Another drain of the same operation
/// finds a direct statement that waits for the very lock the proof rests on: it gives nothing back.
#[tokio::test]
async fn a_lock_is_kept_while_a_proof_that_rests_on_it_may_have_been_committed() {
    let rig = Rig::new().await;
    let permits = rig.engine.park_at_boundary();
    let first = rig.spawn(patient(1, 1));
    rig.until("the boundary", |rig| rig.engine.count("boundary") == 1).await;
    let joining = acquire(1, 2, policy(300, OnDeadline::Fail));
    let joining = joining.expecting(FenceState::SourceDraining, 1);
    let second = rig.spawn(joining);
    rig.until("both at the boundary", |rig| rig.engine.count("boundary") == 2).await;
    rig.store.plan_commits([CommitFault::UnknownCommitted]);
    permits.add_permits(1);
    let lost = first.await.unwrap();
    assert_eq!(code(&lost), ControlCode::CommitIndeterminate, "{lost:?}");
    rig.engine.residue(vec![blocker(42, Why::DirectInTransaction)]);
    permits.add_permits(1);
    let what = "VIOLATION: the lock that a proof rests on was given back";
    let waited = second.await.unwrap();
    assert_eq!(code(&waited), ControlCode::Draining, "{waited:?}");
    assert!(waited.message.as_ref().unwrap().contains("backend 42"), "{waited:?}");
    assert!(rig.engine.is_locked() && rig.engine.count("unlock") == 0, "{what}");
    // The replay finds what was committed, and the lock that it speaks of is still that one.
    let replayed = rig.run(patient(1, 1)).await;
    assert_eq!((code(&replayed), replayed.replayed), (ControlCode::Applied, true));
    assert_eq!((rig.engine.count("lock"), rig.engine.count("unlock")), (1, 0), "{what}");
    assert!(rig.engine.is_locked() && !rig.may_write());
    assert!(rig.inspect().await.sight.lock.is_some_and(|lock| lock.held), "it is watched again");
}

/// Nobody waits for ever: the drain for the direct statement, that for the lock, and the lock for
/// the lost answer. The deadline, or the replay, ends it.
#[tokio::test]
async fn the_replay_of_a_lost_answer_ends_a_drain_that_waits_for_who_waits_for_its_lock() {
    let rig = Rig::new().await;
    let permits = rig.engine.park_at_boundary();
    let drain = rig.spawn(patient(1, 1));
    rig.until("the boundary", |rig| rig.engine.count("boundary") == 1).await;
    rig.store.plan_commits([CommitFault::UnknownNotCommitted]);
    let undo = release(1, 2, FenceState::SourceDraining, 1);
    let lost = rig.run(undo.clone()).await;
    assert_eq!(code(&lost), ControlCode::CommitIndeterminate, "{lost:?}");
    let looked = rig.engine.views().len();
    rig.engine.residue(vec![blocker(42, Why::DirectInTransaction)]);
    permits.add_permits(1);
    rig.until("three more looks", |rig| rig.engine.views().len() >= looked + 3).await;
    assert!(rig.engine.is_locked() && rig.engine.count("unlock") == 0, "kept for what is unknown");
    assert!(!drain.is_finished());
    let released = rig.run(undo).await;
    assert_eq!(code(&released), ControlCode::Applied, "{released:?}");
    let superseded = drain.await.unwrap();
    assert_eq!(code(&superseded), ControlCode::Draining, "{superseded:?}");
    assert!(superseded.is_overtaken(), "no way on is told of it: {superseded:?}");
    assert!(superseded.message.as_ref().unwrap().contains("superseded"), "{superseded:?}");
    assert!(!rig.engine.is_locked() && rig.may_write(), "the direct statement goes on");
}

/// Both drain: the one that waits isn't the one that was asked for.
#[tokio::test]
async fn a_replay_of_a_drain_beside_another_operations_drain_is_overtaken() {
    let rig = Rig::new().await;
    let (_seat, _lease) = rig.writer(1, 11);
    let own = rig.run(at_once(1, 1)).await;
    assert!(code(&own) == ControlCode::Draining && !own.is_overtaken(), "{own:?}");
    let released = rig.run(release(1, 2, FenceState::SourceDraining, 1)).await;
    assert_eq!(code(&released), ControlCode::Applied, "{released:?}");
    let (expected_state, expected_revision) = (FenceState::Released, Revision(2));
    let anothers = Command { expected_state, expected_revision, ..at_once(2, 3) };
    let second = rig.run(anothers.clone()).await;
    assert!(code(&second) == ControlCode::Draining && !second.is_overtaken(), "{second:?}");
    let replayed = rig.run(at_once(1, 1)).await;
    assert_eq!((code(&replayed), replayed.replayed), (ControlCode::Draining, true));
    assert_eq!(state(&replayed), FenceState::SourceDraining, "another's");
    assert!(replayed.is_overtaken(), "no way on is told of it: {replayed:?}");
    let replayed = rig.run(anothers).await;
    assert!(replayed.replayed && !replayed.is_overtaken(), "{replayed:?}");
}

#[tokio::test]
async fn an_adoption_leaves_no_lock_behind_that_nobody_watches() {
    let rig = Rig::new().await;
    let permits = rig.engine.park_at_boundary();
    let drain = rig.spawn(patient(1, 1));
    rig.until("the boundary", |rig| rig.engine.count("boundary") == 1).await;
    let view = ControlView::Record(rig.inspect().await.sight.record.unwrap());
    let adopt = sample::command(CommandKind::AdoptFence, &view, 3, 3);
    let by = Actor { has_adoption_key: true, ..actor() };
    let adopted = rig.control.execute(by, adopt).await;
    assert_eq!(code(&adopted), ControlCode::Applied, "{adopted:?}");
    permits.add_permits(1);
    assert_eq!(code(&drain.await.unwrap()), ControlCode::Draining);
    assert!(!rig.engine.is_locked() && !rig.may_write());
}

#[tokio::test]
async fn inspection_and_other_commands_do_not_wait_for_a_drain() {
    let rig = Rig::new().await;
    let (_seat, lease) = rig.writer(1, 11);
    let drain = rig.spawn(patient(1, 1));
    rig.until_blocked().await;
    assert_eq!(rig.inspect().await.sight.state, FenceState::SourceDraining);
    let other = rig.run(patient(2, 2)).await;
    assert_eq!(code(&other), ControlCode::OwnedByAnotherOperation);
    lease.answered();
    assert_eq!(code(&drain.await.unwrap()), ControlCode::Applied);
}

#[tokio::test]
async fn a_second_command_of_the_owner_joins_and_both_end() {
    let rig = Rig::new().await;
    let (_seat, lease) = rig.writer(1, 11);
    let first = rig.spawn(patient(1, 1));
    rig.until_blocked().await;
    let mut joining = patient(1, 2);
    joining.expected_state = FenceState::SourceDraining;
    joining.expected_revision = Revision(1);
    let second = rig.spawn(joining);
    let line = rig.control.line(&namespace());
    rig.until("both drains", |_| line.drain().1 == 2).await;
    lease.answered();
    let mut codes = [code(&first.await.unwrap()), code(&second.await.unwrap())];
    codes.sort();
    assert_eq!(codes, [ControlCode::Applied, ControlCode::AlreadyApplied]);
    assert!(rig.engine.is_locked(), "one of them keeps the lock");
}

#[tokio::test]
async fn residue_is_named_and_waited_for() {
    let rig = Rig::new().await;
    rig.engine.residue(vec![blocker(42, Why::Prepared)]);
    let answer = rig.run(at_once(1, 1)).await;
    assert_eq!(code(&answer), ControlCode::Draining);
    let message = answer.message.as_ref().unwrap();
    assert!(message.contains("prepared") && message.contains("gid-1"), "{message}");
    let drain = rig.spawn(patient(1, 2).expecting(FenceState::SourceDraining, 1));
    rig.until_blocked().await;
    assert_eq!(rig.control.drain_report(&namespace()).blockers[0].class, "prepared");
    rig.engine.residue(Vec::new());
    assert_eq!(code(&drain.await.unwrap()), ControlCode::Applied);
}

/// Somebody who comes after the DRAINING answer sees what is in the way, and how old the news is.
#[tokio::test]
async fn what_the_engine_named_is_shown_until_it_is_asked_again() {
    let rig = Rig::new().await;
    let (_seat, lease) = rig.writer(1, 11);
    assert_eq!(code(&rig.run(at_once(1, 1)).await), ControlCode::Draining);
    let seen = rig.inspect().await.sight.drain;
    let named: Vec<_> = seen.blockers.iter().map(|one| one.class).collect();
    assert_eq!((named, seen.active_writers), (vec!["writer"], 1), "as the proxy itself sees it");
    lease.answered();
    assert!(rig.inspect().await.sight.drain.blockers.is_empty(), "it is known to have ended");
    let before = rig.clock.now_ms();
    rig.engine.residue(vec![blocker(42, Why::DirectInTransaction)]);
    assert_eq!(code(&rig.run(at_once(1, 1)).await), ControlCode::Draining);
    let line = |rig: &Rig| {
        let lines = rig.control.namespaces();
        lines.into_iter().find(|line| line.namespace == namespace()).unwrap().drain
    };
    for seen in [rig.inspect().await.sight.drain, line(&rig)] {
        let named: Vec<_> = seen.blockers.iter().map(|one| one.engine_pid).collect();
        assert_eq!((named, seen.phase.name()), (vec![Some(42)], "idle"));
        assert!(seen.as_of_ms.is_some_and(|at| at >= before), "{seen:?}");
    }
    // An engine that couldn't be asked is the news as well.
    rig.engine.unreachable(true);
    assert_eq!(code(&rig.run(at_once(1, 1)).await), ControlCode::Draining);
    let seen = rig.inspect().await.sight.drain;
    assert!(seen.reason.unwrap().contains("connection refused"));
    // A fence that stands, or is gone, has nothing in the way.
    rig.engine.unreachable(false);
    rig.engine.residue(Vec::new());
    assert_eq!(code(&rig.run(at_once(1, 1)).await), ControlCode::Applied);
    for _ in 0..2 {
        let seen = rig.inspect().await.sight.drain;
        assert!(seen.blockers.is_empty() && seen.as_of_ms.is_none(), "{seen:?}");
        rig.run(release(1, 2, FenceState::SourceWriteFenced, 2)).await;
    }
}

#[tokio::test]
async fn something_found_after_the_boundary_starts_it_over() {
    let rig = Rig::new().await;
    rig.engine.residue_once(Vec::new());
    rig.engine.residue_once(vec![blocker(42, Why::Writing)]);
    assert_eq!(code(&rig.run(patient(1, 1)).await), ControlCode::Applied);
    assert_eq!(rig.engine.count("boundary"), 2);
}

#[tokio::test]
async fn a_lock_that_is_lost_before_the_proof_starts_it_over() {
    let rig = Rig::new().await;
    rig.engine.break_lock_at_boundary();
    assert_eq!(code(&rig.run(patient(1, 1)).await), ControlCode::Applied);
    assert_eq!((rig.engine.count("lock"), rig.engine.count("boundary")), (2, 2));
    assert!(rig.engine.is_locked());
}

#[tokio::test]
async fn a_lock_that_the_engine_does_not_confirm_proves_nothing() {
    let rig = Rig::new().await;
    rig.engine.silence_lock(true);
    let answer = rig.run(at_once(1, 1)).await;
    let what = "VIOLATION: invariant 8: a proof rests on a lock that nobody confirmed";
    assert_eq!(code(&answer), ControlCode::Draining, "{what}");
    assert!(answer.message.as_ref().unwrap().contains("lock was lost"), "{answer:?}");
    assert!(!rig.may_write());
    rig.engine.silence_lock(false);
    assert_eq!(code(&rig.run(at_once(1, 1)).await), ControlCode::Applied);
    assert!(rig.engine.is_locked());
}

#[cfg(debug_assertions)]
#[test]
fn invariant_08_a_lock_taken_on_trust_is_reported() {
    let check = "control::tests::drains::a_lock_that_the_engine_does_not_confirm_proves_nothing";
    crate::base::arm::missed(check, &[("lock-confirm", "invariant 8")]).unwrap();
}

/// A drain whose task died is none any more, neither in what is shown nor in the line, where the
/// next one's end would take it for one that still needs the lock.
#[tokio::test]
async fn a_drain_whose_task_dies_leaves_no_lock_and_no_trace() {
    let rig = Rig::new().await;
    rig.engine.panics_at("boundary");
    let died = rig.run(patient(1, 1)).await;
    assert!(died.message.as_ref().unwrap().contains("died"), "{died:?}");
    assert_eq!(rig.engine.count("lock"), 1);
    let shown = rig.control.drain_report(&namespace());
    assert!(shown.command.is_none(), "a drain is shown that doesn't run: {shown:?}");
    assert!(!rig.engine.is_locked(), "a lock is held that nothing rests on");
    // Another one, which ends without a proof while it holds the lock.
    rig.engine.unlocked_boundaries(u32::MAX);
    let joining = acquire(1, 2, policy(0, OnDeadline::Fail));
    let waited = rig.run(joining.expecting(FenceState::SourceDraining, 1)).await;
    assert_eq!(code(&waited), ControlCode::Draining, "{waited:?}");
    assert!(!rig.engine.is_locked() && rig.engine.count("lock") >= 2);
    rig.engine.unlocked_boundaries(0);
    assert_eq!(code(&rig.run(patient(1, 1)).await), ControlCode::Applied);
    assert!(rig.engine.is_locked() && !rig.may_write());
}

/// The lock stands by its own word, and yet the boundary isn't its holder's.
#[tokio::test]
async fn a_boundary_that_was_read_without_the_lock_starts_it_over() {
    let rig = Rig::new().await;
    rig.engine.unlocked_boundaries(1);
    assert_eq!(code(&rig.run(patient(1, 1)).await), ControlCode::Applied);
    assert_eq!((rig.engine.count("lock"), rig.engine.count("boundary")), (2, 2));
    // Where no lock can be had it is as good as it gets, and the evidence says that there is none.
    let rig = Rig::new().await;
    rig.engine.unlocked_boundaries(9);
    rig.engine.lock_attempts([LockScript::NotAllowed]);
    assert_eq!(code(&rig.run(patient(1, 1)).await), ControlCode::Applied);
    assert_eq!(rig.engine.count("boundary"), 1);
}

#[tokio::test]
async fn a_census_that_may_not_see_everybody_proves_nothing_without_the_lock() {
    let rig = Rig::new().await;
    rig.engine.blind(true);
    rig.engine.lock_attempts([LockScript::NotAllowed]);
    let answer = rig.run(at_once(1, 1)).await;
    assert_eq!(code(&answer), ControlCode::Draining);
    assert!(answer.message.as_ref().unwrap().contains("doesn't list table locks"), "{answer:?}");
    assert!(!rig.may_write());
    // The lock shows what it may not.
    assert_eq!(code(&rig.run(at_once(1, 1)).await), ControlCode::Applied);
    assert!(rig.engine.is_locked());
}

#[tokio::test]
async fn the_sweep_ends_what_broken_links_left_on_an_engine() {
    let rig = Rig::new().await;
    rig.engine.strays(2);
    rig.control.sweep_once().await;
    rig.control.sweep_once().await;
    assert_eq!(rig.engine.count("end strays"), 1, "asked while there are any");
}

#[tokio::test]
async fn what_is_proven_after_a_release_and_another_fence_completes_neither() {
    let rig = Rig::new().await;
    let permits = rig.engine.park_at_boundary();
    let first = rig.spawn(patient(1, 1));
    rig.until("the boundary", |rig| rig.engine.count("boundary") == 1).await;
    let released = rig.run(release(1, 2, FenceState::SourceDraining, 1)).await;
    assert_eq!(code(&released), ControlCode::Applied);
    assert!(rig.may_write() && !rig.engine.is_locked());
    let (_seat, lease) = rig.writer(1, 11);
    let again = rig.run(at_once(3, 3).expecting(FenceState::Released, 2)).await;
    assert_eq!(code(&again), ControlCode::Draining, "{again:?}");
    permits.add_permits(1);
    assert_eq!(code(&first.await.unwrap()), ControlCode::Draining);
    let sight = rig.inspect().await.sight;
    assert_eq!((sight.state, sight.revision), (FenceState::SourceDraining, Revision(3)));
    assert!(!rig.engine.is_locked());
    lease.answered();
}

#[tokio::test]
async fn an_engine_that_cannot_be_asked_proves_nothing() {
    let rig = Rig::new().await;
    let (_seat, lease) = rig.writer(1, 11);
    assert_eq!(code(&rig.run(at_once(1, 1)).await), ControlCode::Draining);
    lease.answered();
    rig.engine.unreachable(true);
    let answer = rig.run(at_once(1, 1)).await;
    assert_eq!(code(&answer), ControlCode::Draining);
    let message = answer.message.as_ref().unwrap();
    assert!(message.contains("census_unavailable"), "{message}");
    assert!(message.contains("connection refused"), "{message}");
    rig.engine.unreachable(false);
    assert_eq!(code(&rig.run(at_once(1, 1)).await), ControlCode::Applied);
}

/// What could not be asked for a moment isn't what is waited for now.
#[tokio::test]
async fn a_question_that_failed_once_does_not_hide_the_writer() {
    let rig = Rig::new().await;
    let (_seat, lease) = rig.writer(1, 11);
    rig.engine.unanswered_at("cutoff");
    let answer = rig.run(at_once(1, 1)).await;
    assert_eq!(code(&answer), ControlCode::Draining);
    let message = answer.message.as_ref().unwrap();
    assert!(message.contains("session 1") && !message.contains("census_unavailable"), "{message}");
    lease.answered();
}

#[tokio::test]
async fn evidence_of_another_database_is_no_proof() {
    let now = [
        Identity { engine_id: "9999".to_owned(), ..identity() },
        // A standby that was promoted at the same address.
        Identity { timeline: Some(2), ..identity() },
        // A database that was renamed into place.
        Identity { database_id: "5".to_owned(), ..identity() },
    ];
    for now in now {
        let rig = Rig::new().await;
        rig.engine.evidence_of(Some(now));
        let answer = rig.run(acquire(1, 1, policy(60, OnDeadline::Fail))).await;
        assert_eq!(code(&answer), ControlCode::Draining, "{answer:?}");
        assert!(!rig.may_write());
        let message = answer.message.as_ref().unwrap();
        assert!(message.contains("another one now") && message.contains("anew"), "{message}");
        assert!(!message.contains("replay"), "a replay doesn't help: {message}");
        assert_eq!((rig.engine.count("boundary"), rig.engine.count("lock")), (0, 0));
        // It is back: what is proven now is the fence's own.
        rig.engine.evidence_of(None);
        assert_eq!(
            code(&rig.run(acquire(1, 1, policy(60, OnDeadline::Fail))).await),
            ControlCode::Applied
        );
    }
}

#[tokio::test]
async fn force_orders_the_session_with_the_drains_generation() {
    let rig = Rig::new().await;
    let (seat, lease) = rig.writer(1, 11);
    let quiet = rig.seat(2, 12);
    let drain = rig.spawn(acquire(1, 1, policy(0, OnDeadline::ForceRollback)));
    // The session, as wire would: it gets the order, rolls back, and sees the engine's answer.
    seat.slot().ordered.rung().await;
    let (order, before) = seat.slot().take_orders();
    assert!(order.has(Order::ROLL_BACK));
    assert!(lease.stamp().generation < before);
    lease.answered();
    let answer = drain.await.unwrap();
    assert_eq!(code(&answer), ControlCode::Applied);
    assert!(quiet.slot().take_orders().0.is_none(), "only those that block");
    let forced = rig.inspect().await.sight.record.unwrap().evidence.unwrap().forced;
    assert_eq!((forced.len(), forced[0].kind), (1, ForcedKind::Rollback));
    assert_eq!((forced[0].session, forced[0].engine_pid), (Some(SessionId(1)), 11));
    assert_eq!(rig.engine.count("terminate"), 0);
    assert!(rig.metrics.encode().contains(r#"fencewire_fence_forced_total{kind="rollback"} 1"#));
}

#[tokio::test]
async fn a_session_that_does_not_roll_back_is_terminated_and_still_waited_for() {
    let rig = Rig::new().await;
    rig.engine.survives_terminate();
    let (_seat, lease) = rig.writer(1, 11);
    let answer = rig.run(acquire(1, 1, policy(0, OnDeadline::ForceRollback))).await;
    assert_eq!(code(&answer), ControlCode::Draining, "a signal is not a release");
    assert_eq!(rig.engine.count("terminate 11"), 1);
    assert!(!rig.may_write());
    lease.answered();
    let again = rig.run(acquire(1, 1, policy(0, OnDeadline::ForceRollback))).await;
    assert_eq!(code(&again), ControlCode::Applied);
}

/// Named by one census, ended by the next: nothing else may keep force from leaving it alone.
#[tokio::test]
async fn force_ends_only_what_the_engines_last_word_names() {
    for (residue_stays, ended) in [(false, 0), (true, 1)] {
        let rig = Rig::new().await;
        rig.engine.survives_terminate();
        let _quiet = rig.seat(2, 12);
        let named = Blocker { session: Some(SessionId(2)), ..blocker(12, Why::Writing) };
        if residue_stays {
            rig.engine.residue(vec![named]);
        } else {
            rig.engine.residue_once(vec![named]);
        }
        rig.engine.lock_attempts(vec![LockScript::Broken; 100_000]);
        let answer = rig.run(acquire(1, 1, policy(0, OnDeadline::ForceRollback))).await;
        assert_eq!(code(&answer), ControlCode::Draining);
        assert_eq!(rig.engine.count("terminate 12"), ended, "VIOLATION: stays {residue_stays}");
    }
}

#[tokio::test]
async fn a_lock_that_nobody_is_seen_to_be_in_the_way_of_says_so() {
    let rig = Rig::new().await;
    rig.engine.lock_attempts([LockScript::BusyByNobody; 1000]);
    let answer = rig.run(at_once(1, 1)).await;
    assert_eq!(code(&answer), ControlCode::Draining);
    let reason = rig.control.drain_report(&namespace()).reason.unwrap();
    assert!(reason.contains("shows nobody who holds one"), "{reason}");
}

#[tokio::test]
async fn a_lost_session_counts_until_the_engine_shows_its_backend_gone() {
    let rig = Rig::new().await;
    let (seat, lease) = rig.writer(1, 11);
    drop(lease);
    drop(seat);
    let answer = rig.run(at_once(1, 1)).await;
    assert_eq!(code(&answer), ControlCode::Draining);
    assert_eq!(rig.control.drain_report(&namespace()).blockers[0].class, "orphan");
    rig.engine.backend_gone(11);
    assert_eq!(code(&rig.run(at_once(1, 1)).await), ControlCode::Applied);
    let evidence = rig.inspect().await.sight.record.unwrap().evidence.unwrap();
    assert_eq!(evidence.releases.by_answer, 0);
}

/// Clients that are refused leave in the middle of their transactions, and their backends are gone
/// a moment later: nothing but the engine tells.
#[tokio::test(start_paused = true)]
async fn a_lost_session_whose_backend_is_gone_soon_is_asked_for_soon() {
    let rig = Rig::new().await;
    let (seat, lease) = rig.writer(1, 11);
    drop((lease, seat));
    let answer = rig.spawn(patient(1, 1));
    rig.until("a look at its backend", |rig| rig.engine.count("activity") > 0).await;
    rig.engine.backend_gone(11);
    let gone = tokio::time::Instant::now();
    assert_eq!(code(&answer.await.unwrap()), ControlCode::Applied);
    let took = gone.elapsed();
    assert!(took < Duration::from_millis(limits::DRAIN_UNNAMED_MS / 2), "{took:?}");
}

#[tokio::test]
async fn force_ends_the_backend_of_a_lost_session() {
    let rig = Rig::new().await;
    let (seat, lease) = rig.writer(1, 11);
    drop(lease);
    drop(seat);
    let answer = rig.run(acquire(1, 1, policy(0, OnDeadline::ForceRollback))).await;
    assert_eq!(code(&answer), ControlCode::Applied);
    assert_eq!(rig.engine.count("terminate 11"), 1);
    let evidence = rig.inspect().await.sight.record.unwrap().evidence.unwrap();
    assert_eq!((evidence.releases.by_answer, evidence.releases.by_engine), (0, 1));
    assert_eq!(evidence.forced[0].kind, ForcedKind::BackendTermination);
}

#[tokio::test]
async fn the_sweep_settles_lost_sessions_without_a_fence() {
    let rig = Rig::new().await;
    let (seat, lease) = rig.writer(1, 11);
    drop(lease);
    drop(seat);
    rig.control.sweep_once().await;
    assert_eq!(rig.gate().session_count(), 1, "its backend is there");
    rig.engine.backend_gone(11);
    rig.control.sweep_once().await;
    assert_eq!(rig.gate().session_count(), 0);
    let asked = rig.engine.count("activity");
    rig.control.sweep_once().await;
    assert_eq!(rig.engine.count("activity"), asked, "nothing to ask about");
}

#[tokio::test]
async fn the_census_is_told_who_may_still_write() {
    let rig = Rig::new().await;
    let reader = rig.seat(2, 12);
    let (mut read, _) = reader.begin(StatementClass::Read, 0).unwrap();
    let running = rig.run(acquire(1, 1, policy(0, OnDeadline::Fail))).await;
    assert_eq!(code(&running), ControlCode::Draining, "a read without a guard is running");
    read.paused();
    let again = acquire(1, 1, policy(0, OnDeadline::Fail));
    assert_eq!(code(&rig.run(again).await), ControlCode::Applied);
    let view = rig.engine.views().pop().unwrap();
    let session = view.sessions[&12];
    assert!(!session.is_writer && session.in_program);
    read.answered();
}

#[tokio::test]
async fn refused_in_flight_writers_are_published_as_asked() {
    let rig = Rig::new().await;
    let (_seat, lease) = rig.writer(1, 11);
    let refuse = DrainPolicy { in_flight: Some(InFlight::Refuse), ..policy(0, OnDeadline::Fail) };
    rig.run(acquire(1, 1, refuse)).await;
    assert_eq!(rig.gate().published().policy.in_flight, InFlight::Refuse);
    lease.answered();
}

#[tokio::test]
async fn lock_modes_are_told_in_the_evidence() {
    for (mode, attempts, reached, held) in [
        (LockMode::Hold, vec![LockScript::Busy, LockScript::Broken], LockMode::Hold, true),
        (LockMode::Confirm, vec![], LockMode::Confirm, false),
        (LockMode::Off, vec![], LockMode::Off, false),
        (LockMode::Hold, vec![LockScript::NotAllowed; 2], LockMode::Off, false),
    ] {
        let settings = NamespaceSettings { engine_lock: mode, ..NamespaceSettings::default() };
        let rig = Rig::with(Arc::new(MemoryStore::new()), settings).await;
        rig.engine.lock_attempts(attempts);
        assert_eq!(code(&rig.run(patient(1, 1)).await), ControlCode::Applied);
        let lock = rig.inspect().await.sight.record.unwrap().evidence.unwrap().engine_lock;
        assert_eq!((lock.mode, rig.engine.is_locked()), (reached, held), "{mode:?}");
        assert!(!lock.outcome.is_empty());
    }
}

impl Command {
    pub(super) fn expecting(mut self, state: FenceState, revision: u64) -> Self {
        self.expected_state = state;
        self.expected_revision = Revision(revision);
        self
    }
}
