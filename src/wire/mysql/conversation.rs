//! Where one MySQL session stands: leases, what is owed, transaction, guard, a forced rollback.
//!
//! Purpose: the pure state behind the relay. `client.rs` sorts what the client sends, `engine.rs`
//! what the engine says; both change it only through what is here, and neither does I/O. Rules W3,
//! W4, W6 to W8, W10 and W11 of wire.md; invariants 1 and 7. The guard is in `guard.rs`, rollbacks
//! by force in `forced.rs`, what programs change in the session in `effects.rs`.
//!
//! One command at a time is with the engine. The client's next one waits for the answer, so that
//! the session's state is known whenever something is decided, and an answer can't be taken for
//! another command's. Clients that pipeline get their answers in order, and pay a round trip.

use std::sync::Arc;

use bytes::BytesMut;

use crate::base::fault;
use crate::base::ids::Generation;
use crate::fence::code::Denial;
use crate::gate::admission::{Guard, Refusal, Seat};
use crate::gate::drain::is_dumps;
use crate::gate::registry::Gates;
use crate::sql::{MyEncoding, MyFlavour, MyLexing, MyServer, StatementClass};
use crate::wire::mysql::answers::{self, Rules, Seen, Status, Tracker};
use crate::wire::mysql::auth::Exchange;
use crate::wire::mysql::bearing::Bearing;
use crate::wire::mysql::capabilities::{self as bits, Capabilities};
use crate::wire::mysql::commands::{self, Command, Reply};
use crate::wire::mysql::cursors::Cursors;
use crate::wire::mysql::effects::charset_told;
use crate::wire::mysql::guard::{Armed, GuardState};
use crate::wire::mysql::prepared::Prepared;
use crate::wire::mysql::program::Program;
use crate::wire::mysql::refusal;
use crate::wire::mysql::seats::{Reach, Seats};
use crate::wire::mysql::standing::Branch;
use crate::wire::shared::denials::{Denials, Surface};
use crate::wire::shared::forced::Forced;
use crate::wire::shared::outgoing::Outgoing;
use crate::wire::shared::waiting::Waiting;

/// What is known of a session when its login is over.
#[derive(Debug)]
pub(crate) struct Begun {
    /// What both ends agreed on.
    pub(crate) agreed: Capabilities,
    /// The payload of the OK that ended the login.
    pub(crate) ok: Vec<u8>,
    /// The number of the character set that the client asked for.
    pub(crate) charset: u8,
    /// The engine's kind and version.
    pub(crate) server: MyServer,
    /// The login, over; a change of user goes on from it.
    pub(crate) exchange: Exchange,
}

/// What the client's next packets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inbound {
    /// Commands.
    Commands,
    /// The contents of a file, up to an empty packet. The next packet has this number: the engine
    /// gives a file up at any other, and takes what follows for commands.
    File(u8),
    /// Steps of a login.
    Login,
}

/// Whether a transaction is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stand {
    /// None.
    Outside,
    /// One that the engine lets write, or doesn't.
    Inside {
        /// The engine refuses writes in it.
        read_only: bool,
    },
    /// The last answer was an error, which doesn't say.
    Unknown,
}

/// Whose command the engine is answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The client's.
    Client {
        /// The engine runs it in read-only mode, by the proxy's guard.
        guarded: bool,
        /// A savepoint was set before it, to which the transaction is rolled back behind it.
        wrapped: bool,
        /// What the engine has told of the default schema while answering.
        schema_told: SchemaTold,
    },
    /// The guard's statement.
    Guard,
    /// The same, for the program that comes next: sent behind the one before.
    Ahead,
    /// The statement that undoes the guard.
    Undo,
    /// The question for the client's own read-only setting, and the answer so far.
    OwnSetting(Option<bool>),
    /// The savepoint in front of a read in a transaction that can't be made read-only.
    Savepoint,
    /// The question where the session stands.
    Ping,
    /// The rollback to the savepoint, behind such a read.
    Unwrap,
    /// The COMMIT in front of what begins another transaction.
    Commit,
    /// The ROLLBACK of a whole transaction.
    Rollback,
    /// The question for the default schema, where that isn't known.
    WhichSchema,
    /// The end of a cursor that a read fence cuts.
    Cursor,
}

/// What an answer has told of the default schema. A procedure's results tell the procedure's own,
/// and an error in it tells nothing, while the engine has put the session's back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SchemaTold {
    /// Nothing, or in a result that isn't the last the one that it was already.
    Nothing,
    /// The one that it was already, behind the program.
    Same,
    /// Another in a result that isn't the last.
    Earlier,
    /// The one behind the program.
    Last,
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Well; with the status, if this kind of answer tells it.
    Well(Option<Status>),
    /// With an error of this number, which tells no status.
    Badly(u16),
}

