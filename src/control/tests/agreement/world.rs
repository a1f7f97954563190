//! The real thing: the controller over an SQLite file and marker files, before a scripted engine.
//!
//! Each process has a runtime of its own with paused time. It dies by being dropped with
//! everything it runs, and the next one opens the same files.

mod store;
mod targets;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use super::model::{
    Approvers, CLASSES, Creation, Fate, Heard, Kind, Line, Purpose, Request, Scene, State,
};
use super::steps::Manner;
use super::*;
use crate::base::limits;
use crate::control::status::InspectError;
use crate::control::tests::engine::CreateScript;
use crate::engine::Why;
use crate::fence::receipt::Receipt;
use crate::fence::record::{Identity, ValidationResult};
use crate::gate::admission::Refusal;
use crate::gate::capability::Capability;
use store::{SteadyStore, TickingClock};

/// How a command is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// The caller waits.
    Stay,
    /// The caller goes away at once, comes back, and sends it again.
    Return,
    /// It goes on while other things happen, where it has something to wait for.
    Behind,
}

/// What a command came to.
#[derive(Debug)]
pub(super) enum Said {
    Heard(Heard),
    /// It has something to wait for.
    AtWork,
    /// The process died in it.
    Died,
}

/// A session with work of some kind.
struct Held {
    _seat: Arc<Seat>,
    lease: Lease,
}

/// One process.
struct Life {
    control: Arc<Control>,
    store: Arc<FaultyStore>,
    behind: Option<tokio::task::JoinHandle<Arc<Answer>>>,
    question: Option<targets::Question>,
    /// Last, so that it ends when nothing uses it any more.
    runtime: Runtime,
}

pub(super) struct World {
    folder: tempfile::TempDir,
    /// Which copy of the store is used: a lost or restored one is at another place.
    copy: u64,
    saved: Option<(PathBuf, Option<Vec<u8>>)>,
    ticks: Arc<AtomicU64>,
    engine: ScriptedEngine,
    life: Option<Life>,
    writer: Option<Held>,
    reader: Option<Held>,
    idle: Option<Held>,
    bearer: Option<Held>,
    capabilities: targets::Given,
    sessions: u64,
}

/// A folder in memory where the system has one: nothing here is about disks.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

impl World {
    pub(super) fn new(exists: bool) -> Self {
        let engine = ScriptedEngine::default();
        engine.survives_terminate();
        if !exists {
            engine.missing();
        }
        let mut world = Self {
            folder: folder(),
            copy: 0,
            saved: None,
            ticks: Arc::default(),
            engine,
            life: None,
            writer: None,
            reader: None,
            idle: None,
            bearer: None,
            capabilities: targets::Given::default(),
            sessions: 0,
        };
        world.start();
        world
    }

    fn life(&self) -> &Life {
        self.life.as_ref().unwrap()
    }

    fn store_at(&self, copy: u64) -> PathBuf {
        self.folder.path().join(format!("fence-{copy}.db"))
    }

    fn marker(&self) -> PathBuf {
        self.folder.path().join(crate::store::marker::file_of(&namespace()))
    }

    fn start(&mut self) {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.unwrap();
        let sqlite = Arc::new(SqliteStore::open(&self.store_at(self.copy)).unwrap());
        let store = Arc::new(FaultyStore::new(Arc::new(SteadyStore(sqlite))));
        let as_store: Arc<dyn FenceStore> = Arc::<FaultyStore>::clone(&store);
        let control = runtime.block_on(async {
            let clock: Arc<dyn Clock> =
                Arc::new(TickingClock { ticks: Arc::clone(&self.ticks), started: Instant::now() });
            let control = build(&RigParts {
                dir: self.folder.path(),
                store: &as_store,
                engine: &self.engine,
                metrics: &Arc::new(Metrics::new()),
                clock: &clock,
                settings: &NamespaceSettings::default(),
            });
            control.recover().await.unwrap();
            control
        });
        self.life = Some(Life { control, store, behind: None, question: None, runtime });
    }

    /// The process dies, whatever it was doing.
    fn stop(&mut self) {
        self.life = None;
        (self.writer, self.reader, self.idle) = (None, None, None);
        self.bearer = None;
        self.capabilities.process_ended();
        self.engine.creations_go_on();
        self.engine.questions_go_on();
    }

    pub(super) fn restart(&mut self) {
        self.stop();
        self.start();
    }

    // --- what is done to the files ---

    /// Puts row and marker aside. Nothing may be at work.
    pub(super) fn save(&mut self) {
        let (from, to) = (self.store_at(self.copy), self.folder.path().join("saved.db"));
        copy_store(&from, &to);
        self.saved = Some((to, std::fs::read(self.marker()).ok()));
    }

