//! What may be asked of a fence.
//!
//! Purpose: one shape for a mutating request, whichever surface it came from. Two surfaces that
//! parse the same request build equal [`Command`]s, and so equal fingerprints.
//!
//! Callers: `admin` (HTTP and consoles), `cli` through HTTP, `control`. Whether a command is legal
//! now is `fence::transition`'s to say; who may send it at all, `admin/auth.rs`'s.

use crate::base::ids::{CommandId, Namespace, OperationId, Revision};

use super::record::{DrainPolicy, Identity, ValidationResult};
use super::state::{FenceState, Role};

/// The eleven mutating commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CommandKind {
    /// Close writes on a source and prove the drain.
    AcquireSourceWriteFence,
    /// Close reads too, and prove the drain.
    SetSourceReadFence,
    /// Open reads again; writes stay closed.
    ClearSourceReadFence,
    /// Give the source back: a rollback before the target is enabled.
    ReleaseSourceWriteFence,
    /// Make an empty target that only its operation can reach.
    CreateTargetQuarantined,
    /// End the import for good and prove the drain.
    SealTargetImport,
    /// Record what the validation found.
    RecordTargetValidation,
    /// Open the target for reads.
    PublishTargetReadableWriteFenced,
    /// Open the target for writes. Irreversible.
    EnableTargetWrites,
    /// Give the target up.
    AbortQuarantinedTarget,
    /// Move ownership to another operation; opens nothing.
    AdoptFence,
}

