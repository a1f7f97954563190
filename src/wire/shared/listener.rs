//! Accepting client connections and handing them to workers.
//!
//! Purpose: W26 up to the hand-over. Listeners are bound at the start, so that a busy port stops
//! it, and accept only once recovery is done. A listener accepts on a worker's thread: it needs no
//! thread of its own to be woken for each connection. Connections go round the workers in turn. The
//! queue to a worker is bounded: when it is full, accepting waits, and the kernel's backlog after
//! it.

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use crate::base::limits;
use crate::telemetry::timer;
use crate::tls::{ACCEPTED_ARE_SETTLED, settle};
use crate::wire::shared::workers::{Handover, RawSocket, Service};

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// `host:port`.
    Tcp(String),
    /// A socket file.
    Unix(PathBuf),
}

impl std::fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The address can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address}: {source}")]
pub struct ListenError {
    address: ListenAddress,
    source: std::io::Error,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A bound listener that doesn't accept yet.
pub struct Listener {
    socket: Socket,
    address: ListenAddress,
    service: Service,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener({})", self.address)
    }
}

impl Listener {
    /// Binds. A socket file left by an earlier process that nobody listens on is replaced.
    ///
    /// # Errors
    /// [`ListenError`] with the address.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing listens, though a dead socket file may be gone.
    pub async fn bind(address: ListenAddress, service: Service) -> Result<Self, ListenError> {
        let bound = match &address {
            ListenAddress::Tcp(text) => bind_tcp(text).await.map(Socket::Tcp),
            ListenAddress::Unix(path) => {
                let dead = path.exists() && std::os::unix::net::UnixStream::connect(path).is_err();
                if dead && let Err(source) = std::fs::remove_file(path) {
                    return Err(ListenError { address, source });
                }
                bind_unix(path).map(Socket::Unix)
            }
        };
        match bound {
            Ok(socket) => Ok(Self { socket, address, service }),
            Err(source) => Err(ListenError { address, source }),
        }
    }

    /// The address as bound: with port 0, the port the system chose.
    #[must_use]
    pub fn address(&self) -> ListenAddress {
        match &self.socket {
            Socket::Tcp(tcp) => tcp
                .local_addr()
                .map_or_else(|_| self.address.clone(), |at| ListenAddress::Tcp(at.to_string())),
            Socket::Unix(_) => self.address.clone(),
        }
    }

    /// Puts it into the runtime that this is called in, a worker's, which is to run it.
    ///
    /// # Errors
    /// [`ListenError`] where that takes no descriptor more.
    pub(crate) fn settled(self) -> Result<Settled, ListenError> {
        match Accepting::new(self.socket) {
            Ok(accepting) => {
                Ok(Settled { accepting, address: self.address, service: self.service })
            }
            Err(source) => Err(ListenError { address: self.address, source }),
        }
    }
}

/// A listener in the runtime that accepts from it.
pub(crate) struct Settled {
    accepting: Accepting,
    address: ListenAddress,
    service: Service,
}

impl Settled {
    /// Accepts until dropped, and hands what comes to `queues` in turn.
    ///
    /// # Cancel safety
    /// Cancel safe: a connection that was accepted and not handed over is closed.
    pub(crate) async fn run(self, queues: Vec<mpsc::Sender<Handover>>) {
        let mut turn = 0_usize;
        loop {
            match self.accepting.next(&self.address).await {
                Ok((socket, client)) => {
                    let service = self.service.clone();
                    turn = turn.wrapping_add(1);
                    hand_over(&queues, turn, Handover { socket, client, service }).await;
                }
                Err(error) => {
                    // Out of descriptors, mostly: let sessions end before trying again.
                    tracing::warn!(%error, address = %self.address, "accepting failed");
                    timer::sleep(Duration::from_millis(limits::ACCEPT_RETRY_MS)).await;
                }
            }
        }
    }
}

/// A listening socket without a runtime.
///
/// # Cancel safety
/// Cancel safe: nothing listens.
async fn bind_tcp(address: &str) -> io::Result<TcpListener> {
    let socket = tokio::net::TcpListener::bind(address).await?.into_std()?;
    settle(&socket)?;
    Ok(socket)
}

fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let socket = UnixListener::bind(path)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The socket of one. What is accepted is in no runtime yet: it is its worker's that it goes into.
enum Accepting {
    Tcp(AsyncFd<TcpListener>),
    Unix(AsyncFd<UnixListener>),
}

