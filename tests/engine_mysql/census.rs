//! The census: what must be seen, and what must not block.
//!
//! Servers of their own where the engine's cache of transactions is looked at: other tests' looks
//! would keep it from being refreshed.

use std::collections::HashMap;

use fencewire::base::ids::SessionId;
use fencewire::engine::{EngineError, MyEngine, Orphan, ProxySession, ProxyView, Terminated, Why};

use crate::site::{LONG, PATIENCE, Site, own, settings, thread};
use crate::support::MyFlavour;

on_both!(
    an_open_writer_blocks_until_its_end,
    sessions_around_the_proxy_block_in_a_transaction_and_count_when_idle,
    a_session_of_the_proxy_blocks_as_a_writer_only,
    an_orphan_blocks_until_it_is_gone_and_termination_spares_another_run,
    a_killed_thread_blocks_while_it_rolls_back,
    a_restart_voids_the_cutoff,
    a_missing_schema_is_an_answer_and_two_servers_are_two,
    without_the_right_to_see_others_nothing_is_proven,
    who_waits_for_our_own_lock_is_no_blocker,
    m8_an_imports_event_blocks_until_it_is_disabled,
    m10_what_ran_before_this_process_blocks_an_import_whatever_its_schema,
);

fn key(thread: u32) -> i32 {
    i32::from_ne_bytes(thread.to_ne_bytes())
}

fn proxied(thread: u32, is_writer: bool) -> ProxyView {
    let session = ProxySession { session: SessionId(7), is_writer, in_program: !is_writer };
    ProxyView { sessions: HashMap::from([(key(thread), session)]), ..ProxyView::default() }
}

async fn an_open_writer_blocks_until_its_end(flavour: MyFlavour) {
    let cluster = own(flavour, &[]);
    let site = Site::new(&cluster);
    let mut client = site.client();
    client.query("BEGIN").ok();
    client.query("INSERT INTO t VALUES (1)").ok();
    let mut elsewhere = Site::new(&cluster).client();
    elsewhere.query("BEGIN").ok();
    elsewhere.query("INSERT INTO t VALUES (1)").ok();

    let cutoff = site.cutoff().await;
    let entries: Vec<i32> = cutoff.entries().iter().map(|entry| entry.pid).collect();
    assert_eq!(entries, [key(thread(&client))]);
    let blockers = site.census(&cutoff, &ProxyView::default()).await.unwrap_err();
    assert_eq!(blockers.len(), 1, "{blockers:?}");
    let blocker = &blockers[0];
    assert_eq!((blocker.pid, blocker.why), (Some(key(thread(&client))), Why::OpenAtCutoff));
    assert_eq!((blocker.user.as_str(), blocker.state.as_str()), ("wire", "idle in transaction"));
    assert!(blocker.age_ms.is_some(), "{blocker:?}");

    client.query("COMMIT").ok();
    let counts = site.clear_at_last(&cutoff, &ProxyView::default()).await;
    assert_eq!((counts.cutoff, counts.direct_idle), (1, 1));
}

async fn sessions_around_the_proxy_block_in_a_transaction_and_count_when_idle(flavour: MyFlavour) {
    let cluster = own(flavour, &[]);
    let site = Site::new(&cluster);
    let mut client = site.client();
    let cutoff = site.cutoff().await;
    let sole = ProxyView { sole_path_required: true, ..ProxyView::default() };
    let counts = site.clear_at_last(&cutoff, &ProxyView::default()).await;
    assert_eq!(counts.direct_idle, 1);
    assert_eq!(site.whys(&cutoff, &sole).await, [Why::DirectIdle]);
    client.query("BEGIN").ok();
    client.query("INSERT INTO t VALUES (1)").ok();
    let whys = site.whys(&cutoff, &ProxyView::default()).await;
    // MySQL lists table locks, so it is known to have written; elsewhere its transaction is seen.
    let expected = match flavour {
        MyFlavour::MySql => Why::Writing,
        MyFlavour::MariaDb => Why::DirectInTransaction,
    };
    assert_eq!(whys, [expected]);
    client.query("ROLLBACK").ok();
    site.clear_at_last(&cutoff, &ProxyView::default()).await;

    // A statement that runs, in no transaction that the engine's cache would show.
    client.begin_query("SELECT SLEEP(600)").unwrap();
    site.waits(thread(&client), "User sleep");
    let whys = site.whys(&cutoff, &ProxyView::default()).await;
    assert_eq!(whys, [Why::DirectInTransaction]);
    site.sql(&format!("KILL {}", thread(&client)));
}

