//! Each guard removed in turn on MariaDB and MySQL: the history checker must report what is lost
//! without it. The twin of `arms_pg.rs`.
//!
//! For each guard there is one schedule in which it is the only thing in the way. It runs twice:
//! as built, where the checker must find nothing, and with `FENCEWIRE_REMOVE`, where it must find
//! violations. Where other guards would cover for the removed one, the engine lock is off by
//! configuration: that is a promise of its own (proof.md section 5).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod acceptance;
mod acceptance_mysql;
mod history;
#[path = "history/my_place.rs"]
mod my_place;
mod support;

use acceptance::link::Link;
use acceptance::{PATIENCE, fail_after, patient};
use acceptance_mysql::{MySite, on_both, thread};
use history::check::Report;
use history::scene::{self, Park};
use history::{Attempt, End, History};
use my_place::end_of;
use serde_json::Value;
use support::{Engine, MyCluster, MyFlavour, MyOptions, Proxy, ProxyOptions, poll};

/// A proxy for one schedule, with or without a guard.
struct Stage {
    removed: Option<&'static str>,
    /// Whether the engine lock is in use.
    lock: bool,
    /// More of the proxy's environment.
    fault: Option<String>,
    /// The port that stands for the engine's.
    engine_port: Option<u16>,
}

impl Stage {
    fn proxy(&self, cluster: &MyCluster) -> Proxy {
        let mut env: Vec<(String, String)> = Vec::new();
        env.extend(self.removed.map(|name| ("FENCEWIRE_REMOVE".to_owned(), name.to_owned())));
        env.extend(self.fault.clone().map(|plan| ("FENCEWIRE_FAULT".to_owned(), plan)));
        let mut engine = Engine::my_plain("old", cluster);
        if let Some(port) = self.engine_port {
            engine.url = format!("mysql://fencewire:fencewire@127.0.0.1:{port}/");
        }
        let lock = if self.lock { "hold" } else { "off" };
        let extra = format!("[fence]\nengine_lock = \"{lock}\"\n");
        let engines = vec![engine];
        Proxy::start_with(ProxyOptions { engines, extra, env, ..ProxyOptions::default() })
    }
}

/// One schedule under way.
type Scene<'a> = scene::Scene<'a, MySite<'a>>;

