//! Acceptance 14 and 15 of the fence contract on a real PostgreSQL: the read fence.
//!
//! What reads holds a lease and is waited for; at the deadline it is cancelled, and its client sees
//! the fence's code; what was cut never looks complete; idle transactions hold nothing and are
//! refused at their next statement. With three control arms (acceptance 25). The restarts are in
//! `crash_pg.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod support;

use std::io::Read as _;
use std::process::Stdio;

use acceptance::link::Link;
use acceptance::sweep::Park;
use acceptance::{
    Latch, PATIENCE, Site, applied, blockers, code, fail_after, metric, patient, refused,
    shared_proxy, still_draining,
};
use serde_json::{Value, json};
use support::tools::{Target, run, run_failing};
use support::wire::{self, bind, close, describe, execute, fields, parse, query, sync};
use support::{Engine, PgCluster, Proxy, ProxyOptions, Wire};

/// A site whose writes are fenced; with the operation.
fn fenced() -> (Site<'static>, String) {
    let site = Site::shared();
    site.setup("INSERT INTO t VALUES (1), (2), (3)");
    let operation = site.fence();
    (site, operation)
}

/// Raises the read fence from aside while `meanwhile` runs; answers the command's answer.
fn raise(
    site: &Site<'_>,
    operation: &str,
    policy: &Value,
    meanwhile: impl FnOnce(),
) -> (u16, Value) {
    let body = site.reads_body(operation, policy);
    std::thread::scope(|scope| {
        let set = scope.spawn(|| site.set_read(&body));
        meanwhile();
        set.join().unwrap()
    })
}

fn evidence(answer: &(u16, Value)) -> &Value {
    let body = applied(answer);
    assert_eq!(body["fence"]["state"], "SOURCE_READ_FENCED", "{body:#}");
    &body["fence"]["read_evidence"]
}

/// Reads to the end of the connection or the next ReadyForQuery: nothing on the way may say that
/// the answer is complete. Answers the SQLSTATE of the error, if one came.
fn never_complete(client: &mut Wire) -> Option<String> {
    let mut seen = None;
    loop {
        match client.try_read_frame(PATIENCE) {
            Ok(Some((b'E', body))) => seen = fields(&body).remove(&'C'),
            Ok(Some((b'Z', _))) | Err(_) => return seen,
            Ok(Some((tag, _))) => assert!(!b"Cc".contains(&tag), "a cut answer looks complete"),
            Ok(None) => panic!("neither an error nor a close"),
        }
    }
}

fn gone(pid: u32) -> String {
    format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}")
}

fn forced(kind: &str) -> u64 {
    metric(shared_proxy(), &format!("fencewire_fence_forced_total{{kind=\"{kind}\"}}"))
}

const SLEEP: &str = "SELECT pg_sleep(600)";

/// Waits until a backend of the site sleeps.
fn wait_asleep(site: &Site<'_>, pid: u32) {
    let sql = format!("SELECT wait_event FROM pg_stat_activity WHERE pid = {pid}");
    site.wait_sql(&sql, "PgSleep");
}

