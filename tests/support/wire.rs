//! A raw PostgreSQL client: one blocking socket, frames in and out, nothing hidden.
//!
//! It logs in as a role that the server trusts (`wire`), or with a clear-text password. It speaks
//! protocol 3.0 and knows the length and tag of a frame, and little else.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::pipe::Pipe;

/// One frame: its tag, and its body without the length.
pub type Frame = (u8, Vec<u8>);

/// The fields of an error or notice by their one-letter names.
pub type Fields = BTreeMap<char, String>;

/// How long a frame that must come may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection that is logged in.
pub struct Wire {
    stream: Pipe,
    buffer: Vec<u8>,
    port: u16,
    /// The body of BackendKeyData: process id and secret.
    pub key: Vec<u8>,
    /// ParameterStatus values, the latest of each.
    pub parameters: BTreeMap<String, String>,
    /// The transaction status of the last ReadyForQuery that was read whole.
    pub status: char,
}

/// Why an exchange has no answer.
#[derive(Debug)]
pub enum Failed {
    /// The connection ended, after an error with this SQLSTATE if there was one.
    Closed(Option<String>),
    /// Nothing came for as long as anything may take.
    Silent,
}

/// What came back up to and including one ReadyForQuery.
#[derive(Debug)]
pub struct Answer {
    pub frames: Vec<Frame>,
    /// `I`, `T` or `E`.
    pub status: char,
}

impl Answer {
    /// The values of all DataRows as text.
    pub fn rows(&self) -> Vec<Vec<Option<String>>> {
        let rows = self.frames.iter().filter(|f| f.0 == b'D');
        rows.map(|(_, body)| columns(body)).collect()
    }

    /// The first column of the first row. Panics when there is none.
    pub fn cell(&self) -> String {
        let rows = self.rows();
        let first = rows.first().and_then(|row| row.first().cloned().flatten());
        first.unwrap_or_else(|| panic!("no value in {self:?}"))
    }

    /// The command tags, such as `INSERT 0 1`.
    pub fn tags(&self) -> Vec<String> {
        self.frames.iter().filter(|f| f.0 == b'C').map(|f| cstr(&f.1)).collect()
    }

    /// The first error, if there is one.
    pub fn error(&self) -> Option<Fields> {
        self.frames.iter().find(|f| f.0 == b'E').map(|f| fields(&f.1))
    }

    /// The first error's SQLSTATE, if there is an error.
    pub fn code(&self) -> Option<String> {
        self.error().map(|f| f[&'C'].clone())
    }

    /// Panics when there was an error.
    #[track_caller]
    pub fn ok(self) -> Self {
        if let Some(error) = self.error() {
            panic!("unexpected error: {error:?}");
        }
        self
    }
}

impl Wire {
    /// Connects to 127.0.0.1 and logs in. Panics with the server's error when refused.
    #[track_caller]
    pub fn connect(port: u16, user: &str, database: &str) -> Self {
        Self::try_connect(port, user, database, &[])
            .unwrap_or_else(|e| panic!("{user} can't log in to {database} on port {port}: {e:?}"))
    }

    /// Connects and logs in with more start-up parameters; `password` among them answers a request
    /// for a clear-text password and isn't sent as a parameter.
    ///
    /// # Errors
    /// The fields of the server's ErrorResponse.
    pub fn try_connect(
        port: u16,
        user: &str,
        database: &str,
        parameters: &[(&str, &str)],
    ) -> Result<Self, Fields> {
        let mut body = vec![0, 3, 0, 0];
        for (name, value) in [("user", user), ("database", database)].iter().chain(parameters) {
            if *name != "password" {
                put_cstr(&mut body, name);
                put_cstr(&mut body, value);
            }
        }
        body.push(0);
        let mut wire = Self::open(port);
        wire.send_untagged(&body);
        let password = parameters.iter().find(|p| p.0 == "password").map(|p| p.1);
        loop {
            let (tag, body) = wire.read_frame();
            match (tag, &body) {
                (b'Z', _) => return Ok(wire),
                (b'E', _) => return Err(fields(&body)),
                (b'K', _) => wire.key = body,
                (b'R', _) if body == [0, 0, 0, 0] => {}
                (b'R', _) if body == [0, 0, 0, 3] => {
                    let password = password.expect("the server wants a password");
                    wire.send(b'p', &cstring(password));
                }
                (b'R', _) => panic!("this client can't do authentication {body:?}"),
                _ => {} // ParameterStatus (kept by read_frame), notices
            }
        }
    }

