//! The proxy killed, at any moment: what a restart finds, and what a replay gets.
//!
//! kill -9 with a fence up and with a drain running; an abort at every named fault point of
//! acquire, release, and the read fence's two commands (contract 1.11, acceptance 10); commits that
//! are known not to have landed, and ones of which nobody knows (acceptance 11).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod support;

use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;

use acceptance::{Latch, PATIENCE, Site, applied, code, fail_after, patient, refused};
use serde_json::{Value, json};
use support::proxy::uuid;
use support::wire::query;
use support::{Engine, PgCluster, Proxy, ProxyOptions, Wire, http, poll};

/// A proxy of the test's own, on the shared cluster.
fn own_proxy() -> Proxy {
    Proxy::start(PgCluster::shared())
}

/// Writes on the very first connection that a starting proxy takes; returns the SQLSTATE.
fn first_write(proxy: &Proxy, db: &str) -> String {
    first(proxy, db, "INSERT INTO t VALUES (99)")
}

/// Runs a statement on the very first connection that a starting proxy takes.
fn first(proxy: &Proxy, db: &str, sql: &str) -> String {
    let address = SocketAddr::from(([127, 0, 0, 1], proxy.port()));
    let bound = poll(PATIENCE, || TcpStream::connect(address).ok());
    drop(bound.unwrap_or_else(|| panic!("nobody listens:\n{}", proxy.log_tail())));
    code(&Wire::connect(proxy.port(), "wire", db).query(sql))
}

/// Sends a command from a thread that needs no proxy value; the answer may never come.
fn send(site: &Site<'_>, route: &str, body: &Value) -> JoinHandle<Option<u16>> {
    let (port, key) = (site.proxy.admin_port(), site.proxy.admin_key());
    let path = format!("/v1/namespaces/{}/fence/{route}", site.namespace());
    let body = body.to_string();
    std::thread::spawn(move || {
        let token = format!("Bearer {key}");
        let headers = [("Authorization", token.as_str())];
        http::request(port, "POST", &path, &headers, &body).ok().map(|(status, _)| status)
    })
}

const ACQUIRE: &str = "source/acquire-write-fence";
const RELEASE: &str = "source/release-write-fence";
const SET_READ: &str = "source/set-read-fence";
const CLEAR_READ: &str = "source/clear-read-fence";

