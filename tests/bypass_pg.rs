//! Around the proxy, around the classifier, around the guard: what must not get past a fence.
//!
//! Orphans, direct sessions, functions that lift their own READ ONLY (engine lock), the guard and
//! what undoes it (W17, W18), refusals inside transactions (W9) and after a forced rollback (W12).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod support;

use std::sync::OnceLock;

use acceptance::{
    Latch, PATIENCE, Site, applied, blockers, code, fail_after, force_after, patient,
    still_draining,
};
use serde_json::json;
use support::proxy::uuid;
use support::wire::{Answer, bind, close, execute, flush, frame, parse, query, sync};
use support::{Engine, Options, PgCluster, Proxy, ProxyOptions, Wire, poll};

#[test]
fn orphan_an_insert_whose_client_is_gone_is_waited_for() {
    let site = Site::shared();
    let latch = Latch::shut(&site);
    let mut client = site.client();
    let pid = client.backend_pid();
    client.send_raw(&query(&format!("INSERT INTO t SELECT 1 FROM {}", Latch::WAIT)));
    site.wait_at_latch(pid);
    drop(client);
    let body = site.acquire_body(&uuid(), &patient());
    let answer = std::thread::scope(|scope| {
        let acquire = scope.spawn(|| site.acquire(&body));
        site.wait_blocked_by(pid);
        site.stays_draining(10);
        assert!(!acquire.is_finished(), "acknowledged while the engine is at it");
        assert_eq!(site.rows(), "");
        latch.open();
        acquire.join().unwrap()
    });
    applied(&answer);
    assert_eq!(site.rows(), "1", "the engine had it committed before the acknowledgement");
}

/// Nothing tells a client to wait for the end of its login: what it sends with it is there before
/// the relay is.
#[test]
fn statements_that_come_with_the_login_are_sorted_like_any_other() {
    let site = Site::shared();
    let asks = |sql: &str| {
        let mut startup = vec![0, 3, 0, 0];
        for text in ["user", "wire", "database", &site.db, ""] {
            startup.extend([text.as_bytes(), b"\0"].concat());
        }
        let length = u32::try_from(startup.len() + 4).unwrap().to_be_bytes();
        let mut client = Wire::open(site.proxy.port());
        client.send_raw(&[&length[..], &startup, &query(sql)].concat());
        client.until_ready().ok();
        client.until_ready()
    };
    assert_eq!(asks("SELECT 7").ok().cell(), "7");
    let operation = site.fence();
    assert_eq!(code(&asks("INSERT INTO t VALUES (1)")), "ZF001");
    assert_eq!(asks("SELECT 8").ok().cell(), "8");
    assert_eq!(site.rows(), "");
    site.unfence(&operation);
    asks("INSERT INTO t VALUES (2)").ok();
    assert_eq!(site.rows(), "2");
}

#[test]
fn direct_sessions_in_a_transaction_are_waited_for_whether_they_wrote_or_not() {
    let site = Site::shared();
    let operation = uuid();
    let mut wrote = site.direct();
    wrote.query("BEGIN; INSERT INTO t VALUES (1)").ok();
    let mut read = site.direct();
    read.query("BEGIN; SELECT n FROM t").ok();
    let body = site.acquire_body(&operation, &fail_after(300));
    let answer = site.acquire(&body);
    let seen = still_draining(&answer);
    for client in [&wrote, &read] {
        let pid = client.backend_pid();
        assert!(blockers(seen).iter().any(|b| b["engine_pid"] == pid), "{pid} in {seen:#}");
    }
    wrote.query("COMMIT").ok();
    let answer = site.acquire(&body);
    let left = blockers(still_draining(&answer));
    assert_eq!(left.len(), 1, "{left:#?}");
    assert_eq!(left[0]["engine_pid"], read.backend_pid());
    // Not force's business either: a direct session belongs to somebody else.
    read.query("INSERT INTO t VALUES (2)").ok();
    read.query("ROLLBACK").ok();
    site.acquire_at_last(&body);
    assert_eq!(site.rows(), "1");
}

#[test]
fn direct_writes_wait_while_the_fence_stands_and_go_on_after_it() {
    let site = Site::shared();
    site.setup(LIFTER);
    let operation = site.fence();
    assert_eq!(site.inspect()["fence"]["evidence"]["engine_lock"]["mode"], "hold");
    let mut clients = [site.direct(), site.direct(), site.direct()];
    let mut statements = [
        "INSERT INTO t VALUES (1)",
        "BEGIN READ ONLY; SELECT lift(2); COMMIT",
        "SET default_transaction_read_only = on; SELECT lift(3)",
    ];
    if site.cluster.version() >= 18 {
        statements[1] = "BEGIN READ WRITE; INSERT INTO t VALUES (2); COMMIT";
        statements[2] = "SET default_transaction_read_only = on; INSERT INTO t VALUES (3)";
    }
    for (client, sql) in clients.iter_mut().zip(statements) {
        client.send_raw(&query(sql));
    }
    for client in &clients {
        site.wait_for_lock(client.backend_pid());
    }
    assert_eq!(site.rows(), "");
    assert_eq!(site.direct().query("SELECT count(*) FROM t").ok().cell(), "0", "readers go on");
    site.unfence(&operation);
    clients[0].until_ready().ok();
    clients[1].until_ready().ok();
    // The string's own SET begins with the next transaction: this one was read-write anyway.
    clients[2].until_ready().ok();
    assert_eq!(site.rows(), "1,2,3");
}

