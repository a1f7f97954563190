//! The API's description: one OpenAPI 3.1 document.
//!
//! Purpose: scripts and generators learn routes, bodies, answers, statuses and codes from the
//! program itself. Paths come from the route table that serves (`routes.rs`), codes from
//! `fence/code.rs`, bodies from `openapi/shapes.rs`; what is written here is the words. Written by
//! hand and not derived, because bodies are read field by field (`fields.rs`) and answers built as
//! values (`admin/view.rs`): there are no structs to derive from. `openapi/tests.rs` and every test
//! in `http/tests.rs` hold it against what is really answered.
//!
//! Callers: `routes.rs` (`GET /v1/openapi.json`), `cli` (`fencewire openapi`).

mod shapes;
#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::fences::{ADOPTION_KEY_HEADER, Wanted};
use super::routes::{Access, Method, Purpose, ROUTES, Route};
use crate::fence::code::{ControlCode, Denial, Detail};
use crate::fence::command::CommandKind;
use crate::fence::record::ForcedKind;
use crate::fence::state::FenceState;
use crate::telemetry::labels;

/// The document.
#[must_use]
pub fn document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let method = match route.purpose.method() {
            Method::Get => "get",
            Method::Post => "post",
        };
        paths.insert(route.template.to_owned(), json!({ method: operation(route) }));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Fencewire admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Fences of live databases: commands, and what holds now. A command is \
                named by operation_id and command_id; the same request sent again is answered from \
                its receipt and never done twice. Match outcome and detail, never texts. Fields \
                are only ever added.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "adminKey": { "type": "http", "scheme": "bearer", "description": "the admin key" },
            },
            "schemas": schemas(),
        },
    })
}

fn names(description: &str, names: &[&str]) -> Value {
    json!({ "type": "string", "description": description, "enum": names })
}

fn schemas() -> Value {
    let mut all: Map<String, Value> =
        shapes::SHAPES.iter().map(|shape| (shape.name.to_owned(), shape.schema())).collect();
    let mut denials: Vec<&str> = Denial::ALL.map(Denial::code).to_vec();
    denials.sort_unstable();
    denials.dedup();
    for (name, schema) in [
        ("Outcome", names("What became of a command", &ControlCode::ALL.map(ControlCode::name))),
        ("Detail", names("Why, under an outcome", &Detail::ALL.map(Detail::name))),
        ("State", names("A fence's state", &FenceState::ALL.map(FenceState::name))),
        ("Command", names("A command", &CommandKind::ALL.map(CommandKind::name))),
        ("Role", names("A fence's side of a move", &["SOURCE", "TARGET"])),
        ("ForcedKind", names("What was forced", &ForcedKind::ALL.map(ForcedKind::name))),
        ("DenialCode", names("What clients are refused with", &denials)),
        ("Surface", names("Where they are refused", labels::SURFACES)),
    ] {
        all.insert(name.to_owned(), schema);
    }
    Value::Object(all)
}

/// A JSON answer of one shape.
fn shaped(description: &str, shape: &str) -> Value {
    let schema = json!({ "$ref": format!("#/components/schemas/{shape}") });
    json!({
        "description": description,
        "content": { "application/json": { "schema": schema } },
    })
}

fn text(description: &str, kind: &str) -> Value {
    json!({ "description": description, "content": { kind: { "schema": { "type": "string" } } } })
}

fn error(description: &str) -> Value {
    shaped(description, "Error")
}

fn operation(route: &Route) -> Value {
    let Words { id, summary, description } = words(route.purpose);
    let mut operation = json!({
        "operationId": id,
        "summary": summary,
        "security": security(route.access),
        "responses": responses(route),
    });
    if !description.is_empty() {
        operation["description"] = json!(description);
    }
    let parameters = parameters(route);
    if !parameters.is_empty() {
        operation["parameters"] = json!(parameters);
    }
    if let Some((shape, example)) = request(route.purpose) {
        operation["requestBody"] = body(shape, &example);
    }
    operation
}

fn security(access: Access) -> Value {
    match access {
        Access::Open => json!([]),
        Access::Key => json!([{ "adminKey": [] }]),
        // Without the key where [admin] open_metrics is set.
        Access::Metrics => json!([{ "adminKey": [] }, {}]),
    }
}

