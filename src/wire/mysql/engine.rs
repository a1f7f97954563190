//! What the engine says: passed on, swallowed, or put into the fence's own words.
//!
//! Purpose: W4, W12, W13, W15 and W22 of wire.md for the direction engine to client. Only as much
//! of a packet is read as `answers.rs` needs to follow the answer; rows pass by their headers.
//! Pure; the relay does the I/O.

use bytes::BytesMut;

use crate::base::limits;
use crate::fence::code::Denial;
use crate::wire::mysql::answers::{self, Seen};
use crate::wire::mysql::auth::{Letters, Stage};
use crate::wire::mysql::client::Rest;
use crate::wire::mysql::conversation::{Conversation, Inbound, Outcome, Whose};
use crate::wire::mysql::frame::{self, HEADER, Header};
use crate::wire::shared::outgoing::Outgoing;

/// The engine broke the protocol. The message is for the log; the session ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the engine sent what can't be: {0}")]
pub(crate) struct EngineFault(String);

enum Ruling {
    Pass,
    Drop,
    More,
}

/// Sorts a chunk from the engine. Returns how many bytes were consumed; the rest is the beginning
/// of a packet of which more must be there.
pub(crate) fn sort(
    conversation: &mut Conversation,
    rest: &mut Rest,
    out: &mut Outgoing<'_>,
    to_engine: &mut BytesMut,
) -> Result<usize, EngineFault> {
    let chunk = out.chunk();
    let mut at = 0;
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
        if !rest.goes_on
            && conversation.relays_an_answer()
            && let Some((length, sequence)) = conversation.tracker.skim(bytes)
        {
            rest.pass = true;
            out.continuation(at..at + length);
            conversation.note_sequence(sequence);
            at += length;
            continue;
        }
        let Some(header) = frame::header(bytes) else { return Ok(at) };
        let there = bytes.len().min(HEADER + header.payload);
        let payload = bytes.get(HEADER..there).unwrap_or_default();
        if !rest.goes_on {
            match rule(conversation, header, payload, out, to_engine)? {
                Ruling::More => return Ok(at),
                Ruling::Pass => rest.pass = true,
                Ruling::Drop => rest.pass = false,
            }
        }
        if rest.pass {
            out.continuation(at..at + there);
        }
        if rest.pass {
            conversation.note_sequence(header.sequence);
        }
        rest.goes_on = header.goes_on();
        rest.bytes = HEADER + header.payload - there;
        at += there;
    }
}

fn rule(
    conversation: &mut Conversation,
    header: Header,
    payload: &[u8],
    out: &mut Outgoing<'_>,
    to_engine: &mut BytesMut,
) -> Result<Ruling, EngineFault> {
    if !is_asked_for(conversation, header, payload)? {
        return Ok(Ruling::More);
    }
    if conversation.inbound == Inbound::Login {
        return login_step(conversation, header, payload, out, to_engine);
    }
    let first = payload.first().copied();
    if first.is_none() && header.payload > 0 {
        return Ok(Ruling::More);
    }
    let first = first.unwrap_or_default();
    let wanted = conversation.tracker.wants(header.payload, first);
    let Some(head) = payload.get(..wanted) else { return Ok(Ruling::More) };
    let seen = conversation.tracker.packet(header.payload, head);
    let seen = seen.map_err(|impossible| EngineFault(impossible.to_string()))?;
    not_in_a_file(conversation, seen, first)?;
    let usual = match conversation.owed {
        None | Some(Whose::Client { .. }) => Ruling::Pass,
        Some(_) => Ruling::Drop,
    };
    match seen {
        Seen::Within => note_own_setting(conversation, head),
        Seen::Told(status) => {
            conversation.told(status);
            conversation.result_ends();
            note_changes(conversation, head);
        }
        Seen::FileWanted if matches!(usual, Ruling::Drop) || conversation.is_armed_ahead() => {
            // Or by what was judged to ask for none: what is behind it isn't the file.
            return Err(EngineFault("a request for a file that nobody named".to_owned()));
        }
        Seen::FileWanted => {
            conversation.inbound = Inbound::File(header.sequence.wrapping_add(1));
        }
        Seen::Prepared { id, done } => {
            conversation.prepared.prepared(id);
            if done {
                conversation.answered(Outcome::Well(None), to_engine);
            }
        }
        Seen::Done(status) => {
            conversation.result_ends();
            note_changes(conversation, head);
            let cut = conversation.cut_stream();
            if let Some(denial) = cut {
                // A killed stream ends like a whole one.
                let refusal = conversation.refusal(denial);
                out.inject(|buffer| conversation.tell(buffer, header.sequence, &refusal));
            }
            conversation.answered(Outcome::Well(status), to_engine);
            if cut.is_some() {
                return Ok(Ruling::Drop);
            }
        }
        Seen::Failed(errno) => {
            let denial = denial(conversation, errno, head);
            if let Some(denial) = denial {
                let refusal = conversation.refusal(denial);
                out.inject(|buffer| conversation.tell(buffer, header.sequence, &refusal));
            }
            conversation.answered(Outcome::Badly(errno), to_engine);
            if denial.is_some() {
                return Ok(Ruling::Drop);
            }
        }
        // What the engine says unasked is its last word; were it not, every later answer would be
        // taken for another command's.
        Seen::Farewell => conversation.parted = true,
        Seen::LoginWanted => {}
    }
    Ok(usual)
}

