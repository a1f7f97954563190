//! Pipelines: Syncs, Flushes, portals and transactions in combinations.

use super::{Case, Talk};
use crate::support::wire::{bind, close, describe, execute, flush, frame, parse, query, sync};

fn program(sql: &str) -> Vec<u8> {
    [parse("", sql), bind("", "", &[]), describe(b'P', ""), execute("", 0)].concat()
}

fn say(talk: &mut Talk, messages: &[Vec<u8>], ready: usize) {
    talk.send(&messages.concat());
    talk.ready(ready);
}

/// The segments of each, as SQL; a Sync ends each segment. All of it in one go.
const SEGMENTS: &[(&str, &[&[&str]])] = &[
    ("a failure between two", &[&["SELECT 1"], &["SELECT 1/0"], &["SELECT 2"]]),
    ("a failure first", &[&["SELECT 1/0", "SELECT 1"], &["SELECT 2"]]),
    ("a failure last", &[&["INSERT INTO r VALUES (4)", "SELECT 1/0"], &["TABLE r"]]),
    ("writes in each", &[&["INSERT INTO r VALUES (4)"], &["DELETE FROM r"], &["TABLE r"]]),
    ("a transaction over three", &[&["BEGIN"], &["DELETE FROM r"], &["ROLLBACK"], &["TABLE r"]]),
    (
        "a failed transaction over four",
        &[&["BEGIN"], &["SELECT 1/0"], &["SELECT 1"], &["COMMIT"], &["SELECT 2"]],
    ),
    ("savepoints", &[&["BEGIN", "SAVEPOINT a"], &["SELECT 1/0"], &["ROLLBACK TO a"], &["COMMIT"]]),
    (
        "COMMIT and more in one",
        &[&["BEGIN", "DELETE FROM r", "COMMIT", "SELECT 1/0"], &["TABLE r"]],
    ),
    ("ROLLBACK without BEGIN", &[&["INSERT INTO r VALUES (4)", "ROLLBACK"], &["TABLE r"]]),
    ("empty statements", &[&["", ";"], &[], &["SELECT 1", ""], &[]]),
    ("settings", &[&["SET DateStyle = 'German'", "SELECT date '2020-02-01'"], &["RESET ALL"]]),
    ("SET LOCAL", &[&["SET LOCAL DateStyle = 'SQL'", "SELECT date '2020-02-01'"], &["SELECT 1"]]),
    ("DDL", &[&["CREATE TABLE made (n int)", "TABLE made"], &["DROP TABLE made"], &["TABLE made"]]),
    ("PREPARE in SQL", &[&["PREPARE p AS SELECT 1"], &["EXECUTE p"], &["DEALLOCATE p"]]),
    ("LISTEN and NOTIFY", &[&["LISTEN c", "NOTIFY c, '1'"], &["NOTIFY c, '2'"], &["UNLISTEN c"]]),
    ("what must be alone", &[&["SELECT 1", "VACUUM r"], &["VACUUM r"], &["VACUUM r", "SELECT 1"]]),
    ("EXPLAIN and SHOW", &[&["EXPLAIN (COSTS off) TABLE r", "SHOW DateStyle"], &["SHOW missing"]]),
    ("a cursor in SQL", &[&["BEGIN", "DECLARE c CURSOR FOR TABLE r"], &["FETCH c"], &["COMMIT"]]),
    (
        "procedures",
        &[&["DO $f$ BEGIN RAISE NOTICE 'n'; END $f$"], &["DO $f$ BEGIN COMMIT; END $f$"]],
    ),
    ("MERGE", &[&["MERGE INTO r USING r q ON r.n = q.n WHEN MATCHED THEN DELETE"], &["TABLE r"]]),
];

fn segments(talk: &mut Talk, all: &[&[&str]]) {
    talk.start();
    let mut bytes = Vec::new();
    for segment in all {
        bytes.extend(segment.iter().flat_map(|sql| program(sql)));
        bytes.extend(sync());
    }
    talk.send(&bytes);
    talk.ready(all.len());
    // The same with a Flush behind each message that could use one, cut at odd places.
    let mut bytes = Vec::new();
    for segment in all {
        bytes.extend(segment.iter().flat_map(|sql| [program(sql), flush()].concat()));
        bytes.extend(sync());
    }
    for piece in bytes.chunks(7) {
        talk.send(piece);
    }
    talk.ready(all.len());
}

fn flush_by_flush(talk: &mut Talk) {
    talk.start();
    for sql in ["SELECT 1", "INSERT INTO r VALUES (4)", "SELECT 2"] {
        talk.send(&[program(sql), flush()].concat());
        talk.until(b'C', 1);
    }
    say(talk, &[program("SELECT 1/0"), flush(), flush()], 0);
    talk.until(b'E', 1);
    say(talk, &[flush(), sync(), query("TABLE r")], 2);
}

fn portals_in_a_block(talk: &mut Talk) {
    talk.start();
    let rows = "SELECT g FROM generate_series(1, 7) g";
    say(talk, &[query("BEGIN"), parse("s", rows), bind("a", "s", &[]), bind("b", "s", &[])], 1);
    say(talk, &[execute("a", 2), sync(), execute("b", 3), execute("a", 2), sync()], 2);
    say(talk, &[close(b'P', "a"), execute("a", 1), sync()], 1);
    say(talk, &[execute("b", 1), sync(), query("ROLLBACK"), execute("b", 1), sync()], 3);
}

