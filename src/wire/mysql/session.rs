//! One MySQL client connection from its first byte to its end.
//!
//! Purpose: puts the parts in order: the engine's greeting, the client's login, route, TLS on
//! either side, authentication, seat at the gate, relay. W24, W25, W26. Called by
//! `wire/shared/workers.rs`, one task per connection. What the client is told when it doesn't come
//! to a session is written here.
//!
//! The engine is connected to before the client's login is read (`startup.rs` says why): the
//! listener's default engine. A database that lives on another one is logged in to there with that
//! engine's nonce, which the client is given by a request to switch the method.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;

use crate::base::ids::{EngineName, Namespace, SessionId};
use crate::base::limits;
use crate::gate::admission::{Refusal, Seat};
use crate::gate::capability::Capability;
use crate::gate::registry::Gates;
use crate::gate::slot::Card;
use crate::sql::{MyEncoding, MyServer};
use crate::telemetry::spawn::PanicReport;
use crate::telemetry::timer::timeout;
use crate::telemetry::worker::WorkerCounters;
use crate::tls::Stream;
use crate::wire::mysql::auth::{self, AuthEnd, Bridge, Exchange, Welcome};
use crate::wire::mysql::bearing;
use crate::wire::mysql::capabilities as bits;
use crate::wire::mysql::conversation::{Begun, Conversation};
use crate::wire::mysql::effects::NO_SCHEMA;
use crate::wire::mysql::endpoint::{Endpoint, Greeted};
use crate::wire::mysql::frame;
use crate::wire::mysql::login_text::{self, Going, LoginTexts};
use crate::wire::mysql::own_key::OwnKey;
use crate::wire::mysql::refusal;
use crate::wire::mysql::relay::{End, Relay};
use crate::wire::mysql::startup::{self, Arrived, Greeting, Knock, Login};
use crate::wire::shared::accepted::{Accepted, ClientSideTls};
use crate::wire::shared::capability;
use crate::wire::shared::denials::{Denials, Surface};
use crate::wire::shared::directory::{Directory, Target};
use crate::wire::shared::patience::{TooLate, within};
use crate::wire::shared::sessions::{Counted, Sessions};

/// One listener's settings.
#[derive(Debug)]
pub struct Settings {
    /// Engine that greets, and where databases without a route of their own are.
    pub default_engine: EngineName,
    /// TLS towards clients.
    pub tls: ClientSideTls,
}

/// Stops statements of the proxy's own sessions, over connections that are not theirs: the MySQL
/// protocol has no other way.
pub trait Killer: Send + Sync + std::fmt::Debug {
    /// `KILL QUERY` of a connection, by the engine's own number. The receiver hears when the engine
    /// has taken it; an error where that isn't known. Bounded in time by the implementation.
    fn kill_query(&self, engine: &EngineName, thread: u32) -> oneshot::Receiver<()>;
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
    /// Numbers and counts of sessions, all protocols' together.
    pub sessions: Arc<Sessions>,
    /// Stops statements.
    pub killer: Arc<dyn Killer>,
    /// What engines run at a login.
    pub login_texts: Arc<dyn LoginTexts>,
    /// The proxy's own RSA key.
    pub own_key: Arc<OwnKey>,
}

/// An error for a client that gets no session.
#[derive(Debug)]
struct Farewell {
    client: Stream,
    /// The packet's number; 0 before the greeting, and then without an SQLSTATE.
    sequence: u8,
    errno: u16,
    sqlstate: String,
    text: String,
}

/// Why there is no session.
enum NoSession {
    /// The client is to be told.
    Tell(Box<Farewell>),
    /// It has been told, or is gone.
    Quiet(String),
}

impl<E: std::error::Error> From<E> for NoSession {
    fn from(error: E) -> Self {
        Self::Quiet(error.to_string())
    }
}

fn tell(
    client: Stream,
    sequence: u8,
    (errno, sqlstate): (u16, &str),
    text: impl ToString,
) -> NoSession {
    let (sqlstate, text) = (sqlstate.to_owned(), text.to_string());
    NoSession::Tell(Box::new(Farewell { client, sequence, errno, sqlstate, text }))
}

