//! The read-only guard (W15, W17), byte for byte.

use super::*;

/// Neither the guard nor a savepoint can be had inside an XA transaction.
#[test]
fn w17_an_older_xa_transaction_may_only_end() {
    each(|stage| {
        stage.run(&query("xa start 'x'"), &ok(OPEN));
        stage.run(&query("select * from t"), &rows(b"1", OPEN));
        stage.close();
        stage.client(&query("select * from t"));
        assert!(stage.sent().is_empty());
        assert_eq!(stage.told(), (9708, 1));
        stage.run(&query("xa end 'x'"), &ok(OPEN));
        for other in ["xa prepare 'x'", "xa commit 'x'; xa commit 'y'", "begin"] {
            stage.client(&query(other));
            assert!(stage.sent().is_empty(), "{other}");
            assert!(matches!(stage.told().0, 9701 | 9708));
        }
        stage.run(&query("xa commit 'x' one phase"), &ok(IDLE));
        assert!(!stage.holds());
    });
}

#[test]
fn w17_the_guard_goes_first_is_confirmed_and_undone() {
    each(|stage| {
        stage.close();
        stage.client(&query("select * from t"));
        stage.guarded(true);
        stage.reads_ahead(&query("select * from t"), &rows(b"1", IDLE));
        stage.client(&query("select sleep(1)"));
        assert_eq!(stage.sent(), query("select sleep(1)"));
        stage.engine(&rows(b"1", IDLE));
        stage.said();
        assert!(!stage.holds());
        stage.client(&query("select * from t"));
        stage.guarded(false);
        stage.reads_ahead(&query("select * from t"), &rows(b"1", IDLE));
        stage.open();
        stage.client(&prepare("insert into t values (1)"));
        assert_eq!(stage.sent(), query(UNDO));
        stage.engine(&ok(IDLE));
        assert!(stage.said().is_empty());
        assert_eq!(stage.sent(), prepare("insert into t values (1)"));
        stage.engine(&prepared(1));
        stage.said();
        stage.run(&query("insert into t values (2)"), &ok(IDLE));
    });
}

#[test]
fn w17_a_guard_that_fails_is_tried_again_and_nothing_runs_behind_it() {
    each(|stage| {
        stage.close();
        stage.client(&query("select * from t"));
        assert_eq!(stage.sent(), query(ASK));
        stage.engine(&rows(b"0", IDLE));
        for _ in 0..2 {
            assert_eq!(stage.sent(), query(GUARD));
            stage.engine(&err(1, 1317, "interrupted"));
            assert_eq!(stage.sent(), ping());
            stage.engine(&ok(IDLE));
        }
        stage.guarded(false);
        assert_eq!(stage.sent(), armed(&query("select * from t")));
        assert!(!stage.conversation.guard.failed);
        stage.engine(&rows(b"1", IDLE));
        stage.engine(&err(1, 1317, "interrupted"));
        assert_eq!(stage.sent(), ping());
        stage.engine(&ok(IDLE));
        assert_eq!(stage.said(), rows(b"1", IDLE));
        stage.client(&query("select * from t"));
        for _ in 0..5 {
            stage.sent();
            stage.engine(&err(1, 1317, "interrupted"));
            if !stage.conversation.guard.failed {
                assert_eq!(stage.sent(), ping());
                stage.engine(&ok(IDLE));
            }
        }
        assert!(stage.conversation.guard.failed, "the session ends");
        assert!(stage.said().is_empty());
    });
}

#[test]
fn w17_a_session_that_is_read_only_by_itself_stays_so() {
    each(|stage| {
        stage.close();
        stage.client(&query("select 1"));
        assert_eq!(stage.sent(), query(ASK));
        stage.engine(&rows(b"1", IDLE));
        stage.guarded(false);
        stage.sent();
        stage.engine(&rows(b"1", IDLE));
        stage.said();
        stage.open();
        stage.run(&query("insert into t values (1)"), &err(1, 1792, "read only"));
    });
}

#[test]
fn w17_a_transaction_begun_under_the_guard_needs_no_other() {
    each(|stage| {
        stage.close();
        stage.client(&query("begin"));
        stage.guarded(true);
        assert_eq!(stage.sent(), query("begin"));
        stage.engine(&ok(OPEN_READ_ONLY));
        stage.said();
        stage.run(&query("select 1"), &rows(b"1", OPEN_READ_ONLY));
        stage.open();
        stage.client(&query("insert into t values (1)"));
        assert_eq!(stage.told(), (9702, 1));
        stage.run(&query("commit"), &ok(IDLE));
        stage.client(&query("insert into t values (1)"));
        assert_eq!(stage.sent(), query(UNDO));
    });
}

