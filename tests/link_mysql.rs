//! The link between proxy and MariaDB or MySQL 9, broken at the steps of a fence, and the engine
//! killed there: the twin of `link_pg.rs` and `engine_kill_pg.rs`.
//!
//! Purpose: the crash sweep's second and third part (proof.md 7). At named steps the control
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
use acceptance::{PATIENCE, applied, draining, patient};
use acceptance_mysql::{MySite, code, on_both, thread};
use serde_json::Value;
use support::fault_link::{Break, FaultLink, Kind};
use support::proxy::uuid;
use support::{Engine, MyCluster, MyFlavour, MyOptions, MyWire, Proxy, ProxyOptions, poll};

on_both!(
    a_lock_behind_a_link_cut_on_one_side_is_ended_by_the_sweep,
    acceptance_10_the_link_is_reset_at_steps_of_a_drain,
    acceptance_10_the_link_is_cut_on_one_side_at_steps_of_a_drain,
    acceptance_10_the_link_falls_silent_at_steps_of_a_drain,
    acceptance_10_the_link_breaks_at_each_step_of_a_release,
    a_lock_whose_answer_is_torn_is_taken_again,
    acceptance_09_a_writers_link_breaks_while_it_is_waited_for,
    acceptance_09_the_answer_to_a_commit_is_torn_in_each_part,
    acceptance_10_the_engine_is_killed_at_steps_of_a_drain,
);

/// A proxy whose engine is behind a link that can break.
struct Stage {
    cluster: &'static MyCluster,
    link: FaultLink,
    proxy: Proxy,
}

impl Stage {
    fn new(flavour: MyFlavour, env: &[(&str, &str)]) -> Self {
        let cluster = MyCluster::shared(flavour);
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
fn acquire_over(stage: &mut Stage, step: &str, how: Break) {
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
    let needs_none = is_proven_at(step) || step == "control.acquire.after_drain";
    let done = if needs_none {
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
    assert_eq!(code(&old.query("INSERT INTO t VALUES (8)")), "ZF001");
    finish(&site, &operation);
}

fn acquires_over(flavour: MyFlavour, how: Break, steps: &[&str]) {
    let mut stage = Stage::new(flavour, &[]);
    for step in steps {
        acquire_over(&mut stage, step, how);
    }
}

fn acceptance_10_the_link_is_reset_at_steps_of_a_drain(flavour: MyFlavour) {
    acquires_over(flavour, Break::Rst, &ACQUIRE_STEPS[5..12]);
}

fn acceptance_10_the_link_is_cut_on_one_side_at_steps_of_a_drain(flavour: MyFlavour) {
    acquires_over(flavour, Break::Vanish, &ACQUIRE_STEPS[6..12]);
}

fn acceptance_10_the_link_falls_silent_at_steps_of_a_drain(flavour: MyFlavour) {
    acquires_over(flavour, Break::Stall, &ACQUIRE_STEPS[6..12]);
}

/// A release during which the control side's link breaks at `step`. It needs no engine; what the
/// engine still has of ours must not keep anybody from writing for long.
fn release_over(stage: &mut Stage, step: &str, how: Break) {
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
fn writer_over(stage: &mut Stage, step: &str, how: Break) {
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

fn acceptance_10_the_engine_is_killed_at_steps_of_a_drain(flavour: MyFlavour) {
    let options = MyOptions { durable: true, ..MyOptions::default() };
    let mut cluster = MyCluster::start(flavour, options);
    let mut proxy = Proxy::start_my(&cluster);
    for step in [
        "control.acquire.after_cutoff",
        "control.acquire.after_lock",
        "control.acquire.after_second_census",
    ] {
        eprintln!("the engine is killed at {step}");
        let park = Park::arm(&mut proxy, step);
        let site = MySite::new(&cluster, &proxy);
        let db = site.db.clone();
        let mut writer = site.client();
        writer.query("BEGIN").ok();
        writer.query("SELECT n FROM t").ok();
        let operation = uuid();
        let body = site.acquire_body(&operation, &patient());
        let namespace = site.namespace();
        let sent = send(&proxy, &namespace, ACQUIRE, &body);
        park.reached();
        cluster.kill();
        park.open();
        let told = poll(PATIENCE, || {
            let seen = proxy.inspect(&namespace);
            (draining(&seen) && says_why(&seen)).then_some(())
        });
        assert!(told.is_some(), "{step}: it doesn't say why");
        assert!(!sent.is_finished(), "VIOLATION: acknowledged without engine at {step}");
        cluster.start_again();
        applied(&answer(sent, &proxy));
        let site = MySite { cluster: &cluster, proxy: &proxy, db };
        assert_eq!(code(&site.client().query("INSERT INTO t VALUES (7)")), "ZF001");
        finish(&site, &operation);
    }
}
