//! The guard that is sent behind one program for the next (W17): when it is, and when it counts.

use super::*;
use crate::base::limits;
use crate::sql::Toggle;
use crate::wire::mysql::answers::Status;
use crate::wire::mysql::conversation::{Inbound, SchemaTold, Stand, Whose};
use crate::wire::mysql::standing::Branch;
use crate::wire::shared::forced::Action;

/// A session under a fence that has read once: the guard for its next program is confirmed.
fn ready(stage: &mut Stage) {
    stage.close();
    stage.client(&query("select 0"));
    stage.guarded(true);
    stage.reads_ahead(&query("select 0"), &rows(b"0", IDLE));
    assert!(stage.conversation.guard.ready && !stage.conversation.must_wait());
}

fn execute_with(id: u32, flags: u8) -> Vec<u8> {
    command(0x17, &[&id.to_le_bytes()[..], &[flags, 1, 0, 0, 0]].concat())
}

#[test]
fn w17_the_next_program_has_its_guard_already_and_goes_at_once() {
    each(|stage| {
        ready(stage);
        for n in 0..3 {
            let read = query(&format!("select {n} from v"));
            stage.client(&read);
            assert_eq!(stage.sent(), armed(&read));
            assert!(!stage.conversation.awaits_ahead(), "rows wait for their client");
            stage.engine(&rows(b"1", IDLE));
            assert_eq!(stage.said(), rows(b"1", IDLE), "the client waits for nothing");
            assert!(stage.conversation.awaits_ahead(), "and nothing waits for the client");
            assert!(stage.holds(), "something was forwarded behind it");
            stage.engine(&ok(IDLE));
            assert!(!stage.conversation.awaits_ahead() && !stage.holds());
            assert!(stage.said().is_empty());
        }
        stage.client(&prepare("select 1"));
        stage.reads_ahead(&prepare("select 1"), &prepared(3));
        // What runs no SQL leaves it in force.
        stage.run(&ping(), &ok(IDLE));
        stage.client(&query("select 3"));
        stage.reads_ahead(&query("select 3"), &rows(b"3", IDLE));
    });
    let mut stage = Stage::new(1 << 25);
    ready(&mut stage);
    stage.client(&prepare("select 1"));
    stage.reads_ahead(&prepare("select 1"), &prepared(3));
    // With the number of parameters in it, as MySQL's own clients send it, too.
    for flags in [0, 8] {
        stage.client(&execute_with(3, flags));
        stage.reads_ahead(&execute_with(3, flags), &rows(b"1", IDLE));
    }
}

/// Whatever may have lifted the setting ran in front of the guard that counts.
#[test]
fn w17_a_program_that_comes_too_soon_waits_for_the_guard_behind_the_one_before() {
    for answered in [false, true] {
        each(|stage| {
            ready(stage);
            stage.client(&query("select * from switching"));
            stage.sent();
            if answered {
                stage.engine(&rows(b"1", IDLE));
            }
            stage.client(&query("select * from counting"));
            assert!(stage.blocked);
            if !answered {
                stage.engine(&rows(b"1", IDLE));
            }
            assert!(stage.sent().is_empty(), "VIOLATION: it runs behind what lifted the guard");
            stage.engine(&ok(IDLE));
            assert_eq!(stage.sent(), armed(&query("select * from counting")));
            assert_eq!(stage.said(), rows(b"1", IDLE));
        });
    }
}

#[test]
fn w17_a_guard_ahead_that_failed_counts_for_nothing_and_against_nobody() {
    each(|stage| {
        ready(stage);
        for _ in 0..3 * limits::GUARD_TRIES_MAX {
            stage.client(&query("select * from v"));
            assert_eq!(stage.sent(), armed(&query("select * from v")));
            stage.engine(&[rows(b"1", IDLE), err(1, 1317, "interrupted")].concat());
            assert_eq!(stage.said(), rows(b"1", IDLE), "it was nobody's");
            assert_eq!(stage.sent(), ping());
            stage.engine(&ok(IDLE));
            stage.client(&query("select 1"));
            stage.guarded(false);
            stage.reads_ahead(&query("select 1"), &rows(b"1", IDLE));
        }
        assert!(!stage.conversation.guard.failed, "kills that come late end no session");
    });
}

