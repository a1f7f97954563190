//! A throw-away PostgreSQL.
//!
//! Roles: `postgres` (superuser, trust, unix socket only); `fencewire` (superuser, SCRAM, for the
//! proxy's control connection); `app` (SCRAM, owns the databases made here); `wire` (trust over
//! TCP, member of `app`, for the raw client). Where a password is needed it is the role's name.
//!
//! The version is 15 unless [`Options::version`] or `FENCEWIRE_TEST_PG` says 18: then the programs
//! are those that `tools/postgresql18.sh` brought.
//!
//! `initdb` runs for each cluster: a copied data directory would carry a copied system identifier,
//! and two engines with one identity are exactly what a fence must never meet.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::certs::{CertFiles, Certs};
use super::guard::{Guard, alive, children, send_signal};

/// How long a server may take to be ready or to be gone. A loaded machine needs seconds.
const PATIENCE: Duration = Duration::from_secs(90);

/// What a cluster is to be like.
#[derive(Default)]
pub struct Options {
    /// Sync to disk, as a real server does. Needed where the engine itself is killed.
    pub durable: bool,
    /// The major version, such as 18; `None` is what [`default_version`] says.
    pub version: Option<u32>,
    /// `ssl = on` with the test certificate (plaintext connections stay possible).
    pub tls: bool,
    /// The port on 127.0.0.1; `None` takes a free one. For a server in another one's place.
    pub port: Option<u16>,
    /// More lines for `postgresql.conf`: name and value as written there.
    pub settings: Vec<(String, String)>,
}

/// A PostgreSQL server in a folder of its own, gone when this value (or the test program) is gone.
pub struct PgCluster {
    dir: PathBuf,
    bin: PathBuf,
    version: u32,
    port: u16,
    certs: Option<CertFiles>,
    // None between `kill`/`stop` and `start_again`.
    guard: Option<Guard>,
}

