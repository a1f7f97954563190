//! Ways to log in, and not to.

use super::{Answer, Case, Talk};
use crate::support::MyFlavour;
use crate::support::my_wire::MyLogin;
use crate::support::my_wire::{flag, packets};

/// A login told by the conversation itself.
fn none(_: &str) -> MyLogin {
    MyLogin::of("-", "")
}

fn wire(db: &str) -> MyLogin {
    MyLogin::of("wire", db)
}

/// Who and where, asked behind a login.
fn after(talk: &mut Talk) {
    talk.ask(&["SELECT CURRENT_USER(), DATABASE()", "SELECT @@character_set_client"]);
}

pub fn cases(flavour: MyFlavour) -> Vec<Case> {
    let mut cases = with_passwords();
    cases.extend(with_capabilities());
    cases.extend(told_by_hand());
    cases.extend(charsets());
    cases.extend(own(flavour));
    cases
}

fn with_passwords() -> Vec<Case> {
    vec![
        Case::new("login: usual", after),
        Case::new("login: without a schema", after).by(|_| MyLogin::of("wire", "")),
        Case::new("login: with a password", after).by(|db| MyLogin::of("app", db)),
        Case::new("login: with a password, over TLS", after)
            .by(|db| MyLogin::of("app", db).over_tls()),
        Case::new("login: over TLS", after).by(|db| wire(db).over_tls()),
        Case::new("login: a wrong password", |_: &mut Talk| {})
            .by(|db| MyLogin { password: "wrong".into(), ..MyLogin::of("app", db) }),
        Case::new("login: a wrong password, over TLS", |_: &mut Talk| {})
            .by(|db| MyLogin { password: "wrong".into(), ..MyLogin::of("app", db) }.over_tls()),
        Case::new("login: no password where there is one", |_: &mut Talk| {})
            .by(|db| MyLogin { password: String::new(), ..MyLogin::of("app", db) }),
        Case::new("login: a missing schema", |_: &mut Talk| {})
            .by(|_| MyLogin::of("wire", "nowhere")),
        Case::new("login: a schema of others", |_: &mut Talk| {})
            .by(|_| MyLogin::of("wire", "mysql")),
    ]
}

fn with_capabilities() -> Vec<Case> {
    vec![
        Case::new("login: attributes", after).by(|db| MyLogin {
            attributes: vec![
                ("_client_name".into(), "corpus".into()),
                ("program_name".into(), "a test".into()),
            ],
            ..wire(db).with(flag::CONNECT_ATTRS | flag::PLUGIN_AUTH_LENENC)
        }),
        Case::new("login: many attributes", after).by(|db| MyLogin {
            attributes: vec![("long".into(), "x".repeat(50_000))],
            ..wire(db).with(flag::CONNECT_ATTRS)
        }),
        Case::new("login: no attributes", after).by(|db| wire(db).with(flag::CONNECT_ATTRS)),
        Case::new("login: found rows", |talk: &mut Talk| {
            talk.ask(&["UPDATE r SET s = 'one' WHERE n = 1", "SELECT ROW_COUNT()"]);
        })
        .by(|db| wire(db).with(flag::FOUND_ROWS)),
        Case::new("login: spaces ignored", |talk: &mut Talk| {
            talk.ask(&["SELECT count (*) FROM r"])
        })
        .by(|db| wire(db).with(1 << 8)),
        Case::new("login: interactive", |talk: &mut Talk| {
            talk.ask(&["SELECT @@wait_timeout = @@interactive_timeout"]);
        })
        .by(|db| wire(db).with(1 << 10)),
        Case::new("login: no schema before a dot", |talk: &mut Talk| {
            talk.ask(&["SELECT n FROM DB.r ORDER BY n LIMIT 1"]);
        })
        .by(|db| wire(db).with(1 << 4)),
        Case::new("login: without several results", |talk: &mut Talk| {
            talk.ask(&["CALL two()", "SELECT 1"]);
        })
        .by(|db| MyLogin {
            capabilities: wire(db).capabilities & !(flag::MULTI_RESULTS | flag::PS_MULTI_RESULTS),
            ..wire(db)
        }),
        Case::new("login: without methods", after).by(|db| MyLogin {
            capabilities: wire(db).capabilities & !flag::PLUGIN_AUTH,
            ..wire(db)
        }),
        Case::new("login: the method of another server", after)
            .by(|db| MyLogin { plugin: "mysql_clear_password".into(), ..wire(db) }),
    ]
}

