//! The state folder and the embedded store belong to one process.
//!
//! Purpose: two proxies over one embedded store would each enforce only their own commands, which
//! breaks fences without a sign. The folder and the store's file are claimed with locks the system
//! takes back when the process ends, however it ends. (Fleets will share a Postgres or MySQL store
//! instead.) The lock on the store is a file beside it: SQLite's own locks live on the file itself
//! and go with any other descriptor of it that is closed.
//!
//! The folder's locked file also remembers the generation that the last process began at
//! (invariant 5). Called by `app::start`. It doesn't open the store.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::base::ids::Generation;
use crate::base::limits::GENERATIONS_PER_START;

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

/// Longest content of the locked file that is looked at.
const KEPT_BYTES_MAX: u64 = 64;

/// A claimed folder; it is given back when this is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct StateDir {
    path: PathBuf,
    lock: File,
}

/// A claimed store file; it is given back when this is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct StoreFile {
    _lock: File,
}

fn open_or_make(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(path)
}

impl StateDir {
    /// Makes the folder (0700) if need be and claims it.
    pub(crate) fn claim(path: &Path) -> Result<Self, StateDirError> {
        let failed = |source| StateDirError::Io { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let lock = open_or_make(&path.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), lock }),
            Err(TryLockError::WouldBlock) => Err(StateDirError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// The generation that this process begins at: `by_clock`, or so far above the beginning of the
    /// process before it that this one can't have come there. Written down before it is answered.
    ///
    /// # Errors
    /// [`StateDirError::Io`]: it couldn't be read or written down.
    pub(crate) fn begin(&mut self, by_clock: Generation) -> Result<Generation, StateDirError> {
        let failed = |source| StateDirError::Io { path: self.path.clone(), source };
        let mut kept = Vec::new();
        self.lock.rewind().map_err(failed)?;
        (&self.lock).take(KEPT_BYTES_MAX).read_to_end(&mut kept).map_err(failed)?;
        // Nothing in it, or nothing that this build wrote: then the clock alone has to do.
        let last = std::str::from_utf8(&kept).ok().and_then(|text| text.trim().parse::<u64>().ok());
        let above = last.map_or(0, |last| last.saturating_add(GENERATIONS_PER_START));
        let first = Generation(by_clock.0.max(above));
        self.lock.rewind().map_err(failed)?;
        // As wide each time, so that nothing of an earlier number is left behind it.
        writeln!(self.lock, "{:020}", first.0).map_err(failed)?;
        self.lock.sync_data().map_err(failed)?;
        Ok(first)
    }
}

impl StoreFile {
    /// Claims the store at `path`. It is made, empty, if it isn't there yet; its folder must be.
    /// Links are followed, so that two names of one file are one store. Hard links and bind mounts
    /// can't be seen through.
    ///
    /// # Errors
    /// [`StateDirError::StoreInUse`] when another process has it, [`StateDirError::StoreIo`].
    pub(crate) fn claim(path: &Path) -> Result<Self, StateDirError> {
        let failed = |source| StateDirError::StoreIo { path: path.to_owned(), source };
        let mut name = real_path(path).map_err(failed)?.into_os_string();
        name.push(".lock");
        let lock = open_or_make(Path::new(&name)).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                Err(StateDirError::StoreInUse { path: path.to_owned() })
            }
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }
}

/// `path` without links. A file that isn't there is made first: where a link leads can't be asked
/// before its target is there, and the store would make that.
fn real_path(path: &Path) -> std::io::Result<PathBuf> {
    match path.canonicalize() {
        Ok(real) => Ok(real),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            open_or_make(path)?;
            path.canonicalize()
        }
        Err(error) => Err(error),
    }
}

/// Claims what was given back just now. A test beside this one that starts a program has the lock
/// in its child as well, between its fork and its exec.
#[cfg(test)]
pub(super) fn given_back<T>(claim: impl Fn() -> Result<T, StateDirError>) -> T {
    let begun = std::time::Instant::now();
    loop {
        let in_use = match claim() {
            Ok(claimed) => return claimed,
            Err(error @ (StateDirError::InUse { .. } | StateDirError::StoreInUse { .. })) => error,
            Err(error) => panic!("{error}"),
        };
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{in_use}");
        std::thread::yield_now();
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
        given_back(|| StateDir::claim(folder.path()));
    }

    #[test]
    fn invariant_05_a_folder_remembers_where_the_last_process_began() {
        let folder = tempfile::tempdir().unwrap();
        let begin = |by_clock| {
            let mut claimed = given_back(|| StateDir::claim(folder.path()));
            claimed.begin(Generation(by_clock)).unwrap().0
        };
        let by_clock = 1_750_000_000 << 16;
        assert_eq!(begin(by_clock), by_clock);
        assert_eq!(begin(by_clock), by_clock + GENERATIONS_PER_START, "in the same second");
        assert_eq!(begin(7), by_clock + 2 * GENERATIONS_PER_START, "the clock went back");
        let later = by_clock << 1;
        assert_eq!(begin(later), later);
        std::fs::write(folder.path().join("lock"), b"").unwrap();
        assert_eq!(begin(by_clock), by_clock, "as an earlier build has left it");
    }

    #[test]
    fn a_store_behind_a_link_belongs_to_one_before_it_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("fence.db"), folder.path().join("linked.db"));
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let first = StoreFile::claim(&link).unwrap();
        // The store follows the link, and makes its target if need be.
        open_or_make(&file).unwrap();
        for name in [&link, &file] {
            let second = StoreFile::claim(name);
            assert!(second.is_err(), "VIOLATION: two processes have {}", name.display());
        }
        drop(first);
        given_back(|| StoreFile::claim(&file));
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
        given_back(|| StoreFile::claim(&link));
        let lost = StoreFile::claim(&folder.path().join("nowhere/fence.db")).unwrap_err();
        assert!(lost.to_string().contains("nowhere"), "{lost}");
    }
}
