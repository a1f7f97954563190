//! The stored shapes of records and receipts, format version 1.
//!
//! Purpose: what is on disk is decided here and nowhere else, apart from the model types, so that
//! the model can change without a stored byte changing. Choices are stored by their stable names.
//! Unknown fields are refused: a field that this build doesn't know may be what keeps a gate shut.
//!
//! Invariants: 4 (what can't be read is never believed), 8 (a loaded proof is checked again).
//!
//! Callers: the backends and `store::marker`. It does no input or output.

use serde::{Deserialize, Serialize};

use crate::base::ids::{CommandId, Generation, Namespace, OperationId, Revision, SessionId};
use crate::base::limits;
use crate::fence::code::Detail;
use crate::fence::command::CommandKind;
use crate::fence::receipt::{Fingerprint, Outcome, Receipt};
use crate::fence::record::{
    Adoption, Boundary, BoundaryKind, Census, DrainPolicy, EngineLock, Evidence, FenceRecord,
    Forced, ForcedKind, Identity, InFlight, IncarnationId, LockMode, OnDeadline, ReadEvidence,
    Releases, Validation, ValidationResult, WrittenBy,
};
use crate::fence::state::{FenceState, Role};

/// The format this build writes, and the only one it reads.
pub(in crate::store) const FORMAT_VERSION: i64 = 1;

/// Why stored bytes aren't a record or receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct Undecodable {
    /// `corrupt_record` or `unsupported_format_version`.
    pub(in crate::store) detail: Detail,
    /// What doesn't fit.
    pub(in crate::store) reason: String,
}

impl Undecodable {
    pub(in crate::store) const fn corrupt(reason: String) -> Self {
        Self { detail: Detail::CorruptRecord, reason }
    }
}

/// Writes a record. `Err` says why it may not be stored.
pub(in crate::store) fn encode_record(record: &FenceRecord) -> Result<Vec<u8>, String> {
    record.check().map_err(|error| error.to_string())?;
    encode(&StoredRecord::from(record))
}

/// Writes a receipt. `Err` says why it may not be stored.
pub(in crate::store) fn encode_receipt(receipt: &Receipt) -> Result<Vec<u8>, String> {
    encode(&StoredReceipt::from(receipt))
}

fn encode<T: Serialize>(stored: &T) -> Result<Vec<u8>, String> {
    let bytes = serde_json::to_vec(stored).map_err(|error| error.to_string())?;
    if bytes.len() > limits::STORED_RECORD_BYTES {
        let most = limits::STORED_RECORD_BYTES;
        return Err(format!("it has {} bytes, at most {most} are stored", bytes.len()));
    }
    Ok(bytes)
}

/// Reads the record stored for `namespace` beside these columns.
pub(in crate::store) fn decode_record(
    namespace: &Namespace,
    format_version: i64,
    revision: i64,
    bytes: &[u8],
) -> Result<FenceRecord, Undecodable> {
    must_be_known(format_version)?;
    let column = column_revision(revision)?;
    let stored: StoredRecord = decode(bytes)?;
    let record = stored.model().map_err(Undecodable::corrupt)?;
    if record.namespace != *namespace {
        return Err(Undecodable::corrupt(format!("the payload is that of {}", record.namespace)));
    }
    if record.revision != column {
        return Err(Undecodable::corrupt(format!(
            "the revision column says {column}, the payload {}",
            record.revision
        )));
    }
    record.check().map_err(|error| Undecodable::corrupt(error.what))?;
    Ok(record)
}

/// Reads the receipt stored under this key beside these columns.
pub(in crate::store) fn decode_receipt(
    namespace: &Namespace,
    operation: OperationId,
    command: CommandId,
    format_version: i64,
    revision_after: i64,
    bytes: &[u8],
) -> Result<Receipt, Undecodable> {
    must_be_known(format_version)?;
    let column = column_revision(revision_after)?;
    let stored: StoredReceipt = decode(bytes)?;
    let receipt = stored.model().map_err(Undecodable::corrupt)?;
    if receipt.namespace != *namespace
        || receipt.operation != operation
        || receipt.command != command
    {
        return Err(Undecodable::corrupt(format!(
            "the payload is that of command {} of operation {} on {}",
            receipt.command, receipt.operation, receipt.namespace
        )));
    }
    if receipt.revision_after != column {
        return Err(Undecodable::corrupt(format!(
            "the revision column says {column}, the payload {}",
            receipt.revision_after
        )));
    }
    Ok(receipt)
}

