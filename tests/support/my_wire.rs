//! A raw MySQL client: one blocking socket, packets in and out, nothing hidden.
//!
//! It logs in by `mysql_native_password` and `caching_sha2_password` (all its ways), in plaintext
//! or over TLS. Everything behind the login is a packet that the test sends and packets that it
//! reads; [`MyWire::query`] reads a whole answer.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use mysql_common::scramble::{scramble_native, scramble_sha256};

use super::pipe::Pipe;

/// How long a packet that must come may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest payload of one packet; one this long is followed by another.
pub const PACKET_MAX: usize = 0xFF_FFFF;

/// Capability bits that tests name.
pub mod flag {
    pub const LONG_PASSWORD: u32 = 1;
    pub const FOUND_ROWS: u32 = 1 << 1;
    pub const CONNECT_WITH_DB: u32 = 1 << 3;
    pub const COMPRESS: u32 = 1 << 5;
    pub const LOCAL_FILES: u32 = 1 << 7;
    pub const PROTOCOL_41: u32 = 1 << 9;
    pub const SSL: u32 = 1 << 11;
    pub const TRANSACTIONS: u32 = 1 << 13;
    pub const SECURE_CONNECTION: u32 = 1 << 15;
    pub const MULTI_STATEMENTS: u32 = 1 << 16;
    pub const MULTI_RESULTS: u32 = 1 << 17;
    pub const PS_MULTI_RESULTS: u32 = 1 << 18;
    pub const PLUGIN_AUTH: u32 = 1 << 19;
    pub const CONNECT_ATTRS: u32 = 1 << 20;
    pub const PLUGIN_AUTH_LENENC: u32 = 1 << 21;
    pub const SESSION_TRACK: u32 = 1 << 23;
    pub const DEPRECATE_EOF: u32 = 1 << 24;
    pub const QUERY_ATTRIBUTES: u32 = 1 << 27;
}

/// Status bits that tests name.
pub mod status {
    pub const IN_TRANS: u16 = 1;
    pub const AUTOCOMMIT: u16 = 2;
    pub const MORE_RESULTS: u16 = 8;
    pub const CURSOR_EXISTS: u16 = 0x40;
    pub const LAST_ROW_SENT: u16 = 0x80;
    pub const IN_TRANS_READONLY: u16 = 0x2000;
    pub const SESSION_STATE_CHANGED: u16 = 0x4000;
}

/// What a client says of itself before it asks for more.
pub const USUAL: u32 = flag::LONG_PASSWORD
    | flag::PROTOCOL_41
    | flag::TRANSACTIONS
    | flag::SECURE_CONNECTION
    | flag::MULTI_RESULTS
    | flag::PS_MULTI_RESULTS
    | flag::PLUGIN_AUTH;

/// How to log in.
#[derive(Clone)]
pub struct MyLogin {
    pub user: String,
    pub password: String,
    /// Empty: none is asked for.
    pub database: String,
    /// Without `SSL` and `CONNECT_WITH_DB`, which follow from the other fields.
    pub capabilities: u32,
    /// The bits of MariaDB's own, sent in the last four reserved bytes; not with `LONG_PASSWORD`.
    pub mariadb_capabilities: u32,
    pub tls: bool,
    /// 45: utf8mb4_general_ci.
    pub charset: u8,
    /// The plugin to name and to begin with; empty: the server's own.
    pub plugin: String,
    /// Sent with `CONNECT_ATTRS`.
    pub attributes: Vec<(String, String)>,
    /// A COM_QUERY that goes out with the response to the greeting, in the same write; empty: none.
    /// Its answer is not read.
    pub query: String,
}

impl MyLogin {
    /// An account whose password is its name, and `wire`, which has none.
    pub fn of(user: &str, database: &str) -> Self {
        Self {
            user: user.into(),
            password: if user == "wire" { String::new() } else { user.into() },
            database: database.into(),
            capabilities: USUAL,
            mariadb_capabilities: 0,
            tls: false,
            charset: 45,
            plugin: String::new(),
            attributes: Vec::new(),
            query: String::new(),
        }
    }

