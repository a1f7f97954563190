//! Each guard removed in turn: the history checker must report what is lost without it.
//!
//! For each guard there is one schedule in which it is the only thing in the way. It runs twice:
//! as built, where the checker must find nothing, and with `FENCEWIRE_REMOVE`, where it must find
//! violations. Where other guards would cover for the removed one, the engine lock is off by
//! configuration: that is a promise of its own (proof.md section 5).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod acceptance;
mod history;
mod support;

use acceptance::link::Link;
use acceptance::{PATIENCE, Site, fail_after, patient};
use history::check::Report;
use history::scene::{self, Park};
use history::{Attempt, End, History};
use serde_json::Value;
use support::wire::{Answer, query};
use support::{Engine, PgCluster, Proxy, ProxyOptions, Wire, poll};

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
    fn proxy(&self, cluster: &PgCluster) -> Proxy {
        let mut env: Vec<(String, String)> = Vec::new();
        env.extend(self.removed.map(|name| ("FENCEWIRE_REMOVE".to_owned(), name.to_owned())));
        env.extend(self.fault.clone().map(|plan| ("FENCEWIRE_FAULT".to_owned(), plan)));
        let mut engine = Engine::plain("old", cluster);
        if let Some(port) = self.engine_port {
            engine.url = format!("postgres://fencewire:fencewire@127.0.0.1:{port}/postgres");
        }
        let lock = if self.lock { "hold" } else { "off" };
        let extra = format!("[fence]\nengine_lock = \"{lock}\"\n");
        Proxy::start_with(ProxyOptions {
            engines: vec![engine],
            extra,
            env,
            ..ProxyOptions::default()
        })
    }
}

/// One schedule under way.
type Scene<'a> = scene::Scene<'a, Site<'a>>;

fn end_of(answer: &Answer) -> End {
    answer.code().map_or(End::Acknowledged, End::Refused)
}

fn insert(id: i64) -> String {
    format!("INSERT INTO h VALUES ({id}, 'arm')")
}

