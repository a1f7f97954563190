//! Capabilities shown by a SET or a change of user, byte for byte and without an engine
//! (invariant 15).

use super::*;
use crate::fence::record::FenceRecord;
use crate::fence::sample;
use crate::fence::state::FenceState;
use crate::gate::capability::Purpose;

const STAND_IN: &str = "SET @fencewire_capability = ''";

fn apply(gate: &Gate, state: FenceState, ahead: u64) -> FenceRecord {
    let mut record = sample::record(state);
    record.namespace = gate.namespace().clone();
    record.revision.0 += ahead;
    let loaded = LoadedFence::of_a_record(record.clone());
    gate.apply(Authority::Loaded(&loaded), InFlight::Finish);
    record
}

/// A secret for the state that the target is put into.
fn issued(gate: &Gate, state: FenceState) -> String {
    let imports = state == FenceState::TargetQuarantined;
    let purpose = if imports { Purpose::Import } else { Purpose::Validation };
    let record = apply(gate, state, 0);
    let issued = gate.issue(purpose, record.operation, record.revision, 0).unwrap();
    issued.secret().expose().to_owned()
}

/// The number of an error, or nothing for any other answer, of which there must be one.
fn error_told(stage: &mut Stage) -> Option<u16> {
    let said = stage.said();
    assert!(said.len() > 4, "no answer");
    (said[4] == 0xff).then(|| u16::from_le_bytes([said[5], said[6]]))
}

fn set(secret: &str) -> Vec<u8> {
    query(&format!("SET @fencewire_capability = '{secret}'"))
}

fn show(stage: &mut Stage, secret: &str) {
    stage.client(&set(secret));
    assert_eq!(stage.sent(), query(STAND_IN));
    stage.engine(&ok(IDLE));
    assert_eq!(error_told(stage), None);
}

fn refused(stage: &mut Stage, program: &[u8], code: u16) {
    stage.client(program);
    assert!(stage.sent().is_empty(), "nothing goes to the engine");
    assert_eq!(stage.told(), (code, 1));
}

fn runs(stage: &mut Stage, program: &[u8]) {
    stage.client(program);
    assert_eq!(stage.sent(), program, "unchanged, and no guard");
    stage.engine(&ok(IDLE));
    assert_eq!(error_told(stage), None);
}

#[test]
fn an_import_runs_behind_its_set_and_nothing_runs_without() {
    each(|stage| {
        let secret = issued(&stage.gate, FenceState::TargetQuarantined);
        refused(stage, &query("SELECT 1"), 9704);
        show(stage, &secret);
        for sql in [
            "INSERT INTO t VALUES (1)",
            "CREATE TABLE t (a int)",
            "LOCK TABLES t WRITE",
            "CREATE VIEW v AS SELECT 1 FROM information_schema.tables",
        ] {
            runs(stage, &query(sql));
        }
        refused(stage, &query("DROP DATABASE app"), 9704);
        show(stage, &secret);
    });
}

/// Beside another closed schema it is one packet that is read.
#[test]
fn a_text_of_an_import_that_is_too_long_to_be_read_is_told_so() {
    let mut stage = Stage::new(1 << 25);
    let secret = issued(&stage.gate, FenceState::TargetQuarantined);
    show(&mut stage, &secret);
    stage.other("old/d").overlay(Overlay::Installing, InFlight::Finish);
    let mut long = b"\x03insert into t values ('".to_vec();
    long.resize(PAYLOAD_MAX - 3, b'x');
    long.extend_from_slice(b"')");
    runs(&mut stage, &packet(0, &long));
    long.push(b' ');
    stage.client(&packet(0, &long));
    assert!(stage.sent().is_empty());
    let said = stage.said();
    assert_eq!((u16::from_le_bytes([said[5], said[6]]), said[3]), (9708, 2));
    let text = String::from_utf8_lossy(&said[13..]).into_owned();
    assert!(text.contains("longer than the 16777213 bytes that are read here"), "{text}");
}