/// An error of the program's own has the engine skip nothing, and the guard's OK tells the status.
#[test]
fn w17_behind_a_program_that_failed_the_guard_is_as_good() {
    for (errno, told) in [(1146, 1146), (1317, 1317), (1792, 9701)] {
        each(|stage| {
            ready(stage);
            stage.client(&query("select * from writing"));
            stage.sent();
            stage.engine(&err(1, errno, "it failed"));
            assert_eq!(stage.told(), (told, 1));
            assert!(stage.sent().is_empty() && stage.holds());
            stage.engine(&ok(IDLE));
            assert!(stage.sent().is_empty() && !stage.holds());
            stage.client(&query("select 2"));
            assert_eq!(stage.sent(), armed(&query("select 2")));
        });
    }
}

/// No read opens a transaction. If one did all the same the setting would be of the one behind it.
#[test]
fn w17_a_guard_ahead_counts_only_behind_a_program_that_left_the_session_outside() {
    for (program, guard) in [(OPEN, OPEN), (OPEN, IDLE), (IDLE, OPEN)] {
        each(|stage| {
            ready(stage);
            stage.client(&query("select * from v"));
            stage.sent();
            stage.engine(&rows(b"1", program));
            stage.engine(&ok(guard));
            assert_eq!(stage.said(), rows(b"1", program));
            assert!(!stage.conversation.guard.ready, "VIOLATION: set in another transaction");
            assert_eq!(stage.holds(), guard == OPEN);
            stage.client(&query("select * from v"));
            let sent = stage.sent();
            let wanted = if guard == IDLE { GUARD } else { "SAVEPOINT " };
            assert!(sent[5..].starts_with(wanted.as_bytes()), "{sent:?}");
        });
    }
}

/// Commands behind which nothing is sent unasked, each in a session under a fence.
fn others() -> Vec<Vec<u8>> {
    let texts = [
        "begin",
        "start transaction read only",
        "commit",
        "rollback",
        "select 1; select 2",
        "set @a = 1",
        "set session transaction read write",
        "set autocommit = 0",
        "set names latin1",
        "lock tables t read",
        "unlock tables",
        "xa start 'x'",
        "use app",
        "prepare s from 'select 1'",
        "select sleep(10)",
        "select * from t where sleep(1) or get_lock('a', -1)",
        "select master_pos_wait('a', 4)",
        "kill query 7",
        "execute sleeping",
        "execute nobody",
    ];
    let mut all: Vec<_> = texts.into_iter().map(query).collect();
    all.extend([
        query(&format!("select '{}'", "x".repeat(limits::GUARD_AHEAD_PROGRAM_BYTES_MAX))),
        execute_with(1, 1),
        execute_with(1, 9),
        prepare("select sleep(1)"),
        command(2, b"app"),
        command(4, b"t\0"),
        command(9, b""),
        ping(),
        command(0x1a, &1_u32.to_le_bytes()),
        command(0x1f, b""),
        command(0x11, b"u\0\0app\0\x2d\0"),
    ]);
    all
}

#[test]
fn w17_no_guard_is_sent_behind_what_may_not_leave_the_session_as_it_is() {
    for program in others() {
        let mut stage = Stage::new(1 << 25);
        stage.run(&prepare("select 1"), &prepared(1));
        stage.run(&query("prepare sleeping from 'select sleep(600)'"), &ok(IDLE));
        ready(&mut stage);
        stage.client(&program);
        let sent = stage.sent();
        let guards = sent.windows(GUARD.len()).filter(|part| *part == GUARD.as_bytes());
        let text = String::from_utf8_lossy(&program[..program.len().min(60)]);
        assert_eq!(guards.count(), 0, "VIOLATION: a guard is sent behind {text:?}");
        let runs = sent.ends_with(&program) || stage.said().get(4) == Some(&0xff);
        assert!(runs, "{text:?} {sent:?}");
        assert!(!stage.conversation.is_armed_ahead());
    }
}

