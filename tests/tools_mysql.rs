//! The command line tools of MariaDB and MySQL, and sysbench, unchanged, through the proxy to both
//! servers: plaintext and TLS on either side (W22, W24, W25).
//!
//! Each script also runs without the proxy (`direct`), which shows that the script itself is right:
//! what fails only in `proxied` is the proxy's fault.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use support::certs::Certs;
use support::my_tools::MyTarget;
use support::tools::{run, run_failing};
use support::{Engine, MyCluster, MyFlavour, Proxy, ProxyOptions};

/// The proxy that takes TLS from clients and speaks to a flavour's server in plaintext or with TLS.
fn proxy(flavour: MyFlavour, engine_tls: bool) -> &'static Proxy {
    static PROXIES: [OnceLock<Proxy>; 4] = [const { OnceLock::new() }; 4];
    let at = usize::from(engine_tls) + 2 * usize::from(flavour == MyFlavour::MySql);
    PROXIES[at].get_or_init(|| {
        let mode = if engine_tls { "prefer" } else { "disable" };
        Proxy::start_with(ProxyOptions {
            engines: vec![Engine::my_tls("old", MyCluster::shared(flavour), mode)],
            client_tls: "allow".into(),
            ..ProxyOptions::default()
        })
    })
}

fn direct(flavour: MyFlavour, tls: bool) -> MyTarget<'static> {
    let cluster = MyCluster::shared(flavour);
    MyTarget { cluster, port: cluster.port(), client_tls: tls, engine_tls: tls }
}

fn proxied(flavour: MyFlavour, client_tls: bool, engine_tls: bool) -> MyTarget<'static> {
    let port = proxy(flavour, engine_tls).port();
    MyTarget { cluster: MyCluster::shared(flavour), port, client_tls, engine_tls }
}

/// One module per script and server: without the proxy, and through it with TLS on neither, one,
/// both sides.
macro_rules! everywhere {
    ($flavour:ident: $($script:ident),* $(,)?) => {$(
        mod $script {
            use crate::{MyFlavour::$flavour, direct, proxied};

            #[test]
            fn direct_plain() {
                crate::$script(&direct($flavour, false));
            }

            #[test]
            fn direct_tls() {
                crate::$script(&direct($flavour, true));
            }

            #[test]
            fn proxied_plain() {
                crate::$script(&proxied($flavour, false, false));
            }

            #[test]
            fn proxied_client_tls() {
                crate::$script(&proxied($flavour, true, false));
            }

            #[test]
            fn proxied_engine_tls() {
                crate::$script(&proxied($flavour, false, true));
            }

            #[test]
            fn proxied_tls_on_both_sides() {
                crate::$script(&proxied($flavour, true, true));
            }
        }
    )*};
}

mod mariadb {
    everywhere!(MariaDb: own_client, other_client, dump_locked, dump_snapshot, sysbench);
}

mod mysql {
    everywhere!(MySql: own_client, other_client, dump_locked, dump_snapshot, sysbench);
}

/// The sides that must be encrypted are, and no other.
fn check_tls(target: &MyTarget<'_>, tools: MyFlavour, db: &str) {
    let said = run(target.client(tools, db).args(["-e", "\\s"]));
    let line = said.lines().find(|line| line.starts_with("SSL:")).unwrap();
    assert_eq!(!line.contains("Not in use"), target.client_tls, "{said}");
    let engine = run(target.client(tools, db).args(["-e", "SHOW STATUS LIKE 'Ssl_cipher'"]));
    let cipher = engine.trim().trim_start_matches("Ssl_cipher").trim();
    assert_eq!(!cipher.is_empty(), target.engine_tls, "the engine's side: {engine}");
}

const CLIENT_SCRIPT: &str = r"
CREATE TABLE people (id int PRIMARY KEY, name text); INSERT INTO people VALUES (0, 'nobody');
LOAD DATA LOCAL INFILE 'people.tsv' INTO TABLE people;
SELECT CONCAT('count ', COUNT(*)) FROM people;
SHOW COLUMNS FROM people;
SELECT * FROM people WHERE id <= 2 ORDER BY id;
BEGIN; UPDATE people SET name = 'lost'; ROLLBACK;
SELECT CONCAT('kept ', COUNT(*)) FROM people WHERE name <> 'lost';
DELIMITER //
CREATE PROCEDURE count_up(IN top int)
BEGIN
  DECLARE n int DEFAULT 0;
  WHILE n < top DO SET n = n + 1; END WHILE;
  SELECT n; SELECT 'counted', n;
END//
CREATE TRIGGER named BEFORE UPDATE ON people FOR EACH ROW SET NEW.name = CONCAT(NEW.name, '!')//
DELIMITER ;
CALL count_up(1000);
UPDATE people SET name = 'one' WHERE id = 1; SELECT name FROM people WHERE id = 1;
PREPARE twice FROM 'SELECT ? * 2'; SET @n = 21; EXECUTE twice USING @n; DEALLOCATE PREPARE twice;
CREATE TEMPORARY TABLE mine AS SELECT id FROM people LIMIT 10; SELECT COUNT(*) FROM mine;
SELECT LENGTH(REPEAT('wide', 1000000));
\#
use information_schema
SELECT DATABASE();
SHOW WARNINGS;
";

