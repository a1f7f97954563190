//! Held programs, byte for byte and without an engine (W20).

use super::*;
use crate::fence::verdict::HoldRule;
use crate::gate::registry::Rules;
use crate::gate::slot::Order;

const PLENTY: HoldRule = HoldRule { hold_ms: 60_000, held_max: 10 };

fn closed(chunk: usize, rule: HoldRule) -> Stage {
    let stage = Stage::new(chunk);
    let rules = Rules { in_flight: InFlight::Finish, hold: Some(rule) };
    stage.gate.overlay(Overlay::Installing, rules);
    stage
}

/// What the relay does with a call: the message is sorted again, from its beginning.
fn called(stage: &mut Stage) -> bool {
    let (order, _) = stage.conversation.seat.slot().take_orders();
    if order.has(Order::JUDGE_AGAIN) {
        stage.conversation.held.call();
        stage.sort_client();
    }
    order.has(Order::JUDGE_AGAIN)
}

fn writes() -> [Vec<u8>; 3] {
    let pipeline = |first: Vec<u8>| [first, bind("", ""), execute(), sync()].concat();
    [
        query("INSERT INTO t VALUES (1)"),
        pipeline(parse("", "INSERT INTO t VALUES (1)")),
        query("SELECT 1; DELETE FROM t"),
    ]
}

#[test]
fn w20_what_was_held_goes_on_unchanged_when_it_is_judged_again() {
    for chunk in [usize::MAX, 1] {
        for program in writes() {
            let mut stage = closed(chunk, PLENTY);
            stage.client(&program);
            assert!(stage.to_engine.is_empty() && stage.to_client.is_empty());
            assert_eq!((stage.gate.held().programs, stage.conversation.lease.is_none()), (1, true));
            let mut drain = Drain::of(Arc::clone(&stage.gate)).unwrap();
            assert!(drain.look().is_some(), "what is held is nobody's blocker");
            assert!(!called(&mut stage), "nothing moved");
            stage.open();
            assert!(called(&mut stage));
            assert_eq!(stage.to_engine, program, "byte for byte, and no guard");
            assert_eq!(stage.gate.held().programs, 0);
            let stamp = stage.conversation.lease.as_ref().unwrap().stamp();
            assert_eq!(stamp.generation, stage.gate.word().generation(), "the new generation");
        }
    }
}

#[test]
fn w20_a_gate_that_moves_while_the_program_is_parked_is_not_missed() {
    let mut stage = closed(usize::MAX, PLENTY);
    // Refused under a gate that opens before the program is in the queue.
    let refusal = Box::new(stage.conversation.refusal(crate::fence::code::Denial::WriteFenced));
    stage.open();
    let size = crate::wire::shared::waiting::Size { there: 1, whole: 1 };
    stage.conversation.hold(refusal, size, 0).unwrap();
    assert_eq!(stage.gate.held().programs, 1);
    assert!(called(&mut stage), "it is called at once");
}

/// The guard's own refusal is made up after the verdict: the gate may have opened in between.
#[test]
fn w20_nothing_is_held_at_a_gate_that_has_opened() {
    let mut stage = closed(usize::MAX, PLENTY);
    stage.open();
    let refusal = Box::new(stage.conversation.refusal(crate::fence::code::Denial::Unprovable));
    let size = crate::wire::shared::waiting::Size { there: 1, whole: 1 };
    let told = stage.conversation.hold(refusal, size, 0).unwrap_err();
    assert_eq!(told.denial, crate::fence::code::Denial::Unprovable);
    assert_eq!(stage.gate.held().programs, 0, "nobody would call it");
}

#[test]
fn w20_a_second_closing_before_the_judgement_holds_it_again() {
    for program in writes() {
        let mut stage = closed(usize::MAX, PLENTY);
        stage.client(&program);
        stage.open();
        let rules = Rules { in_flight: InFlight::Finish, hold: Some(PLENTY) };
        stage.gate.overlay(Overlay::Installing, rules);
        assert!(called(&mut stage));
        assert!(stage.to_engine.is_empty() && stage.to_client.is_empty());
        assert_eq!(stage.gate.held().programs, 1);
        // One that holds nothing refuses it.
        stage.open();
        let none = Rules { hold: Some(HoldRule::NONE), ..rules };
        stage.gate.overlay(Overlay::Installing, none);
        assert!(called(&mut stage));
        assert!(stage.to_engine.is_empty());
        assert_eq!(field(&stage.to_client[5..], b'C'), Some(&b"ZF001"[..]));
        assert_eq!(stage.gate.held().programs, 0);
    }
}

