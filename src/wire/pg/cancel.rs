//! CancelRequests: to the right backend, and only while what they mean is still running.
//!
//! Purpose: W23; a late cancel that hits the session's next statement is dropped here (the window
//! between the engine's answer and its arrival can't be closed by anybody, but is short). Keys are
//! the engine's own, so a cancel needs no translation. A held program is cancelled here: the engine
//! has never seen it. Called by `session.rs`.

use std::fmt;
use std::sync::Arc;

use dashmap::DashMap;
use subtle::ConstantTimeEq as _;

use crate::base::ids::Generation;
use crate::gate::slot::Order;
use crate::wire::pg::bearing::Place;
use crate::wire::pg::endpoint::Endpoint;

/// What proves that a cancel comes from the session's own client. Does not print.
#[derive(Clone, Default)]
pub(crate) struct CancelKey(Arc<[u8]>);

impl CancelKey {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// The key itself, for a CancelRequest and nothing else.
    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for CancelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CancelKey(***)")
    }
}

/// Where a session's cancels go.
#[derive(Debug, Clone)]
struct Target {
    key: CancelKey,
    endpoint: Arc<Endpoint>,
    /// A session that shows a capability, or gives one up, takes another seat.
    place: Place,
}

/// All sessions by their backend's process id. Engines may share a process id, keys don't.
#[derive(Debug, Default)]
pub struct Cancels {
    sessions: DashMap<i32, Vec<Target>>,
}

/// A session's entry; it goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    cancels: Arc<Cancels>,
    pid: i32,
    key: CancelKey,
}

impl Cancels {
    /// Enters a session.
    pub(crate) fn register(
        self: &Arc<Self>,
        pid: i32,
        key: CancelKey,
        endpoint: Arc<Endpoint>,
        place: Place,
    ) -> Registered {
        let target = Target { key: key.clone(), endpoint, place };
        // Two engines rarely give one number out: room for more would stay with each session.
        self.sessions.entry(pid).or_insert_with(|| Vec::with_capacity(1)).push(target);
        Registered { cancels: Arc::clone(self), pid, key }
    }

    /// Forwards a cancel to the session it is for, if a statement of it is running. An unknown key
    /// is dropped without a word, as PostgreSQL does.
    ///
    /// # Cancel safety
    /// Dropping the future may or may not have delivered the request.
    pub(crate) async fn forward(&self, pid: i32, key: &CancelKey) {
        let target = self.sessions.get(&pid).and_then(|targets| {
            let same = |target: &&Target| bool::from(target.key.expose().ct_eq(key.expose()));
            targets.iter().find(same).cloned()
        });
        let Some(target) = target else { return };
        let slot = target.place.slot();
        if slot.held_since_ms().is_some() {
            // The engine has nothing of it: its session answers (W20).
            slot.order(Order::CANCEL_HELD, Generation(0));
            return;
        }
        if !slot.is_running() {
            return;
        }
        drop(slot);
        if let Err(error) = target.endpoint.cancel(pid, key).await {
            tracing::warn!(%error, "a cancel request could not be delivered");
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(mut targets) = self.cancels.sessions.get_mut(&self.pid) {
            targets.retain(|target| !Arc::ptr_eq(&target.key.0, &self.key.0));
        }
        self.cancels.sessions.remove_if(&self.pid, |_, targets| targets.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::pg::auth::Welcome;

    #[test]
    fn a_key_never_prints() {
        let key = CancelKey::of(&[77, 78, 79, 80]);
        let welcome = Welcome { key: Some((1, key.clone())), ..Welcome::default() };
        let printed = format!("{key:?} {welcome:?}");
        assert!(!printed.contains("77") && !printed.contains("MNOP"), "{printed}");
        assert_eq!(printed.matches("***").count(), 2);
    }
}
