//! A command that is sent again: what it expects, and what its answer is
//! told as.

use super::*;

#[test]
fn a_replay_that_was_overtaken_shows_no_proof() {
    let proven = json!({ "proven_at": "T3", "releases": { "by_answer": 1, "by_engine": 0 } });
    let body = |now: &str| {
        let mut body = applied();
        body["replayed"] = json!(true);
        body["fence"]["state"] = json!(now);
        body["fence"]["evidence"] = proven.clone();
        body["receipt"]["state_after"] = json!("SOURCE_WRITE_FENCED");
        body["receipt"]["revision_after"] = json!(2);
        body
    };
    let args = ["acquire-write-fence", "old/app", "--operation", OP, "--command", CMD];
    let (_, out, _) = answering(200, body("RELEASED")).run(&args);
    assert!(out.contains("OUTDATED") && out.contains("What holds is RELEASED"), "{out}");
    assert!(!out.contains("proven "), "{out}");
    let (_, out, _) = answering(200, body("SOURCE_WRITE_FENCED")).run(&args);
    assert!(!out.contains("OUTDATED") && out.contains("proven         T3"), "{out}");
}

/// A drain that a newer command has proven since, or that was released, is nothing to wait for.
#[test]
fn a_replay_of_a_drain_that_is_over_says_so_and_how_it_stands() {
    let args = ["acquire-write-fence", "old/app", "--operation", OP, "--command", CMD];
    let other = "6e0b8c7e-5d0f-4c7e-9d39-1d2b8f9f3a99";
    for (now, owner, expected, replayed) in [
        ("SOURCE_WRITE_FENCED", OP, exit::DONE, true),
        ("SOURCE_READ_FENCED", OP, exit::DONE, true),
        ("SOURCE_WRITE_FENCED", other, exit::REFUSED, true),
        ("RELEASED", OP, exit::REFUSED, true),
        // The command itself, that another one overtook while it drained.
        ("RELEASED", OP, exit::REFUSED, false),
        ("SOURCE_WRITE_FENCED", OP, exit::DONE, false),
    ] {
        let mut body = applied();
        body["outcome"] = json!("DRAINING");
        body["replayed"] = json!(replayed);
        body["fence"]["state"] = json!(now);
        body["fence"]["operation_id"] = json!(owner);
        body["receipt"]["state_after"] = json!("SOURCE_DRAINING");
        body["receipt"]["revision_after"] = json!(1);
        let (code, out, err) = answering(202, body).run(&args);
        assert_eq!(code, expected, "{now}: {out}{err}");
        let word = if replayed { "OUTDATED" } else { "OVERTAKEN" };
        assert!(out.contains(word) && out.contains(&format!("What holds is {now}")), "{out}");
        assert!(!err.contains("release-write-fence") && !err.contains("stay closed"), "{err}");
    }
}

/// Its own was released, and another operation has acquired one since: the state is the same.
#[test]
fn a_replay_beside_another_operations_fence_doesnt_take_it_for_its_own() {
    let args = ["acquire-write-fence", "old/app", "--operation", OP, "--command", CMD];
    let other = "6e0b8c7e-5d0f-4c7e-9d39-1d2b8f9f3a99";
    let body = |state: &str, outcome: &str, owner: &str, revision: u64| {
        let mut body = applied();
        body["outcome"] = json!(outcome);
        body["replayed"] = json!(true);
        body["fence"]["state"] = json!(state);
        body["fence"]["operation_id"] = json!(owner);
        body["fence"]["revision"] = json!(revision);
        body["fence"]["evidence"] = json!({ "proven_at": "T3" });
        body["receipt"]["state_after"] = json!(state);
        body["receipt"]["operation_id"] = json!(OP);
        body["receipt"]["revision_after"] = json!(2);
        body
    };
    let fenced = |owner, at| body("SOURCE_WRITE_FENCED", "APPLIED", owner, at);
    let (_, out, _) = answering(200, fenced(other, 23)).run(&args);
    let holds = format!("What holds is SOURCE_WRITE_FENCED of operation {other}.");
    assert!(out.contains("OUTDATED") && out.contains(&holds), "{out}");
    assert!(!out.contains("proven ") && !out.contains("boundary"), "{out}");
    let (_, out, _) = answering(200, fenced(OP, 2)).run(&args);
    assert!(!out.contains("OUTDATED") && out.contains("boundary"), "{out}");
    // Its drain, and another one: of another operation, or of its own.
    for owner in [other, OP] {
        let draining = body("SOURCE_DRAINING", "DRAINING", owner, 17);
        let (code, out, err) = answering(202, draining).run(&args);
        assert_eq!(code, exit::REFUSED, "{out}{err}");
        assert!(out.contains("OUTDATED"), "{out}");
        assert_eq!(out.contains(other), owner == other, "{out}");
        assert!(!err.contains("replay the same command") && !err.contains("release"), "{err}");
    }
    let (code, out, err) = answering(202, body("SOURCE_DRAINING", "DRAINING", OP, 2)).run(&args);
    assert_eq!(code, exit::DRAINING, "{out}{err}");
    assert!(!out.contains("OUTDATED") && err.contains("replay the same command"), "{out}{err}");
}

