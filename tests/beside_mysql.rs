//! What clients of MariaDB and MySQL go on doing while a schema of their engine is closed, theirs
//! or another one. Dumps, uncommitted work, XA branches, pools, imports.
//!
//! The fence is held all the while: behind each what it must stop is tried as well.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod acceptance_mysql;
mod capability;
mod support;

use std::thread;

use acceptance::{applied, blockers, fail_after};
use acceptance_mysql::{MySite, code, on_both, own};
use capability::Moved;
use support::my_tools::MyTarget;
use support::my_wire::{MyLogin, flag, packets};
use support::proxy::uuid;
use support::tools::run;
use support::{MyCluster, MyFlavour, MyWire, Proxy};

on_both!(
    a_dump_of_all_works_while_one_schema_is_fenced,
    uncommitted_work_of_an_open_schema_outlives_what_cannot_be_guarded,
    xa_branches_of_an_open_schema_are_ended_by_their_session,
    xa_branches_of_a_fenced_schema_are_ended_by_their_session,
    a_stranger_ends_no_branch_under_a_fence,
    a_pooled_connection_is_set_back_under_a_fence,
    an_import_of_long_texts_works_beside_another_closed_schema,
);

/// An open schema with a table `t` beside one that is fenced, or will be.
struct Pair<'a> {
    fenced: MySite<'a>,
    open: MySite<'a>,
}

impl<'a> Pair<'a> {
    fn new(cluster: &'a MyCluster, proxy: &'a Proxy) -> Self {
        Self { fenced: MySite::new(cluster, proxy), open: MySite::new(cluster, proxy) }
    }
}

/// Runs each, which must go well.
#[track_caller]
fn all_ok(client: &mut MyWire, texts: &[&str]) {
    for text in texts {
        let answer = client.query(text);
        assert_eq!(answer.code(), 0, "{text}: {answer:?}");
    }
}

fn a_dump_of_all_works_while_one_schema_is_fenced(flavour: MyFlavour) {
    let (cluster, proxy) = own(flavour);
    let pair = Pair::new(&cluster, &proxy);
    let engine = if flavour == MyFlavour::MariaDb { "Aria" } else { "MyISAM" };
    pair.open
        .sql(&format!("CREATE TABLE aria (n int) ENGINE={engine}; INSERT INTO aria VALUES (8)"));
    pair.open.sql("INSERT INTO t VALUES (7)");
    let target =
        MyTarget { cluster: &cluster, port: proxy.port(), client_tls: false, engine_tls: false };
    let (one, other) = (&pair.open.db, &pair.fenced.db);
    let dump = |what: &[&str]| {
        let mut dump = target.dump();
        dump.args(["--skip-dump-date", "--single-transaction", "--triggers"]);
        if flavour == MyFlavour::MySql {
            dump.args(["--set-gtid-purged=OFF", "--no-tablespaces"]);
        }
        dump.args(what);
        run(&mut dump)
    };
    let kinds: [&[&str]; 3] =
        [&["--all-databases"], &["--databases", one, other], &["--databases", one]];
    let rights = "SELECT, LOCK TABLES, SHOW VIEW, TRIGGER, EVENT, SHOW DATABASES";
    cluster.sql("mysql", &format!("GRANT {rights} ON *.* TO app@'127.0.0.1'"));
    let kinds = if flavour == MyFlavour::MariaDb { &kinds[..] } else { &kinds[1..] };
    let before: Vec<String> = kinds.iter().map(|what| dump(what)).collect();
    let operation = pair.fenced.fence();
    for (what, before) in kinds.iter().zip(&before) {
        let under = dump(what);
        assert!(under.contains("-- Dump completed"), "{what:?}");
        assert_eq!(under.lines().count(), before.lines().count(), "{what:?}");
    }
    pair.fenced.unfence(&operation);
}

