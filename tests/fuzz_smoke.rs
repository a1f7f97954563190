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

use fencewire::{admin, sql, wire};

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

const MY_SQL_WORDS: &[&[u8]] = &[
    b"'",
    b"\"",
    b"`",
    b"--",
    b"-- ",
    b"#",
    b"\n",
    b"/*",
    b"*/",
    b"/*!",
    b"/*!50000",
    b"/*!99999 ",
    b"/*M!",
    b"/*+",
    b";",
    b"(",
    b")",
    b"\\",
    b"\0",
    b"\xa0",
    b"\xbf\x5c\x27",
    b"\xe4\xb8",
    b"_utf8mb4'",
    b"N'",
    b"0x",
    b"@",
    b"@@",
    b":=",
    b".1e",
    b" SELECT ",
    b" INSERT ",
    b" WITH ",
    b" INTO ",
    b" FOR UPDATE ",
    b" COMMIT ",
    b" SET ",
    b" XA END ",
    b" CALL p()",
];
const MY_WIRE_WORDS: &[&[u8]] = &[
    b"\x09\0\0\0\x03SELECT 1",
    b"\x09\0\0\0\x16SELECT ?",
    b"\x0a\0\0\0\x17\0\0\x02\0\0\x01\0\0\0",
    b"\x01\0\0\0\x0e",
    b"\x01\0\0\0\x01",
    b"\x01\0\0\0\x1f",
    b"\x05\0\0\0\x19\0\0\x02\0",
    b"\x04\0\0\0\x02app",
    b"\x03\0\0\0\x05no",
    b"\x02\0\0\0\x11u",
    b"\xff\xff\xff\0\x03",
    b"\x01\0\0\0\xef",
    b"\0\0\0\0",
    b"\0\0\0\x03",
    b"\xff\xff\xff\xff",
    b"\xfb",
    b"\xfc",
    b"\xfe",
    b"\x05\0\0\x05\xfe\0\0\x02\0",
    b"\x05\0\0\x05\xfe\0\0\x0a\0",
    b"\x07\0\0\x01\0\0\0\x02\0\0\0",
    b"\x07\0\0\x01\0\0\0\x01\x40\0\0",
    b"\x09\0\0\x01\xff\x15\x04#28000",
    b"\x01\0\0\x01\x01",
    b"mysql_native_password\0",
    b"caching_sha2_password\0",
];

const CONSOLE_WORDS: &[&[u8]] = &[
    b"'",
    b"''",
    b"\"",
    b"\\",
    b"--",
    b"/*",
    b"*/",
    b"#",
    b";",
    b",",
    b"$1",
    b"\0",
    b"\xff",
    b"\xc3\xa4",
    b" FENCE ",
    b" SHOW ",
    b" INSPECT ",
    b" ON ",
    b" OPERATION ",
    b" COMMAND ",
    b" EXPECT STATE ",
    b" REVISION 18446744073709551615 ",
    b" DEADLINE ",
    b" 1h ",
    b" 99999999999999999999h ",
    b" FORCE ROLLBACK ",
    b" KEY ",
    b" APPROVERS ",
    b" '6e0b8c7e-5d0f-4c7e-9d39-1d2b8f9f3a11' ",
    b" old/app ",
    b" SELECT ",
    b" LIMIT 1",
    b" AS ",
    b"@@",
];

