//! One command's turn at its namespace: read, decide, commit, publish, and answer or drain.
//!
//! Purpose: the order of the contract (1.4.1, 1.11). Closing: overlay, commit, marker, publish,
//! drain. Opening: commit, marker, engine lock given back, publish. Every way out settles the gate
//! on what is durable, unless that isn't known.
//!
//! Callers: `fences.rs`, on the command's own task. What is legal is `fence::transition`'s to say.

use std::sync::Arc;

use super::commit::Committed;
use super::{Control, drain_policy, indeterminate};
use crate::base::ids::{Generation, Revision};
use crate::base::limits;
use crate::control::answer::{Answer, DrainReport};
use crate::control::doubles::NotHere;
use crate::control::drain::{Early, Ticket, lock_mode};
use crate::control::line::{Line, Request};
use crate::control::points::Point;
use crate::control::port::{EnginePort, LiveDatabase};
use crate::control::targets::is_another;
use crate::control::truth::is_source_fenced;
use crate::engine::EngineError;
use crate::fence::code::{ControlCode, Detail};
use crate::fence::command::{Actor, Command, CommandKind};
use crate::fence::receipt::Receipt;
use crate::fence::record::{
    Adoption, Boundary, FenceRecord, Forced, Identity, IncarnationId, LockMode,
};
use crate::fence::state::FenceState;
use crate::fence::transition::{ControlRefusal, ControlView, Decision, Facts, decide};
use crate::store::reconcile::Reconciled;
use crate::store::{Commit, StoreError};
use crate::telemetry::audit::{Adoption as AdoptionEvent, AuditEvent, Replay, audit};

/// What the audit event says beyond command and answer.
pub(in crate::control) struct Story {
    replay: Replay,
    before: (FenceState, Revision),
    live: Option<Identity>,
    /// Why the engine didn't say which database it is.
    silent: Option<EngineError>,
    /// That it is another one than was made for the target.
    stranger: Option<ControlRefusal>,
    /// How long the drain ran, in milliseconds.
    pub(in crate::control) drain_ms: Option<u64>,
    /// What it forced.
    pub(in crate::control) forced: Vec<Forced>,
    /// Where it stood when it was answered without a proof.
    pub(in crate::control) unproven: Option<DrainReport>,
}

impl Story {
    pub(super) const fn new() -> Self {
        Self {
            replay: Replay::None,
            before: (FenceState::UnknownUnavailable, Revision(0)),
            live: None,
            silent: None,
            stranger: None,
            drain_ms: None,
            forced: Vec::new(),
            unproven: None,
        }
    }
}

/// What follows a turn.
enum Step {
    Answered(Box<Answer>),
    Drain(Box<Ticket>),
}

impl Step {
    fn answered(answer: Answer) -> Self {
        Self::Answered(Box::new(answer))
    }
}

/// What a decision is carried out with.
struct Decided {
    replaces: Revision,
    next: Option<Box<FenceRecord>>,
    receipt: Receipt,
    drains: bool,
}

impl Control {
    /// Runs one command to its answer.
    ///
    /// # Cancel safety
    /// Not cancel safe: it runs on a task of its own that nobody cancels.
    pub(super) async fn run(
        self: &Arc<Self>,
        line: &Arc<Line>,
        request: Request,
        actor: &Actor,
        command: &Command,
    ) -> Answer {
        let mut story = Story::new();
        let turn = line.transition.lock().await;
        let answer = match self.decide_and_commit(line, request, (actor, command), &mut story).await
        {
            Step::Answered(answer) => {
                let mut answer = *answer;
                if let Some(note) = self.note(command, story.before.0, &answer).await {
                    answer.message.get_or_insert(note);
                }
                answer.sight = self.sight(&command.namespace, story.live.clone()).await;
                self.tell(actor, command, &story, &answer);
                drop(turn);
                answer
            }
            Step::Drain(ticket) => {
                drop(turn);
                Point::BeforeDrain.pass(command.kind()).await;
                let mut answer = if drains_reads(command.kind()) {
                    self.drain_reads(line, request, *ticket, &mut story).await
                } else {
                    self.drain(line, request, *ticket, &mut story).await
                };
                answer.sight = self.sight(&command.namespace, story.live.clone()).await;
                // The drain is over, but who blocked it is what the answer is about.
                if let (Some(sight), Some(last)) = (&mut answer.sight, story.unproven.take()) {
                    let DrainReport { read_leases, import_writers, .. } = sight.drain;
                    sight.drain = DrainReport { read_leases, import_writers, ..last };
                }
                self.tell(actor, command, &story, &answer);
                answer
            }
        };
        Point::BeforeResponse.pass(command.kind()).await;
        answer
    }

