//! The proxy killed before MariaDB and MySQL 9: what a restart finds, and what a replay gets
//! (acceptance 10 and 11), and the control arms of the engine's guards (25). The twin of
//! `crash_pg.rs` and `arms_pg.rs`; the points of the store and the marker, which know no engine,
//! are swept there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod acceptance_mysql;
mod support;

use acceptance::sweep::{ACQUIRE_STEPS, RELEASE_STEPS};
use acceptance::{PATIENCE, applied, fail_after, patient, refused, still_draining};
use acceptance_mysql::{MySite, code, on_both, own, thread};
use serde_json::{Value, json};
use support::proxy::uuid;
use support::{Engine, MyCluster, MyFlavour, MyWire, Proxy, ProxyOptions, poll};

on_both!(
    acceptance_10_a_proxy_that_dies_at_any_point_of_an_acquire,
    acceptance_10_a_proxy_that_dies_at_any_point_of_a_release,
    acceptance_10_a_proxy_that_dies_at_any_point_of_a_read_fence,
    kill9_with_a_drain_running_waits_for_the_orphaned_thread,
    acceptance_11_a_commit_that_nobody_knows_of_closes_everything_until_its_replay,
    acceptance_25_without_the_lock_a_hidden_writer_is_missed,
    acceptance_25_without_the_look_at_prepared_branches_one_is_missed,
);

const UNFENCED: &str = "UNFENCED";
const DRAINING: &str = "SOURCE_DRAINING";
const FENCED: &str = "SOURCE_WRITE_FENCED";
const RELEASED: &str = "RELEASED";
const READ_DRAINING: &str = "SOURCE_READ_DRAINING";
const READ_FENCED: &str = "SOURCE_READ_FENCED";

/// Starts the proxy anew, to die at `point`.
fn arm(proxy: &mut Proxy, point: &str) {
    proxy.kill9();
    proxy.set_env(&[("FENCEWIRE_FAULT", &format!("{point}=abort"))]);
    proxy.restart();
}

/// Sends a command that must kill the proxy, and starts it again without the fault.
fn dies(proxy: &mut Proxy, db: &str, route: &str, body: &Value, point: &str) {
    let path = format!("/v1/namespaces/old/{db}/fence/source/{route}");
    let answer = proxy.try_admin("POST", &path, body);
    assert!(answer.is_err(), "{point}: it was answered: {answer:?}");
    let ended = poll(PATIENCE, || proxy.exit_code());
    assert_eq!(ended, Some(128 + 6), "{point}: an abort is what ends it");
    proxy.kill9();
    proxy.set_env(&[]);
    proxy.restart();
}

fn expect_state(site: &MySite<'_>, point: &str, state: &str, revision: u64) {
    let fence = &site.inspect()["fence"];
    let seen = (fence["state"].as_str(), fence["revision"].as_u64());
    assert_eq!(seen, (Some(state), Some(revision)), "{point}");
    let open = matches!(state, UNFENCED | RELEASED);
    let now = code(&site.client().query("INSERT INTO t VALUES (97)"));
    assert_eq!(now, if open { "" } else { "ZF001" }, "{point}");
}

fn acceptance_10_a_proxy_that_dies_at_any_point_of_an_acquire(flavour: MyFlavour) {
    let cluster = MyCluster::shared(flavour);
    let mut proxy = Proxy::start_my(cluster);
    let (mut state, mut revision) = (UNFENCED, 0);
    for point in ACQUIRE_STEPS {
        // From each of the two commits on a restart finds what it stored.
        match *point {
            "control.acquire.after_commit" => (state, revision) = (DRAINING, 1),
            "control.acquire.after_final_commit" => (state, revision) = (FENCED, 2),
            _ => {}
        }
        arm(&mut proxy, point);
        let site = MySite::new(cluster, &proxy);
        let db = site.db.clone();
        let body = site.acquire_body(&uuid(), &fail_after(60_000));
        dies(&mut proxy, &db, "acquire-write-fence", &body, point);
        let site = MySite::at(cluster, &proxy, &db);
        expect_state(&site, point, state, revision);
        let acquired = site.acquire(&body);
        assert_eq!(applied(&acquired)["replayed"], revision > 0, "{point}: {acquired:?}");
        assert_eq!(acquired.1["fence"]["revision"], 2, "{point}");
        site.unfence(body["operation_id"].as_str().unwrap());
    }
}

