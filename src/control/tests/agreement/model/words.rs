//! The contract's words: states, commands, requests, answers, and what is durable of them.

use std::collections::BTreeMap;

/// The states, by the contract's table 1.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Unfenced,
    Absent,
    SourceDraining,
    SourceWriteFenced,
    SourceReadDraining,
    SourceReadFenced,
    Released,
    TargetQuarantined,
    TargetImportDraining,
    TargetValidating,
    TargetWriteFenced,
    TargetWritable,
    TargetAborted,
    Unknown,
}

pub(crate) use State as S;

impl State {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            S::Unfenced => "UNFENCED",
            S::Absent => "ABSENT",
            S::SourceDraining => "SOURCE_DRAINING",
            S::SourceWriteFenced => "SOURCE_WRITE_FENCED",
            S::SourceReadDraining => "SOURCE_READ_DRAINING",
            S::SourceReadFenced => "SOURCE_READ_FENCED",
            S::Released => "RELEASED",
            S::TargetQuarantined => "TARGET_QUARANTINED",
            S::TargetImportDraining => "TARGET_IMPORT_DRAINING",
            S::TargetValidating => "TARGET_VALIDATING",
            S::TargetWriteFenced => "TARGET_WRITE_FENCED",
            S::TargetWritable => "TARGET_WRITABLE",
            S::TargetAborted => "TARGET_ABORTED",
            S::Unknown => "UNKNOWN_UNAVAILABLE",
        }
    }

    pub(crate) const fn is_finished(self) -> bool {
        matches!(self, S::Released | S::TargetWritable | S::TargetAborted)
    }

    /// What a drain in this state ends in.
    pub(crate) const fn drained(self) -> Option<Self> {
        match self {
            S::SourceDraining => Some(S::SourceWriteFenced),
            S::SourceReadDraining => Some(S::SourceReadFenced),
            S::TargetImportDraining => Some(S::TargetValidating),
            S::Unfenced
            | S::Absent
            | S::SourceWriteFenced
            | S::SourceReadFenced
            | S::Released
            | S::TargetQuarantined
            | S::TargetValidating
            | S::TargetWriteFenced
            | S::TargetWritable
            | S::TargetAborted
            | S::Unknown => None,
        }
    }
}

/// The commands, in the order of the matrix's columns; adoption last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Acquire,
    SetRead,
    ClearRead,
    Release,
    Create,
    Seal,
    Validate,
    Publish,
    Enable,
    Abort,
    Adopt,
}

pub(crate) use Kind as K;

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            K::Acquire => "AcquireSourceWriteFence",
            K::SetRead => "SetSourceReadFence",
            K::ClearRead => "ClearSourceReadFence",
            K::Release => "ReleaseSourceWriteFence",
            K::Create => "CreateTargetQuarantined",
            K::Seal => "SealTargetImport",
            K::Validate => "RecordTargetValidation",
            K::Publish => "PublishTargetReadableWriteFenced",
            K::Enable => "EnableTargetWrites",
            K::Abort => "AbortQuarantinedTarget",
            K::Adopt => "AdoptFence",
        }
    }
}

/// Who is named as having approved an adoption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Approvers {
    Two,
    OneTwice,
    OneOnly,
}

/// What a request says beyond its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Deadline of its drain, in milliseconds; `None` leaves it to the server.
    pub(crate) deadline_ms: Option<u64>,
    pub(crate) force: bool,
    /// Acquire: which database it names, by number.
    pub(crate) database: u8,
    /// Create: whether it asks for a template that holds something.
    pub(crate) template: bool,
    /// Validate: what the result is, and whether the summary is longer than may be.
    pub(crate) good: bool,
    pub(crate) long: bool,
    /// Adopt: who is taken for the owner, who approved, and whether there is a reason.
    pub(crate) owner: u8,
    pub(crate) approvers: Approvers,
    pub(crate) reason: bool,
}

