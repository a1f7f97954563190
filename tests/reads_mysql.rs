//! Acceptance 14 and 15 of the fence contract on MariaDB and MySQL 9: the read fence, the twin of
//! `reads_pg.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod acceptance_mysql;
mod support;

use std::io::Read as _;
use std::process::Stdio;

use acceptance::{applied, blockers, fail_after, metric, patient, refused, still_draining};
use acceptance_mysql::{MyLatch, MySite, code, on_both, own, shared_proxy, thread};
use serde_json::{Value, json};
use support::my_tools::MyTarget;
use support::my_wire::{MyError, Prepared};
use support::tools::{run, run_failing};
use support::{Engine, MyCluster, MyFlavour, MyWire, Proxy, ProxyOptions};

on_both!(
    acceptance_14_a_running_query_is_waited_for_and_new_reads_are_refused,
    acceptance_14_at_the_deadline_a_query_is_stopped_and_its_client_sees_the_fences_code,
    acceptance_14_an_open_cursor_is_waited_for_until_it_is_closed,
    acceptance_14_at_the_deadline_an_open_cursor_is_closed_and_its_client_told,
    acceptance_14_a_reader_whose_client_stopped_reading_is_released_and_does_not_look_complete,
    acceptance_14_a_dump_that_is_cut_says_so_and_a_new_one_is_refused,
    acceptance_14_the_binary_log_is_ended_at_once_and_a_new_one_is_refused,
    acceptance_15_an_idle_transaction_holds_nothing_and_is_refused_and_rolled_back,
    acceptance_16_a_read_of_a_fenced_schema_by_name_is_refused_and_waited_for,
    acceptance_25_without_read_cancel_a_read_keeps_the_drain_for_ever,
);

/// A site whose writes are fenced; with the operation.
fn fenced(flavour: MyFlavour) -> (MySite<'static>, String) {
    let site = MySite::shared(flavour);
    site.sql("INSERT INTO t VALUES (1), (2), (3)");
    let operation = site.fence();
    (site, operation)
}

/// Raises the read fence from aside while `meanwhile` runs; answers the command's answer.
fn raise(
    site: &MySite<'_>,
    operation: &str,
    policy: &Value,
    meanwhile: impl FnOnce(),
) -> (u16, Value) {
    let body = site.reads_body(operation, policy);
    std::thread::scope(|scope| {
        let set = scope.spawn(|| site.set_read(&body));
        meanwhile();
        set.join().unwrap()
    })
}

fn evidence(answer: &(u16, Value)) -> &Value {
    let body = applied(answer);
    assert_eq!(body["fence"]["state"], "SOURCE_READ_FENCED", "{body:#}");
    &body["fence"]["read_evidence"]
}

fn acceptance_14_a_running_query_is_waited_for_and_new_reads_are_refused(flavour: MyFlavour) {
    let (site, operation) = fenced(flavour);
    let latch = MyLatch::shut(&site);
    let mut running = site.client();
    running.begin_query(&format!("SELECT n FROM t, {}", latch.wait())).unwrap();
    site.wait_at_latch(thread(&running));
    let mut other = site.client();
    let prepared = other.prepare("SELECT n FROM t").unwrap().unwrap();
    let answer = raise(&site, &operation, &patient(), || {
        let seen = site.wait_read_by(thread(&running), "reader");
        assert_eq!(seen["drain"]["read_leases"]["sql"], 1, "{seen:#}");
        assert_eq!(seen["fence"]["admission"]["read"], "closed", "{seen:#}");
        for sql in [
            "SELECT n FROM t",
            "SELECT 1",
            "BEGIN",
            "START TRANSACTION WITH CONSISTENT SNAPSHOT",
            "SHOW TABLES",
            "EXPLAIN SELECT n FROM t",
            "SET @a = 1",
            "SELECT 1; SELECT 2",
        ] {
            let answer = other.query(sql);
            assert_eq!((code(&answer).as_str(), answer.code()), ("ZF003", 9703), "{sql}");
            assert!(answer.rows().is_empty(), "{sql}");
        }
        for write in ["INSERT INTO t VALUES (9)", "CREATE TABLE made (n int)"] {
            assert_eq!(code(&other.query(write)), "ZF001", "{write}");
        }
        other.command(&prepared.execute(&[]));
        assert_eq!(code(&other.answer(&[]).unwrap()), "ZF003");
        latch.open();
    });
    assert_eq!(evidence(&answer)["releases"], json!({ "by_answer": 1, "by_engine": 0 }));
    assert_eq!(evidence(&answer)["forced"], json!([]));
    assert_eq!(running.answer(&[]).unwrap().ok().rows().len(), 3, "it ended by itself, whole");
    assert_eq!(code(&running.query("SELECT 1")), "ZF003");
    refused(&site.release(&site.release_body(&operation)), 409, "INVALID_FENCE_TRANSITION");
    site.unfence_reads(&operation);
    assert_eq!(running.query("SELECT count(*) FROM t").ok().cell(), "3");
    assert_eq!(code(&running.query("INSERT INTO t VALUES (9)")), "ZF001", "writes stay closed");
    other.command(&prepared.execute(&[]));
    other.packet();
    site.unfence(&operation);
}

