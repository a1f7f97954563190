//! Acceptance 1 to 9 of the fence contract on a real MariaDB and a real MySQL 9, over the wire and
//! the admin API: the twin of `fence_pg.rs`.
//!
//! Each test is named by its number and runs on both servers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod acceptance_mysql;
mod support;

use std::process::{Command, Stdio};

use acceptance::link::Link;
use acceptance::{
    PATIENCE, applied, blockers, fail_after, force_after, metric, patient, refused, still_draining,
};
use acceptance_mysql::{MyLatch, MySite, code, on_both, own, thread};
use serde_json::{Value, json};
use support::my_tools::MyTarget;
use support::my_wire::status;
use support::proxy::uuid;
use support::tools::{run, run_failing};
use support::{
    Engine, MyCluster, MyFlavour, MyOptions, MyWire, Proxy, ProxyOptions, free_port, poll,
};

on_both!(
    acceptance_01_of_two_operations_at_once_one_owns_the_fence,
    acceptance_01_a_second_proxy_on_the_same_store_does_not_start,
    acceptance_02_acquire_waits_for_the_open_writer_and_the_boundary_lies_behind_it,
    acceptance_03_every_kind_of_write_is_refused,
    acceptance_04_a_program_of_several_statements_is_refused_whole,
    acceptance_04_classified_before_the_fence_and_not_forwarded_is_refused,
    acceptance_04_control_arm_admitted_and_not_forwarded_is_waited_for,
    acceptance_05_an_older_transaction_is_stale_after_the_release_until_it_rolls_back,
    acceptance_06_a_passed_deadline_answers_draining_and_only_the_release_completes,
    acceptance_07_an_idle_transaction_is_rolled_back_by_force,
    acceptance_07_a_running_statement_is_stopped_and_its_client_told,
    acceptance_07_however_many_statements_run_each_is_stopped_and_told,
    acceptance_07_a_client_that_stops_reading_is_terminated_and_then_only_acknowledged,
    acceptance_08_a_prepared_branch_keeps_the_drain_until_it_is_resolved,
    acceptance_09_a_commit_whose_answer_is_lost_is_not_a_release,
    a_client_that_leaves_a_transaction_that_is_waited_for_is_released_by_answer,
    a_writer_around_the_proxy_keeps_the_drain_and_then_waits_for_the_lock,
    a_restarted_proxy_holds_the_lock_again,
    a_dump_in_a_snapshot_works_under_a_write_fence,
);

fn acceptance_01_of_two_operations_at_once_one_owns_the_fence(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let bodies = [uuid(), uuid()].map(|op| site.acquire_body(&op, &patient()));
    let answers = std::thread::scope(|scope| {
        let site = &site;
        let send = |body| scope.spawn(move || site.acquire(body));
        let running: Vec<_> = bodies.iter().map(send).collect();
        running.into_iter().map(|r| r.join().unwrap()).collect::<Vec<_>>()
    });
    let won = answers.iter().position(|a| a.0 == 200).expect("nobody won");
    let winner = applied(&answers[won]);
    assert_eq!(winner["fence"]["operation_id"], bodies[won]["operation_id"]);
    let lost = refused(&answers[1 - won], 409, "FENCE_OWNED_BY_ANOTHER_OPERATION");
    assert_eq!(lost["fence"]["operation_id"], bodies[won]["operation_id"], "{lost:#}");
    let path = format!("/v1/namespaces/{}/fence?receipts=all", site.namespace());
    let receipts = site.proxy.admin("GET", &path, &Value::Null).1;
    assert_eq!(receipts["receipts"].as_array().unwrap().len(), 1, "the loser left a receipt");
}

