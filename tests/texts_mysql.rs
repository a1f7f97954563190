//! Texts that MariaDB or MySQL reads otherwise than they look, under a write fence, end to end.
//!
//! Names that an engine takes for another one, statements that hide in what looks like the body of
//! one, names in another character set: each would write to a fenced schema, or leave its session
//! thought to be elsewhere. Nothing may change there. `holes_mysql.rs` has the same for what isn't
//! in a text. What one server alone can be made to do is tried on both.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::Read as _;

use serde_json::json;
use support::my_wire::{MyLogin, flag};
use support::proxy::uuid;
use support::{Engine, MyCluster, MyFlavour, MyOptions, MyWire, Proxy, ProxyOptions, on_both};

on_both!(
    a_name_that_the_engine_takes_for_another_is_not_known,
    a_name_in_another_character_set_is_not_known,
    no_statement_hides_in_what_looks_like_a_body,
    a_block_may_reach_any_schema,
    a_name_that_runs_under_other_settings_may_reach_any_schema,
    a_temporary_table_hides_no_change_of_the_session,
    a_setting_that_the_engine_takes_for_another_is_not_known,
    a_schema_in_another_character_set_is_not_where_the_session_is,
    a_character_that_no_name_keeps_is_another_schema,
    a_schema_named_like_an_option_is_fenced,
    a_text_that_is_read_two_ways_is_prepared_as_the_stricter,
    a_setting_beside_one_that_is_not_known_hides_nothing,
    what_runs_while_a_text_is_prepared_writes_nothing,
    what_lists_other_schemas_writes_nothing,
    a_drop_of_another_schema_leaves_the_session_where_it_is,
    a_failing_procedure_of_another_schema_leaves_the_session_where_it_is,
    a_statement_that_is_prepared_anew_writes_nothing,
    a_refused_write_holds_up_no_other_fence,
    a_failed_setting_leaves_no_session_read_only,
    a_refusal_by_the_guard_in_an_open_schema_has_the_fences_code,
    a_row_that_was_cut_has_no_error_in_it,
    names_of_any_length_cost_nothing,
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
        Self::fencing(flavour, MyCluster::shared(flavour).fresh_db())
    }

    fn fencing(flavour: MyFlavour, db: String) -> Self {
        Self::on(MyCluster::shared(flavour), db)
    }
}

impl<'a> Rig<'a> {
    /// With `engine_lock` off nothing but the proxy keeps anybody from writing.
    fn on(cluster: &'a MyCluster, db: String) -> Self {
        let other = cluster.fresh_db();
        let mut direct = MyWire::connect(cluster.port(), "wire", &db);
        for sql in [
            "DROP TABLE IF EXISTS t",
            "CREATE TABLE t (n int)",
            "DROP PROCEDURE IF EXISTS writes",
            "CREATE PROCEDURE writes() \
                 BEGIN SET SESSION TRANSACTION READ WRITE; COMMIT; CREATE TABLE sneak (n int); END",
        ] {
            direct.query(sql).ok();
        }
        let proxy = Proxy::start_with(ProxyOptions {
            engines: vec![Engine::my_plain("old", cluster)],
            extra: "[fence]\nengine_lock = \"off\"\n".to_owned(),
            ..ProxyOptions::default()
        });
        Self { cluster, proxy, db, other }
    }

    fn client(&self, database: &str) -> MyWire {
        let login = MyLogin::of("wire", database).with(flag::MULTI_STATEMENTS);
        MyWire::login(self.proxy.port(), &login).unwrap()
    }

    /// Raises the write fence and waits for its acknowledgement.
    fn fence(&self, schema: &str) -> String {
        let policy = json!({ "deadline_ms": 30_000, "on_deadline": "fail" });
        let operation = uuid();
        // In a path a question mark ends it.
        let namespace = format!("old/{}", schema.replace('?', "%3F"));
        let (status, body) = self.proxy.acquire(&namespace, &operation, &uuid(), &policy);
        assert_eq!(status, 200, "{body:#}");
        operation
    }

    fn unfence(&self, schema: &str, operation: &str) {
        let (status, body) = self.proxy.release(&format!("old/{schema}"), operation, &uuid());
        assert_eq!(status, 200, "{body:#}");
    }

