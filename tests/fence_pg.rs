//! Acceptance 1 to 9 of the fence contract on a real PostgreSQL, over the wire and the admin API.
//!
//! Each test is named by its number. 13, 19 and 21 are in `codes_pg.rs`; what goes around the proxy
//! or around the classifier is in `bypass_pg.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod support;

use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use acceptance::link::Link;
use acceptance::{
    Latch, PATIENCE, Site, applied, blockers, code, fail_after, force_after, metric, patient,
    refused, still_draining,
};
use serde_json::{Value, json};
use support::proxy::uuid;
use support::wire::{self, bind, describe, execute, fields, parse, query, sync};
use support::{Engine, PgCluster, Proxy, ProxyOptions, Wire, free_port, poll};

#[test]
fn acceptance_01_of_two_operations_at_once_one_owns_the_fence() {
    let site = Site::shared();
    let bodies = [uuid(), uuid()].map(|op| site.acquire_body(&op, &patient()));
    let answers = std::thread::scope(|scope| {
        let site = &site;
        let send = |body| scope.spawn(move || site.acquire(body));
        let running: Vec<_> = bodies.iter().map(send).collect();
        running.into_iter().map(|r| r.join().unwrap()).collect::<Vec<_>>()
    });
    let won = answers.iter().position(|a| a.0 == 200).expect("nobody won");
    let winner = applied(&answers[won]);
    assert_eq!(winner["fence"]["operation_id"], bodies[won]["operation_id"]);
    let lost = refused(&answers[1 - won], 409, "FENCE_OWNED_BY_ANOTHER_OPERATION");
    assert_eq!(lost["fence"]["operation_id"], bodies[won]["operation_id"], "{lost:#}");
    assert_eq!(lost["fence"]["namespace"], site.namespace());
    let receipts = site.proxy.admin("GET", &receipts_path(&site), &Value::Null).1;
    let receipts = receipts["receipts"].as_array().unwrap().clone();
    assert_eq!(receipts.len(), 1, "the loser left a receipt: {receipts:#?}");
}

fn receipts_path(site: &Site<'_>) -> String {
    format!("/v1/namespaces/{}/fence?receipts=all", site.namespace())
}

#[test]
fn acceptance_01_a_second_proxy_on_the_same_store_does_not_start() {
    let site = Site::shared();
    let (listen, admin) = (free_port(), free_port());
    let mut second = Command::new(env!("CARGO_BIN_EXE_fencewire"))
        .args(["serve", "--listen", &format!("postgres://127.0.0.1:{listen}")])
        .args(["--engine", &format!("old={}", site.cluster.control_url())])
        .arg("--state-dir")
        .arg(site.proxy.state_dir())
        .args(["--admin", &format!("127.0.0.1:{admin}")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ended = poll(PATIENCE, || second.try_wait().unwrap());
    if ended.is_none() {
        second.kill().unwrap();
    }
    let output = second.wait_with_output().unwrap();
    assert!(ended.is_some_and(|status| !status.success()), "the second proxy runs: {ended:?}");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("in use by another fencewire process"), "{said}");
    // The first one isn't disturbed.
    let operation = site.fence();
    site.unfence(&operation);
}

/// A cluster of its own where the WAL is decoded: making a slot waits for every writing transaction
/// of the whole server.
fn decoded() -> &'static (PgCluster, Proxy) {
    static DECODED: OnceLock<(PgCluster, Proxy)> = OnceLock::new();
    DECODED.get_or_init(|| {
        let cluster = PgCluster::start(support::Options::default());
        let proxy = Proxy::start(&cluster);
        (cluster, proxy)
    })
}