fn acceptance_01_a_second_proxy_on_the_same_store_does_not_start(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let (listen, admin) = (free_port(), free_port());
    let mut second = Command::new(env!("CARGO_BIN_EXE_fencewire"))
        .args(["serve", "--listen", &format!("mysql://127.0.0.1:{listen}")])
        .args(["--engine", &format!("old={}", site.cluster.control_url())])
        .arg("--state-dir")
        .arg(site.proxy.state_dir())
        .args(["--admin", &format!("127.0.0.1:{admin}")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ended = poll(PATIENCE, || second.try_wait().unwrap());
    if ended.is_none() {
        second.kill().unwrap();
    }
    let output = second.wait_with_output().unwrap();
    assert!(ended.is_some_and(|status| !status.success()), "the second proxy runs: {ended:?}");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(said.contains("in use by another fencewire process"), "{said}");
    // The first one isn't disturbed.
    let operation = site.fence();
    site.unfence(&operation);
}

fn acceptance_02_acquire_waits_for_the_open_writer_and_the_boundary_lies_behind_it(
    flavour: MyFlavour,
) {
    // Nobody else writes to this server, so its log is this test's.
    let (cluster, proxy) = own(flavour);
    let site = MySite::new(&cluster, &proxy);
    let mut early = site.client();
    early.query("INSERT INTO t VALUES (1)").ok();
    let mut writer = site.client();
    writer.query("BEGIN").ok();
    assert_ne!(writer.query("INSERT INTO t VALUES (2)").ok().status() & status::IN_TRANS, 0);

    let body = site.acquire_body(&uuid(), &patient());
    let answer = std::thread::scope(|scope| {
        let acquire = scope.spawn(|| site.acquire(&body));
        let seen = site.wait_blocked_by(thread(&writer));
        assert_eq!(blockers(&seen)[0]["user"], "wire", "{seen:#}");
        assert_eq!(seen["fence"]["admission"]["write"], "closed", "{seen:#}");
        // The writer goes on to its end (W14); nobody else begins.
        writer.query("INSERT INTO t VALUES (3)").ok();
        assert_eq!(code(&early.query("INSERT INTO t VALUES (4)")), "ZF001");
        site.stays_draining(3);
        assert!(!acquire.is_finished(), "acknowledged with a writer open");
        writer.query("COMMIT").ok();
        acquire.join().unwrap()
    });
    let fence = &applied(&answer)["fence"];
    assert_eq!((&fence["state"], &fence["revision"]), (&json!("SOURCE_WRITE_FENCED"), &json!(2)));
    assert_eq!(fence["frozen_boundary"]["kind"], "gtid", "{fence:#}");
    assert_eq!(fence["evidence"]["engine_lock"]["mode"], "hold", "{fence:#}");
    for client in [&mut early, &mut writer] {
        assert_eq!(code(&client.query("INSERT INTO t VALUES (5)")), "ZF001");
    }
    assert_eq!(site.rows(), "1,2,3");
    // Nothing came after the boundary, and the next write does.
    let now = match flavour {
        MyFlavour::MariaDb => "SELECT @@gtid_binlog_pos",
        MyFlavour::MySql => "SELECT REPLACE(@@gtid_executed, '\n', '')",
    };
    let boundary = fence["frozen_boundary"]["value"].as_str().unwrap();
    assert_eq!(site.sql(now), boundary);
    site.unfence(fence["operation_id"].as_str().unwrap());
    early.query("INSERT INTO t VALUES (6)").ok();
    assert_ne!(site.sql(now), boundary);
}

fn acceptance_03_every_kind_of_write_is_refused(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    site.sql("INSERT INTO t VALUES (1)");
    let mut client = site.client();
    let prepared = client.prepare("INSERT INTO t VALUES (?)").unwrap().unwrap();
    client.query("PREPARE sqlins FROM 'INSERT INTO t VALUES (90)'").ok();
    let mut reader = site.client();
    reader.query("BEGIN").ok();
    reader.query("SELECT n FROM t").ok();
    let operation = site.fence();

    for sql in [
        "INSERT INTO t VALUES (10)",
        "REPLACE INTO t VALUES (10)",
        "UPDATE t SET n = 11",
        "DELETE FROM t",
        "/*!50000 INSERT INTO t VALUES (12) */",
        "SELECT n FROM t FOR UPDATE",
        "LOAD DATA LOCAL INFILE 'x' INTO TABLE t",
        "BEGIN; INSERT INTO t VALUES (17); COMMIT",
        "SELECT 1; INSERT INTO t VALUES (15)",
        "CREATE TABLE made (n int)",
        "CREATE TEMPORARY TABLE made (n int)",
        "ALTER TABLE t ADD COLUMN m int",
        "CREATE INDEX i ON t (n)",
        "DROP TABLE t",
        "TRUNCATE t",
        "RENAME TABLE t TO u",
        "LOCK TABLES t WRITE",
        "ANALYZE TABLE t",
        "XA COMMIT 'nosuch'",
        "CALL nosuch()",
        "EXECUTE sqlins",
        "a statement of no kind",
        &format!("DROP DATABASE {}", site.db),
        &format!("INSERT INTO {}.t VALUES (18)", site.db),
    ] {
        let answer = client.query(sql);
        assert!(["ZF001", "ZF007", "ZF008"].contains(&code(&answer).as_str()), "{sql}: {answer:?}");
        assert!(answer.rows().is_empty() && answer.files.is_empty(), "{sql}: {answer:?}");
    }
    // A transaction block, opened under the fence: it stays open (W10).
    client.query("BEGIN").ok();
    assert_eq!(code(&client.query("INSERT INTO t VALUES (20)")), "ZF001");
    assert_eq!(client.query("SELECT n FROM t").ok().cell(), "1");
    client.query("COMMIT").ok();
    // A statement prepared before the fence.
    client.command(&prepared.execute(&[Some("22")]));
    assert_eq!(code(&client.answer(&[]).unwrap()), "ZF001");
    // Read-to-write upgrade of a transaction from before the fence.
    assert_eq!(code(&reader.query("INSERT INTO t VALUES (23)")), "ZF001");
    reader.query("ROLLBACK").ok();

    assert_eq!(client.query("SELECT n FROM t").ok().cell(), "1", "reads go on");
    assert_eq!(site.rows(), "1");
    site.unfence(&operation);
    client.command(&prepared.execute(&[Some("30")]));
    client.answer(&[]).unwrap().ok();
    client.query("EXECUTE sqlins").ok();
    assert_eq!(site.rows(), "1,30,90");
}

fn acceptance_04_a_program_of_several_statements_is_refused_whole(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let mut client = site.client();
    let operation = site.fence();
    let answer = client.query("SELECT 41; INSERT INTO t VALUES (1); SELECT 43");
    assert_eq!(code(&answer), "ZF001");
    assert!(answer.rows().is_empty(), "{answer:?}");
    // Sent together, in packets of their own: the read is answered, the write refused.
    client.begin_query("SELECT 41").unwrap();
    client.begin_query("INSERT INTO t VALUES (1)").unwrap();
    client.begin_query("SELECT 43").unwrap();
    assert_eq!(client.answer(&[]).unwrap().ok().cell(), "41");
    assert_eq!(code(&client.answer(&[]).unwrap()), "ZF001");
    assert_eq!(client.answer(&[]).unwrap().ok().cell(), "43");
    assert_eq!(site.rows(), "");
    site.unfence(&operation);
}

/// A proxy whose first statement of a client stops at a point of the statement path, and the file
/// whose appearance lets it go on.
fn stopped_at(flavour: MyFlavour, point: &str) -> (Proxy, std::path::PathBuf) {
    let mut proxy = Proxy::start_my(MyCluster::shared(flavour));
    let file = proxy.state_dir().with_file_name("go-on");
    proxy.kill9();
    proxy.set_env(&[("FENCEWIRE_FAULT", &format!("{point}=park:{}", file.display()))]);
    proxy.restart();
    (proxy, file)
}

fn wait_parked(file: &std::path::Path) {
    let parked = file.with_extension("parked");
    assert!(poll(PATIENCE, || parked.exists().then_some(())).is_some(), "nothing stopped there");
}

fn acceptance_04_classified_before_the_fence_and_not_forwarded_is_refused(flavour: MyFlavour) {
    let (proxy, go_on) = stopped_at(flavour, "wire.before_admission");
    let site = MySite::new(MyCluster::shared(flavour), &proxy);
    let mut client = site.client();
    client.begin_query("INSERT INTO t VALUES (1)").unwrap();
    wait_parked(&go_on);
    // The write gate was open when the statement was classified; it closes while it stands there.
    let operation = site.fence();
    std::fs::write(&go_on, "").unwrap();
    assert_eq!(code(&client.answer(&[]).unwrap()), "ZF001");
    assert_eq!(site.rows(), "");
    site.unfence(&operation);
    client.query("INSERT INTO t VALUES (2)").ok();
}

fn acceptance_04_control_arm_admitted_and_not_forwarded_is_waited_for(flavour: MyFlavour) {
    let (proxy, go_on) = stopped_at(flavour, "wire.after_admission");
    let site = MySite::new(MyCluster::shared(flavour), &proxy);
    let mut client = site.client();
    client.begin_query("INSERT INTO t VALUES (1)").unwrap();
    wait_parked(&go_on);
    let body = site.acquire_body(&uuid(), &fail_after(300));
    still_draining(&site.acquire(&body));
    std::fs::write(&go_on, "").unwrap();
    client.answer(&[]).unwrap().ok();
    applied(&site.acquire_at_last(&body));
    assert_eq!(site.rows(), "1");
}

fn acceptance_05_an_older_transaction_is_stale_after_the_release_until_it_rolls_back(
    flavour: MyFlavour,
) {
    let site = MySite::shared(flavour);
    let mut old = site.client();
    old.query("BEGIN").ok();
    old.query("SELECT n FROM t").ok();
    let operation = site.fence();
    assert_eq!(old.query("SELECT count(*) FROM t").ok().cell(), "0");
    site.unfence(&operation);
    let answer = old.query("INSERT INTO t VALUES (1)");
    assert_eq!((code(&answer).as_str(), answer.code()), ("ZF002", 9702));
    let message = &answer.error.as_ref().unwrap().message;
    assert!(message.starts_with("MIGRATION_WRITE_FENCED: "), "{message}");
    old.query("ROLLBACK").ok();
    old.query("INSERT INTO t VALUES (3)").ok();
    assert_eq!(site.rows(), "3");
}

fn acceptance_06_a_passed_deadline_answers_draining_and_only_the_release_completes(
    flavour: MyFlavour,
) {
    let site = MySite::shared(flavour);
    let mut writer = site.client();
    writer.query("BEGIN").ok();
    writer.query("INSERT INTO t VALUES (1)").ok();
    for deadline in [0, 200] {
        let operation = uuid();
        let body = site.acquire_body(&operation, &fail_after(deadline));
        let answer = site.acquire(&body);
        let draining = still_draining(&answer);
        assert_eq!(draining["fence"]["state"], "SOURCE_DRAINING");
        assert_eq!(draining["fence"]["admission"]["write"], "closed");
        let id = thread(&writer);
        assert!(blockers(draining).iter().any(|b| b["engine_pid"] == id), "{draining:#}");
        let revision = draining["fence"]["revision"].as_u64().unwrap();
        let again = site.acquire(&body);
        assert_eq!(still_draining(&again)["replayed"], true, "{again:?}");
        assert_eq!(again.1["fence"]["revision"], revision);
        assert_eq!(code(&site.client().query("INSERT INTO t VALUES (2)")), "ZF001");
        if deadline == 0 {
            site.unfence(&operation);
            continue;
        }
        writer.query("COMMIT").ok();
        // Nothing is advanced by itself: the replay completes.
        assert_eq!(site.state(), "SOURCE_DRAINING");
        let completed = site.acquire_at_last(&body);
        assert_eq!(completed.1["fence"]["revision"], revision + 1);
    }
    assert_eq!(site.rows(), "1");
}

const FORCED: &str = "fencewire_fence_forced_total{kind=\"rollback\"}";

fn acceptance_07_an_idle_transaction_is_rolled_back_by_force(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let before = metric(site.proxy, FORCED);
    let mut idle = site.client();
    idle.query("BEGIN").ok();
    idle.query("INSERT INTO t VALUES (1)").ok();
    let answer = site.acquire(&site.acquire_body(&uuid(), &force_after(100)));
    let forced = &applied(&answer)["fence"]["evidence"]["forced"];
    assert!(forced.to_string().contains("rollback"), "{forced:#}");
    assert!(metric(site.proxy, FORCED) > before, "not counted");
    let answer = idle.query("COMMIT");
    assert_eq!((code(&answer).as_str(), answer.code()), ("ZF009", 9709));
    idle.query("SELECT 1").ok();
    assert_eq!(site.rows(), "");
}

fn acceptance_07_a_running_statement_is_stopped_and_its_client_told(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let latch = MyLatch::shut(&site);
    let insert = format!("INSERT INTO t SELECT passed FROM {}", latch.wait());
    let mut alone = site.client();
    alone.begin_query(&insert).unwrap();
    let mut block = site.client();
    block.query("BEGIN").ok();
    block.query("INSERT INTO t VALUES (2)").ok();
    block.begin_query(&insert).unwrap();
    site.wait_at_latch(thread(&alone));
    site.wait_at_latch(thread(&block));
    let answer = site.acquire(&site.acquire_body(&uuid(), &force_after(100)));
    applied(&answer);
    for client in [&mut alone, &mut block] {
        // Told with the code, or by the end of the session; never by an end that looks complete.
        if let Ok(answer) = client.answer(&[]) {
            assert_eq!(code(&answer), "ZF009", "{answer:?}");
        }
    }
    latch.open();
    assert_eq!(site.rows(), "");
}

/// Many more than the engine's cache of transactions could be looked at for in the time there is.
fn acceptance_07_however_many_statements_run_each_is_stopped_and_told(flavour: MyFlavour) {
    const SESSIONS: usize = 100;
    let site = MySite::shared(flavour);
    let latch = MyLatch::shut(&site);
    let insert = format!("INSERT INTO t SELECT passed FROM {}", latch.wait());
    let mut clients: Vec<_> = (0..SESSIONS)
        .map(|_| {
            let mut client = site.client();
            client.query("BEGIN").ok();
            client.query("INSERT INTO t VALUES (2)").ok();
            client.begin_query(&insert).unwrap();
            client
        })
        .collect();
    for client in &clients {
        site.wait_at_latch(thread(client));
    }
    // The same time again is the grace.
    let answer = site.acquire(&site.acquire_body(&uuid(), &force_after(20_000)));
    let evidence = applied(&answer)["fence"]["evidence"].to_string();
    assert!(!evidence.contains("backend_termination"), "none had to be ended: {evidence}");
    for client in &mut clients {
        assert_eq!(code(&client.answer(&[]).unwrap()), "ZF009", "its session survives");
        client.query("SELECT 1").ok();
    }
    latch.open();
    assert_eq!(site.rows(), "");
}

const TERMINATED: &str = "fencewire_fence_forced_total{kind=\"backend_termination\"}";

fn acceptance_07_a_client_that_stops_reading_is_terminated_and_then_only_acknowledged(
    flavour: MyFlavour,
) {
    let site = MySite::shared(flavour);
    let before = metric(site.proxy, TERMINATED);
    let mut deaf = site.client();
    deaf.query("BEGIN").ok();
    deaf.query("INSERT INTO t VALUES (1)").ok();
    // Half a gigabyte, of which nobody reads anything.
    let rows = "SELECT REPEAT('x', 1000000) FROM information_schema.COLUMNS LIMIT 500";
    deaf.begin_query(rows).unwrap();
    let answer = site.acquire(&site.acquire_body(&uuid(), &force_after(100)));
    let evidence = &applied(&answer)["fence"]["evidence"];
    assert!(metric(site.proxy, TERMINATED) > before, "not counted");
    assert!(evidence["forced"].to_string().contains("backend_termination"), "{evidence:#}");
    let id = thread(&deaf);
    let gone = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {id}");
    assert_eq!(site.sql(&gone), "0", "acknowledged before the thread was gone");
    assert_eq!(site.rows(), "");
    // What the client gets is an error or a close, never an end that looks complete: one end is
    // that of the columns, a second one would be that of the rows.
    let mut ends = 0;
    while let Ok(packet) = deaf.read() {
        if packet.payload.first() == Some(&0xFF) {
            break;
        }
        ends += u32::from(packet.payload.first() == Some(&0xFE) && packet.payload.len() < 9);
        assert!(ends < 2, "the answer looks complete");
    }
}

fn acceptance_08_a_prepared_branch_keeps_the_drain_until_it_is_resolved(flavour: MyFlavour) {
    let (cluster, proxy) = own(flavour);
    let site = MySite::new(&cluster, &proxy);
    let mut client = site.client();
    for verb in
        ["XA START 'left'", "INSERT INTO t VALUES (1)", "XA END 'left'", "XA PREPARE 'left'"]
    {
        client.query(verb).ok();
    }
    let operation = uuid();
    let body = site.acquire_body(&operation, &fail_after(1_000));
    let answer = site.acquire(&body);
    still_draining(&answer);
    // Its session goes, and the branch stays.
    drop(client);
    let body = site.acquire_body(&operation, &force_after(0));
    let answer = std::thread::scope(|scope| {
        let acquire = scope.spawn(|| site.acquire(&body));
        site.wait("the prepared branch is named", |seen| {
            blockers(seen).iter().any(|b| b.to_string().contains("left"))
        });
        let mut other = site.client();
        for end in ["COMMIT", "ROLLBACK"] {
            let refused = other.query(&format!("XA {end} 'left'"));
            assert!(code(&refused).starts_with("ZF"), "XA {end} under the fence: {refused:?}");
        }
        assert_eq!(site.rows(), "");
        site.stays_draining(2);
        assert!(!acquire.is_finished());
        site.sql("XA COMMIT 'left'");
        acquire.join().unwrap()
    });
    applied(&answer);
    assert_eq!(site.rows(), "1");
}

fn acceptance_09_a_commit_whose_answer_is_lost_is_not_a_release(flavour: MyFlavour) {
    let cluster = MyCluster::shared(flavour);
    let link = Link::to_greeter(cluster.port());
    let url = format!("mysql://fencewire:fencewire@127.0.0.1:{}/", link.port());
    let engine = Engine { url, ..Engine::my_plain("old", cluster) };
    let options = ProxyOptions { engines: vec![engine], ..ProxyOptions::default() };
    let proxy = Proxy::start_with(options);
    let site = MySite::new(cluster, &proxy);
    let mut client = site.client();
    client.query("BEGIN").ok();
    client.query("INSERT INTO t VALUES (1)").ok();
    let id = thread(&client);

    link.mute("wire\0");
    client.begin_query("COMMIT").unwrap();
    site.wait_sql("SELECT count(*) FROM t", "1");
    link.cut_proxy("wire\0");
    if let Ok(answer) = client.answer(&[]) {
        assert_eq!((code(&answer).as_str(), answer.code()), ("08007", 9790), "{answer:?}");
    }
    // Committed, but nobody told the proxy: its thread, alive, keeps the fence from being proven.
    let body = site.acquire_body(&uuid(), &patient());
    let answer = std::thread::scope(|scope| {
        let acquire = scope.spawn(|| site.acquire(&body));
        let seen = site.wait_blocked_by(id);
        assert_eq!(blockers(&seen)[0]["class"], "orphan", "{seen:#}");
        site.stays_draining(3);
        assert!(!acquire.is_finished());
        link.cut_engine("wire\0");
        acquire.join().unwrap()
    });
    let releases = &applied(&answer)["fence"]["evidence"]["releases"];
    assert_eq!(releases["by_engine"], 1, "{releases:#}");
    assert_eq!(site.rows(), "1");
}

/// Its transaction is rolled back in front of its goodbye: the engine's answer releases the lease,
/// and nobody has to ask whether the connection is gone.
fn a_client_that_leaves_a_transaction_that_is_waited_for_is_released_by_answer(flavour: MyFlavour) {
    const QUIT: u8 = 1;
    let site = MySite::shared(flavour);
    let leaves: [fn(MyWire); 2] = [|mut client| client.command(&[QUIT]), drop];
    for leaves in leaves {
        let mut client = site.client();
        client.query("BEGIN").ok();
        client.query("INSERT INTO t VALUES (1)").ok();
        let id = thread(&client);
        let operation = uuid();
        let body = site.acquire_body(&operation, &patient());
        let answer = std::thread::scope(|scope| {
            let acquire = scope.spawn(|| site.acquire(&body));
            site.wait_blocked_by(id);
            leaves(client);
            acquire.join().unwrap()
        });
        let releases = &applied(&answer)["fence"]["evidence"]["releases"];
        let counts = [&releases["by_answer"], &releases["by_engine"]].map(Value::as_u64);
        assert_eq!(counts, [Some(1), Some(0)], "{releases:#}");
        assert_eq!(site.rows(), "");
        site.unfence(&operation);
    }
}

fn a_writer_around_the_proxy_keeps_the_drain_and_then_waits_for_the_lock(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let mut around = site.direct();
    around.query("SET SESSION lock_wait_timeout = 1").ok();
    around.query("BEGIN").ok();
    around.query("INSERT INTO t VALUES (1)").ok();
    let operation = uuid();
    let body = site.acquire_body(&operation, &patient());
    let answer = std::thread::scope(|scope| {
        let acquire = scope.spawn(|| site.acquire(&body));
        site.wait_blocked_by(thread(&around));
        site.stays_draining(2);
        assert!(!acquire.is_finished(), "acknowledged with a direct writer open");
        around.query("COMMIT").ok();
        acquire.join().unwrap()
    });
    applied(&answer);
    assert_eq!(around.query("INSERT INTO t VALUES (2)").code(), 1205, "it must wait for the lock");
    site.unfence(&operation);
    around.query("INSERT INTO t VALUES (3)").ok();
    assert_eq!(site.rows(), "1,3");
}

fn a_restarted_proxy_holds_the_lock_again(flavour: MyFlavour) {
    let cluster = MyCluster::shared(flavour);
    let mut proxy = Proxy::start_my(cluster);
    let db = {
        let site = MySite::new(cluster, &proxy);
        site.fence();
        site.db.clone()
    };
    proxy.kill9();
    proxy.restart();
    let site = MySite::at(cluster, &proxy, &db);
    let mut around = site.direct();
    around.query("SET SESSION lock_wait_timeout = 1").ok();
    site.wait("the lock is held", |seen| seen["fence"]["engine_lock"]["held"] == true);
    assert_eq!(around.query("INSERT INTO t VALUES (1)").code(), 1205);
    let operation = site.inspect()["fence"]["operation_id"].as_str().unwrap().to_owned();
    assert_eq!(code(&site.client().query("INSERT INTO t VALUES (2)")), "ZF001");
    site.unfence(&operation);
    around.query("INSERT INTO t VALUES (3)").ok();
    assert_eq!(site.rows(), "3");
}

/// The real tools: what they dump under a fence is what they dumped before it. That a snapshot goes
/// on across UNLOCK TABLES, which other tools send, is shown in `bypass_mysql`.
fn a_dump_in_a_snapshot_works_under_a_write_fence(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    site.sql("INSERT INTO t VALUES (1), (2)");
    site.sql("CREATE VIEW v AS SELECT n FROM t");
    site.sql("CREATE TABLE u (k int PRIMARY KEY, w varchar(20)); INSERT INTO u VALUES (1, 'x')");
    site.sql("CREATE TRIGGER tr BEFORE UPDATE ON u FOR EACH ROW SET NEW.w = 'y'");
    let port = site.proxy.port();
    let target = MyTarget { cluster: site.cluster, port, client_tls: false, engine_tls: false };
    let dump = |options: &[&str]| {
        let mut dump = target.dump();
        dump.args(["--skip-dump-date", "--routines", "--triggers", "--hex-blob"]);
        if flavour == MyFlavour::MySql {
            dump.args(["--set-gtid-purged=OFF", "--no-tablespaces"]);
        }
        dump.args(options).arg(&site.db);
        dump
    };
    let before = run(&mut dump(&["--single-transaction"]));
    assert!(before.contains("INSERT INTO `u`") && before.contains("-- Dump completed"), "{before}");
    let operation = site.fence();
    let under = run(&mut dump(&["--single-transaction"]));
    let differs = before.lines().zip(under.lines()).find(|(a, b)| a != b);
    assert!(before == under, "the dump differs, first at {differs:?}");
    // What flushes is a write to this server's log, and gets the fence's word for it.
    let flushing: &[&[&str]] = match flavour {
        MyFlavour::MariaDb => &[&["--flush-logs"], &["--lock-all-tables"]],
        MyFlavour::MySql => &[&["--flush-logs"], &["--source-data"], &["--set-gtid-purged=ON"]],
    };
    for options in flushing {
        let mut dump = dump(options);
        if !options.contains(&"--lock-all-tables") {
            dump.arg("--single-transaction");
        }
        let error = run_failing(&mut dump);
        assert!(error.contains("(9701)"), "{options:?}: {error}");
    }
    site.unfence(&operation);
}

/// Where the server lists no locks, nobody who writes from another schema would be seen: without
/// the engine lock that is no proof, and with it the lock is.
#[test]
fn a_server_that_lists_no_locks_proves_nothing_without_the_engine_lock() {
    for (instrument, engine_lock, proven) in [
        (("performance_schema", "OFF"), "off", false),
        (("performance_schema_instrument", "'wait/lock/metadata/sql/mdl=OFF'"), "off", false),
        (("performance_schema", "OFF"), "hold", true),
        (("performance_schema", "ON"), "off", true),
    ] {
        let settings = vec![(instrument.0.to_owned(), instrument.1.to_owned())];
        let options = MyOptions { settings, ..MyOptions::default() };
        let cluster = MyCluster::start(MyFlavour::MySql, options);
        let proxy = Proxy::start_with(ProxyOptions {
            engines: vec![Engine::my_plain("old", &cluster)],
            extra: format!("[fence]\nengine_lock = \"{engine_lock}\"\n"),
            ..ProxyOptions::default()
        });
        let site = MySite::new(&cluster, &proxy);
        // Around the proxy and from another schema, with an open write.
        let mut writer = support::MyWire::connect(cluster.port(), "wire", &cluster.fresh_db());
        writer.query("BEGIN").ok();
        writer.query(&format!("INSERT INTO {}.t VALUES (1)", site.db)).ok();
        let body = site.acquire_body(&uuid(), &fail_after(2_000));
        let (status, answer) = site.acquire(&body);
        assert_eq!(status, 202, "acknowledged with a writer open: {answer:#}");
        if engine_lock == "off" && !proven {
            assert!(answer.to_string().contains("table locks"), "{answer:#}");
        }
        writer.query("COMMIT").ok();
        if proven {
            site.acquire_at_last(&body);
        } else {
            assert_eq!(site.acquire(&body).0, 202, "acknowledged by a census that sees nothing");
        }
    }
}
