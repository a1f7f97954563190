//! What a session's own statements change in it, and what a fence makes of it, on both servers.
//!
//! The proxy reads a text by the modes, at the schema and with the prepared names that the session
//! has on the engine. Each test changes them in a way that is easy to misread (a scope, a routine,
//! a body with semicolons, a change of user, a name too many), and then tries to write under the
//! fence by what a misreading would believe. The engine is the oracle: a session straight to it
//! goes the same way first. Nothing may change in the fenced schema; what is harmless goes on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod support;

use std::sync::OnceLock;
use std::time::Duration;

use serde_json::json;
use support::my_wire::{MyFailed, MyLogin, flag, status};
use support::proxy::uuid;
use support::{
    Engine, MyCluster, MyFlavour, MyOptions, MyWire, Proxy, ProxyOptions, on_both, poll,
};

/// Only a fault lets a wait last as long.
const PATIENCE: Duration = Duration::from_secs(60);

on_both!(
    whatever_scope_sets_the_mode_a_text_is_read_as_the_engine_reads_it,
    without_the_classifier_a_text_of_two_readings_writes,
    a_mode_that_a_routine_leaves_in_the_status_is_not_believed,
    a_character_set_that_a_routine_tells_of_is_not_believed,
    what_stands_behind_a_body_is_not_hidden_in_it,
    of_sixteen_executes_in_a_text_it_is_known_what_they_do_and_of_seventeen_it_is_not,
    a_change_of_user_onto_a_fenced_schema_and_back,
    a_change_of_user_ends_the_transaction_that_a_drain_waits_for,
    a_change_of_user_takes_the_guard_along_and_leaves_none_behind,
    a_change_of_user_forgets_what_the_client_had_set,
    a_change_of_user_forgets_what_was_prepared,
    a_change_of_user_that_fails_moves_nobody,
    a_step_of_a_login_that_is_too_long_ends_the_session_alone,
);

struct Rig<'a> {
    cluster: &'a MyCluster,
    proxy: Proxy,
    /// The schema that is fenced.
    db: String,
    /// Another one of the same engine.
    other: String,
}

impl Rig<'static> {
    fn new(flavour: MyFlavour) -> Self {
        Self::on(MyCluster::shared(flavour), &[])
    }
}

impl<'a> Rig<'a> {
    /// With `engine_lock` off nothing but the proxy keeps anybody from writing.
    fn on(cluster: &'a MyCluster, env: &[(&str, &str)]) -> Self {
        let (db, other) = (cluster.fresh_db(), cluster.fresh_db());
        for schema in [&db, &other] {
            cluster.sql(schema, "CREATE TABLE t (n int)");
        }
        let proxy = Proxy::start_with(ProxyOptions {
            engines: vec![Engine::my_plain("old", cluster)],
            extra: "[fence]\nengine_lock = \"off\"\n".to_owned(),
            env: env.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
            ..ProxyOptions::default()
        });
        Self { cluster, proxy, db, other }
    }

    fn client(&self, database: &str) -> MyWire {
        session(self.proxy.port(), "wire", database)
    }

    fn direct(&self, database: &str) -> MyWire {
        session(self.cluster.port(), "wire", database)
    }

    fn namespace(&self) -> String {
        format!("old/{}", self.db)
    }

    /// Raises the write fence and waits for its acknowledgement.
    fn fence(&self) -> String {
        let policy = json!({ "deadline_ms": 60_000, "on_deadline": "fail" });
        let operation = uuid();
        let (status, body) = self.proxy.acquire(&self.namespace(), &operation, &uuid(), &policy);
        assert_eq!(status, 200, "{body:#}");
        operation
    }

    fn release(&self, operation: &str) {
        let (status, body) = self.proxy.release(&self.namespace(), operation, &uuid());
        assert_eq!(status, 200, "{body:#}");
    }

    fn rows(&self, schema: &str) -> String {
        self.cluster.sql(schema, "SELECT n FROM t ORDER BY n; SHOW TABLES")
    }
}

fn session(port: u16, user: &str, database: &str) -> MyWire {
    let login = MyLogin::of(user, database).with(flag::MULTI_STATEMENTS);
    MyWire::login(port, &login).unwrap()
}

fn is_fences(code: u16) -> bool {
    (9701..=9709).contains(&code)
}

/// COM_CHANGE_USER of `wire`, which has no password, and the login that it begins.
fn change_user(client: &mut MyWire, schema: &str) -> Result<(), MyFailed> {
    client.command(&change_user_payload("wire", schema, &client.greeting.plugin.clone()));
    client.authenticate(String::new(), Vec::new(), &MyLogin::of("wire", schema))
}

fn change_user_payload(user: &str, schema: &str, plugin: &str) -> Vec<u8> {
    let mut payload = vec![0x11];
    payload.extend(user.as_bytes());
    payload.extend([0, 0]);
    payload.extend(schema.as_bytes());
    payload.extend([0, 45, 0]);
    payload.extend(plugin.as_bytes());
    payload.push(0);
    payload
}

// ---- modes ---------------------------------------------------------------------------------

