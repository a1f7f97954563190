//! The census in words that hold for every kind of engine: what is asked, and what it answers.
//!
//! Purpose: [`Cutoff`] (what was in flight when write admission closed), [`ProxyView`] (what the
//! proxy knows about its own sessions), and the two outcomes: [`CensusClear`], which is evidence
//! and has no public constructor, or the [`Blocker`]s by name. Made by `engine::postgres`; read by
//! `control`. Nothing here asks an engine or decides; see `engine::postgres::judge`.

use std::collections::{HashMap, HashSet};

use super::identity::{BackendKey, EngineTime, LiveIdentity};
use crate::base::ids::{Namespace, SessionId};

/// A session of this proxy, by the pid of its engine backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxySession {
    /// The session.
    pub session: SessionId,
    /// Its lease is a writer's, or it may still become one. `false` is a promise of the caller:
    /// every further program of its transaction is admitted as a read only.
    pub is_writer: bool,
    /// A program was forwarded and its end has not been observed.
    pub in_program: bool,
}

/// An engine connection that the proxy lost or gave up while a program was running on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orphan {
    /// The backend's pid, as the engine told it at login.
    pub pid: i32,
    /// The session it belonged to.
    pub session: SessionId,
    /// The backend's start, when a census had seen it before it was lost.
    pub backend_start: Option<EngineTime>,
}

/// What the proxy (all proxies of the namespace) knows, taken just before the census is asked.
#[derive(Debug, Clone, Default)]
pub struct ProxyView {
    /// Live sessions of the namespace by backend pid.
    pub sessions: HashMap<i32, ProxySession>,
    /// Backends of live sessions of other namespaces of this engine, where a session's programs
    /// may reach this one as well: each is admitted here too.
    pub elsewhere: HashSet<i32>,
    /// Connections lost in the middle of work, since the gate closed and before.
    pub orphans: Vec<Orphan>,
    /// Whether sessions that bypass the proxy block even when they are idle.
    pub sole_path_required: bool,
    /// Whether what is drained is a target's import: no lock will keep out what runs by itself.
    pub is_import: bool,
    /// Backends of the operation itself, such as its copy jobs; exempt by identity.
    pub operation_backends: Vec<BackendKey>,
    /// Replication slots of the operation; a walsender that streams one of them is exempt.
    pub operation_slots: Vec<String>,
}

/// One transaction that was open at the cutoff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutoffEntry {
    /// The engine's own name of the transaction (PostgreSQL: virtual transaction id).
    pub transaction: String,
    /// The backend that runs it.
    pub pid: i32,
    /// When that backend started; `None` when the engine no longer or not yet described it.
    pub backend_start: Option<EngineTime>,
    /// Kind of backend, such as `client backend`.
    pub backend_type: String,
    /// Its role.
    pub user: String,
    /// Its application name.
    pub application_name: String,
    /// Its peer, such as `10.0.0.7:51234`, or `local`.
    pub client: String,
    /// When the transaction began.
    pub xact_start: Option<EngineTime>,
    /// The engine's word for what it is doing.
    pub state: String,
    /// Its last statement, cut to a bound.
    pub statement: String,
}

/// Every transaction that was open in a namespace just after its write admission had closed.
#[derive(Debug, Clone)]
pub struct Cutoff {
    pub(in crate::engine) namespace: Namespace,
    pub(in crate::engine) identity: LiveIdentity,
    pub(in crate::engine) at: EngineTime,
    pub(in crate::engine) entries: Vec<CutoffEntry>,
}

impl Cutoff {
    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The engine as it was then.
    #[must_use]
    pub fn identity(&self) -> &LiveIdentity {
        &self.identity
    }

    /// When, by the engine's clock.
    #[must_use]
    pub fn at(&self) -> EngineTime {
        self.at
    }

    /// The transactions.
    #[must_use]
    pub fn entries(&self) -> &[CutoffEntry] {
        &self.entries
    }
}

/// Why something keeps a drain from being proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// A transaction that was open when write admission closed.
    OpenAtCutoff,
    /// It has a transaction id or write locks, though the gate is closed.
    Writing,
    /// A proxy session whose lease is a writer's, with work in flight.
    ProxyWriter,
    /// A prepared transaction: it can be committed from anywhere.
    Prepared,
    /// A backend that the proxy lost in the middle of work and that still exists.
    Orphan,
    /// A session that bypasses the proxy and is in a transaction.
    DirectInTransaction,
    /// A session that bypasses the proxy, idle, where none may exist.
    DirectIdle,
    /// It holds a lock that the engine lock has to wait for.
    HoldsTableLock,
    /// It was killed and is still undoing its work, or finishing what it can't undo.
    RollingBack,
    /// An event of an import that is enabled: the engine runs it by itself (MySQL, MariaDB).
    Event,
}

