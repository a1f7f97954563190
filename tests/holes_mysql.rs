//! Ways around a write fence that a hostile reader found on MariaDB and MySQL, end to end.
//!
//! Each brings a session out of step with its engine, or to another gate than it is thought to be
//! at, while the gate is open, and then tries to write under the fence. Nothing may change. What
//! one server alone can be made to do is tried on both.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::json;
use support::my_wire::{MyError, MyFailed, MyLogin, flag, packets};
use support::proxy::uuid;
use support::{Engine, MyCluster, MyFlavour, MyOptions, MyWire, Proxy, ProxyOptions, on_both};

on_both!(
    commands_behind_a_file_that_was_given_up_do_not_pass,
    a_file_is_read_to_its_end_by_an_engine_that_fails_before,
    a_login_whose_proofs_have_no_length_is_refused,
    a_name_that_is_not_known_moves_no_session_around_the_fence,
    two_names_in_one_text_move_no_session_around_the_fence,
    a_procedure_moves_no_session_around_the_fence,
    a_name_prepared_nobody_knows_where_writes_nothing_under_the_fence,
    a_session_of_another_schema_with_tables_locked_for_reading_holds_up_no_drain,
    what_an_engine_runs_at_a_login_writes_nothing_under_the_fence,
    control_arm_a_login_text_that_nobody_judges_writes_under_the_fence,
    an_answer_to_a_command_without_one_ends_the_session,
);

struct Rig {
    cluster: &'static MyCluster,
    proxy: Proxy,
    /// The schema that is fenced.
    db: String,
    /// Another one of the same engine.
    other: String,
}

impl Rig {
    /// With `engine_lock` off nothing but the proxy keeps anybody from writing.
    fn new(flavour: MyFlavour) -> Self {
        Self::on(MyCluster::shared(flavour), &[])
    }

    fn on(cluster: &'static MyCluster, env: &[(&str, &str)]) -> Self {
        let (db, other) = (cluster.fresh_db(), cluster.fresh_db());
        cluster.sql(&db, "CREATE TABLE t (n int)");
        let proxy = Proxy::start_with(ProxyOptions {
            engines: vec![Engine::my_plain("old", cluster)],
            extra: "[fence]\nengine_lock = \"off\"\n".to_owned(),
            env: env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            ..ProxyOptions::default()
        });
        Self { cluster, proxy, db, other }
    }

    fn client(&self, database: &str) -> MyWire {
        let login = MyLogin::of("wire", database);
        let login = login.with(flag::LOCAL_FILES | flag::MULTI_STATEMENTS);
        MyWire::login(self.proxy.port(), &login).unwrap()
    }

    /// Raises the write fence and waits for its acknowledgement; the operation that owns it.
    fn fence(&self) -> String {
        let policy = json!({ "deadline_ms": 60_000, "on_deadline": "fail" });
        let namespace = format!("old/{}", self.db);
        let operation = uuid();
        let (status, body) = self.proxy.acquire(&namespace, &operation, &uuid(), &policy);
        assert_eq!(status, 200, "{body:#}");
        operation
    }

    /// Everything in the fenced schema.
    fn everything(&self) -> String {
        self.cluster.sql(&self.db, "SELECT n FROM t ORDER BY n; SHOW TABLES")
    }

    /// Under the fence this session changes nothing in the fenced schema.
    fn stays_out(&self, client: &mut MyWire) {
        let before = self.everything();
        self.fence();
        for sql in ["INSERT INTO t VALUES (777)", "CREATE TABLE sneak (n int)", "DELETE FROM t"] {
            // An error, no session any more, or done in the schema that is open.
            drop(client.try_query(sql));
        }
        assert_eq!(self.everything(), before);
        // The fence stands: the control arm.
        let mut honest = self.client(&self.db);
        assert_eq!(honest.query("INSERT INTO t VALUES (1)").code(), 9701);
    }
}

/// Begins to load a file, up to the engine's request for it.
fn asked_for_a_file(client: &mut MyWire) {
    client.begin_query("LOAD DATA LOCAL INFILE 'x' INTO TABLE t").unwrap();
    assert_eq!(client.packet().payload.first(), Some(&0xFB));
}

fn commands_behind_a_file_that_was_given_up_do_not_pass(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let mut client = rig.client(&rig.db);
    asked_for_a_file(&mut client);
    // A packet with a wrong number, which reads as the header of another one.
    client.send_raw(&[4, 0, 0, 99, 1, 0, 0, 99]);
    rig.stays_out(&mut client);
    // The same with a command hidden in it.
    let rig = Rig::new(flavour);
    for junk in 0_u8..4 {
        let mut client = rig.client(&rig.db);
        asked_for_a_file(&mut client);
        let hidden = b"\x03INSERT INTO t VALUES (4242)";
        let mut bytes = vec![64, 0, 0, 99];
        bytes.extend([1, 0, 0, 99].repeat(usize::from(junk)));
        bytes.extend([u8::try_from(hidden.len()).unwrap(), 0, 0, 0]);
        bytes.extend(hidden);
        client.send_raw(&bytes);
        assert!(client.read().is_err() || client.is_over());
    }
    assert!(!rig.everything().contains("4242"));
}

