//! What an operator should know about a schema before fencing it.
//!
//! Purpose: a short list of warnings for `inspect` and the log; the twin of `postgres::preflight`.
//! Nothing is refused here; each fact comes back as evidence or as an error when it matters.
//! Called by `control`.

use super::MyEngine;
use super::connect::{Control, Flavour};
use super::rights::Rights;
use super::value::words;
use crate::base::ids::Namespace;
use crate::engine::error::EngineError;
use crate::engine::{Warning, WarningCode};

impl MyEngine {
    /// Looks at the namespace's schema; an empty list means nothing to warn of.
    ///
    /// # Errors
    /// Any [`EngineError`] but `Changed`.
    pub async fn preflight(&self, namespace: &Namespace) -> Result<Vec<Warning>, EngineError> {
        let schema = self.schema_of(namespace)?;
        let mut control = self.connections.control().await?;
        self.see(&mut control, schema).await?;
        let mut warnings = self.missing_rights(&mut control, schema).await?;
        self.server(&mut control, schema, &mut warnings).await?;
        drop(control);
        let closure = self.closure(schema).await?;
        let mut warn = |code, text: String| warnings.push(Warning { code, text });
        for sentence in closure.sentences() {
            warn(WarningCode::Closure, sentence);
        }
        Ok(warnings)
    }

    async fn missing_rights(
        &self,
        control: &mut Control,
        schema: &str,
    ) -> Result<Vec<Warning>, EngineError> {
        let rights = Rights::read(control, schema).await?;
        let user = &self.connections.settings().user;
        let mut warnings = Vec::new();
        let mut warn = |code, text: String| warnings.push(Warning { code, text });
        if !rights.has_global("PROCESS") {
            let text = format!("account {user:?} lacks PROCESS: no drain can be proven; grant it");
            warn(WarningCode::NotMonitor, text);
        }
        if !(rights.has("SELECT") && rights.has("LOCK TABLES")) {
            let text = format!(
                "account {user:?} lacks SELECT or LOCK TABLES on {schema}: no engine lock, and \
                 that writers around the proxy have ended is not shown"
            );
            warn(WarningCode::CannotLock, text);
        }
        let (kill, mysql) = match control.flavour() {
            Flavour::MySql => ("CONNECTION_ADMIN", true),
            Flavour::MariaDb => ("CONNECTION ADMIN", false),
        };
        if !rights.has_global(kill) && !rights.has_global("SUPER") {
            let text = format!("account {user:?} lacks {kill}: force_rollback can end nobody");
            warn(WarningCode::CannotTerminate, text);
        }
        if mysql && !rights.has_global("XA_RECOVER_ADMIN") {
            let text = format!("account {user:?} lacks XA_RECOVER_ADMIN: no drain can be proven");
            warn(WarningCode::NotMonitor, text);
        }
        if !(rights.has("TRIGGER") && rights.has("EVENT")) {
            let text = "without TRIGGER and EVENT on the schema, those that reach across are not \
                        looked for";
            warn(WarningCode::Closure, text.to_owned());
        }
        Ok(warnings)
    }

    async fn server(
        &self,
        control: &mut Control,
        schema: &str,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), EngineError> {
        let what = "preflight";
        let mut warn = |code, text: &str| warnings.push(Warning { code, text: text.to_owned() });
        let row = control.row(what, "SELECT @@log_bin, @@event_scheduler").await?;
        if words(&row, 0) != "1" {
            let text = "the binary log is off: fences are proven without a boundary, changes after \
                        one can't be looked for";
            warn(WarningCode::BinaryLogOff, text);
        }
        if words(&row, 1).eq_ignore_ascii_case("on") || words(&row, 1) == "1" {
            let text = "event_scheduler is on: events write around the proxy; the engine lock \
                        makes them wait";
            warn(WarningCode::EventScheduler, text);
        }
        if !self.prepared(control, schema).await.is_ok_and(|branches| branches.is_empty()) {
            let text = "prepared XA branches exist, or can't be looked for: each blocks a drain \
                        until it is committed or rolled back";
            warn(WarningCode::PreparedTransactions, text);
        }
        if self.table_locks(control, schema).await?.is_none() {
            let text = match control.flavour() {
                Flavour::MySql => {
                    "performance_schema.metadata_locks can't be read: who stands in the way of the \
                     engine lock isn't named; grant SELECT on performance_schema.*"
                }
                Flavour::MariaDb => {
                    "the metadata_lock_info plugin isn't there: who stands in the way of the \
                     engine lock is guessed from transactions; run: INSTALL SONAME \
                     'metadata_lock_info'"
                }
            };
            warn(WarningCode::LocksNotListed, text);
        }
        let threads = self.threads(control).await?;
        if threads.values().any(|thread| thread.user == "system user") {
            let text = "replication applies changes here, around the proxy; stop it first";
            warn(WarningCode::Subscriptions, text);
        }
        Ok(())
    }
}
