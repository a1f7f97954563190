//! The bank: its tables, and the session that looks at them around the proxy.
//!
//! Purpose: what the demo says about the database is read here, directly from the engine, never
//! through the proxy under test. [`Auditor`] is also the "direct session" of the play: it tries to
//! write around the proxy, and reads the engine's log (`bank/postgres.rs`, `bank/mysql.rs`).
//!
//! Called by `play.rs`. It knows nothing of fences.

mod mysql;
mod postgres;

use std::collections::BTreeSet;

use tokio::sync::Mutex;

use super::checks::{Changes, Direct};
use super::error::DemoError;
use super::kind::Kind;
use super::link::{Link, LinkError, Login};
use super::server::{Place, Server};

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

/// The statement that adds up all balances, in PostgreSQL's and in MySQL's wording.
pub(super) const SUM: [&str; 2] = [
    "SELECT sum(balance)::bigint FROM accounts",
    "SELECT CAST(SUM(balance) AS SIGNED) FROM accounts",
];

/// The sum's wording for an engine.
pub(super) const fn sum_for(kind: Kind) -> &'static str {
    kind.wording(SUM[0], SUM[1])
}

/// How a client called `name` logs in to the bank by way of the proxy at `port` on 127.0.0.1.
pub(super) fn login(server: &Server, name: &str, port: u16) -> Login {
    match server.kind() {
        Kind::Postgres => postgres::login(server, name, port),
        Kind::MariaDb | Kind::MySql => mysql::login(server, name, port),
    }
}

/// A session that doesn't come through the proxy.
pub(super) struct Auditor {
    /// The only connection: one question at a time.
    link: Mutex<Link>,
}

impl Auditor {
    /// Makes the bank and opens the session to it.
    pub(super) async fn open(server: &Server) -> Result<Self, DemoError> {
        let made = match server.place() {
            Place::Socket(folder) => postgres::make(server, &folder).await,
            Place::Both { socket, .. } => mysql::make(server, &socket).await,
        };
        let link = made.map_err(|error| DemoError::engine("making the bank", &error))?;
        Ok(Self { link: Mutex::new(link) })
    }

    /// All balances added up by the engine.
    pub(super) async fn sum(&self) -> Result<i64, DemoError> {
        let mut link = self.link.lock().await;
        let sql = sum_for(link.kind());
        let sum = link.number(sql).await;
        sum.map_err(|error| DemoError::engine("adding up the balances", &error))
    }

    /// The numbers of all transfers in the table.
    pub(super) async fn transfers(&self) -> Result<BTreeSet<i64>, DemoError> {
        let numbers = self.link.lock().await.numbers("SELECT id FROM transfers").await;
        let failed = |error: LinkError| DemoError::engine("reading the transfers", &error);
        Ok(numbers.map_err(failed)?.into_iter().collect())
    }

    /// Tries to write around the proxy; waits for the engine's lock a little.
    pub(super) async fn insert(&self, transfer: i64) -> Direct {
        let mut link = self.link.lock().await;
        let [from, to] = VAULTS;
        let insert = format!("INSERT INTO transfers VALUES ({transfer}, {from}, {to}, 0)");
        let patience = link.kind().wording(postgres::PATIENCE, mysql::PATIENCE);
        for sql in [patience, &insert] {
            if let Err(error) = link.run(sql).await {
                return Err(error.code.unwrap_or(error.words));
            }
        }
        Ok(())
    }

    /// Reads the engine's log from before the first transfer up to now, and counts what lies on
    /// either side of a boundary; `marker` is a text that only the boundary's own marker holds.
    pub(super) async fn changes(&self, boundary: &str, marker: &str) -> Result<Changes, DemoError> {
        match &mut *self.link.lock().await {
            Link::Postgres(client) => postgres::changes(client, boundary, marker).await,
            Link::MySql(conn, _) => Box::pin(mysql::changes(conn, boundary)).await,
        }
    }
}