/// A text of one harmless statement, or of several that write: by the session's mode.
struct TwoFaced {
    /// The mode that makes it the one or the other.
    mode: &'static str,
    /// In front of what is hidden, and behind it.
    around: (&'static str, &'static str),
}

const TWO_FACED: &[TwoFaced] = &[
    TwoFaced { mode: "NO_BACKSLASH_ESCAPES", around: ("SELECT '\\'; ", "; -- '") },
    TwoFaced { mode: "ANSI_QUOTES", around: ("SELECT 1 AS \"\\\"; ", "; -- x\"") },
    // The other way round: several statements unless that mode is set.
    TwoFaced { mode: "NO_BACKSLASH_ESCAPES", around: ("SELECT '\\', '; ", "; -- '") },
    TwoFaced { mode: "ANSI_QUOTES", around: ("SELECT 1 AS \"\\\", 2 AS \"; ", "; -- x\"") },
];

impl TwoFaced {
    /// It lifts the guard before it writes.
    fn text(&self, write: &str) -> String {
        let (before, behind) = self.around;
        format!("{before}SET SESSION TRANSACTION READ WRITE; {write}{behind}")
    }
}

/// Ways to set a mode, or to seem to; `MODE` is it.
const SCOPES: &[&str] = &[
    "SET sql_mode = 'MODE'",
    "SET SESSION sql_mode = 'MODE'",
    "SET LOCAL sql_mode = 'MODE'",
    "SET @@sql_mode = 'MODE'",
    "SET @@session.sql_mode = 'MODE'",
    "SET @@local.sql_mode = 'MODE'",
    "SET `sql_mode` = 'MODE'",
    "SET Sql_Mode := 'MODE'",
    "SET GLOBAL sql_mode = 'MODE'",
    "SET @@global.sql_mode = 'MODE'",
    "SET GLOBAL sql_mode = 'MODE', SESSION sql_mode = ''",
    "SET GLOBAL sql_mode = '', SESSION sql_mode = 'MODE'",
    "SET SESSION sql_mode = 'MODE', GLOBAL sql_mode = ''",
    "SET SESSION sql_mode = '', GLOBAL sql_mode = 'MODE'",
    "SET GLOBAL sql_mode = '', sql_mode = 'MODE'",
    "SET GLOBAL sql_mode = 'MODE', sql_mode = ''",
    "SET SESSION sql_mode = '', sql_mode = 'MODE'",
    "SET GLOBAL max_connect_errors = 1000000, sql_mode = 'MODE'",
    "SET @@global.max_connect_errors = 1000000, sql_mode = 'MODE'",
    "SET SESSION max_join_size = 1000000, sql_mode = 'MODE'",
    "SET @@session.sql_mode = '', @@sql_mode = 'MODE'",
    "SET sql_mode = 'MODE', sql_mode = ''",
    "SET sql_mode = '', @a = 1, sql_mode = 'MODE'",
    "SET sql_mode = CONCAT(@@sql_mode, ',MODE')",
    "SET sql_mode = (SELECT 'MODE')",
    "SET @m = 'MODE'; SET sql_mode = @m",
    "SET sql_mode = 'MODE'; SET sql_mode = DEFAULT",
    "SET GLOBAL sql_mode = 'MODE'; SET sql_mode = DEFAULT",
    "SET sql_mode = 'MODE'; SET sql_mode = ''",
    "SET sql_mode = ''; SET sql_mode = 'MODE'; SELECT 1",
    "SET sql_mode = ''; SELECT nothing; SET sql_mode = 'MODE'",
    "SET sql_mode = 'MODE'; SELECT nothing; SET sql_mode = ''",
    "PREPARE s FROM 'SET sql_mode = \\'MODE\\''; EXECUTE s",
    "/*!50000 SET sql_mode = 'MODE' */",
    "SET /*! GLOBAL */ sql_mode = 'MODE'",
];

const MARIADB_SCOPES: &[&str] = &[
    "SET STATEMENT sql_mode = 'MODE' FOR SELECT 1",
    "SET STATEMENT sql_mode = 'MODE' FOR SET sql_mode = ''",
    "SET STATEMENT sql_mode = '' FOR SET sql_mode = 'MODE'",
    "SET STATEMENT max_statement_time = 60 FOR SET sql_mode = 'MODE'",
    "SET STATEMENT max_statement_time = 60 FOR SET SESSION sql_mode = 'MODE'",
    "SET STATEMENT max_statement_time = 60 FOR SET STATEMENT max_sort_length = 100 FOR \
         SET sql_mode = 'MODE'",
    "SET STATEMENT sql_mode = '' FOR SET STATEMENT max_sort_length = 100 FOR \
         SET sql_mode = 'MODE'",
    "SET STATEMENT max_sort_length = 100 FOR SET STATEMENT sql_mode = '' FOR \
         SET SESSION sql_mode = 'MODE'",
    "SET STATEMENT sql_mode = 'MODE' FOR SET STATEMENT sql_mode = '' FOR SELECT 1",
    "EXECUTE IMMEDIATE 'SET sql_mode = \\'MODE\\''",
    "BEGIN NOT ATOMIC SET sql_mode = 'MODE'; END",
    "SET sql_mode = 'ORACLE,MODE'",
];

