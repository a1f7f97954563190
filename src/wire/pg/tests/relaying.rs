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