/// The setting counts from the next transaction only: what a hidden function writes in an older one
/// is taken back at once, and the transaction's own end stays its own.
#[test]
fn w17_reads_of_an_older_transaction_leave_nothing_behind() {
    each(|stage| {
        stage.run(&query("begin"), &ok(OPEN));
        stage.run(&query("select 1"), &rows(b"1", OPEN));
        stage.close();
        for _ in 0..2 {
            stage.client(&query("select * from v"));
            let sent = String::from_utf8_lossy(&stage.sent()[5..]).into_owned();
            let name = sent.strip_prefix("SAVEPOINT ").unwrap().to_owned();
            stage.engine(&ok(OPEN));
            assert_eq!(stage.sent(), query("select * from v"));
            stage.engine(&rows(b"1", OPEN));
            assert_eq!(stage.said(), rows(b"1", OPEN));
            assert_eq!(stage.sent(), query(&format!("ROLLBACK TO SAVEPOINT {name}")));
            stage.engine(&ok(OPEN));
            assert!(stage.said().is_empty());
        }
        // Several statements in one text, of which one could commit: not without a guard.
        stage.client(&query("select * from v; commit"));
        assert_eq!(stage.told(), (9708, 1));
        stage.run(&query("commit"), &ok(IDLE));
        assert!(!stage.holds());
    });
}

#[test]
fn w17_what_would_begin_another_transaction_gets_the_guard_first() {
    each(|stage| {
        stage.run(&query("begin"), &ok(OPEN));
        stage.close();
        stage.client(&query("begin"));
        assert_eq!(stage.sent(), query(COMMIT));
        stage.engine(&ok(IDLE));
        stage.guarded(true);
        assert_eq!(stage.sent(), query("begin"));
        stage.engine(&ok(OPEN_READ_ONLY));
        assert_eq!(stage.said(), ok(OPEN_READ_ONLY));
    });
}

#[test]
fn w17_several_statements_could_lift_the_guard_for_each_other() {
    each(|stage| {
        stage.close();
        stage.client(&query("select * from v; select * from w"));
        assert!(stage.sent().is_empty());
        assert_eq!(stage.told(), (9708, 1));
        assert!(!stage.holds());
    });
}

#[test]
fn w15_the_guards_refusal_is_the_fences_and_others_stay() {
    each(|stage| {
        // Not guarded: untouched.
        stage.run(&query("insert into t values (1)"), &err(1, 1792, "Cannot execute"));
        stage.run(&ping(), &ok(IDLE));
        stage.close();
        for (code, text, told) in [
            (1792, "Cannot execute statement in a READ ONLY transaction.", 9701),
            (1290, "running with the --read-only option so it cannot", 9701),
            (1290, "running with the --secure-file-priv option", 1290),
            (1064, "You have an error", 1064),
        ] {
            stage.client(&query("select * from v"));
            if stage.to_engine[..] == query(ASK) {
                stage.guarded(true);
            }
            assert_eq!(stage.sent(), armed(&query("select * from v")));
            stage.engine(&err(1, code, text));
            assert_eq!(stage.told(), (told, 1), "{code} {text}");
            assert!(stage.sent().is_empty(), "the guard's answer tells where the session stands");
            stage.engine(&ok(IDLE));
            assert!(!stage.holds());
        }
    });
}

/// Whatever an engine answers, nothing goes on for ever.
#[test]
fn w17_an_engine_that_never_leaves_its_transaction_ends_the_session() {
    each(|stage| {
        stage.run(&query("begin"), &ok(OPEN));
        stage.close();
        stage.client(&query("begin"));
        let mut rounds = 0;
        while !stage.conversation.guard.failed {
            assert_eq!(stage.sent(), query(COMMIT));
            rounds += 1;
            assert!(rounds < 100, "it goes on for ever");
            stage.engine(&ok(OPEN));
        }
        assert!(stage.said().is_empty());
        // Many programs, each of which waits a little, are no such thing.
        let mut stage = Stage::new(1 << 25);
        stage.close();
        for first in (0..100).map(|at| at == 0) {
            stage.client(&query("select sleep(1)"));
            stage.guarded(first);
            assert_eq!(stage.sent(), query("select sleep(1)"));
            stage.engine(&rows(b"1", IDLE));
            stage.said();
        }
        assert!(!stage.conversation.guard.failed);
    });
}

