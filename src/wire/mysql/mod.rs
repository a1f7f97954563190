//! The MySQL relay: packets forwarded as the bytes they are, statements under a lease.
//!
//! Reading order: `frame`, `capabilities`, `commands`, `answers`, `attributes`, `prepared`,
//! `program`, `seats`, `refusal`, `conversation` with its parts `guard`, `ahead`, `forced`,
//! `bearing` and `effects`,
//! then the two directions `client` and `engine`, then the parts that do I/O: `startup`, `own_key`,
//! `auth`, `endpoint`, `login_text`, `relay`, `session`.

pub(crate) mod ahead;
pub(crate) mod answers;
pub(crate) mod attributes;
pub(crate) mod auth;
pub(crate) mod bearing;
pub(crate) mod capabilities;
pub(crate) mod client;
pub(crate) mod commands;
pub(crate) mod conversation;
mod cursors;
pub(crate) mod effects;
pub mod endpoint;
pub(crate) mod engine;
pub(crate) mod forced;
pub(crate) mod frame;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod fuzzing;
pub(crate) mod guard;
pub(crate) mod held;
pub mod login_text;
pub mod own_key;
pub(crate) mod prepared;
pub(crate) mod program;
pub(crate) mod refusal;
pub(crate) mod relay;
pub(crate) mod seats;
pub mod session;
pub(crate) mod standing;
mod startup;

#[cfg(test)]
mod answers_tests;
#[cfg(test)]
mod tests;
