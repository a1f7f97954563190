//! Authentication in `passthrough`: the engine asks, the client answers, the proxy carries.
//!
//! Purpose: W23 (all methods) and W25: with TLS towards the engine SCRAM can't be bound to the
//! client's own channel, so SCRAM-SHA-256-PLUS is taken out of the engine's offer. Ends at the
//! engine's first ReadyForQuery, with what was learnt on the way. Messages are bounded in size;
//! the caller bounds the time. Secrets pass through and are kept nowhere. Called by `session.rs`.

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::base::limits;
use crate::tls::Stream;
use crate::wire::pg::cancel::CancelKey;
use crate::wire::pg::frame::{self, HEADER};

const SCRAM_PLUS: &[u8] = b"SCRAM-SHA-256-PLUS";

/// What the engine said up to its first ReadyForQuery.
#[derive(Debug, Default)]
pub(crate) struct Welcome {
    /// Parameter names and values.
    pub(crate) parameters: Vec<(Vec<u8>, Vec<u8>)>,
    /// Process id and cancel key.
    pub(crate) key: Option<(i32, CancelKey)>,
    /// Bytes of the client behind its last answer.
    pub(crate) from_client: BytesMut,
    /// Bytes of the engine behind ReadyForQuery.
    pub(crate) from_engine: BytesMut,
}

/// Why no session came about.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthEnd {
    /// The engine refused; the client has its error.
    #[error("the engine refused the login")]
    Refused,
    /// The client went away.
    #[error("the client went away during the login")]
    ClientGone,
    /// The engine went away.
    #[error("the engine closed the connection during the login")]
    EngineGone,
    /// Somebody broke the protocol.
    #[error("the login broke the protocol: {0}")]
    Broken(&'static str),
}

/// Carries the authentication. The startup packet was sent before.
///
/// # Cancel safety
/// Dropping the future and both streams ends the login; nothing was admitted.
pub(crate) async fn carry(client: &mut Stream, engine: &mut Stream) -> Result<Welcome, AuthEnd> {
    let strip = engine.is_tls();
    let mut welcome = Welcome::default();
    let mut inbox = BytesMut::new();
    let mut outbox = BytesMut::new();
    let mut refused = false;
    loop {
        let Some(header) = next(&inbox)? else {
            send(client, &mut outbox).await?;
            match engine.read_buf(&mut inbox).await {
                Ok(count) if count > 0 => continue,
                Ok(_) | Err(_) if refused => return Err(AuthEnd::Refused),
                Ok(_) | Err(_) => return Err(AuthEnd::EngineGone),
            }
        };
        let message = inbox.split_to(HEADER + header.body);
        let body = message.get(HEADER..).unwrap_or_default();
        match header.tag {
            b'R' => {
                let asks = asks_for_answer(body);
                if strip && asks == Some(true) && is_sasl_offer(body) {
                    offer_without_plus(body, &mut outbox);
                } else {
                    outbox.extend_from_slice(&message);
                }
                if asks == Some(true) {
                    send(client, &mut outbox).await?;
                    let first = first(client, &mut welcome.from_client, engine, &mut inbox);
                    if let First::Client(answer) = first.await? {
                        engine.write_all(&answer).await.map_err(|_| AuthEnd::EngineGone)?;
                        engine.flush().await.map_err(|_| AuthEnd::EngineGone)?;
                    }
                }
                continue;
            }
            b'E' => refused = true,
            b'S' => {
                if let Some((name, rest)) = frame::text(body)
                    && let Some((value, _)) = frame::text(rest)
                {
                    welcome.parameters.push((name.to_vec(), value.to_vec()));
                }
            }
            b'K' => {
                if let Some((pid, key)) = body.split_first_chunk::<4>() {
                    welcome.key = Some((i32::from_be_bytes(*pid), CancelKey::of(key)));
                }
            }
            _ => {}
        }
        outbox.extend_from_slice(&message);
        if header.tag == b'Z' {
            send(client, &mut outbox).await?;
            welcome.from_engine = inbox;
            return Ok(welcome);
        }
    }
}

