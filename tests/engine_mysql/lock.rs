//! The engine lock: what it waits for, what it stops, and how it ends.

use std::time::Duration;

use fencewire::engine::{LockError, MyEngine, ProxyView, Settings, WarningCode, Why};

use crate::site::{LONG, PATIENCE, SHORT, Site, own, settings, thread};
use crate::support::{MyCluster, MyFlavour, MyOptions, MyWire};

on_both!(
    it_is_granted_when_writers_have_ended_and_names_who_has_not,
    while_it_is_held_nobody_writes_whichever_way_and_reads_go_on,
    a_lock_that_went_with_its_thread_is_noticed,
    a_dropped_attempt_leaves_nobody_waiting,
    a_program_that_waits_for_it_is_told_from_others,
    without_rights_on_all_tables_it_is_not_taken,
    what_reaches_across_schemas_is_named,
    what_the_server_runs_at_a_login_is_named_where_it_may_write,
    a_stale_cache_does_not_hide_an_open_writer,
);

fn key(thread: u32) -> i32 {
    i32::from_ne_bytes(thread.to_ne_bytes())
}

async fn it_is_granted_when_writers_have_ended_and_names_who_has_not(flavour: MyFlavour) {
    let site = Site::shared(flavour);
    site.sql("CREATE TABLE `odd ``name` (n int); CREATE VIEW v AS SELECT n FROM t");
    let mut client = site.client();
    client.query("BEGIN").ok();
    client.query("INSERT INTO t VALUES (1)").ok();
    let busy = site.engine.take_lock(&site.namespace(), SHORT).await.unwrap_err();
    let LockError::Busy { blockers, .. } = busy else { panic!("{busy}") };
    let named = blockers.iter().find(|b| b.pid == Some(key(thread(&client))));
    let named = named.unwrap_or_else(|| panic!("not named: {blockers:?}"));
    assert_eq!(named.why, Why::HoldsTableLock);
    if flavour == MyFlavour::MySql {
        assert_eq!(named.object.as_deref(), Some("t"));
    }
    // Its writer isn't kept waiting by an attempt that was given up.
    client.query("INSERT INTO t VALUES (2)").ok();
    client.query("COMMIT").ok();
    // An open transaction that only read isn't waited for.
    client.query("BEGIN").ok();
    client.query("SELECT * FROM t").ok();
    let lock = site.engine.take_lock(&site.namespace(), LONG).await.unwrap();
    assert_eq!(lock.tables(), 2);
    assert_eq!(lock.engine_id(), site.engine.identity(&site.db).await.unwrap().engine_id);
    assert!(!lock.is_lost() && lock.taken_at().0 > 0);
    lock.release().await.unwrap();
}

async fn what_the_server_runs_at_a_login_is_named_where_it_may_write(flavour: MyFlavour) {
    let cluster = MyCluster::start(flavour, MyOptions::default());
    let site = Site::new(&cluster);
    assert_eq!(site.engine.known_login_text(), None);
    for (text, named) in
        [("", false), ("SET NAMES utf8mb4", false), ("INSERT INTO log.t VALUES (1)", true)]
    {
        site.sql(&format!("SET GLOBAL init_connect = '{text}'"));
        let lock = site.engine.take_lock(&site.namespace(), LONG).await.unwrap();
        let gaps = lock.gaps().join("\n");
        assert_eq!(gaps.contains("init_connect"), named, "{gaps}");
        assert_eq!(site.engine.known_login_text().as_deref(), Some(text.as_bytes()));
        lock.release().await.unwrap();
    }
}

async fn while_it_is_held_nobody_writes_whichever_way_and_reads_go_on(flavour: MyFlavour) {
    let site = Site::shared(flavour);
    let other = Site::shared(flavour);
    other.sql(&format!(
        "CREATE TRIGGER into_app AFTER INSERT ON t FOR EACH ROW \
         INSERT INTO {}.t VALUES (NEW.n + 100)",
        site.db
    ));
    let mut around = MyWire::connect(site.cluster.port(), "wire", &other.db);
    around.query("SET SESSION lock_wait_timeout = 1").ok();
    let lock = site.engine.take_lock(&site.namespace(), LONG).await.unwrap();
    for write in [
        &format!("INSERT INTO {}.t VALUES (1)", site.db),
        "INSERT INTO t VALUES (2)",
        &format!("DROP TABLE {}.t", site.db),
        &format!("TRUNCATE {}.t", site.db),
    ] {
        assert_eq!(around.query(write).code(), 1205, "{write}");
    }
    assert_eq!(around.query(&format!("SELECT COUNT(*) FROM {}.t", site.db)).cell(), "0");
    // The holder is no blocker and holds no transaction.
    let cutoff = site.cutoff().await;
    assert_eq!(cutoff.entries(), []);
    site.clear_at_last(&cutoff, &ProxyView::default()).await;
    assert!(!lock.is_lost());
    lock.release().await.unwrap();
    // The control: with the lock gone, the trigger reaches across.
    around.query("INSERT INTO t VALUES (3)").ok();
    assert_eq!(site.sql("SELECT n FROM t"), "103");
}

