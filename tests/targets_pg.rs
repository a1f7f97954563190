//! Acceptance 17 and 18 of the fence contract on a real PostgreSQL: targets, from creation to their
//! first write, and 10 and 11 for their commands. Import sessions are the wire's own suites'.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod support;
mod targets;

use std::sync::atomic::{AtomicU32, Ordering};

use acceptance::sweep::{Park, send};
use acceptance::{Site, applied, code, fail_after, shared_proxy};
use serde_json::{Value, json};
use support::proxy::uuid;
use support::{Engine, Options, PgCluster, Proxy, ProxyOptions, Wire, poll};
use targets::{
    ABORT, ABORTED, ABORTS, CREATE, CREATES, DRAINING, ENABLE, ENABLES, PATIENCE, PUBLISH,
    PUBLISHES, QUARANTINED, SEAL, SEALS, Target, VALIDATE, VALIDATES, VALIDATING, WRITABLE, admits,
    refused, sweep,
};

/// A name that no database has.
fn unused() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    format!("old/target{}", COUNT.fetch_add(1, Ordering::SeqCst))
}

fn database(target: &Target) -> &str {
    target.namespace.strip_prefix("old/").unwrap()
}

/// What somebody meets who connects through the proxy and runs one statement.
fn meets(proxy: &Proxy, database: &str, user: &str, sql: &str) -> String {
    match Wire::try_connect(proxy.port(), user, database, &[]) {
        Ok(mut client) => code(&client.query(sql)),
        Err(failed) => format!("{failed:?}"),
    }
}

/// The owner of the fresh database, so that writes to it fail by the fence and by nothing else.
fn owned() -> Value {
    json!({ "owner": "app", "encoding": "UTF8", "locale": "C" })
}

fn created(proxy: &Proxy) -> Target {
    let target = Target::new(&unused());
    let body = target.body("ABSENT", 0, &owned());
    target.applies(proxy, CREATE, &body);
    target
}

/// What an import does, by a session around the proxy.
fn fill(target: &Target, sql: &str) {
    PgCluster::shared().sql(database(target), &format!("SET ROLE app; {sql}"));
}

#[test]
fn acceptance_17_a_target_is_made_behind_a_closed_gate() {
    let cluster = PgCluster::start(Options::default());
    let proxy = &Proxy::start(&cluster);
    let target = created(proxy);
    let fence = target.inspect(proxy);
    assert_eq!((&fence["state"], &fence["role"]), (&json!(QUARANTINED), &json!("TARGET")));
    assert!(fence["incarnation"]["target_incarnation_id"].is_string(), "{fence:#}");
    let made = "SELECT pg_get_userbyid(datdba), pg_encoding_to_char(encoding), datcollate \
                FROM pg_database WHERE datname = current_database()";
    assert_eq!(cluster.sql(database(&target), made), "app|UTF8|C");
    // A superuser is nobody special here.
    for role in ["NOSUPERUSER", "SUPERUSER"] {
        cluster.sql("postgres", &format!("ALTER ROLE wire {role}"));
        for sql in ["SELECT 1", "CREATE TABLE t (n int)", "SHOW work_mem", "BEGIN", "VACUUM"] {
            assert_eq!(meets(proxy, database(&target), "wire", sql), "ZF004", "{role}: {sql}");
        }
    }
    // Nor from another database.
    let site = Site::new(&cluster, proxy);
    for sql in [
        format!("DROP DATABASE {}", database(&target)),
        format!("ALTER DATABASE {} SET work_mem = '8MB'", database(&target)),
        format!("CREATE DATABASE copy TEMPLATE {}", database(&target)),
    ] {
        assert!(code(&site.client().query(&sql)).starts_with("ZF00"), "{sql}");
    }
}

#[test]
fn acceptance_17_nobody_comes_in_while_a_target_is_created() {
    let mut proxy = Proxy::start(PgCluster::shared());
    for point in ["after_overlay", "after_first_marker", "after_create", "before_publish"] {
        let target = Target::new(&unused());
        let step = format!("control.create_target.{point}");
        let park = Park::arm(&mut proxy, &step);
        let body = target.body("ABSENT", 0, &owned());
        let sent = send(&proxy, &target.namespace, &format!("target/{CREATE}"), &body);
        park.reached();
        let there = !matches!(point, "after_overlay" | "after_first_marker");
        for sql in ["SELECT 1", "CREATE TABLE t (n int)"] {
            let seen = meets(&proxy, database(&target), "wire", sql);
            let wanted = if there { "ZF004" } else { "3D000" };
            assert!(seen.contains(wanted), "{point}: {sql} got {seen}");
        }
        let listed = proxy.admin("GET", "/v1/namespaces", &Value::Null).1;
        let line = listed["namespaces"].as_array().unwrap().iter();
        let line = line.clone().find(|line| line["namespace"] == json!(target.namespace)).unwrap();
        assert_eq!(line["state"], QUARANTINED, "{point}");
        assert_eq!(line["admission"]["read"], "closed", "{point}");
        park.open();
        assert_eq!(sent.join().unwrap().unwrap().0, 200, "{point}");
        assert_eq!(meets(&proxy, database(&target), "wire", "SELECT 1"), "ZF004", "{point}");
    }
}

