//! A scripted engine: answers what the test has set, and remembers what it was asked.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;

use crate::base::ids::{EngineName, Namespace, OperationId, Revision};
use crate::base::run::EngineRun;
use crate::control::port::{
    CensusAnswer, ClearCensus, EnginePort, HeldLock, LiveDatabase, LockResult, MarkedBoundary,
    Observation, PortFuture, ReadyHolder, Server,
};
use crate::engine::{
    Activity, BackendKey, Blocker, CreateError, EngineError, EngineTime, LockError, NewDatabase,
    ProxyView, ReadError, ReadTable, Terminated, Why,
};
use crate::fence::record::{Boundary, BoundaryKind, Census, Identity};
use crate::gate::registry::Gate;

/// What one attempt at the lock comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockScript {
    Granted,
    Busy,
    BusyByNobody,
    NotAllowed,
    Broken,
}

#[derive(Default)]
struct Script {
    log: Vec<String>,
    alive: HashMap<i32, Activity>,
    residue: Vec<Blocker>,
    residue_once: VecDeque<Vec<Blocker>>,
    unreachable: bool,
    unanswered_at: Option<&'static str>,
    missing: bool,
    panics: bool,
    panics_at: Option<&'static str>,
    survives_terminate: bool,
    lock_attempts: VecDeque<LockScript>,
    holders: Vec<watch::Sender<bool>>,
    views: Vec<ProxyView>,
    watched: Option<Arc<Gate>>,
    open_at_release: Vec<bool>,
    evidence: Option<Identity>,
    locks_at: Option<Identity>,
    live: Option<Identity>,
    standby: bool,
    restarts: i64,
    breaks_at_boundary: bool,
    unlocked_boundaries: u32,
    blind: bool,
    silently_lost: bool,
    strays: u64,
    boundary_gate: Option<Arc<tokio::sync::Semaphore>>,
    server_gate: Option<Arc<tokio::sync::Semaphore>>,
    silent_of_activity: bool,
    creation: Option<CreateScript>,
    reaches_every_database: bool,
    creation_gate: Option<Arc<tokio::sync::Semaphore>>,
    filled: bool,
    answer: Option<Result<Vec<ReadTable>, ReadError>>,
    read_gate: Option<Arc<tokio::sync::Semaphore>>,
    cutoff_gate: Option<Arc<tokio::sync::Semaphore>>,
    open_at_cutoff: Vec<bool>,
    holder_gate: Option<Arc<tokio::sync::Semaphore>>,
    ready_holders: usize,
    ready_lost: bool,
}

/// What the next attempt at making a database comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CreateScript {
    Exists,
    Refused,
    NotAsked,
    /// It isn't answered; the database is made all the same, or not.
    Unknown {
        made: bool,
    },
}

#[derive(Clone, Default)]
pub(crate) struct ScriptedEngine(Arc<Mutex<Script>>);

pub(crate) fn identity() -> Identity {
    crate::fence::sample::identity()
}

pub(crate) fn blocker(pid: i32, why: Why) -> Blocker {
    Blocker {
        session: None,
        pid: Some(pid),
        backend_start: Some(EngineTime(1_750_000_000_000_000)),
        backend_type: "client backend".to_owned(),
        user: "app".to_owned(),
        application_name: "psql".to_owned(),
        client: "10.0.0.9:5000".to_owned(),
        state: "idle in transaction".to_owned(),
        wait: None,
        why,
        age_ms: Some(1234),
        statement: "update t set a = 'secret'".to_owned(),
        object: Some("gid-1".to_owned()),
    }
}

