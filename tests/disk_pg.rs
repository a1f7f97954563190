//! The store's disk: full, read-only, locked by somebody else.
//!
//! Purpose: whatever the disk does, a refusal is typed and says what to do, nothing opens that
//! wasn't opened durably, and once there is room again the same command comes to its end.
//!
//! The disk is a tmpfs of 1 MiB in a mount namespace of its own, which is gone with its last
//! process however the test ends. That takes root, as `.ci/run` has it; without, these tests say
//! so and pass, and what is left are the store's own tests (`store/sqlite_tests.rs`, full and
//! read-only by SQLite's own means). A disk can't be made read-only under open files, so that half
//! is tried at the start, and for the marker.
//!
//! Fences first; then every command of a target's life, at each step between which something
//! becomes durable, with the proxy killed in the middle of the trouble.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod acceptance;
mod support;
mod targets;

use std::ffi::OsString;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use acceptance::sweep::{ACQUIRE, Park, answer, logged, send};
use acceptance::{PATIENCE, Site, applied, code, draining, fail_after, patient};
use serde_json::Value;
use support::guard::Guard;
use support::proxy::uuid;
use support::wire::query;
use support::{Engine, PgCluster, Proxy, ProxyOptions, Wire, poll, test_dir};
use targets::{
    ABORT, ABORTS, CREATE, CREATES, Crash, ENABLE, ENABLES, PUBLISH, PUBLISHES, SEAL, SEALS,
    Target, VALIDATE, VALIDATES, admits,
};

/// A small file system that only the processes started through it see.
struct Disk {
    state: PathBuf,
    holder: Guard,
}

impl Disk {
    /// `None` where this user may not mount.
    fn new() -> Option<Self> {
        let may = Command::new("unshare").args(["-m", "true"]).status();
        if !may.is_ok_and(|status| status.success()) {
            eprintln!("NOT TRIED: this user may not mount, so there is no disk to fill");
            return None;
        }
        let dir = test_dir("disk");
        let state = dir.join("disk");
        std::fs::create_dir(&state).unwrap();
        let script = "mount -t tmpfs -o size=1m,mode=700 none \"$1\" && touch \"$2\" && \
                      exec sleep 100000";
        let mounted = dir.join("mounted");
        let mut command =
            ["unshare", "-m", "sh", "-c", script, "disk"].map(OsString::from).to_vec();
        command.extend([state.clone().into(), mounted.clone().into()]);
        let holder = Guard::spawn(&dir, "holder", "KILL", &command, &[]);
        let there = poll(PATIENCE, || mounted.exists().then_some(()));
        assert!(there.is_some(), "no tmpfs was mounted");
        Some(Self { state, holder })
    }

    fn enter(&self) -> Vec<OsString> {
        let pid = self.holder.pid().to_string();
        ["nsenter", "-t", &pid, "-m", "--"].map(OsString::from).to_vec()
    }

    /// Runs a script where the disk is; `$1` is the disk.
    fn run(&self, script: &str) -> bool {
        let mut command = self.enter();
        command.extend(["sh", "-c", script, "disk"].map(OsString::from));
        command.push(self.state.clone().into());
        let status = Command::new(&command[0]).args(&command[1..]).status();
        status.expect("nsenter does not start").success()
    }

    /// Takes all the room there is.
    fn fill(&self) {
        self.run("n=$(date +%N); cat /dev/zero >\"$1/ballast.$n\" 2>/dev/null; true");
    }

    /// Gives it back.
    fn empty(&self) {
        assert!(self.run("rm -f \"$1\"/ballast.*"));
    }

    fn read_only(&self, yes: bool) -> bool {
        let mode = if yes { "ro" } else { "rw" };
        self.run(&format!("mount -o remount,{mode} \"$1\""))
    }

    fn proxy(&self) -> Proxy {
        Proxy::start_with(ProxyOptions {
            engines: vec![Engine::plain("old", PgCluster::shared())],
            state_dir: Some(self.state.clone()),
            wrapper: self.enter(),
            ..ProxyOptions::default()
        })
    }
}