/// A function that makes itself read-write on PostgreSQL 15, whatever the transaction is. 18
/// doesn't let it.
const LIFTER: &str = "
CREATE FUNCTION lift(v int) RETURNS int LANGUAGE plpgsql VOLATILE AS $f$
BEGIN RESET transaction_read_only; INSERT INTO t VALUES (v); RETURN v; END $f$;
CREATE VIEW lifted AS SELECT lift(9) AS n;
";

#[test]
fn a_view_that_lifts_its_own_read_only_is_stopped_at_the_engine_lock() {
    let site = Site::shared();
    site.setup(LIFTER);
    let operation = site.fence();
    let mut client = site.client();
    let called = code(&client.query("SELECT lift(8)"));
    assert_eq!(called, "ZF008", "a function that nothing is known of");
    if site.cluster.version() >= 18 {
        assert_eq!(code(&client.query("SELECT n FROM lifted")), "0A000", "the engine's own word");
        assert_eq!(site.rows(), "");
        return site.unfence(&operation);
    }
    // Nothing at the engine but the lock keeps it from writing; it isn't left waiting for that.
    let answer = client.query("SELECT n FROM lifted");
    assert_eq!((code(&answer).as_str(), answer.status), ("ZF001", 'I'), "{answer:?}");
    assert_eq!(site.rows(), "");
    client.query("SELECT count(*) FROM t").ok();
    site.unfence(&operation);
    assert_eq!(site.rows(), "");
}

#[test]
fn a_session_that_says_replication_off_in_its_own_way_has_the_guard() {
    let site = Site::shared();
    let values = ["OFF", "f", "no", "0"];
    let connect = |value| {
        let parameters = [("replication", value)];
        Wire::try_connect(site.proxy.port(), "wire", &site.db, &parameters).unwrap()
    };
    let mut clients = values.map(connect);
    let sql = "SHOW default_transaction_read_only";
    for client in &mut clients {
        assert_eq!(client.query(sql).ok().cell(), "off");
    }
    let operation = site.fence();
    for (client, value) in clients.iter_mut().zip(values) {
        assert_eq!(client.query(sql).ok().cell(), "on", "replication={value}");
    }
    site.unfence(&operation);
}

const LATE: &str = "
CREATE FUNCTION late() RETURNS int LANGUAGE plpgsql VOLATILE AS $f$
BEGIN PERFORM pg_advisory_xact_lock_shared(77); INSERT INTO t VALUES (1); RETURN 1; END $f$;
CREATE VIEW belated AS SELECT late() AS n;
";

/// A statement the classifier takes for a read runs, unguarded, since before the fence; its
/// function writes after the acknowledgement.
fn late_writer(site: &Site<'_>) -> (Wire, String) {
    site.setup(LATE);
    let latch = Latch::shut(site);
    let mut client = site.client();
    client.send_raw(&query("SELECT n FROM belated"));
    site.wait_at_latch(client.backend_pid());
    let operation = uuid();
    let body = site.acquire_body(&operation, &fail_after(1_000));
    let answer = site.acquire(&body);
    assert!(answer.0 == 200 || answer.0 == 202, "{answer:?}");
    let acknowledged = answer.0 == 200;
    latch.open();
    if !acknowledged {
        // It was waited for: once it has ended the fence can be proven.
        client.until_ready();
        site.acquire_at_last(&body);
    }
    (client, if acknowledged { "acknowledged".into() } else { operation })
}

#[test]
fn a_read_from_before_the_fence_that_turns_into_a_write_is_stopped_by_the_engine_lock() {
    let site = Site::shared();
    let (mut client, how) = late_writer(&site);
    if how == "acknowledged" {
        // It waits for the lock, and is stopped instead of being left hanging.
        let answer = client.until_ready();
        assert_eq!(code(&answer), "ZF001", "{answer:?}");
        assert_eq!(site.rows(), "", "written after the acknowledgement");
    }
}

#[test]
fn a_read_from_before_the_fence_can_not_write_where_there_is_no_engine_lock() {
    let cluster = PgCluster::shared();
    let proxy = Proxy::start_with(ProxyOptions {
        engines: vec![Engine::plain("old", cluster)],
        extra: "[fence]\nengine_lock = \"off\"\n".into(),
        ..ProxyOptions::default()
    });
    let site = Site::new(cluster, &proxy);
    let (mut client, how) = late_writer(&site);
    if how == "acknowledged" {
        let answer = client.until_ready();
        assert_eq!(site.rows(), "", "written after the acknowledgement: {answer:?}");
    }
}

