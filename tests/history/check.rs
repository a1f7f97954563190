//! The verdict: histories, table, log and fences must agree.
//!
//! Purpose: pure functions over what was recorded; each rule says what it counted and names what
//! contradicts it. `history_pg.rs` feeds violations of each rule to it and expects a report. It
//! is the same for every engine: a [`LogRow`] is what all logs have.
//!
//! The rules: nothing acknowledged is lost; nothing refused is there; what was lost without having
//! been committed isn't there, and what was lost while committing is there whole or not at all;
//! nothing is there that nobody wrote, or twice; nothing is acknowledged that began behind a closed
//! gate, or that began to commit behind an acknowledged fence, before the release; a transaction
//! of before a fence that first wrote behind it isn't acknowledged, ever; no change has its commit
//! between a fence's boundary and its release; what was acknowledged before the fence was lies
//! before the boundary; refusals are of known kinds and only around a fence; a read is answered,
//! but one that was sent before the gate was closed may be ended by force, not before its deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Attempt, End, Fence};

/// How long behind the release of a fence that still drained somebody may wait for the lock that
/// was being taken for it (CONTRACT, sessions around the proxy), or learn that force ended him.
const LINGERS: Duration = Duration::from_secs(1);

/// Most violations that a report names.
const NAMED_MAX: usize = 20;

/// What a row of the log says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A row with this number.
    Insert(i64),
    Commit,
}

/// One row of the decoded log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRow {
    /// Its position, in the engine's own terms: of PostgreSQL's COMMIT the end of its record, of
    /// MySQL the number of the transaction's GTID.
    pub lsn: u64,
    /// What the changes of one transaction and its commit have in common.
    pub xid: String,
    pub change: Change,
}

/// What was counted, and what contradicts the promises.
#[derive(Debug, Default)]
pub struct Report {
    pub violations: Vec<String>,
    /// What didn't come about in time; filled by the caller.
    pub late: Vec<String>,
    pub acknowledged: usize,
    pub refused: BTreeMap<String, usize>,
    pub lost: usize,
    pub fenced: usize,
    /// Rows whose commit is in the log.
    pub logged: usize,
}

impl Report {
    /// One line about the whole.
    pub fn figures(&self) -> String {
        format!(
            "{} fences proven, {} attempts acknowledged, {} lost, refused {:?}, {} rows logged",
            self.fenced, self.acknowledged, self.lost, self.refused, self.logged
        )
    }

    /// The first violations as text.
    pub fn named(&self) -> String {
        let named: Vec<&str> = self.violations.iter().take(NAMED_MAX).map(String::as_str).collect();
        format!("{} violations:\n{}", self.violations.len(), named.join("\n"))
    }
}

/// SQLSTATEs (of MySQL's own errors: numbers) that a refused write may have, and whether only
/// around a fence.
const KNOWN: &[(&str, bool)] = &[
    ("ZF001", true),
    ("ZF002", true),
    ("ZF008", true),
    ("ZF009", true),
    ("ZF010", true),
    // The engine's own: a direct session that waits for the engine lock.
    ("55P03", true),
    ("1205", true),
    // The client's own: a savepoint, or an XA branch, rolled back.
    ("undone", false),
];

/// The kind of an attempt that reads: it has no rows, and is noted only where it failed.
pub const READ: &str = "read";

/// Checks everything.
pub fn check(attempts: &[Attempt], fences: &[Fence], table: &[i64], log: &[LogRow]) -> Report {
    let mut report = Report {
        fenced: fences.iter().filter(|f| f.fenced.is_some()).count(),
        ..Report::default()
    };
    let commits = commits(log);
    report.logged = commits.len();
    contents(attempts, table, &mut report);
    for id in table.iter().filter(|id| !commits.contains_key(id)) {
        report.violations.push(format!("row {id} is in the table and not in the log"));
    }
    let there: BTreeSet<i64> = table.iter().copied().collect();
    for id in commits.keys().filter(|id| !there.contains(id)) {
        report.violations.push(format!("row {id} is in the log and not in the table"));
    }
    for attempt in attempts {
        times(attempt, fences, &mut report.violations);
        kind(attempt, fences, &mut report.violations);
        let of: BTreeSet<Option<u64>> =
            attempt.ids.iter().map(|id| commits.get(id).copied()).collect();
        if of.len() > 1 {
            report.violations.push(format!("not one transaction: {}", words(attempt)));
        }
    }
    boundaries(attempts, fences, &commits, &mut report.violations);
    report
}

fn words(attempt: &Attempt) -> String {
    let Attempt { client, kind, ids, begun, wrote, committing, ended, end, .. } = attempt;
    format!(
        "{client} {kind} rows {ids:?}, begun {begun:?}, wrote {wrote:?}, \
         committing {committing:?}, ended {ended:?}: {end:?}"
    )
}

/// The log's rows with the position at which each was committed.
fn commits(log: &[LogRow]) -> BTreeMap<i64, u64> {
    let mut open: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    let mut commits = BTreeMap::new();
    for row in log {
        match row.change {
            Change::Insert(id) => open.entry(&row.xid).or_default().push(id),
            Change::Commit => {
                let ids = open.remove(row.xid.as_str()).unwrap_or_default();
                commits.extend(ids.into_iter().map(|id| (id, row.lsn)));
            }
        }
    }
    commits
}

