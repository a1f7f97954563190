//! Histories: what clients did and were told, when fences rose and fell, and the engine's own log.
//!
//! Purpose: the records that `check.rs` is made over, and the seeded dice. `fences.rs` and the
//! clients (`clients.rs` for PostgreSQL, `my_clients.rs` for MySQL) fill them. Times are since the
//! history's start, of one clock for all threads. What differs by engine is behind [`Place`].
//!
//! Who uses it: `tests/history_pg.rs` and `history_mysql.rs` (random schedules), `tests/arms_pg.rs`
//! and `arms_mysql.rs` (one schedule per removed guard). It judges nothing and knows nothing of the
//! library's types.

#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

pub mod check;
pub mod clients;
pub mod fences;
pub mod lane;
pub mod pg_place;
pub mod scene;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::acceptance::Fenced;
use crate::support::poll;
use check::LogRow;

/// How long others may take to do something on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Guards of the library's own rules, with the test that is run without each.
pub const BY_THE_LIBRARY: [(&str, &str); 41] = [
    ("generation-growth", include_str!("../../src/app/sequences.rs")),
    ("generation-start", include_str!("../../src/app/sequences.rs")),
    ("drain-generation", include_str!("../../src/app/sequences.rs")),
    ("closed-start", include_str!("../../src/app/sequences.rs")),
    ("stop-leaves-gates", include_str!("../../src/app/tests.rs")),
    ("own-codes", include_str!("../../src/app/surfaces.rs")),
    ("commit-doubt", include_str!("../../src/control/tests/doubt.rs")),
    ("lock-confirm", include_str!("../../src/control/tests/drains.rs")),
    ("statement-lease", include_str!("../../src/wire/pg/tests.rs")),
    ("guard-status", include_str!("../../src/wire/pg/tests/implicit.rs")),
    ("calm-ahead", include_str!("../../src/wire/pg/tests/ahead.rs")),
    ("lone-sync", include_str!("../../src/wire/pg/tests/implicit.rs")),
    ("hold-cursor", include_str!("../../src/wire/pg/tests/settings.rs")),
    ("read-write-block", include_str!("../../src/wire/pg/tests/settings.rs")),
    ("unclear-answers", include_str!("../../src/wire/pg/tests/skipping.rs")),
    ("fresh-rights", include_str!("../engine_mysql/connect.rs")),
    ("lock-identity", include_str!("../../src/control/tests/locks.rs")),
    ("sight-check", include_str!("../engine_mysql/census.rs")),
    ("capability-life", include_str!("../../src/gate/capability.rs")),
    ("capability-secret", include_str!("../capability_pg.rs")),
    ("target-overlay", include_str!("../targets_pg.rs")),
    ("target-marker", include_str!("../targets_pg.rs")),
    ("imported-code", include_str!("../targets_pg.rs")),
    ("target-programs", include_str!("../../src/control/tests/targets.rs")),
    ("aborted-gate", include_str!("../../src/wire/mysql/seats.rs")),
    ("login-text", include_str!("../holes_mysql.rs")),
    ("login-triggers", include_str!("../logins_pg.rs")),
    ("standby-follow", include_str!("../../src/control/tests/doubles/standby.rs")),
    ("frozen-records", include_str!("../../src/control/tests/doubles/standby.rs")),
    ("shut-command", include_str!("../../src/control/tests/doubles/standby.rs")),
    ("double-rollback", include_str!("../../src/control/tests/doubles/rollback.rs")),
    ("older-programs", include_str!("../engine_mysql/census.rs")),
    ("waker-look", include_str!("../../src/wire/shared/peer.rs")),
    ("budget-look", include_str!("../../src/wire/shared/peer.rs")),
    ("recall-rules", include_str!("../../src/sql/recall.rs")),
    ("cutoff-generation", include_str!("../../src/control/tests/early.rs")),
    ("auto-forget", include_str!("../../src/wire/pg/tests/auto_prepare.rs")),
    ("auto-meaning", include_str!("../../src/wire/pg/tests/auto_prepare.rs")),
    ("auto-doubt", include_str!("../../src/wire/pg/tests/auto_prepare.rs")),
    ("event-check", include_str!("../engine_mysql/census.rs")),
    ("target-identity", include_str!("../../src/control/tests/targets.rs")),
];

/// What a history needs of a database behind a proxy, whichever engine it is.
pub trait Place: Sync {
    /// Makes the table `h` of numbered rows, and what hides a write to it; from here on the
    /// engine's log is kept.
    fn make(&self);

    /// The numbers in `h`, sorted.
    fn table(&self) -> Vec<i64>;

    /// The changes of `h` in the engine's log, decoded. Whatever kept the log goes.
    fn log(&self) -> Vec<LogRow>;

    /// The engine's log position now.
    fn log_end(&self) -> u64;

    /// The position that a record's `frozen_boundary` names.
    fn position(&self, boundary: &str) -> u64;

    /// What a drain needs while writers come and go, roughly: a deadline that is always shorter
    /// would never see a proof.
    fn drain_ms(&self) -> u64;

