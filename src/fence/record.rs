//! What one namespace's fence durably is, as plain data.
//!
//! Purpose: the model types of a fence record, its policy, its evidence and its history. The
//! stored shapes are separate (`store/record.rs`), the shown ones too (`admin/view.rs`).
//!
//! Invariants: 5, 8. A record that [`FenceRecord::check`] refuses is never stored and never
//! believed when loaded.
//!
//! Callers: `fence::transition` builds them, `store` keeps them, `gate` and `admin` read them.
//! Nothing here decides what may happen next.

use crate::base::ids::{CommandId, Generation, Namespace, OperationId, Revision, SessionId};

use super::proof::DrainProof;
use super::state::{FenceState, Role};

/// Which database on which engine a namespace really is, as the engine itself says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// PostgreSQL `system_identifier`; MySQL `server_uuid`; MariaDB server id and data
    /// directory id.
    pub engine_id: String,
    /// PostgreSQL timeline; `None` elsewhere, and in a request that doesn't pin one.
    pub timeline: Option<u32>,
    /// PostgreSQL database oid; MySQL schema name.
    pub database_id: String,
}

impl Identity {
    /// Whether `live` is what `self` asks for. A timeline that isn't named isn't compared.
    #[must_use]
    pub fn is_met_by(&self, live: &Self) -> bool {
        self.engine_id == live.engine_id
            && self.database_id == live.database_id
            && (self.timeline.is_none() || self.timeline == live.timeline)
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "database {} on engine {}", self.database_id, self.engine_id)?;
        self.timeline.map_or(Ok(()), |timeline| write!(f, ", timeline {timeline}"))
    }
}

/// What is said when the database behind a fence's name isn't the one that was acquired, or the one
/// that was made for a target, which has no release.
#[must_use]
pub fn another_database(
    namespace: &Namespace,
    role: Option<Role>,
    was: &Identity,
    now: &Identity,
) -> String {
    let (what, then) = match role {
        Some(Role::Target) => (
            "the target was made as",
            "Have the name lead to that database again, or abort this target and create another",
        ),
        Some(Role::Source) | None => (
            "the fence was acquired on",
            "Release this fence, and acquire it anew on the database that you mean",
        ),
    };
    format!(
        "the engine behind {namespace} is another one now: {now}, {what} {was}. Nothing is proven \
         about either. {then}"
    )
}

/// The server-made name of one creation of a target, so that a later database of the same name
/// isn't taken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IncarnationId(pub uuid::Uuid);

impl std::fmt::Display for IncarnationId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// What kind of log position a boundary is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BoundaryKind {
    /// PostgreSQL write-ahead log position.
    Lsn,
    /// A GTID set.
    Gtid,
    /// Binary log file and offset.
    Binlog,
    /// The engine keeps no log; the fence is proven without a position.
    None,
}

impl BoundaryKind {
    /// `lsn`, `gtid`, `binlog` or `none`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lsn => "lsn",
            Self::Gtid => "gtid",
            Self::Binlog => "binlog",
            Self::None => "none",
        }
    }

    /// Reads the name; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Lsn, Self::Gtid, Self::Binlog, Self::None].into_iter().find(|k| k.name() == text)
    }
}

/// The engine's log position after which nothing admitted earlier can appear.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Boundary {
    /// What `value` is.
    pub kind: BoundaryKind,
    /// The position in the engine's own notation; empty for [`BoundaryKind::None`].
    pub value: String,
    /// The engine that wrote the log.
    pub engine_id: String,
    /// PostgreSQL timeline; `None` elsewhere.
    pub timeline: Option<u32>,
    /// Whether the position is that of a marker message written for this boundary.
    pub marker: bool,
}

/// What happens to a drain whose deadline passes. Never ends the drain by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnDeadline {
    /// Answer DRAINING; admission stays closed.
    Fail,
    /// Roll the blockers back, then go on waiting for their actual release.
    ForceRollback,
}

impl OnDeadline {
    /// `fail` or `force_rollback`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::ForceRollback => "force_rollback",
        }
    }

    /// Reads the name; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Fail, Self::ForceRollback].into_iter().find(|v| v.name() == text)
    }
}

/// What a transaction that was a writer before the fence may still do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InFlight {
    /// Run on to its own end.
    Finish,
    /// Its further writes and DDL are refused.
    Refuse,
}