#[test]
fn kill9_with_a_fence_up_comes_back_closed_from_the_first_connection_on() {
    let cluster = PgCluster::shared();
    let mut proxy = own_proxy();
    let site = Site::new(cluster, &proxy);
    let db = site.db.clone();
    let operation = uuid();
    let body = site.acquire_body(&operation, &fail_after(30_000));
    let receipt = applied(&site.acquire(&body))["receipt"].clone();
    let before = site.inspect()["fence"].clone();

    let told = |proxy: &Proxy| {
        let log = std::fs::read_to_string(proxy.log_file()).unwrap();
        log.lines().any(|line| line.contains("its fence is still up") && line.contains(&db))
    };
    assert!(!told(&proxy), "nothing was recovered yet");

    proxy.kill9();
    proxy.spawn();
    let seen = first_write(&proxy, &db);
    assert!(["ZF001", "ZF005"].contains(&seen.as_str()), "the first connection got {seen:?}");
    proxy.wait_ready();
    assert!(told(&proxy), "the log says which fence the start found up");
    let site = Site::at(cluster, &proxy, &db);
    assert_eq!(code(&site.client().query("INSERT INTO t VALUES (98)")), "ZF001");
    assert_eq!(site.client().query("SELECT count(*) FROM t").ok().cell(), "0");
    let after = site.inspect()["fence"].clone();
    for field in ["state", "revision", "operation_id", "frozen_boundary", "created_at"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    // The engine lock stands again: a direct session waits.
    let mut direct = site.direct();
    direct.send_raw(&query("INSERT INTO t VALUES (1)"));
    site.wait_for_lock(direct.backend_pid());

    let answer = site.acquire(&body);
    assert_eq!(applied(&answer)["replayed"], true);
    assert_eq!(answer.1["receipt"], receipt);
    site.unfence(&operation);
    direct.until_ready().ok();
    site.client().query("INSERT INTO t VALUES (2)").ok();
    assert_eq!(site.rows(), "1,2");
}

#[test]
fn kill9_with_a_drain_running_comes_back_draining_and_waits_for_the_orphaned_backend() {
    let cluster = PgCluster::shared();
    let mut proxy = own_proxy();
    let site = Site::new(cluster, &proxy);
    let db = site.db.clone();
    let latch = Latch::shut(&site);
    let mut writer = site.client();
    let pid = writer.backend_pid();
    writer.send_raw(&query(&format!("INSERT INTO t SELECT 1 FROM {}", Latch::WAIT)));
    site.wait_at_latch(pid);
    let body = site.acquire_body(&uuid(), &patient());
    let lost = send(&site, ACQUIRE, &body);
    site.wait_blocked_by(pid);

    proxy.kill9();
    assert_eq!(lost.join().unwrap(), None, "a dead proxy answered");
    assert!(writer.closed_within(PATIENCE));
    proxy.spawn();
    let seen = first_write(&proxy, &db);
    assert!(["ZF001", "ZF005"].contains(&seen.as_str()), "the first connection got {seen:?}");
    proxy.wait_ready();
    let site = Site::at(cluster, &proxy, &db);
    assert_eq!(site.state(), "SOURCE_DRAINING", "a restart advances nothing");
    let alive = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
    assert_eq!(site.sql(&alive), "1", "the backend outlives the proxy");
    let answer = std::thread::scope(|scope| {
        let replay = scope.spawn(|| site.acquire(&body));
        site.wait_blocked_by(pid);
        site.stays_draining(5);
        assert!(!replay.is_finished(), "acknowledged while the orphan runs");
        assert_eq!(site.rows(), "");
        latch.open();
        replay.join().unwrap()
    });
    assert_eq!(applied(&answer)["replayed"], true);
    assert_eq!(answer.1["fence"]["revision"], 2);
    assert_eq!(site.rows(), "1");
    let mut direct = site.direct();
    direct.send_raw(&query("INSERT INTO t VALUES (2)"));
    site.wait_for_lock(direct.backend_pid());
    let operation = body["operation_id"].as_str().unwrap().to_owned();
    site.unfence(&operation);
    direct.until_ready().ok();
}

/// One fault point and what a restart must find behind an abort there.
type Crash = (&'static str, &'static str, u64);

const UNFENCED: &str = "UNFENCED";
const DRAINING: &str = "SOURCE_DRAINING";
const FENCED: &str = "SOURCE_WRITE_FENCED";
const RELEASED: &str = "RELEASED";
const READ_DRAINING: &str = "SOURCE_READ_DRAINING";
const READ_FENCED: &str = "SOURCE_READ_FENCED";

#[test]
fn acceptance_10_an_acquire_that_dies_before_its_first_commit_or_just_behind_it() {
    acquire_crashes(&[
        ("control.acquire.after_overlay", UNFENCED, 0),
        ("control.acquire.before_commit", UNFENCED, 0),
        ("store.before_begin", UNFENCED, 0),
        ("store.before_commit", UNFENCED, 0),
        ("store.after_commit", DRAINING, 1),
        ("control.acquire.after_commit", DRAINING, 1),
        ("marker.before_write", DRAINING, 1),
        ("marker.before_rename", DRAINING, 1),
        ("marker.after_rename", DRAINING, 1),
        ("control.acquire.after_marker", DRAINING, 1),
        ("control.acquire.before_publish", DRAINING, 1),
        ("control.acquire.before_drain", DRAINING, 1),
    ]);
}

#[test]
fn acceptance_10_an_acquire_that_dies_around_its_proof() {
    acquire_crashes(&[
        ("control.acquire.after_drain", DRAINING, 1),
        ("control.acquire.before_final_commit", DRAINING, 1),
        ("store.before_begin@2", DRAINING, 1),
        ("store.before_commit@2", DRAINING, 1),
        ("store.after_commit@2", FENCED, 2),
        ("control.acquire.after_final_commit", FENCED, 2),
        ("marker.before_write@2", FENCED, 2),
        ("marker.before_rename@2", FENCED, 2),
        ("marker.after_rename@2", FENCED, 2),
        ("control.acquire.after_final_marker", FENCED, 2),
        ("control.acquire.before_response", FENCED, 2),
    ]);
}

#[test]
fn acceptance_10_a_release_that_dies_at_any_point() {
    let cluster = PgCluster::shared();
    let mut proxy = own_proxy();
    for (point, state, revision) in [
        ("control.release.before_commit", FENCED, 2),
        ("store.before_begin@3", FENCED, 2),
        ("store.before_commit@3", FENCED, 2),
        ("store.after_commit@3", RELEASED, 3),
        ("control.release.after_commit", RELEASED, 3),
        ("marker.before_write@3", RELEASED, 3),
        ("marker.before_rename@3", RELEASED, 3),
        ("marker.after_rename@3", RELEASED, 3),
        ("control.release.after_marker", RELEASED, 3),
        ("control.release.before_publish", RELEASED, 3),
        ("control.release.before_response", RELEASED, 3),
    ] {
        arm(&mut proxy, point);
        let site = Site::new(cluster, &proxy);
        let db = site.db.clone();
        let operation = site.fence();
        let body = site.release_body(&operation);
        dies(&mut proxy, &db, RELEASE, &body, point);
        let seen = first_write(&proxy, &db);
        proxy.wait_ready();
        let site = Site::at(cluster, &proxy, &db);
        expect_state(&site, point, state, revision, &seen);
        let answer = site.release(&body);
        let released = applied(&answer);
        assert_eq!(released["replayed"], revision == 3, "{point}: {released:#}");
        assert_eq!(released["fence"]["state"], RELEASED, "{point}");
        assert_eq!(released["fence"]["revision"], 3, "{point}");
        assert_eq!(released["receipt"]["outcome"], "APPLIED", "{point}");
        site.client().query("INSERT INTO t VALUES (1)").ok();
        site.direct().query("INSERT INTO t VALUES (2)").ok();
    }
}

fn acquire_crashes(crashes: &[Crash]) {
    let cluster = PgCluster::shared();
    let mut proxy = own_proxy();
    for &(point, state, revision) in crashes {
        arm(&mut proxy, point);
        let site = Site::new(cluster, &proxy);
        let db = site.db.clone();
        let body = site.acquire_body(&uuid(), &fail_after(30_000));
        dies(&mut proxy, &db, ACQUIRE, &body, point);
        let seen = first_write(&proxy, &db);
        proxy.wait_ready();
        let site = Site::at(cluster, &proxy, &db);
        expect_state(&site, point, state, revision, &seen);
        let rows = site.rows();
        let answer = site.acquire(&body);
        let acquired = applied(&answer);
        assert_eq!(acquired["replayed"], revision > 0, "{point}: {acquired:#}");
        assert_eq!(acquired["fence"]["state"], FENCED, "{point}");
        assert_eq!(acquired["fence"]["revision"], 2, "{point}");
        assert_eq!(acquired["receipt"]["outcome"], "APPLIED", "{point}");
        assert_eq!(code(&site.client().query("INSERT INTO t VALUES (3)")), "ZF001", "{point}");
        assert_eq!(site.rows(), rows, "{point}");
        let operation = body["operation_id"].as_str().unwrap().to_owned();
        site.unfence(&operation);
    }
}

#[test]
fn acceptance_10_a_read_fence_that_dies_before_its_first_commit_or_just_behind_it() {
    set_read_crashes(&[
        ("control.set_read.after_overlay", FENCED, 2),
        ("control.set_read.before_commit", FENCED, 2),
        ("store.before_begin@3", FENCED, 2),
        ("store.before_commit@3", FENCED, 2),
        ("store.after_commit@3", READ_DRAINING, 3),
        ("control.set_read.after_commit", READ_DRAINING, 3),
        ("marker.before_write@3", READ_DRAINING, 3),
        ("marker.before_rename@3", READ_DRAINING, 3),
        ("marker.after_rename@3", READ_DRAINING, 3),
        ("control.set_read.after_marker", READ_DRAINING, 3),
        ("control.set_read.before_publish", READ_DRAINING, 3),
        ("control.set_read.before_drain", READ_DRAINING, 3),
    ]);
}

#[test]
fn acceptance_10_a_read_fence_that_dies_around_its_proof() {
    set_read_crashes(&[
        ("control.set_read.after_leases", READ_DRAINING, 3),
        ("control.set_read.after_drain", READ_DRAINING, 3),
        ("control.set_read.before_final_commit", READ_DRAINING, 3),
        ("store.before_begin@4", READ_DRAINING, 3),
        ("store.before_commit@4", READ_DRAINING, 3),
        ("store.after_commit@4", READ_FENCED, 4),
        ("control.set_read.after_final_commit", READ_FENCED, 4),
        ("marker.before_write@4", READ_FENCED, 4),
        ("marker.before_rename@4", READ_FENCED, 4),
        ("marker.after_rename@4", READ_FENCED, 4),
        ("control.set_read.after_final_marker", READ_FENCED, 4),
        ("control.set_read.before_response", READ_FENCED, 4),
    ]);
}

#[test]
fn acceptance_10_a_read_fence_that_dies_while_it_is_cleared() {
    let cluster = PgCluster::shared();
    let mut proxy = own_proxy();
    for (point, state, revision) in [
        ("control.clear_read.before_commit", READ_FENCED, 4),
        ("store.before_begin@5", READ_FENCED, 4),
        ("store.before_commit@5", READ_FENCED, 4),
        ("store.after_commit@5", FENCED, 5),
        ("control.clear_read.after_commit", FENCED, 5),
        ("marker.before_write@5", FENCED, 5),
        ("marker.before_rename@5", FENCED, 5),
        ("marker.after_rename@5", FENCED, 5),
        ("control.clear_read.after_marker", FENCED, 5),
        ("control.clear_read.before_publish", FENCED, 5),
        ("control.clear_read.before_response", FENCED, 5),
    ] {
        arm(&mut proxy, point);
        let site = Site::new(cluster, &proxy);
        let db = site.db.clone();
        let operation = site.fence();
        site.fence_reads(&operation);
        let body = site.reads_body(&operation, &Value::Null);
        dies(&mut proxy, &db, CLEAR_READ, &body, point);
        let seen = first(&proxy, &db, "SELECT n FROM t");
        proxy.wait_ready();
        let site = Site::at(cluster, &proxy, &db);
        expect_reads(&site, point, state, revision, &seen);
        let answer = site.clear_read(&body);
        let cleared = applied(&answer);
        assert_eq!(cleared["replayed"], revision == 5, "{point}: {cleared:#}");
        assert_eq!(cleared["fence"]["state"], FENCED, "{point}");
        assert_eq!(cleared["fence"]["revision"], 5, "{point}");
        site.client().query("SELECT n FROM t").ok();
        assert_eq!(code(&site.client().query("INSERT INTO t VALUES (1)")), "ZF001", "{point}");
        site.unfence(&operation);
    }
}

fn set_read_crashes(crashes: &[Crash]) {
    let cluster = PgCluster::shared();
    let mut proxy = own_proxy();
    for &(point, state, revision) in crashes {
        arm(&mut proxy, point);
        let site = Site::new(cluster, &proxy);
        let db = site.db.clone();
        let operation = site.fence();
        let body = site.reads_body(&operation, &patient());
        dies(&mut proxy, &db, SET_READ, &body, point);
        let seen = first(&proxy, &db, "SELECT n FROM t");
        proxy.wait_ready();
        let site = Site::at(cluster, &proxy, &db);
        expect_reads(&site, point, state, revision, &seen);
        let answer = site.set_read(&body);
        let set = applied(&answer);
        assert_eq!(set["replayed"], revision > 2, "{point}: {set:#}");
        assert_eq!(set["fence"]["state"], READ_FENCED, "{point}");
        assert_eq!(set["fence"]["revision"], 4, "{point}");
        assert_eq!(set["receipt"]["outcome"], "APPLIED", "{point}");
        assert_eq!(code(&site.client().query("SELECT n FROM t")), "ZF003", "{point}");
        site.unfence_reads(&operation);
        site.unfence(&operation);
    }
}

/// The state is as it must be, and reads are closed unless it is that of a write fence alone; the
/// first connection got nothing that doesn't fit.
#[track_caller]
fn expect_reads(site: &Site<'_>, point: &str, state: &str, revision: u64, first: &str) {
    let fence = &site.inspect()["fence"];
    let seen = (fence["state"].as_str(), fence["revision"].as_u64());
    assert_eq!(seen, (Some(state), Some(revision)), "{point}");
    let open = state == FENCED;
    let admission = if open { "open" } else { "closed" };
    assert_eq!(fence["admission"]["read"], admission, "{point}");
    let fits = if open { first.is_empty() || first == "ZF005" } else { first.starts_with("ZF00") };
    assert!(fits, "{point}: in {state} the first connection got {first:?}");
    let now = code(&site.client().query("SELECT n FROM t"));
    assert_eq!(now, if open { "" } else { "ZF003" }, "{point}");
    assert_eq!(code(&site.client().query("INSERT INTO t VALUES (97)")), "ZF001", "{point}");
}

#[test]
fn kill9_with_a_read_drain_running_comes_back_closed_to_reads() {
    let cluster = PgCluster::shared();
    let mut proxy = own_proxy();
    let site = Site::new(cluster, &proxy);
    let db = site.db.clone();
    let operation = site.fence();
    let latch = Latch::shut(&site);
    let mut reader = site.client();
    reader.send_raw(&query(&format!("SELECT n FROM t, {}", Latch::WAIT)));
    site.wait_at_latch(reader.backend_pid());
    let body = site.reads_body(&operation, &patient());
    let lost = send(&site, SET_READ, &body);
    site.wait_read_by(reader.backend_pid(), "reader");

    proxy.kill9();
    assert_eq!(lost.join().unwrap(), None, "a dead proxy answered");
    assert!(reader.closed_within(PATIENCE), "the reader's client sees an end, and no answer");
    proxy.spawn();
    let seen = first(&proxy, &db, "SELECT n FROM t");
    assert!(["ZF003", "ZF005"].contains(&seen.as_str()), "the first connection got {seen:?}");
    proxy.wait_ready();
    let site = Site::at(cluster, &proxy, &db);
    assert_eq!(site.state(), READ_DRAINING, "a restart advances nothing");
    assert_eq!(code(&site.client().query("SELECT n FROM t")), "ZF003");
    let answer = site.set_read(&body);
    assert_eq!(applied(&answer)["replayed"], true);
    assert_eq!(answer.1["fence"]["state"], READ_FENCED);
    latch.open();
    site.unfence_reads(&operation);
    site.client().query("SELECT n FROM t").ok();
    site.unfence(&operation);
}

#[test]
fn acceptance_11_a_read_fence_whose_commit_nobody_knows_of_closes_everything_until_its_replay() {
    let proxy = failing("store.after_commit@3=error");
    let site = Site::new(PgCluster::shared(), &proxy);
    let operation = site.fence();
    let mut client = site.client();
    client.query("SELECT n FROM t").ok();
    let body = site.reads_body(&operation, &patient());
    refused(&site.set_read(&body), 409, "FENCE_COMMIT_INDETERMINATE");
    for sql in ["INSERT INTO t VALUES (1)", "SELECT 1", "BEGIN"] {
        assert_eq!(code(&client.query(sql)), "ZF005", "{sql}");
    }
    let clear = json!({ "operation_id": operation, "command_id": uuid(),
        "expected_state": READ_DRAINING, "expected_revision": 3 });
    refused(&site.clear_read(&clear), 409, "FENCE_COMMIT_INDETERMINATE");
    assert_eq!(applied(&site.set_read(&body))["fence"]["revision"], 4);
    assert_eq!(code(&client.query("SELECT 1")), "ZF003");
    site.unfence_reads(&operation);
    site.unfence(&operation);
}

/// Starts the proxy anew, to die at `point`.
fn arm(proxy: &mut Proxy, point: &str) {
    proxy.kill9();
    proxy.set_env(&[("FENCEWIRE_FAULT", &format!("{point}=abort"))]);
    proxy.restart();
}

/// Sends a command that must kill the proxy, and starts it again without the fault.
fn dies(proxy: &mut Proxy, db: &str, route: &str, body: &Value, point: &str) {
    let path = format!("/v1/namespaces/old/{db}/fence/{route}");
    let answer = proxy.try_admin("POST", &path, body);
    assert!(answer.is_err(), "{point}: it was answered: {answer:?}");
    let ended = poll(PATIENCE, || proxy.exit_code());
    assert_eq!(ended, Some(128 + 6), "{point}: an abort is what ends it");
    proxy.kill9();
    proxy.set_env(&[]);
    proxy.spawn();
}

/// The state is as it must be, and what the first connection got fits it: open only if an opening
/// transition was committed.
#[track_caller]
fn expect_state(site: &Site<'_>, point: &str, state: &str, revision: u64, first: &str) {
    let fence = &site.inspect()["fence"];
    assert_eq!(
        (fence["state"].as_str(), fence["revision"].as_u64()),
        (Some(state), Some(revision))
    );
    let open = matches!(state, UNFENCED | RELEASED);
    let admission = if open { "open" } else { "closed" };
    assert_eq!(fence["admission"]["write"], admission, "{point}");
    let fits = if open { first.is_empty() || first == "ZF005" } else { first.starts_with("ZF") };
    assert!(fits, "{point}: in {state} the first connection got {first:?}");
    let now = code(&site.client().query("INSERT INTO t VALUES (97)"));
    assert_eq!(now, if open { "" } else { "ZF001" }, "{point}");
}

/// Two faults at once: a commit that failed or of which nobody knows, and a proxy that dies before
/// its answer. First in the acquire itself, then in its replay.
#[test]
fn acceptance_10_an_acquire_whose_commit_is_in_doubt_and_whose_proxy_dies() {
    let cluster = PgCluster::shared();
    let mut proxy = own_proxy();
    let plan =
        |first: &str, pass: u32| format!("{first}@{pass}=error,control.acquire.before_response");
    let (lost, landed) = ("store.before_commit", "store.after_commit");
    for (first, pass, found, again) in [
        ("store.before_begin", 1, UNFENCED, landed),
        (lost, 1, UNFENCED, lost),
        (landed, 1, "SOURCE_DRAINING", lost),
        (landed, 2, "SOURCE_WRITE_FENCED", landed),
        ("marker.before_rename", 1, "SOURCE_WRITE_FENCED", landed),
        ("marker.before_write", 2, "SOURCE_WRITE_FENCED", lost),
    ] {
        let what = format!("{first}@{pass}, then {again}");
        arm(&mut proxy, &plan(first, pass));
        let site = Site::new(cluster, &proxy);
        let db = site.db.clone();
        site.client().query("INSERT INTO t VALUES (1)").ok();
        let body = site.acquire_body(&uuid(), &patient());
        let shown = |proxy: &Proxy, db: &str| {
            proxy.wait_ready();
            let site = Site::at(cluster, proxy, db);
            let state = site.state();
            let met = code(&site.client().query("INSERT INTO nowhere VALUES (1)"));
            let open = if state == UNFENCED { "42P01" } else { "ZF001" };
            assert_eq!(met, open, "VIOLATION: {what}: in {state}");
            state
        };
        dies(&mut proxy, &db, ACQUIRE, &body, &what);
        assert_eq!(shown(&proxy, &db), found, "VIOLATION: {what}");

        arm(&mut proxy, &plan(again, 1));
        dies(&mut proxy, &db, ACQUIRE, &body, &what);
        let state = shown(&proxy, &db);
        let fits = match (found, again) {
            (UNFENCED, "store.before_commit") => state == UNFENCED,
            (UNFENCED, _) => state == "SOURCE_DRAINING",
            _ => ["SOURCE_DRAINING", "SOURCE_WRITE_FENCED"].contains(&state.as_str()),
        };
        assert!(fits, "VIOLATION: {what}: {state}");

        let site = Site::at(cluster, &proxy, &db);
        let done = site.acquire(&body);
        assert_eq!(applied(&done)["fence"]["revision"], 2, "{what}");
        assert_eq!(shown(&proxy, &db), "SOURCE_WRITE_FENCED", "{what}");
        assert_eq!(site.rows(), "1", "{what}");
    }
}

#[test]
fn writes_are_closed_before_anything_is_durable_and_open_again_when_that_is_lost() {
    let cluster = PgCluster::shared();
    let mut proxy = own_proxy();
    let file = proxy.state_dir().with_file_name("parked");
    let park = format!("control.acquire.after_overlay=park:{}", file.display());
    proxy.kill9();
    proxy.set_env(&[("FENCEWIRE_FAULT", &park)]);
    proxy.restart();
    let site = Site::new(cluster, &proxy);
    let db = site.db.clone();
    let mut old = site.client();
    old.query("BEGIN; SELECT n FROM t").ok();
    let body = site.acquire_body(&uuid(), &patient());
    let lost = send(&site, ACQUIRE, &body);
    let parked = file.with_extension("parked");
    assert!(poll(PATIENCE, || parked.exists().then_some(())).is_some(), "nobody parked");
    assert_eq!(code(&site.client().query("INSERT INTO t VALUES (1)")), "ZF001");
    assert_eq!(code(&old.query("INSERT INTO t VALUES (2)")), "ZF001");
    assert_eq!(site.inspect()["fence"]["state"], UNFENCED, "an overlay is no durable state");
    assert_eq!(site.inspect()["fence"]["admission"]["write"], "closed");
    proxy.kill9();
    assert_eq!(lost.join().unwrap(), None);
    proxy.set_env(&[]);
    proxy.restart();
    let site = Site::at(cluster, &proxy, &db);
    assert_eq!(site.state(), UNFENCED);
    site.client().query("INSERT INTO t VALUES (3)").ok();
    assert_eq!(site.rows(), "3");
}

/// A proxy whose store fails as told.
fn failing(plan: &str) -> Proxy {
    Proxy::start_with(ProxyOptions {
        engines: vec![Engine::plain("old", PgCluster::shared())],
        env: vec![("FENCEWIRE_FAULT".into(), plan.into())],
        ..ProxyOptions::default()
    })
}

#[test]
fn acceptance_11_a_commit_that_nobody_knows_of_closes_everything_until_its_replay() {
    let proxy = failing("store.after_commit=error");
    let site = Site::new(PgCluster::shared(), &proxy);
    let mut client = site.client();
    let mut old = site.client();
    old.query("BEGIN; SELECT n FROM t").ok();
    let operation = uuid();
    let body = site.acquire_body(&operation, &fail_after(30_000));
    let answer = site.acquire(&body);
    let unknown = refused(&answer, 409, "FENCE_COMMIT_INDETERMINATE");
    assert_eq!(unknown["detail"], "indeterminate_commit");
    for sql in ["INSERT INTO t VALUES (1)", "SELECT 1", "SHOW work_mem", "BEGIN"] {
        let error = client.query(sql).error().unwrap_or_default();
        assert_eq!(error.get(&'C').map(String::as_str), Some("ZF005"), "{sql}: {error:?}");
    }
    assert_eq!(code(&old.query("SELECT 1")), "ZF005");
    old.query("ROLLBACK").ok();
    let seen = site.inspect();
    assert!(seen["fence"]["admission"]["indeterminate"] == true, "{seen:#}");
    assert_eq!(seen["fence"]["admission"]["read"], "closed");
    // Nothing else is accepted, whoever asks.
    for operation in [&operation, &uuid()] {
        let other = json!({ "operation_id": operation, "command_id": uuid(),
            "expected_state": "SOURCE_DRAINING", "expected_revision": 1 });
        refused(&site.release(&other), 409, "FENCE_COMMIT_INDETERMINATE");
    }
    let answer = site.acquire(&body);
    assert_eq!(applied(&answer)["fence"]["revision"], 2);
    client.query("SELECT 1").ok();
    assert_eq!(code(&client.query("INSERT INTO t VALUES (1)")), "ZF001");
    site.unfence(&operation);
}

#[test]
fn acceptance_11_a_commit_that_is_known_not_to_have_landed_reopens_the_gate() {
    for plan in ["store.before_begin=error", "store.before_commit=error"] {
        let proxy = failing(plan);
        let site = Site::new(PgCluster::shared(), &proxy);
        let mut old = site.client();
        old.query("BEGIN; SELECT n FROM t").ok();
        let operation = uuid();
        let body = site.acquire_body(&operation, &fail_after(30_000));
        let answer = site.acquire(&body);
        assert!(answer.0 >= 400 && answer.1["receipt"].is_null(), "{plan}: {answer:?}");
        assert_eq!(site.state(), UNFENCED, "{plan}");
        site.client().query("INSERT INTO t VALUES (1)").ok();
        // The gate was closed for a moment: what is older can't write any more (W3).
        assert_eq!(code(&old.query("INSERT INTO t VALUES (2)")), "ZF002", "{plan}");
        let answer = site.acquire(&body);
        assert_eq!(applied(&answer)["replayed"], false, "{plan}");
        assert_eq!(site.rows(), "1", "{plan}");
        site.unfence(&operation);
    }
}
