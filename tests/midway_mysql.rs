//! What a fence on MariaDB and MySQL 9 meets half-way: checkouts, loads, batches, large packets.
//!
//! Acceptance 3 and 4 where they are about more than one statement that is sent whole: a connection
//! that is waited for in a pool, a LOAD DATA, several statements in one text or in packets sent
//! ahead, a packet of which a part is with the engine. Each is either on the fence's near side (it
//! was admitted, and the drain waits for its end) or refused with nothing of it on the engine.
//! The single statements are in `fence_mysql.rs` and `bypass_mysql.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod acceptance_mysql;
mod support;

use std::path::PathBuf;

use acceptance::{PATIENCE, applied, blockers, draining, patient};
use acceptance_mysql::{MyLatch, MySite, code, on_both, thread};
use mysql_async::prelude::Queryable as _;
use serde_json::Value;
use support::my_wire::{MyLogin, flag, packets};
use support::proxy::uuid;
use support::{MyCluster, MyFlavour, MyOptions, MyWire, Proxy, poll};

on_both!(
    acceptance_03_who_waits_for_a_pooled_connection_gets_it_and_writes_nothing,
    acceptance_03_a_load_is_refused_before_a_file_is_asked_for,
    acceptance_03_a_load_under_way_is_waited_for_to_its_last_row,
    acceptance_03_what_was_prepared_before_is_refused_in_every_form,
    acceptance_04_classified_before_the_fence_an_execution_is_refused,
    acceptance_04_a_text_of_several_statements_under_way_is_waited_for_whole,
    acceptance_04_packets_sent_ahead_keep_what_was_done_and_fail_the_write,
    acceptance_04_a_large_packet_half_way_to_the_engine_is_waited_for,
    acceptance_04_a_large_packet_that_was_not_admitted_never_reaches_the_engine,
    acceptance_04_parameters_sent_ahead_of_a_fence_are_never_executed,
);

/// More than one packet on the wire.
const LARGE: usize = 17_000_000;

/// A client that may send several statements in one text, and files.
fn client_of_several(site: &MySite<'_>) -> MyWire {
    let more = flag::MULTI_STATEMENTS | flag::LOCAL_FILES;
    let login = MyLogin::of("wire", &site.db).with(more);
    MyWire::login(site.proxy.port(), &login).unwrap()
}

/// Runs an acquire beside `act`, which is given a look at whether it was answered; its answer.
fn acquire_while(site: &MySite<'_>, act: impl FnOnce(&dyn Fn() -> bool)) -> (u16, Value) {
    let body = site.acquire_body(&uuid(), &patient());
    std::thread::scope(|scope| {
        let acquire = scope.spawn(|| site.acquire(&body));
        act(&|| acquire.is_finished());
        acquire.join().unwrap()
    })
}

fn unfence(site: &MySite<'_>, answer: &(u16, Value)) {
    site.unfence(applied(answer)["fence"]["operation_id"].as_str().unwrap());
}

/// The pool's only connection is with a writer when the fence is asked for; somebody waits for it.
fn acceptance_03_who_waits_for_a_pooled_connection_gets_it_and_writes_nothing(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let url =
        format!("mysql://wire@127.0.0.1:{}/{}?prefer_socket=false", site.proxy.port(), site.db);
    let one = mysql_async::PoolConstraints::new(1, 1).unwrap();
    let options = mysql_async::PoolOpts::default().with_constraints(one);
    let options = mysql_async::OptsBuilder::from_opts(mysql_async::Opts::from_url(&url).unwrap())
        .pool_opts(options);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let pool = mysql_async::Pool::new(options);
    let mut first = runtime.block_on(pool.get_conn()).unwrap();
    runtime.block_on(first.query_drop("BEGIN")).unwrap();
    runtime.block_on(first.query_drop("INSERT INTO t VALUES (1)")).unwrap();
    let id = first.id();
    let waits = pool.clone();
    let queued = runtime.spawn(async move {
        let mut conn = waits.get_conn().await.unwrap();
        let written = conn.query_drop("INSERT INTO t VALUES (2)").await;
        let read: Option<i64> = conn.query_first("SELECT n FROM t").await.unwrap();
        (conn.id(), written, read)
    });
    let answer = acquire_while(&site, |is_over| {
        site.wait_blocked_by(id);
        assert!(!is_over() && !queued.is_finished());
        runtime.block_on(first.query_drop("COMMIT")).unwrap();
        drop(first);
    });
    let (second, written, read) = runtime.block_on(queued).unwrap();
    assert_eq!(second, id, "the pool has one connection, and keeps it");
    match written {
        Err(mysql_async::Error::Server(error)) => {
            assert_eq!((error.code, error.state.as_str()), (9701, "ZF001"));
        }
        other => panic!("not refused: {other:?}"),
    }
    assert_eq!((read, site.rows().as_str()), (Some(1), "1"));
    unfence(&site, &answer);
    runtime.block_on(pool.disconnect()).unwrap();
}