impl ScriptedEngine {
    fn script(&self) -> MutexGuard<'_, Script> {
        // One test panics while it holds this on purpose.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.script().log.clone()
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.script().log.iter().filter(|entry| entry.starts_with(what)).count()
    }

    /// A backend that exists, running a transaction.
    pub(crate) fn backend(&self, pid: i32) {
        let activity = Activity {
            backend: BackendKey { pid, backend_start: EngineTime(1_750_000_000_000_000) },
            database: "app".to_owned(),
            user: "app".to_owned(),
            application_name: "web".to_owned(),
            client: "10.0.0.7:4000".to_owned(),
            state: "idle in transaction".to_owned(),
            wait: None,
            transaction_ms: Some(4321),
            statement: "insert into t values (1)".to_owned(),
            blocked_by: Vec::new(),
            waits_unlisted: false,
        };
        self.script().alive.insert(pid, activity);
    }

    pub(crate) fn backend_gone(&self, pid: i32) {
        self.script().alive.remove(&pid);
    }

    pub(crate) fn residue(&self, blockers: Vec<Blocker>) {
        self.script().residue = blockers;
    }

    pub(crate) fn residue_once(&self, blockers: Vec<Blocker>) {
        self.script().residue_once.push_back(blockers);
    }

    pub(crate) fn unreachable(&self, yes: bool) {
        self.script().unreachable = yes;
    }

    /// The next question of this name isn't answered.
    pub(crate) fn unanswered_at(&self, question: &'static str) {
        self.script().unanswered_at = Some(question);
    }

    pub(crate) fn missing(&self) {
        self.script().missing = true;
    }

    /// The database is there again, by another hand.
    pub(crate) fn made_again(&self) {
        self.script().missing = false;
    }

    /// The next attempt at making a database comes to this.
    pub(crate) fn next_creation(&self, script: CreateScript) {
        self.script().creation = Some(script);
    }

    /// As [`ScriptedEngine::next_creation`], in place of what was said before; `None` makes it.
    pub(crate) fn creation_comes_to(&self, script: Option<CreateScript>) {
        self.script().creation = script;
    }

    /// There is a database of that name, or none, and something in it.
    pub(crate) fn has_database(&self, exists: bool, filled: bool) {
        let mut script = self.script();
        (script.missing, script.filled) = (!exists, filled);
    }

    /// A program of one session may reach every database, as on MySQL.
    pub(crate) fn reaches_every_database(&self) {
        self.script().reaches_every_database = true;
    }

    /// From now on creations are answered only once they may go on.
    pub(crate) fn creations_wait(&self) {
        self.script().creation_gate = Some(Arc::new(tokio::sync::Semaphore::new(0)));
    }

    /// Creations go on, this one and those that come.
    pub(crate) fn creations_go_on(&self) {
        if let Some(gate) = self.script().creation_gate.take() {
            gate.close();
        }
    }

    /// Somebody has put something into the database.
    pub(crate) fn fill(&self) {
        self.script().filled = true;
    }

    /// Questions of a validation are answered with this.
    pub(crate) fn answers(&self, answer: Result<Vec<ReadTable>, ReadError>) {
        self.script().answer = Some(answer);
    }

    /// Questions of a validation wait for a permit of this.
    pub(crate) fn reads_wait_for(&self, gate: Arc<tokio::sync::Semaphore>) {
        self.script().read_gate = Some(gate);
    }

    /// Questions are answered at once again.
    pub(crate) fn questions_go_on(&self) {
        self.script().read_gate = None;
    }

    /// Whether nothing is answered now.
    pub(crate) fn is_silent(&self) -> bool {
        self.script().unreachable
    }

    pub(crate) fn panics(&self, yes: bool) {
        self.script().panics = yes;
    }

    /// The next question that begins like this ends the task that asks it.
    pub(crate) fn panics_at(&self, question: &'static str) {
        self.script().panics_at = Some(question);
    }

    pub(crate) fn survives_terminate(&self) {
        self.script().survives_terminate = true;
    }

    /// Census and boundary are another database's, as after a failover behind an acquire's back;
    /// `None` is the live one's again.
    pub(crate) fn evidence_of(&self, identity: Option<Identity>) {
        self.script().evidence = identity;
    }

    /// New connections, which locks are taken on, reach another database; `None` is the live one.
    pub(crate) fn locks_at(&self, identity: Option<Identity>) {
        self.script().locks_at = identity;
    }

    /// From now on another database answers.
    pub(crate) fn becomes(&self, live: Identity) {
        self.script().live = Some(live);
    }

    /// A new run; whoever has a pid there is somebody else.
    pub(crate) fn restarts(&self) {
        self.script().restarts += 1;
    }

    pub(crate) fn standby(&self, yes: bool) {
        self.script().standby = yes;
    }

    fn live(&self) -> Identity {
        self.script().live.clone().unwrap_or_else(identity)
    }

    /// The holder's connection breaks while the next boundary is read.
    pub(crate) fn break_lock_at_boundary(&self) {
        self.script().breaks_at_boundary = true;
    }

    /// As many boundaries are read by a session that doesn't hold the lock.
    pub(crate) fn unlocked_boundaries(&self, count: u32) {
        self.script().unlocked_boundaries = count;
    }

    /// A clear census has not seen everybody.
    pub(crate) fn blind(&self, yes: bool) {
        self.script().blind = yes;
    }

    /// From now on a boundary is read only with one of these permits.
    pub(crate) fn park_at_boundary(&self) -> Arc<tokio::sync::Semaphore> {
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        self.script().boundary_gate = Some(Arc::clone(&gate));
        gate
    }

    /// From now on cutoffs are answered only with one of these permits.
    pub(crate) fn park_at_cutoff(&self) -> Arc<tokio::sync::Semaphore> {
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        self.script().cutoff_gate = Some(Arc::clone(&gate));
        gate
    }

    /// From now on connections for a lock are opened early only with one of these permits.
    pub(crate) fn park_at_holder(&self) -> Arc<tokio::sync::Semaphore> {
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        self.script().holder_gate = Some(Arc::clone(&gate));
        gate
    }

    /// How many connections for a lock are open that no lock was taken on.
    pub(crate) fn ready_holders(&self) -> usize {
        self.script().ready_holders
    }

    /// From now on such a connection is known to have ended.
    pub(crate) fn lose_ready_holders(&self) {
        self.script().ready_lost = true;
    }

    /// Whether the watched gate's writes were open, at each question for a cutoff.
    pub(crate) fn open_at_cutoff(&self) -> Vec<bool> {
        self.script().open_at_cutoff.clone()
    }

    /// From now on it says which server it is only with one of these permits.
    pub(crate) fn park_at_server(&self) -> Arc<tokio::sync::Semaphore> {
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        self.script().server_gate = Some(Arc::clone(&gate));
        gate
    }

    /// From now on it never says what backends do.
    pub(crate) fn silent_of_activity(&self) {
        self.script().silent_of_activity = true;
    }

    pub(crate) fn lock_attempts(&self, attempts: impl IntoIterator<Item = LockScript>) {
        self.script().lock_attempts.extend(attempts);
    }

    /// Whether somebody holds the lock now.
    pub(crate) fn is_locked(&self) -> bool {
        self.script().holders.iter().any(|lost| !*lost.borrow())
    }

    /// The holder's connection breaks.
    pub(crate) fn break_lock(&self) {
        for holder in &self.script().holders {
            holder.send_replace(true);
        }
    }

    /// At each release of the lock, notes whether this gate's writes are open.
    /// From now on the holder's connection is silent, or answers again.
    pub(crate) fn silence_lock(&self, yes: bool) {
        self.script().silently_lost = yes;
    }

    pub(crate) fn strays(&self, count: u64) {
        self.script().strays = count;
    }

    pub(crate) fn watch_gate(&self, gate: Arc<Gate>) {
        self.script().watched = Some(gate);
    }

    pub(crate) fn open_at_release(&self) -> Vec<bool> {
        self.script().open_at_release.clone()
    }

    pub(crate) fn views(&self) -> Vec<ProxyView> {
        self.script().views.clone()
    }

    fn ask(&self, what: String) -> Result<(), EngineError> {
        let mut script = self.script();
        script.log.push(what);
        assert!(!script.panics, "the scripted engine panics on request");
        let asked = script.log.last();
        if script.panics_at.is_some_and(|at| asked.is_some_and(|asked| asked.starts_with(at))) {
            script.panics_at = None;
            panic!("the scripted engine panics on request");
        }
        let failing = script.unanswered_at.filter(|at| script.log.last().is_some_and(|l| l == at));
        if failing.is_some() {
            script.unanswered_at = None;
        }
        if script.unreachable || failing.is_some() {
            return Err(EngineError::Unreachable {
                engine: EngineName::new("old").unwrap(),
                what: "census",
                words: "connection refused".to_owned(),
            });
        }
        Ok(())
    }

    /// What is behind census and boundary.
    fn evidence(&self) -> Identity {
        let asked = self.script().evidence.clone();
        asked.unwrap_or_else(|| self.live())
    }
}

