//! Conversations in simple queries.

use super::Talk;
use crate::support::wire::{frame, query};

fn ask(talk: &mut Talk, statements: &[&str]) {
    for sql in statements {
        talk.send(&query(sql));
        talk.ready(1);
    }
}

pub(super) fn rows(talk: &mut Talk) {
    talk.start();
    ask(talk, &["TABLE r", "SELECT n, s, NULL::bytea, '{1,2}'::int[] FROM r WHERE n > 1"]);
    ask(talk, &["SELECT", "SELECT FROM r", "SELECT repeat('w', 100000) FROM r"]);
}

pub(super) fn errors(talk: &mut Talk) {
    talk.start();
    for sql in [
        "SELECT 1/0",
        "SELEC",
        "SELECT * FROM missing",
        "SELECT missing FROM r",
        "INSERT INTO r VALUES (1, 'again')",
        "SELECT 'x'::int",
        "DO $$ BEGIN RAISE EXCEPTION 'own'
             USING ERRCODE = 'AB123', DETAIL = 'd', HINT = 'h'; END $$",
        "SELECT 1/(n - 3) FROM r",
        "COMMIT PREPARED 'nothing'",
    ] {
        ask(talk, &[sql]);
    }
}

pub(super) fn several(talk: &mut Talk) {
    talk.start();
    ask(talk, &["SELECT 1; SELECT 2, 3; UPDATE r SET s = 'x'; TABLE r; ;; SELECT 4"]);
}

pub(super) fn error_in_the_middle(talk: &mut Talk) {
    talk.start();
    ask(talk, &["INSERT INTO r VALUES (4, 'four'); SELECT 1/0; SELECT 5", "TABLE r"]);
}

pub(super) fn begin_inside(talk: &mut Talk) {
    talk.start();
    ask(
        talk,
        &["INSERT INTO r VALUES (4); BEGIN; INSERT INTO r VALUES (5)", "ROLLBACK", "TABLE r"],
    );
}

pub(super) fn commit_inside(talk: &mut Talk) {
    talk.start();
    ask(talk, &["INSERT INTO r VALUES (4); COMMIT; INSERT INTO r VALUES (5); SELECT 1/0"]);
    ask(talk, &["TABLE r", "COMMIT", "BEGIN", "BEGIN", "COMMIT AND CHAIN", "ROLLBACK"]);
}

pub(super) fn empty(talk: &mut Talk) {
    talk.start();
    ask(talk, &["", ";", "  ", "-- nothing", ";;;"]);
}

pub(super) fn notices(talk: &mut Talk) {
    talk.start();
    ask(
        talk,
        &[
            "DO $$ BEGIN RAISE NOTICE 'one'; RAISE WARNING 'two'; RAISE INFO 'three'; END $$",
            "DROP TABLE IF EXISTS no_such_table",
            "SET client_min_messages = debug1; SELECT 1; RESET client_min_messages",
            "ROLLBACK",
        ],
    );
}

pub(super) fn transaction_status(talk: &mut Talk) {
    talk.start();
    ask(talk, &["BEGIN", "SELECT 1", "SAVEPOINT a", "SELECT 1/0", "SELECT 1", "SAVEPOINT b"]);
    ask(talk, &["ROLLBACK TO a", "RELEASE a", "ROLLBACK TO a", "ROLLBACK", "SELECT 1"]);
    ask(talk, &["START TRANSACTION ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE"]);
    ask(talk, &["INSERT INTO r VALUES (9)", "END"]);
}

pub(super) fn commit_answered_rollback(talk: &mut Talk) {
    talk.start();
    ask(talk, &["BEGIN; INSERT INTO r VALUES (4)", "SELECT 1/0", "COMMIT", "TABLE r"]);
}

pub(super) fn deferred_constraint(talk: &mut Talk) {
    talk.start();
    ask(talk, &["CREATE TABLE d (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)"]);
    ask(talk, &["BEGIN; INSERT INTO d VALUES (1), (1)", "COMMIT", "TABLE d"]);
}

pub(super) fn several_in_flight(talk: &mut Talk) {
    talk.start();
    let all = ["SELECT 1", "SELECT 1/0", "INSERT INTO r VALUES (4)", "", "TABLE r", "BEGIN"];
    talk.send(&all.map(query).concat());
    talk.ready(all.len());
    talk.send(&["SELECT 2", "COMMIT", "SELECT 3"].map(query).concat());
    talk.ready(3);
}

pub(super) fn listen_notify(talk: &mut Talk) {
    talk.start();
    ask(talk, &["LISTEN c", "NOTIFY c, 'own'", "BEGIN; NOTIFY c, 'a'; NOTIFY c, 'b'", "COMMIT"]);
    // From another session while this one is idle.
    talk.other().query("NOTIFY c, 'from outside'").ok();
    talk.until(b'A', 1);
    ask(talk, &["UNLISTEN *", "NOTIFY c", "SELECT 1"]);
}

pub(super) fn notify_in_transaction(talk: &mut Talk) {
    talk.start();
    ask(talk, &["LISTEN c", "BEGIN"]);
    talk.other().query("NOTIFY c, 'meanwhile'").ok();
    ask(talk, &["SELECT 1", "COMMIT"]);
}

pub(super) fn parameter_status(talk: &mut Talk) {
    talk.start();
    ask(
        talk,
        &[
            "SET application_name = 'x'; SET DateStyle = 'German'; SELECT 1",
            "SET TIME ZONE 'UTC'",
            "BEGIN; SET IntervalStyle = 'iso_8601'",
            "ROLLBACK",
            "SET default_transaction_read_only = on",
            "SET default_transaction_read_only = off",
            "SET standard_conforming_strings = off; SELECT 'a\\\\b'",
            "SELECT 'a\\'b'",
            "RESET ALL",
        ],
    );
}

