//! What a database runs at a login: asked for when a login behind a closed gate wants to know.
//!
//! Purpose: the gate refuses logins where a login trigger would run unguarded while writes are
//! closed (`gate/logins.rs`). Each drain asks for them; but a gate is closed without one behind a
//! restart, and an operator may disable the triggers under a fence. So a login asks, here, once for
//! all that wait at a gate. An engine that doesn't answer has said nothing (invariant 4); one that
//! says that it has no such database has: it refuses those logins itself.
//!
//! Callers: `app` runs [`Control::watch_logins`] on a task of its own. It changes no policy.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::doubles::bounded;
use super::fences::Control;
use super::port::{EnginePort, LiveDatabase};
use crate::engine::EngineError;
use crate::gate::registry::Gate;

/// Asks one engine and notes its answer at the gate, if there is one in time.
async fn ask(gate: &Gate, engine: Option<Arc<dyn EnginePort>>) {
    let question = gate.login_question();
    let found = match engine {
        Some(engine) => {
            let triggers = look(engine.as_ref(), gate);
            bounded(gate.namespace().engine(), triggers).await
        }
        None => None,
    };
    match found {
        Some(Some(triggers)) => gate.note_login_triggers(question, Some(triggers)),
        Some(None) => gate.note_no_database(question),
        None => gate.note_login_triggers(question, None),
    }
}

/// The triggers of a database; `None` where the engine says that it has no such database.
async fn look(engine: &dyn EnginePort, gate: &Gate) -> Result<Option<Vec<String>>, EngineError> {
    match engine.login_triggers(gate.namespace()).await {
        Ok(triggers) => Ok(Some(triggers)),
        Err(error) => match engine.identity(gate.namespace()).await {
            Ok(LiveDatabase::Missing) => Ok(None),
            Ok(LiveDatabase::Exists(_)) | Err(_) => Err(error),
        },
    }
}

impl Control {
    /// Answers logins that ask, for ever. Engines are asked side by side, each for a bounded time.
    ///
    /// # Cancel safety
    /// Cancel safe: a login that gets no answer is refused when its own time is over.
    pub async fn watch_logins(self: Arc<Self>) {
        let mut asked = JoinSet::new();
        let mut under_way = BTreeSet::new();
        loop {
            tokio::select! {
                () = self.gates.login_asked() => {}
                Some(done) = asked.join_next() => match done {
                    Ok(namespace) => drop(under_way.remove(&namespace)),
                    // One that died is nobody's any more: at worst a gate is asked for twice.
                    Err(_) => under_way.clear(),
                }
            }
            for gate in self.gates.all() {
                // One question at a time for each gate: who wants to know meanwhile is heard
                // behind it. An engine that is slow keeps no other one's logins waiting.
                let namespace = gate.namespace().clone();
                if under_way.contains(&namespace) || !gate.takes_login_question() {
                    continue;
                }
                let engine = self.engine_of(&namespace);
                under_way.insert(namespace.clone());
                asked.spawn(async move {
                    ask(&gate, engine).await;
                    namespace
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::ids::SessionId;
    use crate::control::tests::{Rig, namespace};
    use crate::fence::code::Denial;
    use crate::fence::record::InFlight;
    use crate::fence::verdict::Overlay;
    use crate::gate::logins::Login;
    use crate::gate::slot::Card;

    /// A login behind the closed gate, with the control side at work: how it ends.
    async fn asked(rig: &Rig) -> Result<(), Denial> {
        rig.gate().overlay(Overlay::Installing, InFlight::Finish);
        let named = (SessionId(1), Card::default());
        let mut login = Login::new(Arc::clone(&rig.control.gates), namespace(), None, named);
        tokio::select! {
            ended = login.hands_over() => {
                login.returned();
                ended.map_err(|refused| refused.refusal.denial)
            }
            () = Arc::clone(&rig.control).watch_logins() => unreachable!("it never ends"),
        }
    }

    #[tokio::test]
    async fn a_login_to_a_database_that_is_gone_is_left_to_the_engine_at_once() {
        let rig = Rig::new().await;
        asked(&rig).await.unwrap();
        let rig = Rig::new().await;
        rig.engine.missing();
        let limit = Duration::from_millis(crate::base::limits::LOGIN_LOOK_MS / 2);
        let ended = tokio::time::timeout(limit, asked(&rig)).await;
        ended.expect("the engine's word isn't taken").unwrap();
        // Control arm: an engine that can't be asked has said nothing.
        rig.engine.unreachable(true);
        assert!(look(&rig.engine, &rig.gate()).await.is_err());
    }
}
