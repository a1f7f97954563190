//! Where a client stands when the fence comes, and how it says what it says.

use super::atoms::{Atom, Form};
use super::spelling::{ENCODINGS, hidden, spelled, with_sign};
use super::wraps::{plannable, read_like, wrapped};
use super::{Case, Dice, Step};
use crate::support::wire::{
    bind, close, copy_data, copy_done, describe, execute as run, frame, sync,
};

/// Each of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Position {
    /// The first thing a new session says.
    First,
    /// In a session from before the fence.
    Idle,
    /// In a transaction from before the fence.
    Transaction,
    /// Prepared in SQL before the fence.
    Prepared,
    /// Parsed before the fence.
    Parsed,
    /// A portal from before the fence.
    Bound,
    /// A cursor opened before the fence.
    Cursor,
    /// A cursor that outlives its transaction, at its COMMIT.
    HeldCursor,
    /// A session with startup options that speak of read-only mode.
    Startup,
    /// A session that can stream, too.
    Walsender,
    /// Behind DISCARD ALL.
    Discard,
    /// Behind something that lifts read-only mode, or tries.
    Escaped,
}

impl Position {
    pub const ALL: [Self; 12] = [
        Self::First,
        Self::Idle,
        Self::Transaction,
        Self::Prepared,
        Self::Parsed,
        Self::Bound,
        Self::Cursor,
        Self::HeldCursor,
        Self::Startup,
        Self::Walsender,
        Self::Discard,
        Self::Escaped,
    ];
}

const OPTIONS: &[(&str, &str)] = &[
    ("options", "-c default_transaction_read_only=off"),
    ("options", "--default-transaction-read-only=off"),
    ("options", "-c default_transaction_isolation=serializable -cdefault_transaction_read_only=0"),
    ("options", "-c search_path=mine,pg_catalog,public"),
    ("options", "-c default_transaction_deferrable=on -c transaction_read_only=off"),
    ("default_transaction_read_only", "off"),
    ("DEFAULT_TRANSACTION_READ_ONLY", "false"),
    ("replication", "off"),
    ("search_path", "mine, pg_catalog, public"),
    ("session_authorization", "wire"),
];

/// What lifts read-only mode, or is said to.
const ESCAPES: &[&[&str]] = &[
    &["BEGIN READ WRITE"],
    &["START TRANSACTION READ WRITE"],
    &["BEGIN ISOLATION LEVEL SERIALIZABLE, READ WRITE, NOT DEFERRABLE"],
    &["BEGIN", "COMMIT AND CHAIN"],
    &["BEGIN READ WRITE", "ROLLBACK AND CHAIN"],
    &["BEGIN", "SET TRANSACTION READ WRITE"],
    &["BEGIN", "SET LOCAL transaction_read_only = off"],
    &["BEGIN", "SET TRANSACTION READ ONLY", "SET TRANSACTION READ WRITE"],
    &["BEGIN", "SAVEPOINT a", "SET TRANSACTION READ ONLY", "RELEASE a"],
    &["BEGIN", "SAVEPOINT a", "SET TRANSACTION READ ONLY", "ROLLBACK TO a"],
    &["SET default_transaction_read_only = off"],
    &["SET SESSION default_transaction_read_only TO DEFAULT"],
    &["RESET default_transaction_read_only"],
    &["RESET transaction_read_only"],
    &["SET transaction_read_only TO DEFAULT"],
    &["SET transaction_read_only = off"],
    &["SET TRANSACTION READ WRITE"],
    &["SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE"],
    &["SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ WRITE"],
    &["SELECT set_config('default_transaction_read_only', 'off', false)"],
    &["SELECT set_config('transaction_' || 'read_only', 'off', true)"],
    &["SELECT off()"],
    &["SELECT n FROM switching"],
    &["SELECT n FROM switching", "COMMIT"],
    &["PREPARE esc AS SELECT n FROM switching", "EXECUTE esc"],
    &["DO $e$ BEGIN COMMIT; SET TRANSACTION READ WRITE; END $e$"],
    &["CALL leave()"],
    &["RESET ALL"],
    &["SET SESSION AUTHORIZATION DEFAULT"],
    &["RESET ROLE"],
    &["DISCARD ALL", "BEGIN READ WRITE"],
    &["DISCARD PLANS"],
    &["ROLLBACK"],
    &["END"],
    &["SELEC"],
    &["BEGIN", "SELEC", "ROLLBACK"],
];

fn simple(sql: &[u8]) -> Step {
    Step::new(frame(b'Q', &[sql, b"\0"].concat()), 1)
}

fn ask(sql: &str) -> Step {
    simple(sql.as_bytes())
}

fn parse(name: &str, sql: &[u8]) -> Vec<u8> {
    frame(b'P', &[name.as_bytes(), b"\0", sql, b"\0\0\0"].concat())
}

/// Parse, Bind and Execute, without the Sync.
fn one(sql: &[u8]) -> Vec<u8> {
    [parse("", sql), bind("", "", &[]), run("", 0)].concat()
}

