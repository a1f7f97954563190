//! Blocks that a pipeline opens by itself: PostgreSQL 18 keeps one open behind a simple query or
//! function call that ends no Sync, and tells status `T`. The next Sync ends it, the proxy's own
//! too; and a Sync that stands alone there is answered `I` though nothing has ended.

use super::*;

const READ_ONLY: &str = "SET TRANSACTION READ ONLY";

fn pipeline(sql: &str) -> Vec<u8> {
    [parse("", sql), bind("", ""), execute()].concat()
}

/// What the engine says to a [`pipeline`] without its Sync.
fn piped(tag: &str) -> Vec<u8> {
    [message(b'1', b""), message(b'2', b""), done(tag)].concat()
}

/// The session has a pipeline's implicit block open, behind a simple query.
fn in_implicit_block(stage: &mut Stage, sql: &str) {
    stage.client(&[pipeline(sql), query("SELECT 2")].concat());
    stage.engine(&[piped("DONE"), done("SELECT 1"), ready(b'T')].concat());
    stage.sent();
    stage.told();
}

fn names_view(sent: &[u8]) -> bool {
    sent.windows(6).any(|w| w == b"FROM v")
}

/// The Sync behind the guard's own SET ends the block that it was set in: confirmed, and gone.
#[test]
fn w17_a_guard_counts_only_where_the_transaction_it_was_set_in_goes_on() {
    both(|stage| {
        in_implicit_block(stage, "SELECT 1");
        stage.close();
        stage.client(&query("SELECT * FROM v"));
        assert!(!names_view(&stage.sent()));
        stage.engine(&ended(b'I'));
        let sent = stage.sent();
        assert!(!names_view(&sent), "VIOLATION: a program runs without the guard");
        assert_eq!(sent, stage.own(GUARD), "set for the session, now that it is idle");
        stage.engine(&ended(b'I'));
        assert_eq!(stage.sent(), [query("SELECT * FROM v"), stage.short_guard()].concat());
    });
}

#[cfg(debug_assertions)]
#[test]
fn w17_control_arm_a_guard_taken_by_its_word_alone_is_reported() {
    let check = "wire::pg::tests::implicit::\
                 w17_a_guard_counts_only_where_the_transaction_it_was_set_in_goes_on";
    crate::base::arm::missed(check, &[("guard-status", "a program runs without")]).unwrap();
}

/// The other way round: set for the session in a transaction that nobody knew of, it would be
/// rolled back with it.
#[test]
fn w17_a_guard_for_the_session_that_is_set_inside_a_transaction_does_not_count() {
    both(|stage| {
        stage.close();
        stage.client(&query("SELECT * FROM v"));
        stage.sent();
        stage.engine(&ended(b'T'));
        let sent = stage.sent();
        assert!(!names_view(&sent), "{sent:?}");
        assert_eq!(sent, stage.own(READ_ONLY), "the transaction that there is");
        stage.engine(&ended(b'T'));
        assert_eq!(stage.sent(), query("SELECT * FROM v"));
    });
}

/// The guard must not commit what its client may still want to roll back.
#[test]
fn w17_the_guard_does_not_end_a_block_of_the_clients() {
    both(|stage| {
        in_implicit_block(stage, "SELECT * FROM v");
        stage.close();
        stage.client(&query("ROLLBACK"));
        assert_eq!(stage.sent(), query(READ_ONLY), "without a Sync");
        stage.engine(&ended(b'T'));
        assert_eq!(stage.sent(), query("ROLLBACK"));
        stage.engine(&[done("ROLLBACK"), ready(b'I')].concat());
        assert_eq!(stage.told(), ["C", "ZI"]);
        assert!(stage.conversation.lease.is_none());
    });
    // Control arm: a block that a Sync has shown to be the client's own keeps the client's unnamed
    // statement, which a simple query would drop.
    both(|stage| {
        stage.client(&[pipeline("SELECT 1"), query("BEGIN")].concat());
        stage.engine(&[piped("SELECT 1"), done("BEGIN"), ready(b'T')].concat());
        stage.client(&[parse("", "SELECT 1"), sync()].concat());
        stage.engine(&[message(b'1', b""), ready(b'T')].concat());
        stage.sent();
        stage.close();
        stage.client(&[bind("", ""), execute(), sync()].concat());
        assert_eq!(stage.sent(), stage.own(READ_ONLY));
    });
}

