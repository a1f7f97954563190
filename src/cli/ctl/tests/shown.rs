//! What `ctl status` and `ctl inspect` show, once and watching.

use super::*;

#[test]
fn status_is_a_table_and_one_json_object() {
    let body = json!({ "namespaces": [
        { "namespace": "old/app", "state": "SOURCE_DRAINING", "revision": 1, "operation_id": OP,
          "admission": { "write": "closed", "read": "open", "generation": 2 }, "sessions": 12,
          "leases": { "read": 3, "write": 1 }, "blockers": [1, 2],
          "held": { "programs": 4, "oldest_ms": 2500 }, "engine_lock": { "held": false } },
        { "namespace": "old/b", "state": "UNFENCED", "revision": 0, "operation_id": null,
          "admission": { "write": "open", "read": "open", "generation": 1 }, "sessions": 0,
          "leases": 0, "blockers": 0 },
    ] });
    let whole = body.clone();
    let fake = Fake::new(move |_| Reply::Json(200, body.clone()));
    let (code, out, _) = fake.run(&["status"]);
    assert_eq!(code, exit::DONE);
    let lines: Vec<Vec<&str>> = out
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect())
        .collect();
    assert_eq!(lines[0][..3], ["NAMESPACE", "STATE", "REV"]);
    let (state, leases) = ("SOURCE_DRAINING", "read 3, write 1");
    assert_eq!(lines[0][9..], ["HELD", "ENGINE LOCK"]);
    let (held, lock) = ("4, 2.5 s", "NOT HELD");
    let row = ["old/app", state, "1", OP, "closed", "open", "12", leases, "2", held, lock];
    assert_eq!(lines[1], row);
    assert_eq!(lines[2], ["old/b", "UNFENCED", "0", "-", "open", "open", "0", "0", "0", "-", "-"]);
    assert_eq!(fake.seen.lock().unwrap()[0].line, "GET /v1/namespaces");
    let (code, out, _) = fake.run(&["status", "--json"]);
    assert_eq!(code, exit::DONE);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), whole);
}

#[test]
fn inspect_says_when_another_engine_answers_under_the_fences_name() {
    for (current, told) in [
        (json!({ "engine_id": "7412", "timeline": 1, "database_id": "16384" }), None),
        (json!({ "engine_id": "7412", "timeline": 2, "database_id": "16384" }), Some("timeline 2")),
        (json!({ "engine_id": "7412", "timeline": 1, "database_id": "5" }), Some("database 5")),
        (json!({ "engine_id": "9", "timeline": 1, "database_id": "16384" }), Some("engine 9")),
        (Value::Null, None),
    ] {
        let mut body = inspected("SOURCE_WRITE_FENCED", 2);
        body["fence"]["incarnation"]["current"] = current;
        let fake = Fake::new(move |_| Reply::Json(200, body.clone()));
        let (_, out, _) = fake.run(&["inspect", "old/app"]);
        assert_eq!(out.contains("live engine    DIFFERS"), told.is_some(), "{out}");
        assert!(told.is_none_or(|told| out.contains(told)), "{out}");
    }
}

#[test]
fn inspect_counts_one_held_program_as_one() {
    for (count, words) in [(1, "1 program, at most"), (2, "2 programs, at most")] {
        let mut body = inspected("SOURCE_WRITE_FENCED", 1);
        body["fence"]["held"] = json!({ "programs": count, "hold_ms": 1000, "max_held": 5 });
        let fake = Fake::new(move |_| Reply::Json(200, body.clone()));
        let (_, out, _) = fake.run(&["inspect", "old/app"]);
        assert!(out.contains(words), "{out}");
    }
}

