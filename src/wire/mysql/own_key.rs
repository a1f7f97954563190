//! RSA for passwords: the proxy's own key, and encryption for an engine's.
//!
//! Purpose: a client without TLS sends its password encrypted for the server it talks to, a client
//! with TLS sends it in clear. Where only one side of the proxy is encrypted, the proxy stands in
//! between: it decrypts with a key of its own, or encrypts with the engine's. The key is made anew
//! at each start and kept in memory only. Called by `auth.rs` and `session.rs`.
//!
//! What it can't do: protect the exchange from somebody in between who shows a key of his own. No
//! server without TLS can; the client's own settings decide whether it accepts that.

use std::sync::Arc;

use getrandom::SysRng;
use rsa::pkcs8::{DecodePublicKey as _, EncodePublicKey as _, LineEnding};
use rsa::{PrivateKey, PublicKey};
use sha1::Sha1;
use tokio::sync::OnceCell;

use crate::base::limits;
use crate::telemetry::spawn::spawn_blocking_named;

/// Why a password can't be brought to the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RsaError {
    /// No key could be made: the system gave no random numbers.
    #[error("no RSA key could be made")]
    NoKey,
    /// What the engine showed isn't a public key.
    #[error("the engine's public key can't be read")]
    BadKey,
    /// The password is longer than the engine's key can carry.
    #[error("the password is too long for the engine's RSA key; use TLS toward the engine")]
    TooLong,
}

/// A key pair, and its public half as clients get it.
pub(crate) struct KeyPair {
    private: PrivateKey,
    pem: String,
}

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyPair(***)")
    }
}

impl KeyPair {
    fn make() -> Result<Self, RsaError> {
        let private = PrivateKey::new(&mut SysRng, limits::RSA_KEY_BITS);
        let private = private.map_err(|_| RsaError::NoKey)?;
        let pem = private.to_public_key().to_public_key_pem(LineEnding::LF);
        Ok(Self { pem: pem.map_err(|_| RsaError::NoKey)?, private })
    }

    /// The public half, PEM.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// What a client has encrypted for this key; `None` when it hasn't.
    pub(crate) fn decrypt(&self, nonce: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let mut clear = self.private.oaep_decrypt::<Sha1>(sealed).ok()?;
        mix(&mut clear, nonce);
        Some(clear)
    }
}

/// The key of this process, made when it is first wanted.
#[derive(Debug, Default)]
pub struct OwnKey(OnceCell<Arc<KeyPair>>);

impl OwnKey {
    /// The key; the first call makes it, which takes a second or so.
    ///
    /// # Errors
    /// [`RsaError::NoKey`].
    ///
    /// # Cancel safety
    /// Cancel safe: the next call goes on or begins anew.
    pub(crate) async fn pair(&self) -> Result<Arc<KeyPair>, RsaError> {
        let made = self.0.get_or_try_init(|| async {
            let made = spawn_blocking_named("rsa-key", KeyPair::make).await;
            made.map_err(|_| RsaError::NoKey)?.map(Arc::new)
        });
        made.await.map(Arc::clone)
    }
}

impl OwnKey {
    /// Makes the key ahead of its first use; a failure shows there.
    ///
    /// # Cancel safety
    /// Cancel safe: the first use makes the key.
    pub async fn make_ready(self: Arc<Self>) {
        if let Err(error) = self.pair().await {
            tracing::warn!(%error, "MySQL logins that need the proxy's RSA key will fail");
        }
    }
}

/// Encrypts a password for the key that the engine showed. `password` ends with its NUL.
pub(crate) fn seal(engine_pem: &[u8], nonce: &[u8], password: &[u8]) -> Result<Vec<u8>, RsaError> {
    let pem = std::str::from_utf8(engine_pem).map_err(|_| RsaError::BadKey)?;
    let pem = pem.trim_end_matches('\0');
    let key = PublicKey::from_public_key_pem(pem).map_err(|_| RsaError::BadKey)?;
    let mut mixed = password.to_vec();
    mix(&mut mixed, nonce);
    key.oaep_encrypt::<Sha1>(&mixed).map_err(|_| RsaError::TooLong)
}

/// Mixes the nonce in, or out again, as both protocols' ends do.
fn mix(password: &mut [u8], nonce: &[u8]) {
    for (byte, with) in password.iter_mut().zip(nonce.iter().cycle()) {
        *byte ^= with;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_comes_out_as_it_went_in_and_nothing_prints() {
        let pair = KeyPair::make().unwrap();
        let nonce = [7; 20];
        let password = b"correct horse battery staple\0";
        let sealed = seal(pair.pem().as_bytes(), &nonce, password).unwrap();
        assert_eq!(pair.decrypt(&nonce, &sealed).unwrap(), password);
        assert_ne!(pair.decrypt(&[8; 20], &sealed).unwrap(), password);
        assert_eq!(pair.decrypt(&nonce, &sealed[1..]), None);
        assert_eq!(pair.decrypt(&nonce, &[1; 256]), None);
        assert_eq!(seal(pair.pem().as_bytes(), &nonce, &[1; 300]), Err(RsaError::TooLong));
        assert_eq!(seal(b"nonsense", &nonce, password), Err(RsaError::BadKey));
        assert_eq!(format!("{pair:?}"), "KeyPair(***)");
    }
}