#[test]
fn w09_a_refused_statement_takes_the_earlier_ones_of_its_pipeline_with_it() {
    let site = Site::shared();
    let one = |sql: &str| [parse("", sql), bind("", "", &[]), execute("", 0)].concat();
    let mut client = site.client();
    client.send_raw(&[one("INSERT INTO t VALUES (1)"), flush()].concat());
    let read: Vec<u8> = (0..3).map(|_| client.read_frame().0).collect();
    assert_eq!(read, b"12C");
    let mut block = site.client();
    block.query("BEGIN; INSERT INTO t VALUES (10)").ok();

    let operation = uuid();
    let policy = json!({ "deadline_ms": 0, "on_deadline": "fail", "in_flight": "refuse" });
    let body = site.acquire_body(&operation, &policy);
    still_draining(&site.acquire(&body));
    client.send_raw(&[one("INSERT INTO t VALUES (2)"), one("SELECT 3"), sync()].concat());
    let answer = client.until_ready();
    assert_eq!((code(&answer).as_str(), answer.status), ("ZF001", 'I'));
    assert_eq!(answer.frames.len(), 2, "{answer:?}");

    // The same for a string of statements in a transaction block.
    let answer = block.query("INSERT INTO t VALUES (11); COMMIT");
    assert_eq!((code(&answer).as_str(), answer.status), ("ZF001", 'E'));
    assert_eq!(block.query("COMMIT").ok().tags(), ["ROLLBACK"]);
    site.acquire_at_last(&body);
    assert_eq!(site.rows(), "");
}

#[test]
fn w09_savepoints_are_the_engines_own_behind_a_refusal() {
    let site = Site::shared();
    let mut client = site.client();
    client.query("BEGIN; INSERT INTO t VALUES (1); SAVEPOINT a").ok();
    let policy = json!({ "deadline_ms": 0, "on_deadline": "fail", "in_flight": "refuse" });
    let body = site.acquire_body(&uuid(), &policy);
    still_draining(&site.acquire(&body));
    let answer = client.query("INSERT INTO t VALUES (2)");
    assert_eq!((code(&answer).as_str(), answer.status), ("ZF001", 'E'));
    assert_eq!(client.query("ROLLBACK TO a").ok().status, 'T');
    assert_eq!(client.query("SELECT count(*) FROM t").ok().cell(), "1");
    // A writer from before may end: what it wrote before the fence is its own (W14).
    assert_eq!(client.query("COMMIT").ok().tags(), ["COMMIT"]);
    site.acquire_at_last(&body);
    assert_eq!(site.rows(), "1");
}

#[test]
fn w09_a_guarded_write_in_the_middle_of_a_string_fails_the_string() {
    let site = guarded_site();
    let operation = site.fence();
    let mut client = site.client();
    let answer = client.query("SELECT 1; SELECT n FROM writing; SELECT 2");
    assert_eq!((code(&answer).as_str(), answer.status), ("ZF001", 'I'));
    assert_eq!(answer.rows().len(), 1, "{answer:?}");
    assert_eq!(site.rows(), "");
    site.unfence(&operation);
}

#[test]
fn w12_a_transaction_the_fence_rolled_back_never_looks_committed() {
    let site = Site::shared();
    type Says<'a> = (&'a str, &'a dyn Fn(&mut Wire) -> Answer, &'a str, char);
    let sessions: [Says<'_>; 6] = [
        ("COMMIT", &|c| c.query("COMMIT"), "ZF009", 'I'),
        ("END, extended", &|c| c.extended("END", &[]), "ZF009", 'I'),
        ("PREPARE", &|c| c.query("PREPARE TRANSACTION 'never'"), "ZF009", 'I'),
        ("INSERT", &|c| c.query("INSERT INTO t VALUES (2)"), "ZF009", 'E'),
        ("string", &|c| c.query("SELECT 1; COMMIT"), "ZF009", 'E'),
        ("ROLLBACK", &|c| c.query("ROLLBACK"), "", 'I'),
    ];
    let mut clients: Vec<Wire> = sessions.iter().map(|_| site.client()).collect();
    for client in &mut clients {
        client.query("BEGIN; INSERT INTO t VALUES (1); SAVEPOINT a").ok();
        client.query("INSERT INTO t VALUES (1)").ok();
        client.query("SAVEPOINT b").ok();
    }
    applied(&site.acquire(&site.acquire_body(&uuid(), &force_after(0))));
    assert_eq!(site.rows(), "");
    for ((name, act, expected, status), client) in sessions.iter().zip(&mut clients) {
        let answer = act(client);
        let seen = (code(&answer), answer.status);
        assert_eq!(seen, ((*expected).to_owned(), *status), "{name}: {answer:?}");
        assert!(!answer.tags().iter().any(|t| t == "COMMIT"), "{name}: {answer:?}");
        if answer.status == 'E' {
            assert_eq!(
                code(&client.query("ROLLBACK TO a")),
                "3B001",
                "{name}: savepoints are gone"
            );
            assert_eq!(client.query("COMMIT").ok().tags(), ["ROLLBACK"], "{name}");
        }
        client.query("SELECT 1").ok();
    }
    assert_eq!(site.rows(), "");
    let prepared = "SELECT count(*) FROM pg_prepared_xacts WHERE gid = 'never'";
    assert_eq!(site.sql(prepared), "0");
}

