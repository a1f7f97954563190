//! Conversations in the extended protocol.

use super::Talk;
use crate::support::wire::{bind, close, describe, execute, flush, frame, parse, query, sync};

/// Parse, Bind, Describe and Execute of one statement, unnamed.
fn one_of(sql: &str) -> Vec<u8> {
    [parse("", sql), bind("", "", &[]), describe(b'P', ""), execute("", 0)].concat()
}

fn say(talk: &mut Talk, messages: &[Vec<u8>], ready: usize) {
    talk.send(&messages.concat());
    talk.ready(ready);
}

pub(super) fn one(talk: &mut Talk) {
    talk.start();
    say(talk, &[one_of("TABLE r"), sync()], 1);
    say(talk, &[one_of("INSERT INTO r VALUES (4) RETURNING n"), sync()], 1);
}

pub(super) fn parameters(talk: &mut Talk) {
    talk.start();
    let sql = "SELECT $1::int + n, $2::text FROM r";
    let bound = bind("", "", &[Some("40"), None]);
    say(talk, &[parse("", sql), bound, execute("", 0), sync()], 1);
    // Types given, parameters and results in binary.
    let mut body = b"typed\0SELECT $1 * 2\0\0\x01".to_vec();
    body.extend_from_slice(&23_u32.to_be_bytes());
    let mut binary = b"\0typed\0\0\x01\0\x01\0\x01\0\0\0\x04".to_vec();
    binary.extend_from_slice(&21_i32.to_be_bytes());
    binary.extend_from_slice(&[0, 1, 0, 1]);
    say(talk, &[frame(b'P', &body), describe(b'S', "typed"), sync()], 1);
    say(talk, &[frame(b'B', &binary), execute("", 0), sync()], 1);
    let wrong = bind("", "typed", &[]);
    say(talk, &[wrong, execute("", 0), sync()], 1);
    say(talk, &[bind("", "typed", &[Some("x")]), execute("", 0), sync()], 1);
}

pub(super) fn one_sync(talk: &mut Talk) {
    talk.start();
    let all = ["SELECT 1", "INSERT INTO r VALUES (4)", "TABLE r", "SELECT 1/0"].map(one_of);
    say(talk, &[all.concat(), sync()], 1);
    say(talk, &[one_of("TABLE r"), sync()], 1);
}

pub(super) fn several_syncs(talk: &mut Talk) {
    talk.start();
    let all = ["INSERT INTO r VALUES (4)", "SELECT 1/0", "INSERT INTO r VALUES (5)", "TABLE r"];
    let all = all.map(|sql| [one_of(sql), sync()].concat());
    say(talk, &all, 4);
}

pub(super) fn error_in_each_phase(talk: &mut Talk) {
    talk.start();
    say(talk, &[parse("", "SELEC"), bind("", "", &[]), execute("", 0), sync()], 1);
    say(talk, &[parse("", "SELECT $1::int"), bind("", "", &[Some("x")]), sync()], 1);
    say(talk, &[parse("", "SELECT 1"), bind("", "nope", &[]), sync()], 1);
    say(talk, &[parse("", "SELECT 1"), bind("", "", &[]), describe(b'P', "nope"), sync()], 1);
    say(talk, &[parse("", "SELECT 1/0"), bind("", "", &[]), execute("", 0), sync()], 1);
    say(talk, &[execute("nope", 0), sync()], 1);
    say(talk, &[parse("", "SELECT 1; SELECT 2"), sync()], 1);
    say(talk, &[frame(b'B', b"\0\0\0\x05\0\0\0"), sync()], 1);
    say(talk, &[one_of("SELECT 1"), sync()], 1);
}

pub(super) fn skipped(talk: &mut Talk) {
    talk.start();
    let failing = one_of("SELECT 1/0");
    let behind = [flush(), query("SELECT 'never'"), one_of("SELECT 2"), flush()].concat();
    say(talk, &[failing, behind, sync(), query("SELECT 3")], 2);
}

