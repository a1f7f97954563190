//! What a session of the siege can say: messages, texts, steps, and how they are written down.
//!
//! Purpose: the alphabet of `walk.rs`. A step is written the way the hostile readings write theirs:
//! `P(s "SELECT 1") B(,s) E() H S`, so that a log can be read, and retyped.
//!
//! Who uses it: `walk.rs` makes steps, `session.rs` sends them. It draws nothing and sends nothing.

use std::fmt;

use crate::support::wire::{bind, close, copy_data, copy_done, describe, execute, frame, parse};
use crate::support::wire::{query, sync};

/// One message of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Statement's name and text.
    Parse(&'static str, String),
    /// Portal, statement.
    Bind(&'static str, &'static str),
    /// Portal, rows (0 = all).
    Execute(&'static str, u32),
    /// `S` or `P`, and a name.
    Describe(u8, &'static str),
    /// `S` or `P`, and a name.
    Close(u8, &'static str),
    /// So many Closes of the unnamed portal: what is pending is bounded.
    Closes(u32),
    Flush,
    Sync,
    Query(String),
    /// A function by its number, with one argument of four bytes each.
    Call(u32, Vec<u32>),
    CopyData,
    CopyDone,
    CopyFail,
}

impl Message {
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Parse(name, text) => parse(name, text),
            Self::Bind(portal, statement) => bind(portal, statement, &[]),
            Self::Execute(portal, rows) => execute(portal, *rows),
            Self::Describe(kind, name) => describe(*kind, name),
            Self::Close(kind, name) => close(*kind, name),
            Self::Closes(count) => close(b'P', "").repeat(*count as usize),
            Self::Flush => frame(b'H', &[]),
            Self::Sync => sync(),
            Self::Query(text) => query(text),
            Self::Call(function, arguments) => frame(b'F', &call(*function, arguments)),
            Self::CopyData => copy_data(b"copied\n"),
            Self::CopyDone => copy_done(),
            Self::CopyFail => frame(b'f', b"no\0"),
        }
    }
}

/// Binary arguments and a binary result.
fn call(function: u32, arguments: &[u32]) -> Vec<u8> {
    let mut body = function.to_be_bytes().to_vec();
    body.extend_from_slice(&[0, 1, 0, 1]);
    body.extend_from_slice(&u16::try_from(arguments.len()).unwrap().to_be_bytes());
    for argument in arguments {
        body.extend_from_slice(&[0, 0, 0, 4]);
        body.extend_from_slice(&argument.to_be_bytes());
    }
    body.extend_from_slice(&[0, 1]);
    body
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parse(name, text) => write!(f, "P({name} {text:?})"),
            Self::Bind(portal, statement) => write!(f, "B({portal},{statement})"),
            Self::Execute(portal, 0) => write!(f, "E({portal})"),
            Self::Execute(portal, rows) => write!(f, "E({portal},{rows})"),
            Self::Describe(kind, name) => write!(f, "D({}{name})", char::from(*kind)),
            Self::Close(kind, name) => write!(f, "C({}{name})", char::from(*kind)),
            Self::Closes(count) => write!(f, "C(P)x{count}"),
            Self::Flush => f.write_str("H"),
            Self::Sync => f.write_str("S"),
            Self::Query(text) => write!(f, "Q({text:?})"),
            Self::Call(function, arguments) => write!(f, "F({function} {arguments:?})"),
            Self::CopyData => f.write_str("d"),
            Self::CopyDone => f.write_str("c"),
            Self::CopyFail => f.write_str("f"),
        }
    }
}

/// One step of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Messages in one write, or in two: cut at this place of all their bytes (modulo their count).
    Send(Vec<Message>, Option<usize>),
    /// Reads for so many milliseconds, whatever comes.
    Listen(u64),
    /// Reads until nothing more seems to come.
    Settle,
    /// Sends a cancel for what runs.
    Cancel,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(messages, cut) => {
                let texts: Vec<String> = messages.iter().map(Message::to_string).collect();
                f.write_str(&texts.join(" "))?;
                cut.map_or(Ok(()), |at| write!(f, " /cut {at}"))
            }
            Self::Listen(ms) => write!(f, "-- {ms} ms"),
            Self::Settle => f.write_str("-- settle"),
            Self::Cancel => f.write_str("-- cancel"),
        }
    }
}

/// The names of statements; the wire's and SQL's are the same names.
pub const STATEMENTS: [&str; 4] = ["", "s", "c", "v"];

/// The names of portals and cursors.
pub const PORTALS: [&str; 3] = ["", "p1", "p2"];

