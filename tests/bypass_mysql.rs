//! Around the proxy's classifier and around its guard, on MariaDB and MySQL: what must not get past
//! a write fence.
//!
//! The disguises that both servers know: reads that write, statements that read-only mode lets
//! through, commands that write by their opcode, transactions that are older than the fence.
//! Nothing may change a row, and each comes back under one of the fence's codes. The guard has a
//! control arm: without it the same view writes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::time::Duration;

use serde_json::{Value, json};
use support::my_wire::MyLogin;
use support::proxy::uuid;
use support::{Engine, MyCluster, MyFlavour, MyWire, Proxy, ProxyOptions, on_both};

/// Only a fault lets a wait last as long.
const PATIENCE: Duration = Duration::from_secs(60);

on_both!(
    disguised_writes_change_nothing_and_get_the_fences_codes,
    commands_that_write_by_opcode_are_refused,
    statements_prepared_before_the_fence_are_refused_under_it,
    statements_that_come_with_the_login_are_sorted_like_any_other,
    the_guard_is_what_stops_a_view_that_writes,
    without_the_guard_a_view_writes,
    an_older_transaction_reads_on_and_leaves_nothing_behind,
    an_older_transaction_never_becomes_a_writer,
    a_session_of_another_schema_is_stopped_by_name_and_by_default,
    a_running_statement_is_killed_and_its_transaction_rolled_back,
    an_idle_transaction_is_rolled_back_and_the_client_told,
    an_error_before_the_fence_does_not_hold_up_its_drain,
    nothing_of_the_proxys_own_gets_between_the_halves_of_a_packet,
    what_follows_a_kill_waits_for_the_end_of_the_packet,
    the_guard_is_undone_behind_the_fence,
    what_reads_a_view_beside_a_select_is_guarded,
    a_rollback_to_the_savepoint_that_fails_is_repeated,
    a_savepoint_that_can_not_be_rolled_back_to_takes_its_transaction_along,
    completion_type_keeps_no_transaction_open,
    a_snapshot_goes_on_across_unlock_tables,
    begin_in_an_older_xa_transaction_gets_a_typed_error,
);

const OBJECTS: &str = "\
CREATE TABLE t (n int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 2);\
CREATE TABLE k (n int);\
INSERT INTO k VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9),(10),(11),(12),(13),(14),(15);\
CREATE TABLE m (n int) ENGINE = MyISAM; INSERT INTO m VALUES (1);\
CREATE FUNCTION f() RETURNS int MODIFIES SQL DATA \
    BEGIN INSERT INTO t VALUES (100, 1) ON DUPLICATE KEY UPDATE v = v + 1; RETURN 1; END;\
CREATE FUNCTION lift() RETURNS int BEGIN SET SESSION TRANSACTION READ WRITE; RETURN 1; END;\
CREATE VIEW writes AS SELECT f() AS n;\
CREATE FUNCTION both_at_once() RETURNS int MODIFIES SQL DATA \
    BEGIN SET SESSION TRANSACTION READ WRITE; INSERT INTO t VALUES (103, 1); RETURN 1; END;\
CREATE VIEW lifts AS SELECT lift() AS n;\
CREATE VIEW lifts_and_writes AS SELECT both_at_once() AS n;\
CREATE VIEW lifts_then_writes AS SELECT lift() AS a, f() AS b;\
CREATE PROCEDURE p() INSERT INTO t VALUES (101, 1);\
CREATE PROCEDURE rw() \
    BEGIN START TRANSACTION READ WRITE; INSERT INTO t VALUES (102, 1); COMMIT; END;\
";

struct Rig<'a> {
    cluster: &'a MyCluster,
    proxy: Proxy,
    db: String,
}

impl Rig<'static> {
    fn new(flavour: MyFlavour, env: &[(&str, &str)]) -> Self {
        Self::on(MyCluster::shared(flavour), env)
    }
}

impl<'a> Rig<'a> {
    /// With `engine_lock` off nothing but the proxy keeps anybody from writing.
    fn on(cluster: &'a MyCluster, env: &[(&str, &str)]) -> Self {
        let db = cluster.fresh_db();
        run_script(cluster, &db, OBJECTS);
        let proxy = Proxy::start_with(ProxyOptions {
            engines: vec![Engine::my_plain("old", cluster)],
            extra: "[fence]\nengine_lock = \"off\"\n".to_owned(),
            env: env.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
            ..ProxyOptions::default()
        });
        Self { cluster, proxy, db }
    }

    fn client(&self) -> MyWire {
        MyWire::connect(self.proxy.port(), "wire", &self.db)
    }

    fn namespace(&self) -> String {
        format!("old/{}", self.db)
    }

