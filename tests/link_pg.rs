//! The link between proxy and engine, broken at every step of a fence.
//!
//! Purpose: the crash sweep's second part (proof.md 7). At each named step of an acquire and of a
//! release the control connections are cut, torn, half closed, left silent, or cut on one side
//! only; then: nothing is proven on evidence that isn't there, no write passes behind an
//! acknowledgement, and once the link is whole the same command comes to its end. The same for the
//! connection that holds the fence's lock, and for a client's with a transaction open.
//!
//! Each step is reached by the proxy's own fault points. The links are `support/fault_link.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod acceptance;
mod support;

use acceptance::sweep::{
    ACQUIRE, ACQUIRE_STEPS, Park, RELEASE, RELEASE_STEPS, answer, is_proven_at, logged, send,
};
use acceptance::{
    Latch, PATIENCE, Site, applied, blockers, code, draining, fail_after, force_after, patient,
    still_draining,
};
use serde_json::Value;
use support::fault_link::{Break, FaultLink, Kind};
use support::proxy::uuid;
use support::wire::query;
use support::{Engine, PgCluster, Proxy, ProxyOptions, Wire, poll};

/// A proxy whose engine is behind a link that can break.
struct Stage {
    cluster: &'static PgCluster,
    link: FaultLink,
    proxy: Proxy,
}

impl Stage {
    fn new() -> Self {
        let cluster = PgCluster::shared();
        let link = FaultLink::to(cluster.port());
        let url = format!("postgres://fencewire:fencewire@127.0.0.1:{}/postgres", link.port());
        let engine = Engine { url, ..Engine::plain("old", cluster) };
        let options = ProxyOptions { engines: vec![engine], ..ProxyOptions::default() };
        Self { cluster, proxy: Proxy::start_with(options), link }
    }

    fn site(&self) -> Site<'_> {
        Site::new(self.cluster, &self.proxy)
    }

    /// Breaks the control side's link and waits until the proxy has noticed, where it can.
    fn break_control(&self, how: Break) {
        // One that is being opened beside the first commit hasn't begun, and says so instead.
        let ends = ["a control connection ended", "isn't opened before it is needed"];
        let ended = || ends.iter().map(|end| logged(&self.proxy, end)).sum::<usize>();
        let (before, carried) = (ended(), self.link.count(Kind::Control));
        self.link.breaks(Kind::Control, how);
        if how == Break::Stall {
            return;
        }
        let noticed = poll(PATIENCE, || (ended() >= before + carried).then_some(()));
        assert!(noticed.is_some(), "{how:?} isn't noticed:\n{}", self.proxy.log_tail());
    }
}

/// What a drain says about the engine that it can't ask.
fn says_why(seen: &Value) -> bool {
    let reason = seen["drain"]["reason"].as_str().unwrap_or_default();
    reason.contains("census_unavailable") || reason.contains("lost")
}

fn gaps(seen: &Value) -> String {
    seen["fence"]["engine_lock"]["gaps"].to_string()
}

/// An acquire during which the control side's link breaks at `step`.
fn acquire_over(stage: &mut Stage, step: &str, how: Break) {
    eprintln!("{how:?} at {step}");
    let park = Park::arm(&mut stage.proxy, step);
    let site = stage.site();
    let mut old = site.client();
    old.query("BEGIN; SELECT n FROM t").ok();
    let operation = uuid();
    let body = site.acquire_body(&operation, &patient());
    let sent = send(&stage.proxy, &site.namespace(), ACQUIRE, &body);
    park.reached();
    stage.break_control(how);
    park.open();
    let lost = how != Break::Stall;
    let evidence = is_proven_at(step) || (!lost && step == "control.acquire.after_drain");
    let done = if evidence {
        let done = answer(sent, &stage.proxy);
        stage.link.heal();
        done
    } else {
        site.wait("it drains, and says why", |seen| draining(seen) && (!lost || says_why(seen)));
        assert_eq!(code(&site.client().query("INSERT INTO t VALUES (7)")), "ZF001");
        assert!(!sent.is_finished(), "VIOLATION: {how:?} at {step}: acknowledged without engine");
        stage.link.heal();
        answer(sent, &stage.proxy)
    };
    let fence = &applied(&done)["fence"];
    assert_eq!((&fence["state"], &fence["revision"]), (&"SOURCE_WRITE_FENCED".into(), &2.into()));
    assert!(fence["frozen_boundary"]["value"].is_string(), "{fence:#}");
    assert_eq!(code(&old.query("INSERT INTO t VALUES (8)")), "ZF001");
    let seen = site.wait("the lock is held", |seen| seen["fence"]["engine_lock"]["held"] == true);
    if lost && is_proven_at(step) {
        assert!(gaps(&seen).contains("lost"), "the gap isn't told: {seen:#}");
    }
    finish(&site, &operation);
}

