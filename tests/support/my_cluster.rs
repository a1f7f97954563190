//! A throw-away MariaDB or MySQL.
//!
//! Accounts: `root` (no password, unix socket only); `fencewire` (for the proxy's control
//! connection, with the rights that docs/OPERATIONS.md names and no more); `app` (may do everything
//! in the databases made here). Where a password is needed it is the account's name. On MariaDB
//! they log in with mysql_native_password, on MySQL 9 with caching_sha2_password. `wire` has no
//! password and the rights of `app`: it can log in without TLS on either.
//!
//! A data directory is made once for each server version and kept in the build folder; each server
//! starts from a copy of it. What tells two servers apart is made anew: MySQL's server_uuid, and
//! the server_id, which is the port.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{ErrorKind, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::certs::{CertFiles, Certs};
use super::cluster::{as_server_user, own_by_server_user, text};
use super::guard::Guard;

/// How long a server may take to be ready or to be gone. A loaded machine needs seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often a server is started whose port is taken at that moment.
const STARTS_MAX: u32 = 10;

/// Whose server it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MyFlavour {
    /// Debian's own, 10.11.
    MariaDb,
    /// Oracle's, 9, which `tools/mysql9.sh` brought.
    MySql,
}

impl MyFlavour {
    /// Both, for tests that run on each.
    pub const ALL: [Self; 2] = [Self::MariaDb, Self::MySql];

    /// `mariadb` or `mysql`: in file names and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
        }
    }

    /// The name of the session variable that makes transactions read-only.
    pub fn read_only_variable(self) -> &'static str {
        match self {
            Self::MariaDb => "tx_read_only",
            Self::MySql => "transaction_read_only",
        }
    }
}

/// What a server is to be like.
#[derive(Default)]
pub struct MyOptions {
    /// Sync to disk, as a real server does. Needed where the engine itself is killed.
    pub durable: bool,
    /// TLS with the test certificate (plaintext connections stay possible).
    pub tls: bool,
    /// More lines for the `[mysqld]` part of its settings: name and value as written there.
    pub settings: Vec<(String, String)>,
}

/// A server in a folder of its own, gone when this value (or the test program) is gone.
pub struct MyCluster {
    dir: PathBuf,
    flavour: MyFlavour,
    port: u16,
    certs: Option<CertFiles>,
    // None between `kill`/`stop` and `start_again`.
    guard: Option<Guard>,
}

