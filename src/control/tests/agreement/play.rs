//! One sequence, played on both: what is sent, and what must be the same.

use std::collections::{BTreeSet, VecDeque};

use super::model::{
    AT_WORK, Bug, CLASSES, Creation, DIED, Entry, Fate, Heard, Kind, Model, Outside, Purpose,
    Request, State, Terms,
};
use super::steps::{Belief, Manner, Spoil, Step};
use super::world::{How, Said, World};
use super::*;

/// The deadline of a drain that others go on beside: longer than all of theirs together.
const BEHIND_MS: u64 = 2 * 60 * 60 * 1000;

fn same<T: PartialEq + std::fmt::Debug>(what: &str, real: T, text: T) -> Result<(), TestCaseError> {
    if real == text {
        return Ok(());
    }
    let said = format!("VIOLATION: contract: {what}:\n  code:     {real:?}\n  contract: {text:?}");
    Err(TestCaseError::fail(said))
}

/// What was answered and reached, by name.
pub(super) type Seen = BTreeSet<String>;

struct Play {
    world: World,
    model: Model,
    outside: Outside,
    asked: Vec<Request>,
    /// The drain that is at work behind, and whether it was resumed.
    behind: Option<(Entry, bool)>,
    /// How the creation that is at work behind goes on.
    making: Option<Manner>,
    busy: bool,
    /// Whether a session is there; of a reader, whether it began before writes closed.
    writer: bool,
    reader: Option<bool>,
    /// The generation under which the idle transaction began.
    idle: Option<u64>,
    /// What the session with a capability is doing, and by which, by its place.
    bearer: Option<(Purpose, usize)>,
    seen: Seen,
}

/// Plays a sequence; answers what was met.
pub(super) fn play(exists: bool, steps: &[Step], bug: Option<Bug>) -> Result<Seen, TestCaseError> {
    let mut play = Play::new(exists, bug);
    for step in steps {
        play.step(step).map_err(|error| TestCaseError::fail(format!("{error}\n  at {step:?}")))?;
    }
    Ok(play.seen)
}

impl Play {
    fn new(exists: bool, bug: Option<Bug>) -> Self {
        Self {
            world: World::new(exists),
            model: Model::new(exists, bug),
            outside: Outside::default(),
            asked: Vec::new(),
            behind: None,
            making: None,
            busy: false,
            writer: false,
            reader: None,
            idle: None,
            bearer: None,
            seen: Seen::new(),
        }
    }

    /// Programs that were admitted as reads before the gate closed are waited for as well
    /// (`docs/ARCHITECTURE.md`), those of a validation run under the guard; a read drain waits for
    /// whatever runs.
    fn outside(&self) -> Outside {
        let imports = matches!(self.bearer, Some((Purpose::Import, _)));
        Outside {
            writes_held: self.busy || self.writer || self.reader == Some(true) || imports,
            reads_held: self.writer || self.reader.is_some() || self.bearer.is_some(),
            sessions: self.has_sessions(),
            ..self.outside
        }
    }

