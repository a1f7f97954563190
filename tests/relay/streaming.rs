//! Replication sessions: a logical stream from its slot to its end, and what goes wrong in one.

use super::{Case, Talk};
use crate::support::wire::{copy_data, copy_done, frame, query};

/// A walsender of the own database, with a slot and some changes behind it.
fn with_slot(talk: &mut Talk) {
    talk.start();
    let slot = slot(talk);
    talk.other()
        .query(&format!(
            "SELECT FROM pg_create_logical_replication_slot('{slot}', 'test_decoding')"
        ))
        .ok();
    talk.ask(&["INSERT INTO r VALUES (4, 'streamed')", "BEGIN; DELETE FROM r; COMMIT"]);
    let db = talk.db.clone();
    let parameters = [("user", "wire"), ("database", db.as_str()), ("replication", "database")];
    talk.again(&parameters);
}

/// Slots are the whole server's: one for each database.
fn slot(talk: &Talk) -> String {
    format!("of_{}", talk.db)
}

fn begin(talk: &mut Talk) {
    let options = "(\"include-xids\" 'off', \"skip-empty-xacts\" 'on')";
    let sql = format!("START_REPLICATION SLOT {} LOGICAL 0/0 {options}", slot(talk));
    talk.send(&query(&sql));
    talk.until(b'W', 1);
}

fn drop_slot(talk: &mut Talk) {
    let slot = slot(talk);
    let sql = format!("SELECT pg_drop_replication_slot('{slot}')");
    let mut other = talk.other();
    let dropped = crate::support::poll(std::time::Duration::from_secs(60), || {
        other.query(&sql).code().is_none().then_some(())
    });
    talk.remark(if dropped.is_some() { "dropped" } else { "not dropped" });
}

/// BEGIN, a row, COMMIT; BEGIN, four rows, COMMIT.
const MESSAGES: usize = 9;

fn stream(talk: &mut Talk) {
    with_slot(talk);
    begin(talk);
    talk.until(b'd', MESSAGES);
    // More of it while it runs, and a reply to the server that asks for one.
    talk.other().query("INSERT INTO talk.r VALUES (5, 'later')").ok();
    talk.until(b'd', 3);
    talk.send(&copy_data(&[b"r".as_slice(), &[0; 32], b"\x01"].concat()));
    talk.send(&copy_done());
    talk.ready(1);
    talk.ask(&["SELECT 'behind the stream'", "SELECT 1/0"]);
    drop_slot(talk);
}

fn client_leaves(talk: &mut Talk) {
    with_slot(talk);
    begin(talk);
    talk.until(b'd', MESSAGES);
    talk.send(&frame(b'X', &[]));
    talk.end();
    drop_slot(talk);
}

fn client_breaks_it(talk: &mut Talk) {
    with_slot(talk);
    begin(talk);
    talk.until(b'd', MESSAGES);
    talk.send(&query("SELECT 1"));
    talk.end();
    drop_slot(talk);
}

fn unknown_reply(talk: &mut Talk) {
    with_slot(talk);
    begin(talk);
    talk.until(b'd', MESSAGES);
    talk.send(&copy_data(b"?what"));
    talk.end();
    drop_slot(talk);
}

fn killed(talk: &mut Talk) {
    with_slot(talk);
    begin(talk);
    talk.until(b'd', MESSAGES);
    talk.kill();
    talk.end();
    drop_slot(talk);
}

fn bad_options(talk: &mut Talk) {
    with_slot(talk);
    let start = format!("START_REPLICATION SLOT {} LOGICAL 0/0", slot(talk));
    talk.ask(&[&format!("{start} (\"no-such-option\" '1')"), "SELECT 1"]);
    talk.ask(&[
        &format!("START_REPLICATION SLOT {} PHYSICAL 0/0", slot(talk)),
        "START_REPLICATION",
    ]);
    drop_slot(talk);
}

fn physical(talk: &mut Talk) {
    talk.login(3 << 16, &[("replication", "true")]);
    talk.ask(&[
        "SELECT 1",
        "SHOW wal_level",
        "TIMELINE_HISTORY 99",
        "START_REPLICATION 0/0 TIMELINE 9",
    ]);
    talk.ask(&["CREATE_REPLICATION_SLOT \"Bad Name\" PHYSICAL", "DROP_REPLICATION_SLOT nope"]);
    talk.ask(&["IDENTIFY SYSTEM", "BASE_BACKUP (NONSENSE 1)"]);
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("replication: a stream, and SQL behind it", stream),
        Case::new("replication: the client leaves a stream", client_leaves),
        Case::new("replication: a Query in a stream", client_breaks_it),
        Case::new("replication: an unknown reply in a stream", unknown_reply),
        Case::new("replication: killed in a stream", killed),
        Case::new("replication: options that aren't", bad_options),
        Case::new("replication: physical", physical),
    ]
}