const MYSQL_SCOPES: &[&str] = &[
    "SET PERSIST sql_mode = 'MODE'",
    "SET PERSIST_ONLY sql_mode = 'MODE'",
    "SET @@persist.sql_mode = 'MODE'",
    "SET PERSIST sql_mode = 'MODE', SESSION sql_mode = ''",
    "SET PERSIST sql_mode = '', SESSION sql_mode = 'MODE'",
    "SET PERSIST sql_mode = '', sql_mode = 'MODE'",
    "SET PERSIST max_connect_errors = 1000000, sql_mode = 'MODE'",
    "SET PERSIST_ONLY max_connect_errors = 1000000, sql_mode = 'MODE'",
    "SET @@persist.max_connect_errors = 1000000, sql_mode = 'MODE'",
    "SELECT /*+ SET_VAR(sql_mode = 'MODE') */ 1",
];

/// What says beyond doubt that the session's mode is another one: behind it a text that is harmless
/// by that mode is not refused.
const PLAIN: &[&str] = &["SET sql_mode = 'MODE', sql_mode = ''"];

/// A server of its own: its modes change under whoever comes.
fn changing(flavour: MyFlavour) -> &'static MyCluster {
    static MARIADB: OnceLock<MyCluster> = OnceLock::new();
    static MYSQL: OnceLock<MyCluster> = OnceLock::new();
    let cluster = match flavour {
        MyFlavour::MariaDb => &MARIADB,
        MyFlavour::MySql => &MYSQL,
    };
    cluster.get_or_init(|| {
        let cluster = MyCluster::start(flavour, MyOptions::default());
        cluster.sql("mysql", "CREATE USER boss@'127.0.0.1' IDENTIFIED BY 'boss'");
        cluster.sql("mysql", "GRANT ALL ON *.* TO boss@'127.0.0.1' WITH GRANT OPTION");
        cluster
    })
}

fn scopes(flavour: MyFlavour) -> impl Iterator<Item = &'static &'static str> {
    let own = match flavour {
        MyFlavour::MariaDb => MARIADB_SCOPES,
        MyFlavour::MySql => MYSQL_SCOPES,
    };
    SCOPES.iter().chain(own)
}

/// Sends a text; what it answers counts for nothing, and neither does it if the session goes on.
fn say(client: &mut MyWire, sql: &str) -> u16 {
    client.query(sql).code()
}

/// A session at the proxy behind one way of setting a mode, and what the engine made of it.
struct Set {
    sql: String,
    plain: bool,
    two_faced: &'static TwoFaced,
    dangerous: bool,
    client: MyWire,
}

fn all_set(rig: &Rig<'_>, flavour: MyFlavour) -> Vec<Set> {
    let original = rig.cluster.sql("mysql", "SELECT @@global.sql_mode");
    let put_back = || rig.cluster.sql("mysql", &format!("SET GLOBAL sql_mode = '{original}'"));
    let mut set = Vec::new();
    for two_faced in TWO_FACED {
        for scope in scopes(flavour) {
            let sql = scope.replace("MODE", two_faced.mode);
            put_back();
            let mut oracle = session(rig.cluster.port(), "boss", &rig.other);
            say(&mut oracle, &sql);
            let before = rig.rows(&rig.other);
            say(&mut oracle, &two_faced.text("INSERT INTO t VALUES (1)"));
            let dangerous = rig.rows(&rig.other) != before;
            put_back();
            let mut client = session(rig.proxy.port(), "boss", &rig.db);
            say(&mut client, &sql);
            let plain = PLAIN.contains(scope);
            set.push(Set { sql, plain, two_faced, dangerous, client });
        }
    }
    put_back();
    set
}

fn whatever_scope_sets_the_mode_a_text_is_read_as_the_engine_reads_it(flavour: MyFlavour) {
    let rig = Rig::on(changing(flavour), &[]);
    let mut set = all_set(&rig, flavour);
    // The engine reads some of them as several statements, and some not, whichever mode it is.
    for two_faced in TWO_FACED {
        let of_it = set.iter().filter(|one| std::ptr::eq(one.two_faced, two_faced));
        let dangerous: Vec<bool> = of_it.map(|one| one.dangerous).collect();
        assert!(dangerous.contains(&true) && dangerous.contains(&false), "{}", two_faced.mode);
    }
    let before = rig.rows(&rig.db);
    rig.fence();
    let mut needlessly = Vec::new();
    for one in &mut set {
        let answer = one.client.query(&one.two_faced.text("INSERT INTO t VALUES (777)"));
        let what = format!("VIOLATION: behind {}", one.sql);
        assert_eq!(rig.rows(&rig.db), before, "{what}");
        if one.dangerous {
            assert!(is_fences(answer.code()), "{what}: {answer:?}");
        } else if answer.code() != 0 {
            assert!(is_fences(answer.code()), "{}: {answer:?}", one.sql);
            assert!(!one.plain, "refused for nothing: {}: {answer:?}", one.sql);
            needlessly.push(&one.sql);
        }
        assert_eq!(one.client.query("SELECT 5").ok().cell(), "5", "{}", one.sql);
    }
    println!("refused although harmless: {needlessly:#?}");
}

