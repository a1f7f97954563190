//! A listener that has only so many connections open at once.
//!
//! Purpose: further connections wait in the system's queue instead of taking memory here. The
//! bound is `limits::ADMIN_CONNECTIONS_MAX`. A peer that takes nothing of what is sent to it for
//! `limits::ADMIN_STALL_MS` is dropped, so that nobody keeps a place by not reading. Callers:
//! `admin/http` and `admin/console`; each listener has a bound of its own.

use std::future::Future as _;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

use crate::base::limits;

pub(super) struct Bounded {
    listener: TcpListener,
    room: Arc<Semaphore>,
}

impl Bounded {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, room: Arc::new(Semaphore::new(limits::ADMIN_CONNECTIONS_MAX)) }
    }
}

/// A connection and the room it takes.
pub(super) struct Admitted {
    stream: TcpStream,
    /// Runs while the peer takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
    patience: Duration,
    _room: Option<OwnedSemaphorePermit>,
}

impl Admitted {
    fn new(stream: TcpStream) -> Self {
        let patience = Duration::from_millis(limits::ADMIN_STALL_MS);
        Self { stream, stalled: None, patience, _room: None }
    }
}

impl Listener for Bounded {
    type Io = Admitted;
    type Addr = SocketAddr;

    /// Cancel safe: a connection is accepted only when there is room for it.
    async fn accept(&mut self) -> (Admitted, SocketAddr) {
        // The semaphore is never closed; without a permit the connection would still be served.
        let room = Arc::clone(&self.room).acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        attend(&stream);
        (Admitted { _room: room, ..Admitted::new(stream) }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Answers go out at once, and a peer whose host has vanished is noticed, so that it doesn't keep
/// its place. A socket that takes neither is served all the same.
fn attend(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(limits::ADMIN_KEEPALIVE_S))
        .with_interval(Duration::from_secs(limits::ADMIN_KEEPALIVE_S));
    let set =
        stream.set_nodelay(true).and_then(|()| SockRef::from(stream).set_tcp_keepalive(&keepalive));
    if let Err(error) = set {
        tracing::debug!(%error, "an admin connection without keepalive");
    }
}

impl AsyncRead for Admitted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Admitted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if let Poll::Ready(written) = Pin::new(&mut this.stream).poll_write(cx, buf) {
            this.stalled = None;
            return Poll::Ready(written);
        }
        let patience = this.patience;
        let stalled = this.stalled.get_or_insert_with(|| Box::pin(sleep(patience)));
        stalled.as_mut().poll(cx).map(|()| {
            let words = format!("the peer took nothing for {patience:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, words))
        })
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn pair(patience: Duration) -> (Admitted, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        (Admitted { patience, ..Admitted::new(stream) }, peer)
    }

    /// Writes until it fails or a lot is written.
    async fn fill(admitted: &mut Admitted) -> io::Result<()> {
        for _ in 0..1_000 {
            admitted.write_all(&[b'x'; 64 << 10]).await?;
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_dropped_and_a_slow_one_is_not() {
        let (mut admitted, idle) = pair(Duration::from_millis(300)).await;
        let bound = Duration::from_mins(2);
        let error = tokio::time::timeout(bound, fill(&mut admitted)).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        drop(idle);

        let (mut admitted, mut peer) = pair(Duration::from_mins(1)).await;
        let reading = crate::telemetry::spawn::spawn_named("peer", async move {
            let mut chunk = vec![0; 4 << 10];
            let mut all = 0;
            while let Ok(n @ 1..) = peer.read(&mut chunk).await {
                all += n;
            }
            all
        });
        fill(&mut admitted).await.unwrap();
        drop(admitted);
        assert_eq!(reading.await.unwrap(), 1_000 * (64 << 10));
    }
}
