//! The console for `mysql`, `mariadb` and every driver of theirs.
//!
//! Purpose: opensrv-mysql has the protocol behind the login: commands, prepared statements, result
//! sets in both encodings. What it can't do stands around it: the login (`handshake.rs`), and the
//! bounds and the numbers of our errors (`packets.rs`), of which it knows none.
//!
//! Callers: `admin/console`. No TLS. Parameters aren't supported: a statement with `?` is refused.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use opensrv_mysql::{
    AsyncMysqlIntermediary, AsyncMysqlShim, Column as MyColumn, ColumnFlags, ColumnType, ErrorKind,
    InitWriter, OkResponse, ParamParser, QueryResultWriter, StatementMetaWriter,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;

use super::chatter::{self, Asker, Chat};
use super::failure::Failure;
use super::grammar::{Dialect, Statement, parse};
use super::handshake::{Login, canned, log_in};
use super::packets::{Incoming, Outgoing, REFUSED, SharedNotes, notes};
use super::run::{Desk, Wish};
use super::table::{Cell, Column, Kind, Table, columns};
use crate::base::limits;
use crate::fence::command::ActorSurface;

const LABEL: &str = super::Protocol::Mysql.label();
/// The library's greeting and its OK, which the client has had already.
const SWALLOWED: usize = 2;

/// What every connection shares.
pub(super) struct Shared {
    desk: Arc<Desk>,
    next: AtomicU32,
    /// Who waits, by connection: notified by `KILL QUERY`.
    waiting: Mutex<HashMap<u32, Arc<Notify>>>,
}

