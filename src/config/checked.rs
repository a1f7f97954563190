//! The configuration after checking: plain values that every part's settings are made from.
//!
//! Purpose: what is in these types is usable: names are valid, references resolve, files were
//! readable, defaults are filled in. Called by `app`, which converts to each part's own settings,
//! and by `cli`. These types know nothing of the parts, and none of them prints a secret.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use crate::base::ids::{EngineName, Namespace};
use crate::base::secret::Secret;

/// A whole configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file it came from; `None` when it came from the command line.
    pub source: Option<PathBuf>,
    /// `[proxy]`
    pub proxy: Proxy,
    /// `[log]`
    pub log: Log,
    /// `[store]`
    pub store: Store,
    /// `[admin]`
    pub admin: Admin,
    /// `[[engine]]`, in file order; at least one.
    pub engines: Vec<Engine>,
    /// `[[listen]]`, in file order; at least one.
    pub listens: Vec<Listen>,
    /// `[[route]]`, in file order; names are unique.
    pub routes: Vec<Route>,
    /// `[fence]`
    pub fence: Fence,
    /// `[namespace."engine/database"]`, merged over `[fence]`; see [`Config::fence_for`].
    pub namespaces: BTreeMap<Namespace, Fence>,
    /// `[compat.sqlstate]`: our SQLSTATE to the one that clients get instead.
    pub compat_sqlstate: BTreeMap<String, String>,
    /// What was accepted and is worth a look, in sentences; see [`Config::notices`].
    pub(super) notes: Vec<String>,
}

/// A wire protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    Mysql,
}

impl Protocol {
    /// As written in files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
        }
    }

    /// The port its servers use unless told otherwise.
    #[must_use]
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Postgres => 5432,
            Self::Mysql => 3306,
        }
    }
}

/// `[proxy]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// This proxy's name; must be unique in a fleet.
    pub instance: String,
    /// Directory of the embedded store, markers and the generated key.
    pub state_dir: PathBuf,
    /// How long a stopping proxy lets running programs finish.
    pub shutdown_grace: Duration,
    /// Client sessions at once; one more is refused.
    pub max_sessions: usize,
    /// Worker threads; `None` means one per core.
    pub workers: Option<NonZeroUsize>,
}

/// Shape of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Readable lines.
    Text,
    /// JSON lines.
    Json,
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// A tracing filter that parses.
    pub filter: String,
    /// Shape of the lines.
    pub format: LogFormat,
}

/// `[store]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Store {
    /// The embedded store, in this file.
    Sqlite(PathBuf),
}

/// Where the admin key comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// This file; it was readable.
    File(PathBuf),
    /// This environment variable; it was set.
    Variable(String),
    /// `state_dir/admin.key`, made at first start.
    Generated,
    /// No key: command routes are off.
    Off,
}

/// `[admin]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// Where the admin HTTP surface listens.
    pub http: ListenAddress,
    /// Where the console for `psql` listens; `None` means that there is none.
    pub postgres: Option<ListenAddress>,
    /// Where the console for `mysql` listens; `None` means that there is none.
    pub mysql: Option<ListenAddress>,
    /// The key that commands need, and the password of the consoles.
    pub key: KeySource,
    /// The second key that adoptions need; `None` means adoption is off.
    pub adoption_key_file: Option<PathBuf>,
    /// Whether `/metrics` answers without the key.
    pub open_metrics: bool,
    /// Whether statements are shown with their literals.
    pub show_literals: bool,
}

/// Where an engine is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineHost {
    /// Over TCP.
    Tcp {
        /// Name or address (IPv6 without brackets).
        host: String,
        /// Port.
        port: u16,
    },
    /// Over a unix socket. For PostgreSQL `path` is the directory of `.s.PGSQL.<port>`, for MySQL
    /// and MariaDB the socket itself.
    Unix {
        /// Absolute path.
        path: PathBuf,
        /// Port, part of a PostgreSQL socket's name.
        port: u16,
    },
}

/// How far TLS toward an engine is insisted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineTls {
    /// Never.
    Disable,
    /// When the engine offers it; no check of the certificate.
    Prefer,
    /// Always; no check of the certificate.
    Require,
    /// Always; the certificate must come from the CA.
    VerifyCa,
    /// Always; the CA and the host name must match.
    VerifyFull,
}

/// `[[engine]]`
#[derive(Debug, Clone)]
pub struct Engine {
    /// Its name in namespaces.
    pub name: EngineName,
    /// Its protocol.
    pub protocol: Protocol,
    /// Where it is, for control connections and for clients.
    pub host: EngineHost,
    /// Who the control connection logs in as.
    pub user: String,
    /// With which password; `None` when the engine asks for none.
    pub password: Option<Secret>,
    /// The database that the control connection uses; empty for none (MySQL and MariaDB).
    pub database: String,
    /// TLS toward it.
    pub tls: EngineTls,
    /// CA certificates (PEM); `None` means the public ones.
    pub ca_file: Option<PathBuf>,
    /// Bound on connecting, login included.
    pub connect_timeout: Duration,
}

/// Where a listener listens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListenAddress {
    /// Over TCP.
    Tcp {
        /// Name or address (IPv6 without brackets).
        host: String,
        /// Port, from 1.
        port: u16,
    },
    /// A unix socket at this absolute path.
    Unix(PathBuf),
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Whether clients of a listener may or must use TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenTls {
    /// TLS is declined.
    Disable,
    /// The client chooses.
    Allow,
    /// A client without TLS is refused.
    Require,
}

