//! The SQL console for `mysql`, `mariadb` and their drivers: every command, the codes of refusals,
//! both password methods, and what a client may send that is no statement of the console's.
//!
//! The proxy stands before a real MariaDB or MySQL. `console_pg.rs` has what both consoles share.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod acceptance_mysql;
mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Output};
use std::sync::OnceLock;

use acceptance::{PATIENCE, metric};
use acceptance_mysql::{MySite, on_both};
use mysql_async::prelude::Queryable as _;
use support::my_cluster::client_program;
use support::my_wire::{MyLogin, flag};
use support::proxy::uuid;
use support::talk::installed;
use support::{Engine, MyCluster, MyFlavour, MyWire, Proxy, ProxyOptions, poll};

/// A proxy with a console, and where that listens.
struct Console {
    flavour: MyFlavour,
    proxy: Proxy,
    port: u16,
}

impl Console {
    fn shared(flavour: MyFlavour) -> &'static Self {
        static MARIADB: OnceLock<Console> = OnceLock::new();
        static MYSQL: OnceLock<Console> = OnceLock::new();
        let shared = match flavour {
            MyFlavour::MariaDb => &MARIADB,
            MyFlavour::MySql => &MYSQL,
        };
        shared.get_or_init(|| Self::start_without(flavour, ""))
    }

    /// Without a guard (`base/arm.rs`).
    fn start_without(flavour: MyFlavour, guard: &str) -> Self {
        let port = support::free_port();
        let proxy = Proxy::start_with(ProxyOptions {
            engines: vec![Engine::my_plain("old", MyCluster::shared(flavour))],
            admin: format!("mysql = \"127.0.0.1:{port}\"\n"),
            env: vec![("FENCEWIRE_REMOVE".to_owned(), guard.to_owned())],
            ..ProxyOptions::default()
        });
        Self { flavour, proxy, port }
    }

    fn site(&self) -> MySite<'_> {
        MySite::new(MyCluster::shared(self.flavour), &self.proxy)
    }

    /// A flavour's command line client with scripts' manners.
    fn client(&self, tools: MyFlavour, password: &str) -> Command {
        let mut client = Command::new(client_program(tools));
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"MYSQL") {
                client.env_remove(name);
            }
        }
        let plain = match tools {
            MyFlavour::MariaDb => "--skip-ssl",
            MyFlavour::MySql => "--ssl-mode=DISABLED",
        };
        client
            .args(["--no-defaults", "--protocol=TCP", "--host=127.0.0.1", "--user=fencewire"])
            .args([plain, "--batch", "--skip-column-names"])
            .arg(format!("--port={}", self.port))
            .env("MYSQL_PWD", password);
        client
    }

    fn says(&self, statement: &str) -> Output {
        let mut client = self.client(self.flavour, &self.proxy.admin_key());
        client.args(["-e", statement]).output().unwrap()
    }

    /// The rows of a statement that must succeed.
    #[track_caller]
    fn rows(&self, statement: &str) -> Vec<Vec<String>> {
        let output = self.says(statement);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{statement}: {err}");
        out.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    }

    /// The one row of a statement that must succeed.
    #[track_caller]
    fn row(&self, statement: &str) -> Vec<String> {
        let rows = self.rows(statement);
        assert_eq!(rows.len(), 1, "{statement}: {rows:?}");
        rows.into_iter().next().unwrap()
    }

    /// A statement that must fail, with this number and SQLSTATE.
    #[track_caller]
    fn refused(&self, statement: &str, code: &str, words: &[&str]) {
        let output = self.says(statement);
        let err = text(&output.stderr);
        assert!(!output.status.success(), "{statement}: {}", text(&output.stdout));
        assert!(err.contains(&format!("ERROR {code}")), "{statement}: {err}");
        for words in words {
            assert!(err.contains(words), "{statement}: {words} is not in {err}");
        }
    }

    fn login(&self, plugin: &str) -> MyLogin {
        MyLogin {
            password: self.proxy.admin_key(),
            plugin: plugin.to_owned(),
            ..MyLogin::of("anybody", "fencewire")
        }
    }

    fn wire(&self) -> MyWire {
        let login = MyWire::login(self.port, &self.login("").with(flag::DEPRECATE_EOF));
        login.unwrap_or_else(|failed| panic!("no login: {failed:?}"))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

on_both!(
    a_fence_goes_up_and_down_from_the_command_line,
    a_drain_is_a_row_and_its_replay_finds_the_end,
    a_capability_is_shown_once_and_a_release_beside_its_target_must_be_meant,
    every_refusal_has_its_number,
    both_password_methods_take_the_key_and_nothing_else,
    the_other_servers_client_works_as_well,
    what_is_no_statement_of_ours_gets_an_error_and_the_session_goes_on,
    garbage_ends_its_own_connection_only,
    drivers_prepare_execute_and_read_values,
    a_killed_wait_says_what_goes_on,
);

fn a_fence_goes_up_and_down_from_the_command_line(flavour: MyFlavour) {
    let console = Console::shared(flavour);
    let site = console.site();
    let (name, op) = (site.namespace(), uuid());
    let acquire = format!("FENCE ACQUIRE WRITE ON '{name}' OPERATION '{op}' DEADLINE 60s");
    let answer = console.row(&acquire);
    assert_eq!(answer[..4], ["APPLIED", &name, "SOURCE_WRITE_FENCED", "2"], "{answer:?}");
    let mut client = site.client();
    assert_eq!(client.query("INSERT INTO t VALUES (1)").code(), 9701);
    for (statement, state) in [
        (format!("FENCE SET READ ON '{name}' OPERATION '{op}' DEADLINE 60s"), "SOURCE_READ_FENCED"),
        (format!("FENCE CLEAR READ ON '{name}' OPERATION '{op}'"), "SOURCE_WRITE_FENCED"),
        (format!("FENCE RELEASE WRITE ON '{name}' OPERATION '{op}'"), "RELEASED"),
    ] {
        let answer = console.row(&statement);
        assert_eq!((answer[0].as_str(), answer[2].as_str()), ("APPLIED", state), "{answer:?}");
        assert_eq!(site.state(), state);
    }
    let log = std::fs::read_to_string(console.proxy.log_file()).unwrap();
    let events =
        log.lines().filter(|line| line.contains("namespace_fence_command") && line.contains(&op));
    assert_eq!(events.count(), 4, "{log}");
    let counted = "fencewire_admin_requests_total{route=\"console/mysql\",status=\"200\"}";
    assert!(metric(&console.proxy, counted) >= 4);
    assert!(!log.contains(&console.proxy.admin_key()), "the key was logged");
    let config = console.rows("SHOW CONFIG");
    assert!(!format!("{config:?}").contains(&console.proxy.admin_key()));
    assert!(console.rows("SHOW NAMESPACES").iter().any(|row| row[0] == name));
    assert!(console.rows("SHOW FENCES").iter().any(|row| row[0] == name && row[1] == "RELEASED"));
    assert!(console.rows("SHOW RECEIPTS VERBOSE").iter().filter(|row| row[1] == op).count() >= 4);
    assert!(console.rows("SHOW STATS").len() > 20 && console.rows("SHOW HELP").len() >= 22);
    let inspected = console.rows(&format!("INSPECT '{name}'"));
    assert!(inspected.iter().any(|row| row == &["fence.state", "RELEASED"]), "{inspected:?}");
}

fn a_drain_is_a_row_and_its_replay_finds_the_end(flavour: MyFlavour) {
    let console = Console::shared(flavour);
    let site = console.site();
    let (name, op, id) = (site.namespace(), uuid(), uuid());
    let mut writer = site.client();
    writer.query("BEGIN").ok();
    writer.query("INSERT INTO t VALUES (7)").ok();
    let acquire =
        format!("FENCE ACQUIRE WRITE ON '{name}' OPERATION '{op}' COMMAND '{id}' DEADLINE 0s");
    let answer = console.row(&acquire);
    assert_eq!((answer[0].as_str(), answer[2].as_str()), ("DRAINING", "SOURCE_DRAINING"));
    assert_eq!(answer[10], "1", "{answer:?}");
    assert!(answer[12].contains("SHOW DRAINS") && answer[12].contains(&id), "{answer:?}");
    assert!(
        console.rows("SHOW DRAINS VERBOSE").iter().any(|row| row[0] == name && row[10] == "writer")
    );
    writer.query("COMMIT").ok();
    let mut last = Vec::new();
    let applied = poll(PATIENCE, || {
        last = console.row(&acquire);
        (last[0] == "APPLIED").then_some(())
    });
    assert!(applied.is_some(), "{last:?}");
    assert_eq!((last[5].as_str(), last[6].as_str()), (id.as_str(), "1"), "{last:?}");
    console.row(&format!("FENCE RELEASE WRITE ON '{name}' OPERATION '{op}'"));
}

fn a_capability_is_shown_once_and_a_release_beside_its_target_must_be_meant(flavour: MyFlavour) {
    let console = Console::shared(flavour);
    let site = console.site();
    let (source, op) = (site.namespace(), uuid());
    let target = format!("old/t{}", uuid().replace('-', ""));
    let db = target.split_once('/').unwrap().1;
    let rights = format!("GRANT ALL ON `{db}`.* TO fencewire@'127.0.0.1'");
    MyCluster::shared(flavour).sql("mysql", &rights);
    let on = |words: &str, name: &str| format!("FENCE {words} ON '{name}' OPERATION '{op}'");
    assert_eq!(console.row(&on("ACQUIRE WRITE", &source))[0], "APPLIED");
    assert_eq!(console.row(&on("CREATE TARGET", &target))[0], "APPLIED");
    let given = console.row(&on("IMPORT CAPABILITY", &target));
    assert_eq!(given[1..], ["import", "1", "1"], "{given:?}");
    assert!(given[0].starts_with("fwc_") && given[0].len() == 47, "{given:?}");
    let live = console.rows("SHOW TARGETS");
    assert!(live.iter().any(|row| row[0] == target && row[7] == "import"), "{live:?}");
    let log = std::fs::read_to_string(console.proxy.log_file()).unwrap();
    assert!(!log.contains(&given[0]), "the secret was logged");
    let wrong = format!("{} REVISION 7", on("IMPORT CAPABILITY", &target));
    console.refused(&wrong, "9755 (ZF105)", &["FENCE_REVISION_MISMATCH"]);
    for words in ["SEAL IMPORT", "RECORD VALIDATION", "PUBLISH", "ENABLE WRITES"] {
        let more = if words == "RECORD VALIDATION" { " RESULT OK" } else { "" };
        let answer = console.row(&format!("{}{more}", on(words, &target)));
        assert_eq!(answer[0], "APPLIED", "{answer:?}");
    }
    let release = on("RELEASE WRITE", &source);
    console.refused(&release, "9759 (ZF109)", &["no command was sent", "BESIDE TARGET"]);
    assert_eq!(site.state(), "SOURCE_WRITE_FENCED");
    let answer = console.row(&format!("{release} BESIDE TARGET"));
    assert_eq!(answer[..1], ["APPLIED"], "{answer:?}");
    assert!(answer[11].contains("both take writes now"), "{answer:?}");
}

fn every_refusal_has_its_number(flavour: MyFlavour) {
    let console = Console::shared(flavour);
    let site = console.site();
    let (name, op, other, id) = (site.namespace(), uuid(), uuid(), uuid());
    let on = |words: &str, op: &str| format!("FENCE {words} ON '{name}' OPERATION '{op}'");
    let release = on("RELEASE WRITE", &op);
    console.refused(&release, "9756 (ZF106)", &["INVALID_FENCE_TRANSITION", "UNFENCED"]);
    let acquire = format!("{} COMMAND '{id}'", on("ACQUIRE WRITE", &op));
    assert_eq!(console.row(&acquire)[0], "APPLIED");
    let another = on("ACQUIRE WRITE", &other);
    console.refused(&another, "9754 (ZF104)", &["FENCE_OWNED_BY_ANOTHER_OPERATION", &op, "hint:"]);
    let stale = format!("{} EXPECT STATE RELEASED REVISION 9", on("SET READ", &op));
    console.refused(&stale, "9755 (ZF105)", &["FENCE_REVISION_MISMATCH"]);
    console.refused(&format!("{acquire} HOLD 1s"), "9757 (ZF107)", &["FENCE_COMMAND_CONFLICT"]);
    let adopt = format!(
        "{} FROM '{op}' APPROVERS 'Ada', 'Grace' INCIDENT 'I' REASON 'it\\'s gone'",
        on("ADOPT", &other)
    );
    console.refused(&adopt, "9759 (ZF109)", &["adoption_not_authorised"]);
    console.row(&release);
    let elsewhere = format!("{another} IDENTITY '1' DATABASE '2'");
    console.refused(&elsewhere, "9759 (ZF109)", &["namespace_identity_mismatch"]);
    console.refused("INSPECT 'old/never-made'", "1049 (3D000)", &["there is no database"]);
    console.refused("FENCE ACQUIRE READ", "1064 (42601)", &["expected WRITE", "character 15"]);
    console.refused("SELECT * FROM t", "1235 (0A000)", &["not a database"]);
    console.refused("SELECT @@datadir", "1193 (42704)", &["no setting"]);
    let long = format!("INSPECT '{}'", "x".repeat(10_000));
    console.refused(&long, "9759 (ZF109)", &["engine/database"]);

    for (words, more) in [
        ("CREATE TARGET", ""),
        ("SEAL IMPORT", ""),
        ("RECORD VALIDATION", "RESULT FAILED"),
        ("PUBLISH", ""),
        ("ENABLE WRITES", ""),
        ("ABORT", ""),
    ] {
        console.refused(&format!("{} {more}", on(words, &op)), "97", &["FENCE"]);
    }
}

fn both_password_methods_take_the_key_and_nothing_else(flavour: MyFlavour) {
    let console = Console::shared(flavour);
    let counted = "fencewire_admin_requests_total{route=\"console/mysql\",status=\"401\"}";
    let before = metric(&console.proxy, counted);
    let mut wrong = 0;
    for plugin in ["", "mysql_native_password", "caching_sha2_password"] {
        for capabilities in [0, flag::DEPRECATE_EOF, flag::PLUGIN_AUTH_LENENC | flag::CONNECT_ATTRS]
        {
            let login = console.login(plugin).with(capabilities);
            let mut wire = MyWire::login(console.port, &login)
                .unwrap_or_else(|failed| panic!("{plugin} {capabilities:x}: {failed:?}"));
            assert!(wire.query("SHOW VERSION").cell().starts_with("fencewire "));
            assert_eq!(wire.query("SHOW NOTHING").code(), 1235);
        }
        for password in ["", "wrong-key-of-some-length", &console.proxy.admin_key()[1..]] {
            let login = MyLogin { password: password.to_owned(), ..console.login(plugin) };
            let failed = MyWire::login(console.port, &login).err();
            let failed = format!("{:?}", failed.expect("a wrong key got in"));
            assert!(failed.contains("1045") && failed.contains("28000"), "{plugin}: {failed}");
            wrong += 1;
        }
    }
    let seen = || metric(&console.proxy, counted) - before;
    assert!(poll(PATIENCE, || (seen() == wrong).then_some(())).is_some(), "{}", seen());
    // Control arm: without the guard any password will do, and is seen to.
    let open = Console::start_without(flavour, "console-login");
    let login = MyLogin { password: "wrong-key-of-some-length".to_owned(), ..open.login("") };
    assert!(MyWire::login(open.port, &login).is_ok(), "a missing login isn't noticed");
    let output =
        console.client(flavour, "wrong-key-of-some-length").args(["-e", "SHOW HELP"]).output();
    let output = output.unwrap();
    assert!(text(&output.stderr).contains("ERROR 1045 (28000)"), "{}", text(&output.stderr));
}

fn the_other_servers_client_works_as_well(flavour: MyFlavour) {
    let console = Console::shared(flavour);
    let other = match flavour {
        MyFlavour::MariaDb => MyFlavour::MySql,
        MyFlavour::MySql => MyFlavour::MariaDb,
    };
    let mut client = console.client(other, &console.proxy.admin_key());
    // A database, which has the client ask for its tables unless told not to.
    let output = client.args(["fencewire", "-e", "SHOW VERSION; use x; SHOW VERSION"]).output();
    let output = output.unwrap();
    assert_eq!(text(&output.stdout).matches("fencewire ").count(), 2, "{output:?}");
}

fn what_is_no_statement_of_ours_gets_an_error_and_the_session_goes_on(flavour: MyFlavour) {
    const CHANGE_USER: u8 = 0x11;
    let console = Console::shared(flavour);
    let mut wire = console.wire();
    for text in [
        "SET NAMES utf8mb4",
        "select @@version_comment limit 1",
        "SELECT @@max_allowed_packet",
        "SELECT @@max_allowed_packet, @@wait_timeout",
        "SHOW VARIABLES LIKE 'sql_mode'",
        "SHOW WARNINGS",
        "BEGIN",
        "COMMIT",
        "USE `app`",
        "SELECT 1",
        "",
    ] {
        assert_eq!(wire.query(text).code(), 0, "{text}");
    }
    assert_eq!(wire.query("SELECT $$").code(), 1235);
    assert_eq!(wire.query("INSPECT ?").code(), 1064);
    let refused: [(&[u8], u16); 8] = [
        (b"\x03\xff\xfe", 1047),
        (b"\x16\xff\xfe", 1047),
        (&[0x0d], 1047),
        (&[0xff, 1, 2], 1047),
        (&[0x17, 9, 0, 0, 0, 0, 1, 0, 0, 0], 1047),
        (&[0x17, 9], 1047),
        (&[CHANGE_USER, b'x', 0], 1047),
        (&[], 1047),
    ];
    for (payload, number) in refused {
        wire.command(payload);
        let packet = wire.packet().payload;
        assert_eq!(packet[0], 0xff, "{payload:?}: {packet:?}");
        assert_eq!(u16::from_le_bytes([packet[1], packet[2]]), number, "{payload:?}");
    }
    // COM_PING, COM_RESET_CONNECTION, COM_STMT_RESET, COM_INIT_DB.
    for payload in [&[0x0e_u8][..], &[0x1f], &[0x1a, 1, 0, 0, 0], b"\x02app"] {
        wire.command(payload);
        assert_eq!(wire.packet().payload[0], 0, "{payload:?}");
    }
    // No answer: a piece of a parameter, and the end of a statement that isn't there.
    wire.command(&[0x18, 1, 0, 0, 0, 0, 0, b'x']);
    wire.command(&[0x19, 1, 0, 0, 0]);
    for _ in 0..300 {
        let Ok(Err(error)) = wire.prepare("SHOW HELP") else { continue };
        assert_eq!(error.code, 1461);
        break;
    }
    let Err(error) = wire.prepare("SHOW HELP").unwrap() else { panic!("no bound") };
    assert_eq!(error.code, 1461);
    assert!(wire.query("SHOW VERSION").cell().starts_with("fencewire "));
    let long = format!("INSPECT '{}'", "x".repeat(70_000));
    assert_eq!(wire.query(&long).code(), 1064);
    let longer = format!("INSPECT '{}'", "x".repeat(200_000));
    assert_eq!(wire.query(&longer).code(), 1047);
    assert!(wire.is_over(), "where the next command begins isn't known");
}

fn garbage_ends_its_own_connection_only(flavour: MyFlavour) {
    let console = Console::shared(flavour);
    let site = console.site();
    let fence = format!("FENCE ACQUIRE WRITE ON '{}' OPERATION '{}'", site.namespace(), uuid());
    let mut query = u32::try_from(fence.len() + 1).unwrap().to_le_bytes()[..3].to_vec();
    query.extend_from_slice(&[0, 3]);
    query.extend_from_slice(fence.as_bytes());
    let garbage = [
        vec![0xff; 64],
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        // A statement in place of a login, and behind one that is too short.
        query.clone(),
        [vec![4, 0, 0, 1, 0, 2, 0, 0], query].concat(),
        vec![0, 0, 0, 1],
    ];
    for bytes in garbage {
        let mut stream = TcpStream::connect(("127.0.0.1", console.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // Either fails where the other side has closed already.
        let _sent = stream.write_all(&bytes);
        let _ended = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("it stays open: {error}"),
        }
        assert_eq!(site.state(), "UNFENCED");
    }
    // Behind a login.
    let mut wire = console.wire();
    wire.send_raw(&[0xff, 0xff, 0xff, 7, 1, 2, 3]);
    assert_eq!(wire.packet().payload[0], 0xff);
    assert!(console.wire().query("SHOW VERSION").cell().starts_with("fencewire "));
}

fn drivers_prepare_execute_and_read_values(flavour: MyFlavour) {
    let console = Console::shared(flavour);
    let site = console.site();
    let mut session = site.client();
    session.query("SELECT 1").ok();
    let (name, op) = (site.namespace(), uuid());
    let url = format!(
        "mysql://anybody:{}@127.0.0.1:{}/fencewire",
        console.proxy.admin_key(),
        console.port
    );
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let pool = mysql_async::Pool::new(url.as_str());
        let mut client = pool.get_conn().await.unwrap();
        let sessions: Vec<mysql_async::Row> = client.exec("SHOW SESSIONS", ()).await.unwrap();
        let mine = sessions.iter().find(|row| row.get::<String, _>("namespace").unwrap() == name);
        let mine = mine.unwrap();
        assert!(mine.get::<i64, _>("session").unwrap() > 0);
        assert_eq!(mine.get::<Option<i64>, _>("held_ms").unwrap(), None);
        let acquire = format!("FENCE ACQUIRE WRITE ON '{name}' OPERATION '{op}' DEADLINE 60s");
        let row: mysql_async::Row = client.exec_first(&acquire, ()).await.unwrap().unwrap();
        assert_eq!(row.get::<String, _>("outcome").unwrap(), "APPLIED");
        assert_eq!(row.get::<u64, _>("revision").unwrap(), 2);
        let error = client.query_drop("FENCE PUBLISH").await.unwrap_err();
        let mysql_async::Error::Server(error) = error else { panic!("{error}") };
        assert_eq!((error.code, error.state.as_str()), (1064, "42601"));
        drop(client);
        // A connection that comes back from the pool is reset first.
        let mut client = pool.get_conn().await.unwrap();
        let version: Option<String> = client.query_first("SHOW VERSION").await.unwrap();
        assert!(version.unwrap().starts_with("fencewire "));
        drop(client);
        pool.disconnect().await.unwrap();
    });
    console.row(&format!("FENCE RELEASE WRITE ON '{name}' OPERATION '{op}'"));

    let script = "import sys, pymysql\n\
        c = pymysql.connect(host='127.0.0.1', port=int(sys.argv[1]), user='ops', \
        password=sys.argv[2], database='fencewire')\n\
        cur = c.cursor()\n\
        cur.execute('SHOW VERSION')\n\
        print(cur.fetchone()[0])\n\
        try:\n    cur.execute('INSPECT %s', (\"old/it's\",))\n\
        except pymysql.Error as e:\n    print(e.args[0])\n\
        c.commit()\n\
        print(cur.execute('SHOW HELP') > 20)\n";
    let python = Command::new(installed("python/bin/python"))
        .args(["-c", script, &console.port.to_string(), &console.proxy.admin_key()])
        .output()
        .unwrap();
    let said = text(&python.stdout);
    assert!(said.starts_with("fencewire ") && said.ends_with("1049\nTrue\n"), "{python:?}");
}

