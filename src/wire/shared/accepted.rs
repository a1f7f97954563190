//! A client connection as it was accepted, and what its listener says about TLS.
//!
//! Purpose: the same for every protocol. Made by `workers.rs` and `app`, read by each protocol's
//! `startup.rs`.

use std::sync::Arc;

use tokio::net::{TcpStream, UnixStream};

use crate::tls::ReloadingServerTls;

/// Whether clients may, must or can't use TLS.
#[derive(Debug, Clone)]
pub enum ClientSideTls {
    /// Requests for encryption are declined.
    Disable,
    /// The client chooses.
    Allow(Arc<ReloadingServerTls>),
    /// Plaintext logins are refused, but over a Unix socket.
    Require(Arc<ReloadingServerTls>),
}

/// A connection as accepted.
#[derive(Debug)]
pub enum Accepted {
    /// Over TCP, with its options set (`tls::settle`).
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}
