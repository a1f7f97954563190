//! The embedded store: one SQLite file, one connection, one thread.
//!
//! Purpose: fences survive the process without anything else to run. Every change is one
//! `BEGIN IMMEDIATE` transaction in WAL mode with `synchronous = FULL`, so that it is on disk
//! before it is answered, and two processes on one file exclude each other.
//!
//! Invariants: 5, 10, 11. An error before COMMIT proves that nothing was written. An error of
//! COMMIT itself is [`CommitError::Unknown`] unless the log was emptied and the row read back.
//!
//! Callers: `app` opens it, `control` uses it as a `FenceStore`. It retries nothing: SQLite's own
//! bounded busy timeout is the only wait.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Row as SqlRow, TransactionBehavior, params};
use tokio::sync::{mpsc, oneshot};

use super::commit::{FoundReceipt, Prepared, prepare};
use super::record::{Undecodable, decode_receipt, decode_record};
use super::{
    Commit, CommitError, FenceStore, LoadedFence, Persisted, Row, StoreError, StoreFuture, row_of,
};
use crate::base::fault;
use crate::base::ids::{CommandId, Namespace, OperationId};
use crate::base::limits;
use crate::fence::receipt::Receipt;

/// The layout of the tables below.
const SCHEMA_VERSION: i64 = 1;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS fencewire_schema (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL
);
INSERT OR IGNORE INTO fencewire_schema (one, version) VALUES (1, 1);
CREATE TABLE IF NOT EXISTS namespace_fences (
    namespace TEXT NOT NULL PRIMARY KEY,
    format_version INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    record BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS namespace_fence_receipts (
    namespace TEXT NOT NULL,
    operation_id TEXT NOT NULL,
    command_id TEXT NOT NULL,
    format_version INTEGER NOT NULL,
    revision_after INTEGER NOT NULL,
    applied_at INTEGER NOT NULL,
    receipt BLOB NOT NULL,
    PRIMARY KEY (namespace, operation_id, command_id)
);
";

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// Fences and receipts in one SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    jobs: mpsc::Sender<Job>,
    path: PathBuf,
    /// Whether a commit's fate is open: its pages may stand in the log. Written and read by the
    /// store's thread alone.
    unsettled: Arc<AtomicBool>,
}