fn ready<'a, T: Send + 'a>(value: T) -> PortFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

struct ScriptedObservation {
    engine: ScriptedEngine,
    namespace: Namespace,
}

impl Observation for ScriptedObservation {
    fn census<'a>(
        &'a self,
        view: &'a ProxyView,
    ) -> PortFuture<'a, Result<CensusAnswer, EngineError>> {
        if let Err(error) = self.engine.ask("census".to_owned()) {
            return ready(Err(error));
        }
        let identity = self.engine.evidence();
        let mut script = self.engine.script();
        script.views.push(view.clone());
        let residue = script.residue_once.pop_front().unwrap_or_else(|| script.residue.clone());
        if !residue.is_empty() {
            return ready(Ok(CensusAnswer::Residue(residue)));
        }
        ready(Ok(CensusAnswer::Clear(ClearCensus {
            namespace: self.namespace.clone(),
            identity,
            census: Census {
                at_engine_clock: "2025-06-15T00:00:00.000Z".to_owned(),
                ..Census::default()
            },
            blind: script.blind.then_some("this server doesn't list table locks"),
        })))
    }
}

struct ScriptedLock {
    engine: ScriptedEngine,
    identity: Identity,
    lost: watch::Receiver<bool>,
    id: usize,
}

impl ScriptedLock {
    fn end(&self) {
        if let Some(holder) = self.engine.script().holders.get(self.id) {
            holder.send_replace(true);
        }
    }
}

