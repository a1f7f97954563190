//! The one table of codes: what a refusal is called on every surface.
//!
//! Purpose: SQLSTATE, MySQL error number, stable code, detail and HTTP status of a refusal are
//! written once, here. The PostgreSQL and MySQL wires, the consoles and the admin HTTP server read
//! this table; `docs/CODES.md` is generated from it and compared by a test.
//!
//! Invariant 14: every refusal has a stable code on every surface. Data-plane denials are never
//! 5xx, and never use a SQLSTATE class that drivers retry or fail over on (08, 40, 53, 57, 25).
//!
//! Callers: `fence::transition`, `gate`, `wire`, `admin`. It does not decide anything and it does
//! not format whole messages: names of namespaces and owners are added by the surface.

/// Why a client's program was not admitted. Numbered `ZF001` to `ZF013`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Denial {
    /// A write or DDL at a closed write gate.
    WriteFenced,
    /// The gate is open, but the transaction or program is of an older generation.
    StaleTransaction,
    /// A read, dump or stream at a closed read gate.
    ReadFenced,
    /// Anything at a target that isn't published, or was aborted.
    TargetQuarantined,
    /// The control state of the namespace can't be established.
    StateUnavailable,
    /// Import or validation work without a live capability.
    CapabilityRequired,
    /// CREATE, DROP or ALTER of a database, or settings that touch a fenced namespace.
    Lifecycle,
    /// A statement that may write and that the engine-side guard can't cover.
    Unprovable,
    /// First program after the fence rolled its transaction back.
    RolledBack,
    /// A held program's time ran out, or there was no room to hold it.
    HoldExpired,
    /// Key-level fence: who owns the key isn't settled yet.
    CutoverPending,
    /// Key-level fence: the caller's placement is of an older generation.
    StaleTopology,
    /// Execution fence: the execution is proof-only or locked.
    ExecutionFenced,
}

impl Denial {
    /// All denials in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::WriteFenced,
        Self::StaleTransaction,
        Self::ReadFenced,
        Self::TargetQuarantined,
        Self::StateUnavailable,
        Self::CapabilityRequired,
        Self::Lifecycle,
        Self::Unprovable,
        Self::RolledBack,
        Self::HoldExpired,
        Self::CutoverPending,
        Self::StaleTopology,
        Self::ExecutionFenced,
    ];

    const fn row(self) -> &'static DenialRow {
        match self {
            Self::WriteFenced => &DENIALS[0],
            Self::StaleTransaction => &DENIALS[1],
            Self::ReadFenced => &DENIALS[2],
            Self::TargetQuarantined => &DENIALS[3],
            Self::StateUnavailable => &DENIALS[4],
            Self::CapabilityRequired => &DENIALS[5],
            Self::Lifecycle => &DENIALS[6],
            Self::Unprovable => &DENIALS[7],
            Self::RolledBack => &DENIALS[8],
            Self::HoldExpired => &DENIALS[9],
            Self::CutoverPending => &DENIALS[10],
            Self::StaleTopology => &DENIALS[11],
            Self::ExecutionFenced => &DENIALS[12],
        }
    }

    /// The five-character SQLSTATE, such as `ZF001`.
    #[must_use]
    pub const fn sqlstate(self) -> &'static str {
        self.row().sqlstate
    }

    /// The MySQL error number, such as 9701.
    #[must_use]
    pub const fn errno(self) -> u16 {
        self.row().errno
    }

    /// The stable code that clients match, such as `MIGRATION_WRITE_FENCED`.
    #[must_use]
    pub const fn code(self) -> &'static str {
        self.row().code
    }

    /// The fixed detail under the code, where the denial has one.
    ///
    /// [`Denial::StateUnavailable`] has none here: its detail is the reason found at run time.
    #[must_use]
    pub const fn detail(self) -> Option<&'static str> {
        self.row().detail
    }

    /// What happened, as one sentence without names.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        self.row().sentence
    }

    /// What the client, or the person behind it, should do.
    #[must_use]
    pub const fn hint(self) -> &'static str {
        self.row().hint
    }

    /// The HTTP status of the admin surface; never 5xx.
    #[must_use]
    pub const fn http_status(self) -> u16 {
        self.row().http_status
    }
}

struct DenialRow {
    sqlstate: &'static str,
    errno: u16,
    code: &'static str,
    detail: Option<&'static str>,
    http_status: u16,
    sentence: &'static str,
    hint: &'static str,
}

