//! Scripted conversations: what goes to the engine and to the client, byte for byte, without one.
//!
//! Everything is fed in every chunking that matters: whole, and one byte at a time. What real
//! engines do with it is tested in `tests/`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::BytesMut;

use super::answers;
use super::bearing::Bearing;
use super::client::{self, Desk, Rest, Stop};
use super::conversation::{Action, Conversation, Entry, Forced, Mode};
use super::prepared::Traits;
use super::refusal::{self, field};
use crate::base::ids::{Generation, Namespace, SessionId};
use crate::base::limits;
use crate::fence::record::InFlight;
use crate::fence::state::FenceState;
use crate::fence::verdict::Overlay;
use crate::gate::admission::Seat;
use crate::gate::drain::Drain;
use crate::gate::registry::{Authority, Gate, Gates};
use crate::gate::slot::{Card, Running};
use crate::sql::{Classifier, StatementClass, Trusted};
use crate::store::LoadedFence;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::worker::WorkerCounters;
use crate::wire::shared::denials::Denials;
use crate::wire::shared::outgoing::Outgoing;
use crate::wire::shared::peer::behind;

mod ahead;
mod auto_prepare;
mod capability;
mod forced;
mod held;
mod idle;
mod implicit;
mod relaying;
mod settings;
mod skipping;

const GUARD: &str = "SET default_transaction_read_only = on";
const UNDO: &str = "RESET default_transaction_read_only";

struct Stage {
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
    /// What the client did wrong, and whether it may.
    broken: Option<String>,
    may_break: bool,
    chunk: usize,
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut all = vec![tag];
    all.extend_from_slice(&u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    all.extend_from_slice(body);
    all
}

fn query(sql: &str) -> Vec<u8> {
    message(b'Q', format!("{sql}\0").as_bytes())
}

fn parse(name: &str, sql: &str) -> Vec<u8> {
    message(b'P', format!("{name}\0{sql}\0\0\0").as_bytes())
}

fn bind(portal: &str, statement: &str) -> Vec<u8> {
    message(b'B', format!("{portal}\0{statement}\0\0\0\0\0\0\0").as_bytes())
}

fn execute() -> Vec<u8> {
    message(b'E', b"\0\0\0\0\0")
}

fn sync() -> Vec<u8> {
    message(b'S', b"")
}

fn ready(status: u8) -> Vec<u8> {
    message(b'Z', &[status])
}

/// The guard, where its client has no unnamed statement that it would drop.
fn guard() -> Vec<u8> {
    query(GUARD)
}

/// The end of a statement, a SET of the proxy's own included.
fn ended(status: u8) -> Vec<u8> {
    [done("SET"), ready(status)].concat()
}

fn done(tag: &str) -> Vec<u8> {
    message(b'C', format!("{tag}\0").as_bytes())
}

fn error(code: &str, text: &str) -> Vec<u8> {
    message(b'E', format!("SERROR\0VERROR\0C{code}\0M{text}\0\0").as_bytes())
}

impl Stage {
    fn new(chunk: usize) -> Self {
        let gates = Arc::new(Gates::new(Generation(1)));
        gates.recovered();
        let gate = gates.gate(&Namespace::parse("old/app").unwrap());
        let seat = Seat::take(Arc::clone(&gate), SessionId(1), Card::default());
        let denials = Arc::new(Denials::new(&BTreeMap::new(), Arc::new(Metrics::new())));
        Self {
            gate,
            conversation: Conversation::new(seat, gates, Mode::Sql, denials),
            classifier: Classifier::new(Arc::new(Trusted::default()), 64),
            counters: WorkerCounters::default(),
            to_engine: BytesMut::new(),
            to_client: BytesMut::new(),
            rest: (Rest::default(), Rest::default()),
            held: (BytesMut::new(), BytesMut::new()),
            blocked: false,
            full: false,
            broken: None,
            may_break: false,
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

    fn client(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(self.chunk) {
            self.held.0.extend_from_slice(part);
            if !self.blocked && self.broken.is_none() {
                self.sort_client();
            }
        }
    }

    fn sort_client(&mut self) {
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
        if let Some(Stop::Broken(what)) = stop {
            assert!(self.may_break, "{what}");
            self.broken = Some(what);
        }
    }

    fn engine(&mut self, bytes: &[u8]) {
        self.try_engine(bytes).unwrap();
    }

    fn try_engine(&mut self, bytes: &[u8]) -> Result<(), answers::EngineFault> {
        for part in bytes.chunks(self.chunk) {
            self.held.1.extend_from_slice(part);
            let chunk = std::mem::take(&mut self.held.1);
            let mut out = Outgoing::new(&chunk, &mut self.to_client);
            let consumed = answers::sort(
                &mut self.conversation,
                &mut self.rest.1,
                &mut out,
                &mut self.to_engine,
            )?;
            let direct = out.finish();
            self.to_client.extend_from_slice(&chunk[direct]);
            self.held.1 = BytesMut::from(&chunk[consumed..]);
            if self.blocked && !self.conversation.must_wait() {
                self.blocked = false;
                self.sort_client();
            }
        }
        Ok(())
    }

    /// A statement of the proxy's own, as it is sent.
    fn own(&self, sql: &str) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        self.conversation.stand_in.as_pipeline(&mut bytes, sql);
        bytes.to_vec()
    }

    /// The guard for the next program, where its client has an unnamed statement.
    fn short_guard(&self) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        self.conversation.stand_in.as_short_pipeline(&mut bytes, GUARD);
        bytes.to_vec()
    }

