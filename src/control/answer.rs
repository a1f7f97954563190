//! What a command or an inspection is answered with, before any surface gives it a shape.
//!
//! Purpose: one plain value that HTTP and the consoles can show. The shown shapes are in
//! `admin/view.rs`.
//!
//! Callers: `control/fences.rs` and `control/status.rs` make them, `admin` shows them.

use std::sync::Arc;

use crate::base::ids::{Generation, Namespace, OperationId, Revision, SessionId};
use crate::fence::code::{ControlCode, Detail};
use crate::fence::command::CommandKey;
use crate::fence::receipt::Receipt;
use crate::fence::record::{DrainPolicy, FenceRecord, Forced, Identity, LockMode, WrittenBy};
use crate::fence::state::FenceState;
use crate::fence::transition::ControlRefusal;
use crate::gate::capability::Listed;
use crate::gate::drain::Reading;
use crate::gate::slot::Slot;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerCode {
    /// With a code of the contract.
    Control(ControlCode),
    /// With a failure that is none: the store or this process couldn't do it now. Replaying the
    /// same command is right.
    Failed,
}

impl AnswerCode {
    /// The stable name; `ERROR` for a failure.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Control(code) => code.name(),
            Self::Failed => "ERROR",
        }
    }

    /// The HTTP status.
    #[must_use]
    pub const fn http_status(self) -> u16 {
        match self {
            Self::Control(code) => code.http_status(),
            Self::Failed => 503,
        }
    }

    /// Whether it is one of the three that come with a receipt.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(
            self,
            Self::Control(
                ControlCode::Applied | ControlCode::AlreadyApplied | ControlCode::Draining
            )
        )
    }
}

/// The answer to one command.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// How it ended.
    pub code: AnswerCode,
    /// The detail under the code.
    pub detail: Option<Detail>,
    /// Whether an earlier command of this id was found: a final replay, history, a resumed drain.
    pub replayed: bool,
    /// The namespace afterwards; `None` where there is neither fence nor database, or nothing
    /// could be read.
    pub sight: Option<Sight>,
    /// The durable answer; on success only.
    pub receipt: Option<Receipt>,
    /// What happened, to what, and what to do; on errors, as the reason of DRAINING, and where a
    /// success leaves something to know.
    pub message: Option<String>,
}

impl Answer {
    /// Whether a later command has changed the fence while this one's drain ran, or since: it waits
    /// for nothing any more, though another one's drain, maybe of another operation, may run now.
    #[must_use]
    pub fn is_overtaken(&self) -> bool {
        let (Some(receipt), Some(sight)) = (&self.receipt, &self.sight) else { return false };
        self.code == AnswerCode::Control(ControlCode::Draining)
            && sight.state != FenceState::UnknownUnavailable
            && (sight.state != receipt.state_after
                || sight.revision != receipt.revision_after
                || sight.record.as_ref().is_some_and(|now| now.operation != receipt.operation))
    }

    pub(super) fn refused(refusal: ControlRefusal) -> Self {
        Self {
            code: AnswerCode::Control(refusal.code),
            detail: refusal.detail,
            replayed: false,
            sight: None,
            receipt: None,
            message: Some(refusal.message),
        }
    }

    pub(super) fn failed(message: String) -> Self {
        Self {
            code: AnswerCode::Failed,
            detail: None,
            replayed: false,
            sight: None,
            receipt: None,
            message: Some(message),
        }
    }

    pub(super) fn with_receipt(receipt: Receipt, replayed: bool) -> Self {
        use crate::fence::receipt::Outcome;
        let code = match receipt.outcome {
            Outcome::Applied => ControlCode::Applied,
            Outcome::AlreadyApplied => ControlCode::AlreadyApplied,
            Outcome::Draining => ControlCode::Draining,
        };
        Self {
            code: AnswerCode::Control(code),
            detail: None,
            replayed,
            sight: None,
            receipt: Some(receipt),
            message: None,
        }
    }