fn parameters(route: &Route) -> Vec<Value> {
    let mut all = Vec::new();
    for (name, what) in [
        ("engine", "The engine's name in the settings"),
        ("database", "The database or schema, percent-encoded"),
    ] {
        if route.template.contains(&format!("{{{name}}}")) {
            all.push(json!({
                "name": name, "in": "path", "required": true, "description": what,
                "schema": { "type": "string" },
            }));
        }
    }
    if route.purpose == Purpose::Inspect {
        all.push(json!({
            "name": "receipts", "in": "query", "required": false,
            "description": "all: receipts of every operation, not only the owner's",
            "schema": { "type": "string", "enum": ["all"] },
        }));
    }
    if route.purpose == Purpose::Command(Wanted::Adopt) {
        all.push(json!({
            "name": ADOPTION_KEY_HEADER, "in": "header", "required": false,
            "description": "The second key. A replay needs none.",
            "schema": { "type": "string" },
        }));
    }
    all
}

/// A body: its shape, and an example that is a whole request.
fn body(shape: &str, example: &Value) -> Value {
    let schema = json!({ "$ref": format!("#/components/schemas/{shape}") });
    json!({
        "required": true,
        "content": { "application/json": { "schema": schema, "example": example } },
    })
}

/// What is sent to a route, where something is.
fn request(purpose: Purpose) -> Option<(&'static str, Value)> {
    match purpose {
        Purpose::Command(wanted) => Some(example(wanted)),
        Purpose::Capability => Some((
            "CapabilityRequest",
            json!({
                "operation_id": "6e0b8c7e-5d0f-4c7e-9d39-1d2b8f9f3a11",
                "expected_revision": 1,
                "purpose": "import",
            }),
        )),
        Purpose::ValidationQuery => Some((
            "QueryRequest",
            json!({
                "operation_id": "6e0b8c7e-5d0f-4c7e-9d39-1d2b8f9f3a11",
                "expected_revision": 3,
                "expected_state": "TARGET_VALIDATING",
                "stmts": ["SELECT count(*) FROM orders"],
            }),
        )),
        Purpose::Page
        | Purpose::Health
        | Purpose::Ready
        | Purpose::Metrics
        | Purpose::Capabilities
        | Purpose::Namespaces
        | Purpose::Sessions
        | Purpose::Events
        | Purpose::Document
        | Purpose::Reload
        | Purpose::Inspect => None,
    }
}

fn example(wanted: Wanted) -> (&'static str, Value) {
    let mut example = json!({
        "operation_id": "6e0b8c7e-5d0f-4c7e-9d39-1d2b8f9f3a11",
        "command_id": "00000000-0000-4000-9000-000000000001",
        "expected_state": "SOURCE_WRITE_FENCED",
        "expected_revision": 2,
    });
    match wanted {
        Wanted::Acquire => {
            example["expected_state"] = json!("UNFENCED");
            example["expected_revision"] = json!(0);
            example["expected_namespace_identity"] = json!({
                "engine_id": "7412559032651411473", "database_id": "16384", "timeline": 1,
            });
            example["drain_policy"] = json!({
                "deadline_ms": 30_000, "on_deadline": "fail", "in_flight": "finish", "hold_ms": 0,
            });
            ("AcquireRequest", example)
        }
        Wanted::SetRead => {
            example["drain_policy"] = json!({ "deadline_ms": 30_000, "on_deadline": "fail" });
            ("SetReadRequest", example)
        }
        Wanted::ClearRead => {
            example["expected_state"] = json!("SOURCE_READ_FENCED");
            example["expected_revision"] = json!(4);
            ("CommandRequest", example)
        }
        Wanted::Release => ("CommandRequest", example),
        Wanted::Create => {
            example["expected_state"] = json!("ABSENT");
            example["expected_revision"] = json!(0);
            example["owner"] = json!("app");
            example["encoding"] = json!("UTF8");
            example["locale"] = json!("C");
            example["template"] = json!("template0");
            ("CreateRequest", example)
        }
        Wanted::Seal => {
            example["expected_state"] = json!("TARGET_QUARANTINED");
            example["expected_revision"] = json!(1);
            example["drain_policy"] = json!({ "deadline_ms": 30_000, "on_deadline": "fail" });
            ("SealRequest", example)
        }
        Wanted::Validate => {
            example["expected_state"] = json!("TARGET_VALIDATING");
            example["expected_revision"] = json!(3);
            example["result"] = json!("ok");
            example["summary"] = json!("12 tables and 1200 rows compared");
            ("ValidationRequest", example)
        }
        Wanted::Publish | Wanted::Enable | Wanted::Abort => {
            let publishes = wanted == Wanted::Publish;
            let state = if publishes { "TARGET_VALIDATING" } else { "TARGET_WRITE_FENCED" };
            example["expected_state"] = json!(state);
            example["expected_revision"] = json!(if publishes { 4 } else { 5 });
            ("CommandRequest", example)
        }
        Wanted::Adopt => {
            example["operation_id"] = json!("0d4c7f5e-91a3-4c1b-8f0e-5b6a7c8d9e0f");
            example["current_operation_id"] = json!("6e0b8c7e-5d0f-4c7e-9d39-1d2b8f9f3a11");
            example["approvers"] = json!(["Ada", "Grace"]);
            example["incident_ref"] = json!("INC-7");
            example["reason"] = json!("the mover's host is gone");
            ("AdoptRequest", example)
        }
    }
}

