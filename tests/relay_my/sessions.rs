//! Commands that concern the session, and several commands in flight.

use super::{Answer, Case, Talk};
use crate::support::my_wire::{flag, packets, put_lenenc};

const INIT_DB: u8 = 2;
const FIELD_LIST: u8 = 4;
const PING: u8 = 14;
const CHANGE_USER: u8 = 17;
const SET_OPTION: u8 = 27;
const RESET: u8 = 31;

pub fn cases() -> Vec<Case> {
    let mut cases = plain();
    cases.extend(schemas_and_resets());
    cases.extend(in_flight());
    cases.extend(killed());
    cases.extend(waits());
    cases.extend(opcodes());
    cases.extend(changes_of_user());
    cases
}

fn plain() -> Vec<Case> {
    vec![
        Case::new("session: ping", |talk: &mut Talk| {
            for _ in 0..3 {
                talk.command(&[PING], Answer::One);
            }
        }),
        Case::new("session: statistics", |talk: &mut Talk| {
            talk.command(&[9], Answer::One);
            talk.instead("a line of text");
            talk.command(&[PING], Answer::One);
        }),
        Case::new("session: quit", |talk: &mut Talk| {
            talk.command(&[1], Answer::None);
            talk.end();
        }),
        Case::new("session: quit in a transaction", |talk: &mut Talk| {
            talk.ask(&["DELETE FROM f", "BEGIN", "INSERT INTO w VALUES (100, 'x')"]);
            talk.command(&[1], Answer::None);
            talk.end();
            let mut other = talk.other();
            let count = other.query("SELECT count(*) FROM w WHERE n = 100").cell();
            talk.remark(count);
        }),
        Case::new("session: the client half-closes", |talk: &mut Talk| {
            let payload = talk.query_payload(b"SELECT 'the last words'");
            talk.send(&payload);
            talk.read(Answer::Results);
            talk.wire.shut();
            talk.end();
        }),
    ]
}

fn schemas_and_resets() -> Vec<Case> {
    vec![
        Case::new("session: another schema", |talk: &mut Talk| {
            for name in ["information_schema", "nowhere", "", "information_schema"] {
                let payload = [&[INIT_DB], name.as_bytes()].concat();
                talk.command(&payload, Answer::One);
                talk.ask(&["SELECT DATABASE()"]);
            }
        }),
        Case::new("session: columns of a table", |talk: &mut Talk| {
            for list in ["r\0", "r\0s%", "nowhere\0", "v\0"] {
                let payload = [&[FIELD_LIST], list.as_bytes()].concat();
                talk.command(&payload, Answer::ToEof);
            }
        }),
        Case::new("session: reset", |talk: &mut Talk| {
            talk.ask(&[
                "SET @x = 1",
                "CREATE TEMPORARY TABLE tt (n INT)",
                "USE information_schema",
                "SET autocommit = 0",
            ]);
            talk.command(&[RESET], Answer::One);
            talk.ask(&["SELECT @x, DATABASE()", "SELECT * FROM DB.tt"]);
        }),
        Case::new("session: reset in a transaction", |talk: &mut Talk| {
            talk.ask(&["BEGIN", "INSERT INTO w VALUES (101, 'x')"]);
            talk.command(&[RESET], Answer::One);
            talk.ask(&["SELECT count(*) FROM w WHERE n = 101", "ROLLBACK"]);
        }),
        Case::new("session: several statements allowed and forbidden", |talk: &mut Talk| {
            talk.ask(&["SELECT 1; SELECT 2"]);
            for on in [0, 1, 0, 7] {
                talk.command(&[SET_OPTION, on, 0], Answer::One);
                talk.ask(&["SELECT 1; SELECT 2"]);
            }
        }),
    ]
}

