//! The census: what must be seen, and what must not block.

use std::collections::HashMap;
use std::process::Stdio;

use fencewire::base::ids::SessionId;
use fencewire::engine::{
    Blocker, CensusCounts, CensusOutcome, Cutoff, EngineError, Orphan, PgEngine, ProxySession,
    ProxyView, Terminated, Why,
};

use crate::cluster::{Pg, app, eventually, gone, pid, waits_for};

async fn ask(
    engine: &PgEngine,
    cutoff: &Cutoff,
    view: &ProxyView,
) -> Result<CensusCounts, Vec<Blocker>> {
    match engine.census(cutoff, view).await.unwrap() {
        CensusOutcome::Clear(clear) => {
            assert_eq!(clear.namespace(), cutoff.namespace());
            assert_eq!(clear.engine_id(), cutoff.identity().engine_id);
            assert!(clear.at() >= clear.cutoff_at());
            Ok(clear.counts())
        }
        CensusOutcome::Residue(blockers) => Err(blockers),
    }
}

fn whys(outcome: Result<CensusCounts, Vec<Blocker>>) -> Vec<Why> {
    outcome.map_or_else(|blockers| blockers.iter().map(|b| b.why).collect(), |_| Vec::new())
}

fn proxied(pid: i32, is_writer: bool) -> ProxyView {
    let session = ProxySession { session: SessionId(7), is_writer, in_program: !is_writer };
    ProxyView { sessions: HashMap::from([(pid, session)]), ..ProxyView::default() }
}

#[tokio::test]
async fn a_transaction_without_an_id_is_seen_and_waited_for() {
    let pg = Pg::start().await;
    let engine = pg.engine();
    let nothing = engine.cutoff(&app()).await.unwrap();
    assert_eq!(nothing.entries(), []);
    assert!(ask(&engine, &nothing, &ProxyView::default()).await.is_ok());

    let client = pg.client("app").await;
    let reader = pid(&client).await;
    client.batch_execute("BEGIN; SELECT 1").await.unwrap();
    let other_database = pg.client("postgres").await;
    other_database.batch_execute("BEGIN; SELECT 1").await.unwrap();

    let cutoff = engine.cutoff(&app()).await.unwrap();
    assert_eq!(cutoff.entries().iter().map(|e| e.pid).collect::<Vec<_>>(), [reader]);
    assert_eq!(cutoff.entries()[0].application_name, "an app");
    let blockers = ask(&engine, &cutoff, &ProxyView::default()).await.unwrap_err();
    assert_eq!(blockers.len(), 1);
    let blocker = &blockers[0];
    assert_eq!((blocker.pid, blocker.why), (Some(reader), Why::OpenAtCutoff));
    assert_eq!(blocker.state, "idle in transaction");
    assert!(blocker.statement.contains("SELECT 1") && blocker.age_ms.is_some());
    assert_eq!(whys(ask(&engine, &cutoff, &proxied(reader, true)).await), [Why::OpenAtCutoff]);
    let counts = ask(&engine, &cutoff, &proxied(reader, false)).await.unwrap();
    assert_eq!((counts.cutoff, counts.readers_exempt, counts.proxied), (1, 1, 1));

    client.batch_execute("COMMIT").await.unwrap();
    let counts = ask(&engine, &cutoff, &ProxyView::default()).await.unwrap();
    assert_eq!((counts.cutoff, counts.readers_exempt, counts.direct_idle), (1, 0, 1));
}

#[tokio::test]
async fn a_sleeping_insert_is_seen_though_it_has_no_id() {
    let pg = Pg::start().await;
    let engine = pg.engine();
    let client = pg.client("app").await;
    client.batch_execute("CREATE TABLE t (i int)").await.unwrap();
    let writer = pid(&client).await;
    let cancel = client.cancel_token();
    let insert = tokio::task::spawn(async move {
        client.batch_execute("INSERT INTO t SELECT 1 FROM pg_sleep(600)").await
    });
    let observer = pg.client("postgres").await;
    waits_for(&observer, writer, "PgSleep").await;
    let sql = "SELECT backend_xid IS NULL FROM pg_stat_activity WHERE pid = $1";
    assert!(observer.query_one(sql, &[&writer]).await.unwrap().get::<_, bool>(0));

    let cutoff = engine.cutoff(&app()).await.unwrap();
    assert_eq!(cutoff.entries().len(), 1);
    assert_eq!(whys(ask(&engine, &cutoff, &ProxyView::default()).await), [Why::OpenAtCutoff]);
    // A session that the proxy took for a reader is found out by its locks.
    assert_eq!(whys(ask(&engine, &cutoff, &proxied(writer, false)).await), [Why::Writing]);

    cancel.cancel_query(tokio_postgres::NoTls).await.unwrap();
    insert.await.unwrap().unwrap_err();
    gone(&observer, writer).await;
    assert!(ask(&engine, &cutoff, &ProxyView::default()).await.is_ok());
}

