//! Which SQLSTATE a denial has for clients, and the count of each.
//!
//! Purpose: the `[compat.sqlstate]` table (wire.md section 4) applied in one place, and
//! `fencewire_fence_denials_total`. Refusals are rare against statements: shared counters will do.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::arm::{Removable, removed};
use crate::fence::code::Denial;
use crate::telemetry::metrics::Metrics;

/// Where a denial was given, for the metric's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// The PostgreSQL wire.
    Pg,
    /// The MySQL wire.
    Mysql,
    /// A replication connection.
    Replication,
    /// A dump tool's session.
    Dump,
}

/// Codes as configured, and counters.
#[derive(Debug)]
pub struct Denials {
    sqlstates: Vec<(Denial, String)>,
    metrics: Arc<Metrics>,
}

impl Denials {
    /// With a compat table of `ZF…` code to standard SQLSTATE; unknown keys were refused by the
    /// configuration.
    #[must_use]
    pub fn new(compat: &BTreeMap<String, String>, metrics: Arc<Metrics>) -> Self {
        let mapped = |denial: Denial| {
            let own = denial.sqlstate();
            (denial, compat.get(own).cloned().unwrap_or_else(|| own.to_owned()))
        };
        Self { sqlstates: Denial::ALL.into_iter().map(mapped).collect(), metrics }
    }

    /// The SQLSTATE a client gets.
    #[must_use]
    pub fn sqlstate(&self, denial: Denial) -> &str {
        if removed(Removable::OwnCodes) {
            return "25006";
        }
        let mapped = self.sqlstates.iter().find(|(one, _)| *one == denial);
        mapped.map_or(denial.sqlstate(), |(_, sqlstate)| sqlstate)
    }

    /// A program is held no longer, or found no room to be; `outcome` is the metric's label.
    pub fn held(&self, outcome: &str) {
        self.metrics.fence.held_ended(outcome);
    }

    /// Counts one.
    pub fn count(&self, denial: Denial, surface: Surface) {
        let surface = match (denial, surface) {
            (Denial::Lifecycle, _) => "lifecycle",
            (_, Surface::Pg) => "pg",
            (_, Surface::Mysql) => "mysql",
            (_, Surface::Replication) => "replication",
            (_, Surface::Dump) => "dump",
        };
        self.metrics.fence.denial(denial.code(), surface);
    }
}
