//! What the engine says: passed on, and followed to where the answer ends.
//!
//! Purpose: W4 and W22 of wire.md for the direction engine to client. Only as much of a packet is
//! read as `answers.rs` needs to follow the answer; rows pass by their headers. Pure; the relay
//! does the I/O.

use bytes::BytesMut;

use crate::base::limits;
use crate::wire::mysql::answers::Seen;
use crate::wire::mysql::auth::{Letters, Stage};
use crate::wire::mysql::client::Rest;
use crate::wire::mysql::conversation::{Conversation, Inbound};
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
        conversation.note_sequence(header.sequence);
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
    if conversation.inbound == Inbound::Login {
        return login_step(conversation, header, payload, out, to_engine);
    }
    let first = payload.first().copied();
    if first.is_none() && header.payload > 0 {
        return Ok(Ruling::More);
    }
    let wanted = conversation.tracker.wants(header.payload, first.unwrap_or_default());
    let Some(head) = payload.get(..wanted) else { return Ok(Ruling::More) };
    let seen = conversation.tracker.packet(header.payload, head);
    match seen.map_err(|impossible| EngineFault(impossible.to_string()))? {
        Seen::Within | Seen::Told(_) | Seen::LoginWanted | Seen::Farewell => {}
        Seen::FileWanted => conversation.inbound = Inbound::File,
        Seen::Prepared { done, .. } => {
            if done {
                conversation.answered(conversation.status);
            }
        }
        Seen::Done(status) => conversation.answered(status.or(conversation.status)),
        Seen::Failed(_) => conversation.answered(None),
    }
    Ok(Ruling::Pass)
}

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
    let stage = exchange.from_engine((header.sequence, payload), &mut letters);
    out.inject(|buffer| buffer.extend_from_slice(&letters.to_client));
    to_engine.extend_from_slice(&letters.to_engine);
    match stage.map_err(|error| EngineFault(error.to_string()))? {
        Stage::On => {}
        Stage::Welcome | Stage::Refused => {
            conversation.inbound = Inbound::Commands;
            let seen = conversation.tracker.packet(header.payload, payload);
            if let Ok(Seen::Done(status)) = seen {
                conversation.answered(status);
            } else {
                conversation.answered(None);
            }
        }
    }
    Ok(Ruling::Drop)
}
