//! Fencewire: a wire-protocol proxy that fences live databases and can prove that the old side is
//! finished.
//!
//! Modules are declared in reading order, lowest layer first. `docs/ARCHITECTURE.md` has the map,
//! `docs/INVARIANTS.md` the numbered invariants that module headers refer to, and `tests/tidy.rs`
//! holds the direction of imports.

// L0: no domain, no input or output.
pub mod base;

// L1: pure. No async, no clock, no input or output.
pub mod fence;
pub mod sql;

// L2: memory, disk, engines, observation.
pub mod engine;
pub mod gate;
pub mod store;
pub mod telemetry;
pub mod tls;

// L3: use cases.
pub mod control;

// L4: client-facing and operator-facing surfaces.
pub mod admin;
pub mod wire;

// L5: composition.
pub mod app;
pub mod cli;
pub mod config;

/// The attempts to forge evidence of `docs/EVIDENCE.md`, compiled by `cargo test --doc`.
#[cfg(doctest)]
#[doc = include_str!("../docs/EVIDENCE.md")]
pub mod forgeries {}