impl Accepting {
    #[allow(
        deprecated,
        reason = "its successor is `unsafe`, for the sake of types whose descriptor \
        is not their own; that of the standard library's listeners is, and for life"
    )]
    fn new(socket: Socket) -> io::Result<Self> {
        let readable = Interest::READABLE;
        match socket {
            Socket::Tcp(tcp) => AsyncFd::with_interest(tcp, readable).map(Self::Tcp),
            Socket::Unix(unix) => AsyncFd::with_interest(unix, readable).map(Self::Unix),
        }
    }

    /// The next connection, and its address for people.
    ///
    /// # Errors
    /// The system's; the next call may go well.
    ///
    /// # Cancel safety
    /// Cancel safe: a connection that wasn't answered is still to be accepted, or closed.
    async fn next(&self, address: &ListenAddress) -> io::Result<(RawSocket, String)> {
        match self {
            Self::Tcp(tcp) => {
                let (tcp, peer) = tcp.async_io(Interest::READABLE, TcpListener::accept).await?;
                tcp.set_nonblocking(true)?;
                if !ACCEPTED_ARE_SETTLED {
                    settle(&tcp)?;
                }
                Ok((RawSocket::Tcp(tcp), peer.to_string()))
            }
            Self::Unix(unix) => {
                let (unix, _) = unix.async_io(Interest::READABLE, UnixListener::accept).await?;
                unix.set_nonblocking(true)?;
                Ok((RawSocket::Unix(unix), address.to_string()))
            }
        }
    }
}

/// Gives a connection to the worker whose turn it is, and waits while its queue is full.
///
/// # Cancel safety
/// Cancel safe: a connection that wasn't handed over is closed.
async fn hand_over(queues: &[mpsc::Sender<Handover>], turn: usize, handover: Handover) {
    let Some(queue) = queues.get(turn % queues.len().max(1)) else { return };
    if queue.send(handover).await.is_err() {
        tracing::error!("a worker is gone; a connection is dropped");
    }
}

#[cfg(test)]
mod tests {
    use socket2::SockRef;
    use tokio::net::TcpStream;

    use super::*;

    /// Both options of a socket that one is sure to miss.
    fn options(socket: &TcpListener, accepted: &RawSocket) -> [(bool, bool); 2] {
        let RawSocket::Tcp(accepted) = accepted else { panic!("not TCP") };
        [SockRef::from(socket), SockRef::from(accepted)]
            .map(|socket| (socket.tcp_nodelay().unwrap(), socket.keepalive().unwrap()))
    }

    async fn accepted(socket: TcpListener) -> (TcpListener, RawSocket) {
        let at = socket.local_addr().unwrap();
        let copy = socket.try_clone().unwrap();
        let accepting = Accepting::new(Socket::Tcp(socket)).unwrap();
        let address = ListenAddress::Tcp(at.to_string());
        let (next, _client) = tokio::join!(accepting.next(&address), TcpStream::connect(at));
        (copy, next.unwrap().0)
    }

    /// Whoever starts hears of it: a listener that accepts nothing would look like a good start.
    #[test]
    fn what_no_runtime_takes_is_an_error() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let here = runtime();
        let _inside = here.enter();
        let file = tempfile::tempfile().unwrap();
        let socket = TcpListener::from(std::os::fd::OwnedFd::from(file));
        let refused = Accepting::new(Socket::Tcp(socket)).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{refused}");
    }

    /// W26. Control arm: where the listening socket isn't set up, what it accepts isn't either.
    #[tokio::test]
    async fn w26_what_is_accepted_has_its_options_set() {
        let (socket, next) = accepted(bind_tcp("127.0.0.1:0").await.unwrap()).await;
        assert_eq!(options(&socket, &next), [(true, true); 2]);
        let RawSocket::Tcp(tcp) = &next else { panic!("not TCP") };
        let (tcp, listening) = (SockRef::from(tcp), SockRef::from(&socket));
        let idle = Duration::from_secs(limits::SESSION_KEEPALIVE_IDLE_S);
        assert_eq!(tcp.tcp_keepalive_time().unwrap(), idle);
        let pause = Duration::from_secs(limits::SESSION_KEEPALIVE_PAUSE_S);
        assert_eq!(tcp.tcp_keepalive_interval().unwrap(), pause);
        assert_eq!(tcp.tcp_keepalive_retries().unwrap(), limits::SESSION_KEEPALIVES);
        assert!(tcp.nonblocking().unwrap() && listening.nonblocking().unwrap());
        let bare = TcpListener::bind("127.0.0.1:0").unwrap();
        bare.set_nonblocking(true).unwrap();
        if ACCEPTED_ARE_SETTLED {
            let (socket, next) = accepted(bare).await;
            assert_eq!(options(&socket, &next), [(false, false); 2]);
        }
    }
}
