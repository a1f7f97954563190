//! The small window from the wire to the rest: which namespace a name means, and whether new
//! sessions are wanted.
//!
//! Purpose: `wire` knows no configuration and no control; `app` implements this for the endpoints
//! of each protocol. Called by each protocol's `session.rs`.

use std::sync::Arc;

use crate::base::ids::{EngineName, Namespace};

/// What a client's database name means, with an endpoint of the client's protocol.
#[derive(Debug)]
pub struct Target<E> {
    /// The namespace.
    pub namespace: Namespace,
    /// Its engine.
    pub endpoint: Arc<E>,
}

/// Names to namespaces and to endpoints of type `E`.
pub trait Directory<E>: Send + Sync + std::fmt::Debug {
    /// Resolves a client's database name at a listener with this default engine.
    ///
    /// # Errors
    /// A sentence for the client.
    fn resolve(&self, default_engine: &EngineName, database: &str) -> Result<Target<E>, String>;

    /// An engine's endpoint by its name.
    ///
    /// # Errors
    /// A sentence for the client: no such engine, or it speaks another protocol.
    fn endpoint(&self, engine: &EngineName) -> Result<Arc<E>, String>;

    /// Whether the proxy still takes sessions; not while it stops.
    fn is_open(&self) -> bool;
}