fn in_flight() -> Vec<Case> {
    vec![
        Case::new("session: pings in flight", |talk: &mut Talk| {
            let mut bytes = Vec::new();
            for _ in 0..20 {
                bytes.extend(packets(&[PING], &mut 0));
            }
            talk.send_raw(&bytes);
            for _ in 0..20 {
                talk.read(Answer::One);
            }
        }),
        Case::new("session: queries in flight", |talk: &mut Talk| {
            let mut bytes = Vec::new();
            let statements: [&[u8]; 5] =
                [b"SELECT n FROM r ORDER BY n", b"BEGIN", b"SELEC", b"SELECT 2", b"COMMIT"];
            for sql in statements {
                bytes.extend(packets(&talk.query_payload(sql), &mut 0));
            }
            talk.send_raw(&bytes);
            for _ in statements {
                talk.read(Answer::Results);
            }
        }),
        Case::new("session: one byte at a time", |talk: &mut Talk| {
            let bytes = packets(&talk.query_payload(b"SELECT n, s FROM r ORDER BY n"), &mut 0);
            for byte in bytes {
                talk.send_raw(&[byte]);
            }
            talk.read(Answer::Results);
        }),
    ]
}

fn killed() -> Vec<Case> {
    vec![
        Case::new("session: the engine ends it", |talk: &mut Talk| {
            let thread = talk.thread();
            talk.other().query(&format!("KILL {thread}")).ok();
            talk.end();
        }),
        Case::new("session: it ends itself", |talk: &mut Talk| {
            let thread = talk.thread();
            let sql = format!("KILL {thread}");
            talk.query(sql.as_bytes());
            talk.read(Answer::Results);
            talk.end();
        }),
        Case::new("session: a statement is killed", |talk: &mut Talk| {
            talk.query(b"SELECT SLEEP(60) AS killed");
            talk.wait_for("%SLEEP(60) AS killed%");
            let thread = talk.thread();
            talk.other().query(&format!("KILL QUERY {thread}")).ok();
            talk.read(Answer::Results);
            talk.ask(&["SELECT 1"]);
        }),
        Case::new("session: a write is killed", |talk: &mut Talk| {
            talk.ask(&["BEGIN"]);
            talk.query(b"INSERT INTO w SELECT 102, SLEEP(60) AS killed_write");
            talk.wait_for("%killed_write%");
            let thread = talk.thread();
            talk.other().query(&format!("KILL QUERY {thread}")).ok();
            talk.read(Answer::Results);
            talk.ask(&["SELECT count(*) FROM w WHERE n = 102", "ROLLBACK"]);
        }),
        Case::new("session: killed by opcode", |talk: &mut Talk| {
            let mut other = talk.other();
            let payload = [&[12], &other.greeting.thread_id.to_le_bytes()[..]].concat();
            talk.command(&payload, Answer::One);
            let gone = talk.is_open() && other.try_query("SELECT 1").is_err();
            talk.remark(format!("the other one is gone: {gone}"));
        }),
    ]
}

fn waits() -> Vec<Case> {
    vec![
        Case::new("session: a lock waits too long", |talk: &mut Talk| {
            let mut other = talk.other();
            other.query("INSERT INTO w VALUES (103, 'x')").ok();
            other.query("BEGIN").ok();
            other.query("UPDATE w SET s = 'y' WHERE n = 103").ok();
            talk.ask(&[
                "SET SESSION innodb_lock_wait_timeout = 1",
                "BEGIN",
                "UPDATE w SET s = 'z' WHERE n = 103",
                "SELECT s FROM w WHERE n = 103",
                "ROLLBACK",
            ]);
            other.query("ROLLBACK").ok();
            other.query("DELETE FROM w WHERE n = 103").ok();
        }),
        Case::new("session: a deadlock", |talk: &mut Talk| {
            let mut other = talk.other();
            talk.ask(&["INSERT INTO w VALUES (104, 'a'), (105, 'b')", "BEGIN"]);
            // The one that has written less is given up.
            talk.ask(&["UPDATE w SET s = 'x' WHERE n = 104"]);
            other.query("BEGIN").ok();
            other.query("INSERT INTO f VALUES (1, 'a'), (2, 'b'), (3, 'c')").ok();
            other.query("INSERT INTO f SELECT * FROM f").ok();
            other.query("UPDATE w SET s = 'y' WHERE n = 105").ok();
            talk.query(b"UPDATE w SET s = 'x' WHERE n = 105");
            talk.wait_for("UPDATE w SET s = ''x'' WHERE n = 105");
            other.query("UPDATE w SET s = 'y' WHERE n = 104").ok();
            talk.read(Answer::Results);
            other.query("ROLLBACK").ok();
            talk.ask(&["SELECT s FROM w WHERE n = 104", "COMMIT", "DELETE FROM w WHERE n > 99"]);
        }),
    ]
}

