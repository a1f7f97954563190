//! Acceptance 17 and 18 of the fence contract on MariaDB and MySQL: targets, from creation to their
//! first write, and 1, 8, 10 and 11 for their commands. Import sessions are the wire's own suites'.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod acceptance_mysql;
mod support;
mod targets;

use std::sync::atomic::{AtomicU32, Ordering};

use acceptance::sweep::{Park, send};
use acceptance::{applied, fail_after};
use acceptance_mysql::{MyLatch, MySite, code, on_both, shared_proxy, thread};
use serde_json::{Value, json};
use support::my_wire::{MyLogin, flag};
use support::{Engine, MyCluster, MyFlavour, MyOptions, MyWire, Proxy, ProxyOptions, poll};
use targets::{
    ABORT, ABORTED, ABORTS, CREATE, CREATES, DRAINING, ENABLE, ENABLES, PATIENCE, PUBLISH,
    PUBLISHES, QUARANTINED, SEAL, SEALS, Target, VALIDATE, VALIDATES, VALIDATING, WRITABLE, admits,
    refused, sweep,
};

on_both!(
    acceptance_17_a_target_is_made_behind_a_closed_gate,
    acceptance_17_nobody_comes_in_while_a_target_is_created,
    acceptance_17_a_program_from_before_writes_nothing_into_a_target,
    acceptance_17_an_orchestrators_whole_run,
    acceptance_18_a_seal_waits_for_an_open_write,
    acceptance_08_a_seal_waits_for_a_prepared_branch,
    acceptance_01_of_two_operations_that_create_one_target_one_does,
    acceptance_18_a_question_reads_within_bounds_and_never_writes,
    acceptance_18_a_question_runs_no_imported_code_with_more_than_reading_rights,
    acceptance_18_a_row_beyond_an_answers_bound_is_never_taken_in,
    what_the_engine_refuses_is_told_and_leaves_the_name_free,
    acceptance_10_a_creation_that_dies_at_any_point,
    acceptance_10_a_seal_that_dies_at_any_point,
    acceptance_10_the_other_commands_that_die_at_any_point,
    acceptance_11_doubt_about_a_creation_closes_it_until_its_replay,
    an_aborted_target_stays_closed_and_keeps_its_name,
);

/// A name that no schema has.
fn unused() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    format!("old/target{}", COUNT.fetch_add(1, Ordering::SeqCst))
}

fn schema(target: &Target) -> &str {
    target.namespace.strip_prefix("old/").unwrap()
}

/// The shared server, whose control account may make schemas.
fn cluster(flavour: MyFlavour) -> &'static MyCluster {
    let cluster = MyCluster::shared(flavour);
    let grants = "GRANT CREATE ON *.* TO fencewire@'127.0.0.1'; \
                  GRANT ALL ON `target%`.* TO app@'127.0.0.1'";
    cluster.sql("mysql", grants);
    cluster
}

fn proxy(flavour: MyFlavour) -> &'static Proxy {
    cluster(flavour);
    shared_proxy(flavour)
}

/// What somebody meets who connects through the proxy with the schema and runs one statement.
fn meets(proxy: &Proxy, schema: &str, sql: &str) -> String {
    match MyWire::login(proxy.port(), &MyLogin::of("app", schema)) {
        Ok(mut client) => code(&client.query(sql)),
        Err(failed) => format!("{failed:?}"),
    }
}

fn created(proxy: &Proxy) -> Target {
    let target = Target::new(&unused());
    target.does(proxy, CREATE);
    target
}

/// What an import does, by a session around the proxy.
fn fill(flavour: MyFlavour, target: &Target, statements: &[&str]) {
    let mut client = MyWire::connect(cluster(flavour).port(), "app", schema(target));
    for sql in statements {
        client.query(sql).ok();
    }
}

