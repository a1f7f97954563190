//! The control side of one engine, of whichever protocol.
//!
//! Purpose: `app::start` and `app::reload` make the same handles from the same settings, and only
//! here is it decided which engine module speaks to which server.

use std::sync::Arc;

use super::{AppError, build};
use crate::config::{self, Config};
use crate::control::my::MyPort;
use crate::control::pg::PgPort;
use crate::control::port::EnginePort;
use crate::engine::{MyEngine, PgEngine};

/// A handle to one engine's control connections; a cheap clone.
#[derive(Debug, Clone)]
pub(super) enum ControlEngine {
    Pg(PgEngine),
    My(MyEngine),
}

impl ControlEngine {
    /// Makes the handle; connects to nothing yet. Reads the CA file.
    pub(super) fn new(config: &Config, engine: &config::Engine) -> Result<Self, AppError> {
        let settings = build::control_engine(config, engine);
        Ok(match engine.protocol {
            config::Protocol::Postgres => Self::Pg(PgEngine::new(settings)?),
            config::Protocol::Mysql => Self::My(MyEngine::new(settings)?),
        })
    }

    /// What `control` asks.
    pub(super) fn port(&self) -> Arc<dyn EnginePort> {
        match self {
            Self::Pg(engine) => Arc::new(PgPort::new(engine.clone())),
            Self::My(engine) => Arc::new(MyPort::new(engine.clone())),
        }
    }

    /// Tells at the start what would otherwise be learned in the middle of a move: a wrong
    /// password, a missing grant. Clients don't wait for it, and nothing depends on it; the
    /// engine's connect and statement timeouts bound it.
    ///
    /// Cancel safety: it only asks and logs.
    pub(super) async fn check(self) {
        let (name, live) = match &self {
            Self::Pg(engine) => (engine.name(), engine.check().await),
            Self::My(engine) => (engine.name(), engine.check().await),
        };
        match live {
            Ok(live) => {
                let version = live.server_version_num;
                tracing::info!(engine = %name, version, "the control role can be used");
            }
            Err(error) => tracing::warn!(
                engine = %name, %error,
                "the control role can't be used: clients are relayed, but no fence can be proven"
            ),
        }
    }
}
