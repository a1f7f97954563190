//! COPY with something wrong at each point, begun by either protocol, in and out of a transaction.

use super::{Case, Talk};
use crate::support::wire::{bind, copy_data, copy_done, execute, flush, frame, parse, query, sync};

/// The statement, and what the client sends once it is asked for data.
struct Point {
    name: &'static str,
    sql: &'static str,
    data: Bytes,
}

/// Messages of the client's.
type Bytes = fn() -> Vec<u8>;

/// A way to come to a point.
type Manner = fn(&mut Talk, &Point);

const TEXT: &str = "COPY r FROM STDIN";
const BINARY: &str = "COPY r FROM STDIN (FORMAT binary)";

fn fail() -> Vec<u8> {
    frame(b'f', b"the client's reason\0")
}

const IN: &[Point] = &[
    Point { name: "CopyFail at once", sql: TEXT, data: fail },
    Point {
        name: "CopyFail after data",
        sql: TEXT,
        data: || [copy_data(b"4\tx\n"), copy_data(b"5"), fail()].concat(),
    },
    Point {
        name: "the first row",
        sql: TEXT,
        data: || [copy_data(b"x\tx\n"), copy_data(b"5\tx\n"), copy_done()].concat(),
    },
    Point {
        name: "the last row",
        sql: TEXT,
        data: || [copy_data(b"4\tx\n5\tx\n"), copy_data(b"1\tagain\n"), copy_done()].concat(),
    },
    Point {
        name: "a row cut short",
        sql: TEXT,
        data: || [copy_data(b"4\tx\n5"), copy_done()].concat(),
    },
    Point {
        name: "too many columns",
        sql: TEXT,
        data: || [copy_data(b"4\tx\ty\n"), copy_done()].concat(),
    },
    Point {
        name: "bytes that aren't text",
        sql: TEXT,
        data: || [copy_data(b"4\t\xff\xfe\n"), copy_done()].concat(),
    },
    Point {
        name: "a header that doesn't match",
        sql: "COPY r FROM STDIN (FORMAT csv, HEADER match)",
        data: || [copy_data(b"a,b\n4,x\n"), copy_done()].concat(),
    },
    Point {
        name: "a quote left open",
        sql: "COPY r FROM STDIN (FORMAT csv)",
        data: || [copy_data(b"4,\"x\n"), copy_done()].concat(),
    },
    Point {
        name: "no binary signature",
        sql: BINARY,
        data: || [copy_data(b"not what it says, clearly"), copy_done()].concat(),
    },
    Point {
        name: "binary, cut short",
        sql: BINARY,
        data: || {
            let head = copy_data(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x02\0\0");
            [head, copy_done()].concat()
        },
    },
    Point {
        name: "a trigger at the end",
        sql: "COPY late FROM STDIN",
        data: || [copy_data(b"4\n"), copy_done()].concat(),
    },
];

const LATE: &str = "SET client_min_messages = error; CREATE TABLE late (n int);
    CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $f$
    BEGIN RAISE NOTICE 'on the way'; RAISE EXCEPTION 'refused at the end'; END $f$;
    CREATE CONSTRAINT TRIGGER no AFTER INSERT ON late INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION no()";

fn prepare(talk: &mut Talk) {
    talk.start();
    talk.ask(&[LATE, "RESET client_min_messages"]);
}

fn simple(talk: &mut Talk, point: &Point) {
    prepare(talk);
    talk.send(&query(point.sql));
    talk.until(b'G', 1);
    talk.send(&(point.data)());
    talk.ready(1);
    talk.ask(&["SELECT count(*) FROM r"]);
}

fn in_a_transaction(talk: &mut Talk, point: &Point) {
    prepare(talk);
    talk.ask(&["BEGIN; INSERT INTO r VALUES (9)"]);
    talk.send(&query(point.sql));
    talk.until(b'G', 1);
    talk.send(&(point.data)());
    talk.ready(1);
    talk.ask(&["COMMIT", "SELECT count(*) FROM r"]);
}

/// Data behind the pipeline's own Sync, and a Sync behind the data, as drivers do it.
fn extended(talk: &mut Talk, point: &Point) {
    prepare(talk);
    talk.send(&[parse("", point.sql), bind("", "", &[]), execute("", 0), sync()].concat());
    talk.until(b'G', 1);
    talk.send(&[(point.data)(), sync(), query("SELECT count(*) FROM r")].concat());
    talk.ready(2);
}

/// Everything in one go, with a Flush in front of the data.
fn flushed(talk: &mut Talk, point: &Point) {
    prepare(talk);
    let begin = [parse("", point.sql), bind("", "", &[]), execute("", 0), flush()].concat();
    talk.send(&[begin, (point.data)(), sync(), query("SELECT count(*) FROM r")].concat());
    talk.ready(2);
}

/// Copies out, with an error, and something behind each.
const OUT: &[(&str, &str)] = &[
    ("before the first row", "COPY (SELECT 1/(n - 1) FROM r ORDER BY n) TO STDOUT"),
    ("at the last row", "COPY (SELECT 1/(n - 3) FROM r ORDER BY n) TO STDOUT"),
    (
        "after megabytes",
        "COPY (SELECT 1/(3000 - g), repeat('y', 1000) FROM generate_series(1, 4000) g) TO STDOUT",
    ),
    ("in what the rows come from", "COPY (UPDATE r SET n = 1 RETURNING n) TO STDOUT"),
    ("for want of rights", "COPY r TO '/nowhere/file'"),
    ("for want of a table", "COPY missing TO STDOUT"),
];

fn out(talk: &mut Talk, sql: &str) {
    talk.start();
    talk.ask(&[sql, "SELECT 1", "BEGIN", sql, "SELECT 2", "ROLLBACK"]);
    let program = [parse("", sql), bind("", "", &[]), execute("", 0), sync()].concat();
    talk.send(&[program, query("SELECT 3")].concat());
    talk.ready(2);
}

/// What doesn't belong into a COPY, in its middle.
const FATAL: &[(&str, Bytes)] = &[
    ("Query", || query("SELECT 1")),
    ("Parse", || parse("", "SELECT 1")),
    ("Execute", || execute("", 0)),
    ("Terminate", || frame(b'X', &[])),
];

fn fatal(talk: &mut Talk, message: &[u8]) {
    talk.start();
    talk.send(&query(TEXT));
    talk.until(b'G', 1);
    talk.send(&[&copy_data(b"4\tx\n"), message].concat());
    talk.end();
    let mut other = talk.other();
    let rows = other.query("SELECT count(*) FROM talk.r").ok().cell();
    talk.remark(&rows);
}

pub(super) fn cases() -> Vec<Case> {
    let manners: [(&str, Manner); 4] = [
        ("simple", simple),
        ("in a transaction", in_a_transaction),
        ("extended", extended),
        ("extended, in one go", flushed),
    ];
    let mut cases = Vec::new();
    for (manner, run) in manners {
        for point in IN {
            let name = format!("copy in: {}, {manner}", point.name);
            cases.push(Case::new(name, move |talk: &mut Talk| run(talk, point)));
        }
    }
    for (point, sql) in OUT {
        cases.push(Case::new(format!("copy out: {point}"), |talk: &mut Talk| out(talk, sql)));
    }
    for (what, message) in FATAL {
        let name = format!("copy in: {what} in the middle");
        cases.push(Case::new(name, |talk: &mut Talk| fatal(talk, &message())));
    }
    cases
}
