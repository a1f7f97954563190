//! Conversations with a PostgreSQL server, and how they are recorded.
//!
//! Purpose: [`CONVERSATIONS`], one function each: what is sent, and up to where answers are read.
//! [`Talk::record`] runs one against a port and gives the frames that came, with what must differ
//! between two servers' connections masked.
//!
//! Who uses it: `tests/relay_pg.rs`. It asserts nothing: two records are compared there.

#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod copying;
mod extended;
mod simple;
mod starting;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::support::Wire;
use crate::support::wire::{Frame, query};

/// How long a frame may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// One conversation.
pub type Conversation = fn(&mut Talk);

/// Every conversation by name.
pub static CONVERSATIONS: &[(&str, Conversation)] = &[
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
}

/// A frame as recorded: its tag, and its body or, for a long one, its length and hash.
pub type Heard = (char, String);

impl Talk {
    /// Runs one conversation from its connect to its end.
    pub fn record(port: u16, db: &str, conversation: Conversation) -> Vec<Heard> {
        let (wire, db) = (Wire::open(port), db.to_owned());
        let mut talk = Self { wire, port, db, heard: Vec::new() };
        conversation(&mut talk);
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

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.wire.send_raw(bytes);
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
                    left -= usize::from(frame.0 == tag);
                    let heard = masked(&frame);
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

    /// Reads to the close.
    pub fn end(&mut self) {
        self.until(b'?', 1);
    }

    /// The engine's process id of this session, by asking.
    pub fn pid(&mut self) -> String {
        self.wire.query("SELECT pg_backend_pid()").ok().cell()
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