/// The control arm: what is believed to be a read passes, and lifts the guard by itself.
fn without_the_classifier_a_text_of_two_readings_writes(flavour: MyFlavour) {
    let rig = Rig::on(changing(flavour), &[("FENCEWIRE_REMOVE", "classifier")]);
    let mut clients = Vec::new();
    for (number, two_faced) in TWO_FACED.iter().enumerate() {
        let mut client = session(rig.proxy.port(), "boss", &rig.db);
        let mode = if number < 2 { two_faced.mode } else { "" };
        client.query(&format!("SET SESSION sql_mode = '{mode}'")).ok();
        clients.push((client, two_faced));
    }
    rig.fence();
    for (mut client, two_faced) in clients {
        let before = rig.rows(&rig.db);
        client.query(&two_faced.text("INSERT INTO t VALUES (777)")).ok();
        assert_ne!(rig.rows(&rig.db), before, "{}", two_faced.mode);
    }
}

// ---- what a routine leaves behind ----------------------------------------------------------

/// Each sets a mode or a character set in the middle of what it does, and the engine puts it back
/// behind it; but it leaves the bit in its status, and what it tells of a tracked variable, as the
/// routine had it.
const ROUTINES: &[&str] = &[
    "CREATE TABLE tr (n int)",
    "CREATE PROCEDURE p() SET sql_mode = 'MODE'",
    "CREATE PROCEDURE fails() BEGIN SET sql_mode = 'MODE'; SIGNAL SQLSTATE '45000'; END",
    "CREATE FUNCTION f() RETURNS int DETERMINISTIC BEGIN SET sql_mode = 'MODE'; RETURN 1; END",
    "CREATE FUNCTION charset_of() RETURNS int DETERMINISTIC \
         BEGIN SET character_set_client = utf8mb4; RETURN 1; END",
    "CREATE VIEW v AS SELECT f() AS n",
    "CREATE TRIGGER tri BEFORE INSERT ON tr FOR EACH ROW SET sql_mode = 'MODE'",
];

const RUNS: &[&str] = &[
    "CALL p()",
    "CALL fails()",
    "SELECT f()",
    "DO f()",
    "SET @a = f()",
    "SET @a = (SELECT n FROM v)",
    "SELECT * FROM v",
    "INSERT INTO tr VALUES (1)",
    "PREPARE s FROM 'SELECT f()'; EXECUTE s",
    "SELECT f(); SET @a = 1",
    "SELECT f(); SET GLOBAL max_connect_errors = 1000000, sql_mode = ''",
    "SELECT f(); SELECT nothing",
];

/// The text's own bytes: no character set is asked.
fn raw_query(client: &mut MyWire, text: &[u8]) -> u16 {
    client.command(&[b"\x03", text].concat());
    client.answer(&[]).unwrap().code()
}

fn a_mode_that_a_routine_leaves_in_the_status_is_not_believed(flavour: MyFlavour) {
    let rig = Rig::on(changing(flavour), &[]);
    let mut sessions = Vec::new();
    // Each text is harmless by the routine's mode, and several statements by the session's own.
    for (own, of_routine, two_faced) in [
        ("", "NO_BACKSLASH_ESCAPES", &TWO_FACED[2]),
        ("NO_BACKSLASH_ESCAPES", "", &TWO_FACED[0]),
        ("", "ANSI_QUOTES", &TWO_FACED[3]),
        ("ANSI_QUOTES", "", &TWO_FACED[1]),
    ] {
        let db = rig.cluster.fresh_db();
        let mut direct = session(rig.cluster.port(), "boss", &db);
        direct.query("CREATE TABLE t (n int)").ok();
        for routine in ROUTINES {
            direct.query(&routine.replace("MODE", of_routine)).ok();
        }
        for run in RUNS {
            let login = MyLogin::of("boss", &db).with(flag::MULTI_STATEMENTS | flag::SESSION_TRACK);
            let mut client = MyWire::login(rig.proxy.port(), &login).unwrap();
            client.query("SET session_track_system_variables = 'sql_mode'").ok();
            client.query(&format!("SET sql_mode = '{own}'")).ok();
            client.query(run);
            // Neither does an answer that has nothing to do with it make the bit true.
            client.query("SET @b = 1").ok();
            assert_eq!(client.query("SELECT @@sql_mode").ok().cell(), own, "{run}");
            client.query(&format!("USE {}", rig.db)).ok();
            sessions.push((run, own, client, two_faced));
        }
    }
    let before = rig.rows(&rig.db);
    let operation = rig.fence();
    for (run, own, client, two_faced) in &mut sessions {
        let answer = client.query(&two_faced.text("INSERT INTO t VALUES (777)"));
        let what = format!("VIOLATION: behind {run} in mode {own:?}");
        assert_eq!(rig.rows(&rig.db), before, "{what}");
        assert!(is_fences(answer.code()), "{what}: {answer:?}");
    }
    // Said anew, the mode is known again.
    let (_, _, client, _) = &mut sessions[0];
    client.query("SET sql_mode = ''").ok();
    client.query("SELECT '\\'; SELECT nothing; -- '").ok();
    rig.release(&operation);
    for (run, _, client, two_faced) in &mut sessions[1..] {
        let before = rig.rows(&rig.db);
        client.query(&two_faced.text("INSERT INTO t VALUES (777)")).ok();
        assert_ne!(rig.rows(&rig.db), before, "the control arm: behind {run} it is dangerous");
    }
}

