//! Engines that were renamed, swapped or removed while the proxy was down.

use super::*;
use crate::control::recovery::RecoverError;
use crate::fence::record::Identity;

fn other() -> Identity {
    Identity { engine_id: "9999".to_owned(), ..identity() }
}

/// Whether a session of another namespace may write.
fn may_write_to(rig: &Rig, namespace: &str) -> bool {
    is_admitted(rig, namespace, StatementClass::Write)
}

fn may_read_from(rig: &Rig, namespace: &str) -> bool {
    is_admitted(rig, namespace, StatementClass::Read)
}

fn is_admitted(rig: &Rig, namespace: &str, class: StatementClass) -> bool {
    let namespace = Namespace::parse(namespace).unwrap();
    let seat = Seat::take(rig.control.gates.gate(&namespace), SessionId(500), Card::default());
    match seat.begin(class, 0) {
        Ok((lease, _)) => {
            lease.unused();
            true
        }
        Err(_) => false,
    }
}

async fn why(rig: &Rig, namespace: &str) -> String {
    let namespace = Namespace::parse(namespace).unwrap();
    let sight = rig.control.inspect(&namespace, false).await.unwrap().sight;
    sight.unavailable.map(|why| why.reason).unwrap_or_default()
}

#[tokio::test]
async fn a_fence_whose_engine_is_not_configured_stops_the_start() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    rig.engine.break_lock();
    // The same server, renamed: `prod/app` is the fenced database.
    let renamed = rig.restarted_with(engines([("prod", &rig.engine)]));
    let error = renamed.control.recover().await.unwrap_err();
    assert!(matches!(error, RecoverError::Homeless { .. }), "{error}");
    let words = error.to_string();
    for part in ["old/app is SOURCE_WRITE_FENCED on engine old", "under its name", "release"] {
        assert!(words.contains(part), "{words}");
    }
    assert!(!renamed.control.ready() && !may_write_to(&renamed, "prod/app"));
    // Put back, released, renamed: that is the way.
    let back = rig.restarted();
    back.control.recover().await.unwrap();
    let answer = back.run(release(1, 2, FenceState::SourceWriteFenced, 2)).await;
    assert_eq!(code(&answer), ControlCode::Applied);
    let renamed = rig.restarted_with(engines([("prod", &rig.engine)]));
    renamed.control.recover().await.unwrap();
    assert!(may_write_to(&renamed, "prod/app"));
}

#[tokio::test]
async fn a_drain_whose_engine_is_not_configured_stops_the_start() {
    let rig = Rig::new().await;
    let (_seat, _lease) = rig.writer(1, 11);
    assert_eq!(code(&rig.run(at_once(1, 1)).await), ControlCode::Draining);
    let renamed = rig.restarted_with(engines([("prod", &rig.engine)]));
    assert!(renamed.control.recover().await.is_err());
}

#[tokio::test]
async fn the_fenced_server_under_another_name_is_closed_until_the_fence_is_released() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    let target = ScriptedEngine::default();
    target.becomes(other());
    // The urls were swapped: `new` is the fenced server now.
    let swapped = rig.restarted_with(engines([("old", &target), ("new", &rig.engine)]));
    swapped.control.recover().await.unwrap();
    assert!(!swapped.may_write() && !may_write_to(&swapped, "new/app"));
    assert!(!may_write_to(&swapped, "new/seen_later"), "and so is every gate made later");
    let why = why(&swapped, "new/app").await;
    assert!(why.contains("old/app") && why.contains("another name"), "{why}");
    swapped.control.look_again().await;
    assert!(!may_write_to(&swapped, "new/app"));
    // A command there publishes what it reads; the gate stays as it is.
    let refused = Command {
        namespace: Namespace::parse("new/app").unwrap(),
        ..release(5, 5, FenceState::SourceWriteFenced, 2)
    };
    swapped.run(refused).await;
    assert!(!may_write_to(&swapped, "new/app"));
    let answer = swapped.run(release(1, 2, FenceState::SourceWriteFenced, 2)).await;
    assert_eq!(code(&answer), ControlCode::Applied);
    swapped.control.look_again().await;
    assert!(may_write_to(&swapped, "new/app") && may_write_to(&swapped, "new/seen_later"));
}

#[tokio::test]
async fn an_engine_that_has_not_said_who_it_is_is_closed_while_the_fenced_one_is_not_seen() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    let target = ScriptedEngine::default();
    target.becomes(other());
    target.unreachable(true);
    rig.engine.unreachable(true);
    let next = rig.restarted_with(engines([("old", &rig.engine), ("new", &target)]));
    next.control.recover().await.unwrap();
    assert!(!may_write_to(&next, "new/app"));
    assert!(why(&next, "new/app").await.contains("may be the server"));
    // It answers: it is another one. The fenced one is still away.
    target.unreachable(false);
    next.control.look_again().await;
    assert!(may_write_to(&next, "new/app") && !next.may_write());
}

#[tokio::test]
async fn a_fenced_server_that_is_seen_in_its_place_leaves_the_others_alone() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    rig.engine.break_lock();
    let away = ScriptedEngine::default();
    away.unreachable(true);
    // A standby goes by its primary's names, and admits no write.
    let standby = ScriptedEngine::default();
    standby.standby(true);
    let named = engines([("old", &rig.engine), ("new", &away), ("replica", &standby)]);
    let next = rig.restarted_with(named);
    next.control.recover().await.unwrap();
    assert!(may_write_to(&next, "new/app") && may_write_to(&next, "replica/app"));
    assert!(!next.may_write());
}

