//! What a worker thread lends to the session it is running: buffer, classifier, clock, counters.
//!
//! Purpose: an idle session owns no buffer; the thread's one buffer is borrowed only while there
//! are bytes in it (facts about memory per idle session are in docs/PERFORMANCE.md). Each worker
//! thread has its own; nothing is shared or locked.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use crate::base::limits;
use crate::sql::{Classifier, Trusted};
use crate::telemetry::worker::WorkerCounters;

/// One worker's desk.
pub(crate) struct WorkerDesk {
    pub(crate) scratch: Box<[u8]>,
    pub(crate) classifier: Classifier,
    pub(crate) counters: Arc<WorkerCounters>,
    started: Instant,
}

impl WorkerDesk {
    /// Milliseconds of this process's monotonic clock.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

thread_local! {
    static DESK: RefCell<Option<WorkerDesk>> = const { RefCell::new(None) };
}

/// Sets up this thread's desk. `started` is the origin of the process's monotonic clock.
pub(crate) fn set_up(trusted: Arc<Trusted>, counters: Arc<WorkerCounters>, started: Instant) {
    let desk = WorkerDesk {
        scratch: vec![0; limits::SCRATCH_BYTES].into_boxed_slice(),
        classifier: Classifier::new(trusted, limits::CLASSIFIER_CACHE_ENTRIES),
        counters,
        started,
    };
    DESK.with_borrow_mut(|slot| *slot = Some(desk));
}

/// Lends the desk. `None` on a thread that was never set up: no session runs there.
///
/// The closure must not lend again; it is synchronous, so no session can run in between.
pub(crate) fn lend<T>(work: impl FnOnce(&mut WorkerDesk) -> T) -> Option<T> {
    DESK.with_borrow_mut(|slot| slot.as_mut().map(work))
}
