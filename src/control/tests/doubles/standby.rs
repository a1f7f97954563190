//! Who was a standby of the fenced server, or silent, when a fence went up, and was promoted since.

use super::*;
use crate::gate::slot::Order;

#[tokio::test]
async fn a_standby_that_is_promoted_behind_a_fence_is_closed_under_every_other_name() {
    let promoted = Identity { timeline: Some(2), ..identity() };
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    let copy = ScriptedEngine::default();
    copy.standby(true);
    let pair = rig.restarted_with(engines([("old", &rig.engine), ("copy", &copy)]));
    pair.control.recover().await.unwrap();
    assert!(may_read_from(&pair, "copy/app"), "a standby serves reads");
    assert!(pair.control.must_look().await, "it is asked again while the fence stands");
    copy.becomes(promoted.clone());
    copy.standby(false);
    pair.control.look_for_doubles().await.unwrap();
    assert!(!may_write_to(&pair, "copy/app"), "VIOLATION: a promoted standby takes writes");
    // Both names lead to it by now.
    let moved = pair.restarted_with(engines([("old", &copy), ("copy", &copy)]));
    moved.control.recover().await.unwrap();
    assert!(!moved.may_write() && !may_write_to(&moved, "copy/app"), "VIOLATION: behind a restart");
    // An older timeline is of a server that has gone its own way since before the fence.
    let earlier = ScriptedEngine::default();
    earlier.becomes(Identity { timeline: Some(0), ..identity() });
    let other = rig.restarted_with(engines([("old", &rig.engine), ("copy", &earlier)]));
    other.control.recover().await.unwrap();
    assert!(may_write_to(&other, "copy/app"));
}

/// The proxy was started before the fence: nobody has looked for it when it goes up.
#[tokio::test]
async fn a_standby_is_followed_behind_a_fence_that_is_acquired_after_the_start() {
    let rig = Rig::new().await;
    let (copy, fork) = (ScriptedEngine::default(), ScriptedEngine::default());
    copy.standby(true);
    fork.standby(true);
    let named = [("old", &rig.engine), ("copy", &copy), ("fork", &fork)];
    let next = rig.restarted_with(engines(named));
    next.control.recover().await.unwrap();
    let asked = copy.count("server");
    next.control.look_again().await;
    assert_eq!(copy.count("server"), asked, "no fence, no question");
    // Before the fence: it goes its own way from here on.
    fork.becomes(Identity { timeline: Some(2), ..identity() });
    fork.standby(false);
    next.run(patient(1, 1)).await;
    next.control.look_again().await;
    assert!(may_read_from(&next, "copy/app") && may_write_to(&next, "fork/app"));
    copy.becomes(Identity { timeline: Some(2), ..identity() });
    copy.standby(false);
    next.control.look_again().await;
    assert!(!may_write_to(&next, "copy/app"), "VIOLATION: a promoted standby takes writes");
}

/// Promoted before anybody has looked behind the fence, and the fenced server is gone.
#[tokio::test]
async fn invariant_04_a_standby_that_is_promoted_before_the_first_look_is_closed() {
    let promoted = Identity { timeline: Some(2), ..identity() };
    let what = "VIOLATION: a promoted standby takes writes, for good";
    for at in 0..3 {
        let rig = Rig::new().await;
        let copy = ScriptedEngine::default();
        copy.standby(true);
        let named = [("old", &rig.engine), ("copy", &copy)];
        let next = rig.restarted_with(engines(named));
        next.control.recover().await.unwrap();
        // It doesn't say again that it is one: what it said last counts.
        copy.unreachable(at == 1);
        next.run(patient(1, 1)).await;
        rig.engine.unreachable(true);
        copy.unreachable(false);
        copy.becomes(promoted.clone());
        copy.standby(false);
        if at == 2 {
            // Another fence's command hears of it first.
            let elsewhere = Namespace::parse("copy/elsewhere").unwrap();
            next.run(Command { namespace: elsewhere, ..patient(2, 1) }).await;
        }
        next.control.replace_engines(engines(named));
        next.control.look_for_doubles().await.unwrap();
        assert!(!may_write_to(&next, "copy/app"), "{what}");
        assert!(why(&next, "copy/app").await.contains("is the server that old/app"));
    }
}

/// It says nothing to this process before it is promoted, nor to the next one.
#[tokio::test]
async fn invariant_04_an_engine_that_first_speaks_behind_a_promotion_is_closed() {
    for (restarts, in_place) in [(false, true), (false, false), (true, true), (true, false)] {
        let rig = Rig::new().await;
        let copy = ScriptedEngine::default();
        copy.unreachable(true);
        let named = [("old", &rig.engine), ("copy", &copy)];
        let mut next = rig.restarted_with(engines(named));
        next.control.recover().await.unwrap();
        assert_eq!(code(&next.run(patient(1, 1)).await), ControlCode::Applied);
        if restarts {
            rig.engine.break_lock();
            next = next.restarted_with(engines(named));
            next.control.recover().await.unwrap();
        }
        rig.engine.unreachable(!in_place);
        copy.becomes(Identity { timeline: Some(2), ..identity() });
        copy.unreachable(false);
        for _ in 0..2 {
            next.control.look_again().await;
            let what = "VIOLATION: a promoted standby takes writes, for good";
            assert!(!may_write_to(&next, "copy/app"), "{what}: {restarts} {in_place}");
        }
        let words = why(&next, "copy/app").await;
        assert!(words.contains("had said nothing yet when that fence went up"), "{words}");
        assert!(words.contains("restart the proxy while copy answers"), "{words}");
        rig.engine.unreachable(false);
        let answer = next.run(release(1, 2, FenceState::SourceWriteFenced, 2)).await;
        assert_eq!(code(&answer), ControlCode::Applied, "{answer:?}");
        next.control.look_again().await;
        assert!(may_write_to(&next, "copy/app"), "no fence is left");
    }
}

