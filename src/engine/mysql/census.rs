//! Reading the census from MySQL and MariaDB.
//!
//! Purpose: the cutoff, and the observations that `judge` decides about.
//!
//! None of the views used here is a snapshot, and each question is its own statement on one
//! connection, so the *order* makes them sound together:
//!
//! 1. identity: all later statements run on the same connection, so on the same run of the server;
//! 2. transactions and table locks: one that is absent has ended, or was prepared and detached;
//! 3. the process list: a thread leaves it only after its transaction;
//! 4. `XA RECOVER` last: a branch is listed there before its thread lets go of it.
//!
//! `INNODB_TRX` alone proves nothing: it is a cache that any other fast reader keeps from being
//! refreshed. It adds transactions to threads; that there are none is what the engine lock shows.

use std::collections::{HashMap, HashSet};

use mysql_async::Row;

use super::connect::{Control, Flavour};
use super::holder::Holder;
use super::judge::{Observed, Prepared, TableLock, Thread, Transaction, judge};
use super::value::{bytes, key, literal, number, text, thread, words};
use super::{MyEngine, Seen, same_run};
use crate::base::arm::{Removable, removed};
use crate::base::ids::Namespace;
use crate::base::limits::STATEMENT_CHARS_MAX;
use crate::engine::census::{CensusOutcome, Cutoff, CutoffEntry, ProxyView};
use crate::engine::error::EngineError;
use crate::engine::identity::EngineTime;

const TRANSACTIONS: &str = "SELECT trx_mysql_thread_id, trx_id, \
    CAST(UNIX_TIMESTAMP(trx_started) * 1000000 AS SIGNED), trx_state = 'ROLLING BACK' \
    FROM information_schema.INNODB_TRX";

/// Table locks of the schema, with the thread that has or wants each; no thread means a detached
/// XA branch. The question's own lock on the list comes with them: where that isn't listed, nothing
/// is (the schema of such lists is off, or this instrument of it), and an empty list says nothing.
/// Nor does one that had no room for some.
const LOCKS_MYSQL: &str = "SELECT t.PROCESSLIST_ID, m.OBJECT_NAME, m.LOCK_TYPE, m.LOCK_STATUS, \
    m.OBJECT_SCHEMA = 'performance_schema', (SELECT CAST(VARIABLE_VALUE AS SIGNED) \
    FROM performance_schema.global_status \
    WHERE VARIABLE_NAME = 'Performance_schema_metadata_lock_lost') \
    FROM performance_schema.metadata_locks m LEFT JOIN performance_schema.threads t \
    ON t.THREAD_ID = m.OWNER_THREAD_ID WHERE m.OBJECT_TYPE = 'TABLE' \
    AND (m.OBJECT_SCHEMA = 'performance_schema' AND t.PROCESSLIST_ID = CONNECTION_ID() \
    OR m.OBJECT_SCHEMA = ";

/// The plugin lists granted locks only.
const LOCKS_MARIADB: &str = "SELECT THREAD_ID, TABLE_NAME, LOCK_MODE, 'GRANTED', 0, 0 \
    FROM information_schema.METADATA_LOCK_INFO \
    WHERE (LOCK_TYPE = 'Table metadata lock' AND TABLE_SCHEMA = ";

/// Why a census without the engine lock proves nothing on a MySQL that lists no locks.
const BLIND: &str = "this server doesn't list table locks, so a writer with another default schema \
    would not be seen; set performance_schema = ON with the instrument wait/lock/metadata/sql/mdl, \
    GRANT SELECT ON performance_schema.* TO the control account, or have the fence take the engine \
    lock (engine_lock = \"hold\" or \"confirm\")";

/// One table lock.
pub(super) struct Held {
    /// `None` for a detached XA branch.
    pub(super) thread: Option<u32>,
    pub(super) table: String,
    pub(super) lock: TableLock,
    pub(super) granted: bool,
}

impl MyEngine {
    /// Every transaction of the namespace that the engine shows now; taken just after its write
    /// admission has closed.
    ///
    /// # Errors
    /// Any [`EngineError`] but `Changed`.
    pub async fn cutoff(&self, namespace: &Namespace) -> Result<Cutoff, EngineError> {
        let schema = self.schema_of(namespace)?;
        let mut control = self.connections.control().await?;
        self.see_threads(&mut control).await?;
        // Logins under the fence go by it where the engine can't be asked.
        if let Err(error) = self.note_login_text(&mut control).await {
            tracing::debug!(%namespace, %error, "init_connect is not known");
        }
        let seen = self.see(&mut control, schema).await?;
        let observed = self.observe(&mut control, schema, &seen).await?;
        let open = observed.open_transactions();
        let entries = open.into_iter().map(|(open, thread)| entry(open, thread)).collect();
        Ok(Cutoff { namespace: namespace.clone(), identity: seen.identity, at: seen.now, entries })
    }

