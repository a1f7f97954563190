//! `auto_prepare` on a live PostgreSQL: what clients get is what they get without it.
//!
//! The corpus itself runs with it on by `FENCEWIRE_TEST_AUTO_PREPARE=1`, which every suite of
//! PostgreSQL takes (`docs/TESTING.md`). Here is what it adds: that texts are kept at all, when
//! they are forgotten, and that a fence is what it is without. Conversations with a model of the
//! engine are in `src/wire/pg/tests/auto_prepare.rs` (invariant 17).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod support;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use acceptance::{Site, code, metric};
use support::tools::{Target, run};
use support::wire::{Frame, bind, close, describe, execute, flush, parse, query, sync};
use support::{Engine, PgCluster, Proxy, ProxyOptions, Wire};

fn keeping(env: &[(&str, &str)]) -> Proxy {
    Proxy::start_with(ProxyOptions {
        engines: vec![Engine::plain("old", PgCluster::shared())],
        auto_prepare: true,
        env: env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        ..ProxyOptions::default()
    })
}

fn proxy() -> &'static Proxy {
    static PROXY: OnceLock<Proxy> = OnceLock::new();
    PROXY.get_or_init(|| keeping(&[]))
}

fn site() -> Site<'static> {
    Site::new(PgCluster::shared(), proxy())
}

/// The statements of the proxy's that a session has, by their texts.
fn kept(client: &mut Wire) -> Vec<String> {
    let sql =
        "SELECT statement FROM pg_prepared_statements WHERE name LIKE 'fencewire%' ORDER BY 1";
    let rows = client.query(sql).ok().rows();
    rows.into_iter().map(|row| row[0].clone().unwrap()).collect()
}

fn event(proxy: &Proxy, event: &str) -> u64 {
    metric(proxy, &format!("fencewire_auto_prepared_total{{event=\"{event}\"}}"))
}

#[test]
fn a_text_that_comes_again_is_kept_and_answers_the_same() {
    let site = site();
    let (mut client, mut direct) = (site.client(), site.direct());
    let sql = "SELECT n + $1::int, $2 FROM generate_series(1, 3) n";
    let ask = |wire: &mut Wire, value: &str| {
        let parts = [parse("", sql), describe(b'S', ""), bind("", "", &[Some(value), None])];
        let rest = [describe(b'P', ""), execute("", 0), sync()];
        wire.send_raw(&[parts.concat(), rest.concat()].concat());
        wire.until_ready().ok().frames
    };
    for round in 0..8 {
        let value = round.to_string();
        assert_eq!(ask(&mut client, &value), ask(&mut direct, &value), "round {round}");
    }
    assert_eq!(kept(&mut client), [sql]);
    assert!(kept(&mut direct).is_empty(), "control arm: the client's own has no name");
}

#[test]
fn a_pipeline_of_ten_with_an_error_in_it_ends_where_it_would() {
    let site = site();
    site.setup("CREATE TABLE u (n int PRIMARY KEY)");
    let (mut client, mut direct) = (site.client(), site.direct());
    let insert = "INSERT INTO u VALUES ($1::text::int)";
    for (base, failing) in [(0, 99), (20, 99), (40, 5), (60, 0), (80, 99)] {
        let mut pipeline = Vec::new();
        for step in 0..10 {
            // One that is there already.
            let value = if step == failing { base } else { base + step + 1 };
            let value = value.to_string();
            pipeline.extend([parse("", insert), bind("", "", &[Some(&value)])].concat());
            pipeline.extend([describe(b'P', ""), execute("", 0)].concat());
        }
        pipeline.extend(sync());
        let told = [&mut client, &mut direct].map(|wire| {
            wire.query(&format!("DELETE FROM u; INSERT INTO u VALUES ({base})")).ok();
            wire.send_raw(&pipeline);
            let answer = wire.until_ready();
            let tags: Vec<u8> = answer.frames.iter().map(|frame| frame.0).collect();
            (tags, answer.code(), wire.query("SELECT count(*), sum(n) FROM u").ok().rows())
        });
        assert_eq!(told[0], told[1], "{base}, {failing}");
    }
    assert_eq!(kept(&mut client), [insert]);
}

#[test]
fn a_flush_brings_what_a_flush_brings() {
    let site = site();
    let mut client = site.client();
    for _ in 0..4 {
        client.send_raw(&[parse("", "SELECT 1"), flush()].concat());
        assert_eq!(client.read_frame(), (b'1', Vec::new()));
        client.send_raw(&[bind("", "", &[]), execute("", 0), sync()].concat());
        assert_eq!(client.until_ready().ok().cell(), "1");
    }
    assert_eq!(kept(&mut client), ["SELECT 1"]);
}

