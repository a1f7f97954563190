//! A PostgreSQL engine seen through its control connections.
//!
//! Purpose: [`PgEngine`], the handle that `control` asks. This file holds the handle, identity and
//! the start-up check; each question has its own file below. Connections are made and kept by
//! `connect`; nothing here gives a client or a caller a way to run its own text.
//!
//! Cancel safety, for every `async fn` of this type unless it says otherwise: dropping the future
//! leaves a statement that the engine finishes or ends at its own timeout; it changes no state
//! here, and the next call on the same database waits behind it.

use std::sync::Arc;

use super::error::EngineError;
use super::identity::{EngineTime, LiveIdentity};
use super::{EngineLock, Settings};
use crate::base::ids::{EngineName, Namespace};
use crate::tls::TlsError;

pub mod boundary;
mod census;
mod connect;
mod judge;
pub mod lock;
mod opaque;
mod patience;
pub mod preflight;
mod target;
pub mod terminate;

use connect::{Connections, Control};

/// Microseconds since 1970 of a timestamp expression, as SQL.
macro_rules! micros {
    ($expression:literal) => {
        concat!("(extract(epoch from ", $expression, ") * 1000000::numeric)::int8")
    };
}
use micros;

/// The timeline comes from the name of the segment being written: after a promotion the control
/// file keeps the old one until the next checkpoint.
const IDENTITY: &str = concat!(
    "SELECT (SELECT system_identifier::text FROM pg_control_system()), ",
    "CASE WHEN pg_is_in_recovery() THEN (SELECT timeline_id FROM pg_control_checkpoint()) ",
    "ELSE ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int4 END, ",
    "(SELECT datid::int8 FROM pg_stat_get_activity(pg_backend_pid())), ",
    micros!("pg_postmaster_start_time()"),
    ", pg_is_in_recovery(), current_setting('server_version_num')::int4, ",
    micros!("clock_timestamp()"),
    ", pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')",
);

/// One PostgreSQL engine; a cheap clone of a shared handle.
#[derive(Clone)]
pub struct PgEngine {
    connections: Arc<Connections>,
}

/// Identity with what was read along with it.
struct Seen {
    identity: LiveIdentity,
    now: EngineTime,
    sees_all: bool,
}

impl Seen {
    /// Reads the answer to [`IDENTITY`].
    fn of(row: &tokio_postgres::Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            identity: LiveIdentity {
                engine_id: row.try_get(0)?,
                timeline: row.try_get(1)?,
                database_id: row.try_get::<_, i64>(2)?.to_string(),
                server_start: EngineTime(row.try_get(3)?),
                in_recovery: row.try_get(4)?,
                server_version_num: row.try_get(5)?,
            },
            now: EngineTime(row.try_get(6)?),
            sees_all: row.try_get(7)?,
        })
    }
}

impl PgEngine {
    /// Makes the handle; connects to nothing yet. Reads the CA file.
    ///
    /// # Errors
    /// [`TlsError`] when the TLS settings can't be used.
    pub fn new(settings: Settings) -> Result<Self, TlsError> {
        Ok(Self { connections: Arc::new(Connections::new(settings)?) })
    }

    /// The engine's name.
    #[must_use]
    pub fn name(&self) -> &EngineName {
        &self.connections.settings().name
    }

    /// What the settings say about the engine lock.
    #[must_use]
    pub fn engine_lock(&self) -> EngineLock {
        self.connections.settings().engine_lock
    }

    /// The settings' time limit for one attempt to take the engine lock.
    #[must_use]
    pub fn lock_timeout(&self) -> std::time::Duration {
        self.connections.settings().lock_timeout
    }

    /// Who the engine is now, seen from one of its databases.
    ///
    /// # Errors
    /// Any [`EngineError`] but `Changed`.
    pub async fn identity(&self, database: &str) -> Result<LiveIdentity, EngineError> {
        let mut control = self.connections.control(database).await?;
        Ok(self.see(&mut control).await?.identity)
    }

    /// Which server this is; its `database_id` is that of the settings' database.
    ///
    /// # Errors
    /// Any [`EngineError`] but `Changed`.
    pub async fn server_run(&self) -> Result<LiveIdentity, EngineError> {
        let database = self.connections.settings().database.clone();
        self.identity(&database).await
    }

    /// Start-up check: the engine answers, and lets the control role see other sessions.
    ///
    /// # Errors
    /// `Denied` with what to grant when rows of `pg_stat_activity` are blanked for our role.
    pub async fn check(&self) -> Result<LiveIdentity, EngineError> {
        let database = self.connections.settings().database.clone();
        let mut control = self.connections.control(&database).await?;
        self.see_all(&mut control).await.map(|seen| seen.identity)
    }

    /// A namespace of another engine is a mistake in our own code; answering about the wrong
    /// server would be worse than refusing.
    fn database_of<'n>(&self, namespace: &'n Namespace) -> Result<&'n str, EngineError> {
        if namespace.engine() == self.name() {
            Ok(namespace.database())
        } else {
            Err(self.unexpected("routing", format!("{namespace} belongs to another engine")))
        }
    }

    async fn see(&self, control: &mut Control) -> Result<Seen, EngineError> {
        let row = control.row("identity", IDENTITY, &[]).await?;
        Seen::of(&row).map_err(|e| control.odd("identity", &e))
    }

    /// As [`PgEngine::see`], and refuses to go on when the engine hides other roles' sessions.
    async fn see_all(&self, control: &mut Control) -> Result<Seen, EngineError> {
        let rows = control.rows("identity", IDENTITY, &[]).await?;
        self.sees_all(control, rows)
    }

    /// As [`PgEngine::see_all`], of the rows that [`IDENTITY`] was answered with.
    fn sees_all(
        &self,
        control: &Control,
        rows: Vec<tokio_postgres::Row>,
    ) -> Result<Seen, EngineError> {
        let row = control.single("identity", rows)?;
        let seen = Seen::of(&row).map_err(|e| control.odd("identity", &e))?;
        if seen.sees_all {
            return Ok(seen);
        }
        let user = &self.connections.settings().user;
        Err(EngineError::Denied {
            engine: self.name().clone(),
            what: "looking at other sessions",
            words: format!("role {user:?} is not a member of pg_monitor, rows would be blanked"),
            hint: format!("run: GRANT pg_monitor TO \"{}\"", user.replace('"', "\"\"")),
        })
    }

    fn unexpected(&self, what: &'static str, words: String) -> EngineError {
        EngineError::Unexpected { engine: self.name().clone(), what, words }
    }
}

impl std::fmt::Debug for PgEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PgEngine({})", self.name())
    }
}
