//! Login triggers under a write fence, on PostgreSQL 18: they run before anything can be guarded.
//!
//! Purpose: what a login trigger writes is neither admitted nor guarded as a program is, and the
//! engine lock covers neither sequences nor new tables. So behind an acknowledged fence no login
//! reaches it, and a fence isn't acknowledged while one runs. Each test has its control arm: the
//! same with the guard `login-triggers` removed.
//!
//! Who runs it: `cargo test`. What the wire does in each turn of a login is in `wire/pg/auth.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod capability;
mod support;

use acceptance::{
    Latch, PATIENCE, Site, applied, blockers, code, fail_after, force_after, still_draining,
};
use capability::Moved;
use support::proxy::uuid;
use support::wire::Fields;
use support::{PgCluster, Proxy, Wire, poll};

/// A trigger that works for those who call themselves so, and lets the tests' own logins be.
const TRIGGER: &str = "CREATE SEQUENCE s;
CREATE FUNCTION noted() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER AS $f$ BEGIN
    IF current_setting('application_name') = 'belated' THEN
        PERFORM pg_advisory_xact_lock_shared(77);
    END IF;
    IF current_setting('application_name') IN ('belated', 'drawing') THEN
        PERFORM nextval('public.s');
    END IF;
END $f$;
CREATE EVENT TRIGGER at_login ON login EXECUTE FUNCTION noted()";

fn log_in(site: &Site<'_>, name: &str) -> Result<Wire, Fields> {
    let named = [("application_name", name)];
    Wire::try_connect(site.proxy.port(), "wire", &site.db, &named)
}

#[track_caller]
fn assert_turned_away(site: &Site<'_>, operation: &str) {
    let Err(told) = log_in(site, "drawing") else { panic!("VIOLATION: a login passed") };
    assert_eq!((told[&'C'].as_str(), told[&'S'].as_str()), ("ZF001", "FATAL"));
    assert!(told[&'M'].contains("\"at_login\"") && told[&'D'].contains(operation), "{told:?}");
}

#[test]
fn a_login_that_a_trigger_would_run_at_is_refused_until_it_is_disabled() {
    for (guard, drawn) in [("", "f"), ("login-triggers", "t")] {
        let proxy = Proxy::without_18(guard);
        let site = Site::new(PgCluster::shared_18(), &proxy);
        site.sql(TRIGGER);
        let drew = || site.sql("SELECT is_called FROM s");
        let mut before = log_in(&site, "before").unwrap();
        let operation = site.fence();
        let told = log_in(&site, "drawing");
        assert_eq!(drew(), drawn, "VIOLATION: without {guard:?} a value is drawn, or not");
        assert_eq!(told.is_err(), guard.is_empty());
        if guard.is_empty() {
            assert_turned_away(&site, &operation);
            // Who is there stays there, and reads.
            assert_eq!(code(&before.query("SELECT count(*) FROM t")), "");
            site.sql("ALTER EVENT TRIGGER at_login DISABLE");
            log_in(&site, "drawing").unwrap().query("SELECT count(*) FROM t").ok();
            site.sql("ALTER EVENT TRIGGER at_login ENABLE");
            site.unfence(&operation);
            let operation = site.fence();
            assert_turned_away(&site, &operation);
            assert_eq!(drew(), "f");
            site.unfence(&operation);
            log_in(&site, "drawing").unwrap().query("SELECT 1").ok();
            assert_eq!(drew(), "t", "without a fence it runs as ever");
        }
    }
}

/// The engine lets nobody wait for a login by itself: before its trigger runs it is in no
/// transaction, and in none that a census could name.
#[test]
fn a_login_that_began_before_a_fence_is_waited_for() {
    for guard in ["", "login-triggers"] {
        let mut proxy = Proxy::without_18(guard);
        let go_on = proxy.state_dir().with_file_name("go-on");
        proxy.stop();
        let park = format!("wire.login_listed=park:{}", go_on.display());
        proxy.set_env(&[("FENCEWIRE_REMOVE", guard), ("FENCEWIRE_FAULT", &park)]);
        proxy.restart();
        let site = Site::new(PgCluster::shared_18(), &proxy);
        site.sql(TRIGGER);
        std::thread::scope(|threads| {
            let late = threads.spawn(|| log_in(&site, "drawing").map(drop));
            let parked = go_on.with_extension("parked");
            assert!(poll(PATIENCE, || parked.exists().then_some(())).is_some(), "nobody parked");
            let body = site.acquire_body(&uuid(), &fail_after(300));
            let answer = site.acquire(&body);
            assert_eq!(site.sql("SELECT is_called FROM s"), "f");
            let acknowledged = answer.1["outcome"] == "APPLIED";
            std::fs::write(&go_on, "").unwrap();
            late.join().unwrap().unwrap();
            // Behind the answer: in the control arm behind an acknowledged fence.
            assert_eq!(site.sql("SELECT is_called FROM s"), "t");
            assert_eq!(acknowledged, !guard.is_empty(), "VIOLATION: {:#}", answer.1);
            if !acknowledged {
                assert_waits_for_a_login(still_draining(&answer));
            }
            site.acquire_at_last(&body);
        });
    }
}

