//! What the client sends: each packet forwarded, refused, or kept waiting.
//!
//! Purpose: W5 to W8, W10, W22 and W24 of wire.md for the direction client to engine. A command is
//! admitted before its first byte goes out; the rest of it passes by its headers. Pure: bytes in,
//! bytes out; the relay does the I/O. It doesn't know how answers look (`answers.rs`).

use bytes::BytesMut;

use crate::base::arm::{Removable, removed};
use crate::base::limits;
use crate::fence::code::Denial;
use crate::gate::admission::Refusal;
use crate::sql::{Classified, Classifier, MyEncoding, MyLexing};
use crate::telemetry::worker::WorkerCounters;
use crate::wire::mysql::attributes;
use crate::wire::mysql::auth::{self, Letters};
use crate::wire::mysql::bearing::Shown;
use crate::wire::mysql::capabilities as bits;
use crate::wire::mysql::commands::{Command, Judge};
use crate::wire::mysql::conversation::{Conversation, Entry, Inbound};
use crate::wire::mysql::frame::{self, HEADER, Header, PAYLOAD_MAX};
use crate::wire::mysql::prepared::Known;
use crate::wire::mysql::program::Program;
use crate::wire::mysql::refusal;
use crate::wire::shared::capability::{Offered, Said, Tongue, holds_secret, said, stays_as_it_is};
use crate::wire::shared::outgoing::Outgoing;
use crate::wire::shared::waiting::{Parting, Size};

/// Why sorting stopped before the end of the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The next packet isn't there as far as it must be.
    More,
    /// The next command must wait until nothing is owed.
    Blocked,
    /// The next command is held at the closed gate.
    Held,
    /// The proxy's own answers fill a buffer: the rest waits until the client has taken them.
    Full,
    /// The client broke the protocol: what it is told before the close.
    Broken(String),
}

/// What is left of a packet whose fate is decided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rest {
    pub(crate) bytes: usize,
    pub(crate) pass: bool,
    /// The payload goes on in the next packet.
    pub(crate) goes_on: bool,
    /// The number that this next packet must have.
    next: u8,
}

impl Rest {
    /// Whether nothing is left, and the next packet begins something new.
    pub(crate) const fn is_over(self) -> bool {
        self.bytes == 0 && !self.goes_on
    }
}

/// What happens to one packet.
pub(crate) enum Ruling {
    Pass,
    Drop,
    Stop(Stop),
}

/// What sorting needs from its surroundings.
pub(crate) struct Desk<'a> {
    pub(crate) classifier: &'a mut Classifier,
    /// The process's monotonic clock, milliseconds.
    pub(crate) now_ms: u64,
    /// This worker's: programs are counted as they are admitted, look-ups as they are made.
    pub(crate) counters: &'a WorkerCounters,
}

/// Sorts a chunk. Returns how many bytes were consumed, and why it stopped if not at the end.
pub(crate) fn sort(
    conversation: &mut Conversation,
    rest: &mut Rest,
    desk: &mut Desk<'_>,
    out: &mut Outgoing<'_>,
    to_client: &mut BytesMut,
) -> (usize, Option<Stop>) {
    let chunk = out.chunk();
    let mut at = 0;
    loop {
        if rest.bytes > 0 {
            let take = rest.bytes.min(chunk.len() - at);
            if rest.pass {
                out.continuation(at..at + take);
            }
            rest.bytes -= take;
            at += take;
            if rest.bytes > 0 {
                return (at, None);
            }
        }
        let Some(bytes) = chunk.get(at..).filter(|bytes| !bytes.is_empty()) else {
            return (at, None);
        };
        if to_client.len() >= limits::SCRATCH_BYTES && !rest.goes_on {
            return (at, Some(Stop::Full));
        }
        let Some(header) = frame::header(bytes) else { return (at, Some(Stop::More)) };
        let there = bytes.len().min(HEADER + header.payload);
        let payload = bytes.get(HEADER..there).unwrap_or_default();
        let here = at..at + there;
        let size = Size { there: bytes.len(), whole: HEADER + header.payload };
        let ruling = if rest.goes_on && header.sequence != rest.next {
            broken(OUT_OF_ORDER)
        } else if rest.goes_on {
            let mut packet =
                Packet { header, size, payload, here, conversation, desk, out, to_client };
            packet.goes_on(rest.pass)
        } else {
            rest.pass = true;
            let mut packet =
                Packet { header, size, payload, here, conversation, desk, out, to_client };
            packet.rule()
        };
        match ruling {
            Ruling::Pass => {}
            Ruling::Drop => rest.pass = false,
            Ruling::Stop(stop) => return (at, Some(stop)),
        }
        conversation.note_sequence(header.sequence);
        rest.next = header.sequence.wrapping_add(1);
        if let Inbound::File(next) = &mut conversation.inbound {
            *next = rest.next;
        }
        rest.goes_on = header.goes_on();
        rest.bytes = HEADER + header.payload - there;
        at += there;
    }
}