async fn a_session_of_the_proxy_blocks_as_a_writer_only(flavour: MyFlavour) {
    let cluster = own(flavour, &[]);
    let site = Site::new(&cluster);
    let mut client = site.client();
    client.query("BEGIN").ok();
    client.query("SELECT * FROM t").ok();
    let cutoff = site.cutoff().await;
    let id = thread(&client);
    assert_eq!(site.whys(&cutoff, &proxied(id, true)).await, [Why::OpenAtCutoff]);
    let counts = site.census(&cutoff, &proxied(id, false)).await.unwrap();
    assert_eq!((counts.proxied, counts.readers_exempt), (1, 1));
    client.query("COMMIT").ok();
    site.clear_at_last(&cutoff, &proxied(id, true)).await;
    client.query("BEGIN").ok();
    client.query("INSERT INTO t VALUES (1)").ok();
    assert_eq!(site.whys(&cutoff, &proxied(id, true)).await.len(), 1);
    if flavour == MyFlavour::MySql {
        // A session that the proxy took for a reader is found out by its locks.
        assert_eq!(site.whys(&cutoff, &proxied(id, false)).await, [Why::Writing]);
    }
}

async fn an_orphan_blocks_until_it_is_gone_and_termination_spares_another_run(flavour: MyFlavour) {
    let site = Site::shared(flavour);
    let mut client = site.client();
    let id = thread(&client);
    let orphan = Orphan { pid: key(id), session: SessionId(3), backend_start: None };
    let view = ProxyView { orphans: vec![orphan], ..ProxyView::default() };
    let cutoff = site.cutoff().await;
    let blockers = site.census(&cutoff, &view).await.unwrap_err();
    assert_eq!((blockers[0].why, blockers[0].session), (Why::Orphan, Some(SessionId(3))));

    let seen = site.engine.activity(&[key(id), key(u32::MAX)]).await.unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].database.as_str(), seen[0].user.as_str()), (site.db.as_str(), "wire"));
    let mut wrong = seen[0].backend;
    wrong.backend_start.0 -= 60_000_000;
    assert_eq!(site.engine.terminate(wrong).await.unwrap(), Terminated::Gone);
    client.query("SELECT 1").ok();

    // Stopping the statement leaves the session.
    client.begin_query("SELECT SLEEP(600)").unwrap();
    site.waits(id, "User sleep");
    assert_eq!(site.engine.cancel(seen[0].backend).await.unwrap(), Terminated::Signalled);
    let _either = client.answer(&[]).unwrap();
    client.query("SELECT 1").ok();

    assert_eq!(site.engine.terminate(seen[0].backend).await.unwrap(), Terminated::Signalled);
    site.gone(id);
    assert_eq!(site.clear_at_last(&cutoff, &view).await.orphans_gone, 1);
    assert_eq!(site.engine.terminate(seen[0].backend).await.unwrap(), Terminated::Gone);
}

