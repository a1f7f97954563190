//! The guard that is sent behind one program for the next (W17): when it is, and when it counts.

use super::*;
use crate::wire::pg::owed::Whose;

/// A session under a fence that has read once: the guard for its next program is confirmed.
fn armed(stage: &mut Stage) {
    stage.close();
    stage.client(&query("SELECT 0"));
    assert_eq!(stage.sent(), guard());
    stage.engine(&ended(b'I'));
    assert_eq!(stage.sent(), [query("SELECT 0"), guard()].concat());
    stage.engine(&[done("SELECT 1"), ready(b'I'), done("SET"), ready(b'I')].concat());
    assert_eq!(stage.told(), ["C", "ZI"]);
    assert!(stage.conversation.guard_ready && stage.conversation.lease.is_none());
}

fn reported(value: &str) -> Vec<u8> {
    message(b'S', format!("default_transaction_read_only\0{value}\0").as_bytes())
}

fn answered() -> Vec<u8> {
    [done("SELECT 1"), ready(b'I')].concat()
}

fn piped(sql: &str) -> Vec<u8> {
    [parse("", sql), bind("", ""), execute(), sync()].concat()
}

/// What the engine says to [`piped`], and to a pipeline by name without its `1`.
fn rows(parsed: bool) -> Vec<u8> {
    let parsed = if parsed { message(b'1', b"") } else { Vec::new() };
    [parsed, message(b'2', b""), done("SELECT 1"), ready(b'I')].concat()
}

fn owed(stage: &Stage) -> Vec<Whose> {
    stage.conversation.owed.iter().map(|entry| entry.whose).collect()
}

#[test]
fn w17_the_next_program_has_its_guard_already_and_goes_at_once() {
    both(|stage| {
        armed(stage);
        for n in 0..3 {
            let sql = format!("SELECT {n}");
            stage.client(&query(&sql));
            assert_eq!(stage.sent(), [query(&sql), guard()].concat());
            assert!(!stage.conversation.awaits_ahead(), "rows wait for their client");
            stage.engine(&answered());
            assert_eq!(stage.told(), ["C", "ZI"], "the client waits for nothing");
            assert!(stage.conversation.awaits_ahead(), "and nothing waits for the client");
            assert!(stage.conversation.lease.is_some(), "something was forwarded behind it");
            stage.engine(&ended(b'I'));
            assert!(!stage.conversation.awaits_ahead());
            assert!(stage.conversation.lease.is_none(), "released with the guard's answer");
            assert!(stage.told().is_empty());
        }
        // The client's unnamed statement is spared.
        stage.client(&piped("SELECT 3"));
        assert_eq!(stage.sent(), [piped("SELECT 3"), stage.short_guard()].concat());
        stage.engine(&rows(true));
        let short = [message(b'1', b""), message(b'2', b""), done("SET"), message(b'3', b"")];
        stage.engine(&[short.concat(), ready(b'I')].concat());
        assert_eq!(stage.told(), ["1", "2", "C", "ZI"], "and none of that is the client's");
        // By name nothing is dropped that there is; the query has dropped the other, by its answer.
        stage.client(&query("SELECT 4"));
        assert_eq!(stage.sent(), [query("SELECT 4"), stage.short_guard()].concat());
        stage.engine(&[answered(), short.concat(), ready(b'I')].concat());
        stage.client(&[parse("s", "SELECT 5"), sync()].concat());
        stage.engine(&[message(b'1', b""), ready(b'I'), ended(b'I')].concat());
        stage.sent();
        let by_name = [bind("", "s"), execute(), sync()].concat();
        stage.client(&by_name);
        assert_eq!(stage.sent(), [by_name, guard()].concat());
        stage.engine(&[rows(false), ended(b'I')].concat());
        assert!(stage.conversation.guard_ready);
    });
}