    /// What went to the engine since the last look.
    fn sent(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.to_engine).to_vec()
    }

    /// What went to the client since the last look, as `tag` or `E:code`.
    fn told(&mut self) -> Vec<String> {
        let mut bytes = std::mem::take(&mut self.to_client);
        let mut all = Vec::new();
        while let Ok(Some(header)) = super::frame::header(&bytes) {
            let frame = bytes.split_to(5 + header.body);
            let body = &frame[5..];
            all.push(match header.tag {
                b'E' => {
                    let code = field(body, b'C').unwrap_or_default();
                    format!("E:{}", String::from_utf8_lossy_owned_or(code))
                }
                b'Z' => format!("Z{}", char::from(body[0])),
                tag => char::from(tag).to_string(),
            });
        }
        assert!(bytes.is_empty(), "an incomplete message was told");
        all
    }

    /// The stand-in's token, from what was sent.
    fn stand_in_error(sent: &[u8]) -> Vec<u8> {
        let text = std::str::from_utf8(sent).unwrap();
        let at = text.find("fencewire_").expect("a stand-in was sent");
        let token: String = text[at..].chars().take_while(|c| *c != ' ' && *c != '\0').collect();
        error("42601", &format!("syntax error at or near \"{token}\""))
    }
}

/// `String::from_utf8_lossy` is banned in `wire/`; test codes are ASCII.
trait Utf8 {
    fn from_utf8_lossy_owned_or(bytes: &[u8]) -> String;
}

impl Utf8 for String {
    fn from_utf8_lossy_owned_or(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| char::from(*byte)).collect()
    }
}

fn both(test: impl Fn(&mut Stage)) {
    for chunk in [usize::MAX, 1, 7] {
        test(&mut Stage::new(chunk));
    }
}

#[test]
fn w19_an_open_gate_changes_no_byte() {
    both(|stage| {
        let mut client = Vec::new();
        client.extend(query("INSERT INTO t VALUES (1)"));
        client.extend(parse("s", "SELECT 1"));
        client.extend(bind("", "s"));
        client.extend(execute());
        client.extend(sync());
        stage.client(&client);
        assert_eq!(stage.sent(), client);
        let mut engine = done("INSERT 0 1");
        engine.extend(ready(b'I'));
        engine.extend(message(b'1', b""));
        engine.extend(message(b'2', b""));
        engine.extend(message(b'D', b"\0\0"));
        engine.extend(done("SELECT 1"));
        engine.extend(ready(b'I'));
        stage.engine(&engine);
        assert_eq!(stage.told(), ["C", "ZI", "1", "2", "D", "C", "ZI"]);
        assert!(stage.conversation.lease.is_none(), "released by answer");
    });
}