#[test]
fn a_lost_answer_is_unknown_and_names_the_replay() {
    let fake = Fake::new(|seen| match seen.line.starts_with("GET") {
        true => Reply::Json(200, inspected("UNFENCED", 0)),
        false => Reply::Close,
    });
    let args = ["acquire-write-fence", "old/app", "--operation", OP, "--command", CMD];
    let (code, _, err) = fake.run(&args);
    assert_eq!(code, exit::UNKNOWN, "{err}");
    let replay = format!("acquire-write-fence old/app --operation {OP} --command {CMD} --expect");
    assert!(err.contains("may have been applied") && err.contains(&replay), "{err}");
    let (code, out, _) = fake.run(&[&args[..], &["--json"]].concat());
    assert_eq!(code, exit::UNKNOWN);
    assert!(serde_json::from_str::<Value>(&out).unwrap()["error"].is_string());
}

#[test]
fn an_absent_proxy_is_unreachable_and_nothing_was_sent() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{closed}");
    let vars = [("FENCEWIRE_ADMIN_KEY", KEY)];
    for args in [
        &["status"][..],
        &["inspect", "old/app"],
        &["acquire-write-fence", "old/app", "--operation", OP],
        &["release-write-fence", "old/app", "--operation", OP, "--json"],
    ] {
        let all = [&["ctl", "--admin-url", &url], args].concat();
        let (code, out, err) = capture(&all, &vars);
        assert_eq!(code, exit::UNREACHABLE, "{args:?}: {out}{err}");
        assert!(format!("{out}{err}").contains("Nothing was changed"), "{out}{err}");
    }
    let fake = Fake::new(|_| Reply::Close);
    assert_eq!(fake.run(&["status"]).0, exit::UNREACHABLE);
}

#[test]
fn a_replay_expects_what_the_receipt_says_not_what_is_now() {
    let receipt = |before: u64| {
        let receipt = json!({
            "command_id": CMD, "operation_id": OP, "outcome": "DRAINING", "revision_before": before,
        });
        let mut body = inspected("SOURCE_DRAINING", before + 1);
        body["receipts"] = json!([{ "command_id": OP, "revision_before": 9 }, receipt]);
        body
    };
    let args = ["acquire-write-fence", "old/app", "--operation", OP, "--command", CMD];
    let fake = Fake::new(move |seen| match seen.line.starts_with("GET") {
        true => Reply::Json(200, receipt(0)),
        false => Reply::Json(200, applied()),
    });
    assert_eq!(fake.run(&args).0, exit::DONE);
    assert_eq!(fake.seen.lock().unwrap()[0].line, format!("{FENCE}?receipts=all"));
    assert_eq!(fake.posts()[0]["expected_state"], "UNFENCED");
    assert_eq!(fake.posts()[0]["expected_revision"], 0);

    // After an earlier move the state before is not in the receipt: conflicts change nothing, so
    // the possible ones are tried in turn.
    let fake = Fake::new(move |seen| match seen.line.starts_with("GET") {
        true => Reply::Json(200, receipt(3)),
        false if seen.body["expected_state"] == "TARGET_WRITABLE" => Reply::Json(200, applied()),
        false => Reply::Json(409, json!({ "outcome": "FENCE_COMMAND_CONFLICT" })),
    });
    assert_eq!(fake.run(&args).0, exit::DONE);
    let tried: Vec<_> = fake.posts().iter().map(|post| post["expected_state"].clone()).collect();
    assert_eq!(tried, ["RELEASED", "TARGET_WRITABLE"]);
    assert!(fake.posts().iter().all(|post| post["expected_revision"] == 3));

    // Named, it is taken as it is.
    let fake = answering(409, json!({ "outcome": "FENCE_COMMAND_CONFLICT" }));
    let (code, _, _) = fake.run(&[&args[..], &["--expect", "RELEASED@7"]].concat());
    assert_eq!((code, fake.posts().len()), (exit::REFUSED, 1));
    assert_eq!(fake.posts()[0]["expected_revision"], 7);
}

#[test]
fn a_fresh_command_is_never_a_replay() {
    let fake = Fake::new(|seen| match seen.line.starts_with("GET") {
        true => Reply::Json(200, inspected("RELEASED", 3)),
        false => Reply::Json(409, json!({ "outcome": "FENCE_COMMAND_CONFLICT" })),
    });
    let (code, _, _) = fake.run(&["acquire-write-fence", "old/app", "--operation", OP]);
    assert_eq!((code, fake.posts().len()), (exit::REFUSED, 1));
    assert_eq!(fake.posts()[0]["expected_state"], "RELEASED");
}