fn a_character_set_that_a_routine_tells_of_is_not_believed(flavour: MyFlavour) {
    let rig = Rig::on(changing(flavour), &[]);
    let mut direct = session(rig.cluster.port(), "boss", &rig.other);
    for routine in ROUTINES {
        direct.query(&routine.replace("MODE", "")).ok();
    }
    let login = MyLogin::of("boss", &rig.other);
    let login = login.with(flag::MULTI_STATEMENTS | flag::SESSION_TRACK);
    let mut client = MyWire::login(rig.proxy.port(), &login).unwrap();
    client.query("SET session_track_system_variables = 'character_set_client'").ok();
    client.query("SET NAMES gbk").ok();
    client.query("SELECT charset_of()").ok();
    assert_eq!(client.query("SELECT @@character_set_client").ok().cell(), "gbk");
    client.query(&format!("USE {}", rig.db)).ok();
    let before = rig.rows(&rig.db);
    let operation = rig.fence();
    // One character of gbk, or a byte and an escape.
    let head = b"SELECT '\xbf\x5c'; SET SESSION TRANSACTION READ WRITE; ".as_slice();
    let text = [head, b"INSERT INTO t VALUES (777); -- '"].concat();
    let code = raw_query(&mut client, &text);
    assert_eq!(rig.rows(&rig.db), before, "VIOLATION: a text was read in another character set");
    assert!(is_fences(code), "{code}");
    rig.release(&operation);
    assert_eq!(raw_query(&mut client, &text), 0);
    assert_ne!(rig.rows(&rig.db), before, "the control arm: it is dangerous");
}

// ---- bodies --------------------------------------------------------------------------------

/// Definitions with a body, each of them one statement to the engine. `NAME` is a new name.
const BODIES: &[&str] = &[
    "CREATE PROCEDURE NAME() SELECT 1",
    "CREATE PROCEDURE NAME() BEGIN END",
    "CREATE PROCEDURE NAME() BEGIN SELECT 1; SELECT 2; END",
    "CREATE PROCEDURE NAME() BEGIN IF 1 THEN SELECT 1; ELSE SELECT 2; END IF; END",
    "CREATE PROCEDURE NAME() BEGIN CASE 1 WHEN 1 THEN SELECT 1; ELSE SELECT 2; END CASE; END",
    "CREATE PROCEDURE NAME() BEGIN SELECT CASE WHEN 1 THEN 2 END; BEGIN SELECT 1; END; END",
    "CREATE PROCEDURE NAME() a: BEGIN l: LOOP LEAVE l; END LOOP l; END a",
    "CREATE PROCEDURE NAME() BEGIN DECLARE i int DEFAULT 0; \
         WHILE i < 1 DO SET i = i + 1; END WHILE; REPEAT SET i = 2; UNTIL 1 END REPEAT; END",
    "CREATE PROCEDURE NAME() BEGIN SELECT ';END;' AS `begin`; END",
    "CREATE PROCEDURE NAME() BEGIN /* END; */ SELECT 1; -- END;\n END",
    "CREATE DEFINER = CURRENT_USER PROCEDURE NAME(IN a int) COMMENT 'begin' BEGIN SELECT a; END",
    "CREATE FUNCTION NAME() RETURNS int DETERMINISTIC BEGIN DECLARE b int; SET b = 1; \
         RETURN b; END",
    "CREATE TRIGGER NAME BEFORE INSERT ON t FOR EACH ROW BEGIN SET @a = 1; SET @b = 2; END",
    "CREATE EVENT NAME ON SCHEDULE EVERY 1 DAY DISABLE DO BEGIN SELECT 1; SELECT 2; END",
];

const MARIADB_BODIES: &[&str] = &[
    "CREATE OR REPLACE PROCEDURE NAME() BEGIN FOR i IN 1..2 DO SELECT i; END FOR; END",
    "BEGIN NOT ATOMIC SELECT 1; SELECT 2; END",
    "CREATE PROCEDURE NAME() BEGIN NOT ATOMIC SELECT 1; END",
];