/// A database whose view writes when it is read, behind a proxy that keeps no engine lock: the
/// guard alone must stop it.
fn guarded_site() -> Site<'static> {
    static UNLOCKED: OnceLock<Proxy> = OnceLock::new();
    let proxy = UNLOCKED.get_or_init(|| {
        Proxy::start_with(ProxyOptions {
            engines: vec![Engine::plain("old", PgCluster::shared())],
            extra: "[fence]\nengine_lock = \"confirm\"\n".into(),
            ..ProxyOptions::default()
        })
    });
    furnished(Site::new(PgCluster::shared(), proxy))
}

/// Adds views that write, a sequence and a procedure.
fn furnished(site: Site<'_>) -> Site<'_> {
    site.setup(
        "CREATE SEQUENCE s;
         CREATE FUNCTION w() RETURNS int LANGUAGE plpgsql VOLATILE AS
             $f$ BEGIN INSERT INTO t VALUES (66); RETURN 1; END $f$;
         CREATE VIEW writing AS SELECT w() AS n;
         CREATE FUNCTION counted() RETURNS int LANGUAGE sql VOLATILE AS
             $f$ SELECT nextval('s')::int $f$;
         CREATE VIEW counting AS SELECT counted() AS n;
         CREATE PROCEDURE p() LANGUAGE sql AS $f$ INSERT INTO t VALUES (67) $f$",
    );
    site
}

#[test]
fn guard_a_view_over_a_writing_function_is_refused_with_the_typed_code_in_every_form() {
    let site = guarded_site();
    let mut old = site.client();
    old.query("BEGIN; SELECT count(*) FROM t; SAVEPOINT a").ok();
    let mut cursor = site.client();
    cursor.query("BEGIN; DECLARE c CURSOR FOR SELECT n FROM writing").ok();
    let operation = site.fence();
    let mut client = site.client();
    for sql in [
        "SELECT n FROM writing",
        "TABLE counting",
        "COPY (SELECT n FROM writing) TO STDOUT",
        "EXPLAIN ANALYZE SELECT n FROM writing",
        "PREPARE p AS SELECT n FROM writing; EXECUTE p",
        "WITH x AS (SELECT n FROM writing) SELECT n FROM x",
    ] {
        let answer = client.query(sql);
        // The class of a name that the same string prepares isn't known yet.
        let expected = if sql.contains("EXECUTE") { "ZF008" } else { "ZF001" };
        assert_eq!((code(&answer).as_str(), answer.status), (expected, 'I'), "{sql}: {answer:?}");
        client.query("DISCARD ALL").ok();
        assert_eq!(code(&client.query(sql)), expected, "{sql}, behind DISCARD ALL");
        client.query("DISCARD ALL").ok();
    }
    assert_eq!(code(&client.extended("SELECT n FROM writing", &[])), "ZF001");
    client.query("BEGIN").ok();
    assert_eq!(code(&client.query("SELECT n FROM writing")), "ZF001");
    client.query("ROLLBACK").ok();
    // Transactions from before the fence, savepoints and cursors included.
    assert_eq!(code(&cursor.query("FETCH c")), "ZF001");
    cursor.query("ROLLBACK").ok();
    old.query("SELECT 1").ok();
    let answer = old.query("ROLLBACK TO a; SELECT n FROM writing");
    assert_eq!((code(&answer).as_str(), answer.status), ("ZF008", 'E'), "{answer:?}");
    old.query("ROLLBACK TO a").ok();
    assert_eq!(code(&old.query("SELECT n FROM writing")), "ZF001");
    old.query("ROLLBACK TO a").ok();
    let one = |sql: &str| [parse("", sql), bind("", "", &[]), execute("", 0)].concat();
    let both = [one("ROLLBACK TO a"), one("SELECT n FROM writing"), sync()].concat();
    old.send_raw(&both);
    let seen = code(&old.until_ready());
    assert!(["ZF001", "ZF008"].contains(&seen.as_str()), "{seen}");
    old.query("ROLLBACK").ok();
    assert_unchanged(&site);
    site.unfence(&operation);
}

#[test]
fn guard_a_view_that_writes_is_refused_and_not_left_hanging_by_the_engine_lock() {
    let site = furnished(Site::shared());
    let operation = site.fence();
    let mut client = site.client();
    client.send_raw(&query("SELECT n FROM writing"));
    // Its rows are described before it runs: the refusal comes behind that.
    let answer = client.until_ready();
    assert_eq!(code(&answer), "ZF001", "{answer:?}");
    assert_unchanged(&site);
    site.unfence(&operation);
}

#[track_caller]
fn assert_unchanged(site: &Site<'_>) {
    assert_eq!(site.rows(), "");
    assert_eq!(site.sql("SELECT last_value, is_called FROM s"), "1|f");
    assert_eq!(site.sql("SELECT count(*) FROM pg_largeobject_metadata"), "0");
}

#[test]
fn guard_nothing_a_client_can_say_switches_it_off() {
    let site = guarded_site();
    let operation = site.fence();
    // Strings, each followed by the view that writes, in the same string and in the next one.
    for undo in [
        "RESET ALL",
        "DISCARD ALL",
        "SET TRANSACTION READ WRITE",
        "BEGIN READ WRITE",
        "START TRANSACTION READ WRITE",
        "BEGIN ISOLATION LEVEL SERIALIZABLE, READ WRITE",
        "BEGIN; BEGIN READ WRITE",
        "BEGIN READ WRITE; SAVEPOINT a",
        "BEGIN; SAVEPOINT a; BEGIN READ WRITE",
        "BEGIN READ WRITE; COMMIT; BEGIN READ WRITE",
        "BEGIN READ WRITE; COMMIT AND CHAIN",
        "BEGIN; SET TRANSACTION READ WRITE",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
        "SET default_transaction_read_only = off",
        "SET \"default_transaction_read_only\" TO DEFAULT",
        "RESET default_transaction_read_only",
        "RESET transaction_read_only",
        "SELECT set_config('default_transaction_read_only', 'off', false)",
        "SELECT set_config('transaction_' || 'read_only', 'off', true)",
        "COMMIT AND CHAIN",
        "BEGIN; COMMIT; BEGIN",
        "DO $$ BEGIN COMMIT; SET TRANSACTION READ WRITE; END $$",
    ] {
        for view in ["writing", "counting"] {
            let mut client = site.client();
            let answer = client.query(&format!("{undo}; SELECT n FROM {view}"));
            let seen = code(&answer);
            assert!(!seen.is_empty(), "{undo} and {view} in one string: {answer:?}");
            let mut client = site.client();
            client.query(undo);
            let answer = client.query(&format!("SELECT n FROM {view}"));
            let seen = code(&answer);
            let fine = seen.starts_with("ZF") || seen == "25P02";
            assert!(fine, "{undo}, then {view}: {answer:?}");
            let mut client = site.client();
            let one = |sql: &str| [parse("", sql), bind("", "", &[]), execute("", 0)].concat();
            let view = format!("SELECT n FROM {view}");
            client.send_raw(&[one(undo), one(&view), sync()].concat());
            assert!(!code(&client.until_ready()).is_empty(), "{undo} and {view} in one pipeline");
            client.send_raw(&[one(undo), sync(), one(&view), sync()].concat());
            client.until_ready();
            assert!(!code(&client.until_ready()).is_empty(), "{undo} and {view} in two pipelines");
        }
        assert_unchanged(&site);
    }
    let port = site.proxy.port();
    for options in [
        "-c default_transaction_read_only=off",
        "--default-transaction-read-only=off",
        "-c default_transaction_isolation=serializable -cdefault_transaction_read_only=0",
    ] {
        let parameters = [("options", options)];
        let mut client = Wire::try_connect(port, "wire", &site.db, &parameters).unwrap();
        assert_eq!(code(&client.query("SELECT n FROM writing")), "ZF001", "{options}");
        client.query("DISCARD ALL").ok();
        assert_eq!(code(&client.query("SELECT n FROM counting")), "ZF001", "{options}");
    }
    assert_unchanged(&site);
    site.unfence(&operation);
}

#[test]
fn guard_what_read_only_mode_does_not_stop_is_refused_before_the_engine() {
    let site = guarded_site();
    site.sql("CREATE EXTENSION dblink");
    let nextval = site.sql("SELECT 'nextval(regclass)'::regprocedure::oid").parse::<u32>().unwrap();
    let operation = site.fence();
    let mut client = site.client();
    let address = format!("port={} user=wire dbname={}", site.cluster.port(), site.db);
    for sql in [
        "SELECT nextval('s')",
        "SELECT setval('s', 100)",
        "SELECT lo_create(0)",
        "SELECT lo_from_bytea(0, 'x')",
        &format!("SELECT dblink_exec('host=127.0.0.1 {address}', 'INSERT INTO t VALUES (1)')"),
        &format!("SELECT * FROM dblink('{address}', 'SELECT 1') AS d(n int)"),
        "DO $$ BEGIN PERFORM 1; END $$",
        "CALL p()",
        "COPY t TO PROGRAM 'cat >/dev/null'",
        "COPY t TO '/dev/null'",
        "SELECT pg_logical_emit_message(false, 'x', 'y')",
        "SELECT pg_create_restore_point('x')",
        "SELECT txid_current()",
        "SELECT pg_notify('c', 'x')",
        "SELECT query_to_xml('INSERT INTO t VALUES (1) RETURNING n', true, true, '')",
        "LOAD 'auto_explain'",
        "LOCK TABLE t IN ACCESS EXCLUSIVE MODE",
    ] {
        let answer = client.query(sql);
        let seen = code(&answer);
        assert!(["ZF001", "ZF008"].contains(&seen.as_str()), "{sql}: {answer:?}");
        assert_eq!(answer.status, 'I', "{sql}");
        let answer = client.extended(sql, &[]);
        assert!(code(&answer).starts_with("ZF"), "{sql}, extended: {answer:?}");
    }
    // FunctionCall of nextval: no text that could be classified.
    let mut call = nextval.to_be_bytes().to_vec();
    call.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1, b's', 0, 0]);
    client.send_raw(&frame(b'F', &call));
    let answer = client.until_ready();
    assert_eq!((code(&answer).as_str(), answer.status), ("ZF001", 'I'), "{answer:?}");
    assert_unchanged(&site);
    site.unfence(&operation);
}

