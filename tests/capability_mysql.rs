//! Capabilities on MySQL's wire, on MariaDB and MySQL: who gets into a target that isn't published,
//! and what becomes of the secret (acceptance 17 and 18, invariants 15 and 16).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod acceptance_mysql;
mod capability;
mod support;

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use acceptance::{applied, fail_after, force_after, patient, still_draining};
use acceptance_mysql::{MySite, code, on_both, own, shared_proxy};
use capability::{Moved, seen, shown, wrong};
use support::my_tools::MyTarget;
use support::my_wire::{MyFailed, MyLogin, flag};
use support::talk::Language;
use support::tools::{run, run_failing};
use support::{Engine, MyCluster, MyFlavour, MyOptions, MyWire, Proxy, ProxyOptions, poll};

on_both!(
    unchanged_tools_fill_a_target_and_read_it_back,
    drivers_show_one_by_an_attribute_or_a_first_statement,
    acceptance_17_a_target_is_nobodys_from_its_first_instant,
    acceptance_17_no_step_of_a_creation_lets_anybody_in,
    acceptance_17_control_arm_a_name_that_is_not_closed_first_is_found,
    acceptance_18_a_seal_waits_for_imports_and_ends_every_capability,
    acceptance_18_a_seal_that_forces_rolls_imports_back,
    one_counts_for_its_own_namespace_and_nowhere_else,
    invariant_16_no_secret_is_seen_anywhere,
    invariant_16_a_secret_that_is_passed_on_is_found,
);

/// A schema's name that nothing has yet.
fn fresh_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    format!("target{}", COUNT.fetch_add(1, Ordering::SeqCst))
}

/// A quarantined target on the flavour's shared server, which `app` and `wire` may fill.
fn target(flavour: MyFlavour) -> (Moved<'static>, String) {
    let db = fresh_name();
    grant(MyCluster::shared(flavour), &db);
    (Moved::created(shared_proxy(flavour), &format!("old/{db}")), db)
}

/// Everybody's rights, the control account's to create it among them; the schema needn't be there.
fn grant(cluster: &MyCluster, db: &str) {
    for (rights, account) in [("ALL", "app"), ("ALL", "wire"), ("CREATE", "fencewire")] {
        cluster.sql("mysql", &format!("GRANT {rights} ON `{db}`.* TO {account}@'127.0.0.1'"));
    }
}

fn set(secret: &str) -> String {
    format!("SET @fencewire_capability = '{secret}'")
}

fn attribute(db: &str, secret: &str) -> MyLogin {
    let mut login = MyLogin::of("wire", db).with(flag::CONNECT_ATTRS);
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    login.attributes = vec![
        pair("program_name", "import"),
        pair("fencewire_capability", secret),
        pair("_os", "x"),
    ];
    login
}

/// A client that shows a secret at its login; the error's number where it isn't let in.
fn show(port: u16, db: &str, secret: &str) -> Result<MyWire, u16> {
    MyWire::login(port, &attribute(db, secret)).map_err(|failed| match failed {
        MyFailed::Refused(error) => error.code,
        MyFailed::Closed(error) => panic!("no answer: {error}"),
    })
}

fn number(client: &mut MyWire, sql: &str) -> u16 {
    client.query(sql).code()
}

