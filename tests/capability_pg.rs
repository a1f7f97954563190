//! Capabilities on PostgreSQL's wire: who gets into a target that isn't published, and what becomes
//! of the secret (acceptance 17 and 18, invariants 15 and 16).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod capability;
mod support;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use acceptance::{
    PATIENCE, Site, applied, code, fail_after, force_after, patient, shared_proxy, still_draining,
};
use capability::{Moved, seen, shown, wrong};
use support::cluster::Options;
use support::tools::{Target, python, run, run_failing};
use support::wire::{self, Failed};
use support::{Engine, PgCluster, Proxy, ProxyOptions, Wire, poll};

/// A database name that nothing has yet.
fn fresh_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    format!("target{}", COUNT.fetch_add(1, Ordering::SeqCst))
}

/// A quarantined target in the shared cluster, which `app` may fill.
fn target() -> (Moved<'static>, String) {
    let db = fresh_name();
    let target = Moved::created(shared_proxy(), &format!("old/{db}"));
    own(PgCluster::shared(), &db);
    (target, db)
}

fn own(cluster: &PgCluster, db: &str) {
    cluster.sql("postgres", &format!("ALTER DATABASE \"{db}\" OWNER TO app"));
}

fn options(secret: &str) -> String {
    format!("-c fencewire.capability={secret}")
}

/// A client that shows a secret at its login.
fn show(port: u16, db: &str, secret: &str) -> Result<Wire, String> {
    let options = options(secret);
    let parameters = [("options", options.as_str())];
    Wire::try_connect(port, "wire", db, &parameters).map_err(|fields| fields[&'C'].clone())
}

fn tools(proxy: &Proxy) -> Target<'static> {
    let cluster = PgCluster::shared();
    Target { cluster, port: proxy.port(), client_tls: false, engine_tls: false }
}

fn with(mut command: Command, secret: &str) -> Command {
    command.env("PGOPTIONS", options(secret));
    command
}

#[test]
fn unchanged_tools_fill_a_target_and_read_it_back() {
    let (target, db) = target();
    let tools = tools(target.proxy);
    let source = Site::shared();
    source.setup(
        "CREATE TABLE people (id int PRIMARY KEY, name text);
         INSERT INTO people SELECT g, 'n' || g FROM generate_series(1, 500) g;
         CREATE VIEW few AS SELECT * FROM people WHERE id < 10;
         CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
         CREATE SEQUENCE s; SELECT nextval('s');",
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("app.dump");
    run(tools.tool("pg_dump", &source.db).args(["-Fc", "--no-owner", "-f"]).arg(&file));
    let secret = target.secret("import");
    let restore = || {
        let mut restore = tools.tool("pg_restore", &db);
        restore.args(["--exit-on-error", "--no-owner", "-d", &db]).arg(&file);
        restore
    };
    assert!(run_failing(&mut restore()).contains("MIGRATION_TARGET_QUARANTINED"));
    run(&mut with(restore(), &secret));
    let psql = |sql: &str, secret: &str| {
        let mut psql = with(tools.psql(&db), secret);
        psql.args(["-At", "-c", sql]);
        psql
    };
    assert_eq!(run(&mut psql("SELECT count(*) FROM few", &secret)).trim(), "9");
    run(&mut psql("INSERT INTO people VALUES (0, 'late')", &secret));
    run(&mut psql("DELETE FROM people WHERE id = 0", &secret));
    applied(&target.seal(&patient()));
    for sql in ["SELECT 1", "INSERT INTO people VALUES (0, 'late')"] {
        let said = run_failing(&mut psql(sql, &secret));
        assert!(said.contains("OPERATION_CAPABILITY_REQUIRED"), "{said}");
    }
    // Read back by a validation, it is what went in.
    let validation = target.secret("validation");
    let dump = |db: &str| {
        let mut dump = tools.tool("pg_dump", db);
        dump.args(["--no-owner", "--restrict-key=x"]);
        dump
    };
    let lines = |text: String| -> Vec<String> {
        let kept = text.lines().filter(|line| !line.starts_with("--") && !line.is_empty());
        kept.map(str::to_owned).collect()
    };
    let before = lines(run(&mut dump(&source.db)));
    assert!(before.len() > 500);
    assert_eq!(lines(run(&mut with(dump(&db), &validation))), before);
    let said = run_failing(&mut psql("DELETE FROM people", &validation));
    assert!(said.contains("OPERATION_CAPABILITY_REQUIRED"), "{said}");
}

#[test]
fn drivers_show_one_in_their_options() {
    let (target, db) = target();
    let secret = target.secret("import");
    let script = r#"
import os, sys, psycopg
def connect(secret):
    return psycopg.connect(options=f"-c fencewire.capability={secret}", autocommit=True)
with connect(sys.argv[1]) as connection:
    connection.execute("CREATE TABLE IF NOT EXISTS p (n int)")
    connection.execute("INSERT INTO p VALUES (%s)", (1,), prepare=True)
    with connection.cursor().copy("COPY p FROM STDIN") as copy:
        copy.write_row((2,))
    print(connection.execute("SELECT sum(n) FROM p").fetchone()[0])
for bad in ("fwc_", sys.argv[1] + "x"):
    try:
        connect(bad)
    except psycopg.OperationalError as error:
        assert "OPERATION_CAPABILITY_REQUIRED" in str(error), error
    else:
        sys.exit("a wrong one is taken")
with psycopg.connect(autocommit=True) as plain:
    for sql in ("SELECT 1", "INSERT INTO p VALUES (9)"):
        try:
            plain.execute(sql)
        except psycopg.Error as error:
            assert error.sqlstate == "ZF004", error
        else:
            sys.exit("VIOLATION: " + sql)
    plain.execute("SET fencewire.capability = '" + sys.argv[1] + "'")
    plain.execute("INSERT INTO p VALUES (3)")
"#;
    let tools = tools(target.proxy);
    let said = run(tools.command(python(), &db).args(["-c", script, &secret]));
    assert_eq!(said.trim(), "3");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(target.proxy.port()).user("app").password("app").dbname(&db);
        let plain = config.clone();
        let shows = async |config: &tokio_postgres::Config| {
            let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
            let driver = tokio::spawn(connection);
            let count = client.execute("INSERT INTO p SELECT $1::int", &[&4]).await;
            drop(client);
            driver.await.unwrap()?;
            count
        };
        assert_eq!(shows(config.options(options(&secret))).await.unwrap(), 1);
        let wrong = shows(config.options(options(&wrong()))).await.unwrap_err();
        assert_eq!(wrong.code().unwrap().code(), "ZF006");
        let none = shows(&plain).await.unwrap_err();
        assert_eq!(none.code().unwrap().code(), "ZF004");
    });
    assert_eq!(PgCluster::shared().sql(&db, "SELECT sum(n) FROM p"), "10");
}

