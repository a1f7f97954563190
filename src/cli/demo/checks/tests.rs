//! Control arms: each check gets a history that keeps its promise, then ones that break it.

use super::super::history::Read;
use super::*;

const CLIENTS: usize = 2;
const TOTAL: i64 = 1_000;

fn at(second: u64) -> Duration {
    Duration::from_secs(second)
}

/// Asked at 10, fenced at 20, release asked at 30, released at 40.
fn window() -> Window {
    Window { asked: at(10), fenced: at(20), releasing: at(30), released: at(40) }
}

fn attempt(client: usize, transfer: i64, began: u64, ended: u64, end: End) -> Attempt {
    let committing = (end == End::Acknowledged).then(|| at(ended));
    Attempt { client, transfer, began: at(began), committing, ended: at(ended), end }
}

fn refused(code: &str) -> End {
    End::Refused(code.to_owned())
}

/// Before, during the drain, under the fence, around the release, after it.
fn good() -> History {
    let attempts = vec![
        attempt(0, 1, 1, 2, End::Acknowledged),
        attempt(1, 2, 9, 12, End::Acknowledged),
        attempt(0, 3, 11, 12, refused("ZF001")),
        attempt(0, 4, 9, 21, refused("ZF001")),
        attempt(0, 5, 21, 22, refused("ZF001")),
        attempt(1, 6, 21, 22, refused("ZF001")),
        attempt(0, 7, 29, 35, refused("ZF002")),
        attempt(1, 8, 29, 36, refused("ZF001")),
        attempt(0, 9, 41, 42, End::Acknowledged),
        attempt(1, 10, 41, 42, End::Acknowledged),
    ];
    let read = |began, ended| Read { began: at(began), ended: at(ended), outcome: Ok(TOTAL) };
    History { attempts, reads: vec![read(1, 2), read(21, 22), read(41, 42)] }
}

fn table() -> BTreeSet<i64> {
    BTreeSet::from([1, 2, 9, 10])
}

#[track_caller]
fn kept(check: &Check) {
    assert!(check.kept(), "{check:?}");
}

#[track_caller]
fn broken(check: &Check, words: &str) {
    assert!(check.violations.iter().any(|v| v.contains(words)), "{words:?} not in {check:?}");
}

#[test]
fn refusals_of_the_right_kind_at_the_right_time_are_fine() {
    let check = writes_refused(&good(), &window(), CLIENTS);
    kept(&check);
    assert_eq!(check.figure, "2 of 2 writes, 2 of 2 clients");
}

#[test]
fn every_other_end_of_a_write_is_reported() {
    for (wrong, words) in [
        (attempt(0, 77, 21, 22, End::Acknowledged), "transfer 77: acknowledged while"),
        (attempt(0, 77, 9, 25, End::Acknowledged), "transfer 77: acknowledged while"),
        (attempt(0, 77, 21, 22, refused("ZF002")), "transfer 77: refused with ZF002"),
        (attempt(0, 77, 21, 22, refused("25006")), "transfer 77: refused with 25006"),
        (attempt(0, 77, 12, 13, refused("ZF002")), "transfer 77: refused with ZF002"),
        (attempt(0, 77, 1, 2, refused("ZF001")), "transfer 77: refused with ZF001"),
        (attempt(0, 77, 41, 42, refused("ZF001")), "transfer 77: refused with ZF001"),
        (attempt(0, 77, 41, 42, refused("40P01")), "transfer 77: refused with 40P01"),
        (attempt(0, 77, 21, 22, End::Lost("hung up".into())), "transfer 77: hung up"),
        (attempt(0, 77, 1, 2, End::Lost("no answer".into())), "transfer 77: no answer"),
    ] {
        let mut history = good();
        history.attempts.push(wrong);
        broken(&writes_refused(&history, &window(), CLIENTS), words);
    }
    broken(&writes_refused(&good(), &window(), 3), "1 clients were never refused");
    broken(&writes_refused(&History::default(), &window(), CLIENTS), "never refused");
}

#[test]
fn many_violations_are_named_and_counted() {
    let mut history = good();
    for transfer in 100..110 {
        history.attempts.push(attempt(0, transfer, 21, 22, End::Acknowledged));
    }
    let check = writes_refused(&history, &window(), CLIENTS);
    assert_eq!(check.violations.len(), NAMED_MAX + 1);
    broken(&check, "and 7 more");
}

#[test]
fn reads_must_go_on_and_add_up() {
    kept(&reads_go_on(&good(), &window(), TOTAL));
    broken(&reads_go_on(&good(), &window(), TOTAL + 1), "not 1001");
    let mut failed = good();
    let read = Read { began: at(21), ended: at(22), outcome: Err("ZF003".to_owned()) };
    failed.reads.push(read);
    broken(&reads_go_on(&failed, &window(), TOTAL), "ZF003");
    let mut none = good();
    none.reads.remove(1);
    broken(&reads_go_on(&none, &window(), TOTAL), "no read was answered");
}

#[test]
fn the_fence_may_not_be_acknowledged_before_the_open_writer() {
    kept(&drain_waited(&attempt(9, 5, 8, 15, End::Acknowledged), &window()));
    let early = attempt(9, 5, 8, 21, End::Acknowledged);
    broken(&drain_waited(&early, &window()), "before the open writer");
    let late = attempt(9, 5, 11, 15, End::Acknowledged);
    broken(&drain_waited(&late, &window()), "before the open writer");
    broken(&drain_waited(&attempt(9, 5, 8, 15, refused("ZF001")), &window()), "ZF001");
    let lost = attempt(9, 5, 8, 15, End::Lost("gone".into()));
    broken(&drain_waited(&lost, &window()), "gone");
}

