//! Random fences under load: table, log and histories must agree (proof.md section 7).
//!
//! `FENCEWIRE_HISTORY_SEED` replays a seed that a failure printed (dice and plans are the same; the
//! machine's own timing isn't). `FENCEWIRE_SOAK_CYCLES` runs that many fence cycles (`make soak`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod acceptance;
mod history;
mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use acceptance::{Site, metric};
use history::check::{LogRow, check};
use history::clients::Client;
use history::{Attempt, Dice, End, Fence, History, fences};
use support::{Options, PgCluster, Proxy};

/// Cycles of one lane of a wave; each has a fresh database.
const LANE_CYCLES: u64 = 50;
/// Databases that are fenced side by side, each with clients and a history of its own.
const LANES: u64 = 4;
const CLIENTS: u64 = 6;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// One lane: clients write to one database while fences rise and fall on it.
struct Lane<'a> {
    site: Site<'a>,
    history: History,
    seed: u64,
    cycles: u64,
}

impl Lane<'_> {
    fn play(&self) {
        let (stop, mut dice) = (AtomicBool::new(false), Dice::new(self.seed));
        std::thread::scope(|scope| {
            let (site, history, stop) = (&self.site, &self.history, &stop);
            for number in 0..CLIENTS {
                let client = Client::new(site, history, &format!("c{number}"), dice.fork());
                scope.spawn(move || client.run(stop));
            }
            let direct = Client::direct(site, history, dice.fork());
            scope.spawn(move || direct.run(stop));
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
    fn judge(&self) {
        let (seed, history) = (self.seed, &self.history);
        let report = history.verdict(&self.site);
        let reads = history.reads.load(Ordering::SeqCst);
        println!("seed {seed}: {} cycles, {}, {reads} reads", self.cycles, report.figures());
        kinds(history);
        assert!(report.violations.is_empty(), "VIOLATION: seed {seed}: {}", report.named());
        if self.cycles < LANE_CYCLES {
            return;
        }
        // A lane that tried nothing shows nothing. Two plans of six may end without a proof.
        let refused = |code: &str| report.refused.get(code).copied().unwrap_or_default();
        assert!(report.acknowledged > 100 && reads > 10, "seed {seed}: hardly anything was done");
        assert!(refused("ZF001") > 50, "seed {seed}: hardly anything was refused");
        assert!(refused("ZF010") > 5, "seed {seed}: hardly anything was held too long");
        assert!(report.fenced as u64 >= self.cycles / 4, "seed {seed}: few fences were proven");
    }
}

/// One wave: its lanes run at the same time and are judged when all have ended. Slots are made
/// before anybody writes: making one waits for every transaction of the server.
fn wave(cluster: &PgCluster, proxy: &Proxy, seed: u64, cycles: u64) {
    let began = Instant::now();
    let lanes: Vec<Lane<'_>> = (0..LANES)
        .map(|lane| (lane, cycles / LANES + u64::from(lane < cycles % LANES)))
        .filter(|(_, cycles)| *cycles > 0)
        .map(|(lane, cycles)| {
            let site = Site::new(cluster, proxy);
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
    lanes.iter().for_each(Lane::judge);
}

/// How often each kind of work was acknowledged and not, for people.
fn kinds(history: &History) {
    let mut kinds: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for attempt in history.attempts.lock().unwrap().iter() {
        let of = kinds.entry(attempt.kind).or_default();
        match attempt.end {
            End::Acknowledged => of.0 += 1,
            End::Refused(_) | End::Lost(_) => of.1 += 1,
        }
    }
    println!("  acknowledged and not: {kinds:?}");
}

#[test]
fn histories_table_log_and_boundaries_agree() {
    let cluster = PgCluster::start(Options::default());
    let proxy = Proxy::start(&cluster);
    let fixed = number("FENCEWIRE_HISTORY_SEED");
    let seed = fixed.unwrap_or_else(|| u64::from(std::process::id()) << 20 | nanos());
    println!("FENCEWIRE_HISTORY_SEED={seed}");
    let mut left = number("FENCEWIRE_SOAK_CYCLES").unwrap_or(LANES * LANE_CYCLES);
    let mut first = seed;
    while left > 0 {
        let cycles = left.min(LANES * LANE_CYCLES);
        wave(&cluster, &proxy, first, cycles);
        left -= cycles;
        first += LANES;
    }
    let held = |outcome: &str| {
        metric(&proxy, &format!("fencewire_held_ended_total{{outcome=\"{outcome}\"}} "))
    };
    let ended = ["admitted", "expired", "refused", "gone"].map(|outcome| (outcome, held(outcome)));
    println!("held: {ended:?}");
    assert!(held("admitted") > 10, "hardly anything that was held was released: {ended:?}");
    let log = std::fs::read_to_string(proxy.log_file()).unwrap();
    assert!(!log.contains("panicked"), "{}", proxy.log_tail());
}

fn nanos() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::from(now.subsec_nanos()) >> 10
}

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Asked at 100, closed at 110, fenced at 120 with boundary 1000, released from 200 to 210.
fn fence() -> Fence {
    Fence {
        asked: at(100),
        closed: Some(at(110)),
        fenced: Some(at(120)),
        boundary: Some(1000),
        log_end: 2000,
        releasing: at(200),
        released: at(210),
        plan: "planted".to_owned(),
    }
}

/// An attempt to write row 1 from `begun` to `ended`, in one exchange.
fn attempt(begun: u64, ended: u64, end: End) -> Attempt {
    Attempt {
        client: "c".to_owned(),
        kind: "autocommit",
        ids: vec![1],
        begun: at(begun),
        open: None,
        wrote: at(begun),
        committing: Some(at(begun)),
        ended: at(ended),
        end,
    }
}

fn logged(id: i64, lsn: u64) -> Vec<LogRow> {
    let row = |lsn, data: String| LogRow { lsn, xid: id.to_string(), data };
    let insert = format!("table public.h: INSERT: id[bigint]:{id} who[text]:'x'");
    vec![row(lsn - 10, "BEGIN 7".to_owned()), row(lsn - 5, insert), row(lsn, "COMMIT 7".to_owned())]
}

fn refused(code: &str) -> End {
    End::Refused(code.to_owned())
}

/// A case: the attempt, the table, the log, and what must be reported (nothing when empty).
type Case = (Attempt, Vec<i64>, Vec<LogRow>, &'static str);

#[test]
fn the_checker_reports_each_kind_of_violation_and_nothing_else() {
    let stale =
        Attempt { open: Some(at(55)), wrote: at(205), ..attempt(50, 220, End::Acknowledged) };
    let slow = Attempt { committing: Some(at(130)), ..attempt(50, 140, End::Acknowledged) };
    let lost = Attempt { committing: None, ..attempt(50, 60, End::Lost("closed".into())) };
    let pair = Attempt { ids: vec![1, 2], ..attempt(50, 60, End::Lost("closed".into())) };
    let split = [logged(1, 500), logged(2, 600)].concat();
    let both = Attempt { ids: vec![1, 2], ..attempt(50, 60, End::Acknowledged) };
    let cases: Vec<Case> = vec![
        (attempt(50, 60, End::Acknowledged), vec![1], logged(1, 500), ""),
        (attempt(205, 220, End::Acknowledged), vec![1], logged(1, 2500), ""),
        (attempt(130, 140, refused("ZF001")), vec![], vec![], ""),
        (attempt(50, 60, End::Lost("08007".into())), vec![1], logged(1, 500), ""),
        (attempt(50, 60, End::Lost("08007".into())), vec![], vec![], ""),
        (attempt(50, 60, End::Acknowledged), vec![], vec![], "acknowledged and missing"),
        (attempt(130, 140, refused("ZF001")), vec![1], logged(1, 500), "refused and there"),
        (attempt(130, 240, refused("ZF009")), vec![1], logged(1, 2500), "refused and there"),
        (attempt(50, 60, refused("ZF001")), vec![], vec![], "refused without a fence"),
        (attempt(130, 140, refused("25006")), vec![], vec![], "an unknown refusal"),
        (lost, vec![1], logged(1, 500), "lost and there"),
        (pair, vec![1], logged(1, 500), "lost and there"),
        (attempt(50, 60, End::Acknowledged), vec![1, 1], logged(1, 500), "is there twice"),
        (attempt(50, 60, End::Acknowledged), vec![1, 3], logged(1, 500), "nobody wrote it"),
        (attempt(50, 60, End::Acknowledged), vec![1], vec![], "not in the log"),
        (attempt(50, 60, End::Acknowledged), vec![1], split.clone(), "in the log and not"),
        (both, vec![1, 2], split, "not one transaction"),
        (attempt(112, 118, End::Acknowledged), vec![1], logged(1, 500), "behind a closed gate"),
        (slow, vec![1], logged(1, 500), "committed behind a fence"),
        (stale, vec![1], logged(1, 2500), "became a writer"),
        (attempt(50, 230, End::Acknowledged), vec![1], logged(1, 1500), "behind the boundary"),
        (attempt(50, 60, End::Acknowledged), vec![1], logged(1, 2500), "before the fence, comm"),
    ];
    for (attempt, table, log, expected) in cases {
        let found = check(std::slice::from_ref(&attempt), &[fence()], &table, &log).violations;
        if expected.is_empty() {
            assert!(found.is_empty(), "{attempt:?}: {found:?}");
        } else {
            assert!(found.iter().any(|v| v.contains(expected)), "{expected}: {found:?}");
        }
    }
}
