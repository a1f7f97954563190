//! A drain that orders a rollback, and statements that are stopped (W12, W13).

use super::*;

fn idle_writer(stage: &mut Stage) {
    stage.client(&query("BEGIN"));
    stage.engine(&ended(b'T'));
    stage.client(&query("INSERT INTO t VALUES (1)"));
    stage.engine(&ended(b'T'));
    stage.close();
    stage.sent();
    stage.told();
    let before = stage.gate.word().generation();
    let action = stage.conversation.order_roll_back(before, false, &mut stage.to_engine);
    assert_eq!(action, Action::None);
    assert_eq!(stage.sent(), query("ROLLBACK"));
    let mut answer = done("ROLLBACK");
    answer.extend(ready(b'I'));
    stage.engine(&answer);
    assert!(stage.told().is_empty(), "the client hears at its next program");
    assert!(stage.conversation.lease.is_none(), "released by answer");
    assert_eq!(stage.conversation.forced, Forced::RolledBack { told: false });
}

#[test]
fn w12_commit_after_a_forced_rollback_never_looks_like_success() {
    both(|stage| {
        idle_writer(stage);
        stage.client(&query("COMMIT"));
        assert_eq!(stage.told(), ["E:ZF009", "ZI"]);
        assert!(stage.sent().is_empty());
        idle_writer_again(stage);
    });
    both(|stage| {
        idle_writer(stage);
        let mut batch = parse("", "COMMIT");
        batch.extend(bind("", ""));
        batch.extend(execute());
        batch.extend(sync());
        stage.client(&batch);
        assert_eq!(stage.told(), ["E:ZF009", "ZI"]);
        assert!(stage.sent().is_empty());
    });
}

fn idle_writer_again(stage: &mut Stage) {
    stage.open();
    stage.client(&query("SELECT 1"));
    assert_eq!(stage.sent(), query("SELECT 1"), "afterwards all is as usual");
}

#[test]
fn w12_the_next_statement_finds_a_failed_transaction_of_the_engines_own() {
    both(|stage| {
        idle_writer(stage);
        stage.client(&query("UPDATE t SET a = 2"));
        let sent = stage.sent();
        assert!(sent.starts_with(&query("BEGIN")));
        let mut answer = done("BEGIN");
        answer.extend(ready(b'T'));
        answer.extend(Stage::stand_in_error(&sent));
        answer.extend(ready(b'E'));
        stage.engine(&answer);
        assert_eq!(stage.told(), ["E:ZF009", "ZE"]);
    });
}

#[test]
fn w12_rollback_passes() {
    both(|stage| {
        idle_writer(stage);
        stage.client(&query("ROLLBACK"));
        let guard = stage.own("SET TRANSACTION READ ONLY");
        assert_eq!(stage.sent(), query("BEGIN"));
        let mut answer = done("BEGIN");
        answer.extend(ready(b'T'));
        stage.engine(&answer);
        assert_eq!(stage.sent(), guard, "in a transaction, and under the guard");
        stage.engine(&ended(b'T'));
        assert_eq!(stage.sent(), query("ROLLBACK"));
        let mut answer = done("ROLLBACK");
        answer.extend(ready(b'I'));
        stage.engine(&answer);
        assert_eq!(stage.told(), ["C", "ZI"]);
    });
}

#[test]
fn w13_a_running_statement_is_cancelled_told_and_rolled_back() {
    both(|stage| {
        stage.client(&query("BEGIN"));
        stage.engine(&ended(b'T'));
        stage.client(&query("UPDATE t SET a = 1"));
        stage.close();
        stage.sent();
        stage.told();
        let before = stage.gate.word().generation();
        let action = stage.conversation.order_roll_back(before, false, &mut stage.to_engine);
        assert_eq!(action, Action::Cancel);
        let mut answer = error("57014", "canceling statement due to user request");
        answer.extend(ready(b'E'));
        stage.engine(&answer);
        assert_eq!(stage.told(), ["E:ZF009", "ZE"]);
        assert!(stage.conversation.lease.is_some(), "a failed block may have savepoints");
        stage.conversation.cancel_delivered(&mut stage.to_engine);
        assert_eq!(stage.sent(), query("ROLLBACK"));
        let mut answer = done("ROLLBACK");
        answer.extend(ready(b'I'));
        stage.engine(&answer);
        assert!(stage.conversation.lease.is_none());
        stage.client(&sync());
        assert_eq!(stage.told(), ["ZE"], "the client goes on believing what it was told");
    });
}

#[test]
fn w13_an_order_concerns_older_writers_only() {
    both(|stage| {
        stage.client(&query("BEGIN"));
        stage.engine(&ended(b'T'));
        stage.close();
        let before = stage.gate.word().generation();
        let action = stage.conversation.order_roll_back(before, false, &mut stage.to_engine);
        assert_eq!(action, Action::None);
        assert_eq!(stage.conversation.forced, Forced::No, "a reader is left alone");
    });
}

