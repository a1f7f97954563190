//! What the guard rests on, and what a client may change of it: the client's own
//! `default_transaction_read_only`, portals of an earlier program that end the transaction, and
//! cursors that its COMMIT runs.

use super::*;

fn reported(value: &str) -> Vec<u8> {
    message(b'S', format!("default_transaction_read_only\0{value}\0").as_bytes())
}

/// What hides behind a view sets it to off, and the transaction that it did it in is rolled back:
/// the engine reports the guard's value, with an answer of the client's. Taken for the client's, it
/// stayed on the session when the fence was lifted.
#[test]
fn w17_the_guards_value_that_a_rollback_brings_back_is_not_the_clients() {
    for (own, undo) in [("off", "SET default_transaction_read_only = off"), ("on", GUARD)] {
        both(|stage| {
            stage.client(&query("SELECT 1"));
            stage.engine(&[done("SELECT 1"), reported(own), ready(b'I')].concat());
            stage.close();
            stage.sent();
            stage.client(&query("BEGIN"));
            stage.engine(&[done("SET"), reported("on"), ready(b'I')].concat());
            stage.engine(&[done("BEGIN"), ready(b'T')].concat());
            stage.client(&query("SELECT * FROM switching"));
            stage.engine(&ended(b'T'));
            stage.engine(&[done("SELECT 1"), reported("off"), ready(b'T')].concat());
            stage.told();
            stage.client(&query("ROLLBACK"));
            stage.engine(&ended(b'T'));
            stage.engine(&[done("ROLLBACK"), reported("on"), ready(b'I')].concat());
            let told = if own == "on" { vec!["C", "S", "ZI"] } else { vec!["C", "ZI"] };
            assert_eq!(stage.told(), told, "its own value was {own}");
            stage.open();
            stage.sent();
            stage.client(&query("SELECT 2"));
            assert_eq!(stage.sent(), [stage.own(undo), query("SELECT 2")].concat());
        });
    }
}

/// A portal lives on in a block: bound before the fence, executed behind it, it ends the block, and
/// the guard with it. What follows in that pipeline must not run.
#[test]
fn w17_a_portal_that_ends_the_block_drops_the_guard_whenever_it_was_bound() {
    for (portal, text) in [("p", "COMMIT"), ("", "COMMIT"), ("p", "RESET ALL"), ("p", "SELECT 1")] {
        both(|stage| {
            stage.client(&[parse("c", text), sync()].concat());
            stage.engine(&[message(b'1', b""), ready(b'I')].concat());
            stage.client(&query("BEGIN"));
            stage.engine(&[done("BEGIN"), ready(b'T')].concat());
            stage.client(&[bind(portal, "c"), sync()].concat());
            stage.engine(&[message(b'2', b""), ready(b'T')].concat());
            stage.close();
            stage.sent();
            stage.told();
            let run = message(b'E', format!("{portal}\0\0\0\0\0").as_bytes());
            let view = [parse("", "SELECT * FROM v"), bind("", ""), execute(), sync()].concat();
            stage.client(&[run, view].concat());
            stage.engine(&ended(b'T'));
            let passed = stage.sent().windows(6).any(|bytes| bytes == b"FROM v");
            let control = text == "SELECT 1";
            assert_eq!(passed, control, "VIOLATION: behind {text} in portal {portal:?}");
        });
    }
}

fn dropped(stage: &mut Stage, last: &[u8]) -> bool {
    let types = message(b'P', b"d\0commit\0\0\x01\0\0\x40\0");
    stage.client(&[parse("c", "COMMIT"), types, parse("s", "SELECT 1"), sync()].concat());
    stage.engine(&[message(b'1', b"").repeat(3), ready(b'I')].concat());
    stage.client(&query("BEGIN"));
    stage.engine(&[done("BEGIN"), ready(b'T')].concat());
    stage.close();
    stage.sent();
    stage.client(&[bind("", "c"), execute(), last.to_vec(), sync()].concat());
    stage.engine(&ended(b'T'));
    let sent = stage.sent();
    assert!(sent.windows(execute().len()).any(|part| part == execute()), "{sent:?}");
    sent.windows(last.len()).any(|part| part == last)
}

/// Analysing a text and reading a value run code of types: not behind what ends the transaction.
#[test]
fn w17_behind_the_end_of_a_block_nothing_passes_that_may_run_code() {
    let value = message(b'B', b"\0d\0\0\0\0\x01\0\0\0\x011\0\0");
    for (last, passes) in [
        (message(b'D', b"Ss\0"), false),
        (value, false),
        (bind("", "s"), false),
        (message(b'D', b"P\0"), true),
        (message(b'C', b"Ss\0"), true),
        (bind("", "d"), true),
    ] {
        both(|stage| {
            let passed = dropped(stage, &last);
            assert_eq!(passed, passes, "VIOLATION: {:?}", String::from_utf8_lossy(&last));
        });
    }
}

