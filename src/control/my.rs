//! The live MySQL or MariaDB engine behind [`crate::control::port`].
//!
//! Purpose: takes the engine layer's evidence (`CensusClear`, `LogBoundary`, `MyLockHandle`) by
//! value and turns it into the claims that a proof is assembled from; the twin of `control::pg`.
//! Nothing but that evidence can become a claim (invariant 8).
//!
//! Callers: `app` wraps each configured engine. It decides nothing.

use std::sync::Arc;
use std::time::Duration;

use super::instant::rfc3339_ms;
use super::port::{
    CensusAnswer, ClearCensus, EnginePort, HeldLock, LiveDatabase, MarkedBoundary, Observation,
    PortFuture, Server,
};
use crate::base::ids::{Namespace, OperationId, Revision};
use crate::base::run::EngineRun;
use crate::engine::mysql::is_missing;
use crate::engine::{
    Activity, BackendKey, CensusClear, CensusOutcome, CreateError, Cutoff, EngineError, EngineTime,
    LockError, LogPosition, MyEngine, MyLockHandle, NewDatabase, ProxyView, ReadError, ReadTable,
    Terminated,
};
use crate::fence::record::{Boundary, BoundaryKind, Census, Identity};

/// One live engine.
#[derive(Debug, Clone)]
pub struct MyPort {
    engine: MyEngine,
}

impl MyPort {
    /// Wraps an engine's handle.
    #[must_use]
    pub const fn new(engine: MyEngine) -> Self {
        Self { engine }
    }
}

/// An instant of the engine's clock as text, RFC 3339 with milliseconds.
fn engine_clock(at: EngineTime) -> String {
    rfc3339_ms(u64::try_from(at.0 / 1000).unwrap_or(0))
}

struct MyObservation {
    engine: MyEngine,
    cutoff: Cutoff,
}

impl MyObservation {
    fn claim(clear: &CensusClear) -> ClearCensus {
        let counts = clear.counts();
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        ClearCensus {
            namespace: clear.namespace().clone(),
            identity: Identity {
                engine_id: clear.engine_id().to_owned(),
                timeline: None,
                database_id: clear.identity().database_id.clone(),
            },
            census: Census {
                at_engine_clock: engine_clock(clear.at()),
                virtual_transactions: count(counts.cutoff),
                waited_for: count(counts.cutoff.saturating_sub(counts.readers_exempt)),
                prepared: 0,
                orphans: 0,
                writers: 0,
                direct_sessions: count(counts.direct_idle),
            },
            blind: clear.blind(),
        }
    }
}

impl Observation for MyObservation {
    fn census<'a>(
        &'a self,
        view: &'a ProxyView,
    ) -> PortFuture<'a, Result<CensusAnswer, EngineError>> {
        Box::pin(async move {
            Ok(match self.engine.census(&self.cutoff, view).await? {
                CensusOutcome::Clear(clear) => CensusAnswer::Clear(Self::claim(&clear)),
                CensusOutcome::Residue(blockers) => CensusAnswer::Residue(blockers),
            })
        })
    }
}

struct MyLock(MyLockHandle);

impl HeldLock for MyLock {
    fn identity(&self) -> Identity {
        Identity {
            engine_id: self.0.engine_id().to_owned(),
            timeline: None,
            database_id: self.0.namespace().database().to_owned(),
        }
    }

    fn backend_pid(&self) -> i32 {
        self.0.backend().pid
    }

    fn tables(&self) -> u64 {
        u64::try_from(self.0.tables()).unwrap_or(u64::MAX)
    }

    fn gaps(&self) -> Vec<String> {
        self.0.gaps().to_vec()
    }

    fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    fn confirm(&self) -> PortFuture<'_, Result<(), LockError>> {
        Box::pin(self.0.confirm())
    }

    fn lost(&self) -> PortFuture<'static, ()> {
        Box::pin(self.0.lost())
    }

    fn release(self: Box<Self>) -> PortFuture<'static, Result<(), LockError>> {
        Box::pin(async move { self.0.release().await })
    }
}

