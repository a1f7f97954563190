//! Faults reported in public for other MySQL proxies and drivers, each tried here with its right
//! value, on MariaDB and on MySQL 9: the twin of `faults_pg`.
//!
//! [`REPORTED`] has every MySQL and MariaDB item of the list that this project keeps of them, with
//! what shows it, which is looked for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod acceptance_mysql;
mod support;

use acceptance::{PATIENCE, blockers, fail_after, refused, still_draining};
use acceptance_mysql::{MyLatch, MySite, code, on_both, own, thread};
use serde_json::json;
use support::my_wire::{MyLogin, PACKET_MAX, Packet, flag, status};
use support::proxy::uuid;
use support::{
    Engine, MyCluster, MyFlavour, MyOptions, MyWire, Proxy, ProxyOptions, free_port, poll,
};

/// How a report is met.
enum Met {
    /// By a test: the file without its ending, and the name.
    Test(&'static str, &'static str),
    /// By a conversation of the corpus: the file without its ending, and the name.
    Talk(&'static str, &'static str),
    /// By a test of `src/wire/mysql`, where no engine shows the fault when it is asked to.
    Unit(&'static str, &'static str),
}

use Met::{Talk, Test, Unit};

/// Project and numbers of each report, and how it is met.
const REPORTED: &[(&str, &[u32], Met)] = &[
    (
        "vitess",
        &[9400, 9453, 9481],
        Test(
            "fence_mysql",
            "acceptance_02_acquire_waits_for_the_open_writer_and_the_boundary_lies_behind_it",
        ),
    ),
    (
        "vitess",
        &[16563],
        Test(
            "fence_mysql",
            "acceptance_02_acquire_waits_for_the_open_writer_and_the_boundary_lies_behind_it",
        ),
    ),
    (
        "vitess",
        &[17326],
        Test("crash_mysql", "acceptance_10_a_proxy_that_dies_at_any_point_of_an_acquire"),
    ),
    (
        "vitess",
        &[15707, 15701],
        Test(
            "faults_mysql",
            "vitess_15707_and_15701_a_second_operation_while_one_drains_is_refused",
        ),
    ),
    (
        "vitess",
        &[6951],
        Test(
            "fence_mysql",
            "a_writer_around_the_proxy_keeps_the_drain_and_then_waits_for_the_lock",
        ),
    ),
    (
        "vitess",
        &[13999],
        Test("faults_mysql", "vitess_13999_a_cancelled_run_leaves_nothing_to_the_next"),
    ),
    (
        "vitess",
        &[15630],
        Test("faults_mysql", "vitess_15630_an_engine_that_is_away_is_named_and_the_others_go_on"),
    ),
    ("vitess", &[6643], Talk("prepared", "an iteration count of none")),
    (
        "vitess",
        &[20542],
        Test("faults_mysql", "vitess_20542_a_prepared_call_and_set_answer_as_the_engine_does"),
    ),
    (
        "proxysql",
        &[3587, 2391, 3535, 4984, 1755],
        Test("faults_mysql", "proxysql_3587_and_others_without_autocommit_the_first_access_begins"),
    ),
    (
        "proxysql",
        &[3749],
        Test(
            "faults_mysql",
            "proxysql_3749_the_flags_behind_a_savepoint_and_a_commit_are_the_engines",
        ),
    ),
    (
        "proxysql",
        &[1038],
        Test("faults_mysql", "proxysql_1038_an_error_does_not_end_a_transaction"),
    ),
    (
        "proxysql",
        &[5170, 4297, 337],
        Test(
            "fence_mysql",
            "acceptance_06_a_passed_deadline_answers_draining_and_only_the_release_completes",
        ),
    ),
    (
        "proxysql",
        &[1350, 1029, 111],
        Test("faults_mysql", "proxysql_1350_1029_and_111_parameters_of_more_than_one_packet"),
    ),
    (
        "proxysql",
        &[3251, 3296],
        Unit("answers_tests", "an_eof_where_an_ok_was_agreed_on_is_told_by_its_length"),
    ),
    (
        "proxysql",
        &[833, 3500],
        Test("faults_mysql", "proxysql_833_and_3500_a_local_file_is_the_clients"),
    ),
    (
        "proxysql",
        &[917],
        Test(
            "faults_mysql",
            "proxysql_917_and_matrixone_27602_a_temporary_table_stays_with_its_session",
        ),
    ),
    (
        "proxysql",
        &[2793],
        Test("faults_mysql", "proxysql_2793_who_asks_for_compression_gets_a_session_without"),
    ),
    (
        "proxysql",
        &[345, 573, 2791, 2912],
        Test("faults_mysql", "proxysql_345_and_others_a_write_that_is_killed_is_not_sent_again"),
    ),
    ("proxysql", &[3276, 875, 2289], Talk("logins", "login: charset {charset}")),
    ("readyset", &[1695], Talk("logins", "login: charset {charset}")),
    (
        "readyset",
        &[921],
        Test(
            "faults_mysql",
            "readyset_921_proxysql_3656_and_matrixone_27736_a_reset_keeps_the_schema",
        ),
    ),
    (
        "proxysql",
        &[3656],
        Test(
            "faults_mysql",
            "readyset_921_proxysql_3656_and_matrixone_27736_a_reset_keeps_the_schema",
        ),
    ),
    (
        "matrixone",
        &[27736],
        Test(
            "faults_mysql",
            "readyset_921_proxysql_3656_and_matrixone_27736_a_reset_keeps_the_schema",
        ),
    ),
    (
        "matrixone",
        &[27602],
        Test(
            "faults_mysql",
            "proxysql_917_and_matrixone_27602_a_temporary_table_stays_with_its_session",
        ),
    ),
    (
        "MXS",
        &[5350, 5351, 4625],
        Test("faults_mysql", "mxs_5350_5351_and_4625_an_xa_end_is_no_end"),
    ),
    ("MXS", &[3959], Test("faults_mysql", "mxs_3959_an_implicit_commit_ends_the_transaction")),
    ("MXS", &[3801], Talk("prepared", "cursors")),
    (
        "doris",
        &[46386, 37690],
        Test("faults_mysql", "doris_46386_37690_and_proxysql_1062_a_prepares_answer_has_12_bytes"),
    ),
    (
        "proxysql",
        &[1062],
        Test("faults_mysql", "doris_46386_37690_and_proxysql_1062_a_prepares_answer_has_12_bytes"),
    ),
    (
        "node-mysql2",
        &[2050, 4075, 4082],
        Test(
            "faults_mysql",
            "node_mysql2_and_go_sql_driver_a_refusal_is_no_read_only_engines_and_keeps_the_session",
        ),
    ),
    (
        "go-sql-driver",
        &[604, 634],
        Test(
            "faults_mysql",
            "node_mysql2_and_go_sql_driver_a_refusal_is_no_read_only_engines_and_keeps_the_session",
        ),
    ),
    (
        "proxysql",
        &[4998],
        Test("faults_mysql", "proxysql_4998_what_an_engine_does_on_connect_is_its_own_affair"),
    ),
];