/// A session in an older transaction that has read a view under the fence, up to the rollback to
/// the savepoint that hasn't been answered.
fn wrapped(stage: &mut Stage) -> Vec<u8> {
    stage.run(&query("begin"), &ok(OPEN));
    stage.close();
    stage.client(&query("select * from v"));
    stage.sent();
    stage.engine(&ok(OPEN));
    assert_eq!(stage.sent(), query("select * from v"));
    stage.engine(&rows(b"1", OPEN));
    assert_eq!(stage.said(), rows(b"1", OPEN));
    let back = stage.sent();
    assert!(back[5..].starts_with(b"ROLLBACK TO SAVEPOINT "), "{back:?}");
    back
}

#[test]
fn w17_a_savepoint_that_is_not_rolled_back_to_lets_nothing_pass() {
    each(|stage| {
        let back = wrapped(stage);
        stage.client(&query("commit"));
        assert!(stage.sent().is_empty(), "it waits");
        for _ in 0..2 {
            stage.engine(&err(1, 1317, "interrupted"));
            assert_eq!(stage.sent(), ping());
            stage.engine(&ok(OPEN));
            assert_eq!(stage.sent(), back, "once more");
        }
        stage.engine(&ok(OPEN));
        assert_eq!(stage.sent(), query("commit"), "its own end stays its own");
        stage.engine(&ok(IDLE));
        assert_eq!(stage.said(), ok(IDLE));
        assert!(!stage.holds());
    });
}

#[test]
fn w17_a_savepoint_that_is_lost_takes_the_transaction_with_it() {
    each(|stage| {
        let back = wrapped(stage);
        stage.client(&query("commit"));
        for round in 0..3 {
            assert_eq!(stage.sent(), if round == 0 { vec![] } else { back.clone() });
            stage.engine(&err(1, 1317, "interrupted"));
            assert_eq!(stage.sent(), ping());
            stage.engine(&ok(OPEN));
        }
        assert_eq!(stage.sent(), query(ROLLBACK));
        stage.engine(&ok(IDLE));
        assert!(stage.sent().is_empty(), "nothing is committed");
        assert_eq!(stage.told(), (9709, 1));
        assert!(!stage.holds() && !stage.conversation.guard.failed);
        // The engine has rolled back by itself, and told nobody but the proxy.
        stage.open();
        wrapped(stage);
        stage.engine(&err(1, 1305, "SAVEPOINT does not exist"));
        assert_eq!(stage.sent(), ping());
        stage.engine(&ok(IDLE));
        stage.client(&query("commit"));
        assert!(stage.sent().is_empty());
        assert_eq!(stage.told(), (9709, 1));
    });
}

#[test]
fn w17_a_transaction_that_can_not_be_ended_ends_its_session() {
    each(|stage| {
        wrapped(stage);
        stage.client(&query("commit"));
        for _ in 0..10 {
            if stage.conversation.guard.failed {
                break;
            }
            stage.engine(&err(1, 1317, "interrupted"));
            assert!(!stage.sent().windows(6).any(|word| word == b"commit"));
            if !stage.conversation.guard.failed {
                stage.engine(&ok(OPEN));
                stage.sent();
            }
        }
        assert!(stage.conversation.guard.failed, "the session ends, and its transaction with it");
        assert!(stage.said().is_empty());
    });
}

/// A kill that was meant for the read may hit what is behind it.
#[test]
fn w13_a_forced_rollback_takes_what_a_read_left_behind_with_it() {
    each(|stage| {
        wrapped(stage);
        assert_eq!(stage.conversation.order_stop(), Action::Cancel);
        stage.engine(&err(1, 1317, "interrupted"));
        assert_eq!(stage.sent(), ping());
        stage.engine(&ok(OPEN));
        assert!(stage.sent().is_empty(), "the kill may still be on its way");
        stage.conversation.cancel_delivered(&mut stage.to_engine);
        let back = stage.sent();
        assert!(back[5..].starts_with(b"ROLLBACK TO SAVEPOINT "), "{back:?}");
        stage.engine(&ok(OPEN));
        stage.run(&query("commit"), &ok(IDLE));
    });
}