/// What one try of somebody without a capability shows, if it shows that the target can be used.
fn got_in(port: u16, db: &str, sql: &str) -> Option<String> {
    match Wire::try_connect(port, "wire", db, &[]) {
        Err(fields) => {
            let code = fields[&'C'].as_str();
            assert!(matches!(code, "3D000" | "ZF004"), "{fields:?}");
            None
        }
        Ok(mut client) => match client.try_exchange(&wire::query(sql)) {
            Ok(answer) if code(&answer) == "ZF004" => None,
            Ok(answer) => Some(format!("{sql}: {answer:?}")),
            Err(Failed::Closed(_)) => None,
            Err(Failed::Silent) => panic!("{sql}: no answer"),
        },
    }
}

#[test]
fn acceptance_17_a_target_is_nobodys_from_its_first_instant() {
    const ROUNDS: usize = 5;
    let proxy = shared_proxy();
    let port = proxy.port();
    for _ in 0..ROUNDS {
        let db = fresh_name();
        let target = Moved::to(proxy, &format!("old/{db}"));
        let (over, tries) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for sql in ["SELECT 1", "CREATE TABLE hole (n int)", "BEGIN; SELECT 1", ""] {
                let (db, over, tries) = (&db, &over, &tries);
                scope.spawn(move || {
                    while !over.load(Ordering::SeqCst) {
                        let hole = got_in(port, db, sql);
                        assert!(hole.is_none(), "VIOLATION: {hole:?}");
                        tries.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            let created = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                level(&tries, 10);
                applied(&target.create());
                level(&tries, tries.load(Ordering::SeqCst) + 30);
            }));
            over.store(true, Ordering::SeqCst);
            created.unwrap();
        });
        assert_eq!(target.proxy.inspect(&target.namespace)["fence"]["state"], "TARGET_QUARANTINED");
        // A superuser and a replication connection are nobody special.
        let mut psql = tools(proxy).psql(&db);
        psql.env("PGUSER", "fencewire").env("PGPASSWORD", "fencewire");
        for sql in ["SELECT 1", "CREATE TABLE hole (n int)", "CHECKPOINT"] {
            let said = run_failing(psql.args(["-c", sql]));
            assert!(said.contains("MIGRATION_TARGET_QUARANTINED"), "VIOLATION: {said}");
        }
        let said = run_failing(
            tools(proxy)
                .command(tools(proxy).cluster.program("psql"), &db)
                .env("PGUSER", "fencewire")
                .env("PGPASSWORD", "fencewire")
                .args(["-X", "-d", &format!("dbname={db} replication=database")])
                .args(["-c", "IDENTIFY_SYSTEM"]),
        );
        assert!(said.contains("MIGRATION_TARGET_QUARANTINED"), "VIOLATION: {said}");
        let elsewhere = Site::shared();
        let mut client = elsewhere.client();
        for sql in ["DROP DATABASE x", "ALTER DATABASE x RENAME TO y", "CREATE DATABASE x"] {
            let answer = client.query(&sql.replace('x', &db));
            assert_eq!(code(&answer), "ZF004", "VIOLATION: {sql}: {answer:?}");
        }
        let tables = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace";
        assert_eq!(PgCluster::shared().sql(&db, tables), "0", "VIOLATION: somebody wrote");
    }
}