impl MyCluster {
    /// The server that all tests of a test program share: not durable, TLS on.
    pub fn shared(flavour: MyFlavour) -> &'static Self {
        static MARIADB: OnceLock<MyCluster> = OnceLock::new();
        static MYSQL: OnceLock<MyCluster> = OnceLock::new();
        let shared = match flavour {
            MyFlavour::MariaDb => &MARIADB,
            MyFlavour::MySql => &MYSQL,
        };
        shared.get_or_init(|| Self::start(flavour, MyOptions { tls: true, ..MyOptions::default() }))
    }

    /// Makes a server and starts it. Panics with the server's log when that fails.
    pub fn start(flavour: MyFlavour, options: MyOptions) -> Self {
        let dir = super::test_dir(flavour.name());
        copy_template(flavour, &dir.join("data"));
        let certs = options.tls.then(|| Certs::shared().write(&dir));
        let mut cluster = Self { dir, flavour, port: super::free_port(), certs, guard: None };
        for folder in ["files", "tmp"] {
            std::fs::create_dir(cluster.dir.join(folder)).unwrap();
        }
        std::fs::write(cluster.dir.join("my.cnf"), cluster.settings(&options)).unwrap();
        own_by_server_user(&cluster.dir);
        cluster.start_again();
        cluster
    }

    fn settings(&self, options: &MyOptions) -> String {
        let (port, at) = (self.port, |name: &str| self.dir.join(name).display().to_string());
        let mut lines = format!("[mysqld]\nport = {port}\nserver_id = {port}\n");
        for (name, value) in [
            ("datadir", at("data")),
            ("socket", at("sock")),
            ("pid_file", at("mysqld.pid")),
            ("tmpdir", at("tmp")),
            ("secure_file_priv", at("files")),
        ] {
            writeln!(lines, "{name} = {value}").unwrap();
        }
        lines.push_str(SETTINGS);
        lines.push_str(match self.flavour {
            MyFlavour::MariaDb => MARIADB_SETTINGS,
            MyFlavour::MySql => MYSQL_SETTINGS,
        });
        if !options.durable {
            lines.push_str(NOT_DURABLE);
        }
        if let Some(files) = &self.certs {
            for (name, file) in [("ca", &files.ca), ("cert", &files.cert), ("key", &files.key)] {
                writeln!(lines, "ssl_{name} = {}", file.display()).unwrap();
            }
        } else if self.flavour == MyFlavour::MySql {
            // Without this it makes a certificate of its own.
            lines.push_str("tls_version = ''\n");
        }
        let plugins = root_folder(self.flavour).join("usr/lib/mysql/plugin");
        writeln!(lines, "plugin_dir = {}", plugins.display()).unwrap();
        for (name, value) in &options.settings {
            writeln!(lines, "{name} = {value}").unwrap();
        }
        lines
    }

    /// Starts the server again after [`Self::kill`] or [`Self::stop`], on the same port.
    pub fn start_again(&mut self) {
        assert!(self.guard.is_none(), "the server runs already");
        for _ in 0..STARTS_MAX {
            if self.try_start() {
                return;
            }
            // While the server was down, some connection of this busy machine got its port to call
            // from. Such a one doesn't last.
            let taken = self.log_tail().contains("Address already in use");
            assert!(taken, "{} did not start:\n{}", self.dir.display(), self.log_tail());
        }
        panic!("the port of {} stays taken:\n{}", self.dir.display(), self.log_tail());
    }

    fn try_start(&mut self) -> bool {
        for left in ["sock", "sock.lock", "mysqld.pid"] {
            let _ = std::fs::remove_file(self.dir.join(left));
        }
        let mut command = as_server_user();
        command.extend(server_command(self.flavour, &self.dir.join("my.cnf")));
        let guard = Guard::spawn(&self.dir, "server", "KILL", &command, &[]);
        let ready = super::poll(PATIENCE, || {
            if guard.exit_code().is_some() {
                return Some(false);
            }
            (self.dir.join("mysqld.pid").exists() && greets(self.port)).then_some(true)
        });
        if ready == Some(true) {
            self.guard = Some(guard);
        } else if guard.exit_code().is_some() {
            guard.finish();
        }
        ready == Some(true)
    }

    /// SIGKILL; returns when the server is gone.
    pub fn kill(&mut self) {
        let guard = self.guard.take().expect("the server doesn't run");
        guard.signal("KILL");
        assert!(guard.wait_exit(PATIENCE).is_some(), "the server survived SIGKILL");
        guard.finish();
    }

    /// SIGSTOP: its sockets stay open and nothing answers, until it is killed.
    pub fn freeze(&self) {
        self.guard.as_ref().expect("the server doesn't run").signal("STOP");
    }

    /// A clean stop: sessions are ended, open transactions rolled back.
    pub fn stop(&mut self) {
        let guard = self.guard.take().expect("the server doesn't run");
        guard.signal("TERM");
        assert_eq!(guard.wait_exit(PATIENCE), Some(0), "stop failed:\n{}", self.log_tail());
        guard.finish();
    }

    /// Whose server it is.
    pub fn flavour(&self) -> MyFlavour {
        self.flavour
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The unix socket; `root` gets in there without a password.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("sock")
    }

    /// The folder where the server may read and write files (`secure_file_priv`).
    pub fn files(&self) -> PathBuf {
        self.dir.join("files")
    }

    /// The certificates, where TLS is on.
    pub fn certs(&self) -> Option<&CertFiles> {
        self.certs.as_ref()
    }

    /// The process id of the server. Panics while it is stopped.
    pub fn pid(&self) -> u32 {
        self.guard.as_ref().expect("the server doesn't run").pid()
    }

    /// The control connection's URL, as `--engine` takes it.
    pub fn control_url(&self) -> String {
        format!("mysql://fencewire:fencewire@127.0.0.1:{}/", self.port)
    }

    /// A new, empty database in which `app` and `wire` may do everything; returns its name.
    pub fn fresh_db(&self) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let name = format!("t{}", COUNT.fetch_add(1, Ordering::SeqCst));
        self.create_db(&name);
        name
    }

    /// Creates a database in which `app` and `wire` may do everything.
    pub fn create_db(&self, name: &str) {
        let mut sql = format!("CREATE DATABASE `{name}`;");
        // In a grant, `_` and `%` are patterns.
        let pattern = name.replace('_', "\\_").replace('%', "\\%");
        for account in ["app", "wire"] {
            write!(sql, "GRANT ALL ON `{pattern}`.* TO {account}@'127.0.0.1';").unwrap();
        }
        self.sql("mysql", &sql);
    }

    /// Runs SQL as root over the unix socket; returns the rows, columns separated by tabs, without
    /// the columns' names. Panics when it fails.
    pub fn sql(&self, db: &str, sql: &str) -> String {
        self.try_sql(db, sql).unwrap_or_else(|e| panic!("SQL failed in {db}: {e}\n{sql}"))
    }

    /// As [`Self::sql`], but a failure comes back as the client's message, such as
    /// `ERROR 1062 (23000) at line 1: Duplicate entry …`.
    pub fn try_sql(&self, db: &str, sql: &str) -> Result<String, String> {
        let mut client = Command::new(client_program(self.flavour));
        let output = client
            .args(["--no-defaults", "--batch", "--skip-column-names", "--user=root"])
            .arg(format!("--socket={}", self.socket().display()))
            .args(["--default-character-set=utf8mb4", "--connect-timeout=30", "-e", sql, db])
            .env_remove("MYSQL_PWD")
            .stdin(Stdio::null())
            .output()
            .expect("the command line client does not start");
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
        super::tail(&self.log_file(), 40)
    }
}

