//! Acceptance 13, 19 and 21 of the fence contract: commands refused, replayed and joined; codes
//! that are stable, distinct and never retried; maintenance that no fence blocks.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod support;

use std::path::Path;
use std::sync::OnceLock;

use acceptance::{
    Latch, Site, applied, blockers, code, fail_after, metric, patient, refused, shared_proxy,
    still_draining,
};
use serde_json::{Value, json};
use support::proxy::uuid;
use support::tools::{Target, python, run, run_failing};
use support::wire::{bind, execute, parse, query, sync};
use support::{Engine, Options, PgCluster, Proxy, ProxyOptions, Wire, http};

#[test]
fn acceptance_13_expectations_and_owners_are_checked_in_the_contracts_order() {
    let site = Site::shared();
    let operation = uuid();
    let good = site.acquire_body(&operation, &fail_after(30_000));
    let with = |field: &str, value: Value| {
        let mut body = good.clone();
        body["command_id"] = json!(uuid());
        body[field] = value;
        body
    };
    refused(&site.acquire(&with("expected_revision", json!(7))), 409, "FENCE_REVISION_MISMATCH");
    let released = json!("RELEASED");
    refused(&site.acquire(&with("expected_state", released)), 409, "FENCE_REVISION_MISMATCH");
    let elsewhere = json!({ "engine_id": "1", "database_id": "1" });
    let answer = site.acquire(&with("expected_namespace_identity", elsewhere));
    let body = refused(&answer, 412, "FENCE_PRECONDITION_FAILED");
    assert_eq!(body["detail"], "namespace_identity_mismatch", "{body:#}");
    let answer = site.release(&site.release_body(&operation));
    refused(&answer, 409, "INVALID_FENCE_TRANSITION");
    for (field, value) in [
        ("command_id", json!("not a uuid")),
        ("expected_state", json!("NO_SUCH_STATE")),
        ("operation_id", Value::Null),
        ("surprise", json!(1)),
    ] {
        let answer = site.acquire(&with(field, value));
        let body = refused_argument(&answer);
        assert_eq!(body["detail"], "invalid_argument", "{field}: {body:#}");
    }
    // None of these left a trace.
    assert_eq!(site.inspect()["fence"]["revision"], 0);
    let first = site.acquire(&good);
    assert_eq!(applied(&first)["fence"]["revision"], 2);

    // Another operation, whatever it asks: the owner comes before expectations and transitions.
    let mut stranger = site.acquire_body(&uuid(), &fail_after(0));
    stranger["expected_revision"] = json!(99);
    let answer = site.acquire(&stranger);
    let body = refused(&answer, 409, "FENCE_OWNED_BY_ANOTHER_OPERATION");
    assert_eq!(body["fence"]["operation_id"], operation);
    let answer = site.release(&site.release_body(&uuid()));
    refused(&answer, 409, "FENCE_OWNED_BY_ANOTHER_OPERATION");
}

fn refused_argument(answer: &(u16, Value)) -> &Value {
    assert_eq!(answer.0, 412, "{:#}", answer.1);
    assert_eq!(answer.1["outcome"], "FENCE_PRECONDITION_FAILED", "{:#}", answer.1);
    &answer.1
}

