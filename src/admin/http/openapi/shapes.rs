//! The shapes of bodies, as a table.
//!
//! Purpose: one line per field, in a short notation, from which the description's JSON schemas are
//! made. The shapes of answers are what `admin/view.rs` makes, and those of requests what
//! `fields.rs` reads: `openapi/tests.rs` holds both against this table. Callers: `openapi.rs`.
//!
//! Notation of a type: `text`, `uuid`, `time`, `count`, `number`, `bool`; `a|b` is one of these
//! words; anything else is a shape or a list of codes by its name. Behind it `[]` makes a list of
//! it, and `?` lets it be null. A field whose name ends in `?` may be absent.

use serde_json::{Map, Value, json};

/// One shape: its name, whether it is a request (then nothing else may be in it), its fields.
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) strict: bool,
    pub(super) fields: &'static [(&'static str, &'static str)],
}

const fn answer(name: &'static str, fields: &'static [(&'static str, &'static str)]) -> Shape {
    Shape { name, strict: false, fields }
}

const fn request(name: &'static str, fields: &'static [(&'static str, &'static str)]) -> Shape {
    Shape { name, strict: true, fields }
}

/// Every shape.
pub(super) const SHAPES: &[Shape] = &[
    request(
        "AcquireRequest",
        &[
            ("operation_id", "uuid"),
            ("command_id", "uuid"),
            ("expected_state", "State"),
            ("expected_revision", "count"),
            ("expected_namespace_identity", "ExpectedIdentity"),
            ("drain_policy?", "DrainPolicyRequest?"),
        ],
    ),
    request(
        "SetReadRequest",
        &[
            ("operation_id", "uuid"),
            ("command_id", "uuid"),
            ("expected_state", "State"),
            ("expected_revision", "count"),
            ("drain_policy?", "DrainPolicyRequest?"),
        ],
    ),
    request(
        "CommandRequest",
        &[
            ("operation_id", "uuid"),
            ("command_id", "uuid"),
            ("expected_state", "State"),
            ("expected_revision", "count"),
        ],
    ),
    request(
        "AdoptRequest",
        &[
            ("operation_id", "uuid"),
            ("command_id", "uuid"),
            ("expected_state", "State"),
            ("expected_revision", "count"),
            ("current_operation_id", "uuid"),
            ("approvers", "text[]"),
            ("incident_ref", "text"),
            ("reason", "text"),
        ],
    ),
    request(
        "CreateRequest",
        &[
            ("operation_id", "uuid"),
            ("command_id", "uuid"),
            ("expected_state", "State"),
            ("expected_revision", "count"),
            ("owner?", "text?"),
            ("encoding?", "text?"),
            ("locale?", "text?"),
            ("template?", "text?"),
        ],
    ),
    request(
        "SealRequest",
        &[
            ("operation_id", "uuid"),
            ("command_id", "uuid"),
            ("expected_state", "State"),
            ("expected_revision", "count"),
            ("drain_policy?", "DrainPolicyRequest?"),
        ],
    ),
    request(
        "ValidationRequest",
        &[
            ("operation_id", "uuid"),
            ("command_id", "uuid"),
            ("expected_state", "State"),
            ("expected_revision", "count"),
            ("result", "ok|failed"),
            ("summary?", "text?"),
        ],
    ),
    request(
        "CapabilityRequest",
        &[
            ("operation_id", "uuid"),
            ("expected_revision", "count"),
            ("purpose?", "import|validation?"),
        ],
    ),
    request(
        "QueryRequest",
        &[
            ("operation_id", "uuid"),
            ("expected_revision", "count"),
            ("expected_state?", "State?"),
            ("stmts", "text[]"),
        ],
    ),
    request(
        "ExpectedIdentity",
        &[("engine_id", "text"), ("database_id", "text"), ("timeline?", "count?")],
    ),
    request(
        "DrainPolicyRequest",
        &[
            ("deadline_ms", "count"),
            ("on_deadline?", "fail|force_rollback?"),
            ("in_flight?", "finish|refuse?"),
            ("hold_ms?", "count?"),
        ],
    ),
    answer(
        "Answer",
        &[
            ("outcome", "Outcome?"),
            ("replayed", "bool"),
            ("fence", "Fence?"),
            ("drain", "Drain?"),
            ("receipt?", "Receipt"),
            ("reason?", "text"),
            ("error?", "text?"),
            ("detail?", "Detail"),
        ],
    ),
    answer(
        "Capability",
        &[
            ("namespace", "text"),
            ("number", "count"),
            ("purpose", "import|validation"),
            ("operation_id", "uuid"),
            ("revision", "count"),
            ("secret", "text"),
        ],
    ),
    answer(
        "ReadAnswer",
        &[("namespace", "text"), ("revision", "count"), ("results", "ReadTable[]")],
    ),
    answer("ReadTable", &[("cols", "text[]"), ("rows", "text?[][]")]),
    answer(
        "Inspection",
        &[
            ("outcome", "Outcome"),
            ("replayed", "bool"),
            ("fence", "Fence"),
            ("receipts", "Receipt[]"),
            ("drain", "Drain"),
            ("receipts_error?", "text"),
            ("identity_error?", "text"),
            ("identity_error_kind?", "text"),
        ],
    ),
    answer(
        "Fence",
        &[
            ("namespace", "text"),
            ("state", "State"),
            ("revision", "count"),
            ("role", "Role?"),
            ("operation_id", "uuid?"),
            ("incarnation", "Incarnation"),
            ("admission", "Admission"),
            ("held", "Held"),
            ("engine_lock", "LockNow?"),
            ("capabilities", "LiveCapability[]"),
            ("writable_targets", "text[]"),
            ("frozen_boundary", "Boundary?"),
            ("evidence", "Evidence?"),
            ("read_evidence?", "ReadEvidence?"),
            ("drain_policy", "DrainPolicy?"),
            ("drain_started_at", "time?"),
            ("validation", "Validation?"),
            ("created_at", "time?"),
            ("last_transition_at", "time?"),
            ("last_command_id", "uuid?"),
            ("adoptions", "Adoption[]"),
            ("written_by", "Server?"),
            ("server", "Server"),
            ("provenance", "Provenance"),
            ("detail?", "Detail"),
            ("reason?", "text"),
            ("marker_record?", "Record?"),
        ],
    ),
    answer(
        "Record",
        &[
            ("namespace", "text"),
            ("state", "State"),
            ("revision", "count"),
            ("identity", "Identity?"),
            ("role", "Role"),
            ("operation_id", "uuid"),
            ("frozen_boundary", "Boundary?"),
            ("evidence", "Evidence?"),
            ("read_evidence", "ReadEvidence?"),
            ("drain_policy", "DrainPolicy?"),
            ("drain_started_at", "time?"),
            ("validation", "Validation?"),
            ("created_at", "time"),
            ("last_transition_at", "time"),
            ("last_command_id", "uuid"),
            ("adoptions", "Adoption[]"),
            ("written_by", "Server"),
        ],
    ),
    answer(
        "Incarnation",
        &[
            ("engine_id", "text?"),
            ("timeline", "count?"),
            ("database_id", "text?"),
            ("target_incarnation_id", "uuid?"),
            ("current", "Identity?"),
        ],
    ),
    answer("Identity", &[("engine_id", "text"), ("timeline", "count?"), ("database_id", "text")]),
    answer(
        "Admission",
        &[
            ("write", "open|closed"),
            ("read", "open|closed"),
            ("generation", "count?"),
            ("indeterminate", "bool"),
            ("pending_command", "CommandKey?"),
        ],
    ),
    answer("CommandKey", &[("operation_id", "uuid"), ("command_id", "uuid")]),
    answer(
        "Held",
        &[
            ("programs", "count"),
            ("bytes", "count"),
            ("since", "time?"),
            ("oldest_ms", "count?"),
            ("hold_ms", "count"),
            ("max_held", "count"),
        ],
    ),
    answer(
        "LockNow",
        &[("mode", "text"), ("held", "bool"), ("tables", "count"), ("gaps", "text[]")],
    ),
    answer(
        "EngineLock",
        &[("mode", "text"), ("outcome", "text"), ("tables", "count"), ("gaps", "text[]")],
    ),
    answer(
        "Boundary",
        &[
            ("kind", "lsn|gtid|binlog|none"),
            ("value", "text"),
            ("engine_id", "text"),
            ("timeline", "count?"),
            ("marker", "bool"),
        ],
    ),
    answer(
        "Evidence",
        &[
            ("generation", "count"),
            ("releases", "Releases"),
            ("forced", "Forced[]"),
            ("census_before", "Census"),
            ("census_after", "Census"),
            ("at_engine_clock", "text"),
            ("direct_sessions", "text[]"),
            ("engine_lock", "EngineLock"),
            ("non_transactional_tables", "text[]"),
            ("boundary", "Boundary"),
            ("proven_at", "time"),
        ],
    ),
    answer(
        "ReadEvidence",
        &[
            ("generation", "count"),
            ("releases", "Releases"),
            ("forced", "Forced[]"),
            ("proven_at", "time"),
        ],
    ),
    answer("Releases", &[("by_answer", "count"), ("by_engine", "count")]),
    answer(
        "Forced",
        &[
            ("kind", "ForcedKind"),
            ("session", "count?"),
            ("engine_pid", "number"),
            ("at", "time"),
            ("why", "text"),
        ],
    ),
    answer(
        "Census",
        &[
            ("at_engine_clock", "text"),
            ("virtual_transactions", "count"),
            ("waited_for", "count"),
            ("prepared", "count"),
            ("orphans", "count"),
            ("writers", "count"),
            ("direct_sessions", "count"),
        ],
    ),
    answer(
        "DrainPolicy",
        &[
            ("deadline_ms", "count"),
            ("on_deadline", "fail|force_rollback"),
            ("in_flight", "finish|refuse?"),
            ("hold_ms", "count?"),
        ],
    ),
    answer(
        "Validation",
        &[
            ("operation_id", "uuid"),
            ("command_id", "uuid"),
            ("result", "ok|failed"),
            ("summary", "text?"),
            ("snapshot", "Boundary?"),
            ("recorded_at", "time"),
        ],
    ),
    answer(
        "Adoption",
        &[
            ("previous_operation_id", "uuid"),
            ("new_operation_id", "uuid"),
            ("command_id", "uuid"),
            ("approvers", "text[]"),
            ("incident_ref", "text"),
            ("reason", "text"),
            ("at", "time"),
            ("revision", "count"),
        ],
    ),
    answer(
        "Receipt",
        &[
            ("operation_id", "uuid"),
            ("command_id", "uuid"),
            ("command", "Command"),
            ("fingerprint", "text"),
            ("outcome", "APPLIED|ALREADY_APPLIED|DRAINING"),
            ("revision_before", "count"),
            ("revision_after", "count"),
            ("state_after", "State"),
            ("applied_at", "time"),
            ("instance_id", "text"),
            ("adoption", "Adoption?"),
        ],
    ),
    answer(
        "Drain",
        &[
            ("phase", "text"),
            ("active_writers", "count"),
            ("read_leases", "ReadLeases"),
            ("import_writers", "count"),
            ("blockers", "Blocker[]"),
            ("more_blockers", "count"),
            ("blockers_as_of", "time?"),
            ("command_id", "uuid?"),
            ("drain_policy", "DrainPolicy?"),
            ("started_at", "time?"),
            ("deadline_at", "time?"),
            ("reason", "text?"),
            ("forced", "Forced[]"),
        ],
    ),
    answer("ReadLeases", &[("sql", "count"), ("dump", "count"), ("replication", "count")]),
    answer(
        "Blocker",
        &[
            ("session", "count?"),
            ("client", "text"),
            ("user", "text"),
            ("application_name", "text"),
            ("engine_pid", "number?"),
            ("engine_started_at", "time?"),
            ("class", "text"),
            ("age_ms", "count?"),
            ("statement", "text"),
            ("why", "text"),
        ],
    ),
    answer("Namespaces", &[("namespaces", "Namespace[]")]),
    answer(
        "Namespace",
        &[
            ("namespace", "text"),
            ("state", "State"),
            ("revision", "count"),
            ("operation_id", "uuid?"),
            ("admission", "Admission"),
            ("held", "Held"),
            ("engine_lock", "LockNow?"),
            ("sessions", "count"),
            ("leases", "Leases"),
            ("orphans", "count"),
            ("blockers", "Blocker[]"),
            ("drain", "Drain"),
            ("capabilities", "LiveCapability[]"),
            ("routes", "text[]"),
            ("detail", "Detail?"),
            ("reason", "text?"),
        ],
    ),
    answer("Leases", &[("read", "count"), ("write", "count")]),
    answer("Sessions", &[("sessions", "Session[]"), ("more_sessions", "count")]),
    answer(
        "Session",
        &[
            ("session", "count"),
            ("namespace", "text"),
            ("client", "text"),
            ("user", "text"),
            ("application_name", "text"),
            ("engine_pid", "number?"),
            ("lease", "Lease?"),
            ("abandoned", "bool"),
            ("capability", "import|validation?"),
            ("held_ms", "count?"),
        ],
    ),
    answer(
        "LiveCapability",
        &[
            ("number", "count"),
            ("purpose", "import|validation"),
            ("operation_id", "uuid"),
            ("revision", "count"),
            ("issued_at", "time"),
            ("sessions", "count"),
        ],
    ),
    answer("Lease", &[("class", "read|write"), ("generation", "count"), ("age_ms", "count")]),
    answer(
        "Capabilities",
        &[
            ("fence_protocol_version", "count"),
            ("enabled", "bool"),
            ("commands", "Command[]"),
            ("available_commands", "Command[]"),
            ("states", "State[]"),
            ("proxy_stable_code", "bool"),
            ("server", "Server"),
            ("active_fences", "count"),
            ("metastore", "Metastore"),
        ],
    ),
    answer("Metastore", &[("restored_from_backup", "bool"), ("restored_generation", "count?")]),
    answer("Server", &[("build", "text"), ("instance_id", "text")]),
    answer(
        "Provenance",
        &[
            ("metastore_restored_from_backup", "bool"),
            ("metastore_restored_generation", "count?"),
            ("marker", "text?"),
        ],
    ),
    answer(
        "Status",
        &[
            ("namespaces", "Namespace[]"),
            ("more_namespaces", "count"),
            ("denials", "Denied[]"),
            ("sessions", "count"),
            ("enabled", "bool"),
            ("active_fences", "count"),
            ("server", "Server"),
        ],
    ),
    answer("Denied", &[("code", "DenialCode"), ("surface", "Surface"), ("count", "count")]),
    answer("Reloaded", &[("reloaded", "bool"), ("changed", "text[]")]),
    answer("NotReloaded", &[("reloaded", "bool"), ("error", "text"), ("errors", "text[]")]),
    answer("Error", &[("error", "text")]),
];

