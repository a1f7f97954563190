//! Handshakes between our two sides over loopback, each mode with the certificate it must refuse.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// A directory with an authority, a server certificate for `db.test` and a foreign authority.
struct Files {
    dir: TempDir,
}

impl Files {
    fn new() -> Self {
        let files = Self { dir: tempfile::tempdir().unwrap() };
        let ca = authority();
        files.write("ca.pem", &ca.pem());
        files.write("foreign.pem", &authority().pem());
        files.issue(&ca, "server", "db.test");
        files.issue(&ca, "client", "client.test");
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn issue(&self, ca: &CertifiedIssuer<'_, KeyPair>, stem: &str, host: &str) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, ca).unwrap();
        self.write(&format!("{stem}.crt"), &certificate.pem());
        self.write(&format!("{stem}.key"), &key.serialize_pem());
    }

    fn server(&self, client_ca: Option<&str>) -> ServerTls {
        let ca = client_ca.map(|name| self.path(name));
        ServerTls::load(&self.path("server.crt"), &self.path("server.key"), ca.as_deref()).unwrap()
    }
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn settings(mode: TlsMode, ca_file: Option<PathBuf>) -> ClientConnector {
    ClientTls { mode, ca_file }.connector().unwrap().unwrap()
}

/// One handshake; the client's view. The server side is finished first.
async fn shake(
    server: ServerTls,
    client: &ClientConnector,
    host: &str,
) -> Result<Stream, TlsError> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let serve = async {
        let (tcp, _) = listener.accept().await.unwrap();
        let mut stream = server.accept_direct(tcp).await?;
        assert!(stream.is_tls());
        let mut byte = [0];
        stream.read_exact(&mut byte).await.ok();
        stream.write_all(&byte).await.ok();
        stream.flush().await.ok();
        Ok::<_, TlsError>(())
    };
    let call = async {
        let tcp = TcpStream::connect(address).await.unwrap();
        let mut stream = client.connect(tcp, host).await?;
        let refused = |source| TlsError::Handshake { peer: "server".to_owned(), source };
        stream.write_all(b"x").await.map_err(refused)?;
        stream.flush().await.map_err(refused)?;
        let mut byte = [0];
        stream.read_exact(&mut byte).await.map_err(refused)?;
        assert_eq!(&byte, b"x");
        Ok(stream)
    };
    let (_served, called) = tokio::join!(serve, call);
    called
}

#[tokio::test]
async fn require_without_ca_encrypts_and_checks_nothing() {
    let files = Files::new();
    let stream = shake(files.server(None), &settings(TlsMode::Require, None), "wrong.test").await;
    let stream = stream.unwrap();
    assert!(stream.is_tls());
    assert!(binding::tls_server_end_point(stream.peer_certificate().unwrap()).is_some());
}

#[tokio::test]
async fn a_ca_file_makes_require_check_the_chain() {
    let files = Files::new();
    let good = settings(TlsMode::Require, Some(files.path("ca.pem")));
    shake(files.server(None), &good, "wrong.test").await.unwrap();
    let bad = settings(TlsMode::Require, Some(files.path("foreign.pem")));
    shake(files.server(None), &bad, "db.test").await.unwrap_err();
}

#[tokio::test]
async fn verify_ca_checks_the_chain_and_not_the_name() {
    let files = Files::new();
    let good = settings(TlsMode::VerifyCa, Some(files.path("ca.pem")));
    shake(files.server(None), &good, "wrong.test").await.unwrap();
    let bad = settings(TlsMode::VerifyCa, Some(files.path("foreign.pem")));
    shake(files.server(None), &bad, "db.test").await.unwrap_err();
    let without = ClientTls { mode: TlsMode::VerifyCa, ca_file: None }.connector();
    assert!(matches!(without, Err(TlsError::Config(_))));
}

#[tokio::test]
async fn verify_full_checks_chain_and_name() {
    let files = Files::new();
    let full = settings(TlsMode::VerifyFull, Some(files.path("ca.pem")));
    shake(files.server(None), &full, "db.test").await.unwrap();
    let wrong = shake(files.server(None), &full, "wrong.test").await.unwrap_err();
    assert!(wrong.to_string().contains("wrong.test"), "{wrong}");
    let public = settings(TlsMode::VerifyFull, None);
    shake(files.server(None), &public, "db.test").await.unwrap_err();
}

#[tokio::test]
async fn a_certificate_listed_in_the_ca_file_is_its_own_chain() {
    let files = Files::new();
    let listed = settings(TlsMode::VerifyFull, Some(files.path("server.crt")));
    shake(files.server(None), &listed, "db.test").await.unwrap();
    shake(files.server(None), &listed, "wrong.test").await.unwrap_err();
}

#[tokio::test]
async fn a_client_ca_demands_a_client_certificate() {
    let files = Files::new();
    let client = settings(TlsMode::Require, None);
    shake(files.server(Some("ca.pem")), &client, "db.test").await.unwrap_err();
    shake(files.server(None), &client, "db.test").await.unwrap();
}

#[tokio::test]
async fn direct_tls_needs_the_protocol_name() {
    let files = Files::new();
    let mut config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(read_roots("engine CA", &files.path("ca.pem")).unwrap())
        .with_no_client_auth();
    for (alpn, direct, good) in
        [(None, false, true), (None, true, false), (Some("http/1.1"), false, false)]
    {
        config.alpn_protocols = alpn.iter().map(|name: &&str| name.as_bytes().to_vec()).collect();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config.clone()));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = files.server(None);
        let serve = async {
            let (tcp, _) = listener.accept().await.unwrap();
            if direct { server.accept_direct(tcp).await } else { server.accept(tcp).await }
        };
        let call = async {
            let tcp = TcpStream::connect(address).await.unwrap();
            connector.connect("db.test".try_into().unwrap(), tcp).await
        };
        let (served, _called) = tokio::join!(serve, call);
        assert_eq!(served.is_ok(), good, "{alpn:?} direct {direct}");
    }
}

