//! Commands against a real store, real gates and a scripted engine.

mod agreement;
mod commands;
mod counts;
mod doubles;
mod doubt;
mod drains;
mod early;
pub(crate) mod engine;
mod locks;
mod reads;
mod runs;
mod starts;
mod target_words;
mod targets;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::{LockScript, ScriptedEngine, blocker, identity};

use crate::base::clock::{Clock, SystemClock};
use crate::base::ids::{
    CommandId, EngineName, Generation, Namespace, OperationId, Revision, SessionId,
};
use crate::control::answer::{Answer, AnswerCode};
use crate::control::fences::{Control, Engines, Parts};
use crate::control::port::EnginePort;
use crate::control::routes::{RouteTable, Routes};
use crate::control::settings::{NamespaceSettings, Settings};
use crate::control::status::Inspection;
use crate::fence::code::{ControlCode, Detail};
use crate::fence::command::{Actor, ActorSurface, Arguments, Command};
use crate::fence::record::{DrainPolicy, InFlight, LockMode, OnDeadline};
use crate::fence::sample;
use crate::fence::state::FenceState;
use crate::gate::admission::Seat;
use crate::gate::lease::Lease;
use crate::gate::registry::{Gate, Gates};
use crate::gate::slot::Card;
use crate::sql::StatementClass;
use crate::store::FenceStore;
use crate::store::faulty::{CommitFault, FaultyStore, HoldAt};
use crate::store::marker::MarkerDir;
use crate::store::memory::MemoryStore;
use crate::store::sqlite::SqliteStore;
use crate::telemetry::metrics::Metrics;

/// How long a test waits for what must come; only a broken build waits that long.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Rig {
    pub(crate) dir: Arc<tempfile::TempDir>,
    pub(crate) store: Arc<FaultyStore>,
    pub(crate) engine: ScriptedEngine,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: NamespaceSettings,
    pub(crate) control: Arc<Control>,
}

pub(crate) fn namespace() -> Namespace {
    sample::namespace()
}

fn build(rig: &RigParts<'_>) -> Arc<Control> {
    build_with(rig, engines([("old", rig.engine)]))
}

fn engines<const N: usize>(named: [(&str, &ScriptedEngine); N]) -> Engines {
    let port = |(name, engine): (&str, &ScriptedEngine)| {
        let port: Arc<dyn EnginePort> = Arc::new(engine.clone());
        (EngineName::new(name).unwrap(), port)
    };
    named.into_iter().map(port).collect()
}

fn build_with(rig: &RigParts<'_>, engines: Engines) -> Arc<Control> {
    let settings = rig.settings.clone();
    Control::new(Parts {
        settings: Settings { forced_grace: Duration::from_millis(30), ..Settings::new("fw-test") },
        settings_for: Arc::new(move |_| settings.clone()),
        gates: Arc::new(Gates::new(Generation(100))),
        store: Arc::clone(rig.store),
        markers: MarkerDir::open(rig.dir).unwrap(),
        routes: Arc::new(Routes::new(RouteTable {
            routes: BTreeMap::from([("app".to_owned(), namespace())]),
            engines: engines.keys().cloned().collect(),
        })),
        engines,
        clock: Arc::clone(rig.clock),
        metrics: Arc::clone(rig.metrics),
    })
}

