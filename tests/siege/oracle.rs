//! What the engine itself says has changed.
//!
//! Purpose: a snapshot by a superuser around the proxy, and the difference of two: every
//! transaction that committed anything, sequences (which no transaction takes back), rows, objects.
//! Two snapshots behind the same acknowledged fence must not differ.
//!
//! Who uses it: `siege/mod.rs`. It knows nothing of sessions but that their names are in what they
//! change.

use std::collections::BTreeSet;

use crate::acceptance::{PATIENCE, Site};
use crate::support::poll;

/// What there is, each line by itself.
pub struct Snapshot {
    lines: BTreeSet<String>,
    /// `pg_current_snapshot()`.
    xids: String,
}

/// Each of these names whoever made it, where it can.
const LOOK: &str = "
SELECT 'snapshot ' || pg_current_snapshot()
UNION ALL SELECT 'clock ' || clock_timestamp()
UNION ALL SELECT 'sequence ' || sequencename || ' at ' || last_value FROM pg_sequences
    WHERE last_value IS NOT NULL
UNION ALL SELECT 'relation ' || relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
UNION ALL SELECT 'relations ' || count(*) FROM pg_class
UNION ALL SELECT 'functions ' || count(*) FROM pg_proc
UNION ALL SELECT 'settings ' || count(*) FROM pg_db_role_setting
UNION ALL SELECT 'objects ' || count(*) FROM pg_largeobject_metadata
UNION ALL SELECT 'rows of ' || who || ': ' || count(*) FROM t GROUP BY who";

impl Snapshot {
    pub fn take(site: &Site<'_>) -> (Self, String) {
        let all = ask(site, LOOK);
        let (mut lines, mut xids, mut clock) = (BTreeSet::new(), String::new(), String::new());
        for line in all.lines() {
            match line.split_once(' ') {
                Some(("snapshot", rest)) => xids = rest.to_owned(),
                Some(("clock", rest)) => clock = rest.to_owned(),
                _ => drop(lines.insert(line.to_owned())),
            }
        }
        (Self { lines, xids }, clock)
    }

    /// What is there in `later` that isn't here, and the other way round; each transaction that
    /// committed in between with a number of its own.
    pub fn differences(&self, later: &Self, site: &Site<'_>) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        all.extend(later.lines.difference(&self.lines).map(|line| format!("+ {line}")));
        all.extend(self.lines.difference(&later.lines).map(|line| format!("- {line}")));
        let (from, to) = (first(&self.xids), second(&later.xids));
        let committed = ask(
            site,
            &format!(
                "SELECT x FROM generate_series({from}, {to}::bigint - 1) x
             WHERE NOT pg_visible_in_snapshot(x::text::xid8, '{}'::pg_snapshot)
               AND pg_xact_status(x::text::xid8) = 'committed'",
                self.xids
            ),
        );
        all.extend(committed.lines().map(|xid| format!("+ transaction {xid} committed")));
        all
    }
}

/// As superuser, and again while an engine that has crashed comes back.
pub fn ask(site: &Site<'_>, sql: &str) -> String {
    let mut last = String::new();
    let told =
        poll(PATIENCE, || site.cluster.try_sql(&site.db, sql).map_err(|error| last = error).ok());
    told.unwrap_or_else(|| panic!("no answer to {sql}: {last}"))
}

fn first(snapshot: &str) -> &str {
    snapshot.split(':').next().unwrap()
}

fn second(snapshot: &str) -> &str {
    snapshot.split(':').nth(1).unwrap()
}

/// The session that a difference names: `w` and two digits.
pub fn culprit(differences: &[String]) -> Option<String> {
    let word = |line: &String| {
        let mut words = line.split(|c: char| !c.is_ascii_alphanumeric());
        words
            .find(|word| {
                word.len() == 3 && word.starts_with('w') && word[1..].parse::<u8>().is_ok()
            })
            .map(str::to_owned)
    };
    differences.iter().find_map(word)
}