/// The codes of a command's answers, by status, in words.
fn outcomes() -> BTreeMap<u16, String> {
    let mut by_status = BTreeMap::<u16, Vec<String>>::new();
    // Capabilities are for import and validation sessions: no command is answered with that.
    for code in ControlCode::ALL.into_iter().filter(|code| *code != ControlCode::CapabilityRequired)
    {
        let of_code = |detail: &&Detail| detail.parent() == code;
        let details: Vec<&str> = Detail::ALL.iter().filter(of_code).map(|one| one.name()).collect();
        let details = if details.is_empty() {
            String::new()
        } else {
            format!(" (detail: {})", details.join(", "))
        };
        let words = format!("{}{details}: {}", code.name(), code.hint());
        by_status.entry(code.http_status()).or_default().push(words);
    }
    by_status.into_iter().map(|(status, words)| (status, words.join(" "))).collect()
}

fn responses(route: &Route) -> Value {
    let mut all = Map::new();
    let mut add = |status: u16, answer: Value| {
        drop(all.insert(status.to_string(), answer));
    };
    if route.access != Access::Open {
        add(401, error("The key is missing or wrong"));
    }
    let off = "There is no such namespace, or the fence feature is off";
    let bad = "FENCE_PRECONDITION_FAILED: the detail says which";
    match route.purpose {
        Purpose::Page => add(200, text("The page; its data needs the key", "text/html")),
        Purpose::Health => add(200, text("The process runs", "text/plain")),
        Purpose::Ready => {
            add(200, text("Clients are served; how each engine answered last", "text/plain"));
            add(503, text("Not yet, and why", "text/plain"));
        }
        Purpose::Metrics => add(200, text("OpenMetrics", "application/openmetrics-text")),
        Purpose::Capabilities => add(200, shaped("What it can do", "Capabilities")),
        Purpose::Namespaces => add(200, shaped("All of them", "Namespaces")),
        Purpose::Sessions => add(200, shaped("At most ten thousand", "Sessions")),
        Purpose::Events => {
            let mut stream =
                text("Events named status; each data is a Status", "text/event-stream");
            stream["x-fencewire-data"] = json!({ "$ref": "#/components/schemas/Status" });
            add(200, stream);
            add(503, error("As many listen as are served"));
        }
        Purpose::Document => {
            let what = "This document";
            let kind = json!({ "application/json": { "schema": { "type": "object" } } });
            add(200, json!({ "description": what, "content": kind }));
        }
        Purpose::Reload => {
            add(200, shaped("What was taken up", "Reloaded"));
            add(409, shaped("Why it can't be while running; nothing changed", "NotReloaded"));
            add(412, shaped(bad, "Answer"));
        }
        Purpose::Inspect => {
            add(200, shaped("What holds now", "Inspection"));
            add(404, error(off));
            add(412, shaped(bad, "Answer"));
            add(423, shaped("FENCE_STATE_UNAVAILABLE: the record can't be read", "Answer"));
            add(503, error("The store can't be read now; ask again"));
        }
        Purpose::Command(_) => {
            for (status, words) in outcomes() {
                add(status, shaped(&words, "Answer"));
            }
            add(404, error(off));
            add(503, shaped("Not done or not known (outcome null): replay the command", "Answer"));
        }
        Purpose::Capability | Purpose::ValidationQuery => {
            if route.purpose == Purpose::Capability {
                add(200, shaped("The capability; its secret is shown this once", "Capability"));
            } else {
                add(200, shaped("One result per statement", "ReadAnswer"));
            }
            let (owner, moved) =
                (ControlCode::OwnedByAnotherOperation.name(), ControlCode::RevisionMismatch.name());
            let not_now = "OPERATION_CAPABILITY_REQUIRED: not in this state, or it would write";
            add(403, shaped(not_now, "Answer"));
            add(404, error(off));
            add(409, shaped(&format!("{owner} or {moved}: inspect it"), "Answer"));
            add(412, shaped(bad, "Answer"));
            add(423, shaped("FENCE_STATE_UNAVAILABLE: inspect it", "Answer"));
            add(503, error("The engine can't be asked now, or fences are still being read"));
        }
    }
    Value::Object(all)
}