/// Whatever starts work is admitted first: with nothing admitted nothing goes out.
#[test]
fn invariant_01_no_statement_leaves_without_a_lease() {
    let name = b"\0";
    for statement in [
        query("SELECT 1"),
        message(b'F', b"\0\0\0\x01"),
        parse("", "SELECT 1"),
        parse("s", "SELECT 1"),
        bind("", "s"),
        execute(),
        message(b'D', b"Ss\0"),
        message(b'C', &[b"P", &name[..]].concat()),
    ] {
        let mut open = Stage::new(1);
        open.client(&statement);
        let what = format!("VIOLATION: invariant 1: {statement:?}");
        assert!(open.conversation.lease.is_some() && !open.sent().is_empty(), "{what}");
        let mut closed = Stage::new(1);
        closed.gate.close_as_unknown();
        closed.client(&statement);
        assert!(closed.conversation.lease.is_none() && closed.sent().is_empty(), "{what}");
        assert_eq!(closed.told().first().map(String::as_str), Some("E:ZF005"));
    }
}

#[cfg(debug_assertions)]
#[test]
fn invariant_01_a_message_that_passes_without_a_lease_is_reported() {
    let check = "wire::pg::tests::invariant_01_no_statement_leaves_without_a_lease";
    crate::base::arm::missed(check, &[("statement-lease", "invariant 1")]).unwrap();
}

#[test]
fn w04_a_release_needs_the_last_answer() {
    both(|stage| {
        stage.client(&query("SELECT 1"));
        stage.client(&parse("", "INSERT INTO t VALUES (1)"));
        stage.engine(&ended(b'I'));
        assert!(stage.conversation.lease.is_some(), "an unsynced tail keeps the lease");
        stage.client(&sync());
        stage.engine(&ended(b'I'));
        assert!(stage.conversation.lease.is_none());
        stage.client(&query("BEGIN"));
        stage.engine(&ended(b'T'));
        assert!(stage.conversation.lease.is_some(), "an open transaction keeps it");
    });
}

#[test]
fn w08_outside_a_transaction_the_proxy_answers_by_itself() {
    both(|stage| {
        stage.close();
        stage.client(&query("INSERT INTO t VALUES (1)"));
        assert_eq!(stage.told(), ["E:ZF001", "ZI"]);
        let mut batch = parse("", "UPDATE t SET a = 1");
        batch.extend(bind("", ""));
        batch.extend(execute());
        stage.client(&batch);
        assert_eq!(stage.told(), ["E:ZF001"], "told at once, ready at Sync");
        stage.client(&sync());
        assert_eq!(stage.told(), ["ZI"]);
        stage.client(&query("DROP DATABASE app"));
        stage.client(&query("SELECT f()"));
        assert_eq!(stage.told(), ["E:ZF007", "ZI", "E:ZF008", "ZI"]);
        assert!(stage.sent().is_empty(), "nothing of it reaches the engine");
        assert!(stage.conversation.lease.is_none());
    });
}

#[test]
fn w09_inside_a_transaction_the_engine_gets_a_stand_in() {
    both(|stage| {
        stage.client(&query("BEGIN"));
        stage.engine(&ended(b'T'));
        stage.sent();
        stage.told();
        stage.close();
        stage.client(&query("INSERT INTO t VALUES (1)"));
        let sent = stage.sent();
        assert!(!sent.windows(6).any(|w| w == b"INSERT"), "the statement itself isn't sent");
        let mut answer = Stage::stand_in_error(&sent);
        answer.extend(ready(b'E'));
        stage.engine(&answer);
        assert_eq!(stage.told(), ["E:ZF001", "ZE"]);
    });
}

#[test]
fn w09_a_foreign_error_is_not_taken_for_the_stand_in() {
    both(|stage| {
        let mut batch = parse("", "SELECT 1/0");
        batch.extend(bind("", ""));
        batch.extend(execute());
        stage.client(&batch);
        stage.close();
        let mut more = parse("", "INSERT INTO t VALUES (1)");
        more.extend(bind("", ""));
        more.extend(execute());
        more.extend(sync());
        stage.client(&more);
        assert!(stage.sent().windows(10).any(|w| w == b"fencewire_"));
        let mut answer = error("22012", "division by zero");
        answer.extend(ready(b'I'));
        stage.engine(&answer);
        assert_eq!(stage.told(), ["E:22012", "ZI"]);
    });
}

