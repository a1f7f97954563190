//! What an operator should know about a database before fencing it.
//!
//! Purpose: a short list of warnings for `inspect` and the log. Nothing is refused here; each
//! fact comes back as evidence or as an error when it matters. Called by `control`.

use super::PgEngine;
use super::lock::FORBIDDEN;
use crate::base::ids::Namespace;
use crate::engine::error::EngineError;

/// Which warning; a stable word for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WarningCode {
    /// The control role doesn't see other roles' sessions: no census is possible.
    NotMonitor,
    /// The control role may not take the engine lock on some tables.
    CannotLock,
    /// Large objects exist and the control role can't lock them.
    LargeObjects,
    /// Foreign tables: their content is elsewhere, and not fenced.
    ForeignTables,
    /// Prepared transactions are enabled: they survive everything and block the drain.
    PreparedTransactions,
    /// The log can't be decoded: changes after the boundary can't be looked for.
    WalLevel,
    /// The database subscribes to another: apply workers write around the proxy.
    Subscriptions,
    /// MySQL: no binary log, so no boundary.
    BinaryLogOff,
    /// MySQL: events may run, around the proxy.
    EventScheduler,
    /// MySQL: something reaches across schemas, isn't undone by a rollback, or can't be looked for.
    Closure,
    /// MySQL: the engine doesn't show table locks, so blockers of the engine lock have no names.
    LocksNotListed,
    /// MySQL: the control account may not end other sessions.
    CannotTerminate,
}

impl WarningCode {
    /// A stable word for APIs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotMonitor => "not_monitor",
            Self::CannotLock => "cannot_lock",
            Self::LargeObjects => "large_objects",
            Self::ForeignTables => "foreign_tables",
            Self::PreparedTransactions => "prepared_transactions",
            Self::WalLevel => "wal_level",
            Self::Subscriptions => "subscriptions",
            Self::BinaryLogOff => "binary_log_off",
            Self::EventScheduler => "event_scheduler",
            Self::Closure => "closure",
            Self::LocksNotListed => "locks_not_listed",
            Self::CannotTerminate => "cannot_terminate",
        }
    }
}

/// One thing to know, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Which.
    pub code: WarningCode,
    /// What was found, and what to do about it.
    pub text: String,
}

const FACTS: &str = "SELECT \
    (SELECT count(*) FROM pg_class WHERE relkind = 'f'), \
    current_setting('max_prepared_transactions')::int8, \
    current_setting('wal_level'), \
    (SELECT count(*) FROM pg_stat_subscription s JOIN pg_stat_activity a ON a.pid = s.pid \
     WHERE a.datname = current_database()), \
    EXISTS (SELECT FROM pg_largeobject_metadata), \
    (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)";

impl PgEngine {
    /// Looks at the namespace's database; an empty list means nothing to warn of.
    ///
    /// # Errors
    /// Any [`EngineError`] but `Changed`.
    pub async fn preflight(&self, namespace: &Namespace) -> Result<Vec<Warning>, EngineError> {
        let what = "preflight";
        let mut control = self.connections.control(self.database_of(namespace)?).await?;
        let mut warnings = Vec::new();
        let mut warn = |code, text: String| warnings.push(Warning { code, text });
        let user = &self.connections.settings().user;
        if !self.see(&mut control).await?.sees_all {
            warn(
                WarningCode::NotMonitor,
                format!("role {user:?} lacks pg_monitor: no drain can be proven; grant it"),
            );
        }
        let forbidden = control.rows(what, FORBIDDEN, &[]).await?.len();
        if forbidden > 0 {
            warn(
                WarningCode::CannotLock,
                format!("role {user:?} may not lock {forbidden} tables: no engine lock"),
            );
        }
        let row = control.row(what, FACTS, &[]).await?;
        let read = || -> Result<(i64, i64, String, i64, bool, bool), tokio_postgres::Error> {
            Ok((
                row.try_get(0)?,
                row.try_get(1)?,
                row.try_get(2)?,
                row.try_get(3)?,
                row.try_get(4)?,
                row.try_get(5)?,
            ))
        };
        let (foreign, prepared, level, applying, objects, superuser) =
            read().map_err(|e| control.odd(what, &e))?;
        if foreign > 0 {
            warn(WarningCode::ForeignTables, format!("{foreign} foreign tables aren't fenced"));
        }
        if prepared > 0 {
            let text = "prepared transactions are enabled: one that is left blocks the drain";
            warn(WarningCode::PreparedTransactions, text.to_owned());
        }
        if level != "logical" {
            let text = format!("wal_level is {level}: changes after a boundary can't be decoded");
            warn(WarningCode::WalLevel, text);
        }
        if applying > 0 {
            let text = format!("{applying} subscription workers write here; disable them first");
            warn(WarningCode::Subscriptions, text);
        }
        if objects && !superuser {
            let text = "large objects exist and the engine lock can't cover them".to_owned();
            warn(WarningCode::LargeObjects, text);
        }
        Ok(warnings)
    }
}
