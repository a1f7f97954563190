//! Stopping statements of the proxy's own MySQL sessions.
//!
//! Purpose: W13 of wire.md: the MySQL protocol has no cancel request, so `KILL QUERY` goes over a
//! control connection. Until the engine layer has one for MySQL nothing is killed: the statement
//! runs to its end, and the drain's second deadline ends its connection. Called by the relay.

use tokio::sync::oneshot;

use crate::base::ids::EngineName;
use crate::wire::mysql::session::Killer;

/// Gives up at once.
#[derive(Debug)]
pub(super) struct NoKiller;

impl Killer for NoKiller {
    fn kill_query(&self, engine: &EngineName, thread: u32) -> oneshot::Receiver<()> {
        tracing::warn!(%engine, thread, "a statement can't be stopped: no control connection");
        let (_given_up, delivered) = oneshot::channel();
        delivered
    }
}
