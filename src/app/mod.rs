//! L5: the composition root. Builds the parts in order, recovers, opens listeners, drains on exit.
//!
//! Purpose: [`App::start`] makes a running proxy out of a checked configuration; [`serve`] runs one
//! until a signal ends it. Listeners are bound first, so that a busy port stops the start before
//! anything else happens, and accept only after recovery (house 6.5). On the way out gates are left
//! as they are (invariant 13): stopping never opens one.
//!
//! Called by `cli` (`serve` and `demo`). It holds no policy of its own.

mod build;
mod consoles;
mod control_engine;
mod killer;
mod reload;
#[cfg(test)]
mod sequences;
mod state_dir;
#[cfg(test)]
mod surfaces;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::admin::auth::{AdminKey, KeyError, KeyOrigin};
use crate::admin::http::{AdminApi, Events, Reload};
use crate::admin::view::Shown;
use crate::base::arm::{Removable, removed};
use crate::base::clock::{Clock, SystemClock};
use crate::base::ids::{Generation, Namespace};
use crate::base::limits;
use crate::config::{self, Config};
use crate::control::fences::Engines;
use crate::control::recovery::Recovered;
use crate::control::{Control, Parts, Routes, Settings as ControlSettings};
use crate::gate::registry::Gates;
use crate::gate::slot::Order;
use crate::sql::Trusted;
use crate::store::StoreError;
use crate::store::marker::MarkerDir;
use crate::store::sqlite::SqliteStore;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::spawn::spawn_named;
use crate::telemetry::trace::{self, TraceError};
use crate::tls::{ReloadingServerTls, TlsError};
use crate::wire::mysql::own_key::OwnKey;
use crate::wire::pg::cancel::Cancels;
use crate::wire::shared::denials::Denials;
use crate::wire::shared::directory::Directory;
use crate::wire::shared::listener::{ListenAddress, ListenError, Listener};
use crate::wire::shared::sessions::Sessions;
use crate::wire::shared::workers::{Shared, WorkerError, Workers};
use crate::wire::{mysql, pg};

use build::{Endpoints, WireDirectory};
use control_engine::ControlEngine;
use killer::ControlKiller;
use reload::Reloading;
use state_dir::{StateDir, StateDirError, StoreFile};

/// Why the proxy doesn't start. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The folder for state can't be used.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    /// The admin key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The adoption key is the admin key.
    #[error(
        "{}: the adoption key is the admin key; it must be a second secret, held by other people",
        path.display()
    )]
    OneKey {
        /// The file of the adoption key.
        path: std::path::PathBuf,
    },
    /// Certificates or engine TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A client listener.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The admin listener.
    #[error("can't listen on {address} for the admin side: {source}")]
    Admin {
        /// As configured.
        address: String,
        /// The system's words.
        source: std::io::Error,
    },
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Recovery.
    #[error("recovery failed, nothing is served: {0}")]
    Recovery(String),
    /// Worker threads.
    #[error(transparent)]
    Workers(#[from] WorkerError),
    /// Logging.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The runtime of the control side.
    #[error("the control side's threads can't be started: {0}")]
    Runtime(std::io::Error),
}

/// A running proxy.
pub struct App {
    config: Arc<Mutex<Config>>,
    control: Arc<Control>,
    gates: Arc<Gates>,
    metrics: Arc<Metrics>,
    directory: Arc<WireDirectory>,
    sessions: Arc<Sessions>,
    workers: Arc<Workers>,
    listening: Vec<(ListenAddress, JoinHandle<()>)>,
    admin: (std::net::SocketAddr, JoinHandle<()>),
    stop_admin: oneshot::Sender<()>,
    consoles: Vec<consoles::Served>,
    reloading: Arc<Reloading>,
    grace: Duration,
    _claims: (StateDir, StoreFile),
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "App({} listeners)", self.listening.len())
    }
}

struct Bound {
    listener: Listener,
    address: config::ListenAddress,
    certificate: Option<Arc<ReloadingServerTls>>,
}

type BoundAdmin = (TcpListener, std::net::SocketAddr);