fn acceptance_10_a_proxy_that_dies_at_any_point_of_a_release(flavour: MyFlavour) {
    let cluster = MyCluster::shared(flavour);
    let mut proxy = Proxy::start_my(cluster);
    let (mut state, mut revision) = (FENCED, 2);
    for point in RELEASE_STEPS {
        if *point == "control.release.after_commit" {
            (state, revision) = (RELEASED, 3);
        }
        arm(&mut proxy, point);
        let site = MySite::new(cluster, &proxy);
        let db = site.db.clone();
        let operation = site.fence();
        let body = site.release_body(&operation);
        dies(&mut proxy, &db, "release-write-fence", &body, point);
        let site = MySite::at(cluster, &proxy, &db);
        expect_state(&site, point, state, revision);
        let answer = site.release(&body);
        assert_eq!(applied(&answer)["replayed"], revision == 3, "{point}: {answer:?}");
        assert_eq!(answer.1["fence"]["state"], RELEASED, "{point}");
        site.client().query("INSERT INTO t VALUES (1)").ok();
        site.direct().query("INSERT INTO t VALUES (2)").ok();
    }
}

fn expect_reads(site: &MySite<'_>, point: &str, state: &str, revision: u64) {
    let fence = &site.inspect()["fence"];
    let seen = (fence["state"].as_str(), fence["revision"].as_u64());
    assert_eq!(seen, (Some(state), Some(revision)), "{point}");
    let now = code(&site.client().query("SELECT n FROM t"));
    assert_eq!(now, if state == FENCED { "" } else { "ZF003" }, "{point}");
    assert_eq!(code(&site.client().query("INSERT INTO t VALUES (97)")), "ZF001", "{point}");
}

fn acceptance_10_a_proxy_that_dies_at_any_point_of_a_read_fence(flavour: MyFlavour) {
    let cluster = MyCluster::shared(flavour);
    let mut proxy = Proxy::start_my(cluster);
    for (point, state, revision) in [
        ("control.set_read.after_overlay", FENCED, 2),
        ("control.set_read.before_commit", FENCED, 2),
        ("control.set_read.after_commit", READ_DRAINING, 3),
        ("control.set_read.before_drain", READ_DRAINING, 3),
        ("control.set_read.after_drain", READ_DRAINING, 3),
        ("control.set_read.before_final_commit", READ_DRAINING, 3),
        ("control.set_read.after_final_commit", READ_FENCED, 4),
        ("control.set_read.before_response", READ_FENCED, 4),
    ] {
        arm(&mut proxy, point);
        let site = MySite::new(cluster, &proxy);
        let db = site.db.clone();
        let operation = site.fence();
        let body = site.reads_body(&operation, &patient());
        dies(&mut proxy, &db, "set-read-fence", &body, point);
        let site = MySite::at(cluster, &proxy, &db);
        expect_reads(&site, point, state, revision);
        let answer = site.set_read(&body);
        assert_eq!(applied(&answer)["replayed"], revision > 2, "{point}: {answer:?}");
        assert_eq!(answer.1["fence"]["revision"], 4, "{point}");
        site.unfence_reads(&operation);
        site.unfence(&operation);
    }
    for (point, state, revision) in [
        ("control.clear_read.before_commit", READ_FENCED, 4),
        ("control.clear_read.after_commit", FENCED, 5),
        ("control.clear_read.before_publish", FENCED, 5),
        ("control.clear_read.before_response", FENCED, 5),
    ] {
        arm(&mut proxy, point);
        let site = MySite::new(cluster, &proxy);
        let db = site.db.clone();
        let operation = site.fence();
        site.fence_reads(&operation);
        let body = site.reads_body(&operation, &Value::Null);
        dies(&mut proxy, &db, "clear-read-fence", &body, point);
        let site = MySite::at(cluster, &proxy, &db);
        expect_reads(&site, point, state, revision);
        let answer = site.clear_read(&body);
        assert_eq!(applied(&answer)["replayed"], revision == 5, "{point}: {answer:?}");
        assert_eq!(answer.1["fence"]["state"], FENCED, "{point}");
        site.client().query("SELECT n FROM t").ok();
        site.unfence(&operation);
    }
}

