//! The yardstick: a relay that looks at no byte.
//!
//! Purpose: `make bench` runs it beside the proxy, so that what the proxy costs beyond moving bytes
//! shows as a ratio within one run. It is shaped as the proxy's data side is: one current-thread
//! runtime per core, connections handed round in turn and pinned for life, one task per connection
//! with both directions in one loop, one read into the thread's buffer and one write, no buffer
//! kept by an idle connection. What can't be written at once is kept, and its source isn't read
//! until it is gone.
//!
//! Run by `tools/bench/` as `bare_relay LISTEN TARGET [THREADS]`. It has no TLS, no limits, no
//! graceful end and no log: it serves measurements on one machine and nothing else.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// One read from a socket, in bytes: the proxy's own size.
const SCRATCH_BYTES: usize = 64 << 10;
/// Accepted connections waiting for one thread.
const QUEUE_MAX: usize = 1024;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let (Some(listen), Some(target)) = (arguments.next(), arguments.next()) else {
        // Started without addresses, by a runner of all examples or benches: nothing to do.
        return Ok(());
    };
    let target: SocketAddr = target.parse().map_err(io::Error::other)?;
    let threads = match arguments.next() {
        Some(number) => number.parse().map_err(io::Error::other)?,
        None => std::thread::available_parallelism()?.get(),
    };
    let listener = TcpListener::bind(listen)?;
    let mut queues = Vec::new();
    for _ in 0..threads {
        queues.push(start_thread(target)?);
    }
    for queue in queues.iter().cycle() {
        let (client, _) = listener.accept()?;
        client.set_nonblocking(true)?;
        queue.blocking_send(client).map_err(io::Error::other)?;
    }
    Ok(())
}

fn start_thread(target: SocketAddr) -> io::Result<mpsc::Sender<std::net::TcpStream>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (sender, mut queue) = mpsc::channel(QUEUE_MAX);
    std::thread::Builder::new().spawn(move || {
        runtime.block_on(async move {
            while let Some(client) = queue.recv().await {
                tokio::spawn(async move {
                    // A connection that breaks ends; the other side sees the close.
                    let _broken = serve(client, target).await;
                });
            }
        });
    })?;
    Ok(sender)
}

async fn serve(client: std::net::TcpStream, target: SocketAddr) -> io::Result<()> {
    let client = TcpStream::from_std(client)?;
    let server = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let mut there = Direction::default();
    let mut back = Direction::default();
    let (mut client, mut server) = (client, server);
    poll_fn(|cx| {
        SCRATCH.with_borrow_mut(|scratch| {
            let one = there.poll_move(cx, &mut client, &mut server, scratch)?;
            let other = back.poll_move(cx, &mut server, &mut client, scratch)?;
            if one.is_ready() && other.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
    })
    .await
}

/// One direction of a connection.
#[derive(Default)]
struct Direction {
    /// Read and not yet written.
    pending: Vec<u8>,
    /// How much of it is written.
    written: usize,
    /// The source has ended.
    ended: bool,
    /// The destination has been told.
    done: bool,
}

impl Direction {
    /// Moves bytes until a socket says wait. Ready at the end of the source.
    fn poll_move(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut TcpStream,
        to: &mut TcpStream,
        scratch: &mut [u8],
    ) -> io::Result<Poll<()>> {
        while !self.done {
            while let Some(rest) = self.pending.get(self.written..).filter(|rest| !rest.is_empty())
            {
                match Pin::new(&mut *to).poll_write(cx, rest) {
                    Poll::Ready(count) => self.written += count?,
                    Poll::Pending => return Ok(Poll::Pending),
                }
            }
            if self.written > 0 {
                *self = Self { ended: self.ended, ..Self::default() };
            }
            if self.ended {
                if Pin::new(&mut *to).poll_shutdown(cx)?.is_pending() {
                    return Ok(Poll::Pending);
                }
                self.done = true;
                break;
            }
            let Poll::Ready(count) = poll_read(from, cx, scratch)? else {
                return Ok(Poll::Pending);
            };
            if count == 0 {
                self.ended = true;
                continue;
            }
            let bytes = scratch.get(..count).unwrap_or_default();
            let written = match Pin::new(&mut *to).poll_write(cx, bytes) {
                Poll::Ready(written) => written?,
                Poll::Pending => 0,
            };
            self.pending.extend_from_slice(bytes.get(written..).unwrap_or_default());
        }
        Ok(Poll::Ready(()))
    }
}

fn poll_read(
    from: &mut TcpStream,
    cx: &mut Context<'_>,
    scratch: &mut [u8],
) -> io::Result<Poll<usize>> {
    let mut buffer = ReadBuf::new(scratch);
    match Pin::new(from).poll_read(cx, &mut buffer)? {
        Poll::Ready(()) => Ok(Poll::Ready(buffer.filled().len())),
        Poll::Pending => Ok(Poll::Pending),
    }
}
