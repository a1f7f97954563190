//! Logins where the two sides of the proxy differ: TLS on both, on one, on none; another engine;
//! and what a client is told that gets no session.

use std::process::Output;

use crate::support::my_tools::MyTarget;
use crate::support::my_wire::{MyFailed, MyLogin, flag};
use crate::support::talk::Language;
use crate::support::{
    Engine, MyCluster, MyFlavour, MyOptions, MyWire, Proxy, ProxyOptions, free_port, poll,
};

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

fn proxy(cluster: &MyCluster, client_tls: &str, engine_tls: &str) -> Proxy {
    let engines = vec![Engine::my_tls("old", cluster, engine_tls)];
    Proxy::start_with(ProxyOptions {
        engines,
        client_tls: client_tls.into(),
        ..ProxyOptions::default()
    })
}

/// The error of a login that must fail.
#[track_caller]
fn refused(port: u16, login: &MyLogin) -> (u16, String, String) {
    match MyWire::login(port, login) {
        Err(MyFailed::Refused(error)) => (error.code, error.state, error.message),
        Err(MyFailed::Closed(error)) => panic!("closed without a word: {error}"),
        Ok(_) => panic!("{} is let in", login.user),
    }
}

fn every_way_in(flavour: MyFlavour) {
    let cluster = MyCluster::shared(flavour);
    let db = cluster.fresh_db();
    for engine_tls in ["disable", "verify-full"] {
        let proxy = proxy(cluster, "allow", engine_tls);
        for client_tls in [false, true] {
            let by = |login: MyLogin| if client_tls { login.over_tls() } else { login };
            let way = format!("{}, client TLS {client_tls}, {engine_tls}", flavour.name());
            // With nothing in the engine's cache of passwords, and with it.
            for cached in [false, true] {
                if !cached {
                    cluster.sql("mysql", "FLUSH PRIVILEGES");
                }
                let wire = MyWire::login(proxy.port(), &by(MyLogin::of("app", &db)));
                let mut wire = wire.unwrap_or_else(|e| panic!("{way}, cached {cached}: {e:?}"));
                let cipher = wire.query("SHOW SESSION STATUS LIKE 'Ssl_cipher'").ok();
                let encrypted = cipher.rows()[0][1].as_deref() != Some("");
                assert_eq!(encrypted, engine_tls != "disable", "{way}");
                assert_eq!(wire.query("SELECT DATABASE()").ok().cell(), db, "{way}");
            }
            MyWire::login(proxy.port(), &by(MyLogin::of("wire", &db))).unwrap();
            let wrong = MyLogin { password: "wrong".into(), ..MyLogin::of("app", &db) };
            let none = MyLogin { password: String::new(), ..MyLogin::of("app", &db) };
            for login in [wrong, none] {
                let directly = refused(cluster.port(), &login);
                assert_eq!(directly.0, 1045);
                assert_eq!(refused(proxy.port(), &by(login)), directly, "{way}");
            }
        }
    }
}

#[test]
fn every_way_into_mariadb() {
    every_way_in(MyFlavour::MariaDb);
}

#[test]
fn every_way_into_mysql() {
    every_way_in(MyFlavour::MySql);
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(both).unwrap().trim().to_owned()
}

/// `sha256_password` sends the password itself or encrypts it with another request than
/// `caching_sha2_password`, in the login packet or behind a switch.
#[test]
fn sha256_password_passes_by_every_way() {
    let cluster = MyCluster::shared(MyFlavour::MySql);
    let db = cluster.fresh_db();
    let make = "CREATE USER IF NOT EXISTS sha@'127.0.0.1' IDENTIFIED WITH sha256_password BY 'app';
                CREATE USER IF NOT EXISTS bare@'127.0.0.1' IDENTIFIED WITH sha256_password BY ''";
    cluster.sql("mysql", make);
    for engine_tls in ["disable", "verify-full"] {
        let proxy = proxy(cluster, "allow", engine_tls);
        for client_tls in [false, true] {
            let port = proxy.port();
            let target = MyTarget { cluster, port, client_tls, engine_tls: false };
            for first in ["caching_sha2_password", "sha256_password"] {
                let way = format!("{first}, client TLS {client_tls}, engine {engine_tls}");
                let run = |user: &str, password: &str| {
                    let mut command = target.client(MyFlavour::MySql, "information_schema");
                    command.arg(format!("--user={user}")).arg(format!("--default-auth={first}"));
                    command.args(["-e", "SELECT 'in'"]).env("MYSQL_PWD", password);
                    said(&command.output().unwrap())
                };
                assert_eq!(run("sha", "app"), "in", "{way}");
                assert_eq!(run("bare", ""), "in", "{way}");
                let wrong = run("sha", "wrong");
                assert!(wrong.contains("ERROR 1045 (28000)"), "{way}: {wrong}");
            }
        }
    }
    drop(db);
}

