//! The test harness itself, against a bare PostgreSQL: what the other tests stand on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::guard::{Guard, alive, send_signal};
use support::{Options, PgCluster, Wire, poll, test_dir, wire};

const PATIENCE: Duration = Duration::from_secs(30);

fn sleeper(dir: &std::path::Path) -> Guard {
    let command = ["sleep", "600"].map(OsString::from);
    Guard::spawn(dir, "server", "TERM", &command, &[])
}

#[test]
fn a_dropped_guard_ends_its_program_and_removes_its_folder() {
    let dir = test_dir("sleep");
    let guard = sleeper(&dir);
    let pid = guard.pid();
    assert!(alive(pid) && guard.exit_code().is_none());
    drop(guard);
    assert!(!alive(pid), "the program outlived its guard");
    assert!(!dir.exists(), "the folder outlived its guard");
}

#[test]
fn an_ended_program_leaves_its_exit_code_and_folder() {
    let dir = test_dir("sleep");
    let guard = sleeper(&dir);
    guard.signal("KILL");
    assert_eq!(guard.wait_exit(PATIENCE), Some(128 + 9));
    guard.finish();
    assert!(dir.join("server.rc").exists());
    std::fs::remove_dir_all(dir).unwrap();
}

/// Not a test: the victim of the next one. It says where its program is, then waits to be killed.
#[test]
#[ignore = "started by the next test"]
fn victim() {
    let dir = test_dir("sleep");
    let guard = sleeper(&dir);
    println!("victim {} {}", guard.pid(), dir.display());
    if std::env::var_os("FENCEWIRE_VICTIM_PANICS").is_some() {
        std::mem::forget(guard); // as a static would be: nobody drops it
        panic!("as told");
    }
    let mut end = String::new();
    std::io::stdin().read_line(&mut end).unwrap();
}

/// Runs [`victim`] in a process of its own; returns that, its program's id, and its folder.
fn start_victim(panics: bool) -> (std::process::Child, u32, PathBuf) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "victim", "--ignored", "--nocapture"]);
    if panics {
        command.env("FENCEWIRE_VICTIM_PANICS", "1");
    }
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The line may begin with the test framework's own words.
    let said = lines.map(Result::unwrap).find_map(|line| {
        let (pid, dir) = line.split_once("victim ")?.1.split_once(" /")?;
        Some((pid.parse().unwrap(), PathBuf::from(format!("/{dir}"))))
    });
    let (pid, dir) = said.unwrap_or_else(|| {
        panic!("the victim said nothing and ended with {:?}", child.wait());
    });
    (child, pid, dir)
}

#[test]
fn nothing_outlives_a_killed_or_panicking_test_program() {
    for panics in [false, true] {
        let (mut child, pid, dir) = start_victim(panics);
        if !panics {
            send_signal("KILL", &[child.id()]);
        }
        child.wait().unwrap();
        let gone = poll(PATIENCE, || (!alive(pid) && !dir.exists()).then_some(()));
        assert!(gone.is_some(), "panics={panics}: process {pid} or {} is left", dir.display());
    }
}

#[test]
fn a_cluster_survives_kill_and_restart_with_its_data() {
    let options = Options { durable: true, ..Options::default() };
    let mut cluster = PgCluster::start(options);
    let db = cluster.fresh_db();
    cluster.sql(&db, "CREATE TABLE t AS SELECT 1 AS n");
    let identity = "SELECT system_identifier FROM pg_control_system()";
    let before = cluster.sql("postgres", identity);
    cluster.kill();
    assert!(cluster.try_sql(&db, "SELECT 1").is_err());
    cluster.start_again();
    assert_eq!(cluster.sql(&db, "SELECT n FROM t"), "1");
    cluster.stop();
    cluster.start_again();
    assert_eq!(cluster.sql("postgres", identity), before);
    assert_ne!(PgCluster::shared().sql("postgres", identity), before);
    let socket = cluster.socket_dir();
    drop(cluster);
    assert!(!socket.exists(), "the folder outlived its cluster");
}

#[test]
fn the_settings_that_tests_rely_on_hold() {
    let cluster = PgCluster::shared();
    let show = |name: &str| cluster.sql("postgres", &format!("SHOW {name}"));
    assert_eq!(show("wal_level"), "logical");
    assert_eq!(show("max_prepared_transactions"), "20");
    assert_eq!(show("ssl"), "on");
    assert_eq!(show("fsync"), "off");
}

#[test]
fn the_raw_client_speaks_simple_and_extended() {
    let cluster = PgCluster::shared();
    let db = cluster.fresh_db();
    let mut client = Wire::connect(cluster.port(), "wire", &db);
    assert!(client.backend_pid() > 0);
    assert!(client.parameters.contains_key("server_version"));

    let answer = client.query("CREATE TABLE t (n int); INSERT INTO t VALUES (1), (NULL)").ok();
    assert_eq!(answer.tags(), ["CREATE TABLE", "INSERT 0 2"]);
    let answer = client.query("TABLE t").ok();
    assert_eq!(answer.rows(), [vec![Some("1".to_owned())], vec![None]]);
    assert_eq!(client.query("BEGIN").ok().status, 'T');
    let answer = client.extended("SELECT $1::int + 1", &[Some("41")]).ok();
    assert_eq!((answer.cell().as_str(), answer.status), ("42", 'T'));
    assert_eq!(client.extended("SELECT 1/0", &[]).code().as_deref(), Some("22012"));
    assert_eq!(client.query("ROLLBACK").ok().status, 'I');

    client.send_raw(&wire::query("SELECT nothing"));
    let fields = client.expect_error("42703");
    assert_eq!(fields[&'S'], "ERROR");
    assert_eq!(client.until_ready().status, 'I');
    assert_eq!(client.try_read_frame(Duration::from_millis(1)).unwrap(), None);

    let refused = Wire::try_connect(cluster.port(), "wire", "no_such_database", &[]);
    assert_eq!(refused.err().unwrap()[&'C'], "3D000");
    client.send(b'X', &[]);
    assert!(client.closed_within(PATIENCE));
}

#[test]
fn the_raw_client_cancels() {
    let cluster = PgCluster::shared();
    let mut client = Wire::connect(cluster.port(), "wire", "postgres");
    client.send_raw(&wire::query("SELECT pg_sleep(600)"));
    let asleep = format!(
        "SELECT 1 FROM pg_stat_activity WHERE pid = {} AND wait_event = 'PgSleep'",
        client.backend_pid()
    );
    poll(PATIENCE, || (cluster.sql("postgres", &asleep) == "1").then_some(())).unwrap();
    client.cancel();
    client.expect_error("57014");
    assert_eq!(client.until_ready().status, 'I');
}

#[test]
fn the_sweep_removes_only_what_nobody_owns() {
    // Owned by us, and by a process that doesn't exist (its start time can't be right either).
    let ours = test_dir("sleep");
    let left = ours.with_file_name("fencewire-sleep-999999999-1-0");
    std::fs::create_dir_all(&left).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tools/sweep.sh");
    assert!(Command::new(script).status().unwrap().success());
    assert!(ours.exists() && !left.exists());
    std::fs::remove_dir(ours).unwrap();
}
