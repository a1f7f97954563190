//! A store that can't be believed: acceptance 12, on the built program.
//!
//! Purpose: for each row of the contract's table (1.11) the store or the marker is spoiled between
//! two runs; then the namespace is unavailable with the right detail, everybody is refused ZF005,
//! inspection and other namespaces still work, and nothing that is stored was touched.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod support;

use std::path::PathBuf;

use acceptance::{Site, applied, code, fail_after, refused};
use rusqlite::Connection;
use serde_json::json;
use support::proxy::uuid;
use support::{PgCluster, Proxy, Wire};

fn store(proxy: &Proxy) -> Connection {
    Connection::open(proxy.state_dir().join("fence.db")).unwrap()
}

fn marker(proxy: &Proxy, db: &str) -> PathBuf {
    proxy.state_dir().join(format!("markers/old/{db}.fence"))
}

/// What is stored of a namespace, every column.
fn row(proxy: &Proxy, db: &str) -> String {
    let sql = "SELECT quote(format_version) || quote(revision) || quote(record)
               FROM namespace_fences WHERE namespace = ?1";
    let namespace = format!("old/{db}");
    store(proxy).query_row(sql, [namespace], |row| row.get(0)).unwrap_or_default()
}

/// The SQLSTATE that a statement gets, wherever it is refused.
fn refusal(proxy: &Proxy, db: &str, sql: &str) -> String {
    match Wire::try_connect(proxy.port(), "wire", db, &[]) {
        Ok(mut client) => code(&client.query(sql)),
        Err(fields) => fields[&'C'].clone(),
    }
}

/// Spoils what is stored of a database (`?1` is its namespace).
type Spoil = fn(&Proxy, &str);

fn update(proxy: &Proxy, db: &str, sql: &str) {
    let changed = store(proxy).execute(sql, [format!("old/{db}")]).unwrap();
    assert_eq!(changed, 1, "{sql}");
}

/// A way to spoil it, and the detail that it must lead to.
const SPOILT: &[(&str, Spoil, &str)] = &[
    (
        "a record that is no record",
        |proxy, db| {
            update(proxy, db, "UPDATE namespace_fences SET record = x'00ff' WHERE namespace = ?1");
        },
        "corrupt_record",
    ),
    (
        "a format of the future",
        |proxy, db| {
            update(
                proxy,
                db,
                "UPDATE namespace_fences SET format_version = 99 WHERE namespace = ?1",
            );
        },
        "unsupported_format_version",
    ),
    (
        "a revision column that says something else",
        |proxy, db| {
            update(proxy, db, "UPDATE namespace_fences SET revision = 7 WHERE namespace = ?1");
        },
        "corrupt_record",
    ),
    (
        "a revision below nothing",
        |proxy, db| {
            update(proxy, db, "UPDATE namespace_fences SET revision = -1 WHERE namespace = ?1");
        },
        "corrupt_record",
    ),
    (
        "another namespace's name inside",
        |proxy, db| {
            let sql = "UPDATE namespace_fences SET record = CAST(replace(CAST(record AS TEXT),
                       ?1, 'old/another') AS BLOB) WHERE namespace = ?1";
            update(proxy, db, sql);
        },
        "corrupt_record",
    ),
    (
        "a row that is gone",
        |proxy, db| update(proxy, db, "DELETE FROM namespace_fences WHERE namespace = ?1"),
        "metastore_behind_marker",
    ),
    (
        "a row that is gone, and a marker that is no marker",
        |proxy, db| {
            update(proxy, db, "DELETE FROM namespace_fences WHERE namespace = ?1");
            std::fs::write(marker(proxy, db), b"fencewire-marker 1 abc\n{}").unwrap();
        },
        "corrupt_record",
    ),
    (
        "a marker of another content at the same revision",
        |proxy, db| {
            // The row is older than it says: its draining state under the fenced one's revision.
            let sql = "UPDATE namespace_fences SET record = CAST(replace(CAST(record AS TEXT),
                       '\"created_at_ms\":1', '\"created_at_ms\":2') AS BLOB) WHERE namespace = ?1";
            update(proxy, db, sql);
        },
        "metastore_behind_marker",
    ),
];

#[test]
fn acceptance_12_what_cannot_be_believed_is_unavailable_and_says_why() {
    let cluster = PgCluster::shared();
    let mut proxy = Proxy::start(cluster);
    for (what, spoil, detail) in SPOILT {
        let db = Site::new(cluster, &proxy).db;
        let operation = Site::at(cluster, &proxy, &db).fence();
        proxy.kill9();
        spoil(&proxy, &db);
        let stored = row(&proxy, &db);
        proxy.restart();
        let site = Site::at(cluster, &proxy, &db);
        let seen = site.inspect();
        assert_eq!(seen["fence"]["state"], "UNKNOWN_UNAVAILABLE", "{what}: {seen:#}");
        assert_eq!(seen["fence"]["detail"], *detail, "{what}: {seen:#}");
        assert!(seen["fence"]["reason"].as_str().is_some_and(|r| !r.is_empty()), "{what}");
        for sql in ["INSERT INTO t VALUES (1)", "SELECT 1"] {
            assert_eq!(refusal(&proxy, &db, sql), "ZF005", "{what}: {sql}");
        }
        let body = json!({ "operation_id": operation, "command_id": uuid(),
            "expected_state": "SOURCE_WRITE_FENCED", "expected_revision": 2 });
        let answer = site.release(&body);
        assert_eq!(refused(&answer, 423, "FENCE_STATE_UNAVAILABLE")["detail"], *detail, "{what}");
        assert_eq!(row(&proxy, &db), stored, "{what}: what is stored was touched");
        // The others aren't concerned.
        let other = Site::new(cluster, &proxy);
        other.client().query("INSERT INTO t VALUES (1)").ok();
        let operation = other.fence();
        other.unfence(&operation);
        assert_eq!(site.rows(), "", "{what}");
    }
}

