//! Making, keeping and using control connections to MySQL and MariaDB.
//!
//! Purpose: a few connections kept for the next question, made on demand, remade with a bounded
//! delay after failures; dedicated ones for lock holders. Every thread of ours is remembered by
//! its id, so that the census can leave it out and nobody else.
//!
//! A connection is taken out of its place while a statement runs and put back after a whole
//! answer. A caller that goes away in between loses it, so that no half-read answer is ever met
//! by the next question.
//!
//! A connection keeps the rights it began with. So a statement that a kept one was denied is run
//! once more on a new one, and what is kept is thrown away: what was granted since counts.
//!
//! Called by the other files of this folder. It runs no statement of its own beyond settling a new
//! connection, and repeats a caller's statement only where the server refused to begin it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, DriverError, OptsBuilder, Row, SslOpts};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::holder::Holder;
use super::login::LOGIN_TEXT;
use super::value::{bytes, number, text};
use super::{NOW, UPTIME, same_run, server_start};
use crate::base::arm::{Removable, removed};
use crate::base::ids::{EngineName, Namespace};
use crate::base::limits;
use crate::engine::Settings;
use crate::engine::error::EngineError;
use crate::engine::identity::EngineTime;
use crate::tls::{TlsError, TlsMode};

/// Which of the two families a server is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavour {
    MySql,
    MariaDb,
}

/// All control connections to one engine.
pub(super) struct Connections {
    settings: Settings,
    /// Bounds the questions in flight.
    permits: Arc<Semaphore>,
    /// Idle connections; never held across an await.
    idle: Mutex<Vec<Session>>,
    /// Threads of ours with the start of the server's run, oldest first; never held across an
    /// await. Ids begin anew with each run.
    own: Mutex<VecDeque<(u32, EngineTime)>>,
    /// What of the newest run was there before us; never held across an await.
    elders: Mutex<Option<Elders>>,
    /// Those of them that may have a lock behind a connection that is gone on this side, oldest
    /// first; never held across an await. The engine's word takes them out.
    strays: Mutex<VecDeque<(u32, EngineTime)>>,
    /// Who holds the engine lock of which namespace; never held across an await.
    holders: Mutex<HashMap<Namespace, Holder>>,
    /// Attempts that failed since the last one that didn't.
    failures: AtomicU32,
    /// When this process last looked at the engine's cache of transactions; held while looking.
    last_look: tokio::sync::Mutex<Option<tokio::time::Instant>>,
    /// What the server runs at a login, as it last said; never held across an await.
    login_text: Mutex<Option<Vec<u8>>>,
}

/// Threads of one run of the server that were there before us. Ids only grow within a run.
struct Elders {
    run: EngineTime,
    /// Our first connection to it.
    first: u32,
    /// Those that were busy at each look; none was taken where it is `None`. Bounded by the
    /// server's threads.
    unended: Option<HashSet<u32>>,
}

impl Elders {
    fn still(&mut self, mut busy: HashSet<u32>) -> HashSet<u32> {
        let Self { first, unended, .. } = self;
        match unended {
            Some(unended) => busy.retain(|thread| unended.contains(thread)),
            None => busy.retain(|thread| thread < first),
        }
        self.unended = Some(busy.clone());
        busy
    }
}

/// An established connection.
pub(super) struct Session {
    pub(super) conn: Conn,
    pub(super) thread: u32,
    pub(super) flavour: Flavour,
    /// Such as 101119.
    pub(super) version: i32,
    /// Start of the server's run.
    pub(super) run: EngineTime,
}

/// A connection for the time of one question. Dropping it gives it back.
pub(super) struct Control {
    connections: Arc<Connections>,
    session: Option<Session>,
    flavour: Flavour,
    version: i32,
    /// It was there before this question, and has the rights of then.
    kept: bool,
    _permit: OwnedSemaphorePermit,
}