/// A Sync between the guard and its program would end the block that the guard is in.
#[test]
fn w17_a_sync_in_front_of_the_program_has_the_guard_set_again() {
    both(|stage| {
        in_implicit_block(stage, "SELECT 1");
        stage.close();
        stage.conversation.guard_ready = true;
        stage.client(&[sync(), query("SELECT * FROM v")].concat());
        assert!(!names_view(&stage.sent()));
        stage.engine(&ready(b'I'));
        stage.engine(&[error("XX000", "unexpected state STARTED"), ready(b'I')].concat());
        assert_eq!(stage.sent(), stage.own(GUARD), "tried again, in what there is now");
        stage.engine(&ended(b'I'));
        assert_eq!(stage.sent(), [query("SELECT * FROM v"), stage.short_guard()].concat());
        assert_eq!(stage.told(), ["ZI"]);
    });
}

/// A writer whose pipeline was answered `T`, and a Sync of its own `I`: the transaction is open.
fn behind_a_lone_sync(stage: &mut Stage) {
    let insert = pipeline("INSERT INTO t VALUES (1)");
    stage.client(&[insert, query("SELECT 1"), sync()].concat());
    stage.engine(&[piped("INSERT 0 1"), done("SELECT 1"), ready(b'T'), ready(b'I')].concat());
    assert_eq!(stage.told(), ["1", "2", "C", "C", "ZT", "ZI"]);
    stage.sent();
    assert!(stage.conversation.lease.is_some(), "VIOLATION: released by a Sync that ends nothing");
}

#[test]
fn w04_a_sync_that_stands_alone_releases_nothing() {
    both(|stage| {
        behind_a_lone_sync(stage);
        stage.client(&sync());
        stage.engine(&ready(b'I'));
        assert!(stage.conversation.lease.is_some());
        stage.client(&query("SELECT 1"));
        stage.told();
        stage.engine(&[error("XX000", "unexpected state STARTED"), ready(b'I')].concat());
        assert_eq!(stage.told(), ["E:XX000", "ZI"], "the engine's own error");
        assert!(stage.conversation.lease.is_none(), "an answer to a program releases");
    });
}

/// PostgreSQL begins nothing for a Close: the Sync behind it is as empty as one that stands alone.
#[test]
fn w04_a_sync_behind_nothing_but_closes_releases_nothing() {
    let close = message(b'C', b"Szz\0");
    both(|stage| {
        in_implicit_block(stage, "INSERT INTO t VALUES (1)");
        stage.client(&[close.clone(), close.clone(), sync()].concat());
        stage.engine(&[message(b'3', b""), message(b'3', b""), ready(b'I')].concat());
        assert_eq!(stage.told(), ["3", "3", "ZI"]);
        assert!(stage.conversation.lease.is_some(), "VIOLATION: released by what ends nothing");
        stage.client(&query("SELECT 1"));
        stage.engine(&[error("XX000", "unexpected state STARTED"), ready(b'I')].concat());
        assert!(stage.conversation.lease.is_none());
    });
    // Control arms: with a Parse, Bind, Execute or Describe there, and where nothing is open.
    let parse_and = |more: &[u8]| [&parse("", "SELECT 1"), more, &close, &sync()].concat();
    for (program, answer) in [
        (parse_and(b""), "13"),
        (parse_and(&[bind("", ""), execute()].concat()), "12C3"),
        ([close.clone(), message(b'D', b"Sn\0"), sync()].concat(), "3n"),
    ] {
        both(|stage| {
            in_implicit_block(stage, "INSERT INTO t VALUES (1)");
            stage.client(&program);
            let said = |tag| if tag == b'C' { done("SELECT 1") } else { message(tag, b"") };
            let said: Vec<u8> = answer.bytes().flat_map(said).collect();
            stage.engine(&[said, ready(b'I')].concat());
            assert!(stage.conversation.lease.is_none(), "{answer}");
        });
    }
    both(|stage| {
        stage.client(&[close.clone(), sync()].concat());
        stage.engine(&[message(b'3', b""), ready(b'I')].concat());
        assert!(stage.conversation.lease.is_none());
    });
}