/// A query that the engine can't read, or skips, leaves the client's unnamed statement; so must the
/// guard, however it is sent.
#[test]
fn w17_a_query_that_was_not_run_has_the_unnamed_statement_spared() {
    let prepares = [parse("", "SELECT 1"), sync()].concat();
    let unread = [error("22021", "invalid byte sequence"), ready(b'I')].concat();
    both(|stage| {
        armed(stage);
        stage.client(&prepares);
        stage.engine(&[message(b'1', b""), ready(b'I'), ended(b'I')].concat());
        stage.sent();
        stage.client(&query("SELECT '\u{fffd}'"));
        assert_eq!(stage.sent(), [query("SELECT '\u{fffd}'"), stage.short_guard()].concat());
        stage.engine(&[unread.clone(), ended(b'I')].concat());
        let use_it = [bind("", ""), execute(), sync()].concat();
        stage.client(&use_it);
        assert_eq!(stage.sent(), [use_it, stage.short_guard()].concat(), "the guard dropped it");
    });
    // With the gate open, or skipped behind an error that came before it.
    for skipped in [false, true] {
        both(|stage| {
            stage.client(&prepares);
            stage.engine(&[message(b'1', b""), ready(b'I')].concat());
            if skipped {
                stage.client(&bind("", "nobody"));
                stage.engine(&error("26000", "none"));
                stage.client(&[query("SELECT 2"), sync()].concat());
                stage.engine(&ready(b'I'));
            } else {
                stage.client(&query("SELECT '\u{fffd}'"));
                stage.engine(&unread);
            }
            stage.sent();
            stage.close();
            stage.client(&[bind("", ""), execute(), sync()].concat());
            assert_eq!(stage.sent(), stage.own(GUARD), "the guard drops it");
        });
    }
}

/// Whatever may have lifted the session's default ran in front of the guard that counts.
#[test]
fn w17_a_program_that_comes_too_soon_waits_for_the_guard_behind_the_one_before() {
    for soon in [0, 1] {
        both(|stage| {
            armed(stage);
            stage.client(&query("SELECT * FROM switching"));
            stage.sent();
            if soon == 1 {
                stage.engine(&answered());
            }
            stage.client(&piped("SELECT * FROM counting"));
            assert!(stage.blocked);
            if soon == 0 {
                stage.engine(&answered());
            }
            assert!(stage.sent().is_empty(), "VIOLATION: it runs behind what lifted the guard");
            stage.engine(&done("SET"));
            assert!(stage.sent().is_empty(), "not before the transaction of the SET has ended");
            stage.engine(&ready(b'I'));
            let sent = stage.sent();
            assert!(sent.starts_with(&piped("SELECT * FROM counting")), "{sent:?}");
            assert_eq!(stage.told(), ["C", "ZI"]);
        });
    }
}

#[test]
fn w17_a_guard_ahead_that_failed_counts_for_nothing_and_against_nobody() {
    both(|stage| {
        armed(stage);
        for _ in 0..3 * limits::GUARD_TRIES_MAX {
            stage.client(&query("SELECT * FROM v"));
            assert_eq!(stage.sent(), [query("SELECT * FROM v"), guard()].concat());
            stage.engine(&answered());
            stage.engine(&[error("57014", "canceled"), ready(b'I')].concat());
            assert_eq!(stage.told(), ["C", "ZI"], "it was nobody's");
            stage.client(&query("SELECT 1"));
            assert_eq!(stage.sent(), guard(), "VIOLATION: a program without a guard");
            stage.engine(&ended(b'I'));
            stage.engine(&[answered(), ended(b'I')].concat());
            stage.sent();
            stage.told();
        }
        assert!(!stage.conversation.guard_failed, "cancels that come late end no session");
    });
    // Skipped, ended otherwise than by SET, or failed behind it: not the engine's word.
    for answer in [ready(b'I'), answered(), [done("SET"), error("57014", ""), ready(b'I')].concat()]
    {
        both(|stage| {
            armed(stage);
            stage.client(&query("SELECT 1"));
            let said = [message(b'2', b""), answer.clone()].concat();
            stage.engine(&[answered(), said].concat());
            stage.sent();
            stage.client(&query("SELECT 2"));
            assert_eq!(stage.sent(), guard(), "VIOLATION: taken for confirmed: {answer:?}");
        });
    }
}

