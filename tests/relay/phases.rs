//! Errors in every phase of the extended protocol, each in every surrounding.

use super::{Case, Talk};
use crate::support::wire::{bind, close, describe, execute, flush, frame, parse, query, sync};

/// A pipeline without its Sync.
type Pipeline = fn() -> Vec<u8>;

/// What is around it.
type Surrounding = fn(&mut Talk, &[u8]);

const PHASES: &[(&str, Pipeline)] = &[
    ("Parse, bad syntax", || parse("", "SELEC")),
    ("Parse, no such table", || parse("", "SELECT * FROM missing")),
    ("Parse, two statements", || parse("", "SELECT 1; SELECT 2")),
    ("Parse, a name in use", || [parse("p", "SELECT 1"), parse("p", "SELECT 2")].concat()),
    ("Bind, too few values", || [parse("", "SELECT $1::int"), bind("", "", &[])].concat()),
    ("Bind, a bad value", || [parse("", "SELECT $1::int"), bind("", "", &[Some("x")])].concat()),
    ("Bind, no such statement", || bind("", "missing", &[])),
    ("Bind, a bad format", || [parse("", "SELECT 1"), frame(b'B', b"\0\0\0\x01\0\x07")].concat()),
    ("Bind, a portal in use", || {
        let twice = [bind("c", "", &[]), bind("c", "", &[])].concat();
        [parse("", "SELECT 1"), twice].concat()
    }),
    ("Describe, no such portal", || describe(b'P', "missing")),
    ("Describe, no such statement", || describe(b'S', "missing")),
    ("Execute, no such portal", || execute("missing", 0)),
    ("Execute, at once", || running("SELECT 1/0")),
    ("Execute, after rows", || running("SELECT 1/(n - 3) FROM r ORDER BY n")),
    ("Execute, after a suspension", || {
        let bound = [parse("", "SELECT 1/(n - 3) FROM r ORDER BY n"), bind("", "", &[])].concat();
        [bound, execute("", 1), execute("", 1), execute("", 1)].concat()
    }),
    ("Execute, a constraint", || running("INSERT INTO r VALUES (1)")),
    ("Close, of a kind that isn't", || close(b'X', "a")),
];

fn running(sql: &str) -> Vec<u8> {
    [parse("", sql), bind("", "", &[]), describe(b'P', ""), execute("", 0)].concat()
}

fn alone(talk: &mut Talk, failing: &[u8]) {
    talk.start();
    talk.send(&[failing, &sync()].concat());
    talk.ready(1);
    talk.ask(&["SELECT count(*) FROM r"]);
}

/// In front of it and behind it, in its own segment and in the next.
fn surrounded(talk: &mut Talk, failing: &[u8]) {
    talk.start();
    let (before, behind) = (running("INSERT INTO r VALUES (7)"), running("SELECT 'skipped'"));
    let next = [running("SELECT 'next'"), sync()].concat();
    talk.send(&[&before, failing, &behind, &flush(), &sync(), &next].concat());
    talk.ready(2);
    talk.ask(&["SELECT count(*) FROM r"]);
}

/// In a transaction, which it breaks.
fn in_a_transaction(talk: &mut Talk, failing: &[u8]) {
    talk.start();
    talk.ask(&["BEGIN; INSERT INTO r VALUES (7)"]);
    talk.send(&[failing, &sync(), &running("SELECT 'refused'"), &sync()].concat());
    talk.ready(2);
    talk.send(&[running("ROLLBACK"), sync(), query("SELECT count(*) FROM r")].concat());
    talk.ready(2);
}

pub(super) fn cases() -> Vec<Case> {
    let surroundings: [(&str, Surrounding); 3] =
        [("alone", alone), ("between others", surrounded), ("in a transaction", in_a_transaction)];
    let mut cases = Vec::new();
    for (phase, failing) in PHASES {
        for (surrounding, run) in surroundings {
            let name = format!("error: {phase}, {surrounding}");
            cases.push(Case::new(name, move |talk: &mut Talk| run(talk, &failing())));
        }
    }
    cases
}
