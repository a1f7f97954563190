//! The gate's transitions as a plain struct: what is published next, under which generation.
//!
//! Purpose: all rules of when the generation moves, without atomics, locks or async, so that every
//! interleaving can be enumerated (invariants 3 and 5). `gate/registry.rs` wraps it; nothing else
//! changes a policy. It doesn't know sessions.

use crate::base::arm::{Removable, removed};
use crate::base::ids::Generation;
use crate::fence::verdict::{Overlay, Policy};

/// Generation and policy of one gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateCore {
    generation: Generation,
    policy: Policy,
}

impl GateCore {
    /// A gate about which nothing is known: closed.
    #[must_use]
    pub const fn closed(first: Generation) -> Self {
        Self { generation: first, policy: Policy::unknown() }
    }

    /// The current generation.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// The current policy.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Replaces the policy. The generation moves when the state, the owner or the overlay changes
    /// (contract 1.7), and not when the same durable state is published again.
    ///
    /// One exception, from the contract's step 4: INSTALLING, or the closing of reads, replaced by
    /// the draining state it was put up for keeps the generation, because there was no reopening
    /// in between. Leases of before the overlay are older than both.
    pub fn publish(&mut self, next: Policy) -> Generation {
        let same = self.policy.state == next.state
            && self.policy.operation == next.operation
            && self.policy.overlay == next.overlay;
        let stays_closed = match self.policy.overlay {
            Overlay::Installing => !next.writes_open(),
            Overlay::ClosingReads => !next.reads_open(),
            Overlay::None | Overlay::CreatingTarget | Overlay::Indeterminate => false,
        };
        let installed = next.overlay == Overlay::None && stays_closed;
        if !same && !installed {
            self.generation = Generation(self.generation.0 + 1);
        }
        if removed(Removable::GenerationGrowth) {
            self.generation = Generation(next.revision.0);
        }
        self.policy = next;
        self.generation
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{OperationId, Revision};
    use crate::fence::state::FenceState;

    fn draining(operation: OperationId) -> Policy {
        Policy {
            state: FenceState::SourceDraining,
            revision: Revision(1),
            operation: Some(operation),
            ..Policy::unfenced()
        }
    }

    #[test]
    fn the_generation_moves_with_admission_and_only_grows() {
        let mut gate = GateCore::closed(Generation(1));
        let operation = OperationId::fresh();
        let start = gate.generation();
        let open = gate.publish(Policy::unfenced());
        assert!(open > start);
        assert_eq!(gate.publish(Policy::unfenced()), open, "the same state again moves nothing");
        let installing = Policy { overlay: Overlay::Installing, ..Policy::unfenced() };
        let closed = gate.publish(installing.clone());
        assert!(closed > open);
        assert_eq!(gate.publish(draining(operation)), closed, "committed in place of the overlay");
        let fenced = Policy { state: FenceState::SourceWriteFenced, ..draining(operation) };
        assert!(gate.publish(fenced) > closed);
    }

    #[test]
    fn reads_are_closed_by_one_step_of_the_generation_and_opened_by_another() {
        let mut gate = GateCore::closed(Generation(1));
        let operation = OperationId::fresh();
        let state = |state| Policy { state, ..draining(operation) };
        let fenced = gate.publish(state(FenceState::SourceWriteFenced));
        let overlay = Overlay::ClosingReads;
        let closed = gate.publish(Policy { overlay, ..state(FenceState::SourceWriteFenced) });
        assert!(closed > fenced);
        assert_eq!(gate.publish(state(FenceState::SourceReadDraining)), closed, "in its place");
        let proven = gate.publish(state(FenceState::SourceReadFenced));
        assert!(proven > closed);
        assert!(gate.publish(state(FenceState::SourceWriteFenced)) > proven);
    }

    #[test]
    fn an_overlay_taken_back_moves_the_generation_again() {
        let mut gate = GateCore::closed(Generation(1));
        let open = gate.publish(Policy::unfenced());
        let closed = gate.publish(Policy { overlay: Overlay::Installing, ..Policy::unfenced() });
        let reopened = gate.publish(Policy::unfenced());
        assert!(open < closed && closed < reopened);
    }

    #[test]
    fn adoption_moves_the_generation_because_the_owner_changed() {
        let mut gate = GateCore::closed(Generation(1));
        let first = gate.publish(draining(OperationId::fresh()));
        assert!(gate.publish(draining(OperationId::fresh())) > first);
    }
}