/// A command that a store without room answered: typed, without a receipt, and with the reason.
#[track_caller]
fn refused_for_room(answer: &(u16, Value)) {
    let body = &answer.1;
    let unknown = answer.0 == 409 && body["outcome"] == "FENCE_COMMIT_INDETERMINATE";
    assert!(answer.0 == 503 || unknown, "{body:#}");
    assert!(body["receipt"].is_null(), "{body:#}");
    let error = body["error"].as_str().unwrap_or_default();
    assert!(error.contains("full") || error.contains("disk I/O"), "{error}");
    assert!(error.contains("replay") || error.contains("replayed"), "{error}");
}

#[test]
fn acceptance_11_a_full_disk_refuses_an_acquire_and_its_replay_finds_room() {
    let Some(disk) = Disk::new() else { return };
    let proxy = disk.proxy();
    let site = Site::new(PgCluster::shared(), &proxy);
    let operation = uuid();
    let body = site.acquire_body(&operation, &fail_after(30_000));
    for _ in 0..2 {
        disk.fill();
        let answer = site.acquire(&body);
        refused_for_room(&answer);
        let seen = code(&site.client().query("INSERT INTO t VALUES (1)"));
        let known = answer.0 == 503;
        assert_eq!(seen, if known { "" } else { "ZF005" }, "{:#}", answer.1);
    }
    disk.empty();
    let rows = site.rows();
    let done = site.acquire(&body);
    assert_eq!(applied(&done)["fence"]["revision"], 2);
    assert_eq!(code(&site.client().query("INSERT INTO t VALUES (2)")), "ZF001");
    assert_eq!(site.rows(), rows);
    site.unfence(&operation);
    site.client().query("INSERT INTO t VALUES (3)").ok();
}

#[test]
fn acceptance_11_a_full_disk_keeps_a_drain_from_its_proof_and_a_fence_from_its_release() {
    let Some(disk) = Disk::new() else { return };
    let mut proxy = disk.proxy();
    let park = Park::arm(&mut proxy, "control.acquire.before_final_commit");
    let site = Site::new(PgCluster::shared(), &proxy);
    let operation = uuid();
    let body = site.acquire_body(&operation, &patient());
    let sent = send(&proxy, &site.namespace(), ACQUIRE, &body);
    park.reached();
    disk.fill();
    park.open();
    // It fails at least once; what is said then depends on whether the log could be emptied.
    let failed = poll(PATIENCE, || {
        let seen = site.inspect();
        let reason = seen["drain"]["reason"].as_str().unwrap_or_default();
        let told = reason.contains("full") || reason.contains("disk I/O");
        (told || seen["fence"]["admission"]["indeterminate"] == true || sent.is_finished())
            .then_some(seen)
    });
    let seen = failed.expect("nothing was said of a full disk");
    assert_eq!(seen["fence"]["admission"]["write"], "closed", "{seen:#}");
    disk.empty();
    let first = answer(sent, &proxy);
    let done = if first.0 == 409 { site.acquire(&body) } else { first };
    assert_eq!(applied(&done)["fence"]["state"], "SOURCE_WRITE_FENCED");

    let body = site.release_body(&operation);
    disk.fill();
    refused_for_room(&site.release(&body));
    let seen = code(&site.client().query("INSERT INTO t VALUES (1)"));
    assert!(["ZF001", "ZF005"].contains(&seen.as_str()), "VIOLATION: opened: {seen:?}");
    let mut direct = site.direct();
    direct.send_raw(&query("INSERT INTO t VALUES (2)"));
    site.wait_for_lock(direct.backend_pid());
    disk.empty();
    let done = site.release(&body);
    assert_eq!(applied(&done)["fence"]["state"], "RELEASED");
    direct.until_ready().ok();
    site.client().query("INSERT INTO t VALUES (3)").ok();
    assert_eq!(site.rows(), "2,3");
}

/// Starts the proxy where it may not be able to; whatever it does, writes stay closed. Answers
/// whether it runs.
fn starts_closed(proxy: &mut Proxy, db: &str) -> bool {
    proxy.spawn();
    let address = SocketAddr::from(([127, 0, 0, 1], proxy.port()));
    let ended = poll(PATIENCE, || {
        let listens = TcpStream::connect(address).is_ok();
        proxy.exit_code().map(Some).or(listens.then_some(None))
    });
    match ended.expect("it neither ends nor listens") {
        Some(code) => {
            assert_ne!(code, 0);
            proxy.bury();
            false
        }
        None => {
            let seen = support::Wire::try_connect(proxy.port(), "wire", db, &[]);
            let seen = seen.map(|mut client| code(&client.query("INSERT INTO t VALUES (9)")));
            let seen = seen.unwrap_or_else(|fields| fields[&'C'].clone());
            assert!(["ZF001", "ZF005"].contains(&seen.as_str()), "VIOLATION: {seen:?}");
            true
        }
    }
}