    async fn decide_and_commit(
        self: &Arc<Self>,
        line: &Arc<Line>,
        request: Request,
        (actor, command): (&Actor, &Command),
        story: &mut Story,
    ) -> Step {
        for _ in 0..limits::DECIDE_ROUNDS_MAX {
            // 0. Before the store is read: while one commit is unknown, only that very request.
            if let Some(pending) = line.pending().filter(|pending| *pending != request) {
                return Step::answered(Answer::refused(indeterminate(line, pending)));
            }
            let (mut truth, receipt) = match self.read_back(command).await {
                Ok(read) => read,
                Err(error) => return Step::answered(unread(line, request, &error)),
            };
            // Both were read, so what was pending is known now. Nobody else can come in between:
            // the transition lock is held.
            line.set_pending(None);
            let fresh = receipt.is_none();
            let facts = self.facts(&mut truth, (actor, command), fresh, story).await;
            story.before = (truth.view.state(), truth.view.revision());
            story.live.clone_from(&facts.live_identity);
            let now = self.clock.now_ms();
            match decide(now, &truth.view, command, receipt.as_ref(), &facts) {
                Decision::Commit { next: Some(next), .. }
                    if facts.snapshot.is_none() && needs_snapshot(command, &next) =>
                {
                    self.settle_gate(line, &truth).await;
                    return Step::answered(without_snapshot(command, story));
                }
                Decision::Commit { replaces, next, receipt, drains } => {
                    let decided = Decided { replaces, next, receipt, drains };
                    if let Some(step) =
                        self.carry_out(line, request, command, &truth, decided).await
                    {
                        return step;
                    }
                }
                Decision::Replay(receipt) => {
                    story.replay = Replay::Replay;
                    self.settle_gate(line, &truth).await;
                    self.hold_lock(line, truth.view.record());
                    return Step::answered(Answer::with_receipt(receipt, true));
                }
                Decision::Historical(receipt) => {
                    story.replay = Replay::Replay;
                    self.settle_gate(line, &truth).await;
                    return Step::answered(historical(receipt));
                }
                Decision::Resume(receipt) => {
                    story.replay = Replay::Resume;
                    self.settle_gate(line, &truth).await;
                    return self.to_drain(command, receipt, truth.view.record(), (true, None));
                }
                Decision::Refuse(refusal) => {
                    if refusal.code == ControlCode::CommandConflict {
                        story.replay = Replay::Conflict;
                    }
                    self.settle_gate(line, &truth).await;
                    // What a record or a marker says of the name needs no engine.
                    let asked = matches!(truth.view, ControlView::NoRecord { .. });
                    let silent = story.silent.take().filter(|_| asked || needs_identity(&refusal));
                    return Step::answered(refused(command, refusal, silent));
                }
            }
        }
        self.settle_on_store(line).await;
        Step::answered(Answer::failed(format!(
            "others committed changes of {} first, {} times in a row; inspect it, then replay",
            command.namespace,
            limits::DECIDE_ROUNDS_MAX
        )))
    }

    async fn read_back(
        &self,
        command: &Command,
    ) -> Result<(Reconciled, Option<Receipt>), StoreError> {
        let namespace = &command.namespace;
        let truth = self.truth(namespace, true).await?;
        let key = command.key();
        let receipt = self.store.receipt_find(namespace, key.operation, key.command).await?;
        Ok((truth, receipt))
    }

