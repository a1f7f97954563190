//! Invariant 14: what each surface really says of each refusal, beside the table.
//!
//! The bytes of both wires, the admin API's body and `docs/CODES.md` are made and read back here,
//! because no layer below may know them all. [`faults`] judges them. The other tests give it what a
//! surface would say with a bug in it, and what the real ones say without their guard.

use std::sync::Arc;

use bytes::BytesMut;

use crate::admin::console::failure::Failure;
use crate::admin::console::grammar::{Dialect, Statement, parse};
use crate::admin::view::{self, Shown as HowShown};
use crate::base::ids::{CommandId, Generation, Namespace};
use crate::control::answer::{Answer, AnswerCode};
use crate::fence::code::{ControlCode, Denial};
use crate::fence::verdict::Policy;
use crate::gate::admission::Refusal;
use crate::gate::registry::Published;
use crate::telemetry::metrics::Metrics;
use crate::wire::shared::denials::Denials;
use crate::wire::{mysql, pg};

/// The classes of SQLSTATE on which drivers retry, reconnect or look for another primary.
const RETRIED_CLASSES: [&str; 5] = ["08", "25", "40", "53", "57"];
/// The errors of MySQL on which they do: lock waits, deadlocks, read-only servers, lost links.
const RETRIED_ERRORS: [u16; 8] = [1205, 1213, 1290, 1317, 1792, 1836, 2006, 2013];

/// One refusal as one surface shows it; what a surface doesn't say is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    surface: &'static str,
    /// The refusal's name in the code.
    what: String,
    code: Option<String>,
    sqlstate: Option<String>,
    errno: Option<u16>,
    http_status: Option<u16>,
}

fn refusal(denial: Denial) -> Refusal {
    let published = Published { generation: Generation(1), policy: Policy::unfenced() };
    let namespace = Namespace::parse("old/app").unwrap();
    Refusal { denial, namespace, published: Arc::new(published) }
}

fn on_pg(denial: Denial, denials: &Denials) -> Shown {
    let (mut out, severity) = (BytesMut::new(), pg::refusal::Severity::Error);
    pg::refusal::typed_error(&mut out, severity, &refusal(denial), denials.sqlstate(denial));
    let fields = out[5..].split(|byte| *byte == 0);
    let fields: Vec<&str> = fields.map(|field| std::str::from_utf8(field).unwrap()).collect();
    let field = |key: char| fields.iter().find_map(|field| field.strip_prefix(key)).unwrap();
    Shown {
        surface: "the PostgreSQL wire",
        what: format!("{denial:?}"),
        code: field('M').split(':').next().map(str::to_owned),
        sqlstate: Some(field('C').to_owned()),
        errno: None,
        http_status: None,
    }
}

fn on_mysql(denial: Denial, denials: &Denials) -> Shown {
    let mut out = BytesMut::new();
    mysql::refusal::typed_error(&mut out, 1, &refusal(denial), denials.sqlstate(denial), None);
    let text = std::str::from_utf8(&out[8..]).unwrap();
    Shown {
        surface: "the MySQL wire",
        what: format!("{denial:?}"),
        code: text[5..].split(':').next().map(str::to_owned),
        sqlstate: Some(text[..5].to_owned()),
        errno: Some(u16::from_le_bytes([out[5], out[6]])),
        http_status: None,
    }
}

fn on_http(code: ControlCode) -> Shown {
    let answer = Answer {
        code: AnswerCode::Control(code),
        detail: None,
        replayed: false,
        sight: None,
        receipt: None,
        message: None,
    };
    let body = view::answer(&answer, HowShown { literals: false });
    Shown {
        surface: "the admin API",
        what: format!("{code:?}"),
        code: body["outcome"].as_str().map(str::to_owned),
        sqlstate: None,
        errno: None,
        http_status: Some(answer.code.http_status()),
    }
}

fn on_consoles(code: ControlCode) -> [Shown; 2] {
    let answer = Answer {
        code: AnswerCode::Control(code),
        detail: None,
        replayed: false,
        sight: None,
        receipt: None,
        message: None,
    };
    let text = "FENCE PUBLISH ON 'old/app' OPERATION '6e0b8c7e-5d0f-4c7e-9d39-1d2b8f9f3a11'";
    let Ok(Statement::Fence(statement)) = parse(text, Dialect::Postgres) else { panic!("{text}") };
    let failure = Failure::answered(&answer, &statement, CommandId::fresh());
    let shown = Shown {
        surface: "the PostgreSQL console",
        what: format!("{code:?}"),
        code: failure.message.split(':').next().map(str::to_owned),
        sqlstate: Some(failure.sqlstate.to_owned()),
        errno: None,
        http_status: Some(failure.status),
    };
    let errno = Some(failure.errno);
    let mysql = Shown { surface: "the MySQL console", errno, ..shown.clone() };
    [shown, mysql]
}

/// The documented row whose first cell or second cell is `key`.
fn documented(what: String, key: &str) -> Option<Shown> {
    let rows = include_str!("../../docs/CODES.md").lines();
    let cells = |row: &str| row.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let row = rows.map(cells).find(|row| row.get(1).is_some_and(|first| first == key))?;
    let denial = key.starts_with("ZF");
    let (sqlstate, errno, code) = if denial { (1, 2, 3) } else { (2, 3, 1) };
    let http = if denial { 5 } else { 4 };
    Some(Shown {
        surface: "docs/CODES.md",
        what,
        code: Some(row[code].trim_matches('`').to_owned()),
        sqlstate: Some(row[sqlstate].clone()),
        errno: row[errno].parse().ok(),
        http_status: row[http].parse().ok(),
    })
}

