//! One suite, run on every backend: what each of them promises.
//!
//! A backend joins by a `Bench` and one line in the macro at the end. What only the file-backed
//! store can promise (reopening, two processes, crashes) is in `sqlite_tests`.

use std::sync::Arc;

use super::memory::{MemoryStore, RawRow};
use super::record::{encode_receipt, encode_record};
use super::sqlite::SqliteStore;
use super::*;
use crate::fence::command::{Command, CommandKind};
use crate::fence::receipt::Outcome;
use crate::fence::sample::{self, namespace};
use crate::fence::state::FenceState;

/// A backend under test, with a back door for rows that it would not have written.
pub(super) trait Bench {
    fn store(&self) -> Arc<dyn FenceStore>;
    fn put_fence<'a>(&'a self, name: &'a str, row: RawRow) -> StoreFuture<'a, ()>;
    fn put_receipt<'a>(&'a self, receipt: &'a Receipt, row: RawRow) -> StoreFuture<'a, ()>;
}

struct MemoryBench(Arc<MemoryStore>);

impl Bench for MemoryBench {
    fn store(&self) -> Arc<dyn FenceStore> {
        self.0.clone()
    }

    fn put_fence<'a>(&'a self, name: &'a str, row: RawRow) -> StoreFuture<'a, ()> {
        self.0.put_fence(name, row);
        Box::pin(std::future::ready(()))
    }

    fn put_receipt<'a>(&'a self, receipt: &'a Receipt, row: RawRow) -> StoreFuture<'a, ()> {
        self.0.put_receipt(receipt, row);
        Box::pin(std::future::ready(()))
    }
}

struct SqliteBench {
    store: Arc<SqliteStore>,
    _dir: tempfile::TempDir,
}

impl Bench for SqliteBench {
    fn store(&self) -> Arc<dyn FenceStore> {
        self.store.clone()
    }

    fn put_fence<'a>(&'a self, name: &'a str, row: RawRow) -> StoreFuture<'a, ()> {
        let name = name.to_owned();
        Box::pin(self.store.with_connection(move |connection| {
            let sql = "INSERT OR REPLACE INTO namespace_fences VALUES (?1, ?2, ?3, ?4)";
            let values = rusqlite::params![name, row.format_version, row.revision, row.bytes];
            connection.execute(sql, values).unwrap();
        }))
    }

    fn put_receipt<'a>(&'a self, receipt: &'a Receipt, row: RawRow) -> StoreFuture<'a, ()> {
        let key = [
            receipt.namespace.to_string(),
            receipt.operation.to_string(),
            receipt.command.to_string(),
        ];
        Box::pin(self.store.with_connection(move |connection| {
            let sql = "INSERT OR REPLACE INTO namespace_fence_receipts \
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
            let at = i64::try_from(row.at_ms).unwrap();
            let values = rusqlite::params![
                key[0],
                key[1],
                key[2],
                row.format_version,
                row.revision,
                at,
                row.bytes
            ];
            connection.execute(sql, values).unwrap();
        }))
    }
}

fn memory() -> MemoryBench {
    MemoryBench(Arc::new(MemoryStore::new()))
}

fn sqlite() -> SqliteBench {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&dir.path().join("fence.db")).unwrap());
    SqliteBench { store, _dir: dir }
}

/// A sound record at a revision, last changed by command `id`.
pub(super) fn record(state: FenceState, revision: u64, id: u8) -> FenceRecord {
    FenceRecord {
        revision: Revision(revision),
        last_command: sample::command_id(id),
        ..sample::record(state)
    }
}

fn command(kind: CommandKind, id: u8) -> Command {
    sample::command(kind, &sample::view(FenceState::Unfenced), 1, id)
}

/// The commit of a command that leads to `next`.
pub(super) fn commit(kind: CommandKind, outcome: Outcome, next: FenceRecord, id: u8) -> Commit {
    let mut receipt = sample::receipt(&command(kind, id), outcome, &next);
    receipt.namespace = next.namespace.clone();
    Commit {
        namespace: next.namespace.clone(),
        expected_revision: receipt.revision_before,
        next: Some(Box::new(next)),
        receipt,
    }
}

