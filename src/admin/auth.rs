//! Who may command: one admin key, shown as `Authorization: Bearer <key>`.
//!
//! Purpose: load or make the key, and say of each request or login whether it holds it. Only
//! digests of the key stay in memory, and they are compared in constant time, so neither a memory
//! dump nor a stopwatch gives it away (SCRAM's are pgwire's to compare, which does it by the hash
//! of what was sent). On the consoles the key is every login's password. Called by `app` (loading)
//! and the admin surfaces (each request). It does not decide which routes need the key, and it
//! knows no users: whoever holds the key is the operator.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::console::ScramVerifier;

/// Shortest key that is accepted, in characters.
pub const KEY_CHARS_MIN: usize = 16;
/// Longest key, and longest bearer token that is looked at, in bytes.
pub const KEY_BYTES_MAX: usize = 1024;
/// File of a generated key, within the state directory.
pub const KEY_FILE: &str = "admin.key";

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The text can't be a key.
    #[error(
        "{place}: an admin key is one line of {KEY_CHARS_MIN} to {KEY_BYTES_MAX} visible ASCII \
         characters; make one with 32 random bytes in hexadecimal"
    )]
    NotAKey {
        /// The file or variable.
        place: String,
    },
    /// The variable is not set.
    #[error("the environment variable {name} is not set; set it to the admin key")]
    NoVariable {
        /// Its name.
        name: String,
    },
    /// The file or its directory did not do what was needed.
    #[error(
        "{}: the admin key can't be {what}: {source}; check that the directory exists and belongs \
         to this user", path.display()
    )]
    File {
        /// The path.
        path: PathBuf,
        /// `read` or `written`.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Why a request may not command. Every variant is a 401; none says how near a key was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuthFailure {
    /// No `Authorization` header.
    #[error("the admin key is missing; send it as \"Authorization: Bearer <key>\"")]
    Missing,
    /// A header that is not a bearer token.
    #[error("the Authorization header is not \"Bearer <key>\"; send the admin key in that form")]
    NotBearer,
    /// A bearer token that is not the key.
    #[error("the admin key is wrong; use the key of this proxy (FENCEWIRE_ADMIN_KEY for ctl)")]
    Wrong,
}

/// Where a key came from, for the start-up line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOrigin {
    /// It was there.
    Found,
    /// It was made just now.
    Made,
}

/// The admin key, as its SHA-256 and what the consoles' logins are checked with. Does not print.
#[derive(Clone)]
pub struct AdminKey {
    digest: [u8; 32],
    /// SHA-256 of the digest: what a server that uses `caching_sha2_password` keeps.
    digest_twice: [u8; 32],
    /// SHA-1 of the key's SHA-1: what a server that uses `mysql_native_password` keeps.
    sha1_twice: [u8; 20],
    scram: ScramVerifier,
}

impl std::fmt::Debug for AdminKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AdminKey(***)")
    }
}

