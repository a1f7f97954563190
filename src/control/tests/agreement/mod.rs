//! Random sequences of all that can happen to one namespace's fence, beside a model of the
//! contract that was written from its text alone.
//!
//! `model.rs` is the contract, `world.rs` the real controller over a real store and real markers.
//! Commands come right and wrong, once and again, from several operations; commits fail, land
//! unheard or get lost; callers go away, the process dies; store and marker are lost, spoilt and
//! put back; sessions write, read and idle, and the engine is busy or silent. After each step the
//! answer, the view, every receipt and what the gate admits must be what the contract says:
//! `VIOLATION` says where it isn't. `FENCEWIRE_AGREEMENT_CASES` draws more.

mod model;
mod world;

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};

use model::{Approvers, Bug, Entry, Fate, Heard, Kind, Model, Outside, Request, State, Terms};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use world::{How, World};

use super::*;
use crate::fence::record::{Identity, ValidationResult};

/// The commands that are played. Those of targets are in the model's tables, and not played yet.
const PLAYED: [Kind; 5] =
    [Kind::Acquire, Kind::SetRead, Kind::ClearRead, Kind::Release, Kind::Adopt];

/// The deadline of a drain that others go on beside: longer than all of theirs together.
const BEHIND_MS: u64 = 2 * 60 * 60 * 1000;

/// What a caller believes of state and revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Belief {
    Right,
    OldRevision,
    OtherState,
}

/// How a command comes, and what happens to it.
#[derive(Debug, Clone)]
struct Manner {
    fates: Vec<Fate>,
    how: How,
    key: bool,
    unreadable: bool,
}

/// One thing that happens.
#[derive(Debug, Clone)]
enum Step {
    /// A command under an id that is mostly its own.
    Ask {
        kind: Kind,
        by: u8,
        id: Option<u8>,
        belief: Belief,
        terms: Terms,
        manner: Manner,
    },
    /// An earlier one once more: to the letter, or with another body.
    Again {
        back: usize,
        altered: bool,
        manner: Manner,
    },
    /// A session begins to write or to read, or ends.
    Write,
    Read,
    /// A transaction that reads becomes idle, or ends.
    Idle,
    /// It would write; where there is none, one begins.
    Rise,
    /// Something around the proxy holds a lock, or the engine doesn't answer.
    Busy(bool),
    Silent(bool),
    /// The command that is at work behind comes to its answer.
    Settle,
    Restart,
    Spoil(Spoil),
}

/// What is done to row and marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spoil {
    Save,
    PutStoreBack,
    PutMarkerBack,
    LoseStore,
    LoseMarker,
    GarbleMarker,
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, real: T, text: T) -> Result<(), TestCaseError> {
    if real == text {
        return Ok(());
    }
    let said = format!("VIOLATION: contract: {what}:\n  code:     {real:?}\n  contract: {text:?}");
    Err(TestCaseError::fail(said))
}

/// What was answered and reached, by name.
type Seen = BTreeSet<String>;

struct Play {
    world: World,
    model: Model,
    outside: Outside,
    asked: Vec<Request>,
    /// The drain that is at work behind, and whether it was resumed.
    behind: Option<(Entry, bool)>,
    busy: bool,
    /// Whether a session is there; of a reader, whether it began before writes closed.
    writer: bool,
    reader: Option<bool>,
    /// The generation under which the idle transaction began.
    idle: Option<u64>,
    seen: Seen,
}

impl Play {
    fn new(exists: bool, bug: Option<Bug>) -> Self {
        Self {
            world: World::new(exists),
            model: Model::new(bug),
            outside: Outside { exists, ..Outside::default() },
            asked: Vec::new(),
            behind: None,
            busy: false,
            writer: false,
            reader: None,
            idle: None,
            seen: Seen::new(),
        }
    }

