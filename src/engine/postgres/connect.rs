//! Making, keeping and using control connections.
//!
//! Purpose: one connection per database, used by one caller at a time, made on demand, remade with
//! a bounded delay after failures; dedicated ones for lock holders. Every own backend is
//! remembered by pid and start time, so that the census can leave it out and nobody else.
//!
//! Called by the other files of this folder. It runs no statement of its own beyond settling a new
//! connection, and never repeats a caller's statement.
//!
//! A question is one round trip: its parameters' types are given with it. Questions of which none
//! needs another's answer are sent in one go ([`Control::pipelined`]). The engine still runs them
//! one behind the other, each to its end and in a transaction of its own, before it reads the next,
//! so whatever rests on their order stands.
//!
//! Texts are fixed, and a kept connection has the engine parse and plan each of them once. The
//! first time a text is asked as it is, and its preparation is sent behind all questions of that
//! go: who may not ask, or asks an engine that has no such thing, hears it from the question, where
//! and as it always was, and a preparation that fails leaves the text to be asked as it is. From
//! then on it is bound and executed, in the same place of its go. What is prepared is the text's
//! meaning and its plan, never an answer: each execution reads anew, with the rights of then. It
//! belongs to its [`Session`] and goes with it; behind any error it is forgotten, so that
//! nothing that has become useless is asked twice; and there are at most
//! [`limits::CONTROL_PREPARED_MAX`]. Lock holders ask too little for it.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore, watch};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Row, Statement};

use super::micros;
use super::patience::Answers;
use crate::base::ids::EngineName;
use crate::base::limits;
use crate::engine::Settings;
use crate::engine::error::EngineError;
use crate::engine::identity::{BackendKey, EngineTime};
use crate::telemetry::spawn::spawn_named;
use crate::tls::client::Encrypted;
use crate::tls::{ClientConnector, TlsError, TlsMode};