/// DRAINING at revision 1, by command 10.
pub(super) fn acquire() -> Commit {
    let next = record(FenceState::SourceDraining, 1, 10);
    commit(CommandKind::AcquireSourceWriteFence, Outcome::Draining, next, 10)
}

/// RELEASED at `revision`, by command `id`.
pub(super) fn release(revision: u64, id: u8) -> Commit {
    let next = record(FenceState::Released, revision, id);
    commit(CommandKind::ReleaseSourceWriteFence, Outcome::Applied, next, id)
}

pub(super) async fn stored(store: &dyn FenceStore) -> Row {
    store.fence_load(&namespace()).await.unwrap().row
}

fn raw(record: &FenceRecord) -> RawRow {
    let revision = i64::try_from(record.revision.0).unwrap();
    RawRow { format_version: 1, revision, at_ms: 0, bytes: encode_record(record).unwrap() }
}

async fn find(store: &dyn FenceStore, receipt: &Receipt) -> Result<Option<Receipt>, StoreError> {
    store.receipt_find(&receipt.namespace, receipt.operation, receipt.command).await
}

async fn a_commit_is_read_back_whole(bench: &dyn Bench) {
    let store = bench.store();
    assert_eq!(stored(&*store).await, Row::Absent);
    for (revision, state) in
        (1..).zip(FenceState::ALL.into_iter().filter(|state| state.is_durable()))
    {
        let id = u8::try_from(revision).unwrap();
        let next = record(state, revision, id);
        let change = commit(CommandKind::AdoptFence, Outcome::Applied, next.clone(), id);
        let persisted = store.fence_commit(change.clone()).await.unwrap();
        assert_eq!(persisted.record(), Some(&next));
        assert_eq!(persisted.namespace(), &namespace());
        assert_eq!(stored(&*store).await, Row::Good(persisted), "{state}");
        assert_eq!(find(&*store, &change.receipt).await, Ok(Some(change.receipt)));
    }
    assert_eq!(store.fence_list().await.unwrap().len(), 1);
    assert_eq!(store.receipt_list(&namespace(), None).await.unwrap().len(), 11);
    let other = Some(sample::operation(9));
    assert_eq!(store.receipt_list(&namespace(), other).await.unwrap(), []);
    let nobody = Namespace::parse("old/nobody").unwrap();
    assert_eq!(store.receipt_list(&nobody, None).await.unwrap(), []);
}

async fn only_the_expected_revision_is_replaced(bench: &dyn Bench) {
    let store = bench.store();
    store.fence_commit(acquire()).await.unwrap();
    for (expected, revision) in [(0, 1), (0, 2), (2, 3), (9, 10)] {
        let change = Commit { expected_revision: Revision(expected), ..release(revision, 11) };
        let error = store.fence_commit(change.clone()).await.unwrap_err();
        assert_eq!(error, CommitError::Conflict { current: Revision(1) }, "{expected}");
        assert_eq!(find(&*store, &change.receipt).await, Ok(None));
    }
    let change = Commit { expected_revision: Revision(3), ..release(4, 11) };
    let other = Namespace::parse("old/other").unwrap();
    let mut elsewhere = change;
    elsewhere.namespace = other.clone();
    elsewhere.receipt.namespace = other.clone();
    elsewhere.next.as_mut().unwrap().namespace = other;
    let error = store.fence_commit(elsewhere).await.unwrap_err();
    assert_eq!(error, CommitError::Conflict { current: Revision(0) });
    assert!(matches!(stored(&*store).await, Row::Good(found)
        if found.record().unwrap().revision == Revision(1)));
}

