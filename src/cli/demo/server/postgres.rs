//! A throw-away PostgreSQL. It listens on a socket in its folder and nowhere else.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{PORT, Programs as Any, SUPERUSER, Server, append, file, make_private, write_private};
use crate::cli::demo::error::DemoError;

const SETTINGS: &str = "\
listen_addresses = ''
wal_level = logical
max_wal_senders = 4
max_replication_slots = 4
max_prepared_transactions = 10
max_connections = 100
shared_buffers = 32MB
fsync = off
full_page_writes = off
autovacuum = off
";

/// The folder of the programs, and what `postgres --version` calls itself, such as `15.14`.
#[derive(Debug)]
pub(super) struct Programs {
    bin: PathBuf,
    pub(super) version: String,
}

/// Whether a server in the folder says that it is ready.
pub(super) fn is_ready(folder: &Path) -> bool {
    let text = fs::read_to_string(folder.join("data/postmaster.pid")).unwrap_or_default();
    text.lines().nth(7).is_some_and(|line| line.trim() == "ready")
}

/// Makes the cluster.
pub(super) fn init(server: &mut Server) -> Result<(), DemoError> {
    let (data, secret) = (server.folder.join("data"), server.folder.join("secret"));
    make_private(&server.socket_folder())?;
    write_private(&secret, server.password.expose())?;
    server.give_away(&[&server.folder, &server.socket_folder(), &secret])?;
    let initdb = match &server.programs {
        Any::Postgres(programs) => programs.bin.join("initdb"),
        Any::My(_) => return Ok(()),
    };
    let mut command = server.program(&initdb);
    command.args(["-U", SUPERUSER, "-A", "password", "-E", "UTF8", "--locale=C", "--no-sync"]);
    command.arg("--pwfile").arg(&secret).arg("-D").arg(&data);
    server.run("initdb", command)?;
    fs::remove_file(&secret).map_err(|e| file("can't remove", &secret, e))?;
    let conf = data.join("postgresql.conf");
    let socket = server.socket_folder().display().to_string().replace('\'', "''");
    let more = format!("\n{SETTINGS}port = {PORT}\nunix_socket_directories = '{socket}'\n");
    append(&conf, &more)?;
    // Every way in is the socket, and needs the password.
    let hba = data.join("pg_hba.conf");
    fs::write(&hba, "local all all password\n").map_err(|e| file("can't write", &hba, e))
}

/// The command that runs the server.
pub(super) fn server(server: &Server, programs: &Programs) -> Command {
    let mut command = server.program(&programs.bin.join("postgres"));
    command.arg("-D").arg(server.folder.join("data"));
    command
}

/// Folders that may hold server programs, best first: those in PATH, then Debian's, newest first.
fn candidates(path: Option<&OsStr>, debian: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = path.map(std::env::split_paths).into_iter().flatten().collect();
    let entries = fs::read_dir(debian).into_iter().flatten().flatten();
    let mut versions: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    versions.sort_unstable();
    found.extend(versions.iter().rev().map(|version| debian.join(format!("{version}/bin"))));
    found.retain(|bin| ["initdb", "postgres"].iter().all(|name| bin.join(name).is_file()));
    found
}

/// The programs of the first folder whose server says its version.
pub(super) fn find(path: Option<&OsStr>) -> Result<Programs, DemoError> {
    let says = |bin: PathBuf| {
        let output = Command::new(bin.join("postgres")).arg("--version").output().ok()?;
        let version = version_in(&String::from_utf8_lossy(&output.stdout))?;
        Some(Programs { bin, version })
    };
    let debian = Path::new("/usr/lib/postgresql");
    candidates(path, debian).into_iter().find_map(says).ok_or(DemoError::NoServer {
        server: "PostgreSQL",
        programs: "an initdb and a postgres",
        places: "/usr/lib/postgresql/*/bin",
        remedy: "`make demo` installs it; by hand: apt-get install postgresql",
    })
}

/// `15.14` out of `postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)`.
fn version_in(text: &str) -> Option<String> {
    let rest = text.trim().strip_prefix("postgres (PostgreSQL) ")?;
    rest.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_for_in_path_then_newest_first() {
        let root = tempfile::tempdir().unwrap();
        let make = |folder: &str, names: &[&str]| {
            let folder = root.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            names.iter().for_each(|name| fs::write(folder.join(name), "").unwrap());
            folder
        };
        let nine = make("9/bin", &["initdb", "postgres"]);
        let fifteen = make("15/bin", &["initdb", "postgres"]);
        make("16/bin", &["postgres"]);
        make("x/bin", &["initdb", "postgres"]);
        let mine = make("mine", &["initdb", "postgres", "pg_ctl"]);
        let half = make("half", &["postgres"]);
        let path = std::env::join_paths([&half, &mine]).unwrap();
        let found = candidates(Some(&path), root.path());
        assert_eq!(found, [mine, fifteen.clone(), nine.clone()]);
        assert_eq!(candidates(None, root.path()), [fifteen, nine]);
        assert!(candidates(None, Path::new("/nonexistent")).is_empty());
    }

    #[test]
    fn versions_are_read() {
        let debian = "postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n";
        assert_eq!(version_in(debian).as_deref(), Some("15.14"));
        assert_eq!(version_in("postgres (PostgreSQL) 17beta1").as_deref(), Some("17beta1"));
        assert_eq!(version_in("pg_ctl wrapper"), None);
    }
}