/// How a command was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// To be forwarded.
    Free,
    /// To be forwarded; the engine runs it in read-only mode.
    Guarded,
    /// To be forwarded; what it may write is taken back behind it.
    Wrapped,
    /// Not yet: something else must be answered first.
    Wait,
}

/// The session's state.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) seats: Seats,
    /// The capability that the session shows, beside what its seats bear.
    pub(crate) bearing: Bearing,
    pub(crate) tracker: Tracker,
    pub(crate) inbound: Inbound,
    pub(crate) prepared: Prepared,
    pub(crate) denials: Arc<Denials>,
    pub(crate) begun: Begun,
    pub(crate) stand: Stand,
    /// As the engine last said.
    pub(crate) status: Status,
    /// What the engine is answering.
    pub(crate) owed: Option<Whose>,
    /// The client's program that is, or was last.
    pub(super) program: Option<Program>,
    pub(crate) guard: GuardState,
    pub(crate) forced: Forced,
    /// What the client is told of what was, or is being, ended by force.
    pub(crate) forced_why: Denial,
    pub(crate) cursors: Cursors,
    /// The client ends a transaction that force has ended already.
    pub(crate) ending: bool,
    /// A program that waits at the closed gate.
    pub(crate) held: Waiting,
    /// The session's lexing rules, as far as its texts tell; see [`Conversation::lexing`].
    pub(crate) lexing: MyLexing,
    /// The rules that the program was read by.
    pub(crate) read_by: MyLexing,
    /// Bit 0x200 of the last status is the session's own mode, not one that a routine left there.
    pub(crate) escapes_true: bool,
    /// The transaction that is open is an XA one.
    pub(crate) xa: bool,
    /// What is known of the session's own XA branch once its transaction has gone.
    pub(crate) branch: Branch,
    /// As much of the last text was read, in bytes, where that wasn't all of it.
    pub(crate) read_only_to: Option<usize>,
    /// The default schema isn't known: the seat may be at the wrong gate.
    pub(crate) lost: bool,
    /// It has no default schema, as far as is known: a name that says none finds nothing then.
    pub(crate) no_schema: bool,
    /// The engine hasn't been asked for it since a program was answered.
    pub(crate) schema_unasked: bool,
    /// The engine has spoken unasked: nothing is sent to it any more.
    pub(crate) parted: bool,
    /// Behind a command without an answer: these errors may be one all the same.
    pub(crate) unasked: &'static [u16],
    /// A refusal of a command whose last packet hasn't come yet.
    pub(crate) late: Option<Box<Refusal>>,
    sequence: u8,
}

/// Asks for the default schema.
const WHICH_SCHEMA: &str = "SELECT DATABASE()";

/// Fault points of the statement path park or abort; an injected error means nothing here.
fn pass(outcome: Result<(), fault::Fault>) {
    if let Err(fault) = outcome {
        tracing::error!(%fault, "ignored");
    }
}

impl Conversation {
    /// A session right after its login.
    pub(crate) fn new(
        seat: Arc<Seat>,
        gates: Arc<Gates>,
        denials: Arc<Denials>,
        begun: Begun,
    ) -> Self {
        let server = begun.server;
        let mut lexing = MyLexing::standard(server).uncertain();
        lexing.encoding = MyEncoding::from_collation(u16::from(begun.charset), server.flavour);
        let mut conversation = Self {
            seats: Seats::new(gates, seat),
            bearing: Bearing::default(),
            tracker: Tracker::new(rules(begun.agreed)),
            inbound: Inbound::Commands,
            prepared: Prepared::default(),
            denials,
            begun,
            stand: Stand::Unknown,
            status: Status::default(),
            owed: None,
            program: None,
            guard: GuardState::new(server.flavour),
            forced: Forced::No,
            forced_why: Denial::RolledBack,
            cursors: Cursors::default(),
            ending: false,
            held: Waiting::default(),
            lexing,
            read_by: lexing,
            escapes_true: true,
            xa: false,
            branch: Branch::None,
            read_only_to: None,
            lost: false,
            no_schema: false,
            schema_unasked: false,
            parted: false,
            unasked: &[],
            late: None,
            sequence: 0,
        };
        let ok = std::mem::take(&mut conversation.begun.ok);
        conversation.welcomed(&ok);
        conversation
    }