    /// Gathers what is true outside. The engine is asked only where its answer can matter: before
    /// a new fence, and for whether a database without a record exists.
    async fn facts(
        &self,
        truth: &mut Reconciled,
        (actor, command): (&Actor, &Command),
        fresh: bool,
        story: &mut Story,
    ) -> Facts {
        let namespace = &command.namespace;
        let settings = self.settings_of(namespace);
        let engine = self.engine_of(namespace);
        let unowned = match &truth.view {
            ControlView::NoRecord { .. } => true,
            ControlView::Record(record) => record.state.is_operation_finished(),
            ControlView::UnknownUnavailable { .. } => false,
        };
        let mut live_identity = None;
        story.silent = None;
        if let (true, true, Some(engine)) = (fresh, unowned, &engine) {
            match engine.identity(namespace).await {
                Ok(LiveDatabase::Exists(identity)) => live_identity = Some(identity),
                Ok(LiveDatabase::Missing) => {
                    if let ControlView::NoRecord { exists } = &mut truth.view {
                        *exists = false;
                    }
                }
                Err(error) => {
                    let what = "the engine did not say which database it is";
                    tracing::warn!(%namespace, %error, "{what}");
                    story.silent = Some(error);
                }
            }
        }
        let snapshot = match (fresh, truth.view.record(), &engine) {
            (true, Some(record), Some(engine)) if needs_snapshot(command, record) => {
                snapshot_of(engine.as_ref(), command, record, story).await
            }
            (true | false, _, _) => None,
        };
        let sessions = self.gates.known(namespace).map_or(0, |gate| gate.session_count());
        Facts {
            written_by: self.written_by(),
            // Checked before anything was read.
            indeterminate: None,
            live_identity,
            shared_schema: false,
            name_in_use: sessions > 0,
            fresh_incarnation: IncarnationId(uuid::Uuid::new_v4()),
            snapshot,
            default_write_drain: settings.write_drain(),
            default_read_drain: settings.read_drain(),
            adoption_key_matched: actor.has_adoption_key,
            namespace_configured: engine.is_some(),
            lock_gaps: self.locks.report(namespace).map(|lock| lock.gaps).unwrap_or_default(),
        }
    }

    /// Commits a decision and publishes it; `None` when somebody else committed first.
    async fn carry_out(
        self: &Arc<Self>,
        line: &Arc<Line>,
        request: Request,
        command: &Command,
        truth: &Reconciled,
        decided: Decided,
    ) -> Option<Step> {
        let Decided { replaces, mut next, receipt, drains } = decided;
        let kind = command.kind();
        let changes = next.is_some();
        if changes
            && goes_up(kind)
            && let Err(why) = self.hear_of_standbys(command).await
        {
            self.settle_gate(line, truth).await;
            return Some(Step::answered(not_here(line, request, why)));
        }
        if let Err(answer) = self.make_target(line, command, truth, next.as_deref_mut()).await {
            return Some(Step::answered(answer));
        }
        let mut early = None;
        if drains && changes {
            let rules = self.rules(&command.namespace, next.as_deref());
            let generation = self.install(&command.namespace, kind, rules);
            Point::AfterOverlay.pass(kind).await;
            // Beside the commit, and dropped where that fails.
            early = self.ask_early(line, kind, generation);
        }
        let commit = Commit {
            namespace: command.namespace.clone(),
            expected_revision: replaces,
            next,
            receipt: receipt.clone(),
        };
        let persisted = match self.commit(line, request, kind, commit, false).await {
            Committed::Yes(persisted) => persisted,
            Committed::Conflict => return None,
            Committed::No(words) => {
                let stands = if kind == CommandKind::CreateTargetQuarantined {
                    // What was read before is of a time without its marker and its database.
                    self.settle_on_store(line).await;
                    "the new database stays closed"
                } else {
                    self.settle_after_failure(line, truth).await;
                    "admission is as it was before"
                };
                return Some(Step::answered(Answer::failed(format!(
                    "{kind} on {}: nothing was committed, {stands} ({words}); replay the command",
                    command.namespace
                ))));
            }
            Committed::Unknown(words) => {
                let refusal = indeterminate(line, request);
                let message = format!("{} ({words})", refusal.message);
                let refusal = ControlRefusal { message, ..refusal };
                return Some(Step::answered(Answer::refused(refusal)));
            }
        };
        Point::BeforePublish.pass(kind).await;
        if changes {
            self.publish(line, &persisted).await;
            self.prune(command).await;
        } else {
            self.settle_gate(line, truth).await;
        }
        if drains {
            return Some(self.to_drain(command, receipt, persisted.record(), (false, early)));
        }
        self.hold_lock(line, persisted.record());
        Some(Step::answered(Answer::with_receipt(receipt, false)))
    }

