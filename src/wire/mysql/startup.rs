//! The first packets: the engine's greeting as clients get it, and a client's login packet.
//!
//! Purpose: W24 and W25 up to the point where it is known who wants which database. In MySQL's
//! protocol the server speaks first, and what it says holds the nonce that passwords are mixed
//! with: so the engine is connected to before the client hears anything, and gets to see the
//! engine's own greeting, less what the proxy can't relay. Greeting and login are edited in place
//! rather than built anew from parsed values, so that what isn't understood stays as it was. A
//! capability among the connection attributes is taken out as the login is read.
//!
//! Packets are bounded in size and read to their exact length, so that bytes behind a request for
//! TLS are never taken for bytes inside it. The caller bounds the time. Called by `session.rs`.

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use crate::base::limits;
use crate::tls::{Stream, TlsError};
use crate::wire::mysql::attributes;
use crate::wire::mysql::capabilities::{self as bits, Capabilities};
use crate::wire::mysql::frame::{self, HEADER};
use crate::wire::shared::accepted::{Accepted, ClientSideTls};
use crate::wire::shared::capability::{Offered, stays_as_it_is};

/// Bytes of a login packet before the user's name; a request for TLS has no more.
const LOGIN_HEAD: usize = 32;
/// Where MariaDB's own capability bits are in it.
const LOGIN_EXTENDED: usize = 28;

/// Why a connection got no further.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartupError {
    /// The peer went away.
    #[error("the connection was closed before it was set up")]
    Gone,
    /// A socket error.
    #[error("the connection failed before it was set up: {0}")]
    Io(std::io::Error),
    /// The TLS handshake failed.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// Not a packet that can be here.
    #[error("{0}")]
    Invalid(&'static str),
}

impl From<std::io::Error> for StartupError {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::UnexpectedEof { Self::Gone } else { Self::Io(error) }
    }
}

/// A packet of the login: its number and its payload.
pub(crate) type Packet = (u8, Vec<u8>);

/// Reads one packet and nothing behind it.
///
/// # Cancel safety
/// What was read of the packet is lost: the login is over.
pub(crate) async fn packet<S>(stream: &mut S) -> Result<Packet, StartupError>
where
    S: AsyncRead + Unpin,
{
    let mut head = [0; HEADER];
    stream.read_exact(&mut head).await?;
    let header = frame::header(&head).ok_or(StartupError::Gone)?;
    if header.payload > limits::LOGIN_PACKET_BYTES_MAX {
        return Err(StartupError::Invalid("a packet longer than any of a login"));
    }
    let mut payload = vec![0; header.payload];
    stream.read_exact(&mut payload).await?;
    Ok((header.sequence, payload))
}

/// Where the parts of a greeting are.
#[derive(Debug, Clone)]
pub(crate) struct Greeting {
    payload: Vec<u8>,
    /// Where the low half of the capability bits is.
    low: usize,
    /// The engine's version as it says it; a `?` in the place of one that is no text.
    pub(crate) version: String,
    /// The engine's number of the connection.
    pub(crate) thread: u32,
    /// What the engine offers.
    pub(crate) offered: Capabilities,
    /// What the password is mixed with.
    pub(crate) nonce: Vec<u8>,
    /// How the engine would like to be logged in to.
    pub(crate) plugin: Vec<u8>,
}

