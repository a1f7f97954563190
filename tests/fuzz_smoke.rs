//! A short deterministic fuzz of every entry point, in `make test`; `fuzz/` has them for libFuzzer.
//!
//! Purpose: each target is a function that says which property broke. Seeds come from the cases in
//! the repository; a seeded mutator cuts, splices and sprinkles them. A target with a planted bug
//! shows that the mutator finds what it is for.
//!
//! `FENCEWIRE_FUZZ_SEED` replays a run, `FENCEWIRE_FUZZ_RUNS` sets the number of inputs per target,
//! `FENCEWIRE_FUZZ_SEEDS=DIR` writes the seeds as a corpus for libFuzzer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use fencewire::{sql, wire};

/// Inputs per target in `make test`.
const RUNS: u64 = 20_000;
/// Longest input, in bytes.
const INPUT_BYTES_MAX: usize = 600;

/// One entry point: `Err` names the property that broke.
type Entry = fn(&[u8]) -> Result<(), String>;

struct Target {
    name: &'static str,
    entry: Entry,
    seeds: fn() -> Vec<Vec<u8>>,
    /// What is sprinkled in.
    words: &'static [&'static [u8]],
}

const SQL_WORDS: &[&[u8]] = &[
    b"'",
    b"\"",
    b"$$",
    b"$a$",
    b"E'\\'",
    b"U&'",
    b"--",
    b"/*",
    b"*/",
    b";",
    b"(",
    b")",
    b"\\",
    b"\0",
    b"\xff",
    b"\xe4\xb8",
    b" SELECT ",
    b" INSERT ",
    b" WITH ",
    b" INTO ",
    b" FOR UPDATE ",
    b" COMMIT ",
    b" EXPLAIN ANALYZE ",
    b" nextval(",
    b"::",
    b"/*!50000",
    b"#",
    b"`",
];
const WIRE_WORDS: &[&[u8]] = &[
    b"Q\0\0\0\x0dSELECT 1\0",
    b"P\0\0\0\x08\0\0\0\0",
    b"B\0\0\0\x0c\0\0\0\0\0\0\0\0",
    b"S\0\0\0\x04",
    b"E\0\0\0\x09\0\0\0\0\0",
    b"H\0\0\0\x04",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\0\0\0\x03",
    b"X\0\0\0\x04",
    b"d\0\0\0\x06ab",
    b"c\0\0\0\x04",
    b"C\0\0\0\x06S\0",
    b"F\0\0\0\x08",
    b"user\0",
    b"database\0",
    b"options\0",
    b"Z\0\0\0\x05I",
    b"Z\0\0\0\x05T",
    b"Z\0\0\0\x05E",
];

const TARGETS: &[Target] = &[
    Target { name: "lexer", entry: sql::fuzzing::lexer, seeds: texts, words: SQL_WORDS },
    Target { name: "classifier", entry: sql::fuzzing::classifier, seeds: texts, words: SQL_WORDS },
    Target {
        name: "frames",
        entry: wire::pg::fuzzing::frames,
        seeds: conversations,
        words: WIRE_WORDS,
    },
    Target {
        name: "answers",
        entry: wire::pg::fuzzing::answers,
        seeds: replies,
        words: WIRE_WORDS,
    },
    Target {
        name: "startup",
        entry: wire::pg::fuzzing::startup,
        seeds: startups,
        words: WIRE_WORDS,
    },
];

/// The classifier's own cases, each under the rules that the first byte chooses.
fn texts() -> Vec<Vec<u8>> {
    let lines = include_str!("../src/sql/classify/cases.txt").lines();
    lines
        .filter_map(|line| line.split_once('|'))
        .map(|(_, text)| [b"\0", text.trim().as_bytes()].concat())
        .collect()
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [[tag].as_slice(), &length, body].concat()
}

fn conversations() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for text in texts() {
        let sql = [&text[1..], b"\0"].concat();
        let parse = message(b'P', &[b"a\0", sql.as_slice(), b"\0\0"].concat());
        let bind = message(b'B', b"\0a\0\0\0\0\0\0\0");
        let execute = message(b'E', b"\0\0\0\0\0");
        let sync = message(b'S', b"");
        all.push([b"\x03".to_vec(), message(b'Q', &sql)].concat());
        all.push([b"\x06".to_vec(), parse, bind, execute, sync].concat());
    }
    all
}