#[test]
fn table_and_histories_must_agree() {
    let judge = |history: &History, others: &[i64], table: &BTreeSet<i64>| {
        table_agrees("p", history, &others.iter().copied().collect(), table)
    };
    kept(&judge(&good(), &[], &table()));
    let mut more = table();
    more.insert(500);
    kept(&judge(&good(), &[500], &more));
    broken(&judge(&good(), &[], &more), "500 is in the table, acknowledged to nobody");
    broken(&judge(&good(), &[500], &table()), "500 was acknowledged and is missing");
    let mut less = table();
    less.remove(&9);
    broken(&judge(&good(), &[], &less), "9 was acknowledged and is missing");
    let mut leaked = table();
    leaked.insert(5);
    broken(&judge(&good(), &[], &leaked), "5 was refused and is in the table");
    broken(&judge(&History::default(), &[], &BTreeSet::new()), "nothing was ever");
}

#[test]
fn an_unanswered_commit_may_be_in_the_table_or_not() {
    let mut history = good();
    let mut unsure = attempt(0, 50, 5, 6, End::Lost("gone".into()));
    unsure.committing = Some(at(6));
    history.attempts.push(unsure.clone());
    let others = BTreeSet::new();
    kept(&table_agrees("p", &history, &others, &table()));
    let mut with = table();
    with.insert(50);
    kept(&table_agrees("p", &history, &others, &with));
    // Without COMMIT sent it may not.
    unsure.committing = None;
    history.attempts.pop();
    history.attempts.push(unsure);
    broken(&table_agrees("p", &history, &others, &with), "50 was refused and is");
}

#[test]
fn the_sum_is_the_same_each_time() {
    kept(&sum_conserved(&[TOTAL, TOTAL], TOTAL));
    broken(&sum_conserved(&[TOTAL, 999], TOTAL), "999");
    broken(&sum_conserved(&[], TOTAL), "never");
}

#[test]
fn a_direct_write_waits_under_the_fence_and_only_there() {
    let code = |text: &str| Err(text.to_owned());
    for lock in ["55P03", "1205"] {
        let judge = |fenced, released| direct_writes(&fenced, &released, lock);
        kept(&judge(code(lock), Ok(())));
        broken(&judge(Ok(()), Ok(())), "succeeded");
        broken(&judge(code("42501"), Ok(())), "42501");
        broken(&judge(code(lock), code(lock)), "after the release");
    }
}

fn row(lsn: u64, xid: &str, data: &str) -> LogRow {
    LogRow { lsn, xid: xid.to_owned(), data: data.to_owned() }
}

#[test]
fn a_change_counts_where_its_commit_ends() {
    let mut rows = vec![
        row(10, "7", "BEGIN 7"),
        row(11, "7", "table public.accounts: UPDATE: id[bigint]:1"),
        row(12, "7", "table public.transfers: INSERT: id[bigint]:1"),
        row(20, "7", "COMMIT 7"),
        row(21, "8", "BEGIN 8"),
        row(22, "8", "message: transactional: 1 prefix: fencewire, sz: 9 content:{op-1}"),
        row(30, "8", "COMMIT 8"),
    ];
    let expected = Changes { before: 2, after: 0, marker: true };
    assert_eq!(changes_around(&rows, 30, "op-1"), expected);
    assert!(!changes_around(&rows, 30, "op-2").marker);
    // Written before the boundary, committed behind it: after it.
    rows.insert(3, row(13, "9", "table public.accounts: UPDATE: id[bigint]:2"));
    rows.push(row(31, "9", "COMMIT 9"));
    let expected = Changes { before: 2, after: 1, marker: true };
    assert_eq!(changes_around(&rows, 30, "op-1"), expected);
    // Exactly at the boundary is before it: a commit is at the end of its record.
    assert_eq!(changes_around(&rows, 20, "op-1").before, 2);
    assert_eq!(changes_around(&rows, 19, "op-1").after, 3);
}

#[test]
fn a_log_that_goes_on_or_shows_nothing_is_reported() {
    let fenced = Changes { before: 9, after: 0, marker: true };
    let released = Changes { before: 9, after: 4, marker: true };
    kept(&log_ends_at_boundary(fenced, released));
    broken(&log_ends_at_boundary(Changes { after: 2, ..fenced }, released), "2 row changes");
    broken(&log_ends_at_boundary(Changes { marker: false, ..fenced }, released), "marker");
    broken(&log_ends_at_boundary(Changes { before: 0, ..fenced }, released), "no change at all");
    broken(&log_ends_at_boundary(fenced, Changes { after: 0, ..released }), "no change either");
}

#[test]
fn every_client_must_be_acknowledged_again() {
    kept(&traffic_resumes(&good(), &window(), CLIENTS));
    broken(&traffic_resumes(&good(), &window(), 3), "1 clients");
    let mut stuck = good();
    stuck.attempts.truncate(8);
    broken(&traffic_resumes(&stuck, &window(), CLIENTS), "2 clients");
}