    /// Programs that were admitted as reads before the gate closed are waited for as well
    /// (`docs/ARCHITECTURE.md`); a read drain waits for whatever runs.
    fn outside(&self) -> Outside {
        Outside {
            writes_held: self.busy || self.writer || self.reader == Some(true),
            reads_held: self.writer || self.reader.is_some(),
            ..self.outside
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Ask { kind, by, id, belief, terms, manner } => {
                let (mut state, mut revision, owner) = self.model.expected(&self.outside);
                match belief {
                    Belief::Right => {}
                    Belief::OldRevision => revision = revision.saturating_sub(1),
                    Belief::OtherState => state = State::Released,
                }
                let id = id.unwrap_or(u8::try_from(self.asked.len()).unwrap() + 50);
                let owner = if terms.owner == 0 { owner } else { terms.owner };
                let mut terms = Terms { owner, ..*terms };
                if manner.how == How::Behind {
                    (terms.deadline_ms, terms.force) = (Some(BEHIND_MS), false);
                }
                let terms = terms.of(*kind);
                let request = Request { by: *by, id, kind: *kind, state, revision, terms };
                self.asked.push(request);
                self.ask(request, manner)?;
            }
            Step::Again { back, altered, manner } => {
                let Some(earlier) = self.asked.iter().rev().nth(*back) else { return Ok(()) };
                let mut request = *earlier;
                request.revision += u64::from(*altered);
                self.ask(request, manner)?;
            }
            Step::Write | Step::Read | Step::Idle | Step::Rise => self.session(step)?,
            Step::Busy(busy) => {
                self.busy = *busy;
                self.world.engine_busy(*busy);
            }
            Step::Silent(silent) => {
                self.outside.silent = *silent;
                self.world.engine_silent(*silent);
            }
            Step::Settle => self.settle()?,
            Step::Restart => {
                self.lose_process();
                self.world.restart();
                self.model.restart();
            }
            Step::Spoil(spoil) => {
                self.settle()?;
                self.spoil(*spoil);
            }
        }
        let ends = self.behind.is_some_and(|(entry, _)| {
            !self.outside().holds(entry.state) || !self.model.is_draining(&entry)
        });
        if ends {
            self.settle()?;
        }
        let text = self.model.scene(&self.outside);
        self.seen.insert(format!("{} {}", text.state, text.detail));
        same("the scene", self.world.scene(), text)
    }

    fn ask(&mut self, request: Request, manner: &Manner) -> Result<(), TestCaseError> {
        if self.behind.is_some_and(|(entry, _)| entry.request == request) {
            // It would join the one behind, and wait as long.
            return self.settle();
        }
        let drains = matches!(request.kind, Kind::Acquire | Kind::SetRead | Kind::Seal);
        if drains && self.behind.is_some() && request.terms.deadline_ms.is_none() {
            // Without a deadline of its own it may take the record's, and outlast the one behind.
            return Ok(());
        }
        let Manner { fates, how, key, unreadable } = manner.clone();
        let outside = Outside { key, unreadable, ..self.outside() };
        // The faults of one command mustn't meet the commits of another that is at work.
        let at_once = request.terms.deadline_ms == Some(0);
        let most = if self.behind.is_some() {
            0
        } else if at_once {
            1
        } else {
            fates.len()
        };
        let long = request.terms.deadline_ms == Some(BEHIND_MS);
        let how = match how {
            How::Behind if self.behind.is_none() && long => How::Behind,
            How::Return => How::Return,
            How::Stay | How::Behind => How::Stay,
        };
        let fates: Vec<Fate> = fates.into_iter().take(most).collect();
        let fates = if how == How::Behind { Vec::new() } else { fates };
        let text = self.model.ask(request, &outside, &mut VecDeque::from(fates.clone()));
        let real = self.world.ask(request, (key, unreadable), &fates, how);
        let running = self.model.running(request).filter(|_| text.code == "DRAINING");
        let again = if text.replayed { "again" } else { "" };
        self.seen.insert(format!("{} {} {again}", text.code, text.detail));
        self.seen.insert(format!("{} {}", request.kind.name(), text.code));
        match (real, running) {
            (None, Some(entry)) => {
                self.behind = Some((entry, text.replayed));
                Ok(())
            }
            (None, None) => same("at work", "a drain that waits", text.code),
            (Some(real), _) => same("the answer", real, text),
        }
    }

