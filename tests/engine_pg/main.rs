//! Control connections against real PostgreSQL servers that each test starts for itself.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test's helpers fail the test; clippy sees them outside of test functions"
)]

mod boundary;
mod census;
mod cluster;
mod connect;
mod lock;
