//! L2: in-memory admission. What is open, who is running under which generation, who is waited for.
//!
//! Invariants 1 to 7 of `docs/INVARIANTS.md` live here. `control/` changes gates, `wire/` asks
//! them.

pub mod admission;
pub(crate) mod bell;
pub mod capability;
pub mod core;
pub mod drain;
pub mod hold;
pub mod lease;
pub mod logins;
pub mod programs;
pub mod registry;
#[cfg(all(test, feature = "loom"))]
mod schedules;
mod shared;
pub mod slot;
pub mod word;

#[cfg(test)]
mod tests;
