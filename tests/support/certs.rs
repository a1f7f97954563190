//! A throw-away certificate authority and one server certificate (localhost, 127.0.0.1).

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};

/// PEM texts of one authority and one server certificate signed by it.
pub struct Certs {
    pub ca: String,
    pub cert: String,
    pub key: String,
}

/// Where [`Certs::write`] put the files.
#[derive(Clone)]
pub struct CertFiles {
    pub ca: PathBuf,
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Certs {
    /// The certificates of this test program, made at the first call.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Certs> = OnceLock::new();
        SHARED.get_or_init(Self::make)
    }

    fn make() -> Self {
        let ca_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "fencewire tests");
        let ca = params.self_signed(&ca_key).unwrap();
        let issuer = Issuer::new(params, ca_key);

        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, "localhost");
        params.insert_extended_key_usage(ExtendedKeyUsagePurpose::ServerAuth);
        // Some clients can't do without a certificate of their own; they show this one.
        params.insert_extended_key_usage(ExtendedKeyUsagePurpose::ClientAuth);
        let cert = params.signed_by(&key, &issuer).unwrap();
        Self { ca: ca.pem(), cert: cert.pem(), key: key.serialize_pem() }
    }

    /// Writes `ca.crt`, `server.crt` and `server.key` (mode 0600) into `dir`.
    pub fn write(&self, dir: &Path) -> CertFiles {
        let at = |name: &str, text: &str, mode: u32| {
            let file = dir.join(name);
            let mut options = std::fs::OpenOptions::new();
            let options = options.write(true).create(true).truncate(true).mode(mode);
            let mut open = options.open(&file).expect("cannot write a certificate");
            std::io::Write::write_all(&mut open, text.as_bytes()).unwrap();
            file
        };
        CertFiles {
            ca: at("ca.crt", &self.ca, 0o644),
            cert: at("server.crt", &self.cert, 0o644),
            key: at("server.key", &self.key, 0o600),
        }
    }
}

/// The authority's certificate as a file that lives as long as the test program.
pub fn ca() -> &'static Path {
    static FILES: OnceLock<(tempfile::TempDir, CertFiles)> = OnceLock::new();
    let (_, files) = FILES.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let files = Certs::shared().write(dir.path());
        (dir, files)
    });
    &files.ca
}