impl AdminKey {
    /// Takes a key's text; `place` (a file or variable) is named when it can't be one.
    ///
    /// One line end at the end is not part of the key.
    ///
    /// # Errors
    /// [`KeyError::NotAKey`].
    pub fn from_text(text: &str, place: &str) -> Result<Self, KeyError> {
        let key = text.strip_suffix('\n').unwrap_or(text);
        let key = key.strip_suffix('\r').unwrap_or(key);
        let length = KEY_CHARS_MIN..=KEY_BYTES_MAX;
        if !length.contains(&key.len()) || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(KeyError::NotAKey { place: place.to_owned() });
        }
        let digest = Sha256::digest(key.as_bytes());
        Ok(Self {
            digest_twice: Sha256::digest(digest).into(),
            digest: digest.into(),
            sha1_twice: Sha1::digest(Sha1::digest(key.as_bytes())).into(),
            scram: ScramVerifier::of(key),
        })
    }

    /// Reads a key from an environment variable.
    ///
    /// # Errors
    /// [`KeyError::NoVariable`] or [`KeyError::NotAKey`].
    pub fn from_variable(name: &str) -> Result<Self, KeyError> {
        let text = std::env::var(name).ok().filter(|text| !text.is_empty());
        let text = text.ok_or_else(|| KeyError::NoVariable { name: name.to_owned() })?;
        Self::from_text(&text, name)
    }

    /// Reads a key from a file.
    ///
    /// # Errors
    /// [`KeyError::File`] or [`KeyError::NotAKey`].
    pub fn from_file(path: &Path) -> Result<Self, KeyError> {
        let failed = |source| KeyError::File { path: path.to_owned(), what: "read", source };
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.permissions().mode() & 0o007 != 0 {
            tracing::warn!(
                path = %path.display(),
                "the admin key file is open to every user of this host; set its mode to 0600"
            );
        }
        let mut bytes = Vec::new();
        file.take(KEY_BYTES_MAX as u64 + 3).read_to_end(&mut bytes).map_err(failed)?;
        let place = path.display().to_string();
        let text = String::from_utf8(bytes).map_err(|_| KeyError::NotAKey { place: place.clone() });
        Self::from_text(&text?, &place)
    }

    /// Reads `state_dir/admin.key`, or makes it (and the directory, 0700) when it isn't there.
    ///
    /// The file appears whole, with mode 0600, or not at all; when two processes start at once,
    /// both end up with the same key.
    ///
    /// # Errors
    /// [`KeyError::File`]; [`KeyError::NotAKey`] when the file is there and holds something else.
    pub fn load_or_generate(state_dir: &Path) -> Result<(Self, KeyOrigin), KeyError> {
        let path = state_dir.join(KEY_FILE);
        let failed = |source| KeyError::File { path: path.clone(), what: "written", source };
        if path.try_exists().map_err(failed)? {
            return Ok((Self::from_file(&path)?, KeyOrigin::Found));
        }
        DirBuilder::new().recursive(true).mode(0o700).create(state_dir).map_err(failed)?;
        let fresh = || uuid::Uuid::new_v4().simple().to_string();
        let key = format!("{}{}", fresh(), fresh());
        let draft = state_dir.join(format!("{KEY_FILE}.{}", fresh()));
        let written = write_draft(&draft, &key).and_then(|()| fs::hard_link(&draft, &path));
        let origin = match written {
            Ok(()) => KeyOrigin::Made,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => KeyOrigin::Found,
            Err(error) => {
                // The draft is of no use to anybody; that it could not be removed changes nothing.
                drop(fs::remove_file(&draft));
                return Err(failed(error));
            }
        };
        fs::remove_file(&draft).map_err(failed)?;
        File::open(state_dir).and_then(|directory| directory.sync_all()).map_err(failed)?;
        Ok((Self::from_file(&path)?, origin))
    }

    /// Says whether a request with this `Authorization` header may command.
    ///
    /// # Errors
    /// [`AuthFailure`], which is a 401.
    pub fn authorise(&self, header: Option<&str>) -> Result<(), AuthFailure> {
        let header = header.ok_or(AuthFailure::Missing)?;
        let (scheme, token) = header.trim().split_once(' ').ok_or(AuthFailure::NotBearer)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(AuthFailure::NotBearer);
        }
        match self.is(token.trim_start().as_bytes()) {
            true => Ok(()),
            false => Err(AuthFailure::Wrong),
        }
    }

    /// Whether this text is the key. Compared by digest, in constant time.
    #[must_use]
    pub fn is(&self, text: &[u8]) -> bool {
        let digest: [u8; 32] = Sha256::digest(text).into();
        text.len() <= KEY_BYTES_MAX && bool::from(digest.ct_eq(&self.digest))
    }

    /// Whether this is a `mysql_native_password` reply of somebody who knows the key: SHA-1 of it,
    /// mixed with SHA-1 of the salt and what a server keeps. Compared in constant time.
    #[must_use]
    pub fn is_native_reply(&self, salt: &[u8], reply: &[u8]) -> bool {
        let mix = Sha1::new().chain_update(salt).chain_update(self.sha1_twice).finalize();
        let known = mixed(reply, &mix);
        known.len() == mix.len() && bool::from(Sha1::digest(&known).ct_eq(&self.sha1_twice))
    }

    /// Whether this is a `caching_sha2_password` reply of somebody who knows the key. Compared in
    /// constant time.
    #[must_use]
    pub fn is_sha2_reply(&self, salt: &[u8], reply: &[u8]) -> bool {
        let mix = Sha256::new().chain_update(self.digest_twice).chain_update(salt).finalize();
        let known = mixed(reply, &mix);
        known.len() == mix.len() && bool::from(Sha256::digest(&known).ct_eq(&self.digest_twice))
    }

    /// What SCRAM-SHA-256 checks a login with.
    #[must_use]
    pub(super) const fn scram(&self) -> &ScramVerifier {
        &self.scram
    }

    /// Whether two keys are one: then the second one is no second secret.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        bool::from(self.digest.ct_eq(&other.digest))
    }
}

/// Two texts of one length, exclusive or; nothing where they aren't.
fn mixed(left: &[u8], right: &[u8]) -> Vec<u8> {
    match left.len() == right.len() {
        true => left.iter().zip(right).map(|(left, right)| left ^ right).collect(),
        false => Vec::new(),
    }
}

