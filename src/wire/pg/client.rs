//! What the client sends: each message forwarded, refused, kept waiting, or answered here.
//!
//! Purpose: W5, W6, W8, W9, W17, W22 and W23 of wire.md for the direction client to engine. A
//! message the proxy has no reason to read passes by its header; a statement is classified and
//! admitted before its first byte goes out. Pure: bytes in, bytes out; the relay does the I/O.
//! It doesn't know how answers look (`answers.rs`).

mod unnamed;

use std::ops::Range;
use std::sync::Arc;

use bytes::BytesMut;

use crate::base::arm::{Removable, removed};
use crate::base::ids::Namespace;
use crate::base::limits;
use crate::fence::code::Denial;
use crate::gate::admission::{Refusal, Seat};
use crate::gate::registry::Gate;
use crate::sql::{Classified, Classifier, Detail, StatementClass, TxEffect};
use crate::telemetry::worker::WorkerCounters;
use crate::wire::pg::auto_prepare::{Meaning, Plan};
use crate::wire::pg::bearing::Shown;
use crate::wire::pg::conversation::{Conversation, Discard, Entry, Forced, Mode};
use crate::wire::pg::frame::{self, HEADER, Header};
use crate::wire::pg::function_call;
use crate::wire::pg::owed::Whose;
use crate::wire::pg::prepared::{Known, Traits};
use crate::wire::pg::refusal::{self, Severity, Status};
use crate::wire::shared::capability::{Said, Tongue, said, stays_as_it_is};
use crate::wire::shared::outgoing::Outgoing;
use crate::wire::shared::waiting::{Parting, Size};
use unnamed::Place;

/// Why sorting stopped before the end of the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The next message isn't complete.
    More,
    /// The next program must wait until nothing is owed.
    Blocked,
    /// The next program is held at the closed gate.
    Held,
    /// The proxy's own answers fill a buffer: the rest waits until the client has taken them.
    Full,
    /// The client broke the protocol: what it is told before the close.
    Broken(String),
}

/// What is left of a message whose fate is decided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rest {
    pub(crate) bytes: usize,
    pub(crate) pass: bool,
}

/// What happens to one message.
enum Ruling {
    /// Forward it; it is a statement, under the lease.
    Statement,
    /// Forward it; it starts no work.
    Continuation,
    /// The same of what stands behind so many bytes of its body: the front was put in its place.
    Behind(usize),
    /// Leave it out.
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
        if to_client.len() >= limits::SCRATCH_BYTES {
            return (at, Some(Stop::Full));
        }
        let header = match frame::header(bytes) {
            Ok(Some(header)) => header,
            Ok(None) => return (at, Some(Stop::More)),
            Err(bad) => return (at, Some(Stop::Broken(format!("invalid message: {bad}")))),
        };
        let size = Size { there: bytes.len(), whole: HEADER + header.body };
        let body = bytes.get(HEADER..).unwrap_or_default();
        let body = body.get(..header.body.min(body.len())).unwrap_or_default();
        let mut message = Message { header, size, body, conversation, desk, out, to_client };
        let ruling = message.rule();
        let here = at..at + HEADER + body.len();
        if let Some(stop) = apply(ruling, here, conversation, out, rest) {
            return (at, Some(stop));
        }
        rest.bytes = header.body - body.len();
        at += HEADER + body.len();
        if matches!(header.tag, b'Q' | b'S') && rest.pass && rest.bytes == 0 {
            conversation.arm_ahead(out);
        }
    }
}

fn apply(
    ruling: Ruling,
    here: Range<usize>,
    conversation: &Conversation,
    out: &mut Outgoing<'_>,
    rest: &mut Rest,
) -> Option<Stop> {
    rest.pass = true;
    match ruling {
        Ruling::Statement | Ruling::Behind(_) => match &conversation.lease {
            Some(lease) => {
                let skip = if let Ruling::Behind(skip) = ruling { HEADER + skip } else { 0 };
                out.statement(lease, here.start + skip..here.end);
            }
            None => return Some(Stop::Broken("admitted without a lease (a bug)".to_owned())),
        },
        Ruling::Continuation => out.continuation(here),
        Ruling::Drop => rest.pass = false,
        Ruling::Stop(stop) => return Some(stop),
    }
    None
}