/// A deadlock that the client has been told of is no news.
#[test]
fn w17_a_read_that_ended_its_transaction_leaves_nothing_to_take_back() {
    each(|stage| {
        stage.run(&query("begin"), &ok(OPEN));
        stage.close();
        stage.client(&query("select * from v"));
        stage.sent();
        stage.engine(&ok(OPEN));
        stage.sent();
        stage.engine(&err(1, 1213, "Deadlock"));
        assert_eq!(stage.said(), err(1, 1213, "Deadlock"));
        assert_eq!(stage.sent(), ping());
        stage.engine(&ok(IDLE));
        stage.client(&query("commit"));
        stage.guarded(true);
        assert_eq!(stage.sent(), query("commit"));
    });
}

#[test]
fn w17_a_commit_in_front_that_fails_is_not_taken_for_one() {
    each(|stage| {
        stage.run(&query("begin"), &ok(OPEN));
        stage.close();
        stage.client(&query("begin"));
        assert_eq!(stage.sent(), query(COMMIT));
        stage.engine(&err(1, 1317, "interrupted"));
        assert_eq!(stage.sent(), ping());
        stage.engine(&ok(OPEN));
        assert_eq!(stage.sent(), query(COMMIT), "once more");
        stage.engine(&err(1, 1213, "Deadlock"));
        assert_eq!(stage.sent(), ping());
        stage.engine(&ok(IDLE));
        assert!(stage.sent().is_empty());
        assert_eq!(stage.told(), (9709, 1), "the client meant to commit");
    });
}

/// A dump's snapshot goes on across what ends no transaction.
#[test]
fn w17_unlock_tables_and_autocommit_are_the_clients_own() {
    each(|stage| {
        for status in [OPEN, OPEN_READ_ONLY] {
            stage.run(&query("begin"), &ok(status));
            stage.close();
            for sql in ["unlock tables", "set autocommit = 0", "set autocommit = 1"] {
                stage.run(&query(sql), &ok(status));
            }
            stage.run(&query("commit"), &ok(IDLE));
            stage.open();
        }
        // One whose value reads tables has what guards a read.
        stage.run(&query("begin"), &ok(OPEN));
        stage.close();
        stage.client(&query("set autocommit = (select n from v)"));
        assert_eq!(stage.sent(), query(COMMIT));
    });
}

#[test]
fn w17_begin_in_an_older_xa_transaction_gets_a_typed_error() {
    each(|stage| {
        stage.run(&query("xa start 'x'"), &ok(OPEN));
        stage.close();
        stage.client(&query("begin"));
        assert!(stage.sent().is_empty());
        assert_eq!(stage.told(), (9708, 1));
        assert!(!stage.conversation.guard.failed);
        stage.run(&query("xa end 'x'"), &ok(OPEN));
    });
}

/// What the proxy says while the engine answers something of its own is the answer to the client's
/// next command.
#[test]
fn the_number_of_an_answer_counts_from_the_clients_own_command() {
    each(|stage| {
        stage.client(&query("select 1"));
        stage.sent();
        stage.engine(&rows(b"1", IDLE));
        stage.close();
        stage.client(&query("select 1"));
        for answer in [rows(b"0", IDLE), ok(IDLE)] {
            assert_eq!(stage.conversation.next_sequence(), 1);
            stage.engine(&answer);
        }
        stage.engine(&packet(1, &[1]));
        assert_eq!(stage.conversation.next_sequence(), 2);
    });
}

/// While the guard is on the engine would tell the guard's setting for the client's.
#[test]
fn w17_a_setting_that_fails_under_the_guard_is_not_taken_for_the_clients() {
    let set = "set session transaction read only";
    for (text, answer, stays) in [
        ("set session transaction read only foo", err(1, 1064, "syntax"), false),
        (set, err(1, 1317, "interrupted"), false),
        (set, ok(IDLE), true),
    ] {
        let mut stage = Stage::new(1 << 25);
        stage.close();
        stage.client(&query("select * from t"));
        stage.guarded(true);
        stage.reads_ahead(&query("select * from t"), &rows(b"1", IDLE));
        stage.client(&query(text));
        assert_eq!(stage.sent(), query(text));
        stage.engine(&answer);
        if answer != ok(IDLE) {
            assert_eq!(stage.sent(), ping(), "{text}");
            stage.engine(&ok(IDLE));
        }
        stage.said();
        stage.open();
        let write = query("insert into t values (1)");
        stage.client(&write);
        if stays {
            assert_eq!(stage.sent(), write, "the client's own setting");
        } else {
            assert_eq!(stage.sent(), query(UNDO), "{text}");
        }
    }
}