    fn to_drain(
        &self,
        command: &Command,
        receipt: Receipt,
        record: Option<&FenceRecord>,
        (replayed, early): (bool, Option<Early>),
    ) -> Step {
        let settings = self.settings_of(&command.namespace);
        let of_record = record.and_then(|record| record.drain_policy);
        let default = if drains_reads(command.kind()) {
            settings.read_drain()
        } else {
            settings.write_drain()
        };
        let policy = drain_policy(command).or(of_record).unwrap_or(default);
        Step::Drain(Box::new(Ticket {
            receipt,
            replayed,
            identity: record.and_then(|record| record.identity.clone()),
            policy,
            settings,
            lock: self.locks.ticket(&command.namespace),
            early,
        }))
    }

    /// Begins to ask the engine what a write drain needs first; nothing where no engine is known.
    fn ask_early(&self, line: &Line, kind: CommandKind, generation: Generation) -> Option<Early> {
        if drains_reads(kind) {
            return None;
        }
        let engine = self.engine_of(&line.namespace)?;
        let lock = lock_mode(&self.settings_of(&line.namespace), kind);
        Some(self.begin_early(line, &engine, generation, lock))
    }

    /// Makes sure that the lock a proven fence rests on is held and watched.
    pub(in crate::control) fn hold_lock(&self, line: &Line, record: Option<&FenceRecord>) {
        let Some(record) = record.filter(|record| is_source_fenced(record.state)) else {
            return;
        };
        let mode = record.evidence.as_ref().map(|evidence| evidence.engine_lock.mode);
        if mode != Some(LockMode::Hold) {
            return;
        }
        if let Some(engine) = self.engine_of(&line.namespace) {
            let ticket = self.locks.ticket(&line.namespace);
            let wait = self.settings_of(&line.namespace).lock_timeout;
            let gate = self.gates.gate(&line.namespace);
            self.locks.hold(&gate, ticket, engine, (wait, record.identity.clone()));
        }
    }

    /// After a commit that is known not to have landed: what the store says now, or, when it
    /// can't be read, what it said under this very lock. Not for a creation whose marker may be
    /// there: see [`Control::settle_on_store`].
    pub(in crate::control) async fn settle_after_failure(&self, line: &Line, before: &Reconciled) {
        match self.truth(&line.namespace, true).await {
            Ok(now) => self.settle_gate(line, &now).await,
            Err(_) => self.settle_gate(line, before).await,
        }
    }

    /// What the store says now. Where it can't be read the gate stays as it is, closed by whatever
    /// overlay is up.
    pub(in crate::control) async fn settle_on_store(&self, line: &Line) {
        match self.truth(&line.namespace, true).await {
            Ok(now) => self.settle_gate(line, &now).await,
            Err(error) => tracing::warn!(
                namespace = %line.namespace, %error,
                "the gate stays as it is until the store can be read"
            ),
        }
    }

    async fn prune(&self, command: &Command) {
        let retention = self.settings_of(&command.namespace).receipt_retention_ms;
        let now = self.clock.now_ms();
        if let Err(error) = self.store.receipts_prune(&command.namespace, now, retention).await {
            tracing::warn!(namespace = %command.namespace, %error, "old receipts were not removed");
        }
    }