    /// The OK that ended the login.
    fn welcomed(&mut self, ok: &[u8]) {
        self.tracker.expect(Reply::Login);
        if let Ok(Seen::Done(Some(status))) = self.tracker.packet(ok.len(), ok) {
            self.told(status);
            self.escapes_begin();
        }
        // Nothing of the client's has run yet, so these are the session's own.
        self.lexing.encoding = answers::changes(ok).fold(self.lexing.encoding, charset_told);
        for change in answers::changes(ok) {
            self.changed(change);
        }
    }

    /// Whether the client's next packet must wait: for an answer, or for something of the proxy's
    /// own that a program must not meet.
    pub(crate) const fn must_wait(&self) -> bool {
        match self.inbound {
            Inbound::File(_) => false,
            Inbound::Login => !self.begun.exchange.client_is_asked(),
            Inbound::Commands => {
                self.tracker.is_owing() || self.forced.is_under_way() || self.guard_wants_word()
            }
        }
    }

    /// Asks admission for a program, and arms or disarms the guard in front of it. With
    /// [`Entry::Wait`] it must not be forwarded yet: it is judged again once nothing is owed.
    ///
    /// # Errors
    /// The refusal; nothing was forwarded and no new lease is held.
    pub(crate) fn enter(
        &mut self,
        program: &Program,
        now_ms: u64,
        out: &mut Outgoing<'_>,
    ) -> Result<Entry, Box<Refusal>> {
        let entered = self.judge(program, now_ms, out);
        self.note_round(matches!(entered, Ok(Entry::Wait)));
        entered
    }

    fn judge(
        &mut self,
        program: &Program,
        now_ms: u64,
        out: &mut Outgoing<'_>,
    ) -> Result<Entry, Box<Refusal>> {
        pass(fault::point("wire.before_admission"));
        if self.stand == Stand::Unknown && (!self.seats.is_at_ease() || self.may_end_own(program)) {
            // What is held may be nothing's any more, and of an older generation.
            self.ask(out);
            return Ok(Entry::Wait);
        }
        if std::mem::take(&mut self.ending) {
            self.seats.admit_end(now_ms);
            return Ok(Entry::Free);
        }
        if self.lost && self.schema_unasked && !self.seats.is_engine_at_ease() {
            // At all gates some would refuse what isn't theirs.
            self.schema_unasked = false;
            out.inject(|buffer| self.run(Whose::WhichSchema, WHICH_SCHEMA, buffer));
            return Ok(Entry::Wait);
        }
        let reach = if self.lost { Reach::Anywhere } else { program.reach() };
        let class = self.class_now(program, reach);
        let guard = if self.begin_unjudged(class, now_ms) {
            Guard::Off
        } else {
            self.seats.admit(class, reach, now_ms)?
        };
        if self.leaves_a_branch(program) {
            return Err(self.takes_back(Denial::WriteFenced));
        }
        let opens = guard == Guard::Off
            && (self.opens_views(program, reach) || self.begins_a_dump(program));
        let guard = if opens { Guard::On } else { guard };
        let escapes = guard == Guard::On
            && (self.escapes_guard(program)
                || self.would_commit(program)
                || (opens && class > StatementClass::Read));
        if escapes {
            return Err(self.takes_back(Denial::Unprovable));
        }
        // Undone in front of any command: the engine refuses to prepare a write, too.
        let arms = program.evaluates() || guard == Guard::Off;
        let arms = arms && !self.is_about_failed(program);
        let armed = if arms { self.arm(guard, program, out) } else { Armed::Done };
        pass(fault::point("wire.after_admission"));
        Ok(match (armed, guard) {
            (Armed::Never, _) => return Err(self.takes_back(Denial::Unprovable)),
            (Armed::NotYet, _) => Entry::Wait,
            (Armed::Wrapped, _) => Entry::Wrapped,
            (Armed::Done, Guard::On) => Entry::Guarded,
            (Armed::Done, Guard::Off) => Entry::Free,
        })
    }

    /// A refusal of what the gates have let pass: nothing of it was forwarded.
    #[cold]
    fn takes_back(&mut self, denial: Denial) -> Box<Refusal> {
        let refusal = self.refusal(denial);
        self.seats.take_back();
        Box::new(refusal)
    }

