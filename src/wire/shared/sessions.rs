//! How many sessions there are, over all protocols, and their numbers.
//!
//! Purpose: one bound (`max_sessions`) and one row of session numbers for the whole process: a
//! number is a session's key in every gate's table, so two protocols may not share one. Called by
//! each protocol's `session.rs` and by `app` when it stops.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::ids::SessionId;

/// The counts.
#[derive(Debug)]
pub struct Sessions {
    last: AtomicU64,
    open: AtomicU64,
    places: AtomicU64,
    max: u64,
}

/// One thing counted, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Counted<'a>(&'a AtomicU64);

impl Sessions {
    /// None yet, and at most `max` at once.
    #[must_use]
    pub const fn new(max: u64) -> Self {
        let none = AtomicU64::new(0);
        Self { last: none, open: AtomicU64::new(0), places: AtomicU64::new(0), max }
    }

    /// A number that no other session of this process has.
    pub(crate) fn number(&self) -> SessionId {
        SessionId(self.last.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// How many sessions are open now.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::SeqCst)
    }

    /// Counts a session as open.
    pub(crate) fn opened(&self) -> Counted<'_> {
        self.open.fetch_add(1, Ordering::SeqCst);
        Counted(&self.open)
    }

    /// Takes a place, which covers a login and the session behind it. `None` when all are taken.
    pub(crate) fn place(&self) -> Option<Counted<'_>> {
        let before = self.places.fetch_add(1, Ordering::SeqCst);
        let counted = Counted(&self.places);
        (before < self.max).then_some(counted)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_given_back() {
        let sessions = Sessions::new(1);
        let first = sessions.place();
        assert!(first.is_some() && sessions.place().is_none());
        drop(first);
        assert!(sessions.place().is_some());
        assert_ne!(sessions.number(), sessions.number());
    }
}