#[test]
fn acceptance_12_a_store_that_was_rolled_back_or_lost_opens_nothing() {
    let cluster = PgCluster::shared();
    let mut proxy = Proxy::start(cluster);
    let db = Site::new(cluster, &proxy).db;
    let operation = Site::at(cluster, &proxy, &db).fence();
    Site::at(cluster, &proxy, &db).unfence(&operation);
    proxy.stop();
    let file = proxy.state_dir().join("fence.db");
    let old = std::fs::read(&file).unwrap();
    proxy.restart();
    // Released in the copy, fenced since.
    let again = Site::at(cluster, &proxy, &db).fence();
    assert_eq!(Site::at(cluster, &proxy, &db).inspect()["fence"]["revision"], 5);
    for lost in [false, true] {
        proxy.kill9();
        for suffix in ["", "-wal", "-shm"] {
            let _gone = std::fs::remove_file(format!("{}{suffix}", file.display()));
        }
        if !lost {
            std::fs::write(&file, &old).unwrap();
        }
        proxy.restart();
        let site = Site::at(cluster, &proxy, &db);
        let seen = site.inspect();
        assert_eq!(seen["fence"]["state"], "UNKNOWN_UNAVAILABLE", "lost: {lost}: {seen:#}");
        assert_eq!(seen["fence"]["detail"], "metastore_behind_marker", "{seen:#}");
        assert_eq!(seen["fence"]["marker_record"]["state"], "SOURCE_WRITE_FENCED", "{seen:#}");
        for sql in ["INSERT INTO t VALUES (1)", "SELECT 1"] {
            assert_eq!(refusal(&proxy, &db, sql), "ZF005", "lost: {lost}: {sql}");
        }
        let body = json!({ "operation_id": again, "command_id": uuid(),
            "expected_state": "SOURCE_WRITE_FENCED", "expected_revision": 5 });
        refused(&site.release(&body), 423, "FENCE_STATE_UNAVAILABLE");
    }
}

#[test]
fn acceptance_12_a_marker_that_lags_or_cannot_be_read_is_written_anew() {
    let cluster = PgCluster::shared();
    let mut proxy = Proxy::start(cluster);
    let db = Site::new(cluster, &proxy).db;
    let operation = Site::at(cluster, &proxy, &db).fence();
    let good = std::fs::read(marker(&proxy, &db)).unwrap();
    for spoilt in [None, Some(&b"nonsense"[..])] {
        proxy.kill9();
        match spoilt {
            None => std::fs::remove_file(marker(&proxy, &db)).unwrap(),
            Some(bytes) => std::fs::write(marker(&proxy, &db), bytes).unwrap(),
        }
        proxy.restart();
        let site = Site::at(cluster, &proxy, &db);
        assert_eq!(site.state(), "SOURCE_WRITE_FENCED", "the record is the truth");
        assert_eq!(code(&site.client().query("INSERT INTO t VALUES (1)")), "ZF001");
        assert_eq!(std::fs::read(marker(&proxy, &db)).unwrap(), good, "it isn't written anew");
    }
    Site::at(cluster, &proxy, &db).unfence(&operation);
}

#[test]
fn acceptance_12_a_receipt_that_cannot_be_read_is_never_taken_for_none() {
    let cluster = PgCluster::shared();
    let mut proxy = Proxy::start(cluster);
    let db = Site::new(cluster, &proxy).db;
    let operation = uuid();
    let site = Site::at(cluster, &proxy, &db);
    let body = site.acquire_body(&operation, &fail_after(30_000));
    applied(&site.acquire(&body));
    proxy.kill9();
    update(&proxy, &db, "UPDATE namespace_fence_receipts SET receipt = x'00' WHERE namespace = ?1");
    proxy.restart();
    let site = Site::at(cluster, &proxy, &db);
    let answer = site.acquire(&body);
    assert_eq!(refused(&answer, 423, "FENCE_STATE_UNAVAILABLE")["detail"], "corrupt_record");
    assert_eq!(code(&site.client().query("INSERT INTO t VALUES (1)")), "ZF001");
    // Inspection says what holds, and why it can't show the receipts.
    let seen = site.inspect();
    assert_eq!(seen["fence"]["state"], "SOURCE_WRITE_FENCED", "{seen:#}");
    assert!(seen["receipts_error"].to_string().contains("corrupt_record"), "{seen:#}");
    // Another command of the owner isn't hindered.
    site.unfence(&operation);
}
