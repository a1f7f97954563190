//! Where an engine listens, and the one sentence for when it can't be reached.
//!
//! Purpose: W26, the same for every protocol. Used by each protocol's `endpoint.rs`.

use std::path::PathBuf;

use crate::base::ids::EngineName;

/// Where an engine listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Host name or address, and port.
    Tcp(String, u16),
    /// The socket file itself.
    Unix(PathBuf),
}

/// The engine can't be reached. The text names it and says why.
#[derive(Debug, thiserror::Error)]
#[error("engine {engine} can't be reached at {address}: {reason}")]
pub(crate) struct Unreachable {
    engine: EngineName,
    address: String,
    reason: String,
}

impl Unreachable {
    /// With what the system or the peer said.
    pub(crate) fn new(engine: &EngineName, address: &Address, reason: impl ToString) -> Self {
        let address = match address {
            Address::Tcp(host, port) => format!("{host}:{port}"),
            Address::Unix(path) => path.display().to_string(),
        };
        Self { engine: engine.clone(), address, reason: reason.to_string() }
    }
}
