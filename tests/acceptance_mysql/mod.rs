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

use std::ops::Deref;
use std::sync::OnceLock;

use crate::acceptance::{Fenced, PATIENCE};
use crate::support::my_wire::MyAnswer;
pub(crate) use crate::support::on_both;
use crate::support::{MyCluster, MyFlavour, MyOptions, MyWire, Proxy, poll};

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
    fenced: Fenced<'a>,
}

impl<'a> Deref for MySite<'a> {
    type Target = Fenced<'a>;

    fn deref(&self) -> &Fenced<'a> {
        &self.fenced
    }
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
        let site = Self::at(cluster, proxy, &cluster.fresh_db());
        site.sql("CREATE TABLE t (n int)");
        site
    }

    /// A schema that is there already.
    pub fn at(cluster: &'a MyCluster, proxy: &'a Proxy, db: &str) -> Self {
        Self { cluster, fenced: Fenced::at(proxy, db) }
    }

    /// Runs SQL directly, as root.
    pub fn sql(&self, sql: &str) -> String {
        self.cluster.sql(&self.db, sql)
    }

    /// The rows of `t`, sorted, joined by commas.
    pub fn rows(&self) -> String {
        self.sql("SELECT coalesce(group_concat(n ORDER BY n), '') FROM t")
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
