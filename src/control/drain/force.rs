//! What a drain may force, when its policy says so and its deadline has passed.
//!
//! Purpose: wire.md W12 and W13 from the control side. First each blocking session is ordered to
//! roll back, and lost backends are terminated; after the grace the backends of those still there
//! are terminated. Neither is a release: the drain goes on waiting for what the engine shows.
//!
//! Only the proxy's own sessions are touched. Sessions around the proxy and prepared transactions
//! belong to others and are named, never ended. Callers: `control/drain.rs`.

use std::sync::Arc;

use super::Run;
use crate::base::limits;
use crate::engine::{BackendKey, Terminated};
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
            self.drain.blockers().into_iter().partition(|slot| slot.is_abandoned());
        for slot in live {
            slot.order(Order::ROLL_BACK, generation);
            let why = "the drain's deadline passed; its session was told to roll back";
            self.record(ForcedKind::Rollback, &slot, why);
        }
        self.terminate(lost, "its client is gone and the drain's deadline passed").await;
    }

    /// Ends the backends of sessions that didn't roll back in time.
    pub(super) async fn terminate_writers(&mut self) {
        let slots = self.drain.blockers();
        self.terminate(slots.clone(), "it did not roll back within the grace").await;
        // A session whose client has stopped reading doesn't see its backend go. Told to give up,
        // it leaves its lease abandoned, and the engine's word on the backend settles that.
        for slot in slots {
            slot.order(Order::GIVE_UP, self.drain.generation());
        }
    }

    async fn terminate(&mut self, slots: Vec<Arc<Slot>>, why: &str) {
        let activity = self.activity_of(&slots).await;
        for slot in slots {
            // Without the engine's word on when it started, a pid might be somebody else's by now.
            let Some(seen) = activity.get(&slot.engine_pid()) else {
                continue;
            };
            let backend: BackendKey = seen.backend;
            match self.engine.terminate(backend).await {
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
