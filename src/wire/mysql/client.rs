//! What the client sends: each packet forwarded, refused, or kept waiting.
//!
//! Purpose: W5, W6, W8, W22 and W24 of wire.md for the direction client to engine. A command is
//! admitted before its first byte goes out; the rest of it passes by its headers. Pure: bytes in,
//! bytes out; the relay does the I/O. It doesn't know how answers look (`answers.rs`).

use bytes::BytesMut;

use crate::base::limits;
use crate::gate::admission::Refusal;
use crate::sql::{Classifier, StatementClass};
use crate::wire::mysql::auth::Letters;
use crate::wire::mysql::commands::{Command, Judge};
use crate::wire::mysql::conversation::{Conversation, Inbound};
use crate::wire::mysql::frame::{self, HEADER, Header};
use crate::wire::mysql::refusal;
use crate::wire::shared::denials::Surface;
use crate::wire::shared::outgoing::Outgoing;

/// Why sorting stopped before the end of the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The next packet isn't there as far as it must be.
    More,
    /// The next command must wait until nothing is owed.
    Blocked,
    /// The client broke the protocol: what it is told before the close.
    Broken(String),
}

/// What is left of a packet whose fate is decided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rest {
    pub(crate) bytes: usize,
    pub(crate) pass: bool,
    /// The payload goes on in the next packet.
    pub(crate) goes_on: bool,
}

impl Rest {
    /// Whether nothing is left, and the next packet begins something new.
    pub(crate) const fn is_over(self) -> bool {
        self.bytes == 0 && !self.goes_on
    }
}

/// What happens to one packet.
pub(crate) enum Ruling {
    Pass,
    Drop,
    Stop(Stop),
}

/// What sorting needs from its surroundings.
pub(crate) struct Desk<'a> {
    pub(crate) classifier: &'a mut Classifier,
    /// The process's monotonic clock, milliseconds.
    pub(crate) now_ms: u64,
}

/// Sorts a chunk. Returns how many bytes were consumed, and why it stopped if not at the end.
pub(crate) fn sort(
    conversation: &mut Conversation,
    rest: &mut Rest,
    desk: &mut Desk<'_>,
    out: &mut Outgoing<'_>,
    to_client: &mut BytesMut,
) -> (usize, Option<Stop>) {
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
                return (at, None);
            }
        }
        let Some(bytes) = chunk.get(at..).filter(|bytes| !bytes.is_empty()) else {
            return (at, None);
        };
        let Some(header) = frame::header(bytes) else { return (at, Some(Stop::More)) };
        let there = bytes.len().min(HEADER + header.payload);
        let payload = bytes.get(HEADER..there).unwrap_or_default();
        let here = at..at + there;
        let ruling = if rest.goes_on {
            if rest.pass {
                out.continuation(here);
            }
            Ruling::Pass
        } else {
            rest.pass = true;
            let mut packet = Packet { header, payload, here, conversation, desk, out, to_client };
            packet.rule()
        };
        match ruling {
            Ruling::Pass => {}
            Ruling::Drop => rest.pass = false,
            Ruling::Stop(stop) => return (at, Some(stop)),
        }
        conversation.note_sequence(header.sequence);
        rest.goes_on = header.goes_on();
        rest.bytes = HEADER + header.payload - there;
        at += there;
    }
}

/// One packet being ruled on.
struct Packet<'m, 'o, 'd> {
    header: Header,
    /// What is there of the payload.
    payload: &'m [u8],
    here: std::ops::Range<usize>,
    conversation: &'m mut Conversation,
    desk: &'m mut Desk<'d>,
    out: &'m mut Outgoing<'o>,
    to_client: &'m mut BytesMut,
}

impl Packet<'_, '_, '_> {
    fn rule(&mut self) -> Ruling {
        match self.conversation.inbound {
            Inbound::File => {
                if self.header.payload == 0 {
                    self.conversation.inbound = Inbound::Commands;
                }
                self.out.continuation(self.here.clone());
                Ruling::Pass
            }
            Inbound::Login => self.login_step(),
            Inbound::Commands => self.command(),
        }
    }

    fn login_step(&mut self) -> Ruling {
        if self.payload.len() < self.header.payload {
            return Ruling::Stop(Stop::More);
        }
        let exchange = &mut self.conversation.begun.exchange;
        if !exchange.client_is_asked() {
            return Ruling::Stop(Stop::Blocked);
        }
        let mut letters = Letters::default();
        exchange.from_client((self.header.sequence, self.payload), &mut letters);
        self.to_client.extend_from_slice(&letters.to_client);
        self.out.inject(|buffer| buffer.extend_from_slice(&letters.to_engine));
        Ruling::Drop
    }

    /// The one place where a command goes to the engine.
    fn command(&mut self) -> Ruling {
        if self.conversation.must_wait() {
            return Ruling::Stop(Stop::Blocked);
        }
        let wanted = self.header.payload.min(limits::STATEMENT_INSPECT_BYTES_MAX);
        if self.payload.len() < wanted {
            return Ruling::Stop(Stop::More);
        }
        let command = Command::of(self.payload.first().copied().unwrap_or_default());
        let class = match command.judge() {
            Judge::Text | Judge::Statement => StatementClass::Unprovable,
            Judge::Opcode(class) => class,
            Judge::Nothing => {
                self.out.continuation(self.here.clone());
                self.conversation.tracker.expect(command.reply());
                return Ruling::Pass;
            }
        };
        match self.conversation.enter(class, self.desk.now_ms) {
            Ok(lease) => self.out.statement(lease, self.here.clone()),
            Err(refusal) => {
                self.refuse(&refusal);
                return Ruling::Drop;
            }
        }
        self.conversation.tracker.expect(command.reply());
        if command == Command::ChangeUser {
            self.conversation.inbound = Inbound::Login;
        }
        Ruling::Pass
    }

    fn refuse(&mut self, refusal: &Refusal) {
        let denials = &self.conversation.denials;
        denials.count(refusal.denial, Surface::Mysql);
        let sequence = self.header.sequence.wrapping_add(1);
        refusal::typed_error(self.to_client, sequence, refusal, denials.sqlstate(refusal.denial));
    }
}