fn acceptance_17_a_target_is_made_behind_a_closed_gate(flavour: MyFlavour) {
    let proxy = proxy(flavour);
    let target = Target::new(&unused());
    let options = json!({ "encoding": "utf8mb4", "locale": "utf8mb4_bin" });
    let fence = target.applies(proxy, CREATE, &target.body("ABSENT", 0, &options));
    assert_eq!((&fence["state"], &fence["role"]), (&json!(QUARANTINED), &json!("TARGET")));
    let made = format!(
        "SELECT DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = '{}'",
        schema(&target)
    );
    assert_eq!(cluster(flavour).sql("mysql", &made), "utf8mb4_bin");
    for sql in ["SELECT 1", "CREATE TABLE t (n INT)", "BEGIN", "SHOW TABLES"] {
        assert_eq!(meets(proxy, schema(&target), sql), "ZF004", "{sql}");
    }
    // By name from another schema neither.
    let site = MySite::new(cluster(flavour), proxy);
    let name = schema(&target);
    for sql in [
        format!("CREATE TABLE {name}.t (n INT)"),
        format!("SELECT * FROM {name}.t"),
        format!("INSERT INTO {name}.t SELECT 1"),
        format!("DROP DATABASE {name}"),
        format!("CREATE TABLE x AS SELECT * FROM {name}.t"),
        format!("RENAME TABLE t TO {name}.t"),
    ] {
        assert!(code(&site.client().query(&sql)).starts_with("ZF00"), "{sql}");
    }
}

fn acceptance_17_nobody_comes_in_while_a_target_is_created(flavour: MyFlavour) {
    let mut proxy = Proxy::start_my(cluster(flavour));
    for point in ["after_first_marker", "after_create", "before_publish"] {
        let target = Target::new(&unused());
        let park = Park::arm(&mut proxy, &format!("control.create_target.{point}"));
        let route = format!("target/{CREATE}");
        let sent = send(&proxy, &target.namespace, &route, &target.step(CREATE));
        park.reached();
        let there = point != "after_first_marker";
        for sql in ["SELECT 1", "CREATE TABLE t (n INT)"] {
            let seen = meets(&proxy, schema(&target), sql);
            assert!(seen.contains(if there { "ZF004" } else { "1049" }), "{point}: {sql}: {seen}");
        }
        park.open();
        assert_eq!(sent.join().unwrap().unwrap().0, 200, "{point}");
        assert_eq!(meets(&proxy, schema(&target), "SELECT 1"), "ZF004", "{point}");
    }
}

fn acceptance_17_a_program_from_before_writes_nothing_into_a_target(flavour: MyFlavour) {
    let mut proxy = Proxy::start_my(cluster(flavour));
    let target = Target::new(&unused());
    let park = Park::arm(&mut proxy, "control.create_target.after_overlay");
    let site = MySite::new(cluster(flavour), &proxy);
    let latch = MyLatch::shut(&site);
    let login = MyLogin::of("app", &site.db).with(flag::MULTI_STATEMENTS);
    let mut client = MyWire::login(proxy.port(), &login).unwrap();
    let table = format!("{}.x", schema(&target));
    let wait = latch.wait();
    let text = format!(
        "SELECT passed FROM {wait}; CREATE TABLE {table} (a INT); INSERT INTO {table} VALUES (7)"
    );
    client.begin_query(&text).unwrap();
    site.wait_at_latch(thread(&client));
    let sent = send(&proxy, &target.namespace, &format!("target/{CREATE}"), &target.step(CREATE));
    park.reached();
    park.open();
    let named = format!("SCHEMA_NAME = '{}'", schema(&target));
    let made = format!("SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE {named}");
    for _ in 0..20 {
        assert_eq!(cluster(flavour).sql("mysql", &made).trim(), "0", "made beside a program");
    }
    latch.open();
    let answer = client.answer(&[]).unwrap();
    assert_eq!(answer.error.map(|error| error.code), Some(1049), "there was no such schema yet");
    assert_eq!(sent.join().unwrap().unwrap().0, 200);
    assert_eq!(target.state(&proxy), QUARANTINED);
    assert_eq!(code(&client.query(&format!("CREATE TABLE {table} (a INT)"))), "ZF004");
}