pub(super) fn discard_all(talk: &mut Talk) {
    talk.start();
    ask(talk, &["PREPARE p AS SELECT 1; SET application_name = 'y'; LISTEN c"]);
    ask(talk, &["CREATE TEMP TABLE tmp (n int)", "DISCARD ALL", "EXECUTE p", "TABLE tmp"]);
    ask(talk, &["BEGIN; DISCARD ALL", "ROLLBACK", "DISCARD PLANS", "DISCARD TEMP"]);
}

pub(super) fn sql_prepare(talk: &mut Talk) {
    talk.start();
    ask(talk, &["PREPARE p (int) AS SELECT s FROM r WHERE n = $1", "EXECUTE p (1)"]);
    ask(talk, &["EXECUTE p ('x')", "PREPARE p AS SELECT 1", "DEALLOCATE p", "EXECUTE p (1)"]);
    ask(talk, &["PREPARE i AS INSERT INTO r VALUES (7) RETURNING n", "EXECUTE i", "EXECUTE i"]);
}

pub(super) fn cursors(talk: &mut Talk) {
    talk.start();
    ask(talk, &["BEGIN; DECLARE c SCROLL CURSOR FOR TABLE r", "FETCH 2 FROM c", "MOVE 1 IN c"]);
    ask(talk, &["FETCH BACKWARD ALL FROM c", "CLOSE c", "FETCH c", "ROLLBACK", "FETCH c"]);
    ask(talk, &["DECLARE h CURSOR WITH HOLD FOR TABLE r", "FETCH h", "CLOSE ALL"]);
}

pub(super) fn large(talk: &mut Talk) {
    talk.start();
    ask(talk, &["SELECT repeat('0123456789', 2000000)", "SELECT 1"]);
}

pub(super) fn long_statement(talk: &mut Talk) {
    talk.start();
    let long = format!("SELECT length('{}')", "x".repeat(3_000_000));
    ask(talk, &[&long, "SELECT 1"]);
    let many = "SELECT 1;".repeat(3_000);
    ask(talk, &[&many]);
}

pub(super) fn encodings(talk: &mut Talk) {
    talk.start();
    ask(talk, &["SELECT 'grüße \u{1f418}'", "SET client_encoding = latin1"]);
    talk.send(&frame(b'Q', b"SELECT 'gr\xfc\xdfe'\0"));
    talk.ready(1);
    ask(talk, &["SET client_encoding = utf8"]);
    talk.send(&frame(b'Q', b"SELECT 'gr\xfc\xdfe'\0"));
    talk.ready(1);
    talk.send(&frame(b'Q', b"SELECT 1\0SELECT 2\0"));
    talk.until(b'Z', 1);
}

pub(super) fn outside_transactions(talk: &mut Talk) {
    talk.start();
    ask(talk, &["VACUUM r", "ANALYZE r", "BEGIN; VACUUM r", "ROLLBACK", "SELECT 1; VACUUM r"]);
    ask(talk, &["CREATE INDEX CONCURRENTLY i ON r (s)", "REINDEX TABLE r", "CHECKPOINT"]);
}

pub(super) fn procedure_commits(talk: &mut Talk) {
    talk.start();
    ask(
        talk,
        &[
            "CREATE PROCEDURE p() LANGUAGE plpgsql AS $f$ BEGIN
             INSERT INTO r VALUES (4); COMMIT; INSERT INTO r VALUES (5); ROLLBACK; END $f$",
            "CALL p()",
            "BEGIN; CALL p()",
            "ROLLBACK",
            "TABLE r",
        ],
    );
}

pub(super) fn function_call(talk: &mut Talk) {
    talk.start();
    // abs(int4): OID 1397; text argument and result, then binary, then a wrong count.
    let call = |formats: &[u8], argument: &[u8], result: u8| {
        let mut body = 1397_u32.to_be_bytes().to_vec();
        body.extend_from_slice(formats);
        body.extend_from_slice(argument);
        body.extend_from_slice(&[0, result]);
        frame(b'F', &body)
    };
    talk.send(&call(&[0, 0], &[0, 1, 0, 0, 0, 2, b'-', b'7'], 0));
    talk.ready(1);
    let minus_seven = [&[0, 1, 0, 0, 0, 4][..], &(-7_i32).to_be_bytes()].concat();
    talk.send(&call(&[0, 1, 0, 1], &minus_seven, 1));
    talk.ready(1);
    talk.send(&call(&[0, 0], &[0, 0], 0));
    talk.ready(1);
    ask(talk, &["BEGIN"]);
    talk.send(&call(&[0, 0], &[0, 1, 0, 0, 0, 1, b'x'], 0));
    talk.ready(1);
    ask(talk, &["ROLLBACK"]);
}

pub(super) fn statement_timeout(talk: &mut Talk) {
    talk.start();
    ask(talk, &["SET statement_timeout = 20", "SELECT pg_sleep(60)", "SELECT 1"]);
    ask(talk, &["BEGIN", "SELECT pg_sleep(60)", "COMMIT"]);
}

pub(super) fn terminated(talk: &mut Talk) {
    talk.start();
    talk.send(&query("SELECT pg_sleep(600)"));
    talk.wait_for("PgSleep");
    talk.kill();
    talk.end();
}

pub(super) fn byte_by_byte(talk: &mut Talk) {
    talk.start();
    for byte in query("SELECT n FROM r; SELECT 1/0") {
        talk.send(&[byte]);
    }
    talk.ready(1);
}

pub(super) fn terminate(talk: &mut Talk) {
    talk.start();
    talk.send(&[query("BEGIN; INSERT INTO r VALUES (4)"), frame(b'X', &[])].concat());
    talk.end();
}
