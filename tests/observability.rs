//! Acceptance 22 and 24 of the fence contract: what the proxy says about itself.
//!
//! Purpose: metrics with a closed set of families, labels and values, none of which names anybody;
//! one audit event per answered command, with every field; capabilities that are true before and
//! after fences and with the feature off. Everything is read from a running program: its
//! `/metrics`, its log, its admin API.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod support;

use std::collections::{BTreeMap, BTreeSet};

use acceptance::{Site, applied, fail_after, force_after, patient, refused, still_draining};
use fencewire::fence::code::{ControlCode, Denial};
use fencewire::fence::command::CommandKind;
use fencewire::fence::record::ForcedKind;
use fencewire::fence::state::FenceState;
use fencewire::telemetry::labels::{self, bounded};
use fencewire::telemetry::table::{Kind, TABLE, family_of};
use serde_json::{Value, json};
use support::proxy::uuid;
use support::{Engine, PgCluster, Proxy, ProxyOptions, poll};

const ADOPTION_KEY: &str = "the-second-key-of-the-tests";

/// A proxy with a second key and JSON lines in its log.
fn proxy(fence: &str) -> (Proxy, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("adoption.key");
    std::fs::write(&file, ADOPTION_KEY).unwrap();
    let proxy = Proxy::start_with(ProxyOptions {
        engines: vec![Engine::plain("old", PgCluster::shared())],
        admin: format!("adoption_key_file = \"{}\"\n", file.display()),
        extra: format!("[log]\nformat = \"json\"\n[fence]\n{fence}"),
        ..ProxyOptions::default()
    });
    (proxy, folder)
}

fn scrape(proxy: &Proxy) -> String {
    let token = format!("Bearer {}", proxy.admin_key());
    let headers = [("Authorization", token.as_str())];
    let answer = support::http::request(proxy.admin_port(), "GET", "/metrics", &headers, "");
    let (status, text) = answer.unwrap();
    assert_eq!(status, 200, "{text}");
    text
}

/// One sample: its name, its labels, its value.
type Sample = (String, BTreeMap<String, String>, f64);

fn samples(text: &str) -> Vec<Sample> {
    let read = |line: &str| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels.trim_end_matches('}').split("\",").filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (name, value) = pair.split_once("=\"").unwrap();
            (name.to_owned(), value.trim_end_matches('"').to_owned())
        };
        (name.to_owned(), labels.map(pair).collect(), value.parse().unwrap())
    };
    text.lines().filter(|line| !line.starts_with('#')).map(read).collect()
}

/// Holds a scrape against the closed table, both ways.
fn is_the_closed_table(text: &str) {
    let typed: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let wanted: BTreeMap<&str, &str> =
        TABLE.iter().map(|family| (family.name, family.kind.name())).collect();
    assert_eq!(typed, wanted, "families and kinds");
    for (name, labels, value) in samples(text) {
        let family = family_of(&name).unwrap_or_else(|| panic!("{name} is in no family"));
        let mut names: BTreeSet<&str> = labels.keys().map(String::as_str).collect();
        if family.kind == Kind::Histogram && name.ends_with("_bucket") {
            assert!(names.remove("le"), "{name} without le");
        }
        let known: BTreeSet<&str> = family.labels.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, known, "labels of {name}");
        for (label, values) in family.labels {
            let value = labels[*label].as_str();
            let foreign = value == labels::OTHER && name.starts_with("fencewire_admin_requests");
            assert!(values.contains(&value) || foreign, "{name}: {label} = {value:?}");
        }
        assert!(value >= 0.0, "{name} is {value}");
    }
}

fn value(text: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let wanted: BTreeMap<String, String> =
        labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let all = samples(text);
    let found = all.iter().find(|(n, l, _)| n == name && *l == wanted);
    found.map_or(0.0, |(.., value)| *value)
}

/// The lists of label values against the enums they stand for: a value that is missing there would
/// be counted as `other`.
#[test]
fn label_values_are_the_contracts_names() {
    let same = |list: &'static [&'static str], names: Vec<&str>| {
        let meant: BTreeSet<&str> = names.iter().map(|name| bounded(name, list)).collect();
        assert_eq!(meant, list.iter().copied().collect(), "{list:?}");
    };
    same(labels::COMMANDS, CommandKind::ALL.map(CommandKind::name).to_vec());
    let mut outcomes = ControlCode::ALL.map(ControlCode::name).to_vec();
    outcomes.push("ERROR");
    same(labels::OUTCOMES, outcomes);
    same(labels::DENIALS, Denial::ALL.map(Denial::code).to_vec());
    same(labels::STATES, FenceState::ALL.map(FenceState::name).to_vec());
    same(labels::FORCED, ForcedKind::ALL.map(ForcedKind::name).to_vec());
    let surfaces = ["pg", "mysql", "admin", "dump", "replication", "lifecycle"];
    assert_eq!(labels::SURFACES, surfaces);
}