/// With autocommit off a guarded read begins a transaction, and a write that an open schema's gate
/// lets through is refused in it by the engine.
#[test]
fn w15_in_a_transaction_that_the_guard_made_read_only_its_refusal_is_the_fences() {
    let mut stage = Stage::new(1 << 25);
    let other = stage.other("old/b");
    other.overlay(Overlay::Installing, InFlight::Finish);
    stage.client(&query("select * from b.t"));
    stage.guarded(true);
    stage.sent();
    stage.engine(&rows(b"1", OPEN_READ_ONLY));
    stage.said();
    let write = query("insert into t values (1)");
    stage.client(&write);
    assert_eq!(stage.sent(), write);
    stage.engine(&err(1, 1792, "Cannot execute statement in a READ ONLY transaction."));
    assert_eq!(stage.told(), (9701, 1));
    assert_eq!(stage.sent(), ping());
    stage.engine(&ok(OPEN_READ_ONLY));
    stage.client(&query("rollback"));
    stage.sent();
    stage.engine(&ok(IDLE));
    stage.said();
    // Behind it 1792 is the client's own again.
    stage.client(&query("insert into t values (1)"));
    assert_eq!(stage.sent(), query(UNDO));
    stage.engine(&ok(IDLE));
    stage.sent();
    stage.engine(&err(1, 1792, "Cannot execute statement in a READ ONLY transaction."));
    assert_eq!(stage.told(), (1792, 1));
}

/// MariaDB runs deterministic functions while it prepares a text or lists a table's fields.
#[test]
fn w17_what_prepares_or_describes_is_guarded_like_a_read() {
    let fields = command(4, b"v\0");
    let described = packet(1, &[0xfe, 0, 0, 2, 0]);
    each(|stage| {
        stage.close();
        stage.client(&prepare("select * from v"));
        stage.guarded(true);
        stage.reads_ahead(&prepare("select * from v"), &prepared(1));
        stage.client(&fields);
        assert_eq!(stage.sent(), fields);
        stage.engine(&described);
        stage.said();
        stage.client(&query("prepare s from 'select * from v'"));
        stage.guarded(false);
        assert_eq!(stage.sent(), query("prepare s from 'select * from v'"));
        stage.engine(&ok(IDLE));
        stage.said();
        stage.client(&query("prepare s from 'select 1'; prepare t from 'select 1'"));
        assert_eq!(stage.told(), (9708, 1), "one could lift the guard for the other");
    });
    let in_sql = query("prepare s from 'select * from v'");
    let answers = [
        (prepare("select * from v"), prepared(1)),
        (fields.clone(), described.clone()),
        (in_sql, ok(OPEN)),
    ];
    for (program, answer) in answers {
        let mut stage = Stage::new(1 << 25);
        stage.run(&query("begin"), &ok(OPEN));
        stage.close();
        stage.client(&program);
        assert!(stage.sent()[5..].starts_with(b"SAVEPOINT "));
        stage.engine(&ok(OPEN));
        assert_eq!(stage.sent(), program);
        let status = packet(1, &[0xfe, 0, 0, 3, 0]);
        stage.engine(if answer == described { &status } else { &answer });
        assert!(stage.sent()[5..].starts_with(b"ROLLBACK TO SAVEPOINT "));
    }
}

/// At each gate that it reaches, and not only at home.
#[test]
fn w17_a_text_to_prepare_is_judged_at_the_gates_it_names() {
    let function = "select round(1.55, d.qf())";
    each(|stage| {
        let other = stage.other("old/d");
        other.overlay(Overlay::Installing, InFlight::Finish);
        for program in [
            prepare(function),
            query(&format!("prepare s from '{function}'")),
            query("prepare s from @a"),
        ] {
            stage.client(&program);
            assert_eq!(stage.told(), (9708, 1));
            assert!(stage.sent().is_empty() && !stage.holds());
        }
        stage.client(&query("prepare s from 'select * from d.qv'"));
        stage.guarded(true);
        stage.sent();
        stage.engine(&ok(IDLE));
        stage.said();
        stage.client(&prepare("select * from d.qv"));
        stage.guarded(false);
        stage.sent();
        stage.engine(&prepared(1));
        stage.said();
        // What reaches no closed gate is nobody's business; the setting is undone in front of it.
        stage.client(&prepare("select round(1.55, qf())"));
        assert_eq!(stage.sent(), query(UNDO));
        stage.engine(&ok(IDLE));
        assert_eq!(stage.sent(), prepare("select round(1.55, qf())"));
    });
}

