//! What the integration tests share: throw-away servers, the built program, clients.
//!
//! Purpose: a test says `Proxy::start(PgCluster::shared())` and gets a real PostgreSQL and the real
//! program in front of it (`MyCluster` is a real MariaDB or MySQL), both of which end with the test
//! program, however that ends.
//!
//! Invariants: nothing outlives the test program (`guard.rs`); every wait has a deadline and looks
//! at a level (a file, an answer, a process), never at elapsed time; every server has a folder of
//! its own with a name that `tools/sweep.sh` recognises.
//!
//! Who uses it: the test programs in `tests/`, with `mod support;`. It knows nothing of the
//! library's types: what the tests see is what an operator sees.

// Each test program uses a part of this; a failed expectation here is a failed test.
#![allow(dead_code, unused_imports, unused_macros, unreachable_pub, missing_docs)]
#![allow(let_underscore_drop)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

pub mod certs;
pub mod cluster;
pub mod fault_link;
pub mod guard;
pub mod http;
pub mod my_cluster;
pub mod my_tools;
pub mod my_wire;
pub mod pipe;
pub mod proxy;
pub mod talk;
pub mod tools;
pub mod wire;

pub use cluster::{Options, PgCluster, default_version};
pub use my_cluster::{MyCluster, MyFlavour, MyOptions};
pub use my_wire::MyWire;
pub use proxy::{Engine, Proxy, ProxyOptions};
pub use wire::Wire;

/// Each named test on either server: modules `mariadb` and `mysql`.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod mariadb {
            $(#[test] fn $name() { super::$name(crate::support::MyFlavour::MariaDb); })*
        }
        mod mysql {
            $(#[test] fn $name() { super::$name(crate::support::MyFlavour::MySql); })*
        }
    };
}
pub(crate) use on_both;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

/// A port on 127.0.0.1 that nobody listens on and that this test program hasn't handed out yet.
pub fn free_port() -> u16 {
    /// The ports already handed out.
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().unwrap();
    for _ in 0..1000 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("no free port on 127.0.0.1");
        let port = listener.local_addr().unwrap().port();
        if given.insert(port) {
            return port;
        }
    }
    panic!("no port left that was not used before");
}

/// Asks `done` again and again until it gives a value; `None` when `limit` has passed.
///
/// For levels only: something that, once true, stays true until the caller acts.
pub fn poll<T>(limit: Duration, mut done: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = done() {
            return Some(value);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10)); // tidy: not a race: polls a level
    }
}

/// A new folder `TMP/fencewire-KIND-PID-START-N`, readable by the user who runs the servers.
///
/// The first call removes what killed test programs left behind.
pub fn test_dir(kind: &str) -> PathBuf {
    static SWEEP: Once = Once::new();
    static COUNT: AtomicU32 = AtomicU32::new(0);
    SWEEP.call_once(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/sweep.sh");
        let status = Command::new(script).status().expect("tools/sweep.sh does not run");
        assert!(status.success(), "tools/sweep.sh failed: {status}");
    });
    let n = COUNT.fetch_add(1, Ordering::SeqCst);
    let name = format!("fencewire-{kind}-{}-{}-{n}", std::process::id(), own_start_time());
    // A socket's path has at most 107 bytes, and the socket is two levels further down.
    let mut base = std::env::temp_dir();
    if base.as_os_str().len() + name.len() > 75 {
        base = PathBuf::from("/tmp");
    }
    let dir = base.join(name);
    std::fs::create_dir(&dir).unwrap_or_else(|e| panic!("cannot create {}: {e}", dir.display()));
    dir
}

/// This process's start time in clock ticks since the machine started (`/proc/self/stat`).
fn own_start_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').nth(19).unwrap().parse().unwrap()
}

/// The last `lines` lines of a text file, or why there are none.
pub fn tail(file: &Path, lines: usize) -> String {
    match std::fs::read_to_string(file) {
        Ok(text) => {
            let all: Vec<&str> = text.lines().collect();
            all[all.len().saturating_sub(lines)..].join("\n")
        }
        Err(e) => format!("({}: {e})", file.display()),
    }
}