const TARGETS: &[Target] = &[
    Target {
        name: "console_grammar",
        entry: admin::console::fuzzing::console_grammar,
        seeds: statements,
        words: CONSOLE_WORDS,
    },
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
    Target {
        name: "mysql_lexer",
        entry: sql::fuzzing::mysql_lexer,
        seeds: my_texts,
        words: MY_SQL_WORDS,
    },
    Target {
        name: "mysql_classifier",
        entry: sql::fuzzing::mysql_classifier,
        seeds: my_texts,
        words: MY_SQL_WORDS,
    },
    Target {
        name: "mysql_frames",
        entry: wire::mysql::fuzzing::frames,
        seeds: my_conversations,
        words: MY_WIRE_WORDS,
    },
    Target {
        name: "mysql_answers",
        entry: wire::mysql::fuzzing::answers,
        seeds: my_replies,
        words: MY_WIRE_WORDS,
    },
    Target {
        name: "mysql_login",
        entry: wire::mysql::fuzzing::login,
        seeds: my_logins,
        words: MY_WIRE_WORDS,
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

/// Statements of the consoles, and what clients say beside them.
fn statements() -> Vec<Vec<u8>> {
    let op = "OPERATION '6e0b8c7e-5d0f-4c7e-9d39-1d2b8f9f3a11'";
    let on = |words: &str, more: &str| format!("FENCE {words} ON 'old/app' {op} {more}");
    let mut all: Vec<String> = [
        "SHOW NAMESPACES;",
        "SHOW RECEIPTS FOR 'old/it''s'",
        "INSPECT \"old/app\"",
        "-- a comment\nSHOW HELP /* and one more */",
        "SET extra_float_digits = 3",
        "SELECT @@version_comment, 'a' AS b LIMIT 1",
        "SHOW VARIABLES LIKE 'sql_mode'",
        "BEGIN",
    ]
    .map(str::to_owned)
    .to_vec();
    all.push(on("ACQUIRE WRITE", "IDENTITY '1' DATABASE '2' TIMELINE 3 DEADLINE 30s HOLD 2s"));
    all.push(on("ACQUIRE WRITE", "EXPECT STATE UNFENCED REVISION 0 FORCE ROLLBACK"));
    all.push(on("SET READ", "DEADLINE 500ms"));
    all.push(on("RECORD VALIDATION", "RESULT OK SUMMARY 'all''s well'"));
    all.push(on("CREATE TARGET", "OWNER 'o' ENCODING 'UTF8' LOCALE 'C' TEMPLATE 't'"));
    all.push(on(
        "ADOPT",
        "FROM '6e0b8c7e-5d0f-4c7e-9d39-1d2b8f9f3a12' APPROVERS 'a', 'b' INCIDENT 'i' REASON 'r' \
         KEY 'k'",
    ));
    all.into_iter().map(String::into_bytes).collect()
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
        b"user\0a\0options\0-c a=b\\ -ec fencewire.capability=x -B 8\0\0".to_vec(),
        b"user\0a\0fencewire.capability\0x\0options\0--fencewire.capability=x\0\0".to_vec(),
    ]
}

/// The MySQL classifier's own cases, likewise.
fn my_texts() -> Vec<Vec<u8>> {
    let lines = include_str!("../src/sql/mysql/cases.txt").lines();
    let texts = lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('|'));
    let both = |(_, text): (&str, &str)| {
        [b"\0", b"\x01"].map(|engine| [engine.as_slice(), text.trim().as_bytes()].concat())
    };
    texts.flat_map(both).collect()
}

fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    [&length[..3], &[sequence], payload].concat()
}

fn my_command(opcode: u8, argument: &[u8]) -> Vec<u8> {
    packet(0, &[&[opcode], argument].concat())
}

fn my_conversations() -> Vec<Vec<u8>> {
    let execute = my_command(0x17, b"\0\0\x02\0\0\x01\0\0\0");
    let change = my_command(0x11, b"u\0\0app\0\x2d\0mysql_native_password\0");
    let others = [
        my_command(0x0e, b""),
        my_command(0x02, b"app"),
        my_command(0x04, b"t\0"),
        my_command(0x18, b"\0\0\x02\0\0\0xyz"),
        my_command(0x1c, b"\0\0\x02\0\x01\0\0\0"),
        change,
        my_command(0x1f, b""),
        my_command(0x19, b"\0\0\x02\0"),
        my_command(0x12, b"\x04\0\0\0\0\0\x01\0\0\0"),
        my_command(0x01, b""),
    ];
    let mut all = vec![[b"\x05".to_vec(), others.concat()].concat()];
    // Each text once, though the cases are there for either engine.
    for text in my_texts().iter().step_by(2) {
        let sql = &text[1..];
        all.push([b"\x03".to_vec(), my_command(3, sql), my_command(0x0e, b"")].concat());
        all.push([b"\x16".to_vec(), my_command(0x16, sql), execute.clone()].concat());
        let listed = [b"\0\x01", sql].concat();
        all.push([b"\x44".to_vec(), my_command(3, &listed), my_command(0x0e, b"")].concat());
    }
    all
}

