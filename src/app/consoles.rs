//! The SQL consoles: their listeners, and what `SHOW CONFIG` shows.
//!
//! Purpose: bind early, serve with the admin side, and turn the checked settings into names and
//! values without a secret among them. Called by `app::start`. Without an admin key no console is
//! bound: the key is its password.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{AppError, locked};
use crate::admin::console::{self, Desk, Protocol, Settings};
use crate::admin::http::AdminApi;
use crate::config::{self, Config};
use crate::telemetry::spawn::spawn_named;

/// A console that is bound and not served yet.
pub(super) struct Bound {
    listener: TcpListener,
    protocol: Protocol,
    at: SocketAddr,
}

/// Binds the consoles that are asked for.
///
/// Cancel safety: nothing is bound when this is dropped.
pub(super) async fn bind(config: &Config) -> Result<Vec<Bound>, AppError> {
    let mut bound = Vec::new();
    if config.admin.key == config::KeySource::Off {
        // The start's notices say so.
        return Ok(bound);
    }
    for (_, protocol, address) in config.admin.consoles() {
        let address = address.to_string();
        let failed = |source| AppError::Admin { address: address.clone(), source };
        let listener = TcpListener::bind(&address).await.map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        let protocol = match protocol {
            config::Protocol::Postgres => Protocol::Postgres,
            config::Protocol::Mysql => Protocol::Mysql,
        };
        bound.push(Bound { listener, protocol, at });
    }
    Ok(bound)
}

/// One console that is served: whom to tell that it ends, and its task.
pub(super) type Served = (oneshot::Sender<()>, JoinHandle<()>);

/// Serves what is bound.
pub(super) fn serve(bound: Vec<Bound>, api: &AdminApi, config: &Arc<Mutex<Config>>) -> Vec<Served> {
    let Some(key) = api.key.clone() else { return Vec::new() };
    let config = Arc::clone(config);
    let settings: Settings = Arc::new(move || settings(&locked(&config)));
    let desk = Arc::new(Desk {
        control: Arc::clone(&api.control),
        key,
        adoption_key: api.adoption_key.clone(),
        metrics: Arc::clone(&api.metrics),
        shown: api.shown,
        settings,
    });
    let start = |Bound { listener, protocol, at }: Bound| {
        let client = match protocol {
            Protocol::Postgres => format!("psql -h {} -p {} fencewire", at.ip(), at.port()),
            Protocol::Mysql => format!("mysql -h {} -P {} -p", at.ip(), at.port()),
        };
        tracing::info!(
            address = %at, client,
            "a SQL console listens; its password is the admin key, and it has no TLS"
        );
        let (stop, stopped) = oneshot::channel();
        let desk = Arc::clone(&desk);
        let task = spawn_named("console", async move {
            let stopped = async move {
                // Dropped or sent: either way the proxy stops.
                let _either: Result<(), oneshot::error::RecvError> = stopped.await;
            };
            console::serve(listener, protocol, desk, stopped).await;
        });
        (stop, task)
    };
    bound.into_iter().map(start).collect()
}

/// The settings in force as names and values. Passwords and keys have no line; files have.
fn settings(config: &Config) -> Vec<(String, String)> {
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut say = |name: &str, value: String| rows.push((name.to_owned(), value));
    let file = config.source.as_ref();
    say("source", file.map_or_else(|| "command line".to_owned(), |f| f.display().to_string()));
    say("proxy.instance", config.proxy.instance.clone());
    say("proxy.state_dir", config.proxy.state_dir.display().to_string());
    say("proxy.shutdown_grace_ms", config.proxy.shutdown_grace.as_millis().to_string());
    say("proxy.max_sessions", config.proxy.max_sessions.to_string());
    say("proxy.workers", config.proxy.workers.map_or(0, std::num::NonZero::get).to_string());
    say("log.level", config.log.filter.clone());
    let config::Store::Sqlite(store) = &config.store;
    say("store.url", format!("sqlite://{}", store.display()));
    say("admin.http", config.admin.http.to_string());
    for (key, _, address) in config.admin.consoles() {
        say(key, address.to_string());
    }
    say("admin.adoption", on(config.admin.adoption_key_file.is_some()));
    say("admin.open_metrics", config.admin.open_metrics.to_string());
    say("admin.show_literals", config.admin.show_literals.to_string());
    for engine in &config.engines {
        let name = format!("engine.{}", engine.name);
        say(&format!("{name}.protocol"), engine.protocol.as_str().to_owned());
        say(&format!("{name}.host"), host(&engine.host));
        say(&format!("{name}.user"), engine.user.clone());
        say(&format!("{name}.tls"), format!("{:?}", engine.tls).to_ascii_lowercase());
    }
    for listen in &config.listens {
        let name = format!("listen.{}", listen.address);
        say(&format!("{name}.protocol"), listen.protocol.as_str().to_owned());
        say(&format!("{name}.default_engine"), listen.default_engine.to_string());
        say(&format!("{name}.tls"), format!("{:?}", listen.tls).to_ascii_lowercase());
    }
    for route in &config.routes {
        say(&format!("route.{}", route.name), route.namespace.to_string());
    }
    rows.extend(fence("fence", &config.fence));
    for (namespace, merged) in &config.namespaces {
        rows.extend(fence(&format!("namespace.{namespace}"), merged));
    }
    rows
}

fn on(is_on: bool) -> String {
    if is_on { "on" } else { "off" }.to_owned()
}

fn host(host: &config::EngineHost) -> String {
    match host {
        config::EngineHost::Tcp { host, port } => format!("{host}:{port}"),
        config::EngineHost::Unix { path, port } => format!("{}:{port}", path.display()),
    }
}

fn fence(name: &str, fence: &config::Fence) -> Vec<(String, String)> {
    let rows = [
        ("enabled", fence.enabled.to_string()),
        ("write_drain_ms", fence.write_drain.as_millis().to_string()),
        ("read_drain_ms", fence.read_drain.as_millis().to_string()),
        ("in_flight", format!("{:?}", fence.in_flight).to_ascii_lowercase()),
        ("hold_ms", fence.hold.as_millis().to_string()),
        ("max_held", fence.max_held.to_string()),
        ("sole_path", format!("{:?}", fence.sole_path).to_ascii_lowercase()),
        ("engine_lock", format!("{:?}", fence.engine_lock).to_ascii_lowercase()),
        ("trusted_functions", fence.trusted_functions.join(", ")),
        ("receipt_retention_days", fence.receipt_retention_days.to_string()),
    ];
    rows.into_iter().map(|(key, value)| (format!("{name}.{key}"), value)).collect()
}