impl Connections {
    /// Checks what the driver would only find out while connecting.
    pub(super) fn new(settings: Settings) -> Result<Self, TlsError> {
        if !settings.is_unix() {
            // The driver reads the file again for itself; a bad one is an error now, not at 3 a.m.
            drop(settings.tls.connector()?);
        }
        Ok(Self {
            settings,
            permits: Arc::new(Semaphore::new(limits::CONTROL_CONNECTIONS_MAX)),
            idle: Mutex::default(),
            own: Mutex::default(),
            elders: Mutex::default(),
            strays: Mutex::default(),
            holders: Mutex::default(),
            failures: AtomicU32::new(0),
            last_look: tokio::sync::Mutex::default(),
            login_text: Mutex::default(),
        })
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether a thread is, or was, one of ours.
    pub(super) fn is_own(&self, thread: u32, run: EngineTime) -> bool {
        lock(&self.own).iter().any(|(own, start)| *own == thread && same_run(*start, run))
    }

    /// Which of these busy threads have been busy whenever it was looked, and were there before
    /// this process's first connection to the run: what they run, an earlier process may
    /// have admitted.
    pub(super) fn elders(&self, run: EngineTime, busy: HashSet<u32>) -> HashSet<u32> {
        match &mut *lock(&self.elders) {
            Some(elders) if same_run(elders.run, run) => elders.still(busy),
            // Nothing is known of what was there before.
            Some(_) | None => busy,
        }
    }

    /// A thread of ours that had or was taking a lock has lost its connection on this side without
    /// the engine's word that the lock is gone: behind a broken link it may outlive the fence.
    pub(super) fn stray(&self, thread: u32, run: EngineTime) {
        let mut strays = lock(&self.strays);
        if strays.len() >= limits::STRAYS_MAX {
            strays.pop_front();
        }
        strays.push_back((thread, run));
    }

    /// Threads of ours of which the engine hasn't said yet that they have no lock any more.
    pub(super) fn strays(&self) -> Vec<(u32, EngineTime)> {
        lock(&self.strays).iter().copied().collect()
    }

    /// The engine has said that this one is gone, or will end it.
    pub(super) fn stray_gone(&self, stray: (u32, EngineTime)) {
        lock(&self.strays).retain(|known| *known != stray);
    }

    pub(super) fn holders(&self) -> MutexGuard<'_, HashMap<Namespace, Holder>> {
        lock(&self.holders)
    }

    pub(super) fn login_text(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        lock(&self.login_text)
    }

