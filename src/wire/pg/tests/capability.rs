//! Capabilities shown by a SET, byte for byte and without an engine (invariant 15).

use super::*;
use crate::fence::record::FenceRecord;
use crate::fence::sample;
use crate::fence::state::FenceState;
use crate::gate::capability::Purpose;
use crate::gate::slot::Order;

const STAND_IN: &str = "SET fencewire.capability = ''";

fn apply(stage: &Stage, state: FenceState, ahead: u64) -> FenceRecord {
    let mut record = sample::record(state);
    record.namespace = stage.gate.namespace().clone();
    record.revision.0 += ahead;
    let loaded = LoadedFence::of_a_record(record.clone());
    stage.gate.apply(Authority::Loaded(&loaded), InFlight::Finish);
    record
}

/// A secret for the state that the target is put into.
fn issued(stage: &Stage, state: FenceState) -> String {
    let imports = state == FenceState::TargetQuarantined;
    let purpose = if imports { Purpose::Import } else { Purpose::Validation };
    let record = apply(stage, state, 0);
    let issued = stage.gate.issue(purpose, record.operation, record.revision, 0).unwrap();
    issued.secret().expose().to_owned()
}

fn set(secret: &str) -> Vec<u8> {
    query(&format!("SET fencewire.capability = '{secret}'"))
}

/// The session shows it, and the engine answers what went in its place.
fn show(stage: &mut Stage, secret: &str) {
    stage.client(&set(secret));
    assert_eq!(stage.sent(), query(STAND_IN));
    stage.engine(&ended(b'I'));
    assert_eq!(stage.told(), ["C", "ZI"]);
}

fn refused(stage: &mut Stage, program: &[u8], code: &str) {
    stage.client(program);
    assert!(stage.sent().is_empty(), "nothing goes to the engine");
    assert_eq!(stage.told(), [format!("E:{code}"), "ZI".to_owned()]);
}

fn runs(stage: &mut Stage, sql: &str) {
    stage.client(&query(sql));
    assert_eq!(stage.sent(), query(sql), "unchanged, and no guard");
    stage.engine(&[done("X"), ready(b'I')].concat());
    assert_eq!(stage.told(), ["C", "ZI"]);
}

#[test]
fn an_import_runs_behind_its_set_and_nothing_runs_without() {
    both(|stage| {
        let secret = issued(stage, FenceState::TargetQuarantined);
        refused(stage, &query("SELECT 1"), "ZF004");
        show(stage, &secret);
        for sql in ["SELECT 1", "INSERT INTO t VALUES (1)", "CREATE TABLE t (a int)", "DO 'x'"] {
            runs(stage, sql);
        }
        refused(stage, &query("DROP DATABASE app"), "ZF004");
        show(stage, &secret);
    });
}

#[test]
fn a_pipeline_shows_it_by_its_parse_and_keeps_name_and_types() {
    both(|stage| {
        let secret = issued(stage, FenceState::TargetQuarantined);
        let typed = |sql: &str| {
            message(b'P', format!("s\0SET fencewire.capability TO '{sql}'\0\0\x01abcd").as_bytes())
        };
        let rest = [bind("", "s"), execute(), sync()].concat();
        stage.client(&[typed(&secret), rest.clone()].concat());
        let parse = message(b'P', format!("s\0{STAND_IN}\0\0\x01abcd").as_bytes());
        // While writes are closed a program's messages pass as they come.
        assert_eq!(stage.sent(), [parse, rest].concat());
        let answers = [message(b'1', b""), message(b'2', b""), done("SET"), ready(b'I')].concat();
        stage.engine(&answers);
        assert_eq!(stage.told(), ["1", "2", "C", "ZI"]);
        runs(stage, "INSERT INTO t VALUES (1)");
        let wrong = [typed("fwc_"), bind("", "s"), execute(), sync()].concat();
        refused(stage, &wrong, "ZF006");
    });
}