/// What the mend of the above rests on: an honest client's session goes on.
fn a_file_is_read_to_its_end_by_an_engine_that_fails_before(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let fails = "CREATE TRIGGER fails BEFORE INSERT ON t FOR EACH ROW SIGNAL SQLSTATE '45000'";
    MyWire::connect(rig.cluster.port(), "wire", &rig.db).query(fails).ok();
    let mut client = rig.client(&rig.db);
    let lines = b"5\n".repeat(100_000);
    for kill in [false, true] {
        asked_for_a_file(&mut client);
        client.send(&lines);
        if kill {
            rig.cluster.sql("mysql", &format!("KILL QUERY {}", client.greeting.thread_id));
        }
        client.send(&lines);
        client.send(&[]);
        let answer = client.answer(&[]).unwrap();
        assert!([1644, 1317].contains(&answer.code()), "{answer:?}");
        assert_eq!(client.query("SELECT 5").ok().cell(), "5");
    }
}

fn a_login_whose_proofs_have_no_length_is_refused(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let mut login = MyLogin::of("wire", &rig.db);
    login.capabilities &= !flag::SECURE_CONNECTION;
    let refused = MyWire::login(rig.proxy.port(), &login).err().unwrap();
    assert!(format!("{refused:?}").contains("1043"), "{refused:?}");
}

fn a_name_that_is_not_known_moves_no_session_around_the_fence(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let mut client = rig.client(&rig.other);
    // MySQL doesn't prepare a USE.
    drop(client.query(&format!("PREPARE s FROM 'USE {}'; DO 1", rig.db)));
    drop(client.query("EXECUTE s"));
    rig.stays_out(&mut client);
}

fn two_names_in_one_text_move_no_session_around_the_fence(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let mut client = rig.client(&rig.other);
    drop(client.query(&format!("PREPARE s FROM 'USE {}'", rig.db)));
    client.query("PREPARE b FROM 'DO 1'").ok();
    drop(client.query("EXECUTE s; EXECUTE b"));
    rig.stays_out(&mut client);
}

fn a_procedure_moves_no_session_around_the_fence(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let body = format!("BEGIN PREPARE z FROM 'USE {}'; EXECUTE z; END", rig.db);
    let mut direct = MyWire::connect(rig.cluster.port(), "wire", &rig.other);
    direct.query(&format!("CREATE PROCEDURE moves() {body}")).ok();
    let mut client = rig.client(&rig.other);
    let called = client.query("CALL moves()");
    assert_eq!(called.error.is_none(), flavour == MyFlavour::MariaDb, "{called:?}");
    rig.stays_out(&mut client);
}

/// Prepared where the default schema isn't known, it writes to what was the default one then.
fn a_name_prepared_nobody_knows_where_writes_nothing_under_the_fence(flavour: MyFlavour) {
    let rig = Rig::new(flavour);
    let mut client = rig.client(&rig.db);
    drop(client.query("PREPARE b FROM 'DO 1'; EXECUTE b"));
    client.query("PREPARE s FROM 'INSERT INTO t VALUES (777)'").ok();
    client.query(&format!("USE {}", rig.other)).ok();
    let before = rig.everything();
    rig.fence();
    let executed = client.query("EXECUTE s");
    assert_eq!(rig.everything(), before, "VIOLATION: {executed:?}");
    assert_eq!(executed.code(), 9701);
    // Prepared where it is known, it is the other schema's, which is open.
    rig.cluster.sql(&rig.other, "CREATE TABLE t (n int)");
    client.query("PREPARE s FROM 'INSERT INTO t VALUES (777)'").ok();
    client.query("EXECUTE s").ok();
}

/// It was called one around the proxy, and the drain never ended.
fn a_session_of_another_schema_with_tables_locked_for_reading_holds_up_no_drain(
    flavour: MyFlavour,
) {
    let rig = Rig::new(flavour);
    let mut client = rig.client(&rig.other);
    client.query(&format!("LOCK TABLES {}.t READ", rig.db)).ok();
    let policy = json!({ "deadline_ms": 15_000, "on_deadline": "fail" });
    let namespace = format!("old/{}", rig.db);
    let (status, body) = rig.proxy.acquire(&namespace, &uuid(), &uuid(), &policy);
    assert_eq!(status, 200, "{body:#}");
    assert_eq!(client.query(&format!("SELECT count(*) FROM {}.t", rig.db)).ok().cell(), "0");
    client.query("UNLOCK TABLES").ok();
    let write = format!("INSERT INTO {}.t VALUES (1)", rig.db);
    assert_eq!(client.query(&write).code(), 9701);
}

