//! One answer of the engine, followed packet by packet, without looking at rows.
//!
//! Purpose: W4 and W22 of wire.md: know where an answer ends and what state it tells of (facts B1
//! to B8, B19, B22, B32). Fed with each packet's length and its first bytes. The request is over
//! at the first end of a result that doesn't announce another one.
//!
//! An ERR carries no status, and what it ended may have committed before (facts 8): the caller
//! takes the session's state for unknown behind one. A packet that can't be is a fault: a tracker
//! that guesses would release leases by mistake.
//!
//! Pure; used by the relay for the direction engine to client. One answer at a time: the relay
//! sends no command while one is owed.

use crate::base::limits;
use crate::wire::mysql::commands::Reply;
use crate::wire::mysql::frame::{self, HEADER, PAYLOAD_MAX, counted as text, number};

/// What both sides agreed on in the handshake, as far as it shapes answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rules {
    /// CLIENT_DEPRECATE_EOF: result sets end with an OK that looks like an EOF.
    pub(crate) deprecate_eof: bool,
    /// CLIENT_SESSION_TRACK: OK packets may carry changes of the session's state.
    pub(crate) session_track: bool,
    /// MariaDB's progress reports: an ERR with code 0xFFFF isn't an end.
    pub(crate) progress: bool,
    /// A byte behind the number of columns says whether definitions follow
    /// (CLIENT_OPTIONAL_RESULTSET_METADATA of MySQL, CACHE_METADATA of MariaDB).
    pub(crate) metadata_byte: bool,
}

/// The status flags of an OK or EOF packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Status(pub(crate) u16);

impl Status {
    const fn has(self, bit: u16) -> bool {
        self.0 & bit != 0
    }

    /// A transaction is open.
    pub(crate) const fn in_transaction(self) -> bool {
        self.has(0x0001)
    }

    /// Each statement is a transaction by itself.
    pub(crate) const fn is_autocommit(self) -> bool {
        self.has(0x0002)
    }

    /// The rows are the parameters that a procedure gave values to.
    const fn out_parameters(self) -> bool {
        self.has(0x1000)
    }

    /// Another result follows.
    pub(crate) const fn more_results(self) -> bool {
        self.has(0x0008)
    }

    /// The rows wait in a cursor.
    pub(crate) const fn cursor_exists(self) -> bool {
        self.has(0x0040)
    }

    /// A FETCH has come to the end: its cursor is closed.
    pub(crate) const fn last_row_sent(self) -> bool {
        self.has(0x0080)
    }

    /// A backslash in a string is an ordinary character.
    pub(crate) const fn no_backslash_escapes(self) -> bool {
        self.has(0x0200)
    }

    /// The open transaction is a read-only one.
    pub(crate) const fn read_only(self) -> bool {
        self.has(0x2000)
    }

    const fn session_changed(self) -> bool {
        self.has(0x4000)
    }
}

/// What one packet meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Something on the way.
    Within,
    /// Something on the way that tells the status at this point.
    Told(Status),
    /// The engine asks for a file: the client sends packets, up to an empty one.
    FileWanted,
    /// A login goes on: the client sends one packet.
    LoginWanted,
    /// The number of a prepared statement. `done` if no definitions follow.
    Prepared {
        /// Its number.
        id: u32,
        /// Nothing more comes.
        done: bool,
    },
    /// The answer is over, and this is the state behind it. `None`: this answer doesn't say.
    Done(Option<Status>),
    /// The answer is over with an error.
    Failed(u16),
    /// An error that nobody asked for: the engine is about to close.
    Farewell,
}

/// The engine broke the protocol, or this tracker misunderstood it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a packet of {length} bytes beginning with {first:#04x} can't be here: {place}")]
pub(crate) struct Impossible {
    place: &'static str,
    length: usize,
    first: u8,
}

