//! The start: every durable fence and marker read and applied before anybody is served.
//!
//! Purpose: gates begin closed; this opens those that store and marker agree to be open, closes
//! the rest as recorded, and takes the engine locks behind proven fences. Nothing is advanced: a
//! drain goes on only when its command is replayed (invariants 4, 5, 13).
//!
//! Callers: `app`, before listeners open.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::fences::Control;
use super::truth::is_source_fenced;
use crate::base::ids::Namespace;
use crate::base::limits;
use crate::fence::code::Detail;
use crate::fence::state::FenceState;
use crate::fence::transition::ControlView;
use crate::store::StoreError;

/// What a start found, for the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Every namespace with a record or marker, and its state.
    pub fences: Vec<(Namespace, FenceState)>,
    /// Those whose state can't be established, and why.
    pub unavailable: Vec<(Namespace, Detail, String)>,
    /// Those whose engine lock isn't held yet; it is tried in the background.
    pub unlocked: Vec<Namespace>,
}

/// Why nothing may be served.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The store or the markers can't be listed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Fences stand on engines that the settings don't have. The fenced databases may be served
    /// under other names, behind gates that nothing closes. Aborted targets don't count.
    #[error(
        "{fences}, and no engine of that name is configured. The database may be reachable under \
         another name, behind an open gate, so nothing is served. Put the engine back under its \
         name and start; to rename or remove it, release the fence first (a target: enable its \
         writes, or abort it)"
    )]
    Homeless {
        /// Each fence and its engine, in words.
        fences: String,
    },
}

impl Control {
    /// Reads and applies everything. Until this has succeeded every gate is closed.
    ///
    /// # Cancel safety
    /// Cancel safe: gates stay closed, call it again.
    ///
    /// # Errors
    /// [`RecoverError`]: it must stop the start.
    pub async fn recover(self: &Arc<Self>) -> Result<Recovered, RecoverError> {
        let mut found = Recovered::default();
        let mut rows = self.store.fence_list().await?;
        for namespace in self.markers.list().await? {
            if !rows.iter().any(|row| *row.namespace() == namespace) {
                rows.push(self.store.fence_load(&namespace).await?);
            }
        }
        let mut fenced = Vec::new();
        for row in rows {
            let namespace = row.namespace().clone();
            let line = self.line(&namespace);
            let _turn = line.transition.lock().await;
            let truth = self.compared(row, true).await;
            let state = truth.view.state();
            if let ControlView::UnknownUnavailable { detail, reason, .. } = &truth.view {
                tracing::error!(
                    %namespace, detail = detail.name(), reason,
                    "the fence state cannot be established; the namespace is closed"
                );
                found.unavailable.push((namespace.clone(), *detail, reason.clone()));
            }
            self.publish_truth(&line, &truth).await;
            self.hold_lock(&line, truth.view.record());
            if is_source_fenced(state) && self.locks.report(&namespace).is_some() {
                fenced.push(namespace.clone());
            }
            found.fences.push((namespace, state));
        }
        self.must_have_engines(&found.fences)?;
        self.look_for_doubles().await?;
        found.unlocked = self.await_locks(fenced).await;
        // The first sweep asks whose database is gone, so that nothing has to be refused for it.
        self.gates.all().iter().for_each(|gate| gate.raise_question());
        self.gates.recovered();
        self.recovered.store(true, Ordering::SeqCst);
        Ok(found)
    }

    /// Each fence that takes something away must have its engine under its name. An aborted target
    /// need not: nothing would ever end it, and what is left of it is kept closed by its name, here
    /// as in `control/doubles.rs`.
    fn must_have_engines(&self, fences: &[(Namespace, FenceState)]) -> Result<(), RecoverError> {
        let homeless: Vec<String> = fences
            .iter()
            .filter(|(_, state)| state.is_active() && *state != FenceState::TargetAborted)
            .filter(|(namespace, _)| self.engine_of(namespace).is_none())
            .map(|(namespace, state)| {
                format!("{namespace} is {} on engine {}", state.name(), namespace.engine())
            })
            .collect();
        if homeless.is_empty() {
            return Ok(());
        }
        Err(RecoverError::Homeless { fences: homeless.join("; ") })
    }

    /// Gives the keepers a bounded time to have their locks before clients come.
    async fn await_locks(&self, wanted: Vec<Namespace>) -> Vec<Namespace> {
        let bound = Duration::from_millis(limits::RECOVERY_LOCK_WAIT_MS);
        let until = self.clock.monotonic() + bound;
        let look = Duration::from_millis(limits::DRAIN_LOOK_FIRST_MS);
        let mut missing = wanted;
        loop {
            missing.retain(|namespace| !self.locks.report(namespace).is_some_and(|lock| lock.held));
            if missing.is_empty() || self.clock.monotonic() >= until {
                break;
            }
            tokio::time::sleep(look).await;
        }
        for namespace in &missing {
            tracing::error!(
                %namespace,
                "the engine lock behind a write fence is not held; the gate is closed, sessions \
                 around the proxy are not kept from writing until it is"
            );
        }
        missing
    }
}
