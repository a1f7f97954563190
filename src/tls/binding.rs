//! Channel binding data of type `tls-server-end-point` (RFC 5929, section 4.1).
//!
//! Purpose: the hash of a server certificate that SCRAM-SHA-256-PLUS binds to. Which hash depends
//! on the certificate's own signature algorithm; a wrong guess fails every login, so an algorithm
//! that isn't known here gives no binding data at all. Called by `engine` for control connections
//! and by `wire` where it logs in on a client's behalf. It verifies nothing.

use sha2::{Digest as _, Sha256, Sha384, Sha512};

/// Signature algorithms (contents of the DER object identifier) and the hash each is built on.
/// MD5 and SHA-1 are replaced by SHA-256, as the RFC says.
const KNOWN: &[(&[u8], Hash)] = &[
    // 1.2.840.113549.1.1.4, 5, 11, 12, 13: RSA PKCS #1 with MD5, SHA-1, SHA-256, -384, -512.
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 4], Hash::Sha256),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5], Hash::Sha256),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11], Hash::Sha256),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 12], Hash::Sha384),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 13], Hash::Sha512),
    // 1.2.840.10045.4.1 and .4.3.2 to .4: ECDSA with SHA-1, SHA-256, -384, -512.
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1], Hash::Sha256),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2], Hash::Sha256),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3], Hash::Sha384),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4], Hash::Sha512),
];

#[derive(Clone, Copy)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// The binding data for a server certificate in DER, or `None` when its signature algorithm has
/// no agreed hash (Ed25519, RSA-PSS) or the bytes aren't a certificate.
#[must_use]
pub fn tls_server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = signature_algorithm(certificate)?;
    let (_, hash) = KNOWN.iter().find(|(oid, _)| *oid == algorithm)?;
    Some(match hash {
        Hash::Sha256 => Sha256::digest(certificate).to_vec(),
        Hash::Sha384 => Sha384::digest(certificate).to_vec(),
        Hash::Sha512 => Sha512::digest(certificate).to_vec(),
    })
}

/// `Certificate ::= SEQUENCE { tbs SEQUENCE, algorithm SEQUENCE { OID, .. }, signature }`.
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    const SEQUENCE: u8 = 0x30;
    const OBJECT_IDENTIFIER: u8 = 0x06;
    let (body, _) = element(certificate, SEQUENCE)?;
    let (_, after_tbs) = element(body, SEQUENCE)?;
    let (algorithm, _) = element(after_tbs, SEQUENCE)?;
    element(algorithm, OBJECT_IDENTIFIER).map(|(oid, _)| oid)
}

/// Splits one DER element of the given tag off: its contents, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    if found != tag {
        return None;
    }
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let count = usize::from(first & 0x7f);
            let digits = rest.get(..count)?;
            let length = digits.iter().fold(0, |sum, &d| (sum << 8) | usize::from(d));
            (length, &rest[count..])
        }
        0x80 | 0x84..=0xff => return None,
    };
    Some((rest.get(..length)?, &rest[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(algorithm: &'static rcgen::SignatureAlgorithm) -> Vec<u8> {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let params = rcgen::CertificateParams::new(vec!["db.test".to_owned()]).unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_hash_follows_the_signature_algorithm() {
        let short = certificate(&rcgen::PKCS_ECDSA_P256_SHA256);
        assert_eq!(tls_server_end_point(&short).unwrap(), Sha256::digest(&short).to_vec());
        let long = certificate(&rcgen::PKCS_ECDSA_P384_SHA384);
        assert_eq!(tls_server_end_point(&long).unwrap(), Sha384::digest(&long).to_vec());
    }

    #[test]
    fn no_agreed_hash_gives_no_binding() {
        assert_eq!(tls_server_end_point(&certificate(&rcgen::PKCS_ED25519)), None);
    }

    #[test]
    fn broken_bytes_give_no_binding_and_no_panic() {
        let good = certificate(&rcgen::PKCS_ECDSA_P256_SHA256);
        for cut in 0..80.min(good.len()) {
            assert_eq!(tls_server_end_point(&good[..cut]), None);
        }
        assert_eq!(tls_server_end_point(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
