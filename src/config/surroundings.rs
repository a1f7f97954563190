//! What a configuration may look at outside itself: files, environment, the host's name.
//!
//! Purpose: checking a configuration can be tested without a machine prepared for it. Called by
//! `check`. It only reads, and never more than [`FILE_BYTES_MAX`] of a file.

use std::io::{self, Read as _};
use std::path::Path;

/// Largest configuration, password, key or certificate file that is read, in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// The outside, as a configuration sees it.
pub trait Surroundings {
    /// The file's content.
    ///
    /// # Errors
    /// What the system said, or `InvalidData` when the file is larger than [`FILE_BYTES_MAX`].
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The permission bits of the file, links followed; `None` where the system has none or doesn't
    /// say.
    fn mode(&self, path: &Path) -> Option<u32>;

    /// An environment variable; `None` when unset, empty or not UTF-8.
    fn variable(&self, name: &str) -> Option<String>;

    /// The host's name, for the default instance name.
    fn host_name(&self) -> Option<String>;
}

/// The real machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Machine;

impl Surroundings for Machine {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path)?;
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "larger than 1 MiB"));
        }
        Ok(bytes)
    }

    fn mode(&self, path: &Path) -> Option<u32> {
        let permissions = std::fs::metadata(path).ok()?.permissions();
        Some(std::os::unix::fs::PermissionsExt::mode(&permissions) & 0o777)
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|value| !value.is_empty())
    }

    fn host_name(&self) -> Option<String> {
        let read = |path: &str| self.read(Path::new(path)).ok();
        let bytes = read("/proc/sys/kernel/hostname").or_else(|| read("/etc/hostname"))?;
        let name = String::from_utf8(bytes).ok()?.trim().to_owned();
        Some(name).filter(|name| !name.is_empty())
    }
}
