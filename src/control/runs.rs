//! Which run of its engine a session's backend belongs to.
//!
//! Purpose: backends are numbered anew by each run of a server, so a number tells a backend only
//! together with its run. Logins pay nothing for it: the control side asks the engine who it is now
//! and then. What its engine has answered between two looks that show the same run was answered by
//! that run, since a run doesn't come back. Time takes no part: looks are counted, and a session
//! notes the count before it asks its engine for something.
//!
//! Callers: `control/orphans.rs` and `control/drain` before they take an engine's word about a
//! backend, `control/doubles.rs` at the start; `app` runs [`Control::watch_runs`]. A session that
//! has had no answer between two looks at one run isn't placed: nothing is ended in its name, and
//! it is settled only by the absence of its backend.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;

use super::fences::Control;
use super::port::{EnginePort, Server};
use crate::base::ids::EngineName;
use crate::base::limits;
use crate::base::run::EngineRun;
use crate::engine::{BackendKey, EngineError, EngineTime};
use crate::gate::slot::Slot;

/// What is known of one engine.
struct Known {
    run: Arc<EngineRun>,
    /// The gates' count when this run was seen first.
    first: u64,
    /// Whether nothing but this engine, on this timeline, was ever seen under the name.
    constant: bool,
}

/// The last run seen of each engine.
#[derive(Default)]
pub(super) struct Runs(DashMap<EngineName, Known>);

impl Runs {
    /// Whether one engine alone, on one timeline, has answered under a name since the start.
    pub(super) fn is_constant(&self, engine: &EngineName) -> bool {
        self.0.get(engine).is_some_and(|known| known.constant)
    }
}

impl Control {
    /// Asks which server an engine is, and places the sessions that are shown by it to be of its
    /// run.
    ///
    /// # Cancel safety
    /// Cancel safe.
    ///
    /// # Errors
    /// The engine's.
    pub(super) async fn server_of(
        &self,
        name: &EngineName,
        engine: &dyn EnginePort,
    ) -> Result<Server, EngineError> {
        // Before the question: what was answered until now was answered before the look.
        let waiting = self.unplaced(name);
        let server = engine.server().await?;
        self.note_run(name, &server.run, &waiting);
        Ok(server)
    }

    /// Sessions of an engine whose run isn't known, each with the count at its last sign of life.
    fn unplaced(&self, engine: &EngineName) -> Vec<(Arc<Slot>, u64)> {
        let gates = self.gates.all();
        let of_engine = gates.iter().filter(|gate| gate.namespace().engine() == engine);
        of_engine
            .flat_map(|gate| gate.sessions())
            .filter(|slot| slot.run().is_none())
            .filter_map(|slot| {
                let alive = slot.alive()?;
                Some((slot, alive))
            })
            .collect()
    }

    fn note_run(&self, name: &EngineName, run: &EngineRun, waiting: &[(Arc<Slot>, u64)]) {
        let seen =
            |constant| Known { run: Arc::new(run.clone()), first: self.gates.looked(), constant };
        let mut known = self.runs.0.entry(name.clone()).or_insert_with(|| seen(true));
        if *known.run != *run {
            let constant = known.constant && known.run.is_of_the_same_engine(run);
            *known = seen(constant);
            return;
        }
        for (slot, alive) in waiting {
            if *alive >= known.first {
                slot.set_run(Arc::clone(&known.run));
            }
        }
    }

    /// Stops the statement that a live session of ours runs on a MySQL thread: by the thread's
    /// number and its run, with no look at anything else. Where the session's run isn't known, the
    /// engine's own is taken.
    ///
    /// # Cancel safety
    /// Dropped, the statement may be stopped all the same.
    ///
    /// # Errors
    /// The engine's; then it isn't known whether it was stopped.
    pub async fn stop_statement(
        &self,
        engine: &EngineName,
        thread: i32,
    ) -> Result<(), EngineError> {
        let Some(port) = self.engines().remove(engine) else {
            return Ok(());
        };
        let gates = self.gates.all();
        let placed = gates
            .iter()
            .filter(|gate| gate.namespace().engine() == engine)
            .flat_map(|gate| gate.sessions())
            .filter(|slot| !slot.is_abandoned() && slot.engine_pid() == thread)
            .find_map(|slot| slot.run());
        let started = match placed {
            Some(run) => run.started,
            None => self.server_of(engine, port.as_ref()).await?.run.started,
        };
        let backend = BackendKey { pid: thread, backend_start: EngineTime(started) };
        port.cancel(backend).await.map(|_ended| ())
    }

    /// Whether a look at an engine could place a session.
    fn can_place(&self, engine: &EngineName) -> bool {
        let waiting = self.unplaced(engine);
        let first = self.runs.0.get(engine).map(|known| known.first);
        waiting.iter().any(|(_, alive)| first.is_none_or(|first| *alive >= first))
    }

    /// Places sessions for ever; asks engines only while there is one to place. An engine that
    /// doesn't answer is asked ever less often.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn watch_runs(self: Arc<Self>) {
        let mut resting: HashMap<EngineName, (u32, u32)> = HashMap::new();
        loop {
            tokio::time::sleep(Duration::from_millis(limits::RUN_LOOK_MS)).await;
            for (name, engine) in self.engines() {
                let (rest, last) = resting.get(&name).copied().unwrap_or_default();
                if rest > 0 {
                    resting.insert(name, (rest - 1, last));
                } else if self.can_place(&name) {
                    let bound = Duration::from_millis(limits::RECOVERY_SERVER_MS);
                    let asked = self.server_of(&name, engine.as_ref());
                    if let Ok(Ok(_)) = tokio::time::timeout(bound, asked).await {
                        resting.remove(&name);
                    } else {
                        let next = (last * 2).clamp(1, limits::RUN_LOOK_REST_MAX);
                        resting.insert(name, (next, next));
                    }
                }
            }
        }
    }
}