impl Drop for ScriptedLock {
    fn drop(&mut self) {
        self.end();
    }
}

/// The process id that the scripted engine's lock holder has.
pub(super) const LOCK_HOLDER_PID: i32 = 999_999;

impl HeldLock for ScriptedLock {
    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn backend_pid(&self) -> i32 {
        LOCK_HOLDER_PID
    }

    fn tables(&self) -> u64 {
        3
    }

    fn gaps(&self) -> Vec<String> {
        vec!["sequences are not locked".to_owned()]
    }

    fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    fn confirm(&self) -> PortFuture<'_, Result<(), LockError>> {
        if !*self.lost.borrow() && !self.engine.script().silently_lost {
            return ready(Ok(()));
        }
        let (namespace, words) = ("old/app".to_owned(), "no answer".to_owned());
        ready(Err(LockError::Lost { namespace, words }))
    }

    fn lost(&self) -> PortFuture<'static, ()> {
        let mut lost = self.lost.clone();
        Box::pin(async move {
            drop(lost.wait_for(|lost| *lost).await);
        })
    }

    fn release(self: Box<Self>) -> PortFuture<'static, Result<(), LockError>> {
        {
            let mut script = self.engine.script();
            script.log.push("unlock".to_owned());
            let open = script.watched.as_ref().map(|gate| gate.word().writes_open());
            script.open_at_release.extend(open);
        }
        self.end();
        ready(Ok(()))
    }
}

struct ScriptedReady(ScriptedEngine);

impl Drop for ScriptedReady {
    fn drop(&mut self) {
        self.0.script().ready_holders -= 1;
    }
}

impl ReadyHolder for ScriptedReady {
    fn identity(&self) -> Identity {
        let elsewhere = self.0.script().locks_at.clone();
        elsewhere.unwrap_or_else(|| self.0.live())
    }

    fn is_lost(&self) -> bool {
        self.0.script().ready_lost
    }

    fn take(self: Box<Self>, timeout: Duration) -> PortFuture<'static, LockResult> {
        Box::pin(async move {
            self.0.script().log.push("on the ready holder".to_owned());
            self.0.take_lock(&crate::control::tests::namespace(), timeout).await
        })
    }
}

