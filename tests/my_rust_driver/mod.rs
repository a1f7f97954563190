//! mysql_async at its usual work, and around a write fence.
//!
//! Who uses it: `tests/drivers_mysql.rs`, which gives a target and says when the fence is up.

#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Once;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use mysql_async::prelude::{Query, Queryable, WithParams};
use mysql_async::{
    Conn, Error, Opts, OptsBuilder, Pool, PoolConstraints, PoolOpts, Row, SslOpts, Statement,
    TxOpts, params,
};

use crate::support::MyFlavour;
use crate::support::certs::ca;
use crate::support::my_tools::MyTarget;

/// Where to, and with which encryption.
#[derive(Clone)]
pub struct Place {
    options: Opts,
    flavour: MyFlavour,
}

impl Place {
    pub fn new(target: &MyTarget<'_>, db: &str) -> Self {
        static PROVIDER: Once = Once::new();
        PROVIDER.call_once(|| {
            // Another user of the process may have done it before.
            let _before = rustls::crypto::ring::default_provider().install_default();
        });
        let mut options = OptsBuilder::default()
            .ip_or_hostname("127.0.0.1")
            .tcp_port(target.port)
            .user(Some("app"))
            .pass(Some("app"))
            .db_name(Some(db))
            // Else it looks for a unix socket on the same machine.
            .prefer_socket(false)
            .local_infile_handler(Some(Rows));
        if target.client_tls {
            let roots = vec![ca().to_path_buf().into()];
            options = options.ssl_opts(SslOpts::default().with_root_certs(roots));
        }
        Self { options: options.into(), flavour: target.cluster.flavour() }
    }

    pub async fn connect(&self) -> Conn {
        Conn::new(self.options.clone()).await.unwrap()
    }

    /// A pool of at most two connections, each reset when it comes back.
    fn pool(&self) -> Pool {
        let bounds = PoolConstraints::new(0, 2).unwrap();
        let options = PoolOpts::default().with_constraints(bounds).with_reset_connection(true);
        Pool::new(OptsBuilder::from_opts(self.options.clone()).pool_opts(options))
    }
}

/// Answers every request for a file with 2000 rows.
struct Rows;

impl mysql_async::prelude::GlobalHandler for Rows {
    fn handle(
        &self,
        _name: &[u8],
    ) -> futures_util::future::BoxFuture<
        'static,
        Result<mysql_async::InfileData, mysql_async::LocalInfileError>,
    > {
        let lines: String = (1000..3000).map(|n| format!("{n}\tline {n}\n")).collect();
        async move { Ok(futures_util::stream::iter([Ok(lines.into())]).boxed()) }.boxed()
    }
}

async fn int(conn: &mut Conn, sql: &str) -> i64 {
    conn.query_first(sql).await.unwrap().unwrap()
}

/// The number and SQLSTATE of a server's error.
#[track_caller]
fn state<T>(failed: Result<T, Error>) -> Result<(u16, String), String> {
    match failed {
        Ok(_) => Err("no error came".to_owned()),
        Err(Error::Server(error)) => Ok((error.code, error.state)),
        Err(other) => panic!("not a server's error: {other}"),
    }
}

#[track_caller]
fn number<T>(failed: Result<T, Error>) -> u16 {
    state(failed).unwrap().0
}

/// Everything that the driver does, in an empty database.
pub async fn work(place: &Place) {
    let mut conn = place.connect().await;
    values(&mut conn).await;
    transactions(&mut conn).await;
    several(&mut conn).await;
    loads(&mut conn).await;
    sessions(place, &mut conn).await;
    pooled(place).await;
    cancelled(place, &mut conn).await;
    conn.disconnect().await.unwrap();
}

async fn values(conn: &mut Conn) {
    let create = "CREATE TABLE v (n int PRIMARY KEY, t longtext, b longblob, f double) \
                  DEFAULT CHARSET utf8mb4";
    conn.query_drop(create).await.unwrap();
    let insert = conn.prep("INSERT INTO v VALUES (?, ?, ?, ?)").await.unwrap();
    let (text, bytes) = ("it's \u{1f42c}", vec![0_u8, 255, 39]);
    for n in 1..50 {
        conn.exec_drop(&insert, (n, text, &bytes, f64::from(n))).await.unwrap();
        assert_eq!(conn.affected_rows(), 1);
    }
    let named = "SELECT * FROM v WHERE n = :n";
    let row: (i32, String, Vec<u8>, f64) =
        conn.exec_first(named, params! { "n" => 7 }).await.unwrap().unwrap();
    assert_eq!((row.0, row.1.as_str(), &row.2), (7, text, &bytes));
    assert!((row.3 - 7.0).abs() < f64::EPSILON);
    let rows = (50..500).map(|n| (n, None::<String>, None::<Vec<u8>>, 0.5));
    conn.exec_batch(&insert, rows).await.unwrap();
    assert_eq!(int(conn, "SELECT COUNT(*) FROM v WHERE t IS NULL").await, 450);
    let wide = "w".repeat(1_000_000);
    conn.exec_drop(&insert, (0, &wide, None::<Vec<u8>>, 0.0)).await.unwrap();
    let got: String = conn.query_first("SELECT t FROM v WHERE n = 0").await.unwrap().unwrap();
    assert!(got == wide);
    conn.close(insert).await.unwrap();
    assert_eq!(number(conn.prep("SELECT * FROM no_such").await), 1146);
    assert_eq!(number(conn.query_drop("SELECT 1 +").await), 1064);
}