impl Why {
    /// A stable word for APIs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAtCutoff => "open_at_cutoff",
            Self::Writing => "writing_after_close",
            Self::ProxyWriter => "proxy_writer",
            Self::Prepared => "prepared",
            Self::Orphan => "orphan",
            Self::DirectInTransaction => "direct_in_transaction",
            Self::DirectIdle => "direct_idle",
            Self::HoldsTableLock => "holds_table_lock",
            Self::RollingBack => "rolling_back",
            Self::Event => "event",
        }
    }

    /// A sentence for people: what it is and what ends it.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::OpenAtCutoff => {
                "its transaction was open when the gate closed; wait for it or end it"
            }
            Self::Writing => "it is writing after the gate closed; end it, then the drain repeats",
            Self::ProxyWriter => "a write admitted before the gate closed is still running",
            Self::Prepared => {
                "a prepared transaction; COMMIT PREPARED or ROLLBACK PREPARED it (MySQL: XA COMMIT \
                 or XA ROLLBACK)"
            }
            Self::Orphan => {
                "its client connection was lost in the middle of work; it may still commit"
            }
            Self::DirectInTransaction => {
                "it is connected around the proxy and in a transaction; end it or its session"
            }
            Self::DirectIdle => "it is connected around the proxy, which sole_path forbids",
            Self::HoldsTableLock => "it holds a lock that the engine lock has to wait for",
            Self::RollingBack => "it was ended and is still rolling back; wait until it is gone",
            Self::Event => {
                "an event of the import is enabled and would write behind the seal; ALTER EVENT it \
                 to DISABLE around the proxy (before the seal: in the import itself)"
            }
        }
    }
}

/// One named reason why a drain isn't proven yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// The proxy session, when it is one.
    pub session: Option<SessionId>,
    /// The backend; `None` for a prepared transaction, which has none.
    pub pid: Option<i32>,
    /// When the backend started.
    pub backend_start: Option<EngineTime>,
    /// Kind of backend, such as `client backend`.
    pub backend_type: String,
    /// Its role.
    pub user: String,
    /// Its application name.
    pub application_name: String,
    /// Its peer, such as `10.0.0.7:51234`, or `local`.
    pub client: String,
    /// The engine's word for what it is doing, such as `idle in transaction`.
    pub state: String,
    /// What it waits for inside the engine, such as `Lock/relation`.
    pub wait: Option<String>,
    /// Why it blocks.
    pub why: Why,
    /// Age of its transaction by the engine's clock, in milliseconds.
    pub age_ms: Option<u64>,
    /// Its last statement, cut to a bound; may hold literals of the application.
    pub statement: String,
    /// The prepared transaction's identifier, the table whose lock it holds, or the event.
    pub object: Option<String>,
}

/// What a clear census saw; every number is a count of backends unless said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CensusCounts {
    /// Transactions in the cutoff.
    pub cutoff: usize,
    /// Transactions of the cutoff that still run and belong to readers that can't become writers.
    pub readers_exempt: usize,
    /// Sessions of the proxy.
    pub proxied: usize,
    /// Idle sessions that bypass the proxy.
    pub direct_idle: usize,
    /// Replication streams that don't belong to the operation.
    pub streams: usize,
    /// Autovacuum and its like.
    pub maintenance: usize,
    /// Backends of the operation itself.
    pub operation: usize,
    /// Orphans that the engine no longer has.
    pub orphans_gone: usize,
}

/// Evidence: the engine had nothing left that was admitted before the cutoff and could commit.
#[derive(Debug)]
pub struct CensusClear {
    pub(in crate::engine) namespace: Namespace,
    pub(in crate::engine) identity: LiveIdentity,
    pub(in crate::engine) cutoff_at: EngineTime,
    pub(in crate::engine) at: EngineTime,
    pub(in crate::engine) counts: CensusCounts,
    pub(in crate::engine) blind: Option<&'static str>,
}

impl CensusClear {
    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The engine's system identifier.
    #[must_use]
    pub fn engine_id(&self) -> &str {
        &self.identity.engine_id
    }

    /// The engine's timeline.
    #[must_use]
    pub fn timeline(&self) -> i32 {
        self.identity.timeline
    }

    /// The engine as the census saw it.
    #[must_use]
    pub fn identity(&self) -> &LiveIdentity {
        &self.identity
    }

    /// When the cutoff was taken, by the engine's clock.
    #[must_use]
    pub fn cutoff_at(&self) -> EngineTime {
        self.cutoff_at
    }

    /// When the census began, by the engine's clock.
    #[must_use]
    pub fn at(&self) -> EngineTime {
        self.at
    }

    /// What it saw.
    #[must_use]
    pub fn counts(&self) -> CensusCounts {
        self.counts
    }

    /// Why it proves nothing unless the engine lock was granted as well: what couldn't be seen, and
    /// what to do. `None` where it stands by itself, and on MariaDB, where it never does and the
    /// evidence says so.
    #[must_use]
    pub fn blind(&self) -> Option<&'static str> {
        self.blind
    }
}

/// The census's answer.
#[derive(Debug)]
pub enum CensusOutcome {
    /// Nothing is left.
    Clear(CensusClear),
    /// These are left; never empty.
    Residue(Vec<Blocker>),
}