/// The next whole message's header, `None` when more bytes are needed.
fn next(inbox: &BytesMut) -> Result<Option<frame::Header>, AuthEnd> {
    const BAD: AuthEnd = AuthEnd::Broken("a message of a length that can't be");
    let Some(header) = frame::header(inbox).map_err(|_| BAD)? else { return Ok(None) };
    if header.body > limits::ENGINE_MESSAGE_INSPECT_BYTES_MAX {
        return Err(BAD);
    }
    Ok((inbox.len() >= HEADER + header.body).then_some(header))
}

/// Writes out what is there for the client.
///
/// # Cancel safety
/// Part of it may have been sent: the login is over.
async fn send(client: &mut Stream, outbox: &mut BytesMut) -> Result<(), AuthEnd> {
    if outbox.has_remaining() {
        client.write_all(outbox).await.map_err(|_| AuthEnd::ClientGone)?;
        client.flush().await.map_err(|_| AuthEnd::ClientGone)?;
        outbox.clear();
    }
    Ok(())
}

/// Who spoke first behind something that may want an answer.
enum First {
    /// The client, with a whole message.
    Client(BytesMut),
    /// The engine: it needs no answer (the last token of a mutual authentication), or has given
    /// the client up.
    Engine,
}

/// Waits until the client has answered, or the engine has said a whole message more.
///
/// # Cancel safety
/// Cancel safe: what was read stays in `held` and `inbox`.
async fn first(
    client: &mut Stream,
    held: &mut BytesMut,
    engine: &mut Stream,
    inbox: &mut BytesMut,
) -> Result<First, AuthEnd> {
    let spoken = async {
        while next(inbox)?.is_none() {
            match engine.read_buf(inbox).await {
                Ok(count) if count > 0 => {}
                Ok(_) | Err(_) => return Err(AuthEnd::EngineGone),
            }
        }
        Ok(First::Engine)
    };
    tokio::select! {
        biased;
        said = spoken => said,
        answer = answer(client, held) => answer.map(First::Client),
    }
}

/// One whole message of the client's.
///
/// # Cancel safety
/// Cancel safe: what was read stays in `held`.
async fn answer(client: &mut Stream, held: &mut BytesMut) -> Result<BytesMut, AuthEnd> {
    loop {
        if let Some(header) = next(held)? {
            if header.tag != b'p' {
                return Err(AuthEnd::Broken("the client sent no password message"));
            }
            return Ok(held.split_to(HEADER + header.body));
        }
        match client.read_buf(held).await {
            Ok(count) if count > 0 => {}
            Ok(_) | Err(_) => return Err(AuthEnd::ClientGone),
        }
    }
}

fn kind(body: &[u8]) -> Option<u32> {
    body.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes))
}

/// Whether an Authentication message may want an answer: all may but Ok (0) and SASLFinal (12).
/// A token of GSSAPI or SSPI (8) wants one unless it is the last.
fn asks_for_answer(body: &[u8]) -> Option<bool> {
    kind(body).map(|kind| !matches!(kind, 0 | 12))
}

fn is_sasl_offer(body: &[u8]) -> bool {
    kind(body) == Some(10)
}

