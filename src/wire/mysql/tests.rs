//! Scripted conversations: what goes to the engine and to the client, byte for byte, without one.
//!
//! Everything is fed in every chunking that matters: whole, and one byte at a time. What real
//! engines do with it is tested in `tests/`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::BytesMut;

use super::auth::{Bridge, Exchange};
use super::capabilities::{self as bits, Capabilities};
use super::client::{self, Desk, Rest, Stop};
use super::commands::{Command, Judge};
use super::conversation::{Begun, Conversation};
use super::engine;
use super::frame::{self, PAYLOAD_MAX};
use super::startup::Login;
use crate::base::ids::{Generation, Namespace, SessionId};
use crate::fence::record::InFlight;
use crate::fence::verdict::Overlay;
use crate::gate::admission::Seat;
use crate::gate::drain::Drain;
use crate::gate::registry::{Authority, Gate, Gates};
use crate::gate::slot::{Card, Order};
use crate::sql::{Classifier, MyFlavour, MyServer, Trusted};
use crate::store::LoadedFence;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::worker::WorkerCounters;
use crate::wire::shared::denials::Denials;
use crate::wire::shared::forced::{Action, Forced};
use crate::wire::shared::outgoing::Outgoing;
use crate::wire::shared::peer::behind;

mod ahead;
mod capability;
mod forced;
mod guard;
mod held;
mod holes;
mod idle;
mod leases;
mod packets;
mod schemas;
mod standing;
mod statements;

const ASK: &str = "SELECT @@session.tx_read_only";
const GUARD: &str = "SET SESSION TRANSACTION READ ONLY";
const UNDO: &str = "SET SESSION TRANSACTION READ WRITE";
const COMMIT: &str = "COMMIT AND NO CHAIN NO RELEASE";
const ROLLBACK: &str = "ROLLBACK AND NO CHAIN NO RELEASE";

/// Status flags.
const IDLE: u16 = 2;
const OPEN: u16 = 3;
const OPEN_READ_ONLY: u16 = 0x2003;

struct Stage {
    gates: Arc<Gates>,
    gate: Arc<Gate>,
    conversation: Conversation,
    classifier: Classifier,
    counters: WorkerCounters,
    to_engine: BytesMut,
    to_client: BytesMut,
    rest: (Rest, Rest),
    held: (BytesMut, BytesMut),
    blocked: bool,
    full: bool,
    chunk: usize,
}

fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    frame::put(&mut out, sequence, payload);
    out.to_vec()
}

fn command(opcode: u8, argument: &[u8]) -> Vec<u8> {
    packet(0, &[&[opcode], argument].concat())
}

fn query(sql: &str) -> Vec<u8> {
    command(3, sql.as_bytes())
}

/// A program with the guard for the next one behind it.
fn armed(program: &[u8]) -> Vec<u8> {
    [program, &query(GUARD)].concat()
}

fn prepare(sql: &str) -> Vec<u8> {
    command(0x16, sql.as_bytes())
}

fn execute(id: u32) -> Vec<u8> {
    command(0x17, &[&id.to_le_bytes()[..], &[0, 1, 0, 0, 0]].concat())
}

fn ping() -> Vec<u8> {
    command(0x0e, &[])
}

fn ok_payload(status: u16) -> Vec<u8> {
    let [low, high] = status.to_le_bytes();
    vec![0, 0, 0, low, high, 0, 0]
}

fn ok(status: u16) -> Vec<u8> {
    packet(1, &ok_payload(status))
}

