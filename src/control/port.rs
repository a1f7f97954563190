//! What control asks of an engine, as traits.
//!
//! Purpose: a drain needs six questions and two acts; behind these traits stands a live engine
//! (`control/pg.rs`) or, in tests, a script. The evidence that the engine layer makes under private
//! constructors is taken by value in `control/pg.rs` and becomes claims there; nothing else outside
//! tests implements these traits.
//!
//! Callers: `control/drain.rs`, `control/lock_keeper.rs`, `control/orphans.rs`, `control/fences.rs`
//! (identity). Nothing here retries or bounds: callers own rounds and deadlines.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::base::ids::{Namespace, OperationId, Revision};
use crate::base::run::EngineRun;
use crate::engine::{
    Activity, BackendKey, Blocker, CreateError, EngineError, LockError, NewDatabase, ProxyView,
    ReadError, ReadTable, Terminated,
};
use crate::fence::record::{Boundary, Census, Identity};

/// What every question returns: object-safe.
///
/// Cancel safety, for all of them: dropping the future leaves the engine's answer unread and
/// changes nothing here; an act (terminate, boundary marker) may still happen.
pub type PortFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Which database a namespace is, as its engine says now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiveDatabase {
    /// It exists, and this is it.
    Exists(Identity),
    /// The engine answered that there is no such database.
    Missing,
}

/// Which server answers under an engine's name now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// It, and its run.
    pub run: EngineRun,
    /// Whether it is a standby: it admits no write, and runs beside the primary of the same names.
    pub standby: bool,
}

/// A clear census, as a claim for the proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearCensus {
    /// Which database was asked about.
    pub namespace: Namespace,
    /// That database, as the engine that answered identified it.
    pub identity: Identity,
    /// What it counted.
    pub census: Census,
    /// Why it proves nothing without the engine lock, if that is so.
    pub blind: Option<&'static str>,
}

/// A boundary as an engine told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedBoundary {
    /// Where it is.
    pub boundary: Boundary,
    /// Whether the session that holds the engine lock told it; `None` for an engine where any
    /// session may, since the lock is confirmed by itself.
    pub under_lock: Option<bool>,
}

/// The census's answer.
#[derive(Debug)]
pub enum CensusAnswer {
    /// Nothing is left that could commit.
    Clear(ClearCensus),
    /// These are left; never empty.
    Residue(Vec<Blocker>),
}

/// Everything that was in flight at one instant after write admission closed.
pub trait Observation: Send + Sync {
    /// Asks what is left of it. `view` must have been taken just before.
    fn census<'a>(
        &'a self,
        view: &'a ProxyView,
    ) -> PortFuture<'a, Result<CensusAnswer, EngineError>>;
}

/// Share locks on every table of a database, held on a connection of their own.
pub trait HeldLock: Send + Sync {
    /// How many tables it covers.
    fn tables(&self) -> u64;

    /// What it doesn't cover, one sentence each.
    fn gaps(&self) -> Vec<String>;

    /// Which database the holder's own session is in. A name may lead a new connection to another
    /// server than those that are kept.
    fn identity(&self) -> Identity;

    /// The process id of the backend that holds it.
    fn backend_pid(&self) -> i32;

    /// Whether it is known to be gone.
    fn is_lost(&self) -> bool;

    /// Asks the engine, through the holder itself, whether it holds it: behind a silent link a
    /// lock can be gone without being known to be.
    fn confirm(&self) -> PortFuture<'_, Result<(), LockError>>;

    /// Completes when it is gone. Borrows nothing; cancel safe.
    fn lost(&self) -> PortFuture<'static, ()>;

    /// Gives it back and waits for the engine's word.
    fn release(self: Box<Self>) -> PortFuture<'static, Result<(), LockError>>;
}

/// A connection that the engine lock can be taken on, opened while nothing needed it yet. It has
/// begun nothing and holds nothing; dropping it closes it.
pub trait ReadyHolder: Send + Sync {
    /// Which database its session is in, as it said itself when it was opened. The lock's own word
    /// counts ([`HeldLock::identity`]): this one keeps the lock from being asked for elsewhere.
    fn identity(&self) -> Identity;

    /// Whether it is known to be gone.
    fn is_lost(&self) -> bool;

