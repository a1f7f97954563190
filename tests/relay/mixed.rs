//! Random mixes of pipelines, queries, calls, Syncs and errors, all of it in one go.
//!
//! What PostgreSQL answers to these is a matter of its state machine: an error in a pipeline has it
//! skip everything to the next Sync, queries and calls included; an error in a query doesn't. The
//! scripts are seeded: the same number, the same bytes.

use super::calling::call;
use super::{Case, Talk};
use crate::support::wire::{
    bind, close, copy_data, copy_done, describe, execute, flush, parse, query, sync,
};

/// Scripts that stand in for all: `P` `p` a Parse that works or fails, `B` `b` a Bind to it or to
/// a name that isn't there, `E` Execute, `D` Describe, `C` Close, `H` Flush, `S` Sync, `Q` `q` a
/// query, `F` `f` a call, `W` a write, `T` BEGIN, `R` ROLLBACK, `U` COMMIT, `X` an Execute of COPY
/// FROM STDIN, `K` a query of it, `d` `x` its data, good and bad, `c` its end.
pub const SCRIPTS: &[&str] = &[
    "pQS",
    "pFS",
    "pQQFS",
    "pQPQS",
    "pSQS",
    "PpBQSQ",
    "bQS",
    "bFSF",
    "PBEpQSQ",
    "PBEQS",
    "PBEFS",
    "PBEqS",
    "PBEfS",
    "PqSS",
    "pHQS",
    "pHQHFS",
    "QpQS",
    "TpQSQS",
    "TQpFSU",
    "TpQSUS",
    "pQQQQSSS",
    "PBEQPBEQS",
    "PBEqPBEQS",
    "PBEQpQQSQ",
    "pTQSQ",
    "PBDEWQSQ",
    "CQS",
    "DQS",
    "PDQS",
    "PCQS",
    "XddcSQ",
    "XSddcSQ",
    "XddcSPBESQ",
    "XSddcSPBESQ",
    "XdxdcSQ",
    "XSdxdcSQ",
    "XxcSQ",
    "KddcQ",
    "KdxcQ",
    "KSdcSQ",
    "KSdxcSQ",
    "pXdcSQ",
    "pKdcSQ",
    "XdcQS",
    "XdcqSQ",
    "XdcpQSQ",
    "PBEXdcpQSQ",
    "XdcXdcSQ",
    "QXdcQSQ",
    "TXdxcQSQ",
    "XdxcQSQ",
    "XdxcQFSSQ",
];

/// What clients leave open when a gate closes, and how many answers to a Sync or query they have
/// by then; without any, something of it is still under way.
pub const OPENINGS: &[(&str, usize)] = &[
    ("Q", 1),
    ("PBEQ", 1),
    ("PBEQS", 2),
    ("PBEQSS", 3),
    ("PBEQQ", 2),
    ("PBEQPBEQ", 2),
    ("PBEQPBES", 2),
    ("PBET", 1),
    ("PBEA", 1),
    ("T", 1),
    ("TPBES", 2),
    ("TPBEQ", 2),
    ("TPBEQS", 3),
    ("Tq", 2),
    ("PBEq", 1),
    ("pQS", 1),
    ("PH", 0),
    ("PBEH", 0),
];

/// Programs that a client sends then: `v` a query of what hides a write, `V` a pipeline of it, `a`
/// and `A` a pipeline and a query of RESET ALL, `n` an empty query.
pub const ATTEMPTS: &[&str] = &[
    "v", "VS", "VVS", "SvS", "SVS", "SSvS", "Vv", "vv", "VSv", "PBEv", "PBEvv", "PBEQv", "PBESv",
    "Uv", "UVS", "Rv", "RVS", "Tv", "TVS", "Av", "AVS", "aVS", "aSv", "aSVS", "nv", "Hv", "HVS",
    "cv", "dcVS", "pSv", "qv", "Fv", "PBEAv", "PBEASv", "PBEASVS", "PBEUv", "PBEQSv", "PBEQSVS",
    "PBEQUv", "PBEQRVS",
];

