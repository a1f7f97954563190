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
use crate::wire::shared::denials::Denials;
use crate::wire::shared::forced::{Action, Forced};
use crate::wire::shared::outgoing::Outgoing;
use crate::wire::shared::peer::behind;

mod held;

const ASK: &str = "SELECT @@session.tx_read_only";
const GUARD: &str = "SET SESSION TRANSACTION READ ONLY";
const UNDO: &str = "SET SESSION TRANSACTION READ WRITE";

/// Status flags.
const IDLE: u16 = 2;
const OPEN: u16 = 3;
const OPEN_READ_ONLY: u16 = 0x2003;

struct Stage {
    gates: Arc<Gates>,
    gate: Arc<Gate>,
    conversation: Conversation,
    classifier: Classifier,
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
        let gates = Arc::new(Gates::new(Generation(1)));
        gates.recovered();
        let gate = gates.gate(&Namespace::parse("old/app").unwrap());
        let seat = Seat::take(Arc::clone(&gate), SessionId(1), Card::default());
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
        let chunk = std::mem::take(&mut self.held.0);
        let mut desk = Desk { classifier: &mut self.classifier, now_ms: 0 };
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
        assert!(!matches!(stop, Some(Stop::Broken(_))), "{stop:?}");
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

#[cfg(debug_assertions)]
#[test]
fn invariant_01_a_command_that_passes_without_a_lease_is_reported() {
    let check = "wire::mysql::tests::every_command_has_a_lease_or_starts_no_work";
    crate::base::arm::missed(check, &[("statement-lease", "invariant 1")]).unwrap();
}

/// Invariant 1: with the gate open a command reaches the engine under a lease, or starts no work;
/// with everything closed none does that would start any.
#[test]
fn every_command_has_a_lease_or_starts_no_work() {
    for opcode in 0..=u8::MAX {
        let kind = Command::of(opcode);
        let argument: &[u8] = match opcode {
            0x03 | 0x16 => b"select 1",
            0x11 => b"u\0\0app\0\x2d\0",
            _ => b"\x01\0\0\0\0\0\0\0\0",
        };
        let bytes = command(opcode, argument);
        let mut stage = Stage::new(1 << 25);
        stage.client(&bytes);
        let sent = stage.sent();
        match (kind, kind.judge()) {
            (Command::Refused(_), _) => {
                assert!(sent.is_empty());
                assert_eq!(stage.told(), (1047, 1), "{opcode:#x}");
            }
            (_, Judge::Nothing) => assert_eq!((sent, stage.holds()), (bytes.clone(), false)),
            (_, Judge::Text | Judge::Statement | Judge::Opcode(_)) => {
                let what = format!("VIOLATION: invariant 1: {opcode:#x}");
                assert_eq!((sent, stage.holds()), (bytes.clone(), true), "{what}");
            }
        }
        // Nothing known about the fence: everything that starts work is refused.
        let mut stage = Stage::new(1 << 25);
        stage.gate.close_as_unknown();
        stage.client(&bytes);
        if kind.judge() != Judge::Nothing {
            assert!(stage.sent().is_empty(), "{opcode:#x}");
            assert_eq!(stage.told(), (9705, 1), "{opcode:#x}");
            assert!(!stage.holds());
        }
        // Writes closed: what writes by opcode, and what nobody has seen, is refused.
        let mut stage = Stage::new(1 << 25);
        stage.close();
        stage.client(&bytes);
        let code = match opcode {
            0x05 | 0x06 => Some(9707),
            0x07 | 0x08 => Some(9701),
            0x17 | 0xfa => Some(9708),
            _ => None,
        };
        if let Some(code) = code {
            assert!(stage.sent().is_empty(), "{opcode:#x}");
            assert_eq!(stage.told(), (code, 1), "{opcode:#x}");
            assert!(!stage.holds());
        }
    }
}

#[test]
fn w04_a_lease_ends_with_a_status_outside_a_transaction() {
    each(|stage| {
        stage.client(&query("insert into t values (1)"));
        assert!(stage.holds());
        stage.engine(&ok(IDLE));
        assert!(!stage.holds());
        stage.sent();
        stage.said();
        stage.run(&query("begin"), &ok(OPEN));
        assert!(stage.holds());
        stage.run(&query("select 1"), &rows(b"1", OPEN));
        assert!(stage.holds());
        stage.run(&query("commit"), &ok(IDLE));
        assert!(!stage.holds());
        // Another result follows: not yet.
        stage.client(&query("call p()"));
        stage.engine(&ok(0x0a));
        assert!(stage.holds());
        stage.engine(&ok(IDLE));
        assert!(!stage.holds());
    });
}

/// Facts 8: an error tells no status, and nobody asks while the gate is open; a drain has it asked.
#[test]
fn w04_behind_an_error_the_state_is_asked_for_once_somebody_waits() {
    each(|stage| {
        stage.run(&query("insert into t values (1)"), &err(1, 1062, "Duplicate"));
        assert!(stage.holds());
        assert!(stage.sent().is_empty(), "the open gate costs nothing");
        stage.close();
        let mut drain = Drain::of(Arc::clone(&stage.gate)).unwrap();
        assert!(drain.look().is_none());
        let orders = stage.conversation.seats.take_orders();
        assert!(orders.iter().any(|(order, _)| order.has(Order::LOOK)));
        stage.conversation.look(&mut stage.to_engine);
        assert_eq!(stage.sent(), ping());
        stage.engine(&ok(IDLE));
        assert!(stage.said().is_empty());
        assert!(drain.look().is_some());
        // With the gate closed it is asked at once.
        stage.open();
        stage.client(&query("insert into t values (1)"));
        stage.close();
        stage.sent();
        stage.engine(&err(1, 1213, "Deadlock"));
        assert_eq!(stage.sent(), ping());
        stage.engine(&ok(IDLE));
        assert!(!stage.holds());
        assert_eq!(stage.said(), err(1, 1213, "Deadlock"));
    });
}

/// Neither the guard nor a savepoint can be had inside an XA transaction.
#[test]
fn w17_an_older_xa_transaction_may_only_end() {
    each(|stage| {
        stage.run(&query("xa start 'x'"), &ok(OPEN));
        stage.run(&query("select * from t"), &rows(b"1", OPEN));
        stage.close();
        stage.client(&query("select * from t"));
        assert!(stage.sent().is_empty());
        assert_eq!(stage.told(), (9708, 1));
        stage.run(&query("xa end 'x'"), &ok(OPEN));
        for ending in ["xa prepare 'x'", "xa commit 'x' one phase", "xa rollback 'x'"] {
            stage.client(&query(ending));
            assert!(stage.sent().is_empty(), "{ending}");
            assert!(matches!(stage.told().0, 9701 | 9708));
        }
    });
}

/// A lease of an older generation that may be nothing's isn't taken for a transaction's.
#[test]
fn w03_a_state_that_is_not_known_is_no_stale_transaction() {
    each(|stage| {
        stage.run(&query("select 1"), &err(1, 1064, "syntax"));
        stage.close();
        stage.open();
        stage.client(&query("insert into t values (1)"));
        assert_eq!(stage.sent(), ping());
        stage.engine(&ok(IDLE));
        assert_eq!(stage.sent(), query("insert into t values (1)"));
        stage.engine(&ok(IDLE));
        assert_eq!(stage.said(), ok(IDLE));
    });
}

#[test]
fn w08_a_refused_program_never_reaches_the_engine() {
    each(|stage| {
        stage.close();
        for sql in [
            "insert into t values (1)",
            "create table n (i int)",
            "select 1; insert into t values (1)",
            "start transaction read write",
            "set session transaction read write",
            "drop database app",
            "call p()",
            "select f()",
            "lock tables t write",
        ] {
            stage.client(&query(sql));
            assert!(stage.sent().is_empty(), "{sql}");
            // Which of the codes is the classifier's affair.
            let (code, sequence) = stage.told();
            assert!(matches!(code, 9701 | 9707 | 9708), "{sql} {code}");
            assert_eq!(sequence, 1);
            assert!(!stage.holds(), "{sql}");
        }
    });
}

#[test]
fn w10_a_refused_write_leaves_its_transaction_open() {
    each(|stage| {
        stage.run(&query("begin"), &ok(OPEN));
        stage.close();
        stage.client(&query("update t set a = 1"));
        assert!(stage.sent().is_empty());
        assert_eq!(stage.told(), (9701, 1));
        assert!(stage.holds());
        stage.run(&query("rollback"), &ok(IDLE));
        assert!(!stage.holds());
    });
}

#[test]
fn w03_an_older_transaction_may_not_write_when_the_gate_is_open_again() {
    each(|stage| {
        stage.run(&query("begin"), &ok(OPEN));
        stage.close();
        stage.open();
        stage.client(&query("update t set a = 1"));
        assert_eq!(stage.told(), (9702, 1));
        stage.run(&query("rollback"), &ok(IDLE));
        stage.run(&query("update t set a = 1"), &ok(IDLE));
    });
}

#[test]
fn w14_a_writer_in_flight_finishes() {
    each(|stage| {
        stage.run(&query("begin"), &ok(OPEN));
        stage.run(&query("insert into t values (1)"), &ok(OPEN));
        stage.close();
        let mut drain = Drain::of(Arc::clone(&stage.gate)).unwrap();
        stage.run(&query("insert into t values (2)"), &ok(OPEN));
        assert!(drain.look().is_none());
        stage.run(&query("commit"), &ok(IDLE));
        assert!(drain.look().is_some());
    });
}

#[test]
fn w17_the_guard_goes_first_is_confirmed_and_undone() {
    each(|stage| {
        stage.close();
        stage.client(&query("select * from t"));
        stage.guarded(true);
        assert_eq!(stage.sent(), query("select * from t"));
        stage.engine(&rows(b"1", IDLE));
        assert_eq!(stage.said(), rows(b"1", IDLE));
        assert!(!stage.holds());
        stage.client(&query("select * from t"));
        stage.guarded(false);
        assert_eq!(stage.sent(), query("select * from t"));
        stage.engine(&rows(b"1", IDLE));
        stage.said();
        stage.open();
        stage.client(&prepare("insert into t values (1)"));
        assert_eq!(stage.sent(), query(UNDO));
        stage.engine(&ok(IDLE));
        assert!(stage.said().is_empty());
        assert_eq!(stage.sent(), prepare("insert into t values (1)"));
        stage.engine(&prepared(1));
        stage.said();
        stage.run(&query("insert into t values (2)"), &ok(IDLE));
    });
}

#[test]
fn w17_a_guard_that_fails_is_tried_again_and_nothing_runs_behind_it() {
    each(|stage| {
        stage.close();
        stage.client(&query("select * from t"));
        assert_eq!(stage.sent(), query(ASK));
        stage.engine(&rows(b"0", IDLE));
        for _ in 0..2 {
            assert_eq!(stage.sent(), query(GUARD));
            stage.engine(&err(1, 1317, "interrupted"));
            assert_eq!(stage.sent(), ping());
            stage.engine(&ok(IDLE));
        }
        stage.guarded(false);
        assert_eq!(stage.sent(), query("select * from t"));
        assert!(!stage.conversation.guard.failed);
        stage.engine(&rows(b"1", IDLE));
        stage.said();
        stage.client(&query("select * from t"));
        for _ in 0..5 {
            stage.sent();
            stage.engine(&err(1, 1317, "interrupted"));
            if !stage.conversation.guard.failed {
                assert_eq!(stage.sent(), ping());
                stage.engine(&ok(IDLE));
            }
        }
        assert!(stage.conversation.guard.failed, "the session ends");
        assert!(stage.said().is_empty());
    });
}

#[test]
fn w17_a_session_that_is_read_only_by_itself_stays_so() {
    each(|stage| {
        stage.close();
        stage.client(&query("select 1"));
        assert_eq!(stage.sent(), query(ASK));
        stage.engine(&rows(b"1", IDLE));
        stage.guarded(false);
        stage.sent();
        stage.engine(&rows(b"1", IDLE));
        stage.said();
        stage.open();
        stage.run(&query("insert into t values (1)"), &err(1, 1792, "read only"));
    });
}

#[test]
fn w17_a_transaction_begun_under_the_guard_needs_no_other() {
    each(|stage| {
        stage.close();
        stage.client(&query("begin"));
        stage.guarded(true);
        assert_eq!(stage.sent(), query("begin"));
        stage.engine(&ok(OPEN_READ_ONLY));
        stage.said();
        stage.run(&query("select 1"), &rows(b"1", OPEN_READ_ONLY));
        stage.open();
        stage.client(&query("insert into t values (1)"));
        assert_eq!(stage.told(), (9702, 1));
        stage.run(&query("commit"), &ok(IDLE));
        stage.client(&query("insert into t values (1)"));
        assert_eq!(stage.sent(), query(UNDO));
    });
}

/// The setting counts from the next transaction only: what a hidden function writes in an older one
/// is taken back at once, and the transaction's own end stays its own.
#[test]
fn w17_reads_of_an_older_transaction_leave_nothing_behind() {
    each(|stage| {
        stage.run(&query("begin"), &ok(OPEN));
        stage.run(&query("select 1"), &rows(b"1", OPEN));
        stage.close();
        for _ in 0..2 {
            stage.client(&query("select * from v"));
            let sent = String::from_utf8_lossy(&stage.sent()[5..]).into_owned();
            let name = sent.strip_prefix("SAVEPOINT ").unwrap().to_owned();
            stage.engine(&ok(OPEN));
            assert_eq!(stage.sent(), query("select * from v"));
            stage.engine(&rows(b"1", OPEN));
            assert_eq!(stage.said(), rows(b"1", OPEN));
            assert_eq!(stage.sent(), query(&format!("ROLLBACK TO SAVEPOINT {name}")));
            stage.engine(&ok(OPEN));
            assert!(stage.said().is_empty());
        }
        // Several statements in one text, of which one could commit: not without a guard.
        stage.client(&query("select * from v; commit"));
        assert_eq!(stage.told(), (9708, 1));
        stage.run(&query("commit"), &ok(IDLE));
        assert!(!stage.holds());
    });
}

#[test]
fn w17_what_would_begin_another_transaction_gets_the_guard_first() {
    each(|stage| {
        stage.run(&query("begin"), &ok(OPEN));
        stage.close();
        stage.client(&query("begin"));
        assert_eq!(stage.sent(), query("COMMIT"));
        stage.engine(&ok(IDLE));
        stage.guarded(true);
        assert_eq!(stage.sent(), query("begin"));
        stage.engine(&ok(OPEN_READ_ONLY));
        assert_eq!(stage.said(), ok(OPEN_READ_ONLY));
    });
}

#[test]
fn w17_several_statements_could_lift_the_guard_for_each_other() {
    each(|stage| {
        stage.close();
        stage.client(&query("select * from v; select * from w"));
        assert!(stage.sent().is_empty());
        assert_eq!(stage.told(), (9708, 1));
        assert!(!stage.holds());
    });
}

#[test]
fn w15_the_guards_refusal_is_the_fences_and_others_stay() {
    each(|stage| {
        // Not guarded: untouched.
        stage.run(&query("insert into t values (1)"), &err(1, 1792, "Cannot execute"));
        stage.run(&ping(), &ok(IDLE));
        stage.close();
        for (code, text, told) in [
            (1792, "Cannot execute statement in a READ ONLY transaction.", 9701),
            (1290, "running with the --read-only option so it cannot", 9701),
            (1290, "running with the --secure-file-priv option", 1290),
            (1064, "You have an error", 1064),
        ] {
            stage.client(&query("select * from v"));
            while stage.conversation.must_wait() && !stage.to_engine.ends_with(b"from v") {
                let asked = stage.sent() == query(ASK);
                stage.engine(&if asked { rows(b"0", IDLE) } else { ok(IDLE) });
            }
            stage.sent();
            stage.engine(&err(1, code, text));
            assert_eq!(stage.told(), (told, 1), "{code} {text}");
            assert_eq!(stage.sent(), ping());
            stage.engine(&ok(IDLE));
            assert!(!stage.holds());
        }
    });
}

#[test]
fn w12_an_idle_transaction_is_rolled_back_and_the_client_told() {
    for (next, told) in [
        ("select 1", true),
        ("commit", true),
        ("insert into t values (1)", true),
        ("rollback", false),
    ] {
        let mut stage = Stage::new(1 << 25);
        stage.run(&query("begin"), &ok(OPEN));
        stage.run(&query("insert into t values (1)"), &ok(OPEN));
        stage.close();
        let before = stage.gate.word().generation();
        let action = stage.conversation.order_roll_back(before, false, &mut stage.to_engine);
        assert_eq!(action, Action::None);
        assert_eq!(stage.sent(), query("ROLLBACK"));
        stage.engine(&ok(IDLE));
        assert!(stage.said().is_empty() && !stage.holds());
        stage.open();
        if told {
            // A ping is no program.
            stage.run(&ping(), &ok(IDLE));
            stage.client(&query(next));
            assert!(stage.sent().is_empty());
            assert_eq!(stage.told(), (9709, 1), "{next}");
            if next != "commit" {
                stage.client(&query("commit"));
                assert_eq!(stage.told(), (9709, 1), "a commit never looks like success");
            }
        } else {
            stage.run(&query(next), &ok(IDLE));
        }
        stage.run(&query("commit"), &ok(IDLE));
        stage.run(&query("insert into t values (1)"), &ok(IDLE));
    }
}

#[test]
fn w13_a_running_statement_is_killed_and_rolled_back() {
    each(|stage| {
        stage.run(&query("begin"), &ok(OPEN));
        stage.client(&query("insert into t values (sleep(9))"));
        stage.sent();
        stage.close();
        let before = stage.gate.word().generation();
        let action = stage.conversation.order_roll_back(before, false, &mut stage.to_engine);
        assert_eq!(action, Action::Cancel);
        stage.engine(&err(1, 1317, "interrupted"));
        assert_eq!(stage.told(), (9709, 1));
        assert_eq!(stage.sent(), ping());
        stage.engine(&ok(OPEN));
        assert!(stage.sent().is_empty(), "the kill may still be on its way");
        stage.conversation.cancel_delivered(&mut stage.to_engine);
        assert_eq!(stage.sent(), query("ROLLBACK"));
        stage.engine(&ok(IDLE));
        assert!(!stage.holds());
        assert_eq!(stage.conversation.forced, Forced::RolledBack { told: true });
        stage.client(&query("commit"));
        assert_eq!(stage.told(), (9709, 1));
        stage.open();
        stage.run(&query("insert into t values (1)"), &ok(IDLE));
    });
}

#[test]
fn a_program_that_waits_for_the_fences_lock_gets_the_fences_code() {
    each(|stage| {
        stage.close();
        stage.client(&query("select * from v"));
        stage.guarded(true);
        stage.sent();
        assert_eq!(stage.conversation.order_stop(), Action::Cancel);
        stage.conversation.cancel_delivered(&mut stage.to_engine);
        stage.engine(&err(1, 1317, "interrupted"));
        assert_eq!(stage.told(), (9701, 1));
        assert_eq!(stage.sent(), ping());
        stage.engine(&ok(IDLE));
        assert_eq!(stage.conversation.forced, Forced::No);
        assert!(!stage.holds());
    });
}

#[test]
fn w07_other_schemas_are_asked_by_name_and_by_default() {
    each(|stage| {
        let other = stage.other("old/b");
        other.overlay(Overlay::Installing, InFlight::Finish);
        for sql in ["insert into b.t values (1)", "create table x as select * from b.t"] {
            stage.client(&query(sql));
            assert!(stage.sent().is_empty(), "{sql}");
            assert!((9701..=9708).contains(&stage.told().0), "{sql}");
        }
        stage.client(&command(6, b"b"));
        assert_eq!(stage.told(), (9707, 1));
        assert!(!stage.holds() && other.session_count() == 0);
        stage.run(&query("insert into t values (1)"), &ok(IDLE));
        // A read there has the guard, though the default schema is open.
        stage.client(&query("select * from b.t"));
        stage.guarded(true);
        stage.sent();
        stage.engine(&rows(b"1", IDLE));
        stage.said();
        for change in [query("use b"), command(2, b"b")] {
            stage.client(&change);
            while !stage.to_engine.ends_with(&change) {
                stage.sent();
                stage.engine(&ok(IDLE));
            }
            stage.sent();
            stage.engine(&ok(IDLE));
            assert_eq!(stage.said(), ok(IDLE));
            assert_eq!((stage.gate.session_count(), other.session_count()), (0, 1));
            stage.client(&query("insert into t values (1)"));
            assert_eq!(stage.told(), (9701, 1));
            // One that fails changes nothing.
            stage.client(&command(2, b"nosuch"));
            stage.sent();
            stage.engine(&err(1, 1049, "Unknown database"));
            assert_eq!(stage.sent(), ping());
            stage.engine(&ok(IDLE));
            stage.said();
            assert_eq!(other.session_count(), 1);
            stage.client(&command(2, b"app"));
            stage.sent();
            stage.engine(&ok(IDLE));
            stage.said();
        }
    });
}

#[test]
fn w07_a_transaction_holds_leases_in_every_schema_it_wrote_to() {
    each(|stage| {
        let other = stage.other("old/b");
        stage.run(&query("begin"), &ok(OPEN));
        stage.run(&query("insert into b.t values (1)"), &ok(OPEN));
        stage.run(&query("select 1"), &rows(b"1", OPEN));
        other.overlay(Overlay::Installing, InFlight::Finish);
        let mut drain = Drain::of(Arc::clone(&other)).unwrap();
        assert!(drain.look().is_none());
        // Its order is heard, and everything is rolled back.
        let before = other.word().generation();
        other.sessions()[0].order(Order::ROLL_BACK, before);
        let orders = stage.conversation.seats.take_orders();
        assert_eq!(orders.len(), 1);
        stage.conversation.order_roll_back(orders[0].1, false, &mut stage.to_engine);
        assert_eq!(stage.sent(), query("ROLLBACK"));
        stage.engine(&ok(IDLE));
        assert!(drain.look().is_some());
        assert!(!stage.holds());
    });
}

/// Facts B17, B18: the gate is asked at the EXECUTE, whatever was prepared before.
#[test]
fn w11_prepared_before_the_fence_refused_under_it() {
    each(|stage| {
        stage.run(&prepare("insert into t values (?)"), &prepared(1));
        assert!(!stage.holds());
        stage.run(&execute(1), &ok(IDLE));
        stage.run(&prepare("select 1"), &prepared(2));
        stage.close();
        for id in [1, 9] {
            stage.client(&execute(id));
            assert!(stage.sent().is_empty());
            assert_eq!(stage.told(), (if id == 1 { 9701 } else { 9708 }, 1));
        }
        stage.client(&execute(2));
        stage.guarded(true);
        assert_eq!(stage.sent(), execute(2));
        stage.engine(&ok(IDLE));
        stage.said();
        stage.client(&execute(u32::MAX));
        stage.guarded(false);
        assert_eq!(stage.sent(), execute(u32::MAX));
        stage.engine(&ok(IDLE));
        stage.said();
        // The engine isn't asked to prepare a write either.
        stage.client(&prepare("delete from t"));
        assert!(stage.sent().is_empty());
        assert_eq!(stage.told(), (9701, 1));
        let close = command(0x19, &2_u32.to_le_bytes());
        stage.client(&close);
        assert_eq!(stage.sent(), close);
        stage.client(&execute(2));
        assert_eq!(stage.told(), (9708, 1));
    });
}

#[test]
fn one_command_at_a_time_is_with_the_engine() {
    each(|stage| {
        let both = [query("select 1"), query("select 2")].concat();
        stage.client(&both);
        assert_eq!(stage.sent(), query("select 1"));
        stage.engine(&rows(b"1", IDLE));
        assert_eq!(stage.sent(), query("select 2"));
        stage.engine(&rows(b"2", IDLE));
        assert_eq!(stage.said(), [rows(b"1", IDLE), rows(b"2", IDLE)].concat());
    });
}

/// Facts B32: the contents of a file are no commands, up to the empty packet.
#[test]
fn a_file_passes_until_its_empty_packet() {
    each(|stage| {
        let load = query("load data local infile 'x' into table t");
        stage.client(&load);
        assert_eq!(stage.sent(), load);
        stage.engine(&packet(1, b"\xfbx"));
        assert_eq!(stage.said(), packet(1, b"\xfbx"));
        let contents = [packet(2, b"\x03drop table t"), packet(3, b"")].concat();
        stage.client(&[contents.clone(), query("select 1")].concat());
        assert_eq!(stage.sent(), contents);
        stage.engine(&packet(4, &ok_payload(IDLE)));
        assert_eq!(stage.sent(), query("select 1"));
    });
}

#[test]
fn a_long_refused_command_is_answered_behind_its_last_packet() {
    let mut stage = Stage::new(1 << 20);
    stage.close();
    let mut sql = b"\x03insert into t values ('".to_vec();
    sql.resize(PAYLOAD_MAX + 10, b'x');
    let bytes = packet(0, &sql);
    let (first, last) = bytes.split_at(frame::HEADER + PAYLOAD_MAX);
    stage.client(first);
    assert!(stage.said().is_empty());
    stage.client(last);
    assert!(stage.sent().is_empty());
    let (code, sequence) = stage.told();
    assert!((9701..=9708).contains(&code));
    assert_eq!(sequence, 2);
    stage.client(&query("insert into t values (1)"));
    assert_eq!(stage.told().1, 1);
}

#[test]
fn a_reset_undoes_the_guard_and_forgets_statements() {
    let reset = command(0x1f, b"");
    each(|stage| {
        stage.run(&prepare("select 1"), &prepared(1));
        stage.close();
        stage.client(&query("select 1"));
        stage.guarded(true);
        stage.sent();
        stage.engine(&rows(b"1", IDLE));
        stage.said();
        stage.run(&reset, &ok(IDLE));
        stage.client(&execute(1));
        assert_eq!(stage.told(), (9708, 1));
        stage.client(&query("select 1"));
        stage.guarded(true);
        stage.sent();
        stage.engine(&rows(b"1", IDLE));
        stage.said();
        stage.run(&reset, &ok(IDLE));
        stage.open();
        stage.run(&query("insert into t values (1)"), &ok(IDLE));
    });
}

#[test]
fn a_change_of_user_is_readmitted_where_it_goes() {
    each(|stage| {
        let other = stage.other("old/b");
        let change = command(0x11, b"v\0\0b\0\x2d\0");
        stage.client(&change);
        assert_eq!(stage.sent(), change);
        let switch = packet(1, b"\xfemysql_native_password\0abcdefghijklmnopqrst\0");
        stage.engine(&switch);
        assert_eq!(stage.said(), switch);
        let proof = packet(2, b"01234567890123456789");
        // One packet is asked for; what comes behind it is a command, and waits.
        stage.client(&[proof.clone(), query("select 1")].concat());
        assert_eq!(stage.sent(), proof);
        stage.engine(&packet(3, &ok_payload(IDLE)));
        assert_eq!(stage.sent(), query("select 1"));
        assert_eq!((stage.gate.session_count(), other.session_count()), (0, 1));
        stage.engine(&rows(b"1", IDLE));
        stage.said();
        other.overlay(Overlay::Installing, InFlight::Finish);
        stage.client(&query("insert into t values (1)"));
        assert_eq!(stage.told(), (9701, 1));
    });
}

#[test]
fn a_stream_passes_acknowledgements_and_nothing_else() {
    each(|stage| {
        let dump = command(0x12, b"\x04\0\0\0\0\0\x01\0\0\0bin.1");
        stage.client(&dump);
        assert_eq!(stage.sent(), dump);
        stage.engine(&packet(1, &[0; 30]));
        let acknowledged = packet(0, b"\xef\x04\0\0\0\0\0\0\0bin.1");
        stage.client(&acknowledged);
        assert_eq!(stage.sent(), acknowledged);
        stage.client(&query("insert into t values (1)"));
        assert!(stage.sent().is_empty());
        stage.engine(&packet(2, &[0xfe, 0, 0, 2, 0]));
        assert_eq!(stage.sent(), query("insert into t values (1)"));
    });
}

/// An engine that refuses the stream takes what follows for commands, and answers each.
#[test]
fn a_stream_that_has_not_begun_passes_nothing() {
    each(|stage| {
        stage.client(&command(0x12, b"\x04\0\0\0\0\0\x01\0\0\0bin.1"));
        stage.sent();
        stage.client(&packet(0, b"\xef\x04\0\0\0\0\0\0\0bin.1"));
        assert!(stage.sent().is_empty());
        stage.engine(&err(1, 1227, "Access denied"));
        assert!(!stage.sent().contains(&0xef), "as a command it is an unknown one");
    });
}

#[test]
fn a_name_prepared_anew_in_the_same_text_is_not_what_it_was() {
    each(|stage| {
        let other = stage.other("old/b");
        stage.run(&query("prepare s from 'select 1'"), &ok(IDLE));
        stage.run(&query("execute s"), &ok(IDLE));
        other.overlay(Overlay::Installing, InFlight::Finish);
        stage.client(&query("prepare s from 'create table b.n(i int)'; execute s"));
        assert!(stage.sent().is_empty());
        assert!((9701..=9708).contains(&stage.told().0));
    });
}

#[test]
fn query_attributes_do_not_hide_the_text() {
    for chunk in [1 << 25, 1] {
        let mut stage = Stage::with(chunk, bits::QUERY_ATTRIBUTES);
        stage.close();
        stage.client(&command(3, b"\0\x01insert into t values (1)"));
        assert_eq!(stage.told(), (9701, 1));
        stage.client(&command(3, b"\0\x01select 1"));
        assert_eq!(stage.sent(), command(3, format!("\0\x01{ASK}").as_bytes()));
        let mut stage = Stage::with(chunk, bits::QUERY_ATTRIBUTES);
        stage.close();
        stage.client(&command(3, b"\x01\x01\0\x01\x80\0\0select 1"));
        assert_eq!(stage.told(), (9708, 1));
    }
}

#[test]
fn a_session_that_ends_behind_an_error_asks_first() {
    each(|stage| {
        stage.run(&query("insert into t values (1)"), &err(1, 1062, "Duplicate"));
        stage.client(&command(1, b""));
        assert_eq!(stage.sent(), ping());
        stage.engine(&ok(IDLE));
        assert_eq!(stage.sent(), command(1, b""));
        assert!(!stage.holds());
    });
}

/// W19: with the gate open nothing is injected and no byte altered, whatever is sent.
#[test]
fn w19_the_open_gate_alters_nothing() {
    each(|stage| {
        for (program, answer) in [
            (query("set autocommit = 0"), ok(0)),
            (query("select 1"), rows(b"1", 1)),
            (query("insert into b.t values (1)"), err(1, 1146, "no such table")),
            (query("select nonsense("), err(1, 1064, "syntax")),
            (query("commit"), ok(0)),
            (query("set sql_mode = 'ANSI_QUOTES'"), ok(0)),
            (query("call p()"), [rows(b"1", 0x0a), packet(6, &ok_payload(IDLE))].concat()),
            (command(9, b""), packet(1, b"Uptime: 1")),
            (command(0x1b, b"\0\0"), packet(1, &[0xfe, 0, 0, 2, 0])),
            (command(4, b"t\0"), [packet(1, b"\x03def"), packet(2, &[0xfe, 0, 0, 2, 0])].concat()),
        ] {
            stage.run(&program, &answer);
        }
    });
}