fn data() -> Vec<u8> {
    [copy_data(b"11\n"), copy_data(b"12\n"), copy_done()].concat()
}

/// One case: an entry at a position.
pub fn made(seed: u64, number: usize, atom: &'static Atom, position: Position) -> Option<Case> {
    let mut dice = Dice::new(seed);
    let mut case = Case::empty(seed, atom, position);
    if !atom.superuser && dice.one_in(4) {
        case.role = true;
    }
    match position {
        Position::Prepared => prepared(&mut dice, &mut case, number)?,
        Position::Parsed => parsed(&mut dice, &mut case, number)?,
        Position::Bound => bound(&mut dice, &mut case, number)?,
        Position::Cursor | Position::HeldCursor => cursor(&mut dice, &mut case, number)?,
        Position::First
        | Position::Idle
        | Position::Transaction
        | Position::Startup
        | Position::Walsender
        | Position::Discard
        | Position::Escaped => said(&mut dice, &mut case, number),
    }
    Some(case)
}

/// A program that is said after the fence came.
fn said(dice: &mut Dice, case: &mut Case, number: usize) {
    let mut extended = true;
    match case.position {
        Position::Transaction => {
            let starts: [&[&str]; 5] = [
                &["BEGIN"],
                &["BEGIN", "SELECT count(*) FROM victim"],
                &["BEGIN; SELECT count(*) FROM victim; SAVEPOINT a"],
                &["BEGIN ISOLATION LEVEL SERIALIZABLE", "SHOW work_mem"],
                &["START TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT 1"],
            ];
            let first = dice.pick(&starts);
            case.before.extend(first.iter().map(|sql| ask(sql)));
        }
        Position::Startup => {
            let (name, value) = dice.pick(OPTIONS);
            case.startup.push((name.to_owned(), value.to_owned()));
            case.fresh = dice.one_in(2);
        }
        Position::Walsender => {
            case.startup.push(("replication".to_owned(), "database".to_owned()));
            case.fresh = dice.one_in(2);
            extended = false;
        }
        Position::First => case.fresh = true,
        Position::Idle => case.before.push(ask("SELECT 1")),
        Position::Discard => {
            case.before.push(ask("SET work_mem = '1MB'"));
            case.attack.push(ask(dice.pick(&["DISCARD ALL", "discard all", "RESET ALL"])));
        }
        Position::Escaped => case.fresh = dice.one_in(2),
        Position::Prepared
        | Position::Parsed
        | Position::Bound
        | Position::Cursor
        | Position::HeldCursor => {}
    }
    if let Form::Call(signature, arguments) = case.atom.form {
        if case.position == Position::Escaped {
            case.attack.extend(dice.pick(ESCAPES).iter().map(|sql| ask(sql)));
        }
        case.call = Some((signature, arguments));
        return;
    }
    let program = wrapped(dice, case.atom, number);
    case.setup = program.setup;
    let mut statements: Vec<String> =
        program.statements.iter().map(|sql| spelled(dice, sql)).collect();
    if case.position == Position::Escaped {
        let escape = dice.pick(ESCAPES).iter().map(|sql| spelled(dice, sql));
        let mut all: Vec<String> = escape.collect();
        if dice.one_in(2) {
            // In strings of their own.
            case.attack.extend(all.drain(..).map(|sql| ask(&sql)));
        }
        all.append(&mut statements);
        statements = all;
    }
    deliver(dice, case, &statements, extended);
}

/// Brings statements into messages.
fn deliver(dice: &mut Dice, case: &mut Case, statements: &[String], extended: bool) {
    let copies = matches!(case.atom.form, Form::CopyIn(_));
    if !copies && dice.one_in(6) {
        return encoded(dice, case, statements, extended);
    }
    let texts: Vec<&[u8]> = statements.iter().map(String::as_bytes).collect();
    let behind = |at: usize| if copies && at + 1 == texts.len() { data() } else { Vec::new() };
    match dice.below(if extended { 5 } else { 2 }) {
        0 => {
            let each = texts.iter().enumerate();
            case.attack.extend(each.map(|(at, text)| simple(text).and(behind(at))));
        }
        1 => {
            let mut text = texts.join(&b"\n;\n"[..]);
            if !copies && dice.one_in(3) {
                text = [b"SELECT 1\n;\n", text.as_slice(), b"\n;\nSELECT 2"].concat();
            }
            case.attack.push(simple(&text).and(behind(texts.len() - 1)));
        }
        2 => {
            let all = texts.iter().enumerate().map(|(at, text)| [one(text), behind(at)].concat());
            case.attack.push(Step::new([all.collect::<Vec<_>>().concat(), sync()].concat(), 1));
        }
        3 => {
            for (at, text) in texts.iter().enumerate() {
                let name = format!("st{at}");
                let parts = [
                    parse(&name, text),
                    describe(b'S', &name),
                    bind("po", &name, &[]),
                    run("po", 0),
                    behind(at),
                    close(b'P', "po"),
                    sync(),
                ];
                case.attack.push(Step::new(parts.concat(), 1));
            }
        }
        _ => {
            let each = texts.iter().enumerate();
            let all = each.map(|(at, text)| [one(text), behind(at), sync()].concat());
            case.attack.push(Step::new(all.collect::<Vec<_>>().concat(), texts.len()));
        }
    }
}

