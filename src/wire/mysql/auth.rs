//! Authentication in `passthrough`: the engine asks, the client answers, the proxy carries.
//!
//! Purpose: W24 and W25. Proofs that are mixed with the engine's nonce pass as they are: the client
//! has seen that nonce. Two methods send the password itself where the server's side is encrypted,
//! and encrypt it with the server's RSA key where it isn't (`caching_sha2_password` when the server
//! has it in no cache, `sha256_password` always). There, if one side of the proxy is encrypted and
//! the other isn't, the proxy speaks each side's variant: [`Bridge`]. A password is held from the
//! client's packet to the engine's next, and nowhere else.
//!
//! [`Exchange`] is pure: packets in, packets out. [`carry`] does the I/O of a login; a change of
//! user within a session goes through an exchange as well. Packets are bounded in size; the caller
//! bounds the time. Called by `session.rs` and the relay.

use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt;

use crate::base::limits;
use crate::tls::Stream;
use crate::wire::mysql::attributes;
use crate::wire::mysql::frame::{self, HEADER};
use crate::wire::mysql::own_key::{self, KeyPair, RsaError};
use crate::wire::mysql::startup::Login;
use crate::wire::shared::capability::Offered;
use crate::wire::shared::desk;

/// The engine's first bytes of a packet.
const OK: u8 = 0;
const MORE: u8 = 1;
const NEXT_FACTOR: u8 = 2;
const SWITCH: u8 = 0xfe;
const ERR: u8 = 0xff;

/// `caching_sha2_password`: the proof was enough; the password itself is wanted; the key is wanted.
const FAST_OK: u8 = 3;
const FULL: u8 = 4;
const CACHING_ASKS_KEY: &[u8] = &[2];
/// `sha256_password` asks for the key with another byte.
const SHA256_ASKS_KEY: &[u8] = &[1];

/// A name that no server has a method of: it then says itself which one the account has.
const NO_METHOD: &[u8] = b"fencewire_says_later";

/// Methods that differ by whether the way is encrypted, and all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    CachingSha2,
    Sha256,
    Other,
}

impl Method {
    fn of(plugin: &[u8]) -> Self {
        match plugin {
            b"caching_sha2_password" => Self::CachingSha2,
            b"sha256_password" => Self::Sha256,
            _ => Self::Other,
        }
    }

    const fn key_request(self) -> Option<&'static [u8]> {
        match self {
            Self::CachingSha2 => Some(CACHING_ASKS_KEY),
            Self::Sha256 => Some(SHA256_ASKS_KEY),
            Self::Other => None,
        }
    }
}

/// How the two sides differ.
#[derive(Debug, Clone)]
pub(crate) enum Bridge {
    /// They don't.
    Straight,
    /// The client's side is encrypted, the engine's isn't: the proxy encrypts for the engine.
    Seal,
    /// The engine's side is encrypted, the client's isn't: the proxy decrypts for the engine.
    Unseal(Arc<KeyPair>),
}

/// What is to come.
enum Step {
    /// Whatever comes, as it comes.
    Relay,
    /// The client's password in clear.
    Password,
    /// The engine's key, for this password.
    EngineKey(Vec<u8>),
    /// The client's request for the proxy's key, or the password encrypted with it.
    Sealed,
}

/// Packets to be sent.
#[derive(Debug, Default)]
pub(crate) struct Letters {
    pub(crate) to_client: BytesMut,
    pub(crate) to_engine: BytesMut,
}

/// Where an exchange is after a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It goes on.
    On,
    /// The engine has said OK; the packet has been passed on.
    Welcome,
    /// The engine has said no; the packet has been passed on.
    Refused,
}

/// One authentication.
pub(crate) struct Exchange {
    bridge: Bridge,
    method: Method,
    nonce: Vec<u8>,
    step: Step,
    /// The numbers of the next packets.
    client_sequence: u8,
    engine_sequence: u8,
    /// The engine has said something that the client is to answer.
    client_is_asked: bool,
    multi_factor: bool,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exchange({:?}, ***)", self.method)
    }
}

