//! One side of a relay: its socket, and what is on its way through.
//!
//! Purpose: reading into the thread's buffer and writing straight from it, with what doesn't go out
//! kept pending: backpressure, not buffering (W22). Used by every protocol's `relay.rs`, each of
//! which says what a message's rest is (`R`). It knows no protocol.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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

/// Reads once into the scratch buffer; zero bytes are the peer's end.
pub(crate) fn poll_read(
    stream: &mut Stream,
    cx: &mut Context<'_>,
    scratch: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut buffer = ReadBuf::new(scratch);
    ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
    Poll::Ready(Ok(buffer.filled().len()))
}
