//! Engines that were renamed, swapped or removed while the proxy was down.

use super::*;
use crate::base::run::EngineRun;
use crate::control::doubles::{Beside, Known, beside};
use crate::control::port::Server;
use crate::control::recovery::RecoverError;
use crate::fence::record::Identity;
use crate::fence::verdict::Purpose;

mod rollback;
mod standby;

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

/// A name that is moved to the fenced server while its fence stands.
#[tokio::test]
async fn an_engine_that_becomes_the_fenced_server_behind_a_fence_is_shut() {
    let rig = Rig::new().await;
    let moved = ScriptedEngine::default();
    moved.becomes(other());
    let next = rig.restarted_with(engines([("old", &rig.engine), ("new", &moved)]));
    next.control.recover().await.unwrap();
    next.run(patient(1, 1)).await;
    next.control.look_again().await;
    assert!(may_write_to(&next, "new/app"));
    moved.becomes(identity());
    next.control.look_again().await;
    assert!(!may_write_to(&next, "new/app"), "VIOLATION: the fenced server under another name");
    moved.becomes(other());
    next.control.look_again().await;
    assert!(may_write_to(&next, "new/app"));
}

/// The source is shut down behind its move, and the target's server is slow for a moment.
#[tokio::test]
async fn an_engine_that_has_said_who_it_is_stays_open_while_it_is_silent() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    let target = ScriptedEngine::default();
    target.becomes(other());
    let next = rig.restarted_with(engines([("old", &rig.engine), ("new", &target)]));
    next.control.recover().await.unwrap();
    rig.engine.unreachable(true);
    target.unreachable(true);
    next.control.look_for_doubles().await.unwrap();
    assert!(may_write_to(&next, "new/app") && !next.may_write());
}

/// A stall of the engines' answers: nothing is taken back that an engine has said of itself.
#[tokio::test]
async fn a_stall_shuts_no_engine_that_was_another_server() {
    let rig = Rig::new().await;
    let (standby, target, away) =
        (ScriptedEngine::default(), ScriptedEngine::default(), ScriptedEngine::default());
    standby.standby(true);
    target.becomes(other());
    away.unreachable(true);
    let named = [("old", &rig.engine), ("rep", &standby), ("new", &target), ("away", &away)];
    let next = rig.restarted_with(engines(named));
    next.control.recover().await.unwrap();
    next.run(patient(1, 1)).await;
    next.control.look_again().await;
    let fenced = Namespace::parse("new/app4").unwrap();
    target.missing();
    let made = next.run(Command { namespace: fenced.clone(), ..super::targets::create(1) }).await;
    assert_eq!(code(&made), ControlCode::Applied, "{made:?}");
    next.control.look_again().await;
    let issued = next.control.issue_capability(&fenced, Purpose::Import, op(1), Revision(1));
    let issued = issued.unwrap();
    for engine in [&rig.engine, &standby, &target] {
        engine.unreachable(true);
    }
    assert!(next.control.must_look().await);
    for _ in 0..2 {
        next.control.look_again().await;
        assert!(may_write_to(&next, "new/other"), "it is another server, by its own word");
        assert!(issued.capability().is_live(), "an import is cut off by a stall");
        // One that never spoke, and one that may be promoted by now, may be the fenced one.
        assert!(!may_write_to(&next, "away/app") && !may_read_from(&next, "rep/app"));
    }
    // Of both fences the one that it was a standby of, though the target's is the first.
    let words = why(&next, "rep/app").await;
    assert!(words.contains("was a standby of the server that old/app"), "{words}");
    standby.unreachable(false);
    next.control.look_again().await;
    assert!(may_read_from(&next, "rep/app") && !may_write_to(&next, "away/app"));
}