#[test]
fn acceptance_10_a_fence_outlives_a_start_on_a_full_disk_and_on_a_read_only_one() {
    let Some(disk) = Disk::new() else { return };
    let cluster = PgCluster::shared();
    let mut proxy = disk.proxy();
    let db = Site::new(cluster, &proxy).db.clone();
    let operation = Site::at(cluster, &proxy, &db).fence();

    proxy.kill9();
    disk.fill();
    if starts_closed(&mut proxy, &db) {
        proxy.kill9();
    }
    disk.empty();
    proxy.restart();
    assert_eq!(Site::at(cluster, &proxy, &db).state(), "SOURCE_WRITE_FENCED");

    proxy.kill9();
    assert!(disk.read_only(true), "the disk can't be made read-only");
    assert!(!starts_closed(&mut proxy, &db), "it runs on a read-only state folder");
    let log = proxy.log_tail();
    assert!(log.contains("Read-only file system") && log.contains("state"), "{log}");
    assert!(log.contains("make it writable"), "{log}");
    assert!(disk.read_only(false));
    proxy.restart();
    let site = Site::at(cluster, &proxy, &db);
    assert_eq!(site.state(), "SOURCE_WRITE_FENCED");
    assert_eq!(code(&site.client().query("INSERT INTO t VALUES (1)")), "ZF001");
    site.unfence(&operation);
    assert_eq!(site.rows(), "");
}

#[test]
fn a_marker_that_cannot_be_written_is_told_and_written_at_the_next_start() {
    let Some(disk) = Disk::new() else { return };
    let cluster = PgCluster::shared();
    let mut proxy = disk.proxy();
    let db = Site::new(cluster, &proxy).db.clone();
    // The store's files are open already; nothing new can be made beside them.
    let bound = "mount --bind \"$1\" \"$1\" && mount -o remount,ro,bind \"$1\"";
    assert!(disk.run(bound));
    let operation = Site::at(cluster, &proxy, &db).fence();
    assert!(logged(&proxy, "the marker could not be written") > 0, "{}", proxy.log_tail());
    proxy.kill9();
    assert!(disk.run("umount \"$1\""));
    assert!(disk.run(&format!("! test -e \"$1\"/markers/old/{db}.fence")), "it was written");
    proxy.restart();
    let site = Site::at(cluster, &proxy, &db);
    assert!(disk.run(&format!("test -s \"$1\"/markers/old/{db}.fence")), "not repaired");
    assert_eq!(site.state(), "SOURCE_WRITE_FENCED");
    assert_eq!(code(&site.client().query("INSERT INTO t VALUES (1)")), "ZF001");
    site.unfence(&operation);
}

/// Another process's lock on the store's file.
fn lock_store(proxy: &Proxy) -> rusqlite::Connection {
    let store = rusqlite::Connection::open(proxy.state_dir().join("fence.db")).unwrap();
    store.busy_timeout(PATIENCE).unwrap();
    store.execute_batch("BEGIN IMMEDIATE").unwrap();
    store
}