const DENIALS: [DenialRow; 13] = [
    DenialRow {
        sqlstate: "ZF001",
        errno: 9701,
        code: "MIGRATION_WRITE_FENCED",
        detail: None,
        http_status: 423,
        sentence: "writes are fenced while this database is being moved",
        hint: "Do not retry blindly; reconnect when the operator says the move is over.",
    },
    DenialRow {
        sqlstate: "ZF002",
        errno: 9702,
        code: "MIGRATION_WRITE_FENCED",
        detail: Some("stale_transaction"),
        http_status: 423,
        sentence: "this transaction began before a fence went up or was lifted, and may not write",
        hint: "Roll back and begin a new transaction.",
    },
    DenialRow {
        sqlstate: "ZF003",
        errno: 9703,
        code: "MIGRATION_READ_FENCED",
        detail: None,
        http_status: 423,
        sentence: "reads are fenced while this database is moved, or this one was cut by a fence",
        hint: "Connect to where the database has moved; retrying here does not help.",
    },
    DenialRow {
        sqlstate: "ZF004",
        errno: 9704,
        code: "MIGRATION_TARGET_QUARANTINED",
        detail: None,
        http_status: 423,
        sentence: "this database is the target of a move and is not published",
        hint: "Use the source until this target is published; an aborted one never is.",
    },
    DenialRow {
        sqlstate: "ZF005",
        errno: 9705,
        code: "FENCE_STATE_UNAVAILABLE",
        detail: None,
        http_status: 423,
        sentence: "the fence state of this database cannot be established, so nothing is admitted",
        hint: "Ask the operator to run inspect on this namespace: it says why, and what to do.",
    },
    DenialRow {
        sqlstate: "ZF006",
        errno: 9706,
        code: "OPERATION_CAPABILITY_REQUIRED",
        detail: None,
        http_status: 403,
        sentence: "this needs a live capability of this very target; a validation's never writes",
        hint: "Ask its operation for one: for import before the seal, for validation behind it.",
    },
    DenialRow {
        sqlstate: "ZF007",
        errno: 9707,
        code: "MIGRATION_WRITE_FENCED",
        detail: Some("lifecycle"),
        http_status: 423,
        sentence: "what creates, drops or alters databases is refused while one of them is fenced",
        hint: "Wait until the move is over; do not work around the proxy.",
    },
    DenialRow {
        sqlstate: "ZF008",
        errno: 9708,
        code: "MIGRATION_WRITE_FENCED",
        detail: Some("unprovable"),
        http_status: 423,
        sentence: "this statement may write, and nothing in the engine would stop it",
        hint: "Check its spelling, make it a plain read, trust its function, or wait.",
    },
    DenialRow {
        sqlstate: "ZF009",
        errno: 9709,
        code: "TRANSACTION_ROLLED_BACK_BY_FENCE",
        detail: None,
        http_status: 423,
        sentence: "a fence rolled back the transaction that was open in this session",
        hint: "Begin anew once the database admits it; what commits by itself may stay.",
    },
    DenialRow {
        sqlstate: "ZF010",
        errno: 9710,
        code: "FENCE_HOLD_EXPIRED",
        detail: None,
        http_status: 423,
        sentence: "the statement waited for a fence to lift, and its time or the room ran out",
        hint: "Retry later; the statement was not sent to the engine.",
    },
    DenialRow {
        sqlstate: "ZF011",
        errno: 9711,
        code: "MIGRATION_CUTOVER_PENDING",
        detail: None,
        http_status: 423,
        sentence: "who owns this key is not settled yet",
        hint: "Retry; the cutover of this key is still running.",
    },
    DenialRow {
        sqlstate: "ZF012",
        errno: 9712,
        code: "STALE_TOPOLOGY",
        detail: None,
        http_status: 423,
        sentence: "the placement used for this statement is of an older generation",
        hint: "Reload the placement, then retry.",
    },
    DenialRow {
        sqlstate: "ZF013",
        errno: 9713,
        code: "EXECUTION_FENCED",
        detail: None,
        http_status: 423,
        sentence: "the execution this statement belongs to is fenced",
        hint: "Follow what the named state of the execution allows.",
    },
];

