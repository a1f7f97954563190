//! Time limits of logins, by one timer for all of a worker's.
//!
//! Purpose: nearly every login is over long before its limit, and a timer of the runtime's for each
//! wakes the runtime that keeps it (`telemetry/timer.rs`). Here a limit is an entry in the worker's
//! desk ([`Alarms`]), and one task looks at them every [`limits::PATIENCE_LOOK_MS`] for as long as
//! there are any: a limit is kept to within that, and never ends early. Called by each protocol's
//! `session.rs` and `endpoint.rs`. On a thread without a desk (a test's) it is a timer.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::base::limits;
use crate::telemetry::spawn::spawn_session;
use crate::telemetry::timer::{Instant, Sleep, sleep};
use crate::wire::shared::desk;

/// The time was up first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLate;

/// A limit's place among the others: when it ends, and a number of its own.
type Key = (Instant, u64);

/// The limits that one worker's logins have now: at most two for each of them.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    set: BTreeMap<Key, Waker>,
    last: u64,
    /// The task that looks is there.
    looked_at: bool,
}

impl Alarms {
    /// Sets one. Answers also whether the looking is to be begun.
    fn set(&mut self, ends: Instant, waker: &Waker) -> (Key, bool) {
        self.last += 1;
        let key = (ends, self.last);
        self.set.insert(key, waker.clone());
        (key, !std::mem::replace(&mut self.looked_at, true))
    }

    /// Whom the task's next turn wakes may have changed.
    fn renew(&mut self, key: Key, waker: &Waker) {
        if let Some(kept) = self.set.get_mut(&key) {
            kept.clone_from(waker);
        }
    }

    /// Who is to be woken now; none of them is set any more. `None` once there is nothing to look
    /// at: the task ends, and the next limit begins another.
    fn due(&mut self, now: Instant) -> Option<Vec<Waker>> {
        let later = self.set.split_off(&(now + Duration::from_nanos(1), 0));
        let due = std::mem::replace(&mut self.set, later);
        self.looked_at = !self.set.is_empty() || !due.is_empty();
        self.looked_at.then(|| due.into_values().collect())
    }
}

/// Does `work`, but for no longer than `limit`, and up to [`limits::PATIENCE_LOOK_MS`] beyond.
///
/// # Errors
/// [`TooLate`]: the work was dropped where it stood.
///
/// # Cancel safety
/// As the work's own.
pub(crate) async fn within<F: Future>(limit: Duration, work: F) -> Result<F::Output, TooLate> {
    let (mut work, mut limit) = (pin!(work), Limit { ends: Instant::now() + limit, by: By::None });
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Ok(done)),
        Poll::Pending => limit.poll(cx).map(Err),
    })
    .await
}

/// One limit.
struct Limit {
    ends: Instant,
    by: By,
}

/// What keeps it.
enum By {
    /// Nothing yet: the work hasn't come to a wait.
    None,
    /// The worker's task.
    Desk(Key),
    /// A timer of its own.
    Timer(Pin<Box<Sleep>>),
}

impl Limit {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<TooLate> {
        let over = match &mut self.by {
            By::None => return self.begin(cx),
            By::Desk(key) if Instant::now() < self.ends => {
                // The desk is there for as long as its thread.
                let _kept = desk::lend(|desk| desk.alarms.renew(*key, cx.waker()));
                false
            }
            By::Desk(_) => true,
            By::Timer(timer) => timer.as_mut().poll(cx).is_ready(),
        };
        if over { Poll::Ready(TooLate) } else { Poll::Pending }
    }

    fn begin(&mut self, cx: &mut Context<'_>) -> Poll<TooLate> {
        let Some((key, first)) = desk::lend(|desk| desk.alarms.set(self.ends, cx.waker())) else {
            self.by =
                By::Timer(Box::pin(sleep(self.ends.saturating_duration_since(Instant::now()))));
            return self.poll(cx);
        };
        self.by = By::Desk(key);
        if first {
            drop(spawn_session(look()));
        }
        Poll::Pending
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        if let By::Desk(key) = &self.by {
            // The waker goes outside of the loan: it may be the last that holds a task.
            let _waker = desk::lend(|desk| desk.alarms.set.remove(key));
        }
    }
}

/// Wakes those whose time is up, until there are none left.
///
/// # Cancel safety
/// Dropped with its worker's runtime, and its logins with it.
async fn look() {
    let pause = Duration::from_millis(limits::PATIENCE_LOOK_MS);
    loop {
        sleep(pause).await;
        match desk::lend(|desk| desk.alarms.due(Instant::now())).flatten() {
            Some(due) => due.into_iter().for_each(Waker::wake),
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::Trusted;
    use crate::telemetry::worker::WorkerCounters;

    fn with_a_desk() {
        desk::set_up(Trusted::default().into(), WorkerCounters::default().into(), started());
    }

    fn started() -> std::time::Instant {
        std::time::Instant::now()
    }

    fn set() -> usize {
        desk::lend(|desk| desk.alarms.set.len()).unwrap()
    }

    async fn took(limit: Duration) -> Duration {
        let begun = Instant::now();
        assert_eq!(within(limit, std::future::pending::<()>()).await, Err(TooLate));
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_is_kept_and_never_ends_early() {
        with_a_desk();
        let look = Duration::from_millis(limits::PATIENCE_LOOK_MS);
        for (one, other) in [(1_000, 60_000), (3, 2), (250, 250), (0, 1)] {
            let (one, other) = (Duration::from_millis(one), Duration::from_millis(other));
            let (first, second) = tokio::join!(took(one), took(other));
            assert!(first >= one && first <= one + look, "{one:?} took {first:?}");
            assert!(second >= other && second <= other + look, "{other:?} took {second:?}");
            assert_eq!(set(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_done_in_time_leaves_nothing_behind() {
        with_a_desk();
        // tidy: not a race: paused time, which is what is played
        let pause = |ms| tokio::time::sleep(Duration::from_millis(ms));
        assert_eq!(within(Duration::from_secs(1), async { 7 }).await, Ok(7), "at once");
        within(Duration::from_secs(1), pause(900)).await.unwrap();
        let inner = async {
            pause(1).await;
            assert_eq!(set(), 1, "the outer one");
            within(Duration::from_millis(100), pause(5_000)).await
        };
        assert_eq!(within(Duration::from_secs(9), inner).await, Ok(Err(TooLate)));
        assert_eq!(set(), 0);
        pause(1_000).await;
        assert!(!desk::lend(|desk| desk.alarms.looked_at).unwrap(), "nobody looks at nothing");
    }

    /// Control arm of the waker's renewal: the task is woken by the waker of its last turn.
    #[tokio::test(start_paused = true)]
    async fn the_waker_of_the_last_turn_is_woken() {
        with_a_desk();
        let mut work = Box::pin(took(Duration::from_secs(1)));
        let mut of_another_task = Context::from_waker(Waker::noop());
        assert!(work.as_mut().poll(&mut of_another_task).is_pending());
        let bound = Duration::from_secs(5);
        tokio::time::timeout(bound, work).await.expect("only the first waker was woken");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_desk_it_is_a_timer() {
        assert_eq!(took(Duration::from_secs(2)).await, Duration::from_secs(2));
        assert_eq!(within(Duration::ZERO, async { 7 }).await, Ok(7));
    }
}