    fn try_fence(&self, operation: &str, policy: &Value) -> (u16, Value) {
        self.proxy.acquire(&self.namespace(), operation, &uuid(), policy)
    }

    fn fence(&self) -> String {
        self.proxy.fence(&self.namespace())
    }

    fn unfence(&self, operation: &str) {
        self.proxy.unfence(&self.namespace(), operation);
    }

    /// Every row there is, and what was logged.
    fn everything(&self) -> String {
        self.cluster.sql(
            &self.db,
            "SELECT n, v FROM t ORDER BY n; SELECT n FROM m ORDER BY n; SHOW TABLES; \
             SELECT routine_name FROM information_schema.routines \
                 WHERE routine_schema = DATABASE() ORDER BY 1",
        )
    }
}

/// Statement by statement: bodies of routines have semicolons of their own.
fn run_script(cluster: &MyCluster, db: &str, script: &str) {
    let mut direct = MyWire::connect(cluster.port(), "wire", db);
    let mut body = String::new();
    for part in script.split_inclusive(';') {
        body.push_str(part);
        let inside = body.contains("BEGIN") && !body.trim_end().ends_with("END;");
        if !inside {
            direct.query(body.trim_end_matches(';')).ok();
            body.clear();
        }
    }
}

fn policy(deadline_ms: u64, on_deadline: &str) -> Value {
    json!({ "deadline_ms": deadline_ms, "on_deadline": on_deadline })
}

fn is_fences(code: u16) -> bool {
    (9701..=9709).contains(&code)
}

/// What must be refused, on both or on one of the servers.
const BOTH: &[&str] = &[
    "INSERT INTO t VALUES (3, 3)",
    "UPDATE t SET v = v + 1 WHERE n = -1",
    "DELETE FROM m",
    "REPLACE INTO t VALUES (1, 9)",
    "TRUNCATE TABLE t",
    "SELECT f()",
    "SELECT * FROM writes",
    "SELECT n FROM t WHERE f() = 1",
    "DO f()",
    "SET @a = f()",
    "SET @a = (SELECT f())",
    "SELECT @y := f()",
    "SELECT f() INTO @q",
    "WITH x AS (SELECT f() AS n) SELECT * FROM x",
    "SELECT * FROM (SELECT f()) x",
    "SELECT 1 UNION SELECT f()",
    "SELECT CASE WHEN 1 THEN f() END",
    "SELECT BENCHMARK(1, f())",
    "SHOW TABLES WHERE f()",
    "SHOW VARIABLES WHERE f() = 1",
    "SHOW COLUMNS FROM t WHERE f()",
    "SET NAMES utf8mb4, @z = f()",
    "SET @@session.sql_mode = (SELECT IF(f(), '', ''))",
    "/*!50000 INSERT INTO t VALUES (3, 3) */",
    "/*! INSERT INTO t VALUES (3, 3) */",
    "/*!delete*//*!from*/ t",
    "insert/**/into t values(3,3)",
    "INSERT t SET n = 3",
    "SELECT 1; INSERT INTO t VALUES (3, 3)",
    "CALL p()",
    "CALL rw()",
    "PREPARE s FROM 'INSERT INTO t VALUES (3, 3)'",
    "SET @s = 'INSERT INTO t VALUES (3, 3)'; PREPARE s FROM @s; EXECUTE s",
    "SELECT * FROM t FOR UPDATE",
    "SELECT n FROM t INTO OUTFILE 'fencewire_bypass.txt'",
    "LOAD DATA LOCAL INFILE 'x' INTO TABLE t",
    "CREATE TABLE x (n int)",
    "CREATE TEMPORARY TABLE x (n int)",
    "CREATE TABLE x AS SELECT * FROM t",
    "ALTER TABLE t ADD w int",
    "DROP TABLE t",
    "RENAME TABLE t TO u",
    "CREATE INDEX i ON t (v)",
    "CREATE VIEW w AS SELECT 1",
    "DROP VIEW writes",
    "CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET @x = 1",
    "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1",
    "OPTIMIZE TABLE t",
    "ANALYZE TABLE t",
    "FLUSH TABLES",
    "FLUSH STATUS",
    "LOCK TABLES t WRITE",
    "START TRANSACTION READ WRITE",
    "SET SESSION TRANSACTION READ WRITE; INSERT INTO t VALUES (3, 3)",
    "SET TRANSACTION READ WRITE",
    "XA COMMIT 'old'",
    "XA ROLLBACK 'old'",
    "SELECT * FROM lifts; SELECT * FROM writes",
    "DROP DATABASE IF EXISTS nosuch",
    "SET GLOBAL max_connect_errors = 1000001",
    "EXPLAIN INSERT INTO t VALUES (3, 3)",
];

