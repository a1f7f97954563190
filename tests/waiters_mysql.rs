//! Who waits for a fence's engine lock on MariaDB and MySQL 9, and what the proxy makes of it.
//!
//! Purpose: `control/lock_waiters.rs` from end to end. A program of the proxy's that waits for the
//! lock tries to write: it is stopped and told so, never left hanging (promise 7). Sessions around
//! the proxy are left waiting: they hold nothing up, so neither `inspect` nor `ctl status` names
//! them as blockers, and the lock is shown as held.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod acceptance_mysql;
mod support;

use std::process::Command;

use acceptance::{PATIENCE, blockers, fail_after, still_draining};
use acceptance_mysql::{MySite, code, on_both, thread};
use serde_json::Value;
use support::proxy::uuid;
use support::{MyFlavour, MyWire, poll};

on_both!(
    a_read_that_waits_for_the_lock_is_stopped_and_its_session_lives,
    a_read_from_another_schema_that_waits_for_the_lock_is_stopped_too,
    a_transaction_that_wrote_elsewhere_keeps_that_where_its_read_is_stopped,
    two_fences_on_one_server_each_stop_what_waits_for_their_own_lock,
    who_waits_around_the_proxy_is_left_waiting_and_is_no_blocker,
    a_read_behind_a_direct_ddl_that_waits_for_the_lock,
);

/// With a view `writes` over a function that inserts.
fn with_a_view_that_writes(site: &MySite<'_>) {
    let mut direct = site.direct();
    direct.query("INSERT INTO t VALUES (1)").ok();
    let function = "CREATE FUNCTION f() RETURNS int MODIFIES SQL DATA \
        BEGIN INSERT INTO t VALUES (99); RETURN 1; END";
    direct.query(function).ok();
    direct.query("CREATE VIEW writes AS SELECT f() AS n").ok();
}

fn a_read_that_waits_for_the_lock_is_stopped_and_its_session_lives(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    with_a_view_that_writes(&site);
    // A transaction from before the fence has no read-only guard: the lock is what its write meets.
    let mut older = site.client();
    older.query("BEGIN").ok();
    assert_eq!(older.query("SELECT count(*) FROM t").ok().cell(), "1");
    let operation = site.fence();
    for _ in 0..2 {
        let answer = older.query("SELECT n FROM writes");
        assert_eq!((code(&answer).as_str(), answer.code()), ("ZF001", 9701), "{answer:?}");
        // The statement alone was stopped, and this was no forced rollback.
        assert_eq!(older.query("SELECT count(*) FROM t").ok().cell(), "1");
    }
    let told = "a read waits for a table as one that writes does; it is stopped";
    let log = std::fs::read_to_string(site.proxy.log_file()).unwrap();
    let backend = format!("engine_pid={}", thread(&older));
    let of_ours =
        |line: &&str| [told, &site.namespace(), &backend].iter().all(|part| line.contains(part));
    assert_eq!(log.lines().filter(of_ours).count(), 2, "who stops it says so");
    let seen = site.inspect();
    assert_eq!(seen["fence"]["engine_lock"]["held"], true, "{seen:#}");
    older.query("COMMIT").ok();
    assert_eq!(site.rows(), "1");
    site.unfence(&operation);
    older.query("SELECT n FROM writes").ok();
    assert_eq!(site.rows(), "1,99");
}

/// MariaDB doesn't say whose lock a thread waits for, and its default schema isn't the fenced one.
fn a_read_from_another_schema_that_waits_for_the_lock_is_stopped_too(flavour: MyFlavour) {
    let (site, open) = (MySite::shared(flavour), MySite::shared(flavour));
    with_a_view_that_writes(&site);
    let reads = format!("SELECT count(*) FROM {}.t", site.db);
    let writes = format!("SELECT n FROM {}.writes", site.db);
    // Somebody has come to it, so it has a gate that is asked where it is named.
    site.client().query("SELECT 1").ok();
    let [mut older, mut younger] = [(); 2].map(|()| open.client());
    older.query("BEGIN").ok();
    assert_eq!(older.query(&reads).ok().cell(), "1");
    let operation = site.fence();
    younger.query("BEGIN").ok();
    for client in [&mut older, &mut younger] {
        for _ in 0..2 {
            let answer = client.query(&writes);
            assert_eq!((code(&answer).as_str(), answer.code()), ("ZF001", 9701), "{answer:?}");
            // The statement alone was stopped.
            assert_eq!(client.query("SELECT count(*) FROM t").ok().cell(), "0");
        }
        client.query("COMMIT").ok();
    }
    assert_eq!(site.rows(), "1");
    site.unfence(&operation);
}

