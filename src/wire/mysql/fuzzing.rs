//! What a fuzzer asks of the MySQL wire: any bytes in, a broken property out.
//!
//! Purpose: one function per target, called by `fuzz/` (libFuzzer) and by `tests/fuzz_smoke.rs` (a
//! deterministic mutator). Pure. Not in release builds. It states properties, and decides nothing.
//!
//! The first byte of an input chooses the size of the pieces and what was agreed on at login; for
//! `answers` the second one chooses the command that is answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::BytesMut;

use super::auth::{Bridge, Exchange};
use super::capabilities::{self as bits, Capabilities};
use super::client::{self, Desk, Rest, Stop};
use super::conversation::{Begun, Conversation, Whose};
use super::guard::SET_READ_ONLY;
use super::startup::{self, Login};
use super::{engine, frame, refusal};
use crate::base::ids::{Generation, Namespace, SessionId};
use crate::fence::record::InFlight;
use crate::fence::verdict::Overlay;
use crate::gate::admission::Seat;
use crate::gate::registry::{Authority, Gates};
use crate::gate::slot::Card;
use crate::sql::{Classifier, MyFlavour, MyServer, Trusted};
use crate::store::LoadedFence;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::worker::WorkerCounters;
use crate::wire::shared::denials::Denials;
use crate::wire::shared::outgoing::Outgoing;

/// An OK that is also the number of a prepared statement without definitions: whatever the client
/// asked, but for rows, it ends the answer.
const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0];
/// The end of rows, of definitions and of a stream; also where an OK was agreed on in its place.
const EOF: &[u8] = &[0xfe, 0, 0, 2, 0];

/// In front of why a client's bytes ended a session.
const BROKEN: &str = "broken: ";

/// Both directions of one session, without sockets.
struct Session {
    conversation: Conversation,
    classifier: Classifier,
    counters: WorkerCounters,
    rest: (Rest, Rest),
    held: (BytesMut, BytesMut),
    to_engine: BytesMut,
    to_client: BytesMut,
    /// What the client has taken of that.
    taken: BytesMut,
    ended: Option<String>,
}

/// Where a session stands after it was fed.
type Outcome = (BytesMut, BytesMut, Option<String>);

/// What the first byte says: how long a piece is, and what was agreed on.
fn chosen(first: u8) -> (usize, u32) {
    let all = [
        bits::DEPRECATE_EOF,
        bits::SESSION_TRACK,
        bits::QUERY_ATTRIBUTES,
        bits::OPTIONAL_RESULTSET_METADATA,
    ];
    let agreed = all.iter().enumerate().filter(|(n, _)| first & 0x10 << n != 0);
    (usize::from(first & 0x0f) + 1, agreed.fold(0, |sum, (_, bit)| sum | bit))
}

fn begun(more: u32) -> Option<Begun> {
    let agreed = bits::PROTOCOL_41 | bits::SECURE_CONNECTION | bits::PLUGIN_AUTH | more;
    let mut login = agreed.to_le_bytes().to_vec();
    login.extend_from_slice(&[0; 28]);
    login.extend_from_slice(b"u\0\0");
    let mut login = Login::parse(&login)?;
    let exchange = Exchange::begin(&mut login, &[7; 20], Bridge::Straight, (2, 2), false);
    Some(Begun {
        agreed: Capabilities::of(agreed, 0),
        ok: OK.to_vec(),
        charset: 45,
        server: MyServer { flavour: MyFlavour::MariaDb, version: 101_119 },
        exchange,
    })
}

