//! Sessions that the proxy lost: their leases count until the engine shows the backend gone.
//!
//! Purpose: while any gate has such a session, ask its engine now and then, and take those out of
//! the table whose backend is gone (invariant 7). Each question is also part of every drain. The
//! sweep proves nothing by time: only the engine's answer settles. The other half: backends of our
//! own control connections that a broken link left behind on the engine are ended, because one of
//! them may hold a fence's lock after the fence is gone.
//!
//! Callers: `control/drain.rs`; `app` runs [`Control::sweep_orphans`] on a task of its own.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::doubles::is_the_fenced;
use super::fences::Control;
use super::port::EnginePort;
use crate::base::arm::{Removable, removed};
use crate::base::limits;
use crate::engine::EngineError;
use crate::fence::record::Identity;
use crate::gate::registry::Gate;
use crate::gate::slot::Slot;

impl Control {
    /// Settles the lost sessions of one gate whose backends the engine no longer has. Answers how
    /// many. `fenced` is the database that a drain is about.
    ///
    /// A backend is gone when its own run of the server doesn't list it, or a live session of ours
    /// on that run has its number now; or when a later run of the same engine answers. Where the
    /// run isn't known, it is gone when the fenced engine, or the only one ever seen under the
    /// name, doesn't list it. Another engine's word settles nothing.
    ///
    /// # Cancel safety
    /// Cancel safe.
    ///
    /// # Errors
    /// The engine's; nothing is settled then.
    pub(super) async fn settle(
        &self,
        gate: &Gate,
        engine: &dyn EnginePort,
        fenced: Option<&Identity>,
    ) -> Result<u64, EngineError> {
        let slots = gate.sessions();
        let lost: Vec<_> =
            slots.iter().filter(|slot| slot.is_abandoned() && slot.engine_pid() != 0).collect();
        if lost.is_empty() {
            return Ok(0);
        }
        let name = gate.namespace().engine();
        let server = self.server_of(name, engine).await?;
        let known = self.runs.is_constant(name)
            || fenced.is_some_and(|fenced| is_the_fenced(&server, fenced));
        let mut settled = 0;
        let mut asked = Vec::new();
        for slot in lost {
            match slot.run() {
                Some(run) if run.is_same_run(&server.run) => asked.push(slot),
                // A standby runs beside its primary, under the same names.
                Some(run) if !server.standby && run.is_over_by(&server.run) => {
                    settled += u64::from(gate.settle(slot.id()));
                }
                None if known => asked.push(slot),
                Some(_) | None => {}
            }
        }
        if asked.is_empty() {
            return Ok(settled);
        }
        let pids: Vec<i32> = asked.iter().map(|slot| slot.engine_pid()).collect();
        let there: HashSet<i32> =
            engine.activity(&pids).await?.into_iter().map(|seen| seen.backend.pid).collect();
        // The list must be of the run that was asked for; if not, the next look sorts it out.
        if !self.server_of(name, engine).await?.run.is_same_run(&server.run) {
            return Ok(settled);
        }
        // Read again after the engine's answer: who has such a pid now got it from a live backend.
        let of_this_run = |slot: &Slot| slot.run().is_some_and(|run| run.is_same_run(&server.run));
        let taken: HashSet<i32> = gate
            .sessions()
            .iter()
            .filter(|slot| !slot.is_abandoned() && of_this_run(slot))
            .map(|slot| slot.engine_pid())
            .collect();
        for slot in asked {
            let pid = slot.engine_pid();
            if !there.contains(&pid) || taken.contains(&pid) && of_this_run(slot) {
                settled += u64::from(gate.settle(slot.id()));
            }
        }
        Ok(settled)
    }

    /// Looks for lost sessions and backends for ever, and asks only while there are any.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn sweep_orphans(self: Arc<Self>) {
        loop {
            tokio::time::sleep(Duration::from_millis(limits::ORPHAN_SWEEP_MS)).await;
            self.sweep_once().await;
            self.look_again().await;
            self.look_for_aborted().await;
        }
    }

    /// While an engine is shut, looks whether it still has to be; while a fence stands, whether one
    /// must be.
    pub(super) async fn look_again(self: &Arc<Self>) {
        if !self.ready() || !self.must_look().await {
            return;
        }
        if let Err(error) = self.look_for_doubles().await {
            tracing::debug!(%error, "engines that are shut stay so until the store can be read");
        }
    }

    /// One sweep over all engines and gates.
    pub(super) async fn sweep_once(&self) {
        for (name, engine) in self.engines() {
            if removed(Removable::EndStrays) {
                break;
            }
            match engine.end_strays().await {
                Ok(0) => {}
                Ok(ended) => tracing::warn!(
                    engine = %name, ended,
                    "the engine still had backends of ours whose connection was lost; it was told \
                     to end them, so that none keeps a lock"
                ),
                Err(error) => tracing::debug!(engine = %name, %error, "strays not ended"),
            }
        }
        // One that doesn't answer isn't asked again for each of its gates: what follows a sweep
        // would wait for that.
        let mut silent = BTreeSet::new();
        for gate in self.gates.all() {
            let name = gate.namespace().engine();
            let lost = gate.sessions().iter().any(|slot| slot.is_abandoned());
            let asks = lost && !silent.contains(name);
            let Some(engine) = self.engine_of(gate.namespace()).filter(|_| asks) else {
                continue;
            };
            match self.settle(&gate, engine.as_ref(), None).await {
                Ok(0) => {}
                Ok(settled) => {
                    tracing::info!(namespace = %gate.namespace(), settled, "lost sessions settled");
                }
                Err(error) => {
                    tracing::debug!(namespace = %gate.namespace(), %error, "orphans not settled");
                    silent.insert(name.clone());
                }
            }
        }
    }
}
