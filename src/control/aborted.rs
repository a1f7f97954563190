//! Aborted targets whose database is gone: what doesn't name them needn't be refused for them.
//!
//! Purpose: nothing ends an aborted target, and its gate stays closed to whoever names it. But
//! programs that may name anything are asked for there too, in every database of its server. Once
//! the engine itself says that there is no such database, they reach nothing of it. The engine is
//! asked behind a start, and after such a program came by: then for all aborted targets that it
//! has, since the program was refused by the first in its way and would be by the next. An engine
//! that doesn't answer has said nothing: what it said last counts (invariant 4).
//!
//! Callers: `control/orphans.rs`, now and then. It changes no record and no policy.

use std::collections::BTreeSet;

use super::doubles::bounded;
use super::fences::Control;
use super::port::LiveDatabase;
use crate::fence::state::FenceState;
use crate::gate::registry::Gate;

impl Control {
    /// Asks once for each aborted target of engines where one has been in the way of something
    /// since the last look.
    ///
    /// # Cancel safety
    /// Cancel safe: those that weren't asked for are when they are in the way again.
    pub(super) async fn look_for_aborted(&self) {
        let mut silent = BTreeSet::new();
        let gates = self.gates.all();
        let in_the_way = gates.iter().filter(|gate| gate.takes_question());
        let asked: BTreeSet<_> = in_the_way.map(|gate| gate.namespace().engine()).collect();
        let is_aborted = |gate: &Gate| gate.published().policy.state == FenceState::TargetAborted;
        for gate in gates.iter().filter(|gate| is_aborted(gate)) {
            let namespace = gate.namespace();
            let name = namespace.engine();
            if !asked.contains(name) || silent.contains(name) {
                continue;
            }
            let there = match self.engine_of(namespace) {
                Some(engine) => bounded(name, engine.identity(namespace)).await,
                None => None,
            };
            let Some(there) = there else {
                silent.insert(name.clone());
                continue;
            };
            let gone = there == LiveDatabase::Missing;
            if gate.set_gone(gone) != gone {
                tracing::info!(
                    %namespace, gone,
                    "whether an aborted target's database is gone has changed; programs that may \
                     name any database are refused for it only while it is not"
                );
            }
        }
    }
}