impl PgCluster {
    /// The cluster that all tests of a test program share: not durable, TLS on.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<PgCluster> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(Options { tls: true, ..Options::default() }))
    }

    /// As [`PgCluster::shared`], of PostgreSQL 18 whatever the other tests run on.
    pub fn shared_18() -> &'static Self {
        static SHARED: OnceLock<PgCluster> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(Options { version: Some(18), ..Options::default() }))
    }

    /// Makes a cluster and starts it. Panics with the server's log when that fails.
    pub fn start(options: Options) -> Self {
        let dir = super::test_dir("pg");
        let version = options.version.unwrap_or_else(default_version);
        let bin = find_bin(version);
        for folder in ["data", "sock"] {
            std::fs::create_dir(dir.join(folder)).unwrap();
        }
        let certs = options.tls.then(|| Certs::shared().write(&dir));
        own_by_server_user(&dir);
        let port = options.port.unwrap_or_else(super::free_port);
        let mut cluster = Self { dir, bin, version, port, certs, guard: None };
        cluster.init(&options);
        cluster.start_again();
        cluster.sql("postgres", ROLES);
        cluster
    }

    fn init(&self, options: &Options) {
        let mut command = as_server_user();
        command.push(self.bin.join("initdb").into());
        let data = self.dir.join("data");
        let args = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"];
        command.extend(args.map(OsString::from));
        command.extend(["-D".into(), data.clone().into_os_string()]);
        let mut initdb = Command::new(&command[0]);
        let output = initdb.args(&command[1..]).current_dir(&self.dir).output().unwrap();
        assert!(output.status.success(), "initdb failed: {}", text(&output));

        let conf = data.join("postgresql.conf");
        let mut lines = std::fs::read_to_string(&conf).unwrap();
        lines.push_str(&self.settings(options));
        std::fs::write(&conf, lines).unwrap();
        std::fs::write(data.join("pg_hba.conf"), HBA).unwrap();
    }

    fn settings(&self, options: &Options) -> String {
        let mut lines = format!(
            "\nlisten_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{}'\n",
            self.port,
            self.dir.join("sock").display(),
        );
        lines.push_str(SETTINGS);
        if !options.durable {
            lines.push_str("fsync = off\nsynchronous_commit = off\nfull_page_writes = off\n");
        }
        if let Some(files) = &self.certs {
            lines.push_str("ssl = on\n");
            writeln!(lines, "ssl_cert_file = '{}'", files.cert.display()).unwrap();
            writeln!(lines, "ssl_key_file = '{}'", files.key.display()).unwrap();
        }
        for (name, value) in &options.settings {
            writeln!(lines, "{name} = {value}").unwrap();
        }
        lines
    }

    /// Starts the server again after [`Self::kill`] or [`Self::stop`], on the same port.
    pub fn start_again(&mut self) {
        assert!(self.guard.is_none(), "the cluster runs already");
        let data = self.dir.join("data");
        let _ = std::fs::remove_file(data.join("postmaster.pid"));
        let mut command = as_server_user();
        command.push(self.bin.join("postgres").into());
        command.extend(["-D".into(), data.clone().into_os_string()]);
        let guard = Guard::spawn(&self.dir, "server", "QUIT", &command, &[]);
        let ready = super::poll(PATIENCE, || {
            if guard.exit_code().is_some() {
                return Some(false);
            }
            let file = std::fs::read_to_string(data.join("postmaster.pid")).ok()?;
            (file.lines().nth(7)?.trim() == "ready").then_some(true)
        });
        let log = self.log_tail();
        assert_eq!(ready, Some(true), "the server in {} did not start:\n{log}", self.dir.display());
        self.guard = Some(guard);
    }

    /// SIGKILL to the postmaster and all its children; returns when all are gone.
    pub fn kill(&mut self) {
        let guard = self.guard.take().expect("the cluster doesn't run");
        let family = children(guard.pid());
        send_signal("KILL", &[guard.pid()]);
        send_signal("KILL", &family);
        assert!(guard.wait_exit(PATIENCE).is_some(), "the postmaster survived SIGKILL");
        let gone = super::poll(PATIENCE, || family.iter().all(|p| !alive(*p)).then_some(()));
        assert!(gone.is_some(), "server processes survived SIGKILL: {family:?}");
        guard.finish();
    }

    /// SIGKILL to the postmaster alone; its children notice and end by themselves.
    pub fn kill_postmaster(&mut self) {
        let guard = self.guard.take().expect("the cluster doesn't run");
        let family = children(guard.pid());
        send_signal("KILL", &[guard.pid()]);
        assert!(guard.wait_exit(PATIENCE).is_some(), "the postmaster survived SIGKILL");
        let gone = super::poll(PATIENCE, || family.iter().all(|p| !alive(*p)).then_some(()));
        assert!(gone.is_some(), "server processes outlive their postmaster: {family:?}");
        guard.finish();
    }

    /// An immediate stop: sessions are cut off, the next start recovers as after a crash.
    pub fn stop_at_once(&mut self) {
        let guard = self.guard.take().expect("the cluster doesn't run");
        guard.signal("QUIT");
        assert!(guard.wait_exit(PATIENCE).is_some(), "stop failed:\n{}", self.log_tail());
        guard.finish();
    }

    /// A clean stop (mode fast: sessions are ended, open transactions rolled back).
    pub fn stop(&mut self) {
        let guard = self.guard.take().expect("the cluster doesn't run");
        guard.signal("INT");
        assert_eq!(guard.wait_exit(PATIENCE), Some(0), "stop failed:\n{}", self.log_tail());
        guard.finish();
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The major version, such as 15.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The folder of the unix socket, for `PGHOST`.
    pub fn socket_dir(&self) -> PathBuf {
        self.dir.join("sock")
    }

    /// The certificates, where TLS is on.
    pub fn certs(&self) -> Option<&CertFiles> {
        self.certs.as_ref()
    }

    /// A program of this PostgreSQL's version, such as `pg_dump`.
    pub fn program(&self, name: &str) -> PathBuf {
        let ours = self.bin.join(name);
        if ours.exists() { ours } else { PathBuf::from(name) }
    }

    /// The process id of the postmaster. Panics while the server is stopped.
    pub fn pid(&self) -> u32 {
        self.guard.as_ref().expect("the cluster doesn't run").pid()
    }

    /// The control connection's URL, as `--engine` takes it.
    pub fn control_url(&self) -> String {
        format!("postgres://fencewire:fencewire@127.0.0.1:{}/postgres", self.port)
    }

    /// A new, empty database owned by `app`; returns its name.
    pub fn fresh_db(&self) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let name = format!("t{}", COUNT.fetch_add(1, Ordering::SeqCst));
        self.create_db(&name);
        name
    }

    /// Creates a database owned by `app`.
    pub fn create_db(&self, name: &str) {
        self.sql("postgres", &format!("CREATE DATABASE \"{name}\" OWNER app"));
    }

    /// Runs SQL as superuser over the unix socket, one statement (or one string) per transaction;
    /// returns the rows, columns joined by `|`. Panics when it fails.
    pub fn sql(&self, db: &str, sql: &str) -> String {
        self.try_sql(db, sql).unwrap_or_else(|e| panic!("SQL failed in {db}: {e}\n{sql}"))
    }

    /// As [`Self::sql`], but a failure comes back as psql's message.
    pub fn try_sql(&self, db: &str, sql: &str) -> Result<String, String> {
        let output = Command::new(self.program("psql"))
            .args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", db, "-c", sql])
            .env("PGHOST", self.socket_dir())
            .env("PGPORT", self.port.to_string())
            .env("PGCONNECT_TIMEOUT", "30")
            .output()
            .expect("psql does not start");
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap().trim_end().to_owned())
        } else {
            Err(text(&output))
        }
    }

    /// The server's log.
    pub fn log_file(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// The end of the server's log.
    pub fn log_tail(&self) -> String {
        super::tail(&self.dir.join("server.log"), 40)
    }
}

