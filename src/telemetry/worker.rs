//! Counters of the statement path: one set per worker thread, summed when scraped.
//!
//! Purpose: counting a statement costs one addition to memory that no other worker writes. Each
//! set is padded to its own cache lines, so two workers never fight over one. Called by the relays
//! (through [`WorkerCounters`]) and by [`super::metrics`], which sums. `Relaxed` is right here and
//! only here: the numbers are read by people, order nothing, and are never evidence for a drain.
//!
//! Each set has one writer, its worker thread, so an addition is a load and a store and needs no
//! locked instruction. A set written by two threads would lose counts, never more than that.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::sql::{CacheStats, StatementClass};

/// Class of a counted program, in the vocabulary's order; the discriminant is the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramClass {
    /// Reads only.
    Read,
    /// Changes rows.
    Write,
    /// Changes definitions.
    Ddl,
    /// Begins, ends or shapes a transaction.
    TransactionControl,
    /// Changes the session.
    Session,
    /// Creates, drops or alters databases, roles or server settings.
    Lifecycle,
    /// May write, and nothing can show that it doesn't.
    Unprovable,
    /// Replication and base backups.
    Stream,
}

impl From<StatementClass> for ProgramClass {
    fn from(class: StatementClass) -> Self {
        match class {
            StatementClass::TransactionControl => Self::TransactionControl,
            StatementClass::Session => Self::Session,
            StatementClass::Read => Self::Read,
            StatementClass::Stream => Self::Stream,
            StatementClass::Write => Self::Write,
            StatementClass::Ddl => Self::Ddl,
            StatementClass::Lifecycle => Self::Lifecycle,
            StatementClass::Unprovable => Self::Unprovable,
        }
    }
}

impl ProgramClass {
    /// All classes, in slot order.
    pub const ALL: [Self; 8] = [
        Self::Read,
        Self::Write,
        Self::Ddl,
        Self::TransactionControl,
        Self::Session,
        Self::Lifecycle,
        Self::Unprovable,
        Self::Stream,
    ];

    /// The label value.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Ddl => "ddl",
            Self::TransactionControl => "transaction_control",
            Self::Session => "session",
            Self::Lifecycle => "lifecycle",
            Self::Unprovable => "unprovable",
            Self::Stream => "stream",
        }
    }
}

/// What became of a text that `auto_prepare` keeps; the discriminant is the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AutoPrepared {
    /// It came again, and was parsed under a name.
    Named,
    /// It wasn't parsed: it was there.
    Reused,
    /// All that a session keeps was forgotten.
    Forgotten,
    /// The engine refused one because what it answers had changed.
    ResultChanged,
}

impl AutoPrepared {
    /// Each, in slot order.
    pub const ALL: [Self; 4] = [Self::Named, Self::Reused, Self::Forgotten, Self::ResultChanged];

    /// The label value.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Named => "named",
            Self::Reused => "reused",
            Self::Forgotten => "forgotten",
            Self::ResultChanged => "result_changed",
        }
    }
}

/// Counters of one worker thread. 256 bytes: whole pairs of lines, for processors that fetch these.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerCounters {
    accepted: AtomicU64,
    refused: AtomicU64,
    opened: AtomicU64,
    closed: AtomicU64,
    to_engine: AtomicU64,
    to_client: AtomicU64,
    cache_hits: AtomicU64,
    cache_misses: AtomicU64,
    programs: [AtomicU64; 8],
    auto_prepared: [AtomicU64; 4],
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

impl WorkerCounters {
    /// A client connection was accepted.
    pub fn connection_accepted(&self) {
        add(&self.accepted, 1);
    }

    /// A client connection was turned away (bound reached, bad start, not ready).
    pub fn connection_refused(&self) {
        add(&self.refused, 1);
    }

    /// A session was paired with an engine connection.
    pub fn session_opened(&self) {
        add(&self.opened, 1);
    }

    /// A session counted by [`Self::session_opened`], by this worker or another, ended.
    pub fn session_closed(&self) {
        add(&self.closed, 1);
    }

    /// Bytes written to an engine for a client.
    pub fn relayed_to_engine(&self, bytes: u64) {
        add(&self.to_engine, bytes);
    }

    /// Bytes written to a client for an engine.
    pub fn relayed_to_client(&self, bytes: u64) {
        add(&self.to_client, bytes);
    }

    /// What this worker's classifier has counted since it was made. A worker has one, for as long
    /// as it runs, so its totals are this set's.
    pub fn classifier(&self, stats: CacheStats) {
        self.cache_hits.store(stats.hits, Ordering::Relaxed);
        self.cache_misses.store(stats.misses, Ordering::Relaxed);
    }