/// The control arm of the test above, and what is the engine's own state or the session's.
#[test]
fn w17_what_stands_around_a_program_speaks_against_a_guard_behind_it_too() {
    let sends = |stage: &mut Stage| {
        stage.client(&query("select 7"));
        let sent = stage.sent();
        assert!(sent.starts_with(&query("select 7")), "{sent:?}");
        sent.len() > query("select 7").len()
    };
    each(|stage| {
        ready(stage);
        assert!(sends(stage), "control arm");
    });
    each(|stage| {
        ready(stage);
        stage.open();
        stage.client(&query("select 6"));
        assert_eq!(stage.sent(), query(UNDO));
        stage.engine(&ok(IDLE));
        assert_eq!(stage.sent(), query("select 6"));
        stage.engine(&rows(b"1", IDLE));
        assert!(!sends(stage), "writes are open");
    });
    each(|stage| {
        // Admitted before the gate was closed: it has no guard, and the drain waits for it.
        stage.client(&query("select 6"));
        stage.close();
        assert_eq!(stage.sent(), query("select 6"));
        assert!(!stage.conversation.is_armed_ahead());
    });
    each(|stage| {
        // With autocommit off each read begins a transaction.
        stage.run(&query("set autocommit = 0"), &ok(0));
        stage.close();
        stage.client(&query("select 6"));
        assert_eq!(stage.sent(), query(ASK));
        stage.engine(&rows(b"0", 0));
        assert_eq!(stage.sent(), query(GUARD));
        stage.engine(&ok(0));
        assert_eq!(stage.sent(), query("select 6"));
    });
    each(|stage| {
        // What is read-only by itself has nothing undone at opening.
        stage.close();
        stage.client(&query("select 6"));
        stage.engine(&rows(b"1", IDLE));
        stage.engine(&ok(IDLE));
        assert!(stage.sent().ends_with(&query("select 6")));
    });
    each(|stage| {
        // The default schema is open, and its lease an unguarded one: a drain there waits for it.
        stage.other("old/b").overlay(Overlay::Installing, InFlight::Finish);
        stage.client(&query("select * from b.t"));
        stage.guarded(true);
        assert_eq!(stage.sent(), query("select * from b.t"));
    });
}

