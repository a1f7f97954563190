//! The bank: its tables, and the session that looks at them around the proxy.
//!
//! Purpose: what the demo says about the database is read here, directly from the engine, never
//! through the proxy under test. [`Auditor`] is also the "direct session" of the play: it tries to
//! write around the proxy, and decodes the engine's log.
//!
//! Called by `play.rs`. It knows nothing of fences.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls};

use super::checks::{Direct, LogRow};
use super::error::{DemoError, words};
use super::server::{PORT, SUPERUSER, Server};
use crate::engine::Lsn;
use crate::telemetry::spawn::spawn_named;

/// The database, the role of its clients, and the engine's name in the namespace.
pub(super) const DATABASE: &str = "bank";
/// The role of the bank's clients.
pub(super) const ROLE: &str = "bank";
/// Accounts that clients move money between, numbered from 1.
pub(super) const ACCOUNTS: i64 = 1_000;
/// Accounts of the slow transaction alone, so that it holds up no client.
pub(super) const VAULTS: [i64; 2] = [ACCOUNTS + 1, ACCOUNTS + 2];
/// What each account has at first.
pub(super) const OPENING_BALANCE: i64 = 1_000;
/// All money there is.
pub(super) const TOTAL: i64 = (ACCOUNTS + 2) * OPENING_BALANCE;

const SLOT: &str = "fencewire_demo";
/// How long a direct INSERT waits for the engine's lock before it gives up.
const LOCK_TIMEOUT: &str = "400ms";
const CONNECT_MAX: Duration = Duration::from_secs(10);

const TABLES: &str = "
    CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL);
    CREATE TABLE transfers (id bigint PRIMARY KEY, from_account bigint NOT NULL,
        to_account bigint NOT NULL, amount bigint NOT NULL);
    ALTER TABLE accounts OWNER TO bank;
    ALTER TABLE transfers OWNER TO bank;";

/// A connection's settings, without an address.
pub(super) fn login(server: &Server, role: &str, name: &str, database: &str) -> Config {
    let mut config = Config::new();
    config.user(role).password(server.password().expose()).dbname(database);
    config.application_name(name).ssl_mode(SslMode::Disable).connect_timeout(CONNECT_MAX);
    config
}

/// Connects, and keeps the connection going on a task of its own until the client is dropped.
///
/// # Cancel safety
/// Dropping the future closes what was opened.
pub(super) async fn connect(config: &Config) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = config.connect(NoTls).await?;
    drop(spawn_named("demo-connection", async move {
        // What went wrong is told to the client's own calls.
        connection.await.ok();
    }));
    Ok(client)
}

/// A session that doesn't come through the proxy.
pub(super) struct Auditor {
    client: Client,
}

impl Auditor {
    /// Makes the bank and opens the session to it.
    pub(super) async fn open(server: &Server) -> Result<Self, DemoError> {
        let what = "making the bank";
        let failed = |error: tokio_postgres::Error| DemoError::engine(what, &error);
        let at = |database| {
            let mut config = login(server, SUPERUSER, "around the proxy", database);
            config.host_path(server.socket_folder()).port(PORT);
            config
        };
        let first = connect(&at("postgres")).await.map_err(failed)?;
        // The password is hexadecimal digits: nothing in it needs quoting.
        let role = format!("CREATE ROLE {ROLE} LOGIN PASSWORD '{}'", server.password().expose());
        first.batch_execute(&role).await.map_err(failed)?;
        let database = format!("CREATE DATABASE {DATABASE} OWNER {ROLE}");
        first.batch_execute(&database).await.map_err(failed)?;
        drop(first);
        let client = connect(&at(DATABASE)).await.map_err(failed)?;
        client.batch_execute(TABLES).await.map_err(failed)?;
        let fill = format!(
            "INSERT INTO accounts SELECT n, {OPENING_BALANCE} FROM generate_series(1, {}) n",
            ACCOUNTS + 2
        );
        client.batch_execute(&fill).await.map_err(failed)?;
        let slot = "SELECT pg_create_logical_replication_slot($1, 'test_decoding')";
        client.execute(slot, &[&SLOT]).await.map_err(failed)?;
        Ok(Self { client })
    }

    /// All balances added up by the engine.
    pub(super) async fn sum(&self) -> Result<i64, DemoError> {
        let what = "adding up the balances";
        let row = self.client.query_one(SUM, &[]).await;
        row.and_then(|row| row.try_get(0)).map_err(|e| DemoError::engine(what, &e))
    }

    /// The numbers of all transfers in the table.
    pub(super) async fn transfers(&self) -> Result<BTreeSet<i64>, DemoError> {
        let failed = |e| DemoError::engine("reading the transfers", &e);
        let rows = self.client.query("SELECT id FROM transfers", &[]).await.map_err(failed)?;
        rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().map_err(failed)
    }

    /// Tries to write around the proxy; waits for the engine's lock a little.
    pub(super) async fn insert(&self, transfer: i64) -> Direct {
        let set = format!("SET lock_timeout = '{LOCK_TIMEOUT}'");
        let [from, to] = VAULTS;
        let insert = format!("INSERT INTO transfers VALUES ({transfer}, {from}, {to}, 0)");
        for sql in [set, insert] {
            if let Err(error) = self.client.batch_execute(&sql).await {
                let code = error.code().map(|code| code.code().to_owned());
                return Err(code.unwrap_or_else(|| words(&error)));
            }
        }
        Ok(())
    }

    /// Decodes the engine's log from before the first transfer up to now, and takes nothing out
    /// of the slot.
    pub(super) async fn decode(&self) -> Result<Vec<LogRow>, DemoError> {
        const DECODE: &str = "SELECT lsn::text, xid::text, data \
            FROM pg_logical_slot_peek_changes($1, NULL, NULL, 'skip-empty-xacts', '0')";
        let failed = |e| DemoError::engine("decoding the log", &e);
        let rows = self.client.query(DECODE, &[&SLOT]).await.map_err(failed)?;
        let mut decoded = Vec::with_capacity(rows.len());
        for row in &rows {
            let lsn: String = row.try_get(0).map_err(failed)?;
            let lsn = position("decoding the log", &lsn)?;
            let xid = row.try_get(1).map_err(failed)?;
            decoded.push(LogRow { lsn, xid, data: row.try_get(2).map_err(failed)? });
        }
        Ok(decoded)
    }
}

/// The statement that adds up all balances.
pub(super) const SUM: &str = "SELECT sum(balance)::bigint FROM accounts";

/// A log position as a number.
pub(super) fn position(what: &'static str, text: &str) -> Result<u64, DemoError> {
    let words = || DemoError::Engine { what, words: format!("{text:?} is no log position") };
    Lsn::parse(text).map(|lsn| lsn.0).ok_or_else(words)
}