    /// The one audit event and the numbers of an answered command.
    pub(super) fn tell(&self, actor: &Actor, command: &Command, story: &Story, answer: &Answer) {
        let fence = &self.metrics.fence;
        fence.transition(command.kind().name(), answer.code.name());
        match story.replay {
            Replay::None => {}
            Replay::Replay | Replay::Resume => fence.replay("replay"),
            Replay::Conflict => fence.replay("conflict"),
        }
        for forced in &story.forced {
            fence.forced(forced.kind.name());
        }
        let key = command.key();
        let receipt = answer.receipt.as_ref();
        let refused = receipt.is_none();
        let (state_before, revision_before) = story.before;
        let forced: Vec<String> = story.forced.iter().map(forced_text).collect();
        // Committed now, not shown again: a replay is an event of its own kind.
        let adopted = receipt.and_then(|receipt| receipt.adoption.as_ref());
        let adopted = adopted.filter(|_| story.replay == Replay::None).map(AdoptionWords::of);
        if adopted.is_some() {
            fence.adopted();
        }
        tracing::debug!(
            surface = actor.surface.name(), actor = actor.name, command = %key.command,
            "fence command answered"
        );
        audit(&AuditEvent {
            namespace: &command.namespace.to_string(),
            operation_id: &key.operation.to_string(),
            command_id: &key.command.to_string(),
            command: command.kind().name(),
            outcome: answer.code.name(),
            detail: answer.detail.map(Detail::name),
            replay: story.replay,
            revision_before: revision_before.0,
            revision_after: receipt.map(|receipt| receipt.revision_after.0),
            expected_revision: refused.then_some(command.expected_revision.0),
            state_before: state_before.name(),
            state_after: receipt.map_or(state_before, |receipt| receipt.state_after).name(),
            drain_kind: story.drain_ms.map(|_| drain_label(command.kind())),
            drain_ms: story.drain_ms,
            forced: (!forced.is_empty()).then_some(forced.join("; ")).as_deref(),
            server_instance: &self.settings.instance,
            error: if refused { answer.message.as_deref() } else { None },
            adoption: adopted.as_ref().map(AdoptionWords::event),
        });
    }
}

fn drains_reads(kind: CommandKind) -> bool {
    kind == CommandKind::SetSourceReadFence
}

/// Whether a fence stands behind the command that didn't before it.
const fn goes_up(kind: CommandKind) -> bool {
    match kind {
        CommandKind::AcquireSourceWriteFence | CommandKind::CreateTargetQuarantined => true,
        CommandKind::SetSourceReadFence
        | CommandKind::ClearSourceReadFence
        | CommandKind::ReleaseSourceWriteFence
        | CommandKind::SealTargetImport
        | CommandKind::RecordTargetValidation
        | CommandKind::PublishTargetReadableWriteFenced
        | CommandKind::EnableTargetWrites
        | CommandKind::AbortQuarantinedTarget
        | CommandKind::AdoptFence => false,
    }
}

/// What kind of drain a command's is, in metrics and audit.
pub(in crate::control) fn drain_label(kind: CommandKind) -> &'static str {
    match kind {
        CommandKind::SetSourceReadFence => "read",
        CommandKind::SealTargetImport => "import",
        CommandKind::AcquireSourceWriteFence
        | CommandKind::ClearSourceReadFence
        | CommandKind::ReleaseSourceWriteFence
        | CommandKind::CreateTargetQuarantined
        | CommandKind::RecordTargetValidation
        | CommandKind::PublishTargetReadableWriteFenced
        | CommandKind::EnableTargetWrites
        | CommandKind::AbortQuarantinedTarget
        | CommandKind::AdoptFence => "write",
    }
}

/// Whether the engine is asked for its position: of the owner's own validation alone.
fn needs_snapshot(command: &Command, record: &FenceRecord) -> bool {
    command.kind() == CommandKind::RecordTargetValidation
        && record.state == FenceState::TargetValidating
        && record.operation == command.operation
}

/// The engine's position in the database that was made for the target: before the question so that
/// nothing is written to a stranger, behind it because one may have come in between.
async fn snapshot_of(
    engine: &dyn EnginePort,
    command: &Command,
    record: &FenceRecord,
    story: &mut Story,
) -> Option<Boundary> {
    let (namespace, made) = (&command.namespace, record.identity.as_ref());
    let asked = async {
        story.stranger = is_another(engine, namespace, made).await?;
        if story.stranger.is_some() {
            return Ok(None);
        }
        let (operation, next) = (command.operation, record.revision.next());
        let marked = engine.mark_boundary(namespace, operation, next).await?;
        story.stranger = is_another(engine, namespace, made).await?;
        Ok(story.stranger.is_none().then_some(marked.boundary))
    };
    let asked: Result<_, EngineError> = asked.await;
    match asked {
        Ok(snapshot) => snapshot,
        Err(error) => {
            story.silent = Some(error);
            None
        }
    }
}

