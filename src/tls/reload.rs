//! A server configuration that can be replaced while connections run.
//!
//! Purpose: certificates are renewed without a restart. A reload either swaps in a complete new
//! configuration or changes nothing; running connections keep what they were accepted with.
//! Called by `app` (on a signal) and by listeners (per accept). It doesn't watch files.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::TlsError;
use super::server::ServerTls;

/// The files of a server configuration and the configuration they last made.
pub struct ReloadingServerTls {
    cert_file: PathBuf,
    key_file: PathBuf,
    client_ca_file: Option<PathBuf>,
    current: ArcSwap<ServerTls>,
}

impl ReloadingServerTls {
    /// Loads the files for the first time.
    ///
    /// # Errors
    /// As [`ServerTls::load`].
    pub fn load(
        cert_file: PathBuf,
        key_file: PathBuf,
        client_ca_file: Option<PathBuf>,
    ) -> Result<Self, TlsError> {
        let first = ServerTls::load(&cert_file, &key_file, client_ca_file.as_deref())?;
        Ok(Self { cert_file, key_file, client_ca_file, current: ArcSwap::from_pointee(first) })
    }

    /// The configuration for the next accept.
    #[must_use]
    pub fn current(&self) -> Arc<ServerTls> {
        self.current.load_full()
    }

    /// Reads the files again. Blocking file reads: a few kilobytes.
    ///
    /// # Errors
    /// As [`ServerTls::load`]; the configuration in use stays.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.replace(self.read()?);
        Ok(())
    }

    /// Reads the files again without using them yet: for whoever has more to read that may fail.
    ///
    /// # Errors
    /// As [`ServerTls::load`].
    pub fn read(&self) -> Result<ServerTls, TlsError> {
        ServerTls::load(&self.cert_file, &self.key_file, self.client_ca_file.as_deref())
    }

    /// Uses what [`ReloadingServerTls::read`] answered from the next accept on.
    pub fn replace(&self, next: ServerTls) {
        self.current.store(Arc::new(next));
    }
}

impl std::fmt::Debug for ReloadingServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReloadingServerTls").field("cert_file", &self.cert_file).finish()
    }
}