/// A rig of its own server, whose `init_connect` writes to the schema that is fenced; what else is
/// in the environment of its proxy.
fn greeting(flavour: MyFlavour, env: &[(&str, &str)]) -> (Rig, String) {
    let cluster: &'static MyCluster =
        Box::leak(Box::new(MyCluster::start(flavour, MyOptions::default())));
    let rig = Rig::on(cluster, env);
    let writes = format!("INSERT INTO {}.t VALUES (7)", rig.db);
    rig.greets(&writes);
    (rig, writes)
}

impl Rig {
    /// The server runs this at each login from now on.
    fn greets(&self, text: &str) {
        self.cluster.sql("mysql", &format!("SET GLOBAL init_connect = \"{text}\""));
    }

    /// What a login to a schema is refused with; `None` when it is let in and answered.
    #[track_caller]
    fn knock(&self, database: &str) -> Option<(u16, String, String)> {
        match MyWire::login(self.proxy.port(), &MyLogin::of("wire", database)) {
            Ok(mut client) => {
                // The text has run by then.
                assert_eq!(client.query("SELECT 5").ok().cell(), "5");
                None
            }
            Err(MyFailed::Refused(error)) => Some((error.code, error.state, error.message)),
            Err(MyFailed::Closed(error)) => panic!("closed without a word: {error}"),
        }
    }
}

/// Nothing can guard it: it runs in front of a session's first command.
fn what_an_engine_runs_at_a_login_writes_nothing_under_the_fence(flavour: MyFlavour) {
    let (rig, writes) = greeting(flavour, &[]);
    let (db, other) = (rig.db.clone(), rig.other.clone());
    rig.cluster.sql(&other, "CREATE TABLE t (n int)");
    assert_eq!(rig.knock(&db), None);
    assert_eq!(rig.everything(), "7\nt", "the server itself doesn't greet");
    let mut inside = rig.client(&db);
    let before = rig.everything();
    let operation = rig.fence();
    for home in [&db, &other, ""] {
        let (code, state, words) = rig.knock(home).expect("VIOLATION: let in");
        assert_eq!((code, state.as_str()), (9701, "ZF001"), "{home}");
        assert!(words.contains("init_connect") && words.contains(&db), "{words}");
    }
    // Who was in reads on.
    assert_eq!(inside.query("SELECT count(*) FROM t").ok().cell(), "2");
    // Ordinary ones go on, and so does one that writes elsewhere, in sessions of elsewhere.
    for (text, homes) in [
        ("SET NAMES utf8mb4, @who = CURRENT_USER()", [&db, &other]),
        ("", [&db, &other]),
        (&*format!("INSERT INTO {other}.t VALUES (8)"), [&other, &other]),
    ] {
        rig.greets(text);
        for home in homes {
            assert_eq!(rig.knock(home), None, "{text}");
        }
    }
    assert_eq!(rig.cluster.sql(&other, "SELECT count(*) FROM t WHERE n = 8"), "2");
    rig.greets("EXECUTE nobody");
    assert!(rig.knock(&other).is_some(), "it may be anything");
    assert_eq!(rig.everything(), before, "VIOLATION");
    // Behind the fence it is the server's own affair again.
    rig.greets(&writes);
    let namespace = format!("old/{db}");
    let (status, body) = rig.proxy.release(&namespace, &operation, &uuid());
    assert_eq!(status, 200, "{body:#}");
    assert_eq!(rig.knock(&db), None);
    assert_ne!(rig.everything(), before);
}

fn control_arm_a_login_text_that_nobody_judges_writes_under_the_fence(flavour: MyFlavour) {
    let (rig, _) = greeting(flavour, &[("FENCEWIRE_REMOVE", "login-text")]);
    let before = rig.everything();
    rig.fence();
    assert_eq!(rig.knock(&rig.db), None);
    assert_ne!(rig.everything(), before, "the guard isn't missed");
}

/// MariaDB answers a piece of a parameter where the password has expired, MySQL a command that is
/// too short; each later answer would be taken for another command's.
fn an_answer_to_a_command_without_one_ends_the_session(flavour: MyFlavour) {
    const EXPIRED_PASSWORDS: u32 = 1 << 22;
    let rig = Rig::new(flavour);
    rig.cluster.sql(
        "mysql",
        "CREATE USER IF NOT EXISTS expired IDENTIFIED BY 'expired'; \
         ALTER USER expired PASSWORD EXPIRE",
    );
    let login = MyLogin::of("expired", "").with(EXPIRED_PASSWORDS);
    let mut client = MyWire::login(rig.proxy.port(), &login).unwrap();
    let piece = b"\x18\x01\0\0\0\0\0abc";
    let mut both = packets(piece, &mut 0);
    both.extend(packets(b"\x03SET @a = 1", &mut 0));
    client.send_raw(&both);
    assert!(client.is_over());
    for short in [&b"\x19\x01\0"[..], b"\x18\x01\0\0\0\0", b"\x1a\x01"] {
        let mut client = rig.client(&rig.db);
        client.command(short);
        // MySQL says farewell first (1158).
        let mut told = Vec::new();
        while let Ok(packet) = client.read() {
            told.push(MyError::parse(&packet.payload).code);
        }
        assert!(told.contains(&1835), "{told:?}");
    }
}