/// The outcome of a control command, success or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ControlCode {
    /// The transition committed, or this is the replay of one that did.
    Applied,
    /// The owner asked for the state the record is already in.
    AlreadyApplied,
    /// Admission is closed and durable; the drain isn't proven yet.
    Draining,
    /// The record belongs to another operation that isn't finished.
    OwnedByAnotherOperation,
    /// `expected_state` or `expected_revision` isn't what the record has.
    RevisionMismatch,
    /// The command isn't legal from this role or state.
    InvalidTransition,
    /// The command id was used before with another request.
    CommandConflict,
    /// It isn't known whether a commit landed; only its own command is accepted.
    CommitIndeterminate,
    /// A precondition of the command doesn't hold; the detail says which.
    PreconditionFailed,
    /// Import or validation without a live capability.
    CapabilityRequired,
    /// The control state can't be established.
    StateUnavailable,
}

impl ControlCode {
    /// All codes in the order of the table.
    pub const ALL: [Self; 11] = [
        Self::Applied,
        Self::AlreadyApplied,
        Self::Draining,
        Self::OwnedByAnotherOperation,
        Self::RevisionMismatch,
        Self::InvalidTransition,
        Self::CommandConflict,
        Self::CommitIndeterminate,
        Self::PreconditionFailed,
        Self::CapabilityRequired,
        Self::StateUnavailable,
    ];

    /// The stable name that callers match, such as `FENCE_REVISION_MISMATCH`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Applied => "APPLIED",
            Self::AlreadyApplied => "ALREADY_APPLIED",
            Self::Draining => "DRAINING",
            Self::OwnedByAnotherOperation => "FENCE_OWNED_BY_ANOTHER_OPERATION",
            Self::RevisionMismatch => "FENCE_REVISION_MISMATCH",
            Self::InvalidTransition => "INVALID_FENCE_TRANSITION",
            Self::CommandConflict => "FENCE_COMMAND_CONFLICT",
            Self::CommitIndeterminate => "FENCE_COMMIT_INDETERMINATE",
            Self::PreconditionFailed => "FENCE_PRECONDITION_FAILED",
            Self::CapabilityRequired => Denial::CapabilityRequired.code(),
            Self::StateUnavailable => Denial::StateUnavailable.code(),
        }
    }

    /// The SQLSTATE on a SQL admin console.
    ///
    /// The two codes that clients can also meet keep the number they have there, so that one
    /// stable code never has two meanings.
    #[must_use]
    pub const fn sqlstate(self) -> &'static str {
        match self {
            Self::Applied => "ZF101",
            Self::AlreadyApplied => "ZF102",
            Self::Draining => "ZF103",
            Self::OwnedByAnotherOperation => "ZF104",
            Self::RevisionMismatch => "ZF105",
            Self::InvalidTransition => "ZF106",
            Self::CommandConflict => "ZF107",
            Self::CommitIndeterminate => "ZF108",
            Self::PreconditionFailed => "ZF109",
            Self::CapabilityRequired => Denial::CapabilityRequired.sqlstate(),
            Self::StateUnavailable => Denial::StateUnavailable.sqlstate(),
        }
    }

    /// The MySQL error number on a SQL admin console.
    #[must_use]
    pub const fn errno(self) -> u16 {
        match self {
            Self::Applied => 9751,
            Self::AlreadyApplied => 9752,
            Self::Draining => 9753,
            Self::OwnedByAnotherOperation => 9754,
            Self::RevisionMismatch => 9755,
            Self::InvalidTransition => 9756,
            Self::CommandConflict => 9757,
            Self::CommitIndeterminate => 9758,
            Self::PreconditionFailed => 9759,
            Self::CapabilityRequired => Denial::CapabilityRequired.errno(),
            Self::StateUnavailable => Denial::StateUnavailable.errno(),
        }
    }

    /// The HTTP status of the admin surface.
    #[must_use]
    pub const fn http_status(self) -> u16 {
        match self {
            Self::Applied | Self::AlreadyApplied => 200,
            Self::Draining => 202,
            Self::OwnedByAnotherOperation
            | Self::RevisionMismatch
            | Self::InvalidTransition
            | Self::CommandConflict
            | Self::CommitIndeterminate => 409,
            Self::PreconditionFailed => 412,
            Self::CapabilityRequired => Denial::CapabilityRequired.http_status(),
            Self::StateUnavailable => Denial::StateUnavailable.http_status(),
        }
    }

    /// What the caller should do next.
    #[must_use]
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Applied | Self::AlreadyApplied => "Nothing; the state is as asked.",
            Self::Draining => "Replay the same command to follow the drain.",
            Self::OwnedByAnotherOperation => {
                "Do not retry; the owning operation must finish, or be adopted."
            }
            Self::RevisionMismatch => "Inspect, then send a new command id with what you saw.",
            Self::InvalidTransition => "Inspect; this command is not legal from the present state.",
            Self::CommandConflict => "Use a new command id; this one stands for another request.",
            Self::CommitIndeterminate => "Replay the pending command, and only that one.",
            Self::PreconditionFailed => "Fix the cause named by the detail, then use a new id.",
            Self::CapabilityRequired => Denial::CapabilityRequired.hint(),
            Self::StateUnavailable => Denial::StateUnavailable.hint(),
        }
    }
}

