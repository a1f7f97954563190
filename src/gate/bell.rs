//! How orders wake a session: a bell that costs its task one load when it is silent.
//!
//! Purpose: the control side rings ([`Bell::ring`]) behind an order that it has put into a slot,
//! from any thread. The session's task leaves its waker once and then looks at each of its turns
//! whether the bell was rung ([`Bell::poll`]); a turn for any other reason takes no lock.
//!
//! **No ring is lost.** A ring first marks the bell and then wakes whoever left a waker; a task
//! first leaves its waker and then looks at the mark. Both go through the lock, so one comes first:
//! a ring behind the waker finds it and wakes the task, whose turn sees the mark; one in front of
//! it has marked the bell before the task looks. The task takes the mark away *before* it takes the
//! orders, and whoever rings has put the order down before: a mark that is taken away has its order
//! taken behind it, and one that comes later stays, with a wake of its own.
//!
//! Called by `gate/slot.rs` (rings) and the relays of `wire/` (listen). It carries nothing and
//! counts nothing: two rings may be heard as one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// One session's bell, for all of its slots.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: AtomicBool,
    /// Guards the waker alone: of the task that listens, there is one. Held for a clone.
    listener: Mutex<Option<Waker>>,
}

impl Bell {
    /// Marks the bell and wakes its listener. Put down first what it is rung for.
    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(listener) = listener {
            listener.wake();
        }
    }

    /// Ready once the bell was rung, which takes its mark away. `placed` says whether this task's
    /// waker lies here from an earlier call, and is set; with it, a call takes no lock.
    #[inline]
    pub(crate) fn poll(&self, cx: &Context<'_>, placed: &mut bool) -> Poll<()> {
        if !std::mem::replace(placed, true) {
            self.place(cx.waker());
        }
        if !self.rung.load(Ordering::SeqCst) {
            return Poll::Pending;
        }
        self.rung.store(false, Ordering::SeqCst);
        Poll::Ready(())
    }

    #[cold]
    fn place(&self, waker: &Waker) {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        *listener = Some(waker.clone());
    }

    /// Waits for a ring.
    ///
    /// # Cancel safety
    /// Cancel safe: a ring that wasn't heard keeps its mark.
    #[cfg(test)]
    pub(crate) async fn rung(&self) {
        let mut placed = false;
        std::future::poll_fn(|cx| self.poll(cx, &mut placed)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_ring_wakes_each_time_and_is_heard_once() {
        let (bell, count) = (Bell::default(), Arc::new(Count::default()));
        let waker = Waker::from(Arc::clone(&count));
        let (cx, mut placed) = (Context::from_waker(&waker), false);
        assert!(bell.poll(&cx, &mut placed).is_pending());
        for rings in 1..4 {
            bell.ring();
            assert_eq!(count.0.load(Ordering::SeqCst), rings, "the waker stays for the next one");
            assert!(bell.poll(&cx, &mut placed).is_ready());
            assert!(bell.poll(&cx, &mut placed).is_pending());
        }
    }

    #[test]
    fn a_ring_in_front_of_the_first_look_is_heard() {
        let bell = Bell::default();
        bell.ring();
        let cx = Context::from_waker(Waker::noop());
        assert!(bell.poll(&cx, &mut false).is_ready());
    }

    /// Rings from another thread against a task that takes what they are rung for: all of it comes.
    #[test]
    fn what_is_put_down_in_front_of_a_ring_is_always_taken() {
        const RINGS: usize = 20_000;
        let (bell, put) = (Arc::new(Bell::default()), Arc::new(AtomicUsize::new(0)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let ringing = {
            let (bell, put) = (Arc::clone(&bell), Arc::clone(&put));
            std::thread::spawn(move || {
                for _ in 0..RINGS {
                    put.fetch_add(1, Ordering::SeqCst);
                    bell.ring();
                }
            })
        };
        runtime.block_on(async {
            let mut taken = 0;
            while taken < RINGS {
                let heard = tokio::time::timeout(std::time::Duration::from_secs(60), bell.rung());
                assert!(heard.await.is_ok(), "a ring was lost behind {taken}");
                taken += put.swap(0, Ordering::SeqCst);
            }
        });
        ringing.join().unwrap();
    }
}