fn own_client(target: &MyTarget<'_>) {
    client(target, target.cluster.flavour());
}

/// Each flavour's client works on the other's server too.
fn other_client(target: &MyTarget<'_>) {
    client(
        target,
        match target.cluster.flavour() {
            MyFlavour::MariaDb => MyFlavour::MySql,
            MyFlavour::MySql => MyFlavour::MariaDb,
        },
    );
}

fn client(target: &MyTarget<'_>, tools: MyFlavour) {
    let db = target.cluster.fresh_db();
    check_tls(target, tools, &db);
    let dir = tempfile::tempdir().unwrap();
    let lines: String = (1..=5000).map(|n| format!("{n}\tname {n}\n")).collect();
    fs::write(dir.path().join("people.tsv"), &lines).unwrap();
    fs::write(dir.path().join("script.sql"), CLIENT_SCRIPT).unwrap();
    let run_here = |arguments: &[&str], input: Stdio| {
        let mut client = target.client(tools, &db);
        run(client.current_dir(&dir).arg("--local-infile=1").args(arguments).stdin(input))
    };
    let script = fs::File::open(dir.path().join("script.sql")).unwrap();
    let out = run_here(&[], script.into());
    let expected = [
        "count 5001\n",
        "id\tint",
        "0\tnobody\n1\tname 1\n2\tname 2\n",
        "kept 5001\n",
        "1000\ncounted\t1000\n",
        "one!\n42\n10\n4000000\ninformation_schema\n",
    ];
    for part in expected {
        assert!(out.contains(part), "{part:?} is not in:\n{out}");
    }
    let unbuffered = run_here(&["--quick", "-e", "SELECT id FROM people"], Stdio::null());
    assert_eq!(unbuffered.lines().count(), 5001);
    let wide = "SELECT REPEAT('w', 4000000) AS wide";
    assert_eq!(run_here(&["--raw", "-e", wide], Stdio::null()).len(), 4_000_001);
    assert_eq!(run_here(&["-e", "SELECT 'a'; SELECT 'b'"], Stdio::null()), "a\nb\n");
    let vertical = run_here(&["-e", "SELECT 1 AS x, NULL AS y\\G"], Stdio::null());
    assert!(vertical.contains("1. row") && vertical.contains("NULL"), "{vertical}");
    errors(target, tools, &db);
}

fn errors(target: &MyTarget<'_>, tools: MyFlavour, db: &str) {
    let failing = |arguments: &[&str]| run_failing(target.client(tools, db).args(arguments));
    let error = failing(&["-e", "SELECT 1 +"]);
    assert!(error.contains("ERROR 1064 (42000)"), "{error}");
    let twice = "INSERT INTO people VALUES (-1, 'x'); INSERT INTO people VALUES (-1, 'y')";
    let error = failing(&["-e", twice]);
    assert!(error.contains("ERROR 1062 (23000)"), "{error}");
    let count = "SELECT COUNT(*) FROM people WHERE id < 0";
    assert_eq!(run(target.client(tools, db).args(["-e", count])), "1\n");
    let error = run_failing(target.client(tools, "no_such_database").args(["-e", "SELECT 1"]));
    assert!(error.contains("ERROR 10"), "{error}");
    let mut wrong = target.client(tools, db);
    let error = run_failing(wrong.env("MYSQL_PWD", "wrong").args(["-e", "SELECT 1"]));
    assert!(error.contains("ERROR 1045 (28000)"), "{error}");
    // With --force the client goes on behind an error.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("forced.sql");
    fs::write(&file, "SELECT 'before'; SELECT nothing; SELECT 'behind';").unwrap();
    let mut forced = target.client(tools, db);
    let output = forced.arg("--force").stdin(fs::File::open(&file).unwrap()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "before\nbehind\n");
}

const SCHEMA: &str = r#"
CREATE TABLE `Odd name` (
    id bigint AUTO_INCREMENT PRIMARY KEY, mood enum('calm', 'it''s fine'), blob_ longblob,
    doc json, at datetime(6), price decimal(20, 4), tiny bit(3),
    shown varchar(50) GENERATED ALWAYS AS (CONCAT(mood, ' ', price)) VIRTUAL);
INSERT INTO `Odd name` (mood, blob_, doc, at, price, tiny)
    WITH RECURSIVE g AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM g WHERE n < 900)
    SELECT 'it''s fine', UNHEX(SHA2(a.n + b.n, 256)), JSON_OBJECT('g', a.n, 'x', 'tab\t\\'),
           '2026-01-01' + INTERVAL a.n MINUTE, a.n / 7.0, b'101'
    FROM g a JOIN g b ON b.n <= 20;