#[test]
fn acceptance_13_replays_conflicts_and_repeated_goals() {
    let site = Site::shared();
    let operation = uuid();
    let acquire = site.acquire_body(&operation, &fail_after(30_000));
    let first = site.acquire(&acquire);
    let receipt = applied(&first)["receipt"].clone();
    assert_eq!(first.1["replayed"], false);

    let again = site.acquire(&acquire);
    assert_eq!((&applied(&again)["receipt"], &again.1["replayed"]), (&receipt, &json!(true)));

    // The id again with anything else: a conflict, before every other check.
    let mut other = acquire.clone();
    other["drain_policy"]["deadline_ms"] = json!(30_001);
    refused(&site.acquire(&other), 409, "FENCE_COMMAND_CONFLICT");
    let mut release = site.release_body(&operation);
    release["command_id"] = acquire["command_id"].clone();
    refused(&site.release(&release), 409, "FENCE_COMMAND_CONFLICT");

    // The same goal under a new id: before the expectations are looked at.
    let mut goal = acquire.clone();
    goal["command_id"] = json!(uuid());
    let answer = site.acquire(&goal);
    assert_eq!((answer.0, &answer.1["outcome"]), (200, &json!("ALREADY_APPLIED")), "{answer:?}");
    assert_eq!(answer.1["fence"]["revision"], 2, "it moved the revision");

    let release = site.release_body(&operation);
    let answer = site.release(&release);
    assert_eq!(applied(&answer)["fence"]["state"], "RELEASED");
    assert_eq!(answer.1["fence"]["revision"], 3);
    // An exact replay after the revision moved: the receipt, and nothing is closed again.
    let again = site.acquire(&acquire);
    assert_eq!((&applied(&again)["receipt"], &again.1["replayed"]), (&receipt, &json!(true)));
    assert_eq!(again.1["fence"]["state"], "RELEASED");
    site.client().query("INSERT INTO t VALUES (1)").ok();
    let mut finished = acquire.clone();
    finished["command_id"] = json!(uuid());
    let answer = site.acquire(&finished);
    let body = refused(&answer, 409, "INVALID_FENCE_TRANSITION");
    assert_eq!(body["detail"], "operation_finished", "{body:#}");

    // A new operation goes on with the counter.
    let next = site.acquire(&site.acquire_body(&uuid(), &fail_after(30_000)));
    assert_eq!(applied(&next)["fence"]["revision"], 5);
}

#[test]
fn acceptance_13_joining_an_own_drain_and_a_superseded_one() {
    let site = Site::shared();
    let mut writer = site.client();
    writer.query("BEGIN; INSERT INTO t VALUES (1)").ok();
    let operation = uuid();
    let first = site.acquire_body(&operation, &fail_after(0));
    still_draining(&site.acquire(&first));

    let mut stale = site.acquire_body(&operation, &fail_after(0));
    stale["expected_revision"] = json!(0);
    refused(&site.acquire(&stale), 409, "FENCE_REVISION_MISMATCH");
    let join = site.acquire_body(&operation, &patient());
    let answer = std::thread::scope(|scope| {
        let joined = scope.spawn(|| site.acquire(&join));
        site.wait_blocked_by(writer.backend_pid());
        writer.query("COMMIT").ok();
        joined.join().unwrap()
    });
    assert_eq!(applied(&answer)["fence"]["revision"], 2);
    // The first command's drain has been completed by the second: its goal is reached.
    let replay = site.acquire(&first);
    assert!(replay.0 == 200 || replay.0 == 202, "{replay:?}");
    assert_eq!(replay.1["replayed"], true);
    site.unfence(&operation);

    // Superseded: history, and nobody is cancelled or waited for.
    let mut writer = site.client();
    writer.query("BEGIN; INSERT INTO t VALUES (2)").ok();
    let operation = uuid();
    let policy = json!({ "deadline_ms": 0, "on_deadline": "fail" });
    let old = site.acquire_body(&operation, &policy);
    let before = site.acquire(&old);
    still_draining(&before);
    site.unfence(&operation);
    let history = site.acquire(&old);
    assert_eq!(still_draining(&history)["receipt"], before.1["receipt"]);
    assert_eq!(history.1["fence"]["state"], "RELEASED");
    writer.query("INSERT INTO t VALUES (3)").ok();
    writer.query("COMMIT").ok();
    assert_eq!(site.rows(), "1,2,3");
}