/// The engines' own numbers.
const TOO_MANY: (u16, &str) = (1040, "08004");
const BAD_HANDSHAKE: (u16, &str) = (1043, "08S01");
const UNKNOWN_DATABASE: (u16, &str) = (1049, "42000");
const STOPPING: (u16, &str) = (1053, "08S01");
const NETWORK: (u16, &str) = (1158, "08S01");
const INSECURE: (u16, &str) = (3159, "HY000");
/// The connection behind the proxy can't be made. Not the client libraries' own 2003: MariaDB's
/// take what comes with a number from 2000 to 2999, or from 5000 to 5999, for a damaged packet.
const UNREACHABLE: (u16, &str) = NETWORK;

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
        let Session { id, relay, place, counted } = session;
        if relay.run().await == End::Fault {
            tracing::warn!(session = %id, "session ended by a fault");
        }
        drop(place);
        counters.session_closed();
        drop(counted);
    }
}

/// What a session is while it lasts.
struct Session<'a> {
    id: SessionId,
    relay: Box<Relay>,
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
    match within(bound, prepare(accepted, &settings, shared)).await {
        Ok(Ok(ready)) => Some(begin(*ready, client, &settings, shared, counters)),
        Ok(Err(NoSession::Quiet(reason))) => {
            counters.connection_refused();
            tracing::debug!(%client, %reason, "no session");
            None
        }
        Ok(Err(NoSession::Tell(farewell))) => {
            counters.connection_refused();
            tracing::debug!(%client, reason = %farewell.text, "no session");
            let said = timeout(bound, say(*farewell)).await;
            drop(said);
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
    login: Login,
    greeting: Greeting,
    target: Target<Endpoint>,
    exchange: Exchange,
    welcome: Welcome,
    /// What the login showed.
    capability: Option<Capability>,
    /// What the gates had counted before the login went to the engine.
    looks: u64,
}

/// An engine that has greeted.
struct Host {
    stream: Stream,
    greeting: Greeting,
    endpoint: Arc<Endpoint>,
}

/// Everything up to the engine's OK.
///
/// # Cancel safety
/// Dropping the future closes both connections; nothing was admitted.
async fn prepare<'a>(
    accepted: Accepted,
    settings: &Settings,
    shared: &'a Shared,
) -> Result<Box<Ready<'a>>, NoSession> {
    let client = startup::stream(accepted);
    if !shared.directory.is_open() {
        return Err(tell(client, 0, STOPPING, "the proxy is stopping; reconnect"));
    }
    // Before the engine is connected to: a login that never ends holds a connection there.
    let Some(place) = shared.sessions.place() else {
        let text = "Too many connections: the proxy's max_sessions is reached; retry later";
        return Err(tell(client, 0, TOO_MANY, text));
    };
    let (client, host) = meet(client, settings, shared).await?;
    let arrived = match startup::greet(client, &host.greeting, &settings.tls).await? {
        Knock::Login(arrived) => *arrived,
        Knock::Plaintext(client, sequence) => {
            let text = "this listener takes encrypted connections only; connect with \
                        ssl-mode=REQUIRED or stronger";
            return Err(tell(client, sequence, INSECURE, text));
        }
        Knock::Nonsense(client, sequence) => {
            return Err(tell(client, sequence, BAD_HANDSHAKE, "Bad handshake"));
        }
    };
    let server = MyServer::from_greeting(&host.greeting.version);
    let target = match resolve(&arrived.login, server, settings, shared) {
        Ok(target) => target,
        Err(reason) => {
            let sequence = arrived.sequence.wrapping_add(1);
            return Err(tell(arrived.client, sequence, UNKNOWN_DATABASE, reason));
        }
    };
    let capability = match shown(&arrived.login, &target, shared) {
        Ok(capability) => capability,
        Err(refusal) => {
            shared.denials.count(refusal.denial, Surface::Mysql);
            let sqlstate = shared.denials.sqlstate(refusal.denial);
            let code = (refusal.denial.errno(), sqlstate);
            let sequence = arrived.sequence.wrapping_add(1);
            return Err(tell(arrived.client, sequence, code, refusal::typed_text(&refusal)));
        }
    };
    let (arrived, host) = if target.endpoint.name() == host.endpoint.name() {
        (arrived, host)
    } else {
        elsewhere(arrived, host, &target).await?
    };
    let arrived = let_in(arrived, &host, &target, shared).await?;
    let ready = log_in(place, arrived, host, target, shared).await?;
    Ok(Box::new(Ready { capability, ..ready }))
}

