//! One session of a siege: a raw connection, what it has prepared, and all it has said.

use std::io::{Error, ErrorKind, Result as Io};
use std::time::Duration;

use super::Dice;
use super::texts::{Grammar, Setting};
use crate::support::MyWire;
use crate::support::my_wire::{MyError, MyLogin, MyOk, Reader, flag, packets, status};

/// The longest a command may take: every wait in the engine is a second long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Rounds of a result set, or results of an answer: more is a fault of the reader of this.
const PACKETS_MAX: usize = 100_000;

/// What came of a step.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Errors by number; 0 is a result without one.
    pub codes: Vec<u16>,
    /// The status of the last result that had one.
    pub status: u16,
    /// The session has ended.
    pub over: bool,
    /// No answer came in time.
    pub silent: bool,
}

/// A session.
pub struct Session {
    pub name: usize,
    /// `None` behind its end.
    wire: Option<MyWire>,
    statements: Vec<u32>,
    /// It began under the fence, or has nothing open from before it.
    pub fresh: bool,
    /// It keeps one transaction open from before the fence, and only reads.
    pub idler: bool,
    /// What it was told last of its transaction.
    pub status: u16,
    /// A command whose answer wasn't read.
    pub owed: bool,
    pub log: Vec<String>,
}

/// How commands' answers are framed.
#[derive(Clone, Copy)]
enum Shape {
    Results,
    Prepared,
    Rows,
    Fields,
    Nothing,
    One,
    Login,
}

impl Session {
    /// Logs in; one that is refused is a session that is over.
    pub fn begin(port: u16, name: usize, home: &str, dice: &mut Dice) -> Self {
        let mut login = MyLogin::of("wire", home).with(flag::MULTI_STATEMENTS | flag::LOCAL_FILES);
        for more in [flag::DEPRECATE_EOF, flag::SESSION_TRACK, flag::FOUND_ROWS] {
            if dice.chance(50) {
                login = login.with(more);
            }
        }
        login.charset = dice.pick(&[45, 45, 45, 8, 28, 13, 63]);
        let told = format!("login {home:?} {:x} charset {}", login.capabilities, login.charset);
        let wire = MyWire::login(port, &login);
        let mut session = Self {
            name,
            wire: None,
            statements: Vec::new(),
            fresh: false,
            idler: false,
            status: 0,
            owed: false,
            log: Vec::new(),
        };
        match wire {
            Ok(wire) => {
                wire.socket().set_read_timeout(Some(PATIENCE)).unwrap();
                session.status = wire.welcome.status;
                session.wire = Some(wire);
                session.log.push(told);
            }
            Err(error) => session.log.push(format!("{told}: {error:?}")),
        }
        session
    }

    pub fn is_over(&self) -> bool {
        self.wire.is_none()
    }

    /// In a transaction, as far as it was told.
    pub fn in_transaction(&self) -> bool {
        self.status & status::IN_TRANS != 0
    }

    /// The engine's number for it.
    pub fn thread(&self) -> u32 {
        self.wire.as_ref().map_or(0, |wire| wire.greeting.thread_id)
    }

    pub fn close(&mut self) {
        self.wire = None;
    }

    /// COM_QUERY.
    pub fn query(&mut self, text: &[u8]) -> Outcome {
        self.say(&[b"\x03", text].concat(), Shape::Results, b"77\n78\n")
    }

    /// COM_QUERY whose answer is read later, by [`Self::collect`].
    pub fn leave(&mut self, text: &[u8]) {
        self.log.push(format!("(not read yet) {}", shown(&[b"\x03", text].concat())));
        let Some(wire) = &mut self.wire else { return };
        let sent = wire.try_send_raw(&packets(&[b"\x03", text].concat(), &mut 0));
        self.owed = sent.is_ok();
    }

    /// The answer to what was left.
    pub fn collect(&mut self) -> Outcome {
        if !std::mem::take(&mut self.owed) {
            return Outcome::default();
        }
        self.finish("(what was left)".to_owned(), Shape::Results, b"77\n")
    }

