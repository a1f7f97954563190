//! Markers: an independent copy of each fence's last record, one file per namespace.
//!
//! Purpose: a store that was lost or rolled back is noticed. The file is written after each commit
//! (before it when a target is created), atomically: temporary file, fsync, rename, fsync of the
//! directory. `reconcile` says what row and marker together mean.
//!
//! Invariant 4. Limit: where store and marker are lost or restored together, nothing is noticed.
//!
//! Callers: `control` (commands, recovery). Layout: `markers/<engine>/<database>.fence`, names
//! percent-encoded; the first line is `fencewire-marker 1 <sha256>`, the rest the record as stored.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::record::{FORMAT_VERSION, decode_record, encode_record};
use super::{StoreError, StoreFuture};
use crate::base::fault;
use crate::base::ids::{EngineName, Namespace};
use crate::base::limits;
use crate::fence::record::FenceRecord;

const HEADER: &str = "fencewire-marker";
/// Within the state folder.
const FOLDER: &str = "markers";
const SUFFIX: &str = ".fence";

/// What is found under a namespace's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Marker {
    /// No file.
    Missing,
    /// A file that isn't a marker of that namespace, or can't be read.
    Undecodable {
        /// Why.
        reason: String,
    },
    /// The record that was last written.
    Found(Box<FenceRecord>),
}

/// The directory of markers.
#[derive(Debug, Clone)]
pub struct MarkerDir {
    root: PathBuf,
}

impl MarkerDir {
    /// Uses `state_dir/markers`, which is made if it isn't there. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when it can't be made.
    pub fn open(state_dir: &Path) -> Result<Self, StoreError> {
        let root = state_dir.join(FOLDER);
        fs::create_dir_all(&root)
            .and_then(|()| sync_dir(state_dir))
            .map_err(|error| unavailable("make its marker directory", &root, &error))?;
        Ok(Self { root })
    }

    /// Writes the marker of a record, and answers once it is on disk.
    ///
    /// Cancel safety: a dropped future leaves the old marker or the new one.
    pub fn write<'a>(&'a self, record: &'a FenceRecord) -> StoreFuture<'a, Result<(), StoreError>> {
        let (this, record) = (self.clone(), record.clone());
        Box::pin(off_thread(move || this.write_now(&record)))
    }

    /// Reads one marker. Never fails: what can't be read is undecodable.
    ///
    /// Cancel safety: safe.
    pub fn read<'a>(&'a self, namespace: &'a Namespace) -> StoreFuture<'a, Marker> {
        let (this, namespace) = (self.clone(), namespace.clone());
        Box::pin(async move {
            off_thread(move || Ok(this.read_now(&namespace)))
                .await
                .unwrap_or_else(|error| Marker::Undecodable { reason: error.to_string() })
        })
    }