#[tokio::test]
async fn a_prepared_transaction_is_found_and_so_is_one_that_was_open_at_the_cutoff() {
    let pg = Pg::start().await;
    let engine = pg.engine();
    let client = pg.client("app").await;
    client.batch_execute("CREATE TABLE t (i int); BEGIN").await.unwrap();
    client.batch_execute("INSERT INTO t VALUES (1)").await.unwrap();
    let cutoff = engine.cutoff(&app()).await.unwrap();
    client.batch_execute("PREPARE TRANSACTION 'left over'").await.unwrap();
    let blockers = ask(&engine, &cutoff, &ProxyView::default()).await.unwrap_err();
    assert_eq!(blockers.iter().map(|b| b.why).collect::<Vec<_>>(), [Why::Prepared]);
    assert_eq!(blockers[0].object.as_deref(), Some("left over"));
    assert_eq!((blockers[0].pid, blockers[0].user.as_str()), (None, "postgres"));
    client.batch_execute("ROLLBACK PREPARED 'left over'").await.unwrap();
    assert!(ask(&engine, &cutoff, &ProxyView::default()).await.is_ok());
}

#[tokio::test]
async fn sessions_around_the_proxy_block_in_a_transaction_and_count_when_idle() {
    let pg = Pg::start().await;
    let engine = pg.engine();
    let client = pg.client("app").await;
    client.batch_execute("CREATE TABLE t (i int)").await.unwrap();
    let cutoff = engine.cutoff(&app()).await.unwrap();
    let lax = ProxyView::default();
    let sole = ProxyView { sole_path_required: true, ..ProxyView::default() };

    assert_eq!(ask(&engine, &cutoff, &lax).await.unwrap().direct_idle, 1);
    assert_eq!(whys(ask(&engine, &cutoff, &sole).await), [Why::DirectIdle]);
    client.batch_execute("BEGIN; SELECT 1").await.unwrap();
    assert_eq!(whys(ask(&engine, &cutoff, &lax).await), [Why::DirectInTransaction]);
    client.batch_execute("INSERT INTO t VALUES (1)").await.unwrap();
    assert_eq!(whys(ask(&engine, &cutoff, &lax).await), [Why::Writing]);
    client.batch_execute("COMMIT").await.unwrap();
    assert!(ask(&engine, &cutoff, &lax).await.is_ok());
}

#[tokio::test]
async fn an_orphan_blocks_until_it_is_gone_and_termination_spares_a_reused_pid() {
    let pg = Pg::start().await;
    let engine = pg.engine();
    let client = pg.client("app").await;
    let lost = pid(&client).await;
    let orphan = Orphan { pid: lost, session: SessionId(3), backend_start: None };
    let view = ProxyView { orphans: vec![orphan], ..ProxyView::default() };
    let cutoff = engine.cutoff(&app()).await.unwrap();
    let blockers = ask(&engine, &cutoff, &view).await.unwrap_err();
    assert_eq!((blockers[0].why, blockers[0].session), (Why::Orphan, Some(SessionId(3))));

    let seen = engine.activity(&[lost, 1]).await.unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].database.as_str(), seen[0].application_name.as_str()), ("app", "an app"));
    let mut wrong = seen[0].backend;
    wrong.backend_start.0 -= 1;
    assert_eq!(engine.terminate(wrong).await.unwrap(), Terminated::Gone);
    assert_eq!(pid(&client).await, lost, "a backend with another start time must live");
    assert_eq!(engine.terminate(seen[0].backend).await.unwrap(), Terminated::Signalled);
    gone(&pg.client("postgres").await, lost).await;
    assert_eq!(ask(&engine, &cutoff, &view).await.unwrap().orphans_gone, 1);
    assert_eq!(engine.terminate(seen[0].backend).await.unwrap(), Terminated::Gone);
}

