//! What an idle session takes, in bytes, for the tests that hold it (goal: 4 KiB of resident memory
//! each, plaintext; docs/PERFORMANCE.md has what was measured).
//!
//! Purpose: a session's task is as large as the largest moment of its future's life, and a struct
//! as all of its fields, so a kilobyte is easily added by somebody who doesn't see it: by a local
//! variable that lives across an await. Sizes are the compiler's, the same at every run. What
//! these own on the heap isn't counted: `make bench` measures the whole. Called by
//! `wire/pg/tests/idle.rs` and `wire/mysql/tests/idle.rs`; in no build but the tests'.

use std::sync::Arc;

use crate::gate::admission::Seat;
use crate::gate::slot::{Card, Slot};
use crate::telemetry::worker::WorkerCounters;
use crate::wire::shared::accepted::Accepted;

/// The counts that an `Arc` puts in front of what it holds.
const COUNTS: usize = 16;

/// The future that a session's task is, by the function that makes it; its relay; and what every
/// session has at its gate. Each with its name.
pub(crate) fn parts<S, T, F: Future>(
    _serve: impl FnOnce(Accepted, String, Arc<S>, Arc<T>, Arc<WorkerCounters>) -> F,
    relay: usize,
) -> [(&'static str, usize); 5] {
    [
        ("future", size_of::<F>()),
        ("relay", relay),
        ("slot", size_of::<Slot>() + COUNTS),
        ("card", size_of::<Card>() + COUNTS),
        ("seat", size_of::<Seat>() + COUNTS),
    ]
}

/// All of it.
pub(crate) fn sum(parts: &[(&str, usize)]) -> usize {
    parts.iter().map(|(_, bytes)| bytes).sum()
}

/// Control arm: a session to which somebody has added a kilobyte that lives across an await.
pub(crate) async fn fattened(session: impl Future<Output = ()>) {
    let ballast = [0_u8; 1024];
    session.await;
    std::hint::black_box(&ballast);
}