/// Warnings of the parser come with each Parse, and there is a Parse for each that comes.
#[test]
fn what_the_engine_says_of_a_text_is_said_each_time() {
    let proxy = &keeping(&[]);
    let site = Site::new(PgCluster::shared(), proxy);
    let (mut client, mut direct) = (site.client(), site.direct());
    for sql in ["SELECT '2026-12-02'::timestamp(7)", "SELECT '1 s'::interval(9) AS \"n\""] {
        for round in 0..6 {
            let told = [&mut client, &mut direct].map(|wire| wire.extended(sql, &[]).ok().frames);
            assert_eq!(told[0], told[1], "round {round}");
            assert_eq!(told[1][0].0, b'N', "control arm: it warns");
        }
    }
    assert_eq!((event(proxy, "named"), event(proxy, "reused")), (2, 0));
}

#[test]
fn a_session_that_is_discarded_or_changed_starts_anew() {
    let site = site();
    site.setup("CREATE TABLE w (n int)");
    let mut client = site.client();
    for change in [
        "DISCARD ALL",
        "DEALLOCATE ALL",
        "SET search_path = public",
        "BEGIN; SET LOCAL work_mem = '1MB'; ROLLBACK",
        "CREATE TEMP TABLE t (n text)",
        "DROP TABLE pg_temp.t",
    ] {
        for _ in 0..4 {
            client.extended("SELECT count(*) FROM w", &[]).ok();
        }
        client.query(change).ok();
        client.send_raw(&[bind("", "", &[]), sync()].concat());
        assert_eq!(code(&client.until_ready()), "26000", "{change}");
        for _ in 0..4 {
            assert_eq!(client.extended("SELECT count(*) FROM w", &[]).ok().cell(), "0");
        }
    }
    // Aborted: the error comes where it does without the proxy.
    client.query("BEGIN").ok();
    client.query("SELECT 1/0");
    client.send_raw(&[parse("", "SELECT count(*) FROM w"), bind("", "", &[]), sync()].concat());
    let tags: Vec<u8> = client.until_ready().frames.iter().map(|frame| frame.0).collect();
    assert_eq!(tags, b"EZ");
    client.query("ROLLBACK").ok();
}

#[test]
fn what_another_session_alters_is_planned_anew_or_refused_once() {
    let proxy = &keeping(&[]);
    let site = Site::new(PgCluster::shared(), proxy);
    site.setup("CREATE TABLE w (n int); INSERT INTO w VALUES (1)");
    let mut client = site.client();
    for _ in 0..4 {
        client.extended("SELECT n FROM w", &[]).ok();
        client.extended("SELECT * FROM w", &[]).ok();
    }
    site.setup("ALTER TABLE w ADD COLUMN more text DEFAULT 'x'");
    assert_eq!(client.extended("SELECT n FROM w", &[]).ok().cell(), "1");
    assert_eq!(code(&client.extended("SELECT * FROM w", &[])), "0A000");
    let row = client.extended("SELECT * FROM w", &[]).ok().rows().remove(0);
    assert_eq!(row, [Some("1".to_owned()), Some("x".to_owned())]);
    assert_eq!((event(proxy, "result_changed"), event(proxy, "forgotten")), (1, 1));
    assert_eq!(event(proxy, "named"), 2);
    assert!(event(proxy, "reused") >= 4);
}

/// A literal is read as its text is parsed: by the setting of then.
fn a_date_is_read_by_the_setting_of_now(proxy: &Proxy) -> bool {
    let site = Site::new(PgCluster::shared(), proxy);
    let mut client = site.client();
    let mut ask = |style: &str| {
        client.query(&format!("SET DateStyle = '{style}'")).ok();
        let sql = "SELECT extract(month FROM '01/02/2026'::date)";
        (0..4).map(|_| client.extended(sql, &[]).ok().cell()).collect::<Vec<_>>()
    };
    ask("ISO, MDY") == ["1"; 4] && ask("ISO, DMY") == ["2"; 4] && ask("ISO, MDY") == ["1"; 4]
}

#[test]
fn invariant_17_a_setting_has_texts_read_anew() {
    assert!(a_date_is_read_by_the_setting_of_now(proxy()));
}

#[test]
fn invariant_17_control_arm_without_forgetting_a_date_is_read_by_the_old_setting() {
    let without = keeping(&[("FENCEWIRE_REMOVE", "auto-forget")]);
    assert!(!a_date_is_read_by_the_setting_of_now(&without));
}