/// The steps of a creation at which somebody without a capability got in.
fn holes(removed: &str) -> Vec<&'static str> {
    let mut proxy = Proxy::start_with(ProxyOptions {
        engines: vec![Engine::plain("old", PgCluster::shared())],
        ..ProxyOptions::default()
    });
    let db = fresh_name();
    capability::holes(&mut proxy, removed, &format!("old/{db}"), |port| {
        let all = ["SELECT 1", "BEGIN; SELECT 1", "COPY (SELECT 1) TO STDOUT", "CREATE TABLE h ()"];
        all.iter().filter(|sql| got_in(port, &db, sql).is_some()).count() > 0
    })
}

#[test]
fn acceptance_17_no_step_of_a_creation_lets_anybody_in() {
    let found = holes("");
    assert!(found.is_empty(), "VIOLATION: somebody got in at {found:?}");
}

#[test]
fn acceptance_17_control_arm_a_name_that_is_not_closed_first_is_found() {
    let found = holes("target-overlay");
    assert!(found.contains(&"after_create"), "nobody got in: {found:?}");
}

fn level(count: &AtomicU32, wanted: u32) {
    let reached =
        poll(Duration::from_secs(60), || (count.load(Ordering::SeqCst) >= wanted).then_some(()));
    assert!(reached.is_some(), "the tries stopped");
}

#[test]
fn acceptance_18_a_seal_waits_for_imports_and_ends_every_capability() {
    let (target, db) = target();
    let port = target.proxy.port();
    let secret = target.secret("import");
    let mut open = show(port, &db, &secret).unwrap();
    open.query("CREATE TABLE t (n int)").ok();
    open.query("BEGIN").ok();
    open.query("INSERT INTO t VALUES (1)").ok();
    let mut ends = show(port, &db, &secret).unwrap();
    ends.query("BEGIN").ok();
    ends.query("INSERT INTO t VALUES (2)").ok();
    let mut idle = show(port, &db, &secret).unwrap();
    idle.query("SELECT 1").ok();
    let policy = fail_after(300);
    let body = {
        let mut body = target.proxy.command_body(&target.namespace, &target.operation, &uuid());
        body["drain_policy"] = policy;
        body
    };
    let seal = || target.proxy.command(&target.namespace, "target/seal-import", &body);
    let answer = seal();
    let drain = &still_draining(&answer)["drain"];
    assert_eq!(drain["import_writers"], 2, "{drain:#}");
    assert_eq!(target.ask("import").0, 403);
    assert_eq!(show(port, &db, &secret).err().as_deref(), Some("ZF006"));
    for sql in ["SELECT 1", "INSERT INTO t VALUES (3)", "BEGIN"] {
        assert_eq!(code(&idle.query(sql)), "ZF006", "{sql}");
    }
    // The end of what was admitted passes, and the seal waits for it; nothing else does.
    ends.query("COMMIT").ok();
    let more = open.query("INSERT INTO t VALUES (4)");
    assert_eq!((code(&more), more.status), ("ZF006".to_owned(), 'E'));
    assert_eq!(open.query("COMMIT").tags(), ["ROLLBACK"]);
    let mut last = seal();
    let sealed = poll(Duration::from_secs(60), || {
        last = seal();
        (last.0 == 200).then_some(())
    });
    assert!(sealed.is_some(), "{:#}", last.1);
    let rows = || PgCluster::shared().sql(&db, "SELECT string_agg(n::text, ',') FROM t");
    assert_eq!(rows(), "2");
    for client in [&mut open, &mut ends, &mut idle] {
        for sql in ["INSERT INTO t VALUES (5)", "SELECT 1"] {
            assert_eq!(code(&client.query(sql)), "ZF006", "{sql}");
        }
        // Given up, the session is one like any other.
        assert_eq!(code(&client.query("RESET fencewire.capability")), "ZF004");
        assert_eq!(code(&client.query("SELECT 1")), "ZF004");
    }
    let mut validates = show(port, &db, &target.secret("validation")).unwrap();
    assert_eq!(validates.query("SELECT count(*) FROM t").cell(), "1");
    for sql in ["INSERT INTO t VALUES (6)", "SET transaction_read_only = off", "DO 'BEGIN END'"] {
        assert_eq!(code(&validates.query(sql)), "ZF006", "{sql}");
    }
    target.validated();
    assert_eq!(code(&validates.query("SELECT 1")), "ZF006", "the revision has moved");
    target.published();
    target.enabled();
    let mut anybody = Wire::connect(port, "wire", &db);
    anybody.query("INSERT INTO t VALUES (7)").ok();
    assert_eq!(rows(), "2,7");
}