    /// Whether it has the engine open views that it doesn't name, those of a schema whose writes
    /// are closed among them: MariaDB does for information_schema, and runs deterministic functions
    /// of what it opens (`ROUND(1.55, f())`). It is guarded then, and refused where it can't be.
    fn opens_views(&mut self, program: &Program, reach: Reach<'_>) -> bool {
        let maria = self.lexing.server.flavour == MyFlavour::MariaDb;
        let reads = program.class >= StatementClass::Read && program.evaluates();
        // What reads in a schema that lists, and isn't itself a write, needn't name it. Of a
        // statement that was prepared there its reach tells.
        let at_home = program.class == StatementClass::Read && !self.no_schema;
        maria && reads && self.seats.lists_views(at_home, reach)
    }

    /// The class a program is admitted as. Preparing a statement is at most a read (MariaDB
    /// evaluates functions while it does), and it is judged again when it is executed. But where
    /// writes are closed at a gate that it reaches, what isn't proved to be a read isn't prepared:
    /// a function that it names could run.
    fn class_now(&mut self, program: &Program, reach: Reach<'_>) -> StatementClass {
        if program.command == Command::Prepare && self.seats.writes_are_open(reach) {
            return StatementClass::Read;
        }
        program.class
    }

    /// A command of the client's is forwarded.
    pub(crate) fn forwarded(&mut self, program: Program, entry: Entry) {
        self.guard.ready &= Self::keeps_guard(&program);
        self.tracker.expect(program.command.reply());
        self.read_by = self.lexing();
        self.owed = Some(Whose::Client {
            guarded: entry == Entry::Guarded || entry == Entry::Wrapped,
            wrapped: entry == Entry::Wrapped,
            schema_told: SchemaTold::Nothing,
        });
        self.program = Some(program);
    }

    /// Sends a statement of the proxy's own.
    pub(crate) fn run(&mut self, whose: Whose, sql: &str, to_engine: &mut BytesMut) {
        debug_assert!(!self.tracker.is_owing(), "one command at a time");
        self.guard.ready = false;
        refusal::query(to_engine, sql, self.begun.agreed.has(bits::QUERY_ATTRIBUTES));
        self.tracker.expect(Reply::Results);
        self.owed = Some(whose);
    }

    /// Asks the engine where the session stands.
    fn ask(&mut self, out: &mut Outgoing<'_>) {
        out.inject(|buffer| self.ping(buffer));
    }

    /// The same, with the engine's buffer at hand.
    pub(crate) fn ping(&mut self, to_engine: &mut BytesMut) {
        refusal::command(to_engine, commands::PING, &[]);
        self.tracker.expect(Reply::Ok);
        self.owed = Some(Whose::Ping);
    }

    /// Whether leases are held that a question to the engine may show to be nothing's.
    pub(crate) fn wants_word(&self) -> bool {
        self.stand == Stand::Unknown && self.seats.is_holding() && !self.tracker.is_owing()
    }

    /// Somebody waits for this session's leases ([`Order::LOOK`](crate::gate::slot::Order::LOOK)),
    /// or the session ends: asks where it stands, if that isn't known.
    pub(crate) fn look(&mut self, to_engine: &mut BytesMut) {
        if self.wants_word() && !self.forced.is_under_way() {
            self.ping(to_engine);
        }
    }

    /// The engine has told a status.
    pub(crate) fn told(&mut self, status: Status) {
        self.status = status;
        self.xa &= status.in_transaction();
        self.guard.note_status(status.in_transaction());
        self.stand = if status.in_transaction() {
            Stand::Inside { read_only: status.read_only() }
        } else {
            Stand::Outside
        };
    }

    /// The answer to what is owed is over.
    pub(crate) fn answered(&mut self, outcome: Outcome, to_engine: &mut BytesMut) {
        match outcome {
            Outcome::Well(Some(status)) => self.told(status),
            Outcome::Well(None) => {}
            Outcome::Badly(_) => self.stand = Stand::Unknown,
        }
        let well = matches!(outcome, Outcome::Well(_));
        self.note_own_statement(well);
        match self.owed.take() {
            Some(Whose::Client { schema_told, wrapped, guarded }) => {
                self.note_transaction(guarded);
                if let Some(program) = self.program.take() {
                    self.note_cursor(&program, outcome);
                    self.note_branch(&program, outcome);
                    // Put back behind what told it, or not: only the engine knows.
                    let last = matches!(schema_told, SchemaTold::Same | SchemaTold::Last) && well;
                    self.lost |= schema_told != SchemaTold::Nothing && !last;
                    self.apply(&program, well, last);
                }
                self.guard.unwrapping |= wrapped;
            }
            // Unanswered, the session goes on as one that may be anywhere.
            Some(Whose::WhichSchema) => {}
            Some(whose) => self.guard_answered(whose, well),
            None => {}
        }
        if !self.goes_on_to_ahead() {
            self.quiet(to_engine);
        }
    }

