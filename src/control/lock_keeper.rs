//! Keeps the engine's own locks as long as a source write fence lasts.
//!
//! Purpose: one keep per namespace. A drain takes the lock through it, so that a release can give
//! it back whoever took it; after the fence stands, a task watches the holder's connection and
//! takes the lock again when it is lost, with bounded backoff, recording the gap. [`LockKeeper::
//! let_go`] frees it before a gate opens, and voids every attempt that is under way.
//!
//! Callers: `control/drain.rs` (take, hold), `control/fences.rs` (let go), `control/recovery.rs`
//! (want), `control/status.rs` (report). It doesn't decide whether a lock is needed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use tokio::sync::watch;
use tokio::time::timeout;

use super::answer::LockReport;
use super::instant::rfc3339_ms;
use super::lock_waiters;
use super::port::{EnginePort, HeldLock, LiveDatabase, LockResult, ReadyHolder};
use crate::base::arm::{Removable, removed};
use crate::base::clock::Clock;
use crate::base::ids::Namespace;
use crate::base::limits;
use crate::engine::LockError;
use crate::fence::record::{Identity, LockMode};
use crate::gate::registry::Gate;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::spawn::spawn_named;

/// The right to take a namespace's lock until somebody lets go of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockTicket(u64);

/// Why a lock wasn't taken.
#[derive(Debug)]
pub enum TakeError {
    /// It was let go of meanwhile: whoever asked has been superseded.
    Void,
    /// The engine's answer.
    Lock(LockError),
    /// The database under the namespace's name isn't the one that was fenced, or can't be told to
    /// be: in a sentence.
    Another(String),
}

/// What a taken lock covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    /// How many tables.
    pub tables: u64,
    /// What not, one sentence each.
    pub gaps: Vec<String>,
    /// Which taking it was. A lock that was lost and taken again is another one: who wrote in
    /// between isn't known.
    pub number: u64,
}

#[derive(Default)]
struct Shown {
    wanted: bool,
    tables: u64,
    gaps: Vec<String>,
    omitted: u64,
    watching: bool,
}

struct Keep {
    namespace: Namespace,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    /// Moves when the lock is let go of; older tickets are void.
    epoch: watch::Sender<u64>,
    /// The lock itself. Held by an attempt for as long as it lasts, so that letting go waits for
    /// the attempt to notice.
    held: tokio::sync::Mutex<Option<Box<dyn HeldLock>>>,
    /// How often it was taken. Moves only under `held`.
    taken: AtomicU64,
    /// Guards what people are shown; never held across an await.
    shown: Mutex<Shown>,
}

impl Keep {
    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gap(&self, sentence: &str) {
        let at = rfc3339_ms(self.clock.now_ms());
        tracing::warn!(namespace = %self.namespace, "engine lock: {sentence}");
        let mut shown = self.shown();
        if shown.gaps.len() < limits::ENGINE_LOCK_GAPS_MAX {
            shown.gaps.push(format!("{at}: {sentence}"));
        } else {
            shown.omitted += 1;
        }
    }

    /// Whether the last taking was this one. Ask under `held`.
    fn is(&self, number: u64) -> bool {
        self.taken.load(Ordering::SeqCst) == number
    }

    /// Whether it is held. A lock that is being taken right now isn't.
    fn is_held(&self) -> bool {
        let held = self.held.try_lock();
        held.is_ok_and(|held| held.as_ref().is_some_and(|lock| !lock.is_lost()))
    }

    fn is_void(&self, ticket: LockTicket) -> bool {
        *self.epoch.borrow() != ticket.0
    }

    /// An error unless the live database is the one that is wanted.
    async fn must_be(
        &self,
        wanted: Option<&Identity>,
        engine: &dyn EnginePort,
    ) -> Result<(), TakeError> {
        let Some(wanted) = wanted else {
            return Ok(());
        };
        match engine.identity(&self.namespace).await {
            Ok(LiveDatabase::Exists(live)) if wanted.is_met_by(&live) => Ok(()),
            Ok(LiveDatabase::Exists(live)) => Err(TakeError::Another(format!(
                "not held: {live} answers, the fence is of {wanted}; a lock there would say nothing"
            ))),
            Ok(LiveDatabase::Missing) => {
                Err(TakeError::Another(format!("not held: {wanted} isn't there any more")))
            }
            Err(error) => Err(TakeError::Lock(error.into())),
        }
    }

    /// One attempt: on the connection that is ready, where it says that it is at the database that
    /// is wanted; otherwise on one of its own, once the engine has said so.
    async fn attempt(
        &self,
        engine: &dyn EnginePort,
        (wait, wanted): (Duration, Option<&Identity>),
        ready: Option<Box<dyn ReadyHolder>>,
    ) -> Result<Box<dyn HeldLock>, TakeError> {
        let is_there = |ready: &dyn ReadyHolder| {
            !ready.is_lost() && wanted.is_none_or(|wanted| wanted.is_met_by(&ready.identity()))
        };
        let taken: LockResult = match ready.filter(|ready| is_there(ready.as_ref())) {
            Some(ready) => ready.take(wait).await,
            None => {
                self.must_be(wanted, engine).await?;
                engine.take_lock(&self.namespace, wait).await
            }
        };
        taken.map_err(TakeError::Lock)
    }