#[test]
fn a_stop_that_met_no_statement_is_sent_again() {
    both(|stage| {
        stage.close();
        stage.client(&query("SELECT 1"));
        assert_eq!(stage.conversation.order_stop(), Action::Cancel);
        assert_eq!(stage.conversation.order_stop(), Action::None, "one is on its way");
        stage.conversation.cancel_delivered(&mut stage.to_engine);
        // The engine had nothing to cancel at that moment, and the statement still waits.
        assert_eq!(stage.conversation.order_stop(), Action::Cancel);
    });
}

#[test]
fn a_stop_on_its_way_does_not_meet_the_next_program() {
    both(|stage| {
        stage.close();
        stage.client(&query("SELECT 1"));
        stage.engine(&ended(b'I'));
        assert_eq!(stage.conversation.order_stop(), Action::Cancel);
        stage.engine(&[ended(b'I'), ended(b'I')].concat());
        stage.sent();
        stage.client(&query("SELECT 2"));
        assert!(stage.blocked, "the next program waits for the cancel");
        assert_eq!(stage.sent(), b"");
        stage.conversation.cancel_delivered(&mut stage.to_engine);
        assert!(!stage.conversation.must_wait());
    });
}

#[test]
fn control_arm_a_cancelled_statement_without_an_order_keeps_its_own_error() {
    both(|stage| {
        stage.client(&query("UPDATE t SET a = 1"));
        let mut answer = error("57014", "canceling statement due to user request");
        answer.extend(ready(b'I'));
        stage.engine(&answer);
        assert_eq!(stage.told(), ["E:57014", "ZI"]);
    });
}

/// A client's goodbye.
fn goodbye() -> Vec<u8> {
    message(b'X', b"")
}

#[test]
fn a_client_that_leaves_an_open_transaction_behind_a_fence_is_rolled_back_in_front_of_it() {
    for status in [b'T', b'E'] {
        both(|stage| {
            stage.client(&query("BEGIN"));
            stage.engine(&ended(b'T'));
            stage.client(&query("INSERT INTO t VALUES (1)"));
            stage.engine(&ended(status));
            stage.close();
            stage.sent();
            stage.told();
            stage.client(&goodbye());
            assert_eq!(stage.sent(), [query("ROLLBACK"), goodbye()].concat());
            assert!(stage.conversation.lease.is_some(), "that it was sent releases nothing");
            stage.engine(&[done("ROLLBACK"), ready(b'I')].concat());
            assert!(stage.conversation.lease.is_none(), "released by answer");
            assert!(stage.told().is_empty());
        });
    }
}

#[test]
fn control_arm_every_other_goodbye_goes_as_it_came() {
    let inside: fn(&mut Stage) = |stage| {
        stage.client(&query("BEGIN"));
        stage.engine(&ended(b'T'));
    };
    let runs: fn(&mut Stage) = |stage| {
        stage.client(&query("INSERT INTO t VALUES (1)"));
        stage.close();
    };
    let half: fn(&mut Stage) = |stage| {
        stage.client(&query("BEGIN"));
        stage.engine(&ended(b'T'));
        stage.client(&parse("", "INSERT INTO t VALUES (1)"));
        stage.close();
    };
    let over: fn(&mut Stage) = |stage| {
        stage.client(&query("BEGIN"));
        stage.engine(&ended(b'I'));
        stage.close();
    };
    for (what, before) in [("open", inside), ("runs", runs), ("half", half), ("over", over)] {
        both(|stage| {
            before(stage);
            stage.sent();
            stage.client(&goodbye());
            assert_eq!(stage.sent(), goodbye(), "{what}");
        });
    }
}

#[test]
fn w12_a_rollback_that_is_ordered_while_a_stop_is_under_way_follows_it() {
    for delivered in [false, true] {
        both(|stage| {
            stage.client(&query("BEGIN"));
            stage.engine(&ended(b'T'));
            stage.client(&query("SELECT * FROM v"));
            stage.close();
            stage.sent();
            assert_eq!(stage.conversation.order_stop(), Action::Cancel);
            if delivered {
                stage.conversation.cancel_delivered(&mut stage.to_engine);
            }
            let before = stage.gate.word().generation();
            let action = stage.conversation.order_roll_back(before, false, &mut stage.to_engine);
            assert_eq!(action, if delivered { Action::Cancel } else { Action::None });
            stage.conversation.cancel_delivered(&mut stage.to_engine);
            stage.told();
            stage.engine(&[error("57014", "canceled"), ready(b'E')].concat());
            assert_eq!(stage.told(), ["E:ZF009", "ZE"]);
            assert_eq!(stage.sent(), query("ROLLBACK"));
        });
    }
}