    /// Connects and sends nothing.
    pub fn open(port: u16) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let stream = TcpStream::connect_timeout(&address, PATIENCE)
            .unwrap_or_else(|e| panic!("can't connect to {address}: {e}"));
        stream.set_nodelay(true).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self::over(Pipe::Plain(stream), port)
    }

    /// Connects and speaks TLS: at once, or behind an SSLRequest that is answered with the byte
    /// that comes back too.
    ///
    /// # Errors
    /// The handshake's, or that the server wouldn't.
    pub fn open_encrypted(port: u16, at_once: bool) -> std::io::Result<Self> {
        let mut wire = Self::open(port);
        if !at_once {
            wire.send_untagged(&80_877_103_u32.to_be_bytes());
            let answer = wire.read_byte()?;
            if answer != b'S' {
                return Err(std::io::Error::other(format!("answered {answer} to SSLRequest")));
            }
        }
        let tcp = wire.stream.socket().try_clone()?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        Ok(Self::over(Pipe::encrypted(tcp)?, port))
    }

    fn over(stream: Pipe, port: u16) -> Self {
        let (buffer, key, parameters) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { stream, buffer, port, key, parameters, status: 'I' }
    }

    /// One byte without a frame around it: the answer to an encryption request.
    ///
    /// # Errors
    /// The socket's, or that the server closed it.
    pub fn read_byte(&mut self) -> std::io::Result<u8> {
        let mut byte = [0];
        self.stream.socket().set_read_timeout(Some(PATIENCE))?;
        self.stream.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    /// Says that nothing more will be sent.
    pub fn shut(&mut self) {
        self.stream.socket().shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// Sends one frame.
    pub fn send(&mut self, tag: u8, body: &[u8]) {
        self.send_raw(&frame(tag, body));
    }

    /// Sends a start-up style packet: a length and a body.
    pub fn send_untagged(&mut self, body: &[u8]) {
        let raw = frame(b'?', body);
        self.send_raw(&raw[1..]);
    }

    /// Sends bytes as they are, such as several frames at once.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("the server closed the connection");
    }

    /// As [`Self::send_raw`].
    ///
    /// # Errors
    /// The socket's.
    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// The next frame. Panics when none comes.
    #[track_caller]
    pub fn read_frame(&mut self) -> Frame {
        match self.try_read_frame(PATIENCE) {
            Ok(Some(frame)) => frame,
            Ok(None) => panic!("no frame after {PATIENCE:?}"),
            Err(e) => panic!("the connection ended: {e}"),
        }
    }

    /// The next frame; `None` when none has come within `limit`.
    ///
    /// # Errors
    /// `UnexpectedEof` when the server closed the connection, or the socket's error.
    pub fn try_read_frame(&mut self, limit: Duration) -> std::io::Result<Option<Frame>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(frame) = self.take_frame() {
                return Ok(Some(frame));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.stream.socket().set_read_timeout(Some(left))?;
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// What was read of a frame whose end hasn't come.
    pub fn unfinished(&self) -> &[u8] {
        &self.buffer
    }

    fn take_frame(&mut self) -> Option<Frame> {
        let length = u32::from_be_bytes(self.buffer.get(1..5)?.try_into().unwrap()) as usize;
        if self.buffer.len() < 1 + length {
            return None;
        }
        let rest = self.buffer.split_off(1 + length);
        let frame = std::mem::replace(&mut self.buffer, rest);
        let (tag, body) = (frame[0], frame[5..].to_vec());
        if tag == b'S' {
            let (name, value) = (cstr(&body), cstr(&body[cstr(&body).len() + 1..]));
            self.parameters.insert(name, value);
        }
        Some((tag, body))
    }

    /// The next frame's tag, length of body, and a sum over its bytes; the body isn't kept.
    ///
    /// # Errors
    /// The socket's.
    pub fn skim(&mut self) -> std::io::Result<(u8, usize, u64)> {
        self.stream.socket().set_read_timeout(Some(PATIENCE))?;
        let mut head = [0; 5];
        self.take_bytes(&mut head)?;
        let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize - 4;
        let (mut left, mut sum) = (length, 0_u64);
        let mut chunk = vec![0; 64 * 1024];
        while left > 0 {
            let part = left.min(chunk.len());
            self.take_bytes(&mut chunk[..part])?;
            for byte in &chunk[..part] {
                sum = sum.wrapping_mul(31).wrapping_add(u64::from(*byte));
            }
            left -= part;
        }
        Ok((head[0], length, sum))
    }

    fn take_bytes(&mut self, into: &mut [u8]) -> std::io::Result<()> {
        let kept = self.buffer.len().min(into.len());
        into[..kept].copy_from_slice(&self.buffer[..kept]);
        self.buffer.drain(..kept);
        self.stream.read_exact(&mut into[kept..])
    }

    /// Reads up to the next ReadyForQuery.
    #[track_caller]
    pub fn until_ready(&mut self) -> Answer {
        let mut frames = Vec::new();
        loop {
            let frame = self.read_frame();
            let ready = (frame.0 == b'Z').then(|| frame.1[0] as char);
            frames.push(frame);
            if let Some(status) = ready {
                return Answer { frames, status };
            }
        }
    }

    /// Sends bytes and reads up to the next ReadyForQuery; a lost connection is an answer, too.
    ///
    /// # Errors
    /// [`Failed`].
    pub fn try_exchange(&mut self, bytes: &[u8]) -> Result<Answer, Failed> {
        // What can't be written may have been answered before: the reading tells.
        let _ = self.stream.write_all(bytes);
        let mut frames: Vec<Frame> = Vec::new();
        loop {
            match self.try_read_frame(PATIENCE) {
                Ok(Some((b'Z', body))) => {
                    self.status = body[0] as char;
                    return Ok(Answer { frames, status: self.status });
                }
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => return Err(Failed::Silent),
                Err(_) => return Err(Failed::Closed(Answer { frames, status: '?' }.code())),
            }
        }
    }

    /// Sends a simple query and reads its whole answer.
    #[track_caller]
    pub fn query(&mut self, sql: &str) -> Answer {
        self.send_raw(&query(sql));
        self.until_ready()
    }

    /// One statement by Parse, Bind, Execute and Sync, with text parameters; the whole answer.
    #[track_caller]
    pub fn extended(&mut self, sql: &str, parameters: &[Option<&str>]) -> Answer {
        let parts = [parse("", sql), bind("", "", parameters), execute("", 0), sync()];
        self.send_raw(&parts.concat());
        self.until_ready()
    }

    /// Reads up to the next error, which must have this SQLSTATE; returns its fields.
    #[track_caller]
    pub fn expect_error(&mut self, code: &str) -> Fields {
        loop {
            let (tag, body) = self.read_frame();
            match tag {
                b'E' => {
                    let fields = fields(&body);
                    assert_eq!(fields[&'C'], code, "another error than expected: {fields:?}");
                    return fields;
                }
                b'Z' => panic!("no error {code} came before ReadyForQuery"),
                _ => {}
            }
        }
    }

    /// Sends a CancelRequest for this session on a connection of its own; returns when the server
    /// has closed that connection, which is all the answer there is.
    pub fn cancel(&self) {
        self.canceller()();
    }

    /// [`Wire::cancel`] for another thread.
    pub fn canceller(&self) -> impl Fn() + Send + use<> {
        let (port, key) = (self.port, self.key.clone());
        move || {
            let mut other = Self::open(port);
            let mut body = 80_877_102_u32.to_be_bytes().to_vec();
            body.extend_from_slice(&key);
            other.send_untagged(&body);
            let mut rest = Vec::new();
            other.stream.socket().set_read_timeout(Some(PATIENCE)).unwrap();
            let _ = other.stream.read_to_end(&mut rest);
        }
    }

    /// The engine's process id as BackendKeyData gave it.
    pub fn backend_pid(&self) -> u32 {
        u32::from_be_bytes(self.key[..4].try_into().unwrap())
    }

    /// Says that nothing more will be sent; answers can still be read.
    pub fn half_close(&mut self) {
        // The server may have closed first.
        let _ = self.stream.socket().shutdown(std::net::Shutdown::Write);
    }

    /// The client's own port of this connection.
    pub fn local_port(&self) -> u16 {
        self.stream.socket().local_addr().unwrap().port()
    }

    /// Ends the session as a polite client does.
    pub fn terminate(mut self) {
        self.send(b'X', &[]);
    }

    /// True when the server has closed the connection (after frames still to be read).
    pub fn closed_within(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.try_read_frame(left) {
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }
}

/// A whole frame.
pub fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("a frame over 4 GiB");
    let mut out = vec![tag];
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(body);
    out
}

/// Query.
pub fn query(sql: &str) -> Vec<u8> {
    frame(b'Q', &cstring(sql))
}

/// Parse, without parameter types.
pub fn parse(name: &str, sql: &str) -> Vec<u8> {
    let mut body = cstring(name);
    put_cstr(&mut body, sql);
    body.extend_from_slice(&[0, 0]);
    frame(b'P', &body)
}

/// Bind with text parameters and text results.
pub fn bind(portal: &str, statement: &str, parameters: &[Option<&str>]) -> Vec<u8> {
    let mut body = cstring(portal);
    put_cstr(&mut body, statement);
    body.extend_from_slice(&[0, 0]);
    let count = u16::try_from(parameters.len()).expect("too many parameters");
    body.extend_from_slice(&count.to_be_bytes());
    for parameter in parameters {
        let length = parameter.map_or(-1, |p| i32::try_from(p.len()).unwrap());
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(parameter.unwrap_or_default().as_bytes());
    }
    body.extend_from_slice(&[0, 0]);
    frame(b'B', &body)
}

/// Describe a statement (`S`) or portal (`P`).
pub fn describe(kind: u8, name: &str) -> Vec<u8> {
    frame(b'D', &[vec![kind], cstring(name)].concat())
}

/// Close a statement (`S`) or portal (`P`).
pub fn close(kind: u8, name: &str) -> Vec<u8> {
    frame(b'C', &[vec![kind], cstring(name)].concat())
}

/// Execute at most `rows` rows (0 = all).
pub fn execute(portal: &str, rows: u32) -> Vec<u8> {
    let mut body = cstring(portal);
    body.extend_from_slice(&rows.to_be_bytes());
    frame(b'E', &body)
}

/// Sync.
pub fn sync() -> Vec<u8> {
    frame(b'S', &[])
}

/// Flush.
pub fn flush() -> Vec<u8> {
    frame(b'H', &[])
}

/// CopyData.
pub fn copy_data(data: &[u8]) -> Vec<u8> {
    frame(b'd', data)
}

/// CopyDone.
pub fn copy_done() -> Vec<u8> {
    frame(b'c', &[])
}

/// The fields of an ErrorResponse or NoticeResponse body.
pub fn fields(body: &[u8]) -> Fields {
    let parts = body.split(|b| *b == 0).filter(|part| !part.is_empty());
    parts.map(|p| (p[0] as char, String::from_utf8_lossy(&p[1..]).into_owned())).collect()
}

fn put_cstr(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

fn cstring(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put_cstr(&mut out, text);
    out
}

/// The text up to the first NUL.
pub fn cstr(body: &[u8]) -> String {
    let end = body.iter().position(|b| *b == 0).unwrap_or(body.len());
    String::from_utf8_lossy(&body[..end]).into_owned()
}

fn columns(mut body: &[u8]) -> Vec<Option<String>> {
    let mut take = |n: usize| {
        let (head, rest) = body.split_at(n);
        body = rest;
        head
    };
    let count = u16::from_be_bytes(take(2).try_into().unwrap());
    let mut out = Vec::new();
    for _ in 0..count {
        let length = i32::from_be_bytes(take(4).try_into().unwrap());
        let value = usize::try_from(length).ok().map(&mut take);
        out.push(value.map(|v| String::from_utf8_lossy(v).into_owned()));
    }
    out
}