#[test]
fn acceptance_02_acquire_waits_for_the_open_writer_and_the_boundary_lies_behind_it() {
    let (cluster, proxy) = decoded();
    let site = Site::new(cluster, proxy);
    site.sql("SELECT pg_create_logical_replication_slot('seen', 'test_decoding')");
    let mut early = site.client();
    early.query("INSERT INTO t VALUES (1)").ok();
    let mut writer = site.client();
    assert_eq!(writer.query("BEGIN; INSERT INTO t VALUES (2)").ok().status, 'T');

    let body = site.acquire_body(&uuid(), &patient());
    let answer = std::thread::scope(|scope| {
        let acquire = scope.spawn(|| site.acquire(&body));
        let seen = site.wait_blocked_by(writer.backend_pid());
        let blocker = &blockers(&seen)[0];
        assert_eq!(blocker["user"], "wire", "{seen:#}");
        assert_eq!(seen["fence"]["admission"]["write"], "closed", "{seen:#}");
        assert_eq!(seen["fence"]["revision"], 1);
        // The writer goes on to its end (W14); nobody else begins.
        writer.query("INSERT INTO t VALUES (3)").ok();
        assert_eq!(code(&early.query("INSERT INTO t VALUES (4)")), "ZF001");
        site.stays_draining(3);
        assert!(!acquire.is_finished(), "acknowledged with a writer open");
        assert_eq!(writer.query("COMMIT").ok().tags(), ["COMMIT"]);
        acquire.join().unwrap()
    });
    let fence = &applied(&answer)["fence"];
    assert_eq!((&fence["state"], &fence["revision"]), (&json!("SOURCE_WRITE_FENCED"), &json!(2)));
    assert_eq!(fence["frozen_boundary"]["kind"], "lsn", "{fence:#}");

    for client in [&mut early, &mut writer] {
        assert_eq!(code(&client.query("INSERT INTO t VALUES (5)")), "ZF001");
        assert_eq!(code(&client.extended("INSERT INTO t VALUES (6)", &[])), "ZF001");
    }
    assert_eq!(site.rows(), "1,2,3");
    let boundary = fence["frozen_boundary"]["value"].as_str().unwrap();
    let sides = format!(
        "SELECT count(*) FILTER (WHERE data LIKE 'table public.t:%' AND lsn < '{boundary}'),
                count(*) FILTER (WHERE data LIKE 'table %' AND lsn >= '{boundary}'),
                count(*) FILTER (WHERE data LIKE 'COMMIT%' AND lsn > '{boundary}')
         FROM pg_logical_slot_peek_changes('seen', NULL, NULL)"
    );
    assert_eq!(site.sql(&sides), "3|0|0", "boundary {boundary}");
    site.sql("SELECT pg_drop_replication_slot('seen')");
}

