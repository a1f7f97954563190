//! Acceptance 23 of the fence contract: a fence whose operation is gone gets another owner, and
//! nothing else changes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod support;

use std::process::{Command, Output};

use acceptance::{Site, applied, metric, refused};
use serde_json::{Value, json};
use support::proxy::uuid;
use support::{Engine, PgCluster, Proxy, ProxyOptions};

const ADOPTION_KEY: &str = "the-second-key-of-the-tests";

/// A proxy with a second key, and its file.
fn proxy() -> (Proxy, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("adoption.key");
    std::fs::write(&file, ADOPTION_KEY).unwrap();
    let proxy = Proxy::start_with(ProxyOptions {
        engines: vec![Engine::plain("old", PgCluster::shared())],
        admin: format!("adoption_key_file = \"{}\"\n", file.display()),
        ..ProxyOptions::default()
    });
    (proxy, folder)
}

/// The body of a good adoption of the namespace as it is now.
fn body(site: &Site<'_>, owner: &str, adopter: &str) -> Value {
    let mut body = site.proxy.command_body(&site.namespace(), adopter, &uuid());
    body["current_operation_id"] = json!(owner);
    body["approvers"] = json!(["Ada", "Grace"]);
    body["incident_ref"] = json!("INC-7");
    body["reason"] = json!("the mover is gone");
    body
}

fn adopt(site: &Site<'_>, key: Option<&str>, body: &Value) -> (u16, Value) {
    let path = format!("/v1/namespaces/{}/fence/adopt", site.namespace());
    let headers: Vec<(&str, &str)> =
        key.map(|key| ("x-fencewire-adoption-key", key)).into_iter().collect();
    site.proxy.try_admin_with("POST", &path, &headers, body).unwrap()
}

/// What of a fence must be as it was.
fn lasting(site: &Site<'_>) -> [Value; 4] {
    let fence = site.inspect()["fence"].clone();
    ["state", "frozen_boundary", "evidence", "drain_policy"].map(|name| fence[name].clone())
}

#[test]
fn acceptance_23_adoption_changes_the_owner_and_nothing_else() {
    let (proxy, _folder) = proxy();
    let site = Site::new(PgCluster::shared(), &proxy);
    let owner = site.fence();
    let (before, adopter) = (lasting(&site), uuid());
    let good = body(&site, &owner, &adopter);

    let answer = adopt(&site, Some(ADOPTION_KEY), &good);
    let revision = applied(&answer)["fence"]["revision"].as_u64().unwrap();
    assert_eq!(revision, 3, "{:#}", answer.1);
    assert_eq!(answer.1["fence"]["operation_id"], adopter);
    assert_eq!(lasting(&site), before);
    let entry = &answer.1["receipt"]["adoption"];
    assert_eq!(entry["previous_operation_id"], owner, "{entry:#}");
    assert_eq!(entry["approvers"], json!(["Ada", "Grace"]), "{entry:#}");
    let mut client = site.client();
    assert_eq!(client.query("INSERT INTO t VALUES (1)").code().unwrap(), "ZF001");

    // The owner of before is a stranger now; the answer to a lost answer needs no second key.
    let stranger = site.release(&site.release_body(&owner));
    refused(&stranger, 409, "FENCE_OWNED_BY_ANOTHER_OPERATION");
    let replay = adopt(&site, None, &good);
    assert_eq!(applied(&replay)["receipt"], answer.1["receipt"]);
    assert_eq!(replay.1["replayed"], true);
    assert_eq!(metric(&proxy, "fencewire_fence_adoptions_total"), 1);
    audited(&proxy, &owner, &adopter);

    applied(&site.release(&site.release_body(&adopter)));
    client.query("INSERT INTO t VALUES (2)").ok();
    assert_eq!(site.rows(), "2");
    let finished = adopt(&site, Some(ADOPTION_KEY), &body(&site, &adopter, &uuid()));
    let told = refused(&finished, 409, "INVALID_FENCE_TRANSITION");
    assert_eq!(told["detail"], "operation_finished", "{told:#}");
}

/// One event of the committed adoption, with everybody's names, and no key anywhere.
fn audited(proxy: &Proxy, owner: &str, adopter: &str) {
    let log = std::fs::read_to_string(proxy.log_file()).unwrap();
    let events: Vec<&str> =
        log.lines().filter(|line| line.contains("namespace_fence_adopted")).collect();
    let [event] = events[..] else { panic!("not one event:\n{log}") };
    for field in [
        &format!("previous_operation_id=\"{owner}\""),
        &format!("new_operation_id=\"{adopter}\""),
        "approvers=\"Ada, Grace\"",
        "incident_ref=\"INC-7\"",
        "reason=\"the mover is gone\"",
        "outcome=\"APPLIED\"",
        "revision_before=2",
        "revision_after=3",
        "state_before=\"SOURCE_WRITE_FENCED\"",
    ] {
        assert!(event.contains(field), "{field} is not in {event}");
    }
    assert!(!log.contains(ADOPTION_KEY) && !log.contains(&proxy.admin_key()), "a key was logged");
}

