//! Targets: their creation on the engine, their capabilities, and questions of their validation.
//!
//! Purpose: what a target needs beyond deciding, committing and publishing (contract 1.9). A target
//! is closed before anything of it exists: overlay, marker, database, record. Whatever breaks in
//! between leaves it closed until the very command is replayed (`incomplete_target_creation`).
//!
//! Invariants: 3, 4, 10, 11, 15. Callers: `control/fences/turn.rs` (creation, under the transition
//! lock), `admin` (capabilities, questions). Sessions around the proxy aren't kept out of a target:
//! it has no engine lock (`docs/CONTRACT.md`).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::answer::{Answer, AnswerCode};
use super::fences::Control;
use super::line::Line;
use super::points::Point;
use super::port::{EnginePort, LiveDatabase};
use crate::base::arm::{Removable, removed};
use crate::base::ids::{Namespace, OperationId, Revision, SessionId};
use crate::base::limits;
use crate::engine::{CreateError, EngineError, NewDatabase, ReadError, ReadTable};
use crate::fence::code::{ControlCode, Denial, Detail};
use crate::fence::command::{Arguments, Command, CommandKind};
use crate::fence::record::{FenceRecord, Identity, InFlight, another_database};
use crate::fence::state::{FenceState, Role};
use crate::fence::transition::{ControlRefusal, ControlView};
use crate::fence::verdict::{Overlay, Purpose};
use crate::gate::capability::{Capability, IssueError, Issued};
use crate::gate::programs::Programs;
use crate::gate::registry::Gate;
use crate::store::reconcile::Reconciled;
use crate::telemetry::audit::{CapabilityEvent, audit_capability};

/// Why a capability or an answer isn't given.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TargetError {
    /// With a code of the contract.
    #[error(transparent)]
    Refused(ControlRefusal),
    /// The engine or this process couldn't; asking again is right.
    #[error("{0}")]
    Failed(String),
}

/// A question of a validation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationQuery {
    /// Whose target.
    pub namespace: Namespace,
    /// Who asks; must be the owner.
    pub operation: OperationId,
    /// The revision that the caller believes the target to be at.
    pub expected_revision: Revision,
    /// The state that the caller believes it to be in, if it says so.
    pub expected_state: Option<FenceState>,
    /// Single statements that read.
    pub statements: Vec<String>,
}

fn refused(code: ControlCode, detail: Option<Detail>, message: String) -> TargetError {
    TargetError::Refused(ControlRefusal { code, detail, message })
}

/// A capability for one question of the proxy's own; it ends with the question.
struct Lent {
    gate: Arc<Gate>,
    capability: Capability,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.gate.revoke(&self.capability);
    }
}

/// The options of a new target.
fn wanted(command: &Command) -> Option<NewDatabase> {
    match &command.arguments {
        Arguments::CreateTargetQuarantined { owner, encoding, locale, template } => {
            Some(NewDatabase {
                owner: owner.clone(),
                encoding: encoding.clone(),
                locale: locale.clone(),
                template: template.clone(),
            })
        }
        Arguments::AcquireSourceWriteFence { .. }
        | Arguments::SetSourceReadFence { .. }
        | Arguments::ClearSourceReadFence
        | Arguments::ReleaseSourceWriteFence
        | Arguments::SealTargetImport { .. }
        | Arguments::RecordTargetValidation { .. }
        | Arguments::PublishTargetReadableWriteFenced
        | Arguments::EnableTargetWrites
        | Arguments::AbortQuarantinedTarget
        | Arguments::AdoptFence { .. } => None,
    }
}

/// One creation that is under way.
struct Making<'a> {
    control: &'a Control,
    line: &'a Line,
    truth: &'a Reconciled,
    engine: Arc<dyn EnginePort>,
    /// Whether an earlier attempt left its marker: then the database may be there, or come to be.
    resumed: bool,
    /// Whether this attempt's marker may be there: from then on the gate opens only by what the
    /// store and the marker say together.
    marked: bool,
}