fn acceptance_17_an_orchestrators_whole_run(flavour: MyFlavour) {
    let proxy = proxy(flavour);
    let source = MySite::new(cluster(flavour), proxy);
    source.client().query("INSERT INTO t VALUES (1), (2), (3)").ok();
    let operation = source.fence();
    let target = Target { operation: operation.clone(), ..Target::new(&unused()) };
    target.does(proxy, CREATE);
    let (status, issued) = target.capability(proxy, "import", 1);
    assert_eq!((status, &issued["operation_id"]), (200, &json!(operation)));
    let secret = issued["secret"].as_str().unwrap().to_owned();
    fill(flavour, &target, &["CREATE TABLE t (n INT)", "INSERT INTO t VALUES (1), (2), (3)"]);

    let sealed = target.does(proxy, SEAL);
    assert_eq!((&sealed["state"], &sealed["revision"]), (&json!(VALIDATING), &json!(3)));
    let evidence = &sealed["evidence"];
    assert_eq!(evidence["engine_lock"]["mode"], "confirm", "{evidence:#}");
    assert!(evidence["engine_lock"]["gaps"].to_string().contains("not kept locked"));
    let (status, found) = target.ask(proxy, 3, &["SELECT COUNT(*), SUM(n) FROM t"]);
    assert_eq!((status, &found["results"][0]["rows"]), (200, &json!([["3", "6"]])), "{found:#}");
    target.does(proxy, VALIDATE);
    let mut client = MyWire::connect(proxy.port(), "app", schema(&target));
    assert_eq!(code(&client.query("SELECT n FROM t")), "ZF004");

    target.does(proxy, PUBLISH);
    assert_eq!(client.query("SELECT COUNT(*) FROM t").ok().cell(), "3");
    assert_eq!(code(&client.query("INSERT INTO t VALUES (4)")), "ZF001");
    let mut old = MyWire::connect(proxy.port(), "app", schema(&target));
    old.query("BEGIN").ok();
    old.query("SELECT n FROM t").ok();
    target.does(proxy, ENABLE);
    assert_eq!(code(&old.query("INSERT INTO t VALUES (5)")), "ZF002", "older than the opening");
    old.query("ROLLBACK").ok();
    client.query("INSERT INTO t VALUES (4)").ok();
    assert_eq!(code(&source.client().query("INSERT INTO t VALUES (9)")), "ZF001");
    let log = std::fs::read_to_string(proxy.log_file()).unwrap();
    assert!(!log.contains(secret.strip_prefix("fwc_").unwrap()));
    source.unfence(&operation);
}

fn acceptance_18_a_seal_waits_for_an_open_write(flavour: MyFlavour) {
    let proxy = proxy(flavour);
    let target = created(proxy);
    fill(flavour, &target, &["CREATE TABLE t (n INT)"]);
    let mut direct = MyWire::connect(cluster(flavour).port(), "app", schema(&target));
    direct.query("BEGIN").ok();
    direct.query("INSERT INTO t VALUES (1)").ok();
    let policy = json!({ "drain_policy": fail_after(0) });
    let body = target.body(QUARANTINED, 1, &policy);
    let (status, answer) = target.send(proxy, SEAL, &body);
    assert_eq!((status, &answer["fence"]["state"]), (202, &json!(DRAINING)), "{answer:#}");
    for _ in 0..3 {
        assert_eq!(target.send(proxy, SEAL, &body).0, 202, "no time ends it");
    }
    assert!(thread(&direct) > 0);
    direct.query("COMMIT").ok();
    let applied = poll(PATIENCE, || {
        let answer = target.send(proxy, SEAL, &body);
        (answer.0 == 200).then_some(answer.1)
    });
    assert_eq!(applied.unwrap()["fence"]["state"], VALIDATING);
    direct.query("INSERT INTO t VALUES (2)").ok();
}