    /// Everything in the fenced schema. Asked over the wire: the name may be beyond ASCII.
    fn everything(&self) -> String {
        let mut direct = MyWire::connect(self.cluster.port(), "wire", &self.db);
        let tables = direct.query("SHOW TABLES").ok();
        format!("{:?} {:?}", tables.rows(), direct.query("SELECT n FROM t ORDER BY n").ok().rows())
    }

    /// Under the fence none of these changes anything in the fenced schema.
    fn stays_out(&self, client: &mut MyWire, texts: &[&str]) {
        let before = self.everything();
        self.fence(&self.db);
        for sql in texts {
            // An error, no session any more, or done in the schema that is open.
            drop(client.try_query(sql));
            assert_eq!(self.everything(), before, "VIOLATION: behind {sql}");
        }
        // The fence stands: the control arm.
        let mut honest = self.client(&self.db);
        assert_eq!(honest.query("INSERT INTO t VALUES (1)").code(), 9701);
    }
}

/// A statement that writes where the session is read-only.
const fn writer(flavour: MyFlavour) -> &'static str {
    match flavour {
        MyFlavour::MariaDb => "set statement tx_read_only=0 for create table sneak select 1 as z",
        MyFlavour::MySql => "call writes()",
    }
}

fn a_name_that_the_engine_takes_for_another_is_not_known(flavour: MyFlavour) {
    for (harmless, writes, executed) in [
        ("`é`", "`è`", "`é`"),
        ("é", "è", "é"),
        ("e", "`é`", "e"),
        ("e", "`e `", "e"),
        ("`É`", "`é`", "`É`"),
        ("e", "`\u{ff25}`", "e"),
    ] {
        let rig = Rig::new(flavour);
        let mut client = rig.client(&rig.db);
        drop(client.query(&format!("PREPARE {harmless} FROM 'select 1'")));
        drop(client.query(&format!("PREPARE {writes} FROM '{}'", writer(flavour))));
        rig.stays_out(&mut client, &[&format!("EXECUTE {executed}")]);
    }
}

fn a_name_in_another_character_set_is_not_known(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let mut client = rig.client(&rig.db);
    drop(client.query(&format!("PREPARE `Ã©` FROM '{}'", writer(flavour))));
    drop(client.query("PREPARE `é` FROM 'select 1'"));
    client.query("SET NAMES latin1").ok();
    rig.stays_out(&mut client, &["EXECUTE `é`"]);
}

fn no_statement_hides_in_what_looks_like_a_body(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let db = &rig.db;
    let inside = format!("select 1 as begin; use {db}; create table sneak select 1 as z; ");
    let texts = [
        format!("create table event {inside} select 1 as end"),
        format!("create or replace table event {inside} select 1 as end"),
        format!("create temporary table function {inside} select 1 as end"),
        format!("create table trigger {inside} select 1 as end"),
        format!("create definer = current_user view event as {inside} select 1 as end"),
        format!("create definer = event sql security invoker view v as {inside} select 1 as end"),
        format!("create procedure p() {inside} select 1 as end"),
        format!("create procedure q() begin {inside} end; select 1 as end"),
        format!("alter table event comment = 'x', {inside} select 1 as end"),
    ];
    let mut client = rig.client(&rig.other);
    rig.stays_out(&mut client, &texts.each_ref().map(String::as_str));
}

fn a_block_may_reach_any_schema(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let mut name = rig.db.clone();
    let tail = name.split_off(2);
    let texts = [
        format!(
            "begin not atomic \
             execute immediate concat('create table {name}','{tail}.sneak select 1 as z'); end"
        ),
        format!("begin not atomic use {}; create table sneak (n int); end", rig.db),
        format!("begin not atomic drop database {}; end", rig.db),
    ];
    let mut client = rig.client(&rig.other);
    rig.stays_out(&mut client, &texts.each_ref().map(String::as_str));
}

fn a_name_that_runs_under_other_settings_may_reach_any_schema(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let mut client = rig.client(&rig.other);
    let prepare = format!("PREPARE s FROM 'create table {}.sneak select 1 as z'", rig.db);
    client.query(&prepare).ok();
    let texts =
        ["SET STATEMENT sql_mode='' FOR EXECUTE s", "SET STATEMENT `sql_mödé`='' FOR EXECUTE s"];
    rig.stays_out(&mut client, &texts);
}

