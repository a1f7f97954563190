//! Cancel requests: early, in time and late.

use super::{Case, Talk};
use crate::support::wire::{bind, copy_data, copy_done, execute, flush, parse, query, sync};

const SLEEP: &str = "SELECT pg_sleep(600)";

fn program(sql: &str) -> Vec<u8> {
    [parse("", sql), bind("", "", &[]), execute("", 0), sync()].concat()
}

/// Sends something that sleeps, cancels it, and reads its answers and one of a statement behind.
fn in_time(talk: &mut Talk, bytes: &[u8], ready: usize) {
    talk.send(bytes);
    talk.wait_for("PgSleep");
    talk.cancel();
    talk.ready(ready);
    talk.ask(&["SELECT 'goes on'"]);
}

/// A backend that waits for its client has seen and dropped a cancel once it answers others'
/// questions about it again: the request is delivered before its connection is closed.
fn early(talk: &mut Talk) {
    talk.start();
    talk.cancel();
    talk.wait_for("ClientRead");
    talk.ask(&["SELECT 1"]);
    talk.ask(&["BEGIN"]);
    talk.cancel();
    talk.wait_for("ClientRead");
    talk.ask(&["SELECT 2", "COMMIT"]);
}

fn late(talk: &mut Talk) {
    talk.start();
    talk.ask(&["SELECT 1"]);
    talk.cancel();
    talk.wait_for("ClientRead");
    talk.send(&program("SELECT 2"));
    talk.ready(1);
    talk.cancel();
    talk.wait_for("ClientRead");
    talk.ask(&["INSERT INTO r VALUES (4)"]);
}

fn wrong_key(talk: &mut Talk) {
    talk.start();
    talk.send(&query(SLEEP));
    talk.wait_for("PgSleep");
    talk.cancel_wrongly();
    talk.wait_for("PgSleep");
    talk.cancel();
    talk.ready(1);
}

fn twice(talk: &mut Talk) {
    talk.start();
    in_time(talk, &query(SLEEP), 1);
    in_time(talk, &query(SLEEP), 1);
}

fn between(talk: &mut Talk) {
    talk.start();
    let all = [query("INSERT INTO r VALUES (4)"), query(SLEEP), query("TABLE r")].concat();
    in_time(talk, &all, 3);
}

fn in_a_pipeline(talk: &mut Talk) {
    talk.start();
    let first = [parse("", "INSERT INTO r VALUES (4)"), bind("", "", &[]), execute("", 0)].concat();
    in_time(talk, &[first, program(SLEEP), program("TABLE r")].concat(), 2);
}

fn without_sync(talk: &mut Talk) {
    talk.start();
    let tail = [parse("", SLEEP), bind("", "", &[]), execute("", 0), flush()].concat();
    talk.send(&tail);
    talk.wait_for("PgSleep");
    talk.cancel();
    talk.until(b'E', 1);
    talk.send(&[execute("", 0), sync()].concat());
    talk.ready(1);
}

fn in_a_transaction(talk: &mut Talk) {
    talk.start();
    talk.ask(&["BEGIN; INSERT INTO r VALUES (4); SAVEPOINT a"]);
    in_time(talk, &query(SLEEP), 1);
    talk.ask(&["ROLLBACK TO a", "SELECT count(*) FROM r", "COMMIT"]);
}

fn for_a_lock(talk: &mut Talk) {
    talk.start();
    let mut other = talk.other();
    other.query("BEGIN; LOCK TABLE talk.r").ok();
    talk.send(&query("INSERT INTO r VALUES (4)"));
    talk.wait_for("relation");
    talk.cancel();
    talk.ready(1);
    other.query("ROLLBACK").ok();
    talk.ask(&["TABLE r"]);
}

fn in_copy_in(talk: &mut Talk) {
    talk.start();
    talk.send(&query("COPY r FROM STDIN"));
    talk.until(b'G', 1);
    talk.send(&copy_data(b"4\tx\n"));
    talk.cancel();
    // The engine looks when it has data.
    talk.send(&[copy_data(b"5\tx\n"), copy_done()].concat());
    talk.ready(1);
    // Whether it has read the first row by then is chance, and the error names the line.
    talk.forget("WCOPY r");
    talk.ask(&["TABLE r"]);
}

fn in_copy_out(talk: &mut Talk) {
    talk.start();
    let sql = "COPY (SELECT n, CASE n WHEN 3 THEN pg_sleep(600) END FROM r ORDER BY n) TO STDOUT";
    in_time(talk, &query(sql), 1);
}

fn in_a_procedure(talk: &mut Talk) {
    talk.start();
    let body = "INSERT INTO r VALUES (4); COMMIT; INSERT INTO r VALUES (5); PERFORM pg_sleep(600);";
    let sql = format!("DO $f$ BEGIN {body} END $f$");
    in_time(talk, &query(&sql), 1);
    talk.ask(&["TABLE r"]);
}

pub(super) fn longer_keys(talk: &mut Talk) {
    talk.login((3 << 16) | 2, &[]);
    in_time(talk, &query(SLEEP), 1);
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("cancel: early", early),
        Case::new("cancel: late", late),
        Case::new("cancel: a wrong key", wrong_key),
        Case::new("cancel: two statements", twice),
        Case::new("cancel: one of several in flight", between),
        Case::new("cancel: in a pipeline", in_a_pipeline),
        Case::new("cancel: in a pipeline without Sync", without_sync),
        Case::new("cancel: in a transaction", in_a_transaction),
        Case::new("cancel: while waiting for a lock", for_a_lock),
        Case::new("cancel: in COPY in", in_copy_in),
        Case::new("cancel: in COPY out", in_copy_out),
        Case::new("cancel: in a procedure that has committed", in_a_procedure),
        Case::new("cancel: protocol 3.2", longer_keys),
    ]
}