impl CommandKind {
    /// All kinds in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::AcquireSourceWriteFence,
        Self::SetSourceReadFence,
        Self::ClearSourceReadFence,
        Self::ReleaseSourceWriteFence,
        Self::CreateTargetQuarantined,
        Self::SealTargetImport,
        Self::RecordTargetValidation,
        Self::PublishTargetReadableWriteFenced,
        Self::EnableTargetWrites,
        Self::AbortQuarantinedTarget,
        Self::AdoptFence,
    ];

    /// 1 to 11; part of the fingerprint, so never renumbered.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::AcquireSourceWriteFence => 1,
            Self::SetSourceReadFence => 2,
            Self::ClearSourceReadFence => 3,
            Self::ReleaseSourceWriteFence => 4,
            Self::CreateTargetQuarantined => 5,
            Self::SealTargetImport => 6,
            Self::RecordTargetValidation => 7,
            Self::PublishTargetReadableWriteFenced => 8,
            Self::EnableTargetWrites => 9,
            Self::AbortQuarantinedTarget => 10,
            Self::AdoptFence => 11,
        }
    }

    /// The stable name, such as `AcquireSourceWriteFence`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AcquireSourceWriteFence => "AcquireSourceWriteFence",
            Self::SetSourceReadFence => "SetSourceReadFence",
            Self::ClearSourceReadFence => "ClearSourceReadFence",
            Self::ReleaseSourceWriteFence => "ReleaseSourceWriteFence",
            Self::CreateTargetQuarantined => "CreateTargetQuarantined",
            Self::SealTargetImport => "SealTargetImport",
            Self::RecordTargetValidation => "RecordTargetValidation",
            Self::PublishTargetReadableWriteFenced => "PublishTargetReadableWriteFenced",
            Self::EnableTargetWrites => "EnableTargetWrites",
            Self::AbortQuarantinedTarget => "AbortQuarantinedTarget",
            Self::AdoptFence => "AdoptFence",
        }
    }

    /// What `ctl` calls it, such as `acquire-write-fence`: for people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::AcquireSourceWriteFence => "acquire-write-fence",
            Self::SetSourceReadFence => "set-read-fence",
            Self::ClearSourceReadFence => "clear-read-fence",
            Self::ReleaseSourceWriteFence => "release-write-fence",
            Self::CreateTargetQuarantined => "create-quarantined",
            Self::SealTargetImport => "seal-import",
            Self::RecordTargetValidation => "validate",
            Self::PublishTargetReadableWriteFenced => "publish",
            Self::EnableTargetWrites => "enable-writes",
            Self::AbortQuarantinedTarget => "abort",
            Self::AdoptFence => "adopt",
        }
    }

    /// Reads the name; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == text)
    }

    /// The role the command is for; `None` for adoption, which works on either.
    #[must_use]
    pub const fn role(self) -> Option<Role> {
        match self {
            Self::AcquireSourceWriteFence
            | Self::SetSourceReadFence
            | Self::ClearSourceReadFence
            | Self::ReleaseSourceWriteFence => Some(Role::Source),
            Self::CreateTargetQuarantined
            | Self::SealTargetImport
            | Self::RecordTargetValidation
            | Self::PublishTargetReadableWriteFenced
            | Self::EnableTargetWrites
            | Self::AbortQuarantinedTarget => Some(Role::Target),
            Self::AdoptFence => None,
        }
    }

    /// The state after which the same wish is ALREADY_APPLIED; `None` where repeating it is
    /// another act.
    #[must_use]
    pub const fn goal(self) -> Option<FenceState> {
        match self {
            Self::AcquireSourceWriteFence | Self::ClearSourceReadFence => {
                Some(FenceState::SourceWriteFenced)
            }
            Self::SetSourceReadFence => Some(FenceState::SourceReadFenced),
            Self::ReleaseSourceWriteFence => Some(FenceState::Released),
            Self::CreateTargetQuarantined => Some(FenceState::TargetQuarantined),
            Self::SealTargetImport => Some(FenceState::TargetValidating),
            Self::PublishTargetReadableWriteFenced => Some(FenceState::TargetWriteFenced),
            Self::EnableTargetWrites => Some(FenceState::TargetWritable),
            Self::AbortQuarantinedTarget => Some(FenceState::TargetAborted),
            Self::RecordTargetValidation | Self::AdoptFence => None,
        }
    }

    /// The state in which the command's drain runs; `None` for commands without one.
    #[must_use]
    pub const fn draining(self) -> Option<FenceState> {
        match self {
            Self::AcquireSourceWriteFence => Some(FenceState::SourceDraining),
            Self::SetSourceReadFence => Some(FenceState::SourceReadDraining),
            Self::SealTargetImport => Some(FenceState::TargetImportDraining),
            Self::ClearSourceReadFence
            | Self::ReleaseSourceWriteFence
            | Self::CreateTargetQuarantined
            | Self::RecordTargetValidation
            | Self::PublishTargetReadableWriteFenced
            | Self::EnableTargetWrites
            | Self::AbortQuarantinedTarget
            | Self::AdoptFence => None,
        }
    }
}

impl std::fmt::Display for CommandKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What a command says beyond who, where and what is expected. One variant per kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arguments {
    /// For [`CommandKind::AcquireSourceWriteFence`].
    AcquireSourceWriteFence {
        /// The database the caller means; compared with the live one.
        identity: Identity,
        /// `None` is the server's default, and a different request from naming it.
        drain_policy: Option<DrainPolicy>,
    },
    /// For [`CommandKind::SetSourceReadFence`]; readers are always cancelled at the deadline.
    SetSourceReadFence {
        /// `None` is the server's default; its `on_deadline` is ignored.
        drain_policy: Option<DrainPolicy>,
    },
    /// For [`CommandKind::ClearSourceReadFence`].
    ClearSourceReadFence,
    /// For [`CommandKind::ReleaseSourceWriteFence`].
    ReleaseSourceWriteFence,
    /// For [`CommandKind::CreateTargetQuarantined`]; each `None` is the engine's default.
    CreateTargetQuarantined {
        /// The role that shall own the database.
        owner: Option<String>,
        /// Character encoding or set.
        encoding: Option<String>,
        /// Locale or collation.
        locale: Option<String>,
        /// Template database; anything but an empty one is `restore_not_allowed`.
        template: Option<String>,
    },
    /// For [`CommandKind::SealTargetImport`].
    SealTargetImport {
        /// `None` is the server's default.
        drain_policy: Option<DrainPolicy>,
    },
    /// For [`CommandKind::RecordTargetValidation`].
    RecordTargetValidation {
        /// What came out.
        result: ValidationResult,
        /// The operation's own words.
        summary: Option<String>,
    },
    /// For [`CommandKind::PublishTargetReadableWriteFenced`].
    PublishTargetReadableWriteFenced,
    /// For [`CommandKind::EnableTargetWrites`].
    EnableTargetWrites,
    /// For [`CommandKind::AbortQuarantinedTarget`].
    AbortQuarantinedTarget,
    /// For [`CommandKind::AdoptFence`].
    AdoptFence {
        /// Whom the caller takes for the owner.
        current_operation: OperationId,
        /// Exactly two distinct people.
        approvers: Vec<String>,
        /// The incident this belongs to.
        incident_ref: String,
        /// Why.
        reason: String,
    },
}