fn told_by_hand() -> Vec<Case> {
    vec![
        Case::new("login: the greeting", |talk: &mut Talk| {
            talk.packet();
            let greeting = talk.greeting();
            talk.instead(&greeting);
        })
        .by(none),
        Case::new("login: a command in its place", |talk: &mut Talk| {
            talk.packet();
            talk.instead("a greeting");
            talk.send_raw(&packets(b"\x03SELECT 1", &mut 1));
            talk.end();
        })
        .by(none),
        Case::new("login: a command right behind it", |talk: &mut Talk| {
            let db = talk.db.clone();
            talk.packet();
            talk.instead("a greeting");
            let mut bytes = by_hand(&db);
            bytes.extend(packets(b"\x03SELECT 'early'", &mut 0));
            talk.send_raw(&bytes);
            loop {
                match talk.packet().as_deref() {
                    Some([0 | 0xff, ..]) | None => break,
                    Some([0xfe, ..]) => talk.instead("a switch"),
                    Some(_) => {}
                }
            }
            talk.read(Answer::Results);
        })
        .by(none),
    ]
}

fn charsets() -> Vec<Case> {
    let mut cases = Vec::new();
    for charset in [0, 1, 8, 28, 33, 35, 45, 63, 224, 255] {
        let run = |talk: &mut Talk| {
            talk.ask(&[
                "SELECT @@character_set_client, @@collation_connection",
                "SELECT '\u{e9}\\' OR 1 -- '",
            ]);
        };
        let with: fn(&str) -> MyLogin = match charset {
            0 => |db| MyLogin { charset: 0, ..wire(db) },
            1 => |db| MyLogin { charset: 1, ..wire(db) },
            8 => |db| MyLogin { charset: 8, ..wire(db) },
            28 => |db| MyLogin { charset: 28, ..wire(db) },
            33 => |db| MyLogin { charset: 33, ..wire(db) },
            35 => |db| MyLogin { charset: 35, ..wire(db) },
            45 => |db| MyLogin { charset: 45, ..wire(db) },
            63 => |db| MyLogin { charset: 63, ..wire(db) },
            224 => |db| MyLogin { charset: 224, ..wire(db) },
            _ => |db| MyLogin { charset: 255, ..wire(db) },
        };
        cases.push(Case::new(format!("login: charset {charset}"), run).by(with));
    }
    cases
}

fn own(flavour: MyFlavour) -> Vec<Case> {
    let mut cases = Vec::new();
    if flavour == MyFlavour::MariaDb {
        // MySQL asks a user that it doesn't know in a way of its choice.
        cases.push(
            Case::new("login: an unknown user", |_: &mut Talk| {})
                .by(|db| MyLogin::of("nobody", db)),
        );
    }
    if flavour == MyFlavour::MySql {
        let expired = |talk: &mut Talk| talk.ask(&["SELECT 1"]);
        cases.push(
            Case::new("login: handles expired passwords", expired).by(|db| wire(db).with(1 << 22)),
        );
    }
    cases
}

/// A login without a password, as one packet.
fn by_hand(db: &str) -> Vec<u8> {
    let login = wire(db);
    let mut payload =
        (login.capabilities & !flag::PLUGIN_AUTH | flag::CONNECT_WITH_DB).to_le_bytes().to_vec();
    payload.extend([0, 0, 0, 1, 45]);
    payload.extend([0; 23]);
    payload.extend(b"wire\0\0");
    payload.extend(db.as_bytes());
    payload.push(0);
    packets(&payload, &mut 1)
}
