//! Default schemas and others (W7), byte for byte.

use super::*;

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
        assert_eq!(stage.sent(), query(ROLLBACK));
        stage.engine(&ok(IDLE));
        assert!(drain.look().is_some());
        assert!(!stage.holds());
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

/// What a procedure reaches in another schema isn't known; the other schema's engine lock meets it.
#[test]
fn a_call_is_refused_where_its_own_schema_is_fenced_or_one_that_it_names() {
    each(|stage| {
        let other = stage.other("old/b");
        other.overlay(Overlay::Installing, InFlight::Finish);
        for sql in ["call b.p()", "call p((select n from b.t))"] {
            stage.client(&query(sql));
            assert!((9701..=9708).contains(&stage.told().0), "{sql}");
        }
        stage.run(&query("call p(1, @x)"), &ok(IDLE));
        // Where it has left the session isn't known.
        let again = query("call p()");
        stage.client(&again);
        assert_eq!(stage.sent(), query("SELECT DATABASE()"));
        stage.engine(&rows(b"app", IDLE));
        assert_eq!(stage.sent(), again);
        stage.engine(&ok(IDLE));
        assert_eq!(stage.said(), ok(IDLE));
        assert_eq!((stage.gate.session_count(), other.session_count()), (1, 0));
        for (row, session_at) in [(&b"b"[..], 1), (b"\xe4", 0), (b"a?", 0), (b"", 0)] {
            stage.client(&query("call p(2)"));
            assert_eq!(stage.sent(), query("SELECT DATABASE()"));
            stage.engine(&rows(row, IDLE));
            assert!(stage.sent().is_empty());
            assert!((9701..=9708).contains(&stage.told().0), "{row:?}");
            assert_eq!(other.session_count(), session_at);
            // Asked once only: nothing has run since.
            stage.client(&query("call p(2)"));
            assert!((9701..=9708).contains(&stage.told().0), "{row:?}");
            stage.conversation.move_to("app");
            (stage.conversation.lost, stage.conversation.schema_unasked) = (true, true);
        }
    });
}

/// A change of user brings its character set, as a login does.
#[test]
fn a_change_of_user_is_read_by_the_character_set_it_names() {
    for (collation, text, readable) in [(10, "select 1", false), (45, "select 'ä'", true)] {
        let mut stage = Stage::new(1 << 25);
        let change = command(0x11, &[b"v\0\0app\0", &[collation, 0][..]].concat());
        stage.client(&change);
        stage.engine(&packet(1, &ok_payload(IDLE)));
        assert_eq!((stage.sent(), stage.said()), (change, packet(1, &ok_payload(IDLE))));
        stage.close();
        stage.client(&query(text));
        if readable {
            assert_eq!(stage.sent(), query(ASK));
        } else {
            assert!(stage.sent().is_empty());
            assert_eq!(stage.told(), (9708, 1));
        }
    }
}

/// Status bit 0x100, which both engines set for a drop of any schema.
const DROPPED: u16 = IDLE | 0x100;

#[test]
fn w07_a_drop_of_another_schema_leaves_the_session_where_it_is() {
    each(|stage| {
        for drop in [query("drop database scratch"), query("drop schema if exists `x y`")] {
            stage.run(&drop, &ok(DROPPED));
            assert_eq!((stage.gate.session_count(), stage.conversation.lost), (1, false));
        }
        stage.run(&command(6, b"scratch"), &ok(DROPPED));
        assert_eq!((stage.gate.session_count(), stage.conversation.lost), (1, false));
        // One that may be its own, or hides among others: only the engine knows.
        for drop in [
            query("drop database app"),
            query("drop database `APP`"),
            command(6, b"app"),
            query("select 1; drop database scratch"),
        ] {
            stage.run(&drop, &ok(DROPPED));
            assert!(std::mem::take(&mut stage.conversation.lost), "{drop:?}");
        }
        stage.close();
        stage.client(&query("insert into t values (1)"));
        assert_eq!(stage.told(), (9701, 1));
    });
}

/// An answer that tells a default schema.
fn telling(sequence: u8, schema: &[u8], status: u16) -> Vec<u8> {
    let [low, high] = (status | 0x4000).to_le_bytes();
    let length = u8::try_from(schema.len()).unwrap();
    let track = [&[1, length + 1, length][..], schema].concat();
    let total = u8::try_from(track.len()).unwrap();
    let head = [0, 0, 0, low, high, 0, 0, 0, total];
    packet(sequence, &[&head[..], &track].concat())
}

/// MariaDB tells a procedure's own schema with its results, and nothing where it then fails.
#[test]
fn a_schema_told_in_the_middle_of_an_answer_is_a_doubt() {
    const MORE: u16 = IDLE | 8;
    for chunk in [1 << 25, 1] {
        let failed = err(2, 1644, "raised");
        for (end, lost) in [(&failed, true), (&packet(2, &ok_payload(IDLE)), true)] {
            let mut stage = Stage::with(chunk, bits::SESSION_TRACK);
            stage.client(&query("call util.p()"));
            stage.sent();
            stage.engine(&[&telling(1, b"util", MORE)[..], end].concat());
            assert_eq!(stage.conversation.lost, lost);
        }
        let mut stage = Stage::with(chunk, bits::SESSION_TRACK);
        stage.client(&query("call util.p()"));
        stage.sent();
        stage.engine(&[telling(1, b"util", MORE), telling(2, b"app", IDLE)].concat());
        assert_eq!((stage.gate.session_count(), stage.conversation.lost), (1, false));
        // What is told in front is where it has been all along.
        for (text, lost) in [("select d.f(); select 1", false), ("call d.p()", true)] {
            let mut stage = Stage::with(chunk, bits::SESSION_TRACK);
            stage.client(&query(text));
            stage.sent();
            stage.engine(&[&telling(1, b"app", MORE)[..], &packet(2, &ok_payload(IDLE))].concat());
            assert_eq!(stage.conversation.lost, lost, "{text}");
        }
        // A text of its own says where it has gone.
        stage.client(&query("use b; do 1"));
        stage.sent();
        stage.engine(&[telling(1, b"b", MORE), packet(2, &ok_payload(IDLE))].concat());
        assert_eq!((stage.gate.session_count(), stage.conversation.lost), (0, false));
    }
}