impl EnginePort for MyPort {
    fn identity<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> PortFuture<'a, Result<LiveDatabase, EngineError>> {
        Box::pin(async move {
            match self.engine.identity(namespace.database()).await {
                Ok(live) => Ok(LiveDatabase::Exists(Identity {
                    timeline: None,
                    database_id: live.database_id,
                    engine_id: live.engine_id,
                })),
                Err(error) if is_missing(&error) => Ok(LiveDatabase::Missing),
                Err(error) => Err(error),
            }
        })
    }

    fn server(&self) -> PortFuture<'_, Result<Server, EngineError>> {
        Box::pin(async move {
            let (engine_id, started) = self.engine.server_run().await?;
            let run = EngineRun { engine_id, timeline: None, started: started.0 };
            Ok(Server { run, standby: false })
        })
    }

    fn reaches_every_database(&self) -> bool {
        true
    }

    fn login_text(&self) -> PortFuture<'_, Result<Vec<u8>, EngineError>> {
        Box::pin(self.engine.login_text())
    }

    fn known_login_text(&self) -> Option<Vec<u8>> {
        self.engine.known_login_text()
    }

    fn cutoff<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> PortFuture<'a, Result<Arc<dyn Observation>, EngineError>> {
        Box::pin(async move {
            let cutoff = self.engine.cutoff(namespace).await?;
            let engine = self.engine.clone();
            Ok(Arc::new(MyObservation { engine, cutoff }) as Arc<dyn Observation>)
        })
    }

    fn take_lock<'a>(
        &'a self,
        namespace: &'a Namespace,
        timeout: Duration,
    ) -> PortFuture<'a, Result<Box<dyn HeldLock>, LockError>> {
        Box::pin(async move {
            let handle = self.engine.take_lock(namespace, timeout).await?;
            Ok(Box::new(MyLock(handle)) as Box<dyn HeldLock>)
        })
    }

    fn mark_boundary<'a>(
        &'a self,
        namespace: &'a Namespace,
        operation: OperationId,
        revision: Revision,
    ) -> PortFuture<'a, Result<MarkedBoundary, EngineError>> {
        Box::pin(async move {
            let read = self.engine.mark_boundary(namespace, operation, revision).await?;
            let (kind, value) = match read.position() {
                LogPosition::Gtid(set) => (BoundaryKind::Gtid, set.clone()),
                LogPosition::Binlog(at) => (BoundaryKind::Binlog, at.clone()),
                LogPosition::Off => (BoundaryKind::None, String::new()),
            };
            let engine_id = read.engine_id().to_owned();
            let boundary = Boundary { kind, value, engine_id, timeline: None, marker: false };
            Ok(MarkedBoundary { boundary, under_lock: Some(read.is_locked()) })
        })
    }

    fn terminate(&self, backend: BackendKey) -> PortFuture<'_, Result<Terminated, EngineError>> {
        Box::pin(self.engine.terminate(backend))
    }

    fn cancel(&self, backend: BackendKey) -> PortFuture<'_, Result<Terminated, EngineError>> {
        Box::pin(self.engine.cancel(backend))
    }

    fn end_strays(&self) -> PortFuture<'_, Result<u64, EngineError>> {
        Box::pin(self.engine.end_strays())
    }

    fn create<'a>(
        &'a self,
        namespace: &'a Namespace,
        wanted: &'a NewDatabase,
    ) -> PortFuture<'a, Result<(), CreateError>> {
        Box::pin(self.engine.create_database(namespace, wanted))
    }

    fn holds_anything<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> PortFuture<'a, Result<bool, EngineError>> {
        Box::pin(self.engine.holds_anything(namespace))
    }

    fn read<'a>(
        &'a self,
        namespace: &'a Namespace,
        statements: &'a [String],
    ) -> PortFuture<'a, Result<Vec<ReadTable>, ReadError>> {
        Box::pin(self.engine.read(namespace, statements))
    }

    fn activity<'a>(
        &'a self,
        pids: &'a [i32],
    ) -> PortFuture<'a, Result<Vec<Activity>, EngineError>> {
        Box::pin(self.engine.activity(pids))
    }
}