/// What a program is to the session's capability.
enum Turn {
    /// Nothing.
    None,
    /// It shows one that is alive; this payload, which hasn't got it, goes in its place.
    Shows(Vec<u8>),
    /// It shows an empty one, which is nothing, and this payload goes in its place.
    Hides(Vec<u8>),
    /// It gives it up.
    GivesUp,
}

/// One packet being ruled on.
struct Packet<'m, 'o, 'd> {
    header: Header,
    size: Size,
    /// What is there of the payload.
    payload: &'m [u8],
    here: std::ops::Range<usize>,
    conversation: &'m mut Conversation,
    desk: &'m mut Desk<'d>,
    out: &'m mut Outgoing<'o>,
    to_client: &'m mut BytesMut,
}

impl Packet<'_, '_, '_> {
    /// A further packet of a payload whose fate is decided.
    fn goes_on(&mut self, pass: bool) -> Ruling {
        if pass {
            self.out.continuation(self.here.clone());
            return Ruling::Pass;
        }
        if !self.header.goes_on()
            && let Some(refusal) = self.conversation.late.take()
        {
            self.refuse(refusal);
        }
        Ruling::Drop
    }

    fn rule(&mut self) -> Ruling {
        match self.conversation.inbound {
            Inbound::File(next) if self.header.sequence != next => broken(OUT_OF_ORDER),
            Inbound::File(_) => {
                if self.header.payload == 0 {
                    self.conversation.inbound = Inbound::Commands;
                }
                self.out.continuation(self.here.clone());
                Ruling::Pass
            }
            Inbound::Login => self.login_step(),
            Inbound::Commands => self.command(),
        }
    }

    #[inline(never)]
    fn login_step(&mut self) -> Ruling {
        if self.header.payload > limits::LOGIN_PACKET_BYTES_MAX {
            return broken("a packet longer than any of a login");
        }
        if self.payload.len() < self.header.payload {
            return Ruling::Stop(Stop::More);
        }
        let exchange = &mut self.conversation.begun.exchange;
        if !exchange.client_is_asked() {
            return Ruling::Stop(Stop::Blocked);
        }
        let mut letters = Letters::default();
        exchange.client_said((self.header.sequence, self.payload), &mut letters);
        self.to_client.extend_from_slice(&letters.to_client);
        self.out.inject(|buffer| buffer.extend_from_slice(&letters.to_engine));
        Ruling::Drop
    }

    /// The one place where a command goes to the engine.
    fn command(&mut self) -> Ruling {
        let first = self.payload.first().copied();
        if first.is_none() && self.header.payload > 0 {
            return Ruling::Stop(Stop::More);
        }
        let conversation = &mut *self.conversation;
        if conversation.parted {
            return broken("the engine had ended the conversation");
        }
        if conversation.tracker.is_streaming() && first == Some(REPLICAS_ACKNOWLEDGEMENT) {
            self.out.continuation(self.here.clone());
            return Ruling::Pass;
        }
        if conversation.must_wait() {
            return Ruling::Stop(Stop::Blocked);
        }
        let answer = self.header.sequence.wrapping_add(1);
        if conversation.answer_cancelled(answer, self.to_client) {
            return Ruling::Drop;
        }
        let command = Command::of(first.unwrap_or_default());
        if self.header.payload < command.bytes_min() {
            return broken("Malformed communication packet");
        }
        let passes = command == Command::DropDb && removed(Removable::StatementLease);
        if command.judge() == Judge::Nothing || passes {
            return self.nothing(command);
        }
        let whole = command.judge() == Judge::Text && self.conversation.reads_whole();
        let wanted = if whole { self.header.payload } else { wanted(command) };
        if self.payload.len() < self.header.payload.min(wanted) {
            return Ruling::Stop(Stop::More);
        }
        let mut program = self.judge(command);
        if command.is_about_statement() {
            program.number = self.number().and_then(|id| self.conversation.prepared.number(id));
        }
        let denial = self.conversation.after_forced(&program);
        if let Some(denial) = denial.or_else(|| self.conversation.cursors.refuses(&program)) {
            let refusal = self.conversation.refusal(denial);
            self.refuse(Box::new(refusal));
            return Ruling::Drop;
        }
        let bore = self.conversation.seats.capability().cloned();
        let turn = match self.turn(&program) {
            Ok(turn) => turn,
            Err(ruling) => return ruling,
        };
        match self.conversation.enter(&program, self.desk.now_ms, self.out) {
            Ok(Entry::Wait) => Ruling::Stop(Stop::Blocked),
            Ok(entry @ (Entry::Free | Entry::Guarded | Entry::Wrapped)) => {
                self.conversation.leave_hold(Parting::Admitted);
                if program.command.is_counted() {
                    self.desk.counters.program(program.class);
                }
                self.forward(program, entry, turn)
            }
            Err(refusal) => {
                if matches!(turn, Turn::Shows(_)) && !self.conversation.seats.is_holding() {
                    self.conversation.seats.bear(bore);
                }
                match self.conversation.hold(refusal, self.size, self.desk.now_ms) {
                    Ok(()) => Ruling::Stop(Stop::Held),
                    Err(refusal) => {
                        self.refuse(refusal);
                        Ruling::Drop
                    }
                }
            }
        }
    }

    /// What a program is to the session's capability. One that shows a live one is admitted by it.
    fn turn(&mut self, program: &Program) -> Result<Turn, Ruling> {
        let (offered, instead) = match (program.command.judge(), program.command) {
            (Judge::Text, command) => match self.said(program) {
                Said::Nothing => return Ok(Turn::None),
                Said::GivesUp => {
                    self.conversation.gives_up();
                    return Ok(Turn::GivesUp);
                }
                Said::Presents(offered) => (vec![offered], self.with_stand_in(command)),
                Said::Unclear => (vec![Offered::unclear()], Vec::new()),
            },
            (_, Command::ChangeUser) => match auth::take_capabilities(self.payload) {
                None => return Ok(Turn::None),
                Some((payload, offered)) if offered.is_empty() => {
                    return Ok(Turn::Hides(payload));
                }
                Some((payload, offered)) => (offered, payload),
            },
            (Judge::Statement | Judge::Opcode(_) | Judge::Nothing, _) => return Ok(Turn::None),
        };
        match self.conversation.show(&offered, program) {
            Shown::Borne => Ok(Turn::Shows(instead)),
            Shown::Ask => {
                let conversation = &mut *self.conversation;
                self.out.inject(|buffer| conversation.ping(buffer));
                Err(Ruling::Stop(Stop::Blocked))
            }
            Shown::Refused => {
                let refusal = self.conversation.refusal(Denial::CapabilityRequired);
                self.refuse(Box::new(refusal));
                Err(Ruling::Drop)
            }
        }
    }

    /// Reads a text, and the list in front of it, for capabilities.
    fn said(&self, program: &Program) -> Said {
        let argument = self.payload.get(1..).unwrap_or_default();
        let text = self.text(program.command, argument).unwrap_or_default();
        let list = argument.get(..argument.len() - text.len()).unwrap_or_default();
        if holds_secret(list) {
            return Said::Unclear;
        }
        let sets = program.classified.as_ref().is_some_and(|text| text.shape().sets_capability());
        said(Tongue::MySql, text, sets, self.is_whole())
    }

    /// The command with another text in the place of its own.
    #[cold]
    fn with_stand_in(&self, command: Command) -> Vec<u8> {
        let argument = self.payload.get(1..).unwrap_or_default();
        let text = self.text(command, argument).unwrap_or_default();
        let head = self.payload.get(..self.payload.len() - text.len()).unwrap_or_default();
        [head, Tongue::MySql.stand_in().as_bytes()].concat()
    }

    fn forward(&mut self, program: Program, entry: Entry, turn: Turn) -> Ruling {
        let whole = self.is_whole();
        let conversation = &mut *self.conversation;
        let changes = program.command == Command::ChangeUser;
        let payload = match &turn {
            Turn::Shows(payload) | Turn::Hides(payload) => payload,
            Turn::None | Turn::GivesUp => self.payload,
        };
        let exchange = &mut conversation.begun.exchange;
        let instead = if changes { exchange.change_user(payload) } else { None };
        let instead = instead.or_else(|| match &turn {
            Turn::Shows(payload) | Turn::Hides(payload) if !stays_as_it_is() => {
                Some(payload.clone())
            }
            Turn::None | Turn::GivesUp | Turn::Shows(_) | Turn::Hides(_) => None,
        });
        match (conversation.seats.lease(), &instead) {
            (None, _) => return broken("admitted without a lease (a bug)"),
            (Some(lease), None) => self.out.statement(lease, self.here.clone()),
            (Some(lease), Some(payload)) => self.out.instead(lease, |buffer| {
                frame::put(buffer, 0, payload);
            }),
        }
        match &turn {
            Turn::GivesUp => conversation.gave_up(),
            Turn::Shows(_) | Turn::Hides(_) | Turn::None if changes => {
                conversation.changes_user(matches!(turn, Turn::Shows(_)));
            }
            Turn::None if program.command.resets() => conversation.resets(),
            Turn::None | Turn::Shows(_) | Turn::Hides(_) => {}
        }
        if program.command == Command::Prepare {
            let home = conversation.home();
            if let Some(classified) = program.classified.clone() {
                let alike = MyLexing::reads_alike(self.payload);
                let rules = (!alike).then(|| conversation.lexing());
                let nowhere = conversation.no_schema;
                conversation.prepared.preparing(Known { classified, home, nowhere, rules });
            }
        }
        if changes {
            conversation.inbound = Inbound::Login;
        }
        conversation.forwarded(program, entry);
        if whole && instead.is_none() && matches!(turn, Turn::None) {
            conversation.arm_ahead(self.payload, self.out);
        }
        if instead.is_some() { Ruling::Drop } else { Ruling::Pass }
    }

    /// A command that starts no work.
    fn nothing(&mut self, command: Command) -> Ruling {
        let conversation = &mut *self.conversation;
        if let Command::Refused(_) = command {
            let sequence = self.header.sequence.wrapping_add(1);
            refusal::error(self.to_client, sequence, 1047, "08S01", "Unknown command");
            return Ruling::Drop;
        }
        if command == Command::Quit && conversation.wants_word() {
            // Else a lease that nothing needs would have to be settled by the engine's list.
            self.out.inject(|buffer| conversation.ping(buffer));
            return Ruling::Stop(Stop::Blocked);
        }
        if command == Command::Quit && conversation.leaves_open() {
            self.out.inject(|buffer| conversation.roll_back(0, true, buffer));
        }
        if command == Command::Close {
            if self.payload.len() < self.header.payload.min(STATEMENT_HEAD) {
                return Ruling::Stop(Stop::More);
            }
            if let Some(id) = self.number() {
                let number = self.conversation.prepared.number(id);
                self.conversation.prepared.closed(id);
                self.conversation.statement_gone(number);
            }
        }
        let unasked = command.unasked_errors();
        if unasked.len() > self.conversation.unasked.len() {
            self.conversation.unasked = unasked;
        }
        self.out.continuation(self.here.clone());
        Ruling::Pass
    }

    /// The number of a prepared statement behind the opcode.
    fn number(&self) -> Option<u32> {
        let digits = self.payload.get(1..5)?;
        digits.try_into().ok().map(u32::from_le_bytes)
    }

    /// What is known of a command, unless it may have become another one.
    fn judge(&mut self, command: Command) -> Program {
        self.conversation.read_only_to = None;
        let program = self.judge_as_known(command);
        let now = self.conversation.lexing();
        let known = match command.judge() {
            Judge::Statement => self.number().and_then(|id| self.conversation.prepared.look(id)),
            Judge::Text | Judge::Opcode(_) | Judge::Nothing => None,
        };
        let holds = known.into_iter().chain(&program.executed).all(|known| known.holds(now));
        let program = if holds { program } else { program.forgotten() };
        self.conversation.where_it_stands(program)
    }

    /// What is known of a command, by its text, its statement, or its opcode.
    fn judge_as_known(&mut self, command: Command) -> Program {
        let argument = self.payload.get(1..).unwrap_or_default();
        let prepared = &self.conversation.prepared;
        match (command.judge(), command) {
            (Judge::Text, _) => {
                let classified = self.classify(command, argument);
                Program::of_text(command, classified, &self.conversation.prepared)
            }
            (Judge::Statement, _) => {
                let home = self.conversation.default_schema();
                match self.number().and_then(|id| prepared.look(id)) {
                    Some(known) => Program::of_statement(command, known, prepared, home),
                    None => Program::of_nobody(command),
                }
            }
            (Judge::Opcode(class), Command::InitDb | Command::CreateDb | Command::DropDb) => {
                let encoding = self.conversation.lexing.encoding;
                Program::of_schema(command, class, argument, encoding)
            }
            (Judge::Opcode(class), Command::ChangeUser) => match new_schema(argument) {
                Some((schema, rest)) => {
                    let collation = rest.get(..2).and_then(|number| number.try_into().ok());
                    let collation = collation.map(u16::from_le_bytes);
                    // The set that it begins with is the one that its schema is named in.
                    let flavour = self.conversation.lexing.server.flavour;
                    let encoding = collation.map_or(MyEncoding::Unsafe, |number| {
                        MyEncoding::from_collation(number, flavour)
                    });
                    let program = Program::of_schema(command, class, schema, encoding);
                    Program { collation, ..program }
                }
                None => Program { anywhere: true, ..Program::of_opcode(command, class) },
            },
            // The log is of all schemas.
            (Judge::Opcode(class), Command::BinlogDump | Command::BinlogDumpGtid) => {
                Program { anywhere: true, ..Program::of_opcode(command, class) }
            }
            (Judge::Opcode(class), Command::Fetch) => {
                // What the cursor's statement reached when it was opened, its rows are of.
                let home = self.conversation.default_schema();
                match self.number().and_then(|id| prepared.look(id)) {
                    Some(known) => {
                        Program { class, ..Program::of_statement(command, known, prepared, home) }
                    }
                    None => Program { anywhere: true, ..Program::of_opcode(command, class) },
                }
            }
            (Judge::Opcode(class), _) => Program::of_opcode(command, class),
            (Judge::Nothing, _) => Program::of_nobody(command),
        }
    }

    fn is_whole(&self) -> bool {
        self.payload.len() == self.header.payload && !self.header.goes_on()
    }

    /// The text behind a command's first byte; `None` if where it begins can't be told.
    fn text<'t>(&self, command: Command, argument: &'t [u8]) -> Option<&'t [u8]> {
        let agreed = self.conversation.begun.agreed.has(bits::QUERY_ATTRIBUTES);
        let with_list = command == Command::Query && agreed;
        if with_list { attributes::text(argument) } else { Some(argument) }
    }

    fn classify(&mut self, command: Command, argument: &[u8]) -> Classified {
        let lexing = self.conversation.lexing();
        if !self.is_whole() {
            let whole = self.conversation.reads_whole();
            // A packet of the greatest length isn't the last of its payload.
            let bound = if whole { PAYLOAD_MAX - 1 } else { limits::STATEMENT_INSPECT_BYTES_MAX };
            self.conversation.read_only_to = Some(bound - OPCODE);
        }
        let classified = match self.text(command, argument) {
            Some(text) if self.is_whole() => self.desk.classifier.classify(text, lexing),
            Some(_) | None => self.desk.classifier.classify_prefix(argument, lexing),
        };
        self.desk.counters.classifier(self.desk.classifier.stats());
        classified
    }

    /// Refuses a command (W8, W10). A transaction stays open, and holds its lease until it ends.
    #[cold]
    fn refuse(&mut self, refusal: Box<Refusal>) {
        if self.header.goes_on() {
            // An answer counts on from the command's last packet.
            self.conversation.late = Some(refusal);
            return;
        }
        let sequence = self.header.sequence.wrapping_add(1);
        self.conversation.tell(self.to_client, sequence, &refusal);
        let conversation = &mut *self.conversation;
        self.out.inject(|buffer| conversation.give_up_transaction(&refusal, buffer));
    }
}