#[test]
fn a_wrong_one_or_one_in_another_place_is_refused_and_goes_nowhere() {
    both(|stage| {
        let secret = issued(stage, FenceState::TargetQuarantined);
        let mut changed = secret.clone();
        changed.replace_range(10..11, if &secret[10..11] == "a" { "b" } else { "a" });
        for sql in [
            format!("SET fencewire.capability = '{changed}'"),
            "SET fencewire.capability = 'x'".to_owned(),
            format!("SET LOCAL fencewire.capability = '{secret}'"),
            format!("SET fencewire.capability = '{secret}'; SELECT 1"),
            format!("SELECT set_config('fencewire.capability', '{secret}', false)"),
            format!("SELECT 1 -- {secret}"),
        ] {
            refused(stage, &query(&sql), "ZF006");
        }
        stage.open();
        // At an open gate, too.
        refused(stage, &query(&format!("INSERT INTO t VALUES ('{secret}')")), "ZF006");
        refused(stage, &set(&secret), "ZF006");
        runs(stage, "SELECT 'fwc_short'");
    });
}

#[test]
fn validation_reads_behind_the_guard_and_never_writes() {
    both(|stage| {
        let secret = issued(stage, FenceState::TargetValidating);
        stage.client(&set(&secret));
        assert_eq!(stage.sent(), guard());
        stage.engine(&ended(b'I'));
        assert_eq!(stage.sent(), query(STAND_IN));
        stage.engine(&ended(b'I'));
        assert_eq!(stage.told(), ["C", "ZI"]);
        refused(stage, &query("INSERT INTO t VALUES (1)"), "ZF006");
        refused(stage, &query("SELECT f()"), "ZF006");
        stage.client(&query("SELECT 1"));
        assert_eq!(stage.sent(), guard());
        stage.engine(&ended(b'I'));
        assert_eq!(stage.sent(), query("SELECT 1"));
        // The engine refuses what a view hides: the capability's code, not the fence's.
        stage.engine(&[error("25006", "read-only"), ready(b'I')].concat());
        assert_eq!(stage.told(), ["E:ZF006", "ZI"]);
    });
}

#[test]
fn one_that_died_admits_nothing_but_the_end_and_can_be_given_up() {
    both(|stage| {
        let secret = issued(stage, FenceState::TargetQuarantined);
        show(stage, &secret);
        stage.client(&query("BEGIN"));
        stage.engine(&[done("BEGIN"), ready(b'T')].concat());
        stage.client(&query("INSERT INTO t VALUES (1)"));
        stage.engine(&[done("INSERT 0 1"), ready(b'T')].concat());
        stage.sent();
        stage.told();
        apply(stage, FenceState::TargetImportDraining, 1);
        let writes = stage.conversation.lease.as_ref().map(|lease| lease.stamp().writer);
        assert_eq!(writes, Some(true), "the seal waits for it");
        stage.client(&query("INSERT INTO t VALUES (2)"));
        let sent = stage.sent();
        stage.engine(&Stage::stand_in_error(&sent));
        stage.engine(&ready(b'E'));
        assert_eq!(stage.told(), ["E:ZF006", "ZE"]);
        stage.client(&query("ROLLBACK"));
        assert_eq!(stage.sent(), query("ROLLBACK"));
        stage.engine(&[done("ROLLBACK"), ready(b'I')].concat());
        assert_eq!(stage.told(), ["C", "ZI"]);
        for program in [query("SELECT 1"), query("BEGIN"), set(&secret)] {
            refused(stage, &program, "ZF006");
        }
        refused(stage, &query("RESET fencewire.capability"), "ZF004");
        refused(stage, &query("SELECT 1"), "ZF004");
        apply(stage, FenceState::TargetWritable, 9);
        runs(stage, "INSERT INTO t VALUES (1)");
    });
}

#[test]
fn it_is_given_up_behind_the_statements_end_and_comes_back_by_a_reset_to_the_login() {
    both(|stage| {
        let secret = issued(stage, FenceState::TargetQuarantined);
        let other = issued(stage, FenceState::TargetQuarantined);
        for gives_up in ["RESET fencewire.capability", "SET fencewire.capability TO DEFAULT"] {
            show(stage, &secret);
            // What is sent with it is judged behind it.
            stage.client(&[query(gives_up), query("SELECT 1")].concat());
            assert_eq!(stage.sent(), query(gives_up));
            stage.engine(&ended(b'I'));
            assert!(stage.sent().is_empty());
            assert_eq!(stage.told(), ["C", "ZI", "E:ZF004", "ZI"]);
        }
        let login = stage.gate.present(other.as_bytes()).unwrap();
        stage.conversation.bearing = Bearing::of(Some(login));
        show(stage, &secret);
        runs(stage, "DISCARD ALL");
        assert!(stage.conversation.seat.capability().is_some());
        runs(stage, "INSERT INTO t VALUES (1)");
    });
}

