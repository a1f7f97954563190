//! The engine lock on MySQL and MariaDB: `LOCK TABLES … READ` over every table of a schema.
//!
//! Purpose: the engine's own word that nobody has an open write to a table of the schema, and
//! (while held) that nobody can write to one, whoever runs it, from whichever schema, through
//! triggers, views, foreign keys and events too. Readers aren't touched. The twin of
//! `postgres::lock`.
//!
//! Only tables of the schema itself are locked. What its views, triggers and foreign keys reach in
//! other schemas belongs to other namespaces, whose writers a lock would stop; it is named in the
//! evidence instead (`closure`). A write that reaches *into* the schema from another one needs a
//! lock on the table here, and waits.
//!
//! A lock that waits keeps every later writer of that table waiting behind it, so an attempt waits
//! for a short time only and then gives up; the caller tries again within its own bound.
//!
//! Not covered: prepared XA branches that are detached (MariaDB; the census asks for them),
//! sequences, new tables, temporary tables, and tables of storage engines without table locks.
//!
//! Called by `control`, which decides whether to hold or to confirm, bounds the attempts, and
//! watches [`MyLockHandle::lost`].

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable;

use super::connect::{Connections, Failure, Session, ask, code, translate, words as error_words};
use super::holder::{self, Keep};
use super::judge::{TableLock, Thread, blocker, prepared, thread_of};
use super::rights::Rights;
use super::value::{key, literal, number, quoted, text};
use super::{Flavour, MyEngine, NOW, engine_id_question};
use crate::base::ids::Namespace;
use crate::base::limits::{LOCK_ROUNDS_MAX, LOCK_TABLE_OPENS_MS};
use crate::engine::census::{Blocker, Why};
use crate::engine::error::{EngineError, LockError};
use crate::engine::identity::{BackendKey, EngineTime};
use crate::telemetry::spawn::spawn_named;

/// The engine lock, held. Dropping it ends the connection, and with it the lock, a moment later;
/// [`MyLockHandle::release`] waits for the engine's word.
pub struct MyLockHandle {
    connections: Arc<Connections>,
    keep: Option<Keep>,
    namespace: Namespace,
    thread: u32,
    run: EngineTime,
    granted: Granted,
    gaps: Vec<String>,
}

/// What was granted, by the holder's own word.
struct Granted {
    tables: usize,
    engine_id: String,
    at: EngineTime,
}

impl MyLockHandle {
    /// The namespace whose tables are locked.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// How many tables were locked when it was taken.
    #[must_use]
    pub fn tables(&self) -> usize {
        self.granted.tables
    }

    /// Which server the holder's own session is at: a name may lead a new connection elsewhere
    /// than it led those that the census asks.
    #[must_use]
    pub fn engine_id(&self) -> &str {
        &self.granted.engine_id
    }

    /// What it doesn't cover and what reaches across schemas, one sentence each.
    #[must_use]
    pub fn gaps(&self) -> &[String] {
        &self.gaps
    }

    /// When the last table was locked, by the engine's clock.
    #[must_use]
    pub fn taken_at(&self) -> EngineTime {
        self.granted.at
    }

    /// The thread that holds it.
    #[must_use]
    pub fn backend(&self) -> BackendKey {
        BackendKey { pid: key(self.thread), backend_start: self.run }
    }

    /// Whether it is known to be gone. What happened since the last pulse or census isn't known.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.keep.as_ref().is_none_or(Keep::is_lost)
    }

    /// Asks the server, through the holder itself, whether its thread is the one that took the
    /// lock: while that thread lives, the lock does.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// [`LockError::Lost`] when the holder is gone or can't be asked.
    pub async fn confirm(&self) -> Result<(), LockError> {
        let lost = |words: String| LockError::Lost { namespace: self.namespace.to_string(), words };
        let keep = self.keep.as_ref().filter(|keep| !keep.is_lost());
        let keep = keep.ok_or_else(|| lost("its thread had ended".to_owned()))?;
        let rows = keep.thread().await.ok_or_else(|| lost("its thread had ended".to_owned()))?;
        let rows = rows.map_err(|error| lost(error.to_string()))?;
        let thread: Option<u64> = rows.first().and_then(|row| row.get(0));
        match thread {
            Some(thread) if thread == u64::from(self.thread) => Ok(()),
            Some(other) => Err(lost(format!("thread {other} answered for {}", self.thread))),
            None => Err(lost("its holder answered nothing".to_owned())),
        }
    }

    /// Completes when the holder has ended and the lock is gone. The future borrows nothing.
    ///
    /// Noticed within a pulse of the holder, or by a census. Cancel safe.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + 'static {
        let lost = self.keep.as_ref().map(Keep::lost);
        async move {
            if let Some(lost) = lost {
                lost.await;
            }
        }
    }

    /// Gives the lock back and waits for the engine's word.
    ///
    /// Cancel safety: dropping the future ends the connection, which releases the lock as well.
    ///
    /// # Errors
    /// [`LockError::Lost`] when the lock was gone before: the fence was not covered for a while.
    pub async fn release(mut self) -> Result<(), LockError> {
        let lost = |words: String| LockError::Lost { namespace: self.namespace.to_string(), words };
        let Some(keep) = self.keep.take().filter(|keep| !keep.is_lost()) else {
            return Err(lost("its thread had ended".to_owned()));
        };
        match keep.release().await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(lost(error.to_string())),
            None => Err(lost("its thread had ended".to_owned())),
        }
    }
}

