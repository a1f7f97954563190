//! Acceptance 13, 16, 19 and 21 of the fence contract on MariaDB and MySQL 9: the twin of
//! `codes_pg.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod acceptance_mysql;
mod support;

use acceptance::{applied, fail_after, metric, refused, still_draining};
use acceptance_mysql::{MySite, code, on_both, shared_proxy, thread};
use serde_json::{Value, json};
use support::my_wire::{MyFailed, MyLogin};
use support::proxy::uuid;
use support::{MyCluster, MyFlavour, MyOptions, MyWire, Proxy, http};

on_both!(
    acceptance_13_expectations_replays_and_repeated_goals,
    acceptance_13_joining_an_own_drain,
    acceptance_13_the_cells_of_a_read_fence,
    acceptance_16_every_schema_that_a_statement_names_is_asked,
    acceptance_19_a_refused_statement_reaches_the_engine_zero_times_and_is_counted_once,
    acceptance_19_fence_codes_are_distinct_from_every_other_refusal,
    acceptance_21_health_and_maintenance_are_never_blocked,
);

fn acceptance_13_expectations_replays_and_repeated_goals(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let operation = uuid();
    let good = site.acquire_body(&operation, &fail_after(60_000));
    let with = |field: &str, value: Value| {
        let mut body = good.clone();
        body["command_id"] = json!(uuid());
        body[field] = value;
        body
    };
    refused(&site.acquire(&with("expected_revision", json!(7))), 409, "FENCE_REVISION_MISMATCH");
    let elsewhere = json!({ "engine_id": "1", "database_id": "1" });
    let answer = site.acquire(&with("expected_namespace_identity", elsewhere));
    let body = refused(&answer, 412, "FENCE_PRECONDITION_FAILED");
    assert_eq!(body["detail"], "namespace_identity_mismatch", "{body:#}");
    let answer = site.release(&site.release_body(&operation));
    refused(&answer, 409, "INVALID_FENCE_TRANSITION");
    assert_eq!(site.inspect()["fence"]["revision"], 0, "a refusal left a trace");

    let first = site.acquire(&good);
    let receipt = applied(&first)["receipt"].clone();
    let again = site.acquire(&good);
    assert_eq!((&applied(&again)["receipt"], &again.1["replayed"]), (&receipt, &json!(true)));
    let mut other = good.clone();
    other["drain_policy"]["deadline_ms"] = json!(60_001);
    refused(&site.acquire(&other), 409, "FENCE_COMMAND_CONFLICT");
    let answer = site.acquire(&with("expected_revision", json!(99)));
    assert_eq!((answer.0, &answer.1["outcome"]), (200, &json!("ALREADY_APPLIED")), "{answer:?}");
    let stranger = site.release(&site.release_body(&uuid()));
    refused(&stranger, 409, "FENCE_OWNED_BY_ANOTHER_OPERATION");

    site.unfence(&operation);
    let again = site.acquire(&good);
    assert_eq!(applied(&again)["fence"]["state"], "RELEASED");
    site.client().query("INSERT INTO t VALUES (1)").ok();
    let answer = site.acquire(&with("expected_revision", json!(3)));
    let body = refused(&answer, 409, "INVALID_FENCE_TRANSITION");
    assert_eq!(body["detail"], "operation_finished", "{body:#}");
}

fn acceptance_13_joining_an_own_drain(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let mut writer = site.client();
    writer.query("BEGIN").ok();
    writer.query("INSERT INTO t VALUES (1)").ok();
    let operation = uuid();
    let first = site.acquire_body(&operation, &fail_after(0));
    still_draining(&site.acquire(&first));
    let join = site.acquire_body(&operation, &acceptance::patient());
    let answer = std::thread::scope(|scope| {
        let joined = scope.spawn(|| site.acquire(&join));
        site.wait_blocked_by(thread(&writer));
        writer.query("COMMIT").ok();
        joined.join().unwrap()
    });
    assert_eq!(applied(&answer)["fence"]["revision"], 2);
    let replay = site.acquire(&first);
    assert!(replay.0 == 200 || replay.0 == 202, "{replay:?}");
    assert_eq!(replay.1["replayed"], true);
    site.unfence(&operation);
}

