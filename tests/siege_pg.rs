//! The siege: random conversations on the PostgreSQL wire, with the engine as the oracle.
//!
//! What the hostile readings of this project did by hand: odd orders of messages (queries in
//! pipelines without a Sync, the end of a COPY outside one, names that change in a pipeline, Flush
//! and then an error, messages cut anywhere, cancels) in front of what hides behind a view. The
//! script of a session is a function of a seed; see `siege/mod.rs` for what must never be.
//!
//! `FENCEWIRE_SIEGE_CYCLES` sets how many fences are raised, `FENCEWIRE_SIEGE_SEED` the seed
//! (decimal, or `0x` and hexadecimal), `FENCEWIRE_SIEGE_FROM` the first cycle,
//! `FENCEWIRE_SIEGE_ONLY` the only session (such as `w07`), `FENCEWIRE_SIEGE_SESSIONS` how many,
//! `FENCEWIRE_SIEGE_REMOVE` guards that the proxy goes without (`base/arm.rs`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod acceptance;
mod siege;
mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use siege::walk::{Script, script};
use siege::{Outcome, Stage, cycle, smallest};

/// The seed of `make test`.
const SEED: u64 = 0x51e6_e001;

/// How many fences `make test` raises.
const CYCLES: u64 = 8;

/// How many sessions are under each.
const SESSIONS: u64 = 24;

fn from_env(name: &str, otherwise: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return otherwise };
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.unwrap_or_else(|e| panic!("{name}={text}: {e}"))
}

/// A row of cycles on one stage.
struct Siege {
    seed: u64,
    from: u64,
    cycles: u64,
    sessions: usize,
    only: Option<String>,
}

impl Siege {
    fn by_env() -> Self {
        Self {
            seed: from_env("FENCEWIRE_SIEGE_SEED", SEED),
            from: from_env("FENCEWIRE_SIEGE_FROM", 0),
            cycles: from_env("FENCEWIRE_SIEGE_CYCLES", CYCLES),
            sessions: usize::try_from(from_env("FENCEWIRE_SIEGE_SESSIONS", SESSIONS)).unwrap(),
            only: std::env::var("FENCEWIRE_SIEGE_ONLY").ok(),
        }
    }

    fn scripts(&self, number: u64, version: u32) -> Vec<Script> {
        (0..self.sessions)
            .map(|session| script(self.seed, number, session, version))
            .filter(|script| self.only.as_ref().is_none_or(|only| *only == script.who))
            .collect()
    }

    /// Plays until something is found; answers the cycle and what it found.
    fn play(&self, stage: &Stage, found: &mut BTreeMap<String, usize>) -> Option<(u64, Outcome)> {
        for number in self.from..self.from + self.cycles {
            let outcome = cycle(stage, &self.scripts(number, stage.version()), number % 8 != 7);
            for (what, count) in &outcome.found {
                *found.entry(what.clone()).or_default() += count;
            }
            if self.cycles > CYCLES {
                eprintln!("cycle {number}: {:?}", outcome.found);
            }
            if outcome.crashed {
                *found.entry("engine crashed".into()).or_default() += 1;
            }
            if !outcome.violations.is_empty() {
                return Some((number, outcome));
            }
        }
        None
    }

    /// Says what was found, and the shortest way to it.
    fn tell(&self, stage: &Stage, number: u64, outcome: &Outcome) {
        eprintln!("cycle {number} of seed {:#x}:\n{}", self.seed, outcome.violations.join("\n"));
        for (who, log) in &outcome.logs {
            if outcome.culprit.as_ref().is_none_or(|culprit| culprit == who) {
                eprintln!("--- {who}\n{}", log.join("\n"));
            }
        }
        let only = outcome.culprit.clone().unwrap_or_default();
        eprintln!(
            "again: FENCEWIRE_SIEGE_SEED={:#x} FENCEWIRE_SIEGE_FROM={number} \
             FENCEWIRE_SIEGE_CYCLES=1 FENCEWIRE_SIEGE_ONLY={only}",
            self.seed
        );
        let scripts = self.scripts(number, stage.version());
        let Some(script) = scripts.iter().find(|script| script.who == only) else { return };
        if stage.lacks_a_guard() {
            return;
        }
        let alone = cycle(stage, std::slice::from_ref(script), true);
        eprintln!("alone it shows {:?}", alone.violations);
        if !alone.violations.is_empty() {
            let least = smallest(stage, script, Instant::now() + Duration::from_secs(120));
            let last = cycle(stage, std::slice::from_ref(&least), true);
            eprintln!("the least of it: {:?}", last.violations);
            eprintln!("{}", last.logs[&only].join("\n"));
        }
    }
}

#[test]
fn nothing_said_at_random_commits_behind_an_acknowledged_fence() {
    let (siege, began) = (Siege::by_env(), Instant::now());
    let removed = std::env::var("FENCEWIRE_SIEGE_REMOVE").unwrap_or_default();
    let stage = Stage::start(&removed, siege.sessions);
    let mut found = BTreeMap::new();
    let seen = siege.play(&stage, &mut found);
    eprintln!(
        "seed {:#x}: {} cycles in {:?}: {found:?}",
        siege.seed,
        siege.cycles,
        began.elapsed()
    );
    if let Some((number, outcome)) = seen {
        siege.tell(&stage, number, &outcome);
        panic!("VIOLATION: cycle {number} of {:#x}: {:#?}", siege.seed, outcome.violations);
    }
}

/// Control arm: how many cycles it takes to find a way where a guard is missing.
fn finds_a_way_without(removed: &str, cycles: u64) {
    let sessions = usize::try_from(SESSIONS).unwrap();
    let siege = Siege { seed: SEED, from: 0, cycles, sessions, only: None };
    let stage = Stage::start(removed, sessions);
    let seen = siege.play(&stage, &mut BTreeMap::new());
    let Some((number, outcome)) = seen else { panic!("nothing in {cycles} without {removed}") };
    let behind = outcome.violations.iter().any(|what| what.contains("behind the fence"));
    assert!(behind, "something else without {removed}: {:#?}", outcome.violations);
    eprintln!("without {removed}: cycle {number}: {:#?}", outcome.violations);
}

#[test]
fn without_the_guard_the_siege_gets_past() {
    finds_a_way_without("read-only-guard", 4);
}

#[test]
fn without_the_classifier_the_siege_gets_past() {
    finds_a_way_without("classifier", 8);
}
