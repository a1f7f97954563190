//! The SQL console for `psql` and PostgreSQL's drivers: every command, every way to be refused, and
//! what a client may send that is no statement of the console's.
//!
//! The proxy stands before a real PostgreSQL; what the console says is compared with what the HTTP
//! API says of the same fence.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

use acceptance::{PATIENCE, Site, metric};
use support::proxy::uuid;
use support::talk::installed;
use support::{Engine, PgCluster, Proxy, ProxyOptions, poll};
use tokio_postgres::{NoTls, SimpleQueryMessage};

const ADOPTION_KEY: &str = "the-second-key-of-the-console";

/// A proxy with a console, and where that listens.
struct Console {
    proxy: Proxy,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Console {
    fn start() -> Self {
        Self::start_without("")
    }

    /// Without a guard (`base/arm.rs`).
    fn start_without(guard: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("adoption.key");
        std::fs::write(&file, ADOPTION_KEY).unwrap();
        let port = support::free_port();
        let proxy = Proxy::start_with(ProxyOptions {
            engines: vec![Engine::plain("old", PgCluster::shared())],
            admin: format!(
                "postgres = \"127.0.0.1:{port}\"\nadoption_key_file = \"{}\"\n",
                file.display()
            ),
            env: vec![("FENCEWIRE_REMOVE".to_owned(), guard.to_owned())],
            ..ProxyOptions::default()
        });
        Self { proxy, port, _folder: folder }
    }

    fn shared() -> &'static Self {
        static SHARED: OnceLock<Console> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    fn site(&self) -> Site<'_> {
        Site::new(PgCluster::shared(), &self.proxy)
    }

