//! Who was a standby of the fenced server, or silent, when a fence went up, and was promoted since.

use super::*;
use crate::control::doubles::tells_who;
use crate::fence::command::CommandKind;
use crate::fence::receipt::Outcome;
use crate::store::Commit;

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
        let why = why(&next, "copy/app").await;
        assert!(why.contains("was a standby") && why.contains("don't restart the proxy"), "{why}");
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
    let next = heard_behind_a_restart(&next, named).await;
    assert!(may_write_to(&next, "new/other"), "it is who it was before the fence");
    assert!(!may_write_to(&next, "new/app2") && !next.may_write());
}

fn promoted() -> Identity {
    Identity { timeline: Some(2), ..identity() }
}

/// The fence went up while `copy` was silent, and it was promoted behind it.
async fn silent_then_promoted(rig: &Rig, copy: &ScriptedEngine) -> Rig {
    copy.unreachable(true);
    let next = rig.restarted_with(engines([("old", &rig.engine), ("copy", copy)]));
    next.control.recover().await.unwrap();
    assert_eq!(code(&next.run(patient(1, 1)).await), ControlCode::Applied);
    copy.becomes(promoted());
    copy.unreachable(false);
    next
}

/// The next process starts while the second engine is silent, and looks again when it answers.
async fn heard_behind_a_restart(rig: &Rig, named: [(&str, &ScriptedEngine); 2]) -> Rig {
    let [_, (_, silent)] = named;
    silent.unreachable(true);
    for (_, engine) in named {
        engine.break_lock();
    }
    let next = rig.restarted_with(engines(named));
    next.control.recover().await.unwrap();
    silent.unreachable(false);
    next.control.look_again().await;
    next
}

/// A command of the fence's own operation that makes a record at `copy`.
fn at_copy(target: bool, command: u8) -> Command {
    let namespace = Namespace::parse("copy/made").unwrap();
    if target {
        return Command { namespace, ..crate::control::tests::targets::create(command) };
    }
    let arguments = Arguments::AcquireSourceWriteFence { identity: promoted(), drain_policy: None };
    Command { namespace, arguments, ..patient(1, command) }
}

/// What comes to be on the promoted standby itself would speak for it, at the latest behind a
/// restart.
#[tokio::test]
async fn invariant_04_nothing_comes_to_be_on_a_promoted_standby_that_speaks_for_it() {
    let what = "VIOLATION: a promoted standby is opened by what was made on it behind the fence";
    for (target, looked) in [(true, false), (true, true), (false, false), (false, true)] {
        let rig = Rig::new().await;
        let copy = ScriptedEngine::default();
        copy.has_database(!target, false);
        let next = silent_then_promoted(&rig, &copy).await;
        if looked {
            next.control.look_again().await;
            assert!(!may_write_to(&next, "copy/app"));
        }
        let answer = next.run(at_copy(target, 2)).await;
        for _ in 0..2 {
            next.control.look_again().await;
            assert!(!may_write_to(&next, "copy/app"), "{what}: {target} {looked}");
        }
        // The next process hears nothing of it either, before it speaks.
        copy.unreachable(true);
        for engine in [&rig.engine, &copy] {
            engine.break_lock();
        }
        let later = next.restarted_with(engines([("old", &rig.engine), ("copy", &copy)]));
        later.control.recover().await.unwrap();
        copy.unreachable(false);
        later.control.look_again().await;
        assert!(!may_write_to(&later, "copy/app"), "{what}, restarted: {target} {looked}");
        assert_eq!(code(&answer), ControlCode::StateUnavailable, "{answer:?}");
        let words = answer.message.clone().unwrap();
        for part in ["nothing was changed", "may have been a standby", "restart the proxy"] {
            assert!(words.contains(part), "{words}");
        }
        assert_eq!(copy.count("create"), 0, "its database was made");
    }
}

/// A record that is there all the same: it wasn't when the engine came to be followed.
#[tokio::test]
async fn invariant_04_a_record_of_behind_the_fence_says_nothing_of_before() {
    let rig = Rig::new().await;
    let copy = ScriptedEngine::default();
    let next = silent_then_promoted(&rig, &copy).await;
    next.control.look_again().await;
    let made = Namespace::parse("copy/made").unwrap();
    // Of the states that speak for an engine the one that needs no proof.
    stored(&next, &made, FenceState::TargetQuarantined).await;
    for _ in 0..2 {
        next.control.look_again().await;
        let what = "VIOLATION: a promoted standby is opened by its own record";
        assert!(!may_write_to(&next, "copy/app"), "{what}");
    }
}

/// A record of the fence's operation, of the server that was promoted.
async fn stored(rig: &Rig, namespace: &Namespace, state: FenceState) {
    let mut record = sample::record(state);
    record.namespace = namespace.clone();
    record.operation = op(1);
    record.revision = Revision(1);
    record.identity = Some(promoted());
    let view = sample::view(FenceState::Absent);
    let ask = sample::command(CommandKind::CreateTargetQuarantined, &view, 1, 9);
    let ask = Command { namespace: namespace.clone(), ..ask };
    let receipt = sample::receipt(&ask, Outcome::Applied, &record);
    let commit = Commit {
        namespace: namespace.clone(),
        expected_revision: Revision(0),
        next: Some(Box::new(record)),
        receipt,
    };
    let committed = rig.store.fence_commit(commit).await;
    committed.unwrap_or_else(|why| panic!("{state}: {why}"));
}