fn opcodes() -> Vec<Case> {
    let mut cases = Vec::new();
    // Not among them: 32 and 33, with which MySQL turns a connection into another protocol. The
    // proxy answers what neither server knows by itself: the server then has no warning to count.
    for opcode in [0, 5, 6, 7, 8, 10, 11, 15, 16, 19, 20, 29, 48, 127, 254, 255] {
        let run = move |talk: &mut Talk| {
            talk.command(&[opcode], Answer::One);
            if opcode == 10 {
                talk.instead("a process list begins");
            } else if talk.is_open() {
                talk.ask(&["SELECT 1"]);
            }
        };
        cases.push(Case::new(format!("session: command {opcode:#04x} with nothing"), run));
    }
    cases
}

fn change_user(user: &str, proof: &[u8], db: &str, plugin: &str) -> Vec<u8> {
    let mut payload = vec![CHANGE_USER];
    payload.extend(user.as_bytes());
    payload.push(0);
    payload.push(u8::try_from(proof.len()).unwrap());
    payload.extend(proof);
    payload.extend(db.as_bytes());
    payload.extend([0, 45, 0]);
    payload.extend(plugin.as_bytes());
    payload.push(0);
    payload
}

/// Answers what the engine asks, with no password, and reads to the end of the login.
fn to_the_end(talk: &mut Talk) {
    loop {
        let Some(packet) = talk.packet() else { return };
        match packet.first() {
            Some(0xfe) => {
                talk.instead("a switch, with a nonce");
                let sequence = &mut talk.next_sequence();
                let bytes = packets(&[], sequence);
                talk.send_raw(&bytes);
            }
            Some(1) => {}
            Some(_) | None => return,
        }
    }
}

fn changes_of_user() -> Vec<Case> {
    let plugin = |talk: &Talk| talk.wire.greeting.plugin.clone();
    vec![
        Case::new("change of user: to the same", move |talk: &mut Talk| {
            talk.ask(&["SET @x = 1", "BEGIN", "INSERT INTO w VALUES (110, 'x')"]);
            let payload = change_user("wire", &[], &talk.db, &plugin(talk));
            talk.send(&payload);
            to_the_end(talk);
            talk.ask(&["SELECT @x, DATABASE()", "SELECT count(*) FROM w WHERE n = 110"]);
        }),
        Case::new("change of user: to another schema", move |talk: &mut Talk| {
            let payload = change_user("wire", &[], "information_schema", &plugin(talk));
            talk.send(&payload);
            to_the_end(talk);
            talk.ask(&["SELECT DATABASE()"]);
        }),
        Case::new("change of user: without a schema", move |talk: &mut Talk| {
            let payload = change_user("wire", &[], "", &plugin(talk));
            talk.send(&payload);
            to_the_end(talk);
            talk.ask(&["SELECT DATABASE()", "SELECT n FROM DB.r ORDER BY n LIMIT 1"]);
        }),
        Case::new("change of user: unknown", move |talk: &mut Talk| {
            let payload = change_user("nobody", &[1; 20], &talk.db, &plugin(talk));
            talk.send(&payload);
            to_the_end(talk);
            talk.command(&[PING], Answer::One);
        }),
        Case::new("change of user: to a missing schema", move |talk: &mut Talk| {
            let payload = change_user("wire", &[], "nowhere", &plugin(talk));
            talk.send(&payload);
            to_the_end(talk);
            talk.command(&[PING], Answer::One);
        }),
        Case::new("change of user: with another method", move |talk: &mut Talk| {
            let payload = change_user("wire", &[], &talk.db, "mysql_clear_password");
            talk.send(&payload);
            to_the_end(talk);
            talk.ask(&["SELECT CURRENT_USER()"]);
        }),
        Case::new("change of user: with attributes", move |talk: &mut Talk| {
            let mut payload = change_user("wire", &[], &talk.db, &plugin(talk));
            let mut pairs = Vec::new();
            put_lenenc(&mut pairs, b"program_name");
            put_lenenc(&mut pairs, b"corpus");
            put_lenenc(&mut payload, &pairs);
            talk.send(&payload);
            to_the_end(talk);
            talk.ask(&["SELECT CURRENT_USER()"]);
        })
        .by(|db| crate::support::my_wire::MyLogin::of("wire", db).with(flag::CONNECT_ATTRS)),
    ]
}
