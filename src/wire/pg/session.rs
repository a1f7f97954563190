//! One PostgreSQL client connection from its first byte to its end.
//!
//! Purpose: puts the parts in order: first packets, route, engine connection, authentication,
//! seat at the gate, relay. W23, W25, W26. Called by `wire/shared/workers.rs`, one task per
//! connection. What the client is told when it doesn't come to a session is written here.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;

use crate::base::fault;
use crate::base::ids::{EngineName, SessionId};
use crate::base::limits;
use crate::gate::admission::{Refusal, Seat};
use crate::gate::capability::Capability;
use crate::gate::logins::{Login, LoginRefusal};
use crate::gate::registry::Gates;
use crate::gate::slot::Card;
use crate::sql::PgLexing;
use crate::telemetry::spawn::{PanicReport, spawn_session};
use crate::telemetry::worker::WorkerCounters;
use crate::tls::Stream;
use crate::wire::pg::auth::{self, AtEngine, AuthEnd, Welcome};
use crate::wire::pg::auto_prepare::AutoPrepare;
use crate::wire::pg::bearing::Bearing;
use crate::wire::pg::cancel::{CancelKey, Cancels, Registered};
use crate::wire::pg::conversation::{Conversation, Mode};
use crate::wire::pg::endpoint::Endpoint;
use crate::wire::pg::refusal::{self, Severity};
use crate::wire::pg::relay::{End, Relay};
use crate::wire::pg::startup::{self, Startup, StartupError, Wish};
use crate::wire::shared::accepted::{Accepted, ClientSideTls};
use crate::wire::shared::capability;
use crate::wire::shared::denials::{Denials, Surface};
use crate::wire::shared::desk;
use crate::wire::shared::directory::{Directory, Target};
use crate::wire::shared::patience::{TooLate, within};
use crate::wire::shared::sessions::{Counted, Sessions};

/// One listener's settings.
#[derive(Debug)]
pub struct Settings {
    /// Engine for databases without a route of their own.
    pub default_engine: EngineName,
    /// TLS towards clients.
    pub tls: ClientSideTls,
    /// Whether unnamed statements that come again are kept at the engine.
    pub auto_prepare: bool,
}

/// What all sessions share.
#[derive(Debug)]
pub struct Shared {
    /// The gates.
    pub gates: Arc<Gates>,
    /// Names to namespaces.
    pub directory: Arc<dyn Directory<Endpoint>>,
    /// Codes and counts of denials.
    pub denials: Arc<Denials>,
    /// Cancel keys.
    pub cancels: Arc<Cancels>,
    /// Numbers and counts of sessions, all protocols' together.
    pub sessions: Arc<Sessions>,
}

/// A connection as it was accepted.
struct Arrival {
    accepted: Accepted,
    /// Its address for people.
    client: String,
    settings: Arc<Settings>,
}

/// Serves one connection to its end. `client` is its address for people.
///
/// The future is as large as a session that idles: what only a login needs is in a box of its own,
/// which goes with it; so are the arguments, whose room a future keeps for life.
///
/// # Cancel safety
/// Dropping the future abandons the session: see `relay.rs`.
pub(crate) fn serve(
    accepted: Accepted,
    client: String,
    settings: Arc<Settings>,
    shared: Arc<Shared>,
    counters: Arc<WorkerCounters>,
) -> impl Future<Output = ()> + Send + 'static {
    let arrival = Box::new(Arrival { accepted, client, settings });
    async move {
        let _report = PanicReport::of("session");
        let Some(session) = Box::pin(enter(arrival, &shared, &counters)).await else { return };
        let Session { id, relay, registered, place, counted } = session;
        if relay.run().await == End::Fault {
            tracing::warn!(session = %id, "session ended by a fault");
        }
        drop((registered, place));
        counters.session_closed();
        drop(counted);
    }
}

/// What a session is while it lasts.
struct Session<'a> {
    id: SessionId,
    relay: Box<Relay>,
    registered: Registered,
    place: Counted<'a>,
    counted: Counted<'a>,
}

