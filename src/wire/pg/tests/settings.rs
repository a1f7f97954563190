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
    for own in ["off", "on"] {
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
            assert_eq!(stage.sent(), [stage.own(UNDO), query("SELECT 2")].concat());
        });
    }
}

fn piped(sql: &str) -> Vec<u8> {
    [parse("", sql), bind("", ""), execute(), sync()].concat()
}

/// What a session sends before the fence, each answered with the setting's value behind it, and the
/// statement that then takes the guard back.
const OWN: [(&[&str], &str); 16] = [
    (&["SELECT 1"], UNDO),
    (&["INSERT INTO t VALUES (1)"], UNDO),
    (&["SET default_transaction_read_only = on"], GUARD),
    (&["SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"], GUARD),
    (&["SELECT set_config('default_transaction_read_only', 'on', false)"], GUARD),
    (&["SELECT set_config('default_' || 'transaction_read_only', 'on', false)"], GUARD),
    (&["SELECT becomes_a_reader()"], GUARD),
    (&["DO $$ BEGIN SET default_transaction_read_only = on; END $$"], GUARD),
    (&["CALL becomes_a_reader()"], GUARD),
    (&["RESET ALL; SELECT becomes_a_reader()"], GUARD),
    (&["DO $$ BEGIN SET default_transaction_read_only = on; END $$", "RESET ALL"], UNDO),
    (&["SET LOCAL default_transaction_read_only = on"], UNDO),
    (&["SET default_transaction_read_only = on", "DISCARD ALL"], UNDO),
    (&["SET default_transaction_read_only = on", "RESET ALL"], UNDO),
    (&["SET default_transaction_read_only = on", "RESET default_transaction_read_only"], UNDO),
    (&["RESET ALL", "SET default_transaction_read_only = on"], GUARD),
];

/// The engine's own default may change while a session lives (a reload): one that has not set it
/// itself follows that, and a SET of the proxy's would end that for good.
#[test]
fn w17_the_undo_leaves_the_session_to_the_engines_default_unless_it_has_set_its_own() {
    for (said, undo) in OWN {
        for form in [query, piped] {
            both(|stage| {
                for sql in said {
                    stage.client(&form(sql));
                    stage.engine(&[done("SELECT 1"), reported("on"), ready(b'I')].concat());
                }
                stage.close();
                stage.client(&query("SELECT 1"));
                stage.engine(&[done("SET"), ready(b'I')].concat());
                stage.engine(&[done("SELECT 1"), ready(b'I')].concat());
                stage.engine(&ended(b'I'));
                stage.open();
                stage.sent();
                stage.told();
                stage.client(&query("SELECT 2"));
                let sent = stage.sent();
                assert_eq!(sent, [stage.own(undo), query("SELECT 2")].concat(), "{said:?}");
                stage.engine(&[done("RESET"), ready(b'I')].concat());
                assert!(!stage.conversation.guard_failed, "its word isn't taken");
                assert!(stage.told().is_empty());
            });
        }
    }
}

/// A reset that fails, or that a transaction may take back, has reset nothing.
#[test]
fn w17_a_reset_that_did_not_happen_leaves_the_session_its_own_setting() {
    let set = "SET default_transaction_read_only = on";
    let reset = "RESET default_transaction_read_only";
    let failed = [error("57014", "canceled"), ready(b'I')].concat();
    let answers: [(&[&str], Vec<u8>); 3] = [
        (&[reset], failed.clone()),
        (&["DISCARD ALL"], failed),
        (&["BEGIN", reset, "ROLLBACK"], Vec::new()),
    ];
    for (said, answer) in answers {
        both(|stage| {
            stage.client(&query(set));
            stage.engine(&[done("SET"), reported("on"), ready(b'I')].concat());
            for (at, sql) in said.iter().enumerate() {
                let status = if at + 1 == said.len() { b'I' } else { b'T' };
                stage.client(&query(sql));
                let fine = [done("SET"), ready(status)].concat();
                stage.engine(if answer.is_empty() { &fine } else { &answer });
            }
            stage.close();
            stage.client(&query("SELECT 1"));
            stage.engine(&ended(b'I'));
            stage.engine(&[done("SELECT 1"), ready(b'I')].concat());
            stage.engine(&ended(b'I'));
            stage.open();
            stage.sent();
            stage.client(&query("SELECT 2"));
            assert_eq!(stage.sent(), [stage.own(GUARD), query("SELECT 2")].concat(), "{said:?}");
        });
    }
}