    /// psql with scripts' manners.
    fn psql(&self, password: &str) -> Command {
        let mut psql = Command::new(PgCluster::shared().program("psql"));
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"PG") {
                psql.env_remove(name);
            }
        }
        psql.args(["-X", "-A", "-t", "-F", "|", "-v", "VERBOSITY=verbose", "-h", "127.0.0.1"])
            .args(["-p", &self.port.to_string(), "-U", "fencewire", "-d", "fencewire"])
            .env("PGPASSWORD", password)
            .env("PGCONNECT_TIMEOUT", "30");
        psql
    }

    fn says(&self, statement: &str) -> Output {
        let mut psql = self.psql(&self.proxy.admin_key());
        psql.args(["-c", statement]).output().unwrap()
    }

    /// The rows of a statement that must succeed.
    #[track_caller]
    fn rows(&self, statement: &str) -> Vec<Vec<String>> {
        let output = self.says(statement);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{statement}: {err}");
        out.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect()
    }

    /// The one row of a statement that must succeed.
    #[track_caller]
    fn row(&self, statement: &str) -> Vec<String> {
        let rows = self.rows(statement);
        assert_eq!(rows.len(), 1, "{statement}: {rows:?}");
        rows.into_iter().next().unwrap()
    }

    /// The error of a statement that must fail, with its SQLSTATE in front.
    #[track_caller]
    fn error(&self, statement: &str) -> String {
        let output = self.says(statement);
        let err = text(&output.stderr);
        assert!(!output.status.success(), "{statement}: {}", text(&output.stdout));
        err.split_once("ERROR:  ").unwrap_or_else(|| panic!("{statement}: {err}")).1.to_owned()
    }

    #[track_caller]
    fn refused(&self, statement: &str, sqlstate: &str, words: &[&str]) {
        let error = self.error(statement);
        assert!(error.starts_with(sqlstate), "{statement}: {error}");
        for words in words {
            assert!(error.contains(words), "{statement}: {words} is not in {error}");
        }
    }

    async fn connect(&self) -> tokio_postgres::Client {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(self.port).user("anybody").dbname("fencewire");
        config.password(self.proxy.admin_key());
        let (client, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[test]
fn a_fence_goes_up_and_down_from_psql_as_it_does_over_http() {
    let console = Console::shared();
    let site = console.site();
    let (name, op) = (site.namespace(), uuid());
    let acquire = format!("FENCE ACQUIRE WRITE ON '{name}' OPERATION '{op}' DEADLINE 60s");
    let answer = console.row(&acquire);
    assert_eq!(answer[0], "APPLIED", "{answer:?}");
    assert_eq!(answer[2..4], ["SOURCE_WRITE_FENCED", "2"], "{answer:?}");
    let seen = site.inspect();
    assert_eq!(seen["fence"]["frozen_boundary"]["value"], answer[9], "{answer:?}");
    assert_eq!(seen["fence"]["operation_id"], op);
    let mut client = site.client();
    assert_eq!(client.query("INSERT INTO t VALUES (1)").code().unwrap(), "ZF001");

    for (statement, state) in [
        (format!("FENCE SET READ ON '{name}' OPERATION '{op}' DEADLINE 60s"), "SOURCE_READ_FENCED"),
        (format!("FENCE CLEAR READ ON '{name}' OPERATION '{op}'"), "SOURCE_WRITE_FENCED"),
        (format!("FENCE RELEASE WRITE ON '{name}' OPERATION '{op}'"), "RELEASED"),
    ] {
        let answer = console.row(&statement);
        assert_eq!((answer[0].as_str(), answer[2].as_str()), ("APPLIED", state), "{answer:?}");
        assert_eq!(site.state(), state);
    }
    client.query("INSERT INTO t VALUES (2)").ok();
    let again = console.row(&format!("FENCE RELEASE WRITE ON '{name}' OPERATION '{op}'"));
    assert_eq!(again[0], "ALREADY_APPLIED", "{again:?}");

    // What the console did is in the same audit trail and the same numbers.
    let log = std::fs::read_to_string(console.proxy.log_file()).unwrap();
    let events =
        log.lines().filter(|line| line.contains("namespace_fence_command") && line.contains(&op));
    assert_eq!(events.count(), 5, "{log}");
    let counted = "fencewire_admin_requests_total{route=\"console/postgres\",status=\"200\"}";
    assert!(metric(&console.proxy, counted) >= 5);
    assert!(!log.contains(&console.proxy.admin_key()), "the key was logged");
}

#[test]
fn a_drain_is_a_row_and_its_replay_finds_the_end() {
    let console = Console::shared();
    let site = console.site();
    let (name, op, id) = (site.namespace(), uuid(), uuid());
    let mut writer = site.client();
    writer.query("BEGIN; INSERT INTO t VALUES (7)").ok();
    let acquire =
        format!("FENCE ACQUIRE WRITE ON '{name}' OPERATION '{op}' COMMAND '{id}' DEADLINE 0s");
    let answer = console.row(&acquire);
    assert_eq!((answer[0].as_str(), answer[2].as_str()), ("DRAINING", "SOURCE_DRAINING"));
    assert_eq!((answer[5].as_str(), answer[10].as_str()), (id.as_str(), "1"), "{answer:?}");
    assert!(answer[12].contains("SHOW DRAINS") && answer[12].contains(&id), "{answer:?}");
    let pid = writer.backend_pid().to_string();
    let drains = console.rows("SHOW DRAINS VERBOSE");
    let mine = drains.iter().find(|row| row[0] == name).unwrap();
    let short = console.rows("SHOW DRAINS");
    let short = short.iter().find(|row| row[0] == name).unwrap();
    assert_eq!((&short[4], short[5].as_str(), short.len()), (&pid, "writer", 8), "{short:?}");
    assert_eq!((&mine[9], mine[10].as_str()), (&pid, "writer"), "{mine:?}");
    let fences = console.rows("SHOW FENCES VERBOSE");
    let mine = fences.iter().find(|row| row[0] == name).unwrap();
    assert_eq!((mine[1].as_str(), mine[8].as_str()), ("SOURCE_DRAINING", "1"), "{mine:?}");

    // And the other ways on, whole as well.
    let written = format!("ON '{name}' OPERATION '{op}'");
    let force = format!("FENCE ACQUIRE WRITE {written} DEADLINE 0ms FORCE ROLLBACK; ");
    assert!(answer[12].contains(&force), "{answer:?}");
    assert!(answer[12].contains(&format!("FENCE RELEASE WRITE {written}; ")), "{answer:?}");

    writer.query("COMMIT").ok();
    // The hint is the whole statement to send again.
    let replay = answer[12].split_once("the same command again: ").unwrap().1;
    let mut last = Vec::new();
    let applied = poll(PATIENCE, || {
        last = console.row(replay);
        (last[0] == "APPLIED").then_some(())
    });
    assert!(applied.is_some(), "{last:?}");
    assert_eq!((last[5].as_str(), last[6].as_str()), (id.as_str(), "t"), "{last:?}");
    // Without what it expected, as a person would type it: the receipt says it.
    let again = console.row(&acquire);
    assert_eq!((again[0].as_str(), again[6].as_str()), ("APPLIED", "t"), "{again:?}");
    let receipts = console.rows(&format!("SHOW RECEIPTS FOR '{name}' VERBOSE"));
    let mine = receipts.iter().find(|row| row[2] == id).unwrap();
    assert_eq!((mine[3].as_str(), mine[4].as_str()), ("AcquireSourceWriteFence", "APPLIED"));
    assert!(console.rows("SHOW RECEIPTS VERBOSE").iter().any(|row| row[2] == id));
    site.unfence(&op);
}

#[test]
fn every_refusal_has_its_code() {
    let console = Console::shared();
    let site = console.site();
    let (name, op, other) = (site.namespace(), uuid(), uuid());
    let id = uuid();
    let release = format!("FENCE RELEASE WRITE ON '{name}' OPERATION '{op}'");
    console.refused(&release, "ZF106", &["INVALID_FENCE_TRANSITION", &name, "UNFENCED"]);
    let acquire = format!("FENCE ACQUIRE WRITE ON '{name}' OPERATION '{op}' COMMAND '{id}'");
    assert_eq!(console.row(&acquire)[0], "APPLIED");
    console.refused(
        &format!("FENCE ACQUIRE WRITE ON '{name}' OPERATION '{other}'"),
        "ZF104",
        &["FENCE_OWNED_BY_ANOTHER_OPERATION", &op, "HINT:"],
    );
    console.refused(
        &format!("FENCE SET READ ON '{name}' OPERATION '{op}' EXPECT STATE RELEASED REVISION 9"),
        "ZF105",
        &["FENCE_REVISION_MISMATCH", "revision 2"],
    );
    console.refused(
        &format!("FENCE ACQUIRE WRITE ON '{name}' OPERATION '{op}' COMMAND '{id}' HOLD 1s"),
        "ZF107",
        &["FENCE_COMMAND_CONFLICT"],
    );
    console.refused(
        &format!(
            "FENCE ACQUIRE WRITE ON '{name}' OPERATION '{other}' EXPECT STATE UNFENCED \
             REVISION 0 IDENTITY '1' DATABASE '2'"
        ),
        "ZF104",
        &[],
    );
    site.unfence(&op);
    console.refused(
        &format!("FENCE ACQUIRE WRITE ON '{name}' OPERATION '{other}' IDENTITY '1' DATABASE '2'"),
        "ZF109",
        &["FENCE_PRECONDITION_FAILED", "namespace_identity_mismatch"],
    );
    console.refused(&format!("FENCE PUBLISH ON '{name}' OPERATION 'me'"), "ZF109", &["UUID"]);
    console.refused("INSPECT 'old/never-made'", "3D000", &["there is no database"]);
    console.refused(
        &format!("FENCE RELEASE WRITE ON 'nowhere/app' OPERATION '{op}'"),
        "3D000",
        &["no engine \"nowhere\" is configured"],
    );
}

/// Asks the console for the first capability of a target, and writes into the target with it.
fn fills(console: &Console, name: &str, op: &str) {
    let wanted = format!("FENCE IMPORT CAPABILITY ON '{name}' OPERATION '{op}'");
    let given = console.row(&wanted);
    assert_eq!(given[1..], ["import", "1", "1"], "{given:?}");
    let secret = &given[0];
    assert!(secret.starts_with("fwc_") && secret.len() == 47, "{given:?}");
    let db = name.split_once('/').unwrap().1;
    PgCluster::shared().sql("postgres", &format!("ALTER DATABASE \"{db}\" OWNER TO app"));
    let mut psql = console.psql("");
    psql.args(["-p", &console.proxy.port().to_string(), "-U", "app", "-d", db]);
    psql.env("PGPASSWORD", "app");
    psql.env("PGOPTIONS", format!("-c fencewire.capability={secret}"));
    let filled = psql.args(["-c", "CREATE TABLE filled (id int)"]).output().unwrap();
    assert!(filled.status.success(), "{}", text(&filled.stderr));
    let log = std::fs::read_to_string(console.proxy.log_file()).unwrap();
    assert!(!log.contains(secret.as_str()), "the secret was logged");
    assert!(log.contains("namespace_fence_capability"), "no audit event");
    console.refused(&format!("{wanted} REVISION 7"), "ZF105", &["FENCE_REVISION_MISMATCH"]);
    let other = wanted.replace(op, &uuid());
    console.refused(&other, "ZF104", &["FENCE_OWNED_BY_ANOTHER_OPERATION", name]);
    console.refused(&format!("{wanted} PURPOSE VALIDATION"), "ZF006", &["TARGET_QUARANTINED"]);
}

#[test]
fn a_target_goes_its_way_by_the_console() {
    let console = Console::shared();
    let (name, op) = (format!("old/t{}", uuid().replace('-', "")), uuid());
    for (words, more, state) in [
        ("CREATE TARGET", "", "TARGET_QUARANTINED"),
        ("SEAL IMPORT", "DEADLINE 60s", "TARGET_VALIDATING"),
        ("RECORD VALIDATION", "RESULT OK", "TARGET_VALIDATING"),
        ("PUBLISH", "", "TARGET_WRITE_FENCED"),
        ("ENABLE WRITES", "", "TARGET_WRITABLE"),
    ] {
        let answer = console.row(&format!("FENCE {words} ON '{name}' OPERATION '{op}' {more}"));
        assert_eq!((answer[0].as_str(), answer[2].as_str()), ("APPLIED", state), "{answer:?}");
        let lives = state == "TARGET_QUARANTINED";
        if lives {
            fills(console, &name, &op);
        }
        let mut targets = console.rows("SHOW TARGETS");
        targets.retain(|row| row[0] == name);
        let [row] = targets.as_slice() else { panic!("{targets:?}") };
        assert_eq!((row[1].as_str(), row[3].as_str()), (state, op.as_str()), "{row:?}");
        let shown = [6, 7, 9].map(|at: usize| row[at].as_str());
        assert_eq!(shown, if lives { ["1", "import", "0"] } else { ["", "", ""] }, "{row:?}");
        assert!(!row.iter().any(|cell| cell.contains("fwc_")));
    }
    let wanted = format!("FENCE IMPORT CAPABILITY ON '{name}' OPERATION '{op}'");
    console.refused(&wanted, "ZF006", &["TARGET_WRITABLE", &name]);
    let error = console.error(&format!("FENCE ABORT ON '{name}' OPERATION '{op}'"));
    assert!(error.starts_with("ZF10"), "{error}");
}

#[test]
fn a_release_beside_a_target_that_takes_writes_must_be_meant() {
    let console = Console::shared();
    let site = console.site();
    let (source, op) = (site.namespace(), uuid());
    let target = format!("old/t{}", uuid().replace('-', ""));
    let answer = console.row(&format!("FENCE ACQUIRE WRITE ON '{source}' OPERATION '{op}'"));
    assert_eq!(answer[0], "APPLIED", "{answer:?}");
    for (words, more) in [
        ("CREATE TARGET", ""),
        ("SEAL IMPORT", "DEADLINE 60s"),
        ("RECORD VALIDATION", "RESULT OK"),
        ("PUBLISH", ""),
        ("ENABLE WRITES", ""),
    ] {
        let answer = console.row(&format!("FENCE {words} ON '{target}' OPERATION '{op}' {more}"));
        assert_eq!(answer[0], "APPLIED", "{answer:?}");
    }
    let release = format!("FENCE RELEASE WRITE ON '{source}' OPERATION '{op}'");
    console.refused(
        &release,
        "ZF109",
        &["no command was sent", &target, "BESIDE TARGET", "stands for nothing"],
    );
    assert_eq!(site.state(), "SOURCE_WRITE_FENCED");
    let pairs = console.rows(&format!("INSPECT '{source}'"));
    let told = pairs.iter().find(|row| row[0] == "fence.writable_targets").unwrap();
    assert_eq!(told[1], target);
    let answer = console.row(&format!("{release} BESIDE TARGET"));
    assert_eq!((answer[0].as_str(), answer[2].as_str()), ("APPLIED", "RELEASED"), "{answer:?}");
    assert!(answer[11].contains("both take writes now"), "{answer:?}");
}

#[test]
fn commands_for_targets_are_refused_where_there_is_none() {
    let console = Console::shared();
    let (name, op) = (console.site().namespace(), uuid());
    for words in ["CREATE TARGET", "SEAL IMPORT", "PUBLISH", "ENABLE WRITES", "ABORT"] {
        let statement = format!("FENCE {words} ON '{name}' OPERATION '{op}'");
        // A database that is there, and no target: each is refused by the contract's table.
        let error = console.error(&statement);
        assert!(error.starts_with("ZF1"), "{statement}: {error}");
    }
}

#[test]
fn an_adoption_needs_the_second_key_and_shows_it_nowhere() {
    let console = Console::shared();
    let site = console.site();
    let (owner, adopter) = (site.fence(), uuid());
    let adopt = format!(
        "FENCE ADOPT ON '{}' OPERATION '{adopter}' FROM '{owner}' APPROVERS 'Ada', 'Grace' \
         INCIDENT 'INC-7' REASON 'the mover''s gone'",
        site.namespace()
    );
    for keyless in [adopt.clone(), format!("{adopt} KEY 'a-wrong-key-of-some-length'")] {
        console.refused(&keyless, "ZF109", &["adoption_not_authorised"]);
    }
    let answer = console.row(&format!("{adopt} KEY '{ADOPTION_KEY}'"));
    assert_eq!((answer[0].as_str(), &answer[4]), ("APPLIED", &adopter), "{answer:?}");
    assert_eq!(site.inspect()["fence"]["operation_id"], adopter);
    let broken = console.error(&format!("{adopt} KEY {ADOPTION_KEY}"));
    assert!(broken.starts_with("42601") && !broken.contains(ADOPTION_KEY), "{broken}");
    let log = std::fs::read_to_string(console.proxy.log_file()).unwrap();
    assert!(!log.contains(ADOPTION_KEY), "the second key was logged");
    assert!(log.contains("the mover's gone"), "no audit event");
    site.unfence(&adopter);
}

#[test]
fn what_is_shown_is_what_http_shows() {
    let console = Console::shared();
    let site = console.site();
    let mut client = site.client();
    client.query("BEGIN; SELECT 1").ok();
    let sessions = console.rows("SHOW SESSIONS VERBOSE");
    let mine = sessions.iter().find(|row| row[1] == site.namespace()).unwrap();
    assert_eq!((mine[3].as_str(), &mine[5]), ("wire", &client.backend_pid().to_string()));
    let namespaces = console.rows("SHOW NAMESPACES");
    let mine = namespaces.iter().find(|row| row[0] == site.namespace()).unwrap();
    assert_eq!((mine[1].as_str(), mine[3].as_str()), ("UNFENCED", "open"), "{mine:?}");
    let pairs = console.rows(&format!("INSPECT '{}'", site.namespace()));
    let value = |name: &str| pairs.iter().find(|row| row[0] == name).map(|row| row[1].clone());
    let fence = site.inspect()["fence"].clone();
    assert_eq!(value("fence.state").unwrap(), "UNFENCED");
    assert_eq!(value("fence.incarnation.engine_id").unwrap(), fence["incarnation"]["engine_id"]);
    assert!(console.row("SHOW VERSION")[0].starts_with("fencewire "));
    assert!(console.rows("SHOW CAPABILITIES").iter().any(|row| row == &["enabled", "true"]));
    assert!(console.rows("SHOW HELP").len() >= 22);
    assert!(console.rows("SHOW STATS").iter().any(|row| row[0].starts_with("fencewire_")));
    let config = console.rows("SHOW CONFIG");
    let shown = config.iter().find(|row| row[0] == "admin.postgres").unwrap();
    assert_eq!(shown[1], format!("127.0.0.1:{}", console.port));
    let all = format!("{config:?}");
    let control = PgCluster::shared().control_url();
    let password = control.split([':', '@']).nth(2).unwrap();
    assert!(!all.contains(&console.proxy.admin_key()) && !all.contains(ADOPTION_KEY), "{all}");
    assert!(!all.contains(&format!(":{password}@")), "{all}");
    assert!(config.iter().any(|row| row[0] == "engine.old.user"), "{all}");
}

#[test]
fn a_mistake_is_told_with_its_place() {
    let console = Console::shared();
    console.refused(
        "FENCE ACQUIRE READ",
        "42601",
        &["expected WRITE", "LINE 1:", "at character 15"],
    );
    console.refused("INSPECT", "42601", &["expected a namespace"]);
    console.refused("SHOW FENCES; SHOW HELP", "42601", &["one statement at a time"]);
    console.refused(&format!("INSPECT '{}'", "x".repeat(10_000)), "ZF109", &["engine/database"]);
    console.refused("SELECT * FROM pg_class", "0A000", &["not a database", "SHOW HELP"]);
    console.refused("SHOW data_directory", "42704", &["no setting"]);
    // psql's own commands ask the catalog.
    let mut psql = console.psql(&console.proxy.admin_key());
    let output = psql.args(["-c", "\\d"]).output().unwrap();
    assert!(text(&output.stderr).contains("not a database"), "{}", text(&output.stderr));
    for small_talk in
        ["SET x = 1", "BEGIN", "SHOW TRANSACTION ISOLATION LEVEL", "", ";;", "SELECT 1"]
    {
        assert!(console.says(small_talk).status.success(), "{small_talk}");
    }
}

#[test]
fn nobody_gets_in_without_the_key() {
    let console = Console::shared();
    let before = metric(
        &console.proxy,
        "fencewire_admin_requests_total{route=\"console/postgres\",status=\"401\"}",
    );
    for password in ["wrong-key-of-some-length", "", &console.proxy.admin_key()[1..]] {
        let output = console.psql(password).args(["-w", "-c", "SHOW FENCES"]).output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{password}");
    }
    let output =
        console.psql("wrong-key-of-some-length").args(["-c", "SHOW HELP"]).output().unwrap();
    assert!(text(&output.stderr).contains("the password is wrong"), "{}", text(&output.stderr));
    let after = metric(
        &console.proxy,
        "fencewire_admin_requests_total{route=\"console/postgres\",status=\"401\"}",
    );
    assert!(after > before, "{before} and {after}");
}

/// A client's first message.
fn startup() -> Vec<u8> {
    let body = b"\0\x03\0\0user\0x\0database\0y\0\0";
    let mut message = u32::try_from(body.len() + 4).unwrap().to_be_bytes().to_vec();
    message.extend_from_slice(body);
    message
}

/// What comes until the other side closes; it must, before long.
fn until_closed(stream: &mut TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => all,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => all,
        Err(error) => panic!("it stays open: {error}, after {all:?}"),
    }
}

/// A statement that is sent in every place before a login is complete: what came of it.
fn forge(console: &Console) -> Result<(), String> {
    let site = console.site();
    let fence = format!("FENCE ACQUIRE WRITE ON '{}' OPERATION '{}'", site.namespace(), uuid());
    // Twice: what comes too early may be dropped, and the next one heard.
    let query = || [support::wire::query(&fence), support::wire::query(&fence)].concat();
    let password = |body: &[u8]| support::wire::frame(b'p', body);
    let forged = [
        // Instead of a startup message, behind one, and behind a password that is wrong.
        query(),
        [startup(), query()].concat(),
        [startup(), password(b"SCRAM-SHA-256\0\0\0\0\0"), query()].concat(),
        [startup(), password(b"PLAIN\0\0\0\0\0"), query()].concat(),
        [startup(), password(b"x\0"), query()].concat(),
        [startup(), startup(), query()].concat(),
    ];
    for bytes in forged {
        let mut stream = TcpStream::connect(("127.0.0.1", console.port)).unwrap();
        // Either fails where the other side has closed already.
        let _sent = stream.write_all(&bytes);
        let _ended = stream.shutdown(std::net::Shutdown::Write);
        until_closed(&mut stream);
        let state = site.state();
        if state != "UNFENCED" {
            return Err(format!("without a login: {state}"));
        }
    }
    Ok(())
}

#[test]
fn a_statement_before_the_login_is_never_run() {
    assert_eq!(forge(Console::shared()), Ok(()));
    // Control arm: without the guard it is run, and seen to be.
    let console = Console::start_without("console-login");
    assert!(forge(&console).is_err(), "a missing login isn't noticed");
}

#[test]
fn garbage_ends_its_own_connection_only() {
    let console = Console::shared();
    let huge = [b"Q".to_vec(), 900_000_000_u32.to_be_bytes().to_vec()].concat();
    let garbage = [
        vec![0xff; 64],
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        0x7fff_ffff_u32.to_be_bytes().to_vec(),
        [startup(), huge].concat(),
        [startup(), vec![b'p', 0xff, 0xff, 0xff, 0xff]].concat(),
        [startup(), vec![b'p', 0, 0, 0, 1]].concat(),
        vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3],
    ];
    for mut bytes in garbage {
        // Enough that nobody waits for the rest of a head.
        bytes.resize(bytes.len().max(16), 0xfe);
        let mut stream = TcpStream::connect(("127.0.0.1", console.port)).unwrap();
        // Either fails where the other side has closed already.
        let _sent = stream.write_all(&bytes);
        let _ended = stream.shutdown(std::net::Shutdown::Write);
        until_closed(&mut stream);
    }
    // A long statement of somebody who is logged in is told so.
    runtime().block_on(async {
        let client = console.connect().await;
        let long = format!("INSPECT '{}'", "x".repeat(70_000));
        let error = client.simple_query(&long).await.unwrap_err();
        assert!(error.as_db_error().unwrap().message().contains("at most 65536"), "{error:?}");
        let huge = format!("INSPECT '{}'", "x".repeat(300_000));
        assert!(client.simple_query(&huge).await.is_err());
        let client = console.connect().await;
        client.simple_query("SHOW HELP").await.unwrap();
    });
}

