//! What store and marker say together about one namespace, and what follows for its gate.
//!
//! Purpose: one way to read durable truth before a command and at the start, one way to publish it.
//! A gate is opened or closed here from what was read or committed, and never from anything else
//! (invariant 3); what can't be established closes it (invariant 4).
//!
//! Callers: `control/fences.rs`, `control/recovery.rs`, `control/status.rs` (reading only).

use super::fences::Control;
use super::line::Line;
use crate::base::ids::{Namespace, Revision};
use crate::fence::record::FenceRecord;
use crate::fence::state::FenceState;
use crate::fence::transition::ControlView;
use crate::fence::verdict::{HoldRule, Overlay};
use crate::gate::registry::{Authority, Gate, Rules};
use crate::store::marker::Marker;
use crate::store::reconcile::{Reconciled, Repair, reconcile};
use crate::store::{LoadedFence, Persisted, StoreError};

/// Whether a write fence is acknowledged in this state: the engine's lock belongs behind it.
pub(super) const fn is_source_fenced(state: FenceState) -> bool {
    match state {
        FenceState::SourceWriteFenced
        | FenceState::SourceReadDraining
        | FenceState::SourceReadFenced => true,
        FenceState::Unfenced
        | FenceState::Absent
        | FenceState::SourceDraining
        | FenceState::Released
        | FenceState::TargetQuarantined
        | FenceState::TargetImportDraining
        | FenceState::TargetValidating
        | FenceState::TargetWriteFenced
        | FenceState::TargetWritable
        | FenceState::TargetAborted
        | FenceState::UnknownUnavailable => false,
    }
}

impl Control {
    /// Reads row and marker. A marker that lags is written anew when `repair` is set, which takes
    /// the transition lock. Without that a command may commit between the two, and a store look as
    /// if it had been restored: the marker is read first, because it is written behind its row, and
    /// what doesn't fit is looked at once more (a target's is written before its row, and twice).
    ///
    /// # Cancel safety
    /// Cancel safe: a marker is replaced whole or not at all.
    pub(super) async fn truth(
        &self,
        namespace: &Namespace,
        repair: bool,
    ) -> Result<Reconciled, StoreError> {
        let first = self.look(namespace, repair).await?;
        let fits = match first.view {
            ControlView::UnknownUnavailable { .. } => false,
            ControlView::Record(_) | ControlView::NoRecord { .. } => {
                first.repair == Repair::Nothing
            }
        };
        if fits || repair { Ok(first) } else { self.look(namespace, false).await }
    }

    async fn look(&self, namespace: &Namespace, repair: bool) -> Result<Reconciled, StoreError> {
        let marker = self.markers.read(namespace).await;
        let loaded = self.store.fence_load(namespace).await?;
        Ok(self.reconciled(loaded, marker, repair).await)
    }

    /// As [`Control::truth`], for a row that was read already.
    pub(super) async fn compared(&self, loaded: LoadedFence, repair: bool) -> Reconciled {
        let marker = self.markers.read(loaded.namespace()).await;
        self.reconciled(loaded, marker, repair).await
    }

    async fn reconciled(&self, loaded: LoadedFence, marker: Marker, repair: bool) -> Reconciled {
        // Whether the database exists is asked later, where the answer can matter: "it does" is
        // the stricter assumption.
        let truth = reconcile(loaded, marker, true);
        if let (true, Repair::RewriteMarker, Some(record)) =
            (repair, truth.repair, truth.view.record())
        {
            self.write_marker(record).await;
        }
        truth
    }

    /// Writes the marker. A failure leaves an older one, which the next reading replaces.
    pub(super) async fn write_marker(&self, record: &FenceRecord) {
        if let Err(error) = self.markers.write(record).await {
            tracing::warn!(
                namespace = %record.namespace, revision = record.revision.0, %error,
                "the marker could not be written; the record stands, a lost store would not be \
                 noticed until it is; see to the state directory"
            );
        }
    }

    /// What a gate closed under a record does with earlier writers, and with programs that come:
    /// as its command said, else as the namespace's settings say.
    pub(super) fn rules(&self, namespace: &Namespace, record: Option<&FenceRecord>) -> Rules {
        let asked = record.and_then(|record| record.drain_policy);
        let settings = self.settings_of(namespace);
        let hold_ms = record.and_then(|record| record.hold_ms).unwrap_or(settings.hold_ms);
        Rules {
            in_flight: asked.and_then(|policy| policy.in_flight).unwrap_or(settings.in_flight),
            hold: Some(HoldRule { hold_ms, held_max: settings.held_max }),
        }
    }

