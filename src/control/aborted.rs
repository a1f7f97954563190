//! Aborted targets whose database is gone: what doesn't name them needn't be refused for them.
//!
//! Purpose: nothing ends an aborted target, and its gate stays closed to whoever names it. But
//! programs that may name anything are asked for there too, in every database of its server. Once
//! the engine itself says that there is no such database, they reach nothing of it. The engine is
//! asked only after such a program came by; closing needs no evidence, and an engine that doesn't
//! answer has said nothing (invariant 4).
//!
//! Callers: `control/orphans.rs`, now and then. It changes no record and no policy.

use std::collections::BTreeSet;

use super::doubles::bounded;
use super::fences::Control;
use super::port::LiveDatabase;

impl Control {
    /// Asks once for each aborted target that has been in the way of something since the last look.
    ///
    /// # Cancel safety
    /// Cancel safe: those that weren't asked for are when they are in the way again.
    pub(super) async fn look_for_aborted(&self) {
        let mut silent = BTreeSet::new();
        for gate in self.gates.all() {
            if !gate.takes_question() {
                continue;
            }
            let namespace = gate.namespace();
            let name = namespace.engine();
            let there = match self.engine_of(namespace).filter(|_| !silent.contains(name)) {
                Some(engine) => bounded(name, engine.identity(namespace)).await,
                None => None,
            };
            if there.is_none() {
                silent.insert(name.clone());
            }
            let gone = there == Some(LiveDatabase::Missing);
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