impl Drop for PgCluster {
    fn drop(&mut self) {
        if self.guard.is_none() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

const ROLES: &str = "
CREATE ROLE app LOGIN PASSWORD 'app';
CREATE ROLE fencewire LOGIN SUPERUSER PASSWORD 'fencewire';
CREATE ROLE wire LOGIN IN ROLE app;
";

const HBA: &str = "\
local all postgres trust
local all all scram-sha-256
host all wire 127.0.0.1/32 trust
host replication wire 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
";

const SETTINGS: &str = "\
wal_level = logical
max_prepared_transactions = 20
max_connections = 200
max_wal_senders = 10
max_replication_slots = 10
track_activities = on
shared_buffers = 32MB
max_wal_size = 256MB
logging_collector = off
log_line_prefix = '%m [%p] %q%u@%d %a '
log_statement = none
autovacuum = off
";

/// Both outputs of a program, for a message.
pub(super) fn text(output: &Output) -> String {
    let lossy = String::from_utf8_lossy;
    format!("{} {}{}", output.status, lossy(&output.stdout), lossy(&output.stderr))
}

/// The version that tests run on which don't ask for one: `FENCEWIRE_TEST_PG`, else 15.
pub fn default_version() -> u32 {
    match std::env::var("FENCEWIRE_TEST_PG") {
        Ok(given) => given.parse().unwrap_or_else(|e| panic!("FENCEWIRE_TEST_PG={given}: {e}")),
        Err(_) => 15,
    }
}

/// The folder of a version's server programs.
///
/// 18: `FENCEWIRE_TEST_PG18_BIN`, else Debian's own, else what `tools/postgresql18.sh` brought.
/// Else: `FENCEWIRE_TEST_PG_BIN`, else that of `postgres` in PATH, else Debian's for version 15,
/// else the newest there.
fn find_bin(version: u32) -> PathBuf {
    if version == 18 {
        return find_18();
    }
    assert_eq!(version, 15, "the tests run on PostgreSQL 15 and 18");
    if let Some(dir) = std::env::var_os("FENCEWIRE_TEST_PG_BIN") {
        return PathBuf::from(dir);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(dir) = std::env::split_paths(&path).find(|d| d.join("postgres").is_file()) {
        return dir;
    }
    let root = Path::new("/usr/lib/postgresql");
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let versions = entries.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let usable = versions.filter(|v| root.join(format!("{v}/bin/postgres")).is_file());
    let best = usable.max_by_key(|v| (*v == 15, *v));
    let best = best.expect("no PostgreSQL server here: run tools/setup.sh test");
    root.join(format!("{best}/bin"))
}

fn find_18() -> PathBuf {
    if let Some(dir) = std::env::var_os("FENCEWIRE_TEST_PG18_BIN") {
        return PathBuf::from(dir);
    }
    let debian = PathBuf::from("/usr/lib/postgresql/18/bin");
    if debian.join("postgres").is_file() {
        return debian;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/postgresql18.sh");
    let output = Command::new(script).arg("where").output().expect("bash does not start");
    assert!(output.status.success(), "no PostgreSQL 18: {}", text(&output));
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end())
}

/// The user that runs servers when this is root: PostgreSQL refuses to run as root.
const SERVER_USER: &str = "postgres";

fn id(args: &[&str]) -> u32 {
    let output = Command::new("id").args(args).output().expect("id does not start");
    assert!(output.status.success(), "no user {SERVER_USER} here: {}", text(&output));
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

fn is_root() -> bool {
    id(&["-u"]) == 0
}

/// The command prefix that drops root's rights; empty for everybody else.
pub(super) fn as_server_user() -> Vec<OsString> {
    if !is_root() {
        return Vec::new();
    }
    let user = format!("--reuid={SERVER_USER}");
    let group = format!("--regid={}", id(&["-g", SERVER_USER]));
    ["setpriv", &user, &group, "--clear-groups", "--"].map(OsString::from).to_vec()
}

/// Gives the folder and all that is in it to the server's user, when this is root.
pub(super) fn own_by_server_user(dir: &Path) {
    if !is_root() {
        return;
    }
    let mut chown = Command::new("chown");
    let output = chown.arg("-R").arg(format!("{SERVER_USER}:")).arg(dir).output().unwrap();
    assert!(output.status.success(), "no user {SERVER_USER} here? {}", text(&output));
}
