//! The read drain: from a gate closed to reads to the proof that nothing reads any more.
//!
//! Purpose: proof.md section 5 and the contract's 1.8, the twin of `drain.rs`. Streams are ended at
//! once; everything else may run on until the deadline. Then what still reads is cancelled through
//! its own session, and after the grace its backend is terminated: a client that has stopped
//! reading keeps its session from seeing the cancel. None of that is a release. The proof is made
//! from leases alone that were seen to end, by the engine's answer or by the engine's word that the
//! backend is gone (invariants 6, 7).
//!
//! There is no census and no boundary: what was written was settled by the write fence, under whose
//! locks this runs. Sessions around the proxy aren't stopped by it and are no part of the proof.
//!
//! Callers: `control/fences.rs`, outside the transition lock. The completing commit takes that lock
//! again and finds itself superseded if the record moved by one revision.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::answer::{Answer, BlockerReport, DrainPhase, DrainReport};
use super::drain::{Ticket, activity_of, named};
use super::fences::{Committed, Control, Story, indeterminate};
use super::line::{Line, Request};
use super::points::Point;
use super::port::EnginePort;
use crate::base::arm::{Removable, removed};
use crate::base::ids::{Revision, SessionId};
use crate::base::limits;
use crate::engine::Terminated;
use crate::fence::proof::DrainedClaim;
use crate::fence::record::{FenceRecord, Forced, ForcedKind, Releases};
use crate::fence::state::FenceState;
use crate::fence::transition::{DrainEnd, complete_drain};
use crate::gate::drain::{ReadDrain, Reading, ReadsDrained};
use crate::gate::registry::Gate;
use crate::gate::slot::{Order, Slot};
use crate::store::Commit;

/// Why a read drain ended without a proof.
enum Stop {
    /// The time for waiting is over; reads stay closed.
    Deadline,
    /// The record has moved on.
    Superseded,
}

/// How far force has gone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Only streams are ended.
    Waiting,
    /// What still reads is being cancelled.
    Cancelling,
    /// Backends have been terminated.
    Terminated,
}

/// What became of a completion.
enum Completed {
    /// This is the answer.
    Answered(Box<Answer>),
    /// It couldn't be stored now: try again. The reason.
    NotNow(String),
    /// The record has moved on.
    Superseded,
}

/// One read drain that runs.
struct Run<'a> {
    control: &'a Arc<Control>,
    line: &'a Arc<Line>,
    ticket: &'a Ticket,
    /// `None` where the engine isn't configured any more: lost sessions can't be settled then.
    engine: Option<Arc<dyn EnginePort>>,
    gate: Arc<Gate>,
    drain: ReadDrain,
    published: watch::Receiver<Revision>,
    stage: Stage,
    /// End of the stage, on the monotonic clock.
    stage_ends: Duration,
    /// When it is answered even if the engine still owes an answer, on the monotonic clock.
    answer_by: Duration,
    /// Pause before the next look.
    pause: Duration,
    /// Whose cancel has been told already: it may be sent again, and is told once.
    told: HashSet<SessionId>,
    report: DrainReport,
}

