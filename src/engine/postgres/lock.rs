//! The engine lock: share locks on every table of a database, held by one control transaction.
//!
//! Purpose: the engine's own word that every transaction that has written to a table has ended,
//! prepared ones included, and (while held) that none can write again, whoever runs it. Readers
//! aren't touched. The transaction is READ ONLY and READ COMMITTED, gets no transaction id and
//! keeps no snapshot, so it holds back no vacuum horizon; autovacuum of the locked tables waits.
//!
//! What an attempt asks for is sent in as few goes as possible: `BEGIN` with the first listing and
//! the large objects' catalogs, then each `LOCK` with the listing behind it and where that was. The
//! engine runs what it is sent in order and one statement to its end before the next (see
//! `connect`), so a listing is of the time behind the locks in front of it, by a snapshot of its
//! own. Where one fails the rest of its go fails in the aborted transaction or is thrown away, and
//! the first error is the attempt's; but for the catalogs, which not every role may lock: behind
//! their refusal the next go begins at the savepoint in front of them. The functions that the fence
//! can't see through are looked for beside it, on the kept connection; they are a hint, and nothing
//! rests on when.
//!
//! The holder's connection may be opened long before ([`PgEngine::open_holder`]), while a drain
//! waits for something else. It has then said who it is and which database it is in, and is idle:
//! outside of a transaction, with no snapshot and no lock, so it holds nothing up. What it said
//! counts for nothing later: the lock's own word about where it is comes from behind the last lock,
//! as ever. It is an own backend from its first answer on (`connect`); before that the census can't
//! tell it from a stranger's, so whoever opens one waits for that answer, or drops it, before he
//! asks for a census.
//!
//! Called by `control`, which decides whether to hold or to confirm, bounds the attempts, and
//! watches [`LockHandle::lost`].
//!
//! Not covered: sequences; large objects unless their two catalogs could be locked (superuser);
//! materialized views; foreign tables; tables created after the lock, and those of a transaction
//! still open when the tables were listed (the census sees that transaction as a writer).

use std::fmt::Write as _;
use std::future::Future;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::connect::{Connections, Session, answer_bound, translate, words};
use super::judge::{blocker, prepared};
use super::{IDENTITY, PgEngine, Seen};
use crate::base::ids::Namespace;
use crate::base::limits::LOCK_ROUNDS_MAX;
use crate::engine::census::{Blocker, Why};
use crate::engine::error::{EngineError, LockError};
use crate::engine::identity::{BackendKey, EngineTime, LiveIdentity};

/// Which tables are locked: ordinary and partitioned ones that are not temporary, outside the
/// system's schemas. `$where` adds to the filter.
macro_rules! tables {
    ($columns:literal, $where:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace ",
            "WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' ",
            "AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' ",
            $where
        )
    };
}

/// All tables, in an order that all holders share: what a transaction that has locked none misses.
const TABLES: &str = tables!("format('%I.%I', n.nspname, c.relname)", "ORDER BY c.oid");

/// Tables that this transaction hasn't locked yet, in the same order.
///
/// Which database this is is asked of the activity: `pg_database` would stay locked as long as the
/// fence, and a REINDEX of it from any database would have all logins queue behind itself.
const MISSING: &str = tables!(
    "format('%I.%I', n.nspname, c.relname)",
    "AND NOT EXISTS (SELECT FROM pg_locks l WHERE l.pid = pg_backend_pid() AND l.granted \
     AND l.locktype = 'relation' AND l.relation = c.oid AND l.mode = 'ShareLock' \
     AND l.database = (SELECT datid FROM pg_stat_get_activity(pg_backend_pid()))) \
     ORDER BY c.oid"
);

/// Tables that the control role may not lock in this mode.
pub(super) const FORBIDDEN: &str = tables!(
    "format('%I.%I', n.nspname, c.relname)",
    "AND NOT has_table_privilege(c.oid, 'UPDATE, DELETE, TRUNCATE') \
     AND NOT CASE WHEN current_setting('server_version_num')::int4 >= 170000 \
     THEN has_table_privilege(c.oid, 'MAINTAIN') ELSE false END ORDER BY c.oid"
);

