//! The corpus of MySQL conversations: what they are made of, and how they are recorded.
//!
//! A conversation logs in, sends commands and reads whole answers. Each packet is kept as its
//! sequence number and its payload; a long one as its length and hash.

#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bulk;
mod files;
mod large;
mod logins;
mod others;
mod prepared;
mod sessions;
mod signing_in;
mod statements;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::support::my_wire::{MyLogin, PACKET_MAX, USUAL, flag};
use crate::support::{MyCluster, MyFlavour, MyWire};

/// A conversation.
type Conversation = Box<dyn Fn(&mut Talk) + Send + Sync>;

/// One conversation of the corpus.
pub struct Case {
    pub name: String,
    login: fn(&str) -> MyLogin,
    run: Conversation,
}

impl Case {
    /// With the usual login.
    pub fn new(name: impl Into<String>, run: impl Fn(&mut Talk) + Send + Sync + 'static) -> Self {
        Self { name: name.into(), login: |db| MyLogin::of("wire", db), run: Box::new(run) }
    }

    /// The same with another login.
    pub fn by(self, login: fn(&str) -> MyLogin) -> Self {
        Self { login, ..self }
    }
}

/// MariaDB's own bits, as the proxy relays them: progress, bulk, extended and cached metadata.
const MARIADB_BITS: u32 = 0b1_1101;

/// `CLIENT_OPTIONAL_RESULTSET_METADATA`.
const OPTIONAL_METADATA: u32 = 1 << 25;

/// A name, and how a client of this kind logs in to a database.
pub type Profile = (&'static str, fn(&str) -> MyLogin);

/// What clients agree on with servers; each script of [`statements`] is told under each.
const PROFILES: &[Profile] = &[
    ("old", |db| MyLogin::of("wire", db).with(flag::MULTI_STATEMENTS)),
    ("new", |db| {
        let bits = flag::DEPRECATE_EOF | flag::SESSION_TRACK | flag::PLUGIN_AUTH_LENENC;
        MyLogin::of("wire", db).with(flag::MULTI_STATEMENTS | bits)
    }),
    ("tracking", |db| MyLogin::of("wire", db).with(flag::MULTI_STATEMENTS | flag::SESSION_TRACK)),
    ("own", own),
];

/// All that the flavour alone has, and TLS.
fn own(db: &str) -> MyLogin {
    let bits = flag::DEPRECATE_EOF | flag::SESSION_TRACK | flag::MULTI_STATEMENTS;
    MyLogin::of("wire", db).with(bits).over_tls()
}

/// The whole corpus for a flavour.
pub fn corpus(flavour: MyFlavour) -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, script) in statements::scripts(flavour) {
        for (profile, login) in PROFILES {
            let run = move |talk: &mut Talk| talk.ask(script);
            cases.push(Case::new(format!("{name}, {profile}"), run).by(*login));
        }
    }
    cases.extend(sessions::cases());
    cases.extend(prepared::cases());
    cases.extend(files::cases());
    cases.extend(large::cases());
    cases.extend(logins::cases(flavour));
    cases.extend(others::cases(flavour));
    if flavour == MyFlavour::MariaDb {
        cases.extend(bulk::cases());
    }
    cases
}

/// Makes what the conversations speak of in a database.
pub fn prepare(cluster: &MyCluster, db: &str) {
    cluster.sql(
        db,
        "CREATE TABLE r (n INT PRIMARY KEY AUTO_INCREMENT, s VARCHAR(20), b BLOB);
         INSERT INTO r VALUES (1, 'one', NULL), (2, NULL, x'00ff'), (3, 'three', '');
         CREATE TABLE w (n INT PRIMARY KEY, s VARCHAR(20)) ENGINE = InnoDB;
         CREATE TABLE m (n INT) ENGINE = MyISAM;
         CREATE TABLE f (n INT, s TEXT);
         CREATE VIEW v AS SELECT n FROM r WHERE n < 3;
         CREATE FUNCTION twice(n INT) RETURNS INT DETERMINISTIC RETURN 2 * n",
    );
    for (name, body) in [
        ("two()", "BEGIN SELECT 1 AS a; SELECT n, s FROM r ORDER BY n; END"),
        ("outs(IN a INT, OUT b INT, INOUT c INT)", "SET b = a + 1, c = c * 2"),
        ("fails()", "INSERT INTO nowhere VALUES (1)"),
    ] {
        cluster.sql(db, &format!("DELIMITER //\nCREATE PROCEDURE {name} {body}//\n"));
    }
}

/// How an answer is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Results, each an OK, rows, or a file that the server wants.
    Results,
    /// One packet.
    One,
    /// Packets up to an EOF: definitions or rows.
    ToEof,
    /// What PREPARE answers.
    Prepared,
    /// Nothing.
    None,
}