impl Greeting {
    /// Reads version 10 of the greeting, the only one since 1999.
    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let (version, rest) = frame::text(payload.strip_prefix(&[10])?)?;
        let (thread, rest) = rest.split_first_chunk::<4>()?;
        let (first, rest) = rest.split_first_chunk::<8>()?;
        let rest = rest.strip_prefix(&[0])?;
        let at = payload.len() - rest.len();
        let (low, rest) = rest.split_first_chunk::<2>()?;
        let (_charset_and_status, rest) = rest.split_first_chunk::<3>()?;
        let (high, rest) = rest.split_first_chunk::<2>()?;
        let (length, rest) = rest.split_first()?;
        let (_reserved, rest) = rest.split_first_chunk::<6>()?;
        let (extended, rest) = rest.split_first_chunk::<4>()?;
        let second = usize::from(*length).saturating_sub(8).max(13).min(rest.len());
        let (second, rest) = rest.split_at_checked(second)?;
        let mut nonce = first.to_vec();
        nonce.extend_from_slice(second.strip_suffix(&[0]).unwrap_or(second));
        let [a, b] = *low;
        let [c, d] = *high;
        let low = u32::from_le_bytes([a, b, c, d]);
        let extended = if low & bits::MYSQL == 0 { u32::from_le_bytes(*extended) } else { 0 };
        Some(Self {
            low: at,
            version: std::str::from_utf8(version).unwrap_or("?").to_owned(),
            thread: u32::from_le_bytes(*thread),
            offered: Capabilities::of(low, extended),
            nonce,
            plugin: frame::text(rest).map_or(rest, |(name, _)| name).to_vec(),
            payload: payload.to_vec(),
        })
    }

    /// What clients are offered: what the engine offers and the proxy can relay, and TLS if the
    /// listener has it.
    pub(crate) const fn relayed(&self, tls: bool) -> Capabilities {
        let relayed = Capabilities::of(bits::RELAYED, bits::RELAYED_EXTENDED);
        let tls = if tls { bits::SSL as u64 } else { 0 };
        Capabilities(self.offered.0 & relayed.0 | tls)
    }

    /// The greeting for clients.
    pub(crate) fn for_clients(&self, tls: bool) -> Vec<u8> {
        let mut payload = self.payload.clone();
        let [a, b, c, d, e @ ..] = self.relayed(tls).0.to_le_bytes();
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(place) = payload.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        };
        put(self.low, &[a, b]);
        put(self.low + 5, &[c, d]);
        if !self.offered.has(bits::MYSQL) {
            put(self.low + 14, &e);
        }
        payload
    }
}

/// A client's login packet, taken apart.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    head: [u8; LOGIN_HEAD],
    /// What the client wants of what it was offered.
    wanted: u32,
    pub(crate) user: Vec<u8>,
    /// Its first proof of the password; may be the password itself, under TLS.
    auth: Vec<u8>,
    /// The database it names; none also when it names an empty one.
    pub(crate) database: Option<Vec<u8>>,
    /// How it logs in.
    pub(crate) plugin: Option<Vec<u8>>,
    /// Connection attributes and what else is behind.
    rest: Vec<u8>,
    /// Capabilities that were among the attributes, and are no more.
    pub(crate) offered: Vec<Offered>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Login(user {}, auth ***)", self.user.escape_ascii())
    }
}

