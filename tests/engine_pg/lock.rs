//! The engine lock: what it waits for, what it stops, and how it ends.

use std::time::Duration;

use fencewire::engine::{
    CensusOutcome, EngineError, LockError, PgEngine, ProxyView, WarningCode, Why,
};
use tokio_postgres::Client;

use crate::cluster::{Pg, app, gone, pid, waits_for};

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(10);

async fn with_table(pg: &Pg) -> Client {
    let client = pg.client("app").await;
    client
        .batch_execute(
            "CREATE TABLE t (i int); CREATE SCHEMA \"odd \"\"name\"; \
             CREATE TABLE \"odd \"\"name\".\"T,x\" (i int) PARTITION BY RANGE (i); \
             CREATE TABLE p PARTITION OF \"odd \"\"name\".\"T,x\" DEFAULT",
        )
        .await
        .unwrap();
    client
}

#[tokio::test]
async fn a_function_that_lifts_its_own_read_only_waits_while_the_lock_is_held() {
    let pg = Pg::start().await;
    let engine = pg.engine();
    let client = with_table(&pg).await;
    client
        .batch_execute(
            "CREATE FUNCTION sneak() RETURNS int LANGUAGE plpgsql AS $$ BEGIN \
             RESET transaction_read_only; INSERT INTO t VALUES (1); RETURN 1; END $$; \
             SET lock_timeout = '200ms'",
        )
        .await
        .unwrap();
    let sneak = "BEGIN READ ONLY; SELECT sneak(); COMMIT";

    let handle = engine.take_lock(&app(), LONG).await.unwrap();
    assert_eq!((handle.tables(), handle.large_objects()), (3, true));
    assert_eq!(*handle.identity(), engine.identity("app").await.unwrap());
    let coverage = handle.coverage().await.unwrap();
    assert_eq!((coverage.held, coverage.uncovered.as_slice()), (5, &[][..]));
    let refused = client.batch_execute(sneak).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "55P03");
    client.batch_execute("ROLLBACK").await.unwrap();
    client.query_one("SELECT count(*) FROM t", &[]).await.unwrap();

    // The holder is no blocker, takes no transaction id and holds back no horizon.
    let cutoff = engine.cutoff(&app()).await.unwrap();
    assert_eq!(cutoff.entries(), []);
    let outcome = engine.census(&cutoff, &ProxyView::default()).await.unwrap();
    assert!(matches!(outcome, CensusOutcome::Clear(_)), "{outcome:?}");
    let sql = "SELECT backend_xid IS NULL AND backend_xmin IS NULL FROM pg_stat_activity \
        WHERE pid = $1";
    let holder = handle.backend().pid;
    assert!(client.query_one(sql, &[&holder]).await.unwrap().get::<_, bool>(0));

    handle.coverage().await.unwrap();
    assert!(client.query_one(sql, &[&holder]).await.unwrap().get::<_, bool>(0));

    handle.release().await.unwrap();
    client.batch_execute(sneak).await.unwrap();
}

#[tokio::test]
async fn a_writer_in_the_way_is_named() {
    let pg = Pg::start().await;
    let engine = pg.engine();
    let client = with_table(&pg).await;
    client.batch_execute("BEGIN; INSERT INTO t VALUES (1)").await.unwrap();
    let busy = engine.take_lock(&app(), SHORT).await.unwrap_err();
    let LockError::Busy { blockers, .. } = busy else { panic!("{busy}") };
    assert_eq!(blockers.len(), 1);
    assert_eq!((blockers[0].pid, blockers[0].why), (Some(pid(&client).await), Why::HoldsTableLock));
    assert_eq!(blockers[0].object.as_deref(), Some("public.t"));

    client.batch_execute("COMMIT; BEGIN; SELECT * FROM t").await.unwrap();
    engine.take_lock(&app(), SHORT).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_prepared_writer_is_waited_for_and_named() {
    let pg = Pg::start().await;
    let engine = pg.engine();
    let client = with_table(&pg).await;
    let prepare = "BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'left'";
    client.batch_execute(prepare).await.unwrap();
    let busy = engine.take_lock(&app(), SHORT).await.unwrap_err();
    let LockError::Busy { blockers, .. } = busy else { panic!("{busy}") };
    assert_eq!((blockers[0].why, blockers[0].object.as_deref()), (Why::Prepared, Some("left")));
    client.batch_execute("COMMIT PREPARED 'left'").await.unwrap();
    engine.take_lock(&app(), SHORT).await.unwrap().release().await.unwrap();
}

/// Starts taking the lock while `client` holds a lock on `t`, and returns once it waits.
async fn waiting(
    pg: &Pg,
    engine: &PgEngine,
) -> tokio::task::JoinHandle<Result<fencewire::engine::LockHandle, LockError>> {
    let engine = engine.clone();
    let task = tokio::task::spawn(async move { engine.take_lock(&app(), LONG).await });
    let observer = pg.client("postgres").await;
    crate::cluster::eventually("the lock waits", async || {
        let sql = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = \
            'fencewire/test' AND wait_event_type = 'Lock')";
        observer.query_one(sql, &[]).await.unwrap().get(0)
    })
    .await;
    task
}

