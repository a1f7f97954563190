//! Lanes of a wave: databases fenced side by side, each with clients and a history of its own.
//!
//! Purpose: the random part of the history tests, the same for every engine. Called by
//! `history_pg.rs` and `history_mysql.rs`; a [`Crewed`] place brings its own clients.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::{Dice, History, Place, fences};

/// Clients of one lane, without the one that goes around the proxy.
const CLIENTS: u64 = 6;

/// A place whose clients are known.
pub trait Crewed: Place {
    /// One client, until `stop`; a `direct` one goes around the proxy.
    fn work(&self, history: &History, name: &str, direct: bool, dice: Dice, stop: &AtomicBool);
}

/// How much is played, and what is expected of it.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Databases side by side.
    pub lanes: u64,
    /// Cycles of one lane; each wave has fresh databases.
    pub lane_cycles: u64,
    /// Whether the protocol's programs wait for a fence that holds.
    pub holds: bool,
}

/// A number from the environment.
pub fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// One lane: clients write to one database while fences rise and fall on it.
struct Lane<P> {
    site: P,
    history: History,
    seed: u64,
    cycles: u64,
}

impl<P: Crewed> Lane<P> {
    fn play(&self) {
        let (stop, mut dice) = (AtomicBool::new(false), Dice::new(self.seed));
        std::thread::scope(|scope| {
            let (site, history, stop) = (&self.site, &self.history, &stop);
            for number in 0..=CLIENTS {
                let (own, direct) = (dice.fork(), number == CLIENTS);
                let name = if direct { "direct".to_owned() } else { format!("c{number}") };
                scope.spawn(move || site.work(history, &name, direct, own, stop));
            }
            let driver = scope.spawn(|| {
                history.wait_more(50);
                (0..self.cycles).for_each(|_| fences::cycle(site, history, &mut dice));
            });
            let ended = driver.join();
            stop.store(true, Ordering::SeqCst);
            assert!(ended.is_ok(), "seed {}: the driver of the fences failed", self.seed);
        });
    }

    /// Compares everything with everything.
    fn judge(&self, plan: Plan) {
        let (seed, history, cycles) = (self.seed, &self.history, self.cycles);
        let report = history.verdict(&self.site);
        let reads = history.reads.load(Ordering::SeqCst);
        println!("seed {seed}: {cycles} cycles, {}, {reads} reads", report.figures());
        println!("  acknowledged and not: {:?}", history.kinds());
        assert!(report.violations.is_empty(), "VIOLATION: seed {seed}: {}", report.named());
        assert!(report.late.is_empty(), "seed {seed}: not in time: {:#?}", report.late);
        if cycles < plan.lane_cycles {
            return;
        }
        // A lane that tried nothing shows nothing. Two plans of six may end without a proof.
        let refused = |code: &str| report.refused.get(code).copied().unwrap_or_default() as u64;
        let done = report.acknowledged as u64;
        assert!(done > 2 * cycles && reads > cycles / 5, "seed {seed}: hardly anything was done");
        assert!(refused("ZF001") > cycles, "seed {seed}: hardly anything was refused");
        let late = refused("ZF010");
        assert!(
            !plan.holds || late > cycles / 10,
            "seed {seed}: hardly anything was held too long"
        );
        assert!(report.fenced as u64 >= cycles / 4, "seed {seed}: few fences were proven");
    }
}

/// One wave: its lanes run at the same time and are judged when all have ended. Places are made
/// before anybody writes: a slot of PostgreSQL's waits for every transaction of the server.
fn wave<P: Crewed>(make: impl Fn() -> P, plan: Plan, seed: u64, cycles: u64) {
    let began = Instant::now();
    let lanes: Vec<Lane<P>> = (0..plan.lanes)
        .map(|lane| (lane, cycles / plan.lanes + u64::from(lane < cycles % plan.lanes)))
        .filter(|(_, cycles)| *cycles > 0)
        .map(|(lane, cycles)| {
            let site = make();
            let history = History::of(&site);
            Lane { site, history, seed: seed + lane, cycles }
        })
        .collect();
    std::thread::scope(|scope| {
        for lane in &lanes {
            scope.spawn(|| lane.play());
        }
    });
    println!("{cycles} cycles in {} lanes: {:?}", lanes.len(), began.elapsed());
    lanes.iter().for_each(|lane| lane.judge(plan));
}

/// Plays as many waves as are asked for; the seed is printed, or given.
pub fn play<P: Crewed>(make: impl Fn() -> P, plan: Plan) {
    let fixed = number("FENCEWIRE_HISTORY_SEED");
    let seed = fixed.unwrap_or_else(|| u64::from(std::process::id()) << 20 | nanos());
    println!("FENCEWIRE_HISTORY_SEED={seed}");
    let whole = plan.lanes * plan.lane_cycles;
    let mut left = number("FENCEWIRE_SOAK_CYCLES").unwrap_or(whole);
    let mut first = seed;
    while left > 0 {
        let cycles = left.min(whole);
        wave(&make, plan, first, cycles);
        left -= cycles;
        first += plan.lanes;
    }
}

fn nanos() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::from(now.subsec_nanos()) >> 10
}
