//! More ways to begin, and ways that lead nowhere.

use super::{Case, Talk};

/// A minor version and startup parameters beyond the usual two; with `user` or `database` among
/// them, in the place of those. `DB` is the database.
type Start = (&'static str, u32, &'static [(&'static str, &'static str)]);

const STARTS: &[Start] = &[
    ("3.1", 1, &[]),
    ("3.2 with an unknown option", 2, &[("_pq_.something", "x")]),
    ("3.2 with settings", 2, &[("application_name", "two"), ("TimeZone", "UTC")]),
    ("3.3", 3, &[]),
    ("3.65535", 65_535, &[]),
    ("an unknown option without a value", 0, &[("_pq_.", "")]),
    ("the same setting twice", 0, &[("application_name", "a"), ("application_name", "b")]),
    ("the database twice", 0, &[("user", "wire"), ("database", "none"), ("database", "DB")]),
    ("an empty database", 0, &[("user", "wire"), ("database", "")]),
    ("no user", 0, &[("database", "DB")]),
    ("an empty user", 0, &[("user", ""), ("database", "DB")]),
    ("a bad value", 0, &[("DateStyle", "nonsense")]),
    ("a setting of superusers", 0, &[("session_replication_role", "replica")]),
    ("a setting of the server", 0, &[("shared_buffers", "1MB")]),
    ("options that can't be read", 0, &[("options", "-c")]),
    ("options with an unknown setting", 0, &[("options", "-c no.such=1 -c nosuch=1")]),
    ("options with blanks", 0, &[("options", "-c application_name=a\\ b\\\\c")]),
    ("an unknown encoding", 0, &[("client_encoding", "KLINGON")]),
    ("an encoding", 0, &[("client_encoding", "sjis")]),
    ("replication off", 0, &[("replication", "off")]),
    ("replication OFF", 0, &[("replication", "OFF")]),
    ("replication f", 0, &[("replication", "f")]),
    ("replication no", 0, &[("replication", "n")]),
    ("replication maybe", 0, &[("replication", "maybe")]),
    ("replication empty", 0, &[("replication", "")]),
    ("replication database, then true", 0, &[("replication", "database"), ("replication", "1")]),
    ("replication true, then false", 0, &[("replication", "true"), ("replication", "false")]),
];

fn start(talk: &mut Talk, minor: u32, parameters: &[(&str, &str)]) {
    let db = talk.db.clone();
    let named = |value: &str| if value == "DB" { db.clone() } else { value.to_owned() };
    let owned: Vec<_> = parameters.iter().map(|(name, value)| (*name, named(value))).collect();
    let parameters: Vec<_> = owned.iter().map(|(name, value)| (*name, value.as_str())).collect();
    talk.login((3 << 16) | minor, &parameters);
    if talk.is_open() {
        talk.ask(&["SELECT 1", "SHOW application_name", "SHOW DateStyle", "SELEC"]);
    }
}

pub(super) fn cases() -> Vec<Case> {
    let cases = STARTS.iter().map(|(name, minor, parameters)| {
        Case::new(format!("start: {name}"), |talk: &mut Talk| start(talk, *minor, parameters))
    });
    cases.collect()
}