    /// Removes a marker; one that isn't there is removed already.
    ///
    /// Cancel safety: a dropped future leaves the marker or removes it.
    pub fn remove<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> StoreFuture<'a, Result<(), StoreError>> {
        let (this, namespace) = (self.clone(), namespace.clone());
        Box::pin(off_thread(move || this.remove_now(&namespace)))
    }

    /// The namespaces that have a marker file, readable or not.
    ///
    /// [`StoreError::BadName`] for a file whose name is no namespace: that must stop the start.
    ///
    /// Cancel safety: safe.
    pub fn list(&self) -> StoreFuture<'_, Result<Vec<Namespace>, StoreError>> {
        let this = self.clone();
        Box::pin(off_thread(move || this.list_now()))
    }

    fn path(&self, namespace: &Namespace) -> PathBuf {
        self.root.join(place_of(namespace))
    }

    fn write_now(&self, record: &FenceRecord) -> Result<(), StoreError> {
        let path = self.path(&record.namespace);
        let failed = |error: &io::Error| unavailable("write a marker", &path, error);
        let inconsistent =
            |reason| StoreError::Inconsistent { namespace: record.namespace.clone(), reason };
        let payload = encode_record(record).map_err(inconsistent)?;
        let mut bytes = format!("{HEADER} {FORMAT_VERSION} {}\n", checksum(&payload)).into_bytes();
        bytes.extend_from_slice(&payload);
        injected("marker.before_write").map_err(|error| failed(&error))?;
        self.replace(&path, &bytes).map_err(|error| failed(&error))
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let dir = path.parent().unwrap_or(&self.root);
        if !dir.exists() {
            fs::create_dir_all(dir)?;
            sync_dir(&self.root)?;
        }
        // A fixed name: what a crash left behind is overwritten, not collected.
        let temporary = path.with_extension("tmp");
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        drop(file);
        injected("marker.before_rename")?;
        fs::rename(&temporary, path)?;
        injected("marker.after_rename")?;
        sync_dir(dir)
    }

    fn read_now(&self, namespace: &Namespace) -> Marker {
        let path = self.path(namespace);
        let undecodable = |reason: String| Marker::Undecodable { reason };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Marker::Missing,
            Err(error) => return undecodable(format!("{}: {error}", path.display())),
        };
        let mut bytes = Vec::new();
        match file.take(limits::MARKER_BYTES + 1).read_to_end(&mut bytes) {
            Ok(read) if read as u64 > limits::MARKER_BYTES => {
                let most = limits::MARKER_BYTES;
                undecodable(format!("{}: longer than {most} bytes", path.display()))
            }
            Ok(_) => match decode(namespace, &bytes) {
                Ok(record) => Marker::Found(Box::new(record)),
                Err(reason) => undecodable(format!("{}: {reason}", path.display())),
            },
            Err(error) => undecodable(format!("{}: {error}", path.display())),
        }
    }

    fn remove_now(&self, namespace: &Namespace) -> Result<(), StoreError> {
        let path = self.path(namespace);
        let removed = match fs::remove_file(&path) {
            Ok(()) => path.parent().map_or(Ok(()), sync_dir),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        removed.map_err(|error| unavailable("remove a marker", &path, &error))
    }

    fn list_now(&self) -> Result<Vec<Namespace>, StoreError> {
        let failed = |error: io::Error| unavailable("list its markers", &self.root, &error);
        let mut found = Vec::new();
        for engine in fs::read_dir(&self.root).map_err(failed)? {
            let engine = engine.map_err(failed)?;
            for file in fs::read_dir(engine.path()).map_err(failed)? {
                let path = file.map_err(failed)?.path();
                if path.extension().is_some_and(|extension| extension == "tmp") {
                    continue;
                }
                let namespace =
                    namespace_of(&engine.path(), &path).ok_or_else(|| StoreError::BadName {
                        name: path.display().to_string(),
                        reason: "the file name is not that of a marker".to_owned(),
                    })?;
                found.push(namespace);
            }
        }
        found.sort();
        Ok(found)
    }
}

/// Runs blocking file work away from the async threads.
///
/// # Cancel safety
/// Work that was handed over runs to its end.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        let doing = "run its marker thread";
        Err(StoreError::Unavailable { doing, reason: error.to_string() })
    })
}

fn injected(point: &'static str) -> io::Result<()> {
    fault::point(point).map_err(io::Error::other)
}

/// Where a namespace's marker is within the folder of markers.
fn place_of(namespace: &Namespace) -> PathBuf {
    let file = format!("{}{SUFFIX}", encode_name(namespace.database()));
    Path::new(&encode_name(namespace.engine().as_str())).join(file)
}

/// Where a namespace's marker is within the state folder, for people.
#[must_use]
pub fn file_of(namespace: &Namespace) -> PathBuf {
    Path::new(FOLDER).join(place_of(namespace))
}