/// What the control side looks at for as long as the process lives.
fn watch(control: &Arc<Control>) {
    drop(spawn_named("orphan-sweep", Arc::clone(control).sweep_orphans()));
    drop(spawn_named("run-look", Arc::clone(control).watch_runs()));
    drop(spawn_named("login-look", Arc::clone(control).watch_logins()));
}

impl App {
    /// Starts everything and answers once listeners accept.
    ///
    /// # Errors
    /// [`AppError`]; nothing is left running.
    ///
    /// # Cancel safety
    /// Not cancel safe: run it to its end.
    pub async fn start(config: Config, control: ControlSettings) -> Result<Self, AppError> {
        let started = Instant::now();
        let mut claims = claim(&config)?;
        let bound = bind_clients(&config).await?;
        let ((admin_listener, admin_at), bound_consoles) = bind_admin(&config).await?;
        let (key, adoption_key) = keys(&config)?;

        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let metrics = Arc::new(Metrics::new());
        let first = first_generation(&mut claims.0, clock.now_ms())?;
        let gates = Arc::new(Gates::new(first));
        let routes = Arc::new(Routes::new(build::route_table(&config)));
        let config = Arc::new(Mutex::new(config));
        let (engines, endpoints, checked) = engines(&locked(&config))?;
        let admin = locked(&config).admin.clone();
        let control =
            build_control(&config, control, (&gates, &routes, &clock, &metrics), engines)?;
        let directory = Arc::new(WireDirectory {
            routes,
            endpoints: ArcSwap::from_pointee(endpoints),
            open: AtomicBool::new(true),
        });
        let reloading = Arc::new(Reloading {
            config: Arc::clone(&config),
            control: Arc::clone(&control),
            directory: Arc::clone(&directory),
            certificates: bound
                .iter()
                .filter_map(|b| Some((b.address.clone(), Arc::clone(b.certificate.as_ref()?))))
                .collect(),
            turn: Mutex::new(()),
        });
        let api = AdminApi {
            control: Arc::clone(&control),
            key,
            adoption_key,
            metrics: Arc::clone(&metrics),
            open_metrics: admin.open_metrics,
            shown: Shown { literals: admin.show_literals },
            reload: Arc::clone(&reloading) as Arc<dyn Reload>,
            events: Events::default(),
        };
        let consoles = consoles::serve(bound_consoles, &api, &config);
        let (stop_admin, admin) = serve_admin(admin_listener, api);
        watch(&control);
        recover(&control).await?;
        for engine in checked {
            drop(spawn_named("engine-check", engine.check()));
        }
        let (sessions, workers) =
            start_workers(&config, (&gates, &directory, &metrics), &control, started)?;
        let listening = accept(bound, &workers)?;
        let grace = locked(&config).proxy.shutdown_grace;
        Ok(Self {
            grace,
            config,
            control,
            gates,
            metrics,
            directory,
            sessions,
            workers,
            listening,
            admin: (admin_at, admin),
            stop_admin,
            consoles,
            reloading,
            _claims: claims,
        })
    }

    /// Where clients connect, as bound.
    #[must_use]
    pub fn addresses(&self) -> Vec<ListenAddress> {
        self.listening.iter().map(|(address, _)| address.clone()).collect()
    }

    /// Where the admin side listens, as bound.
    #[must_use]
    pub const fn admin_address(&self) -> std::net::SocketAddr {
        self.admin.0
    }

    /// The use cases.
    #[must_use]
    pub const fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// The numbers.
    #[must_use]
    pub const fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Reads the configuration again, if it came from a file. Answers what changed, as sentences.
    ///
    /// # Errors
    /// Sentences that say why nothing was changed.
    pub fn reload(&self) -> Result<Vec<String>, Vec<String>> {
        self.reloading.reload()
    }