/// Behind a body the session moves to the schema that is fenced later, or reads otherwise.
fn what_stands_behind_a_body_is_not_hidden_in_it(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let own = if flavour == MyFlavour::MariaDb { MARIADB_BODIES } else { &[] };
    let mut moved = Vec::new();
    for (number, body) in BODIES.iter().chain(own).enumerate() {
        for (kind, behind) in
            ["USE ", "DO 1; USE ", "PREPARE p FROM 'DO 1'; USE "].iter().enumerate()
        {
            let body = body.replace("NAME", &format!("b{number}_{kind}"));
            let text = format!("{body}; {behind}{}", rig.db);
            // Straight to the engine first, then dropped: whether it is a text at all.
            let mut oracle = rig.direct(&rig.other);
            oracle.query(&text);
            let at = oracle.query("SELECT DATABASE()").ok().cell();
            for what in ["PROCEDURE", "FUNCTION", "TRIGGER", "EVENT"] {
                drop(
                    rig.cluster
                        .try_sql(&rig.other, &format!("DROP {what} IF EXISTS b{number}_{kind}")),
                );
            }
            let mut client = rig.client(&rig.other);
            client.query(&text);
            moved.push((text, at, client));
        }
    }
    let everywhere = moved.iter().filter(|(_, at, _)| *at == rig.db).count();
    assert!(everywhere >= 3 * 12, "{everywhere} of {} moved", moved.len());
    let before = rig.rows(&rig.db);
    rig.fence();
    for (text, at, mut client) in moved {
        let answer = client.query("INSERT INTO t VALUES (777)");
        assert_eq!(rig.rows(&rig.db), before, "VIOLATION: behind {text}");
        if at == rig.db {
            assert!(is_fences(answer.code()), "behind {text}: {answer:?}");
        }
        assert_eq!(client.query("SELECT DATABASE()").ok().cell(), at, "{text}");
    }
    // What writes behind a body is seen as well, whatever the body is.
    let mut client = rig.client(&rig.db);
    for body in BODIES.iter().chain(own) {
        let text = format!("SELECT 1; {}; INSERT INTO t VALUES (777)", body.replace("NAME", "b"));
        assert!(is_fences(client.query(&text).code()), "{text}");
        assert_eq!(rig.rows(&rig.db), before, "VIOLATION: {text}");
    }
}

// ---- EXECUTE -------------------------------------------------------------------------------

fn of_sixteen_executes_in_a_text_it_is_known_what_they_do_and_of_seventeen_it_is_not(
    flavour: MyFlavour,
) {
    let rig = Rig::new(flavour);
    let mut client = rig.client(&rig.db);
    client.query("PREPARE r FROM 'SELECT 1'").ok();
    client.query("PREPARE w FROM 'INSERT INTO t VALUES (1)'").ok();
    let times = |count: usize, last: &str| {
        let mut all = vec!["EXECUTE r"; count - 1];
        all.push(last);
        all.join("; ")
    };
    let results = |client: &mut MyWire, text: &str| client.query(text).ok().results.len();
    for count in [16, 17, 40] {
        assert_eq!(results(&mut client, &times(count, "EXECUTE r")), count, "no fence is up");
    }
    client.query(&times(17, "EXECUTE w")).ok();
    // Behind what can't be proved nobody knows which names there are.
    client.query("PREPARE r FROM 'SELECT 1'").ok();
    client.query("PREPARE w FROM 'INSERT INTO t VALUES (1)'").ok();
    let before = rig.rows(&rig.db);
    let operation = rig.fence();
    assert_eq!(results(&mut client, "EXECUTE r"), 1);
    assert_eq!(client.query("EXECUTE w").code(), 9701);
    // Several are too many to be guarded; of sixteen it is still known what they do.
    for count in [2, 16, 17, 400] {
        assert_eq!(client.query(&times(count, "EXECUTE r")).code(), 9708, "{count}");
        let code = if count <= 16 { 9701 } else { 9708 };
        let answer = client.query(&times(count, "EXECUTE w"));
        assert_eq!(answer.code(), code, "{count}: {answer:?}");
        assert_eq!(rig.rows(&rig.db), before, "VIOLATION: {count} EXECUTEs");
    }
    // What was refused has changed nothing of what is known.
    assert_eq!(results(&mut client, "EXECUTE r"), 1);
    assert_eq!(client.query("SELECT 5").ok().cell(), "5");
    rig.release(&operation);
    client.query(&times(17, "EXECUTE w")).ok();
    assert_ne!(rig.rows(&rig.db), before);
}

// ---- a change of user ----------------------------------------------------------------------

fn a_change_of_user_onto_a_fenced_schema_and_back(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let mut before_the_fence = rig.client(&rig.other);
    change_user(&mut before_the_fence, &rig.db).unwrap();
    before_the_fence.query("INSERT INTO t VALUES (1)").ok();
    let mut leaves = rig.client(&rig.db);
    leaves.query("SELECT n FROM t").ok();
    let before = rig.rows(&rig.db);
    rig.fence();
    let mut comes = rig.client(&rig.other);
    comes.query("INSERT INTO t VALUES (1)").ok();
    change_user(&mut comes, &rig.db).unwrap();
    for client in [&mut before_the_fence, &mut comes] {
        assert_eq!(client.query("SELECT DATABASE()").ok().cell(), rig.db);
        for sql in ["INSERT INTO t VALUES (777)", "CREATE TABLE sneak (n int)", "DELETE FROM t"] {
            assert_eq!(client.query(sql).code(), 9701, "{sql}");
        }
        assert_eq!(rig.rows(&rig.db), before, "VIOLATION: behind a change of user");
    }
    // And away from it: the other schema isn't fenced.
    for mut client in [leaves, comes] {
        change_user(&mut client, &rig.other).unwrap();
        client.query("INSERT INTO t VALUES (2)").ok();
        let by_name = format!("INSERT INTO {}.t VALUES (777)", rig.db);
        assert_eq!(client.query(&by_name).code(), 9701);
    }
    assert_eq!(rig.cluster.sql(&rig.other, "SELECT COUNT(*) FROM t"), "3");
    assert_eq!(rig.rows(&rig.db), before, "VIOLATION: behind a change of user");
    // Without a schema it is nowhere; by its name the schema is as closed as before.
    let mut client = rig.client(&rig.db);
    change_user(&mut client, "").unwrap();
    let by_name = format!("INSERT INTO {}.t VALUES (777)", rig.db);
    assert_eq!(client.query(&by_name).code(), 9701);
    client.query(&format!("USE {}", rig.db)).ok();
    assert_eq!(client.query("INSERT INTO t VALUES (777)").code(), 9701);
}