fn acceptance_14_at_the_deadline_a_query_is_stopped_and_its_client_sees_the_fences_code(
    flavour: MyFlavour,
) {
    let (site, operation) = fenced(flavour);
    let latch = MyLatch::shut(&site);
    let waits = format!("SELECT n FROM t, {}", latch.wait());
    let mut alone = site.client();
    alone.begin_query(&waits).unwrap();
    let mut block = site.client();
    block.query("BEGIN").ok();
    block.query("SELECT n FROM t").ok();
    block.begin_query(&waits).unwrap();
    for client in [&alone, &block] {
        site.wait_at_latch(thread(client));
    }
    let answer = raise(&site, &operation, &fail_after(100), || ());
    assert_eq!(evidence(&answer)["releases"]["by_answer"], 2, "{answer:?}");
    assert_eq!(evidence(&answer)["forced"].to_string().matches("sql_cancel").count(), 2);
    for client in [&mut alone, &mut block] {
        let answer = client.answer(&[]).unwrap();
        assert_eq!((code(&answer).as_str(), answer.code()), ("ZF003", 9703), "{answer:?}");
    }
    // The transaction is as a refused one: its next statement is refused, and it is rolled back.
    assert_eq!(code(&block.query("SELECT 1")), "ZF003");
    block.query("ROLLBACK").ok();
    site.unfence_reads(&operation);
    for client in [&mut alone, &mut block] {
        assert_eq!(client.query("SELECT count(*) FROM t").ok().cell(), "3");
    }
    latch.open();
    site.unfence(&operation);
}

/// COM_STMT_EXECUTE that opens a cursor for reading.
fn open_cursor(client: &mut MyWire, sql: &str) -> Prepared {
    let prepared = client.prepare(sql).unwrap().unwrap();
    let mut execute = prepared.execute(&[]);
    execute[5] = 1;
    client.command(&execute);
    // The columns and their end: no rows are sent.
    let first = client.packet().payload;
    assert_ne!(first[0], 0xFF, "{:?}", MyError::parse(&first));
    for _ in 0..=prepared.columns {
        client.packet();
    }
    prepared
}

/// COM_STMT_FETCH of some rows: how many came, or the error.
fn fetch(client: &mut MyWire, prepared: Prepared, rows: u32) -> Result<usize, MyError> {
    let mut payload = vec![0x1c];
    payload.extend(prepared.id.to_le_bytes());
    payload.extend(rows.to_le_bytes());
    client.command(&payload);
    let mut count = 0;
    loop {
        let packet = client.packet().payload;
        match packet.first() {
            Some(0xFF) => return Err(MyError::parse(&packet)),
            Some(0xFE) => return Ok(count),
            Some(_) | None => count += 1,
        }
    }
}

fn acceptance_14_an_open_cursor_is_waited_for_until_it_is_closed(flavour: MyFlavour) {
    let (site, operation) = fenced(flavour);
    let mut clients = [site.client(), site.client(), site.client()];
    let cursors = clients.each_mut().map(|client| open_cursor(client, "SELECT n FROM t"));
    for (client, cursor) in clients.iter_mut().zip(cursors) {
        assert_eq!(fetch(client, cursor, 1).unwrap(), 1);
    }
    // One at its end isn't open any more.
    assert_eq!(fetch(&mut clients[2], cursors[2], 10).unwrap(), 2);
    let answer = raise(&site, &operation, &patient(), || {
        site.wait_read_by(thread(&clients[0]), "cursor");
        let seen = site.wait_read_by(thread(&clients[1]), "cursor");
        assert_eq!(blockers(&seen).len(), 2, "{seen:#}");
        assert_eq!(fetch(&mut clients[0], cursors[0], 1).unwrap_err().state, "ZF003");
        // COM_STMT_CLOSE, and the end of a session.
        clients[0].command(&[&[0x19][..], &cursors[0].id.to_le_bytes()].concat());
        clients[1].command(&[1]);
    });
    assert_eq!(evidence(&answer)["forced"], json!([]), "{answer:?}");
    site.unfence_reads(&operation);
    site.unfence(&operation);
}

