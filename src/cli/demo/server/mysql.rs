//! A throw-away MariaDB or MySQL. It listens on a socket in its folder and on 127.0.0.1.
//!
//! Its programs come from PATH, from Debian's folders, or, MySQL's, from where `tools/mysql9.sh`
//! unpacks them.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Programs as Any, SUPERUSER, Server, file, make_private, program, write_private};
use crate::cli::demo::error::DemoError;
use crate::cli::demo::kind::Kind;

/// For both. Nothing is synced: a throw-away server has nothing to lose.
const SETTINGS: &str = "\
bind_address = 127.0.0.1
skip_name_resolve = ON
log_bin = binlog
binlog_format = ROW
server_id = 1
max_connections = 100
innodb_buffer_pool_size = 64M
innodb_flush_log_at_trx_commit = 0
innodb_flush_method = nosync
innodb_doublewrite = OFF
sync_binlog = 0
";

const MARIADB: &str = "\
gtid_strict_mode = ON
";

const MYSQL: &str = "\
mysqlx = OFF
secure_file_priv = NULL
gtid_mode = ON
enforce_gtid_consistency = ON
tls_version = ''
";

/// Where the programs are.
#[derive(Debug)]
pub(super) struct Programs {
    server: PathBuf,
    /// MariaDB's script that makes a data directory; MySQL's server does that itself.
    install: Option<PathBuf>,
    /// Such as `10.11.14-MariaDB-0+deb12u2`.
    pub(super) version: String,
    /// The port on 127.0.0.1.
    pub(super) port: u16,
}

/// Folders that may hold programs, best first.
fn folders(kind: Kind, path: Option<&OsStr>, home: Option<&OsStr>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = path.map(std::env::split_paths).into_iter().flatten().collect();
    found.extend(["/usr/sbin", "/usr/bin", "/usr/libexec"].map(PathBuf::from));
    if kind == Kind::MySql {
        let unpacked = "mysql-9/root/usr/sbin";
        found.push(Path::new("/var/cache/fencewire").join(unpacked));
        found
            .extend(home.map(|home| Path::new(home).join(".cache/fencewire-tools").join(unpacked)));
    }
    found
}

/// `10.11.14-MariaDB-0+deb12u2` out of what `--version` says; `None` where it is the other one's.
fn version_in(kind: Kind, text: &str) -> Option<String> {
    let (_, rest) = text.split_once(" Ver ")?;
    let version = rest.split_whitespace().next()?;
    (version.contains("MariaDB") == (kind == Kind::MariaDb)).then(|| version.to_owned())
}

/// The first server that says its version, with what else is needed.
pub(super) fn find(kind: Kind, path: Option<&OsStr>) -> Result<Programs, DemoError> {
    let home = std::env::var_os("HOME");
    let folders = folders(kind, path, home.as_deref());
    let named = |name: &str| -> Vec<PathBuf> {
        folders.iter().map(|folder| folder.join(name)).filter(|path| path.is_file()).collect()
    };
    let (name, missing) = match kind {
        Kind::Postgres | Kind::MariaDb => ("mariadbd", MARIADB_MISSING),
        Kind::MySql => ("mysqld", MYSQL_MISSING),
    };
    let says = |server: PathBuf| {
        let output = Command::new(&server).args(["--no-defaults", "--version"]).output().ok()?;
        let version = version_in(kind, &String::from_utf8_lossy(&output.stdout))?;
        Some((server, version))
    };
    let (server, version) = named(name).into_iter().find_map(says).ok_or_else(missing)?;
    let install = match kind {
        Kind::Postgres | Kind::MariaDb => {
            Some(named("mariadb-install-db").into_iter().next().ok_or_else(missing)?)
        }
        Kind::MySql => None,
    };
    Ok(Programs { server, install, version, port: free_port()? })
}

const MARIADB_MISSING: fn() -> DemoError = || DemoError::NoServer {
    server: "MariaDB",
    programs: "a mariadbd and a mariadb-install-db",
    places: "/usr/sbin and /usr/bin",
    remedy: "`make demo` installs it; by hand: apt-get install mariadb-server-core",
};