/// Share locks of ours that the engine knows, and the tables without one.
const COVERAGE: &str = concat!(
    "SELECT (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND granted ",
    "AND locktype = 'relation' AND mode = 'ShareLock'), array_agg(t.name) FROM (",
    tables!(
        "format('%I.%I', n.nspname, c.relname) AS name",
        "AND NOT EXISTS (SELECT FROM pg_locks l WHERE l.pid = pg_backend_pid() AND l.granted \
         AND l.locktype = 'relation' AND l.relation = c.oid AND l.mode = 'ShareLock' \
         AND l.database = (SELECT datid FROM pg_stat_get_activity(pg_backend_pid())))"
    ),
    ") t",
);

/// Holders of locks that a share lock has to wait for; no pid means a prepared transaction.
const HOLDERS: &str = "SELECT l.pid, min(format('%I.%I', n.nspname, c.relname)) FROM pg_locks l \
    JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE l.locktype = 'relation' AND l.granted AND c.relpersistence <> 't' \
    AND l.database = (SELECT datid FROM pg_stat_get_activity(pg_backend_pid())) \
    AND l.mode IN ('RowExclusiveLock', 'ShareUpdateExclusiveLock', 'ShareRowExclusiveLock', \
    'ExclusiveLock', 'AccessExclusiveLock') \
    AND (c.oid IN ('pg_largeobject'::regclass, 'pg_largeobject_metadata'::regclass) \
    OR (n.nspname !~ '^pg_' AND n.nspname <> 'information_schema')) GROUP BY l.pid ORDER BY l.pid";

/// Inside a transaction the portal of the last extended query stays open, and with it a snapshot
/// that holds back the vacuum horizon. The next simple query closes it and leaves none of its own.
const DROP_SNAPSHOT: &str = "SELECT";

/// Their data, and the table that creating, dropping or granting one writes to.
const LARGE_OBJECTS: &str = "SAVEPOINT large_objects; LOCK TABLE ONLY pg_catalog.pg_largeobject, \
    ONLY pg_catalog.pg_largeobject_metadata IN SHARE MODE";

/// The engine lock, held. Dropping it ends the connection, and with it the lock, a moment later;
/// [`LockHandle::release`] waits for the engine's word.
pub struct LockHandle {
    session: Session,
    namespace: Namespace,
    granted: Granted,
    opaque: Vec<String>,
    bound: Duration,
}

/// What was granted, by the holder's own word.
struct Granted {
    tables: usize,
    large_objects: bool,
    identity: LiveIdentity,
    at: EngineTime,
}

/// What a lock covers at the moment of asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockCoverage {
    /// Share locks that the engine says we hold.
    pub held: usize,
    /// Tables that exist without one: created since, quoted.
    pub uncovered: Vec<String>,
}

impl LockHandle {
    /// The namespace whose tables are locked.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// How many tables were locked when it was taken, `pg_largeobject` not counted.
    #[must_use]
    pub fn tables(&self) -> usize {
        self.granted.tables
    }

    /// Which database the holder's own session is in: a name may lead a new connection elsewhere
    /// than it led those that the census asks.
    #[must_use]
    pub fn identity(&self) -> &LiveIdentity {
        &self.granted.identity
    }

    /// Whether large objects are locked as well.
    #[must_use]
    pub fn large_objects(&self) -> bool {
        self.granted.large_objects
    }

    /// Functions that the fence can't see through, one sentence each kind.
    #[must_use]
    pub fn opaque(&self) -> &[String] {
        &self.opaque
    }

    /// When the last table was locked, by the engine's clock.
    #[must_use]
    pub fn taken_at(&self) -> EngineTime {
        self.granted.at
    }

