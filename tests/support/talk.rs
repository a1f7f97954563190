//! A driver's script that a test runs and speaks to by lines.
//!
//! The scripts are in `tests/drivers/`; `steps.py` there says in which ways they run.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use super::poll;

/// How long a script may take to say its next line.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a driver's script is started.
#[derive(Clone, Copy)]
pub enum Language {
    Python,
    Node,
}

impl Language {
    /// What runs a script.
    pub fn program(self) -> PathBuf {
        match self {
            Self::Python => installed("python/bin/python"),
            Self::Node => PathBuf::from("node"),
        }
    }

    /// Adds a script of `tests/drivers/` and the way it is to run.
    pub fn script(self, command: &mut Command, file: &str, way: &str) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/drivers");
        command.arg(folder.join(file)).arg(way).env("PYTHONDONTWRITEBYTECODE", "1");
        match self {
            Self::Python => {}
            Self::Node => {
                command.env("NODE_PATH", installed("node/node_modules"));
            }
        }
    }
}

/// Where `tools/setup.sh` puts what it brings.
pub fn tools_dir() -> PathBuf {
    let given = std::env::var_os("FENCEWIRE_TOOLS_DIR").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into()));
    given.unwrap_or_else(|| home().join(".cache/fencewire-tools"))
}

/// Where it puts the drivers.
pub fn installed(part: &str) -> PathBuf {
    let path = tools_dir().join("drivers").join(part);
    assert!(path.exists(), "{} is not there: run tools/setup.sh test", path.display());
    path
}

/// A script that is being run, spoken to by lines.
pub struct Talk {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    errors: std::thread::JoinHandle<String>,
}

impl Talk {
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut stderr = child.stderr.take().unwrap();
        let (sender, lines) = sync_channel(100);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).map_or_else(|e| e.to_string(), |_| text)
        });
        Self { child, input, lines, errors }
    }

    /// The next line. Panics with the script's own words when none comes.
    #[track_caller]
    pub fn hear(&mut self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(e) => panic!("the script says nothing ({e}); it ended:\n{}", self.last_words().1),
        }
    }

    pub fn go_on(&mut self) {
        writeln!(self.input).unwrap();
    }

    /// The script's end, brought about when it doesn't come: success, and standard error.
    pub fn last_words(&mut self) -> (bool, String) {
        let ended = poll(PATIENCE, || self.child.try_wait().unwrap());
        if ended.is_none() {
            self.child.kill().unwrap();
        }
        let success = self.child.wait().unwrap().success();
        let errors = std::mem::replace(&mut self.errors, std::thread::spawn(String::new));
        (success && ended.is_some(), errors.join().unwrap())
    }
}