/// The list as it is kept: projects and the numbers of their reports.
const LIST: &[(&str, &[u32])] = &[
    ("vitess", &[9400, 9453, 9481, 16563, 17326, 15707, 15701, 6951, 13999, 15630, 6643, 20542]),
    (
        "proxysql",
        &[
            3587, 2391, 3535, 4984, 1755, 3749, 1038, 5170, 4297, 337, 1350, 1029, 111, 3251, 3296,
            833, 3500, 917, 2793, 345, 573, 2791, 2912, 3276, 875, 2289, 3656, 1062, 4998,
        ],
    ),
    ("readyset", &[1695, 921]),
    ("matrixone", &[27736, 27602]),
    ("MXS", &[5350, 5351, 4625, 3959, 3801]),
    ("doris", &[46386, 37690]),
    ("node-mysql2", &[2050, 4075, 4082]),
    ("go-sql-driver", &[604, 634]),
];

#[test]
fn every_report_of_the_list_is_met_by_something_that_is_there() {
    let each = |(project, numbers): &(&'static str, &'static [u32])| {
        numbers.iter().map(|n| format!("{project} {n}")).collect::<Vec<_>>()
    };
    let listed: Vec<String> = LIST.iter().flat_map(each).collect();
    let met: Vec<String> =
        REPORTED.iter().flat_map(|(project, numbers, _)| each(&(project, numbers))).collect();
    for item in &listed {
        let count = met.iter().filter(|name| *name == item).count();
        assert_eq!(count, 1, "{item} is in the table {count} times");
    }
    assert_eq!(met.len(), listed.len(), "the table has more than the list");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = |file: String| std::fs::read_to_string(root.join(file)).unwrap();
    for (name, numbers, met) in REPORTED {
        let there = match met {
            Test(file, test) => {
                // Defined, and named among what runs on both servers.
                let text = text(format!("tests/{file}.rs"));
                text.contains(&format!("\nfn {test}(")) && text.contains(&format!("\n    {test},"))
            }
            Talk(file, talk) => {
                text(format!("tests/relay_my/{file}.rs")).contains(&format!("(\"{talk}\""))
            }
            Unit(file, test) => {
                text(format!("src/wire/mysql/{file}.rs")).contains(&format!("\nfn {test}()"))
            }
        };
        assert!(there, "{name} {numbers:?}: what shows it isn't there");
    }
}