impl Terms {
    /// What of it is in a request of this kind.
    pub(crate) fn of(self, kind: Kind) -> Self {
        let plain = Self {
            deadline_ms: None,
            force: false,
            database: 0,
            template: false,
            good: true,
            long: false,
            owner: 0,
            approvers: Approvers::Two,
            reason: true,
        };
        let Self { deadline_ms, force, database, owner, approvers, reason, .. } = self;
        let Self { template, good, long, .. } = self;
        match kind {
            K::Acquire => Self { deadline_ms, force, database, ..plain },
            K::SetRead | K::Seal => Self { deadline_ms, force, ..plain },
            K::Create => Self { template, ..plain },
            K::Validate => Self { good, long, ..plain },
            K::Adopt => Self { owner, approvers, reason, ..plain },
            K::ClearRead | K::Release | K::Publish | K::Enable | K::Abort => plain,
        }
    }
}

/// One request, its identity included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) by: u8,
    pub(crate) id: u8,
    pub(crate) kind: Kind,
    pub(crate) state: State,
    pub(crate) revision: u64,
    pub(crate) terms: Terms,
}

impl Request {
    /// Whether its drain has no time to look again: a read drain and force have a grace.
    pub(crate) fn is_at_once(self) -> bool {
        self.terms.deadline_ms == Some(0) && !self.terms.force && self.kind != K::SetRead
    }
}

/// What becomes of one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Lands,
    KnownLost,
    UnknownLanded,
    UnknownLost,
    /// The process dies in front of it, or behind it.
    DiesBefore,
    DiesBehind,
}

/// What was answered, in the contract's words; `ERROR` is a failure that is none of its codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) code: &'static str,
    pub(crate) detail: &'static str,
    pub(crate) replayed: bool,
    pub(crate) receipt: Option<Line>,
}

/// A receipt as anybody is shown it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line {
    pub(crate) by: u8,
    pub(crate) id: u8,
    pub(crate) kind: &'static str,
    pub(crate) outcome: &'static str,
    pub(crate) before: u64,
    pub(crate) after: u64,
    pub(crate) state: &'static str,
}

/// A receipt, as far as the contract fixes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) request: Request,
    pub(crate) outcome: &'static str,
    pub(crate) before: u64,
    pub(crate) after: u64,
    pub(crate) state: State,
}

impl Entry {
    pub(crate) fn line(self) -> Line {
        let Self { request, outcome, before, after, state } = self;
        let Request { by, id, kind, .. } = request;
        Line { by, id, kind: kind.name(), outcome, before, after, state: state.name() }
    }
}

/// A record. Two of the same revision differ in their serial number, as real ones do in times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) state: State,
    pub(crate) revision: u64,
    pub(crate) owner: u8,
    /// The command that wrote it.
    pub(crate) command: u8,
    /// Which database it is of, by number.
    pub(crate) database: u8,
    /// The latest validation: whose, and whether it was ok.
    pub(crate) validation: Option<(u8, bool)>,
    pub(crate) serial: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marker {
    Missing,
    Garbled,
    Holds(Record),
}

/// Row and marker together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    Nothing,
    Known(Record),
    Unavailable { detail: &'static str, marker: Option<Record> },
}

/// What is durable.
#[derive(Debug, Clone)]
pub(crate) struct Durable {
    pub(crate) record: Option<Record>,
    pub(crate) receipts: BTreeMap<(u8, u8), Entry>,
}

/// What the gate shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gate {
    pub(crate) state: State,
    pub(crate) owner: Option<u8>,
    /// Why the state is unknown, where it is.
    pub(crate) detail: &'static str,
    pub(crate) indeterminate: bool,
    /// A target is being created.
    pub(crate) creating: bool,
}

/// What one attempt at making a target's database comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Creation {
    Made,
    /// Somebody else made one of that name in between.
    Exists,
    Refused,
    NotAsked,
    /// It isn't answered; the database is made all the same, or not.
    Unknown {
        made: bool,
    },
    /// It is made, and doesn't say which one it is.
    Speechless,
}

impl Creation {
    /// Whether there is a database of that name behind it.
    pub(crate) const fn makes(self) -> bool {
        match self {
            Self::Made | Self::Exists | Self::Speechless | Self::Unknown { made: true } => true,
            Self::Refused | Self::NotAsked | Self::Unknown { made: false } => false,
        }
    }
}

