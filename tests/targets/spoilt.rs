//! A store that can't be believed, with a target in each of its states: acceptance 12, for every
//! engine, by the table of spoilt stores that fences have (`acceptance/spoilt.rs`).
//!
//! Purpose: whatever a target had come to, a store or marker that says something else closes it and
//! says why; nothing that is stored is touched; a target that takes writes is closed as well.
//!
//! Who uses it: `tests/store_pg.rs`, `tests/store_mysql.rs`.

use serde_json::{Value, json};

use super::{
    ABORT, ABORTED, CREATE, DRAINING, ENABLE, PATIENCE, PUBLISH, QUARANTINED, SEAL, Target,
    VALIDATE, VALIDATING, WRITABLE, WRITE_FENCED, admits, refused,
};
use crate::acceptance::spoilt::{Ground, SPOILT, TRAFFIC, marker, namespace, row, store};
use crate::support::{Proxy, poll};

/// A state of a target, its revision there, and the commands that lead to it.
type Place = (&'static str, u64, &'static [&'static str]);

/// Every state that a target can stand in. The seal of the last one is never answered: the proxy
/// dies in it.
const PLACES: &[Place] = &[
    (QUARANTINED, 1, &[CREATE]),
    (VALIDATING, 3, &[CREATE, SEAL]),
    (VALIDATING, 4, &[CREATE, SEAL, VALIDATE]),
    (WRITE_FENCED, 5, &[CREATE, SEAL, VALIDATE, PUBLISH]),
    (WRITABLE, 6, &[CREATE, SEAL, VALIDATE, PUBLISH, ENABLE]),
    (ABORTED, 2, &[CREATE, ABORT]),
    (DRAINING, 2, &[CREATE, SEAL]),
];

/// One that stands in its place.
struct Stood {
    place: Place,
    db: String,
    target: Target,
    /// Each command that was sent to it.
    sent: Vec<Value>,
}

impl Stood {
    fn new(ground: &impl Ground, place: Place) -> Self {
        let db = ground.target();
        let target = Target::new(&namespace(&db));
        Self { place, db, target, sent: Vec::new() }
    }

    fn what(&self, how: &str) -> String {
        format!("{how}: a target in {} at revision {}", self.place.0, self.place.1)
    }

    /// Sends the next command of its way.
    fn goes_on(&mut self, proxy: &mut Proxy) {
        let (state, _, way) = self.place;
        let route = way[self.sent.len()];
        let body = self.target.step(route);
        if state == DRAINING && route == SEAL {
            let answer = proxy.try_admin("POST", &self.target.path(route), &body);
            assert!(answer.is_err(), "it must die in the seal: {answer:?}");
            let ended = poll(PATIENCE, || proxy.exit_code());
            assert_eq!(ended, Some(128 + 6), "an abort is what ends it");
        } else {
            self.target.applies(proxy, route, &body);
        }
        self.sent.push(body);
    }

    /// Its last command, with its route.
    fn last(&self) -> (&'static str, &Value) {
        let body = self.sent.last().expect("it has a creation");
        (self.place.2[self.sent.len() - 1], body)
    }

    fn abort(&self) -> Value {
        self.target.body(self.place.0, self.place.1, &Value::Null)
    }

    /// Nothing of it is open, whoever asks and whatever for, and everybody is told why.
    fn is_closed_for(&self, ground: &impl Ground, proxy: &Proxy, how: &str, detail: &str) {
        let what = self.what(how);
        let stored = row(proxy, &self.db);
        let seen = self.target.inspect(proxy);
        assert_eq!(seen["state"], "UNKNOWN_UNAVAILABLE", "{what}: {seen:#}");
        assert_eq!(seen["detail"], detail, "{what}: {seen:#}");
        assert!(seen["reason"].as_str().is_some_and(|r| !r.is_empty()), "{what}");
        for sql in TRAFFIC {
            let met = ground.refusal(proxy, &self.db, sql);
            assert_eq!(met, "ZF005", "VIOLATION: {what}: {sql}");
        }
        let unknown = "FENCE_STATE_UNAVAILABLE";
        let revision = self.place.1;
        for purpose in ["import", "validation"] {
            refused(&self.target.capability(proxy, purpose, revision), 423, unknown);
        }
        refused(&self.target.ask(proxy, revision, &["SELECT 1"]), 423, unknown);
        let answer = self.target.send(proxy, ABORT, &self.abort());
        assert_eq!(refused(&answer, 423, unknown)["detail"], detail, "{what}");
        assert_eq!(row(proxy, &self.db), stored, "{what}: what is stored was touched");
    }

    /// What its state lets clients do, and nothing else.
    fn is_as_it_was(&self, ground: &impl Ground, proxy: &Proxy, how: &str) {
        let what = self.what(how);
        let seen = self.target.inspect(proxy);
        let (state, revision, _) = self.place;
        assert_eq!(
            (&seen["state"], &seen["revision"]),
            (&json!(state), &json!(revision)),
            "{what}"
        );
        let (reads, writes) = admits(state);
        let read = ground.refusal(proxy, &self.db, "SELECT 1");
        assert_eq!(read.is_empty(), reads, "VIOLATION: {what}: a read got {read:?}");
        // Behind the fence it fails for want of the table, which is the engine's own word.
        let write = ground.refusal(proxy, &self.db, "INSERT INTO nowhere VALUES (1)");
        assert_eq!(!write.starts_with("ZF"), writes, "VIOLATION: {what}: a write got {write:?}");
    }

    /// Where only its creation is known, that is what is unfinished.
    fn detail(&self, proxy: &Proxy, detail: &'static str) -> &'static str {
        let gone = row(proxy, &self.db).is_empty();
        match detail {
            "metastore_behind_marker" if gone && self.place.1 == 1 => "incomplete_target_creation",
            detail => detail,
        }
    }
}

/// Restarts the proxy, to die in the seal that is the `seal`th from now.
fn armed(proxy: &mut Proxy, seal: u32) {
    proxy.kill9();
    let plan = format!("control.seal_import.before_drain@{seal}=abort");
    proxy.set_env(&[("FENCEWIRE_FAULT", &plan)]);
    proxy.restart();
}

/// One target in each place. The proxy is dead then.
fn stand(ground: &impl Ground, proxy: &mut Proxy) -> Vec<Stood> {
    let seals = PLACES.iter().filter(|(_, _, way)| way.contains(&SEAL)).count();
    armed(proxy, u32::try_from(seals).unwrap());
    let mut all: Vec<_> = PLACES.iter().map(|place| Stood::new(ground, *place)).collect();
    for one in &mut all {
        for _ in one.place.2 {
            one.goes_on(proxy);
        }
    }
    proxy.kill9();
    proxy.set_env(&[]);
    all
}

/// Every way to spoil it, with a target in each place.
pub fn a_target_that_cannot_be_believed_is_unavailable_and_says_why(ground: &impl Ground) {
    let mut proxy = ground.proxy();
    for (how, spoil, detail) in SPOILT {
        let all = stand(ground, &mut proxy);
        for one in &all {
            spoil(&proxy, &one.db);
        }
        proxy.restart();
        for one in &all {
            let detail = one.detail(&proxy, detail);
            one.is_closed_for(ground, &proxy, how, detail);
            if detail == "incomplete_target_creation" {
                // Its receipt is there, so it is told what was answered then, and nothing is done.
                let (_, answer) = one.target.send(&proxy, CREATE, &one.sent[0]);
                assert_eq!(answer["replayed"], true, "{how}: {answer:#}");
                one.is_closed_for(ground, &proxy, how, detail);
            }
        }
        // The others aren't concerned.
        let mut other = Stood::new(ground, PLACES[0]);
        other.goes_on(&mut proxy);
        other.is_as_it_was(ground, &proxy, how);
    }
}

/// The whole store is a copy of a step before, then is gone.
pub fn a_store_that_was_rolled_back_or_lost_opens_no_target(ground: &impl Ground) {
    let mut proxy = ground.proxy();
    let mut all: Vec<_> = PLACES.iter().map(|place| Stood::new(ground, *place)).collect();
    for one in &mut all {
        for _ in 1..one.place.2.len() {
            one.goes_on(&mut proxy);
        }
    }
    proxy.stop();
    // Whatever of it isn't in the first file yet belongs to the copy.
    let files = ["", "-wal", "-shm"].map(|end| proxy.state_dir().join(format!("fence.db{end}")));
    let old = files.each_ref().map(|file| std::fs::read(file).ok());
    proxy.restart();
    let last = |one: &Stood| one.place.2.last() == Some(&SEAL);
    armed(&mut proxy, u32::try_from(all.iter().filter(|one| last(one)).count()).unwrap());
    for one in &mut all {
        one.goes_on(&mut proxy);
    }
    proxy.set_env(&[]);
    for lost in [false, true] {
        proxy.kill9();
        for (file, old) in files.iter().zip(&old) {
            let _gone = std::fs::remove_file(file);
            if let Some(bytes) = old.as_ref().filter(|_| !lost) {
                std::fs::write(file, bytes).unwrap();
            }
        }
        if !lost {
            let sql = "SELECT count(*) FROM namespace_fences";
            let copied = store(&proxy).query_row(sql, [], |row| row.get::<_, u32>(0));
            assert_eq!(
                copied,
                Ok(u32::try_from(all.len()).unwrap() - 1),
                "the copy isn't that of a step before"
            );
        }
        proxy.restart();
        let how = if lost { "lost" } else { "rolled back" };
        for one in &all {
            let detail = one.detail(&proxy, "metastore_behind_marker");
            one.is_closed_for(ground, &proxy, how, detail);
            let seen = one.target.inspect(&proxy);
            assert_eq!(seen["marker_record"]["state"], one.place.0, "{how}: {seen:#}");
            if detail == "metastore_behind_marker" {
                // Not even who sent it: its receipt is lost, or of a time that has passed.
                let (route, body) = one.last();
                refused(&one.target.send(&proxy, route, body), 423, "FENCE_STATE_UNAVAILABLE");
            } else if lost {
                // The very creation is the one thing that ends this, and it opens nothing.
                let fence = one.target.applies(&proxy, CREATE, &one.sent[0]);
                assert_eq!(fence["revision"], 1, "{fence:#}");
                one.is_as_it_was(ground, &proxy, how);
            }
        }
    }
    what_no_marker_tells_of_is_open(ground, &mut proxy, &all);
}

/// Control arm, and a limit that is told: where the markers are lost with the store nothing knows
/// of the target, and its name is as open as any other.
fn what_no_marker_tells_of_is_open(ground: &impl Ground, proxy: &mut Proxy, all: &[Stood]) {
    proxy.kill9();
    for end in ["", "-wal", "-shm"] {
        let _gone = std::fs::remove_file(proxy.state_dir().join(format!("fence.db{end}")));
    }
    for one in all {
        std::fs::remove_file(marker(proxy, &one.db)).unwrap();
    }
    proxy.restart();
    for one in all {
        assert_eq!(one.target.inspect(proxy)["state"], "UNFENCED", "{}", one.what("no marker"));
        assert_eq!(ground.refusal(proxy, &one.db, "SELECT 1"), "", "{}", one.what("no marker"));
    }
}

/// The record is the truth, and its marker is mended by it.
pub fn a_marker_that_lags_or_cannot_be_read_is_written_anew(ground: &impl Ground) {
    let mut proxy = ground.proxy();
    let all = stand(ground, &mut proxy);
    let read = |proxy: &Proxy, one: &Stood| std::fs::read(marker(proxy, &one.db)).unwrap();
    let good: Vec<_> = all.iter().map(|one| read(&proxy, one)).collect();
    for spoilt in [None, Some(&b"nonsense"[..])] {
        for one in &all {
            match spoilt {
                None => std::fs::remove_file(marker(&proxy, &one.db)).unwrap(),
                Some(bytes) => std::fs::write(marker(&proxy, &one.db), bytes).unwrap(),
            }
        }
        proxy.restart();
        for (one, good) in all.iter().zip(&good) {
            one.is_as_it_was(ground, &proxy, "a marker");
            assert_eq!(&read(&proxy, one), good, "{}: not written anew", one.what("a marker"));
        }
        proxy.kill9();
    }
}

/// A command whose receipt is spoilt is never carried out a second time.
pub fn a_receipt_that_cannot_be_read_is_never_taken_for_none(ground: &impl Ground) {
    let mut proxy = ground.proxy();
    let all = stand(ground, &mut proxy);
    for one in &all {
        let sql = "UPDATE namespace_fence_receipts SET receipt = x'00' WHERE namespace = ?1";
        let spoilt = store(&proxy).execute(sql, [namespace(&one.db)]).unwrap();
        assert_eq!(spoilt, one.sent.len());
    }
    proxy.restart();
    for one in &all {
        let how = "a receipt";
        let what = one.what(how);
        for (route, body) in one.place.2.iter().zip(&one.sent) {
            let answer = one.target.send(&proxy, route, body);
            let refusal = refused(&answer, 423, "FENCE_STATE_UNAVAILABLE");
            assert_eq!(refusal["detail"], "corrupt_record", "{what}: {route}");
        }
        one.is_as_it_was(ground, &proxy, how);
        let seen = proxy.inspect(&one.target.namespace);
        assert!(seen["receipts_error"].to_string().contains("corrupt_record"), "{seen:#}");
        // Another command of the owner isn't hindered.
        if ![WRITABLE, ABORTED].contains(&one.place.0) {
            let fence = one.target.applies(&proxy, ABORT, &one.abort());
            assert_eq!(fence["state"], ABORTED, "{what}");
        }
    }
}