#[test]
fn w17_the_guard_goes_before_and_its_answers_are_swallowed() {
    both(|stage| {
        stage.close();
        stage.client(&query("SELECT 1"));
        assert_eq!(stage.sent(), guard(), "the program waits for the guard");
        let mut answer = message(b'S', b"default_transaction_read_only\0on\0");
        answer.extend(done("SET"));
        answer.extend(message(b'A', b"\0\0\0\x01ch\0pay\0"));
        answer.extend(ready(b'I'));
        stage.engine(&answer);
        assert_eq!(stage.sent(), [query("SELECT 1"), guard()].concat(), "and one for the next");
        let mut answer = done("SELECT 1");
        answer.extend(ready(b'I'));
        stage.engine(&answer);
        stage.engine(&ended(b'I'));
        assert_eq!(stage.told(), ["A", "C", "ZI"], "a notification passes");
        assert!(!stage.conversation.own.value(), "the client's own value is kept");
        stage.open();
        stage.client(&query("SELECT 2"));
        let mut expected = stage.own(UNDO);
        expected.extend(query("SELECT 2"));
        assert_eq!(stage.sent(), expected, "undone at the first program after opening");
    });
}

#[test]
fn w17_a_guard_that_fails_has_nothing_run_behind_it() {
    both(|stage| {
        stage.close();
        stage.client(&query("SELECT * FROM v"));
        for _ in 0..limits::GUARD_TRIES_MAX {
            assert!(!stage.conversation.guard_failed);
            assert_eq!(stage.sent(), guard(), "tried again, and nothing else is sent");
            let mut answer = error("57014", "canceling statement due to user request");
            answer.extend(ready(b'I'));
            stage.engine(&answer);
            assert!(stage.told().is_empty());
        }
        assert!(stage.conversation.guard_failed, "at last the session is given up");
    });
}

#[test]
fn w17_a_gate_that_closes_behind_the_first_look_has_the_program_wait() {
    both(|stage| {
        stage.client(&query("SELECT 1"));
        stage.close();
        let lease = |stage: &Stage| stage.conversation.lease.as_ref().map(|l| l.stamp().running);
        assert_eq!(lease(stage), Some(Running::Unguarded));
        let mut out = Outgoing::new(b"", &mut stage.to_engine);
        let read = (StatementClass::Read, Traits::plain());
        let entry = stage.conversation.enter(read.0, read.1, 0, &mut out);
        assert!(out.finish().is_empty());
        assert_eq!(entry.unwrap(), Entry::Wait, "what runs before it has no guard");
        assert_eq!(lease(stage), Some(Running::Unguarded), "and a drain must see that");
    });
}

#[test]
fn w15_the_guards_refusal_is_typed_and_the_engines_own_is_not() {
    both(|stage| {
        stage.client(&query("SELECT 1"));
        let mut answer = error("25006", "cannot execute INSERT in a read-only transaction");
        answer.extend(ready(b'I'));
        stage.engine(&answer);
        assert_eq!(stage.told(), ["E:25006", "ZI"]);
        stage.close();
        stage.client(&query("SELECT 1"));
        stage.engine(&ended(b'I'));
        stage.engine(&answer);
        assert_eq!(stage.told(), ["E:ZF001", "ZI"]);
    });
}

#[test]
fn with_the_gate_closed_programs_are_taken_one_at_a_time() {
    both(|stage| {
        stage.client(&query("BEGIN"));
        stage.close();
        stage.client(&query("INSERT INTO t VALUES (1)"));
        assert_eq!(stage.sent(), query("BEGIN"));
        assert!(stage.blocked);
        stage.engine(&ended(b'T'));
        assert!(!stage.blocked);
        let sent = stage.sent();
        let mut answer = Stage::stand_in_error(&sent);
        answer.extend(ready(b'E'));
        stage.engine(&answer);
        assert_eq!(stage.told(), ["C", "ZT", "E:ZF001", "ZE"]);
    });
}

