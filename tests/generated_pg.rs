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

use generated::positions::Position;
use generated::stage::{Stage, Tally};
use generated::{Case, case};

/// The seed of `make test`: always the same cases.
const SEED: u64 = 0x00fe_2ce5;

/// How many cases `make test` plays, in two halves at once: about a minute.
const CASES: usize = 960;

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

/// Plays the cases of these numbers, as many as there are at once under one fence.
fn play(removed: &str, seed: u64, numbers: &[usize]) -> Tally {
    let stage = Stage::start(removed);
    let mut tally = Tally::default();
    for (batch, numbers) in numbers.chunks(TOGETHER).enumerate() {
        let cases: Vec<Case> = numbers.iter().filter_map(|number| case(seed, *number)).collect();
        let before = tally.violations.len();
        stage.play(batch, &cases, &mut tally);
        if removed.is_empty() && tally.violations.len() > before {
            eprintln!(
                "{}\nagain: FENCEWIRE_BYPASS_SEED={seed:#x} FENCEWIRE_BYPASS_FROM={} \
                 FENCEWIRE_BYPASS_CASES={}",
                tally.violations[before..].join("\n"),
                numbers[0],
                numbers.len(),
            );
        }
    }
    tally
}

/// One half of the numbers: some batches, so that a batch stays what it is when it is replayed.
fn half(which: usize) {
    let seed = from_env("FENCEWIRE_BYPASS_SEED", SEED);
    let count = usize::try_from(from_env("FENCEWIRE_BYPASS_CASES", CASES as u64)).unwrap();
    let from = usize::try_from(from_env("FENCEWIRE_BYPASS_FROM", 0)).unwrap();
    let numbers: Vec<usize> = (from..from + count).collect();
    let batches = numbers.chunks(TOGETHER).skip(which).step_by(2);
    let numbers: Vec<usize> = batches.flatten().copied().collect();
    if numbers.is_empty() {
        return;
    }
    let began = std::time::Instant::now();
    let tally = play("", seed, &numbers);
    eprintln!(
        "seed {seed:#x}, half {which}: {} cases in {:?}, {} would change something; a fence \
         waited for {}; refused with {:?}; positions {:?}",
        tally.played,
        began.elapsed(),
        tally.telling,
        tally.early + tally.waited,
        tally.codes,
        tally.positions
    );
    let bad = tally.violations.len();
    assert!(bad == 0, "VIOLATION: {bad} of seed {seed:#x}:\n{}", tally.violations.join("\n"));
    if count < CASES {
        return;
    }
    // A list that does nothing would pass, too.
    let idle: Vec<_> = tally.entries.iter().filter(|(_, (telling, _))| *telling == 0).collect();
    assert!(idle.len() * 20 < tally.entries.len(), "entries that never did anything: {idle:#?}");
    let share = (tally.telling * 100) / tally.played;
    assert!(share >= 75, "only {share} % of the cases would change anything");
    assert_eq!(tally.positions.len(), Position::ALL.len(), "{:?}", tally.positions);
}

#[test]
fn nothing_generated_gets_past_an_acknowledged_fence() {
    half(0);
}

#[test]
fn nothing_generated_gets_past_an_acknowledged_fence_either() {
    half(1);
}

/// Control arm: with guards removed the same cases get past a fence.
fn gets_past_without(removed: &str, wanted: impl Fn(Position) -> bool) {
    let fits = |number: &usize| case(SEED, *number).is_some_and(|case| wanted(case.position));
    let numbers: Vec<usize> = (0..2_000).filter(fits).take(TOGETHER).collect();
    let tally = play(removed, SEED, &numbers);
    let seen = tally.violations.len();
    assert!(seen >= 3, "without {removed} only {seen} violations of {} cases", tally.played);
}

#[test]
fn without_the_guard_and_the_lock_what_hides_in_views_gets_past() {
    // With the lock alone tables are still safe, and what isn't there is left to chance.
    let hidden = |position| matches!(position, Position::Cursor | Position::Bound);
    gets_past_without("read-only-guard,engine-lock", hidden);
}

#[test]
fn without_the_classifier_what_read_only_mode_lets_through_gets_past() {
    // Without the lock: what waits for it over another connection would wait for ever.
    let plain = |position| matches!(position, Position::First | Position::Idle);
    gets_past_without("classifier,engine-lock", plain);
}
