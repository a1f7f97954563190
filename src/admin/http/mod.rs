//! The admin HTTP API: one listener, JSON, one key.
//!
//! Purpose: commands and questions about fences for scripts, controllers and `fencewire ctl`. The
//! order of checks on a route is the contract's (1.12): key, feature, name, key configured, body,
//! command. A client that hangs up doesn't stop its command.
//!
//! Callers: `app` builds [`AdminApi`] and runs [`serve`]. It reaches fences through `control`
//! alone, and reload through [`Reload`]. `/` is the status page (`page.rs`), fed by `events.rs`. No
//! TLS of its own yet: bind it to a private address.

mod accept;
mod events;
mod fences;
mod fields;
mod openapi;
mod page;
mod refusal;
mod routes;
mod targets;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener as _;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

use super::auth::AdminKey;
use super::view::Shown;
use crate::base::limits;
use crate::control::Control;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::spawn::spawn_named;

pub use events::Events;
pub(crate) use fences::ADOPTION_KEY_HEADER;
pub use openapi::document;
pub use routes::router;

/// What a reload answers: what changed, or why it can't while running; one sentence each.
pub type ReloadFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<String>, Vec<String>>> + Send + 'a>>;

/// Reads the configuration again. `app` gives it.
pub trait Reload: Send + Sync {
    /// Applies what can change while running.
    ///
    /// Cancel safety: a reload that was begun is finished whether its answer is awaited or not.
    fn reload(&self) -> ReloadFuture<'_>;
}

/// What the routes work with.
pub struct AdminApi {
    /// The use cases.
    pub control: Arc<Control>,
    /// The admin key; `None` where none is configured, and then command routes are off.
    pub key: Option<AdminKey>,
    /// The second key, which adoptions need; `None` means that nothing can be adopted.
    pub adoption_key: Option<AdminKey>,
    /// Numbers, for `/metrics` and about the API itself.
    pub metrics: Arc<Metrics>,
    /// Whether `/metrics` may be read without the key.
    pub open_metrics: bool,
    /// How things are shown.
    pub shown: Shown,
    /// Reads the configuration again.
    pub reload: Arc<dyn Reload>,
    /// Who watches.
    pub events: Events,
}

/// Serves the API until `stop` completes; requests that run then are finished. A connection,
/// kept-alive ones included, that doesn't send a request's head within `limits::ADMIN_HEAD_MS` is
/// closed.
///
/// # Cancel safety
/// Dropping it closes the listener; connections that are open and commands run on.
pub async fn serve(
    listener: TcpListener,
    api: Arc<AdminApi>,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    serve_within(Duration::from_millis(limits::ADMIN_HEAD_MS), listener, api, stop).await;
}

/// As [`serve`], with a bound on the head of its own.
async fn serve_within(
    head: Duration,
    listener: TcpListener,
    api: Arc<AdminApi>,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let mut listener = accept::Bounded::new(listener);
    let router = router(&api);
    let watched = Arc::clone(&api);
    let feed = spawn_named("status-feed", async move {
        let changes = Arc::clone(&watched.metrics.changes);
        watched.events.feed(&changes, || events::status(&watched)).await;
    });
    let graceful = GracefulShutdown::new();
    let mut stop = pin!(stop);
    loop {
        let stream = tokio::select! {
            (stream, _) = listener.accept() => stream,
            () = &mut stop => break,
        };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
        let connection = graceful.watch(connection);
        drop(spawn_named("admin-connection", async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "an admin connection ended early");
            }
        }));
    }
    drop(listener);
    feed.abort();
    api.events.end();
    graceful.shutdown().await;
}