/// What a command answers from one state, by status, outcome and detail; `-` for no detail.
type Cell = (&'static str, u16, &'static str, &'static str);

/// Sends each command of a source under fresh ids, to a namespace as it is now. None may move it.
#[track_caller]
fn cells(site: &Site<'_>, operation: &str, cells: &[Cell]) {
    let before = site.inspect()["fence"].clone();
    for (command, status, outcome, detail) in cells {
        let answer = match *command {
            "acquire" => site.acquire(&site.acquire_body(operation, &fail_after(0))),
            "set" => site.set_read(&site.reads_body(operation, &fail_after(0))),
            "clear" => site.clear_read(&site.reads_body(operation, &Value::Null)),
            _ => site.release(&site.release_body(operation)),
        };
        let seen = (answer.0, &answer.1["outcome"], answer.1["detail"].as_str().unwrap_or("-"));
        let state = &before["state"];
        assert_eq!(seen, (*status, &json!(outcome), *detail), "{command} in {state}");
        let after = site.inspect()["fence"].clone();
        assert_eq!(
            (&after["state"], &after["revision"]),
            (state, &before["revision"]),
            "{command}"
        );
    }
}

const INVALID: &str = "INVALID_FENCE_TRANSITION";
const OWNED: &str = "FENCE_OWNED_BY_ANOTHER_OPERATION";
const DONE: &str = "ALREADY_APPLIED";
/// Another operation's commands, while a fence is up.
const STRANGERS: [Cell; 4] = [
    ("acquire", 409, OWNED, "-"),
    ("set", 409, OWNED, "-"),
    ("clear", 409, OWNED, "-"),
    ("release", 409, OWNED, "-"),
];

#[test]
fn acceptance_13_every_cell_of_the_matrix_that_a_source_has() {
    let site = Site::shared();
    let (own, stranger) = (uuid(), uuid());
    let no = |command| (command, 409, INVALID, "-");
    cells(&site, &own, &[no("set"), no("clear"), no("release")]);

    let mut writer = site.client();
    writer.query("BEGIN; INSERT INTO t VALUES (1)").ok();
    let first = site.acquire_body(&own, &fail_after(0));
    still_draining(&site.acquire(&first));
    cells(&site, &own, &[("acquire", 202, "DRAINING", "-"), no("set"), no("clear")]);
    cells(&site, &stranger, &STRANGERS);
    writer.query("COMMIT").ok();
    site.acquire_at_last(&first);

    cells(&site, &own, &[("acquire", 200, DONE, "-"), ("clear", 200, DONE, "-")]);
    cells(&site, &stranger, &STRANGERS);
    let set = site.reads_body(&own, &patient());
    for (field, value) in [("expected_revision", json!(7)), ("expected_state", json!("UNFENCED"))] {
        let mut wrong = site.reads_body(&own, &patient());
        wrong[field] = value;
        refused(&site.set_read(&wrong), 409, "FENCE_REVISION_MISMATCH");
    }

    let latch = Latch::shut(&site);
    let mut reader = site.client();
    reader.send_raw(&query(&format!("SELECT n FROM t, {}", Latch::WAIT)));
    site.wait_at_latch(reader.backend_pid());
    let answer = std::thread::scope(|scope| {
        let draining = scope.spawn(|| site.set_read(&set));
        site.wait_read_by(reader.backend_pid(), "reader");
        cells(&site, &own, &[no("acquire"), no("release")]);
        cells(&site, &stranger, &STRANGERS);
        // A second command of the owner joins, if it knows which drain.
        let mut stale = site.reads_body(&own, &patient());
        stale["expected_revision"] = json!(2);
        refused(&site.set_read(&stale), 409, "FENCE_REVISION_MISMATCH");
        let join = site.reads_body(&own, &patient());
        let joined = scope.spawn({
            let site = &site;
            move || site.set_read(&join)
        });
        latch.open();
        let joined = joined.join().unwrap();
        assert_eq!(joined.0, 200, "{joined:?}");
        draining.join().unwrap()
    });
    assert_eq!(answer.0, 200, "{answer:?}");
    reader.until_ready().ok();

    cells(&site, &own, &[no("acquire"), ("set", 200, DONE, "-"), no("release")]);
    cells(&site, &stranger, &STRANGERS);
    // The same id with other arguments, and an exact replay.
    let mut other = set.clone();
    other["drain_policy"]["deadline_ms"] = json!(1);
    refused(&site.set_read(&other), 409, "FENCE_COMMAND_CONFLICT");
    refused(&site.clear_read(&json_without_policy(&set)), 409, "FENCE_COMMAND_CONFLICT");
    assert_eq!(site.set_read(&set).1["replayed"], true);
    let clear = site.reads_body(&own, &Value::Null);
    assert_eq!(applied(&site.clear_read(&clear))["fence"]["state"], "SOURCE_WRITE_FENCED");
    assert_eq!(applied(&site.clear_read(&clear))["replayed"], true);
    site.unfence(&own);

    let finished = "operation_finished";
    let over = |command| (command, 409, INVALID, finished);
    cells(&site, &own, &[over("acquire"), over("set"), over("clear"), ("release", 200, DONE, "-")]);
    cells(&site, &stranger, &[no("set"), no("clear"), no("release")]);
}

fn json_without_policy(body: &Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().unwrap().remove("drain_policy");
    body
}

/// A cluster that logs every statement it gets, with a proxy before it.
fn logged() -> &'static (PgCluster, Proxy) {
    static LOGGED: OnceLock<(PgCluster, Proxy)> = OnceLock::new();
    LOGGED.get_or_init(|| {
        let settings = vec![("log_statement".to_owned(), "'all'".to_owned())];
        let cluster = PgCluster::start(Options { settings, ..Options::default() });
        let proxy = Proxy::start(&cluster);
        (cluster, proxy)
    })
}