impl Control {
    /// Drains reads, and answers with APPLIED or DRAINING.
    ///
    /// # Cancel safety
    /// Runs on the command's own task; dropped, it leaves reads closed and everything durable.
    pub(super) async fn drain_reads(
        self: &Arc<Self>,
        line: &Arc<Line>,
        request: Request,
        ticket: Ticket,
        story: &mut Story,
    ) -> Answer {
        let gate = self.gates.gate(&line.namespace);
        let published = line.follow();
        // An open gate: cleared before this drain began.
        let Some(drain) = ReadDrain::of(Arc::clone(&gate)) else {
            return self.superseded(line, request, &ticket).await;
        };
        let began = self.clock.monotonic();
        let deadline = Duration::from_millis(ticket.policy.deadline_ms);
        let grace = self.settings.forced_grace.max(deadline) * 2;
        let answer_grace = Duration::from_millis(limits::DRAIN_ANSWER_GRACE_MS);
        let mut run = Run {
            control: self,
            line,
            ticket: &ticket,
            engine: self.engine_of(&line.namespace),
            gate,
            drain,
            published,
            stage: Stage::Waiting,
            stage_ends: began + deadline,
            answer_by: began + deadline + grace + answer_grace,
            pause: Duration::from_millis(limits::DRAIN_LOOK_FIRST_MS),
            told: HashSet::new(),
            report: DrainReport::default(),
        };
        let place = line.drain_place(request.key);
        run.begin();
        let answer = run.run_out(request).await;
        let took = self.clock.monotonic().saturating_sub(began);
        story.drain_ms = Some(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        story.forced.clone_from(&run.report.forced);
        drop(place);
        match answer {
            Some(answer) => {
                if answer.receipt.is_some() {
                    self.metrics.fence.drained("read", took);
                }
                answer
            }
            None if run.is_superseded() => self.superseded(line, request, &ticket).await,
            None => {
                let reason = run.report.why_not("reads stay closed, replay the command");
                story.unproven = Some(run.report);
                Answer::with_receipt(ticket.receipt.clone(), ticket.replayed).because(Some(reason))
            }
        }
    }
}

impl Run<'_> {
    fn begin(&mut self) {
        let now_ms = self.control.clock.now_ms();
        let deadline_ms = self.ticket.policy.deadline_ms;
        self.report.command = Some(self.ticket.receipt.key());
        self.report.policy = Some(self.ticket.policy);
        self.report.started_at_ms = Some(now_ms);
        self.report.deadline_at_ms = Some(now_ms.saturating_add(deadline_ms));
        self.report.phase = DrainPhase::Leases;
        self.show();
    }

    /// Publishes the progress for whoever inspects.
    fn show(&self) {
        self.line.show_drain(self.ticket.receipt.key(), self.report.clone());
        self.control.metrics.changes.stir();
    }

    fn is_superseded(&self) -> bool {
        *self.published.borrow() != self.ticket.receipt.revision_after
    }

    async fn point(&self, point: Point) {
        point.pass(self.ticket.receipt.kind).await;
    }

    /// Proves and completes; `None` when it ended without.
    async fn run_out(&mut self, request: Request) -> Option<Answer> {
        loop {
            let drained = match self.drained_in_time().await {
                Ok(drained) => drained,
                Err(Stop::Deadline | Stop::Superseded) => return None,
            };
            self.point(Point::AfterDrain).await;
            self.report.phase = DrainPhase::Completing;
            self.show();
            match self.complete(request, drained).await {
                Completed::Answered(answer) => return Some(*answer),
                Completed::NotNow(reason) => {
                    self.report.reason = Some(reason);
                    if self.rest().await.is_err() {
                        return None;
                    }
                }
                Completed::Superseded => return None,
            }
        }
    }

    /// As [`Run::leases`], but doesn't outwait an engine that keeps silent.
    async fn drained_in_time(&mut self) -> Result<ReadsDrained, Stop> {
        let left = self.answer_by.saturating_sub(self.control.clock.monotonic());
        match tokio::time::timeout(left, self.leases()).await {
            Ok(drained) => drained,
            Err(_) => Err(Stop::Deadline),
        }
    }

    /// Waits until nothing reads.
    async fn leases(&mut self) -> Result<ReadsDrained, Stop> {
        loop {
            self.settle_orphans().await;
            if let Some(drained) = self.drain.look() {
                self.point(Point::AfterLeases).await;
                return Ok(drained);
            }
            self.force();
            self.name_readers().await;
            self.show();
            let rest = self.next_rest().await?;
            tokio::select! {
                biased;
                _drained = self.drain.wait() => {}
                _moved = self.published.changed() => {}
                () = tokio::time::sleep(rest) => {}
            }
            if self.is_superseded() {
                return Err(Stop::Superseded);
            }
        }
    }

    /// One bounded pause. Observation, not evidence.
    async fn rest(&mut self) -> Result<(), Stop> {
        self.show();
        let rest = self.next_rest().await?;
        tokio::select! {
            biased;
            _moved = self.published.changed() => {}
            () = tokio::time::sleep(rest) => {}
        }
        if self.is_superseded() { Err(Stop::Superseded) } else { Ok(()) }
    }

