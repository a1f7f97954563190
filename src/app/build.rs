//! From the checked configuration to each part's own settings.
//!
//! Purpose: the only place besides `cli` that reads `config`. Pure but for reading certificate
//! files. Called by `app::start` and `app::reload`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::app::AppError;
use crate::base::ids::{EngineName, Namespace};
use crate::base::limits;
use crate::config::{self, Config};
use crate::control::routes::{RouteTable, Routes};
use crate::control::settings::NamespaceSettings;
use crate::engine;
use crate::fence::record::{InFlight, LockMode};
use crate::telemetry::trace;
use crate::tls::{ClientTls, ReloadingServerTls, TlsMode};
use crate::wire::shared::accepted::ClientSideTls;
use crate::wire::shared::address::Address;
use crate::wire::shared::directory::{Directory, Target};
use crate::wire::shared::listener::ListenAddress;
use crate::wire::shared::workers::Service;
use crate::wire::{mysql, pg};

fn client_tls(engine: &config::Engine) -> ClientTls {
    let mode = match engine.tls {
        config::EngineTls::Disable => TlsMode::Disable,
        config::EngineTls::Prefer => TlsMode::Prefer,
        config::EngineTls::Require => TlsMode::Require,
        config::EngineTls::VerifyCa => TlsMode::VerifyCa,
        config::EngineTls::VerifyFull => TlsMode::VerifyFull,
    };
    ClientTls { mode, ca_file: engine.ca_file.clone() }
}

/// Engines for client sessions, by protocol and name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Endpoints {
    pg: HashMap<EngineName, Arc<pg::endpoint::Endpoint>>,
    mysql: HashMap<EngineName, Arc<mysql::endpoint::Endpoint>>,
}

impl Endpoints {
    /// Adds an engine; its CA file is read here.
    pub(crate) fn add(&mut self, engine: &config::Engine) -> Result<(), AppError> {
        let (tls, name, bound) = (client_tls(engine), engine.name.clone(), engine.connect_timeout);
        let tcp = |host: &str, port| Address::Tcp(host.to_owned(), port);
        match engine.protocol {
            config::Protocol::Postgres => {
                let address = match &engine.host {
                    config::EngineHost::Tcp { host, port } => tcp(host, *port),
                    config::EngineHost::Unix { path, port } => {
                        Address::Unix(path.join(format!(".s.PGSQL.{port}")))
                    }
                };
                let endpoint = pg::endpoint::Endpoint::new(name.clone(), address, &tls, bound)?;
                self.pg.insert(name, Arc::new(endpoint));
            }
            config::Protocol::Mysql => {
                let address = match &engine.host {
                    config::EngineHost::Tcp { host, port } => tcp(host, *port),
                    config::EngineHost::Unix { path, .. } => Address::Unix(path.clone()),
                };
                let endpoint = mysql::endpoint::Endpoint::new(name.clone(), address, &tls, bound)?;
                self.mysql.insert(name, Arc::new(endpoint));
            }
        }
        Ok(())
    }
}

/// An engine for control connections.
pub(crate) fn control_engine(config: &Config, engine: &config::Engine) -> engine::Settings {
    let (host, port) = match &engine.host {
        config::EngineHost::Tcp { host, port } => (host.clone(), *port),
        config::EngineHost::Unix { path, port } => (path.display().to_string(), *port),
    };
    engine::Settings {
        name: engine.name.clone(),
        instance: config.proxy.instance.clone(),
        host,
        port,
        user: engine.user.clone(),
        password: engine.password.clone(),
        database: engine.database.clone(),
        tls: client_tls(engine),
        connect_timeout: engine.connect_timeout,
        statement_timeout: std::time::Duration::from_millis(limits::CONTROL_STATEMENT_TIMEOUT_MS),
        engine_lock: engine_lock(config.fence.engine_lock),
        lock_timeout: std::time::Duration::from_millis(limits::ENGINE_LOCK_TIMEOUT_MS),
    }
}

const fn engine_lock(mode: config::EngineLock) -> engine::EngineLock {
    match mode {
        config::EngineLock::Hold => engine::EngineLock::Hold,
        config::EngineLock::Confirm => engine::EngineLock::Confirm,
        config::EngineLock::Off => engine::EngineLock::Off,
    }
}

/// Address, settings and certificate of a listener.
pub(crate) type ListenerParts = (ListenAddress, Service, Option<Arc<ReloadingServerTls>>);