const MARIADB: &[&str] = &[
    "/*M! INSERT INTO t VALUES (3, 3) */",
    "INSERT INTO t VALUES (3, 3) RETURNING n",
    "DELETE FROM t RETURNING n",
    "ANALYZE SELECT f()",
    "ANALYZE INSERT INTO t VALUES (3, 3)",
    "VALUES (f())",
    "EXECUTE IMMEDIATE 'INSERT INTO t VALUES (3, 3)'",
    "BEGIN NOT ATOMIC INSERT INTO t VALUES (3, 3); END",
    "SET STATEMENT tx_read_only = 0 FOR INSERT INTO t VALUES (3, 3)",
    "SET tx_read_only = 0; INSERT INTO t VALUES (3, 3)",
    "CREATE SEQUENCE s",
    "SELECT NEXTVAL(s)",
];

const MYSQL: &[&str] = &[
    "EXPLAIN ANALYZE SELECT f()",
    "VALUES ROW(f())",
    "TABLE t INTO OUTFILE 'fencewire_bypass.txt'",
    "WITH x AS (SELECT 1 AS n) UPDATE t SET v = 9 WHERE n IN (SELECT n FROM x)",
    "WITH x AS (SELECT 1 AS n) DELETE FROM t WHERE n IN (SELECT n FROM x)",
    "SET transaction_read_only = 0; INSERT INTO t VALUES (3, 3)",
    "SET @@transaction_read_only = 0",
    "SET PERSIST max_connect_errors = 1000001",
];