/// A listener's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenCertificate {
    /// Chain (PEM).
    pub cert_file: PathBuf,
    /// Private key (PEM).
    pub key_file: PathBuf,
    /// CA of client certificates (PEM); set means that clients must have one.
    pub client_ca_file: Option<PathBuf>,
}

/// `[[listen]]`. Authentication is always passed through to the engine in this version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// Which protocol its clients speak.
    pub protocol: Protocol,
    /// Where.
    pub address: ListenAddress,
    /// Where databases without a route go; an engine of the same protocol.
    pub default_engine: EngineName,
    /// TLS toward its clients.
    pub tls: ListenTls,
    /// Present unless `tls` is [`ListenTls::Disable`].
    pub certificate: Option<ListenCertificate>,
    /// PostgreSQL: unnamed statements that come again are kept at the engine under names.
    pub auto_prepare: bool,
}

/// `[[route]]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// What clients put in their connection string.
    pub name: String,
    /// Where they land.
    pub namespace: Namespace,
}

/// What happens to transactions that were writing when a fence closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InFlight {
    /// They may run on to their end.
    Finish,
    /// Their further writes are refused.
    Refuse,
}

/// What is demanded about paths around the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SolePath {
    /// Direct sessions are shown in the evidence.
    Report,
    /// A proof needs the proxy to be the only path.
    Require,
}

/// The engine-side lock that a drain takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineLock {
    /// Taken and held while the fence stands.
    Hold,
    /// Taken once to confirm the drain.
    Confirm,
    /// Not taken.
    Off,
}

/// `[fence]`, or one namespace's merged values. The authority is the proxy in this version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// Off: command routes answer 404; existing fences are still enforced.
    pub enabled: bool,
    /// Deadline of a write drain that names none.
    pub write_drain: Duration,
    /// Deadline of a read drain that names none.
    pub read_drain: Duration,
    /// What happens to transactions in flight.
    pub in_flight: InFlight,
    /// How long a program that a closed write gate would refuse is held first; zero refuses it.
    pub hold: Duration,
    /// Programs that are held at once.
    pub max_held: usize,
    /// What is demanded about other paths.
    pub sole_path: SolePath,
    /// The engine-side lock.
    pub engine_lock: EngineLock,
    /// Functions, as `schema.name`, that may run while writes are closed.
    pub trusted_functions: Vec<String>,
    /// How long receipts of finished operations are kept, in days.
    pub receipt_retention_days: u32,
}

impl Config {
    /// The fence settings of one namespace.
    #[must_use]
    pub fn fence_for(&self, namespace: &Namespace) -> &Fence {
        self.namespaces.get(namespace).unwrap_or(&self.fence)
    }

    /// The engine of that name.
    #[must_use]
    pub fn engine(&self, name: &EngineName) -> Option<&Engine> {
        self.engines.iter().find(|engine| engine.name == *name)
    }

    /// What these settings allow that an operator may not expect, one sentence each: for the log
    /// and for `check-config`. Nothing of it is an error.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        let encrypted = |engine: &&Engine| {
            engine.protocol == Protocol::Mysql && engine.tls != EngineTls::Disable
        };
        let engines: Vec<&str> =
            self.engines.iter().filter(encrypted).map(|engine| engine.name.as_str()).collect();
        let plain = |listen: &&Listen| {
            listen.protocol == Protocol::Mysql
                && listen.tls != ListenTls::Require
                && matches!(listen.address, ListenAddress::Tcp { .. })
        };
        let notice = |listen: &Listen| {
            format!(
                "listener {} lets clients in without TLS while the way to {} may be encrypted: an \
                 account with REQUIRE SSL there sees TLS and admits them; set tls = \"require\" on \
                 the listener if such accounts come through it",
                listen.address,
                engines.join(", ")
            )
        };
        let listens = self.listens.iter().filter(plain).filter(|_| !engines.is_empty());
        listens.map(notice).chain(self.admin.notices()).chain(self.notes.iter().cloned()).collect()
    }
}

impl Admin {
    /// The consoles that are asked for, with the keys that ask for them.
    #[must_use]
    pub fn consoles(&self) -> Vec<(&'static str, Protocol, &ListenAddress)> {
        let postgres = self.postgres.iter();
        let postgres = postgres.map(|at| ("admin.postgres", Protocol::Postgres, at));
        let mysql = self.mysql.iter().map(|at| ("admin.mysql", Protocol::Mysql, at));
        postgres.chain(mysql).collect()
    }

    /// What an operator may not expect of the consoles.
    fn notices(&self) -> Vec<String> {
        let off = self.key == KeySource::Off;
        let notice = |(key, _, address): (&str, Protocol, &ListenAddress)| {
            if off {
                return Some(format!(
                    "the console of {key} ({address}) is off, because no admin key is configured: \
                     the key is its password; set [admin] key_file or key_env"
                ));
            }
            let ListenAddress::Tcp { host, .. } = address else { return None };
            let near = ["localhost", "127.0.0.1", "::1"].contains(&host.as_str());
            (!near).then(|| {
                format!(
                    "the console of {key} ({address}) has no TLS: what is typed there, and what it \
                     answers, can be read on the way; bind it to a private address"
                )
            })
        };
        self.consoles().into_iter().filter_map(notice).collect()
    }
}
