//! PostgreSQL's own tools and psycopg 3, unchanged, through the proxy: plaintext and TLS on either
//! side (W22, W23, W25).
//!
//! Each script also runs without the proxy (`direct`), which shows that the script itself is right:
//! what fails only in `proxied` is the proxy's fault. Under a write fence dumps and psql's own
//! questions go on, and what writes is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use acceptance::Site;
use support::tools::{Target, python, run, run_failing};
use support::{Engine, PgCluster, Proxy, ProxyOptions};

/// The proxy that takes TLS from clients and speaks to the engine with the given `tls` mode.
fn proxy(engine_tls: bool) -> &'static Proxy {
    static PROXIES: [OnceLock<Proxy>; 2] = [OnceLock::new(), OnceLock::new()];
    PROXIES[usize::from(engine_tls)].get_or_init(|| {
        let mode = if engine_tls { "prefer" } else { "disable" };
        Proxy::start_with(ProxyOptions {
            engines: vec![Engine::tls("old", PgCluster::shared(), mode)],
            client_tls: "allow".into(),
            ..ProxyOptions::default()
        })
    })
}

fn direct(tls: bool) -> Target<'static> {
    let cluster = PgCluster::shared();
    Target { cluster, port: cluster.port(), client_tls: tls, engine_tls: tls }
}

fn proxied(client_tls: bool, engine_tls: bool) -> Target<'static> {
    let port = proxy(engine_tls).port();
    Target { cluster: PgCluster::shared(), port, client_tls, engine_tls }
}

/// One module per script: without the proxy, and through it with TLS on neither, one, both sides.
macro_rules! everywhere {
    ($($script:ident),* $(,)?) => {$(
        mod $script {
            use crate::{direct, proxied};

            #[test]
            fn direct_plain() {
                crate::$script(&direct(false));
            }

            #[test]
            fn direct_tls() {
                crate::$script(&direct(true));
            }

            #[test]
            fn proxied_plain() {
                crate::$script(&proxied(false, false));
            }

            #[test]
            fn proxied_client_tls() {
                crate::$script(&proxied(true, false));
            }

            #[test]
            fn proxied_engine_tls() {
                crate::$script(&proxied(false, true));
            }

            #[test]
            fn proxied_tls_on_both_sides() {
                crate::$script(&proxied(true, true));
            }
        }
    )*};
}

mod tools {
    everywhere!(psql, pgbench, dump_piped_to_restore, dump_plain, dump_directory, psycopg3);
}

/// The sides that must be encrypted are, and no other.
fn check_tls(target: &Target<'_>, db: &str) {
    let info = run(target.psql(db).args(["-c", "\\conninfo"]));
    // A sentence up to 17, a table from 18 on.
    let row = |line: &str| line.contains("SSL Connection") && line.contains("true");
    let encrypted = info.contains("SSL connection") || info.lines().any(row);
    assert_eq!(encrypted, target.client_tls, "{info}");
    let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let engine = run(target.psql(db).args(["-At", "-c", sql]));
    assert_eq!(engine.trim() == "t", target.engine_tls, "the engine's side: {engine}");
}

const PSQL_SCRIPT: &str = r"
CREATE TABLE people (id int PRIMARY KEY, name text); INSERT INTO people VALUES (0, 'nobody');
\copy people FROM 'people.tsv'
SELECT count(*) AS n FROM people \gset
\echo count :n
\d people
\copy (SELECT * FROM people WHERE id <= 2 ORDER BY id) TO STDOUT
BEGIN; UPDATE people SET name = 'lost'; ROLLBACK;
SELECT 'kept ' || count(*) FROM people WHERE name <> 'lost';
\set FETCH_COUNT 100
SELECT 'row ' || g FROM generate_series(1, 1000) g;
\unset FETCH_COUNT
SELECT repeat('wide', 1000000) AS wide \g wide.txt
\lo_import people.tsv
\lo_export :LASTOID exported.tsv
\lo_unlink :LASTOID
";