    /// One program was admitted for forwarding: a query, a function call, a prepared statement that
    /// is executed, or a command that does work by its opcode. What is refused isn't counted here.
    pub fn program(&self, class: impl Into<ProgramClass>) {
        let slot = match class.into() {
            ProgramClass::Read => 0,
            ProgramClass::Write => 1,
            ProgramClass::Ddl => 2,
            ProgramClass::TransactionControl => 3,
            ProgramClass::Session => 4,
            ProgramClass::Lifecycle => 5,
            ProgramClass::Unprovable => 6,
            ProgramClass::Stream => 7,
        };
        add(&self.programs[slot], 1);
    }

    /// Something became of a text that `auto_prepare` keeps.
    pub fn auto_prepared(&self, what: AutoPrepared) {
        let slot = match what {
            AutoPrepared::Named => 0,
            AutoPrepared::Reused => 1,
            AutoPrepared::Forgotten => 2,
            AutoPrepared::ResultChanged => 3,
        };
        add(&self.auto_prepared[slot], 1);
    }
}

/// The sums over all workers at one moment. Each number is exact; together they are no snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Client connections accepted.
    pub accepted: u64,
    /// Client connections turned away.
    pub refused: u64,
    /// Sessions open now.
    pub sessions: u64,
    /// Bytes from clients to engines.
    pub to_engine: u64,
    /// Bytes from engines to clients.
    pub to_client: u64,
    /// Classifier cache hits.
    pub cache_hits: u64,
    /// Classifier cache misses.
    pub cache_misses: u64,
    /// Programs by class, in [`ProgramClass::ALL`] order.
    pub programs: [u64; 8],
    /// Texts that `auto_prepare` keeps, in [`AutoPrepared::ALL`] order.
    pub auto_prepared: [u64; 4],
}

/// All workers' counters. A set lives as long as the registry, so a sum never falls.
#[derive(Debug, Default)]
pub struct WorkerRegistry {
    // Guards the list only; counting never takes it. Taken once per worker and once per scrape.
    workers: Mutex<Vec<Arc<WorkerCounters>>>,
}

impl WorkerRegistry {
    /// A fresh set for one worker thread. Call it once per thread, not per session.
    #[must_use]
    pub fn worker(&self) -> Arc<WorkerCounters> {
        let counters = Arc::new(WorkerCounters::default());
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.push(Arc::clone(&counters));
        counters
    }

    /// The sums now.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut totals = Totals::default();
        let (mut opened, mut closed) = (0_u64, 0_u64);
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        for worker in workers.iter() {
            totals.accepted += get(&worker.accepted);
            totals.refused += get(&worker.refused);
            closed += get(&worker.closed);
            opened += get(&worker.opened);
            totals.to_engine += get(&worker.to_engine);
            totals.to_client += get(&worker.to_client);
            totals.cache_hits += get(&worker.cache_hits);
            totals.cache_misses += get(&worker.cache_misses);
            for (sum, counter) in totals.programs.iter_mut().zip(&worker.programs) {
                *sum += get(counter);
            }
            for (sum, counter) in totals.auto_prepared.iter_mut().zip(&worker.auto_prepared) {
                *sum += get(counter);
            }
        }
        // A session may open on one worker and close on another between the two reads.
        totals.sessions = opened.saturating_sub(closed);
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_summed_and_padded() {
        assert_eq!(std::mem::align_of::<WorkerCounters>(), 128);
        assert_eq!(std::mem::size_of::<WorkerCounters>(), 256);
        let registry = WorkerRegistry::default();
        let (one, two) = (registry.worker(), registry.worker());
        one.session_opened();
        one.session_opened();
        two.session_closed();
        one.program(ProgramClass::Write);
        two.program(ProgramClass::Write);
        two.program(ProgramClass::Unprovable);
        two.relayed_to_client(10);
        one.auto_prepared(AutoPrepared::Reused);
        two.auto_prepared(AutoPrepared::Reused);
        two.auto_prepared(AutoPrepared::ResultChanged);
        drop(two);
        let totals = registry.totals();
        assert_eq!((totals.sessions, totals.to_client), (1, 10));
        assert_eq!(totals.programs, [0, 2, 0, 0, 0, 0, 1, 0]);
        assert_eq!(totals.auto_prepared, [0, 2, 0, 1]);
    }

    #[test]
    fn slots_follow_the_order_of_all() {
        for (slot, class) in ProgramClass::ALL.into_iter().enumerate() {
            let registry = WorkerRegistry::default();
            registry.worker().program(class);
            assert_eq!(registry.totals().programs[slot], 1, "{}", class.label());
        }
    }
}
