//! Random sequences of all that moves a gate or a lease, beside a model of what it rests on.
//!
//! Invariants 5, 6, 7 and 13 on the real gates, seats, leases, drains, starts and stops. The model
//! knows only what was asked and answered: which programs were admitted, as what and when, and how
//! they ended. It is asked after every step (`Model::check`, `Model::drained`); what it finds
//! begins with `VIOLATION: invariant`. The last test removes the guards of the real code one by
//! one and expects the very same check to report it.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use super::state_dir::given_back;
use super::*;
use crate::base::ids::SessionId;
use crate::fence::record::InFlight;
use crate::fence::verdict::Overlay;
use crate::gate::admission::{Guard, Seat};
use crate::gate::drain::{Drain, Drained};
use crate::gate::lease::Lease;
use crate::gate::registry::{Authority, Gate};
use crate::gate::slot::Card;
use crate::sql::StatementClass;
use crate::store::LoadedFence;

const CLIENTS: usize = 3;

/// One thing that happens.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A closing overlay goes up.
    Close(Overlay),
    /// Nothing is known of the namespace any more.
    Forget,
    /// The store says that there is no fence.
    Open,
    /// A client's program begins; inside its transaction where it has one.
    Run { client: usize, write: bool },
    /// It is answered, and the transaction stays open.
    Pause { client: usize },
    /// It is answered, and nothing is left of it.
    Answer { client: usize },
    /// The session ends without an answer.
    Lose { client: usize },
    /// The engine shows the oldest lost session's backend gone.
    Settle,
    /// A drain begins, and looks at once.
    Drain,
    /// A drain looks.
    Look { back: usize },
    /// The process is told to stop, and ends every session.
    Stop,
    /// The process dies, and another one starts so much later; clocks can go back.
    Restart { after_ms: i64 },
}

/// What the model knows of a program or transaction that was admitted.
#[derive(Debug, Clone, Copy)]
struct Owed {
    /// The gate's generation when it was admitted.
    since: Generation,
    writer: bool,
    /// It runs, and the engine doesn't keep it from writing.
    unguarded: bool,
    /// Its session ended without an outcome.
    lost: bool,
}

#[derive(Debug, Default)]
struct Model {
    owed: BTreeMap<u64, Owed>,
    /// Everything older was said to be drained.
    through: Option<Generation>,
    /// The highest generation of any process so far.
    highest: u64,
}

fn violated(number: u8, what: &str) -> TestCaseError {
    TestCaseError::fail(format!("VIOLATION: invariant {number}: {what}"))
}

impl Model {
    /// What must hold after each step.
    fn check(
        &mut self,
        gate: &Gate,
        before: Option<(Generation, bool)>,
    ) -> Result<(), TestCaseError> {
        let (now, open) = (gate.word().generation(), gate.word().writes_open());
        if gate.published().generation != now {
            return Err(violated(5, "word and policy are of different generations"));
        }
        match before {
            Some((then, _)) if now < then => {
                return Err(violated(5, &format!("{now} follows {then}")));
            }
            Some((then, was_open)) if was_open != open && now == then => {
                return Err(violated(5, &format!("writes moved, and it stays at {now}")));
            }
            None if now.0 <= self.highest => {
                let what =
                    format!("a process starts at {now}, an earlier one was at {}", self.highest);
                return Err(violated(5, &what));
            }
            Some(_) | None => {}
        }
        self.highest = self.highest.max(now.0);
        let through = self.through.unwrap_or(Generation(0));
        let back = self.owed.values().find(|owed| owed.writer && owed.since < through);
        match back {
            Some(owed) => Err(violated(6, &format!("{owed:?} behind a drain through {through}"))),
            None => Ok(()),
        }
    }

    /// What must hold when something was said to be drained.
    fn drained(&mut self, drained: &Drained) -> Result<(), TestCaseError> {
        let through = drained.generation();
        let older = self.owed.values().filter(|owed| owed.since < through);
        let left = older.clone().find(|owed| owed.lost || owed.writer || owed.unguarded);
        if let Some(owed) = left {
            let number = if owed.lost { 7 } else { 6 };
            return Err(violated(number, &format!("drained through {through} with {owed:?}")));
        }
        self.through = self.through.max(Some(through));
        Ok(())
    }
}