impl Exchange {
    /// Begins with a login that is still to be sent: it is altered where the client's proof in it
    /// isn't for the engine's side. The sequences are those of the next packets.
    pub(crate) fn begin(
        login: &mut Login,
        nonce: &[u8],
        bridge: Bridge,
        (client_sequence, engine_sequence): (u8, u8),
        multi_factor: bool,
    ) -> Self {
        let method = login.plugin.as_deref().map_or(Method::Other, Method::of);
        let mut exchange = Self {
            bridge,
            method,
            nonce: nonce.to_vec(),
            step: Step::Relay,
            client_sequence,
            engine_sequence,
            client_is_asked: false,
            multi_factor,
        };
        if method != Method::Sha256 {
            return exchange;
        }
        match exchange.bridge {
            Bridge::Straight => {}
            Bridge::Seal => {
                let password = login.auth().to_vec();
                if !is_empty_password(&password) {
                    exchange.step = Step::EngineKey(password);
                    login.set_auth(None, SHA256_ASKS_KEY.to_vec());
                }
            }
            Bridge::Unseal(_) => login.set_auth(Some(NO_METHOD), Vec::new()),
        }
        exchange
    }

    /// Begins anew with a COM_CHANGE_USER. Returns the payload to be sent in its place where the
    /// client's proof in it isn't for the engine's side, as in [`Exchange::begin`].
    pub(crate) fn change_user(&mut self, payload: &[u8]) -> Option<Vec<u8>> {
        self.step = Step::Relay;
        self.client_is_asked = false;
        (self.client_sequence, self.engine_sequence) = (1, 1);
        let change = ChangeUser::parse(payload)?;
        self.method = Method::of(change.plugin);
        match (&self.bridge, self.method) {
            (Bridge::Seal, Method::Sha256) if !is_empty_password(change.auth) => {
                self.step = Step::EngineKey(change.auth.to_vec());
                Some(change.with(change.plugin, SHA256_ASKS_KEY))
            }
            (Bridge::Unseal(_), Method::Sha256) => Some(change.with(NO_METHOD, &[])),
            (
                Bridge::Straight | Bridge::Seal | Bridge::Unseal(_),
                Method::CachingSha2 | Method::Sha256 | Method::Other,
            ) => None,
        }
    }

    /// Whether the client's next packet is wanted.
    pub(crate) const fn client_is_asked(&self) -> bool {
        self.client_is_asked
    }

    /// A packet of the engine's.
    ///
    /// # Errors
    /// The password can't be brought to the engine; it was sent nothing.
    pub(crate) fn engine_said(
        &mut self,
        (sequence, payload): (u8, &[u8]),
        letters: &mut Letters,
    ) -> Result<Stage, RsaError> {
        self.engine_sequence = sequence.wrapping_add(1);
        let (first, rest) = payload.split_first().unwrap_or((&MORE, &[]));
        match *first {
            OK | ERR => {
                self.tell_client(payload, letters);
                return Ok(if *first == OK { Stage::Welcome } else { Stage::Refused });
            }
            SWITCH => self.switched(rest),
            NEXT_FACTOR if self.multi_factor => self.switched(rest),
            MORE => return self.more(rest, payload, letters).map(|()| Stage::On),
            _ => {}
        }
        self.client_is_asked = true;
        self.tell_client(payload, letters);
        Ok(Stage::On)
    }

    fn switched(&mut self, rest: &[u8]) {
        self.step = Step::Relay;
        if let Some((plugin, data)) = frame::text(rest) {
            self.method = Method::of(plugin);
            self.nonce = data.strip_suffix(&[0]).unwrap_or(data).to_vec();
        } else {
            self.method = Method::of(rest);
        }
    }

    fn more(&mut self, data: &[u8], payload: &[u8], letters: &mut Letters) -> Result<(), RsaError> {
        match (std::mem::replace(&mut self.step, Step::Relay), self.method, data) {
            (Step::EngineKey(password), _, _) => {
                let sealed = own_key::seal(data, &self.nonce, &password)?;
                self.tell_engine(&sealed, letters);
                return Ok(());
            }
            (_, Method::CachingSha2, [FAST_OK]) => {}
            (_, Method::CachingSha2, [FULL]) => {
                self.client_is_asked = true;
                self.step = match self.bridge {
                    Bridge::Straight => Step::Relay,
                    Bridge::Seal => Step::Password,
                    Bridge::Unseal(_) => Step::Sealed,
                };
            }
            (
                Step::Relay | Step::Password | Step::Sealed,
                Method::CachingSha2 | Method::Sha256 | Method::Other,
                _,
            ) => self.client_is_asked = true,
        }
        self.tell_client(payload, letters);
        Ok(())
    }

