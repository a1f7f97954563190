//! Edges that no other file is about: what commits early, transactions in two phases, a writing
//! walsender, startup packets around the server's bound.

use super::{Case, Talk};
use crate::support::wire::{bind, close, describe, execute, flush, parse, query, sync};

fn one(sql: &str) -> Vec<u8> {
    [parse("", sql), bind("", "", &[]), execute("", 0)].concat()
}

/// What must be alone commits at its Execute: an error behind it takes nothing back.
fn early_commit(talk: &mut Talk) {
    talk.start();
    let index = one("CREATE INDEX CONCURRENTLY early ON r (s)");
    talk.send(&[index, one("SELECT 1/0"), sync()].concat());
    talk.ready(1);
    talk.ask(&["SELECT count(*) FROM pg_class WHERE oid = 'talk.early'::regclass"]);
    talk.send(
        &[one("VACUUM r"), one("SELECT 1/0"), sync(), one("REINDEX TABLE r"), sync()].concat(),
    );
    talk.ready(2);
}

fn gid(talk: &Talk) -> String {
    format!("of_{}", talk.db)
}

fn two_phases(talk: &mut Talk) {
    talk.start();
    let gid = gid(talk);
    let prepare = format!("PREPARE TRANSACTION '{gid}'");
    talk.ask(&["BEGIN; INSERT INTO r VALUES (4)", &prepare, "SELECT count(*) FROM r"]);
    talk.ask(&[&format!("COMMIT PREPARED '{gid}'"), "SELECT count(*) FROM r"]);
    // A second time, and by a pipeline.
    talk.ask(&[&format!("COMMIT PREPARED '{gid}'"), &prepare]);
    let rollback = one(&format!("ROLLBACK PREPARED '{gid}'"));
    let begun = [one("BEGIN"), one("INSERT INTO r VALUES (5)"), one(&prepare), sync()].concat();
    talk.send(&[begun, rollback, sync(), query("SELECT count(*) FROM r")].concat());
    talk.ready(3);
}

fn two_phases_of_nothing(talk: &mut Talk) {
    talk.start();
    let gid = gid(talk);
    let prepare = format!("PREPARE TRANSACTION '{gid}'");
    talk.ask(&["BEGIN READ ONLY; SELECT 1", &prepare, "SELECT 1"]);
    talk.ask(&[&format!("BEGIN; ROLLBACK PREPARED '{gid}'"), "ROLLBACK"]);
    talk.ask(&[&format!("ROLLBACK PREPARED '{gid}'")]);
    // Of a failed transaction there is nothing to prepare.
    talk.ask(&["BEGIN", "SELECT 1/0", &prepare, &format!("COMMIT PREPARED '{gid}'")]);
}

fn close_behind_a_failure(talk: &mut Talk) {
    talk.start();
    let failing = [parse("s", "SELECT 1/0"), bind("p", "s", &[]), execute("p", 0)].concat();
    let closing = [close(b'P', "p"), close(b'S', "s"), describe(b'S', "s"), flush()].concat();
    talk.send(&[failing, closing, sync()].concat());
    talk.ready(1);
    talk.send(&[close(b'P', "p"), describe(b'S', "s"), close(b'S', "s"), sync()].concat());
    talk.ready(1);
    talk.send(&[bind("", "s", &[]), execute("", 0), sync()].concat());
    talk.ready(1);
}

/// Names that SQL takes away while the protocol counts on them.
fn names_taken_away(talk: &mut Talk) {
    talk.start();
    talk.send(&[parse("s", "SELECT 1"), parse("t", "SELECT 2"), sync()].concat());
    talk.ready(1);
    talk.ask(&["DEALLOCATE s", "PREPARE s AS SELECT 'sql'", "PREPARE t AS SELECT 'sql'"]);
    for name in ["s", "t", "u"] {
        talk.send(&[bind("", name, &[]), execute("", 0), sync()].concat());
        talk.ready(1);
    }
    talk.ask(&["DISCARD ALL", "EXECUTE s"]);
    talk.send(&[parse("s", "SELECT 3"), bind("", "s", &[]), execute("", 0), sync()].concat());
    talk.ready(1);
}

/// State that ends with DISCARD ALL, and state that doesn't.
fn discarded(talk: &mut Talk) {
    talk.login(3 << 16, &[("options", "-c work_mem=2MB -c TimeZone=UTC")]);
    talk.ask(&["SET work_mem = '3MB'; SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'German'"]);
    talk.ask(&["CREATE TEMP TABLE mine (n int)", "LISTEN c", "SELECT pg_advisory_lock(9)"]);
    talk.ask(&["BEGIN", "DISCARD ALL", "ROLLBACK", "SELECT 1; DISCARD ALL", "DISCARD ALL"]);
    talk.ask(&["SHOW work_mem", "SHOW TimeZone", "SHOW DateStyle", "TABLE mine"]);
    talk.ask(&["SELECT count(*) FROM pg_listening_channels()", "SELECT pg_advisory_unlock(9)"]);
}

fn walsender_writes(talk: &mut Talk) {
    talk.start();
    let db = talk.db.clone();
    talk.again(&[("user", "wire"), ("database", db.as_str()), ("replication", "database")]);
    talk.ask(&["INSERT INTO talk.r VALUES (4, 'by a walsender')", "BEGIN; DELETE FROM talk.r"]);
    talk.ask(&["ROLLBACK", "SELECT count(*) FROM talk.r; SELECT 1/0", "COPY talk.r TO STDOUT"]);
    talk.ask(&["IDENTIFY_SYSTEM; SELECT 1", "SHOW server_version_num; SELECT 2"]);
}

/// The server reads 10,000 bytes behind the packet's length and drops who sends more, without a
/// word.
fn startup_of(talk: &mut Talk, length: usize) {
    // The strings, the version, and the length itself. The two sides' databases have names of their
    // own lengths: blanks make up for that, since the engine tells the application's name.
    let name = "n".repeat(9_000);
    let strings = format!("user\0wire\0database\0{}\0application_name\0{name}\0", talk.db);
    let blanks = " ".repeat(length - (strings + "options\0\0\0").len() - 8);
    talk.login(3 << 16, &[("application_name", &name), ("options", &blanks)]);
    if talk.is_open() {
        talk.ask(&["SELECT length(current_setting('application_name'))"]);
    }
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("edge: what commits at its Execute", early_commit),
        Case::new("edge: PREPARE TRANSACTION and COMMIT PREPARED", two_phases),
        Case::new("edge: PREPARE TRANSACTION of nothing", two_phases_of_nothing),
        Case::new("edge: Close behind a failure", close_behind_a_failure),
        Case::new("edge: names taken away by SQL", names_taken_away),
        Case::new("edge: DISCARD ALL and what it leaves", discarded),
        Case::new("edge: a walsender that writes", walsender_writes),
        Case::new("edge: 10,000 bytes of startup", |talk: &mut Talk| startup_of(talk, 10_004)),
        Case::new("edge: 10,001 bytes of startup", |talk: &mut Talk| startup_of(talk, 10_005)),
    ]
}