fn acceptance_14_at_the_deadline_an_open_cursor_is_closed_and_its_client_told(flavour: MyFlavour) {
    let (site, operation) = fenced(flavour);
    let mut client = site.client();
    let one = open_cursor(&mut client, "SELECT n FROM t");
    let two = open_cursor(&mut client, "SELECT n + 1 FROM t");
    assert_eq!(fetch(&mut client, one, 1).unwrap(), 1);
    let answer = raise(&site, &operation, &fail_after(100), || ());
    assert!(evidence(&answer)["forced"].to_string().contains("sql_cancel"), "{answer:?}");
    assert_eq!(fetch(&mut client, one, 1).unwrap_err().state, "ZF003");
    site.unfence_reads(&operation);
    // Told also when reads are open again: what it had is gone.
    assert_eq!(fetch(&mut client, two, 1).unwrap_err().state, "ZF003");
    assert_eq!(client.query("SELECT count(*) FROM t").ok().cell(), "3");
    let anew = open_cursor(&mut client, "SELECT n FROM t");
    assert_eq!(fetch(&mut client, anew, 10).unwrap(), 3);
    site.unfence(&operation);
}

fn acceptance_14_a_reader_whose_client_stopped_reading_is_released_and_does_not_look_complete(
    flavour: MyFlavour,
) {
    let (site, operation) = fenced(flavour);
    let mut deaf = site.client();
    // Half a gigabyte, of which nobody reads anything.
    let rows = "SELECT REPEAT('x', 1000000) FROM information_schema.COLUMNS LIMIT 500";
    deaf.begin_query(rows).unwrap();
    let answer = raise(&site, &operation, &fail_after(100), || ());
    assert_eq!(evidence(&answer)["releases"]["by_engine"], 1, "{answer:?}");
    assert!(evidence(&answer)["forced"].to_string().contains("backend_termination"));
    let id = thread(&deaf);
    let gone = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {id}");
    assert_eq!(site.sql(&gone), "0", "acknowledged before the thread was gone");
    // One end is that of the columns, a second one would be that of the rows.
    let mut ends = 0;
    while let Ok(packet) = deaf.read() {
        if packet.payload.first() == Some(&0xFF) {
            assert_eq!(MyError::parse(&packet.payload).state, "ZF003");
            break;
        }
        ends += u32::from(packet.payload.first() == Some(&0xFE) && packet.payload.len() < 9);
        assert!(ends < 2, "the answer looks complete");
    }
    site.unfence_reads(&operation);
    site.unfence(&operation);
}

fn acceptance_14_a_dump_that_is_cut_says_so_and_a_new_one_is_refused(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    site.sql("CREATE TABLE large (x longtext)");
    site.sql(
        "INSERT INTO large SELECT REPEAT('x', 1000000) FROM information_schema.COLUMNS LIMIT 100",
    );
    let operation = site.fence();
    let (cluster, port) = (site.cluster, site.proxy.port());
    let target = MyTarget { cluster, port, client_tls: false, engine_tls: false };
    let dump = || {
        let mut dump = target.dump();
        dump.args(["--single-transaction", "--no-tablespaces", "--skip-triggers", "--quick"]);
        if flavour == MyFlavour::MySql {
            // Else it flushes tables, which a write fence refuses.
            dump.arg("--set-gtid-purged=OFF");
        }
        dump.arg(&site.db);
        dump
    };
    assert!(run(&mut dump()).contains("Dump completed"), "control arm");
    // Nobody reads what it writes, until it is over.
    let mut cut = dump().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    site.wait("the dump reads", |seen| seen["drain"]["read_leases"]["dump"] == 1);
    let large = format!(
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = '{}' \
         AND USER = 'app' AND INFO LIKE '%large%'",
        site.db
    );
    site.wait_sql(&large, "1");
    let answer = raise(&site, &operation, &fail_after(2_000), || {
        site.wait("the dump is named", |seen| {
            blockers(seen).iter().any(|one| one["class"] == "dump")
        });
        let error = run_failing(&mut dump());
        assert!(error.contains("MIGRATION_READ_FENCED"), "{error}");
    });
    assert!(evidence(&answer)["forced"].to_string().contains("dump_cancel"), "{answer:?}");
    let (mut text, mut said) = (String::new(), String::new());
    cut.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    cut.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!cut.wait().unwrap().success(), "a cut dump succeeded");
    assert!(!text.contains("Dump completed"), "a cut dump looks complete");
    assert!(!said.is_empty());
    site.unfence_reads(&operation);
    site.unfence(&operation);
}