#[test]
fn acceptance_14_a_running_query_is_waited_for_and_new_reads_are_refused() {
    let (site, operation) = fenced();
    let latch = Latch::shut(&site);
    let mut running = site.client();
    running.send_raw(&query(&format!("SELECT n FROM t, {}", Latch::WAIT)));
    site.wait_at_latch(running.backend_pid());
    let mut other = site.client();
    other.send_raw(&[parse("named", "SELECT n FROM t"), sync()].concat());
    other.until_ready().ok();

    let answer = raise(&site, &operation, &patient(), || {
        let seen = site.wait_read_by(running.backend_pid(), "reader");
        assert_eq!(seen["drain"]["read_leases"]["sql"], 1, "{seen:#}");
        assert_eq!(seen["fence"]["admission"]["read"], "closed", "{seen:#}");
        for sql in [
            "SELECT n FROM t",
            "SELECT 1",
            "COPY t TO STDOUT",
            "TABLE t",
            "EXPLAIN SELECT n FROM t",
            "BEGIN",
            "SHOW work_mem",
            "SET work_mem = '8MB'",
            "DECLARE c CURSOR WITH HOLD FOR SELECT n FROM t",
            "FETCH ALL FROM c",
            "SELECT 1; SELECT 2",
            "LISTEN x",
        ] {
            let answer = other.query(sql);
            assert_eq!((code(&answer).as_str(), answer.status), ("ZF003", 'I'), "{sql}");
            assert!(answer.rows().is_empty(), "{sql}");
        }
        for write in ["INSERT INTO t VALUES (9)", "CREATE TABLE made (n int)"] {
            assert_eq!(code(&other.query(write)), "ZF001", "{write}");
        }
        let bound = [bind("", "named", &[]), describe(b'P', ""), execute("", 0), sync()];
        for bytes in [bound.concat(), [describe(b'S', "named"), sync()].concat()] {
            other.send_raw(&bytes);
            assert_eq!(code(&other.until_ready()), "ZF003");
        }
        other.send_raw(&[close(b'S', "named"), sync()].concat());
        assert_eq!(code(&other.until_ready()), "ZF003");
        latch.open();
    });
    let releases = &evidence(&answer)["releases"];
    assert_eq!(releases, &json!({ "by_answer": 1, "by_engine": 0 }), "{answer:?}");
    assert_eq!(evidence(&answer)["forced"], json!([]));
    assert_eq!(running.until_ready().ok().rows().len(), 3, "it ended by itself, whole");
    assert_eq!(code(&running.query("SELECT 1")), "ZF003");
    site.unfence_reads(&operation);
    assert_eq!(running.query("SELECT count(*) FROM t").ok().cell(), "3");
    assert_eq!(code(&running.query("INSERT INTO t VALUES (9)")), "ZF001", "writes stay closed");
    site.unfence(&operation);
}

#[test]
fn acceptance_14_at_the_deadline_a_query_is_cancelled_and_its_client_sees_the_fences_code() {
    let (site, operation) = fenced();
    let before = forced("sql_cancel");
    let mut alone = site.client();
    alone.send_raw(&query(SLEEP));
    let mut pipelined = site.client();
    pipelined.send_raw(&[parse("", SLEEP), bind("", "", &[]), execute("", 0), sync()].concat());
    let mut block = site.client();
    block.query("BEGIN; SELECT n FROM t").ok();
    block.send_raw(&query(SLEEP));
    for client in [&alone, &pipelined, &block] {
        wait_asleep(&site, client.backend_pid());
    }
    let answer = raise(&site, &operation, &fail_after(100), || ());
    assert_eq!(evidence(&answer)["releases"]["by_answer"], 3, "{answer:?}");
    let said = evidence(&answer)["forced"].to_string();
    assert_eq!(said.matches("sql_cancel").count(), 3, "{said}");
    assert!(forced("sql_cancel") >= before + 3, "not counted");
    for (client, status) in [(&mut alone, 'I'), (&mut pipelined, 'I'), (&mut block, 'E')] {
        let answer = client.until_ready();
        assert_eq!((code(&answer).as_str(), answer.status), ("ZF003", status));
    }
    assert_eq!(block.query("ROLLBACK").ok().tags(), ["ROLLBACK"]);
    site.unfence_reads(&operation);
    for client in [&mut alone, &mut pipelined, &mut block] {
        assert_eq!(client.query("SELECT count(*) FROM t").ok().cell(), "3");
    }
    site.unfence(&operation);
}

#[test]
fn acceptance_14_an_open_cursor_is_waited_for_until_its_transaction_ends() {
    let (site, operation) = fenced();
    let mut client = site.client();
    client.query("BEGIN; DECLARE c CURSOR FOR SELECT n FROM t").ok();
    client.query("FETCH 1 FROM c").ok();
    let answer = raise(&site, &operation, &patient(), || {
        site.wait_read_by(client.backend_pid(), "cursor");
        assert_eq!(client.query("COMMIT").ok().tags(), ["COMMIT"]);
    });
    assert_eq!(evidence(&answer)["forced"], json!([]));
    assert_eq!(evidence(&answer)["releases"]["by_answer"], 1);
    site.unfence_reads(&operation);
    site.unfence(&operation);
}

