//! The demo's verdicts: pure functions over what was recorded.
//!
//! Purpose: each check takes histories, table content, times or decoded log rows, and says what it
//! counted and what contradicts the promise. A check over nothing fails: a promise that was never
//! tried isn't kept. The tests feed violations to each of them and expect a report.
//!
//! Called by `play.rs`. No I/O and no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::history::{Attempt, End, History};

/// SQLSTATE of a write at a closed gate.
pub(super) const WRITE_FENCED: &str = "ZF001";
/// SQLSTATE of a write in a transaction that began before the gate last moved.
const STALE: &str = "ZF002";
/// Violations of one check that are spelt out; further ones are counted.
const NAMED_MAX: usize = 3;

/// One promise, tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Check {
    /// What was promised.
    pub(super) promise: &'static str,
    /// What was counted.
    pub(super) figure: String,
    /// What contradicts it; empty when it was kept.
    pub(super) violations: Vec<String>,
}

impl Check {
    fn new(promise: &'static str, figure: String, violations: Vec<String>) -> Self {
        let more = violations.len().saturating_sub(NAMED_MAX);
        let mut named: Vec<String> = violations.into_iter().take(NAMED_MAX).collect();
        if more > 0 {
            named.push(format!("and {more} more like these"));
        }
        Self { promise, figure, violations: named }
    }

    pub(super) fn kept(&self) -> bool {
        self.violations.is_empty()
    }
}

/// When what was asked and answered, since the demo's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    /// The acquire command was sent.
    pub(super) asked: Duration,
    /// It was answered APPLIED.
    pub(super) fenced: Duration,
    /// The release command was sent; later than anything, while it wasn't.
    pub(super) releasing: Duration,
    /// It was answered APPLIED.
    pub(super) released: Duration,
}

impl Window {
    /// A fence that stands and isn't being released.
    pub(super) const fn standing(asked: Duration, fenced: Duration) -> Self {
        Self { asked, fenced, releasing: Duration::MAX, released: Duration::MAX }
    }

    /// Whether the whole attempt fell into the time of the standing fence.
    pub(super) fn holds(&self, began: Duration, ended: Duration) -> bool {
        began >= self.fenced && ended <= self.releasing
    }

    /// What this end means at this time, if it breaks the promise.
    fn objection(&self, attempt: &Attempt) -> Option<String> {
        let within = self.holds(attempt.began, attempt.ended);
        let committed_within = attempt
            .committing
            .is_some_and(|at| at >= self.fenced && attempt.ended <= self.releasing);
        let touches = attempt.ended >= self.asked && attempt.began <= self.released;
        let who = || format!("client {}, transfer {}", attempt.client, attempt.transfer);
        match &attempt.end {
            End::Acknowledged if within || committed_within => {
                Some(format!("{}: acknowledged while the fence stood", who()))
            }
            End::Acknowledged => None,
            End::Refused(code) if code == WRITE_FENCED && touches => None,
            // It began behind the closed gate and tried to write at the opened one.
            End::Refused(code)
                if code == STALE && touches && !within && attempt.ended >= self.releasing =>
            {
                None
            }
            End::Refused(code) => Some(format!("{}: refused with {code}", who())),
            End::Lost(how) => Some(format!("{}: {how}", who())),
        }
    }
}

/// Every write at the closed gate was refused with ZF001; nothing else ever went wrong.
pub(super) fn writes_refused(history: &History, window: &Window, clients: usize) -> Check {
    let within = |a: &Attempt| window.holds(a.began, a.ended);
    let refused = |a: &Attempt| a.end == End::Refused(WRITE_FENCED.to_owned());
    let tried = history.attempts.iter().filter(|a| within(a)).count();
    let count = history.attempts.iter().filter(|a| within(a) && refused(a)).count();
    let who = history.clients_with(clients, |a| within(a) && refused(a));
    // The worst first: only some are named.
    let (worst, others): (Vec<&Attempt>, Vec<&Attempt>) =
        history.attempts.iter().partition(|attempt| attempt.end == End::Acknowledged);
    let mut violations: Vec<String> =
        worst.into_iter().chain(others).filter_map(|attempt| window.objection(attempt)).collect();
    if who < clients {
        violations.push(format!("{} clients were never refused while it stood", clients - who));
    }
    let figure = format!("{count} of {tried} writes, {who} of {clients} clients");
    Check::new("a write gets ZF001 and nothing else", figure, violations)
}