fn unavailable(doing: &'static str, path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable { doing, reason: format!("{}: {error}", path.display()) }
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn checksum(payload: &[u8]) -> String {
    Sha256::digest(payload).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn decode(namespace: &Namespace, bytes: &[u8]) -> Result<FenceRecord, String> {
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or("it has no first line")?;
    let (first, payload) = bytes.split_at(end);
    let payload = payload.strip_prefix(b"\n").unwrap_or(payload);
    let first = std::str::from_utf8(first).map_err(|error| error.to_string())?;
    let mut words = first.split(' ');
    if words.next() != Some(HEADER) {
        return Err(format!("its first line does not begin with {HEADER}"));
    }
    let version = words.next().and_then(|word| word.parse::<i64>().ok());
    let version = version.ok_or("it names no format version")?;
    if words.next() != Some(checksum(payload).as_str()) || words.next().is_some() {
        return Err("its checksum does not fit".to_owned());
    }
    // The file has no revision column; the payload's own is taken for it.
    let revision = revision_inside(payload)?;
    decode_record(namespace, version, revision, payload).map_err(|bad| bad.reason)
}

fn revision_inside(payload: &[u8]) -> Result<i64, String> {
    let value: serde_json::Value =
        serde_json::from_slice(payload).map_err(|error| error.to_string())?;
    let revision = value.get("revision").and_then(serde_json::Value::as_i64);
    revision.ok_or_else(|| "it has no revision".to_owned())
}

/// Percent-encodes everything but letters, digits, `_` and `-`, so that no name is a path.
fn encode_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Undoes [`encode_name`]; `None` for anything that it wouldn't have written.
fn decode_name(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = tail.get(2..)?;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    let text = String::from_utf8(bytes).ok()?;
    (encode_name(&text) == name).then_some(text)
}

fn namespace_of(engine_dir: &Path, path: &Path) -> Option<Namespace> {
    let engine = decode_name(engine_dir.file_name()?.to_str()?)?;
    let database = decode_name(path.file_name()?.to_str()?.strip_suffix(SUFFIX)?)?;
    Namespace::new(EngineName::new(&engine).ok()?, &database).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::sample;
    use crate::fence::state::FenceState;

    fn dir() -> (tempfile::TempDir, MarkerDir) {
        let state_dir = tempfile::tempdir().unwrap();
        let markers = MarkerDir::open(state_dir.path()).unwrap();
        (state_dir, markers)
    }

    #[tokio::test]
    async fn every_durable_record_reads_back() {
        let (_state_dir, markers) = dir();
        let ns = sample::namespace();
        assert_eq!(markers.read(&ns).await, Marker::Missing);
        for state in FenceState::ALL.into_iter().filter(|state| state.is_durable()) {
            let record = sample::record(state);
            markers.write(&record).await.unwrap();
            assert_eq!(markers.read(&ns).await, Marker::Found(Box::new(record)), "{state}");
        }
        assert_eq!(markers.list().await.unwrap(), std::slice::from_ref(&ns));
        markers.remove(&ns).await.unwrap();
        markers.remove(&ns).await.unwrap();
        assert_eq!(markers.read(&ns).await, Marker::Missing);
    }

    #[tokio::test]
    async fn any_changed_byte_is_noticed() {
        let (_state_dir, markers) = dir();
        let ns = sample::namespace();
        markers.write(&sample::record(FenceState::SourceDraining)).await.unwrap();
        let path = markers.path(&ns);
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            fs::write(&path, &bytes).unwrap();
            let found = markers.read_now(&ns);
            assert!(matches!(found, Marker::Undecodable { .. }), "byte {at}: {found:?}");
        }
        for length in [0, 10, good.len() / 2, good.len() - 1] {
            fs::write(&path, &good[..length]).unwrap();
            assert!(matches!(markers.read_now(&ns), Marker::Undecodable { .. }), "{length} bytes");
        }
    }

    #[tokio::test]
    async fn the_marker_of_another_namespace_is_none_of_ours() {
        let (_state_dir, markers) = dir();
        let other = Namespace::parse("old/other").unwrap();
        markers.write(&sample::record(FenceState::SourceDraining)).await.unwrap();
        fs::copy(markers.path(&sample::namespace()), markers.path(&other)).unwrap();
        assert!(matches!(markers.read(&other).await, Marker::Undecodable { .. }));
    }

    #[tokio::test]
    async fn a_directory_or_a_huge_file_in_its_place_is_undecodable() {
        let (_state_dir, markers) = dir();
        let ns = sample::namespace();
        let path = markers.path(&ns);
        fs::create_dir_all(&path).unwrap();
        assert!(matches!(markers.read(&ns).await, Marker::Undecodable { .. }));
        fs::remove_dir(&path).unwrap();
        File::create(&path).unwrap().set_len(limits::MARKER_BYTES + 1).unwrap();
        assert!(matches!(markers.read(&ns).await, Marker::Undecodable { .. }));
    }

    #[test]
    fn no_name_leaves_the_directory() {
        let (_state_dir, markers) = dir();
        for (engine, database) in [("..", "../../etc/passwd"), (".", "."), ("a.b", "ä/% \n")] {
            let ns = Namespace::new(EngineName::new(engine).unwrap(), database).unwrap();
            let path = markers.path(&ns);
            assert_eq!(path.parent().unwrap().parent(), Some(markers.root.as_path()));
            assert!(!path.to_str().unwrap().contains(".."), "{}", path.display());
            assert_eq!(namespace_of(path.parent().unwrap(), &path), Some(ns));
        }
        let longest = "é".repeat(31);
        assert!(encode_name(&longest).len() + SUFFIX.len() <= 255);
    }

    #[tokio::test]
    async fn a_file_that_is_no_marker_stops_the_listing() {
        let (_state_dir, markers) = dir();
        markers.write(&sample::record(FenceState::Released)).await.unwrap();
        let engine_dir = markers.path(&sample::namespace()).parent().unwrap().to_owned();
        fs::write(engine_dir.join("left.tmp"), b"").unwrap();
        assert_eq!(markers.list().await.unwrap().len(), 1);
        fs::write(engine_dir.join("a%2fb.fence"), b"").unwrap();
        assert!(matches!(markers.list().await, Err(StoreError::BadName { .. })));
    }
}
