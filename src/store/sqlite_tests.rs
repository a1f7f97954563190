//! What only a file can promise: reopening, two processes, full disks, crashes.

use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::Arc;

use super::contract::{acquire, release, stored};
use super::sqlite::SqliteStore;
use super::*;
use crate::fence::sample::namespace;

struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("fence.db")
    }

    fn open(&self) -> SqliteStore {
        SqliteStore::open(&self.file()).unwrap()
    }
}

fn revision(row: &Row) -> u64 {
    match row {
        Row::Absent => 0,
        Row::Good(persisted) => persisted.record().unwrap().revision.0,
        Row::Bad { reason, .. } => panic!("{reason}"),
    }
}

#[tokio::test]
async fn what_was_committed_is_there_after_reopening() {
    let home = Home::new();
    let persisted = home.open().fence_commit(acquire()).await.unwrap();
    let store = home.open();
    assert_eq!(stored(&store).await, Row::Good(persisted));
    let receipt = acquire().receipt;
    let found = store.receipt_find(&namespace(), receipt.operation, receipt.command).await;
    assert_eq!(found, Ok(Some(receipt)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_connections_on_one_file_one_wins() {
    let home = Home::new();
    let stores = [Arc::new(home.open()), Arc::new(home.open())];
    stores[0].fence_commit(acquire()).await.unwrap();
    for round in 2..20_u64 {
        let id = u8::try_from(round).unwrap() * 2 + 20;
        let tasks: Vec<_> = (0..2_u8)
            .map(|which| {
                let store = stores[usize::from(which)].clone();
                tokio::spawn(async move { store.fence_commit(release(round, id + which)).await })
            })
            .collect();
        let mut won = 0;
        for task in tasks {
            match task.await.unwrap() {
                Ok(_) => won += 1,
                Err(CommitError::Conflict { current }) => assert_eq!(current, Revision(round)),
                Err(error) => panic!("{error:?}"),
            }
        }
        assert_eq!(won, 1, "round {round}");
        for store in &stores {
            assert_eq!(revision(&stored(&**store).await), round);
        }
    }
}

#[tokio::test]
async fn a_full_or_read_only_store_has_not_committed() {
    let home = Home::new();
    let store = home.open();
    store.fence_commit(acquire()).await.unwrap();
    for (spoil, mend) in [
        ("PRAGMA query_only = 1", "PRAGMA query_only = 0"),
        ("PRAGMA max_page_count = 1", "PRAGMA max_page_count = 1000000"),
    ] {
        run(&store, spoil).await;
        let mut change = release(2, 11);
        // Large enough to need a page that isn't there.
        change.receipt.instance = "x".repeat(100_000);
        let error = store.fence_commit(change).await.unwrap_err();
        assert!(matches!(error, CommitError::NotCommitted(_)), "{spoil}: {error:?}");
        run(&store, mend).await;
        assert_eq!(revision(&stored(&store).await), 1, "{spoil}");
    }
    store.fence_commit(release(2, 11)).await.unwrap();
}

async fn run(store: &SqliteStore, sql: &'static str) {
    store.with_connection(move |connection| connection.execute_batch(sql).unwrap()).await;
}

#[tokio::test]
async fn a_commit_that_fails_itself_is_settled_by_reading() {
    // A deferred constraint makes COMMIT, and nothing before it, fail.
    const POISON: &str = "
        CREATE TABLE parent (id INTEGER PRIMARY KEY);
        CREATE TABLE child (id REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
        CREATE TRIGGER poison AFTER INSERT ON namespace_fence_receipts
        BEGIN INSERT INTO child VALUES (7); END;";
    let home = Home::new();
    let store = home.open();
    run(&store, POISON).await;
    let error = store.fence_commit(acquire()).await.unwrap_err();
    assert!(matches!(error, CommitError::NotCommitted(_)), "{error:?}");
    // A reader that holds the log open: it can't be emptied, so nothing is proven.
    let reader = home.open();
    run(&reader, "BEGIN; SELECT * FROM namespace_fences").await;
    run(&store, "DROP TRIGGER poison; CREATE TABLE more (x)").await;
    run(
        &store,
        "PRAGMA busy_timeout = 1; CREATE TRIGGER poison AFTER INSERT ON \
                 namespace_fence_receipts BEGIN INSERT INTO child VALUES (7); END;",
    )
    .await;
    let error = store.fence_commit(acquire()).await.unwrap_err();
    assert!(matches!(error, CommitError::Unknown(_)), "{error:?}");
    // Nor does reading prove it, or another commit get in front of it, until the log is empty.
    let receipt = acquire().receipt;
    let found = store.receipt_find(&namespace(), receipt.operation, receipt.command).await;
    assert!(found.as_ref().is_err_and(|e| e.to_string().contains("isn't known")), "{found:?}");
    assert_eq!(stored(&store).await, Row::Absent, "it may be looked at");
    let error = store.fence_commit(acquire()).await.unwrap_err();
    assert!(matches!(error, CommitError::NotCommitted(_)), "{error:?}");
    run(&reader, "COMMIT").await;
    run(&store, "DROP TRIGGER poison").await;
    assert_eq!(stored(&store).await, Row::Absent);
    store.fence_commit(acquire()).await.unwrap();
}

#[tokio::test]
async fn a_column_of_another_type_is_a_corrupt_row() {
    let home = Home::new();
    let store = home.open();
    store.fence_commit(acquire()).await.unwrap();
    run(&store, "UPDATE namespace_fences SET revision = 'one'").await;
    assert!(matches!(stored(&store).await, Row::Bad { detail: Detail::CorruptRecord, .. }));
    run(&store, "UPDATE namespace_fence_receipts SET receipt = 5").await;
    let listed = store.receipt_list(&namespace(), None).await;
    assert!(matches!(listed, Err(StoreError::Corrupt { .. })), "{listed:?}");
}

#[test]
fn what_is_no_store_of_ours_is_not_opened() {
    let home = Home::new();
    std::fs::write(home.file(), "not a database, but long enough to look at its header".repeat(9))
        .unwrap();
    let error = SqliteStore::open(&home.file()).unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    let error = SqliteStore::open(Path::new("/nonexistent/fence.db")).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/fence.db"), "{error}");
}

#[tokio::test]
async fn a_store_of_a_newer_build_is_not_opened() {
    let home = Home::new();
    let store = home.open();
    run(&store, "UPDATE fencewire_schema SET version = 2").await;
    let error = SqliteStore::open(&home.file()).unwrap_err();
    assert_eq!(error, StoreError::Schema { found: 2, known: 1 });
}

#[tokio::test]
async fn an_empty_file_is_a_new_store() {
    let home = Home::new();
    std::fs::write(home.file(), b"").unwrap();
    assert_eq!(home.open().fence_list().await, Ok(Vec::new()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_in_another_process_is_waited_for_and_not_overrun() {
    let home = Home::new();
    let (mine, theirs) = (home.open(), home.open());
    mine.fence_commit(acquire()).await.unwrap();
    run(&mine, "PRAGMA busy_timeout = 1").await;
    run(&theirs, "BEGIN IMMEDIATE").await;
    let error = mine.fence_commit(release(2, 11)).await.unwrap_err();
    assert!(matches!(error, CommitError::NotCommitted(_)), "{error:?}");
    run(&theirs, "ROLLBACK").await;
    mine.fence_commit(release(2, 11)).await.unwrap();
}

const CHILD_HOME: &str = "FENCEWIRE_TEST_HOME";

/// Runs in a process of its own, started by the test below; alone it does nothing.
#[tokio::test]
async fn crash_child() {
    let Some(home) = std::env::var_os(CHILD_HOME) else { return };
    let home = PathBuf::from(home);
    let store = SqliteStore::open(&home.join("fence.db")).unwrap();
    let markers = marker::MarkerDir::open(&home).unwrap();
    for change in [acquire(), release(2, 11)] {
        match store.fence_commit(change).await {
            Ok(persisted) => markers.write(persisted.record().unwrap()).await.unwrap(),
            Err(error) => {
                let kind = match error {
                    CommitError::Conflict { .. } => "conflict",
                    CommitError::NotCommitted(_) => "not committed",
                    CommitError::Unknown(_) => "unknown",
                };
                std::fs::write(home.join("answer"), kind).unwrap();
                return;
            }
        }
    }
    std::fs::write(home.join("answer"), "done").unwrap();
}

fn child(home: &Home, fault: &str) -> Process {
    let mut process = Process::new(std::env::current_exe().unwrap());
    process
        .args(["--exact", "store::sqlite_tests::crash_child", "--nocapture"])
        .env(CHILD_HOME, home.dir.path())
        .env("FENCEWIRE_FAULT", fault)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    process
}

/// The revision in the store, in the marker, and what both mean, after a restart.
async fn after_restart(home: &Home) -> (u64, u64, reconcile::Reconciled) {
    let store = home.open();
    let markers = marker::MarkerDir::open(home.dir.path()).unwrap();
    let loaded = store.fence_load(&namespace()).await.unwrap();
    let marker = markers.read(&namespace()).await;
    let marked = match &marker {
        marker::Marker::Missing => 0,
        marker::Marker::Found(record) => record.revision.0,
        marker::Marker::Undecodable { reason } => panic!("{reason}"),
    };
    let row = revision(&loaded.row);
    (row, marked, reconcile::reconcile(loaded, marker, true))
}

#[tokio::test]
async fn killed_anywhere_it_comes_back_before_or_after_the_commit() {
    let mut seen = 0;
    for (point, row, marked) in [
        ("store.before_begin@1", 0, 0),
        ("store.before_commit@1", 0, 0),
        ("store.after_commit@1", 1, 0),
        ("marker.before_write@1", 1, 0),
        ("marker.before_rename@1", 1, 0),
        ("marker.after_rename@1", 1, 1),
        ("store.before_begin@2", 1, 1),
        ("store.before_commit@2", 1, 1),
        ("store.after_commit@2", 2, 1),
        ("marker.before_write@2", 2, 1),
        ("marker.before_rename@2", 2, 1),
        ("marker.after_rename@2", 2, 2),
    ] {
        let home = Home::new();
        let status = child(&home, &format!("{point}=abort")).status().unwrap();
        assert!(!status.success(), "{point} was not reached");
        let (found, marker, reconciled) = after_restart(&home).await;
        assert_eq!((found, marker), (row, marked), "{point}");
        assert!(reconciled.persisted.is_some(), "{point}: {reconciled:?}");
        // The lost answer is resolved by doing the same again.
        assert!(child(&home, "").status().unwrap().success());
        let answer = std::fs::read_to_string(home.dir.path().join("answer")).unwrap();
        let expected = if row == 0 { "done" } else { "conflict" };
        assert_eq!(answer, expected, "{point}");
        seen += 1;
    }
    assert_eq!(seen, 12);
}

#[tokio::test]
async fn faults_around_the_commit_are_classified() {
    for (point, answer, row) in [
        ("store.before_begin=error", "not committed", 0),
        ("store.before_commit=error", "not committed", 0),
        ("store.after_commit=error", "unknown", 1),
    ] {
        let home = Home::new();
        assert!(child(&home, point).status().unwrap().success());
        let said = std::fs::read_to_string(home.dir.path().join("answer")).unwrap();
        let (found, _, _) = after_restart(&home).await;
        assert_eq!((said.as_str(), found), (answer, row), "{point}");
    }
}
