//! MariaDB and MySQL 9 killed at every step of a fence: the twin of `engine_kill_pg.rs`.
//!
//! Purpose: the crash sweep's third part (proof.md 7). At each named step of an acquire and of a
//! release the engine is killed, frozen and then killed, or stopped in order; then it is started
//! again. What was found before is void, nothing is proven while it is down, and the same command
//! comes to its end. And the engine killed in the middle of a client's COMMIT. Each server here is
//! durable: what it loses, a real one would lose.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod acceptance;
mod acceptance_mysql;
mod support;

use acceptance::sweep::{
    ACQUIRE, ACQUIRE_STEPS, Park, RELEASE, RELEASE_STEPS, Sent, answer, is_proven_at, send,
};
use acceptance::{PATIENCE, applied, blockers, draining, patient};
use acceptance_mysql::{MySite, code, on_both, thread};
use serde_json::Value;
use support::my_wire::MyLogin;
use support::proxy::uuid;
use support::{MyCluster, MyFlavour, MyOptions, MyWire, Proxy, poll};

on_both!(
    acceptance_10_the_engine_dies_at_the_even_steps_of_an_acquire,
    acceptance_10_the_engine_dies_at_the_odd_steps_of_an_acquire,
    acceptance_10_an_engine_that_restarts_in_a_drain_voids_what_was_found,
    acceptance_10_the_engine_dies_at_each_step_of_a_release,
    acceptance_08_a_prepared_branch_survives_the_engine_and_is_still_waited_for,
    a_standing_fence_outlives_its_engine_and_tells_the_gap,
    acceptance_09_an_engine_that_dies_in_a_commit_not_yet_made_has_none_of_it,
    acceptance_09_an_engine_that_dies_in_a_commit_already_logged_has_all_of_it,
);

/// A way for an engine to end.
#[derive(Debug, Clone, Copy)]
enum Death {
    /// SIGKILL, as when its machine stops.
    Killed,
    /// SIGSTOP first: it doesn't answer, and isn't known to be gone.
    Frozen,
    /// SIGTERM, which ends sessions and rolls back.
    Stopped,
}

const DEATHS: [Death; 3] = [Death::Killed, Death::Frozen, Death::Stopped];

impl Death {
    fn of(self, cluster: &mut MyCluster) {
        match self {
            Self::Killed => cluster.kill(),
            Self::Frozen => {
                cluster.freeze();
                cluster.kill();
            }
            Self::Stopped => cluster.stop(),
        }
    }
}

fn durable(flavour: MyFlavour) -> MyCluster {
    // MariaDB has it built in.
    let semisync = ("plugin_load_add".to_owned(), "semisync_source.so".to_owned());
    let settings = if flavour == MyFlavour::MySql { vec![semisync] } else { Vec::new() };
    MyCluster::start(flavour, MyOptions { durable: true, settings, ..MyOptions::default() })
}

/// One namespace whose engine comes and goes.
struct Case<'a> {
    cluster: &'a mut MyCluster,
    proxy: &'a Proxy,
    db: String,
}

impl<'a> Case<'a> {
    /// A fresh schema with an empty table `t (n int)`.
    fn new(cluster: &'a mut MyCluster, proxy: &'a Proxy) -> Self {
        let db = MySite::new(cluster, proxy).db.clone();
        Self { cluster, proxy, db }
    }

    fn site(&self) -> MySite<'_> {
        MySite::at(self.cluster, self.proxy, &self.db)
    }

    fn namespace(&self) -> String {
        format!("old/{}", self.db)
    }

    fn inspect(&self) -> Value {
        self.proxy.inspect(&self.namespace())
    }

    fn send(&self, route: &str, body: &Value) -> Sent {
        send(self.proxy, &self.namespace(), route, body)
    }

    /// Whether a drain says that it can't ask its engine.
    fn says_why(&self) -> bool {
        let seen = self.inspect();
        let reason = seen["drain"]["reason"].as_str().unwrap_or_default();
        draining(&seen) && (reason.contains("census_unavailable") || reason.contains("lost"))
    }

    /// Waits until the lock's loss is told. It isn't noticed at once, and the lock is shown as held
    /// until it is.
    fn tells_the_gap(&self, what: &str) {
        let told = poll(PATIENCE, || {
            let gaps = self.inspect()["fence"]["engine_lock"]["gaps"].to_string();
            gaps.contains("lost").then_some(())
        });
        assert!(told.is_some(), "{what}: the gap isn't told");
    }

    /// While the engine is down: draining, and the reason is told.
    fn stays_unproven(&self, sent: &Sent, what: &str) {
        let told = poll(PATIENCE, || self.says_why().then_some(()));
        assert!(told.is_some(), "{what}: the reason isn't told: {:#}", self.inspect());
        assert!(!sent.is_finished(), "VIOLATION: {what}: acknowledged without an engine");
    }

    /// The fence stands on the new engine: proxy sessions are refused, direct ones wait; and then
    /// everybody writes.
    fn stands_and_falls(&self, operation: &str, rows: &str, what: &str) {
        let site = self.site();
        assert_eq!(code(&site.client().query("INSERT INTO t VALUES (8)")), "ZF001", "{what}");
        site.wait("the lock is held", |seen| seen["fence"]["engine_lock"]["held"] == true);
        let mut direct = site.direct();
        direct.query("SET SESSION lock_wait_timeout = 600").ok();
        direct.begin_query("INSERT INTO t VALUES (1)").unwrap();
        let waits = format!(
            "SELECT STATE LIKE 'Waiting for table%lock' FROM information_schema.PROCESSLIST \
             WHERE ID = {}",
            thread(&direct)
        );
        site.wait_sql(&waits, "1");
        assert_eq!(site.rows(), rows, "VIOLATION: {what}: rows behind the acknowledgement");
        site.unfence(operation);
        direct.answer(&[]).unwrap().ok();
        site.client().query("INSERT INTO t VALUES (2)").ok();
    }
}