/// The whole matrix is in `codes_pg.rs`; these are the cells in which an engine takes part.
fn acceptance_13_the_cells_of_a_read_fence(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let (own, stranger) = (uuid(), uuid());
    let cell = |answer: (u16, Value), status: u16, outcome: &str| {
        let seen = (answer.0, answer.1["outcome"].as_str());
        assert_eq!(seen, (status, Some(outcome)), "{:#}", answer.1);
    };
    let body = |operation: &str| site.reads_body(operation, &Value::Null);
    cell(site.set_read(&body(&own)), 409, "INVALID_FENCE_TRANSITION");
    cell(site.clear_read(&body(&own)), 409, "INVALID_FENCE_TRANSITION");
    applied(&site.acquire(&site.acquire_body(&own, &fail_after(60_000))));
    cell(site.clear_read(&body(&own)), 200, "ALREADY_APPLIED");
    cell(site.set_read(&body(&stranger)), 409, "FENCE_OWNED_BY_ANOTHER_OPERATION");
    let set = body(&own);
    assert_eq!(applied(&site.set_read(&set))["fence"]["revision"], 4);
    assert_eq!(applied(&site.set_read(&set))["replayed"], true);
    cell(site.set_read(&body(&own)), 200, "ALREADY_APPLIED");
    cell(site.clear_read(&body(&stranger)), 409, "FENCE_OWNED_BY_ANOTHER_OPERATION");
    cell(site.release(&site.release_body(&own)), 409, "INVALID_FENCE_TRANSITION");
    let acquire = site.acquire_body(&own, &fail_after(0));
    cell(site.acquire(&acquire), 409, "INVALID_FENCE_TRANSITION");
    assert_eq!(applied(&site.clear_read(&body(&own)))["fence"]["revision"], 5);
    site.unfence(&own);
    cell(site.set_read(&body(&own)), 409, "INVALID_FENCE_TRANSITION");
}

fn acceptance_16_every_schema_that_a_statement_names_is_asked(flavour: MyFlavour) {
    let (fenced, open) = (MySite::shared(flavour), MySite::shared(flavour));
    let (there, here) = (&fenced.db, &open.db);
    let mut client = open.client();
    let operation = fenced.fence();
    for sql in [
        format!("INSERT INTO {there}.t VALUES (1)"),
        format!("UPDATE {there}.t SET n = 2"),
        format!("DELETE FROM `{there}`.`t`"),
        format!("UPDATE t, {there}.t AS theirs SET theirs.n = 3"),
        format!("TRUNCATE {there}.t"),
        format!("RENAME TABLE t TO {there}.u"),
        format!("CREATE TABLE {there}.made (n int)"),
    ] {
        let answer = client.query(&sql);
        assert!(code(&answer).starts_with("ZF"), "{sql}: {answer:?}");
    }
    assert_eq!(client.query(&format!("SELECT count(*) FROM {there}.t")).ok().cell(), "0");
    client.query("INSERT INTO t VALUES (4)").ok();
    client.query(&format!("USE {there}")).ok();
    assert_eq!(code(&client.query("INSERT INTO t VALUES (5)")), "ZF001");
    client.query(&format!("USE {here}")).ok();
    client.query("INSERT INTO t VALUES (6)").ok();
    assert_eq!((open.rows().as_str(), fenced.rows().as_str()), ("4,6", ""));
    fenced.unfence(&operation);
    client.query(&format!("INSERT INTO {there}.t VALUES (7)")).ok();
    assert_eq!(fenced.rows(), "7");
}

fn denials(proxy: &Proxy) -> u64 {
    let code = "MIGRATION_WRITE_FENCED";
    metric(proxy, &format!("fencewire_fence_denials_total{{code=\"{code}\",surface=\"mysql\"}}"))
}