/// Connects to the engine that is to greet.
///
/// # Cancel safety
/// Dropping the future closes both connections.
async fn meet(
    client: Stream,
    settings: &Settings,
    shared: &Shared,
) -> Result<(Stream, Host), NoSession> {
    let endpoint = match shared.directory.endpoint(&settings.default_engine) {
        Ok(endpoint) => endpoint,
        Err(reason) => return Err(tell(client, 0, UNREACHABLE, reason)),
    };
    match endpoint.connect().await {
        Ok(Greeted::Welcome(stream, greeting)) => {
            Ok((client, Host { stream, greeting: *greeting, endpoint }))
        }
        Ok(Greeted::Refused(payload)) => {
            send_last(client, 0, &payload).await;
            let name = endpoint.name();
            Err(NoSession::Quiet(format!("engine {name} greets with an error")))
        }
        Err(error) => {
            let text = format!("{error}; look whether the engine is up");
            Err(tell(client, 0, UNREACHABLE, text))
        }
    }
}

fn resolve(
    login: &Login,
    server: MyServer,
    settings: &Settings,
    shared: &Shared,
) -> Result<Target<Endpoint>, String> {
    let engine = &settings.default_engine;
    let Some(name) = &login.database else {
        let namespace = Namespace::new(engine.clone(), NO_SCHEMA).map_err(|e| e.to_string())?;
        return Ok(Target { namespace, endpoint: shared.directory.endpoint(engine)? });
    };
    let collation = u16::from(login.charset());
    let encoding = MyEncoding::from_collation(collation, server.flavour);
    let Some(name) = encoding.reads_name(name) else {
        return Err("Unknown database: its name isn't ASCII, and isn't in UTF-8 by the character \
                    set that the connection begins with; connect with utf8mb4"
            .to_owned());
    };
    shared.directory.resolve(engine, name)
}

/// The capability that the login shows, if it shows any: all that it offers must be live ones that
/// count for its schema.
fn shown(
    login: &Login,
    target: &Target<Endpoint>,
    shared: &Shared,
) -> Result<Option<Capability>, Refusal> {
    bearing::find_all(&shared.gates, &target.namespace, &login.offered).map_err(|()| {
        let gate = shared.gates.known(&target.namespace);
        capability::refusal(gate.as_ref(), &target.namespace)
    })
}

/// Lets a login go on unless the engine may write at it to what is fenced.
///
/// # Cancel safety
/// Dropping the future closes both connections.
async fn let_in(
    arrived: Arrived,
    host: &Host,
    target: &Target<Endpoint>,
    shared: &Shared,
) -> Result<Arrived, NoSession> {
    let server = MyServer::from_greeting(&host.greeting.version);
    let collation = u16::from(arrived.login.charset());
    let encoding = MyEncoding::from_collation(collation, server.flavour);
    let going = Going { home: &target.namespace, server, encoding };
    let asked = login_text::refusal(going, &shared.gates, shared.login_texts.as_ref());
    let Some((refusal, text)) = asked.await else { return Ok(arrived) };
    shared.denials.count(refusal.denial, Surface::Mysql);
    let code = (refusal.denial.errno(), shared.denials.sqlstate(refusal.denial));
    let sequence = arrived.sequence.wrapping_add(1);
    Err(tell(arrived.client, sequence, code, text))
}

