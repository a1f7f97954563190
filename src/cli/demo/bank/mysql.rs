//! The bank on MariaDB and MySQL: its tables, and its log by SHOW BINLOG EVENTS.

use std::path::Path;

use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;

use super::{ACCOUNTS, DATABASE, OPENING_BALANCE, ROLE};
use crate::cli::demo::binlog::{Event, Executed, changes_in};
use crate::cli::demo::checks::Changes;
use crate::cli::demo::client::SLOW_NAME;
use crate::cli::demo::error::DemoError;
use crate::cli::demo::link::{Link, LinkError, Login, mysql};
use crate::cli::demo::server::{SLOW_USER, Server};

/// How long a direct INSERT waits for the engine's lock before it gives up: whole seconds.
pub(super) const PATIENCE: &str = "SET SESSION lock_wait_timeout = 1";

/// One statement each.
const TABLES: [&str; 2] = [
    "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL) ENGINE = InnoDB",
    "CREATE TABLE transfers (id bigint PRIMARY KEY, from_account bigint NOT NULL, \
     to_account bigint NOT NULL, amount bigint NOT NULL) ENGINE = InnoDB",
];

/// The slow client has an account of its own: its name is what a drain shows of it.
pub(super) fn login(server: &Server, name: &str, port: u16) -> Login {
    let user = if name == SLOW_NAME { SLOW_USER } else { ROLE };
    let options = mysql(user, server.password().expose(), name, DATABASE);
    let options = options.ip_or_hostname("127.0.0.1").tcp_port(port);
    Login::MySql(Box::new(options), server.kind())
}

/// Makes the bank; answers the session around the proxy.
pub(super) async fn make(server: &Server, socket: &Path) -> Result<Link, LinkError> {
    let password = server.password().expose();
    let options = mysql("root", password, "around the proxy", "mysql");
    let options = options.socket(Some(socket.display().to_string()));
    let mut link = Link::open(&Login::MySql(Box::new(options), server.kind())).await?;
    link.run(&format!("CREATE DATABASE {DATABASE}")).await?;
    for user in [ROLE, SLOW_USER] {
        // The password is hexadecimal digits: nothing in it needs quoting.
        link.run(&format!("CREATE USER {user}@'127.0.0.1' IDENTIFIED BY '{password}'")).await?;
        link.run(&format!("GRANT ALL ON {DATABASE}.* TO {user}@'127.0.0.1'")).await?;
    }
    link.run(&format!("USE {DATABASE}")).await?;
    for table in TABLES {
        link.run(table).await?;
    }
    let fill: Vec<String> =
        (1..=ACCOUNTS + 2).map(|id| format!("({id}, {OPENING_BALANCE})")).collect();
    link.run(&format!("INSERT INTO accounts VALUES {}", fill.join(", "))).await?;
    Ok(link)
}

/// Reads all events of the binary log.
pub(super) async fn changes(conn: &mut Conn, boundary: &str) -> Result<Changes, DemoError> {
    const WHAT: &str = "reading the binary log";
    let failed = |e: mysql_async::Error| DemoError::engine(WHAT, &e.into());
    let unreadable = || DemoError::Engine {
        what: WHAT,
        words: format!("{boundary:?} is no set of transactions"),
    };
    let executed = Executed::parse(boundary).ok_or_else(unreadable)?;
    let files: Vec<mysql_async::Row> = conn.query("SHOW BINARY LOGS").await.map_err(failed)?;
    let mut events = Vec::new();
    for file in files {
        let name: String = file.get(0).unwrap_or_default();
        // The name is the server's own, `binlog.000001`.
        let rows: Vec<mysql_async::Row> =
            conn.query(format!("SHOW BINLOG EVENTS IN '{name}'")).await.map_err(failed)?;
        events.extend(rows.iter().map(|row| Event {
            kind: row.get(2).unwrap_or_default(),
            info: row.get(5).unwrap_or_default(),
        }));
    }
    Ok(changes_in(&events, &executed))
}