#[test]
fn acceptance_14_at_the_deadline_an_open_cursors_transaction_is_rolled_back_and_its_client_told() {
    let (site, operation) = fenced();
    let declare = "BEGIN; DECLARE c CURSOR FOR SELECT n FROM t; FETCH 1 FROM c";
    let endings = [
        ("FETCH 1 FROM c", "ZF003", 'E'),
        ("COMMIT", "ZF003", 'I'),
        ("ROLLBACK", "", 'I'),
        ("SAVEPOINT s", "ZF003", 'E'),
    ];
    let mut clients: Vec<Wire> = endings.iter().map(|_| site.client()).collect();
    for client in &mut clients {
        assert_eq!(client.query(declare).ok().status, 'T');
    }
    let mut later = site.client();
    later.query(declare).ok();
    let answer = raise(&site, &operation, &fail_after(100), || ());
    assert_eq!(evidence(&answer)["releases"]["by_answer"], 5, "{answer:?}");
    let snapshots = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND usename = 'wire' \
         AND (xact_start IS NOT NULL OR backend_xmin IS NOT NULL)",
        site.db
    );
    assert_eq!(site.sql(&snapshots), "0", "acknowledged with a transaction open");
    for (client, (sql, expected, status)) in clients.iter_mut().zip(endings) {
        let answer = client.query(sql);
        assert_eq!((code(&answer).as_str(), answer.status), (expected, status), "{sql}");
        if status == 'E' {
            assert_eq!(code(&client.query("SELECT 1")), "ZF003", "{sql}");
            assert_eq!(client.query("ROLLBACK").ok().tags(), ["ROLLBACK"], "{sql}");
        }
        let answer = client.query("SELECT 1");
        assert_eq!((code(&answer).as_str(), answer.status), ("ZF003", 'I'), "{sql}");
    }
    site.unfence_reads(&operation);
    // Told also when reads are open again: what it had is gone.
    let answer = later.query("FETCH 1 FROM c");
    assert_eq!((code(&answer).as_str(), answer.status), ("ZF003", 'E'));
    later.query("ROLLBACK").ok();
    clients.push(later);
    for client in &mut clients {
        assert_eq!(client.query("SELECT count(*) FROM t").ok().cell(), "3");
    }
    site.unfence(&operation);
}

#[test]
fn acceptance_14_a_suspended_portal_is_an_open_cursor() {
    let (site, operation) = fenced();
    let mut client = site.client();
    client.query("BEGIN").ok();
    let first = [parse("", "SELECT n FROM t"), bind("p", "", &[]), execute("p", 1), sync()];
    client.send_raw(&first.concat());
    let answer = client.until_ready().ok();
    assert!(answer.frames.iter().any(|frame| frame.0 == b's'), "{answer:?}");
    let answer = raise(&site, &operation, &fail_after(2_000), || {
        site.wait_read_by(client.backend_pid(), "cursor");
    });
    assert_eq!(evidence(&answer)["forced"].as_array().unwrap().len(), 1, "{answer:?}");
    client.send_raw(&[execute("p", 1), sync()].concat());
    let answer = client.until_ready();
    assert_eq!((code(&answer).as_str(), answer.status), ("ZF003", 'E'));
    client.query("ROLLBACK").ok();
    site.unfence_reads(&operation);
    // Without a transaction the portal ends with its pipeline, and nothing is held.
    client.send_raw(&first.concat());
    assert_eq!(client.until_ready().ok().status, 'I');
    site.fence_reads(&operation);
    site.unfence_reads(&operation);
    site.unfence(&operation);
}