/// What may stand around a program, each alone. Some of it can't come about behind a guarded read
/// as far as is known; the decision doesn't lean on that.
#[test]
fn w17_each_thing_around_a_program_speaks_against_a_guard_behind_it_by_itself() {
    type Around = (&'static str, fn(&mut Stage));
    let arounds: [Around; 17] = [
        ("a transaction is open", |s| s.conversation.stand = Stand::Inside { read_only: true }),
        ("nobody knows", |s| s.conversation.stand = Stand::Unknown),
        ("autocommit is off", |s| s.conversation.status = Status(0)),
        ("nothing runs", |s| s.conversation.owed = None),
        ("the proxy's own runs", |s| s.conversation.owed = Some(Whose::Ping)),
        ("it isn't guarded", |s| owe(s, false, false)),
        ("it is wrapped", |s| owe(s, true, true)),
        ("an XA transaction", |s| s.conversation.xa = true),
        ("a branch", |s| s.conversation.branch = Branch::Begun),
        ("a branch that failed", |s| s.conversation.branch = Branch::Failed),
        ("a file comes in", |s| s.conversation.inbound = Inbound::File(2)),
        ("it is read-only by itself", |s| s.conversation.guard.own = Toggle::On),
        ("nobody knows whether it is", |s| s.conversation.guard.own = Toggle::Unknown),
        ("it is being forced", |s| s.conversation.forced = Forced::RolledBack { told: false }),
        ("the default schema isn't known", |s| s.conversation.lost = true),
        ("the guard has failed", |s| s.conversation.guard.failed = true),
        ("writes are open", |s| s.open()),
    ];
    let read = query("select 1");
    let reading = || {
        let mut stage = Stage::new(1 << 25);
        ready(&mut stage);
        stage.client(&read);
        assert_eq!(stage.sent(), armed(&read));
        stage
    };
    assert!(reading().conversation.may_arm_ahead(&read[4..]), "control arm");
    for (what, comes) in arounds {
        let mut stage = reading();
        comes(&mut stage);
        let arms = stage.conversation.may_arm_ahead(&read[4..]);
        assert!(!arms, "VIOLATION: a guard is sent ahead though {what}");
    }
    let most = vec![0; limits::GUARD_AHEAD_PROGRAM_BYTES_MAX];
    assert!(reading().conversation.may_arm_ahead(&most));
    assert!(!reading().conversation.may_arm_ahead(&[&most[..], b"x"].concat()));
}

fn owe(stage: &mut Stage, guarded: bool, wrapped: bool) {
    let schema_told = SchemaTold::Nothing;
    stage.conversation.owed = Some(Whose::Client { guarded, wrapped, schema_told });
}

/// A confirmed guard is of the command that comes next, unless that one runs nothing.
#[test]
fn w17_a_confirmed_guard_is_in_force_for_one_command() {
    for between in [command(2, b"app"), command(9, b""), command(0x1c, &[1, 0, 0, 0, 1, 0, 0, 0])] {
        let mut stage = Stage::new(1 << 25);
        stage.run(&prepare("select 1"), &prepared(1));
        ready(&mut stage);
        stage.client(&between);
        assert_eq!(stage.sent(), between);
        stage.engine(&match between[4] {
            9 => packet(1, b"Uptime: 1"),
            0x1c => packet(1, &[0xfe, 0, 0, 2, 0]),
            _ => ok(IDLE),
        });
        stage.said();
        stage.client(&query("select 1"));
        stage.guarded(false);
        assert_eq!(stage.sent(), armed(&query("select 1")), "{between:?}");
    }
}

/// The engine asks for a file where nothing that reads from its client was seen: the guard is in
/// its place.
#[test]
fn w17_a_request_for_a_file_in_front_of_a_guard_ends_the_session() {
    let mut stage = Stage::new(1 << 25);
    ready(&mut stage);
    stage.client(&query("select 1"));
    stage.faults(&packet(1, b"\xfb/etc/hosts"));
    let mut stage = Stage::new(1 << 25);
    ready(&mut stage);
    stage.client(&query("select 1"));
    stage.engine(&rows(b"1", IDLE));
    stage.faults(&packet(1, b"\xfb/etc/hosts"));
}

#[test]
fn w17_a_gate_that_opens_behind_the_guard_has_it_undone_in_front_of_the_next_program() {
    each(|stage| {
        ready(stage);
        stage.client(&query("select 1"));
        stage.sent();
        stage.open();
        stage.client(&query("insert into t values (1)"));
        stage.engine(&rows(b"1", IDLE));
        assert!(stage.blocked && stage.sent().is_empty(), "in front of the guard's answer");
        stage.engine(&ok(IDLE));
        assert_eq!(stage.sent(), query(UNDO));
        stage.engine(&ok(IDLE));
        assert_eq!(stage.sent(), query("insert into t values (1)"));
        stage.engine(&ok(IDLE));
        stage.said();
        // The next fence begins anew.
        stage.close();
        stage.client(&query("select 1"));
        stage.guarded(false);
        assert_eq!(stage.sent(), armed(&query("select 1")));
    });
}

/// A read fence's order finds the program, or the guard behind it: neither keeps its lease.
#[test]
fn w13_a_guard_that_is_owed_holds_up_no_drain() {
    for (ran, killed) in [(false, false), (true, false), (true, true)] {
        each(|stage| {
            ready(stage);
            stage.client(&query("select * from v"));
            stage.sent();
            let before = Generation(stage.gate.word().generation().0 + 1);
            if ran {
                stage.engine(&rows(b"1", IDLE));
                assert_eq!(stage.said(), rows(b"1", IDLE));
            }
            let engine = &mut stage.to_engine;
            let action = stage.conversation.order_stop_reading(before, false, engine);
            assert_eq!(action, Action::Cancel);
            stage.conversation.cancel_delivered(&mut stage.to_engine);
            if !ran {
                stage.engine(&err(1, 1317, "interrupted"));
                assert_eq!(stage.told(), (9703, 1));
            }
            if killed {
                stage.engine(&err(1, 1317, "interrupted"));
                assert_eq!(stage.sent(), ping());
            }
            stage.engine(&ok(IDLE));
            assert!(!stage.holds() && stage.conversation.forced == Forced::No);
            assert!(stage.sent().is_empty() && stage.said().is_empty());
            assert!(!stage.conversation.must_wait());
            stage.client(&query("select 1"));
            let sent = stage.sent();
            let next = if killed { query(GUARD) } else { armed(&query("select 1")) };
            assert_eq!(sent, next);
        });
    }
}

/// The end of the session waits for the guard's answer, which the client has no part in.
#[test]
fn a_session_that_ends_behind_a_guard_ahead_ends_in_order() {
    each(|stage| {
        ready(stage);
        stage.client(&query("select 1"));
        stage.sent();
        stage.engine(&rows(b"1", IDLE));
        stage.client(&command(1, b""));
        assert!(stage.sent().is_empty() && !stage.conversation.is_idle());
        assert_eq!(stage.conversation.owed, Some(Whose::Ahead));
        stage.engine(&ok(IDLE));
        assert_eq!(stage.sent(), command(1, b""));
        assert!(stage.conversation.is_idle() && stage.conversation.stand == Stand::Outside);
    });
}

#[cfg(debug_assertions)]
#[test]
fn w17_control_arm_a_guard_ahead_of_anything_is_reported() {
    let check = "wire::mysql::tests::ahead::\
                 w17_no_guard_is_sent_behind_what_may_not_leave_the_session_as_it_is";
    crate::base::arm::missed(check, &[("calm-ahead", "a guard is sent behind")]).unwrap();
}

#[cfg(debug_assertions)]
#[test]
fn w17_control_arm_a_guard_ahead_taken_by_its_word_alone_is_reported() {
    let check = "wire::mysql::tests::ahead::\
                 w17_a_guard_ahead_counts_only_behind_a_program_that_left_the_session_outside";
    crate::base::arm::missed(check, &[("guard-status", "set in another transaction")]).unwrap();
}
