//! Fence commands against real PostgreSQL servers: control, gate, store and engine together.
//!
//! The sessions are the test's own connections with a seat at the gate, as the wire layer would
//! have it; nothing is relayed here.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test's helpers fail the test; clippy sees them outside of test functions"
)]

#[path = "engine_pg/cluster.rs"]
#[allow(dead_code, reason = "shared with the engine's own tests, which use all of it")]
mod cluster;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use cluster::{Pg, app, eventually, pid};
use fencewire::base::clock::SystemClock;
use fencewire::base::ids::{CommandId, EngineName, Generation, OperationId, Revision, SessionId};
use fencewire::control::fences::{Control, Engines, Parts};
use fencewire::control::pg::PgPort;
use fencewire::control::port::EnginePort;
use fencewire::control::{
    Answer, AnswerCode, NamespaceSettings, RouteTable, Routes, Settings, Sight,
};
use fencewire::fence::code::{ControlCode, Detail};
use fencewire::fence::command::{Actor, ActorSurface, Arguments, Command};
use fencewire::fence::record::{BoundaryKind, DrainPolicy, LockMode, OnDeadline};
use fencewire::fence::state::FenceState;
use fencewire::gate::admission::Seat;
use fencewire::gate::lease::Lease;
use fencewire::gate::registry::Gates;
use fencewire::gate::slot::Card;
use fencewire::sql::StatementClass;
use fencewire::store::marker::MarkerDir;
use fencewire::store::sqlite::SqliteStore;
use fencewire::telemetry::metrics::Metrics;
use tokio_postgres::Client;

/// Everything this process logs, as JSON lines. One subscriber for all tests: with one per thread,
/// tracing may remember another thread's lack of interest.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

static LOGGED: LazyLock<Logged> = LazyLock::new(|| {
    let logged = Logged::default();
    let writer = logged.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    logged
});

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Logged {
    /// The audit events of one operation, in order.
    fn audit_of(&self, operation: OperationId) -> Vec<serde_json::Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .filter(|line| line["target"] == "fencewire::fence::audit")
            .filter(|line| line["operation_id"] == operation.to_string())
            .collect()
    }
}

struct Rig {
    pg: Pg,
    state: tempfile::TempDir,
    gates: Arc<Gates>,
    control: Arc<Control>,
    operation: OperationId,
}

fn control(pg: &Pg, state: &std::path::Path) -> (Arc<Gates>, Arc<Control>) {
    let engine: Arc<dyn EnginePort> = Arc::new(PgPort::new(pg.engine()));
    let old = EngineName::new("old").unwrap();
    let engines: Engines = BTreeMap::from([(old.clone(), engine)]);
    let gates = Arc::new(Gates::new(Generation(1)));
    let routes = RouteTable { routes: BTreeMap::new(), engines: BTreeSet::from([old]) };
    let control = Control::new(Parts {
        settings: Settings { forced_grace: Duration::from_millis(300), ..Settings::new("test") },
        settings_for: Arc::new(|_| NamespaceSettings {
            lock_timeout: Duration::from_millis(200),
            ..NamespaceSettings::default()
        }),
        gates: Arc::clone(&gates),
        store: Arc::new(SqliteStore::open(&state.join("fence.db")).unwrap()),
        markers: MarkerDir::open(state).unwrap(),
        engines,
        routes: Arc::new(Routes::new(routes)),
        clock: Arc::new(SystemClock::new()),
        metrics: Arc::new(Metrics::new()),
    });
    (gates, control)
}

impl Rig {
    async fn new() -> Self {
        LazyLock::force(&LOGGED);
        let pg = Pg::start().await;
        pg.client("app").await.batch_execute("CREATE TABLE t (a int)").await.unwrap();
        let state = tempfile::tempdir().unwrap();
        let (gates, control) = control(&pg, state.path());
        control.recover().await.unwrap();
        Self { pg, state, gates, control, operation: OperationId::fresh() }
    }

