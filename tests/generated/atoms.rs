//! What writes: each entry of the list of reads that write, and of plain writes.
//!
//! An entry is one of a few forms, so that a wrapping can say what it takes. `{port}`, `{db}` and
//! the like are filled in by the stage. Nothing here knows of fences.

/// What an entry is in the grammar.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// An expression.
    Value(&'static str),
    /// Something behind FROM.
    Rows(&'static str),
    /// A statement that PREPARE, EXPLAIN and (where it reads) a cursor take.
    Plan(&'static str),
    /// Any other statement.
    Command(&'static str),
    /// Several statements, in this order, by one session.
    Script(&'static [&'static str]),
    /// A COPY that reads from the client.
    CopyIn(&'static str),
    /// A function by FunctionCall: its signature, and its arguments as text.
    Call(&'static str, &'static [&'static str]),
}

/// One entry of the list.
#[derive(Clone, Copy, Debug)]
pub struct Atom {
    pub form: Form,
    /// SQL of a superuser that takes back what it did; rows, sequences and objects aside.
    pub undo: &'static str,
    /// What it does can't be seen by the oracle: refusing it is judged alone.
    pub unseen: bool,
    /// Read-only mode stops it, so it may be hidden behind a name that tells nothing.
    pub hidable: bool,
    /// Needs the rights of a superuser.
    pub superuser: bool,
}

const fn atom(form: Form) -> Atom {
    Atom { form, undo: "", unseen: false, hidable: true, superuser: false }
}

const fn value(sql: &'static str) -> Atom {
    atom(Form::Value(sql))
}

const fn rows(sql: &'static str) -> Atom {
    atom(Form::Rows(sql))
}

const fn plan(sql: &'static str) -> Atom {
    atom(Form::Plan(sql))
}

const fn command(sql: &'static str) -> Atom {
    atom(Form::Command(sql))
}

const fn made(sql: &'static str) -> Atom {
    command(sql).undo(UNMAKE)
}

const UNMAKE: &str = "DROP TABLE IF EXISTS made CASCADE";

impl Atom {
    const fn undo(self, undo: &'static str) -> Self {
        Self { undo, ..self }
    }

    const fn unseen(self) -> Self {
        Self { unseen: true, ..self }
    }

    /// Read-only mode lets it through.
    const fn leaks(self) -> Self {
        Self { hidable: false, ..self }
    }

    const fn superuser(self) -> Self {
        Self { superuser: true, ..self }
    }
}

const HERE: &str = "host=127.0.0.1 port={port} user=wire dbname={db}";

/// Everything, in the order of `facts`: C.1, then what C.3 ends in.
pub const ATOMS: &[Atom] = &[
    // Code that nobody can read from the outside.
    value("w()"),
    value("iw()"),
    value("isw()"),
    value("sw()"),
    value("1 @@@ 2"),
    value("CAST(1 AS weird)"),
    value("CAST(1 AS dw)"),
    value("(SELECT wagg(n) FROM generate_series(1, 2) AS g(n))"),
    value("counted()"),
    value("run($v$INSERT INTO t VALUES (3)$v$)"),
    value("run($v$UPDATE victim SET s = s$v$)"),
    value("run($v$CREATE TABLE made (n int)$v$)").undo(UNMAKE),
    rows("writing"),
    rows("counting"),
    rows("guarded_view"),
    rows("nested"),
    rows("wset()"),
    rows("ROWS FROM (w(), wset())"),
    rows("victim TABLESAMPLE system (w())"),
    value("query_to_xml('SELECT w()', true, true, '')"),
    value("query_to_xml('INSERT INTO t VALUES (4) RETURNING n', true, true, '')"),
    value("query_to_xml_and_xmlschema('TABLE writing', true, true, '')"),
    value("table_to_xml('writing', true, true, '')"),
    rows("ts_stat('SELECT to_tsvector(w()::text)')"),
    value("ts_rewrite('a'::tsquery, 'SELECT ''a''::tsquery, w()::text::tsquery')"),
    // Statements that are queries by their looks.
    plan("WITH x AS (INSERT INTO t VALUES (1) RETURNING n) SELECT n FROM x"),
    plan("WITH x AS (UPDATE victim SET s = 'x' RETURNING id) SELECT count(*) FROM x"),
    plan("WITH x AS (DELETE FROM victim) SELECT 1"),
    plan("WITH a AS (SELECT 1 AS n), b AS (INSERT INTO t SELECT n FROM a) TABLE a"),
    command("SELECT n INTO made FROM t").undo(UNMAKE),
    command("SELECT 1 AS n INTO TEMP made").undo(UNMAKE),
    command("COPY (INSERT INTO t VALUES (1) RETURNING n) TO STDOUT"),
    command("EXPLAIN ANALYZE INSERT INTO t VALUES (1)"),
    command("EXPLAIN (ANALYZE true, COSTS off) DELETE FROM victim"),
    // The engine's read-only mode lets this one through.
    command("EXPLAIN (ANALYZE, COSTS off) CREATE TABLE made AS SELECT 1").leaks().undo(UNMAKE),
    // Planning runs what is declared immutable.
    command("EXPLAIN SELECT iw()"),
    command("EXPLAIN (COSTS off) SELECT 1 WHERE isw() > 0"),
    // Row locks.
    plan("SELECT * FROM victim FOR UPDATE"),
    plan("SELECT * FROM victim FOR NO KEY UPDATE SKIP LOCKED"),
    plan("SELECT * FROM victim FOR SHARE OF victim NOWAIT"),
    plan("SELECT id FROM (SELECT * FROM victim FOR KEY SHARE) q"),
    plan("WITH x AS MATERIALIZED (SELECT * FROM victim FOR UPDATE) SELECT count(*) FROM x"),
    // Sequences and transaction numbers.
    value("nextval('s')"),
    value("setval('s', 41)"),
    value("setval('s', 5, false)"),
    value("txid_current()").leaks(),
    value("pg_current_xact_id()").leaks(),
    atom(Form::Call("nextval(regclass)", &["s"])),
    atom(Form::Call("setval(regclass, bigint)", &["s", "7"])),
    atom(Form::Call("w()", &[])),
    // Large objects.
    value("lo_create(0)").leaks(),
    value("lo_creat(-1)").leaks(),
    value("lo_from_bytea(0, 'x')").leaks(),
    value("lo_put(4242, 0, 'z')").leaks(),
    value("lo_unlink(4242)").leaks(),
    value("lo_truncate(lo_open(4242, 131072), 0)").leaks(),
    value("lowrite(lo_open(4242, 131072), 'zz')").leaks(),
    value("lo_import('/etc/hostname')").leaks().superuser(),
    value("lo_export(4242, '/dev/null')").leaks().unseen().superuser(),
    atom(Form::Call("lo_create(oid)", &["0"])),
    // Other ways out of the session.
    value("dblink_exec({here}, 'INSERT INTO t VALUES (8)')").leaks().superuser(),
    value("dblink_exec({here}, 'BEGIN READ WRITE; INSERT INTO t VALUES (8); COMMIT')")
        .leaks()
        .superuser(),
    rows("dblink({here}, 'SELECT w()') AS d(n int)").leaks().superuser(),
    command("COPY t TO PROGRAM 'cat >/dev/null'").leaks().unseen().superuser(),
    command("COPY (SELECT 1) TO '/dev/null'").leaks().unseen().superuser(),
    command("COPY t FROM PROGRAM 'echo 5'").superuser(),
    // The server's own functions.
    command("NOTIFY c, 'x'").leaks().unseen(),
    value("pg_notify('c', 'x')").leaks().unseen(),
    value("pg_logical_emit_message(true, 'x', 'y')").leaks().superuser(),
    value("pg_logical_emit_message(false, 'x', 'y')").leaks().unseen().superuser(),
    value("pg_create_physical_replication_slot('made')")
        .leaks()
        .superuser()
        .undo("SELECT pg_drop_replication_slot('made')"),
    value("pg_create_logical_replication_slot('made', 'test_decoding')")
        .leaks()
        .superuser()
        .undo("SELECT pg_drop_replication_slot('made')"),
    value("pg_replication_origin_create('made')")
        .leaks()
        .superuser()
        .undo("SELECT pg_replication_origin_drop('made')"),
    value("pg_switch_wal()").leaks().unseen().superuser(),
    value("pg_create_restore_point('x')").leaks().unseen().superuser(),
    value("pg_stat_reset()").leaks().unseen().superuser(),
    value("pg_reload_conf()").leaks().unseen().superuser(),
    command("ALTER SYSTEM SET work_mem = '5MB'")
        .leaks()
        .unseen()
        .superuser()
        .undo("ALTER SYSTEM RESET work_mem"),
    command("LOAD 'auto_explain'").leaks().unseen().superuser(),
    // Maintenance.
    command("REFRESH MATERIALIZED VIEW mv"),
    command("VACUUM victim").leaks().unseen(),
    command("VACUUM (FULL) victim").leaks(),
    command("VACUUM").leaks().unseen(),
    command("ANALYZE victim").leaks(),
    command("ANALYSE").leaks(),
    command("REINDEX TABLE victim").leaks(),
    command("REINDEX INDEX CONCURRENTLY victim_pkey").leaks(),
    command("CLUSTER victim USING victim_pkey").leaks(),
    command("CHECKPOINT").leaks().unseen().superuser(),
    command("LOCK TABLE victim IN ACCESS EXCLUSIVE MODE").leaks(),
    command("LOCK ONLY victim IN ROW EXCLUSIVE MODE").leaks().unseen(),
    // Blocks, procedures, transactions in two phases.
    command("DO $d$ BEGIN INSERT INTO t VALUES (5); END $d$"),
    command("DO LANGUAGE plpgsql $d$ BEGIN PERFORM w(); END $d$"),
    command("DO $d$ BEGIN COMMIT; SET TRANSACTION READ WRITE; INSERT INTO t VALUES (6); END $d$"),
    command("DO 'BEGIN EXECUTE ''INSERT INTO t VALUES ('' || 7 || '')''; END'"),
    command("CALL p()"),
    command("CALL leaver()"),
    command("CALL public.p()"),
    atom(Form::Script(&["BEGIN", "SELECT 1", "PREPARE TRANSACTION 'made'"]))
        .undo("ROLLBACK PREPARED 'made'"),
    command("COMMIT PREPARED 'missing'").leaks().unseen(),
    command("ROLLBACK PREPARED 'missing'").leaks().unseen(),
    // Plain writes.
    plan("INSERT INTO t VALUES (1)"),
    plan("INSERT INTO t SELECT n FROM generate_series(1, 3) AS g(n) RETURNING n"),
    plan("INSERT INTO victim VALUES (1, 'c') ON CONFLICT (id) DO UPDATE SET s = 'c'"),
    plan("UPDATE victim SET s = 'changed' WHERE id = 1"),
    plan("DELETE FROM victim USING (SELECT 1) q"),
    plan("MERGE INTO victim v USING (SELECT 1 AS n) q ON v.id = q.n WHEN MATCHED THEN DELETE"),
    plan("INSERT INTO through VALUES (9)"),
    command("TRUNCATE victim"),
    command("TRUNCATE TABLE ONLY victim RESTART IDENTITY CASCADE"),
    atom(Form::CopyIn("COPY t FROM STDIN")),
    atom(Form::CopyIn("COPY public.t (n) FROM stdin WITH (FORMAT csv)")),
    atom(Form::Script(&["SET search_path = mine, pg_catalog, public", "SELECT lower('A')"])),
    atom(Form::Script(&["BEGIN", "DECLARE c CURSOR WITH HOLD FOR TABLE writing", "COMMIT"])),
    // The schema.
    made("CREATE TABLE made (n int)"),
    made("CREATE TABLE IF NOT EXISTS made AS SELECT 1 AS n"),
    made("CREATE TEMP TABLE made (n int)"),
    made("CREATE UNLOGGED TABLE made (n int)"),
    command("CREATE OR REPLACE VIEW made AS SELECT 1 AS n").undo("DROP VIEW IF EXISTS made"),
    command("CREATE MATERIALIZED VIEW made AS TABLE t")
        .undo("DROP MATERIALIZED VIEW IF EXISTS made"),
    command("CREATE SEQUENCE made").undo("DROP SEQUENCE IF EXISTS made"),
    command("CREATE SCHEMA made CREATE TABLE x (n int)").undo("DROP SCHEMA made CASCADE"),
    command("CREATE TYPE made AS (n int)").undo("DROP TYPE IF EXISTS made"),
    command("CREATE FUNCTION made() RETURNS int LANGUAGE sql AS 'SELECT 1'")
        .undo("DROP FUNCTION IF EXISTS made()"),
    command("CREATE INDEX made ON victim (s)").undo("DROP INDEX IF EXISTS made"),
    command("CREATE INDEX CONCURRENTLY made ON victim (s)")
        .leaks()
        .undo("DROP INDEX IF EXISTS made"),
    command("CREATE PUBLICATION made").undo("DROP PUBLICATION IF EXISTS made"),
    command("CREATE RULE made AS ON DELETE TO victim DO INSTEAD NOTHING")
        .undo("DROP RULE IF EXISTS made ON victim"),
    command("CREATE POLICY made ON victim").undo("DROP POLICY IF EXISTS made ON victim"),
    command("ALTER TABLE victim ALTER s SET DEFAULT 'd'")
        .undo("ALTER TABLE victim ALTER s DROP DEFAULT"),
    command("ALTER SEQUENCE s RESTART WITH 9"),
    command("ALTER FUNCTION w() COST 7").undo("ALTER FUNCTION w() COST 100"),
    command("ALTER DATABASE {db} SET work_mem = '3MB'").undo("ALTER DATABASE {db} RESET work_mem"),
    command("ALTER ROLE wire IN DATABASE {db} SET work_mem = '3MB'")
        .superuser()
        .undo("ALTER ROLE wire IN DATABASE {db} RESET work_mem"),
    command("DROP TABLE victim").undo(""),
    command("COMMENT ON TABLE t IS 'x'").undo("COMMENT ON TABLE t IS NULL"),
    command("GRANT SELECT ON t TO PUBLIC").undo("REVOKE ALL ON t FROM PUBLIC"),
    command("REVOKE ALL ON victim FROM app").undo("GRANT ALL ON victim TO app"),
    command("ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC")
        .undo("ALTER DEFAULT PRIVILEGES REVOKE SELECT ON TABLES FROM PUBLIC"),
];

/// Puts the stage's values in the place of the braces.
pub fn filled(sql: &str, port: u16, db: &str) -> String {
    sql.replace("{here}", &format!("'{HERE}'"))
        .replace("{port}", &port.to_string())
        .replace("{db}", db)
}

/// What the entries need. Run as `app`, in a database with an empty table `t (n int)`.
pub const FURNITURE: &str = "
CREATE TABLE victim (id int PRIMARY KEY, s text);
CREATE SEQUENCE s;
CREATE FUNCTION w() RETURNS int LANGUAGE plpgsql VOLATILE AS
    $f$ BEGIN INSERT INTO t VALUES (66); RETURN 1; END $f$;
CREATE FUNCTION iw() RETURNS int LANGUAGE plpgsql IMMUTABLE AS $f$ BEGIN RETURN w(); END $f$;
CREATE FUNCTION isw() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT w()';
CREATE FUNCTION sw() RETURNS int LANGUAGE plpgsql STABLE AS $f$ BEGIN RETURN iw(); END $f$;
CREATE FUNCTION opw(a int, b int) RETURNS int LANGUAGE sql VOLATILE AS 'SELECT w() + a + b';
CREATE OPERATOR @@@ (LEFTARG = int, RIGHTARG = int, FUNCTION = opw);
CREATE AGGREGATE wagg (int) (SFUNC = opw, STYPE = int, INITCOND = '0');
CREATE TYPE weird AS (n int);
CREATE FUNCTION cw(a int) RETURNS weird LANGUAGE sql VOLATILE AS 'SELECT row(w())::weird';
CREATE CAST (int AS weird) WITH FUNCTION cw(int);
CREATE DOMAIN dw AS int CHECK (w() IS NOT NULL);
CREATE FUNCTION counted() RETURNS int LANGUAGE sql VOLATILE AS $f$ SELECT nextval('s')::int $f$;
CREATE FUNCTION wset() RETURNS SETOF int LANGUAGE plpgsql VOLATILE AS
    $f$ BEGIN RETURN NEXT w(); END $f$;
CREATE FUNCTION run(sql text) RETURNS int LANGUAGE plpgsql VOLATILE AS
    $f$ BEGIN EXECUTE sql; RETURN 1; END $f$;
CREATE PROCEDURE runp(sql text) LANGUAGE plpgsql AS $f$ BEGIN EXECUTE sql; END $f$;
CREATE FUNCTION off() RETURNS text LANGUAGE sql VOLATILE AS
    $f$ SELECT set_config('default_transaction_read_only', 'off', false) $f$;
CREATE PROCEDURE p() LANGUAGE sql AS 'INSERT INTO t VALUES (67)';
CREATE PROCEDURE leaver() LANGUAGE plpgsql AS $f$
BEGIN COMMIT; SET TRANSACTION READ WRITE; INSERT INTO t VALUES (68); COMMIT; END $f$;
CREATE PROCEDURE leave() LANGUAGE plpgsql AS
    $f$ BEGIN COMMIT; SET TRANSACTION READ WRITE; END $f$;
CREATE VIEW writing AS SELECT w() AS n;
CREATE VIEW counting AS SELECT counted() AS n;
CREATE VIEW nested AS SELECT n FROM (SELECT n, isw() AS m FROM writing) q WHERE m > 0;
CREATE VIEW switching AS SELECT off() AS n;
CREATE VIEW through AS SELECT n FROM t;
CREATE TABLE guarded (n int);
INSERT INTO guarded VALUES (1);
ALTER TABLE guarded ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY guard ON guarded USING (w() IS NOT NULL);
CREATE VIEW guarded_view AS SELECT n FROM guarded;
CREATE MATERIALIZED VIEW mv AS SELECT count(*) AS n FROM t;
CREATE SCHEMA mine;
CREATE FUNCTION mine.lower(text) RETURNS text LANGUAGE sql VOLATILE AS
    $f$ SELECT public.w()::text $f$;
";