    /// The backend that holds it.
    #[must_use]
    pub fn backend(&self) -> BackendKey {
        self.session.backend
    }

    /// Whether its connection is known to have ended.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        *self.session.ended.borrow() || self.session.client.is_closed()
    }

    /// Completes when the connection has ended and the lock is gone. The future borrows nothing.
    ///
    /// A silent partition is noticed after about 15 s by keepalive, or by
    /// [`LockHandle::coverage`]. Cancel safe.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut ended = self.session.ended.clone();
        async move {
            // An error means that the connection's task is gone, which is the same.
            let _ended = ended.wait_for(|ended| *ended).await;
        }
    }

    /// Asks the engine, through the holder itself, what is locked.
    ///
    /// Cancel safety: the lock stays; the answer is lost.
    ///
    /// # Errors
    /// [`LockError::Lost`] when the holder doesn't answer within the control timeout.
    pub async fn coverage(&self) -> Result<LockCoverage, LockError> {
        let client = &self.session.client;
        let (row, dropped) = self
            .answered(async {
                let ask = client.query_typed_one(COVERAGE, &[]);
                Ok(tokio::join!(biased; ask, client.batch_execute(DROP_SNAPSHOT)))
            })
            .await?;
        let row = row.map_err(|error| self.gone(words(&error)))?;
        dropped.map_err(|error| self.gone(words(&error)))?;
        let read = || -> Result<(i64, Option<Vec<String>>), tokio_postgres::Error> {
            Ok((row.try_get(0)?, row.try_get(1)?))
        };
        let (held, uncovered) = read().map_err(|e| self.gone(words(&e)))?;
        Ok(LockCoverage {
            held: usize::try_from(held).unwrap_or(0),
            uncovered: uncovered.unwrap_or_default(),
        })
    }

    /// Gives the lock back and waits for the engine's word.
    ///
    /// Cancel safety: dropping the future ends the connection, which releases the lock as well.
    ///
    /// # Errors
    /// [`LockError::Lost`] when the lock was gone before: the fence was not covered for a while.
    pub async fn release(self) -> Result<(), LockError> {
        self.answered(self.session.client.batch_execute("COMMIT")).await
    }

    async fn answered<T>(
        &self,
        ask: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, LockError> {
        match tokio::time::timeout(self.bound, ask).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.gone(words(&error))),
            Err(_) => Err(self.gone(format!("no answer within {:?}", self.bound))),
        }
    }

    fn gone(&self, words: String) -> LockError {
        LockError::Lost { namespace: self.namespace.to_string(), words }
    }
}

impl std::fmt::Debug for LockHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LockHandle({}, {} tables)", self.namespace, self.granted.tables)
    }
}

/// A connection for a lock, with nothing begun and nothing locked. Dropping it closes it.
pub struct LockSession {
    session: Session,
    namespace: Namespace,
    identity: LiveIdentity,
}

impl LockSession {
    /// Which database it is in, as it said itself when it was opened.
    #[must_use]
    pub fn identity(&self) -> &LiveIdentity {
        &self.identity
    }

    /// Whether its connection is known to have ended.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        *self.session.ended.borrow() || self.session.client.is_closed()
    }
}

impl std::fmt::Debug for LockSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LockSession({})", self.namespace)
    }
}

/// Why one attempt ended without a lock.
enum Failed {
    /// Somebody holds a conflicting lock, or two waiters met.
    Busy,
    /// A table was dropped, renamed or replaced between listing and locking.
    Moved,
    /// The role may not; the engine's words.
    Forbidden(String),
    /// No room for so many locks.
    NoRoom(usize, String),
    /// Anything else.
    Engine(EngineError),
}