/// The same in a client encoding, with a sign of it.
fn encoded(dice: &mut Dice, case: &mut Case, statements: &[String], extended: bool) {
    let encoding = dice.pick(ENCODINGS);
    case.startup.push(("client_encoding".to_owned(), encoding.name.to_owned()));
    if dice.one_in(3) {
        let first = ask("SET standard_conforming_strings = off");
        case.attack.insert(0, first);
    }
    for sql in statements {
        if dice.one_in(2) {
            case.attack.push(simple(&hidden(dice, encoding, sql)));
        } else {
            let text = with_sign(dice, encoding, sql);
            let step = if extended && dice.one_in(2) {
                Step::new([one(&text), sync()].concat(), 1)
            } else {
                simple(&text)
            };
            case.attack.push(step);
        }
    }
}

/// PREPARE before the fence, EXECUTE behind it.
fn prepared(dice: &mut Dice, case: &mut Case, number: usize) -> Option<()> {
    let sql = match read_like(dice, case.atom, number) {
        Some((setup, sql)) if dice.one_in(3) => {
            case.setup = setup;
            sql
        }
        _ => plannable(dice, case.atom.form)?,
    };
    let sql = format!("PREPARE pr AS {sql}");
    case.before.push(ask(&spelled(dice, &sql)));
    let execute = dice.pick(&[
        "EXECUTE pr",
        "EXPLAIN ANALYZE EXECUTE pr",
        "CREATE TABLE made AS EXECUTE pr",
        "BEGIN; EXECUTE pr; COMMIT",
        "EXPLAIN (ANALYZE) CREATE TEMP TABLE made AS EXECUTE pr",
        "DO $e$ BEGIN EXECUTE 'EXECUTE pr'; END $e$",
        "",
    ]);
    if execute.is_empty() {
        let parts = [bind("", "pr", &[]), run("", 0), sync()];
        case.attack.push(Step::new(parts.concat(), 1));
    } else {
        let sql = spelled(dice, execute);
        deliver(dice, case, &[sql], !execute.contains(';'));
    }
    Some(())
}

/// Parse before the fence, Bind and Execute behind it.
fn parsed(dice: &mut Dice, case: &mut Case, number: usize) -> Option<()> {
    let sql = match (read_like(dice, case.atom, number), case.atom.form) {
        (Some((setup, sql)), _) if dice.one_in(3) => {
            case.setup = setup;
            sql
        }
        (_, Form::Command(sql) | Form::CopyIn(sql)) => sql.to_owned(),
        (_, form) => plannable(dice, form)?,
    };
    let sql = spelled(dice, &sql);
    let name = dice.pick(&["", "named"]);
    case.before.push(Step::new([parse(name, sql.as_bytes()), sync()].concat(), 1));
    let copied = if matches!(case.atom.form, Form::CopyIn(_)) { data() } else { Vec::new() };
    let parts = [bind("", name, &[]), run("", 0), copied, sync()];
    case.attack.push(Step::new(parts.concat(), 1));
    Some(())
}

/// A portal before the fence, its rows behind it.
fn bound(dice: &mut Dice, case: &mut Case, number: usize) -> Option<()> {
    let (setup, sql) = read_like(dice, case.atom, number)?;
    case.setup = setup;
    let sql = spelled(dice, &sql);
    let portal = dice.pick(&["", "po"]);
    case.before.push(ask("BEGIN"));
    let parts = [parse("", sql.as_bytes()), bind(portal, "", &[]), sync()];
    case.before.push(Step::new(parts.concat(), 1));
    case.attack.push(Step::new([run(portal, 0), sync()].concat(), 1));
    Some(())
}

/// A cursor before the fence; its rows, or its transaction's end, behind it.
fn cursor(dice: &mut Dice, case: &mut Case, number: usize) -> Option<()> {
    let (setup, sql) = read_like(dice, case.atom, number)?;
    case.setup = setup;
    let held = case.position == Position::HeldCursor;
    let hold = if held { "WITH HOLD " } else { "" };
    let sql = spelled(dice, &format!("DECLARE c CURSOR {hold}FOR {sql}"));
    case.before.push(ask("BEGIN"));
    case.before.push(ask(&sql));
    if held {
        // The engine runs it to its end at COMMIT.
        let end = dice.pick(&["COMMIT", "END", "COMMIT AND CHAIN", "FETCH c; COMMIT"]);
        case.attack.push(ask(end));
    } else {
        let fetch = dice.pick(&["FETCH c", "FETCH ALL IN c", "MOVE c", "FETCH FORWARD 2 FROM c"]);
        let sql = spelled(dice, fetch);
        deliver(dice, case, &[sql], true);
    }
    Some(())
}