#[test]
fn a_program_that_drops_the_guard_half_way_is_refused() {
    both(|stage| {
        stage.close();
        stage.client(&query("DISCARD ALL; SELECT * FROM v"));
        assert_eq!(stage.told(), ["E:ZF008", "ZI"]);
        assert!(stage.conversation.lease.is_none(), "no lease is left behind");
        stage.client(&query("SELECT * FROM v; COMMIT; SELECT * FROM v"));
        assert_eq!(stage.told(), ["E:ZF008", "ZI"], "the first may have changed the settings");
        let mut batch = parse("", "DISCARD ALL");
        batch.extend(bind("", ""));
        batch.extend(execute());
        batch.extend(parse("", "SELECT * FROM v"));
        batch.extend(bind("", ""));
        batch.extend(execute());
        batch.extend(sync());
        stage.client(&batch);
        assert_eq!(stage.sent(), guard());
        stage.engine(&ended(b'I'));
        let sent = stage.sent();
        assert!(sent.windows(11).any(|w| w == b"DISCARD ALL"));
        assert!(!sent.windows(6).any(|w| w == b"FROM v"), "what follows isn't run unguarded");
    });
}

/// A second lifecycle statement that is refused must not hide the first one's lease at that gate.
#[test]
fn w07_a_refused_statement_leaves_an_earlier_lease_elsewhere_in_the_drains_sight() {
    both(|stage| {
        let other = stage.conversation.gates.gate(&Namespace::parse("old/other").unwrap());
        stage.client(&query("DROP DATABASE other"));
        assert_eq!(stage.conversation.elsewhere.len(), 1);
        stage.client(&query("DROP DATABASE other"));
        other.overlay(Overlay::Installing, InFlight::Finish);
        let mut drain = Drain::of(Arc::clone(&other)).unwrap();
        assert!(drain.look().is_none());
        stage.client(&query("DROP DATABASE other"));
        stage.sent();
        assert!(drain.look().is_none(), "the first statement may still be running");
        stage.engine(&ended(b'I'));
        stage.engine(&ended(b'I'));
        assert!(drain.look().is_none(), "a stand-in is owed, so nothing is released");
        stage.engine(&ended(b'I'));
        assert_eq!(drain.look().unwrap().by_answer(), 1);
    });
}

/// An aborted target is closed to all that name it, and in nobody's way once it is gone.
#[test]
fn w07_an_aborted_target_that_is_gone_refuses_only_what_names_it() {
    both(|stage| {
        let other = stage.conversation.gates.gate(&Namespace::parse("old/other").unwrap());
        let mut record = crate::fence::sample::record(FenceState::TargetAborted);
        record.namespace = other.namespace().clone();
        let loaded = LoadedFence::of_a_record(record);
        other.apply(Authority::Loaded(&loaded), InFlight::Finish);
        let any = query("ALTER ROLE x SET work_mem = '1MB'");
        stage.client(&any);
        assert!(stage.sent().is_empty(), "it may be meant while it is there");
        assert!(other.takes_question());
        other.set_gone(true);
        stage.told();
        stage.client(&any);
        assert_eq!(stage.sent(), any);
        stage.engine(&ended(b'I'));
        stage.told();
        for sql in ["CREATE DATABASE other", "DROP DATABASE other"] {
            stage.client(&query(sql));
            assert!(stage.sent().is_empty(), "{sql}");
            stage.told();
        }
    });
}

/// A program is asked for at other gates for what it may reach, whatever stronger class hides that.
#[test]
fn w07_an_unprovable_program_is_asked_for_at_other_gates_as_well() {
    both(|stage| {
        let other = stage.conversation.gates.gate(&Namespace::parse("old/other").unwrap());
        let renames = "SELECT f(); ALTER DATABASE other RENAME TO more";
        stage.client(&query("SELECT f()"));
        assert!(stage.conversation.elsewhere.is_empty(), "control arm: it reaches no database");
        stage.engine(&ended(b'I'));
        stage.client(&query(renames));
        // The name that it gets counts as well: somebody may come by it.
        assert_eq!(stage.conversation.elsewhere.len(), 2);
        stage.engine(&ended(b'I'));
        assert!(stage.conversation.elsewhere.is_empty());
        stage.sent();
        other.overlay(Overlay::Installing, InFlight::Finish);
        stage.client(&query(renames));
        // Named: prepared without a question, and refused when it is to run.
        stage.client(&parse("s", "ALTER DATABASE other SET a = b"));
        stage.client(&sync());
        let told = stage.told();
        let refused = told.iter().filter(|line| line.contains("ZF007")).count();
        assert_eq!((refused, stage.sent().is_empty()), (2, true), "{told:?}");
        // Under rules that are just being changed nobody can say what the second text is.
        stage.client(&parse("", "SET standard_conforming_strings = off"));
        stage.client(&parse("", "ALTER DATABASE other SET a = b"));
        let sent = stage.sent();
        let holds = |text: &[u8]| sent.windows(text.len()).any(|at| at == text);
        assert!(holds(b"SET standard_conforming_strings") && !holds(b"ALTER DATABASE"));
    });
}

