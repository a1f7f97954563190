//! The link between proxy and MariaDB or MySQL 9, broken at the steps of a fence: the twin of
//! `link_pg.rs`.
//!
//! Purpose: the crash sweep's second part (proof.md 7). At the named steps the control
//! connections are cut, left silent, or cut on one side only; then: nothing is proven on evidence
//! that isn't there, no write passes behind an acknowledgement, and once the link is whole the same
//! command comes to its end. The same for a client's link with a transaction open, and for what of
//! ours a link cut on one side leaves on the engine.
//!
//! Each step is reached by the proxy's own fault points. The links are `support/fault_link.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod acceptance;
mod acceptance_mysql;
mod support;

use acceptance::sweep::{
    ACQUIRE, ACQUIRE_STEPS, Park, RELEASE, RELEASE_STEPS, answer, is_proven_at, send,
};
use acceptance::{
    PATIENCE, applied, blockers, draining, fail_after, force_after, patient, still_draining,
};
use acceptance_mysql::{MySite, code, on_both, own, thread};
use serde_json::Value;
use support::fault_link::{Break, FaultLink, Kind};
use support::proxy::uuid;
use support::{Engine, MyCluster, MyFlavour, MyWire, Proxy, ProxyOptions, poll};

on_both!(
    a_lock_behind_a_link_cut_on_one_side_is_ended_by_the_sweep,
    acceptance_10_the_link_is_reset_at_each_step_of_an_acquire,
    acceptance_10_the_link_is_cut_on_one_side_at_each_step_of_a_drain,
    acceptance_10_the_link_falls_silent_at_each_step_of_a_drain,
    acceptance_10_the_link_is_closed_at_each_step_of_a_drain,
    acceptance_10_the_link_is_half_closed_at_each_step_of_a_drain,
    acceptance_10_the_link_breaks_at_each_step_of_a_release,
    a_drain_whose_engine_keeps_silent_is_answered_when_its_time_is_over,
    a_lock_that_is_lost_is_taken_again_and_the_gap_is_told,
    a_lock_that_is_lost_behind_a_silent_link_proves_nothing,
    a_lock_whose_answer_is_torn_is_taken_again,
    acceptance_09_a_writers_link_breaks_while_it_is_waited_for,
    acceptance_07_force_reaches_a_writer_behind_a_silent_link,
    acceptance_09_the_answer_to_a_commit_is_torn_in_each_part,
    a_link_that_breaks_under_a_running_statement_is_waited_for_on_the_engine,
);

/// A proxy whose engine is behind a link that can break.
struct Stage<'a> {
    cluster: &'a MyCluster,
    link: FaultLink,
    proxy: Proxy,
}

impl Stage<'static> {
    fn new(flavour: MyFlavour, env: &[(&str, &str)]) -> Self {
        Self::before(MyCluster::shared(flavour), env)
    }
}

impl<'a> Stage<'a> {
    fn before(cluster: &'a MyCluster, env: &[(&str, &str)]) -> Self {
        let link = FaultLink::to_greeter(cluster.port());
        let url = format!("mysql://fencewire:fencewire@127.0.0.1:{}/", link.port());
        let engine = Engine { url, ..Engine::my_plain("old", cluster) };
        let env = env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let options = ProxyOptions { engines: vec![engine], env, ..ProxyOptions::default() };
        Self { cluster, proxy: Proxy::start_with(options), link }
    }