    /// The same with more capabilities.
    #[must_use]
    pub fn with(mut self, capabilities: u32) -> Self {
        self.capabilities |= capabilities;
        self
    }

    /// The same over TLS.
    #[must_use]
    pub fn over_tls(mut self) -> Self {
        self.tls = true;
        self
    }
}

/// One packet as it came, pieces of more than 16 MiB put together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The sequence number of its last piece.
    pub sequence: u8,
    pub payload: Vec<u8>,
}

/// The server's greeting.
#[derive(Debug, Clone, Default)]
pub struct Greeting {
    pub version: String,
    pub thread_id: u32,
    /// 20 bytes.
    pub scramble: Vec<u8>,
    pub capabilities: u32,
    pub mariadb_capabilities: u32,
    pub charset: u8,
    pub status: u16,
    pub plugin: String,
}

impl Greeting {
    /// Takes a greeting apart. Panics on what is none.
    pub fn parse(payload: &[u8]) -> Self {
        assert_eq!(payload.first(), Some(&10), "no greeting: {payload:?}");
        let mut rest = Reader(&payload[1..]);
        let version = rest.until_nul();
        let thread_id = rest.int(4) as u32;
        let mut scramble = rest.take(8).to_vec();
        rest.take(1);
        let low = rest.int(2) as u32;
        let charset = rest.int(1) as u8;
        let status = rest.int(2) as u16;
        let high = rest.int(2) as u32;
        let length = rest.int(1) as usize;
        rest.take(6);
        let mariadb_capabilities = rest.int(4) as u32;
        let second = rest.take(length.saturating_sub(8).max(13)).to_vec();
        scramble.extend(&second[..second.len() - 1]);
        let plugin = rest.until_nul();
        let capabilities = low | (high << 16);
        Self {
            version,
            thread_id,
            scramble,
            capabilities,
            mariadb_capabilities,
            charset,
            status,
            plugin,
        }
    }
}

/// An ERR packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MyError {
    pub code: u16,
    /// Empty where the packet has none (before the login).
    pub state: String,
    pub message: String,
}

impl MyError {
    /// Takes an ERR packet's payload apart.
    pub fn parse(payload: &[u8]) -> Self {
        let mut rest = Reader(&payload[1..]);
        let code = rest.int(2) as u16;
        let has_state = rest.0.first() == Some(&b'#');
        let state = if has_state { lossy(&rest.take(6)[1..]) } else { String::new() };
        Self { code, state, message: lossy(rest.0) }
    }
}

/// An OK packet, or what an EOF packet has of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MyOk {
    pub affected: u64,
    pub last_id: u64,
    pub status: u16,
    pub warnings: u16,
    /// What stands behind the warnings, as it came: a message, session track data.
    pub info: Vec<u8>,
}

impl MyOk {
    /// Takes the payload of an OK packet apart, also of one with header 0xFE.
    pub fn parse(payload: &[u8]) -> Self {
        let mut rest = Reader(&payload[1..]);
        let (affected, last_id) = (rest.lenenc(), rest.lenenc());
        let (status, warnings) = (rest.int(2) as u16, rest.int(2) as u16);
        Self { affected, last_id, status, warnings, info: rest.0.to_vec() }
    }

    fn of_eof(payload: &[u8]) -> Self {
        let mut rest = Reader(&payload[1..]);
        let (warnings, status) = (rest.int(2) as u16, rest.int(2) as u16);
        Self { status, warnings, ..Self::default() }
    }
}

/// One result: rows (none where there are no columns) and its end.
#[derive(Debug, Clone, Default)]
pub struct MyResult {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Values of the text protocol; `None` is NULL.
    pub rows: Vec<Vec<Option<String>>>,
    /// How it ended, unless by an error.
    pub end: MyOk,
}

/// A whole answer to one command.
#[derive(Debug)]
pub struct MyAnswer {
    pub results: Vec<MyResult>,
    pub error: Option<MyError>,
    /// The names of files that the server asked for, in order.
    pub files: Vec<String>,
}