on_both!(
    vitess_15707_and_15701_a_second_operation_while_one_drains_is_refused,
    vitess_13999_a_cancelled_run_leaves_nothing_to_the_next,
    vitess_15630_an_engine_that_is_away_is_named_and_the_others_go_on,
    vitess_20542_a_prepared_call_and_set_answer_as_the_engine_does,
    proxysql_3587_and_others_without_autocommit_the_first_access_begins,
    proxysql_3749_the_flags_behind_a_savepoint_and_a_commit_are_the_engines,
    proxysql_1038_an_error_does_not_end_a_transaction,
    proxysql_1350_1029_and_111_parameters_of_more_than_one_packet,
    proxysql_833_and_3500_a_local_file_is_the_clients,
    proxysql_917_and_matrixone_27602_a_temporary_table_stays_with_its_session,
    proxysql_2793_who_asks_for_compression_gets_a_session_without,
    proxysql_345_and_others_a_write_that_is_killed_is_not_sent_again,
    readyset_921_proxysql_3656_and_matrixone_27736_a_reset_keeps_the_schema,
    mxs_5350_5351_and_4625_an_xa_end_is_no_end,
    mxs_3959_an_implicit_commit_ends_the_transaction,
    doris_46386_37690_and_proxysql_1062_a_prepares_answer_has_12_bytes,
    node_mysql2_and_go_sql_driver_a_refusal_is_no_read_only_engines_and_keeps_the_session,
    proxysql_4998_what_an_engine_does_on_connect_is_its_own_affair,
);

/// Commands' first bytes.
const CHANGE_USER: u8 = 0x11;
const PREPARE: u8 = 0x16;
const LONG_DATA: u8 = 0x18;
const RESET_CONNECTION: u8 = 0x1f;

/// Runs statements that must go well.
fn run(client: &mut MyWire, all: &[&str]) {
    for sql in all {
        client.query(sql).ok();
    }
}

fn vitess_15707_and_15701_a_second_operation_while_one_drains_is_refused(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let mut writer = site.client();
    run(&mut writer, &["BEGIN", "INSERT INTO t VALUES (1)"]);
    let first = uuid();
    let body = site.acquire_body(&first, &fail_after(300));
    still_draining(&site.acquire(&body));
    let answer = site.acquire(&site.acquire_body(&uuid(), &fail_after(300)));
    refused(&answer, 409, "FENCE_OWNED_BY_ANOTHER_OPERATION");
    run(&mut writer, &["COMMIT"]);
    site.acquire_at_last(&body);
    // One release opens for everybody, whoever tried in between.
    assert_eq!(code(&site.client().query("INSERT INTO t VALUES (2)")), "ZF001");
    site.unfence(&first);
    site.client().query("INSERT INTO t VALUES (3)").ok();
    assert_eq!(site.rows(), "1,3");
}