/// What lists other schemas opens the target's views from anywhere: only where the capability has
/// let it in does it run without the guard.
#[test]
fn what_lists_schemas_elsewhere_is_guarded_whatever_the_session_shows() {
    let lists = query("select count(*) from information_schema.columns");
    for (live, state) in [
        (true, FenceState::TargetQuarantined),
        (false, FenceState::TargetQuarantined),
        (true, FenceState::TargetValidating),
    ] {
        each(|stage| {
            let secret = issued(&stage.gate, state);
            stage.conversation.begin_bearing(stage.gate.present(secret.as_bytes()));
            if state == FenceState::TargetQuarantined {
                runs(stage, &lists);
            }
            stage.other("old/c");
            stage.conversation.move_to("c");
            if !live {
                apply(&stage.gate, FenceState::TargetImportDraining, 9);
            }
            stage.client(&lists);
            let sent = stage.sent();
            assert_ne!(sent, lists, "VIOLATION: {state:?}, live: {live}");
        });
    }
}

#[test]
fn a_wrong_one_or_one_in_another_place_is_refused_and_goes_nowhere() {
    each(|stage| {
        let secret = issued(&stage.gate, FenceState::TargetQuarantined);
        for sql in [
            "SET @fencewire_capability = 'x'".to_owned(),
            format!("SET @fencewire_capability = '{secret}', @a = 1"),
            format!("SET @a = 1; SET @fencewire_capability = '{secret}'"),
            format!("SELECT '{secret}'"),
            format!("SET @other = '{secret}'"),
        ] {
            refused(stage, &query(&sql), 9706);
            refused(stage, &prepare(&sql), 9706);
        }
        stage.open();
        refused(stage, &set(&secret), 9706);
    });
}

#[test]
fn a_statement_shows_it_when_it_is_prepared() {
    each(|stage| {
        let secret = issued(&stage.gate, FenceState::TargetQuarantined);
        stage.client(&prepare(&format!("SET @fencewire_capability = \"{secret}\"")));
        assert_eq!(stage.sent(), prepare(STAND_IN));
        stage.engine(&prepared(1));
        stage.said();
        runs(stage, &execute(1));
        runs(stage, &query("INSERT INTO t VALUES (1)"));
    });
}

#[test]
fn it_counts_at_its_own_schema_and_at_no_other() {
    each(|stage| {
        let secret = issued(&stage.gate, FenceState::TargetQuarantined);
        let other = stage.other("old/other");
        let theirs = issued(&other, FenceState::TargetQuarantined);
        refused(stage, &set(&theirs), 9706);
        show(stage, &secret);
        refused(stage, &query("INSERT INTO t SELECT * FROM other.t"), 9704);
        runs(stage, &query("INSERT INTO t VALUES (1)"));
        // From a session without a schema, too, wherever its statements go.
        stage.conversation.move_to("");
        runs(stage, &query("INSERT INTO app.t VALUES (1)"));
        refused(stage, &query("INSERT INTO other.t VALUES (1)"), 9704);
        show(stage, &theirs);
        runs(stage, &query("INSERT INTO other.t VALUES (1)"));
        refused(stage, &query("INSERT INTO app.t VALUES (1)"), 9704);
        runs(stage, &query("USE other"));
        assert!(stage.conversation.seats.home().capability().is_some());
        runs(stage, &query("INSERT INTO t VALUES (1)"));
    });
}

#[test]
fn a_transaction_whose_capability_died_is_rolled_back_at_its_next_program() {
    each(|stage| {
        let secret = issued(&stage.gate, FenceState::TargetQuarantined);
        show(stage, &secret);
        stage.client(&query("INSERT INTO t VALUES (1)"));
        stage.engine(&ok(OPEN));
        stage.sent();
        stage.said();
        refused(stage, &set("fwc_"), 9706);
        apply(&stage.gate, FenceState::TargetImportDraining, 1);
        let mut drain = Drain::of(Arc::clone(&stage.gate)).unwrap();
        assert!(drain.look().is_none(), "the seal waits for it");
        stage.client(&query("INSERT INTO t VALUES (2)"));
        assert_eq!(stage.told().0, 9706);
        assert_eq!(stage.sent(), query(ROLLBACK));
        stage.engine(&ok(IDLE));
        assert!(drain.look().is_some());
        refused(stage, &query("COMMIT"), 9706);
        refused(stage, &query("SELECT 1"), 9706);
        refused(stage, &query("SET @fencewire_capability = NULL"), 9704);
        apply(&stage.gate, FenceState::TargetWritable, 9);
        runs(stage, &query("INSERT INTO t VALUES (1)"));
    });
}