    fn has_sessions(&self) -> bool {
        let readers = self.reader.is_some() || self.idle.is_some();
        self.writer || readers || self.bearer.is_some()
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Ask { kind, by, id, belief, terms, manner } => {
                let request = self.request((*kind, *by, *id), *belief, *terms, manner.how);
                self.asked.push(request);
                self.ask(request, manner)?;
            }
            Step::Again { back, altered, manner } => {
                let Some(earlier) = self.asked.iter().rev().nth(*back) else { return Ok(()) };
                let mut request = *earlier;
                request.revision += u64::from(*altered);
                request.terms.template |= *altered && request.kind == Kind::Create;
                self.ask(request, manner)?;
            }
            Step::Write | Step::Read | Step::Idle | Step::Rise => self.session(step)?,
            Step::Issue { purpose, by, belief } => self.issue(*purpose, *by, *belief)?,
            Step::Work => self.work()?,
            Step::More { writes } => self.more(*writes)?,
            Step::Question { by, belief, parks } => self.question(*by, *belief, *parks)?,
            Step::Busy(_) | Step::Silent(_) | Step::Elsewhere(_) => self.engine(step),
            Step::Fill | Step::Drop => self.database(step)?,
            Step::Settle => self.settle()?,
            Step::Restart => self.restart(),
            Step::Spoil(spoil) => {
                self.settle()?;
                self.spoil(*spoil);
            }
        }
        let ends = self.behind.is_some_and(|(entry, _)| {
            !self.model.holds(&entry, &self.outside()) || !self.model.is_draining(&entry)
        });
        if ends {
            self.settle()?;
        }
        let text = self.model.scene(&self.outside());
        self.seen.insert(format!("{} {}", text.state, text.detail));
        same("the scene", self.world.scene(), text)
    }

    /// A command as somebody would send it now.
    fn request(
        &mut self,
        (kind, by, id): (Option<Kind>, u8, Option<u8>),
        belief: Belief,
        terms: Terms,
        how: How,
    ) -> Request {
        let (mut state, mut revision, owner) = self.model.expected(&self.outside);
        let kind = kind.unwrap_or_else(|| self.goes_on(state));
        match belief {
            Belief::Right => {}
            Belief::OldRevision => revision = revision.saturating_sub(1),
            Belief::OtherState => state = State::Released,
        }
        let id = id.unwrap_or(u8::try_from(self.asked.len()).unwrap() + 50);
        let owner = if terms.owner == 0 { owner } else { terms.owner };
        let database = if terms.database == 0 { self.outside.database } else { terms.database };
        let mut terms = Terms { owner, database, ..terms };
        if how == How::Behind {
            (terms.deadline_ms, terms.force) = (Some(BEHIND_MS), false);
        }
        let terms = terms.of(kind);
        Request { by, id, kind, state, revision, terms }
    }

    /// The next command of a move that goes well.
    fn goes_on(&self, state: State) -> Kind {
        match state {
            State::Absent => Kind::Create,
            State::TargetQuarantined | State::TargetImportDraining => Kind::Seal,
            State::TargetValidating if self.model.is_valid() => Kind::Publish,
            State::TargetValidating => Kind::Validate,
            State::TargetWriteFenced => Kind::Enable,
            State::SourceWriteFenced => Kind::SetRead,
            State::SourceReadDraining | State::SourceReadFenced => Kind::ClearRead,
            State::Unfenced
            | State::SourceDraining
            | State::Released
            | State::TargetWritable
            | State::TargetAborted
            | State::Unknown => Kind::Acquire,
        }
    }

    fn ask(&mut self, request: Request, manner: &Manner) -> Result<(), TestCaseError> {
        if self.making.is_some() {
            // It holds the namespace's turn.
            self.settle()?;
        }
        if self.behind.is_some_and(|(entry, _)| entry.request == request) {
            // It would join the one behind, and wait as long.
            return self.settle();
        }
        let drains = matches!(request.kind, Kind::Acquire | Kind::SetRead | Kind::Seal);
        let deadline = request.terms.deadline_ms;
        if drains && self.behind.is_some() && matches!(deadline, None | Some(BEHIND_MS)) {
            // It would outlast the one behind, also by the record's deadline in place of its own.
            return Ok(());
        }
        let alone = self.behind.is_none();
        let waits = request.terms.deadline_ms == Some(BEHIND_MS) || request.kind == Kind::Create;
        let how = match manner.how {
            How::Behind if alone && waits => How::Behind,
            How::Return => How::Return,
            How::Stay | How::Behind => How::Stay,
        };
        let fates = fates_of(request, manner, alone && how != How::Behind);
        // It must be made before it can be asked which one it is.
        let speechless = manner.creation == Creation::Speechless && how != How::Behind;
        let creation = if speechless { Creation::Unknown { made: true } } else { manner.creation };
        let manner = Manner { fates: fates.clone(), how, creation, ..manner.clone() };
        let outside = Outside {
            key: manner.key,
            unreadable: manner.unreadable,
            creation,
            parks: how == How::Behind,
            ..self.outside()
        };
        // Those of a creation that waits are for when it goes on.
        let now = if how == How::Behind { Vec::new() } else { fates };
        let text = self.model.ask(request, &outside, &mut VecDeque::from(now));
        let real = self.world.ask(request, &manner);
        let running = self.model.running(request).filter(|_| text.code == "DRAINING");
        self.note(request, &text);
        match (real, running) {
            (Said::AtWork, Some(entry)) => {
                self.behind = Some((entry, text.replayed));
                Ok(())
            }
            (Said::AtWork, None) => {
                same("at work", AT_WORK, text.code)?;
                self.making = Some(manner);
                Ok(())
            }
            (Said::Died, _) => self.died(&text),
            (Said::Heard(real), _) => same("the answer", real, text),
        }
    }

    fn note(&mut self, request: Request, text: &Heard) {
        let again = if text.replayed { "again" } else { "" };
        self.seen.insert(format!("{} {} {again}", text.code, text.detail));
        self.seen.insert(format!("{} {}", request.kind.name(), text.code));
    }

    /// The process died in a commit.
    fn died(&mut self, text: &Heard) -> Result<(), TestCaseError> {
        same("the death", DIED, text.code)?;
        self.restart();
        Ok(())
    }

    fn restart(&mut self) {
        self.lose_process();
        self.world.restart();
        self.model.restart();
    }

    /// Has the command behind answer.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        if let Some(manner) = self.making.take() {
            let outside =
                Outside { unreadable: manner.blind, creation: manner.creation, ..self.outside() };
            let fates = &mut VecDeque::from(manner.fates.clone());
            let text = self.model.go_on(&outside, fates);
            self.seen.insert(format!("behind CreateTargetQuarantined {}", text.code));
            return match self.world.go_on(&manner) {
                Said::Died => self.died(&text),
                Said::Heard(real) => same("the answer of the creation behind", real, text),
                Said::AtWork => same("the creation behind", AT_WORK, text.code),
            };
        }
        let Some((entry, replayed)) = self.behind.take() else { return Ok(()) };
        let real = self.world.settle();
        let text: Heard = self.model.drain(entry, replayed, &self.outside(), &mut VecDeque::new());
        same("the answer of the one behind", real, text)
    }

    fn lose_process(&mut self) {
        (self.behind, self.writer, self.reader, self.idle) = (None, false, None, None);
        (self.making, self.bearer) = (None, None);
        self.outside.silent = false;
        self.world.engine_silent(false);
    }

    // --- sessions ---

    #[expect(clippy::wildcard_enum_match_arm, reason = "its caller has sorted the steps")]
    fn session(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Write if self.writer => {
                self.world.end_writer();
                self.writer = false;
            }
            Step::Write => {
                let text = self.model.admits(1);
                self.writer = text.is_empty();
                same("a write", self.world.begin_writer(), text)?;
            }
            Step::Read if self.reader.is_some() => {
                self.world.end_reader();
                self.reader = None;
            }
            Step::Read => {
                let text = self.model.admits(0);
                self.reader = text.is_empty().then_some(self.model.admits(1).is_empty());
                same("a read", self.world.begin_reader(), text)?;
            }
            Step::Rise if self.idle.is_some() => {
                let since = self.idle.unwrap();
                let text = self.model.may_rise(since);
                if text.0.is_empty() {
                    self.idle = None;
                }
                self.seen.insert(format!("rise {} {}", text.0, text.1));
                same("an older transaction's write", self.world.rise(), text)?;
            }
            Step::Idle if self.idle.is_some() => {
                self.world.end_idle();
                self.idle = None;
            }
            Step::Idle | Step::Rise => {
                let text = self.model.admits(0);
                self.idle = text.is_empty().then_some(self.model.generation());
                same("a transaction", self.world.begin_idle(), text)?;
            }
            other => panic!("not a session's: {other:?}"),
        }
        Ok(())
    }

    fn issue(
        &mut self,
        purpose: Option<Purpose>,
        by: Option<u8>,
        belief: Belief,
    ) -> Result<(), TestCaseError> {
        let (state, revision, owner) = self.model.expected(&self.outside);
        let imports = state == State::TargetQuarantined;
        let of_state = if imports { Purpose::Import } else { Purpose::Validation };
        let (purpose, by) = (purpose.unwrap_or(of_state), by.unwrap_or(owner));
        let revision = revision + u64::from(belief == Belief::OldRevision);
        let text = self.model.issue(purpose, by, revision);
        self.seen.insert(format!("issue {purpose:?} {} {}", text.0, text.1));
        same("a capability", self.world.issue(purpose, by, revision), text)
    }

    /// An import writes, a validation reads.
    fn work(&mut self) -> Result<(), TestCaseError> {
        if self.bearer.take().is_some() {
            return same("the end of a transaction", self.world.end_work(), "");
        }
        let Some(one) = self.model.last() else { return Ok(()) };
        let class = if one.purpose == Purpose::Import { "write" } else { "read" };
        let text = self.model.bearer_may(one, number(class));
        if text.is_empty() {
            self.bearer = Some((one.purpose, self.model.given() - 1));
        }
        self.seen.insert(format!("work {:?} {text}", one.purpose));
        same("work under a capability", self.world.begin_work(class), text)
    }

    fn more(&mut self, writes: bool) -> Result<(), TestCaseError> {
        let Some((purpose, place)) = self.bearer else { return Ok(()) };
        let class = if writes { "write" } else { "read" };
        let text = self.model.bearer_may(self.model.capability(place), number(class));
        self.seen.insert(format!("more {purpose:?} {class} {text}"));
        same("more work under a capability", self.world.more(class), text)
    }

    fn question(
        &mut self,
        by: Option<u8>,
        belief: Belief,
        parks: bool,
    ) -> Result<(), TestCaseError> {
        if self.outside.silent || self.outside.database != 1 {
            // Whose answer it would be isn't played here: `control/tests/targets.rs`.
            return Ok(());
        }
        if self.world.is_asked() {
            let text = self.model.answer_question();
            self.seen.insert(format!("answer {}", text.0));
            return same("the answer to a question", self.world.answer_question(), text);
        }
        let (state, revision, owner) = self.model.expected(&self.outside);
        let by = by.unwrap_or(owner);
        let revision = revision + u64::from(belief == Belief::OldRevision);
        let state = match belief {
            Belief::Right => None,
            Belief::OldRevision => Some(state),
            Belief::OtherState => Some(State::TargetImportDraining),
        };
        let silent = self.outside.silent;
        let text = self.model.ask_question(by, (state, revision), silent, parks);
        self.seen.insert(format!("question {} {}", text.0, text.1));
        same("a question", self.world.ask_question(by, (state, revision), parks), text)
    }

    // --- the engine, and the files ---

    #[expect(clippy::wildcard_enum_match_arm, reason = "its caller has sorted the steps")]
    fn engine(&mut self, step: &Step) {
        match step {
            Step::Busy(busy) => {
                self.busy = *busy;
                self.world.engine_busy(*busy);
            }
            Step::Silent(silent) => {
                self.outside.silent = *silent;
                self.world.engine_silent(*silent);
            }
            Step::Elsewhere(elsewhere) => {
                self.outside.database = if *elsewhere { 2 } else { 1 };
                self.world.engine_is(self.outside.database);
            }
            other => panic!("not the engine's: {other:?}"),
        }
    }

    /// Around the proxy: somebody makes a database of that name and puts something into it; or
    /// drops it, where nothing is at it and no fence stands.
    #[expect(clippy::wildcard_enum_match_arm, reason = "its caller has sorted the steps")]
    fn database(&mut self, step: &Step) -> Result<(), TestCaseError> {
        if self.making.is_some() {
            self.settle()?;
        }
        match step {
            Step::Fill => (self.model.exists, self.model.filled) = (true, true),
            Step::Drop if self.has_sessions() || self.world.is_asked() => return Ok(()),
            Step::Drop if self.behind.is_some() || !self.model.is_idle() => return Ok(()),
            Step::Drop => (self.model.exists, self.model.filled) = (false, false),
            other => panic!("not the database's: {other:?}"),
        }
        self.world.database(self.model.exists, self.model.filled);
        Ok(())
    }

    fn spoil(&mut self, spoil: Spoil) {
        match spoil {
            Spoil::Save => {
                self.world.save();
                self.model.save();
            }
            Spoil::PutStoreBack => {
                if self.model.put_store_back() {
                    self.lose_process();
                    self.world.with_store(true);
                    self.model.restart();
                }
            }
            Spoil::LoseStore => {
                self.model.lose_store();
                self.lose_process();
                self.world.with_store(false);
                self.model.restart();
            }
            Spoil::PutMarkerBack => {
                if self.model.put_marker_back() {
                    self.world.put_marker_back();
                }
            }
            Spoil::LoseMarker => {
                self.world.lose_marker();
                self.model.lose_marker();
            }
            Spoil::GarbleMarker => {
                self.world.garble_marker();
                self.model.garble_marker();
            }
        }
    }
}

fn number(class: &str) -> usize {
    CLASSES.iter().position(|name| *name == class).unwrap()
}

/// The faults of one command mustn't meet the commits of another that is at work. And a drain that
/// may take the record's deadline may have no time to look again.
fn fates_of(request: Request, manner: &Manner, any: bool) -> Vec<Fate> {
    let drains = matches!(request.kind, Kind::Acquire | Kind::SetRead | Kind::Seal);
    let creates = request.kind == Kind::Create;
    if !any && !creates {
        return Vec::new();
    }
    let lent = drains && request.terms.deadline_ms.is_none();
    let fates = manner.fates.iter().copied();
    fates.map(|fate| if lent && fate == Fate::KnownLost { Fate::Lands } else { fate }).collect()
}