/// Its COMMIT is behind the read that is stopped, and is nobody's to stop.
fn a_transaction_that_wrote_elsewhere_keeps_that_where_its_read_is_stopped(flavour: MyFlavour) {
    let (site, open) = (MySite::shared(flavour), MySite::shared(flavour));
    with_a_view_that_writes(&site);
    let writes = format!("SELECT n FROM {}.writes", site.db);
    site.client().query("SELECT 1").ok();
    let [mut older, mut younger] = [(); 2].map(|()| open.client());
    older.query("BEGIN").ok();
    older.query("INSERT INTO t VALUES (1)").ok();
    let operation = site.fence();
    younger.query("BEGIN").ok();
    younger.query("INSERT INTO t VALUES (2)").ok();
    for (client, then) in [(&mut older, "11"), (&mut younger, "12")] {
        for _ in 0..2 {
            let answer = client.query(&writes);
            assert_eq!((code(&answer).as_str(), answer.code()), ("ZF001", 9701), "{answer:?}");
        }
        client.query(&format!("INSERT INTO t VALUES ({then})")).ok();
        client.query("COMMIT").ok();
    }
    let rows: Vec<_> = [1, 2, 11, 12].map(|n| n.to_string()).into();
    assert_eq!(open.rows(), rows.join(","));
    assert_eq!(site.rows(), "1", "nothing came past the fence");
    site.unfence(&operation);
}

/// A writer of before one fence reads what the other one holds: the statement is stopped, and so
/// the drain of the first one ends with the transaction's COMMIT.
fn two_fences_on_one_server_each_stop_what_waits_for_their_own_lock(flavour: MyFlavour) {
    let (site, second) = (MySite::shared(flavour), MySite::shared(flavour));
    with_a_view_that_writes(&site);
    site.client().query("SELECT 1").ok();
    let mut writer = second.client();
    writer.query("BEGIN").ok();
    writer.query("INSERT INTO t VALUES (7)").ok();
    let operation = site.fence();
    let began = uuid();
    let body = second.acquire_body(&began, &fail_after(1));
    still_draining(&second.acquire(&body));
    let answer = writer.query(&format!("SELECT n FROM {}.writes", site.db));
    assert_eq!((code(&answer).as_str(), answer.code()), ("ZF001", 9701), "{answer:?}");
    writer.query("COMMIT").ok();
    second.acquire_at_last(&body);
    assert_eq!((site.rows(), second.rows()), ("1".to_owned(), "7".to_owned()));
    second.unfence(&began);
    site.unfence(&operation);
}

/// A direct session with a statement that waits for a table's lock.
fn waiting(site: &MySite<'_>, sql: &str) -> MyWire {
    let mut direct = site.direct();
    direct.query("SET SESSION lock_wait_timeout = 600").ok();
    direct.begin_query(sql).unwrap();
    wait_waits(site, thread(&direct));
    direct
}

#[track_caller]
fn wait_waits(site: &MySite<'_>, thread: u32) {
    let waits = format!(
        "SELECT STATE LIKE 'Waiting for table%lock' FROM information_schema.PROCESSLIST \
         WHERE ID = {thread}"
    );
    site.wait_sql(&waits, "1");
}