#[tokio::test]
async fn a_table_created_while_the_lock_waits_is_covered() {
    let pg = Pg::start().await;
    let engine = pg.engine();
    let client = with_table(&pg).await;
    client.batch_execute("BEGIN; INSERT INTO t VALUES (1)").await.unwrap();
    let taking = waiting(&pg, &engine).await;
    pg.client("app").await.batch_execute("CREATE TABLE late (i int)").await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
    let handle = taking.await.unwrap().unwrap();
    assert_eq!(handle.tables(), 4);
    assert_eq!(handle.coverage().await.unwrap().uncovered, Vec::<String>::new());
    // The control: one that is created afterwards isn't covered, and the handle can say so.
    client.batch_execute("CREATE TABLE after (i int)").await.unwrap();
    assert_eq!(handle.coverage().await.unwrap().uncovered, ["public.after"]);
}

#[tokio::test]
async fn a_table_dropped_while_the_lock_waits_is_no_failure() {
    let pg = Pg::start().await;
    let engine = pg.engine();
    let client = with_table(&pg).await;
    client.batch_execute("BEGIN; DROP TABLE t").await.unwrap();
    let taking = waiting(&pg, &engine).await;
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(taking.await.unwrap().unwrap().tables(), 2);
}

#[tokio::test]
async fn the_loss_of_the_holder_is_noticed() {
    let pg = Pg::start().await;
    let engine = pg.engine();
    let client = with_table(&pg).await;
    let handle = engine.take_lock(&app(), LONG).await.unwrap();
    assert!(!handle.is_lost());
    let own = engine.terminate(handle.backend()).await.unwrap_err();
    assert!(matches!(own, EngineError::Unexpected { .. }), "{own}");
    let lost = handle.lost();
    let end = "SELECT pg_terminate_backend($1)";
    client.query_one(end, &[&handle.backend().pid]).await.unwrap();
    tokio::time::timeout(LONG, lost).await.unwrap();
    assert!(handle.is_lost());
    assert!(matches!(handle.coverage().await, Err(LockError::Lost { .. })));
    assert!(matches!(handle.release().await, Err(LockError::Lost { .. })));
}

#[tokio::test]
async fn dropping_the_handle_or_the_attempt_frees_the_tables() {
    let pg = Pg::start().await;
    let engine = pg.engine();
    let client = with_table(&pg).await;
    let handle = engine.take_lock(&app(), LONG).await.unwrap();
    let holder = handle.backend().pid;
    drop(handle);
    gone(&client, holder).await;
    client.batch_execute("BEGIN; INSERT INTO t VALUES (1)").await.unwrap();
    let taking = waiting(&pg, &engine).await;
    taking.abort();
    assert!(taking.await.unwrap_err().is_cancelled());
    client.batch_execute("COMMIT").await.unwrap();
    client.batch_execute("SET lock_timeout = '15s'; INSERT INTO t VALUES (2)").await.unwrap();
}