impl Login {
    /// Reads the packet of protocol 4.1, its proof with a length in front.
    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let (head, rest) = payload.split_first_chunk::<LOGIN_HEAD>()?;
        let wanted = head.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes))?;
        let has = |bit: u32| wanted & bit != 0;
        // Without SECURE_CONNECTION engines don't agree on where a proof ends and a schema's name
        // begins, and a session at the wrong gate is worse than none.
        if !has(bits::PROTOCOL_41) || !has(bits::SECURE_CONNECTION) {
            return None;
        }
        let (user, rest) = frame::text(rest)?;
        let (auth, rest) = if has(bits::PLUGIN_AUTH_LENENC) {
            frame::counted(rest)?
        } else {
            let (length, rest) = rest.split_first()?;
            rest.split_at_checked(usize::from(*length))?
        };
        // Servers take a text at the very end also without its NUL.
        let ending = |rest| frame::text(rest).unwrap_or((rest, &[]));
        let (database, rest) =
            if has(bits::CONNECT_WITH_DB) { ending(rest) } else { (&[][..], rest) };
        let (plugin, rest) = if has(bits::PLUGIN_AUTH) {
            let (name, rest) = ending(rest);
            (Some(name.to_vec()), rest)
        } else {
            (None, rest)
        };
        let attributes = has(bits::CONNECT_ATTRS).then(|| attributes::take(rest)).flatten();
        let (kept, offered) = attributes.unwrap_or_else(|| (rest.to_vec(), Vec::new()));
        let rest = if stays_as_it_is() { rest.to_vec() } else { kept };
        Some(Self {
            head: *head,
            wanted,
            user: user.to_vec(),
            auth: auth.to_vec(),
            database: Some(database.to_vec()).filter(|name| !name.is_empty()),
            plugin,
            rest,
            offered: offered.into_iter().filter(|one| !one.is_empty()).collect(),
        })
    }

    /// The character set's number.
    pub(crate) fn charset(&self) -> u8 {
        self.head.get(8).copied().unwrap_or_default()
    }

    /// Its first proof of the password.
    pub(crate) fn auth(&self) -> &[u8] {
        &self.auth
    }

    /// Puts another proof in its place.
    pub(crate) fn set_auth(&mut self, plugin: Option<&[u8]>, auth: Vec<u8>) {
        if let (Some(own), Some(name)) = (&mut self.plugin, plugin) {
            *own = name.to_vec();
        }
        self.auth = auth;
    }

    /// A connection attribute, as the client gives it.
    pub(crate) fn attribute(&self, name: &[u8]) -> Option<&[u8]> {
        if self.wanted & bits::CONNECT_ATTRS == 0 {
            return None;
        }
        let (mut all, _) = frame::counted(&self.rest)?;
        loop {
            let (key, rest) = frame::counted(all)?;
            let (value, rest) = frame::counted(rest)?;
            if key == name {
                return Some(value);
            }
            all = rest;
        }
    }

    /// What both ends have agreed on.
    pub(crate) fn agreed(&self, greeting: &Greeting) -> Capabilities {
        let extended = if self.wanted & bits::MYSQL == 0 { self.extended() } else { 0 };
        let wanted = Capabilities::of(self.wanted, extended);
        Capabilities(wanted.0 & greeting.relayed(false).0)
    }

    fn extended(&self) -> u32 {
        let bytes = self.head.get(LOGIN_EXTENDED..).and_then(<[u8]>::first_chunk::<4>);
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// The first bytes of the packet for the engine, and as a whole a request for TLS.
    pub(crate) fn head_for(&self, tls: bool) -> [u8; LOGIN_HEAD] {
        let mut head = self.head;
        let wanted = self.wanted & bits::RELAYED | if tls { bits::SSL } else { 0 };
        if let Some(place) = head.first_chunk_mut::<4>() {
            *place = wanted.to_le_bytes();
        }
        if self.wanted & bits::MYSQL == 0
            && let Some(place) = head.last_chunk_mut::<4>()
        {
            *place = (self.extended() & bits::RELAYED_EXTENDED).to_le_bytes();
        }
        head
    }

    /// The packet for the engine, with the database it knows the namespace by.
    pub(crate) fn packet(&self, tls: bool, database: Option<&str>) -> Vec<u8> {
        let mut packet = self.head_for(tls).to_vec();
        packet.extend_from_slice(&self.user);
        packet.push(0);
        let has = |bit: u32| self.wanted & bit != 0;
        if has(bits::PLUGIN_AUTH_LENENC) {
            frame::put_number(&mut packet, self.auth.len() as u64);
            packet.extend_from_slice(&self.auth);
        } else {
            // It came with a length of one byte, and what replaces it is shorter.
            packet.push(u8::try_from(self.auth.len()).unwrap_or(u8::MAX));
            packet.extend_from_slice(&self.auth);
        }
        if has(bits::CONNECT_WITH_DB) {
            packet.extend_from_slice(database.unwrap_or_default().as_bytes());
            packet.push(0);
        }
        if let Some(plugin) = &self.plugin {
            packet.extend_from_slice(plugin);
            packet.push(0);
        }
        packet.extend_from_slice(&self.rest);
        packet
    }
}

/// A client that has sent its login.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) client: Stream,
    pub(crate) login: Login,
    /// The number of its login packet.
    pub(crate) sequence: u8,
}

/// How reading the login ended.
#[derive(Debug)]
pub(crate) enum Knock {
    /// With a login.
    Login(Box<Arrived>),
    /// In plaintext where TLS is required: the stream and the next packet's number.
    Plaintext(Stream, u8),
    /// With something that is no login.
    Nonsense(Stream, u8),
}