fn portals_and_errors(talk: &mut Talk) {
    talk.start();
    say(talk, &[query("BEGIN; SAVEPOINT s"), parse("", "TABLE r"), bind("a", "", &[])], 1);
    say(talk, &[execute("a", 1), parse("", "SELEC"), sync()], 1);
    say(talk, &[query("ROLLBACK TO s"), execute("a", 1), sync(), query("COMMIT")], 3);
}

fn resumed_over_flush(talk: &mut Talk) {
    talk.start();
    let rows = "SELECT g, repeat('z', 2000) FROM generate_series(1, 500) g";
    talk.send(&[parse("", rows), bind("", "", &[])].concat());
    for _ in 0..5 {
        talk.send(&[execute("", 90), flush()].concat());
        talk.until(b's', 1);
    }
    say(talk, &[execute("", 90), execute("", 90), sync()], 1);
}

fn held_cursor(talk: &mut Talk) {
    talk.start();
    say(talk, &[query("BEGIN; DECLARE h CURSOR WITH HOLD FOR TABLE r; COMMIT")], 1);
    say(talk, &[describe(b'P', "h"), execute("h", 1), sync(), query("FETCH h")], 2);
    say(talk, &[execute("h", 0), close(b'P', "h"), sync(), query("FETCH h")], 2);
}

fn wide(talk: &mut Talk) {
    talk.start();
    let columns: Vec<_> = (0..1_600).map(|n| format!("{n}")).collect();
    let wide = format!("SELECT {}", columns.join(","));
    say(talk, &[program(&wide), sync(), query(&wide)], 2);
    let many = ["$1::int"; 1].concat() + &"+ $1".repeat(900);
    let bound = bind("", "", &[Some("1")]);
    say(talk, &[parse("", &format!("SELECT {many}")), bound, execute("", 0), sync()], 1);
    let values: Vec<_> = (1..=65_535).map(|n| format!("(${n}::int)")).collect();
    let sql = format!("SELECT count(*) FROM (VALUES {}) v", values.join(","));
    let ones = vec![Some("1"); 65_535];
    say(talk, &[parse("", &sql), bind("", "", &ones), execute("", 0), sync()], 1);
}

fn unread_for_long(talk: &mut Talk) {
    talk.start();
    let sql = "SELECT repeat('u', 200000)";
    let all: Vec<_> = (0..20).map(|_| [program(sql), sync()].concat()).collect();
    talk.send(&all.concat());
    talk.ready(20);
}

fn half_a_message(talk: &mut Talk) {
    talk.start();
    let message = query("INSERT INTO r VALUES (4)");
    talk.send(&message[..message.len() / 2]);
    talk.shut();
    talk.end();
    let rows = talk.other().query("SELECT count(*) FROM talk.r").ok().cell();
    talk.remark(&rows);
}

/// The end of the client's sending, behind what it wants answered.
fn shut_behind(talk: &mut Talk) {
    talk.start();
    talk.send(&[program("INSERT INTO r VALUES (4)"), sync(), query("TABLE r")].concat());
    talk.shut();
    talk.end();
}

fn shut_without_sync(talk: &mut Talk) {
    talk.start();
    talk.send(&[program("INSERT INTO r VALUES (4)"), flush()].concat());
    talk.until(b'C', 1);
    talk.shut();
    talk.end();
    let rows = talk.other().query("SELECT count(*) FROM talk.r").ok().cell();
    talk.remark(&rows);
}

fn names_of_all_lengths(talk: &mut Talk) {
    talk.start();
    for length in [1, 62, 63, 64, 200, 4_000] {
        let name = "n".repeat(length);
        let bound = [bind(&name, &name, &[]), execute(&name, 0), close(b'S', &name)].concat();
        say(talk, &[parse(&name, "SELECT 1"), bound, sync()], 1);
    }
}

fn parameter_types(talk: &mut Talk) {
    talk.start();
    let mut unknown = b"u\0SELECT $1\0\0\x01".to_vec();
    unknown.extend_from_slice(&999_999_u32.to_be_bytes());
    say(talk, &[frame(b'P', &unknown), sync()], 1);
    say(talk, &[parse("", "SELECT $2::int"), describe(b'S', ""), sync()], 1);
    say(talk, &[parse("d", "SELECT $1 || $1"), describe(b'S', "d"), sync()], 1);
    let null = bind("", "d", &[None]);
    say(talk, &[null, describe(b'P', ""), execute("", 0), sync()], 1);
}

pub(super) fn cases() -> Vec<Case> {
    let segmented = SEGMENTS.iter().map(|(name, all)| {
        Case::new(format!("pipeline: {name}"), |talk: &mut Talk| segments(talk, all))
    });
    segmented
        .chain([
            Case::new("pipeline: Flush by Flush", flush_by_flush),
            Case::new("pipeline: portals over Syncs in a block", portals_in_a_block),
            Case::new("pipeline: portals and a savepoint", portals_and_errors),
            Case::new("pipeline: a portal resumed over Flushes", resumed_over_flush),
            Case::new("pipeline: a held cursor as a portal", held_cursor),
            Case::new("pipeline: as many columns and parameters as there can be", wide),
            Case::new("pipeline: 4 MB of answers before any is read", unread_for_long),
            Case::new("pipeline: the client ends in a message", half_a_message),
            Case::new("pipeline: the client ends behind its programs", shut_behind),
            Case::new("pipeline: the client ends without Sync", shut_without_sync),
            Case::new("pipeline: names of all lengths", names_of_all_lengths),
            Case::new("pipeline: types of parameters", parameter_types),
        ])
        .collect()
}