    /// A packet of the client's, which was asked for it.
    pub(crate) fn client_said(&mut self, (sequence, payload): (u8, &[u8]), letters: &mut Letters) {
        self.client_sequence = sequence.wrapping_add(1);
        self.client_is_asked = false;
        let by_bridge = match (&self.bridge, self.method) {
            (Bridge::Seal, Method::Sha256) if !is_empty_password(payload) => Step::Password,
            (Bridge::Unseal(_), Method::Sha256) => Step::Sealed,
            (
                Bridge::Straight | Bridge::Seal | Bridge::Unseal(_),
                Method::CachingSha2 | Method::Sha256 | Method::Other,
            ) => Step::Relay,
        };
        let step = match std::mem::replace(&mut self.step, Step::Relay) {
            Step::Relay => by_bridge,
            step @ (Step::Password | Step::Sealed | Step::EngineKey(_)) => step,
        };
        match (step, self.bridge.clone(), self.method.key_request()) {
            (Step::Password, _, Some(request)) => {
                self.step = Step::EngineKey(payload.to_vec());
                self.tell_engine(request, letters);
            }
            (Step::Sealed, Bridge::Unseal(pair), Some(request)) if payload == request => {
                self.step = Step::Sealed;
                self.client_is_asked = true;
                let mut answer = vec![MORE];
                answer.extend_from_slice(pair.pem().as_bytes());
                self.tell_client(&answer, letters);
            }
            (Step::Sealed, Bridge::Unseal(pair), _) => {
                // Encrypted with another key, it goes on as it is, and the engine refuses it.
                let clear = pair.decrypt(&self.nonce, payload);
                self.tell_engine(clear.as_deref().unwrap_or(payload), letters);
            }
            (Step::Relay | Step::Password | Step::EngineKey(_) | Step::Sealed, _, _) => {
                self.tell_engine(payload, letters);
            }
        }
    }

    fn tell_client(&mut self, payload: &[u8], letters: &mut Letters) {
        self.client_sequence = frame::put(&mut letters.to_client, self.client_sequence, payload);
    }

    fn tell_engine(&mut self, payload: &[u8], letters: &mut Letters) {
        self.engine_sequence = frame::put(&mut letters.to_engine, self.engine_sequence, payload);
    }

    /// The number of the next packet for the client.
    pub(crate) const fn client_sequence(&self) -> u8 {
        self.client_sequence
    }
}

/// The parts of a COM_CHANGE_USER of which the proof is one.
struct ChangeUser<'a> {
    /// Opcode and user's name, with its NUL.
    head: &'a [u8],
    auth: &'a [u8],
    /// The schema with its NUL, and the character set.
    middle: &'a [u8],
    plugin: &'a [u8],
    /// Connection attributes.
    tail: &'a [u8],
}

impl<'a> ChangeUser<'a> {
    /// `None` where it names no method: then none is meant that matters here.
    fn parse(payload: &'a [u8]) -> Option<Self> {
        let (_user, rest) = frame::text(payload)?;
        let head = payload.get(..payload.len() - rest.len())?;
        let (length, rest) = rest.split_first()?;
        let (auth, rest) = rest.split_at_checked(usize::from(*length))?;
        let (schema, _) = frame::text(rest)?;
        let (middle, rest) = rest.split_at_checked(schema.len() + 3)?;
        let (plugin, tail) = frame::text(rest).unwrap_or((rest, &[]));
        Some(Self { head, auth, middle, plugin, tail })
    }