/// COM_BINLOG_DUMP from the first file on: the engine waits for more at its end.
fn stream(client: &mut MyWire, file: &str, server_id: u8) -> Result<(), MyError> {
    let mut dump = vec![0x12, 4, 0, 0, 0, 0, 0, server_id, 0, 0, 0];
    dump.extend(file.as_bytes());
    client.command(&dump);
    let first = client.packet().payload;
    if first[0] == 0xFF { Err(MyError::parse(&first)) } else { Ok(()) }
}

fn acceptance_14_the_binary_log_is_ended_at_once_and_a_new_one_is_refused(flavour: MyFlavour) {
    // The log is of all schemas, and so is asked for at all their gates: a server of its own.
    let (cluster, proxy) = own(flavour);
    let site = MySite::new(&cluster, &proxy);
    site.sql("INSERT INTO t VALUES (1), (2), (3)");
    let operation = site.fence();
    site.sql("GRANT REPLICATION SLAVE ON *.* TO 'wire'@'127.0.0.1'");
    let file = site.sql("SHOW BINARY LOGS").lines().last().unwrap().to_owned();
    let file = file.split_whitespace().next().unwrap().to_owned();
    // Of another schema: the log is of all.
    let mut replica = MyWire::connect(site.proxy.port(), "wire", "information_schema");
    replica.query("SET @master_binlog_checksum = 'NONE', @source_binlog_checksum = 'NONE'").ok();
    stream(&mut replica, &file, 77).unwrap();
    let answer = raise(&site, &operation, &patient(), || {
        // An end that looks like one of the log would be a packet that begins with 0xFE.
        let mut told = None;
        while let Ok(packet) = replica.read() {
            match packet.payload.first() {
                Some(0xFF) => told = Some(MyError::parse(&packet.payload).state),
                Some(0xFE) => panic!("a cut log looks complete"),
                Some(_) | None => {}
            }
        }
        assert_eq!(told.as_deref(), Some("ZF003"));
    });
    assert!(evidence(&answer)["forced"].to_string().contains("stream_termination"), "{answer:?}");
    let mut anew = MyWire::connect(site.proxy.port(), "wire", "information_schema");
    assert_eq!(stream(&mut anew, &file, 78).unwrap_err().state, "ZF003");
    site.unfence_reads(&operation);
    anew.query("SET @master_binlog_checksum = 'NONE', @source_binlog_checksum = 'NONE'").ok();
    stream(&mut anew, &file, 78).unwrap();
    site.unfence(&operation);
}

fn acceptance_15_an_idle_transaction_holds_nothing_and_is_refused_and_rolled_back(
    flavour: MyFlavour,
) {
    let (site, operation) = fenced(flavour);
    let mut idle = [site.client(), site.client(), site.client(), site.client()];
    for client in &mut idle {
        client.query("BEGIN").ok();
        client.query("SELECT n FROM t").ok();
    }
    // Applied with the transactions open: they aren't waited for, and nothing is forced on them.
    let answer = site.set_read(&site.reads_body(&operation, &patient()));
    assert_eq!(evidence(&answer)["releases"], json!({ "by_answer": 0, "by_engine": 0 }));
    assert_eq!(evidence(&answer)["forced"], json!([]));
    let [rolls_back, commits, begins, ends] = &mut idle;
    for client in [&mut *rolls_back, &mut *commits, &mut *begins] {
        let answer = client.query("SELECT n FROM t");
        let error = answer.error.as_ref().unwrap();
        assert_eq!((error.state.as_str(), error.code), ("ZF003", 9703));
        for part in ["MIGRATION_READ_FENCED: ", site.namespace().as_str(), "SOURCE_READ_FENCED"] {
            assert!(error.message.contains(part), "{part:?} is not in {error:?}");
        }
        // The list is a cache that is renewed only when nobody has looked for 100 ms.
        let open = format!(
            "DO SLEEP(0.2); \
             SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id = {}",
            thread(client)
        );
        site.wait_sql(&open, "0");
    }
    rolls_back.query("ROLLBACK").ok();
    assert_eq!(code(&commits.query("COMMIT")), "ZF003", "what it would end is gone");
    ends.query("COMMIT").ok();
    for client in &mut idle {
        assert_eq!(code(&client.query("BEGIN")), "ZF003");
    }
    site.unfence_reads(&operation);
    for client in &mut idle {
        assert_eq!(client.query("SELECT count(*) FROM t").ok().cell(), "3");
        client.query("BEGIN").ok();
        client.query("SELECT 1").ok();
        client.query("COMMIT").ok();
    }
    site.unfence(&operation);
    idle[0].query("INSERT INTO t VALUES (4)").ok();
    assert_eq!(site.rows(), "1,2,3,4");
}