impl PgEngine {
    /// Takes share locks on all tables of the namespace's database, on a connection of its own.
    ///
    /// One attempt: at most `lock_timeout` per table and four times that in total; the caller
    /// tries again within its own bound. Values near the engine's `deadlock_timeout` or above (it
    /// is 1 s unless set otherwise) make the engine cancel an autovacuum that is in the way;
    /// shorter ones fail on it.
    ///
    /// Cancel safety: dropping the future closes the connection; the engine drops the locks when
    /// the running statement ends, at the latest after its timeout.
    ///
    /// # Errors
    /// As [`LockError`] says; `Busy` names who was in the way.
    pub async fn take_lock(
        &self,
        namespace: &Namespace,
        lock_timeout: Duration,
    ) -> Result<LockHandle, LockError> {
        let first = self.connections.connect(self.database_of(namespace)?).await?;
        self.lock_from(namespace, first, lock_timeout).await
    }

    /// Opens a connection that a lock may be taken on later.
    ///
    /// Cancel safety: dropping the future closes it.
    ///
    /// # Errors
    /// Any [`EngineError`] but `Changed`.
    pub async fn open_holder(&self, namespace: &Namespace) -> Result<LockSession, EngineError> {
        let what = "opening the engine lock's connection";
        let session = self.connections.connect(self.database_of(namespace)?).await?;
        let settings = self.connections.settings();
        let bound = answer_bound(settings.statement_timeout);
        let asked = tokio::time::timeout(bound, session.client.query_typed_one(IDENTITY, &[]));
        let Ok(answered) = asked.await else {
            return Err(EngineError::Timeout { engine: settings.name.clone(), what, after: bound });
        };
        let seen = answered.and_then(|row| Seen::of(&row));
        let seen = seen
            .map_err(|error| translate(&settings.name, what, settings.statement_timeout, &error))?;
        Ok(LockSession { session, namespace: namespace.clone(), identity: seen.identity })
    }

    /// As [`PgEngine::take_lock`], on a connection that was opened for it.
    ///
    /// Cancel safety: as there.
    ///
    /// # Errors
    /// As there.
    pub async fn take_lock_on(
        &self,
        holder: LockSession,
        lock_timeout: Duration,
    ) -> Result<LockHandle, LockError> {
        let LockSession { session, namespace, .. } = holder;
        self.lock_from(&namespace, session, lock_timeout).await
    }

    /// Tries on this connection first, and looks for opaque functions beside it.
    async fn lock_from(
        &self,
        namespace: &Namespace,
        first: Session,
        lock_timeout: Duration,
    ) -> Result<LockHandle, LockError> {
        let database = self.database_of(namespace)?;
        let attempts = self.attempts(namespace, first, lock_timeout);
        let (opaque, locked) = tokio::join!(self.opaque(database), attempts);
        let (session, granted) = locked?;
        let bound = answer_bound(self.connections.settings().statement_timeout);
        Ok(LockHandle { session, namespace: namespace.clone(), granted, opaque, bound })
    }

    async fn attempts(
        &self,
        namespace: &Namespace,
        first: Session,
        lock_timeout: Duration,
    ) -> Result<(Session, Granted), LockError> {
        let database = self.database_of(namespace)?;
        let mut first = Some(first);
        for _ in 0..LOCK_ROUNDS_MAX {
            let session = match first.take() {
                Some(session) => session,
                None => self.connections.connect(database).await?,
            };
            let attempt = Attempt {
                connections: &self.connections,
                session: &session,
                lock_timeout: lock_timeout.max(Duration::from_millis(1)),
            };
            match attempt.run().await {
                Ok(Some(granted)) => return Ok((session, granted)),
                Ok(None) | Err(Failed::Moved) => {}
                Err(Failed::Busy) => {
                    drop(session);
                    let blockers = self.lock_holders(database).await?;
                    return Err(LockError::Busy { namespace: namespace.to_string(), blockers });
                }
                Err(Failed::Forbidden(words)) => {
                    return Err(self.forbidden(database, words).await?);
                }
                Err(Failed::NoRoom(tables, words)) => {
                    return Err(LockError::TooMany { tables, words });
                }
                Err(Failed::Engine(error)) => return Err(error.into()),
            }
        }
        Err(LockError::Unstable { namespace: namespace.to_string(), rounds: LOCK_ROUNDS_MAX })
    }

