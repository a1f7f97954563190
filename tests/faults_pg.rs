//! Faults reported in public for other proxies, each tried here with its right value.
//!
//! [`REPORTED`] has every PostgreSQL item of the list that this project keeps of them, with the
//! test that shows it, which is looked for. Clients that are held while the proxy stops (pgbouncer
//! 1565, the other half) are in `hold_pg`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod support;

use std::time::Duration;

use acceptance::{Site, applied, blockers, code, fail_after, patient, still_draining};
use support::proxy::uuid;
use support::tools::{Target, run, run_failing};
use support::wire::{
    bind, close, copy_data, copy_done, describe, execute, flush, frame, parse, query, sync,
};
use support::{Engine, Options, PgCluster, Proxy, ProxyOptions, Wire};

/// How a report is met.
enum Met {
    /// By a test: the file without its ending, and the name.
    Test(&'static str, &'static str),
    /// By a conversation of the corpus.
    Talk(&'static str),
}

use Met::{Talk, Test};

/// Project and number of each report, and how it is met.
const REPORTED: &[(&str, Met)] = &[
    (
        "pgbouncer 715",
        Test("faults_pg", "pgbouncer_715_a_release_while_an_acquire_waits_answers_both"),
    ),
    (
        "pgbouncer 369",
        Test(
            "faults_pg",
            "pgbouncer_369_a_session_in_a_transaction_ends_in_a_deadline_and_is_named",
        ),
    ),
    ("pgbouncer 420", Test("faults_pg", "pgbouncer_420_a_login_under_way_is_let_in")),
    (
        "pgbouncer 498",
        Test(
            "faults_pg",
            "pgbouncer_420_and_498_new_clients_are_let_in_while_a_fence_drains_and_stands",
        ),
    ),
    (
        "pgbouncer 1145",
        Test("faults_pg", "pgbouncer_1145_a_drain_of_one_database_does_not_touch_another"),
    ),
    (
        "pgbouncer 1565",
        Test("faults_pg", "pgbouncer_1565_a_stop_in_the_middle_of_a_drain_tells_everybody"),
    ),
    ("pgbouncer 63", Test("bypass_pg", "orphan_an_insert_whose_client_is_gone_is_waited_for")),
    ("pgbouncer 497", Test("bypass_pg", "orphan_an_insert_whose_client_is_gone_is_waited_for")),
    ("pgbouncer 79", Test("bypass_pg", "orphan_an_insert_whose_client_is_gone_is_waited_for")),
    ("pgbouncer 245", Test("faults_pg", "pgbouncer_245_717_and_38_a_late_cancel_stops_nobody")),
    ("pgbouncer 717", Test("faults_pg", "pgbouncer_245_717_and_38_a_late_cancel_stops_nobody")),
    ("pgbouncer 38", Test("faults_pg", "pgbouncer_245_717_and_38_a_late_cancel_stops_nobody")),
    ("pgbouncer 1222", Test("hold_pg", "w20_a_cancel_is_answered_here")),
    ("pgbouncer 1314", Test("hold_pg", "w20_a_cancel_is_answered_here")),
    (
        "pgbouncer 714",
        Test("faults_pg", "pgbouncer_714_and_759_a_pipeline_without_its_sync_is_busy"),
    ),
    (
        "pgbouncer 759",
        Test("faults_pg", "pgbouncer_714_and_759_a_pipeline_without_its_sync_is_busy"),
    ),
    (
        "pgbouncer 1470",
        Test("faults_pg", "pgbouncer_1470_and_1471_a_copy_that_fails_early_leaves_nothing_behind"),
    ),
    (
        "pgbouncer 1471",
        Test("faults_pg", "pgbouncer_1470_and_1471_a_copy_that_fails_early_leaves_nothing_behind"),
    ),
    ("pgbouncer 1543", Test("faults_pg", "pgbouncer_1543_what_is_prepared_behind_a_discard_stays")),
    ("pgbouncer 1535", Test("faults_pg", "pgbouncer_1543_what_is_prepared_behind_a_discard_stays")),
    (
        "pgbouncer 264",
        Test(
            "faults_pg",
            "supavisor_663_pgbouncer_264_and_1554_another_engine_at_the_same_address",
        ),
    ),
    (
        "pgbouncer 1554",
        Test(
            "faults_pg",
            "supavisor_663_pgbouncer_264_and_1554_another_engine_at_the_same_address",
        ),
    ),
    ("pgdog 885", Test("faults_pg", "pgdog_885_and_886_a_copy_by_a_pipeline_has_one_ready")),
    ("pgdog 886", Test("faults_pg", "pgdog_885_and_886_a_copy_by_a_pipeline_has_one_ready")),
    (
        "pgdog 887",
        Test(
            "faults_pg",
            "pgdog_887_876_and_536_a_failure_in_the_middle_of_a_pipeline_ends_at_its_sync",
        ),
    ),
    (
        "pgdog 876",
        Test(
            "faults_pg",
            "pgdog_887_876_and_536_a_failure_in_the_middle_of_a_pipeline_ends_at_its_sync",
        ),
    ),
    (
        "pgdog 536",
        Test(
            "faults_pg",
            "pgdog_887_876_and_536_a_failure_in_the_middle_of_a_pipeline_ends_at_its_sync",
        ),
    ),
    ("pgdog 999", Test("faults_pg", "pgdog_999_extended_queries_in_a_block_are_answered")),
    (
        "supavisor 1164",
        Test("faults_pg", "supavisor_1164_half_a_frame_ends_its_own_session_and_no_other"),
    ),
    (
        "supavisor 663",
        Test(
            "faults_pg",
            "supavisor_663_pgbouncer_264_and_1554_another_engine_at_the_same_address",
        ),
    ),
    ("odyssey 1361", Test("faults_pg", "odyssey_1361_a_close_behind_a_failed_parse")),
    (
        "odyssey 564",
        Test(
            "faults_pg",
            "odyssey_564_476_and_477_a_prepared_statement_keeps_its_rows_its_tag_and_its_name",
        ),
    ),
    (
        "odyssey 476",
        Test(
            "faults_pg",
            "odyssey_564_476_and_477_a_prepared_statement_keeps_its_rows_its_tag_and_its_name",
        ),
    ),
    (
        "odyssey 477",
        Test(
            "faults_pg",
            "odyssey_564_476_and_477_a_prepared_statement_keeps_its_rows_its_tag_and_its_name",
        ),
    ),
    ("pgwire 455", Talk("start: protocol 3.9999")),
    ("pgagroal 971", Talk("start: protocol 3.9999")),
    ("proxysql 6197", Test("faults_pg", "proxysql_6197_and_6202_one_name_in_two_sessions")),
    ("proxysql 6202", Test("faults_pg", "proxysql_6197_and_6202_one_name_in_two_sessions")),
    (
        "teachanything 450",
        Test("faults_pg", "teachanything_450_the_guards_setting_stays_with_its_session"),
    ),
    (
        "authentik 23876",
        Test("faults_pg", "authentik_23876_and_rails_31190_a_session_lock_ends_with_its_session"),
    ),
    (
        "rails 31190",
        Test("faults_pg", "authentik_23876_and_rails_31190_a_session_lock_ends_with_its_session"),
    ),
    ("pgt-proxy 6", Test("faults_pg", "pgt_proxy_6_and_pgdog_1453_a_login_bound_to_its_channel")),
    ("pgdog 1453", Test("faults_pg", "pgt_proxy_6_and_pgdog_1453_a_login_bound_to_its_channel")),
    (
        "pg_easy_replicate 164",
        Test("faults_pg", "pg_easy_replicate_164_a_fence_holds_for_every_role"),
    ),
    (
        "activerecord-jdbc-adapter 1216",
        Test("fence_pg", "acceptance_09_a_commit_whose_answer_is_lost_is_not_a_release"),
    ),
    ("hoop 1496", Test("faults_pg", "hoop_1496_and_pgbouncer_98_a_statement_of_20_megabytes")),
    ("pgbouncer 98", Test("faults_pg", "hoop_1496_and_pgbouncer_98_a_statement_of_20_megabytes")),
];

/// The list as it is kept: projects and the numbers of their reports.
const LIST: &[(&str, &[u32])] = &[
    (
        "pgbouncer",
        &[
            715, 369, 420, 498, 1145, 1565, 63, 497, 79, 245, 717, 38, 1222, 1314, 714, 759, 1470,
            1471, 1543, 1535, 264, 1554, 98,
        ],
    ),
    ("pgdog", &[885, 886, 887, 876, 536, 999, 1453]),
    ("supavisor", &[1164, 663]),
    ("odyssey", &[1361, 564, 476, 477]),
    ("pgwire", &[455]),
    ("pgagroal", &[971]),
    ("proxysql", &[6197, 6202]),
    ("teachanything", &[450]),
    ("authentik", &[23876]),
    ("rails", &[31190]),
    ("pgt-proxy", &[6]),
    ("pg_easy_replicate", &[164]),
    ("activerecord-jdbc-adapter", &[1216]),
    ("hoop", &[1496]),
];

#[test]
fn every_report_of_the_list_is_met_by_something_that_is_there() {
    let listed: Vec<String> = LIST
        .iter()
        .flat_map(|(project, numbers)| numbers.iter().map(move |n| format!("{project} {n}")))
        .collect();
    for item in &listed {
        let count = REPORTED.iter().filter(|(name, _)| name == item).count();
        assert_eq!(count, 1, "{item} is in the table {count} times");
    }
    assert_eq!(REPORTED.len(), listed.len(), "the table has more than the list");
    let tests = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let text = |file: String| std::fs::read_to_string(tests.join(file)).unwrap();
    let corpus = text("relay/mod.rs".into());
    for (name, met) in REPORTED {
        match met {
            Test(file, test) => {
                let there = text(format!("{file}.rs")).contains(&format!("#[test]\nfn {test}()"));
                assert!(there, "{name}: no test {test} in {file}");
            }
            Talk(talk) => assert!(corpus.contains(&format!("(\"{talk}\"")), "{name}: no {talk}"),
        }
    }
}

#[test]
fn pgbouncer_715_a_release_while_an_acquire_waits_answers_both() {
    let site = Site::shared();
    let mut writer = site.client();
    writer.query("BEGIN; INSERT INTO t VALUES (1)").ok();
    let operation = uuid();
    let body = site.acquire_body(&operation, &patient());
    std::thread::scope(|scope| {
        let acquire = scope.spawn(|| site.acquire(&body));
        site.wait_blocked_by(writer.backend_pid());
        site.unfence(&operation);
        let answer = acquire.join().unwrap();
        let answer = still_draining(&answer);
        assert_eq!(answer["fence"]["state"], "RELEASED", "{answer:#}");
        assert!(answer["reason"].as_str().unwrap().contains("superseded"), "{answer:#}");
    });
    // What was open since before the drain belongs to an older generation (ZF002 or a commit).
    drop(writer);
    site.client().query("INSERT INTO t VALUES (2)").ok();
}

#[test]
fn pgbouncer_369_a_session_in_a_transaction_ends_in_a_deadline_and_is_named() {
    let site = Site::shared();
    let mut idle = site.client();
    idle.query("BEGIN; INSERT INTO t VALUES (1)").ok();
    let answer = site.acquire(&site.acquire_body(&uuid(), &fail_after(300)));
    let body = still_draining(&answer);
    assert!(blockers(body).iter().any(|b| b["engine_pid"] == idle.backend_pid()), "{body:#}");
}

#[test]
fn pgbouncer_420_and_498_new_clients_are_let_in_while_a_fence_drains_and_stands() {
    let site = Site::shared();
    let mut writer = site.client();
    writer.query("BEGIN; INSERT INTO t VALUES (1)").ok();
    let body = site.acquire_body(&uuid(), &fail_after(300));
    still_draining(&site.acquire(&body));
    for _ in 0..5 {
        site.client().query("SELECT 1").ok();
    }
    writer.query("COMMIT").ok();
    site.acquire_at_last(&body);
    for _ in 0..5 {
        let mut client = site.client();
        assert_eq!(client.query("SELECT count(*) FROM t").ok().cell(), "1");
        assert_eq!(code(&client.query("INSERT INTO t VALUES (2)")), "ZF001");
    }
}

#[test]
fn pgbouncer_1145_a_drain_of_one_database_does_not_touch_another() {
    let (busy, other) = (Site::shared(), Site::shared());
    let mut writer = busy.client();
    writer.query("BEGIN; INSERT INTO t VALUES (1)").ok();
    let body = busy.acquire_body(&uuid(), &patient());
    std::thread::scope(|scope| {
        let acquire = scope.spawn(|| busy.acquire(&body));
        busy.wait_blocked_by(writer.backend_pid());
        other.client().query("INSERT INTO t VALUES (1)").ok();
        let operation = other.fence();
        other.unfence(&operation);
        busy.stays_draining(1);
        writer.query("COMMIT").ok();
        applied(&acquire.join().unwrap());
    });
}

#[test]
fn pgbouncer_245_717_and_38_a_late_cancel_stops_nobody() {
    let site = Site::shared();
    let (mut one, mut two) = (site.client(), site.client());
    one.query("SELECT 1").ok();
    two.send_raw(&query("SELECT count(*) FROM generate_series(1, 300000)"));
    for _ in 0..10 {
        one.cancel();
    }
    assert_eq!(two.until_ready().ok().cell(), "300000");
    one.query("SELECT 2").ok();
    // Control arm: in time it does.
    one.send_raw(&query("SELECT pg_sleep(600)"));
    let sleeping =
        format!("SELECT wait_event FROM pg_stat_activity WHERE pid = {}", one.backend_pid());
    site.wait_sql(&sleeping, "PgSleep");
    one.cancel();
    assert_eq!(code(&one.until_ready()), "57014");
}

#[test]
fn pgbouncer_714_and_759_a_pipeline_without_its_sync_is_busy() {
    let site = Site::shared();
    let mut client = site.client();
    let write = [parse("", "INSERT INTO t VALUES (1)"), bind("", "", &[]), execute("", 0)].concat();
    // A Sync in front, answered, and a tail that has none.
    client.send_raw(&[write.clone(), sync(), write, flush()].concat());
    client.until_ready().ok();
    while client.read_frame().0 != b'C' {}
    let body = site.acquire_body(&uuid(), &fail_after(300));
    let answer = site.acquire(&body);
    let answer = still_draining(&answer);
    assert!(blockers(answer).iter().any(|b| b["engine_pid"] == client.backend_pid()));
    client.send_raw(&sync());
    client.until_ready().ok();
    site.acquire_at_last(&body);
    assert_eq!(site.rows(), "1,1");
}

#[test]
fn pgbouncer_1470_and_1471_a_copy_that_fails_early_leaves_nothing_behind() {
    let site = Site::shared();
    let mut client = site.client();
    client.send_raw(&query("COPY t FROM STDIN"));
    assert_eq!(client.read_frame().0, b'G');
    client.send_raw(&copy_data(b"not a number\n"));
    client.send_raw(&[copy_data(b"1\n"), copy_data(b"2\n"), copy_done()].concat());
    assert_eq!(code(&client.until_ready()), "22P02");
    client.send_raw(&[copy_data(b"3\n"), copy_done()].concat());
    assert_eq!(client.query("SELECT count(*) FROM t").ok().cell(), "0");
    let operation = site.fence();
    site.unfence(&operation);
    client.query("INSERT INTO t VALUES (4)").ok();
}

#[test]
fn pgbouncer_1543_what_is_prepared_behind_a_discard_stays() {
    let site = Site::shared();
    for wipe in ["DISCARD ALL", "DEALLOCATE ALL"] {
        let mut client = site.client();
        client.send_raw(&[parse("s", "SELECT 1"), sync()].concat());
        client.until_ready().ok();
        client.send_raw(&[query(wipe), parse("s", "INSERT INTO t VALUES ($1)"), sync()].concat());
        client.until_ready().ok();
        client.until_ready().ok();
        client.send_raw(&[bind("", "s", &[Some("7")]), execute("", 0), sync()].concat());
        assert_eq!(client.until_ready().ok().tags(), ["INSERT 0 1"], "{wipe}");
        // The proxy's own memory of the name was renewed as well: it is a write now.
        let operation = site.fence();
        client.send_raw(&[bind("", "s", &[Some("8")]), execute("", 0), sync()].concat());
        assert_eq!(code(&client.until_ready()), "ZF001", "{wipe}");
        site.unfence(&operation);
    }
    assert_eq!(site.rows(), "7,7");
}

#[test]
fn pgdog_885_and_886_a_copy_by_a_pipeline_has_one_ready() {
    let site = Site::shared();
    let mut client = site.client();
    let copy = [parse("", "COPY t FROM STDIN"), bind("", "", &[]), execute("", 0), sync()].concat();
    client.send_raw(&copy);
    while client.read_frame().0 != b'G' {}
    client.send_raw(&[copy_data(b"1\n2\n"), copy_done(), sync()].concat());
    assert_eq!(client.until_ready().ok().tags(), ["COPY 2"]);
    assert!(client.try_read_frame(Duration::from_millis(50)).unwrap().is_none(), "a second answer");
    // Nothing is owed any more: a fence comes to its proof.
    let operation = site.fence();
    assert_eq!(client.query("SELECT count(*) FROM t").ok().cell(), "2");
    site.unfence(&operation);
}

#[test]
fn pgdog_887_876_and_536_a_failure_in_the_middle_of_a_pipeline_ends_at_its_sync() {
    let site = Site::shared();
    let mut client = site.client();
    let one = |sql: &str| [parse("", sql), bind("", "", &[]), execute("", 0)].concat();
    let broken = [one("SET no_such_setting = 1"), one("SELECT 1"), sync()].concat();
    client.send_raw(&[broken, one("SELECT 'second'"), sync(), query("SELECT 'third'")].concat());
    let answer = client.until_ready();
    assert_eq!((code(&answer).as_str(), answer.rows().len()), ("42704", 0));
    assert_eq!(client.until_ready().ok().cell(), "second");
    assert_eq!(client.until_ready().ok().cell(), "third");
}

#[test]
fn pgdog_999_extended_queries_in_a_block_are_answered() {
    let site = Site::shared();
    let mut client = site.client();
    client.query("BEGIN").ok();
    client.send_raw(&[parse("", "SELECT $1::int"), describe(b'S', ""), sync()].concat());
    client.until_ready().ok();
    client.send_raw(&[bind("", "", &[Some("3")]), execute("", 0), sync()].concat());
    let answer = client.until_ready().ok();
    assert_eq!((answer.cell().as_str(), answer.status), ("3", 'T'));
    client.query("COMMIT").ok();
}

#[test]
fn odyssey_1361_a_close_behind_a_failed_parse() {
    let site = Site::shared();
    let mut client = site.client();
    client.send_raw(&[parse("s", "SELEKT"), sync(), close(b'S', "s"), sync()].concat());
    assert_eq!(code(&client.until_ready()), "42601");
    let answer = client.until_ready().ok();
    assert_eq!(answer.frames[0].0, b'3', "{answer:?}");
    client.send_raw(&[parse("s", "SELECT 5"), bind("", "s", &[]), execute("", 0), sync()].concat());
    assert_eq!(client.until_ready().ok().cell(), "5");
}

#[test]
fn teachanything_450_the_guards_setting_stays_with_its_session() {
    let site = Site::shared();
    let show = "SHOW default_transaction_read_only";
    let operation = site.fence();
    let mut guarded = site.client();
    guarded.query("SELECT 1").ok();
    site.unfence(&operation);
    assert_eq!(guarded.query(show).ok().cell(), "off");
    guarded.query("SET default_transaction_read_only = on").ok();
    assert_eq!(site.client().query(show).ok().cell(), "off");
}

#[test]
fn authentik_23876_and_rails_31190_a_session_lock_ends_with_its_session() {
    let site = Site::shared();
    let mut holder = site.client();
    holder.query("SELECT pg_advisory_lock(4711)").ok();
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(site.sql(held), "1");
    drop(holder);
    site.wait_sql(held, "0");
}

#[test]
fn pg_easy_replicate_164_a_fence_holds_for_every_role() {
    let site = Site::shared();
    let operation = site.fence();
    for role in ["SELECT 1", "SET ROLE app", "SET SESSION AUTHORIZATION DEFAULT"] {
        let mut client = site.client();
        client.query(role).ok();
        assert_eq!(code(&client.query("INSERT INTO t VALUES (1)")), "ZF001", "{role}");
    }
    site.unfence(&operation);
    assert_eq!(site.rows(), "");
}

#[test]
fn hoop_1496_and_pgbouncer_98_a_statement_of_20_megabytes() {
    let site = Site::shared();
    site.setup("CREATE TABLE wide (s text)");
    let mut client = site.client();
    let wide = "w".repeat(20_000_000);
    client.query(&format!("INSERT INTO wide VALUES ('{wide}')")).ok();
    client.extended("INSERT INTO wide VALUES ($1)", &[Some(&wide)]).ok();
    assert_eq!(site.sql("SELECT min(length(s)) || ' ' || count(*) FROM wide"), "20000000 2");
    let operation = site.fence();
    let answer = client.query(&format!("INSERT INTO wide VALUES ('{wide}')"));
    // Only the head of a statement this long is read, so nothing can be shown of it.
    assert_eq!(code(&answer), "ZF008");
    client.query("SELECT 1").ok();
    site.unfence(&operation);
}

#[test]
fn pgbouncer_420_a_login_under_way_is_let_in() {
    let site = Site::shared();
    let mut body = (3_u32 << 16).to_be_bytes().to_vec();
    body.extend_from_slice(format!("user\0wire\0database\0{}\0\0", site.db).as_bytes());
    let packet = &frame(b'?', &body)[1..];
    let (first, rest) = packet.split_at(20);
    let mut half = Wire::open(site.proxy.port());
    half.send_raw(first);
    let mut none = Wire::open(site.proxy.port());
    let operation = site.fence();
    half.send_raw(rest);
    none.send_raw(packet);
    for client in [&mut half, &mut none] {
        client.until_ready().ok();
        client.query("SELECT count(*) FROM t").ok();
        assert_eq!(code(&client.query("INSERT INTO t VALUES (1)")), "ZF001");
    }
    site.unfence(&operation);
}

#[test]
fn pgbouncer_1565_a_stop_in_the_middle_of_a_drain_tells_everybody() {
    let cluster = PgCluster::shared();
    let mut proxy = Proxy::start(cluster);
    let site = Site::new(cluster, &proxy);
    let (mut writer, mut idle) = (site.client(), site.client());
    writer.query("BEGIN; INSERT INTO t VALUES (1)").ok();
    idle.query("SELECT 1").ok();
    let body = site.acquire_body(&uuid(), &fail_after(300));
    still_draining(&site.acquire(&body));
    let db = site.db.clone();
    assert_eq!(proxy.stop(), 0);
    for client in [&mut writer, &mut idle] {
        client.expect_error("57P01");
        assert!(client.closed_within(acceptance::PATIENCE));
    }
    proxy.restart();
    // Nothing was opened by that, and the same command goes on where it was.
    let site = Site::at(cluster, &proxy, &db);
    assert_eq!(code(&site.client().query("INSERT INTO t VALUES (2)")), "ZF001");
    site.acquire_at_last(&body);
    assert_eq!(site.rows(), "");
}

#[test]
fn supavisor_1164_half_a_frame_ends_its_own_session_and_no_other() {
    let site = Site::shared();
    let mut innocent = site.client();
    innocent.query("BEGIN; INSERT INTO t VALUES (1)").ok();
    let whole = query("INSERT INTO t VALUES (2)");
    for cut in [1, 3, 5, whole.len() - 1] {
        let mut broken = site.client();
        let pid = broken.backend_pid();
        broken.send_raw(&[query("SELECT 1"), whole[..cut].to_vec()].concat());
        broken.until_ready().ok();
        drop(broken);
        site.wait_sql(&format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}"), "0");
        site.client().query("SELECT 1").ok();
    }
    innocent.query("COMMIT").ok();
    assert_eq!(site.rows(), "1");
}

#[test]
fn supavisor_663_pgbouncer_264_and_1554_another_engine_at_the_same_address() {
    let start = |version, port, zone: &str| {
        let settings = vec![("timezone".to_owned(), format!("'{zone}'"))];
        let version = Some(version);
        PgCluster::start(Options { version, port, settings, ..Options::default() })
    };
    let mut old = start(15, None, "Asia/Tokyo");
    let proxy = Proxy::start(&old);
    let connect = || Wire::connect(proxy.port(), "wire", "postgres");
    let before = connect();
    assert!(before.parameters["server_version"].starts_with("15"), "{:?}", before.parameters);
    assert_eq!(before.parameters["TimeZone"], "Asia/Tokyo");
    old.stop();
    let new = start(18, Some(old.port()), "Africa/Lagos");
    // The first one already, without a second try.
    let mut after = connect();
    assert!(after.parameters["server_version"].starts_with("18"), "{:?}", after.parameters);
    assert_eq!(after.parameters["TimeZone"], "Africa/Lagos");
    assert!(after.parameters.contains_key("search_path"), "what only the new one tells");
    after.query("SELECT 1").ok();
    drop(new);
}

#[test]
fn odyssey_564_476_and_477_a_prepared_statement_keeps_its_rows_its_tag_and_its_name() {
    let site = Site::shared();
    let mut client = site.client();
    let texts = [("a", "SELECT 1 AS one"), ("b", "INSERT INTO t VALUES ($1)"), ("c", "TABLE t")];
    for (name, sql) in texts {
        client.send_raw(&[parse(name, sql), describe(b'S', name), sync()].concat());
        client.until_ready().ok();
    }
    for round in 1..=3 {
        for (name, values, tag, described) in [
            ("a", &[][..], "SELECT 1".to_owned(), b'T'),
            ("b", &[Some("7")], "INSERT 0 1".to_owned(), b'n'),
            ("c", &[], format!("SELECT {round}"), b'T'),
        ] {
            let parts = [bind("", name, values), describe(b'P', ""), execute("", 0), sync()];
            client.send_raw(&parts.concat());
            let answer = client.until_ready().ok();
            assert_eq!(answer.tags(), [tag], "{name}, round {round}");
            assert_eq!(answer.frames[1].0, described, "{name}, round {round}: {answer:?}");
        }
        client.query("SELECT 'between'").ok();
    }
}

#[test]
fn proxysql_6197_and_6202_one_name_in_two_sessions() {
    // A proxy of its own: while some database is fenced, a name nobody knows is refused.
    let proxy = Proxy::start(PgCluster::shared());
    let site = Site::new(PgCluster::shared(), &proxy);
    let (mut one, mut two) = (site.client(), site.client());
    for (client, sql) in [(&mut one, "SELECT 'one'"), (&mut two, "SELECT 'two'")] {
        client.send_raw(&[parse("s", sql), sync()].concat());
        client.until_ready().ok();
    }
    for (client, expected) in [(&mut two, "two"), (&mut one, "one")] {
        client.send_raw(&[bind("", "s", &[]), execute("", 0), sync()].concat());
        assert_eq!(client.until_ready().ok().cell(), expected);
    }
    drop(one);
    // Gone with its session, and free in the next.
    let mut next = site.client();
    next.send_raw(&[bind("", "s", &[]), execute("", 0), sync()].concat());
    assert_eq!(code(&next.until_ready()), "26000");
    next.send_raw(&[parse("s", "SELECT 'next'"), sync()].concat());
    next.until_ready().ok();
}

#[test]
fn pgt_proxy_6_and_pgdog_1453_a_login_bound_to_its_channel() {
    let cluster = PgCluster::shared();
    let proxy = |mode| {
        Proxy::start_with(ProxyOptions {
            engines: vec![Engine::tls("old", cluster, mode)],
            client_tls: "allow".into(),
            ..ProxyOptions::default()
        })
    };
    let (plain, both) = (proxy("disable"), proxy("require"));
    let psql = |proxy: &Proxy, client_tls, binding| {
        let target = Target { cluster, port: proxy.port(), client_tls, engine_tls: false };
        let mut psql = target.psql("postgres");
        psql.env("PGCHANNELBINDING", binding).args(["-At", "-c", "SELECT 1"]);
        psql
    };
    // The default of libpq, where the client's side alone is encrypted.
    assert_eq!(run(&mut psql(&plain, true, "prefer")), "1\n");
    assert_eq!(run(&mut psql(&both, false, "prefer")), "1\n");
    assert_eq!(run(&mut psql(&both, true, "disable")), "1\n");
    // A binding that ends at the proxy isn't one: the client that insists is told so, at once.
    for proxy in [&plain, &both] {
        let error = run_failing(&mut psql(proxy, true, "require"));
        assert!(error.contains("channel binding"), "{error}");
    }
    // Directly it works: this is about the proxy in between.
    let target = Target { cluster, port: cluster.port(), client_tls: true, engine_tls: true };
    let mut psql = target.psql("postgres");
    run(psql.env("PGCHANNELBINDING", "require").args(["-At", "-c", "SELECT 1"]));
}
