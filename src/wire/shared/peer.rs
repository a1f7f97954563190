//! One side of a relay: its socket, and what is on its way through.
//!
//! Purpose: reading into the thread's buffer and writing straight from it, with what doesn't go out
//! kept pending: backpressure, not buffering (W22). Used by every protocol's `relay.rs`, each of
//! which says what a message's rest is (`R`). It knows no protocol.
//!
//! **Only the socket that rang is asked.** A turn of the session's task has one cause, and asking a
//! quiet socket costs a lock and a waker's copy. So a peer remembers that the task's waker lies
//! with its socket (`armed`), and as long as it does, the runtime's own mark of readiness is all
//! that a turn looks at. No readiness is lost by that. The runtime marks a socket first and then
//! takes the waker and wakes the task; the mark goes away only in a read of this peer's. So where
//! the waker is gone there is a mark, and the turn reads. That needs the runtime's driver on the
//! task's own thread, where no turn comes between the mark and the taking: between them a turn on
//! another thread could read all, take the mark away and leave its waker anew, which the driver
//! would then take for nothing. Every worker is a current-thread runtime (`workers.rs`), and a
//! session on another one fails a debug assertion. Two more things would break it, and are looked
//! at. A read that stopped because the task's budget was spent has left its waker nowhere: it
//! doesn't count as armed. And a waker that isn't the task's any more wakes nobody: the relay looks
//! at each turn whether it is the same ([`Turns`]), and else forgets what was armed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::coop::has_budget_remaining;

use crate::base::arm::{Removable, removed};
use crate::base::limits;
use crate::tls::Stream;

/// One peer: its socket, what it still has to be sent, what of it isn't sorted yet.
pub(crate) struct Peer<R> {
    /// Its socket.
    pub(crate) stream: Stream,
    /// To be written to it.
    pub(crate) pending: BytesMut,
    /// Read from it and not sorted.
    pub(crate) held: BytesMut,
    /// What is left of a message whose fate is decided.
    pub(crate) rest: R,
    /// It can still send.
    pub(crate) reads: bool,
    /// It can still be written to.
    pub(crate) writes: bool,
    unflushed: bool,
    /// The task's waker lies with the socket for the next time that something can be read.
    armed: bool,
}

/// Whether the sockets' driver runs on this very thread, between turns; see the module's argument.
/// True where there is no runtime, and no socket.
fn on_the_drivers_thread() -> bool {
    Handle::try_current().map_or(true, |one| one.runtime_flavor() == RuntimeFlavor::CurrentThread)
}

/// By whose waker a session's task is woken.
#[derive(Debug, Default)]
pub(crate) struct Turns(Option<Waker>);

impl Turns {
    /// Whether the waker of this turn is another one than that of the last: nothing that was left
    /// anywhere before wakes the task then. True at the first turn.
    #[inline]
    pub(crate) fn has_new_waker(&mut self, cx: &Context<'_>) -> bool {
        match &self.0 {
            Some(waker) if waker.will_wake(cx.waker()) || removed(Removable::WakerLook) => false,
            Some(_) | None => {
                debug_assert!(on_the_drivers_thread(), "a session needs a current-thread runtime");
                self.0 = Some(cx.waker().clone());
                true
            }
        }
    }
}

impl<R: Default> Peer<R> {
    /// A peer of which `held` was read behind the login.
    pub(crate) fn new(stream: Stream, held: BytesMut) -> Self {
        Self {
            stream,
            pending: BytesMut::new(),
            // An empty one may have a startup's worth of room.
            held: if held.is_empty() { BytesMut::new() } else { held },
            rest: R::default(),
            reads: true,
            writes: true,
            unflushed: false,
            armed: false,
        }
    }

    /// Forgets that a waker lies with the socket: it isn't this task's.
    pub(crate) const fn disarm(&mut self) {
        self.armed = false;
    }

