//! Waiting for the leases of earlier writers.
//!
//! Purpose: step 4 of proof.md, section 1. The table of leases tells when none is left; who is lost
//! the engine alone can take out of it. Whoever isn't gone soon is named for people.
//!
//! Invariants: 6, 7. Pauses bound how often the engine is asked and prove nothing: what ends the
//! wait is the table. Callers: `control/drain.rs`.

use std::sync::Arc;
use std::time::Duration;

use super::{Run, Stop};
use crate::base::limits;
use crate::gate::drain::Drained;

impl Run<'_> {
    /// Waits until no earlier writer's lease is left.
    pub(super) async fn leases(&mut self) -> Result<Drained, Stop> {
        let mut soon = Duration::from_millis(limits::DRAIN_UNNAMED_MS);
        loop {
            self.settle_orphans().await;
            if let Some(drained) = self.drain.look() {
                return Ok(drained);
            }
            if let Some(drained) = self.end_soon(std::mem::take(&mut soon)).await {
                return Ok(drained);
            }
            if let Some(drained) = self.name_writers().await {
                return Ok(drained);
            }
            self.show();
            let rest = self.next_rest().await?;
            tokio::select! {
                biased;
                drained = self.drain.wait() => return Ok(drained),
                _moved = self.published.changed() => {}
                () = tokio::time::sleep(rest) => {}
            }
            if self.is_superseded() {
                return Err(Stop::Superseded);
            }
        }
    }

    /// Waits a while, within the stage, for writers that nobody has been told of yet. Of a session
    /// that was lost nothing here tells that its backend is gone, and most are soon: clients that
    /// are refused leave in the middle of their transactions. So the engine is asked meanwhile.
    async fn end_soon(&mut self, bound: Duration) -> Option<Drained> {
        let clock = Arc::clone(&self.control.clock);
        let until = self.stage_ends.min(clock.monotonic() + bound);
        let mut left = until.saturating_sub(clock.monotonic());
        let mut pause = Duration::from_millis(limits::DRAIN_LOST_LOOK_FIRST_MS);
        while !left.is_zero() {
            self.report.active_writers = self.drain.blockers().len() as u64;
            self.show();
            pause = pause.min(left);
            tokio::select! {
                biased;
                drained = self.drain.wait() => return Some(drained),
                _moved = self.published.changed() => return None,
                () = tokio::time::sleep(pause) => {}
            }
            let paused = left - pause;
            pause *= 2;
            self.settle_orphans().await;
            left = paused.min(until.saturating_sub(clock.monotonic()));
            if let Some(drained) = self.drain.look() {
                return Some(drained);
            }
        }
        None
    }
}