    fn site(&self) -> MySite<'_> {
        MySite::new(self.cluster, &self.proxy)
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

/// A direct session whose insert waits for the fence's lock.
fn waiting_insert(site: &MySite<'_>, patience_s: u32) -> MyWire {
    let mut direct = site.direct();
    direct.query(&format!("SET SESSION lock_wait_timeout = {patience_s}")).ok();
    direct.begin_query("INSERT INTO t VALUES (1)").unwrap();
    let waits = format!(
        "SELECT STATE LIKE 'Waiting for table%lock' FROM information_schema.PROCESSLIST \
         WHERE ID = {}",
        thread(&direct)
    );
    site.wait_sql(&waits, "1");
    direct
}

/// Under the fence a direct session waits; once it is released everybody writes.
fn finish(site: &MySite<'_>, operation: &str) {
    site.wait("the lock is held", |seen| seen["fence"]["engine_lock"]["held"] == true);
    let mut direct = waiting_insert(site, 600);
    assert_eq!(site.rows(), "", "VIOLATION: a write behind the acknowledgement");
    site.unfence(operation);
    everybody_writes(site, &mut direct);
}

fn everybody_writes(site: &MySite<'_>, direct: &mut MyWire) {
    direct.answer(&[]).unwrap().ok();
    site.client().query("INSERT INTO t VALUES (2)").ok();
    assert_eq!(site.rows(), "1,2");
}

/// The engine keeps a lock of which the proxy has lost the connection. Answers the number of the
/// error that a direct session's write got behind the release, 0 for none.
fn write_behind_a_lost_lock(flavour: MyFlavour, env: &[(&str, &str)], patience_s: u32) -> u16 {
    let stage = Stage::new(flavour, env);
    let site = stage.site();
    let operation = site.fence();
    stage.link.breaks(Kind::Lock, Break::Vanish);
    stage.link.heal();
    site.wait("the gap is told", |seen| gaps(seen).contains("lost with its connection"));
    let mut direct = waiting_insert(&site, patience_s);
    site.unfence(&operation);
    let written = direct.answer(&[]).unwrap();
    stage.link.tell_engine();
    written.code()
}

fn a_lock_behind_a_link_cut_on_one_side_is_ended_by_the_sweep(flavour: MyFlavour) {
    assert_eq!(write_behind_a_lost_lock(flavour, &[], 600), 0);
    // Control arm: without the sweep the lost lock outlives its fence, and the write gives up.
    let unswept = [("FENCEWIRE_REMOVE", "end-strays")];
    assert_eq!(write_behind_a_lost_lock(flavour, &unswept, 10), 1205);
}

/// An acquire during which the control side's link breaks at `step`.
fn acquire_over(stage: &mut Stage<'_>, step: &str, how: Break) {
    eprintln!("{how:?} at {step}");
    let park = Park::arm(&mut stage.proxy, step);
    let site = stage.site();
    let mut old = site.client();
    old.query("BEGIN").ok();
    old.query("SELECT n FROM t").ok();
    let operation = uuid();
    let body = site.acquire_body(&operation, &patient());
    let sent = send(&stage.proxy, &site.namespace(), ACQUIRE, &body);
    park.reached();
    stage.link.breaks(Kind::Control, how);
    park.open();
    let lost = how != Break::Stall;
    if step == "control.acquire.after_drain" {
        // All was found, the lock by its own thread's word behind the rest. Whether its loss is
        // noticed before that is stored isn't said.
        site.wait("it is proven, or says why", |seen| !draining(seen) || says_why(seen));
    } else if !is_proven_at(step) {
        site.wait("it drains, and says why", |seen| draining(seen) && (!lost || says_why(seen)));
        assert_eq!(code(&site.client().query("INSERT INTO t VALUES (7)")), "ZF001");
        assert!(!sent.is_finished(), "VIOLATION: {how:?} at {step}: acknowledged without engine");
    }
    // On what was found before the break, where that was complete.
    let stood = is_proven_at(step) || !draining(&site.inspect());
    stage.link.heal();
    let done = answer(sent, &stage.proxy);
    let fence = &applied(&done)["fence"];
    assert_eq!((&fence["state"], &fence["revision"]), (&"SOURCE_WRITE_FENCED".into(), &2.into()));
    assert!(fence["frozen_boundary"]["value"].is_string(), "{fence:#}");
    assert_eq!(code(&old.query("INSERT INTO t VALUES (8)")), "ZF001");
    if lost && stood {
        // The lock is shown as held until its loss is noticed.
        site.wait("the gap is told", |seen| gaps(seen).contains("lost"));
    }
    finish(&site, &operation);
}

fn acquires_over(flavour: MyFlavour, how: Break, steps: &[&str]) {
    let mut stage = Stage::new(flavour, &[]);
    for step in steps {
        acquire_over(&mut stage, step, how);
    }
}

fn acceptance_10_the_link_is_reset_at_each_step_of_an_acquire(flavour: MyFlavour) {
    acquires_over(flavour, Break::Rst, ACQUIRE_STEPS);
}

fn acceptance_10_the_link_is_cut_on_one_side_at_each_step_of_a_drain(flavour: MyFlavour) {
    acquires_over(flavour, Break::Vanish, &ACQUIRE_STEPS[6..14]);
}

fn acceptance_10_the_link_falls_silent_at_each_step_of_a_drain(flavour: MyFlavour) {
    acquires_over(flavour, Break::Stall, &ACQUIRE_STEPS[4..15]);
}

fn acceptance_10_the_link_is_closed_at_each_step_of_a_drain(flavour: MyFlavour) {
    acquires_over(flavour, Break::Fin, &ACQUIRE_STEPS[6..13]);
}

fn acceptance_10_the_link_is_half_closed_at_each_step_of_a_drain(flavour: MyFlavour) {
    acquires_over(flavour, Break::HalfClose, &ACQUIRE_STEPS[6..13]);
}

/// A release during which the control side's link breaks at `step`. It needs no engine; what the
/// engine still has of ours must not keep anybody from writing for long.
fn release_over(stage: &mut Stage<'_>, step: &str, how: Break) {
    eprintln!("{how:?} at {step}");
    let park = Park::arm(&mut stage.proxy, step);
    let site = stage.site();
    let operation = site.fence();
    let body = site.release_body(&operation);
    let mut direct = waiting_insert(&site, 600);
    let sent = send(&stage.proxy, &site.namespace(), RELEASE, &body);
    park.reached();
    stage.link.breaks(Kind::Control, how);
    park.open();
    let done = answer(sent, &stage.proxy);
    let fence = &applied(&done)["fence"];
    assert_eq!((&fence["state"], &fence["revision"]), (&"RELEASED".into(), &3.into()), "{step}");
    stage.link.heal();
    everybody_writes(&site, &mut direct);
    assert_eq!(applied(&site.release(&body))["replayed"], true, "{step}");
}

fn acceptance_10_the_link_breaks_at_each_step_of_a_release(flavour: MyFlavour) {
    let mut stage = Stage::new(flavour, &[]);
    for how in [Break::Rst, Break::Vanish, Break::Stall] {
        for step in RELEASE_STEPS {
            release_over(&mut stage, step, how);
        }
    }
}

fn a_lock_whose_answer_is_torn_is_taken_again(flavour: MyFlavour) {
    let stage = Stage::new(flavour, &[]);
    // The answer is an OK of eleven bytes.
    for bytes in [0, 1, 4, 5, 10] {
        let site = stage.site();
        let operation = uuid();
        let body = site.acquire_body(&operation, &patient());
        stage.link.breaks_behind("LOCK TABLES `", Kind::Control, Break::Tear(bytes));
        let sent = send(&stage.proxy, &site.namespace(), ACQUIRE, &body);
        let torn = poll(PATIENCE, || stage.link.triggered().then_some(()));
        assert!(torn.is_some(), "the lock was never asked for");
        site.wait("it drains", draining);
        assert!(!sent.is_finished(), "VIOLATION: acknowledged without a lock: {bytes}");
        stage.link.heal();
        applied(&answer(sent, &stage.proxy));
        finish(&site, &operation);
    }
}

/// A client's link breaks while its transaction is open and a drain has come to `step`.
fn writer_over(stage: &mut Stage<'_>, step: &str, how: Break) {
    eprintln!("client: {how:?} at {step}");
    let park = Park::arm(&mut stage.proxy, step);
    let site = stage.site();
    let mut writer = site.client();
    writer.query("BEGIN").ok();
    writer.query("INSERT INTO t VALUES (5)").ok();
    let id = thread(&writer);
    let operation = uuid();
    let body = site.acquire_body(&operation, &patient());
    let sent = send(&stage.proxy, &site.namespace(), ACQUIRE, &body);
    park.reached();
    stage.link.breaks(Kind::Client, how);
    park.open();
    if matches!(how, Break::Stall | Break::Vanish) {
        // Its thread is there and could still commit.
        // By the drain's own report: who would block one is told before it has looked.
        site.wait("a drain that runs waits", |seen| {
            seen["drain"]["phase"] != "idle" && !blockers(seen).is_empty()
        });
        site.wait_blocked_by(id);
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
    assert_eq!(code(&site.client().query("INSERT INTO t VALUES (6)")), "ZF001");
    site.unfence(&operation);
}

fn acceptance_09_a_writers_link_breaks_while_it_is_waited_for(flavour: MyFlavour) {
    let mut stage = Stage::new(flavour, &[]);
    for how in [Break::Rst, Break::Vanish, Break::Stall] {
        for step in ["control.acquire.before_drain", "control.acquire.after_cutoff"] {
            writer_over(&mut stage, step, how);
        }
    }
}

fn acceptance_09_the_answer_to_a_commit_is_torn_in_each_part(flavour: MyFlavour) {
    let stage = Stage::new(flavour, &[]);
    for bytes in [0, 1, 3, 4, 5, 8] {
        let site = stage.site();
        let mut writer = site.client();
        writer.query("BEGIN").ok();
        writer.query("INSERT INTO t VALUES (5)").ok();
        stage.link.breaks_behind("COMMIT", Kind::Client, Break::Tear(bytes));
        let ended = writer.try_query("COMMIT");
        stage.link.heal();
        // Nothing can be put behind half a packet; else it is said that nobody knows.
        let told = ended.as_ref().map_or_else(|_| "closed".to_owned(), code);
        assert!(["closed", "08007"].contains(&told.as_str()), "{bytes} bytes: {told}");
        assert!(bytes > 0 || told == "08007", "{told}");
        let operation = site.fence();
        assert_eq!(site.rows(), "5", "{bytes} bytes");
        assert_eq!(code(&site.client().query("INSERT INTO t VALUES (6)")), "ZF001");
        site.unfence(&operation);
    }
}

fn a_drain_whose_engine_keeps_silent_is_answered_when_its_time_is_over(flavour: MyFlavour) {
    let mut stage = Stage::new(flavour, &[]);
    let park = Park::arm(&mut stage.proxy, "control.acquire.after_commit");
    let site = stage.site();
    let operation = uuid();
    let body = site.acquire_body(&operation, &fail_after(100));
    let sent = send(&stage.proxy, &site.namespace(), ACQUIRE, &body);
    park.reached();
    stage.link.breaks(Kind::Control, Break::Stall);
    park.open();
    let done = answer(sent, &stage.proxy);
    let reason = still_draining(&done)["reason"].to_string();
    assert!(reason.contains("had not answered when the drain's time was over"), "{reason}");
    assert_eq!(code(&site.client().query("INSERT INTO t VALUES (7)")), "ZF001");
    stage.link.heal();
    site.acquire_at_last(&body);
    finish(&site, &operation);
}

fn a_lock_that_is_lost_is_taken_again_and_the_gap_is_told(flavour: MyFlavour) {
    let stage = Stage::new(flavour, &[]);
    for how in [Break::Rst, Break::Fin, Break::HalfClose, Break::Vanish] {
        let site = stage.site();
        let operation = site.fence();
        stage.link.breaks(Kind::Lock, how);
        site.wait("the gap is told", |seen| gaps(seen).contains("lost with its connection"));
        assert_eq!(code(&site.client().query("INSERT INTO t VALUES (7)")), "ZF001", "{how:?}");
        stage.link.heal();
        // Told just behind the taking.
        site.wait("it is held again, and that is told", |seen| {
            seen["fence"]["engine_lock"]["held"] == true && gaps(seen).contains("taken (again)")
        });
        finish(&site, &operation);
    }
}

/// The proxy's own threads, the lock's holder among them; MariaDB doesn't say which one that is.
fn own_threads(cluster: &MyCluster) -> Vec<String> {
    let sql = "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'fencewire'";
    cluster.sql("mysql", sql).lines().map(str::to_owned).collect()
}

fn a_lock_that_is_lost_behind_a_silent_link_proves_nothing(flavour: MyFlavour) {
    let (cluster, proxy) = own(flavour);
    drop(proxy);
    let mut stage = Stage::before(&cluster, &[]);
    let park = Park::arm(&mut stage.proxy, "control.acquire.after_lock");
    let site = stage.site();
    let operation = uuid();
    let body = site.acquire_body(&operation, &patient());
    let sent = send(&stage.proxy, &site.namespace(), ACQUIRE, &body);
    park.reached();
    stage.link.breaks(Kind::Lock, Break::Stall);
    for thread in own_threads(&cluster) {
        // One may have ended by itself.
        let _gone = cluster.try_sql("mysql", &format!("KILL {thread}"));
    }
    // Nobody is kept out now, and the proxy can't see it but by asking.
    let mut direct = site.direct();
    direct.query("SET SESSION lock_wait_timeout = 600").ok();
    direct.query("INSERT INTO t VALUES (0)").ok();
    park.open();
    site.wait("it asked, and noticed", says_why);
    assert!(!sent.is_finished(), "VIOLATION: acknowledged with a lock that was gone");
    site.sql("DELETE FROM t");
    stage.link.heal();
    applied(&answer(sent, &stage.proxy));
    finish(&site, &operation);
}

fn acceptance_07_force_reaches_a_writer_behind_a_silent_link(flavour: MyFlavour) {
    let stage = Stage::new(flavour, &[]);
    let site = stage.site();
    let mut writer = site.client();
    writer.query("BEGIN").ok();
    writer.query("INSERT INTO t VALUES (5)").ok();
    stage.link.breaks(Kind::Client, Break::Stall);
    let operation = uuid();
    // It can't be told to roll back; its thread is ended, and the engine's word is what counts.
    let done = site.acquire(&site.acquire_body(&operation, &force_after(100)));
    let evidence = &applied(&done)["fence"]["evidence"];
    assert_eq!(evidence["releases"]["by_engine"], 1, "{evidence:#}");
    assert!(evidence["forced"].to_string().contains("terminat"), "{evidence:#}");
    stage.link.heal();
    // Nothing that could be taken for success is what it hears.
    if let Ok(answer) = writer.try_query("COMMIT") {
        assert!(["ZF009", "08007"].contains(&code(&answer).as_str()), "{answer:?}");
    }
    finish(&site, &operation);
}

fn a_link_that_breaks_under_a_running_statement_is_waited_for_on_the_engine(flavour: MyFlavour) {
    let stage = Stage::new(flavour, &[]);
    for how in [Break::Vanish, Break::HalfClose, Break::Rst] {
        let site = stage.site();
        // A wait for a row: nothing there looks whether the client is still connected.
        site.sql("CREATE TABLE row_of (n int PRIMARY KEY); INSERT INTO row_of VALUES (5)");
        let mut keeper = site.direct();
        keeper.query("BEGIN").ok();
        keeper.query("SELECT n FROM row_of FOR UPDATE").ok();
        let mut writer = site.client();
        let id = thread(&writer);
        writer.query("SET SESSION innodb_lock_wait_timeout = 600").ok();
        writer.begin_query("INSERT INTO t SELECT n FROM row_of").unwrap();
        site.wait_running(id, "INSERT INTO t SELECT%");
        stage.link.breaks(Kind::Client, how);
        stage.link.heal();
        let body = site.acquire_body(&uuid(), &patient());
        let sent = send(&stage.proxy, &site.namespace(), ACQUIRE, &body);
        let seen = site.wait_blocked_by(id);
        assert!(!blockers(&seen).is_empty());
        assert!(!sent.is_finished(), "VIOLATION: {how:?}: acknowledged while a write runs");
        keeper.query("COMMIT").ok();
        stage.link.tell_engine();
        applied(&answer(sent, &stage.proxy));
        let rows = site.rows();
        let operation = body["operation_id"].as_str().unwrap().to_owned();
        assert_eq!(code(&site.client().query("INSERT INTO t VALUES (6)")), "ZF001");
        assert_eq!(site.rows(), rows, "VIOLATION: a write behind the acknowledgement");
        site.unfence(&operation);
    }
}