/// The client's database is on another engine: has the client prove its password for that one.
///
/// # Cancel safety
/// Dropping the future closes both connections; the login may have gone part of its way.
async fn elsewhere(
    arrived: Arrived,
    greeter: Host,
    target: &Target<Endpoint>,
) -> Result<(Arrived, Host), NoSession> {
    let Arrived { mut client, mut login, sequence } = arrived;
    let next = sequence.wrapping_add(1);
    let endpoint = Arc::clone(&target.endpoint);
    let (stream, greeting) = match endpoint.connect().await {
        Ok(Greeted::Welcome(stream, greeting)) => (stream, *greeting),
        Ok(Greeted::Refused(payload)) => {
            send_last(client, next, &payload).await;
            let name = endpoint.name();
            return Err(NoSession::Quiet(format!("engine {name} greets with an error")));
        }
        Err(error) => {
            let text = format!("{error}; look whether the engine is up");
            return Err(tell(client, next, UNREACHABLE, text));
        }
    };
    let agreed = login.agreed(&greeter.greeting);
    if agreed != login.agreed(&greeting) || !agreed.has(bits::PLUGIN_AUTH) {
        let text = format!(
            "database {} is on engine {}, which offers other capabilities than {}, the engine of \
             this listener; connect to a listener of that engine",
            target.namespace.database(),
            endpoint.name(),
            greeter.endpoint.name()
        );
        return Err(tell(client, next, UNREACHABLE, text));
    }
    let mut request = vec![0xfe];
    request.extend_from_slice(&greeting.plugin);
    request.push(0);
    request.extend_from_slice(&greeting.nonce);
    request.push(0);
    let mut packet = BytesMut::new();
    frame::put(&mut packet, next, &request);
    client.write_all(&packet).await?;
    client.flush().await?;
    let (sequence, proof) = startup::packet(&mut client).await?;
    login.set_auth(Some(&greeting.plugin), proof);
    Ok((Arrived { client, login, sequence }, Host { stream, greeting, endpoint }))
}

/// From the login packet to the engine's OK.
///
/// # Cancel safety
/// Dropping the future closes both connections; nothing was admitted.
async fn log_in<'a>(
    place: Counted<'a>,
    arrived: Arrived,
    host: Host,
    target: Target<Endpoint>,
    shared: &Shared,
) -> Result<Ready<'a>, NoSession> {
    let Arrived { mut client, mut login, sequence } = arrived;
    let Host { stream, greeting, endpoint } = host;
    let looks = shared.gates.looks();
    let next = sequence.wrapping_add(1);
    let (mut engine, engine_next) = match endpoint.encrypt(stream, &greeting, &login).await {
        Ok(encrypted) => encrypted,
        Err(error) => return Err(tell(client, next, UNREACHABLE, error)),
    };
    let bridge = match (is_secure(&client), is_secure(&engine)) {
        (true, true) | (false, false) => Bridge::Straight,
        (true, false) => Bridge::Seal,
        (false, true) => Bridge::Unseal(shared.own_key.pair().await?),
    };
    let factors = login.agreed(&greeting).has(bits::MULTI_FACTOR);
    let numbers = (next, engine_next.wrapping_add(1));
    let mut exchange = Exchange::begin(&mut login, &greeting.nonce, bridge, numbers, factors);
    let database = login.database.as_ref().map(|_| target.namespace.database());
    let mut packet = BytesMut::new();
    frame::put(&mut packet, engine_next, &login.packet(engine.is_tls(), database));
    let sent = async {
        engine.write_all(&packet).await?;
        engine.flush().await
    };
    let outcome = match sent.await {
        Ok(()) => auth::carry(&mut exchange, &mut client, &mut engine).await,
        Err(_) => Err(AuthEnd::EngineGone),
    };
    match outcome {
        Ok(welcome) => {
            let capability = None;
            Ok(Ready {
                place,
                client,
                engine,
                login,
                greeting,
                target,
                exchange,
                welcome,
                capability,
                looks,
            })
        }
        Err(end @ (AuthEnd::EngineGone | AuthEnd::Password(_))) => {
            let text = format!("engine {}: {end}; look at the engine's log", endpoint.name());
            Err(tell(client, exchange.client_sequence(), NETWORK, text))
        }
        Err(end @ (AuthEnd::Refused | AuthEnd::ClientGone | AuthEnd::Broken(_))) => {
            Err(NoSession::Quiet(end.to_string()))
        }
    }
}