/// The table in the header of `control/doubles.rs`, cell by cell.
#[test]
fn each_cell_of_what_an_engine_is_beside_a_fence() {
    let fence = Identity { timeline: Some(3), ..identity() };
    let server = |identity: &Identity, timeline, standby| {
        let engine_id = identity.engine_id.clone();
        Server { run: EngineRun { engine_id, timeline: Some(timeline), started: 0 }, standby }
    };
    let words: [(&str, Option<Server>); 7] = [
        ("nothing", None),
        ("fenced", Some(server(&fence, 3, false))),
        ("standby", Some(server(&fence, 3, true))),
        ("later", Some(server(&fence, 4, false))),
        ("earlier", Some(server(&fence, 2, false))),
        ("other", Some(server(&other(), 3, false))),
        ("standby of another", Some(server(&other(), 3, true))),
    ];
    for (word, said) in &words {
        for bits in 0..32_u8 {
            let bit = |at: u8| bits & (1 << at) != 0;
            let (silent, shut, followed, in_place) =
                (bit(0) || said.is_none(), bit(1), bit(2), bit(3));
            let own = server(&fence, if bit(4) { 4 } else { 3 }, false);
            let said = said.as_ref();
            let known = Known { said, silent, shut, followed, in_place, own: Some(&own) };
            let may_become = matches!(*word, "nothing" | "standby");
            let wanted = match *word {
                "fenced" => Beside::Fenced,
                "later" if followed || bit(4) => Beside::Fenced,
                _ if silent && shut => Beside::MayBe,
                _ if silent && may_become && !in_place => Beside::MayBe,
                _ if may_become => Beside::AskedOn,
                _ => Beside::Another,
            };
            assert_eq!(beside(&fence, &known), wanted, "{word} {bits:05b}");
        }
    }
}

/// Whoever reads why an engine is shut isn't told to open the source beside its target.
#[tokio::test]
async fn a_release_is_not_advised_where_the_operation_has_enabled_a_target() {
    for (operation, beside) in [(1, true), (2, false)] {
        let rig = Rig::new().await;
        rig.run(patient(1, 1)).await;
        super::target_words::stored_target(&rig, operation, FenceState::TargetWritable).await;
        let silent = ScriptedEngine::default();
        silent.unreachable(true);
        let named = [("old", &rig.engine), ("alias", &rig.engine), ("new", &silent)];
        rig.control.replace_engines(engines(named));
        rig.until("the look", |rig| {
            let shut = rig.control.gates.shut_engines();
            shut.values().all(|why| !why.contains("is being asked"))
        })
        .await;
        let shut = rig.control.gates.shut_engines();
        assert_eq!(shut.len(), 2, "{shut:?}");
        for why in shut.values() {
            assert_eq!(why.contains("Don't release the fence of old/app"), beside, "{why}");
            assert_eq!(why.contains("writes of old/moved"), beside, "{why}");
            assert_eq!(why.contains("or release the fence of old/app"), !beside, "{why}");
        }
    }
}

/// A target's server that was made from the source's before the fence has its id and a later
/// timeline, and is open beside it, also behind a look.
#[tokio::test]
async fn a_server_that_was_forked_before_the_fence_is_another_one() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    let fork = ScriptedEngine::default();
    fork.becomes(Identity { timeline: Some(2), ..identity() });
    let next = rig.restarted_with(engines([("old", &rig.engine), ("new", &fork)]));
    next.control.recover().await.unwrap();
    next.control.look_for_doubles().await.unwrap();
    assert!(!next.may_write() && may_write_to(&next, "new/app"));
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

/// A question without an answer takes nothing back of what an earlier answer said.
#[tokio::test]
async fn an_engine_that_was_seen_to_be_the_fenced_server_stays_shut_while_it_is_silent() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    rig.engine.break_lock();
    let alias = ScriptedEngine::default();
    let next = rig.restarted_with(engines([("old", &rig.engine), ("alias", &alias)]));
    next.control.recover().await.unwrap();
    assert!(!may_write_to(&next, "alias/app"));
    alias.unreachable(true);
    let what = "VIOLATION: the fenced server is opened by a question that it didn't answer";
    for _ in 0..2 {
        next.control.look_again().await;
        assert!(!may_write_to(&next, "alias/app"), "{what}");
        assert!(why(&next, "alias/app").await.contains("is the server that old/app"));
    }
    // Its own word as another server opens it, and so does the end of the fence.
    alias.unreachable(false);
    alias.becomes(other());
    next.control.look_again().await;
    assert!(may_write_to(&next, "alias/app") && !next.may_write());
    let again = rig.restarted_with(engines([("old", &rig.engine), ("alias", &rig.engine)]));
    again.control.recover().await.unwrap();
    assert!(!may_write_to(&again, "alias/app"));
    let answer = again.run(release(1, 2, FenceState::SourceWriteFenced, 2)).await;
    assert_eq!(code(&answer), ControlCode::Applied, "{answer:?}");
    rig.engine.unreachable(true);
    again.control.look_again().await;
    assert!(may_write_to(&again, "alias/app"), "no fence is left");
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