/// Who does what in the program below, in words that would be recognised in a scrape.
struct Names {
    operation: String,
    adopter: String,
    commands: Vec<String>,
}

impl Names {
    fn command(&mut self) -> String {
        let id = uuid();
        self.commands.push(id.clone());
        id
    }
}

fn adoption(site: &Site<'_>, names: &mut Names) -> (u16, Value) {
    let command = names.command();
    let mut body = site.proxy.command_body(&site.namespace(), &names.adopter, &command);
    body["current_operation_id"] = json!(names.operation);
    body["approvers"] = json!(["Ada Telltale", "Grace Telltale"]);
    body["incident_ref"] = json!("INC-TELLTALE");
    body["reason"] = json!("telltale reason");
    let path = format!("/v1/namespaces/{}/fence/adopt", site.namespace());
    let key = [("x-fencewire-adoption-key", ADOPTION_KEY)];
    site.proxy.try_admin_with("POST", &path, &key, &body).unwrap()
}

/// A whole move's worth of commands: drained, replayed, conflicting, forced, refused, adopted,
/// released; with work that the fence refuses on the way.
fn program(site: &Site<'_>) -> Names {
    let mut names = Names { operation: uuid(), adopter: uuid(), commands: Vec::new() };
    let namespace = site.namespace();
    let mut writer = site.client();
    writer.query("BEGIN").ok();
    writer.query("INSERT INTO t VALUES (1)").ok();

    let mut body = site.acquire_body(&names.operation, &fail_after(0));
    body["command_id"] = json!(names.command());
    still_draining(&site.acquire(&body));
    let mut other = body.clone();
    other["drain_policy"] = patient();
    refused(&site.acquire(&other), 409, "FENCE_COMMAND_CONFLICT");
    still_draining(&site.acquire(&body));

    let mut forced = site.acquire_body(&names.operation, &force_after(0));
    forced["command_id"] = json!(names.command());
    let answer = site.acquire_at_last(&forced);
    let fence = &applied(&answer)["fence"];
    assert_eq!(fence["state"], "SOURCE_WRITE_FENCED", "{fence:#}");
    applied(&site.acquire(&forced));
    drop(writer);

    let mut client = site.client();
    client.query("SET application_name = 'telltale_app'").ok();
    assert_eq!(client.query("INSERT INTO t VALUES (2)").code().unwrap(), "ZF001");
    let lifecycle = format!("ALTER DATABASE \"{}\" CONNECTION LIMIT 5", site.db);
    assert_eq!(client.query(&lifecycle).code().unwrap(), "ZF007");

    let mut stale = site.release_body(&names.operation);
    stale["expected_revision"] = json!(77);
    stale["command_id"] = json!(names.command());
    refused(&site.release(&stale), 409, "FENCE_REVISION_MISMATCH");
    let mut stranger = site.release_body(&uuid());
    stranger["command_id"] = json!(names.command());
    refused(&site.release(&stranger), 409, "FENCE_OWNED_BY_ANOTHER_OPERATION");
    applied(&adoption(site, &mut names));

    let unknown = format!("/v1/namespaces/{namespace}/telltale");
    assert_eq!(site.proxy.admin("GET", &unknown, &Value::Null).0, 404);
    names
}

fn site<'a>(proxy: &'a Proxy, db: &str) -> Site<'a> {
    let cluster = PgCluster::shared();
    cluster.create_db(db);
    let site = Site::at(cluster, proxy, db);
    site.setup("CREATE TABLE t (n int)");
    site
}

