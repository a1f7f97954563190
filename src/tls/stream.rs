//! One stream type for every kind of peer.
//!
//! Purpose: relays and sessions handle plaintext TCP, Unix sockets and TLS of either side through
//! one type without boxing the plain ones. Made by [`super::server`], [`super::client`] and, for
//! plaintext, by the caller. It buffers nothing of its own (TLS does) and sets no time limits.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::{client, server};

use crate::base::limits;

/// A connection to a client or to an engine.
pub enum Stream {
    /// Plaintext over TCP, with Nagle's algorithm off.
    Plain(TcpStream),
    /// A Unix socket; never encrypted.
    Unix(UnixStream),
    /// TLS in which we are the server.
    ServerTls(Box<server::TlsStream<TcpStream>>),
    /// TLS in which we are the client.
    ClientTls(Box<client::TlsStream<TcpStream>>),
}

/// Sets a session's TCP connection up, whichever side it goes to: no delay of small packets, and
/// keepalive, so that a peer whose host vanished without a word is missed within about two minutes
/// (`limits::SESSION_KEEPALIVE_IDLE_S` and its kin) even while nothing is said. A listening socket
/// that is set up so hands it on to what it accepts, where [`ACCEPTED_ARE_SETTLED`].
///
/// # Errors
/// The socket option's error: the connection is already gone.
pub fn settle(tcp: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(tcp);
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(limits::SESSION_KEEPALIVE_IDLE_S))
        .with_interval(Duration::from_secs(limits::SESSION_KEEPALIVE_PAUSE_S))
        .with_retries(limits::SESSION_KEEPALIVES);
    socket.set_tcp_keepalive(&keepalive)
}

/// Whether this system's accepted connections begin with their listening socket's options: it saves
/// five system calls for each of them. Linux copies the socket; others needn't.
pub const ACCEPTED_ARE_SETTLED: bool = cfg!(target_os = "linux");

impl Stream {
    /// Wraps a TCP connection to an engine, with its options set as in [`settle`].
    ///
    /// # Errors
    /// The socket option's error: the connection is already gone.
    pub fn tcp(tcp: TcpStream) -> io::Result<Self> {
        settle(&tcp)?;
        Ok(Self::Plain(tcp))
    }

    /// Whether the runtime has nothing to be read on it: no byte, no end, no error. One load; it
    /// asks neither the system nor the task's budget, and leaves no waker. With TLS always false:
    /// what was read and not yet decrypted doesn't show.
    #[must_use]
    #[inline]
    pub fn is_quiet(&self) -> bool {
        // Answers by what the runtime knows, and takes nothing away where it answers "ready".
        let nothing = || Ok(());
        match self {
            Self::Plain(tcp) => tcp.try_io(Interest::READABLE, nothing).is_err(),
            Self::Unix(unix) => unix.try_io(Interest::READABLE, nothing).is_err(),
            Self::ServerTls(_) | Self::ClientTls(_) => false,
        }
    }

    pub(super) fn server_tls(tls: server::TlsStream<TcpStream>) -> Self {
        Self::ServerTls(Box::new(tls))
    }

    pub(super) fn client_tls(tls: client::TlsStream<TcpStream>) -> Self {
        Self::ClientTls(Box::new(tls))
    }

    /// Whether bytes on this connection are encrypted.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Unix(_) => false,
            Self::ServerTls(_) | Self::ClientTls(_) => true,
        }
    }

    /// The application protocol name that was negotiated, if any.
    #[must_use]
    pub fn alpn(&self) -> Option<&[u8]> {
        match self {
            Self::Plain(_) | Self::Unix(_) => None,
            Self::ServerTls(tls) => tls.get_ref().1.alpn_protocol(),
            Self::ClientTls(tls) => tls.get_ref().1.alpn_protocol(),
        }
    }

    /// The peer's end-entity certificate (DER), where one was shown.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        let chain = match self {
            Self::Plain(_) | Self::Unix(_) => None,
            Self::ServerTls(tls) => tls.get_ref().1.peer_certificates(),
            Self::ClientTls(tls) => tls.get_ref().1.peer_certificates(),
        };
        chain.and_then(<[_]>::first).map(AsRef::as_ref)
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Stream(plain)",
            Self::Unix(_) => "Stream(unix)",
            Self::ServerTls(_) => "Stream(server TLS)",
            Self::ClientTls(_) => "Stream(client TLS)",
        })
    }
}

/// Calls one poll function on whichever stream is inside.
macro_rules! each {
    ($self:expr, $poll:ident ( $($arg:expr),* )) => {
        match $self.get_mut() {
            Stream::Plain(inner) => Pin::new(inner).$poll($($arg),*),
            Stream::Unix(inner) => Pin::new(inner).$poll($($arg),*),
            Stream::ServerTls(inner) => Pin::new(inner.as_mut()).$poll($($arg),*),
            Stream::ClientTls(inner) => Pin::new(inner.as_mut()).$poll($($arg),*),
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self, poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(self, poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, poll_shutdown(cx))
    }
}
