//! The test harness for MariaDB and MySQL, against bare servers: what the other tests stand on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;

use support::my_tools::MyTarget;
use support::my_wire::{MyFailed, MyLogin, PACKET_MAX, flag, status};
use support::tools::run;
use support::{MyCluster, MyFlavour, MyOptions, MyWire, on_both};

on_both!(
    a_server_survives_kill_and_restart_with_its_data,
    two_servers_have_two_identities,
    the_settings_that_tests_rely_on_hold,
    the_raw_client_logs_in_every_way,
    the_raw_client_reads_every_kind_of_answer,
    the_raw_client_sends_and_reads_long_packets,
    the_tools_reach_the_server,
);

fn a_server_survives_kill_and_restart_with_its_data(flavour: MyFlavour) {
    let options = MyOptions { durable: true, ..MyOptions::default() };
    let mut cluster = MyCluster::start(flavour, options);
    let db = cluster.fresh_db();
    cluster.sql(&db, "CREATE TABLE t (n int PRIMARY KEY); INSERT INTO t VALUES (1)");
    cluster.kill();
    assert!(cluster.try_sql(&db, "SELECT 1").is_err());
    cluster.start_again();
    assert_eq!(cluster.sql(&db, "SELECT n FROM t"), "1");
    cluster.stop();
    cluster.start_again();
    assert_eq!(cluster.sql(&db, "SELECT n FROM t"), "1");
    let files = cluster.files();
    drop(cluster);
    assert!(!files.exists(), "the folder outlived its server");
}

fn two_servers_have_two_identities(flavour: MyFlavour) {
    let variable = match flavour {
        MyFlavour::MariaDb => "SELECT @@server_id",
        MyFlavour::MySql => "SELECT CONCAT(@@server_uuid, @@server_id)",
    };
    let other = MyCluster::start(flavour, MyOptions::default());
    assert_ne!(other.sql("mysql", variable), MyCluster::shared(flavour).sql("mysql", variable));
}

fn the_settings_that_tests_rely_on_hold(flavour: MyFlavour) {
    let cluster = MyCluster::shared(flavour);
    let show = |name: &str| cluster.sql("mysql", &format!("SELECT @@{name}"));
    assert_eq!(show("log_bin"), "1");
    assert_eq!(show("binlog_format"), "ROW");
    assert_eq!(show("local_infile"), "1");
    let version = show("version");
    match flavour {
        MyFlavour::MariaDb => {
            assert!(version.starts_with("10.11."), "{version}");
            assert_eq!(show("gtid_strict_mode"), "1");
        }
        MyFlavour::MySql => {
            assert!(version.starts_with("9."), "{version}");
            assert_eq!(show("gtid_mode"), "ON");
        }
    }
    // The control account may read and lock anywhere, and write nowhere.
    let db = cluster.fresh_db();
    cluster.sql(&db, "CREATE TABLE t (n int); INSERT INTO t VALUES (1)");
    let mut control = MyWire::connect(cluster.port(), "fencewire", &db);
    control.query("LOCK TABLES t READ").ok();
    assert_eq!(control.query("SELECT n FROM t").ok().cell(), "1");
    control.query("UNLOCK TABLES").ok();
    assert_eq!(control.query("INSERT INTO t VALUES (2)").code(), 1142);
    control.query("XA RECOVER").ok();
    let position = match flavour {
        MyFlavour::MariaDb => "SHOW BINLOG STATUS",
        MyFlavour::MySql => "SHOW BINARY LOG STATUS",
    };
    let file = control.query(position).ok().cell();
    assert!(file.starts_with("binlog."), "{file}");
    // It can end a session of another account.
    let mut victim = MyWire::connect(cluster.port(), "app", &db);
    control.query(&format!("KILL {}", victim.greeting.thread_id)).ok();
    assert!(victim.try_query("SELECT 1").is_err() || victim.is_over());
}

fn the_raw_client_logs_in_every_way(flavour: MyFlavour) {
    let cluster = MyCluster::shared(flavour);
    let (port, db) = (cluster.port(), cluster.fresh_db());
    let cipher = "SHOW STATUS LIKE 'Ssl_cipher'";
    let app = MyLogin::of("app", &db);
    // Twice each: MySQL knows a password from its second login on, and asks less then.
    for login in [app.clone(), app.clone(), app.clone().over_tls(), app.clone().over_tls()] {
        let mut wire = MyWire::login(port, &login).unwrap();
        let said = wire.query(cipher).ok().rows()[0][1].clone().unwrap();
        assert_eq!(!said.is_empty(), login.tls, "{said:?}");
        assert_eq!(wire.query("SELECT DATABASE()").ok().cell(), db);
    }
    // Another plugin than the account's: the server switches.
    let plugin = match flavour {
        MyFlavour::MariaDb => "caching_sha2_password",
        MyFlavour::MySql => "mysql_native_password",
    };
    MyWire::login(port, &MyLogin { plugin: plugin.into(), ..app.clone() }).unwrap();
    let wrong = MyLogin { password: "wrong".into(), ..app };
    for wrong in [wrong.clone(), wrong.over_tls()] {
        match MyWire::login(port, &wrong) {
            Err(MyFailed::Refused(error)) => {
                assert_eq!((error.code, error.state.as_str()), (1045, "28000"));
            }
            Err(MyFailed::Closed(error)) => panic!("{error}"),
            Ok(_) => panic!("logged in with a wrong password"),
        }
    }
    MyWire::connect(port, "wire", &db).query("CREATE TABLE w (n int)").ok();
}

