//! A small private starter of PostgreSQL servers for these tests.
//!
//! Each test owns its server: made from a template that is initialised once per process, stopped
//! when the value is dropped, and told by the kernel to quit if the test process dies. Where no
//! server programs are found the tests fail and say what to install.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use fencewire::base::ids::{EngineName, Namespace};
use fencewire::base::secret::Secret;
use fencewire::engine::{EngineLock, PgEngine, Settings};
use fencewire::tls::ClientTls;
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

/// How long a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// The folder of the server programs: `FENCEWIRE_PG_BIN`, else the newest that the usual places
/// have.
fn programs() -> PathBuf {
    if let Some(folder) = std::env::var_os("FENCEWIRE_PG_BIN") {
        return PathBuf::from(folder);
    }
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = installed.map(|entry| entry.path().join("bin")).collect();
    folders.sort();
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let found = folders.into_iter().find(|folder| folder.join("initdb").exists());
    found.expect("PostgreSQL server programs: install them or set FENCEWIRE_PG_BIN")
}

/// The user and group to run as when we are root, which the server refuses to be.
fn server_user() -> Option<(u32, u32)> {
    let number = |args: &[&str]| {
        let output = Command::new("id").args(args).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse::<u32>().unwrap()
    };
    (number(&["-u"]) == 0).then(|| (number(&["-u", "postgres"]), number(&["-g", "postgres"])))
}

/// A command as the server's user, ended by the kernel when this thread ends.
fn as_server(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "QUIT"]);
    if let Some((user, group)) = server_user() {
        command.args(["--reuid", &user.to_string(), "--regid", &group.to_string()]);
        command.arg("--clear-groups");
    }
    command.arg(program).env("LC_ALL", "C.UTF-8").current_dir("/");
    command
}

fn give(path: &Path) {
    if let Some((user, group)) = server_user() {
        chown(path, Some(user), Some(group)).unwrap();
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// An initialised data folder; its password for `postgres` is `secret`, asked for over TCP.
fn template() -> &'static Path {
    static TEMPLATE: OnceLock<TempDir> = OnceLock::new();
    let folder = TEMPLATE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        give(folder.path());
        let password = folder.path().join("password");
        std::fs::write(&password, "secret").unwrap();
        give(&password);
        run(as_server(&programs().join("initdb"))
            .arg(folder.path().join("data"))
            .args(["--no-sync", "--username=postgres", "--wal-segsize=1", "--encoding=UTF8"])
            .args(["--auth-local=trust", "--auth-host=scram-sha-256"])
            .arg(format!("--pwfile={}", password.display())));
        folder
    });
    folder.path()
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// One running server.
pub(crate) struct Pg {
    folder: TempDir,
    port: u16,
    extra: Vec<String>,
    child: Option<Child>,
}

impl Pg {
    /// A running server with a database `app`.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same with further settings, each `name=value`.
    pub(crate) async fn start_with(extra: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        give(folder.path());
        run(Command::new("cp").arg("-a").arg(template().join("data")).arg(folder.path()));
        let port = free_port();
        let extra = extra.iter().map(|s| (*s).to_owned()).collect();
        let mut pg = Self { folder, port, extra, child: None };
        pg.up().await;
        pg.client("postgres").await.batch_execute("CREATE DATABASE app").await.unwrap();
        pg
    }

    /// Starts the stopped server and waits until it answers.
    pub(crate) async fn up(&mut self) {
        let mut command = as_server(&programs().join("postgres"));
        command.arg("-D").arg(self.data());
        let socket = format!("unix_socket_directories={}", self.folder.path().display());
        let port = format!("port={}", self.port);
        let fixed = [
            "listen_addresses=127.0.0.1",
            "fsync=off",
            "wal_level=logical",
            "max_prepared_transactions=5",
            "autovacuum=off",
            "shared_buffers=16MB",
        ];
        let settings = fixed.into_iter().chain([socket.as_str(), port.as_str()]);
        for setting in settings.chain(self.extra.iter().map(String::as_str)) {
            command.args(["-c", setting]);
        }
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        command.stdout(Stdio::null()).stderr(log).stdin(Stdio::null());
        self.child = Some(command.spawn().unwrap());
        let child = self.child.as_mut();
        let gone = child.is_some_and(|child| child.try_wait().unwrap().is_some());
        let answers = async || self.try_client("postgres").await.is_ok();
        let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        assert!(!gone && within(answers).await, "the server doesn't answer: {}", log());
    }

