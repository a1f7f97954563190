//! What the MySQL acceptance tests share: the twin of `tests/acceptance`, for either server.
//!
//! Purpose: a test says `MySite::shared(flavour)` and gets a fresh schema with a table `t`, clients
//! through the proxy and around it, and the fence commands that it needs.
//!
//! Invariants: every wait looks at a level and has a deadline; statements that must be caught in
//! the middle stand at a [`MyLatch`], never in a timed sleep.
//!
//! Who uses it: `tests/fence_mysql.rs`, `codes_mysql.rs`, `crash_mysql.rs`. It asserts nothing
//! about fences itself.

#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::acceptance::{PATIENCE, applied, blockers, draining, fail_after};
use crate::support::my_wire::MyAnswer;
use crate::support::proxy::uuid;
use crate::support::{MyCluster, MyFlavour, MyOptions, MyWire, Proxy, poll};

/// Each named test on either server, by the server's name.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod mariadb {
            $(#[test] fn $name() { super::$name(crate::support::MyFlavour::MariaDb); })*
        }
        mod mysql {
            $(#[test] fn $name() { super::$name(crate::support::MyFlavour::MySql); })*
        }
    };
}
pub(crate) use on_both;

/// The proxy in front of the flavour's shared server.
pub fn shared_proxy(flavour: MyFlavour) -> &'static Proxy {
    static MARIADB: OnceLock<Proxy> = OnceLock::new();
    static MYSQL: OnceLock<Proxy> = OnceLock::new();
    let shared = match flavour {
        MyFlavour::MariaDb => &MARIADB,
        MyFlavour::MySql => &MYSQL,
    };
    shared.get_or_init(|| Proxy::start_my(MyCluster::shared(flavour)))
}

/// A server and a proxy of the test's own: where prepared branches are left, or the log is read.
pub fn own(flavour: MyFlavour) -> (MyCluster, Proxy) {
    let cluster = MyCluster::start(flavour, MyOptions::default());
    let proxy = Proxy::start_my(&cluster);
    (cluster, proxy)
}

/// One schema behind one proxy.
pub struct MySite<'a> {
    pub cluster: &'a MyCluster,
    pub proxy: &'a Proxy,
    pub db: String,
}

impl MySite<'static> {
    /// On the shared server and proxy.
    pub fn shared(flavour: MyFlavour) -> Self {
        MySite::new(MyCluster::shared(flavour), shared_proxy(flavour))
    }
}

impl<'a> MySite<'a> {
    /// A fresh schema with an empty table `t (n int)`.
    pub fn new(cluster: &'a MyCluster, proxy: &'a Proxy) -> Self {
        let site = Self { cluster, proxy, db: cluster.fresh_db() };
        site.sql("CREATE TABLE t (n int)");
        site
    }

    /// Runs SQL directly, as root.
    pub fn sql(&self, sql: &str) -> String {
        self.cluster.sql(&self.db, sql)
    }

    /// The rows of `t`, sorted, joined by commas.
    pub fn rows(&self) -> String {
        self.sql("SELECT coalesce(group_concat(n ORDER BY n), '') FROM t")
    }

    pub fn namespace(&self) -> String {
        format!("old/{}", self.db)
    }

    /// A client through the proxy.
    #[track_caller]
    pub fn client(&self) -> MyWire {
        MyWire::connect(self.proxy.port(), "wire", &self.db)
    }

    /// A client around the proxy.
    #[track_caller]
    pub fn direct(&self) -> MyWire {
        MyWire::connect(self.cluster.port(), "wire", &self.db)
    }

    pub fn inspect(&self) -> Value {
        self.proxy.inspect(&self.namespace())
    }

    pub fn state(&self) -> String {
        self.inspect()["fence"]["state"].as_str().unwrap().to_owned()
    }

    /// The body of an acquire for the namespace as it is now.
    pub fn acquire_body(&self, operation: &str, policy: &Value) -> Value {
        let mut body = self.proxy.command_body(&self.namespace(), operation, &uuid());
        let incarnation = &self.inspect()["fence"]["incarnation"];
        body["expected_namespace_identity"] = json!({
            "engine_id": incarnation["engine_id"],
            "database_id": incarnation["database_id"],
        });
        if !policy.is_null() {
            body["drain_policy"] = policy.clone();
        }
        body
    }

    pub fn release_body(&self, operation: &str) -> Value {
        self.proxy.command_body(&self.namespace(), operation, &uuid())
    }

    pub fn acquire(&self, body: &Value) -> (u16, Value) {
        self.proxy.command(&self.namespace(), "source/acquire-write-fence", body)
    }

    /// Replays an acquire until it is applied.
    #[track_caller]
    pub fn acquire_at_last(&self, body: &Value) -> (u16, Value) {
        let mut last = (0, Value::Null);
        let done = poll(PATIENCE, || {
            last = self.acquire(body);
            (last.0 != 202).then_some(())
        });
        assert!(done.is_some(), "still draining: {:#}", last.1);
        applied(&last);
        last
    }

    pub fn release(&self, body: &Value) -> (u16, Value) {
        self.proxy.command(&self.namespace(), "source/release-write-fence", body)
    }

    /// Raises a write fence that must come to its proof; returns its operation.
    #[track_caller]
    pub fn fence(&self) -> String {
        let operation = uuid();
        let answer = self.acquire(&self.acquire_body(&operation, &fail_after(60_000)));
        applied(&answer);
        operation
    }

