//! The boundary: nothing after it in the log, and a control that shows what would be seen.

use fencewire::base::ids::{OperationId, Revision};
use fencewire::engine::{CensusOutcome, EngineError, EngineTime, ProxyView};
use tokio_postgres::Client;

use crate::cluster::{Pg, app};

/// Messages and row changes of transactions that decoding shows committed above a position. The
/// line of a commit carries its record's end; a change's own position would not do, since its
/// transaction may have begun below.
async fn decoded(client: &Client, above: &str) -> Vec<String> {
    let sql = "WITH seen AS MATERIALIZED (SELECT * FROM \
        pg_logical_slot_peek_changes('look', NULL, NULL)) \
        SELECT data FROM seen WHERE data ~ '^(table|message)' AND xid::text IN \
        (SELECT xid::text FROM seen WHERE data ~ '^COMMIT' AND lsn > $1::text::pg_lsn)";
    let rows = client.query(sql, &[&above]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn decoding_shows_no_change_after_the_boundary() {
    let pg = Pg::start().await;
    let engine = pg.engine();
    let client = pg.client("app").await;
    client.batch_execute("CREATE TABLE t (i int)").await.unwrap();
    let slot = "SELECT pg_create_logical_replication_slot('look', 'test_decoding')";
    client.execute(slot, &[]).await.unwrap();
    // Not waited for by its own session; the marker's commit must flush it.
    client.batch_execute("SET synchronous_commit = off; INSERT INTO t VALUES (1)").await.unwrap();

    let cutoff = engine.cutoff(&app()).await.unwrap();
    let (operation, revision) = (OperationId::fresh(), Revision(4));
    let boundary = engine.mark_boundary(&app(), operation, revision).await.unwrap();
    let outcome = engine.census(&cutoff, &ProxyView::default()).await.unwrap();
    let CensusOutcome::Clear(clear) = outcome else { panic!("{outcome:?}") };
    assert_eq!((boundary.engine_id(), boundary.timeline()), (clear.engine_id(), clear.timeline()));
    assert_eq!((boundary.operation(), boundary.revision()), (operation, revision));
    assert!(boundary.marker() <= boundary.lsn());
    assert!(boundary.at() > EngineTime(0));

    let all = decoded(&client, "0/0").await;
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[0].contains("INSERT") && all[1].contains(&operation.to_string()), "{all:?}");
    let at = boundary.lsn().to_string();
    assert_eq!(decoded(&client, &at).await, Vec::<String>::new());
    // The control: a change after the boundary is seen.
    client.batch_execute("SET synchronous_commit = on; INSERT INTO t VALUES (2)").await.unwrap();
    assert_eq!(decoded(&client, &at).await.len(), 1);
}

#[tokio::test]
async fn the_marker_is_written_where_sessions_default_to_read_only() {
    let pg = Pg::start().await;
    let engine = pg.engine();
    pg.client("app")
        .await
        .batch_execute(
            "ALTER DATABASE app SET default_transaction_read_only = on; \
             ALTER DATABASE app SET default_transaction_isolation = 'serializable'; \
             ALTER DATABASE app SET synchronous_commit = off; \
             ALTER DATABASE app SET search_path = nowhere",
        )
        .await
        .unwrap();
    engine.mark_boundary(&app(), OperationId::fresh(), Revision(1)).await.unwrap();
}

#[tokio::test]
async fn functions_of_the_database_never_stand_in_for_the_systems() {
    let pg = Pg::start().await;
    let engine = pg.engine();
    let client = pg.client("app").await;
    client
        .batch_execute(
            "CREATE FUNCTION pg_is_in_recovery() RETURNS bool LANGUAGE sql AS 'SELECT true'; \
             ALTER DATABASE app SET search_path = public, pg_catalog",
        )
        .await
        .unwrap();
    let fooled = pg.client("app").await.query_one("SELECT pg_is_in_recovery()", &[]).await;
    assert!(fooled.unwrap().get::<_, bool>(0), "the trap must work for others");
    assert!(!engine.identity("app").await.unwrap().in_recovery);
}

#[tokio::test]
async fn a_standby_gives_no_cutoff_and_no_boundary() {
    let mut pg = Pg::start().await;
    pg.down("INT");
    pg.place("standby.signal", "");
    pg.up().await;
    let engine = pg.engine();
    let identity = engine.identity("app").await.unwrap();
    assert!(identity.in_recovery && identity.timeline == 1);
    let error = engine.cutoff(&app()).await.unwrap_err();
    assert!(error.to_string().contains("standby"), "{error}");
    let error = engine.mark_boundary(&app(), OperationId::fresh(), Revision(1)).await.unwrap_err();
    assert!(matches!(error, EngineError::Unexpected { .. }), "{error}");
    // After promotion the timeline is the new one at once.
    pg.client("app").await.query_one("SELECT pg_promote()", &[]).await.unwrap();
    let promoted = engine.identity("app").await.unwrap();
    assert_eq!((promoted.in_recovery, promoted.timeline), (false, 2));
    assert!(identity.difference(&promoted).is_some());
}
