//! The write drain: from a closed gate to a proof, or to an honest DRAINING.
//!
//! Purpose: proof.md section 1, steps 4 to 8. Leases first, then the engine's own word (census),
//! the engine's locks, the boundary, the census again; anything found sends it back to the start.
//! A deadline decides when to answer or to force, and never completes anything (invariant 6).
//! The proof is put together here and nowhere else but in the store's reading; what becomes of it
//! is in `drain/completion.rs`, who blocks in `drain/blockers.rs`, what is forced in
//! `drain/force.rs`, what was asked before it began in `drain/early.rs`, and how earlier writers
//! are waited for in `drain/leases.rs`.
//!
//! Invariants: 6, 7, 8. Callers: `control/fences.rs`, outside the transition lock. The completing
//! commit takes that lock again and finds itself superseded if the record moved by one revision.

mod blockers;
mod completion;
mod early;
mod force;
mod leases;

pub(super) use blockers::{activity_of, blocks};
pub(super) use early::Early;
pub(super) use force::named;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::answer::{Answer, DrainPhase, DrainReport};
use super::fences::Control;
use super::line::{Line, Request};
use super::lock_keeper::{LockTicket, TakeError};
use super::points::Point;
use super::port::{CensusAnswer, ClearCensus, EnginePort, Observation, ReadyHolder};
use super::settings::NamespaceSettings;
use super::truth::is_source_fenced;
use crate::base::arm::{Removable, removed};
use crate::base::ids::{Generation, Revision, SessionId};
use crate::base::limits;
use crate::control::fences::{Story, drain_label};
use crate::engine::{EngineError, LockError};
use crate::fence::command::CommandKind;
use crate::fence::proof::{BoundaryClaim, CensusClaim, DrainProof, DrainedClaim, ProofError};
use crate::fence::receipt::Receipt;
use crate::fence::record::{
    Boundary, DrainPolicy, EngineLock, Forced, Identity, LockMode, OnDeadline, Releases,
    another_database,
};
use crate::fence::transition::ControlView;
use crate::gate::drain::{Drain, Drained};
use crate::gate::registry::Gate;

/// What a drain runs under.
pub(super) struct Ticket {
    /// The DRAINING receipt.
    pub(super) receipt: Receipt,
    /// Whether it was found rather than made.
    pub(super) replayed: bool,
    /// The database that the fence was acquired on, or that was made for a target; `None` for a
    /// target of an earlier build.
    pub(super) identity: Option<Identity>,
    /// The command's policy.
    pub(super) policy: DrainPolicy,
    /// What held for the namespace when it began.
    pub(super) settings: NamespaceSettings,
    /// The right to take the engine lock, void once the fence is released.
    pub(super) lock: LockTicket,
    /// What was begun when the gate closed; `None` where it had been closed before.
    pub(super) early: Option<Early>,
}

/// Why a drain ended without a proof.
enum Stop {
    /// The time for waiting is over; everything stays closed.
    Deadline,
    /// The record has moved on.
    Superseded,
}

/// What an import's evidence says of the lock that confirmed its end.
const UNLOCKED_TARGET: &str = "given back with the seal: a target is not kept locked, so sessions \
    that do not come through the proxy, replication and events among them, can write to it, and so \
    can a function that lifts a reader's read-only mode (PostgreSQL before 18)";

/// How far force has gone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Only waiting.
    Waiting,
    /// Sessions have been ordered to roll back.
    Ordered,
    /// Their backends have been terminated.
    Terminated,
}

/// The three evidences and the lock, not yet a proof.
struct Findings {
    drained: Drained,
    before: ClearCensus,
    lock: EngineLock,
    boundary: Boundary,
    after: ClearCensus,
}

/// One drain that runs.
struct Run<'a> {
    control: &'a Arc<Control>,
    line: &'a Arc<Line>,
    ticket: &'a Ticket,
    engine: Arc<dyn EnginePort>,
    gate: Arc<Gate>,
    drain: Drain,
    published: watch::Receiver<Revision>,
    stage: Stage,
    /// The right to take the engine lock.
    lock: LockTicket,
    /// What was begun before the first census, until that.
    early: Option<Early>,
    /// A connection to take it on, from then until it is taken.
    ready: Option<Box<dyn ReadyHolder>>,
    /// Which taking of it the proof will rest on; 0 while this drain has none.
    lock_number: u64,
    /// End of the stage, on the monotonic clock.
    stage_ends: Duration,
    /// When it is answered even if the engine still owes an answer, on the monotonic clock.
    answer_by: Duration,
    /// Pause before the next look at the engine.
    pause: Duration,
    report: DrainReport,
    /// Sessions of the proxy's that the engine's last word named, lease or not.
    in_census: Vec<SessionId>,
    /// Whether the last answer came from another database than the fence was acquired on.
    another: bool,
}

