//! Conversations with a PostgreSQL server, and how they are recorded.
//!
//! Purpose: [`CONVERSATIONS`], one function each: what is sent, and up to where answers are read.
//! [`Talk::record`] runs one against a port and gives the frames that came, with what must differ
//! between two servers' connections masked.
//!
//! Who uses it: `tests/relay_pg.rs`. It asserts nothing: two records are compared there.

#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod calling;
mod cancelling;
mod copy_errors;
mod copying;
mod edges;
mod encrypted;
mod extended;
mod killed;
pub mod listed;
pub mod mixed;
mod phases;
mod pipelines;
mod saying;
mod simple;
mod starting;
mod startups;
mod streaming;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::support::Wire;
use crate::support::wire::{Frame, query};

/// How long a frame may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is said in one conversation.
pub type Conversation = fn(&mut Talk);

/// One conversation of the corpus.
pub struct Case {
    pub name: String,
    /// Older servers don't know what it is about.
    pub since: u32,
    pub way: Way,
    pub run: Box<dyn Fn(&mut Talk) + Send + Sync>,
}

impl Case {
    /// In plaintext, for every version.
    pub fn new(name: impl Into<String>, run: impl Fn(&mut Talk) + Send + Sync + 'static) -> Self {
        Self { name: name.into(), since: 0, way: Way::Plain, run: Box::new(run) }
    }

    /// The same by another way to connect.
    pub fn by(self, way: Way) -> Self {
        Self { way, ..self }
    }

    /// The same for servers of this version and later.
    pub fn since(self, since: u32) -> Self {
        Self { since, ..self }
    }
}

/// How a client connects.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Plain,
    /// TLS behind an SSLRequest.
    Tls,
    /// TLS from the first byte.
    DirectTls,
}

/// The whole corpus.
pub fn corpus() -> Vec<Case> {
    let mut cases: Vec<_> =
        CONVERSATIONS.iter().map(|(name, run)| Case::new(*name, *run)).collect();
    cases.extend(families());
    cases
}

