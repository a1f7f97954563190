//! Named fault points, so that a test can stop or kill a process exactly there.
//!
//! Purpose: crash tests start the program with `FENCEWIRE_FAULT` and prove that a restart comes
//! back to a legal state. In release builds a point is an empty inline function and the variable is
//! never read.
//!
//! `FENCEWIRE_FAULT` is one or more of `NAME[@N]=ACTION`, separated by commas. `N` counts the
//! passes of that point from 1 (default 1); each entry acts once. Actions:
//! `abort` kills the process on the spot; `error` makes the point return [`Fault`];
//! `park:FILE` creates `FILE.parked`, then waits until `FILE` exists (bounded by
//! `limits::FAULT_PARK_MAX_MS`, after which it goes on as if it did).
//!
//! Callers: `store`, `control`, `gate` at their boundaries. Nothing here decides what a fault means
//! to the caller.

/// An injected failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("fault injected at {0}, as FENCEWIRE_FAULT asked")]
pub struct Fault(pub &'static str);

/// Passes the point `name`. Blocks the thread while parked; on async tasks use [`point_async`].
///
/// # Errors
/// [`Fault`] when the plan says `error` here.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn point(_name: &'static str) -> Result<(), Fault> {
    Ok(())
}

/// Passes the point `name` on an async task.
///
/// Cancel safety: safe; a dropped future has had its effect or none.
///
/// # Errors
/// [`Fault`] when the plan says `error` here.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub async fn point_async(_name: &'static str) -> Result<(), Fault> {
    Ok(())
}

#[cfg(debug_assertions)]
pub use armed::{point, point_async};

#[cfg(debug_assertions)]
mod armed {
    use std::path::{Path, PathBuf};
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::Fault;
    use crate::base::limits;

    /// What an entry does when its turn has come.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(super) enum Action {
        Abort,
        Error,
        Park(PathBuf),
    }

    /// One entry of the plan.
    #[derive(Debug)]
    struct Entry {
        name: String,
        pass: u64,
        action: Action,
        passed: AtomicU64,
    }

    /// Everything `FENCEWIRE_FAULT` asked for.
    #[derive(Debug, Default)]
    pub(super) struct Plan(Vec<Entry>);

    impl Plan {
        /// Reads the variable's text. An entry that can't be read is a mistake in a test: it is
        /// reported as an error rather than ignored.
        pub(super) fn parse(text: &str) -> Result<Self, String> {
            let entries = text.split(',').filter(|entry| !entry.trim().is_empty());
            entries.map(Self::parse_entry).collect::<Result<_, _>>().map(Self)
        }

        fn parse_entry(text: &str) -> Result<Entry, String> {
            let bad = || {
                format!("FENCEWIRE_FAULT entry {text:?}: expected NAME[@N]=abort|error|park:FILE")
            };
            let (point, action) = text.trim().split_once('=').ok_or_else(bad)?;
            let (name, pass) = match point.split_once('@') {
                Some((name, pass)) => (name, pass.parse().map_err(|_| bad())?),
                None => (point, 1),
            };
            let action = match (action, action.strip_prefix("park:")) {
                ("abort", _) => Action::Abort,
                ("error", _) => Action::Error,
                (_, Some(file)) => Action::Park(PathBuf::from(file)),
                (_, None) => return Err(bad()),
            };
            Ok(Entry { name: name.to_owned(), pass, action, passed: AtomicU64::new(0) })
        }

        /// Counts one pass of `name`, and says what happens at it.
        pub(super) fn pass(&self, name: &str) -> Option<Action> {
            let mut due = None;
            for entry in self.0.iter().filter(|entry| entry.name == name) {
                if entry.passed.fetch_add(1, Ordering::SeqCst) + 1 == entry.pass {
                    due = Some(entry.action.clone());
                }
            }
            due
        }
    }

    #[expect(clippy::panic, reason = "debug builds only: a test that asks for nonsense must stop")]
    static PLAN: LazyLock<Plan> = LazyLock::new(|| match std::env::var("FENCEWIRE_FAULT") {
        Ok(text) => Plan::parse(&text).unwrap_or_else(|error| panic!("{error}")),
        Err(_) => Plan::default(),
    });

    const POLL: Duration = Duration::from_millis(5);

    /// Passes the point `name`. Blocks the thread while parked; on async tasks use
    /// [`point_async`].
    ///
    /// # Errors
    /// [`Fault`] when the plan says `error` here.
    pub fn point(name: &'static str) -> Result<(), Fault> {
        match PLAN.pass(name) {
            None => Ok(()),
            Some(Action::Abort) => std::process::abort(),
            Some(Action::Error) => Err(Fault(name)),
            Some(Action::Park(file)) => {
                announce(&file);
                park(&file);
                Ok(())
            }
        }
    }

    /// Passes the point `name` on an async task.
    ///
    /// Cancel safety: safe; a dropped future has had its effect or none.
    ///
    /// # Errors
    /// [`Fault`] when the plan says `error` here.
    pub async fn point_async(name: &'static str) -> Result<(), Fault> {
        match PLAN.pass(name) {
            None => Ok(()),
            Some(Action::Abort) => std::process::abort(),
            Some(Action::Error) => Err(Fault(name)),
            Some(Action::Park(file)) => {
                announce(&file);
                // On a thread of its own: a worker's runtime has no timers.
                let looks = tokio::task::spawn_blocking(move || park(&file));
                // It has no end but its own.
                let _ended = looks.await;
                Ok(())
            }
        }
    }

    /// Waits for `file`, as long as a point may be parked.
    fn park(file: &Path) {
        for _ in 0..polls() {
            if file.exists() {
                break;
            }
            std::thread::sleep(POLL);
        }
    }

    fn polls() -> u128 {
        Duration::from_millis(limits::FAULT_PARK_MAX_MS).as_millis() / POLL.as_millis()
    }

    /// Tells the test that the point was reached. A test that can't be told times out by itself.
    fn announce(file: &Path) {
        let mut name = file.as_os_str().to_owned();
        name.push(".parked");
        std::fs::write(name, b"").unwrap_or_default();
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn an_entry_acts_once_at_its_own_pass() {
            let plan = Plan::parse("a@2=abort, b=error,c=park:/tmp/x").unwrap();
            assert_eq!(plan.pass("a"), None);
            assert_eq!(plan.pass("a"), Some(Action::Abort));
            assert_eq!(plan.pass("a"), None);
            assert_eq!(plan.pass("b"), Some(Action::Error));
            assert_eq!(plan.pass("b"), None);
            assert_eq!(plan.pass("c"), Some(Action::Park(PathBuf::from("/tmp/x"))));
            assert_eq!(plan.pass("d"), None);
        }

        #[test]
        fn nonsense_is_reported() {
            for text in ["a", "a=", "a=explode", "a@x=abort"] {
                assert!(Plan::parse(text).unwrap_err().contains("expected"), "{text}");
            }
            assert!(Plan::parse("").unwrap().0.is_empty());
        }

        #[test]
        fn a_point_nobody_asked_for_passes() {
            assert_eq!(point("fault.test.none"), Ok(()));
        }
    }
}
