//! The shapes shown outside.
//!
//! Purpose: one JSON shape per thing, with the field names of the contract (1.6) and of conf.md;
//! names are final, fields are only added. Timestamps are RFC 3339 UTC with milliseconds.
//! Statements have their literals replaced unless the configuration shows them.
//!
//! Callers: `admin/http`. Pure; nothing here reads anything.

use serde_json::{Map, Value, json};

use super::literals::hidden;
use crate::base::ids::{Namespace, Revision};
use crate::control::answer::{
    Admission, Answer, AnswerCode, BlockerReport, DrainReport, HeldReport, LockReport,
    NamespaceLine, Sight, Unavailable,
};
use crate::control::instant::rfc3339_ms;
use crate::control::status::{Capabilities, Inspection, SessionLine, Silence};
use crate::engine::ReadTable;
use crate::fence::command::CommandKind;
use crate::fence::receipt::Receipt;
use crate::fence::record::{
    Adoption, Boundary, Census, DrainPolicy, EngineLock, Evidence, FenceRecord, Forced, Identity,
    ReadEvidence, Validation, WrittenBy,
};
use crate::fence::state::FenceState;
use crate::gate::capability::{Issued, Listed};

/// How things are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// Whether statements keep their literals.
    pub literals: bool,
}

/// The answer to a command.
#[must_use]
pub fn answer(answer: &Answer, shown: Shown) -> Value {
    let mut body = Map::new();
    let outcome = match answer.code {
        AnswerCode::Control(code) => json!(code.name()),
        // No code of the contract: the status says that a replay is right.
        AnswerCode::Failed => Value::Null,
    };
    body.insert("outcome".to_owned(), outcome);
    body.insert("replayed".to_owned(), json!(answer.replayed));
    body.insert("fence".to_owned(), answer.sight.as_ref().map_or(Value::Null, fence));
    if let Some(found) = &answer.receipt {
        body.insert("receipt".to_owned(), receipt(found));
    }
    let running = answer.sight.as_ref().map(|sight| drain(&sight.drain, shown));
    body.insert("drain".to_owned(), running.unwrap_or(Value::Null));
    match (answer.code.is_success(), &answer.message) {
        (false, message) => {
            body.insert("error".to_owned(), json!(message));
            if let Some(detail) = answer.detail {
                body.insert("detail".to_owned(), json!(detail.name()));
            }
        }
        (true, Some(reason)) => {
            body.insert("reason".to_owned(), json!(reason));
        }
        (true, None) => {}
    }
    Value::Object(body)
}

/// An inspection.
#[must_use]
pub fn inspection(inspection: &Inspection, shown: Shown) -> Value {
    let mut view = json!({
        "outcome": "APPLIED",
        "replayed": false,
        "fence": fence(&inspection.sight),
        "receipts": inspection.receipts.iter().map(receipt).collect::<Vec<_>>(),
        "drain": drain(&inspection.sight.drain, shown),
    });
    if let Some(why) = &inspection.unreadable {
        view["receipts_error"] = json!(why);
    }
    if let Some(Silence { kind, words }) = &inspection.silence {
        view["identity_error"] = json!(words);
        view["identity_error_kind"] = json!(kind);
    }
    view
}

