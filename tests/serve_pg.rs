//! `fencewire serve` as an operator meets it: start, routes, reload, limits, stop, numbers.
//!
//! Purpose: W26, and the surfaces of conf.md that the fence tests don't touch. Everything runs
//! against the built program and a real PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::time::Duration;

use serde_json::Value;
use support::proxy::uuid;
use support::{Engine, PgCluster, Proxy, ProxyOptions, Wire, poll};

const PATIENCE: Duration = Duration::from_secs(20);

fn with_extra(cluster: &PgCluster, extra: &str) -> Proxy {
    Proxy::start_with(ProxyOptions {
        engines: vec![Engine::plain("old", cluster)],
        extra: extra.to_owned(),
        ..ProxyOptions::default()
    })
}

fn settings_file(proxy: &Proxy) -> std::path::PathBuf {
    proxy.state_dir().parent().unwrap().join("fencewire.toml")
}

fn code_of(port: u16, database: &str) -> String {
    let Err(fields) = Wire::try_connect(port, "wire", database, &[]) else {
        panic!("{database} was expected to be refused");
    };
    fields.get(&'C').cloned().unwrap_or_default()
}

/// Waits for a condition on the proxy's sessions.
fn sessions_settle(proxy: &Proxy, wanted: usize) {
    let settled = poll(PATIENCE, || {
        let (_, body) = proxy.admin("GET", "/v1/sessions", &Value::Null);
        (body["sessions"].as_array()?.len() == wanted).then_some(())
    });
    assert!(settled.is_some(), "not {wanted} sessions: {}", proxy.log_tail());
}

#[test]
fn a_route_leads_a_name_to_a_namespace_and_engine_slash_database_needs_none() {
    let cluster = PgCluster::shared();
    let db = cluster.fresh_db();
    let extra = format!("[[route]]\nname = \"shop\"\nengine = \"old\"\ndatabase = \"{db}\"\n");
    let proxy = with_extra(cluster, &extra);
    for name in ["shop", db.as_str(), &format!("old/{db}")] {
        let mut wire = Wire::connect(proxy.port(), "wire", name);
        assert_eq!(wire.query("SELECT current_database()").ok().cell(), db, "asked for {name}");
    }
    assert_eq!(code_of(proxy.port(), "no_such_db"), "3D000", "the engine's own error");
}

/// Two processes would each enforce only the fences they were told of.
#[test]
fn a_second_process_over_the_same_store_does_not_start() {
    let cluster = PgCluster::shared();
    let home = support::test_dir("shared-store");
    let store = format!("[store]\nurl = \"sqlite://{}/fence.db\"\n", home.display());
    let proxy = with_extra(cluster, &store);
    let text = std::fs::read_to_string(settings_file(&proxy)).unwrap();
    let (own, other) = (proxy.state_dir().display().to_string(), home.join("state"));
    let (client, admin) = (proxy.port(), proxy.admin_port());
    let text = text
        .replace(&own, &other.display().to_string())
        .replace(&format!("127.0.0.1:{client}"), &format!("127.0.0.1:{}", support::free_port()))
        .replace(&format!("127.0.0.1:{admin}"), &format!("127.0.0.1:{}", support::free_port()));
    let file = home.join("second.toml");
    std::fs::write(&file, text).unwrap();
    let second = std::process::Command::new("timeout")
        .args(["60", env!("CARGO_BIN_EXE_fencewire"), "serve", "--config"])
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success(), "{said}");
    assert!(said.contains("fence.db is in use by another fencewire process"), "{said}");
}

#[test]
fn a_reload_takes_up_routes_and_refuses_what_needs_a_restart() {
    let cluster = PgCluster::shared();
    let db = cluster.fresh_db();
    let proxy = with_extra(cluster, "");
    let mut before = Wire::connect(proxy.port(), "wire", &db);
    assert_eq!(code_of(proxy.port(), "shop"), "3D000");
    let file = settings_file(&proxy);
    let written = std::fs::read_to_string(&file).unwrap();
    let route = format!("[[route]]\nname = \"shop\"\nengine = \"old\"\ndatabase = \"{db}\"\n");
    std::fs::write(&file, format!("{written}{route}")).unwrap();
    let (status, body) = proxy.admin("POST", "/v1/reload", &Value::Null);
    assert_eq!(status, 200, "{body}");
    assert!(body.to_string().contains("shop"), "the change is named: {body}");
    let mut after = Wire::connect(proxy.port(), "wire", "shop");
    assert_eq!(after.query("SELECT current_database()").ok().cell(), db);
    assert_eq!(before.query("SELECT 1").ok().cell(), "1", "running sessions stay");

    let moved = written.replace("shutdown_grace_ms = 3000", "shutdown_grace_ms = 4000");
    std::fs::write(&file, moved).unwrap();
    let (status, body) = proxy.admin("POST", "/v1/reload", &Value::Null);
    assert!(status >= 400 && body.to_string().contains("restart"), "{status} {body}");
    assert_eq!(after.query("SELECT 1").ok().cell(), "1");
    let _still = Wire::connect(proxy.port(), "wire", "shop");

    std::fs::write(&file, &written).unwrap();
    proxy.signal("HUP");
    let gone = poll(PATIENCE, || {
        let Err(fields) = Wire::try_connect(proxy.port(), "wire", "shop", &[]) else { return None };
        (fields.get(&'C').map(String::as_str) == Some("3D000")).then_some(())
    });
    assert!(gone.is_some(), "SIGHUP takes the route back: {}", proxy.log_tail());
}