/// An import whose first statement stops at a point of the statement path; the file lets it go on.
fn stopped_at(point: &str, file: &Path) -> Proxy {
    Proxy::start_with(ProxyOptions {
        engines: vec![Engine::plain("old", PgCluster::shared())],
        env: vec![("FENCEWIRE_FAULT".to_owned(), format!("{point}=park:{}", file.display()))],
        ..ProxyOptions::default()
    })
}

fn stopped_import<'a>(proxy: &'a Proxy, file: &Path) -> (Moved<'a>, String, Wire) {
    let (db, cluster) = (fresh_name(), PgCluster::shared());
    let target = Moved::created(proxy, &format!("old/{db}"));
    cluster.sql(&db, "CREATE TABLE t (n int); GRANT ALL ON t TO app");
    let mut client = show(proxy.port(), &db, &target.secret("import")).unwrap();
    client.send_raw(&wire::query("INSERT INTO t VALUES (1)"));
    let parked = file.with_extension("parked");
    assert!(poll(PATIENCE, || parked.exists().then_some(())).is_some(), "nothing stopped there");
    (target, db, client)
}

#[test]
fn acceptance_18_classified_before_the_seal_and_not_forwarded_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("go-on");
    let proxy = stopped_at("wire.before_admission", &file);
    let (target, db, mut client) = stopped_import(&proxy, &file);
    applied(&target.seal(&patient()));
    std::fs::write(&file, "").unwrap();
    assert_eq!(code(&client.until_ready()), "ZF006");
    assert_eq!(PgCluster::shared().sql(&db, "SELECT count(*) FROM t"), "0");
}

#[test]
fn acceptance_18_control_arm_admitted_and_not_forwarded_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("go-on");
    let proxy = stopped_at("wire.after_admission", &file);
    let (target, db, mut client) = stopped_import(&proxy, &file);
    let answer = target.seal(&fail_after(300));
    assert_eq!(still_draining(&answer)["drain"]["import_writers"], 1, "{:#}", answer.1);
    std::fs::write(&file, "").unwrap();
    client.until_ready().ok();
    let sealed = poll(PATIENCE, || (target.seal(&patient()).0 == 200).then_some(()));
    assert!(sealed.is_some(), "{:#}", target.proxy.inspect(&target.namespace));
    assert_eq!(PgCluster::shared().sql(&db, "SELECT count(*) FROM t"), "1");
}

#[test]
fn acceptance_18_control_arm_a_capability_that_outlives_its_revision_is_found() {
    let cluster = PgCluster::shared();
    let proxy = Proxy::start_with(ProxyOptions {
        engines: vec![Engine::plain("old", cluster)],
        env: vec![("FENCEWIRE_REMOVE".to_owned(), "capability-life".to_owned())],
        ..ProxyOptions::default()
    });
    let db = fresh_name();
    let target = Moved::created(&proxy, &format!("old/{db}"));
    own(cluster, &db);
    applied(&target.seal(&patient()));
    let mut validates = show(proxy.port(), &db, &target.secret("validation")).unwrap();
    target.validated();
    validates.query("SELECT 1").ok();
}