/// What a client whose engine is gone may hear: that nobody knows, or the close.
#[track_caller]
fn no_success(client: &mut MyWire, what: &str) {
    if let Ok(answer) = client.answer(&[]) {
        assert_eq!((code(&answer).as_str(), answer.code()), ("08007", 9790), "{what}: {answer:?}");
    }
    assert!(client.is_over(), "{what}: a session outlived its engine");
}

/// The engine dies when an acquire has come to `step`. A writer that is open then, where the step
/// is one that a drain with a writer in front of it comes to, is gone for good.
fn dies_in_acquire(cluster: &mut MyCluster, proxy: &mut Proxy, step: &str, death: Death) {
    let what = format!("{death:?} at {step}");
    eprintln!("{what}");
    let park = Park::arm(proxy, step);
    let case = Case::new(cluster, proxy);
    case.site().client().query("INSERT INTO t VALUES (0)").ok();
    let mut writer = case.site().client();
    writer.query("BEGIN").ok();
    let writes = step.ends_with("after_overlay") || step.ends_with("after_cutoff");
    writer.query(if writes { "INSERT INTO t VALUES (7)" } else { "SELECT n FROM t" }).ok();
    let operation = uuid();
    let body = case.site().acquire_body(&operation, &patient());
    let sent = case.send(ACQUIRE, &body);
    park.reached();
    death.of(case.cluster);
    park.open();
    if step == "control.acquire.after_drain" {
        // All was found, the lock by its own thread's word behind the rest. Whether its loss is
        // noticed before that is stored isn't said.
        let settled = poll(PATIENCE, || (sent.is_finished() || case.says_why()).then_some(()));
        assert!(settled.is_some(), "{what}: neither proven nor told: {:#}", case.inspect());
    } else if !is_proven_at(step) {
        case.stays_unproven(&sent, &what);
    }
    // On what was found before the death, where that was complete.
    let stood = is_proven_at(step) || sent.is_finished();
    case.cluster.start_again();
    let done = answer(sent, proxy);
    let fence = &applied(&done)["fence"];
    assert_eq!(fence["revision"], 2, "{what}");
    assert!(fence["frozen_boundary"]["value"].is_string(), "{what}: {fence:#}");
    assert!(writer.is_over(), "{what}: a session outlived its engine");
    if stood {
        case.tells_the_gap(&what);
    }
    case.stands_and_falls(&operation, "0", &what);
}

/// Every second step beginning with `first`, each with another death than the one before.
fn acquires(flavour: MyFlavour, first: usize) {
    let mut cluster = durable(flavour);
    let mut proxy = Proxy::start_my(&cluster);
    for (n, step) in ACQUIRE_STEPS.iter().enumerate().skip(first).step_by(2) {
        dies_in_acquire(&mut cluster, &mut proxy, step, DEATHS[(n + first) % 3]);
    }
}

fn acceptance_10_the_engine_dies_at_the_even_steps_of_an_acquire(flavour: MyFlavour) {
    acquires(flavour, 0);
}

fn acceptance_10_the_engine_dies_at_the_odd_steps_of_an_acquire(flavour: MyFlavour) {
    acquires(flavour, 1);
}

/// The transactions that the engine has logged, as its boundaries name them.
fn logged(site: &MySite<'_>) -> String {
    site.sql(match site.cluster.flavour() {
        MyFlavour::MariaDb => "SELECT @@gtid_binlog_pos",
        MyFlavour::MySql => "SELECT REPLACE(@@gtid_executed, '\n', '')",
    })
}