    /// Asks what is left of the cutoff, and what else could commit in its namespace.
    ///
    /// The view must have been taken before the call. It also looks whether the thread that holds
    /// the namespace's engine lock is still there, and says so to whoever watches the lock.
    ///
    /// # Errors
    /// `Changed` when the engine is no longer the cutoff's; otherwise any [`EngineError`]. No
    /// error proves anything.
    pub async fn census(
        &self,
        cutoff: &Cutoff,
        view: &ProxyView,
    ) -> Result<CensusOutcome, EngineError> {
        let schema = self.schema_of(&cutoff.namespace)?;
        let mut control = self.connections.control().await?;
        self.see_threads(&mut control).await?;
        // In front of the process list, which shows what one had begun by now, and of the identity:
        // it may change the connection.
        let events = match view.is_import && !removed(Removable::EventCheck) {
            true => self.enabled_events(&mut control, schema).await?,
            false => Vec::new(),
        };
        let mut seen = self.see(&mut control, schema).await?;
        if same_run(cutoff.identity.server_start, seen.identity.server_start) {
            seen.identity.server_start = cutoff.identity.server_start;
        }
        if let Some(words) = cutoff.identity.difference(&seen.identity) {
            return Err(EngineError::Changed {
                engine: self.name().clone(),
                words,
                was: Box::new(cutoff.identity.clone()),
                now: Box::new(seen.identity),
            });
        }
        let holder = self.connections.holders().get(&cutoff.namespace).cloned();
        let mut observed = self.observe(&mut control, schema, &seen).await?;
        if let Some(holder) = holder {
            observed.locked = look_after(&holder, &observed).await;
        }
        Ok(match judge(cutoff, view, &observed, seen.identity, seen.now) {
            CensusOutcome::Clear(_) if !events.is_empty() => CensusOutcome::Residue(events),
            CensusOutcome::Clear(clear) => CensusOutcome::Clear(clear),
            CensusOutcome::Residue(mut blockers) => {
                blockers.extend(events);
                CensusOutcome::Residue(blockers)
            }
        })
    }

    /// Steps 2 to 4 of the header.
    async fn observe(
        &self,
        control: &mut Control,
        schema: &str,
        seen: &Seen,
    ) -> Result<Observed, EngineError> {
        let transactions = self.transactions(control).await?;
        let locks = self.table_locks(control, schema).await?;
        let blind = locks.is_none() && control.flavour() == Flavour::MySql;
        let locks = locks.unwrap_or_default();
        let mut threads = self.threads(control).await?;
        for thread in threads.values_mut() {
            thread.own = self.connections.is_own(thread.id, seen.identity.server_start);
            thread.transaction = transactions.get(&thread.id).cloned();
        }
        for held in locks.into_iter().filter(|held| held.granted) {
            let Some(thread) = held.thread.and_then(|id| threads.get_mut(&id)) else {
                continue;
            };
            if held.lock > thread.lock {
                thread.lock = held.lock;
                thread.table = Some(held.table);
            }
        }
        self.forget_ended(control, &mut threads).await?;
        let prepared = self.prepared(control, schema).await?;
        let blind = blind.then_some(BLIND);
        Ok(Observed { schema: schema.to_owned(), threads, prepared, locked: false, blind })
    }

    /// Takes transactions away that have ended since the engine's cache was filled, so that another
    /// program that keeps the cache from being refreshed can't hold a drain up. The engine's status
    /// report is made anew for each reader, at a price: it is asked for only when somebody would
    /// block, and where it was cut for its length nothing is taken away. MySQL's leaves out
    /// transactions that have only read, so it tells nothing there.
    async fn forget_ended(
        &self,
        control: &mut Control,
        threads: &mut HashMap<u32, Thread>,
    ) -> Result<(), EngineError> {
        let open = threads.values().any(|thread| !thread.own && thread.transaction.is_some());
        if control.flavour() == Flavour::MySql || !open {
            return Ok(());
        }
        let row = control.row("census", "SHOW ENGINE INNODB STATUS").await?;
        let Some(active) = active_threads(&words(&row, 2)) else {
            return Ok(());
        };
        for thread in threads.values_mut() {
            thread.transaction.take_if(|_| !active.contains(&thread.id));
        }
        Ok(())
    }

