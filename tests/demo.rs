//! `fencewire demo` as a user sees it: its verdict, its control arms, and that it cleans up.
//!
//! Each run gets a folder of its own for temporary files; afterwards nothing may be in it, and no
//! process may name it. The control arms spoil one thing (debug builds only); a demo that then
//! still says that all is well is worth nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use support::guard::send_signal;
use support::{poll, test_dir};

const PATIENCE: Duration = Duration::from_secs(60);

/// A folder for temporary files that the server's user can reach too.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Self {
        let dir = test_dir("d");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        Self(dir)
    }

    fn demo(&self, sabotage: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fencewire"));
        command.arg("demo").env("TMPDIR", &self.0).env("FENCEWIRE_DEMO_SABOTAGE", sabotage);
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
            let status = fs::read_to_string(folder.join("data/postmaster.pid")).ok()?;
            (status.lines().nth(7)?.trim() == "ready").then_some(folder)
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

#[test]
fn every_promise_is_kept() {
    let (code, out, err) = Temporary::new().run("");
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    for words in [
        "AcquireSourceWriteFence",
        "(slow batch), open ",
        "APPLIED: SOURCE_WRITE_FENCED at revision 2",
        "boundary      lsn ",
        "census after  ",
        "waits for the engine lock, 55P03",
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
fn is_reported(sabotage: &str, violations: &[&str]) {
    let (code, out, err) = Temporary::new().run(sabotage);
    assert_eq!(code, Some(1), "{sabotage}:\n{out}\n{err}");
    assert!(out.contains("promises were BROKEN"), "{sabotage}:\n{out}");
    for words in violations {
        assert!(err.contains(words), "{sabotage}: {words:?} is missing:\n{err}");
    }
}

#[test]
fn control_an_opened_gate_is_reported() {
    is_reported(
        "open-gate",
        &[
            "acknowledged while the fence stood",
            "a direct INSERT succeeded",
            "row changes were committed after the boundary",
        ],
    );
}

#[test]
fn control_a_writer_around_the_proxy_is_reported() {
    is_reported(
        "no-engine-lock",
        &[
            "a direct INSERT succeeded",
            "1 row changes were committed after the boundary",
            "transfer 900000101 is in the table, acknowledged to nobody",
        ],
    );
}

#[test]
fn control_a_lost_acknowledgement_is_reported() {
    is_reported("lost-acknowledgement", &["transfer 900000999 was acknowledged and is missing"]);
}

/// Ends a demo by a signal while its engine runs; gives its exit code.
fn ended_by(signal: &str) -> Option<i32> {
    let temporary = Temporary::new();
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

#[test]
fn an_interrupted_demo_leaves_nothing() {
    assert_eq!(ended_by("INT"), Some(130));
    assert_eq!(ended_by("TERM"), Some(130));
}

#[test]
fn a_killed_demo_leaves_nothing() {
    assert_eq!(ended_by("KILL"), None);
}