    /// One attempt, given up as soon as the ticket is void. What was held and isn't lost is kept.
    /// With a database that is `wanted`, only its own lock is taken or kept: the live one is asked
    /// before, or a connection that is `ready` has said that it is there; the lock's own session
    /// says where it is, and until then it isn't shown as held.
    async fn take(
        &self,
        ticket: LockTicket,
        engine: &dyn EnginePort,
        (wait, wanted): (Duration, Option<&Identity>),
        ready: Option<Box<dyn ReadyHolder>>,
    ) -> Result<Coverage, TakeError> {
        let mut void = self.epoch.subscribe();
        let mut held = self.held.lock().await;
        if self.is_void(ticket) {
            return Err(TakeError::Void);
        }
        let is_of_another = |lock: &dyn HeldLock| {
            !removed(Removable::LockIdentity)
                && wanted.is_some_and(|wanted| !wanted.is_met_by(&lock.identity()))
        };
        if held.as_ref().is_none_or(|lock| lock.is_lost() || is_of_another(lock.as_ref())) {
            *held = None;
            let attempt = self.attempt(engine, (wait, wanted), ready);
            let taken = tokio::select! {
                biased;
                _moved = void.wait_for(|now| *now != ticket.0) => return Err(TakeError::Void),
                taken = attempt => taken?,
            };
            if let Some(wanted) = wanted.filter(|_| is_of_another(taken.as_ref())) {
                return Err(TakeError::Another(format!(
                    "not held: new connections reach {}, the fence is of {wanted}; a lock there \
                     would say nothing. See where the engine's name leads",
                    taken.identity()
                )));
            }
            *held = Some(taken);
            self.taken.fetch_add(1, Ordering::SeqCst);
        }
        let number = self.taken.load(Ordering::SeqCst);
        let coverage = held.as_ref().map_or_else(
            || Coverage { tables: 0, gaps: Vec::new(), number },
            |lock| Coverage { tables: lock.tables(), gaps: lock.gaps(), number },
        );
        drop(held);
        self.shown().tables = coverage.tables;
        Ok(coverage)
    }

    /// Watches the lock until the ticket is void; takes it again whenever it is lost.
    async fn keep(
        &self,
        ticket: LockTicket,
        gate: Arc<Gate>,
        engine: Arc<dyn EnginePort>,
        (wait, wanted): (Duration, Option<Identity>),
    ) {
        let mut void = self.epoch.subscribe();
        let mut another = String::new();
        let first = Duration::from_millis(limits::ENGINE_LOCK_RETRY_FIRST_MS);
        let mut pause = first;
        while !self.is_void(ticket) {
            let lost =
                self.held.lock().await.as_ref().map(|lock| (lock.lost(), lock.backend_pid()));
            if let Some((lost, holder)) = lost {
                tokio::select! {
                    biased;
                    _moved = void.wait_for(|now| *now != ticket.0) => return,
                    () = lost => {}
                    () = lock_waiters::stop(&gate, engine.as_ref(), holder) => {}
                }
                self.metrics.fence.lock_lost();
                self.gap(
                    "lost with its connection; the gate stays closed, the lock is taken again",
                );
            }
            match self.take(ticket, engine.as_ref(), (wait, wanted.as_ref()), None).await {
                Ok(_) => {
                    another.clear();
                    self.gap("taken (again) after it was missing");
                    pause = first;
                    continue;
                }
                Err(TakeError::Void) => return,
                Err(TakeError::Another(words)) => {
                    // Once for each database that answers.
                    if another != words {
                        self.gap(&words);
                        another = words;
                    }
                }
                Err(TakeError::Lock(error)) if pause == first => {
                    self.gap(&format!("not held: {error}"));
                }
                Err(TakeError::Lock(error)) => {
                    tracing::debug!(namespace = %self.namespace, %error, "engine lock not held");
                }
            }
            tokio::select! {
                biased;
                _moved = void.wait_for(|now| *now != ticket.0) => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(Duration::from_millis(limits::ENGINE_LOCK_RETRY_MAX_MS));
        }
    }
}

/// All keeps of this process.
pub struct LockKeeper {
    keeps: DashMap<Namespace, Arc<Keep>>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
}

impl LockKeeper {
    /// Holds nothing.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Self {
        Self { keeps: DashMap::new(), clock, metrics }
    }

    fn keep(&self, namespace: &Namespace) -> Arc<Keep> {
        let keep = self.keeps.entry(namespace.clone()).or_insert_with(|| {
            Arc::new(Keep {
                namespace: namespace.clone(),
                clock: Arc::clone(&self.clock),
                metrics: Arc::clone(&self.metrics),
                epoch: watch::Sender::new(0),
                held: tokio::sync::Mutex::new(None),
                taken: AtomicU64::new(0),
                shown: Mutex::new(Shown::default()),
            })
        });
        Arc::clone(&keep)
    }