impl MyAnswer {
    /// The rows of the first result that has columns.
    pub fn rows(&self) -> &[Vec<Option<String>>] {
        self.results.iter().find(|r| !r.columns.is_empty()).map_or(&[], |r| &r.rows)
    }

    /// The first column of the first row. Panics when there is none.
    #[track_caller]
    pub fn cell(&self) -> String {
        let first = self.rows().first().and_then(|row| row.first().cloned().flatten());
        first.unwrap_or_else(|| panic!("no value in {self:?}"))
    }

    /// The error's number; 0 when there is none.
    pub fn code(&self) -> u16 {
        self.error.as_ref().map_or(0, |error| error.code)
    }

    /// The status flags of the last result. An error has none.
    pub fn status(&self) -> u16 {
        self.results.last().map_or(0, |result| result.end.status)
    }

    /// Panics when there was an error.
    #[track_caller]
    pub fn ok(self) -> Self {
        if let Some(error) = &self.error {
            panic!("unexpected error: {error:?}");
        }
        self
    }
}

/// Why a login or an exchange has no answer.
#[derive(Debug)]
pub enum MyFailed {
    /// The server's error.
    Refused(MyError),
    /// The connection ended or broke.
    Closed(std::io::Error),
}

impl From<std::io::Error> for MyFailed {
    fn from(error: std::io::Error) -> Self {
        Self::Closed(error)
    }
}

/// A connection.
pub struct MyWire {
    stream: Pipe,
    port: u16,
    /// The sequence number that the next packet of this side has.
    sequence: u8,
    /// What the server said first.
    pub greeting: Greeting,
    /// What was agreed on: this side's capabilities.
    pub capabilities: u32,
    /// The OK that ended the login.
    pub welcome: MyOk,
}

impl MyWire {
    /// Connects to 127.0.0.1 and logs in, in plaintext. Panics with the server's error when
    /// refused.
    #[track_caller]
    pub fn connect(port: u16, user: &str, database: &str) -> Self {
        Self::login(port, &MyLogin::of(user, database))
            .unwrap_or_else(|e| panic!("{user} can't log in to {database} on port {port}: {e:?}"))
    }

    /// Connects and logs in.
    ///
    /// # Errors
    /// The server's error, or that of the connection.
    pub fn login(port: u16, login: &MyLogin) -> Result<Self, MyFailed> {
        let mut wire = Self::open(port)?;
        wire.log_in(login)?;
        Ok(wire)
    }

    /// Connects and reads the greeting; sends nothing.
    ///
    /// # Errors
    /// An error in the greeting's place, or that of the connection.
    pub fn open(port: u16) -> Result<Self, MyFailed> {
        let mut wire = Self::connected(port)?;
        let first = wire.read()?;
        if first.payload.first() == Some(&0xFF) {
            return Err(MyFailed::Refused(MyError::parse(&first.payload)));
        }
        wire.greeting = Greeting::parse(&first.payload);
        Ok(wire)
    }