#[test]
fn inspect_shows_fence_blockers_and_receipts() {
    let mut body = inspected("SOURCE_DRAINING", 1);
    body["drain"] = blockers();
    body["drain"]["active_writers"] = json!(1);
    body["drain"]["blockers"][0]["statement"] = json!("");
    body["fence"]["evidence"] = json!({ "engine_lock": { "gaps": ["sequences"] } });
    let gap = "2026-12-01T10:00:00Z: lost with its connection";
    body["fence"]["engine_lock"] = json!({ "held": false, "tables": 0, "gaps": [gap] });
    body["fence"]["admission"]["indeterminate"] = json!(true);
    body["fence"]["admission"]["pending_command"] =
        json!({ "operation_id": OP, "command_id": CMD });
    body["receipts"] = json!([{ "command_id": CMD, "command": "acquire", "outcome": "DRAINING" }]);
    let fake = Fake::new(move |_| Reply::Json(200, body.clone()));
    let (code, out, _) = fake.run(&["inspect", "old/app", "--receipts", "all"]);
    assert_eq!(code, exit::DONE);
    for part in
        ["state          SOURCE_DRAINING, revision 1", "engine 7412", "writers 1", CMD, "12.4 s"]
            .into_iter()
            .chain([
                "after 30.0 s answer DRAINING",
                "not covered    sequences",
                "NOT held",
                &format!("LOCK GAP       {gap}"),
                "could write then, behind the boundary",
                &format!("--operation {OP} --command {CMD}"),
            ])
    {
        assert!(out.contains(part), "{part} is missing:\n{out}");
    }
    assert!(!out.contains('\u{1b}'));
    assert_eq!(fake.seen.lock().unwrap()[0].line, format!("{FENCE}?receipts=all"));
    let (code, _, _) = fake.run(&["inspect", "old/a b", "--json"]);
    assert_eq!(code, exit::DONE);
    let line = fake.seen.lock().unwrap()[1].line.clone();
    assert_eq!(line, "GET /v1/namespaces/old/a%20b/fence");
}

#[test]
fn a_drain_that_nobody_runs_says_so_instead_of_counting() {
    let shown = |phase: &str| {
        let mut body = inspected("SOURCE_DRAINING", 1);
        body["drain"] = json!({ "phase": phase, "active_writers": 0, "blockers": [] });
        let fake = Fake::new(move |_| Reply::Json(200, body.clone()));
        fake.run(&["inspect", "old/app"]).1
    };
    assert!(shown("idle").contains("replay the last command"));
    let mut body = inspected("SOURCE_DRAINING", 1);
    body["drain"] = blockers();
    body["drain"]["phase"] = json!("idle");
    body["drain"]["blockers_as_of"] = json!("2026-11-30T08:53:49.952Z");
    let fake = Fake::new(move |_| Reply::Json(200, body.clone()));
    let (_, out, _) = fake.run(&["inspect", "old/app"]);
    for part in ["as of          2026-11-30T08:53:49.952Z", "a replay asks it again", "SESSION"] {
        assert!(out.contains(part), "{part} is missing:\n{out}");
    }
    let running = shown("engine_lock");
    assert!(running.contains("writers 0, phase engine_lock"), "{running}");
    assert!(!running.contains("replay"), "{running}");
}

#[test]
fn watching_shows_changes_until_it_can_not() {
    let questions = Mutex::new(0);
    let fake = Fake::new(move |_| {
        let mut questions = questions.lock().unwrap();
        *questions += 1;
        match *questions {
            1 | 2 => Reply::Json(200, inspected("SOURCE_DRAINING", 1)),
            3 => Reply::Json(200, inspected("SOURCE_WRITE_FENCED", 2)),
            _ => Reply::Close,
        }
    });
    let (code, out, _) = fake.run(&["inspect", "old/app", "--watch"]);
    assert_eq!(code, exit::UNREACHABLE);
    assert_eq!(out.matches("SOURCE_DRAINING").count(), 1, "{out}");
    assert_eq!(out.matches("SOURCE_WRITE_FENCED").count(), 1, "{out}");
    let (code, _, err) = fake.run(&["inspect", "old/app", "--watch", "--json"]);
    assert_eq!(code, exit::USAGE, "{err}");
}
