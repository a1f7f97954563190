//! L3: use cases. The only callers of transition, store and gate together.
//!
//! Purpose: a fence command from request to durable answer ([`fences`]), the drains and their
//! proofs ([`drain`], [`read_drain`]), targets with their capabilities ([`targets`]), the engine
//! lock behind a fence ([`lock_keeper`]), what a start finds ([`recovery`]), which namespace a
//! client means ([`routes`]), and what people are shown ([`status`], `health`).
//!
//! Invariants: 3, 5, 7, 8, 10, 11, 13, 15 (`docs/INVARIANTS.md`). Nothing here is advanced,
//! released or taken over by a timer: deadlines decide when to answer, never what is true.
//!
//! Callers: `admin` (commands, views), `wire` (routes), `app` (building, recovery). It speaks to
//! engines through [`port`] alone, so that every path can be run against a scripted engine.

mod aborted;
pub mod answer;
mod doubles;
pub mod drain;
pub mod fences;
mod health;
pub mod instant;
mod line;
pub mod lock_keeper;
mod lock_waiters;
mod logins;
pub mod my;
mod notes;
pub mod orphans;
pub mod pg;
mod points;
pub mod port;
pub mod read_drain;
pub mod recovery;
pub mod routes;
mod runs;
pub mod settings;
pub mod status;
pub mod targets;
mod truth;

#[cfg(test)]
pub(crate) mod tests;

pub use answer::{Answer, AnswerCode, DrainReport, LockReport, Sight};
pub use fences::{Control, Parts};
pub use routes::{RouteError, RouteTable, Routes};
pub use settings::{NamespaceSettings, Settings};