/// One connection that is being recorded.
pub struct Talk {
    pub flavour: MyFlavour,
    pub wire: MyWire,
    pub port: u16,
    pub db: String,
    heard: Vec<String>,
    /// What is sent for files that the server wants, in turn.
    pub files: Vec<Vec<u8>>,
    metadata_byte: bool,
    progress: bool,
    last_payload: Vec<u8>,
    over: bool,
    /// The numbers of statements that the server gave, in turn: they may differ.
    numbers: Vec<u32>,
}

impl Talk {
    /// Runs one conversation from its connect to its end.
    pub fn record(flavour: MyFlavour, port: u16, db: &str, case: &Case) -> Vec<String> {
        let wire = MyWire::connected(port).unwrap();
        let mut talk = Self {
            flavour,
            wire,
            port,
            db: db.to_owned(),
            heard: Vec::new(),
            files: Vec::new(),
            metadata_byte: false,
            progress: false,
            last_payload: Vec::new(),
            over: false,
            numbers: Vec::new(),
        };
        let login = (case.login)(db);
        if login.user == "-" {
            // The conversation logs in by itself.
        } else {
            talk.log_in(&login);
        }
        if !talk.over {
            (case.run)(&mut talk);
        }
        talk.heard
    }

    /// Records the greeting and goes through a login by [`MyWire`], whose packets aren't recorded
    /// but for its end.
    pub fn log_in(&mut self, login: &MyLogin) {
        let mut login = login.clone();
        let own = login.capabilities & flag::DEPRECATE_EOF != 0 && login.tls;
        match (own, self.flavour) {
            (true, MyFlavour::MariaDb) => {
                login.capabilities &= !flag::LONG_PASSWORD;
                login.mariadb_capabilities = MARIADB_BITS;
                (self.metadata_byte, self.progress) = (true, true);
            }
            (true, MyFlavour::MySql) => {
                login.capabilities |= flag::QUERY_ATTRIBUTES | OPTIONAL_METADATA;
                self.metadata_byte = true;
            }
            (false, _) => {}
        }
        match MyWire::login(self.port, &login) {
            Ok(wire) => {
                self.wire = wire;
                let ok = &self.wire.welcome;
                let info = ok.info.escape_ascii();
                let said = format!("{:#x} {} {info}", ok.status, ok.warnings);
                let said = self.masked_text(&said);
                self.heard.push(format!("welcome {said}"));
            }
            Err(refused) => {
                let said = self.masked_text(&format!("{refused:?}"));
                self.heard.push(format!("refused {said}"));
                self.over = true;
            }
        }
    }

    fn masked_text(&self, text: &str) -> String {
        text.replace(&self.db, "talk_x")
    }

    /// COM_QUERY for each, and its answer.
    pub fn ask(&mut self, statements: &[&str]) {
        for sql in statements {
            self.query(sql.replace("DB.", &format!("{}.", self.db)).as_bytes());
            self.read(Answer::Results);
        }
    }

    /// COM_QUERY.
    pub fn query(&mut self, sql: &[u8]) {
        let payload = self.query_payload(sql);
        self.send(&payload);
    }

    /// The payload of a COM_QUERY.
    pub fn query_payload(&self, sql: &[u8]) -> Vec<u8> {
        let mut payload = vec![3];
        if self.wire.capabilities & flag::QUERY_ATTRIBUTES != 0 {
            payload.extend([0, 1]);
        }
        payload.extend(sql);
        payload
    }

    /// A command and its answer.
    pub fn command(&mut self, payload: &[u8], answer: Answer) {
        self.send(payload);
        self.read(answer);
    }

    /// Sends a command. That the server has closed the connection shows in what is read.
    pub fn send(&mut self, payload: &[u8]) {
        let mut sequence = 0;
        let bytes = crate::support::my_wire::packets(payload, &mut sequence);
        self.send_raw(&bytes);
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        let _closed = self.wire.try_send_raw(bytes);
    }

    /// Records something that was found out otherwise.
    pub fn remark(&mut self, what: impl Into<String>) {
        self.heard.push(format!("! {}", what.into()));
    }

    /// Reads one whole packet and records its pieces; `None` when the connection is over.
    pub fn packet(&mut self) -> Option<Vec<u8>> {
        let mut whole = Vec::new();
        loop {
            match self.wire.read_piece() {
                Ok((sequence, piece)) => {
                    let last = piece.len() < PACKET_MAX;
                    self.keep(sequence, &piece);
                    whole.extend(piece);
                    if last {
                        self.last_payload.clone_from(&whole);
                        return Some(whole);
                    }
                }
                Err(error) => {
                    use std::io::ErrorKind::{TimedOut, WouldBlock};
                    let late = matches!(error.kind(), TimedOut | WouldBlock);
                    self.heard.push(if late { "? nothing came" } else { ". closed" }.to_owned());
                    return None;
                }
            }
        }
    }