/// Where in an answer we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Nothing,
    Ok,
    Text,
    Result,
    /// Definitions of a result set's columns.
    Columns(u64),
    ColumnsEof,
    Rows,
    Definitions,
    Prepared,
    PreparedParameters {
        parameters: u16,
        columns: u16,
    },
    PreparedParametersEof {
        columns: u16,
    },
    PreparedColumns(u16),
    PreparedColumnsEof,
    Login,
    Stream,
}

impl Place {
    const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing was asked",
            Self::Ok => "an OK was expected",
            Self::Text => "a text was expected",
            Self::Result => "a result was expected",
            Self::Columns(_) => "a column was expected",
            Self::ColumnsEof => "the end of the columns was expected",
            Self::Rows => "a row was expected",
            Self::Definitions => "a definition was expected",
            Self::Prepared => "the number of a statement was expected",
            Self::PreparedParameters { .. } => "a parameter was expected",
            Self::PreparedParametersEof { .. } => "the end of the parameters was expected",
            Self::PreparedColumns(_) => "a column of a prepared statement was expected",
            Self::PreparedColumnsEof => "the end of a prepared statement was expected",
            Self::Login => "a step of a login was expected",
            Self::Stream => "a piece of a stream was expected",
        }
    }
}

const OK: u8 = 0x00;
const MORE_DATA: u8 = 0x01;
const FILE: u8 = 0xfb;
const EOF: u8 = 0xfe;
pub(crate) const ERR: u8 = 0xff;

/// Longest packet that is an EOF: a longer one with that first byte is something else.
const EOF_BYTES_MAX: usize = 8;
/// Shortest OK that takes an EOF's place.
const OK_BYTES_MIN: usize = 7;
/// First bytes of a packet that tell all but what changed in the session: an OK's numbers.
const HEAD_BYTES: usize = 32;
/// First bytes of an error that hold its number and what it says.
const ERROR_BYTES: usize = 256;

/// Follows one answer.
#[derive(Debug)]
pub(crate) struct Tracker {
    rules: Rules,
    place: Place,
    /// Behind these rows comes another result, whatever their end says: MySQL's EOF behind a
    /// procedure's parameters doesn't announce the OK that follows.
    announced: bool,
    /// A packet of the replica's stream has come: the engine didn't refuse it.
    flowing: bool,
}

impl Tracker {
    pub(crate) const fn new(rules: Rules) -> Self {
        Self { rules, place: Place::Nothing, announced: false, flowing: false }
    }

    /// What was agreed.
    pub(crate) const fn rules(&self) -> Rules {
        self.rules
    }

    /// A command is forwarded that is answered like this. Nothing must be owed.
    pub(crate) const fn expect(&mut self, reply: Reply) {
        self.announced = false;
        self.flowing = false;
        self.place = match reply {
            Reply::None => Place::Nothing,
            Reply::Ok => Place::Ok,
            Reply::Text => Place::Text,
            Reply::Results => Place::Result,
            Reply::Definitions => Place::Definitions,
            Reply::Prepared => Place::Prepared,
            Reply::Rows => Place::Rows,
            Reply::Login => Place::Login,
            Reply::Stream => Place::Stream,
        };
    }

    /// Whether an answer is still to come, or to end.
    pub(crate) const fn is_owing(&self) -> bool {
        !matches!(self.place, Place::Nothing)
    }

    /// Whether a replica's stream is running: it was asked for, and packets of it have come. Until
    /// then the engine may refuse it and go on with commands.
    pub(crate) const fn is_streaming(&self) -> bool {
        matches!(self.place, Place::Stream) && self.flowing
    }

    /// How many of a packet's first bytes [`Tracker::packet`] wants to see, where its length is
    /// `length` and its first byte `first`. Never more than the packet has.
    pub(crate) fn wants(&self, length: usize, first: u8) -> usize {
        let carrier = match self.place {
            Place::Columns(_)
            | Place::PreparedParameters { .. }
            | Place::PreparedColumns(_)
            | Place::Stream
            | Place::Text => false,
            Place::Rows | Place::Definitions => matches!(first, EOF | ERR) && length < PAYLOAD_MAX,
            Place::Nothing
            | Place::Ok
            | Place::Result
            | Place::ColumnsEof
            | Place::Prepared
            | Place::PreparedParametersEof { .. }
            | Place::PreparedColumnsEof
            | Place::Login => true,
        };
        let most = match first {
            ERR if length < PAYLOAD_MAX => ERROR_BYTES,
            _ if carrier && self.carries_changes(first) => limits::ENGINE_MESSAGE_INSPECT_BYTES_MAX,
            _ => HEAD_BYTES,
        };
        length.min(most)
    }

