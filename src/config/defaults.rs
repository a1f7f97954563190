//! Every default and every permitted range of the configuration, in one place.
//!
//! Purpose: what a key means when it is absent, and how far it may go. Called by `check`, and by
//! `cli` for the address of the admin surface. Bounds on memory and time that are not configurable
//! live with the parts that enforce them.

use std::ops::RangeInclusive;

use crate::base::limits;

/// Directory for state when none is named.
pub const STATE_DIR: &str = "./fencewire-state";
/// File of the embedded store within the state directory.
pub(super) const STORE_FILE: &str = "fence.db";
/// Instance name when the host has none.
pub(super) const INSTANCE: &str = "fencewire";
/// Environment variable of the admin key when there is no file.
pub const ADMIN_KEY_VARIABLE: &str = "FENCEWIRE_ADMIN_KEY";
/// The environment variable in which `ctl adopt` looks for the second key.
pub const ADOPTION_KEY_VARIABLE: &str = "FENCEWIRE_ADOPTION_KEY";
/// Where the admin surface listens.
pub const ADMIN_HTTP: &str = "127.0.0.1:6480";
/// Log filter.
pub(super) const LOG_LEVEL: &str = "info";
/// Database of a PostgreSQL control connection.
pub(super) const POSTGRES_DATABASE: &str = "postgres";

/// A whole number's default, range and unit.
pub(super) struct Bounded {
    pub(super) default: u64,
    pub(super) range: RangeInclusive<u64>,
    pub(super) unit: &'static str,
}

const fn bounded(default: u64, range: RangeInclusive<u64>, unit: &'static str) -> Bounded {
    Bounded { default, range, unit }
}

const MS: &str = "milliseconds";
const DAY_MS: u64 = 86_400_000;

pub(super) const SHUTDOWN_GRACE_MS: Bounded = bounded(30_000, 0..=3_600_000, MS);
pub(super) const MAX_SESSIONS: Bounded = bounded(10_000, 1..=1_000_000, "sessions");
pub(super) const WORKERS: Bounded = bounded(0, 0..=1024, "threads (0: one per core)");
pub(super) const CONNECT_TIMEOUT_MS: Bounded = bounded(5_000, 1..=600_000, MS);
pub(super) const WRITE_DRAIN_MS: Bounded = bounded(30_000, 0..=DAY_MS, MS);
pub(super) const READ_DRAIN_MS: Bounded = bounded(30_000, 0..=DAY_MS, MS);
pub(super) const HOLD_MS: Bounded = bounded(0, 0..=limits::HOLD_MAX_MS, MS);
pub(super) const MAX_HELD: Bounded =
    bounded(limits::HELD_DEFAULT_MAX as u64, 0..=1_000_000, "programs");
pub(super) const RECEIPT_RETENTION_DAYS: Bounded = bounded(30, 30..=36_500, "days");

/// Functions that `trusted_functions` may list.
pub(super) const TRUSTED_FUNCTIONS_MAX: usize = 10_000;