    /// Transactions by thread.
    pub(super) async fn transactions(
        &self,
        control: &mut Control,
    ) -> Result<HashMap<u32, Transaction>, EngineError> {
        let _turn = self.connections.turn_to_look().await;
        let rows = control.rows("census", TRANSACTIONS).await?;
        let read = |row: &Row| {
            let began = EngineTime(number(row, 2).unwrap_or(0));
            let rolling_back = number(row, 3) == Some(1);
            Some((thread(row, 0)?, Transaction { name: words(row, 1), began, rolling_back }))
        };
        Ok(rows.iter().filter_map(read).collect())
    }

    /// Every thread of the server by its id, without transactions and locks.
    pub(super) async fn threads(
        &self,
        control: &mut Control,
    ) -> Result<HashMap<u32, Thread>, EngineError> {
        let what = "census";
        let list = |table: &str| {
            format!(
                "SELECT ID, USER, HOST, DB, COMMAND, STATE, LEFT(INFO, {STATEMENT_CHARS_MAX}) \
                 FROM {table}"
            )
        };
        let mut tables = vec!["information_schema.PROCESSLIST"];
        if control.flavour() == Flavour::MySql && control.version() >= 80_022 {
            // It takes no lock that logins and statements need. Empty where it is switched off.
            tables.insert(0, "performance_schema.processlist");
        }
        for table in tables {
            let rows = control.rows(what, &list(table)).await?;
            let threads: HashMap<u32, Thread> =
                rows.iter().filter_map(described).map(|thread| (thread.id, thread)).collect();
            // Who doesn't even see itself doesn't see the others.
            if threads.contains_key(&control.thread()) {
                return Ok(threads);
            }
        }
        Err(control.odd(what, "the process list doesn't show our own thread".to_owned()))
    }

    /// Table locks of the schema; `None` where the engine doesn't show them to us.
    pub(super) async fn table_locks(
        &self,
        control: &mut Control,
        schema: &str,
    ) -> Result<Option<Vec<Held>>, EngineError> {
        let select = match control.flavour() {
            Flavour::MySql => LOCKS_MYSQL,
            Flavour::MariaDb => LOCKS_MARIADB,
        };
        match control.rows("table locks", &format!("{select}{})", literal(schema))).await {
            Ok(rows) if control.flavour() == Flavour::MySql && !lists_itself(&rows) => Ok(None),
            Ok(rows) => {
                let others = rows.iter().filter(|row| !is_lists_own(row));
                Ok(Some(others.map(held).collect()))
            }
            // Not granted, no such plugin (1109), no such table or schema: less is known by name.
            Err(EngineError::Denied { .. } | EngineError::Unexpected { .. }) => Ok(None),
            Err(
                other @ (EngineError::Unreachable { .. }
                | EngineError::Timeout { .. }
                | EngineError::Changed { .. }),
            ) => Err(other),
        }
    }

    /// Prepared branches, unless all of them are shown to belong to other schemas.
    pub(super) async fn prepared(
        &self,
        control: &mut Control,
        schema: &str,
    ) -> Result<Vec<Prepared>, EngineError> {
        let rows = match control.rows("prepared branches", "XA RECOVER").await {
            Err(EngineError::Denied { engine, what, words, .. }) => {
                let hint = "run: GRANT XA_RECOVER_ADMIN ON *.* TO the control account".to_owned();
                return Err(EngineError::Denied { engine, what, words, hint });
            }
            other => other?,
        };
        if rows.is_empty() || self.is_elsewhere(control, schema).await? {
            return Ok(Vec::new());
        }
        Ok(rows.iter().map(|row| Prepared { xid: xid(row) }).collect())
    }

    /// Whether no transaction at all has written to a table of the schema. MySQL lists every
    /// engine lock, and a branch that has written to a table has an intention lock on it, also
    /// after a restart. MariaDB lists only locks that are waited for: there nothing is shown.
    async fn is_elsewhere(&self, control: &mut Control, schema: &str) -> Result<bool, EngineError> {
        if control.flavour() == Flavour::MariaDb {
            return Ok(false);
        }
        let sql = format!(
            "SELECT @@performance_schema, COUNT(*) FROM performance_schema.data_locks \
             WHERE OBJECT_SCHEMA = {} AND LOCK_TYPE = 'TABLE' AND LOCK_MODE NOT IN ('IS', 'S')",
            literal(schema)
        );
        match control.row("prepared branches", &sql).await {
            Ok(row) => Ok(number(&row, 0) == Some(1) && number(&row, 1) == Some(0)),
            Err(EngineError::Denied { .. } | EngineError::Unexpected { .. }) => Ok(false),
            Err(
                other @ (EngineError::Unreachable { .. }
                | EngineError::Timeout { .. }
                | EngineError::Changed { .. }),
            ) => Err(other),
        }
    }
}