#[tokio::test]
async fn an_autovacuum_in_the_way_gives_way() {
    let pg = Pg::start_with(&[
        "autovacuum=on",
        "autovacuum_naptime=1s",
        "autovacuum_vacuum_cost_delay=100ms",
        "autovacuum_vacuum_cost_limit=1",
        "deadlock_timeout=200ms",
    ])
    .await;
    let client = pg.client("app").await;
    client
        .batch_execute(
            "CREATE TABLE t (i int) WITH (autovacuum_vacuum_threshold = 1, fillfactor = 10); \
             INSERT INTO t SELECT generate_series(1, 20000)",
        )
        .await
        .unwrap();
    client.batch_execute("UPDATE t SET i = i + 1").await.unwrap();
    let sql = "SELECT coalesce((SELECT pid FROM pg_stat_activity JOIN pg_locks l USING (pid) \
        WHERE backend_type = 'autovacuum worker' AND l.relation = 't'::regclass LIMIT 1), 0)";
    let mut vacuum = 0;
    crate::cluster::eventually("autovacuum works here", async || {
        vacuum = client.query_one(sql, &[]).await.unwrap().get(0);
        vacuum != 0
    })
    .await;
    waits_for(&client, vacuum, "VacuumDelay").await;
    let handle = pg.engine().take_lock(&app(), Duration::from_millis(1500)).await.unwrap();
    assert_eq!(handle.tables(), 1);
}

#[tokio::test]
async fn a_role_is_told_what_it_lacks() {
    let pg = Pg::start().await;
    let client = with_table(&pg).await;
    client.batch_execute("CREATE ROLE ctl LOGIN PASSWORD 'secret'").await.unwrap();
    let engine = PgEngine::new(pg.settings("ctl")).unwrap();
    let namespace = app();
    let warned = || async {
        let warnings = engine.preflight(&namespace).await.unwrap();
        warnings.into_iter().map(|w| w.code).collect::<Vec<_>>()
    };
    let prepared = WarningCode::PreparedTransactions;
    let all = [WarningCode::NotMonitor, WarningCode::CannotLock, prepared];
    assert_eq!(warned().await, all);

    for denied in [
        engine.check().await.map(drop),
        engine.cutoff(&app()).await.map(drop),
        engine.activity(&[1]).await.map(drop),
    ] {
        let denied = denied.unwrap_err();
        assert!(matches!(denied, EngineError::Denied { .. }), "{denied}");
        assert!(denied.to_string().contains("GRANT pg_monitor TO \"ctl\""), "{denied}");
    }
    client.batch_execute("GRANT pg_monitor TO ctl").await.unwrap();
    engine.check().await.unwrap();
    let cutoff = engine.cutoff(&app()).await.unwrap();
    let counts = engine.census(&cutoff, &ProxyView::default()).await.unwrap();
    assert!(matches!(counts, CensusOutcome::Clear(clear) if clear.counts().direct_idle == 1));

    let refused = engine.take_lock(&app(), SHORT).await.unwrap_err();
    let LockError::NotAllowed { table, others, hint } = refused else { panic!("{refused}") };
    assert_eq!((table.as_str(), others), ("public.t", 2));
    assert!(hint.contains("GRANT pg_write_all_data TO \"ctl\""), "{hint}");
    client.batch_execute("GRANT pg_write_all_data TO ctl").await.unwrap();
    let handle = engine.take_lock(&app(), SHORT).await.unwrap();
    assert_eq!((handle.tables(), handle.large_objects()), (3, false));
    assert_eq!(warned().await, [prepared]);
}

#[tokio::test]
async fn too_many_tables_are_told_apart() {
    let pg = Pg::start_with(&[
        "max_locks_per_transaction=10",
        "max_connections=10",
        "max_wal_senders=0",
    ])
    .await;
    let client = pg.client("app").await;
    for batch in 0..40 {
        let tables = (0..50).map(|i| format!("CREATE TABLE t{batch}_{i} (i int);"));
        for sql in tables {
            client.batch_execute(&sql).await.unwrap();
        }
    }
    let error = pg.engine().take_lock(&app(), LONG).await.unwrap_err();
    assert!(matches!(error, LockError::TooMany { tables: 2000, .. }), "{error}");
}