/// Everything that every surface says.
fn everything() -> Vec<Shown> {
    let denials = Denials::new(&std::collections::BTreeMap::new(), Arc::new(Metrics::new()));
    let mut all = Vec::new();
    for denial in Denial::ALL {
        all.extend([on_pg(denial, &denials), on_mysql(denial, &denials)]);
        all.extend(documented(format!("{denial:?}"), denial.sqlstate()));
    }
    for code in ControlCode::ALL {
        all.push(on_http(code));
        all.extend(on_consoles(code));
        all.extend(documented(format!("{code:?}"), &format!("`{}`", code.name())));
    }
    all
}

/// What is wrong with what the surfaces say; empty when nothing is.
fn faults(all: &[Shown]) -> Vec<String> {
    let mut found = Vec::new();
    let denials = Denial::ALL.map(|denial| {
        let row = (denial.code(), denial.sqlstate(), denial.errno(), denial.http_status());
        let surfaces = vec!["the PostgreSQL wire", "the MySQL wire", "docs/CODES.md"];
        (format!("{denial:?}"), row, surfaces)
    });
    let codes = ControlCode::ALL.map(|code| {
        let row = (code.name(), code.sqlstate(), code.errno(), code.http_status());
        let consoles = ["the PostgreSQL console", "the MySQL console"];
        (format!("{code:?}"), row, [&consoles[..], &["the admin API", "docs/CODES.md"]].concat())
    });
    for (what, (code, sqlstate, errno, http_status), surfaces) in denials.into_iter().chain(codes) {
        for surface in surfaces {
            let named = |shown: &&Shown| shown.what == what && shown.surface == surface;
            if !all.iter().any(|shown| named(&shown)) {
                found.push(format!("{what} has no code on {surface}"));
            }
            for shown in all.iter().filter(named) {
                let same = shown.code.as_deref() == Some(code)
                    && shown.sqlstate.as_deref().is_none_or(|shown| shown == sqlstate)
                    && shown.errno.is_none_or(|shown| shown == errno)
                    && shown.http_status.is_none_or(|shown| shown == http_status);
                if !same {
                    found.push(format!("{what} is another one on {surface}: {shown:?}"));
                }
            }
        }
    }
    for shown in all {
        let sqlstate = shown.sqlstate.as_deref().unwrap_or("ZF000");
        let retried = RETRIED_CLASSES.iter().any(|class| sqlstate.starts_with(class))
            || shown.errno.is_some_and(|errno| RETRIED_ERRORS.contains(&errno))
            || shown.http_status.is_some_and(|status| status >= 500);
        if retried {
            found.push(format!("drivers retry {} on {}: {shown:?}", shown.what, shown.surface));
        }
    }
    found
}

#[test]
fn invariant_14_every_surface_says_what_the_table_says() {
    let found = faults(&everything());
    assert!(found.is_empty(), "VIOLATION: invariant 14: {found:#?}");
}

/// A bug in what the surfaces say.
type Spoil = fn(&mut Vec<Shown>);

#[test]
fn invariant_14_a_bug_on_any_surface_is_reported() {
    fn first<'a>(all: &'a mut [Shown], surface: &str) -> &'a mut Shown {
        all.iter_mut().find(|shown| shown.surface == surface).unwrap()
    }
    let spoils: [(&str, Spoil); 11] = [
        ("no code on the MySQL wire", |all| {
            let gone = all.iter().position(|shown| shown.surface == "the MySQL wire").unwrap();
            all.remove(gone);
        }),
        ("no code on docs/CODES.md", |all| {
            all.retain(|s| s.surface != "docs/CODES.md" || s.what != "HoldExpired");
        }),
        ("another one on the MySQL wire", |all| {
            first(all, "the MySQL wire").errno = Some(9702);
        }),
        ("another one on the PostgreSQL wire", |all| {
            first(all, "the PostgreSQL wire").sqlstate = Some("ZF002".to_owned());
        }),
        ("another one on the PostgreSQL wire", |all| {
            first(all, "the PostgreSQL wire").code = Some("WRITE_FENCED".to_owned());
        }),
        ("another one on the admin API", |all| {
            first(all, "the admin API").http_status = Some(409);
        }),
        ("another one on the PostgreSQL console", |all| {
            first(all, "the PostgreSQL console").sqlstate = Some("42601".to_owned());
        }),
        ("another one on the MySQL console", |all| {
            first(all, "the MySQL console").errno = Some(1105);
        }),
        ("drivers retry WriteFenced", |all| {
            first(all, "the PostgreSQL wire").sqlstate = Some("25006".to_owned());
        }),
        ("drivers retry WriteFenced", |all| {
            first(all, "the MySQL wire").errno = Some(1290);
        }),
        ("drivers retry Applied", |all| {
            first(all, "the admin API").http_status = Some(503);
        }),
    ];
    for (expected, spoil) in spoils {
        let mut all = everything();
        spoil(&mut all);
        let found = faults(&all);
        assert!(found.iter().any(|fault| fault.contains(expected)), "{expected}: {found:#?}");
    }
}

#[cfg(debug_assertions)]
#[test]
fn invariant_14_a_wire_that_borrows_an_engines_code_is_reported() {
    let check = "app::surfaces::invariant_14_every_surface_says_what_the_table_says";
    crate::base::arm::missed(check, &[("own-codes", "invariant 14")]).unwrap();
}