    async fn sight(&self) -> Sight {
        self.control.inspect(&app(), true).await.unwrap().sight
    }

    async fn acquire(&self, command: CommandId, policy: DrainPolicy) -> Command {
        let live = self.sight().await.live.unwrap();
        Command {
            namespace: app(),
            operation: self.operation,
            command,
            expected_state: FenceState::Unfenced,
            expected_revision: Revision(0),
            arguments: Arguments::AcquireSourceWriteFence {
                identity: live,
                drain_policy: Some(policy),
            },
        }
    }

    async fn run(&self, command: Command) -> Arc<Answer> {
        let actor = Actor {
            surface: ActorSurface::AdminHttp,
            name: "test".to_owned(),
            has_adoption_key: false,
        };
        self.control.execute(actor, command).await
    }

    async fn release(&self, state: FenceState, revision: u64) -> Arc<Answer> {
        self.run(Command {
            namespace: app(),
            operation: self.operation,
            command: CommandId::fresh(),
            expected_state: state,
            expected_revision: Revision(revision),
            arguments: Arguments::ReleaseSourceWriteFence,
        })
        .await
    }

    /// A client that has written in an open transaction, with its lease.
    async fn writer(&self) -> (Client, Arc<Seat>, Lease) {
        let looks = self.gates.looks();
        let client = self.pg.client("app").await;
        let seat = Seat::take(self.gates.gate(&app()), SessionId(1), Card::default());
        seat.slot().set_engine_pid(pid(&client).await);
        seat.slot().note_alive(looks);
        let (lease, _) = seat.begin(StatementClass::Write, 0).unwrap();
        client.batch_execute("BEGIN; INSERT INTO t VALUES (1)").await.unwrap();
        (client, seat, lease)
    }

    async fn rows(&self) -> i64 {
        let client = self.pg.client("app").await;
        client.query_one("SELECT count(*) FROM t", &[]).await.unwrap().get(0)
    }

    async fn direct_write(&self) -> Result<(), tokio_postgres::Error> {
        let client = self.pg.client("app").await;
        client.batch_execute("SET lock_timeout = 200; INSERT INTO t VALUES (9)").await
    }
}

fn policy(deadline_ms: u64, on_deadline: OnDeadline) -> DrainPolicy {
    DrainPolicy { deadline_ms, on_deadline, in_flight: None, hold_ms: None }
}

#[track_caller]
fn assert_code(answer: &Arc<Answer>, code: ControlCode) {
    assert_eq!(answer.code, AnswerCode::Control(code), "{:?}", answer.message);
}

#[tokio::test]
async fn an_idle_database_is_fenced_for_direct_sessions_too() {
    let rig = Rig::new().await;
    let command = rig.acquire(CommandId::fresh(), policy(10_000, OnDeadline::Fail)).await;
    let answer = rig.run(command).await;
    assert_code(&answer, ControlCode::Applied);
    let record = answer.sight.as_ref().unwrap().record.clone().unwrap();
    let evidence = record.evidence.unwrap();
    assert_eq!((evidence.engine_lock.mode, evidence.engine_lock.tables), (LockMode::Hold, 1));
    let boundary = record.frozen_boundary.unwrap();
    assert_eq!((boundary.kind, boundary.marker), (BoundaryKind::Lsn, true));
    assert_eq!(boundary.engine_id, record.identity.unwrap().engine_id);
    assert!(evidence.census_before.at_engine_clock < evidence.census_after.at_engine_clock);

    let refused = rig.direct_write().await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "55P03", "the engine lock keeps it waiting");
    assert_eq!(rig.rows().await, 0, "reads go on");
    assert_code(&rig.release(FenceState::SourceWriteFenced, 2).await, ControlCode::Applied);
    rig.direct_write().await.expect("open again");
}

