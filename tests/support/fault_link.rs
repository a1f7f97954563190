//! A wire between the proxy and its engine that breaks as told, for the kind of connection told.
//!
//! Purpose: the crash sweep of the link. Connections are sorted by their startup packet: the
//! proxy's own control connections, those of them that hold the fence's lock, and clients'. A
//! [`Break`] holds for the connections of its kind that exist, and for those made later, until the
//! link is healed.
//!
//! Invariants: [`FaultLink::breaks`] returns when every connection of the kind has done as told, so
//! that a test needs no time to pass. Nothing is buffered beyond one read per direction.
//!
//! Who uses it: `tests/link_pg.rs`, `tests/link_mysql.rs`. It knows nothing of the protocols beyond
//! who speaks first, the first packet and the text that takes the lock. `acceptance/link.rs` is
//! the smaller one, for a single session.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::poll;

/// Whose connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The proxy's control connections, lock holders among them.
    Control,
    /// Control connections that have asked for the fence's lock.
    Lock,
    /// Sessions of clients.
    Client,
}

/// How the wire breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// Both sides are told at once: RST.
    Rst,
    /// Both sides are told in order: FIN.
    Fin,
    /// The proxy gets RST; the engine isn't told, its side stays open and silent.
    Vanish,
    /// Nothing passes, and nobody is told. What was sent arrives after the healing.
    Stall,
    /// The engine's side ends (FIN towards the proxy); the other direction goes on.
    HalfClose,
    /// So many more bytes of answers pass, then FIN to both sides.
    Tear(u64),
}

/// What holds at present.
#[derive(Clone, Default)]
struct Rules {
    epoch: u64,
    broken: Vec<(Kind, Break)>,
}

struct One {
    client: bool,
    locking: AtomicBool,
    /// The last epoch whose rules it has obeyed.
    obeyed: AtomicU64,
    ended: AtomicBool,
}

impl One {
    fn is(&self, kind: Kind) -> bool {
        match kind {
            Kind::Client => self.client,
            Kind::Control => !self.client,
            Kind::Lock => !self.client && self.locking.load(Ordering::SeqCst),
        }
    }

    fn rule(&self, rules: &Rules) -> Option<Break> {
        rules.broken.iter().rev().find(|(kind, _)| self.is(*kind)).map(|(_, how)| *how)
    }
}