/// The statement waits for a row: unlike a wait for a user lock, nothing there looks whether the
/// client is still connected.
fn kill9_with_a_drain_running_waits_for_the_orphaned_thread(flavour: MyFlavour) {
    let (cluster, mut proxy) = own(flavour);
    let site = MySite::new(&cluster, &proxy);
    let db = site.db.clone();
    cluster.create_db("gate");
    cluster.sql("gate", "CREATE TABLE row_of (n int PRIMARY KEY); INSERT INTO row_of VALUES (1)");
    let mut keeper = MyWire::connect(cluster.port(), "wire", "gate");
    keeper.query("BEGIN").ok();
    keeper.query("SELECT n FROM row_of FOR UPDATE").ok();
    let mut writer = site.client();
    let id = thread(&writer);
    writer.query("SET SESSION innodb_lock_wait_timeout = 600").ok();
    writer.begin_query("INSERT INTO t SELECT n FROM gate.row_of").unwrap();
    let status = match flavour {
        MyFlavour::MariaDb => "information_schema",
        MyFlavour::MySql => "performance_schema",
    };
    let waits = format!(
        "SELECT VARIABLE_VALUE FROM {status}.global_status \
         WHERE VARIABLE_NAME = 'Innodb_row_lock_current_waits'"
    );
    site.wait_sql(&waits, "1");
    let body = site.acquire_body(&uuid(), &fail_after(0));
    still_draining(&site.acquire(&body));

    proxy.kill9();
    assert!(writer.answer(&[]).is_err(), "a dead proxy answered");
    proxy.restart();
    let site = MySite::at(&cluster, &proxy, &db);
    assert_eq!(site.state(), DRAINING, "a restart advances nothing");
    // The statement goes on in the engine, though its client and its proxy are gone.
    let replay = site.acquire_body(body["operation_id"].as_str().unwrap(), &patient());
    let answer = std::thread::scope(|scope| {
        let replay = scope.spawn(|| site.acquire(&replay));
        site.wait_blocked_by(id);
        site.stays_draining(5);
        assert!(!replay.is_finished(), "acknowledged while the orphan runs");
        assert_eq!(site.sql(&waits), "1");
        keeper.query("COMMIT").ok();
        replay.join().unwrap()
    });
    applied(&answer);
    assert_eq!(site.rows(), "1", "the orphan's statement committed, before the boundary");
}

fn acceptance_11_a_commit_that_nobody_knows_of_closes_everything_until_its_replay(
    flavour: MyFlavour,
) {
    let cluster = MyCluster::shared(flavour);
    let proxy = Proxy::start_with(ProxyOptions {
        engines: vec![Engine::my_plain("old", cluster)],
        env: vec![("FENCEWIRE_FAULT".into(), "store.after_commit=error".into())],
        ..ProxyOptions::default()
    });
    let site = MySite::new(cluster, &proxy);
    let mut client = site.client();
    let operation = uuid();
    let body = site.acquire_body(&operation, &fail_after(60_000));
    let unknown = site.acquire(&body);
    refused(&unknown, 409, "FENCE_COMMIT_INDETERMINATE");
    for sql in ["INSERT INTO t VALUES (1)", "SELECT 1", "BEGIN"] {
        assert_eq!(code(&client.query(sql)), "ZF005", "{sql}");
    }
    let other = json!({ "operation_id": operation, "command_id": uuid(),
        "expected_state": DRAINING, "expected_revision": 1 });
    refused(&site.release(&other), 409, "FENCE_COMMIT_INDETERMINATE");
    let answer = site.acquire(&body);
    assert_eq!(applied(&answer)["fence"]["revision"], 2);
    client.query("SELECT 1").ok();
    assert_eq!(code(&client.query("INSERT INTO t VALUES (1)")), "ZF001");
    site.unfence(&operation);
}

