//! What the acceptance tests share: a database behind a proxy, a latch, waiting for levels.
//!
//! Purpose: a test says `Site::new(cluster, proxy)` and gets a fresh database with a table `t`, the
//! proxy's name for it, clients on either path, and the fence commands that it needs.
//!
//! Invariants: every wait looks at a level (the proxy's inspection, the engine's own views) and has
//! a deadline; statements that must be caught in the middle stand at a [`Latch`], never in a timed
//! sleep.
//!
//! Who uses it: `tests/fence_pg.rs`, `bypass_pg.rs`, `crash_pg.rs`. It asserts nothing about
//! fences itself.

#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod fenced;
pub mod link;
pub mod spoilt;
pub mod sweep;

use std::ops::Deref;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};

pub use fenced::Fenced;

use crate::support::{PgCluster, Proxy, Wire, poll};

/// How long a level may take to come about on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The proxy in front of the shared cluster, for tests that need nothing special of it.
pub fn shared_proxy() -> &'static Proxy {
    static SHARED: OnceLock<Proxy> = OnceLock::new();
    SHARED.get_or_init(|| Proxy::start(PgCluster::shared()))
}

/// A drain policy that answers DRAINING after `ms`.
pub fn fail_after(ms: u64) -> Value {
    json!({ "deadline_ms": ms, "on_deadline": "fail" })
}

/// A drain policy that rolls writers back after `ms`.
pub fn force_after(ms: u64) -> Value {
    json!({ "deadline_ms": ms, "on_deadline": "force_rollback" })
}

/// Long enough that no test sees its end.
pub fn patient() -> Value {
    fail_after(100_000)
}

/// One database behind one proxy.
pub struct Site<'a> {
    pub cluster: &'a PgCluster,
    fenced: Fenced<'a>,
}

impl<'a> Deref for Site<'a> {
    type Target = Fenced<'a>;

    fn deref(&self) -> &Fenced<'a> {
        &self.fenced
    }
}

impl<'a> Site<'a> {
    /// A fresh database with an empty table `t (n int)`, owned by `app`.
    pub fn new(cluster: &'a PgCluster, proxy: &'a Proxy) -> Self {
        let site = Self::at(cluster, proxy, &cluster.fresh_db());
        site.setup("CREATE TABLE t (n int)");
        site
    }

    /// A database that is there already.
    pub fn at(cluster: &'a PgCluster, proxy: &'a Proxy, db: &str) -> Self {
        Self { cluster, fenced: Fenced::at(proxy, db) }
    }

    /// On the shared cluster and proxy.
    pub fn shared() -> Site<'static> {
        Site::new(PgCluster::shared(), shared_proxy())
    }

    /// Runs SQL directly, as the owner of the database.
    pub fn setup(&self, sql: &str) {
        self.cluster.sql(&self.db, &format!("SET ROLE app; {sql}"));
    }

    /// Runs SQL directly, as superuser.
    pub fn sql(&self, sql: &str) -> String {
        self.cluster.sql(&self.db, sql)
    }

    /// The rows of `t`, sorted, joined by commas.
    pub fn rows(&self) -> String {
        self.sql("SELECT coalesce(string_agg(n::text, ',' ORDER BY n), '') FROM t")
    }

    /// A client through the proxy.
    #[track_caller]
    pub fn client(&self) -> Wire {
        Wire::connect(self.proxy.port(), "wire", &self.db)
    }

    /// A client around the proxy.
    #[track_caller]
    pub fn direct(&self) -> Wire {
        Wire::connect(self.cluster.port(), "wire", &self.db)
    }

    /// Waits until a query, run directly as superuser, gives `expected`.
    #[track_caller]
    pub fn wait_sql(&self, sql: &str, expected: &str) {
        let mut last = String::new();
        let seen = poll(PATIENCE, || {
            last = self.sql(sql);
            (last == expected).then_some(())
        });
        assert!(seen.is_some(), "not within {PATIENCE:?}: {sql} = {expected}; it is {last}");
    }

    /// Waits until a backend waits for an advisory lock: it stands at a [`Latch`].
    #[track_caller]
    pub fn wait_at_latch(&self, pid: u32) {
        let sql = format!("SELECT wait_event FROM pg_stat_activity WHERE pid = {pid}");
        self.wait_sql(&sql, "advisory");
    }

    /// Waits until a backend waits for a relation lock.
    #[track_caller]
    pub fn wait_for_lock(&self, pid: u32) {
        let sql = format!(
            "SELECT wait_event_type || ' ' || wait_event FROM pg_stat_activity WHERE pid = {pid}"
        );
        self.wait_sql(&sql, "Lock relation");
    }
}