/// The bounded set of details under the control codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Detail {
    /// No admin key is configured, so command routes are off.
    AdminAuthRequired,
    /// The fence feature is off in the configuration.
    FenceDisabled,
    /// This process may not command this namespace.
    NotPrimary,
    /// The namespace shares its schema with others.
    SharedSchemaUnsupported,
    /// The live engine or database isn't the one named by the caller.
    NamespaceIdentityMismatch,
    /// A target must be created under a name that nothing uses.
    NamespaceExists,
    /// Publishing needs an `ok` validation by the owning operation.
    ValidationReceiptRequired,
    /// A target starts empty; it can't be created from existing content.
    RestoreNotAllowed,
    /// Adoption needs the second key, two distinct approvers, an incident and a reason.
    AdoptionNotAuthorised,
    /// The namespace isn't configured, so nothing could be enforced.
    NamespaceConfigMissing,
    /// A field of the request has an unusable value.
    InvalidArgument,
    /// The command is for the other role.
    RoleMismatch,
    /// The operation has already finished with this namespace.
    OperationFinished,
    /// The stored record can't be read as a fence record.
    CorruptRecord,
    /// The stored record is of a format this build doesn't know.
    UnsupportedFormatVersion,
    /// A target's creation was begun and never committed.
    IncompleteTargetCreation,
    /// The marker knows a newer or another record than the store.
    MetastoreBehindMarker,
    /// It isn't known whether a commit landed.
    IndeterminateCommit,
}

impl Detail {
    /// All details, in the order of the enum.
    pub const ALL: [Self; 18] = [
        Self::AdminAuthRequired,
        Self::FenceDisabled,
        Self::NotPrimary,
        Self::SharedSchemaUnsupported,
        Self::NamespaceIdentityMismatch,
        Self::NamespaceExists,
        Self::ValidationReceiptRequired,
        Self::RestoreNotAllowed,
        Self::AdoptionNotAuthorised,
        Self::NamespaceConfigMissing,
        Self::InvalidArgument,
        Self::RoleMismatch,
        Self::OperationFinished,
        Self::CorruptRecord,
        Self::UnsupportedFormatVersion,
        Self::IncompleteTargetCreation,
        Self::MetastoreBehindMarker,
        Self::IndeterminateCommit,
    ];