#[test]
fn acceptance_24_metrics_are_the_closed_table_and_name_nobody() {
    let (proxy, _folder) = proxy("");
    let site = site(&proxy, "telltale_payroll");
    let names = program(&site);

    let text = scrape(&proxy);
    is_the_closed_table(&text);
    let fenced = [("role", "source"), ("state", "SOURCE_WRITE_FENCED")];
    assert_eq!(value(&text, "fencewire_fence_namespaces", &fenced), 1.0);
    assert_eq!(value(&text, "fencewire_fence_active", &[]), 1.0);
    assert_eq!(value(&text, "fencewire_fence_engine_locks", &[("state", "held")]), 1.0);
    assert_eq!(value(&text, "fencewire_fence_engine_locks", &[("state", "missing")]), 0.0);
    assert_eq!(value(&text, "fencewire_engines", &[]), 1.0);
    assert!(value(&text, "fencewire_fence_oldest_active_age_seconds", &[]) > 0.0);
    for (name, labels, at_least) in [
        (
            "fencewire_fence_transitions_total",
            &[("command", "acquire_source_write_fence"), ("outcome", "DRAINING")][..],
            2.0,
        ),
        (
            "fencewire_fence_transitions_total",
            &[("command", "adopt_fence"), ("outcome", "APPLIED")],
            1.0,
        ),
        ("fencewire_fence_replays_total", &[("result", "replay")], 2.0),
        ("fencewire_fence_replays_total", &[("result", "conflict")], 1.0),
        ("fencewire_fence_forced_total", &[("kind", "rollback")], 1.0),
        ("fencewire_fence_drain_duration_seconds_count", &[("kind", "write")], 1.0),
        (
            "fencewire_fence_denials_total",
            &[("code", "MIGRATION_WRITE_FENCED"), ("surface", "pg")],
            1.0,
        ),
        (
            "fencewire_fence_denials_total",
            &[("code", "MIGRATION_WRITE_FENCED"), ("surface", "lifecycle")],
            1.0,
        ),
        ("fencewire_fence_adoptions_total", &[], 1.0),
    ] {
        assert!(value(&text, name, labels) >= at_least, "{name} {labels:?}:\n{text}");
    }
    let told = ["telltale", "Telltale", "TELLTALE", &names.operation, &names.adopter];
    for name in told.into_iter().chain(names.commands.iter().map(String::as_str)) {
        assert!(!text.contains(name), "{name} is in the scrape:\n{text}");
    }

    // Every pair is written, and what emptied reads 0.
    applied(&site.release(&site.release_body(&names.adopter)));
    let text = scrape(&proxy);
    is_the_closed_table(&text);
    let pairs =
        samples(&text).into_iter().filter(|(name, ..)| name == "fencewire_fence_namespaces");
    assert_eq!(pairs.count(), labels::ROLES.len() * labels::STATES.len());
    assert_eq!(value(&text, "fencewire_fence_namespaces", &fenced), 0.0);
    let released = [("role", "source"), ("state", "RELEASED")];
    assert_eq!(value(&text, "fencewire_fence_namespaces", &released), 1.0);
    assert_eq!(value(&text, "fencewire_fence_active", &[]), 0.0);
    assert_eq!(value(&text, "fencewire_fence_engine_locks", &[("state", "held")]), 0.0);
    assert_eq!(value(&text, "fencewire_fence_oldest_active_age_seconds", &[]), 0.0);
}

/// The audit events in the proxy's log, oldest first.
fn events(proxy: &Proxy) -> Vec<Value> {
    let log = std::fs::read_to_string(proxy.log_file()).unwrap();
    log.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|line| line["target"] == "fencewire::fence::audit")
        .collect()
}

/// The names of an event's fields, without those that each line of the log has.
fn fields(event: &Value) -> BTreeSet<&str> {
    let fields = event.as_object().unwrap().keys().map(String::as_str);
    fields.filter(|name| !matches!(*name, "timestamp" | "level" | "target")).collect()
}

/// The fields that every event has.
const ALWAYS: [&str; 11] = [
    "event",
    "namespace",
    "operation_id",
    "command_id",
    "command",
    "outcome",
    "replay",
    "revision_before",
    "state_before",
    "state_after",
    "server_instance",
];