fn offer_without_plus(body: &[u8], outbox: &mut BytesMut) {
    let mut kept = body.get(..4).unwrap_or_default().to_vec();
    let mut rest = body.get(4..).unwrap_or_default();
    while let Some((mechanism, next)) = frame::text(rest) {
        if mechanism.is_empty() {
            break;
        }
        if mechanism != SCRAM_PLUS {
            kept.extend_from_slice(mechanism);
            kept.push(0);
        }
        rest = next;
    }
    kept.push(0);
    let length = u32::try_from(kept.len() + 4).unwrap_or(u32::MAX);
    outbox.extend_from_slice(b"R");
    outbox.extend_from_slice(&length.to_be_bytes());
    outbox.extend_from_slice(&kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_binding_is_taken_out_of_the_offer() {
        let body = b"\0\0\0\x0aSCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0";
        let mut out = BytesMut::new();
        offer_without_plus(body, &mut out);
        assert_eq!(&out[..], b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0");
        assert_eq!(frame::header(&out).unwrap().unwrap().body + HEADER, out.len());
    }

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[tag][..], &length, body].concat()
    }

    fn asks(kind: u8, more: &[u8]) -> Vec<u8> {
        message(b'R', &[&[0, 0, 0, kind][..], more].concat())
    }

    /// Both ends of a peer that speaks over a Unix socket.
    fn peer() -> (Stream, Stream) {
        let (ours, theirs) = tokio::net::UnixStream::pair().unwrap();
        (Stream::Unix(ours), Stream::Unix(theirs))
    }

    /// What comes up to the end of what the proxy sends.
    async fn heard(stream: &mut Stream, end: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end) {
            assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "{bytes:?}");
        }
        bytes
    }

    /// With mutual authentication the engine's last token needs no answer (pg_GSS_recvauth sends
    /// it, and goes on): what follows mustn't wait for one.
    #[tokio::test]
    async fn w23_a_token_that_needs_no_answer_is_not_waited_behind() {
        let ((mut client, mut person), (mut engine, mut server)) = (peer(), peer());
        let token = message(b'p', b"AP-REQ");
        let rest = [asks(0, b""), message(b'S', b"a\0b\0"), message(b'Z', b"I")].concat();
        let (ended, (), ()) = tokio::time::timeout(std::time::Duration::from_secs(60), async {
            let engine_side = async {
                server.write_all(&asks(7, b"")).await.unwrap();
                assert_eq!(heard(&mut server, &token).await, token);
                server.write_all(&[asks(8, b"AP-REP"), rest.clone()].concat()).await.unwrap();
            };
            let client_side = async {
                assert_eq!(heard(&mut person, &asks(7, b"")).await, asks(7, b""));
                person.write_all(&token).await.unwrap();
                let all = [asks(8, b"AP-REP"), rest.clone()].concat();
                assert_eq!(heard(&mut person, b"Z\0\0\0\x05I").await, all);
            };
            tokio::join!(carry(&mut client, &mut engine), engine_side, client_side)
        })
        .await
        .expect("the login hangs");
        assert_eq!(ended.unwrap().parameters, [(b"a".to_vec(), b"b".to_vec())]);
    }

    /// Control arm: where the token does need an answer, that is carried as ever.
    #[tokio::test]
    async fn w23_a_token_that_needs_an_answer_gets_it() {
        let ((mut client, mut person), (mut engine, mut server)) = (peer(), peer());
        let token = message(b'p', b"more");
        let engine_side = async {
            server.write_all(&asks(8, b"first")).await.unwrap();
            assert_eq!(heard(&mut server, &token).await, token);
            server.write_all(&[asks(0, b""), message(b'Z', b"I")].concat()).await.unwrap();
        };
        let client_side = async {
            heard(&mut person, &asks(8, b"first")).await;
            person.write_all(&token).await.unwrap();
            heard(&mut person, b"Z\0\0\0\x05I").await;
        };
        let carried = carry(&mut client, &mut engine);
        let (ended, (), ()) = tokio::join!(carried, engine_side, client_side);
        ended.unwrap();
    }

    /// The engine gives a client that doesn't answer up (authentication_timeout): it is told.
    #[tokio::test]
    async fn w23_what_the_engine_says_while_a_client_is_waited_for_is_passed_on() {
        let ((mut client, mut person), (mut engine, mut server)) = (peer(), peer());
        let fatal = message(b'E', b"SFATAL\0C57014\0Mcanceling authentication\0\0");
        let engine_side = async {
            server.write_all(&asks(3, b"")).await.unwrap();
            heard(&mut person, &asks(3, b"")).await;
            server.write_all(&fatal).await.unwrap();
            server.shutdown().await.unwrap();
            assert_eq!(heard(&mut person, &fatal).await, fatal);
        };
        let both = async { tokio::join!(carry(&mut client, &mut engine), engine_side) };
        let limit = std::time::Duration::from_secs(60);
        let (ended, ()) = tokio::time::timeout(limit, both).await.expect("the login hangs");
        assert!(matches!(ended, Err(AuthEnd::Refused)));
    }

    #[test]
    fn only_ok_and_final_need_no_answer() {
        assert_eq!(asks_for_answer(&[0, 0, 0, 0]), Some(false));
        assert_eq!(asks_for_answer(&[0, 0, 0, 12]), Some(false));
        assert_eq!(asks_for_answer(&[0, 0, 0, 3]), Some(true));
        assert_eq!(asks_for_answer(&[0]), None);
    }
}