/// Table against histories.
fn contents(attempts: &[Attempt], table: &[i64], report: &mut Report) {
    let there: BTreeSet<i64> = table.iter().copied().collect();
    let violations = &mut report.violations;
    for twice in table.windows(2).filter(|pair| pair[0] == pair[1]) {
        violations.push(format!("row {} is there twice", twice[0]));
    }
    let mut known = BTreeSet::new();
    for attempt in attempts {
        known.extend(attempt.ids.iter().copied());
        let found = attempt.ids.iter().filter(|id| there.contains(id)).count();
        let whole = found == attempt.ids.len();
        match &attempt.end {
            End::Acknowledged => {
                report.acknowledged += 1;
                if !whole {
                    violations.push(format!("acknowledged and missing: {}", words(attempt)));
                }
            }
            End::Refused(code) => {
                *report.refused.entry(code.clone()).or_default() += 1;
                if found > 0 {
                    violations.push(format!("refused and there: {}", words(attempt)));
                }
            }
            End::Lost(_) => {
                report.lost += 1;
                if found > 0 && (attempt.committing.is_none() || !whole) {
                    violations.push(format!("lost and there: {}", words(attempt)));
                }
            }
        }
    }
    for id in there.difference(&known) {
        violations.push(format!("row {id} is there and nobody wrote it"));
    }
}

/// Acknowledgements against the times of fences.
fn times(attempt: &Attempt, fences: &[Fence], violations: &mut Vec<String>) {
    if attempt.end != End::Acknowledged {
        return;
    }
    for fence in fences {
        let within = |from: Option<Duration>, at: Duration| {
            from.is_some_and(|from| at >= from) && attempt.ended <= fence.releasing
        };
        if within(fence.closed, attempt.begun) && attempt.kind != "direct" {
            violations.push(format!("begun behind a closed gate: {}", words(attempt)));
        }
        if attempt.committing.is_some_and(|at| within(fence.fenced, at)) {
            violations.push(format!("committed behind a fence: {}", words(attempt)));
        }
        let older = attempt.open.is_some_and(|at| at < fence.asked);
        if older && fence.closed.is_some_and(|at| attempt.wrote >= at) {
            violations.push(format!("an older transaction became a writer: {}", words(attempt)));
        }
    }
}

/// Refusals: of a known kind, and near a fence where they speak of one.
fn kind(attempt: &Attempt, fences: &[Fence], violations: &mut Vec<String>) {
    if attempt.kind == READ {
        return read(attempt, fences, violations);
    }
    let End::Refused(code) = &attempt.end else { return };
    // A release doesn't wait until the engine has ended an attempt at its lock that was under way.
    let lingers = if code == "55P03" { LINGERS } else { Duration::ZERO };
    let near =
        |fence: &Fence| attempt.begun <= fence.released + lingers && attempt.ended >= fence.asked;
    match KNOWN.iter().find(|(known, _)| known == code) {
        None => violations.push(format!("an unknown refusal: {}", words(attempt))),
        Some((_, true)) if !fences.iter().any(near) => {
            violations.push(format!("refused without a fence: {}", words(attempt)));
        }
        Some(_) => {}
    }
}

/// A read that failed. One that was admitted before the gate was closed runs without a guard and
/// might write, through a function: force ends it as it ends writers.
fn read(attempt: &Attempt, fences: &[Fence], violations: &mut Vec<String>) {
    let forced = |fence: &Fence| {
        let older = attempt.begun <= fence.closed.unwrap_or(fence.released);
        let due = |after| attempt.ended >= fence.asked + after;
        older && fence.forces.is_some_and(due) && attempt.ended <= fence.released + LINGERS
    };
    if attempt.end != End::Refused("ZF009".to_owned()) || !fences.iter().any(forced) {
        violations.push(format!("a read failed: {}", words(attempt)));
    }
}

/// The log against boundaries.
fn boundaries(
    attempts: &[Attempt],
    fences: &[Fence],
    commits: &BTreeMap<i64, u64>,
    violations: &mut Vec<String>,
) {
    for fence in fences {
        let Some(boundary) = fence.boundary else { continue };
        for (id, at) in commits.iter().filter(|(_, at)| **at > boundary && **at <= fence.log_end) {
            violations.push(format!(
                "row {id} was committed at {at:X}, behind the boundary {boundary:X} and before the \
                 release at {:X} ({})",
                fence.log_end, fence.plan
            ));
        }
        let Some(fenced) = fence.fenced else { continue };
        let before = |a: &&Attempt| a.end == End::Acknowledged && a.ended <= fenced;
        for attempt in attempts.iter().filter(before) {
            if attempt.ids.iter().any(|id| commits.get(id).is_some_and(|at| *at > boundary)) {
                violations.push(format!(
                    "acknowledged before the fence, committed behind its boundary: {}",
                    words(attempt)
                ));
            }
        }
    }
}