    /// A usable connection: a kept one that answers, or a new one.
    pub(super) async fn control(self: &Arc<Self>) -> Result<Control, EngineError> {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| self.unreachable("waiting for a turn", "shutting down".to_owned()))?;
        let found = self.kept().await;
        let kept = found.is_some();
        let session = match found {
            Some(session) => session,
            None => self.fresh().await?,
        };
        Ok(Control {
            connections: Arc::clone(self),
            flavour: session.flavour,
            version: session.version,
            session: Some(session),
            kept,
            _permit: permit,
        })
    }

    /// A kept connection that still answers; the others are thrown away.
    async fn kept(&self) -> Option<Session> {
        loop {
            let mut session = lock(&self.idle).pop()?;
            let bound = Duration::from_millis(limits::CONTROL_ANSWER_GRACE_MS);
            if let Ok(Ok(())) = tokio::time::timeout(bound, session.conn.ping()).await {
                return Some(session);
            }
        }
    }

    async fn fresh(&self) -> Result<Session, EngineError> {
        tokio::time::sleep(backoff(self.failures.load(Ordering::Relaxed))).await;
        // Counted before the attempt, so that a caller that goes away in it counts too.
        let failed = self.failures.load(Ordering::Relaxed).saturating_add(1);
        self.failures.store(failed, Ordering::Relaxed);
        let session = self.connect().await?;
        self.failures.store(0, Ordering::Relaxed);
        Ok(session)
    }

    fn keep(&self, session: Session) {
        let mut idle = lock(&self.idle);
        if idle.len() < limits::CONTROL_CONNECTIONS_MAX {
            idle.push(session);
        }
    }

    /// Opens a connection, bounded by the connect timeout as a whole.
    ///
    /// Cancel safety: dropping the future closes whatever was opened.
    pub(super) async fn connect(&self) -> Result<Session, EngineError> {
        self.connect_by(None).await
    }

    /// As [`Connections::connect`], for texts of somebody else that only read: a row that is larger
    /// than the answer may be breaks the connection in front of its bytes.
    pub(super) async fn reading(&self) -> Result<Session, EngineError> {
        self.connect_by(Some(limits::VALIDATION_BYTES_MAX)).await
    }

    async fn connect_by(&self, packet_bytes: Option<usize>) -> Result<Session, EngineError> {
        let after = self.settings.connect_timeout;
        let engine = self.settings.name.clone();
        match tokio::time::timeout(after, self.open(packet_bytes)).await {
            Ok(result) => result,
            Err(_) => Err(EngineError::Timeout { engine, what: "connecting", after }),
        }
    }

    async fn open(&self, packet_bytes: Option<usize>) -> Result<Session, EngineError> {
        let fail = |e: &mysql_async::Error| translate(&self.settings, "connecting", e);
        let secured = self.ssl();
        let options = |ssl| self.options(ssl).max_allowed_packet(packet_bytes);
        let first = Conn::new(options(secured.clone())).await;
        let plain = secured.is_some() && self.settings.tls.mode == TlsMode::Prefer;
        let mut conn = match first {
            Err(mysql_async::Error::Driver(DriverError::NoClientSslFlagFromServer)) if plain => {
                Conn::new(options(None)).await.map_err(|e| fail(&e))?
            }
            other => other.map_err(|e| fail(&e))?,
        };
        let thread = conn.id();
        let version: Option<String> =
            conn.query_first("SELECT VERSION()").await.map_err(|e| fail(&e))?;
        let version = version.unwrap_or_default();
        let flavour = if version.contains("MariaDB") { Flavour::MariaDb } else { Flavour::MySql };
        conn.query_drop(self.settle(flavour)).await.map_err(|e| fail(&e))?;
        // What is run at logins, as known when it can't be asked for (`login.rs`).
        let text: Option<Row> = conn.query_first(LOGIN_TEXT).await.map_err(|e| fail(&e))?;
        *lock(&self.login_text) = text.map(|row| bytes(&row, 0));
        let uptime: Option<Row> = conn.query_first(UPTIME).await.map_err(|e| fail(&e))?;
        let now: Option<Row> = conn.query_first(NOW).await.map_err(|e| fail(&e))?;
        let read = || Some(server_start(number(now.as_ref()?, 0)?, number(uptime.as_ref()?, 1)?));
        let Some(run) = read() else {
            let words = "the server tells neither its uptime nor its clock".to_owned();
            return Err(self.unreachable("connecting", words));
        };
        self.remember(thread, run);
        Ok(Session { conn, thread, flavour, version: version_number(&version), run })
    }

    fn remember(&self, thread: u32, run: EngineTime) {
        let mut own = lock(&self.own);
        if own.len() >= limits::OWN_BACKENDS_MAX {
            // A forgotten one that still exists counts as a stranger: a false alarm at worst.
            own.pop_front();
        }
        own.push_back((thread, run));
        drop(own);
        let mut elders = lock(&self.elders);
        if !elders.as_ref().is_some_and(|elders| same_run(elders.run, run)) {
            *elders = Some(Elders { run, first: thread, unended: None });
        }
    }

    fn options(&self, ssl: Option<SslOpts>) -> OptsBuilder {
        let settings = &self.settings;
        let name = format!("fencewire/{}", settings.instance);
        let options = OptsBuilder::default()
            .user(Some(&settings.user))
            .pass(settings.password.as_ref().map(|password| password.expose().to_owned()))
            .connect_attributes(HashMap::from([("program_name".to_owned(), name)]))
            // A partition must end a lock holder's connection within seconds, not hours.
            .tcp_keepalive(Some(Duration::from_secs(5)))
            .prefer_socket(false)
            .ssl_opts(ssl);
        if settings.is_unix() {
            options.socket(Some(&settings.host))
        } else {
            options.ip_or_hostname(&settings.host).tcp_port(settings.port)
        }
    }

    /// The driver's words for the settings' TLS mode; `None` without TLS.
    fn ssl(&self) -> Option<SslOpts> {
        let tls = &self.settings.tls;
        if self.settings.is_unix() {
            return None;
        }
        let with_roots = |options: SslOpts| match &tls.ca_file {
            None => options,
            Some(path) => {
                options.with_root_certs(vec![path.clone().into()]).with_disable_built_in_roots(true)
            }
        };
        match (tls.mode, tls.ca_file.is_some()) {
            (TlsMode::Disable, _) => None,
            (TlsMode::Prefer | TlsMode::Require, false) => {
                Some(SslOpts::default().with_danger_accept_invalid_certs(true))
            }
            (TlsMode::Prefer | TlsMode::Require, true) | (TlsMode::VerifyCa, _) => {
                Some(with_roots(SslOpts::default()).with_danger_skip_domain_validation(true))
            }
            (TlsMode::VerifyFull, _) => Some(with_roots(SslOpts::default())),
        }
    }

    /// What every control connection is set to, whatever the server's defaults are: autocommit,
    /// read only (table read locks pass all the same), no idle limit, short waits for table locks,
    /// and texts and times that don't depend on the server's modes and zone.
    fn settle(&self, flavour: Flavour) -> String {
        let timeout = self.settings.statement_timeout;
        let own = match flavour {
            Flavour::MySql => format!(
                "transaction_read_only = 1, SESSION max_execution_time = {}",
                timeout.as_millis().max(1)
            ),
            Flavour::MariaDb => format!(
                "tx_read_only = 1, SESSION max_statement_time = {:.3}",
                timeout.as_secs_f64().max(0.001)
            ),
        };
        format!(
            "SET SESSION autocommit = 1, SESSION sql_mode = '', SESSION time_zone = 'SYSTEM', \
             SESSION wait_timeout = 2147483, SESSION lock_wait_timeout = 1, SESSION {own}"
        )
    }

    pub(super) fn unreachable(&self, what: &'static str, words: String) -> EngineError {
        EngineError::Unreachable { engine: self.settings.name.clone(), what, words }
    }

    /// Waits until the engine's cache of transactions may be read again: who reads it more often
    /// than it is refreshed keeps it from being refreshed. Hold the answer while reading.
    pub(super) async fn turn_to_look(
        &self,
    ) -> tokio::sync::MutexGuard<'_, Option<tokio::time::Instant>> {
        let mut last = self.last_look.lock().await;
        let pause = Duration::from_millis(limits::INNODB_TRX_PAUSE_MS);
        if let Some(last) = *last {
            tokio::time::sleep_until(last + pause).await;
        }
        *last = Some(tokio::time::Instant::now());
        last
    }

    /// Asks for the end of one thread, whatever it does; used for our own that wait for locks. One
    /// that can't be ended now, behind a broken link, stays a stray.
    pub(super) async fn kill_own(self: &Arc<Self>, (thread, run): (u32, EngineTime)) {
        let killed =
            async { self.control().await?.run("ending a lock attempt", &kill(thread)).await };
        match killed.await {
            Ok(()) => self.stray_gone((thread, run)),
            Err(error) => {
                tracing::debug!(engine = %self.settings.name, thread, %error, "not killed");
            }
        }
    }
}