#[test]
fn acceptance_14_a_running_fetch_is_cancelled() {
    let (site, operation) = fenced();
    let mut client = site.client();
    client.query("BEGIN; DECLARE c CURSOR FOR SELECT pg_sleep(600) FROM t").ok();
    client.send_raw(&query("FETCH ALL FROM c"));
    wait_asleep(&site, client.backend_pid());
    evidence(&raise(&site, &operation, &fail_after(100), || ()));
    let answer = client.until_ready();
    assert_eq!((code(&answer).as_str(), answer.status), ("ZF003", 'E'));
    assert_eq!(code(&client.query("COMMIT")), "", "a failed transaction ends as ever");
    site.unfence_reads(&operation);
    client.query("SELECT 1").ok();
    site.unfence(&operation);
}

/// More than all buffers on the way hold.
const LARGE: &str = "SELECT repeat('x', 1000000) FROM generate_series(1, 500)";

#[test]
fn acceptance_14_a_copy_that_its_client_reads_is_cut_and_does_not_look_complete() {
    let (site, operation) = fenced();
    let mut client = site.client();
    // Each row is longer than what the engine keeps back before it sends.
    let rows = "SELECT repeat('x', 20000), pg_sleep(n) FROM generate_series(0, 600) n";
    client.send_raw(&query(&format!("COPY ({rows}) TO STDOUT")));
    while client.read_frame().0 != b'd' {}
    evidence(&raise(&site, &operation, &fail_after(100), || ()));
    assert_eq!(never_complete(&mut client).as_deref(), Some("ZF003"));
    site.unfence_reads(&operation);
    client.query("SELECT 1").ok();
    site.unfence(&operation);
}

#[test]
fn acceptance_14_readers_whose_clients_stopped_reading_are_released_and_do_not_look_complete() {
    let (site, operation) = fenced();
    let mut clients = [site.client(), site.client(), site.client()];
    clients[0].send_raw(&query(&format!("COPY ({LARGE}) TO STDOUT")));
    clients[1].send_raw(&query(LARGE));
    clients[2].query("BEGIN").ok();
    clients[2].send_raw(&[parse("", LARGE), bind("", "", &[]), execute("", 0), sync()].concat());
    for client in &clients {
        let pid = client.backend_pid();
        let stuck = format!("SELECT wait_event FROM pg_stat_activity WHERE pid = {pid}");
        site.wait_sql(&stuck, "ClientWrite");
    }
    let answer = raise(&site, &operation, &fail_after(100), || ());
    assert_eq!(evidence(&answer)["releases"]["by_engine"], 3, "{answer:?}");
    assert!(evidence(&answer)["forced"].to_string().contains("backend_termination"));
    for client in &mut clients {
        assert_eq!(site.sql(&gone(client.backend_pid())), "0", "acknowledged before it was gone");
        let seen = never_complete(client);
        let known = [None, Some("ZF003".to_owned()), Some("57P01".to_owned())];
        assert!(known.contains(&seen), "{seen:?}");
        // Nor is anything of the proxy's own read as the rest of a row.
        const HEADS: usize = 11;
        let row = client.unfinished().iter().skip(HEADS).all(|byte| *byte == b'x');
        assert!(row, "{:?}", String::from_utf8_lossy(client.unfinished()));
    }
    site.unfence_reads(&operation);
    site.unfence(&operation);
}

#[test]
fn acceptance_14_a_dump_that_is_cut_says_so_and_a_new_one_is_refused() {
    let site = Site::shared();
    site.setup("CREATE TABLE large AS SELECT repeat('x', 1000000) x FROM generate_series(1, 100)");
    site.setup("GRANT SELECT ON large TO public");
    let operation = site.fence();
    let (cluster, port) = (site.cluster, site.proxy.port());
    let target = Target { cluster, port, client_tls: false, engine_tls: false };
    let whole = run(target.tool("pg_dump", &site.db).arg("--no-sync"));
    assert!(whole.contains("PostgreSQL database dump complete"), "control arm");
    let before = forced("dump_cancel");
    // Nobody reads what it writes, until it is over.
    let mut dump = target
        .tool("pg_dump", &site.db)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stuck = format!(
        "SELECT wait_event FROM pg_stat_activity WHERE datname = '{}' \
         AND application_name = 'pg_dump'",
        site.db
    );
    site.wait_sql(&stuck, "ClientWrite");
    let answer = raise(&site, &operation, &fail_after(2_000), || {
        let seen = site.wait("the dump is named", |seen| {
            blockers(seen).iter().any(|one| one["class"] == "dump")
        });
        assert_eq!(seen["drain"]["read_leases"]["dump"], 1, "{seen:#}");
        let error = run_failing(target.tool("pg_dump", &site.db).arg("--no-sync"));
        assert!(error.contains("MIGRATION_READ_FENCED"), "{error}");
    });
    assert!(evidence(&answer)["forced"].to_string().contains("dump_cancel"), "{answer:?}");
    assert!(forced("dump_cancel") > before, "not counted");
    let (mut text, mut said) = (String::new(), String::new());
    dump.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    dump.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!dump.wait().unwrap().success(), "a cut dump succeeded");
    assert!(!text.contains("dump complete"), "a cut dump looks complete");
    assert!(!said.is_empty());
    site.unfence_reads(&operation);
    site.unfence(&operation);
}