#[test]
fn an_abort_ends_imports_for_good() {
    let (target, db) = target();
    let port = target.proxy.port();
    let secret = target.secret("import");
    let mut imports = show(port, &db, &secret).unwrap();
    imports.query("CREATE TABLE t (n int)").ok();
    applied(&target.command("target/abort", &serde_json::json!({})));
    let refused = code(&imports.query("INSERT INTO t VALUES (1)"));
    assert!(matches!(refused.as_str(), "ZF004" | "ZF006"), "{refused}");
    assert_eq!(show(port, &db, &secret).err().as_deref(), Some("ZF006"));
    assert_eq!(code(&Wire::connect(port, "wire", &db).query("SELECT 1")), "ZF004");
}

/// What a session runs is cancelled by its own client, whatever it has shown since its login.
#[track_caller]
fn is_cancelled(client: &mut Wire, what: &str) {
    client.send_raw(&wire::query("SELECT pg_sleep(40)"));
    let pid = client.backend_pid();
    let asked = format!("SELECT wait_event FROM pg_stat_activity WHERE pid = {pid}");
    let sleeps = || (PgCluster::shared().sql("postgres", &asked) == "PgSleep").then_some(());
    assert!(poll(PATIENCE, sleeps).is_some(), "{what}: it doesn't run");
    client.cancel();
    assert_eq!(code(&client.until_ready()), "57014", "{what}");
}

#[test]
fn a_cancel_finds_a_session_that_has_shown_a_capability_or_given_one_up() {
    let (target, db) = target();
    let port = target.proxy.port();
    let secret = target.secret("import");
    let mut imports = show(port, &db, &secret).unwrap();
    is_cancelled(&mut imports, "shown at its login: control arm");
    imports.query("DISCARD ALL").ok();
    is_cancelled(&mut imports, "behind DISCARD ALL");
    let mut imports = Wire::connect(port, "wire", &db);
    let shows = format!("SET fencewire.capability = '{secret}'");
    for _ in 0..2 {
        imports.query(&shows).ok();
        is_cancelled(&mut imports, "shown by a SET");
        imports.query("RESET fencewire.capability").ok();
    }
}

#[test]
fn acceptance_18_a_seal_that_forces_rolls_imports_back() {
    let (target, db) = target();
    let port = target.proxy.port();
    let secret = target.secret("import");
    let mut open = show(port, &db, &secret).unwrap();
    open.query("CREATE TABLE t (n int)").ok();
    open.query("BEGIN").ok();
    open.query("INSERT INTO t VALUES (1)").ok();
    applied(&target.seal(&force_after(200)));
    assert_eq!(code(&open.query("COMMIT")), "ZF009");
    assert_eq!(PgCluster::shared().sql(&db, "SELECT count(*) FROM t"), "0");
}

#[test]
fn one_counts_for_its_own_namespace_operation_revision_and_purpose() {
    let (one, db) = target();
    let (other, other_db) = target();
    let port = one.proxy.port();
    let (theirs, ours) = (other.secret("import"), one.secret("import"));
    let refused = |db: &str, secret: &str| show(port, db, secret).err();
    let zf006 = || Some("ZF006".to_owned());
    for (db, secret) in [(&db, &theirs), (&other_db, &ours), (&db, &wrong())] {
        assert_eq!(refused(db, secret), zf006());
        let mut client = Wire::connect(port, "wire", db);
        assert_eq!(code(&client.query(&format!("SET fencewire.capability = '{secret}'"))), "ZF006");
        assert_eq!(code(&client.query("SELECT 1")), "ZF004");
    }
    assert_eq!(refused("postgres", &ours), zf006(), "nor at a database without a fence");
    // Of several that are offered each must be one.
    let both = format!("{} {}", options(&theirs), options(&ours));
    let parameters = [("options", both.as_str())];
    assert!(Wire::try_connect(port, "wire", &db, &parameters).is_err());
    let named = [("fencewire.capability", ours.as_str()), ("options", "-c work_mem=4321kB")];
    let mut client = Wire::try_connect(port, "wire", &db, &named).unwrap();
    assert_eq!(client.query("SHOW work_mem").cell(), "4321kB", "what stands beside it is kept");
    show(port, &format!("old/{db}"), &ours).unwrap().query("SELECT 1").ok();
    for replication in ["true", "database"] {
        let parameters = [("options", &*options(&ours)), ("replication", replication)];
        let refused = Wire::try_connect(port, "wire", &db, &parameters).err().unwrap();
        assert_eq!(refused[&'C'], "ZF006");
    }
    // Another operation gets none, and an older revision neither.
    let stranger = Moved { operation: uuid(), ..Moved::to(one.proxy, &one.namespace) };
    assert_eq!(stranger.ask("import").0, 409);
    assert_eq!(one.ask("validation").0, 403);
    applied(&one.seal(&patient()));
    let first = one.secret("validation");
    let mut validates = show(port, &db, &first).unwrap();
    validates.query("SELECT 1").ok();
    one.validated();
    assert_eq!(code(&validates.query("SELECT 1")), "ZF006");
    assert_eq!(refused(&db, &first), zf006());
}

