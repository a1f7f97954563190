//! Programs of the proxy's own sessions that wait for the fence's engine lock.
//!
//! Purpose: promise 7, never a hang. A read that turns out to write (a view over a function, say)
//! asks for a row-exclusive table lock before the engine's read-only mode gets to refuse it, and
//! would wait for the lock of the fence until that is released. Such a program is stopped and gets
//! the fence's code instead. Sessions that don't come through the proxy are left waiting.
//!
//! Invariant: an order names the program that was seen to wait, by its slot's count of pauses from
//! before the engine was asked. One that comes late meets no other program: a COMMIT of what the
//! session wrote in an open schema, say.
//!
//! Asks the engine only about programs that have run for a while. Nothing here is evidence.
//! Called by `control/lock_keeper.rs` while the lock is held.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::port::EnginePort;
use crate::base::limits;
use crate::gate::registry::Gate;

/// Looks for such programs for ever, and orders their sessions to stop them.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn stop(gate: &Gate, engine: &dyn EnginePort, holder: i32) {
    let mut running_before: HashMap<i32, u64> = HashMap::new();
    // Stopped at the last look: the cancel may be on its way.
    let mut stopped: HashSet<i32> = HashSet::new();
    loop {
        tokio::time::sleep(Duration::from_millis(limits::LOCK_WAITERS_LOOK_MS)).await;
        let slots = gate.sessions();
        // The count first: with a program of after it, it fits that one or none.
        let running: HashMap<i32, u64> = slots
            .iter()
            .map(|slot| (slot, slot.pauses()))
            .filter(|(slot, _)| slot.is_running() && !slot.is_abandoned())
            .map(|(slot, pauses)| (slot.engine_pid(), pauses))
            .filter(|(pid, _)| *pid != 0)
            .collect();
        let asked: Vec<i32> = running
            .iter()
            .filter(|(pid, pauses)| running_before.get(pid) == Some(pauses))
            .map(|(pid, _)| *pid)
            .filter(|pid| !stopped.contains(pid))
            .collect();
        running_before = running;
        stopped.clear();
        if asked.is_empty() {
            continue;
        }
        let waiting: HashSet<i32> = match engine.activity(&asked).await {
            Ok(seen) => seen
                .into_iter()
                // One that this gate admitted reaches its tables: where the engine doesn't say
                // whose lock is waited for, it is taken for the fence's, whatever the default
                // schema is.
                .filter(|one| one.blocked_by.contains(&holder) || one.waits_unlisted)
                .map(|one| one.backend.pid)
                .collect(),
            Err(error) => {
                tracing::debug!(namespace = %gate.namespace(), %error, "lock waiters unknown");
                continue;
            }
        };
        for slot in slots.iter().filter(|slot| waiting.contains(&slot.engine_pid())) {
            let pid = slot.engine_pid();
            let Some(pauses) = running_before.get(&pid) else { continue };
            tracing::info!(
                namespace = %gate.namespace(), session = %slot.id(), engine_pid = pid,
                "a read waits for a table as one that writes does; it is stopped"
            );
            slot.order_stop(*pauses, gate.word().generation());
            stopped.insert(pid);
        }
    }
}