/// A replica's first byte, where it acknowledges what it has received (semi-synchronous
/// replication). As a command it is an unknown one: it can't be mistaken for work.
const REPLICAS_ACKNOWLEDGEMENT: u8 = 0xef;

/// The engine would stop reading at such a packet, and what passes behind it would be commands.
const OUT_OF_ORDER: &str = "Got packets out of order";

#[cold]
fn broken(what: &str) -> Ruling {
    Ruling::Stop(Stop::Broken(what.to_owned()))
}

/// How many bytes of a command must be there to judge it.
const fn wanted(command: Command) -> usize {
    match command.judge() {
        Judge::Statement => STATEMENT_HEAD,
        Judge::Text | Judge::Opcode(_) | Judge::Nothing => limits::STATEMENT_INSPECT_BYTES_MAX,
    }
}

/// A command's first byte, in front of its text.
const OPCODE: usize = 1;

/// Opcode and number of a command about a prepared statement.
const STATEMENT_HEAD: usize = 5;

/// The schema in a COM_CHANGE_USER, behind the user's name and a proof with its length in front;
/// and what follows it.
fn new_schema(argument: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, rest) = frame::text(argument)?;
    let (length, rest) = rest.split_first()?;
    let (_, rest) = rest.split_at_checked(usize::from(*length))?;
    frame::text(rest)
}
