//! The console for `psql` and every driver of PostgreSQL.
//!
//! Purpose: pgwire has the protocol (simple and extended queries, SCRAM-SHA-256, cancel requests);
//! here are the login, the bounds and the rows. Until a login is complete nothing but its own
//! messages is looked at, and any error in it ends the connection.
//!
//! Callers: `admin/console`. No TLS: an SSLRequest is answered `N`. Parameters aren't supported.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{Sink, SinkExt as _, StreamExt as _, stream};
use pgwire::api::auth::sasl::SASLAuthStartupHandler;
use pgwire::api::auth::sasl::scram::{
    SCRAM_ITERATIONS, ScramAuth, ScramSecret, gen_salted_password,
};
use pgwire::api::auth::{
    AuthSource, DefaultServerParameterProvider, LoginInfo, Password, StartupHandler as _,
};
use pgwire::api::cancel::{CancelHandler as _, DefaultCancelHandler};
use pgwire::api::portal::{Format, Portal};
use pgwire::api::query::{ExtendedQueryHandler, SimpleQueryHandler};
use pgwire::api::results::{DataRowEncoder, FieldFormat, FieldInfo, QueryResponse, Response, Tag};
use pgwire::api::stmt::QueryParser;
use pgwire::api::store::PortalStore;
use pgwire::api::{
    ClientInfo, ClientPortalStore, ConnectionManager, DefaultClient, NoopHandler,
    PgWireConnectionState, Type,
};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use pgwire::messages::response::{GssEncResponse, SslResponse};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage, SslNegotiationMetaMessage};
use pgwire::tokio::server::{PgWireMessageServerCodec, process_error, process_message};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::codec::Framed;

use super::chatter::{self, Asker, Chat, PG_VERSION};
use super::failure::Failure;
use super::grammar::{Dialect, Statement, parse};
use super::packets::Bounded;
use super::run::{Desk, Wish};
use super::table::{Cell, Column, Kind, Table, columns};
use crate::base::arm::{Removable, removed};
use crate::base::ids::CommandId;
use crate::base::limits;
use crate::fence::command::ActorSurface;

const LABEL: &str = super::Protocol::Postgres.label();
/// Requests for encryption that are answered before a startup message has to come.
const NEGOTIATIONS_MAX: usize = 2;

/// What SCRAM-SHA-256 checks a login with; the password can't be had from it.
#[derive(Clone)]
pub(in crate::admin) struct ScramVerifier {
    salt: Vec<u8>,
    stored_key: Vec<u8>,
    server_key: Vec<u8>,
}

impl ScramVerifier {
    /// Of an admin key, with a salt of its own.
    pub(in crate::admin) fn of(key: &str) -> Self {
        let salt = uuid::Uuid::new_v4().into_bytes().to_vec();
        let salted = gen_salted_password(key, &salt, SCRAM_ITERATIONS);
        match ScramSecret::verifier_from_salted_password(salt, salted, SCRAM_ITERATIONS) {
            ScramSecret::Verifier { salt, stored_key, server_key, iterations: _ } => {
                Self { salt, stored_key, server_key }
            }
            // What pgwire doesn't make of one; nobody gets in with it: no digest is empty.
            ScramSecret::SaltedPassword { salt, .. } => {
                Self { salt, stored_key: Vec::new(), server_key: Vec::new() }
            }
        }
    }
}

impl std::fmt::Debug for ScramVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ScramVerifier(***)")
    }
}

#[expect(elided_lifetimes_in_paths, reason = "the trait's macro makes other ones of '_")]
#[async_trait]
impl AuthSource for ScramVerifier {
    async fn get_password(&self, _login: &LoginInfo) -> PgWireResult<Password> {
        // There is no password here, and only SCRAM is offered.
        Err(PgWireError::InvalidPassword("the key".to_owned()))
    }

    async fn get_scram_secret(
        &self,
        _login: &LoginInfo,
    ) -> PgWireResult<(ScramSecret, Option<()>)> {
        let secret = ScramSecret::Verifier {
            salt: self.salt.clone(),
            iterations: SCRAM_ITERATIONS,
            stored_key: self.stored_key.clone(),
            server_key: self.server_key.clone(),
        };
        Ok((secret, None))
    }
}

type Login = SASLAuthStartupHandler<DefaultServerParameterProvider>;

/// What every connection shares.
pub(super) struct Shared {
    desk: Arc<Desk>,
    login: Arc<Login>,
    cancels: Arc<DefaultCancelHandler>,
}

