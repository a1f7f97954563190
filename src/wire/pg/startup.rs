//! The first packets of a connection: encryption requests, cancel requests, the startup packet.
//!
//! Purpose: W23 and W25 up to the point where it is known what the client wants. Everything is
//! bounded in size; the caller bounds the time. Packets are read to their exact length, so bytes a
//! client (or somebody in between) sends in plaintext behind an encryption request are never taken
//! for bytes inside it: they reach the TLS handshake and break it. A capability in the startup
//! packet is taken out as the packet is read: nothing behind that has its secret. Called by
//! `session.rs`.

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::base::limits;
use crate::tls::{Stream, TlsError};
use crate::wire::pg::cancel::CancelKey;
use crate::wire::pg::frame;
use crate::wire::pg::options;
use crate::wire::shared::accepted::{Accepted, ClientSideTls};
use crate::wire::shared::capability::{Offered, POSTGRES_NAME, holds_secret, stays_as_it_is};

const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;
/// First byte of a TLS handshake record: direct TLS.
const TLS_HANDSHAKE: u8 = 0x16;

/// Why a connection got no further.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartupError {
    /// The client went away.
    #[error("the client closed the connection before it was set up")]
    Gone,
    /// A socket error.
    #[error("the connection failed before it was set up: {0}")]
    Io(#[from] std::io::Error),
    /// The TLS handshake failed.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// Not a startup packet; the text is for the client.
    #[error("{0}")]
    Invalid(&'static str),
    /// Plaintext where TLS is required.
    #[error("this listener takes encrypted connections only")]
    TlsRequired(Box<Stream>),
}

/// A name and its value, each a part of the packet that they came in.
type Parameter = (Bytes, Bytes);

/// The startup packet, kept as the bytes it was, less what it offers of capabilities.
#[derive(Debug)]
pub(crate) struct Startup {
    /// Protocol version number.
    version: u32,
    /// Names and values, in the client's order.
    parameters: Vec<Parameter>,
    /// Capabilities: in `options`, and as a parameter of their own name.
    pub(crate) offered: Vec<Offered>,
}

impl Startup {
    /// Takes the capabilities out. An offer of nothing is none.
    fn new(version: u32, mut parameters: Vec<Parameter>) -> Self {
        let mut offered = Vec::new();
        let came = stays_as_it_is().then(|| parameters.clone());
        parameters.retain_mut(|(name, value)| {
            if name.eq_ignore_ascii_case(POSTGRES_NAME) {
                offered.push(Offered::new(value));
                return false;
            }
            if *name == b"options"[..]
                && let Some((kept, found)) = options::take(value)
            {
                offered.extend(found);
                // Also where nothing is left: of several `options` the engine takes the last.
                *value = kept.into();
            }
            true
        });
        if parameters.iter().any(|(name, value)| holds_secret(name) || holds_secret(value)) {
            // Under another name: in an application's, say, which the engine logs.
            offered.push(Offered::unclear());
        }
        offered.retain(|one| !one.is_empty());
        Self { version, parameters: came.unwrap_or(parameters), offered }
    }

    /// A parameter's value as text; `None` when it isn't there or isn't UTF-8.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let (_, value) = self.parameters.iter().rev().find(|(n, _)| n == name.as_bytes())?;
        std::str::from_utf8(value).ok()
    }

    /// All values of a parameter, as they came.
    pub(crate) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let of_name = move |(n, _): &&Parameter| n == name.as_bytes();
        self.parameters.iter().filter(of_name).map(|(_, value)| value.as_ref())
    }

    /// A packet with these parameters.
    #[cfg(test)]
    pub(crate) fn sample<'a>(parameters: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let owned = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let owned = parameters.map(|(name, value)| (owned(name), owned(value)));
        Self::new(3 << 16, owned.collect())
    }

    /// The packet for the engine, with the database it knows the namespace by.
    pub(crate) fn packet(&self, database: &str) -> BytesMut {
        let texts = |(name, value): &Parameter| name.len() + value.len() + 2;
        let room = self.parameters.iter().map(texts).sum::<usize>() + 2 * database.len() + 32;
        let mut packet = BytesMut::with_capacity(room);
        packet.put_u32(0);
        packet.put_u32(self.version);
        let mut named = false;
        for (name, value) in &self.parameters {
            let is_database = *name == b"database"[..];
            named |= is_database;
            let value = if is_database { database.as_bytes() } else { value.as_ref() };
            for text in [name.as_ref(), value] {
                packet.put_slice(text);
                packet.put_u8(0);
            }
        }
        if !named && self.parameter("user") != Some(database) {
            packet.put_slice(b"database\0");
            packet.put_slice(database.as_bytes());
            packet.put_u8(0);
        }
        packet.put_u8(0);
        let length = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        if let Some(head) = packet.get_mut(..4) {
            head.copy_from_slice(&length.to_be_bytes());
        }
        packet
    }
}