fn acceptance_08_a_seal_waits_for_a_prepared_branch(flavour: MyFlavour) {
    // Its own server: where a branch is prepared, other tests' proofs would wait for it.
    let cluster = MyCluster::start(flavour, MyOptions::default());
    cluster.sql(
        "mysql",
        "GRANT CREATE ON *.* TO fencewire@'127.0.0.1'; GRANT ALL ON `target%`.* TO app@'127.0.0.1'",
    );
    let proxy = Proxy::start_my(&cluster);
    let target = created(&proxy);
    let mut direct = MyWire::connect(cluster.port(), "app", schema(&target));
    direct.query("CREATE TABLE t (n INT)").ok();
    let branch = "branch-of-an-import";
    for sql in ["XA START", "INSERT INTO t VALUES (1)", "XA END", "XA PREPARE"] {
        let ours = if sql.starts_with("XA") { format!("{sql} '{branch}'") } else { sql.to_owned() };
        direct.query(&ours).ok();
    }
    let body = target.body(QUARANTINED, 1, &json!({ "drain_policy": fail_after(0) }));
    let named = poll(PATIENCE, || {
        let (status, answer) = target.send(&proxy, SEAL, &body);
        assert_eq!((status, &answer["fence"]["state"]), (202, &json!(DRAINING)), "{answer:#}");
        let blockers = answer["drain"]["blockers"].to_string();
        (blockers.contains("prepared") && blockers.contains(branch)).then_some(())
    });
    assert!(named.is_some(), "the prepared branch was never named");
    direct.query(&format!("XA COMMIT '{branch}'")).ok();
    let applied = poll(PATIENCE, || {
        let answer = target.send(&proxy, SEAL, &body);
        (answer.0 == 200).then_some(answer.1)
    });
    assert_eq!(applied.unwrap()["fence"]["state"], VALIDATING);
}

fn acceptance_01_of_two_operations_that_create_one_target_one_does(flavour: MyFlavour) {
    let proxy = proxy(flavour);
    let one = Target::new(&unused());
    let other = Target { namespace: one.namespace.clone(), operation: support::proxy::uuid() };
    let answers = std::thread::scope(|scope| {
        let both = [&one, &other].map(|target| {
            scope.spawn(|| target.send(proxy, CREATE, &target.body("ABSENT", 0, &Value::Null)))
        });
        both.map(|sent| sent.join().unwrap())
    });
    let [first, second] = answers.each_ref().map(|answer| answer.0);
    assert!((first == 200) != (second == 200), "{answers:#?}");
    let (winner, lost) = if first == 200 { (&one, &answers[1]) } else { (&other, &answers[0]) };
    refused(lost, 409, "FENCE_OWNED_BY_ANOTHER_OPERATION");
    assert_eq!(lost.1["fence"]["operation_id"], json!(winner.operation), "the winner's view");
}

fn acceptance_18_a_question_reads_within_bounds_and_never_writes(flavour: MyFlavour) {
    let proxy = proxy(flavour);
    let target = created(proxy);
    fill(
        flavour,
        &target,
        &[
            "CREATE TABLE t (n INT)",
            "CREATE TABLE digits (d INT)",
            "INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)",
            "INSERT INTO t SELECT a.d * 1000 + b.d * 100 + c.d * 10 + d.d \
             FROM digits a, digits b, digits c, digits d",
            "INSERT INTO t VALUES (10000)",
        ],
    );
    refused(&target.ask(proxy, 1, &["SELECT 1"]), 403, "OPERATION_CAPABILITY_REQUIRED");
    target.does(proxy, SEAL);
    let ask = |statements: &[&str]| target.ask(proxy, 3, statements);
    let (status, found) = ask(&["SELECT n, NULL AS x FROM t ORDER BY n LIMIT 2"]);
    assert_eq!(status, 200, "{found:#}");
    let wanted = json!({ "cols": ["n", "x"], "rows": [["0", null], ["1", null]] });
    assert_eq!(found["results"][0], wanted);
    assert_eq!(ask(&["SELECT n FROM t LIMIT 10000"]).0, 200);
    let answer = ask(&["SELECT n FROM t LIMIT 9999", "SELECT n FROM t LIMIT 2"]);
    let body = refused(&answer, 412, "FENCE_PRECONDITION_FAILED");
    assert!(body["error"].to_string().contains("10000 rows"), "{body:#}");
    for write in [
        "INSERT INTO t VALUES (0)",
        "DELETE FROM t",
        "CREATE TABLE made (n INT)",
        "SELECT 1 INTO OUTFILE '/tmp/never'",
        "COMMIT",
        "SET SESSION transaction_read_only = 0",
        "/*!50000 DELETE FROM t */",
        "SELECT sneak()",
        "DROP DATABASE mysql",
    ] {
        refused(&ask(&["SELECT 1", write]), 403, "OPERATION_CAPABILITY_REQUIRED");
    }
    for bad in ["SELECT 1; SELECT 2", "SELECT nothing FROM nowhere", ""] {
        let answer = ask(&[bad]);
        let body = refused(&answer, 412, "FENCE_PRECONDITION_FAILED");
        assert_eq!(body["detail"], "invalid_argument", "{bad}");
    }
    let (_, found) = ask(&["SELECT COUNT(*), MAX(n) FROM t"]);
    assert_eq!(found["results"][0]["rows"], json!([["10001", "10000"]]), "nothing was written");
    // Control arm: every text counts as a read, and the engine refuses what writes.
    let mut bare = Proxy::start_my(cluster(flavour));
    let target = created(&bare);
    fill(flavour, &target, &["CREATE TABLE t (n INT)"]);
    target.does(&bare, SEAL);
    let rights = format!("GRANT ALL ON {}.* TO fencewire@'127.0.0.1'", schema(&target));
    cluster(flavour).sql("mysql", &rights);
    bare.kill9();
    bare.set_env(&[("FENCEWIRE_REMOVE", "classifier")]);
    bare.restart();
    for write in ["INSERT INTO t VALUES (0)", "CREATE TABLE made (n INT)", "DROP TABLE t"] {
        refused(&target.ask(&bare, 3, &[write]), 403, "OPERATION_CAPABILITY_REQUIRED");
    }
}

