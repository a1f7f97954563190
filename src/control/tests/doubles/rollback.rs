//! Whose open work is rolled back at an engine that is found to be a fence's server.

use super::*;
use crate::gate::slot::Order;

fn promoted() -> Identity {
    Identity { timeline: Some(2), ..identity() }
}

/// A session of that database with a lease of that class.
fn open_as(session: u64, rig: &Rig, namespace: &str, class: StatementClass) -> (Arc<Seat>, Lease) {
    let gate = rig.control.gates.gate(&Namespace::parse(namespace).unwrap());
    let seat = Seat::take(gate, SessionId(session), Card::default());
    let (lease, _) = seat.begin(class, 0).unwrap();
    (seat, lease)
}

fn writer(rig: &Rig, namespace: &str) -> (Arc<Seat>, Lease) {
    open_as(7, rig, namespace, StatementClass::Write)
}

/// By an order that it obeys: one of a generation behind that of its lease.
fn is_told((seat, lease): &(Arc<Seat>, Lease)) -> bool {
    let (orders, before) = seat.slot().take_orders();
    orders.has(Order::ROLL_BACK) && lease.stamp().generation < before
}

/// `copy` is a standby of `old`.
async fn with_a_standby(rig: &Rig, copy: &ScriptedEngine) -> Rig {
    copy.standby(true);
    let next = rig.restarted_with(engines([("old", &rig.engine), ("copy", copy)]));
    next.control.recover().await.unwrap();
    next
}

fn promote(copy: &ScriptedEngine) {
    copy.becomes(promoted());
    copy.standby(false);
}

const BEHIND: &str = "VIOLATION: it commits behind the fence";
const NEEDLESS: &str = "open work is cut needlessly";

/// What began at a promoted standby before that was seen is rolled back, however late it commits:
/// writes, and reads that may hide one. Another database's sessions can't write to the fenced one.
#[tokio::test]
async fn what_may_write_at_a_promoted_standby_is_told_to_roll_back() {
    let rig = Rig::new().await;
    let copy = ScriptedEngine::default();
    let next = with_a_standby(&rig, &copy).await;
    assert_eq!(code(&next.run(patient(1, 1)).await), ControlCode::Applied);
    let open = writer(&next, "copy/app");
    let reader = open_as(8, &next, "copy/app", StatementClass::Read);
    let elsewhere = writer(&next, "copy/other");
    promote(&copy);
    next.control.look_again().await;
    assert!(!may_write_to(&next, "copy/app") && !may_write_to(&next, "copy/other"));
    assert!(is_told(&open) && is_told(&reader), "{BEHIND}");
    assert!(!is_told(&elsewhere), "{NEEDLESS}");
}

/// It may be promoted by now, for all that is known: it isn't shut for good.
#[tokio::test]
async fn where_an_engine_is_only_silent_nothing_is_rolled_back() {
    let rig = Rig::new().await;
    let copy = ScriptedEngine::default();
    let next = with_a_standby(&rig, &copy).await;
    assert_eq!(code(&next.run(patient(1, 1)).await), ControlCode::Applied);
    let open = writer(&next, "copy/app");
    rig.engine.unreachable(true);
    copy.unreachable(true);
    next.control.look_again().await;
    assert!(!may_write_to(&next, "copy/app") && !is_told(&open), "{NEEDLESS}");
}

/// Nobody knows whether it was a standby: a fence is kept, and a fork pays for its silence.
#[tokio::test]
async fn what_may_write_at_an_engine_that_is_shut_for_its_silence_is_told_to_roll_back() {
    let rig = Rig::new().await;
    let copy = ScriptedEngine::default();
    copy.unreachable(true);
    let next = rig.restarted_with(engines([("old", &rig.engine), ("copy", &copy)]));
    next.control.recover().await.unwrap();
    assert_eq!(code(&next.run(patient(1, 1)).await), ControlCode::Applied);
    let open = writer(&next, "copy/app");
    copy.becomes(promoted());
    copy.unreachable(false);
    next.control.look_again().await;
    assert!(!may_write_to(&next, "copy/app") && is_told(&open), "{BEHIND}");
}

/// Nothing was promised of a fence that isn't acknowledged. When it is, nobody waits for a look.
#[tokio::test]
async fn a_fence_that_still_drains_rolls_nothing_back_until_it_is_proven() {
    let rig = Rig::new().await;
    let copy = ScriptedEngine::default();
    let next = with_a_standby(&rig, &copy).await;
    let (seat, lease) = next.writer(1, 11);
    assert_eq!(code(&next.run(at_once(1, 1)).await), ControlCode::Draining);
    let open = writer(&next, "copy/app");
    let elsewhere = writer(&next, "copy/other");
    promote(&copy);
    next.control.look_again().await;
    assert!(!may_write_to(&next, "copy/app"), "it is closed all the same");
    assert!(!is_told(&open), "{NEEDLESS}");
    lease.answered();
    drop(seat);
    assert_eq!(code(&next.run(at_once(1, 1)).await), ControlCode::Applied);
    assert!(is_told(&open), "{BEHIND}");
    assert!(!is_told(&elsewhere), "{NEEDLESS}");
}

/// What a look has found behind one operation's fence says nothing of the next one's: when that
/// went up the engine was a server of its own.
#[tokio::test]
async fn what_was_found_behind_an_earlier_fence_rolls_nothing_back() {
    let rig = Rig::new().await;
    let copy = ScriptedEngine::default();
    let next = with_a_standby(&rig, &copy).await;
    let (seat, lease) = next.writer(1, 11);
    assert_eq!(code(&next.run(at_once(1, 1)).await), ControlCode::Draining);
    let open = writer(&next, "copy/app");
    promote(&copy);
    next.control.look_again().await;
    let given_up = next.run(release(1, 2, FenceState::SourceDraining, 1)).await;
    assert_eq!(code(&given_up), ControlCode::Applied);
    lease.answered();
    drop(seat);
    let (expected_state, expected_revision) = (FenceState::Released, Revision(2));
    let later = Command { expected_state, expected_revision, ..at_once(2, 3) };
    assert_eq!(code(&next.run(later).await), ControlCode::Applied);
    assert!(!is_told(&open), "{NEEDLESS}");
}

/// Of a target nobody was told that its server takes no writes.
#[tokio::test]
async fn a_targets_server_under_another_name_rolls_nothing_back() {
    let rig = Rig::new().await;
    rig.engine.missing();
    assert_eq!(code(&rig.run(target(1)).await), ControlCode::Applied);
    let again = ScriptedEngine::default();
    again.becomes(other());
    let next = rig.restarted_with(engines([("old", &rig.engine), ("again", &again)]));
    next.control.recover().await.unwrap();
    let writers = ["again/app", "again/other"].map(|name| writer(&next, name));
    again.becomes(identity());
    next.control.look_again().await;
    assert!(!may_write_to(&next, "again/app") && !may_write_to(&next, "again/other"));
    assert!(!writers.iter().any(is_told), "{NEEDLESS}");
}

#[cfg(debug_assertions)]
#[test]
fn invariant_04_a_transaction_that_nobody_rolls_back_is_reported() {
    for check in [
        "control::tests::doubles::rollback::\
         what_may_write_at_a_promoted_standby_is_told_to_roll_back",
        "control::tests::doubles::rollback::\
         what_may_write_at_an_engine_that_is_shut_for_its_silence_is_told_to_roll_back",
        "control::tests::doubles::rollback::\
         a_fence_that_still_drains_rolls_nothing_back_until_it_is_proven",
    ] {
        crate::base::arm::missed(check, &[("double-rollback", "it commits behind the fence")])
            .unwrap();
    }
}