    /// How long to rest; goes on to the next stage when this one's time is over.
    async fn next_rest(&mut self) -> Result<Duration, Stop> {
        if self.is_superseded() {
            return Err(Stop::Superseded);
        }
        if self.control.clock.monotonic() >= self.stage_ends {
            self.next_stage().await?;
        }
        let left = self.stage_ends.saturating_sub(self.control.clock.monotonic());
        let rest = self.pause.min(left);
        self.pause = (self.pause * 2).min(Duration::from_millis(limits::DRAIN_LOOK_MAX_MS));
        Ok(rest)
    }

    /// Reads are always cancelled at the deadline, whatever the policy says of writers.
    async fn next_stage(&mut self) -> Result<(), Stop> {
        if removed(Removable::ReadCancel) {
            return Err(Stop::Deadline);
        }
        self.stage = match self.stage {
            Stage::Waiting => Stage::Cancelling,
            Stage::Cancelling => Stage::Terminated,
            Stage::Terminated => return Err(Stop::Deadline),
        };
        self.force();
        match self.stage {
            Stage::Waiting => {}
            Stage::Cancelling => self.end_lost_backends().await,
            Stage::Terminated => self.end_backends().await,
        }
        let deadline = Duration::from_millis(self.ticket.policy.deadline_ms);
        let grace = self.control.settings.forced_grace.max(deadline);
        self.stage_ends = self.control.clock.monotonic() + grace;
        self.pause = Duration::from_millis(limits::DRAIN_LOOK_FIRST_MS);
        let now_ms = self.control.clock.now_ms();
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.report.deadline_at_ms = Some(now_ms.saturating_add(grace_ms));
        self.show();
        Ok(())
    }

    /// Orders what must end now to end. Again at each look: a cancel may come between two of a
    /// session's statements, and is then without effect.
    fn force(&mut self) {
        if removed(Removable::ReadCancel) {
            return;
        }
        let generation = self.drain.generation();
        for slot in self.drain.blockers() {
            let reading = Reading::of(&slot).unwrap_or(Reading::Sql);
            let due = self.stage != Stage::Waiting || reading == Reading::Stream;
            if !due || slot.is_abandoned() {
                continue;
            }
            slot.order(Order::STOP_READING, generation);
            if self.told.insert(slot.id()) {
                let (kind, why) = match reading {
                    Reading::Stream => (
                        ForcedKind::StreamTermination,
                        "a stream is ended as soon as reads are closed",
                    ),
                    Reading::Dump => {
                        (ForcedKind::DumpCancel, "the drain's deadline passed; the dump was cut")
                    }
                    Reading::Sql => {
                        (ForcedKind::SqlCancel, "the drain's deadline passed; it was cancelled")
                    }
                };
                self.record(kind, &slot, why);
            }
        }
    }

    async fn end_lost_backends(&mut self) {
        let lost = self.drain.blockers().into_iter().filter(|slot| slot.is_abandoned()).collect();
        self.terminate(lost, "its client is gone and the drain's deadline passed").await;
    }

    /// Ends the backends of sessions that weren't seen to end what they read.
    async fn end_backends(&mut self) {
        let slots = self.drain.blockers();
        self.terminate(slots.clone(), "its read was not seen to end within the grace").await;
        // A session whose client has stopped reading doesn't see its backend go. Told to give up,
        // it leaves its lease abandoned, and the engine's word on the backend settles that.
        for slot in slots {
            slot.order(Order::GIVE_UP_READING, self.drain.generation());
        }
    }