/// How often a text is in the engine's log.
fn seen_by_engine(cluster: &PgCluster, text: &str) -> usize {
    let log = cluster.socket_dir().with_file_name("server.log");
    let log = std::fs::read(&log).unwrap();
    String::from_utf8_lossy(&log).matches(text).count()
}

fn denials(proxy: &Proxy, code: &str, surface: &str) -> u64 {
    let series = format!("fencewire_fence_denials_total{{code=\"{code}\",surface=\"{surface}\"}}");
    metric(proxy, &series)
}

#[test]
fn acceptance_19_a_refused_statement_reaches_the_engine_zero_times_and_is_counted_once() {
    let (cluster, proxy) = logged();
    let site = Site::new(cluster, proxy);
    let operation = site.fence();
    let mut client = site.client();
    let count = || denials(proxy, "MIGRATION_WRITE_FENCED", "pg");
    let refuse = |marker: &str, act: &mut dyn FnMut(&str)| {
        let before = count();
        act(marker);
        assert_eq!(count(), before + 1, "{marker} was not counted once");
        assert_eq!(seen_by_engine(cluster, marker), 0, "{marker} reached the engine");
    };
    refuse("refused_simple", &mut |marker| {
        let sql = format!("INSERT INTO t SELECT 1 AS {marker}");
        assert_eq!(code(&client.query(&sql)), "ZF001");
    });
    let mut client = site.client();
    refuse("refused_extended", &mut |marker| {
        let sql = format!("INSERT INTO t SELECT 1 AS {marker}");
        assert_eq!(code(&client.extended(&sql, &[])), "ZF001");
    });
    let mut client = site.client();
    client.query("BEGIN").ok();
    refuse("refused_in_block", &mut |marker| {
        let sql = format!("INSERT INTO t SELECT 1 AS {marker}");
        assert_eq!(code(&client.query(&sql)), "ZF001");
    });
    let mut client = site.client();
    refuse("refused_in_pipeline", &mut |marker| {
        let sql = format!("INSERT INTO t SELECT 1 AS {marker}");
        let read = [parse("", "SELECT 1"), bind("", "", &[]), execute("", 0)].concat();
        let write = [parse("", &sql), bind("", "", &[]), execute("", 0), sync()].concat();
        client.send_raw(&[read, write].concat());
        assert_eq!(code(&client.until_ready()), "ZF001");
    });

    // libpq by psql, and psycopg: one try, one denial, the code where programs look for it.
    let target = Target { cluster, port: proxy.port(), client_tls: false, engine_tls: false };
    refuse("refused_psql", &mut |marker| {
        let sql = format!("INSERT INTO t SELECT 1 AS {marker}");
        let mut psql = target.psql(&site.db);
        let error = run_failing(psql.args(["-v", "VERBOSITY=sqlstate", "-c", &sql]));
        assert!(error.contains("ZF001"), "{error}");
    });
    refuse("refused_psycopg", &mut |marker| {
        let mut python = target.command(python(), &site.db);
        let out = run(python.args(["-c", PSYCOPG, marker]));
        assert_eq!(out.trim(), "ZF001 idle");
    });
    // The log is one that would have shown them.
    assert!(seen_by_engine(cluster, "SET default_transaction_read_only = on") > 0);
    site.unfence(&operation);
    site.client().query("INSERT INTO t SELECT 1 AS admitted_now").ok();
    assert_eq!(seen_by_engine(cluster, "admitted_now"), 1);
    assert_eq!(site.rows(), "1");
}