    /// Starts over the store that was put aside, or over none.
    pub(super) fn with_store(&mut self, saved: bool) {
        self.stop();
        self.copy += 1;
        if let (true, Some((from, _))) = (saved, &self.saved) {
            copy_store(from, &self.store_at(self.copy));
        }
        self.start();
    }

    pub(super) fn put_marker_back(&mut self) {
        let bytes = self.saved.as_ref().and_then(|(_, marker)| marker.clone()).unwrap();
        self.write_marker(&bytes);
    }

    pub(super) fn garble_marker(&mut self) {
        self.write_marker(b"fencewire-marker 1 none\n{}");
    }

    fn write_marker(&self, bytes: &[u8]) {
        std::fs::create_dir_all(self.marker().parent().unwrap()).unwrap();
        std::fs::write(self.marker(), bytes).unwrap();
    }

    pub(super) fn lose_marker(&mut self) {
        if self.marker().exists() {
            std::fs::remove_file(self.marker()).unwrap();
        }
    }

    // --- sessions and the engine ---

    pub(super) fn engine_busy(&self, busy: bool) {
        let residue = if busy { vec![blocker(77, Why::HoldsTableLock)] } else { Vec::new() };
        self.engine.residue(residue);
    }

    pub(super) fn engine_silent(&self, silent: bool) {
        self.engine.unreachable(silent);
    }