#[test]
fn inside_a_transaction_nothing_is_shown_and_behind_a_pipeline_it_waits() {
    both(|stage| {
        let record = apply(stage, FenceState::TargetWriteFenced, 0);
        let purpose = Purpose::Validation;
        let issued = stage.gate.issue(purpose, record.operation, record.revision, 0).unwrap();
        let secret = issued.secret().expose().to_owned();
        stage.client(&[query("BEGIN"), set(&secret)].concat());
        assert_eq!(stage.sent(), guard());
        stage.engine(&ended(b'I'));
        assert_eq!(stage.sent(), query("BEGIN"));
        stage.engine(&[done("BEGIN"), ready(b'T')].concat());
        let sent = stage.sent();
        assert!(!sent.windows(4).any(|four| four == b"fwc_"));
        stage.engine(&[Stage::stand_in_error(&sent), ready(b'E')].concat());
        assert_eq!(stage.told(), ["C", "ZT", "E:ZF006", "ZE"]);
        stage.client(&query("ROLLBACK"));
        stage.engine(&[done("ROLLBACK"), ready(b'I')].concat());
        stage.sent();
        stage.told();
        // At an open gate programs flow; the SET waits until they are answered.
        stage.open();
        runs_behind(stage, &secret);
    });
}

fn runs_behind(stage: &mut Stage, secret: &str) {
    let undo = stage.own(UNDO);
    stage.client(&query("SELECT 1"));
    assert_eq!(stage.sent(), [undo, query("SELECT 1")].concat());
    let record = apply(stage, FenceState::TargetWriteFenced, 1);
    let issued =
        stage.gate.issue(Purpose::Validation, record.operation, record.revision, 0).unwrap();
    stage.client(&set(issued.secret().expose()));
    assert!(stage.sent().is_empty(), "not while something is owed");
    stage.engine(&[ended(b'I'), done("SELECT 1"), ready(b'I')].concat());
    assert_eq!(stage.sent(), guard());
    stage.engine(&ended(b'I'));
    assert_eq!(stage.sent(), query(STAND_IN));
    assert!(secret.starts_with("fwc_"));
}

/// Cancels look there whether something runs.
#[test]
fn w23_the_place_of_a_session_is_the_seat_that_it_has_now() {
    let mut stage = Stage::new(usize::MAX);
    let place = stage.conversation.place();
    let secret = issued(&stage, FenceState::TargetQuarantined);
    show(&mut stage, &secret);
    let sits = |stage: &Stage| Arc::ptr_eq(&place.slot(), stage.conversation.seat.slot());
    assert!(sits(&stage), "behind a SET");
    stage.client(&query("SELECT 1"));
    assert!(place.slot().is_running(), "what runs is seen");
    stage.engine(&[done("SELECT 1"), ready(b'I')].concat());
    stage.client(&query("DISCARD ALL"));
    stage.engine(&[done("DISCARD ALL"), ready(b'I')].concat());
    assert!(sits(&stage), "behind DISCARD ALL");
}

#[test]
fn orders_at_a_seat_that_was_left_are_heard() {
    let mut stage = Stage::new(usize::MAX);
    let secret = issued(&stage, FenceState::TargetQuarantined);
    let first = Arc::clone(stage.conversation.seat.slot());
    first.order(Order::FINISH, Generation(7));
    show(&mut stage, &secret);
    assert_eq!(stage.gate.session_count(), 1, "one place in the table");
    let finishes = |stage: &Stage| {
        let mut orders = stage.conversation.take_orders();
        orders.any(|(order, before)| order.has(Order::FINISH) && before == Generation(7))
    };
    assert!(finishes(&stage), "given before");
    first.order(Order::FINISH, Generation(7));
    assert!(finishes(&stage), "and after");
    assert!(!finishes(&stage));
}

#[test]
fn a_replication_connection_shows_nothing() {
    let mut stage = Stage::new(usize::MAX);
    let secret = issued(&stage, FenceState::TargetQuarantined);
    stage.conversation.mode = Mode::LogicalReplication;
    stage.client(&set(&secret));
    assert!(stage.sent().is_empty());
    assert_eq!(stage.told(), ["E:ZF006", "ZI"]);
}
