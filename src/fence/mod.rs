//! L1: the fence as a state machine. Pure: no async, no clock, no input or output.
//!
//! Purpose: what a fence is ([`record`], [`state`]), what may be asked of it ([`command`]), what
//! the answer is ([`transition`]), how the answer is remembered ([`receipt`]), what proves a drain
//! ([`proof`]), and what everything is called ([`code`]).
//!
//! Invariants: 4, 8, 10, 14 (`docs/INVARIANTS.md`).
//!
//! Callers: `store` keeps the records, `gate` admits by them, `control` runs commands, `admin`
//! shows them. Nothing here knows where records are kept or how a client is answered.

pub mod code;
pub mod command;
pub mod proof;
pub mod receipt;
pub mod record;
#[cfg(test)]
pub(crate) mod sample;
pub mod state;
pub mod transition;
pub mod verdict;

pub use code::{ControlCode, Denial, Detail};
pub use command::{Actor, Arguments, Command, CommandKind};
pub use receipt::{Fingerprint, Outcome, Receipt};
pub use record::{
    Boundary, BoundaryKind, DrainPolicy, Evidence, FenceRecord, Identity, InFlight, OnDeadline,
};
pub use state::{FenceState, OperationClass, Role, admits};
pub use transition::{
    ControlRefusal, ControlView, Decision, DrainEnd, Facts, complete_drain, decide,
};
