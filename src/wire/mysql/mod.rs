//! The MySQL relay: packets forwarded as the bytes they are, statements under a lease.
//!
//! Reading order: `commands`, `answers`, `prepared`, `refusal`.

pub(crate) mod answers;
pub(crate) mod commands;
pub(crate) mod prepared;
pub(crate) mod refusal;

#[cfg(test)]
mod answers_tests;