/// Whether an inspection shows SOURCE_DRAINING.
pub fn draining(seen: &Value) -> bool {
    seen["fence"]["state"] == "SOURCE_DRAINING"
}

/// The blockers of an inspection or answer.
pub fn blockers(seen: &Value) -> Vec<Value> {
    seen["drain"]["blockers"].as_array().cloned().unwrap_or_default()
}

/// Panics unless the answer is 200 APPLIED; returns its body.
#[track_caller]
pub fn applied(answer: &(u16, Value)) -> &Value {
    assert_eq!(answer.0, 200, "{:#}", answer.1);
    assert_eq!(answer.1["outcome"], "APPLIED", "{:#}", answer.1);
    &answer.1
}

/// Panics unless the answer is 202 DRAINING; returns its body.
#[track_caller]
pub fn still_draining(answer: &(u16, Value)) -> &Value {
    assert_eq!(answer.0, 202, "{:#}", answer.1);
    assert_eq!(answer.1["outcome"], "DRAINING", "{:#}", answer.1);
    &answer.1
}

/// Panics unless the answer has this status and code; returns its body.
#[track_caller]
pub fn refused<'a>(answer: &'a (u16, Value), status: u16, code: &str) -> &'a Value {
    assert_eq!((answer.0, answer.1["outcome"].as_str()), (status, Some(code)), "{:#}", answer.1);
    assert!(answer.1["receipt"].is_null(), "a refusal has a receipt: {:#}", answer.1);
    assert!(answer.1["error"].as_str().is_some_and(|e| !e.is_empty()), "{:#}", answer.1);
    &answer.1
}

/// A door in the engine that statements wait at: an advisory lock held by a direct session that is
/// in no transaction, so that no census waits for it.
pub struct Latch {
    keeper: Wire,
}

/// The key of the latch's lock.
const LATCH: &str = "77";

impl Latch {
    /// SQL that waits until the latch is open, as a set of one row for a FROM.
    pub const WAIT: &'static str = "pg_advisory_xact_lock_shared(77)";

    /// Shut, in one database.
    pub fn shut(site: &Site<'_>) -> Self {
        let mut keeper = site.direct();
        keeper.query(&format!("SELECT pg_advisory_lock({LATCH})")).ok();
        Self { keeper }
    }

    /// Opens it: whoever waits goes on.
    pub fn open(mut self) {
        self.keeper.query(&format!("SELECT pg_advisory_unlock({LATCH})")).ok();
    }
}

/// The SQLSTATE of an answer, or `""` when there was no error.
pub fn code(answer: &crate::support::wire::Answer) -> String {
    answer.code().unwrap_or_default()
}

/// The value of a counter in the proxy's metrics; 0 when it isn't there.
pub fn metric(proxy: &Proxy, series: &str) -> u64 {
    let token = format!("Bearer {}", proxy.admin_key());
    let headers = [("Authorization", token.as_str())];
    let answer = crate::support::http::request(proxy.admin_port(), "GET", "/metrics", &headers, "");
    let (status, text) = answer.unwrap();
    assert_eq!(status, 200, "{text}");
    let line = text.lines().find_map(|line| line.strip_prefix(series));
    line.map_or(0, |value| value.trim().parse().unwrap())
}