async fn a_killed_thread_blocks_while_it_rolls_back(flavour: MyFlavour) {
    let cluster = own(flavour, &[]);
    let site = Site::new(&cluster);
    let mut client = site.client();
    let cutoff = site.cutoff().await;
    client.query("BEGIN").ok();
    client.query("INSERT INTO t VALUES (0)").ok();
    for power in 0..18 {
        client.query(&format!("INSERT INTO t SELECT n + {} FROM t", 1 << power)).ok();
    }
    let id = thread(&client);
    site.sql(&format!("KILL {id}"));
    // Undoing a quarter of a million rows takes longer than the looks at it; the first that finds
    // the thread gone ends the test as a failure unless one before found it rolling back.
    let mut seen = Vec::new();
    let looking = async {
        while let Err(blockers) = site.census(&cutoff, &ProxyView::default()).await {
            seen.extend(blockers.into_iter().map(|blocker| blocker.why));
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("the rollback doesn't end");
    assert!(seen.contains(&Why::RollingBack), "{seen:?}");
    site.gone(id);
    assert_eq!(site.sql("SELECT COUNT(*) FROM t"), "0");
}

async fn a_restart_voids_the_cutoff(flavour: MyFlavour) {
    let mut cluster = own(flavour, &[]);
    let (cutoff, engine, db) = {
        let site = Site::new(&cluster);
        let cutoff = site.cutoff().await;
        site.clear_at_last(&cutoff, &ProxyView::default()).await;
        // Two readings of one run's start may differ; two runs' starts are further apart.
        let status = match flavour {
            MyFlavour::MariaDb => "information_schema",
            MyFlavour::MySql => "performance_schema",
        };
        site.level(
            "the run is old enough",
            &format!(
                "SELECT VARIABLE_VALUE >= 5 FROM {status}.global_status \
                 WHERE VARIABLE_NAME = 'UPTIME'"
            ),
        );
        (cutoff, site.engine.clone(), site.db.clone())
    };
    let run = engine.server_run().await.unwrap();
    assert_eq!(engine.server_run().await.unwrap(), run, "one run tells always the same");
    cluster.stop();
    let down = engine.census(&cutoff, &ProxyView::default()).await.unwrap_err();
    assert!(matches!(down, EngineError::Unreachable { .. }), "{down}");
    cluster.start_again();
    let changed = engine.census(&cutoff, &ProxyView::default()).await.unwrap_err();
    assert!(matches!(changed, EngineError::Changed { .. }), "{changed}");
    assert!(changed.to_string().contains("restarted"), "{changed}");

    let identity = engine.identity(&db).await.unwrap();
    assert_eq!(identity.engine_id, cutoff.identity().engine_id);
    let next = engine.server_run().await.unwrap();
    assert!(next.0 == run.0 && next.1 > run.1, "{run:?} {next:?}");
}

async fn a_missing_schema_is_an_answer_and_two_servers_are_two(flavour: MyFlavour) {
    let site = Site::shared(flavour);
    let identity = site.engine.identity(&site.db).await.unwrap();
    assert_eq!(identity.database_id, site.db);
    assert_eq!(site.engine.identity(&site.db).await.unwrap().engine_id, identity.engine_id);
    let missing = site.engine.identity("no such schema").await.unwrap_err();
    assert!(fencewire::engine::mysql::is_missing(&missing), "{missing}");

    let other = own(flavour, &[]);
    let other = MyEngine::new(settings(&other)).unwrap().check().await.unwrap();
    assert_ne!(other.engine_id, identity.engine_id);
    assert_eq!(other.server_version_num, identity.server_version_num);
}

async fn without_the_right_to_see_others_nothing_is_proven(flavour: MyFlavour) {
    let site = Site::shared(flavour);
    let account = format!("blind{}@'127.0.0.1'", site.db);
    site.sql(&format!(
        "CREATE USER {account} IDENTIFIED BY 'x'; GRANT ALL ON {}.* TO {account}",
        site.db
    ));
    let user = format!("blind{}", site.db);
    let password = Some(fencewire::base::secret::Secret::new("x".to_owned()));
    let blind = fencewire::engine::Settings { user, password, ..settings(site.cluster) };
    let blind = MyEngine::new(blind).unwrap();
    // A schema that can't be seen isn't missing.
    let hidden = blind.identity("mysql").await.unwrap_err();
    assert!(matches!(hidden, EngineError::Denied { .. }), "{hidden}");
    // From here on nothing is wanting but the sight of others.
    site.sql(&format!("GRANT SELECT ON mysql.time_zone_leap_second TO {account}"));
    let denied = blind.check().await.expect_err("VIOLATION: M4: a blind account passes");
    assert!(matches!(denied, EngineError::Denied { .. }), "{denied}");
    assert!(denied.to_string().contains("GRANT PROCESS"), "{denied}");
    let denied = blind.cutoff(&site.namespace()).await.unwrap_err();
    assert!(matches!(denied, EngineError::Denied { .. }), "{denied}");
}

/// Control arm: without the question whether others can be seen, nobody there is taken for nobody.
#[test]
fn m4_an_account_that_sees_nobody_is_reported_without_the_check() {
    for flavour in ["mariadb", "mysql"] {
        let check = format!("census::{flavour}::without_the_right_to_see_others_nothing_is_proven");
        fencewire::base::arm::missed(&check, &[("sight-check", "M4")]).unwrap();
    }
}

/// A writer around the proxy that came too late waits until the fence is gone: a day, if it may.
async fn who_waits_for_our_own_lock_is_no_blocker(flavour: MyFlavour) {
    let cluster = own(flavour, &[]);
    let site = Site::new(&cluster);
    let mut writer = site.client();
    let cutoff = site.cutoff().await;
    let sole = ProxyView { sole_path_required: true, ..ProxyView::default() };
    let waiting = "Waiting for table metadata lock";
    // Somebody else's lock may be gone at any moment.
    let mut other = site.client();
    other.query("LOCK TABLES t READ").ok();
    writer.begin_query("INSERT INTO t VALUES (1)").unwrap();
    site.waits(thread(&writer), waiting);
    let whys = site.whys(&cutoff, &ProxyView::default()).await;
    assert!(whys.contains(&Why::DirectInTransaction), "{whys:?}");
    other.query("UNLOCK TABLES").ok();
    writer.answer(&[]).unwrap().ok();
    drop(other);

    let lock = site.engine.take_lock(&site.namespace(), LONG).await.unwrap();
    writer.begin_query("INSERT INTO t VALUES (2)").unwrap();
    site.waits(thread(&writer), waiting);
    let counts = site.clear_at_last(&cutoff, &ProxyView::default()).await;
    assert_eq!(counts.direct_idle, 1);
    assert!(site.whys(&cutoff, &sole).await.contains(&Why::DirectIdle));
    lock.release().await.unwrap();
    writer.answer(&[]).unwrap().ok();
}

/// What the engine runs by itself would write on behind a seal, where no lock is held.
async fn m8_an_imports_event_blocks_until_it_is_disabled(flavour: MyFlavour) {
    let site = Site::shared(flavour);
    let schedule = "ON SCHEDULE EVERY 1 DAY STARTS CURRENT_TIMESTAMP + INTERVAL 1 DAY";
    site.sql(&format!("CREATE EVENT `e``v` {schedule} DO INSERT INTO t VALUES (1)"));
    site.sql(&format!("CREATE EVENT off {schedule} DISABLE DO INSERT INTO t VALUES (2)"));
    let import = ProxyView { is_import: true, ..ProxyView::default() };
    let cutoff = site.cutoff().await;
    // Of a source, whose tables stay locked, it doesn't count.
    site.clear_at_last(&cutoff, &ProxyView::default()).await;
    let blockers = site.census(&cutoff, &import).await;
    let blockers = blockers.expect_err("VIOLATION: M8: an import ends with an event enabled");
    // What other tests run on this server may be older than this handle.
    let ours: Vec<_> = blockers.iter().filter(|one| one.why != Why::OlderProgram).collect();
    let [blocker] = ours.as_slice() else { panic!("{blockers:?}") };
    assert_eq!((blocker.why, blocker.pid, blocker.session), (Why::Event, None, None));
    assert_eq!(blocker.object, Some(format!("`{}`.`e``v`", site.db)));
    assert!(blocker.why.sentence().contains("DISABLE"));
    site.sql("ALTER EVENT `e``v` DISABLE");
    site.clear_at_last(&cutoff, &import).await;
    // Events that aren't shown are not none.
    let account = format!("few{}@'127.0.0.1'", site.db);
    let user = format!("few{}", site.db);
    site.sql(&format!(
        "CREATE USER {account} IDENTIFIED BY 'x'; GRANT SELECT, PROCESS ON *.* TO {account}"
    ));
    if flavour == MyFlavour::MySql {
        site.sql(&format!("GRANT XA_RECOVER_ADMIN ON *.* TO {account}"));
    }
    let password = Some(fencewire::base::secret::Secret::new("x".to_owned()));
    let few = fencewire::engine::Settings { user, password, ..settings(site.cluster) };
    let few = MyEngine::new(few).unwrap();
    let cutoff = few.cutoff(&site.namespace()).await.unwrap();
    few.census(&cutoff, &ProxyView::default()).await.unwrap();
    let denied = few.census(&cutoff, &import).await.unwrap_err();
    assert!(denied.to_string().contains("GRANT EVENT"), "{denied}");
    site.sql(&format!("GRANT EVENT ON *.* TO {account}"));
    few.census(&cutoff, &import).await.expect("rights count without a restart");
}

/// A program of the import that a process before this one admitted, in a session with another
/// default schema: what it writes to is told by its later statements alone.
async fn m10_what_ran_before_this_process_blocks_an_import_whatever_its_schema(flavour: MyFlavour) {
    let cluster = own(flavour, &[]);
    let away = Site::new(&cluster);
    let runs = |site: &Site<'_>| {
        let mut client = site.client();
        let id = thread(&client);
        let running = std::thread::spawn(move || client.query("SELECT SLEEP(600)"));
        (id, running)
    };
    let is_seen = |id: u32| {
        let busy = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND = 'Query'";
        away.level("it runs", &format!("{busy} AND INFO LIKE 'SELECT SLEEP%' AND ID = {id}"));
    };
    let (old, of_old) = runs(&away);
    is_seen(old);
    let site = Site::new(&cluster);
    let import = ProxyView { is_import: true, ..ProxyView::default() };
    let cutoff = site.cutoff().await;
    let (new, of_new) = runs(&away);
    is_seen(new);
    let blockers = site.census(&cutoff, &import).await;
    let blockers = blockers.expect_err("VIOLATION: M10: an import ends while its program runs");
    let [blocker] = blockers.as_slice() else { panic!("{blockers:?}") };
    assert_eq!((blocker.why, blocker.pid), (Why::OlderProgram, Some(key(old))));
    assert!(blocker.why.sentence().contains("KILL"));
    // A source's tables stay locked behind its drain.
    site.clear_at_last(&cutoff, &ProxyView::default()).await;
    site.sql(&format!("KILL QUERY {old}"));
    site.clear_at_last(&cutoff, &import).await;
    site.sql(&format!("KILL QUERY {new}"));
    drop((of_old.join().unwrap(), of_new.join().unwrap()));
}

#[test]
fn m10_an_import_whose_older_programs_are_not_looked_for_is_reported() {
    for flavour in ["mariadb", "mysql"] {
        let check = format!(
            "census::{flavour}::\
             m10_what_ran_before_this_process_blocks_an_import_whatever_its_schema"
        );
        fencewire::base::arm::missed(&check, &[("older-programs", "M10")]).unwrap();
    }
}

#[test]
fn m8_an_import_whose_events_are_not_looked_for_is_reported() {
    for flavour in ["mariadb", "mysql"] {
        let check = format!("census::{flavour}::m8_an_imports_event_blocks_until_it_is_disabled");
        fencewire::base::arm::missed(&check, &[("event-check", "M8")]).unwrap();
    }
}
