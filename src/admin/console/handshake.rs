//! The login of a MySQL client.
//!
//! Purpose: `mysql_native_password` for the clients of MariaDB and of MySQL up to 8, and
//! `caching_sha2_password` for those that know only that. The library behind the console can do the
//! first one alone, and answers a wrong password with a number of its own; so the login is done
//! here, before the library is there. Whoever hasn't shown the key gets 1045 and is gone.
//!
//! Callers: `console/mysql.rs`. The key isn't here: `admin/auth.rs` checks replies.

use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::chatter::MYSQL_VERSION;
use super::packets::packet;
use crate::admin::auth::AdminKey;
use crate::base::arm::{Removable, removed};
use crate::base::limits;

const NATIVE: &str = "mysql_native_password";
const SHA2: &str = "caching_sha2_password";

const LONG_PASSWORD: u32 = 1;
const CONNECT_WITH_DB: u32 = 1 << 3;
const PROTOCOL_41: u32 = 1 << 9;
const TLS: u32 = 1 << 11;
const TRANSACTIONS: u32 = 1 << 13;
const SECURE_CONNECTION: u32 = 1 << 15;
const PLUGIN_AUTH: u32 = 1 << 19;
const CONNECT_ATTRIBUTES: u32 = 1 << 20;
const LENGTH_CODED_REPLY: u32 = 1 << 21;
pub(super) const DEPRECATE_EOF: u32 = 1 << 24;
/// What is offered.
const OFFERED: u32 = LONG_PASSWORD
    | CONNECT_WITH_DB
    | PROTOCOL_41
    | TRANSACTIONS
    | SECURE_CONNECTION
    | PLUGIN_AUTH
    | CONNECT_ATTRIBUTES
    | LENGTH_CODED_REPLY
    | DEPRECATE_EOF;

/// A client that has shown the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoggedIn {
    /// The name it gave; it doesn't matter.
    pub(super) user: String,
    /// The database it named; it doesn't matter either.
    pub(super) database: String,
    /// Whether it wants OK packets in place of EOF ones.
    pub(super) deprecate_eof: bool,
}

/// A client's first packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Response {
    capabilities: u32,
    user: String,
    reply: Vec<u8>,
    database: String,
    plugin: String,
}

/// How a login ended.
#[derive(Debug)]
pub(super) enum Login {
    /// Well.
    In(LoggedIn),
    /// The key wasn't shown; the client has been told.
    Refused,
}

struct Cursor<'b>(&'b [u8]);

impl<'b> Cursor<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (now, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(now)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|one| one[0])
    }

    fn text(&mut self) -> Option<&'b [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let text = self.take(end);
        self.byte()?;
        text
    }
}

/// Reads a client's first packet; `None` where it is none of the protocol that was offered.
pub(super) fn response(payload: &[u8]) -> Option<Response> {
    let mut at = Cursor(payload);
    let capabilities = u32::from_le_bytes(at.take(4)?.try_into().ok()?);
    if capabilities & PROTOCOL_41 == 0 || capabilities & TLS != 0 {
        return None;
    }
    at.take(4 + 1 + 23)?;
    let word = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let user = word(at.text()?);
    let reply = match capabilities & (LENGTH_CODED_REPLY | SECURE_CONNECTION) {
        0 => at.text()?,
        _ => {
            // A reply is shorter than what a length of more than one byte is for.
            let length = at.byte().filter(|length| *length < 0xfb)?;
            at.take(usize::from(length))?
        }
    };
    let reply = reply.to_vec();
    let database = match capabilities & CONNECT_WITH_DB {
        0 => String::new(),
        _ => at.text().map(word).unwrap_or_default(),
    };
    let plugin = match capabilities & PLUGIN_AUTH {
        0 => NATIVE.to_owned(),
        _ => at.text().map_or_else(|| NATIVE.to_owned(), word),
    };
    Some(Response { capabilities, user, reply, database, plugin })
}

fn greeting(connection: u32, salt: &[u8; 20]) -> Vec<u8> {
    let [low, high, more, most] = OFFERED.to_le_bytes();
    let mut out = vec![10];
    out.extend_from_slice(MYSQL_VERSION.as_bytes());
    out.push(0);
    out.extend_from_slice(&connection.to_le_bytes());
    out.extend_from_slice(&salt[..8]);
    // utf8mb4, autocommit.
    out.extend_from_slice(&[0, low, high, 45, 2, 0, more, most, 21]);
    out.extend_from_slice(&[0; 10]);
    out.extend_from_slice(&salt[8..]);
    out.push(0);
    out.extend_from_slice(NATIVE.as_bytes());
    out.push(0);
    out
}

