//! Prepared statements: by number, with cursors, in pieces.

use super::{Answer, Case, Profile, Talk};
use crate::support::my_wire::MyLogin;
use crate::support::my_wire::{flag, packets, put_lenenc};

const PREPARE: u8 = 0x16;
const EXECUTE: u8 = 0x17;
const LONG_DATA: u8 = 0x18;
const CLOSE: u8 = 0x19;
const RESET: u8 = 0x1a;
const FETCH: u8 = 0x1c;

/// COM_STMT_EXECUTE of statement `id` with strings or NULL.
fn execute(talk: &Talk, id: u32, flags: u8, values: &[Option<&[u8]>], types: bool) -> Vec<u8> {
    let mut payload = numbered(talk, EXECUTE, id);
    payload.push(flags);
    payload.extend(1_u32.to_le_bytes());
    if values.is_empty() {
        return payload;
    }
    let mut nulls = vec![0_u8; values.len().div_ceil(8)];
    for (n, value) in values.iter().enumerate() {
        if value.is_none() {
            nulls[n / 8] |= 1 << (n % 8);
        }
    }
    payload.extend(nulls);
    payload.push(u8::from(types));
    if types {
        for _ in values {
            payload.extend([0xfd, 0]);
        }
    }
    for value in values.iter().flatten() {
        put_lenenc(&mut payload, value);
    }
    payload
}

fn prepare(talk: &mut Talk, sql: &str) {
    let payload = [&[PREPARE], sql.as_bytes()].concat();
    talk.command(&payload, Answer::Prepared);
}

fn run(talk: &mut Talk, id: u32, values: &[Option<&[u8]>]) {
    let payload = execute(talk, id, 0, values, true);
    talk.command(&payload, Answer::Results);
}

/// A command that names the statement prepared as the `id`th.
pub fn numbered(talk: &Talk, opcode: u8, id: u32) -> Vec<u8> {
    [&[opcode], &talk.number(id).to_le_bytes()[..]].concat()
}

fn fetch(talk: &mut Talk, id: u32, rows: u32) {
    let payload = [&numbered(talk, FETCH, id)[..], &rows.to_le_bytes()].concat();
    talk.command(&payload, Answer::ToEof);
}

fn long_data(talk: &mut Talk, id: u32, parameter: u16, data: &[u8]) {
    let payload = [&numbered(talk, LONG_DATA, id)[..], &parameter.to_le_bytes(), data].concat();
    talk.command(&payload, Answer::None);
}

/// Told under each of these.
const PROFILES: &[Profile] = &[
    ("old", |db| MyLogin::of("wire", db)),
    ("new", |db| MyLogin::of("wire", db).with(flag::DEPRECATE_EOF | flag::SESSION_TRACK)),
    ("over TLS", |db| MyLogin::of("wire", db).over_tls()),
];

type Script = fn(&mut Talk);