/// The bytes of a script's message.
fn message(sign: char) -> Vec<u8> {
    match sign {
        'P' => parse("", "SELECT n, s FROM talk.r ORDER BY n"),
        'p' => parse("", "SELEC"),
        'B' => bind("", "", &[]),
        'b' => bind("", "missing", &[]),
        'E' => execute("", 0),
        'D' => describe(b'S', ""),
        'C' => close(b'S', ""),
        'H' => flush(),
        'S' => sync(),
        'Q' => query("SELECT 1"),
        'q' => query("SELECT 1/0"),
        'F' => call(1397, false, &[Some(b"-1")]),
        'f' => call(1397, false, &[Some(b"x")]),
        'W' => query("UPDATE talk.r SET s = 'w' WHERE n = 1"),
        'T' => query("BEGIN"),
        'R' => query("ROLLBACK"),
        'U' => query("COMMIT"),
        'v' => query(HIDDEN),
        'V' => [parse("", HIDDEN), bind("", "", &[]), execute("", 0)].concat(),
        'A' => query("RESET ALL"),
        'a' => [parse("", "RESET ALL"), bind("", "", &[]), execute("", 0)].concat(),
        'n' => query(""),
        'X' => [parse("", "COPY talk.i FROM STDIN"), bind("", "", &[]), execute("", 0)].concat(),
        'K' => query("COPY talk.i FROM STDIN"),
        'd' => copy_data(b"7\n"),
        'x' => copy_data(b"bad\n"),
        'c' => copy_done(),
        other => panic!("{other}"),
    }
}

const HIDDEN: &str = "SELECT n FROM talk.hidden";

/// What hides a write: a sequence, which neither a rollback nor the engine lock would hide.
pub const HIDING: &str = "
CREATE SEQUENCE talk.drawn;
CREATE FUNCTION talk.draw() RETURNS bigint LANGUAGE plpgsql VOLATILE AS
    $f$ BEGIN RETURN nextval('talk.drawn'); END $f$;
CREATE VIEW talk.hidden AS SELECT talk.draw() AS n";

/// The table that the COPYs of scripts go to, beside those of [`Talk::start`].
pub const TABLE: &str = "CREATE TABLE IF NOT EXISTS talk.i (n int)";

/// A script's bytes.
pub fn bytes(script: &str) -> Vec<u8> {
    script.chars().flat_map(message).collect()
}

/// Random scripts without COPY, each with a Sync at its end.
pub fn random(seed: u64, count: usize) -> Vec<String> {
    let signs: Vec<char> = "PPPBBEEDCHSSSQQqFfWTRUpb".chars().collect();
    let mut state = seed;
    let mut roll = |sides: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % sides as u64).unwrap()
    };
    let mut script = || {
        let length = 3 + roll(14);
        let signs: String = (0..length).map(|_| signs[roll(signs.len())]).collect();
        signs + "S"
    };
    (0..count).map(|_| script()).collect()
}

/// Each script in one go, and what comes up to the answer to the last query behind it.
fn say(talk: &mut Talk, scripts: &[String]) {
    talk.start();
    talk.ask(&[TABLE]);
    for (number, script) in scripts.iter().enumerate() {
        let end = format!("the end of {number}");
        let more = [sync(), query("ROLLBACK"), query(&format!("SELECT '{end}'"))].concat();
        talk.send(&[bytes(script), more].concat());
        talk.remark(script);
        talk.until_said(&end);
        talk.ready(1);
    }
}

pub(super) fn cases() -> Vec<Case> {
    let listed = SCRIPTS.iter().map(|script| (*script).to_owned()).collect();
    let mut all = vec![("mixed: as listed".to_owned(), listed)];
    for seed in 1..=4 {
        all.push((format!("mixed: at random, {seed}"), random(seed * 0x9e37_79b9, 75)));
    }
    let case = |(name, scripts): (String, Vec<String>)| {
        Case::new(name, move |talk: &mut Talk| say(talk, &scripts))
    };
    all.into_iter().map(case).collect()
}