fn vitess_13999_a_cancelled_run_leaves_nothing_to_the_next(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let mut writer = site.client();
    run(&mut writer, &["BEGIN", "INSERT INTO t VALUES (1)"]);
    for _ in 0..3 {
        let cancelled = uuid();
        still_draining(&site.acquire(&site.acquire_body(&cancelled, &fail_after(300))));
        site.unfence(&cancelled);
        site.client().query("INSERT INTO t VALUES (2)").ok();
    }
    // The writer is older than these drains: it ends, one way or the other.
    drop(writer);
    let operation = site.fence();
    assert_eq!(code(&site.client().query("INSERT INTO t VALUES (3)")), "ZF001");
    site.unfence(&operation);
    site.client().query("INSERT INTO t VALUES (4)").ok();
    assert_eq!(site.rows(), "2,2,2,4");
}

fn vitess_15630_an_engine_that_is_away_is_named_and_the_others_go_on(flavour: MyFlavour) {
    let cluster = MyCluster::shared(flavour);
    let mut away = Engine::my_plain("away", cluster);
    away.url = away.url.replace(&cluster.port().to_string(), &free_port().to_string());
    let engines = vec![Engine::my_plain("old", cluster), away];
    let proxy = Proxy::start_with(ProxyOptions { engines, ..ProxyOptions::default() });
    let site = MySite::new(cluster, &proxy);
    let namespace = format!("away/{}", site.db);
    let body = json!({
        "operation_id": uuid(),
        "command_id": uuid(),
        "expected_state": "UNFENCED",
        "expected_revision": 0,
        "expected_namespace_identity": { "engine_id": "1", "database_id": "1" },
        "drain_policy": fail_after(300),
    });
    let (status, answer) = proxy.command(&namespace, "source/acquire-write-fence", &body);
    assert_eq!(status, 503, "{answer:#}");
    // The answer says which engine it is and why, and so does the log; nothing was begun on either.
    let reason = answer["error"].as_str().unwrap_or_default();
    let named = reason.contains(&namespace) && reason.contains("engine away is unreachable");
    assert!(named, "{reason}");
    let log = std::fs::read_to_string(proxy.log_file()).unwrap();
    assert!(log.contains("engine away is unreachable"), "{}", proxy.log_tail());
    assert_eq!(proxy.inspect(&namespace)["fence"]["state"], "UNFENCED");
    let mut client = site.client();
    run(&mut client, &["INSERT INTO t VALUES (1)"]);
    let operation = site.fence();
    site.unfence(&operation);
    run(&mut client, &["INSERT INTO t VALUES (2)"]);
    assert_eq!(site.rows(), "1,2");
}

/// What comes for a command, up to the ends that a session of the old kind gets: as many EOFs as
/// stand between its blocks, an OK or an error.
fn answer_to(client: &mut MyWire, payload: &[u8], eofs: usize) -> Vec<Packet> {
    client.command(payload);
    let mut all = vec![client.packet()];
    let mut left = eofs;
    while left > 0 && all.last().unwrap().payload.first() != Some(&0xFF) {
        let packet = client.packet();
        left -= usize::from(packet.payload.first() == Some(&0xFE) && packet.payload.len() < 9);
        all.push(packet);
    }
    all
}