    /// Nothing is owed: leases are released by what is known (wire.md W4), or something of the
    /// proxy's own goes out.
    fn quiet(&mut self, to_engine: &mut BytesMut) {
        match self.stand {
            Stand::Outside => {
                self.seats.release();
                self.bearing_goes_on();
            }
            Stand::Inside { .. } => {
                self.seats.set_unsure(false);
                self.seats.pause();
            }
            Stand::Unknown => {
                self.seats.pause();
                self.seats.set_unsure(true);
            }
        }
        let wanted =
            !self.seats.is_at_ease() || self.forced != Forced::No || self.guard_wants_word();
        if self.stand != Stand::Unknown {
            self.goes_on(to_engine);
        } else if wanted && !self.guard.failed {
            self.ping(to_engine);
        } else {
            self.close_cut(to_engine);
        }
    }

    /// Goes on with what is the proxy's own, the stand being known and nothing owed.
    pub(crate) fn goes_on(&mut self, to_engine: &mut BytesMut) {
        self.forced_goes_on(to_engine);
        if !self.tracker.is_owing() && !self.forced.is_under_way() && !self.guard.failed {
            self.guard_goes_on(to_engine);
        }
        self.close_cut(to_engine);
    }

    /// The command that the engine is answering, where it is the client's.
    pub(crate) fn running(&self) -> Option<Command> {
        let clients = matches!(self.owed, Some(Whose::Client { .. }));
        self.program.as_ref().filter(|_| clients).map(|program| program.command)
    }

    /// A refusal of the proxy's own making, with what the gate publishes now.
    #[cold]
    pub(crate) fn refusal(&self, denial: Denial) -> Refusal {
        let gate = self.seats.closed();
        Refusal { denial, namespace: gate.namespace().clone(), published: gate.published() }
    }

    /// Appends a typed error for the client, and counts it.
    #[cold]
    pub(crate) fn tell(&self, to_client: &mut BytesMut, sequence: u8, refusal: &Refusal) {
        let dumps = is_dumps(self.seats.home().slot());
        let surface = if dumps { Surface::Dump } else { Surface::Mysql };
        self.denials.count(refusal.denial, surface);
        let sqlstate = self.denials.sqlstate(refusal.denial);
        let unread = self.read_only_to.filter(|_| refusal.denial == Denial::Unprovable);
        refusal::typed_error(to_client, sequence, refusal, sqlstate, unread);
    }

    /// Whether what the engine sends next is of an answer to the client's command, and no error
    /// there can be that of another one.
    pub(crate) const fn relays_an_answer(&self) -> bool {
        matches!(self.owed, Some(Whose::Client { .. }))
            && matches!(self.inbound, Inbound::Commands)
            && self.unasked.is_empty()
    }

    /// Takes note of a packet's number, of either direction.
    pub(crate) const fn note_sequence(&mut self, sequence: u8) {
        self.sequence = sequence.wrapping_add(1);
    }

    /// The number of the next packet.
    pub(crate) const fn next_sequence(&self) -> u8 {
        // Said while nothing is owed, it is read as the answer to the client's next command.
        // So is what is said while the engine answers something of the proxy's own.
        if matches!(self.owed, Some(Whose::Client { .. })) { self.sequence } else { 1 }
    }

    /// Whether nothing runs, nothing is open and nothing is owed.
    pub(crate) const fn is_idle(&self) -> bool {
        !self.seats.is_holding() && !self.tracker.is_owing()
    }

    /// Whether what is running may have been committed by the time its engine is lost.
    pub(crate) fn may_have_committed(&self) -> bool {
        matches!(self.owed, Some(Whose::Client { .. })) && self.seats.is_writing()
    }

    /// Whether the session holds a lease of a generation before `before` that a drain may wait
    /// for: a writer's, or one under which a read runs without the guard.
    pub(crate) fn holds_older(&self, before: Generation) -> bool {
        self.seats.holds_older(before)
    }
}

/// What of the agreement shapes answers.
const fn rules(agreed: Capabilities) -> Rules {
    Rules {
        deprecate_eof: agreed.has(bits::DEPRECATE_EOF),
        session_track: agreed.has(bits::SESSION_TRACK),
        progress: agreed.has_extended(bits::EXT_PROGRESS),
        metadata_byte: agreed.has(bits::OPTIONAL_RESULTSET_METADATA)
            || agreed.has_extended(bits::EXT_CACHE_METADATA),
    }
}