impl Control {
    /// Makes a new target's database behind a closed gate and a marker, so that the commit that
    /// follows makes it a target. Does nothing for other commands.
    ///
    /// # Errors
    /// The answer, where the command ends here. The gate shows then what is durable.
    ///
    /// # Cancel safety
    /// Not cancel safe; it runs on the command's own task. A death leaves the gate closed.
    pub(super) async fn make_target(
        &self,
        line: &Line,
        command: &Command,
        truth: &Reconciled,
        next: Option<&mut FenceRecord>,
    ) -> Result<(), Answer> {
        let (Some(wanted), Some(record)) = (wanted(command), next) else { return Ok(()) };
        let namespace = &command.namespace;
        let Some(engine) = self.engine_of(namespace) else {
            return Err(Answer::refused(ControlRefusal {
                code: ControlCode::PreconditionFailed,
                detail: Some(Detail::NamespaceConfigMissing),
                message: format!("there is no engine {} in the configuration", namespace.engine()),
            }));
        };
        let resumed = match truth.view {
            ControlView::UnknownUnavailable { .. } => true,
            ControlView::NoRecord { .. } | ControlView::Record(_) => false,
        };
        if !removed(Removable::TargetOverlay) {
            self.gates.gate(namespace).overlay(Overlay::CreatingTarget, InFlight::Refuse);
        }
        let mut making = Making { control: self, line, truth, engine, resumed, marked: false };
        making.must_be_unused().await?;
        Point::AfterOverlay.pass(command.kind()).await;
        making.programs_must_end().await?;
        making.make(record, &wanted).await
    }

    /// Gives out a capability. The secret is in the answer and nowhere else. Whatever the answer
    /// is, there is one audit event of it; only while fences are still being read there is none.
    ///
    /// # Errors
    /// [`TargetError`]; nothing was given.
    pub fn issue_capability(
        &self,
        namespace: &Namespace,
        purpose: Purpose,
        operation: OperationId,
        revision: Revision,
    ) -> Result<Issued, TargetError> {
        let now_ms = self.clock.now_ms();
        let answer = self.given(namespace, purpose, operation, revision, |gate| {
            gate.issue(purpose, operation, revision, now_ms)
        });
        if self.ready() {
            self.tell_capability(namespace, purpose, operation, revision, &answer);
        }
        answer
    }

    /// The audit event of a request for a capability.
    fn tell_capability(
        &self,
        namespace: &Namespace,
        purpose: Purpose,
        operation: OperationId,
        expected: Revision,
        answer: &Result<Issued, TargetError>,
    ) {
        let (outcome, detail) = match answer {
            Ok(_) => (ControlCode::Applied.name(), None),
            Err(TargetError::Refused(refusal)) => (refusal.code.name(), refusal.detail),
            Err(TargetError::Failed(_)) => (AnswerCode::Failed.name(), None),
        };
        let issued = answer.as_ref().ok();
        let error = answer.as_ref().err().map(ToString::to_string);
        let policy = self.gates.known(namespace).map(|gate| gate.published().policy.clone());
        let state = policy.as_ref().map_or(FenceState::Unfenced, |policy| policy.state);
        // What was given out says where it was given; the target may have moved since.
        let at = issued.map(|issued| issued.capability().revision());
        let at = at.or_else(|| policy.map(|policy| policy.revision)).unwrap_or(Revision(0));
        audit_capability(&CapabilityEvent {
            namespace: &namespace.to_string(),
            operation_id: &operation.to_string(),
            purpose: purpose.name(),
            outcome,
            detail: detail.map(Detail::name),
            capability: issued.map(|issued| issued.capability().number()),
            state: state.name(),
            revision: at.0,
            expected_revision: error.as_ref().map(|_| expected.0),
            server_instance: &self.settings.instance,
            error: error.as_deref(),
        });
    }

    /// What a gate gives, or why not, in the contract's words.
    fn given<T>(
        &self,
        namespace: &Namespace,
        purpose: Purpose,
        operation: OperationId,
        revision: Revision,
        give: impl FnOnce(&Gate) -> Result<T, IssueError>,
    ) -> Result<T, TargetError> {
        if !self.ready() {
            let words =
                "fences are still being read from the store; ask again when /readyz says so";
            return Err(TargetError::Failed(words.to_owned()));
        }
        let none = || {
            let message = format!(
                "{namespace} is no target, so there is nothing to {}; create it first",
                verb(purpose)
            );
            refused(ControlCode::CapabilityRequired, None, message)
        };
        // Looking makes no gate: names that nobody has would fill the table.
        let gate = self.gates.known(namespace).ok_or_else(none)?;
        give(&gate).map_err(|error| {
            let policy = &gate.published().policy;
            let at =
                format!("{namespace} is in state {} at revision {}", policy.state, policy.revision);
            match error {
                IssueError::NotNow { denial: Denial::StateUnavailable, .. } => {
                    let line = self.line(namespace);
                    let detail = match line.pending() {
                        Some(_) => Some(Detail::IndeterminateCommit),
                        None => line.unavailable().map(|(detail, _)| detail),
                    };
                    let message = format!("{at}: {error}; inspect it");
                    refused(ControlCode::StateUnavailable, detail, message)
                }
                IssueError::NotNow { .. } => refused(
                    ControlCode::CapabilityRequired,
                    None,
                    format!("{at}, where nobody may {} it", verb(purpose)),
                ),
                IssueError::OtherOwner => refused(
                    ControlCode::OwnedByAnotherOperation,
                    None,
                    format!("{namespace} is owned by another operation than {operation}"),
                ),
                IssueError::OtherRevision { .. } => refused(
                    ControlCode::RevisionMismatch,
                    None,
                    format!("{at}, not at {revision}; inspect it and ask anew"),
                ),
                IssueError::TooMany => refused(
                    ControlCode::PreconditionFailed,
                    Some(Detail::InvalidArgument),
                    error.to_string(),
                ),
                IssueError::TooManyQuestions | IssueError::NoRandom(_) => {
                    TargetError::Failed(error.to_string())
                }
            }
        })
    }