/// Under the fence a direct session waits; once it is released everybody writes.
fn finish(site: &Site<'_>, operation: &str) {
    let mut direct = site.direct();
    direct.send_raw(&query("INSERT INTO t VALUES (1)"));
    site.wait_for_lock(direct.backend_pid());
    assert_eq!(site.rows(), "", "VIOLATION: a write behind the acknowledgement");
    site.unfence(operation);
    everybody_writes(site, &mut direct);
}

fn everybody_writes(site: &Site<'_>, direct: &mut Wire) {
    direct.until_ready().ok();
    site.client().query("INSERT INTO t VALUES (2)").ok();
    assert_eq!(site.rows(), "1,2");
}

fn acquires_over(how: Break, steps: &[&str]) {
    let mut stage = Stage::new();
    for step in steps {
        acquire_over(&mut stage, step, how);
    }
}

#[test]
fn acceptance_10_the_link_is_reset_at_each_step_of_an_acquire() {
    acquires_over(Break::Rst, ACQUIRE_STEPS);
}

#[test]
fn acceptance_10_the_link_falls_silent_at_each_step_of_a_drain() {
    acquires_over(Break::Stall, &ACQUIRE_STEPS[4..15]);
}

#[test]
fn acceptance_10_the_link_is_cut_on_one_side_at_each_step_of_a_drain() {
    acquires_over(Break::Vanish, &ACQUIRE_STEPS[6..14]);
}

#[test]
fn acceptance_10_the_link_is_closed_or_half_closed_at_each_step_of_a_drain() {
    acquires_over(Break::Fin, &ACQUIRE_STEPS[6..13]);
    acquires_over(Break::HalfClose, &ACQUIRE_STEPS[6..13]);
}

/// A release during which the control side's link breaks at `step`. It needs no engine; what the
/// engine still has of ours must not keep anybody from writing for long.
fn release_over(stage: &mut Stage, step: &str, how: Break) {
    eprintln!("{how:?} at {step}");
    let park = Park::arm(&mut stage.proxy, step);
    let site = stage.site();
    let operation = site.fence();
    let body = site.release_body(&operation);
    let mut direct = site.direct();
    direct.send_raw(&query("INSERT INTO t VALUES (1)"));
    site.wait_for_lock(direct.backend_pid());
    let sent = send(&stage.proxy, &site.namespace(), RELEASE, &body);
    park.reached();
    // Whether the proxy has noticed makes no difference here.
    stage.link.breaks(Kind::Control, how);
    park.open();
    let done = answer(sent, &stage.proxy);
    let fence = &applied(&done)["fence"];
    assert_eq!((&fence["state"], &fence["revision"]), (&"RELEASED".into(), &3.into()), "{step}");
    assert_eq!(fence["admission"]["write"], "open");
    stage.link.heal();
    everybody_writes(&site, &mut direct);
    assert_eq!(applied(&site.release(&body))["replayed"], true, "{step}");
}

fn releases_over(how: Break) {
    let mut stage = Stage::new();
    for step in RELEASE_STEPS {
        release_over(&mut stage, step, how);
    }
}

#[test]
fn acceptance_10_the_link_is_reset_at_each_step_of_a_release() {
    releases_over(Break::Rst);
}

#[test]
fn acceptance_10_the_link_falls_silent_at_each_step_of_a_release() {
    releases_over(Break::Stall);
}

#[test]
fn acceptance_10_a_lock_behind_a_link_cut_on_one_side_does_not_outlive_its_fence() {
    releases_over(Break::Vanish);
}

#[test]
fn a_boundary_whose_answer_is_torn_is_marked_again() {
    let stage = Stage::new();
    // The answers to Parse and to Execute, cut at the beginning, in the middle and behind them.
    for bytes in [0, 1, 4, 5, 11, 30, 60, 90, 130, 400] {
        let site = stage.site();
        let operation = uuid();
        let body = site.acquire_body(&operation, &patient());
        let how = Break::Tear(bytes);
        stage.link.breaks_behind("pg_logical_emit_message", Kind::Control, how);
        let sent = send(&stage.proxy, &site.namespace(), ACQUIRE, &body);
        let torn = poll(PATIENCE, || stage.link.triggered().then_some(()));
        assert!(torn.is_some(), "the marker was never sent");
        if bytes < 60 {
            site.wait("it says why", says_why);
            assert!(!sent.is_finished(), "VIOLATION: acknowledged without a boundary: {how:?}");
        }
        stage.link.heal();
        applied(&answer(sent, &stage.proxy));
        finish(&site, &operation);
    }
}