/// Hides a writer behind a quote whose end moves with the session's modes.
const MOVED_QUOTE: &str =
    r#"select 1 as "\"; set session transaction read write; create table sneak (z int) -- ""#;

fn a_temporary_table_hides_no_change_of_the_session(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let mut client = rig.client(&rig.db);
    client.query("set sql_mode=''").ok();
    drop(client.query(
        "create temporary table event select 1 as begin; set sql_mode='ANSI_QUOTES'; \
         select 1 as end",
    ));
    rig.stays_out(&mut client, &[MOVED_QUOTE]);
}

fn a_setting_that_the_engine_takes_for_another_is_not_known(flavour: MyFlavour) {
    for setting in ["`sql_mödé`", "sql_mödé", "session `sql_modé`", "@@session.`sql_mödé`"] {
        let rig = Rig::new(flavour);
        let mut client = rig.client(&rig.db);
        client.query("set sql_mode=''").ok();
        drop(client.query(&format!("set {setting}='ANSI_QUOTES'")));
        rig.stays_out(&mut client, &["set session transaction_réad_only=0", MOVED_QUOTE]);
    }
}

fn a_schema_in_another_character_set_is_not_where_the_session_is(flavour: MyFlavour) {
    let cluster = MyCluster::shared(flavour);
    drop(cluster.try_sql("mysql", "CREATE DATABASE `Ã©`"));
    cluster.sql("mysql", "GRANT ALL ON `Ã©`.* TO wire@'127.0.0.1'");
    let rig = Rig::fencing(flavour, "Ã©".to_owned());
    let mut login = MyLogin::of("wire", "").with(flag::MULTI_STATEMENTS);
    let mut by_use = MyWire::login(rig.proxy.port(), &login).unwrap();
    by_use.query("SET NAMES latin1").ok();
    login.charset = 8;
    let mut by_command = MyWire::login(rig.proxy.port(), &login).unwrap();
    let before = rig.everything();
    rig.fence(&rig.db);
    drop(by_use.query("USE `é`"));
    by_command.command("\u{2}é".as_bytes());
    drop(by_command.answer(&[]));
    for client in [&mut by_use, &mut by_command] {
        assert_eq!(client.query("SELECT 1").ok().cell(), "1");
        drop(client.query("CREATE TABLE sneak (n int)"));
        drop(client.query("INSERT INTO t VALUES (777)"));
        assert_eq!(rig.everything(), before, "VIOLATION");
    }
    login.database = "é".to_owned();
    let refused = MyWire::login(rig.proxy.port(), &login).err().unwrap();
    assert!(format!("{refused:?}").contains("1049"), "{refused:?}");
    // By the set that it is written in the name is the right one.
    login.charset = 45;
    drop(MyWire::login(rig.proxy.port(), &login));
    login.database = "Ã©".to_owned();
    let mut honest = MyWire::login(rig.proxy.port(), &login).unwrap();
    assert_eq!(honest.query("INSERT INTO t VALUES (1)").code(), 9701);
}

/// An engine keeps no character of four bytes in a name, and makes it a question mark, if anything.
fn a_character_that_no_name_keeps_is_another_schema(flavour: MyFlavour) {
    let cluster = MyCluster::shared(flavour);
    drop(cluster.try_sql("mysql", "CREATE DATABASE `?`"));
    cluster.sql("mysql", "GRANT ALL ON `?`.* TO wire@'127.0.0.1'");
    let rig = Rig::fencing(flavour, "?".to_owned());
    let mut client = rig.client(&rig.other);
    rig.stays_out(
        &mut client,
        &["CREATE TABLE `😀`.sneak (n int)", "INSERT INTO `😀`.t VALUES (777)"],
    );
    drop(client.query("USE `😀`"));
    drop(client.query("CREATE TABLE sneak (n int)"));
    for name in ["😀", "?\0x"] {
        client.command(format!("\u{2}{name}").as_bytes());
        drop(client.answer(&[]));
    }
    drop(client.query("INSERT INTO t VALUES (777)"));
    if let Ok(mut client) = MyWire::login(rig.proxy.port(), &MyLogin::of("wire", "😀")) {
        drop(client.query("INSERT INTO t VALUES (777)"));
    }
    let everything = rig.everything();
    assert!(
        !everything.contains("sneak") && !everything.contains("777"),
        "VIOLATION: {everything}"
    );
}