#[test]
fn guard_the_sessions_own_setting_comes_back_and_the_client_never_sees_it_move() {
    let site = Site::shared();
    let show = "SHOW default_transaction_read_only";
    let mut plain = site.client();
    let mut own = site.client();
    let answer = own.query("SET default_transaction_read_only = on").ok();
    assert!(answer.frames.iter().any(|f| f.0 == b'S'), "the client's own SET is reported");
    let mut idle = site.client();
    let operation = site.fence();
    let unmoved = |answer: &Answer| {
        assert!(!answer.frames.iter().any(|f| f.0 == b'S'), "{answer:?}");
        assert_eq!(answer.frames.iter().filter(|f| f.0 == b'Z').count(), 1);
    };
    for client in [&mut plain, &mut own] {
        for sql in ["SELECT 1", "BEGIN", "SELECT 2", "COMMIT", ""] {
            unmoved(&client.query(sql).ok());
        }
        unmoved(&client.extended("SELECT 3", &[]).ok());
        client.send_raw(&[close(b'S', "none"), sync()].concat());
        unmoved(&client.until_ready().ok());
    }
    let mut late = site.client();
    assert_eq!(late.parameters["default_transaction_read_only"], "off");
    late.query("SELECT 1").ok();
    site.unfence(&operation);
    for (client, value) in [(&mut plain, "off"), (&mut own, "on"), (&mut late, "off")] {
        let answer = client.query(show).ok();
        unmoved(&answer);
        assert_eq!(answer.cell(), value);
    }
    assert_eq!(idle.query(show).ok().cell(), "off");
    plain.query("INSERT INTO t VALUES (1)").ok();
    assert_eq!(code(&own.query("INSERT INTO t VALUES (2)")), "25006");
    // A transaction begun under the fence keeps its mode, one begun after it is as ever.
    assert_eq!(plain.query("SHOW transaction_read_only").ok().cell(), "off");
    assert!(plain.try_read_frame(PATIENCE / 600).unwrap().is_none(), "a frame nobody asked for");
    assert_eq!(site.rows(), "1");
}