/// A listener's address and settings; its certificate files are read here.
pub(crate) fn listen(listen: &config::Listen) -> Result<ListenerParts, AppError> {
    let address = match &listen.address {
        config::ListenAddress::Tcp { .. } => ListenAddress::Tcp(listen.address.to_string()),
        config::ListenAddress::Unix(path) => ListenAddress::Unix(path.clone()),
    };
    let certificate = match &listen.certificate {
        None => None,
        Some(files) => Some(Arc::new(ReloadingServerTls::load(
            files.cert_file.clone(),
            files.key_file.clone(),
            files.client_ca_file.clone(),
        )?)),
    };
    let tls = match (listen.tls, &certificate) {
        (config::ListenTls::Allow, Some(tls)) => ClientSideTls::Allow(Arc::clone(tls)),
        (config::ListenTls::Require, Some(tls)) => ClientSideTls::Require(Arc::clone(tls)),
        (config::ListenTls::Disable | config::ListenTls::Allow | config::ListenTls::Require, _) => {
            ClientSideTls::Disable
        }
    };
    let default_engine = listen.default_engine.clone();
    let service = match listen.protocol {
        config::Protocol::Postgres => {
            let auto_prepare = listen.auto_prepare;
            Service::Pg(Arc::new(pg::session::Settings { default_engine, tls, auto_prepare }))
        }
        config::Protocol::Mysql => {
            Service::Mysql(Arc::new(mysql::session::Settings { default_engine, tls }))
        }
    };
    Ok((address, service, certificate))
}

/// How to log.
pub(crate) fn trace(log: &config::Log) -> trace::Settings {
    trace::Settings {
        filter: log.filter.clone(),
        format: match log.format {
            config::LogFormat::Text => trace::Format::Text,
            config::LogFormat::Json => trace::Format::Json,
        },
    }
}

/// The route table as written.
pub(crate) fn route_table(config: &Config) -> RouteTable {
    let routes = config.routes.iter().map(|route| (route.name.clone(), route.namespace.clone()));
    RouteTable {
        routes: routes.collect::<BTreeMap<_, _>>(),
        engines: config.engines.iter().map(|engine| engine.name.clone()).collect(),
    }
}

/// What control is told of one namespace.
pub(crate) fn namespace_settings(config: &Config, namespace: &Namespace) -> NamespaceSettings {
    let fence = config.fence_for(namespace);
    let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    NamespaceSettings {
        write_drain_ms: ms(fence.write_drain),
        read_drain_ms: ms(fence.read_drain),
        in_flight: match fence.in_flight {
            config::InFlight::Finish => InFlight::Finish,
            config::InFlight::Refuse => InFlight::Refuse,
        },
        hold_ms: ms(fence.hold),
        held_max: fence.max_held,
        sole_path_required: fence.sole_path == config::SolePath::Require,
        engine_lock: match fence.engine_lock {
            config::EngineLock::Hold => LockMode::Hold,
            config::EngineLock::Confirm => LockMode::Confirm,
            config::EngineLock::Off => LockMode::Off,
        },
        lock_timeout: std::time::Duration::from_millis(limits::ENGINE_LOCK_TIMEOUT_MS),
        receipt_retention_ms: u64::from(fence.receipt_retention_days) * 24 * 60 * 60 * 1000,
    }
}

/// Names to namespaces and endpoints, for the wire.
#[derive(Debug)]
pub(crate) struct WireDirectory {
    /// Routes in force.
    pub(crate) routes: Arc<Routes>,
    /// Engines by name, replaced as a whole by a reload.
    pub(crate) endpoints: arc_swap::ArcSwap<Endpoints>,
    /// Cleared when the proxy stops.
    pub(crate) open: std::sync::atomic::AtomicBool,
}

impl WireDirectory {
    fn namespace(&self, default_engine: &EngineName, database: &str) -> Result<Namespace, String> {
        self.routes.resolve(default_engine, database).map_err(|error| error.to_string())
    }

    fn takes_sessions(&self) -> bool {
        self.open.load(std::sync::atomic::Ordering::SeqCst)
    }
}

/// What a client is told whose database leads to an engine it can't speak to.
fn no_endpoint(engine: &EngineName, protocol: &str) -> String {
    format!("engine {engine} is not configured, or doesn't speak {protocol}")
}

impl Directory<pg::endpoint::Endpoint> for WireDirectory {
    fn resolve(
        &self,
        default_engine: &EngineName,
        database: &str,
    ) -> Result<Target<pg::endpoint::Endpoint>, String> {
        let namespace = self.namespace(default_engine, database)?;
        let endpoint = Directory::<pg::endpoint::Endpoint>::endpoint(self, namespace.engine())?;
        Ok(Target { namespace, endpoint })
    }

    fn endpoint(&self, engine: &EngineName) -> Result<Arc<pg::endpoint::Endpoint>, String> {
        let found = self.endpoints.load().pg.get(engine).map(Arc::clone);
        found.ok_or_else(|| no_endpoint(engine, "PostgreSQL"))
    }

    fn is_open(&self) -> bool {
        self.takes_sessions()
    }
}

impl Directory<mysql::endpoint::Endpoint> for WireDirectory {
    fn resolve(
        &self,
        default_engine: &EngineName,
        database: &str,
    ) -> Result<Target<mysql::endpoint::Endpoint>, String> {
        let namespace = self.namespace(default_engine, database)?;
        let endpoint = Directory::<mysql::endpoint::Endpoint>::endpoint(self, namespace.engine())?;
        Ok(Target { namespace, endpoint })
    }

    fn endpoint(&self, engine: &EngineName) -> Result<Arc<mysql::endpoint::Endpoint>, String> {
        let found = self.endpoints.load().mysql.get(engine).map(Arc::clone);
        found.ok_or_else(|| no_endpoint(engine, "MySQL"))
    }

    fn is_open(&self) -> bool {
        self.takes_sessions()
    }
}