/// The name that comes back with a reload has a gate, made for the record of a fence that is over.
#[tokio::test]
async fn a_gate_that_was_there_before_its_engine_came_is_closed_with_it() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    let answer = rig.run(release(1, 2, FenceState::SourceWriteFenced, 2)).await;
    assert_eq!(code(&answer), ControlCode::Applied, "{answer:?}");
    // Renamed, and fenced under its new name.
    let renamed = rig.restarted_with(engines([("prod", &rig.engine)]));
    renamed.control.recover().await.unwrap();
    let prod = Namespace::parse("prod/app").unwrap();
    let answer = renamed.run(Command { namespace: prod, ..patient(2, 3) }).await;
    assert_eq!(code(&answer), ControlCode::Applied, "{answer:?}");
    assert!(!may_write_to(&renamed, "prod/app") && renamed.may_write());
    let both = engines([("prod", &rig.engine), ("old", &rig.engine)]);
    renamed.control.replace_engines(both);
    assert!(!renamed.may_write(), "VIOLATION: the fenced database is open under its old name");
}

/// A release that was about to open a gate when its engine was found to be the fenced one.
#[tokio::test]
async fn what_is_published_while_an_engine_is_being_shut_opens_nothing() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    rig.run(release(1, 2, FenceState::SourceWriteFenced, 2)).await;
    let truth = rig.control.truth(&namespace(), false).await.unwrap();
    let persisted = truth.persisted.unwrap();
    let rules = rig.control.rules(&namespace(), persisted.record());
    assert!(rig.control.apply(&rig.gate(), &persisted, rules) && rig.may_write());
    // It has asked whether the engine is shut. Now it is, and the gate is closed with it.
    let engine = namespace().engine().clone();
    rig.control.gates.shut([(engine, "a double".to_owned())].into());
    rig.gate().close_as_unknown();
    let applied = rig.control.apply(&rig.gate(), &persisted, rules);
    assert!(!rig.may_write(), "VIOLATION: a gate is open at an engine that is shut");
    assert!(!applied);
}

/// At a start an engine that is silent isn't shut while the fenced one is in its place; but it is
/// asked until it has answered.
#[tokio::test]
async fn an_engine_that_did_not_answer_at_the_start_is_asked_until_it_does() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    rig.engine.break_lock();
    let (alias, target) = (ScriptedEngine::default(), ScriptedEngine::default());
    alias.unreachable(true);
    target.unreachable(true);
    target.becomes(other());
    let named = engines([("old", &rig.engine), ("alias", &alias), ("new", &target)]);
    let next = rig.restarted_with(named);
    next.control.recover().await.unwrap();
    assert!(may_write_to(&next, "alias/app") && may_write_to(&next, "new/app"));
    next.control.look_again().await;
    alias.unreachable(false);
    next.control.look_again().await;
    let what = "VIOLATION: nobody listens when the fenced server says its other name";
    assert!(!may_write_to(&next, "alias/app") && !may_write_to(&next, "alias/later"), "{what}");
    assert!(may_write_to(&next, "new/app"));
    // When all have answered, and none is shut, nobody is asked more than who it is.
    target.unreachable(false);
    alias.becomes(other());
    next.control.look_again().await;
    assert!(may_write_to(&next, "alias/app") && may_write_to(&next, "new/app"));
    let asked = (target.count("server"), rig.engine.count("identity"));
    next.control.look_again().await;
    assert_eq!((target.count("server"), rig.engine.count("identity")), (asked.0 + 1, asked.1));
}