impl Shared {
    pub(super) fn new(desk: &Arc<Desk>) -> Arc<Self> {
        let manager = Arc::new(ConnectionManager::new());
        let mut parameters = DefaultServerParameterProvider::default();
        PG_VERSION.clone_into(&mut parameters.server_version);
        parameters.is_superuser = false;
        let scram = ScramAuth::new(Arc::new(desk.key.scram().clone()));
        let login = SASLAuthStartupHandler::new(Arc::new(parameters)).with_scram(scram);
        Arc::new(Self {
            desk: Arc::clone(desk),
            login: Arc::new(login.with_connection_manager(Arc::clone(&manager))),
            cancels: Arc::new(DefaultCancelHandler::new(manager)),
        })
    }
}

type Socket<S> = Framed<Bounded<S>, PgWireMessageServerCodec<Prepared>>;

/// Serves one connection to its end.
///
/// Cancel safety: dropping it closes the connection; a command that was begun goes on.
pub(super) async fn talk<S>(stream: S, peer: SocketAddr, shared: Arc<Shared>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    let client = DefaultClient::new(peer, false);
    let bounded = Bounded::postgres(stream, limits::CONSOLE_MESSAGE_BYTES_MAX);
    let mut socket = Framed::new(bounded, PgWireMessageServerCodec::new(client));
    let patience = Duration::from_millis(limits::ADMIN_HEAD_MS);
    let logged_in = tokio::time::timeout(patience, log_in(&mut socket, &shared)).await;
    match logged_in {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => return Ok(()),
        Ok(Err(error)) => {
            shared.desk.metrics.admin.request(LABEL, 401);
            return refuse(&mut socket, error).await;
        }
        Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "no login in time")),
    }
    let handler = Arc::new(Handler {
        desk: Arc::clone(&shared.desk),
        parser: Arc::new(Parser),
        running: Mutex::new(None),
    });
    let mut named = Named::default();
    while let Some(message) = socket.next().await {
        let message = match message {
            Ok(PgWireFrontendMessage::Terminate(_)) => return Ok(()),
            Ok(message) => message,
            Err(error) => return refuse(&mut socket, error).await,
        };
        let extended = message.is_extended_query();
        if !named.has_room_for(&message) {
            let failure = Failure::too_many(limits::CONSOLE_STATEMENTS_MAX);
            process_error(&mut socket, handler.failed(failure), extended).await?;
            continue;
        }
        let done = process_message(
            message,
            &mut socket,
            Arc::clone(&shared.login),
            Arc::clone(&handler),
            Arc::clone(&handler),
            Arc::new(NoopHandler),
            Arc::clone(&shared.cancels),
        );
        if let Err(error) = done.await {
            let error = handler.told(error);
            let fatal = error.is_fatal();
            process_error(&mut socket, error, extended).await?;
            if fatal {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Names of prepared statements and portals; the library keeps any number of them.
#[derive(Debug, Default)]
struct Named(BTreeSet<(u8, String)>);

impl Named {
    /// Whether what the message names may be kept.
    fn has_room_for(&mut self, message: &PgWireFrontendMessage) -> bool {
        const STATEMENT: u8 = b'S';
        const PORTAL: u8 = b'P';
        if let PgWireFrontendMessage::Close(close) = message {
            let name = close.name.clone().unwrap_or_default();
            self.0.remove(&(close.target_type, name));
            return true;
        }
        let (kind, name) = if let PgWireFrontendMessage::Parse(parse) = message {
            (STATEMENT, parse.name.as_deref())
        } else if let PgWireFrontendMessage::Bind(bind) = message {
            (PORTAL, bind.portal_name.as_deref())
        } else {
            return true;
        };
        let name = name.unwrap_or_default();
        let key = (kind, name.to_owned());
        if name.is_empty() || self.0.contains(&key) {
            return true;
        }
        let room = self.0.len() < limits::CONSOLE_STATEMENTS_MAX;
        if room {
            self.0.insert(key);
        }
        room
    }
}

/// `true` once the client has shown the key; `false` when it has said all it wanted.
async fn log_in<S>(socket: &mut Socket<S>, shared: &Shared) -> PgWireResult<bool>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    let mut negotiations = 0;
    loop {
        let Some(message) = socket.next().await else { return Ok(false) };
        let message = message?;
        if let PgWireFrontendMessage::SslNegotiation(asked) = message {
            negotiations += 1;
            let over = decline(socket, asked).await?;
            if over || negotiations == NEGOTIATIONS_MAX {
                socket.set_state(PgWireConnectionState::AwaitingStartup);
            }
            continue;
        }
        if let PgWireFrontendMessage::CancelRequest(cancel) = message {
            shared.cancels.on_cancel_request(cancel).await;
            return Ok(false);
        }
        let of_a_login = matches!(
            message,
            PgWireFrontendMessage::Startup(_) | PgWireFrontendMessage::PasswordMessageFamily(_)
        );
        if !of_a_login && removed(Removable::ConsoleLogin) {
            socket.set_state(PgWireConnectionState::ReadyForQuery);
            return Ok(true);
        }
        if !of_a_login {
            // Whatever it is, it comes before its time.
            return Err(PgWireError::NotReadyForQuery);
        }
        shared.login.on_startup(socket, message).await?;
        if matches!(socket.state(), PgWireConnectionState::ReadyForQuery) {
            return Ok(true);
        }
    }
}

/// Declines encryption; `true` once the startup message is what comes next.
async fn decline<S>(socket: &mut Socket<S>, asked: SslNegotiationMetaMessage) -> PgWireResult<bool>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    let answer = match asked {
        SslNegotiationMetaMessage::PostgresSsl(_) => {
            PgWireBackendMessage::SslResponse(SslResponse::Refuse)
        }
        SslNegotiationMetaMessage::PostgresGss(_) => {
            PgWireBackendMessage::GssEncResponse(GssEncResponse::Refuse)
        }
        SslNegotiationMetaMessage::None => return Ok(true),
    };
    socket.send(answer).await?;
    Ok(false)
}

/// Tells a fatal error and ends the connection.
async fn refuse<S>(socket: &mut Socket<S>, error: PgWireError) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    let wrong = matches!(error, PgWireError::InvalidPassword(_));
    let (code, message) = match wrong {
        true => ("28P01", "the password is wrong".to_owned()),
        false => ("08P01", error.to_string()),
    };
    let mut info = ErrorInfo::new("FATAL".to_owned(), code.to_owned(), message);
    info.hint =
        Some("Log in with any user name and the admin key of this proxy as password.".to_owned());
    socket.send(PgWireBackendMessage::ErrorResponse(info.into())).await?;
    socket.close().await
}