    /// A random command.
    pub fn step(&mut self, dice: &mut Dice, setting: Setting) -> Outcome {
        let setting = Setting { fresh: self.fresh, ..setting };
        if self.idler {
            let reads = ["select 1", "select * from t limit 1", "select count(*) from d.u"];
            return self.query(dice.pick(&reads).as_bytes());
        }
        match dice.below(100) {
            0..60 => {
                let text = Grammar { dice, setting }.text();
                let file = dice.pick(&[&b"77\n78\n"[..], b""]);
                self.say(&[b"\x03", &text[..]].concat(), Shape::Results, file)
            }
            60..72 => {
                let text = Grammar { dice, setting }.text();
                self.say(&[b"\x16", &text[..]].concat(), Shape::Prepared, b"")
            }
            72..85 => self.by_number(dice),
            85..89 => {
                let schema = dice.pick(&["d", "a", "D", "nowhere", "d "]);
                self.say(&[b"\x02", schema.as_bytes()].concat(), Shape::One, b"")
            }
            89 | 90 => self.change_user(dice),
            91 | 92 => self.say(b"\x1f", Shape::One, b""),
            93 | 94 => {
                let late = setting.fenced && setting.fresh;
                let tables: &[&str] = if late { &["qv", "vs", "v"] } else { &["t", "v"] };
                let table = dice.pick(tables);
                self.say(&[b"\x04", table.as_bytes(), b"\0"].concat(), Shape::Fields, b"")
            }
            95 => self.say(dice.pick(&[b"\x1b\0\0", b"\x1b\x01\0"]), Shape::One, b""),
            96 | 97 => {
                let fenced: &[&[u8]] = &[b"\x06d", b"\x06d", b"\x06D", b"\x05d"];
                let open: &[&[u8]] = &[b"\x05d", b"\x05D"];
                self.say(dice.pick(if setting.fenced { fenced } else { open }), Shape::One, b"")
            }
            _ => self.say(dice.pick(&[b"\x0e", b"\x09"]), Shape::One, b""),
        }
    }

    /// A command about a prepared statement.
    fn by_number(&mut self, dice: &mut Dice) -> Outcome {
        let mut ids: Vec<u32> = self.statements.iter().rev().take(4).copied().collect();
        ids.push(u32::MAX);
        let id = dice.pick(&ids).to_le_bytes();
        match dice.below(12) {
            0..7 => {
                let cursor = dice.pick(&[0, 0, 1]);
                let execute = [b"\x17", &id[..], &[cursor, 1, 0, 0, 0]].concat();
                self.say(&execute, Shape::Results, b"77\n")
            }
            7 | 8 => self.say(&[b"\x1c", &id[..], &[2, 0, 0, 0]].concat(), Shape::Rows, b""),
            9 => self.say(&[b"\x1a", &id[..]].concat(), Shape::One, b""),
            10 => self.say(&[b"\x18", &id[..], b"\0\0x"].concat(), Shape::Nothing, b""),
            _ => self.say(&[b"\x19", &id[..]].concat(), Shape::Nothing, b""),
        }
    }

    fn change_user(&mut self, dice: &mut Dice) -> Outcome {
        // MariaDB thinks about a wrong one for a second.
        let wrong = dice.chance(4);
        let schema = if wrong { "nowhere" } else { dice.pick(&["d", "d", "a", "D", ""]) };
        let charset = dice.pick(&[45_u8, 8, 28]);
        let plugin = self.wire.as_ref().map_or("", |wire| wire.greeting.plugin.as_str());
        let body = [b"\x11wire\0\0", schema.as_bytes(), &[0, charset, 0], plugin.as_bytes(), b"\0"]
            .concat();
        self.say(&body, Shape::Login, b"")
    }

    /// COM_RESET_CONNECTION, and back to `d`.
    pub fn reset(&mut self) {
        self.say(b"\x1f", Shape::One, b"");
        self.say(b"\x02d", Shape::One, b"");
        self.statements.clear();
    }

    fn say(&mut self, payload: &[u8], shape: Shape, file: &[u8]) -> Outcome {
        let told = shown(payload);
        let Some(wire) = &mut self.wire else {
            return Outcome { over: true, ..Outcome::default() };
        };
        if wire.try_send_raw(&packets(payload, &mut 0)).is_err() {
            self.log.push(format!("{told}: can't be sent"));
            self.wire = None;
            return Outcome { over: true, ..Outcome::default() };
        }
        self.finish(told, shape, file)
    }

    fn finish(&mut self, told: String, shape: Shape, file: &[u8]) -> Outcome {
        let mut outcome = Outcome { status: self.status, ..Outcome::default() };
        let Some(wire) = &mut self.wire else { return outcome };
        let mut heard = Heard { outcome: &mut outcome, said: String::new() };
        let read = match shape {
            Shape::Results => heard.results(wire, file),
            Shape::Prepared => heard.prepared(wire).map(|id| self.statements.extend(id)),
            Shape::Rows => heard.until_end(wire).map(drop),
            Shape::Fields => heard.until_end(wire).map(drop),
            Shape::Nothing => Ok(()),
            Shape::One => heard.one(wire),
            Shape::Login => heard.login(wire),
        };
        let said = std::mem::take(&mut heard.said);
        let broke = read.as_ref().err().map(ToString::to_string).unwrap_or_default();
        self.log.push(format!("{told}: {said}{broke}"));
        if let Err(error) = read {
            outcome.over = true;
            outcome.silent = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            self.wire = None;
        }
        self.status = outcome.status;
        outcome
    }
}