/// An error of the program's own has the engine skip nothing of what stands behind its end.
#[test]
fn w17_behind_a_program_that_failed_the_guard_is_as_good() {
    for (program, failed) in [
        (query("SELECT 1/0"), error("22012", "division by zero")),
        (piped("SELECT 1/0"), [message(b'1', b""), error("22012", "")].concat()),
        (piped("SELECT n FROM writing"), [message(b'1', b""), error("25006", "")].concat()),
    ] {
        both(|stage| {
            armed(stage);
            stage.client(&program);
            stage.sent();
            stage.engine(&[failed.clone(), ready(b'I'), done("SET"), ready(b'I')].concat());
            let told = stage.told();
            assert!(told.last().is_some_and(|last| last == "ZI"), "{told:?}");
            assert!(!told.contains(&"E:25006".to_owned()), "the guard's own refusal is typed");
            stage.client(&query("SELECT 2"));
            let spared = if program[0] == b'P' { stage.short_guard() } else { guard() };
            assert_eq!(stage.sent(), [query("SELECT 2"), spared].concat());
        });
    }
}

/// No read opens a block. If one did all the same, the SET would be a part of it, whatever the
/// guard's own answer says: on PostgreSQL 18 its Sync may have ended that block.
#[test]
fn w17_a_guard_ahead_counts_only_behind_a_program_that_left_the_session_idle() {
    for (behind, status) in [(b'T', b'T'), (b'T', b'I'), (b'E', b'I'), (b'E', b'E')] {
        both(|stage| {
            armed(stage);
            stage.client(&query("SELECT * FROM v"));
            stage.sent();
            stage.engine(&[done("SELECT 1"), ready(behind)].concat());
            stage.engine(&ended(status));
            assert!(!stage.conversation.guard_ready, "VIOLATION: set in another transaction");
            assert_eq!(stage.conversation.lease.is_none(), status == b'I');
            stage.client(&query("SELECT * FROM v"));
            let again = match status {
                b'I' => guard(),
                b'T' => stage.own("SET TRANSACTION READ ONLY"),
                _ => query("SELECT * FROM v"),
            };
            assert_eq!(stage.sent(), again);
        });
    }
}

/// Programs behind which nothing is sent unasked, each in an idle session under a fence.
fn others() -> Vec<(&'static str, Vec<u8>)> {
    let piece = |sql: &str| [parse("", sql), bind("", ""), execute()].concat();
    let texts = [
        "BEGIN",
        "START TRANSACTION READ ONLY",
        "SELECT 1; BEGIN",
        "SELECT 1; COMMIT",
        "BEGIN; SELECT 1; COMMIT",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT a",
        "SET work_mem = '1MB'",
        "SET standard_conforming_strings = off",
        "RESET default_transaction_read_only",
        "SELECT set_config('default_transaction_read_only', 'on', false)",
        "DISCARD ALL",
        "DECLARE c CURSOR FOR SELECT 1",
        "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
        "PREPARE p AS SELECT 1",
        "LISTEN a",
    ];
    let in_both = |sql: &'static str| [(sql, query(sql)), (sql, [piece(sql), sync()].concat())];
    let mut all: Vec<_> = texts.into_iter().flat_map(in_both).collect();
    let refused = [piece("SELECT 1"), piece("INSERT INTO t VALUES (1)"), sync()].concat();
    let lo_close = [&953_u32.to_be_bytes()[..], &[0; 6]].concat();
    all.extend([
        ("a query in a pipeline", [piece("SELECT 1"), query("SELECT 2")].concat()),
        ("a pipeline without its end", piece("SELECT 1")),
        ("a pipeline and a Flush", [piece("SELECT 1"), message(b'H', b"")].concat()),
        ("a refusal in a pipeline", refused),
        ("a Sync", sync()),
        ("a Close", [message(b'C', b"Ss\0"), sync()].concat()),
        ("a function call", message(b'F', &lo_close)),
    ]);
    all
}