/// It is back before the drain looks again, and a session around the proxy has written meanwhile:
/// that write is on the near side of the boundary, or there is no proof.
fn acceptance_10_an_engine_that_restarts_in_a_drain_voids_what_was_found(flavour: MyFlavour) {
    let mut cluster = durable(flavour);
    let mut proxy = Proxy::start_my(&cluster);
    for step in
        ["after_leases", "after_census", "after_lock", "after_boundary", "after_second_census"]
    {
        let what = format!("a restart at {step}");
        eprintln!("{what}");
        let park = Park::arm(&mut proxy, &format!("control.acquire.{step}"));
        let case = Case::new(&mut cluster, &proxy);
        let operation = uuid();
        let body = case.site().acquire_body(&operation, &patient());
        let sent = case.send(ACQUIRE, &body);
        park.reached();
        Death::Killed.of(case.cluster);
        case.cluster.start_again();
        case.site().direct().query("INSERT INTO t VALUES (9)").ok();
        park.open();
        let done = answer(sent, &proxy);
        let boundary = &applied(&done)["fence"]["frozen_boundary"]["value"];
        assert_eq!(*boundary, logged(&case.site()), "VIOLATION: {what}: a change behind it");
        case.stands_and_falls(&operation, "9", &what);
    }
}

fn acceptance_10_the_engine_dies_at_each_step_of_a_release(flavour: MyFlavour) {
    let mut cluster = durable(flavour);
    let mut proxy = Proxy::start_my(&cluster);
    for (step, death) in RELEASE_STEPS.iter().zip(DEATHS.iter().cycle()) {
        let what = format!("{death:?} at {step}");
        eprintln!("{what}");
        let park = Park::arm(&mut proxy, step);
        let case = Case::new(&mut cluster, &proxy);
        let operation = case.site().fence();
        let body = case.site().release_body(&operation);
        let sent = case.send(RELEASE, &body);
        park.reached();
        death.of(case.cluster);
        park.open();
        // A release needs no engine.
        let done = answer(sent, &proxy);
        let fence = &applied(&done)["fence"];
        assert_eq!((&fence["state"], &fence["revision"]), (&"RELEASED".into(), &3.into()));
        case.cluster.start_again();
        let site = case.site();
        site.direct().query("INSERT INTO t VALUES (1)").ok();
        site.client().query("INSERT INTO t VALUES (2)").ok();
        assert_eq!(applied(&site.release(&body))["replayed"], true, "{what}");
        assert_eq!(site.rows(), "1,2", "{what}");
    }
}

fn acceptance_08_a_prepared_branch_survives_the_engine_and_is_still_waited_for(flavour: MyFlavour) {
    let mut cluster = durable(flavour);
    let mut proxy = Proxy::start_my(&cluster);
    let park = Park::arm(&mut proxy, "control.acquire.after_cutoff");
    let case = Case::new(&mut cluster, &proxy);
    let xid = format!("survivor-{}", case.db);
    let mut client = case.site().client();
    client.query(&format!("XA START '{xid}'")).ok();
    client.query("INSERT INTO t VALUES (5)").ok();
    client.query(&format!("XA END '{xid}'")).ok();
    client.query(&format!("XA PREPARE '{xid}'")).ok();
    let operation = uuid();
    let body = case.site().acquire_body(&operation, &patient());
    let sent = case.send(ACQUIRE, &body);
    park.reached();
    Death::Killed.of(case.cluster);
    park.open();
    case.stays_unproven(&sent, "a prepared branch");
    case.cluster.start_again();
    case.site().wait("the survivor is named", |seen| {
        draining(seen) && blockers(seen).iter().any(|b| b.to_string().contains(&xid))
    });
    assert!(!sent.is_finished(), "VIOLATION: acknowledged over a prepared branch");
    case.site().sql(&format!("XA COMMIT '{xid}'"));
    applied(&answer(sent, &proxy));
    case.stands_and_falls(&operation, "5", "a prepared branch");
}