    fn keep(&mut self, sequence: u8, piece: &[u8]) {
        let name = self.db.as_bytes();
        let mut piece = piece.to_vec();
        if piece.first() == Some(&0xff) {
            let mut text = String::from_utf8_lossy(&piece[3.min(piece.len())..]).into_owned();
            for (nth, number) in self.numbers.iter().enumerate() {
                text = text.replace(&format!("({number})"), &format!("(#{nth})"));
            }
            piece.truncate(3);
            piece.extend(text.into_bytes());
        }
        for at in 0..piece.len().saturating_sub(name.len() - 1) {
            if piece[at..].starts_with(name) {
                piece[at..at + name.len()].copy_from_slice(b"talk_x");
            }
        }
        mask_statement_id(&mut piece);
        mask_slow(&mut piece);
        let text = if piece.len() > 300 {
            let mut hasher = DefaultHasher::new();
            piece.hash(&mut hasher);
            format!("{} bytes, hash {:x}", piece.len(), hasher.finish())
        } else {
            piece.escape_ascii().to_string()
        };
        self.heard.push(format!("{sequence} {text}"));
    }

    /// Takes back what was recorded last, for a packet that differs by its nature, and records
    /// this in its place.
    pub fn instead(&mut self, what: &str) {
        let last = self.heard.pop().unwrap_or_default();
        let sequence = last.split(' ').next().unwrap_or_default().to_owned();
        self.heard.push(format!("{sequence} ({what})"));
    }

    /// Whether the server hasn't closed the connection, as far as it was read.
    pub fn is_open(&self) -> bool {
        self.heard.last().is_none_or(|last| !last.starts_with(['.', '?']))
    }

    /// Reads to the close.
    pub fn end(&mut self) {
        while self.packet().is_some() {}
    }

    /// Reads a whole answer.
    pub fn read(&mut self, answer: Answer) {
        match answer {
            Answer::None => {}
            Answer::One => {
                self.packet();
            }
            Answer::Results => while self.result() {},
            Answer::ToEof => {
                self.rows();
            }
            Answer::Prepared => self.prepared(),
        }
    }

    /// The number that this side's next packet has.
    pub fn next_sequence(&self) -> u8 {
        self.last_sequence().wrapping_add(1)
    }

    /// The number that the server gave to the statement prepared as the `nth`, from 1; of an
    /// unknown one, a number that no server has given.
    pub fn number(&self, nth: u32) -> u32 {
        let given = usize::try_from(nth).unwrap().checked_sub(1).and_then(|n| self.numbers.get(n));
        given.copied().unwrap_or(0x00ff_0000 + nth)
    }

    /// Takes out how the connection ended, and all that was heard at the end.
    pub fn forget_the_end(&mut self) {
        let begun = self.heard.iter().position(|heard| !heard.starts_with("welcome"));
        self.heard.truncate(begun.unwrap_or(self.heard.len()));
        self.heard.push("over".into());
    }

    /// What of a greeting is the same for each connection. The proxy offers no compression.
    pub fn greeting(&mut self) -> String {
        let payload = self.last_payload.clone();
        let greeting = crate::support::my_wire::Greeting::parse(&payload);
        let compression = flag::COMPRESS | 1 << 26 | 1 << 29;
        format!(
            "{} {:#x} {:#x} {} {} {}",
            greeting.version,
            greeting.capabilities & !compression,
            greeting.mariadb_capabilities,
            greeting.charset,
            greeting.status,
            greeting.plugin
        )
    }

    const fn deprecate_eof(&self) -> bool {
        self.wire.capabilities & flag::DEPRECATE_EOF != 0
    }

    /// One result; true when there is another.
    fn result(&mut self) -> bool {
        let Some(first) = self.packet() else { return false };
        match first.first() {
            Some(0) => more(ok_status(&first)),
            Some(0xff) if self.progress && first.get(1..3) == Some(&[0xff, 0xff]) => {
                self.instead("progress");
                self.heard.pop();
                true
            }
            Some(0xff) | None => false,
            Some(0xfe) if first.len() < 9 => more(eof_status(&first)),
            Some(0xfb) => {
                let file = if self.files.is_empty() { Vec::new() } else { self.files.remove(0) };
                let last: u8 = self.last_sequence();
                let mut sequence = last.wrapping_add(1);
                for part in file.chunks(10_000) {
                    let bytes = crate::support::my_wire::packets(part, &mut sequence);
                    self.send_raw(&bytes);
                }
                let bytes = crate::support::my_wire::packets(&[], &mut sequence);
                self.send_raw(&bytes);
                true
            }
            Some(_) => self.result_set(&first),
        }
    }