/// MariaDB gives a transaction no savepoint once a table of Aria takes part in it.
fn uncommitted_work_of_an_open_schema_outlives_what_cannot_be_guarded(flavour: MyFlavour) {
    let (cluster, proxy) = own(flavour);
    let pair = Pair::new(&cluster, &proxy);
    let engine = if flavour == MyFlavour::MariaDb { "Aria" } else { "InnoDB" };
    pair.open
        .sql(&format!("CREATE TABLE aria (n int) ENGINE={engine}; INSERT INTO aria VALUES (8)"));
    pair.fenced.sql(&format!("CREATE TABLE aria (n int) ENGINE={engine}"));
    let lists = format!(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = '{}'",
        pair.open.db
    );
    let mut old = pair.fenced.client();
    all_ok(&mut old, &["BEGIN", "SELECT n FROM aria"]);
    let operation = pair.fenced.fence();
    let mut client = pair.open.client();
    all_ok(&mut client, &["BEGIN", "INSERT INTO t VALUES (42)", "SELECT n FROM aria"]);
    for _ in 0..3 {
        let answer = code(&client.query(&lists));
        assert_eq!(answer, if flavour == MyFlavour::MariaDb { "ZF008" } else { "" });
    }
    all_ok(&mut client, &["SELECT n FROM aria", "INSERT INTO t VALUES (43)", "COMMIT"]);
    assert_eq!(pair.open.rows(), "42,43");
    // The same where both are read by the very statement that needs the savepoint.
    let both = format!(
        "SELECT * FROM information_schema.tables, aria WHERE table_schema = '{}'",
        pair.open.db
    );
    all_ok(&mut client, &["BEGIN", "INSERT INTO t VALUES (44)", &both, "COMMIT"]);
    assert_eq!(pair.open.rows(), "42,43,44");
    // A transaction of the fenced schema's own may end, whatever it can't read.
    drop(old.query("SELECT n FROM t"));
    all_ok(&mut old, &["COMMIT", "SELECT n FROM t"]);
    assert_eq!(code(&old.query("INSERT INTO t VALUES (1)")), "ZF001");
    pair.fenced.unfence(&operation);
}

fn xa_branches_of_an_open_schema_are_ended_by_their_session(flavour: MyFlavour) {
    let (cluster, proxy) = own(flavour);
    let pair = Pair::new(&cluster, &proxy);
    let operation = pair.fenced.fence();
    let mut client = pair.open.client();
    for (end, n) in [("XA COMMIT 'y' ONE PHASE", 1), ("XA ROLLBACK 'y'", 2)] {
        let insert = format!("INSERT INTO t VALUES ({n})");
        all_ok(&mut client, &["XA START 'y'", &insert, "XA END 'y'", end]);
    }
    assert_eq!(pair.open.rows(), "1");
    // Two phases: on MySQL nothing is prepared that nobody could end.
    all_ok(&mut client, &["XA START 'z'", "INSERT INTO t VALUES (3)", "XA END 'z'"]);
    if flavour == MyFlavour::MariaDb {
        all_ok(&mut client, &["XA PREPARE 'z'", "XA COMMIT 'z'"]);
        assert_eq!(pair.open.rows(), "1,3");
    } else {
        assert_eq!(code(&client.query("XA PREPARE 'z'")), "ZF001");
        all_ok(&mut client, &["XA ROLLBACK 'z'"]);
        assert_eq!(pair.open.rows(), "1");
    }
    assert_eq!(cluster.sql("mysql", "XA RECOVER"), "");
    all_ok(&mut client, &["DELETE FROM t"]);
    pair.fenced.unfence(&operation);
    // A target that nobody has heard of closes no less.
    let name = cluster.fresh_db();
    cluster.sql("mysql", &format!("DROP DATABASE {name}"));
    cluster.sql("mysql", &format!("GRANT CREATE ON `{name}`.* TO fencewire@'127.0.0.1'"));
    let _target = Moved::created(&proxy, &format!("old/{name}"));
    let end = "XA COMMIT 'y' ONE PHASE";
    all_ok(&mut client, &["XA START 'y'", "INSERT INTO t VALUES (4)", "XA END 'y'", end]);
    assert_eq!(pair.open.rows(), "4");
}

