//! Notices, notifications, settings that are reported, and values of all sizes.

use super::{Case, Talk};
use crate::support::wire::{bind, copy_data, copy_done, execute, parse, query, sync};

fn program(sql: &str) -> Vec<u8> {
    [parse("", sql), bind("", "", &[]), execute("", 0), sync()].concat()
}

fn notices_in_copy(talk: &mut Talk) {
    talk.start();
    talk.ask(&[
        "CREATE FUNCTION say() RETURNS trigger LANGUAGE plpgsql AS $f$
        BEGIN RAISE NOTICE 'row %', NEW.n; RETURN NEW; END $f$",
        "CREATE TRIGGER say BEFORE INSERT ON r FOR EACH ROW EXECUTE FUNCTION say()",
    ]);
    talk.send(&query("COPY r FROM STDIN"));
    talk.until(b'G', 1);
    talk.send(&[copy_data(b"4\tx\n5\tx\n"), copy_done()].concat());
    talk.ready(1);
}

fn notices_at_commit(talk: &mut Talk) {
    talk.start();
    talk.ask(&[
        "CREATE FUNCTION say() RETURNS trigger LANGUAGE plpgsql AS $f$
        BEGIN RAISE NOTICE 'at last %', NEW.n; RETURN NULL; END $f$",
        "CREATE CONSTRAINT TRIGGER say AFTER INSERT ON r INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION say()",
    ]);
    talk.ask(&["BEGIN; INSERT INTO r VALUES (4), (5)", "COMMIT"]);
    talk.send(&program("INSERT INTO r VALUES (6)"));
    talk.ready(1);
}

/// Longer than what the proxy reads whole.
fn large_messages(talk: &mut Talk) {
    talk.start();
    for level in ["NOTICE", "WARNING", "EXCEPTION"] {
        let body = format!("RAISE {level} '%', repeat('m', 200000)");
        let sql = format!("DO $f$ BEGIN {body}; END $f$");
        talk.ask(&[&sql]);
        talk.send(&program(&sql));
        talk.ready(1);
    }
}

fn many_notices(talk: &mut Talk) {
    talk.start();
    let body = "FOR i IN 1..3000 LOOP RAISE NOTICE 'number %', i; END LOOP;";
    talk.ask(&[&format!("DO $f$ BEGIN {body} END $f$"), "SELECT 1"]);
}

fn notifications_in_a_pipeline(talk: &mut Talk) {
    talk.start();
    talk.ask(&["LISTEN a; LISTEN b"]);
    let all = ["NOTIFY a, '1'", "SELECT 1", "NOTIFY b, '2'"].map(program);
    talk.send(&all.concat());
    talk.ready(3);
    talk.ask(&["BEGIN", "NOTIFY a, 'never'", "ROLLBACK", "SELECT 1/0"]);
}

fn many_notifications(talk: &mut Talk) {
    talk.start();
    talk.ask(&["LISTEN c"]);
    let sql = "SELECT count(pg_notify('c', g || repeat('p', 3000))) FROM generate_series(1, 200) g";
    talk.other().query(sql).ok();
    talk.until(b'A', 200);
    talk.ask(&["SELECT 1"]);
}

fn settings_in_a_transaction(talk: &mut Talk) {
    talk.start();
    talk.ask(&["BEGIN; SET LOCAL application_name = 'local'; SET DateStyle = 'SQL'", "COMMIT"]);
    talk.ask(&["BEGIN; SET application_name = 'gone'", "SELECT 1/0", "ROLLBACK"]);
    talk.ask(&["SAVEPOINT s", "BEGIN; SAVEPOINT s; SET TIME ZONE 'UTC'; ROLLBACK TO s; COMMIT"]);
    talk.ask(&["SELECT set_config('application_name', 'by a function', false)"]);
    talk.ask(&["SET SESSION AUTHORIZATION DEFAULT; RESET ROLE", "SET ROLE app", "RESET ROLE"]);
    talk.send(&program("SET client_encoding = latin1"));
    talk.ready(1);
    talk.ask(&["SET client_encoding = 'none'", "RESET client_encoding"]);
}

/// 18 reports the search path: a ParameterStatus longer than what the proxy reads whole.
fn long_setting(talk: &mut Talk) {
    talk.start();
    let names: Vec<_> = (0..8_000).map(|n| format!("schema_{n}")).collect();
    let long = format!("SET search_path = {}", names.join(", "));
    talk.ask(&[&long, "SHOW search_path", "RESET search_path"]);
}

/// Values whose frames end around the bounds of buffers.
fn sizes(talk: &mut Talk) {
    talk.start();
    for around in [4_096, 8_192, 16_384, 65_536, 131_072] {
        let to = around + 12;
        let from = around - 40;
        let sql = format!("SELECT repeat('s', g) FROM generate_series({from}, {to}, 4) g");
        talk.ask(&[&sql]);
    }
}

/// Statements of such lengths.
fn statement_sizes(talk: &mut Talk) {
    talk.start();
    let mut lengths = Vec::new();
    for around in [4_096_usize, 65_536, 1 << 20] {
        lengths.extend([around - 40, around - 8, around - 1, around, around + 1, around + 40]);
    }
    for length in lengths {
        let sql = format!("SELECT length('{}')", "q".repeat(length));
        talk.send(&[query(&sql), program(&sql)].concat());
        talk.ready(2);
    }
}

fn twenty_megabytes_both_ways(talk: &mut Talk) {
    talk.start();
    let value = "v".repeat(20 << 20);
    talk.ask(&[&format!("UPDATE r SET s = '{value}' WHERE n = 1"), "SELECT s FROM r WHERE n = 1"]);
    talk.ask(&["BEGIN; DECLARE c CURSOR FOR SELECT s FROM r", "FETCH ALL FROM c", "ROLLBACK"]);
}

fn twenty_megabytes_of_copy(talk: &mut Talk) {
    talk.start();
    talk.send(&query("COPY r FROM STDIN"));
    talk.until(b'G', 1);
    let line = format!("9\t{}\n", "c".repeat(20 << 20));
    for piece in line.as_bytes().chunks(100_000) {
        talk.send(&copy_data(piece));
    }
    talk.send(&copy_done());
    talk.ready(1);
    talk.ask(&["COPY (SELECT s FROM r WHERE n = 9) TO STDOUT"]);
}

/// A value near the engine's own limit, and one beyond it.
fn gigabyte(talk: &mut Talk) {
    talk.start();
    talk.ask(&["SELECT repeat('g', 1000000000)", "SELECT repeat('g', 1073741800)", "SELECT 1"]);
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("notices: in COPY in", notices_in_copy),
        Case::new("notices: at COMMIT", notices_at_commit),
        Case::new("notices: and errors of 200 kB", large_messages),
        Case::new("notices: three thousand", many_notices),
        Case::new("notifications: in a pipeline", notifications_in_a_pipeline),
        Case::new("notifications: two hundred from outside", many_notifications),
        Case::new("settings: in transactions and by functions", settings_in_a_transaction),
        Case::new("settings: a long one", long_setting),
        Case::new("sizes: rows around the bounds of buffers", sizes),
        Case::new("sizes: statements around the bounds of buffers", statement_sizes),
        Case::new("sizes: 20 MB in and out", twenty_megabytes_both_ways),
        Case::new("sizes: 20 MB by COPY", twenty_megabytes_of_copy),
    ];
    // Needs some gigabytes of memory, and minutes.
    if std::env::var_os("FENCEWIRE_TEST_GIGABYTE").is_some() {
        cases.push(Case::new("sizes: a gigabyte", gigabyte));
    }
    cases
}