    /// Has the command behind answer.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        let Some((entry, replayed)) = self.behind.take() else { return Ok(()) };
        let real = self.world.settle();
        let text: Heard = self.model.drain(entry, replayed, &self.outside(), &mut VecDeque::new());
        same("the answer of the one behind", real, text)
    }

    fn lose_process(&mut self) {
        (self.behind, self.writer, self.reader, self.idle) = (None, false, None, None);
        self.outside.silent = false;
        self.world.engine_silent(false);
    }

    fn session(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Write if self.writer => {
                self.world.end_writer();
                self.writer = false;
            }
            Step::Write => {
                let text = self.model.admits(1);
                self.writer = text.is_empty();
                same("a write", self.world.begin_writer(), text)?;
            }
            Step::Read if self.reader.is_some() => {
                self.world.end_reader();
                self.reader = None;
            }
            Step::Read => {
                let text = self.model.admits(0);
                self.reader = text.is_empty().then_some(self.model.admits(1).is_empty());
                same("a read", self.world.begin_reader(), text)?;
            }
            Step::Rise if self.idle.is_some() => {
                let since = self.idle.unwrap();
                let text = self.model.may_rise(since);
                if text.0.is_empty() {
                    self.idle = None;
                }
                self.seen.insert(format!("rise {} {}", text.0, text.1));
                same("an older transaction's write", self.world.rise(), text)?;
            }
            Step::Idle if self.idle.is_some() => {
                self.world.end_idle();
                self.idle = None;
            }
            Step::Idle | Step::Rise => {
                let text = self.model.admits(0);
                self.idle = text.is_empty().then_some(self.model.generation());
                same("a transaction", self.world.begin_idle(), text)?;
            }
            Step::Ask { .. }
            | Step::Again { .. }
            | Step::Busy(_)
            | Step::Silent(_)
            | Step::Settle
            | Step::Restart
            | Step::Spoil(_) => panic!("not a session's: {step:?}"),
        }
        Ok(())
    }

    fn spoil(&mut self, spoil: Spoil) {
        match spoil {
            Spoil::Save => {
                self.world.save();
                self.model.save();
            }
            Spoil::PutStoreBack => {
                if self.model.put_store_back() {
                    self.lose_process();
                    self.world.with_store(true);
                    self.model.restart();
                }
            }
            Spoil::LoseStore => {
                self.model.lose_store();
                self.lose_process();
                self.world.with_store(false);
                self.model.restart();
            }
            Spoil::PutMarkerBack => {
                if self.model.put_marker_back() {
                    self.world.put_marker_back();
                }
            }
            Spoil::LoseMarker => {
                self.world.lose_marker();
                self.model.lose_marker();
            }
            Spoil::GarbleMarker => {
                self.world.garble_marker();
                self.model.garble_marker();
            }
        }
    }
}

fn play(exists: bool, steps: &[Step], bug: Option<Bug>) -> Result<Seen, TestCaseError> {
    let mut play = Play::new(exists, bug);
    for step in steps {
        play.step(step).map_err(|error| TestCaseError::fail(format!("{error}\n  at {step:?}")))?;
    }
    Ok(play.seen)
}

fn terms() -> impl Strategy<Value = Terms> {
    let deadline = prop_oneof![
        1 => Just(None),
        2 => Just(Some(0)),
        3 => Just(Some(10_000)),
    ];
    let owner = prop_oneof![6 => Just(0_u8), 1 => Just(9)];
    let approvers = prop_oneof![
        8 => Just(Approvers::Two),
        1 => Just(Approvers::OneTwice),
        1 => Just(Approvers::OneOnly),
    ];
    let mostly = || prop::bool::weighted(0.9);
    (deadline, prop::bool::weighted(0.3), mostly(), owner, approvers, mostly()).prop_map(
        |(deadline_ms, force, right_database, owner, approvers, reason)| Terms {
            deadline_ms,
            force,
            right_database,
            owner,
            approvers,
            reason,
        },
    )
}

fn manner() -> impl Strategy<Value = Manner> {
    let fate = prop_oneof![
        10 => Just(Fate::Lands),
        1 => Just(Fate::KnownLost),
        1 => Just(Fate::UnknownLanded),
        1 => Just(Fate::UnknownLost),
    ];
    let how = prop_oneof![4 => Just(How::Stay), 1 => Just(How::Return), 2 => Just(How::Behind)];
    let fates = prop::collection::vec(fate, 0..3);
    (fates, how, prop::bool::weighted(0.85), prop::bool::weighted(0.04))
        .prop_map(|(fates, how, key, unreadable)| Manner { fates, how, key, unreadable })
}

fn step() -> impl Strategy<Value = Step> {
    let belief = prop_oneof![
        10 => Just(Belief::Right),
        1 => Just(Belief::OldRevision),
        1 => Just(Belief::OtherState),
    ];
    let by = prop_oneof![5 => Just(1_u8), 2 => Just(2), 1 => Just(3)];
    let id = prop_oneof![8 => Just(None), 1 => (0_u8..3).prop_map(Some)];
    let ask = (prop::sample::select(&PLAYED[..]), by, id, belief, terms(), manner()).prop_map(
        |(kind, by, id, belief, terms, manner)| Step::Ask { kind, by, id, belief, terms, manner },
    );
    let again = (0_usize..6, prop::bool::weighted(0.1), manner())
        .prop_map(|(back, altered, manner)| Step::Again { back, altered, manner });
    let spoil = prop_oneof![
        3 => Just(Spoil::Save),
        2 => Just(Spoil::PutStoreBack),
        2 => Just(Spoil::PutMarkerBack),
        1 => Just(Spoil::LoseStore),
        2 => Just(Spoil::LoseMarker),
        1 => Just(Spoil::GarbleMarker),
    ];
    let often = |on: f64| prop::bool::weighted(on);
    prop_oneof![
        20 => ask,
        8 => again,
        3 => Just(Step::Write),
        2 => Just(Step::Read),
        3 => Just(Step::Idle),
        5 => Just(Step::Rise),
        2 => often(0.4).prop_map(Step::Busy),
        1 => often(0.4).prop_map(Step::Silent),
        2 => Just(Step::Settle),
        3 => Just(Step::Restart),
        3 => spoil.prop_map(Step::Spoil),
    ]
}

