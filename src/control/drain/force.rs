//! What a drain may force, when its policy says so and its deadline has passed.
//!
//! Purpose: wire.md W12 and W13 from the control side. First each blocking session is ordered to
//! roll back, and lost backends are terminated; after the grace the backends of those still there
//! are terminated. Neither is a release: the drain goes on waiting for what the engine shows.
//!
//! What only the engine's word names of them (a census, who holds a lock) is terminated likewise.
//!
//! Only the proxy's own sessions are touched. Sessions around the proxy and prepared transactions
//! belong to others and are named, never ended. Callers: `control/drain.rs`.

use std::sync::Arc;

use super::{Run, activity_of};
use crate::base::ids::{Namespace, SessionId};
use crate::base::limits;
use crate::control::fences::Control;
use crate::control::port::EnginePort;
use crate::engine::{BackendKey, EngineError, Terminated};
use crate::fence::record::{Forced, ForcedKind};
use crate::gate::slot::{Order, Slot};

/// What a proof says of force: as many as a record has room for. All of them are in the log.
pub(in crate::control) fn named(forced: &[Forced]) -> Vec<Forced> {
    let mut named = forced.to_vec();
    named.truncate(limits::FORCED_NAMED_MAX);
    let more = forced.len() - named.len();
    if more > 0
        && let Some(last) = named.last_mut()
    {
        last.why = format!("{}; {more} more were forced and are in the log only", last.why);
    }
    named
}

impl Run<'_> {
    /// Orders every blocking session to roll back, and ends lost backends.
    pub(super) async fn order_rollback(&mut self) {
        let generation = self.drain.generation();
        let (lost, live): (Vec<Arc<Slot>>, Vec<Arc<Slot>>) =
            self.sessions_in_the_way().into_iter().partition(|slot| slot.is_abandoned());
        for slot in live {
            slot.order(Order::ROLL_BACK, generation);
            let why = "the drain's deadline passed; its session was told to roll back";
            self.record(ForcedKind::Rollback, &slot, why);
        }
        self.terminate(lost, "its client is gone and the drain's deadline passed").await;
    }

    /// Ends the backends of sessions that didn't roll back in time.
    pub(super) async fn terminate_writers(&mut self) {
        let slots = self.sessions_in_the_way();
        // A transaction that wrote behind a read's lease, or that the engine alone knows of: no
        // order reaches it, but the drain waits for it by the engine's word.
        let by_lease: Vec<SessionId> = slots.iter().map(|slot| slot.id()).collect();
        let mut named = self.gate.sessions();
        named.retain(|slot| self.in_census.contains(&slot.id()) && !by_lease.contains(&slot.id()));
        self.terminate(slots.clone(), "it did not roll back within the grace").await;
        let why = "the engine shows a transaction of it that may commit, and it did not end within \
                   the deadline and the grace";
        self.terminate(named, why).await;
        // A session whose client has stopped reading doesn't see its backend go. Told to give up,
        // it leaves its lease abandoned, and the engine's word on the backend settles that.
        for slot in slots {
            slot.order(Order::GIVE_UP, self.drain.generation());
        }
    }

    /// Whom the drain waits for, but for logins: no order reaches one, and its backend isn't known.
    fn sessions_in_the_way(&mut self) -> Vec<Arc<Slot>> {
        let mut slots = self.drain.blockers();
        slots.retain(|slot| !slot.is_login());
        slots
    }

    async fn terminate(&mut self, slots: Vec<Arc<Slot>>, why: &str) {
        let engine = Arc::clone(&self.engine);
        let own = self.control.backends_of(&self.line.namespace, engine.as_ref(), slots).await;
        let own = match own {
            Ok(own) => own,
            Err(error) => return self.note_fault(Some(error)),
        };
        for (slot, backend) in own {
            match engine.terminate(backend).await {
                Ok(Terminated::Signalled) => {
                    self.record(ForcedKind::BackendTermination, &slot, why);
                }
                Ok(Terminated::Gone) => {}
                Err(error) => self.note_fault(Some(error)),
            }
        }
    }

    fn record(&mut self, kind: ForcedKind, slot: &Slot, why: &str) {
        let at_ms = self.control.clock.now_ms();
        let engine_pid = u32::try_from(slot.engine_pid()).unwrap_or(0);
        let session = Some(slot.id());
        self.force(Forced { kind, session, engine_pid, at_ms, why: why.to_owned() });
    }
}

impl Control {
    /// The backends of these sessions that are still their own: only these may be ended. The list
    /// must be of the slots' own run of the engine: a number of another one is a stranger's, and so
    /// may be one whose run isn't known.
    ///
    /// # Cancel safety
    /// Cancel safe.
    ///
    /// # Errors
    /// The engine's.
    pub(in crate::control) async fn backends_of(
        &self,
        namespace: &Namespace,
        engine: &dyn EnginePort,
        slots: Vec<Arc<Slot>>,
    ) -> Result<Vec<(Arc<Slot>, BackendKey)>, EngineError> {
        let before = self.server_of(namespace.engine(), engine).await?;
        let activity = activity_of(engine, namespace, &slots).await.unwrap_or_default();
        let after = self.server_of(namespace.engine(), engine).await?;
        if !before.run.is_same_run(&after.run) {
            return Ok(Vec::new());
        }
        let own = |slot: Arc<Slot>| {
            if !slot.run().is_some_and(|its| its.is_same_run(&after.run)) {
                tracing::warn!(
                    session = %slot.id(), backend = slot.engine_pid(),
                    "not ended: it isn't known that this backend is still the session's own"
                );
                return None;
            }
            // Without the engine's word on when it started, a pid might be somebody else's by now.
            let backend = activity.get(&slot.engine_pid())?.backend;
            Some((slot, backend))
        };
        Ok(slots.into_iter().filter_map(own).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_names_as_many_as_it_has_room_for_and_says_how_many_more() {
        let one = Forced {
            kind: ForcedKind::Rollback,
            session: None,
            engine_pid: 1,
            at_ms: 1,
            why: "late".to_owned(),
        };
        let few = vec![one.clone(); limits::FORCED_NAMED_MAX];
        assert_eq!(named(&few), few);
        let cut = named(&vec![one.clone(); limits::FORCED_NAMED_MAX + 7]);
        assert_eq!(cut.len(), limits::FORCED_NAMED_MAX);
        assert_eq!(cut.first(), Some(&one));
        assert!(cut.last().unwrap().why.starts_with("late; 7 more"));
    }
}
