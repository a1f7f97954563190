//! What is said of targets, against a scripted engine: the trail and the list of capabilities, and
//! what an answer says that would else pass for good news.

use super::targets::{ask, create, created, importer, seal, validated};
use super::*;
use crate::fence::command::CommandKind;
use crate::fence::receipt::Outcome;
use crate::fence::record::{FenceRecord, ValidationResult};
use crate::fence::sample;
use crate::fence::verdict::Purpose;
use crate::store::Commit;
use crate::telemetry::audit;
use crate::telemetry::trace::tests::Captured;

/// The audit events among what was logged.
fn trail(captured: &Captured) -> Vec<serde_json::Value> {
    let lines = captured.text();
    let events = lines.lines().map(|line| serde_json::from_str(line).unwrap());
    events.filter(|event: &serde_json::Value| event["target"] == audit::TARGET).collect()
}

#[tokio::test]
async fn a_capability_is_in_the_trail_once_whatever_is_answered_and_its_secret_never() {
    let rig = created().await;
    let give = |operation: u8, revision| {
        let revision = Revision(revision);
        rig.control.issue_capability(&namespace(), Purpose::Import, op(operation), revision)
    };
    let captured = Captured::default();
    let guard = captured.install();
    let issued = give(1, 1).unwrap();
    give(2, 1).unwrap_err();
    give(1, 7).unwrap_err();
    let nobody = Namespace::parse("old/nobody").unwrap();
    let none = rig.control.issue_capability(&nobody, Purpose::Validation, op(1), Revision(1));
    none.unwrap_err();
    drop(guard);
    let events = trail(&captured);
    let told: Vec<_> = events.iter().map(|event| event["outcome"].as_str().unwrap()).collect();
    let refused = "OPERATION_CAPABILITY_REQUIRED";
    assert_eq!(
        told,
        ["APPLIED", "FENCE_OWNED_BY_ANOTHER_OPERATION", "FENCE_REVISION_MISMATCH", refused]
    );
    for event in &events {
        assert_eq!(event["event"], "namespace_fence_capability", "{event}");
        assert!(event["server_instance"].is_string(), "{event}");
    }
    let first = &events[0];
    assert_eq!((&first["namespace"], &first["purpose"]), (&"old/app".into(), &"import".into()));
    assert_eq!((&first["capability"], &first["revision"]), (&1.into(), &1.into()));
    assert_eq!(first["state"], "TARGET_QUARANTINED");
    assert_eq!(first["operation_id"], op(1).to_string());
    assert!(first.get("error").is_none() && first.get("expected_revision").is_none());
    assert_eq!(events[2]["expected_revision"], 7);
    assert!(events[2]["error"].as_str().unwrap().contains("not at 7"), "{}", events[2]);
    assert!(events[3].get("capability").is_none());
    let secret = issued.secret().expose().strip_prefix("fwc_").unwrap();
    assert!(!captured.text().contains(secret), "VIOLATION: a secret was logged");
}

#[tokio::test]
async fn live_capabilities_are_listed_with_who_bears_them_until_the_target_moves() {
    let rig = created().await;
    let give = || {
        let given = rig.control.issue_capability(&namespace(), Purpose::Import, op(1), Revision(1));
        given.unwrap()
    };
    let listed = async || rig.inspect().await.sight.capabilities;
    assert_eq!(listed().await, []);
    let (first, _) = (give(), give());
    let seat = rig.seat(6, 66).bearing(first.capability().clone());
    let (other, _) = importer(&rig);
    let seen = listed().await;
    let shown: Vec<_> = seen.iter().map(|one| (one.number, one.sessions)).collect();
    assert_eq!(shown, [(1, 1), (2, 0), (3, 1)]);
    let now = rig.clock.now_ms();
    assert!(seen.iter().all(|one| one.operation == op(1) && one.revision == Revision(1)));
    assert!(seen.iter().all(|one| one.purpose == Purpose::Import && one.issued_at_ms <= now));
    assert!(seen.iter().all(|one| one.issued_at_ms > 0));
    let line = rig.control.namespaces().into_iter().find(|line| line.namespace == namespace());
    assert_eq!(line.unwrap().capabilities, seen);
    drop((seat, other));
    assert!(listed().await.iter().all(|one| one.sessions == 0));
    rig.run(seal(2, 60_000)).await;
    assert_eq!(listed().await, [], "they died with the revision");
    rig.control.issue_capability(&namespace(), Purpose::Validation, op(1), Revision(3)).unwrap();
    let seen = listed().await;
    assert_eq!((seen[0].number, seen[0].purpose), (4, Purpose::Validation));
}

