//! A store that can't be believed: acceptance 12, for every engine.
//!
//! Purpose: for each row of the contract's table (1.11) the store or the marker is spoiled between
//! two runs; then the namespace is unavailable with the right detail, everybody is refused ZF005,
//! inspection and other namespaces still work, and nothing that is stored was touched.
//!
//! The store knows no engine, what its clients are told does: an engine says by [`Ground`] how it
//! is asked. Who uses it: `tests/store_pg.rs`, `tests/store_mysql.rs`; and `targets/spoilt.rs`,
//! which plays the same table with targets.

use std::path::PathBuf;

use rusqlite::Connection;
use serde_json::{Value, json};

use super::{applied, fail_after, refused};
use crate::support::Proxy;
use crate::support::proxy::uuid;

/// One engine, as these tests need it.
pub trait Ground {
    /// A proxy of the test's own in front of it, which calls it `old`.
    fn proxy(&self) -> Proxy;

    /// A fresh database with an empty table `t (n int)`.
    fn database(&self) -> String;

    /// The name of a database that isn't there, in which the clients may do everything once it is.
    fn target(&self) -> String;

    /// The rows of `t`, by the engine's own word, joined by commas.
    fn rows(&self, db: &str) -> String;

    /// The SQLSTATE that a statement of a new client gets, wherever it is refused; empty for none.
    fn refusal(&self, proxy: &Proxy, db: &str, sql: &str) -> String;
}

/// Statements of every kind that a client may send.
pub const TRAFFIC: [&str; 4] = ["INSERT INTO t VALUES (1)", "SELECT n FROM t", "SELECT 1", "BEGIN"];

pub fn store(proxy: &Proxy) -> Connection {
    Connection::open(proxy.state_dir().join("fence.db")).unwrap()
}

pub fn marker(proxy: &Proxy, db: &str) -> PathBuf {
    proxy.state_dir().join(format!("markers/old/{db}.fence"))
}

pub fn namespace(db: &str) -> String {
    format!("old/{db}")
}

fn fence(proxy: &Proxy, db: &str) -> String {
    let operation = uuid();
    applied(&proxy.acquire(&namespace(db), &operation, &uuid(), &fail_after(60_000)));
    operation
}

fn unfence(proxy: &Proxy, db: &str, operation: &str) {
    applied(&proxy.release(&namespace(db), operation, &uuid()));
}

fn release(proxy: &Proxy, db: &str, operation: &str, revision: u64) -> (u16, Value) {
    let body = json!({ "operation_id": operation, "command_id": uuid(),
        "expected_state": "SOURCE_WRITE_FENCED", "expected_revision": revision });
    proxy.command(&namespace(db), "source/release-write-fence", &body)
}

/// What is stored of a namespace, every column.
pub fn row(proxy: &Proxy, db: &str) -> String {
    let sql = "SELECT quote(format_version) || quote(revision) || quote(record)
               FROM namespace_fences WHERE namespace = ?1";
    store(proxy).query_row(sql, [namespace(db)], |row| row.get(0)).unwrap_or_default()
}

/// Spoils what is stored of a database (`?1` is its namespace).
pub type Spoil = fn(&Proxy, &str);

fn update(proxy: &Proxy, db: &str, sql: &str) {
    let changed = store(proxy).execute(sql, [namespace(db)]).unwrap();
    assert_eq!(changed, 1, "{sql}");
}