#[test]
fn acceptance_11_a_store_that_somebody_else_locks_is_waited_for_and_then_refused() {
    let cluster = PgCluster::shared();
    let mut proxy = Proxy::start(cluster);
    let park = Park::arm(&mut proxy, "control.acquire.before_final_commit");
    let site = Site::new(cluster, &proxy);
    let operation = uuid();
    let body = site.acquire_body(&operation, &patient());
    let locked = |answer: &(u16, Value)| {
        assert_eq!(answer.0, 503, "{:#}", answer.1);
        let error = answer.1["error"].as_str().unwrap_or_default();
        assert!(error.contains("locked") && error.contains("replay"), "{error}");
        assert!(answer.1["receipt"].is_null());
    };
    let lock = lock_store(&proxy);
    locked(&site.acquire(&body));
    assert_eq!(site.state(), "UNFENCED");
    site.client().query("INSERT INTO t VALUES (1)").ok();
    lock.execute_batch("ROLLBACK").unwrap();

    let sent = send(&proxy, &site.namespace(), ACQUIRE, &body);
    park.reached();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    park.open();
    site.wait("it says why", |seen| {
        draining(seen) && seen["drain"]["reason"].to_string().contains("locked")
    });
    assert!(!sent.is_finished(), "VIOLATION: acknowledged and not stored");
    assert_eq!(code(&site.client().query("INSERT INTO t VALUES (2)")), "ZF001");
    lock.execute_batch("ROLLBACK").unwrap();
    applied(&answer(sent, &proxy));

    let body = site.release_body(&operation);
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    locked(&site.release(&body));
    assert_eq!(site.state(), "SOURCE_WRITE_FENCED");
    assert_eq!(code(&site.client().query("INSERT INTO t VALUES (2)")), "ZF001");
    lock.execute_batch("ROLLBACK").unwrap();
    applied(&site.release(&body));
    site.client().query("INSERT INTO t VALUES (3)").ok();
    assert_eq!(site.rows(), "1,3");
}

/// What befalls the store at a step of a command.
enum Trouble<'a> {
    /// No room is left.
    Full(&'a Disk),
    /// Nothing new can be opened for writing: the marker can't be written, nothing starts.
    ReadOnly(&'a Disk),
    /// Another process writes, and doesn't end.
    Locked(Option<rusqlite::Connection>),
}

impl Trouble<'_> {
    fn begin(&mut self, proxy: &Proxy) {
        match self {
            Self::Full(disk) => disk.fill(),
            Self::ReadOnly(disk) => {
                let bound = "mount --bind \"$1\" \"$1\" && mount -o remount,ro,bind \"$1\"";
                assert!(disk.run(bound));
            }
            Self::Locked(lock) => *lock = Some(lock_store(proxy)),
        }
    }

    fn end(&mut self) {
        match self {
            Self::Full(disk) => disk.empty(),
            Self::ReadOnly(disk) => assert!(disk.run("umount \"$1\"")),
            Self::Locked(lock) => *lock = None,
        }
    }
}

/// The steps of a target's commands that something durable stands behind or in front of.
const BOUNDARIES: [&str; 7] = [
    "after_overlay",
    "after_first_marker",
    "after_create",
    "before_commit",
    "after_commit",
    "before_final_commit",
    "after_final_commit",
];

/// Each command with its crash table, and the states of its way.
const COMMANDS: [(&str, &[Crash], &[&str]); 6] = [
    (CREATE, CREATES, &["ABSENT", "UNKNOWN_UNAVAILABLE", targets::QUARANTINED]),
    (SEAL, SEALS, &[targets::QUARANTINED, targets::DRAINING, targets::VALIDATING]),
    (VALIDATE, VALIDATES, &[targets::VALIDATING]),
    (PUBLISH, PUBLISHES, &[targets::VALIDATING, targets::WRITE_FENCED]),
    (ENABLE, ENABLES, &[targets::WRITE_FENCED, targets::WRITABLE]),
    (ABORT, ABORTS, &[targets::QUARANTINED, targets::ABORTED]),
];

/// Which of reads and writes some client of the proxy gets through, whatever state that is.
fn admitted(proxy: &Proxy, target: &Target) -> (bool, bool) {
    let db = target.namespace.strip_prefix("old/").unwrap();
    let meets = |sql: &str| match Wire::try_connect(proxy.port(), "wire", db, &[]) {
        Ok(mut client) => code(&client.query(sql)),
        Err(fields) => fields[&'C'].clone(),
    };
    // Behind the fence a write fails for want of the table, which is the engine's own word.
    (meets("SELECT 1").is_empty(), meets("INSERT INTO nowhere VALUES (1)") == "42P01")
}

/// The state that the proxy tells, whatever it can read of it.
fn told(proxy: &Proxy, target: &Target) -> Value {
    let path = format!("/v1/namespaces/{}/fence", target.namespace);
    proxy.admin("GET", &path, &Value::Null).1
}