#[test]
fn w17_no_guard_is_sent_behind_what_may_not_leave_the_session_idle() {
    for (what, program) in others() {
        both(|stage| {
            armed(stage);
            stage.client(&program);
            let sent = stage.sent();
            let guards = sent.windows(GUARD.len()).filter(|part| *part == GUARD.as_bytes());
            assert_eq!(guards.count(), 0, "VIOLATION: a SET in a transaction of {what}");
            let guards = owed(stage).iter().filter(|whose| **whose != Whose::Client).count();
            assert_eq!(guards, 0, "{what}");
        });
    }
}

/// The control arm of the test above, and what is the engine's own state or the session's.
#[test]
fn w17_what_stands_around_a_program_speaks_against_a_guard_behind_it_too() {
    let sends = |stage: &mut Stage| {
        stage.client(&query("SELECT 7"));
        let sent = stage.sent();
        assert!(sent.starts_with(&query("SELECT 7")), "{sent:?}");
        sent.len() > query("SELECT 7").len()
    };
    both(|stage| {
        armed(stage);
        assert!(sends(stage), "control arm");
    });
    both(|stage| {
        armed(stage);
        stage.conversation.mode = Mode::LogicalReplication;
        assert!(!sends(stage), "a walsender");
    });
    both(|stage| {
        armed(stage);
        stage.open();
        stage.client(&query("SELECT 6"));
        stage.sent();
        stage.engine(&[ended(b'I'), answered()].concat());
        assert!(!sends(stage), "writes are open");
    });
    both(|stage| {
        armed(stage);
        stage.client(&sync());
        stage.sent();
        assert!(!sends(stage), "the answer to a Sync is owed");
    });
    both(|stage| {
        armed(stage);
        stage.client(&query("BEGIN"));
        stage.engine(&[done("BEGIN"), ready(b'T')].concat());
        stage.sent();
        stage.client(&query("SELECT 7"));
        assert_eq!(stage.sent(), stage.own("SET TRANSACTION READ ONLY"));
        stage.engine(&ended(b'T'));
        assert_eq!(stage.sent(), query("SELECT 7"), "in a transaction");
    });
    both(|stage| {
        // Admitted before the gate was closed: it has no guard, and the drain waits for it.
        stage.client(&query("SELECT 7"));
        stage.close();
        stage.client(&sync());
        assert_eq!(stage.sent(), query("SELECT 7"));
        assert_eq!(owed(stage), [Whose::Client]);
    });
}

/// Nothing of the proxy's own goes between the halves of a message.
#[test]
fn w17_no_guard_is_sent_into_a_message() {
    let mut stage = Stage::new(usize::MAX);
    armed(&mut stage);
    let long = query(&format!("SELECT '{}'", "x".repeat(limits::STATEMENT_INSPECT_BYTES_MAX)));
    let (front, rest) = long.split_at(long.len() - 1);
    stage.client(front);
    stage.client(rest);
    let sent = stage.sent();
    assert!(sent.is_empty() || sent == long, "{} bytes", sent.len());
}

