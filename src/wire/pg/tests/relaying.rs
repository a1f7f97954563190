//! The relay itself, between two sockets: what the pure tests of both directions can't show.

use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use super::*;
use crate::tls::Stream;
use crate::wire::pg::relay::Relay;
use crate::wire::shared::desk;

/// A relay that runs, with what came behind the login; and the sockets of client and engine.
fn relayed(from_client: &[u8], from_engine: &[u8]) -> (UnixStream, UnixStream) {
    desk::set_up(Arc::default(), Arc::default(), Instant::now());
    let (client, its) = UnixStream::pair().unwrap();
    let (engine, theirs) = UnixStream::pair().unwrap();
    let relay = Box::new(Relay::new(
        (Stream::Unix(its), BytesMut::from(from_client)),
        (Stream::Unix(theirs), BytesMut::from(from_engine)),
        Stage::new(usize::MAX).conversation,
        Arc::default(),
        Box::new(|| oneshot::channel().1),
    ));
    drop(crate::telemetry::spawn::spawn_session(relay.run()));
    (client, engine)
}

async fn read(from: &mut UnixStream, expected: &[u8]) {
    let mut bytes = vec![0; expected.len()];
    from.read_exact(&mut bytes).await.unwrap();
    assert_eq!(bytes, expected);
}

/// A client may send its first query with its password, and an engine say what ends the session
/// with its last word on the login.
#[tokio::test]
async fn what_came_behind_the_login_waits_for_nothing() {
    let asked = query("SELECT 1");
    let notice = message(b'N', b"SWARNING\0Mbye\0\0");
    let (mut client, mut engine) = relayed(&asked, &notice);
    read(&mut engine, &asked).await;
    read(&mut client, &notice).await;
    let answer = [done("SELECT 1"), ready(b'I')].concat();
    engine.write_all(&answer).await.unwrap();
    read(&mut client, &answer).await;
    // The engine has closed already when the relay begins.
    let (mut client, engine) = relayed(b"", &error("57P01", "shut down"));
    drop(engine);
    read(&mut client, &error("57P01", "shut down")).await;
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0, "and then the end");
}

/// W22. However the bytes come: rows at once are what rows one by one are, and what is among them
/// is no row.
#[test]
fn w22_rows_pass_as_they_come() {
    let rows = |tag: u8| -> Vec<u8> {
        let long = vec![b'Z'; 300];
        [&b""[..], b"\0\0", b"\0\x01\0\0\0\x01Z", &long].map(|body| message(tag, body)).concat()
    };
    let notice = message(b'N', b"SNOTICE\0Mamong them\0\0");
    let answers = [
        [message(b'T', b"\0\x01"), rows(b'D'), notice, rows(b'D'), done("SELECT 8")].concat(),
        [message(b'H', b"\0\0\0"), rows(b'd'), message(b'c', b""), done("COPY 4")].concat(),
    ];
    for answer in answers {
        let all = [answer.clone(), ready(b'I')].concat();
        for chunk in 1..=all.len() {
            let mut stage = Stage::new(chunk);
            stage.client(&query("SELECT n FROM t"));
            stage.engine(&answer);
            assert!(stage.conversation.lease.is_some(), "VIOLATION: W4: over at a row");
            stage.engine(&ready(b'I'));
            assert_eq!(stage.to_client, all, "in chunks of {chunk}");
            assert!(stage.conversation.lease.is_none());
            stage.engine(&message(b'N', b"\0"));
        }
    }
    // A length that can't be is one behind rows, too.
    let mut stage = Stage::new(usize::MAX);
    stage.client(&query("SELECT n FROM t"));
    let cut = [rows(b'D'), b"D\0\0\0\x03".to_vec()].concat();
    assert!(stage.try_engine(&cut).unwrap_err().to_string().contains("length 3"));
}