/// Where a namespace stands.
#[must_use]
pub fn fence(sight: &Sight) -> Value {
    let record = sight.record.as_deref();
    let unavailable = sight.unavailable.as_ref();
    let mut view = match record {
        Some(record) => record_fields(record),
        None => no_record_fields(),
    };
    let marker = match (sight.marker_consistent, unavailable) {
        (_, Some(why)) => json!(why.detail.name()),
        (Some(true), None) => json!("consistent"),
        // The record wins; the marker is written anew before the next command.
        (Some(false), None) => json!("lagging"),
        (None, None) => Value::Null,
    };
    for (name, value) in [
        ("namespace", json!(sight.namespace.to_string())),
        ("state", json!(sight.state.name())),
        ("revision", json!(sight.revision.0)),
        ("incarnation", incarnation(record, sight.live.as_ref())),
        ("admission", admission(&sight.admission)),
        ("held", held(&sight.held)),
        ("engine_lock", sight.lock.as_ref().map_or(Value::Null, lock)),
        ("capabilities", listed(&sight.capabilities)),
        ("writable_targets", names(&sight.writable_targets)),
        ("server", server(&sight.server)),
        (
            "provenance",
            json!({
                "metastore_restored_from_backup": false,
                "metastore_restored_generation": null,
                "marker": marker,
            }),
        ),
    ] {
        view.insert(name.to_owned(), value);
    }
    if let Some(Unavailable { detail, reason, marker }) = unavailable {
        view.insert("detail".to_owned(), json!(detail.name()));
        view.insert("reason".to_owned(), json!(reason));
        let record = marker.as_deref().map(|record| Value::Object(full_record(record)));
        view.insert("marker_record".to_owned(), json!(record));
    }
    Value::Object(view)
}

fn at(ms: u64) -> Value {
    json!(rfc3339_ms(ms))
}

fn server(server: &WrittenBy) -> Value {
    json!({ "build": server.build, "instance_id": server.instance })
}

fn identity(identity: &Identity) -> Value {
    json!({
        "engine_id": identity.engine_id,
        "timeline": identity.timeline,
        "database_id": identity.database_id,
    })
}

/// What the caller of a next command has to name: the fence's own identity while it is owned, the
/// live one otherwise. `current` is always the live one.
fn incarnation(record: Option<&FenceRecord>, live: Option<&Identity>) -> Value {
    let owned = record.filter(|record| !record.state.is_operation_finished());
    let named = owned.and_then(|record| record.identity.as_ref()).or(live);
    let target = record.and_then(|record| record.target_incarnation);
    json!({
        "engine_id": named.map(|one| &one.engine_id),
        "timeline": named.and_then(|one| one.timeline),
        "database_id": named.map(|one| &one.database_id),
        "target_incarnation_id": target.map(|id| id.to_string()),
        "current": live.map(identity),
    })
}

fn open_or_closed(open: bool) -> &'static str {
    if open { "open" } else { "closed" }
}

fn admission(admission: &Admission) -> Value {
    let pending = admission.indeterminate.map(|key| {
        json!({
            "operation_id": key.operation.to_string(),
            "command_id": key.command.to_string(),
        })
    });
    json!({
        "write": open_or_closed(admission.write),
        "read": open_or_closed(admission.read),
        "generation": admission.generation.map(|generation| generation.0),
        "indeterminate": pending.is_some(),
        "pending_command": pending,
    })
}

fn held(held: &HeldReport) -> Value {
    json!({
        "programs": held.programs,
        "bytes": held.bytes,
        "since": held.since_ms.map(at),
        "oldest_ms": held.oldest_ms,
        "hold_ms": held.hold_ms,
        "max_held": held.held_max,
    })
}

fn lock(lock: &LockReport) -> Value {
    json!({
        "mode": lock.mode.name(), "held": lock.held, "tables": lock.tables, "gaps": lock.gaps,
    })
}

fn no_record_fields() -> Map<String, Value> {
    let mut view = Map::new();
    for name in [
        "role",
        "operation_id",
        "frozen_boundary",
        "evidence",
        "drain_policy",
        "drain_started_at",
        "validation",
        "created_at",
        "last_transition_at",
        "last_command_id",
        "written_by",
    ] {
        view.insert(name.to_owned(), Value::Null);
    }
    view.insert("adoptions".to_owned(), json!([]));
    view
}