/// What breaks the wire when a text passes from the proxy to the engine.
type Trigger = Option<(&'static [u8], Kind, Break)>;

struct Shared {
    server: u16,
    /// The server speaks first.
    greets: bool,
    rules: watch::Sender<Rules>,
    all: Mutex<Vec<Arc<One>>>,
    /// Sides of the engine that weren't told, kept open.
    ghosts: Mutex<Vec<TcpStream>>,
    trigger: Mutex<Trigger>,
}

/// A listener whose connections all lead to one server.
pub struct FaultLink {
    port: u16,
    shared: Arc<Shared>,
    // Dropping it ends every connection.
    _runtime: tokio::runtime::Runtime,
}

const PATIENCE: Duration = Duration::from_secs(60);
const TAKES_LOCK: [&[u8]; 2] = [b"IN SHARE MODE", b"LOCK TABLES `"];
/// What a control connection's first packet says of its maker, by family.
const CONTROL_PG: &[u8] = b"application_name\0fencewire/";
const CONTROL_MY: (&[u8], &[u8]) = (b"program_name", b"fencewire/");

impl FaultLink {
    /// Leads to `server` on 127.0.0.1.
    pub fn to(server: u16) -> Self {
        Self::leading(server, false)
    }

    /// The same for a server that speaks first, as MySQL does.
    pub fn to_greeter(server: u16) -> Self {
        Self::leading(server, true)
    }

    fn leading(server: u16, greets: bool) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let shared = Arc::new(Shared {
            server,
            greets,
            rules: watch::Sender::new(Rules::default()),
            all: Mutex::default(),
            ghosts: Mutex::default(),
            trigger: Mutex::default(),
        });
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let its = Arc::clone(&shared);
        runtime.spawn(async move {
            while let Ok((proxy, _)) = listener.accept().await {
                tokio::spawn(carry(proxy, Arc::clone(&its)));
            }
        });
        Self { port, shared, _runtime: runtime }
    }

    /// Where the proxy connects to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Breaks the wire of a kind; returns when every connection of it has done as told.
    pub fn breaks(&self, kind: Kind, how: Break) {
        self.shared.rules.send_modify(|rules| {
            rules.epoch += 1;
            rules.broken.push((kind, how));
        });
        self.obeyed();
    }

    /// Breaks it as soon as `text` has been sent to the engine on a connection of the kind.
    pub fn breaks_behind(&self, text: &'static str, kind: Kind, how: Break) {
        *self.shared.trigger.lock().unwrap() = Some((text.as_bytes(), kind, how));
    }

    /// Whether that has happened.
    pub fn triggered(&self) -> bool {
        self.shared.trigger.lock().unwrap().is_none()
    }

    /// Everything passes again. What was torn stays so; the engine learns of what had vanished
    /// only by [`Self::tell_engine`].
    pub fn heal(&self) {
        *self.shared.trigger.lock().unwrap() = None;
        self.shared.rules.send_modify(|rules| {
            rules.epoch += 1;
            rules.broken.clear();
        });
    }

    /// Closes the sides of the engine that weren't told.
    pub fn tell_engine(&self) {
        self.shared.ghosts.lock().unwrap().clear();
    }

    /// How many connections of a kind are carried.
    pub fn count(&self, kind: Kind) -> usize {
        let all = self.shared.all.lock().unwrap();
        all.iter().filter(|one| !one.ended.load(Ordering::SeqCst) && one.is(kind)).count()
    }

    fn obeyed(&self) {
        let epoch = self.shared.rules.borrow().epoch;
        let done = poll(PATIENCE, || {
            let mut all = self.shared.all.lock().unwrap();
            all.retain(|one| !one.ended.load(Ordering::SeqCst));
            all.iter().all(|one| one.obeyed.load(Ordering::SeqCst) >= epoch).then_some(())
        });
        assert!(done.is_some(), "a connection of the relay doesn't do as told");
    }
}

/// The two ends of one connection, and how it stands.
struct Ends {
    proxy: TcpStream,
    engine: TcpStream,
    /// The engine's side has ended towards the proxy.
    halved: bool,
    /// Bytes of answers that may still pass before the end.
    left: Option<u64>,
}

async fn carry(mut proxy: TcpStream, shared: Arc<Shared>) {
    let mut first = vec![0; 10_000];
    let address = SocketAddr::from(([127, 0, 0, 1], shared.server));
    let mut early = None;
    if shared.greets {
        let Ok(mut engine) = TcpStream::connect(address).await else { return };
        let Ok(length @ 1..) = engine.read(&mut first).await else { return };
        if proxy.write_all(&first[..length]).await.is_err() {
            return;
        }
        early = Some(engine);
    }
    let Ok(length @ 1..) = proxy.read(&mut first).await else { return };
    first.truncate(length);
    let control = if shared.greets {
        // A length stands between the two.
        contains(&first, CONTROL_MY.0) && contains(&first, CONTROL_MY.1)
    } else {
        contains(&first, CONTROL_PG)
    };
    let one = Arc::new(One {
        client: !control,
        locking: AtomicBool::new(false),
        obeyed: AtomicU64::new(0),
        ended: AtomicBool::new(false),
    });
    shared.all.lock().unwrap().push(Arc::clone(&one));
    let engine = match early {
        Some(engine) => Ok(engine),
        None => TcpStream::connect(address).await,
    };
    if let Ok(engine) = engine {
        let ends = Ends { proxy, engine, halved: false, left: None };
        copy(ends, first, &one, &shared).await;
    }
    one.ended.store(true, Ordering::SeqCst);
}