#[test]
fn acceptance_03_every_kind_of_write_is_refused() {
    let site = Site::shared();
    site.setup("INSERT INTO t VALUES (1)");
    let mut client = site.client();
    client.send_raw(&[parse("ins", "INSERT INTO t VALUES ($1)"), sync()].concat());
    client.until_ready().ok();
    client.query("PREPARE sqlins AS INSERT INTO t VALUES (90)").ok();
    let mut reader = site.client();
    assert_eq!(reader.query("BEGIN; SELECT n FROM t").ok().status, 'T');
    let operation = site.fence();

    for (sql, expected) in [
        ("INSERT INTO t VALUES (10)", "ZF001"),
        ("UPDATE t SET n = 11", "ZF001"),
        ("DELETE FROM t", "ZF001"),
        ("WITH x AS (INSERT INTO t VALUES (12) RETURNING n) SELECT n FROM x", "ZF001"),
        ("SELECT n INTO made FROM t", "ZF001"),
        ("SELECT n FROM t FOR UPDATE", "ZF001"),
        ("EXPLAIN ANALYZE INSERT INTO t VALUES (13)", "ZF001"),
        ("COPY t FROM STDIN", "ZF001"),
        ("COPY (INSERT INTO t VALUES (14) RETURNING n) TO STDOUT", "ZF001"),
        ("SELECT 1; INSERT INTO t VALUES (15)", "ZF001"),
        ("INSERT INTO t VALUES (16); SELECT 1", "ZF001"),
        ("BEGIN; INSERT INTO t VALUES (17); COMMIT", "ZF001"),
        ("CREATE TABLE made (n int)", "ZF001"),
        ("CREATE TEMP TABLE made (n int)", "ZF001"),
        ("ALTER TABLE t ADD COLUMN m int", "ZF001"),
        ("CREATE INDEX CONCURRENTLY ON t (n)", "ZF001"),
        ("DROP TABLE t", "ZF001"),
        ("TRUNCATE t", "ZF001"),
        ("GRANT SELECT ON t TO public", "ZF001"),
        ("EXECUTE sqlins", "ZF001"),
        ("CREATE DATABASE made", "ZF007"),
        (&format!("DROP DATABASE {}", site.db), "ZF007"),
        ("DO $$ BEGIN INSERT INTO t VALUES (18); END $$", "ZF008"),
        ("a statement of no kind", "ZF008"),
    ] {
        let answer = client.query(sql);
        let seen = (code(&answer), answer.status, answer.rows().len());
        let expects = if expected == "ZF008" { ["ZF001", "ZF008"] } else { [expected; 2] };
        assert!(expects.contains(&seen.0.as_str()), "{sql}: {seen:?}");
        assert_eq!((seen.1, seen.2), ('I', 0), "{sql}: {answer:?}");
        assert!(!answer.frames.iter().any(|f| f.0 == b'G'), "{sql} was let into COPY");
    }

    // A transaction block, opened under the fence.
    assert_eq!(client.query("BEGIN").ok().status, 'T');
    let answer = client.query("INSERT INTO t VALUES (20)");
    assert_eq!((code(&answer).as_str(), answer.status), ("ZF001", 'E'));
    assert_eq!(code(&client.query("SELECT 1")), "25P02");
    assert_eq!(client.query("COMMIT").ok().tags(), ["ROLLBACK"]);

    // A pipelined batch, and a statement prepared before the fence.
    let batch = |n: &str| [parse("", "INSERT INTO t VALUES ($1)"), bind("", "", &[Some(n)])];
    let one = [batch("21").concat(), describe(b'P', ""), execute("", 0)].concat();
    client.send_raw(&[one.clone(), one, sync()].concat());
    let answer = client.until_ready();
    assert_eq!(code(&answer), "ZF001");
    assert_eq!((answer.status, answer.frames.len()), ('I', 2), "{answer:?}");
    client.send_raw(&[bind("", "ins", &[Some("22")]), execute("", 0), sync()].concat());
    assert_eq!(code(&client.until_ready()), "ZF001");

    // Read-to-write upgrade of a transaction from before the fence.
    let answer = reader.query("INSERT INTO t VALUES (23)");
    assert_eq!((code(&answer).as_str(), answer.status), ("ZF001", 'E'));
    reader.query("ROLLBACK").ok();

    assert_eq!(client.query("SELECT n FROM t").ok().cell(), "1", "reads go on");
    assert_eq!(site.rows(), "1");
    site.unfence(&operation);
    client.send_raw(&[bind("", "ins", &[Some("30")]), execute("", 0), sync()].concat());
    client.until_ready().ok();
    client.query("EXECUTE sqlins").ok();
    assert_eq!(site.rows(), "1,30,90");
}

#[test]
fn acceptance_04_a_batch_stopped_in_the_middle_keeps_its_reads_and_fails_the_write() {
    let site = Site::shared();
    let operation = site.fence();
    let mut client = site.client();
    let one = |sql: &str| [parse("", sql), bind("", "", &[]), execute("", 0)].concat();
    let batch = [one("SELECT 41"), one("INSERT INTO t VALUES (1)"), one("SELECT 43"), sync()];
    client.send_raw(&batch.concat());
    let answer = client.until_ready();
    let tags: String = answer.frames.iter().map(|f| f.0 as char).collect();
    assert_eq!(tags, "12DCEZ", "{answer:?}");
    assert_eq!((answer.cell().as_str(), code(&answer).as_str()), ("41", "ZF001"));
    assert_eq!(answer.status, 'I');
    client.query("SELECT 1").ok();

    // The same with Flush: the read's answer is there before the write is sent.
    client.send_raw(&[one("SELECT 44"), wire::flush()].concat());
    let read: Vec<u8> = (0..4).map(|_| client.read_frame().0).collect();
    assert_eq!(read, b"12DC");
    client.send_raw(&[one("INSERT INTO t VALUES (2)"), sync()].concat());
    assert_eq!(code(&client.until_ready()), "ZF001");
    assert_eq!(site.rows(), "");
    site.unfence(&operation);
}

/// A proxy whose first statement of a client stops at a point of the statement path, and the file
/// whose appearance lets it go on.
fn stopped_at(point: &str) -> (Proxy, std::path::PathBuf) {
    let proxy = Proxy::start_with(ProxyOptions {
        engines: vec![Engine::plain("old", PgCluster::shared())],
        ..ProxyOptions::default()
    });
    let file = proxy.state_dir().with_file_name("go-on");
    let mut proxy = proxy;
    proxy.kill9();
    proxy.set_env(&[("FENCEWIRE_FAULT", &format!("{point}=park:{}", file.display()))]);
    proxy.restart();
    (proxy, file)
}

