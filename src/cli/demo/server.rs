//! A throw-away PostgreSQL in a folder of its own.
//!
//! Purpose: finds the server programs, makes a cluster, starts it, and leaves nothing behind. It
//! listens on a socket in the folder and nowhere else; every role needs a password that only this
//! process knows. As root it runs as `postgres`, or as `nobody`.
//!
//! Invariant: server and folder are gone when the [`Server`] is dropped, and also when this process
//! dies in any other way, because a small shell waits for the end of a pipe that only this process
//! holds. The folder's name is one that `tools/sweep.sh` knows.
//!
//! Called by `demo.rs`. It knows nothing of the proxy.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use super::error::DemoError;
use crate::base::secret::Secret;

/// The superuser of the cluster, and the role of the proxy's control connection.
pub(super) const SUPERUSER: &str = "fencewire";
/// The port in the socket's name; nothing listens on TCP.
pub(super) const PORT: u16 = 5432;
/// How long a server may take until it accepts connections.
const READY_MAX: Duration = Duration::from_secs(60);
/// Longest folder whose socket still has a path that the system accepts, in bytes.
const FOLDER_BYTES_MAX: usize = 85;

/// Waits for the end of the pipe, then ends the last process it was told of, if that still works
/// in the folder, and removes the folder.
const GUARDIAN: &str = r#"
folder=$1 pid=
trap '' INT HUP TERM
works() { [ -n "$pid" ] && tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$folder/"; }
while read -r told; do pid=$told; done
tries=0
while works && [ $tries -lt 200 ]; do
  case $tries in 0) kill -QUIT "$pid" ;; 100) kill -KILL "$pid" ;; esac
  tries=$((tries + 1))
  sleep 0.05
done
rm -rf "$folder"
"#;

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
    fn start(folder: &Path) -> Result<Self, DemoError> {
        let mut command = Command::new("sh");
        command.args(["-c", GUARDIAN, "fencewire-demo-guardian"]).arg(folder);
        command.current_dir("/").process_group(0);
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

/// A running PostgreSQL. Dropping it stops the server and removes its folder; that may take some
/// tenths of a second.
pub(super) struct Server {
    /// Removes everything; dropped before the child is reaped.
    guardian: Option<Guardian>,
    postmaster: Option<Child>,
    bin: PathBuf,
    user: Option<User>,
    folder: PathBuf,
    password: Secret,
    version: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.guardian.take());
        if let Some(mut postmaster) = self.postmaster.take() {
            // It is gone by now; this only reaps it.
            postmaster.kill().ok();
            postmaster.wait().ok();
        }
    }
}

impl Server {
    /// Makes the folder and the cluster, and starts the server; it may not be ready yet.
    ///
    /// Blocks for a second or two. Whatever was made is gone again when this fails.
    pub(super) fn start(path: Option<&OsStr>) -> Result<Self, DemoError> {
        let (bin, version) = find_programs(path)?;
        let folder = make_folder()?;
        let guardian = Guardian::start(&folder).inspect_err(|_| {
            fs::remove_dir(&folder).ok();
        })?;
        let user = if owner_is_root(&folder)? { Some(server_user()?) } else { None };
        let mut server = Self {
            guardian: Some(guardian),
            postmaster: None,
            bin,
            user,
            folder,
            password: Secret::new(uuid::Uuid::new_v4().simple().to_string()),
            version,
        };
        server.init()?;
        server.launch()?;
        Ok(server)
    }

    /// What `postgres --version` calls itself, such as `15.14`.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// The folder, for other things that shall go away with it.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of the server's socket.
    pub(super) fn socket_folder(&self) -> PathBuf {
        self.folder.join("sock")
    }

    /// The password of every role.
    pub(super) const fn password(&self) -> &Secret {
        &self.password
    }