#[test]
fn acceptance_24_each_answer_has_one_audit_event_with_every_field() {
    let (proxy, _folder) = proxy("");
    let site = site(&proxy, "audited");
    let names = program(&site);
    let operation = names.operation.as_str();
    let mut body = site.acquire_body(operation, &patient());
    body["expected_state"] = json!("no such state");
    refused(&site.acquire(&body), 412, "FENCE_PRECONDITION_FAILED");

    let events = poll(acceptance::PATIENCE, || {
        let seen = events(&proxy);
        (seen.len() >= 8).then_some(seen)
    });
    let events = events.unwrap_or_else(|| panic!("too few events:\n{}", proxy.log_tail()));
    let (drained, committed) = (["revision_after", "drain_kind", "drain_ms"], ["revision_after"]);
    let no = ["expected_revision", "error"];
    let adopted =
        ["previous_operation_id", "new_operation_id", "approvers", "incident_ref", "reason"];
    let forced = [&drained[..], &["forced"]].concat();
    let adopted = [&committed[..], &adopted].concat();
    let (acquire, release) = ("AcquireSourceWriteFence", "ReleaseSourceWriteFence");
    let (draining, fenced) = ("SOURCE_DRAINING", "SOURCE_WRITE_FENCED");
    let expected = [
        (acquire, "DRAINING", "none", "UNFENCED", draining, &drained[..]),
        (acquire, "FENCE_COMMAND_CONFLICT", "conflict", draining, draining, &no),
        (acquire, "DRAINING", "resume", draining, draining, &drained),
        (acquire, "APPLIED", "none", draining, fenced, &forced),
        (acquire, "APPLIED", "replay", fenced, fenced, &committed),
        (release, "FENCE_REVISION_MISMATCH", "none", fenced, fenced, &no),
        (release, "FENCE_OWNED_BY_ANOTHER_OPERATION", "none", fenced, fenced, &no),
        ("AdoptFence", "APPLIED", "none", fenced, fenced, &adopted),
    ];
    assert_eq!(events.len(), expected.len(), "{events:#?}");
    for (event, (command, outcome, replay, before, after, more)) in events.iter().zip(expected) {
        let told = ["command", "outcome", "replay", "state_before", "state_after"]
            .map(|name| event[name].as_str().unwrap_or_default());
        assert_eq!(told, [command, outcome, replay, before, after], "{event:#}");
        let all: BTreeSet<&str> = ALWAYS.iter().chain(more).copied().collect();
        assert_eq!(fields(event), all, "{event:#}");
        assert_eq!((&event["level"], &event["namespace"]), (&json!("INFO"), &json!("old/audited")));
        let name = if command == "AdoptFence" {
            "namespace_fence_adopted"
        } else {
            "namespace_fence_command"
        };
        assert_eq!(event["event"], name);
        assert_eq!(event["server_instance"], format!("test-{}", proxy.port()));
    }
    assert_eq!(events[3]["drain_kind"], "write");
    assert!(events[3]["forced"].as_str().unwrap().starts_with("rollback of session "));
    assert_eq!(
        (&events[5]["revision_before"], &events[5]["expected_revision"]),
        (&json!(2), &json!(77))
    );
    assert_eq!(events[7]["previous_operation_id"], operation);
    assert_eq!(events[7]["new_operation_id"], names.adopter);
    assert_eq!(events[7]["approvers"], "Ada Telltale, Grace Telltale");
    let told: Vec<&str> = events.iter().map(|e| e["command_id"].as_str().unwrap()).collect();
    let ids: BTreeSet<&str> = names.commands.iter().map(String::as_str).collect();
    assert_eq!(told.into_iter().collect::<BTreeSet<_>>(), ids);
}

