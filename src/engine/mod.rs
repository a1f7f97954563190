//! Control connections: what an engine itself says, and the few things we ask it to do.
//!
//! Purpose: identity of an engine, the census of transactions in flight, the engine lock, the
//! boundary, and bounded termination of backends. Everything that a drain calls evidence about the
//! engine is made here; [`Cutoff`], [`CensusClear`], [`Boundary`], [`LogBoundary`], [`LockHandle`]
//! and [`MyLockHandle`] have private constructors, so nobody else can claim it.
//!
//! Invariants: control connections never serve clients (INVARIANTS 12): no type of this module
//! lets a caller send text of its own to an engine, but for a validation's questions, which are
//! proven to be reads and have a connection of their own ([`validation`]). An answer that can't be
//! had is an error, never an empty list.
//!
//! Called by `control` (drains, recovery) and by `admin` through it. It decides nothing about
//! fences, keeps no state beyond its connections, and retries nothing: callers own rounds and
//! deadlines.

use std::time::Duration;

use crate::base::ids::EngineName;
use crate::base::secret::Secret;
use crate::tls::ClientTls;

pub mod boundary;
pub mod census;
pub mod creation;
pub mod error;
pub mod identity;
pub mod mysql;
pub mod postgres;
pub mod validation;

pub use boundary::{Boundary, LogBoundary, LogPosition};
pub use census::{
    Blocker, CensusClear, CensusCounts, CensusOutcome, Cutoff, CutoffEntry, Orphan, ProxySession,
    ProxyView, Why,
};
pub use creation::{CreateError, NewDatabase};
pub use error::{EngineError, LockError};
pub use identity::{BackendKey, EngineTime, LiveIdentity, Lsn};
pub use mysql::MyEngine;
pub use mysql::lock::MyLockHandle;
pub use postgres::PgEngine;
pub use postgres::boundary::MARKER_PREFIX;
pub use postgres::lock::{LockCoverage, LockHandle, LockSession};
pub use postgres::preflight::{Warning, WarningCode};
pub use postgres::terminate::{Activity, Terminated};
pub use validation::{ReadError, ReadTable};

/// What to do with the engine lock under a source write fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineLock {
    /// Take it before the boundary and keep it as long as the fence lasts.
    Hold,
    /// Take it as evidence and release it after the boundary.
    Confirm,
    /// Don't take it.
    Off,
}

/// Settings of one engine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The engine's name in namespaces and messages.
    pub name: EngineName,
    /// This process's name; control connections call themselves `fencewire/<instance>`.
    pub instance: String,
    /// Host name or address; a text that begins with `/` is the folder of a Unix socket.
    pub host: String,
    /// TCP port, or the number in the Unix socket's name.
    pub port: u16,
    /// The control role.
    pub user: String,
    /// Its password, if it needs one.
    pub password: Option<Secret>,
    /// The database for questions that concern no namespace.
    pub database: String,
    /// TLS towards this engine; ignored on a Unix socket.
    pub tls: ClientTls,
    /// Bound of one connection attempt: TCP, TLS and login together.
    pub connect_timeout: Duration,
    /// The engine's bound of one control statement.
    pub statement_timeout: Duration,
    /// What to do with the engine lock.
    pub engine_lock: EngineLock,
    /// How long one attempt to take the engine lock waits for one table.
    pub lock_timeout: Duration,
}

impl Settings {
    /// Whether `host` is the folder of a Unix socket.
    #[must_use]
    pub fn is_unix(&self) -> bool {
        self.host.starts_with('/')
    }
}
