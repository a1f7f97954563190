//! Checks of `[proxy]`, `[log]`, `[store]` and `[admin]`.
//!
//! Purpose: the process's own settings. Called by `check`. It creates no directory and opens no
//! store; it only judges what is written.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::checked::{Admin, KeySource, ListenAddress, Log, LogFormat, Proxy, Store};
use super::super::defaults;
use super::super::raw::{RawAdmin, RawLog, RawProxy, RawStore, Text};
use super::super::url::{self, StoreUrl};
use super::{Origin, Reader};
use crate::telemetry::trace;

impl Reader<'_> {
    pub(super) fn proxy(&mut self, raw: &RawProxy) -> Proxy {
        let instance = match &raw.instance {
            Some(name) => {
                let text = name.get_ref();
                let plain = |c: char| c.is_ascii_graphic();
                if text.is_empty() || text.len() > 63 || !text.chars().all(plain) {
                    let message = "expected 1 to 63 visible ASCII characters without spaces";
                    self.problem(Some(name.span()), "proxy.instance", message);
                }
                text.clone()
            }
            None => self.around.host_name().unwrap_or_else(|| defaults::INSTANCE.to_owned()),
        };
        let state_dir = match &raw.state_dir {
            Some(path) if path.get_ref().is_empty() => {
                self.problem(Some(path.span()), "proxy.state_dir", "expected a directory");
                PathBuf::from(defaults::STATE_DIR)
            }
            Some(path) => PathBuf::from(path.get_ref()),
            None => PathBuf::from(defaults::STATE_DIR),
        };
        let bounds = &defaults::SHUTDOWN_GRACE_MS;
        let grace =
            self.number("proxy.shutdown_grace_ms", &raw.shutdown_grace_ms, bounds, bounds.default);
        let bounds = &defaults::MAX_SESSIONS;
        let sessions = self.number("proxy.max_sessions", &raw.max_sessions, bounds, bounds.default);
        let bounds = &defaults::WORKERS;
        let workers = self.number("proxy.workers", &raw.workers, bounds, bounds.default);
        Proxy {
            instance,
            state_dir,
            shutdown_grace: Duration::from_millis(grace),
            max_sessions: usize::try_from(sessions).unwrap_or(usize::MAX),
            workers: usize::try_from(workers).ok().and_then(NonZeroUsize::new),
        }
    }

    pub(super) fn log(&mut self, raw: &RawLog) -> Log {
        let filter = match &raw.level {
            Some(level) => {
                let checked = trace::check_filter(level.get_ref());
                self.parsed("log.level", level.span(), checked);
                level.get_ref().clone()
            }
            None => defaults::LOG_LEVEL.to_owned(),
        };
        let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
        let format = self.choice("log.format", &raw.format, &formats, LogFormat::Text);
        Log { filter, format }
    }

    pub(super) fn store(&mut self, raw: &RawStore, state_dir: &Path) -> Store {
        let embedded = Store::Sqlite(state_dir.join(defaults::STORE_FILE));
        let Some(value) = &raw.url else { return embedded };
        match self.parsed("store.url", value.span(), url::store(value.get_ref())) {
            Some(StoreUrl::Sqlite(path)) => Store::Sqlite(path),
            Some(StoreUrl::Server) => {
                let what = "a store on a PostgreSQL or MySQL server; use sqlite:///path/fence.db";
                self.not_yet(value.span(), "store.url", what);
                embedded
            }
            None => embedded,
        }
    }

    pub(super) fn admin(&mut self, raw: &RawAdmin) -> Admin {
        for (key, value, what) in [
            ("admin.tls_cert", &raw.tls_cert, "TLS on the admin surface; keep it on loopback"),
            ("admin.tls_key", &raw.tls_key, "TLS on the admin surface; keep it on loopback"),
            ("admin.client_ca", &raw.client_ca, "TLS on the admin surface; keep it on loopback"),
        ] {
            if let Some(value) = value {
                self.not_yet(value.span(), key, what);
            }
        }
        let mut taken = vec![self.admin_address(raw)];
        let postgres = self.console("admin.postgres", &raw.postgres, "127.0.0.1:6481", &mut taken);
        let mysql = self.console("admin.mysql", &raw.mysql, "127.0.0.1:6482", &mut taken);
        Admin {
            http: taken.swap_remove(0),
            postgres,
            mysql,
            key: self.admin_key(raw),
            adoption_key_file: self.secret_file("admin.adoption_key_file", &raw.adoption_key_file),
            open_metrics: raw.open_metrics.as_ref().is_some_and(|flag| *flag.get_ref()),
            show_literals: raw.show_literals.as_ref().is_some_and(|flag| *flag.get_ref()),
        }
    }

    fn admin_address(&mut self, raw: &RawAdmin) -> ListenAddress {
        let default = ListenAddress::Tcp { host: "127.0.0.1".to_owned(), port: 6480 };
        let Some(value) = &raw.http else { return default };
        let read = url::listen_address(value.get_ref());
        match self.parsed("admin.http", value.span(), read) {
            Some(address @ ListenAddress::Tcp { .. }) => address,
            Some(ListenAddress::Unix(_)) => {
                let message = format!("expected host:port, such as {}", defaults::ADMIN_HTTP);
                self.problem(Some(value.span()), "admin.http", message);
                default
            }
            None => default,
        }
    }

    /// A console's address; absent is off.
    fn console(
        &mut self,
        key: &str,
        value: &Text,
        example: &str,
        taken: &mut Vec<ListenAddress>,
    ) -> Option<ListenAddress> {
        let value = value.as_ref()?;
        let address = self.parsed(key, value.span(), url::listen_address(value.get_ref()))?;
        if matches!(address, ListenAddress::Unix(_)) {
            let message = format!("expected host:port, such as {example}");
            self.problem(Some(value.span()), key, message);
            return None;
        }
        if taken.contains(&address) {
            let message = format!("expected an address of its own; {address} is taken");
            self.problem(Some(value.span()), key, message);
        }
        taken.push(address.clone());
        Some(address)
    }

    fn admin_key(&mut self, raw: &RawAdmin) -> KeySource {
        if let (Some(file), Some(_)) = (&raw.key_file, &raw.key_env) {
            let message = "expected one of key_file and key_env, not both";
            self.problem(Some(file.span()), "admin.key_file", message);
            return KeySource::Off;
        }
        if let Some(path) = self.secret_file("admin.key_file", &raw.key_file) {
            return KeySource::File(path);
        }
        if let Some(name) = &raw.key_env {
            if self.around.variable(name.get_ref()).is_none() {
                let message = "expected the name of an environment variable that is set; set it, \
                               or remove key_env to run with the command routes off";
                self.problem(Some(name.span()), "admin.key_env", message);
            }
            return KeySource::Variable(name.get_ref().clone());
        }
        match self.origin {
            Origin::File(_) => KeySource::Off,
            Origin::Flags if self.around.variable(defaults::ADMIN_KEY_VARIABLE).is_some() => {
                KeySource::Variable(defaults::ADMIN_KEY_VARIABLE.to_owned())
            }
            Origin::Flags => KeySource::Generated,
        }
    }
}