fn acceptance_18_a_question_runs_no_imported_code_with_more_than_reading_rights(
    flavour: MyFlavour,
) {
    let cluster = MyCluster::start(flavour, MyOptions::default());
    cluster.sql("mysql", "GRANT CREATE ON *.* TO fencewire@'127.0.0.1'");
    let mut proxy = Proxy::start_my(&cluster);
    let made = |import: &str| {
        let target = created(&proxy);
        cluster.sql(schema(&target), import);
        target.does(&proxy, SEAL);
        target
    };
    let plain = made("CREATE TABLE t (x INT)");
    let view = made("CREATE SQL SECURITY INVOKER VIEW v AS SELECT LOAD_FILE('/etc/passwd') AS x");
    let routine = made("CREATE FUNCTION f() RETURNS INT DETERMINISTIC RETURN 1");
    let ask = |proxy: &Proxy, target: &Target, sql: &str| target.ask(proxy, 3, &[sql]);
    // The grants of README: what is imported may run, and can only read.
    assert_eq!(ask(&proxy, &view, "SELECT x FROM v").0, 200);
    cluster.sql("mysql", "GRANT FILE ON *.* TO fencewire@'127.0.0.1'");
    assert_eq!(ask(&proxy, &plain, "SELECT x FROM t").0, 200);
    for target in [&view, &routine] {
        let answer = ask(&proxy, target, "SELECT 1");
        let body = refused(&answer, 403, "OPERATION_CAPABILITY_REQUIRED");
        assert!(body["error"].to_string().contains("control account"), "{body:#}");
    }
    // Control arm: it is this guard that refused.
    proxy.kill9();
    proxy.set_env(&[("FENCEWIRE_REMOVE", "imported-code")]);
    proxy.restart();
    assert_eq!(ask(&proxy, &view, "SELECT x FROM v").0, 200, "the guard's absence is noticed");
}

fn acceptance_18_a_row_beyond_an_answers_bound_is_never_taken_in(flavour: MyFlavour) {
    let proxy = proxy(flavour);
    let target = created(proxy);
    target.does(proxy, SEAL);
    let half = "REPEAT('x', 9000000)";
    assert_eq!(target.ask(proxy, 3, &[&format!("SELECT {half}")]).0, 200);
    let answer = target.ask(proxy, 3, &[&format!("SELECT {half}, {half}")]);
    let body = refused(&answer, 412, "FENCE_PRECONDITION_FAILED");
    assert!(body["error"].to_string().contains("16777216 bytes"), "{body:#}");
}