#[test]
fn a_ready_for_query_of_another_length_is_a_fault_and_not_waited_for() {
    let mut stage = Stage::new(1);
    stage.client(&query("SELECT 1"));
    for (bytes, fault) in [(&b"Z\0\0\0\x05"[..], false), (b"Z\x10\0\0\0", true)] {
        let mut out = Outgoing::new(bytes, &mut stage.to_client);
        let (rest, to_engine) = (&mut Rest::default(), &mut BytesMut::new());
        let sorted = answers::sort(&mut stage.conversation, rest, &mut out, to_engine);
        assert_eq!(sorted.is_err(), fault, "{sorted:?}");
    }
}

#[test]
fn protocol_errors_name_the_fault() {
    let mut out = BytesMut::new();
    client::protocol_error(&mut out, "invalid frontend message type 33");
    assert_eq!(field(&out[5..], b'C'), Some(&b"08P01"[..]));
    let _status = refusal::Status::from_byte(b'?');
    assert_eq!(refusal::Status::from_byte(b'?'), refusal::Status::Open, "unknown keeps leases");
}

/// A message that breaks the protocol in front of it would have the engine skip the guard's own
/// statement, and answer its Sync as if all had gone well.
#[test]
fn w17_only_the_engines_word_that_the_guard_was_set_counts() {
    both(|stage| {
        stage.close();
        stage.client(&query("SELECT 1"));
        stage.sent();
        let mut skipped = error("08P01", "invalid message format");
        skipped.extend(ready(b'I'));
        stage.engine(&skipped);
        assert!(!stage.sent().windows(8).any(|w| w == b"SELECT 1"), "it would run unguarded");
        stage.engine(&[message(b'1', b""), ready(b'I')].concat());
        assert!(!stage.sent().windows(8).any(|w| w == b"SELECT 1"), "skipped without an error");
        stage.engine(&ended(b'I'));
        assert!(stage.sent().windows(8).any(|w| w == b"SELECT 1"), "confirmed");
    });
}

#[test]
fn a_flush_or_sync_with_something_in_it_ends_the_session() {
    for tag in [b'H', b'S'] {
        let mut stage = Stage::new(1);
        let bytes = message(tag, b"\0");
        let counters = &stage.counters;
        let mut desk = Desk { classifier: &mut stage.classifier, now_ms: 0, counters };
        let mut out = Outgoing::new(&bytes, &mut stage.to_engine);
        let (_, stop) = client::sort(
            &mut stage.conversation,
            &mut stage.rest.0,
            &mut desk,
            &mut out,
            &mut stage.to_client,
        );
        assert!(matches!(stop, Some(client::Stop::Broken(_))), "{}", char::from(tag));
    }
}

#[test]
fn a_ready_for_query_that_nothing_was_asked_for_is_a_fault() {
    let mut stage = Stage::new(1);
    let bytes = ready(b'I');
    let mut out = Outgoing::new(&bytes, &mut stage.to_client);
    let (rest, to_engine) = (&mut Rest::default(), &mut BytesMut::new());
    let sorted = answers::sort(&mut stage.conversation, rest, &mut out, to_engine);
    assert!(sorted.is_err());
}

