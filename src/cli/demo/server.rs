//! A throw-away engine in a folder of its own.
//!
//! Purpose: finds the server programs, makes a data directory, starts the server, and leaves
//! nothing behind. What differs between engines is in `server/postgres.rs` and `server/mysql.rs`;
//! every account needs a password that only this process knows. As root it runs as somebody else.
//!
//! Invariant: server and folder are gone when the [`Server`] is dropped, and also when this process
//! dies in any other way, because a small shell waits for the end of a pipe that only this process
//! holds. The folder's name is one that `tools/sweep.sh` knows.
//!
//! Called by `demo.rs`. It knows nothing of the proxy.

mod mysql;
mod postgres;

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use super::error::DemoError;
use super::kind::Kind;
use crate::base::secret::Secret;

/// The superuser of a PostgreSQL; on any engine, the account of the proxy's control connection.
pub(super) const SUPERUSER: &str = "fencewire";
/// The account of the slow client on MariaDB and MySQL.
pub(super) const SLOW_USER: &str = "slow_batch";
/// The port in the name of PostgreSQL's socket; nothing listens on TCP there.
pub(super) const PORT: u16 = 5432;
/// How long a server may take until it accepts connections.
const READY_MAX: Duration = Duration::from_secs(60);
/// Longest folder whose socket still has a path that the system accepts, in bytes.
const FOLDER_BYTES_MAX: usize = 85;

/// Waits for the end of the pipe, then ends the last process it was told of, if that still works
/// in the folder, and removes the folder. `$2` is the first signal, `$3` what stands before the
/// process id: a `-` for its whole group.
const GUARDIAN: &str = r#"
folder=$1 first=$2 before=$3 pid=
trap '' INT HUP TERM
works() { [ -n "$pid" ] && tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$folder/"; }
while read -r told; do pid=$told; done
tries=0
while works && [ $tries -lt 200 ]; do
  case $tries in 0) kill -s "$first" -- "$before$pid" ;; 100) kill -s KILL -- "$before$pid" ;; esac
  tries=$((tries + 1))
  sleep 0.05
done
rm -rf "$folder"
"#;

/// The user that server programs run as, where it isn't our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct User {
    uid: u32,
    gid: u32,
}

/// The shell that outlives this process for a moment.
struct Guardian {
    shell: Child,
    pipe: Option<ChildStdin>,
    folder: PathBuf,
}

impl Guardian {
    fn start(folder: &Path, kind: Kind) -> Result<Self, DemoError> {
        let (first, before) = match kind {
            Kind::Postgres => ("QUIT", ""),
            // Nothing of it is wanted any more; its set-up is a script with children.
            Kind::MariaDb | Kind::MySql => ("KILL", "-"),
        };
        let mut command = Command::new("sh");
        command.args(["-c", GUARDIAN, "fencewire-demo-guardian"]).arg(folder);
        command.args([first, before]).current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut shell = command.spawn().map_err(|e| program("sh", &e.to_string()))?;
        Ok(Self { pipe: shell.stdin.take(), shell, folder: folder.to_owned() })
    }

    /// Names the process that must not outlive us.
    fn watch(&mut self, pid: u32) -> Result<(), DemoError> {
        let lost = |e: std::io::Error| program("the guardian shell", &e.to_string());
        match &mut self.pipe {
            Some(pipe) => writeln!(pipe, "{pid}").map_err(lost),
            None => Ok(()),
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // The shell bounds its own time. A folder it left is removed here.
        self.shell.wait().ok();
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder).ok();
        }
    }
}

/// The programs of one engine.
enum Programs {
    Postgres(postgres::Programs),
    My(mysql::Programs),
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Only at a unix socket in this folder.
    Socket(PathBuf),
    /// At this unix socket and at a port of 127.0.0.1.
    Both {
        /// The socket itself.
        socket: PathBuf,
        /// The port.
        port: u16,
    },
}

/// A running engine. Dropping it stops the server and removes its folder; that may take some
/// tenths of a second.
pub(super) struct Server {
    /// Removes everything; dropped before the child is reaped.
    guardian: Option<Guardian>,
    process: Option<Child>,
    programs: Programs,
    kind: Kind,
    user: Option<User>,
    folder: PathBuf,
    password: Secret,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.guardian.take());
        if let Some(mut process) = self.process.take() {
            // It is gone by now; this only reaps it.
            process.kill().ok();
            process.wait().ok();
        }
    }
}