#[test]
fn a_fence_under_load_lets_nothing_through() {
    let proxy = &keeping(&[]);
    let site = Site::new(PgCluster::shared(), proxy);
    let (stop, refused, written) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let rows = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = site.client();
                while !stop.load(Ordering::SeqCst) {
                    let answer =
                        client.extended("INSERT INTO t VALUES ($1::text::int)", &[Some("1")]);
                    match answer.code().as_deref() {
                        None => written.fetch_add(1, Ordering::SeqCst),
                        Some("ZF001") => refused.fetch_add(1, Ordering::SeqCst),
                        Some(other) => panic!("{other}: {answer:?}"),
                    };
                    let count = "SELECT count(*) FROM t WHERE n = $1::text::int";
                    client.extended(count, &[Some("1")]).ok();
                }
            });
        }
        support::poll(std::time::Duration::from_secs(60), || {
            (written.load(Ordering::SeqCst) > 100).then_some(())
        })
        .expect("writes go through");
        let operation = site.fence();
        let at_once = site.sql("SELECT count(*) FROM t");
        let before = refused.load(Ordering::SeqCst);
        support::poll(std::time::Duration::from_secs(60), || {
            (refused.load(Ordering::SeqCst) > before + 50).then_some(())
        })
        .expect("writes are refused");
        let later = site.sql("SELECT count(*) FROM t");
        assert_eq!(at_once, later, "VIOLATION: written behind an acknowledged fence");
        site.unfence(&operation);
        let open = written.load(Ordering::SeqCst);
        support::poll(std::time::Duration::from_secs(60), || {
            (written.load(Ordering::SeqCst) > open + 50).then_some(())
        })
        .expect("writes go through again");
        stop.store(true, Ordering::SeqCst);
        later
    });
    assert!(rows.parse::<u64>().unwrap() > 100);
    let counted = site.sql("SELECT count(*) FROM t").parse::<u64>().unwrap();
    assert_eq!(counted, written.load(Ordering::SeqCst));
    assert!(event(proxy, "reused") > 100, "control arm: the load is kept statements");
}

#[test]
fn pgbench_adds_up() {
    let proxy = &keeping(&[]);
    let cluster = PgCluster::shared();
    let target = Target { cluster, port: proxy.port(), client_tls: false, engine_tls: false };
    let db = cluster.fresh_db();
    run(target.tool("pgbench", &db).args(["-i", "-q", "-s", "1"]));
    let args = ["-n", "-M", "extended", "-c", "4", "-j", "2", "-t", "50"];
    let out = run(target.tool("pgbench", &db).args(args));
    assert!(out.contains("actually processed: 200/200"), "{out}");
    let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts)
                     = (SELECT sum(bbalance) FROM pgbench_branches), count(*)
                  FROM pgbench_history";
    assert_eq!(run(target.psql(&db).args(["-At", "-c", sums])).trim(), "t|200");
    // Five texts of each transaction, by four clients; two sights of each are parsed.
    assert_eq!(event(proxy, "reused"), 5 * (200 - 2 * 4));
}

/// Texts of the random conversations, with how many parameters each has.
const TEXTS: [(&str, usize); 22] = [
    ("SELECT n + 0 FROM u ORDER BY 1", 0),
    ("SELECT n + $1::int FROM u ORDER BY 1", 1),
    ("SELECT n + $1::int FROM u ORDER BY 1", 1),
    ("SELECT $1::int, $2::text", 2),
    ("SELECT $1::int, $2::text", 2),
    ("INSERT INTO u VALUES ($1::int)", 1),
    ("INSERT INTO u VALUES ($1::int) RETURNING n + 1", 1),
    ("UPDATE u SET n = n + 100 WHERE n = $1::int", 1),
    ("DELETE FROM u WHERE n = $1::int", 1),
    ("SELECT extract(month FROM '01/02/2026'::date)", 0),
    ("SELECT 'yesterday'::date < 'tomorrow'::date", 0),
    ("SELECT 1 / (n - n) FROM u", 0),
    ("SELECT * FROM missing", 0),
    ("SELEC 1", 0),
    ("BEGIN", 0),
    ("COMMIT", 0),
    ("ROLLBACK", 0),
    ("SAVEPOINT one", 0),
    ("ROLLBACK TO one", 0),
    ("SET DateStyle = 'ISO, DMY'", 0),
    ("CREATE TEMP TABLE u AS SELECT 7 AS n", 0),
    ("DISCARD ALL", 0),
];

/// How many of these, from the first on, may be kept.
const STEADY: usize = 10;