pub(super) fn flushes(talk: &mut Talk) {
    talk.start();
    talk.send(&[parse("", "TABLE r"), flush()].concat());
    talk.until(b'1', 1);
    talk.send(&[bind("", "", &[]), describe(b'P', ""), flush()].concat());
    talk.until(b'T', 1);
    talk.send(&[execute("", 2), flush()].concat());
    talk.until(b's', 1);
    talk.send(&[execute("", 0), flush()].concat());
    talk.until(b'C', 1);
    talk.send(&[execute("", 0), sync()].concat());
    talk.ready(1);
    // An error is sent at once, without a Flush.
    talk.send(&parse("", "SELEC"));
    talk.until(b'E', 1);
    talk.send(&sync());
    talk.ready(1);
}

pub(super) fn portal_kept(talk: &mut Talk) {
    talk.start();
    say(talk, &[query("BEGIN")], 1);
    say(talk, &[parse("s", "TABLE r"), bind("p", "s", &[]), execute("p", 1), sync()], 1);
    say(talk, &[execute("p", 1), sync()], 1);
    say(talk, &[query("SELECT 1")], 1);
    say(talk, &[execute("p", 0), close(b'P', "p"), sync()], 1);
    say(talk, &[execute("p", 0), sync(), query("COMMIT")], 2);
}

pub(super) fn suspended(talk: &mut Talk) {
    talk.start();
    let rows = "SELECT g FROM generate_series(1, 10) g";
    let some = [execute("", 3), execute("", 3), execute("", 3), execute("", 3)].concat();
    say(talk, &[parse("", rows), bind("", "", &[]), some, sync()], 1);
    let exactly = [execute("", 10), execute("", 10)].concat();
    say(talk, &[parse("", rows), bind("", "", &[]), exactly, sync()], 1);
    let two = [bind("a", "", &[]), bind("b", "", &[])].concat();
    let turns = [execute("a", 1), execute("b", 2), execute("a", 1), execute("b", 0)].concat();
    say(talk, &[parse("", rows), two, turns, sync()], 1);
    let writes = "INSERT INTO r SELECT g FROM generate_series(4, 9) g RETURNING n";
    say(talk, &[parse("", writes), bind("", "", &[]), execute("", 2), sync()], 1);
    say(talk, &[query("SELECT count(*) FROM r")], 1);
}

pub(super) fn portal_dies(talk: &mut Talk) {
    talk.start();
    say(talk, &[parse("", "TABLE r"), bind("p", "", &[]), execute("p", 1), sync()], 1);
    say(talk, &[execute("p", 1), sync()], 1);
    say(talk, &[parse("", "TABLE r"), bind("", "", &[]), sync(), execute("", 0), sync()], 2);
}

pub(super) fn names(talk: &mut Talk) {
    talk.start();
    say(talk, &[parse("s", "SELECT 1"), parse("s", "SELECT 2"), sync()], 1);
    say(talk, &[bind("", "s", &[]), execute("", 0), sync()], 1);
    say(talk, &[close(b'S', "s"), parse("s", "SELECT 3"), sync()], 1);
    say(talk, &[bind("", "s", &[]), execute("", 0), sync()], 1);
    say(talk, &[parse("", "SELECT 4"), sync(), query("SELECT 5")], 2);
    say(talk, &[bind("", "", &[]), execute("", 0), sync()], 1);
    // Made by one protocol, used by the other.
    say(talk, &[query("PREPARE q AS SELECT 6"), query("EXECUTE s")], 2);
    say(talk, &[bind("", "q", &[]), execute("", 0), sync()], 1);
}

pub(super) fn unknown_names(talk: &mut Talk) {
    talk.start();
    say(talk, &[close(b'S', "nope"), close(b'P', "nope"), close(b'S', ""), sync()], 1);
    say(talk, &[describe(b'S', "nope"), sync()], 1);
    say(talk, &[describe(b'P', "nope"), sync()], 1);
    say(talk, &[describe(b'X', "nope"), sync()], 1);
    say(talk, &[one_of("SELECT 1/0"), close(b'S', "s"), sync()], 1);
}

pub(super) fn describe_statement(talk: &mut Talk) {
    talk.start();
    say(talk, &[parse("s", "SELECT n, s FROM r WHERE n = $1"), describe(b'S', "s"), sync()], 1);
    say(talk, &[parse("i", "DELETE FROM r WHERE s = $1"), describe(b'S', "i"), sync()], 1);
    say(talk, &[bind("", "i", &[Some("one")]), describe(b'P', ""), execute("", 0), sync()], 1);
}

