//! One session of the siege: a raw client that plays steps, and writes down what was said.
//!
//! Purpose: sends what a script says, reads what comes, connects anew where the connection ended,
//! and shows in the end whether it can be used again. It waits for nothing in particular: an answer
//! that doesn't come is a hang only where [`Session::recover`] says so.
//!
//! Who uses it: `siege/mod.rs`. It judges nothing but liveness.

use std::time::{Duration, Instant};

use super::words::{Message, Step};
use crate::acceptance::PATIENCE;
use crate::support::wire::{Frame, bind, cstr, execute, fields, parse, query, sync};
use crate::support::{Wire, poll};

/// How long nothing may come before a settled session goes on.
const STILL: Duration = Duration::from_millis(15);

/// How long a session waits for a first answer before it goes on all the same.
const SETTLE: Duration = Duration::from_millis(150);

/// How long a session that is spoken to in plain words may be silent.
const SILENCE: Duration = Duration::from_secs(25);

/// How a session was found once the fence was lifted.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// It does what a session does.
    Useful,
    /// It was closed, behind an error with this SQLSTATE.
    Closed(Option<String>),
    /// Nothing came any more.
    Silent,
    /// It answers, and not as it should.
    Wrong(String),
}

/// A session that plays a script.
pub struct Session {
    port: u16,
    db: String,
    who: String,
    wire: Wire,
    open: bool,
    /// What was said, one line for each step.
    pub log: Vec<String>,
    /// How often it was closed, and with which code.
    pub closes: Vec<String>,
    last_error: Option<String>,
    began: Instant,
}

impl Session {
    pub fn open(port: u16, db: &str, who: &str) -> Self {
        let wire = connect(port, db, who);
        let (port, db, who) = (port, db.to_owned(), who.to_owned());
        let (log, closes) = (Vec::new(), Vec::new());
        Self {
            port,
            db,
            who,
            wire,
            open: true,
            log,
            closes,
            last_error: None,
            began: Instant::now(),
        }
    }

    /// Plays steps, whatever comes of them.
    pub fn play(&mut self, steps: &[Step]) {
        for step in steps {
            if !self.open {
                self.again();
            }
            self.log.push(format!("{:>6} > {step}", self.began.elapsed().as_millis()));
            match step {
                Step::Send(messages, cut) => self.send(messages, *cut),
                Step::Listen(ms) => self.listen(Duration::from_millis(*ms)),
                Step::Settle => self.settle(),
                Step::Cancel => self.wire.cancel(),
            }
        }
    }

    pub fn note(&mut self, what: &str) {
        self.log.push(format!("{:>6} ===== {what}", self.began.elapsed().as_millis()));
    }

    fn again(&mut self) {
        self.log.push("> (connects anew)".into());
        self.wire = connect(self.port, &self.db, &self.who);
        self.open = true;
        self.last_error = None;
    }

    fn send(&mut self, messages: &[Message], cut: Option<usize>) {
        let bytes: Vec<u8> = messages.iter().flat_map(Message::bytes).collect();
        let at = cut.map_or(bytes.len(), |at| at % bytes.len().max(1));
        self.put(&bytes[..at]);
        if at < bytes.len() {
            self.listen(Duration::from_millis(5));
            self.put(&bytes[at..]);
        }
    }

    /// What can't be written any more may have been answered before: the reading tells.
    fn put(&mut self, bytes: &[u8]) {
        drop(self.wire.try_send(bytes));
    }

    /// Takes one frame; answers its tag, or nothing when none came in time or none can come.
    fn hear(&mut self, limit: Duration, heard: &mut Vec<String>) -> Option<Frame> {
        if !self.open {
            return None;
        }
        match self.wire.try_read_frame(limit) {
            Ok(Some(frame)) => {
                self.last_error =
                    (frame.0 == b'E').then(|| fields(&frame.1).get(&'C').cloned()).flatten();
                note(heard, &frame);
                Some(frame)
            }
            Ok(None) => None,
            Err(_) => {
                self.open = false;
                heard.push("(closed)".into());
                // Nothing can be told in the middle of a message.
                let cut = !self.wire.unfinished().is_empty();
                let why = if cut { Some("in a message".into()) } else { self.last_error.take() };
                self.closes.push(why.unwrap_or_default());
                None
            }
        }
    }

    fn listen(&mut self, time: Duration) {
        let (end, mut heard) = (Instant::now() + time, Vec::new());
        while self.open {
            let left = end.saturating_duration_since(Instant::now());
            if self.hear(left, &mut heard).is_none() {
                break;
            }
        }
        self.heard(&heard);
    }

    fn settle(&mut self) {
        let mut heard = Vec::new();
        let mut ready = false;
        while let Some(frame) = self.hear(if ready { STILL } else { SETTLE }, &mut heard) {
            ready = frame.0 == b'Z';
        }
        self.heard(&heard);
    }

    fn heard(&mut self, heard: &[String]) {
        if !heard.is_empty() {
            self.log.push(format!("<   {}", heard.join(" ")));
        }
    }