fn prepared(id: u8) -> Vec<u8> {
    packet(1, &[0, id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
}

fn err(sequence: u8, code: u16, text: &str) -> Vec<u8> {
    let [low, high] = code.to_le_bytes();
    packet(sequence, &[&[0xff, low, high][..], b"#HY000", text.as_bytes()].concat())
}

fn rows(value: &[u8], status: u16) -> Vec<u8> {
    let [low, high] = status.to_le_bytes();
    let value = u8::try_from(value.len()).map(|n| [&[n], value].concat()).unwrap();
    [
        packet(1, &[1]),
        packet(2, b"\x03def\0\0\0\x01c\0\x0c"),
        packet(3, &[0xfe, 0, 0, low, high]),
        packet(4, &value),
        packet(5, &[0xfe, 0, 0, low, high]),
    ]
    .concat()
}

impl Stage {
    fn new(chunk: usize) -> Self {
        Self::with(chunk, 0)
    }

    fn with(chunk: usize, more_bits: u32) -> Self {
        Self::seated(chunk, more_bits, Card::default())
    }

    fn of(chunk: usize, card: Card) -> Self {
        Self::seated(chunk, 0, card)
    }

    fn seated(chunk: usize, more_bits: u32, card: Card) -> Self {
        let gates = Arc::new(Gates::new(Generation(1)));
        gates.recovered();
        let gate = gates.gate(&Namespace::parse("old/app").unwrap());
        let seat = Seat::take(Arc::clone(&gate), SessionId(1), card);
        let denials = Arc::new(Denials::new(&BTreeMap::new(), Arc::new(Metrics::new())));
        let agreed = bits::PROTOCOL_41 | bits::SECURE_CONNECTION | more_bits;
        let mut login = agreed.to_le_bytes().to_vec();
        login.extend_from_slice(&[0; 28]);
        login.extend_from_slice(b"u\0\0");
        let mut login = Login::parse(&login).unwrap();
        let exchange = Exchange::begin(&mut login, &[0; 20], Bridge::Straight, (2, 2), false);
        let begun = Begun {
            agreed: Capabilities::of(agreed, 0),
            ok: ok_payload(IDLE),
            charset: 45,
            server: MyServer { flavour: MyFlavour::MariaDb, version: 101_119 },
            exchange,
        };
        Self {
            conversation: Conversation::new(seat, Arc::clone(&gates), denials, begun),
            gates,
            gate,
            classifier: Classifier::new(Arc::new(Trusted::default()), 64),
            counters: WorkerCounters::default(),
            to_engine: BytesMut::new(),
            to_client: BytesMut::new(),
            rest: (Rest::default(), Rest::default()),
            held: (BytesMut::new(), BytesMut::new()),
            blocked: false,
            full: false,
            chunk,
        }
    }

    fn close(&self) {
        self.gate.overlay(Overlay::Installing, InFlight::Finish);
    }

    fn open(&self) {
        let loaded = LoadedFence::of_an_empty_store(self.gate.namespace().clone());
        self.gate.apply(Authority::Loaded(&loaded), InFlight::Finish);
    }

    fn other(&self, name: &str) -> Arc<Gate> {
        self.gates.gate(&Namespace::parse(name).unwrap())
    }

    fn client(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(self.chunk) {
            self.held.0.extend_from_slice(part);
            if !self.blocked {
                self.sort_client();
            }
        }
    }

    fn sort_client(&mut self) {
        let stop = self.try_sort_client();
        assert!(!matches!(stop, Some(Stop::Broken(_))), "{stop:?}");
    }

    /// The client's bytes end the session: what it is told.
    fn breaks(&mut self, bytes: &[u8]) -> String {
        self.held.0.extend_from_slice(bytes);
        match self.try_sort_client() {
            Some(Stop::Broken(what)) => what,
            other => panic!("{other:?}"),
        }
    }

    fn try_sort_client(&mut self) -> Option<Stop> {
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
        self.to_engine.extend_from_slice(&chunk[direct]);
        self.held.0 = behind(chunk, consumed);
        self.conversation.held.keeps(self.held.0.len());
        self.full = stop == Some(Stop::Full);
        self.blocked = stop == Some(Stop::Blocked);
        stop
    }

    /// The engine's bytes end the session.
    fn faults(&mut self, bytes: &[u8]) {
        self.held.1.extend_from_slice(bytes);
        let chunk = std::mem::take(&mut self.held.1);
        let mut out = Outgoing::new(&chunk, &mut self.to_client);
        let conversation = &mut self.conversation;
        let sorted = engine::sort(conversation, &mut self.rest.1, &mut out, &mut self.to_engine);
        assert!(sorted.is_err(), "{sorted:?}");
    }

    fn engine(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(self.chunk) {
            self.held.1.extend_from_slice(part);
            let chunk = std::mem::take(&mut self.held.1);
            let mut out = Outgoing::new(&chunk, &mut self.to_client);
            let consumed = engine::sort(
                &mut self.conversation,
                &mut self.rest.1,
                &mut out,
                &mut self.to_engine,
            );
            let direct = out.finish();
            let consumed = consumed.unwrap();
            self.to_client.extend_from_slice(&chunk[direct]);
            self.held.1 = BytesMut::from(&chunk[consumed..]);
            if self.blocked && !self.conversation.must_wait() {
                self.blocked = false;
                self.sort_client();
            }
        }
    }

    /// Takes what went to the engine since the last look.
    fn sent(&mut self) -> Vec<u8> {
        self.to_engine.split().to_vec()
    }

    /// Takes what went to the client since the last look.
    fn said(&mut self) -> Vec<u8> {
        self.to_client.split().to_vec()
    }

    /// The number of the error that the client was told, with its sequence.
    fn told(&mut self) -> (u16, u8) {
        let said = self.said();
        assert!(said.len() > 9 && said[4] == 0xff, "no error: {said:02x?}");
        (u16::from_le_bytes([said[5], said[6]]), said[3])
    }

    /// A program of the client's: what goes to the engine for it is this, and its answer that.
    fn run(&mut self, program: &[u8], answer: &[u8]) {
        self.client(program);
        assert_eq!(self.sent(), program);
        self.engine(answer);
        assert_eq!(self.said(), answer);
    }

    /// The guard in front of the next program, from the question on.
    fn guarded(&mut self, first: bool) {
        if first {
            assert_eq!(self.sent(), query(ASK));
            self.engine(&rows(b"0", IDLE));
        }
        assert_eq!(self.sent(), query(GUARD));
        self.engine(&ok(IDLE));
        assert!(self.said().is_empty(), "what the guard is answered isn't the client's");
    }

    /// A guarded read that went out with the guard for the next one behind it, and both answers.
    fn reads_ahead(&mut self, program: &[u8], answer: &[u8]) {
        assert_eq!(self.sent(), armed(program));
        self.engine(answer);
        assert!(self.holds() && self.conversation.must_wait(), "the guard is owed");
        self.engine(&ok(IDLE));
        assert_eq!(self.said(), answer, "what the guard is answered isn't the client's");
        assert!(!self.holds());
    }

    fn holds(&self) -> bool {
        self.gate.sessions().iter().any(|slot| slot.stamp().is_some())
    }
}

/// Whole chunks and single bytes.
fn each(test: impl Fn(&mut Stage)) {
    for chunk in [1 << 25, 1] {
        test(&mut Stage::new(chunk));
    }
}