fn unchanged_tools_fill_a_target_and_read_it_back(flavour: MyFlavour) {
    // Of their own: MariaDB's dump begins with a comment that nobody can prove, and such a text is
    // admitted only where no other schema of the engine is closed.
    let (cluster, proxy) = own(flavour);
    let cluster = &cluster;
    let (port, db) = (proxy.port(), fresh_name());
    grant(cluster, &db);
    let target = Moved::created(&proxy, &format!("old/{db}"));
    let source = MySite::new(cluster, &proxy);
    let mut owner = MyWire::connect(cluster.port(), "app", &source.db);
    for sql in [
        "CREATE TABLE people (id int PRIMARY KEY, name text)",
        "INSERT INTO people VALUES (1, 'one'), (2, 'two')",
        "CREATE VIEW few AS SELECT * FROM people WHERE id < 2",
    ] {
        owner.query(sql).ok();
    }
    let tools = MyTarget { cluster, port, client_tls: false, engine_tls: false };
    let dump = |db: &str| {
        let mut dump = tools.dump();
        dump.args(["--skip-dump-date", "--skip-comments", "--no-tablespaces"]);
        if flavour == MyFlavour::MySql {
            dump.args(["--set-gtid-purged=OFF", "--column-statistics=0"]);
        }
        dump.arg(db);
        dump
    };
    let text = run(&mut dump(&source.db));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("app.sql");
    std::fs::write(&file, &text).unwrap();
    let load = |init: Option<&str>| {
        let mut load = tools.mysql(&db);
        load.args(init.map(|sql| format!("--init-command={sql}")));
        load.stdin(Stdio::from(std::fs::File::open(&file).unwrap()));
        load
    };
    let secret = target.secret("import");
    assert!(run_failing(&mut load(None)).contains("MIGRATION_TARGET_QUARANTINED"));
    run(&mut load(Some(&set(&secret))));
    applied(&target.seal(&patient()));
    // The clients say what an init command's error is; not every one stops there.
    let said =
        tools.mysql(&db).args([format!("--init-command={}", set(&secret))]).output().unwrap();
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("OPERATION_CAPABILITY_REQUIRED"), "{said}");
    let mut validates = show(port, &db, &target.secret("validation")).unwrap();
    assert_eq!(validates.query("SELECT COUNT(*) FROM people").cell(), "2");
    assert_eq!(validates.query("SELECT COUNT(*) FROM few").cell(), "1");
    target.validated();
    target.published();
    assert_eq!(run(&mut dump(&db)), text, "published, it is what went in");
}

/// PyMySQL and Connector/Python: a capability among the connection attributes.
const PYTHON: &str = r#"
import sys, tempfile, mysql.connector, pymysql
port, database, secret = int(sys.argv[1]), sys.argv[2], sys.argv[3]
where = {"host": "127.0.0.1", "port": port, "user": "app", "password": "app",
         "database": database, "autocommit": True, "ssl_disabled": True}
def one(secret):
    connection = pymysql.connect(defer_connect=True, local_infile=True, **where)
    if secret:
        connection._connect_attrs["fencewire_capability"] = secret
    connection.connect()
    return connection
def other(secret):
    more = {"conn_attrs": {"fencewire_capability": secret}} if secret else {}
    return mysql.connector.connect(use_pure=True, **where, **more)
def run(connection, sql):
    cursor = connection.cursor()
    cursor.execute(sql)
    return cursor.fetchall() if cursor.description else None
def refused(connect, secret, number):
    try:
        run(connect(secret), "INSERT INTO p VALUES (9)")
    except (pymysql.Error, mysql.connector.Error) as error:
        assert error.args[0] == number, error
    else:
        sys.exit("VIOLATION: " + connect.__name__)
run(one(secret), "CREATE TABLE p (n int)")
for connect in (one, other):
    imports = connect(secret)
    run(imports, "INSERT INTO p VALUES (1)")
    refused(connect, "fwc_", 9706)
    refused(connect, None, 9704)
with tempfile.NamedTemporaryFile("w") as file:
    file.write("1\n2\n")
    file.flush()
    load = f"LOAD DATA LOCAL INFILE '{file.name}' INTO TABLE p"
    run(one(secret), load)
    try:
        run(pymysql.connect(local_infile=True, **where), load)
    except pymysql.Error as error:
        assert error.args[0] == 9704, error
print(run(imports, "SELECT COUNT(*) FROM p")[0][0])
"#;