type Sequence = (bool, Vec<Step>);

fn run(bug: Option<Bug>, cases: u32) -> Result<Seen, TestError<Sequence>> {
    let config = Config {
        cases,
        max_shrink_iters: if bug.is_some() { 0 } else { 400 },
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[20; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let sequences = (prop::bool::weighted(0.95), prop::collection::vec(step(), 1..60));
    let seen = RefCell::new(Seen::new());
    runner.run(&sequences, |(exists, steps)| {
        seen.borrow_mut().append(&mut play(exists, &steps, bug)?);
        Ok(())
    })?;
    Ok(seen.into_inner())
}

/// What the sequences must have met, so that agreement says something.
const MET: &[&str] = &[
    "UNFENCED ",
    "NOT_FOUND ",
    "SOURCE_DRAINING ",
    "SOURCE_WRITE_FENCED ",
    "SOURCE_READ_DRAINING ",
    "SOURCE_READ_FENCED ",
    "RELEASED ",
    "UNKNOWN_UNAVAILABLE metastore_behind_marker",
    "UNKNOWN_UNAVAILABLE corrupt_record",
    "AcquireSourceWriteFence APPLIED",
    "SetSourceReadFence APPLIED",
    "SetSourceReadFence DRAINING",
    "ClearSourceReadFence APPLIED",
    "ReleaseSourceWriteFence APPLIED",
    "ReleaseSourceWriteFence FENCE_OWNED_BY_ANOTHER_OPERATION",
    "AdoptFence APPLIED",
    "APPLIED  again",
    "ALREADY_APPLIED  ",
    "ALREADY_APPLIED  again",
    "DRAINING  ",
    "DRAINING  again",
    "FENCE_REVISION_MISMATCH  ",
    "FENCE_COMMAND_CONFLICT  ",
    "FENCE_COMMIT_INDETERMINATE indeterminate_commit ",
    "FENCE_STATE_UNAVAILABLE metastore_behind_marker ",
    "FENCE_STATE_UNAVAILABLE corrupt_record ",
    "FENCE_PRECONDITION_FAILED namespace_identity_mismatch ",
    "FENCE_PRECONDITION_FAILED adoption_not_authorised ",
    "INVALID_FENCE_TRANSITION  ",
    "INVALID_FENCE_TRANSITION operation_finished ",
    "INVALID_FENCE_TRANSITION role_mismatch ",
    "ERROR  ",
    "rise  ",
    "rise MIGRATION_WRITE_FENCED ",
    "rise MIGRATION_WRITE_FENCED stale_transaction",
    "rise FENCE_STATE_UNAVAILABLE ",
];

#[test]
fn acceptance_13_the_controller_and_the_contract_agree() {
    let cases = std::env::var("FENCEWIRE_AGREEMENT_CASES");
    let seen = match run(None, cases.map_or(150, |text| text.parse().unwrap())) {
        Ok(seen) => seen,
        Err(error) => panic!("{error}"),
    };
    let missed: Vec<_> = MET.iter().filter(|name| !seen.contains(**name)).collect();
    assert!(missed.is_empty(), "the sequences never met {missed:?}; they met {seen:#?}");
}

#[test]
fn a_contract_read_wrongly_is_noticed() {
    for bug in Bug::ALL {
        let found = run(Some(bug), 300);
        assert!(found.is_err(), "the sequences don't notice {bug:?}");
    }
}

/// The guards of the code, removed one by one.
#[cfg(debug_assertions)]
#[test]
fn a_controller_without_a_guard_is_noticed() {
    let check = "control::tests::agreement::acceptance_13_the_controller_and_the_contract_agree";
    let guards = ["commit-doubt", "generation-check"].map(|guard| (guard, "contract"));
    crate::base::arm::missed(check, &guards).unwrap();
}