#[test]
fn w20_without_a_rule_or_room_it_is_refused_at_once() {
    for (rule, code) in
        [(HoldRule::NONE, &b"ZF001"[..]), (HoldRule { held_max: 0, ..PLENTY }, b"ZF010")]
    {
        for program in writes() {
            let mut stage = closed(usize::MAX, rule);
            stage.client(&program);
            assert_eq!(field(&stage.to_client[5..], b'C'), Some(code));
            assert!(stage.to_engine.is_empty());
            assert!(stage.to_client.ends_with(&ready(b'I')));
        }
    }
}

#[test]
fn w20_a_cancelled_program_is_answered_even_if_the_gate_is_open_by_then() {
    for program in writes() {
        let mut stage = closed(usize::MAX, PLENTY);
        stage.client(&program);
        stage.conversation.held.cancel();
        stage.open();
        assert!(called(&mut stage));
        assert!(stage.to_engine.is_empty());
        assert_eq!(field(&stage.to_client[5..], b'C'), Some(&b"57014"[..]));
        assert!(stage.to_client.ends_with(&ready(b'I')));
        assert_eq!(stage.gate.held().programs, 0);
    }
}

#[test]
fn w20_a_session_that_ends_leaves_the_queue() {
    let mut stage = closed(usize::MAX, PLENTY);
    stage.client(&query("INSERT INTO t VALUES (1)"));
    let gate = Arc::clone(&stage.gate);
    assert_eq!(gate.held().programs, 1);
    drop(stage);
    assert_eq!((gate.held().programs, gate.session_count()), (0, 0));
}

/// The answers are far longer than the programs: they are made a buffer at a time, and the bytes
/// that wait for that stay in the namespace's account.
#[test]
fn w20_many_small_programs_refused_at_once_are_answered_a_buffer_at_a_time() {
    let (count, program) = (200_000, query("x y"));
    let mut stage = closed(usize::MAX, PLENTY);
    stage.client(&program.repeat(count));
    let all = count * program.len();
    assert_eq!((stage.gate.held().programs, stage.gate.held().bytes), (1, all));
    let none = Rules { in_flight: InFlight::Finish, hold: Some(HoldRule::NONE) };
    stage.open();
    stage.gate.overlay(Overlay::Installing, none);
    assert!(called(&mut stage));
    let (mut answers, mut rounds) = (0, 0);
    loop {
        let most = limits::SCRATCH_BYTES + 2_000;
        assert!(stage.to_client.len() < most, "{} bytes of answers", stage.to_client.len());
        let (kept, counted) = (stage.held.0.len(), stage.gate.held());
        assert_eq!((counted.programs, counted.bytes), (0, kept), "round {rounds}");
        let told = stage.told();
        assert!(told.chunks(2).all(|two| two == ["E:ZF001", "ZI"] || two == ["E:ZF008", "ZI"]));
        answers += told.len() / 2;
        rounds += 1;
        if !stage.full {
            break;
        }
        stage.sort_client();
    }
    assert_eq!((answers, stage.held.0.len()), (count, 0));
    assert!(rounds > 100 && stage.to_engine.is_empty());
    stage.open();
    stage.client(&query("INSERT INTO t VALUES (1)"));
    assert_eq!(stage.sent(), query("INSERT INTO t VALUES (1)"), "the session goes on");
}

/// What is parked again out of the same bytes isn't counted twice, and goes with its session.
#[test]
fn w20_the_next_program_of_the_same_bytes_takes_them_over() {
    let program = query("INSERT INTO t VALUES (1)");
    let mut stage = closed(usize::MAX, PLENTY);
    stage.client(&program.repeat(3));
    stage.conversation.held.cancel();
    stage.sort_client();
    assert_eq!(stage.told(), ["E:57014", "ZI"]);
    let sight = stage.gate.held();
    assert_eq!((sight.programs, sight.bytes), (1, 2 * program.len()));
    let gate = Arc::clone(&stage.gate);
    drop(stage);
    assert_eq!((gate.held().programs, gate.held().bytes), (0, 0));
}
