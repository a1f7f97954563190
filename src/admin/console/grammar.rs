//! The consoles' one grammar: text to statement, and back.
//!
//! Purpose: `psql` and `mysql` say the same words and get the same statement, and so the same
//! `fence::Command`. A mistake names what was expected, what was found, and where. What isn't in
//! this grammar (a driver's questions at connect, catalog queries) is [`Statement::Other`], for
//! `console/chatter.rs`.
//!
//! Invariant: what [`Statement::written`] prints parses to the same statement (`grammar/tests.rs`,
//! `console/fuzzing.rs`). Pure. Callers: the rest of `admin/console`. It doesn't know what may be
//! done now; that is `fence::transition`'s.

mod lexer;
mod parse;
mod print;

#[cfg(test)]
mod tests;

use crate::base::ids::{CommandId, Namespace, OperationId, Revision};
use crate::base::secret::Secret;
use crate::fence::command::{Arguments, CommandKind};
use crate::fence::record::{DrainPolicy, Identity, InFlight, OnDeadline, ValidationResult};
use crate::fence::state::FenceState;
use crate::fence::verdict::Purpose;

pub use parse::parse;
pub use print::Keys;

/// A drain policy's deadline where a statement asks for a policy without naming one, in
/// milliseconds; the same as `ctl`'s.
const DEADLINE_DEFAULT_MS: u64 = 30_000;

/// How literals are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// A backslash is a character like any other.
    Postgres,
    /// A backslash escapes the next character.
    Mysql,
}

/// What is wrong with a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Where, in characters from 1.
    pub position: usize,
    /// What was expected and what was found.
    pub message: String,
    /// Whether the words are right and a value isn't: then it is a bad argument.
    pub is_value: bool,
}

/// One statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// Blanks, comments, semicolons.
    Empty,
    /// `SHOW …` of ours.
    Show(Show),
    /// `INSPECT 'old/app'`
    Inspect(Namespace),
    /// `FENCE …`
    Fence(Box<FenceStatement>),
    /// `FENCE IMPORT CAPABILITY …`
    Capability(CapabilityStatement),
    /// None of ours: what clients ask of a database.
    Other,
}

/// What `SHOW` shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Show {
    /// Every namespace with a fence, a session or a route.
    Namespaces,
    /// Those with a fence.
    Fences,
    /// Those that are targets, and their live capabilities.
    Targets,
    /// Client sessions.
    Sessions,
    /// What drains wait for.
    Drains,
    /// Receipts of one namespace, or of all with a fence.
    Receipts(Option<Namespace>),
    /// What this build and process can do.
    Capabilities,
    /// The statements there are.
    Help,
    /// The version.
    Version,
    /// The settings, without secrets.
    Config,
    /// Every metric.
    Stats,
    /// The same with every column.
    Verbose(Box<Show>),
}

/// A fence command as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FenceStatement {
    /// Which command.
    pub kind: CommandKind,
    /// Which database.
    pub namespace: Namespace,
    /// On whose behalf.
    pub operation: OperationId,
    /// The request's id; `None`: a new one is made.
    pub command: Option<CommandId>,
    /// What the fence is expected to be; `None`: what it is.
    pub expect: Option<(FenceState, Revision)>,
    /// Which database is meant; `None`: the live one.
    pub identity: Option<Identity>,
    /// The drain's deadline in milliseconds.
    pub deadline_ms: Option<u64>,
    /// Whether what outlives the deadline is rolled back.
    pub force_rollback: bool,
    /// What transactions from before the fence may do.
    pub in_flight: Option<InFlight>,
    /// How long refused programs are held, in milliseconds.
    pub hold_ms: Option<u64>,
    /// Whether a release is meant although a target of the operation takes writes.
    pub beside_target: bool,
    /// Who takes over, for an adoption.
    pub adoption: Option<AdoptionClauses>,
    /// How a target is made.
    pub target: TargetClauses,
    /// What a validation found.
    pub validation: Option<(ValidationResult, Option<String>)>,
}

/// A wish for a capability of a target. No command: it changes no record, and has no id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapabilityStatement {
    /// Which target.
    pub namespace: Namespace,
    /// The operation that owns it.
    pub operation: OperationId,
    /// What it shall admit.
    pub purpose: Purpose,
    /// At which revision; `None`: at the target's own.
    pub revision: Option<Revision>,
}

/// The words behind `FENCE` of a wish for a capability.
pub(super) const CAPABILITY_WORDS: [&str; 2] = ["IMPORT", "CAPABILITY"];

/// Its clauses as written; the first is required.
pub(super) const CAPABILITY_CLAUSES: [&str; 3] =
    ["OPERATION 'uuid'", "[PURPOSE IMPORT|VALIDATION]", "[REVISION n]"];