    /// Who holds locks that a share lock must wait for, now.
    async fn lock_holders(&self, database: &str) -> Result<Vec<Blocker>, EngineError> {
        let mut control = self.connections.control(database).await?;
        let now = self.see(&mut control).await?.now;
        let rows = control.rows("lock holders", HOLDERS, &[]).await?;
        let observed = self.observe(&mut control).await?;
        let mut blockers = Vec::new();
        for row in rows {
            let read = || Ok((row.try_get(0)?, row.try_get(1)?));
            let (pid, table): (Option<i32>, String) =
                read().map_err(|e| control.odd("lock holders", &e))?;
            match pid.map(|pid| observed.backends.get(&pid)) {
                // The lock table doesn't name the prepared transaction: all are listed.
                None => blockers.extend(observed.prepared.iter().map(|p| prepared(p, now))),
                Some(Some(backend)) if !backend.own => {
                    let named = blocker(backend, None, Why::HoldsTableLock, now);
                    blockers.push(Blocker { object: Some(table), ..named });
                }
                // Our own, or ended between the two statements.
                Some(Some(_) | None) => {}
            }
        }
        Ok(blockers)
    }

    async fn forbidden(&self, database: &str, words: String) -> Result<LockError, EngineError> {
        let mut control = self.connections.control(database).await?;
        let rows = control.rows("lock rights", FORBIDDEN, &[]).await?;
        let version = self.see(&mut control).await?.identity.server_version_num;
        let role = if version >= 170_000 { "pg_maintain" } else { "pg_write_all_data" };
        let user = self.connections.settings().user.replace('"', "\"\"");
        let table = rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or(words);
        Ok(LockError::NotAllowed {
            table,
            others: rows.len().saturating_sub(1),
            hint: format!("run: GRANT {role} TO \"{user}\"; or set engine_lock to off"),
        })
    }
}

/// One transaction that tries to lock everything.
struct Attempt<'a> {
    connections: &'a Connections,
    session: &'a Session,
    lock_timeout: Duration,
}