    const fn carries_changes(&self, first: u8) -> bool {
        self.rules.session_track && matches!(first, OK | EOF)
    }

    /// Takes note of the packets in front of `bytes` that are whole and can be nothing but rows or
    /// definitions of columns: most packets there are. Returns their length together and the last
    /// one's number; without any, nothing has changed. What it leaves is for [`Tracker::packet`],
    /// which takes note of these in the same way, one by one.
    pub(crate) fn skim(&mut self, bytes: &[u8]) -> Option<(usize, u8)> {
        let (mut at, mut last) = (0, None);
        while let Some(behind) = self.behind_a_plain_packet()
            && let Some(header) = bytes.get(at..).and_then(frame::header)
            && let Some(first) = bytes.get(at + HEADER)
            && let end = at + HEADER + header.payload
            && end <= bytes.len()
            && !matches!(header.payload, 0 | PAYLOAD_MAX)
            && !matches!(*first, EOF | ERR)
        {
            self.place = behind;
            (at, last) = (end, Some(header.sequence));
        }
        last.map(|sequence| (at, sequence))
    }

    /// Where a row or a definition leads that can be nothing else; `None` where neither is due.
    const fn behind_a_plain_packet(&self) -> Option<Place> {
        match self.place {
            Place::Rows => Some(Place::Rows),
            Place::Columns(left) => Some(self.columns_to_come(left - 1)),
            Place::Nothing
            | Place::Ok
            | Place::Text
            | Place::Result
            | Place::ColumnsEof
            | Place::Definitions
            | Place::Prepared
            | Place::PreparedParameters { .. }
            | Place::PreparedParametersEof { .. }
            | Place::PreparedColumns(_)
            | Place::PreparedColumnsEof
            | Place::Login
            | Place::Stream => None,
        }
    }

    /// Takes note of a packet: its length (of the first part, if it has several) and as many of
    /// its first bytes as [`Tracker::wants`].
    ///
    /// # Errors
    /// [`Impossible`], after which the tracker is of no use.
    pub(crate) fn packet(&mut self, length: usize, head: &[u8]) -> Result<Seen, Impossible> {
        let first = head.first().copied().unwrap_or_default();
        let impossible = Impossible { place: self.place.name(), length, first };
        if first == ERR && length < PAYLOAD_MAX {
            return Ok(self.failed(head));
        }
        let seen = match self.place {
            Place::Nothing => None,
            Place::Ok => self.ok(length, head),
            Place::Text => Some(self.done(None)),
            Place::Result => self.result(length, head),
            Place::Columns(left) => {
                self.place = self.columns_to_come(left - 1);
                Some(Seen::Within)
            }
            Place::ColumnsEof => self.columns_eof(length, head),
            Place::Rows | Place::Definitions => {
                if first == EOF && self.ends_rows(length) {
                    self.end(length, head)
                } else {
                    Some(Seen::Within)
                }
            }
            Place::Prepared => self.prepared(length, head),
            Place::PreparedParameters { parameters, columns } => {
                self.place = match (parameters, self.rules.deprecate_eof) {
                    (1, true) => Place::PreparedColumns(columns),
                    (1, false) => Place::PreparedParametersEof { columns },
                    _ => Place::PreparedParameters { parameters: parameters - 1, columns },
                };
                Some(self.unless_over())
            }
            Place::PreparedParametersEof { columns } => eof(length, head).map(|status| {
                self.place = Place::PreparedColumns(columns);
                self.over_with(status)
            }),
            Place::PreparedColumns(columns) => {
                self.place = match (columns, self.rules.deprecate_eof) {
                    (1, false) => Place::PreparedColumnsEof,
                    _ => Place::PreparedColumns(columns.saturating_sub(1)),
                };
                Some(self.unless_over())
            }
            Place::PreparedColumnsEof => eof(length, head).map(|status| self.done(Some(status))),
            Place::Login => Some(self.login(length, head)),
            Place::Stream => Some(if first == EOF && length <= EOF_BYTES_MAX {
                self.done(eof(length, head))
            } else {
                self.flowing = true;
                Seen::Within
            }),
        };
        seen.ok_or(impossible)
    }