fn drivers_show_one_by_an_attribute_or_a_first_statement(flavour: MyFlavour) {
    let (target, db) = target(flavour);
    let secret = target.secret("import");
    let mut python = std::process::Command::new(Language::Python.program());
    let port = target.proxy.port().to_string();
    let said = run(python.args(["-c", PYTHON, &port, &db, &secret]));
    assert_eq!(said.trim(), "4");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        use mysql_async::prelude::Queryable as _;
        let options = |init: String| {
            let options = mysql_async::OptsBuilder::default()
                .ip_or_hostname("127.0.0.1")
                .tcp_port(target.proxy.port())
                .user(Some("app"))
                .pass(Some("app"))
                .prefer_socket(false);
            // It asks for the server's settings before that, and may, where it has no schema yet.
            // It goes through its list from the end.
            options.setup(vec![format!("USE `{db}`"), init])
        };
        let mut imports = mysql_async::Conn::new(options(set(&secret))).await.unwrap();
        imports.exec_drop("INSERT INTO p VALUES (?)", (2,)).await.unwrap();
        let sum = imports.query_first("SELECT CAST(SUM(n) AS UNSIGNED) FROM p").await;
        let sum: Option<u64> = sum.unwrap();
        assert_eq!(sum, Some(7));
        imports.disconnect().await.unwrap();
        match mysql_async::Conn::new(options(set(&wrong()))).await {
            Err(mysql_async::Error::Server(error)) => assert_eq!(error.code, 9706),
            other => panic!("{:?}", other.map(|_| ())),
        }
    });
}

/// What one try of somebody without a capability shows, if it shows that the target can be used.
fn got_in(port: u16, account: &str, db: &str, sql: &str) -> Option<String> {
    match MyWire::login(port, &MyLogin::of(account, db)) {
        Err(MyFailed::Refused(error)) => {
            // No such schema, no right to it yet, or the fence.
            assert!([1049, 1044, 9704].contains(&error.code), "{error:?}");
            None
        }
        Err(MyFailed::Closed(_)) => None,
        Ok(mut client) => match client.try_query(sql) {
            Ok(answer) if answer.code() == 9704 => None,
            Ok(answer) => Some(format!("{sql}: {answer:?}")),
            Err(_) => None,
        },
    }
}

fn acceptance_17_a_target_is_nobodys_from_its_first_instant(flavour: MyFlavour) {
    const ROUNDS: usize = 4;
    let (cluster, proxy) = (MyCluster::shared(flavour), shared_proxy(flavour));
    let port = proxy.port();
    for _ in 0..ROUNDS {
        let db = fresh_name();
        // Rights are there before the schema is, so that nothing but the fence keeps them out.
        grant(cluster, &db);
        let target = Moved::to(proxy, &format!("old/{db}"));
        let (over, tries) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            let mine = [
                ("wire", "SELECT 1"),
                ("app", "CREATE TABLE hole (n int)"),
                // It has every right.
                ("fencewire", "SHOW TABLES"),
            ];
            for (account, sql) in mine {
                let (db, over, tries) = (&db, &over, &tries);
                scope.spawn(move || {
                    while !over.load(Ordering::SeqCst) {
                        let hole = got_in(port, account, db, sql);
                        assert!(hole.is_none(), "VIOLATION: {hole:?}");
                        tries.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            // One that names it from another schema.
            let (elsewhere, over, tried) = (MySite::shared(flavour), &over, &tries);
            let named = format!("SELECT * FROM `{db}`.hole");
            scope.spawn(move || {
                let mut client = elsewhere.client();
                while !over.load(Ordering::SeqCst) {
                    let code = number(&mut client, &named);
                    assert!([1146, 1049, 9704].contains(&code), "VIOLATION: {code}");
                    tried.fetch_add(1, Ordering::SeqCst);
                }
            });
            let created = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                level(&tries, 10);
                applied(&target.create());
                level(&tries, tries.load(Ordering::SeqCst) + 30);
            }));
            over.store(true, Ordering::SeqCst);
            created.unwrap();
        });
        let mut client = MySite::shared(flavour).client();
        for sql in [
            format!("SELECT * FROM `{db}`.hole"),
            format!("CREATE TABLE `{db}`.hole (n int)"),
            format!("USE `{db}`"),
            format!("DROP DATABASE `{db}`"),
            format!("CREATE DATABASE `{db}`"),
            format!("ALTER DATABASE `{db}` CHARACTER SET utf8mb4"),
        ] {
            assert_eq!(number(&mut client, &sql), 9704, "VIOLATION: {sql}");
        }
        let sql =
            format!("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '{db}'");
        assert_eq!(cluster.sql("mysql", &sql), "0", "VIOLATION: somebody wrote");
    }
}

