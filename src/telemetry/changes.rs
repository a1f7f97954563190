//! A call to look again: something that people watch has changed.
//!
//! Purpose: the status page's feed wakes on changes instead of looking all the time. Whoever
//! changes something says [`Changes::stir`], which is one atomic swap while nobody has looked since
//! the last one; the one who looks awaits [`Changes::next`]. It carries nothing and proves nothing:
//! the looker reads the state itself. Called by `control` and [`super::metrics`] (changes) and
//! `admin` (looking).

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Whether something changed since the last look. One looker.
#[derive(Debug, Default)]
pub struct Changes {
    stirred: AtomicBool,
    woken: Notify,
}

impl Changes {
    /// Something has changed. Say it after the change can be seen.
    pub fn stir(&self) {
        if !self.stirred.swap(true, Ordering::AcqRel) {
            self.woken.notify_one();
        }
    }

    /// Waits until something has changed since the last call returned. What was changed before
    /// that [`Changes::stir`] is visible to what the caller reads next.
    ///
    /// # Cancel safety
    /// Cancel safe: a call that is dropped loses nothing.
    pub async fn next(&self) {
        while !self.stirred.swap(false, Ordering::AcqRel) {
            self.woken.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Whether there is a call now.
    async fn called(changes: &Changes) -> bool {
        tokio::time::timeout(Duration::ZERO, changes.next()).await.is_ok()
    }

    #[tokio::test]
    async fn many_changes_are_one_call_and_none_is_lost() {
        let changes = Changes::default();
        assert!(!called(&changes).await);
        changes.stir();
        changes.stir();
        assert!(called(&changes).await);
        assert!(!called(&changes).await, "both were told by one call");
        changes.stir();
        assert!(called(&changes).await, "lookers that gave up lose nothing");
    }

    #[tokio::test]
    async fn a_waiting_looker_is_woken() {
        let changes = std::sync::Arc::new(Changes::default());
        let looking = std::sync::Arc::clone(&changes);
        let looker = crate::telemetry::spawn::spawn_named("looker", async move {
            looking.next().await;
        });
        tokio::task::yield_now().await;
        changes.stir();
        tokio::time::timeout(Duration::from_mins(1), looker).await.unwrap().unwrap();
    }
}
