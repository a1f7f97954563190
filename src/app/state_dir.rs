//! The state folder belongs to one process.
//!
//! Purpose: two proxies over one embedded store would each enforce only their own commands, which
//! breaks fences without a sign. The folder is claimed with a lock the system takes back when the
//! process ends, however it ends. (Fleets share a Postgres or MySQL store instead.)

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Why the folder can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// The file system said no.
    #[error("state folder {path}: {source}; make it writable for this user, or set state_dir")]
    Io {
        /// The folder.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// Another process has it.
    #[error(
        "state folder {path} is in use by another fencewire process; stop that one, or give this \
         one a state_dir of its own"
    )]
    InUse {
        /// The folder.
        path: PathBuf,
    },
}

/// A claimed folder; it is given back when this is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct StateDir {
    _lock: File,
}

impl StateDir {
    /// Makes the folder (0700) if need be and claims it.
    pub(crate) fn claim(path: &Path) -> Result<Self, StateDirError> {
        let failed = |source| StateDirError::Io { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path.join("lock"))
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(StateDirError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_belongs_to_one_until_it_is_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let first = StateDir::claim(folder.path()).unwrap();
        let second = StateDir::claim(folder.path()).unwrap_err();
        assert!(second.to_string().contains("in use"), "{second}");
        drop(first);
        StateDir::claim(folder.path()).unwrap();
    }
}
