//! Which SQLSTATE a denial has for clients, and how often each was given.
//!
//! Purpose: the `[compat.sqlstate]` table (wire.md section 4) applied in one place, and the counts
//! behind `fencewire_denials_total`. Refusals are rare against statements: plain shared counters.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fence::code::Denial;

/// Codes as configured, and counters.
#[derive(Debug)]
pub struct Denials {
    sqlstates: [String; Denial::ALL.len()],
    counts: [AtomicU64; Denial::ALL.len()],
}

fn index(denial: Denial) -> usize {
    Denial::ALL.iter().position(|one| *one == denial).unwrap_or(0)
}

impl Denials {
    /// With a compat table of `ZF…` code to standard SQLSTATE; unknown keys were refused by the
    /// configuration.
    #[must_use]
    pub fn new(compat: &BTreeMap<String, String>) -> Self {
        Self {
            sqlstates: Denial::ALL.map(|denial| {
                let own = denial.sqlstate();
                compat.get(own).cloned().unwrap_or_else(|| own.to_owned())
            }),
            counts: Denial::ALL.map(|_| AtomicU64::new(0)),
        }
    }

    /// The SQLSTATE a client gets.
    #[must_use]
    pub fn sqlstate(&self, denial: Denial) -> &str {
        self.sqlstates.get(index(denial)).map_or(denial.sqlstate(), String::as_str)
    }

    /// Counts one.
    pub fn count(&self, denial: Denial) {
        if let Some(count) = self.counts.get(index(denial)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Every denial with its count since the start.
    #[must_use]
    pub fn counts(&self) -> Vec<(Denial, u64)> {
        Denial::ALL
            .iter()
            .zip(&self.counts)
            .map(|(denial, count)| (*denial, count.load(Ordering::Relaxed)))
            .collect()
    }
}