    /// As [`EnginePort::take_lock`], on this connection.
    fn take(self: Box<Self>, timeout: Duration) -> PortFuture<'static, LockResult>;
}

/// What one attempt at the engine lock comes to.
pub type LockResult = Result<Box<dyn HeldLock>, LockError>;

/// One engine.
pub trait EnginePort: Send + Sync {
    /// Which database the namespace is now.
    fn identity<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> PortFuture<'a, Result<LiveDatabase, EngineError>>;

    /// Which server this is, whatever its databases.
    fn server(&self) -> PortFuture<'_, Result<Server, EngineError>>;

    /// Whether its servers have timelines. Where they have, nothing without one is of this kind.
    fn has_timelines(&self) -> bool {
        false
    }

    /// Whether one session's program may reach every database of the server by name. Where it may,
    /// a target waits for what ran before its name was closed.
    fn reaches_every_database(&self) -> bool;

    /// The text that the engine runs at each login by itself, in front of any guard; empty where it
    /// has none.
    fn login_text(&self) -> PortFuture<'_, Result<Vec<u8>, EngineError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// What [`EnginePort::login_text`] answered last; `None` before that.
    fn known_login_text(&self) -> Option<Vec<u8>> {
        Some(Vec::new())
    }

    /// Everything in flight now; asked just after the gate has closed.
    fn cutoff<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> PortFuture<'a, Result<Arc<dyn Observation>, EngineError>>;

    /// One attempt at the engine lock, waiting at most about `timeout` per table.
    fn take_lock<'a>(
        &'a self,
        namespace: &'a Namespace,
        timeout: Duration,
    ) -> PortFuture<'a, LockResult>;

    /// Opens a connection for a lock that is wanted later; `None` where the engine's locks are
    /// taken as they are needed. Until it answers a census takes it for a stranger's.
    fn ready_holder<'a>(
        &'a self,
        _namespace: &'a Namespace,
    ) -> PortFuture<'a, Result<Option<Box<dyn ReadyHolder>>, EngineError>> {
        Box::pin(async { Ok(None) })
    }

    /// Writes the marker and reads the position behind it.
    fn mark_boundary<'a>(
        &'a self,
        namespace: &'a Namespace,
        operation: OperationId,
        revision: Revision,
    ) -> PortFuture<'a, Result<MarkedBoundary, EngineError>>;

    /// Asks for the end of one backend, if it is still the one meant.
    fn terminate(&self, backend: BackendKey) -> PortFuture<'_, Result<Terminated, EngineError>>;

    /// Asks for the end of what one backend runs, if it is still the one meant. Only for sessions
    /// that can't be cancelled over their own protocol; an engine of others does nothing.
    fn cancel(&self, _backend: BackendKey) -> PortFuture<'_, Result<Terminated, EngineError>> {
        Box::pin(async { Ok(Terminated::Gone) })
    }

    /// Ends own backends that the engine still has although their connection ended here; answers
    /// how many. Asks nothing while there are none.
    fn end_strays(&self) -> PortFuture<'_, Result<u64, EngineError>>;

    /// Makes a target's database, empty.
    fn create<'a>(
        &'a self,
        namespace: &'a Namespace,
        wanted: &'a NewDatabase,
    ) -> PortFuture<'a, Result<(), CreateError>>;

    /// Whether anybody has put anything into a database.
    fn holds_anything<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> PortFuture<'a, Result<bool, EngineError>>;

    /// Answers texts that only read, in one snapshot, all of them or none.
    fn read<'a>(
        &'a self,
        namespace: &'a Namespace,
        statements: &'a [String],
    ) -> PortFuture<'a, Result<Vec<ReadTable>, ReadError>>;

    /// The names of what the database itself runs at a login, if anything is enabled. An engine
    /// that has no such thing says so without being asked.
    fn login_triggers<'a>(
        &'a self,
        _namespace: &'a Namespace,
    ) -> PortFuture<'a, Result<Vec<String>, EngineError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// What these backends are doing; those that have ended are absent.
    fn activity<'a>(
        &'a self,
        pids: &'a [i32],
    ) -> PortFuture<'a, Result<Vec<Activity>, EngineError>>;
}