/// The steps of a creation at which somebody without a capability got in.
fn holes(flavour: MyFlavour, removed: &str) -> Vec<&'static str> {
    let cluster = MyCluster::shared(flavour);
    let mut proxy = Proxy::start_with(ProxyOptions {
        engines: vec![Engine::my_plain("old", cluster)],
        ..ProxyOptions::default()
    });
    let db = fresh_name();
    grant(cluster, &db);
    capability::holes(&mut proxy, removed, &format!("old/{db}"), |port| {
        let all = ["SELECT 1", "SHOW TABLES", "CREATE TABLE hole (n int)"];
        all.iter().filter(|sql| got_in(port, "wire", &db, sql).is_some()).count() > 0
    })
}

fn acceptance_17_no_step_of_a_creation_lets_anybody_in(flavour: MyFlavour) {
    let found = holes(flavour, "");
    assert!(found.is_empty(), "VIOLATION: somebody got in at {found:?}");
}

fn acceptance_17_control_arm_a_name_that_is_not_closed_first_is_found(flavour: MyFlavour) {
    let found = holes(flavour, "target-overlay");
    assert!(found.contains(&"after_create"), "nobody got in: {found:?}");
}

fn level(count: &AtomicU32, wanted: u32) {
    let reached =
        poll(Duration::from_secs(60), || (count.load(Ordering::SeqCst) >= wanted).then_some(()));
    assert!(reached.is_some(), "the tries stopped");
}

fn acceptance_18_a_seal_waits_for_imports_and_ends_every_capability(flavour: MyFlavour) {
    let (target, db) = target(flavour);
    let port = target.proxy.port();
    let secret = target.secret("import");
    let mut open = show(port, &db, &secret).unwrap();
    open.query("CREATE TABLE t (n int)").ok();
    open.query("BEGIN").ok();
    open.query("INSERT INTO t VALUES (1)").ok();
    let mut ends = show(port, &db, &secret).unwrap();
    ends.query("BEGIN").ok();
    ends.query("INSERT INTO t VALUES (2)").ok();
    let mut idle = MyWire::connect(port, "wire", &db);
    idle.query(&set(&secret)).ok();
    idle.query("SELECT 1").ok();
    let mut body =
        target.proxy.command_body(&target.namespace, &target.operation, &support::proxy::uuid());
    body["drain_policy"] = fail_after(300);
    let seal = || target.proxy.command(&target.namespace, "target/seal-import", &body);
    let answer = seal();
    let drain = &still_draining(&answer)["drain"];
    assert_eq!(drain["import_writers"], 2, "{drain:#}");
    assert_eq!(show(port, &db, &secret).err(), Some(9706));
    for sql in ["SELECT 1", "INSERT INTO t VALUES (3)", "BEGIN"] {
        assert_eq!(number(&mut idle, sql), 9706, "{sql}");
    }
    // The end of what was admitted passes, and the seal waits for it; nothing else does.
    ends.query("COMMIT").ok();
    assert_eq!(number(&mut open, "INSERT INTO t VALUES (4)"), 9706);
    assert_eq!(number(&mut open, "COMMIT"), 9706, "rolled back, and the client is told");
    let mut last = seal();
    let sealed = poll(Duration::from_secs(60), || {
        last = seal();
        (last.0 == 200).then_some(())
    });
    assert!(sealed.is_some(), "{:#}", last.1);
    let cluster = MyCluster::shared(flavour);
    let rows = || cluster.sql(&db, "SELECT GROUP_CONCAT(n ORDER BY n) FROM t");
    assert_eq!(rows(), "2");
    for client in [&mut open, &mut ends, &mut idle] {
        for sql in ["INSERT INTO t VALUES (5)", "SELECT 1"] {
            assert_eq!(number(client, sql), 9706, "{sql}");
        }
        assert_eq!(number(client, "SET @fencewire_capability = NULL"), 9704);
        assert_eq!(number(client, "SELECT 1"), 9704);
    }
    let mut validates = show(port, &db, &target.secret("validation")).unwrap();
    assert_eq!(validates.query("SELECT COUNT(*) FROM t").cell(), "1");
    // The session's own setting may be lifted, as by a pool: it isn't what keeps it from writing.
    for lift in ["", "SET SESSION TRANSACTION READ WRITE; "] {
        for sql in ["INSERT INTO t VALUES (6)", "SET @@transaction_read_only = 0", "DROP TABLE t"] {
            assert_eq!(number(&mut validates, &format!("{lift}{sql}")), 9706, "{lift}{sql}");
        }
        assert_eq!(number(&mut validates, "SET SESSION TRANSACTION READ WRITE"), 0);
    }
    target.validated();
    assert_eq!(number(&mut validates, "SELECT 1"), 9706, "the revision has moved");
    target.published();
    target.enabled();
    MyWire::connect(port, "wire", &db).query("INSERT INTO t VALUES (7)").ok();
    assert_eq!(rows(), "2,7");
}