fn words(answer: &Answer) -> &str {
    answer.message.as_deref().unwrap_or_default()
}

#[tokio::test]
async fn options_that_nobody_compared_are_told() {
    let rig = created().await;
    let answer = rig.run(create(1)).await;
    assert!(answer.replayed && answer.message.is_none(), "the very command: {:?}", answer.message);
    let mut other = create(2);
    other.arguments = Arguments::CreateTargetQuarantined {
        owner: Some("somebody".to_owned()),
        encoding: None,
        locale: None,
        template: None,
    };
    let answer = rig.run(other).await;
    assert_eq!(code(&answer), ControlCode::AlreadyApplied);
    assert!(words(&answer).contains("owner, encoding, locale and template"), "{}", words(&answer));
    assert!(words(&answer).contains("were not compared"), "{}", words(&answer));
}

#[tokio::test]
async fn a_target_that_is_not_published_says_what_is_missing() {
    let rig = created().await;
    let publish = |command, revision| {
        let arguments = Arguments::PublishTargetReadableWriteFenced;
        ask(command, FenceState::TargetValidating, revision, arguments)
    };
    rig.run(seal(2, 60_000)).await;
    let answer = rig.run(publish(3, 3)).await;
    assert_eq!(answer.detail, Some(Detail::ValidationReceiptRequired));
    assert!(words(&answer).contains("no validation is recorded"), "{}", words(&answer));
    assert!(words(&answer).contains("ctl validate old/app --operation"), "{}", words(&answer));
    let answer = rig.run(validated(4, 3, ValidationResult::Failed)).await;
    assert!(words(&answer).contains("can't be published"), "{}", words(&answer));
    let answer = rig.run(publish(5, 4)).await;
    assert!(words(&answer).contains("was recorded as failed"), "{}", words(&answer));
    let answer = rig.run(validated(6, 4, ValidationResult::Ok)).await;
    assert_eq!(answer.message, None);
    assert_eq!(code(&rig.run(publish(7, 5)).await), ControlCode::Applied);
}

#[tokio::test]
async fn what_is_legal_of_a_target_names_what_is_no_command_too() {
    let rig = created().await;
    let early =
        |command, state, revision| ask(command, state, revision, Arguments::EnableTargetWrites);
    let answer = rig.run(early(2, FenceState::TargetQuarantined, 1)).await;
    assert!(words(&answer).contains(", import-capability"), "{}", words(&answer));
    assert!(!words(&answer).contains("validation-query"), "{}", words(&answer));
    rig.run(seal(3, 60_000)).await;
    let answer = rig.run(early(4, FenceState::TargetValidating, 3)).await;
    let legal = "import-capability --purpose validation, validation-query";
    assert!(words(&answer).contains(legal), "{}", words(&answer));
    let abort = ask(5, FenceState::TargetValidating, 3, Arguments::AbortQuarantinedTarget);
    let answer = rig.run(abort).await;
    assert!(words(&answer).contains("stays closed for ever"), "{}", words(&answer));
    let answer = rig.run(create(6)).await;
    assert_eq!(answer.detail, Some(Detail::OperationFinished));
    assert!(!words(&answer).contains("import-capability"), "{}", words(&answer));
    let answer = rig.run(Command { operation: op(2), ..create(7) }).await;
    assert!(words(&answer).contains("aborted target's name isn't freed"), "{}", words(&answer));
    assert_eq!(CommandKind::ALL.len(), 11, "a new command has its say in `notes.rs`");
}