/// Moves what every session of an engine goes back to, as an operator's freeze does.
#[track_caller]
fn freeze(site: &Site<'_>, on: &str) {
    site.sql(&format!("ALTER SYSTEM SET default_transaction_read_only = {on}"));
    site.sql("SELECT pg_reload_conf()");
    site.wait_sql("SHOW default_transaction_read_only", on);
}

/// A session comes to have this default, and the engine takes its writes accordingly.
#[track_caller]
fn comes_to(client: &mut Wire, on: &str, what: &str) {
    let mut last = String::new();
    let seen = poll(PATIENCE, || {
        last = client.query("SHOW default_transaction_read_only").ok().cell();
        (last == on).then_some(())
    });
    assert!(seen.is_some(), "{what}: its default is {last}, not {on}");
    let refused = if on == "on" { "25006" } else { "" };
    assert_eq!(code(&client.query("INSERT INTO t VALUES (1)")), refused, "{what}");
}

#[test]
fn guard_leaves_a_session_to_the_engines_default_whatever_that_has_become() {
    let cluster = PgCluster::start(Options::default());
    let engines = vec![Engine::plain("old", &cluster)];
    let proxy = Proxy::start_with(ProxyOptions { engines, ..ProxyOptions::default() });
    let site = Site::new(&cluster, &proxy);
    for (before, behind) in [("off", "on"), ("on", "off")] {
        freeze(&site, before);
        let [mut read, mut unguarded, mut own, mut forgets] = [(); 4].map(|()| site.client());
        let options = format!("-c default_transaction_read_only={before}");
        let parameters = [("options", options.as_str())];
        let mut started = Wire::try_connect(proxy.port(), "wire", &site.db, &parameters).unwrap();
        // What the session says itself is its own, also where nothing changes by it.
        own.query(&format!("SET default_transaction_read_only = {before}")).ok();
        forgets.query(&format!("SET default_transaction_read_only = {before}")).ok();
        forgets.query("DISCARD ALL").ok();
        unguarded.query("SELECT 1").ok();
        let operation = site.fence();
        for client in [&mut read, &mut own, &mut forgets, &mut started] {
            client.query("SELECT 1").ok();
            client.query("BEGIN; SAVEPOINT a").ok();
            assert_eq!(code(&client.query("SELECT 1/0")), "22012");
            client.query("ROLLBACK TO a").ok();
            client.query("SELECT 2").ok();
            client.query("ROLLBACK").ok();
        }
        freeze(&site, behind);
        read.query("SELECT 3").ok();
        site.unfence(&operation);
        comes_to(&mut unguarded, behind, "control arm: it was never guarded");
        comes_to(&mut read, behind, "it read under the fence");
        comes_to(&mut forgets, behind, "it has taken its own back");
        comes_to(&mut own, before, "it has set its own");
        comes_to(&mut started, before, "it was started with its own");
        // And for the rest of its life.
        for value in [before, behind] {
            freeze(&site, value);
            comes_to(&mut read, value, "long after the fence");
        }
    }
}

/// Drivers begin so (Go's lib/pq every transaction that isn't read-only).
const READ_WRITE: [&str; 3] = [
    "BEGIN READ WRITE",
    "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE",
    "START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE",
];

