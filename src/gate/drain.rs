//! Waiting until every lease that a closed gate no longer admits has been released.
//!
//! Purpose: defines and makes [`Drained`], the first of the three evidences of a fence (proof.md 1,
//! step 4). It is made from slots alone; no clock, timeout or socket takes part (invariants 6, 7).
//!
//! Waited for are writers' leases, and programs that were admitted as reads before the gate closed
//! and still run: they have no guard, a view can hide a function that writes, and the engine lock
//! covers neither sequences nor the catalog. Idle transactions aren't: their next program is
//! guarded.
//!
//! Called by `control/drain.rs`, which adds deadlines and asks the engine about abandoned leases.

use std::collections::HashSet;
use std::sync::Arc;

use crate::base::arm::{Removable, removed};
use crate::base::ids::{Generation, Namespace, SessionId};
use crate::gate::registry::Gate;
use crate::gate::slot::{Order, Running, Slot};

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

/// One drain: what it has waited for so far. Kept over several waits, so that the counts are of
/// the whole drain.
#[derive(Debug)]
pub struct Drain {
    gate: Arc<Gate>,
    generation: Generation,
    seen: HashSet<SessionId>,
    settled_before: u64,
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
        let settled_before = gate.settled_count();
        let (generation, seen) = (word.generation(), HashSet::new());
        let mut drain = Self { gate, generation, seen, settled_before };
        for slot in drain.blockers().into_iter().filter(|slot| slot.is_unsure()) {
            slot.order(Order::LOOK, generation);
        }
        Some(drain)
    }

    /// Whether a session's lease is one that this drain waits for.
    #[must_use]
    pub fn waits_for(&self, slot: &Slot) -> bool {
        slot.stamp().is_some_and(|stamp| {
            let counts = stamp.writer || stamp.running == Running::Unguarded || slot.is_abandoned();
            counts && stamp.generation < self.generation
        })
    }

    /// The generation before which everything must be released.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// The sessions whose leases are waited for now.
    pub fn blockers(&mut self) -> Vec<Arc<Slot>> {
        let blocking: Vec<Arc<Slot>> =
            self.gate.sessions().into_iter().filter(|slot| self.waits_for(slot)).collect();
        self.seen.extend(blocking.iter().map(|slot| slot.id()));
        blocking
    }

    /// Waits until there is no blocker.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost but the wait; the counts are kept.
    pub async fn wait(&mut self) -> Drained {
        let gate = Arc::clone(&self.gate);
        loop {
            // Registered before looking: a release between the look and the wait isn't lost.
            let released = gate.released.notified();
            tokio::pin!(released);
            released.as_mut().enable();
            if let Some(drained) = self.look() {
                return drained;
            }
            released.await;
        }
    }

    /// The evidence, if there is no blocker at this moment.
    pub fn look(&mut self) -> Option<Drained> {
        if !self.blockers().is_empty() {
            return None;
        }
        let waited = self.seen.len() as u64;
        let by_engine = self.gate.settled_count().saturating_sub(self.settled_before).min(waited);
        let late = removed(Removable::DrainGeneration);
        let generation = if late { self.gate.word().generation() } else { self.generation };
        Some(Drained {
            namespace: self.gate.namespace().clone(),
            generation,
            by_answer: waited - by_engine,
            by_engine,
        })
    }
}