/// A target's record in the store, as another time has left it. No gate knows of it.
pub(super) async fn stored_target(rig: &Rig, operation: u8, state: FenceState) -> FenceRecord {
    let mut target = sample::record(state);
    target.namespace = Namespace::parse("old/moved").unwrap();
    target.operation = op(operation);
    target.revision = Revision(1);
    let ask = sample::command(
        CommandKind::CreateTargetQuarantined,
        &sample::view(FenceState::Absent),
        operation,
        9,
    );
    let ask = Command { namespace: target.namespace.clone(), ..ask };
    let receipt = sample::receipt(&ask, Outcome::Applied, &target);
    let next = Some(Box::new(target.clone()));
    let commit = Commit {
        namespace: target.namespace.clone(),
        expected_revision: Revision(0),
        next,
        receipt,
    };
    rig.store.fence_commit(commit).await.map_err(|_| "refused").unwrap();
    target
}

/// Its engine is shut, or gone from the settings: the gate says nothing then, and the record does.
#[tokio::test]
async fn a_target_that_takes_writes_is_told_where_its_engine_is_shut() {
    let rig = Rig::new().await;
    assert_eq!(code(&rig.run(patient(1, 1)).await), ControlCode::Applied);
    let target = stored_target(&rig, 1, FenceState::TargetWritable).await;
    let next = rig.restarted();
    next.control.recover().await.unwrap();
    let engine = target.namespace.engine().clone();
    next.control.gates.shut([(engine, "a double".to_owned())].into());
    next.control.gates.gate(&target.namespace).close_as_unknown();
    assert_eq!(next.inspect().await.sight.writable_targets, [target.namespace]);
    let answer = next.run(release(1, 2, FenceState::SourceWriteFenced, 2)).await;
    assert!(words(&answer).contains("both take writes now"), "{}", words(&answer));
}

/// Where the records can't be read, that is said; it isn't taken for there being none.
#[tokio::test]
async fn a_release_that_nobody_could_look_beside_says_so() {
    let rig = Rig::new().await;
    rig.store.fail_reads(true);
    assert!(rig.control.writable_targets(op(1)).await.is_err());
    rig.store.fail_reads(false);
    assert_eq!(rig.control.writable_targets(op(1)).await.unwrap(), []);
}

/// The contract can't refuse it, and the operation must never send it: so it is said, before and
/// behind.
#[tokio::test]
async fn a_release_beside_a_target_that_takes_writes_is_told() {
    for (operation, state, told) in [
        (1, FenceState::TargetWritable, true),
        (1, FenceState::TargetWriteFenced, false),
        (2, FenceState::TargetWritable, false),
    ] {
        let rig = Rig::new().await;
        assert_eq!(code(&rig.run(patient(1, 1)).await), ControlCode::Applied);
        let target = stored_target(&rig, operation, state).await;
        let seen = rig.inspect().await.sight.writable_targets;
        let expected: Vec<_> = told.then(|| target.namespace.clone()).into_iter().collect();
        assert_eq!(seen, expected, "{operation} {state}");
        let answer = rig.run(release(1, 2, FenceState::SourceWriteFenced, 2)).await;
        assert_eq!(
            code(&answer),
            ControlCode::Applied,
            "the contract's table: {:?}",
            answer.message
        );
        assert_eq!(words(&answer).contains("both take writes now"), told, "{}", words(&answer));
        assert_eq!(words(&answer).contains("old/moved"), told, "{}", words(&answer));
        assert_eq!(rig.inspect().await.sight.writable_targets, [], "it is released");
    }
}