/// What the client wants.
#[derive(Debug)]
pub(crate) enum Wish {
    /// A session.
    Session(Stream, Startup),
    /// To cancel another session's statement: process id and key. The connection is to be closed
    /// once that is delivered: a client waits for it before it sends its next statement.
    Cancel(Stream, i32, CancelKey),
}

/// Reads up to the startup or cancel packet, answering encryption requests.
///
/// # Cancel safety
/// Dropping the future closes the connection.
pub(crate) async fn greet(accepted: Accepted, tls: &ClientSideTls) -> Result<Wish, StartupError> {
    let (mut stream, mut encryption_asked) = match accepted {
        Accepted::Unix(unix) => (Stream::Unix(unix), false),
        Accepted::Tcp(tcp) => open_tcp(tcp, tls).await?,
    };
    let mut gss_asked = false;
    loop {
        let (code, body) = packet(&mut stream).await?;
        match code {
            SSL_REQUEST if encryption_asked => {
                return Err(StartupError::Invalid("a second encryption request"));
            }
            SSL_REQUEST => {
                encryption_asked = true;
                stream = answer_ssl(stream, tls).await?;
            }
            GSSENC_REQUEST if gss_asked => {
                return Err(StartupError::Invalid("a second GSSAPI encryption request"));
            }
            GSSENC_REQUEST => {
                gss_asked = true;
                stream.write_all(b"N").await?;
            }
            CANCEL_REQUEST => {
                let Some((pid, key)) = body.split_first_chunk::<4>() else {
                    return Err(StartupError::Invalid("a cancel request without a process id"));
                };
                return Ok(Wish::Cancel(stream, i32::from_be_bytes(*pid), CancelKey::of(key)));
            }
            version if version >> 16 == 3 => {
                if matches!(tls, ClientSideTls::Require(_))
                    && !stream.is_tls()
                    && !matches!(stream, Stream::Unix(_))
                {
                    return Err(StartupError::TlsRequired(Box::new(stream)));
                }
                let parameters = parameters(&body)?;
                return Ok(Wish::Session(stream, Startup::new(version, parameters)));
            }
            _ => return Err(StartupError::Invalid("a protocol other than PostgreSQL's version 3")),
        }
    }
}

/// Takes a connection up: whether it begins encrypted shows in its first byte.
///
/// # Cancel safety
/// Dropping the future closes the connection.
async fn open_tcp(tcp: TcpStream, tls: &ClientSideTls) -> Result<(Stream, bool), StartupError> {
    let mut first = [0; 1];
    if tcp.peek(&mut first).await? == 0 {
        return Err(StartupError::Gone);
    }
    match (first, tls) {
        ([TLS_HANDSHAKE], ClientSideTls::Allow(tls) | ClientSideTls::Require(tls)) => {
            Ok((tls.current().accept_direct(tcp).await?, true))
        }
        ([TLS_HANDSHAKE], ClientSideTls::Disable) => {
            Err(StartupError::Invalid("a TLS handshake where TLS is disabled"))
        }
        _ => Ok((Stream::Plain(tcp), false)),
    }
}

/// Answers a request for encryption, and makes the connection an encrypted one where it may be.
///
/// # Cancel safety
/// Dropping the future closes the connection.
async fn answer_ssl(mut stream: Stream, tls: &ClientSideTls) -> Result<Stream, StartupError> {
    match (stream, tls) {
        (Stream::Plain(mut tcp), ClientSideTls::Allow(tls) | ClientSideTls::Require(tls)) => {
            tcp.write_all(b"S").await?;
            Ok(tls.current().accept(tcp).await?)
        }
        (other, _) => {
            stream = other;
            stream.write_all(b"N").await?;
            Ok(stream)
        }
    }
}

/// One length-prefixed packet without a type: its code and what follows.
///
/// # Cancel safety
/// Dropping the future closes the connection.
async fn packet(stream: &mut Stream) -> Result<(u32, Bytes), StartupError> {
    let mut head = [0; 8];
    stream.read_exact(&mut head).await.map_err(gone)?;
    let [a, b, c, d, e, f, g, h] = head;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if !(8..=limits::STARTUP_PACKET_BYTES_MAX).contains(&length) {
        return Err(StartupError::Invalid("a startup packet of a length that can't be"));
    }
    let mut body = vec![0; length - 8];
    stream.read_exact(&mut body).await.map_err(gone)?;
    Ok((u32::from_be_bytes([e, f, g, h]), body.into()))
}