#[test]
fn a_read_write_block_that_only_reads_does_not_hold_up_a_drain() {
    let site = Site::shared();
    let [mut reads, mut writes] = [(); 2].map(|()| site.client());
    for client in [&mut reads, &mut writes] {
        client.query("BEGIN READ WRITE").ok();
        client.query("SELECT count(*) FROM t").ok();
    }
    writes.query("INSERT INTO t VALUES (1)").ok();
    let body = site.acquire_body(&uuid(), &fail_after(300));
    let answer = site.acquire(&body);
    let left = blockers(still_draining(&answer));
    assert_eq!(left.len(), 1, "{left:#?}");
    assert_eq!(left[0]["engine_pid"], writes.backend_pid(), "the one that wrote: control arm");
    writes.query("COMMIT").ok();
    site.acquire_at_last(&body);
    assert_eq!(reads.query("SELECT count(*) FROM t").ok().cell(), "1");
    assert_eq!(code(&reads.query("INSERT INTO t VALUES (2)")), "ZF001");
    reads.query("ROLLBACK").ok();
    assert_eq!(site.rows(), "1");
}

/// What a COMMIT runs: a deferred trigger of a temporary table, to which read-only mode lets a
/// function write.
const DEFERRED: &str = "
CREATE FUNCTION deferred() RETURNS trigger LANGUAGE plpgsql VOLATILE AS
    $f$ BEGIN PERFORM nextval('s'); RETURN NULL; END $f$;
CREATE FUNCTION filled() RETURNS int LANGUAGE plpgsql VOLATILE AS
    $f$ BEGIN INSERT INTO mine VALUES (1); RETURN 1; END $f$;
CREATE VIEW filling AS SELECT filled() AS n;
";

fn with_temporary(site: &Site<'_>) -> Wire {
    let mut client = site.client();
    client.query("CREATE TEMPORARY TABLE mine (n int) ON COMMIT DELETE ROWS").ok();
    let trigger = "CREATE CONSTRAINT TRIGGER d AFTER INSERT ON mine DEFERRABLE INITIALLY DEFERRED \
                   FOR EACH ROW EXECUTE FUNCTION deferred()";
    client.query(trigger).ok();
    client
}

#[test]
fn guard_a_read_write_block_under_a_fence_reads_and_changes_nothing() {
    let site = guarded_site();
    site.setup(DEFERRED);
    let mut client = with_temporary(&site);
    for (name, sql) in [("b", "BEGIN READ WRITE"), ("s", "SAVEPOINT a"), ("c", "COMMIT")] {
        client.send_raw(&[parse(name, sql), sync()].concat());
        client.until_ready().ok();
    }
    let operation = site.fence();
    let runs = |name: &str| [bind("", name, &[]), execute("", 0)].concat();
    for (number, begin) in READ_WRITE.into_iter().chain(["", "BEGIN; BEGIN READ WRITE"]).enumerate()
    {
        let begin_it = |client: &mut Wire| match begin {
            "" => {
                client.send_raw(&[runs("b"), sync()].concat());
                client.until_ready().ok();
            }
            text => assert_eq!(client.query(text).ok().status, 'T', "{text}"),
        };
        begin_it(&mut client);
        client.query("SELECT count(*) FROM t").ok();
        assert_eq!(client.query("SHOW transaction_read_only").ok().cell(), "on");
        client.query("COMMIT").ok();
        for sql in ["SELECT n FROM writing", "SELECT n FROM counting", "INSERT INTO t VALUES (1)"] {
            begin_it(&mut client);
            assert_eq!(code(&client.query(sql)), "ZF001", "{begin:?} {number}, {sql}");
            client.query("ROLLBACK").ok();
        }
        for unmade in ["SET TRANSACTION READ WRITE", "BEGIN READ WRITE; SELECT n FROM counting"] {
            begin_it(&mut client);
            let seen = code(&client.query(unmade));
            assert!(seen.starts_with("ZF"), "{begin:?}, {unmade}: {seen}");
            client.query("ROLLBACK").ok();
        }
        // Savepoints, and what is begun anew in them.
        begin_it(&mut client);
        client.query("SAVEPOINT a").ok();
        assert_eq!(code(&client.query("SELECT n FROM counting")), "ZF001");
        client.query("ROLLBACK TO a").ok();
        client.query("RELEASE a").ok();
        assert_eq!(code(&client.query("SELECT n FROM counting")), "ZF001");
        client.query("ROLLBACK").ok();
        // What the COMMIT runs.
        begin_it(&mut client);
        let hold = "DECLARE c CURSOR WITH HOLD FOR SELECT n FROM counting";
        assert_eq!(code(&client.query(hold)), "ZF001");
        client.query("ROLLBACK").ok();
        for savepoint in [false, true] {
            begin_it(&mut client);
            if savepoint {
                client.query("SAVEPOINT a").ok();
            }
            client.query("SELECT n FROM filling").ok();
            assert_eq!(code(&client.query("COMMIT")), "ZF001", "{begin:?}, {savepoint}");
        }
    }
    // In one pipeline, by names as well.
    for pipeline in [
        vec![runs("b"), runs("s")],
        vec![runs("b"), runs("c"), runs("b"), runs("s")],
        vec![parse("", "BEGIN READ WRITE"), runs(""), runs("s")],
        vec![runs("b"), parse("", "SELECT n FROM counting"), runs("")],
    ] {
        client.send_raw(&[pipeline.concat(), sync()].concat());
        assert_eq!(code(&client.until_ready()), "ZF008");
        client.query("ROLLBACK").ok();
    }
    assert_unchanged(&site);
    site.unfence(&operation);
    // Control arm: with the gate open the COMMIT does run it.
    client.query("BEGIN READ WRITE; SAVEPOINT a").ok();
    client.query("SELECT n FROM filling").ok();
    client.query("COMMIT").ok();
    assert_eq!(site.sql("SELECT is_called FROM s"), "t");
}