const PSYCOPG: &str = "\
import sys, psycopg
with psycopg.connect('', autocommit=True) as conn:
    try:
        conn.execute('INSERT INTO t SELECT %s::int AS ' + sys.argv[1], (1,))
        print('not refused')
    except psycopg.Error as error:
        print(error.sqlstate, conn.info.transaction_status.name.lower())
    assert conn.execute('SELECT 1').fetchone() == (1,)
";

#[test]
fn acceptance_19_fence_codes_are_distinct_from_every_other_refusal() {
    let site = Site::shared();
    let operation = site.fence();
    let port = site.proxy.port();
    let missing = Wire::try_connect(port, "wire", "no_such_database", &[]).err().unwrap();
    assert_eq!(missing[&'C'], "3D000");
    let target = Target { cluster: site.cluster, port, client_tls: false, engine_tls: false };
    let error =
        run_failing(target.psql(&site.db).env("PGPASSWORD", "wrong").args(["-c", "TABLE t"]));
    assert!(error.contains("password authentication failed"), "{error}");
    assert!(!error.contains("MIGRATION"), "{error}");
    let mut client = site.client();
    for (sql, expected) in [
        ("SET statement_timeout = 1; SELECT pg_sleep(60)", "57014"),
        ("SELECT 1/0", "22012"),
        ("SELECT * FROM missing", "42P01"),
        ("INSERT INTO missing VALUES (1)", "ZF001"),
        ("SET lock_timeout = 'never'", "22023"),
    ] {
        assert_eq!(code(&client.query(sql)), expected, "{sql}");
    }
    let error = client.query("INSERT INTO t VALUES (1)").error().unwrap();
    assert_eq!((error[&'S'].as_str(), error[&'V'].as_str()), ("ERROR", "ERROR"));
    assert!(error[&'M'].starts_with("MIGRATION_WRITE_FENCED: "), "{error:?}");
    assert_eq!(error[&'R'], "fencewire");
    for part in [site.namespace().as_str(), "SOURCE_WRITE_FENCED", "revision 2", &operation] {
        assert!(error[&'D'].contains(part), "{part:?} is not in {:?}", error[&'D']);
    }
    assert!(!error[&'H'].is_empty());
    // An engine that is read-only by itself keeps its own code once the fence is lifted (W15).
    site.unfence(&operation);
    client.query("SET default_transaction_read_only = on").ok();
    assert_eq!(code(&client.query("INSERT INTO t VALUES (1)")), "25006");
}