fn capabilities(proxy: &Proxy) -> Value {
    // Without the key: whoever wants to know what this server can do need not be its operator.
    let answer =
        support::http::request(proxy.admin_port(), "GET", "/v1/fence/capabilities", &[], "");
    let (status, text) = answer.unwrap();
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn acceptance_22_capabilities_are_true_before_and_after_and_with_the_feature_off() {
    let (mut proxy, _folder) = proxy("enabled = false\n");
    let file = proxy.log_file().with_file_name("fencewire.toml");
    let settings = std::fs::read_to_string(&file).unwrap();
    let commands = CommandKind::ALL.map(CommandKind::name).to_vec();
    let shape = |seen: &Value, enabled: bool, active: u64| {
        assert_eq!(seen["fence_protocol_version"], 1, "{seen:#}");
        assert_eq!(seen["commands"], json!(commands), "{seen:#}");
        assert_eq!(seen["states"], json!(FenceState::ALL.map(FenceState::name)), "{seen:#}");
        assert_eq!(seen["proxy_stable_code"], true, "{seen:#}");
        assert!(seen["server"]["build"].as_str().unwrap().contains(env!("CARGO_PKG_VERSION")));
        assert_eq!(seen["metastore"]["restored_from_backup"], false, "{seen:#}");
        assert_eq!(seen["enabled"], enabled, "{seen:#}");
        assert_eq!(seen["active_fences"], active, "{seen:#}");
        let available = seen["available_commands"].as_array().unwrap();
        assert!(available.contains(&json!("AdoptFence")), "{seen:#}");
        assert!(available.iter().all(|one| commands.contains(&one.as_str().unwrap())));
    };

    // Off, and nothing was ever fenced: the routes aren't there.
    shape(&capabilities(&proxy), false, 0);
    let instance = format!("test-{}", proxy.port());
    assert_eq!(capabilities(&proxy)["server"]["instance_id"], instance);
    let db = "capable";
    {
        let site = site(&proxy, db);
        let path = format!("/v1/namespaces/{}/fence", site.namespace());
        assert_eq!(proxy.admin("GET", &path, &Value::Null).0, 404);
        let mut client = site.client();
        client.query("INSERT INTO t VALUES (1)").ok();
    }

    // On.
    std::fs::write(&file, settings.replace("enabled = false", "enabled = true")).unwrap();
    proxy.stop();
    proxy.restart();
    shape(&capabilities(&proxy), true, 0);
    let operation = {
        let site = Site::at(PgCluster::shared(), &proxy, db);
        let finished = site.fence();
        site.unfence(&finished);
        shape(&capabilities(&proxy), true, 0);
        site.fence()
    };
    shape(&capabilities(&proxy), true, 1);

    // Off again: what is fenced stays so, and can be looked at, but not commanded.
    std::fs::write(&file, &settings).unwrap();
    proxy.stop();
    proxy.restart();
    shape(&capabilities(&proxy), false, 1);
    let site = Site::at(PgCluster::shared(), &proxy, db);
    let seen = site.inspect();
    assert_eq!(seen["fence"]["state"], "SOURCE_WRITE_FENCED", "{seen:#}");
    assert_eq!(site.client().query("INSERT INTO t VALUES (2)").code().unwrap(), "ZF001");
    let body = site.release_body(&operation);
    for route in ["source/release-write-fence", "source/acquire-write-fence", "adopt"] {
        let (status, told) = proxy.command(&site.namespace(), route, &body);
        assert_eq!(status, 404, "{route}: {told:#}");
        assert!(told["error"].as_str().unwrap().contains("the fence feature is off"), "{told:#}");
    }
    assert_eq!(site.inspect()["fence"]["revision"], seen["fence"]["revision"]);

    // And on once more, for the end of it.
    std::fs::write(&file, settings.replace("enabled = false", "enabled = true")).unwrap();
    proxy.stop();
    proxy.restart();
    let site = Site::at(PgCluster::shared(), &proxy, db);
    applied(&site.release(&body));
    shape(&capabilities(&proxy), true, 0);
    site.client().query("INSERT INTO t VALUES (3)").ok();
    assert_eq!(site.rows(), "1,3");
}

/// The words of a text that look like metrics of ours.
fn metrics_named(text: &str) -> BTreeSet<&str> {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    text.split(|c| !word(c)).filter(|name| name.starts_with("fencewire_")).collect()
}

/// A dashboard that shows nothing, or an alert that never rings, looks like peace.
#[test]
fn dashboard_and_alerts_name_metrics_that_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut shown = BTreeSet::new();
    for file in ["docs/grafana.json", "docs/alerts.yml"] {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        let named = metrics_named(&text);
        assert!(named.len() > 5, "{file} names only {named:?}");
        for name in named {
            let family = family_of(name).unwrap_or_else(|| panic!("{file}: {name} doesn't exist"));
            shown.insert(family.name);
        }
        // What is matched by a label must be one of the label's values.
        for matcher in text.split('{').skip(1).filter_map(|rest| rest.split_once('}')) {
            for pair in matcher.0.replace('\\', "").split(',') {
                let Some((label, values)) = pair.split_once('=') else { continue };
                let families = TABLE.iter().flat_map(|family| family.labels);
                let known: BTreeSet<&str> = families
                    .filter(|(name, _)| *name == label.trim())
                    .flat_map(|(_, values)| values.iter().copied())
                    .collect();
                let values = values.trim_start_matches('~').trim_matches('"');
                for value in values.split('|').filter(|_| !known.is_empty()) {
                    assert!(known.contains(value), "{file}: {label} is never {value:?}");
                }
            }
        }
    }
    let left: Vec<_> = TABLE.iter().filter(|family| !shown.contains(family.name)).collect();
    let left: Vec<&str> = left.into_iter().map(|family| family.name).collect();
    let unshown = [
        "fencewire_metastore_restored_from_backup",
        "fencewire_engines",
        "fencewire_auto_prepared",
    ];
    assert_eq!(left, unshown, "neither the dashboard nor an alert shows these");
    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(root.join("docs/grafana.json")).unwrap())
            .unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() > 10);
}