fn acceptance_19_a_refused_statement_reaches_the_engine_zero_times_and_is_counted_once(
    flavour: MyFlavour,
) {
    let log = [("general_log", "ON"), ("log_output", "TABLE")];
    let settings = log.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let cluster = MyCluster::start(flavour, MyOptions { settings, ..MyOptions::default() });
    let proxy = Proxy::start_my(&cluster);
    let site = MySite::new(&cluster, &proxy);
    // The question must not find itself in the log.
    let seen = |tail: &str| {
        site.sql(&format!(
            "SELECT COUNT(*) FROM mysql.general_log \
             WHERE CONVERT(argument USING utf8mb4) LIKE CONCAT('%mar', 'ker_{tail}%')"
        ))
    };
    let operation = site.fence();
    let mut client = site.client();
    let before = denials(&proxy);
    assert_eq!(code(&client.query("INSERT INTO t SELECT 1 AS marker_one")), "ZF001");
    assert_eq!((denials(&proxy), seen("one").as_str()), (before + 1, "0"));
    client.query("BEGIN").ok();
    assert_eq!(code(&client.query("INSERT INTO t SELECT 1 AS marker_two")), "ZF001");
    client.query("ROLLBACK").ok();
    assert_eq!((denials(&proxy), seen("two").as_str()), (before + 2, "0"));
    let refused = client.prepare("INSERT INTO t SELECT ? AS marker_three").unwrap();
    if let Ok(prepared) = refused {
        client.command(&prepared.execute(&[Some("1")]));
        assert_eq!(code(&client.answer(&[]).unwrap()), "ZF001");
    }
    assert_eq!(denials(&proxy), before + 3);
    site.unfence(&operation);
    client.query("INSERT INTO t SELECT 1 AS marker_four").ok();
    assert_eq!(seen("four"), "1", "the log is one that would have shown them");
    assert_eq!(site.rows(), "1");
}

fn acceptance_19_fence_codes_are_distinct_from_every_other_refusal(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let operation = site.fence();
    let port = site.proxy.port();
    let login_code = |login: &MyLogin| match MyWire::login(port, login) {
        Err(MyFailed::Refused(error)) => error.code,
        other => panic!("{:?}", other.map(|_| "logged in")),
    };
    let missing = login_code(&MyLogin::of("wire", "no_such_database"));
    assert!([1044, 1049].contains(&missing), "{missing}");
    let wrong = MyLogin { password: "wrong".to_owned(), ..MyLogin::of("wire", &site.db) };
    assert_eq!(login_code(&wrong), 1045);
    let mut client = site.client();
    for (sql, expected) in [
        ("SELECT * FROM missing", 1146),
        ("SELECT nosuch FROM t", 1054),
        ("INSERT INTO missing VALUES (1)", 9701),
        ("SET lock_wait_timeout = 'never'", 1232),
    ] {
        assert_eq!(client.query(sql).code(), expected, "{sql}");
    }
    let error = client.query("INSERT INTO t VALUES (1)").error.unwrap();
    assert_eq!((error.code, error.state.as_str()), (9701, "ZF001"));
    assert!(error.message.starts_with("MIGRATION_WRITE_FENCED: "), "{error:?}");
    // An engine that is read-only by itself keeps its own code once the fence is lifted (W15).
    site.unfence(&operation);
    client.query("SET SESSION TRANSACTION READ ONLY").ok();
    assert_eq!(client.query("INSERT INTO t VALUES (1)").code(), 1792);
}

fn acceptance_21_health_and_maintenance_are_never_blocked(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let operation = site.fence();
    for path in ["/healthz", "/readyz"] {
        let (status, body) = http::request(site.proxy.admin_port(), "GET", path, &[], "").unwrap();
        assert_eq!(status, 200, "{path}: {body}");
    }
    let seen = site.inspect();
    assert!(!seen["fence"]["incarnation"]["engine_id"].as_str().unwrap().is_empty());
    assert_eq!(seen["fence"]["incarnation"]["database_id"], site.db);
    let mut client = site.client();
    client.command(&[0x0E]);
    client.answer(&[]).unwrap().ok();
    for sql in ["SELECT 1", "SELECT @@version", "SHOW STATUS LIKE 'Uptime'", "SHOW TABLES"] {
        client.query(sql).ok();
    }
    for sql in ["ANALYZE TABLE t", "OPTIMIZE TABLE t", "REPAIR TABLE t", "FLUSH TABLES"] {
        let answer = client.query(sql);
        assert!(code(&answer).starts_with("ZF"), "{sql}: {answer:?}");
    }
    site.unfence(&operation);
    client.query("ANALYZE TABLE t").ok();
    // One audit event per answered command, and no line that says a bug was met.
    let log = std::fs::read_to_string(shared_proxy(flavour).log_file()).unwrap();
    let events = log.lines().filter(|line| line.contains(&operation)).count();
    assert_eq!(events, 2, "audit events of operation {operation}");
    assert!(!log.contains("panicked"), "{}", shared_proxy(flavour).log_tail());
}