impl Server {
    /// Makes the folder and the data directory, and starts the server; it may not be ready yet.
    ///
    /// Blocks for some seconds. Whatever was made is gone again when this fails.
    pub(super) fn start(kind: Kind, path: Option<&OsStr>) -> Result<Self, DemoError> {
        let programs = match kind {
            Kind::Postgres => Programs::Postgres(postgres::find(path)?),
            Kind::MariaDb | Kind::MySql => Programs::My(mysql::find(kind, path)?),
        };
        let folder = make_folder()?;
        let guardian = Guardian::start(&folder, kind).inspect_err(|_| {
            fs::remove_dir(&folder).ok();
        })?;
        let user = if owner_is_root(&folder)? { Some(server_user(kind)?) } else { None };
        let mut server = Self {
            guardian: Some(guardian),
            process: None,
            programs,
            kind,
            user,
            folder,
            password: Secret::new(uuid::Uuid::new_v4().simple().to_string()),
        };
        match kind {
            Kind::Postgres => postgres::init(&mut server)?,
            Kind::MariaDb | Kind::MySql => mysql::init(&mut server)?,
        }
        server.launch()?;
        Ok(server)
    }

    /// Whose server it is.
    pub(super) const fn kind(&self) -> Kind {
        self.kind
    }

    /// What it is, in words.
    pub(super) fn described(&self) -> String {
        match &self.programs {
            Programs::Postgres(programs) => {
                format!(
                    "PostgreSQL {}, wal_level logical, in a folder of its own",
                    programs.version
                )
            }
            Programs::My(programs) => {
                let name = self.kind.shown();
                format!("{name} {}, binary log and GTIDs, in a folder of its own", programs.version)
            }
        }
    }

    /// The folder, for other things that shall go away with it.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where it listens.
    pub(super) fn place(&self) -> Place {
        match &self.programs {
            Programs::Postgres(_) => Place::Socket(self.socket_folder()),
            Programs::My(programs) => {
                Place::Both { socket: self.folder.join("sock/mysqld.sock"), port: programs.port }
            }
        }
    }

    fn socket_folder(&self) -> PathBuf {
        self.folder.join("sock")
    }

    /// The password of every account.
    pub(super) const fn password(&self) -> &Secret {
        &self.password
    }

    /// Waits until the server accepts connections.
    ///
    /// # Cancel safety
    /// Cancel safe: it only looks.
    pub(super) async fn ready(&mut self) -> Result<(), DemoError> {
        let deadline = Instant::now() + READY_MAX;
        loop {
            let ready = match &self.programs {
                Programs::Postgres(_) => postgres::is_ready(&self.folder),
                Programs::My(_) => mysql::is_ready(&self.folder),
            };
            if ready {
                return Ok(());
            }
            if let Some(process) = &mut self.process
                && let Ok(Some(end)) = process.try_wait()
            {
                return Err(program("the server", &format!("ended before it was ready ({end})")));
            }
            if Instant::now() >= deadline {
                return Err(DemoError::Late("the start of the engine", READY_MAX.as_secs()));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A program of the server, as its user, in its folder, out of reach of the terminal's signals.
    fn program(&self, path: &Path) -> Command {
        let mut command = Command::new(path);
        if let Some(User { uid, gid }) = self.user {
            command.uid(uid).gid(gid);
        }
        for (variable, _) in std::env::vars_os() {
            let name = variable.as_encoded_bytes();
            if name.starts_with(b"PG") || name.starts_with(b"MYSQL") {
                command.env_remove(variable);
            }
        }
        command.current_dir(&self.folder).process_group(0).stdin(Stdio::null());
        command
    }

    fn watch(&mut self, pid: u32) -> Result<(), DemoError> {
        // `tools/sweep.sh` looks for this file.
        write_private(&self.folder.join("server.pid"), &format!("{pid}\n"))?;
        self.guardian.as_mut().map_or(Ok(()), |guardian| guardian.watch(pid))
    }

    /// Gives folders and files to the server's user.
    fn give_away(&self, paths: &[&Path]) -> Result<(), DemoError> {
        let Some(User { uid, gid }) = self.user else { return Ok(()) };
        for path in paths {
            chown(path, Some(uid), Some(gid)).map_err(|e| file("can't give away", path, e))?;
        }
        Ok(())
    }

    /// Runs a step of the set-up to its end; it is ended with us.
    fn run(&mut self, name: &str, mut command: Command) -> Result<(), DemoError> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|e| program(name, &e.to_string()))?;
        self.watch(child.id())?;
        let output = child.wait_with_output().map_err(|e| program(name, &e.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(program(name, &format!("failed ({}): {words}", output.status)))
    }

    fn launch(&mut self) -> Result<(), DemoError> {
        let log = self.folder.join("server.log");
        let out = write_private(&log, "")?;
        let again = out.try_clone().map_err(|e| file("can't write", &log, e))?;
        let mut command = match &self.programs {
            Programs::Postgres(programs) => postgres::server(self, programs),
            Programs::My(programs) => mysql::server(self, programs),
        };
        command.stdout(out).stderr(again);
        let child = command.spawn().map_err(|e| program("the server", &e.to_string()))?;
        let pid = child.id();
        self.process = Some(child);
        self.watch(pid)
    }
}

fn program(name: &str, how: &str) -> DemoError {
    DemoError::Program { program: name.to_owned(), how: how.to_owned() }
}

fn file(what: &'static str, path: &Path, source: std::io::Error) -> DemoError {
    DemoError::File { what, path: path.to_owned(), source }
}

fn make_private(path: &Path) -> Result<(), DemoError> {
    DirBuilder::new().mode(0o700).create(path).map_err(|e| file("can't create", path, e))
}

fn write_private(path: &Path, text: &str) -> Result<File, DemoError> {
    let mut options = OpenOptions::new();
    let opened = options.create(true).truncate(true).write(true).mode(0o600).open(path);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()).map(|()| file));
    written.map_err(|e| file("can't write", path, e))
}

fn append(path: &Path, text: &str) -> Result<(), DemoError> {
    let opened = OpenOptions::new().append(true).open(path);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|e| file("can't write", path, e))
}