/// The clauses of an adoption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptionClauses {
    /// Whom the caller takes for the owner.
    pub from: OperationId,
    /// Who approved.
    pub approvers: Vec<String>,
    /// The incident.
    pub incident: String,
    /// Why.
    pub reason: String,
    /// The second key; a replay needs none.
    pub key: Option<Secret>,
}

/// The clauses of a target's creation; each `None` is the engine's default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TargetClauses {
    /// The role that shall own the database.
    pub owner: Option<String>,
    /// Character encoding or set.
    pub encoding: Option<String>,
    /// Locale or collation.
    pub locale: Option<String>,
    /// Template database.
    pub template: Option<String>,
}

impl FenceStatement {
    /// `None` where no clause asks for a policy: the proxy's defaults are then used.
    fn drain_policy(&self) -> Option<DrainPolicy> {
        let asked = self.deadline_ms.is_some()
            || self.force_rollback
            || self.hold_ms.is_some()
            || self.in_flight.is_some();
        asked.then(|| DrainPolicy {
            deadline_ms: self.deadline_ms.unwrap_or(DEADLINE_DEFAULT_MS),
            on_deadline: match self.force_rollback {
                true => OnDeadline::ForceRollback,
                false => OnDeadline::Fail,
            },
            in_flight: self.in_flight,
            hold_ms: self.hold_ms,
        })
    }

    /// The command's arguments; `live` is the database as it is now, for an acquire without one.
    ///
    /// `None` when an acquire has no identity at all, or a clause that the grammar requires is
    /// missing, which [`parse()`] never leaves so.
    #[must_use]
    pub fn arguments(&self, live: Option<&Identity>) -> Option<Arguments> {
        Some(match self.kind {
            CommandKind::AcquireSourceWriteFence => Arguments::AcquireSourceWriteFence {
                identity: self.identity.as_ref().or(live)?.clone(),
                drain_policy: self.drain_policy(),
            },
            CommandKind::SetSourceReadFence => {
                Arguments::SetSourceReadFence { drain_policy: self.drain_policy() }
            }
            CommandKind::ClearSourceReadFence => Arguments::ClearSourceReadFence,
            CommandKind::ReleaseSourceWriteFence => Arguments::ReleaseSourceWriteFence,
            CommandKind::CreateTargetQuarantined => {
                let TargetClauses { owner, encoding, locale, template } = self.target.clone();
                Arguments::CreateTargetQuarantined { owner, encoding, locale, template }
            }
            CommandKind::SealTargetImport => {
                Arguments::SealTargetImport { drain_policy: self.drain_policy() }
            }
            CommandKind::RecordTargetValidation => {
                let (result, summary) = self.validation.clone()?;
                Arguments::RecordTargetValidation { result, summary }
            }
            CommandKind::PublishTargetReadableWriteFenced => {
                Arguments::PublishTargetReadableWriteFenced
            }
            CommandKind::EnableTargetWrites => Arguments::EnableTargetWrites,
            CommandKind::AbortQuarantinedTarget => Arguments::AbortQuarantinedTarget,
            CommandKind::AdoptFence => {
                let adoption = self.adoption.clone()?;
                Arguments::AdoptFence {
                    current_operation: adoption.from,
                    approvers: adoption.approvers,
                    incident_ref: adoption.incident,
                    reason: adoption.reason,
                }
            }
        })
    }
}

/// The two words, or one, that name each command behind `FENCE`.
pub(super) const fn words(kind: CommandKind) -> &'static [&'static str] {
    match kind {
        CommandKind::AcquireSourceWriteFence => &["ACQUIRE", "WRITE"],
        CommandKind::SetSourceReadFence => &["SET", "READ"],
        CommandKind::ClearSourceReadFence => &["CLEAR", "READ"],
        CommandKind::ReleaseSourceWriteFence => &["RELEASE", "WRITE"],
        CommandKind::CreateTargetQuarantined => &["CREATE", "TARGET"],
        CommandKind::SealTargetImport => &["SEAL", "IMPORT"],
        CommandKind::RecordTargetValidation => &["RECORD", "VALIDATION"],
        CommandKind::PublishTargetReadableWriteFenced => &["PUBLISH"],
        CommandKind::EnableTargetWrites => &["ENABLE", "WRITES"],
        CommandKind::AbortQuarantinedTarget => &["ABORT"],
        CommandKind::AdoptFence => &["ADOPT"],
    }
}

/// The clauses there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clause {
    Operation,
    Command,
    Expect,
    Identity,
    Deadline,
    Force,
    InFlight,
    Hold,
    Beside,
    From,
    Approvers,
    Incident,
    Reason,
    Key,
    Owner,
    Encoding,
    Locale,
    Template,
    Result,
    Summary,
}