/// Which records speak for an engine that was silent.
#[test]
fn records_that_are_over_say_nothing_of_who_an_engine_is() {
    for state in FenceState::ALL {
        let stands = state.is_active() && state.is_durable() && state != FenceState::TargetAborted;
        assert_eq!(tells_who(state, false), stands, "{state}");
        let same = stands || state == FenceState::TargetWritable;
        assert_eq!(tells_who(state, true), same, "{state}");
    }
}

/// A fence on the fork's own database that was released: the name may be a standby's by now.
#[tokio::test]
async fn a_released_fence_of_before_says_nothing_of_an_engine_that_is_silent() {
    let rig = Rig::new().await;
    let fork = ScriptedEngine::default();
    fork.becomes(promoted());
    let named = [("old", &rig.engine), ("copy", &fork)];
    let next = rig.restarted_with(engines(named));
    next.control.recover().await.unwrap();
    let of_copy =
        |command: Command| Command { namespace: Namespace::parse("copy/made").unwrap(), ..command };
    assert_eq!(code(&next.run(at_copy(false, 2)).await), ControlCode::Applied);
    let released = next.run(of_copy(release(1, 3, FenceState::SourceWriteFenced, 2))).await;
    assert_eq!(code(&released), ControlCode::Applied, "{released:?}");
    assert_eq!(code(&next.run(patient(1, 1)).await), ControlCode::Applied);
    let next = heard_behind_a_restart(&next, named).await;
    assert!(!may_write_to(&next, "copy/other"), "VIOLATION: it may be a promoted standby");
}

/// An engine that doesn't say who it is, a standby, and another fence's server in any other way.
#[tokio::test]
async fn a_command_is_refused_where_its_engine_is_not_known_to_be_a_server_of_its_own() {
    let rig = Rig::new().await;
    let copy = ScriptedEngine::default();
    copy.becomes(promoted());
    copy.missing();
    let named = [("old", &rig.engine), ("copy", &copy)];
    let next = rig.restarted_with(engines(named));
    next.control.recover().await.unwrap();
    assert_eq!(code(&next.run(patient(1, 1)).await), ControlCode::Applied);
    copy.unanswered_at("server");
    let answer = next.run(at_copy(true, 2)).await;
    assert_eq!(answer.code, AnswerCode::Failed, "{answer:?}");
    let words = answer.message.clone().unwrap();
    assert!(words.contains("copy did not say in time which server it is"), "{words}");
    // Of another server: it is no standby of the fenced one.
    copy.becomes(other());
    copy.standby(true);
    let answer = next.run(at_copy(true, 2)).await;
    assert_eq!(code(&answer), ControlCode::PreconditionFailed, "{answer:?}");
    assert_eq!(answer.detail, Some(Detail::InvalidArgument));
    let words = answer.message.clone().unwrap();
    assert!(words.contains("copy is a standby") && words.contains("on a primary"), "{words}");
    // The url was moved to the fenced server, and nobody has looked yet.
    copy.standby(false);
    copy.becomes(identity());
    let answer = next.run(at_copy(true, 2)).await;
    assert_eq!(code(&answer), ControlCode::StateUnavailable, "{answer:?}");
    let words = answer.message.clone().unwrap();
    assert!(words.contains("copy is the server that old/app was fenced on"), "{words}");
    assert_eq!(copy.count("create"), 0);
    // While somebody looks: another server is another one, and a later timeline isn't known.
    let looking = next.control.looking.lock().await;
    assert_eq!(code(&next.run(at_copy(true, 2)).await), ControlCode::StateUnavailable);
    copy.becomes(promoted());
    let answer = next.run(at_copy(true, 2)).await;
    assert_eq!(answer.code, AnswerCode::Failed, "{answer:?}");
    let words = answer.message.clone().unwrap();
    assert!(words.contains("engines are being looked at"), "{words}");
    drop(looking);
    // A fork that has always said so is a server of its own. Nothing was kept of the refusals.
    assert_eq!(code(&next.run(at_copy(true, 2)).await), ControlCode::Applied);
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

#[cfg(debug_assertions)]
#[test]
fn invariant_04_a_record_that_speaks_for_a_promoted_standby_is_reported() {
    for (guard, check) in [
        (
            "shut-command",
            "control::tests::doubles::standby::\
             invariant_04_nothing_comes_to_be_on_a_promoted_standby_that_speaks_for_it",
        ),
        (
            "frozen-records",
            "control::tests::doubles::standby::\
             invariant_04_a_record_of_behind_the_fence_says_nothing_of_before",
        ),
    ] {
        crate::base::arm::missed(check, &[(guard, "a promoted standby is opened by")]).unwrap();
    }
}
