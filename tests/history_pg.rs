//! Random fences under load: table, log and histories must agree (proof.md section 7).
//!
//! `FENCEWIRE_HISTORY_SEED` replays a seed that a failure printed (dice and plans are the same; the
//! machine's own timing isn't). `FENCEWIRE_SOAK_CYCLES` runs that many fence cycles (`make soak`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod acceptance;
mod history;
mod support;

use std::time::Duration;

use acceptance::{Site, metric};
use history::check::{Change, LogRow, READ, check};
use history::lane::{self, Plan};
use history::{Attempt, End, Fence};
use support::{Options, PgCluster, Proxy};

const PLAN: Plan = Plan { lanes: 4, lane_cycles: 50, holds: true };

#[test]
fn histories_table_log_and_boundaries_agree() {
    let cluster = PgCluster::start(Options::default());
    let proxy = Proxy::start(&cluster);
    lane::play(|| Site::new(&cluster, &proxy), PLAN);
    let held = |outcome: &str| {
        metric(&proxy, &format!("fencewire_held_ended_total{{outcome=\"{outcome}\"}} "))
    };
    let ended = ["admitted", "expired", "refused", "gone"].map(|outcome| (outcome, held(outcome)));
    println!("held: {ended:?}");
    assert!(held("admitted") > 10, "hardly anything that was held was released: {ended:?}");
    let log = std::fs::read_to_string(proxy.log_file()).unwrap();
    assert!(!log.contains("panicked"), "{}", proxy.log_tail());
}

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Asked at 100, closed at 110, fenced at 120 with boundary 1000, released from 200 to 210.
fn fence() -> Fence {
    Fence {
        asked: at(100),
        closed: Some(at(110)),
        fenced: Some(at(120)),
        boundary: Some(1000),
        log_end: 2000,
        releasing: at(200),
        released: at(210),
        forces: None,
        plan: "planted".to_owned(),
    }
}

/// An attempt to write row 1 from `begun` to `ended`, in one exchange.
fn attempt(begun: u64, ended: u64, end: End) -> Attempt {
    Attempt {
        client: "c".to_owned(),
        kind: "autocommit",
        ids: vec![1],
        begun: at(begun),
        open: None,
        wrote: at(begun),
        committing: Some(at(begun)),
        ended: at(ended),
        end,
    }
}

fn logged(id: i64, lsn: u64) -> Vec<LogRow> {
    let row = |lsn, change| LogRow { lsn, xid: id.to_string(), change };
    vec![row(lsn - 5, Change::Insert(id)), row(lsn, Change::Commit)]
}

fn refused(code: &str) -> End {
    End::Refused(code.to_owned())
}

/// A case: the attempt, the table, the log, and what must be reported (nothing when empty).
type Case = (Attempt, Vec<i64>, Vec<LogRow>, &'static str);

#[test]
fn the_checker_reports_each_kind_of_violation_and_nothing_else() {
    let stale =
        Attempt { open: Some(at(55)), wrote: at(205), ..attempt(50, 220, End::Acknowledged) };
    let slow = Attempt { committing: Some(at(130)), ..attempt(50, 140, End::Acknowledged) };
    let lost = Attempt { committing: None, ..attempt(50, 60, End::Lost("closed".into())) };
    let pair = Attempt { ids: vec![1, 2], ..attempt(50, 60, End::Lost("closed".into())) };
    let split = [logged(1, 500), logged(2, 600)].concat();
    let both = Attempt { ids: vec![1, 2], ..attempt(50, 60, End::Acknowledged) };
    let cases: Vec<Case> = vec![
        (attempt(50, 60, End::Acknowledged), vec![1], logged(1, 500), ""),
        (attempt(205, 220, End::Acknowledged), vec![1], logged(1, 2500), ""),
        (attempt(130, 140, refused("ZF001")), vec![], vec![], ""),
        (attempt(50, 60, End::Lost("08007".into())), vec![1], logged(1, 500), ""),
        (attempt(50, 60, End::Lost("08007".into())), vec![], vec![], ""),
        (attempt(50, 60, End::Acknowledged), vec![], vec![], "acknowledged and missing"),
        (attempt(130, 140, refused("ZF001")), vec![1], logged(1, 500), "refused and there"),
        (attempt(130, 240, refused("ZF009")), vec![1], logged(1, 2500), "refused and there"),
        (attempt(50, 60, refused("ZF001")), vec![], vec![], "refused without a fence"),
        (attempt(130, 140, refused("25006")), vec![], vec![], "an unknown refusal"),
        (lost, vec![1], logged(1, 500), "lost and there"),
        (pair, vec![1], logged(1, 500), "lost and there"),
        (attempt(50, 60, End::Acknowledged), vec![1, 1], logged(1, 500), "is there twice"),
        (attempt(50, 60, End::Acknowledged), vec![1, 3], logged(1, 500), "nobody wrote it"),
        (attempt(50, 60, End::Acknowledged), vec![1], vec![], "not in the log"),
        (attempt(50, 60, End::Acknowledged), vec![1], split.clone(), "in the log and not"),
        (both, vec![1, 2], split, "not one transaction"),
        (attempt(112, 118, End::Acknowledged), vec![1], logged(1, 500), "behind a closed gate"),
        (slow, vec![1], logged(1, 500), "committed behind a fence"),
        (stale, vec![1], logged(1, 2500), "became a writer"),
        (attempt(50, 230, End::Acknowledged), vec![1], logged(1, 1500), "behind the boundary"),
        (attempt(50, 60, End::Acknowledged), vec![1], logged(1, 2500), "before the fence, comm"),
    ];
    for (attempt, table, log, expected) in cases {
        let found = check(std::slice::from_ref(&attempt), &[fence()], &table, &log).violations;
        if expected.is_empty() {
            assert!(found.is_empty(), "{attempt:?}: {found:?}");
        } else {
            assert!(found.iter().any(|v| v.contains(expected)), "{expected}: {found:?}");
        }
    }
}

#[test]
fn the_checker_has_reads_fail_only_where_force_ends_one_of_before_the_fence() {
    let read = |begun, ended, end| Attempt {
        kind: READ,
        ids: vec![],
        committing: None,
        ..attempt(begun, ended, end)
    };
    let (early, late) = (Some(at(20)), Some(at(60)));
    let cases = [
        (read(50, 140, refused("ZF009")), early, false),
        (read(50, 140, refused("ZF009")), None, true),
        (read(50, 140, refused("ZF009")), late, true),
        (read(50, 1_300, refused("ZF009")), early, true),
        (read(115, 140, refused("ZF009")), early, true),
        (read(50, 90, refused("ZF009")), early, true),
        (read(50, 140, refused("ZF001")), early, true),
        (read(50, 140, End::Lost("08007".into())), early, true),
    ];
    for (attempt, forces, wrong) in cases {
        let fence = Fence { forces, ..fence() };
        let found = check(std::slice::from_ref(&attempt), &[fence], &[], &[]).violations;
        let told = found.iter().any(|v| v.contains("a read failed"));
        assert_eq!(told, wrong, "{attempt:?}, by force: {forces:?}: {found:?}");
    }
}
