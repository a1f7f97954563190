//! The live PostgreSQL engine behind [`crate::control::port`].
//!
//! Purpose: takes the engine layer's evidence (`CensusClear`, `Boundary`, `LockHandle`) by value
//! and turns it into the claims that a proof is assembled from; `control::my` is its twin. Outside
//! tests there is no third, so nothing but that evidence can become a claim (invariant 8).
//!
//! Callers: `app` wraps each configured engine. It decides nothing.

use std::sync::Arc;
use std::time::Duration;

use super::instant::rfc3339_ms;
use super::port::{
    CensusAnswer, ClearCensus, EnginePort, HeldLock, LiveDatabase, LockResult, MarkedBoundary,
    Observation, PortFuture, ReadyHolder, Server,
};
use crate::base::ids::{Namespace, OperationId, Revision};
use crate::base::run::EngineRun;
use crate::engine::{
    Activity, BackendKey, CensusClear, CensusOutcome, CreateError, Cutoff, EngineError, EngineTime,
    LiveIdentity, LockError, LockHandle, LockSession, NewDatabase, PgEngine, ProxyView, ReadError,
    ReadTable, Terminated,
};
use crate::fence::record::{Boundary, BoundaryKind, Census, Identity};

/// One live engine.
#[derive(Debug, Clone)]
pub struct PgPort {
    engine: PgEngine,
}

impl PgPort {
    /// Wraps an engine's handle.
    #[must_use]
    pub const fn new(engine: PgEngine) -> Self {
        Self { engine }
    }
}

/// A PostgreSQL timeline as the fence records it. Timelines are positive.
fn timeline(number: i32) -> Option<u32> {
    u32::try_from(number).ok()
}

/// A database as the fence records it.
fn identity(live: &LiveIdentity) -> Identity {
    Identity {
        engine_id: live.engine_id.clone(),
        timeline: timeline(live.timeline),
        database_id: live.database_id.clone(),
    }
}

/// An instant of the engine's clock as text, RFC 3339 with milliseconds.
fn engine_clock(at: EngineTime) -> String {
    rfc3339_ms(u64::try_from(at.0 / 1000).unwrap_or(0))
}

struct PgObservation {
    engine: PgEngine,
    cutoff: Cutoff,
}

impl PgObservation {
    fn claim(&self, clear: &CensusClear) -> ClearCensus {
        let counts = clear.counts();
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        ClearCensus {
            namespace: clear.namespace().clone(),
            identity: Identity {
                engine_id: clear.engine_id().to_owned(),
                timeline: timeline(clear.timeline()),
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

impl Observation for PgObservation {
    fn census<'a>(
        &'a self,
        view: &'a ProxyView,
    ) -> PortFuture<'a, Result<CensusAnswer, EngineError>> {
        Box::pin(async move {
            Ok(match self.engine.census(&self.cutoff, view).await? {
                CensusOutcome::Clear(clear) => CensusAnswer::Clear(self.claim(&clear)),
                CensusOutcome::Residue(blockers) => CensusAnswer::Residue(blockers),
            })
        })
    }
}

struct PgLock(LockHandle);

impl HeldLock for PgLock {
    fn identity(&self) -> Identity {
        identity(self.0.identity())
    }

    fn backend_pid(&self) -> i32 {
        self.0.backend().pid
    }

    fn tables(&self) -> u64 {
        u64::try_from(self.0.tables()).unwrap_or(u64::MAX)
    }

    fn gaps(&self) -> Vec<String> {
        let mut gaps = vec![
            "sequences, materialized views, foreign tables and tables created later are not \
             locked"
                .to_owned(),
        ];
        if !self.0.large_objects() {
            gaps.push("large objects are not locked: the control role may not".to_owned());
        }
        gaps.extend_from_slice(self.0.opaque());
        gaps
    }

    fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    fn confirm(&self) -> PortFuture<'_, Result<(), LockError>> {
        Box::pin(async move {
            let held = self.0.coverage().await?.held;
            if held >= self.0.tables() {
                return Ok(());
            }
            Err(LockError::Lost {
                namespace: self.0.namespace().to_string(),
                words: format!("{held} of {} tables are locked", self.0.tables()),
            })
        })
    }

    fn lost(&self) -> PortFuture<'static, ()> {
        Box::pin(self.0.lost())
    }

