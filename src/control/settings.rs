//! What control is told by the configuration.
//!
//! Purpose: [`Settings`] for the process and [`NamespaceSettings`] for each namespace; `app` makes
//! both from the checked configuration and may replace the latter while running. Nothing here is
//! read from files.

use std::sync::Arc;
use std::time::Duration;

use crate::base::ids::Namespace;
use crate::base::limits;
use crate::fence::record::{DrainPolicy, InFlight, LockMode, OnDeadline};

/// For the whole process.
#[derive(Debug, Clone)]
pub struct Settings {
    /// This proxy's name, unique in a fleet.
    pub instance: String,
    /// Version and commit of the build.
    pub build: String,
    /// Whether commands may be used. Existing fences are enforced either way.
    pub fence_enabled: bool,
    /// Least time that forced work is given to be seen to end.
    pub forced_grace: Duration,
}

impl Settings {
    /// The defaults under an instance's name.
    #[must_use]
    pub fn new(instance: &str) -> Self {
        Self {
            instance: instance.to_owned(),
            build: env!("CARGO_PKG_VERSION").to_owned(),
            fence_enabled: true,
            forced_grace: Duration::from_millis(limits::FORCED_RELEASE_GRACE_MS),
        }
    }
}

/// For one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceSettings {
    /// Deadline of a write drain whose command names none, in milliseconds.
    pub write_drain_ms: u64,
    /// Deadline of a read drain whose command names none, in milliseconds.
    pub read_drain_ms: u64,
    /// What writers admitted before a fence may do, unless the command says.
    pub in_flight: InFlight,
    /// How long programs that a closed write gate would refuse are held first, in milliseconds,
    /// unless the command says; 0 refuses at once.
    pub hold_ms: u64,
    /// How many programs are held at once.
    pub held_max: usize,
    /// Whether idle sessions around the proxy block a drain.
    pub sole_path_required: bool,
    /// How the engine's own table locks are used.
    pub engine_lock: LockMode,
    /// How long one attempt at the engine lock waits for one table.
    pub lock_timeout: Duration,
    /// How long receipts of finished operations are kept, in milliseconds.
    pub receipt_retention_ms: u64,
}

impl Default for NamespaceSettings {
    fn default() -> Self {
        Self {
            write_drain_ms: limits::WRITE_DRAIN_DEFAULT_MS,
            read_drain_ms: limits::READ_DRAIN_DEFAULT_MS,
            in_flight: InFlight::Finish,
            hold_ms: 0,
            held_max: limits::HELD_DEFAULT_MAX,
            sole_path_required: false,
            engine_lock: LockMode::Hold,
            lock_timeout: Duration::from_millis(limits::ENGINE_LOCK_TIMEOUT_MS),
            receipt_retention_ms: limits::RECEIPT_RETENTION_DEFAULT_MS,
        }
    }
}

impl NamespaceSettings {
    /// The policy of a write drain that doesn't bring its own.
    #[must_use]
    pub const fn write_drain(&self) -> DrainPolicy {
        policy(self.write_drain_ms)
    }

    /// The policy of a read drain that doesn't bring its own.
    #[must_use]
    pub const fn read_drain(&self) -> DrainPolicy {
        policy(self.read_drain_ms)
    }
}

const fn policy(deadline_ms: u64) -> DrainPolicy {
    DrainPolicy { deadline_ms, on_deadline: OnDeadline::Fail, in_flight: None, hold_ms: None }
}

/// Answers what holds for one namespace.
pub type SettingsFor = Arc<dyn Fn(&Namespace) -> NamespaceSettings + Send + Sync>;