fn psql(target: &Target<'_>) {
    let db = target.cluster.fresh_db();
    check_tls(target, &db);
    let dir = tempfile::tempdir().unwrap();
    let lines: String = (1..=5000).map(|n| format!("{n}\tname {n}\n")).collect();
    std::fs::write(dir.path().join("people.tsv"), &lines).unwrap();
    std::fs::write(dir.path().join("script.sql"), PSQL_SCRIPT).unwrap();
    let out = run(target.psql(&db).current_dir(&dir).args(["-At", "-f", "script.sql"]));
    let expected = [
        "count 5001",
        "id|integer||not null|",
        "0\tnobody\n1\tname 1\n2\tname 2\n",
        "kept 5001",
        "row 1000\n",
    ];
    for part in expected {
        assert!(out.contains(part), "{part:?} is not in:\n{out}");
    }
    let wide = std::fs::metadata(dir.path().join("wide.txt")).unwrap();
    assert_eq!(wide.len(), 4_000_001);
    let exported = std::fs::read_to_string(dir.path().join("exported.tsv")).unwrap();
    assert!(exported == lines, "a large object came back changed");

    let two = run(target.psql(&db).args(["-At", "-c", "SELECT 'a' ; SELECT 'b'"]));
    assert_eq!(two, "a\nb\n");
    let verbose = ["-v", "VERBOSITY=sqlstate", "-c"];
    let error = run_failing(target.psql(&db).args(verbose).arg("SELECT 1/0"));
    assert!(error.contains("22012"), "{error}");
    // A string of several statements is one transaction: its error undoes the insert before it.
    let string = "INSERT INTO people VALUES (-1, ''); SELECT 1/0";
    run_failing(target.psql(&db).args(["-c", string]));
    let left =
        run(target.psql(&db).args(["-At", "-c", "SELECT count(*) FROM people WHERE id < 0"]));
    assert_eq!(left, "0\n");
}

fn pgbench(target: &Target<'_>) {
    let db = target.cluster.fresh_db();
    run(target.tool("pgbench", &db).args(["-i", "-q", "-s", "1"]));
    for mode in ["simple", "extended", "prepared"] {
        let args = ["-n", "-M", mode, "-c", "4", "-j", "2", "-t", "75"];
        let out = run(target.tool("pgbench", &db).args(args));
        assert!(out.contains("actually processed: 300/300"), "{mode}: {out}");
        assert!(out.contains("failed transactions: 0 "), "{mode}: {out}");
    }
    let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts),
                       (SELECT sum(bbalance) FROM pgbench_branches),
                       (SELECT sum(tbalance) FROM pgbench_tellers),
                       (SELECT count(*) FROM pgbench_history)";
    let out = run(target.psql(&db).args(["-At", "-c", sums]));
    let sums: Vec<&str> = out.trim().split('|').collect();
    assert!(sums[0] == sums[1] && sums[1] == sums[2], "unequal sums: {out}");
    assert_eq!(sums[3], "900");
}

const SCHEMA: &str = r#"
CREATE SCHEMA "Odd name";
CREATE TYPE "Odd name".mood AS ENUM ('calm', 'it''s fine');
CREATE TABLE "Odd name".items (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    mood "Odd name".mood, blob bytea, doc jsonb, at timestamptz, price numeric(20, 4));
INSERT INTO "Odd name".items (mood, blob, doc, at, price)
    SELECT 'it''s fine', decode(md5(g::text), 'hex'), jsonb_build_object('g', g, 'x', E'tab\t\\'),
           timestamptz '2026-01-01 00:00:00+00' + g * interval '1 minute', g / 7.0
    FROM generate_series(1, 20000) g;
CREATE TABLE refs (item bigint REFERENCES "Odd name".items, note text);
INSERT INTO refs SELECT id, CASE WHEN id % 3 = 0 THEN NULL ELSE repeat('n', 100) END
    FROM "Odd name".items;
CREATE INDEX ON refs (item);
CREATE VIEW cheap AS SELECT id, price FROM "Odd name".items WHERE price < 10;
CREATE MATERIALIZED VIEW counted AS SELECT mood, count(*) FROM "Odd name".items GROUP BY mood;
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS
    $f$ BEGIN NEW.note := coalesce(NEW.note, '$$'); RETURN NEW; END $f$;
CREATE TRIGGER touched BEFORE UPDATE ON refs FOR EACH ROW EXECUTE FUNCTION touch();
CREATE SEQUENCE counter START 40; SELECT nextval('counter');
COMMENT ON TABLE refs IS 'two
lines';
SELECT lo_from_bytea(0, 'a large object');
"#;

/// A database with one of many things, owned by `app`.
fn furnished(target: &Target<'_>) -> String {
    let db = target.cluster.fresh_db();
    run(target.psql(&db).args(["-q", "-c", SCHEMA]));
    db
}

/// A database's dump as text, without the lines that differ each time. Taken without the proxy.
fn content(target: &Target<'_>, db: &str) -> String {
    let direct = direct(target.client_tls);
    let dump = run(direct.tool("pg_dump", db).arg("--no-sync"));
    let random = |line: &&str| line.starts_with("\\restrict") || line.starts_with("\\unrestrict");
    dump.lines().filter(|line| !random(line)).collect::<Vec<_>>().join("\n")
}

fn assert_same(target: &Target<'_>, original: &str, copy: &str) {
    let (original, copy) = (content(target, original), content(target, copy));
    assert!(original.contains("a large object") || original.contains("lo_open"), "no blob dumped");
    let differs = original.lines().zip(copy.lines()).find(|(a, b)| a != b);
    assert!(original == copy, "the copy differs, first at {differs:?}");
}