fn disguised_writes_change_nothing_and_get_the_fences_codes(flavour: MyFlavour) {
    let rig = Rig::new(flavour, &[]);
    let before = rig.everything();
    let operation = rig.fence();
    let mut client = rig.client();
    let own = match flavour {
        MyFlavour::MariaDb => MARIADB,
        MyFlavour::MySql => MYSQL,
    };
    let mut wrong = Vec::new();
    for sql in BOTH.iter().chain(own) {
        let answer = client.query(sql);
        if !is_fences(answer.code()) {
            wrong.push(format!("{sql}: {answer:?}"));
        }
        let read = client.query("SELECT COUNT(*) FROM t").ok();
        assert_eq!(read.cell(), "2", "behind {sql}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // A pool lifts its session's own setting before it hands it out: that alone writes nothing, and
    // lifts nothing of the guard under what follows.
    let name = match flavour {
        MyFlavour::MariaDb => "tx_read_only",
        MyFlavour::MySql => "transaction_read_only",
    };
    for lift in ["SET SESSION TRANSACTION READ WRITE".to_owned(), format!("SET {name} = 0")] {
        client.query(&lift).ok();
        assert!(is_fences(client.query("SELECT * FROM writes").code()), "behind {lift}");
        assert!(is_fences(client.query("SELECT * FROM lifts_then_writes").code()), "{lift}");
    }
    // The same bytes are one string or two statements, by the session's own mode.
    let two_faced = "SELECT '\\'; INSERT INTO t VALUES (3, 3); -- '";
    client.query(two_faced).ok();
    client.query("SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'").ok();
    assert!(is_fences(client.query(two_faced).code()));
    client.query("SET SESSION sql_mode = 'ANSI_QUOTES'").ok();
    assert!(is_fences(client.query("SELECT \"f\"()").code()));
    assert_eq!(rig.everything(), before);
    rig.unfence(&operation);
    client.query("INSERT INTO t VALUES (3, 3)").ok();
}

fn commands_that_write_by_opcode_are_refused(flavour: MyFlavour) {
    let rig = Rig::new(flavour, &[]);
    let operation = rig.fence();
    let mut client = rig.client();
    let (db, before) = (rig.db.clone(), rig.everything());
    for (opcode, argument, code) in [
        (5, "fencewire_new", 9707),
        (6, db.as_str(), 9707),
        (7, "\u{1}", 9701),
        (8, "\0", 9701),
        (0x20, "", 1047),
        (0xfe, "", 1047),
    ] {
        let mut payload = vec![opcode];
        payload.extend(argument.as_bytes());
        client.command(&payload);
        let answer = client.answer(&[]).unwrap();
        assert_eq!(answer.code(), code, "{opcode:#x} {answer:?}");
    }
    assert_eq!(rig.everything(), before);
    rig.unfence(&operation);
}

/// Nothing tells a client to wait for the end of its login: what it sends with it is there before
/// the relay is.
fn statements_that_come_with_the_login_are_sorted_like_any_other(flavour: MyFlavour) {
    let rig = Rig::new(flavour, &[]);
    let asks = |sql: &str| {
        let login = MyLogin { query: sql.to_owned(), ..MyLogin::of("wire", &rig.db) };
        MyWire::login(rig.proxy.port(), &login).unwrap().answer(&[]).unwrap()
    };
    let insert = "INSERT INTO t VALUES (3, 3)";
    let before = rig.everything();
    assert_eq!(asks("SELECT 7").ok().cell(), "7");
    let operation = rig.fence();
    assert_eq!(asks(insert).code(), 9701);
    assert_eq!(asks("SELECT 8").ok().cell(), "8");
    assert_eq!(rig.everything(), before);
    rig.unfence(&operation);
    asks(insert).ok();
    assert_ne!(rig.everything(), before);
}

fn statements_prepared_before_the_fence_are_refused_under_it(flavour: MyFlavour) {
    let rig = Rig::new(flavour, &[]);
    let mut client = rig.client();
    let write = client.prepare("INSERT INTO t VALUES (?, 1)").unwrap().unwrap();
    let read = client.prepare("SELECT COUNT(*) FROM t WHERE n < ?").unwrap().unwrap();
    client.command(&write.execute(&[Some("10")]));
    client.answer(&[]).unwrap().ok();
    let operation = rig.fence();
    client.command(&write.execute(&[Some("11")]));
    assert_eq!(client.answer(&[]).unwrap().code(), 9701);
    client.command(&read.execute(&[Some("50")]));
    client.answer(&[]).unwrap().ok();
    assert!(is_fences(client.prepare("DELETE FROM t").unwrap().unwrap_err().code));
    assert_eq!(rig.cluster.sql(&rig.db, "SELECT MAX(n) FROM t"), "10");
    rig.unfence(&operation);
    client.command(&write.execute(&[Some("11")]));
    client.answer(&[]).unwrap().ok();
    assert_eq!(rig.cluster.sql(&rig.db, "SELECT MAX(n) FROM t"), "11");
}

fn the_guard_is_what_stops_a_view_that_writes(flavour: MyFlavour) {
    let rig = Rig::new(flavour, &[]);
    let operation = rig.fence();
    let mut client = rig.client();
    for _ in 0..2 {
        let answer = client.query("SELECT * FROM writes");
        assert_eq!(answer.code(), 9701, "{answer:?}");
        // Whatever a function sets in one program is set back before the next.
        client.query("SELECT * FROM lifts").ok();
        for view in ["lifts_and_writes", "lifts_then_writes"] {
            let answer = client.query(&format!("SELECT * FROM {view}"));
            assert_eq!(answer.code(), 9701, "{view}: {answer:?}");
        }
    }
    client.query("BEGIN").ok();
    client.query("SELECT * FROM lifts").ok();
    assert_eq!(client.query("SELECT * FROM writes").code(), 9701);
    client.query("COMMIT").ok();
    client.query("SET autocommit = 0").ok();
    client.query("SELECT * FROM t").ok();
    assert_eq!(client.query("SELECT * FROM writes").code(), 9701);
    client.query("COMMIT").ok();
    assert_eq!(rig.cluster.sql(&rig.db, "SELECT COUNT(*) FROM t"), "2");
    rig.unfence(&operation);
}

/// The control arm of the one above.
fn without_the_guard_a_view_writes(flavour: MyFlavour) {
    let rig = Rig::new(flavour, &[("FENCEWIRE_REMOVE", "read-only-guard")]);
    let operation = rig.fence();
    rig.client().query("SELECT * FROM writes").ok();
    assert_eq!(rig.cluster.sql(&rig.db, "SELECT COUNT(*) FROM t"), "3");
    rig.unfence(&operation);
}

fn an_older_transaction_reads_on_and_leaves_nothing_behind(flavour: MyFlavour) {
    let rig = Rig::new(flavour, &[]);
    let mut client = rig.client();
    client.query("BEGIN").ok();
    assert_eq!(client.query("SELECT COUNT(*) FROM t").ok().cell(), "2");
    let operation = rig.fence();
    assert_eq!(client.query("SELECT COUNT(*) FROM t").ok().cell(), "2");
    client.query("SELECT * FROM writes").ok();
    assert_eq!(client.query("SELECT COUNT(*) FROM t").ok().cell(), "2", "taken back at once");
    assert_eq!(client.query("INSERT INTO t VALUES (3, 3)").code(), 9701);
    client.query("SAVEPOINT a").ok();
    client.query("SELECT * FROM writes").ok();
    client.query("ROLLBACK TO a").ok();
    client.query("SELECT * FROM writes").ok();
    client.query("COMMIT").ok();
    assert_eq!(rig.cluster.sql(&rig.db, "SELECT COUNT(*) FROM t"), "2");
    // A new transaction in place of the old one is the guard's.
    rig.unfence(&operation);
    client.query("BEGIN").ok();
    client.query("SELECT COUNT(*) FROM t").ok();
    let operation = rig.fence();
    client.query("BEGIN").ok();
    assert_eq!(client.query("SELECT * FROM writes").code(), 9701);
    client.query("COMMIT").ok();
    assert_eq!(rig.cluster.sql(&rig.db, "SELECT COUNT(*) FROM t"), "2");
    rig.unfence(&operation);
}

fn an_older_transaction_never_becomes_a_writer(flavour: MyFlavour) {
    let rig = Rig::new(flavour, &[]);
    let mut client = rig.client();
    client.query("BEGIN").ok();
    client.query("SELECT COUNT(*) FROM t").ok();
    let operation = rig.fence();
    rig.unfence(&operation);
    assert_eq!(client.query("INSERT INTO t VALUES (3, 3)").code(), 9702);
    client.query("ROLLBACK").ok();
    client.query("INSERT INTO t VALUES (3, 3)").ok();
}

fn a_session_of_another_schema_is_stopped_by_name_and_by_default(flavour: MyFlavour) {
    let rig = Rig::new(flavour, &[]);
    let other = rig.cluster.fresh_db();
    rig.cluster.sql(&other, "CREATE TABLE o (n int)");
    let operation = rig.fence();
    let db = &rig.db;
    let mut client = MyWire::connect(rig.proxy.port(), "wire", &other);
    client.query("INSERT INTO o VALUES (1)").ok();
    for sql in [
        format!("INSERT INTO {db}.t VALUES (3, 3)"),
        format!("INSERT INTO `{db}` . `t` VALUES (3, 3)"),
        format!("CREATE TABLE {db}.x AS SELECT * FROM o"),
        format!("RENAME TABLE o TO {db}.o"),
        format!("DELETE x FROM {db}.t x"),
        format!("DROP DATABASE {db}"),
        format!("USE {db}; INSERT INTO t VALUES (3, 3)"),
    ] {
        assert!(is_fences(client.query(&sql).code()), "{sql}");
    }
    assert_eq!(client.query(&format!("SELECT COUNT(*) FROM {db}.t")).ok().cell(), "2");
    client.query("INSERT INTO o VALUES (2)").ok();
    client.query(&format!("USE {db}")).ok();
    assert_eq!(client.query("INSERT INTO t VALUES (3, 3)").code(), 9701);
    client.query(&format!("USE {other}")).ok();
    let mut init = vec![2];
    init.extend(db.as_bytes());
    client.command(&init);
    client.answer(&[]).unwrap().ok();
    assert_eq!(client.query("INSERT INTO t VALUES (3, 3)").code(), 9701);
    // Without a default schema.
    let mut client = MyWire::connect(rig.proxy.port(), "wire", "");
    let insert = format!("INSERT INTO {db}.t VALUES (3, 3)");
    assert_eq!(client.query(&insert).code(), 9701);
    client.query(&format!("INSERT INTO {other}.o VALUES (3)")).ok();
    assert_eq!(rig.cluster.sql(db, "SELECT COUNT(*) FROM t"), "2");
    rig.unfence(&operation);
    client.query(&insert).ok();
}

fn a_running_statement_is_killed_and_its_transaction_rolled_back(flavour: MyFlavour) {
    let rig = Rig::new(flavour, &[]);
    let mut client = rig.client();
    client.query("BEGIN").ok();
    client.query("INSERT INTO t VALUES (3, 3)").ok();
    // Nobody sees the end of this one; unlike SLEEP and BENCHMARK it fails when it is killed.
    let aliases: Vec<String> = (0..12).map(|at| format!("k AS k{at}")).collect();
    let endless = format!("INSERT INTO t SELECT 4, SUM(k0.n * k11.n) FROM {}", aliases.join(", "));
    client.begin_query(&endless).unwrap();
    let id = client.greeting.thread_id;
    let running = || {
        let sql = format!(
            "SELECT COUNT(*) FROM information_schema.processlist \
             WHERE id = {id} AND info LIKE '%k11%'"
        );
        (rig.cluster.sql("mysql", &sql) == "1").then_some(())
    };
    if support::poll(PATIENCE, running).is_none() {
        let list = rig.cluster.sql("mysql", "SHOW FULL PROCESSLIST");
        panic!("the statement never ran:\n{list}");
    }
    let (status, body) = rig.try_fence(&uuid(), &policy(0, "force_rollback"));
    assert_eq!(status, 200, "{body:#}");
    assert_eq!(client.answer(&[]).unwrap().code(), 9709);
    assert_eq!(client.query("COMMIT").code(), 9709, "never looks like success");
    assert_eq!(client.query("SELECT COUNT(*) FROM t").ok().cell(), "2");
}

fn an_idle_transaction_is_rolled_back_and_the_client_told(flavour: MyFlavour) {
    let rig = Rig::new(flavour, &[]);
    let (mut commits, mut goes_on) = (rig.client(), rig.client());
    for (client, n) in [(&mut commits, 3), (&mut goes_on, 4)] {
        client.query("BEGIN").ok();
        client.query(&format!("INSERT INTO t VALUES ({n}, 3)")).ok();
    }
    let (status, body) = rig.try_fence(&uuid(), &policy(0, "force_rollback"));
    assert_eq!(status, 200, "{body:#}");
    assert_eq!(commits.query("COMMIT").code(), 9709);
    assert_eq!(goes_on.query("SELECT 1").code(), 9709);
    assert_eq!(goes_on.query("COMMIT").code(), 9709);
    for client in [&mut commits, &mut goes_on] {
        assert_eq!(client.query("SELECT COUNT(*) FROM t").ok().cell(), "2");
        assert_eq!(client.query("INSERT INTO t VALUES (5, 5)").code(), 9701);
    }
}

/// An error tells no status: the session is asked when a drain waits for it.
fn an_error_before_the_fence_does_not_hold_up_its_drain(flavour: MyFlavour) {
    let rig = Rig::new(flavour, &[]);
    let mut client = rig.client();
    assert_eq!(client.query("INSERT INTO t VALUES (1, 1)").code(), 1062);
    let operation = rig.fence();
    client.query("SELECT 1").ok();
    rig.unfence(&operation);
    // Failed DDL has committed, and the state behind it is known again.
    client.query("BEGIN").ok();
    client.query("INSERT INTO t VALUES (3, 3)").ok();
    assert_eq!(client.query("ALTER TABLE nosuch ADD x int").code(), 1146);
    let operation = rig.fence();
    assert_eq!(rig.cluster.sql(&rig.db, "SELECT COUNT(*) FROM t"), "3");
    rig.unfence(&operation);
}

/// Half of a COM_STMT_SEND_LONG_DATA, which owes no answer, is sent.
struct HalfSent {
    statement: support::my_wire::Prepared,
    rest: Vec<u8>,
}

impl HalfSent {
    const BYTES: usize = 300_000;

    /// Prepares a statement that tells whether its parameter is what was sent.
    fn prepare(client: &mut MyWire) -> support::my_wire::Prepared {
        let sql = format!("SELECT CAST(? AS CHAR) = REPEAT('x', {}) AS same", Self::BYTES);
        client.prepare(&sql).unwrap().unwrap()
    }

    fn send(client: &mut MyWire, statement: support::my_wire::Prepared) -> Self {
        let head = [&[0x18], &statement.id.to_le_bytes()[..], &[0, 0]].concat();
        let packet = support::my_wire::packets(&[head, vec![b'x'; Self::BYTES]].concat(), &mut 0);
        let (first, rest) = packet.split_at(packet.len() / 2);
        client.send_raw(first);
        Self { statement, rest: rest.to_vec() }
    }

    /// Executes it: nothing but what the client sent is in its parameter.
    fn is_whole(&self, client: &mut MyWire) {
        let mut execute = self.statement.execute(&[Some("")]);
        execute.pop(); // the value was sent before
        client.command(&execute);
        // Up to the row: its header, no NULL, and the answer as a number.
        let row = (0..5).map(|_| client.packet().payload).find(|packet| packet.first() == Some(&0));
        let same = row.as_deref().and_then(|row| row.get(2));
        assert_eq!(same, Some(&1), "other bytes came: {row:?}");
        client.packet();
    }
}

/// A drain that wants to know where a session stands asks when the client's packet is over.
fn nothing_of_the_proxys_own_gets_between_the_halves_of_a_packet(flavour: MyFlavour) {
    let rig = Rig::new(flavour, &[]);
    let mut client = rig.client();
    let statement = HalfSent::prepare(&mut client);
    assert_eq!(client.query("INSERT INTO t VALUES (1, 1)").code(), 1062, "no status is known");
    let half = HalfSent::send(&mut client, statement);
    let operation = uuid();
    let (status, body) = rig.try_fence(&operation, &policy(1_000, "fail"));
    assert_eq!(status, 202, "nobody can say yet: {body:#}");
    client.send_raw(&half.rest);
    let proven = support::poll(PATIENCE, || {
        let (status, _) = rig.try_fence(&operation, &policy(5_000, "fail"));
        (status == 200).then_some(())
    });
    assert!(proven.is_some(), "the packet was over and the drain went on waiting");
    rig.unfence(&operation);
    half.is_whole(&mut client);
}

/// A forced rollback kills first, whatever is half-way, and then says ROLLBACK: behind the packet.
fn what_follows_a_kill_waits_for_the_end_of_the_packet(flavour: MyFlavour) {
    // Its count of kills is this test's alone.
    let cluster = MyCluster::start(flavour, support::MyOptions::default());
    let rig = Rig::on(&cluster, &[]);
    let mut client = rig.client();
    let statement = HalfSent::prepare(&mut client);
    client.query("BEGIN").ok();
    client.query("INSERT INTO t VALUES (3, 3)").ok();
    let half = HalfSent::send(&mut client, statement);
    let mut watcher = MyWire::connect(cluster.port(), "wire", "");
    let mut kills = || {
        let answer = watcher.query("SHOW GLOBAL STATUS LIKE 'Com_kill'").ok();
        answer.rows()[0][1].clone().unwrap()
    };
    assert_eq!(kills(), "0");
    let (status, body) = std::thread::scope(|scope| {
        let fence = scope.spawn(|| rig.try_fence(&uuid(), &policy(0, "force_rollback")));
        let killed = support::poll(PATIENCE, || (kills() != "0").then_some(()));
        assert!(killed.is_some(), "nothing was killed");
        // The engine's word of it is with the proxy; give it turns in which to act on it.
        for _ in 0..3 {
            rig.proxy.inspect(&rig.namespace());
        }
        assert!(!fence.is_finished(), "VIOLATION: acknowledged with a transaction open");
        client.send_raw(&half.rest);
        fence.join().unwrap()
    });
    assert_eq!(status, 200, "{body:#}");
    let evidence = &body["fence"]["evidence"];
    assert_eq!(evidence["releases"]["by_answer"], 1, "by its own rollback: {evidence:#}");
    assert_eq!(client.query("COMMIT").code(), 9709, "never looks like success");
    half.is_whole(&mut client);
    assert_eq!(client.query("SELECT COUNT(*) FROM t").ok().cell(), "2");
}

fn the_guard_is_undone_behind_the_fence(flavour: MyFlavour) {
    let rig = Rig::new(flavour, &[]);
    let question = format!("SELECT @@session.{}", flavour.read_only_variable());
    let (mut plain, mut own) = (rig.client(), rig.client());
    own.query("SET SESSION TRANSACTION READ ONLY").ok();
    let operation = rig.fence();
    for client in [&mut plain, &mut own] {
        assert_eq!(client.query(&question).ok().cell(), "1");
    }
    rig.unfence(&operation);
    assert_eq!(plain.query(&question).ok().cell(), "0");
    assert_eq!(own.query(&question).ok().cell(), "1");
    plain.query("INSERT INTO t VALUES (3, 3)").ok();
    assert_eq!(own.query("INSERT INTO t VALUES (4, 4)").code(), 1792, "its own, and untouched");
}

/// A value may read a view as well as a SELECT does.
fn what_reads_a_view_beside_a_select_is_guarded(flavour: MyFlavour) {
    let rig = Rig::new(flavour, &[]);
    let mut client = rig.client();
    client.query("BEGIN").ok();
    client.query("SELECT COUNT(*) FROM t").ok();
    let operation = rig.fence();
    for sql in [
        "SET @a = (SELECT n FROM writes)",
        "SET @b = 1, @a = (SELECT n FROM writes)",
        "DO (SELECT n FROM writes)",
        "SHOW TABLES WHERE (SELECT n FROM writes)",
    ] {
        client.query(sql).ok();
        assert_eq!(client.query("SELECT COUNT(*) FROM t").ok().cell(), "2", "behind {sql}");
    }
    client.query("COMMIT").ok();
    assert_eq!(rig.cluster.sql(&rig.db, "SELECT COUNT(*) FROM t"), "2");
    for sql in [
        "SET @a = (SELECT n FROM writes)",
        "SET @a = (SELECT n FROM lifts); SET @b = (SELECT n FROM writes)",
        "SET @a = (SELECT n FROM lifts), @b = (SELECT n FROM writes)",
    ] {
        assert!(is_fences(client.query(sql).code()), "{sql}");
    }
    assert_eq!(rig.cluster.sql(&rig.db, "SELECT COUNT(*) FROM t"), "2");
    rig.unfence(&operation);
}

/// A client in an older transaction has read a view that writes, and wants to commit.
fn commit_behind_a_hidden_write(rig: &Rig<'_>) -> u16 {
    let mut client = rig.client();
    client.query("BEGIN").ok();
    client.query("SELECT COUNT(*) FROM t").ok();
    let operation = rig.fence();
    client.query("SELECT * FROM writes").ok();
    let code = client.query("COMMIT").code();
    assert_eq!(rig.cluster.sql(&rig.db, "SELECT COUNT(*) FROM t"), "2");
    client.query("SELECT COUNT(*) FROM t").ok();
    rig.unfence(&operation);
    code
}

fn a_rollback_to_the_savepoint_that_fails_is_repeated(flavour: MyFlavour) {
    let rig = Rig::new(flavour, &[("FENCEWIRE_FAULT", "wire.unwrap@1=error")]);
    assert_eq!(commit_behind_a_hidden_write(&rig), 0);
}

fn a_savepoint_that_can_not_be_rolled_back_to_takes_its_transaction_along(flavour: MyFlavour) {
    let faults = [1, 2, 3].map(|pass| format!("wire.unwrap@{pass}=error")).join(",");
    let rig = Rig::new(flavour, &[("FENCEWIRE_FAULT", &faults)]);
    assert_eq!(commit_behind_a_hidden_write(&rig), 9709);
}

/// A session may have its COMMIT and ROLLBACK begin another transaction, or end the session.
fn completion_type_keeps_no_transaction_open(flavour: MyFlavour) {
    let rig = Rig::new(flavour, &[]);
    for (value, n) in [("CHAIN", 10), ("RELEASE", 11)] {
        let set = format!("SET SESSION completion_type = '{value}'");
        let mut client = rig.client();
        client.query(&set).ok();
        client.query("BEGIN").ok();
        client.query("SELECT COUNT(*) FROM t").ok();
        let operation = rig.fence();
        client.query("BEGIN").ok();
        assert_eq!(client.query("SELECT * FROM writes").code(), 9701, "{value}");
        rig.unfence(&operation);
        let mut client = rig.client();
        client.query(&set).ok();
        client.query("BEGIN").ok();
        client.query(&format!("INSERT INTO t VALUES ({n}, 1)")).ok();
        let operation = uuid();
        let (status, body) = rig.try_fence(&operation, &policy(0, "force_rollback"));
        assert_eq!(status, 200, "{value}: {body:#}");
        let forced = &body["fence"]["evidence"]["forced"];
        assert!(!forced.to_string().contains("terminat"), "{value}: {body:#}");
        assert_eq!(client.query("SELECT 1").code(), 9709, "{value}");
        rig.unfence(&operation);
    }
    assert_eq!(rig.cluster.sql(&rig.db, "SELECT COUNT(*) FROM t"), "2");
}

fn a_snapshot_goes_on_across_unlock_tables(flavour: MyFlavour) {
    let rig = Rig::new(flavour, &[]);
    let (mut older, mut newer) = (rig.client(), rig.client());
    let begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT";
    older.query(begin).ok();
    let operation = rig.fence();
    newer.query(begin).ok();
    // Around the proxy: nothing but the proxy guards this schema here.
    rig.cluster.sql(&rig.db, "INSERT INTO t VALUES (3, 3)");
    for client in [&mut older, &mut newer] {
        for sql in ["UNLOCK TABLES", "SET autocommit = 1", "UNLOCK TABLES"] {
            client.query(sql).ok();
            assert_eq!(client.query("SELECT COUNT(*) FROM t").ok().cell(), "2", "behind {sql}");
        }
        client.query("COMMIT").ok();
        assert_eq!(client.query("SELECT COUNT(*) FROM t").ok().cell(), "3");
        // With autocommit off it is redundant as well, and then it isn't.
        client.query("SET autocommit = 0").ok();
        client.query("SELECT COUNT(*) FROM t").ok();
        client.query("SET autocommit = 0").ok();
        client.query("SET autocommit = 1").ok();
        assert_eq!(client.query("SELECT * FROM writes").code(), 9701);
    }
    assert_eq!(rig.cluster.sql(&rig.db, "SELECT COUNT(*) FROM t"), "3");
    rig.unfence(&operation);
}

fn begin_in_an_older_xa_transaction_gets_a_typed_error(flavour: MyFlavour) {
    let rig = Rig::new(flavour, &[]);
    let mut client = rig.client();
    client.query("XA START 'older'").ok();
    client.query("SELECT COUNT(*) FROM t").ok();
    let operation = rig.fence();
    for sql in ["BEGIN", "START TRANSACTION READ ONLY", "LOCK TABLES t READ"] {
        assert_eq!(client.query(sql).code(), 9708, "{sql}");
    }
    // Its session lives, and can end it.
    client.query("XA END 'older'").ok();
    rig.unfence(&operation);
}