const MYSQL_MISSING: fn() -> DemoError = || DemoError::NoServer {
    server: "MySQL",
    programs: "a mysqld of MySQL's own",
    places: "/usr/sbin and where tools/mysql9.sh unpacks one",
    remedy: "On Debian 12 run tools/mysql9.sh first; it changes nothing of the system",
};

/// A port that nobody listens on now. Somebody may before the server does: then it doesn't start,
/// and says so.
fn free_port() -> Result<u16, DemoError> {
    let bound = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    bound
        .map(|address| address.port())
        .map_err(|e| program("127.0.0.1", &format!("has no port: {e}")))
}

/// Whether a server in the folder says that it is ready.
pub(super) fn is_ready(folder: &Path) -> bool {
    fs::metadata(folder.join("data/mysqld.pid")).is_ok_and(|found| found.len() > 0)
}

/// Where an unpacked server finds its own files; Debian's knows.
fn own_files(programs: &Programs) -> Vec<String> {
    let usr = programs.server.parent().and_then(Path::parent);
    match usr {
        Some(usr) if usr != Path::new("/usr") && usr.join("share/mysql").is_dir() => {
            let usr = usr.display();
            vec![
                format!("--basedir={usr}"),
                format!("--plugin-dir={usr}/lib/mysql/plugin"),
                format!("--lc-messages-dir={usr}/share/mysql"),
                format!("--character-sets-dir={usr}/share/mysql/charsets"),
            ]
        }
        Some(_) | None => Vec::new(),
    }
}

/// The accounts, one statement a line. The password is hexadecimal digits: nothing needs quoting.
fn accounts(kind: Kind, password: &str) -> String {
    let mut lines = String::new();
    if kind == Kind::MariaDb {
        // Account statements need the tables of accounts, which this mode leaves out.
        lines.push_str("FLUSH PRIVILEGES;\n");
        lines.push_str("DELETE FROM mysql.global_priv WHERE Host <> 'localhost';\n");
        lines.push_str("FLUSH PRIVILEGES;\n");
    }
    let control = format!("{SUPERUSER}@'127.0.0.1'");
    let rights = match kind {
        Kind::Postgres | Kind::MariaDb => "BINLOG MONITOR, CONNECTION ADMIN",
        Kind::MySql => "REPLICATION CLIENT, CONNECTION_ADMIN, XA_RECOVER_ADMIN",
    };
    for line in [
        format!("ALTER USER root@localhost IDENTIFIED BY '{password}'"),
        format!("CREATE USER {control} IDENTIFIED BY '{password}'"),
        format!(
            "GRANT SELECT, LOCK TABLES, SHOW VIEW, TRIGGER, EVENT, PROCESS ON *.* TO {control}"
        ),
        format!("GRANT {rights} ON *.* TO {control}"),
    ] {
        lines.push_str(&line);
        lines.push_str(";\n");
    }
    lines
}

/// Makes the data directory and the accounts.
pub(super) fn init(server: &mut Server) -> Result<(), DemoError> {
    let (data, secret) = (server.folder.join("data"), server.folder.join("secret"));
    let (tmp, socket) = (server.folder.join("tmp"), server.socket_folder());
    for folder in [&data, &tmp, &socket] {
        make_private(folder)?;
    }
    write_private(&secret, &accounts(server.kind, server.password.expose()))?;
    let conf = server.folder.join("my.cnf");
    write_private(&conf, &settings(server))?;
    server.give_away(&[&server.folder, &data, &tmp, &socket, &secret, &conf])?;
    let Any::My(programs) = &server.programs else { return Ok(()) };
    let fast = ["--innodb-flush-method=nosync", "--innodb-flush-log-at-trx-commit=0"];
    let data_option = format!("--datadir={}", data.display());
    let commands = match &programs.install {
        Some(install) => {
            let mut make = ours(server, install);
            make.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
            make.args(["--skip-test-db", "--skip-name-resolve", &data_option]).args(fast);
            let mut add = ours(server, &programs.server);
            add.args(["--no-defaults", "--bootstrap", &data_option]).args(fast);
            let input = File::open(&secret).map_err(|e| file("can't read", &secret, e))?;
            add.stdin(Stdio::from(input));
            vec![("mariadb-install-db", make), ("mariadbd --bootstrap", add)]
        }
        None => {
            let mut make = ours(server, &programs.server);
            make.args(["--no-defaults", "--initialize-insecure", &data_option]).args(fast);
            make.arg(format!("--init-file={}", secret.display())).args(own_files(programs));
            vec![("mysqld --initialize", make)]
        }
    };
    for (name, command) in commands {
        server.run(name, command)?;
    }
    fs::remove_file(&secret).map_err(|e| file("can't remove", &secret, e))
}