async fn copy(mut ends: Ends, first: Vec<u8>, one: &One, shared: &Shared) {
    let mut rules = shared.rules.subscribe();
    let mut up = first;
    let mut proxy_open = true;
    let (mut from_proxy, mut from_engine) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let now = rules.borrow_and_update().clone();
        let how = one.rule(&now);
        let stalled = how == Some(Break::Stall);
        let Some(whole) = obey(ends, how, shared).await else { return };
        ends = whole;
        one.obeyed.store(now.epoch, Ordering::SeqCst);
        if !stalled && !up.is_empty() {
            if send(&mut ends.engine, &up, one, shared).await.is_err() {
                return;
            }
            up.clear();
            continue;
        }
        tokio::select! {
            biased;
            changed = rules.changed() => if changed.is_err() { return },
            read = ends.proxy.read(&mut from_proxy), if proxy_open && !stalled => match read {
                Ok(n @ 1..) => up.extend_from_slice(&from_proxy[..n]),
                // Nobody would hear the end of a side that has been given up.
                Ok(_) if ends.halved => return,
                Ok(_) => {
                    proxy_open = false;
                    drop(ends.engine.shutdown().await);
                }
                Err(_) => return reset(&ends.engine),
            },
            read = ends.engine.read(&mut from_engine), if !stalled && !ends.halved => match read {
                Ok(n @ 1..) => if !answer(&mut ends, &from_engine[..n]).await { return },
                // A closing engine closes both ways.
                Ok(_) => return drop(ends.proxy.shutdown().await),
                Err(_) => return reset(&ends.proxy),
            },
        }
    }
}

/// Does what the rule says; gives the ends back where the connection goes on.
async fn obey(mut ends: Ends, how: Option<Break>, shared: &Shared) -> Option<Ends> {
    match how {
        None | Some(Break::Stall) => {}
        Some(Break::Rst) => {
            reset(&ends.proxy);
            reset(&ends.engine);
            return None;
        }
        Some(Break::Fin) => {
            drop(ends.proxy.shutdown().await);
            drop(ends.engine.shutdown().await);
            return None;
        }
        Some(Break::Vanish) => {
            reset(&ends.proxy);
            shared.ghosts.lock().unwrap().push(ends.engine);
            return None;
        }
        Some(Break::HalfClose) if !ends.halved => {
            ends.halved = true;
            drop(ends.proxy.shutdown().await);
        }
        Some(Break::Tear(bytes)) if ends.left.is_none() => ends.left = Some(bytes),
        Some(Break::HalfClose | Break::Tear(_)) => {}
    }
    Some(ends)
}

/// Passes an answer on; false when the wire is torn by it.
async fn answer(ends: &mut Ends, bytes: &[u8]) -> bool {
    let whole = bytes.len() as u64;
    let pass = ends.left.map_or(whole, |left| left.min(whole));
    let head = &bytes[..usize::try_from(pass).unwrap()];
    // What can't be delivered is lost, as on any wire.
    drop(ends.proxy.write_all(head).await);
    if let Some(left) = &mut ends.left {
        *left -= pass;
        if pass < whole {
            drop(ends.proxy.shutdown().await);
            drop(ends.engine.shutdown().await);
            return false;
        }
    }
    true
}

/// Passes what the proxy sends, notes a lock that is asked for, and pulls the trigger.
async fn send(
    engine: &mut TcpStream,
    bytes: &[u8],
    one: &One,
    shared: &Shared,
) -> std::io::Result<()> {
    if TAKES_LOCK.iter().any(|text| contains(bytes, text)) {
        one.locking.store(true, Ordering::SeqCst);
    }
    engine.write_all(bytes).await?;
    let mut trigger = shared.trigger.lock().unwrap();
    if let Some((text, kind, how)) = *trigger
        && one.is(kind)
        && contains(bytes, text)
    {
        *trigger = None;
        shared.rules.send_modify(|rules| {
            rules.epoch += 1;
            rules.broken.push((kind, how));
        });
    }
    Ok(())
}

/// Makes the closing that follows an RST.
fn reset(socket: &TcpStream) {
    drop(SockRef::from(socket).set_linger(Some(Duration::ZERO)));
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}
