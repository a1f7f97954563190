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

/// A target as the made-up surface shows it, and answers to what is sent.
fn target(state: &'static str, revision: u64, status: u16, body: Value) -> Fake {
    Fake::new(move |seen| match seen.line.starts_with("GET") {
        true if state == "ABSENT" => Reply::Json(404, json!({ "error": "no such database" })),
        true => Reply::Json(200, inspected(state, revision)),
        false => Reply::Json(status, body.clone()),
    })
}

#[test]
fn a_target_is_created_where_nothing_is_and_its_options_are_sent() {
    let body = json!({ "outcome": "APPLIED", "fence": view("TARGET_QUARANTINED", 1) });
    let fake = target("ABSENT", 0, 200, body);
    let args = ["create-quarantined", "old/app", "--operation", OP, "--owner", "app's"];
    let (code, out, err) = fake.run(&args);
    assert_eq!((code, err.as_str()), (exit::DONE, ""), "{out}");
    assert!(out.contains("old/app is TARGET_QUARANTINED at revision 1"), "{out}");
    let sent = &fake.posts()[0];
    assert_eq!(
        (&sent["expected_state"], &sent["expected_revision"]),
        (&json!("ABSENT"), &json!(0))
    );
    assert_eq!(sent["owner"], "app's");
    assert!(sent.get("locale").is_none(), "{sent}");

    let error = json!({ "outcome": null, "error": "the engine is away" });
    let (code, _, err) = target("ABSENT", 0, 503, error).run(&args);
    assert_eq!(code, exit::UNKNOWN);
    assert!(err.contains(r"--expect ABSENT@0 --owner 'app'\''s'"), "{err}");
}

#[test]
fn the_steps_of_a_target_go_to_their_routes() {
    for (args, state, route) in [
        (&["seal-import", "old/app"][..], "TARGET_QUARANTINED", "seal-import"),
        (
            &["validate", "old/app", "--result", "ok", "--summary", "12 tables"],
            "TARGET_VALIDATING",
            "validation-receipt",
        ),
        (&["publish", "old/app"], "TARGET_VALIDATING", "publish-readable"),
        (&["enable-writes", "old/app"], "TARGET_WRITE_FENCED", "enable-writes"),
        (&["abort", "old/app"], "TARGET_QUARANTINED", "abort"),
    ] {
        let body = json!({ "outcome": "APPLIED", "fence": view(state, 4) });
        let fake = target(state, 3, 200, body);
        let (code, out, err) = fake.run(&[args, &["--operation", OP]].concat());
        assert_eq!((code, err.as_str()), (exit::DONE, ""), "{out}");
        let line = fake.seen.lock().unwrap()[1].line.clone();
        assert_eq!(line, format!("POST /v1/namespaces/old/app/fence/target/{route}"));
        let sent = &fake.posts()[0];
        assert_eq!(
            (&sent["expected_state"], &sent["expected_revision"]),
            (&json!(state), &json!(3))
        );
        let validates = route == "validation-receipt";
        assert_eq!(sent.get("result").is_some(), validates);
        assert_eq!(sent.get("summary").is_some(), validates);
    }
    let (code, _, err) =
        capture(&["ctl", "validate", "old/app", "--operation", OP, "--result", "perhaps"], &[]);
    assert_eq!(code, exit::USAGE, "{err}");
}

#[test]
fn a_seal_that_drains_names_force_and_abort() {
    let mut body = json!({ "outcome": "DRAINING", "fence": view("TARGET_IMPORT_DRAINING", 2) });
    body["drain"] = blockers();
    let fake = target("TARGET_QUARANTINED", 1, 202, body);
    let (code, _, err) = fake.run(&["seal-import", "old/app", "--operation", OP]);
    assert_eq!(code, exit::DRAINING);
    assert!(err.contains("ctl seal-import old/app") && err.contains("--force-rollback"), "{err}");
    assert!(err.contains("or back out:\n  fencewire ctl abort old/app"), "{err}");
}

#[test]
fn a_capability_is_alone_on_stdout() {
    let body = json!({ "namespace": "old/app", "purpose": "import", "operation_id": OP,
        "revision": 1, "secret": "fwc_abc" });
    let fake = target("TARGET_QUARANTINED", 1, 200, body);
    let (code, out, err) = fake.run(&["import-capability", "old/app", "--operation", OP]);
    assert_eq!((code, out.as_str()), (exit::DONE, "fwc_abc\n"));
    assert!(err.contains("shown this once") && !err.contains("fwc_"), "{err}");
    assert_eq!(fake.posts()[0], json!({ "operation_id": OP, "expected_revision": 1 }));
    let refused = json!({ "outcome": "OPERATION_CAPABILITY_REQUIRED", "error": "sealed" });
    let (code, out, err) = target("TARGET_VALIDATING", 3, 403, refused).run(&[
        "import-capability",
        "old/app",
        "--operation",
        OP,
    ]);
    assert_eq!((code, out.as_str()), (exit::REFUSED, ""));
    assert!(err.contains("sealed") && err.contains("see inspect"), "{err}");
}

#[test]
fn a_questions_rows_are_shown_as_tables() {
    let result = json!({ "cols": ["n", "x"], "rows": [["1", null], ["2", "p\u{1b}[2J"]] });
    let body = json!({ "namespace": "old/app", "revision": 3, "results": [result, result] });
    let fake = target("TARGET_VALIDATING", 3, 200, body);
    let args = ["validation-query", "old/app", "--operation", OP, "select 1", "select 2"];
    let (code, out, _) = fake.run(&args);
    assert_eq!(code, exit::DONE);
    assert!(out.starts_with("n  x\n1  -\n2  p") && !out.contains('\u{1b}'), "{out:?}");
    assert_eq!(out.matches("n  x").count(), 2);
    assert_eq!(fake.posts()[0]["stmts"], json!(["select 1", "select 2"]));
}