impl InFlight {
    /// `finish` or `refuse`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Finish => "finish",
            Self::Refuse => "refuse",
        }
    }

    /// Reads the name; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Finish, Self::Refuse].into_iter().find(|v| v.name() == text)
    }
}

/// How a drain is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DrainPolicy {
    /// How long the command waits before it answers DRAINING or forces, in milliseconds.
    pub deadline_ms: u64,
    /// What to do then.
    pub on_deadline: OnDeadline,
    /// What running writers may do; `None` is the namespace's default.
    pub in_flight: Option<InFlight>,
    /// How long new programs are held before they are refused, in milliseconds; `None` is the
    /// namespace's default, `Some(0)` is "refuse at once".
    pub hold_ms: Option<u64>,
}

/// How many leases ended, by what was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Releases {
    /// By the engine's own protocol answer.
    pub by_answer: u64,
    /// By engine evidence that the backend is gone.
    pub by_engine: u64,
}

/// What was done to a blocker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ForcedKind {
    /// An idle transaction was rolled back through its own session.
    Rollback,
    /// A running statement was cancelled.
    SqlCancel,
    /// A dump was cut, visibly.
    DumpCancel,
    /// A stream was ended.
    StreamTermination,
    /// The backend was terminated.
    BackendTermination,
}

impl ForcedKind {
    /// All kinds, in the order of the enum.
    pub const ALL: [Self; 5] = [
        Self::Rollback,
        Self::SqlCancel,
        Self::DumpCancel,
        Self::StreamTermination,
        Self::BackendTermination,
    ];

    /// The label in metrics and evidence, such as `rollback`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rollback => "rollback",
            Self::SqlCancel => "sql_cancel",
            Self::DumpCancel => "dump_cancel",
            Self::StreamTermination => "stream_termination",
            Self::BackendTermination => "backend_termination",
        }
    }

    /// Reads the name; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == text)
    }
}

/// One forced action, for the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forced {
    /// What was done.
    pub kind: ForcedKind,
    /// To which session; `None` for one that doesn't come through the proxy.
    pub session: Option<SessionId>,
    /// The engine's own number for the backend.
    pub engine_pid: u32,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Why this one, in a sentence.
    pub why: String,
}

/// What the engine itself said about work in flight, at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Census {
    /// The instant by the engine's own clock, RFC 3339.
    pub at_engine_clock: String,
    /// Virtual transactions that were alive and had to be accounted for.
    pub virtual_transactions: u64,
    /// Of these, those that were waited for until they ended.
    pub waited_for: u64,
    /// Prepared transactions found.
    pub prepared: u64,
    /// Backends that the proxy lost while a program was running and that still exist.
    pub orphans: u64,
    /// Sessions holding a transaction id or a write lock.
    pub writers: u64,
    /// Sessions of this database that don't come through the proxy.
    pub direct_sessions: u64,
}

impl Census {
    /// Whether nothing that could still commit a change was left at this instant.
    #[must_use]
    pub const fn is_clear(&self) -> bool {
        self.prepared == 0 && self.orphans == 0 && self.writers == 0
    }
}

/// How the engine's own table locks were used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockMode {
    /// Kept as long as the source write fence lasts.
    Hold,
    /// Taken once to confirm that every writer had ended.
    Confirm,
    /// Not used.
    Off,
}

impl LockMode {
    /// `hold`, `confirm` or `off`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Confirm => "confirm",
            Self::Off => "off",
        }
    }

    /// Reads the name; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Hold, Self::Confirm, Self::Off].into_iter().find(|mode| mode.name() == text)
    }
}

/// In front of each of the engine lock's gaps that a release keeps beside the proof, which the
/// proof itself knew nothing of.
pub const GAP_WHILE_UP: &str = "while the fence stood: ";

/// What came of the engine lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineLock {
    /// The mode that was reached, which may be less than the one asked for.
    pub mode: LockMode,
    /// What happened, in words: `granted`, or why a lesser mode was used.
    pub outcome: String,
    /// How many tables were locked.
    pub tables: u64,
    /// What the lock doesn't cover or when it was lost, one sentence each.
    pub gaps: Vec<String>,
}