/// Parameters of a query, each with the type that the query takes it as.
pub(super) type Params<'p> = &'p [(&'p (dyn ToSql + Sync), Type)];

/// A query with its parameters.
///
/// The text is one of the proxy's own: there are only so many, so they can be kept prepared.
pub(super) type Question<'q> = (&'static str, Params<'q>);

/// What one connection's engine has parsed already, by text.
type Prepared = HashMap<&'static str, Statement>;

/// All control connections to one engine.
pub(super) struct Connections {
    settings: Settings,
    connector: Option<ClientConnector>,
    /// Bounds the queries in flight.
    permits: Arc<Semaphore>,
    /// Guards the map only, never held across an await. Each slot's lock is held by its user.
    slots: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Slot>>>>,
    /// Guards the own backends; never held across an await.
    own: Arc<Mutex<Own>>,
    /// Guards the list of strays, oldest first; never held across an await. A stray is a backend of
    /// ours whose connection has ended on this side. Behind a broken link the engine doesn't know
    /// that, and goes on holding its locks.
    strays: Arc<Mutex<VecDeque<BackendKey>>>,
}

/// Backends that are ours.
#[derive(Default)]
struct Own {
    /// Whose connection is open on this side: as many as there are connections. None of them is
    /// ever forgotten: the one that asks a census would find itself in it, at each pass.
    open: Vec<BackendKey>,
    /// Whose connection has ended, oldest first: their server side may linger.
    ended: VecDeque<BackendKey>,
}

impl Own {
    fn has(&self, backend: BackendKey) -> bool {
        self.open.contains(&backend) || self.ended.contains(&backend)
    }

    fn end(&mut self, backend: BackendKey) {
        self.open.retain(|open| *open != backend);
        if self.ended.len() >= limits::OWN_BACKENDS_MAX {
            // A forgotten one that still exists counts as a stranger: a false alarm at worst.
            self.ended.pop_front();
        }
        self.ended.push_back(backend);
    }
}

/// The place of one database's connection.
#[derive(Default)]
struct Slot {
    session: Option<Session>,
    failures: u32,
}

/// An established connection.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) backend: BackendKey,
    /// Turns true when the connection has ended for whatever reason.
    pub(super) ended: watch::Receiver<bool>,
    /// Goes with the connection, as what it names does.
    prepared: Prepared,
}

/// One database's connection for the time of one question. Dropping it gives it back.
pub(super) struct Control {
    engine: EngineName,
    statement_timeout: Duration,
    slot: OwnedMutexGuard<Slot>,
    _permit: OwnedSemaphorePermit,
}

impl Connections {
    pub(super) fn new(settings: Settings) -> Result<Self, TlsError> {
        let connector = if settings.is_unix() { None } else { settings.tls.connector()? };
        Ok(Self {
            settings,
            connector,
            permits: Arc::new(Semaphore::new(limits::CONTROL_CONNECTIONS_MAX)),
            slots: Mutex::default(),
            own: Arc::default(),
            strays: Arc::default(),
        })
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether a backend is, or was, one of ours.
    pub(super) fn is_own(&self, backend: BackendKey) -> bool {
        lock(&self.own).has(backend)
    }

    /// Own backends of which the engine hasn't said yet that they have ended.
    pub(super) fn strays(&self) -> Vec<BackendKey> {
        lock(&self.strays).iter().copied().collect()
    }

    /// The engine has said that this one is gone.
    pub(super) fn stray_gone(&self, backend: BackendKey) {
        lock(&self.strays).retain(|stray| *stray != backend);
    }

    /// A usable connection to a database: the kept one, or a new one.
    pub(super) async fn control(&self, database: &str) -> Result<Control, EngineError> {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| self.unreachable("waiting for a turn", "shutting down".to_owned()))?;
        let slot = self.slot(database);
        let mut slot = slot.lock_owned().await;
        if slot.session.as_ref().is_none_or(|s| s.client.is_closed()) {
            slot.session = None;
            tokio::time::sleep(backoff(slot.failures)).await;
            // Counted before the attempt, so that a caller that goes away in it counts too.
            slot.failures = slot.failures.saturating_add(1);
            slot.session = Some(self.connect(database).await?);
            slot.failures = 0;
        }
        Ok(Control {
            engine: self.settings.name.clone(),
            statement_timeout: self.settings.statement_timeout,
            slot,
            _permit: permit,
        })
    }

    fn slot(&self, database: &str) -> Arc<tokio::sync::Mutex<Slot>> {
        let mut slots = lock(&self.slots);
        if !slots.contains_key(database) && slots.len() >= limits::CONTROL_KEPT_MAX {
            // Idle connections make room; the ones in use stay and are bounded by the permits.
            slots.retain(|_, slot| slot.try_lock().is_err());
        }
        Arc::clone(slots.entry(database.to_owned()).or_default())
    }

    /// Opens a connection, bounded by the connect timeout as a whole.
    ///
    /// Cancel safety: dropping the future closes whatever was opened.
    pub(super) async fn connect(&self, database: &str) -> Result<Session, EngineError> {
        self.connect_by(self.config(database, &options(self.settings.statement_timeout))).await
    }

    /// As [`Connections::connect`], for one act that changes something.
    pub(super) async fn writing(
        &self,
        database: &str,
        statement_timeout: Duration,
    ) -> Result<Session, EngineError> {
        let options =
            format!("{} -c default_transaction_read_only=off", options(statement_timeout));
        self.connect_by(self.config(database, &options)).await
    }

    /// As [`Connections::connect`], for texts of somebody else that only read, and are read by the
    /// rules that they were classified by. Rows that policies would leave out are an error. The
    /// search path is still ours: what names mean to clients is for the texts alone, behind the
    /// look for imported code.
    pub(super) async fn reading(
        &self,
        database: &str,
        statement_timeout: Duration,
    ) -> Result<Session, EngineError> {
        let options = format!(
            "{} -c standard_conforming_strings=on -c row_security=off",
            options(statement_timeout)
        );
        self.connect_by(self.config(database, &options)).await
    }

    async fn connect_by(&self, config: Config) -> Result<Session, EngineError> {
        let bound = self.settings.connect_timeout;
        match tokio::time::timeout(bound, self.open(config)).await {
            Ok(result) => result,
            Err(_) => Err(EngineError::Timeout {
                engine: self.settings.name.clone(),
                what: "connecting",
                after: bound,
            }),
        }
    }

    async fn open(&self, config: Config) -> Result<Session, EngineError> {
        let fail = |e: &tokio_postgres::Error| {
            translate(&self.settings.name, "connecting", self.settings.connect_timeout, e)
        };
        let tls = MakeTls { connector: self.connector.clone() };
        let (client, connection) = config.connect(tls).await.map_err(|e| fail(&e))?;
        let (sender, ended) = watch::channel(false);
        let engine = self.settings.name.clone();
        let (named, name) = tokio::sync::oneshot::channel();
        let (strays, own) = (Arc::clone(&self.strays), Arc::clone(&self.own));
        let _detached = spawn_named("engine-control", async move {
            if let Err(error) = connection.await {
                tracing::info!(%engine, error = %words(&error), "a control connection ended");
            }
            sender.send_replace(true);
            // One that never told its name has no lock and no transaction.
            if let Ok(backend) = name.await {
                lock(&own).end(backend);
                stray(&strays, backend);
            }
        });
        let user = &self.settings.user;
        let as_ourselves = format!("SET SESSION AUTHORIZATION {}; SET ROLE NONE", quoted(user));
        // In one go; the second runs behind the first, and counts only where that one did.
        let (ourselves, settled) = tokio::join!(
            biased;
            client.batch_execute(&as_ourselves),
            client.query_typed_one(SETTLE, &[]),
        );
        ourselves.map_err(|e| fail(&e))?;
        let row = settled.map_err(|e| fail(&e))?;
        let read = || -> Result<BackendKey, tokio_postgres::Error> {
            Ok(BackendKey { pid: row.try_get(0)?, backend_start: EngineTime(row.try_get(1)?) })
        };
        let backend = read().map_err(|e| fail(&e))?;
        lock(&self.own).open.push(backend);
        // Nobody listens when the connection has ended meanwhile, without holding anything.
        let _unheard = named.send(backend);
        Ok(Session { client, backend, ended, prepared: Prepared::new() })
    }

    fn config(&self, database: &str, options: &str) -> Config {
        let settings = &self.settings;
        let mut config = Config::new();
        config
            .host(&settings.host)
            .port(settings.port)
            .user(&settings.user)
            .dbname(database)
            .application_name(format!("fencewire/{}", settings.instance))
            .options(options)
            .ssl_mode(match (&self.connector, settings.tls.mode) {
                (None, _) | (_, TlsMode::Disable) => SslMode::Disable,
                (Some(_), TlsMode::Prefer) => SslMode::Prefer,
                (Some(_), TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull) => {
                    SslMode::Require
                }
            })
            .connect_timeout(settings.connect_timeout)
            // A partition must end a lock holder's connection within seconds, not hours.
            .keepalives_idle(Duration::from_secs(limits::CONTROL_KEEPALIVE_IDLE_S.into()))
            .keepalives_interval(Duration::from_secs(limits::CONTROL_KEEPALIVE_PAUSE_S.into()))
            .keepalives_retries(limits::CONTROL_KEEPALIVES)
            .tcp_user_timeout(Duration::from_secs(15));
        if let Some(password) = &settings.password {
            config.password(password.expose());
        }
        config
    }

    fn unreachable(&self, what: &'static str, words: String) -> EngineError {
        EngineError::Unreachable { engine: self.settings.name.clone(), what, words }
    }
}

/// What every control connection is set to, whatever the role's and database's defaults are:
/// nothing on the search path that a user can write to, read committed, read only (the marker
/// message passes all the same), durable commits, no parallel plans or just-in-time compilation
/// for tiny queries. Who it runs as isn't among these: a default of the database's may name another
/// role, and the first statement takes that back. The engine asks after us as often as we after it:
/// behind a partition, or when this machine has gone away, it must not keep our locks for the hours
/// of the system's default.
fn options(statement_timeout: Duration) -> String {
    let statement_ms = statement_timeout.as_millis().max(1);
    format!(
        "-c search_path=pg_catalog,pg_temp -c statement_timeout={statement_ms} \
         -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 \
         -c default_transaction_isolation=read\\ committed -c default_transaction_read_only=on \
         -c default_transaction_deferrable=off -c synchronous_commit=on -c jit=off \
         -c max_parallel_workers_per_gather=0 -c tcp_keepalives_idle={idle} \
         -c tcp_keepalives_interval={pause} -c tcp_keepalives_count={count}",
        idle = limits::CONTROL_KEEPALIVE_IDLE_S,
        pause = limits::CONTROL_KEEPALIVE_PAUSE_S,
        count = limits::CONTROL_KEEPALIVES,
    )
}

/// A name as SQL writes it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Switches off the idle limits that only some versions have, and tells who we are. By functions:
/// a new backend knows no view yet, and the system's two for this cost it some 3 ms to plan.
const SETTLE: &str = concat!(
    "SELECT a.pid, ",
    micros!("a.backend_start"),
    ", CASE WHEN current_setting('idle_session_timeout', true) IS NOT NULL ",
    "THEN set_config('idle_session_timeout', '0', false) END",
    ", CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL ",
    "THEN set_config('transaction_timeout', '0', false) END ",
    "FROM pg_stat_get_activity(pg_backend_pid()) a",
);

/// How long an engine's answer is waited for: its own timeout should end the statement first.
pub(super) const fn answer_bound(statement_timeout: Duration) -> Duration {
    statement_timeout.saturating_add(Duration::from_millis(limits::CONTROL_ANSWER_GRACE_MS))
}

/// The delay before an attempt that follows so many failed ones: none, then doubling, bounded.
fn backoff(failures: u32) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    let doubled = limits::CONTROL_BACKOFF_FIRST_MS.saturating_mul(1 << (failures - 1).min(10));
    Duration::from_millis(doubled.min(limits::CONTROL_BACKOFF_MAX_MS))
}

