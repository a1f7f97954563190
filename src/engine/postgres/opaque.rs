//! Functions of a database that the fence can't see through, named for the evidence.
//!
//! Purpose: a query that the classifier calls a read may run code it can't read: behind a view, an
//! operator, a cast, or under a built-in's name that a search path puts first. The guard has the
//! engine refuse what such code writes; before PostgreSQL 18 a function can lift the guard itself,
//! and then only the engine lock stands, which covers neither sequences nor the catalog. In every
//! version `EXPLAIN ANALYZE CREATE TABLE … AS` makes a table in a read-only transaction. From 17 on
//! a login trigger runs in front of everything that a session is admitted with: the gate refuses
//! logins where there is one (`gate/logins.rs`), and has them asked for here. Other such code is
//! looked for by name and by source text. That is a hint for operators, never evidence: source can
//! hide what it does.
//!
//! Called by `lock`, beside its attempt at the lock. Nothing is refused here.

use super::PgEngine;
use crate::engine::error::EngineError;

/// How many names are told of each kind.
const NAMES_MAX: usize = 5;

/// Functions of no system schema: those that speak of what gets around the guard, and those outside
/// of extensions that have a built-in's name; then login triggers. One row of three arrays, each
/// one name longer than told.
const OPAQUE: &str = "WITH own AS (\
    SELECT p.oid, p.proname, p.prosrc, format('%I.%I', n.nspname, p.proname) AS name \
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace \
    WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema') \
    SELECT ARRAY(SELECT DISTINCT name FROM own \
    WHERE prosrc ~* 'transaction_read_only|explain.*analy[sz]e.*create' ORDER BY 1 LIMIT 6), \
    ARRAY(SELECT DISTINCT name FROM own WHERE EXISTS (SELECT FROM pg_proc b \
    WHERE b.pronamespace = 'pg_catalog'::regnamespace AND b.proname = own.proname) \
    AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass \
    AND d.objid = own.oid AND d.deptype = 'e') ORDER BY 1 LIMIT 6), \
    ARRAY(SELECT evtname::text FROM pg_event_trigger \
    WHERE evtevent = 'login' AND evtenabled <> 'D' ORDER BY 1 LIMIT 6)";

/// The login triggers of a database that aren't disabled. No version before 17 lets one be made.
const LOGIN_TRIGGERS: &str = "SELECT ARRAY(SELECT evtname::text FROM pg_event_trigger \
    WHERE evtevent = 'login' AND evtenabled <> 'D' ORDER BY 1 LIMIT 6)";

impl PgEngine {
    /// The names of a database's login triggers that are enabled, at most six of them.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// [`EngineError`]; where a trigger keeps the control role itself from logging in, in the
    /// engine's words.
    pub async fn login_triggers(&self, database: &str) -> Result<Vec<String>, EngineError> {
        let what = "login triggers";
        let mut control = self.connections.control(database).await?;
        let row = control.row(what, LOGIN_TRIGGERS, &[]).await?;
        row.try_get(0).map_err(|error| control.odd(what, &error))
    }

    /// What to tell about such functions, one sentence each kind; empty when none is found.
    ///
    /// Cancel safe.
    pub(super) async fn opaque(&self, database: &str) -> Vec<String> {
        self.named(database).await.unwrap_or_else(|error| {
            vec![format!("functions that may lift the guard could not be looked for: {error}")]
        })
    }

    async fn named(&self, database: &str) -> Result<Vec<String>, EngineError> {
        let what = "functions";
        let mut control = self.connections.control(database).await?;
        let row = control.row(what, OPAQUE, &[]).await?;
        let read = || -> Result<[Vec<String>; 3], tokio_postgres::Error> {
            Ok([row.try_get(0)?, row.try_get(1)?, row.try_get(2)?])
        };
        let [lifting, shadowing, logins] = read().map_err(|e| control.odd(what, &e))?;
        let mut told = Vec::new();
        if !lifting.is_empty() {
            let text = "functions that speak of transaction_read_only or of EXPLAIN ANALYZE \
                        CREATE, and may get around the guard";
            told.push(format!("{text}: {}", list(&lifting)));
        }
        if !shadowing.is_empty() {
            let text = "functions with a built-in's name, which a search_path may put before it";
            told.push(format!("{text}: {}", list(&shadowing)));
        }
        if !logins.is_empty() {
            let text = "login triggers, which logins that do not come through the proxy still run \
                        (those that do are refused while writes are fenced); disable those that \
                        write";
            told.push(format!("{text}: {}", list(&logins)));
        }
        Ok(told)
    }
}

fn list(names: &[String]) -> String {
    let more = if names.len() > NAMES_MAX { ", ..." } else { "" };
    let told: Vec<&str> = names.iter().take(NAMES_MAX).map(String::as_str).collect();
    format!("{}{more}", told.join(", "))
}
