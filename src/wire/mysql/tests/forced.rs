//! Rollbacks and kills by force (W12, W13), byte for byte.

use super::*;

#[test]
fn w12_an_idle_transaction_is_rolled_back_and_the_client_told() {
    for (next, told) in [
        ("select 1", true),
        ("commit", true),
        ("insert into t values (1)", true),
        ("rollback", false),
    ] {
        let mut stage = Stage::new(1 << 25);
        stage.run(&query("begin"), &ok(OPEN));
        stage.run(&query("insert into t values (1)"), &ok(OPEN));
        stage.close();
        let before = stage.gate.word().generation();
        let action = stage.conversation.order_roll_back(before, false, &mut stage.to_engine);
        assert_eq!(action, Action::None);
        assert_eq!(stage.sent(), query(ROLLBACK));
        stage.engine(&ok(IDLE));
        assert!(stage.said().is_empty() && !stage.holds());
        stage.open();
        if told {
            // A ping is no program.
            stage.run(&ping(), &ok(IDLE));
            stage.client(&query(next));
            assert!(stage.sent().is_empty());
            assert_eq!(stage.told(), (9709, 1), "{next}");
            if next != "commit" {
                stage.client(&query("commit"));
                assert_eq!(stage.told(), (9709, 1), "a commit never looks like success");
            }
        } else {
            stage.run(&query(next), &ok(IDLE));
        }
        stage.run(&query("commit"), &ok(IDLE));
        stage.run(&query("insert into t values (1)"), &ok(IDLE));
    }
}

#[test]
fn w13_a_running_statement_is_killed_and_rolled_back() {
    each(|stage| {
        stage.run(&query("begin"), &ok(OPEN));
        stage.client(&query("insert into t values (sleep(9))"));
        stage.sent();
        stage.close();
        let before = stage.gate.word().generation();
        let action = stage.conversation.order_roll_back(before, false, &mut stage.to_engine);
        assert_eq!(action, Action::Cancel);
        stage.engine(&err(1, 1317, "interrupted"));
        assert_eq!(stage.told(), (9709, 1));
        assert_eq!(stage.sent(), ping());
        stage.engine(&ok(OPEN));
        assert!(stage.sent().is_empty(), "the kill may still be on its way");
        stage.conversation.cancel_delivered(&mut stage.to_engine);
        assert_eq!(stage.sent(), query(ROLLBACK));
        stage.engine(&ok(IDLE));
        assert!(!stage.holds());
        assert_eq!(stage.conversation.forced, Forced::RolledBack { told: true });
        stage.client(&query("commit"));
        assert_eq!(stage.told(), (9709, 1));
        stage.open();
        stage.run(&query("insert into t values (1)"), &ok(IDLE));
    });
}

#[test]
fn a_program_that_waits_for_the_fences_lock_gets_the_fences_code() {
    each(|stage| {
        stage.close();
        stage.client(&query("select * from v"));
        stage.guarded(true);
        stage.sent();
        assert_eq!(stage.conversation.order_stop(), Action::Cancel);
        stage.conversation.cancel_delivered(&mut stage.to_engine);
        stage.engine(&err(1, 1317, "interrupted"));
        assert_eq!(stage.told(), (9701, 1));
        stage.engine(&ok(IDLE));
        assert!(stage.sent().is_empty() && stage.said().is_empty());
        assert_eq!(stage.conversation.forced, Forced::No);
        assert!(!stage.holds());
    });
}

#[test]
fn w12_a_rollback_that_is_ordered_while_a_stop_is_under_way_follows_it() {
    for delivered in [false, true] {
        each(|stage| {
            stage.run(&query("begin"), &ok(OPEN));
            stage.run(&query("insert into t values (1)"), &ok(OPEN));
            stage.client(&query("update t set n = 2"));
            stage.close();
            stage.sent();
            assert_eq!(stage.conversation.order_stop(), Action::Cancel);
            if delivered {
                // It met nothing, and the statement runs on.
                stage.conversation.cancel_delivered(&mut stage.to_engine);
            }
            let before = stage.gate.word().generation();
            let action = stage.conversation.order_roll_back(before, false, &mut stage.to_engine);
            assert_eq!(action, if delivered { Action::Cancel } else { Action::None });
            stage.conversation.cancel_delivered(&mut stage.to_engine);
            stage.engine(&err(1, 1317, "interrupted"));
            assert_eq!(stage.told(), (9709, 1));
            assert_eq!(stage.sent(), ping());
            stage.engine(&ok(OPEN));
            assert_eq!(stage.sent(), query(ROLLBACK));
            stage.engine(&ok(IDLE));
            assert!(!stage.holds());
        });
    }
}

/// Only of a stop, and only where something else was written: everything else ends by itself.
#[test]
fn a_kill_that_nobody_knows_of_may_meet_the_commit_of_a_writer_that_was_stopped() {
    each(|stage| {
        assert!(!stage.conversation.may_meet_a_stop());
        stage.run(&query("begin"), &ok(OPEN));
        stage.run(&query("insert into t values (1)"), &ok(OPEN));
        stage.client(&query("select * from v"));
        assert!(!stage.conversation.may_meet_a_stop());
        assert_eq!(stage.conversation.order_stop(), Action::Cancel);
        assert!(stage.conversation.may_meet_a_stop());
        stage.close();
        let before = stage.gate.word().generation();
        stage.conversation.order_roll_back(before, false, &mut stage.to_engine);
        assert!(!stage.conversation.may_meet_a_stop(), "all of it is rolled back");
    });
}

fn quit() -> Vec<u8> {
    vec![1, 0, 0, 0, 1]
}

#[test]
fn a_client_that_leaves_an_open_transaction_behind_a_fence_is_rolled_back_in_front_of_it() {
    each(|stage| {
        stage.run(&query("begin"), &ok(OPEN));
        stage.run(&query("insert into t values (1)"), &ok(OPEN));
        stage.close();
        stage.client(&quit());
        assert_eq!(stage.sent(), [query(ROLLBACK), quit()].concat());
        assert!(stage.holds(), "that it was sent releases nothing");
        stage.engine(&ok(IDLE));
        assert!(!stage.holds() && stage.said().is_empty());
    });
}

#[test]
fn control_arm_every_other_goodbye_goes_as_it_came() {
    each(|stage| {
        stage.run(&query("begin"), &ok(OPEN));
        stage.run(&query("insert into t values (1)"), &ok(OPEN));
        stage.client(&quit());
        assert_eq!(stage.sent(), quit(), "nothing is closed");
    });
    each(|stage| {
        stage.run(&query("insert into t values (1)"), &ok(IDLE));
        stage.close();
        stage.client(&quit());
        assert_eq!(stage.sent(), quit(), "no transaction");
    });
    each(|stage| {
        stage.run(&query("begin"), &ok(OPEN));
        stage.run(&query("insert into t values (1)"), &ok(OPEN));
        stage.client(&query("update t set n = 2"));
        stage.close();
        stage.sent();
        stage.client(&quit());
        stage.engine(&ok(OPEN));
        let sent = stage.sent();
        assert!(sent.ends_with(&quit()), "{sent:?}");
    });
}