/// Some drivers begin every transaction so. It writes nothing; what comes in it has the guard in
/// front, as in a transaction from before the fence.
#[test]
fn w18_a_read_write_block_is_no_write_and_what_comes_in_it_is_guarded() {
    let begins = [
        "BEGIN READ WRITE",
        "begin isolation level serializable read write",
        "START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE",
    ];
    for begin in begins {
        for form in [query, piped] {
            both(|stage| {
                stage.client(&form(begin));
                stage.engine(&[done("BEGIN"), ready(b'T')].concat());
                let lease = stage.conversation.lease.as_ref().unwrap();
                assert!(!lease.stamp().writer, "a drain would wait for it");
                stage.client(&query("ROLLBACK"));
                stage.engine(&[done("ROLLBACK"), ready(b'I')].concat());
                stage.close();
                stage.sent();
                stage.client(&form(begin));
                stage.engine(&ended(b'I'));
                // The ROLLBACK has dropped the unnamed statement.
                assert_eq!(stage.sent(), [guard(), form(begin)].concat());
                stage.engine(&[done("BEGIN"), ready(b'T')].concat());
                stage.told();
                for sql in ["SAVEPOINT a", "SELECT * FROM v", "COMMIT"] {
                    stage.client(&query(sql));
                    let sent = stage.sent();
                    assert_eq!(sent, stage.own("SET TRANSACTION READ ONLY"), "before {sql}");
                    stage.engine(&ended(b'T'));
                    assert_eq!(stage.sent(), query(sql));
                    stage.engine(&[done("SELECT 1"), ready(b'T')].concat());
                }
            });
        }
    }
}

/// Whether the last of these texts reaches the engine under a fence, by one pipeline.
fn passes_in_one_pipeline(stage: &mut Stage, texts: &[&str]) -> bool {
    let last = *texts.last().unwrap();
    let one = |sql: &&str| [parse("", sql), bind("", ""), execute()].concat();
    stage.close();
    stage.sent();
    stage.client(&[texts.iter().flat_map(one).collect::<Vec<_>>(), sync()].concat());
    stage.engine(&ended(b'I'));
    stage.sent().windows(last.len()).any(|part| part == last.as_bytes())
}

/// The guard isn't in force in it, and what a savepoint holds of it would be lost by COMMIT.
#[test]
fn w18_in_one_program_with_a_read_write_block_nothing_runs_and_no_savepoint_is_set() {
    for begin in ["BEGIN READ WRITE", "BEGIN; BEGIN READ WRITE", "BEGIN"] {
        for behind in ["SELECT * FROM v", "SAVEPOINT a", "COMMIT"] {
            let fine = begin == "BEGIN" || behind == "COMMIT";
            both(|stage| {
                let mut texts: Vec<&str> = begin.split("; ").collect();
                texts.push(behind);
                let passed = passes_in_one_pipeline(stage, &texts);
                assert_eq!(passed, fine, "VIOLATION: a pipeline of {texts:?}");
            });
            both(|stage| {
                stage.close();
                let text = query(&format!("{begin}; {behind}"));
                stage.client(&text);
                // One that is refused at once has no guard in front.
                if !stage.sent().is_empty() {
                    stage.engine(&ended(b'I'));
                }
                let sent = stage.sent();
                let passed = sent.windows(text.len()).any(|part| part == text);
                assert_eq!(passed, fine, "VIOLATION: {begin}; {behind}");
            });
        }
    }
    // By names that were prepared before.
    both(|stage| {
        for (name, sql) in [("b", "BEGIN READ WRITE"), ("s", "SAVEPOINT a")] {
            stage.client(&[parse(name, sql), sync()].concat());
            stage.engine(&[message(b'1', b""), ready(b'I')].concat());
        }
        stage.close();
        stage.sent();
        let runs = |name| [bind("", name), execute()].concat();
        stage.client(&[runs("b"), runs("s"), sync()].concat());
        stage.engine(&ended(b'I'));
        let sent = stage.sent();
        let reaches = |name| {
            let bound = bind("", name);
            sent.windows(bound.len()).any(|part| part == bound)
        };
        assert!(reaches("b") && !reaches("s"), "VIOLATION: a savepoint by its name");
    });
}

/// Where the session's default is lifted, by a reset or unseen, what begins behind an end is
/// read-write at its top. Each text, and whether it passes; so does the last of its statements in
/// one pipeline.
const BEHIND_AN_END: [(&str, bool); 8] = [
    ("RESET ALL; COMMIT; BEGIN; SAVEPOINT a", false),
    ("COMMIT; BEGIN; SAVEPOINT a", false),
    ("ROLLBACK; BEGIN; SAVEPOINT a", false),
    ("SELECT x FROM vs; COMMIT; BEGIN; SAVEPOINT a", false),
    ("BEGIN; RESET ALL; COMMIT; BEGIN; SAVEPOINT a", false),
    ("BEGIN; SAVEPOINT a", true),
    ("COMMIT; BEGIN", true),
    ("SAVEPOINT a", true),
];

/// In front of it a block that was begun under the fence, which has lifted the default, or none.
fn behind_the_fence(stage: &mut Stage, block: bool) {
    stage.close();
    if block {
        stage.client(&query("BEGIN"));
        stage.engine(&ended(b'I'));
        stage.engine(&[done("BEGIN"), ready(b'T')].concat());
        stage.client(&query("RESET ALL"));
        stage.engine(&ended(b'T'));
        stage.engine(&[done("RESET"), ready(b'T')].concat());
    }
    stage.sent();
    stage.told();
}