    async fn terminate(&mut self, slots: Vec<Arc<Slot>>, why: &str) {
        let Some(engine) = self.engine.clone() else { return };
        let control = self.control;
        let own = match control.backends_of(&self.line.namespace, engine.as_ref(), slots).await {
            Ok(own) => own,
            Err(error) => {
                self.report.reason = Some(error.to_string());
                return;
            }
        };
        for (slot, backend) in own {
            match engine.terminate(backend).await {
                Ok(Terminated::Signalled) => {
                    self.record(ForcedKind::BackendTermination, &slot, why);
                }
                Ok(Terminated::Gone) => {}
                Err(error) => self.report.reason = Some(error.to_string()),
            }
        }
    }

    fn record(&mut self, kind: ForcedKind, slot: &Slot, why: &str) {
        let at_ms = self.control.clock.now_ms();
        let engine_pid = u32::try_from(slot.engine_pid()).unwrap_or(0);
        tracing::warn!(
            namespace = %self.line.namespace, kind = kind.name(), backend = engine_pid, why,
            "forced by the read fence"
        );
        let session = Some(slot.id());
        self.report.forced.push(Forced { kind, session, engine_pid, at_ms, why: why.to_owned() });
    }

    async fn settle_orphans(&mut self) {
        let Some(engine) = &self.engine else { return };
        match self.control.settle(&self.gate, engine.as_ref(), self.ticket.identity.as_ref()).await
        {
            Ok(_) => self.report.reason = None,
            Err(error) => self.report.reason = Some(error.to_string()),
        }
    }

    /// Names the sessions that are waited for, with the engine's word where it answers.
    async fn name_readers(&mut self) {
        let slots = self.drain.blockers();
        let shown: Vec<Arc<Slot>> =
            slots.iter().take(limits::BLOCKERS_SHOWN_MAX).map(Arc::clone).collect();
        let activity = match &self.engine {
            Some(engine) => {
                activity_of(engine.as_ref(), &self.line.namespace, &shown).await.unwrap_or_default()
            }
            None => HashMap::new(),
        };
        let now = self.control.clock.monotonic().as_millis();
        let now_ms = u64::try_from(now).unwrap_or(u64::MAX);
        self.report.blockers = shown
            .iter()
            .map(|slot| BlockerReport::of_reader(slot, now_ms, activity.get(&slot.engine_pid())))
            .collect();
        self.report.more_blockers = (slots.len() - shown.len()) as u64;
    }

    /// Completes the drain under the transition lock.
    async fn complete(&mut self, request: Request, drained: ReadsDrained) -> Completed {
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
        let receipt = &self.ticket.receipt;
        let same = |record: &&FenceRecord| {
            record.state == FenceState::SourceReadDraining
                && record.revision == receipt.revision_after
                && record.operation == receipt.operation
        };
        let Some(record) = truth.view.record().filter(same) else {
            control.settle_gate(&line, &truth).await;
            return Completed::Superseded;
        };
        let claim = DrainedClaim {
            namespace: drained.namespace().clone(),
            generation: drained.generation(),
            releases: Releases { by_answer: drained.by_answer(), by_engine: drained.by_engine() },
            forced: named(&self.report.forced),
        };
        let (written_by, now) = (control.written_by(), control.clock.now_ms());
        let end = DrainEnd::Reads(claim);
        let (next, receipt) = match complete_drain(now, record, receipt, end, &written_by) {
            Ok(completed) => completed,
            Err(error) => return Completed::NotNow(error.to_string()),
        };
        let commit = Commit {
            namespace: line.namespace.clone(),
            expected_revision: record.revision,
            next: Some(Box::new(next)),
            receipt: receipt.clone(),
        };
        match control.commit(&line, request, receipt.kind, commit, true).await {
            Committed::Yes(persisted) => {
                control.publish(&line, &persisted).await;
                let answer = Answer::with_receipt(receipt, self.ticket.replayed);
                Completed::Answered(Box::new(answer))
            }
            Committed::Conflict => Completed::NotNow(format!(
                "somebody else committed a change of {} first; looking again",
                line.namespace
            )),
            Committed::No(words) => Completed::NotNow(words),
            Committed::Unknown(words) => {
                let mut refusal = indeterminate(&line, request);
                refusal.message = format!("{} ({words})", refusal.message);
                Completed::Answered(Box::new(Answer::refused(refusal)))
            }
        }
    }
}
