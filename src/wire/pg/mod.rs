//! The PostgreSQL relay: frames forwarded as the bytes they are, statements under a lease.
//!
//! Reading order: `frame`, `owed`, `prepared`, `refusal`, `conversation`, `auto_prepare`,
//! `bearing`, `held`, then the two directions `client` and `answers`, then the parts that do I/O:
//! `startup`, `auth`, `relay`, `cancel`, `session`.

pub(crate) mod answers;
pub(crate) mod auth;
pub(crate) mod auto_prepare;
pub(crate) mod bearing;
pub mod cancel;
pub(crate) mod client;
pub(crate) mod conversation;
pub mod endpoint;
pub(crate) mod frame;
mod function_call;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod fuzzing;
mod guard;
pub(crate) mod held;
pub(crate) mod options;
pub(crate) mod owed;
pub(crate) mod own_setting;
pub(crate) mod prepared;
pub(crate) mod refusal;
pub(crate) mod relay;
pub mod session;
pub mod startup;

#[cfg(test)]
mod tests;