impl EnginePort for ScriptedEngine {
    fn identity<'a>(
        &'a self,
        _namespace: &'a Namespace,
    ) -> PortFuture<'a, Result<LiveDatabase, EngineError>> {
        if let Err(error) = self.ask("identity".to_owned()) {
            return ready(Err(error));
        }
        let missing = self.script().missing;
        ready(Ok(if missing { LiveDatabase::Missing } else { LiveDatabase::Exists(self.live()) }))
    }

    /// It has none, where there is a database.
    fn login_triggers<'a>(
        &'a self,
        _namespace: &'a Namespace,
    ) -> PortFuture<'a, Result<Vec<String>, EngineError>> {
        if !self.script().missing {
            return ready(Ok(Vec::new()));
        }
        let engine = EngineName::new("old").unwrap();
        let words = "no such database (3D000)".to_owned();
        ready(Err(EngineError::Unexpected { engine, what: "login triggers", words }))
    }

    fn server(&self) -> PortFuture<'_, Result<Server, EngineError>> {
        let asked = self.ask("server".to_owned());
        let Identity { engine_id, timeline, .. } = self.live();
        let script = self.script();
        let (standby, started) = (script.standby, script.restarts);
        let run = EngineRun { engine_id, timeline, started };
        let gate = script.server_gate.clone();
        Box::pin(async move {
            if let Some(gate) = gate {
                gate.acquire().await.unwrap().forget();
            }
            asked.map(|()| Server { run, standby })
        })
    }

    fn has_timelines(&self) -> bool {
        true
    }

    fn reaches_every_database(&self) -> bool {
        self.script().reaches_every_database
    }

    fn cutoff<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> PortFuture<'a, Result<Arc<dyn Observation>, EngineError>> {
        let asked = self.ask("cutoff".to_owned());
        let seen = ScriptedObservation { engine: self.clone(), namespace: namespace.clone() };
        let mut script = self.script();
        let open = script.watched.as_ref().map(|gate| gate.word().writes_open());
        script.open_at_cutoff.extend(open);
        let gate = script.cutoff_gate.clone();
        Box::pin(async move {
            if let Some(gate) = gate {
                gate.acquire().await.unwrap().forget();
            }
            asked.map(|()| Arc::new(seen) as Arc<dyn Observation>)
        })
    }

    fn ready_holder<'a>(
        &'a self,
        _namespace: &'a Namespace,
    ) -> PortFuture<'a, Result<Option<Box<dyn ReadyHolder>>, EngineError>> {
        let asked = self.ask("early holder".to_owned());
        let gate = self.script().holder_gate.clone();
        Box::pin(async move {
            if let Some(gate) = gate {
                gate.acquire().await.unwrap().forget();
            }
            asked?;
            self.script().ready_holders += 1;
            Ok(Some(Box::new(ScriptedReady(self.clone())) as Box<dyn ReadyHolder>))
        })
    }

    fn take_lock<'a>(
        &'a self,
        namespace: &'a Namespace,
        _timeout: Duration,
    ) -> PortFuture<'a, Result<Box<dyn HeldLock>, LockError>> {
        if let Err(error) = self.ask("lock".to_owned()) {
            return ready(Err(error.into()));
        }
        let live = self.live();
        let mut script = self.script();
        let namespace = namespace.to_string();
        match script.lock_attempts.pop_front().unwrap_or(LockScript::Granted) {
            LockScript::Granted => {}
            LockScript::Busy => {
                let blockers = vec![blocker(77, Why::HoldsTableLock)];
                return ready(Err(LockError::Busy { namespace, blockers }));
            }
            LockScript::BusyByNobody => {
                return ready(Err(LockError::Busy { namespace, blockers: Vec::new() }));
            }
            LockScript::NotAllowed => {
                let (table, hint) = ("public.t".to_owned(), "grant".to_owned());
                return ready(Err(LockError::NotAllowed { table, others: 0, hint }));
            }
            LockScript::Broken => {
                let words = "connection reset".to_owned();
                return ready(Err(LockError::Lost { namespace, words }));
            }
        }
        let (holder, lost) = watch::channel(false);
        script.holders.push(holder);
        let id = script.holders.len() - 1;
        let identity = script.locks_at.clone().unwrap_or(live);
        drop(script);
        let lock = ScriptedLock { engine: self.clone(), identity, lost, id };
        ready(Ok(Box::new(lock) as Box<dyn HeldLock>))
    }

    fn mark_boundary<'a>(
        &'a self,
        _namespace: &'a Namespace,
        _operation: OperationId,
        revision: Revision,
    ) -> PortFuture<'a, Result<MarkedBoundary, EngineError>> {
        let asked = self.ask(format!("boundary {revision}"));
        if std::mem::take(&mut self.script().breaks_at_boundary) {
            self.break_lock();
        }
        let Identity { engine_id, timeline, .. } = self.evidence();
        let left = self.script().unlocked_boundaries;
        let unlocked = left > 0;
        self.script().unlocked_boundaries = left.saturating_sub(1);
        let gate = self.script().boundary_gate.clone();
        Box::pin(async move {
            if let Some(gate) = gate {
                gate.acquire().await.unwrap().forget();
            }
            asked?;
            let boundary = Boundary {
                kind: BoundaryKind::Lsn,
                value: "0/16B3748".to_owned(),
                engine_id,
                timeline,
                marker: true,
            };
            Ok(MarkedBoundary { boundary, under_lock: Some(!unlocked) })
        })
    }

    fn terminate(&self, backend: BackendKey) -> PortFuture<'_, Result<Terminated, EngineError>> {
        let asked = self.ask(format!("terminate {}", backend.pid));
        let mut script = self.script();
        let there = script.alive.contains_key(&backend.pid);
        if !script.survives_terminate {
            script.alive.remove(&backend.pid);
        }
        ready(asked.map(|()| if there { Terminated::Signalled } else { Terminated::Gone }))
    }

    fn cancel(&self, backend: BackendKey) -> PortFuture<'_, Result<Terminated, EngineError>> {
        let asked = self.ask(format!("cancel {} {}", backend.pid, backend.backend_start.0));
        ready(asked.map(|()| Terminated::Signalled))
    }

    fn end_strays(&self) -> PortFuture<'_, Result<u64, EngineError>> {
        let strays = std::mem::take(&mut self.script().strays);
        ready(if strays == 0 { Ok(0) } else { self.ask("end strays".to_owned()).map(|()| strays) })
    }

    fn create<'a>(
        &'a self,
        _namespace: &'a Namespace,
        _wanted: &'a NewDatabase,
    ) -> PortFuture<'a, Result<(), CreateError>> {
        if let Err(error) = self.ask("create".to_owned()) {
            return ready(Err(CreateError::NotAsked(error)));
        }
        let mut script = self.script();
        let engine = EngineName::new("old").unwrap();
        let words = "no".to_owned();
        let error = EngineError::Unreachable {
            engine: engine.clone(),
            what: "creating",
            words: words.clone(),
        };
        let (made, answer) = match script.creation.take() {
            None => (true, Ok(())),
            Some(CreateScript::Exists) => (true, Err(CreateError::Exists { engine, words })),
            Some(CreateScript::Refused) => (false, Err(CreateError::Refused { engine, words })),
            Some(CreateScript::NotAsked) => (false, Err(CreateError::NotAsked(error))),
            Some(CreateScript::Unknown { made }) => (made, Err(CreateError::Unknown(error))),
        };
        if made && script.missing {
            (script.missing, script.filled) = (false, false);
        }
        let gate = script.creation_gate.clone();
        Box::pin(async move {
            if let Some(gate) = gate {
                // Closed is gone on.
                drop(gate.acquire().await);
            }
            answer
        })
    }

    fn holds_anything<'a>(
        &'a self,
        _namespace: &'a Namespace,
    ) -> PortFuture<'a, Result<bool, EngineError>> {
        let filled = self.script().filled;
        ready(self.ask("look inside".to_owned()).map(|()| filled))
    }

    fn read<'a>(
        &'a self,
        _namespace: &'a Namespace,
        statements: &'a [String],
    ) -> PortFuture<'a, Result<Vec<ReadTable>, ReadError>> {
        let asked = self.ask(format!("read {}", statements.len()));
        let script = self.script();
        let (answer, gate) = (script.answer.clone(), script.read_gate.clone());
        drop(script);
        Box::pin(async move {
            if let Some(gate) = gate {
                gate.acquire().await.unwrap().forget();
            }
            asked?;
            answer.unwrap_or_else(|| Ok(Vec::new()))
        })
    }

    fn activity<'a>(
        &'a self,
        pids: &'a [i32],
    ) -> PortFuture<'a, Result<Vec<Activity>, EngineError>> {
        let asked = self.ask("activity".to_owned());
        let script = self.script();
        let seen = pids.iter().filter_map(|pid| script.alive.get(pid).cloned()).collect();
        if script.silent_of_activity {
            return Box::pin(std::future::pending());
        }
        ready(asked.map(|()| seen))
    }
}