/// Starts the proxy in the middle of the trouble, which it may not be able to do; what it admits.
fn starts_in_trouble(proxy: &mut Proxy, target: &Target) -> (bool, bool) {
    // By its log: a start that waits for the store is asked so often that a connection to its port
    // would meet itself.
    let starts = |proxy: &Proxy| logged(proxy, "clients may connect");
    let before = starts(proxy);
    proxy.spawn();
    let ended = poll(PATIENCE, || {
        let listens = starts(proxy) > before;
        proxy.exit_code().map(Some).or(listens.then_some(None))
    });
    match ended.expect("it neither ends nor listens") {
        Some(code) => {
            assert_ne!(code, 0);
            proxy.bury();
            (false, false)
        }
        None => {
            let seen = admitted(proxy, target);
            proxy.kill9();
            seen
        }
    }
}

/// Brings every command to each of its boundaries, has the trouble begin there, kills the proxy in
/// it, starts it in it and behind it, and replays.
fn swept_in(mut proxy: Proxy, trouble: &mut Trouble<'_>) {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    for (route, crashes, way) in COMMANDS {
        let at = |point: &str| {
            let step = point.strip_prefix("control.").and_then(|name| name.split_once('.'));
            step.is_some_and(|(_, step)| BOUNDARIES.contains(&step))
        };
        for (point, found) in crashes.iter().filter(|(point, _)| at(point)) {
            let park = Park::arm(&mut proxy, point);
            let name = format!("old/troubled{}", COUNT.fetch_add(1, Ordering::SeqCst));
            let target = Target::new(&name);
            target.brought_before(&proxy, route);
            let body = target.step(route);
            let sent = send(&proxy, &target.namespace, &format!("target/{route}"), &body);
            park.reached();
            trouble.begin(&proxy);
            park.open();
            let settled = poll(PATIENCE, || {
                let seen = told(&proxy, &target);
                let told = seen["drain"]["reason"].is_string();
                let doubt = seen["fence"]["admission"]["indeterminate"] == true;
                (told || doubt || sent.is_finished()).then_some(())
            });
            assert!(settled.is_some(), "{route} at {point}: nothing was said of the trouble");
            let mut open = vec![admitted(&proxy, &target)];
            proxy.kill9();
            let answer = sent.join().unwrap();
            proxy.set_env(&[]);
            open.push(starts_in_trouble(&mut proxy, &target));
            trouble.end();
            proxy.restart();

            let seen = told(&proxy, &target);
            let state = seen["fence"]["state"].as_str().unwrap_or("ABSENT");
            let from = way.iter().position(|state| state == found).unwrap();
            let what = format!("{route} at {point}, answered {answer:?}, is {state}");
            assert!(way[from..].contains(&state), "VIOLATION: {what}");
            let goal = way[way.len() - 1];
            let acknowledged = answer.as_ref().is_some_and(|(status, _)| *status == 200);
            assert!(!acknowledged || state == goal, "VIOLATION: {what}");
            open.push(admitted(&proxy, &target));
            let (reads, writes) = admits(state);
            for (read, write) in open {
                assert!((reads || !read) && (writes || !write), "VIOLATION: it was open: {what}");
            }
            let (status, done) = target.send(&proxy, route, &body);
            assert_eq!(
                (status, done["outcome"].as_str()),
                (200, Some("APPLIED")),
                "{what}: {done}"
            );
            assert_eq!(done["fence"]["state"], goal, "{what}");
            assert_eq!(admitted(&proxy, &target), admits(goal), "{what}");
        }
    }
}

#[test]
fn acceptance_10_every_command_of_a_target_survives_a_full_disk_at_every_step() {
    let Some(disk) = Disk::new() else { return };
    swept_in(disk.proxy(), &mut Trouble::Full(&disk));
}

#[test]
fn acceptance_10_every_command_of_a_target_survives_a_read_only_disk_at_every_step() {
    let Some(disk) = Disk::new() else { return };
    swept_in(disk.proxy(), &mut Trouble::ReadOnly(&disk));
}

#[test]
fn acceptance_10_every_command_of_a_target_survives_a_locked_store_at_every_step() {
    swept_in(Proxy::start(PgCluster::shared()), &mut Trouble::Locked(None));
}
