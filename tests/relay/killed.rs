//! The engine ends the session, at each point.

use super::calling::call;
use super::{Case, Talk};
use crate::support::wire::{bind, copy_data, describe, execute, flush, parse, query, sync};

/// What brings a session to the point, and what its backend waits for there.
struct Point {
    name: &'static str,
    go: fn(&mut Talk),
    waits: &'static str,
}

const SLEEP: &str = "SELECT pg_sleep(600)";
/// `pg_sleep` itself, for a FunctionCall.
const PG_SLEEP: u32 = 2626;

fn program(sql: &str) -> Vec<u8> {
    [parse("", sql), bind("", "", &[]), execute("", 0)].concat()
}

const POINTS: &[Point] = &[
    Point { name: "idle", go: |_| {}, waits: "ClientRead" },
    Point {
        name: "in a transaction",
        go: |talk| talk.ask(&["BEGIN; INSERT INTO r VALUES (4)"]),
        waits: "ClientRead",
    },
    Point {
        name: "in a failed transaction",
        go: |talk| talk.ask(&["BEGIN", "SELECT 1/0"]),
        waits: "ClientRead",
    },
    Point { name: "running", go: |talk| talk.send(&query(SLEEP)), waits: "PgSleep" },
    Point {
        name: "running, with more in flight",
        go: |talk| talk.send(&[query(SLEEP), query("SELECT 1"), query("BEGIN")].concat()),
        waits: "PgSleep",
    },
    Point {
        name: "running a write",
        go: |talk| talk.send(&query("INSERT INTO r SELECT 4 FROM pg_sleep(600)")),
        waits: "PgSleep",
    },
    Point {
        name: "between rows",
        go: |talk| {
            let sql = "SELECT n, CASE n WHEN 3 THEN pg_sleep(600) END FROM r ORDER BY n";
            talk.send(&query(sql));
        },
        waits: "PgSleep",
    },
    Point {
        name: "after Parse",
        go: |talk| {
            talk.send(&[parse("", "TABLE r"), flush()].concat());
            talk.until(b'1', 1);
        },
        waits: "ClientRead",
    },
    Point {
        name: "after Describe",
        go: |talk| {
            let bound = [parse("", "TABLE r"), bind("", "", &[]), describe(b'P', "")].concat();
            talk.send(&[bound, flush()].concat());
            talk.until(b'T', 1);
        },
        waits: "ClientRead",
    },
    Point {
        name: "after Bind",
        go: |talk| {
            talk.send(&[parse("", "TABLE r"), bind("", "", &[]), flush()].concat());
            talk.until(b'2', 1);
        },
        waits: "ClientRead",
    },
    Point {
        name: "with a write executed and no Sync behind it",
        go: |talk| {
            talk.send(&[program("INSERT INTO r VALUES (4)"), flush()].concat());
            talk.until(b'C', 1);
        },
        waits: "ClientRead",
    },
    Point {
        name: "with several Syncs in flight",
        go: |talk| {
            let first = [program("INSERT INTO r VALUES (4)"), sync()].concat();
            let more = [program(SLEEP), sync(), program("INSERT INTO r VALUES (5)"), sync()];
            talk.send(&[first, more.concat()].concat());
            talk.ready(1);
        },
        waits: "PgSleep",
    },
    Point {
        name: "in a FunctionCall",
        go: |talk| talk.send(&call(PG_SLEEP, false, &[Some(b"600")])),
        waits: "PgSleep",
    },
    Point {
        name: "with a portal suspended",
        go: |talk| {
            let some = [parse("", "TABLE r"), bind("", "", &[]), execute("", 1), flush()].concat();
            talk.send(&some);
            talk.until(b's', 1);
        },
        waits: "ClientRead",
    },
    Point {
        name: "in an Execute",
        go: |talk| {
            let program = [parse("", SLEEP), bind("", "", &[]), execute("", 0), sync()].concat();
            talk.send(&program);
        },
        waits: "PgSleep",
    },
    Point {
        name: "skipping to Sync",
        go: |talk| {
            talk.send(&parse("", "SELEC"));
            talk.until(b'E', 1);
        },
        waits: "ClientRead",
    },
    Point {
        name: "in COPY in",
        go: |talk| {
            talk.send(&query("COPY r FROM STDIN"));
            talk.until(b'G', 1);
            talk.send(&copy_data(b"4\tx\n5"));
        },
        waits: "ClientRead",
    },
    Point {
        name: "in COPY out",
        go: |talk| {
            let rows = "SELECT n, CASE n WHEN 3 THEN pg_sleep(600) END FROM r ORDER BY n";
            talk.send(&query(&format!("COPY ({rows}) TO STDOUT")));
        },
        waits: "PgSleep",
    },
    Point {
        name: "with a cursor open",
        go: |talk| talk.ask(&["BEGIN; DECLARE c CURSOR FOR TABLE r", "FETCH c"]),
        waits: "ClientRead",
    },
    Point {
        name: "listening",
        go: |talk| talk.ask(&["LISTEN c", "NOTIFY c"]),
        waits: "ClientRead",
    },
    Point {
        name: "with a transaction prepared",
        go: |talk| {
            let name = format!("of_{}", talk.db);
            talk.ask(&["BEGIN", &format!("PREPARE TRANSACTION '{name}'")]);
            talk.ask(&[&format!("ROLLBACK PREPARED '{name}'")]);
        },
        waits: "ClientRead",
    },
    Point {
        name: "in a trigger at COMMIT",
        go: |talk| {
            talk.ask(&["SET client_min_messages = error; CREATE TABLE late (n int);
                CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $f$
                BEGIN PERFORM pg_sleep(600); RETURN NULL; END $f$;
                CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON late INITIALLY DEFERRED
                FOR EACH ROW EXECUTE FUNCTION slow()"]);
            talk.ask(&["BEGIN; INSERT INTO late VALUES (1)"]);
            talk.send(&query("COMMIT"));
        },
        waits: "PgSleep",
    },
];

fn killed(talk: &mut Talk, point: &Point) {
    talk.start();
    (point.go)(talk);
    talk.wait_for(point.waits);
    talk.kill();
    talk.end();
    let mut other = talk.other();
    let rows = other.query("SELECT count(*) FROM talk.r").ok().cell();
    talk.remark(&rows);
}

/// By its own statement, and by a limit that it set itself.
fn by_itself(talk: &mut Talk) {
    talk.start();
    talk.ask(&["BEGIN; INSERT INTO r VALUES (4)"]);
    talk.send(&query("SELECT pg_terminate_backend(pg_backend_pid())"));
    talk.end();
}

fn by_timeout(talk: &mut Talk) {
    talk.start();
    talk.ask(&["SET idle_in_transaction_session_timeout = 50", "BEGIN"]);
    talk.end();
}

fn by_idle_timeout(talk: &mut Talk) {
    talk.start();
    talk.ask(&["SET idle_session_timeout = 50"]);
    talk.end();
}

pub(super) fn cases() -> Vec<Case> {
    let at = POINTS.iter().map(|point| {
        Case::new(format!("killed: {}", point.name), move |talk: &mut Talk| killed(talk, point))
    });
    at.chain([
        Case::new("killed: by its own statement", by_itself),
        Case::new("killed: idle in a transaction for too long", by_timeout),
        Case::new("killed: idle for too long", by_idle_timeout),
    ])
    .collect()
}