    /// Answers a question of a validation: all of it or none.
    ///
    /// # Errors
    /// [`TargetError`]: OPERATION_CAPABILITY_REQUIRED for what writes, in other states, and where
    /// imported code could run with the control account's rights, FENCE_REVISION_MISMATCH where the
    /// target has moved, also while the question was answered; `namespace_identity_mismatch` where
    /// another database answers to the name, before the question or behind it; `invalid_argument`
    /// for SQL that can't be run and answers that are too large.
    ///
    /// # Cancel safety
    /// Cancel safe: the question's own connection is closed.
    pub async fn validation_query(
        &self,
        query: &ValidationQuery,
    ) -> Result<Vec<ReadTable>, TargetError> {
        let namespace = &query.namespace;
        let invalid = |message: String| {
            refused(ControlCode::PreconditionFailed, Some(Detail::InvalidArgument), message)
        };
        let asked = query.statements.len();
        if asked == 0 || asked > limits::VALIDATION_STATEMENTS_MAX {
            let most = limits::VALIDATION_STATEMENTS_MAX;
            return Err(invalid(format!("stmts has {asked} statements; send 1 to {most}")));
        }
        let (operation, revision) = (query.operation, query.expected_revision);
        let purpose = Purpose::Validation;
        let capability = self.given(namespace, purpose, operation, revision, |gate| {
            gate.lend(purpose, operation, revision)
        })?;
        let gate = self.gates.gate(namespace);
        let lent = Lent { gate: Arc::clone(&gate), capability };
        let state = gate.published().policy.state;
        if query.expected_state.is_some_and(|expected| expected != state) {
            let message = format!("{namespace} is in state {state}; inspect it and ask anew");
            return Err(refused(ControlCode::RevisionMismatch, None, message));
        }
        let Some(engine) = self.engine_of(namespace) else {
            let message = format!("there is no engine {} in the configuration", namespace.engine());
            return Err(TargetError::Failed(message));
        };
        let identity = self.made_as(namespace).await?;
        // Before it: nothing is asked of a stranger. Behind it: none came in between.
        must_be(engine.as_ref(), namespace, identity.as_ref()).await?;
        let answered = engine.read(namespace, &query.statements).await;
        let tables = answered.map_err(|error| match error {
            ReadError::Writes { .. } | ReadError::ImportedCode { .. } => {
                refused(ControlCode::CapabilityRequired, None, error.to_string())
            }
            ReadError::Sql { .. } | ReadError::TooManyRows | ReadError::TooManyBytes => {
                invalid(error.to_string())
            }
            ReadError::Engine(error) => TargetError::Failed(error.to_string()),
        })?;
        must_be(engine.as_ref(), namespace, identity.as_ref()).await?;
        if !lent.capability.is_live() {
            let message = format!(
                "{namespace} moved on while the question was answered, so the answer is not given; \
                 inspect it and ask anew"
            );
            return Err(refused(ControlCode::RevisionMismatch, None, message));
        }
        Ok(tables)
    }

    /// The database that was made for a target, by its record; `None` for one of an earlier build.
    async fn made_as(&self, namespace: &Namespace) -> Result<Option<Identity>, TargetError> {
        let truth = self.truth(namespace, false).await;
        let truth = truth.map_err(|error| TargetError::Failed(error.to_string()))?;
        Ok(truth.view.record().and_then(|record| record.identity.clone()))
    }
}