    fn begin(&mut self, class: StatementClass) -> Result<Held, &'static str> {
        self.begin_with(class, None)
    }

    fn begin_with(
        &mut self,
        class: StatementClass,
        shown: Option<Capability>,
    ) -> Result<Held, &'static str> {
        let _inside = self.life.as_ref().unwrap().runtime.enter();
        self.sessions += 1;
        let gate = self.life().control.gates.gate(&namespace());
        let seat = Seat::take(gate, SessionId(self.sessions), Card::default());
        let seat = match shown {
            Some(capability) => seat.bearing(capability),
            None => seat,
        };
        let pid = i32::try_from(self.sessions).unwrap() + 1000;
        seat.slot().set_engine_pid(pid);
        seat.slot().note_alive(self.life().control.gates.looks());
        self.engine.backend(pid);
        match seat.begin(class, 0) {
            Ok((lease, _)) => Ok(Held { _seat: seat, lease }),
            Err(refusal) => Err(refusal.denial.code()),
        }
    }

    fn probe(&mut self, class: StatementClass, shown: Option<Capability>) -> &'static str {
        match self.begin_with(class, shown) {
            Ok(held) => {
                held.lease.unused();
                ""
            }
            Err(code) => code,
        }
    }

    pub(super) fn admits(&mut self) -> [&'static str; 5] {
        CLASSES.map(|name| self.probe(class(name), None))
    }

    pub(super) fn begin_writer(&mut self) -> &'static str {
        self.writer = match self.begin(StatementClass::Write) {
            Ok(held) => Some(held),
            Err(code) => return code,
        };
        ""
    }

    pub(super) fn begin_reader(&mut self) -> &'static str {
        self.reader = match self.begin(StatementClass::Read) {
            Ok(held) => Some(held),
            Err(code) => return code,
        };
        ""
    }

    /// A transaction that has read, and is idle now.
    pub(super) fn begin_idle(&mut self) -> &'static str {
        let mut held = match self.begin(StatementClass::Read) {
            Ok(held) => held,
            Err(code) => return code,
        };
        held.lease.paused();
        self.idle = Some(held);
        ""
    }

    pub(super) fn end_writer(&mut self) {
        self.writer.take().unwrap().lease.answered();
    }

    pub(super) fn end_reader(&mut self) {
        self.reader.take().unwrap().lease.answered();
    }

    pub(super) fn end_idle(&mut self) {
        self.idle.take().unwrap().lease.answered();
    }

    /// The idle transaction would write; it ends where it may.
    pub(super) fn rise(&mut self) -> (&'static str, &'static str) {
        let said: Result<_, Box<Refusal>> =
            self.idle.as_mut().unwrap().lease.extend(StatementClass::Write, true);
        match said {
            Ok(_) => {
                self.end_idle();
                ("", "")
            }
            Err(refusal) => (refusal.denial.code(), refusal.denial.detail().unwrap_or("")),
        }
    }

    // --- commands ---

    /// Sends a command.
    pub(super) fn ask(&mut self, request: Request, manner: &Manner) -> Said {
        let (how, parks) = (manner.how, manner.how == How::Behind);
        let life = self.life.as_mut().unwrap();
        life.plan(&manner.fates, manner.unreadable);
        self.engine.creation_comes_to(script(manner.creation));
        if parks && request.kind == Kind::Create {
            life.plan(&[], manner.unreadable);
            self.engine.creations_wait();
        }
        let made = self.engine.count("create");
        let engine = self.engine.clone();
        let (control, command) = (Arc::clone(&life.control), command(request));
        let its_key = command.key();
        let actor = Actor { has_adoption_key: manner.key, ..actor() };
        let store = Arc::clone(&life.store);
        let answer = async {
            match how {
                How::Stay => Ok(control.execute(actor, command).await),
                How::Return => {
                    let mut first = Box::pin(control.execute(actor.clone(), command.clone()));
                    let polled = std::future::poll_fn(|context| {
                        std::task::Poll::Ready(first.as_mut().poll(context).is_ready())
                    });
                    assert!(!polled.await, "answered without a turn");
                    drop(first);
                    Ok(control.execute(actor, command).await)
                }
                How::Behind => {
                    let its = Arc::clone(&control);
                    let task = tokio::spawn(async move { its.execute(actor, command).await });
                    while !task.is_finished() {
                        let report = control.drain_report(&namespace());
                        let waits = !report.blockers.is_empty() || report.reason.is_some();
                        let drains = waits && report.command == Some(its_key);
                        if drains || engine.count("create") > made {
                            return Err(task);
                        }
                        // tidy: not a race: paused time, between two looks at a level.
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    Ok(task.await.unwrap())
                }
            }
        };
        let said = life.runtime.block_on(async {
            tokio::select! {
                biased;
                answer = answer => Some(answer),
                () = store.hung() => None,
            }
        });
        life.plan(&[], false);
        match said {
            Some(Ok(answer)) => {
                self.engine.creations_go_on();
                Said::Heard(heard(&answer))
            }
            Some(Err(task)) => {
                life.behind = Some(task);
                Said::AtWork
            }
            None => Said::Died,
        }
    }

    /// The command behind comes to its answer, by its end or by its deadline.
    pub(super) fn settle(&mut self) -> Heard {
        let life = self.life.as_mut().unwrap();
        let task = life.behind.take().unwrap();
        let answer = life.runtime.block_on(task).unwrap();
        heard(&answer)
    }

    pub(super) fn scene(&mut self) -> Scene {
        let admits = self.admits();
        let (shown, bears) = (self.shown(), self.bears());
        let life = self.life();
        let all = life.runtime.block_on(life.control.inspect(&namespace(), true));
        let own = life.runtime.block_on(life.control.inspect(&namespace(), false));
        let mut scene = Scene {
            state: "NOT_FOUND",
            revision: 0,
            owner: None,
            detail: "",
            marker_agrees: None,
            pending: None,
            admits,
            receipts: Vec::new(),
            owners_receipts: Vec::new(),
            shown,
            bears,
        };
        let (all, own) = match (all, own) {
            (Ok(all), Ok(own)) => (all, own),
            (Err(InspectError::NotFound(_)), Err(InspectError::NotFound(_))) => return scene,
            other => panic!("{other:?}"),
        };
        let sight = all.sight;
        assert_eq!(sight.admission.read, admits[0].is_empty(), "{:?}", sight.admission);
        assert_eq!(sight.admission.write, admits[1].is_empty(), "{:?}", sight.admission);
        scene.state = sight.state.name();
        scene.owner = sight.record.as_ref().map(|record| number(record.operation));
        scene.revision = sight.record.map_or(0, |record| record.revision.0);
        scene.detail = sight.unavailable.map_or("", |unavailable| unavailable.detail.name());
        scene.marker_agrees = sight.marker_consistent;
        let pending = sight.admission.indeterminate;
        scene.pending = pending.map(|key| (number(key.operation), command_number(key.command)));
        scene.receipts = all.receipts.iter().map(line).collect();
        scene.owners_receipts = own.receipts.iter().map(line).collect();
        scene.receipts.sort();
        scene.owners_receipts.sort();
        scene
    }
}

impl Life {
    /// What becomes of the next commits, and whether the store can be read.
    fn plan(&self, fates: &[Fate], unreadable: bool) {
        self.store.replan(fates.iter().map(|fate| match fate {
            Fate::Lands => CommitFault::Pass,
            Fate::KnownLost => CommitFault::NotCommitted,
            Fate::UnknownLanded => CommitFault::UnknownCommitted,
            Fate::UnknownLost => CommitFault::UnknownNotCommitted,
            Fate::DiesBefore => CommitFault::HangsBefore,
            Fate::DiesBehind => CommitFault::HangsBehind,
        }));
        self.store.fail_reads(unreadable);
    }
}

