//! Why a demo could not be played to its end.
//!
//! Purpose: one enum whose texts say what happened and what to do. A broken promise is no error
//! here: that is a check's (`checks.rs`). Used by all of `demo`.

use std::path::PathBuf;

use crate::app::AppError;
use crate::config::ConfigError;

/// What stopped the demo.
#[derive(Debug, thiserror::Error)]
pub(super) enum DemoError {
    /// There are no server programs on this machine.
    #[error(
        "no PostgreSQL server was found: neither in PATH nor in /usr/lib/postgresql/*/bin are \
         there an initdb and a postgres that run. `make demo` installs it; by hand: \
         apt-get install postgresql"
    )]
    NoPostgres,
    /// Root can't run it, and there is nobody to run it as.
    #[error(
        "PostgreSQL refuses to run as root, and this machine has neither a user postgres nor a \
         user nobody to run it as; start the demo as another user"
    )]
    NoUser,
    /// The file system said no.
    #[error("{what} {path}: {source}")]
    File {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// A program doesn't start, or failed.
    #[error("{program} {how}")]
    Program {
        /// Which.
        program: String,
        /// What became of it.
        how: String,
    },
    /// The engine answered a demo's own statement with an error, or not at all.
    #[error("{what} failed: {words}")]
    Engine {
        /// What was asked.
        what: &'static str,
        /// The engine's words.
        words: String,
    },
    /// The demo's own settings were refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The proxy doesn't start.
    #[error("the proxy doesn't start: {0}")]
    Proxy(#[from] AppError),
    /// The system gave no threads.
    #[error("no threads for the demo: {0}")]
    Threads(std::io::Error),
    /// A fence command was answered otherwise than the play needs.
    #[error("{command} was answered {code}: {words}")]
    Fence {
        /// Which.
        command: &'static str,
        /// The answer's code.
        code: &'static str,
        /// The answer's words.
        words: String,
    },
    /// Something that must come didn't come in time.
    #[error("{0} did not happen within {1} s; the machine may be too busy, try again")]
    Late(&'static str, u64),
    /// SIGINT, SIGTERM or SIGHUP.
    #[error("interrupted")]
    Interrupted,
}

impl DemoError {
    pub(super) fn engine(what: &'static str, error: &tokio_postgres::Error) -> Self {
        Self::Engine { what, words: words(error) }
    }
}

/// The engine's SQLSTATE and message, or the client's own words.
pub(super) fn words(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} {}", db.code().code(), db.message()),
        None => error.to_string(),
    }
}