    /// Publishes what was committed or read. Where that opens the gate, or ends a source fence,
    /// the engine lock is given back first. At an engine that is shut (`control/doubles.rs`)
    /// nothing opens.
    ///
    /// # Cancel safety
    /// Not cancel safe between giving the lock back and publishing; call it from a command's own
    /// task.
    pub(super) async fn publish(&self, line: &Line, persisted: &Persisted) {
        let record = persisted.record();
        let keeps_lock = record.is_some_and(|record| {
            is_source_fenced(record.state) || record.state == FenceState::SourceDraining
        });
        if !keeps_lock {
            self.locks.let_go(&line.namespace).await;
            line.set_cutoff(None);
        }
        let rules = self.rules(&line.namespace, record);
        let gate = self.gates.gate(&line.namespace);
        let shut = self.gates.is_shut(line.namespace.engine());
        if shut {
            // Nor is anything admitted that this record would: its engine is another's fenced one.
            gate.close_as_unknown();
        }
        if shut || !self.apply(&gate, persisted, rules) {
            line.publish(record.map_or(Revision(0), |record| record.revision));
            return;
        }
        line.set_unavailable(None);
        // An aborted target is never ended: its age would be told, and alerted on, for ever.
        let active = record
            .filter(|record| record.state.is_active())
            .filter(|record| record.state != FenceState::TargetAborted);
        line.set_active_since_ms(active.map(|record| record.created_at_ms));
        line.publish(record.map_or(Revision(0), |record| record.revision));
        self.metrics.changes.stir();
    }

    /// Has the gate do as committed; answers whether it does. A look (`control/doubles.rs`) shuts
    /// an engine first and closes its gates then, so it is asked again behind the opening: one of
    /// the two sees the other.
    pub(super) fn apply(&self, gate: &Gate, persisted: &Persisted, rules: Rules) -> bool {
        gate.apply(Authority::Committed(persisted), rules);
        let shut = self.gates.is_shut(gate.namespace().engine());
        if shut {
            gate.close_as_unknown();
        }
        !shut
    }

    /// Publishes a truth as read: closed, where nothing can be known.
    pub(super) async fn publish_truth(&self, line: &Line, truth: &Reconciled) {
        match (&truth.persisted, &truth.view) {
            (Some(persisted), _) => self.publish(line, persisted).await,
            (None, ControlView::UnknownUnavailable { detail, reason, .. }) => {
                self.close_as_unknown(line);
                line.set_unavailable(Some((*detail, reason.clone())));
            }
            // Without the key to the gate nothing can be opened.
            (None, ControlView::NoRecord { .. } | ControlView::Record(_)) => {
                self.close_as_unknown(line);
            }
        }
    }

    fn close_as_unknown(&self, line: &Line) {
        self.gates.gate(&line.namespace).close_as_unknown();
        let now = self.clock.now_ms();
        line.set_active_since_ms(Some(line.active_since_ms().unwrap_or(now)));
        self.metrics.changes.stir();
    }

    /// Publishes a truth where the gate shows something else: an overlay that is over, or a
    /// revision that another process committed.
    pub(super) async fn settle_gate(&self, line: &Line, truth: &Reconciled) {
        let Some(gate) = self.gates.known(&line.namespace) else {
            // No session and no fence so far; a gate made later starts from the same truth only
            // where there is no record.
            if !matches!(truth.view, ControlView::NoRecord { .. }) {
                self.publish_truth(line, truth).await;
            }
            return;
        };
        let shown = gate.published();
        // A gate doesn't tell a missing database from an unfenced one; the engine does.
        let state = match truth.view {
            ControlView::NoRecord { .. } => FenceState::Unfenced,
            ControlView::Record(_) | ControlView::UnknownUnavailable { .. } => truth.view.state(),
        };
        let same = shown.policy.overlay == Overlay::None
            && shown.policy.state == state
            && shown.policy.revision == truth.view.revision();
        if !same {
            self.publish_truth(line, truth).await;
        } else if let ControlView::UnknownUnavailable { detail, reason, .. } = &truth.view {
            // Closed as before, and maybe for another reason by now.
            line.set_unavailable(Some((*detail, reason.clone())));
        }
    }
}
