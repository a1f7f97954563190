//! What can go wrong between us and an engine.
//!
//! Purpose: few families, each with the engine's name and the engine's own words, so that an
//! operator knows what to do and a caller knows whether to try again. Made by `engine::postgres`;
//! read by `control`.

use std::time::Duration;

use super::census::Blocker;
use super::identity::LiveIdentity;
use crate::base::ids::EngineName;

/// A question to an engine that got no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    /// No connection, or it broke. Trying again may help; nothing is proven meanwhile.
    #[error("engine {engine} is unreachable ({what}): {words}; check that it runs and its address")]
    Unreachable {
        /// The engine.
        engine: EngineName,
        /// What we were doing.
        what: &'static str,
        /// The engine's or the system's words.
        words: String,
    },
    /// The engine said no to our role.
    #[error("engine {engine} denied {what}: {words}; {hint}")]
    Denied {
        /// The engine.
        engine: EngineName,
        /// What we were doing.
        what: &'static str,
        /// The engine's words.
        words: String,
        /// What to grant or correct.
        hint: String,
    },
    /// The engine didn't answer in time. The statement's effect is unknown.
    #[error("engine {engine} did not finish {what} within {after:?}: it is overloaded or blocked")]
    Timeout {
        /// The engine.
        engine: EngineName,
        /// What we were doing.
        what: &'static str,
        /// The bound that passed.
        after: Duration,
    },
    /// An answer we didn't expect; the words say which.
    #[error("engine {engine} answered {what} unexpectedly: {words}")]
    Unexpected {
        /// The engine.
        engine: EngineName,
        /// What we were doing.
        what: &'static str,
        /// The engine's words, or ours about its answer.
        words: String,
    },
    /// It isn't the engine it was: restarted, failed over, replaced or demoted. The drain begins
    /// anew with a new cutoff.
    #[error(
        "engine {engine} is not the one the drain began with ({words}); \
         what was found before is void, begin the drain anew"
    )]
    Changed {
        /// The engine.
        engine: EngineName,
        /// Which part of the identity differs.
        words: String,
        /// The identity at the cutoff.
        was: Box<LiveIdentity>,
        /// The identity now.
        now: Box<LiveIdentity>,
    },
}

impl EngineError {
    /// A stable word for the family: `unreachable`, `denied`, `timeout`, `unexpected`, `changed`.
    #[must_use]
    pub fn family(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::Denied { .. } => "denied",
            Self::Timeout { .. } => "timeout",
            Self::Unexpected { .. } => "unexpected",
            Self::Changed { .. } => "changed",
        }
    }
}

/// What to do about so many who held locks.
fn way_out(blockers: usize) -> String {
    match blockers {
        0 => "nobody was found holding locks just after; wait".to_owned(),
        found => format!("{found} found holding locks; end them or wait"),
    }
}

/// Why the engine lock wasn't taken, or is gone.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LockError {
    /// Others hold locks on the tables: writers that have not ended, prepared ones included.
    #[error(
        "the engine lock on {namespace} was not granted in time; {}, then try again",
        way_out(blockers.len())
    )]
    Busy {
        /// The namespace, as text.
        namespace: String,
        /// Who held conflicting locks just after the attempt; empty if they ended meanwhile.
        blockers: Vec<Blocker>,
    },
    /// The control role may not lock a table.
    #[error("the control role may not lock {table} and {others} more; {hint}")]
    NotAllowed {
        /// The first such table, quoted, or the engine's words when none could be named.
        table: String,
        /// How many more there are.
        others: usize,
        /// What to grant.
        hint: String,
    },
    /// The engine's lock table has no room.
    #[error(
        "engine lock on {tables} tables: {words}; raise max_locks_per_transaction, \
         or set engine_lock to off"
    )]
    TooMany {
        /// How many tables were to be locked.
        tables: usize,
        /// The engine's words.
        words: String,
    },
    /// Tables kept appearing or changing while they were being locked.
    #[error("the tables of {namespace} kept changing for {rounds} rounds; stop DDL and try again")]
    Unstable {
        /// The namespace, as text.
        namespace: String,
        /// How many rounds were tried.
        rounds: u32,
    },
    /// The connection that held the lock is gone, and the lock with it.
    #[error("the engine lock on {namespace} is lost: {words}; take it again, census again")]
    Lost {
        /// The namespace, as text.
        namespace: String,
        /// What ended it.
        words: String,
    },
    /// The engine couldn't be asked.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_was_not_granted_names_a_way_out_that_is_there() {
        let namespace = "old/app".to_owned();
        let nobody = LockError::Busy { namespace, blockers: Vec::new() }.to_string();
        assert!(
            nobody.ends_with("nobody was found holding locks just after; wait, then try again")
        );
        assert_eq!(way_out(2), "2 found holding locks; end them or wait");
    }
}