fn a_schema_named_like_an_option_is_fenced(flavour: MyFlavour) {
    for name in ["comment", "charset", "encryption"] {
        let cluster = MyCluster::shared(flavour);
        drop(cluster.try_sql("mysql", &format!("CREATE DATABASE `{name}` CHARACTER SET utf8mb4")));
        cluster.sql("mysql", &format!("GRANT ALL ON `{name}`.* TO wire@'127.0.0.1'"));
        let rig = Rig::fencing(flavour, name.to_owned());
        rig.fence(name);
        let mut client = rig.client(&rig.other);
        let code = client.query(&format!("ALTER DATABASE {name} CHARSET latin1")).code();
        assert!((9701..=9708).contains(&code), "{name}: {code}");
        // The default one is open.
        client.query("ALTER DATABASE CHARACTER SET utf8mb4").ok();
    }
}

/// By ANSI_QUOTES all behind COMMENT is one name; without, the table moves to the fenced schema.
fn a_text_that_is_read_two_ways_is_prepared_as_the_stricter(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let (other, db) = (&rig.other, &rig.db);
    let mut client = rig.client(other);
    client.query("CREATE TABLE zz (n int)").ok();
    let inner = format!(r#"alter table {other}.zz comment="\\"", rename to {db}.zz2 -- ""#);
    rig.stays_out(&mut client, &[&format!("PREPARE s FROM '{inner}'"), "EXECUTE s"]);
}

fn a_setting_beside_one_that_is_not_known_hides_nothing(flavour: MyFlavour) {
    for set in [
        "SET sql_mode = '', `sql_mödé` = 'ANSI_QUOTES'",
        "SET `sql_mödé` = 'ANSI_QUOTES', sql_mode = ''",
    ] {
        let rig = Rig::new(flavour);
        let mut client = rig.client(&rig.db);
        drop(client.query(set));
        let text = "select 1 as \"\\\"; set session transaction read write; commit; \
                    create table sneak (z int) -- \"";
        rig.stays_out(&mut client, &[text]);
    }
}

/// Lists a table's fields (COM_FIELD_LIST).
fn list_fields(client: &mut MyWire, table: &str) {
    client.command(&[b"\x04", table.as_bytes(), b"\0"].concat());
    while !matches!(client.read_piece().unwrap().1[0], 0xfe | 0xff) {}
}

/// MariaDB evaluates a deterministic function while it resolves ROUND's second argument.
fn what_runs_while_a_text_is_prepared_writes_nothing(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let mut direct = MyWire::connect(rig.cluster.port(), "wire", &rig.db);
    for sql in [
        "CREATE FUNCTION qf() RETURNS int DETERMINISTIC MODIFIES SQL DATA \
             BEGIN INSERT INTO t VALUES (9); RETURN 1; END",
        "CREATE VIEW qv AS SELECT ROUND(1.55, qf()) AS n",
    ] {
        direct.query(sql).ok();
    }
    let tries = |home: &str| {
        let mut client = rig.client(home);
        let db = &rig.db;
        for text in [format!("SELECT * FROM {db}.qv"), format!("SELECT ROUND(1.55, {db}.qf())")] {
            drop(client.prepare(&text).unwrap());
            drop(client.query(&format!("PREPARE s FROM '{text}'")));
            drop(client.query(&format!("SET @s = '{text}'")));
            drop(client.query("PREPARE s FROM @s"));
        }
        if home == rig.db {
            list_fields(&mut client, "qv");
        }
    };
    let before = rig.everything();
    tries(&rig.db);
    let written = rig.everything();
    // Else this shows nothing.
    assert!(flavour == MyFlavour::MySql || before != written);
    rig.fence(&rig.db);
    for home in [&rig.db, &rig.other] {
        tries(home);
        assert_eq!(rig.everything(), written, "VIOLATION: from {home}");
    }
}

fn what_lists_other_schemas_writes_nothing(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let mut direct = MyWire::connect(rig.cluster.port(), "wire", &rig.db);
    for sql in [
        "CREATE FUNCTION qf() RETURNS int DETERMINISTIC MODIFIES SQL DATA \
             BEGIN INSERT INTO t VALUES (9); RETURN 1; END",
        "CREATE VIEW qv AS SELECT ROUND(1.55, qf()) AS n",
    ] {
        direct.query(sql).ok();
    }
    let texts = [
        "SELECT COUNT(*) FROM information_schema.columns".to_owned(),
        format!("SELECT * FROM information_schema.views WHERE table_schema = '{}'", rig.db),
        "SET @n = (SELECT COUNT(*) FROM `INFORMATION_SCHEMA`.columns)".to_owned(),
        format!("INSERT INTO {}.t SELECT COUNT(*) FROM information_schema.columns", rig.other),
        "USE information_schema".to_owned(),
        "SELECT COUNT(*) FROM columns".to_owned(),
    ];
    let mut client = rig.client(&rig.other);
    direct.query(&format!("CREATE TABLE {}.t (n int)", rig.other)).ok();
    let before = rig.everything();
    client.query(&texts[0]).ok();
    // Else this shows nothing.
    assert!(flavour == MyFlavour::MySql || before != rig.everything());
    rig.stays_out(&mut client, &texts.each_ref().map(String::as_str));
    let mut nowhere = rig.client("");
    let before = rig.everything();
    drop(nowhere.query(&texts[0]));
    assert_eq!(rig.everything(), before, "VIOLATION");
}

fn a_drop_of_another_schema_leaves_the_session_where_it_is(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    for more in [0, flag::SESSION_TRACK] {
        let login = MyLogin::of("wire", &rig.db).with(more);
        let mut client = MyWire::login(rig.proxy.port(), &login).unwrap();
        client.query(&format!("DROP DATABASE {}", rig.cluster.fresh_db())).ok();
        let operation = rig.fence(&rig.db);
        let before = rig.everything();
        assert_eq!(client.query("CREATE TABLE sneak SELECT 1 AS z").code(), 9701, "VIOLATION");
        assert_eq!(rig.everything(), before, "VIOLATION");
        rig.unfence(&rig.db, &operation);
    }
}

fn a_failing_procedure_of_another_schema_leaves_the_session_where_it_is(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let mut direct = MyWire::connect(rig.cluster.port(), "wire", &rig.other);
    let fails = "CREATE PROCEDURE fails() BEGIN SELECT 1; SIGNAL SQLSTATE '45000'; END";
    direct.query(fails).ok();
    let login = MyLogin::of("wire", &rig.db).with(flag::SESSION_TRACK | flag::DEPRECATE_EOF);
    let mut client = MyWire::login(rig.proxy.port(), &login).unwrap();
    assert_eq!(client.query(&format!("CALL {}.fails()", rig.other)).code(), 1644);
    rig.stays_out(&mut client, &["CREATE TABLE sneak SELECT 1 AS z", "INSERT INTO t VALUES (7)"]);
}

fn a_statement_that_is_prepared_anew_writes_nothing(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let (db, other) = (&rig.db, &rig.other);
    let mut direct = MyWire::connect(rig.cluster.port(), "wire", other);
    direct.query("CREATE TABLE o (n int)").ok();
    direct.query("INSERT INTO o VALUES (1)").ok();
    direct.query(&format!("INSERT INTO {db}.t VALUES (1)")).ok();
    let mut client = rig.client(other);
    client.query("SET sql_mode = ''").ok();
    let text = format!(
        r"update o join (select '\' as c) q join {db}.t set {db}.t.n = 9 -- ' as c) q set o.n = 1"
    );
    let prepared = client.prepare(&text).unwrap().unwrap();
    client.query("SET sql_mode = 'NO_BACKSLASH_ESCAPES'").ok();
    let before = rig.everything();
    rig.fence(db);
    direct.query("ALTER TABLE o ADD COLUMN m int").ok();
    client.command(&prepared.execute(&[]));
    let answer = client.answer(&[]).unwrap();
    assert_eq!(rig.everything(), before, "VIOLATION: {answer:?}");
}

fn a_refused_write_holds_up_no_other_fence(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    rig.fence(&rig.db);
    let mut client = rig.client(&rig.other);
    client.query("BEGIN").ok();
    client.query("SELECT 1").ok();
    assert_eq!(client.query(&format!("INSERT INTO {}.t VALUES (1)", rig.db)).code(), 9701);
    // The transaction has written nothing, and nothing runs in it.
    rig.fence(&rig.other);
    client.query("COMMIT").ok();
}

fn a_failed_setting_leaves_no_session_read_only(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let mut client = rig.client(&rig.db);
    let operation = rig.fence(&rig.db);
    client.query("SELECT 1").ok();
    assert_eq!(client.query("SET SESSION TRANSACTION READ ONLY foo").code(), 1064);
    client.query("SELECT 2").ok();
    rig.unfence(&rig.db, &operation);
    client.query("INSERT INTO t VALUES (1)").ok();
    // One that worked stays.
    let operation = rig.fence(&rig.db);
    client.query("SELECT 1").ok();
    client.query("SET SESSION TRANSACTION READ ONLY").ok();
    client.query("SELECT 2").ok();
    rig.unfence(&rig.db, &operation);
    assert_eq!(client.query("INSERT INTO t VALUES (1)").code(), 1792);
}

fn a_refusal_by_the_guard_in_an_open_schema_has_the_fences_code(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let mut client = rig.client(&rig.other);
    client.query("CREATE TABLE o (n int)").ok();
    client.query("SET autocommit = 0").ok();
    let operation = rig.fence(&rig.db);
    client.query(&format!("SELECT * FROM {}.t", rig.db)).ok();
    let refused = client.query("INSERT INTO o VALUES (1)");
    assert_eq!(refused.code(), 9701, "{refused:?}");
    // It names the schema that is fenced.
    assert!(format!("{refused:?}").contains(&rig.db), "{refused:?}");
    client.query("COMMIT").ok();
    client.query("INSERT INTO o VALUES (2)").ok();
    client.query("COMMIT").ok();
    rig.unfence(&rig.db, &operation);
    assert_eq!(client.query("SELECT n FROM o").ok().cell(), "2");
}

fn a_row_that_was_cut_has_no_error_in_it(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let mut client = rig.client(&rig.db);
    client.query("BEGIN").ok();
    client.query("INSERT INTO t VALUES (1)").ok();
    let thread = client.query("SELECT CONNECTION_ID()").ok().cell();
    // Longer than what sockets take while nobody reads: the engine stands in the middle of it.
    client.begin_query("SELECT REPEAT('v', 15000000)").unwrap();
    let column = (0..3).map(|_| client.packet()).last().unwrap();
    assert_eq!(column.payload[0], 0xFE, "the end of the columns");
    rig.cluster.sql("mysql", &format!("KILL {thread}"));
    let mut bytes = Vec::new();
    // The close may come as a reset.
    drop(client.socket().read_to_end(&mut bytes));
    assert!(bytes.len() < 15_000_000, "the row came whole");
    // Behind the packet's header and the value's length.
    let row = bytes.split_off(8);
    assert!(row.iter().all(|byte| *byte == b'v'), "something else in the row");
}

fn names_of_any_length_cost_nothing(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let mut client = rig.client(&rig.db);
    client.query("SELECT 1").ok();
    let before = rig.proxy.resident_kib();
    let long = "x".repeat(900_000);
    for n in 0..60 {
        drop(client.query(&format!("select 1 from `{n}{long}`.t")));
        drop(client.query(&format!("prepare `{n}{long}` from 'x'; select 1")));
    }
    let more = rig.proxy.resident_kib().saturating_sub(before);
    assert!(more < 40_000, "{more} KiB are kept");
}

/// MySQL takes this setting only where a server is made.
#[test]
fn a_schema_in_another_spelling_is_the_same_where_the_engine_says_so() {
    let settings = vec![("lower_case_table_names".into(), "1".into())];
    let options = MyOptions { settings, ..MyOptions::default() };
    let cluster = MyCluster::start(MyFlavour::MariaDb, options);
    let rig = Rig::on(&cluster, cluster.fresh_db());
    let mut by_login = rig.client(&rig.db.to_uppercase());
    rig.stays_out(&mut by_login, &["INSERT INTO t VALUES (777)", "CREATE TABLE sneak (n int)"]);
    let mut by_use = rig.client(&rig.other);
    by_use.query(&format!("USE {}", rig.db.to_uppercase())).ok();
    assert_eq!(by_use.query("INSERT INTO t VALUES (777)").code(), 9701);
    assert_eq!(by_use.query("SELECT 1").ok().cell(), "1");
}