/// Why a drain is believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// The gate's generation that all parts speak of. Compared within one process only.
    pub generation: Generation,
    /// Leases that ended.
    pub releases: Releases,
    /// What had to be forced.
    pub forced: Vec<Forced>,
    /// The engine's word before the boundary was read.
    pub census_before: Census,
    /// The engine's word after the boundary was read.
    pub census_after: Census,
    /// Idle sessions around the proxy that were reported, not waited for.
    pub direct_sessions: Vec<String>,
    /// The engine's own locks.
    pub engine_lock: EngineLock,
    /// Tables whose engine has no transactions.
    pub non_transactional_tables: Vec<String>,
    /// The position read between the two censuses.
    pub boundary: Boundary,
    /// When the proof was assembled, in milliseconds since the Unix epoch.
    pub proven_at_ms: u64,
}

/// Why a read drain is believed: every lease was seen to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadEvidence {
    /// The gate's generation the leases belonged to.
    pub generation: Generation,
    /// Leases that ended.
    pub releases: Releases,
    /// What had to be forced.
    pub forced: Vec<Forced>,
    /// When the last one was seen to end, in milliseconds since the Unix epoch.
    pub proven_at_ms: u64,
}

/// The verdict of a target's validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValidationResult {
    /// The target may be published.
    Ok,
    /// The target may not be published.
    Failed,
}

impl ValidationResult {
    /// `ok` or `failed`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
        }
    }

    /// Reads the name; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Ok, Self::Failed].into_iter().find(|v| v.name() == text)
    }
}

/// A recorded validation; the latest one counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validation {
    /// Who validated.
    pub operation: OperationId,
    /// By which command.
    pub command: CommandId,
    /// What came out.
    pub result: ValidationResult,
    /// The operation's own words; at most `limits::VALIDATION_SUMMARY_BYTES`.
    pub summary: Option<String>,
    /// The target's position when it was recorded, read by the server.
    pub snapshot: Option<Boundary>,
    /// When, in milliseconds since the Unix epoch.
    pub recorded_at_ms: u64,
}

/// One change of ownership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adoption {
    /// Who owned the fence.
    pub previous_operation: OperationId,
    /// Who owns it since.
    pub new_operation: OperationId,
    /// By which command.
    pub command: CommandId,
    /// The two people who agreed; recorded, not verified.
    pub approvers: [String; 2],
    /// The incident it belongs to.
    pub incident_ref: String,
    /// Why.
    pub reason: String,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The record's revision after it.
    pub revision: Revision,
}

/// Which build on which instance wrote something.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WrittenBy {
    /// Version and commit of the build.
    pub build: String,
    /// The instance's configured name.
    pub instance: String,
}

/// The durable state of one namespace's fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FenceRecord {
    /// What is fenced.
    pub namespace: Namespace,
    /// Which end of the move this is.
    pub role: Role,
    /// Where it stands; always a durable state of `role`.
    pub state: FenceState,
    /// 1 with the first transition, then +1 each.
    pub revision: Revision,
    /// Who owns the fence.
    pub operation: OperationId,
    /// The database as acquired, or as created; `None` for a target of a build that didn't ask.
    pub identity: Option<Identity>,
    /// The creation this target came from; `None` for a source.
    pub target_incarnation: Option<IncarnationId>,
    /// The policy of the drain that is running.
    pub drain_policy: Option<DrainPolicy>,
    /// When that drain began, in milliseconds since the Unix epoch.
    pub drain_started_at_ms: Option<u64>,
    /// How long programs are held at this fence, as its command said, in milliseconds; `None`
    /// leaves it to the namespace's default. It outlives the drain.
    pub hold_ms: Option<u64>,
    /// The source's last position; set when the write drain is proven.
    pub frozen_boundary: Option<Boundary>,
    /// Why the write (or import) drain is believed.
    pub evidence: Option<Evidence>,
    /// Why the read drain is believed; only while reads are fenced.
    pub read_evidence: Option<ReadEvidence>,
    /// The latest validation of a target.
    pub validation: Option<Validation>,
    /// When this operation's record began, in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// When it last changed, in milliseconds since the Unix epoch.
    pub last_transition_at_ms: u64,
    /// The command that changed it last.
    pub last_command: CommandId,
    /// The build and instance that changed it last.
    pub written_by: WrittenBy,
    /// Changes of ownership, oldest first.
    pub adoptions: Vec<Adoption>,
}