/// Whether a holder's lock stands. One whose thread is gone has none. One that is listed may have
/// been killed, so it is asked as well: its answer shows that the lock stands now, and so ever
/// since it was taken.
async fn look_after(holder: &Holder, observed: &Observed) -> bool {
    let listed = observed.threads.contains_key(&holder.thread);
    let stands = listed && matches!(holder.rows("SELECT 1").await, Some(Ok(_)));
    if !stands {
        holder.declare_lost();
    }
    stands
}

/// The threads that a status report shows in a transaction; `None` for a report that was cut, or
/// that isn't one.
fn active_threads(report: &str) -> Option<HashSet<u32>> {
    if !report.contains("LIST OF TRANSACTIONS FOR EACH SESSION:") || report.contains("truncated...")
    {
        return None;
    }
    let mut active = HashSet::new();
    // Each transaction has a line of its own, and behind it one that names its thread.
    for part in report.split("---TRANSACTION ").skip(1) {
        let head = part.lines().next().unwrap_or_default();
        let named = part.lines().find_map(|line| line.split_once(" thread id "));
        let thread = named.and_then(|(_, rest)| rest.split(',').next()?.trim().parse().ok());
        if let (false, Some(thread)) = (head.contains("not started"), thread) {
            active.insert(thread);
        }
    }
    Some(active)
}

fn described(row: &Row) -> Option<Thread> {
    Some(Thread {
        id: thread(row, 0)?,
        user: words(row, 1),
        client: words(row, 2),
        schema: text(row, 3),
        command: words(row, 4),
        state: words(row, 5),
        statement: words(row, 6),
        ..Thread::default()
    })
}

/// Whether a row is about the list of locks itself.
fn is_lists_own(row: &Row) -> bool {
    number(row, 4) == Some(1)
}

/// Who doesn't even see its own lock doesn't see the others'; nor does it see those for which the
/// list had no room.
fn lists_itself(rows: &[Row]) -> bool {
    rows.iter().any(|row| is_lists_own(row) && number(row, 5) == Some(0))
}

fn held(row: &Row) -> Held {
    let mode = words(row, 2);
    let write = ["SHARED_WRITE", "SHARED_NO_READ_WRITE", "SHARED_NO_WRITE", "EXCLUSIVE"];
    let is_write = write.iter().any(|word| mode.trim_start_matches("MDL_").starts_with(word));
    Held {
        thread: thread(row, 0),
        table: words(row, 1),
        lock: if is_write { TableLock::Write } else { TableLock::Read },
        granted: words(row, 3) == "GRANTED",
    }
}

/// The branch's name as `XA COMMIT` and `XA ROLLBACK` take it.
fn xid(row: &Row) -> String {
    let data = bytes(row, 3);
    let length = usize::try_from(number(row, 1).unwrap_or(0)).unwrap_or(0).min(data.len());
    let (gtrid, bqual) = data.split_at(length);
    let format = number(row, 0).unwrap_or(1);
    let plain = gtrid.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'\'');
    if plain && bqual.is_empty() && format == 1 {
        return format!("'{}'", String::from_utf8_lossy(gtrid));
    }
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
    format!("X'{}',X'{}',{format}", hex(gtrid), hex(bqual))
}

fn entry(transaction: String, thread: &Thread) -> CutoffEntry {
    CutoffEntry {
        transaction,
        pid: key(thread.id),
        backend_start: None,
        backend_type: "thread".to_owned(),
        user: thread.user.clone(),
        application_name: String::new(),
        client: thread.client.clone(),
        xact_start: thread.transaction.as_ref().map(|transaction| transaction.began),
        state: thread.command.clone(),
        statement: thread.statement.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_report_tells_who_is_in_a_transaction() {
        let report = "LIST OF TRANSACTIONS FOR EACH SESSION:\n\
            ---TRANSACTION 421, not started\n0 lock struct(s)\n\
            MySQL thread id 9, OS thread handle 1, query id 5 localhost root\n\
            ---TRANSACTION 31, ACTIVE 0 sec\n1 lock struct(s), undo log entries 1\n\
            MariaDB thread id 46, OS thread handle 140, query id 119 localhost root\n\
            ---TRANSACTION (0x7f69), not started\n0 lock struct(s)\n--------\nFILE I/O\n";
        assert_eq!(active_threads(report), Some(HashSet::from([46])));
        assert_eq!(active_threads(&format!("{report} ... truncated...\n")), None);
        assert_eq!(active_threads(""), None);
    }
}