async fn one_commit_changes_one_row(bench: &dyn Bench) {
    let store = bench.store();
    let other = Namespace::parse("old/other").unwrap();
    let mut elsewhere = acquire();
    elsewhere.namespace = other.clone();
    elsewhere.receipt.namespace = other.clone();
    elsewhere.next.as_mut().unwrap().namespace = other.clone();
    store.fence_commit(acquire()).await.unwrap();
    let before = store.fence_commit(elsewhere).await.unwrap();
    store.fence_commit(release(2, 11)).await.unwrap();
    let after = store.fence_load(&other).await.unwrap();
    assert_eq!(after, LoadedFence { namespace: other, row: Row::Good(before) });
}

async fn a_final_receipt_replaces_draining_and_is_never_replaced(bench: &dyn Bench) {
    let store = bench.store();
    let draining = acquire();
    store.fence_commit(draining.clone()).await.unwrap();
    let mut last = draining.receipt.clone();
    last.outcome = Outcome::Applied;
    last.revision_after = Revision(2);
    last.state_after = FenceState::SourceWriteFenced;
    let done = Commit {
        namespace: namespace(),
        expected_revision: Revision(1),
        next: Some(Box::new(record(FenceState::SourceWriteFenced, 2, 10))),
        receipt: last.clone(),
    };
    let persisted = store.fence_commit(done).await.unwrap();
    assert_eq!(find(&*store, &last).await, Ok(Some(last.clone())));
    // The same key again, at the right revision: somebody decided without seeing the receipt.
    let again = Commit {
        namespace: namespace(),
        expected_revision: Revision(2),
        next: None,
        receipt: Receipt { outcome: Outcome::AlreadyApplied, ..last.clone() },
    };
    let error = store.fence_commit(again).await.unwrap_err();
    assert_eq!(error, CommitError::Conflict { current: Revision(2) });
    assert_eq!(find(&*store, &last).await, Ok(Some(last)));
    assert_eq!(stored(&*store).await, Row::Good(persisted));
}

async fn another_request_under_a_stored_id_is_a_conflict(bench: &dyn Bench) {
    let store = bench.store();
    store.fence_commit(acquire()).await.unwrap();
    let error = store.fence_commit(release(2, 10)).await.unwrap_err();
    assert_eq!(error, CommitError::Conflict { current: Revision(1) });
    assert_eq!(find(&*store, &acquire().receipt).await, Ok(Some(acquire().receipt)));
}

async fn a_receipt_alone_leaves_the_row(bench: &dyn Bench) {
    let store = bench.store();
    let persisted = store.fence_commit(acquire()).await.unwrap();
    let join = Commit {
        expected_revision: Revision(1),
        next: None,
        ..commit(
            CommandKind::AcquireSourceWriteFence,
            Outcome::Draining,
            record(FenceState::SourceDraining, 1, 10),
            11,
        )
    };
    assert_eq!(store.fence_commit(join.clone()).await.as_ref(), Ok(&persisted));
    assert_eq!(find(&*store, &join.receipt).await, Ok(Some(join.receipt.clone())));
    let stale = Commit { expected_revision: Revision(2), ..join };
    let error = store.fence_commit(stale).await.unwrap_err();
    assert_eq!(error, CommitError::Conflict { current: Revision(1) });
}

async fn what_contradicts_itself_is_not_written(bench: &dyn Bench) {
    let store = bench.store();
    let spoils: [fn(&mut Commit); 8] = [
        |c| c.namespace = Namespace::parse("old/other").unwrap(),
        |c| c.next.as_mut().unwrap().namespace = Namespace::parse("old/other").unwrap(),
        |c| c.receipt.namespace = Namespace::parse("old/other").unwrap(),
        |c| c.next.as_mut().unwrap().revision = Revision(0),
        |c| c.next.as_mut().unwrap().drain_policy = None,
        |c| c.receipt.revision_after = Revision(7),
        |c| c.next = None,
        |c| {
            c.next.as_mut().unwrap().revision = Revision(u64::MAX);
            c.receipt.revision_after = Revision(u64::MAX);
        },
    ];
    for (index, spoil) in spoils.into_iter().enumerate() {
        let mut change = acquire();
        spoil(&mut change);
        let error = store.fence_commit(change).await.unwrap_err();
        let refused = matches!(error, CommitError::NotCommitted(StoreError::Inconsistent { .. }));
        assert!(refused, "spoil {index}: {error:?}");
    }
    assert_eq!(store.fence_list().await.unwrap(), []);
    assert_eq!(store.receipt_list(&namespace(), None).await.unwrap(), []);
}