/// The login, to the session behind it; `None` where there is none.
///
/// # Cancel safety
/// As for [`prepare`].
async fn enter<'a>(
    arrival: Box<Arrival>,
    shared: &'a Arc<Shared>,
    counters: &Arc<WorkerCounters>,
) -> Option<Session<'a>> {
    let Arrival { accepted, client, settings } = *arrival;
    counters.connection_accepted();
    let bound = Duration::from_millis(limits::STARTUP_TIMEOUT_MS);
    let mut at_engine = None;
    let login = prepare(accepted, &client, (&settings, shared), &mut at_engine);
    let prepared = within(bound, login).await;
    if let Some(left) = at_engine {
        left.see_out().await;
    }
    match prepared {
        Ok(Ok(Some(ready))) => Some(begin(ready, settings.auto_prepare, shared, counters)),
        Ok(Ok(None)) => None,
        Ok(Err(reason)) => {
            counters.connection_refused();
            tracing::debug!(%client, %reason, "no session");
            None
        }
        Err(TooLate) => {
            counters.connection_refused();
            tracing::debug!(%client, "no session: it took too long to log in");
            None
        }
    }
}

/// Two peers that know each other, and the place they take.
struct Ready<'a> {
    place: Counted<'a>,
    client: Stream,
    engine: Stream,
    startup: Startup,
    target: Target<Endpoint>,
    welcome: Welcome,
    came_by: CameBy,
    /// What the startup packet showed.
    capability: Option<Capability>,
    /// What the gates had counted before the login went to the engine.
    looks: u64,
    id: SessionId,
    card: Arc<Card>,
}

impl<'a> Ready<'a> {
    fn of(
        (place, client, engine): (Counted<'a>, Stream, Stream),
        told: (Startup, Target<Endpoint>, CameBy, Option<Capability>),
        (welcome, looks): (Welcome, u64),
        (id, card): (SessionId, Arc<Card>),
    ) -> Self {
        let (startup, target, came_by, capability) = told;
        Self {
            place,
            client,
            engine,
            startup,
            target,
            welcome,
            came_by,
            capability,
            looks,
            id,
            card,
        }
    }
}

/// Everything up to the engine's first ReadyForQuery. `None` when there is nothing more to do.
///
/// # Cancel safety
/// Dropping the future closes the client's connection; what is left of a login at the engine is in
/// `at_engine`, for [`AtEngine::see_out`]. What the client asked for
/// (a CancelRequest) may or may not have been delivered.
async fn prepare<'a>(
    accepted: Accepted,
    address: &str,
    (settings, shared): (&Settings, &'a Shared),
    at_engine: &mut Option<AtEngine<'a>>,
) -> Result<Option<Ready<'a>>, String> {
    let Some((mut client, startup)) = meet(accepted, settings, shared).await? else {
        return Ok(None);
    };
    if !shared.directory.is_open() {
        farewell(client, "57P03", "the proxy is stopping", "Reconnect.").await;
        return Err("the proxy is stopping".to_owned());
    }
    // Before the engine is connected to: a login that never ends holds a connection there.
    let Some(place) = shared.sessions.place() else {
        let message = "too many sessions: the proxy's max_sessions is reached";
        farewell(client, "53300", message, "Retry later.").await;
        return Err(message.to_owned());
    };
    let (target, came_by) = match resolve(&startup, settings, shared) {
        Ok(target) => target,
        Err(reason) => {
            let hint = "Routes and engines are in the proxy's configuration.";
            farewell(client, "3D000", &reason, hint).await;
            return Err(reason);
        }
    };
    let capability = match shown(&startup, &target, shared) {
        Ok(capability) => capability,
        Err(refusal) => {
            refuse(client, &refusal, &shared.denials).await;
            return Err("it showed no live capability of this database".to_owned());
        }
    };
    let id = shared.sessions.number();
    let card = Arc::new(card(&startup, address, came_by.clone()));
    let (gates, namespace) = (Arc::clone(&shared.gates), target.namespace.clone());
    let mut login = Login::new(gates, namespace, capability.clone(), (id, Arc::clone(&card)));
    login.began(desk::lend(|desk| desk.now_ms()).unwrap_or_default());
    if mode(&startup) == Mode::PhysicalReplication {
        login.runs_nothing();
    }
    // Refused before the engine is bothered. From here to there the login is nobody's to work on.
    if let Err(refused) = login.hands_over().await {
        return Err(turn_away(client, &refused, &shared.denials).await);
    }
    login.returned();
    let stream = match target.endpoint.connect().await {
        Ok(stream) => stream,
        Err(error) => {
            let reason = error.to_string();
            farewell(client, "08001", &reason, "Look whether the engine is up.").await;
            return Err(reason);
        }
    };
    let at = at_engine.insert(AtEngine { stream, inbox: BytesMut::new(), login, place });
    let (packet, looks) = (startup.packet(target.namespace.database()), shared.gates.looks());
    match log_in(&mut client, at, &packet).await {
        Ok(welcome) => {
            let Some(AtEngine { stream: engine, place, .. }) = at_engine.take() else {
                return Err("the login's connection is gone".to_owned());
            };
            let told = (startup, target, came_by, capability);
            Ok(Some(Ready::of((place, client, engine), told, (welcome, looks), (id, card))))
        }
        Err(end @ AuthEnd::EngineGone) => {
            let reason = format!("engine {}: {end}", target.endpoint.name());
            farewell(client, "08006", &reason, "Look at the engine's log.").await;
            Err(reason)
        }
        Err(AuthEnd::Fenced(refused)) => Err(turn_away(client, &refused, &shared.denials).await),
        Err(end) => Err(end.to_string()),
    }
}