impl Session {
    fn new(open: bool, agreed: u32) -> Option<Self> {
        let gates = Arc::new(Gates::new(Generation(1)));
        gates.recovered();
        let gate = gates.gate(&Namespace::parse("old/app").ok()?);
        let loaded = LoadedFence::of_an_empty_store(gate.namespace().clone());
        gate.apply(Authority::Loaded(&loaded), InFlight::Finish);
        if !open {
            gate.overlay(Overlay::Installing, InFlight::Finish);
        }
        let seat = Seat::take(gate, SessionId(1), Card::default());
        let denials = Arc::new(Denials::new(&BTreeMap::new(), Arc::new(Metrics::new())));
        Some(Self {
            conversation: Conversation::new(seat, gates, denials, begun(agreed)?),
            classifier: Classifier::new(Arc::new(Trusted::default()), 16),
            counters: WorkerCounters::default(),
            rest: <(Rest, Rest)>::default(),
            held: <(BytesMut, BytesMut)>::default(),
            to_engine: BytesMut::new(),
            to_client: BytesMut::new(),
            taken: BytesMut::new(),
            ended: None,
        })
    }

    /// Sorts what the client sent, and says whether its next command waits for an answer.
    fn sort_client(&mut self) -> bool {
        let chunk = std::mem::take(&mut self.held.0);
        let counters = &self.counters;
        let mut desk = Desk { classifier: &mut self.classifier, now_ms: 0, counters };
        let mut out = Outgoing::new(&chunk, &mut self.to_engine);
        let (consumed, stop) = client::sort(
            &mut self.conversation,
            &mut self.rest.0,
            &mut desk,
            &mut out,
            &mut self.to_client,
        );
        let direct = out.finish();
        self.to_engine.extend_from_slice(chunk.get(direct).unwrap_or_default());
        self.held.0 = BytesMut::from(chunk.get(consumed..).unwrap_or_default());
        match stop {
            Some(Stop::Broken(why)) => self.ended = Some(format!("{BROKEN}{why}")),
            Some(Stop::Blocked) => return true,
            Some(Stop::Full) => {
                // A client that takes its answers at once.
                self.taken.unsplit(self.to_client.split());
                return self.sort_client();
            }
            // No hold rule is in force here.
            Some(Stop::More | Stop::Held) | None => {}
        }
        false
    }

    /// The client's bytes; the engine answers each command once the next one waits for that.
    fn client(&mut self, bytes: &[u8]) {
        self.held.0.extend_from_slice(bytes);
        // Each round answers something of the client's or of the proxy's own in front of it.
        for _ in 0..8 * (self.held.0.len() + 2) {
            if self.ended.is_some() || !self.sort_client() {
                return;
            }
            if let Some(Whose::OwnSetting(_)) = self.conversation.owed {
                self.engine_row();
                continue;
            }
            self.engine_packet(OK);
            if self.ended.is_none() && self.conversation.must_wait() {
                self.engine_packet(EOF);
            }
        }
        self.ended = Some("a command waits without end".to_owned());
    }

    /// The answer to the proxy's own question: a column, and a row with a 0.
    fn engine_row(&mut self) {
        self.engine_packet(&[1]);
        self.engine_packet(b"\x03def");
        if !self.conversation.tracker.rules().deprecate_eof {
            self.engine_packet(EOF);
        }
        self.engine_packet(b"\x010");
        self.engine_packet(EOF);
    }

    fn engine_packet(&mut self, payload: &[u8]) {
        let mut packet = BytesMut::new();
        frame::put(&mut packet, 1, payload);
        self.engine(&packet);
    }

    fn engine(&mut self, bytes: &[u8]) {
        self.held.1.extend_from_slice(bytes);
        if self.ended.is_some() {
            return;
        }
        let chunk = std::mem::take(&mut self.held.1);
        let mut out = Outgoing::new(&chunk, &mut self.to_client);
        let sorted =
            engine::sort(&mut self.conversation, &mut self.rest.1, &mut out, &mut self.to_engine);
        let direct = out.finish();
        self.to_client.extend_from_slice(chunk.get(direct).unwrap_or_default());
        match sorted {
            Ok(consumed) => {
                self.held.1 = BytesMut::from(chunk.get(consumed..).unwrap_or_default());
            }
            Err(why) => self.ended = Some(why.to_string()),
        }
    }

    fn outcome(self) -> Outcome {
        let mut told = self.taken;
        told.unsplit(self.to_client);
        (self.to_engine, told, self.ended)
    }
}