async fn transactions(conn: &mut Conn) {
    let insert = "INSERT INTO v (n) VALUES (?)";
    let mut undone = conn.start_transaction(TxOpts::default()).await.unwrap();
    undone.exec_drop(insert, (-1,)).await.unwrap();
    undone.rollback().await.unwrap();
    // One that is dropped is rolled back before the connection's next statement.
    let mut dropped = conn.start_transaction(TxOpts::default()).await.unwrap();
    dropped.exec_drop(insert, (-1,)).await.unwrap();
    drop(dropped);
    let mut kept = conn.start_transaction(TxOpts::default()).await.unwrap();
    kept.exec_drop(insert, (-2,)).await.unwrap();
    let twice = kept.exec_drop(insert, (-2,)).await;
    assert_eq!(state(twice), Ok((1062, "23000".to_owned())));
    kept.commit().await.unwrap();
    assert_eq!(int(conn, "SELECT MIN(n) FROM v").await, -2);
    let mut options = TxOpts::default();
    options.with_readonly(Some(true)).with_consistent_snapshot(true);
    let mut reading = conn.start_transaction(options).await.unwrap();
    assert_eq!(number(reading.query_drop("DELETE FROM v").await), 1792);
    reading.rollback().await.unwrap();
}

/// Several results of one command.
async fn several(conn: &mut Conn) {
    let sql = "SELECT 1; UPDATE v SET f = 2 WHERE n = 1; SELECT 'three', 3";
    let mut results = conn.query_iter(sql).await.unwrap();
    assert_eq!(results.collect::<i64>().await.unwrap(), [1]);
    assert!(results.collect::<i64>().await.unwrap().is_empty());
    let third: Vec<(String, i64)> = results.collect().await.unwrap();
    assert_eq!(third, [("three".to_owned(), 3)]);
    drop(results);
    let create = "CREATE PROCEDURE twice(IN n int) BEGIN SELECT n; SELECT 'second', n * 2; END";
    conn.query_drop(create).await.unwrap();
    let mut results = "CALL twice(?)".with((21,)).run(&mut *conn).await.unwrap();
    assert_eq!(results.collect::<i64>().await.unwrap(), [21]);
    assert_eq!(results.collect::<(String, i64)>().await.unwrap(), [("second".to_owned(), 42)]);
    results.drop_result().await.unwrap();
    // Rows that nobody reads are read away.
    let rows = conn.query_iter("SELECT a.n FROM v a, v b LIMIT 20000").await.unwrap();
    drop(rows);
    assert_eq!(int(conn, "SELECT 5").await, 5);
}

async fn loads(conn: &mut Conn) {
    let load = "LOAD DATA LOCAL INFILE 'rows' INTO TABLE v (n, t)";
    conn.query_drop(load).await.unwrap();
    assert_eq!(conn.affected_rows(), 2000);
}

async fn sessions(place: &Place, conn: &mut Conn) {
    conn.ping().await.unwrap();
    conn.query_drop("SET @mine = 7").await.unwrap();
    assert!(conn.reset().await.unwrap());
    let mine: Option<Row> = conn.query_first("SELECT @mine").await.unwrap();
    assert_eq!(mine.unwrap().get::<Option<i64>, _>(0), Some(None));
    conn.query_drop("USE information_schema").await.unwrap();
    let db = place.options.db_name().map(str::to_owned);
    let back = mysql_async::ChangeUserOpts::new().with_db_name(db.clone());
    let back = back.with_user(Some("app".to_owned())).with_pass(Some("app".to_owned()));
    conn.change_user(back).await.unwrap();
    assert_eq!(conn.query_first::<String, _>("SELECT DATABASE()").await.unwrap(), db);
}

async fn pooled(place: &Place) {
    let pool = place.pool();
    let ask = |n: i64| {
        let pool = pool.clone();
        async move {
            let mut conn = pool.get_conn().await.unwrap();
            let found: Option<Option<i64>> = conn.query_first("SELECT @mine").await.unwrap();
            assert_eq!(found, Some(None), "a pooled session was not reset");
            conn.exec_drop("SET @mine = ?", (n,)).await.unwrap();
            int(&mut conn, &format!("SELECT {n}")).await
        }
    };
    let got = futures_util::future::join_all((0..20).map(ask)).await;
    assert_eq!(got, (0..20).collect::<Vec<i64>>());
    pool.disconnect().await.unwrap();
}

