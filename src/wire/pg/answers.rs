//! What the engine says: passed on, swallowed, or put into the fence's own words.
//!
//! Purpose: W4, W9, W12, W15 and W22 of wire.md for the direction engine to client. Only messages
//! that carry state are read: ReadyForQuery, ParameterStatus, CopyInResponse, PortalSuspended,
//! ParseComplete and CloseComplete, and errors where one of them may be a stand-in's, the guard's
//! or a forced rollback's. Rows pass by their headers. Pure; the relay does the I/O.

use bytes::BytesMut;

use crate::base::arm::{Removable, removed};
use crate::base::limits;
use crate::fence::code::Denial;
use crate::gate::slot::Card;
use crate::sql::PgLexing;
use crate::wire::pg::auto_prepare::Given;
use crate::wire::pg::client::Rest;
use crate::wire::pg::conversation::{Conversation, Forced};
use crate::wire::pg::frame::{self, HEADER, Header};
use crate::wire::pg::owed::{Behind, Entry, Unclear, Whose};
use crate::wire::pg::refusal::{CANCELLED_SQLSTATE, READ_ONLY_SQLSTATE, Severity, Status, field};
use crate::wire::shared::outgoing::Outgoing;

enum Ruling {
    Pass,
    Drop,
    More,
    Fault(&'static str),
}

/// The engine broke the protocol, or its answers can't be told apart any more: the session ends.
/// The message is for the log and for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the engine's answers can't be followed: {0}")]
pub(crate) struct EngineFault(String);

const READY_TOO_EARLY: &str = "it is ready in the middle of a pipeline that has had no Sync, so it \
    does not skip the rest (an error on COPY data or the end of a COPY outside a COPY does that)";
const OUT_OF_ORDER: &str = "it has completed something else than what was to be completed next";
const ERROR_ASTRAY: &str = "an error that may have come on COPY data or the end of a COPY outside \
    a COPY, so it is not known whether the rest of the pipeline is skipped";

/// Sorts a chunk from the engine. Returns how many bytes were consumed; the rest is the beginning
/// of a message that must be read whole.
pub(crate) fn sort(
    conversation: &mut Conversation,
    rest: &mut Rest,
    out: &mut Outgoing<'_>,
    to_engine: &mut BytesMut,
) -> Result<usize, EngineFault> {
    let chunk = out.chunk();
    let mut at = 0;
    let mut mine = answers_own(conversation);
    loop {
        if rest.bytes > 0 {
            let take = rest.bytes.min(chunk.len() - at);
            if rest.pass {
                out.continuation(at..at + take);
            }
            rest.bytes -= take;
            at += take;
            if rest.bytes > 0 {
                return Ok(at);
            }
        }
        let Some(bytes) = chunk.get(at..).filter(|bytes| !bytes.is_empty()) else {
            return Ok(at);
        };
        let header = match frame::header(bytes) {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(at),
            Err(bad) => return Err(EngineFault(bad.to_string())),
        };
        let body = bytes.get(HEADER..).unwrap_or_default();
        let body = body.get(..header.body.min(body.len())).unwrap_or_default();
        let mut here = at..at + HEADER + body.len();
        if speaks(header.tag) && conversation.owed.speaks() {
            mine = answers_own(conversation);
        }
        let ruling = if carries_state(header.tag) || mine && header.tag == b'C' {
            let ruling = rule(conversation, header, body, mine, out, to_engine);
            mine = answers_own(conversation);
            ruling
        } else {
            if completes(header.tag) {
                conversation.owed.completed();
            }
            if is_row(header.tag) && body.len() == header.body {
                here.end += rows(chunk.get(here.end..).unwrap_or_default());
            }
            usual(mine)
        };
        let end = here.end;
        match ruling {
            Ruling::More => return Ok(at),
            Ruling::Fault(what) => return Err(EngineFault(what.to_owned())),
            Ruling::Drop => rest.pass = false,
            Ruling::Pass => {
                rest.pass = true;
                out.continuation(here);
            }
        }
        rest.bytes = header.body - body.len();
        at = end;
    }
}

/// A row, of an answer or of a COPY: nothing is known behind one that wasn't before.
const fn is_row(tag: u8) -> bool {
    matches!(tag, b'D' | b'd')
}

/// Length of the whole rows in front of `bytes`: they go the way of the row before them.
fn rows(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(Ok(Some(header))) = bytes.get(at..).map(frame::header)
        && is_row(header.tag)
        && let end = at + HEADER + header.body
        && end <= bytes.len()
    {
        at = end;
    }
    at
}

/// Whether what the engine answers now was asked by the proxy itself.
fn answers_own(conversation: &Conversation) -> bool {
    conversation.owed.front().is_some_and(|entry| entry.whose != Whose::Client)
}

/// Whether a message of this type is said only in answer to something; the others, but for
/// ReadyForQuery, come whenever the engine likes.
const fn speaks(tag: u8) -> bool {
    !matches!(tag, b'Z' | b'N' | b'A' | b'S' | b'K')
}

/// Whether a message of this type must be ruled on; all others, rows above all, go the usual way.
const fn carries_state(tag: u8) -> bool {
    matches!(tag, b'Z' | b'E' | b'S' | b'G' | b's' | b'1' | b'3' | b'A' | b'N')
}

/// Whether a message of this type is the whole answer to one message of a pipeline, or to one
/// statement; ParseComplete and CloseComplete, which carry state, are as well.
const fn completes(tag: u8) -> bool {
    matches!(tag, b'2' | b'C' | b'I' | b's' | b'T' | b'n')
}

const fn usual(mine: bool) -> Ruling {
    if mine { Ruling::Drop } else { Ruling::Pass }
}

/// `mine` says that the proxy itself asked; the message is one that [`carries_state`].
fn rule(
    conversation: &mut Conversation,
    header: Header,
    body: &[u8],
    mine: bool,
    out: &mut Outgoing<'_>,
    to_engine: &mut BytesMut,
) -> Ruling {
    let usual = usual(mine);
    let whole = body.len() == header.body;
    let silent = conversation.owed.is_silent();
    let readable = header.body <= limits::ENGINE_MESSAGE_INSPECT_BYTES_MAX;
    match header.tag {
        // Nothing may be kept waiting for: leases hang on this one.
        b'Z' if header.body != 1 => Ruling::Fault("a ReadyForQuery that isn't one byte long"),
        b'Z' if !whole => Ruling::More,
        b'Z' if silent => Ruling::Fault("a ReadyForQuery that nothing was asked for"),
        b'Z' => ready(conversation, body, to_engine),
        b'E' if readable && !whole => Ruling::More,
        b'E' => reported(conversation, body, whole, mine, out),
        b'S' if readable && !whole => Ruling::More,
        b'S' => parameter(conversation, body, mine),
        b'G' => {
            conversation.owed.copy_in_began();
            if let Some(auto) = &mut conversation.auto {
                auto.query_begun();
            }
            usual
        }
        // PortalSuspended: rows wait.
        b's' => {
            conversation.owed.completed();
            if !mine {
                conversation.seat.set_cursor(true);
            }
            usual
        }
        b'1' | b'3' if !mine => {
            conversation.owed.completed();
            conversation.prepared.completed();
            match conversation.auto.as_mut().map(|auto| auto.completed(header.tag)) {
                None | Some(Given::Same) => usual,
                Some(Given::Nothing) => Ruling::Drop,
                Some(Given::ParseComplete) => {
                    out.inject(|buffer| frame::put(buffer, b'1', &[]));
                    Ruling::Drop
                }
                Some(Given::Fault) => Ruling::Fault(OUT_OF_ORDER),
            }
        }
        b'C' if !whole => Ruling::More,
        b'C' => {
            conversation.owed.completed();
            if let Some(entry) = conversation.owed.front_mut() {
                entry.confirmed |= body.starts_with(b"SET") || body.starts_with(b"RESET");
            }
            usual
        }
        // A notification is never the answer to the proxy's own statement.
        b'A' => Ruling::Pass,
        b'N' => {
            if let (Some(auto), Some(entry)) = (&mut conversation.auto, conversation.owed.front()) {
                auto.noticed(entry.number, entry.done());
            }
            usual
        }
        _ => usual,
    }
}

/// The one byte of a ReadyForQuery.
fn ready(conversation: &mut Conversation, body: &[u8], to_engine: &mut BytesMut) -> Ruling {
    let status = body.first().map_or(Status::Open, |byte| Status::from_byte(*byte));
    let ended = match conversation.owed.answered() {
        Ok(ended) => ended,
        Err(Unclear) if removed(Removable::UnclearAnswers) => None,
        Err(Unclear) => return Ruling::Fault(READY_TOO_EARLY),
    };
    // One that ends nothing answers a Sync of the client's.
    let mine = ended.as_ref().is_some_and(|entry| entry.whose != Whose::Client);
    let behind = ended.as_ref().map_or(Behind::LoneSync, Entry::behind);
    conversation.note_block(status, behind);
    if let Some(entry) = ended {
        conversation.prepared.answered(entry.number);
        if let Some(auto) = &mut conversation.auto {
            auto.answered(entry.number);
        }
        conversation.own_answered(&entry, status);
    }
    if conversation.owed.is_empty() {
        conversation.quiet(status, behind, to_engine);
    }
    if mine { Ruling::Drop } else { Ruling::Pass }
}

/// An error, as far as it is there; `whole` says whether all of it is.
#[cold]
fn reported(
    conversation: &mut Conversation,
    body: &[u8],
    whole: bool,
    mine: bool,
    out: &mut Outgoing<'_>,
) -> Ruling {
    let ours = conversation.forced != Forced::No
        || conversation.owed.front().is_some_and(|entry| entry.guarded || entry.refused.is_some());
    let at = conversation.owed.front().map_or((0, 0), |entry| (entry.number, entry.done()));
    // One that ends the session has nothing behind it to skip or to run.
    let unclear = conversation.owed.errored().is_err() && !removed(Removable::UnclearAnswers);
    if unclear && severity(body) == Severity::Error {
        return Ruling::Fault(ERROR_ASTRAY);
    }
    if let Some(entry) = conversation.owed.front() {
        conversation.prepared.failed(entry.number);
        if let Some(auto) = &mut conversation.auto {
            auto.failed(at.0, at.1, entry.number);
            auto.reported(body);
        }
    }
    if !mine {
        conversation.own.failed();
    }
    match error(conversation, body, mine, ours && whole, out) {
        Ruling::Pass if whole => by_no_name(conversation, body, out),
        ruling @ (Ruling::Pass | Ruling::Drop | Ruling::More | Ruling::Fault(_)) => ruling,
    }
}

fn severity(body: &[u8]) -> Severity {
    match field(body, b'V').or_else(|| field(body, b'S')) {
        Some(b"FATAL" | b"PANIC") => Severity::Fatal,
        Some(_) | None => Severity::Error,
    }
}

fn error(
    conversation: &mut Conversation,
    body: &[u8],
    mine: bool,
    ours: bool,
    out: &mut Outgoing<'_>,
) -> Ruling {
    let severity = severity(body);
    conversation.fatal_seen |= severity == Severity::Fatal;
    if mine && severity == Severity::Error {
        let undo = conversation.owed.front_mut().is_some_and(|entry| {
            entry.failed = true;
            entry.whose == Whose::Undo
        });
        if undo {
            conversation.fail_undo();
        }
        return Ruling::Drop;
    }
    if !ours {
        return Ruling::Pass;
    }
    let sqlstate = field(body, b'C').unwrap_or_default();
    let refused = conversation.owed.front_mut().and_then(|entry| entry.refused.take());
    if let Some(refusal) = refused {
        if conversation.stand_in.caused(body) {
            out.inject(|buffer| conversation.tell(buffer, &refusal, Severity::Error));
            return Ruling::Drop;
        }
        if let Some(entry) = conversation.owed.front_mut() {
            entry.refused = Some(refusal);
        }
    }
    let cancelled = sqlstate == CANCELLED_SQLSTATE.as_bytes();
    let why = conversation.forced_why;
    let fatal = (severity == Severity::Fatal).then_some(why);
    let forced = match &mut conversation.forced {
        Forced::Cancelling { told, .. } if cancelled => {
            *told = true;
            Some(why)
        }
        Forced::Stopping { .. } if cancelled => Some(why),
        Forced::Stopping { .. } => fatal.filter(|why| *why == Denial::ReadFenced),
        Forced::No => None,
        Forced::Cancelling { .. } | Forced::RollingBack { .. } | Forced::RolledBack { .. } => fatal,
    };
    let guarded = conversation.owed.front().is_some_and(|entry| entry.guarded);
    let refused = guarded && sqlstate == READ_ONLY_SQLSTATE.as_bytes();
    let refused = refused.then(|| conversation.guard_denial());
    let Some(denial) = forced.or(refused) else { return Ruling::Pass };
    let refusal = conversation.refusal(denial);
    out.inject(|buffer| conversation.tell(buffer, &refusal, severity));
    Ruling::Drop
}

/// Passes an error on. Where it names a statement of the proxy's, the client's has no name.
#[cold]
fn by_no_name(conversation: &Conversation, body: &[u8], out: &mut Outgoing<'_>) -> Ruling {
    let auto = conversation.auto.as_deref();
    let Some(said) = auto.and_then(|auto| auto.without_names(body)) else { return Ruling::Pass };
    out.inject(|buffer| frame::put(buffer, b'E', &said));
    Ruling::Drop
}

/// ParameterStatus: lexing rules and the client's own read-only default are kept; what the guard
/// itself changed isn't the client's to see.
#[inline(never)]
fn parameter(conversation: &mut Conversation, body: &[u8], mine: bool) -> Ruling {
    let Some((name, rest)) = frame::text(body) else { return Ruling::Pass };
    let Some((value, _)) = frame::text(rest) else { return Ruling::Pass };
    if let Some(auto) = &mut conversation.auto {
        auto.setting_changed(name);
    }
    match name {
        b"default_transaction_read_only" => {
            let on = value == b"on";
            if mine {
                conversation.own.reported_to_us(on);
                return Ruling::Drop;
            }
            let opaque = conversation.owed.front().is_some_and(|entry| entry.opaque);
            if !conversation.own.reported(on, conversation.guard_on, opaque) {
                return Ruling::Drop;
            }
        }
        b"application_name" => {
            let slot = conversation.seat.slot();
            let name = std::str::from_utf8(value).unwrap_or("?").to_owned();
            slot.set_card(Card { application_name: name, ..(*slot.card()).clone() });
        }
        b"standard_conforming_strings" => {
            conversation.lexing.standard_conforming_strings = value != b"off";
        }
        b"client_encoding" => {
            let encoding = std::str::from_utf8(value).unwrap_or("");
            conversation.lexing = PgLexing {
                encoding: PgLexing::from_parameters("on", encoding).encoding,
                ..conversation.lexing
            };
        }
        _ => {}
    }
    Ruling::Pass
}