/// Reads went on under the fence, none failed, and each saw the same total.
pub(super) fn reads_go_on(history: &History, window: &Window, total: i64) -> Check {
    let objection = |outcome: &Result<i64, String>| match outcome {
        Ok(sum) if *sum == total => None,
        Ok(sum) => Some(format!("a read found {sum} in all, not {total}")),
        Err(error) => Some(format!("a read failed: {error}")),
    };
    let mut violations: Vec<String> =
        history.reads.iter().filter_map(|read| objection(&read.outcome)).collect();
    let within = history.reads.iter().filter(|r| window.holds(r.began, r.ended)).count();
    if within == 0 {
        violations.push("no read was answered while the fence stood".to_owned());
    }
    let figure = format!("{within} reads under the fence, {} in all", history.reads.len());
    Check::new("reads go on, each sees the same total", figure, violations)
}

/// The acknowledgement of the fence came after the slow writer's own.
pub(super) fn drain_waited(slow: &Attempt, window: &Window) -> Check {
    let violation = match &slow.end {
        End::Acknowledged if slow.ended <= window.fenced && slow.began < window.asked => None,
        End::Acknowledged => Some("the fence was acknowledged before the open writer".to_owned()),
        End::Refused(code) => Some(format!("the open writer was refused with {code}")),
        End::Lost(how) => Some(format!("the open writer's outcome isn't known: {how}")),
    };
    let waited = slow.committing.unwrap_or(slow.ended).saturating_sub(window.asked);
    let figure = format!("{:.1} s for a transaction that was open", waited.as_secs_f64());
    Check::new("the drain waits for every earlier writer", figure, violation.into_iter().collect())
}

/// The table holds what was acknowledged, nothing that was refused, and nothing nobody wrote.
pub(super) fn table_agrees(
    promise: &'static str,
    history: &History,
    others: &BTreeSet<i64>,
    table: &BTreeSet<i64>,
) -> Check {
    let (mut acknowledged, mut refused, mut unsure) =
        (others.clone(), BTreeSet::new(), BTreeSet::new());
    for attempt in &history.attempts {
        let set = match &attempt.end {
            End::Acknowledged => &mut acknowledged,
            End::Lost(_) if attempt.committing.is_some() => &mut unsure,
            End::Refused(_) | End::Lost(_) => &mut refused,
        };
        set.insert(attempt.transfer);
    }
    let mut violations = Vec::new();
    for transfer in acknowledged.difference(table) {
        violations.push(format!("transfer {transfer} was acknowledged and is missing"));
    }
    for transfer in refused.intersection(table) {
        violations.push(format!("transfer {transfer} was refused and is in the table"));
    }
    for transfer in table {
        let known = [&acknowledged, &refused, &unsure].iter().any(|set| set.contains(transfer));
        if !known {
            violations.push(format!("transfer {transfer} is in the table, acknowledged to nobody"));
        }
    }
    if acknowledged.is_empty() {
        violations.push("nothing was ever acknowledged".to_owned());
    }
    let figure = format!(
        "{} there, {} refused and not there",
        acknowledged.intersection(table).count(),
        refused.difference(table).count()
    );
    Check::new(promise, figure, violations)
}

/// The engine's own sum of balances.
pub(super) fn sum_conserved(sums: &[i64], total: i64) -> Check {
    let mut violations: Vec<String> = sums
        .iter()
        .filter(|sum| **sum != total)
        .map(|sum| format!("the balances add up to {sum}, not to {total}"))
        .collect();
    if sums.is_empty() {
        violations.push("the balances were never added up".to_owned());
    }
    Check::new("no money is made or lost", format!("{total} before and after"), violations)
}