/// Sends the greeting and reads the login, through a change to TLS if the client wants one.
///
/// # Cancel safety
/// Dropping the future closes the connection.
pub(crate) async fn greet(
    mut client: Stream,
    greeting: &Greeting,
    tls: &ClientSideTls,
) -> Result<Knock, StartupError> {
    let offers = !matches!(tls, ClientSideTls::Disable) && matches!(client, Stream::Plain(_));
    let mut hello = BytesMut::new();
    frame::put(&mut hello, 0, &greeting.for_clients(offers));
    client.write_all(&hello).await?;
    client.flush().await?;
    let (mut sequence, mut payload) = packet(&mut client).await?;
    let wants_tls = payload.len() == LOGIN_HEAD
        && payload.first_chunk::<4>().is_some_and(|b| u32::from_le_bytes(*b) & bits::SSL != 0);
    if wants_tls {
        client = match (client, tls) {
            (Stream::Plain(tcp), ClientSideTls::Allow(tls) | ClientSideTls::Require(tls)) => {
                tls.current().accept_nameless(tcp).await?
            }
            (client, _) => return Ok(Knock::Nonsense(client, sequence.wrapping_add(1))),
        };
        (sequence, payload) = packet(&mut client).await?;
    }
    let required = matches!(tls, ClientSideTls::Require(_)) && matches!(client, Stream::Plain(_));
    if required {
        return Ok(Knock::Plaintext(client, sequence.wrapping_add(1)));
    }
    Ok(match Login::parse(&payload) {
        Some(login) => Knock::Login(Box::new(Arrived { client, login, sequence })),
        None => Knock::Nonsense(client, sequence.wrapping_add(1)),
    })
}

/// The stream of a connection as accepted.
pub(crate) fn stream(accepted: Accepted) -> Stream {
    match accepted {
        Accepted::Tcp(tcp) => Stream::Plain(tcp),
        Accepted::Unix(unix) => Stream::Unix(unix),
    }
}