/// Whether the database behind a target's name is the one that was made for it, by the engine's own
/// word now; if not, why. Where the record doesn't say which was made there is nothing to compare.
///
/// # Errors
/// The engine's: nothing is known then.
pub(super) async fn is_another(
    engine: &dyn EnginePort,
    namespace: &Namespace,
    made: Option<&Identity>,
) -> Result<Option<ControlRefusal>, EngineError> {
    let Some(made) = made.filter(|_| !removed(Removable::TargetIdentity)) else {
        return Ok(None);
    };
    let message = match engine.identity(namespace).await? {
        LiveDatabase::Exists(live) if made.is_met_by(&live) => return Ok(None),
        LiveDatabase::Exists(live) => another_database(namespace, Some(Role::Target), made, &live),
        LiveDatabase::Missing => format!(
            "there is no database behind {namespace} any more; the target was made as {made}. \
             Have the name lead to that database again, or abort this target and create another"
        ),
    };
    let (code, detail) = (ControlCode::PreconditionFailed, Detail::NamespaceIdentityMismatch);
    Ok(Some(ControlRefusal { code, detail: Some(detail), message }))
}

async fn must_be(
    engine: &dyn EnginePort,
    namespace: &Namespace,
    made: Option<&Identity>,
) -> Result<(), TargetError> {
    match is_another(engine, namespace, made).await {
        Ok(None) => Ok(()),
        Ok(Some(refusal)) => Err(TargetError::Refused(refusal)),
        Err(error) => Err(TargetError::Failed(error.to_string())),
    }
}

const fn verb(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Import => "import into",
        Purpose::Validation => "validate",
    }
}

fn still_running(left: &[SessionId]) -> String {
    let named = left.iter().take(limits::TARGET_PROGRAMS_NAMED_MAX);
    let named: Vec<_> = named.map(SessionId::to_string).collect();
    let more = match left.len().saturating_sub(named.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "programs that ran on this engine before the name was closed may reach it, and have not \
         ended within {} s: those of sessions {}{more}; wait for them or end them, then send the \
         command again",
        limits::TARGET_PROGRAMS_WAIT_MS / 1000,
        named.join(", ")
    )
}

