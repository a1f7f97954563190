//! What a worker thread lends to the session it is running: buffer, classifier, clock, counters.
//!
//! Purpose: an idle session owns no buffer; the thread's one buffer is borrowed only while there
//! are bytes in it (facts about memory per idle session are in docs/PERFORMANCE.md). Each worker
//! thread has its own; nothing is shared or locked.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncRead as _, ReadBuf};

use crate::base::limits;
use crate::sql::{Classifier, Trusted};
use crate::telemetry::worker::WorkerCounters;
use crate::tls::Stream;
use crate::wire::shared::patience::Alarms;

/// One worker's desk.
pub(crate) struct WorkerDesk {
    pub(crate) scratch: Box<[u8]>,
    pub(crate) classifier: Classifier,
    pub(crate) counters: Arc<WorkerCounters>,
    /// Time limits of logins.
    pub(crate) alarms: Alarms,
    /// When this was set up: by the process's monotonic clock, and by the coarse one.
    set_up: (Duration, Duration),
}

impl WorkerDesk {
    /// Milliseconds of this process's monotonic clock, for people: up to two ticks of the kernel
    /// late, and never early. The exact clock is several times as dear, and each statement asks.
    pub(crate) fn now_ms(&self) -> u64 {
        let (begun, coarsely) = self.set_up;
        // The coarse clock may have been a tick late then, and not be now.
        let now = begun.saturating_add(coarse().saturating_sub(coarsely)).saturating_sub(TICK_MAX);
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
    }
}

/// The longest time between two ticks of a kernel (100 Hz).
const TICK_MAX: Duration = Duration::from_millis(10);

/// Time since the machine was started, as of the kernel's last tick.
fn coarse() -> Duration {
    // Never negative, whatever its type says.
    Duration::try_from(clock_gettime(ClockId::MonotonicCoarse)).unwrap_or_default()
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
        alarms: Alarms::default(),
        set_up: (started.elapsed(), coarse()),
    };
    DESK.with_borrow_mut(|slot| *slot = Some(desk));
}

/// Lends the desk. `None` on a thread that was never set up: no session runs there.
///
/// The closure must not lend again; it is synchronous, so no session can run in between.
pub(crate) fn lend<T>(work: impl FnOnce(&mut WorkerDesk) -> T) -> Option<T> {
    DESK.with_borrow_mut(|slot| slot.as_mut().map(work))
}

/// Reads once from a peer that is logging in, and appends what came; zero bytes are its end.
///
/// Read through the desk's buffer, so that all that has come is taken at once and takes no more
/// room than it needs: into a small buffer of its own a greeting of 500 bytes is five reads.
///
/// # Errors
/// The socket's.
///
/// # Cancel safety
/// Cancel safe: what was read is in `held`.
pub(crate) async fn read(stream: &mut Stream, held: &mut BytesMut) -> io::Result<usize> {
    poll_fn(|cx| {
        let mut through = |scratch: &mut [u8]| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer))?;
            held.extend_from_slice(buffer.filled());
            Poll::Ready(Ok(buffer.filled().len()))
        };
        match lend(|desk| through(&mut desk.scratch)) {
            Some(poll) => poll,
            // Nobody's session: a test's.
            None => through(&mut [0; 1024]),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::UnixStream;

    use super::*;

    /// Two ticks, and what a machine that is short of cores makes of one.
    const LATE_MS: u64 = 1_000;

    /// Control arm: where nobody lends a buffer it takes several reads.
    #[tokio::test]
    async fn all_that_has_come_is_read_at_once_and_takes_its_own_room() {
        for (at_desk, expected) in [(false, 1024), (true, 5_000)] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(&[7; 5_000]).await.unwrap();
            if at_desk {
                set_up(Arc::default(), Arc::default(), Instant::now());
            }
            let (mut stream, mut held) = (Stream::Unix(ours), BytesMut::new());
            assert_eq!(read(&mut stream, &mut held).await.unwrap(), expected);
            assert!(held.len() == expected && held.capacity() < 2 * expected);
            drop(theirs);
            while read(&mut stream, &mut held).await.unwrap() > 0 {}
            assert_eq!(held.len(), 5_000);
        }
    }

    #[test]
    fn a_desk_is_never_ahead_of_the_process_s_clock_and_goes_on_with_it() {
        let started = Instant::now();
        set_up(Arc::new(Trusted::new([""; 0])), Arc::default(), started);
        let exact = || u64::try_from(started.elapsed().as_millis()).unwrap();
        let mut last = 0;
        while last < 100 {
            let before = exact();
            let now = lend(|desk| desk.now_ms()).unwrap();
            assert!(now >= last, "{now} behind {last}");
            assert!(now <= exact(), "{now} is ahead of {}", exact());
            assert!(now + LATE_MS >= before, "{now} is behind {before}");
            last = now;
        }
    }
}
