//! Conversations with COPY.

use super::Talk;
use crate::support::wire::{
    bind, copy_data, copy_done, describe, execute, flush, frame, parse, query, sync,
};

const IN: &str = "COPY r FROM STDIN";

fn begin(talk: &mut Talk, sql: &str) {
    talk.start();
    talk.send(&query(sql));
    talk.until(b'G', 1);
}

fn finish(talk: &mut Talk, messages: &[Vec<u8>]) {
    talk.send(&messages.concat());
    talk.ready(1);
    talk.send(&query("TABLE r"));
    talk.ready(1);
}

fn give_up(why: &str) -> Vec<u8> {
    frame(b'f', format!("{why}\0").as_bytes())
}

pub(super) fn copy_in(talk: &mut Talk) {
    begin(talk, IN);
    finish(talk, &[copy_data(b"4\tfo"), copy_data(b"ur\n5\t"), copy_data(b"\\N\n"), copy_done()]);
    talk.send(&query("COPY r FROM STDIN WITH (FORMAT csv, HEADER)"));
    talk.until(b'G', 1);
    finish(talk, &[copy_data(b"n,s\n6,\"si,x\"\n"), copy_done()]);
    talk.send(&query(IN));
    talk.until(b'G', 1);
    finish(talk, &[copy_done()]);
}

pub(super) fn in_then_more(talk: &mut Talk) {
    begin(talk, "COPY r FROM STDIN; INSERT INTO r VALUES (7, 'behind'); SELECT count(*) FROM r");
    finish(talk, &[copy_data(b"4\tfour\n"), copy_done()]);
}

pub(super) fn in_given_up(talk: &mut Talk) {
    begin(talk, IN);
    finish(talk, &[copy_data(b"4\tfour\n"), give_up("enough")]);
    talk.send(&query("BEGIN; COPY r FROM STDIN"));
    talk.until(b'G', 1);
    talk.send(&give_up("again"));
    talk.ready(1);
    talk.send(&query("COMMIT"));
    talk.ready(1);
}

pub(super) fn in_bad_data(talk: &mut Talk) {
    begin(talk, IN);
    finish(talk, &[copy_data(b"4\tfour\nnot a number\n"), copy_data(b"5\t5\n"), copy_done()]);
    talk.send(&query(IN));
    talk.until(b'G', 1);
    // The error comes first; what was under way then is ignored by the engine.
    talk.send(&copy_data(b"1\tagain\n"));
    talk.send(&copy_done());
    talk.ready(1);
    finish(talk, &[copy_data(b"late"), copy_done(), query("SELECT 1")]);
}

pub(super) fn in_with_syncs(talk: &mut Talk) {
    begin(talk, IN);
    let data = [copy_data(b"4\tfour\n"), sync(), flush(), copy_data(b"5\tfive\n"), sync()].concat();
    finish(talk, &[data, copy_done()]);
    talk.send(&[sync(), query("SELECT 1")].concat());
    talk.ready(2);
}

pub(super) fn in_behind_sync(talk: &mut Talk) {
    talk.start();
    let program = [parse("", IN), bind("", "", &[]), execute("", 0), sync()].concat();
    talk.send(&program);
    talk.until(b'G', 1);
    finish(talk, &[copy_data(b"4\tfour\n"), copy_done(), sync()]);
    // All at once, the way some drivers do it, and another program right behind.
    let data = [copy_data(b"5\tfive\n"), copy_done(), sync()].concat();
    talk.send(&[program.clone(), data, query("SELECT 'behind'")].concat());
    talk.ready(2);
    // Without a Sync before the data.
    let program = [parse("", IN), bind("", "", &[]), describe(b'P', ""), execute("", 0)].concat();
    talk.send(&[program, flush()].concat());
    talk.until(b'G', 1);
    finish(talk, &[copy_data(b"6\tsix\n"), copy_done(), sync()]);
}

pub(super) fn in_pipeline_fails(talk: &mut Talk) {
    talk.start();
    let program = [parse("", IN), bind("", "", &[]), execute("", 0), sync()].concat();
    talk.send(&program);
    talk.until(b'G', 1);
    talk.send(&copy_data(b"not a number\n"));
    talk.send(&[copy_data(b"4\tlate\n"), copy_done(), sync()].concat());
    talk.ready(1);
    finish(talk, &[query("SELECT 1")]);
}

pub(super) fn query_in_copy(talk: &mut Talk) {
    begin(talk, IN);
    talk.send(&[copy_data(b"4\tfour\n"), query("SELECT 1")].concat());
    talk.end();
}

pub(super) fn copy_out(talk: &mut Talk) {
    talk.start();
    for sql in [
        "COPY r TO STDOUT",
        "COPY (SELECT n FROM r WHERE n < 3) TO STDOUT WITH (FORMAT csv, HEADER)",
        "COPY r TO STDOUT WITH (FORMAT binary)",
        "COPY (DELETE FROM r RETURNING n) TO STDOUT; SELECT count(*) FROM r",
        "COPY missing TO STDOUT",
    ] {
        talk.send(&query(sql));
        talk.ready(1);
    }
}

pub(super) fn out_large(talk: &mut Talk) {
    talk.start();
    let rows = "SELECT g, repeat('x', 1000) FROM generate_series(1, 5000) g";
    talk.send(&query(&format!("COPY ({rows}) TO STDOUT; SELECT 1")));
    talk.ready(1);
}

pub(super) fn out_fails(talk: &mut Talk) {
    talk.start();
    talk.send(&query("COPY (SELECT 1/(3 - n) FROM r ORDER BY n) TO STDOUT"));
    talk.ready(1);
    talk.send(&query("SELECT 1"));
    talk.ready(1);
}

pub(super) fn out_extended(talk: &mut Talk) {
    talk.start();
    let out = [parse("", "COPY r TO STDOUT"), bind("", "", &[]), execute("", 0)].concat();
    let more = [parse("", "SELECT 2"), bind("", "", &[]), execute("", 0), sync()].concat();
    talk.send(&[out, more, query("SELECT 3")].concat());
    talk.ready(2);
}

pub(super) fn stray(talk: &mut Talk) {
    talk.start();
    let late = [copy_data(b"nobody asked"), copy_done(), give_up("so what")].concat();
    talk.send(&[late, query("SELECT 1"), sync()].concat());
    talk.ready(2);
}
