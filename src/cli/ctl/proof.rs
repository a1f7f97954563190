//! How the proxy knows: the evidence of a proven drain, in lines for people.
//!
//! Purpose: whoever answers for a move reads here what the proof rests on, without JSON: how the
//! leases ended, what was forced, what the engine found in flight before and after the boundary,
//! and what its own lock covers and doesn't. Called by `show`. It judges nothing: a proof was
//! checked where it was made and where it was loaded.

use serde_json::Value;

use super::super::terminal::plain;
use super::text;
use crate::fence::record::GAP_WHILE_UP;

/// Evidence at the usual places of an answer; a `null` is none.
fn evidence(body: &Value) -> Option<&Value> {
    ["/evidence", "/receipt/evidence", "/fence/evidence"]
        .into_iter()
        .find_map(|pointer| body.pointer(pointer).filter(|value| value.is_object()))
}

/// One `name value` line, as wide as everywhere in `ctl`.
pub(super) fn line(name: &str, value: &str) -> String {
    plain(&format!("{name:<13}  {value}"))
}

/// The boundary, as a value.
pub(super) fn boundary(body: &Value) -> String {
    let of = |name: &str| text(body, &format!("/fence/frozen_boundary/{name}"));
    let marker = match body.pointer("/fence/frozen_boundary/marker").and_then(Value::as_bool) {
        Some(true) => ", behind a marker written for it",
        Some(false) => ", without a marker",
        None => "",
    };
    match of("kind") {
        kind if kind == "-" => kind,
        kind => format!("{kind} {} (timeline {}){marker}", of("value"), of("timeline")),
    }
}

/// What the proof that nothing reads any more rests on, or nothing when there is none.
fn read_lines(body: &Value) -> Vec<String> {
    let Some(evidence) = body.pointer("/fence/read_evidence").filter(|it| it.is_object()) else {
        return Vec::new();
    };
    let of = |pointer: &str| text(evidence, pointer);
    let leases = format!(
        "proven {}; readers open when the proving wait began: {} ended by the engine's answer, {} \
         seen gone at the engine",
        of("/proven_at"),
        of("/releases/by_answer"),
        of("/releases/by_engine")
    );
    let mut lines = vec![line("reads", &leases)];
    let forced = evidence.get("forced").and_then(Value::as_array).map(Vec::as_slice);
    lines.extend(forced.unwrap_or_default().iter().map(|one| line("cut", &forced_words(one))));
    let around = "sessions that do not come through the proxy are not kept from reading";
    lines.push(line("not covered", around));
    lines
}

/// What the proofs rest on, or nothing when there is none.
pub(super) fn lines(body: &Value) -> Vec<String> {
    let mut lines = write_lines(body);
    lines.append(&mut read_lines(body));
    lines
}

fn write_lines(body: &Value) -> Vec<String> {
    let Some(evidence) = evidence(body) else { return Vec::new() };
    let of = |pointer: &str| text(evidence, pointer);
    let mut lines = vec![
        line("proven", &of("/proven_at")),
        line(
            "leases",
            &format!(
                "writers open when the proving wait began: {} ended by the engine's answer, {} \
                 seen gone at the engine",
                of("/releases/by_answer"),
                of("/releases/by_engine")
            ),
        ),
    ];
    let forced = evidence.get("forced").and_then(Value::as_array).map(Vec::as_slice);
    match forced.unwrap_or_default() {
        [] => lines.push(line("forced", "nothing")),
        all => lines.extend(all.iter().map(|one| line("forced", &forced_words(one)))),
    }
    lines.push(line("census before", &census(evidence, "census_before")));
    lines.push(line("census after", &census(evidence, "census_after")));
    let lock = format!(
        "{}, {} tables; {}",
        of("/engine_lock/mode"),
        of("/engine_lock/tables"),
        of("/engine_lock/outcome")
    );
    lines.push(line("engine lock", &lock));
    let around = match of("/engine_lock/mode").as_str() {
        "off" => Some("sessions that do not come through the proxy are not kept from writing"),
        // Of a target's seal it is given back always; `not covered` says what that leaves out.
        "confirm" if text(body, "/fence/state").starts_with("SOURCE_") => Some(
            "the lock was given back behind the boundary: sessions that do not come through the \
             proxy may write from then on",
        ),
        _ => None,
    };
    lines.extend(around.map(|words| line("WARNING", words)));
    for (name, pointer) in [
        ("not covered", "/engine_lock/gaps"),
        ("not covered", "/non_transactional_tables"),
        ("direct", "/direct_sessions"),
    ] {
        let items = evidence.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice);
        lines.extend(
            items
                .unwrap_or_default()
                .iter()
                .filter_map(Value::as_str)
                .filter(|one| !one.starts_with(GAP_WHILE_UP))
                .map(|one| line(name, one)),
        );
    }
    let gaps = evidence.pointer("/engine_lock/gaps").and_then(Value::as_array);
    let kept = gaps.into_iter().flatten().filter_map(Value::as_str);
    lines.extend(lock_gaps(kept.filter(|one| one.starts_with(GAP_WHILE_UP))));
    lines
}