CREATE TABLE refs (item bigint, note text, FOREIGN KEY (item) REFERENCES `Odd name` (id));
INSERT INTO refs SELECT id, IF(id % 3 = 0, NULL, REPEAT('n', 100)) FROM `Odd name`;
CREATE VIEW cheap AS SELECT id, price FROM `Odd name` WHERE price < 10;
CREATE FUNCTION half(n int) RETURNS int DETERMINISTIC NO SQL RETURN n / 2;
CREATE TRIGGER touched BEFORE UPDATE ON refs FOR EACH ROW SET NEW.note = COALESCE(NEW.note, '$$');
CREATE EVENT nightly ON SCHEDULE EVERY 1 DAY STARTS '2030-01-01 00:00:00' DO DELETE FROM refs;
ALTER TABLE refs COMMENT 'two
lines';
"#;

/// A database with one of many things.
fn furnished(target: &MyTarget<'_>) -> String {
    let db = target.cluster.fresh_db();
    run(target.mysql(&db).args(["-e", SCHEMA]));
    db
}

/// The dump program with everything of one database, and nothing of the server's own.
fn dump(target: &MyTarget<'_>, db: &str) -> Command {
    let mut dump = target.dump();
    dump.args(["--routines", "--events", "--triggers", "--hex-blob", "--skip-comments"]);
    match target.cluster.flavour() {
        MyFlavour::MariaDb => {}
        MyFlavour::MySql => {
            dump.args(["--set-gtid-purged=OFF", "--no-tablespaces"]);
        }
    }
    dump.arg(db);
    dump
}

fn assert_same(target: &MyTarget<'_>, original: &str, copy: &str) {
    let direct = direct(target.cluster.flavour(), target.client_tls);
    let content = |db: &str| run(dump(&direct, db).arg("--single-transaction"));
    let (original, copy) = (content(original), content(copy));
    assert!(original.contains("INSERT INTO `refs`") && original.contains("nightly"), "{original}");
    let differs = original.lines().zip(copy.lines()).find(|(a, b)| a != b);
    assert!(original == copy, "the copy differs, first at {differs:?}");
}

/// A dump under LOCK TABLES, by way of a file.
fn dump_locked(target: &MyTarget<'_>) {
    let (db, copy) = (furnished(target), target.cluster.fresh_db());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("dump.sql");
    run(dump(target, &db).arg("--lock-tables").arg("--result-file").arg(&file));
    run(target.mysql(&copy).stdin(fs::File::open(&file).unwrap()));
    assert_same(target, &db, &copy);
}

/// A dump in one snapshot, piped into the client.
fn dump_snapshot(target: &MyTarget<'_>) {
    let (db, copy) = (furnished(target), target.cluster.fresh_db());
    let mut dump = dump(target, &db);
    let mut dump = dump.arg("--single-transaction").stdout(Stdio::piped()).spawn().unwrap();
    let pipe = Stdio::from(dump.stdout.take().unwrap());
    run(target.mysql(&copy).stdin(pipe));
    assert!(dump.wait().unwrap().success(), "the dump failed");
    assert_same(target, &db, &copy);
}

/// sysbench takes its certificates from the folder that it runs in.
fn write_certificates(dir: &Path) {
    let certs = Certs::shared();
    fs::write(dir.join("cacert.pem"), &certs.ca).unwrap();
    fs::write(dir.join("client-cert.pem"), &certs.cert).unwrap();
    fs::write(dir.join("client-key.pem"), &certs.key).unwrap();
}

fn sysbench(target: &MyTarget<'_>) {
    let db = target.cluster.fresh_db();
    let dir = tempfile::tempdir().unwrap();
    write_certificates(dir.path());
    let sysbench = |options: &[&str]| {
        let mut command = target.sysbench("oltp_read_write", &db);
        command.args(["--tables=2", "--table-size=500", "--threads=4"]).args(options);
        run(command.current_dir(&dir))
    };
    sysbench(&["prepare"]);
    for mode in ["auto", "disable"] {
        let out = sysbench(&["--time=0", "--events=120", &format!("--db-ps-mode={mode}"), "run"]);
        let figure = |name: &str| {
            let line = out.lines().find(|line| line.trim().starts_with(name));
            line.unwrap_or_else(|| panic!("no {name} in:\n{out}")).to_owned()
        };
        assert!(figure("transactions:").contains(" 120 "), "{mode}: {out}");
        assert!(figure("reconnects:").contains(" 0 "), "{mode}: {out}");
        assert!(figure("total number of events:").contains(" 120"), "{mode}: {out}");
    }
    let rows = "SELECT COUNT(*) FROM sbtest1 UNION ALL SELECT COUNT(*) FROM sbtest2";
    assert_eq!(run(target.mysql(&db).args(["-e", rows])), "500\n500\n");
    sysbench(&["cleanup"]);
}