#[track_caller]
fn assert_waits_for_a_login(said: &serde_json::Value) {
    let named = blockers(said);
    assert!(named.iter().all(|one| one["class"] == "login") && named.len() == 1, "{said:#}");
}

#[test]
fn a_fence_is_not_acknowledged_while_a_trigger_runs_at_a_login() {
    let proxy = Proxy::without_18("");
    let site = Site::new(PgCluster::shared_18(), &proxy);
    site.sql(TRIGGER);
    let latch = Latch::shut(&site);
    std::thread::scope(|threads| {
        let late = threads.spawn(|| log_in(&site, "belated").map(drop));
        let stands = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                      AND wait_event = 'advisory'";
        site.wait_sql(stands, "1");
        // Force doesn't reach it, and ends nobody for it.
        let body = site.acquire_body(&uuid(), &force_after(100));
        let answer = site.acquire(&body);
        assert_waits_for_a_login(still_draining(&answer));
        assert_eq!(answer.1["drain"]["forced"], serde_json::json!([]), "{:#}", answer.1);
        assert_eq!(site.sql("SELECT is_called FROM s"), "f");
        latch.open();
        late.join().unwrap().unwrap();
        assert_eq!(site.sql("SELECT is_called FROM s"), "t");
        site.acquire_at_last(&body);
    });
}

/// Nobody but a login asks, behind a restart under a fence.
#[test]
fn a_restarted_proxy_finds_out_before_the_first_login() {
    let mut proxy = Proxy::without_18("");
    let site = Site::new(PgCluster::shared_18(), &proxy);
    site.sql(TRIGGER);
    let (db, operation) = (site.db.clone(), site.fence());
    drop(site);
    proxy.kill9();
    proxy.restart();
    let site = Site::at(PgCluster::shared_18(), &proxy, &db);
    assert_turned_away(&site, &operation);
    assert_eq!(site.sql("SELECT is_called FROM s"), "f");
    site.sql("DROP EVENT TRIGGER at_login");
    log_in(&site, "drawing").unwrap().query("SELECT count(*) FROM t").ok();
    site.unfence(&operation);
}

/// That there was none when a stranger logged in before says nothing: imports go on at a target.
#[test]
fn a_trigger_that_is_made_at_a_target_keeps_the_next_stranger_out() {
    let proxy = Proxy::without_18("");
    let (cluster, db) = (PgCluster::shared_18(), "late_trigger");
    let target = Moved::created(&proxy, &format!("old/{db}"));
    let stranger = || {
        let named = [("application_name", "drawing")];
        Wire::try_connect(proxy.port(), "wire", db, &named).map(drop)
    };
    stranger().expect("nothing runs at a login yet");
    cluster.sql(db, TRIGGER);
    let assert_kept_out = || {
        let Err(told) = stranger() else { panic!("VIOLATION: a login passed") };
        assert_eq!(told[&'C'], "ZF004", "{told:?}");
        assert_eq!(cluster.sql(db, "SELECT is_called FROM s"), "f");
    };
    assert_kept_out();
    applied(&target.command("target/abort", &serde_json::json!({})));
    assert_kept_out();
    // Its database gone, the engine says so itself.
    cluster.sql("postgres", &format!("DROP DATABASE {db} WITH (FORCE)"));
    let told = stranger().unwrap_err();
    assert_eq!(told[&'C'], "3D000", "{told:?}");
}

/// It is in no database, and runs none of its triggers.
#[test]
fn a_physical_replica_logs_in_under_a_fence() {
    let proxy = Proxy::without_18("");
    let site = Site::new(PgCluster::shared_18(), &proxy);
    site.sql(TRIGGER);
    site.sql("ALTER ROLE wire REPLICATION");
    let operation = site.fence();
    for (kind, passes) in [("true", true), ("database", false)] {
        let named = [("application_name", "drawing"), ("replication", kind)];
        let replica = Wire::try_connect(proxy.port(), "wire", &site.db, &named);
        assert_eq!(replica.is_ok(), passes, "replication={kind}: {:?}", replica.err());
    }
    assert_eq!(site.sql("SELECT is_called FROM s"), "f", "VIOLATION: a replica ran the trigger");
    site.unfence(&operation);
}