/// What hides behind a view sets it to off in the program in front of the guard: to the client that
/// is its value now, and what the guard's is must not come back to it.
#[test]
fn w17_what_a_program_changes_unseen_is_the_clients_value_behind_the_guard_too() {
    both(|stage| {
        stage.client(&query("SET default_transaction_read_only = on"));
        stage.engine(&[done("SET"), reported("on"), ready(b'I')].concat());
        stage.told();
        stage.sent();
        armed(stage);
        stage.client(&query("SELECT * FROM switching"));
        stage.engine(&[done("SELECT 1"), reported("off"), ready(b'I')].concat());
        assert_eq!(stage.told(), ["C", "S", "ZI"], "the client's to know");
        stage.engine(&[done("SET"), reported("on"), ready(b'I')].concat());
        assert!(stage.told().is_empty(), "the guard's own isn't");
        // A transaction that is rolled back has the engine report the guard's value once more.
        stage.client(&query("SELECT * FROM fails"));
        stage.engine(&[error("22012", ""), reported("on"), ready(b'I'), ended(b'I')].concat());
        assert_eq!(stage.told(), ["E:22012", "ZI"], "VIOLATION: the guard's value is told");
        stage.open();
        stage.sent();
        stage.client(&query("SELECT 1"));
        let undo = stage.own("SET default_transaction_read_only = off");
        assert_eq!(stage.sent(), [undo, query("SELECT 1")].concat());
    });
}

#[test]
fn w17_a_gate_that_opens_behind_the_guard_has_it_undone_in_front_of_the_next_program() {
    both(|stage| {
        armed(stage);
        stage.client(&query("SELECT 1"));
        stage.sent();
        stage.open();
        stage.client(&query("INSERT INTO t VALUES (1)"));
        assert!(stage.blocked && stage.sent().is_empty(), "in front of the guard's answer");
        stage.engine(&answered());
        assert!(stage.sent().is_empty());
        stage.engine(&ended(b'I'));
        let insert = query("INSERT INTO t VALUES (1)");
        assert_eq!(stage.sent(), [stage.own(UNDO), insert].concat());
        stage.engine(&[done("RESET"), ready(b'I')].concat());
        stage.engine(&ended(b'I'));
        stage.told();
        // The next fence begins anew.
        armed(stage);
    });
}

/// A read fence's order finds the program, or the guard behind it: neither keeps its lease.
#[test]
fn w13_a_guard_that_is_owed_holds_up_no_drain() {
    for ran in [false, true] {
        both(|stage| {
            armed(stage);
            stage.client(&query("SELECT pg_sleep(100)"));
            stage.sent();
            let before = Generation(stage.gate.word().generation().0 + 1);
            if ran {
                stage.engine(&answered());
            }
            let engine = &mut stage.to_engine;
            let action = stage.conversation.order_stop_reading(before, false, engine);
            assert_eq!(action, Action::Cancel);
            stage.conversation.cancel_delivered(&mut stage.to_engine);
            let canceled = [error("57014", "canceled"), ready(b'I')].concat();
            if ran {
                stage.engine(&canceled);
                assert_eq!(stage.told(), ["C", "ZI"]);
            } else {
                stage.engine(&[canceled, ended(b'I')].concat());
                assert_eq!(stage.told(), ["E:ZF003", "ZI"]);
            }
            assert!(stage.conversation.lease.is_none() && stage.conversation.forced == Forced::No);
            assert!(stage.sent().is_empty(), "there was nothing to roll back");
            assert!(!stage.conversation.must_wait());
            stage.client(&query("SELECT 1"));
            let sent = stage.sent();
            assert!(sent.starts_with(&if ran { guard() } else { query("SELECT 1") }));
        });
    }
}

#[cfg(debug_assertions)]
#[test]
fn w17_control_arm_a_guard_ahead_of_anything_is_reported() {
    let check = "wire::pg::tests::ahead::\
                 w17_no_guard_is_sent_behind_what_may_not_leave_the_session_idle";
    crate::base::arm::missed(check, &[("calm-ahead", "a SET in a transaction")]).unwrap();
}

#[cfg(debug_assertions)]
#[test]
fn w17_control_arm_a_guard_ahead_taken_by_its_word_alone_is_reported() {
    let check = "wire::pg::tests::ahead::\
                 w17_a_guard_ahead_counts_only_behind_a_program_that_left_the_session_idle";
    crate::base::arm::missed(check, &[("guard-status", "set in another transaction")]).unwrap();
}