/// A file of two rows where the engine may read one, and its name in SQL.
fn server_file(site: &MySite<'_>) -> String {
    let file: PathBuf = site.cluster.files().join(format!("rows-{}", site.db));
    std::fs::write(&file, "7\n8\n").unwrap();
    format!("'{}'", file.display())
}

fn acceptance_03_a_load_is_refused_before_a_file_is_asked_for(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let there = server_file(&site);
    let mut client = client_of_several(&site);
    let operation = site.fence();
    for sql in [
        "LOAD DATA LOCAL INFILE 'rows' INTO TABLE t".to_owned(),
        "LOAD DATA LOCAL INFILE 'rows' REPLACE INTO TABLE t LINES TERMINATED BY 'x'".to_owned(),
        "/*!50000 LOAD DATA LOCAL INFILE 'rows' INTO TABLE t */".to_owned(),
        format!("LOAD DATA INFILE {there} INTO TABLE t"),
        "LOAD XML LOCAL INFILE 'rows' INTO TABLE t".to_owned(),
        "SELECT 1; LOAD DATA LOCAL INFILE 'rows' INTO TABLE t".to_owned(),
        format!("LOAD DATA LOCAL INFILE 'rows' INTO TABLE {}.t", site.db),
    ] {
        client.begin_query(&sql).unwrap();
        let answer = client.answer(b"1\n2\n").unwrap();
        assert!(["ZF001", "ZF008"].contains(&code(&answer).as_str()), "{sql}: {answer:?}");
        assert!(answer.files.is_empty() && answer.results.is_empty(), "{sql}: {answer:?}");
        assert_eq!(client.query("SELECT 5").ok().cell(), "5", "behind {sql}");
    }
    // In a transaction as well.
    client.query("BEGIN").ok();
    client.begin_query("LOAD DATA LOCAL INFILE 'rows' INTO TABLE t").unwrap();
    let answer = client.answer(b"1\n").unwrap();
    assert_eq!((code(&answer).as_str(), answer.files.len()), ("ZF001", 0));
    client.query("ROLLBACK").ok();
    assert_eq!(site.rows(), "");
    site.unfence(&operation);
    // The same, to show that they would have loaded.
    client.begin_query("LOAD DATA LOCAL INFILE 'rows' INTO TABLE t").unwrap();
    assert_eq!(client.answer(b"1\n2\n").unwrap().ok().files, ["rows"]);
    site.sql(&format!("LOAD DATA INFILE {there} INTO TABLE t"));
    assert_eq!(site.rows(), "1,2,7,8");
}

fn acceptance_03_a_load_under_way_is_waited_for_to_its_last_row(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let mut client = client_of_several(&site);
    client.begin_query("LOAD DATA LOCAL INFILE 'rows' INTO TABLE t").unwrap();
    let (sequence, asks) = client.read_piece().unwrap();
    assert_eq!(asks.first(), Some(&0xFB), "the engine asks for the file");
    let mut sequence = sequence.wrapping_add(1);
    client.send_raw(&packets(b"1\n2\n", &mut sequence));
    let answer = acquire_while(&site, |is_over| {
        site.wait_blocked_by(thread(&client));
        assert_eq!(code(&site.client().query("INSERT INTO t VALUES (9)")), "ZF001");
        site.stays_draining(3);
        assert!(!is_over(), "VIOLATION: acknowledged in the middle of a load");
        let rest = [packets(b"3\n", &mut sequence), packets(b"", &mut sequence)].concat();
        client.send_raw(&rest);
        client.answer(&[]).unwrap().ok();
    });
    applied(&answer);
    assert_eq!(site.rows(), "1,2,3");
    client.begin_query("LOAD DATA LOCAL INFILE 'rows' INTO TABLE t").unwrap();
    assert_eq!(code(&client.answer(b"4\n").unwrap()), "ZF001");
    assert_eq!(site.rows(), "1,2,3");
    unfence(&site, &answer);
}