    fn last_sequence(&self) -> u8 {
        self.heard.last().and_then(|last| last.split(' ').next()?.parse().ok()).unwrap_or_default()
    }

    fn result_set(&mut self, first: &[u8]) -> bool {
        let columns = first[0];
        assert!(columns < 0xfb, "conversations have few columns");
        let follow = !self.metadata_byte || first.get(1) != Some(&0);
        for _ in 0..if follow { columns } else { 0 } {
            if self.packet().is_none() {
                return false;
            }
        }
        let mut parameters = false;
        if !self.deprecate_eof() {
            match self.packet() {
                Some(eof) if eof_status(&eof) & 0x40 != 0 => return more(eof_status(&eof)),
                Some(eof) => parameters = eof_status(&eof) & 0x1008 == 0x1008,
                None => return false,
            }
        }
        // MySQL doesn't announce the OK behind a procedure's parameters.
        more(self.rows()) || parameters
    }

    /// Rows up to their end; its status, 0 for an error or a close.
    fn rows(&mut self) -> u16 {
        loop {
            let Some(row) = self.packet() else { return 0 };
            match row.first() {
                Some(0xff) if self.progress && row.get(1..3) == Some(&[0xff, 0xff]) => {
                    self.heard.pop();
                }
                Some(0xff) => return 0,
                Some(0xfe) if row.len() < 9 && !self.deprecate_eof() => return eof_status(&row),
                Some(0xfe) if row.len() < PACKET_MAX && self.deprecate_eof() => {
                    return if row.len() >= 7 { ok_status(&row) } else { eof_status(&row) };
                }
                Some(_) | None => {}
            }
        }
    }

    fn prepared(&mut self) {
        let Some(first) = self.packet() else { return };
        if first.first() != Some(&0) || first.len() < 12 {
            return;
        }
        let number = first[1..5].try_into().unwrap();
        self.numbers.push(u32::from_le_bytes(number));
        if let Some(last) = self.heard.pop() {
            let sequence = last.split(' ').next().unwrap();
            self.heard.push(format!("{sequence} prepared: {}", first[5..].escape_ascii()));
        }
        let short = |at: usize| u16::from_le_bytes([first[at], first[at + 1]]);
        let follow = !self.metadata_byte || first.get(12) != Some(&0) || first.len() < 13;
        for count in [short(7), short(5)] {
            let eof = u16::from(count > 0 && !self.deprecate_eof());
            for _ in 0..if follow { count + eof } else { 0 } {
                self.packet();
            }
        }
    }

    /// Another session to the same place.
    pub fn other(&self) -> MyWire {
        MyWire::connect(self.port, "wire", &self.db)
    }

    /// The engine's number of this session, as the greeting gave it.
    pub fn thread(&self) -> u32 {
        self.wire.greeting.thread_id
    }

    /// Waits until this session's statement stands in a state like this.
    pub fn wait_for(&mut self, state: &str) {
        let mut other = self.other();
        let sql = format!(
            "SELECT count(*) FROM information_schema.processlist WHERE id = {} AND (state LIKE \
             '{state}' OR info LIKE '{state}')",
            self.thread()
        );
        let there = crate::support::poll(std::time::Duration::from_secs(60), || {
            (other.query(&sql).ok().cell() == "1").then_some(())
        });
        if there.is_none() {
            self.heard.push(format!("? never stood in {state}"));
        }
    }
}

/// A number that MySQL counts over all sessions, among what it tracks of one.
fn mask_statement_id(piece: &mut [u8]) {
    const NAME: &[u8] = b"statement_id";
    let found = piece.windows(NAME.len()).position(|part| part == NAME);
    let Some(digits) = found.and_then(|at| piece.get_mut(at + NAME.len() + 1..)) else { return };
    for digit in digits.iter_mut().take_while(|byte| byte.is_ascii_digit()) {
        *digit = b'0';
    }
}

/// The status bit that says that the statement took long, which is the machine's affair. In OK and
/// EOF packets with small numbers; what else begins like one loses the bit on both sides.
fn mask_slow(piece: &mut [u8]) {
    if let [0x00 | 0xfe, 0..=0xfa, 0..=0xfa, _, high, ..] = piece {
        *high &= !0x08;
    }
}

const fn more(status: u16) -> bool {
    status & 8 != 0
}

/// The status flags of an OK packet.
pub fn ok_status(payload: &[u8]) -> u16 {
    if payload.len() < 5 { 0 } else { crate::support::my_wire::MyOk::parse(payload).status }
}

fn eof_status(payload: &[u8]) -> u16 {
    payload.get(3..5).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
}

/// What a client says that wants no more than it must have.
pub const LITTLE: u32 = USUAL;