/// For the fuzzer: a login or a greeting that is taken goes on with all it had, and is taken again.
#[cfg(debug_assertions)]
pub(crate) fn survives_relaying(payload: &[u8]) -> Result<(), String> {
    if let Some(first) = Greeting::parse(payload) {
        let again = Greeting::parse(&first.for_clients(false)).ok_or("a greeting isn't taken")?;
        let kept = (&again.version, again.thread, &again.nonce, &again.plugin)
            == (&first.version, first.thread, &first.nonce, &first.plugin);
        let less = again.offered == first.relayed(false);
        if !kept || !less || again.payload.len() != payload.len() {
            return Err(format!("{first:?} became {again:?}"));
        }
    }
    let Some(first) = Login::parse(payload) else { return Ok(()) };
    let Some(database) = first.database.as_deref().map(std::str::from_utf8).transpose().ok() else {
        return Ok(());
    };
    for tls in [false, true] {
        let packet = first.packet(tls, database);
        let again = Login::parse(&packet).ok_or("a login isn't taken")?;
        let same = (&again.user, &again.auth, &again.database, &again.plugin, &again.rest)
            == (&first.user, &first.auth, &first.database, &first.plugin, &first.rest);
        let others = again.wanted & !bits::RELAYED & !bits::SSL;
        if !same || again.charset() != first.charset() || others != 0 {
            // Their proofs of a password stay out of what is said.
            return Err(format!("{first:?} became {again:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(low: u32, extended: u32) -> Vec<u8> {
        let [a, b, c, d] = low.to_le_bytes();
        let mut payload = b"\x0a5.5.5-10.11.19-MariaDB\0\x07\x01\0\0abcdefgh\0".to_vec();
        payload.extend_from_slice(&[a, b, 8, 2, 0, c, d, 21, 0, 0, 0, 0, 0, 0]);
        payload.extend_from_slice(&extended.to_le_bytes());
        payload.extend_from_slice(b"ijklmnopqrst\0mysql_native_password\0");
        payload
    }

    #[test]
    fn clients_see_the_greeting_less_what_cannot_be_relayed() {
        let found = Greeting::parse(&greeting(0x81ff_fffe, 0x1f)).unwrap();
        assert_eq!(found.nonce, b"abcdefghijklmnopqrst");
        assert_eq!((found.thread, found.plugin.as_slice()), (263, &b"mysql_native_password"[..]));
        assert_eq!(found.version, "5.5.5-10.11.19-MariaDB");
        // COMPRESS and SSL are out, and so is COM_MULTI.
        assert_eq!(found.for_clients(false), greeting(0x81ff_f7de, 0x1d));
        assert_eq!(found.for_clients(true), greeting(0x81ff_ffde, 0x1d));
    }

    #[test]
    fn a_mysql_greeting_keeps_its_reserved_bytes() {
        let found = Greeting::parse(&greeting(0xdfff_ffff, 0x55)).unwrap();
        assert!(!found.offered.has_extended(1));
        assert_eq!(found.for_clients(false), greeting(0xdbff_f7df, 0x55));
    }

    #[test]
    fn what_is_no_greeting_is_not_read() {
        let whole = greeting(0x81ff_fffe, 0);
        for length in 0..70 {
            let _may_be_none = Greeting::parse(&whole[..length]);
        }
        assert!(Greeting::parse(&whole[..40]).is_none());
        assert!(Greeting::parse(b"\xff\x10\x04Too many connections").is_none());
    }

    fn login(wanted: u32, tail: &[u8]) -> Vec<u8> {
        let mut payload = wanted.to_le_bytes().to_vec();
        payload.extend_from_slice(&[0, 0, 0, 1, 45]);
        payload.extend_from_slice(&[0; 19]);
        payload.extend_from_slice(&[0xff, 0, 0, 0]);
        payload.extend_from_slice(tail);
        payload
    }

    #[test]
    fn a_login_goes_out_as_it_came_but_for_database_and_bits() {
        let common = bits::PROTOCOL_41 | bits::SECURE_CONNECTION | bits::PLUGIN_AUTH;
        let wanted = common | bits::CONNECT_WITH_DB | 1 << 5 | bits::SSL;
        let tail = b"me\0\x03xyzroute\0caching_sha2_password\0\x02\x01\x61";
        let found = Login::parse(&login(wanted, tail)).unwrap();
        assert_eq!(found.database.as_deref(), Some(&b"route"[..]));
        assert_eq!((found.user.as_slice(), found.auth()), (&b"me"[..], &b"xyz"[..]));
        assert_eq!(found.charset(), 45);
        let expected = b"me\0\x03xyzapp\0caching_sha2_password\0\x02\x01\x61";
        let mut out = login(common | bits::CONNECT_WITH_DB, expected);
        // A MariaDB client: of its own bits the known ones stay.
        out[28] = 0x3d;
        assert_eq!(found.packet(false, Some("app")), out);
        out[..4].copy_from_slice(&(common | bits::CONNECT_WITH_DB | bits::SSL).to_le_bytes());
        assert_eq!(found.packet(true, Some("app")), out);
        assert_eq!(found.head_for(true)[..], out[..32]);
        assert!(!format!("{found:?}").contains("xyz"));
    }

    #[test]
    fn connection_attributes_are_found_by_name() {
        let wanted = bits::PROTOCOL_41 | bits::SECURE_CONNECTION | bits::CONNECT_ATTRS;
        let found = Login::parse(&login(wanted, b"me\0\0\x0b\x01a\x02bc\x01d\x03efg")).unwrap();
        assert_eq!(found.attribute(b"a"), Some(&b"bc"[..]));
        assert_eq!(found.attribute(b"d"), Some(&b"efg"[..]));
        assert_eq!(found.attribute(b"e"), None);
        let cut = Login::parse(&login(wanted, b"me\0\0\x0b\x01a")).unwrap();
        assert_eq!(cut.attribute(b"a"), None);
    }

    #[test]
    fn other_forms_of_the_proof_and_no_database() {
        let secure = bits::PROTOCOL_41 | bits::SECURE_CONNECTION;
        let lenenc = secure | bits::PLUGIN_AUTH_LENENC | bits::MYSQL;
        let payload = login(lenenc, b"me\0\x03xyz");
        let found = Login::parse(&payload).unwrap();
        assert_eq!((found.auth(), &found.database), (&b"xyz"[..], &None));
        assert_eq!(found.packet(false, None), payload);
        let unmeasured = bits::PROTOCOL_41 | bits::MYSQL;
        assert!(Login::parse(&login(unmeasured, b"me\0xyz\0")).is_none());
        assert!(Login::parse(&login(lenenc & !bits::PROTOCOL_41, b"me\0\0")).is_none());
        assert!(Login::parse(&login(lenenc, b"me")).is_none());
        assert!(Login::parse(&login(lenenc, b"me\0\x09x")).is_none());
        assert!(Login::parse(b"short").is_none());
    }
}