fn gone(error: std::io::Error) -> StartupError {
    if error.kind() == std::io::ErrorKind::UnexpectedEof {
        StartupError::Gone
    } else {
        StartupError::Io(error)
    }
}

fn parameters(body: &Bytes) -> Result<Vec<Parameter>, StartupError> {
    const BAD: StartupError = StartupError::Invalid("a startup packet without its terminator");
    let mut parameters = Vec::new();
    let mut rest = body.as_ref();
    loop {
        let (name, after) = frame::text(rest).ok_or(BAD)?;
        if name.is_empty() {
            return Ok(parameters);
        }
        let (value, next) = frame::text(after).ok_or(BAD)?;
        parameters.push((body.slice_ref(name), body.slice_ref(value)));
        rest = next;
    }
}

/// For the fuzzer: a body that is taken is relayed with all it had, and taken again.
#[cfg(debug_assertions)]
pub(crate) fn survives_relaying(body: &[u8]) -> Result<(), String> {
    const BAD: &str = "a packet of ours is not taken";
    let Ok(first) = parameters(&Bytes::copy_from_slice(body)) else { return Ok(()) };
    let startup = Startup::new(3 << 16, first);
    let packet = startup.packet("db");
    if packet.get(..4) != Some(&u32::try_from(packet.len()).unwrap_or(0).to_be_bytes()) {
        return Err("a packet of ours has a wrong length".to_owned());
    }
    let again = packet.get(8..).map(Bytes::copy_from_slice).ok_or(BAD)?;
    let again = parameters(&again).map_err(|_| BAD)?;
    if !Startup::new(3 << 16, again.clone()).offered.is_empty() {
        return Err("a capability is passed on".to_owned());
    }
    let kept = startup.parameters.iter().zip(&again).all(|(before, after)| {
        let database = before.0 == b"database"[..] && after.1 == b"db"[..];
        before.0 == after.0 && (database || before.1 == after.1)
    });
    match kept && again.len() >= startup.parameters.len() {
        true => Ok(()),
        false => Err(format!("{:?} became {again:?}", startup.parameters)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(body: &[u8]) -> Result<Vec<Parameter>, StartupError> {
        super::parameters(&Bytes::copy_from_slice(body))
    }

    #[test]
    fn the_packet_keeps_order_and_unknown_options_and_renames_the_database() {
        let body = b"user\0app\0_pq_.x\0\x31\0database\0route\0options\0-c a=b\0\0";
        let startup = Startup::new(196_608, parameters(body).unwrap());
        let packet = startup.packet("app");
        let expected = b"user\0app\0_pq_.x\0\x31\0database\0app\0options\0-c a=b\0\0";
        assert_eq!(&packet[8..], expected);
        assert_eq!(packet[..4], u32::try_from(packet.len()).unwrap().to_be_bytes());
    }

    #[test]
    fn a_client_without_a_database_gets_its_users() {
        let startup = Startup::new(196_608, parameters(b"user\0app\0\0").unwrap());
        assert_eq!(&startup.packet("app")[8..], b"user\0app\0\0");
        assert_eq!(&startup.packet("other")[8..], b"user\0app\0database\0other\0\0");
    }

    #[test]
    fn a_capability_is_taken_out_and_everything_else_is_passed_on() {
        let kept = |body: &[u8]| {
            let startup = Startup::new(196_608, parameters(body).unwrap());
            assert!(!format!("{startup:?}").contains("secret"));
            let offered: Vec<_> = startup.offered.iter().map(|one| one.expose().to_vec()).collect();
            (startup.packet("d")[8..].to_vec(), offered)
        };
        let secret = || vec![b"secret".to_vec()];
        let alone = b"user\0u\0options\0-c fencewire.capability=secret\0database\0d\0\0";
        let without = b"user\0u\0options\0\0database\0d\0\0";
        assert_eq!(kept(alone), (without.to_vec(), secret()));
        let named = b"user\0u\0Fencewire.Capability\0secret\0database\0d\0options\0\0\0";
        assert_eq!(kept(named), (b"user\0u\0database\0d\0options\0\0\0".to_vec(), secret()));
        let among = b"database\0d\0options\0-c a=b\\ c --fencewire.capability=secret  -e\0\0";
        assert_eq!(kept(among), (b"database\0d\0options\0-c a=b\\ c -e\0\0".to_vec(), secret()));
        let none = b"database\0d\0options\0 -c fencewire.capability= -c a=b \0\0";
        assert_eq!(kept(none), (b"database\0d\0options\0 -c a=b \0\0".to_vec(), Vec::new()));
    }

    #[test]
    fn a_packet_without_its_end_is_refused() {
        assert!(parameters(b"user\0app\0").is_err());
        assert!(parameters(b"user\0app").is_err());
    }
}
