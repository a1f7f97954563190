//! Held programs, byte for byte and without an engine (W20).

use super::*;
use crate::base::limits;
use crate::fence::verdict::HoldRule;
use crate::gate::registry::Rules;

const PLENTY: HoldRule = HoldRule { hold_ms: 60_000, held_max: 10 };

fn shut(stage: &Stage, rule: HoldRule) {
    let rules = Rules { in_flight: InFlight::Finish, hold: Some(rule) };
    stage.gate.overlay(Overlay::Installing, rules);
}

/// What the relay does with a call: the command is sorted again, from its beginning.
fn called(stage: &mut Stage) -> bool {
    let orders = stage.conversation.seats.take_orders();
    let called = orders.iter().any(|(order, _)| order.has(Order::JUDGE_AGAIN));
    if called {
        stage.conversation.held.call();
        stage.sort_client();
    }
    called
}

fn writes() -> [Vec<u8>; 4] {
    [
        query("INSERT INTO t VALUES (1)"),
        query("SELECT 1; DELETE FROM t"),
        prepare("INSERT INTO t VALUES (?)"),
        query("CREATE TABLE t2 (n int)"),
    ]
}

#[test]
fn w20_what_was_held_goes_on_unchanged_when_it_is_judged_again() {
    each(|stage| {
        for program in writes() {
            shut(stage, PLENTY);
            stage.client(&program);
            assert!(stage.sent().is_empty() && stage.said().is_empty());
            assert_eq!((stage.gate.held().programs, stage.holds()), (1, false));
            let mut drain = Drain::of(Arc::clone(&stage.gate)).unwrap();
            assert!(drain.look().is_some(), "what is held is nobody's blocker");
            assert!(!called(stage), "nothing moved");
            stage.open();
            assert!(called(stage));
            assert_eq!(stage.sent(), program, "byte for byte, and no guard");
            assert_eq!((stage.gate.held().programs, stage.holds()), (0, true));
            stage.engine(&if program[4] == 0x16 { prepared(1) } else { ok(IDLE) });
            stage.said();
        }
    });
}

#[test]
fn w20_a_second_closing_before_the_judgement_holds_it_again() {
    for program in writes() {
        let mut stage = Stage::new(1 << 25);
        shut(&stage, PLENTY);
        stage.client(&program);
        stage.open();
        shut(&stage, PLENTY);
        assert!(called(&mut stage));
        assert!(stage.sent().is_empty() && stage.said().is_empty());
        assert_eq!(stage.gate.held().programs, 1);
        // One that holds nothing refuses it.
        stage.open();
        shut(&stage, HoldRule::NONE);
        assert!(called(&mut stage));
        assert!(stage.sent().is_empty());
        assert_eq!(stage.told(), (9701, 1));
        assert_eq!(stage.gate.held().programs, 0);
    }
}

#[test]
fn w20_without_a_rule_or_room_it_is_refused_at_once() {
    for (rule, code) in [(HoldRule::NONE, 9701), (HoldRule { held_max: 0, ..PLENTY }, 9710)] {
        for program in writes() {
            let mut stage = Stage::new(1 << 25);
            shut(&stage, rule);
            stage.client(&program);
            assert!(stage.sent().is_empty());
            assert_eq!(stage.told(), (code, 1));
        }
    }
}

#[test]
fn w20_inside_a_transaction_nothing_is_held() {
    let mut stage = Stage::new(1 << 25);
    stage.run(&query("BEGIN"), &ok(OPEN));
    shut(&stage, PLENTY);
    stage.client(&query("INSERT INTO t VALUES (1)"));
    assert!(stage.sent().is_empty());
    assert_eq!(stage.told().1, 1);
    assert_eq!(stage.gate.held().programs, 0);
}

#[test]
fn w20_a_killed_program_is_answered_even_if_the_gate_is_open_by_then() {
    for program in writes() {
        let mut stage = Stage::new(1 << 25);
        shut(&stage, PLENTY);
        stage.client(&program);
        stage.conversation.held.cancel();
        stage.open();
        assert!(called(&mut stage));
        assert!(stage.sent().is_empty());
        assert_eq!(stage.told(), (1317, 1));
        assert_eq!(stage.gate.held().programs, 0);
    }
}

/// Only what the engine has allowed, and only where something is held.
#[test]
fn w20_a_kill_of_the_query_reaches_what_is_held_when_the_engine_has_taken_it() {
    for (answer, number, reached) in
        [(ok(IDLE), 77, true), (err(1, 1095, "not yours"), 77, false), (ok(IDLE), 78, false)]
    {
        let mut stage = Stage::new(1 << 25);
        let other = Seat::take(Arc::clone(&stage.gate), SessionId(2), Card::default());
        other.slot().set_engine_pid(77);
        shut(&stage, PLENTY);
        let seen = stage.gate.word().generation();
        let place = other.park(PLENTY, seen, (1, &mut None), 0).unwrap();
        stage.open();
        let _calls = other.slot().take_orders();
        stage.run(&query(&format!("KILL QUERY {number}")), &answer);
        assert_eq!(other.slot().take_orders().0.has(Order::CANCEL_HELD), reached, "{number}");
        drop(place);
    }
}

#[test]
fn w20_a_session_that_ends_leaves_the_queue() {
    let mut stage = Stage::new(1 << 25);
    shut(&stage, PLENTY);
    stage.client(&query("INSERT INTO t VALUES (1)"));
    let gate = Arc::clone(&stage.gate);
    assert_eq!(gate.held().programs, 1);
    drop(stage);
    assert_eq!((gate.held().programs, gate.session_count()), (0, 0));
}

/// The answers are far longer than the commands: they are made a buffer at a time, and the bytes
/// that wait for that stay in the namespace's account.
#[test]
fn w20_many_small_commands_refused_at_once_are_answered_a_buffer_at_a_time() {
    let (count, write) = (100_000, query("x y"));
    let mut stage = Stage::new(1 << 25);
    shut(&stage, PLENTY);
    stage.client(&write.repeat(count));
    let all = count * write.len();
    assert_eq!((stage.gate.held().programs, stage.gate.held().bytes), (1, all));
    stage.open();
    shut(&stage, HoldRule::NONE);
    assert!(called(&mut stage));
    let (mut answers, mut rounds) = (0, 0);
    loop {
        let mut said = &stage.said()[..];
        assert!(said.len() < limits::SCRATCH_BYTES + 2_000, "{} bytes of answers", said.len());
        let (kept, counted) = (stage.held.0.len(), stage.gate.held());
        assert_eq!((counted.programs, counted.bytes), (0, kept), "round {rounds}");
        while let Some(header) = frame::header(said) {
            assert_eq!((said[4], header.sequence), (0xff, 1), "an error, for a command");
            said = &said[4 + header.payload..];
            answers += 1;
        }
        rounds += 1;
        if !stage.full {
            break;
        }
        stage.sort_client();
    }
    assert_eq!((answers, stage.held.0.len()), (count, 0));
    assert!(rounds > 50 && stage.sent().is_empty());
    stage.open();
    stage.client(&query("INSERT INTO t VALUES (1)"));
    assert_eq!(stage.sent(), query("INSERT INTO t VALUES (1)"), "the session goes on");
}