/// With the session's default lifted, what is begun behind an end is read-write at its top; in one
/// program with that no savepoint is set, which would keep the guard of all that follows.
#[test]
fn guard_behind_an_end_in_one_program_no_savepoint_is_set() {
    let site = guarded_site();
    site.setup(DEFERRED);
    site.setup(
        "CREATE FUNCTION lifts() RETURNS text LANGUAGE sql AS
             $f$ SELECT set_config('default_transaction_read_only', 'off', false) $f$;
         CREATE VIEW lifting AS SELECT lifts() AS n;",
    );
    let mut client = with_temporary(&site);
    let operation = site.fence();
    let one = |sql: &str| [parse("", sql), bind("", "", &[]), execute("", 0)].concat();
    for (before, text) in [
        ("", "RESET ALL; COMMIT; BEGIN; SAVEPOINT a"),
        ("BEGIN; RESET ALL", "COMMIT; BEGIN; SAVEPOINT a"),
        ("BEGIN; RESET ALL", "ROLLBACK; BEGIN; SAVEPOINT a"),
        ("", "SELECT n FROM lifting; COMMIT; BEGIN; SAVEPOINT a"),
        ("BEGIN", "SELECT n FROM lifting; COMMIT; BEGIN; SAVEPOINT a"),
    ] {
        for piped in [false, true] {
            for sql in before.split("; ").filter(|sql| !sql.is_empty()) {
                client.query(sql).ok();
            }
            let seen = if piped {
                let all: Vec<u8> = text.split("; ").flat_map(one).collect();
                client.send_raw(&[all, sync()].concat());
                code(&client.until_ready())
            } else {
                code(&client.query(text))
            };
            assert_eq!(seen, "ZF008", "{before}, then {text}; piped: {piped}");
            // What a client that goes on regardless would have run.
            client.query("SELECT n FROM filling");
            client.query("COMMIT");
            client.query("ROLLBACK");
        }
    }
    assert_unchanged(&site);
    // The savepoint in a program of its own has the guard in front.
    client.query("BEGIN").ok();
    client.query("RESET ALL").ok();
    client.query("COMMIT; BEGIN").ok();
    client.query("SAVEPOINT a").ok();
    client.query("SELECT n FROM filling").ok();
    assert_eq!(code(&client.query("COMMIT")), "ZF001");
    assert_unchanged(&site);
    site.unfence(&operation);
}

/// By DO and CALL as by SET: it isn't the guard's to take.
#[test]
fn a_session_that_has_made_itself_read_only_by_code_stays_so_behind_a_fence() {
    let site = guarded_site();
    let body = "BEGIN SET default_transaction_read_only = on; END";
    site.setup(&format!("CREATE PROCEDURE reader() LANGUAGE plpgsql AS $f$ {body} $f$;"));
    for text in [format!("DO $f$ {body} $f$"), "CALL reader()".to_owned()] {
        let mut client = site.client();
        client.query(&text).ok();
        assert_eq!(code(&client.query("INSERT INTO t VALUES (1)")), "25006", "{text}");
        let operation = site.fence();
        client.query("SELECT count(*) FROM t").ok();
        site.unfence(&operation);
        assert_eq!(code(&client.query("INSERT INTO t VALUES (1)")), "25006", "{text}");
        client.query("RESET default_transaction_read_only").ok();
        client.query("BEGIN; INSERT INTO t VALUES (1); ROLLBACK").ok();
    }
}

#[test]
fn a_long_text_in_another_database_is_none_of_the_fences_for_a_word_in_it() {
    let (fenced, other) = (Site::shared(), Site::shared());
    other.setup("CREATE TABLE doc (a text)");
    let operation = fenced.fence();
    let insert =
        |word: &str| format!("INSERT INTO doc VALUES ('{}')", word.repeat(1_200_000 / word.len()));
    let mut client = other.client();
    client.extended(&insert("alter ego "), &[]).ok();
    client.query(&insert("other ego ")).ok();
    // A string of statements may hold one about the fenced database further on.
    assert_eq!(code(&client.query(&insert("alter ego "))), "ZF008");
    let alter = format!("ALTER DATABASE \"{}\" SET work_mem = '1MB' -- ", fenced.db);
    let text = format!("{alter}{}", "x".repeat(1_200_000));
    assert_eq!(code(&client.extended(&text, &[])), "ZF008");
    assert_eq!(other.sql("SELECT count(*) FROM doc"), "2");
    fenced.unfence(&operation);
}