/// A ROLLBACK in the middle of a client's message would become part of its body, and the end of
/// that body the beginning of messages that nobody judged.
#[test]
fn w13_nothing_of_the_proxys_own_goes_between_the_halves_of_a_message() {
    both(|stage| {
        stage.client(&query("BEGIN"));
        stage.engine(&ended(b'T'));
        stage.client(&query("INSERT INTO t VALUES (1)"));
        stage.engine(&ended(b'T'));
        stage.sent();
        stage.close();
        let now = stage.gate.word().generation();
        let action = stage.conversation.order_roll_back(now, true, &mut stage.to_engine);
        assert_eq!(action, Action::Cancel);
        stage.conversation.set_midway(true, &mut stage.to_engine);
        stage.conversation.cancel_delivered(&mut stage.to_engine);
        assert_eq!(stage.sent(), b"", "the cancel met nothing, and the message isn't over");
        stage.conversation.set_midway(false, &mut stage.to_engine);
        assert!(stage.sent().windows(8).any(|w| w == b"ROLLBACK"));
    });
}

/// Confirmed for one program, a guard says nothing about what comes behind another answer.
#[test]
fn w17_a_guard_does_not_outlive_the_program_it_was_set_for() {
    both(|stage| {
        stage.close();
        stage.client(&query("SELECT 1"));
        stage.engine(&ended(b'I'));
        stage.sent();
        // As if it had been confirmed, and its program refused in front of it.
        stage.conversation.guard_ready = true;
        stage.engine(&ended(b'I'));
        assert!(!stage.conversation.guard_ready);
        // The one for the next program is cancelled.
        stage.engine(&[error("57014", "canceled"), ready(b'I')].concat());
        stage.client(&query("SELECT 2"));
        let sent = stage.sent();
        assert!(!sent.windows(8).any(|w| w == b"SELECT 2"), "it would run behind no guard");
        assert_eq!(sent, guard());
    });
}

/// Drivers give their COMMIT and ROLLBACK a name: the end of a transaction passes all the same.
#[test]
fn w11_the_end_of_a_transaction_passes_by_name_too_when_reads_are_closed() {
    both(|stage| {
        stage.client(&query("BEGIN"));
        stage.engine(&ended(b'T'));
        stage.client(&query("SELECT 1"));
        stage.engine(&ended(b'T'));
        stage.sent();
        stage.told();
        stage.gate.overlay(Overlay::ClosingReads, InFlight::Finish);
        stage.client(&[parse("S_3", "ROLLBACK"), bind("", "S_3"), execute(), sync()].concat());
        // Writes are closed too, so the guard goes first.
        stage.engine(&ended(b'T'));
        assert!(stage.sent().windows(8).any(|w| w == b"ROLLBACK"), "{:?}", stage.told());
        assert_eq!(stage.told(), Vec::<String>::new());
    });
}

/// The proxy's guard has set it already, so the engine reports no change, and its undoing would
/// take it away from a session that asked for it.
#[test]
fn w18_a_session_that_asks_to_read_only_is_told_that_it_can_not_now() {
    for sql in [
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
        "set session characteristics as transaction isolation level serializable, read only",
    ] {
        both(|stage| {
            stage.close();
            stage.client(&query(sql));
            assert_eq!(stage.told(), ["E:ZF001", "ZI"]);
            stage.client(&query("SET TRANSACTION READ ONLY"));
            stage.engine(&ended(b'I'));
            stage.engine(&ended(b'I'));
            assert_eq!(stage.told(), ["C", "ZI"], "control arm: for one transaction it passes");
        });
    }
}

/// `S c S c …` from a client that reads no answers: each pair is an entry of its own, so that a
/// COPY's end is told from another's. Beyond a bound the client is read no further.
#[test]
fn syncs_and_ends_without_end_are_not_kept_without_end() {
    let mut stage = Stage::new(usize::MAX);
    stage.client(&query("SELECT pg_sleep(40)"));
    let pair = [sync(), message(b'c', b"")].concat();
    stage.client(&pair.repeat(2 * limits::OWED_MAX));
    let kept = stage.conversation.owed.len();
    assert!(stage.blocked && kept <= limits::OWED_MAX, "{kept} entries");
    stage.engine(&ended(b'I'));
    assert!(stage.blocked, "one answer makes no room for the rest of them");
    stage.told();
    for _ in 0..2 * limits::OWED_MAX {
        stage.engine(&ready(b'I'));
        assert_eq!(stage.told(), ["ZI"], "each is answered once");
    }
    assert!(!stage.blocked && stage.conversation.owed.is_silent());
}