impl Arguments {
    /// The kind these arguments are for.
    #[must_use]
    pub const fn kind(&self) -> CommandKind {
        match self {
            Self::AcquireSourceWriteFence { .. } => CommandKind::AcquireSourceWriteFence,
            Self::SetSourceReadFence { .. } => CommandKind::SetSourceReadFence,
            Self::ClearSourceReadFence => CommandKind::ClearSourceReadFence,
            Self::ReleaseSourceWriteFence => CommandKind::ReleaseSourceWriteFence,
            Self::CreateTargetQuarantined { .. } => CommandKind::CreateTargetQuarantined,
            Self::SealTargetImport { .. } => CommandKind::SealTargetImport,
            Self::RecordTargetValidation { .. } => CommandKind::RecordTargetValidation,
            Self::PublishTargetReadableWriteFenced => CommandKind::PublishTargetReadableWriteFenced,
            Self::EnableTargetWrites => CommandKind::EnableTargetWrites,
            Self::AbortQuarantinedTarget => CommandKind::AbortQuarantinedTarget,
            Self::AdoptFence { .. } => CommandKind::AdoptFence,
        }
    }
}

/// One mutating request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Which database.
    pub namespace: Namespace,
    /// On whose behalf.
    pub operation: OperationId,
    /// The request's own id: with namespace and operation, the idempotency key.
    pub command: CommandId,
    /// The state the caller saw; `UNFENCED` or `ABSENT` without a record.
    pub expected_state: FenceState,
    /// The revision the caller saw; 0 without a record.
    pub expected_revision: Revision,
    /// What is asked.
    pub arguments: Arguments,
}

impl Command {
    /// What is asked, without its arguments.
    #[must_use]
    pub const fn kind(&self) -> CommandKind {
        self.arguments.kind()
    }

    /// Operation and command id.
    #[must_use]
    pub const fn key(&self) -> CommandKey {
        CommandKey { operation: self.operation, command: self.command }
    }
}

/// The idempotency key within one namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandKey {
    /// On whose behalf.
    pub operation: OperationId,
    /// Which request.
    pub command: CommandId,
}

/// Through which door a command came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ActorSurface {
    /// The admin HTTP API; the command line uses it too.
    AdminHttp,
    /// The console for `psql`.
    ConsolePostgres,
    /// The console for `mysql`.
    ConsoleMysql,
    /// A move that this process runs itself.
    Move,
}

impl ActorSurface {
    /// The name in audit events.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AdminHttp => "admin_http",
            Self::ConsolePostgres => "console_postgres",
            Self::ConsoleMysql => "console_mysql",
            Self::Move => "move",
        }
    }
}

/// Who sent a command, for the audit trail. Not part of the fingerprint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// Through which door.
    pub surface: ActorSurface,
    /// The caller's name or address as that surface knows it.
    pub name: String,
    /// Whether the caller showed the second key, which adoptions need.
    pub has_adoption_key: bool,
}