#[tokio::test]
async fn a_restart_or_a_new_database_of_the_same_name_voids_the_cutoff() {
    let mut pg = Pg::start().await;
    let engine = pg.engine();
    let cutoff = engine.cutoff(&app()).await.unwrap();
    assert!(ask(&engine, &cutoff, &ProxyView::default()).await.is_ok());
    pg.down("INT");
    // Down: whichever error first, never an answer; and it says what to do.
    let down = engine.census(&cutoff, &ProxyView::default()).await.unwrap_err();
    assert!(matches!(down, EngineError::Unreachable { .. }), "{down}");
    pg.up().await;
    let changed = engine.census(&cutoff, &ProxyView::default()).await.unwrap_err();
    assert!(matches!(changed, EngineError::Changed { .. }), "{changed}");
    assert!(changed.to_string().contains("restarted"), "{changed}");

    let cutoff = engine.cutoff(&app()).await.unwrap();
    let anew = "DROP DATABASE app WITH (FORCE)";
    let client = pg.client("postgres").await;
    client.batch_execute(anew).await.unwrap();
    client.batch_execute("CREATE DATABASE app").await.unwrap();
    let mut last = None;
    eventually("the new connection tells", async || {
        let error = engine.census(&cutoff, &ProxyView::default()).await.unwrap_err();
        let changed = matches!(error, EngineError::Changed { .. });
        last = Some(error);
        changed
    })
    .await;
    assert!(last.unwrap().to_string().contains("made anew"));
}

#[tokio::test]
async fn a_real_autovacuum_does_not_block() {
    let pg = Pg::start_with(&[
        "autovacuum=on",
        "autovacuum_naptime=1s",
        "autovacuum_vacuum_cost_delay=100ms",
        "autovacuum_vacuum_cost_limit=1",
    ])
    .await;
    let engine = pg.engine();
    let client = pg.client("app").await;
    client
        .batch_execute(
            "CREATE TABLE t (i int) WITH (autovacuum_vacuum_threshold = 1, fillfactor = 10); \
             INSERT INTO t SELECT generate_series(1, 20000)",
        )
        .await
        .unwrap();
    client.batch_execute("UPDATE t SET i = i + 1").await.unwrap();
    eventually("autovacuum works here", async || {
        let sql = "SELECT EXISTS (SELECT FROM pg_stat_activity a JOIN pg_locks l USING (pid) \
            WHERE backend_type = 'autovacuum worker' AND datname = 'app' \
            AND l.relation = 't'::regclass)";
        client.query_one(sql, &[]).await.unwrap().get(0)
    })
    .await;
    let cutoff = engine.cutoff(&app()).await.unwrap();
    assert_eq!(cutoff.entries(), []);
    let counts = ask(&engine, &cutoff, &ProxyView::default()).await.unwrap();
    assert_eq!(counts.maintenance, 1);
    // The control: the same work by a client is a writer.
    let worker = pg.client("app").await;
    let by_hand = pid(&worker).await;
    worker.batch_execute("CREATE TABLE u AS SELECT generate_series(1, 20000) i").await.unwrap();
    worker.batch_execute("DELETE FROM u").await.unwrap();
    worker
        .batch_execute("SET vacuum_cost_delay = '100ms'; SET vacuum_cost_limit = 1")
        .await
        .unwrap();
    let _vacuum = tokio::task::spawn(async move { worker.batch_execute("VACUUM u").await });
    waits_for(&client, by_hand, "VacuumDelay").await;
    let blockers = ask(&engine, &cutoff, &ProxyView::default()).await.unwrap_err();
    assert_eq!((blockers[0].pid, blockers[0].why), (Some(by_hand), Why::Writing));
}

#[tokio::test]
async fn a_stream_is_counted_and_the_operations_own_is_exempt() {
    let pg = Pg::start().await;
    let engine = pg.engine();
    let client = pg.client("app").await;
    let slot = "SELECT pg_create_logical_replication_slot('move', 'test_decoding')";
    client.execute(slot, &[]).await.unwrap();
    let mut stream = pg
        .program("pg_recvlogical")
        .args(["--dbname=app", "--slot=move", "--start", "--file=-"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the stream runs", async || {
        let sql = "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming')";
        client.query_one(sql, &[]).await.unwrap().get(0)
    })
    .await;
    let cutoff = engine.cutoff(&app()).await.unwrap();
    let view = ProxyView::default();
    assert_eq!(ask(&engine, &cutoff, &view).await.unwrap().streams, 1);
    let ours = ProxyView { operation_slots: vec!["move".to_owned()], ..ProxyView::default() };
    let counts = ask(&engine, &cutoff, &ours).await.unwrap();
    assert_eq!((counts.streams, counts.operation), (0, 1));
    stream.kill().unwrap();
    stream.wait().unwrap();
}
