//! Why a demo could not be played to its end.
//!
//! Purpose: one enum whose texts say what happened and what to do. A broken promise is no error
//! here: that is a check's (`checks.rs`). Used by all of `demo`.

use std::path::PathBuf;

use super::link::LinkError;
use crate::app::AppError;
use crate::config::ConfigError;

/// What stopped the demo.
#[derive(Debug, thiserror::Error)]
pub(super) enum DemoError {
    /// There are no server programs on this machine.
    #[error(
        "no {server} server was found: looked for {programs} that run, in PATH and in {places}. \
         {remedy}"
    )]
    NoServer {
        /// Whose.
        server: &'static str,
        /// Their names.
        programs: &'static str,
        /// Where else.
        places: &'static str,
        /// What brings it.
        remedy: &'static str,
    },
    /// Root can't run it, and there is nobody to run it as.
    #[error(
        "an engine must not run as root, and this machine has neither a user mysql or postgres \
         nor a user nobody to run it as; start the demo as another user"
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
    pub(super) fn engine(what: &'static str, error: &LinkError) -> Self {
        Self::Engine { what, words: error.words.clone() }
    }
}