#[test]
fn a_client_that_says_nothing_is_let_go() {
    let console = Console::shared();
    let mut stream = TcpStream::connect(("127.0.0.1", console.port)).unwrap();
    stream.write_all(&startup()).unwrap();
    until_closed(&mut stream);
}

#[test]
fn drivers_prepare_bind_and_read_binary_values() {
    let console = Console::shared();
    let site = console.site();
    let mut session = site.client();
    session.query("SELECT 1").ok();
    let (name, op) = (site.namespace(), uuid());
    runtime().block_on(async {
        let mut client = console.connect().await;
        let sessions = client.prepare("SHOW SESSIONS VERBOSE").await.unwrap();
        assert_eq!(sessions.columns()[0].type_(), &tokio_postgres::types::Type::INT8);
        let rows = client.query(&sessions, &[]).await.unwrap();
        let mine = rows.iter().find(|row| row.get::<_, &str>("namespace") == name).unwrap();
        assert!(mine.get::<_, i64>("session") > 0 && !mine.get::<_, bool>("abandoned"));
        assert_eq!(mine.get::<_, Option<i64>>("held_ms"), None);
        let transaction = client.transaction().await.unwrap();
        let acquire = format!("FENCE ACQUIRE WRITE ON '{name}' OPERATION '{op}' DEADLINE 60s");
        let row = transaction.query_one(&acquire, &[]).await.unwrap();
        assert_eq!(row.get::<_, &str>("outcome"), "APPLIED");
        assert_eq!(row.get::<_, i64>("revision"), 2);
        // No database's transaction: what was done stays done.
        transaction.rollback().await.unwrap();
        assert_eq!(site.state(), "SOURCE_WRITE_FENCED");
        let error = client.query("INSPECT $1", &[&name]).await.unwrap_err();
        assert!(error.as_db_error().unwrap().message().contains("take no parameters"), "{error:?}");
        let error = client.query("SHOW NOTHING", &[]).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "42704");
        client.batch_execute("").await.unwrap();
        let mut kept = Vec::new();
        let refused = loop {
            match client.prepare("SHOW HELP").await {
                Ok(statement) => kept.push(statement),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.code().unwrap().code(), "54000");
        assert!((200..=256).contains(&kept.len()), "{}", kept.len());
        drop(kept);
        let simple = client.simple_query("SHOW VERSION").await.unwrap();
        assert!(simple.iter().any(|one| matches!(one, SimpleQueryMessage::Row(_))));
    });
    site.unfence(&op);
}