    fn release(self: Box<Self>) -> PortFuture<'static, Result<(), LockError>> {
        Box::pin(async move { self.0.release().await })
    }
}

struct PgReadyHolder {
    engine: PgEngine,
    session: LockSession,
}

impl ReadyHolder for PgReadyHolder {
    fn identity(&self) -> Identity {
        identity(self.session.identity())
    }

    fn is_lost(&self) -> bool {
        self.session.is_lost()
    }

    fn take(self: Box<Self>, timeout: Duration) -> PortFuture<'static, LockResult> {
        Box::pin(async move {
            let handle = self.engine.take_lock_on(self.session, timeout).await?;
            Ok(Box::new(PgLock(handle)) as Box<dyn HeldLock>)
        })
    }
}

/// Whether the engine said that there is no such database (`3D000`).
fn is_missing(error: &EngineError) -> bool {
    match error {
        EngineError::Unexpected { words, .. } => words.ends_with("(3D000)"),
        EngineError::Unreachable { .. }
        | EngineError::Denied { .. }
        | EngineError::Timeout { .. }
        | EngineError::Changed { .. } => false,
    }
}

impl EnginePort for PgPort {
    fn identity<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> PortFuture<'a, Result<LiveDatabase, EngineError>> {
        Box::pin(async move {
            match self.engine.identity(namespace.database()).await {
                Ok(live) => Ok(LiveDatabase::Exists(Identity {
                    timeline: timeline(live.timeline),
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
            let live = self.engine.server_run().await?;
            let (timeline, started) = (timeline(live.timeline), live.server_start.0);
            let run = EngineRun { engine_id: live.engine_id, timeline, started };
            Ok(Server { run, standby: live.in_recovery })
        })
    }

    fn has_timelines(&self) -> bool {
        true
    }

    fn reaches_every_database(&self) -> bool {
        false
    }

    fn cutoff<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> PortFuture<'a, Result<Arc<dyn Observation>, EngineError>> {
        Box::pin(async move {
            let cutoff = self.engine.cutoff(namespace).await?;
            let engine = self.engine.clone();
            Ok(Arc::new(PgObservation { engine, cutoff }) as Arc<dyn Observation>)
        })
    }

    fn take_lock<'a>(
        &'a self,
        namespace: &'a Namespace,
        timeout: Duration,
    ) -> PortFuture<'a, LockResult> {
        Box::pin(async move {
            let handle = self.engine.take_lock(namespace, timeout).await?;
            Ok(Box::new(PgLock(handle)) as Box<dyn HeldLock>)
        })
    }

    fn ready_holder<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> PortFuture<'a, Result<Option<Box<dyn ReadyHolder>>, EngineError>> {
        Box::pin(async move {
            let session = self.engine.open_holder(namespace).await?;
            let ready = PgReadyHolder { engine: self.engine.clone(), session };
            Ok(Some(Box::new(ready) as Box<dyn ReadyHolder>))
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
            let boundary = Boundary {
                kind: BoundaryKind::Lsn,
                value: read.lsn().to_string(),
                engine_id: read.engine_id().to_owned(),
                timeline: timeline(read.timeline()),
                marker: true,
            };
            Ok(MarkedBoundary { boundary, under_lock: None })
        })
    }

    fn terminate(&self, backend: BackendKey) -> PortFuture<'_, Result<Terminated, EngineError>> {
        Box::pin(self.engine.terminate(backend))
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

    fn login_triggers<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> PortFuture<'a, Result<Vec<String>, EngineError>> {
        Box::pin(self.engine.login_triggers(namespace.database()))
    }

    fn activity<'a>(
        &'a self,
        pids: &'a [i32],
    ) -> PortFuture<'a, Result<Vec<Activity>, EngineError>> {
        Box::pin(self.engine.activity(pids))
    }
}
