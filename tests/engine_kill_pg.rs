//! The engine killed at every step of a fence.
//!
//! Purpose: the crash sweep's third part (proof.md 7). At each named step of an acquire and of a
//! release the engine is stopped at once, killed with all its processes, or loses its postmaster;
//! then it is started again. What was found before is void, nothing is proven while it is down,
//! and the same command comes to its end. Each cluster here is durable: what it loses, a real
//! server would lose.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod acceptance;
mod support;

use acceptance::sweep::{
    ACQUIRE, ACQUIRE_STEPS, Park, RELEASE, RELEASE_STEPS, Sent, answer, is_proven_at, send,
};
use acceptance::{PATIENCE, Site, applied, blockers, code, draining, patient};
use serde_json::Value;
use support::proxy::uuid;
use support::wire::query;
use support::{Options, PgCluster, Proxy, poll};

/// A way for an engine to end.
#[derive(Debug, Clone, Copy)]
enum Death {
    /// SIGKILL to all of it, as when its machine stops.
    All,
    /// SIGKILL to the postmaster.
    Postmaster,
    /// An immediate stop.
    AtOnce,
}

const DEATHS: [Death; 3] = [Death::All, Death::Postmaster, Death::AtOnce];

impl Death {
    fn of(self, cluster: &mut PgCluster) {
        match self {
            Self::All => cluster.kill(),
            Self::Postmaster => cluster.kill_postmaster(),
            Self::AtOnce => cluster.stop_at_once(),
        }
    }
}

fn durable() -> PgCluster {
    PgCluster::start(Options { durable: true, ..Options::default() })
}

/// One namespace whose engine comes and goes.
struct Case<'a> {
    cluster: &'a mut PgCluster,
    proxy: &'a Proxy,
    db: String,
}

impl Case<'_> {
    fn site(&self) -> Site<'_> {
        Site::at(self.cluster, self.proxy, &self.db)
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

    /// While the engine is down: draining, and the reason is told.
    fn stays_unproven(&self, sent: &Sent, what: &str) {
        let told = poll(PATIENCE, || {
            let seen = self.inspect();
            let reason = seen["drain"]["reason"].as_str().unwrap_or_default().to_owned();
            let named = reason.contains("census_unavailable") || reason.contains("lost");
            (draining(&seen) && named).then_some(())
        });
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
        direct.send_raw(&query("INSERT INTO t VALUES (1)"));
        site.wait_for_lock(direct.backend_pid());
        assert_eq!(site.rows(), rows, "VIOLATION: {what}: rows behind the acknowledgement");
        site.unfence(operation);
        direct.until_ready().ok();
        site.client().query("INSERT INTO t VALUES (2)").ok();
    }
}

/// The engine dies when an acquire has come to `step`. A writer that is open then, where the step
/// is one that a drain with a writer in front of it comes to, is gone for good.
fn dies_in_acquire(cluster: &mut PgCluster, proxy: &mut Proxy, step: &str, death: Death) {
    let what = format!("{death:?} at {step}");
    eprintln!("{what}");
    let park = Park::arm(proxy, step);
    let db = cluster.fresh_db();
    let case = Case { cluster, proxy, db };
    case.site().setup("CREATE TABLE t (n int)");
    case.site().client().query("INSERT INTO t VALUES (0)").ok();
    let mut writer = case.site().client();
    let begun = if step.ends_with("after_overlay") || step.ends_with("after_cutoff") {
        "BEGIN; INSERT INTO t VALUES (7)"
    } else {
        "BEGIN; SELECT n FROM t"
    };
    writer.query(begun).ok();
    let operation = uuid();
    let body = case.site().acquire_body(&operation, &patient());
    let sent = case.send(ACQUIRE, &body);
    park.reached();
    death.of(case.cluster);
    park.open();
    if !is_proven_at(step) {
        case.stays_unproven(&sent, &what);
    }
    case.cluster.start_again();
    let done = answer(sent, proxy);
    let fence = &applied(&done)["fence"];
    assert_eq!(fence["revision"], 2, "{what}");
    assert!(fence["frozen_boundary"]["value"].is_string(), "{what}: {fence:#}");
    assert!(writer.closed_within(PATIENCE), "{what}: a session outlived its engine");
    case.stands_and_falls(&operation, "0", &what);
}

/// Every second step beginning with `first`, each with another death than the one before.
fn acquires(first: usize) {
    let mut cluster = durable();
    let mut proxy = Proxy::start(&cluster);
    for (n, step) in ACQUIRE_STEPS.iter().enumerate().skip(first).step_by(2) {
        dies_in_acquire(&mut cluster, &mut proxy, step, DEATHS[(n + first) % 3]);
    }
}

#[test]
fn acceptance_10_the_engine_dies_at_the_even_steps_of_an_acquire() {
    acquires(0);
}

#[test]
fn acceptance_10_the_engine_dies_at_the_odd_steps_of_an_acquire() {
    acquires(1);
}

