//! Ending a backend, and looking at some.
//!
//! Purpose: the last step of a forced rollback, and names for the live view. Termination names a
//! backend by pid *and* start time, checked in the statement that sends the signal, so that a
//! reused pid is never hit. The signal is asynchronous: that the backend is gone is what a later
//! census says. Called by `control`, which bounds and records it. Cancelling one statement
//! (CancelRequest) is not here: it needs the session's secret, which `wire` has.

use tokio_postgres::types::Type;

use super::connect::Question;
use super::{IDENTITY, PgEngine, micros};
use crate::base::limits::STATEMENT_CHARS_MAX;
use crate::engine::error::EngineError;
use crate::engine::identity::{BackendKey, EngineTime};

/// What became of a termination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminated {
    /// The signal was sent; the backend ends soon, and rolls back unless it is already committing.
    Signalled,
    /// No such backend: it has ended before.
    Gone,
}

/// What one backend is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activity {
    /// The backend.
    pub backend: BackendKey,
    /// Its database, if it has one.
    pub database: String,
    /// Its role.
    pub user: String,
    /// Its application name.
    pub application_name: String,
    /// Its peer, such as `10.0.0.7:51234`, or `local`.
    pub client: String,
    /// The engine's word for what it is doing.
    pub state: String,
    /// What it waits for inside the engine, such as `Lock/relation`.
    pub wait: Option<String>,
    /// Age of its transaction by the engine's clock, in milliseconds.
    pub transaction_ms: Option<u64>,
    /// Its last statement, cut to a bound.
    pub statement: String,
    /// Backends that it waits for.
    pub blocked_by: Vec<i32>,
    /// It waits for a table, and the engine doesn't say for whose lock: it may be for any that we
    /// hold there. Only MariaDB, and MySQL where metadata locks aren't listed.
    pub waits_unlisted: bool,
}

const ENDING: &str = "ending a backend";

/// The filter is applied before the signal function of the select list is called.
const TERMINATE: &str = concat!(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND ",
    micros!("backend_start"),
    " = $2",
);

const ACTIVITY: &str = concat!(
    "SELECT pid, ",
    micros!("backend_start"),
    ", coalesce(datname::text, ''), coalesce(usename::text, ''), coalesce(application_name, ''), ",
    "coalesce(host(client_addr) || ':' || client_port, 'local'), coalesce(state, ''), ",
    "nullif(concat_ws('/', wait_event_type, wait_event), ''), ",
    micros!("clock_timestamp() - xact_start"),
    ", coalesce(left(query, $2), ''), pg_blocking_pids(pid) ",
    "FROM pg_stat_activity WHERE pid = ANY($1) AND backend_start IS NOT NULL ORDER BY xact_start",
);

impl PgEngine {
    /// Asks the engine to end a backend, if it is still the one meant.
    ///
    /// # Errors
    /// `Denied` when the control role may not signal that backend (`pg_signal_backend`, and
    /// superuser for a superuser's); `Unexpected` for one of our own; any other [`EngineError`].
    pub async fn terminate(&self, backend: BackendKey) -> Result<Terminated, EngineError> {
        if self.connections.is_own(backend) {
            let words = format!("pid {} is one of our own control connections", backend.pid);
            return Err(self.unexpected(ENDING, words));
        }
        self.signal(backend).await
    }

    /// Ends backends of our own whose connection is gone on this side: behind a broken link the
    /// engine may not know that, and would keep their locks. Answers how many it still had. Asks
    /// nothing while there are none.
    ///
    /// # Errors
    /// As [`PgEngine::terminate`]; those that weren't asked about stay for the next time.
    pub async fn end_strays(&self) -> Result<u64, EngineError> {
        let mut ended = 0;
        for stray in self.connections.strays() {
            match self.signal(stray).await? {
                Terminated::Signalled => ended += 1,
                Terminated::Gone => self.connections.stray_gone(stray),
            }
        }
        Ok(ended)
    }

    async fn signal(&self, backend: BackendKey) -> Result<Terminated, EngineError> {
        let database = self.connections.settings().database.clone();
        let mut control = self.connections.control(&database).await?;
        let params = [(&backend.pid as _, Type::INT4), (&backend.backend_start.0 as _, Type::INT8)];
        let rows = control.rows(ENDING, TERMINATE, &params).await?;
        let sent = rows.first().map(|row| row.try_get::<_, bool>(0)).transpose();
        match sent.map_err(|e| control.odd(ENDING, &e))? {
            Some(true) => Ok(Terminated::Signalled),
            Some(false) | None => Ok(Terminated::Gone),
        }
    }

    /// What these backends are doing; those that have ended are absent from the answer.
    ///
    /// # Errors
    /// Any [`EngineError`]; `Denied` without pg_monitor.
    pub async fn activity(&self, pids: &[i32]) -> Result<Vec<Activity>, EngineError> {
        let what = "activity";
        let database = self.connections.settings().database.clone();
        let mut control = self.connections.control(&database).await?;
        let params = [(&pids as _, Type::INT4_ARRAY), (&STATEMENT_CHARS_MAX as _, Type::INT4)];
        let questions: [Question<'_>; 2] = [(IDENTITY, &[]), (ACTIVITY, &params)];
        let [seen, rows] = control.pipelined(what, questions).await?;
        self.sees_all(&control, seen)?;
        rows.iter().map(|row| activity(row).map_err(|e| control.odd(what, &e))).collect()
    }
}

fn activity(row: &tokio_postgres::Row) -> Result<Activity, tokio_postgres::Error> {
    let age: Option<i64> = row.try_get(8)?;
    Ok(Activity {
        backend: BackendKey { pid: row.try_get(0)?, backend_start: EngineTime(row.try_get(1)?) },
        database: row.try_get(2)?,
        user: row.try_get(3)?,
        application_name: row.try_get(4)?,
        client: row.try_get(5)?,
        state: row.try_get(6)?,
        wait: row.try_get(7)?,
        transaction_ms: age.map(|micros| u64::try_from(micros / 1000).unwrap_or(0)),
        statement: row.try_get(9)?,
        blocked_by: row.try_get(10)?,
        waits_unlisted: false,
    })
}