/// When the lock was missing while the fence stood, and what that means; nothing where it wasn't.
pub(super) fn lock_gaps<'g>(gaps: impl Iterator<Item = &'g str>) -> Vec<String> {
    let mut lines: Vec<String> = gaps.map(|gap| line("LOCK GAP", gap)).collect();
    if !lines.is_empty() {
        lines.push(line(
            "",
            "sessions around the proxy, and what the gate can't see, could write then, behind the \
             boundary; look before you rely on it",
        ));
    }
    lines
}

fn census(evidence: &Value, which: &str) -> String {
    let of = |name: &str| text(evidence, &format!("/{which}/{name}"));
    format!(
        "in flight {} (waited for {}), left: writers {}, prepared {}, orphans {}; direct \
         sessions {}; {}",
        of("virtual_transactions"),
        of("waited_for"),
        of("writers"),
        of("prepared"),
        of("orphans"),
        of("direct_sessions"),
        of("at_engine_clock")
    )
}

/// One thing that was forced.
fn forced_words(forced: &Value) -> String {
    let of = |name: &str| text(forced, &format!("/{name}"));
    format!(
        "{} of session {} (backend {}) at {}: {}",
        of("kind"),
        of("session"),
        of("engine_pid"),
        of("at"),
        of("why")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn proven() -> Value {
        let census = |at: &str| {
            json!({
                "at_engine_clock": at, "virtual_transactions": 7, "waited_for": 5, "prepared": 0,
                "orphans": 0, "writers": 0, "direct_sessions": 1,
            })
        };
        json!({ "fence": { "evidence": {
            "proven_at": "T3", "releases": { "by_answer": 2, "by_engine": 1 },
            "forced": [{ "kind": "rollback", "session": 12, "engine_pid": 99, "at": "T2",
                "why": "the deadline\u{1b}[2J passed" }],
            "census_before": census("T1"), "census_after": census("T2"),
            "engine_lock": { "mode": "hold", "tables": 4, "outcome": "granted",
                "gaps": ["sequences", "large objects", "while the fence stood: T4: lost"] },
            "direct_sessions": ["1 idle session"], "non_transactional_tables": ["old_log"],
        } } })
    }

    #[test]
    fn every_piece_of_the_evidence_is_told() {
        let lines = lines(&proven());
        let all = lines.join("\n");
        for part in [
            "proven         T3",
            "2 ended by the engine's answer, 1 seen gone",
            "forced         rollback of session 12 (backend 99) at T2",
            "census before  in flight 7 (waited for 5), left: writers 0, prepared 0, orphans 0",
            "census after   in flight 7",
            "engine lock    hold, 4 tables; granted",
            "not covered    sequences",
            "not covered    large objects",
            "not covered    old_log",
            "LOCK GAP       while the fence stood: T4: lost",
            "could write then, behind the boundary",
            "direct         1 idle session",
        ] {
            assert!(all.contains(part), "{part} is missing:\n{all}");
        }
        assert!(!all.contains('\u{1b}'), "a text of the engine moved the cursor");
    }

    #[test]
    fn a_proof_warns_where_the_engine_lock_is_not_kept() {
        let mut body = proven();
        for (mode, state, expected) in [
            ("hold", "SOURCE_WRITE_FENCED", None),
            ("off", "SOURCE_WRITE_FENCED", Some("are not kept from writing")),
            ("confirm", "SOURCE_WRITE_FENCED", Some("may write from then on")),
            ("confirm", "TARGET_VALIDATING", None),
        ] {
            body["fence"]["state"] = json!(state);
            body["fence"]["evidence"]["engine_lock"]["mode"] = json!(mode);
            let lines = lines(&body);
            let warning = lines.iter().find(|line| line.starts_with("WARNING"));
            assert_eq!(warning.is_some(), expected.is_some(), "{mode}: {warning:?}");
            assert!(warning.is_none_or(|line| line.contains(expected.unwrap())), "{warning:?}");
        }
    }

    #[test]
    fn without_a_proof_nothing_is_told() {
        for fence in [json!({}), json!({ "evidence": null }), Value::Null] {
            assert!(lines(&json!({ "fence": fence })).is_empty());
        }
        let mut quiet = proven();
        quiet["fence"]["evidence"]["forced"] = json!([]);
        assert!(lines(&quiet).contains(&line("forced", "nothing")));
    }
}
