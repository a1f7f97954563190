//! The description against what is served, read and answered.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::admin::http::fences::parse;
use crate::admin::http::fields::asked;
use crate::admin::http::targets::{parse_capability, parse_query};
use crate::base::ids::Namespace;

/// Why a value isn't of a schema; empty when it is. Stricter than JSON schema: a field that isn't
/// described is wrong anywhere.
fn wrong(document: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(name) = schema["$ref"].as_str() {
        let found = document.pointer(name.trim_start_matches('#'));
        let found = found.unwrap_or_else(|| panic!("{name} is described nowhere"));
        return wrong(document, found, value, at);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        // Of a value that may be null, what is wrong with it when it isn't.
        let all: Vec<_> = any.iter().map(|one| wrong(document, one, value, at)).collect();
        let fits = all.iter().any(Vec::is_empty);
        return if fits { Vec::new() } else { all.into_iter().next().unwrap_or_default() };
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        return vec![format!("{at}: {value} is none of {words:?}")];
    }
    let kind = schema["type"].as_str().unwrap();
    let fits = match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "null" => value.is_null(),
        other => panic!("type {other}"),
    };
    if !fits {
        return vec![format!("{at}: {value} is no {kind}")];
    }
    let mut found = Vec::new();
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        found.extend(wrong(document, &schema["items"], item, &format!("{at}[{index}]")));
    }
    let Some(properties) = schema["properties"].as_object() else { return found };
    for name in schema["required"].as_array().into_iter().flatten() {
        if value.get(name.as_str().unwrap()).is_none() {
            found.push(format!("{at}: {name} is missing"));
        }
    }
    for (name, inner) in value.as_object().into_iter().flatten() {
        match properties.get(name) {
            Some(schema) => found.extend(wrong(document, schema, inner, &format!("{at}.{name}"))),
            None => found.push(format!("{at}.{name} is not described")),
        }
    }
    found
}

/// Whether a path is one of a template's.
fn matches(template: &str, path: &str) -> bool {
    let path = path.split('?').next().unwrap();
    let (parts, wanted): (Vec<_>, Vec<_>) =
        (path.split('/').collect(), template.split('/').collect());
    parts.len() == wanted.len()
        && parts.iter().zip(wanted).all(|(part, wanted)| wanted.starts_with('{') || *part == wanted)
}

/// Holds one answer against the description: its status must be listed, its body of the shape.
/// Paths that are no routes are let pass.
#[track_caller]
pub(in crate::admin::http) fn is_described(method: &str, path: &str, status: u16, body: &str) {
    let document = document();
    let paths = document["paths"].as_object().unwrap();
    let Some((template, item)) = paths.iter().find(|(template, _)| matches(template, path)) else {
        return;
    };
    let operation = &item[method.to_lowercase()];
    if operation.is_null() {
        assert!(matches!(status, 401 | 405), "{method} {template} answered {status}");
        return;
    }
    let answer = &operation["responses"][status.to_string()];
    assert!(!answer.is_null(), "{method} {template}: status {status} is not described:\n{body}");
    if let Some(schema) = answer.pointer("/content/application~1json/schema") {
        let value = serde_json::from_str(body).unwrap();
        let found = wrong(&document, schema, &value, "body");
        assert!(found.is_empty(), "{method} {template} {status}: {found:#?}\n{value:#}");
    }
}

/// What an event carries.
#[track_caller]
pub(in crate::admin::http) fn is_a_status(value: &Value) {
    let document = document();
    let found = wrong(&document, &json!({ "$ref": "#/components/schemas/Status" }), value, "data");
    assert!(found.is_empty(), "{found:#?}\n{value:#}");
}

#[test]
fn the_checker_of_these_tests_finds_what_is_wrong() {
    let document = document();
    let schema = json!({ "$ref": "#/components/schemas/Forced" });
    let good = json!({
        "kind": "rollback", "session": null, "engine_pid": 7, "at": "x", "why": "y",
    });
    assert_eq!(wrong(&document, &schema, &good, "x"), Vec::<String>::new());
    for (field, value) in [
        ("kind", json!("gently")),
        ("session", json!("7")),
        ("more", json!(1)),
        ("why", json!(null)),
    ] {
        let mut bad = good.clone();
        bad[field] = value;
        assert_eq!(wrong(&document, &schema, &bad, "x").len(), 1, "{field}");
    }
    let mut bad = good;
    bad.as_object_mut().unwrap().remove("at");
    assert_eq!(wrong(&document, &schema, &bad, "x"), ["x: \"at\" is missing"]);
}

