//! PostgreSQL's own tools pointed at a server: directly, or through the proxy.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::cluster::PgCluster;

/// Where a tool connects to. The role is `app`, with its password.
pub struct Target<'a> {
    /// The engine, also for the tools' programs.
    pub cluster: &'a PgCluster,
    /// The port that the tools connect to, on 127.0.0.1.
    pub port: u16,
    /// The client's side: `sslmode=require`, else `disable`.
    pub client_tls: bool,
    /// Whether the engine must see TLS on its side.
    pub engine_tls: bool,
}

impl Target<'_> {
    /// A command with this target in its environment (`PGHOST` and so on).
    pub fn command(&self, program: impl AsRef<OsStr>, db: &str) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"PG") {
                command.env_remove(name);
            }
        }
        let mode = if self.client_tls { "require" } else { "disable" };
        command
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", self.port.to_string())
            .env("PGDATABASE", db)
            .env("PGUSER", "app")
            .env("PGPASSWORD", "app")
            .env("PGSSLMODE", mode)
            .env("PGCONNECT_TIMEOUT", "30")
            // With TLS on both sides a login can't be bound to the client's own channel (W25).
            .env("PGCHANNELBINDING", "disable");
        command
    }

    /// A program of the cluster's version, with this target in its environment.
    pub fn tool(&self, program: &str, db: &str) -> Command {
        self.command(self.cluster.program(program), db)
    }

    /// psql with scripts' manners: no start-up file, stop at the first error.
    pub fn psql(&self, db: &str) -> Command {
        let mut psql = self.tool("psql", db);
        psql.args(["-X", "-v", "ON_ERROR_STOP=1"]);
        psql
    }
}

/// Runs a command to its end; returns what it wrote to standard output. Panics when it fails.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?} does not start: {e}"));
    assert!(output.status.success(), "{command:?} failed: {}\n{}", output.status, text(&output));
    String::from_utf8(output.stdout).expect("output is not UTF-8")
}

/// Runs a command that must fail; returns what it wrote to standard error.
#[track_caller]
pub fn run_failing(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?} does not start: {e}"));
    assert!(!output.status.success(), "{command:?} succeeded:\n{}", text(&output));
    String::from_utf8(output.stderr).expect("output is not UTF-8")
}

/// Both outputs, for a message.
fn text(output: &Output) -> String {
    let lossy = String::from_utf8_lossy;
    format!("{}\n{}", lossy(&output.stdout), lossy(&output.stderr))
}

/// A Python that has psycopg 3: `FENCEWIRE_TEST_PYTHON`, else the system's, else the one in PATH.
pub fn python() -> PathBuf {
    if let Some(given) = std::env::var_os("FENCEWIRE_TEST_PYTHON") {
        return PathBuf::from(given);
    }
    let has_psycopg = |python: &Path| {
        let check = Command::new(python).args(["-c", "import psycopg"]).output();
        check.is_ok_and(|output| output.status.success())
    };
    let candidates = ["/usr/bin/python3", "python3"].map(PathBuf::from);
    let found = candidates.into_iter().find(|p| has_psycopg(p));
    found.expect("no Python with psycopg 3 here: run tools/setup.sh test")
}