    /// Waits until the server accepts connections.
    ///
    /// # Cancel safety
    /// Cancel safe: it only looks.
    pub(super) async fn ready(&mut self) -> Result<(), DemoError> {
        let status = self.folder.join("data/postmaster.pid");
        let deadline = Instant::now() + READY_MAX;
        loop {
            let text = fs::read_to_string(&status).unwrap_or_default();
            if text.lines().nth(7).is_some_and(|line| line.trim() == "ready") {
                return Ok(());
            }
            if let Some(postmaster) = &mut self.postmaster
                && let Ok(Some(end)) = postmaster.try_wait()
            {
                return Err(program("postgres", &format!("ended before it was ready ({end})")));
            }
            if Instant::now() >= deadline {
                return Err(DemoError::Late("the start of PostgreSQL", READY_MAX.as_secs()));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A program of the server, as its user, in its folder, out of reach of the terminal's signals.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        if let Some(User { uid, gid }) = self.user {
            command.uid(uid).gid(gid);
        }
        for (variable, _) in std::env::vars_os() {
            if variable.as_encoded_bytes().starts_with(b"PG") {
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

    fn init(&mut self) -> Result<(), DemoError> {
        let (data, secret) = (self.folder.join("data"), self.folder.join("secret"));
        make_private(&self.socket_folder())?;
        write_private(&secret, self.password.expose())?;
        for path in [&self.folder, &self.socket_folder(), &secret] {
            if let Some(User { uid, gid }) = self.user {
                chown(path, Some(uid), Some(gid)).map_err(|e| file("can't give away", path, e))?;
            }
        }
        let mut command = self.program("initdb");
        command.args(["-U", SUPERUSER, "-A", "password", "-E", "UTF8", "--locale=C", "--no-sync"]);
        command.arg("--pwfile").arg(&secret).arg("-D").arg(&data);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|e| program("initdb", &e.to_string()))?;
        self.watch(child.id())?;
        let output = child.wait_with_output().map_err(|e| program("initdb", &e.to_string()))?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(program("initdb", &format!("failed ({}): {words}", output.status)));
        }
        fs::remove_file(&secret).map_err(|e| file("can't remove", &secret, e))?;
        let conf = data.join("postgresql.conf");
        let socket = self.socket_folder().display().to_string().replace('\'', "''");
        let more = format!("\n{SETTINGS}port = {PORT}\nunix_socket_directories = '{socket}'\n");
        append(&conf, &more)?;
        // Every way in is the socket, and needs the password.
        let hba = data.join("pg_hba.conf");
        fs::write(&hba, "local all all password\n").map_err(|e| file("can't write", &hba, e))
    }

    fn launch(&mut self) -> Result<(), DemoError> {
        let log = self.folder.join("server.log");
        let out = write_private(&log, "")?;
        let again = out.try_clone().map_err(|e| file("can't write", &log, e))?;
        let mut command = self.program("postgres");
        command.arg("-D").arg(self.folder.join("data")).stdout(out).stderr(again);
        let child = command.spawn().map_err(|e| program("postgres", &e.to_string()))?;
        let pid = child.id();
        self.postmaster = Some(child);
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

/// The first folder whose server says its version, and that version.
fn find_programs(path: Option<&OsStr>) -> Result<(PathBuf, String), DemoError> {
    let says = |bin: PathBuf| {
        let output = Command::new(bin.join("postgres")).arg("--version").output().ok()?;
        let version = version_in(&String::from_utf8_lossy(&output.stdout))?;
        Some((bin, version))
    };
    let debian = Path::new("/usr/lib/postgresql");
    candidates(path, debian).into_iter().find_map(says).ok_or(DemoError::NoPostgres)
}

/// `15.14` out of `postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)`.
fn version_in(text: &str) -> Option<String> {
    let rest = text.trim().strip_prefix("postgres (PostgreSQL) ")?;
    rest.split_whitespace().next().map(str::to_owned)
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

fn server_user() -> Result<User, DemoError> {
    let path = Path::new("/etc/passwd");
    let text = fs::read_to_string(path).map_err(|e| file("can't read", path, e))?;
    user_in(&text).ok_or(DemoError::NoUser)
}

/// `postgres`, else `nobody`, out of the text of a passwd file.
fn user_in(passwd: &str) -> Option<User> {
    let find = |name: &str| {
        let mut fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let found = fields.find(|fields| fields.first() == Some(&name))?;
        let (uid, gid) = (found.get(2)?.parse().ok()?, found.get(3)?.parse().ok()?);
        (uid != 0).then_some(User { uid, gid })
    };
    find("postgres").or_else(|| find("nobody"))
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

    #[test]
    fn root_finds_somebody_else() {
        let user = |uid, gid| Some(User { uid, gid });
        let nobody = "root:x:0:0::/:\nnobody:x:65534:65534::/:\n";
        assert_eq!(user_in(nobody), user(65534, 65534));
        assert_eq!(user_in(&format!("{nobody}postgres:x:101:102::/:")), user(101, 102));
        assert_eq!(user_in("root:x:0:0::/:\npostgres:x:0:0::/:"), None);
        assert_eq!(user_in(""), None);
    }

    #[test]
    fn a_dropped_guardian_removes_folder_and_process() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("here");
        make_private(&folder).unwrap();
        let mut guardian = Guardian::start(&folder).unwrap();
        // The folder is on its command line, as it is on a server's.
        let mut child = Command::new("sh")
            .args(["-c", "while :; do read -r line || exit; done", "sh"])
            .arg(format!("{}/x", folder.display()))
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