/// Refuses an error that may be the answer to a command that has none. False where more of the
/// packet is wanted.
fn is_asked_for(
    conversation: &mut Conversation,
    header: Header,
    payload: &[u8],
) -> Result<bool, EngineFault> {
    if conversation.unasked.is_empty() || conversation.owed.is_none() {
        return Ok(true);
    }
    let Some(head) = payload.get(..header.payload.min(ERRNO_END)) else { return Ok(false) };
    let unasked = std::mem::take(&mut conversation.unasked);
    if let [answers::ERR, low, high] = *head
        && unasked.contains(&u16::from_le_bytes([low, high]))
    {
        // If it is, the answer to what is owed is still to come.
        return Err(EngineFault("an error that may be the answer to another command".to_owned()));
    }
    Ok(true)
}

/// Behind an answer in the middle of a file the engine takes commands, which would pass as pieces
/// of it.
fn not_in_a_file(conversation: &Conversation, seen: Seen, first: u8) -> Result<(), EngineFault> {
    if matches!(conversation.inbound, Inbound::File(_)) && !is_report(seen, first) {
        return Err(EngineFault("an answer in the middle of a client's file".to_owned()));
    }
    Ok(())
}

/// A report on the progress of what goes on.
const fn is_report(seen: Seen, first: u8) -> bool {
    matches!(seen, Seen::Within) && first == answers::ERR
}

/// What of the fence's an error is, if it is any of it and the client's to hear.
#[cold]
fn denial(conversation: &mut Conversation, errno: u16, packet: &[u8]) -> Option<Denial> {
    match conversation.owed {
        Some(Whose::Client { .. }) => {}
        Some(Whose::Savepoint) => {
            conversation.guard.note_no_savepoint(errno);
            return None;
        }
        Some(_) | None => return None,
    }
    let refused = conversation.is_guards_refusal(errno, packet);
    let refused = refused.then(|| conversation.guard_denial());
    refused.or_else(|| conversation.forced_denial(errno))
}

/// An OK packet may tell what has changed in the session.
#[inline(never)]
fn note_changes(conversation: &mut Conversation, packet: &[u8]) {
    if conversation.tracker.rules().session_track && packet.len() > EOF_BYTES {
        for change in answers::changes(packet) {
            conversation.changed(change);
        }
    }
}

/// An error's first byte and its number.
const ERRNO_END: usize = 3;

/// Length of an EOF, which tells no changes.
const EOF_BYTES: usize = 5;

/// The name in a row of one, empty for NULL. `None` for one that a character set might have made
/// another, or that is too long to be here whole.
fn plain_name(row: &[u8]) -> Option<&str> {
    if *row == [NULL] {
        return Some("");
    }
    let (name, rest) = frame::counted(row)?;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'$');
    let right = rest.is_empty() && !name.is_empty() && name.iter().all(plain);
    std::str::from_utf8(name).ok().filter(|_| right)
}

/// A value that is NULL.
const NULL: u8 = 0xfb;

/// The answer to a question of the proxy's own: one row of one digit, or of a schema's name.
#[inline(never)]
fn note_own_setting(conversation: &mut Conversation, packet: &[u8]) {
    if conversation.owed == Some(Whose::WhichSchema) {
        // Neither a number of columns nor a column's definition looks like these.
        if let Some(name) = plain_name(packet) {
            conversation.move_to(name);
        }
        return;
    }
    if let Some(Whose::OwnSetting(answer)) = &mut conversation.owed
        && let [1, digit @ (b'0' | b'1')] = packet
    {
        *answer = Some(*digit == b'1');
    }
}

#[inline(never)]
fn login_step(
    conversation: &mut Conversation,
    header: Header,
    payload: &[u8],
    out: &mut Outgoing<'_>,
    to_engine: &mut BytesMut,
) -> Result<Ruling, EngineFault> {
    if header.payload > limits::LOGIN_PACKET_BYTES_MAX {
        return Err(EngineFault("a packet longer than any of a login".to_owned()));
    }
    if payload.len() < header.payload {
        return Ok(Ruling::More);
    }
    let mut letters = Letters::default();
    let exchange = &mut conversation.begun.exchange;
    let stage = exchange.engine_said((header.sequence, payload), &mut letters);
    out.inject(|buffer| buffer.extend_from_slice(&letters.to_client));
    to_engine.extend_from_slice(&letters.to_engine);
    match stage.map_err(|error| EngineFault(error.to_string()))? {
        Stage::On => {}
        Stage::Welcome | Stage::Refused => {
            conversation.inbound = Inbound::Commands;
            let outcome = match conversation.tracker.packet(header.payload, payload) {
                Ok(Seen::Done(status)) => {
                    note_changes(conversation, payload);
                    Outcome::Well(status)
                }
                Ok(Seen::Failed(errno)) => Outcome::Badly(errno),
                Ok(_) | Err(_) => Outcome::Badly(0),
            };
            conversation.answered(outcome, to_engine);
        }
    }
    Ok(Ruling::Drop)
}