async fn a_record_that_is_too_large_is_not_written(bench: &dyn Bench) {
    let store = bench.store();
    let mut next = record(FenceState::SourceWriteFenced, 1, 10);
    let sessions = vec!["x".repeat(1000); crate::base::limits::STORED_RECORD_BYTES / 1000];
    next.evidence.as_mut().unwrap().direct_sessions = sessions;
    let change = commit(CommandKind::AdoptFence, Outcome::Applied, next, 10);
    let error = store.fence_commit(change).await.unwrap_err();
    assert!(matches!(error, CommitError::NotCommitted(_)), "{error:?}");
    assert_eq!(stored(&*store).await, Row::Absent);
}

async fn a_row_that_cannot_be_believed_is_bad_and_left_alone(bench: &dyn Bench) {
    let store = bench.store();
    let good = record(FenceState::SourceWriteFenced, 5, 10);
    let text = String::from_utf8(raw(&good).bytes).unwrap();
    let other = FenceRecord {
        namespace: Namespace::parse("old/other").unwrap(),
        ..record(FenceState::SourceDraining, 5, 10)
    };
    let edited = |from: &str, to: &str| {
        assert!(text.contains(from), "{from} is not in {text}");
        RawRow { bytes: text.replace(from, to).into_bytes(), ..raw(&good) }
    };
    let cases = [
        (RawRow { format_version: 2, ..raw(&good) }, Detail::UnsupportedFormatVersion),
        (RawRow { format_version: 0, ..raw(&good) }, Detail::UnsupportedFormatVersion),
        (RawRow { revision: 6, ..raw(&good) }, Detail::CorruptRecord),
        (RawRow { revision: -5, ..raw(&good) }, Detail::CorruptRecord),
        (RawRow { bytes: b"{".to_vec(), ..raw(&good) }, Detail::CorruptRecord),
        (RawRow { bytes: Vec::new(), ..raw(&good) }, Detail::CorruptRecord),
        (raw(&other), Detail::CorruptRecord),
        (edited("SOURCE_WRITE_FENCED", "UNFENCED"), Detail::CorruptRecord),
        (edited("SOURCE_WRITE_FENCED", "TARGET_WRITABLE"), Detail::CorruptRecord),
        (edited("SOURCE_WRITE_FENCED", "SOURCE_OPEN"), Detail::CorruptRecord),
        (edited("\"role\"", "\"more\":1,\"role\""), Detail::CorruptRecord),
        // The proof is checked again: a boundary that isn't the evidence's own.
        (
            edited("\"frozen_boundary\":{", "\"frozen_boundary\":null,\"x\":{"),
            Detail::CorruptRecord,
        ),
        (edited("\"writers\":0", "\"writers\":1"), Detail::CorruptRecord),
    ];
    for (row, expected) in cases {
        let what = format!("version {} revision {}", row.format_version, row.revision);
        bench.put_fence("old/app", row).await;
        match stored(&*store).await {
            Row::Bad { detail, .. } => assert_eq!(detail, expected, "{what}"),
            found @ (Row::Absent | Row::Good(_)) => panic!("{what}: {found:?}"),
        }
        let listed = store.fence_list().await.unwrap();
        assert!(matches!(listed[0].row, Row::Bad { .. }));
        for expected_revision in [0, 5, 6] {
            let change =
                Commit { expected_revision: Revision(expected_revision), ..release(9, 11) };
            let error = store.fence_commit(change).await.unwrap_err();
            let refused = matches!(error, CommitError::NotCommitted(StoreError::Corrupt { .. }));
            assert!(refused, "{what}: {error:?}");
        }
        assert_eq!(store.receipts_prune(&namespace(), u64::MAX, 0).await, Ok(0));
    }
    bench.put_fence("old/app", raw(&good)).await;
    assert_eq!(stored(&*store).await, Row::Good(Persisted::of(good)));
}