fn record_fields(record: &FenceRecord) -> Map<String, Value> {
    let mut view = Map::new();
    for (name, value) in [
        ("role", json!(record.role.name())),
        ("operation_id", json!(record.operation.to_string())),
        ("frozen_boundary", json!(record.frozen_boundary.as_ref().map(boundary))),
        ("evidence", json!(record.evidence.as_ref().map(evidence))),
        ("read_evidence", json!(record.read_evidence.as_ref().map(read_evidence))),
        ("drain_policy", json!(record.drain_policy.as_ref().map(drain_policy))),
        ("drain_started_at", json!(record.drain_started_at_ms.map(at))),
        ("validation", json!(record.validation.as_ref().map(validation))),
        ("created_at", at(record.created_at_ms)),
        ("last_transition_at", at(record.last_transition_at_ms)),
        ("last_command_id", json!(record.last_command.to_string())),
        ("written_by", server(&record.written_by)),
        ("adoptions", json!(record.adoptions.iter().map(adoption).collect::<Vec<_>>())),
    ] {
        view.insert(name.to_owned(), value);
    }
    view
}

/// A record that is shown by itself, such as a marker's.
fn full_record(record: &FenceRecord) -> Map<String, Value> {
    let mut view = record_fields(record);
    view.insert("namespace".to_owned(), json!(record.namespace.to_string()));
    view.insert("state".to_owned(), json!(record.state.name()));
    view.insert("revision".to_owned(), json!(record.revision.0));
    view.insert("identity".to_owned(), json!(record.identity.as_ref().map(identity)));
    view
}

fn boundary(boundary: &Boundary) -> Value {
    json!({
        "kind": boundary.kind.name(),
        "value": boundary.value,
        "engine_id": boundary.engine_id,
        "timeline": boundary.timeline,
        "marker": boundary.marker,
    })
}

fn drain_policy(policy: &DrainPolicy) -> Value {
    json!({
        "deadline_ms": policy.deadline_ms,
        "on_deadline": policy.on_deadline.name(),
        "in_flight": policy.in_flight.map(|rule| rule.name()),
        "hold_ms": policy.hold_ms,
    })
}

fn census(census: &Census) -> Value {
    json!({
        "at_engine_clock": census.at_engine_clock,
        "virtual_transactions": census.virtual_transactions,
        "waited_for": census.waited_for,
        "prepared": census.prepared,
        "orphans": census.orphans,
        "writers": census.writers,
        "direct_sessions": census.direct_sessions,
    })
}

fn engine_lock(lock: &EngineLock) -> Value {
    json!({
        "mode": lock.mode.name(), "outcome": lock.outcome, "tables": lock.tables, "gaps": lock.gaps,
    })
}

fn forced(forced: &Forced) -> Value {
    json!({
        "kind": forced.kind.name(),
        "session": forced.session.map(|session| session.0),
        "engine_pid": forced.engine_pid,
        "at": at(forced.at_ms),
        "why": forced.why,
    })
}

fn evidence(evidence: &Evidence) -> Value {
    json!({
        "generation": evidence.generation.0,
        "releases": {
            "by_answer": evidence.releases.by_answer,
            "by_engine": evidence.releases.by_engine,
        },
        "forced": evidence.forced.iter().map(forced).collect::<Vec<_>>(),
        "census_before": census(&evidence.census_before),
        "census_after": census(&evidence.census_after),
        "at_engine_clock": evidence.census_after.at_engine_clock,
        "direct_sessions": evidence.direct_sessions,
        "engine_lock": engine_lock(&evidence.engine_lock),
        "non_transactional_tables": evidence.non_transactional_tables,
        "boundary": boundary(&evidence.boundary),
        "proven_at": at(evidence.proven_at_ms),
    })
}

fn read_evidence(evidence: &ReadEvidence) -> Value {
    json!({
        "generation": evidence.generation.0,
        "releases": {
            "by_answer": evidence.releases.by_answer,
            "by_engine": evidence.releases.by_engine,
        },
        "forced": evidence.forced.iter().map(forced).collect::<Vec<_>>(),
        "proven_at": at(evidence.proven_at_ms),
    })
}