/// By the binary protocol, with a cursor, by SQL, and MariaDB's rows in bulk; and preparing anew.
fn acceptance_03_what_was_prepared_before_is_refused_in_every_form(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    site.sql("INSERT INTO t VALUES (1)");
    site.sql("CREATE PROCEDURE p() INSERT INTO t VALUES (80)");
    let mut client = client_of_several(&site);
    let insert = client.prepare("INSERT INTO t VALUES (?)").unwrap().unwrap();
    let call = client.prepare("CALL p()").unwrap().unwrap();
    let table = client.prepare("CREATE TABLE made (n int)").unwrap().unwrap();
    client.query("PREPARE s FROM 'INSERT INTO t VALUES (?)'").ok();
    client.query("SET @n = 81").ok();
    let mut reader = site.client();
    reader.query("BEGIN").ok();
    let upgrade = reader.prepare("UPDATE t SET n = 82").unwrap().unwrap();
    reader.query("SELECT n FROM t").ok();
    let operation = site.fence();
    let with_cursor = {
        let mut payload = insert.execute(&[Some("83")]);
        payload[5] = 1;
        payload
    };
    let bulk = [&[0xFA], &insert.id.to_le_bytes()[..], &[128, 0, 0xFD, 0, 0, 2, b'8', b'4']];
    let mut sent = vec![
        insert.execute(&[Some("85")]),
        insert.execute(&[None]),
        with_cursor,
        call.execute(&[]),
        table.execute(&[]),
    ];
    if flavour == MyFlavour::MariaDb {
        sent.push(bulk.concat());
    }
    for payload in sent {
        client.command(&payload);
        let answer = client.answer(&[]).unwrap();
        assert!(["ZF001", "ZF008"].contains(&code(&answer).as_str()), "{payload:?}: {answer:?}");
    }
    for sql in ["EXECUTE s USING @n", "DEALLOCATE PREPARE s; EXECUTE s USING @n"] {
        assert!(code(&client.query(sql)).starts_with("ZF"), "{sql}");
    }
    // Prepared under the fence: refused then, or when it is executed.
    if let Ok(late) = client.prepare("INSERT INTO t VALUES (86)").unwrap() {
        client.command(&late.execute(&[]));
        assert_eq!(code(&client.answer(&[]).unwrap()), "ZF001");
    }
    reader.command(&upgrade.execute(&[]));
    assert_eq!(code(&reader.answer(&[]).unwrap()), "ZF001");
    reader.query("COMMIT").ok();
    assert_eq!(site.rows(), "1");
    site.unfence(&operation);
    client.command(&insert.execute(&[Some("2")]));
    client.answer(&[]).unwrap().ok();
    client.query("EXECUTE s USING @n").ok();
    assert_eq!(site.rows(), "1,2,81");
}

/// A proxy on this server whose `pass`th client statement stops in front of its admission, and the
/// file whose appearance lets it go on.
fn stopped_at(cluster: &MyCluster, pass: u32) -> (Proxy, PathBuf) {
    let mut proxy = Proxy::start_my(cluster);
    let file = proxy.state_dir().with_file_name("go-on");
    proxy.kill9();
    let plan = format!("wire.before_admission@{pass}=park:{}", file.display());
    proxy.set_env(&[("FENCEWIRE_FAULT", &plan)]);
    proxy.restart();
    (proxy, file)
}

fn wait_parked(file: &std::path::Path) {
    let parked = file.with_extension("parked");
    assert!(poll(PATIENCE, || parked.exists().then_some(())).is_some(), "nothing stopped there");
}

fn acceptance_04_classified_before_the_fence_an_execution_is_refused(flavour: MyFlavour) {
    let cluster = MyCluster::shared(flavour);
    // Preparing is judged first.
    let (proxy, go_on) = stopped_at(cluster, 2);
    let site = MySite::new(cluster, &proxy);
    let mut client = site.client();
    let insert = client.prepare("INSERT INTO t VALUES (?)").unwrap().unwrap();
    client.command(&insert.execute(&[Some("1")]));
    wait_parked(&go_on);
    let operation = site.fence();
    std::fs::write(&go_on, "").unwrap();
    assert_eq!(code(&client.answer(&[]).unwrap()), "ZF001");
    assert_eq!(site.rows(), "");
    site.unfence(&operation);
    client.command(&insert.execute(&[Some("2")]));
    client.answer(&[]).unwrap().ok();
    assert_eq!(site.rows(), "2");
}