/// A schedule: plays at the stage's site and leaves a history.
type Play = fn(&Scene<'_>);

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

fn run(cluster: &PgCluster, arm: &Arm, removed: bool) -> Report {
    let park = Park::new();
    let link = arm.linked.then(|| Link::to(cluster.port()));
    let stage = Stage {
        removed: removed.then_some(arm.guard),
        lock: arm.lock,
        fault: arm.parks.map(|point| park.plan(point)),
        engine_port: link.as_ref().map(Link::port),
    };
    let proxy = stage.proxy(cluster);
    let site = Site::new(cluster, &proxy);
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
    writer.send_raw(&query(&insert(id)));
    scene.park.reached();
    let raised = scene.raise(&fail_after(5_000));
    scene.park.open();
    let answer = writer.until_ready();
    scene.note(id, begun, begun, end_of(&answer));
    scene.lower(raised);
}

/// A statement is on its way to the engine when its client hangs up and the gate closes.
fn hang_up_on_the_way(scene: &Scene<'_>) {
    let mut writer = Wire::try_connect(
        scene.site.proxy.port(),
        "wire",
        &scene.site.db,
        &[("application_name", "held-up")],
    )
    .unwrap();
    let link = scene.link.unwrap();
    link.hold("held-up");
    let (id, begun) = (scene.history.id(), scene.history.now());
    writer.send_raw(&query(&insert(id)));
    link.wait_held("held-up", PATIENCE);
    // The client goes, and the proxy loses its link to the engine: nobody waits for the answer.
    drop(writer);
    link.cut_proxy("held-up");
    scene.note(id, begun, begun, End::Lost("hung up".to_owned()));
    let gone = poll(PATIENCE, || {
        let seen = scene.site.proxy.admin("GET", "/v1/sessions", &Value::Null).1;
        (!seen.to_string().contains("held-up") || seen.to_string().contains("abandoned"))
            .then_some(())
    });
    assert!(gone.is_some(), "the session is still there");
    let raised = scene.raise(&fail_after(700));
    link.deliver("held-up");
    scene.site.wait_sql(&format!("SELECT count(*) FROM h WHERE id = {id}"), "1");
    scene.lower(raised);
}

/// A transaction around the proxy, open since before the fence, commits behind it.
fn direct_transaction(scene: &Scene<'_>) {
    let mut direct = scene.site.direct();
    let (id, begun) = (scene.history.id(), scene.history.now());
    direct.query(&format!("BEGIN; {}", insert(id))).ok();
    let raised = scene.raise(&fail_after(700));
    let committing = scene.history.now();
    let answer = direct.query("COMMIT");
    scene.note(id, begun, committing, end_of(&answer));
    scene.lower(raised);
}

/// A transaction prepared before the fence is committed behind it, around the proxy.
fn prepared_transaction(scene: &Scene<'_>) {
    let mut client = scene.site.client();
    let (id, begun) = (scene.history.id(), scene.history.now());
    let gid = format!("arm-{}", scene.site.db);
    client.query(&format!("BEGIN; {}; PREPARE TRANSACTION '{gid}'", insert(id))).ok();
    let raised = scene.raise(&fail_after(700));
    let committing = scene.history.now();
    scene.site.sql(&format!("COMMIT PREPARED '{gid}'"));
    scene.note(id, begun, committing, End::Acknowledged);
    scene.lower(raised);
}

/// A read that hides a write, at a closed gate.
fn hidden_write(scene: &Scene<'_>) {
    let mut client = scene.site.client();
    let id = scene.history.id();
    client.query(&format!("SET h.n = '{id}'")).ok();
    let raised = scene.raise(&patient());
    let begun = scene.history.now();
    let answer = client.query("SELECT * FROM hidden");
    scene.note(id, begun, begun, end_of(&answer));
    scene.lower(raised);
}

/// A session around the proxy writes while the fence stands.
fn direct_write(scene: &Scene<'_>) {
    let mut direct = scene.site.direct();
    direct.query("SET lock_timeout = '200ms'").ok();
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

/// Plays an arm with its guard and without.
fn both(arm: &Arm) {
    let cluster = PgCluster::shared();
    let sound = run(cluster, arm, false);
    assert!(sound.violations.is_empty(), "VIOLATION: {}, as built: {}", arm.guard, sound.named());
    assert_eq!(sound.fenced, usize::from(arm.proven), "{}, as built", arm.guard);
    let broken = run(cluster, arm, true);
    assert!(!broken.violations.is_empty(), "nothing is missed without {}", arm.guard);
}

/// Slots are made while nobody else writes: one schedule at a time.
fn arms() -> [Arm; 7] {
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
        Arm { guard: "prepared-check", proven: false, play: prepared_transaction, ..PLAIN },
        Arm { guard: "read-only-guard", play: hidden_write, ..PLAIN },
        Arm { guard: "engine-lock", lock: true, play: direct_write, ..PLAIN },
        Arm { guard: "generation-check", lock: true, play: late_upgrade, ..PLAIN },
    ]
}

#[test]
fn acceptance_25_every_guard_is_missed_when_it_is_removed() {
    arms().iter().for_each(both);
}

#[test]
fn acceptance_25_every_guard_that_can_be_removed_has_an_arm() {
    let armed: Vec<&str> = arms().iter().map(|arm| arm.guard).collect();
    // Those whose arm is with the tests of what they guard.
    let elsewhere = [
        ("held-judgement", include_str!("hold_pg.rs")),
        ("classifier", include_str!("generated_pg.rs")),
        ("end-strays", include_str!("link_mysql.rs")),
        ("read-cancel", include_str!("reads_pg.rs")),
        ("console-login", include_str!("console_pg.rs")),
    ];
    for guard in fencewire::base::arm::Removable::ALL.map(|guard| guard.name()) {
        let mut others = elsewhere.iter().chain(&history::BY_THE_LIBRARY);
        let there = others.any(|(name, test)| *name == guard && test.contains(name));
        assert!(there || armed.contains(&guard), "{guard} has no schedule");
    }
    // That no test wins a race by sleeping is `tests/tidy.rs`'s to say.
    let rules = include_str!("tidy/rules.rs");
    assert!(rules.contains(r#"ban("sleep", &[], &[], Scope::Tests, NO_SLEEP)"#));
}