    /// The fence of the place, and its commands.
    fn fenced(&self) -> &Fenced<'_>;
}

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

/// How the work of a [`Try`] went.
pub type Done = Result<(), End>;

/// One attempt under way.
pub struct Try {
    pub kind: &'static str,
    pub ids: Vec<i64>,
    pub begun: Duration,
    pub open: Option<Duration>,
    pub wrote: Option<Duration>,
    pub committing: Option<Duration>,
}

/// One fence from its command to its release.
#[derive(Debug, Clone)]
pub struct Fence {
    /// The acquire was sent.
    pub asked: Duration,
    /// It was seen to drain, or answered: DRAINING or APPLIED. Admission was closed before.
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
    /// How long behind its command it ends by force what still runs; never, if `None`.
    pub forces: Option<Duration>,
    /// What the driver did, for reports.
    pub plan: String,
}

/// The deadline of a policy that forces.
pub fn forces(policy: &Value) -> Option<Duration> {
    let after = policy["deadline_ms"].as_u64().unwrap();
    (policy["on_deadline"] == "force_rollback").then(|| Duration::from_millis(after))
}

/// Everything that happened, as it is collected.
pub struct History {
    start: Instant,
    ids: AtomicI64,
    count: AtomicU64,
    pub attempts: Mutex<Vec<Attempt>>,
    pub fences: Mutex<Vec<Fence>>,
    /// What must never happen, but for reads that failed: these are attempts without rows.
    pub faults: Mutex<Vec<String>>,
    /// What didn't come about in time: no promise is broken by it.
    pub late: Mutex<Vec<String>>,
    pub reads: AtomicU64,
}

impl History {
    /// An empty history of a place that gets its tables here.
    pub fn of(place: &impl Place) -> Self {
        place.make();
        Self {
            start: Instant::now(),
            ids: AtomicI64::new(1),
            count: AtomicU64::new(0),
            attempts: Mutex::default(),
            fences: Mutex::default(),
            faults: Mutex::default(),
            late: Mutex::default(),
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

    /// Begins an attempt with numbers of its own.
    pub fn begin(&self, kind: &'static str, rows: usize) -> Try {
        let ids = (0..rows).map(|_| self.id()).collect();
        let begun = self.now();
        Try { kind, ids, begun, open: None, wrote: None, committing: None }
    }

    /// Notes how an attempt ended.
    pub fn note(&self, client: &str, attempt: Try, done: Done) {
        let ended = self.now();
        let Try { kind, ids, begun, open, wrote, committing } = attempt;
        let end = done.err().unwrap_or(End::Acknowledged);
        let wrote = wrote.unwrap_or(begun);
        let client = client.to_owned();
        self.push(Attempt { client, kind, ids, begun, open, wrote, committing, ended, end });
    }

    pub fn push(&self, attempt: Attempt) {
        self.attempts.lock().unwrap().push(attempt);
        self.tick();
    }

    /// Counts one thing that a client did.
    pub fn tick(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes how a read went that was sent at `begun`.
    pub fn note_read(&self, client: &str, begun: Duration, done: Done) {
        let end = match done {
            Ok(()) => return self.reads_on(),
            Err(end) => end,
        };
        let (client, ended) = (client.to_owned(), self.now());
        let (ids, open, wrote, committing) = (Vec::new(), None, begun, None);
        let kind = check::READ;
        self.push(Attempt { client, kind, ids, begun, open, wrote, committing, ended, end });
    }

    fn reads_on(&self) {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.tick();
    }

    pub fn fault(&self, what: String) {
        self.faults.lock().unwrap().push(what);
    }

    pub fn late(&self, what: String) {
        self.late.lock().unwrap().push(what);
    }

    /// Waits until clients have done `more` further things.
    pub fn wait_more(&self, more: u64) {
        let goal = self.count.load(Ordering::SeqCst) + more;
        let done = poll(PATIENCE, || (self.count.load(Ordering::SeqCst) >= goal).then_some(()));
        if done.is_none() {
            self.late(format!("clients did not do {more} more things within {PATIENCE:?}"));
        }
    }

    /// Reads table and log, and checks everything against everything.
    pub fn verdict(&self, place: &impl Place) -> check::Report {
        let (table, log) = (place.table(), place.log());
        let (attempts, fences) = (self.attempts.lock().unwrap(), self.fences.lock().unwrap());
        let mut report = check::check(&attempts, &fences, &table, &log);
        report.violations.extend(self.faults.lock().unwrap().iter().cloned());
        report.late.clone_from(&self.late.lock().unwrap());
        report
    }

    /// How often each kind of work was acknowledged and not, for people.
    pub fn kinds(&self) -> BTreeMap<&'static str, (u32, u32)> {
        let mut kinds = BTreeMap::<_, (u32, u32)>::new();
        for attempt in self.attempts.lock().unwrap().iter() {
            let of = kinds.entry(attempt.kind).or_default();
            match attempt.end {
                End::Acknowledged => of.0 += 1,
                End::Refused(_) | End::Lost(_) => of.1 += 1,
            }
        }
        kinds
    }
}