#[test]
fn acceptance_14_a_dump_holds_its_lease_between_its_statements() {
    let (site, operation) = fenced();
    let name = [("application_name", "pg_dump")];
    let mut dump = Wire::try_connect(site.proxy.port(), "wire", &site.db, &name).unwrap();
    dump.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT n FROM t").ok();
    let answer = raise(&site, &operation, &fail_after(2_000), || {
        site.wait_read_by(dump.backend_pid(), "dump");
    });
    assert!(evidence(&answer)["forced"].to_string().contains("dump_cancel"), "{answer:?}");
    let answer = dump.query("COPY t TO STDOUT");
    assert_eq!((code(&answer).as_str(), answer.status), ("ZF003", 'E'));
    dump.query("ROLLBACK").ok();
    site.unfence_reads(&operation);
    dump.query("COPY t TO STDOUT").ok();
    site.unfence(&operation);
}

#[test]
fn acceptance_14_a_replicas_stream_is_ended_at_once_and_a_new_one_is_refused() {
    let (site, operation) = fenced();
    site.sql("ALTER ROLE wire REPLICATION");
    let slot = format!("reads_{}", site.db);
    let make = format!("SELECT pg_create_logical_replication_slot('{slot}', 'test_decoding')");
    site.sql(&make);
    let replica = [("replication", "database")];
    let mut stream = Wire::try_connect(site.proxy.port(), "wire", &site.db, &replica).unwrap();
    let start = format!("START_REPLICATION SLOT {slot} LOGICAL 0/0");
    stream.send_raw(&query(&start));
    while stream.read_frame().0 != b'W' {}
    let before = forced("stream_termination");
    // Long before the deadline.
    let answer = raise(&site, &operation, &patient(), || {
        assert_eq!(never_complete(&mut stream).as_deref(), Some("ZF003"));
    });
    assert!(evidence(&answer)["forced"].to_string().contains("stream_termination"), "{answer:?}");
    assert!(forced("stream_termination") > before, "not counted");
    for sql in [start.as_str(), "IDENTIFY_SYSTEM", "SELECT 1"] {
        assert_eq!(code(&stream.query(sql)), "ZF003", "{sql}");
    }
    site.unfence_reads(&operation);
    stream.send_raw(&query(&start));
    while stream.read_frame().0 != b'W' {}
    drop(stream);
    let drop_it = format!(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots \
         WHERE slot_name = '{slot}' AND NOT active"
    );
    let left = format!("SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{slot}'");
    let dropped = support::poll(PATIENCE, || {
        site.sql(&drop_it);
        (site.sql(&left) == "0").then_some(())
    });
    assert!(dropped.is_some(), "the slot stays in use");
    site.unfence(&operation);
}