async fn a_corrupt_receipt_is_never_not_found(bench: &dyn Bench) {
    let store = bench.store();
    let receipt = acquire().receipt;
    let bytes = encode_receipt(&receipt).unwrap();
    let good = RawRow { format_version: 1, revision: 1, at_ms: 0, bytes };
    let mut other = receipt.clone();
    other.command = sample::command_id(99);
    let cases = [
        (RawRow { format_version: 3, ..good.clone() }, Detail::UnsupportedFormatVersion),
        (RawRow { revision: 2, ..good.clone() }, Detail::CorruptRecord),
        (RawRow { revision: -1, ..good.clone() }, Detail::CorruptRecord),
        (RawRow { bytes: b"null".to_vec(), ..good.clone() }, Detail::CorruptRecord),
        (RawRow { bytes: encode_receipt(&other).unwrap(), ..good.clone() }, Detail::CorruptRecord),
    ];
    for (row, expected) in cases {
        bench.put_receipt(&receipt, row).await;
        let found = find(&*store, &receipt).await.unwrap_err();
        assert!(matches!(found, StoreError::Corrupt { detail, .. } if detail == expected));
        let listed = store.receipt_list(&namespace(), None).await;
        assert!(matches!(listed, Err(StoreError::Corrupt { .. })), "{listed:?}");
        let error = store.fence_commit(acquire()).await.unwrap_err();
        let refused = matches!(error, CommitError::NotCommitted(StoreError::Corrupt { .. }));
        assert!(refused, "{error:?}");
    }
    assert_eq!(stored(&*store).await, Row::Absent);
    bench.put_receipt(&receipt, good).await;
    assert_eq!(find(&*store, &receipt).await, Ok(Some(receipt)));
}

async fn a_row_under_a_name_that_is_none_stops_the_listing(bench: &dyn Bench) {
    let store = bench.store();
    store.fence_commit(acquire()).await.unwrap();
    for name in ["zz/", "old/", "a b/app", "app", ""] {
        bench.put_fence(name, raw(&record(FenceState::Released, 1, 10))).await;
        let listed = store.fence_list().await;
        let found = matches!(&listed, Err(StoreError::BadName { .. }));
        assert!(found, "{name}: {listed:?}");
    }
}

async fn of_concurrent_commits_one_wins(bench: &dyn Bench) {
    let store = bench.store();
    store.fence_commit(acquire()).await.unwrap();
    let tasks: Vec<_> = (20..40_u8)
        .map(|id| {
            let store = store.clone();
            tokio::spawn(async move { store.fence_commit(release(2, id)).await })
        })
        .collect();
    let mut won = Vec::new();
    for task in tasks {
        match task.await.unwrap() {
            Ok(persisted) => won.push(persisted),
            Err(error) => assert_eq!(error, CommitError::Conflict { current: Revision(2) }),
        }
    }
    assert_eq!(won.len(), 1);
    assert_eq!(stored(&*store).await, Row::Good(won.remove(0)));
    assert_eq!(store.receipt_list(&namespace(), None).await.unwrap().len(), 2);
}