fn xa_branches_of_a_fenced_schema_are_ended_by_their_session(flavour: MyFlavour) {
    let (cluster, proxy) = own(flavour);
    let site = MySite::new(&cluster, &proxy);
    // Work from before, waited for: whatever a transaction manager says next, none is left behind.
    for (number, ends) in [
        &["XA COMMIT 'a' ONE PHASE"][..],
        &["XA ROLLBACK 'a'"],
        &["XA PREPARE 'a'", "XA COMMIT 'a'", "XA ROLLBACK 'a'"],
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = site.client();
        let insert = format!("INSERT INTO t VALUES ({number})");
        all_ok(&mut client, &["XA START 'a'", &insert, "XA END 'a'"]);
        let operation = uuid();
        let body = site.acquire_body(&operation, &fail_after(60_000));
        let answer = thread::scope(|scope| {
            let acquire = scope.spawn(|| site.acquire(&body));
            site.wait("the branch is waited for", |seen| !blockers(seen).is_empty());
            for end in ends {
                drop(client.query(end));
            }
            acquire.join().unwrap()
        });
        applied(&answer);
        assert_eq!(cluster.sql("mysql", "XA RECOVER"), "");
        let before = site.rows();
        // A reader of behind the fence ends its branch as well, and can't write in it.
        let reads = ["XA START 'r'", "SELECT n FROM t"];
        for end in ["XA COMMIT 'r' ONE PHASE", "XA ROLLBACK 'r'"] {
            all_ok(&mut client, &reads);
            assert!(code(&client.query("INSERT INTO t VALUES (9)")).starts_with("ZF00"));
            all_ok(&mut client, &["XA END 'r'", end]);
        }
        all_ok(&mut client, &["BEGIN", "SELECT n FROM t", "COMMIT"]);
        assert_eq!(site.rows(), before, "VIOLATION");
        site.unfence(&operation);
    }
    let committed = if flavour == MyFlavour::MariaDb { "0,2" } else { "0" };
    assert_eq!(site.rows(), committed);
}

fn a_stranger_ends_no_branch_under_a_fence(flavour: MyFlavour) {
    let (cluster, proxy) = own(flavour);
    let pair = Pair::new(&cluster, &proxy);
    let mut direct = MyWire::connect(cluster.port(), "wire", &pair.open.db);
    let left = ["XA START 'z'", "INSERT INTO t VALUES (1)", "XA END 'z'", "XA PREPARE 'z'"];
    // On MariaDB a prepared branch of any schema would keep the drain: it comes behind it.
    let operation = pair.fenced.fence();
    all_ok(&mut direct, &left);
    drop(direct);
    let ends = ["XA COMMIT 'z' ONE PHASE", "XA COMMIT 'z'", "XA ROLLBACK 'z'"];
    let openings: [&[&str]; 7] = [
        &[],
        &["BEGIN", "INSERT INTO t VALUES (2)"],
        &["SET autocommit = 0", "INSERT INTO t VALUES (2)"],
        &["XA START"],
        &["XA START", "INSERT INTO t VALUES (2)"],
        &["XA START", "INSERT INTO t VALUES (2)", "XA END"],
        &["XA START", "SELECT 1", "XA END"],
    ];
    for (number, opening) in openings.iter().enumerate() {
        for (at, end) in ends.iter().enumerate() {
            let mut client = pair.open.client();
            for text in *opening {
                // The engine may still know the branches of sessions that are just gone.
                let own = if text.starts_with("XA") {
                    format!(" 'own{number}{at}'")
                } else {
                    String::new()
                };
                all_ok(&mut client, &[&format!("{text}{own}")]);
            }
            assert_ne!(client.query(end).code(), 0, "VIOLATION: {opening:?} {end}");
            let there = cluster.sql("mysql", "XA RECOVER");
            assert!(there.contains('z'), "VIOLATION: {opening:?} {end}");
        }
    }
    assert_eq!(pair.open.rows(), "");
    pair.fenced.unfence(&operation);
    cluster.sql("mysql", "XA ROLLBACK 'z'");
}