/// What is true outside when a command comes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outside {
    /// Which database is behind the name, by number, where there is one.
    pub(crate) database: u8,
    /// The engine doesn't answer.
    pub(crate) silent: bool,
    /// The store can't be read.
    pub(crate) unreadable: bool,
    /// The caller showed the second key.
    pub(crate) key: bool,
    /// Something keeps a write drain, or a read drain, from its end.
    pub(crate) writes_held: bool,
    pub(crate) reads_held: bool,
    /// A session is at the name.
    pub(crate) sessions: bool,
    /// What the engine makes of a creation, and whether it takes its time.
    pub(crate) creation: Creation,
    pub(crate) parks: bool,
}

impl Default for Outside {
    fn default() -> Self {
        Self {
            database: 1,
            silent: false,
            unreadable: false,
            key: false,
            writes_held: false,
            reads_held: false,
            sessions: false,
            creation: Creation::Made,
            parks: false,
        }
    }
}

/// What a capability is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Import,
    Validation,
}

/// A capability that was given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capability {
    pub(crate) purpose: Purpose,
    pub(crate) live: bool,
}

/// A rule that the model is made to get wrong, so that the comparison must fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    OwnerUnchecked,
    ExpectationUnchecked,
    ReplayRunsAgain,
    ResumesSuperseded,
    GoalNeedsExpectation,
    ConflictUnnoticed,
    AdoptionKeepsRevision,
    AdoptionWithoutKey,
    NewMoveStartsAnew,
    DoubtForgotten,
    LandedTakenForLost,
    MarkerIgnored,
    RestartAdvances,
    RestartKeepsDoubt,
    DrainEndsByTime,
    StaleMayWrite,
    StreamsStay,
    PublishedUnvalidated,
    FailedValidationCounts,
    AnybodysValidationCounts,
    SnapshotUnneeded,
    CapabilityOutlivesRevision,
    CapabilityOutlivesProcess,
    CapabilityForAnyone,
    CapabilityAtAnyRevision,
    ImportBehindSeal,
    ValidationMayWrite,
    CapabilityReachesEverything,
    CreationForgotten,
    CreationByAnybody,
    CreationAmongSessions,
    CreationOpensMeanwhile,
    RefusalKeepsName,
    SealWaitsForNobody,
    SealOfAnother,
    AbortFreesName,
    EnableUndone,
    AnswerOfThePast,
}

impl Bug {
    pub(crate) const ALL: [Self; 38] = [
        Self::OwnerUnchecked,
        Self::ExpectationUnchecked,
        Self::ReplayRunsAgain,
        Self::ResumesSuperseded,
        Self::GoalNeedsExpectation,
        Self::ConflictUnnoticed,
        Self::AdoptionKeepsRevision,
        Self::AdoptionWithoutKey,
        Self::NewMoveStartsAnew,
        Self::DoubtForgotten,
        Self::LandedTakenForLost,
        Self::MarkerIgnored,
        Self::RestartAdvances,
        Self::RestartKeepsDoubt,
        Self::DrainEndsByTime,
        Self::StaleMayWrite,
        Self::StreamsStay,
        Self::PublishedUnvalidated,
        Self::FailedValidationCounts,
        Self::AnybodysValidationCounts,
        Self::SnapshotUnneeded,
        Self::CapabilityOutlivesRevision,
        Self::CapabilityOutlivesProcess,
        Self::CapabilityForAnyone,
        Self::CapabilityAtAnyRevision,
        Self::ImportBehindSeal,
        Self::ValidationMayWrite,
        Self::CapabilityReachesEverything,
        Self::CreationForgotten,
        Self::CreationByAnybody,
        Self::CreationAmongSessions,
        Self::CreationOpensMeanwhile,
        Self::RefusalKeepsName,
        Self::SealWaitsForNobody,
        Self::SealOfAnother,
        Self::AbortFreesName,
        Self::EnableUndone,
        Self::AnswerOfThePast,
    ];

    /// Whether only a target can show it: these come behind the others in [`Bug::ALL`].
    pub(crate) fn is_of_targets(self) -> bool {
        let behind = |bug: &Self| *bug == Self::PublishedUnvalidated;
        Self::ALL.into_iter().skip_while(|bug| !behind(bug)).any(|bug| bug == self)
    }
}
