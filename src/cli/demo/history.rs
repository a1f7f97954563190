//! What the demo's clients did and were told, as they saw it themselves.
//!
//! Purpose: one list of attempts and one of reads, each with its times, that the checks
//! (`checks.rs`) are made over. Clients write while they run; the play reads copies. Times are
//! since the demo's start. The lists are bounded: a client that finds them full stops.
//!
//! Called by `client.rs` (writes) and `play.rs` (reads). It judges nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most attempts, and most reads, that one demo records.
const ENTRIES_MAX: usize = 500_000;

/// How an attempt to write ended for its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The engine's answer to COMMIT arrived.
    Acknowledged,
    /// An error with this SQLSTATE; nothing of the transfer may be in the table.
    Refused(String),
    /// The connection was lost, or no answer came in time. Whether the transfer is in the table
    /// isn't known if COMMIT had been sent.
    Lost(String),
}

/// One attempt to move money.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attempt {
    /// Which client, counted from 0.
    pub(super) client: usize,
    /// The transfer's unique number.
    pub(super) transfer: i64,
    /// When BEGIN was sent.
    pub(super) began: Duration,
    /// When COMMIT was sent, if it was.
    pub(super) committing: Option<Duration>,
    /// When the end was known.
    pub(super) ended: Duration,
    /// How it ended.
    pub(super) end: End,
}

/// One read of the sum of all balances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Read {
    /// When it was sent.
    pub(super) began: Duration,
    /// When its answer was there.
    pub(super) ended: Duration,
    /// The sum, or what went wrong.
    pub(super) outcome: Result<i64, String>,
}

/// How many of each there are, for a line about throughput.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Acknowledged transfers.
    pub(super) acknowledged: usize,
    /// Refused ones.
    pub(super) refused: usize,
    /// Reads that were answered.
    pub(super) reads: usize,
}

/// A copy of everything recorded so far.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    /// All attempts, in the order in which they ended.
    pub(super) attempts: Vec<Attempt>,
    /// All reads, in the order in which they ended.
    pub(super) reads: Vec<Read>,
}

/// Where clients record.
pub(super) struct Recorder {
    started: Instant,
    stopping: AtomicBool,
    /// Guards the lists and their counts, which move together.
    lists: Mutex<(History, Counts)>,
}

impl Recorder {
    pub(super) fn new(started: Instant) -> Self {
        Self { started, stopping: AtomicBool::new(false), lists: Mutex::default() }
    }

    /// Now, since the demo's start.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Tells clients to end after what they are doing.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// Whether clients shall end.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn lists(&self) -> MutexGuard<'_, (History, Counts)> {
        // Entries are pushed whole: a panic elsewhere can't have left half of one.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an attempt; when the list is full, tells all clients to stop.
    pub(super) fn attempt(&self, attempt: Attempt) {
        let mut lists = self.lists();
        match attempt.end {
            End::Acknowledged => lists.1.acknowledged += 1,
            End::Refused(_) => lists.1.refused += 1,
            End::Lost(_) => {}
        }
        lists.0.attempts.push(attempt);
        if lists.0.attempts.len() >= ENTRIES_MAX {
            self.stop();
        }
    }

    /// Records a read; when the list is full, tells all clients to stop.
    pub(super) fn read(&self, read: Read) {
        let mut lists = self.lists();
        lists.1.reads += usize::from(read.outcome.is_ok());
        lists.0.reads.push(read);
        if lists.0.reads.len() >= ENTRIES_MAX {
            self.stop();
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.lists().1
    }

    /// Everything so far.
    pub(super) fn history(&self) -> History {
        self.lists().0.clone()
    }

    /// Whether each of `clients` has an attempt of which `wanted` is true.
    pub(super) fn each(&self, clients: usize, wanted: impl Fn(&Attempt) -> bool) -> bool {
        self.lists().0.clients_with(clients, wanted) == clients
    }
}

impl History {
    /// How many of the first `clients` clients have an attempt of which `wanted` is true.
    pub(super) fn clients_with(&self, clients: usize, wanted: impl Fn(&Attempt) -> bool) -> usize {
        let mut seen = vec![false; clients];
        for attempt in self.attempts.iter().filter(|attempt| wanted(attempt)) {
            if let Some(seen) = seen.get_mut(attempt.client) {
                *seen = true;
            }
        }
        seen.into_iter().filter(|seen| *seen).count()
    }
}
