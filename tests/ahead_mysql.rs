//! The guard that goes out behind one read for the next program (MariaDB and MySQL), end to end.
//!
//! Two commands are with the engine then. What the first one lifts must not reach what comes behind
//! it, whatever is killed on the way; and a client that has gone is seen to have gone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use support::my_wire::packets;
use support::{Engine, MyCluster, MyFlavour, MyWire, Proxy, ProxyOptions, on_both, poll};

/// Only a fault lets a wait last as long.
const PATIENCE: Duration = Duration::from_secs(60);

on_both!(
    what_lifts_the_setting_does_not_reach_the_program_behind_it,
    the_same_over_tls,
    a_session_under_a_rain_of_kills_writes_nothing_while_the_fence_stands,
    a_client_that_went_away_is_missed_by_what_waits,
);

const OBJECTS: [&str; 5] = [
    "CREATE TABLE t (n int PRIMARY KEY, v int)",
    "CREATE FUNCTION f() RETURNS int MODIFIES SQL DATA \
     BEGIN INSERT INTO t VALUES (1, 1) ON DUPLICATE KEY UPDATE v = v + 1; RETURN 1; END",
    "CREATE FUNCTION lift() RETURNS int BEGIN SET SESSION TRANSACTION READ WRITE; RETURN 1; END",
    "CREATE VIEW writes AS SELECT f() AS n",
    "CREATE VIEW lifts AS SELECT lift() AS n",
];

struct Rig {
    cluster: &'static MyCluster,
    proxy: Proxy,
    db: String,
}

impl Rig {
    /// With `engine_lock` off nothing but the guard keeps a view from writing.
    fn new(flavour: MyFlavour, tls: bool) -> Self {
        let cluster = MyCluster::shared(flavour);
        let db = cluster.fresh_db();
        let mut direct = MyWire::connect(cluster.port(), "wire", &db);
        for object in OBJECTS {
            direct.query(object).ok();
        }
        let plain = || Engine::my_plain("old", cluster);
        let engine = if tls { Engine::my_tls("old", cluster, "require") } else { plain() };
        let proxy = Proxy::start_with(ProxyOptions {
            engines: vec![engine],
            extra: "[fence]\nengine_lock = \"off\"\n".to_owned(),
            ..ProxyOptions::default()
        });
        Self { cluster, proxy, db }
    }

    fn client(&self) -> MyWire {
        MyWire::connect(self.proxy.port(), "wire", &self.db)
    }

    fn namespace(&self) -> String {
        format!("old/{}", self.db)
    }

    fn fence(&self) -> String {
        self.proxy.fence(&self.namespace())
    }

    fn unfence(&self, operation: &str) {
        self.proxy.unfence(&self.namespace(), operation);
    }

    /// How often the view has written.
    fn written(&self) -> u64 {
        let sql = "SELECT COALESCE(SUM(v), 0) FROM t";
        self.cluster.sql(&self.db, sql).trim().parse().unwrap()
    }
}

/// A read as a text, and as a statement that is prepared here: lifting first, then writing.
fn forms(client: &mut MyWire) -> [[Vec<u8>; 2]; 2] {
    ["lifts", "writes"].map(|view| {
        let sql = format!("SELECT n FROM {view}");
        let prepared = client.prepare(&sql).unwrap().unwrap().execute(&[]);
        [[b"\x03", sql.as_bytes()].concat(), prepared]
    })
}

fn framed(payload: &[u8]) -> Vec<u8> {
    packets(payload, &mut 0)
}

/// Reads an answer of rows to its end: the error's number, or 0.
fn ended(client: &mut MyWire) -> u16 {
    let mut ends = 0;
    while ends < 2 {
        let packet = client.packet().payload;
        match packet[0] {
            0xff => return u16::from_le_bytes([packet[1], packet[2]]),
            0xfe if packet.len() < 9 => ends += 1,
            _ => {}
        }
    }
    0
}

fn lifts(flavour: MyFlavour, tls: bool) {
    let rig = Rig::new(flavour, tls);
    let mut client = rig.client();
    let [lift, write] = forms(&mut client);
    let operation = rig.fence();
    for _ in 0..10 {
        for (lift, write) in lift.iter().flat_map(|lift| write.iter().map(move |w| (lift, w))) {
            // One behind the answer to the other, at once; and all in one write.
            client.send_raw(&framed(lift));
            assert_eq!(ended(&mut client), 0);
            client.send_raw(&framed(write));
            assert_eq!(ended(&mut client), 9701);
            client.send_raw(&[framed(lift), framed(write), framed(write)].concat());
            let told: Vec<_> = (0..3).map(|_| ended(&mut client)).collect();
            assert_eq!(told, [0, 9701, 9701]);
        }
    }
    assert_eq!(rig.written(), 0, "VIOLATION: it wrote under the fence");
    rig.unfence(&operation);
    client.send_raw(&framed(&write[0]));
    assert_eq!(ended(&mut client), 0);
    assert_eq!(rig.written(), 1, "the control arm: without a fence it writes");
}

