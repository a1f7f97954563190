//! What a fuzzer asks of the PostgreSQL wire: any bytes in, a broken property out.
//!
//! Purpose: one function per target, called by `fuzz/` (libFuzzer) and by `tests/fuzz_smoke.rs` (a
//! deterministic mutator). Pure. Not in release builds. It states properties, and decides nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::BytesMut;

use super::client::{self, Desk, Rest, Stop};
use super::conversation::{Conversation, Mode};
use super::{answers, startup};
use crate::base::ids::{Generation, Namespace, SessionId};
use crate::fence::record::InFlight;
use crate::fence::verdict::Overlay;
use crate::gate::admission::Seat;
use crate::gate::registry::{Authority, Gates};
use crate::gate::slot::Card;
use crate::sql::{Classifier, Trusted};
use crate::store::LoadedFence;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::worker::WorkerCounters;
use crate::wire::shared::denials::Denials;
use crate::wire::shared::outgoing::Outgoing;

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

impl Session {
    fn new(open: bool) -> Option<Self> {
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
            conversation: Conversation::new(seat, gates, Mode::Sql, denials),
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

    fn client(&mut self, bytes: &[u8]) {
        self.held.0.extend_from_slice(bytes);
        if self.ended.is_some() {
            return;
        }
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
            Some(Stop::Broken(why)) => self.ended = Some(why),
            Some(Stop::Full) => {
                // A client that takes its answers at once.
                self.taken.unsplit(self.to_client.split());
                self.client(&[]);
            }
            Some(Stop::More | Stop::Blocked | Stop::Held) | None => {}
        }
    }

    fn engine(&mut self, bytes: &[u8]) {
        self.held.1.extend_from_slice(bytes);
        if self.ended.is_some() {
            return;
        }
        let chunk = std::mem::take(&mut self.held.1);
        let mut out = Outgoing::new(&chunk, &mut self.to_client);
        let sorted =
            answers::sort(&mut self.conversation, &mut self.rest.1, &mut out, &mut self.to_engine);
        let direct = out.finish();
        self.to_client.extend_from_slice(chunk.get(direct).unwrap_or_default());
        match sorted {
            Ok(consumed) => {
                self.held.1 = BytesMut::from(chunk.get(consumed..).unwrap_or_default());
            }
            Err(why) => self.ended = Some(format!("{why:?}")),
        }
    }

    fn outcome(self) -> Outcome {
        let mut told = self.taken;
        told.unsplit(self.to_client);
        (self.to_engine, told, self.ended)
    }
}

/// Feeds the bytes in pieces of `size`.
fn fed(bytes: &[u8], size: usize, open: bool, feed: fn(&mut Session, &[u8])) -> Option<Outcome> {
    let mut session = Session::new(open)?;
    for piece in bytes.chunks(size.max(1)) {
        feed(&mut session, piece);
    }
    Some(session.outcome())
}

/// What a client's bytes come to doesn't depend on how they are cut, while the gate is open.
///
/// With a closed gate the bytes are only fed: the proxy's own statements have names that differ.
///
/// # Errors
/// The property that doesn't hold.
pub fn frames(data: &[u8]) -> Result<(), String> {
    let Some((first, bytes)) = data.split_first() else { return Ok(()) };
    let size = usize::from(first & 0x0f) + 1;
    drop(fed(bytes, size, false, Session::client));
    let whole = fed(bytes, bytes.len(), true, Session::client);
    let cut = fed(bytes, size, true, Session::client);
    same("a client's", size, whole, cut)
}

/// What an engine's bytes come to doesn't depend on how they are cut.
///
/// # Errors
/// The property that doesn't hold.
pub fn answers(data: &[u8]) -> Result<(), String> {
    let Some((first, bytes)) = data.split_first() else { return Ok(()) };
    let size = usize::from(first & 0x0f) + 1;
    let whole = fed(bytes, bytes.len(), true, Session::engine);
    let cut = fed(bytes, size, true, Session::engine);
    same("an engine's", size, whole, cut)
}

fn same(
    whose: &str,
    size: usize,
    whole: Option<Outcome>,
    cut: Option<Outcome>,
) -> Result<(), String> {
    // A broken peer's messages may have been forwarded up to a different byte of the broken one.
    let ends = |outcome: &Option<Outcome>| outcome.as_ref().map(|o| o.2.is_some());
    if ends(&whole) == Some(true) && ends(&cut) == Some(true) || whole == cut {
        return Ok(());
    }
    Err(format!("{whose} bytes in pieces of {size}: {cut:?} instead of {whole:?}"))
}

/// A startup packet that is taken comes out with everything it had, and is taken again.
///
/// # Errors
/// The property that doesn't hold.
pub fn startup(data: &[u8]) -> Result<(), String> {
    startup::survives_relaying(data)
}