#[tokio::test]
async fn a_new_engine_is_asked_before_it_admits_anything() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    let named = engines([("old", &rig.engine), ("prod", &rig.engine)]);
    rig.control.replace_engines(named);
    assert!(!may_write_to(&rig, "prod/app"), "at once");
    rig.until("the look", |rig| {
        let shut = rig.control.gates.shut_engines();
        shut.values().any(|why| why.contains("another name"))
    })
    .await;
    assert!(!may_write_to(&rig, "prod/app"));
    let target = ScriptedEngine::default();
    target.becomes(other());
    rig.control.replace_engines(engines([("old", &rig.engine), ("new", &target)]));
    rig.until("the look", |rig| may_write_to(rig, "new/app")).await;
}

/// The mark of a new engine doesn't say that its gates are closed: one may have been made, and be
/// open, while the name was another server's.
#[tokio::test]
async fn a_gate_that_is_open_from_an_earlier_engine_of_the_name_is_closed_with_the_engine() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    let target = ScriptedEngine::default();
    target.becomes(other());
    rig.control.replace_engines(engines([("old", &rig.engine), ("new", &target)]));
    rig.until("the look", |rig| may_write_to(rig, "new/app")).await;
    rig.control.replace_engines(engines([("old", &rig.engine)]));
    // The name comes back, for the fenced server.
    rig.control.replace_engines(engines([("old", &rig.engine), ("new", &rig.engine)]));
    let is_told = |rig: &Rig| {
        let shut = rig.control.gates.shut_engines();
        shut.values().any(|why| why.contains("another name"))
    };
    rig.until("the look", is_told).await;
    let closed = |rig: &Rig| !may_write_to(rig, "new/app") && !may_read_from(rig, "new/app");
    rig.until("the gate closed", closed).await;
    assert!(!may_write_to(&rig, "new/seen_later"));
    rig.control.look_again().await;
    assert!(closed(&rig), "VIOLATION: the fenced database is written to under another name");
}

#[tokio::test]
async fn a_look_that_is_under_way_leaves_the_mark_of_an_engine_that_comes_meanwhile() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    let asked = rig.engine.count("server");
    let permits = rig.engine.park_at_server();
    let control = Arc::clone(&rig.control);
    let look = tokio::spawn(async move { control.look_for_doubles().await.map(|_shut| ()) });
    rig.until("the question", |rig| rig.engine.count("server") > asked).await;
    // It has taken its sight of the engines: this one isn't among them.
    rig.control.replace_engines(engines([("old", &rig.engine), ("prod", &rig.engine)]));
    permits.add_permits(1);
    // The look that follows asks both, and is answered by nobody: the first one is over.
    rig.until("the next look", |rig| rig.engine.count("server") >= asked + 3).await;
    let what = "VIOLATION: an engine that nobody has asked yet admits writes";
    assert!(!may_write_to(&rig, "prod/app"), "{what}");
    let why = rig.control.gates.shut_engines().values().next().cloned();
    assert!(why.is_some_and(|why| why.contains("is new")), "{what}");
    permits.add_permits(100);
    look.await.unwrap().unwrap();
}

/// A fence of its own on a namespace doesn't admit its reads where the engine is another fence's.
#[tokio::test]
async fn a_write_fence_admits_no_reads_where_its_engine_is_shut() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    let target = ScriptedEngine::default();
    target.becomes(other());
    let both = rig.restarted_with(engines([("old", &rig.engine), ("new", &target)]));
    both.control.recover().await.unwrap();
    let of_new = |command: Command| Command {
        namespace: Namespace::parse("new/app").unwrap(),
        arguments: Arguments::AcquireSourceWriteFence {
            identity: other(),
            drain_policy: Some(policy(60_000, OnDeadline::Fail)),
        },
        ..command
    };
    let answer = both.run(of_new(patient(2, 2))).await;
    assert_eq!(code(&answer), ControlCode::Applied, "{answer:?}");
    assert!(may_read_from(&both, "new/app") && !may_write_to(&both, "new/app"));
    // The urls were swapped: each engine is the one that the other fence is of.
    let swapped = rig.restarted_with(engines([("old", &target), ("new", &rig.engine)]));
    swapped.control.recover().await.unwrap();
    let what = "VIOLATION: reads are admitted at an engine that is shut";
    assert!(!may_read_from(&swapped, "new/app") && !may_read_from(&swapped, "old/app"), "{what}");
    // A replay publishes what is durable: here nothing opens by it.
    let answer = swapped.run(of_new(patient(2, 2))).await;
    assert!(answer.replayed, "{answer:?}");
    assert!(!may_read_from(&swapped, "new/app"), "{what}");
    assert!(!may_write_to(&swapped, "new/app"), "{what}");
    // Nor by a commit.
    let released = swapped
        .run(Command {
            namespace: Namespace::parse("new/app").unwrap(),
            ..release(2, 3, FenceState::SourceWriteFenced, 2)
        })
        .await;
    assert_eq!(code(&released), ControlCode::Applied, "{released:?}");
    assert!(!may_read_from(&swapped, "new/app") && !may_write_to(&swapped, "new/app"), "{what}");
}