/// One message being ruled on.
struct Message<'m, 'o, 'd> {
    header: Header,
    size: Size,
    /// What is there of the body.
    body: &'m [u8],
    conversation: &'m mut Conversation,
    desk: &'m mut Desk<'d>,
    out: &'m mut Outgoing<'o>,
    to_client: &'m mut BytesMut,
}

/// A statement's text as classified, with prepared names resolved.
struct Judged {
    class: StatementClass,
    traits: Traits,
    classified: Classified,
}

impl Message<'_, '_, '_> {
    fn rule(&mut self) -> Ruling {
        match self.header.tag {
            b'S' => self.sync(),
            b'X' => {
                self.conversation.take_back(self.out);
                Ruling::Continuation
            }
            b'F' if removed(Removable::StatementLease) => Ruling::Continuation,
            b'd' | b'c' | b'f' => self.copy(),
            b'H' => self.flush(),
            b'Q' | b'F' | b'P' | b'B' | b'E' | b'D' | b'C' => {
                if self.conversation.discard != Discard::Nothing {
                    return Ruling::Drop;
                }
                if !self.is_readable() {
                    return Ruling::Stop(Stop::More);
                }
                if self.conversation.must_wait() {
                    return Ruling::Stop(Stop::Blocked);
                }
                if !self.conversation.auto.as_mut().is_none_or(|auto| auto.goes_on()) {
                    return broken("too many statements without an answer (auto_prepare)");
                }
                let simple = matches!(self.header.tag, b'Q' | b'F');
                if self.conversation.answer_cancelled(simple, self.to_client) {
                    return Ruling::Drop;
                }
                match self.header.tag {
                    b'Q' => self.query(),
                    b'F' => self.function_call(),
                    b'P' => self.parse(),
                    b'B' => self.bind(),
                    b'E' => self.execute(),
                    _ => self.describe_or_close(),
                }
            }
            tag => Ruling::Stop(Stop::Broken(format!("invalid frontend message type {tag}"))),
        }
    }

    /// Whether as much of the body is there as the decision needs.
    fn is_readable(&self) -> bool {
        let wanted = match self.header.tag {
            b'Q' | b'P' => self.header.body.min(limits::STATEMENT_INSPECT_BYTES_MAX),
            b'F' => self.header.body.min(function_call::INSPECTED),
            _ => self.header.body.min(limits::NAMES_INSPECT_BYTES_MAX),
        };
        self.body.len() >= wanted
    }

    fn is_whole(&self) -> bool {
        self.body.len() == self.header.body
    }

    fn sync(&mut self) -> Ruling {
        if self.header.body != 0 {
            return broken("a Sync with something in it");
        }
        let conversation = &mut *self.conversation;
        match conversation.discard {
            Discard::Local(status) => {
                conversation.discard = Discard::Nothing;
                refusal::ready(self.to_client, status);
                return Ruling::Drop;
            }
            Discard::ToSync => conversation.discard = Discard::Nothing,
            Discard::Nothing => {}
        }
        if let (Forced::RolledBack { told }, false) =
            (conversation.forced, conversation.owed.has_open_tail())
        {
            // A bare Sync is no program: the client goes on believing what it believes.
            refusal::ready(self.to_client, if told { Status::Failed } else { Status::Open });
            return Ruling::Drop;
        }
        if !conversation.owed.has_open_tail() {
            if conversation.must_wait() {
                return Ruling::Stop(Stop::Blocked);
            }
            // It ends a block that a pipeline began, and what the guard has set there.
            conversation.guard_ready &= !conversation.implicit;
        }
        conversation.owed.sync();
        Ruling::Continuation
    }

    #[inline(never)]
    fn copy(&mut self) -> Ruling {
        if self.conversation.discard != Discard::Nothing {
            return Ruling::Drop;
        }
        // An error at it ends the block that the guard is in, and has the engine skip nothing.
        if self.conversation.owed.copy_unguards() && !removed(Removable::UnclearAnswers) {
            return broken(
                "COPY data, or the end of a COPY, in a pipeline without a COPY, while writes to \
                 this database are fenced",
            );
        }
        self.conversation.owed.copy(self.header.tag != b'd');
        Ruling::Continuation
    }

    /// One with something in it would have the engine skip everything to the next Sync, the guard's
    /// own statement included.
    #[inline(never)]
    fn flush(&mut self) -> Ruling {
        if self.header.body != 0 {
            return broken("a Flush with something in it");
        }
        match self.conversation.discard {
            Discard::Nothing => {
                self.conversation.owed.flush();
                Ruling::Continuation
            }
            Discard::Local(_) | Discard::ToSync => Ruling::Drop,
        }
    }

    /// Classifies a text and resolves what SQL EXECUTE names.
    fn judge(&mut self, text: &[u8], whole: bool) -> Judged {
        let one = self.header.tag == b'P';
        let conversation = &*self.conversation;
        let lexing = conversation.lexing;
        self.desk.classifier.for_engine(conversation.engine_major);
        // Under rules that may have changed on the way a text can't be read either.
        let certain = !conversation.lexing_uncertain || conversation.owed.is_empty();
        let classified = match (conversation.mode, whole && certain) {
            (_, false) if one => self.desk.classifier.classify_prefix_of_one(text, lexing),
            (_, false) => self.desk.classifier.classify_prefix(text, lexing),
            (Mode::Sql, true) => self.desk.classifier.classify(text, lexing),
            (Mode::LogicalReplication | Mode::PhysicalReplication, true) => {
                self.desk.classifier.classify_replication(text, lexing)
            }
        };
        self.desk.counters.classifier(self.desk.classifier.stats());
        let mut class = classified.class();
        if let Some(detail) = classified.detail() {
            for name in &detail.executes {
                let executed = conversation.prepared.executed_by_sql(name);
                class = StatementClass::strongest(class, executed);
                if self.is_ours(name.as_ref()) {
                    class = StatementClass::strongest(class, StatementClass::Unprovable);
                }
            }
        }
        Judged { class, traits: Traits::of(&classified), classified }
    }

    #[inline(never)]
    fn query(&mut self) -> Ruling {
        let whole = self.is_whole();
        let body = self.body;
        let text = if whole { body.strip_suffix(b"\0").unwrap_or(body) } else { body };
        let judged = self.judge(text, whole);
        if self.conversation.after_forced(judged.traits.tx, false, self.out, self.to_client) {
            return Ruling::Drop;
        }
        match said(Tongue::Postgres, text, judged.classified.shape().sets_capability(), whole) {
            Said::Nothing => self.simple(judged.class, judged.traits, judged.classified.detail()),
            Said::Unclear => self.refuse(false),
            Said::GivesUp => {
                self.conversation.gives_up();
                let ruling = self.simple(judged.class, judged.traits, None);
                self.given_up(ruling)
            }
            Said::Presents(offered) => match self.conversation.show(&offered) {
                Shown::Refused => self.refuse(false),
                Shown::Wait => Ruling::Stop(Stop::Blocked),
                Shown::Borne => {
                    let ruling = self.simple(judged.class, judged.traits, None);
                    self.instead(ruling, |buffer| {
                        refusal::query(buffer, Tongue::Postgres.stand_in());
                    })
                }
            },
        }
    }

    /// Refuses what isn't a way to show a capability, or shows none that is alive here.
    #[cold]
    fn refuse(&mut self, extended: bool) -> Ruling {
        let refusal = Box::new(self.conversation.refusal(Denial::CapabilityRequired));
        if extended {
            self.conversation.refuse_extended(refusal, self.out, self.to_client);
        } else {
            self.conversation.refuse_simple(refusal, self.out, self.to_client);
        }
        Ruling::Drop
    }

    /// Where a statement with a secret in it may go on, has another one go in its place.
    #[cold]
    fn instead(&mut self, ruling: Ruling, write: impl FnOnce(&mut BytesMut)) -> Ruling {
        match (ruling, &self.conversation.lease) {
            (ruling, _) if stays_as_it_is() => return ruling,
            (Ruling::Statement, Some(lease)) => self.out.instead(lease, write),
            (Ruling::Statement | Ruling::Behind(_) | Ruling::Continuation, _) => {
                return broken("a capability without a lease (a bug)");
            }
            (stopped @ (Ruling::Drop | Ruling::Stop(_)), _) => return stopped,
        }
        Ruling::Drop
    }

    #[cold]
    fn given_up(&mut self, ruling: Ruling) -> Ruling {
        if matches!(ruling, Ruling::Statement) {
            self.conversation.gave_up();
        }
        ruling
    }

    #[cold]
    fn function_call(&mut self) -> Ruling {
        if self.conversation.after_forced(TxEffect::None, false, self.out, self.to_client) {
            return Ruling::Drop;
        }
        let class = function_call::class(self.body);
        let unsettles = class != StatementClass::Read;
        self.simple(class, Traits { unsettles, ..Traits::plain() }, None)
    }

    fn simple(&mut self, class: StatementClass, traits: Traits, detail: Option<&Detail>) -> Ruling {
        let entered = self.enter(class, traits, detail);
        match entered {
            Ok(Entry::Wait) => Ruling::Stop(Stop::Blocked),
            Ok(entry @ (Entry::Free | Entry::Guarded)) => {
                let guarded = entry == Entry::Guarded;
                let conversation = &mut *self.conversation;
                let may_commit = writes(conversation);
                let alone = conversation.owed.is_empty() && conversation.status == Status::Idle;
                let entry = conversation.owed.simple(Whose::Client);
                entry.guarded |= guarded;
                entry.may_commit |= may_commit;
                entry.opaque |= traits.opaque || class == StatementClass::Unprovable;
                let query = self.header.tag == b'Q';
                entry.stirs |= !(query && class == StatementClass::Read && traits.are_calm());
                let place = Place::behind(entry);
                conversation.own.runs(traits, alone);
                note(conversation, traits, detail);
                self.note_query(place);
                self.desk.counters.program(class);
                Ruling::Statement
            }
            Err(refusal) => match self.hold(refusal) {
                Ok(held) => held,
                Err(refusal) => {
                    self.conversation.refuse_simple(refusal, self.out, self.to_client);
                    Ruling::Drop
                }
            },
        }
    }

    /// Has a refused program wait at the gate (W20), or gives the refusal to be told.
    #[cold]
    fn hold(&mut self, refusal: Box<Refusal>) -> Result<Ruling, Box<Refusal>> {
        self.conversation.hold(refusal, self.size, self.desk.now_ms)?;
        Ok(Ruling::Stop(Stop::Held))
    }

    /// Admission at the session's own gate, and at those of other databases it reaches (W7).
    fn enter(
        &mut self,
        class: StatementClass,
        traits: Traits,
        detail: Option<&Detail>,
    ) -> Result<Entry, Box<Refusal>> {
        // Not by class: beside a lifecycle statement a stronger one may stand.
        if let Some(detail) = detail.filter(|detail| detail.reaches_databases()) {
            self.enter_elsewhere(detail)?;
        }
        let entered = self.conversation.enter(class, traits, self.desk.now_ms, self.out);
        if entered.is_err() && self.conversation.lease.is_none() {
            for (_, lease) in self.conversation.elsewhere.drain() {
                lease.unused();
            }
        }
        if matches!(entered, Ok(Entry::Free | Entry::Guarded)) {
            self.conversation.leave_hold(Parting::Admitted);
        }
        entered
    }

    #[cold]
    fn enter_elsewhere(&mut self, detail: &Detail) -> Result<(), Box<Refusal>> {
        let conversation = &mut *self.conversation;
        let own = conversation.seat.gate().namespace().clone();
        // A database that nobody came to yet has no gate. It gets one, so that a fence which is
        // raised there while this transaction is open finds its lease.
        for name in &detail.databases {
            if let Ok(there) = Namespace::new(own.engine().clone(), name)
                && conversation.gates.made() < limits::GATES_BY_NAME_MAX
            {
                drop(conversation.gates.gate(&there));
            }
        }
        for gate in conversation.gates.all() {
            let there = gate.namespace();
            if there.engine() != own.engine() || *there == own {
                continue;
            }
            let named = detail.databases.iter().any(|name| name == there.database());
            if !(named || detail.any_database && gate.may_be_meant()) {
                continue;
            }
            if let Err(mut refusal) = enter_at(conversation, gate, self.desk.now_ms) {
                if detail.unread {
                    refusal.denial = Denial::Unprovable;
                }
                if conversation.lease.is_none() {
                    for (_, lease) in conversation.elsewhere.drain() {
                        lease.unused();
                    }
                }
                return Err(refusal);
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn parse(&mut self) -> Ruling {
        let body = self.body;
        let Some((name, rest)) = frame::text(body) else {
            return broken("Parse without a statement name");
        };
        if let Some(taken) = self.is_taken(name) {
            return taken;
        }
        let text = frame::text(rest).map(|(text, _)| text);
        let judged = self.judge(text.unwrap_or(rest), text.is_some());
        if self.conversation.after_forced(judged.traits.tx, true, self.out, self.to_client) {
            return Ruling::Drop;
        }
        let sets = judged.classified.shape().sets_capability();
        match said(Tongue::Postgres, text.unwrap_or(rest), sets, self.is_whole()) {
            Said::Nothing => self.parse_text(name, &judged),
            Said::Unclear => self.refuse(true),
            Said::GivesUp => {
                self.conversation.gives_up();
                let ruling = self.parse_text(name, &judged);
                self.given_up(ruling)
            }
            // As it is parsed: it is the session's, and not a value that comes with the Bind.
            Said::Presents(offered) => match self.conversation.show(&offered) {
                Shown::Refused => self.refuse(true),
                Shown::Wait => Ruling::Stop(Stop::Blocked),
                Shown::Borne => {
                    let ruling = self.parse_text(name, &judged);
                    let types = frame::text(rest).map_or(&[][..], |(_, types)| types);
                    let stand_in = Tongue::Postgres.stand_in().as_bytes();
                    let body = [name, b"\0", stand_in, b"\0", types].concat();
                    self.instead(ruling, |buffer| frame::put(buffer, b'P', &body))
                }
            },
        }
    }

    fn parse_text(&mut self, name: &[u8], judged: &Judged) -> Ruling {
        // A named statement is judged when it is bound; preparing it runs nothing of it. But the
        // engine takes a write's table locks to prepare it, and would have it wait for the fence's.
        let closed = !self.conversation.seat.gate().word().writes_open();
        let now = name.is_empty()
            || judged.class == StatementClass::Lifecycle
            || (judged.class == StatementClass::Write && closed);
        let (class, traits) = if now {
            (judged.class, Traits { breaks_guard: false, ..judged.traits })
        } else if judged.class == StatementClass::TransactionControl {
            // Drivers name their COMMIT and ROLLBACK, and these pass when reads don't.
            (judged.class, Traits::plain())
        } else {
            (StatementClass::Read, Traits::plain())
        };
        let detail = judged.classified.detail().filter(|_| now);
        let guarded = match self.admit(class, traits, detail) {
            Ok(guarded) => guarded,
            Err(ruling) => return ruling,
        };
        self.conversation.unnamed |= name.is_empty();
        let plan = self.plan_parse(name, judged.traits, guarded);
        let place = self.count(class, traits, guarded, !matches!(plan, Plan::StandIn(_)));
        let known = Known { class: judged.class, traits: judged.traits };
        self.conversation.prepared.parsed(name, known, place.pipeline);
        note(self.conversation, judged.traits, judged.classified.detail());
        self.forward_parse(name, plan, place)
    }

    fn bind(&mut self) -> Ruling {
        let body = self.body;
        let names = frame::text(body).and_then(|(portal, rest)| {
            let (statement, values) = frame::text(rest)?;
            Some((portal, statement, values))
        });
        let Some((portal, statement, values)) = names else {
            return broken("Bind without names, or with longer ones than this proxy takes");
        };
        let number = self.conversation.owed.next_number();
        let unknown = Known { class: StatementClass::Unprovable, traits: Traits::unknown() };
        let known = self.conversation.prepared.look(statement, number).unwrap_or(unknown);
        let meaning = match self.meaning(statement) {
            Ok(meaning) => meaning,
            Err(ruling) => return ruling,
        };
        let doubtful = self.is_doubtful(meaning) || self.is_ours(statement);
        let known = if doubtful { unknown } else { known };
        if self.conversation.after_forced(known.traits.tx, true, self.out, self.to_client) {
            return Ruling::Drop;
        }
        // A value's type may have code of its own, which must not run behind what drops the guard.
        let runs_code = self.conversation.guard_dropped && !values.starts_with(&[0; 4]);
        let class = if runs_code { StatementClass::Read } else { known.class };
        // Only its Execute ends a transaction, or resets the session.
        let traits = Traits { breaks_guard: false, ..known.traits };
        // Which databases a statement named isn't kept: all of the engine are asked.
        let everywhere = known.traits.databases;
        let everywhere = everywhere.then(|| Detail { any_database: true, ..Detail::default() });
        let class = StatementClass::strongest(class, known.class);
        let guarded = match self.admit(class, traits, everywhere.as_ref()) {
            Ok(guarded) => guarded,
            Err(ruling) => return ruling,
        };
        self.clear(meaning);
        let place = self.count(class, traits, guarded, true);
        self.conversation.prepared.bound(portal, known, place.pipeline);
        note(self.conversation, known.traits, None);
        // Here and not at the Parse, which runs nothing, nor at each Execute of a portal.
        self.desk.counters.program(known.class);
        self.forward_by(meaning, body.get(..=portal.len()).unwrap_or_default())
    }

    fn execute(&mut self) -> Ruling {
        let Some((portal, most)) = frame::text(self.body) else {
            return broken("Execute without a portal name");
        };
        let number = self.conversation.owed.next_number();
        let unknown = Known { class: StatementClass::Unprovable, traits: Traits::unknown() };
        let known = self.conversation.prepared.portal(portal, number).unwrap_or(unknown);
        // The Bind was admitted and its lease covers the Execute; with a gate closed the portal
        // is judged once more, for transactions whose further writes are refused (W14). It is what
        // drops the guard: its Bind may be an earlier program's, in front of another guard.
        let closed = !self.conversation.seat.gate().word().all_open();
        let class = if closed { known.class } else { StatementClass::Read };
        if self.conversation.after_forced(TxEffect::None, true, self.out, self.to_client) {
            return Ruling::Drop;
        }
        // A cursor WITH HOLD has made the transaction's lease a writer's where it was bound.
        let traits = Traits { holds_cursor: false, ..known.traits };
        match self.admit(class, traits, None) {
            Ok(guarded) => {
                self.count(class, traits, guarded, true);
                let conversation = &mut *self.conversation;
                let alone = conversation.owed.has_one() && conversation.status == Status::Idle;
                conversation.own.runs(traits, alone);
                note(conversation, traits, None);
                self.note_execute(known.class, most);
                Ruling::Statement
            }
            Err(ruling) => ruling,
        }
    }

    fn describe_or_close(&mut self) -> Ruling {
        let name = match self.body.split_first() {
            Some((kind, rest)) => frame::text(rest).map(|(name, _)| (*kind, name)),
            None => None,
        };
        let Some((kind, name)) = name else {
            return broken("Describe or Close without a name");
        };
        let (is_close, of_statement) = (self.header.tag == b'C', kind == b'S');
        if let Some(taken) = self.is_taken(name).filter(|_| is_close && of_statement) {
            return taken;
        }
        if self.conversation.after_forced(TxEffect::None, true, self.out, self.to_client) {
            return Ruling::Drop;
        }
        // A Describe of a statement may analyse its text anew, which runs code of types.
        let analyses = !is_close && of_statement && self.conversation.guard_dropped;
        let class =
            if analyses { StatementClass::Read } else { StatementClass::TransactionControl };
        // A Close of the unnamed statement goes as it is: it ends the engine's, too.
        let asks = of_statement && !is_close;
        let meaning = if asks { self.meaning(name) } else { Ok(Meaning::Engine) };
        let meaning = match meaning {
            Ok(meaning) => meaning,
            Err(ruling) => return ruling,
        };
        let guarded = match self.admit(class, Traits::plain(), None) {
            Ok(guarded) => guarded,
            Err(ruling) => return ruling,
        };
        self.clear(meaning);
        let place = self.count(class, Traits::plain(), guarded, !is_close);
        if is_close {
            let statement = of_statement.then_some(name);
            self.conversation.prepared.closing(statement, place.pipeline);
            self.note_close(statement, place);
        }
        self.forward_by(meaning, &[kind])
    }

    /// Admits a message of a pipeline; answers whether it runs in read-only mode.
    fn admit(
        &mut self,
        class: StatementClass,
        traits: Traits,
        detail: Option<&Detail>,
    ) -> Result<bool, Ruling> {
        match self.enter(class, traits, detail) {
            Ok(Entry::Wait) => Err(Ruling::Stop(Stop::Blocked)),
            Ok(entry @ (Entry::Free | Entry::Guarded)) => {
                self.conversation.note_calm();
                Ok(entry == Entry::Guarded)
            }
            Err(refusal) => match self.hold(refusal) {
                Ok(held) => Err(held),
                Err(refusal) => {
                    self.conversation.refuse_extended(refusal, self.out, self.to_client);
                    Err(Ruling::Drop)
                }
            },
        }
    }

    /// Counts an admitted message of a pipeline; `begins` says that the engine begins a transaction
    /// for it.
    fn count(
        &mut self,
        class: StatementClass,
        traits: Traits,
        guarded: bool,
        begins: bool,
    ) -> Place {
        let conversation = &mut *self.conversation;
        let may_commit = writes(conversation);
        let owed = &mut conversation.owed;
        let entry = if begins { owed.extended() } else { owed.closing() };
        entry.guarded |= guarded;
        entry.may_commit |= may_commit;
        entry.opaque |= traits.opaque || class == StatementClass::Unprovable;
        // Describe and Close are of the second class, and the Parse of what they don't run.
        let quiet = matches!(class, StatementClass::Read | StatementClass::TransactionControl);
        entry.stirs |= !(quiet && traits.are_calm());
        Place::of(entry)
    }
}

#[cold]
fn broken(what: &str) -> Ruling {
    Ruling::Stop(Stop::Broken(format!("invalid message: {what}")))
}

fn writes(conversation: &Conversation) -> bool {
    conversation.lease.as_ref().is_some_and(|lease| lease.stamp().writer)
}

/// Admission of a lifecycle statement at another gate. The session has one seat there, and so one
/// lease until all is answered: a second seat under its number would take the first one's place in
/// that gate's table, and hide its lease from drains.
#[cold]
fn enter_at(
    conversation: &mut Conversation,
    gate: Arc<Gate>,
    now_ms: u64,
) -> Result<(), Box<Refusal>> {
    let class = StatementClass::Lifecycle;
    if let Some(lease) = conversation.elsewhere.get(gate.namespace()) {
        return lease.take_more(class);
    }
    let there = gate.namespace().clone();
    let slot = conversation.seat.slot();
    let seat = Seat::take(gate, slot.id(), (*slot.card()).clone());
    seat.slot().has_backend_of(slot);
    let (lease, _) = seat.begin(class, now_ms)?;
    conversation.elsewhere.insert(there, lease);
    Ok(())
}

/// Notes what a forwarded program changes in the session.
fn note(conversation: &mut Conversation, traits: Traits, detail: Option<&Detail>) {
    conversation.lexing_uncertain |= traits.changes_lexing;
    conversation.own.forwarded(traits);
    if let Some(auto) = &mut conversation.auto {
        auto.note(traits);
    }
    if traits.opens_cursor {
        conversation.seat.set_cursor(true);
    }
    if traits.resets_session {
        conversation.resets();
    }
    if let Some(detail) = detail {
        for (name, class) in &detail.prepares {
            conversation.prepared.prepared_by_sql(name, *class);
        }
    }
}

/// What a client is told that broke the protocol.
#[cold]
pub(crate) fn protocol_error(to_client: &mut BytesMut, what: &str) {
    refusal::plain_error(
        to_client,
        Severity::Fatal,
        "08P01",
        what,
        "The connection is closed; this is a fault of the client or of something in between.",
    );
}