    /// The stable name, such as `namespace_identity_mismatch`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AdminAuthRequired => "admin_auth_required",
            Self::FenceDisabled => "fence_disabled",
            Self::NotPrimary => "not_primary",
            Self::SharedSchemaUnsupported => "shared_schema_unsupported",
            Self::NamespaceIdentityMismatch => "namespace_identity_mismatch",
            Self::NamespaceExists => "namespace_exists",
            Self::ValidationReceiptRequired => "validation_receipt_required",
            Self::RestoreNotAllowed => "restore_not_allowed",
            Self::AdoptionNotAuthorised => "adoption_not_authorised",
            Self::NamespaceConfigMissing => "namespace_config_missing",
            Self::InvalidArgument => "invalid_argument",
            Self::RoleMismatch => "role_mismatch",
            Self::OperationFinished => "operation_finished",
            Self::CorruptRecord => "corrupt_record",
            Self::UnsupportedFormatVersion => "unsupported_format_version",
            Self::IncompleteTargetCreation => "incomplete_target_creation",
            Self::MetastoreBehindMarker => "metastore_behind_marker",
            Self::IndeterminateCommit => "indeterminate_commit",
        }
    }

    /// The control code this detail belongs to.
    #[must_use]
    pub const fn parent(self) -> ControlCode {
        match self {
            Self::AdminAuthRequired
            | Self::FenceDisabled
            | Self::NotPrimary
            | Self::SharedSchemaUnsupported
            | Self::NamespaceIdentityMismatch
            | Self::NamespaceExists
            | Self::ValidationReceiptRequired
            | Self::RestoreNotAllowed
            | Self::AdoptionNotAuthorised
            | Self::NamespaceConfigMissing
            | Self::InvalidArgument => ControlCode::PreconditionFailed,
            Self::RoleMismatch | Self::OperationFinished => ControlCode::InvalidTransition,
            Self::CorruptRecord
            | Self::UnsupportedFormatVersion
            | Self::IncompleteTargetCreation
            | Self::MetastoreBehindMarker => ControlCode::StateUnavailable,
            Self::IndeterminateCommit => ControlCode::CommitIndeterminate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::fmt::Write as _;

    fn markdown() -> String {
        let mut out = String::from(
            "# Codes\n\nGenerated from `src/fence/code.rs`; do not edit. Clients match codes, \
             never texts.\n\n## What clients meet\n\n\
             | SQLSTATE | errno | stable code | detail | HTTP | what happened | what to do |\n\
             | --- | --- | --- | --- | --- | --- | --- |\n",
        );
        for denial in Denial::ALL {
            let detail = denial.detail().map_or_else(String::new, |detail| format!("`{detail}`"));
            writeln!(
                out,
                "| {} | {} | `{}` | {detail} | {} | {} | {} |",
                denial.sqlstate(),
                denial.errno(),
                denial.code(),
                denial.http_status(),
                denial.sentence(),
                denial.hint()
            )
            .unwrap();
        }
        out.push_str(
            "\n## What commands answer\n\n\
             | code | SQLSTATE | errno | HTTP | what to do |\n| --- | --- | --- | --- | --- |\n",
        );
        for code in ControlCode::ALL {
            let (sqlstate, errno, status) = (code.sqlstate(), code.errno(), code.http_status());
            let name = code.name();
            writeln!(out, "| `{name}` | {sqlstate} | {errno} | {status} | {} |", code.hint())
                .unwrap();
        }
        out.push_str("\n## Details\n\n| detail | under |\n| --- | --- |\n");
        for detail in Detail::ALL {
            writeln!(out, "| `{}` | `{}` |", detail.name(), detail.parent().name()).unwrap();
        }
        out
    }

    #[test]
    fn the_documented_copy_is_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/CODES.md");
        if std::env::var_os("FENCEWIRE_BLESS").is_some() {
            std::fs::write(path, markdown()).unwrap();
        }
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(kept, markdown(), "run this test with FENCEWIRE_BLESS=1 to write docs/CODES.md");
    }

    #[test]
    fn numbers_are_in_order_and_texts_are_there() {
        for (index, denial) in Denial::ALL.into_iter().enumerate() {
            assert_eq!(denial.sqlstate(), format!("ZF{:03}", index + 1));
            assert_eq!(usize::from(denial.errno()), 9701 + index);
            assert!(!denial.sentence().is_empty() && denial.hint().ends_with('.'), "{denial:?}");
        }
    }

    #[test]
    fn no_denial_looks_like_something_to_retry() {
        let statuses: HashSet<_> = Denial::ALL.map(Denial::http_status).into();
        assert_eq!(statuses, HashSet::from([403, 423]));
        assert!(ControlCode::ALL.into_iter().all(|code| code.http_status() < 500));
    }

    #[test]
    fn one_stable_code_has_one_meaning() {
        for code in ControlCode::ALL {
            for denial in Denial::ALL.into_iter().filter(|denial| denial.code() == code.name()) {
                let control = (code.sqlstate(), code.errno(), code.http_status());
                let data = (denial.sqlstate(), denial.errno(), denial.http_status());
                assert_eq!(control, data, "{}", code.name());
            }
        }
        let states: HashSet<_> = ControlCode::ALL.map(ControlCode::sqlstate).into();
        let errnos: HashSet<_> = ControlCode::ALL.map(ControlCode::errno).into();
        let details: HashSet<_> = Detail::ALL.map(Detail::name).into();
        assert_eq!((states.len(), errnos.len(), details.len()), (11, 11, 18));
    }
}
