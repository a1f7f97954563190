//! MariaDB's own: many rows in one command, and the statement that was prepared last.

use super::prepared::numbered;
use super::{Answer, Case, Talk};
use crate::support::my_wire::MyLogin;
use crate::support::my_wire::{flag, packets, put_lenenc};

const BULK: u8 = 0xfa;

/// With MariaDB's own bits: [`Talk::log_in`] adds them.
fn login(db: &str) -> MyLogin {
    MyLogin::of("wire", db).with(flag::DEPRECATE_EOF | flag::SESSION_TRACK).over_tls()
}

/// COM_STMT_BULK_EXECUTE of a statement with one number and one text, types sent along.
fn bulk(talk: &Talk, id: u32, rows: &[(i32, Option<&str>)]) -> Vec<u8> {
    let mut payload = numbered(talk, BULK, id);
    payload.extend(128_u16.to_le_bytes());
    payload.extend([3, 0, 0xfd, 0]);
    for (number, text) in rows {
        payload.push(0);
        payload.extend(number.to_le_bytes());
        match text {
            Some(text) => {
                payload.push(0);
                put_lenenc(&mut payload, text.as_bytes());
            }
            None => payload.push(1),
        }
    }
    payload
}

fn prepare(talk: &mut Talk, sql: &str) {
    let payload = [&[0x16], sql.as_bytes()].concat();
    talk.command(&payload, Answer::Prepared);
}

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("bulk: rows", |talk: &mut Talk| {
            prepare(talk, "INSERT INTO w VALUES (?, ?)");
            let payload = bulk(talk, 1, &[(300, Some("a")), (301, None)]);
            talk.command(&payload, Answer::Results);
            talk.ask(&["SELECT * FROM w WHERE n >= 300", "DELETE FROM w WHERE n >= 300"]);
        })
        .by(login),
        Case::new("bulk: an error among them", |talk: &mut Talk| {
            prepare(talk, "INSERT INTO w VALUES (?, ?)");
            let rows = [(302, Some("a")), (302, Some("b")), (303, Some("c"))];
            let payload = bulk(talk, 1, &rows);
            talk.command(&payload, Answer::Results);
            talk.ask(&["SELECT * FROM w WHERE n >= 300", "DELETE FROM w WHERE n >= 300"]);
        })
        .by(login),
        Case::new("bulk: rows come back", |talk: &mut Talk| {
            prepare(talk, "INSERT INTO w VALUES (?, ?) RETURNING n, s");
            let payload = bulk(talk, 1, &[(304, Some("a")), (305, None)]);
            talk.command(&payload, Answer::Results);
            talk.ask(&["DELETE FROM w WHERE n >= 300"]);
        })
        .by(login),
        Case::new("bulk: unknown statement", |talk: &mut Talk| {
            let payload = bulk(talk, 9, &[(1, None)]);
            talk.command(&payload, Answer::Results);
            talk.ask(&["SELECT 1"]);
        })
        .by(login),
        Case::new("bulk: columns are remembered", |talk: &mut Talk| {
            prepare(talk, "SELECT n, s FROM r WHERE n > ? ORDER BY n");
            for value in ["0", "1", "9"] {
                let mut payload = numbered(talk, 0x17, 1);
                payload.extend([0, 1, 0, 0, 0, 0, 1, 0xfd, 0]);
                put_lenenc(&mut payload, value.as_bytes());
                talk.command(&payload, Answer::Results);
            }
            prepare(talk, "SELECT n, s FROM r WHERE n > ? ORDER BY n");
            prepare(talk, "SELECT 1");
            for _ in 0..2 {
                let payload = [&numbered(talk, 0x17, 3)[..], &[0, 1, 0, 0, 0]].concat();
                talk.command(&payload, Answer::Results);
            }
        })
        .by(login),
        Case::new("bulk: prepared last, in flight", |talk: &mut Talk| {
            let mut bytes = packets(b"\x16SELECT n FROM r ORDER BY n", &mut 0);
            bytes.extend(packets(b"\x17\xff\xff\xff\xff\0\x01\0\0\0", &mut 0));
            talk.send_raw(&bytes);
            talk.read(Answer::Prepared);
            talk.read(Answer::Results);
            let mut bytes = packets(b"\x16SELEC", &mut 0);
            bytes.extend(packets(b"\x17\xff\xff\xff\xff\0\x01\0\0\0", &mut 0));
            talk.send_raw(&bytes);
            talk.read(Answer::Prepared);
            talk.read(Answer::Results);
        })
        .by(login),
        Case::new("bulk: progress", |talk: &mut Talk| {
            talk.ask(&["ALTER TABLE m ENGINE = MyISAM", "OPTIMIZE TABLE m", "ANALYZE TABLE m"]);
        })
        .by(login),
    ]
}