impl Drop for MyLockHandle {
    fn drop(&mut self) {
        let mut holders = self.connections.holders();
        if holders.get(&self.namespace).is_some_and(|holder| holder.thread == self.thread) {
            holders.remove(&self.namespace);
        }
    }
}

impl std::fmt::Debug for MyLockHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MyLockHandle({}, {} tables)", self.namespace, self.granted.tables)
    }
}

/// Why one attempt ended without a lock.
enum Failed {
    /// Somebody holds a conflicting lock, or two waiters met.
    Busy,
    /// A table was dropped, renamed or replaced between listing and locking.
    Moved,
    /// The account may not; the engine's words.
    Forbidden(String),
    /// No room for so many tables.
    NoRoom(usize, String),
    /// Anything else.
    Engine(EngineError),
}

/// Ends the thread of an attempt that is given up, so that it doesn't go on waiting for locks with
/// writers queueing behind it.
struct Abandon {
    connections: Arc<Connections>,
    thread: Option<(u32, EngineTime)>,
}

impl Drop for Abandon {
    fn drop(&mut self) {
        if let Some((thread, run)) = self.thread.take() {
            // Before the attempt's connection is closed, so that it is never nobody's.
            self.connections.stray(thread, run);
            let connections = Arc::clone(&self.connections);
            drop(spawn_named("engine-lock-abandon", async move {
                connections.kill_own((thread, run)).await;
            }));
        }
    }
}

impl MyEngine {
    /// Takes read locks on all tables of the namespace's schema, on a connection of its own.
    ///
    /// One attempt: about `lock_timeout` of waiting per table in whole seconds, and four times that
    /// in total beside what opening that many tables may take ([`LOCK_TABLE_OPENS_MS`]); the caller
    /// tries again within its own bound.
    ///
    /// Cancel safety: dropping the future ends the attempt's thread.
    ///
    /// # Errors
    /// As [`LockError`] says; `Busy` names who was in the way.
    pub async fn take_lock(
        &self,
        namespace: &Namespace,
        lock_timeout: Duration,
    ) -> Result<MyLockHandle, LockError> {
        let schema = self.schema_of(namespace)?;
        self.may_lock(schema).await?;
        let gaps = self.gaps(schema).await;
        for _ in 0..LOCK_ROUNDS_MAX {
            let session = self.connections.connect().await?;
            let mut abandon = Abandon {
                connections: Arc::clone(&self.connections),
                thread: Some((session.thread, session.run)),
            };
            let mut attempt = Attempt { engine: self, session, schema, lock_timeout };
            match attempt.run().await {
                Ok(Some(granted)) => {
                    abandon.thread = None;
                    let session = attempt.session;
                    return Ok(self.held(namespace, session, granted, gaps).await?);
                }
                Ok(None) | Err(Failed::Moved) => {}
                Err(Failed::Busy) => {
                    drop(abandon);
                    let blockers = self.lock_holders(schema).await?;
                    tracing::debug!(
                        %namespace, threads = ?blockers.iter().map(thread_of).collect::<Vec<_>>(),
                        "the engine lock was not granted in time"
                    );
                    return Err(LockError::Busy { namespace: namespace.to_string(), blockers });
                }
                Err(Failed::Forbidden(words)) => {
                    return Err(LockError::NotAllowed {
                        table: words,
                        others: 0,
                        hint: hint(schema),
                    });
                }
                Err(Failed::NoRoom(tables, words)) => {
                    return Err(LockError::TooMany { tables, words });
                }
                Err(Failed::Engine(error)) => return Err(error.into()),
            }
        }
        Err(LockError::Unstable { namespace: namespace.to_string(), rounds: LOCK_ROUNDS_MAX })
    }