fn acceptance_04_a_text_of_several_statements_under_way_is_waited_for_whole(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let latch = MyLatch::shut(&site);
    let mut client = client_of_several(&site);
    let text = format!(
        "INSERT INTO t VALUES (1); INSERT INTO t SELECT passed + 1 FROM {}; SELECT 41; \
         INSERT INTO t VALUES (3)",
        latch.wait()
    );
    client.begin_query(&text).unwrap();
    site.wait_at_latch(thread(&client));
    let answer = acquire_while(&site, |is_over| {
        site.wait_blocked_by(thread(&client));
        site.stays_draining(3);
        assert!(!is_over(), "VIOLATION: acknowledged in the middle of a text");
        latch.open();
        let done = client.answer(&[]).unwrap().ok();
        assert_eq!((done.results.len(), done.cell().as_str()), (4, "41"));
    });
    applied(&answer);
    assert_eq!(site.rows(), "1,2,3");
    // Under the fence nothing of one is done.
    let refused = client.query("SELECT 41; INSERT INTO t VALUES (4); SELECT 43");
    assert_eq!((code(&refused).as_str(), refused.results.len()), ("ZF001", 0));
    assert_eq!(site.rows(), "1,2,3");
    unfence(&site, &answer);
}

fn acceptance_04_packets_sent_ahead_keep_what_was_done_and_fail_the_write(flavour: MyFlavour) {
    for (first, result, rows) in
        [("SELECT passed FROM", "1", ""), ("INSERT INTO t SELECT passed FROM", "", "1")]
    {
        let site = MySite::shared(flavour);
        let latch = MyLatch::shut(&site);
        let mut client = site.client();
        client.begin_query(&format!("{first} {}", latch.wait())).unwrap();
        client.begin_query("INSERT INTO t VALUES (2)").unwrap();
        client.begin_query("SELECT count(*) FROM t").unwrap();
        client.begin_query("INSERT INTO t VALUES (3)").unwrap();
        site.wait_at_latch(thread(&client));
        let answer = acquire_while(&site, |is_over| {
            site.wait_blocked_by(thread(&client));
            assert!(!is_over(), "VIOLATION: acknowledged with a batch under way");
            latch.open();
            let done = client.answer(&[]).unwrap().ok();
            let cell = done.rows().first().and_then(|row| row[0].clone()).unwrap_or_default();
            assert_eq!(cell, result, "what was done before is kept");
            assert_eq!(code(&client.answer(&[]).unwrap()), "ZF001");
            let count = client.answer(&[]).unwrap().ok().cell();
            assert_eq!(count, if rows.is_empty() { "0" } else { "1" });
            assert_eq!(code(&client.answer(&[]).unwrap()), "ZF001");
        });
        applied(&answer);
        assert_eq!(site.rows(), rows);
        unfence(&site, &answer);
    }
}

/// A server that takes packets this large.
fn roomy(flavour: MyFlavour) -> MyCluster {
    let settings = vec![("max_allowed_packet".to_owned(), "64M".to_owned())];
    MyCluster::start(flavour, MyOptions { settings, ..MyOptions::default() })
}

/// COM_QUERY of an insert that is padded to more than a packet, as it is on the wire.
fn large_insert(n: u32) -> Vec<u8> {
    let text = format!("\u{3}INSERT INTO t VALUES ({n}) /* {} */", "x".repeat(LARGE));
    packets(text.as_bytes(), &mut 0)
}

/// Waits until a thread's session has a lease of this class.
#[track_caller]
fn wait_lease(site: &MySite<'_>, thread: u32, class: &str) {
    let admitted = poll(PATIENCE, || {
        let seen = site.proxy.admin("GET", "/v1/sessions", &Value::Null).1;
        let sessions = seen["sessions"].as_array().cloned().unwrap_or_default();
        let own = sessions.iter().find(|s| s["engine_pid"] == thread)?;
        (own["lease"]["class"] == class).then_some(())
    });
    assert!(admitted.is_some(), "the first part was never admitted");
}

/// What a session's engine side has received, by the engine's own count.
fn received(client: &mut MyWire) -> u64 {
    let counted = client.query("SHOW SESSION STATUS LIKE 'Bytes_received'").ok();
    counted.rows()[0][1].as_ref().unwrap().parse().unwrap()
}

