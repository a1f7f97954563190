//! What a database runs at a login: asked for when a login behind a closed gate wants to know.
//!
//! Purpose: the gate refuses logins where a login trigger would run unguarded while writes are
//! closed (`gate/logins.rs`). Each drain asks for them; but a gate is closed without one behind a
//! restart, and an operator may disable the triggers under a fence. So a login asks, here, once for
//! all that wait at a gate. An engine that doesn't answer has said nothing (invariant 4).
//!
//! Callers: `app` runs [`Control::watch_logins`] on a task of its own. It changes no policy.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::doubles::bounded;
use super::fences::Control;

impl Control {
    /// Answers logins that ask, for ever. Engines are asked side by side, each for a bounded time.
    ///
    /// # Cancel safety
    /// Cancel safe: a login that gets no answer is refused when its own time is over.
    pub async fn watch_logins(self: Arc<Self>) {
        loop {
            self.gates.login_asked().await;
            let mut asked = JoinSet::new();
            for gate in self.gates.all() {
                if !gate.takes_login_question() {
                    continue;
                }
                let engine = self.engine_of(gate.namespace());
                asked.spawn(async move {
                    let question = gate.login_question();
                    let triggers = match engine {
                        Some(engine) => {
                            let triggers = engine.login_triggers(gate.namespace());
                            bounded(gate.namespace().engine(), triggers).await
                        }
                        None => None,
                    };
                    gate.note_login_triggers(question, triggers);
                });
            }
            while asked.join_next().await.is_some() {}
        }
    }
}