    /// Speaks to it in plain words, again and again: a COPY, or what skips to a Sync, may swallow
    /// some. Then it must be as useful as any session.
    pub fn recover(&mut self) -> Found {
        let mut silent = Duration::ZERO;
        for attempt in 0.. {
            if !self.open {
                return Found::Closed(self.closes.last().cloned().filter(|code| !code.is_empty()));
            }
            let marker = format!("alive {attempt}");
            let all = [
                sync(),
                query("ROLLBACK"),
                query("SET statement_timeout = 0"),
                query(&format!("SELECT '{marker}'")),
            ];
            self.log
                .push(format!("{:>6} > (recovers: {marker})", self.began.elapsed().as_millis()));
            self.put(&all.concat());
            let patience = Duration::from_secs(2 + attempt);
            if self.until_row(&marker, patience) {
                return self.exact();
            }
            silent += patience;
            if silent > SILENCE && self.open {
                return Found::Silent;
            }
        }
        Found::Silent
    }

    /// Reads until a row with this text and the ReadyForQuery behind it.
    fn until_row(&mut self, text: &str, patience: Duration) -> bool {
        let (mut heard, mut seen) = (Vec::new(), false);
        while let Some((tag, body)) = self.hear(patience, &mut heard) {
            seen |= tag == b'D' && body.ends_with(text.as_bytes());
            if seen && tag == b'Z' {
                self.heard(&heard);
                return true;
            }
        }
        self.heard(&heard);
        false
    }

    /// A pipeline and a query, whose answers must be these to the byte.
    fn exact(&mut self) -> Found {
        let pipeline = [parse("", "SELECT 'x'"), bind("", "", &[]), execute("", 0), sync()];
        self.put(&[pipeline.concat(), query("SELECT 7 AS n")].concat());
        let mut heard = Vec::new();
        let mut frames = Vec::new();
        while frames.iter().filter(|frame: &&Frame| frame.0 == b'Z').count() < 2 {
            match self.hear(SILENCE, &mut heard) {
                Some(frame) => frames.push(frame),
                None if self.open => return Found::Silent,
                None => return Found::Closed(self.closes.last().cloned()),
            }
        }
        self.heard(&heard);
        let wanted = [
            (b'1', &b""[..]),
            (b'2', b""),
            (b'D', b"\0\x01\0\0\0\x01x"),
            (b'C', b"SELECT 1\0"),
            (b'Z', b"I"),
            (b'T', b"\0\x01n\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0"),
            (b'D', b"\0\x01\0\0\0\x017"),
            (b'C', b"SELECT 1\0"),
            (b'Z', b"I"),
        ];
        let same = frames.len() == wanted.len()
            && frames.iter().zip(wanted).all(|(got, want)| (got.0, &got.1[..]) == want);
        if same { Found::Useful } else { Found::Wrong(heard.join(" ")) }
    }

    /// One query's error code, or its first cell.
    pub fn asks(&mut self, sql: &str) -> String {
        self.log.push(format!("> Q({sql:?})"));
        self.put(&query(sql));
        let (mut heard, mut said) = (Vec::new(), String::new());
        while let Some((tag, body)) = self.hear(SILENCE, &mut heard) {
            match tag {
                b'D' => said = String::from_utf8_lossy(&body[6..]).into_owned(),
                b'E' => said = fields(&body)[&'C'].clone(),
                b'Z' => break,
                _ => {}
            }
        }
        self.heard(&heard);
        said
    }
}

/// An engine that has crashed under a conversation takes a while to come back.
fn connect(port: u16, db: &str, who: &str) -> Wire {
    let mut last = None;
    let wire = poll(PATIENCE, || {
        let tried = Wire::try_connect(port, "wire", db, &[("application_name", who)]);
        tried.map_err(|fields| last = Some(fields)).ok()
    });
    wire.unwrap_or_else(|| panic!("{who} can't log in: {last:?}"))
}

/// Writes an answer down in short; rows of one kind are counted.
fn note(heard: &mut Vec<String>, (tag, body): &Frame) {
    let text = match tag {
        b'Z' => format!("Z({})", char::from(body[0])),
        b'E' | b'N' => {
            let fields = fields(body);
            let field = |name| fields.get(&name).cloned().unwrap_or_default();
            format!("{}[{} {}]", char::from(*tag), field('C'), field('M'))
        }
        b'C' => format!("C[{}]", cstr(body)),
        b'S' => format!("S[{}]", String::from_utf8_lossy(body).replace('\0', "=")),
        other => char::from(*other).to_string(),
    };
    let counted = |last: &str| last == text || last.starts_with(&format!("{text}x"));
    match heard.last_mut().filter(|last| counted(last)) {
        Some(last) => {
            let times = last.rsplit_once('x').and_then(|(_, n)| n.parse().ok()).unwrap_or(1_u32);
            *last = format!("{text}x{}", times + 1);
        }
        None => heard.push(text),
    }
}
