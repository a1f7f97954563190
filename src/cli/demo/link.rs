//! A client's connection, to whichever engine.
//!
//! Purpose: the few things that the demo's clients say, in each driver's words; an error comes back
//! as a code and a sentence. Called by `client.rs` and `bank.rs`. It knows nothing of the bank.

use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder, Params};
use tokio_postgres::config::SslMode;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls};

use super::kind::Kind;
use crate::telemetry::spawn::spawn_named;

/// How long a connection may take, in PostgreSQL's case; the others' callers have bounds.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// What an engine or a driver answered instead of what was asked for.
#[derive(Debug)]
pub(super) struct LinkError {
    /// The engine's code: its SQLSTATE, or its error number where that says nothing.
    pub(super) code: Option<String>,
    /// Code and message, or the driver's own words.
    pub(super) words: String,
}

impl From<tokio_postgres::Error> for LinkError {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(db) => {
                let code = db.code().code();
                Self { code: Some(code.to_owned()), words: format!("{code} {}", db.message()) }
            }
            None => Self { code: None, words: error.to_string() },
        }
    }
}

impl From<mysql_async::Error> for LinkError {
    fn from(error: mysql_async::Error) -> Self {
        /// The SQLSTATE of everything that has none of its own.
        const GENERAL: &str = "HY000";
        let mysql_async::Error::Server(error) = error else {
            return Self { code: None, words: error.to_string() };
        };
        let code = if error.state == GENERAL { error.code.to_string() } else { error.state };
        let words = format!("{code} {}", error.message);
        Self { code: Some(code), words }
    }
}

/// Where a connection goes, and as whom.
#[derive(Clone)]
pub(super) enum Login {
    /// To a PostgreSQL or something that speaks as one does.
    Postgres(Box<Config>),
    /// To a MariaDB or MySQL, with what the server calls itself.
    MySql(Box<OptsBuilder>, Kind),
}

/// A PostgreSQL login without an address.
pub(super) fn postgres(user: &str, password: &str, name: &str, database: &str) -> Config {
    let mut config = Config::new();
    config.user(user).password(password).dbname(database);
    config.application_name(name).ssl_mode(SslMode::Disable).connect_timeout(CONNECT_MAX);
    config
}

/// A MySQL login without an address.
pub(super) fn mysql(user: &str, password: &str, name: &str, database: &str) -> OptsBuilder {
    OptsBuilder::default()
        .user(Some(user))
        .pass(Some(password))
        .db_name(Some(database))
        .connect_attribute("program_name", name)
        // Else it would ask the server for a unix socket, and go around the proxy.
        .prefer_socket(false)
        .stmt_cache_size(0)
}

/// An open connection.
pub(super) enum Link {
    /// Its other half runs on a task of its own.
    Postgres(Client),
    /// As the driver has it.
    MySql(Box<Conn>, Kind),
}

/// A prepared statement of one connection.
pub(super) enum Prepared {
    /// PostgreSQL's.
    Postgres(tokio_postgres::Statement),
    /// MariaDB's or MySQL's.
    MySql(mysql_async::Statement),
}

impl Link {
    /// Connects.
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    pub(super) async fn open(login: &Login) -> Result<Self, LinkError> {
        match login {
            Login::Postgres(config) => {
                let (client, connection) = config.connect(NoTls).await?;
                drop(spawn_named("demo-connection", async move {
                    // What went wrong is told to the client's own calls.
                    connection.await.ok();
                }));
                Ok(Self::Postgres(client))
            }
            Login::MySql(options, kind) => {
                let conn = Box::pin(Conn::new((**options).clone())).await?;
                Ok(Self::MySql(Box::new(conn), *kind))
            }
        }
    }

    /// What it is connected to.
    pub(super) const fn kind(&self) -> Kind {
        match self {
            Self::Postgres(_) => Kind::Postgres,
            Self::MySql(_, kind) => *kind,
        }
    }

