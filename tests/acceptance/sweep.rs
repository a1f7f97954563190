//! What the crash sweeps share: a proxy that parks at a named point, and commands sent from aside.
//!
//! Purpose: a test brings a command to one of its steps, breaks something there, and lets it go on.
//! The step is reached by the proxy's own fault points, never by timing.
//!
//! Who uses it: `tests/link_pg.rs`, `tests/engine_kill_pg.rs`, `tests/disk_pg.rs`. It asserts
//! nothing about fences.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use serde_json::Value;

use super::PATIENCE;
use crate::support::{Proxy, http, poll};

pub const ACQUIRE: &str = "source/acquire-write-fence";
pub const RELEASE: &str = "source/release-write-fence";

/// Every named step of an acquire, in order.
pub const ACQUIRE_STEPS: &[&str] = &[
    "control.acquire.after_overlay",
    "control.acquire.before_commit",
    "control.acquire.after_commit",
    "control.acquire.after_marker",
    "control.acquire.before_publish",
    "control.acquire.before_drain",
    "control.acquire.after_cutoff",
    "control.acquire.after_leases",
    "control.acquire.after_census",
    "control.acquire.after_lock",
    "control.acquire.after_boundary",
    "control.acquire.after_second_census",
    "control.acquire.after_drain",
    "control.acquire.before_final_commit",
    "control.acquire.after_final_commit",
    "control.acquire.after_final_marker",
    "control.acquire.before_response",
];

/// The first step at which the proof is complete and about to be stored.
const PROVEN: &str = "control.acquire.before_final_commit";

/// Every named step of a release, in order.
pub const RELEASE_STEPS: &[&str] = &[
    "control.release.before_commit",
    "control.release.after_commit",
    "control.release.after_marker",
    "control.release.before_publish",
    "control.release.before_response",
];

/// Whether the evidence is complete at a step of an acquire.
pub fn is_proven_at(step: &str) -> bool {
    let at = |name: &str| ACQUIRE_STEPS.iter().position(|known| *known == name).unwrap();
    at(step) >= at(PROVEN)
}

/// A file that a parked fault point waits for.
pub struct Park(PathBuf);

impl Park {
    /// Starts the proxy anew, to park at the first passing of `step`.
    pub fn arm(proxy: &mut Proxy, step: &str) -> Self {
        Self::arm_with(proxy, step, &[])
    }

    /// The same, with more environment.
    pub fn arm_with(proxy: &mut Proxy, step: &str, more: &[(&str, &str)]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("park-{}", COUNT.fetch_add(1, Ordering::SeqCst));
        // Beside the state folder, which may be a small disk.
        let file = proxy.state_dir().with_file_name(name);
        proxy.kill9();
        let plan = format!("{step}=park:{}", file.display());
        let env = [&[("FENCEWIRE_FAULT", plan.as_str())], more].concat();
        proxy.set_env(&env);
        proxy.restart();
        Self(file)
    }

    /// Waits until something stands at the point.
    #[track_caller]
    pub fn reached(&self) {
        let mut name = self.0.clone().into_os_string();
        name.push(".parked");
        let name = PathBuf::from(name);
        assert!(poll(PATIENCE, || name.exists().then_some(())).is_some(), "never parked");
    }

    /// Lets it go on.
    pub fn open(&self) {
        std::fs::write(&self.0, b"").unwrap();
    }
}

/// A command under way; its answer, or `None` where the proxy died.
pub type Sent = JoinHandle<Option<(u16, Value)>>;

/// Sends a command from a thread that borrows nothing.
pub fn send(proxy: &Proxy, namespace: &str, route: &str, body: &Value) -> Sent {
    let (port, key) = (proxy.admin_port(), proxy.admin_key());
    let path = format!("/v1/namespaces/{namespace}/fence/{route}");
    let body = body.to_string();
    std::thread::spawn(move || {
        let token = format!("Bearer {key}");
        let headers = [("Authorization", token.as_str())];
        let (status, text) = http::request(port, "POST", &path, &headers, &body).ok()?;
        Some((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    })
}

/// Waits for its answer. Panics when there is none.
#[track_caller]
pub fn answer(sent: Sent, proxy: &Proxy) -> (u16, Value) {
    let answer = sent.join().unwrap();
    answer.unwrap_or_else(|| panic!("the proxy gave no answer:\n{}", proxy.log_tail()))
}

/// How often a sentence stands in the proxy's log.
pub fn logged(proxy: &Proxy, sentence: &str) -> usize {
    let log = std::fs::read_to_string(proxy.log_file()).unwrap();
    log.lines().filter(|line| line.contains(sentence)).count()
}