fn vitess_20542_a_prepared_call_and_set_answer_as_the_engine_does(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    site.sql("DELIMITER //\nCREATE PROCEDURE p(a INT) SELECT a AS given, 'x' AS letter//\n");
    let told = |client: &mut MyWire| {
        let mut all = Vec::new();
        for (sql, eofs) in [("CALL p(?)", 1), ("SET @v = ?", 1), ("SELECT @v, ?", 2)] {
            let payload = [&[PREPARE], sql.as_bytes()].concat();
            let mut answer = answer_to(client, &payload, eofs);
            // The engine counts on where the thread that it took up again had come to.
            let number = answer[0].payload[1..5].try_into().unwrap();
            answer[0].payload[1..5].fill(0);
            let id = u32::from_le_bytes(number);
            let statement = support::my_wire::Prepared { id, parameters: 1, columns: 0 };
            let executed = statement.execute(&[Some("7")]);
            let eofs = if sql.starts_with("SET") { 0 } else { 2 };
            all.push((answer, answer_to(client, &executed, eofs)));
            if sql.starts_with("CALL") {
                // Behind a procedure's results comes the OK of the call itself.
                all.push((vec![client.packet()], Vec::new()));
            }
        }
        all
    };
    assert_eq!(told(&mut site.client()), told(&mut site.direct()));
}

fn proxysql_3587_and_others_without_autocommit_the_first_access_begins(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let mut client = site.client();
    run(&mut client, &["SET autocommit = 0"]);
    let answer = client.query("SELECT count(*) FROM t").ok();
    assert_ne!(answer.status() & status::IN_TRANS, 0, "{answer:?}");
    run(&mut client, &["INSERT INTO t VALUES (1)"]);
    let body = site.acquire_body(&uuid(), &fail_after(300));
    let answer = site.acquire(&body);
    let answer = still_draining(&answer);
    assert!(blockers(answer).iter().any(|b| b["engine_pid"] == thread(&client)), "{answer:#}");
    run(&mut client, &["COMMIT"]);
    site.acquire_at_last(&body);
    // Reads go on in transactions that nobody began by name, and a write has the fence's own code.
    let mut reader = site.client();
    run(&mut reader, &["SET autocommit = 0"]);
    assert_eq!(reader.query("SELECT count(*) FROM t").ok().cell(), "1");
    assert_eq!(code(&reader.query("INSERT INTO t VALUES (2)")), "ZF001");
    run(&mut reader, &["ROLLBACK"]);
    assert_eq!(site.rows(), "1");
}

fn proxysql_3749_the_flags_behind_a_savepoint_and_a_commit_are_the_engines(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let all = ["START TRANSACTION", "SAVEPOINT a", "COMMIT", "BEGIN", "SAVEPOINT a", "ROLLBACK"];
    let flags = |mut client: MyWire| all.map(|sql| client.query(sql).ok().status());
    let through = flags(site.client());
    assert_eq!(through, flags(site.direct()));
    let open = through.map(|flags| flags & status::IN_TRANS != 0);
    assert_eq!(open, [true, true, false, true, true, false]);
}

fn proxysql_1038_an_error_does_not_end_a_transaction(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    site.sql("CREATE TABLE u (n int PRIMARY KEY)");
    let mut client = site.client();
    run(&mut client, &["SET autocommit = 0", "INSERT INTO u VALUES (1)"]);
    assert_eq!(client.query("INSERT INTO u VALUES (1)").code(), 1062);
    let body = site.acquire_body(&uuid(), &fail_after(300));
    let answer = site.acquire(&body);
    let answer = still_draining(&answer);
    assert!(blockers(answer).iter().any(|b| b["engine_pid"] == thread(&client)), "{answer:#}");
    run(&mut client, &["ROLLBACK"]);
    site.acquire_at_last(&body);
    assert_eq!(site.sql("SELECT count(*) FROM u"), "0");
}