fn what_the_engine_refuses_is_told_and_leaves_the_name_free(flavour: MyFlavour) {
    let proxy = proxy(flavour);
    let target = Target::new(&unused());
    for (option, value, says) in [
        ("owner", "app", "owner"),
        ("encoding", "klingon", "klingon"),
        ("locale", "klingon_ci", "klingon_ci"),
    ] {
        let body = target.body("ABSENT", 0, &json!({ option: value }));
        let answer = target.send(proxy, CREATE, &body);
        let error = refused(&answer, 412, "FENCE_PRECONDITION_FAILED")["error"].to_string();
        assert!(error.contains(says), "{option}: {error}");
        let path = format!("/v1/namespaces/{}/fence", target.namespace);
        assert_eq!(proxy.admin("GET", &path, &Value::Null).0, 404, "{option}");
    }
    target.does(proxy, CREATE);
    let site = MySite::new(cluster(flavour), proxy);
    let taken = Target::new(&site.namespace());
    let answer = taken.send(proxy, CREATE, &taken.step(CREATE));
    assert_eq!(refused(&answer, 412, "FENCE_PRECONDITION_FAILED")["detail"], "namespace_exists");
    site.client().query("INSERT INTO t VALUES (1)").ok();
}

/// What a client meets in a state.
fn holds(proxy: &Proxy, target: &Target, state: &str, point: &str) {
    let (reads, writes) = admits(state);
    let read = meets(proxy, schema(target), "SELECT 1");
    assert_eq!(read.is_empty(), reads, "{point} in {state}: a read got {read:?}");
    // Behind the fence it fails for want of the table, which is the engine's own word.
    let write = meets(proxy, schema(target), "INSERT INTO nowhere VALUES (1)");
    assert_eq!(write == "42S02", writes, "{point} in {state}: a write got {write:?}");
    assert!(writes || write.starts_with("ZF00") || write.contains("1049"), "{point}: {write}");
}

fn swept(flavour: MyFlavour, route: &str, crashes: &[targets::Crash]) {
    let mut proxy = Proxy::start_my(cluster(flavour));
    sweep(&mut proxy, route, crashes, unused, holds);
}

fn acceptance_10_a_creation_that_dies_at_any_point(flavour: MyFlavour) {
    swept(flavour, CREATE, CREATES);
}

fn acceptance_10_a_seal_that_dies_at_any_point(flavour: MyFlavour) {
    swept(flavour, SEAL, SEALS);
}

fn acceptance_10_the_other_commands_that_die_at_any_point(flavour: MyFlavour) {
    swept(flavour, VALIDATE, VALIDATES);
    swept(flavour, PUBLISH, PUBLISHES);
    swept(flavour, ENABLE, ENABLES);
    swept(flavour, ABORT, ABORTS);
}

fn acceptance_11_doubt_about_a_creation_closes_it_until_its_replay(flavour: MyFlavour) {
    let proxy = Proxy::start_with(ProxyOptions {
        engines: vec![Engine::my_plain("old", cluster(flavour))],
        env: vec![("FENCEWIRE_FAULT".into(), "store.after_commit=error".into())],
        ..ProxyOptions::default()
    });
    let target = Target::new(&unused());
    let body = target.step(CREATE);
    refused(&target.send(&proxy, CREATE, &body), 409, "FENCE_COMMIT_INDETERMINATE");
    assert_eq!(meets(&proxy, schema(&target), "SELECT 1"), "ZF005");
    applied(&target.send(&proxy, CREATE, &body));
    holds(&proxy, &target, QUARANTINED, "replayed");
    assert_ne!(target.state(&proxy), WRITABLE);
}

fn an_aborted_target_stays_closed_and_keeps_its_name(flavour: MyFlavour) {
    let proxy = proxy(flavour);
    let target = created(proxy);
    target.does(proxy, ABORT);
    holds(proxy, &target, ABORTED, "aborted");
    let again = Target::new(&target.namespace);
    let answer = again.send(proxy, CREATE, &again.body(ABORTED, 2, &Value::Null));
    assert_eq!(refused(&answer, 412, "FENCE_PRECONDITION_FAILED")["detail"], "namespace_exists");
}