/// A schedule: plays at the stage's site and leaves a history.
type Play = fn(&Scene<'_>);

fn insert(id: i64) -> String {
    format!("INSERT INTO h VALUES ({id}, 'arm')")
}

/// One arm.
struct Arm {
    guard: &'static str,
    lock: bool,
    /// The fault point that parks the first client to pass it.
    parks: Option<&'static str>,
    linked: bool,
    /// Whether the fence comes to a proof with the guard in place.
    proven: bool,
    play: Play,
}

fn run(cluster: &MyCluster, arm: &Arm, removed: bool) -> Report {
    let park = Park::new();
    let link = arm.linked.then(|| Link::to_greeter(cluster.port()));
    let stage = Stage {
        removed: removed.then_some(arm.guard),
        lock: arm.lock,
        fault: arm.parks.map(|point| park.plan(point)),
        engine_port: link.as_ref().map(Link::port),
    };
    let proxy = stage.proxy(cluster);
    let site = MySite::new(cluster, &proxy);
    let history = History::of(&site);
    (arm.play)(&Scene { site: &site, history: &history, park: &park, link: link.as_ref() });
    let report = history.verdict(&site);
    let plans: Vec<String> =
        history.fences.lock().unwrap().iter().map(|f| f.plan.clone()).collect();
    println!("{} removed={removed}: {} {plans:?}", arm.guard, report.named());
    report
}

/// A writer has decided and not published when the gate closes; it goes on when the fence stands.
fn late_publication(scene: &Scene<'_>) {
    let mut writer = scene.site.client();
    let (id, begun) = (scene.history.id(), scene.history.now());
    writer.begin_query(&insert(id)).unwrap();
    scene.park.reached();
    let raised = scene.raise(&fail_after(20_000));
    scene.park.open();
    let answer = writer.answer(&[]).unwrap();
    scene.note(id, begun, begun, end_of(&answer));
    scene.lower(raised);
}

/// A statement is on its way to the engine when its client hangs up and the gate closes.
fn hang_up_on_the_way(scene: &Scene<'_>) {
    let (mut writer, link) = (scene.site.client(), scene.link.unwrap());
    // Of all that logs in, only this names the schema; no control connection does.
    let mark = format!("wire\0\0{}\0", scene.site.db);
    link.hold(&mark);
    let (id, begun) = (scene.history.id(), scene.history.now());
    writer.begin_query(&insert(id)).unwrap();
    link.wait_held(&mark, PATIENCE);
    let pid = u64::from(thread(&writer));
    // The client goes, and the proxy loses its link to the engine: nobody waits for the answer.
    drop(writer);
    link.cut_proxy(&mark);
    scene.note(id, begun, begun, End::Lost("hung up".to_owned()));
    let gone = poll(PATIENCE, || {
        let seen = scene.site.proxy.admin("GET", "/v1/sessions", &Value::Null).1.to_string();
        let there = seen.contains(&format!("\"engine_pid\":{pid}"));
        (!there || seen.contains("abandoned")).then_some(())
    });
    assert!(gone.is_some(), "the session is still there");
    let raised = scene.raise(&fail_after(3_000));
    link.deliver(&mark);
    scene.site.wait_sql(&format!("SELECT count(*) FROM h WHERE id = {id}"), "1");
    scene.lower(raised);
    link.cut_engine(&mark);
}

/// A transaction around the proxy, open since before the fence, commits behind it.
fn direct_transaction(scene: &Scene<'_>) {
    let mut direct = scene.site.direct();
    let (id, begun) = (scene.history.id(), scene.history.now());
    direct.query("BEGIN").ok();
    direct.query(&insert(id)).ok();
    let raised = scene.raise(&fail_after(3_000));
    let committing = scene.history.now();
    let answer = direct.query("COMMIT");
    scene.note(id, begun, committing, end_of(&answer));
    scene.lower(raised);
}

/// A branch prepared before the fence, whose session is gone, is committed behind it.
fn prepared_branch(scene: &Scene<'_>) {
    let mut direct = scene.site.direct();
    let (id, begun) = (scene.history.id(), scene.history.now());
    let xid = format!("'arm-{}'", scene.site.db);
    direct.query(&format!("XA START {xid}")).ok();
    direct.query(&insert(id)).ok();
    direct.query(&format!("XA END {xid}")).ok();
    direct.query(&format!("XA PREPARE {xid}")).ok();
    let pid = thread(&direct);
    drop(direct);
    let gone = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {pid}");
    scene.site.wait_sql(&gone, "0");
    let raised = scene.raise(&fail_after(3_000));
    let committing = scene.history.now();
    scene.site.cluster.sql("mysql", &format!("XA COMMIT {xid}"));
    scene.note(id, begun, committing, End::Acknowledged);
    scene.lower(raised);
}

/// A read that hides a write, at a closed gate.
fn hidden_write(scene: &Scene<'_>) {
    let mut client = scene.site.client();
    let id = scene.history.id();
    client.query(&format!("SET @h_n = {id}")).ok();
    let raised = scene.raise(&patient());
    let begun = scene.history.now();
    let answer = client.query("SELECT * FROM hidden");
    scene.note(id, begun, begun, end_of(&answer));
    scene.lower(raised);
}

/// A procedure that begins a read-write transaction of its own, at a closed gate.
fn called_write(scene: &Scene<'_>) {
    let mut client = scene.site.client();
    let id = scene.history.id();
    let raised = scene.raise(&patient());
    let begun = scene.history.now();
    let answer = client.query(&format!("CALL writing({id})"));
    scene.note(id, begun, begun, end_of(&answer));
    scene.lower(raised);
}

/// A session around the proxy writes while the fence stands.
fn direct_write(scene: &Scene<'_>) {
    let mut direct = scene.site.direct();
    direct.query("SET SESSION lock_wait_timeout = 1").ok();
    let id = scene.history.id();
    let raised = scene.raise(&patient());
    let begun = scene.history.now();
    let answer = direct.query(&insert(id));
    scene.note(id, begun, begun, end_of(&answer));
    scene.lower(raised);
}

/// A transaction that read before a fence writes after its release.
fn late_upgrade(scene: &Scene<'_>) {
    let mut client = scene.site.client();
    let (id, begun) = (scene.history.id(), scene.history.now());
    client.query("BEGIN").ok();
    client.query("SELECT count(*) FROM h").ok();
    let open = scene.history.now();
    let raised = scene.raise(&patient());
    scene.lower(raised);
    let wrote = scene.history.now();
    let mut end = end_of(&client.query(&insert(id)));
    let committing = scene.history.now();
    let last = client.query("COMMIT");
    if end == End::Acknowledged {
        end = end_of(&last);
    }
    let (open, committing) = (Some(open), Some(committing));
    let (client, kind, ids) = ("arm".to_owned(), "scripted", vec![id]);
    let ended = scene.history.now();
    scene.history.push(Attempt { client, kind, ids, begun, open, wrote, committing, ended, end });
}

fn arms() -> [Arm; 8] {
    const PLAIN: Arm = Arm {
        guard: "",
        lock: false,
        parks: None,
        linked: false,
        proven: true,
        play: direct_write,
    };
    let parks = Some("gate.before_publish");
    [
        Arm { guard: "lease-recheck", parks, play: late_publication, ..PLAIN },
        Arm {
            guard: "observed-release",
            linked: true,
            proven: false,
            play: hang_up_on_the_way,
            ..PLAIN
        },
        Arm { guard: "census", proven: false, play: direct_transaction, ..PLAIN },
        Arm { guard: "prepared-check", proven: false, play: prepared_branch, ..PLAIN },
        Arm { guard: "read-only-guard", play: hidden_write, ..PLAIN },
        Arm { guard: "engine-lock", lock: true, play: direct_write, ..PLAIN },
        Arm { guard: "generation-check", lock: true, play: late_upgrade, ..PLAIN },
        Arm { guard: "classifier", play: called_write, ..PLAIN },
    ]
}

on_both!(acceptance_25_every_guard_is_missed_when_it_is_removed);

/// Plays each arm with its guard and without, on a server of its own: a branch that is prepared
/// counts for every schema of a MariaDB.
fn acceptance_25_every_guard_is_missed_when_it_is_removed(flavour: MyFlavour) {
    let cluster = MyCluster::start(flavour, MyOptions::default());
    for arm in arms() {
        let sound = run(&cluster, &arm, false);
        let built = format!("{} on {}, as built", arm.guard, flavour.name());
        assert!(sound.violations.is_empty(), "VIOLATION: {built}: {}", sound.named());
        assert_eq!(sound.fenced, usize::from(arm.proven), "{built}");
        let broken = run(&cluster, &arm, true);
        assert!(!broken.violations.is_empty(), "nothing is missed without {}", arm.guard);
    }
}

#[test]
fn acceptance_25_every_guard_that_can_be_removed_has_an_arm() {
    let armed: Vec<&str> = arms().iter().map(|arm| arm.guard).collect();
    // Those whose arm is with the tests of what they guard.
    let elsewhere = [
        ("held-judgement", include_str!("hold_mysql.rs")),
        ("end-strays", include_str!("link_mysql.rs")),
        ("read-cancel", include_str!("reads_mysql.rs")),
        ("console-login", include_str!("console_mysql.rs")),
    ];
    for guard in fencewire::base::arm::Removable::ALL.map(|guard| guard.name()) {
        let mut others = elsewhere.iter().chain(&history::BY_THE_LIBRARY);
        let there = others.any(|(name, test)| *name == guard && test.contains(name));
        assert!(there || armed.contains(&guard), "{guard} has no schedule");
    }
}
