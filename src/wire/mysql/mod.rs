//! The MySQL relay: packets forwarded as the bytes they are, statements under a lease.
//!
//! Reading order: `frame`, `capabilities`, `commands`, `answers`, `prepared`, `refusal`,
//! `conversation`, then the two directions `client` and `engine`, then the parts that do I/O:
//! `startup`, `own_key`, `auth`, `endpoint`, `relay`, `session`.

pub(crate) mod answers;
pub(crate) mod auth;
pub(crate) mod capabilities;
pub(crate) mod client;
pub(crate) mod commands;
pub(crate) mod conversation;
pub mod endpoint;
pub(crate) mod engine;
pub(crate) mod frame;
pub mod own_key;
pub(crate) mod prepared;
pub(crate) mod refusal;
pub(crate) mod relay;
pub mod session;
pub(crate) mod startup;

#[cfg(test)]
mod answers_tests;