    async fn held(
        &self,
        namespace: &Namespace,
        session: Session,
        granted: Granted,
        gaps: Vec<String>,
    ) -> Result<MyLockHandle, EngineError> {
        let thread = session.thread;
        let run = session.run;
        let (holder, keep) = holder::start(session, &self.connections);
        self.connections.holders().insert(namespace.clone(), holder);
        Ok(MyLockHandle {
            connections: Arc::clone(&self.connections),
            keep: Some(keep),
            namespace: namespace.clone(),
            thread,
            run,
            granted,
            gaps,
        })
    }

    /// Without rights on the whole schema some of its tables would not even be listed, and a lock
    /// on the others would prove nothing.
    async fn may_lock(&self, schema: &str) -> Result<(), LockError> {
        let mut control = self.connections.control().await?;
        let rights = Rights::read(&mut control, schema).await?;
        if rights.has("SELECT") && rights.has("LOCK TABLES") {
            return Ok(());
        }
        let table = format!("the tables of {}", quoted(schema));
        Err(LockError::NotAllowed { table, others: 0, hint: hint(schema) })
    }

    /// What the evidence says that the lock doesn't cover.
    async fn gaps(&self, schema: &str) -> Vec<String> {
        let mut gaps = vec![
            "sequences and tables created later are not locked; tables of other schemas that this \
             one reaches are not either"
                .to_owned(),
        ];
        match self.closure(schema).await {
            Ok(found) => gaps.extend(found.sentences()),
            Err(error) => gaps.push(format!("what reaches across schemas is unknown: {error}")),
        }
        gaps.extend(self.login_gap().await);
        gaps
    }

    /// Who has locks that a read lock must wait for, as far as the engine shows it.
    async fn lock_holders(&self, schema: &str) -> Result<Vec<Blocker>, EngineError> {
        let mut control = self.connections.control().await?;
        let seen = self.see(&mut control, schema).await?;
        let transactions = self.transactions(&mut control).await?;
        let locks = self.table_locks(&mut control, schema).await?;
        let threads = self.threads(&mut control).await?;
        let run = seen.identity.server_start;
        let named = |thread: &Thread, table: Option<String>| {
            let transaction = transactions.get(&thread.id).cloned();
            let thread = Thread { transaction, table, ..thread.clone() };
            blocker(&thread, None, Why::HoldsTableLock, seen.now)
        };
        let others = || threads.values().filter(|t| !self.connections.is_own(t.id, run));
        let mut blockers: Vec<Blocker> = match &locks {
            Some(locks) => {
                let writes = |id: u32| {
                    let mine = |lock: &&super::census::Held| {
                        lock.thread == Some(id) && lock.granted && lock.lock == TableLock::Write
                    };
                    locks.iter().find(mine)
                };
                let holding = others().filter_map(|t| Some((t, writes(t.id)?)));
                holding.map(|(t, lock)| named(t, Some(lock.table.clone()))).collect()
            }
            // Not listed: whoever is in a transaction might be it.
            None => others()
                .filter(|thread| transactions.contains_key(&thread.id))
                .map(|thread| named(thread, None))
                .collect(),
        };
        // A branch whose session has gone keeps its locks.
        let detached = |lock: &super::census::Held| lock.thread.is_none() && lock.granted;
        if blockers.is_empty() || locks.is_some_and(|locks| locks.iter().any(detached)) {
            let branches = self.prepared(&mut control, schema).await?;
            blockers.extend(branches.iter().map(prepared));
        }
        Ok(blockers)
    }
}

fn hint(schema: &str) -> String {
    let schema = quoted(schema);
    format!(
        "run: GRANT SELECT, LOCK TABLES ON {schema}.* TO the control account; or set engine_lock \
         to off"
    )
}

/// One connection that tries to lock everything.
struct Attempt<'a> {
    engine: &'a MyEngine,
    session: Session,
    schema: &'a str,
    lock_timeout: Duration,
}

