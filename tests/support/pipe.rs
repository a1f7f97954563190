//! A client's socket, in plaintext or with TLS around it.

use std::io::{Read, Result, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::certs::Certs;

/// Bytes in and out.
pub enum Pipe {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Pipe {
    /// The socket below.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => &tls.sock,
        }
    }

    /// Puts TLS around a socket; the peer must show a certificate of this test program's own
    /// authority, and may choose PostgreSQL's protocol by name (ALPN).
    ///
    /// # Errors
    /// The handshake's.
    pub fn encrypted(tcp: TcpStream) -> Result<Self> {
        Self::around(tcp, vec![b"postgresql".to_vec()])
    }

    /// As [`Self::encrypted`], with the given protocols to choose from; none is no offer.
    ///
    /// # Errors
    /// The handshake's.
    pub fn around(mut tcp: TcpStream, protocols: Vec<Vec<u8>>) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(Certs::shared().ca.as_bytes()).unwrap();
        roots.add(ca).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols;
        let name = ServerName::try_from("localhost").unwrap();
        let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut tcp)?;
        }
        Ok(Self::Tls(Box::new(StreamOwned::new(tls, tcp))))
    }
}

impl Read for Pipe {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.read(bytes),
            Self::Tls(tls) => tls.read(bytes),
        }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.write(bytes),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> Result<()> {
        match self {
            Self::Plain(tcp) => tcp.flush(),
            Self::Tls(tls) => tls.flush(),
        }
    }
}