    const fn done(&mut self, status: Option<Status>) -> Seen {
        self.place = Place::Nothing;
        Seen::Done(status)
    }

    fn failed(&mut self, head: &[u8]) -> Seen {
        let code = short(head, 1).unwrap_or_default();
        if code == 0xffff && self.rules.progress && self.is_owing() {
            return Seen::Within;
        }
        let asked = self.is_owing();
        self.place = Place::Nothing;
        if asked { Seen::Failed(code) } else { Seen::Farewell }
    }

    /// The end of one result: of the answer, unless another one is announced.
    fn one_result(&mut self, status: Status) -> Seen {
        let announced = std::mem::replace(&mut self.announced, false);
        if status.more_results() || announced {
            self.place = Place::Result;
            Seen::Told(status)
        } else {
            self.done(Some(status))
        }
    }

    fn ok(&mut self, length: usize, head: &[u8]) -> Option<Seen> {
        let status = match *head.first()? {
            OK => ok_status(head)?,
            EOF => self.end_status(length, head)?,
            _ => return None,
        };
        Some(self.done(Some(status)))
    }

    fn result(&mut self, length: usize, head: &[u8]) -> Option<Seen> {
        match *head.first()? {
            OK => ok_status(head).map(|status| self.one_result(status)),
            FILE => Some(Seen::FileWanted),
            // Some statements of the engine's own end like this where a result could be.
            EOF if length <= EOF_BYTES_MAX => {
                eof(length, head).map(|status| self.one_result(status))
            }
            _ => {
                let (columns, rest) = number(head)?;
                let follow = !self.rules.metadata_byte || rest.first() != Some(&0);
                self.place = self.columns_to_come(if follow { columns } else { 0 });
                Some(Seen::Within)
            }
        }
    }

    const fn columns_to_come(&self, left: u64) -> Place {
        match (left, self.rules.deprecate_eof) {
            (0, true) => Place::Rows,
            (0, false) => Place::ColumnsEof,
            _ => Place::Columns(left),
        }
    }

    fn columns_eof(&mut self, length: usize, head: &[u8]) -> Option<Seen> {
        let status = eof(length, head)?;
        if status.cursor_exists() {
            return Some(self.one_result(status));
        }
        self.announced = status.out_parameters() && status.more_results();
        self.place = Place::Rows;
        Some(Seen::Told(status))
    }

    /// Whether a packet that begins like an EOF ends the rows. A row may begin like that, too, if
    /// its first value is 16 MiB or longer: then the packet is one that doesn't end the row.
    const fn ends_rows(&self, length: usize) -> bool {
        length <= EOF_BYTES_MAX || (self.rules.deprecate_eof && length < PAYLOAD_MAX)
    }

    fn end(&mut self, length: usize, head: &[u8]) -> Option<Seen> {
        let status = self.end_status(length, head)?;
        if self.place == Place::Definitions {
            return Some(self.done(Some(status)));
        }
        Some(self.one_result(status))
    }

    /// An EOF, or an OK in its place. The engine's query cache may bring up an EOF where an OK was
    /// agreed on (MySQL bug 83346): the length tells.
    fn end_status(&self, length: usize, head: &[u8]) -> Option<Status> {
        if self.rules.deprecate_eof && length >= OK_BYTES_MIN {
            ok_status(head)
        } else {
            eof(length, head)
        }
    }

