//! TLS towards clients.
//!
//! Purpose: load certificate, key and (optionally) the authority of client certificates; accept
//! handshakes. Called by `wire` listeners through [`super::reload::ReloadingServerTls`].
//!
//! It does not read the SSLRequest, does not limit the time of a handshake, and must be given a
//! socket on which no plaintext byte has been read past the request: bytes that were read into a
//! buffer before the handshake are the caller's reason to close the connection.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::stream::Stream;
use super::{ALPN_POSTGRESQL, TlsError, provider, read_certificates, read_roots};

/// A loaded server configuration; cheap to clone.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    /// The same without a protocol's name.
    nameless: Arc<ServerConfig>,
}

impl ServerTls {
    /// Reads the files and builds the configuration (TLS 1.2 and 1.3).
    ///
    /// With `client_ca_file` every client must show a certificate signed by one of its
    /// authorities; without, client certificates are not asked for. The chain file holds the
    /// server's certificate first.
    ///
    /// # Errors
    /// [`TlsError::File`] for a file that can't be read or isn't PEM; [`TlsError::Config`] when
    /// key and certificate don't belong together.
    pub fn load(
        cert_file: &Path,
        key_file: &Path,
        client_ca_file: Option<&Path>,
    ) -> Result<Self, TlsError> {
        let chain = read_certificates("certificate", cert_file)?;
        let key = PrivateKeyDer::from_pem_file(key_file).map_err(|e| TlsError::File {
            what: "key",
            path: key_file.to_owned(),
            words: e.to_string(),
        })?;
        let wrong = |e: &dyn std::fmt::Display| TlsError::Config(e.to_string());
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|e| wrong(&e))?;
        let builder = match client_ca_file {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(read_roots("client CA", path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                    .build()
                    .map_err(|e| wrong(&e))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|e| wrong(&e))?;
        let nameless = Arc::new(config.clone());
        config.alpn_protocols = vec![ALPN_POSTGRESQL.to_vec()];
        // As PostgreSQL's own server, which has no client resume a TLS session. Two tickets for
        // each cost a sixth of the handshake.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self { config: Arc::new(config), nameless })
    }

    /// Handshake after an SSLRequest was answered with `S`.
    ///
    /// A client that offers application protocols must offer `postgresql` among them; one that
    /// offers none is accepted. Cancel safety: dropping the future closes the connection.
    ///
    /// # Errors
    /// [`TlsError::Handshake`] with the peer's address.
    pub async fn accept(&self, tcp: TcpStream) -> Result<Stream, TlsError> {
        Self::shake(&self.config, tcp).await
    }

    /// Handshake inside the MySQL login, where application protocols have no names: what a client
    /// offers of them is passed over.
    ///
    /// Cancel safety: as [`ServerTls::accept`].
    ///
    /// # Errors
    /// [`TlsError::Handshake`] with the peer's address.
    pub async fn accept_nameless(&self, tcp: TcpStream) -> Result<Stream, TlsError> {
        Self::shake(&self.nameless, tcp).await
    }

    async fn shake(config: &Arc<ServerConfig>, tcp: TcpStream) -> Result<Stream, TlsError> {
        let shaken = TlsAcceptor::from(Arc::clone(config)).accept(tcp).into_fallible().await;
        match shaken {
            Ok(tls) => Ok(Stream::server_tls(tls)),
            Err((source, tcp)) => {
                let peer = match tcp.peer_addr() {
                    Ok(address) => format!("client {address}"),
                    Err(_) => "client (already gone)".to_owned(),
                };
                Err(TlsError::Handshake { peer, source })
            }
        }
    }

    /// Handshake of a connection that starts with TLS at once (PostgreSQL 17 and later clients).
    ///
    /// The protocol name `postgresql` must have been negotiated, so that a browser or another
    /// protocol's client can't be talked into this one. Cancel safety: as [`ServerTls::accept`].
    ///
    /// # Errors
    /// [`TlsError::Handshake`], or [`TlsError::NotPostgres`] without that protocol name.
    pub async fn accept_direct(&self, tcp: TcpStream) -> Result<Stream, TlsError> {
        let stream = self.accept(tcp).await?;
        if stream.alpn() == Some(ALPN_POSTGRESQL) { Ok(stream) } else { Err(TlsError::NotPostgres) }
    }
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerTls")
    }
}
