//! A fresh schema on a server, its engine handle, and clients around it.

use std::time::Duration;

use fencewire::base::ids::{EngineName, Namespace};
use fencewire::base::secret::Secret;
use fencewire::engine::{
    Blocker, CensusCounts, CensusOutcome, Cutoff, EngineLock, MyEngine, ProxyView, Settings, Why,
};
use fencewire::tls::ClientTls;

use crate::support::{MyCluster, MyFlavour, MyOptions, MyWire, poll};

/// How long a level may take to come about on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One attempt at a lock that isn't expected to be granted.
pub(crate) const SHORT: Duration = Duration::from_millis(900);

/// An attempt that must be granted.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) struct Site<'a> {
    pub(crate) cluster: &'a MyCluster,
    pub(crate) db: String,
    pub(crate) engine: MyEngine,
}

impl Site<'static> {
    /// On the server that all tests share, which is never stopped and has no prepared branches.
    pub(crate) fn shared(flavour: MyFlavour) -> Self {
        Site::new(MyCluster::shared(flavour))
    }
}

impl<'a> Site<'a> {
    /// A fresh schema with an empty table `t`.
    pub(crate) fn new(cluster: &'a MyCluster) -> Self {
        let db = cluster.fresh_db();
        cluster.sql(&db, "CREATE TABLE t (n int PRIMARY KEY)");
        Self { cluster, engine: MyEngine::new(settings(cluster)).unwrap(), db }
    }

    pub(crate) fn namespace(&self) -> Namespace {
        Namespace::parse(&format!("old/{}", self.db)).unwrap()
    }

    /// A client straight to the server.
    pub(crate) fn client(&self) -> MyWire {
        MyWire::connect(self.cluster.port(), "wire", &self.db)
    }

    pub(crate) fn sql(&self, sql: &str) -> String {
        self.cluster.sql(&self.db, sql)
    }

    pub(crate) async fn cutoff(&self) -> Cutoff {
        self.engine.cutoff(&self.namespace()).await.unwrap()
    }

    pub(crate) async fn census(
        &self,
        cutoff: &Cutoff,
        view: &ProxyView,
    ) -> Result<CensusCounts, Vec<Blocker>> {
        match self.engine.census(cutoff, view).await.unwrap() {
            CensusOutcome::Clear(clear) => {
                assert_eq!(clear.namespace(), cutoff.namespace());
                assert_eq!(clear.engine_id(), cutoff.identity().engine_id);
                Ok(clear.counts())
            }
            CensusOutcome::Residue(blockers) => Err(blockers),
        }
    }

    /// Why the census isn't clear; empty when it is.
    pub(crate) async fn whys(&self, cutoff: &Cutoff, view: &ProxyView) -> Vec<Why> {
        let found = self.census(cutoff, view).await;
        found.map_or_else(|blockers| blockers.iter().map(|b| b.why).collect(), |_| Vec::new())
    }

    /// Asks again until the census is clear: the engine's cache of transactions is refreshed late.
    pub(crate) async fn clear_at_last(&self, cutoff: &Cutoff, view: &ProxyView) -> CensusCounts {
        let asking = async {
            loop {
                if let Ok(counts) = self.census(cutoff, view).await {
                    return counts;
                }
            }
        };
        tokio::time::timeout(PATIENCE, asking).await.expect("the census is never clear")
    }

    /// Waits until the thread is there no more.
    pub(crate) fn gone(&self, thread: u32) {
        self.level(
            "the thread is gone",
            &format!("SELECT COUNT(*) = 0 FROM information_schema.PROCESSLIST WHERE ID = {thread}"),
        );
    }

    /// Waits until the thread's state in the process list is this one.
    pub(crate) fn waits(&self, thread: u32, state: &str) {
        self.level(
            state,
            &format!(
                "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {thread} \
             AND STATE = '{state}'"
            ),
        );
    }

    pub(crate) fn level(&self, what: &str, sql: &str) {
        let found = poll(PATIENCE, || (self.sql(sql) == "1").then_some(()));
        assert!(found.is_some(), "never: {what}");
    }
}

/// The control account's settings, without TLS.
pub(crate) fn settings(cluster: &MyCluster) -> Settings {
    Settings {
        name: EngineName::new("old").unwrap(),
        instance: "test".to_owned(),
        host: "127.0.0.1".to_owned(),
        port: cluster.port(),
        user: "fencewire".to_owned(),
        password: Some(Secret::new("fencewire".to_owned())),
        database: String::new(),
        tls: ClientTls::disabled(),
        connect_timeout: Duration::from_secs(30),
        statement_timeout: Duration::from_secs(30),
        engine_lock: EngineLock::Hold,
        lock_timeout: SHORT,
    }
}

/// A server of the test's own, with further settings.
pub(crate) fn own(flavour: MyFlavour, settings: &[(&str, &str)]) -> MyCluster {
    let settings = settings.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    MyCluster::start(flavour, MyOptions { settings, ..MyOptions::default() })
}

pub(crate) fn thread(client: &MyWire) -> u32 {
    client.greeting.thread_id
}