#[test]
fn a_drain_whose_engine_keeps_silent_is_answered_when_its_time_is_over() {
    let mut stage = Stage::new();
    let park = Park::arm(&mut stage.proxy, "control.acquire.after_commit");
    let site = stage.site();
    let operation = uuid();
    let body = site.acquire_body(&operation, &fail_after(100));
    let sent = send(&stage.proxy, &site.namespace(), ACQUIRE, &body);
    park.reached();
    stage.break_control(Break::Stall);
    park.open();
    let done = answer(sent, &stage.proxy);
    let reason = still_draining(&done)["reason"].to_string();
    assert!(reason.contains("had not answered when the drain's time was over"), "{reason}");
    assert_eq!(code(&site.client().query("INSERT INTO t VALUES (7)")), "ZF001");
    stage.link.heal();
    site.acquire_at_last(&body);
    finish(&site, &operation);
}

#[test]
fn a_lock_that_is_lost_is_taken_again_and_the_gap_is_told() {
    let stage = Stage::new();
    for how in [Break::Rst, Break::Fin, Break::HalfClose, Break::Vanish] {
        let site = stage.site();
        let operation = site.fence();
        stage.link.breaks(Kind::Lock, how);
        site.wait("the gap is told", |seen| {
            gaps(seen).contains("lost with its connection")
                && seen["fence"]["engine_lock"]["held"] == false
        });
        assert_eq!(code(&site.client().query("INSERT INTO t VALUES (7)")), "ZF001", "{how:?}");
        stage.link.heal();
        // Told just behind the taking.
        site.wait("it is held again, and that is told", |seen| {
            seen["fence"]["engine_lock"]["held"] == true && gaps(seen).contains("taken (again)")
        });
        finish(&site, &operation);
    }
}

/// The backend that holds the fence's lock on `t`.
const HOLDER: &str = "SELECT pid FROM pg_locks WHERE relation = 't'::regclass
    AND mode = 'ShareLock' AND granted";

#[test]
fn a_lock_that_is_lost_behind_a_silent_link_proves_nothing() {
    let mut stage = Stage::new();
    let park = Park::arm(&mut stage.proxy, "control.acquire.after_lock");
    let site = stage.site();
    let operation = uuid();
    let body = site.acquire_body(&operation, &patient());
    let sent = send(&stage.proxy, &site.namespace(), ACQUIRE, &body);
    park.reached();
    stage.link.breaks(Kind::Lock, Break::Stall);
    site.sql(&format!("SELECT pg_terminate_backend(pid) FROM ({HOLDER}) h"));
    site.wait_sql(&format!("SELECT count(*) FROM ({HOLDER}) h"), "0");
    // Nobody is kept out now, and the proxy can't see it but by asking.
    site.direct().query("INSERT INTO t VALUES (0)").ok();
    park.open();
    site.wait("it asked, and noticed", says_why);
    assert!(!sent.is_finished(), "VIOLATION: acknowledged with a lock that was gone");
    site.sql("DELETE FROM t");
    stage.link.heal();
    applied(&answer(sent, &stage.proxy));
    finish(&site, &operation);
}

/// A client's link breaks while its transaction is open and a drain has come to `step`.
fn writer_over(stage: &mut Stage, step: &str, how: Break) {
    eprintln!("client: {how:?} at {step}");
    let park = Park::arm(&mut stage.proxy, step);
    let site = stage.site();
    let mut writer = site.client();
    writer.query("BEGIN; INSERT INTO t VALUES (5)").ok();
    let pid = writer.backend_pid();
    let operation = uuid();
    let body = site.acquire_body(&operation, &patient());
    let sent = send(&stage.proxy, &site.namespace(), ACQUIRE, &body);
    park.reached();
    stage.link.breaks(Kind::Client, how);
    park.open();
    if matches!(how, Break::Stall | Break::Vanish) {
        // Its backend is there and could still commit.
        // By the drain's own report: who would block one is told before it has looked.
        site.wait("a drain that runs waits", |seen| {
            seen["drain"]["phase"] != "idle" && !blockers(seen).is_empty()
        });
        site.wait_blocked_by(pid);
        assert!(
            !sent.is_finished(),
            "VIOLATION: {how:?} at {step}: an open writer isn't waited for"
        );
    }
    stage.link.heal();
    stage.link.tell_engine();
    if how == Break::Stall {
        writer.query("COMMIT").ok();
    }
    let done = answer(sent, &stage.proxy);
    let releases = &applied(&done)["fence"]["evidence"]["releases"];
    let expected = if how == Break::Stall { (1, 0) } else { (0, 1) };
    assert_eq!(
        (&releases["by_answer"], &releases["by_engine"]),
        (&expected.0.into(), &expected.1.into())
    );
    assert_eq!(site.rows(), if how == Break::Stall { "5" } else { "" });
    site.sql("SELECT 1");
    assert_eq!(code(&site.client().query("INSERT INTO t VALUES (6)")), "ZF001");
    site.unfence(&operation);
    site.client().query("DELETE FROM t").ok();
}