async fn a_lock_that_went_with_its_thread_is_noticed(flavour: MyFlavour) {
    let site = Site::shared(flavour);
    let lock = site.engine.take_lock(&site.namespace(), LONG).await.unwrap();
    site.sql(&format!("KILL {}", lock.backend().pid.cast_unsigned()));
    tokio::time::timeout(PATIENCE, lock.lost()).await.expect("the loss isn't noticed");
    assert!(lock.is_lost());
    let lost = lock.release().await.unwrap_err();
    assert!(matches!(lost, LockError::Lost { .. }), "{lost}");

    // A census that begins after the thread is gone knows it, whenever the pulse comes.
    let lock = site.engine.take_lock(&site.namespace(), LONG).await.unwrap();
    let cutoff = site.cutoff().await;
    let holder = lock.backend().pid.cast_unsigned();
    site.sql(&format!("KILL {holder}"));
    site.gone(holder);
    site.clear_at_last(&cutoff, &ProxyView::default()).await;
    assert!(lock.is_lost());
    // And a lock that is dropped is given back.
    drop(lock);
    let lock = site.engine.take_lock(&site.namespace(), LONG).await.unwrap();
    let holder = lock.backend().pid.cast_unsigned();
    drop(lock);
    site.gone(holder);
    site.client().query("INSERT INTO t VALUES (1)").ok();
}

async fn a_dropped_attempt_leaves_nobody_waiting(flavour: MyFlavour) {
    let site = Site::shared(flavour);
    let mut client = site.client();
    client.query("BEGIN").ok();
    client.query("INSERT INTO t VALUES (1)").ok();
    let (engine, namespace) = (site.engine.clone(), site.namespace());
    let attempt = tokio::task::spawn(async move {
        engine.take_lock(&namespace, Duration::from_secs(500)).await.map(drop)
    });
    let waiting = format!(
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
         WHERE STATE = 'Waiting for table metadata lock' AND INFO LIKE 'LOCK TABLES `{}`%'",
        site.db
    );
    site.level("the attempt waits", &waiting);
    attempt.abort();
    site.level("nobody waits any more", &waiting.replace("COUNT(*)", "COUNT(*) = 0"));
    let mut second = site.client();
    second.query("SET SESSION lock_wait_timeout = 30").ok();
    second.query("INSERT INTO t VALUES (2)").ok();
}

async fn a_program_that_waits_for_it_is_told_from_others(flavour: MyFlavour) {
    let site = Site::shared(flavour);
    let other = Site::shared(flavour);
    let lock = site.engine.take_lock(&site.namespace(), LONG).await.unwrap();
    let (mut writer, mut stranger) = (site.client(), other.client());
    writer.begin_query("INSERT INTO t VALUES (1)").unwrap();
    site.waits(thread(&writer), "Waiting for table metadata lock");
    // Waits too, but for somebody else's lock on another schema's table.
    let mut locker = other.client();
    locker.query("LOCK TABLES t WRITE").ok();
    stranger.begin_query("INSERT INTO t VALUES (1)").unwrap();
    other.waits(thread(&stranger), "Waiting for table metadata lock");

    let asked = [key(thread(&writer)), key(thread(&stranger)), key(thread(&locker))];
    let seen = site.engine.activity(&asked).await.unwrap();
    assert_eq!(seen.len(), 3);
    for one in seen {
        let expected =
            if one.backend.pid == asked[0] { vec![lock.backend().pid] } else { Vec::new() };
        assert_eq!(one.blocked_by, expected, "{one:?}");
    }
    lock.release().await.unwrap();
    writer.answer(&[]).unwrap().ok();
}

