//! Prepared statements, names and attributes (W11), byte for byte.

use super::*;

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
        assert_eq!(stage.sent(), query(ASK));
        stage.engine(&rows(b"0", IDLE));
        stage.guarded(false);
        stage.reads_ahead(&execute(2), &ok(IDLE));
        stage.client(&execute(u32::MAX));
        if stage.chunk > 1 {
            stage.reads_ahead(&execute(u32::MAX), &ok(IDLE));
        } else {
            // Forwarded before the rest of it was there, it has no guard behind it.
            assert_eq!(stage.sent(), execute(u32::MAX));
            stage.engine(&ok(IDLE));
            stage.said();
        }
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
fn a_reset_undoes_the_guard_and_forgets_statements() {
    let reset = command(0x1f, b"");
    each(|stage| {
        stage.run(&prepare("select 1"), &prepared(1));
        stage.close();
        stage.client(&query("select 1"));
        stage.guarded(true);
        stage.reads_ahead(&query("select 1"), &rows(b"1", IDLE));
        stage.run(&reset, &ok(IDLE));
        stage.client(&execute(1));
        assert_eq!(stage.told(), (9708, 1));
        stage.client(&query("select 1"));
        stage.guarded(true);
        stage.reads_ahead(&query("select 1"), &rows(b"1", IDLE));
        stage.run(&reset, &ok(IDLE));
        stage.open();
        stage.run(&query("insert into t values (1)"), &ok(IDLE));
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