fn a_standing_fence_outlives_its_engine_and_tells_the_gap(flavour: MyFlavour) {
    let mut cluster = durable(flavour);
    let mut proxy = Proxy::start_my(&cluster);
    for death in DEATHS {
        let what = format!("{death:?} under a standing fence");
        let case = Case::new(&mut cluster, &proxy);
        let operation = case.site().fence();
        let boundary = case.inspect()["fence"]["frozen_boundary"].clone();
        death.of(case.cluster);
        case.tells_the_gap(&what);
        case.cluster.start_again();
        assert_eq!(case.inspect()["fence"]["frozen_boundary"], boundary, "{what}");
        case.stands_and_falls(&operation, "", &what);
    }
    // The same, and the proxy dies with its engine: it comes back closed, before the engine does.
    let db = MySite::new(&cluster, &proxy).db.clone();
    let operation = MySite::at(&cluster, &proxy, &db).fence();
    proxy.kill9();
    cluster.kill();
    proxy.restart();
    let case = Case { cluster: &mut cluster, proxy: &proxy, db };
    let seen = case.inspect();
    assert_eq!(seen["fence"]["state"], "SOURCE_WRITE_FENCED", "{seen:#}");
    assert_eq!(seen["fence"]["admission"]["write"], "closed", "{seen:#}");
    case.cluster.start_again();
    case.stands_and_falls(&operation, "", "both died");
}

/// What holds a COMMIT up on the engine, and what is left of it when the engine dies then.
struct Hold {
    /// Run as root before the writer begins.
    setup: &'static str,
    /// Said by an account with RELOAD once the transaction has written; kept until the death.
    stop: Option<&'static str>,
    /// The thread's state while its COMMIT is held up.
    state: &'static str,
    /// What the table holds afterwards.
    rows: &'static str,
}

/// The engine dies while a client's COMMIT is with it, held up as told: the drain that waits for
/// that client isn't proven until the engine is back and has settled it, and then what it settled
/// is what stays, on the boundary's near side.
fn dies_in_commit(flavour: MyFlavour, hold: &Hold) {
    let mut cluster = durable(flavour);
    let proxy = Proxy::start_my(&cluster);
    let keeper = "CREATE USER keeper@'127.0.0.1' IDENTIFIED BY '';
        GRANT RELOAD ON *.* TO keeper@'127.0.0.1';";
    cluster.sql("mysql", keeper);
    for death in [Death::Killed, Death::Frozen] {
        let what = format!("{death:?} in a commit");
        let case = Case::new(&mut cluster, &proxy);
        let site = case.site();
        site.sql(hold.setup);
        let mut writer = site.client();
        writer.query("BEGIN").ok();
        writer.query("INSERT INTO t VALUES (5)").ok();
        let login = MyLogin { password: String::new(), ..MyLogin::of("keeper", "") };
        let mut keeper = MyWire::login(site.cluster.port(), &login).unwrap();
        if let Some(stop) = hold.stop {
            keeper.query(stop).ok();
        }
        writer.begin_query("COMMIT").unwrap();
        let id = thread(&writer);
        let held = format!(
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
             WHERE ID = {id} AND STATE LIKE '{}'",
            hold.state
        );
        site.wait_sql(&held, "1");
        let operation = uuid();
        let body = site.acquire_body(&operation, &patient());
        drop(site);
        let sent = case.send(ACQUIRE, &body);
        case.site().wait_blocked_by(id);
        assert!(!sent.is_finished(), "VIOLATION: {what}: acknowledged while a commit is held up");
        death.of(case.cluster);
        case.stays_unproven(&sent, &what);
        no_success(&mut writer, &what);
        case.cluster.start_again();
        let done = answer(sent, &proxy);
        let fence = &applied(&done)["fence"];
        assert_eq!(fence["evidence"]["releases"]["by_engine"], 1, "{what}: {fence:#}");
        // The engine's own last change is the boundary's: nothing of the commit came behind it.
        assert_eq!(fence["frozen_boundary"]["value"], logged(&case.site()), "{what}");
        case.stands_and_falls(&operation, hold.rows, &what);
    }
}

fn acceptance_09_an_engine_that_dies_in_a_commit_not_yet_made_has_none_of_it(flavour: MyFlavour) {
    dies_in_commit(
        flavour,
        &Hold {
            setup: "SELECT 1",
            stop: Some("FLUSH TABLES WITH READ LOCK"),
            state: "Waiting for % lock",
            rows: "",
        },
    );
}

/// The binary log has it, the storage engine hasn't: recovery brings it in, though its client was
/// never told.
fn acceptance_09_an_engine_that_dies_in_a_commit_already_logged_has_all_of_it(flavour: MyFlavour) {
    let setup = match flavour {
        MyFlavour::MariaDb => {
            "SET GLOBAL rpl_semi_sync_master_timeout = 3600000,
                rpl_semi_sync_master_wait_point = 'AFTER_SYNC', rpl_semi_sync_master_enabled = ON"
        }
        MyFlavour::MySql => {
            "SET GLOBAL rpl_semi_sync_source_timeout = 3600000,
                rpl_semi_sync_source_wait_point = 'AFTER_SYNC', rpl_semi_sync_source_enabled = ON"
        }
    };
    let state = "Waiting for semi-sync ACK%";
    dies_in_commit(flavour, &Hold { setup, stop: None, state, rows: "5" });
}