/// The engine rolls it back, and says so with the login's OK.
fn a_change_of_user_ends_the_transaction_that_a_drain_waits_for(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let mut client = rig.client(&rig.db);
    client.query("BEGIN; INSERT INTO t VALUES (1)").ok();
    let before = rig.rows(&rig.db);
    std::thread::scope(|scope| {
        let fence = scope.spawn(|| rig.fence());
        let waits = poll(PATIENCE, || {
            let seen = rig.proxy.inspect(&rig.namespace());
            let blockers = seen.pointer("/drain/blockers")?.as_array()?.clone();
            blockers.iter().any(|one| one["class"] == "writer").then_some(())
        });
        assert!(waits.is_some(), "nobody waits for the transaction");
        assert!(!fence.is_finished());
        change_user(&mut client, &rig.other).unwrap();
        assert_eq!(client.welcome.status & status::IN_TRANS, 0);
        fence.join().unwrap();
    });
    assert_eq!(rig.rows(&rig.db), before, "VIOLATION: the transaction was committed");
    client.query("INSERT INTO t VALUES (1)").ok();
    // The same onto the fenced schema, from a transaction in the other one.
    client.query("BEGIN; INSERT INTO t VALUES (2)").ok();
    change_user(&mut client, &rig.db).unwrap();
    assert_eq!(client.query("INSERT INTO t VALUES (777)").code(), 9701);
    assert_eq!(client.query("BEGIN; INSERT INTO t VALUES (777); COMMIT").code(), 9701);
    assert_eq!(rig.cluster.sql(&rig.other, "SELECT n FROM t"), "1", "rolled back");
    assert_eq!(rig.rows(&rig.db), before, "VIOLATION: behind a change of user");
}

fn read_only(client: &mut MyWire, flavour: MyFlavour) -> String {
    client.query(&format!("SELECT @@session.{}", flavour.read_only_variable())).ok().cell()
}

fn a_change_of_user_takes_the_guard_along_and_leaves_none_behind(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let mut direct = rig.direct(&rig.db);
    direct
        .query(
            "CREATE FUNCTION f() RETURNS int MODIFIES SQL DATA RETURN (SELECT 1); \
             CREATE VIEW harmless AS SELECT f() AS n; DROP FUNCTION f; \
             CREATE FUNCTION f() RETURNS int MODIFIES SQL DATA \
             BEGIN INSERT INTO t VALUES (777); RETURN 1; END",
        )
        .ok();
    let before = rig.rows(&rig.db);
    rig.fence();
    let mut client = rig.client(&rig.db);
    client.query("SELECT n FROM t").ok();
    // Under the guard a view that writes is stopped; behind a change of user it must be up again.
    for schema in [&rig.db, &rig.other, &rig.db] {
        change_user(&mut client, schema).unwrap();
        let view = format!("SELECT * FROM {}.harmless", rig.db);
        let answer = client.query(&view);
        assert!(is_fences(answer.code()), "{answer:?}");
        assert_eq!(rig.rows(&rig.db), before, "VIOLATION: the guard was gone");
    }
    // And none of it is left where no fence is.
    change_user(&mut client, &rig.other).unwrap();
    assert_eq!(read_only(&mut client, flavour), "0");
    client.query("INSERT INTO t VALUES (1)").ok();
    client.query("BEGIN; INSERT INTO t VALUES (2); COMMIT").ok();
    assert_eq!(rig.cluster.sql(&rig.other, "SELECT COUNT(*) FROM t"), "2");
}

/// What the client had set for itself went with the change, and isn't put back behind the fence.
fn a_change_of_user_forgets_what_the_client_had_set(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let mut client = rig.client(&rig.db);
    client.query("SET SESSION TRANSACTION READ ONLY").ok();
    assert_eq!(read_only(&mut client, flavour), "1");
    change_user(&mut client, &rig.db).unwrap();
    let operation = rig.fence();
    client.query("SELECT n FROM t").ok();
    rig.release(&operation);
    assert_eq!(read_only(&mut client, flavour), "0");
    client.query("INSERT INTO t VALUES (1)").ok();
}

