//! Named tasks: the only place that calls `tokio::spawn`.

use std::future::Future;

use tokio::task::JoinHandle;
use tracing::Instrument as _;

/// Spawns a task whose log lines carry its name.
pub fn spawn_named<F>(name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::task::spawn(future.instrument(tracing::info_span!("task", name)))
}
