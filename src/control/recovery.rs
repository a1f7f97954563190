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

impl Control {
    /// Reads and applies everything. Until this has succeeded every gate is closed.
    ///
    /// # Cancel safety
    /// Cancel safe: gates stay closed, call it again.
    ///
    /// # Errors
    /// [`StoreError`] when the store or the markers can't be listed: that must stop the start.
    pub async fn recover(self: &Arc<Self>) -> Result<Recovered, StoreError> {
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
        found.unlocked = self.await_locks(fenced).await;
        self.gates.recovered();
        self.recovered.store(true, Ordering::SeqCst);
        Ok(found)
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