fn what_lifts_the_setting_does_not_reach_the_program_behind_it(flavour: MyFlavour) {
    lifts(flavour, false);
}

fn the_same_over_tls(flavour: MyFlavour) {
    lifts(flavour, true);
}

/// Kills that meet programs, guards behind them, or nothing, from before a fence to behind it.
fn a_session_under_a_rain_of_kills_writes_nothing_while_the_fence_stands(flavour: MyFlavour) {
    let rig = Rig::new(flavour, false);
    let mut client = rig.client();
    let [lift, write] = forms(&mut client);
    let kill = format!("KILL QUERY {}", client.greeting.thread_id);
    let mut killer = MyWire::connect(rig.cluster.port(), "wire", "");
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let ran = |more: u64| {
        let from = rounds.load(Ordering::SeqCst);
        let seen = poll(PATIENCE, || (rounds.load(Ordering::SeqCst) >= from + more).then_some(()));
        assert!(seen.is_some(), "the session stands still");
    };
    std::thread::scope(|scope| {
        let _ends = Ends(&stop);
        // A kill for each program, if not for each guard: one that is never taken ends a session.
        let (told, tells) = mpsc::sync_channel::<()>(1);
        scope.spawn(|| {
            let told = told;
            let mut round = 0_usize;
            while !stop.load(Ordering::SeqCst) {
                let (lift, write) = (framed(&lift[round % 2]), framed(&write[round / 2 % 2]));
                let at_once = round.is_multiple_of(3);
                client.send_raw(&lift);
                let _full = told.try_send(());
                if at_once {
                    client.send_raw(&write);
                }
                for at in 0..2 {
                    let seen = ended(&mut client);
                    assert!([0, 9701, 1317].contains(&seen), "{seen}");
                    if at == 0 && !at_once {
                        client.send_raw(&write);
                        let _full = told.try_send(());
                    }
                }
                round += 1;
                rounds.fetch_add(1, Ordering::SeqCst);
            }
        });
        scope.spawn(|| tells.into_iter().for_each(|()| drop(killer.query(&kill).ok())));
        ran(50);
        assert!(rig.written() > 0, "control arm: without a fence it writes");
        let operation = rig.fence();
        let fenced = rig.written();
        ran(300);
        let released = rig.written();
        rig.unfence(&operation);
        assert_eq!(fenced, released, "VIOLATION: it wrote under the fence");
        ran(50);
        assert!(rig.written() > released, "control arm: behind the fence it writes again");
    });
}

/// Has the threads of a scope end, whatever became of what it is for.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// An engine looks every few seconds whether there is anything to read from the client of what
/// sleeps or waits for a lock; a guard would be that. By the text none is sent behind some of
/// these, and the others the proxy has killed.
fn a_client_that_went_away_is_missed_by_what_waits(flavour: MyFlavour) {
    let rig = Rig::new(flavour, false);
    let mut holder = MyWire::connect(rig.cluster.port(), "wire", &rig.db);
    holder.query("CREATE TABLE shut (n int)").ok();
    holder.query("CREATE FUNCTION sleeps() RETURNS int NO SQL RETURN SLEEP(600)").ok();
    holder.query("CREATE VIEW sleeper AS SELECT sleeps() AS n").ok();
    let lock = format!("l_{}", rig.db);
    holder.query(&format!("SELECT GET_LOCK('{lock}', 0)")).ok();
    let operation = rig.fence();
    holder.query("LOCK TABLES shut WRITE").ok();
    let all = [
        "SELECT SLEEP(600)".to_owned(),
        format!("SELECT GET_LOCK('{lock}', 600)"),
        "SELECT n FROM sleeper".to_owned(),
        "SELECT n FROM shut".to_owned(),
    ];
    for waits in all {
        let mut client = rig.client();
        client.query("SELECT 1").ok();
        client.begin_query(&waits).unwrap();
        let thread = client.greeting.thread_id;
        let here = |what: &str| {
            let sql = format!(
                "SELECT COUNT(*) FROM information_schema.processlist WHERE id = {thread} {what}"
            );
            rig.cluster.sql("", &sql).trim() != "0"
        };
        let runs = "AND (state LIKE 'User %' OR state LIKE 'Waiting for table%')";
        assert!(poll(PATIENCE, || here(runs).then_some(())).is_some(), "{waits} doesn't wait");
        drop(client);
        let gone = poll(PATIENCE, || (!here("")).then_some(()));
        assert!(gone.is_some(), "{waits} goes on for nobody");
    }
    holder.query("UNLOCK TABLES").ok();
    rig.unfence(&operation);
}
