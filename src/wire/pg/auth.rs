//! Authentication in `passthrough`: the engine asks, the client answers, the proxy carries.
//!
//! Purpose: W23 (all methods) and W25: with TLS towards the engine SCRAM can't be bound to the
//! client's own channel, so SCRAM-SHA-256-PLUS is taken out of the engine's offer. Ends at the
//! engine's first ReadyForQuery, with what was learnt on the way. Messages are bounded in size;
//! the caller bounds the time. While it is the engine's turn a login trigger may run, so the login
//! is listed for drains (`gate/logins.rs`, invariants 2 and 7). Secrets pass through and are kept
//! nowhere. Called by `session.rs`.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncWriteExt;

use crate::base::limits;
use crate::gate::logins::{Login, LoginRefusal};
use crate::telemetry::timer::timeout;
use crate::tls::Stream;
use crate::wire::pg::cancel::CancelKey;
use crate::wire::pg::frame::{self, HEADER};
use crate::wire::shared::desk;
use crate::wire::shared::sessions::Counted;

/// Parameters that a session begins with knowledge of; others are the client's business.
const LEARNT: [&[u8]; 4] = [
    b"client_encoding",
    b"default_transaction_read_only",
    b"server_version",
    b"standard_conforming_strings",
];
const SCRAM_PLUS: &[u8] = b"SCRAM-SHA-256-PLUS";

/// What the engine said up to its first ReadyForQuery.
#[derive(Debug, Default)]
pub(crate) struct Welcome {
    /// Names and values of the [`LEARNT`] parameters.
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
    /// The gate was closed meanwhile, and a login trigger would run: the client isn't told yet.
    #[error("a fence refused the login, at which a login trigger would run")]
    Fenced(LoginRefusal),
    /// Somebody broke the protocol.
    #[error("the login broke the protocol: {0}")]
    Broken(&'static str),
}

/// A login's connection to the engine, and its place among the logins that engines work on.
pub(crate) struct AtEngine<'a> {
    /// The connection.
    pub(crate) stream: Stream,
    /// What has come from there and wasn't taken yet.
    pub(crate) inbox: BytesMut,
    /// Whether it is the engine's turn.
    pub(crate) login: Login,
    /// The place among the proxy's sessions.
    pub(crate) place: Counted<'a>,
}

impl AtEngine<'_> {
    /// Behind a login that ended early on this side: waits, within bounds, until it isn't the
    /// engine's turn any more. What a login trigger does goes on without a client.
    ///
    /// # Cancel safety
    /// Dropped, it leaves the login listed as lost.
    pub(crate) async fn see_out(mut self) {
        let bound = Duration::from_millis(limits::LOGIN_SEEN_OUT_MS);
        let seen = timeout(bound, async {
            while self.login.is_at_engine() {
                match next(&self.inbox) {
                    Ok(Some(header)) => {
                        let message = self.inbox.split_to(HEADER + header.body);
                        if ends_a_turn(header.tag, message.get(HEADER..).unwrap_or_default()) {
                            self.login.returned();
                        }
                        continue;
                    }
                    Ok(None) => {}
                    // Nothing can be told apart in it; its end can.
                    Err(_) => self.inbox.clear(),
                }
                match desk::read(&mut self.stream, &mut self.inbox).await {
                    Ok(count) if count > 0 => {}
                    Ok(_) | Err(_) => self.login.returned(),
                }
            }
        });
        if seen.await.is_err() {
            tracing::warn!(
                session = %self.login.id(),
                "the engine did not end a login whose client is gone; it counts as lost"
            );
        }
    }
}

/// Whether a message of the engine's shows that it waits for the client, or is done with the login
/// and what runs at it. Behind an error it still closes; a token of GSSAPI or SSPI may be the last,
/// behind which it goes on by itself.
fn ends_a_turn(tag: u8, body: &[u8]) -> bool {
    const GSS_CONTINUE: u32 = 8;
    match tag {
        b'Z' => true,
        b'R' => asks_for_answer(body) == Some(true) && kind(body) != Some(GSS_CONTINUE),
        _ => false,
    }
}