fn wait_parked(file: &std::path::Path) {
    let parked = file.with_extension("parked");
    assert!(poll(PATIENCE, || parked.exists().then_some(())).is_some(), "nothing stopped there");
}

#[test]
fn acceptance_04_classified_before_the_fence_and_not_forwarded_is_refused() {
    let (proxy, go_on) = stopped_at("wire.before_admission");
    let site = Site::new(PgCluster::shared(), &proxy);
    let mut client = site.client();
    client.send_raw(&query("INSERT INTO t VALUES (1)"));
    wait_parked(&go_on);
    // The write gate was open when the statement was classified; it closes while it stands there.
    let operation = site.fence();
    std::fs::write(&go_on, "").unwrap();
    assert_eq!(code(&client.until_ready()), "ZF001");
    assert_eq!(site.rows(), "");
    site.unfence(&operation);
    client.query("INSERT INTO t VALUES (2)").ok();
}

#[test]
fn acceptance_04_control_arm_admitted_and_not_forwarded_is_waited_for() {
    let (proxy, go_on) = stopped_at("wire.after_admission");
    let site = Site::new(PgCluster::shared(), &proxy);
    let mut client = site.client();
    client.send_raw(&query("INSERT INTO t VALUES (1)"));
    wait_parked(&go_on);
    let body = site.acquire_body(&uuid(), &fail_after(300));
    still_draining(&site.acquire(&body));
    std::fs::write(&go_on, "").unwrap();
    client.until_ready().ok();
    applied(&site.acquire_at_last(&body));
    assert_eq!(site.rows(), "1");
}

#[test]
fn acceptance_04_what_was_forwarded_before_the_fence_is_waited_for_to_its_last_byte() {
    let site = Site::shared();
    let operation = uuid();
    // More than the proxy reads before it decides, so that the first part is on its way.
    let text = format!("INSERT INTO t VALUES (1) /* {} */", "x".repeat(3_000_000));
    let whole = query(&text);
    let (first, rest) = whole.split_at(2_000_000);
    let mut client = site.client();
    client.send_raw(first);
    let admitted = poll(PATIENCE, || {
        let seen = site.proxy.admin("GET", "/v1/sessions", &Value::Null).1;
        let sessions = seen["sessions"].as_array().cloned().unwrap_or_default();
        let own = sessions.iter().find(|s| s["engine_pid"] == client.backend_pid())?;
        (own["lease"]["class"] == "write").then_some(())
    });
    assert!(admitted.is_some(), "the first part was never admitted");
    let mut tail = site.client();
    let half = [parse("", "INSERT INTO t VALUES (2)"), bind("", "", &[]), wire::flush()];
    tail.send_raw(&half.concat());
    assert_eq!((tail.read_frame().0, tail.read_frame().0), (b'1', b'2'));

    let body = site.acquire_body(&operation, &patient());
    let answer = std::thread::scope(|scope| {
        let acquire = scope.spawn(|| site.acquire(&body));
        site.wait_blocked_by(client.backend_pid());
        site.wait_blocked_by(tail.backend_pid());
        client.send_raw(rest);
        client.until_ready().ok();
        site.wait("the first writer is released", |seen| blockers(seen).len() == 1);
        assert!(!acquire.is_finished(), "an unsynced tail was taken for ended");
        tail.send_raw(&[execute("", 0), sync()].concat());
        tail.until_ready().ok();
        acquire.join().unwrap()
    });
    applied(&answer);
    assert_eq!(site.rows(), "1,2");
}