/// A command for people: its name and text, odd bytes escaped.
fn shown(payload: &[u8]) -> String {
    let name = match payload[0] {
        2 => "INIT_DB",
        3 => "QUERY",
        4 => "FIELD_LIST",
        5 => "CREATE_DB",
        6 => "DROP_DB",
        9 => "STATISTICS",
        0x0e => "PING",
        0x11 => "CHANGE_USER",
        0x16 => "PREPARE",
        0x17 => "EXECUTE",
        0x18 => "LONG_DATA",
        0x19 => "CLOSE",
        0x1a => "RESET",
        0x1b => "SET_OPTION",
        0x1c => "FETCH",
        0x1f => "RESET_CONNECTION",
        _ => "?",
    };
    format!("{name} {}", payload[1..].escape_ascii())
}

/// An answer under way.
struct Heard<'a> {
    outcome: &'a mut Outcome,
    said: String,
}

impl Heard<'_> {
    fn note(&mut self, payload: &[u8]) -> u16 {
        if payload[0] == 0xFF {
            let error = MyError::parse(payload);
            self.outcome.codes.push(error.code);
            let message: String = error.message.chars().take(90).collect();
            self.said.push_str(&format!("[{} {message}] ", error.code));
            return 0;
        }
        // An EOF packet has its status behind the warnings.
        let eof = payload[0] == 0xFE && payload.len() == 5;
        let end = if eof {
            u16::from_le_bytes([payload[3], payload[4]])
        } else {
            MyOk::parse(payload).status
        };
        self.outcome.codes.push(0);
        self.outcome.status = end;
        self.said.push_str(&format!("ok({end:x}) "));
        end
    }

    fn results(&mut self, wire: &mut MyWire, file: &[u8]) -> Io<()> {
        for _ in 0..PACKETS_MAX {
            let first = wire.read()?.payload;
            let end = match first.first() {
                Some(0 | 0xFE | 0xFF) => self.note(&first),
                Some(0xFB) => {
                    if !file.is_empty() {
                        wire.try_send(file)?;
                    }
                    wire.try_send(&[])?;
                    continue;
                }
                Some(_) => {
                    let columns = Reader(&first).lenenc();
                    for _ in 0..columns {
                        wire.read()?;
                    }
                    if wire.capabilities & flag::DEPRECATE_EOF == 0 {
                        let eof = wire.read()?.payload;
                        if eof[0] == 0xFF {
                            self.note(&eof);
                            return Ok(());
                        }
                        if u16::from_le_bytes([eof[3], eof[4]]) & status::CURSOR_EXISTS != 0 {
                            self.note(&eof);
                            return Ok(());
                        }
                    }
                    self.until_end(wire)?
                }
                None => return Err(Error::other("an empty packet in an answer's place")),
            };
            if end & status::MORE_RESULTS == 0 {
                return Ok(());
            }
        }
        Err(Error::other("an answer without an end"))
    }

    /// Rows or definitions, up to their end.
    fn until_end(&mut self, wire: &mut MyWire) -> Io<u16> {
        for _ in 0..PACKETS_MAX {
            let row = wire.read()?.payload;
            match row.first() {
                Some(0xFF) => return Ok(self.note(&row)),
                Some(0xFE) if wire.capabilities & flag::DEPRECATE_EOF != 0 || row.len() < 9 => {
                    return Ok(self.note(&row));
                }
                Some(_) | None => {}
            }
        }
        Err(Error::other("rows without an end"))
    }

    fn prepared(&mut self, wire: &mut MyWire) -> Io<Option<u32>> {
        let first = wire.read()?.payload;
        if first[0] == 0xFF {
            self.note(&first);
            return Ok(None);
        }
        let mut rest = Reader(&first[1..]);
        let id = u32::try_from(rest.int(4)).unwrap();
        let (columns, parameters) = (rest.int(2), rest.int(2));
        for count in [parameters, columns] {
            for _ in 0..count {
                wire.read()?;
            }
            if count > 0 && wire.capabilities & flag::DEPRECATE_EOF == 0 {
                wire.read()?;
            }
        }
        self.outcome.codes.push(0);
        self.said.push_str(&format!("statement {id} "));
        Ok(Some(id))
    }

    /// A single packet: OK, EOF, ERR or a text.
    fn one(&mut self, wire: &mut MyWire) -> Io<()> {
        let only = wire.read()?.payload;
        if matches!(only.first(), Some(0 | 0xFE | 0xFF)) {
            self.note(&only);
        }
        Ok(())
    }

    fn login(&mut self, wire: &mut MyWire) -> Io<()> {
        for _ in 0..4 {
            let packet = wire.read()?.payload;
            match packet.first() {
                // Another plugin: the empty password proves itself in each.
                Some(0xFE) => wire.try_send(&[])?,
                Some(1) => {}
                _ => {
                    self.note(&packet);
                    return Ok(());
                }
            }
        }
        Err(Error::other("a login without an end"))
    }
}