/// A proxy that goes without some guards.
fn without(cluster: &MyCluster, guards: &str) -> Proxy {
    Proxy::start_with(ProxyOptions {
        engines: vec![Engine::my_plain("old", cluster)],
        env: vec![("FENCEWIRE_REMOVE".into(), guards.into())],
        ..ProxyOptions::default()
    })
}

/// A writer whose session has nothing to do with the schema but its open transaction: with the
/// guards the drain waits for it; without them a fence is acknowledged that it writes past.
fn acceptance_25_without_the_lock_a_hidden_writer_is_missed(flavour: MyFlavour) {
    let cluster = MyCluster::shared(flavour);
    // The census alone sees table locks on MySQL, and takes the lock's place there.
    for (guards, missed) in [("", false), ("engine-lock,census", true)] {
        let proxy = without(cluster, guards);
        let site = MySite::new(cluster, &proxy);
        let mut hidden = MyWire::connect(cluster.port(), "wire", "information_schema");
        hidden.query("BEGIN").ok();
        hidden.query(&format!("INSERT INTO {}.t VALUES (1)", site.db)).ok();
        let answer = site.acquire(&site.acquire_body(&uuid(), &fail_after(2_000)));
        assert_eq!(answer.0 == 200, missed, "without {guards:?}: {:#}", answer.1);
        hidden.query("COMMIT").ok();
        assert_eq!(site.rows(), "1", "what a missed writer does");
    }
    if flavour == MyFlavour::MariaDb {
        // Without the plugin the lock is the only one that sees it.
        let proxy = without(cluster, "engine-lock");
        let site = MySite::new(cluster, &proxy);
        let mut hidden = MyWire::connect(cluster.port(), "wire", "information_schema");
        hidden.query("BEGIN").ok();
        hidden.query(&format!("INSERT INTO {}.t VALUES (1)", site.db)).ok();
        applied(&site.acquire(&site.acquire_body(&uuid(), &fail_after(2_000))));
    }
}

fn acceptance_25_without_the_look_at_prepared_branches_one_is_missed(flavour: MyFlavour) {
    let (cluster, _proxy) = own(flavour);
    // MySQL keeps a detached branch's table locks, so there the engine lock sees it as well.
    let removed = match flavour {
        MyFlavour::MariaDb => "prepared-check",
        MyFlavour::MySql => "prepared-check,engine-lock",
    };
    for (guards, missed) in [("", false), (removed, true)] {
        let proxy = without(&cluster, guards);
        let site = MySite::new(&cluster, &proxy);
        let mut client = site.direct();
        let xid = format!("'{}'", site.db);
        for verb in ["START", "END", "PREPARE"] {
            client.query(&format!("XA {verb} {xid}")).ok();
            if verb == "START" {
                client.query("INSERT INTO t VALUES (1)").ok();
            }
        }
        let id = thread(&client);
        drop(client);
        let gone = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {id}");
        site.wait_sql(&gone, "0");
        let answer = site.acquire(&site.acquire_body(&uuid(), &fail_after(2_000)));
        assert_eq!(answer.0 == 200, missed, "without {guards:?}: {:#}", answer.1);
        // Any session may commit it later; in front of a removed guard that is past the fence.
        if missed && flavour == MyFlavour::MariaDb {
            // The lock that is held doesn't keep it from being committed.
            site.sql(&format!("XA COMMIT {xid}"));
            assert_eq!(site.rows(), "1");
        } else {
            site.sql(&format!("XA ROLLBACK {xid}"));
        }
    }
}