/// ed25519 signs the nonce: it passes as it is. Debian has the server's half in a package that
/// tools/setup.sh takes only this file from.
#[test]
fn ed25519_passes_by_every_way() {
    let dir = crate::support::test_dir("plugins");
    let plugin = crate::support::talk::tools_dir().join("mariadb/auth_ed25519.so");
    std::fs::copy(&plugin, dir.join("auth_ed25519.so"))
        .unwrap_or_else(|e| panic!("{}: {e}: run tools/setup.sh test", plugin.display()));
    let settings = vec![("plugin_dir".into(), dir.display().to_string())];
    let cluster = &MyCluster::start(
        MyFlavour::MariaDb,
        MyOptions { tls: true, settings, ..MyOptions::default() },
    );
    cluster.sql(
        "mysql",
        "INSTALL SONAME 'auth_ed25519';
         CREATE USER ed@'127.0.0.1' IDENTIFIED VIA ed25519 USING PASSWORD('app')",
    );
    for engine_tls in ["disable", "verify-full"] {
        let proxy = proxy(cluster, "allow", engine_tls);
        for client_tls in [false, true] {
            let port = proxy.port();
            let target = MyTarget { cluster, port, client_tls, engine_tls: false };
            let run = |password: &str| {
                let mut command = target.client(MyFlavour::MariaDb, "information_schema");
                command.args(["--user=ed", "-e", "SELECT 'in'"]).env("MYSQL_PWD", password);
                said(&command.output().unwrap())
            };
            let way = format!("client TLS {client_tls}, engine {engine_tls}");
            assert_eq!(run("app"), "in", "{way}");
            assert!(run("wrong").contains("ERROR 1045 (28000)"), "{way}");
        }
    }
    std::fs::remove_dir_all(dir).unwrap();
}

/// Changing to a user with a password, mid-session, over a bridge.
#[test]
fn a_change_of_user_passes_where_only_one_side_is_encrypted() {
    let cluster = MyCluster::shared(MyFlavour::MySql);
    let db = cluster.fresh_db();
    for (client_tls, engine_tls) in [(true, "disable"), (false, "verify-full")] {
        let proxy = proxy(cluster, "allow", engine_tls);
        for password in ["app", "wrong"] {
            cluster.sql("mysql", "FLUSH PRIVILEGES");
            let login = MyLogin::of("wire", &db);
            let login = if client_tls { login.over_tls() } else { login };
            let mut wire = MyWire::login(proxy.port(), &login).unwrap();
            let mut payload = vec![17];
            payload.extend(b"app\0\0");
            payload.extend(db.as_bytes());
            payload.extend(b"\0\x2d\0mysql_clear_password\0");
            wire.command(&payload);
            let mut login = MyLogin { password: password.into(), ..MyLogin::of("app", &db) };
            login.tls = client_tls;
            let outcome = wire.authenticate(String::new(), Vec::new(), &login);
            if password == "app" {
                outcome.unwrap();
                let user = wire.query("SELECT CURRENT_USER()").ok().cell();
                assert_eq!(user, "app@127.0.0.1");
            } else {
                let Err(MyFailed::Refused(error)) = outcome else { panic!("let in") };
                assert_eq!(error.code, 1045);
            }
        }
    }
}

#[test]
fn compression_is_not_offered() {
    for flavour in MyFlavour::ALL {
        let cluster = MyCluster::shared(flavour);
        let directly = MyWire::open(cluster.port()).unwrap().greeting;
        assert_ne!(directly.capabilities & flag::COMPRESS, 0, "the engine itself has it");
        let proxy = Proxy::start_my(cluster);
        let through = MyWire::open(proxy.port()).unwrap().greeting;
        assert_eq!(through.capabilities & (flag::COMPRESS | 1 << 26), 0);
        assert_eq!(through.capabilities & flag::SSL, 0, "nor TLS where the listener has none");
        assert_eq!(through.plugin, directly.plugin);
        assert_eq!(through.version, directly.version);
    }
}

#[test]
fn a_listener_that_requires_tls_refuses_plaintext() {
    let cluster = MyCluster::shared(MyFlavour::MariaDb);
    let db = cluster.fresh_db();
    let proxy = proxy(cluster, "require", "disable");
    let (code, state, message) = refused(proxy.port(), &MyLogin::of("wire", &db));
    assert_eq!((code, state.as_str()), (3159, "HY000"), "{message}");
    assert!(message.contains("encrypted connections only"), "{message}");
    MyWire::login(proxy.port(), &MyLogin::of("wire", &db).over_tls()).unwrap();
}

