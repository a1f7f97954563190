//! Random extended conversations on a live PostgreSQL, each played twice: directly, and through a
//! listener with `auto_prepare`. The client must get the same, byte for byte (invariant 17).
//!
//! The engine is the oracle here, where `src/wire/pg/tests/auto_prepare.rs` has a model of it. A
//! conversation is a function of a seed (`transparent/script.rs`); masked is only what the engine
//! itself numbers anew each time (object ids of tables).
//!
//! `FENCEWIRE_TRANSPARENT_CASES` sets how many conversations are played, and
//! `FENCEWIRE_TRANSPARENT_FROM` at which number they begin.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod acceptance;
mod support;
mod transparent;

use acceptance::{Site, metric};
use support::wire::{bind, execute, parse, query, sync};
use support::{Engine, PgCluster, Proxy, ProxyOptions, Wire};
use transparent::script::{Script, script};
use transparent::{SETUP, difference, play};

/// How many conversations `make test` plays.
const CASES: u64 = 200;

fn from_env(name: &str, otherwise: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return otherwise };
    text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}"))
}

fn keeping(removed: &str) -> Proxy {
    Proxy::start_with(ProxyOptions {
        engines: vec![Engine::plain("old", PgCluster::shared())],
        auto_prepare: true,
        env: vec![("FENCEWIRE_REMOVE".into(), removed.into())],
        ..ProxyOptions::default()
    })
}

/// What differs of one conversation, with its story.
fn differs(site: &Site<'_>, owner: &mut Wire, script: &Script) -> Option<String> {
    let told = [site.cluster.port(), site.proxy.port()].map(|port| {
        owner.query(SETUP).ok();
        let mut client = Wire::connect(port, "wire", &site.db);
        play(&mut client, script)
    });
    let [direct, through] = told;
    difference(&direct, &through).map(|what| format!("{what}\nof {}", script.story()))
}

fn count(proxy: &Proxy, event: &str) -> u64 {
    metric(proxy, &format!("fencewire_auto_prepared_total{{event=\"{event}\"}}"))
}

#[test]
fn invariant_17_random_conversations_are_what_they_are_without() {
    let proxy = keeping("");
    let site = Site::new(PgCluster::shared(), &proxy);
    let mut owner = site.direct();
    let from = from_env("FENCEWIRE_TRANSPARENT_FROM", 0);
    let cases = from_env("FENCEWIRE_TRANSPARENT_CASES", CASES);
    for number in from..from + cases {
        if let Some(what) = differs(&site, &mut owner, &script(number)) {
            panic!("VIOLATION: invariant 17: conversation {number}: {what}");
        }
    }
    let counted = ["named", "reused", "forgotten"].map(|event| count(&proxy, event));
    eprintln!("{cases} conversations: named, reused, forgotten {counted:?}");
    if cases >= CASES {
        let [named, reused, forgotten] = counted;
        assert!(named > cases && reused > cases / 2 && forgotten > cases / 2, "idle: {counted:?}");
    }
}

/// What is said, and how many ReadyForQuery come. In front of each the inserting text is kept.
fn corners() -> Vec<(&'static str, Vec<u8>, usize)> {
    let insert = |most| [parse("", INSERT), bind("", "", &[]), execute("", most)].concat();
    let (one, many) = (insert(1), insert(0));
    let (read, copy) = (query("SELECT count(*) FROM t"), query("COPY t FROM STDIN"));
    vec![
        // What a write has written whose rows are left is seen behind the next Parse of a pipeline,
        // and not behind a Close.
        ("rows that are left", [one.clone(), one.clone(), one, sync()].concat(), 1),
        ("in a pipeline", [many.clone(), many.clone(), sync()].concat(), 1),
        // PostgreSQL 18 leaves a transaction open behind a query that ends a pipeline.
        ("a query", [&many, &read, &parse("", INSERT), &sync(), &read].map(|m| &m[..]).concat(), 3),
        (
            "a query, and an end",
            [&many, &read, &sync(), &many, &sync()].map(|m| &m[..]).concat(),
            3,
        ),
        ("a Bind in a COPY", [copy.clone(), bind("", "", &[]), sync()].concat(), 2),
        ("a Parse in a COPY", [copy, parse("", INSERT), sync()].concat(), 2),
    ]
}

const INSERT: &str = "INSERT INTO t SELECT count(*) FROM t RETURNING n";

#[test]
fn corners_of_the_protocol_are_what_they_are_without() {
    let proxy = keeping("");
    let site = Site::new(PgCluster::shared(), &proxy);
    for (what, bytes, ready) in corners() {
        let told = [site.cluster.port(), proxy.port()].map(|port| {
            site.sql("TRUNCATE t");
            let mut client = Wire::connect(port, "wire", &site.db);
            for _ in 0..3 {
                client.extended(INSERT, &[]).ok();
            }
            client.send_raw(&bytes);
            let mut answers = Vec::new();
            // The engine ends a connection that breaks a COPY.
            while answers.iter().filter(|(tag, _)| *tag == b'Z').count() < ready
                && let Ok(frame) = client.try_read_frame(acceptance::PATIENCE)
            {
                answers.push(frame.unwrap_or_else(|| panic!("{what}: no answer: {answers:?}")));
            }
            drop(client);
            (answers, site.rows())
        });
        assert_eq!(told[0], told[1], "VIOLATION: invariant 17: {what}");
    }
    assert!(count(&proxy, "reused") >= 6, "control arm: it is kept");
}

/// How many of so many conversations differ with a guard removed, at most two.
fn found_without(removed: &str) -> usize {
    let proxy = keeping(removed);
    let site = Site::new(PgCluster::shared(), &proxy);
    let mut owner = site.direct();
    let all = (0..CASES).map(script);
    all.filter(|script| differs(&site, &mut owner, script).is_some()).take(2).count()
}

#[test]
fn invariant_17_control_arm_what_is_kept_too_long_is_seen() {
    assert_eq!(found_without("auto-forget"), 2);
}

#[test]
fn invariant_17_control_arm_what_is_guessed_is_seen() {
    assert_eq!(found_without("auto-meaning"), 2);
}