/// The steps that a drain with a writer in front of it comes to.
const BEFORE_LEASES: [&str; 3] = [
    "control.acquire.after_overlay",
    "control.acquire.before_drain",
    "control.acquire.after_cutoff",
];

#[test]
fn acceptance_09_a_writers_link_breaks_while_it_is_waited_for() {
    let mut stage = Stage::new();
    for how in [Break::Rst, Break::Fin, Break::HalfClose, Break::Vanish, Break::Stall] {
        for step in BEFORE_LEASES {
            writer_over(&mut stage, step, how);
        }
    }
}

#[test]
fn acceptance_07_force_reaches_a_writer_behind_a_silent_link() {
    let stage = Stage::new();
    let site = stage.site();
    let mut writer = site.client();
    writer.query("BEGIN; INSERT INTO t VALUES (5)").ok();
    stage.link.breaks(Kind::Client, Break::Stall);
    let operation = uuid();
    // It can't be told to roll back; its backend is ended, and the engine's word is what counts.
    let done = site.acquire(&site.acquire_body(&operation, &force_after(100)));
    let evidence = &applied(&done)["fence"]["evidence"];
    assert_eq!(evidence["releases"]["by_engine"], 1, "{evidence:#}");
    assert!(evidence["forced"].to_string().contains("terminat"), "{evidence:#}");
    stage.link.heal();
    assert!(writer.closed_within(PATIENCE));
    finish(&site, &operation);
}

#[test]
fn acceptance_09_the_answer_to_a_commit_is_torn_in_each_part() {
    let stage = Stage::new();
    // CommandComplete is 12 bytes, ReadyForQuery 6.
    for bytes in [0, 1, 4, 5, 11, 12, 13, 17, 18] {
        let site = stage.site();
        let mut writer = site.client();
        writer.query("BEGIN; INSERT INTO t VALUES (5)").ok();
        stage.link.breaks_behind("COMMIT", Kind::Client, Break::Tear(bytes));
        let ended = writer.try_exchange(&query("COMMIT"));
        stage.link.heal();
        let told = ended.as_ref().map_or_else(|failed| format!("{failed:?}"), code);
        match bytes {
            // Nothing can be put behind half a message.
            5..=11 => assert_eq!(told, "Closed(None)", "{bytes} bytes"),
            18 => assert_eq!(told, "", "the whole answer came"),
            _ => assert!(told.contains("08007"), "{bytes} bytes: {told}"),
        }
        let operation = site.fence();
        assert_eq!(site.rows(), "5", "{bytes} bytes");
        assert_eq!(code(&site.client().query("INSERT INTO t VALUES (6)")), "ZF001");
        site.unfence(&operation);
    }
}

#[test]
fn a_link_that_breaks_under_a_running_statement_is_waited_for_on_the_engine() {
    let stage = Stage::new();
    for how in [Break::Vanish, Break::HalfClose, Break::Rst] {
        let site = stage.site();
        let latch = Latch::shut(&site);
        let mut writer = site.client();
        let pid = writer.backend_pid();
        writer.send_raw(&query(&format!("INSERT INTO t SELECT 5 FROM {}", Latch::WAIT)));
        site.wait_at_latch(pid);
        stage.link.breaks(Kind::Client, how);
        stage.link.heal();
        let body = site.acquire_body(&uuid(), &patient());
        let sent = send(&stage.proxy, &site.namespace(), ACQUIRE, &body);
        // The statement runs on: it doesn't look at its socket before it has something to say.
        let seen = site.wait_blocked_by(pid);
        assert!(!blockers(&seen).is_empty());
        assert!(!sent.is_finished(), "VIOLATION: {how:?}: acknowledged while a write runs");
        latch.open();
        stage.link.tell_engine();
        applied(&answer(sent, &stage.proxy));
        let rows = site.rows();
        let operation = body["operation_id"].as_str().unwrap().to_owned();
        assert_eq!(code(&site.client().query("INSERT INTO t VALUES (6)")), "ZF001");
        assert_eq!(site.rows(), rows, "VIOLATION: a write behind the acknowledgement");
        site.unfence(&operation);
    }
}