impl Control {
    /// Runs one query and returns its rows.
    pub(super) async fn rows(
        &mut self,
        what: &'static str,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, EngineError> {
        let [rows] = self.pipelined(what, [(sql, params)]).await?;
        Ok(rows)
    }

    /// Sends all questions in one go; the engine runs them in their order, each in a transaction of
    /// its own. One that fails stops none of the others, and is the error of all: the first's.
    pub(super) async fn pipelined<const N: usize>(
        &mut self,
        what: &'static str,
        questions: [Question<'_>; N],
    ) -> Result<[Vec<Row>; N], EngineError> {
        let Some(session) = &mut self.slot.session else {
            return Err(EngineError::Unreachable {
                engine: self.engine.clone(),
                what,
                words: "an earlier statement of this question broke the connection".to_owned(),
            });
        };
        let new = unprepared(&session.prepared, &questions);
        let bound = answer_bound(self.statement_timeout);
        let came = Answers::new();
        let asked = in_order(ask(session, &questions), &came);
        // Behind the questions; none of them is changed by how these end.
        let preparing = in_order(prepare(&session.client, &new), &came);
        let both = async { tokio::join!(biased; asked, preparing) };
        let answered = match came.wait(bound, both).await {
            Ok((answers, statements)) => {
                let done = new.iter().zip(statements);
                let done = done.filter_map(|((sql, _), made)| Some((*sql, made.ok()?)));
                session.prepared.extend(done);
                Ok(answers.into_iter().collect::<Result<Vec<_>, _>>())
            }
            Err(mute) => Err(mute),
        };
        match answered {
            Ok(Ok(answers)) => answers.try_into().map_err(|_| EngineError::Unexpected {
                engine: self.engine.clone(),
                what,
                words: "a question was not answered".to_owned(),
            }),
            Ok(Err(error)) => {
                let error = translate(&self.engine, what, self.statement_timeout, &error);
                if matches!(error, EngineError::Unreachable { .. }) {
                    self.slot.session = None;
                } else if let Some(session) = &mut self.slot.session {
                    session.prepared.clear();
                }
                Err(error)
            }
            Err(_) => {
                // The engine has not even kept its own timeout: this connection is of no use.
                self.slot.session = None;
                Err(EngineError::Timeout { engine: self.engine.clone(), what, after: bound })
            }
        }
    }

    /// Runs one query that must return exactly one row.
    pub(super) async fn row(
        &mut self,
        what: &'static str,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<Row, EngineError> {
        let rows = self.rows(what, sql, params).await?;
        self.single(what, rows)
    }

    /// The row of a query that must return exactly one.
    pub(super) fn single(
        &self,
        what: &'static str,
        mut rows: Vec<Row>,
    ) -> Result<Row, EngineError> {
        match (rows.pop(), rows.len()) {
            (Some(row), 0) => Ok(row),
            (_, rest) => Err(EngineError::Unexpected {
                engine: self.engine.clone(),
                what,
                words: format!("one row was wanted; {rest} more came, or none"),
            }),
        }
    }

    /// A value of the wrong type or a NULL where none may be.
    pub(super) fn odd(&self, what: &'static str, error: &tokio_postgres::Error) -> EngineError {
        EngineError::Unexpected { engine: self.engine.clone(), what, words: words(error) }
    }
}

/// The texts among these that a connection hasn't prepared, each once, as far as there is room.
fn unprepared<'q>(prepared: &Prepared, questions: &[Question<'q>]) -> Vec<Question<'q>> {
    let mut new: Vec<Question<'q>> = Vec::new();
    for (sql, params) in questions {
        let known = prepared.contains_key(sql) || new.iter().any(|(listed, _)| listed == sql);
        if !known && prepared.len() + new.len() < limits::CONTROL_PREPARED_MAX {
            new.push((*sql, *params));
        }
    }
    new
}