fn families() -> Vec<Case> {
    [
        calling::cases(),
        cancelling::cases(),
        copy_errors::cases(),
        edges::cases(),
        encrypted::cases(),
        killed::cases(),
        mixed::cases(),
        phases::cases(),
        pipelines::cases(),
        saying::cases(),
        startups::cases(),
        streaming::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Conversations that stand alone, by name.
static CONVERSATIONS: &[(&str, Conversation)] = &[
    ("simple: rows", simple::rows),
    ("simple: every kind of error", simple::errors),
    ("simple: several statements", simple::several),
    ("simple: an error in the middle", simple::error_in_the_middle),
    ("simple: BEGIN inside a string", simple::begin_inside),
    ("simple: COMMIT inside a string", simple::commit_inside),
    ("simple: empty", simple::empty),
    ("simple: notices and warnings", simple::notices),
    ("simple: transaction status", simple::transaction_status),
    ("simple: COMMIT answered ROLLBACK", simple::commit_answered_rollback),
    ("simple: a deferred constraint fails at COMMIT", simple::deferred_constraint),
    ("simple: several in flight", simple::several_in_flight),
    ("simple: LISTEN and NOTIFY", simple::listen_notify),
    ("simple: a notification between others", simple::notify_in_transaction),
    ("simple: ParameterStatus", simple::parameter_status),
    ("simple: DISCARD ALL", simple::discard_all),
    ("simple: PREPARE and EXECUTE", simple::sql_prepare),
    ("simple: cursors", simple::cursors),
    ("simple: 20 MB", simple::large),
    ("simple: a long statement", simple::long_statement),
    ("simple: client encoding and bytes that aren't text", simple::encodings),
    ("simple: VACUUM, CREATE INDEX CONCURRENTLY", simple::outside_transactions),
    ("simple: a procedure that commits", simple::procedure_commits),
    ("simple: FunctionCall", simple::function_call),
    ("simple: a statement timeout", simple::statement_timeout),
    ("simple: the engine ends the session", simple::terminated),
    ("simple: one byte at a time", simple::byte_by_byte),
    ("simple: Terminate", simple::terminate),
    ("extended: one statement", extended::one),
    ("extended: parameters and formats", extended::parameters),
    ("extended: a pipeline with one Sync", extended::one_sync),
    ("extended: a pipeline with several Syncs", extended::several_syncs),
    ("extended: an error in each phase", extended::error_in_each_phase),
    ("extended: everything up to Sync is skipped", extended::skipped),
    ("extended: Flush", extended::flushes),
    ("extended: Flush in a transaction, portal kept", extended::portal_kept),
    ("extended: portals suspended and resumed", extended::suspended),
    ("extended: portals die at Sync", extended::portal_dies),
    ("extended: named and unnamed statements", extended::names),
    ("extended: Close and Describe of unknown names", extended::unknown_names),
    ("extended: Describe before Bind", extended::describe_statement),
    ("extended: empty", extended::empty),
    ("extended: several Syncs and nothing else", extended::bare_syncs),
    ("extended: BEGIN in a pipeline", extended::begin_in_pipeline),
    ("extended: COMMIT without Sync", extended::commit_without_sync),
    ("extended: VACUUM in a pipeline", extended::vacuum_in_pipeline),
    ("extended: a simple query inside a pipeline", extended::simple_inside),
    ("extended: a simple query inside, by name", extended::simple_inside_by_name),
    ("extended: DEALLOCATE ALL before a Parse", extended::deallocate_all),
    ("extended: a plan that changed its result", extended::changed_plan),
    ("extended: 20 MB parameter", extended::large_parameter),
    ("extended: 2000 statements in one go", extended::many),
    ("extended: read only by itself", extended::read_only_by_itself),
    ("copy: in", copying::copy_in),
    ("copy: in, then a statement of the same string", copying::in_then_more),
    ("copy: in, given up by the client", copying::in_given_up),
    ("copy: in, bad data", copying::in_bad_data),
    ("copy: in, Syncs and Flushes among the data", copying::in_with_syncs),
    ("copy: in by a pipeline, data behind Sync", copying::in_behind_sync),
    ("copy: in by a pipeline that fails, late data", copying::in_pipeline_fails),
    ("copy: a Query in the middle is fatal", copying::query_in_copy),
    ("copy: out", copying::copy_out),
    ("copy: out, large", copying::out_large),
    ("copy: out that fails midway", copying::out_fails),
    ("copy: out by a pipeline", copying::out_extended),
    ("copy: data nobody asked for", copying::stray),
    ("start: protocol 3.0 and its parameters", starting::plain),
    ("start: protocol 3.2", starting::three_two),
    ("start: protocol 3.9999", starting::probe),
    ("start: unknown protocol options", starting::unknown_options),
    ("start: options", starting::options),
    ("start: an unknown setting", starting::unknown_setting),
    ("start: a missing role", starting::missing_role),
    ("start: a missing database", starting::missing_database),
    ("start: no database named", starting::default_database),
    ("start: replication, logical", starting::logical),
    ("start: replication, physical", starting::physical),
    ("start: a large startup packet", starting::large_packet),
];

/// One connection that is being recorded.
pub struct Talk {
    wire: Wire,
    port: u16,
    pub db: String,
    heard: Vec<Heard>,
    /// In a replication stream.
    streaming: bool,
}

/// A frame as recorded: its tag, and its body or, for a long one, its length and hash.
pub type Heard = (char, String);

impl Talk {
    /// Runs one conversation from its connect to its end.
    pub fn record(port: u16, db: &str, case: &Case) -> Vec<Heard> {
        let wire = match case.way {
            Way::Plain => Wire::open(port),
            Way::Tls => Wire::open_encrypted(port, false).unwrap(),
            Way::DirectTls => Wire::open_encrypted(port, true).unwrap(),
        };
        let db = db.to_owned();
        let mut talk = Self { wire, port, db, heard: Vec::new(), streaming: false };
        (case.run)(&mut talk);
        talk.heard
    }

    /// Logs in as `wire`, with these tables made anew: `r (n int, s text)` with three rows.
    pub fn start(&mut self) {
        self.login(3 << 16, &[]);
        self.send(&query(
            "SET client_min_messages = error;
             DROP SCHEMA IF EXISTS talk CASCADE; CREATE SCHEMA talk; SET search_path = talk;
             CREATE TABLE r (n int PRIMARY KEY, s text);
             INSERT INTO r VALUES (1, 'one'), (2, NULL), (3, 'three');
             RESET client_min_messages",
        ));
        self.ready(1);
    }

    /// Sends a startup packet of this version with more parameters, and reads up to
    /// ReadyForQuery or the close.
    pub fn login(&mut self, version: u32, more: &[(&str, &str)]) {
        let mut body = version.to_be_bytes().to_vec();
        let db = self.db.clone();
        let named = more.iter().any(|(name, _)| *name == "database" || *name == "user");
        let usual = [("user", "wire"), ("database", db.as_str())];
        let usual = usual.iter().filter(|_| !named);
        for (name, value) in usual.chain(more) {
            body.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
        }
        body.push(0);
        self.wire.send_untagged(&body);
        self.ready(1);
    }

    /// Sends a startup packet that isn't answered by a session, and reads up to a frame of `tag`.
    pub fn until_tag_after_login(&mut self, parameters: &[(&str, &str)], tag: u8) {
        let mut body = (3_u32 << 16).to_be_bytes().to_vec();
        for (name, value) in parameters {
            body.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
        }
        body.push(0);
        self.wire.send_untagged(&body);
        self.until(tag, 1);
    }

    /// Sends bytes as they are. That the server has closed the connection shows in what is read.
    pub fn send(&mut self, bytes: &[u8]) {
        let _closed = self.wire.try_send(bytes);
    }

    /// Reads up to and including the `count`-th ReadyForQuery, or to the close.
    pub fn ready(&mut self, count: usize) {
        self.until(b'Z', count);
    }

    /// Reads up to and including the `count`-th frame of a tag, or to the close.
    pub fn until(&mut self, tag: u8, count: usize) {
        let mut left = count;
        while left > 0 {
            match self.wire.try_read_frame(PATIENCE) {
                Ok(Some(frame)) => {
                    let Some(heard) = self.keep(frame) else { continue };
                    left -= usize::from(heard.0 == char::from(tag));
                    self.heard.push(heard);
                }
                Ok(None) => {
                    self.heard.push(('?', format!("no {:?} came", tag as char)));
                    return;
                }
                Err(_) => {
                    self.heard.push(('.', "closed".to_owned()));
                    return;
                }
            }
        }
    }

    /// Reads up to and including a row with this text, or to the close.
    pub fn until_said(&mut self, text: &str) {
        loop {
            self.until(b'D', 1);
            match self.heard.last() {
                Some(('D', row)) if !row.contains(text) => {}
                _ => return,
            }
        }
    }

    /// What is recorded of a frame; nothing of what servers say when they please.
    fn keep(&mut self, mut frame: Frame) -> Option<Heard> {
        match frame.0 {
            b'K' => self.wire.key.clone_from(&frame.1),
            b'W' => self.streaming = true,
            b'C' => self.streaming = false,
            // A keepalive; and places in the log and the time, in front of data.
            b'd' if self.streaming && frame.1[0] == b'k' => return None,
            b'd' if self.streaming => frame.1[1..25].fill(0),
            // Slots are the whole server's, and have the database in their names.
            b'E' => {
                let text = String::from_utf8_lossy(&frame.1);
                frame.1 = text.replace(&format!("of_{}", self.db), "slot").into_bytes();
            }
            _ => {}
        }
        Some(masked(&frame))
    }

    /// Records something that was found out otherwise.
    pub fn remark(&mut self, what: &str) {
        self.heard.push(('!', what.to_owned()));
    }

    /// Whether the server hasn't closed the connection, as far as it was read.
    pub fn is_open(&self) -> bool {
        self.heard.last().is_some_and(|last| last.0 != '.')
    }

    /// Another connection in the place of this one, with exactly these startup parameters.
    pub fn again(&mut self, parameters: &[(&str, &str)]) {
        self.wire = Wire::open(self.port);
        self.login(3 << 16, parameters);
    }

    /// Reads to the close.
    pub fn end(&mut self) {
        self.until(b'?', 1);
    }

    /// The engine's process id of this session.
    pub fn pid(&mut self) -> u32 {
        self.wire.backend_pid()
    }

    /// Sends a cancel request and returns when the server has closed its connection.
    pub fn cancel(&self) {
        self.wire.cancel();
    }

    /// As [`Self::cancel`], with a key that is wrong in its last byte.
    pub fn cancel_wrongly(&mut self) {
        let last = self.wire.key.len() - 1;
        self.wire.key[last] ^= 1;
        self.wire.cancel();
        self.wire.key[last] ^= 1;
    }

    /// Closes the sending side.
    pub fn shut(&mut self) {
        self.wire.shut();
    }

    /// Waits until this session's backend waits for what `event` names.
    pub fn wait_for(&mut self, event: &str) {
        let pid = self.pid();
        let mut other = self.other();
        let sql =
            format!("SELECT coalesce(wait_event, '') FROM pg_stat_activity WHERE pid = {pid}");
        let there = crate::support::poll(PATIENCE, || {
            (other.query(&sql).ok().cell() == event).then_some(())
        });
        if there.is_none() {
            self.heard.push(('?', format!("never waited for {event}")));
        }
        other.terminate();
    }

    /// Forgets the field of an error that begins like this.
    pub fn forget(&mut self, field: &str) {
        for (_, text) in self.heard.iter_mut().filter(|heard| heard.0 == 'E') {
            if let Some(from) = text.find(field) {
                let end = text[from..].find("\\x00").map_or(text.len(), |end| from + end);
                text.replace_range(from..end, "(forgotten)");
            }
        }
    }

    /// Has this session's backend terminated, by a session that doesn't come the same way.
    pub fn kill(&mut self) {
        let pid = self.pid();
        let mut other = self.other();
        other.query(&format!("SELECT pg_terminate_backend({pid})")).ok();
        other.terminate();
    }

    /// Asks simple queries one by one.
    pub fn ask(&mut self, statements: &[&str]) {
        for sql in statements {
            self.send(&query(sql));
            self.ready(1);
        }
    }

    /// Another session to the same place, logged in.
    pub fn other(&self) -> Wire {
        Wire::connect(self.port, "wire", &self.db)
    }
}

/// What is kept of a frame.
fn masked((tag, body): &Frame) -> Heard {
    let mut body = body.clone();
    match tag {
        // Keys: their length counts.
        b'K' => body.fill(0),
        // The notifying backend.
        b'A' => body[..4].fill(0),
        b'T' => mask_table_oids(&mut body),
        // Process ids and transaction numbers in texts.
        b'E' | b'N' => body = mask_numbers(&body),
        _ => {}
    }
    let text = if body.len() > 400 {
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        format!("{} bytes, hash {:x}", body.len(), hasher.finish())
    } else {
        body.escape_ascii().to_string()
    };
    (char::from(*tag), text)
}

/// RowDescription: each column's name is followed by the OID of its table.
fn mask_table_oids(body: &mut [u8]) {
    let count = u16::from_be_bytes([body[0], body[1]]);
    let mut at = 2;
    for _ in 0..count {
        let name = body[at..].iter().position(|b| *b == 0).unwrap();
        at += name + 1;
        body[at..at + 4].fill(0);
        at += 18;
    }
}

/// In an error's or notice's texts, numbers of four and more digits become one sign.
fn mask_numbers(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for field in body.split_inclusive(|byte| *byte == 0) {
        if !matches!(field[0], b'M' | b'D' | b'W' | b'H') {
            out.extend_from_slice(field);
            continue;
        }
        for part in field.chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit()) {
            let number = part.len() > 3 && part[0].is_ascii_digit();
            out.extend_from_slice(if number { b"#" } else { part });
        }
    }
    out
}