fn acceptance_04_a_large_packet_half_way_to_the_engine_is_waited_for(flavour: MyFlavour) {
    let cluster = roomy(flavour);
    let proxy = Proxy::start_my(&cluster);
    let site = MySite::new(&cluster, &proxy);
    let (mut text, mut binary) = (site.client(), site.client());
    let statement = binary.prepare("INSERT INTO t SELECT LENGTH(?)").unwrap().unwrap();
    let wide = "y".repeat(LARGE);
    let execution = packets(&statement.execute(&[Some(&wide)]), &mut 0);
    let insert = large_insert(1);
    // More than the proxy reads before it decides, so that the first part is on its way; the second
    // half begins in the other packet of the two.
    let (first, rest) = insert.split_at(2_000_000);
    text.send_raw(first);
    let (half, other_half) = execution.split_at(LARGE - 10_000);
    binary.send_raw(half);
    for client in [&text, &binary] {
        wait_lease(&site, thread(client), "write");
    }
    let answer = acquire_while(&site, |is_over| {
        site.wait_blocked_by(thread(&text));
        site.wait_blocked_by(thread(&binary));
        text.send_raw(rest);
        text.answer(&[]).unwrap().ok();
        site.wait("the first writer is released", |seen| blockers(seen).len() == 1);
        assert!(!is_over(), "VIOLATION: acknowledged with half a packet at the engine");
        binary.send_raw(other_half);
        binary.answer(&[]).unwrap().ok();
    });
    applied(&answer);
    assert_eq!(site.rows(), format!("1,{LARGE}"));
    unfence(&site, &answer);
}

fn acceptance_04_a_large_packet_that_was_not_admitted_never_reaches_the_engine(flavour: MyFlavour) {
    let cluster = roomy(flavour);
    let (proxy, go_on) = stopped_at(&cluster, 1);
    let site = MySite::new(&cluster, &proxy);
    let mut client = site.client();
    let insert = large_insert(1);
    let (first, rest) = insert.split_at(3_000_000);
    client.send_raw(first);
    wait_parked(&go_on);
    // Classified by its beginning, and nothing of it forwarded; the fence comes.
    let operation = site.fence();
    std::fs::write(&go_on, "").unwrap();
    client.send_raw(rest);
    let answer = client.answer(&[]).unwrap();
    assert!(["ZF001", "ZF008"].contains(&code(&answer).as_str()), "{answer:?}");
    assert!(received(&mut client) < 100_000, "some of it was forwarded");
    // The same when the fence is up already, and by the binary protocol.
    client.send_raw(&large_insert(2));
    let answer = client.answer(&[]).unwrap();
    assert!(["ZF001", "ZF008"].contains(&code(&answer).as_str()), "{answer:?}");
    assert!(received(&mut client) < 100_000, "some of it was forwarded");
    assert_eq!(site.rows(), "");
    site.unfence(&operation);
    let statement = client.prepare("INSERT INTO t SELECT LENGTH(?)").unwrap().unwrap();
    let operation = site.fence();
    let wide = "y".repeat(LARGE);
    client.send_raw(&packets(&statement.execute(&[Some(&wide)]), &mut 0));
    assert_eq!(code(&client.answer(&[]).unwrap()), "ZF001");
    assert!(received(&mut client) < 100_000, "some of it was forwarded");
    assert_eq!(site.rows(), "");
    site.unfence(&operation);
    // The count is one that would have shown it.
    client.send_raw(&large_insert(3));
    client.answer(&[]).unwrap().ok();
    assert!(received(&mut client) > 17_000_000);
    assert_eq!(site.rows(), "3");
}

/// Long data is no program: it is with the engine before anything is decided, and what is decided
/// is whether it is ever used.
fn acceptance_04_parameters_sent_ahead_of_a_fence_are_never_executed(flavour: MyFlavour) {
    let cluster = roomy(flavour);
    let proxy = Proxy::start_my(&cluster);
    let site = MySite::new(&cluster, &proxy);
    let mut client = site.client();
    let statement = client.prepare("INSERT INTO t SELECT LENGTH(?)").unwrap().unwrap();
    let head = [&[0x18], &statement.id.to_le_bytes()[..], &[0, 0]].concat();
    let data = packets(&[head, vec![b'z'; LARGE]].concat(), &mut 0);
    let (first, rest) = data.split_at(LARGE / 2);
    client.send_raw(first);
    // Nobody waits for it: it can't become a write by itself.
    let operation = site.fence();
    client.send_raw(rest);
    let mut execute = statement.execute(&[Some("")]);
    execute.pop(); // the value was sent before
    client.command(&execute);
    assert_eq!(code(&client.answer(&[]).unwrap()), "ZF001");
    assert_eq!(site.rows(), "");
    assert!(!draining(&site.inspect()));
    site.unfence(&operation);
    client.command(&execute);
    client.answer(&[]).unwrap().ok();
    assert_eq!(site.rows(), LARGE.to_string());
}