#[test]
fn a_cancelled_wait_says_what_goes_on() {
    let console = Console::shared();
    let site = console.site();
    let (name, op, id) = (site.namespace(), uuid(), uuid());
    let mut writer = site.client();
    writer.query("BEGIN; INSERT INTO t VALUES (7)").ok();
    runtime().block_on(async {
        let client = console.connect().await;
        let token = client.cancel_token();
        let acquire =
            format!("FENCE ACQUIRE WRITE ON '{name}' OPERATION '{op}' COMMAND '{id}' DEADLINE 1h");
        let waiting = client.simple_query(&acquire);
        let cancel = async {
            let drains = || site.inspect()["drain"]["command_id"] == id.as_str();
            assert!(poll(PATIENCE, || drains().then_some(())).is_some(), "no drain");
            // What blocks it is told while it runs, without the statement's literals.
            let told = || {
                let rows = console.rows("SHOW DRAINS VERBOSE");
                let mine = rows.into_iter().find(|row| row[0] == name)?;
                (mine[12].starts_with("BEGIN; INSERT INTO t") && !mine[12].contains('7'))
                    .then_some(())
            };
            assert!(poll(PATIENCE, told).is_some(), "{:?}", console.rows("SHOW DRAINS VERBOSE"));
            token.cancel_query(NoTls).await.unwrap();
        };
        let (waited, ()) = tokio::join!(waiting, cancel);
        let error = waited.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "57014", "{error:?}");
        assert!(error.message().contains(&id) && error.message().contains("goes on"), "{error:?}");
        client.simple_query("SHOW FENCES").await.unwrap();
    });
    assert_eq!(site.state(), "SOURCE_DRAINING");
    writer.query("COMMIT").ok();
    site.wait("the drain goes on to its end", |seen| {
        seen["fence"]["state"] == "SOURCE_WRITE_FENCED"
    });
    site.unfence(&op);
}