    /// Reads once into the scratch buffer; zero bytes are the peer's end. Pending where the socket
    /// is quiet: then the task is woken once it isn't.
    #[inline]
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if self.armed && self.stream.is_quiet() {
            return Poll::Pending;
        }
        let mut buffer = ReadBuf::new(scratch);
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
        // Where the budget was spent, the read has come to no socket.
        let budgeted = has_budget_remaining() || removed(Removable::BudgetLook);
        self.armed = polled.is_pending() && budgeted;
        polled.map_ok(|()| buffer.filled().len())
    }

    /// Holds what of a chunk isn't sorted yet; nothing was held before. Usually there is nothing.
    #[inline]
    pub(crate) fn hold(&mut self, rest: &[u8]) {
        if !rest.is_empty() {
            self.held = BytesMut::from(rest);
        }
    }

    /// Writes what is pending. Ready when nothing is.
    #[inline]
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.pending.capacity() == 0 && !self.unflushed {
            return Poll::Ready(());
        }
        self.poll_flush_pending(cx)
    }

    #[cold]
    fn poll_flush_pending(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.pending.is_empty() {
            if !self.writes {
                self.pending = BytesMut::new();
                break;
            }
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.pending)) {
                Ok(written) if written > 0 => {
                    self.pending.advance(written);
                    self.unflushed = self.stream.is_tls();
                }
                Ok(_) | Err(_) => self.writes = false,
            }
        }
        if self.pending.capacity() > 0 {
            self.pending = BytesMut::new();
        }
        if self.unflushed {
            if ready!(Pin::new(&mut self.stream).poll_flush(cx)).is_err() {
                self.writes = false;
            }
            self.unflushed = false;
        }
        Poll::Ready(())
    }

    /// Writes bytes straight from the chunk; what doesn't go out becomes pending.
    pub(crate) fn write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) {
        if bytes.is_empty() || !self.writes {
            return;
        }
        let mut written = 0;
        if let Poll::Ready(result) = Pin::new(&mut self.stream).poll_write(cx, bytes) {
            match result {
                Ok(count) if count > 0 => {
                    written = count;
                    self.unflushed = self.stream.is_tls();
                }
                Ok(_) | Err(_) => self.writes = false,
            }
        }
        if self.writes {
            self.pending.extend_from_slice(bytes.get(written..).unwrap_or_default());
        }
    }
}