    /// A ticket for a namespace. Draw it under the namespace's transition lock, so that a later
    /// release voids it.
    #[must_use]
    pub fn ticket(&self, namespace: &Namespace) -> LockTicket {
        LockTicket(*self.keep(namespace).epoch.borrow())
    }

    /// One attempt at the lock, or the one that is held: of the database that is `wanted`, which
    /// is the one that the caller's census is of. On the connection that is `ready`, if one is; it
    /// is closed where it isn't used.
    ///
    /// # Cancel safety
    /// Cancel safe: an attempt that is dropped holds nothing.
    ///
    /// # Errors
    /// [`TakeError`].
    pub async fn take(
        &self,
        namespace: &Namespace,
        ticket: LockTicket,
        engine: &dyn EnginePort,
        (wait, wanted): (Duration, &Identity),
        ready: Option<Box<dyn ReadyHolder>>,
    ) -> Result<Coverage, TakeError> {
        let keep = self.keep(namespace);
        keep.take(ticket, engine, (wait, Some(wanted)), ready).await
    }

    /// Whether the lock of this taking is held and not known to be lost.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn is_held(&self, namespace: &Namespace, number: u64) -> bool {
        let Some(keep) = self.keeps.get(namespace).map(|keep| Arc::clone(&keep)) else {
            return false;
        };
        let held = keep.held.lock().await;
        keep.is(number) && held.as_ref().is_some_and(|lock| !lock.is_lost())
    }

    /// Whether the lock of this taking is held, by the engine's own word. One that isn't is
    /// dropped, so that the next attempt takes it anew. A ticket that becomes void ends the asking.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn confirm(&self, namespace: &Namespace, ticket: LockTicket, number: u64) -> bool {
        let keep = self.keep(namespace);
        let mut void = keep.epoch.subscribe();
        let mut held = keep.held.lock().await;
        if !keep.is(number) {
            return false;
        }
        let Some(lock) = held.as_ref().filter(|lock| !lock.is_lost()) else {
            return false;
        };
        if removed(Removable::LockConfirm) {
            return true;
        }
        let confirmed = tokio::select! {
            biased;
            _moved = void.wait_for(|now| *now != ticket.0) => return false,
            confirmed = lock.confirm() => confirmed,
        };
        if let Err(error) = &confirmed {
            tracing::warn!(%namespace, %error, "the engine lock is not confirmed");
            *held = None;
        }
        confirmed.is_ok()
    }

    /// From now on the lock is wanted: a task watches it, and takes it when it isn't held. Of
    /// another database than `wanted` it takes none.
    pub fn hold(
        &self,
        gate: &Arc<Gate>,
        ticket: LockTicket,
        engine: Arc<dyn EnginePort>,
        (wait, wanted): (Duration, Option<Identity>),
    ) {
        let keep = self.keep(gate.namespace());
        {
            let mut shown = keep.shown();
            if shown.watching || keep.is_void(ticket) {
                return;
            }
            shown.wanted = true;
            shown.watching = true;
        }
        let gate = Arc::clone(gate);
        drop(spawn_named("engine-lock-keeper", async move {
            keep.keep(ticket, gate, engine, (wait, wanted)).await;
        }));
    }

    /// Gives the lock back, voids every ticket and ends the watch. When this returns, the engine
    /// holds no lock of ours on the namespace, or the holder's connection is being closed.
    ///
    /// # Cancel safety
    /// Safe to drop: tickets are void at once and the lock goes with its connection.
    pub async fn let_go(&self, namespace: &Namespace) {
        let Some(keep) = self.keeps.get(namespace).map(|keep| Arc::clone(&keep)) else {
            return;
        };
        keep.epoch.send_modify(|epoch| *epoch += 1);
        let held = keep.held.lock().await.take();
        *keep.shown() = Shown::default();
        let Some(held) = held else {
            return;
        };
        let bound = Duration::from_millis(limits::ENGINE_LOCK_RELEASE_MS);
        match timeout(bound, held.release()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%namespace, %error, "the engine lock was gone before its release");
            }
            Err(_) => tracing::warn!(
                %namespace,
                "the engine did not confirm the release of its lock in time; the connection that \
                 held it is closed"
            ),
        }
    }

    /// How many locks are wanted, and how many of these are held.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let keeps = self.keeps.iter().filter(|keep| keep.shown().wanted);
        keeps.fold((0, 0), |(wanted, held), keep| (wanted + 1, held + usize::from(keep.is_held())))
    }

    /// What people are shown; `None` where no lock is wanted.
    #[must_use]
    pub fn report(&self, namespace: &Namespace) -> Option<LockReport> {
        let keep = Arc::clone(&*self.keeps.get(namespace)?);
        let held = keep.is_held();
        let shown = keep.shown();
        let mut gaps = shown.gaps.clone();
        if shown.omitted > 0 {
            gaps.push(format!("{} later gaps are in the log only", shown.omitted));
        }
        shown.wanted.then_some(LockReport {
            mode: LockMode::Hold,
            held,
            tables: shown.tables,
            gaps,
        })
    }
}