/// What its silence costs a fork, and that the target's own server doesn't pay it.
#[tokio::test]
async fn a_fork_that_is_silent_at_a_start_is_open_where_the_operations_target_was_made_on_it() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    let fork = ScriptedEngine::default();
    fork.becomes(Identity { timeline: Some(2), ..identity() });
    let named = [("old", &rig.engine), ("new", &fork)];
    for has_target in [false, true] {
        rig.engine.break_lock();
        let mut next = rig.restarted_with(engines(named));
        next.control.recover().await.unwrap();
        if has_target {
            fork.missing();
            let namespace = Namespace::parse("new/app4").unwrap();
            let made =
                next.run(Command { namespace, ..crate::control::tests::targets::create(1) }).await;
            assert_eq!(code(&made), ControlCode::Applied, "{made:?}");
        }
        for silent in [true, false] {
            fork.unreachable(silent);
            rig.engine.break_lock();
            next = next.restarted_with(engines(named));
            next.control.recover().await.unwrap();
            fork.unreachable(false);
            next.control.look_again().await;
            let open = has_target || !silent;
            assert_eq!(may_write_to(&next, "new/other"), open, "{has_target} {silent}");
            assert!(!next.may_write() && !may_write_to(&next, "new/app4") || !has_target);
        }
    }
    // By the name alone it isn't: a server that was rebuilt there may be a promoted standby.
    fork.unreachable(true);
    rig.engine.break_lock();
    let next = rig.restarted_with(engines(named));
    next.control.recover().await.unwrap();
    fork.becomes(Identity { timeline: Some(3), ..identity() });
    fork.unreachable(false);
    next.control.look_again().await;
    assert!(!may_write_to(&next, "new/other"), "VIOLATION: it isn't who the record says");
}

/// The record of another operation, of before the fence, tells who it was as well.
#[tokio::test]
async fn a_fork_that_an_earlier_record_names_is_open_behind_its_silence() {
    let rig = Rig::new().await;
    let fork = ScriptedEngine::default();
    fork.becomes(Identity { timeline: Some(2), ..identity() });
    let named = [("old", &rig.engine), ("new", &fork)];
    let next = rig.restarted_with(engines(named));
    next.control.recover().await.unwrap();
    let namespace = Namespace::parse("new/app2").unwrap();
    let arguments = Arguments::AcquireSourceWriteFence {
        identity: Identity { timeline: Some(2), ..identity() },
        drain_policy: None,
    };
    let made = next.run(Command { namespace, arguments, ..patient(2, 1) }).await;
    assert_eq!(code(&made), ControlCode::Applied, "{made:?}");
    assert_eq!(code(&next.run(patient(1, 2)).await), ControlCode::Applied);
    fork.unreachable(true);
    for engine in [&rig.engine, &fork] {
        engine.break_lock();
    }
    let next = next.restarted_with(engines(named));
    next.control.recover().await.unwrap();
    fork.unreachable(false);
    next.control.look_again().await;
    assert!(may_write_to(&next, "new/other"), "it is who it was before the fence");
    assert!(!may_write_to(&next, "new/app2") && !next.may_write());
}

/// What began at a promoted standby before that was seen is rolled back, however late it commits.
#[tokio::test]
async fn a_transaction_at_a_standby_that_was_promoted_is_told_to_roll_back() {
    for promoted in [true, false] {
        let rig = Rig::new().await;
        let copy = ScriptedEngine::default();
        copy.standby(true);
        let next = rig.restarted_with(engines([("old", &rig.engine), ("copy", &copy)]));
        next.control.recover().await.unwrap();
        assert_eq!(code(&next.run(patient(1, 1)).await), ControlCode::Applied);
        let gate = next.control.gates.gate(&Namespace::parse("copy/app").unwrap());
        let seat = Seat::take(gate, SessionId(7), Card::default());
        let (_lease, _) = seat.begin(StatementClass::Write, 0).unwrap();
        if promoted {
            copy.becomes(Identity { timeline: Some(2), ..identity() });
            copy.standby(false);
        } else {
            // It may be promoted by now, for all that is known: it isn't shut for good.
            rig.engine.unreachable(true);
            copy.unreachable(true);
        }
        next.control.look_again().await;
        assert!(!may_write_to(&next, "copy/app"));
        let (orders, _) = seat.slot().take_orders();
        let told = orders.has(Order::ROLL_BACK);
        assert_eq!(told, promoted, "VIOLATION: it commits behind the fence, or was cut needlessly");
    }
}

#[cfg(debug_assertions)]
#[test]
fn invariant_04_a_standby_that_nobody_remembers_is_reported() {
    for check in [
        "control::tests::doubles::standby::\
         invariant_04_a_standby_that_is_promoted_before_the_first_look_is_closed",
        "control::tests::doubles::standby::\
         invariant_04_an_engine_that_first_speaks_behind_a_promotion_is_closed",
    ] {
        crate::base::arm::missed(check, &[("standby-follow", "a promoted standby")]).unwrap();
    }
}