#[test]
fn a_driver_of_python_and_one_of_node_work() {
    let console = Console::shared();
    let script = "import sys, psycopg\n\
        c = psycopg.connect(sys.argv[1], autocommit=False)\n\
        row = c.execute('SHOW VERSION').fetchone()\n\
        print(row[0])\n\
        try:\n    c.execute('FENCE PUBLISH')\n\
        except psycopg.Error as e:\n    print(e.sqlstate)\n\
        c.rollback()\n\
        print(len(c.execute('SHOW HELP').fetchall()) > 20)\n";
    let url = format!(
        "postgresql://ops:{}@127.0.0.1:{}/fencewire",
        console.proxy.admin_key(),
        console.port
    );
    let python = Command::new(installed("python/bin/python")).args(["-c", script, &url]).output();
    let python = python.unwrap();
    let said = text(&python.stdout);
    assert!(said.starts_with("fencewire ") && said.ends_with("42601\nTrue\n"), "{python:?}");

    let script = "const { Client } = require('pg');\n\
        (async () => {\n\
        const c = new Client({ connectionString: process.argv[1] });\n\
        await c.connect();\n\
        const help = await c.query({ text: 'SHOW HELP', values: [], name: 'h' });\n\
        console.log(help.rows.length > 20, help.fields[0].name);\n\
        try { await c.query('SELECT * FROM t'); } catch (e) { console.log(e.code); }\n\
        await c.end();\n\
        })();\n";
    let node = Command::new("node")
        .env("NODE_PATH", installed("node/node_modules"))
        .args(["-e", script, &url])
        .output()
        .unwrap();
    assert_eq!(text(&node.stdout), "true statement\n0A000\n", "{node:?}");
}