fn replies() -> Vec<Vec<u8>> {
    let ready = |status: u8| message(b'Z', &[status]);
    let done = message(b'C', b"INSERT 0 1\0");
    let error = message(b'E', b"SERROR\0VERROR\0C25006\0Mno\0\0");
    let setting = message(b'S', b"client_encoding\0SJIS\0");
    let rows = [message(b'T', b"\0\0"), message(b'D', b"\0\0")].concat();
    vec![
        [b"\x01".to_vec(), rows, done.clone(), ready(b'I')].concat(),
        [b"\x02".to_vec(), error, ready(b'E')].concat(),
        [b"\x04".to_vec(), setting, message(b'G', b"\0\0\0"), done, ready(b'T')].concat(),
    ]
}

fn startups() -> Vec<Vec<u8>> {
    vec![
        b"user\0app\0database\0app\0options\0-c a=b\0\0".to_vec(),
        b"user\0app\0\0".to_vec(),
        b"user\0app\0_pq_.x\x001\0replication\0database\0\0".to_vec(),
    ]
}

/// A seeded generator (splitmix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }
}

/// A child of the seeds: one to five changes.
fn mutated(dice: &mut Dice, seeds: &[Vec<u8>], words: &[&[u8]]) -> Vec<u8> {
    let mut input = seeds[dice.below(seeds.len())].clone();
    for _ in 0..=dice.below(5) {
        let at = dice.below(input.len() + 1);
        match dice.below(7) {
            0 => drop(input.splice(at..at, words[dice.below(words.len())].iter().copied())),
            1 if at < input.len() => input[at] = u8::try_from(dice.below(256)).unwrap(),
            2 if at < input.len() => input[at] ^= 1 << dice.below(8),
            3 => input.truncate(at),
            4 => {
                let end = (at + dice.below(12)).min(input.len());
                input.drain(at..end);
            }
            5 => {
                let other = &seeds[dice.below(seeds.len())];
                let from = dice.below(other.len());
                input.splice(at.., other[from..].iter().copied());
            }
            _ => {
                let end = (at + dice.below(24)).min(input.len());
                let piece = input[at..end].to_vec();
                input.splice(at..at, piece);
            }
        }
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// Runs one target; the first input that breaks a property or panics, with what was said.
fn run(target: &Target, seed: u64, runs: u64) -> Option<(Vec<u8>, String)> {
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty(), "{}: no seeds", target.name);
    let mut dice = Dice(seed);
    for number in 0..runs + u64::try_from(seeds.len()).unwrap() {
        let input = match seeds.get(usize::try_from(number).unwrap()) {
            Some(seed) => seed.clone(),
            None => mutated(&mut dice, &seeds, target.words),
        };
        match catch_unwind(AssertUnwindSafe(|| (target.entry)(&input))) {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return Some((input, why)),
            Err(_) => return Some((input, "it panicked".to_owned())),
        }
    }
    None
}

#[test]
fn no_target_breaks_a_property() {
    let seed = number("FENCEWIRE_FUZZ_SEED").unwrap_or(0x5eed_0001);
    let runs = number("FENCEWIRE_FUZZ_RUNS").unwrap_or(RUNS);
    println!("FENCEWIRE_FUZZ_SEED={seed}");
    for target in TARGETS {
        if let Some(folder) = std::env::var_os("FENCEWIRE_FUZZ_SEEDS") {
            let folder = std::path::Path::new(&folder).join(target.name);
            std::fs::create_dir_all(&folder).unwrap();
            for (number, bytes) in (target.seeds)().iter().enumerate() {
                std::fs::write(folder.join(format!("seed-{number}")), bytes).unwrap();
            }
        }
        if let Some((input, why)) = run(target, seed, runs) {
            let text = input.escape_ascii();
            panic!("{}, seed {seed}: {why}\ninput: \"{text}\"", target.name);
        }
    }
}

/// A scanner that trusts a length field, as one of ours might have.
fn canary(data: &[u8]) -> Result<(), String> {
    let mut at = 0;
    while let Some([_, a, b, c, d]) = data.get(at..at + 5) {
        let length = i32::from_be_bytes([*a, *b, *c, *d]);
        at += 1 + usize::try_from(length).map_err(|_| format!("a length of {length}"))?;
    }
    Ok(())
}

/// Control arm: with a planted bug the same machinery must find something.
#[test]
fn the_canary_is_found() {
    let target = Target { name: "canary", entry: canary, seeds: conversations, words: WIRE_WORDS };
    let found = run(&target, 0x5eed_0001, RUNS);
    assert!(found.is_some(), "{RUNS} inputs and the planted bug was not found");
}
