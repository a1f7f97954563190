//! Generated ways around a write fence: a kind, not a set of strings.
//!
//! Each entry of the lists of reads that write and of ways out of read-only mode, from every
//! position (first statement, inside a transaction, prepared or parsed before the fence, portals
//! and cursors from before it, startup options, walsenders, behind DISCARD ALL and behind what
//! lifts read-only mode), spelled and wrapped anew each time. The engine is the oracle: what a case
//! changes without a fence it must not change under one, and it must be refused with a `ZF` code.
//!
//! `FENCEWIRE_BYPASS_CASES` sets how many cases are made, `FENCEWIRE_BYPASS_SEED` from which seed
//! (decimal, or `0x` and hexadecimal), `FENCEWIRE_BYPASS_FROM` at which number it begins.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod acceptance;
mod generated;
mod support;

use generated::stage::{Stage, Tally};
use generated::{Case, case};

/// The seed of `make test`: always the same cases.
const SEED: u64 = 0xfe_2ce5;

/// How many cases `make test` plays.
const CASES: usize = 1_600;

/// How many share one fence.
const TOGETHER: usize = 40;

fn from_env(name: &str, otherwise: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return otherwise };
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.unwrap_or_else(|e| panic!("{name}={text}: {e}"))
}

/// Plays `count` cases from number `from` on, as many as there are at once.
fn play(removed: &str, seed: u64, from: usize, count: usize) -> Tally {
    let stage = Stage::start(removed);
    let mut tally = Tally::default();
    let numbers: Vec<usize> = (from..from + count).collect();
    for (batch, numbers) in numbers.chunks(TOGETHER).enumerate() {
        let cases: Vec<Case> = numbers.iter().filter_map(|number| case(seed, *number)).collect();
        let before = tally.violations.len();
        let began = std::time::Instant::now();
        stage.play(batch, &cases, &mut tally);
        eprintln!("batch {batch}: {:?}", began.elapsed());
        if tally.violations.len() > before {
            let first = numbers[0];
            eprintln!(
                "{}\nagain: FENCEWIRE_BYPASS_SEED={seed:#x} FENCEWIRE_BYPASS_FROM={first} \
                 FENCEWIRE_BYPASS_CASES={TOGETHER}",
                tally.violations[before..].join("\n")
            );
        }
    }
    tally
}

#[test]
fn nothing_generated_gets_past_an_acknowledged_fence() {
    let seed = from_env("FENCEWIRE_BYPASS_SEED", SEED);
    let count = usize::try_from(from_env("FENCEWIRE_BYPASS_CASES", CASES as u64)).unwrap();
    let from = usize::try_from(from_env("FENCEWIRE_BYPASS_FROM", 0)).unwrap();
    let began = std::time::Instant::now();
    let tally = play("", seed, from, count);
    eprintln!(
        "seed {seed:#x}: {} cases in {:?}, {} would change something; refused with {:?}; \
         positions {:?}",
        tally.played,
        began.elapsed(),
        tally.telling,
        tally.codes,
        tally.positions
    );
    let dead: Vec<_> = tally.entries.iter().filter(|(_, (telling, _))| *telling == 0).collect();
    eprintln!("entries that never did anything: {dead:#?}");
    let bad = tally.violations.len();
    assert!(bad == 0, "VIOLATION: {bad} of seed {seed:#x}:\n{}", tally.violations.join("\n"));
}