fn acceptance_16_a_read_of_a_fenced_schema_by_name_is_refused_and_waited_for(flavour: MyFlavour) {
    let (site, operation) = fenced(flavour);
    let latch = MyLatch::shut(&site);
    let mut elsewhere = MyWire::connect(site.proxy.port(), "wire", "information_schema");
    let cursor = open_cursor(&mut elsewhere, &format!("SELECT n FROM {}.t", site.db));
    assert_eq!(fetch(&mut elsewhere, cursor, 1).unwrap(), 1);
    let mut running = MyWire::connect(site.proxy.port(), "wire", "information_schema");
    running.begin_query(&format!("SELECT n FROM {}.t, {}", site.db, latch.wait())).unwrap();
    site.wait_at_latch(thread(&running));
    let answer = raise(&site, &operation, &fail_after(2_000), || {
        site.wait_read_by(thread(&running), "reader");
    });
    assert_eq!(evidence(&answer)["releases"]["by_answer"], 1, "{answer:?}");
    assert_eq!(code(&running.answer(&[]).unwrap()), "ZF003");
    for sql in [format!("SELECT n FROM {}.t", site.db), format!("USE {}", site.db)] {
        assert_eq!(code(&elsewhere.query(&sql)), "ZF003", "{sql}");
    }
    // What an older cursor still has of it isn't given out either.
    assert_eq!(fetch(&mut elsewhere, cursor, 1).unwrap_err().state, "ZF003");
    elsewhere.query("SELECT 1").ok();
    // A transaction of another schema loses the statement and nothing else.
    let other = MySite::shared(flavour);
    let mut writer = other.client();
    for sql in ["BEGIN", "INSERT INTO t VALUES (1)"] {
        writer.query(sql).ok();
    }
    assert_eq!(code(&writer.query(&format!("SELECT n FROM {}.t", site.db))), "ZF003");
    writer.query("COMMIT").ok();
    assert_eq!(other.rows(), "1");
    site.unfence_reads(&operation);
    assert_eq!(fetch(&mut elsewhere, cursor, 1).unwrap(), 1);
    latch.open();
    site.unfence(&operation);
}

fn acceptance_25_without_read_cancel_a_read_keeps_the_drain_for_ever(flavour: MyFlavour) {
    let cluster = MyCluster::shared(flavour);
    for (guard, status) in [("", 200), ("read-cancel", 202)] {
        let proxy: Proxy = Proxy::start_with(ProxyOptions {
            engines: vec![Engine::my_plain("old", cluster)],
            env: vec![("FENCEWIRE_REMOVE".into(), guard.into())],
            ..ProxyOptions::default()
        });
        let site = MySite::new(cluster, &proxy);
        site.sql("INSERT INTO t VALUES (1)");
        let operation = site.fence();
        let latch = MyLatch::shut(&site);
        let mut client = site.client();
        client.begin_query(&format!("SELECT n FROM t, {}", latch.wait())).unwrap();
        site.wait_at_latch(thread(&client));
        let answer = site.set_read(&site.reads_body(&operation, &fail_after(100)));
        assert_eq!(answer.0, status, "without {guard:?}: {:#}", answer.1);
        if status == 202 {
            let state = &still_draining(&answer)["fence"]["state"];
            assert_eq!(state, "SOURCE_READ_DRAINING", "{:#}", answer.1);
        }
        latch.open();
    }
}

#[test]
fn what_was_forced_is_counted() {
    let (site, operation) = fenced(MyFlavour::MariaDb);
    let proxy = shared_proxy(MyFlavour::MariaDb);
    let latch = MyLatch::shut(&site);
    let series = "fencewire_fence_forced_total{kind=\"sql_cancel\"}";
    let before = metric(proxy, series);
    let mut client = site.client();
    client.begin_query(&format!("SELECT n FROM t, {}", latch.wait())).unwrap();
    site.wait_at_latch(thread(&client));
    evidence(&raise(&site, &operation, &fail_after(100), || ()));
    assert!(metric(proxy, series) > before, "not counted");
    assert_eq!(code(&client.answer(&[]).unwrap()), "ZF003");
    latch.open();
    site.unfence_reads(&operation);
    site.unfence(&operation);
}