/// What is left to hold. A message that is still growing stays where it is: copied at each read,
/// a megabyte that comes in small pieces would cost a megabyte's copy per piece. So does a long
/// rest of which only a little was consumed, which otherwise would be copied for every program in
/// it. A short one, or one behind more than itself, moves to a buffer of its own size.
pub(crate) fn behind(mut all: BytesMut, consumed: usize) -> BytesMut {
    let left = all.len().saturating_sub(consumed);
    if consumed == 0 || left > consumed.max(limits::SCRATCH_BYTES) {
        all.advance(consumed);
        return all;
    }
    BytesMut::from(all.get(consumed..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::future::{Future as _, poll_fn};
    use std::time::Duration;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::UnixStream;
    use tokio::task::coop::consume_budget;

    use super::*;

    /// More than anything here takes on a loaded machine.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn pair() -> (Peer<()>, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        (Peer::new(Stream::Unix(near), BytesMut::new()), far)
    }

    /// Waits until the runtime's mark is on the socket.
    async fn rung(peer: &Peer<()>) {
        let wait = async {
            while peer.stream.is_quiet() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap();
    }

    async fn read(peer: &mut Peer<()>) -> usize {
        let mut scratch = [0; 8];
        let read = poll_fn(|cx| peer.poll_read(cx, &mut scratch));
        match tokio::time::timeout(PATIENCE, read).await {
            Ok(count) => count.unwrap(),
            Err(_) => panic!("VIOLATION: a readiness was lost"),
        }
    }

    #[tokio::test]
    async fn a_quiet_socket_is_asked_once_and_each_readiness_is_read() {
        let (mut peer, mut far) = pair();
        for round in 0..100 {
            poll_fn(|cx| {
                assert!(peer.poll_read(cx, &mut [0; 8]).is_pending());
                assert!(peer.armed && peer.stream.is_quiet());
                assert!(peer.poll_read(cx, &mut [0; 8]).is_pending());
                Poll::Ready(())
            })
            .await;
            // In front of the wait in one round, from another task in the next.
            if round % 2 == 0 {
                far.write_all(b"ab").await.unwrap();
                assert_eq!(read(&mut peer).await, 2);
            } else {
                let writes = tokio::spawn(async move {
                    tokio::task::yield_now().await;
                    far.write_all(b"a").await.unwrap();
                    far
                });
                assert_eq!(read(&mut peer).await, 1);
                far = writes.await.unwrap();
            }
            assert!(!peer.armed, "what was read may not be all");
        }
        // More than one read takes: each goes on without a ring in between.
        far.write_all(&[0; 20]).await.unwrap();
        assert_eq!(
            (read(&mut peer).await, read(&mut peer).await, read(&mut peer).await),
            (8, 8, 4)
        );
        drop(far);
        assert_eq!((read(&mut peer).await, read(&mut peer).await), (0, 0), "the end stays one");
    }

    /// The task of `select` and the like may be polled by one waker and then by another.
    #[tokio::test]
    async fn what_was_left_by_another_waker_is_left_anew() {
        let ((mut peer, mut far), mut turns) = (pair(), Turns::default());
        let mut turn = move |cx: &mut Context<'_>, peer: &mut Peer<()>| {
            if turns.has_new_waker(cx) {
                peer.disarm();
            }
            peer.poll_read(cx, &mut [0; 8])
        };
        let mut nobody = Context::from_waker(Waker::noop());
        assert!(turn(&mut nobody, &mut peer).is_pending() && peer.armed);
        let read = tokio::spawn(async move { poll_fn(|cx| turn(cx, &mut peer)).await.unwrap() });
        // Behind its first turn.
        tokio::task::yield_now().await;
        far.write_all(b"ab").await.unwrap();
        match tokio::time::timeout(PATIENCE / 10, read).await {
            Ok(count) => assert_eq!(count.unwrap(), 2),
            Err(_) => panic!("VIOLATION: another task was woken"),
        }
    }

    #[tokio::test]
    async fn a_read_that_the_budget_ended_is_tried_again() {
        let (mut peer, mut far) = pair();
        let read = tokio::spawn(async move {
            let mut turn = 0;
            poll_fn(|cx| {
                turn += 1;
                if turn == 1 {
                    let spent = |cx: &mut Context<'_>| {
                        let mut budget = std::pin::pin!(consume_budget());
                        budget.as_mut().poll(cx).is_pending()
                    };
                    while !spent(cx) {}
                }
                peer.poll_read(cx, &mut [0; 8])
            })
            .await
            .unwrap()
        });
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        far.write_all(b"ab").await.unwrap();
        match tokio::time::timeout(PATIENCE / 10, read).await {
            Ok(count) => assert_eq!(count.unwrap(), 2),
            Err(_) => panic!("VIOLATION: nobody was woken"),
        }
    }

    #[tokio::test]
    async fn a_mark_of_readiness_stays_until_it_is_read() {
        let (mut peer, mut far) = pair();
        far.write_all(b"a").await.unwrap();
        rung(&peer).await;
        assert!(!peer.stream.is_quiet() && !peer.stream.is_quiet());
        assert_eq!(read(&mut peer).await, 1);
        assert!(peer.stream.is_quiet());
    }

    #[cfg(debug_assertions)]
    #[test]
    fn control_arm_without_either_look_a_wake_is_lost() {
        for (test, guard, what) in [
            ("what_was_left_by_another_waker_is_left_anew", "waker-look", "another task"),
            ("a_read_that_the_budget_ended_is_tried_again", "budget-look", "nobody was woken"),
        ] {
            let test = format!("wire::shared::peer::tests::{test}");
            crate::base::arm::missed(&test, &[(guard, what)]).unwrap();
        }
    }
}