#[test]
fn acceptance_15_an_idle_transaction_holds_nothing_and_is_refused_and_rolled_back() {
    let (site, operation) = fenced();
    let mut idle = [site.client(), site.client(), site.client()];
    for client in &mut idle {
        assert_eq!(client.query("BEGIN; SELECT n FROM t").ok().status, 'T');
    }
    // Applied with the transactions open: they aren't waited for, and nothing is forced on them.
    let body = site.reads_body(&operation, &patient());
    let answer = site.set_read(&body);
    assert_eq!(evidence(&answer)["releases"], json!({ "by_answer": 0, "by_engine": 0 }));
    assert_eq!(evidence(&answer)["forced"], json!([]));
    let [simple, extended, ends] = &mut idle;
    let answer = simple.query("SELECT n FROM t");
    assert_eq!((code(&answer).as_str(), answer.status), ("ZF003", 'E'));
    let answer = extended.extended("SELECT n FROM t", &[]);
    assert_eq!((code(&answer).as_str(), answer.status), ("ZF003", 'E'));
    for client in [&*simple, &*extended] {
        // The engine has rolled back: nothing of the transaction is left but its name.
        let locks = format!(
            "SELECT count(*) FROM pg_locks WHERE pid = {} AND locktype = 'relation'",
            client.backend_pid()
        );
        assert_eq!(site.sql(&locks), "0");
    }
    assert_eq!(ends.query("COMMIT").ok().tags(), ["COMMIT"], "its end is never refused");
    for client in [&mut *simple, &mut *extended] {
        assert_eq!(code(&client.query("SELECT 1")), "ZF003");
        assert_eq!(client.query("ROLLBACK").ok().tags(), ["ROLLBACK"]);
    }
    for client in &mut idle {
        let answer = client.query("BEGIN");
        assert_eq!((code(&answer).as_str(), answer.status), ("ZF003", 'I'));
    }
    site.unfence_reads(&operation);
    for client in &mut idle {
        assert_eq!(client.query("SELECT count(*) FROM t").ok().cell(), "3");
        assert_eq!(client.query("BEGIN; SELECT 1; COMMIT").ok().status, 'I');
    }
    site.unfence(&operation);
    idle[0].query("INSERT INTO t VALUES (4)").ok();
    assert_eq!(site.rows(), "1,2,3,4");
}

#[test]
fn acceptance_15_a_refusal_in_an_idle_transaction_says_who_and_what_to_do() {
    let (site, operation) = fenced();
    let mut client = site.client();
    client.query("BEGIN; SELECT n FROM t").ok();
    site.fence_reads(&operation);
    let error = client.query("SELECT n FROM t").error().unwrap();
    assert!(error[&'M'].starts_with("MIGRATION_READ_FENCED: "), "{error:?}");
    for part in [site.namespace().as_str(), "SOURCE_READ_FENCED", &operation] {
        assert!(error[&'D'].contains(part), "{part:?} is not in {:?}", error[&'D']);
    }
    assert!(!error[&'H'].is_empty());
    site.unfence_reads(&operation);
    site.unfence(&operation);
}

#[test]
fn a_read_fence_that_is_cleared_while_it_drains_is_history() {
    let (site, operation) = fenced();
    let latch = Latch::shut(&site);
    let mut running = site.client();
    running.send_raw(&query(&format!("SELECT n FROM t, {}", Latch::WAIT)));
    site.wait_at_latch(running.backend_pid());
    let body = site.reads_body(&operation, &patient());
    let answer = std::thread::scope(|scope| {
        let set = scope.spawn(|| site.set_read(&body));
        site.wait_read_by(running.backend_pid(), "reader");
        site.unfence_reads(&operation);
        set.join().unwrap()
    });
    let history = still_draining(&answer);
    assert_eq!(history["fence"]["state"], "SOURCE_WRITE_FENCED", "{history:#}");
    assert_eq!(site.client().query("SELECT count(*) FROM t").ok().cell(), "3");
    // Replayed, it stays history: nobody is cancelled.
    assert_eq!(still_draining(&site.set_read(&body))["replayed"], true);
    latch.open();
    assert_eq!(running.until_ready().ok().rows().len(), 3);
    // Not from a read fence: it must be cleared first.
    site.fence_reads(&operation);
    refused(&site.release(&site.release_body(&operation)), 409, "INVALID_FENCE_TRANSITION");
    site.unfence_reads(&operation);
    site.unfence(&operation);
}

