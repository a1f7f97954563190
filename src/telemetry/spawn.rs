//! Named tasks: the one place that starts tokio tasks.
//!
//! Purpose: every task has a name that shows in log lines (as the `task` span, at debug level), and
//! a task that panics says so with its name instead of vanishing into an unread handle. Called by
//! every part that starts work of its own. It bounds nothing: who spawns per connection holds the
//! connection bound. Dropping a returned handle detaches the task; it does not stop it.

use std::future::Future;

use tokio::task::JoinHandle;
use tracing::Instrument as _;

/// Says at error level that the named task panicked, when dropped by an unwinding thread.
#[derive(Debug)]
#[must_use = "it reports for as long as it lives"]
pub struct PanicReport(&'static str);

impl PanicReport {
    /// For a task that [`spawn_session`] starts: it holds this itself, since a future around its
    /// own would take its room twice.
    pub const fn of(name: &'static str) -> Self {
        Self(name)
    }
}

impl Drop for PanicReport {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(
                task = self.0,
                "a task panicked; its session or job is lost, the rest goes on: report it as a bug"
            );
        }
    }
}

/// Starts `future` on the current runtime under `name`.
///
/// Must be called from within a tokio runtime.
pub fn spawn_named<F>(name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let named = async move {
        let _report = PanicReport(name);
        future.await
    };
    tokio::spawn(named.instrument(tracing::debug_span!("task", name)))
}

/// Runs `work` on tokio's blocking threads under `name`; for file and store calls that block.
///
/// Must be called from within a tokio runtime. Blocking work can't be aborted once started.
pub fn spawn_blocking_named<F, T>(name: &'static str, work: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    tokio::task::spawn_blocking(move || {
        let _report = PanicReport(name);
        tracing::debug_span!("task", name).in_scope(work)
    })
}

/// Spawns a session's task: no span around it, because it is polled at each message. The task
/// holds its own [`PanicReport`].
pub fn spawn_session<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::task::spawn(future)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::trace::tests::Captured;

    #[tokio::test]
    async fn a_panicking_task_is_reported_by_its_name() {
        let captured = Captured::default();
        let _guard = captured.install();
        let outcome = spawn_named("relay-test", async { panic!("on purpose") }).await;
        assert!(outcome.unwrap_err().is_panic());
        let text = captured.text();
        assert!(text.contains("relay-test") && text.contains("panicked"), "{text}");
    }

    #[tokio::test]
    async fn results_come_back() {
        assert_eq!(spawn_named("sum", async { 1 + 1 }).await.unwrap(), 2);
        assert_eq!(spawn_blocking_named("sum", || 2 + 2).await.unwrap(), 4);
    }
}