#[test]
fn w26_an_engine_that_is_down_is_named() {
    let mut cluster = PgCluster::start(support::Options::default());
    cluster.create_db("shop");
    let proxy = with_extra(&cluster, "");
    let mut wire = Wire::connect(proxy.port(), "wire", "shop");
    assert_eq!(wire.query("SELECT 1").ok().cell(), "1");
    cluster.stop();
    let Err(fields) = Wire::try_connect(proxy.port(), "wire", "shop", &[]) else {
        panic!("there is no engine");
    };
    assert_eq!(fields[&'C'], "08001");
    assert!(fields[&'M'].contains("engine old"), "{}", fields[&'M']);
}

#[test]
fn w26_too_many_sessions_is_said_so_and_disturbs_nobody() {
    let cluster = PgCluster::shared();
    let db = cluster.fresh_db();
    let proxy = Proxy::start_with(ProxyOptions {
        engines: vec![Engine::plain("old", cluster)],
        proxy: "max_sessions = 2\n".to_owned(),
        ..ProxyOptions::default()
    });
    let mut first = Wire::connect(proxy.port(), "wire", &db);
    let second = Wire::connect(proxy.port(), "wire", &db);
    sessions_settle(&proxy, 2);
    assert_eq!(code_of(proxy.port(), &db), "53300");
    assert_eq!(first.query("SELECT 1").ok().cell(), "1");
    second.terminate();
    sessions_settle(&proxy, 1);
    let _third = Wire::connect(proxy.port(), "wire", &db);
}

#[test]
fn a_stop_lets_a_running_transaction_end_and_tells_the_rest() {
    let cluster = PgCluster::shared();
    let db = cluster.fresh_db();
    cluster.sql(&db, "CREATE TABLE t (a int); GRANT ALL ON t TO PUBLIC");
    let mut proxy = with_extra(cluster, "");
    let mut idle = Wire::connect(proxy.port(), "wire", &db);
    let mut busy = Wire::connect(proxy.port(), "wire", &db);
    busy.query("BEGIN").ok();
    busy.query("INSERT INTO t VALUES (1)").ok();
    proxy.signal("TERM");
    idle.expect_error("57P01");
    assert!(idle.closed_within(PATIENCE));
    busy.query("COMMIT").ok();
    busy.expect_error("57P01");
    assert_eq!(proxy.stop(), 0);
    assert_eq!(cluster.sql(&db, "SELECT count(*) FROM t").trim(), "1");
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    let cluster = PgCluster::shared();
    let db = cluster.fresh_db();
    cluster.sql(&db, "CREATE TABLE t (a int); GRANT ALL ON t TO PUBLIC");
    let mut proxy = with_extra(cluster, "");
    let mut wire = Wire::connect(proxy.port(), "wire", &db);
    wire.query("BEGIN").ok();
    wire.query("INSERT INTO t VALUES (1)").ok();
    proxy.signal("TERM");
    wire.expect_error("57P01");
    assert_eq!(proxy.stop(), 0);
    let gone =
        poll(PATIENCE, || (cluster.sql(&db, "SELECT count(*) FROM t").trim() == "0").then_some(()));
    assert!(gone.is_some());
}

#[test]
fn health_readiness_and_metrics_answer_and_metrics_need_the_key() {
    let cluster = PgCluster::shared();
    let db = cluster.fresh_db();
    let proxy = Proxy::start(cluster);
    let mut wire = Wire::connect(proxy.port(), "wire", &db);
    wire.query("SELECT 1").ok();
    let namespace = format!("old/{db}");
    assert_eq!(proxy.acquire(&namespace, &uuid(), &uuid(), &Value::Null).0, 200);
    assert_eq!(wire.query("CREATE TABLE t (a int)").code().as_deref(), Some("ZF001"));
    let get = |path: &str, key: Option<&str>| {
        let token = key.map(|key| format!("Bearer {key}")).unwrap_or_default();
        let headers = [("Authorization", token.as_str())];
        let headers = if key.is_some() { &headers[..] } else { &[] };
        support::http::request(proxy.admin_port(), "GET", path, headers, "").unwrap()
    };
    assert_eq!(get("/healthz", None).0, 200);
    assert_eq!(get("/readyz", None).0, 200);
    assert_eq!(get("/v1/fence/capabilities", None).0, 200);
    for path in ["/metrics", "/v1/namespaces", "/v1/sessions"] {
        assert_eq!(get(path, None).0, 401, "{path}");
        assert_eq!(get(path, Some("not the key, surely not")).0, 401, "{path}");
    }
    let (status, text) = get("/metrics", Some(&proxy.admin_key()));
    assert_eq!(status, 200);
    for name in [
        "fencewire_fence_transitions_total",
        "fencewire_fence_drain_duration_seconds",
        "fencewire_fence_denials_total",
        "fencewire_fence_namespaces",
        "fencewire_sessions",
    ] {
        assert!(text.contains(name), "{name} is missing:\n{text}");
    }
    assert!(!text.contains(&db), "no label names a database");
}

