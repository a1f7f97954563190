//! What the proxy's own MySQL sessions ask of control connections: to stop statements, and what
//! their engine runs at a login.
//!
//! Purpose: W13 of wire.md: the MySQL protocol has no cancel request, so `KILL QUERY` goes over a
//! control connection, on the control side's threads. One that can't be delivered in time is given
//! up: the statement runs to its end, or the drain's second deadline ends its connection.
//!
//! What an engine runs at a login is asked anew for each login that needs it; where no answer comes
//! in time, what it said last counts, whenever that was.
//!
//! Called by the relay through [`Killer`], and in front of a login through [`LoginTexts`]. It
//! decides nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use crate::base::ids::EngineName;
use crate::base::limits;
use crate::control::Control;
use crate::wire::mysql::login_text::LoginTexts;
use crate::wire::mysql::session::Killer;

/// Kills by the engines' control connections.
pub(super) struct ControlKiller {
    control: Arc<Control>,
    runtime: Handle,
    /// Turns by engine, so that a drain's own questions find a control connection beside a
    /// hundred kills. Guards the map only, never held across an await.
    turns: Mutex<BTreeMap<EngineName, Arc<Semaphore>>>,
}

impl std::fmt::Debug for ControlKiller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ControlKiller")
    }
}

impl ControlKiller {
    /// Must be called on the control side's runtime.
    pub(super) fn new(control: Arc<Control>) -> Self {
        Self { control, runtime: Handle::current(), turns: Mutex::default() }
    }

    fn turns(&self, engine: &EngineName) -> Arc<Semaphore> {
        // Whole after each insertion, whoever panicked meanwhile.
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let of_engine = turns.entry(engine.clone());
        Arc::clone(of_engine.or_insert_with(|| Arc::new(Semaphore::new(limits::KILLS_AT_ONCE))))
    }
}

impl Killer for ControlKiller {
    fn kill_query(&self, engine: &EngineName, thread: u32) -> oneshot::Receiver<()> {
        let (done, delivered) = oneshot::channel();
        let (control, engine) = (Arc::clone(&self.control), engine.clone());
        let turns = self.turns(&engine);
        let key = i32::from_ne_bytes(thread.to_ne_bytes());
        let bound = Duration::from_millis(limits::CANCEL_TIMEOUT_MS);
        let task = async move {
            let kill = async {
                // Never closed.
                let _turn = turns.acquire().await;
                control.stop_statement(&engine, key).await
            };
            match timeout(bound, kill).await {
                // The relay may be gone by now: nobody to tell.
                Ok(Ok(())) => drop(done.send(())),
                Ok(Err(error)) => {
                    tracing::warn!(%error, thread, "the fence's KILL QUERY could not be delivered");
                }
                Err(_) => {
                    tracing::warn!(%engine, thread, "the fence's KILL QUERY took too long");
                }
            }
        };
        drop(self.runtime.spawn(task));
        delivered
    }
}

impl LoginTexts for ControlKiller {
    fn ask(&self, engine: &EngineName) -> oneshot::Receiver<Option<Vec<u8>>> {
        let (told, answer) = oneshot::channel();
        let Some(port) = self.control.engines().remove(engine) else { return answer };
        let (turns, engine) = (self.turns(engine), engine.clone());
        let bound = Duration::from_millis(limits::LOGIN_TEXT_TIMEOUT_MS);
        let task = async move {
            let ask = async {
                // Never closed.
                let _turn = turns.acquire().await;
                port.login_text().await
            };
            let text = match timeout(bound, ask).await {
                Ok(Ok(text)) => Some(text),
                Ok(Err(error)) => {
                    tracing::warn!(%error, "init_connect could not be asked for");
                    port.known_login_text()
                }
                Err(_) => {
                    tracing::warn!(%engine, "init_connect was not told in time");
                    port.known_login_text()
                }
            };
            // The client may be gone by now: nobody to tell.
            let _unheard = told.send(text);
        };
        drop(self.runtime.spawn(task));
        answer
    }
}