/// A client who comes while the database is there and nothing is committed yet.
fn slips_in(removed: Option<&str>) -> bool {
    let mut proxy = Proxy::start(PgCluster::shared());
    let more: Vec<_> = removed.map(|guard| ("FENCEWIRE_REMOVE", guard)).into_iter().collect();
    let park = Park::arm_with(&mut proxy, "control.create_target.after_create", &more);
    let target = Target::new(&unused());
    let body = target.body("ABSENT", 0, &owned());
    let sent = send(&proxy, &target.namespace, &format!("target/{CREATE}"), &body);
    park.reached();
    let seen = meets(&proxy, database(&target), "wire", "SELECT 1");
    park.open();
    sent.join().unwrap();
    seen.is_empty()
}

#[test]
fn acceptance_25_a_creation_without_its_overlay_lets_somebody_in() {
    assert!(!slips_in(None));
    assert!(slips_in(Some("target-overlay")), "the guard's absence must be noticed");
}

/// A proxy that dies once the database is there; whether a client of the next one gets in.
fn open_after_a_crash(removed: Option<&str>) -> bool {
    let mut proxy = Proxy::start(PgCluster::shared());
    proxy.kill9();
    let fault = ("FENCEWIRE_FAULT", "control.create_target.after_create=abort");
    let more = removed.map(|guard| ("FENCEWIRE_REMOVE", guard));
    proxy.set_env(&[fault].into_iter().chain(more).collect::<Vec<_>>());
    proxy.restart();
    let target = Target::new(&unused());
    let body = target.body("ABSENT", 0, &owned());
    targets::dies(&mut proxy, &target.path(CREATE), &body, "after_create");
    meets(&proxy, database(&target), "wire", "SELECT 1").is_empty()
}

#[test]
fn acceptance_25_a_creation_without_its_marker_is_open_after_a_crash() {
    assert!(!open_after_a_crash(None));
    assert!(open_after_a_crash(Some("target-marker")), "the guard's absence must be noticed");
}

#[test]
fn acceptance_17_a_database_that_somebody_has_put_anything_into_is_not_taken_for_a_new_one() {
    let mut proxy = Proxy::start(PgCluster::shared());
    let fault = ("FENCEWIRE_FAULT", "control.create_target.after_create=abort");
    for (sql, taken) in [
        ("SELECT 1", false),
        ("CREATE TYPE e AS ENUM ('a')", true),
        ("CREATE DOMAIN d AS int", true),
        ("CREATE SCHEMA s", true),
        ("SELECT lo_create(0)", true),
    ] {
        proxy.kill9();
        proxy.set_env(&[fault]);
        proxy.restart();
        let target = Target::new(&unused());
        let body = target.body("ABSENT", 0, &owned());
        targets::dies(&mut proxy, &target.path(CREATE), &body, "after_create");
        fill(&target, sql);
        let answer = target.send(&proxy, CREATE, &body);
        if taken {
            let refusal = refused(&answer, 412, "FENCE_PRECONDITION_FAILED");
            assert_eq!(refusal["detail"], "namespace_exists", "{sql}");
        } else {
            applied(&answer);
        }
    }
}

#[test]
fn acceptance_17_a_name_that_is_taken_is_refused_and_left_alone() {
    let site = Site::shared();
    let target = Target::new(&site.namespace());
    let answer = target.send(site.proxy, CREATE, &target.step(CREATE));
    assert_eq!(refused(&answer, 412, "FENCE_PRECONDITION_FAILED")["detail"], "namespace_exists");
    site.client().query("INSERT INTO t VALUES (1)").ok();
    assert_eq!(site.rows(), "1");
}

