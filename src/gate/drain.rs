//! Waiting until every lease that a closed gate no longer admits has been released.
//!
//! Purpose: defines and makes [`Drained`], the first of the three evidences of a write fence
//! (proof.md 1, step 4), and [`ReadsDrained`], the evidence of a read fence (proof.md 5). Both are
//! made from slots alone; no clock, timeout or socket takes part (invariants 6, 7).
//!
//! A write drain waits for writers' leases, and for programs that were admitted as reads before the
//! gate closed and still run: they have no guard, a view can hide a function that writes, and the
//! engine lock covers neither sequences nor the catalog. Idle transactions aren't waited for: their
//! next program is guarded. Logins are waited for where code of the database's may run in them
//! (`gate/logins.rs`).
//!
//! A read drain waits for every program that runs, whatever it is, for open cursors, and for the
//! transaction of a dump. Other idle transactions aren't waited for: their next program is refused.
//!
//! Called by `control/drain.rs` and `control/read_drain.rs`, which add deadlines and ask the engine
//! about abandoned leases.

use std::collections::HashMap;
use std::sync::Arc;

use crate::base::arm::{Removable, removed};
use crate::base::ids::{Generation, Namespace, SessionId};
use crate::gate::registry::Gate;
use crate::gate::slot::{Order, Running, Slot};

/// What a drain has waited for so far. Kept over several waits, so that the counts are of the
/// whole drain.
#[derive(Debug)]
struct Wait {
    gate: Arc<Gate>,
    generation: Generation,
    /// Who has been waited for.
    seen: HashMap<SessionId, Arc<Slot>>,
    /// Whether a session is one that is waited for, behind a gate of this generation.
    counts: fn(&Slot, Generation) -> bool,
}

/// The end of a wait: how many leases were waited for, by how they ended.
struct Ended {
    by_answer: u64,
    by_engine: u64,
}

impl Wait {
    fn new(gate: Arc<Gate>, generation: Generation, counts: fn(&Slot, Generation) -> bool) -> Self {
        Self { gate, generation, seen: HashMap::new(), counts }
    }

    fn counts(&self, slot: &Slot) -> bool {
        (self.counts)(slot, self.generation)
    }

    /// Logins first: one that ends becomes a session.
    fn listed(&self) -> impl Iterator<Item = Arc<Slot>> {
        let logins = self.gate.logins();
        logins.into_iter().chain(self.gate.sessions())
    }

    fn blockers(&mut self) -> Vec<Arc<Slot>> {
        let blocking: Vec<Arc<Slot>> = self.listed().filter(|slot| self.counts(slot)).collect();
        self.seen.extend(blocking.iter().map(|slot| (slot.id(), Arc::clone(slot))));
        blocking
    }

    fn look(&mut self) -> Option<Ended> {
        if !self.blockers().is_empty() {
            return None;
        }
        let waited = self.seen.len() as u64;
        // An abandoned lease is never released: only the engine's word takes its session away.
        let settled = self.seen.values().filter(|slot| slot.is_abandoned() && self.counts(slot));
        let by_engine = settled.count() as u64;
        Some(Ended { by_answer: waited - by_engine, by_engine })
    }

    /// Waits until nothing is left.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost but the wait; the counts are kept.
    async fn wait(&mut self) -> Ended {
        let gate = Arc::clone(&self.gate);
        loop {
            // Registered before looking: a release between the look and the wait isn't lost.
            let released = gate.released.notified();
            tokio::pin!(released);
            released.as_mut().enable();
            if let Some(ended) = self.look() {
                return ended;
            }
            released.await;
        }
    }
}

/// Evidence: no writer's lease of a generation before `generation` is left in the namespace.
///
/// It can't be made elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drained {
    namespace: Namespace,
    generation: Generation,
    by_answer: u64,
    by_engine: u64,
}

impl Drained {
    /// The namespace it speaks of.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Every older generation is drained.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// How many leases it waited for that the engine's protocol answer released.
    #[must_use]
    pub const fn by_answer(&self) -> u64 {
        self.by_answer
    }

    /// How many that were released because the engine showed the backend gone.
    #[must_use]
    pub const fn by_engine(&self) -> u64 {
        self.by_engine
    }
}

/// One drain of writers.
#[derive(Debug)]
pub struct Drain {
    wait: Wait,
}

fn is_waited_for_by_writes(slot: &Slot, generation: Generation) -> bool {
    slot.stamp().is_some_and(|stamp| {
        let counts = stamp.writer || stamp.running == Running::Unguarded || slot.is_abandoned();
        counts && stamp.generation < generation
    })
}

impl Drain {
    /// A drain of everything older than the gate's current generation.
    ///
    /// Returns `None` while writes are open: there is nothing a drain could be about.
    #[must_use]
    pub fn of(gate: Arc<Gate>) -> Option<Self> {
        let word = gate.word();
        if word.writes_open() {
            return None;
        }
        let generation = word.generation();
        let mut drain = Self { wait: Wait::new(gate, generation, is_waited_for_by_writes) };
        look_where_unsure(drain.blockers(), generation);
        Some(drain)
    }