fn my_replies() -> Vec<Vec<u8>> {
    let ok = |status: u8| packet(1, &[0, 0, 0, status, 0, 0, 0]);
    let eof = |sequence: u8, status: u8| packet(sequence, &[0xfe, 0, 0, status, 0]);
    let column = packet(2, b"\x03def\0\0\0\x01c\0\x0c\x2d\0\0\0\0\0\xfd\0\0\0\0\0");
    let rows = |status: u8| {
        let row = packet(4, b"\x03abc");
        [packet(1, &[1]), column.clone(), eof(3, 2), row, eof(5, status)].concat()
    };
    let tracked = packet(1, b"\0\0\0\x02\x40\0\0\0\x0a\0\x08\x01a\x05value");
    let error = packet(1, b"\xff\x00\x07#25006no");
    let prepared = packet(1, &[0, 0, 0, 2, 0, 1, 0, 1, 0, 0, 0, 0]);
    let switch = packet(2, b"\xfemysql_native_password\x0001234567890123456789\0");
    vec![
        [b"\x01\0".to_vec(), ok(2)].concat(),
        [b"\x02\0".to_vec(), rows(2)].concat(),
        [b"\x02\0".to_vec(), rows(10), rows(10), ok(3)].concat(),
        [b"\x15\0".to_vec(), packet(1, &[1]), column.clone(), ok(2)].concat(),
        [b"\x23\0".to_vec(), tracked].concat(),
        [b"\x03\0".to_vec(), packet(1, b"\xfb/etc/passwd")].concat(),
        [b"\x04\0".to_vec(), error.clone()].concat(),
        [b"\x04\x01".to_vec(), prepared, column.clone(), eof(3, 2), column.clone(), eof(5, 2)]
            .concat(),
        [b"\x03\x02".to_vec(), packet(1, b"Uptime: 1")].concat(),
        [b"\x03\x03".to_vec(), column, eof(3, 2)].concat(),
        [b"\x03\x04".to_vec(), packet(1, b"\0\0x"), eof(2, 0x82)].concat(),
        [b"\x03\x05".to_vec(), ok(2)].concat(),
        [b"\x03\x06".to_vec(), switch, ok(2)].concat(),
        [b"\x03\x07".to_vec(), packet(1, b"\0event"), eof(2, 2)].concat(),
        [b"\x03\x08".to_vec(), error].concat(),
    ]
}

fn my_logins() -> Vec<Vec<u8>> {
    let login = |bits: u32, tail: &[u8]| {
        let head = [0, 0, 0, 1, 45].into_iter().chain([0; 23]);
        bits.to_le_bytes().into_iter().chain(head).chain(tail.iter().copied()).collect()
    };
    let mut greeting = b"\x0a5.5.5-10.11.19-MariaDB\0\x07\x01\0\0abcdefgh\0".to_vec();
    greeting.extend([0xfe, 0xff, 8, 2, 0, 0xff, 0x81, 21, 0, 0, 0, 0, 0, 0, 0x1f, 0, 0, 0]);
    greeting.extend(b"ijklmnopqrst\0mysql_native_password\0");
    let secure = 1 << 9 | 1 << 15;
    vec![
        greeting,
        login(secure, b"me\0\0"),
        login(secure | 1 << 3 | 1 << 19, b"me\0\x03xyzapp\0mysql_native_password\0"),
        login(1 << 9 | 1 << 21 | 1 << 20, b"me\0\x03xyz\x05\x01a\x02bc"),
        login(secure | 1 << 20, b"me\0\0\x1b\x01a\x02bc\x14fencewire_capability\x01x\x07"),
        login(1 << 9 | 1, b"me\0xyz\0"),
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

/// A reader of MySQL packets that takes a payload's end for the command's, as one of ours might.
fn my_canary(data: &[u8]) -> Result<(), String> {
    let mut rest = data.get(1..).unwrap_or_default();
    while let [a, b, c, _, behind @ ..] = rest {
        let length = u32::from_le_bytes([*a, *b, *c, 0]);
        let length = usize::try_from(length).map_err(|e| e.to_string())?;
        if length == 0xff_ffff {
            return Err("a payload that goes on".to_owned());
        }
        rest = behind.get(length..).unwrap_or_default();
    }
    Ok(())
}

/// Control arm: with a planted bug the same machinery must find something.
#[test]
fn the_canary_is_found() {
    for target in [
        Target { name: "canary", entry: canary, seeds: conversations, words: WIRE_WORDS },
        Target {
            name: "my_canary",
            entry: my_canary,
            seeds: my_conversations,
            words: MY_WIRE_WORDS,
        },
    ] {
        let found = run(&target, 0x5eed_0001, RUNS);
        assert!(found.is_some(), "{}: {RUNS} inputs and the bug was not found", target.name);
    }
}
