//! Time as a thing that is passed in.
//!
//! Purpose: nobody reads a clock directly; whoever needs time has a [`Clock`]. Tests drive theirs
//! by hand.
//!
//! Callers: `control`, `store`, `gate`'s waiting, `app` (which makes the system clock). Pure layers
//! get milliseconds as arguments instead.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Wall time in milliseconds since the Unix epoch. May jump; for records, not for measuring.
    fn now_ms(&self) -> u64;

    /// Time since some fixed instant of this process. Never goes back; for measuring.
    fn monotonic(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// A clock whose monotonic reading starts at zero now.
    #[must_use]
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        // Before 1970 there is nothing to tell apart; 0 is as wrong as the clock is.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A clock that moves only when told to.
#[derive(Debug, Default)]
pub struct HandClock {
    wall_ms: AtomicU64,
    monotonic_ms: AtomicU64,
}

impl HandClock {
    /// A clock that shows `wall_ms`, and zero on its monotonic face.
    #[must_use]
    pub const fn at(wall_ms: u64) -> Self {
        Self { wall_ms: AtomicU64::new(wall_ms), monotonic_ms: AtomicU64::new(0) }
    }

    /// Moves both faces forward.
    pub fn advance(&self, by_ms: u64) {
        self.wall_ms.fetch_add(by_ms, Ordering::SeqCst);
        self.monotonic_ms.fetch_add(by_ms, Ordering::SeqCst);
    }

    /// Sets the wall face, as an administrator or NTP would; the monotonic face stays.
    pub fn jump_wall_to(&self, wall_ms: u64) {
        self.wall_ms.store(wall_ms, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now_ms(&self) -> u64 {
        self.wall_ms.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.monotonic_ms.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_jump_does_not_move_the_monotonic_face() {
        let clock = HandClock::at(1_000);
        clock.advance(5);
        clock.jump_wall_to(7);
        assert_eq!(clock.now_ms(), 7);
        assert_eq!(clock.monotonic(), Duration::from_millis(5));
    }

    #[test]
    fn the_system_clock_is_after_this_was_written() {
        assert!(SystemClock::new().now_ms() > 1_700_000_000_000);
    }
}