/// A way to spoil it, and the detail that it must lead to.
pub const SPOILT: &[(&str, Spoil, &str)] = &[
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

/// Every way to spoil it, one behind the other, on one proxy.
pub fn what_cannot_be_believed_is_unavailable_and_says_why(ground: &impl Ground) {
    let mut proxy = ground.proxy();
    for (what, spoil, detail) in SPOILT {
        let db = ground.database();
        let operation = fence(&proxy, &db);
        proxy.kill9();
        spoil(&proxy, &db);
        let stored = row(&proxy, &db);
        proxy.restart();
        let seen = proxy.inspect(&namespace(&db));
        assert_eq!(seen["fence"]["state"], "UNKNOWN_UNAVAILABLE", "{what}: {seen:#}");
        assert_eq!(seen["fence"]["detail"], *detail, "{what}: {seen:#}");
        assert!(seen["fence"]["reason"].as_str().is_some_and(|r| !r.is_empty()), "{what}");
        for sql in TRAFFIC {
            assert_eq!(ground.refusal(&proxy, &db, sql), "ZF005", "{what}: {sql}");
        }
        let answer = release(&proxy, &db, &operation, 2);
        assert_eq!(refused(&answer, 423, "FENCE_STATE_UNAVAILABLE")["detail"], *detail, "{what}");
        assert_eq!(row(&proxy, &db), stored, "{what}: what is stored was touched");
        // The others aren't concerned.
        let other = ground.database();
        assert_eq!(ground.refusal(&proxy, &other, "INSERT INTO t VALUES (1)"), "");
        let operation = fence(&proxy, &other);
        unfence(&proxy, &other, &operation);
        assert_eq!(ground.rows(&other), "1", "{what}");
        assert_eq!(ground.rows(&db), "", "{what}");
    }
}

/// The whole store is an older copy, then is gone.
pub fn a_store_that_was_rolled_back_or_lost_opens_nothing(ground: &impl Ground) {
    let mut proxy = ground.proxy();
    let db = ground.database();
    let operation = fence(&proxy, &db);
    unfence(&proxy, &db, &operation);
    proxy.stop();
    // Whatever of it isn't in the first file yet belongs to the copy.
    let files = ["", "-wal", "-shm"].map(|end| proxy.state_dir().join(format!("fence.db{end}")));
    let old = files.each_ref().map(|file| std::fs::read(file).ok());
    proxy.restart();
    // Released in the copy, fenced since.
    let again = fence(&proxy, &db);
    assert_eq!(proxy.inspect(&namespace(&db))["fence"]["revision"], 5);
    for lost in [false, true] {
        proxy.kill9();
        for (file, old) in files.iter().zip(&old) {
            let _gone = std::fs::remove_file(file);
            if let Some(bytes) = old.as_ref().filter(|_| !lost) {
                std::fs::write(file, bytes).unwrap();
            }
        }
        if !lost {
            let sql = "SELECT revision FROM namespace_fences WHERE namespace = ?1";
            let copied = store(&proxy).query_row(sql, [namespace(&db)], |row| row.get::<_, i64>(0));
            assert_eq!(copied, Ok(3), "the copy isn't that of the released fence");
        }
        proxy.restart();
        let seen = proxy.inspect(&namespace(&db));
        assert_eq!(seen["fence"]["state"], "UNKNOWN_UNAVAILABLE", "lost: {lost}: {seen:#}");
        assert_eq!(seen["fence"]["detail"], "metastore_behind_marker", "{seen:#}");
        assert_eq!(seen["fence"]["marker_record"]["state"], "SOURCE_WRITE_FENCED", "{seen:#}");
        for sql in TRAFFIC {
            assert_eq!(ground.refusal(&proxy, &db, sql), "ZF005", "lost: {lost}: {sql}");
        }
        refused(&release(&proxy, &db, &again, 5), 423, "FENCE_STATE_UNAVAILABLE");
        assert_eq!(ground.rows(&db), "", "lost: {lost}");
    }
}

/// The record is the truth, and its marker is mended by it.
pub fn a_marker_that_lags_or_cannot_be_read_is_written_anew(ground: &impl Ground) {
    let mut proxy = ground.proxy();
    let db = ground.database();
    let operation = fence(&proxy, &db);
    let good = std::fs::read(marker(&proxy, &db)).unwrap();
    for spoilt in [None, Some(&b"nonsense"[..])] {
        proxy.kill9();
        match spoilt {
            None => std::fs::remove_file(marker(&proxy, &db)).unwrap(),
            Some(bytes) => std::fs::write(marker(&proxy, &db), bytes).unwrap(),
        }
        proxy.restart();
        let state = proxy.inspect(&namespace(&db))["fence"]["state"].clone();
        assert_eq!(state, "SOURCE_WRITE_FENCED", "the record is the truth");
        assert_eq!(ground.refusal(&proxy, &db, "INSERT INTO t VALUES (1)"), "ZF001");
        assert_eq!(std::fs::read(marker(&proxy, &db)).unwrap(), good, "it isn't written anew");
    }
    unfence(&proxy, &db, &operation);
}

/// A command whose receipt is spoilt is never carried out a second time.
pub fn a_receipt_that_cannot_be_read_is_never_taken_for_none(ground: &impl Ground) {
    let mut proxy = ground.proxy();
    let db = ground.database();
    let (operation, command) = (uuid(), uuid());
    let policy = fail_after(60_000);
    let mut body = proxy.command_body(&namespace(&db), &operation, &command);
    let incarnation = &proxy.inspect(&namespace(&db))["fence"]["incarnation"];
    body["expected_namespace_identity"] = json!({
        "engine_id": incarnation["engine_id"], "database_id": incarnation["database_id"],
    });
    body["drain_policy"] = policy;
    let acquire = "source/acquire-write-fence";
    applied(&proxy.command(&namespace(&db), acquire, &body));
    proxy.kill9();
    update(&proxy, &db, "UPDATE namespace_fence_receipts SET receipt = x'00' WHERE namespace = ?1");
    proxy.restart();
    let answer = proxy.command(&namespace(&db), acquire, &body);
    assert_eq!(refused(&answer, 423, "FENCE_STATE_UNAVAILABLE")["detail"], "corrupt_record");
    assert_eq!(ground.refusal(&proxy, &db, "INSERT INTO t VALUES (1)"), "ZF001");
    // Inspection says what holds, and why it can't show the receipts.
    let seen = proxy.inspect(&namespace(&db));
    assert_eq!(seen["fence"]["state"], "SOURCE_WRITE_FENCED", "{seen:#}");
    assert!(seen["receipts_error"].to_string().contains("corrupt_record"), "{seen:#}");
    // Another command of the owner isn't hindered.
    unfence(&proxy, &db, &operation);
}
