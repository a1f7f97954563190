//! (see docs/ARCHITECTURE.md)

pub mod spawn;