#[tokio::test]
async fn a_new_engine_that_does_not_answer_stays_shut_until_it_does() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    let (alias, target) = (ScriptedEngine::default(), ScriptedEngine::default());
    alias.unreachable(true);
    target.unreachable(true);
    target.becomes(other());
    let named = [("old", &rig.engine), ("alias", &alias), ("new", &target)];
    rig.control.replace_engines(engines(named));
    rig.until("the look", |_| alias.count("server") + target.count("server") >= 2).await;
    let what = "VIOLATION: an engine is opened that has not said which server it is";
    for _ in 0..2 {
        rig.control.look_again().await;
        assert!(!may_write_to(&rig, "alias/app") && !may_write_to(&rig, "new/app"), "{what}");
    }
    let why = why(&rig, "new/app").await;
    assert!(why.contains("may be the server") && why.contains("new does not answer"), "{why}");
    assert!(!why.contains("old is not seen"), "it is: {why}");
    alias.unreachable(false);
    target.unreachable(false);
    rig.control.look_again().await;
    assert!(may_write_to(&rig, "new/app") && !may_write_to(&rig, "alias/app"));
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

fn target(command: u8) -> Command {
    super::targets::create(command)
}

#[tokio::test]
async fn a_targets_server_under_another_name_is_closed_until_the_target_is_enabled_or_aborted() {
    let rig = Rig::new().await;
    rig.engine.missing();
    assert_eq!(code(&rig.run(target(1)).await), ControlCode::Applied);
    assert_eq!(rig.inspect().await.sight.record.unwrap().identity, Some(identity()));
    let elsewhere = ScriptedEngine::default();
    elsewhere.becomes(other());
    let names = [("old", &rig.engine), ("again", &rig.engine), ("new", &elsewhere)];
    let after = rig.restarted_with(engines(names));
    after.control.recover().await.unwrap();
    assert!(!may_read_from(&after, "again/app") && !may_write_to(&after, "again/app"));
    assert!(may_write_to(&after, "new/app"), "another server");
    let why = why(&after, "again/app").await;
    assert!(why.contains("old/app") && why.contains("abort it"), "{why}");
    let abort = Command {
        expected_state: FenceState::TargetQuarantined,
        arguments: Arguments::AbortQuarantinedTarget,
        expected_revision: Revision(1),
        ..target(2)
    };
    assert_eq!(code(&after.run(abort).await), ControlCode::Applied);
    after.control.look_again().await;
    assert!(may_write_to(&after, "again/app"), "an aborted one is closed by its name alone");
    assert!(!after.may_write());
}

/// An aborted target and the settings of a later time: its server is gone, and its name is not.
#[tokio::test]
async fn an_aborted_targets_engine_may_leave_the_settings_and_come_back() {
    let rig = Rig::new().await;
    rig.engine.missing();
    assert_eq!(code(&rig.run(target(1)).await), ControlCode::Applied);
    let without = || rig.restarted_with(engines([("prod", &rig.engine)]));
    let error = without().control.recover().await.unwrap_err().to_string();
    for part in ["old/app is TARGET_QUARANTINED on engine old", "release", "abort it"] {
        assert!(error.contains(part), "{error}");
    }
    let abort = Command {
        expected_state: FenceState::TargetQuarantined,
        arguments: Arguments::AbortQuarantinedTarget,
        expected_revision: Revision(1),
        ..target(2)
    };
    assert_eq!(code(&rig.run(abort).await), ControlCode::Applied);
    let after = without();
    after.control.recover().await.unwrap();
    assert!(after.control.ready() && may_write_to(&after, "prod/app"));
    assert!(!after.may_write(), "its name stays closed");
    let back = rig.restarted();
    back.control.recover().await.unwrap();
    assert!(!back.may_write(), "also where the engine is there again");
}
