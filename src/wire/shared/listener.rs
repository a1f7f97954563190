//! Accepting client connections and handing them to workers.
//!
//! Purpose: W26 up to the hand-over. Listeners are bound at the start, so that a busy port stops
//! it, and accept only once recovery is done. Connections go round the workers in turn. The queue
//! to a worker is bounded: when it is full, accepting waits, and the kernel's backlog after it.

use std::path::PathBuf;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;

use crate::base::limits;
use crate::telemetry::timer;
use crate::wire::shared::workers::{Handover, RawSocket, Service, Workers};

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
            ListenAddress::Tcp(text) => TcpListener::bind(text).await.map(Socket::Tcp),
            ListenAddress::Unix(path) => {
                let dead = path.exists() && std::os::unix::net::UnixStream::connect(path).is_err();
                if dead && let Err(source) = std::fs::remove_file(path) {
                    return Err(ListenError { address, source });
                }
                UnixListener::bind(path).map(Socket::Unix)
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

    /// Accepts until dropped.
    ///
    /// # Cancel safety
    /// Cancel safe: a connection that was accepted and not handed over is closed.
    pub async fn run(self, workers: &Workers) {
        let queues = workers.queues();
        let mut turn = 0_usize;
        loop {
            let accepted = match &self.socket {
                Socket::Tcp(tcp) => tcp.accept().await.and_then(|(stream, peer)| {
                    Ok((RawSocket::Tcp(stream.into_std()?), peer.to_string()))
                }),
                Socket::Unix(unix) => unix.accept().await.and_then(|(stream, _)| {
                    Ok((RawSocket::Unix(stream.into_std()?), self.address.to_string()))
                }),
            };
            match accepted {
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
