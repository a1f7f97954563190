//! The bank on PostgreSQL: its tables, and its log by logical decoding.

use std::path::Path;

use tokio_postgres::Client;

use super::{ACCOUNTS, DATABASE, OPENING_BALANCE, ROLE};
use crate::cli::demo::checks::{Changes, LogRow, changes_around};
use crate::cli::demo::error::DemoError;
use crate::cli::demo::link::{Link, LinkError, Login, postgres};
use crate::cli::demo::server::{PORT, SUPERUSER, Server};
use crate::engine::Lsn;

const SLOT: &str = "fencewire_demo";
/// How long a direct INSERT waits for the engine's lock before it gives up.
pub(super) const PATIENCE: &str = "SET lock_timeout = '400ms'";

const TABLES: &str = "
    CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL);
    CREATE TABLE transfers (id bigint PRIMARY KEY, from_account bigint NOT NULL,
        to_account bigint NOT NULL, amount bigint NOT NULL);
    ALTER TABLE accounts OWNER TO bank;
    ALTER TABLE transfers OWNER TO bank;";

pub(super) fn login(server: &Server, name: &str, port: u16) -> Login {
    let mut config = postgres(ROLE, server.password().expose(), name, DATABASE);
    config.host("127.0.0.1").port(port);
    Login::Postgres(Box::new(config))
}

/// Makes the bank; answers the session around the proxy.
pub(super) async fn make(server: &Server, folder: &Path) -> Result<Link, LinkError> {
    let password = server.password().expose();
    let at = |database| {
        let mut config = postgres(SUPERUSER, password, "around the proxy", database);
        config.host_path(folder).port(PORT);
        Login::Postgres(Box::new(config))
    };
    let mut first = Link::open(&at("postgres")).await?;
    // The password is hexadecimal digits: nothing in it needs quoting.
    first.run(&format!("CREATE ROLE {ROLE} LOGIN PASSWORD '{password}'")).await?;
    first.run(&format!("CREATE DATABASE {DATABASE} OWNER {ROLE}")).await?;
    drop(first);
    let mut link = Link::open(&at(DATABASE)).await?;
    link.run(TABLES).await?;
    let fill = format!(
        "INSERT INTO accounts SELECT n, {OPENING_BALANCE} FROM generate_series(1, {}) n",
        ACCOUNTS + 2
    );
    link.run(&fill).await?;
    let slot = format!("SELECT pg_create_logical_replication_slot('{SLOT}', 'test_decoding')");
    link.run(&slot).await?;
    Ok(link)
}

/// Decodes the log, and takes nothing out of the slot.
pub(super) async fn changes(
    client: &Client,
    boundary: &str,
    marker: &str,
) -> Result<Changes, DemoError> {
    const DECODE: &str = "SELECT lsn::text, xid::text, data \
        FROM pg_logical_slot_peek_changes($1, NULL, NULL, 'skip-empty-xacts', '0')";
    let failed = |e: tokio_postgres::Error| DemoError::engine("decoding the log", &e.into());
    let boundary = position(boundary)?;
    let rows = client.query(DECODE, &[&SLOT]).await.map_err(failed)?;
    let mut decoded = Vec::with_capacity(rows.len());
    for row in &rows {
        let lsn: String = row.try_get(0).map_err(failed)?;
        let xid = row.try_get(1).map_err(failed)?;
        let data = row.try_get(2).map_err(failed)?;
        decoded.push(LogRow { lsn: position(&lsn)?, xid, data });
    }
    Ok(changes_around(&decoded, boundary, marker))
}

/// A log position as a number.
fn position(text: &str) -> Result<u64, DemoError> {
    let words = || DemoError::Engine {
        what: "decoding the log",
        words: format!("{text:?} is no log position"),
    };
    Lsn::parse(text).map(|lsn| lsn.0).ok_or_else(words)
}