struct Client {
    id: u64,
    seat: Arc<Seat>,
    lease: Option<Lease>,
}

/// One process, and what is left of those before it.
struct World {
    model: Model,
    gates: Gates,
    gate: Arc<Gate>,
    clients: Vec<Client>,
    sessions: u64,
    drains: Vec<Drain>,
    now_ms: u64,
    kept: tempfile::TempDir,
    claimed: Option<StateDir>,
}

impl World {
    fn new() -> Self {
        let gates = Gates::new(Generation(0));
        let gate = gates.gate(&Namespace::parse("old/app").unwrap());
        let mut world = Self {
            model: Model::default(),
            gates,
            gate,
            clients: Vec::new(),
            sessions: 0,
            drains: Vec::new(),
            now_ms: 1_750_000_000_000,
            kept: tempfile::tempdir().unwrap(),
            claimed: None,
        };
        world.start();
        world
    }

    fn start(&mut self) {
        self.claimed = None;
        let mut claimed = given_back(|| StateDir::claim(self.kept.path()));
        self.gates = Gates::new(first_generation(&mut claimed, self.now_ms).unwrap());
        self.claimed = Some(claimed);
        self.gate = self.gates.gate(&Namespace::parse("old/app").unwrap());
        self.clients = (0..CLIENTS).map(|_| Self::arrive(&mut self.sessions, &self.gate)).collect();
    }

    fn arrive(sessions: &mut u64, gate: &Arc<Gate>) -> Client {
        *sessions += 1;
        let seat = Seat::take(Arc::clone(gate), SessionId(*sessions), Card::default());
        Client { id: *sessions, seat, lease: None }
    }

    /// A session goes; another client comes in its place. What ran isn't resolved.
    fn lose(&mut self, client: usize) {
        let next = Self::arrive(&mut self.sessions, &self.gate);
        let gone = std::mem::replace(&mut self.clients[client], next);
        if let (Some(owed), Some(_)) = (self.model.owed.get_mut(&gone.id), &gone.lease) {
            owed.lost = true;
        }
    }

    fn run(&mut self, client: usize, write: bool) {
        let class = if write { StatementClass::Write } else { StatementClass::Read };
        let client = &mut self.clients[client];
        let (id, since) = (client.id, self.gate.word().generation());
        let admitted = match &mut client.lease {
            Some(lease) => {
                lease.paused();
                lease.extend(class, true).ok()
            }
            none => client.seat.begin(class, 0).ok().map(|(lease, guard)| {
                *none = Some(lease);
                guard
            }),
        };
        let fresh = Owed { since, writer: false, unguarded: false, lost: false };
        match admitted {
            Some(guard) => {
                let owed = self.model.owed.entry(id).or_insert(fresh);
                owed.writer |= write;
                owed.unguarded = guard == Guard::Off;
            }
            // What was paused for it stays so.
            None => self.pause(id),
        }
    }

    fn pause(&mut self, id: u64) {
        if let Some(owed) = self.model.owed.get_mut(&id) {
            owed.unguarded = false;
        }
    }

    fn look(&mut self, back: usize) -> Result<(), TestCaseError> {
        let found = self.drains.iter_mut().rev().nth(back).and_then(Drain::look);
        found.map_or(Ok(()), |drained| self.model.drained(&drained))
    }

    fn stop(&mut self) -> Result<(), TestCaseError> {
        let before = self.gate.word();
        for order in [Order::FINISH, Order::END] {
            order_all(&self.gates, order);
            let told = |client: &Client| client.seat.slot().take_orders().0.has(order);
            prop_assert!(self.clients.iter().all(told), "a session wasn't told");
        }
        let changed = self.gate.word() != before;
        (0..CLIENTS).for_each(|client| self.lose(client));
        let what = "stopping moved a gate";
        if changed { Err(violated(13, what)) } else { Ok(()) }
    }