fn validation(validation: &Validation) -> Value {
    json!({
        "operation_id": validation.operation.to_string(),
        "command_id": validation.command.to_string(),
        "result": validation.result.name(),
        "summary": validation.summary,
        "snapshot": validation.snapshot.as_ref().map(boundary),
        "recorded_at": at(validation.recorded_at_ms),
    })
}

fn adoption(adoption: &Adoption) -> Value {
    json!({
        "previous_operation_id": adoption.previous_operation.to_string(),
        "new_operation_id": adoption.new_operation.to_string(),
        "command_id": adoption.command.to_string(),
        "approvers": adoption.approvers,
        "incident_ref": adoption.incident_ref,
        "reason": adoption.reason,
        "at": at(adoption.at_ms),
        "revision": adoption.revision.0,
    })
}

/// A receipt.
#[must_use]
pub fn receipt(receipt: &Receipt) -> Value {
    json!({
        "operation_id": receipt.operation.to_string(),
        "command_id": receipt.command.to_string(),
        "command": receipt.kind.name(),
        "fingerprint": receipt.fingerprint.to_string(),
        "outcome": receipt.outcome.name(),
        "revision_before": receipt.revision_before.0,
        "revision_after": receipt.revision_after.0,
        "state_after": receipt.state_after.name(),
        "applied_at": at(receipt.applied_at_ms),
        "instance_id": receipt.instance,
        "adoption": receipt.adoption.as_ref().map(adoption),
    })
}

/// A drain, running or not.
#[must_use]
pub fn drain(report: &DrainReport, shown: Shown) -> Value {
    json!({
        "phase": report.phase.name(),
        "active_writers": report.active_writers,
        "read_leases": {
            "sql": report.read_leases.sql,
            "dump": report.read_leases.dump,
            "replication": report.read_leases.replication,
        },
        "import_writers": report.import_writers,
        "blockers": report.blockers.iter().map(|one| blocker(one, shown)).collect::<Vec<_>>(),
        "more_blockers": report.more_blockers,
        "blockers_as_of": report.as_of_ms.map(at),
        "command_id": report.command.map(|key| key.command.to_string()),
        "drain_policy": report.policy.as_ref().map(drain_policy),
        "started_at": report.started_at_ms.map(at),
        "deadline_at": report.deadline_at_ms.map(at),
        "reason": report.reason,
        "forced": report.forced.iter().map(forced).collect::<Vec<_>>(),
    })
}

fn blocker(blocker: &BlockerReport, shown: Shown) -> Value {
    let statement =
        if shown.literals { blocker.statement.clone() } else { hidden(&blocker.statement) };
    json!({
        "session": blocker.session.map(|session| session.0),
        "client": blocker.client,
        "user": blocker.user,
        "application_name": blocker.application_name,
        "engine_pid": blocker.engine_pid,
        "engine_started_at": blocker.engine_started_at_ms.map(at),
        "class": blocker.class,
        "age_ms": blocker.age_ms,
        "statement": statement,
        "why": blocker.why,
    })
}

fn namespace_line(line: &NamespaceLine, shown: Shown) -> Value {
    let report = drain(&line.drain, shown);
    let blockers = report.get("blockers").cloned().unwrap_or_else(|| json!([]));
    json!({
        "namespace": line.namespace.to_string(),
        "state": line.state.name(),
        "revision": line.revision.0,
        "operation_id": line.operation.map(|operation| operation.to_string()),
        "admission": admission(&line.admission),
        "held": held(&line.held),
        "engine_lock": line.lock.as_ref().map_or(Value::Null, lock),
        "sessions": line.sessions,
        "leases": { "read": line.leases.saturating_sub(line.writers), "write": line.writers },
        "orphans": line.orphans,
        "blockers": blockers,
        "drain": report,
        "capabilities": listed(&line.capabilities),
        "routes": line.routes,
        "detail": line.unavailable.as_ref().map(|(detail, _)| detail.name()),
        "reason": line.unavailable.as_ref().map(|(_, reason)| reason),
    })
}