#[test]
fn what_the_engine_refuses_is_told_in_its_words_and_leaves_the_name_free() {
    let proxy = shared_proxy();
    let target = Target::new(&unused());
    for (option, value, says) in [
        ("owner", "nobody-such", "nobody-such"),
        ("encoding", "KLINGON", "KLINGON"),
        ("locale", "xx_YY", "locale"),
        ("template", "postgres", "starts empty"),
    ] {
        let body = target.body("ABSENT", 0, &json!({ option: value }));
        let answer = target.send(proxy, CREATE, &body);
        let error = refused(&answer, 412, "FENCE_PRECONDITION_FAILED")["error"].to_string();
        assert!(error.contains(says), "{option}: {error}");
        let path = format!("/v1/namespaces/{}/fence", target.namespace);
        assert_eq!(proxy.admin("GET", &path, &Value::Null).0, 404, "{option}");
    }
    target.does(proxy, CREATE);
}

#[test]
fn acceptance_17_an_orchestrators_whole_run() {
    let proxy = shared_proxy();
    let source = Site::shared();
    source.client().query("INSERT INTO t VALUES (1), (2), (3)").ok();
    let operation = source.fence();
    let target = Target { operation: operation.clone(), ..Target::new(&unused()) };
    let body = target.body("ABSENT", 0, &owned());
    target.applies(proxy, CREATE, &body);
    let (status, issued) = target.capability(proxy, "import", 1);
    assert_eq!((status, &issued["operation_id"]), (200, &json!(operation)));
    let secret = issued["secret"].as_str().unwrap().to_owned();
    assert!(secret.starts_with("fwc_"));
    fill(&target, "CREATE TABLE t (n int); INSERT INTO t VALUES (1), (2), (3)");

    let sealed = target.does(proxy, SEAL);
    assert_eq!((&sealed["state"], &sealed["revision"]), (&json!(VALIDATING), &json!(3)));
    let evidence = &sealed["evidence"];
    assert_eq!(evidence["engine_lock"]["mode"], "confirm", "{evidence:#}");
    assert!(evidence["engine_lock"]["gaps"].to_string().contains("not kept locked"));
    assert_eq!(evidence["boundary"]["kind"], "lsn");
    refused(&target.capability(proxy, "import", 3), 403, "OPERATION_CAPABILITY_REQUIRED");

    let compare = "SELECT count(*), sum(n) FROM t";
    let (status, found) = target.ask(proxy, 3, &[compare]);
    assert_eq!((status, &found["results"][0]["rows"]), (200, &json!([["3", "6"]])), "{found:#}");
    assert_eq!(source.client().query(compare).ok().cell(), "3", "the source is still read");
    let early = target.send(proxy, PUBLISH, &target.body(VALIDATING, 3, &Value::Null));
    let detail = &refused(&early, 412, "FENCE_PRECONDITION_FAILED")["detail"];
    assert_eq!(detail, "validation_receipt_required");
    let validated = target.does(proxy, VALIDATE);
    assert_eq!(validated["validation"]["snapshot"]["kind"], "lsn", "{validated:#}");
    let mut client = Wire::connect(proxy.port(), "wire", database(&target));
    assert_eq!(code(&client.query("SELECT n FROM t")), "ZF004");

    target.does(proxy, PUBLISH);
    assert_eq!(client.query("SELECT count(*) FROM t").ok().cell(), "3");
    assert_eq!(code(&client.query("INSERT INTO t VALUES (4)")), "ZF001");
    let mut old = Wire::connect(proxy.port(), "wire", database(&target));
    old.query("BEGIN; SELECT n FROM t").ok();
    target.does(proxy, ENABLE);
    assert_eq!(code(&old.query("INSERT INTO t VALUES (5)")), "ZF002", "older than the opening");
    old.query("ROLLBACK").ok();
    client.query("INSERT INTO t VALUES (4)").ok();
    assert_eq!(client.query("SELECT count(*) FROM t").ok().cell(), "4");
    let undo = target.send(proxy, ABORT, &target.body(WRITABLE, 6, &Value::Null));
    assert_eq!(refused(&undo, 409, "INVALID_FENCE_TRANSITION")["detail"], "operation_finished");
    assert_eq!(code(&source.client().query("INSERT INTO t VALUES (9)")), "ZF001");

    // The secret was shown once, and is nowhere.
    let random = secret.strip_prefix("fwc_").unwrap();
    let log = std::fs::read_to_string(proxy.log_file()).unwrap();
    assert!(log.contains("namespace_fence_capability") && !log.contains(random));
    for file in std::fs::read_dir(proxy.state_dir()).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains(random), "{}", path.display());
        }
    }
    source.unfence(&operation);
}