/// The statement that ends a thread's connection.
pub(super) fn kill(thread: u32) -> String {
    format!("KILL CONNECTION {thread}")
}

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

/// `10.11.19-MariaDB-log` as 101119, `9.7.4-2` as 90704; 0 for what can't be read.
fn version_number(version: &str) -> i32 {
    let digits = |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>();
    let mut parts = version.split('.').map(|part| digits(part).parse::<i32>().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0).clamp(0, 99);
    next() * 10_000 + next() * 100 + next()
}

impl Control {
    pub(super) fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// Such as 101119.
    pub(super) fn version(&self) -> i32 {
        self.version
    }

    /// Our own thread id; 0 after the connection broke.
    pub(super) fn thread(&self) -> u32 {
        self.session.as_ref().map_or(0, |session| session.thread)
    }

    /// Runs one statement and returns its rows.
    pub(super) async fn rows(
        &mut self,
        what: &'static str,
        sql: &str,
    ) -> Result<Vec<Row>, EngineError> {
        loop {
            let settings = &self.connections.settings;
            let Some(mut session) = self.session.take() else {
                let words = "an earlier statement of this question broke the connection".to_owned();
                return Err(self.connections.unreachable(what, words));
            };
            match ask(settings, what, session.conn.query::<Row, _>(sql)).await {
                Ok(rows) => {
                    self.session = Some(session);
                    return Ok(rows);
                }
                Err(Failure::Answered(error)) => {
                    self.session = Some(session);
                    let denied = matches!(error, EngineError::Denied { .. });
                    if !(denied && self.renewed().await?) {
                        return Err(error);
                    }
                }
                Err(Failure::Broken(error)) => return Err(error),
            }
        }
    }

