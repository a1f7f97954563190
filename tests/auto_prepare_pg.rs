//! `auto_prepare` on a live PostgreSQL: what clients get is what they get without it.
//!
//! The corpus itself runs with it on by `FENCEWIRE_TEST_AUTO_PREPARE=1`, which every suite of
//! PostgreSQL takes (`docs/TESTING.md`). Here is what it adds: that texts are kept at all, when they
//! are forgotten, and that a fence is what it is without. Conversations with a model of the engine
//! are in `src/wire/pg/tests/auto_prepare.rs` (invariant 17).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod support;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use acceptance::{Site, code, metric};
use support::tools::{Target, run};
use support::wire::{bind, describe, execute, flush, parse, sync};
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