    /// Stops: no new sessions, running transactions get the grace time, the rest is told 57P01.
    /// No gate changes.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the stop half done; call it once and wait.
    pub async fn stop(self) {
        self.directory.open.store(false, Ordering::SeqCst);
        for (_, task) in &self.listening {
            task.abort();
        }
        order_all(&self.gates, Order::FINISH);
        if !self.sessions_ended_within(self.grace).await {
            order_all(&self.gates, Order::END);
            // What is left after this is abandoned with the process.
            self.sessions_ended_within(Duration::from_millis(limits::STOP_LINGER_MS)).await;
        }
        // Its requests in flight are given a moment; a drain that runs is answered by its replay.
        let _unheard = self.stop_admin.send(());
        let linger = Duration::from_millis(limits::STOP_LINGER_MS);
        for (stop, task) in self.consoles {
            let _unheard = stop.send(());
            // It ends at once: connections are told by its going.
            let _ended = tokio::time::timeout(linger, task).await;
        }
        let (_, mut admin) = self.admin;
        if tokio::time::timeout(linger, &mut admin).await.is_err() {
            admin.abort();
        }
        for (address, task) in self.listening {
            // It was aborted above; its sockets are closed once it is gone.
            if let Err(error) = task.await
                && !error.is_cancelled()
            {
                tracing::error!(%address, %error, "a listener ended by a panic");
            }
        }
        if let Ok(workers) = Arc::try_unwrap(self.workers) {
            workers.stop();
        }
        drop(self.config);
    }

    async fn sessions_ended_within(&self, bound: Duration) -> bool {
        let deadline = Instant::now() + bound;
        while self.sessions.open() > 0 {
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(limits::STOP_LOOK_MS)).await;
        }
        true
    }
}

/// Gives every session an order on the way out. Gates stay as they are (invariant 13).
fn order_all(gates: &Gates, order: Order) {
    for gate in gates.all() {
        if removed(Removable::StopLeavesGates) {
            gate.open_unasked();
        }
        for slot in gate.sessions() {
            slot.order(order, Generation(0));
        }
    }
}

/// Above every generation that an earlier process of this folder reached (invariant 5): by the
/// clock, seconds since 1970 in the upper bits, and by what the folder remembers, because clocks go
/// back and a process can be started twice in a second.
fn first_generation(state_dir: &mut StateDir, now_ms: u64) -> Result<Generation, StateDirError> {
    if removed(Removable::GenerationStart) {
        return Ok(Generation(1));
    }
    state_dir.begin(Generation((now_ms / 1000) << 16))
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // The configuration is replaced as a whole: a panic elsewhere can't have left half of one.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn bind_clients(config: &Config) -> Result<Vec<Bound>, AppError> {
    let mut bound = Vec::new();
    for listen in &config.listens {
        let (address, service, certificate) = build::listen(listen)?;
        let listener = Listener::bind(address, service).await?;
        bound.push(Bound { listener, address: listen.address.clone(), certificate });
    }
    Ok(bound)
}

/// What a start looks at beyond the settings themselves: keys, certificates and CA files. Nothing
/// is made, opened or connected to.
///
/// # Errors
/// What [`serve`] would refuse to start with.
pub fn check(config: &Config) -> Result<(), AppError> {
    let _keys = keys(config)?;
    for listen in &config.listens {
        let _read = build::listen(listen)?;
    }
    let mut endpoints = Endpoints::default();
    config.engines.iter().try_for_each(|engine| endpoints.add(engine))
}

fn admin_key(config: &Config) -> Result<Option<AdminKey>, AppError> {
    Ok(match &config.admin.key {
        config::KeySource::File(path) => Some(AdminKey::from_file(path)?),
        config::KeySource::Variable(name) => {
            let key = AdminKey::from_variable(name)?;
            tracing::info!(variable = %name, "the admin key comes from the environment");
            Some(key)
        }
        config::KeySource::Generated => {
            let (key, origin) = AdminKey::load_or_generate(&config.proxy.state_dir)?;
            if origin == KeyOrigin::Made {
                let file = config.proxy.state_dir.join("admin.key");
                tracing::info!(file = %file.display(), "made an admin key");
            }
            Some(key)
        }
        config::KeySource::Off => {
            tracing::warn!(
                "no admin key is configured: command routes are off; set [admin] key_file or \
                 key_env"
            );
            None
        }
    })
}

/// The admin key and the second one. A second key that is the first would protect nothing.
fn keys(config: &Config) -> Result<(Option<AdminKey>, Option<AdminKey>), AppError> {
    let admin = admin_key(config)?;
    let Some(path) = &config.admin.adoption_key_file else { return Ok((admin, None)) };
    let second = AdminKey::from_file(path)?;
    if admin.as_ref().is_some_and(|admin| admin.is_same(&second)) {
        return Err(AppError::OneKey { path: path.clone() });
    }
    Ok((admin, Some(second)))
}