static SCRIPTS: &[(&str, Script)] = &[
    ("without parameters", |talk| {
        prepare(talk, "SELECT n, s FROM r ORDER BY n");
        run(talk, 1, &[]);
        run(talk, 1, &[]);
    }),
    ("with parameters", |talk| {
        prepare(talk, "SELECT n, s, ? FROM r WHERE n > ? ORDER BY n");
        run(talk, 1, &[Some(b"x"), Some(b"1")]);
        run(talk, 1, &[None, Some(b"0")]);
        let again = execute(talk, 1, 0, &[Some(b"y"), Some(b"2")], false);
        talk.command(&again, Answer::Results);
    }),
    ("writes", |talk| {
        prepare(talk, "INSERT INTO w VALUES (?, ?)");
        run(talk, 1, &[Some(b"200"), Some(b"a")]);
        run(talk, 1, &[Some(b"200"), Some(b"a")]);
        prepare(talk, "DELETE FROM w WHERE n = ?");
        run(talk, 2, &[Some(b"200")]);
    }),
    ("transactions", |talk| {
        prepare(talk, "BEGIN");
        prepare(talk, "INSERT INTO w VALUES (201, 'x')");
        prepare(talk, "ROLLBACK");
        for id in [1, 2, 3, 2, 1] {
            run(talk, id, &[]);
        }
        talk.ask(&["ROLLBACK", "DELETE FROM w WHERE n = 201"]);
    }),
    ("errors", |talk| {
        prepare(talk, "SELEC 1");
        prepare(talk, "SELECT * FROM nowhere");
        prepare(talk, "SELECT 1; SELECT 2");
        prepare(talk, "");
        run(talk, 77, &[]);
        prepare(talk, "SELECT (SELECT n FROM r)");
        talk.ask(&["SELECT 1"]);
    }),
    ("closed and reset", |talk| {
        prepare(talk, "SELECT 1");
        let payload = numbered(talk, RESET, 1);
        talk.command(&payload, Answer::One);
        let payload = numbered(talk, RESET, 99);
        talk.command(&payload, Answer::One);
        let payload = numbered(talk, CLOSE, 1);
        talk.command(&payload, Answer::None);
        let payload = numbered(talk, CLOSE, 99);
        talk.command(&payload, Answer::None);
        run(talk, 1, &[]);
        prepare(talk, "SELECT 2");
        run(talk, 2, &[]);
    }),
    ("in pieces", |talk| {
        prepare(talk, "SELECT LENGTH(?), LEFT(?, 10)");
        long_data(talk, 1, 0, &[b'x'; 1000]);
        long_data(talk, 1, 0, &[b'y'; 1000]);
        long_data(talk, 1, 1, b"short");
        let mut payload = execute(talk, 1, 0, &[None, None], true);
        // Neither is NULL, and neither has a value here.
        payload[10] = 0;
        talk.command(&payload, Answer::Results);
        long_data(talk, 1, 0, b"gone");
        let payload = numbered(talk, RESET, 1);
        talk.command(&payload, Answer::One);
        run(talk, 1, &[Some(b"a"), Some(b"b")]);
        long_data(talk, 1, 9, b"no such parameter");
        run(talk, 1, &[Some(b"a"), Some(b"b")]);
        long_data(talk, 99, 0, b"no such statement");
        talk.ask(&["SELECT 1"]);
    }),
    ("cursors", |talk| {
        prepare(talk, "SELECT n, s FROM r ORDER BY n");
        let open = execute(talk, 1, 1, &[], true);
        talk.command(&open, Answer::Results);
        fetch(talk, 1, 1);
        talk.ask(&["SELECT 'between'"]);
        fetch(talk, 1, 1);
        fetch(talk, 1, 5);
        fetch(talk, 1, 5);
        fetch(talk, 99, 5);
    }),
    ("cursors: closed early and opened again", |talk| {
        prepare(talk, "SELECT n FROM r ORDER BY n");
        let open = execute(talk, 1, 1, &[], true);
        talk.command(&open, Answer::Results);
        fetch(talk, 1, 1);
        let payload = numbered(talk, RESET, 1);
        talk.command(&payload, Answer::One);
        fetch(talk, 1, 1);
        talk.command(&open, Answer::Results);
        talk.command(&open, Answer::Results);
        fetch(talk, 1, 2);
        let payload = numbered(talk, CLOSE, 1);
        talk.command(&payload, Answer::None);
        talk.ask(&["SELECT 1"]);
    }),
    ("cursors: without rows, and for a write", |talk| {
        prepare(talk, "SELECT n FROM r WHERE FALSE");
        let open = execute(talk, 1, 1, &[], true);
        talk.command(&open, Answer::Results);
        fetch(talk, 1, 1);
        prepare(talk, "DELETE FROM w WHERE n = 202");
        let open = execute(talk, 2, 1, &[], true);
        talk.command(&open, Answer::Results);
        fetch(talk, 2, 1);
    }),
    ("procedures", |talk| {
        prepare(talk, "CALL two()");
        run(talk, 1, &[]);
        prepare(talk, "CALL outs(?, ?, ?)");
        run(talk, 2, &[Some(b"1"), Some(b"2"), Some(b"3")]);
        prepare(talk, "CALL fails()");
        run(talk, 3, &[]);
    }),
    ("tables come, go and change", |talk| {
        prepare(talk, "CREATE TABLE pc (n INT)");
        run(talk, 1, &[]);
        prepare(talk, "SELECT * FROM pc");
        run(talk, 2, &[]);
        talk.ask(&["ALTER TABLE pc ADD s TEXT", "INSERT INTO pc VALUES (1, 'x')"]);
        run(talk, 2, &[]);
        talk.ask(&["DROP TABLE pc"]);
        run(talk, 2, &[]);
    }),
    ("every kind of value", |talk| {
        prepare(
            talk,
            "SELECT CAST(? AS SIGNED), CAST('2026-01-02' AS DATE), \
             CAST('2026-01-02 03:04:05.678' AS DATETIME(3)), CAST('-12:34:56' AS TIME), \
             CAST(1.25 AS DECIMAL(10,4)), 1e3, x'00ff', NULL, REPEAT('x', 300)",
        );
        run(talk, 1, &[Some(b"7")]);
    }),
    ("many", |talk| {
        for id in 1..=50 {
            prepare(talk, "SELECT ?");
            run(talk, id, &[Some(b"x")]);
        }
        for id in 1..=50 {
            let payload = numbered(talk, CLOSE, id);
            talk.command(&payload, Answer::None);
        }
        talk.command(&[14], Answer::One);
    }),
    ("parameters that are numbers", |talk| {
        prepare(talk, "SELECT ? + ?");
        let mut payload = numbered(talk, EXECUTE, 1);
        payload.extend([0, 1, 0, 0, 0, 0, 1]);
        payload.extend([8, 0, 3, 0]);
        payload.extend(5_u64.to_le_bytes());
        payload.extend(6_u32.to_le_bytes());
        talk.command(&payload, Answer::Results);
    }),
    ("an iteration count of none", |talk| {
        prepare(talk, "SELECT 1");
        let payload = [&numbered(talk, EXECUTE, 1)[..], &[0; 5]].concat();
        talk.command(&payload, Answer::Results);
    }),
    ("cut short", |talk| {
        prepare(talk, "SELECT ?");
        let payload = numbered(talk, EXECUTE, 1);
        talk.command(&payload, Answer::One);
        if talk.is_open() {
            talk.command(&[14], Answer::One);
        }
    }),
    ("in flight", |talk| {
        prepare(talk, "SELECT n FROM r WHERE n = ?");
        let mut bytes = Vec::new();
        for value in [b"1", b"2", b"3"] {
            let payload = execute(talk, 1, 0, &[Some(value)], true);
            bytes.extend(packets(&payload, &mut 0));
        }
        bytes.extend(packets(&numbered(talk, CLOSE, 1), &mut 0));
        bytes.extend(packets(&[14], &mut 0));
        talk.send_raw(&bytes);
        for _ in 0..3 {
            talk.read(Answer::Results);
        }
        talk.read(Answer::One);
    }),
    ("survive nothing of a reset", |talk| {
        prepare(talk, "SELECT 1");
        talk.command(&[31], Answer::One);
        run(talk, 1, &[]);
        prepare(talk, "SELECT 2");
        run(talk, 1, &[]);
        run(talk, 2, &[]);
    }),
];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, script) in SCRIPTS {
        for (profile, login) in PROFILES {
            cases.push(Case::new(format!("prepared: {name}, {profile}"), *script).by(*login));
        }
    }
    cases.push(
        Case::new("prepared: query attributes", |talk: &mut Talk| {
            talk.ask(&["SELECT 1", "SELEC"]);
            prepare(talk, "SELECT n FROM r WHERE n = ?");
            // One parameter, and one attribute by name behind it.
            let mut payload = numbered(talk, EXECUTE, 1);
            payload.extend([8, 1, 0, 0, 0, 2, 0, 1]);
            payload.extend([0xfd, 0, 0]);
            payload.extend([0xfd, 0]);
            put_lenenc(&mut payload, b"trace");
            put_lenenc(&mut payload, b"2");
            put_lenenc(&mut payload, b"abc");
            talk.command(&payload, Answer::Results);
            // COM_QUERY with one attribute.
            let mut payload = vec![3, 1, 1, 0, 1, 0xfd, 0];
            put_lenenc(&mut payload, b"trace");
            put_lenenc(&mut payload, b"xyz");
            payload.extend(b"SELECT n FROM r ORDER BY n");
            talk.command(&payload, Answer::Results);
        })
        .by(|db| MyLogin::of("wire", db).with(flag::QUERY_ATTRIBUTES)),
    );
    cases
}