#[test]
fn an_engine_that_is_down_is_named() {
    let cluster = MyCluster::shared(MyFlavour::MariaDb);
    let engines = vec![away(cluster)];
    let proxy = Proxy::start_with(ProxyOptions { engines, ..ProxyOptions::default() });
    let Err(MyFailed::Refused(error)) = MyWire::open(proxy.port()) else { panic!("let in") };
    assert_eq!((error.code, error.state.as_str()), (1158, ""), "before the greeting: no state");
    assert!(error.message.contains("engine away can't be reached at 127.0.0.1:"), "{error:?}");
}

/// An engine where nobody listens.
fn away(cluster: &MyCluster) -> Engine {
    let (port, url) = (free_port(), cluster.control_url());
    let mut engine = Engine::my_plain("away", cluster);
    engine.url = url.replace(&cluster.port().to_string(), &port.to_string());
    engine
}

/// What each client shows of a login that comes to nothing: both command lines and two drivers.
fn shown(cluster: &MyCluster, proxy: &Proxy, db: &str) -> [(&'static str, String); 4] {
    let port = proxy.port();
    let target = MyTarget { cluster, port, client_tls: false, engine_tls: false };
    let command = |tools| said(&target.client(tools, db).args(["-e", "DO 1"]).output().unwrap());
    let script =
        |way| said(&target.script(Language::Python, db, "my_refused.py", way).output().unwrap());
    [
        ("mariadb", command(MyFlavour::MariaDb)),
        ("mysql", command(MyFlavour::MySql)),
        ("PyMySQL", script("pymysql")),
        ("mysql-connector", script("connector")),
    ]
}

/// W26: the number and the words of the proxy's own, whichever client, before the greeting and
/// behind it. (A client's own number, 2003, made MariaDB's say "malformed packet" alone.)
#[test]
fn w26_every_client_shows_why_there_is_no_session() {
    let cluster = MyCluster::shared(MyFlavour::MariaDb);
    let db = cluster.fresh_db();
    let with = |engines, proxy: &str, client_tls: &str| {
        let (proxy, client_tls) = (proxy.into(), client_tls.into());
        Proxy::start_with(ProxyOptions { engines, proxy, client_tls, ..ProxyOptions::default() })
    };
    let old = || Engine::my_plain("old", cluster);
    let down = with(vec![away(cluster)], "", "disable");
    let full = with(vec![old()], "max_sessions = 1\n", "disable");
    let encrypted = with(vec![old()], "", "require");
    let both = with(vec![old(), away(cluster)], "", "disable");
    let _only = MyWire::connect(full.port(), "wire", &db);
    let long = "x".repeat(64);
    let unreachable = "engine away can't be reached at 127.0.0.1:";
    // The state is told only behind the greeting.
    for (proxy, db, errno, state, words) in [
        (&down, &*db, 1158, None, unreachable),
        (&full, &*db, 1040, None, "max_sessions is reached"),
        (&encrypted, &*db, 3159, Some("HY000"), "encrypted connections only"),
        (&both, "away/x", 1158, Some("08S01"), unreachable),
        (&both, &*long, 1049, Some("42000"), "63 bytes"),
    ] {
        for (client, said) in shown(cluster, proxy, db) {
            assert!(said.contains(words) && said.contains(&errno.to_string()), "{client}: {said}");
            assert!(!said.contains('#'), "{client}: {said}");
            // PyMySQL keeps no states.
            let state = state.filter(|_| client != "PyMySQL");
            assert!(state.is_none_or(|state| said.contains(state)), "{client}: {said}");
        }
    }
}

#[test]
fn one_session_too_many_is_refused() {
    let cluster = MyCluster::shared(MyFlavour::MySql);
    let db = cluster.fresh_db();
    let engines = vec![Engine::my_plain("old", cluster)];
    let proxy = "max_sessions = 1\n".into();
    let proxy = Proxy::start_with(ProxyOptions { engines, proxy, ..ProxyOptions::default() });
    let first = MyWire::connect(proxy.port(), "wire", &db);
    let Err(MyFailed::Refused(error)) = MyWire::open(proxy.port()) else { panic!("let in") };
    assert_eq!((error.code, error.state.as_str()), (1040, ""));
    drop(first);
    let again = poll(PATIENCE, || MyWire::login(proxy.port(), &MyLogin::of("wire", &db)).ok());
    assert!(again.is_some(), "the place isn't given back");
}

#[test]
fn a_stopping_proxy_says_so_to_idle_sessions() {
    let cluster = MyCluster::shared(MyFlavour::MySql);
    let db = cluster.fresh_db();
    let engines = vec![Engine::my_plain("old", cluster)];
    let mut proxy = Proxy::start_with(ProxyOptions { engines, ..ProxyOptions::default() });
    let mut idle = MyWire::connect(proxy.port(), "wire", &db);
    idle.query("SELECT 1").ok();
    proxy.signal("TERM");
    let last = idle.packet();
    assert_eq!(last.sequence, 1, "it is read as the answer to the next command");
    let error = crate::support::my_wire::MyError::parse(&last.payload);
    assert_eq!((error.code, error.state.as_str()), (1053, "08S01"), "{error:?}");
    assert!(idle.is_over());
    proxy.stop();
}

#[test]
fn a_route_leads_to_another_engine_with_its_own_nonce() {
    let old = MyCluster::shared(MyFlavour::MySql);
    let new = MyCluster::start(MyFlavour::MySql, MyOptions { tls: true, ..MyOptions::default() });
    let (at_old, at_new) = (old.fresh_db(), new.fresh_db());
    for engine_tls in ["disable", "verify-full"] {
        let engines = vec![Engine::my_plain("old", old), Engine::my_tls("new", &new, engine_tls)];
        let extra =
            format!("[[route]]\nname = \"moved\"\nengine = \"new\"\ndatabase = \"{at_new}\"\n");
        let options = ProxyOptions { engines, extra, ..ProxyOptions::default() };
        let proxy = Proxy::start_with(options);
        for (asked, port, db) in [
            (at_old.clone(), old.port(), &at_old),
            ("moved".to_owned(), new.port(), &at_new),
            (format!("new/{at_new}"), new.port(), &at_new),
        ] {
            for user in ["app", "wire"] {
                let mut wire = MyWire::connect(proxy.port(), user, &asked);
                let seen = wire.query("SELECT CONCAT(@@port, '/', DATABASE())").ok().cell();
                assert_eq!(seen, format!("{port}/{db}"));
            }
        }
        let wrong = MyLogin { password: "wrong".into(), ..MyLogin::of("app", "moved") };
        assert_eq!(refused(proxy.port(), &wrong).0, 1045);
    }
}

#[test]
fn a_commit_whose_engine_is_lost_has_an_unknown_outcome() {
    let mut cluster = MyCluster::start(MyFlavour::MariaDb, MyOptions::default());
    let db = cluster.fresh_db();
    let proxy = Proxy::start_my(&cluster);
    let mut wire = MyWire::connect(proxy.port(), "wire", &db);
    wire.begin_query("INSERT INTO nowhere SELECT SLEEP(60)").unwrap();
    drop(wire.answer(&[]));
    wire.begin_query("DO SLEEP(100)").unwrap();
    let running = "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'DO SLEEP%'";
    let there = poll(PATIENCE, || (cluster.sql("mysql", running) == "1").then_some(()));
    assert!(there.is_some(), "it never ran");
    cluster.kill();
    let error = wire.answer(&[]).unwrap().error.unwrap();
    assert_eq!((error.code, error.state.as_str()), (9790, "08007"), "{error:?}");
    assert!(wire.is_over());
}

#[test]
fn a_client_that_does_not_read_costs_the_proxy_no_memory() {
    let cluster = MyCluster::shared(MyFlavour::MariaDb);
    let db = cluster.fresh_db();
    let proxy = Proxy::start_my(cluster);
    let mut wire = MyWire::connect(proxy.port(), "wire", &db);
    wire.query("SELECT 1").ok();
    let before = proxy.resident_kib();
    wire.begin_query("SELECT REPEAT('x', 1000000) FROM seq_1_to_400").unwrap();
    // The engine can write no more: what is between it and the client is full.
    let stuck = "SELECT count(*) FROM information_schema.processlist \
                 WHERE state = 'Writing to net' \
                 OR (state LIKE 'Sending data' AND info LIKE '%seq_1_to_400')";
    let there = poll(PATIENCE, || (cluster.sql("mysql", stuck) == "1").then_some(()));
    assert!(there.is_some(), "the engine is done");
    let grown = proxy.resident_kib().saturating_sub(before);
    assert!(grown < 8 << 10, "{grown} KiB more");
    let answer = wire.answer(&[]).unwrap();
    assert_eq!(answer.rows().len(), 400);
    let grown = proxy.resident_kib().saturating_sub(before);
    assert!(grown < 8 << 10, "{grown} KiB more");
}