async fn pruning_spares_the_owner_and_the_young(bench: &dyn Bench) {
    let store = bench.store();
    store.fence_commit(acquire()).await.unwrap();
    let row = |receipt: &Receipt, at_ms| RawRow {
        format_version: 1,
        revision: 1,
        at_ms,
        bytes: encode_receipt(receipt).unwrap(),
    };
    let theirs = |id: u8, at_ms: u64| Receipt {
        operation: sample::operation(7),
        command: sample::command_id(id),
        applied_at_ms: at_ms,
        ..acquire().receipt
    };
    let elsewhere =
        Receipt { namespace: Namespace::parse("old/other").unwrap(), ..theirs(50, 1_000) };
    let (old, edge, young) = (theirs(50, 999), theirs(51, 1_000), theirs(52, 5_000));
    let own = Receipt { command: sample::command_id(53), applied_at_ms: 1, ..acquire().receipt };
    for receipt in [&elsewhere, &old, &edge, &young, &own] {
        bench.put_receipt(receipt, row(receipt, receipt.applied_at_ms)).await;
    }
    assert_eq!(store.receipts_prune(&namespace(), 3_000, 2_000).await, Ok(1));
    assert_eq!(find(&*store, &old).await, Ok(None));
    for kept in [elsewhere, edge, young, own, acquire().receipt] {
        assert_eq!(find(&*store, &kept).await.as_ref(), Ok(&Some(kept)));
    }
}

async fn receipts_are_listed_oldest_first(bench: &dyn Bench) {
    let store = bench.store();
    for (revision, at_ms) in [(1, 30), (2, 40), (3, 40), (4, 50)] {
        let mut change = release(revision, 60 - u8::try_from(revision).unwrap());
        change.receipt.applied_at_ms = at_ms;
        store.fence_commit(change).await.unwrap();
    }
    let listed = store.receipt_list(&namespace(), Some(sample::operation(1))).await.unwrap();
    let revisions: Vec<_> = listed.iter().map(|receipt| receipt.revision_after.0).collect();
    assert_eq!(revisions, [1, 2, 3, 4]);
}

async fn injected_outcomes_are_what_they_say(bench: &dyn Bench) {
    use super::faulty::{CommitFault, FaultyStore};
    let store = FaultyStore::new(bench.store());
    for (fault, known, written) in [
        (CommitFault::NotCommitted, true, false),
        (CommitFault::UnknownNotCommitted, false, false),
        (CommitFault::UnknownCommitted, false, true),
    ] {
        store.plan_commits([fault]);
        let error = store.fence_commit(acquire()).await.unwrap_err();
        assert_eq!(matches!(error, CommitError::NotCommitted(_)), known, "{fault:?}");
        assert_eq!(matches!(error, CommitError::Unknown(_)), !known, "{fault:?}");
        assert_eq!(stored(&store).await != Row::Absent, written, "{fault:?}");
        let found = find(&store, &acquire().receipt).await.unwrap();
        assert_eq!(found.is_some(), written, "{fault:?}");
    }
    store.fail_reads(true);
    assert!(store.fence_load(&namespace()).await.is_err());
    assert!(find(&store, &acquire().receipt).await.is_err());
    store.fail_reads(false);
    store.fence_commit(release(2, 11)).await.unwrap();
}

macro_rules! suite {
    ($($name:ident)*) => {
        suite!(@ memory_store memory $($name)*);
        suite!(@ sqlite_store sqlite $($name)*);
    };
    (@ $module:ident $bench:ident $($name:ident)*) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(&super::$bench()).await;
                }
            )*
        }
    };
}

suite! {
    a_commit_is_read_back_whole
    only_the_expected_revision_is_replaced
    one_commit_changes_one_row
    a_final_receipt_replaces_draining_and_is_never_replaced
    another_request_under_a_stored_id_is_a_conflict
    a_receipt_alone_leaves_the_row
    what_contradicts_itself_is_not_written
    a_record_that_is_too_large_is_not_written
    a_row_that_cannot_be_believed_is_bad_and_left_alone
    a_corrupt_receipt_is_never_not_found
    a_row_under_a_name_that_is_none_stops_the_listing
    of_concurrent_commits_one_wins
    pruning_spares_the_owner_and_the_young
    receipts_are_listed_oldest_first
    injected_outcomes_are_what_they_say
}