#[test]
fn each_route_is_described_once_and_counted_under_its_name() {
    let document = document();
    let described: BTreeSet<&str> =
        document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    let routed: BTreeSet<&str> = ROUTES.iter().map(|route| route.template).collect();
    assert_eq!(described, routed);
    assert_eq!(routed.len(), ROUTES.len(), "a template twice");
    assert_eq!(routed, labels::ROUTES.iter().copied().collect(), "telemetry/labels.rs");
    let ids: BTreeSet<&str> = ROUTES.iter().map(|route| words(route.purpose).id).collect();
    assert_eq!(ids.len(), ROUTES.len(), "an operationId twice");
}

/// Every command has a route, and one only.
#[test]
fn every_command_is_routed() {
    let mut kinds = BTreeSet::new();
    for route in ROUTES {
        let Purpose::Command(wanted) = route.purpose else { continue };
        assert!(kinds.insert(wanted.kind().name()), "{} has two routes", wanted.kind());
    }
    assert_eq!(kinds, CommandKind::ALL.map(CommandKind::name).into());
}

fn read(purpose: Purpose, body: &Value) -> Result<(), String> {
    let namespace = Namespace::parse("old/app").unwrap();
    let text = body.to_string();
    let bytes = text.as_bytes();
    let read = if let Purpose::Command(wanted) = purpose {
        parse(namespace, wanted, bytes).map(drop)
    } else if purpose == Purpose::Capability {
        parse_capability(bytes).map(drop)
    } else {
        assert_eq!(purpose, Purpose::ValidationQuery);
        parse_query(namespace, bytes).map(drop)
    };
    read.map_err(|error| error.to_string())
}

/// The described fields of a shape, with those of its objects as `outer.inner`.
fn described(document: &Value, shape: &str, within: &str) -> BTreeSet<String> {
    let schema = &document["components"]["schemas"][shape];
    assert_eq!(schema["additionalProperties"], false, "{shape}");
    let mut all = BTreeSet::new();
    for (name, property) in schema["properties"].as_object().unwrap() {
        all.insert(format!("{within}{name}"));
        let inner = property["anyOf"].get(0).unwrap_or(property)["$ref"].as_str();
        let inner = inner.and_then(|name| name.rsplit('/').next());
        if let Some(inner) = inner.filter(|name| shapes::SHAPES.iter().any(|s| s.name == *name)) {
            all.extend(described(document, inner, &format!("{within}{name}.")));
        }
    }
    all
}

/// The example is taken, its fields are exactly those that the reader asks for, each required one
/// is missed, and nothing else may be there.
#[test]
fn requests_are_read_as_they_are_described() {
    let document = document();
    for wanted in ROUTES.iter().map(|route| route.purpose) {
        let Some((shape, example)) = request(wanted) else { continue };
        let schema = json!({ "$ref": format!("#/components/schemas/{shape}") });
        assert_eq!(wrong(&document, &schema, &example, shape), Vec::<String>::new());
        asked::forget();
        assert_eq!(read(wanted, &example), Ok(()), "{shape}");
        assert_eq!(asked::names(), described(&document, shape, ""), "{shape}");
        for field in document["components"]["schemas"][shape]["required"].as_array().unwrap() {
            let mut body = example.clone();
            body.as_object_mut().unwrap().remove(field.as_str().unwrap());
            let error = read(wanted, &body).unwrap_err();
            assert!(error.contains("is missing"), "{shape} without {field}: {error}");
        }
        let mut more = vec![("/surprise".to_owned(), "surprise")];
        for (name, value) in example.as_object().unwrap() {
            if value.is_object() {
                more.push((format!("/{name}/surprise"), "surprise"));
            }
        }
        for (at, name) in more {
            let mut body = example.clone();
            let (outer, _) = at.rsplit_once('/').unwrap();
            body.pointer_mut(outer).unwrap()[name] = json!(1);
            let error = read(wanted, &body).unwrap_err();
            assert!(error.contains("surprise is unknown"), "{shape} {at}: {error}");
        }
    }
}

/// Every word in capitals is a code or a state that exists.
#[test]
fn every_code_is_in_the_table() {
    let text = document().to_string();
    let known: BTreeSet<&str> = ControlCode::ALL
        .map(ControlCode::name)
        .into_iter()
        .chain(Denial::ALL.map(Denial::code))
        .chain(FenceState::ALL.map(FenceState::name))
        .collect();
    let words = text.split(|c: char| !(c.is_ascii_uppercase() || c == '_'));
    let codes: BTreeSet<&str> = words.filter(|word| word.contains('_') && word.len() > 6).collect();
    let strangers: Vec<_> = codes.difference(&known).collect();
    assert!(strangers.is_empty(), "{strangers:?}");
    for name in Detail::ALL.map(Detail::name).iter().chain(&known) {
        assert!(text.contains(name), "{name} is described nowhere");
    }
}