#[tokio::test]
async fn an_open_writer_is_named_and_waited_for() {
    let rig = Rig::new().await;
    let (client, _seat, lease) = rig.writer().await;
    let id = CommandId::fresh();
    let command = rig.acquire(id, policy(0, OnDeadline::Fail)).await;
    let answer = rig.run(command.clone()).await;
    assert_code(&answer, ControlCode::Draining);
    let waiting = tokio::spawn({
        let control = Arc::clone(&rig.control);
        let joining = Command {
            command: CommandId::fresh(),
            expected_state: FenceState::SourceDraining,
            expected_revision: Revision(1),
            ..rig.acquire(id, policy(20_000, OnDeadline::Fail)).await
        };
        let actor = Actor {
            surface: ActorSurface::AdminHttp,
            name: "test".to_owned(),
            has_adoption_key: false,
        };
        async move { control.execute(actor, joining).await }
    });
    eventually("the statement by name", async || {
        let blockers = rig.sight().await.drain.blockers;
        blockers.first().is_some_and(|one| one.statement.contains("INSERT INTO t"))
    })
    .await;
    client.batch_execute("COMMIT").await.unwrap();
    lease.answered();
    assert_code(&waiting.await.unwrap(), ControlCode::Applied);
    assert_eq!(rig.rows().await, 1, "what was admitted before is there");
    let evidence = rig.sight().await.record.unwrap().evidence.unwrap();
    assert_eq!(evidence.releases.by_answer, 1);
}

#[tokio::test]
async fn a_direct_transaction_and_a_prepared_one_block_by_name() {
    let rig = Rig::new().await;
    let direct = rig.pg.client("app").await;
    direct.batch_execute("BEGIN; SELECT 1").await.unwrap();
    let id = CommandId::fresh();
    let command = rig.acquire(id, policy(0, OnDeadline::ForceRollback)).await;
    let answer = rig.run(command.clone()).await;
    assert_code(&answer, ControlCode::Draining);
    assert!(answer.message.as_ref().unwrap().contains("open_at_cutoff"), "{answer:?}");
    direct.batch_execute("INSERT INTO t VALUES (5); PREPARE TRANSACTION 'p1'").await.unwrap();
    let answer = rig.run(command.clone()).await;
    assert_code(&answer, ControlCode::Draining);
    assert!(answer.message.as_ref().unwrap().contains("p1"), "{:?}", answer.message);
    direct.batch_execute("ROLLBACK PREPARED 'p1'").await.unwrap();
    assert_code(&rig.run(command).await, ControlCode::Applied);
    assert_eq!(rig.rows().await, 0);
}

#[tokio::test]
async fn force_terminates_a_backend_and_believes_only_the_engine() {
    let rig = Rig::new().await;
    let (client, seat, lease) = rig.writer().await;
    let waiting = tokio::spawn({
        let control = Arc::clone(&rig.control);
        let command = rig.acquire(CommandId::fresh(), policy(0, OnDeadline::ForceRollback)).await;
        let actor = Actor {
            surface: ActorSurface::AdminHttp,
            name: "test".to_owned(),
            has_adoption_key: false,
        };
        async move { control.execute(actor, command).await }
    });
    // A session that doesn't follow the order; its connection ends when the backend is terminated.
    eventually("the end of the backend", async || client.is_closed()).await;
    drop(lease);
    drop(seat);
    assert_code(&waiting.await.unwrap(), ControlCode::Applied);
    let evidence = rig.sight().await.record.unwrap().evidence.unwrap();
    assert_eq!((evidence.releases.by_answer, evidence.releases.by_engine), (0, 1));
    let kinds: Vec<&str> = evidence.forced.iter().map(|forced| forced.kind.name()).collect();
    assert_eq!(kinds, ["rollback", "backend_termination"]);
    assert_eq!(rig.rows().await, 0, "rolled back");
}