/// A proxy that goes without some guards.
fn without(guards: &str, port: u16) -> Proxy {
    let cluster = PgCluster::shared();
    let url = format!("postgres://fencewire:fencewire@127.0.0.1:{port}/postgres");
    let engine = Engine { url, ..Engine::plain("old", cluster) };
    let env = vec![("FENCEWIRE_REMOVE".to_owned(), guards.to_owned())];
    Proxy::start_with(ProxyOptions { engines: vec![engine], env, ..ProxyOptions::default() })
}

/// A read has decided and not published when reads close; it goes on when the fence stands. A
/// guarded read is judged once more behind its guard, so that one is off in both runs.
#[test]
fn acceptance_25_without_lease_recheck_a_read_begins_behind_the_read_fence() {
    let both = [("read-only-guard", "ZF003"), ("lease-recheck,read-only-guard", "")];
    for (guard, expected) in both {
        let cluster = PgCluster::shared();
        let mut proxy = without(guard, cluster.port());
        let more = [("FENCEWIRE_REMOVE", guard)];
        let park = Park::arm_with(&mut proxy, "gate.before_publish", &more);
        let site = Site::new(cluster, &proxy);
        site.setup("INSERT INTO t VALUES (1)");
        let operation = site.fence();
        let mut client = site.client();
        client.send_raw(&query("SELECT n FROM t"));
        park.reached();
        site.fence_reads(&operation);
        park.open();
        let answer = client.until_ready();
        assert_eq!(code(&answer), expected, "without {guard:?}: {answer:?}");
    }
}

#[test]
fn acceptance_25_without_read_cancel_a_read_keeps_the_drain_for_ever() {
    for (guard, status) in [("", 200), ("read-cancel", 202)] {
        let proxy = without(guard, PgCluster::shared().port());
        let site = Site::new(PgCluster::shared(), &proxy);
        let operation = site.fence();
        let mut client = site.client();
        client.send_raw(&query(SLEEP));
        wait_asleep(&site, client.backend_pid());
        let answer = site.set_read(&site.reads_body(&operation, &fail_after(100)));
        assert_eq!(answer.0, status, "without {guard:?}: {:#}", answer.1);
        if status == 202 {
            let body = still_draining(&answer);
            assert_eq!(body["fence"]["state"], "SOURCE_READ_DRAINING", "{body:#}");
            assert!(body["error"].is_null() && body.to_string().contains("reads stay closed"));
            client.cancel();
            client.until_ready();
        }
    }
}

/// The proxy loses its link to a backend that reads on: the lease counts until the engine shows it
/// gone.
#[test]
fn acceptance_25_without_observed_release_a_lost_reader_is_missed() {
    for (guard, missed) in [("", false), ("observed-release", true)] {
        let cluster = PgCluster::shared();
        let link = Link::to(cluster.port());
        let proxy = without(guard, link.port());
        let site = Site::new(cluster, &proxy);
        let operation = site.fence();
        let latch = Latch::shut(&site);
        let name = [("application_name", "lost-reader")];
        let mut client = Wire::try_connect(proxy.port(), "wire", &site.db, &name).unwrap();
        let pid = client.backend_pid();
        client.send_raw(&query(&format!("SELECT n FROM t, {}", Latch::WAIT)));
        site.wait_at_latch(pid);
        link.cut_proxy("lost-reader");
        assert!(client.closed_within(PATIENCE));
        let answer = site.set_read(&site.reads_body(&operation, &fail_after(2_000)));
        assert_eq!(site.sql(&gone(pid)), if missed { "1" } else { "0" }, "without {guard:?}");
        let by_engine = &evidence(&answer)["releases"]["by_engine"];
        assert_eq!(by_engine, &json!(u64::from(!missed)), "without {guard:?}");
        latch.open();
    }
}

#[test]
fn a_bare_flush_and_sync_pass_a_closed_read_gate() {
    let (site, operation) = fenced();
    let mut client = site.client();
    site.fence_reads(&operation);
    client.send_raw(&[wire::flush(), sync()].concat());
    assert_eq!(client.until_ready().ok().status, 'I');
    site.unfence_reads(&operation);
    site.unfence(&operation);
}