fn a_change_of_user_forgets_what_was_prepared(flavour: MyFlavour) {
    const UNKNOWN: u16 = 1243;
    let rig = Rig::new(flavour);
    let mut client = rig.client(&rig.other);
    let insert = client.prepare("INSERT INTO t VALUES (1)").unwrap().unwrap();
    client.query(&format!("PREPARE moves FROM 'INSERT INTO {}.t VALUES (777)'", rig.db)).ok();
    client.query("PREPARE rows_of FROM 'SELECT 1'").ok();
    change_user(&mut client, &rig.db).unwrap();
    client.command(&insert.execute(&[]));
    assert_eq!(client.answer(&[]).unwrap().code(), UNKNOWN, "no fence is up");
    assert_eq!(client.query("EXECUTE rows_of").code(), UNKNOWN);
    // Another statement under the number or the name of an earlier one.
    let again = client.prepare("INSERT INTO t VALUES (2)").unwrap().unwrap();
    client.query("PREPARE rows_of FROM 'INSERT INTO t VALUES (3)'").ok();
    let before = rig.rows(&rig.db);
    rig.fence();
    client.command(&again.execute(&[]));
    assert_eq!(client.answer(&[]).unwrap().code(), 9701);
    for sql in ["EXECUTE rows_of", "EXECUTE moves"] {
        let answer = client.query(sql);
        assert!(is_fences(answer.code()) || answer.code() == UNKNOWN, "{sql}: {answer:?}");
    }
    assert_eq!(rig.rows(&rig.db), before, "VIOLATION: by a name from before");
    // Prepared at the fenced schema, executed behind a change to the other one, and back again.
    let mut client = rig.client(&rig.db);
    let read = client.prepare("SELECT COUNT(*) FROM t").unwrap().unwrap();
    change_user(&mut client, &rig.other).unwrap();
    client.command(&read.execute(&[]));
    let answer = client.answer(&[]).unwrap();
    assert!(is_fences(answer.code()) || answer.code() == UNKNOWN, "{answer:?}");
    let write = client.prepare("INSERT INTO t VALUES (4)").unwrap().unwrap();
    client.command(&write.execute(&[]));
    client.answer(&[]).unwrap().ok();
    change_user(&mut client, &rig.db).unwrap();
    client.command(&write.execute(&[]));
    let answer = client.answer(&[]).unwrap();
    assert!(is_fences(answer.code()) || answer.code() == UNKNOWN, "{answer:?}");
    assert_eq!(rig.rows(&rig.db), before, "VIOLATION: by a number from before");
    assert_eq!(rig.cluster.sql(&rig.other, "SELECT n FROM t"), "4");
}

fn a_change_of_user_that_fails_moves_nobody(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let before = rig.rows(&rig.db);
    rig.fence();
    for (user, schema) in [("app", rig.db.as_str()), ("app", &rig.other), ("wire", "nowhere")] {
        let mut client = rig.client(&rig.other);
        client.query("PREPARE s FROM 'SELECT 1'").ok();
        let plugin = client.greeting.plugin.clone();
        client.command(&change_user_payload(user, schema, &plugin));
        let login = MyLogin { password: String::new(), ..MyLogin::of(user, schema) };
        let failed = client.authenticate(String::new(), Vec::new(), &login);
        assert!(failed.is_err(), "{user} came in to {schema}");
        // Whether the session goes on is the engine's to say; it writes to nothing that is fenced.
        for sql in ["INSERT INTO t VALUES (777)", &format!("INSERT INTO {}.t VALUES (7)", rig.db)] {
            drop(client.try_query(sql));
        }
        assert_eq!(rig.rows(&rig.db), before, "VIOLATION: behind a failed change of user");
    }
}

/// A step of a login may be 128 KiB long. The session is ended, and nobody else's.
fn a_step_of_a_login_that_is_too_long_ends_the_session_alone(flavour: MyFlavour) {
    const STEP_MAX: usize = 128 << 10;
    let rig = Rig::new(flavour);
    let mut witness = rig.client(&rig.other);
    for length in [STEP_MAX + 1, 4 << 20] {
        let mut client = rig.client(&rig.db);
        let thread = client.greeting.thread_id;
        client.query("BEGIN; INSERT INTO t VALUES (1)").ok();
        // A plugin that the account doesn't have: the engine asks for another one.
        client.command(&change_user_payload("app", &rig.db, "mysql_clear_password"));
        let asked = client.packet();
        assert!([0xFE, 1].contains(&asked.payload[0]), "{asked:?}");
        drop(client.try_send(&vec![7; length]));
        let over = poll(PATIENCE, || client.read().is_err().then_some(()));
        assert!(over.is_some(), "{length} bytes: the session goes on");
        let gone =
            format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {thread}");
        let gone = poll(PATIENCE, || (rig.cluster.sql("mysql", &gone) == "0").then_some(()));
        assert!(gone.is_some(), "{length} bytes: its thread stays on the engine");
        assert_eq!(witness.query("SELECT 5").ok().cell(), "5");
    }
    assert_eq!(rig.cluster.sql(&rig.db, "SELECT COUNT(*) FROM t"), "0", "rolled back");
    rig.fence();
}
