//! A MySQL or MariaDB engine seen through its control connections.
//!
//! Purpose: [`MyEngine`], the handle that `control` asks; the twin of `engine::postgres`. This file
//! holds the handle, identity and the start-up check; each question has its own file below. Nothing
//! here gives a client or a caller a way to run its own text.
//!
//! What is different from PostgreSQL, and what follows:
//! - Threads have no start time, but their ids are not given out twice in one run of the server.
//!   A [`BackendKey`] is the thread id with the start of the *server*.
//! - No view lists open transactions completely (`INNODB_TRX` is a cache that another reader can
//!   keep stale), so the census names who it sees, and the proof that writers ended is the lock:
//!   `LOCK TABLES … READ` over the schema is granted when nobody has an open write to it.
//! - A namespace is a schema, not a wall: sessions reach any schema from any other.
//!
//! Cancel safety, for every `async fn` of this type unless it says otherwise: dropping the future
//! leaves a statement that the engine finishes or ends at its own timeout; it changes no state
//! here.
//!
//! [`BackendKey`]: crate::engine::BackendKey

use std::sync::Arc;
use std::time::Duration;

use super::error::EngineError;
use super::identity::{EngineTime, LiveIdentity};
use super::{EngineLock, Settings};
use crate::base::arm::{Removable, removed};
use crate::base::ids::{EngineName, Namespace};
use crate::tls::TlsError;

pub mod boundary;
mod census;
mod closure;
mod connect;
mod events;
mod holder;
mod judge;
pub mod lock;
mod login;
mod preflight;
mod rights;
mod target;
mod terminate;
pub(super) mod value;

use connect::{Connections, Control, Flavour};
use value::{number, quoted, words};

/// The clock of the engine, in microseconds since 1970.
const NOW: &str = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)";

/// Whole seconds since the server started, in the second column.
const UPTIME: &str = "SHOW GLOBAL STATUS LIKE 'Uptime'";

/// The second in which the server was started. Both figures are of one statement's beginning, so
/// that neither a pause between two questions nor a step of the clock makes another run of it.
const STARTED_MYSQL: &str = "SELECT UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS SIGNED) \
    FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Uptime'";

/// As [`STARTED_MYSQL`].
const STARTED_MARIADB: &str = "SELECT UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS SIGNED) \
    FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'Uptime'";

/// How far two readings of the server's start may be apart: it is told in whole seconds of uptime,
/// against a clock that is being corrected.
const START_TOLERANCE_MICROS: i64 = 3_000_000;

/// A table of the system schema that an installation makes and upgrades leave alone; the second in
/// which it was made is the data directory's own id.
const FIRST_TABLE: &str = "time_zone_leap_second";

/// One MySQL or MariaDB engine; a cheap clone of a shared handle.
#[derive(Clone)]
pub struct MyEngine {
    connections: Arc<Connections>,
}

/// Identity with what was read along with it.
struct Seen {
    identity: LiveIdentity,
    now: EngineTime,
}

impl MyEngine {
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
    pub fn lock_timeout(&self) -> Duration {
        self.connections.settings().lock_timeout
    }

    /// Who the engine is now, seen from one of its schemas.
    ///
    /// # Errors
    /// Any [`EngineError`] but `Changed`; [`is_missing`] tells the one that says that there is no
    /// such schema.
    pub async fn identity(&self, schema: &str) -> Result<LiveIdentity, EngineError> {
        let mut control = self.connections.control().await?;
        Ok(self.see(&mut control, schema).await?.identity)
    }

    /// Which server this is, and the start of its run: always the same in one run, in whole
    /// seconds.
    ///
    /// # Errors
    /// Any [`EngineError`] but `Changed`.
    pub async fn server_run(&self) -> Result<(String, EngineTime), EngineError> {
        let mut control = self.connections.control().await?;
        let engine_id = self.engine_id(&mut control).await?;
        Ok((engine_id, self.started(&mut control).await?))
    }

    /// The start of the server's run.
    async fn started(&self, control: &mut Control) -> Result<EngineTime, EngineError> {
        let question = match control.flavour() {
            Flavour::MySql => STARTED_MYSQL,
            Flavour::MariaDb => STARTED_MARIADB,
        };
        let started = control.figure("identity", question, 0).await?;
        Ok(EngineTime(started.saturating_mul(1_000_000)))
    }

    /// Start-up check: the engine answers, and lets the control account see other sessions.
    ///
    /// # Errors
    /// `Denied` with what to grant when the account may not see other accounts' threads.
    pub async fn check(&self) -> Result<LiveIdentity, EngineError> {
        let mut control = self.connections.control().await?;
        self.see_threads(&mut control).await?;
        self.see_engine(&mut control, "").await.map(|seen| seen.identity)
    }