#[test]
fn acceptance_18_a_seal_waits_for_an_open_write_and_cannot_be_undone() {
    let proxy = shared_proxy();
    let target = created(proxy);
    fill(&target, "CREATE TABLE t (n int)");
    let mut direct = Wire::connect(PgCluster::shared().port(), "wire", database(&target));
    direct.query("BEGIN; INSERT INTO t VALUES (1)").ok();
    let policy = json!({ "drain_policy": fail_after(0) });
    let body = target.body(QUARANTINED, 1, &policy);
    let (status, answer) = target.send(proxy, SEAL, &body);
    assert_eq!((status, &answer["fence"]["state"]), (202, &json!(DRAINING)), "{answer:#}");
    // The session that filled it may be on its way out, and be named beside it.
    let named = poll(PATIENCE, || {
        let (status, answer) = target.send(proxy, SEAL, &body);
        assert_eq!(status, 202, "{answer:#}");
        let pid = json!(direct.backend_pid());
        let mut blockers = answer["drain"]["blockers"].as_array().unwrap().iter();
        blockers.any(|one| one["engine_pid"] == pid).then_some(())
    });
    assert!(named.is_some(), "the open write was never named");
    for _ in 0..3 {
        assert_eq!(target.send(proxy, SEAL, &body).0, 202, "no time ends it");
    }
    direct.query("COMMIT").ok();
    let applied = poll(PATIENCE, || {
        let answer = target.send(proxy, SEAL, &body);
        (answer.0 == 200).then_some(answer.1)
    });
    assert_eq!(applied.unwrap()["fence"]["state"], VALIDATING);
    // It was given back: what replicates into a target goes on. Told in the evidence.
    direct.query("INSERT INTO t VALUES (2)").ok();
    let reopen = target.send(proxy, CREATE, &target.body(VALIDATING, 3, &Value::Null));
    assert_eq!(reopen.1["detail"], "namespace_exists");
}

/// What an import has left prepared may be committed from anywhere.
#[test]
fn acceptance_08_a_seal_waits_for_a_prepared_transaction() {
    let proxy = shared_proxy();
    let target = created(proxy);
    fill(&target, "CREATE TABLE t (n int)");
    let gid = uuid();
    let mut direct = Wire::connect(PgCluster::shared().port(), "wire", database(&target));
    direct.query("BEGIN; INSERT INTO t VALUES (1)").ok();
    direct.query(&format!("PREPARE TRANSACTION '{gid}'")).ok();
    let body = target.body(QUARANTINED, 1, &json!({ "drain_policy": fail_after(0) }));
    let named = poll(PATIENCE, || {
        let (status, answer) = target.send(proxy, SEAL, &body);
        assert_eq!((status, &answer["fence"]["state"]), (202, &json!(DRAINING)), "{answer:#}");
        let blockers = answer["drain"]["blockers"].to_string();
        (blockers.contains("prepared") && blockers.contains(&gid)).then_some(())
    });
    assert!(named.is_some(), "the prepared transaction was never named");
    direct.query(&format!("COMMIT PREPARED '{gid}'")).ok();
    let applied = poll(PATIENCE, || {
        let answer = target.send(proxy, SEAL, &body);
        (answer.0 == 200).then_some(answer.1)
    });
    assert_eq!(applied.unwrap()["fence"]["state"], VALIDATING);
}

#[test]
fn acceptance_01_of_two_operations_that_create_one_target_one_does() {
    let proxy = shared_proxy();
    let one = Target::new(&unused());
    let other = Target { namespace: one.namespace.clone(), operation: uuid() };
    let answers = std::thread::scope(|scope| {
        let both = [&one, &other].map(|target| {
            scope.spawn(|| target.send(proxy, CREATE, &target.body("ABSENT", 0, &owned())))
        });
        both.map(|sent| sent.join().unwrap())
    });
    let [first, second] = answers.each_ref().map(|answer| answer.0);
    assert!((first == 200) != (second == 200), "{answers:#?}");
    let (winner, lost) = if first == 200 { (&one, &answers[1]) } else { (&other, &answers[0]) };
    refused(lost, 409, "FENCE_OWNED_BY_ANOTHER_OPERATION");
    assert_eq!(lost.1["fence"]["operation_id"], json!(winner.operation), "the winner's view");
}

