//! How long a go of several questions is waited for.
//!
//! Purpose: each answer has its own time, counted from the one before it, so that a connection that
//! has gone mute is given up after the time of one answer, however many were asked for: well within
//! a drain's, which would drop the wait and leave the connection in its place. Called by
//! `connect.rs`. It decides nothing and knows no engine.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// When the last answer came.
pub(super) struct Answers {
    begun: Instant,
    /// Milliseconds behind `begun`, rounded up: nothing is given up too early by it. Written and
    /// read by the one task that waits.
    last_ms: AtomicU64,
}

/// No answer came in time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mute;

impl Answers {
    /// Counted from now on.
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), last_ms: AtomicU64::new(0) }
    }

    /// One more has come.
    pub(super) fn came(&self) {
        let passed = self.begun.elapsed().as_millis().saturating_add(1);
        self.last_ms.store(u64::try_from(passed).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// When the next one must have come.
    fn ends(&self, bound: Duration) -> Instant {
        self.begun + Duration::from_millis(self.last_ms.load(Ordering::Relaxed)) + bound
    }

    /// Waits for the end of `all`, and for each answer for at most `bound` behind the one before.
    ///
    /// # Cancel safety
    /// As `all`.
    ///
    /// # Errors
    /// [`Mute`] when none came in that time; `all` is dropped then.
    pub(super) async fn wait<T>(
        &self,
        bound: Duration,
        all: impl Future<Output = T>,
    ) -> Result<T, Mute> {
        let mut all = pin!(all);
        loop {
            let ends = self.ends(bound);
            tokio::select! {
                biased;
                done = &mut all => return Ok(done),
                () = sleep_until(ends) => {}
            }
            if self.ends(bound) <= Instant::now() {
                return Err(Mute);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(13);

    async fn slow(answers: &Answers, each: &[u64]) {
        for seconds in each {
            // tidy: not a race: paused time
            tokio::time::sleep(Duration::from_secs(*seconds)).await;
            answers.came();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_answer_has_its_own_time() {
        let answers = Answers::new();
        let all = answers.wait(BOUND, slow(&answers, &[12, 12, 1, 12])).await;
        assert_eq!(all, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_has_gone_mute_is_given_up_after_the_time_of_one() {
        for (each, given_up) in [(&[1000][..], 13), (&[2, 1000], 15), (&[12, 12, 1000], 37)] {
            let (answers, begun) = (Answers::new(), Instant::now());
            assert_eq!(answers.wait(BOUND, slow(&answers, each)).await, Err(Mute));
            assert_eq!(begun.elapsed().as_secs(), given_up, "{each:?}");
        }
    }
}