impl Attempt<'_> {
    /// Lists, locks, and lists again under the lock; `None` when the two lists differ. The
    /// statement takes all locks or none, so there is nothing to add to.
    async fn run(&mut self) -> Result<Option<Granted>, Failed> {
        // In front of the locks, behind which other tables can't be asked for; it is one session.
        let engine_id = self.engine_id().await?;
        let seconds = self.lock_timeout.as_millis().div_ceil(1000).max(1);
        self.execute(&format!("SET SESSION lock_wait_timeout = {seconds}")).await?;
        let tables = self.tables().await?;
        if !tables.is_empty() {
            self.lock(&tables).await?;
        }
        if self.tables().await? != tables {
            return Ok(None);
        }
        let settings = self.engine.connections.settings();
        let question = self.session.conn.query::<mysql_async::Row, _>(NOW);
        let rows = ask(settings, "the engine lock", question).await.map_err(failed)?;
        let at = rows.first().and_then(|row| number(row, 0)).unwrap_or(0);
        Ok(Some(Granted { tables: tables.len(), engine_id, at: EngineTime(at) }))
    }

    async fn engine_id(&mut self) -> Result<String, Failed> {
        let flavour = self.session.flavour;
        let settings = self.engine.connections.settings();
        let question = self.session.conn.query::<mysql_async::Row, _>(engine_id_question(flavour));
        let rows = ask(settings, "identity", question).await.map_err(failed)?;
        self.engine.engine_id_of(flavour, &rows).map_err(Failed::Engine)
    }

    async fn tables(&mut self) -> Result<BTreeSet<String>, Failed> {
        let sql = format!(
            "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = {} \
             AND TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')",
            literal(self.schema)
        );
        let settings = self.engine.connections.settings();
        let question = self.session.conn.query::<mysql_async::Row, _>(sql);
        let rows = ask(settings, "the engine lock", question).await.map_err(failed)?;
        Ok(rows.iter().filter_map(|row| text(row, 0)).collect())
    }

    async fn lock(&mut self, tables: &BTreeSet<String>) -> Result<(), Failed> {
        let sql = lock_statement(self.schema, tables);
        let work = opening(tables.len());
        let usual = self.engine.connections.settings().statement_timeout;
        // MariaDB's bound of statements is one of this statement too; MySQL's is of SELECT alone.
        let longer = self.session.flavour == Flavour::MariaDb && self.bound(work) > usual;
        if longer {
            self.bound_statements(self.bound(work)).await?;
        }
        match self.execute_for(&sql, work).await {
            Err(Failed::NoRoom(_, words)) => return Err(Failed::NoRoom(tables.len(), words)),
            other => other?,
        }
        if longer {
            self.bound_statements(usual).await?;
        }
        Ok(())
    }

    async fn bound_statements(&mut self, bound: Duration) -> Result<(), Failed> {
        let seconds = bound.as_secs_f64();
        self.execute(&format!("SET SESSION max_statement_time = {seconds:.3}")).await
    }

    /// How long a statement may take that has this much to do besides waiting.
    fn bound(&self, work: Duration) -> Duration {
        let waiting = self.lock_timeout.saturating_mul(4).max(Duration::from_secs(4));
        waiting.saturating_add(work)
    }

    async fn execute(&mut self, sql: &str) -> Result<(), Failed> {
        self.execute_for(sql, Duration::ZERO).await
    }

    /// Runs one statement for at most four times the lock timeout, and what its work may take.
    async fn execute_for(&mut self, sql: &str, work: Duration) -> Result<(), Failed> {
        let settings = self.engine.connections.settings();
        let bound = self.bound(work);
        match tokio::time::timeout(bound, self.session.conn.query_drop(sql)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(match code(&error) {
                // Lock wait, deadlock, statement timeouts, and being killed for having waited.
                Some(1205 | 1213 | 1317 | 1969 | 3024) => Failed::Busy,
                // No such table (any more), not a table, no such schema, being redefined.
                Some(1146 | 1347 | 1049 | 1412 | 1684) => Failed::Moved,
                Some(1044 | 1142 | 1143 | 1227) => Failed::Forbidden(error_words(&error)),
                // Files, memory, and a statement longer than a packet may be.
                Some(23 | 24 | 1016 | 1037 | 1038 | 1041 | 1135 | 1153 | 1301) => {
                    Failed::NoRoom(0, error_words(&error))
                }
                Some(_) | None => Failed::Engine(translate(settings, "the engine lock", &error)),
            }),
            // It waits for one table after another.
            Err(_) => Err(Failed::Busy),
        }
    }
}

/// What the server may take to open so many tables that it has not in memory. It isn't waiting for
/// anybody then, and an attempt that is given up in the midst of it gets no further next time.
fn opening(tables: usize) -> Duration {
    let tables = u64::try_from(tables).unwrap_or(u64::MAX);
    Duration::from_millis(tables.saturating_mul(LOCK_TABLE_OPENS_MS))
}

fn failed(failure: Failure) -> Failed {
    Failed::Engine(failure.into())
}

fn lock_statement(schema: &str, tables: &BTreeSet<String>) -> String {
    let mut sql = String::from("LOCK TABLES ");
    for (index, table) in tables.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        // Writing to a string can't fail.
        let _ok = write!(sql, "{comma}{}.{} READ", quoted(schema), quoted(table));
    }
    sql
}