#[test]
fn acceptance_18_a_question_reads_within_bounds_and_never_writes() {
    let proxy = shared_proxy();
    let target = created(proxy);
    fill(
        &target,
        "CREATE TABLE t (n int); INSERT INTO t SELECT generate_series(1, 10001); \
         CREATE SEQUENCE s",
    );
    refused(&target.ask(proxy, 1, &["SELECT 1"]), 403, "OPERATION_CAPABILITY_REQUIRED");
    target.does(proxy, SEAL);
    let ask = |statements: &[&str]| target.ask(proxy, 3, statements);
    let (status, found) =
        ask(&["SELECT n, NULL::text AS x FROM t ORDER BY n LIMIT 2", "SHOW transaction_read_only"]);
    assert_eq!(status, 200, "{found:#}");
    assert_eq!(
        found["results"][0],
        json!({ "cols": ["n", "x"], "rows": [["1", null], ["2", null]] })
    );
    assert_eq!(found["results"][1]["rows"], json!([["on"]]));

    assert_eq!(ask(&["SELECT n FROM t LIMIT 10000"]).0, 200);
    for many in
        [&["SELECT n FROM t"][..], &["SELECT n FROM t LIMIT 9999", "SELECT n FROM t LIMIT 2"]]
    {
        let answer = ask(many);
        let body = refused(&answer, 412, "FENCE_PRECONDITION_FAILED");
        assert_eq!(body["detail"], "invalid_argument");
        assert!(body["error"].to_string().contains("10000 rows"), "{body:#}");
    }
    for write in [
        "INSERT INTO t VALUES (0)",
        "DELETE FROM t",
        "CREATE TABLE made (n int)",
        "SELECT nextval('s')",
        "SELECT sneak()",
        "SELECT n INTO made FROM t",
        "COMMIT",
        "SET transaction_read_only = off",
        "SELECT set_config('transaction_read_only', 'off', false)",
        "COPY t TO PROGRAM 'true'",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity",
    ] {
        refused(&ask(&["SELECT 1", write]), 403, "OPERATION_CAPABILITY_REQUIRED");
    }
    // The second of these is one SELECT to who doesn't know what the first has set.
    let off = "SELECT set_config('standard_conforming_strings', 'off', false)";
    let hidden = r"SELECT '\'' ; COMMIT; BEGIN READ WRITE; INSERT INTO t VALUES (0); COMMIT; -- '";
    assert_eq!(ask(&[off, hidden]).0, 200, "read as it was classified");
    for bad in
        ["SELECT 1; SELECT 2", "SELECT nothing FROM nowhere", "", "SELECT 1/0", "COPY t TO STDOUT"]
    {
        let answer = ask(&[bad]);
        let body = refused(&answer, 412, "FENCE_PRECONDITION_FAILED");
        assert_eq!(body["detail"], "invalid_argument", "{bad}");
    }
    assert_eq!(ask(&[]).0, 412);
    refused(&target.ask(proxy, 2, &["SELECT 1"]), 409, "FENCE_REVISION_MISMATCH");
    let other = Target { namespace: target.namespace.clone(), operation: uuid() };
    refused(&other.ask(proxy, 3, &["SELECT 1"]), 409, "FENCE_OWNED_BY_ANOTHER_OPERATION");
    let (_, found) = ask(&["SELECT count(*), min(n) FROM t"]);
    assert_eq!(found["results"][0]["rows"], json!([["10001", "1"]]), "nothing was written");

    target.does(proxy, VALIDATE);
    target.does(proxy, PUBLISH);
    assert_eq!(target.ask(proxy, 5, &["SELECT 1"]).0, 200, "in TARGET_WRITE_FENCED as well");
    target.does(proxy, ENABLE);
    refused(&target.ask(proxy, 6, &["SELECT 1"]), 403, "OPERATION_CAPABILITY_REQUIRED");
}

/// A file that nobody has, and a function `public.f()` that has a program of the server's make it.
fn leaves_a_file() -> (std::path::PathBuf, String) {
    let file = std::env::temp_dir().join(format!("fencewire-imported-{}", uuid()));
    let program = format!("COPY (SELECT 1) TO PROGRAM ''cat > {}''", file.display());
    let function = format!(
        "CREATE FUNCTION public.f() RETURNS int LANGUAGE plpgsql AS \
         $$ BEGIN SET ROLE NONE; EXECUTE '{program}'; RETURN 1; END $$; \
         CREATE VIEW public.orders AS SELECT public.f() AS n"
    );
    (file, function)
}