fn proxysql_1350_1029_and_111_parameters_of_more_than_one_packet(flavour: MyFlavour) {
    let settings = vec![("max_allowed_packet".into(), "64M".into())];
    let cluster = MyCluster::start(flavour, MyOptions { settings, ..MyOptions::default() });
    let proxy = Proxy::start_my(&cluster);
    let site = MySite::new(&cluster, &proxy);
    site.sql("CREATE TABLE wide (n int, s longblob)");
    let mut client = site.client();
    let insert = client.prepare("INSERT INTO wide VALUES (1, ?)").unwrap().unwrap();
    let wide = "w".repeat(2 * PACKET_MAX + 5);
    client.command(&insert.execute(&[Some(&wide)]));
    client.answer(&[]).unwrap().ok();
    // The same in a piece of its own, which isn't answered.
    let pieces = client.prepare("INSERT INTO wide VALUES (2, ?)").unwrap().unwrap();
    let head = [&[LONG_DATA], &pieces.id.to_le_bytes()[..], &[0, 0]].concat();
    client.command(&[&head, wide.as_bytes()].concat());
    let mut execute = [&[0x17], &pieces.id.to_le_bytes()[..], &[0, 1, 0, 0, 0]].concat();
    execute.extend([0, 1, 0xFD, 0]);
    client.command(&execute);
    client.answer(&[]).unwrap().ok();
    let lengths = "SELECT group_concat(n, ':', length(s) ORDER BY n) FROM wide";
    assert_eq!(site.sql(lengths), format!("1:{0},2:{0}", wide.len()));
    let operation = site.fence();
    client.command(&insert.execute(&[Some(&wide)]));
    assert_eq!(code(&client.answer(&[]).unwrap()), "ZF001");
    assert_eq!(client.query("SELECT count(*) FROM wide").ok().cell(), "2");
    site.unfence(&operation);
}

fn proxysql_833_and_3500_a_local_file_is_the_clients(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    // There, and readable by the proxy: what arrives is what the client says it holds.
    let dir = support::test_dir("local");
    let file = dir.join("rows");
    std::fs::write(&file, "666\n").unwrap();
    let login = MyLogin::of("wire", &site.db).with(flag::LOCAL_FILES);
    let mut client = MyWire::login(site.proxy.port(), &login).unwrap();
    let load = format!("LOAD DATA LOCAL INFILE '{}' INTO TABLE t", file.display());
    client.begin_query(&load).unwrap();
    let answer = client.answer(b"7\n").unwrap().ok();
    assert_eq!(answer.files, [file.display().to_string()]);
    assert_eq!(site.rows(), "7");
    // Under a fence nobody is asked for a file.
    let operation = site.fence();
    let answer = client.query(&load);
    assert_eq!((code(&answer).as_str(), answer.files.len()), ("ZF001", 0));
    site.unfence(&operation);
    std::fs::remove_dir_all(dir).unwrap();
}

fn proxysql_917_and_matrixone_27602_a_temporary_table_stays_with_its_session(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    site.sql(
        "DELIMITER //\nCREATE PROCEDURE p() BEGIN CREATE TEMPORARY TABLE mine (n int); \
         INSERT INTO mine VALUES (5); END//\n",
    );
    let mut client = site.client();
    let before = thread(&client);
    run(&mut client, &["CALL p()"]);
    let operation = site.fence();
    for _ in 0..3 {
        site.client().query("SELECT 1").ok();
        assert_eq!(client.query("SELECT n FROM mine").ok().cell(), "5");
    }
    site.unfence(&operation);
    run(&mut client, &["INSERT INTO mine VALUES (6)"]);
    assert_eq!(client.query("SELECT sum(n) FROM mine").ok().cell(), "11");
    assert_eq!(client.query("SELECT CONNECTION_ID()").ok().cell(), before.to_string());
}

fn proxysql_2793_who_asks_for_compression_gets_a_session_without(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    // The client wants it although it wasn't offered, and has to switch its method as well.
    let plugin = match flavour {
        MyFlavour::MariaDb => "caching_sha2_password",
        MyFlavour::MySql => "mysql_native_password",
    };
    let login = MyLogin { plugin: plugin.into(), ..MyLogin::of("app", &site.db) };
    let login = login.with(flag::COMPRESS);
    let mut client = MyWire::login(site.proxy.port(), &login).unwrap();
    assert_eq!(client.greeting.capabilities & flag::COMPRESS, 0, "it is offered");
    assert_eq!(client.query("SELECT REPEAT('z', 5)").ok().cell(), "zzzzz");
    let asked = "SHOW SESSION STATUS LIKE 'Compression'";
    assert_eq!(client.query(asked).ok().rows()[0][1].as_deref(), Some("OFF"));
}