impl Attempt<'_> {
    /// Lists and locks until nothing is missing; `None` when that doesn't come to an end.
    async fn run(&self) -> Result<Option<Granted>, Failed> {
        let mut locked = 0;
        let (mut missing, large_objects) = self.begin().await?;
        // Behind a refusal the transaction is aborted up to there. The savepoint goes: an error on
        // this connection would else give up the locks behind it, and leave the connection.
        let mut back = if large_objects { "" } else { "ROLLBACK TO SAVEPOINT large_objects; " }
            .to_owned()
            + "RELEASE SAVEPOINT large_objects; ";
        for _ in 0..LOCK_ROUNDS_MAX {
            locked += missing.len();
            let lock = format!("{back}{}{}", self.patience(), lock_statement(&missing));
            back.clear();
            let (seen, still) = self.lock(&lock).await.map_err(|failed| match failed {
                Failed::NoRoom(_, words) => Failed::NoRoom(locked, words),
                other @ (Failed::Busy
                | Failed::Moved
                | Failed::Forbidden(_)
                | Failed::Engine(_)) => other,
            })?;
            missing = still;
            if missing.is_empty() {
                let Seen { identity, now: at, .. } = seen;
                return Ok(Some(Granted { tables: locked, large_objects, identity, at }));
            }
        }
        Ok(None)
    }

    /// How long what follows may take.
    fn patience(&self) -> String {
        let lock_ms = self.lock_timeout.as_millis();
        let total_ms = lock_ms.saturating_mul(4);
        format!("SET LOCAL lock_timeout = {lock_ms}; SET LOCAL statement_timeout = {total_ms}; ")
    }

    /// Begins, lists all tables, and locks large objects where the role may.
    async fn begin(&self) -> Result<(Vec<String>, bool), Failed> {
        let client = &self.session.client;
        let begin = format!("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; {}", self.patience());
        let (begun, rows, large) = self
            .bounded(async {
                let list = client.query_typed(TABLES, &[]);
                let (begun, large) =
                    (client.batch_execute(&begin), client.batch_execute(LARGE_OBJECTS));
                Ok(tokio::join!(biased; begun, list, large))
            })
            .await?;
        begun.map_err(|e| self.sort(&e))?;
        let tables = self.names(rows)?;
        match large.map_err(|e| self.sort(&e)) {
            Ok(()) => Ok((tables, true)),
            Err(Failed::Forbidden(_)) => Ok((tables, false)),
            Err(other) => Err(other),
        }
    }

    /// Locks, lists behind it what is not locked, reads where and when it was, and puts the
    /// session's usual timeout back: in one go.
    async fn lock(&self, sql: &str) -> Result<(Seen, Vec<String>), Failed> {
        let client = &self.session.client;
        let usual = self.connections.settings().statement_timeout.as_millis().max(1);
        let usual = format!("SET LOCAL statement_timeout = {usual}");
        let (executed, rows, row, settled) = self
            .bounded(async {
                let list = client.query_typed(MISSING, &[]);
                let ask = client.query_typed_one(IDENTITY, &[]);
                // Last, because it is a simple query: see DROP_SNAPSHOT.
                let settle = client.batch_execute(&usual);
                Ok(tokio::join!(biased; client.batch_execute(sql), list, ask, settle))
            })
            .await?;
        executed.map_err(|e| self.sort(&e))?;
        let missing = self.names(rows)?;
        let row = row.map_err(|e| self.sort(&e))?;
        settled.map_err(|e| self.sort(&e))?;
        Ok((Seen::of(&row).map_err(|e| self.sort(&e))?, missing))
    }

    fn names(&self, rows: Result<Vec<Row>, tokio_postgres::Error>) -> Result<Vec<String>, Failed> {
        let rows = rows.map_err(|e| self.sort(&e))?;
        rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().map_err(|e| self.sort(&e))
    }

    async fn bounded<T>(
        &self,
        ask: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Failed> {
        let settings = self.connections.settings();
        let after =
            answer_bound(self.lock_timeout.saturating_mul(4).max(settings.statement_timeout));
        match tokio::time::timeout(after, ask).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.sort(&error)),
            Err(_) => Err(Failed::Engine(EngineError::Timeout {
                engine: settings.name.clone(),
                what: "the engine lock",
                after,
            })),
        }
    }

    fn sort(&self, error: &tokio_postgres::Error) -> Failed {
        let settings = self.connections.settings();
        let other = || {
            let bound = settings.statement_timeout;
            Failed::Engine(translate(&settings.name, "the engine lock", bound, error))
        };
        let Some(code) = error.code() else {
            return other();
        };
        if [SqlState::LOCK_NOT_AVAILABLE, SqlState::QUERY_CANCELED, SqlState::T_R_DEADLOCK_DETECTED]
            .contains(code)
        {
            Failed::Busy
        } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
            Failed::Forbidden(words(error))
        } else if *code == SqlState::OUT_OF_MEMORY {
            Failed::NoRoom(0, words(error))
        } else if [
            SqlState::UNDEFINED_TABLE,
            SqlState::INVALID_SCHEMA_NAME,
            SqlState::WRONG_OBJECT_TYPE,
        ]
        .contains(code)
        {
            Failed::Moved
        } else {
            other()
        }
    }
}

/// `ONLY` belongs to each name; partitions are in the list under their own names. Empty for none.
fn lock_statement(tables: &[String]) -> String {
    if tables.is_empty() {
        return String::new();
    }
    let mut sql = String::from("LOCK TABLE ");
    for (index, table) in tables.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        // Writing to a string can't fail.
        let _ok = write!(sql, "{comma}ONLY {table}");
    }
    sql.push_str(" IN SHARE MODE");
    sql
}