    /// The same payload with another method and proof. The proof has at most 255 bytes.
    fn with(&self, plugin: &[u8], auth: &[u8]) -> Vec<u8> {
        let length = u8::try_from(auth.len()).unwrap_or(u8::MAX);
        [self.head, &[length], auth, self.middle, plugin, &[0], self.tail].concat()
    }
}

/// Takes capabilities out of a COM_CHANGE_USER. `None` when there are none: it stays as it is.
pub(crate) fn take_capabilities(payload: &[u8]) -> Option<(Vec<u8>, Vec<Offered>)> {
    let tail = ChangeUser::parse(payload).map_or(payload, |change| change.tail);
    let head = payload.get(..payload.len() - tail.len()).unwrap_or_default();
    let (tail, mut offered) = attributes::take(tail)?;
    offered.retain(|one| !one.is_empty());
    Some(([head, &tail].concat(), offered))
}

/// Without a password nothing is encrypted: a NUL alone, or nothing at all.
fn is_empty_password(payload: &[u8]) -> bool {
    matches!(payload, [] | [0])
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
    /// The password can't be brought to the engine.
    #[error("{0}")]
    Password(#[from] RsaError),
}

/// What is known after the engine's OK.
#[derive(Debug)]
pub(crate) struct Welcome {
    /// The OK's payload.
    pub(crate) ok: Vec<u8>,
    /// Bytes of the client behind its last answer.
    pub(crate) from_client: BytesMut,
    /// Bytes of the engine behind its OK.
    pub(crate) from_engine: BytesMut,
}

/// Carries a login to its end. The login packet was sent before.
///
/// # Errors
/// [`AuthEnd`].
///
/// # Cancel safety
/// Dropping the future and both streams ends the login; nothing was admitted.
pub(crate) async fn carry(
    exchange: &mut Exchange,
    client: &mut Stream,
    engine: &mut Stream,
) -> Result<Welcome, AuthEnd> {
    let mut letters = Letters::default();
    let (mut from_client, mut from_engine) = (BytesMut::new(), BytesMut::new());
    loop {
        if let Some((sequence, payload)) = take(&mut from_engine)? {
            let stage = exchange.engine_said((sequence, &payload), &mut letters)?;
            match stage {
                Stage::On => continue,
                Stage::Welcome => {
                    send(client, &mut letters.to_client).await.map_err(|_| AuthEnd::ClientGone)?;
                    let ok = payload.to_vec();
                    return Ok(Welcome { ok, from_client, from_engine });
                }
                Stage::Refused => {
                    // The client has its error or is gone: either way the login ends here.
                    let _unheard = send(client, &mut letters.to_client).await;
                    return Err(AuthEnd::Refused);
                }
            }
        }
        if exchange.client_is_asked()
            && let Some((sequence, payload)) = take(&mut from_client)?
        {
            exchange.client_said((sequence, &payload), &mut letters);
            continue;
        }
        send(engine, &mut letters.to_engine).await.map_err(|_| AuthEnd::EngineGone)?;
        send(client, &mut letters.to_client).await.map_err(|_| AuthEnd::ClientGone)?;
        let asked = exchange.client_is_asked();
        tokio::select! {
            read = desk::read(engine, &mut from_engine) => match read {
                Ok(count) if count > 0 => {}
                Ok(_) | Err(_) => return Err(AuthEnd::EngineGone),
            },
            read = desk::read(client, &mut from_client), if asked => match read {
                Ok(count) if count > 0 => {}
                Ok(_) | Err(_) => return Err(AuthEnd::ClientGone),
            },
        }
    }
}

/// Writes out what is there for a peer.
///
/// # Cancel safety
/// Part of it may have been sent: the login is over.
async fn send(stream: &mut Stream, bytes: &mut BytesMut) -> std::io::Result<()> {
    if !bytes.is_empty() {
        stream.write_all(bytes).await?;
        stream.flush().await?;
        bytes.clear();
    }
    Ok(())
}

/// One whole packet, `None` when more bytes are needed.
fn take(held: &mut BytesMut) -> Result<Option<(u8, BytesMut)>, AuthEnd> {
    let Some(header) = frame::header(held) else { return Ok(None) };
    if header.payload > limits::LOGIN_PACKET_BYTES_MAX {
        return Err(AuthEnd::Broken("a packet longer than any of a login"));
    }
    if held.len() < HEADER + header.payload {
        return Ok(None);
    }
    let mut packet = held.split_to(HEADER + header.payload);
    let payload = packet.split_off(HEADER);
    Ok(Some((header.sequence, payload)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(plugin: &str, bridge: Bridge) -> Exchange {
        Exchange {
            bridge,
            method: Method::of(plugin.as_bytes()),
            nonce: vec![7; 20],
            step: Step::Relay,
            client_sequence: 2,
            engine_sequence: 3,
            client_is_asked: false,
            multi_factor: false,
        }
    }

    /// What goes to either side of packets from the engine (`true`) and the client.
    fn play(exchange: &mut Exchange, packets: &[(bool, u8, &[u8])]) -> (Vec<u8>, Vec<u8>) {
        let mut letters = Letters::default();
        for (from_engine, sequence, payload) in packets {
            if *from_engine {
                exchange.engine_said((*sequence, payload), &mut letters).unwrap();
            } else {
                assert!(exchange.client_is_asked(), "nobody asked for {payload:?}");
                exchange.client_said((*sequence, payload), &mut letters);
            }
        }
        (letters.to_client.to_vec(), letters.to_engine.to_vec())
    }

    #[test]
    fn a_straight_exchange_passes_with_each_sides_own_numbers() {
        let mut exchange = exchange("caching_sha2_password", Bridge::Straight);
        let packets: &[(bool, u8, &[u8])] =
            &[(true, 3, &[1, 4]), (false, 3, b"pw\0"), (true, 5, &[0, 0, 0, 2, 0, 0, 0])];
        let (client, engine) = play(&mut exchange, packets);
        assert_eq!(client, b"\x02\0\0\x02\x01\x04\x07\0\0\x04\0\0\0\x02\0\0\0");
        assert_eq!(engine, b"\x03\0\0\x04pw\0");
    }

    #[test]
    fn a_password_in_clear_never_goes_to_an_engine_in_plaintext() {
        for (plugin, request) in [("caching_sha2_password", 2), ("sha256_password", 1)] {
            let mut exchange = exchange(plugin, Bridge::Seal);
            let mut switch = vec![0xfe];
            switch.extend_from_slice(plugin.as_bytes());
            switch.extend_from_slice(b"\0abcdefghijklmnopqrst\0");
            let full: &[u8] = if request == 2 { &[1, 4] } else { &switch };
            let (_, engine) = play(&mut exchange, &[(true, 3, full), (false, 3, b"sesame\0")]);
            assert_eq!(engine, [1, 0, 0, 4, request], "{plugin}");
            assert!(!format!("{exchange:?}").contains("sesame"));
        }
    }

    #[test]
    fn a_change_of_user_counts_anew_and_hides_a_password_in_clear() {
        let change = b"\x11me\0\x07sesame\0app\0\x2d\0sha256_password\0\x01a";
        let mut straight = exchange("sha256_password", Bridge::Straight);
        assert_eq!(straight.change_user(change), None);
        assert_eq!((straight.client_sequence, straight.engine_sequence), (1, 1));
        let mut seal = exchange("mysql_native_password", Bridge::Seal);
        let sent = seal.change_user(change).unwrap();
        assert_eq!(sent, b"\x11me\0\x01\x01app\0\x2d\0sha256_password\0\x01a");
        let empty = b"\x11me\0\x01\0app\0\x2d\0sha256_password\0";
        assert_eq!(seal.change_user(empty), None);
        for length in 0..change.len() {
            let _may_be_none = seal.change_user(&change[..length]);
        }
    }

    #[test]
    fn another_factor_counts_only_where_it_was_agreed_on() {
        let next = b"\x02sha256_password\0abcdefghijklmnopqrst\0";
        for agreed in [false, true] {
            let mut exchange = exchange("caching_sha2_password", Bridge::Straight);
            exchange.multi_factor = agreed;
            let (client, _) = play(&mut exchange, &[(true, 3, next)]);
            assert_eq!(client[4..], next[..]);
            assert_eq!(exchange.method == Method::Sha256, agreed);
        }
    }
}
