//! Admission, leases and their release (W3, W4, W8, W10, W14, W19), byte for byte.

use super::*;

#[cfg(debug_assertions)]
#[test]
fn invariant_01_a_command_that_passes_without_a_lease_is_reported() {
    let check = "wire::mysql::tests::leases::every_command_has_a_lease_or_starts_no_work";
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