    fn restart(&mut self, after_ms: i64) -> Result<(), TestCaseError> {
        self.now_ms = self.now_ms.saturating_add_signed(after_ms);
        self.drains.clear();
        self.model.owed.clear();
        self.model.through = None;
        self.start();
        let shut = !self.gate.word().writes_open() && !self.gate.published().policy.reads_open();
        if shut { Ok(()) } else { Err(violated(4, "a process starts with an open gate")) }
    }

    fn apply(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Close(overlay) => {
                self.gate.overlay(overlay, InFlight::Finish);
            }
            Step::Forget => {
                self.gate.close_as_unknown();
            }
            Step::Open => {
                let nothing = LoadedFence::of_an_empty_store(self.gate.namespace().clone());
                self.gate.apply(Authority::Loaded(&nothing), InFlight::Finish);
            }
            Step::Run { client, write } => self.run(client, write),
            Step::Pause { client } => {
                let client = &mut self.clients[client];
                let id = client.id;
                client.lease.iter_mut().for_each(Lease::paused);
                self.pause(id);
            }
            Step::Answer { client } => {
                let client = &mut self.clients[client];
                client.lease.take().into_iter().for_each(Lease::answered);
                self.model.owed.remove(&client.id);
            }
            Step::Lose { client } => self.lose(client),
            Step::Settle => {
                let lost = self.model.owed.iter().find(|(_, owed)| owed.lost);
                if let Some(id) = lost.map(|(id, _)| *id) {
                    self.gate.settle(SessionId(id));
                    self.model.owed.remove(&id);
                }
            }
            Step::Drain => {
                self.drains.extend(Drain::of(Arc::clone(&self.gate)));
                return self.look(0);
            }
            Step::Look { back } => return self.look(back),
            Step::Stop => return self.stop(),
            Step::Restart { after_ms } => return self.restart(after_ms),
        }
        Ok(())
    }
}

fn play(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut world = World::new();
    for step in steps {
        let before = (world.gate.word().generation(), world.gate.word().writes_open());
        world.apply(*step)?;
        let before = (!matches!(step, Step::Restart { .. })).then_some(before);
        world.model.check(&world.gate, before)?;
    }
    Ok(())
}

fn step() -> impl Strategy<Value = Step> {
    let client = 0..CLIENTS;
    prop_oneof![
        4 => prop_oneof![Just(Overlay::Installing), Just(Overlay::Indeterminate)]
            .prop_map(Step::Close),
        1 => Just(Step::Forget),
        4 => Just(Step::Open),
        8 => (client.clone(), any::<bool>())
            .prop_map(|(client, write)| Step::Run { client, write }),
        5 => client.clone().prop_map(|client| Step::Pause { client }),
        2 => client.clone().prop_map(|client| Step::Answer { client }),
        1 => client.prop_map(|client| Step::Lose { client }),
        1 => Just(Step::Settle),
        6 => Just(Step::Drain),
        3 => (0_usize..3).prop_map(|back| Step::Look { back }),
        1 => Just(Step::Stop),
        1 => (-5_000_i64..5_000).prop_map(|after_ms| Step::Restart { after_ms }),
    ]
}

#[test]
fn what_moves_gates_and_leases_keeps_the_invariants() {
    let config = Config {
        cases: 400,
        max_shrink_iters: 400,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[5; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let sequences = prop::collection::vec(step(), 1..100);
    if let Err(error) = runner.run(&sequences, |steps| play(&steps)) {
        panic!("{error}");
    }
}

#[cfg(debug_assertions)]
#[test]
fn each_guard_is_missed_by_the_same_check() {
    let check = "app::sequences::what_moves_gates_and_leases_keeps_the_invariants";
    let guards = [
        ("closed-start", "invariant 4"),
        ("generation-growth", "invariant 5"),
        ("generation-start", "invariant 5"),
        ("generation-check", "invariant 6"),
        ("drain-generation", "invariant 6"),
        ("observed-release", "invariant 7"),
        ("stop-leaves-gates", "invariant 13"),
    ];
    crate::base::arm::missed(check, &guards).unwrap();
}
