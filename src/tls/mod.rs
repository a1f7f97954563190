//! TLS on both sides: the only place that imports rustls.
//!
//! Purpose: server configuration for client listeners ([`server`], swapped at run time by
//! [`reload`]), the connector towards engines ([`client`]) and one stream type for all of them
//! ([`stream`]). The cryptography is ring's, handed to every configuration explicitly; there is no
//! process-wide default to depend on.
//!
//! Called by `wire` (both directions) and by `engine` (control connections). It does not speak any
//! database protocol: the SSLRequest exchange and everything before the TLS handshake is the
//! caller's, and so are time limits.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

pub mod binding;
pub mod client;
pub mod reload;
pub mod server;
pub mod stream;

pub use client::{ClientConnector, ClientTls, TlsMode};
pub use reload::ReloadingServerTls;
pub use server::ServerTls;
pub use stream::{ACCEPTED_ARE_SETTLED, Stream, settle};

/// The application protocol name that PostgreSQL clients offer (obligatory for direct TLS).
pub(crate) const ALPN_POSTGRESQL: &[u8] = b"postgresql";

/// What can go wrong with TLS: with files, with settings, with a peer.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read or isn't PEM.
    #[error("TLS {what} file {path}: {words}; give a readable PEM file")]
    File {
        /// Which file: `certificate`, `key`, `client CA`, `engine CA`.
        what: &'static str,
        /// Its path as configured.
        path: PathBuf,
        /// What the system or the PEM reader said.
        words: String,
    },
    /// The files were read but don't make a configuration (key and certificate differ, say).
    #[error("TLS configuration: {0}")]
    Config(String),
    /// The peer's handshake failed, its certificate included.
    #[error("TLS handshake with {peer} failed: {source}")]
    Handshake {
        /// Whom the handshake was with, in words.
        peer: String,
        /// What the TLS library said.
        source: io::Error,
    },
    /// A direct-TLS client didn't offer the protocol name it must.
    #[error("direct TLS without ALPN \"postgresql\": not a PostgreSQL client, or one before 17")]
    NotPostgres,
}

/// The one provider of cryptography.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Reads all certificates of a PEM file; an empty file is an error.
fn read_certificates(
    what: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let fail = |words: String| TlsError::File { what, path: path.to_owned(), words };
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| fail(e.to_string()))?;
    if certificates.is_empty() {
        return Err(fail("it holds no certificate".to_owned()));
    }
    Ok(certificates)
}

/// Reads a PEM file of certificate authorities; each of its certificates must be usable.
fn read_roots(what: &'static str, path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(what, path)? {
        roots.add(certificate).map_err(|e| TlsError::File {
            what,
            path: path.to_owned(),
            words: e.to_string(),
        })?;
    }
    Ok(roots)
}

#[cfg(test)]
mod tests;