fn acceptance_18_a_seal_that_forces_rolls_imports_back(flavour: MyFlavour) {
    let (target, db) = target(flavour);
    let mut open = show(target.proxy.port(), &db, &target.secret("import")).unwrap();
    open.query("CREATE TABLE t (n int)").ok();
    open.query("BEGIN").ok();
    open.query("INSERT INTO t VALUES (1)").ok();
    applied(&target.seal(&force_after(500)));
    assert_eq!(number(&mut open, "COMMIT"), 9709);
    assert_eq!(MyCluster::shared(flavour).sql(&db, "SELECT COUNT(*) FROM t"), "0");
}

fn one_counts_for_its_own_namespace_and_nowhere_else(flavour: MyFlavour) {
    let (one, db) = target(flavour);
    let (other, other_db) = target(flavour);
    let port = one.proxy.port();
    let (ours, theirs) = (one.secret("import"), other.secret("import"));
    for (db, secret) in [(&db, &theirs), (&other_db, &ours), (&db, &wrong())] {
        assert_eq!(show(port, db, secret).err(), Some(9706));
        let mut client = MyWire::connect(port, "wire", db);
        assert_eq!(number(&mut client, &set(secret)), 9706);
        assert_eq!(number(&mut client, "SELECT 1"), 9704);
    }
    let mut client = show(port, &db, &ours).unwrap();
    client.query("CREATE TABLE t (n int)").ok();
    client.query("INSERT INTO t VALUES (1)").ok();
    let elsewhere = MySite::shared(flavour);
    client.query(&format!("INSERT INTO t SELECT COUNT(*) FROM `{}`.t", elsewhere.db)).ok();
    let into = format!("CREATE TABLE `{other_db}`.t (n int)");
    assert_eq!(number(&mut client, &into), 9704, "VIOLATION: of another target");
    assert_eq!(number(&mut client, &format!("DROP DATABASE `{db}`")), 9704);
    // One without a default schema shows any of its engine, and it counts where its names go.
    let mut loads = show(port, "", &theirs).unwrap();
    loads.query(&into).ok();
    assert_eq!(number(&mut loads, &format!("INSERT INTO `{db}`.t VALUES (2)")), 9704);
    loads.query(&format!("USE `{other_db}`")).ok();
    loads.query("INSERT INTO t VALUES (1)").ok();
    // A connection that is given back to its pool has what its login showed.
    loads.command(&[0x1f]);
    assert_eq!(loads.packet().payload[0], 0);
    loads.query("INSERT INTO t VALUES (2)").ok();
    let mut shares = MyWire::connect(port, "wire", &db);
    shares.query(&set(&ours)).ok();
    shares.query("INSERT INTO t VALUES (3)").ok();
    shares.command(&[0x1f]);
    assert_eq!(shares.packet().payload[0], 0);
    assert_eq!(number(&mut shares, "INSERT INTO t VALUES (4)"), 9704);
    assert_eq!(code(&client.query("SELECT COUNT(*) FROM t")), "");
}