fn class(name: &str) -> StatementClass {
    match name {
        "read" => StatementClass::Read,
        "write" => StatementClass::Write,
        "ddl" => StatementClass::Ddl,
        "lifecycle" => StatementClass::Lifecycle,
        "stream" => StatementClass::Stream,
        other => panic!("no class {other}"),
    }
}

fn script(creation: Creation) -> Option<CreateScript> {
    match creation {
        Creation::Made | Creation::Speechless => None,
        Creation::Exists => Some(CreateScript::Exists),
        Creation::Refused => Some(CreateScript::Refused),
        Creation::NotAsked => Some(CreateScript::NotAsked),
        Creation::Unknown { made } => Some(CreateScript::Unknown { made }),
    }
}

/// The database of that number.
fn database(number: u8) -> Identity {
    match number {
        1 => identity(),
        2 => Identity { engine_id: "7999".to_owned(), ..identity() },
        _ => Identity { database_id: "99999".to_owned(), ..identity() },
    }
}

fn copy_store(from: &Path, to: &Path) {
    for suffix in ["", "-wal"] {
        let with = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        if with(to).exists() {
            std::fs::remove_file(with(to)).unwrap();
        }
        if with(from).exists() {
            std::fs::copy(with(from), with(to)).unwrap();
        }
    }
}

fn number(operation: OperationId) -> u8 {
    (0..=u8::MAX).find(|number| op(*number) == operation).unwrap()
}

fn command_number(command: CommandId) -> u8 {
    (0..=u8::MAX).find(|number| id(*number) == command).unwrap()
}

fn line(receipt: &Receipt) -> Line {
    Line {
        by: number(receipt.operation),
        id: command_number(receipt.command),
        kind: receipt.kind.name(),
        outcome: receipt.outcome.name(),
        before: receipt.revision_before.0,
        after: receipt.revision_after.0,
        state: receipt.state_after.name(),
    }
}

fn heard(answer: &Answer) -> Heard {
    Heard {
        code: answer.code.name(),
        detail: answer.detail.map_or("", Detail::name),
        replayed: answer.replayed,
        receipt: answer.receipt.as_ref().map(line),
    }
}

fn command(request: Request) -> Command {
    let Request { by, id: number, kind, state, revision, terms } = request;
    let drain_policy = terms.deadline_ms.map(|deadline_ms| {
        let force = if terms.force { OnDeadline::ForceRollback } else { OnDeadline::Fail };
        policy(deadline_ms, force)
    });
    let approvers: &[&str] = match terms.approvers {
        Approvers::Two => &["ada", "grace"],
        Approvers::OneTwice => &["ada", " ada "],
        Approvers::OneOnly => &["ada"],
    };
    let arguments = match kind {
        Kind::Acquire => {
            Arguments::AcquireSourceWriteFence { identity: database(terms.database), drain_policy }
        }
        Kind::SetRead => Arguments::SetSourceReadFence { drain_policy },
        Kind::ClearRead => Arguments::ClearSourceReadFence,
        Kind::Release => Arguments::ReleaseSourceWriteFence,
        Kind::Create => Arguments::CreateTargetQuarantined {
            owner: None,
            encoding: None,
            locale: None,
            template: terms.template.then(|| "customers".to_owned()),
        },
        Kind::Seal => Arguments::SealTargetImport { drain_policy },
        Kind::Validate => Arguments::RecordTargetValidation {
            result: if terms.good { ValidationResult::Ok } else { ValidationResult::Failed },
            summary: terms.long.then(|| "x".repeat(limits::VALIDATION_SUMMARY_BYTES + 1)),
        },
        Kind::Publish => Arguments::PublishTargetReadableWriteFenced,
        Kind::Enable => Arguments::EnableTargetWrites,
        Kind::Abort => Arguments::AbortQuarantinedTarget,
        Kind::Adopt => Arguments::AdoptFence {
            current_operation: op(terms.owner),
            approvers: approvers.iter().map(|name| (*name).to_owned()).collect(),
            incident_ref: "INC-7".to_owned(),
            reason: if terms.reason { "the mover is gone" } else { "  " }.to_owned(),
        },
    };
    assert_eq!(arguments.kind().name(), kind.name());
    Command {
        namespace: namespace(),
        operation: op(by),
        command: id(number),
        expected_state: real(state),
        expected_revision: Revision(revision),
        arguments,
    }
}

/// The code's state of the same name.
fn real(state: State) -> FenceState {
    FenceState::ALL.into_iter().find(|real| real.name() == state.name()).unwrap()
}