#[test]
fn acceptance_23_what_is_not_authorised_changes_nothing() {
    let (proxy, _folder) = proxy();
    let site = Site::new(PgCluster::shared(), &proxy);
    let nothing = adopt(&site, Some(ADOPTION_KEY), &body(&site, &uuid(), &uuid()));
    refused(&nothing, 409, "INVALID_FENCE_TRANSITION");
    let owner = site.fence();
    let with = |field: &str, value: Value| {
        let mut body = body(&site, &owner, &uuid());
        body[field] = value;
        body
    };
    let good = || body(&site, &owner, &uuid());
    for (why, key, body) in [
        ("no key", None, good()),
        ("the admin key", Some("the-admin-key-of-the-tests"), good()),
        ("one approver", Some(ADOPTION_KEY), with("approvers", json!(["Ada"]))),
        ("three approvers", Some(ADOPTION_KEY), with("approvers", json!(["A", "B", "C"]))),
        ("one person twice", Some(ADOPTION_KEY), with("approvers", json!(["Ada", " Ada "]))),
        ("a blank one", Some(ADOPTION_KEY), with("approvers", json!(["Ada", "  "]))),
        ("no incident", Some(ADOPTION_KEY), with("incident_ref", json!(" "))),
        ("no reason", Some(ADOPTION_KEY), with("reason", json!(""))),
    ] {
        let answer = adopt(&site, key, &body);
        let told = refused(&answer, 412, "FENCE_PRECONDITION_FAILED");
        assert_eq!(told["detail"], "adoption_not_authorised", "{why}: {told:#}");
    }
    let wrong_owner = adopt(&site, Some(ADOPTION_KEY), &body(&site, &uuid(), &uuid()));
    refused(&wrong_owner, 409, "FENCE_OWNED_BY_ANOTHER_OPERATION");
    let itself = adopt(&site, Some(ADOPTION_KEY), &body(&site, &owner, &owner));
    refused(&itself, 409, "INVALID_FENCE_TRANSITION");
    let stale = adopt(&site, Some(ADOPTION_KEY), &with("expected_revision", json!(1)));
    refused(&stale, 409, "FENCE_REVISION_MISMATCH");
    for (field, value) in [
        ("approvers", json!("Ada, Grace")),
        ("current_operation_id", json!("nobody")),
        ("reason", Value::Null),
        ("surprise", json!(1)),
    ] {
        let told = adopt(&site, Some(ADOPTION_KEY), &with(field, value));
        let told = refused(&told, 412, "FENCE_PRECONDITION_FAILED");
        assert_eq!(told["detail"], "invalid_argument", "{field}: {told:#}");
    }
    let fence = site.inspect()["fence"].clone();
    assert_eq!((&fence["revision"], &fence["operation_id"]), (&json!(2), &json!(owner)));
    assert_eq!(metric(&proxy, "fencewire_fence_adoptions_total"), 0);
}

#[test]
fn without_a_second_key_nothing_is_adopted() {
    let site = Site::shared();
    let owner = site.fence();
    let answer = adopt(&site, Some(ADOPTION_KEY), &body(&site, &owner, &uuid()));
    let told = refused(&answer, 412, "FENCE_PRECONDITION_FAILED");
    assert_eq!(told["detail"], "adoption_not_authorised", "{told:#}");
    site.unfence(&owner);
}

fn ctl(proxy: &Proxy, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fencewire"))
        .arg("ctl")
        .args(arguments)
        .env("FENCEWIRE_ADMIN_URL", format!("http://127.0.0.1:{}", proxy.admin_port()))
        .env("FENCEWIRE_ADMIN_KEY", proxy.admin_key())
        .env("FENCEWIRE_ADOPTION_KEY", ADOPTION_KEY)
        .output()
        .unwrap()
}

#[test]
fn ctl_adopts_and_the_new_owner_releases() {
    let (proxy, _folder) = proxy();
    let site = Site::new(PgCluster::shared(), &proxy);
    let (owner, adopter) = (site.fence(), uuid());
    let namespace = site.namespace();
    let who = ["--approver", "Ada", "--approver", "Grace", "--incident", "INC-7"];
    let adopt = ["adopt", &namespace, "--operation", &adopter, "--from", &owner];
    let done = ctl(&proxy, &[&adopt, &who[..], &["--reason", "the mover's host is gone"]].concat());
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    assert!(said.contains("SOURCE_WRITE_FENCED at revision 3"), "{said}");
    let alone = ctl(
        &proxy,
        &[&adopt, &["--approver", "Ada", "--incident", "x", "--reason", "y"][..]].concat(),
    );
    assert_eq!(alone.status.code(), Some(4), "{alone:?}");
    let released = ctl(&proxy, &["release-write-fence", &namespace, "--operation", &adopter]);
    assert!(released.status.success(), "{released:?}");
}

#[test]
fn one_key_for_both_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("only.key");
    std::fs::write(&key, "the-only-key-of-this-test").unwrap();
    let file = folder.path().join("fencewire.toml");
    let toml = format!(
        "[proxy]\nstate_dir = \"{dir}/state\"\n\
         [admin]\nhttp = \"127.0.0.1:{port}\"\nkey_file = \"{key}\"\n\
         adoption_key_file = \"{key}\"\n\
         [[engine]]\nname = \"old\"\nurl = \"{engine}\"\n\
         [[listen]]\nprotocol = \"postgres\"\naddress = \"127.0.0.1:{listen}\"\n",
        dir = folder.path().display(),
        port = support::free_port(),
        key = key.display(),
        engine = PgCluster::shared().control_url(),
        listen = support::free_port(),
    );
    std::fs::write(&file, toml).unwrap();
    let started = Command::new(env!("CARGO_BIN_EXE_fencewire"))
        .args(["serve", "--config"])
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8(started.stderr).unwrap();
    assert!(!started.status.success() && said.contains("must be a second secret"), "{said}");
    assert!(!said.contains("the-only-key"), "{said}");
}
