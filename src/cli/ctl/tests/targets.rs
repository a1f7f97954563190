//! What `ctl` says of targets: whose proof it shows, what was recorded, what lives, what is lost.

use super::*;

/// A fence that carries the proof of an earlier command.
fn proven(state: &str) -> Value {
    let mut fence = view(state, 5);
    fence["frozen_boundary"] = json!({ "kind": "lsn", "value": "0/16B3748", "timeline": 1 });
    fence["evidence"] =
        json!({ "proven_at": "T3", "releases": { "by_answer": 2, "by_engine": 0 } });
    fence
}

fn live() -> Value {
    json!([{ "number": 3, "purpose": "import", "operation_id": OP, "revision": 1,
        "issued_at": "2026-12-01T16:00:00.000Z", "sessions": 2 }])
}

#[test]
fn what_follows_a_seal_says_whose_proof_it_shows() {
    for (args, state) in [
        (&["publish", "old/app"][..], "TARGET_WRITE_FENCED"),
        (&["enable-writes", "old/app"], "TARGET_WRITABLE"),
        (&["abort", "old/app"], "TARGET_ABORTED"),
        (&["validate", "old/app", "--result", "ok"], "TARGET_VALIDATING"),
    ] {
        let body = json!({ "outcome": "APPLIED", "fence": proven(state) });
        let fake = target("TARGET_VALIDATING", 4, 200, body);
        let (code, out, _) = fake.run(&[args, &["--operation", OP]].concat());
        assert_eq!(code, exit::DONE, "{out}");
        let whose = out.find("proof          of the seal").unwrap_or_else(|| panic!("{out}"));
        assert!(whose < out.find("boundary").unwrap(), "{out}");
        assert!(whose < out.find("proven         T3").unwrap(), "{out}");
    }
    let body = json!({ "outcome": "APPLIED", "fence": proven("TARGET_VALIDATING") });
    let fake = target("TARGET_QUARANTINED", 1, 200, body);
    let (_, out, _) = fake.run(&["seal-import", "old/app", "--operation", OP]);
    assert!(out.contains("proven         T3") && !out.contains("of the seal"), "its own: {out}");
}

#[test]
fn an_aborted_target_says_that_it_stays() {
    let fake = Fake::new(|_| Reply::Json(200, inspected("TARGET_ABORTED", 2)));
    let (_, out, _) = fake.run(&["inspect", "old/app"]);
    assert!(out.contains("its name isn't freed"), "{out}");
    let (_, out, _) = answering(200, Value::Null).run(&["inspect", "old/app"]);
    assert!(!out.contains("isn't freed"), "{out}");
}

#[test]
fn a_failed_validation_is_not_told_as_if_all_were_well() {
    for (result, says) in [("failed", "validation FAILED"), ("ok", "validation is ok")] {
        let mut fence = proven("TARGET_VALIDATING");
        fence["validation"] = json!({ "result": result });
        let body = json!({ "outcome": "APPLIED", "fence": fence, "reason": "so it stays" });
        let fake = target("TARGET_VALIDATING", 4, 200, body);
        let args = ["validate", "old/app", "--operation", OP, "--result", result];
        let (code, out, _) = fake.run(&args);
        assert_eq!(code, exit::DONE);
        let head = format!("at revision 5 (APPLIED: recorded that the {says})");
        assert!(out.contains(&head), "{out}");
        assert!(out.contains("note           so it stays"), "{out}");
    }
}

#[test]
fn a_capability_whose_answer_is_lost_may_live_and_is_not_called_nothing() {
    let fake = Fake::new(|seen| match seen.line.starts_with("GET") {
        true => Reply::Json(200, inspected("TARGET_QUARANTINED", 1)),
        false => Reply::Close,
    });
    let (code, out, err) = fake.run(&["import-capability", "old/app", "--operation", OP]);
    assert_eq!((code, out.as_str()), (exit::UNKNOWN, ""), "{err}");
    assert!(!err.contains("Nothing was changed"), "{err}");
    assert!(err.contains("may live now") && err.contains("ctl inspect old/app"), "{err}");
    // A question's answer may be lost: it has changed nothing.
    let (code, _, err) = fake.run(&["validation-query", "old/app", "--operation", OP, "select 1"]);
    assert_eq!(code, exit::UNREACHABLE);
    assert!(err.contains("Nothing was changed"), "{err}");
}

#[test]
fn live_capabilities_are_listed() {
    let fake = Fake::new(|seen| {
        let mut body = inspected("TARGET_QUARANTINED", 1);
        body["fence"]["capabilities"] = live();
        match seen.line.ends_with("/v1/namespaces") {
            true => {
                let mut line = view("TARGET_QUARANTINED", 1);
                line["capabilities"] = live();
                Reply::Json(200, json!({ "namespaces": [line, view("SOURCE_WRITE_FENCED", 2)] }))
            }
            false => Reply::Json(200, body),
        }
    });
    for args in [&["inspect", "old/app"][..], &["status"]] {
        let (code, out, _) = fake.run(args);
        assert_eq!(code, exit::DONE);
        assert_eq!(out.matches("SESSIONS THAT BEAR IT").count(), 1, "{out}");
        let line = out.lines().find(|line| line.contains("2026-12-01T16:00:00.000Z")).unwrap();
        let row: Vec<_> = line.split_whitespace().collect();
        let expected = ["3", "old/app", "import", OP, "1", "2026-12-01T16:00:00.000Z", "2"];
        assert_eq!(row, expected);
    }
    let (_, out, _) = answering(200, Value::Null).run(&["inspect", "old/app"]);
    assert!(!out.contains("BEAR"), "{out}");
}

#[test]
fn a_release_beside_a_writable_target_is_not_sent_unasked() {
    let fake = Fake::new(|seen| match seen.line.starts_with("GET") {
        true => {
            let mut body = inspected("SOURCE_WRITE_FENCED", 2);
            body["fence"]["writable_targets"] = json!(["new/app"]);
            Reply::Json(200, body)
        }
        false => {
            let fence = view("RELEASED", 3);
            let reason = "WARNING: both";
            Reply::Json(200, json!({ "outcome": "APPLIED", "fence": fence, "reason": reason }))
        }
    });
    let (_, out, _) = fake.run(&["inspect", "old/app"]);
    assert!(out.contains("BEWARE") && out.contains("writes of new/app"), "{out}");
    let args = ["release-write-fence", "old/app", "--operation", OP];
    let (code, _, err) = fake.run(&args);
    assert_eq!(code, exit::REFUSED);
    assert!(err.contains("No command was sent") && err.contains("--beside-target"), "{err}");
    assert!(fake.posts().is_empty());
    let (code, out, _) = fake.run(&[&args[..], &["--beside-target"]].concat());
    assert_eq!((code, fake.posts().len()), (exit::DONE, 1));
    assert!(out.contains("note           WARNING: both"), "{out}");
}