/// Why a record can't be what a fence is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the fence record of {namespace} is inconsistent: {what}; do not edit it, restore or adopt"
)]
pub struct RecordError {
    /// Whose record.
    pub namespace: Namespace,
    /// What doesn't fit, in words.
    pub what: String,
}

impl FenceRecord {
    /// Checks everything that holds for every true record, whichever way it was obtained.
    ///
    /// # Errors
    /// [`RecordError`] naming the first thing that doesn't fit.
    pub fn check(&self) -> Result<(), RecordError> {
        let fail = |what: String| Err(RecordError { namespace: self.namespace.clone(), what });
        if self.state.role() != Some(self.role) {
            return fail(format!("state {} with role {}", self.state, self.role.name()));
        }
        if self.revision.0 == 0 {
            return fail("revision 0, which means that there is no record".to_owned());
        }
        match self.role {
            Role::Source if self.identity.is_none() => {
                return fail("a source without the identity it was acquired under".to_owned());
            }
            Role::Target if self.target_incarnation.is_none() => {
                return fail("a target without an incarnation id".to_owned());
            }
            Role::Source | Role::Target => {}
        }
        if self.state.is_draining() != self.drain_policy.is_some()
            || self.drain_policy.is_some() != self.drain_started_at_ms.is_some()
        {
            return fail(format!("drain fields that do not fit state {}", self.state));
        }
        if (self.state == FenceState::SourceReadFenced) != self.read_evidence.is_some() {
            return fail(format!("read evidence that does not fit state {}", self.state));
        }
        self.check_proof().or_else(fail)
    }

    fn check_proof(&self) -> Result<(), String> {
        match (&self.evidence, self.state.is_proven()) {
            (None, Some(true)) => Err(format!("state {} without evidence", self.state)),
            (Some(_), Some(false)) => Err(format!("state {} with evidence", self.state)),
            (None, None | Some(false)) => match self.frozen_boundary {
                Some(_) => Err("a boundary without evidence".to_owned()),
                None => Ok(()),
            },
            (Some(evidence), None | Some(true)) => {
                DrainProof::check_loaded(self, evidence).map_err(|error| error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::sample;

    type Spoil<'a> = &'a dyn Fn(&mut FenceRecord);

    #[test]
    fn a_record_that_contradicts_itself_is_refused() {
        let states: Vec<_> = FenceState::ALL.into_iter().filter(|s| s.is_durable()).collect();
        let spoils: [(&str, Spoil<'_>); 7] = [
            ("role", &|r| {
                r.role = if r.role == Role::Source { Role::Target } else { Role::Source };
            }),
            ("state", &|r| r.state = FenceState::Unfenced),
            ("revision", &|r| r.revision = Revision(0)),
            ("identity", &|r| (r.identity, r.target_incarnation) = (None, None)),
            ("policy", &|r| {
                r.drain_policy = r.drain_policy.is_none().then(sample::policy);
            }),
            ("start", &|r| {
                r.drain_started_at_ms = r.drain_started_at_ms.is_none().then_some(1);
            }),
            ("read evidence", &|r| {
                r.read_evidence = r.read_evidence.is_none().then(sample::read_evidence);
            }),
        ];
        for state in states {
            for (what, spoil) in spoils {
                let mut record = sample::record(state);
                spoil(&mut record);
                assert!(record.check().is_err(), "{what} in {state}");
            }
        }
    }

    #[test]
    fn a_draining_source_cannot_have_its_proof_yet() {
        let mut record = sample::record(FenceState::SourceDraining);
        record.evidence = Some(sample::proof(&sample::namespace()).into_evidence());
        record.frozen_boundary = Some(sample::boundary());
        assert!(record.check().is_err());
    }

    #[test]
    fn an_identity_without_a_timeline_is_met_by_any() {
        let live = sample::identity();
        assert!(Identity { timeline: None, ..live.clone() }.is_met_by(&live));
        assert!(!Identity { timeline: Some(2), ..live.clone() }.is_met_by(&live));
        assert!(!live.is_met_by(&Identity { timeline: None, ..live.clone() }));
    }
}
