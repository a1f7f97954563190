//! tokio-postgres at its usual work, and around a write fence.
//!
//! Who uses it: `tests/drivers_pg.rs`, which gives a target and says when the fence is up.

#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod tls;

use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use futures_util::{SinkExt, TryStreamExt};
use tokio::sync::mpsc::{Receiver, channel};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, Error, IsolationLevel};

use crate::acceptance::PATIENCE;
use crate::support::tools::Target;
pub use tls::Tls;

/// Where to, and with which encryption.
#[derive(Clone)]
pub struct Place {
    config: Config,
    tls: Tls,
}

impl Place {
    pub fn new(target: &Target<'_>, db: &str, ca: &Path) -> Self {
        let mut config = Config::new();
        let mode = if target.client_tls { SslMode::Require } else { SslMode::Disable };
        config.host("127.0.0.1").port(target.port).dbname(db).user("app").password("app");
        config.ssl_mode(mode).connect_timeout(Duration::from_secs(30));
        Self { config, tls: Tls::trusting(ca) }
    }

    /// A client, and the notifications that come to it.
    pub async fn connect(&self) -> (Client, Receiver<String>) {
        let (client, mut connection) = self.config.connect(self.tls.clone()).await.unwrap();
        let (sender, notes) = channel(100);
        tokio::spawn(async move {
            while let Some(message) =
                std::future::poll_fn(|context| connection.poll_message(context)).await
            {
                match message {
                    Ok(AsyncMessage::Notification(note)) => {
                        sender.try_send(note.payload().to_owned()).unwrap();
                    }
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
        });
        (client, notes)
    }
}

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

async fn int(client: &Client, sql: &str, parameters: Parameters<'_>) -> i32 {
    client.query_one(sql, parameters).await.unwrap().get(0)
}

#[track_caller]
fn state(failed: Result<impl Sized, Error>) -> SqlState {
    let error = failed.err().expect("no error came");
    error.code().unwrap_or_else(|| panic!("not an engine's error: {error}")).clone()
}

/// Everything that the driver does, in an empty database.
pub async fn work(place: &Place) {
    let (mut client, mut notes) = place.connect().await;
    values(&client).await;
    transactions(&mut client).await;
    pipelined(&client).await;
    copies(&mut client).await;
    client.batch_execute("LISTEN news").await.unwrap();
    let (other, _) = place.connect().await;
    other.execute("SELECT pg_notify('news', $1)", &[&"hello"]).await.unwrap();
    let note = tokio::time::timeout(PATIENCE, notes.recv()).await.unwrap();
    assert_eq!(note.as_deref(), Some("hello"));
    cancelled(place, &client, &other).await;
}

async fn values(client: &Client) {
    let create = "CREATE TABLE v (n int PRIMARY KEY, t text, b bytea, a int[], f float8)";
    client.batch_execute(create).await.unwrap();
    let insert = client.prepare("INSERT INTO v VALUES ($1, $2, $3, $4, $5)").await.unwrap();
    let (text, bytes) = ("it's \u{1f418}", vec![0_u8, 255, 39]);
    let array = vec![Some(1_i32), None];
    for n in 1..50_i32 {
        let row: Parameters<'_> = &[&n, &text, &bytes, &array, &f64::from(n)];
        assert_eq!(client.execute(&insert, row).await.unwrap(), 1);
    }
    let row = client.query_one("SELECT * FROM v WHERE n = $1", &[&7_i32]).await.unwrap();
    assert_eq!(row.get::<_, &str>(1), text);
    assert_eq!(row.get::<_, Vec<u8>>(2), bytes);
    assert_eq!(row.get::<_, Vec<Option<i32>>>(3), array);
    assert!((row.get::<_, f64>(4) - 7.0).abs() < f64::EPSILON);
    let wide = "w".repeat(1_000_000);
    client.execute("INSERT INTO v (n, t) VALUES (0, $1)", &[&wide]).await.unwrap();
    let got = client.query_one("SELECT t FROM v WHERE n = 0", &[]).await.unwrap();
    assert!(got.get::<_, &str>(0) == wide);
    // A type of one's own makes the driver ask the catalog in the middle of a prepare.
    client.batch_execute("CREATE TYPE mood AS ENUM ('calm', 'fine')").await.unwrap();
    let mood = client.prepare("SELECT $1::mood").await.unwrap();
    assert_eq!(mood.params()[0].name(), "mood");
}

async fn transactions(client: &mut Client) {
    let insert = "INSERT INTO v (n) VALUES ($1)";
    let undone = client.transaction().await.unwrap();
    undone.execute(insert, &[&-1_i32]).await.unwrap();
    undone.rollback().await.unwrap();
    // One that is dropped sends its rollback by itself.
    let dropped = client.transaction().await.unwrap();
    dropped.execute(insert, &[&-1_i32]).await.unwrap();
    drop(dropped);
    let builder = client.build_transaction().isolation_level(IsolationLevel::Serializable);
    let mut kept = builder.start().await.unwrap();
    kept.execute(insert, &[&-2_i32]).await.unwrap();
    let savepoint = kept.savepoint("deeper").await.unwrap();
    assert_eq!(state(savepoint.execute(insert, &[&-2_i32]).await), SqlState::UNIQUE_VIOLATION);
    savepoint.rollback().await.unwrap();
    let portal = kept.bind("SELECT generate_series(1, 500)", &[]).await.unwrap();
    assert_eq!(kept.query_portal(&portal, 50).await.unwrap().len(), 50);
    assert_eq!(kept.query_portal(&portal, 0).await.unwrap().len(), 450);
    kept.commit().await.unwrap();
    assert_eq!(int(client, "SELECT min(n) FROM v WHERE n < $1", &[&0_i32]).await, -2);
    let broken = client.query("SELECT 1 / $1::int", &[&0_i32]).await;
    assert_eq!(state(broken), SqlState::DIVISION_BY_ZERO);
    assert_eq!(state(client.prepare("SELECT * FROM no_such").await), SqlState::UNDEFINED_TABLE);
    assert_eq!(int(client, "SELECT 1", &[]).await, 1);
}

/// Several in flight at once: the driver sends without waiting for answers.
async fn pipelined(client: &Client) {
    let twice = client.prepare("SELECT $1::int * 2").await.unwrap();
    let fails = client.prepare("SELECT 1 / $1::int").await.unwrap();
    for n in 0..50_i32 {
        let (two, four) = (n * 2, n * 4);
        let (a, b, c): (Parameters<'_>, Parameters<'_>, Parameters<'_>) = (&[&n], &[&0], &[&two]);
        let (a, b, c) = tokio::join!(
            client.query_one(&twice, a),
            client.query_one(&fails, b),
            client.query_one(&twice, c),
        );
        assert_eq!((a.unwrap().get::<_, i32>(0), c.unwrap().get::<_, i32>(0)), (two, four));
        assert_eq!(state(b), SqlState::DIVISION_BY_ZERO);
    }
}

async fn copies(client: &mut Client) {
    let lines: String = (1000..3000).map(|n| format!("{n}\tline {n}\n")).collect();
    let copy = "COPY v (n, t) FROM STDIN";
    for _ in 0..2 {
        let mut sink = pin!(client.copy_in::<_, bytes::Bytes>(copy).await.unwrap());
        sink.send(lines.clone().into()).await.unwrap();
        assert_eq!(sink.finish().await.unwrap(), 2000);
        client.execute("DELETE FROM v WHERE n >= 1500", &[]).await.unwrap();
        let out = "COPY (SELECT n, t FROM v WHERE n >= 1000 ORDER BY n) TO STDOUT";
        let out = client.copy_out(out).await.unwrap();
        let chunks: Vec<bytes::Bytes> = out.try_collect().await.unwrap();
        assert!(lines.as_bytes().starts_with(&chunks.concat()), "a COPY came back changed");
        client.execute("DELETE FROM v WHERE n >= 1000", &[]).await.unwrap();
    }
    let mut sink = pin!(client.copy_in::<_, bytes::Bytes>(copy).await.unwrap());
    sink.send("not a number\tx\n".into()).await.unwrap();
    assert_eq!(state(sink.finish().await), SqlState::INVALID_TEXT_REPRESENTATION);
    // One that is given up: the driver sends CopyFail by itself.
    let given_up = client.copy_in::<_, bytes::Bytes>(copy).await.unwrap();
    drop(given_up);
    assert_eq!(int(client, "SELECT 1", &[]).await, 1);
}

async fn cancelled(place: &Place, client: &Client, other: &Client) {
    let pid = int(client, "SELECT pg_backend_pid()", &[]).await;
    let cancel = async {
        let asleep = "SELECT count(*)::int FROM pg_stat_activity
                      WHERE pid = $1 AND wait_event = 'PgSleep'";
        tokio::time::timeout(PATIENCE, async {
            while int(other, asleep, &[&pid]).await == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
        client.cancel_token().cancel_query(place.tls.clone()).await.unwrap();
    };
    let (slept, ()) = tokio::join!(client.query("SELECT pg_sleep(600)", &[]), cancel);
    assert_eq!(state(slept), SqlState::QUERY_CANCELED);
    assert_eq!(int(client, "SELECT 1", &[]).await, 1);
}

/// A client from before a fence.
pub struct Fenced {
    place: Place,
    client: Client,
    pid: i32,
    insert: tokio_postgres::Statement,
}

impl Fenced {
    pub async fn prepare(place: Place) -> Self {
        let (client, _) = place.connect().await;
        client.batch_execute("CREATE TABLE f (n int)").await.unwrap();
        let insert = client.prepare("INSERT INTO f VALUES ($1)").await.unwrap();
        client.execute(&insert, &[&1_i32]).await.unwrap();
        let pid = int(&client, "SELECT pg_backend_pid()", &[]).await;
        Self { place, client, pid, insert }
    }

    /// Tries writes, each of which must be refused; returns how many.
    pub async fn try_writes(&mut self) -> u64 {
        let read = "SELECT count(*)::int FROM f WHERE n > $1";
        let client = &mut self.client;
        let refused = |failed: SqlState| assert_eq!(failed.code(), "ZF001");
        refused(state(client.batch_execute("INSERT INTO f VALUES (2)").await));
        refused(state(client.execute("INSERT INTO f VALUES ($1)", &[&3_i32]).await));
        refused(state(client.execute(&self.insert, &[&4_i32]).await));
        let block = client.transaction().await.unwrap();
        assert_eq!(block.query_one(read, &[&0_i32]).await.unwrap().get::<_, i32>(0), 1);
        refused(state(block.execute("DELETE FROM f", &[]).await));
        block.rollback().await.unwrap();
        let (fresh, _) = self.place.connect().await;
        // On a connection that isn't used again: after a COPY that an engine refused this driver
        // (0.7) takes the next answer for an unexpected one, without a proxy too.
        let (copier, _) = self.place.connect().await;
        refused(state(copier.copy_in::<_, bytes::Bytes>("COPY f FROM STDIN").await));
        for reader in [client, &fresh] {
            assert_eq!(int(reader, read, &[&0_i32]).await, 1);
        }
        5
    }

    /// Writes again, on the same connection.
    pub async fn write(&mut self) {
        self.client.execute(&self.insert, &[&5_i32]).await.unwrap();
        let block = self.client.transaction().await.unwrap();
        block.execute("UPDATE f SET n = n + $1", &[&1_i32]).await.unwrap();
        block.commit().await.unwrap();
        assert_eq!(int(&self.client, "SELECT sum(n)::int FROM f", &[]).await, 8);
        assert_eq!(int(&self.client, "SELECT pg_backend_pid()", &[]).await, self.pid);
    }
}