pub(super) fn empty(talk: &mut Talk) {
    talk.start();
    say(talk, &[one_of(""), one_of(";"), one_of("-- nothing"), sync()], 1);
    say(talk, &[one_of("SELECT"), sync()], 1);
}

pub(super) fn bare_syncs(talk: &mut Talk) {
    talk.start();
    say(talk, &[sync(), sync(), flush(), sync()], 3);
    say(talk, &[query("BEGIN"), sync(), sync(), query("ROLLBACK")], 4);
}

pub(super) fn begin_in_pipeline(talk: &mut Talk) {
    talk.start();
    let open = ["INSERT INTO r VALUES (4)", "BEGIN", "INSERT INTO r VALUES (5)"].map(one_of);
    say(talk, &[open.concat(), sync()], 1);
    say(talk, &[one_of("SELECT 1/0"), sync(), one_of("COMMIT"), sync()], 2);
    say(talk, &[query("TABLE r")], 1);
}

pub(super) fn commit_without_sync(talk: &mut Talk) {
    talk.start();
    let durable = ["BEGIN", "INSERT INTO r VALUES (4)", "COMMIT"].map(one_of).concat();
    talk.send(&[durable, flush()].concat());
    talk.until(b'C', 3);
    say(talk, &[one_of("SELECT 1/0"), sync(), query("TABLE r")], 2);
}

pub(super) fn vacuum_in_pipeline(talk: &mut Talk) {
    talk.start();
    say(talk, &[one_of("SELECT 1"), one_of("VACUUM r"), sync()], 1);
    say(talk, &[one_of("VACUUM r"), sync()], 1);
    say(talk, &[one_of("CREATE INDEX CONCURRENTLY i ON r (s)"), sync()], 1);
}

pub(super) fn simple_inside(talk: &mut Talk) {
    talk.start();
    // The engine's status behind it depends on its version; 18 takes no further program then.
    say(talk, &[one_of("INSERT INTO r VALUES (4)"), query("SELECT 1"), sync()], 2);
}

pub(super) fn simple_inside_by_name(talk: &mut Talk) {
    talk.start();
    say(talk, &[parse("s", "SELECT 2"), query("EXECUTE s"), bind("", "s", &[])], 1);
    say(talk, &[execute("", 0), sync()], 1);
}

pub(super) fn deallocate_all(talk: &mut Talk) {
    talk.start();
    say(talk, &[parse("s", "SELECT 1"), sync()], 1);
    let again = [parse("s", "SELECT 2"), bind("", "s", &[]), execute("", 0), sync()].concat();
    say(talk, &[query("DEALLOCATE ALL"), again], 2);
    say(talk, &[one_of("DISCARD ALL"), sync(), bind("", "s", &[]), sync()], 2);
}

pub(super) fn changed_plan(talk: &mut Talk) {
    talk.start();
    say(talk, &[parse("s", "SELECT * FROM r"), sync()], 1);
    say(talk, &[query("ALTER TABLE r ADD COLUMN more int")], 1);
    say(talk, &[bind("", "s", &[]), execute("", 0), sync()], 1);
}

pub(super) fn large_parameter(talk: &mut Talk) {
    talk.start();
    let value = "y".repeat(20_000_000);
    let bound = bind("", "", &[Some(&value)]);
    say(talk, &[parse("", "SELECT length($1), $1"), bound, execute("", 0), sync()], 1);
    let long = format!("SELECT length('{value}')");
    say(talk, &[one_of(&long), sync()], 1);
}

pub(super) fn many(talk: &mut Talk) {
    talk.start();
    let all: Vec<_> =
        (0..2_000).map(|n| [one_of(&format!("SELECT {n}")), sync()].concat()).collect();
    say(talk, &all, 2_000);
}

pub(super) fn read_only_by_itself(talk: &mut Talk) {
    talk.start();
    say(talk, &[query("SET default_transaction_read_only = on")], 1);
    say(talk, &[one_of("INSERT INTO r VALUES (4)"), sync(), query("DELETE FROM r")], 2);
    say(talk, &[query("BEGIN READ WRITE; DELETE FROM r; ROLLBACK")], 1);
}
