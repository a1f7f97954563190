//! The closed table of what `/metrics` shows: every family, its kind, its labels, their values.
//!
//! Purpose: one list that dashboards, alert rules and tests are held against. A scrape with a
//! family, a label or a value that isn't here is a bug, and so is a row here that no scrape shows
//! (`tests/observability.rs`). Nothing here counts; [`super::metrics`] does.

use super::labels;

/// What a family is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, from 0 at each start; its samples end in `_total`.
    Counter,
    /// Goes up and down; computed when scraped.
    Gauge,
    /// Samples that end in `_bucket`, `_sum` and `_count`.
    Histogram,
}

impl Kind {
    /// The word in a scrape's `# TYPE` line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }

    /// The endings of its samples' names.
    #[must_use]
    pub const fn endings(self) -> &'static [&'static str] {
        match self {
            Self::Counter => &["_total"],
            Self::Gauge => &[""],
            Self::Histogram => &["_bucket", "_sum", "_count"],
        }
    }
}

/// One family.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Its name, without the ending of its samples.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its labels, and the values that each may have beside [`labels::OTHER`].
    pub labels: &'static [(&'static str, &'static [&'static str])],
}

impl Family {
    /// The names of its samples, as queries use them.
    #[must_use]
    pub fn samples(&self) -> Vec<String> {
        self.kind.endings().iter().map(|ending| format!("{}{ending}", self.name)).collect()
    }
}

const fn family(
    name: &'static str,
    kind: Kind,
    labels: &'static [(&'static str, &'static [&'static str])],
) -> Family {
    Family { name, kind, labels }
}

/// Every family: first the fence contract's, then the proxy's own. The contract's count of refusals
/// by another fence behind this one (`replica_fence_refusals`) isn't kept yet.
pub const TABLE: &[Family] = &[
    family(
        "fencewire_fence_transitions",
        Kind::Counter,
        &[("command", labels::COMMANDS), ("outcome", labels::OUTCOMES)],
    ),
    family("fencewire_fence_drain_duration_seconds", Kind::Histogram, &[("kind", labels::DRAINS)]),
    family("fencewire_fence_forced", Kind::Counter, &[("kind", labels::FORCED)]),
    family("fencewire_fence_replays", Kind::Counter, &[("result", labels::REPLAYS)]),
    family(
        "fencewire_fence_denials",
        Kind::Counter,
        &[("code", labels::DENIALS), ("surface", labels::SURFACES)],
    ),
    family("fencewire_fence_adoptions", Kind::Counter, &[]),
    family(
        "fencewire_fence_namespaces",
        Kind::Gauge,
        &[("role", labels::ROLES), ("state", labels::STATES)],
    ),
    family("fencewire_fence_oldest_active_age_seconds", Kind::Gauge, &[]),
    family("fencewire_metastore_restored_from_backup", Kind::Gauge, &[]),
    family("fencewire_fence_active", Kind::Gauge, &[]),
    family("fencewire_fence_engine_locks", Kind::Gauge, &[("state", labels::LOCKS)]),
    family("fencewire_fence_engine_lock_losses", Kind::Counter, &[]),
    family("fencewire_held_ended", Kind::Counter, &[("outcome", labels::PARTINGS)]),
    family("fencewire_held_programs", Kind::Gauge, &[]),
    family("fencewire_held_bytes", Kind::Gauge, &[]),
    family("fencewire_held_oldest_age_seconds", Kind::Gauge, &[]),
    family("fencewire_engines", Kind::Gauge, &[]),
    family("fencewire_orphans", Kind::Gauge, &[]),
    family(
        "fencewire_admin_requests",
        Kind::Counter,
        &[("route", labels::ROUTES), ("status", labels::STATUSES)],
    ),
    family("fencewire_sessions", Kind::Gauge, &[]),
    family("fencewire_connections", Kind::Counter, &[("result", labels::CONNECTIONS)]),
    family("fencewire_relayed_bytes", Kind::Counter, &[("direction", labels::DIRECTIONS)]),
    family("fencewire_programs", Kind::Counter, &[("class", labels::PROGRAMS)]),
    family("fencewire_classifier_lookups", Kind::Counter, &[("result", labels::LOOKUPS)]),
    family("fencewire_auto_prepared", Kind::Counter, &[("event", labels::AUTO_PREPARED)]),
];

/// The family that a sample's name belongs to.
#[must_use]
pub fn family_of(sample: &str) -> Option<&'static Family> {
    TABLE.iter().find(|family| family.samples().iter().any(|name| name == sample))
}