#[test]
fn without_the_feature_questions_are_answered_and_commands_are_not() {
    let port = support::free_port();
    let proxy = Proxy::start_with(ProxyOptions {
        engines: vec![Engine::plain("old", PgCluster::shared())],
        admin: format!("postgres = \"127.0.0.1:{port}\"\n"),
        extra: "[fence]\nenabled = false\n".to_owned(),
        ..ProxyOptions::default()
    });
    let console = Console { proxy, port, _folder: tempfile::tempdir().unwrap() };
    let site = console.site();
    let acquire = format!("FENCE ACQUIRE WRITE ON '{}' OPERATION '{}'", site.namespace(), uuid());
    console.refused(&acquire, "ZF109", &["fence_disabled", "the fence feature is off"]);
    assert!(console.rows("SHOW CAPABILITIES").iter().any(|row| row == &["enabled", "false"]));
}

/// A settings file that names a console and no key: the proxy serves, the console doesn't.
#[test]
fn a_console_without_a_key_is_off_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fencewire.toml");
    let (admin, console, clients) =
        (support::free_port(), support::free_port(), support::free_port());
    let toml = format!(
        "[proxy]\nstate_dir = \"{}\"\n[admin]\nhttp = \"127.0.0.1:{admin}\"\n\
         postgres = \"127.0.0.1:{console}\"\n[[engine]]\nname = \"old\"\nurl = \"{}\"\n\
         tls = \"disable\"\n[[listen]]\nprotocol = \"postgres\"\n\
         address = \"127.0.0.1:{clients}\"\n",
        folder.path().join("state").display(),
        PgCluster::shared().control_url()
    );
    std::fs::write(&file, toml).unwrap();
    let checked = Command::new(env!("CARGO_BIN_EXE_fencewire"))
        .args(["check-config".as_ref(), file.as_os_str()])
        .output()
        .unwrap();
    let said = text(&checked.stdout);
    assert!(checked.status.success(), "{checked:?}");
    assert!(said.contains("admin.postgres") && said.contains("is off"), "{said}");
    let mut proxy = Command::new(env!("CARGO_BIN_EXE_fencewire"))
        .args(["serve".as_ref(), "--config".as_ref(), file.as_os_str()])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let ready = poll(Duration::from_secs(60), || {
        let answer = support::http::request(admin, "GET", "/readyz", &[], "");
        matches!(answer, Ok((200, _))).then_some(())
    });
    let refused = TcpStream::connect(("127.0.0.1", console)).is_err();
    proxy.kill().unwrap();
    proxy.wait().unwrap();
    assert!(ready.is_some() && refused, "ready: {ready:?}, refused: {refused}");
}