#[test]
fn acceptance_19_the_admin_side_tells_authentication_and_unknown_names_apart() {
    let site = Site::shared();
    let port = site.proxy.admin_port();
    let path = format!("/v1/namespaces/{}/fence", site.namespace());
    for headers in [vec![], vec![("Authorization", "Bearer wrong")]] {
        let (status, body) = http::request(port, "GET", &path, &headers, "").unwrap();
        assert_eq!(status, 401, "{body}");
        assert!(!body.contains("FENCE_") && !body.contains("MIGRATION_"), "{body}");
        let (status, _) = http::request(port, "POST", &path, &headers, "{}").unwrap();
        assert_eq!(status, 401);
    }
    let missing = "/v1/namespaces/old/no_such_database/fence";
    assert_eq!(site.proxy.admin("GET", missing, &Value::Null).0, 404);
    let route = format!("{path}/source/acquire-write-fence");
    for body in [json!([]), json!({}), json!("text")] {
        let answer = site.proxy.admin("POST", &route, &body);
        assert_eq!(answer.0, 412, "{answer:?}");
        assert_eq!(answer.1["detail"], "invalid_argument", "{answer:?}");
    }
}

#[test]
fn acceptance_19_a_compat_table_changes_the_sqlstate_and_nothing_else() {
    let cluster = PgCluster::shared();
    let proxy = Proxy::start_with(ProxyOptions {
        engines: vec![Engine::plain("old", cluster)],
        extra: "[compat.sqlstate]\nZF002 = \"40001\"\n".into(),
        ..ProxyOptions::default()
    });
    let site = Site::new(cluster, &proxy);
    let mut old = site.client();
    old.query("BEGIN; SELECT n FROM t").ok();
    let operation = site.fence();
    assert_eq!(code(&site.client().query("INSERT INTO t VALUES (1)")), "ZF001");
    site.unfence(&operation);
    let error = old.query("INSERT INTO t VALUES (1)").error().unwrap();
    assert_eq!(error[&'C'], "40001");
    assert!(error[&'M'].starts_with("MIGRATION_WRITE_FENCED: "), "{error:?}");
    assert!(error[&'D'].contains("stale_transaction"), "{error:?}");
}

#[test]
fn acceptance_21_health_and_maintenance_are_never_blocked() {
    let site = Site::shared();
    let operation = site.fence();
    let mut ready = std::process::Command::new(site.cluster.program("pg_isready"));
    ready.args(["-q", "-h", "127.0.0.1", "-p", &site.proxy.port().to_string(), "-t", "30"]);
    run(ready.args(["-d", &site.db, "-U", "wire"]));
    for path in ["/healthz", "/readyz"] {
        let (status, body) = http::request(site.proxy.admin_port(), "GET", path, &[], "").unwrap();
        assert_eq!(status, 200, "{path}: {body}");
    }
    let seen = site.inspect();
    assert_eq!(seen["fence"]["incarnation"]["engine_id"].as_str().unwrap().len(), 19);
    assert!(blockers(&seen).is_empty());
    // Health checks of pools, and the engine's own views.
    let mut client = site.client();
    for sql in ["", "SELECT 1", "SHOW transaction_read_only", "SELECT pg_is_in_recovery()"] {
        client.query(sql).ok();
    }
    client.query("SELECT count(*) FROM pg_stat_activity").ok();
    for sql in [
        "VACUUM",
        "VACUUM t",
        "VACUUM (FULL, ANALYZE) t",
        "ANALYZE",
        "ANALYZE t",
        "REINDEX TABLE t",
        "CLUSTER",
        "ALTER SYSTEM SET work_mem = '8MB'",
    ] {
        let answer = client.query(sql);
        let seen = code(&answer);
        assert!(["ZF001", "ZF007"].contains(&seen.as_str()), "{sql}: {answer:?}");
    }
    site.unfence(&operation);
    client.query("ANALYZE t").ok();
    client.query("VACUUM t").ok();
}

#[test]
fn the_proxy_of_these_tests_keeps_its_log_readable() {
    // One audit event per answered command, and no line that says a bug was met.
    let site = Site::shared();
    let operation = site.fence();
    site.unfence(&operation);
    let log = std::fs::read_to_string(shared_proxy().log_file()).unwrap();
    let events = log.lines().filter(|line| line.contains(&operation)).count();
    assert_eq!(events, 2, "audit events of operation {operation}");
    assert!(!log.contains("(a bug)") && !log.contains("panicked"), "{log}");
    assert!(Path::new(&shared_proxy().state_dir()).exists());
}
