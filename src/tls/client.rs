//! TLS towards engines, with the meaning that libpq gives its `sslmode` words.
//!
//! Purpose: turn settings into a connector once, then make handshakes. Called by `engine` for
//! control connections and by `wire` for the engine side of sessions.
//!
//! | mode | encrypts | checks the chain | checks the name |
//! | --- | --- | --- | --- |
//! | `disable` | never | | |
//! | `prefer` | when the engine can | with a CA file only | no |
//! | `require` | always | with a CA file only | no |
//! | `verify-ca` | always | always (a CA file is needed) | no |
//! | `verify-full` | always | always (public roots without a CA file) | yes |
//!
//! Differences to libpq: names are read from the certificate's subject alternative names only,
//! never from its common name; no client certificate is sent; no revocation list is read. An
//! engine certificate that is itself in the CA file is accepted as its own chain, as libpq does,
//! and then without a look at its dates. Certificates older than X.509 version 3 are refused.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::binding::tls_server_end_point;
use super::stream::Stream;
use super::{ALPN_POSTGRESQL, TlsError, provider, read_certificates, read_roots};

/// How much TLS an engine connection wants; the words of libpq's `sslmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsMode {
    /// Plaintext only.
    Disable,
    /// TLS when the engine offers it, plaintext otherwise. Protects against nobody active.
    Prefer,
    /// TLS or no connection; the certificate is checked only when a CA file is given.
    Require,
    /// TLS, and the certificate's chain ends at the CA file.
    VerifyCa,
    /// TLS, the chain, and the certificate names the host we connect to.
    VerifyFull,
}

impl TlsMode {
    /// The word used in settings and messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }
}

/// TLS settings of one engine.
#[derive(Debug, Clone)]
pub struct ClientTls {
    /// How much TLS.
    pub mode: TlsMode,
    /// PEM file of the authorities to trust; `None` as the table above says.
    pub ca_file: Option<PathBuf>,
}

impl ClientTls {
    /// Plaintext only.
    #[must_use]
    pub fn disabled() -> Self {
        Self { mode: TlsMode::Disable, ca_file: None }
    }

    /// Reads the CA file and builds the connector; `None` when the mode is `disable`.
    ///
    /// # Errors
    /// [`TlsError::File`] for the CA file, [`TlsError::Config`] for `verify-ca` without one: with
    /// public roots anybody can get a certificate that passes a chain-only check.
    pub fn connector(&self) -> Result<Option<ClientConnector>, TlsError> {
        self.connector_naming(vec![ALPN_POSTGRESQL.to_vec()])
    }

    /// The same without a protocol's name in the handshake: MySQL has none.
    ///
    /// # Errors
    /// As [`ClientTls::connector`].
    pub fn nameless_connector(&self) -> Result<Option<ClientConnector>, TlsError> {
        self.connector_naming(Vec::new())
    }

    fn connector_naming(&self, names: Vec<Vec<u8>>) -> Result<Option<ClientConnector>, TlsError> {
        let check_name = match self.mode {
            TlsMode::Disable => return Ok(None),
            TlsMode::Prefer | TlsMode::Require | TlsMode::VerifyCa => false,
            TlsMode::VerifyFull => true,
        };
        let trust = match (&self.ca_file, self.mode) {
            (Some(path), _) => Some(Trust {
                roots: read_roots("engine CA", path)?,
                listed: read_certificates("engine CA", path)?,
            }),
            (None, TlsMode::VerifyCa) => {
                return Err(TlsError::Config(
                    "verify-ca needs a CA file; give ca_file, or use verify-full".to_owned(),
                ));
            }
            (None, TlsMode::VerifyFull) => Some(Trust {
                roots: webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect(),
                listed: Vec::new(),
            }),
            (None, TlsMode::Disable | TlsMode::Prefer | TlsMode::Require) => None,
        };
        let provider = provider();
        let verifier = Verifier { trust, check_name, provider: Arc::clone(&provider) };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| TlsError::Config(e.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.alpn_protocols = names;
        Ok(Some(ClientConnector { inner: TlsConnector::from(Arc::new(config)) }))
    }
}

/// Makes handshakes with one engine; cheap to clone.
#[derive(Clone)]
pub struct ClientConnector {
    inner: TlsConnector,
}

impl ClientConnector {
    /// Handshake over a TCP connection on which the engine has agreed to TLS.
    ///
    /// `host` is the name or address from the settings, used for SNI and the name check. Cancel
    /// safety: dropping the future closes the connection.
    ///
    /// # Errors
    /// [`TlsError::Handshake`], the certificate checks included.
    pub async fn connect(&self, tcp: TcpStream, host: &str) -> Result<Stream, TlsError> {
        Ok(Stream::client_tls(self.shake(tcp, host).await?))
    }

    /// The same over any transport; for drivers that own their socket.
    ///
    /// # Errors
    /// As [`ClientConnector::connect`].
    pub async fn handshake<S>(&self, transport: S, host: &str) -> Result<Encrypted<S>, TlsError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.shake(transport, host).await.map(|inner| Encrypted { inner })
    }

    async fn shake<S>(&self, transport: S, host: &str) -> Result<TlsStream<S>, TlsError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|e| TlsError::Config(format!("host {host:?} can't be used for TLS: {e}")))?;
        self.inner
            .connect(name, transport)
            .await
            .map_err(|source| TlsError::Handshake { peer: format!("engine at {host}"), source })
    }
}

impl std::fmt::Debug for ClientConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientConnector")
    }
}

/// An encrypted connection over a transport that a driver owns.
pub struct Encrypted<S> {
    inner: TlsStream<S>,
}

impl<S> Encrypted<S> {
    /// Channel binding data of the engine's certificate; see [`super::binding`].
    #[must_use]
    pub fn tls_server_end_point(&self) -> Option<Vec<u8>> {
        let chain = self.inner.get_ref().1.peer_certificates()?;
        tls_server_end_point(chain.first()?)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

/// The authorities to trust, and their certificates as bytes.
#[derive(Debug)]
struct Trust {
    roots: RootCertStore,
    listed: Vec<CertificateDer<'static>>,
}

/// libpq's three levels of checking as a rustls verifier. Handshake signatures are always checked:
/// even without verification the engine must hold the key of the certificate it shows.
#[derive(Debug)]
struct Verifier {
    trust: Option<Trust>,
    check_name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(trust) = &self.trust else {
            return Ok(ServerCertVerified::assertion());
        };
        let parsed = ParsedCertificate::try_from(end_entity)?;
        if !trust.listed.iter().any(|listed| listed == end_entity) {
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(
                &parsed,
                &trust.roots,
                intermediates,
                now,
                algorithms,
            )?;
        }
        if self.check_name {
            verify_server_name(&parsed, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
