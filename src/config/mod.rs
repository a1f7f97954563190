//! L5: the configuration, from a file or from the command line.
//!
//! Purpose: what operators write becomes plain checked values, or a report of everything that is
//! wrong with it. `raw` is the file as written, `check` judges it, `checked` is the result,
//! `reload` says what of a new one can be taken up live. Called by `app` and `cli`, by nobody
//! else. It starts nothing, creates nothing, and knows no part's own settings.

mod check;
mod checked;
mod defaults;
mod error;
mod raw;
mod reload;
mod surroundings;
mod url;

use std::path::{Path, PathBuf};

use toml::Spanned;

use check::{Origin, Reader};
pub use checked::{
    Admin, Config, Engine, EngineHost, EngineLock, EngineTls, Fence, InFlight, KeySource, Listen,
    ListenAddress, ListenCertificate, ListenTls, Log, LogFormat, Protocol, Proxy, Route, SolePath,
    Store,
};
pub use defaults::{ADMIN_HTTP, ADMIN_KEY_VARIABLE, ADOPTION_KEY_VARIABLE, STATE_DIR};
pub use error::{ConfigError, Problem, Problems};
pub use reload::{Changes, NeedsRestart};
pub use surroundings::{FILE_BYTES_MAX, Machine, Surroundings};

/// What `serve` can be told without a file.
#[derive(Clone, Default)]
pub struct Flags {
    /// `--listen postgres://host:port`, in order.
    pub listen: Vec<String>,
    /// `--engine [NAME=]URL`, in order; may hold passwords.
    pub engine: Vec<String>,
    /// `--state-dir`
    pub state_dir: Option<PathBuf>,
    /// `--admin host:port`
    pub admin: Option<String>,
}

impl Config {
    /// Reads and checks a file on this machine.
    ///
    /// # Errors
    /// [`ConfigError`] with everything that is wrong.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |reason: String| ConfigError::Unreadable { path: path.to_owned(), reason };
        let bytes = Machine.read(path).map_err(|error| unreadable(error.to_string()))?;
        let text =
            String::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8 text".to_owned()))?;
        Self::from_text(path, &text, &Machine)
    }

    /// Checks a text as the content of `path`.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with everything that is wrong.
    pub fn from_text(
        path: &Path,
        text: &str,
        around: &dyn Surroundings,
    ) -> Result<Self, ConfigError> {
        let invalid = |list: Vec<Problem>| {
            ConfigError::Invalid(Problems { file: Some(path.to_owned()), list })
        };
        let written = raw::parse(text).map_err(|problem| {
            let start = problem.span.map(|span| span.start);
            let line = start.map(|start| raw::line_at(text, start));
            let key = start.map_or_else(|| "syntax".to_owned(), |start| raw::key_at(text, start));
            invalid(vec![Problem { line, key, message: problem.message }])
        })?;
        Reader::new(Origin::File(text), around).check(Some(path), written).map_err(invalid)
    }

    /// Makes a configuration of command line options, with every default.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with everything that is wrong.
    pub fn from_flags(flags: &Flags, around: &dyn Surroundings) -> Result<Self, ConfigError> {
        let invalid = |list| ConfigError::Invalid(Problems { file: None, list });
        let text = |text: &str| Some(Spanned::new(0..0, text.to_owned()));
        let mut written = raw::Raw::default();
        for engine in &flags.engine {
            // A '=' before the scheme separates a name; one behind it belongs to the URL.
            let scheme = engine.find("://").unwrap_or(engine.len());
            let (name, url) = match engine.split_once('=') {
                Some((name, url)) if name.len() < scheme => (text(name), url),
                Some(_) | None => (None, engine.as_str()),
            };
            let table = raw::RawEngine { name, url: text(url), ..Default::default() };
            written.engine.push(Spanned::new(0..0, table));
        }
        for listen in &flags.listen {
            let (protocol, address) = url::listen_flag(listen).map_err(|why| {
                let (key, message) = ("--listen".to_owned(), why.to_owned());
                invalid(vec![Problem { line: None, key, message }])
            })?;
            let (protocol, address) = (text(&protocol), text(&address));
            let table = raw::RawListen { protocol, address, ..Default::default() };
            written.listen.push(Spanned::new(0..0, table));
        }
        written.admin.http = flags.admin.as_deref().and_then(text);
        let state_dir = flags.state_dir.as_ref().map(|path| path.display().to_string());
        written.proxy.state_dir = state_dir.as_deref().and_then(text);
        Reader::new(Origin::Flags, around).check(None, written).map_err(invalid)
    }
}

#[cfg(test)]
mod tests;