impl SqliteStore {
    /// Opens or creates the file, and starts the store's thread. Blocks; call it before serving.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the file can't be opened or is no database,
    /// [`StoreError::Schema`] when a newer build wrote it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let mut connection = connect(path)?;
        let (jobs, mut inbox) = mpsc::channel::<Job>(limits::STORE_QUEUE_REQUESTS);
        std::thread::Builder::new()
            .name("fence-store".to_owned())
            .spawn(move || {
                while let Some(job) = inbox.blocking_recv() {
                    job(&mut connection);
                }
            })
            .map_err(|error| StoreError::Unavailable {
                doing: "start its thread",
                reason: error.to_string(),
            })?;
        Ok(Self { jobs, path: path.to_owned(), unsettled: Arc::default() })
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` on the store's thread.
    ///
    /// # Cancel safety
    /// Work that was handed over runs to its end, whoever waits.
    async fn run<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&mut Connection) -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            // Nobody waits any more: the work is done all the same.
            drop(answer.send(work(connection)));
        });
        let reason = "its thread has ended".to_owned();
        let gone = StoreError::Unavailable { doing, reason };
        if self.jobs.send(job).await.is_err() {
            return Err(NoAnswer::NotBegun(gone));
        }
        answered.await.map_err(|_| NoAnswer::Begun(gone))
    }

    /// Asks the store's thread for something that changes nothing.
    ///
    /// # Cancel safety
    /// Cancel safe: the thread does its work all the same, and nobody hears of it.
    async fn read<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        match self.run(doing, work).await {
            Ok(result) => result,
            Err(NoAnswer::NotBegun(error) | NoAnswer::Begun(error)) => Err(error),
        }
    }

    /// As [`Self::read`], for what tells how a command ended: no answer before it can be one. Rows
    /// may be looked at meanwhile; nothing is decided by them without the receipt.
    ///
    /// # Cancel safety
    /// Cancel safe: the thread does its work all the same, and nobody hears of it.
    async fn read_settled<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let unsettled = Arc::clone(&self.unsettled);
        self.read(doing, move |connection| {
            settle_older(connection, &unsettled)?;
            work(connection)
        })
        .await
    }

    #[cfg(test)]
    pub(in crate::store) async fn with_connection<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> T + Send + 'static,
    ) -> T {
        self.run("be tested", work).await.unwrap_or_else(|_| panic!("the store's thread ended"))
    }
}

/// Why there is no answer of the store's thread.
enum NoAnswer {
    /// It never got the work.
    NotBegun(StoreError),
    /// It got it, and ended without answering.
    Begun(StoreError),
}

fn unavailable(doing: &'static str) -> impl Fn(rusqlite::Error) -> StoreError {
    move |error| StoreError::Unavailable { doing, reason: error.to_string() }
}

fn connect(path: &Path) -> Result<Connection, StoreError> {
    let opened = Connection::open(path).map_err(|error| StoreError::Unavailable {
        doing: "open its file",
        reason: format!("{}: {error}", path.display()),
    });
    let mut connection = opened?;
    let set_up = unavailable("set up its file");
    connection
        .busy_timeout(Duration::from_millis(limits::STORE_BUSY_TIMEOUT_MS))
        .map_err(&set_up)?;
    let mode: String = connection
        .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))
        .map_err(&set_up)?;
    if !mode.eq_ignore_ascii_case("wal") {
        let reason = format!("{}: the file system allows no WAL (mode {mode})", path.display());
        return Err(StoreError::Unavailable { doing: "set up its file", reason });
    }
    connection.pragma_update(None, "synchronous", "full").map_err(&set_up)?;
    connection.pragma_update(None, "foreign_keys", true).map_err(&set_up)?;
    let tx =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(&set_up)?;
    tx.execute_batch(SCHEMA).map_err(&set_up)?;
    let found: i64 = tx
        .query_row("SELECT version FROM fencewire_schema", [], |row| row.get(0))
        .map_err(&set_up)?;
    if found != SCHEMA_VERSION {
        return Err(StoreError::Schema { found, known: SCHEMA_VERSION });
    }
    tx.commit().map_err(&set_up)?;
    Ok(connection)
}

const SELECT_FENCE: &str =
    "SELECT format_version, revision, record FROM namespace_fences WHERE namespace = ?1";

const SELECT_RECEIPT: &str = "SELECT format_version, revision_after, receipt \
     FROM namespace_fence_receipts WHERE namespace = ?1 AND operation_id = ?2 AND command_id = ?3";

type Columns = (i64, i64, Vec<u8>);

/// Reads the three columns. A column of another type is a corrupt row, not a broken store.
fn columns(row: &SqlRow<'_>, first: usize) -> Result<Columns, Undecodable> {
    let read = || Ok((row.get(first)?, row.get(first + 1)?, row.get(first + 2)?));
    read().map_err(|error: rusqlite::Error| Undecodable::corrupt(error.to_string()))
}

fn read_row(connection: &Connection, namespace: &Namespace) -> Result<Row, StoreError> {
    let found = connection
        .query_row(SELECT_FENCE, [namespace.to_string()], |row| Ok(columns(row, 0)))
        .optional()
        .map_err(unavailable("read a fence"))?;
    Ok(found.map_or(Row::Absent, |found| decoded_row(namespace, found)))
}

fn decoded_row(namespace: &Namespace, found: Result<Columns, Undecodable>) -> Row {
    row_of(found.and_then(|(format_version, revision, bytes)| {
        decode_record(namespace, format_version, revision, &bytes)
    }))
}

fn read_receipt(
    connection: &Connection,
    namespace: &Namespace,
    operation: OperationId,
    command: CommandId,
) -> Result<FoundReceipt, StoreError> {
    let key = params![namespace.to_string(), operation.to_string(), command.to_string()];
    let found = connection
        .query_row(SELECT_RECEIPT, key, |row| Ok(columns(row, 0)))
        .optional()
        .map_err(unavailable("read a receipt"))?;
    let Some(found) = found else { return Ok(Ok(None)) };
    Ok(found.and_then(|(version, revision, bytes)| {
        decode_receipt(namespace, operation, command, version, revision, &bytes).map(Some)
    }))
}

fn list_rows(connection: &Connection) -> Result<Vec<LoadedFence>, StoreError> {
    let failed = unavailable("list the fences");
    let mut statement = connection
        .prepare(
            "SELECT CAST(namespace AS BLOB), format_version, revision, record \
             FROM namespace_fences ORDER BY namespace",
        )
        .map_err(&failed)?;
    let mut rows = statement.query([]).map_err(&failed)?;
    let mut loaded = Vec::new();
    while let Some(row) = rows.next().map_err(&failed)? {
        let name: Vec<u8> = row.get(0).map_err(&failed)?;
        let bad = |reason: String| StoreError::BadName {
            name: String::from_utf8_lossy(&name).into_owned(),
            reason,
        };
        let text = std::str::from_utf8(&name).map_err(|error| bad(error.to_string()))?;
        let namespace = Namespace::parse(text).map_err(|error| bad(error.to_string()))?;
        let row = decoded_row(&namespace, columns(row, 1));
        loaded.push(LoadedFence { namespace, row });
    }
    Ok(loaded)
}

fn list_receipts(
    connection: &Connection,
    namespace: &Namespace,
    operation: Option<OperationId>,
) -> Result<Vec<Receipt>, StoreError> {
    let failed = unavailable("list receipts");
    let mut statement = connection
        .prepare(
            "SELECT operation_id, command_id, format_version, revision_after, receipt \
             FROM namespace_fence_receipts \
             WHERE namespace = ?1 AND (?2 IS NULL OR operation_id = ?2) \
             ORDER BY applied_at, revision_after, command_id LIMIT ?3",
        )
        .map_err(&failed)?;
    let most = i64::try_from(limits::RECEIPT_LIST_MAX).unwrap_or(i64::MAX);
    let operation = operation.map(|operation| operation.to_string());
    let mut rows =
        statement.query(params![namespace.to_string(), operation, most]).map_err(&failed)?;
    let mut receipts = Vec::new();
    while let Some(row) = rows.next().map_err(&failed)? {
        let key: (String, String) = (row.get(0).map_err(&failed)?, row.get(1).map_err(&failed)?);
        receipts
            .push(keyed_receipt(namespace, &key, row).map_err(|bad| bad.of_receipt(namespace))?);
    }
    Ok(receipts)
}

fn keyed_receipt(
    namespace: &Namespace,
    key: &(String, String),
    row: &SqlRow<'_>,
) -> Result<Receipt, Undecodable> {
    let corrupt = |error: crate::base::ids::IdError| Undecodable::corrupt(error.to_string());
    let operation = OperationId::parse(&key.0).map_err(corrupt)?;
    let command = CommandId::parse(&key.1).map_err(corrupt)?;
    let (version, revision, bytes) = columns(row, 2)?;
    decode_receipt(namespace, operation, command, version, revision, &bytes)
}

/// One commit, on the store's thread.
fn commit(connection: &mut Connection, commit: Commit) -> Result<Persisted, CommitError> {
    let wanted = commit.receipt.clone();
    let not_written = |error| CommitError::NotCommitted(unavailable("write a fence")(error));
    injected("store.before_begin").map_err(CommitError::NotCommitted)?;
    let tx = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(not_written)?;
    let row = read_row(&tx, &commit.namespace).map_err(CommitError::NotCommitted)?;
    let found = read_receipt(&tx, &wanted.namespace, wanted.operation, wanted.command)
        .map_err(CommitError::NotCommitted)?;
    let before = commit.expected_revision;
    let prepared = prepare(commit, row, found)?;
    let changed = write(&tx, before.0, &wanted, &prepared).map_err(not_written)?;
    if changed != 1 {
        // Dropping the transaction rolls it back.
        return Err(CommitError::NotCommitted(StoreError::Inconsistent {
            namespace: wanted.namespace,
            reason: format!("{changed} rows changed where one should have"),
        }));
    }
    injected("store.before_commit").map_err(CommitError::NotCommitted)?;
    if let Err(error) = tx.commit() {
        return Err(settle(connection, &wanted, unavailable("commit a fence")(error)));
    }
    injected("store.after_commit").map_err(CommitError::Unknown)?;
    Ok(prepared.answer)
}

fn injected(point: &'static str) -> Result<(), StoreError> {
    fault::point(point).map_err(|fault| StoreError::Unavailable {
        doing: "write a fence",
        reason: fault.to_string(),
    })
}

/// Writes row and receipt; answers how many fence rows changed, 1 where none was to.
fn write(
    tx: &Connection,
    before: u64,
    receipt: &Receipt,
    prepared: &Prepared,
) -> Result<usize, rusqlite::Error> {
    let namespace = receipt.namespace.to_string();
    let version = prepared.format_version;
    let changed = match (&prepared.record, before) {
        (None, _) => 1,
        (Some((bytes, revision)), 0) => tx.execute(
            "INSERT INTO namespace_fences (namespace, format_version, revision, record) \
             VALUES (?1, ?2, ?3, ?4)",
            params![namespace, version, revision, bytes],
        )?,
        (Some((bytes, revision)), before) => tx.execute(
            "UPDATE namespace_fences SET format_version = ?2, revision = ?3, record = ?4 \
             WHERE namespace = ?1 AND revision = ?5",
            params![namespace, version, revision, bytes, i64::try_from(before).unwrap_or(-1)],
        )?,
    };
    let at = i64::try_from(receipt.applied_at_ms).unwrap_or(i64::MAX);
    tx.execute(
        "INSERT OR REPLACE INTO namespace_fence_receipts \
         (namespace, operation_id, command_id, format_version, revision_after, applied_at, \
          receipt) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            namespace,
            receipt.operation.to_string(),
            receipt.command.to_string(),
            version,
            prepared.receipt_revision,
            at,
            prepared.receipt
        ],
    )?;
    Ok(changed)
}

/// Empties the log: nothing that isn't in the file counts after a crash then. If not, why.
fn empty_log(connection: &Connection) -> Result<(), String> {
    if !connection.is_autocommit() {
        return Err("a transaction is open".to_owned());
    }
    match connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0)) {
        Ok(0) => Ok(()),
        Ok(_) => Err("somebody else reads the file".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Reading the rows tells how a commit ended only once the log has been emptied: what a failed
/// COMMIT left there isn't read now, and would be after a crash (invariant 11).
fn settle_older(connection: &Connection, unsettled: &AtomicBool) -> Result<(), StoreError> {
    if !unsettled.load(Ordering::Relaxed) {
        return Ok(());
    }
    if let Err(why) = empty_log(connection) {
        let reason = format!(
            "an earlier commit failed half way and its log can't be emptied yet ({why}): its \
             outcome isn't known; look at the disk, then replay the command"
        );
        return Err(StoreError::Unavailable { doing: "settle an earlier commit", reason });
    }
    unsettled.store(false, Ordering::Relaxed);
    Ok(())
}

/// What a failed COMMIT means.
///
/// SQLite has rolled back in memory, but pages of the transaction may stand in the log and count
/// after a crash. Only once the log has been emptied and the receipt isn't there is it proven that
/// nothing was written.
fn settle(connection: &Connection, wanted: &Receipt, error: StoreError) -> CommitError {
    let emptied = empty_log(connection).is_ok();
    let found = read_receipt(connection, &wanted.namespace, wanted.operation, wanted.command);
    match found {
        Ok(Ok(found)) if emptied && found.as_ref() != Some(wanted) => {
            CommitError::NotCommitted(error)
        }
        Ok(Ok(_) | Err(_)) | Err(_) => CommitError::Unknown(error),
    }
}

fn prune(
    connection: &mut Connection,
    namespace: &Namespace,
    oldest_kept_ms: u64,
) -> Result<u64, StoreError> {
    let failed = unavailable("prune receipts");
    let tx =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(&failed)?;
    let owner = match read_row(&tx, namespace)? {
        Row::Absent => None,
        Row::Good(persisted) => persisted.record().map(|record| record.operation.to_string()),
        // Whose receipts these are can't be told: keep them all.
        Row::Bad { .. } => return Ok(0),
    };
    let gone = tx
        .execute(
            "DELETE FROM namespace_fence_receipts \
             WHERE namespace = ?1 AND applied_at < ?2 AND (?3 IS NULL OR operation_id <> ?3)",
            params![
                namespace.to_string(),
                i64::try_from(oldest_kept_ms).unwrap_or(i64::MAX),
                owner
            ],
        )
        .map_err(&failed)?;
    tx.commit().map_err(&failed)?;
    Ok(gone as u64)
}

impl FenceStore for SqliteStore {
    fn fence_load<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> StoreFuture<'a, Result<LoadedFence, StoreError>> {
        let namespace = namespace.clone();
        Box::pin(self.read("read a fence", move |connection| {
            let row = read_row(connection, &namespace)?;
            Ok(LoadedFence { namespace, row })
        }))
    }

    fn fence_list(&self) -> StoreFuture<'_, Result<Vec<LoadedFence>, StoreError>> {
        Box::pin(self.read("list the fences", |connection| list_rows(connection)))
    }

    fn receipt_find<'a>(
        &'a self,
        namespace: &'a Namespace,
        operation: OperationId,
        command: CommandId,
    ) -> StoreFuture<'a, Result<Option<Receipt>, StoreError>> {
        let namespace = namespace.clone();
        Box::pin(self.read_settled("read a receipt", move |connection| {
            read_receipt(connection, &namespace, operation, command)?
                .map_err(|bad| bad.of_receipt(&namespace))
        }))
    }

    fn receipt_list<'a>(
        &'a self,
        namespace: &'a Namespace,
        operation: Option<OperationId>,
    ) -> StoreFuture<'a, Result<Vec<Receipt>, StoreError>> {
        let namespace = namespace.clone();
        Box::pin(self.read("list receipts", move |connection| {
            list_receipts(connection, &namespace, operation)
        }))
    }

    fn fence_commit(&self, change: Commit) -> StoreFuture<'_, Result<Persisted, CommitError>> {
        Box::pin(async move {
            let unsettled = Arc::clone(&self.unsettled);
            let work = move |connection: &mut Connection| {
                settle_older(connection, &unsettled).map_err(CommitError::NotCommitted)?;
                let result = commit(connection, change);
                if matches!(result, Err(CommitError::Unknown(_))) {
                    unsettled.store(true, Ordering::Relaxed);
                }
                result
            };
            match self.run("write a fence", work).await {
                Ok(result) => result,
                Err(NoAnswer::NotBegun(error)) => Err(CommitError::NotCommitted(error)),
                Err(NoAnswer::Begun(error)) => Err(CommitError::Unknown(error)),
            }
        })
    }

    fn receipts_prune<'a>(
        &'a self,
        namespace: &'a Namespace,
        now_ms: u64,
        retention_ms: u64,
    ) -> StoreFuture<'a, Result<u64, StoreError>> {
        let namespace = namespace.clone();
        let oldest_kept_ms = now_ms.saturating_sub(retention_ms);
        Box::pin(self.read("prune receipts", move |connection| {
            prune(connection, &namespace, oldest_kept_ms)
        }))
    }
}