#[test]
fn acceptance_05_an_older_transaction_is_stale_after_the_release_until_it_rolls_back() {
    let site = Site::shared();
    let mut old = site.client();
    let mut pipelined = site.client();
    for client in [&mut old, &mut pipelined] {
        assert_eq!(client.query("BEGIN; SELECT n FROM t").ok().status, 'T');
    }
    let operation = site.fence();
    assert_eq!(old.query("SELECT count(*) FROM t").ok().cell(), "0");
    site.unfence(&operation);

    let answer = old.query("INSERT INTO t VALUES (1)");
    let error = answer.error().unwrap();
    assert_eq!((error[&'C'].as_str(), answer.status), ("ZF002", 'E'));
    assert!(error[&'M'].starts_with("MIGRATION_WRITE_FENCED: "), "{error:?}");
    assert!(error[&'D'].contains("stale_transaction"), "{error:?}");
    let answer = pipelined.extended("INSERT INTO t VALUES (2)", &[]);
    assert_eq!((code(&answer).as_str(), answer.status), ("ZF002", 'E'));
    for client in [&mut old, &mut pipelined] {
        assert_eq!(client.query("ROLLBACK").ok().tags(), ["ROLLBACK"]);
        client.query("INSERT INTO t VALUES (3)").ok();
    }
    assert_eq!(site.rows(), "3,3");
}

#[test]
fn acceptance_06_a_passed_deadline_answers_draining_and_only_the_release_completes() {
    let site = Site::shared();
    let mut writer = site.client();
    writer.query("BEGIN; INSERT INTO t VALUES (1)").ok();
    for deadline in [0, 200] {
        let operation = uuid();
        let body = site.acquire_body(&operation, &fail_after(deadline));
        let answer = site.acquire(&body);
        let draining = still_draining(&answer);
        assert_eq!(draining["replayed"], false);
        assert_eq!(draining["fence"]["state"], "SOURCE_DRAINING");
        assert_eq!(draining["fence"]["admission"]["write"], "closed");
        assert_eq!(draining["receipt"]["outcome"], "DRAINING");
        let pid = writer.backend_pid();
        assert!(blockers(draining).iter().any(|b| b["engine_pid"] == pid), "{draining:#}");
        let revision = draining["fence"]["revision"].as_u64().unwrap();

        let again = site.acquire(&body);
        assert_eq!(still_draining(&again)["replayed"], true, "{again:?}");
        assert_eq!(again.1["fence"]["revision"], revision);
        let mut other = site.client();
        assert_eq!(code(&other.query("INSERT INTO t VALUES (2)")), "ZF001");
        if deadline == 0 {
            site.unfence(&operation);
            // What it held back is history now: its replay restarts nothing.
            let history = site.acquire(&body);
            assert_eq!(still_draining(&history)["replayed"], true);
            assert_eq!(history.1["fence"]["state"], "RELEASED");
            continue;
        }
        writer.query("COMMIT").ok();
        // Nothing is advanced by itself: the replay completes.
        assert_eq!(site.state(), "SOURCE_DRAINING");
        let completed = site.acquire_at_last(&body);
        assert_eq!(completed.1["replayed"], true);
        assert_eq!(completed.1["fence"]["revision"], revision + 1);
        assert_eq!(completed.1["receipt"]["outcome"], "APPLIED");
    }
    assert_eq!(site.rows(), "1");
}

const FORCED: &str = "fencewire_fence_forced_total{kind=\"rollback\"}";
const TERMINATED: &str = "fencewire_fence_forced_total{kind=\"backend_termination\"}";

#[test]
fn acceptance_07_an_idle_transaction_is_rolled_back_by_force() {
    let site = Site::shared();
    let before = metric(site.proxy, FORCED);
    let mut idle = site.client();
    idle.query("BEGIN; INSERT INTO t VALUES (1)").ok();
    let answer = site.acquire(&site.acquire_body(&uuid(), &force_after(100)));
    let forced = &applied(&answer)["fence"]["evidence"]["forced"];
    assert!(forced.to_string().contains("rollback"), "{forced:#}");
    assert!(metric(site.proxy, FORCED) > before, "not counted");
    let answer = idle.query("COMMIT");
    let error = answer.error().unwrap();
    assert_eq!((error[&'C'].as_str(), answer.status), ("ZF009", 'I'));
    assert!(error[&'M'].starts_with("TRANSACTION_ROLLED_BACK_BY_FENCE: "), "{error:?}");
    idle.query("SELECT 1").ok();
    assert_eq!(site.rows(), "");
}