    pub(super) fn because(mut self, message: Option<String>) -> Self {
        self.message = message;
        self
    }
}

/// Where a namespace stands, for people and programs.
#[derive(Debug, Clone, PartialEq)]
pub struct Sight {
    /// Which one.
    pub namespace: Namespace,
    /// Its state, never an overlay.
    pub state: FenceState,
    /// Its revision; 0 without a record.
    pub revision: Revision,
    /// The record, where there is one that is believed.
    pub record: Option<Box<FenceRecord>>,
    /// Why the state is unknown, in words; only for `UNKNOWN_UNAVAILABLE`.
    pub unavailable: Option<Unavailable>,
    /// The live database, where the engine answered; `None` where it wasn't asked or didn't.
    pub live: Option<Identity>,
    /// What is admitted right now.
    pub admission: Admission,
    /// Programs that wait at the closed gate.
    pub held: HeldReport,
    /// The drain, running or waiting for its command to be replayed.
    pub drain: DrainReport,
    /// The engine lock behind the fence, where one is wanted.
    pub lock: Option<LockReport>,
    /// The capabilities that are alive, oldest first; none outside a target's life.
    pub capabilities: Vec<Listed>,
    /// Of a source that isn't released: targets of the same operation that take writes, or may.
    pub writable_targets: Vec<Namespace>,
    /// Whether marker and record agree; `None` without a record.
    pub marker_consistent: Option<bool>,
    /// This process.
    pub server: WrittenBy,
}

/// Why a namespace's control state can't be established.
#[derive(Debug, Clone, PartialEq)]
pub struct Unavailable {
    /// The reason's code.
    pub detail: Detail,
    /// The reason in words.
    pub reason: String,
    /// The marker's record, where it could be read.
    pub marker: Option<Box<FenceRecord>>,
}

/// Programs that wait at a closed gate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeldReport {
    /// How many are held now.
    pub programs: u64,
    /// Their bytes, with what their clients have sent behind them.
    pub bytes: u64,
    /// How long the first of them has waited, in milliseconds.
    pub oldest_ms: Option<u64>,
    /// Since when it waits, in milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// How long a program is held at most, in milliseconds; 0 where refused ones aren't held.
    pub hold_ms: u64,
    /// How many are held at most.
    pub held_max: u64,
}

/// What the gate admits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// Whether writes may begin.
    pub write: bool,
    /// Whether reads may begin.
    pub read: bool,
    /// The gate's generation; `None` while there is no gate, which then would be made open.
    pub generation: Option<Generation>,
    /// The command whose commit isn't known to have landed.
    pub indeterminate: Option<CommandKey>,
}

/// Who keeps a drain waiting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockerReport {
    /// The proxy session; `None` for one that doesn't come through the proxy.
    pub session: Option<SessionId>,
    /// The client's address.
    pub client: String,
    /// The role.
    pub user: String,
    /// The client's application name.
    pub application_name: String,
    /// The engine's backend; `None` for a prepared transaction.
    pub engine_pid: Option<i32>,
    /// When that backend started, in milliseconds since the Unix epoch by the engine's clock.
    pub engine_started_at_ms: Option<u64>,
    /// What kind of thing blocks: a stable word such as `writer` or `prepared`.
    pub class: &'static str,
    /// How long its transaction has been open, in milliseconds.
    pub age_ms: Option<u64>,
    /// The last statement as the engine shows it, literals included.
    pub statement: String,
    /// Why it blocks and what ends it, in a sentence.
    pub why: String,
}

/// How far a drain has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DrainPhase {
    /// None is running.
    #[default]
    Idle,
    /// Waiting for leases of earlier writers.
    Leases,
    /// Asking the engine what is left.
    Census,
    /// Taking the engine's own locks.
    EngineLock,
    /// Reading the boundary and asking the engine again.
    Boundary,
    /// Committing the proof.
    Completing,
}