/// Whether a program that an import has left in a view is run by a question, as the control role.
fn runs_imported_code(removed: Option<&str>) -> bool {
    let mut proxy = Proxy::start(PgCluster::shared());
    let more: Vec<_> = removed.map(|guard| ("FENCEWIRE_REMOVE", guard)).into_iter().collect();
    proxy.kill9();
    proxy.set_env(&more);
    proxy.restart();
    let target = created(&proxy);
    let (file, function) = leaves_a_file();
    fill(&target, &function);
    target.does(&proxy, SEAL);
    let answer = target.ask(&proxy, 3, &["SELECT count(*), sum(n) FROM orders"]);
    if removed.is_none() {
        let body = refused(&answer, 403, "OPERATION_CAPABILITY_REQUIRED");
        assert!(body["error"].to_string().contains("superuser"), "{body:#}");
    }
    // The engine has waited for the program before it answered.
    let ran = file.exists();
    std::fs::remove_file(&file).ok();
    ran
}

#[test]
fn acceptance_18_a_question_runs_no_imported_code_as_a_superuser() {
    assert!(!runs_imported_code(None), "VIOLATION: a question ran a program");
    assert!(runs_imported_code(Some("imported-code")), "the guard's absence must be noticed");
}

/// The proxy's own statements come before the look for imported code: nothing of it may be found by
/// the names in them.
#[test]
fn acceptance_18_no_operator_of_the_import_runs_at_a_questions_login() {
    let proxy = shared_proxy();
    let target = created(proxy);
    let (file, function) = leaves_a_file();
    let operators = "CREATE FUNCTION public.evil(numeric, integer) RETURNS numeric \
        LANGUAGE plpgsql AS $$ BEGIN IF session_user <> current_user THEN RETURN $1; END IF; \
        PERFORM public.f(); RETURN pg_catalog.numeric_mul($1, $2::numeric); END $$; \
        CREATE OPERATOR public.* (LEFTARG = numeric, RIGHTARG = integer, FUNCTION = public.evil)";
    fill(&target, &format!("{function}; {operators}"));
    target.does(proxy, SEAL);
    let answer = target.ask(proxy, 3, &["SELECT 1"]);
    assert!(!file.exists(), "VIOLATION: a question's login ran a program");
    refused(&answer, 403, "OPERATION_CAPABILITY_REQUIRED");
}

/// Whose rights count isn't the target's owner's to say.
#[test]
fn acceptance_18_a_role_that_the_database_names_is_not_taken() {
    let proxy = shared_proxy();
    for setting in ["role = app", "role = pg_monitor", "session_authorization = app"] {
        let target = created(proxy);
        let (file, function) = leaves_a_file();
        fill(&target, &function);
        let sql = format!("ALTER DATABASE {} SET {setting}", database(&target));
        PgCluster::shared().sql("postgres", &sql);
        target.does(proxy, SEAL);
        let answer = target.ask(proxy, 3, &["SELECT count(*), sum(n) FROM orders"]);
        assert!(!file.exists(), "VIOLATION: with {setting} a question ran a program");
        refused(&answer, 403, "OPERATION_CAPABILITY_REQUIRED");
    }
}

/// A count of the rows that a policy lets through would be recorded as one of all.
#[test]
fn acceptance_18_rows_that_a_policy_hides_are_not_left_out_in_silence() {
    let cluster = PgCluster::shared();
    let weak = "CREATE ROLE asker LOGIN PASSWORD 'asker' CREATEDB IN ROLE pg_monitor, app";
    cluster.sql("postgres", weak);
    let mut engine = Engine::plain("old", cluster);
    engine.url = engine.url.replace("//fencewire:fencewire@", "//asker:asker@");
    let proxy = Proxy::start_with(ProxyOptions { engines: vec![engine], ..Default::default() });
    let target = created(&proxy);
    let table = "CREATE TABLE t AS SELECT generate_series(1, 1000) AS id";
    let policy = "ALTER TABLE t ENABLE ROW LEVEL SECURITY; \
        ALTER TABLE t FORCE ROW LEVEL SECURITY; CREATE POLICY few ON t USING (id <= 10)";
    fill(&target, &format!("{table}; {policy}"));
    target.does(&proxy, SEAL);
    let answer = target.ask(&proxy, 3, &["SELECT count(*) FROM t"]);
    let body = refused(&answer, 412, "FENCE_PRECONDITION_FAILED");
    assert!(body["error"].to_string().contains("row-level security"), "{body:#}");
}