impl Shared {
    pub(super) fn new(desk: &Arc<Desk>) -> Arc<Self> {
        let (next, waiting) = (AtomicU32::new(1), Mutex::default());
        Arc::new(Self { desk: Arc::clone(desk), next, waiting })
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Arc<Notify>>> {
        // Each change is one insertion or removal: a panic elsewhere can't have left half of one.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection among those that wait; gone when this is.
struct Listed {
    shared: Arc<Shared>,
    connection: u32,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.shared.waiting().remove(&self.connection);
    }
}

/// Serves one connection to its end.
///
/// Cancel safety: dropping it closes the connection; a command that was begun goes on.
pub(super) async fn talk<S>(mut stream: S, shared: Arc<Shared>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = shared.next.fetch_add(1, Ordering::SeqCst);
    let patience = Duration::from_millis(limits::ADMIN_HEAD_MS);
    let login = log_in(&mut stream, &shared.desk.key, connection);
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no login in time");
    let client = match tokio::time::timeout(patience, login).await.map_err(late)?? {
        Login::In(client) => client,
        Login::Refused => {
            shared.desk.metrics.admin.request(LABEL, 401);
            return Ok(());
        }
    };
    let cancelled = Arc::new(Notify::new());
    shared.waiting().insert(connection, Arc::clone(&cancelled));
    let listed = Listed { shared: Arc::clone(&shared), connection };
    let seen = SharedNotes::default();
    let (reader, writer) = tokio::io::split(stream);
    let reader = Incoming::new(reader, Arc::clone(&seen), &canned(&client));
    let writer = Outgoing::new(writer, Arc::clone(&seen), SWALLOWED);
    let asker = Asker { user: client.user, database: client.database, connection };
    let statements = HashMap::new();
    let shim = Shim { listed, asker, cancelled, notes: seen, statements, next: 0 };
    AsyncMysqlIntermediary::run_on(shim, reader, writer).await
}

/// A statement that was read.
#[derive(Debug, Clone)]
enum Prepared {
    Empty,
    Ours(Statement),
    Chat(Chat),
}

impl Prepared {
    fn columns(&self) -> Vec<Column> {
        match self {
            Self::Ours(statement) => columns(statement),
            Self::Chat(Chat::Rows(table)) => table.columns.clone(),
            Self::Empty
            | Self::Chat(Chat::Done(_) | Chat::Begin | Chat::End(_) | Chat::Kill(_)) => Vec::new(),
        }
    }
}

/// One connection, behind its login.
struct Shim {
    listed: Listed,
    asker: Asker,
    cancelled: Arc<Notify>,
    notes: SharedNotes,
    statements: HashMap<u32, Prepared>,
    next: u32,
}

impl Shim {
    /// Reads what `packets.rs` passed on.
    fn read(&self, passed: &str) -> Result<Prepared, Failure> {
        if let Some(what) = passed.strip_prefix(REFUSED) {
            return Err(Failure::no_such_request(what));
        }
        let text = passed.get(1..).unwrap_or_default();
        Ok(match parse(text, Dialect::Mysql).map_err(|wrong| Failure::wrong(&wrong))? {
            Statement::Empty => Prepared::Empty,
            Statement::Other => Prepared::Chat(chatter::answer(text, Dialect::Mysql, &self.asker)?),
            ours @ (Statement::Show(_)
            | Statement::Inspect(_)
            | Statement::Fence(_)
            | Statement::Capability(_)) => Prepared::Ours(ours),
        })
    }

    /// `None`: done, without rows.
    async fn answer(&self, prepared: Prepared) -> Result<Option<Table>, Failure> {
        let statement = match prepared {
            Prepared::Ours(statement) => statement,
            Prepared::Chat(Chat::Rows(table)) => return Ok(Some(table)),
            Prepared::Chat(Chat::Kill(connection)) => {
                let waits = self.listed.shared.waiting().get(&connection).cloned();
                let waits = waits
                    .ok_or_else(|| Failure::no_setting(&format!("connection {connection}")))?;
                // Only who waits now: nothing is kept for a later statement.
                waits.notify_waiters();
                return Ok(None);
            }
            Prepared::Empty | Prepared::Chat(Chat::Done(_) | Chat::Begin | Chat::End(_)) => {
                return Ok(None);
            }
        };
        let wish = Wish::new(statement);
        let desk = &self.listed.shared.desk;
        tokio::select! {
            table = desk.run(&wish, ActorSurface::ConsoleMysql, Dialect::Mysql) => table.map(Some),
            () = self.cancelled.notified() => Err(Failure::cancelled(wish.announced())),
        }
    }

    /// Has the next error packet marked as this one, and counts it. Answers its words.
    fn failed(&self, failure: &Failure) -> String {
        self.listed.shared.desk.metrics.admin.request(LABEL, failure.status);
        notes(&self.notes).error = Some((failure.errno, failure.sqlstate));
        failure.one_line()
    }

    async fn respond<W: AsyncWrite + Send + Unpin>(
        &self,
        answer: Result<Option<Table>, Failure>,
        results: QueryResultWriter<'_, W>,
    ) -> io::Result<()> {
        let table = match answer {
            Ok(table) => table,
            Err(failure) => {
                let words = self.failed(&failure);
                return results.error(ErrorKind::ER_UNKNOWN_ERROR, words.as_bytes()).await;
            }
        };
        self.listed.shared.desk.metrics.admin.request(LABEL, 200);
        let Some(table) = table else { return results.completed(OkResponse::default()).await };
        let columns: Vec<MyColumn> = table.columns.iter().map(my_column).collect();
        let mut writer = results.start(&columns).await?;
        for row in table.rows {
            for cell in row {
                match cell {
                    Cell::Null => writer.write_col(None::<&str>)?,
                    Cell::Text(text) => writer.write_col(text.as_str())?,
                    Cell::Int(number) => writer.write_col(number)?,
                    Cell::Bool(yes) => writer.write_col(i64::from(yes))?,
                }
            }
            writer.end_row().await?;
        }
        writer.finish().await
    }
}

fn my_column(column: &Column) -> MyColumn {
    let coltype = match column.kind {
        Kind::Text => ColumnType::MYSQL_TYPE_VAR_STRING,
        Kind::Int | Kind::Bool => ColumnType::MYSQL_TYPE_LONGLONG,
    };
    MyColumn {
        table: String::new(),
        column: column.name.clone().into_owned(),
        coltype,
        colflags: ColumnFlags::empty(),
    }
}

#[async_trait]
impl<W: AsyncWrite + Send + Unpin> AsyncMysqlShim<W> for Shim {
    type Error = io::Error;

    async fn on_prepare<'a>(
        &'a mut self,
        query: &'a str,
        info: StatementMetaWriter<'a, W>,
    ) -> io::Result<()> {
        let most = limits::CONSOLE_STATEMENTS_MAX;
        let read = match self.statements.len() < most {
            true => self.read(query),
            false => Err(Failure::too_many(most)),
        };
        let prepared = match read {
            Ok(prepared) => prepared,
            Err(failure) => {
                let words = self.failed(&failure);
                return info.error(ErrorKind::ER_UNKNOWN_ERROR, words.as_bytes()).await;
            }
        };
        self.next = self.next.wrapping_add(1);
        let columns: Vec<MyColumn> = prepared.columns().iter().map(my_column).collect();
        self.statements.insert(self.next, prepared);
        notes(&self.notes).open.insert(self.next);
        info.reply(self.next, &[], &columns).await
    }

    async fn on_execute<'a>(
        &'a mut self,
        id: u32,
        _params: ParamParser<'a>,
        results: QueryResultWriter<'a, W>,
    ) -> io::Result<()> {
        let answer = match self.statements.get(&id).cloned() {
            Some(prepared) => self.answer(prepared).await,
            None => Err(Failure::no_such_request("a statement that wasn't prepared")),
        };
        self.respond(answer, results).await
    }

    async fn on_close<'a>(&'a mut self, id: u32)
    where
        W: 'async_trait,
    {
        self.statements.remove(&id);
        notes(&self.notes).open.remove(&id);
    }

    async fn on_query<'a>(
        &'a mut self,
        query: &'a str,
        results: QueryResultWriter<'a, W>,
    ) -> io::Result<()> {
        let answer = match self.read(query) {
            Ok(prepared) => self.answer(prepared).await,
            Err(failure) => Err(failure),
        };
        self.respond(answer, results).await
    }

    async fn on_init<'a>(&'a mut self, _: &'a str, writer: InitWriter<'a, W>) -> io::Result<()> {
        // Every name is as good as any other: there is nothing to change to.
        writer.ok().await
    }
}