#[tokio::test]
async fn a_missing_database_and_another_one_are_refused() {
    let rig = Rig::new().await;
    let mut command = rig.acquire(CommandId::fresh(), policy(0, OnDeadline::Fail)).await;
    command.namespace = fencewire::base::ids::Namespace::parse("old/nobody").unwrap();
    command.expected_state = FenceState::Absent;
    let answer = rig.run(command.clone()).await;
    assert_eq!(answer.detail, Some(Detail::RoleMismatch), "{:?}", answer.message);
    assert!(rig.control.inspect(&command.namespace, false).await.is_err());
    command.namespace = fencewire::base::ids::Namespace::parse("old/postgres").unwrap();
    command.expected_state = FenceState::Unfenced;
    command.command = CommandId::fresh();
    let answer = rig.run(command).await;
    assert_eq!(answer.detail, Some(Detail::NamespaceIdentityMismatch));
}

#[tokio::test]
async fn an_engine_restart_loses_the_lock_and_it_is_taken_again() {
    let mut rig = Rig::new().await;
    let command = rig.acquire(CommandId::fresh(), policy(10_000, OnDeadline::Fail)).await;
    assert_code(&rig.run(command).await, ControlCode::Applied);
    rig.pg.down("QUIT");
    rig.pg.up().await;
    eventually("the lock again", async || {
        let lock = rig.sight().await.lock.unwrap();
        lock.held && lock.gaps.iter().any(|gap| gap.contains("lost"))
    })
    .await;
    assert!(rig.direct_write().await.is_err());
    assert_code(&rig.release(FenceState::SourceWriteFenced, 2).await, ControlCode::Applied);
    rig.direct_write().await.unwrap();
}

#[tokio::test]
async fn a_new_process_over_the_same_state_is_fenced_and_locked_before_it_serves() {
    let rig = Rig::new().await;
    let command = rig.acquire(CommandId::fresh(), policy(10_000, OnDeadline::Fail)).await;
    assert_code(&rig.run(command).await, ControlCode::Applied);
    let (gates, again) = control(&rig.pg, rig.state.path());
    let seat = Seat::take(gates.gate(&app()), SessionId(7), Card::default());
    assert!(seat.begin(StatementClass::Read, 0).is_err(), "closed until recovery is through");
    let found = again.recover().await.unwrap();
    assert_eq!(found.fences, [(app(), FenceState::SourceWriteFenced)]);
    assert_eq!(found.unlocked, []);
    assert!(seat.begin(StatementClass::Write, 0).is_err());
    let (read, _) = seat.begin(StatementClass::Read, 0).unwrap();
    read.answered();
}

#[tokio::test]
async fn every_answer_has_exactly_one_audit_event() {
    let rig = Rig::new().await;
    let (client, _seat, lease) = rig.writer().await;
    let command = rig.acquire(CommandId::fresh(), policy(0, OnDeadline::Fail)).await;
    rig.run(command.clone()).await;
    client.batch_execute("ROLLBACK").await.unwrap();
    lease.answered();
    rig.run(command.clone()).await;
    rig.run(command).await;
    rig.release(FenceState::SourceWriteFenced, 7).await;
    rig.release(FenceState::SourceWriteFenced, 2).await;
    let events = LOGGED.audit_of(rig.operation);
    let word = |event: &serde_json::Value, name: &str| event[name].as_str().unwrap().to_owned();
    let told: Vec<_> = events
        .iter()
        .map(|event| (word(event, "outcome"), word(event, "replay"), word(event, "state_after")))
        .collect();
    let expected = [
        ("DRAINING", "none", "SOURCE_DRAINING"),
        ("APPLIED", "resume", "SOURCE_WRITE_FENCED"),
        ("APPLIED", "replay", "SOURCE_WRITE_FENCED"),
        ("FENCE_REVISION_MISMATCH", "none", "SOURCE_WRITE_FENCED"),
        ("APPLIED", "none", "RELEASED"),
    ];
    let expected = expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
    assert_eq!(told, expected);
    assert!(events[1]["drain_ms"].is_number() && events[1]["drain_kind"] == "write");
    assert_eq!(events[3]["expected_revision"], 7);
}