    /// Whether a session's lease is one that this drain waits for.
    #[must_use]
    pub fn waits_for(&self, slot: &Slot) -> bool {
        self.wait.counts(slot)
    }

    /// The generation before which everything must be released.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.wait.generation
    }

    /// The sessions whose leases are waited for now.
    pub fn blockers(&mut self) -> Vec<Arc<Slot>> {
        self.wait.blockers()
    }

    /// Waits until there is no blocker.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost but the wait; the counts are kept.
    pub async fn wait(&mut self) -> Drained {
        let ended = self.wait.wait().await;
        self.drained(&ended)
    }

    /// The evidence, if there is no blocker at this moment.
    pub fn look(&mut self) -> Option<Drained> {
        let ended = self.wait.look()?;
        Some(self.drained(&ended))
    }

    fn drained(&self, ended: &Ended) -> Drained {
        let late = removed(Removable::DrainGeneration);
        Drained {
            namespace: self.wait.gate.namespace().clone(),
            generation: if late { self.wait.gate.word().generation() } else { self.generation() },
            by_answer: ended.by_answer,
            by_engine: ended.by_engine,
        }
    }
}

/// Has sessions whose last answer told no status ask the engine where they stand.
fn look_where_unsure(slots: Vec<Arc<Slot>>, generation: Generation) {
    for slot in slots.into_iter().filter(|slot| slot.is_unsure()) {
        slot.order(Order::LOOK, generation);
    }
}

/// Evidence: at one moment behind the closing of reads nothing read in the namespace, and nothing
/// can have begun since.
///
/// It can't be made elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadsDrained {
    namespace: Namespace,
    generation: Generation,
    by_answer: u64,
    by_engine: u64,
}

impl ReadsDrained {
    /// The namespace it speaks of.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The generation of the gate that was closed to reads.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// How many leases it waited for that the engine's protocol answer released.
    #[must_use]
    pub const fn by_answer(&self) -> u64 {
        self.by_answer
    }

    /// How many that were released because the engine showed the backend gone.
    #[must_use]
    pub const fn by_engine(&self) -> u64 {
        self.by_engine
    }
}

/// What kind of reading a session does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Statements and cursors.
    Sql,
    /// A dump tool's session.
    Dump,
    /// A replica's stream.
    Stream,
}

/// What these tools call themselves. A dump is one transaction of many statements.
const DUMPERS: [&str; 4] = ["pg_dump", "pg_dumpall", "mysqldump", "mariadb-dump"];

impl Reading {
    /// What a session with a lease reads as; `None` for a writer's, or without one.
    #[must_use]
    pub fn of(slot: &Slot) -> Option<Self> {
        let stamp = slot.stamp();
        if stamp.is_none_or(|stamp| stamp.writer) && !slot.has_cursor() {
            return None;
        }
        if stamp.is_some_and(|stamp| stamp.stream) {
            return Some(Self::Stream);
        }
        Some(if is_dumps(slot) { Self::Dump } else { Self::Sql })
    }
}

/// Whether a session is a dump tool's.
#[must_use]
pub fn is_dumps(slot: &Slot) -> bool {
    DUMPERS.contains(&slot.card().application_name.as_str())
}

/// One drain of readers.
#[derive(Debug)]
pub struct ReadDrain {
    wait: Wait,
}

/// The end of a transaction of before may run behind the closing: it is waited for like the rest.
fn is_waited_for_by_reads(slot: &Slot, _generation: Generation) -> bool {
    // In this order: see `Slot::is_reading`.
    let leased = slot.stamp().is_some();
    slot.is_reading()
        || (leased && (slot.is_abandoned() || Reading::of(slot) == Some(Reading::Dump)))
}

impl ReadDrain {
    /// A drain of everything that reads through the namespace's sessions.
    ///
    /// Returns `None` while reads are open: there is nothing a drain could be about.
    #[must_use]
    pub fn of(gate: Arc<Gate>) -> Option<Self> {
        let word = gate.word();
        if word.reads_open() {
            return None;
        }
        let generation = word.generation();
        let mut drain = Self { wait: Wait::new(gate, generation, is_waited_for_by_reads) };
        look_where_unsure(drain.blockers(), generation);
        Some(drain)
    }

    /// The generation before which everything must be released.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.wait.generation
    }

    /// The sessions that are waited for now.
    pub fn blockers(&mut self) -> Vec<Arc<Slot>> {
        self.wait.blockers()
    }

    /// Waits until nothing reads.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost but the wait; the counts are kept.
    pub async fn wait(&mut self) -> ReadsDrained {
        let ended = self.wait.wait().await;
        self.drained(&ended)
    }

    /// The evidence, if nothing reads at this moment.
    pub fn look(&mut self) -> Option<ReadsDrained> {
        let ended = self.wait.look()?;
        Some(self.drained(&ended))
    }

    fn drained(&self, ended: &Ended) -> ReadsDrained {
        ReadsDrained {
            namespace: self.wait.gate.namespace().clone(),
            generation: self.wait.generation,
            by_answer: ended.by_answer,
            by_engine: ended.by_engine,
        }
    }
}
