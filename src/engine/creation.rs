//! Making the database of a new target.
//!
//! Purpose: what may be said about a new database, and what an attempt at making one can come to.
//! Whether it was made is known in all cases but one, and that one says so.
//!
//! Made by `engine::postgres` and `engine::mysql`; read by `control/targets.rs`, which keeps the
//! name closed while it isn't known.

use super::error::EngineError;
use crate::base::ids::EngineName;

/// What a new database shall be like; each `None` is the engine's default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewDatabase {
    /// The role that shall own it; PostgreSQL only.
    pub owner: Option<String>,
    /// Character encoding or set.
    pub encoding: Option<String>,
    /// Locale or collation.
    pub locale: Option<String>,
    /// The template; PostgreSQL only, and then an empty one.
    pub template: Option<String>,
}

/// Why there is no new database, or none that is known of.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CreateError {
    /// There is one of that name already. Nothing was made.
    #[error("engine {engine} has a database of that name already: {words}")]
    Exists {
        /// The engine.
        engine: EngineName,
        /// Its words.
        words: String,
    },
    /// The engine said no, or can't do what was asked. Nothing was made.
    #[error("engine {engine} did not create it: {words}")]
    Refused {
        /// The engine.
        engine: EngineName,
        /// Its words, or ours about the options.
        words: String,
    },
    /// The engine couldn't be asked. Nothing was made.
    #[error(transparent)]
    NotAsked(EngineError),
    /// It was asked and hasn't answered: it may be there or come to be.
    #[error("{0}; it is not known whether the database was made")]
    Unknown(EngineError),
}