#[test]
fn acceptance_18_whatever_can_run_in_a_read_keeps_a_superuser_from_asking() {
    let proxy = shared_proxy();
    for (sql, asks) in [
        ("CREATE TABLE t (n int PRIMARY KEY CHECK (n > 0)); CREATE TYPE e AS ENUM ('a')", true),
        ("CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'", false),
        ("CREATE VIEW v AS SELECT 1", false),
        ("CREATE TABLE t (n int); CREATE POLICY p ON t USING (true)", false),
        ("CREATE OPERATOR @@@@ (LEFTARG = text, RIGHTARG = text, FUNCTION = texteq)", false),
        ("CREATE DOMAIN d AS int CHECK (VALUE > 0)", false),
        ("CREATE TYPE r AS (n int); CREATE CAST (r AS text) WITH INOUT", false),
    ] {
        let target = created(proxy);
        fill(&target, sql);
        target.does(proxy, SEAL);
        let answer = target.ask(proxy, 3, &["SELECT 1"]);
        if asks {
            assert_eq!(answer.0, 200, "{sql}: {:#}", answer.1);
        } else {
            refused(&answer, 403, "OPERATION_CAPABILITY_REQUIRED");
        }
    }
}

#[test]
fn acceptance_18_what_the_classifier_lets_pass_the_engine_refuses() {
    let mut proxy = Proxy::start(PgCluster::shared());
    let target = created(&proxy);
    fill(&target, "CREATE TABLE t (n int)");
    target.does(&proxy, SEAL);
    proxy.kill9();
    // Control arm: every text counts as a read.
    proxy.set_env(&[("FENCEWIRE_REMOVE", "classifier")]);
    proxy.restart();
    for write in ["INSERT INTO t VALUES (0) RETURNING n", "SELECT 1 AS n FROM t FOR UPDATE"] {
        refused(&target.ask(&proxy, 3, &[write]), 403, "OPERATION_CAPABILITY_REQUIRED");
    }
    // What answers with no rows isn't run at all.
    for write in ["INSERT INTO t VALUES (0)", "CREATE TABLE made (n int)", "DROP TABLE t"] {
        refused(&target.ask(&proxy, 3, &[write]), 412, "FENCE_PRECONDITION_FAILED");
    }
    let seen = PgCluster::shared().sql(database(&target), "SELECT count(*) FROM t");
    assert_eq!(seen, "0", "twice over");
}

#[test]
fn an_aborted_target_stays_closed_and_keeps_its_name() {
    let proxy = shared_proxy();
    let target = created(proxy);
    target.does(proxy, ABORT);
    for sql in ["SELECT 1", "CREATE TABLE t (n int)"] {
        assert_eq!(meets(proxy, database(&target), "wire", sql), "ZF004");
    }
    let again = Target::new(&target.namespace);
    let answer = again.send(proxy, CREATE, &again.body(ABORTED, 2, &Value::Null));
    assert_eq!(refused(&answer, 412, "FENCE_PRECONDITION_FAILED")["detail"], "namespace_exists");
}

/// What a client meets in a state.
fn holds(proxy: &Proxy, target: &Target, state: &str, point: &str) {
    let (reads, writes) = admits(state);
    let read = meets(proxy, database(target), "wire", "SELECT 1");
    assert_eq!(read.is_empty(), reads, "{point} in {state}: a read got {read:?}");
    // Behind the fence it fails for want of the table, which is the engine's own word.
    let write = meets(proxy, database(target), "wire", "INSERT INTO nowhere VALUES (1)");
    assert_eq!(write == "42P01", writes, "{point} in {state}: a write got {write:?}");
    let refused = write.contains("ZF00") || write.contains("3D000");
    assert!(writes || refused, "{point}: {write}");
}

fn swept(route: &str, crashes: &[targets::Crash]) {
    let mut proxy = Proxy::start(PgCluster::shared());
    sweep(&mut proxy, route, crashes, unused, holds);
}

#[test]
fn acceptance_10_a_creation_that_dies_at_any_point() {
    swept(CREATE, CREATES);
}

#[test]
fn acceptance_10_a_seal_that_dies_at_any_point() {
    swept(SEAL, SEALS);
}

#[test]
fn acceptance_10_a_validation_or_publication_that_dies_at_any_point() {
    swept(VALIDATE, VALIDATES);
    swept(PUBLISH, PUBLISHES);
}

#[test]
fn acceptance_10_an_opening_or_abort_that_dies_at_any_point() {
    swept(ENABLE, ENABLES);
    swept(ABORT, ABORTS);
}