#[test]
fn acceptance_10_the_engine_dies_at_each_step_of_a_release() {
    let mut cluster = durable();
    let mut proxy = Proxy::start(&cluster);
    for (step, death) in RELEASE_STEPS.iter().zip(DEATHS.iter().cycle()) {
        let what = format!("{death:?} at {step}");
        eprintln!("{what}");
        let park = Park::arm(&mut proxy, step);
        let db = cluster.fresh_db();
        let case = Case { cluster: &mut cluster, proxy: &proxy, db };
        case.site().setup("CREATE TABLE t (n int)");
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

#[test]
fn acceptance_08_a_prepared_transaction_survives_the_engine_and_is_still_waited_for() {
    let mut cluster = durable();
    let mut proxy = Proxy::start(&cluster);
    let park = Park::arm(&mut proxy, "control.acquire.after_cutoff");
    let db = cluster.fresh_db();
    let case = Case { cluster: &mut cluster, proxy: &proxy, db };
    case.site().setup("CREATE TABLE t (n int)");
    let gid = format!("survivor-{}", case.db);
    let mut client = case.site().client();
    client.query("BEGIN; INSERT INTO t VALUES (5)").ok();
    client.query(&format!("PREPARE TRANSACTION '{gid}'")).ok();
    let operation = uuid();
    let body = case.site().acquire_body(&operation, &patient());
    let sent = case.send(ACQUIRE, &body);
    park.reached();
    Death::All.of(case.cluster);
    park.open();
    case.stays_unproven(&sent, "a prepared transaction");
    case.cluster.start_again();
    case.site().wait("the survivor is named", |seen| {
        draining(seen) && blockers(seen).iter().any(|b| b.to_string().contains(&gid))
    });
    assert!(!sent.is_finished(), "VIOLATION: acknowledged over a prepared transaction");
    case.site().sql(&format!("COMMIT PREPARED '{gid}'"));
    applied(&answer(sent, &proxy));
    case.stands_and_falls(&operation, "5", "a prepared transaction");
}

#[test]
fn a_standing_fence_outlives_its_engine_and_tells_the_gap() {
    let mut cluster = durable();
    let mut proxy = Proxy::start(&cluster);
    for death in DEATHS {
        let what = format!("{death:?} under a standing fence");
        let db = cluster.fresh_db();
        let case = Case { cluster: &mut cluster, proxy: &proxy, db };
        case.site().setup("CREATE TABLE t (n int)");
        let operation = case.site().fence();
        let boundary = case.inspect()["fence"]["frozen_boundary"].clone();
        death.of(case.cluster);
        let told = poll(PATIENCE, || {
            let seen = case.inspect();
            seen["fence"]["engine_lock"]["gaps"].to_string().contains("lost").then_some(())
        });
        assert!(told.is_some(), "{what}: the gap isn't told");
        case.cluster.start_again();
        case.stands_and_falls(&operation, "", &what);
        assert!(boundary["value"].is_string(), "{what}");
    }
    // The same, and the proxy dies with its engine: it comes back closed, before the engine does.
    let db = cluster.fresh_db();
    Site::at(&cluster, &proxy, &db).setup("CREATE TABLE t (n int)");
    let operation = Site::at(&cluster, &proxy, &db).fence();
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

#[test]
fn acceptance_09_an_engine_that_dies_in_a_commit_has_it_or_not_and_nothing_changes_later() {
    let mut cluster = durable();
    let proxy = Proxy::start(&cluster);
    for death in DEATHS {
        let what = format!("{death:?} in a commit");
        let db = cluster.fresh_db();
        let case = Case { cluster: &mut cluster, proxy: &proxy, db };
        // The commit stands at a door that opens only with the engine's end.
        case.site().setup(
            "CREATE TABLE t (n int);
             CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
                 $f$ BEGIN PERFORM pg_sleep(3600); RETURN NULL; END $f$;
             CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW WHEN (NEW.n = 5) EXECUTE FUNCTION slow()",
        );
        let mut writer = case.site().client();
        let pid = writer.backend_pid();
        writer.query("BEGIN; INSERT INTO t VALUES (5)").ok();
        writer.send_raw(&query("COMMIT"));
        let waits = format!("SELECT wait_event FROM pg_stat_activity WHERE pid = {pid}");
        case.site().wait_sql(&waits, "PgSleep");
        let operation = uuid();
        let body = case.site().acquire_body(&operation, &patient());
        let sent = case.send(ACQUIRE, &body);
        case.site().wait_blocked_by(pid);
        assert!(!sent.is_finished());
        death.of(case.cluster);
        case.stays_unproven(&sent, &what);
        assert!(writer.closed_within(PATIENCE), "{what}");
        case.cluster.start_again();
        let done = answer(sent, &proxy);
        let releases = &applied(&done)["fence"]["evidence"]["releases"];
        assert_eq!(releases["by_engine"], 1, "{what}: {releases:#}");
        case.stands_and_falls(&operation, "", &what);
    }
}