#[cfg(debug_assertions)]
#[test]
fn w04_control_arm_a_release_by_a_lone_sync_is_reported() {
    let check = "wire::pg::tests::implicit::w04_a_sync_that_stands_alone_releases_nothing";
    crate::base::arm::missed(check, &[("lone-sync", "released by a Sync")]).unwrap();
}

/// Force reaches it by its lease. Whether anything was rolled back only the engine can tell: one
/// that ends the block at such a Sync has committed it, and nobody may be told otherwise.
#[test]
fn w12_force_behind_a_lone_sync_rolls_back_what_there_is_and_tells_no_more() {
    let order = |stage: &mut Stage| {
        behind_a_lone_sync(stage);
        stage.close();
        let before = stage.gate.word().generation();
        let action = stage.conversation.order_roll_back(before, false, &mut stage.to_engine);
        assert_eq!((action, stage.sent()), (Action::None, query("ROLLBACK")));
    };
    both(|stage| {
        order(stage);
        stage.engine(&[error("XX000", "unexpected state STARTED"), ready(b'I')].concat());
        assert!(stage.conversation.lease.is_none());
        stage.client(&query("COMMIT"));
        assert_eq!(stage.told(), ["E:ZF009", "ZI"]);
    });
    both(|stage| {
        order(stage);
        stage.engine(&[done("ROLLBACK"), ready(b'I')].concat());
        assert!(stage.conversation.lease.is_none());
        assert_eq!(stage.conversation.forced, Forced::No, "there was nothing to roll back");
    });
}

/// What undoes the guard would fail there, and end the session.
#[test]
fn w17_the_guard_is_not_undone_where_a_transaction_may_be_open() {
    both(|stage| {
        stage.close();
        stage.client(&query("SELECT 1"));
        stage.engine(&ended(b'I'));
        stage.engine(&ended(b'I'));
        stage.client(&[pipeline("SELECT 1"), query("SELECT 2")].concat());
        stage.engine(&ended(b'I'));
        stage.engine(&[piped("SELECT 1"), done("SELECT 1"), ready(b'T')].concat());
        stage.client(&sync());
        stage.engine(&ready(b'I'));
        stage.sent();
        stage.open();
        stage.client(&query("SELECT 3"));
        assert_eq!(stage.sent(), query("SELECT 3"));
        stage.engine(&[error("XX000", "unexpected state STARTED"), ready(b'I')].concat());
        stage.client(&query("SELECT 4"));
        let undo = stage.own(UNDO);
        assert_eq!(stage.sent(), [undo, query("SELECT 4")].concat());
    });
}

/// What a driver sends that drops a transaction and then a statement: `ROLLBACK`, Close and Sync in
/// one write. The query's answer wasn't the last one owed, and the Close's counted as a lone Sync's
/// behind what was open before it.
#[test]
fn w04_a_close_behind_a_rollback_in_one_write_keeps_no_lease() {
    both(|stage| {
        stage.client(&query("BEGIN"));
        stage.engine(&[done("BEGIN"), ready(b'T')].concat());
        assert!(stage.conversation.lease.is_some());
        stage.client(&[query("ROLLBACK"), message(b'C', b"Ss1\0"), sync()].concat());
        stage.engine(&[done("ROLLBACK"), ready(b'I'), message(b'3', b""), ready(b'I')].concat());
        assert!(stage.conversation.lease.is_none(), "a lease is left on an idle session");
    });
    // The other way round: the block is open by the answer that wasn't the last one owed.
    both(|stage| {
        let insert = pipeline("INSERT INTO t VALUES (1)");
        stage.client(&[insert, query("SELECT 1"), message(b'C', b"Szz\0"), sync()].concat());
        let first = [piped("INSERT 0 1"), done("SELECT 1"), ready(b'T')].concat();
        stage.engine(&[first, message(b'3', b""), ready(b'I')].concat());
        let held = stage.conversation.lease.is_some();
        assert!(held, "VIOLATION: released by a Sync that ends nothing");
        assert_eq!(stage.conversation.status, crate::wire::pg::refusal::Status::Open);
    });
}
