//! Timers of sessions: kept by the process's main runtime, not by the worker's own.
//!
//! Purpose: a runtime that keeps timers looks at its clock twice in every turn, for every statement
//! of every session; what sessions have timers for is rare (a login, a program that is held). So
//! worker threads have no timers of their own (`wire/shared/workers.rs`), and ask here. What a
//! timer wakes is woken across threads, as any other message would.
//!
//! Invariants: on a worker's thread `tokio::time::sleep` and its like panic, so code that sessions
//! run (`wire`, `gate`) makes its timers here and nowhere else; `tests/tidy.rs` holds it. On any
//! other thread these are tokio's own, of the runtime that one is on.
//!
//! Called by `wire` and `gate`. It decides nothing by time, and gives no evidence.

use std::cell::RefCell;
use std::future::Future;
use std::time::Duration;

use tokio::runtime::Handle;
pub use tokio::time::{Instant, Sleep, Timeout};

thread_local! {
    static KEEPER: RefCell<Option<Handle>> = const { RefCell::new(None) };
}

/// Has `keeper`, a runtime with timers, keep those that are made on this thread from here on.
pub fn kept_by(keeper: Handle) {
    KEEPER.with_borrow_mut(|slot| *slot = Some(keeper));
}

/// tokio's, for whatever thread this is. `after` from now on; see [`tokio::time::sleep`].
///
/// Must be called from within a tokio runtime. Cancel safe.
pub fn sleep(after: Duration) -> Sleep {
    made(|| tokio::time::sleep(after))
}

/// tokio's, for whatever thread this is; see [`tokio::time::timeout`].
///
/// Must be called from within a tokio runtime. Cancel safety is `work`'s.
pub fn timeout<F: Future>(after: Duration, work: F) -> Timeout<F> {
    made(|| tokio::time::timeout(after, work))
}

/// tokio's, for whatever thread this is; see [`tokio::time::timeout_at`].
///
/// Must be called from within a tokio runtime. Cancel safety is `work`'s.
pub fn timeout_at<F: Future>(ends: Instant, work: F) -> Timeout<F> {
    made(|| tokio::time::timeout_at(ends, work))
}

/// A timer belongs to the runtime in which it is made.
fn made<T>(make: impl FnOnce() -> T) -> T {
    let keeper = KEEPER.with_borrow(Clone::clone);
    let _entered = keeper.as_ref().map(Handle::enter);
    make()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const LATE: Duration = Duration::from_secs(60);

    fn main_runtime() -> Runtime {
        Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    }

    /// A worker's thread: a runtime without timers.
    fn on_worker<T: Send + 'static>(
        keeper: Option<Handle>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> std::thread::Result<T> {
        std::thread::spawn(move || {
            if let Some(keeper) = keeper {
                kept_by(keeper);
            }
            Builder::new_current_thread().enable_io().build().unwrap().block_on(work)
        })
        .join()
    }

    #[test]
    fn a_worker_without_timers_has_the_main_runtimes() {
        let main = main_runtime();
        let keeper = Some(main.handle().clone());
        let work = async {
            sleep(SOON).await; // tidy: not a race: that it ends is what is tested
            let late = timeout(SOON, std::future::pending::<()>()).await.is_err();
            let ends = Instant::now() + SOON;
            let late_too = timeout_at(ends, std::future::pending::<()>()).await.is_err();
            let in_time = timeout(LATE, async { 7 }).await;
            (late, late_too, in_time.ok())
        };
        assert_eq!(on_worker(keeper, work).unwrap(), (true, true, Some(7)));
    }

    /// Control arm: without a keeper there is nobody who could.
    #[test]
    fn without_a_keeper_a_worker_has_none() {
        let work = async { timeout(SOON, async {}).await };
        assert!(on_worker(None, work).is_err());
    }

    #[test]
    fn what_is_spawned_and_opened_beside_it_stays_the_workers() {
        let main = main_runtime();
        let keeper = Some(main.handle().clone());
        let (told, hears) = mpsc::channel();
        let work = async move {
            let mine = std::thread::current().id();
            timeout(LATE, async {}).await.unwrap();
            let ran_on = tokio::task::spawn(async { std::thread::current().id() }).await.unwrap();
            told.send(mine == ran_on).unwrap();
            tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        };
        on_worker(keeper, work).unwrap();
        assert!(hears.recv_timeout(LATE).unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn elsewhere_they_are_the_runtimes_own() {
        let begun = Instant::now();
        sleep(LATE).await; // tidy: not a race: paused time
        assert_eq!(begun.elapsed(), LATE);
    }
}