fn a_killed_wait_says_what_goes_on(flavour: MyFlavour) {
    let console = Console::shared(flavour);
    let site = console.site();
    let (name, op) = (site.namespace(), uuid());
    let mut writer = site.client();
    writer.query("BEGIN").ok();
    writer.query("INSERT INTO t VALUES (7)").ok();
    let mut waiting = console.wire();
    let number = waiting.query("SELECT CONNECTION_ID()").cell();
    let acquire = format!("FENCE ACQUIRE WRITE ON '{name}' OPERATION '{op}' DEADLINE 1h");
    waiting.begin_query(&acquire).unwrap();
    let drains = || !site.inspect()["drain"]["command_id"].is_null();
    assert!(poll(PATIENCE, || drains().then_some(())).is_some(), "no drain");
    let id = site.inspect()["drain"]["command_id"].as_str().unwrap().to_owned();
    assert_eq!(console.wire().query(&format!("KILL QUERY {number}")).code(), 0);
    let told = waiting.packet().payload;
    let words = text(&told);
    assert_eq!((told[0], u16::from_le_bytes([told[1], told[2]])), (0xff, 1317), "{words}");
    assert!(words.contains(&id) && words.contains("goes on"), "{words}");
    assert_eq!(site.state(), "SOURCE_DRAINING");
    writer.query("COMMIT").ok();
    let fenced = || site.state() == "SOURCE_WRITE_FENCED";
    assert!(poll(PATIENCE, || fenced().then_some(())).is_some(), "{}", site.state());
    assert_eq!(console.wire().query("KILL QUERY 999999").code(), 1193);
    console.row(&format!("FENCE RELEASE WRITE ON '{name}' OPERATION '{op}'"));
}