impl Drop for MyCluster {
    fn drop(&mut self) {
        if self.guard.is_none() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

/// For both. Names are looked up for nobody: `app` comes from 127.0.0.1, not from `localhost`.
const SETTINGS: &str = "\
bind_address = 127.0.0.1
skip_name_resolve = ON
log_bin = binlog
binlog_format = ROW
local_infile = ON
log_bin_trust_function_creators = ON
max_connections = 300
max_connect_errors = 1000000
innodb_buffer_pool_size = 32M
innodb_lock_wait_timeout = 20
table_open_cache = 400
";

const MARIADB_SETTINGS: &str = "\
gtid_strict_mode = ON
innodb_log_file_size = 8M
";

const MYSQL_SETTINGS: &str = "\
mysqlx = OFF
gtid_mode = ON
enforce_gtid_consistency = ON
innodb_redo_log_capacity = 8M
";

const NOT_DURABLE: &str = "\
innodb_flush_method = nosync
innodb_flush_log_at_trx_commit = 0
innodb_doublewrite = OFF
sync_binlog = 0
";

/// One statement a line.
const ACCOUNTS: &str = "\
CREATE USER fencewire@'127.0.0.1' IDENTIFIED BY 'fencewire';
CREATE USER app@'127.0.0.1' IDENTIFIED BY 'app';
CREATE USER wire@'127.0.0.1' IDENTIFIED BY '';
GRANT SELECT, LOCK TABLES, SHOW VIEW, TRIGGER, EVENT, PROCESS ON *.* TO fencewire@'127.0.0.1';
";

/// What a control connection needs to end other accounts' sessions, to read the log's position and
/// to see prepared XA transactions, by each server's own names.
fn more_rights(flavour: MyFlavour) -> &'static str {
    match flavour {
        MyFlavour::MariaDb => {
            "GRANT BINLOG MONITOR, CONNECTION ADMIN ON *.* TO fencewire@'127.0.0.1';\n"
        }
        MyFlavour::MySql => {
            "GRANT REPLICATION CLIENT, CONNECTION_ADMIN, XA_RECOVER_ADMIN ON *.* \
             TO fencewire@'127.0.0.1';\n"
        }
    }
}

/// The folder above `usr/` where the flavour's programs are.
fn root_folder(flavour: MyFlavour) -> PathBuf {
    static MYSQL: OnceLock<PathBuf> = OnceLock::new();
    match flavour {
        MyFlavour::MariaDb => PathBuf::from("/"),
        MyFlavour::MySql => MYSQL.get_or_init(find_mysql).clone(),
    }
}

fn find_mysql() -> PathBuf {
    if let Some(root) = std::env::var_os("FENCEWIRE_TEST_MYSQL9_ROOT") {
        return PathBuf::from(root);
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/mysql9.sh");
    let output = Command::new(script).arg("where").output().expect("bash does not start");
    assert!(output.status.success(), "no MySQL 9: {}", text(&output));
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end())
}

/// The server program: `mariadbd` or `mysqld`.
pub fn server_program(flavour: MyFlavour) -> PathBuf {
    let name = match flavour {
        MyFlavour::MariaDb => "mariadbd",
        MyFlavour::MySql => "mysqld",
    };
    let program = root_folder(flavour).join("usr/sbin").join(name);
    assert!(program.exists(), "no {} here: run tools/setup.sh test", program.display());
    program
}

/// The command line client: `mariadb` or `mysql`.
pub fn client_program(flavour: MyFlavour) -> PathBuf {
    root_folder(flavour).join("usr/bin").join(flavour.name())
}

/// `mariadb-dump` or `mysqldump`.
pub fn dump_program(flavour: MyFlavour) -> PathBuf {
    let name = match flavour {
        MyFlavour::MariaDb => "mariadb-dump",
        MyFlavour::MySql => "mysqldump",
    };
    root_folder(flavour).join("usr/bin").join(name)
}

/// `mariadb-binlog` or `mysqlbinlog`.
pub fn binlog_program(flavour: MyFlavour) -> PathBuf {
    let name = match flavour {
        MyFlavour::MariaDb => "mariadb-binlog",
        MyFlavour::MySql => "mysqlbinlog",
    };
    root_folder(flavour).join("usr/bin").join(name)
}

/// The server, with its settings from one file and the rest from where its programs are.
fn server_command(flavour: MyFlavour, settings: &Path) -> Vec<OsString> {
    let mut command = vec![server_program(flavour).into_os_string()];
    command.push(format!("--defaults-file={}", settings.display()).into());
    // Plugins are found by the settings file, where a test may name another folder.
    let folders = folders(flavour).filter(|folder| !folder.starts_with("--plugin-dir"));
    command.extend(folders.map(OsString::from));
    command
}

/// Where a server finds its own files: those of an unpacked MySQL aren't where it was built for.
fn folders(flavour: MyFlavour) -> impl Iterator<Item = String> {
    let usr = root_folder(flavour).join("usr").display().to_string();
    let own = match flavour {
        MyFlavour::MariaDb => Vec::new(),
        MyFlavour::MySql => vec![
            format!("--basedir={usr}"),
            format!("--lc-messages-dir={usr}/share/mysql"),
            format!("--character-sets-dir={usr}/share/mysql/charsets"),
        ],
    };
    own.into_iter().chain([format!("--plugin-dir={usr}/lib/mysql/plugin")])
}

/// Whether a server says hello on the port: with a greeting, not with an error.
fn greets(port: u16) -> bool {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let Ok(mut link) = TcpStream::connect_timeout(&address, Duration::from_secs(5)) else {
        return false;
    };
    link.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut start = [0; 5];
    link.read_exact(&mut start).is_ok() && start[4] == 10
}

/// Copies the flavour's data directory to `to`, and makes it first where there is none yet.
fn copy_template(flavour: MyFlavour, to: &Path) {
    let mut version = Command::new(server_program(flavour));
    let version = run(version.args(["--no-defaults", "--version"]), "--version");
    let mut hasher = DefaultHasher::new();
    (version, ACCOUNTS, more_rights(flavour), SETTINGS, MARIADB_SETTINGS, MYSQL_SETTINGS)
        .hash(&mut hasher);
    let name = format!("{}-{:016x}", flavour.name(), hasher.finish());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(folder).unwrap();
    let template = folder.join(&name);
    // Other test programs may want the same one at the same moment.
    let lock = File::create(folder.join(format!("{name}.lock"))).unwrap();
    lock.lock().unwrap();
    if !template.exists() {
        let made = make_template(flavour);
        let new = folder.join(format!("{name}.new"));
        remove(&new);
        copy_folder(&made.join("data"), &new);
        std::fs::rename(&new, &template).unwrap();
        remove(&made);
    }
    drop(lock);
    copy_folder(&template, to);
}

fn remove(folder: &Path) {
    match std::fs::remove_dir_all(folder) {
        Err(e) if e.kind() != ErrorKind::NotFound => panic!("{}: {e}", folder.display()),
        Ok(()) | Err(_) => {}
    }
}

fn copy_folder(from: &Path, to: &Path) {
    let mut copy = Command::new("cp");
    run(copy.args(["-R", "--reflink=auto"]).arg(from).arg(to), "cp");
    let mut give = Command::new("chmod");
    run(give.args(["-R", "u+rwX,go+rX"]).arg(to), "chmod");
}

/// A folder with a new data directory, `data`, in it.
fn make_template(flavour: MyFlavour) -> PathBuf {
    let dir = super::test_dir(flavour.name());
    std::fs::create_dir(dir.join("data")).unwrap();
    own_by_server_user(&dir);
    match flavour {
        MyFlavour::MariaDb => make_mariadb(&dir),
        MyFlavour::MySql => make_mysql(&dir),
    }
    dir
}

fn make_mariadb(dir: &Path) {
    let data = format!("--datadir={}", dir.join("data").display());
    let fast = ["--innodb-flush-method=nosync", "--innodb-log-file-size=8M"];
    let mut command = prefixed(Path::new("/usr/bin/mariadb-install-db"), dir);
    command.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
    run(command.args(["--skip-test-db", "--skip-name-resolve", &data]).args(fast), "install-db");
    // The reload makes account statements possible in this mode; then only root's own line is left.
    let mut lines = "FLUSH PRIVILEGES;\n".to_owned();
    lines.push_str(
        "DELETE FROM mysql.global_priv WHERE User IN ('', 'root') AND Host <> 'localhost';\n",
    );
    lines.push_str("FLUSH PRIVILEGES;\n");
    lines.push_str(ACCOUNTS);
    lines.push_str(more_rights(MyFlavour::MariaDb));
    let file = dir.join("accounts.sql");
    std::fs::write(&file, lines).unwrap();
    let mut command = prefixed(&server_program(MyFlavour::MariaDb), dir);
    command.args(["--no-defaults", "--bootstrap", &data]).args(fast);
    command.stdin(File::open(&file).unwrap());
    run(&mut command, "mariadbd --bootstrap");
}

fn make_mysql(dir: &Path) {
    let file = dir.join("accounts.sql");
    std::fs::write(&file, format!("{ACCOUNTS}{}", more_rights(MyFlavour::MySql))).unwrap();
    let mut command = prefixed(&server_program(MyFlavour::MySql), dir);
    command.args(["--no-defaults", "--initialize-insecure", "--innodb-flush-method=nosync"]);
    command.args(["--innodb-redo-log-capacity=8M", "--log-error-verbosity=2"]);
    command.arg(format!("--datadir={}", dir.join("data").display()));
    command.arg(format!("--init-file={}", file.display())).args(folders(MyFlavour::MySql));
    run(&mut command, "mysqld --initialize-insecure");
    // Each copy gets an identity of its own when it starts.
    let _ = std::fs::remove_file(dir.join("data/auto.cnf"));
}

/// A program as the servers' user, in a folder of theirs.
fn prefixed(program: &Path, dir: &Path) -> Command {
    let mut words = as_server_user();
    words.push(program.into());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(dir).env("TMPDIR", dir).stdin(Stdio::null());
    command
}

fn run(command: &mut Command, what: &str) -> String {
    let output: Output = command.output().unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(output.status.success(), "{what} failed: {}", text(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