/// The listing of namespaces.
#[must_use]
pub fn namespaces(lines: &[NamespaceLine], shown: Shown) -> Value {
    let lines: Vec<_> = lines.iter().map(|line| namespace_line(line, shown)).collect();
    json!({ "namespaces": lines })
}

/// What the status page shows, in one piece. `more` namespaces are left out; `denied` is refusals
/// since the start as (code, surface, count).
#[must_use]
pub fn status(
    lines: &[NamespaceLine],
    more: usize,
    denied: &[(&str, &str, u64)],
    sessions: u64,
    able: &Capabilities,
    shown: Shown,
) -> Value {
    let denied = denied
        .iter()
        .map(|(code, surface, count)| json!({ "code": code, "surface": surface, "count": count }));
    json!({
        "namespaces": lines.iter().map(|line| namespace_line(line, shown)).collect::<Vec<_>>(),
        "more_namespaces": more,
        "denials": denied.collect::<Vec<_>>(),
        "sessions": sessions,
        "enabled": able.enabled,
        "active_fences": able.active_fences,
        "server": server(&able.server),
    })
}

/// The listing of sessions.
#[must_use]
pub fn sessions(lines: &[SessionLine], more: u64) -> Value {
    let line = |line: &SessionLine| {
        let lease = line.lease.map(|lease| {
            json!({
                "class": if lease.writer { "write" } else { "read" },
                "generation": lease.generation.0,
                "age_ms": lease.age_ms,
            })
        });
        json!({
            "session": line.session.0,
            "namespace": line.namespace.to_string(),
            "client": line.client,
            "user": line.user,
            "application_name": line.application_name,
            "engine_pid": line.engine_pid,
            "lease": lease,
            "abandoned": line.abandoned,
            "capability": line.capability.map(|purpose| purpose.name()),
            "held_ms": line.held_ms,
        })
    };
    json!({ "sessions": lines.iter().map(line).collect::<Vec<_>>(), "more_sessions": more })
}

/// What this build and process can do.
#[must_use]
pub fn capabilities(capabilities: &Capabilities) -> Value {
    json!({
        "fence_protocol_version": 1,
        "enabled": capabilities.enabled,
        "commands": CommandKind::ALL.map(CommandKind::name),
        "available_commands": CommandKind::ALL.map(CommandKind::name),
        "states": FenceState::ALL.map(FenceState::name),
        "proxy_stable_code": true,
        "server": server(&capabilities.server),
        "active_fences": capabilities.active_fences,
        "metastore": { "restored_from_backup": false, "restored_generation": null },
    })
}

fn names(namespaces: &[Namespace]) -> Value {
    json!(namespaces.iter().map(Namespace::to_string).collect::<Vec<_>>())
}

/// Live capabilities. Their secrets aren't known any more.
fn listed(capabilities: &[Listed]) -> Value {
    let one = |one: &Listed| {
        json!({
            "number": one.number,
            "purpose": one.purpose.name(),
            "operation_id": one.operation.to_string(),
            "revision": one.revision.0,
            "issued_at": at(one.issued_at_ms),
            "sessions": one.sessions,
        })
    };
    json!(capabilities.iter().map(one).collect::<Vec<_>>())
}

/// A capability that was just given out: the only place where its secret is shown.
#[must_use]
pub fn issued(issued: &Issued) -> Value {
    let capability = issued.capability();
    json!({
        "namespace": capability.namespace().to_string(),
        "number": capability.number(),
        "purpose": capability.purpose().name(),
        "operation_id": capability.operation().to_string(),
        "revision": capability.revision().0,
        "secret": issued.secret().expose(),
    })
}

/// What a validation's question was answered with.
#[must_use]
pub fn read_tables(namespace: &Namespace, revision: Revision, tables: &[ReadTable]) -> Value {
    let table = |table: &ReadTable| json!({ "cols": table.columns, "rows": table.rows });
    json!({
        "namespace": namespace.to_string(),
        "revision": revision.0,
        "results": tables.iter().map(table).collect::<Vec<_>>(),
    })
}