/// Reads what is durable and says what was found.
async fn recover(control: &Arc<Control>) -> Result<(), AppError> {
    let recovered = control.recover().await;
    say_recovered(&recovered.map_err(|error| AppError::Recovery(error.to_string()))?);
    Ok(())
}

fn serve_admin(listener: TcpListener, api: AdminApi) -> (oneshot::Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = oneshot::channel();
    let task = spawn_named("admin", async move {
        let stopped = async move {
            // Dropped or sent: either way the proxy stops.
            let _either: Result<(), oneshot::error::RecvError> = stopped.await;
        };
        crate::admin::http::serve(listener, Arc::new(api), stopped).await;
    });
    (stop, task)
}

fn engines(config: &Config) -> Result<(Engines, Endpoints, Vec<ControlEngine>), AppError> {
    let (mut engines, mut endpoints) = (Engines::new(), Endpoints::default());
    let mut handles = Vec::new();
    for engine in &config.engines {
        endpoints.add(engine)?;
        let control = ControlEngine::new(config, engine)?;
        engines.insert(engine.name.clone(), control.port());
        handles.push(control);
    }
    Ok((engines, endpoints, handles))
}

/// Cancel safety: nothing is bound when this is dropped.
async fn bind_admin(config: &Config) -> Result<(BoundAdmin, Vec<consoles::Bound>), AppError> {
    let address = config.admin.http.to_string();
    let failed = |source| AppError::Admin { address: address.clone(), source };
    let listener = TcpListener::bind(&address).await.map_err(failed)?;
    let at = listener.local_addr().map_err(failed)?;
    Ok(((listener, at), consoles::bind(config).await?))
}

/// What no other process may have at the same time.
fn claim(config: &Config) -> Result<(StateDir, StoreFile), AppError> {
    let folder = StateDir::claim(&config.proxy.state_dir)?;
    let config::Store::Sqlite(store) = &config.store;
    Ok((folder, StoreFile::claim(store)?))
}

/// Says which fences this start has taken up again; the open ones need no word.
fn say_recovered(recovered: &Recovered) {
    for (namespace, state) in &recovered.fences {
        if state.is_active() {
            tracing::info!(%namespace, state = state.name(), "its fence is still up");
        }
    }
}

fn build_control(
    config: &Arc<Mutex<Config>>,
    settings: ControlSettings,
    parts: (&Arc<Gates>, &Arc<Routes>, &Arc<dyn Clock>, &Arc<Metrics>),
    engines: Engines,
) -> Result<Arc<Control>, AppError> {
    let (gates, routes, clock, metrics) = parts;
    let (store, state_dir) = {
        let config = locked(config);
        let config::Store::Sqlite(path) = &config.store;
        (SqliteStore::open(path)?, config.proxy.state_dir.clone())
    };
    let in_force = Arc::clone(config);
    Ok(Control::new(Parts {
        settings,
        settings_for: Arc::new(move |namespace: &Namespace| {
            build::namespace_settings(&locked(&in_force), namespace)
        }),
        gates: Arc::clone(gates),
        store: Arc::new(store),
        markers: MarkerDir::open(&state_dir)?,
        engines,
        routes: Arc::clone(routes),
        clock: Arc::clone(clock),
        metrics: Arc::clone(metrics),
    }))
}