    /// Goes on with a new connection, which has the rights that the account has now. Whether it
    /// did: once in a question, and only where this one's connection was there before it.
    pub(super) async fn renewed(&mut self) -> Result<bool, EngineError> {
        if removed(Removable::FreshRights) || !std::mem::take(&mut self.kept) {
            return Ok(false);
        }
        lock(&self.connections.idle).clear();
        self.session = None;
        self.session = Some(self.connections.fresh().await?);
        Ok(true)
    }

    /// Runs one statement whose rows, if any, are of no interest.
    pub(super) async fn run(&mut self, what: &'static str, sql: &str) -> Result<(), EngineError> {
        self.rows(what, sql).await.map(|_rows| ())
    }

    /// Runs one statement that must return exactly one row.
    pub(super) async fn row(&mut self, what: &'static str, sql: &str) -> Result<Row, EngineError> {
        let mut rows = self.rows(what, sql).await?;
        match (rows.pop(), rows.len()) {
            (Some(row), 0) => Ok(row),
            (_, rest) => {
                Err(self.odd(what, format!("one row was wanted; {rest} more came, or none")))
            }
        }
    }

    /// A number that one statement answers with, and nothing else.
    pub(super) async fn figure(
        &mut self,
        what: &'static str,
        sql: &str,
        column: usize,
    ) -> Result<i64, EngineError> {
        let row = self.row(what, sql).await?;
        number(&row, column).ok_or_else(|| {
            let shown = text(&row, column);
            self.odd(what, format!("a number was wanted, not {shown:?}"))
        })
    }

    /// An answer of the wrong shape.
    pub(super) fn odd(&self, what: &'static str, words: String) -> EngineError {
        EngineError::Unexpected { engine: self.connections.settings.name.clone(), what, words }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.connections.keep(session);
        }
    }
}

/// Why a statement failed: the server said so, or its connection is of no more use.
pub(super) enum Failure {
    Answered(EngineError),
    Broken(EngineError),
}

impl From<Failure> for EngineError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Answered(error) | Failure::Broken(error) => error,
        }
    }
}

/// Waits for an answer within the statement timeout and its grace.
pub(super) async fn ask<T>(
    settings: &Settings,
    what: &'static str,
    question: impl Future<Output = mysql_async::Result<T>>,
) -> Result<T, Failure> {
    let after = answer_bound(settings.statement_timeout);
    match tokio::time::timeout(after, question).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            let fatal = error.is_fatal();
            let error = translate(settings, what, &error);
            Err(if fatal { Failure::Broken(error) } else { Failure::Answered(error) })
        }
        Err(_) => {
            let engine: EngineName = settings.name.clone();
            Err(Failure::Broken(EngineError::Timeout { engine, what, after }))
        }
    }
}