impl DrainPhase {
    /// The name in views, such as `census`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Leases => "leases",
            Self::Census => "census",
            Self::EngineLock => "engine_lock",
            Self::Boundary => "boundary",
            Self::Completing => "completing",
        }
    }
}

/// Sessions with a read lease, by what reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadLeases {
    /// Statements and cursors.
    pub sql: u64,
    /// Dump tools.
    pub dump: u64,
    /// Replicas' streams.
    pub replication: u64,
}

impl ReadLeases {
    pub(super) fn among(slots: &[Arc<Slot>]) -> Self {
        let mut leases = Self::default();
        for reading in slots.iter().filter_map(|slot| Reading::of(slot)) {
            match reading {
                Reading::Sql => leases.sql += 1,
                Reading::Dump => leases.dump += 1,
                Reading::Stream => leases.replication += 1,
            }
        }
        leases
    }
}

/// A drain as it is now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainReport {
    /// How far it is.
    pub phase: DrainPhase,
    /// The command it runs under; `None` while none runs.
    pub command: Option<CommandKey>,
    /// Its policy.
    pub policy: Option<DrainPolicy>,
    /// When this run of it began, in milliseconds since the Unix epoch.
    pub started_at_ms: Option<u64>,
    /// When it will be answered or forced, in milliseconds since the Unix epoch.
    pub deadline_at_ms: Option<u64>,
    /// Sessions whose write lease is waited for.
    pub active_writers: u64,
    /// Sessions with a read lease, whether they are waited for or not.
    pub read_leases: ReadLeases,
    /// Import sessions with a lease, whether they are waited for or not.
    pub import_writers: u64,
    /// Who keeps it waiting, at most `limits::BLOCKERS_SHOWN_MAX`.
    pub blockers: Vec<BlockerReport>,
    /// Blockers beyond those named.
    pub more_blockers: u64,
    /// When the engine was last asked for them, in milliseconds since the Unix epoch, where nobody
    /// asks now: whether they are still there isn't known. `None` for a drain that runs.
    pub as_of_ms: Option<u64>,
    /// Why it isn't further, where that isn't a blocker: such as an engine that can't be asked.
    pub reason: Option<String>,
    /// What has been forced in this run.
    pub forced: Vec<Forced>,
}

/// The engine lock that stays behind a fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockReport {
    /// The mode that is wanted.
    pub mode: LockMode,
    /// Whether it is held now.
    pub held: bool,
    /// How many tables it covers.
    pub tables: u64,
    /// When it was lost or couldn't be taken, and what it doesn't cover, one sentence each.
    pub gaps: Vec<String>,
}

/// Who commands what, for one line of a listing.
#[derive(Debug, Clone, PartialEq)]
pub struct NamespaceLine {
    /// Which one.
    pub namespace: Namespace,
    /// Its state as published.
    pub state: FenceState,
    /// Its revision as published.
    pub revision: Revision,
    /// The owner, where there is a record.
    pub operation: Option<OperationId>,
    /// What is admitted.
    pub admission: Admission,
    /// Client sessions, lost ones that still count included.
    pub sessions: u64,
    /// Leases that are out.
    pub leases: u64,
    /// Leases of writers that are out.
    pub writers: u64,
    /// Sessions whose client is gone and whose backend isn't known to be.
    pub orphans: u64,
    /// Programs that wait at the closed gate.
    pub held: HeldReport,
    /// The engine's own locks behind a fence; `None` where none are wanted.
    pub lock: Option<LockReport>,
    /// The drain, where one runs.
    pub drain: DrainReport,
    /// The capabilities that are alive, oldest first.
    pub capabilities: Vec<Listed>,
    /// Names that clients use for it.
    pub routes: Vec<String>,
    /// Why its state is unknown.
    pub unavailable: Option<(Detail, String)>,
}