/// A new private folder `fencewire-demo-PID-START-0`, in a place that its server's user can reach.
fn make_folder() -> Result<PathBuf, DemoError> {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let start = fields.split(' ').nth(19).unwrap_or("0");
    let name = format!("fencewire-demo-{}-{start}-0", std::process::id());
    let mut base = std::env::temp_dir();
    if base.as_os_str().len() + name.len() > FOLDER_BYTES_MAX || !is_open_to_all(&base) {
        base = PathBuf::from("/tmp");
    }
    let folder = base.join(name);
    make_private(&folder).map(|()| folder)
}

/// Whether everybody may pass through the folder and all above it.
fn is_open_to_all(folder: &Path) -> bool {
    let open = |path: &Path| fs::metadata(path).is_ok_and(|found| found.mode() & 0o001 != 0);
    folder.is_absolute() && folder.ancestors().all(open)
}

fn owner_is_root(folder: &Path) -> Result<bool, DemoError> {
    let found = fs::metadata(folder).map_err(|e| file("can't look at", folder, e))?;
    Ok(found.uid() == 0)
}

fn server_user(kind: Kind) -> Result<User, DemoError> {
    let path = Path::new("/etc/passwd");
    let text = fs::read_to_string(path).map_err(|e| file("can't read", path, e))?;
    let own = match kind {
        Kind::Postgres => "postgres",
        Kind::MariaDb | Kind::MySql => "mysql",
    };
    user_in(&text, own).ok_or(DemoError::NoUser)
}

/// The engine's own user, else `postgres` or `nobody`, out of the text of a passwd file.
fn user_in(passwd: &str, own: &str) -> Option<User> {
    let find = |name: &str| {
        let mut fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let found = fields.find(|fields| fields.first() == Some(&name))?;
        let (uid, gid) = (found.get(2)?.parse().ok()?, found.get(3)?.parse().ok()?);
        (uid != 0).then_some(User { uid, gid })
    };
    [own, "postgres", "nobody"].into_iter().find_map(find)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_finds_somebody_else() {
        let user = |uid, gid| Some(User { uid, gid });
        let nobody = "root:x:0:0::/:\nnobody:x:65534:65534::/:\n";
        let find = |passwd: &str| user_in(passwd, "mysql");
        assert_eq!(find(nobody), user(65534, 65534));
        let both = format!("{nobody}postgres:x:101:102::/:\n");
        assert_eq!(find(&both), user(101, 102));
        assert_eq!(find(&format!("{both}mysql:x:103:104::/:")), user(103, 104));
        assert_eq!(find("root:x:0:0::/:\npostgres:x:0:0::/:"), None);
        assert_eq!(find(""), None);
    }

    #[test]
    fn a_dropped_guardian_removes_folder_and_process() {
        for kind in [Kind::Postgres, Kind::MySql] {
            let root = tempfile::tempdir().unwrap();
            let folder = root.path().join("here");
            make_private(&folder).unwrap();
            let mut guardian = Guardian::start(&folder, kind).unwrap();
            // The folder is on its command line, as it is on a server's.
            let mut child = Command::new("sh")
                .args(["-c", "while :; do read -r line || exit; done", "sh"])
                .arg(format!("{}/x", folder.display()))
                .process_group(0)
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            guardian.watch(child.id()).unwrap();
            drop(guardian);
            assert!(!folder.exists());
            let end = child.wait().unwrap();
            assert!(!end.success(), "{end}");
        }
    }
}