#[test]
fn acceptance_07_a_running_statement_is_cancelled_and_its_client_told() {
    let site = Site::shared();
    let latch = Latch::shut(&site);
    let insert = format!("INSERT INTO t SELECT 1 FROM {}", Latch::WAIT);
    let mut alone = site.client();
    alone.send_raw(&query(&insert));
    let mut block = site.client();
    block.query("BEGIN; INSERT INTO t VALUES (2)").ok();
    block.send_raw(&query(&insert));
    // A read of before the fence has no guard: it may be a function that writes.
    let mut reader = site.client();
    reader.send_raw(&query(&format!("SELECT count(*) FROM t, {}", Latch::WAIT)));
    for waiting in [&alone, &block, &reader] {
        site.wait_at_latch(waiting.backend_pid());
    }

    let answer = site.acquire(&site.acquire_body(&uuid(), &force_after(100)));
    applied(&answer);
    alone.expect_error("ZF009");
    assert_eq!(alone.until_ready().status, 'I');
    block.expect_error("ZF009");
    assert_eq!(block.until_ready().status, 'E');
    reader.expect_error("ZF009");
    assert_eq!(reader.until_ready().status, 'I');
    reader.query("SELECT count(*) FROM t").ok();
    let answer = block.query("COMMIT");
    let tags = answer.tags();
    assert!(!tags.contains(&"COMMIT".to_owned()), "{answer:?}");
    assert_eq!(answer.status, 'I');
    latch.open();
    assert_eq!(site.rows(), "");
}

#[test]
fn acceptance_07_a_client_that_stops_reading_is_terminated_and_then_only_acknowledged() {
    let site = Site::shared();
    let before = metric(site.proxy, TERMINATED);
    let mut deaf = site.client();
    deaf.query("BEGIN; INSERT INTO t VALUES (1)").ok();
    let pid = deaf.backend_pid();
    deaf.send_raw(&query("SELECT repeat('x', 1000000) FROM generate_series(1, 500)"));
    let stuck = format!("SELECT wait_event FROM pg_stat_activity WHERE pid = {pid}");
    site.wait_sql(&stuck, "ClientWrite");
    let answer = site.acquire(&site.acquire_body(&uuid(), &force_after(100)));
    let body = applied(&answer);
    assert!(metric(site.proxy, TERMINATED) > before, "not counted");
    let evidence = &body["fence"]["evidence"];
    assert!(evidence["forced"].to_string().contains("backend_termination"), "{evidence:#}");
    let gone = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
    assert_eq!(site.sql(&gone), "0", "acknowledged before the backend was gone");
    assert_eq!(site.rows(), "");
    // What the client gets is an error or a close, never an end that looks complete.
    loop {
        match deaf.try_read_frame(PATIENCE) {
            Ok(Some((b'E', body))) => {
                let error = fields(&body);
                assert!(["ZF009", "57P01"].contains(&error[&'C'].as_str()), "{error:?}");
            }
            Ok(Some((tag, _))) => assert!(!b"CZ".contains(&tag), "the answer looks complete"),
            Ok(None) => panic!("neither an error nor a close"),
            Err(_) => break,
        }
    }
}

#[test]
fn acceptance_08_a_prepared_transaction_keeps_the_drain_until_it_is_resolved() {
    let site = Site::shared();
    let gid = format!("gid-{}", site.db);
    let mut client = site.client();
    client.query("BEGIN; INSERT INTO t VALUES (1)").ok();
    client.query(&format!("PREPARE TRANSACTION '{gid}'")).ok();
    let operation = uuid();
    for policy in [fail_after(300), force_after(0)] {
        let body = site.acquire_body(&operation, &policy);
        let answer = if policy["on_deadline"] == "fail" {
            site.acquire(&body)
        } else {
            // Force touches nobody else's transaction; it only shortens the wait for its own.
            let answer = std::thread::scope(|scope| {
                let acquire = scope.spawn(|| site.acquire(&body));
                site.wait("the prepared transaction is named", |seen| {
                    blockers(seen).iter().any(|b| b.to_string().contains(&gid))
                });
                for end in ["COMMIT", "ROLLBACK"] {
                    let refused = client.query(&format!("{end} PREPARED '{gid}'"));
                    assert_eq!(code(&refused), "ZF001", "{end} PREPARED under the fence");
                }
                assert_eq!(site.rows(), "");
                site.stays_draining(2);
                assert!(!acquire.is_finished());
                site.sql(&format!("COMMIT PREPARED '{gid}'"));
                acquire.join().unwrap()
            });
            applied(&answer);
            continue;
        };
        let body = still_draining(&answer);
        assert!(blockers(body).iter().any(|b| b.to_string().contains(&gid)), "{body:#}");
    }
    assert_eq!(site.rows(), "1");
    let refused = client.query("BEGIN; PREPARE TRANSACTION 'never'");
    assert_eq!(code(&refused), "ZF001");
}