/// Sorts a driver's error into our families.
pub(super) fn translate(
    settings: &Settings,
    what: &'static str,
    error: &mysql_async::Error,
) -> EngineError {
    let engine = settings.name.clone();
    let words = words(error);
    match code(error) {
        None => EngineError::Unreachable { engine, what, words },
        // Statement timeouts of either family; killed by somebody for the same reason.
        Some(3024 | 1969 | 1205 | 1317) => {
            EngineError::Timeout { engine, what, after: settings.statement_timeout }
        }
        // Too many connections, shutting down, killed, host blocked.
        Some(1040 | 1053 | 1077 | 1129 | 1203 | 1226 | 1927 | 3168 | 4031) => {
            EngineError::Unreachable { engine, what, words }
        }
        Some(1045 | 1698 | 1130 | 1251 | 1524 | 1862 | 3118 | 3159 | 4151) => {
            let hint = "check user, host, password and REQUIRE of the control account".to_owned();
            EngineError::Denied { engine, what, words, hint }
        }
        Some(1044 | 1142 | 1143 | 1227 | 1370 | 1401 | 1095) => {
            let hint = "grant the control account what it names".to_owned();
            EngineError::Denied { engine, what, words, hint }
        }
        Some(_) => EngineError::Unexpected { engine, what, words },
    }
}

/// The server's error number, when it is a server's error.
pub(super) fn code(error: &mysql_async::Error) -> Option<u16> {
    match error {
        mysql_async::Error::Server(server) => Some(server.code),
        mysql_async::Error::Driver(_)
        | mysql_async::Error::Io(_)
        | mysql_async::Error::Other(_)
        | mysql_async::Error::Url(_) => None,
    }
}

/// The engine's own words with its number, or the chain of causes, each said once: the driver's
/// texts hold their causes already, and its "Input/output error" twice.
pub(super) fn words(error: &mysql_async::Error) -> String {
    if let mysql_async::Error::Server(server) = error {
        return format!("{} ({})", server.message, server.code);
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = inner.source();
    }
    text.trim_start_matches("Input/output error: ").to_owned()
}

/// A poisoned lock here guards a plain list or map that is whole after every step.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_elder_is_one_until_it_was_seen_at_rest() {
        let busy = |ids: &[u32]| ids.iter().copied().collect::<HashSet<u32>>();
        let mut elders = Elders { run: EngineTime(1), first: 10, unended: None };
        assert_eq!(elders.still(busy(&[3, 4, 9, 10, 12])), busy(&[3, 4, 9]));
        assert_eq!(elders.still(busy(&[3, 9, 13])), busy(&[3, 9]), "4 rests, or is gone");
        assert_eq!(elders.still(busy(&[3, 4, 5, 9])), busy(&[3, 9]), "what it runs now is another");
        assert_eq!(elders.still(busy(&[])), busy(&[]));
        assert_eq!(elders.still(busy(&[3])), busy(&[]));
    }

    #[test]
    fn backoff_grows_and_is_bounded() {
        assert_eq!(backoff(0), Duration::ZERO);
        assert_eq!(backoff(1), Duration::from_millis(50));
        assert_eq!(backoff(u32::MAX), Duration::from_millis(limits::CONTROL_BACKOFF_MAX_MS));
    }

    #[test]
    fn a_cause_is_said_once() {
        let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert_eq!(words(&mysql_async::Error::from(refused())), "connection refused");
        let driver = mysql_async::Error::from(DriverError::ConnectionClosed);
        assert_eq!(words(&driver).matches("closed").count(), 1, "{}", words(&driver));
    }

    #[test]
    fn versions_of_both_families_are_read() {
        assert_eq!(version_number("10.11.19-MariaDB-0+deb12u1-log"), 101_119);
        assert_eq!(version_number("9.7.4-2"), 90_704);
        assert_eq!(version_number("8.0.41"), 80_041);
        assert_eq!(version_number("odd"), 0);
    }
}