fn start_workers(
    config: &Arc<Mutex<Config>>,
    parts: (&Arc<Gates>, &Arc<WireDirectory>, &Arc<Metrics>),
    control: &Arc<Control>,
    started: Instant,
) -> Result<(Arc<Sessions>, Arc<Workers>), AppError> {
    let (gates, directory, metrics) = parts;
    let config = locked(config);
    let most = u64::try_from(config.proxy.max_sessions).unwrap_or(u64::MAX);
    let sessions = Arc::new(Sessions::new(most));
    let denials = Arc::new(Denials::new(&config.compat_sqlstate, Arc::clone(metrics)));
    let pg = pg::session::Shared {
        gates: Arc::clone(gates),
        directory: Arc::clone(directory) as Arc<dyn Directory<pg::endpoint::Endpoint>>,
        denials: Arc::clone(&denials),
        cancels: Arc::new(Cancels::default()),
        sessions: Arc::clone(&sessions),
    };
    let killer = Arc::new(ControlKiller::new(Arc::clone(control)));
    let mysql = mysql::session::Shared {
        gates: Arc::clone(gates),
        directory: Arc::clone(directory) as Arc<dyn Directory<mysql::endpoint::Endpoint>>,
        denials,
        sessions: Arc::clone(&sessions),
        killer: Arc::clone(&killer) as Arc<dyn mysql::session::Killer>,
        login_texts: killer,
        own_key: own_key(&config),
    };
    let shared = Shared { pg: Arc::new(pg), mysql: Arc::new(mysql) };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let count = config.proxy.workers.map_or(cores, std::num::NonZero::get);
    let counters = (0..count).map(|_| metrics.worker()).collect();
    let keeps = config.listens.iter().any(|listen| listen.auto_prepare);
    let trusted = Trusted::new(config.fence.trusted_functions.iter().cloned());
    let trusted = Arc::new(trusted.asking_steadiness(keeps));
    let workers = Workers::start(&shared, counters, &trusted, started)?;
    Ok((sessions, Arc::new(workers)))
}

/// The key for clients that log in without TLS to an engine with it, begun to be made where there
/// can be such: the first of them shouldn't have to wait.
fn own_key(config: &Config) -> Arc<OwnKey> {
    let key = Arc::new(OwnKey::default());
    let mysql = config::Protocol::Mysql;
    let plain = |listen: &config::Listen| {
        listen.protocol == mysql && listen.tls != config::ListenTls::Require
    };
    let encrypted = |engine: &config::Engine| {
        engine.protocol == mysql && engine.tls != config::EngineTls::Disable
    };
    if config.listens.iter().any(plain) && config.engines.iter().any(encrypted) {
        drop(spawn_named("rsa-key", Arc::clone(&key).make_ready()));
    }
    key
}

fn accept(
    bound: Vec<Bound>,
    workers: &Arc<Workers>,
) -> Result<Vec<(ListenAddress, JoinHandle<()>)>, ListenError> {
    let start = |(number, bound): (usize, Bound)| {
        let address = bound.listener.address();
        let task = workers.accept(bound.listener, number).transpose()?;
        Some(task.map(|task| {
            tracing::info!(%address, "clients may connect");
            (address, task)
        }))
    };
    bound.into_iter().enumerate().filter_map(start).collect()
}

/// Runs a proxy until SIGTERM or SIGINT. SIGHUP reloads. What goes wrong at the start is said on
/// stderr in one sentence.
pub fn serve(config: Config) -> ExitCode {
    match run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(config: Config) -> Result<(), AppError> {
    trace::init(&build::trace(&config.log))?;
    for notice in config.notices() {
        tracing::warn!("{notice}");
    }
    let runtime = control_runtime().map_err(AppError::Runtime)?;
    let settings = ControlSettings {
        fence_enabled: config.fence.enabled,
        ..ControlSettings::new(&config.proxy.instance)
    };
    runtime.block_on(async {
        let app = App::start(config, settings).await?;
        tracing::info!(admin = %app.admin_address(), "ready");
        until_stopped(&app).await;
        tracing::info!("stopping: no new sessions, running transactions may end");
        app.stop().await;
        tracing::info!("stopped");
        Ok(())
    })
}

/// The runtime of the control side: threads of its own, so that it answers while the data side is
/// saturated.
///
/// # Errors
/// The system gave no threads.
pub fn control_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(limits::CONTROL_THREADS)
        .thread_name("fencewire-ctl")
        .enable_all()
        .build()
}

async fn until_stopped(app: &App) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int), Ok(mut hup)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
        signal(SignalKind::hangup()),
    ) else {
        tracing::error!("signals can't be received; stopping");
        return;
    };
    loop {
        tokio::select! {
            _ = term.recv() => return,
            _ = int.recv() => return,
            _ = hup.recv() => match app.reload() {
                Ok(changes) => changes.iter().for_each(|change| tracing::info!("{change}")),
                Err(reasons) => reasons.iter().for_each(|reason| tracing::error!("{reason}")),
            },
        }
    }
}