    /// Connects and reads nothing.
    ///
    /// # Errors
    /// That of the connection.
    pub fn connected(port: u16) -> std::io::Result<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream: Pipe::Plain(stream),
            port,
            sequence: 0,
            greeting: Greeting::default(),
            capabilities: 0,
            welcome: MyOk::default(),
        })
    }

    /// Sends the SSLRequest and puts TLS around the connection.
    ///
    /// # Errors
    /// The handshake's.
    pub fn encrypt(&mut self, login: &MyLogin) -> std::io::Result<()> {
        let head = self.response_head(login, flag::SSL);
        self.send(&head);
        let tcp = self.stream.socket().try_clone()?;
        self.stream = Pipe::around(tcp, Vec::new())?;
        Ok(())
    }

    /// Answers the greeting, to the end of the login.
    ///
    /// # Errors
    /// The server's error, or that of the connection.
    pub fn log_in(&mut self, login: &MyLogin) -> Result<(), MyFailed> {
        let ssl = if login.tls { flag::SSL } else { 0 };
        if login.tls {
            self.encrypt(login)?;
        }
        let plugin = if login.plugin.is_empty() {
            self.greeting.plugin.clone()
        } else {
            login.plugin.clone()
        };
        let scramble = self.greeting.scramble.clone();
        let mut body = self.response_head(login, ssl);
        put_nul(&mut body, login.user.as_bytes());
        let proof = prove(&plugin, &login.password, &scramble);
        if login.capabilities & flag::PLUGIN_AUTH_LENENC == 0 {
            body.push(u8::try_from(proof.len()).unwrap());
            body.extend(&proof);
        } else {
            put_lenenc(&mut body, &proof);
        }
        if !login.database.is_empty() {
            put_nul(&mut body, login.database.as_bytes());
        }
        if self.capabilities & flag::PLUGIN_AUTH != 0 {
            put_nul(&mut body, plugin.as_bytes());
        }
        if self.capabilities & flag::CONNECT_ATTRS != 0 {
            let mut pairs = Vec::new();
            for (name, value) in &login.attributes {
                put_lenenc(&mut pairs, name.as_bytes());
                put_lenenc(&mut pairs, value.as_bytes());
            }
            put_lenenc(&mut body, &pairs);
        }
        let mut bytes = packets(&body, &mut self.sequence);
        if !login.query.is_empty() {
            bytes.extend(packets(&[b"\x03", login.query.as_bytes()].concat(), &mut 0));
        }
        self.try_send_raw(&bytes)?;
        self.authenticate(plugin, scramble, login)
    }

    /// The part of the response that an SSLRequest is; notes what was agreed on.
    fn response_head(&mut self, login: &MyLogin, ssl: u32) -> Vec<u8> {
        let database = if login.database.is_empty() { 0 } else { flag::CONNECT_WITH_DB };
        self.capabilities = login.capabilities | database | ssl;
        let mut head = self.capabilities.to_le_bytes().to_vec();
        head.extend(0x0100_0000_u32.to_le_bytes());
        head.push(login.charset);
        head.extend([0; 19]);
        head.extend(login.mariadb_capabilities.to_le_bytes());
        head
    }

    /// The server's questions behind the response, up to its OK or ERR.
    pub fn authenticate(
        &mut self,
        mut plugin: String,
        mut scramble: Vec<u8>,
        login: &MyLogin,
    ) -> Result<(), MyFailed> {
        loop {
            let packet = self.read()?;
            match packet.payload.first() {
                Some(0) => {
                    self.welcome = MyOk::parse(&packet.payload);
                    return Ok(());
                }
                Some(0xFF) => return Err(MyFailed::Refused(MyError::parse(&packet.payload))),
                Some(0xFE) => {
                    let mut rest = Reader(&packet.payload[1..]);
                    plugin = rest.until_nul();
                    scramble = rest.0.strip_suffix(&[0]).unwrap_or(rest.0).to_vec();
                    let proof = prove(&plugin, &login.password, &scramble);
                    self.send(&proof);
                }
                // caching_sha2_password: 3 is "known", 4 is "say it whole", else the RSA key.
                Some(1) => match packet.payload.get(1) {
                    Some(3) => {}
                    Some(4) => self.say_whole(&plugin, &scramble, login)?,
                    other => panic!("{plugin} asks for {other:?}"),
                },
                other => panic!("not a packet of a login: {other:?}"),
            }
        }
    }

    /// The password itself: in the clear over TLS, else sealed with the server's RSA key.
    fn say_whole(
        &mut self,
        plugin: &str,
        scramble: &[u8],
        login: &MyLogin,
    ) -> Result<(), MyFailed> {
        assert_eq!(plugin, "caching_sha2_password");
        let mut secret = login.password.clone().into_bytes();
        secret.push(0);
        if login.tls {
            self.send(&secret);
            return Ok(());
        }
        self.send(&[2]);
        let key = self.read()?;
        if key.payload.first() == Some(&0xFF) {
            return Err(MyFailed::Refused(MyError::parse(&key.payload)));
        }
        assert_eq!(key.payload.first(), Some(&1), "no RSA key: {key:?}");
        for (byte, mask) in secret.iter_mut().zip(scramble.iter().cycle()) {
            *byte ^= mask;
        }
        let sealed = mysql_common::crypto::encrypt(&secret, &key.payload[1..]);
        self.send(&sealed);
        Ok(())
    }

    /// Sends one packet with the next sequence number, in pieces where it is too long for one.
    pub fn send(&mut self, payload: &[u8]) {
        self.try_send(payload).unwrap_or_else(|e| panic!("can't send: {e}"));
    }

    /// As [`Self::send`]; a broken connection comes back as its error.
    ///
    /// # Errors
    /// The connection's.
    pub fn try_send(&mut self, payload: &[u8]) -> std::io::Result<()> {
        let bytes = packets(payload, &mut self.sequence);
        self.stream.write_all(&bytes)?;
        self.stream.flush()
    }

    /// Sends bytes as they are, such as several packets at once.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap_or_else(|e| panic!("can't send: {e}"));
        self.stream.flush().unwrap();
    }

    /// As [`Self::send_raw`]; a broken connection comes back as its error.
    ///
    /// # Errors
    /// The connection's.
    pub fn try_send_raw(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Begins a command: its packet has sequence number 0.
    pub fn command(&mut self, payload: &[u8]) {
        self.sequence = 0;
        self.send(payload);
    }

    /// Reads one packet.
    ///
    /// # Errors
    /// `UnexpectedEof` when the connection ended, `TimedOut` or `WouldBlock` when nothing came for
    /// as long as anything may take.
    pub fn read(&mut self) -> std::io::Result<Packet> {
        let mut payload = Vec::new();
        loop {
            let (sequence, piece) = self.read_piece()?;
            payload.extend(&piece);
            if piece.len() < PACKET_MAX {
                return Ok(Packet { sequence, payload });
            }
        }
    }

    /// Reads one packet as it is on the wire: its sequence number and at most 16 MiB.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub fn read_piece(&mut self) -> std::io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload)?;
        self.sequence = head[3].wrapping_add(1);
        Ok((head[3], payload))
    }

    /// Reads a packet that must come. Panics when none does.
    #[track_caller]
    pub fn packet(&mut self) -> Packet {
        let port = self.port;
        self.read().unwrap_or_else(|e| panic!("no packet from port {port}: {e}"))
    }

    /// True when the connection has ended; a packet that comes instead is thrown away.
    pub fn is_over(&mut self) -> bool {
        match self.read() {
            Err(e) if matches!(e.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => false,
            Err(_) => true,
            Ok(_) => false,
        }
    }

    /// COM_QUERY, and its whole answer. A file that the server asks for is sent as empty.
    #[track_caller]
    pub fn query(&mut self, sql: &str) -> MyAnswer {
        self.try_query(sql).unwrap_or_else(|e| panic!("no answer to {sql:?}: {e}"))
    }

    /// As [`Self::query`]; a broken connection comes back as its error.
    ///
    /// # Errors
    /// The connection's.
    pub fn try_query(&mut self, sql: &str) -> std::io::Result<MyAnswer> {
        self.begin_query(sql)?;
        self.answer(&[])
    }

    /// COM_QUERY; its answer is not read.
    ///
    /// # Errors
    /// The connection's.
    pub fn begin_query(&mut self, sql: &str) -> std::io::Result<()> {
        let mut payload = vec![3];
        if self.capabilities & flag::QUERY_ATTRIBUTES != 0 {
            payload.extend([0, 1]);
        }
        payload.extend(sql.as_bytes());
        self.sequence = 0;
        self.try_send(&payload)
    }

    /// Reads the whole answer to a command that answers as COM_QUERY does. A file that the server
    /// asks for is sent with the given content.
    ///
    /// # Errors
    /// The connection's.
    pub fn answer(&mut self, file: &[u8]) -> std::io::Result<MyAnswer> {
        let mut answer = MyAnswer { results: Vec::new(), error: None, files: Vec::new() };
        loop {
            let first = self.read()?.payload;
            let result = match first.first() {
                Some(0) => MyResult { end: MyOk::parse(&first), ..MyResult::default() },
                Some(0xFF) => {
                    answer.error = Some(MyError::parse(&first));
                    return Ok(answer);
                }
                Some(0xFB) => {
                    answer.files.push(lossy(&first[1..]));
                    if !file.is_empty() {
                        self.try_send(file)?;
                    }
                    self.try_send(&[])?;
                    continue;
                }
                // An EOF in the place of an OK: COM_SET_OPTION and COM_DEBUG.
                Some(0xFE) => MyResult { end: MyOk::of_eof(&first), ..MyResult::default() },
                Some(_) => {
                    let columns = usize::try_from(Reader(&first).lenenc()).unwrap();
                    match self.result_set(columns)? {
                        Ok(result) => result,
                        Err(error) => {
                            answer.error = Some(error);
                            return Ok(answer);
                        }
                    }
                }
                None => panic!("an empty packet in the place of an answer"),
            };
            let more = result.end.status & status::MORE_RESULTS != 0;
            answer.results.push(result);
            if !more {
                return Ok(answer);
            }
        }
    }

    fn result_set(&mut self, columns: usize) -> std::io::Result<Result<MyResult, MyError>> {
        let mut result = MyResult::default();
        for _ in 0..columns {
            let definition = self.read()?.payload;
            result.columns.push(column_name(&definition));
        }
        let deprecated = self.capabilities & flag::DEPRECATE_EOF != 0;
        if !deprecated {
            let eof = self.read()?.payload;
            assert!(eof[0] == 0xFE && eof.len() == 5, "no EOF behind the columns: {eof:?}");
            let end = MyOk::of_eof(&eof);
            if end.status & status::CURSOR_EXISTS != 0 {
                result.end = end;
                return Ok(Ok(result));
            }
        }
        loop {
            let row = self.read()?.payload;
            match row.first() {
                Some(0xFF) => return Ok(Err(MyError::parse(&row))),
                Some(0xFE) if deprecated && row.len() < PACKET_MAX => {
                    result.end = MyOk::parse(&row);
                    return Ok(Ok(result));
                }
                Some(0xFE) if row.len() < 9 => {
                    result.end = MyOk::of_eof(&row);
                    return Ok(Ok(result));
                }
                Some(_) | None => result.rows.push(text_row(&row, columns)),
            }
        }
    }

    /// COM_STMT_PREPARE; the statement's id, parameters and columns, or the error. The blocks of
    /// definitions are read too.
    ///
    /// # Errors
    /// The connection's.
    pub fn prepare(&mut self, sql: &str) -> std::io::Result<Result<Prepared, MyError>> {
        let mut payload = vec![0x16];
        payload.extend(sql.as_bytes());
        self.sequence = 0;
        self.try_send(&payload)?;
        let first = self.read()?.payload;
        if first[0] == 0xFF {
            return Ok(Err(MyError::parse(&first)));
        }
        let mut rest = Reader(&first[1..]);
        let id = rest.int(4) as u32;
        let (columns, parameters) = (rest.int(2) as u16, rest.int(2) as u16);
        for count in [parameters, columns] {
            for _ in 0..count {
                self.read()?;
            }
            if count > 0 && self.capabilities & flag::DEPRECATE_EOF == 0 {
                self.read()?;
            }
        }
        Ok(Ok(Prepared { id, parameters, columns }))
    }

    /// Says that nothing more will be sent.
    pub fn shut(&mut self) {
        self.stream.socket().shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// The socket below, such as for a way of closing it.
    pub fn socket(&self) -> &TcpStream {
        self.stream.socket()
    }
}

/// What COM_STMT_PREPARE answered.
#[derive(Debug, Clone, Copy)]
pub struct Prepared {
    pub id: u32,
    pub parameters: u16,
    pub columns: u16,
}

impl Prepared {
    /// COM_STMT_EXECUTE with parameters that are strings, or NULL.
    pub fn execute(self, values: &[Option<&str>]) -> Vec<u8> {
        let mut payload = vec![0x17];
        payload.extend(self.id.to_le_bytes());
        payload.push(0);
        payload.extend(1_u32.to_le_bytes());
        if values.is_empty() {
            return payload;
        }
        let mut nulls = vec![0_u8; values.len().div_ceil(8)];
        for (n, value) in values.iter().enumerate() {
            if value.is_none() {
                nulls[n / 8] |= 1 << (n % 8);
            }
        }
        payload.extend(nulls);
        payload.push(1);
        for _ in values {
            payload.extend([0xFD, 0]);
        }
        for value in values.iter().flatten() {
            put_lenenc(&mut payload, value.as_bytes());
        }
        payload
    }
}

/// The bytes of one payload as packets, from a sequence number on.
pub fn packets(payload: &[u8], sequence: &mut u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(payload.len() + 4);
    let mut rest = payload;
    loop {
        let (piece, behind) = rest.split_at(rest.len().min(PACKET_MAX));
        bytes.extend(&u32::try_from(piece.len()).unwrap().to_le_bytes()[..3]);
        bytes.push(*sequence);
        bytes.extend(piece);
        *sequence = sequence.wrapping_add(1);
        rest = behind;
        if piece.len() < PACKET_MAX {
            return bytes;
        }
    }
}

/// The first answer of a plugin to a scramble.
fn prove(plugin: &str, password: &str, scramble: &[u8]) -> Vec<u8> {
    let password = password.as_bytes();
    match plugin {
        "mysql_native_password" => {
            scramble_native(scramble, password).map_or_else(Vec::new, |proof| proof.to_vec())
        }
        "caching_sha2_password" => {
            scramble_sha256(scramble, password).map_or_else(Vec::new, |proof| proof.to_vec())
        }
        "mysql_clear_password" => [password, &[0]].concat(),
        other => panic!("this client can't do {other}"),
    }
}

fn put_nul(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend(bytes);
    into.push(0);
}

/// A length-encoded string.
pub fn put_lenenc(into: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.len() {
        short @ 0..251 => into.push(u8::try_from(short).unwrap()),
        longer @ 251..0x1_0000 => {
            into.push(0xFC);
            into.extend(&longer.to_le_bytes()[..2]);
        }
        long @ 0x1_0000..0x100_0000 => {
            into.push(0xFD);
            into.extend(&long.to_le_bytes()[..3]);
        }
        longest => {
            into.push(0xFE);
            into.extend((longest as u64).to_le_bytes());
        }
    }
    into.extend(bytes);
}

fn column_name(definition: &[u8]) -> String {
    let mut rest = Reader(definition);
    for _ in 0..4 {
        rest.string();
    }
    lossy(rest.string())
}

fn text_row(row: &[u8], columns: usize) -> Vec<Option<String>> {
    let mut rest = Reader(row);
    let value = |_| {
        if rest.0.first() == Some(&0xFB) {
            rest.take(1);
            return None;
        }
        Some(lossy(rest.string()))
    };
    (0..columns).map(value).collect()
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Takes a payload apart from its start. Panics where it is too short.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    /// A little-endian number of `length` bytes, at most 8.
    pub fn int(&mut self, length: usize) -> u64 {
        self.take(length).iter().rev().fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
    }

    /// A length-encoded number.
    pub fn lenenc(&mut self) -> u64 {
        match self.int(1) {
            0xFC => self.int(2),
            0xFD => self.int(3),
            0xFE => self.int(8),
            small => small,
        }
    }

    /// A length-encoded string.
    pub fn string(&mut self) -> &'a [u8] {
        let length = usize::try_from(self.lenenc()).unwrap();
        self.take(length)
    }

    /// A string that ends with a NUL, or with the payload.
    pub fn until_nul(&mut self) -> String {
        let end = self.0.iter().position(|b| *b == 0);
        let text = self.take(end.unwrap_or(self.0.len()));
        self.0 = self.0.get(1..).unwrap_or_default();
        lossy(text)
    }
}