/// A server that logs every statement, and a proxy that logs everything.
fn loud(flavour: MyFlavour, removed: Option<&str>) -> (MyCluster, Proxy) {
    let log = [("general_log", "ON"), ("log_output", "TABLE"), ("performance_schema", "ON")];
    let settings = log.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let cluster = MyCluster::start(flavour, MyOptions { settings, ..MyOptions::default() });
    let mut env = vec![("RUST_LOG".to_owned(), "trace".to_owned())];
    env.extend(removed.map(|guard| ("FENCEWIRE_REMOVE".to_owned(), guard.to_owned())));
    let proxy = Proxy::start_with(ProxyOptions {
        engines: vec![Engine::my_plain("old", &cluster)],
        admin: "show_literals = true\n".into(),
        env,
        ..ProxyOptions::default()
    });
    (cluster, proxy)
}

/// Shows secrets in every way, right and wrong; returns them, and all that anybody was shown.
fn show_around(cluster: &MyCluster, proxy: &Proxy) -> (Vec<String>, Vec<(String, String)>) {
    let db = fresh_name();
    grant(cluster, &db);
    let target = Moved::created(proxy, &format!("old/{db}"));
    let (port, mut told) = (proxy.port(), Vec::new());
    let secrets = vec![target.secret("import"), wrong()];
    let mut open = Vec::new();
    for secret in &secrets {
        match MyWire::login(port, &attribute(&db, secret)) {
            Ok(mut client) => {
                told.push(format!("{:?}", client.query("SELECT @fencewire_capability")));
                open.push(client);
            }
            Err(failed) => told.push(format!("{failed:?}")),
        }
        let mut client = MyWire::connect(port, "wire", &db);
        for sql in [
            format!("SELECT '{secret}'"),
            format!("SET @a = 1, @fencewire_capability = '{secret}'"),
            set(secret),
            "SELECT @fencewire_capability".to_owned(),
        ] {
            told.push(format!("{:?}", client.query(&sql)));
            told.push(format!("{:?}", client.prepare(&sql).map(|one| one.map(|_| ()))));
        }
        open.push(client);
    }
    let first = &mut open[0];
    let drain = first.try_query("CREATE TABLE t (n int)").is_ok()
        && first.try_query("BEGIN").is_ok()
        && first.try_query("INSERT INTO t VALUES (1)").is_ok();
    assert!(drain);
    told.push(target.seal(&fail_after(100)).1.to_string());
    let mut all = shown(proxy, &target.namespace, &cluster.log_file());
    all.extend(told.into_iter().map(|text| ("what a client was told".to_owned(), text)));
    for sql in [
        "SELECT argument FROM mysql.general_log",
        "SELECT ATTR_NAME, ATTR_VALUE FROM performance_schema.session_connect_attrs",
    ] {
        all.push((sql.to_owned(), cluster.sql("mysql", sql)));
    }
    (secrets, all)
}

fn invariant_16_no_secret_is_seen_anywhere(flavour: MyFlavour) {
    let (cluster, proxy) = loud(flavour, None);
    let (secrets, all) = show_around(&cluster, &proxy);
    let text = |name: &str| {
        let found = all.iter().find(|(place, _)| place.contains(name));
        found.unwrap_or_else(|| panic!("no {name}")).1.clone()
    };
    assert!(text("general_log").contains("SET @fencewire_capability = ''"));
    assert!(text("session_connect_attrs").contains("import"), "the other attributes are there");
    let places = seen(&all, &secrets);
    assert!(places.is_empty(), "VIOLATION: a secret is seen in {places:?}");
}

fn invariant_16_a_secret_that_is_passed_on_is_found(flavour: MyFlavour) {
    let (cluster, proxy) = loud(flavour, Some("capability-secret"));
    let (secrets, all) = show_around(&cluster, &proxy);
    let places = seen(&all, &secrets);
    for name in ["general_log", "session_connect_attrs"] {
        assert!(places.iter().any(|place| place.contains(name)), "not in {name}: {places:?}");
    }
}
