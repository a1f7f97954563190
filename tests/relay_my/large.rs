//! Packets of 16 MiB and more, in both directions, and those just below and above.

use super::{Answer, Case, Talk};
use crate::support::my_wire::MyLogin;
use crate::support::my_wire::{PACKET_MAX, flag};

fn new_login(db: &str) -> MyLogin {
    MyLogin::of("wire", db).with(flag::DEPRECATE_EOF | flag::SESSION_TRACK)
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (profile, by) in
        [("old", (|db| MyLogin::of("wire", db)) as fn(&str) -> MyLogin), ("new", new_login)]
    {
        // A row of one value has a length before it, of four bytes up to 16 MiB, then of nine.
        for (name, bytes) in [
            ("just below", PACKET_MAX - 5),
            ("exactly one packet", PACKET_MAX - 4),
            ("a byte more", PACKET_MAX - 3),
            ("begins like an end", PACKET_MAX + 1),
            ("two packets", 2 * PACKET_MAX - 9),
            ("forty megabytes", 40 << 20),
        ] {
            let run = move |talk: &mut Talk| {
                talk.ask(&[&format!("SELECT REPEAT('x', {bytes})"), "SELECT 1"]);
            };
            cases.push(Case::new(format!("large: a row, {name}, {profile}"), run).by(by));
        }
        for (name, bytes) in [
            ("just below", PACKET_MAX - 1),
            ("exactly one packet", PACKET_MAX),
            ("a byte more", PACKET_MAX + 1),
            ("two packets", 2 * PACKET_MAX),
        ] {
            let run = move |talk: &mut Talk| {
                let mut payload = talk.query_payload(b"SELECT LENGTH('");
                payload.resize(bytes - 2, b'y');
                payload.extend(b"')");
                talk.send(&payload);
                talk.read(Answer::Results);
                talk.ask(&["SELECT 1"]);
            };
            cases.push(Case::new(format!("large: a statement, {name}, {profile}"), run).by(by));
        }
        let many = |talk: &mut Talk| {
            talk.ask(&[
                "SELECT a.n, REPEAT(a.s, 900) FROM r a, r b, r c, r d, r e, r g ORDER BY 1",
            ]);
        };
        cases.push(Case::new(format!("large: many rows, {profile}"), many).by(by));
        let too_large = |talk: &mut Talk| {
            let mut payload = talk.query_payload(b"SELECT '");
            payload.resize((64 << 20) + 10, b'z');
            talk.send(&payload);
            talk.end();
            // How much was sent before the engine gave up differs, and so does how it is heard.
            talk.forget_the_end();
        };
        cases.push(Case::new(format!("large: more than is allowed, {profile}"), too_large).by(by));
    }
    cases
}