fn settings(server: &Server) -> String {
    let mut lines = "[mysqld]\n".to_owned();
    for (name, path) in [
        ("datadir", "data"),
        ("socket", "sock/mysqld.sock"),
        ("pid_file", "data/mysqld.pid"),
        ("tmpdir", "tmp"),
    ] {
        // Writing into a String can't fail.
        writeln!(lines, "{name} = {}", server.folder.join(path).display()).ok();
    }
    if let Any::My(programs) = &server.programs {
        writeln!(lines, "port = {}", programs.port).ok();
    }
    lines.push_str(SETTINGS);
    lines.push_str(match server.kind {
        Kind::Postgres | Kind::MariaDb => MARIADB,
        Kind::MySql => MYSQL,
    });
    lines
}

/// A program of the server's that keeps its temporary files in the folder: its user may not be
/// able to write where we do.
fn ours(server: &Server, path: &Path) -> Command {
    let mut command = server.program(path);
    command.env("TMPDIR", server.folder.join("tmp"));
    command
}

/// The command that runs the server.
pub(super) fn server(server: &Server, programs: &Programs) -> Command {
    let mut command = ours(server, &programs.server);
    command.arg(format!("--defaults-file={}", server.folder.join("my.cnf").display()));
    command.args(own_files(programs));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flavour_knows_its_own() {
        let maria = "mariadbd  Ver 10.11.14-MariaDB-0+deb12u2 for debian-linux-gnu on x86_64";
        let mysql = "/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))";
        let found = version_in(Kind::MariaDb, maria);
        assert_eq!(found.as_deref(), Some("10.11.14-MariaDB-0+deb12u2"));
        assert_eq!(version_in(Kind::MySql, mysql).as_deref(), Some("9.7.4-2"));
        // Debian's mysqld is a link to mariadbd.
        assert_eq!(version_in(Kind::MySql, maria), None);
        assert_eq!(version_in(Kind::MariaDb, mysql), None);
        assert_eq!(version_in(Kind::MySql, "no server"), None);
    }

    #[test]
    fn an_unpacked_mysql_is_looked_for_last() {
        let (path, home) = (OsStr::new("/mine:/other"), OsStr::new("/home/me"));
        let mysql = folders(Kind::MySql, Some(path), Some(home));
        assert_eq!(mysql.first(), Some(&PathBuf::from("/mine")));
        let last = "/home/me/.cache/fencewire-tools/mysql-9/root/usr/sbin";
        assert_eq!(mysql.last(), Some(&PathBuf::from(last)));
        let maria = folders(Kind::MariaDb, None, Some(home));
        assert!(maria.iter().all(|folder| folder.starts_with("/usr")), "{maria:?}");
    }

    #[test]
    fn every_account_gets_the_password() {
        for kind in [Kind::MariaDb, Kind::MySql] {
            let lines = accounts(kind, "0abc");
            assert_eq!(lines.matches("IDENTIFIED BY '0abc'").count(), 2, "{lines}");
            assert!(lines.lines().all(|line| line.ends_with(';')), "{lines}");
        }
    }
}