#[test]
fn acceptance_09_a_commit_whose_answer_is_lost_is_not_a_release() {
    let cluster = PgCluster::shared();
    let link = Link::to(cluster.port());
    let url = format!("postgres://fencewire:fencewire@127.0.0.1:{}/postgres", link.port());
    let engine = Engine { url, ..Engine::plain("old", cluster) };
    let options = ProxyOptions { engines: vec![engine], ..ProxyOptions::default() };
    let proxy = Proxy::start_with(options);
    let site = Site::new(cluster, &proxy);
    let mut client = site.client();
    client.query("BEGIN; INSERT INTO t VALUES (1)").ok();
    let pid = client.backend_pid();

    link.mute("user\0wire");
    client.send_raw(&query("COMMIT"));
    site.wait_sql("SELECT count(*) FROM t", "1");
    link.cut_proxy("user\0wire");
    let error = client.expect_error("08007");
    assert_eq!(error[&'S'], "FATAL");
    assert!(client.closed_within(PATIENCE));

    // Committed, but nobody told the proxy: its backend, alive, keeps the fence from being proven.
    let body = site.acquire_body(&uuid(), &patient());
    let answer = std::thread::scope(|scope| {
        let acquire = scope.spawn(|| site.acquire(&body));
        let seen = site.wait_blocked_by(pid);
        assert_eq!(blockers(&seen)[0]["class"], "orphan", "{seen:#}");
        site.stays_draining(3);
        assert!(!acquire.is_finished());
        link.cut_engine("user\0wire");
        acquire.join().unwrap()
    });
    let releases = &applied(&answer)["fence"]["evidence"]["releases"];
    assert_eq!(releases["by_engine"], 1, "{releases:#}");
    assert_eq!(site.rows(), "1");
}

/// Its transaction is rolled back in front of its goodbye: the engine's answer releases the lease,
/// and nobody has to ask whether the backend is gone.
#[test]
fn a_client_that_leaves_a_transaction_that_is_waited_for_is_released_by_answer() {
    let site = Site::shared();
    let leaves: [fn(Wire); 2] = [Wire::terminate, drop];
    for leaves in leaves {
        let mut client = site.client();
        client.query("BEGIN; INSERT INTO t VALUES (1)").ok();
        let pid = client.backend_pid();
        let operation = uuid();
        let body = site.acquire_body(&operation, &patient());
        let answer = std::thread::scope(|scope| {
            let acquire = scope.spawn(|| site.acquire(&body));
            site.wait_blocked_by(pid);
            leaves(client);
            acquire.join().unwrap()
        });
        let releases = &applied(&answer)["fence"]["evidence"]["releases"];
        let counts = [&releases["by_answer"], &releases["by_engine"]].map(Value::as_u64);
        assert_eq!(counts, [Some(1), Some(0)], "{releases:#}");
        assert_eq!(site.rows(), "");
        site.unfence(&operation);
    }
}

#[test]
fn acceptance_09_a_backend_that_dies_in_its_commit_is_waited_for_and_says_so() {
    let site = Site::shared();
    site.setup(&format!(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
             $f$ BEGIN PERFORM {wait}; RETURN NULL; END $f$;
         CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION slow()",
        wait = Latch::WAIT
    ));
    let latch = Latch::shut(&site);
    let mut client = site.client();
    client.query("BEGIN; INSERT INTO t VALUES (1)").ok();
    client.send_raw(&query("COMMIT"));
    site.wait_at_latch(client.backend_pid());
    let body = site.acquire_body(&uuid(), &patient());
    let answer = std::thread::scope(|scope| {
        let acquire = scope.spawn(|| site.acquire(&body));
        site.wait_blocked_by(client.backend_pid());
        site.stays_draining(3);
        site.sql(&format!("SELECT pg_terminate_backend({})", client.backend_pid()));
        acquire.join().unwrap()
    });
    applied(&answer);
    // The engine said itself that it didn't commit: its own words pass.
    let error = client.expect_error("57P01");
    assert_eq!(error[&'S'], "FATAL");
    assert!(client.closed_within(Duration::from_secs(30)));
    latch.open();
    assert_eq!(site.rows(), "");
}