/// Feeds the bytes in pieces of `size`.
fn fed(mut session: Session, bytes: &[u8], size: usize, feed: fn(&mut Session, &[u8])) -> Outcome {
    for piece in bytes.chunks(size.max(1)) {
        feed(&mut session, piece);
    }
    session.outcome()
}

/// The same without the guard's statements: behind a read that came whole the next one's goes out
/// at once, and else in front of that one, or never.
fn without_guards((sent, told, ended): &Outcome, agreed: u32) -> Outcome {
    let mut guard = BytesMut::new();
    refusal::query(&mut guard, SET_READ_ONLY, agreed & bits::QUERY_ATTRIBUTES != 0);
    let (mut rest, mut left) = (&sent[..], BytesMut::new());
    while let Some((first, behind)) = rest.split_first() {
        rest = rest.strip_prefix(&guard[..]).unwrap_or_else(|| {
            left.extend_from_slice(&[*first]);
            behind
        });
    }
    (left, told.clone(), ended.clone())
}

/// What a client's bytes come to doesn't depend on how they are cut, with an open gate and with a
/// closed one (but for when guards are set), and no command waits for ever where the engine
/// answers.
///
/// # Errors
/// The property that doesn't hold.
pub fn frames(data: &[u8]) -> Result<(), String> {
    let Some((first, bytes)) = data.split_first() else { return Ok(()) };
    let (size, agreed) = chosen(*first);
    for open in [true, false] {
        let session = || Session::new(open, agreed).ok_or("no session");
        let mut whole = fed(session()?, bytes, bytes.len(), Session::client);
        let mut cut = fed(session()?, bytes, size, Session::client);
        if !open {
            (whole, cut) = (without_guards(&whole, agreed), without_guards(&cut, agreed));
        }
        same("a client's", size, &whole, &cut)?;
        if let Some(why) = whole.2.as_ref().filter(|why| !why.starts_with(BROKEN)) {
            return Err(format!("a client alone can't do that: {why}"));
        }
    }
    Ok(())
}

/// Commands whose answers have shapes of their own: a query, a prepare, a line of text, columns, a
/// cursor's rows, a ping, a change of user, a binary log.
const ASKED: &[&[u8]] = &[
    b"\x03SELECT 1",
    b"\x16SELECT ?",
    b"\x09",
    b"\x04t\0",
    b"\x1c\x01\0\0\0\x01\0\0\0",
    b"\x0e",
    b"\x11u\0\0\0\x2d\0mysql_native_password\0",
    b"\x12\x04\0\0\0\0\0\x01\0\0\0",
];

/// What an engine's bytes come to doesn't depend on how they are cut, whatever it was asked.
///
/// # Errors
/// The property that doesn't hold.
pub fn answers(data: &[u8]) -> Result<(), String> {
    let [first, second, bytes @ ..] = data else { return Ok(()) };
    let (size, agreed) = chosen(*first);
    // Without query attributes: the commands above are written without them.
    let agreed = agreed & !bits::QUERY_ATTRIBUTES;
    let asked = ASKED.get(usize::from(*second) % (ASKED.len() + 1));
    let session = || {
        let mut session = Session::new(true, agreed).ok_or("no session")?;
        if let Some(asked) = asked {
            let mut packet = BytesMut::new();
            frame::put(&mut packet, 0, asked);
            session.client(&packet);
        }
        Ok::<_, String>(session)
    };
    let whole = fed(session()?, bytes, bytes.len(), Session::engine);
    let cut = fed(session()?, bytes, size, Session::engine);
    same("an engine's", size, &whole, &cut)
}

fn same(whose: &str, size: usize, whole: &Outcome, cut: &Outcome) -> Result<(), String> {
    // A broken peer's messages may have been forwarded up to a different byte of the broken one.
    if whole.2.is_some() && cut.2.is_some() || whole == cut {
        return Ok(());
    }
    Err(format!("{whose} bytes in pieces of {size}: {cut:?} instead of {whole:?}"))
}

/// A greeting or a login packet that is taken comes out with everything it had, and is taken again.
///
/// # Errors
/// The property that doesn't hold.
pub fn login(data: &[u8]) -> Result<(), String> {
    startup::survives_relaying(data)
}