#[test]
fn secrets_are_not_in_the_log() {
    let cluster = PgCluster::shared();
    let db = cluster.fresh_db();
    let proxy = Proxy::start_with(ProxyOptions {
        engines: vec![Engine::plain("old", cluster)],
        env: vec![("RUST_LOG".to_owned(), "trace".to_owned())],
        ..ProxyOptions::default()
    });
    let password = [("password", "app")];
    // Role `app` logs in by SCRAM, which this client can't do: a refused login is logged too.
    let _refused =
        std::panic::catch_unwind(|| Wire::try_connect(proxy.port(), "app", &db, &password).is_ok());
    let operation = uuid();
    let (status, _) = proxy.acquire(&format!("old/{db}"), &operation, &uuid(), &Value::Null);
    assert_eq!(status, 200);
    let log = std::fs::read_to_string(proxy.log_file()).unwrap();
    assert!(log.contains(&operation), "the log is there, and has the audit event");
    assert!(!log.contains(&proxy.admin_key()), "the admin key is in the log");
    assert!(!log.contains("fencewire:fencewire@"), "the engine's password is in the log");
}

#[test]
fn the_log_says_at_the_start_whether_the_control_role_can_be_used() {
    let cluster = PgCluster::shared();
    let (good, bad) = ("the control role can be used", "no fence can be proven");
    let said = |engine: Engine, wanted: &str| {
        let proxy =
            Proxy::start_with(ProxyOptions { engines: vec![engine], ..ProxyOptions::default() });
        let log = || std::fs::read_to_string(proxy.log_file()).unwrap();
        let said = poll(PATIENCE, || Some(log()).filter(|log| log.contains(wanted)));
        said.unwrap_or_else(|| panic!("{wanted:?} is not in the log:\n{}", log()))
    };
    let log = said(Engine::plain("old", cluster), good);
    assert!(!log.contains(bad), "{log}");
    // The role exists and may log in, but sees no other sessions.
    let plain = format!("plain_{}", &uuid()[..8]);
    cluster.sql("postgres", &format!("CREATE ROLE {plain} LOGIN PASSWORD 'x'"));
    let known = cluster.control_url();
    let place = known.rsplit_once('@').unwrap().1;
    let url = format!("postgres://{plain}:x@{place}");
    let log = said(Engine { url, ..Engine::plain("old", cluster) }, bad);
    assert!(log.contains("GRANT pg_monitor") && !log.contains(good), "{log}");
}

/// What the system says of the timer of an established TCP connection of this machine, by its local
/// and remote port: its kind (2 is keepalive), and how many hundredths of a second are left.
fn timer(local: u16, remote: u16) -> Option<(u64, u64)> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = |address: &str| u16::from_str_radix(address.rsplit(':').next()?, 16).ok();
    table.lines().skip(1).find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let here = port(columns[1]) == Some(local) && port(columns[2]) == Some(remote);
        let (kind, left) = columns[5].split_once(':')?;
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        (here && columns[3] == "01").then(|| (number(kind), number(left)))
    })
}

/// A host that vanishes says nothing: the system must ask, and not only after two hours.
#[test]
fn both_connections_of_a_session_are_asked_whether_they_are_there() {
    let cluster = PgCluster::shared();
    let proxy = with_extra(cluster, "");
    let mut client = Wire::connect(proxy.port(), "wire", "postgres");
    let own = client.query("SELECT client_port FROM pg_stat_activity WHERE pid = pg_backend_pid()");
    let to_engine = (own.ok().cell().parse().unwrap(), cluster.port());
    let to_client = (proxy.port(), client.local_port());
    for (local, remote) in [to_engine, to_client] {
        let mut last = None;
        let asked = poll(3 * PATIENCE, || {
            last = timer(local, remote);
            last.filter(|(kind, left)| *kind == 2 && *left <= 6_000)
        });
        assert!(asked.is_some(), "{local} to {remote}: {last:?}");
    }
}