struct RigParts<'a> {
    dir: &'a std::path::Path,
    store: &'a Arc<dyn FenceStore>,
    engine: &'a ScriptedEngine,
    metrics: &'a Arc<Metrics>,
    clock: &'a Arc<dyn Clock>,
    settings: &'a NamespaceSettings,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        Self::with(Arc::new(MemoryStore::new()), NamespaceSettings::default()).await
    }

    pub(crate) async fn with(inner: Arc<dyn FenceStore>, settings: NamespaceSettings) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let store = Arc::new(FaultyStore::new(inner));
        let engine = ScriptedEngine::default();
        let metrics = Arc::new(Metrics::new());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let as_store: Arc<dyn FenceStore> = Arc::<FaultyStore>::clone(&store);
        let control = build(&RigParts {
            dir: dir.path(),
            store: &as_store,
            engine: &engine,
            metrics: &metrics,
            clock: &clock,
            settings: &settings,
        });
        control.recover().await.unwrap();
        Self { dir, store, engine, metrics, clock, settings, control }
    }

    /// The process dies and another one starts over the same store; sessions are gone.
    fn restarted(&self) -> Self {
        self.restarted_with(engines([("old", &self.engine)]))
    }

    /// As [`Rig::restarted`], with other engines.
    fn restarted_with(&self, engines: Engines) -> Self {
        let as_store: Arc<dyn FenceStore> = Arc::<FaultyStore>::clone(&self.store);
        let parts = RigParts {
            dir: self.dir.path(),
            store: &as_store,
            engine: &self.engine,
            metrics: &self.metrics,
            clock: &self.clock,
            settings: &self.settings,
        };
        let control = build_with(&parts, engines);
        Self {
            dir: Arc::clone(&self.dir),
            store: Arc::clone(&self.store),
            engine: self.engine.clone(),
            metrics: Arc::clone(&self.metrics),
            clock: Arc::clone(&self.clock),
            settings: self.settings.clone(),
            control,
        }
    }

    pub(crate) fn gate(&self) -> Arc<Gate> {
        self.control.gates.gate(&namespace())
    }

    pub(crate) fn seat(&self, session: u64, pid: i32) -> Arc<Seat> {
        let card = Card {
            client: "10.0.0.7:4000".to_owned(),
            user: "app".to_owned(),
            application_name: "web".to_owned(),
            came_by: None,
        };
        let seat = Seat::take(self.gate(), SessionId(session), card);
        seat.slot().set_engine_pid(pid);
        seat.slot().note_alive(self.control.gates.looks());
        self.engine.backend(pid);
        seat
    }

    pub(crate) fn writer(&self, session: u64, pid: i32) -> (Arc<Seat>, Lease) {
        let seat = self.seat(session, pid);
        let (lease, _) = seat.begin(StatementClass::Write, 0).unwrap();
        (seat, lease)
    }

    pub(crate) fn may_write(&self) -> bool {
        let seat = self.seat(999, 999);
        let admitted = seat.begin(StatementClass::Write, 0);
        match admitted {
            Ok((lease, _)) => {
                lease.answered();
                true
            }
            Err(_) => false,
        }
    }

    pub(crate) async fn run(&self, command: Command) -> Arc<Answer> {
        self.control.execute(actor(), command).await
    }

    fn spawn(&self, command: Command) -> tokio::task::JoinHandle<Arc<Answer>> {
        let control = Arc::clone(&self.control);
        tokio::spawn(async move { control.execute(actor(), command).await })
    }

    async fn inspect(&self) -> Inspection {
        self.control.inspect(&namespace(), true).await.unwrap()
    }

    /// Polls until the drain report says so.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Rig) -> bool) {
        let patience = tokio::time::Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(tokio::time::Instant::now() < patience, "never came: {what}");
            // tidy: not a race: the pause between two looks at a condition that is waited for.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Lets some looks at what is left pass by, in paused time.
    async fn looks_pass(&self) {
        let looks = Duration::from_millis(16 * crate::base::limits::DRAIN_LOOK_FIRST_MS);
        // tidy: not a race: time is paused, and goes on only when everybody else waits.
        tokio::time::sleep(looks).await;
    }

    pub(crate) async fn until_blocked(&self) {
        self.until("a named blocker", |rig| {
            let report = rig.control.drain_report(&namespace());
            report.command.is_some() && !report.blockers.is_empty()
        })
        .await;
    }
}

fn actor() -> Actor {
    Actor { surface: ActorSurface::AdminHttp, name: "test".to_owned(), has_adoption_key: false }
}

fn policy(deadline_ms: u64, on_deadline: OnDeadline) -> DrainPolicy {
    DrainPolicy { deadline_ms, on_deadline, in_flight: None, hold_ms: None }
}

fn acquire(operation: u8, command: u8, drain_policy: DrainPolicy) -> Command {
    Command {
        namespace: namespace(),
        operation: op(operation),
        command: id(command),
        expected_state: FenceState::Unfenced,
        expected_revision: Revision(0),
        arguments: Arguments::AcquireSourceWriteFence {
            identity: identity(),
            drain_policy: Some(drain_policy),
        },
    }
}

fn patient(operation: u8, command: u8) -> Command {
    acquire(operation, command, policy(60_000, OnDeadline::Fail))
}

fn at_once(operation: u8, command: u8) -> Command {
    acquire(operation, command, policy(0, OnDeadline::Fail))
}

fn release(operation: u8, command: u8, state: FenceState, revision: u64) -> Command {
    Command {
        namespace: namespace(),
        operation: op(operation),
        command: id(command),
        expected_state: state,
        expected_revision: Revision(revision),
        arguments: Arguments::ReleaseSourceWriteFence,
    }
}

fn op(number: u8) -> OperationId {
    sample::operation(number)
}

fn id(number: u8) -> CommandId {
    sample::command_id(number)
}

#[track_caller]
fn code(answer: &Arc<Answer>) -> ControlCode {
    match answer.code {
        AnswerCode::Control(code) => code,
        AnswerCode::Failed => panic!("failed: {:?}", answer.message),
    }
}

#[track_caller]
fn revision_after(answer: &Answer) -> u64 {
    answer.receipt.as_ref().unwrap_or_else(|| panic!("{:?}", answer.message)).revision_after.0
}

#[track_caller]
fn state(answer: &Answer) -> FenceState {
    answer.sight.as_ref().expect("a view").state
}
