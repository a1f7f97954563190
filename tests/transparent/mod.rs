//! Playing a conversation, and comparing what two of them were told.
//!
//! Purpose: `transparent_pg.rs` plays each script twice. Invariants: what is read is decided by the
//! script alone (so many ReadyForQuery, and at the end a query that says it is the end), so that
//! two plays read at the same places; every read has a deadline (`support/wire.rs`).

#![allow(unreachable_pub, missing_docs)]

pub mod script;

use crate::support::Wire;
use crate::support::wire::{Frame, query, sync};
use script::{Script, Step};

/// The tables as each play finds them. `place` is one or the other by `search_path`.
pub const SETUP: &str = "
    SET client_min_messages = error; SET ROLE app;
    DROP TABLE IF EXISTS w, made; DROP SCHEMA IF EXISTS a, b CASCADE;
    CREATE TABLE w (n int PRIMARY KEY, v text);
    INSERT INTO w SELECT n, 'v' || n FROM generate_series(1, 3) n;
    CREATE SCHEMA a; CREATE TABLE a.place (x text); INSERT INTO a.place VALUES ('in a');
    CREATE SCHEMA b; CREATE TABLE b.place (x text); INSERT INTO b.place VALUES ('in b');
    CREATE OR REPLACE FUNCTION hidden() RETURNS text LANGUAGE plpgsql AS $$
      BEGIN PERFORM set_config('DateStyle', 'SQL, DMY', false); RETURN 'set'; END $$";

/// Plays a script on a fresh session; answers all that was said.
pub fn play(client: &mut Wire, script: &Script) -> Vec<Frame> {
    let (mut told, mut ready) = (Vec::new(), 0);
    for step in &script.steps {
        match step {
            Step::Send { bytes, .. } => client.send_raw(bytes),
            Step::Ready(count) => {
                while ready < *count {
                    let frame = client.read_frame();
                    ready += usize::from(frame.0 == b'Z');
                    told.push(frame);
                }
            }
        }
    }
    client.send_raw(&[sync(), query("ROLLBACK"), query("SELECT 'the end'")].concat());
    let mut over = false;
    loop {
        let frame = client.read_frame();
        over |= frame.0 == b'D' && frame.1.ends_with(b"the end");
        let done = over && frame.0 == b'Z';
        told.push(frame);
        if done {
            return told.into_iter().map(masked).collect();
        }
    }
}

/// Without the object ids of tables, which are made anew for each play.
fn masked((tag, mut body): Frame) -> Frame {
    if tag == b'T' {
        let mut at = 2;
        while let Some(name) = body[at..].iter().position(|byte| *byte == 0) {
            at += name + 1;
            body[at..at + 4].fill(0);
            at += 18;
        }
    }
    (tag, body)
}

/// The first frame in which two plays differ.
pub fn difference(expected: &[Frame], seen: &[Frame]) -> Option<String> {
    let shared = expected.iter().zip(seen).take_while(|(a, b)| a == b).count();
    let show = |frames: &[Frame]| {
        let around = frames.iter().skip(shared.saturating_sub(2)).take(5);
        let each = around.map(|(tag, body)| format!("{}:{}", *tag as char, body.escape_ascii()));
        each.collect::<Vec<_>>().join("\n    ")
    };
    let same = shared == expected.len() && shared == seen.len();
    (!same).then(|| {
        format!(
            "behind {shared} frames\n  through the proxy:\n    {}\n  instead of\n    {}",
            show(seen),
            show(expected)
        )
    })
}