/// PostgreSQL's own server resumes no TLS session either. Control arm: before MySQL's clients, some
/// of which do, it is resumed.
#[tokio::test]
async fn a_session_is_resumed_on_mysqls_side_only() {
    use rustls::HandshakeKind::{Full, Resumed};
    let files = Files::new();
    let versions: [&[_]; 2] = [&[&rustls::version::TLS12], &[&rustls::version::TLS13]];
    for (nameless, versions) in versions.iter().flat_map(|one| [(false, one), (true, one)]) {
        let config = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(read_roots("engine CA", &files.path("ca.pem")).unwrap())
            .with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let server = files.server(None);
        for expected in [Full, if nameless { Resumed } else { Full }] {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let address = listener.local_addr().unwrap();
            let serve = async {
                let (tcp, _) = listener.accept().await.unwrap();
                let shaken = if nameless {
                    server.accept_nameless(tcp).await
                } else {
                    server.accept(tcp).await
                };
                shaken.unwrap().write_all(b"x").await.unwrap();
            };
            let call = async {
                let tcp = TcpStream::connect(address).await.unwrap();
                let mut tls = connector.connect("db.test".try_into().unwrap(), tcp).await.unwrap();
                // Tickets are in front of it.
                assert_eq!(tls.read_u8().await.unwrap(), b'x');
                tls.get_ref().1.handshake_kind()
            };
            let ((), kind) = tokio::join!(serve, call);
            assert_eq!(kind, Some(expected), "MySQL: {nameless}");
        }
    }
}

#[tokio::test]
async fn a_failed_reload_keeps_the_old_certificate_and_a_good_one_replaces_it() {
    let files = Files::new();
    let reloading =
        ReloadingServerTls::load(files.path("server.crt"), files.path("server.key"), None).unwrap();
    let any = settings(TlsMode::Require, None);
    let shown = async |tls: &ReloadingServerTls| {
        let stream = shake((*tls.current()).clone(), &any, "db.test").await.unwrap();
        stream.peer_certificate().unwrap().to_vec()
    };
    let first = shown(&reloading).await;
    files.write("server.crt", "nothing");
    assert!(matches!(reloading.reload(), Err(TlsError::File { .. })));
    assert_eq!(shown(&reloading).await, first);
    files.issue(&authority(), "server", "db.test");
    reloading.reload().unwrap();
    assert_ne!(shown(&reloading).await, first);
}

#[test]
fn key_and_certificate_must_belong_together_and_files_are_named() {
    let files = Files::new();
    let mixed = ServerTls::load(&files.path("server.crt"), &files.path("client.key"), None);
    assert!(matches!(mixed, Err(TlsError::Config(_))));
    let absent = ServerTls::load(Path::new("absent.crt"), &files.path("client.key"), None);
    assert!(absent.unwrap_err().to_string().contains("absent.crt"));
}