    fn prepared(&mut self, length: usize, head: &[u8]) -> Option<Seen> {
        if head.first() != Some(&OK) || length < 9 {
            return None;
        }
        let id = u32::from_le_bytes(head.get(1..5)?.try_into().ok()?);
        let (columns, parameters) = (short(head, 5)?, short(head, 7)?);
        let follow = !self.rules.metadata_byte || head.get(12) != Some(&0) || length < 13;
        self.place = match (follow, parameters) {
            (false, _) => Place::PreparedColumns(0),
            (true, 0) => Place::PreparedColumns(columns),
            (true, _) => Place::PreparedParameters { parameters, columns },
        };
        let done = self.place == Place::PreparedColumns(0);
        if done {
            self.place = Place::Nothing;
        }
        Some(Seen::Prepared { id, done })
    }

    /// The end of a prepared statement's blocks, if no column is to come.
    fn unless_over(&mut self) -> Seen {
        if self.place == Place::PreparedColumns(0) { self.done(None) } else { Seen::Within }
    }

    fn over_with(&mut self, status: Status) -> Seen {
        if self.place == Place::PreparedColumns(0) {
            self.done(Some(status))
        } else {
            Seen::Told(status)
        }
    }

    fn login(&mut self, length: usize, head: &[u8]) -> Seen {
        match head.first() {
            Some(&OK) => {
                let status = ok_status(head);
                self.done(status)
            }
            // caching_sha2_password: the scramble was right, and the OK follows by itself.
            Some(&MORE_DATA) if length == 2 && head.get(1) == Some(&3) => Seen::Within,
            Some(_) | None => Seen::LoginWanted,
        }
    }
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at + 2)?;
    Some(u16::from_le_bytes(two.try_into().ok()?))
}

fn eof(length: usize, head: &[u8]) -> Option<Status> {
    let right = head.first() == Some(&EOF) && length <= EOF_BYTES_MAX;
    if right { short(head, 3).map(Status) } else { None }
}

/// The status in an OK packet, also in one that takes an EOF's place.
fn ok_status(packet: &[u8]) -> Option<Status> {
    let (_, rest) = number(packet.get(1..)?)?;
    let (_, rest) = number(rest)?;
    short(rest, 0).map(Status)
}

/// Something that changed in the session, as an OK packet tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// A variable that is tracked has this value now.
    Variable(&'a [u8], &'a [u8]),
    /// The default schema is this one now.
    Schema(&'a [u8]),
    /// Something else.
    Other,
}

/// What an OK packet (whole) says has changed in the session. Ends at the first thing that can't
/// be read.
pub(crate) fn changes(packet: &[u8]) -> Changes<'_> {
    let rest = Changes::begin(packet).unwrap_or_default();
    Changes { rest, inside: &[] }
}

/// Iterator of [`changes`].
#[derive(Debug)]
pub(crate) struct Changes<'a> {
    rest: &'a [u8],
    /// Further variables of the entry that is being read.
    inside: &'a [u8],
}

impl<'a> Changes<'a> {
    fn begin(packet: &'a [u8]) -> Option<&'a [u8]> {
        if !ok_status(packet)?.session_changed() {
            return None;
        }
        let (_, rest) = number(packet.get(1..)?)?;
        let (_, rest) = number(rest)?;
        let (_, rest) = text(rest.get(4..)?)?;
        text(rest).map(|(all, _)| all)
    }

    fn variable(&mut self) -> Option<Change<'a>> {
        let (name, rest) = text(self.inside)?;
        let (value, rest) = text(rest)?;
        self.inside = rest;
        Some(Change::Variable(name, value))
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = Change<'a>;

    fn next(&mut self) -> Option<Change<'a>> {
        if let Some(variable) = self.variable() {
            return Some(variable);
        }
        let (kind, rest) = self.rest.split_first()?;
        let (data, rest) = text(rest)?;
        self.rest = rest;
        match kind {
            0 => {
                self.inside = data;
                self.variable()
            }
            1 => text(data).map(|(name, _)| Change::Schema(name)),
            _ => Some(Change::Other),
        }
    }
}