impl Clause {
    /// The word it begins with.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Operation => "OPERATION",
            Self::Command => "COMMAND",
            Self::Expect => "EXPECT",
            Self::Identity => "IDENTITY",
            Self::Deadline => "DEADLINE",
            Self::Force => "FORCE",
            Self::InFlight => "IN",
            Self::Hold => "HOLD",
            Self::Beside => "BESIDE",
            Self::From => "FROM",
            Self::Approvers => "APPROVERS",
            Self::Incident => "INCIDENT",
            Self::Reason => "REASON",
            Self::Key => "KEY",
            Self::Owner => "OWNER",
            Self::Encoding => "ENCODING",
            Self::Locale => "LOCALE",
            Self::Template => "TEMPLATE",
            Self::Result => "RESULT",
            Self::Summary => "SUMMARY",
        }
    }

    /// How it is written, for help and errors.
    pub(super) const fn form(self) -> &'static str {
        match self {
            Self::Operation => "OPERATION 'uuid'",
            Self::Command => "COMMAND 'uuid'",
            Self::Expect => "EXPECT STATE name REVISION n",
            Self::Identity => "IDENTITY 'engine id' DATABASE 'id' [TIMELINE n]",
            Self::Deadline => "DEADLINE 30s",
            Self::Force => "FORCE ROLLBACK",
            Self::InFlight => "IN FLIGHT FINISH|REFUSE",
            Self::Hold => "HOLD 2s",
            Self::Beside => "BESIDE TARGET",
            Self::From => "FROM 'uuid of the owner'",
            Self::Approvers => "APPROVERS 'name', 'name'",
            Self::Incident => "INCIDENT 'text'",
            Self::Reason => "REASON 'text'",
            Self::Key => "KEY 'the adoption key'",
            Self::Owner => "OWNER 'role'",
            Self::Encoding => "ENCODING 'name'",
            Self::Locale => "LOCALE 'name'",
            Self::Template => "TEMPLATE 'name'",
            Self::Result => "RESULT OK|FAILED",
            Self::Summary => "SUMMARY 'text'",
        }
    }

    /// Whether a command that knows this clause can't be without it.
    pub(super) const fn is_required(self) -> bool {
        matches!(
            self,
            Self::Operation
                | Self::From
                | Self::Approvers
                | Self::Incident
                | Self::Reason
                | Self::Result
        )
    }
}

/// The clauses that a command takes, in the order in which they are printed.
pub(super) const fn clauses(kind: CommandKind) -> &'static [Clause] {
    use Clause::{
        Approvers, Beside, Command, Deadline, Encoding, Expect, Force, From, Hold, Identity,
        InFlight, Incident, Key, Locale, Operation, Owner, Reason, Result, Summary, Template,
    };
    match kind {
        CommandKind::AcquireSourceWriteFence => {
            &[Operation, Command, Expect, Identity, Deadline, Force, InFlight, Hold]
        }
        CommandKind::SetSourceReadFence => &[Operation, Command, Expect, Deadline],
        CommandKind::SealTargetImport => &[Operation, Command, Expect, Deadline, Force],
        CommandKind::ClearSourceReadFence
        | CommandKind::PublishTargetReadableWriteFenced
        | CommandKind::EnableTargetWrites
        | CommandKind::AbortQuarantinedTarget => &[Operation, Command, Expect],
        CommandKind::ReleaseSourceWriteFence => &[Operation, Command, Expect, Beside],
        CommandKind::CreateTargetQuarantined => {
            &[Operation, Command, Expect, Owner, Encoding, Locale, Template]
        }
        CommandKind::RecordTargetValidation => &[Operation, Command, Expect, Result, Summary],
        CommandKind::AdoptFence => {
            &[Operation, Command, Expect, From, Approvers, Incident, Reason, Key]
        }
    }
}

/// How a command is written, such as `FENCE PUBLISH ON 'engine/database' OPERATION 'uuid' […]`, in
/// its parts: what it begins with, and each clause.
pub(super) fn form(kind: CommandKind) -> Vec<String> {
    let head = format!("FENCE {} ON 'engine/database'", words(kind).join(" "));
    let clause = |clause: &Clause| match clause.is_required() {
        true => clause.form().to_owned(),
        false => format!("[{}]", clause.form()),
    };
    std::iter::once(head).chain(clauses(kind).iter().map(clause)).collect()
}

/// The same of a wish for a capability.
pub(super) fn capability_form() -> Vec<String> {
    let head = format!("FENCE {} ON 'engine/database'", CAPABILITY_WORDS.join(" "));
    std::iter::once(head).chain(CAPABILITY_CLAUSES.map(str::to_owned)).collect()
}