fn proxysql_345_and_others_a_write_that_is_killed_is_not_sent_again(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let latch = MyLatch::shut(&site);
    let insert = format!("INSERT INTO t SELECT passed FROM {}", latch.wait());
    for kill in ["KILL QUERY", "KILL CONNECTION"] {
        let mut client = site.client();
        client.begin_query(&insert).unwrap();
        site.wait_at_latch(thread(&client));
        site.sql(&format!("{kill} {}", thread(&client)));
        // An error or the end, never an answer as if it had gone well.
        if let Ok(answer) = client.answer(&[]) {
            assert!(answer.error.is_some(), "{kill}: {answer:?}");
        }
        let again = format!(
            "SELECT count(*) FROM information_schema.PROCESSLIST
             WHERE DB = '{}' AND INFO LIKE 'INSERT%'",
            site.db
        );
        site.wait_sql(&again, "0");
    }
    latch.open();
    assert_eq!(site.rows(), "");
}

fn readyset_921_proxysql_3656_and_matrixone_27736_a_reset_keeps_the_schema(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let mut client = site.client();
    let reset = |client: &mut MyWire| {
        client.command(&[RESET_CONNECTION]);
        client.answer(&[]).unwrap().ok();
    };
    run(&mut client, &["SET @x = 1", "BEGIN", "INSERT INTO t VALUES (1)"]);
    reset(&mut client);
    let answer = client.query("SELECT concat(DATABASE(), ' ', coalesce(@x, 'none'))").ok();
    assert_eq!(answer.cell(), format!("{} none", site.db));
    // The transaction is gone, and holds nothing up; the session is fenced by its schema still.
    let operation = site.fence();
    reset(&mut client);
    assert_eq!(code(&client.query("INSERT INTO t VALUES (2)")), "ZF001");
    assert_eq!(client.query("SELECT count(*) FROM t").ok().cell(), "0");
    site.unfence(&operation);
    reset(&mut client);
    run(&mut client, &["INSERT INTO t VALUES (3)"]);
    assert_eq!(site.rows(), "3");
}

fn mxs_5350_5351_and_4625_an_xa_end_is_no_end(flavour: MyFlavour) {
    // Where branches are prepared, even for a moment, other tests' proofs would wait for them.
    let (cluster, proxy) = own(flavour);
    let site = MySite::new(&cluster, &proxy);
    for prepares in [false, true] {
        let mut client = site.client();
        run(&mut client, &["XA START 'x'", "INSERT INTO t VALUES (1)", "XA END 'x'"]);
        // On MySQL a branch that is prepared behind the fence could be ended by nobody but around
        // the proxy, so that is refused there; one of before is waited for.
        let mysql = flavour == MyFlavour::MySql;
        if prepares && mysql {
            run(&mut client, &["XA PREPARE 'x'"]);
        }
        let operation = uuid();
        let body = site.acquire_body(&operation, &fail_after(300));
        still_draining(&site.acquire(&body));
        if prepares {
            // A prepared branch is still open, also when its session is gone.
            if !mysql {
                run(&mut client, &["XA PREPARE 'x'"]);
            }
            drop(client);
            still_draining(&site.acquire(&body));
            // The operator's decision, around the proxy; it is nobody's once the session is gone.
            let end = || site.cluster.try_sql(&site.db, "XA ROLLBACK 'x'").ok();
            assert!(poll(PATIENCE, end).is_some(), "the branch can't be rolled back");
        } else {
            if mysql {
                assert_eq!(code(&client.query("XA PREPARE 'x'")), "ZF001");
            }
            run(&mut client, &["XA ROLLBACK 'x'"]);
            assert_eq!(client.query("SELECT count(*) FROM t").ok().cell(), "0");
        }
        site.acquire_at_last(&body);
        assert_eq!(site.sql("XA RECOVER"), "", "prepared: {prepares}");
        assert_eq!(site.rows(), "", "prepared: {prepares}");
        site.unfence(&operation);
    }
}