/// A cluster that logs everything, and a proxy that does.
fn loud(removed: Option<&str>) -> (PgCluster, Proxy) {
    let settings =
        [("log_statement", "'all'"), ("log_connections", "on"), ("log_min_messages", "debug1")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let cluster = PgCluster::start(Options { settings, ..Options::default() });
    let mut env = vec![("RUST_LOG".to_owned(), "trace".to_owned())];
    env.extend(removed.map(|guard| ("FENCEWIRE_REMOVE".to_owned(), guard.to_owned())));
    let proxy = Proxy::start_with(ProxyOptions {
        engines: vec![Engine::plain("old", &cluster)],
        admin: "show_literals = true\n".into(),
        env,
        ..ProxyOptions::default()
    });
    (cluster, proxy)
}

/// Shows secrets in every way, right and wrong; returns them, and what clients were told.
fn show_around(cluster: &PgCluster, proxy: &Proxy) -> (String, Vec<String>, Vec<String>) {
    let db = fresh_name();
    let target = Moved::created(proxy, &format!("old/{db}"));
    own(cluster, &db);
    let (port, mut told) = (proxy.port(), Vec::new());
    let secrets = vec![target.secret("import"), wrong()];
    for secret in &secrets {
        let set = format!("SET fencewire.capability = '{secret}'");
        for parameters in [
            [("options", options(secret))],
            [("options", format!("-c work_mem=1MB --fencewire.capability={secret} -c a.b=c"))],
            [("fencewire.capability", secret.clone())],
            [("application_name", secret.clone())],
        ] {
            let parameters = parameters.each_ref().map(|(name, value)| (*name, value.as_str()));
            match Wire::try_connect(port, "wire", &db, &parameters) {
                Ok(mut client) => told.push(format!("{:?}", client.query("SELECT 1"))),
                Err(fields) => told.push(format!("{fields:?}")),
            }
        }
        let mut client = Wire::connect(port, "wire", &db);
        for sql in [
            format!("SELECT 1; {set}"),
            format!("SELECT set_config('fencewire.capability', '{secret}', false)"),
            format!("DO $$ BEGIN EXECUTE '{secret}'; END $$"),
            format!("SET LOCAL fencewire.capability = '{secret}'"),
            set.clone(),
            "SHOW fencewire.capability".to_owned(),
        ] {
            told.push(format!("{:?}", client.query(&sql)));
            told.push(format!("{:?}", client.extended(&sql, &[])));
        }
        let shows = client.query("SELECT name, setting FROM pg_settings WHERE name ~ 'fencewire'");
        told.push(format!("{shows:?}"));
    }
    // A drain that names its blockers, statement and all.
    let mut open = show(port, &db, &secrets[0]).unwrap();
    open.query("BEGIN").ok();
    open.query("CREATE TABLE t (n int)").ok();
    told.push(target.seal(&fail_after(100)).1.to_string());
    (target.namespace.clone(), secrets, told)
}

#[test]
fn invariant_16_no_secret_is_seen_anywhere() {
    let (cluster, proxy) = loud(None);
    let (namespace, secrets, told) = show_around(&cluster, &proxy);
    let mut all = shown(&proxy, &namespace, &cluster.log_file());
    assert!(all.iter().any(|(_, text)| text.contains("SET fencewire.capability = ''")));
    all.extend(told.into_iter().map(|text| ("what a client was told".to_owned(), text)));
    let places = seen(&all, &secrets);
    assert!(places.is_empty(), "VIOLATION: a secret is seen in {places:?}");
}

#[test]
fn invariant_16_a_secret_that_is_passed_on_is_found() {
    let (cluster, proxy) = loud(Some("capability-secret"));
    let (namespace, secrets, _) = show_around(&cluster, &proxy);
    let all = shown(&proxy, &namespace, &cluster.log_file());
    assert_eq!(seen(&all, &secrets), [cluster.log_file().display().to_string()]);
}

fn uuid() -> String {
    support::proxy::uuid()
}
