//! Histories: what clients did and were told, when fences rose and fell, and the engine's own log.
//!
//! Purpose: the records that `check.rs` is made over, and the seeded dice. `clients.rs` and
//! `fences.rs` fill them. Times are since the history's start, of one clock for all threads.
//!
//! Who uses it: `tests/history_pg.rs` (random schedules) and `tests/arms_pg.rs` (one schedule per
//! removed guard). It judges nothing and knows nothing of the library's types.

#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

pub mod check;
pub mod clients;
pub mod fences;

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::acceptance::Site;
use crate::support::poll;
use check::LogRow;

/// How long others may take to do something on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The table of numbered rows, and a view that hides a function that writes to it.
const TABLES: &str = "
CREATE TABLE h (id bigint, who text);
CREATE FUNCTION hidden_write() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  INSERT INTO h VALUES (current_setting('h.n')::bigint, 'hidden');
  RETURN current_setting('h.n')::bigint;
END $$;
CREATE VIEW hidden AS SELECT hidden_write() AS id;";

/// A seeded generator of 64-bit numbers (a Weyl sequence through two rounds of mixing).
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Another generator that goes its own way.
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }
}

/// How an attempt ended for its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The engine's answer to what commits it arrived.
    Acknowledged,
    /// An error with this SQLSTATE: nothing of it may be there.
    Refused(String),
    /// No answer: the connection was lost, or 08007. It may be there if what commits it was sent.
    Lost(String),
}

/// One attempt to write some rows in one transaction.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub client: String,
    /// What kind of work it was.
    pub kind: &'static str,
    /// The numbers of its rows.
    pub ids: Vec<i64>,
    /// When its first message was sent.
    pub begun: Duration,
    /// When the transaction's first statement had been answered; for one exchange, never.
    pub open: Option<Duration>,
    /// When its first write was sent.
    pub wrote: Duration,
    /// When what commits it was sent.
    pub committing: Option<Duration>,
    /// When its end was known.
    pub ended: Duration,
    pub end: End,
}

/// One fence from its command to its release.
#[derive(Debug, Clone)]
pub struct Fence {
    /// The acquire was sent.
    pub asked: Duration,
    /// It was answered: DRAINING or APPLIED. Admission was closed before.
    pub closed: Option<Duration>,
    /// It was answered APPLIED.
    pub fenced: Option<Duration>,
    /// The boundary of the record.
    pub boundary: Option<u64>,
    /// The engine's log position, read before the release was sent.
    pub log_end: u64,
    /// The release was sent.
    pub releasing: Duration,
    /// It was answered.
    pub released: Duration,
    /// What the driver did, for reports.
    pub plan: String,
}

/// Everything that happened, as it is collected.
pub struct History {
    start: Instant,
    ids: AtomicI64,
    count: AtomicU64,
    pub attempts: Mutex<Vec<Attempt>>,
    pub fences: Mutex<Vec<Fence>>,
    /// Reads that failed, and whatever else must never happen.
    pub faults: Mutex<Vec<String>>,
    pub reads: AtomicU64,
}

impl History {
    /// An empty history of a site that gets its tables here, and the slot that keeps its log.
    pub fn of(site: &Site<'_>) -> Self {
        site.setup(TABLES);
        let slot = "SELECT pg_create_logical_replication_slot";
        site.sql(&format!("{slot}('h_{}', 'test_decoding')", site.db));
        Self {
            start: Instant::now(),
            ids: AtomicI64::new(1),
            count: AtomicU64::new(0),
            attempts: Mutex::default(),
            fences: Mutex::default(),
            faults: Mutex::default(),
            reads: AtomicU64::new(0),
        }
    }

    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// A number nobody used.
    pub fn id(&self) -> i64 {
        self.ids.fetch_add(1, Ordering::SeqCst)
    }

    pub fn push(&self, attempt: Attempt) {
        self.attempts.lock().unwrap().push(attempt);
        self.tick();
    }

    /// Counts one thing that a client did.
    pub fn tick(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    pub fn fault(&self, what: String) {
        self.faults.lock().unwrap().push(what);
    }

    /// Waits until clients have done `more` further things.
    pub fn wait_more(&self, more: u64) {
        let goal = self.count.load(Ordering::SeqCst) + more;
        let done = poll(PATIENCE, || (self.count.load(Ordering::SeqCst) >= goal).then_some(()));
        if done.is_none() {
            self.fault(format!("clients did not do {more} more things within {PATIENCE:?}"));
        }
    }

    /// Reads table and log, and checks everything against everything. The slot goes.
    pub fn verdict(&self, site: &Site<'_>) -> check::Report {
        let table = site.sql("SELECT id FROM h ORDER BY id");
        let table: Vec<i64> = table.lines().map(|id| id.parse().unwrap()).collect();
        let log = decoded(site);
        site.sql(&format!("SELECT pg_drop_replication_slot('h_{}')", site.db));
        let (attempts, fences) = (self.attempts.lock().unwrap(), self.fences.lock().unwrap());
        let mut report = check::check(&attempts, &fences, &table, &log);
        report.violations.extend(self.faults.lock().unwrap().iter().cloned());
        report
    }
}

/// The rows of `h` and the commits in the engine's log.
fn decoded(site: &Site<'_>) -> Vec<LogRow> {
    // Decoding ends where the log is flushed, and these engines don't wait for that.
    site.sql("SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'h', 'end')");
    let sql = format!(
        "SELECT (lsn - '0/0'::pg_lsn)::text, xid::text, data
         FROM pg_logical_slot_get_changes('h_{}', NULL, NULL)",
        site.db
    );
    let row = |line: &str| {
        let mut parts = line.splitn(3, '|');
        let mut part = || parts.next().unwrap().to_owned();
        LogRow { lsn: part().parse().unwrap(), xid: part(), data: part() }
    };
    site.sql(&sql).lines().map(row).collect()
}

/// `A/B` as a number.
pub fn lsn(text: &str) -> u64 {
    let (high, low) = text.split_once('/').unwrap();
    let part = |text| u64::from_str_radix(text, 16).unwrap();
    (part(high) << 32) | part(low)
}

/// The engine's log position now.
pub fn log_end(site: &Site<'_>) -> u64 {
    lsn(&site.sql("SELECT pg_current_wal_insert_lsn()"))
}