/// The questions, each as prepared where it is. Nothing is sent before they are polled.
fn ask<'s>(
    session: &'s Session,
    questions: &'s [Question<'s>],
) -> Vec<impl Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + 's> {
    let client = &session.client;
    let one = |(sql, params): &'s Question<'s>| {
        let statement = session.prepared.get(sql);
        async move {
            let Some(statement) = statement else {
                return client.query_typed(sql, params).await;
            };
            let values: Vec<&(dyn ToSql + Sync)> = params.iter().map(|(value, _)| *value).collect();
            client.query(statement, &values).await
        }
    };
    questions.iter().map(one).collect()
}

/// Has the engine parse texts without running them. Nothing is sent before they are polled.
fn prepare<'s>(
    client: &'s Client,
    new: &'s [Question<'s>],
) -> Vec<impl Future<Output = Result<Statement, tokio_postgres::Error>> + 's> {
    let one = |(sql, params): &'s Question<'s>| async move {
        let types: Vec<Type> = params.iter().map(|(_, type_)| type_.clone()).collect();
        client.prepare_typed(sql, &types).await
    };
    new.iter().map(one).collect()
}

/// Waits for all of these. What is sent on one connection is sent when its future is first polled,
/// so the first round of polling sends it in this order. Each answer is noted as it comes.
async fn in_order<F: Future>(asked: Vec<F>, came: &Answers) -> Vec<F::Output> {
    let mut asked: Vec<_> = asked.into_iter().map(Box::pin).collect();
    let mut answers: Vec<Option<F::Output>> = asked.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut waiting = false;
        for (ask, answer) in asked.iter_mut().zip(&mut answers) {
            if answer.is_some() {
                continue;
            }
            match ask.as_mut().poll(context) {
                Poll::Ready(done) => {
                    came.came();
                    *answer = Some(done);
                }
                Poll::Pending => waiting = true,
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    answers.into_iter().flatten().collect()
}

/// Sorts a driver's error into our families.
pub(super) fn translate(
    engine: &EngineName,
    what: &'static str,
    bound: Duration,
    error: &tokio_postgres::Error,
) -> EngineError {
    let engine = engine.clone();
    let words = words(error);
    let Some(code) = error.code() else {
        return EngineError::Unreachable { engine, what, words };
    };
    let class = code.code().get(..2).unwrap_or_default();
    if *code == SqlState::QUERY_CANCELED {
        EngineError::Timeout { engine, what, after: bound }
    } else if matches!(class, "08" | "53") || code.code().starts_with("57P") {
        EngineError::Unreachable { engine, what, words }
    } else if class == "28" {
        let hint = "check user, password and pg_hba.conf for the control role".to_owned();
        EngineError::Denied { engine, what, words, hint }
    } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        let hint = "grant the control role what it names".to_owned();
        EngineError::Denied { engine, what, words, hint }
    } else {
        EngineError::Unexpected { engine, what, words }
    }
}

/// The engine's own words with its code, or the whole chain of causes.
pub(super) fn words(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        return format!("{}: {} ({})", db.severity(), db.message(), db.code().code());
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

fn stray(strays: &Mutex<VecDeque<BackendKey>>, backend: BackendKey) {
    let mut strays = lock(strays);
    if strays.len() >= limits::STRAYS_MAX {
        strays.pop_front();
    }
    strays.push_back(backend);
}

/// A poisoned lock here guards a plain list or map that is whole after every step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the driver our TLS.
#[derive(Clone)]
struct MakeTls {
    connector: Option<ClientConnector>,
}

struct ConnectTls {
    connector: Option<ClientConnector>,
    host: String,
}

impl<S> MakeTlsConnect<S> for MakeTls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type TlsConnect = ConnectTls;
    type Error = TlsError;

    fn make_tls_connect(&mut self, host: &str) -> Result<ConnectTls, TlsError> {
        Ok(ConnectTls { connector: self.connector.clone(), host: host.to_owned() })
    }
}

impl<S> TlsConnect<S> for ConnectTls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type Error = TlsError;
    type Future = Pin<Box<dyn Future<Output = Result<Encrypted<S>, TlsError>> + Send>>;

    fn connect(self, transport: S) -> Self::Future {
        Box::pin(async move {
            match self.connector {
                Some(connector) => connector.handshake(transport, &self.host).await,
                None => Err(TlsError::Config("TLS is switched off for this engine".to_owned())),
            }
        })
    }
}

impl<S> TlsStream for Encrypted<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    fn channel_binding(&self) -> ChannelBinding {
        self.tls_server_end_point()
            .map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_and_is_bounded() {
        assert_eq!(backoff(0), Duration::ZERO);
        assert_eq!(backoff(1), Duration::from_millis(50));
        assert_eq!(backoff(3), Duration::from_millis(200));
        assert_eq!(backoff(u32::MAX), Duration::from_millis(limits::CONTROL_BACKOFF_MAX_MS));
    }

    #[test]
    fn a_statement_timeout_of_zero_is_not_infinite() {
        assert!(options(Duration::ZERO).contains("statement_timeout=1 "));
    }
}