    /// A namespace of another engine is a mistake in our own code; answering about the wrong
    /// server would be worse than refusing.
    fn schema_of<'n>(&self, namespace: &'n Namespace) -> Result<&'n str, EngineError> {
        if namespace.engine() == self.name() {
            Ok(namespace.database())
        } else {
            Err(self.unexpected("routing", format!("{namespace} belongs to another engine")))
        }
    }

    /// Identity and clock; an error when the schema is missing.
    async fn see(&self, control: &mut Control, schema: &str) -> Result<Seen, EngineError> {
        // Unlike a look at the list of schemas it tells "missing" from "not allowed to see".
        let there = format!("SHOW CREATE DATABASE {}", quoted(schema));
        control.run("identity", &there).await?;
        self.see_engine(control, schema).await
    }

    async fn see_engine(&self, control: &mut Control, schema: &str) -> Result<Seen, EngineError> {
        let what = "identity";
        let engine_id = self.engine_id(control).await?;
        let uptime = control.figure(what, UPTIME, 1).await?;
        let now = EngineTime(control.figure(what, NOW, 0).await?);
        let identity = LiveIdentity {
            engine_id,
            timeline: 0,
            database_id: schema.to_owned(),
            server_start: server_start(now.0, uptime),
            in_recovery: false,
            server_version_num: control.version(),
        };
        Ok(Seen { identity, now })
    }

    async fn engine_id(&self, control: &mut Control) -> Result<String, EngineError> {
        let flavour = control.flavour();
        let question = engine_id_question(flavour);
        let mut rows = control.rows("identity", &question).await?;
        // What may not be seen isn't denied, it isn't there.
        if rows.is_empty() && control.renewed().await? {
            rows = control.rows("identity", &question).await?;
        }
        self.engine_id_of(flavour, &rows)
    }

    /// Reads the answer to [`engine_id_question`].
    fn engine_id_of(
        &self,
        flavour: Flavour,
        rows: &[mysql_async::Row],
    ) -> Result<String, EngineError> {
        let engine_id = match flavour {
            Flavour::MySql => rows.first().map(|row| words(row, 0)).unwrap_or_default(),
            Flavour::MariaDb => self.data_directory(rows)?,
        };
        if engine_id.is_empty() {
            return Err(self.unexpected("identity", "the server has no id of its own".to_owned()));
        }
        Ok(engine_id)
    }

    fn data_directory(&self, rows: &[mysql_async::Row]) -> Result<String, EngineError> {
        let born = rows.first().and_then(|row| Some((number(row, 0)?, number(row, 1)?)));
        let user = &self.connections.settings().user;
        born.map(|(server, born)| format!("{server}-{born}")).ok_or_else(|| EngineError::Denied {
            engine: self.name().clone(),
            what: "reading the data directory's age",
            words: format!("account {user:?} may not see mysql.{FIRST_TABLE}"),
            hint: format!("run: GRANT SELECT ON mysql.{FIRST_TABLE} TO the control account"),
        })
    }

    /// Refuses to go on when the engine hides other accounts' threads.
    async fn see_threads(&self, control: &mut Control) -> Result<(), EngineError> {
        // Asking for what needs the right is the only test that doesn't depend on how it was given.
        // Not INNODB_TRX: each look at that keeps it from being refreshed.
        let sql = "SELECT COUNT(*) FROM information_schema.INNODB_CMP";
        let sees = match control.run("looking at other sessions", sql).await {
            Err(EngineError::Denied { engine, what, words, .. }) => {
                let hint = "run: GRANT PROCESS ON *.* TO the control account".to_owned();
                Err(EngineError::Denied { engine, what, words, hint })
            }
            other => other,
        };
        if removed(Removable::SightCheck) { Ok(()) } else { sees }
    }

    fn unexpected(&self, what: &'static str, words: String) -> EngineError {
        EngineError::Unexpected { engine: self.name().clone(), what, words }
    }
}

/// What tells which server it is. MariaDB has no id of its own: its `server_uid` is made of a
/// network card and a port. The configured server id and the birth of the data directory together
/// are one.
fn engine_id_question(flavour: Flavour) -> String {
    match flavour {
        Flavour::MySql => "SELECT @@server_uuid".to_owned(),
        Flavour::MariaDb => format!(
            "SELECT @@server_id, CAST(UNIX_TIMESTAMP(CREATE_TIME) AS SIGNED) \
             FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'mysql' \
             AND TABLE_NAME = '{FIRST_TABLE}'"
        ),
    }
}

/// When the server started, from its clock in microseconds and its uptime in seconds.
const fn server_start(now: i64, uptime: i64) -> EngineTime {
    EngineTime(now.saturating_sub(uptime.saturating_mul(1_000_000)))
}

/// Whether two readings of the server's start are of the same run. A run that ended within the
/// tolerance of its own start is taken for the next one.
fn same_run(was: EngineTime, now: EngineTime) -> bool {
    was.0.abs_diff(now.0) <= START_TOLERANCE_MICROS.unsigned_abs()
}

/// Whether the engine said that there is no such schema (1049).
#[must_use]
pub fn is_missing(error: &EngineError) -> bool {
    match error {
        EngineError::Unexpected { words, .. } => words.ends_with("(1049)"),
        EngineError::Unreachable { .. }
        | EngineError::Denied { .. }
        | EngineError::Timeout { .. }
        | EngineError::Changed { .. } => false,
    }
}

impl std::fmt::Debug for MyEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MyEngine({})", self.name())
    }
}