async fn cancelled(place: &Place, conn: &mut Conn) {
    let id = conn.id();
    let mut other = place.connect().await;
    let asleep = format!(
        "SELECT COUNT(*) FROM information_schema.processlist \
         WHERE id = {id} AND state = 'User sleep'"
    );
    let cancel = async {
        tokio::time::timeout(Duration::from_secs(60), async {
            loop {
                // MySQL fails (3854) while anybody on the server runs a statement whose bytes its
                // list can't show: then nothing is known yet.
                match other.query_first::<i64, _>(&asleep).await {
                    Ok(Some(1)) => break,
                    Err(Error::Server(error)) => assert_eq!(error.code, 3854, "{error}"),
                    Ok(_) => {}
                    Err(error) => panic!("{error}"),
                }
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
        other.query_drop(format!("KILL QUERY {id}")).await.unwrap();
    };
    let sleep = "SELECT COUNT(*) FROM v WHERE n = 1 AND SLEEP(600) = 0";
    let (slept, ()) = tokio::join!(conn.query_drop(sleep), cancel);
    assert_eq!(number(slept), 1317);
    assert_eq!(int(conn, "SELECT CONNECTION_ID()").await, i64::from(id));
    other.disconnect().await.unwrap();
}

/// 1205, as long as there is no fence.
async fn lock_wait(place: &Place, conn: &mut Conn) {
    let mut other = place.connect().await;
    let mut block = other.start_transaction(TxOpts::default()).await.unwrap();
    block.query_drop("SELECT n FROM w FOR UPDATE").await.unwrap();
    conn.query_drop("SET SESSION innodb_lock_wait_timeout = 1").await.unwrap();
    assert_eq!(number(conn.query_drop("UPDATE w SET n = 2").await), 1205);
    block.rollback().await.unwrap();
    other.disconnect().await.unwrap();
}

/// A client from before a fence.
pub struct Fenced {
    place: Place,
    conn: Conn,
    id: u32,
    insert: Statement,
}

impl Fenced {
    pub async fn prepare(place: Place) -> Self {
        let mut conn = place.connect().await;
        conn.query_drop("CREATE TABLE w (n int)").await.unwrap();
        conn.query_drop("INSERT INTO w VALUES (1)").await.unwrap();
        lock_wait(&place, &mut conn).await;
        conn.query_drop("CREATE TABLE f (n int)").await.unwrap();
        let insert = conn.prep("INSERT INTO f VALUES (?)").await.unwrap();
        conn.exec_drop(&insert, (1,)).await.unwrap();
        let id = conn.id();
        Self { place, conn, id, insert }
    }

    /// Under a fence everything else that fails does so under its own number.
    pub async fn other_errors(&mut self) {
        let options = || OptsBuilder::from_opts(self.place.options.clone());
        let wrong = Conn::new(options().pass(Some("wrong"))).await;
        assert_eq!(number(wrong), 1045);
        let missing = number(Conn::new(options().db_name(Some("no_such_database"))).await);
        assert!([1044, 1049].contains(&missing), "{missing}");
        let mut killed = self.place.connect().await;
        self.conn.query_drop(format!("KILL {}", killed.id())).await.unwrap();
        match killed.query_drop("SELECT 1").await {
            Err(Error::Io(_) | Error::Driver(_)) => {}
            other => panic!("not the end of the connection: {other:?}"),
        }
    }

    /// Tries writes, each of which must be refused; returns how many.
    ///
    /// # Errors
    /// One was not refused.
    pub async fn try_writes(&mut self) -> Result<u64, String> {
        let refused = |failed: Result<(), Error>| -> Result<(), String> {
            let (code, state) = state(failed)?;
            assert_eq!((code, state.as_str()), (9701, "ZF001"));
            Ok(())
        };
        let conn = &mut self.conn;
        refused(conn.query_drop("INSERT INTO f VALUES (2)").await)?;
        refused(conn.exec_drop("INSERT INTO f VALUES (?)", (3,)).await)?;
        refused(conn.exec_drop(&self.insert, (4,)).await)?;
        let mut block = conn.start_transaction(TxOpts::default()).await.unwrap();
        let count = "SELECT COUNT(*) FROM f";
        assert_eq!(block.query_first::<i64, _>(count).await.unwrap(), Some(1));
        refused(block.query_drop("DELETE FROM f").await)?;
        assert_eq!(block.query_first::<i64, _>(count).await.unwrap(), Some(1));
        block.rollback().await.unwrap();
        let mut fresh = self.place.connect().await;
        for reader in [conn, &mut fresh] {
            assert_eq!(int(reader, count).await, 1);
        }
        Ok(4)
    }

    /// Writes again, on the same connection.
    pub async fn write(&mut self) {
        let conn = &mut self.conn;
        conn.exec_drop(&self.insert, (5,)).await.unwrap();
        let mut block = conn.start_transaction(TxOpts::default()).await.unwrap();
        block.exec_drop("UPDATE f SET n = n + ?", (1,)).await.unwrap();
        block.commit().await.unwrap();
        assert_eq!(int(conn, "SELECT CAST(SUM(n) AS SIGNED) FROM f").await, 8);
        assert_eq!(int(conn, "SELECT CONNECTION_ID()").await, i64::from(self.id));
    }
}