#[test]
fn validation_reads_behind_the_guard_and_never_writes() {
    each(|stage| {
        let secret = issued(&stage.gate, FenceState::TargetValidating);
        stage.client(&set(&secret));
        assert_eq!(stage.sent(), query(ASK));
        stage.engine(&rows(b"0", IDLE));
        assert_eq!(stage.sent(), query(GUARD));
        stage.engine(&ok(IDLE));
        assert_eq!(stage.sent(), query(STAND_IN));
        stage.engine(&ok(IDLE));
        assert_eq!(error_told(stage), None);
        refused(stage, &query("INSERT INTO t VALUES (1)"), 9706);
        stage.client(&query("SELECT 1"));
        assert_eq!(stage.sent(), query(GUARD));
        stage.engine(&ok(IDLE));
        stage.sent();
        stage.engine(&err(1, 1792, "Cannot execute statement in a READ ONLY transaction"));
        assert_eq!(stage.told().0, 9706);
    });
}

#[test]
fn a_reset_goes_back_to_the_login_and_a_change_of_user_is_one() {
    each(|stage| {
        let secret = issued(&stage.gate, FenceState::TargetQuarantined);
        show(stage, &secret);
        runs(stage, &command(0x1f, &[]));
        refused(stage, &query("SELECT 1"), 9704);
        let login = stage.gate.present(secret.as_bytes());
        stage.conversation.begin_bearing(login);
        runs(stage, &query("SET @fencewire_capability = ''"));
        refused(stage, &query("SELECT 1"), 9704);
        stage.conversation.begin_bearing(stage.gate.present(secret.as_bytes()));
        runs(stage, &command(0x1f, &[]));
        runs(stage, &query("INSERT INTO t VALUES (1)"));
        let change = |attributes: &[u8]| {
            let head = b"me\0\0app\0\x2d\0mysql_native_password\0";
            command(0x11, &[head, attributes].concat())
        };
        let with = |secret: &str| {
            let list = [b"\x01a\x01b\x14fencewire_capability\x2f", secret.as_bytes()].concat();
            change(&[&[u8::try_from(list.len()).unwrap()], &list[..]].concat())
        };
        refused(stage, &with(&secret.replace(&secret[10..12], "zz")), 9706);
        runs(stage, &query("INSERT INTO t VALUES (1)"));
        stage.client(&with(&secret));
        assert_eq!(stage.sent(), change(b"\x04\x01a\x01b"));
        stage.engine(&packet(1, &ok_payload(IDLE)));
        assert_eq!(error_told(stage), None);
        runs(stage, &query("INSERT INTO t VALUES (1)"));
        runs(stage, &change(b"\x04\x01a\x01b"));
        refused(stage, &query("SELECT 1"), 9704);
    });
}

#[test]
fn orders_at_a_seat_that_was_left_are_heard() {
    let mut stage = Stage::new(usize::MAX);
    let secret = issued(&stage.gate, FenceState::TargetQuarantined);
    let first = Arc::clone(stage.conversation.seats.home().slot());
    first.order(Order::FINISH, Generation(7));
    show(&mut stage, &secret);
    assert_eq!(stage.gate.session_count(), 1, "one place in the table");
    let finishes = |stage: &Stage| {
        let orders = stage.conversation.seats.take_orders();
        orders.iter().any(|(order, before)| order.has(Order::FINISH) && *before == Generation(7))
    };
    assert!(finishes(&stage), "given before");
    first.order(Order::FINISH, Generation(7));
    assert!(finishes(&stage), "and after");
    assert!(!finishes(&stage));
}