/// What comes as a simple query too, beside the texts without parameters.
const QUERIES: [&str; 6] = [
    "DEALLOCATE ALL",
    "SELECT 1; SELECT 2",
    "BEGIN; SET LOCAL DateStyle = 'ISO, DMY'",
    "SELECT set_config('DateStyle', 'ISO, DMY', true)",
    "DROP TABLE IF EXISTS pg_temp.u",
    "SET DateStyle = 'ISO, MDY'; COMMIT",
];

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }

    /// One message or two of a pipeline. `DISCARD ALL` has no name: docs/CONTRACT.md says why.
    fn message(&mut self, favourite: usize) -> Vec<u8> {
        // Most come again and again, so that they are kept; most others disturb that.
        let steady = (favourite + self.roll(2)) % STEADY;
        let at = if self.roll(8) == 0 { self.roll(TEXTS.len()) } else { steady };
        let (text, parameters) = TEXTS[at];
        let values = ["1", "2", "3", "40", "x"].map(Some);
        let mut count = parameters;
        if self.roll(16) == 0 {
            count += 1;
        }
        let values: Vec<_> = (0..count).map(|_| values[self.roll(values.len())]).collect();
        match self.roll(24) {
            0..10 => [parse("", text), bind("", "", &values), execute("", 0)].concat(),
            10..12 => [parse("", text), describe(b'S', ""), bind("", "", &values)].concat(),
            12 => parse("", text),
            13 => bind("", "", &values),
            14 => bind("p", "", &values),
            15 => execute("p", 1),
            16 => execute("", 2),
            17 => describe(b'S', ""),
            18 => describe(b'P', ""),
            19 => close(b'S', ""),
            20 => close(b'P', ["", "p"][self.roll(2)]),
            21 if text != "DISCARD ALL" => [close(b'S', "s"), parse("s", text)].concat(),
            22 => bind("", "s", &values),
            _ => flush(),
        }
    }
}

/// What a client is told in one conversation. Its shape hangs on the seed alone.
fn conversation(wire: &mut Wire, seed: u64) -> Vec<Frame> {
    let mut dice = Dice(seed);
    let (patience, favourite) = (dice.roll(4), dice.roll(STEADY));
    let (mut owed, mut frames) = (0, Vec::new());
    for step in 0..40 {
        let mut bytes = Vec::new();
        if dice.roll(12) == 0 {
            let texts: Vec<_> = TEXTS.iter().filter(|(_, parameters)| *parameters == 0).collect();
            let other = dice.roll(texts.len() + QUERIES.len());
            let text = texts.get(other).map(|(text, _)| *text);
            bytes.extend(query(text.unwrap_or_else(|| QUERIES[other - texts.len()])));
        } else {
            for _ in 0..dice.roll(5) {
                bytes.extend(dice.message(favourite));
            }
            bytes.extend(sync());
        }
        wire.send_raw(&bytes);
        owed += 1;
        if step == 39 || dice.roll(4) <= patience {
            for _ in 0..owed {
                frames.extend(wire.until_ready().frames);
            }
            owed = 0;
        }
    }
    frames
}

/// Plays conversations with and without; answers the first whose clients were told something else.
fn first_difference(keeping: &Proxy, seeds: u64) -> Option<String> {
    let without = Proxy::start(PgCluster::shared());
    let site = Site::new(PgCluster::shared(), &without);
    site.setup("CREATE TABLE u (n int PRIMARY KEY)");
    let there = Site::at(PgCluster::shared(), keeping, &site.db);
    for seed in 1..=seeds {
        let told = [&site, &there].map(|site| {
            site.setup("TRUNCATE u; INSERT INTO u VALUES (1), (2)");
            let mut client = site.client();
            let told = conversation(&mut client, 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
            client.terminate();
            told
        });
        if let Some(at) =
            (0..told[0].len().max(told[1].len())).find(|&at| told[0].get(at) != told[1].get(at))
        {
            let shown = told.map(|frames| {
                frames
                    .get(at)
                    .map(|(tag, body)| format!("{} {}", char::from(*tag), body.escape_ascii()))
            });
            return Some(format!("seed {seed}, message {at}: {shown:?}"));
        }
    }
    None
}

#[test]
fn invariant_17_random_conversations_are_the_same_with_it_on() {
    let keeping = keeping(&[]);
    let seeds = std::env::var("FENCEWIRE_AUTO_SEEDS").map_or(150, |n| n.parse().unwrap());
    let difference = first_difference(&keeping, seeds);
    assert_eq!(difference, None, "VIOLATION: invariant 17");
    let (named, reused) = (event(&keeping, "named"), event(&keeping, "reused"));
    assert!(named > seeds / 4 && reused > seeds / 4, "control arm: {named} kept, {reused} used");
}

#[test]
fn invariant_17_control_arm_without_its_guards_conversations_differ() {
    for guard in ["auto-forget", "auto-meaning"] {
        let without = keeping(&[("FENCEWIRE_REMOVE", guard)]);
        assert!(first_difference(&without, 400).is_some(), "{guard}");
    }
}
