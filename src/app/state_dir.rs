//! The state folder and the embedded store belong to one process.
//!
//! Purpose: two proxies over one embedded store would each enforce only their own commands, which
//! breaks fences without a sign. The folder and the store's file are claimed with locks the system
//! takes back when the process ends, however it ends. (Fleets will share a Postgres or MySQL store
//! instead.) The lock on the store is a file beside it: SQLite's own locks live on the file itself
//! and go with any other descriptor of it that is closed.
//!
//! Called by `app::start`. It doesn't open the store.

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
    /// The store's file can't be claimed.
    #[error("store {path}: its lock {path}.lock can't be made: {source}; make the folder writable")]
    StoreIo {
        /// The store's file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// Another process has the store.
    #[error(
        "store {path} is in use by another fencewire process, whose state_dir is another one: two \
         would each enforce only their own fences; stop that one, or give this one a store of its \
         own"
    )]
    StoreInUse {
        /// The store's file.
        path: PathBuf,
    },
}

/// A claimed folder; it is given back when this is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct StateDir {
    _lock: File,
}

/// A claimed store file; it is given back when this is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct StoreFile {
    _lock: File,
}

fn lock_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)
}

impl StateDir {
    /// Makes the folder (0700) if need be and claims it.
    pub(crate) fn claim(path: &Path) -> Result<Self, StateDirError> {
        let failed = |source| StateDirError::Io { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let lock = lock_file(&path.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(StateDirError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }
}

impl StoreFile {
    /// Claims the store at `path`, which need not exist yet; its folder must. Links are followed,
    /// so that two names of one file are one store.
    ///
    /// # Errors
    /// [`StateDirError::StoreInUse`] when another process has it, [`StateDirError::StoreIo`].
    pub(crate) fn claim(path: &Path) -> Result<Self, StateDirError> {
        let failed = |source| StateDirError::StoreIo { path: path.to_owned(), source };
        let mut name = real_path(path).map_err(failed)?.into_os_string();
        name.push(".lock");
        let lock = lock_file(Path::new(&name)).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                Err(StateDirError::StoreInUse { path: path.to_owned() })
            }
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }
}

/// `path` without links; a file that isn't there yet has the place it will have.
fn real_path(path: &Path) -> std::io::Result<PathBuf> {
    match path.canonicalize() {
        Ok(real) => Ok(real),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let folder = match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() => folder,
                Some(_) | None => Path::new("."),
            };
            Ok(folder.canonicalize()?.join(path.file_name().unwrap_or_default()))
        }
        Err(error) => Err(error),
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

    #[test]
    fn a_store_belongs_to_one_whatever_it_is_called() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fence.db");
        let first = StoreFile::claim(&file).unwrap();
        std::fs::write(&file, b"").unwrap();
        let link = folder.path().join("linked.db");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for name in [&file, &link] {
            let second = StoreFile::claim(name).unwrap_err();
            assert!(second.to_string().contains("in use"), "{second}");
        }
        StoreFile::claim(&folder.path().join("another.db")).unwrap();
        drop(first);
        StoreFile::claim(&link).unwrap();
        let lost = StoreFile::claim(&folder.path().join("nowhere/fence.db")).unwrap_err();
        assert!(lost.to_string().contains("nowhere"), "{lost}");
    }
}
