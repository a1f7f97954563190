//! What is asked beside the first commit: only behind the closing, and never in anybody's way.

use super::*;
use crate::control::line::Line;
use crate::control::port::Observation;

#[tokio::test]
async fn the_cutoff_is_asked_behind_the_closing_and_beside_the_commit() {
    let rig = Rig::new().await;
    rig.engine.watch_gate(rig.gate());
    rig.store.plan_commits([CommitFault::HangsBefore]);
    let hanging = rig.spawn(patient(1, 1));
    rig.store.hung().await;
    rig.until("the cutoff", |rig| rig.engine.count("cutoff") == 1).await;
    rig.until("the holder", |rig| rig.engine.ready_holders() == 1).await;
    assert_eq!(rig.engine.open_at_cutoff(), [false], "VIOLATION: asked in front of the closing");
    assert_eq!(rig.engine.count("census") + rig.engine.count("lock"), 0, "nothing more is");
    hanging.abort();
}

#[tokio::test]
async fn a_drain_uses_what_was_asked_beside_its_commit() {
    let rig = Rig::new().await;
    assert_eq!(code(&rig.run(patient(1, 1)).await), ControlCode::Applied);
    assert_eq!((rig.engine.count("cutoff"), rig.engine.count("early holder")), (1, 1));
    assert_eq!((rig.engine.count("on the ready holder"), rig.engine.count("lock")), (1, 1));
    assert_eq!(rig.engine.count("identity"), 1, "the ready holder has said where it is");
    assert!(rig.engine.is_locked() && rig.engine.ready_holders() == 0);
    // The next closing has a cutoff of its own.
    rig.run(release(1, 2, FenceState::SourceWriteFenced, 2)).await;
    let again = patient(2, 1).expecting(FenceState::Released, 3);
    assert_eq!(code(&rig.run(again).await), ControlCode::Applied);
    assert_eq!(rig.engine.count("cutoff"), 2, "VIOLATION: a cutoff of another closing was used");
}

#[tokio::test]
async fn a_commit_that_fails_drops_what_was_begun_beside_it() {
    let rig = Rig::new().await;
    let _parked = rig.engine.park_at_holder();
    for fault in [CommitFault::NotCommitted, CommitFault::UnknownNotCommitted] {
        rig.store.plan_commits([fault]);
        rig.run(patient(1, 1)).await;
    }
    let _parked = rig.engine.park_at_cutoff();
    rig.store.plan_commits([CommitFault::NotCommitted]);
    rig.run(patient(1, 1)).await;
    rig.until("all closed", |rig| rig.engine.ready_holders() == 0).await;
    assert_eq!(rig.engine.count("census") + rig.engine.count("lock"), 0);
    assert!(rig.may_write());
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_silent_delays_neither_the_commit_nor_the_answer() {
    let rig = Rig::new().await;
    let permits = rig.engine.park_at_cutoff();
    let answer = rig.run(at_once(1, 1)).await;
    assert_eq!((code(&answer), revision_after(&answer)), (ControlCode::Draining, 1));
    assert!(answer.message.as_ref().unwrap().contains("had not answered"), "{answer:?}");
    permits.add_permits(10);
    assert_eq!(code(&rig.run(at_once(1, 1)).await), ControlCode::Applied);
}

/// Until it has said who it is, nobody can tell it from a stranger's connection.
#[tokio::test(start_paused = true)]
async fn a_census_waits_for_the_holders_word_and_no_longer_than_it_may() {
    let rig = Rig::new().await;
    let permits = rig.engine.park_at_holder();
    let drain = rig.spawn(patient(1, 1));
    rig.until("the opening", |rig| rig.engine.count("early holder") == 1).await;
    rig.looks_pass().await;
    assert_eq!(rig.engine.count("census"), 0, "it would be found as a stranger's");
    permits.add_permits(1);
    assert_eq!(code(&drain.await.unwrap()), ControlCode::Applied);
    assert_eq!(rig.engine.count("on the ready holder"), 1);

    let rig = Rig::new().await;
    let _never = rig.engine.park_at_holder();
    assert_eq!(code(&rig.run(patient(1, 1)).await), ControlCode::Applied);
    assert_eq!((rig.engine.count("on the ready holder"), rig.engine.count("lock")), (0, 1));
    assert_eq!(rig.engine.ready_holders(), 0);
}

#[tokio::test]
async fn a_holder_that_fails_or_is_lost_is_no_error() {
    let rig = Rig::new().await;
    rig.engine.unanswered_at("early holder");
    let answer = rig.run(patient(1, 1)).await;
    assert_eq!(code(&answer), ControlCode::Applied);
    assert_eq!((rig.engine.count("on the ready holder"), rig.engine.count("lock")), (0, 1));

    let rig = Rig::new().await;
    rig.engine.lose_ready_holders();
    assert_eq!(code(&rig.run(patient(1, 1)).await), ControlCode::Applied);
    assert_eq!((rig.engine.count("on the ready holder"), rig.engine.count("lock")), (0, 1));
    assert!(rig.engine.is_locked() && rig.engine.ready_holders() == 0);
}

#[tokio::test]
async fn a_holder_is_closed_with_a_drain_that_takes_no_lock() {
    let rig = Rig::new().await;
    let (_seat, lease) = rig.writer(1, 11);
    let drain = rig.spawn(patient(1, 1));
    rig.until_blocked().await;
    rig.until("the holder", |rig| rig.engine.ready_holders() == 1).await;
    rig.run(release(1, 2, FenceState::SourceDraining, 1)).await;
    assert_eq!(code(&drain.await.unwrap()), ControlCode::Draining);
    rig.until("it closed", |rig| rig.engine.ready_holders() == 0).await;
    assert!(!rig.engine.is_locked() && rig.engine.count("lock") == 0);
    lease.answered();

    let settings = NamespaceSettings { engine_lock: LockMode::Off, ..NamespaceSettings::default() };
    let rig = Rig::with(Arc::new(MemoryStore::new()), settings).await;
    assert_eq!(code(&rig.run(patient(1, 1)).await), ControlCode::Applied);
    assert_eq!(rig.engine.count("early holder"), 0, "none is wanted");
}

/// A cutoff of an earlier closing doesn't name what was admitted since.
#[tokio::test]
async fn a_cutoff_counts_for_its_own_closing_alone() {
    let rig = Rig::new().await;
    let engine: Arc<dyn EnginePort> = Arc::new(rig.engine.clone());
    let line = Line::new(namespace());
    let seen: Arc<dyn Observation> = engine.cutoff(&namespace()).await.unwrap();
    line.set_cutoff(Some((Generation(7), seen)));
    assert!(line.cutoff(Generation(7)).is_some());
    let what = "VIOLATION: another closing's cutoff is used";
    assert!(line.cutoff(Generation(8)).is_none(), "{what}");
    let mut early = rig.control.begin_early(&line, &engine, Generation(7), LockMode::Off);
    assert!(early.cutoff(Generation(8)).await.is_none(), "{what}");
    assert!(early.cutoff(Generation(7)).await.unwrap().is_ok());
    assert!(early.cutoff(Generation(7)).await.is_none(), "told once");
}

#[cfg(debug_assertions)]
#[test]
fn invariant_06_a_cutoff_of_another_closing_is_reported() {
    let check = "control::tests::early::a_cutoff_counts_for_its_own_closing_alone";
    crate::base::arm::missed(check, &[("cutoff-generation", "another closing")]).unwrap();
}