/// The guard of all that follows would be set in the savepoint, which COMMIT gives up first.
#[test]
fn w18_in_one_program_behind_an_end_no_savepoint_is_set() {
    for (text, fine) in BEHIND_AN_END {
        for block in [false, true] {
            let status = if block { b'T' } else { b'I' };
            both(|stage| {
                behind_the_fence(stage, block);
                stage.client(&query(text));
                // One that is refused at once has no guard in front.
                if !stage.sent().is_empty() {
                    stage.engine(&ended(status));
                }
                let passed = stage.sent().windows(text.len()).any(|part| part == text.as_bytes());
                assert_eq!(passed, fine, "VIOLATION: {text}");
            });
            // RESET ALL by name passes, so that nothing but the savepoint is refused.
            both(|stage| {
                let texts: Vec<&str> = text.split("; ").collect();
                for (number, sql) in texts.iter().enumerate() {
                    stage.client(&[parse(&format!("p{number}"), sql), sync()].concat());
                    stage.engine(&[message(b'1', b""), ready(b'I')].concat());
                }
                behind_the_fence(stage, block);
                let one = |number| [bind("", &format!("p{number}")), execute()].concat();
                stage.client(&[(0..texts.len()).flat_map(one).collect(), sync()].concat());
                stage.engine(&ended(status));
                let (last, sent) = (bind("", &format!("p{}", texts.len() - 1)), stage.sent());
                let passed = sent.windows(last.len()).any(|part| part == last);
                assert_eq!(passed, fine, "VIOLATION: a pipeline of {text}");
            });
        }
    }
}

#[test]
fn w18_a_cursor_that_the_commit_of_a_read_write_block_runs_is_refused() {
    both(|stage| {
        stage.close();
        stage.client(&query("BEGIN READ WRITE"));
        stage.engine(&ended(b'I'));
        stage.engine(&[done("BEGIN"), ready(b'T')].concat());
        stage.sent();
        stage.client(&query(HOLD));
        stage.engine(&ended(b'T'));
        let passed = stage.sent().windows(6).any(|bytes| bytes == b"FROM v");
        assert!(!passed, "VIOLATION: a cursor of a transaction that isn't read-only");
    });
}

/// A Parse holds one statement: where that isn't one about databases, no word in a long text of its
/// makes it one.
#[test]
fn w07_a_long_text_by_parse_reaches_other_databases_by_its_first_word_only() {
    for (first, passes) in [
        ("INSERT INTO doc VALUES", true),
        (";; -- alter\n /* x */ insert INTO doc VALUES", true),
        ("ALTER DATABASE other", false),
        ("/* x */ ; comment ON DATABASE other IS", false),
    ] {
        let mut stage = Stage::new(1 << 16);
        let other = stage.conversation.gates.gate(&Namespace::parse("old/other").unwrap());
        other.overlay(Overlay::Installing, InFlight::Finish);
        let long = "alter ego ".repeat(limits::STATEMENT_INSPECT_BYTES_MAX / 10 + 20_000);
        let text = format!("{first} '{long}'");
        stage.client(&[parse("", &text), sync()].concat());
        assert_eq!(stage.sent().len() > text.len(), passes, "{first}");
        let told = if passes { vec![] } else { vec!["E:ZF008", "ZI"] };
        assert_eq!(stage.told(), told, "{first}");
        // A simple query may hold such a statement further on.
        let mut stage = Stage::new(1 << 16);
        let other = stage.conversation.gates.gate(&Namespace::parse("old/other").unwrap());
        other.overlay(Overlay::Installing, InFlight::Finish);
        stage.client(&query(&text));
        assert_eq!(stage.told(), ["E:ZF008", "ZI"], "{first}");
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
        for (name, sql) in [("c", "COMMIT"), ("b", "BEGIN")] {
            stage.client(&[parse(name, sql), sync()].concat());
            stage.engine(&[message(b'1', b""), ready(b'I')].concat());
        }
        stage.close();
        stage.sent();
        let runs = |name| [bind("", name), execute()].concat();
        stage.client(&[runs("c"), runs("b"), sync()].concat());
        stage.engine(&ended(b'I'));
        stage.sent();
        let ran = |tag| [message(b'2', b""), done(tag)].concat();
        stage.engine(&[ran("COMMIT"), ran("BEGIN"), ready(b'T')].concat());
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

#[cfg(debug_assertions)]
#[test]
fn w18_control_arm_a_savepoint_in_one_program_with_a_read_write_block_is_reported() {
    let check = "wire::pg::tests::settings::\
                 w18_in_one_program_with_a_read_write_block_nothing_runs_and_no_savepoint_is_set";
    crate::base::arm::missed(check, &[("read-write-block", "")]).unwrap();
    let check = "wire::pg::tests::settings::w18_in_one_program_behind_an_end_no_savepoint_is_set";
    crate::base::arm::missed(check, &[("read-write-block", "")]).unwrap();
}