/// What `fencewire ctl` prints for people.
fn ctl(site: &MySite<'_>, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_fencewire"))
        .arg("ctl")
        .args(arguments)
        .env("FENCEWIRE_ADMIN_URL", format!("http://127.0.0.1:{}", site.proxy.admin_port()))
        .env("FENCEWIRE_ADMIN_KEY", site.proxy.admin_key())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The namespace's line of the admin listing.
fn listed(site: &MySite<'_>) -> Value {
    let all = site.proxy.admin("GET", "/v1/namespaces", &Value::Null).1;
    let namespaces = all["namespaces"].as_array().cloned().unwrap_or_default();
    let own = namespaces.into_iter().find(|one| one["namespace"] == site.namespace());
    own.expect("the namespace isn't listed")
}

fn who_waits_around_the_proxy_is_left_waiting_and_is_no_blocker(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let mut reader = site.client();
    let operation = site.fence();
    let mut insert = waiting(&site, "INSERT INTO t VALUES (1)");
    let mut update = waiting(&site, "UPDATE t SET n = n + 10");
    let ids = [thread(&insert), thread(&update)];
    let seen = site.inspect();
    assert_eq!(seen["fence"]["state"], "SOURCE_WRITE_FENCED", "{seen:#}");
    assert_eq!(seen["fence"]["engine_lock"]["held"], true, "{seen:#}");
    assert_eq!(blockers(&seen).len(), 0, "who waits holds nothing up: {seen:#}");
    let line = listed(&site);
    assert_eq!(line["blockers"].as_array().map(Vec::len), Some(0), "{line:#}");
    assert_eq!(line["sessions"], 1, "those around the proxy aren't its sessions: {line:#}");
    let namespace = site.namespace();
    let inspected = ctl(&site, &["inspect", &namespace]);
    assert!(inspected.contains("lock now"), "{inspected}");
    assert!(inspected.contains("held, 1 tables"), "{inspected}");
    let status = ctl(&site, &["status"]);
    let row = status.lines().find(|line| line.split_whitespace().next() == Some(&namespace));
    let row = row.unwrap_or_else(|| panic!("not in it:\n{status}"));
    assert!(row.contains("SOURCE_WRITE_FENCED"), "{row}");
    for shown in [&inspected, &row.to_owned()] {
        let named = ids.iter().any(|id| shown.split_whitespace().any(|w| w == id.to_string()));
        assert!(!named, "a session around the proxy is named: {shown}");
    }
    // Reads of the proxy's go on beside them, and nobody ends them.
    assert_eq!(reader.query("SELECT count(*) FROM t").ok().cell(), "0");
    for id in ids {
        wait_waits(&site, id);
    }
    site.unfence(&operation);
    insert.answer(&[]).unwrap().ok();
    update.answer(&[]).unwrap().ok();
    assert!(["1", "11"].contains(&site.rows().as_str()));
}

/// A limit that docs/CONTRACT.md names: whoever reads the table queues behind that statement. MySQL
/// tells that a reader waits to read, and it is left; MariaDB doesn't, and it is stopped.
fn a_read_behind_a_direct_ddl_that_waits_for_the_lock(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    site.sql("INSERT INTO t VALUES (1)");
    let mut reader = site.client();
    let operation = site.fence();
    let mut ddl = waiting(&site, "ALTER TABLE t ADD COLUMN m int");
    reader.begin_query("SELECT count(*) FROM t").unwrap();
    match flavour {
        MyFlavour::MariaDb => {
            assert_eq!(code(&reader.answer(&[]).unwrap()), "ZF001");
        }
        MyFlavour::MySql => {
            wait_waits(&site, thread(&reader));
            let waits = poll(PATIENCE, || {
                let line = listed(&site);
                (line["leases"]["read"] == 1 && line["leases"]["write"] == 0).then_some(line)
            });
            let line = waits.expect("the reader's lease isn't shown");
            assert_eq!(line["blockers"].as_array().map(Vec::len), Some(0), "{line:#}");
        }
    }
    site.sql(&format!("KILL QUERY {}", thread(&ddl)));
    assert_eq!(ddl.answer(&[]).unwrap().code(), 1317);
    if flavour == MyFlavour::MySql {
        assert_eq!(reader.answer(&[]).unwrap().ok().cell(), "1");
    }
    assert_eq!(reader.query("SELECT count(*) FROM t").ok().cell(), "1");
    site.unfence(&operation);
}