/// Why nothing can be proven of an engine that isn't in the settings.
fn unconfigured(line: &Line) -> String {
    let engine = line.namespace.engine();
    format!("engine {engine} is not configured, so nothing can be proven; configure it and replay")
}

/// A target isn't kept locked: what replicates into it goes on. Its import's end is confirmed.
pub(super) fn lock_mode(settings: &NamespaceSettings, kind: CommandKind) -> LockMode {
    match settings.engine_lock {
        LockMode::Hold if kind == CommandKind::SealTargetImport => LockMode::Confirm,
        mode @ (LockMode::Hold | LockMode::Confirm | LockMode::Off) => mode,
    }
}

impl Control {
    /// Drains, and answers with APPLIED or DRAINING.
    ///
    /// # Cancel safety
    /// Runs on the command's own task; dropped, it leaves everything closed and durable.
    pub(super) async fn drain(
        self: &Arc<Self>,
        line: &Arc<Line>,
        request: Request,
        mut ticket: Ticket,
        story: &mut Story,
    ) -> Answer {
        let draining = |reason: String| {
            Answer::with_receipt(ticket.receipt.clone(), ticket.replayed).because(Some(reason))
        };
        let Some(engine) = self.engine_of(&line.namespace) else {
            return draining(unconfigured(line));
        };
        let gate = self.gates.gate(&line.namespace);
        let published = line.follow();
        // An open gate: released before this drain began.
        let Some(drain) = Drain::of(Arc::clone(&gate)) else {
            return self.superseded(line, request, &ticket).await;
        };
        let lock = lock_mode(&ticket.settings, ticket.receipt.kind);
        let early = (ticket.early.take(), lock);
        let early = self.early_of(line, early, (&engine, drain.generation()));
        let began = self.clock.monotonic();
        let mut run = Run {
            control: self,
            line,
            ticket: &ticket,
            engine,
            gate,
            drain,
            published,
            stage: Stage::Waiting,
            lock: ticket.lock,
            early: Some(early),
            ready: None,
            lock_number: 0,
            stage_ends: began + Duration::from_millis(ticket.policy.deadline_ms),
            answer_by: began + self.longest(ticket.policy),
            pause: Duration::from_millis(limits::DRAIN_LOOK_FIRST_MS),
            report: DrainReport::default(),
            in_census: Vec::new(),
            another: false,
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
                    self.metrics.fence.drained(drain_label(ticket.receipt.kind), took);
                }
                answer
            }
            None if run.is_superseded() => {
                // Adopted, say: the new owner's drain takes its own, and nobody watches this one.
                self.leave_lock(line).await;
                self.superseded(line, request, &ticket).await
            }
            None => {
                self.leave_lock(line).await;
                let then = if run.another {
                    "admission stays closed"
                } else {
                    "admission stays closed, replay the command"
                };
                let reason = run.report.why_not(then);
                let as_of_ms = Some(self.clock.now_ms());
                let found = DrainReport { as_of_ms, ..run.report.clone() };
                line.keep_unproven(ticket.receipt.revision_after, found);
                story.unproven = Some(run.report);
                draining(reason)
            }
        }
    }

    /// What was begun when this generation's gate closed, or is begun now.
    fn early_of(
        &self,
        line: &Line,
        (early, lock): (Option<Early>, LockMode),
        (engine, generation): (&Arc<dyn EnginePort>, Generation),
    ) -> Early {
        let early = early.filter(|early| early.generation() == generation);
        early.unwrap_or_else(|| self.begin_early(line, engine, generation, lock))
    }

    /// Begins to ask behind the closing of this generation.
    pub(super) fn begin_early(
        &self,
        line: &Line,
        engine: &Arc<dyn EnginePort>,
        generation: Generation,
        lock: LockMode,
    ) -> Early {
        let locks = lock != LockMode::Off && !removed(Removable::EngineLock);
        let wanted = (line.cutoff(generation), locks);
        Early::begin(Arc::clone(engine), line.namespace.clone(), generation, wanted)
    }

    /// The time of all stages of a policy together, with some for an engine that answers late.
    fn longest(&self, policy: DrainPolicy) -> Duration {
        let deadline = Duration::from_millis(policy.deadline_ms);
        let forced = match policy.on_deadline {
            OnDeadline::Fail => Duration::ZERO,
            OnDeadline::ForceRollback => self.settings.forced_grace.max(deadline) * 2,
        };
        deadline + forced + Duration::from_millis(limits::DRAIN_ANSWER_GRACE_MS)
    }

    /// Gives the engine lock of an unproven drain back, unless another drain uses it or a fence
    /// rests on it. Both are decided under the transition lock, so that none begins meanwhile.
    async fn leave_lock(&self, line: &Line) {
        let _turn = line.transition.lock().await;
        self.leave_lock_in_turn(line).await;
    }

    /// As [`Control::leave_lock`], behind a command whose task died: what it has committed only
    /// the store knows, and the lock of a proof is kept and watched.
    ///
    /// # Cancel safety
    /// Cancel safe: the lock is kept, or on its way back.
    pub(super) async fn leave_lock_of_the_dead(&self, line: &Line) {
        let _turn = line.transition.lock().await;
        match self.truth(&line.namespace, false).await.map(|truth| truth.view) {
            Ok(ControlView::Record(record)) if is_source_fenced(record.state) => {
                self.hold_lock(line, Some(&record));
            }
            Ok(ControlView::Record(_) | ControlView::NoRecord { .. }) => {
                self.leave_lock_in_turn(line).await;
            }
            // It may be the lock of a proof.
            Ok(ControlView::UnknownUnavailable { .. }) | Err(_) => {}
        }
    }

    async fn leave_lock_in_turn(&self, line: &Line) {
        // A proof may have been committed that nobody has heard of: its lock is kept for it.
        if line.pending().is_some() {
            return;
        }
        let (_, others) = line.drain();
        let fenced = self.locks.report(&line.namespace).is_some();
        if others == 0 && !fenced {
            self.locks.let_go(&line.namespace).await;
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
        self.enter(DrainPhase::Leases);
    }

    fn enter(&mut self, phase: DrainPhase) {
        self.report.phase = phase;
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

    /// Proves and completes; `None` when it ended without.
    async fn run_out(&mut self, request: Request) -> Option<Answer> {
        loop {
            let found = match self.prove_in_time().await {
                Ok(found) => found,
                Err(Stop::Deadline | Stop::Superseded) => return None,
            };
            self.point(Point::AfterDrain).await;
            self.enter(DrainPhase::Completing);
            match self.complete(request, found).await {
                completion::Completed::Answered(answer) => return Some(*answer),
                completion::Completed::NotNow(reason) => {
                    self.report.reason = Some(reason);
                    if self.rest().await.is_err() {
                        return None;
                    }
                }
                completion::Completed::Superseded => return None,
            }
        }
    }

    /// As [`Run::prove`], but doesn't outwait an engine that keeps silent: its own bounds are
    /// longer than most deadlines. What is under way is dropped; nothing of it counts.
    async fn prove_in_time(&mut self) -> Result<Findings, Stop> {
        let left = self.answer_by.saturating_sub(self.control.clock.monotonic());
        if let Ok(proved) = tokio::time::timeout(left, self.prove()).await {
            return proved;
        }
        if self.report.reason.is_none() && self.report.blockers.is_empty() {
            let engine = self.line.namespace.engine();
            self.report.reason = Some(format!(
                "census_unavailable: engine {engine} had not answered when the drain's time was \
                 over; check the engine and the way to it"
            ));
        }
        Err(Stop::Deadline)
    }

    /// Looks until everything is found clear in one pass.
    async fn prove(&mut self) -> Result<Findings, Stop> {
        // Right after the gate has closed: what runs now is what must end. If the engine can't be
        // asked yet, a later cutoff only waits for more.
        let first = self.observation().await;
        self.note_fault(first.err());
        // For logins that come while leases are waited for. Where there are none the pass asks, at
        // once and before it looks at anything else.
        if self.drain.look().is_none() {
            let asked = self.ask_login_triggers().await;
            self.note_fault(asked.err());
        }
        self.point(Point::AfterCutoff).await;
        loop {
            self.enter(DrainPhase::Leases);
            self.leases().await?;
            self.point(Point::AfterLeases).await;
            if let Some(found) = self.pass().await? {
                return Ok(found);
            }
        }
    }

    /// One pass over the engine; `None` after a rest, when something was found.
    async fn pass(&mut self) -> Result<Option<Findings>, Stop> {
        self.another = false;
        // What an earlier pass found is no reason to end anybody now.
        self.in_census.clear();
        let seen = match self.observation().await {
            Ok(seen) => seen,
            Err(error) => return self.rest_on(error).await,
        };
        // Nothing that was admitted can make a login trigger any more. Where one was made since the
        // last question, what logs in behind this one is refused, and what does already has to end.
        if let Err(error) = self.ask_login_triggers().await {
            return self.rest_on(error).await;
        }
        if self.drain.look().is_none() {
            return Ok(None);
        }
        // A connection that hasn't said yet that it is ours would be found in the census.
        if let Some(early) = self.early.take() {
            self.ready = early.holder().await;
        }
        self.enter(DrainPhase::Census);
        let Some(before) = self.census(&seen).await? else {
            return Ok(None);
        };
        self.point(Point::AfterCensus).await;
        self.enter(DrainPhase::EngineLock);
        let Some(lock) = self.lock(&before.identity).await? else {
            return Ok(None);
        };
        self.point(Point::AfterLock).await;
        self.enter(DrainPhase::Boundary);
        let receipt = &self.ticket.receipt;
        let (operation, revision) = (receipt.operation, receipt.revision_after.next());
        let marked = self.engine.mark_boundary(&self.line.namespace, operation, revision).await;
        let marked = match marked {
            Ok(marked) => marked,
            Err(error) => return self.rest_on(error).await,
        };
        // Between a lock that was lost and one that was taken anew anybody may have written.
        if lock.mode != LockMode::Off && marked.under_lock == Some(false) {
            let reason = "the boundary was read without the engine lock; once more";
            return self.rest_because(reason).await;
        }
        self.point(Point::AfterBoundary).await;
        let Some(after) = self.census(&seen).await? else {
            return Ok(None);
        };
        self.point(Point::AfterSecondCensus).await;
        // The lock must have stood from before the boundary until now, by the engine's own word.
        let locks = &self.control.locks;
        let (namespace, number) = (&self.line.namespace, self.lock_number);
        if lock.mode != LockMode::Off && !locks.confirm(namespace, self.lock, number).await {
            let reason = "the engine lock was lost before the drain was proven; once more";
            return self.rest_because(reason).await;
        }
        // What a census may not see the lock must show.
        let blind = before.blind.or(after.blind).filter(|_| lock.mode == LockMode::Off);
        if let Some(words) = blind {
            return self.rest_because(&format!("census_unavailable: {words}")).await;
        }
        // What is drained stays so (invariant 6): no lease older than this drain's generation can
        // have come since. If one did all the same there is no proof. That the gate hasn't opened
        // and closed again meanwhile is for the completing commit to see, by the record's revision.
        let Some(drained) = self.drain.look() else {
            return Ok(None);
        };
        self.report.blockers.clear();
        self.report.more_blockers = 0;
        self.report.reason = None;
        let boundary = marked.boundary;
        Ok(Some(Findings { drained, before, lock, boundary, after }))
    }

    /// What was in flight just after the gate closed in this process.
    async fn observation(&mut self) -> Result<Arc<dyn Observation>, EngineError> {
        let generation = self.drain.generation();
        if let Some(seen) = self.line.cutoff(generation) {
            return Ok(seen);
        }
        let early = match &mut self.early {
            Some(early) => early.cutoff(generation).await,
            None => None,
        };
        let seen = match early {
            Some(asked) => asked?,
            None => self.engine.cutoff(&self.line.namespace).await?,
        };
        self.line.set_cutoff(Some((generation, Arc::clone(&seen))));
        Ok(seen)
    }

    /// Asks the engine what runs at a login of this database.
    async fn ask_login_triggers(&self) -> Result<(), EngineError> {
        let question = self.gate.login_question();
        let triggers = self.engine.login_triggers(&self.line.namespace).await?;
        self.gate.note_login_triggers(question, Some(triggers));
        Ok(())
    }

    /// Asks the engine what is left; `None` after a rest, when something is.
    async fn census(&mut self, seen: &Arc<dyn Observation>) -> Result<Option<ClearCensus>, Stop> {
        self.settle_orphans().await;
        // After the cutoff: a census of another run than this one is told to be of another.
        let server = self.control.server_of(self.line.namespace.engine(), self.engine.as_ref());
        let view = match server.await {
            Ok(server) => self.proxy_view(&server.run),
            Err(error) => return self.rest_on(error).await,
        };
        match seen.census(&view).await {
            Ok(CensusAnswer::Clear(clear)) => match &self.ticket.identity {
                // Before its tables are locked and its log is written to.
                Some(was) if !was.is_met_by(&clear.identity) => {
                    let role = self.ticket.receipt.state_after.role();
                    let now = &clear.identity;
                    let words = another_database(&self.line.namespace, role, was, now);
                    self.is_another(words);
                    self.rest().await?;
                    Ok(None)
                }
                Some(_) | None => {
                    self.in_census.clear();
                    Ok(Some(clear))
                }
            },
            Ok(CensusAnswer::Residue(blockers)) => {
                self.report.reason = None;
                self.name_residue(&blockers);
                self.rest().await?;
                Ok(None)
            }
            Err(error) => self.rest_on(error).await,
        }
    }

    /// Takes the engine's own locks as far as the mode and the engine allow, on the database that
    /// the census was of and on no other.
    async fn lock(&mut self, wanted: &Identity) -> Result<Option<EngineLock>, Stop> {
        let mode = lock_mode(&self.ticket.settings, self.ticket.receipt.kind);
        let without = |outcome: String| {
            Ok(Some(EngineLock { mode: LockMode::Off, outcome, tables: 0, gaps: Vec::new() }))
        };
        if mode == LockMode::Off || removed(Removable::EngineLock) {
            return without("off by configuration".to_owned());
        }
        let (engine, wait) = (Arc::clone(&self.engine), self.ticket.settings.lock_timeout);
        let namespace = &self.line.namespace;
        let (locks, bounds) = (&self.control.locks, (wait, wanted));
        let ready = self.ready.take();
        match locks.take(namespace, self.lock, engine.as_ref(), bounds, ready).await {
            Ok(coverage) => {
                self.lock_number = coverage.number;
                let outcome = "granted: every transaction that wrote to a table had ended";
                let mut gaps = coverage.gaps;
                gaps.extend(self.is_import().then(|| UNLOCKED_TARGET.to_owned()));
                let (outcome, tables) = (outcome.to_owned(), coverage.tables);
                Ok(Some(EngineLock { mode, outcome, tables, gaps }))
            }
            Err(TakeError::Void) => self.renew_ticket().await.map(|()| None),
            Err(TakeError::Lock(LockError::Busy { blockers, .. })) => {
                self.report.reason = blockers.is_empty().then(|| blockers::NOBODY_SHOWN.to_owned());
                self.name_residue(&blockers);
                self.rest().await?;
                Ok(None)
            }
            Err(TakeError::Lock(
                error @ (LockError::NotAllowed { .. } | LockError::TooMany { .. }),
            )) => {
                tracing::warn!(%namespace, %error, "the drain goes on without the engine lock");
                without(format!("not taken: {error}"))
            }
            Err(TakeError::Another(words)) => {
                self.report.reason = Some(words);
                self.rest().await?;
                Ok(None)
            }
            Err(TakeError::Lock(error @ (LockError::Unstable { .. } | LockError::Lost { .. }))) => {
                self.report.reason = Some(error.to_string());
                self.rest().await?;
                Ok(None)
            }
            Err(TakeError::Lock(LockError::Engine(error))) => self.rest_on(error).await,
        }
    }

    /// Whether what is drained is a target's import.
    pub(super) fn is_import(&self) -> bool {
        self.ticket.receipt.kind == CommandKind::SealTargetImport
    }

    /// A void ticket means that the fence was released, or that another drain of it gave up. Under
    /// the transition lock the two can be told apart, because a release publishes under it.
    async fn renew_ticket(&mut self) -> Result<(), Stop> {
        let line = Arc::clone(self.line);
        let _turn = line.transition.lock().await;
        if self.is_superseded() {
            return Err(Stop::Superseded);
        }
        self.lock = self.control.locks.ticket(&line.namespace);
        Ok(())
    }

    async fn point(&self, point: Point) {
        point.pass(self.ticket.receipt.kind).await;
    }

    fn note_fault(&mut self, error: Option<EngineError>) {
        let Some(error) = error else {
            return;
        };
        if matches!(error, EngineError::Changed { .. }) {
            self.line.set_cutoff(None);
        }
        self.report.reason = Some(format!("census_unavailable: {error}"));
    }

    /// Another database answers: waiting doesn't help, and a replay doesn't either.
    fn is_another(&mut self, words: String) {
        self.line.set_cutoff(None);
        self.report.blockers.clear();
        self.report.more_blockers = 0;
        self.report.reason = Some(words);
        self.another = true;
    }

    /// An engine that can't be asked proves nothing: rests and looks again.
    async fn rest_on<T>(&mut self, error: EngineError) -> Result<Option<T>, Stop> {
        self.note_fault(Some(error));
        self.rest().await?;
        Ok(None)
    }

    /// What was found proves nothing: rests and looks again.
    async fn rest_because<T>(&mut self, reason: &str) -> Result<Option<T>, Stop> {
        self.report.reason = Some(reason.to_owned());
        self.rest().await?;
        Ok(None)
    }

    /// Gives a lock back on which no proof rests yet. A direct session that waits for it and is
    /// waited for by the census would otherwise keep the drain until its deadline.
    async fn give_back(&mut self) -> Result<(), Stop> {
        if self.lock_number == 0 {
            return Ok(());
        }
        let line = Arc::clone(self.line);
        let _turn = line.transition.lock().await;
        if self.is_superseded() {
            return Err(Stop::Superseded);
        }
        // A proof may have been committed that nobody has heard of: its lock is kept for it.
        if line.pending().is_some() {
            return Ok(());
        }
        self.lock_number = 0;
        // Another drain of this fence that rests on it finds it gone, and looks once more.
        self.control.locks.let_go(&line.namespace).await;
        self.lock = self.control.locks.ticket(&line.namespace);
        Ok(())
    }

    /// One bounded pause between two looks. Observation, not evidence: it ends early only because
    /// the record moved.
    async fn rest(&mut self) -> Result<(), Stop> {
        self.give_back().await?;
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
        let now = self.control.clock.monotonic();
        if now >= self.stage_ends {
            self.next_stage().await?;
        }
        let left = self.stage_ends.saturating_sub(self.control.clock.monotonic());
        let rest = self.pause.min(left);
        self.pause = (self.pause * 2).min(Duration::from_millis(limits::DRAIN_LOOK_MAX_MS));
        Ok(rest)
    }

    async fn next_stage(&mut self) -> Result<(), Stop> {
        self.stage = match (self.stage, self.ticket.policy.on_deadline) {
            (Stage::Waiting, OnDeadline::Fail)
            | (Stage::Terminated, OnDeadline::Fail | OnDeadline::ForceRollback)
            | (Stage::Ordered, OnDeadline::Fail) => return Err(Stop::Deadline),
            (Stage::Waiting, OnDeadline::ForceRollback) => {
                self.order_rollback().await;
                Stage::Ordered
            }
            (Stage::Ordered, OnDeadline::ForceRollback) => {
                self.terminate_writers().await;
                Stage::Terminated
            }
        };
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

    /// Puts the evidences together. They are taken by value: one set makes one proof.
    fn assemble(&self, found: Findings) -> Result<DrainProof, ProofError> {
        let Findings { drained, before, lock, boundary, after } = found;
        let generation = drained.generation();
        let direct = after.census.direct_sessions;
        let direct_sessions = if direct == 0 {
            Vec::new()
        } else {
            vec![format!("idle sessions that do not come through the proxy: {direct}")]
        };
        let namespace = &self.line.namespace;
        if after.identity != before.identity {
            return Err(ProofError::Mismatch {
                namespace: namespace.clone(),
                piece: "the census after the boundary (engine)",
                found: after.identity.to_string(),
                expected: before.identity.to_string(),
            });
        }
        let drained = DrainedClaim {
            namespace: drained.namespace().clone(),
            generation,
            releases: Releases { by_answer: drained.by_answer(), by_engine: drained.by_engine() },
            forced: force::named(&self.report.forced),
        };
        let census = CensusClaim {
            namespace: before.namespace,
            generation,
            identity: before.identity,
            before: before.census,
            after: after.census,
            direct_sessions,
            engine_lock: lock,
            non_transactional_tables: Vec::new(),
        };
        let boundary = BoundaryClaim { namespace: namespace.clone(), generation, boundary };
        DrainProof::assemble(drained, census, boundary, self.control.clock.now_ms())
    }

    fn force(&mut self, forced: Forced) {
        tracing::warn!(
            namespace = %self.line.namespace, kind = forced.kind.name(),
            backend = forced.engine_pid, why = forced.why, "forced by the drain's policy"
        );
        self.report.forced.push(forced);
    }
}