    /// Sends a text that answers no rows, or none that matter.
    ///
    /// # Cancel safety
    /// Not cancel safe: afterwards the connection is of no use.
    pub(super) async fn run(&mut self, sql: &str) -> Result<(), LinkError> {
        match self {
            Self::Postgres(client) => Ok(client.batch_execute(sql).await?),
            Self::MySql(conn, _) => Ok(Box::pin(conn.query_drop(sql)).await?),
        }
    }

    /// Prepares a statement, given in PostgreSQL's and in MySQL's wording.
    ///
    /// # Cancel safety
    /// As for [`Self::run`].
    pub(super) async fn prepare(
        &mut self,
        postgres: &'static str,
        mysql: &'static str,
    ) -> Result<Prepared, LinkError> {
        match self {
            Self::Postgres(client) => Ok(Prepared::Postgres(client.prepare(postgres).await?)),
            Self::MySql(conn, _) => Ok(Prepared::MySql(Box::pin(conn.prep(mysql)).await?)),
        }
    }

    /// Executes a prepared statement that answers no rows.
    ///
    /// # Cancel safety
    /// As for [`Self::run`].
    pub(super) async fn execute(
        &mut self,
        statement: &Prepared,
        values: &[i64],
    ) -> Result<(), LinkError> {
        match (self, statement) {
            (Self::Postgres(client), Prepared::Postgres(statement)) => {
                let values: Vec<&(dyn ToSql + Sync)> =
                    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
                client.execute(statement, &values).await?;
                Ok(())
            }
            (Self::MySql(conn, _), Prepared::MySql(statement)) => {
                let values = Params::Positional(values.iter().map(|v| (*v).into()).collect());
                Ok(Box::pin(conn.exec_drop(statement, values)).await?)
            }
            (Self::Postgres(_), Prepared::MySql(_)) | (Self::MySql(..), Prepared::Postgres(_)) => {
                Err(stranger())
            }
        }
    }

    /// The one number that a text answers.
    ///
    /// # Cancel safety
    /// As for [`Self::run`].
    pub(super) async fn number(&mut self, sql: &str) -> Result<i64, LinkError> {
        match self {
            Self::Postgres(client) => Ok(client.query_one(sql, &[]).await?.try_get(0)?),
            Self::MySql(conn, _) => {
                Box::pin(conn.query_first(sql)).await?.ok_or_else(|| no_row(sql))
            }
        }
    }

    /// The one number that a prepared statement answers.
    ///
    /// # Cancel safety
    /// As for [`Self::run`].
    pub(super) async fn number_of(&mut self, statement: &Prepared) -> Result<i64, LinkError> {
        match (self, statement) {
            (Self::Postgres(client), Prepared::Postgres(statement)) => {
                Ok(client.query_one(statement, &[]).await?.try_get(0)?)
            }
            (Self::MySql(conn, _), Prepared::MySql(statement)) => {
                let row = Box::pin(conn.exec_first(statement, ())).await?;
                row.ok_or_else(|| no_row("the prepared sum"))
            }
            (Self::Postgres(_), Prepared::MySql(_)) | (Self::MySql(..), Prepared::Postgres(_)) => {
                Err(stranger())
            }
        }
    }

    /// The numbers that a text answers, one in each row.
    ///
    /// # Cancel safety
    /// As for [`Self::run`].
    pub(super) async fn numbers(&mut self, sql: &str) -> Result<Vec<i64>, LinkError> {
        match self {
            Self::Postgres(client) => {
                let rows = client.query(sql, &[]).await?;
                Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
            }
            Self::MySql(conn, _) => Ok(Box::pin(conn.query(sql)).await?),
        }
    }
}

fn stranger() -> LinkError {
    LinkError { code: None, words: "a statement of another connection".to_owned() }
}

fn no_row(sql: &str) -> LinkError {
    LinkError { code: None, words: format!("no row came for {sql:?}") }
}