/// What clients and servers take for safe enough to send a password over.
fn is_secure(stream: &Stream) -> bool {
    stream.is_tls() || matches!(stream, Stream::Unix(_))
}

/// Seats two peers that know each other. What was learnt on the way ends here.
fn begin<'a>(
    ready: Ready<'a>,
    client: String,
    settings: &Settings,
    shared: &'a Arc<Shared>,
    counters: &Arc<WorkerCounters>,
) -> Session<'a> {
    let counted = shared.sessions.opened();
    counters.session_opened();
    let Ready { place, client: client_stream, engine, login, greeting, target, .. } = ready;
    let Welcome { ok, from_client, from_engine } = ready.welcome;
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).unwrap_or("?").to_owned();
    let program = login.attribute(b"program_name").map(text).unwrap_or_default();
    // A name that isn't UTF-8 got no session.
    let came_by =
        login.database.as_deref().map(|name| (settings.default_engine.clone(), text(name)));
    let card = Card { client, user: text(&login.user), application_name: program, came_by };
    let id = shared.sessions.number();
    let seat = Seat::take(shared.gates.gate(&target.namespace), id, card);
    // The number goes beyond what fits here only on a server that has had two billion connections.
    seat.slot().set_engine_pid(i32::from_ne_bytes(greeting.thread.to_ne_bytes()));
    seat.slot().note_alive(ready.looks);
    let begun = Begun {
        agreed: login.agreed(&greeting),
        ok,
        charset: login.charset(),
        server: MyServer::from_greeting(&greeting.version),
        exchange: ready.exchange,
    };
    let no_schema = login.database.is_none();
    let (killer, endpoint) = (Arc::clone(&shared.killer), Arc::clone(&target.endpoint));
    let canceller = Box::new(move || killer.kill_query(endpoint.name(), greeting.thread));
    let gates = Arc::clone(&shared.gates);
    let mut conversation = Conversation::new(seat, gates, Arc::clone(&shared.denials), begun);
    conversation.no_schema = no_schema;
    conversation.begin_bearing(ready.capability);
    // Boxed, so that it is in this session's memory once, not in each future that it moved through.
    let relay = Box::new(Relay::new(
        (client_stream, from_client),
        (engine, from_engine),
        conversation,
        Arc::clone(counters),
        canceller,
    ));
    Session { id, relay, place, counted }
}

/// Sends an error and closes. Bounded by the caller's time limit.
///
/// # Cancel safety
/// Part of it may have been sent; the connection closes.
async fn say(farewell: Farewell) {
    let Farewell { client, sequence, errno, sqlstate, text } = farewell;
    let mut payload = vec![0xff];
    payload.extend_from_slice(&errno.to_le_bytes());
    // Before the greeting clients don't expect an SQLSTATE, and would show it as text.
    if sequence > 0 {
        payload.push(b'#');
        payload.extend_from_slice(sqlstate.as_bytes());
    }
    payload.extend_from_slice(text.as_bytes());
    send_last(client, sequence, &payload).await;
}

/// Sends a client its last packet.
///
/// # Cancel safety
/// Part of it may have been sent; the connection closes.
async fn send_last(mut client: Stream, sequence: u8, payload: &[u8]) {
    let mut packet = BytesMut::new();
    frame::put(&mut packet, sequence, payload);
    if client.write_all(&packet).await.is_ok() {
        // The client has its error or is gone: either way the connection ends here.
        let _unheard = client.shutdown().await;
    }
}