/// One packet of a login, and its number.
async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let [low, middle, high, number] = head;
    let length = usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16;
    if length > limits::STARTUP_PACKET_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a login packet that is too long"));
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await?;
    Ok((number, payload))
}

async fn send<S: AsyncWrite + Unpin>(stream: &mut S, number: u8, payload: &[u8]) -> io::Result<()> {
    let mut out = BytesMut::new();
    packet(&mut out, number, payload);
    stream.write_all(&out).await?;
    stream.flush().await
}

fn error(number: u16, state: &str, words: &str) -> Vec<u8> {
    let mut out = vec![0xff];
    out.extend_from_slice(&number.to_le_bytes());
    out.push(b'#');
    out.extend_from_slice(state.as_bytes());
    out.extend_from_slice(words.as_bytes());
    out
}

/// Random bytes that the protocol can carry: no zero, no `$`.
fn salt() -> io::Result<[u8; 20]> {
    let mut salt = [0; 20];
    getrandom::fill(&mut salt).map_err(io::Error::other)?;
    for byte in &mut salt {
        *byte = b'!' + *byte % 90;
        if *byte == b'$' {
            *byte = b'#';
        }
    }
    Ok(salt)
}

/// Logs a client in.
///
/// Cancel safety: dropped half way the login has failed; close the connection.
pub(super) async fn log_in<S>(stream: &mut S, key: &AdminKey, connection: u32) -> io::Result<Login>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let salt = salt()?;
    send(stream, 0, &greeting(connection, &salt)).await?;
    let (number, payload) = read(stream).await?;
    let number = number.wrapping_add(1);
    let Some(said) = response(&payload) else {
        let words = "Bad handshake: this console takes protocol 4.1 without TLS";
        send(stream, number, &error(1043, "08S01", words)).await?;
        return Ok(Login::Refused);
    };
    let (number, shown) = match (said.plugin.as_str(), said.reply.len()) {
        (NATIVE, _) => (number, key.is_native_reply(&salt, &said.reply)),
        (SHA2, 32) => sha2(stream, key, &salt, (number, &said.reply)).await?,
        (SHA2, _) => {
            let (number, reply) = switch(stream, number, SHA2, &salt).await?;
            sha2(stream, key, &salt, (number, &reply)).await?
        }
        (_, _) => {
            let (number, reply) = switch(stream, number, NATIVE, &salt).await?;
            (number, key.is_native_reply(&salt, &reply))
        }
    };
    if !shown && !removed(Removable::ConsoleLogin) {
        let user: String = said.user.chars().take(64).collect();
        let words = format!(
            "Access denied for user '{user}': the password of this console is the admin key"
        );
        send(stream, number, &error(1045, "28000", &words)).await?;
        return Ok(Login::Refused);
    }
    send(stream, number, &[0, 0, 0, 2, 0, 0, 0]).await?;
    let deprecate_eof = said.capabilities & DEPRECATE_EOF != 0;
    Ok(Login::In(LoggedIn { user: said.user, database: said.database, deprecate_eof }))
}

/// Checks a reply; a right one is told so, as the method wants it before the OK.
async fn sha2<S: AsyncWrite + Unpin>(
    stream: &mut S,
    key: &AdminKey,
    salt: &[u8],
    (number, reply): (u8, &[u8]),
) -> io::Result<(u8, bool)> {
    if !key.is_sha2_reply(salt, reply) {
        return Ok((number, false));
    }
    const FAST: [u8; 2] = [1, 3];
    send(stream, number, &FAST).await?;
    Ok((number.wrapping_add(1), true))
}

/// Asks for another method's reply.
async fn switch<S>(
    stream: &mut S,
    number: u8,
    plugin: &str,
    salt: &[u8],
) -> io::Result<(u8, Vec<u8>)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let asked = [&[0xfe], plugin.as_bytes(), &[0], salt, &[0]].concat();
    send(stream, number, &asked).await?;
    let (number, reply) = read(stream).await?;
    Ok((number.wrapping_add(1), reply))
}

/// The first packet as the library behind the console is to read it: a login that it lets in.
pub(super) fn canned(client: &LoggedIn) -> Vec<u8> {
    let eof = if client.deprecate_eof { DEPRECATE_EOF } else { 0 };
    let capabilities = PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH | eof;
    let mut out = capabilities.to_le_bytes().to_vec();
    out.extend_from_slice(&[0, 0, 0, 1, 45]);
    out.extend_from_slice(&[0; 23]);
    out.extend_from_slice(b"console\0");
    out.push(0);
    out.extend_from_slice(NATIVE.as_bytes());
    out.push(0);
    out
}