/// Carries the authentication. The startup packet was sent before, with the login handed over.
///
/// # Cancel safety
/// Dropping the future and both streams ends the login, but for what the engine runs in it: see
/// [`AtEngine::see_out`].
pub(crate) async fn carry(client: &mut Stream, at: &mut AtEngine<'_>) -> Result<Welcome, AuthEnd> {
    let AtEngine { stream: engine, inbox, login, .. } = at;
    let strip = engine.is_tls();
    let mut welcome = Welcome::default();
    let mut outbox = BytesMut::new();
    let mut refused = false;
    loop {
        let Some(header) = next(inbox)? else {
            send(client, &mut outbox).await?;
            match desk::read(engine, inbox).await {
                Ok(count) if count > 0 => continue,
                Ok(_) | Err(_) => {}
            }
            login.returned();
            return Err(if refused { AuthEnd::Refused } else { AuthEnd::EngineGone });
        };
        if outbox.is_empty() {
            // All that has come goes out together.
            outbox.reserve(inbox.len());
        }
        let message = inbox.split_to(HEADER + header.body);
        let body = message.get(HEADER..).unwrap_or_default();
        if ends_a_turn(header.tag, body) {
            login.returned();
        }
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
                    let first = first(client, &mut welcome.from_client, engine, inbox, login);
                    if let First::Client(answer) = first.await? {
                        login.hands_over().await.map_err(AuthEnd::Fenced)?;
                        engine.write_all(&answer).await.map_err(|_| AuthEnd::EngineGone)?;
                        engine.flush().await.map_err(|_| AuthEnd::EngineGone)?;
                    }
                }
                continue;
            }
            b'E' => refused = true,
            b'S' => {
                if let Some((name, rest)) = frame::text(body)
                    && LEARNT.contains(&name)
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
            welcome.from_engine = std::mem::take(inbox);
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
    login: &mut Login,
) -> Result<First, AuthEnd> {
    let spoken = async {
        while next(inbox)?.is_none() {
            match desk::read(engine, inbox).await {
                Ok(count) if count > 0 => {}
                Ok(_) | Err(_) => {
                    login.returned();
                    return Err(AuthEnd::EngineGone);
                }
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
        match desk::read(client, held).await {
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
    use std::sync::Arc;

    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::base::ids::{Generation, Namespace, SessionId};
    use crate::fence::record::InFlight;
    use crate::fence::verdict::Overlay;
    use crate::gate::drain::Drain;
    use crate::gate::registry::{Gate, Gates};
    use crate::gate::slot::Card;
    use crate::wire::shared::sessions::Sessions;

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

    /// A login of which the engine has the startup packet, at gates of its own.
    async fn at_engine(gates: &Arc<Gates>, stream: Stream) -> AtEngine<'static> {
        static PLACES: Sessions = Sessions::new(1_000);
        let namespace = Namespace::parse("e/d").unwrap();
        let named = (SessionId(1), Card::default());
        let mut login = Login::new(Arc::clone(gates), namespace, None, named);
        login.hands_over().await.unwrap();
        let place = PLACES.place().unwrap();
        AtEngine { stream, inbox: BytesMut::new(), login, place }
    }

    fn gates() -> Arc<Gates> {
        let gates = Gates::new(Generation(1));
        gates.recovered();
        Arc::new(gates)
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
        let ((mut client, mut person), (engine, mut server)) = (peer(), peer());
        let mut engine = at_engine(&gates(), engine).await;
        let token = message(b'p', b"AP-REQ");
        let told = [message(b'S', b"server_version\x0018\0"), message(b'S', b"a\0b\0")].concat();
        let rest = [asks(0, b""), told, message(b'Z', b"I")].concat();
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
        let learnt = (b"server_version".to_vec(), b"18".to_vec());
        assert_eq!(ended.unwrap().parameters, [learnt], "the client has them all");
    }

    /// Control arm: where the token does need an answer, that is carried as ever.
    #[tokio::test]
    async fn w23_a_token_that_needs_an_answer_gets_it() {
        let ((mut client, mut person), (engine, mut server)) = (peer(), peer());
        let mut engine = at_engine(&gates(), engine).await;
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
        let ((mut client, mut person), (engine, mut server)) = (peer(), peer());
        let mut engine = at_engine(&gates(), engine).await;
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

    fn close(gates: &Gates) -> Arc<Gate> {
        let gate = gates.gate(&Namespace::parse("e/d").unwrap());
        gate.overlay(Overlay::Installing, InFlight::Finish);
        let question = gate.login_question();
        gate.note_login_triggers(question, Some(vec!["at_login".to_owned()]));
        gate
    }

    /// While the client is asked nothing is listed: a slow one holds no drain up. Its answer goes
    /// nowhere once the gate is closed.
    #[tokio::test]
    async fn a_drain_waits_for_a_login_only_while_it_is_the_engines_turn() {
        let ((mut client, mut person), (engine, mut server)) = (peer(), peer());
        let gates = gates();
        let mut engine = at_engine(&gates, engine).await;
        let gate = close(&gates);
        let mut drain = Drain::of(Arc::clone(&gate)).unwrap();
        assert_eq!(drain.blockers().len(), 1, "the startup packet is with the engine");
        let others = async {
            server.write_all(&asks(3, b"")).await.unwrap();
            drain.wait().await;
            heard(&mut person, &asks(3, b"")).await;
            person.write_all(&message(b'p', b"secret\0")).await.unwrap();
            // The login wants to know whether the triggers are still there.
            gates.login_asked().await;
            assert!(gate.takes_login_question());
            let question = gate.login_question();
            gate.note_login_triggers(question, Some(vec!["at_login".to_owned()]));
        };
        let both = async { tokio::join!(carry(&mut client, &mut engine), others) };
        let limit = Duration::from_secs(60);
        let (ended, ()) = timeout(limit, both).await.expect("the login hangs");
        let Err(AuthEnd::Fenced(refused)) = ended else { panic!("it passed") };
        assert_eq!(*refused.triggers, ["at_login"]);
        assert!(!engine.login.is_at_engine());
        drop(engine);
        assert_eq!(server.read_u8().await.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    }

    /// A client that goes away doesn't end what the engine runs at its login.
    #[tokio::test]
    async fn invariant_07_a_login_without_a_client_is_seen_to_its_end() {
        let (engine, mut server) = peer();
        let gates = gates();
        let left = at_engine(&gates, engine).await;
        let mut drain = Drain::of(close(&gates)).unwrap();
        let seen = tokio::spawn(left.see_out());
        // A notice shows that it is under way, and ends nothing.
        let begun = [asks(0, b""), message(b'N', b"SNOTICE\0\0")].concat();
        server.write_all(&begun).await.unwrap();
        assert!(drain.look().is_none());
        server.write_all(&message(b'Z', b"I")).await.unwrap();
        seen.await.unwrap();
        assert!(drain.look().is_some());
    }

    /// One of which nothing more is known counts for ever, where there are triggers.
    #[tokio::test]
    async fn invariant_07_a_login_that_is_dropped_counts_as_lost() {
        let gates = gates();
        drop(at_engine(&gates, peer().0).await);
        let gate = close(&gates);
        let mut drain = Drain::of(Arc::clone(&gate)).unwrap();
        assert!(drain.blockers().iter().all(|slot| slot.is_login() && slot.is_abandoned()));
        assert!(drain.look().is_none());
        let question = gate.login_question();
        gate.note_login_triggers(question, Some(Vec::new()));
        assert!(drain.look().is_some(), "without triggers nothing ran");
    }

    #[test]
    fn a_token_that_may_be_the_last_leaves_the_turn_with_the_engine() {
        for (kind, ends) in [(0, false), (3, true), (5, true), (7, true), (8, false), (10, true)] {
            assert_eq!(ends_a_turn(b'R', &[0, 0, 0, kind]), ends, "{kind}");
        }
        for (kind, ends) in [(11, true), (12, false)] {
            assert_eq!(ends_a_turn(b'R', &[0, 0, 0, kind]), ends, "{kind}");
        }
        assert!(ends_a_turn(b'Z', b"I") && !ends_a_turn(b'E', b"") && !ends_a_turn(b'K', b""));
    }

    #[test]
    fn only_ok_and_final_need_no_answer() {
        assert_eq!(asks_for_answer(&[0, 0, 0, 0]), Some(false));
        assert_eq!(asks_for_answer(&[0, 0, 0, 12]), Some(false));
        assert_eq!(asks_for_answer(&[0, 0, 0, 3]), Some(true));
        assert_eq!(asks_for_answer(&[0]), None);
    }
}