/// What people read.
struct Words {
    id: &'static str,
    summary: &'static str,
    description: &'static str,
}

const fn said(id: &'static str, summary: &'static str, description: &'static str) -> Words {
    Words { id, summary, description }
}

// tidy: table
const fn words(purpose: Purpose) -> Words {
    match purpose {
        Purpose::Page => said("statusPage", "The live status page", ""),
        Purpose::Health => said("health", "Whether the process runs", ""),
        Purpose::Ready => said("ready", "Whether clients are served", ""),
        Purpose::Metrics => {
            said("metrics", "Numbers for Prometheus", "Open where [admin] open_metrics = true.")
        }
        Purpose::Capabilities => said("capabilities", "What this build and process can do", ""),
        Purpose::Namespaces => {
            said("listNamespaces", "Namespaces with a fence, a session or a route", "")
        }
        Purpose::Sessions => said("listSessions", "Client sessions", ""),
        Purpose::Events => said(
            "events",
            "What the status page shows, whenever it changes",
            "At most two events per second.",
        ),
        Purpose::Document => said("describe", "This description", ""),
        Purpose::Reload => said("reload", "Read the settings again", "Running sessions stay."),
        Purpose::Inspect => said(
            "inspectFence",
            "Where a namespace stands",
            "Reads only; never completes or advances anything.",
        ),
        Purpose::Command(wanted) => command_words(wanted.kind()),
        Purpose::Capability => said(
            "issueCapability",
            "Give out a capability that imports into a target, or validates it",
            "For the owner, at the target's present revision. The secret is shown once and kept \
             nowhere; it dies when the target moves on, and with the process.",
        ),
        Purpose::ValidationQuery => said(
            "validationQuery",
            "Read a target that is being validated",
            "Single statements that only read, in one read-only snapshot; at most 10,000 rows over \
             all of them, never cut off.",
        ),
    }
}
// tidy: end of table

const fn command_words(kind: CommandKind) -> Words {
    use CommandKind as K;
    match kind {
        K::AcquireSourceWriteFence => said(
            "acquireSourceWriteFence",
            "Close a source to writes, drain it and prove it",
            "Answers when the drain is proven (200) or its deadline has passed (202). A deadline \
             never opens anything: replay the same command to follow the drain.",
        ),
        K::ReleaseSourceWriteFence => said(
            "releaseSourceWriteFence",
            "Open a source again",
            "Never once writes may have been enabled on the target.",
        ),
        K::AdoptFence => said(
            "adoptFence",
            "Give a fence another owner",
            "For incidents. Needs the second key, two approvers, an incident and a reason. No gate \
             opens or closes.",
        ),
        K::SetSourceReadFence => said(
            "setSourceReadFence",
            "Close a write-fenced source to reads, drain them and prove it",
            "Answers when nothing reads any more (200) or the deadline has passed and what was \
             cancelled wasn't seen to end (202): replay the same command then.",
        ),
        K::ClearSourceReadFence => {
            said("clearSourceReadFence", "Open a source to reads again", "Writes stay fenced.")
        }
        K::CreateTargetQuarantined => said(
            "createTargetQuarantined",
            "Make a target that nobody reaches",
            "The database is made empty, behind a closed gate. Sessions around the proxy aren't \
             kept out.",
        ),
        K::SealTargetImport => said(
            "sealTargetImport",
            "End a target's import for good, drain it and prove it",
            "Every capability dies. Answers when the drain is proven (200) or its deadline has \
             passed (202): replay the same command then.",
        ),
        K::RecordTargetValidation => said(
            "recordTargetValidation",
            "Record what a target's validation found",
            "With the engine's position at that moment. The latest one counts.",
        ),
        K::PublishTargetReadableWriteFenced => said(
            "publishTargetReadable",
            "Open a target to reads",
            "Needs the owner's latest validation to be ok.",
        ),
        K::EnableTargetWrites => said(
            "enableTargetWrites",
            "Open a target to writes, for ever",
            "From the moment it is sent the source must never be released: a lost answer is \
             resolved by replay.",
        ),
        K::AbortQuarantinedTarget => said(
            "abortQuarantinedTarget",
            "Give a target up",
            "It stays closed, and its name stays taken.",
        ),
    }
}