/// The login's exchange with the engine, from the startup packet on.
///
/// # Cancel safety
/// As [`auth::carry`].
async fn log_in(
    client: &mut Stream,
    at: &mut AtEngine<'_>,
    packet: &[u8],
) -> Result<Welcome, AuthEnd> {
    at.login.hands_over().await.map_err(AuthEnd::Fenced)?;
    pass(fault::point_async("wire.login_listed").await);
    let sent = async {
        at.stream.write_all(packet).await?;
        at.stream.flush().await
    };
    if sent.await.is_err() {
        at.login.returned();
        return Err(AuthEnd::EngineGone);
    }
    auth::carry(client, at).await
}

/// The point parks or aborts; an injected error means nothing here.
fn pass(outcome: Result<(), fault::Fault>) {
    if let Err(fault) = outcome {
        tracing::error!(%fault, "ignored");
    }
}

/// What people are shown of the session.
fn card(startup: &Startup, address: &str, came_by: CameBy) -> Card {
    Card {
        client: address.to_owned(),
        user: startup.parameter("user").unwrap_or_default().to_owned(),
        application_name: startup.parameter("application_name").unwrap_or_default().to_owned(),
        came_by: Some(came_by),
    }
}

/// The first packets, to a startup packet. `None` for a cancel request, which is delivered.
///
/// # Cancel safety
/// As for [`prepare`].
async fn meet(
    accepted: Accepted,
    settings: &Settings,
    shared: &Shared,
) -> Result<Option<(Stream, Startup)>, String> {
    match startup::greet(accepted, &settings.tls).await {
        Ok(Wish::Session(client, startup)) => Ok(Some((client, startup))),
        Ok(Wish::Cancel(stream, pid, key)) => {
            shared.cancels.forward(pid, &key).await;
            drop(stream);
            Ok(None)
        }
        Err(StartupError::TlsRequired(client)) => {
            let message = "this listener takes encrypted connections only";
            farewell(*client, "28000", message, "Set sslmode=require or stronger.").await;
            Err(message.to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// A name as clients give it, with the engine it is looked up at.
type CameBy = (EngineName, String);

/// Which database is meant. As PostgreSQL reads it, an empty name is none.
fn resolve(
    startup: &Startup,
    settings: &Settings,
    shared: &Shared,
) -> Result<(Target<Endpoint>, CameBy), String> {
    let named = startup.parameter("database").filter(|name| !name.is_empty());
    let Some(name) = named.or_else(|| startup.parameter("user")) else {
        return Err("the startup packet names no user".to_owned());
    };
    let (engine, name) = (settings.default_engine.clone(), name.to_owned());
    let target = shared.directory.resolve(&engine, &name)?;
    Ok((target, (engine, name)))
}

/// A client that shows no live capability is told so, and counted.
///
/// # Cancel safety
/// As for [`farewell`].
async fn refuse(client: Stream, refusal: &Refusal, denials: &Denials) {
    denials.count(refusal.denial, Surface::Pg);
    let sqlstate = denials.sqlstate(refusal.denial);
    last_word(client, |buffer| {
        refusal::typed_error(buffer, Severity::Fatal, refusal, sqlstate);
    })
    .await;
}

/// A login at which a login trigger would run unguarded is told so, and counted. Answers why there
/// is no session.
///
/// # Cancel safety
/// As for [`farewell`].
async fn turn_away(client: Stream, refused: &LoginRefusal, denials: &Denials) -> String {
    let LoginRefusal { refusal, triggers } = refused;
    denials.count(refusal.denial, Surface::Pg);
    let sqlstate = denials.sqlstate(refusal.denial);
    last_word(client, |buffer| refusal::login_error(buffer, refusal, sqlstate, triggers)).await;
    "a login trigger would run at it, and writes are closed".to_owned()
}

/// The capability that the startup packet shows, if it shows any: all that it offers must be live
/// ones of this database, and the last of them counts. A replication connection has no use for one.
fn shown(
    startup: &Startup,
    target: &Target<Endpoint>,
    shared: &Shared,
) -> Result<Option<Capability>, Refusal> {
    if startup.offered.is_empty() {
        return Ok(None);
    }
    // Looked for, not made: nobody has proved a password yet.
    let gate = shared.gates.known(&target.namespace);
    let mut found = None;
    for offered in &startup.offered {
        let gate = gate.as_ref().filter(|_| mode(startup) == Mode::Sql);
        found = gate.and_then(|gate| gate.present(offered.expose()));
        if found.is_none() {
            return Err(capability::refusal(gate, &target.namespace));
        }
    }
    Ok(found)
}

/// Seats two peers that know each other. What was learnt on the way ends here.
fn begin<'a>(
    ready: Ready<'a>,
    auto_prepare: bool,
    shared: &'a Arc<Shared>,
    counters: &Arc<WorkerCounters>,
) -> Session<'a> {
    let counted = shared.sessions.opened();
    counters.session_opened();
    let Ready { place, client: client_stream, engine, startup, target, .. } = ready;
    let (welcome, came_by, capability) = (ready.welcome, ready.came_by, ready.capability);
    let (id, card) = (ready.id, ready.card);
    let gate = shared.gates.gate(&target.namespace);
    let seat = match &capability {
        Some(capability) => Seat::take_bearing(gate, id, card, capability.clone()),
        None => Seat::take(gate, id, card),
    };
    let mut conversation = Conversation::new(
        Arc::clone(&seat),
        Arc::clone(&shared.gates),
        mode(&startup),
        Arc::clone(&shared.denials),
    );
    conversation.bearing = Bearing::of(capability);
    if auto_prepare && conversation.mode == Mode::Sql {
        conversation.auto = Some(Box::new(AutoPrepare::new(Arc::clone(counters))));
    }
    learn(&mut conversation, &welcome);
    // Routes may have moved while the client logged in, before anybody could tell this session.
    let leads = shared.directory.resolve(&came_by.0, &came_by.1);
    conversation.route_moved = leads.is_ok_and(|now| now.namespace != target.namespace);
    let (pid, key) = welcome.key.unwrap_or_default();
    seat.slot().set_engine_pid(pid);
    seat.slot().note_alive(ready.looks);
    drop(seat);
    let slot = conversation.place();
    let endpoint = Arc::clone(&target.endpoint);
    let registered = shared.cancels.register(pid, key.clone(), Arc::clone(&endpoint), slot);
    let canceller = Box::new(move || cancel(Arc::clone(&endpoint), pid, key.clone()));
    // Boxed, so that it is in this session's memory once, not in each future that it moved through.
    let relay = Box::new(Relay::new(
        (client_stream, welcome.from_client),
        (engine, welcome.from_engine),
        conversation,
        Arc::clone(counters),
        canceller,
    ));
    Session { id, relay, registered, place, counted }
}

/// What kind of session the engine makes of `replication`, which may be given several times: the
/// engine keeps `database` even if a later value says otherwise, and reads the others as it reads
/// any switch. Only a session that is sure to refuse SQL goes without the guard.
fn mode(startup: &Startup) -> Mode {
    let (mut walsender, mut of_database) = (false, false);
    for value in startup.values("replication") {
        if value == b"database" {
            (walsender, of_database) = (true, true);
            continue;
        }
        match switch(value) {
            Some(on) => walsender = on,
            // The engine refuses it.
            None => (walsender, of_database) = (true, true),
        }
    }
    match (walsender, of_database) {
        (false, _) => Mode::Sql,
        (true, true) => Mode::LogicalReplication,
        (true, false) => Mode::PhysicalReplication,
    }
}

/// A switch's value as PostgreSQL reads one: also in upper case, also its first letters.
fn switch(value: &[u8]) -> Option<bool> {
    let value = value.to_ascii_lowercase();
    let means = |word: &[u8], least: usize| value.len() >= least && word.starts_with(&value);
    if means(b"true", 1) || means(b"yes", 1) || means(b"on", 2) || value == b"1" {
        Some(true)
    } else if means(b"false", 1) || means(b"no", 1) || means(b"off", 2) || value == b"0" {
        Some(false)
    } else {
        None
    }
}

fn learn(conversation: &mut Conversation, welcome: &Welcome) {
    let value = |name: &[u8]| {
        let found = welcome.parameters.iter().rev().find(|(n, _)| n == name);
        found.and_then(|(_, value)| std::str::from_utf8(value).ok())
    };
    conversation.own.logged_in(value(b"default_transaction_read_only") == Some("on"));
    let version = value(b"server_version").unwrap_or_default();
    let digits = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    conversation.engine_major = version.get(..digits).and_then(|d| d.parse().ok()).unwrap_or(15);
    conversation.lexing = PgLexing::from_parameters(
        value(b"standard_conforming_strings").unwrap_or("on"),
        value(b"client_encoding").unwrap_or("SQL_ASCII"),
    );
}

/// Sends a CancelRequest from a task of its own; the receiver hears when it is over.
fn cancel(endpoint: Arc<Endpoint>, pid: i32, key: CancelKey) -> oneshot::Receiver<()> {
    let (done, delivered) = oneshot::channel();
    spawn_session(async move {
        let _report = PanicReport::of("cancel");
        if let Err(error) = endpoint.cancel(pid, &key).await {
            tracing::warn!(%error, pid, "the fence's cancel request could not be delivered");
        }
        // The relay may be gone by now: nobody to tell.
        let _unheard = done.send(());
    });
    delivered
}

/// A FATAL error for a client that gets no session. Bounded by the caller's time limit.
///
/// # Cancel safety
/// Part of it may have been sent; the connection closes.
async fn farewell(client: Stream, sqlstate: &str, message: &str, hint: &str) {
    last_word(client, |buffer| {
        refusal::plain_error(buffer, Severity::Fatal, sqlstate, message, hint);
    })
    .await;
}

/// The same, whatever is written.
///
/// # Cancel safety
/// As for [`farewell`].
async fn last_word(mut client: Stream, write: impl FnOnce(&mut BytesMut)) {
    let mut buffer = BytesMut::new();
    write(&mut buffer);
    if client.write_all(&buffer).await.is_ok() {
        // The client has its error or is gone: either way the connection ends here.
        let _unheard = client.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_session_is_what_the_engine_takes_it_for() {
        for (values, expected) in [
            (&[][..], Mode::Sql),
            (&["false"], Mode::Sql),
            (&["OFF"], Mode::Sql),
            (&["f"], Mode::Sql),
            (&["of"], Mode::Sql),
            (&["N"], Mode::Sql),
            (&["0"], Mode::Sql),
            (&["true"], Mode::PhysicalReplication),
            (&["Y"], Mode::PhysicalReplication),
            (&["on"], Mode::PhysicalReplication),
            (&["database"], Mode::LogicalReplication),
            (&["database", "true"], Mode::LogicalReplication),
            (&["true", "database"], Mode::LogicalReplication),
            (&["database", "off"], Mode::Sql),
            (&["true", "false"], Mode::Sql),
            // Refused by the engine, and never taken for what goes without a guard.
            (&["o"], Mode::LogicalReplication),
            (&[""], Mode::LogicalReplication),
            (&["DATABASE"], Mode::LogicalReplication),
        ] {
            let given = values.iter().map(|value| ("replication", *value));
            let startup = Startup::sample(given);
            assert_eq!(mode(&startup), expected, "{values:?}");
        }
    }
}