/// A validation says at which position of the target it was recorded.
fn without_snapshot(command: &Command, story: &mut Story) -> Answer {
    if let Some(refusal) = story.stranger.take() {
        return Answer::refused(refusal);
    }
    let silent = story.silent.take();
    let why = silent.map_or_else(|| "it isn't configured".to_owned(), |error| error.to_string());
    Answer::failed(format!(
        "{} on {}: nothing was changed, because the engine did not say at which position the \
         target is ({why}); send the command again when it does",
        command.kind(),
        command.namespace
    ))
}

/// A committed adoption in the words of its audit event.
struct AdoptionWords<'a> {
    adoption: &'a Adoption,
    previous: String,
    new: String,
    approvers: String,
}

impl<'a> AdoptionWords<'a> {
    fn of(adoption: &'a Adoption) -> Self {
        Self {
            adoption,
            previous: adoption.previous_operation.to_string(),
            new: adoption.new_operation.to_string(),
            approvers: adoption.approvers.join(", "),
        }
    }

    fn event(&self) -> AdoptionEvent<'_> {
        AdoptionEvent {
            previous_operation_id: &self.previous,
            new_operation_id: &self.new,
            approvers: &self.approvers,
            incident_ref: &self.adoption.incident_ref,
            reason: &self.adoption.reason,
        }
    }
}

fn forced_text(forced: &Forced) -> String {
    let session = forced.session.map_or_else(|| "direct".to_owned(), |id| format!("session {id}"));
    format!("{} of {session} (backend {})", forced.kind.name(), forced.engine_pid)
}

fn historical(receipt: Receipt) -> Answer {
    let message = format!(
        "the drain that command {} began at revision {} was superseded; this is its last answer, \
         inspect the namespace for what holds now",
        receipt.command, receipt.revision_after
    );
    Answer::with_receipt(receipt, true).because(Some(message))
}

fn needs_identity(refusal: &ControlRefusal) -> bool {
    refusal.detail == Some(Detail::NamespaceIdentityMismatch)
}

/// A command that was refused. An engine that said nothing has not said that it is another one.
fn refused(command: &Command, refusal: ControlRefusal, silent: Option<EngineError>) -> Answer {
    match silent {
        Some(error)
            if refusal.detail == Some(Detail::NamespaceIdentityMismatch)
                || refusal.detail == Some(Detail::NamespaceExists) =>
        {
            Answer::failed(format!(
                "{} on {}: nothing was changed, because the engine did not say which database it \
                 is, or that there is none ({error}); send the command again when it does",
                command.kind(),
                command.namespace
            ))
        }
        Some(_) | None => Answer::refused(refusal),
    }
}

/// A fence that doesn't go up where it was commanded.
fn not_here(line: &Line, request: Request, why: NotHere) -> Answer {
    match why {
        NotHere::Unread(error) => unread(line, request, &error),
        NotHere::Answered(answer) => *answer,
    }
}

/// The store couldn't be read. A pending commit stays pending.
fn unread(line: &Line, request: Request, error: &StoreError) -> Answer {
    if line.pending() == Some(request) {
        let mut refusal = indeterminate(line, request);
        refusal.message = format!("{} ({error})", refusal.message);
        return Answer::refused(refusal);
    }
    match error {
        StoreError::Corrupt { detail, .. } => Answer::refused(ControlRefusal {
            code: ControlCode::StateUnavailable,
            detail: Some(*detail),
            message: error.to_string(),
        }),
        StoreError::Unavailable { .. }
        | StoreError::Inconsistent { .. }
        | StoreError::BadName { .. }
        | StoreError::Schema { .. } => Answer::failed(error.to_string()),
    }
}