/// A statement that was read.
#[derive(Debug, Clone)]
pub(super) enum Prepared {
    /// One of ours.
    Ours(Statement),
    /// A client's small talk, with its answer.
    Chat(Chat),
}

impl Prepared {
    fn read<C: ClientInfo>(client: &C, text: &str) -> Result<Option<Self>, Failure> {
        Ok(match parse(text, Dialect::Postgres).map_err(|wrong| Failure::wrong(&wrong))? {
            Statement::Empty => None,
            Statement::Other => {
                let asker = asker(client);
                Some(Self::Chat(chatter::answer(text, Dialect::Postgres, &asker)?))
            }
            ours @ (Statement::Show(_)
            | Statement::Inspect(_)
            | Statement::Fence(_)
            | Statement::Capability(_)) => Some(Self::Ours(ours)),
        })
    }

    fn columns(&self) -> Vec<Column> {
        match self {
            Self::Ours(statement) => columns(statement),
            Self::Chat(Chat::Rows(table)) => table.columns.clone(),
            Self::Chat(Chat::Done(_) | Chat::Begin | Chat::End(_) | Chat::Kill(_)) => Vec::new(),
        }
    }
}

fn asker<C: ClientInfo>(client: &C) -> Asker {
    let said = |name: &str| client.metadata().get(name).cloned().unwrap_or_default();
    Asker {
        user: said("user"),
        database: said("database"),
        connection: client.pid_and_secret_key().0.unsigned_abs(),
    }
}

fn field(column: &Column, format: FieldFormat) -> FieldInfo {
    let kind = match column.kind {
        Kind::Text => Type::TEXT,
        Kind::Int => Type::INT8,
        Kind::Bool => Type::BOOL,
    };
    FieldInfo::new(column.name.clone().into_owned(), None, None, kind, format)
}

fn fields(columns: &[Column], format: Option<&Format>) -> Vec<FieldInfo> {
    let format_of = |index: usize| match format {
        None | Some(Format::UnifiedText) => FieldFormat::Text,
        Some(Format::UnifiedBinary) => FieldFormat::Binary,
        // A client may name fewer formats than there are columns.
        Some(Format::Individual(codes)) => {
            codes.get(index).map_or(FieldFormat::Text, |code| FieldFormat::from(*code))
        }
    };
    columns.iter().enumerate().map(|(index, column)| field(column, format_of(index))).collect()
}

fn rows(table: Table, format: Option<&Format>) -> PgWireResult<Response> {
    let schema = Arc::new(fields(&table.columns, format));
    let mut encoder = DataRowEncoder::new(Arc::clone(&schema));
    let mut encoded = Vec::with_capacity(table.rows.len());
    for row in table.rows {
        for cell in row {
            match cell {
                Cell::Null => encoder.encode_field(&None::<String>)?,
                Cell::Text(text) => encoder.encode_field(&text)?,
                Cell::Int(number) => encoder.encode_field(&number)?,
                Cell::Bool(yes) => encoder.encode_field(&yes)?,
            }
        }
        encoded.push(Ok(encoder.take_row()));
    }
    Ok(Response::Query(QueryResponse::new(schema, stream::iter(encoded))))
}