    /// Stops the server: `INT` in good order, `QUIT` as a crash.
    pub(crate) fn down(&mut self, signal: &str) {
        if let Some(mut child) = self.child.take() {
            let pid = child.id().to_string();
            run(Command::new("kill").args(["-s", signal, &pid]));
            child.wait().unwrap();
        }
    }

    /// What the running server has said.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Writes a file into the data folder, readable by the server alone.
    pub(crate) fn place(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.data().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        give(&path);
    }

    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = as_server(&programs().join(name));
        command.env("PGHOST", self.folder.path()).env("PGPORT", self.port.to_string());
        command.env("PGUSER", "postgres");
        command
    }

    /// Settings of the control role `user` over TCP.
    pub(crate) fn settings(&self, user: &str) -> Settings {
        Settings {
            name: EngineName::new("old").unwrap(),
            instance: "test".to_owned(),
            host: "127.0.0.1".to_owned(),
            port: self.port,
            user: user.to_owned(),
            password: Some(Secret::new("secret".to_owned())),
            database: "postgres".to_owned(),
            tls: ClientTls::disabled(),
            connect_timeout: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(10),
            engine_lock: EngineLock::Hold,
            lock_timeout: Duration::from_millis(1500),
        }
    }

    /// Settings over the Unix socket.
    pub(crate) fn socket_settings(&self) -> Settings {
        let host = self.folder.path().display().to_string();
        Settings { host, password: None, ..self.settings("postgres") }
    }

    /// The engine seen by a superuser.
    pub(crate) fn engine(&self) -> PgEngine {
        PgEngine::new(self.settings("postgres")).unwrap()
    }

    /// A client of the application, straight to the server.
    pub(crate) async fn client(&self, database: &str) -> Client {
        self.try_client(database).await.unwrap()
    }

    async fn try_client(&self, database: &str) -> Result<Client, tokio_postgres::Error> {
        let mut config = tokio_postgres::Config::new();
        config.host_path(self.folder.path()).port(self.port).user("postgres").dbname(database);
        config.application_name("an app");
        let (client, connection) = config.connect(NoTls).await?;
        tokio::task::spawn(connection);
        Ok(client)
    }
}

impl Drop for Pg {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let pid = child.id().to_string();
            Command::new("kill").args(["-s", "QUIT", &pid]).status().ok();
            child.wait().ok();
        }
    }
}

/// The namespace that the tests fence.
pub(crate) fn app() -> Namespace {
    Namespace::parse("old/app").unwrap()
}

/// Waits for a condition; fails the test when it doesn't come true.
pub(crate) async fn eventually(what: &str, condition: impl AsyncFnMut() -> bool) {
    assert!(within(condition).await, "never: {what}");
}

/// Asks again and again until the condition holds or patience ends.
async fn within(mut condition: impl AsyncFnMut() -> bool) -> bool {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await; // tidy: not a race: polls a level
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.is_ok()
}

pub(crate) async fn pid(client: &Client) -> i32 {
    client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0)
}

/// Waits until a backend is in the state, for example inside `pg_sleep`.
pub(crate) async fn waits_for(observer: &Client, pid: i32, event: &str) {
    eventually(event, async || {
        let sql = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event = $2)";
        observer.query_one(sql, &[&pid, &event]).await.unwrap().get(0)
    })
    .await;
}

/// Waits until a backend is gone.
pub(crate) async fn gone(observer: &Client, pid: i32) {
    eventually("the backend is gone", async || {
        let sql = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)";
        observer.query_one(sql, &[&pid]).await.unwrap().get(0)
    })
    .await;
}
