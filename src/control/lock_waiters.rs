//! Programs of the proxy's own sessions that wait for the fence's engine lock.
//!
//! Purpose: promise 7, never a hang. A read that turns out to write (a view over a function, say)
//! asks for a row-exclusive table lock before the engine's read-only mode gets to refuse it, and
//! would wait for the lock of the fence until that is released. Such a program is stopped and gets
//! the fence's code instead. Sessions that don't come through the proxy are left waiting.
//!
//! Asks the engine only about programs that have run for a while. Nothing here is evidence.
//! Called by `control/lock_keeper.rs` while the lock is held.

use std::collections::HashSet;
use std::time::Duration;

use super::port::EnginePort;
use crate::base::limits;
use crate::gate::registry::Gate;
use crate::gate::slot::Order;

/// Looks for such programs for ever, and orders their sessions to stop them.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn stop(gate: &Gate, engine: &dyn EnginePort, holder: i32) {
    let mut running_before: HashSet<i32> = HashSet::new();
    // Stopped at the last look: the cancel may be on its way, and a second one would meet the
    // session's next program.
    let mut stopped: HashSet<i32> = HashSet::new();
    loop {
        tokio::time::sleep(Duration::from_millis(limits::LOCK_WAITERS_LOOK_MS)).await;
        let slots = gate.sessions();
        let running: HashSet<i32> = slots
            .iter()
            .filter(|slot| slot.is_running() && !slot.is_abandoned())
            .map(|slot| slot.engine_pid())
            .filter(|pid| *pid != 0)
            .collect();
        let asked: Vec<i32> = running
            .intersection(&running_before)
            .filter(|pid| !stopped.contains(pid))
            .copied()
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
            tracing::info!(
                namespace = %gate.namespace(), session = %slot.id(), engine_pid = slot.engine_pid(),
                "a read waits for a table as one that writes does; it is stopped"
            );
            slot.order(Order::STOP_WRITING, gate.word().generation());
            stopped.insert(slot.engine_pid());
        }
    }
}