/// What a direct session's INSERT came to: nothing, or its code.
pub(super) type Direct = Result<(), String>;

/// Around the proxy, the engine itself stops writers while the fence stands, and only then.
/// `lock_code` is the engine's code for a lock that couldn't be had in time.
pub(super) fn direct_writes(fenced: &Direct, released: &Direct, lock_code: &str) -> Check {
    let mut violations = Vec::new();
    match fenced {
        Err(code) if code == lock_code => {}
        Err(code) => violations.push(format!("under the fence it failed with {code}")),
        Ok(()) => violations.push("under the fence, a direct INSERT succeeded".to_owned()),
    }
    if let Err(code) = released {
        violations.push(format!("after the release it still fails with {code}"));
    }
    let figure = match fenced {
        Ok(()) => "written under the fence".to_owned(),
        Err(code) => format!("waits in the engine, {code}; then written"),
    };
    Check::new("a writer around the proxy waits as well", figure, violations)
}

/// One row of decoded log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogRow {
    /// Its position; for a COMMIT, the end of its record.
    pub(super) lsn: u64,
    /// Its transaction.
    pub(super) xid: String,
    /// What `test_decoding` says.
    pub(super) data: String,
}

/// Row changes on either side of a boundary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Of transactions whose COMMIT ends at or before it.
    pub(super) before: usize,
    /// Of transactions whose COMMIT ends after it.
    pub(super) after: usize,
    /// Whether the boundary's own marker was read, or, where it has none, its last transaction.
    pub(super) marker: bool,
}

/// Counts row changes by the position of their transaction's COMMIT. `marker` is a text that only
/// the boundary's marker holds.
pub(super) fn changes_around(rows: &[LogRow], boundary: u64, marker: &str) -> Changes {
    let mut open: BTreeMap<&str, usize> = BTreeMap::new();
    let mut changes = Changes::default();
    for row in rows {
        if row.data.starts_with("COMMIT") {
            let count = open.remove(row.xid.as_str()).unwrap_or(0);
            if row.lsn > boundary {
                changes.after += count;
            } else {
                changes.before += count;
            }
        } else if row.data.starts_with("table ") {
            *open.entry(row.xid.as_str()).or_default() += 1;
        } else if row.data.starts_with("message:") && row.data.contains(marker) {
            changes.marker = true;
        }
    }
    changes
}

/// The engine's log has no change after the boundary while the fence stands; the same reading of
/// it finds changes before the boundary, and after it once the fence is gone.
pub(super) fn log_ends_at_boundary(fenced: Changes, released: Changes) -> Check {
    let mut violations = Vec::new();
    if fenced.after > 0 {
        violations.push(format!("{} row changes were committed after the boundary", fenced.after));
    }
    if !fenced.marker {
        violations.push("decoding did not reach the boundary's marker".to_owned());
    }
    if fenced.before == 0 {
        violations.push("decoding found no change at all before the boundary".to_owned());
    }
    if released.after == 0 {
        violations.push("after the release the same decoding finds no change either".to_owned());
    }
    let figure = format!(
        "{} before, {} after; {} once released",
        fenced.before, fenced.after, released.after
    );
    Check::new("nothing is committed after the boundary", figure, violations)
}

/// Every client's transfers are acknowledged again.
pub(super) fn traffic_resumes(history: &History, window: &Window, clients: usize) -> Check {
    let again = |a: &Attempt| a.began >= window.released && a.end == End::Acknowledged;
    let count = history.attempts.iter().filter(|a| again(a)).count();
    let who = history.clients_with(clients, again);
    let mut violations = Vec::new();
    if who < clients {
        violations.push(format!("{} clients had nothing acknowledged any more", clients - who));
    }
    let figure = format!("{count} transfers, {who} of {clients} clients");
    Check::new("after the release traffic flows again", figure, violations)
}

#[cfg(test)]
mod tests;