fn error(failure: Failure) -> PgWireError {
    let mut info = ErrorInfo::new("ERROR".to_owned(), failure.sqlstate.to_owned(), failure.message);
    info.severity_nonlocalized = Some("ERROR".to_owned());
    info.detail = failure.detail;
    info.hint = failure.hint;
    info.position = failure.position.map(|position| position.to_string());
    info.routine = Some("fencewire".to_owned());
    PgWireError::UserError(Box::new(info))
}

/// One connection's statements.
pub(super) struct Handler {
    desk: Arc<Desk>,
    parser: Arc<Parser>,
    /// The command whose answer is waited for, for the words of a cancel.
    running: Mutex<Option<CommandId>>,
}

impl Handler {
    fn failed(&self, failure: Failure) -> PgWireError {
        self.desk.metrics.admin.request(LABEL, failure.status);
        error(failure)
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Option<CommandId>> {
        // A copy of an id: a panic elsewhere can't have left half of one.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A cancelled wait, in words that say what goes on.
    fn told(&self, error: PgWireError) -> PgWireError {
        if !matches!(error, PgWireError::QueryCanceled) {
            return error;
        }
        let running = self.running().take();
        self.failed(Failure::cancelled(running))
    }

    async fn answer<C>(
        &self,
        client: &mut C,
        prepared: Prepared,
        format: Option<&Format>,
    ) -> PgWireResult<Response>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let statement = match prepared {
            Prepared::Ours(statement) => statement,
            Prepared::Chat(chat) => {
                self.desk.metrics.admin.request(LABEL, 200);
                return match chat {
                    Chat::Rows(table) => rows(table, format),
                    Chat::Begin => Ok(Response::TransactionStart(Tag::new("BEGIN"))),
                    Chat::End(tag) => Ok(Response::TransactionEnd(Tag::new(tag))),
                    Chat::Done(tag) => Ok(Response::Execution(Tag::new(tag))),
                    Chat::Kill(_) => Err(error(Failure::no_database())),
                };
            }
        };
        let named = matches!(&statement, Statement::Fence(fence) if fence.command.is_some());
        let wish = Wish::new(statement);
        *self.running() = wish.announced();
        if let Some(id) = wish.announced().filter(|_| !named) {
            // Told before anything is sent, so that the command can be found whatever happens.
            let words = format!("command {id}");
            let notice = ErrorInfo::new("NOTICE".to_owned(), "00000".to_owned(), words);
            client.send(PgWireBackendMessage::NoticeResponse(notice.into())).await?;
        }
        let ran = self.desk.run(&wish, ActorSurface::ConsolePostgres, Dialect::Postgres).await;
        *self.running() = None;
        let table = ran.map_err(|failure| self.failed(failure))?;
        self.desk.metrics.admin.request(LABEL, 200);
        rows(table, format)
    }
}

#[async_trait]
impl SimpleQueryHandler for Handler {
    async fn do_query<C>(&self, client: &mut C, query: &str) -> PgWireResult<Vec<Response>>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: std::fmt::Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let prepared = Prepared::read(client, query).map_err(|failure| self.failed(failure))?;
        match prepared {
            None => Ok(vec![Response::EmptyQuery]),
            Some(prepared) => Ok(vec![self.answer(client, prepared, None).await?]),
        }
    }
}

/// Reads the texts of prepared statements.
pub(super) struct Parser;

#[async_trait]
impl QueryParser for Parser {
    type Statement = Prepared;

    async fn parse_sql<C>(
        &self,
        client: &C,
        sql: &str,
        _types: &[Option<Type>],
    ) -> PgWireResult<Option<Prepared>>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        Prepared::read(client, sql).map_err(error)
    }

    fn get_parameter_types(&self, _statement: &Prepared) -> PgWireResult<Vec<Type>> {
        Ok(Vec::new())
    }

    fn get_result_schema(
        &self,
        statement: &Prepared,
        format: Option<&Format>,
    ) -> PgWireResult<Vec<FieldInfo>> {
        Ok(fields(&statement.columns(), format))
    }
}

#[async_trait]
impl ExtendedQueryHandler for Handler {
    type Statement = Prepared;
    type QueryParser = Parser;

    fn query_parser(&self) -> Arc<Parser> {
        Arc::clone(&self.parser)
    }

    async fn do_query<C>(
        &self,
        client: &mut C,
        portal: &Portal<Prepared>,
        _max_rows: usize,
    ) -> PgWireResult<Response>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Prepared>,
        C::Error: std::fmt::Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let prepared = portal.statement.statement.clone();
        self.answer(client, prepared, Some(&portal.result_column_format)).await
    }
}
