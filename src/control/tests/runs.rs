//! Runs of an engine: whose a backend's number is after a restart.

use super::*;
use crate::fence::record::Identity;

fn promoted() -> Identity {
    Identity { timeline: Some(2), ..identity() }
}

/// A writer whose client and engine connection are gone, placed at the run that was seen.
async fn lost_writer(rig: &Rig) {
    let (seat, lease) = rig.writer(1, 11);
    rig.look().await;
    assert!(seat.slot().run().is_some());
    drop(lease);
}

impl Rig {
    /// The control side looks which run the engine is in.
    async fn look(&self) {
        let name = EngineName::new("old").unwrap();
        self.control.server_of(&name, &self.engine).await.unwrap();
    }
}

fn forced(command: u8) -> Command {
    acquire(1, command, policy(0, OnDeadline::ForceRollback))
}

#[tokio::test]
async fn a_later_run_of_the_engine_ends_the_backends_of_an_earlier_one() {
    let rig = Rig::new().await;
    lost_writer(&rig).await;
    // Pid 11 is somebody else's now, and lives on.
    rig.engine.restarts();
    let answer = rig.run(at_once(1, 1)).await;
    assert_eq!(code(&answer), ControlCode::Applied, "{answer:?}");
    let evidence = rig.inspect().await.sight.record.unwrap().evidence.unwrap();
    assert_eq!(evidence.releases.by_answer, 0);
    assert_eq!(rig.engine.count("terminate"), 0);
}

#[tokio::test]
async fn the_sweep_settles_sessions_of_an_earlier_run() {
    let rig = Rig::new().await;
    lost_writer(&rig).await;
    rig.control.sweep_once().await;
    assert_eq!(rig.gate().session_count(), 1, "its backend is there");
    rig.engine.restarts();
    rig.control.sweep_once().await;
    assert_eq!(rig.gate().session_count(), 0);
}

#[tokio::test]
async fn another_engines_word_ends_no_backend() {
    let rig = Rig::new().await;
    lost_writer(&rig).await;
    // A standby at the same address: before its promotion, and after it.
    rig.engine.restarts();
    rig.engine.backend_gone(11);
    rig.engine.standby(true);
    rig.control.sweep_once().await;
    assert_eq!(rig.gate().session_count(), 1);
    rig.engine.standby(false);
    rig.engine.becomes(promoted());
    rig.control.sweep_once().await;
    assert_eq!(rig.gate().session_count(), 1);
    // A fence of the old one, drained against the new one.
    rig.engine.becomes(identity());
    assert_eq!(code(&rig.run(at_once(1, 1)).await), ControlCode::Applied, "it is over there");
    let rig = Rig::new().await;
    lost_writer(&rig).await;
    assert_eq!(code(&rig.run(at_once(1, 1)).await), ControlCode::Draining);
    rig.engine.restarts();
    rig.engine.backend_gone(11);
    rig.engine.becomes(promoted());
    assert_eq!(code(&rig.run(at_once(1, 1)).await), ControlCode::Draining);
    assert_eq!(rig.gate().session_count(), 1, "the old primary may still commit it");
}

/// What comes behind a sweep doesn't wait for as many timeouts as there are gates.
#[tokio::test]
async fn a_sweep_asks_an_engine_that_is_away_once() {
    let rig = Rig::new().await;
    for (number, name) in [(1, "old/app"), (2, "old/b"), (3, "old/c")] {
        let gate = rig.control.gates.gate(&Namespace::parse(name).unwrap());
        let seat = Seat::take(gate, SessionId(number), Card::default());
        seat.slot().set_engine_pid(10);
        let (lease, _) = seat.begin(StatementClass::Write, 0).unwrap();
        drop(lease);
        drop(seat);
    }
    rig.engine.unreachable(true);
    let asked = rig.engine.count("server");
    rig.control.sweep_once().await;
    assert_eq!(rig.engine.count("server"), asked + 1);
    rig.engine.unreachable(false);
    rig.control.sweep_once().await;
    assert_eq!(rig.engine.count("server"), asked + 1 + 3 * 2, "each gate, when it answers");
}