/// The schema of a type in the notation.
fn schema_of(notation: &str) -> Value {
    if let Some(inner) = notation.strip_suffix('?') {
        return json!({ "anyOf": [schema_of(inner), { "type": "null" }] });
    }
    if let Some(inner) = notation.strip_suffix("[]") {
        return json!({ "type": "array", "items": schema_of(inner) });
    }
    if notation.contains('|') {
        return json!({ "type": "string", "enum": notation.split('|').collect::<Vec<_>>() });
    }
    match notation {
        "text" => json!({ "type": "string" }),
        "uuid" => json!({ "type": "string", "format": "uuid" }),
        "time" => json!({ "type": "string", "format": "date-time" }),
        "count" => json!({ "type": "integer", "minimum": 0 }),
        "number" => json!({ "type": "integer" }),
        "bool" => json!({ "type": "boolean" }),
        name => json!({ "$ref": format!("#/components/schemas/{name}") }),
    }
}

impl Shape {
    /// Its JSON schema.
    pub(super) fn schema(&self) -> Value {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for (field, notation) in self.fields {
            let name = field.strip_suffix('?').unwrap_or(field);
            if name == *field {
                required.push(name);
            }
            properties.insert(name.to_owned(), schema_of(notation));
        }
        let mut schema =
            json!({ "type": "object", "required": required, "properties": properties });
        if self.strict {
            schema["additionalProperties"] = json!(false);
        }
        schema
    }
}
