//! One commit of a command, with every outcome it can have.
//!
//! Purpose: closing is put up in memory before it is made durable; a commit that is known not to
//! have landed takes it down again; one of which that isn't known leaves everything closed
//! (invariant 11). The guard in here is what makes the death of the task the same as an unknown
//! outcome.
//!
//! Callers: `fences/turn.rs` and `control/drain.rs`, under the transition lock.

use std::sync::Arc;

use crate::base::arm::{Removable, removed};
use crate::base::ids::{Generation, Namespace};
use crate::control::fences::Control;
use crate::control::line::{Line, Request};
use crate::control::points::Point;
use crate::fence::command::CommandKind;
use crate::fence::record::InFlight;
use crate::fence::verdict::Overlay;
use crate::gate::registry::{Gate, Gates, Rules};
use crate::store::{Commit, CommitError, Persisted};

/// What became of a commit.
pub(in crate::control) enum Committed {
    /// It is durable.
    Yes(Persisted),
    /// Somebody else committed first: read and decide again.
    Conflict,
    /// Proven: nothing was written. The store's words.
    No(String),
    /// Not known. Everything is closed now, and the command is the only one accepted.
    Unknown(String),
}

/// Armed while a commit is under way. Dropping it armed, as a dying task does, closes the
/// namespace and remembers the command.
struct Doubt {
    gates: Arc<Gates>,
    line: Arc<Line>,
    request: Request,
    armed: bool,
}

impl Doubt {
    fn close(&self) {
        self.line.set_pending(Some(self.request));
        let gate: Arc<Gate> = self.gates.gate(&self.line.namespace);
        gate.overlay(Overlay::Indeterminate, InFlight::Refuse);
    }

    fn resolve(mut self) {
        self.armed = false;
    }
}

impl Drop for Doubt {
    fn drop(&mut self) {
        if self.armed {
            self.close();
        }
    }
}

impl Control {
    /// Puts up the overlay by which a command closes admission before its commit. Answers under
    /// which generation it is closed.
    pub(in crate::control) fn install(
        &self,
        namespace: &Namespace,
        kind: CommandKind,
        rules: Rules,
    ) -> Generation {
        let reads = kind == CommandKind::SetSourceReadFence;
        let overlay = if reads { Overlay::ClosingReads } else { Overlay::Installing };
        self.gates.gate(namespace).overlay(overlay, rules)
    }

    /// Commits. On [`Committed::Yes`] the marker is written too; publishing is the caller's.
    ///
    /// # Cancel safety
    /// Dropping the future between the beginning and the known end leaves the namespace
    /// indeterminate.
    pub(in crate::control) async fn commit(
        &self,
        line: &Arc<Line>,
        request: Request,
        kind: CommandKind,
        commit: Commit,
        last: bool,
    ) -> Committed {
        let (before, after, marked) = if last {
            (Point::BeforeFinalCommit, Point::AfterFinalCommit, Point::AfterFinalMarker)
        } else {
            (Point::BeforeCommit, Point::AfterCommit, Point::AfterMarker)
        };
        let changes = commit.next.is_some();
        before.pass(kind).await;
        let (gates, its_line) = (Arc::clone(&self.gates), Arc::clone(line));
        let doubt = Doubt { gates, line: its_line, request, armed: true };
        let outcome = self.store.fence_commit(commit).await;
        let persisted = match outcome {
            Ok(persisted) => persisted,
            Err(CommitError::Conflict { .. }) => {
                doubt.resolve();
                return Committed::Conflict;
            }
            Err(CommitError::NotCommitted(error)) => {
                doubt.resolve();
                return Committed::No(error.to_string());
            }
            Err(CommitError::Unknown(error)) if removed(Removable::CommitDoubt) => {
                doubt.resolve();
                return Committed::No(error.to_string());
            }
            Err(CommitError::Unknown(error)) => {
                // Dropped armed: closed, and the command remembered.
                drop(doubt);
                return Committed::Unknown(error.to_string());
            }
        };
        doubt.resolve();
        after.pass(kind).await;
        if let (true, Some(record)) = (changes, persisted.record()) {
            self.write_marker(record).await;
        }
        marked.pass(kind).await;
        Committed::Yes(persisted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::receipt::Fingerprint;
    use crate::fence::sample;

    #[test]
    fn a_task_that_dies_in_a_commit_leaves_everything_closed() {
        let gates = Arc::new(Gates::new(Generation(1)));
        gates.recovered();
        let line = Arc::new(Line::new(sample::namespace()));
        let key = crate::fence::command::CommandKey {
            operation: sample::operation(1),
            command: sample::command_id(1),
        };
        let request = Request { key, fingerprint: Fingerprint([0; 32]) };
        let doubt =
            |armed| Doubt { gates: Arc::clone(&gates), line: Arc::clone(&line), request, armed };
        let gate = gates.gate(&line.namespace);
        doubt(true).resolve();
        assert!(line.pending().is_none() && gate.word().all_open());
        let dying = doubt(true);
        let died = std::thread::spawn(move || {
            let _dying = dying;
            panic!("on purpose");
        });
        assert!(died.join().is_err());
        assert_eq!(line.pending(), Some(request));
        assert!(!gate.published().policy.reads_open() && !gate.word().writes_open());
    }
}