fn must_be_known(format_version: i64) -> Result<(), Undecodable> {
    if format_version == FORMAT_VERSION {
        return Ok(());
    }
    let reason = format!("format version {format_version}, this build knows {FORMAT_VERSION}");
    Err(Undecodable { detail: Detail::UnsupportedFormatVersion, reason })
}

fn column_revision(revision: i64) -> Result<Revision, Undecodable> {
    u64::try_from(revision)
        .map(Revision)
        .map_err(|_| Undecodable::corrupt(format!("the revision column is {revision}")))
}

fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Undecodable> {
    serde_json::from_slice(bytes).map_err(|error| Undecodable::corrupt(error.to_string()))
}

/// Reads a choice by its stable name.
fn choice<T>(what: &str, text: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, String> {
    parse(text).ok_or_else(|| format!("{what} {text:?} is not one that is known"))
}

fn parsed<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRecord {
    namespace: String,
    role: String,
    state: String,
    revision: u64,
    operation_id: String,
    identity: Option<StoredIdentity>,
    target_incarnation_id: Option<String>,
    drain_policy: Option<StoredPolicy>,
    drain_started_at_ms: Option<u64>,
    /// Absent in records of before holding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hold_ms: Option<u64>,
    frozen_boundary: Option<StoredBoundary>,
    evidence: Option<StoredEvidence>,
    read_evidence: Option<StoredReadEvidence>,
    validation: Option<StoredValidation>,
    created_at_ms: u64,
    last_transition_at_ms: u64,
    last_command_id: String,
    written_by: StoredWrittenBy,
    adoptions: Vec<StoredAdoption>,
}

impl From<&FenceRecord> for StoredRecord {
    fn from(record: &FenceRecord) -> Self {
        Self {
            namespace: record.namespace.to_string(),
            role: record.role.name().to_owned(),
            state: record.state.name().to_owned(),
            revision: record.revision.0,
            operation_id: record.operation.to_string(),
            identity: record.identity.as_ref().map(StoredIdentity::from),
            target_incarnation_id: record.target_incarnation.map(|id| id.to_string()),
            drain_policy: record.drain_policy.map(StoredPolicy::from),
            drain_started_at_ms: record.drain_started_at_ms,
            hold_ms: record.hold_ms,
            frozen_boundary: record.frozen_boundary.as_ref().map(StoredBoundary::from),
            evidence: record.evidence.as_ref().map(StoredEvidence::from),
            read_evidence: record.read_evidence.as_ref().map(StoredReadEvidence::from),
            validation: record.validation.as_ref().map(StoredValidation::from),
            created_at_ms: record.created_at_ms,
            last_transition_at_ms: record.last_transition_at_ms,
            last_command_id: record.last_command.to_string(),
            written_by: StoredWrittenBy::from(&record.written_by),
            adoptions: record.adoptions.iter().map(StoredAdoption::from).collect(),
        }
    }
}

impl StoredRecord {
    fn model(self) -> Result<FenceRecord, String> {
        let incarnation = self.target_incarnation_id.as_deref().map(uuid::Uuid::try_parse);
        Ok(FenceRecord {
            namespace: parsed(Namespace::parse(&self.namespace))?,
            role: choice("role", &self.role, Role::parse)?,
            state: choice("state", &self.state, FenceState::parse)?,
            revision: Revision(self.revision),
            operation: parsed(OperationId::parse(&self.operation_id))?,
            identity: self.identity.map(StoredIdentity::model),
            target_incarnation: parsed(incarnation.transpose())?.map(IncarnationId),
            drain_policy: self.drain_policy.map(StoredPolicy::model).transpose()?,
            drain_started_at_ms: self.drain_started_at_ms,
            hold_ms: self.hold_ms,
            frozen_boundary: self.frozen_boundary.map(StoredBoundary::model).transpose()?,
            evidence: self.evidence.map(StoredEvidence::model).transpose()?,
            read_evidence: self.read_evidence.map(StoredReadEvidence::model).transpose()?,
            validation: self.validation.map(StoredValidation::model).transpose()?,
            created_at_ms: self.created_at_ms,
            last_transition_at_ms: self.last_transition_at_ms,
            last_command: parsed(CommandId::parse(&self.last_command_id))?,
            written_by: WrittenBy {
                build: self.written_by.build,
                instance: self.written_by.instance_id,
            },
            adoptions: self
                .adoptions
                .into_iter()
                .map(StoredAdoption::model)
                .collect::<Result<_, _>>()?,
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredIdentity {
    engine_id: String,
    timeline: Option<u32>,
    database_id: String,
}

impl From<&Identity> for StoredIdentity {
    fn from(identity: &Identity) -> Self {
        Self {
            engine_id: identity.engine_id.clone(),
            timeline: identity.timeline,
            database_id: identity.database_id.clone(),
        }
    }
}

impl StoredIdentity {
    fn model(self) -> Identity {
        Identity {
            engine_id: self.engine_id,
            timeline: self.timeline,
            database_id: self.database_id,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredPolicy {
    deadline_ms: u64,
    on_deadline: String,
    in_flight: Option<String>,
    hold_ms: Option<u64>,
}

impl From<DrainPolicy> for StoredPolicy {
    fn from(policy: DrainPolicy) -> Self {
        Self {
            deadline_ms: policy.deadline_ms,
            on_deadline: policy.on_deadline.name().to_owned(),
            in_flight: policy.in_flight.map(|in_flight| in_flight.name().to_owned()),
            hold_ms: policy.hold_ms,
        }
    }
}

impl StoredPolicy {
    fn model(self) -> Result<DrainPolicy, String> {
        let in_flight = self.in_flight.map(|text| choice("in_flight", &text, InFlight::parse));
        Ok(DrainPolicy {
            deadline_ms: self.deadline_ms,
            on_deadline: choice("on_deadline", &self.on_deadline, OnDeadline::parse)?,
            in_flight: in_flight.transpose()?,
            hold_ms: self.hold_ms,
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredBoundary {
    kind: String,
    value: String,
    engine_id: String,
    timeline: Option<u32>,
    marker: bool,
}

impl From<&Boundary> for StoredBoundary {
    fn from(boundary: &Boundary) -> Self {
        Self {
            kind: boundary.kind.name().to_owned(),
            value: boundary.value.clone(),
            engine_id: boundary.engine_id.clone(),
            timeline: boundary.timeline,
            marker: boundary.marker,
        }
    }
}

impl StoredBoundary {
    fn model(self) -> Result<Boundary, String> {
        Ok(Boundary {
            kind: choice("boundary kind", &self.kind, BoundaryKind::parse)?,
            value: self.value,
            engine_id: self.engine_id,
            timeline: self.timeline,
            marker: self.marker,
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredReleases {
    by_answer: u64,
    by_engine: u64,
}

impl From<Releases> for StoredReleases {
    fn from(releases: Releases) -> Self {
        Self { by_answer: releases.by_answer, by_engine: releases.by_engine }
    }
}

impl StoredReleases {
    const fn model(&self) -> Releases {
        Releases { by_answer: self.by_answer, by_engine: self.by_engine }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredForced {
    kind: String,
    session: Option<u64>,
    engine_pid: u32,
    at_ms: u64,
    why: String,
}

impl From<&Forced> for StoredForced {
    fn from(forced: &Forced) -> Self {
        Self {
            kind: forced.kind.name().to_owned(),
            session: forced.session.map(|session| session.0),
            engine_pid: forced.engine_pid,
            at_ms: forced.at_ms,
            why: forced.why.clone(),
        }
    }
}

impl StoredForced {
    fn model(self) -> Result<Forced, String> {
        Ok(Forced {
            kind: choice("forced kind", &self.kind, ForcedKind::parse)?,
            session: self.session.map(SessionId),
            engine_pid: self.engine_pid,
            at_ms: self.at_ms,
            why: self.why,
        })
    }
}

fn stored_forced(forced: &[Forced]) -> Vec<StoredForced> {
    forced.iter().map(StoredForced::from).collect()
}

fn model_forced(forced: Vec<StoredForced>) -> Result<Vec<Forced>, String> {
    forced.into_iter().map(StoredForced::model).collect()
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredCensus {
    at_engine_clock: String,
    virtual_transactions: u64,
    waited_for: u64,
    prepared: u64,
    orphans: u64,
    writers: u64,
    direct_sessions: u64,
}

impl From<&Census> for StoredCensus {
    fn from(census: &Census) -> Self {
        Self {
            at_engine_clock: census.at_engine_clock.clone(),
            virtual_transactions: census.virtual_transactions,
            waited_for: census.waited_for,
            prepared: census.prepared,
            orphans: census.orphans,
            writers: census.writers,
            direct_sessions: census.direct_sessions,
        }
    }
}

impl StoredCensus {
    fn model(self) -> Census {
        Census {
            at_engine_clock: self.at_engine_clock,
            virtual_transactions: self.virtual_transactions,
            waited_for: self.waited_for,
            prepared: self.prepared,
            orphans: self.orphans,
            writers: self.writers,
            direct_sessions: self.direct_sessions,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredLock {
    mode: String,
    outcome: String,
    tables: u64,
    gaps: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredEvidence {
    generation: u64,
    releases: StoredReleases,
    forced: Vec<StoredForced>,
    census_before: StoredCensus,
    census_after: StoredCensus,
    direct_sessions: Vec<String>,
    engine_lock: StoredLock,
    non_transactional_tables: Vec<String>,
    boundary: StoredBoundary,
    proven_at_ms: u64,
}

impl From<&Evidence> for StoredEvidence {
    fn from(evidence: &Evidence) -> Self {
        let lock = &evidence.engine_lock;
        Self {
            generation: evidence.generation.0,
            releases: StoredReleases::from(evidence.releases),
            forced: stored_forced(&evidence.forced),
            census_before: StoredCensus::from(&evidence.census_before),
            census_after: StoredCensus::from(&evidence.census_after),
            direct_sessions: evidence.direct_sessions.clone(),
            engine_lock: StoredLock {
                mode: lock.mode.name().to_owned(),
                outcome: lock.outcome.clone(),
                tables: lock.tables,
                gaps: lock.gaps.clone(),
            },
            non_transactional_tables: evidence.non_transactional_tables.clone(),
            boundary: StoredBoundary::from(&evidence.boundary),
            proven_at_ms: evidence.proven_at_ms,
        }
    }
}

impl StoredEvidence {
    fn model(self) -> Result<Evidence, String> {
        Ok(Evidence {
            generation: Generation(self.generation),
            releases: self.releases.model(),
            forced: model_forced(self.forced)?,
            census_before: self.census_before.model(),
            census_after: self.census_after.model(),
            direct_sessions: self.direct_sessions,
            engine_lock: EngineLock {
                mode: choice("lock mode", &self.engine_lock.mode, LockMode::parse)?,
                outcome: self.engine_lock.outcome,
                tables: self.engine_lock.tables,
                gaps: self.engine_lock.gaps,
            },
            non_transactional_tables: self.non_transactional_tables,
            boundary: self.boundary.model()?,
            proven_at_ms: self.proven_at_ms,
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredReadEvidence {
    generation: u64,
    releases: StoredReleases,
    forced: Vec<StoredForced>,
    proven_at_ms: u64,
}

impl From<&ReadEvidence> for StoredReadEvidence {
    fn from(evidence: &ReadEvidence) -> Self {
        Self {
            generation: evidence.generation.0,
            releases: StoredReleases::from(evidence.releases),
            forced: stored_forced(&evidence.forced),
            proven_at_ms: evidence.proven_at_ms,
        }
    }
}

impl StoredReadEvidence {
    fn model(self) -> Result<ReadEvidence, String> {
        Ok(ReadEvidence {
            generation: Generation(self.generation),
            releases: self.releases.model(),
            forced: model_forced(self.forced)?,
            proven_at_ms: self.proven_at_ms,
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredValidation {
    operation_id: String,
    command_id: String,
    result: String,
    summary: Option<String>,
    snapshot: Option<StoredBoundary>,
    recorded_at_ms: u64,
}

impl From<&Validation> for StoredValidation {
    fn from(validation: &Validation) -> Self {
        Self {
            operation_id: validation.operation.to_string(),
            command_id: validation.command.to_string(),
            result: validation.result.name().to_owned(),
            summary: validation.summary.clone(),
            snapshot: validation.snapshot.as_ref().map(StoredBoundary::from),
            recorded_at_ms: validation.recorded_at_ms,
        }
    }
}

impl StoredValidation {
    fn model(self) -> Result<Validation, String> {
        Ok(Validation {
            operation: parsed(OperationId::parse(&self.operation_id))?,
            command: parsed(CommandId::parse(&self.command_id))?,
            result: choice("validation result", &self.result, ValidationResult::parse)?,
            summary: self.summary,
            snapshot: self.snapshot.map(StoredBoundary::model).transpose()?,
            recorded_at_ms: self.recorded_at_ms,
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredWrittenBy {
    build: String,
    instance_id: String,
}

impl From<&WrittenBy> for StoredWrittenBy {
    fn from(by: &WrittenBy) -> Self {
        Self { build: by.build.clone(), instance_id: by.instance.clone() }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredAdoption {
    previous_operation_id: String,
    new_operation_id: String,
    command_id: String,
    approvers: [String; 2],
    incident_ref: String,
    reason: String,
    at_ms: u64,
    revision: u64,
}

impl From<&Adoption> for StoredAdoption {
    fn from(adoption: &Adoption) -> Self {
        Self {
            previous_operation_id: adoption.previous_operation.to_string(),
            new_operation_id: adoption.new_operation.to_string(),
            command_id: adoption.command.to_string(),
            approvers: adoption.approvers.clone(),
            incident_ref: adoption.incident_ref.clone(),
            reason: adoption.reason.clone(),
            at_ms: adoption.at_ms,
            revision: adoption.revision.0,
        }
    }
}

impl StoredAdoption {
    fn model(self) -> Result<Adoption, String> {
        Ok(Adoption {
            previous_operation: parsed(OperationId::parse(&self.previous_operation_id))?,
            new_operation: parsed(OperationId::parse(&self.new_operation_id))?,
            command: parsed(CommandId::parse(&self.command_id))?,
            approvers: self.approvers,
            incident_ref: self.incident_ref,
            reason: self.reason,
            at_ms: self.at_ms,
            revision: Revision(self.revision),
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredReceipt {
    namespace: String,
    operation_id: String,
    command_id: String,
    command: String,
    fingerprint: String,
    outcome: String,
    revision_before: u64,
    revision_after: u64,
    state_after: String,
    applied_at_ms: u64,
    instance_id: String,
    adoption: Option<StoredAdoption>,
}

impl From<&Receipt> for StoredReceipt {
    fn from(receipt: &Receipt) -> Self {
        Self {
            namespace: receipt.namespace.to_string(),
            operation_id: receipt.operation.to_string(),
            command_id: receipt.command.to_string(),
            command: receipt.kind.name().to_owned(),
            fingerprint: receipt.fingerprint.to_string(),
            outcome: receipt.outcome.name().to_owned(),
            revision_before: receipt.revision_before.0,
            revision_after: receipt.revision_after.0,
            state_after: receipt.state_after.name().to_owned(),
            applied_at_ms: receipt.applied_at_ms,
            instance_id: receipt.instance.clone(),
            adoption: receipt.adoption.as_ref().map(StoredAdoption::from),
        }
    }
}

impl StoredReceipt {
    fn model(self) -> Result<Receipt, String> {
        Ok(Receipt {
            namespace: parsed(Namespace::parse(&self.namespace))?,
            operation: parsed(OperationId::parse(&self.operation_id))?,
            command: parsed(CommandId::parse(&self.command_id))?,
            kind: choice("command", &self.command, CommandKind::parse)?,
            fingerprint: choice("fingerprint", &self.fingerprint, Fingerprint::parse)?,
            outcome: choice("outcome", &self.outcome, Outcome::parse)?,
            revision_before: Revision(self.revision_before),
            revision_after: Revision(self.revision_after),
            state_after: choice("state", &self.state_after, FenceState::parse)?,
            applied_at_ms: self.applied_at_ms,
            instance: self.instance_id,
            adoption: self.adoption.map(StoredAdoption::model).transpose()?,
        })
    }
}