fn write_draft(path: &Path, key: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{key}")?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0123456789abcdef0123";

    #[test]
    fn only_the_key_opens() {
        let key = AdminKey::from_text(&format!("{KEY}\n"), "test").unwrap();
        let ask = |header: &str| key.authorise(Some(header));
        assert_eq!(ask(&format!("Bearer {KEY}")), Ok(()));
        assert_eq!(ask(&format!("bearer  {KEY} ")), Ok(()));
        assert_eq!(key.authorise(None), Err(AuthFailure::Missing));
        assert_eq!(ask(KEY), Err(AuthFailure::NotBearer));
        assert_eq!(ask(""), Err(AuthFailure::NotBearer));
        assert_eq!(ask("Bearer "), Err(AuthFailure::NotBearer));
        assert_eq!(ask(&format!("Basic {KEY}")), Err(AuthFailure::NotBearer));
        assert_eq!(ask(&format!("Bearer {}", &KEY[..KEY.len() - 1])), Err(AuthFailure::Wrong));
        assert_eq!(ask(&format!("Bearer {KEY}x")), Err(AuthFailure::Wrong));
        assert_eq!(ask(&format!("Bearer {}", "x".repeat(5000))), Err(AuthFailure::Wrong));
        assert!(!format!("{key:?}").contains("0123"));
    }

    #[test]
    fn what_is_no_key_is_refused_without_showing_it() {
        let long = "x".repeat(KEY_BYTES_MAX + 1);
        for text in ["", "short", "0123456789 abcdef0123", "0123456789abcdef\n0123\n", &long] {
            let error = AdminKey::from_text(text, "somewhere").unwrap_err().to_string();
            assert!(error.starts_with("somewhere: an admin key is"), "{error}");
            assert!(text.is_empty() || !error.contains(text), "{error}");
        }
        let error = AdminKey::from_variable("FENCEWIRE_TEST_IS_NEVER_SET").unwrap_err();
        assert!(error.to_string().contains("is not set"));
        let error = AdminKey::from_file(Path::new("/nowhere/at/all")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    }

    #[test]
    fn replies_of_mysql_clients_are_checked_without_the_key() {
        let key = AdminKey::from_text(KEY, "test").unwrap();
        let salt = *b"abcdefghijklmnopqrst";
        let once = Sha1::digest(KEY);
        let mix = Sha1::new().chain_update(salt).chain_update(Sha1::digest(once)).finalize();
        let native = mixed(&once, &mix);
        assert!(key.is_native_reply(&salt, &native));
        let once = Sha256::digest(KEY);
        let mix = Sha256::new()
            .chain_update(Sha256::digest(Sha256::digest(KEY)))
            .chain_update(salt)
            .finalize();
        let sha2 = mixed(&once, &mix);
        assert!(key.is_sha2_reply(&salt, &sha2));
        let other = *b"abcdefghijklmnopqrsT";
        assert!(!key.is_native_reply(&other, &native) && !key.is_sha2_reply(&other, &sha2));
        for reply in [&b""[..], &native[1..], &sha2, &[0; 20]] {
            assert!(!key.is_native_reply(&salt, reply), "{reply:?}");
        }
        for reply in [&b""[..], &sha2[1..], &native, &[0; 32]] {
            assert!(!key.is_sha2_reply(&salt, reply), "{reply:?}");
        }
    }

    #[test]
    fn a_key_is_made_once_and_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("deep/state");
        let (key, origin) = AdminKey::load_or_generate(&state).unwrap();
        assert_eq!(origin, KeyOrigin::Made);
        let path = state.join(KEY_FILE);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.trim_end().len(), 64);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(&state).unwrap().count(), 1, "no draft is left behind");
        assert_eq!(key.authorise(Some(&format!("Bearer {}", text.trim_end()))), Ok(()));
        let (again, origin) = AdminKey::load_or_generate(&state).unwrap();
        assert_eq!(origin, KeyOrigin::Found);
        assert_eq!(again.digest, key.digest);
        fs::write(&path, "").unwrap();
        assert!(AdminKey::load_or_generate(&state).is_err(), "a broken key is not replaced");
    }

    #[test]
    fn two_that_start_at_once_agree() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let starts: Vec<_> = (0..8)
            .map(|_| {
                let state = state.clone();
                std::thread::spawn(move || AdminKey::load_or_generate(&state).unwrap())
            })
            .collect();
        let keys: Vec<_> = starts.into_iter().map(|start| start.join().unwrap()).collect();
        assert!(keys.iter().all(|(key, _)| key.digest == keys[0].0.digest));
        assert_eq!(keys.iter().filter(|(_, origin)| *origin == KeyOrigin::Made).count(), 1);
    }
}