/// Drivers reset a session by a pipeline: what drops the guard is its Execute, which passes.
#[test]
fn w17_a_reset_by_a_pipeline_passes_and_nothing_behind_it() {
    both(|stage| {
        stage.close();
        let reset = [parse("", "DISCARD ALL"), bind("", ""), execute()].concat();
        let view = [parse("", "SELECT * FROM v"), sync()].concat();
        stage.client(&[reset.clone(), view].concat());
        stage.sent();
        stage.engine(&ended(b'I'));
        let sent = stage.sent();
        assert!(sent.starts_with(&reset), "{sent:?}");
        assert!(!sent.windows(6).any(|bytes| bytes == b"FROM v"), "VIOLATION: behind a reset");
    });
}

const HOLD: &str = "DECLARE c CURSOR WITH HOLD FOR SELECT * FROM v";

/// The COMMIT gives up the savepoint, and what the guard set behind it, before it runs the cursor.
#[test]
fn w17_a_cursor_that_the_commit_runs_is_a_write_where_the_guard_is_not_first() {
    both(|stage| {
        stage.client(&query("BEGIN"));
        stage.engine(&[done("BEGIN"), ready(b'T')].concat());
        stage.client(&query(HOLD));
        stage.engine(&[done("DECLARE CURSOR"), ready(b'T')].concat());
        let writer = stage.conversation.lease.as_ref().is_some_and(|lease| lease.stamp().writer);
        assert!(writer, "VIOLATION: no drain waits for what a COMMIT runs");
    });
    both(|stage| {
        stage.client(&[query("BEGIN"), query("SAVEPOINT a")].concat());
        let both = [done("BEGIN"), ready(b'T'), done("SAVEPOINT"), ready(b'T')].concat();
        stage.engine(&both);
        stage.close();
        stage.sent();
        stage.client(&query(HOLD));
        let passed = stage.sent().windows(6).any(|bytes| bytes == b"FROM v");
        stage.engine(&ended(b'T'));
        let passed = passed || stage.sent().windows(6).any(|bytes| bytes == b"FROM v");
        assert!(!passed, "VIOLATION: a cursor of an older transaction's COMMIT");
    });
    // Control arm: a transaction that was begun under the guard is read-only whatever it gives up.
    both(|stage| {
        stage.close();
        stage.client(&query("BEGIN"));
        stage.engine(&ended(b'I'));
        stage.engine(&[done("BEGIN"), ready(b'T')].concat());
        stage.sent();
        stage.client(&query(HOLD));
        stage.engine(&ended(b'T'));
        assert!(stage.sent().windows(6).any(|bytes| bytes == b"FROM v"));
    });
}

/// Names from earlier programs end the guarded transaction and begin one that isn't read-only.
#[test]
fn w17_a_cursor_that_the_commit_runs_is_a_write_behind_the_end_of_a_guarded_block() {
    both(|stage| {
        for (name, sql) in [("c", "COMMIT"), ("b", "BEGIN"), ("s", "SAVEPOINT a")] {
            stage.client(&[parse(name, sql), sync()].concat());
            stage.engine(&[message(b'1', b""), ready(b'I')].concat());
        }
        stage.close();
        stage.sent();
        let runs = |name| [bind("", name), execute()].concat();
        stage.client(&[runs("c"), runs("b"), runs("s"), sync()].concat());
        stage.engine(&ended(b'I'));
        stage.sent();
        let ran = |tag| [message(b'2', b""), done(tag)].concat();
        stage.engine(&[ran("COMMIT"), ran("BEGIN"), ran("SAVEPOINT"), ready(b'T')].concat());
        stage.client(&query(HOLD));
        stage.engine(&ended(b'T'));
        let passed = stage.sent().windows(6).any(|bytes| bytes == b"FROM v");
        assert!(!passed, "VIOLATION: a cursor of a transaction that isn't read-only");
    });
}

#[cfg(debug_assertions)]
#[test]
fn w17_control_arm_a_cursor_with_hold_taken_for_a_read_is_reported() {
    let check = "wire::pg::tests::settings::\
                 w17_a_cursor_that_the_commit_runs_is_a_write_where_the_guard_is_not_first";
    crate::base::arm::missed(check, &[("hold-cursor", "no drain waits")]).unwrap();
}