/// Connector/J says this at the end of each read-only transaction.
fn a_pooled_connection_is_set_back_under_a_fence(flavour: MyFlavour) {
    let (cluster, proxy) = own(flavour);
    let site = MySite::new(&cluster, &proxy);
    let mut direct = MyWire::connect(cluster.port(), "wire", &site.db);
    all_ok(
        &mut direct,
        &[
            "CREATE FUNCTION f() RETURNS int DETERMINISTIC MODIFIES SQL DATA \
                 BEGIN INSERT INTO t VALUES (9); RETURN 1; END",
            "CREATE VIEW v AS SELECT f() AS n",
        ],
    );
    let (on, off) = ("SET SESSION TRANSACTION READ ONLY", "SET SESSION TRANSACTION READ WRITE");
    let mut client = site.client();
    all_ok(&mut client, &[on, "SELECT n FROM t"]);
    let operation = site.fence();
    all_ok(&mut client, &[off]);
    for _ in 0..3 {
        for setting in [off, "SET autocommit = 0", off, "COMMIT", "SET autocommit = 1"] {
            all_ok(&mut client, &[setting]);
            assert_eq!(code(&client.query("SELECT n FROM v")), "ZF001", "behind {setting}");
            assert_eq!(site.rows(), "", "VIOLATION: behind {setting}");
            all_ok(&mut client, &["ROLLBACK"]);
        }
        all_ok(&mut client, &[on, off]);
    }
    assert_eq!(code(&client.query("INSERT INTO t VALUES (1)")), "ZF001");
    site.unfence(&operation);
    all_ok(&mut client, &["INSERT INTO t VALUES (1)"]);
    assert_eq!(site.rows(), "1");
}

/// A row of 2 MB in a dump, while a second move has its target on the same engine.
fn an_import_of_long_texts_works_beside_another_closed_schema(flavour: MyFlavour) {
    let (cluster, proxy) = own(flavour);
    let site = MySite::new(&cluster, &proxy);
    let names = [cluster.fresh_db(), cluster.fresh_db()];
    for name in &names {
        cluster.sql("mysql", &format!("DROP DATABASE {name}"));
        for (rights, account) in [("ALL", "wire"), ("CREATE", "fencewire")] {
            cluster.sql("mysql", &format!("GRANT {rights} ON `{name}`.* TO {account}@'127.0.0.1'"));
        }
    }
    let targets = names.each_ref().map(|name| Moved::created(&proxy, &format!("old/{name}")));
    let operation = site.fence();
    let login = MyLogin::of("wire", &names[0]).with(flag::MULTI_STATEMENTS);
    let mut import = MyWire::login(proxy.port(), &login);
    if import.is_err() {
        let login = MyLogin::of("wire", "").with(flag::MULTI_STATEMENTS);
        import = MyWire::login(proxy.port(), &login);
    }
    let mut import = import.unwrap();
    let shows = format!("SET @fencewire_capability = '{}'", targets[0].secret("import"));
    all_ok(&mut import, &[&shows, &format!("USE {}", names[0]), "CREATE TABLE bl (b longblob)"]);
    let blob = "x".repeat(2_000_000);
    all_ok(&mut import, &[&format!("INSERT INTO bl VALUES ('{blob}')")]);
    // Read to its end: what it names there is found.
    for target in [&names[1], &site.db] {
        let sneaks = format!("INSERT INTO bl VALUES ('{blob}'); INSERT INTO {target}.t VALUES (1)");
        assert!(code(&import.query(&sneaks)).starts_with("ZF"), "VIOLATION");
    }
    // Beyond one packet it isn't, and so is asked for everywhere.
    let long = ["\x03INSERT INTO bl VALUES ('", &"x".repeat(17_000_000), "')"].concat();
    import.send_raw(&packets(long.as_bytes(), &mut 0));
    assert!(code(&import.answer(&[]).unwrap()).starts_with("ZF"));
    all_ok(&mut import, &["INSERT INTO bl VALUES ('y')"]);
    let counted = format!("SELECT COUNT(*), MAX(LENGTH(b)) FROM {}.bl", names[0]);
    assert_eq!(cluster.sql("mysql", &counted), "2\t2000000");
    assert_eq!(site.rows(), "");
    site.unfence(&operation);
}