fn mxs_3959_an_implicit_commit_ends_the_transaction(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let mut client = site.client();
    run(&mut client, &["BEGIN", "INSERT INTO t VALUES (1)", "CREATE TABLE made (n int)"]);
    // The client goes on idle, and nothing of it is waited for.
    let operation = site.fence();
    assert_eq!(code(&client.query("INSERT INTO t VALUES (2)")), "ZF001");
    site.unfence(&operation);
    // A definition that fails commits what was before it as well.
    run(&mut client, &["BEGIN", "INSERT INTO t VALUES (3)"]);
    assert_eq!(client.query("ALTER TABLE nowhere ADD n int").code(), 1146);
    let operation = site.fence();
    site.unfence(&operation);
    assert_eq!(site.rows(), "1,3");
}

fn doris_46386_37690_and_proxysql_1062_a_prepares_answer_has_12_bytes(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let mut client = site.client();
    for sql in ["SELECT 1", "DO 1", "INSERT INTO t VALUES (?)"] {
        client.command(&[&[PREPARE], sql.as_bytes()].concat());
        let first = client.packet().payload;
        assert_eq!((first.len(), first[0], first[9]), (12, 0, 0), "{sql}: {first:?}");
        let counts = [5, 7].map(|at| u16::from_le_bytes([first[at], first[at + 1]]));
        for count in counts.into_iter().filter(|count| *count > 0) {
            (0..=count).for_each(|_| drop(client.packet()));
        }
    }
    assert_eq!(client.query("SELECT 2").ok().cell(), "2");
}

fn node_mysql2_and_go_sql_driver_a_refusal_is_no_read_only_engines_and_keeps_the_session(
    flavour: MyFlavour,
) {
    let site = MySite::shared(flavour);
    let mut client = site.client();
    let before = thread(&client);
    let operation = site.fence();
    for _ in 0..3 {
        let error = client.query("INSERT INTO t VALUES (1)").error.unwrap();
        // These pools throw a connection away, or try again on another one, at these numbers.
        assert!(![1290, 1792, 1836, 1053, 1927].contains(&error.code), "{error:?}");
        assert_eq!((error.code, error.state.as_str()), (9701, "ZF001"));
    }
    site.unfence(&operation);
    // And no session is read-only for ever behind the fence.
    run(&mut client, &["INSERT INTO t VALUES (2)"]);
    assert_eq!(client.query("SELECT CONNECTION_ID()").ok().cell(), before.to_string());
    assert_eq!(site.rows(), "2");
}

fn proxysql_4998_what_an_engine_does_on_connect_is_its_own_affair(flavour: MyFlavour) {
    let settings = vec![("init_connect".into(), "'SET @greeted = 1'".into())];
    let cluster = MyCluster::start(flavour, MyOptions { settings, ..MyOptions::default() });
    let proxy = Proxy::start_my(&cluster);
    let site = MySite::new(&cluster, &proxy);
    let greeted = "SELECT coalesce(@greeted, 'no')";
    let told = |mut client: MyWire| {
        let first = client.query(greeted).ok().cell();
        let plugin = client.greeting.plugin.clone();
        let mut payload = [&[CHANGE_USER][..], b"wire\0\0"].concat();
        payload.extend(site.db.as_bytes());
        payload.extend([0, 45, 0]);
        payload.extend(plugin.as_bytes());
        payload.push(0);
        client.command(&payload);
        let login = MyLogin::of("wire", &site.db);
        let scramble = client.greeting.scramble.clone();
        client.authenticate(plugin, scramble, &login).unwrap();
        (first, client.query(greeted).ok().cell())
    };
    let directly = told(site.direct());
    assert_eq!(directly.0, "1", "the engine itself doesn't greet");
    assert_eq!(told(site.client()), directly);
}
