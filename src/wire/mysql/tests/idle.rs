//! An idle session's size: see `wire/shared/idle.rs`.

use crate::wire::mysql::relay::Relay;
use crate::wire::mysql::session::serve;
use crate::wire::shared::idle::{fattened, parts, sum};

/// Bytes: 1,696 when it was set (the relay 1,216, the future 184), and a little room. A session
/// that grows by a kilobyte costs 10 MB more for 10,000 of them.
const MOST: usize = 1_776;

#[test]
fn an_idle_session_is_no_larger_than_it_was() {
    let parts = parts(serve, size_of::<Relay>());
    assert!(sum(&parts) <= MOST, "{} bytes, of {MOST}: {parts:?}", sum(&parts));
}

#[test]
fn control_arm_a_kilobyte_more_is_noticed() {
    let parts = parts(|a, b, c, d, e| fattened(serve(a, b, c, d, e)), size_of::<Relay>());
    assert!(sum(&parts) > MOST, "{parts:?}");
}