#[tokio::test]
async fn force_ends_no_backend_of_another_run() {
    let rig = Rig::new().await;
    let (_seat, lease) = rig.writer(1, 11);
    rig.look().await;
    // The session hasn't noticed yet; pid 11 is somebody else's.
    rig.engine.restarts();
    assert_eq!(code(&rig.run(forced(1)).await), ControlCode::Draining);
    assert_eq!(rig.engine.count("terminate"), 0);
    lease.answered();
}

#[tokio::test]
async fn force_ends_no_backend_whose_run_is_not_known() {
    let rig = Rig::new().await;
    let seat = rig.seat(1, 11);
    // It logged in before the run was seen for the first time.
    rig.engine.restarts();
    rig.look().await;
    let (lease, _) = seat.begin(StatementClass::Write, 0).unwrap();
    drop(lease);
    drop(seat);
    assert_eq!(code(&rig.run(forced(1)).await), ControlCode::Draining);
    assert_eq!(rig.engine.count("terminate"), 0);
    // Nobody has its number: it is gone, whichever run it was.
    rig.engine.backend_gone(11);
    assert_eq!(code(&rig.run(forced(1)).await), ControlCode::Applied);
}

#[tokio::test]
async fn a_session_is_placed_by_what_its_engine_answers_between_two_looks() {
    let rig = Rig::new().await;
    let seat = rig.seat(1, 11);
    rig.engine.restarts();
    rig.look().await;
    rig.look().await;
    assert_eq!(seat.slot().run(), None, "the login may have been at the run before");
    let unsent = seat.begin(StatementClass::Read, 0).unwrap().0;
    unsent.unused();
    rig.look().await;
    assert_eq!(seat.slot().run(), None, "nothing was answered");
    let lease = seat.begin(StatementClass::Read, 0).unwrap().0;
    rig.look().await;
    assert_eq!(seat.slot().run(), None, "not yet");
    lease.answered();
    rig.look().await;
    assert_eq!(seat.slot().run().unwrap().started, 1);
    rig.engine.restarts();
    rig.look().await;
    assert_eq!(seat.slot().run().unwrap().started, 1, "a connection keeps its backend");
}

#[tokio::test]
async fn a_statement_is_stopped_by_number_and_run_alone() {
    let rig = Rig::new().await;
    let _seat = rig.seat(1, 11);
    rig.look().await;
    let name = EngineName::new("old").unwrap();
    rig.engine.restarts();
    rig.control.stop_statement(&name, 11).await.unwrap();
    // On the session's own run, which is over: the engine finds nobody to stop.
    assert_eq!((rig.engine.count("cancel 11 0"), rig.engine.count("activity")), (1, 0));
    rig.control.stop_statement(&name, 12).await.unwrap();
    assert_eq!((rig.engine.count("cancel 12 1"), rig.engine.count("activity")), (1, 0));
}

#[tokio::test]
async fn a_stale_number_vouches_for_nobody() {
    let rig = Rig::new().await;
    let (stale, live) = (rig.seat(1, 11), rig.seat(2, 12));
    rig.look().await;
    assert!(stale.slot().run().is_some() && live.slot().run().is_some());
    rig.engine.restarts();
    rig.look().await;
    let (fresh, unplaced) = (rig.seat(3, 13), rig.seat(4, 14));
    unplaced.slot().note_alive(0);
    rig.look().await;
    assert_eq!(code(&rig.run(at_once(1, 1)).await), ControlCode::Applied);
    let mut vouched: Vec<i32> = rig.engine.views().pop().unwrap().sessions.into_keys().collect();
    vouched.sort_unstable();
    assert_eq!(vouched, [13, 14], "a direct session may have 11 or 12 now");
    drop((stale, live, fresh));
}