/// Harmless reads.
pub const READS: [&str; 6] = [
    "SELECT 1",
    "SELECT 1",
    "SELECT count(*) FROM t",
    "SHOW transaction_read_only",
    "SELECT n FROM generate_series(1, 3) n",
    "",
];

/// Reads by their text, each of which changes something, or could lift the guard.
pub const HIDDEN: [&str; 9] = [
    "SELECT '{1}'::own[]",
    "SELECT n FROM drawing",
    "SELECT n FROM drawing, generate_series(1, 2)",
    "SELECT n FROM making",
    "SELECT n FROM writing",
    "SELECT n FROM object",
    "SELECT n FROM switching",
    "SELECT n FROM relaxing",
    "EXPLAIN ANALYZE SELECT n FROM drawing",
];

/// The same from PostgreSQL 18 on: before, a function may lift the guard within its own statement
/// (a limit told in `docs/CONTRACT.md`).
pub const LIFTING: &str = "SELECT n FROM lifting";

/// Plain writes. `#` stands for a number of its own.
pub const WRITES: [&str; 7] = [
    "INSERT INTO t DEFAULT VALUES",
    "INSERT INTO t DEFAULT VALUES",
    "SELECT drawn()",
    "CREATE TABLE plain_# ()",
    "EXPLAIN ANALYZE CREATE TABLE explained_# AS SELECT 1 AS n",
    "DO $$ BEGIN PERFORM drawn(); END $$",
    "CALL ending()",
];

/// Transactions.
pub const BLOCKS: [&str; 18] = [
    "BEGIN",
    "BEGIN",
    "BEGIN READ ONLY",
    "BEGIN READ WRITE",
    "START TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "COMMIT",
    "COMMIT",
    "ROLLBACK",
    "COMMIT AND CHAIN",
    "ROLLBACK AND CHAIN",
    "SAVEPOINT a",
    "SAVEPOINT b",
    "ROLLBACK TO a",
    "RELEASE a",
    "SET TRANSACTION READ WRITE",
    "SET TRANSACTION READ ONLY",
    "SET transaction_read_only = off",
    "SET LOCAL statement_timeout = 60",
];

/// What changes the session.
pub const SETTINGS: [&str; 15] = [
    "SET statement_timeout = 40",
    "SET statement_timeout = 80",
    "RESET statement_timeout",
    "RESET ALL",
    "RESET ALL",
    "DISCARD ALL",
    "RESET default_transaction_read_only",
    "SET default_transaction_read_only = off",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "RESET SESSION AUTHORIZATION",
    "SET ROLE app",
    "RESET ROLE",
    "CLOSE ALL",
    "DEALLOCATE ALL",
];

/// Statements by SQL; `@` is one of the names.
pub const PREPARES: [&str; 7] = [
    "PREPARE @ AS SELECT 1",
    "PREPARE @ AS SELECT n FROM drawing",
    "PREPARE @ AS INSERT INTO t DEFAULT VALUES",
    "EXECUTE @",
    "EXECUTE @",
    "EXPLAIN ANALYZE EXECUTE @",
    "DEALLOCATE @",
];

/// Cursors; `@` is one of the portals.
pub const CURSORS: [&str; 8] = [
    "DECLARE @ CURSOR FOR SELECT n FROM drawing, generate_series(1, 9)",
    "DECLARE @ CURSOR WITH HOLD FOR SELECT n FROM drawing, generate_series(1, 3)",
    "DECLARE @ SCROLL CURSOR FOR SELECT n FROM generate_series(1, 3) n",
    "FETCH @",
    "FETCH ALL FROM @",
    "MOVE @",
    "MOVE BACKWARD 1 FROM @",
    "CLOSE @",
];

/// COPY.
pub const COPIES: [&str; 6] = [
    "COPY t TO STDOUT",
    "COPY (SELECT n FROM drawing) TO STDOUT",
    "COPY t (who) FROM STDIN",
    "COPY t (who) FROM STDIN",
    "COPY t (who) FROM STDIN (FREEZE)",
    "COPY nosuch FROM STDIN",
];

/// What fails, or takes its time.
pub const ERRORS: [&str; 6] = [
    "SELECT 1/0",
    "SELEC",
    "SELECT nosuch",
    "SELECT pg_sleep(0.2)",
    "SELECT pg_sleep(0.02)",
    "SELECT n FROM failing",
];

/// Functions by number: `lo_open` for reading and `lo_close`, which count as reads, and `now`.
pub const CALLS: [(u32, &[u32]); 3] = [(952, &[4242, 0x0004_0000]), (953, &[0]), (1299, &[])];
