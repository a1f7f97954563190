//! `fencewire demo` as a user sees it: its verdict, its control arms, and that it cleans up. On
//! PostgreSQL, MariaDB and MySQL.
//!
//! Each run gets a folder of its own for temporary files; afterwards nothing may be in it, and no
//! process may name it. The control arms spoil one thing (debug builds only); a demo that then
//! still says that all is well is worth nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use support::guard::send_signal;
use support::my_cluster::server_program;
use support::{MyFlavour, poll, test_dir};

const PATIENCE: Duration = Duration::from_secs(60);

/// A folder for temporary files that the server's user can reach too, and the engine's name.
struct Temporary(PathBuf, &'static str);

impl Temporary {
    fn new(engine: &'static str) -> Self {
        let dir = test_dir("d");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        Self(dir, engine)
    }

    fn demo(&self, sabotage: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fencewire"));
        command.arg("demo").env("TMPDIR", &self.0).env("PATH", path());
        // PostgreSQL is what it is played on unless another one is named.
        if self.1 != "postgres" {
            command.args(["--engine", self.1]);
        }
        command.env("FENCEWIRE_DEMO_SABOTAGE", sabotage);
        command.stdin(Stdio::null());
        command
    }

    /// Runs the demo to its end; checks that nothing is left, and gives its exit code and outputs.
    fn run(&self, sabotage: &str) -> (Option<i32>, String, String) {
        let output = self.demo(sabotage).output().unwrap();
        assert_eq!(self.leftovers(), Vec::<String>::new());
        let Output { status, stdout, stderr } = output;
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code(), text(stdout), text(stderr))
    }

    /// Files in the folder, and command lines of processes that name it.
    fn leftovers(&self) -> Vec<String> {
        let files = fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().path().display().to_string());
        files.chain(processes_naming(&self.0)).collect()
    }

    /// The demo's own folder, once its engine is ready.
    fn engine_ready(&self) -> PathBuf {
        let ready = poll(PATIENCE, || {
            let folder = fs::read_dir(&self.0).unwrap().next()?.unwrap().path();
            if self.1 == "postgres" {
                let status = fs::read_to_string(folder.join("data/postmaster.pid")).ok()?;
                return (status.lines().nth(7)?.trim() == "ready").then_some(folder);
            }
            folder.join("data/mysqld.pid").exists().then_some(folder)
        });
        ready.expect("the demo's engine was never ready")
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn processes_naming(folder: &Path) -> Vec<String> {
    let name = format!("{}/", folder.display());
    let lines = fs::read_dir("/proc").unwrap().flatten().filter_map(|process| {
        process.file_name().to_str()?.parse::<u32>().ok()?;
        let line = fs::read(process.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines.filter(|line| line.contains(&name)).collect()
}

/// PATH, with MySQL's programs where `tools/mysql9.sh` was told to put them somewhere else.
fn path() -> OsString {
    let mut folders: Vec<PathBuf> = Vec::new();
    if let Some(path) = std::env::var_os("PATH") {
        folders.extend(std::env::split_paths(&path));
    }
    let program = server_program(MyFlavour::MySql);
    folders.extend(program.parent().map(Path::to_path_buf));
    std::env::join_paths(folders).unwrap()
}

/// One module per engine with these tests.
macro_rules! on_each {
    ($($test:ident),* $(,)?) => {
        on_each!(@ postgres: $($test),*);
        on_each!(@ mariadb: $($test),*);
        on_each!(@ mysql: $($test),*);
    };
    (@ $engine:ident: $($test:ident),*) => {
        mod $engine {
            $(#[test]
            fn $test() {
                super::$test(stringify!($engine));
            })*
        }
    };
}

on_each!(
    every_promise_is_kept,
    control_an_opened_gate_is_reported,
    control_a_writer_around_the_proxy_is_reported,
    control_a_lost_acknowledgement_is_reported,
    an_interrupted_demo_leaves_nothing,
    a_killed_demo_leaves_nothing,
);

fn every_promise_is_kept(engine: &'static str) {
    let (code, out, err) = Temporary::new(engine).run("");
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let (boundary, lock_code, title) = match engine {
        "postgres" => ("boundary      lsn ", "55P03", "a live PostgreSQL"),
        "mariadb" => ("boundary      gtid 0-1-", "1205", "a live MariaDB"),
        _ => ("boundary      gtid ", "1205", "a live MySQL"),
    };
    for words in [
        title,
        "AcquireSourceWriteFence",
        "(slow batch), open ",
        "APPLIED: SOURCE_WRITE_FENCED at revision 2",
        boundary,
        "census after  ",
        &format!("waits for the engine lock, {lock_code}"),
        " up to the boundary, 0 after it",
        "32 of 32 clients",
        "All 9 promises were kept",
    ] {
        assert!(out.contains(words), "{words:?} is missing:\n{out}");
    }
    assert!(!out.contains("BROKEN") && !out.contains('\x1b'), "{out}");
    assert!(out.lines().count() <= 60, "{} lines:\n{out}", out.lines().count());
    let wide = out.lines().find(|line| line.chars().count() > 100);
    assert_eq!(wide, None);
}

#[track_caller]
fn is_reported(engine: &'static str, sabotage: &str, violations: &[&str]) {
    let (code, out, err) = Temporary::new(engine).run(sabotage);
    assert_eq!(code, Some(1), "{sabotage}:\n{out}\n{err}");
    assert!(out.contains("promises were BROKEN"), "{sabotage}:\n{out}");
    for words in violations {
        assert!(err.contains(words), "{sabotage}: {words:?} is missing:\n{err}");
    }
}

fn control_an_opened_gate_is_reported(engine: &'static str) {
    is_reported(
        engine,
        "open-gate",
        &[
            "acknowledged while the fence stood",
            "a direct INSERT succeeded",
            "row changes were committed after the boundary",
        ],
    );
}

fn control_a_writer_around_the_proxy_is_reported(engine: &'static str) {
    is_reported(
        engine,
        "no-engine-lock",
        &[
            "a direct INSERT succeeded",
            "1 row changes were committed after the boundary",
            "transfer 900000101 is in the table, acknowledged to nobody",
        ],
    );
}

fn control_a_lost_acknowledgement_is_reported(engine: &'static str) {
    let words = "transfer 900000999 was acknowledged and is missing";
    is_reported(engine, "lost-acknowledgement", &[words]);
}

/// Ends a demo by a signal while its engine runs; gives its exit code.
fn ended_by(engine: &'static str, signal: &str) -> Option<i32> {
    let temporary = Temporary::new(engine);
    let mut demo: Child =
        temporary.demo("").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    temporary.engine_ready();
    assert!(!processes_naming(&temporary.0).is_empty());
    send_signal(signal, &[demo.id()]);
    let status = demo.wait().unwrap();
    // After SIGKILL it is the guardian that clears away.
    let clean = poll(PATIENCE, || temporary.leftovers().is_empty().then_some(()));
    assert!(clean.is_some(), "left after {signal}: {:?}", temporary.leftovers());
    status.code()
}

fn an_interrupted_demo_leaves_nothing(engine: &'static str) {
    assert_eq!(ended_by(engine, "INT"), Some(130));
    assert_eq!(ended_by(engine, "TERM"), Some(130));
}

fn a_killed_demo_leaves_nothing(engine: &'static str) {
    assert_eq!(ended_by(engine, "KILL"), None);
}
