//! Programs that ran at some gates at one moment, until each has ended.
//!
//! Purpose: on MySQL and MariaDB a program may reach any schema of its server, and one that was
//! admitted before a schema's gate was there has no lease at it. So before a target is made behind
//! its closed gate, what ran on its engine by then has to end (contract 1.9). What begins later
//! publishes its lease and then looks which gates there are; whoever lists programs makes its gate
//! first and looks at the leases then: as in `gate/admission.rs`, one of the two sees the other.
//!
//! Invariants: 7 (a lease without an outcome hasn't ended; the engine's word takes it away), 15.
//! Called by `control/targets.rs`, which bounds the wait. It decides nothing, and never waits.

use std::sync::Arc;

use crate::base::ids::{EngineName, SessionId};
use crate::gate::registry::{Gate, Gates};
use crate::gate::slot::{Running, Slot};

/// A program that ran without a guard, by its session's slot.
#[derive(Debug)]
struct Program {
    gate: Arc<Gate>,
    slot: Arc<Slot>,
    /// [`Slot::pauses`] when it was seen to run: another count means that it has ended.
    pauses: u64,
}

impl Program {
    fn seen(gate: &Arc<Gate>, slot: Arc<Slot>) -> Option<Self> {
        // In this order: a count of before, and a lease of after, are of one program, or of one
        // that began behind the look at the count.
        let pauses = slot.pauses();
        let runs = slot.stamp().is_some_and(|stamp| stamp.running == Running::Unguarded);
        runs.then(|| Self { gate: Arc::clone(gate), slot, pauses })
    }

    fn has_ended(&self) -> bool {
        self.slot.pauses() != self.pauses
            || !self.gate.sessions().iter().any(|there| Arc::ptr_eq(there, &self.slot))
    }
}

/// Programs that ran when it was made, and haven't been seen to end.
#[derive(Debug)]
pub struct Programs {
    left: Vec<Program>,
}

impl Programs {
    /// Those that run at any gate of an engine now. A program under the guard can't write and
    /// doesn't count, and neither does a replica's stream.
    #[must_use]
    pub fn on(gates: &Gates, engine: &EngineName) -> Self {
        let mut all = gates.all();
        all.retain(|gate| gate.namespace().engine() == engine);
        let at = |gate: &Arc<Gate>| {
            let seen = gate.sessions().into_iter().filter_map(|slot| Program::seen(gate, slot));
            seen.collect::<Vec<_>>()
        };
        Self { left: all.iter().flat_map(at).collect() }
    }

    /// The sessions whose program hasn't ended yet, each once; empty when all have.
    pub fn left(&mut self) -> Vec<SessionId> {
        self.left.retain(|program| !program.has_ended());
        let mut sessions: Vec<_> = self.left.iter().map(|program| program.slot.id()).collect();
        sessions.sort_unstable();
        sessions.dedup();
        sessions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{Generation, Namespace};
    use crate::gate::admission::Seat;
    use crate::gate::slot::Card;
    use crate::sql::StatementClass;

    fn seat(gates: &Gates, namespace: &str, session: u64) -> Arc<Seat> {
        let gate = gates.gate(&Namespace::parse(namespace).unwrap());
        Seat::take(gate, SessionId(session), Card::default())
    }

    fn gates() -> Gates {
        let gates = Gates::new(Generation(1));
        gates.recovered();
        gates
    }

    fn now(gates: &Gates) -> Programs {
        Programs::on(gates, &EngineName::new("e").unwrap())
    }

    #[test]
    fn what_runs_is_waited_for_until_it_ends_and_what_begins_later_is_not() {
        let gates = gates();
        let (one, other, idle) =
            (seat(&gates, "e/a", 1), seat(&gates, "e/b", 2), seat(&gates, "e/a", 3));
        let _elsewhere = seat(&gates, "f/a", 4).begin(StatementClass::Write, 0).unwrap();
        let (mut lease, _) = one.begin(StatementClass::Read, 0).unwrap();
        let (mut open, _) = idle.begin(StatementClass::Write, 0).unwrap();
        open.paused();
        let (writing, _) = other.begin(StatementClass::Write, 0).unwrap();
        let mut programs = now(&gates);
        assert_eq!(programs.left(), [SessionId(1), SessionId(2)]);
        // Ended, and the session's next one runs already.
        lease.paused();
        lease.extend(StatementClass::Write, true).unwrap();
        open.extend(StatementClass::Write, true).unwrap();
        assert_eq!(programs.left(), [SessionId(2)]);
        writing.answered();
        assert_eq!(programs.left(), []);
        assert_eq!(now(&gates).left(), [SessionId(1), SessionId(3)]);
        lease.answered();
        open.answered();
    }

    #[test]
    fn invariant_07_a_program_whose_session_was_lost_is_waited_for_until_the_engines_word() {
        let gates = gates();
        let lost = seat(&gates, "e/a", 1);
        let (lease, _) = lost.begin(StatementClass::Write, 0).unwrap();
        let mut programs = now(&gates);
        drop((lease, lost));
        assert_eq!(programs.left(), [SessionId(1)]);
        assert_eq!(now(&gates).left(), [SessionId(1)]);
        assert!(gates.gate(&Namespace::parse("e/a").unwrap()).settle(SessionId(1)));
        assert_eq!(programs.left(), []);
    }
}