fn failing(plan: &str) -> Proxy {
    Proxy::start_with(ProxyOptions {
        engines: vec![Engine::plain("old", PgCluster::shared())],
        env: vec![("FENCEWIRE_FAULT".into(), plan.into())],
        ..ProxyOptions::default()
    })
}

#[test]
fn acceptance_11_doubt_about_a_creation_or_an_opening_closes_it_until_its_replay() {
    let proxy = failing("store.after_commit=error");
    let target = Target::new(&unused());
    let body = target.step(CREATE);
    refused(&target.send(&proxy, CREATE, &body), 409, "FENCE_COMMIT_INDETERMINATE");
    assert_eq!(meets(&proxy, database(&target), "wire", "SELECT 1"), "ZF005");
    let other = target.send(&proxy, CREATE, &target.step(CREATE));
    refused(&other, 409, "FENCE_COMMIT_INDETERMINATE");
    refused(&target.capability(&proxy, "import", 1), 423, "FENCE_STATE_UNAVAILABLE");
    applied(&target.send(&proxy, CREATE, &body));
    assert_eq!(target.state(&proxy), QUARANTINED);

    let proxy = failing("store.after_commit@6=error");
    let target = Target::new(&unused());
    target.brought_before(&proxy, ENABLE);
    let body = target.step(ENABLE);
    refused(&target.send(&proxy, ENABLE, &body), 409, "FENCE_COMMIT_INDETERMINATE");
    assert_eq!(meets(&proxy, database(&target), "wire", "SELECT 1"), "ZF005");
    applied(&target.send(&proxy, ENABLE, &body));
    holds(&proxy, &target, WRITABLE, "replayed");
}

#[test]
fn acceptance_11_a_creation_that_is_known_not_to_have_landed_stays_closed_until_its_replay() {
    for plan in ["store.before_begin=error", "store.before_commit=error"] {
        let proxy = failing(plan);
        let target = Target::new(&unused());
        let body = target.step(CREATE);
        let answer = target.send(&proxy, CREATE, &body);
        assert!(answer.0 >= 400 && answer.1["receipt"].is_null(), "{plan}: {answer:?}");
        let seen = target.inspect(&proxy);
        assert_eq!(seen["detail"], "incomplete_target_creation", "{plan}: {seen:#}");
        assert_eq!(meets(&proxy, database(&target), "wire", "SELECT 1"), "ZF005", "{plan}");
        applied(&target.send(&proxy, CREATE, &body));
        assert_eq!(target.state(&proxy), QUARANTINED, "{plan}");
    }
}

/// Two faults at once: what becomes of the opening's commit, and the proxy that dies before its
/// answer. First in the command itself, then in its replay.
#[test]
fn acceptance_10_an_opening_whose_commit_is_in_doubt_and_whose_proxy_dies() {
    let mut proxy = Proxy::start(PgCluster::shared());
    let dies_at = "control.enable_writes.before_response";
    let (lost, landed) = ("store.before_commit", "store.after_commit");
    for (first, pass, found, again) in [
        ("store.before_begin", 6, targets::WRITE_FENCED, landed),
        (lost, 6, targets::WRITE_FENCED, lost),
        (landed, 6, WRITABLE, lost),
        (landed, 6, WRITABLE, landed),
        ("marker.before_write", 8, WRITABLE, landed),
        ("marker.before_rename", 8, WRITABLE, lost),
    ] {
        let plan = |first: &str, pass: u32| format!("{first}@{pass}=error,{dies_at}");
        let what = format!("{first}, then {again}");
        targets::arm(&mut proxy, &plan(first, pass));
        let target = Target::new(&unused());
        target.brought_before(&proxy, ENABLE);
        let body = target.step(ENABLE);
        targets::dies(&mut proxy, &target.path(ENABLE), &body, &what);
        assert_eq!(target.state(&proxy), found, "VIOLATION: {what}");
        holds(&proxy, &target, found, &what);

        targets::arm(&mut proxy, &plan(again, 1));
        targets::dies(&mut proxy, &target.path(ENABLE), &body, &what);
        let done = found == WRITABLE || again == landed;
        let found = if done { WRITABLE } else { targets::WRITE_FENCED };
        assert_eq!(target.state(&proxy), found, "VIOLATION: {what}");
        holds(&proxy, &target, found, &what);

        let answer = target.send(&proxy, ENABLE, &body);
        assert_eq!(applied(&answer)["replayed"], done, "{what}");
        assert_eq!(answer.1["fence"]["revision"], 6, "{what}");
        holds(&proxy, &target, WRITABLE, &what);
    }
}