fn dump_piped_to_restore(target: &Target<'_>) {
    let (db, copy) = (furnished(target), target.cluster.fresh_db());
    let mut dump = target.tool("pg_dump", &db);
    let mut dump = dump.args(["-Fc", "--no-sync"]).stdout(Stdio::piped()).spawn().unwrap();
    let pipe = Stdio::from(dump.stdout.take().unwrap());
    run(target.tool("pg_restore", &copy).args(["-e", "-1", "-d", &copy]).stdin(pipe));
    assert!(dump.wait().unwrap().success(), "pg_dump failed");
    assert_same(target, &db, &copy);
}

fn dump_plain(target: &Target<'_>) {
    let (db, copy) = (furnished(target), target.cluster.fresh_db());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("dump.sql");
    run(target.tool("pg_dump", &db).arg("--no-sync").arg("-f").arg(&file));
    run(target.psql(&copy).args(["-q", "-1", "-f"]).arg(&file));
    assert_same(target, &db, &copy);
}

fn dump_directory(target: &Target<'_>) {
    let (db, copy) = (furnished(target), target.cluster.fresh_db());
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("dump");
    run(target.tool("pg_dump", &db).args(["-Fd", "-j", "2", "--no-sync", "-f"]).arg(&folder));
    run(target.tool("pg_restore", &copy).args(["-e", "-j", "2", "-d", &copy]).arg(&folder));
    assert_same(target, &db, &copy);
}

fn psycopg3(target: &Target<'_>) {
    let db = target.cluster.fresh_db();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/drivers/psycopg3.py");
    let mut command: Command = target.command(python(), &db);
    let out = run(command.arg(script));
    assert_eq!(out, "ok\n");
}

/// Large objects can't be read under the engine lock: PostgreSQL reads them with the lock of a
/// writer. Without it a dump has them, too.
#[test]
fn under_a_write_fence_dumps_and_questions_go_on_and_writes_are_refused() {
    for (lock, tls) in [("hold", false), ("confirm", true)] {
        let cluster = PgCluster::shared();
        let proxy = Proxy::start_with(ProxyOptions {
            engines: vec![Engine::plain("old", cluster)],
            client_tls: "allow".into(),
            extra: format!("[fence]\nengine_lock = \"{lock}\"\n"),
            ..ProxyOptions::default()
        });
        let target = Target { cluster, port: proxy.port(), client_tls: tls, engine_tls: false };
        let (db, copy) = (furnished(&target), cluster.fresh_db());
        if lock == "hold" {
            cluster.sql(&db, "SELECT lo_unlink(oid) FROM pg_largeobject_metadata");
        }
        let dump =
            || run(direct(false).tool("pg_dump", &db).args(["--no-sync", "--inserts"])).len();
        let whole = dump();
        let site = Site::at(cluster, &proxy, &db);
        let operation = site.fence();
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("dump");
        run(target.tool("pg_dump", &db).args(["-Fd", "-j", "2", "--no-sync", "-f"]).arg(&folder));
        asks_and_writes(&target, &db, dir.path());
        let restore = ["-e", "-c", "--if-exists", "-j", "2", "-d", &db];
        let error = run_failing(target.tool("pg_restore", &db).args(restore).arg(&folder));
        assert!(error.contains("fence"), "{error}");
        site.unfence(&operation);
        assert_eq!(dump(), whole, "the fenced database changed");
        // What was dumped is whole.
        run(target.tool("pg_restore", &copy).args(["-e", "-j", "2", "-d", &copy]).arg(&folder));
        let count = "SELECT (SELECT count(*) FROM refs), (SELECT count(*) FROM pg_largeobject)";
        assert_eq!(cluster.sql(&copy, count), cluster.sql(&db, count));
        if lock == "confirm" {
            assert_same(&target, &db, &copy);
        }
        run(target.psql(&db).args(["-c", "DELETE FROM refs"]));
    }
}

/// psql's questions are answered, what writes is refused.
fn asks_and_writes(target: &Target<'_>, db: &str, dir: &Path) {
    let questions = "\\d\n\\d+ refs\n\\df\n\\l\n\\dn+\nSELECT count(*) FROM refs;\n";
    let file = dir.join("questions.sql");
    std::fs::write(&file, questions).unwrap();
    let told = run(target.psql(db).args(["-At", "-f"]).arg(&file));
    assert!(told.ends_with("20000\n"), "{told}");
    for sql in ["DELETE FROM refs", "\\copy refs FROM /dev/null", "\\lo_import /dev/null"] {
        let error = run_failing(target.psql(db).args(["-c", sql]));
        assert!(error.contains("MIGRATION_WRITE_FENCED"), "{sql}: {error}");
    }
    let error = run_failing(target.tool("pgbench", db).args(["-i", "-q", "-s", "1"]));
    assert!(error.contains("MIGRATION_WRITE_FENCED"), "{error}");
}