    /// The body of a read fence's command for the namespace as it is now.
    pub fn reads_body(&self, operation: &str, policy: &Value) -> Value {
        let mut body = self.proxy.command_body(&self.namespace(), operation, &uuid());
        if !policy.is_null() {
            body["drain_policy"] = policy.clone();
        }
        body
    }

    pub fn set_read(&self, body: &Value) -> (u16, Value) {
        self.proxy.command(&self.namespace(), "source/set-read-fence", body)
    }

    pub fn clear_read(&self, body: &Value) -> (u16, Value) {
        self.proxy.command(&self.namespace(), "source/clear-read-fence", body)
    }

    /// Raises a read fence that must come to its proof within its deadline.
    #[track_caller]
    pub fn fence_reads(&self, operation: &str) {
        applied(&self.set_read(&self.reads_body(operation, &fail_after(100_000))));
    }

    /// Opens reads again.
    #[track_caller]
    pub fn unfence_reads(&self, operation: &str) {
        applied(&self.clear_read(&self.reads_body(operation, &Value::Null)));
    }

    /// Waits until a read drain names a thread as one it waits for, as `class`.
    #[track_caller]
    pub fn wait_read_by(&self, thread: u32, class: &str) -> Value {
        self.wait(&format!("a read drain waits for thread {thread}, a {class}"), |seen| {
            let named = |b: &Value| b["engine_pid"] == thread && b["class"] == class;
            seen["fence"]["state"] == "SOURCE_READ_DRAINING" && blockers(seen).iter().any(named)
        })
    }

    /// Lifts the operation's fence.
    #[track_caller]
    pub fn unfence(&self, operation: &str) {
        applied(&self.release(&self.release_body(operation)));
    }

    /// Waits until an inspection satisfies `done`; returns it.
    #[track_caller]
    pub fn wait(&self, what: &str, done: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let seen = poll(PATIENCE, || {
            last = self.inspect();
            done(&last).then(|| last.clone())
        });
        seen.unwrap_or_else(|| panic!("not within {PATIENCE:?}: {what}; last seen: {last:#}"))
    }

    /// Waits until a drain names a thread as one it waits for.
    #[track_caller]
    pub fn wait_blocked_by(&self, thread: u32) -> Value {
        self.wait(&format!("a drain waits for thread {thread}"), |seen| {
            draining(seen) && blockers(seen).iter().any(|b| b["engine_pid"] == thread)
        })
    }

    /// Waits until a query, run directly as root, gives `expected`.
    #[track_caller]
    pub fn wait_sql(&self, sql: &str, expected: &str) {
        let mut last = String::new();
        let seen = poll(PATIENCE, || {
            last = self.sql(sql);
            (last == expected).then_some(())
        });
        assert!(seen.is_some(), "not within {PATIENCE:?}: {sql} = {expected}; it is {last}");
    }

    /// Waits until a thread is in a state, such as `User lock`: it stands at a [`MyLatch`].
    #[track_caller]
    pub fn wait_state(&self, thread: u32, state: &str) {
        let sql = format!("SELECT STATE FROM information_schema.PROCESSLIST WHERE ID = {thread}");
        self.wait_sql(&sql, state);
    }

    /// Waits until a thread runs a statement like this one.
    #[track_caller]
    pub fn wait_running(&self, thread: u32, like: &str) {
        let sql = format!(
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
             WHERE ID = {thread} AND INFO LIKE '{like}'"
        );
        self.wait_sql(&sql, "1");
    }

    #[track_caller]
    pub fn wait_at_latch(&self, thread: u32) {
        self.wait_state(thread, "User lock");
    }

    /// Asks again and again whether the fence is acknowledged; it must not be, `times` times.
    #[track_caller]
    pub fn stays_draining(&self, times: usize) {
        for _ in 0..times {
            let seen = self.inspect();
            assert!(draining(&seen), "the drain ended too early: {seen:#}");
        }
    }
}

/// A door in the engine that statements wait at: a user lock held by a direct session that is in no
/// transaction.
pub struct MyLatch {
    keeper: MyWire,
    name: String,
}

impl MyLatch {
    pub fn shut(site: &MySite<'_>) -> Self {
        let name = format!("latch{}", site.db);
        let mut keeper = MyWire::connect(site.cluster.port(), "wire", "information_schema");
        let shut = keeper.query(&format!("SELECT GET_LOCK('{name}', 0)")).ok().cell();
        assert_eq!(shut, "1", "somebody who has passed it is still connected");
        Self { keeper, name }
    }

    /// SQL that waits until the latch is open, as a set of one row for a FROM.
    pub fn wait(&self) -> String {
        format!("(SELECT GET_LOCK('{}', 600) AS passed) latch", self.name)
    }

    /// Opens it: whoever waits goes on.
    pub fn open(mut self) {
        self.keeper.query(&format!("SELECT RELEASE_LOCK('{}')", self.name)).ok();
    }
}

/// The engine's number of a client's connection.
pub fn thread(client: &MyWire) -> u32 {
    client.greeting.thread_id
}

/// The SQLSTATE of an answer's error, or `""` when there was none.
pub fn code(answer: &MyAnswer) -> String {
    answer.error.as_ref().map(|error| error.state.clone()).unwrap_or_default()
}