fn the_raw_client_reads_every_kind_of_answer(flavour: MyFlavour) {
    let cluster = MyCluster::shared(flavour);
    let db = cluster.fresh_db();
    for more in [0, flag::DEPRECATE_EOF, flag::DEPRECATE_EOF | flag::SESSION_TRACK] {
        let login =
            MyLogin::of("wire", &db).with(more | flag::MULTI_STATEMENTS | flag::LOCAL_FILES);
        let mut wire = MyWire::login(cluster.port(), &login).unwrap();
        wire.query("DROP TABLE IF EXISTS t").ok();
        wire.query("CREATE TABLE t (n int PRIMARY KEY, s text)").ok();
        let insert = wire.query("INSERT INTO t VALUES (1, 'one'), (2, NULL)").ok();
        assert_eq!(insert.results[0].end.affected, 2);
        let select = wire.query("SELECT s FROM t ORDER BY n").ok();
        assert_eq!(select.rows(), [vec![Some("one".to_owned())], vec![None]]);
        assert_eq!(wire.query("BEGIN").status() & status::IN_TRANS, status::IN_TRANS);
        let many = wire.query("SELECT 1; COMMIT; SELECT 2, 3; SELECT nothing FROM t; SELECT 4");
        assert_eq!((many.results.len(), many.code()), (3, 1054));
        assert_eq!(many.results[2].columns, ["2", "3"]);
        assert_eq!(many.status() & status::IN_TRANS, 0);
        wire.begin_query("LOAD DATA LOCAL INFILE 'some file' INTO TABLE t").unwrap();
        let loaded = wire.answer(b"3\tthree\n4\tfour\n").unwrap().ok();
        assert_eq!((loaded.files[0].as_str(), loaded.results[0].end.affected), ("some file", 2));
        let prepared = wire.prepare("SELECT s FROM t WHERE n = ? OR s = ?").unwrap().unwrap();
        assert_eq!((prepared.parameters, prepared.columns), (2, 1));
        wire.command(&prepared.execute(&[Some("3"), None]));
        // A row of the binary protocol: header 0, a bitmap, and here one string, without its text.
        let row = wire.packet().payload;
        assert_eq!(row, [1], "one column");
        wire.packet();
        if more == 0 {
            wire.packet();
        }
        assert_eq!(wire.packet().payload, b"\x00\x00\x05three");
        wire.packet();
        assert_eq!(wire.prepare("SELECT nothing FROM t").unwrap().unwrap_err().code, 1054);
        wire.command(&[0x0E]);
        wire.answer(&[]).unwrap().ok();
    }
}

fn the_raw_client_sends_and_reads_long_packets(flavour: MyFlavour) {
    let cluster = MyCluster::shared(flavour);
    let mut wire = MyWire::connect(cluster.port(), "wire", "");
    cluster.sql("mysql", "SET GLOBAL max_allowed_packet = 64 * 1024 * 1024");
    wire.query("SELECT 1").ok();
    let mut wire = MyWire::connect(cluster.port(), "wire", "");
    let (head, tail) = ("SELECT LENGTH('", "')");
    // The command's payload fills one packet exactly, so that an empty one must follow.
    let filling = PACKET_MAX - 1 - head.len() - tail.len();
    for length in [filling - 1, filling, filling + 1, 2 * PACKET_MAX] {
        let sql = format!("{head}{}{tail}", "x".repeat(length));
        assert_eq!(wire.query(&sql).ok().cell(), length.to_string());
    }
    let rows = wire.query(&format!("SELECT REPEAT('y', {})", PACKET_MAX + 10)).ok();
    assert_eq!(rows.cell().len(), PACKET_MAX + 10);
}

fn the_tools_reach_the_server(flavour: MyFlavour) {
    let cluster = MyCluster::shared(flavour);
    let db = cluster.fresh_db();
    for tls in [false, true] {
        let port = cluster.port();
        let target = MyTarget { cluster, port, client_tls: tls, engine_tls: tls };
        for tools in MyFlavour::ALL {
            let mut client = target.client(tools, &db);
            let said = run(client.args(["-e", "SHOW STATUS LIKE 'Ssl_cipher'"]));
            assert_eq!(!said.trim().trim_start_matches("Ssl_cipher").is_empty(), tls, "{said}");
        }
        run(target.dump().arg("--no-tablespaces").arg(&db));
        let out = run(target.sysbench("oltp_read_write", &db).arg("help"));
        assert!(out.contains("--table_size") || out.contains("--table-size"), "{out}");
    }
}

#[test]
fn ports_are_handed_out_once() {
    let ports: BTreeSet<u16> =
        MyFlavour::ALL.iter().map(|f| MyCluster::shared(*f).port()).collect();
    assert_eq!(ports.len(), 2);
}
