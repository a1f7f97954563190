//! Restarts: what the store and the markers make of a new process.

use super::*;
use crate::store::marker::Marker;

#[tokio::test]
async fn nothing_is_open_before_recovery_and_everything_unfenced_is_after() {
    let rig = Rig::new().await;
    let next = rig.restarted();
    assert!(!next.control.ready() && !next.may_write());
    assert_eq!(next.run(patient(1, 1)).await.code, AnswerCode::Failed);
    assert!(!next.may_write(), "a command doesn't open what recovery hasn't");
    let fresh = rig.restarted();
    fresh.control.recover().await.unwrap();
    assert!(fresh.control.ready() && fresh.may_write());
}

#[tokio::test]
async fn a_draining_fence_comes_back_closed_and_waits_for_its_command() {
    let rig = Rig::new().await;
    let (_seat, _lease) = rig.writer(1, 11);
    assert_eq!(code(&rig.run(at_once(1, 1)).await), ControlCode::Draining);
    let next = rig.restarted();
    let found = next.control.recover().await.unwrap();
    assert_eq!(found.fences, [(namespace(), FenceState::SourceDraining)]);
    assert!(!next.may_write() && !next.engine.is_locked());
    let cutoffs = rig.engine.count("cutoff");
    let answer = next.run(at_once(1, 1)).await;
    assert_eq!((code(&answer), revision_after(&answer)), (ControlCode::Applied, 2));
    assert_eq!(rig.engine.count("cutoff"), cutoffs + 1, "a new process takes a new cutoff");
}

#[tokio::test]
async fn a_proven_fence_has_its_lock_before_anybody_is_served() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    rig.engine.break_lock();
    let next = rig.restarted();
    let found = next.control.recover().await.unwrap();
    assert_eq!(found.unlocked, []);
    assert!(next.engine.is_locked() && !next.may_write());
    let answer = next.run(release(1, 2, FenceState::SourceWriteFenced, 2)).await;
    assert_eq!(code(&answer), ControlCode::Applied);
    let last = next.restarted();
    last.control.recover().await.unwrap();
    assert!(last.may_write());
}

#[tokio::test]
async fn a_marker_ahead_of_the_store_closes_the_namespace_and_inspect_says_so() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    // The same markers over a store that has lost everything.
    let as_store: Arc<dyn FenceStore> = Arc::new(MemoryStore::new());
    let control = build(&RigParts {
        dir: rig.dir.path(),
        store: &as_store,
        engine: &rig.engine,
        metrics: &rig.metrics,
        clock: &rig.clock,
        settings: &rig.settings,
    });
    let found = control.recover().await.unwrap();
    assert_eq!(found.unavailable[0].1, Detail::MetastoreBehindMarker);
    let gate = control.gates.gate(&namespace());
    let seat = Seat::take(gate, SessionId(5), Card::default());
    assert!(seat.begin(StatementClass::Read, 0).is_err());
    let answer = control.execute(actor(), patient(1, 9)).await;
    assert_eq!(code(&answer), ControlCode::StateUnavailable);
    assert_eq!(answer.detail, Some(Detail::MetastoreBehindMarker));
    let sight = control.inspect(&namespace(), false).await.unwrap().sight;
    assert_eq!(sight.state, FenceState::UnknownUnavailable);
    assert_eq!(sight.unavailable.unwrap().marker.unwrap().revision, Revision(2));
    assert_eq!(control.capabilities().active_fences, 1);
    let other = Namespace::parse("old/other").unwrap();
    let elsewhere = Seat::take(control.gates.gate(&other), SessionId(6), Card::default());
    let (lease, _) = elsewhere.begin(StatementClass::Write, 0).expect("others are served");
    lease.answered();
}

#[tokio::test]
async fn a_lagging_marker_is_written_anew_at_the_start() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    let markers = MarkerDir::open(rig.dir.path()).unwrap();
    markers.remove(&namespace()).await.unwrap();
    assert_eq!(rig.inspect().await.sight.marker_consistent, Some(false));
    assert_eq!(markers.read(&namespace()).await, Marker::Missing, "inspecting repairs nothing");
    let next = rig.restarted();
    next.control.recover().await.unwrap();
    assert!(matches!(markers.read(&namespace()).await, Marker::Found(_)));
}

#[tokio::test]
async fn a_store_that_cannot_be_listed_stops_the_start() {
    let rig = Rig::new().await;
    rig.store.fail_reads(true);
    let next = rig.restarted();
    assert!(next.control.recover().await.is_err());
    assert!(!next.control.ready() && !next.may_write());
}

/// An inspection passes on why the live database isn't known.
#[tokio::test]
async fn an_inspection_says_what_the_engine_said_in_place_of_its_identity() {
    let rig = Rig::new().await;
    assert_eq!(rig.inspect().await.silence, None);
    rig.run(patient(1, 1)).await;
    rig.engine.unreachable(true);
    let silence = rig.inspect().await.silence.unwrap();
    assert_eq!(silence.kind, "unreachable");
    assert!(silence.words.contains("connection refused"), "{silence:?}");
    rig.engine.unreachable(false);
    rig.engine.missing();
    let silence = rig.inspect().await.silence.unwrap();
    assert_eq!((silence.kind, silence.words.contains("no such database")), ("missing", true));
}
