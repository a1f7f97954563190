//! From a proof to the durable fenced state.
//!
//! Purpose: the completing commit holds the transition lock; a record that moved by one revision
//! since the drain began means that the drain was superseded, whatever it has found (invariant 8).
//!
//! Callers: `control/drain.rs`.

use std::sync::Arc;

use super::{Findings, Run, Ticket};
use crate::control::answer::Answer;
use crate::control::fences::{Committed, Control, indeterminate};
use crate::control::line::{Line, Request};
use crate::control::truth::is_source_fenced;
use crate::fence::receipt::{Outcome, Receipt};
use crate::fence::record::{FenceRecord, LockMode};
use crate::fence::transition::{CompletionError, DrainEnd, complete_drain};
use crate::store::{Commit, Persisted};

/// What became of a completion.
pub(super) enum Completed {
    /// This is the answer.
    Answered(Box<Answer>),
    /// The findings don't make a proof, or it couldn't be stored: look again. The reason.
    NotNow(String),
    /// The record has moved on.
    Superseded,
}

impl Run<'_> {
    /// Completes the drain under the transition lock.
    pub(super) async fn complete(&mut self, request: Request, found: Findings) -> Completed {
        let control = Arc::clone(self.control);
        let line = Arc::clone(self.line);
        let _turn = line.transition.lock().await;
        if let Some(pending) = line.pending() {
            // Another command's commit isn't known. It decides what this drain was worth.
            return Completed::NotNow(indeterminate(&line, pending).message);
        }
        let truth = match control.truth(&line.namespace, true).await {
            Ok(truth) => truth,
            Err(error) => return Completed::NotNow(error.to_string()),
        };
        let same = |record: &&FenceRecord| {
            Some(record.state) == self.ticket.receipt.kind.draining()
                && record.revision == self.ticket.receipt.revision_after
                && record.operation == self.ticket.receipt.operation
        };
        let Some(record) = truth.view.record().filter(same) else {
            control.settle_gate(&line, &truth).await;
            return Completed::Superseded;
        };
        let lock_mode = found.lock.mode;
        // It may have gone since the last look; then who wrote meanwhile isn't known.
        if lock_mode != LockMode::Off
            && !control.locks.is_held(&line.namespace, self.lock_number).await
        {
            let lost = "the engine lock was lost before the proof was stored; once more";
            return Completed::NotNow(lost.to_owned());
        }
        let proof = match self.assemble(found) {
            Ok(proof) => proof,
            Err(error) => {
                line.set_cutoff(None);
                return Completed::NotNow(error.to_string());
            }
        };
        let (receipt, written_by) = (&self.ticket.receipt, control.written_by());
        let now = control.clock.now_ms();
        let end = if self.is_import() { DrainEnd::Import(proof) } else { DrainEnd::Writes(proof) };
        let (next, receipt) = match complete_drain(now, record, receipt, end, &written_by) {
            Ok(completed) => completed,
            Err(error @ CompletionError::OtherDatabase { .. }) => {
                self.is_another(error.to_string());
                return Completed::NotNow(error.to_string());
            }
            Err(error) => return Completed::NotNow(error.to_string()),
        };
        let replaces = record.revision;
        self.commit_proven(&line, request, replaces, next, receipt, lock_mode).await
    }

    async fn commit_proven(
        &self,
        line: &Arc<Line>,
        request: Request,
        replaces: crate::base::ids::Revision,
        next: FenceRecord,
        receipt: Receipt,
        lock_mode: LockMode,
    ) -> Completed {
        let control = self.control;
        if lock_mode == LockMode::Confirm {
            control.locks.let_go(&line.namespace).await;
        }
        let commit = Commit {
            namespace: line.namespace.clone(),
            expected_revision: replaces,
            next: Some(Box::new(next)),
            receipt: receipt.clone(),
        };
        match control.commit(line, request, receipt.kind, commit, true).await {
            Committed::Yes(persisted) => {
                self.publish_proven(line, &persisted).await;
                let answer = Answer::with_receipt(receipt, self.ticket.replayed);
                Completed::Answered(Box::new(answer))
            }
            Committed::Conflict => Completed::NotNow(format!(
                "somebody else committed a change of {} first; looking again",
                line.namespace
            )),
            Committed::No(words) => Completed::NotNow(words),
            Committed::Unknown(words) => {
                let mut refusal = indeterminate(line, request);
                refusal.message = format!("{} ({words})", refusal.message);
                Completed::Answered(Box::new(Answer::refused(refusal)))
            }
        }
    }

    async fn publish_proven(&self, line: &Arc<Line>, persisted: &Persisted) {
        self.control.hold_lock(line, persisted.record());
        self.control.publish(line, persisted).await;
        // Behind the publication: a look that comes now sees that it is acknowledged.
        if let Some(record) = persisted.record().filter(|one| is_source_fenced(one.state)) {
            let before = |one| record.adoptions.iter().any(|past| past.previous_operation == one);
            let is_its = |one| one == record.operation || before(one);
            self.control.roll_back_at_doubles(&line.namespace, is_its);
        }
    }
}

impl Control {
    /// The answer of a drain whose record moved on. Where another command of the same operation
    /// completed the same drain, its goal is reached, and that is made durable too.
    pub(in crate::control) async fn superseded(
        self: &Arc<Self>,
        line: &Arc<Line>,
        request: Request,
        ticket: &Ticket,
    ) -> Answer {
        let history = |words: &str| {
            Answer::with_receipt(ticket.receipt.clone(), ticket.replayed)
                .because(Some(words.to_owned()))
        };
        let over = "the drain was superseded by a later command; inspect what holds now";
        let _turn = line.transition.lock().await;
        if line.pending().is_some() {
            return history(over);
        }
        let Ok(truth) = self.truth(&line.namespace, true).await else {
            return history("the fence store cannot be read; replay the command");
        };
        let reached = |record: &&FenceRecord| {
            Some(record.state) == ticket.receipt.kind.goal()
                && record.operation == ticket.receipt.operation
                && record.revision == ticket.receipt.revision_after.next()
        };
        let Some(record) = truth.view.record().filter(reached) else {
            return history(over);
        };
        let receipt = Receipt {
            outcome: Outcome::AlreadyApplied,
            revision_before: record.revision,
            revision_after: record.revision,
            state_after: record.state,
            applied_at_ms: self.clock.now_ms(),
            instance: self.settings.instance.clone(),
            ..ticket.receipt.clone()
        };
        let commit = Commit {
            namespace: line.namespace.clone(),
            expected_revision: record.revision,
            next: None,
            receipt: receipt.clone(),
        };
        match self.commit(line, request, receipt.kind, commit, true).await {
            Committed::Yes(_) => Answer::with_receipt(receipt, ticket.replayed),
            Committed::Conflict | Committed::No(_) => history(over),
            Committed::Unknown(_) => Answer::refused(indeterminate(line, request)),
        }
    }
}
