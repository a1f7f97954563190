//! A child process that can't outlive this test program.
//!
//! A small shell starts the program and then reads from a pipe that only the test program holds.
//! When the pipe closes (the guard was dropped, the test program ended, panicked or was killed) the
//! shell stops the program, waits for it, and removes its folder. `Drop` of a static never runs,
//! and no handler runs on SIGKILL; the pipe closes in both cases.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Arguments: folder, name, the signal that stops an orphan, the command.
///
/// The inner shell writes its own process id and then becomes the command. The exit code of a
/// program that a signal ended is 128 + the signal's number.
const SCRIPT: &str = r#"
dir=$1 name=$2 sig=$3
shift 3
(
  sh -c 'echo $$ >"$0.new" && mv "$0.new" "$0" && exec "$@"' "$dir/$name.pid" "$@" \
    </dev/null >>"$dir/$name.log" 2>&1
  echo $? >"$dir/$name.rc.new"
  mv "$dir/$name.rc.new" "$dir/$name.rc"
) &
trap '' INT HUP TERM
if read -r word; then exit 0; fi
n=0
while [ ! -e "$dir/$name.rc" ] && [ $n -lt 200 ]; do
  if [ $n = 100 ]; then sig=KILL; fi
  kill -s "$sig" "$(cat "$dir/$name.pid")"
  sleep 0.05
  n=$((n + 1))
done
rm -rf "$dir"
"#;

/// A running (or ended) child process with a folder of its own.
pub struct Guard {
    shell: Child,
    dir: PathBuf,
    name: &'static str,
    pid: u32,
}

impl Guard {
    /// Starts `command` with `DIR/NAME.log` as its output and waits until it has a process id.
    ///
    /// `orphan_signal` (such as `QUIT`) is sent when this guard is dropped or its owner dies; after
    /// 5 s, `KILL`. The folder goes away with the guard.
    pub fn spawn(
        dir: &Path,
        name: &'static str,
        orphan_signal: &str,
        command: &[OsString],
        env: &[(String, String)],
    ) -> Self {
        for suffix in ["pid", "rc"] {
            let _ = std::fs::remove_file(dir.join(format!("{name}.{suffix}")));
        }
        let shell = Command::new("sh")
            .args(["-c", SCRIPT, "fencewire-guard"])
            .arg(dir)
            .args([name, orphan_signal])
            .args(command)
            .envs(env.iter().map(|(k, v)| (k, v)))
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("sh does not start");
        let file = dir.join(format!("{name}.pid"));
        let pid = super::poll(Duration::from_secs(20), || {
            std::fs::read_to_string(&file).ok()?.trim().parse().ok()
        });
        let pid = pid.unwrap_or_else(|| panic!("{name} in {} did not start", dir.display()));
        Self { shell, dir: dir.to_path_buf(), name, pid }
    }

    /// The program's process id; it may have ended.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The exit code, once the program has ended.
    pub fn exit_code(&self) -> Option<i32> {
        let file = self.dir.join(format!("{}.rc", self.name));
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    /// Waits for the end of the program, at most `limit`.
    pub fn wait_exit(&self, limit: Duration) -> Option<i32> {
        super::poll(limit, || self.exit_code())
    }

    /// Sends a signal such as `TERM`, if the program still runs.
    pub fn signal(&self, signal: &str) {
        if self.exit_code().is_none() {
            send_signal(signal, &[self.pid]);
        }
    }

    /// Lets go of a program that has ended, and leaves its folder where it is.
    pub fn finish(mut self) {
        assert!(self.exit_code().is_some(), "{} has not ended", self.name);
        if let Some(pipe) = &mut self.shell.stdin {
            let _ = pipe.write_all(b"keep\n");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// Sends `signal` to all `pids`; one that is gone already is no error.
pub fn send_signal(signal: &str, pids: &[u32]) {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let _ = Command::new("sh")
        .args(["-c", r#"sig=$1; shift; kill -s "$sig" "$@""#, "kill", signal])
        .args(pids)
        .stderr(Stdio::null())
        .status();
}

/// The state letter and parent of a process (`/proc/PID/stat`); `None` when there is no such one.
fn state_and_parent(pid: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// True while the process exists and isn't a zombie.
pub fn alive(pid: u32) -> bool {
    state_and_parent(pid).is_some_and(|(state, _)| state != 'Z' && state != 'X')
}

/// The direct children of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    let pids = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    pids.filter(|p| state_and_parent(*p).is_some_and(|(_, parent)| parent == pid)).collect()
}