/// What a routine left in the status behind a PREPARE isn't taken for the session's mode.
#[test]
fn w05_a_routine_may_run_where_a_text_is_prepared() {
    let stale = IDLE | 0x200;
    let fields = packet(1, &[0xfe, 0, 0, 2, 2]);
    for (program, answer) in
        [(query("prepare s from 'select * from v'"), ok(stale)), (command(4, b"v\0"), fields)]
    {
        let mut stage = Stage::new(1 << 25);
        stage.run(&query("set sql_mode = @a"), &err(1, 1317, "interrupted"));
        stage.run(&program, &answer);
        let escapes = stage.conversation.lexing().no_backslash_escapes;
        assert_eq!(escapes, crate::sql::Toggle::Unknown);
    }
}

/// A session without autocommit that has read another, fenced schema: the guard's transaction is
/// open, and then the fence is gone.
fn began_under(stage: &mut Stage) -> Arc<Gate> {
    let other = stage.other("old/b");
    other.overlay(Overlay::Installing, InFlight::Finish);
    stage.client(&query("select * from b.t"));
    stage.guarded(true);
    assert_eq!(stage.sent(), query("select * from b.t"));
    stage.engine(&rows(b"1", OPEN_READ_ONLY));
    stage.said();
    other
}

fn opens(gate: &Gate) {
    let loaded = LoadedFence::of_an_empty_store(gate.namespace().clone());
    gate.apply(Authority::Loaded(&loaded), InFlight::Finish);
}

/// What begins a transaction in the place of the guard's is no longer the guard's.
#[test]
fn w15_a_transaction_behind_the_guards_own_is_the_clients() {
    for (begin, status) in
        [("start transaction read only", OPEN_READ_ONLY), ("start transaction", OPEN)]
    {
        each(|stage| {
            let other = began_under(stage);
            opens(&other);
            stage.client(&query(begin));
            assert_eq!(stage.sent(), query(COMMIT));
            stage.engine(&ok(IDLE));
            assert_eq!(stage.sent(), query(UNDO));
            stage.engine(&ok(IDLE));
            assert_eq!(stage.sent(), query(begin));
            stage.engine(&ok(status));
            stage.said();
            let own = err(1, 1792, "Cannot execute statement in a READ ONLY transaction.");
            stage.run(&query("insert into t values (1)"), &own);
        });
    }
}

/// Where the engine has ended the guard's transaction, and told nobody but the proxy.
#[test]
fn w15_no_refusal_is_the_guards_behind_its_transactions_end() {
    each(|stage| {
        let other = began_under(stage);
        stage.client(&query("select * from b.t"));
        assert_eq!(stage.sent(), query("select * from b.t"));
        stage.engine(&err(1, 1213, "Deadlock"));
        stage.said();
        assert_eq!(stage.sent(), ping());
        stage.engine(&ok(IDLE));
        opens(&other);
        stage.client(&query("insert into t values (1)"));
        assert_eq!(stage.sent(), query(UNDO));
        stage.engine(&ok(IDLE));
        assert_eq!(stage.sent(), query("insert into t values (1)"));
        let own = err(1, 1792, "Cannot execute statement in a READ ONLY transaction.");
        stage.engine(&own);
        assert_eq!(stage.said(), own);
    });
}

/// What the client may still roll back is never committed by the proxy's own COMMIT.
#[test]
fn a_transaction_that_has_written_is_not_committed_for_the_guard() {
    each(|stage| {
        let other = stage.other("old/b");
        stage.run(&query("begin"), &ok(OPEN));
        stage.run(&query("insert into t values (1)"), &ok(OPEN));
        other.overlay(Overlay::Installing, InFlight::Finish);
        for sql in ["lock tables b.t read foo", "set autocommit = 1, @a = (select n from b.t)"] {
            stage.client(&query(sql));
            assert_eq!((stage.told().0, stage.sent()), (9708, vec![]), "{sql}");
        }
        stage.run(&query("rollback"), &ok(IDLE));
        assert!(!stage.holds());
    });
}