impl Making<'_> {
    /// Behind the overlay once more: somebody may have come in front of it. What an earlier attempt
    /// has left was closed all the time, so whoever sits there has done nothing.
    async fn must_be_unused(&self) -> Result<(), Answer> {
        let there = self.control.gates.known(&self.line.namespace);
        if self.resumed || there.is_none_or(|gate| gate.session_count() == 0) {
            return Ok(());
        }
        Err(self.exists("sessions came to this name while it was being closed").await)
    }

    /// Waits for what ran on this engine when the gate closed, where a program of one database may
    /// reach every other: it was admitted without a lease here, and must not write behind the seal.
    /// What begins from here on asks at this gate. The bound ends the wait, and proves nothing.
    async fn programs_must_end(&self) -> Result<(), Answer> {
        if !self.engine.reaches_every_database() || removed(Removable::TargetPrograms) {
            return Ok(());
        }
        let mut programs = Programs::on(&self.control.gates, self.line.namespace.engine());
        let until = Instant::now() + Duration::from_millis(limits::TARGET_PROGRAMS_WAIT_MS);
        let mut pause = Duration::from_millis(limits::DRAIN_LOOK_FIRST_MS);
        loop {
            let left = programs.left();
            if left.is_empty() {
                return Ok(());
            }
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return Err(self.exists(&still_running(&left)).await);
            }
            tokio::time::sleep(pause.min(rest)).await;
            pause = (pause * 2).min(Duration::from_millis(limits::DRAIN_LOOK_MAX_MS));
        }
    }

    async fn make(&mut self, record: &mut FenceRecord, wanted: &NewDatabase) -> Result<(), Answer> {
        let namespace = &self.line.namespace;
        // Behind the overlay: nobody can have come to it through the proxy since.
        let there = match self.engine.identity(namespace).await {
            Ok(LiveDatabase::Missing) => None,
            Ok(LiveDatabase::Exists(identity)) if self.resumed => Some(identity),
            Ok(LiveDatabase::Exists(_)) => return Err(self.exists("it exists").await),
            Err(error) => return Err(self.failed(&error.to_string()).await),
        };
        if let Some(identity) = there {
            // Asked first: what is looked into is this one, or one that came in its place.
            self.must_be_empty().await?;
            return self.identify(record, identity).await;
        }
        self.marked = true;
        let marked = match removed(Removable::TargetMarker) {
            true => Ok(()),
            false => self.control.markers.write(record).await,
        };
        if let Err(error) = marked {
            return Err(self.failed(&error.to_string()).await);
        }
        let kind = CommandKind::CreateTargetQuarantined;
        Point::AfterFirstMarker.pass(kind).await;
        let made = self.engine.create(namespace, wanted).await;
        Point::AfterCreate.pass(kind).await;
        let error = match made {
            Ok(()) => return self.identify_made(record).await,
            Err(error) => error,
        };
        tracing::warn!(%namespace, %error, "the target's database was not made");
        // Only a first attempt that is known to have made nothing takes its marker back: an
        // earlier one's database may still come to be, and must not find its name open.
        match error {
            CreateError::Unknown(_) => Err(self.failed(&error.to_string()).await),
            CreateError::Exists { .. } if self.resumed => {
                Err(self.failed(&error.to_string()).await)
            }
            CreateError::Exists { .. } => {
                self.take_marker_back().await;
                Err(self.exists(&error.to_string()).await)
            }
            CreateError::NotAsked(_) => {
                self.take_marker_back().await;
                Err(self.failed(&error.to_string()).await)
            }
            CreateError::Refused { .. } => {
                self.take_marker_back().await;
                Err(self.refuse(Detail::InvalidArgument, &error.to_string()).await)
            }
        }
    }

    /// Asks which database was made.
    async fn identify_made(&mut self, record: &mut FenceRecord) -> Result<(), Answer> {
        match self.engine.identity(&self.line.namespace).await {
            Ok(LiveDatabase::Exists(identity)) => self.identify(record, identity).await,
            Ok(LiveDatabase::Missing) => {
                Err(self.failed("the database that was made is not there any more").await)
            }
            Err(error) => Err(self.failed(&error.to_string()).await),
        }
    }

    /// Has the record say which database it is of, as a source's does: what is proven later must be
    /// of that one (invariant 8). The marker is what will be committed, to the letter: of a row and
    /// a marker that differ at one revision nobody could say which is right.
    async fn identify(
        &mut self,
        record: &mut FenceRecord,
        identity: Identity,
    ) -> Result<(), Answer> {
        record.identity = Some(identity);
        if removed(Removable::TargetMarker) {
            return Ok(());
        }
        self.marked = true;
        match self.control.markers.write(record).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.failed(&error.to_string()).await),
        }
    }

    /// An earlier attempt's database, or somebody's that came in between: a target starts empty.
    async fn must_be_empty(&self) -> Result<(), Answer> {
        match self.engine.holds_anything(&self.line.namespace).await {
            Ok(false) => Ok(()),
            Ok(true) => {
                let words = "the database is there and is not empty, so it is not the one that \
                             this command made; look whose it is, and drop or rename it";
                Err(self.exists(words).await)
            }
            Err(error) => Err(self.failed(&error.to_string()).await),
        }
    }

    /// Only where it is known that this attempt made nothing.
    async fn take_marker_back(&mut self) {
        if self.resumed {
            return;
        }
        let namespace = &self.line.namespace;
        match self.control.markers.remove(namespace).await {
            Ok(()) => self.marked = false,
            Err(error) => tracing::warn!(
                %namespace, %error,
                "the marker of a creation that came to nothing could not be removed; the name \
                 stays closed; replay the command"
            ),
        }
    }

    async fn settle(&self) {
        match self.marked {
            true => self.control.settle_on_store(self.line).await,
            false => self.control.settle_after_failure(self.line, self.truth).await,
        }
    }

    async fn refuse(&self, detail: Detail, words: &str) -> Answer {
        self.settle().await;
        let (kind, namespace) = (CommandKind::CreateTargetQuarantined, &self.line.namespace);
        Answer::refused(ControlRefusal {
            code: ControlCode::PreconditionFailed,
            detail: Some(detail),
            message: format!("{kind} on {namespace}: {words}; nothing was committed"),
        })
    }

    async fn exists(&self, words: &str) -> Answer {
        self.refuse(Detail::NamespaceExists, words).await
    }

    async fn failed(&self, words: &str) -> Answer {
        self.settle().await;
        Answer::failed(format!(
            "{} on {}: nothing was committed ({words}); replay the command. Until it is committed \
             the name is closed wherever its creation has begun",
            CommandKind::CreateTargetQuarantined,
            self.line.namespace
        ))
    }
}