async fn without_rights_on_all_tables_it_is_not_taken(flavour: MyFlavour) {
    let site = Site::shared(flavour);
    let user = format!("half{}", site.db);
    let account = format!("{user}@'127.0.0.1'");
    site.sql(&format!(
        "CREATE TABLE hidden (n int); CREATE USER {account} IDENTIFIED BY 'x'; \
         GRANT PROCESS ON *.* TO {account}; GRANT LOCK TABLES ON {db}.* TO {account}; \
         GRANT SELECT ON {db}.t TO {account}; \
         GRANT SELECT ON mysql.time_zone_leap_second TO {account}",
        db = site.db
    ));
    let password = Some(fencewire::base::secret::Secret::new("x".to_owned()));
    let half = Settings { user, password, ..settings(site.cluster) };
    let half = MyEngine::new(half).unwrap();
    let refused = half.take_lock(&site.namespace(), SHORT).await.unwrap_err();
    assert!(matches!(refused, LockError::NotAllowed { .. }), "{refused}");
    assert!(refused.to_string().contains("GRANT SELECT, LOCK TABLES"), "{refused}");
    let codes = |warnings: Vec<fencewire::engine::Warning>| {
        warnings.into_iter().map(|warning| warning.code).collect::<Vec<_>>()
    };
    let told = codes(half.preflight(&site.namespace()).await.unwrap());
    assert!(told.contains(&WarningCode::CannotLock), "{told:?}");
    assert!(told.contains(&WarningCode::CannotTerminate), "{told:?}");
    let told = codes(site.engine.preflight(&site.namespace()).await.unwrap());
    assert!(!told.contains(&WarningCode::CannotLock), "{told:?}");

    site.sql(&format!("GRANT SELECT ON {}.* TO {account}", site.db));
    let lock = half.take_lock(&site.namespace(), LONG).await;
    match lock {
        Ok(lock) => assert_eq!(lock.tables(), 2),
        Err(error) => panic!("{error}"),
    }
}

async fn what_reaches_across_schemas_is_named(flavour: MyFlavour) {
    let (site, other) = (Site::shared(flavour), Site::shared(flavour));
    let (here, there) = (&site.db, &other.db);
    site.sql(&format!(
        "CREATE VIEW outward AS SELECT n FROM {there}.t; CREATE TABLE m (n int) ENGINE = MyISAM; \
         CREATE TABLE child (n int, FOREIGN KEY (n) REFERENCES {there}.t (n) ON DELETE CASCADE)"
    ));
    other.sql(&format!("CREATE VIEW inward AS SELECT n FROM {here}.t"));
    let lock = site.engine.take_lock(&site.namespace(), LONG).await.unwrap();
    let gaps = lock.gaps().join("\n");
    for name in [&format!("{here}.outward"), &format!("{there}.inward"), "m", "child"] {
        assert!(gaps.contains(name), "{name} isn't named in:\n{gaps}");
    }
    // A cascade from the other schema waits like any other write.
    let mut around = other.client();
    around.query("SET SESSION lock_wait_timeout = 1").ok();
    assert_eq!(around.query("DELETE FROM t").code(), 1205);
    lock.release().await.unwrap();
    around.query("DELETE FROM t").ok();
}

/// Somebody else reads `INNODB_TRX` all the time, so that it is never refreshed: the census may see
/// no transaction, and the lock isn't granted all the same.
async fn a_stale_cache_does_not_hide_an_open_writer(flavour: MyFlavour) {
    let cluster = own(flavour, &[]);
    let site = Site::new(&cluster);
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let poller = {
        let (stop, port) = (stop.clone(), site.cluster.port());
        let mut wire =
            MyWire::login(port, &crate::support::my_wire::MyLogin::of("wire", &site.db)).unwrap();
        site.sql("GRANT PROCESS ON *.* TO wire@'127.0.0.1'");
        std::thread::spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                wire.query("SELECT COUNT(*) FROM information_schema.INNODB_TRX");
            }
        })
    };
    let mut client = MyWire::connect(site.cluster.port(), "wire", "information_schema");
    client.query("BEGIN").ok();
    client.query(&format!("INSERT INTO {}.t VALUES (1)", site.db)).ok();
    let busy = site.engine.take_lock(&site.namespace(), SHORT).await.map(drop).unwrap_err();
    stop.store(true, std::sync::atomic::Ordering::SeqCst);
    poller.join().unwrap();
    assert!(matches!(busy, LockError::Busy { .. }), "{busy}");
    client.query("COMMIT").ok();
    site.engine.take_lock(&site.namespace(), LONG).await.unwrap().release().await.unwrap();
}
