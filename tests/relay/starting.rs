//! Conversations that are about the start of a session.

use super::Talk;
use crate::support::wire::{parse, query, sync};

fn login(talk: &mut Talk, minor: u32, more: &[(&str, &str)]) {
    talk.login((3 << 16) | minor, more);
}

fn look(talk: &mut Talk, sql: &str) {
    talk.send(&query(sql));
    talk.ready(1);
}

pub(super) fn plain(talk: &mut Talk) {
    login(talk, 0, &[("application_name", "a name"), ("client_encoding", "LATIN1")]);
    look(talk, "SHOW application_name");
    look(talk, "SHOW client_encoding");
}

pub(super) fn three_two(talk: &mut Talk) {
    login(talk, 2, &[]);
    look(talk, "SELECT 1");
}

pub(super) fn probe(talk: &mut Talk) {
    login(talk, 9999, &[("_pq_.test_protocol_negotiation", "")]);
    look(talk, "SELECT 1");
}

pub(super) fn unknown_options(talk: &mut Talk) {
    login(talk, 0, &[("_pq_.one", "1"), ("_pq_.two", "x")]);
    look(talk, "SELECT 1");
}

pub(super) fn options(talk: &mut Talk) {
    let options = "-c statement_timeout=12s -c default_transaction_read_only=on --work-mem=1MB";
    login(talk, 0, &[("options", options), ("DateStyle", "German")]);
    look(talk, "SHOW statement_timeout");
    look(talk, "CREATE TABLE never (n int)");
    look(talk, "DISCARD ALL");
    look(talk, "SHOW default_transaction_read_only");
}

pub(super) fn unknown_setting(talk: &mut Talk) {
    login(talk, 0, &[("no_such_setting", "1")]);
}

pub(super) fn missing_role(talk: &mut Talk) {
    // The server asks for a password first, for a role it doesn't have as for any other.
    talk.until_tag_after_login(&[("user", "no_such_role"), ("database", "postgres")], b'R');
}

pub(super) fn missing_database(talk: &mut Talk) {
    login(talk, 0, &[("user", "wire"), ("database", "no_such_database")]);
}

pub(super) fn default_database(talk: &mut Talk) {
    login(talk, 0, &[("user", "wire")]);
}

pub(super) fn logical(talk: &mut Talk) {
    let db = talk.db.clone();
    let login_as = [("user", "wire"), ("database", db.as_str()), ("replication", "database")];
    login(talk, 0, &login_as);
    for sql in [
        "SELECT g FROM generate_series(1, 3) g",
        "SHOW wal_level",
        "TIMELINE_HISTORY 77",
        "START_REPLICATION SLOT nope LOGICAL 0/0",
        "DROP_REPLICATION_SLOT nope",
        "BEGIN",
        "SELECT 1/0",
        "ROLLBACK",
    ] {
        look(talk, sql);
    }
    // The extended protocol isn't spoken there.
    talk.send(&[parse("", "SELECT 1"), sync(), query("SELECT 2")].concat());
    talk.ready(2);
}

pub(super) fn physical(talk: &mut Talk) {
    let db = talk.db.clone();
    let login_as = [("user", "wire"), ("database", db.as_str()), ("replication", "true")];
    login(talk, 0, &login_as);
}

pub(super) fn large_packet(talk: &mut Talk) {
    let name = "n".repeat(9_000);
    login(talk, 0, &[("application_name", &name)]);
    look(talk, "SHOW application_name");
}
