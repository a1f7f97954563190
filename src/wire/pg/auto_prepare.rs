//! Unnamed statements kept at the engine under names of the proxy's (`auto_prepare`).
//!
//! Purpose: parsing and planning is most of what a small query costs its engine, and drivers have
//! it done anew each time by way of the unnamed statement. On a listener with `auto_prepare` a text
//! that comes a second time is parsed under a name of ours, and from then on its Parse isn't sent
//! any more: what the client binds as `""` is bound by that name.
//!
//! What holds it together:
//! - **In the place of a Parse that isn't sent stands a Close of a portal that nobody has.** Its
//!   CloseComplete, given as ParseComplete, comes exactly where the engine would have said that:
//!   not behind an error, at a Flush, in the order of everything else. Nothing is counted or timed.
//! - **What `""` means to the client is known exactly, or waited for** ([`Meaning`]): a Bind in a
//!   later pipeline waits until the Parse it may depend on has been answered.
//! - **Forgotten is everything behind whatever may have a text mean something else** (`Traits`,
//!   `unsettles`), and nothing is kept until the transaction that it came in is over. Numbers are
//!   never used again, so what is forgotten can't be taken for something new.
//! - It is used only with every gate open, and no guard, force or capability about
//!   (`Conversation::may_auto_prepare`): no fence depends on it. A Bind is judged by the class of
//!   the text that its client parsed, whatever the name is that it goes by.
//!
//! Pure; a part of `conversation.rs`. `client/unnamed.rs` and `answers.rs` tell it what is
//! forwarded and what the engine says. It judges no text.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use crate::base::arm::{Removable, removed};
use crate::base::limits;
use crate::sql::TxEffect;
use crate::telemetry::worker::{AutoPrepared, WorkerCounters};
use crate::wire::pg::conversation::{Conversation, Forced, Mode};
use crate::wire::pg::prepared::Traits;
use crate::wire::pg::refusal::{Status, field};

/// What the client's unnamed statement is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The engine's own, if there is one.
    Engine,
    /// The one that the engine has under this number.
    Ours(u64),
    /// None; the engine may have an older one.
    Gone,
}

impl Meaning {
    /// Something ends it at the client, and the engine's own with it.
    fn ended(&mut self) {
        if *self != Self::Engine {
            *self = Self::Gone;
        }
    }
}

/// What becomes of a Parse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Forwarded as it is.
    AsItIs,
    /// Forwarded with this number's name.
    Name(u64),
    /// Not forwarded: the statement with this number is it.
    StandIn(u64),
}

/// A message that the engine answers with ParseComplete or CloseComplete, or that ends `""`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// That many of the client's that are none of the following.
    Theirs(u32),
    /// A Parse of `""`, as it came.
    Parse,
    /// A Close of `""`.
    Close,
    /// A simple query: it ends `""` without saying so.
    Query,
    /// A Parse of `""` under this number's name.
    Name(u64),
    /// What stands in the place of a Parse of `""` that is this number's statement.
    StandIn(u64),
    /// The proxy's own Close of a number's statement.
    Closing(u64),
    /// The proxy's own Close of `""`.
    Clearing,
}

impl Awaited {
    const fn changes(self) -> bool {
        match self {
            Self::Theirs(_) | Self::Closing(_) => false,
            Self::Parse
            | Self::Close
            | Self::Query
            | Self::Name(_)
            | Self::StandIn(_)
            | Self::Clearing => true,
        }
    }

    const fn is_ours(self) -> bool {
        matches!(self, Self::Name(_) | Self::StandIn(_))
    }
}

/// What the client gets of a ParseComplete or CloseComplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Given {
    /// The same.
    Same,
    /// ParseComplete.
    ParseComplete,
    /// Nothing.
    Nothing,
    /// It isn't the answer to what was sent.
    Fault,
}

#[derive(Debug)]
struct Coming {
    pipeline: u64,
    /// How many messages of its pipeline stand in front of it.
    at: u32,
    what: Awaited,
}

/// A text that has a name.
#[derive(Debug)]
struct Kept {
    number: u64,
    /// The engine has said that it has it.
    there: bool,
    /// Where it was named; [`NEVER`] where the engine had something to say of it.
    pipeline: u64,
    used: u64,
}

/// No pipeline: programs are numbered from 1.
const NEVER: u64 = 0;

/// Places that a hash may be in, among those of texts that came once.
const SEEN_TOGETHER: usize = 4;

/// What one session keeps.
#[derive(Debug)]
pub(crate) struct AutoPrepare {
    /// Names begin with it. Random, so that no client has it by accident; one that reads it in
    /// `pg_prepared_statements` and uses it is refused (`client/unnamed.rs`).
    tag: String,
    counters: Arc<WorkerCounters>,
    hasher: RandomState,
    /// Hashes of texts that came once.
    seen: Vec<u64>,
    /// By what a Parse has behind its name: text and types.
    kept: HashMap<Box<[u8]>, Kept>,
    /// Bytes of these.
    bytes: usize,
    next: u64,
    /// Numbers below it were given before something ran that may have changed what names mean.
    trusted_from: u64,
    clock: u64,
    /// Names that the engine may have.
    alive: usize,
    /// Numbers that are to be closed.
    spare: Vec<u64>,
    coming: VecDeque<Coming>,
    /// How many of these change what `""` is, and how many to one of ours.
    changes: usize,
    ours: usize,
    /// What `""` is behind everything that was answered.
    settled: Meaning,
    /// What it is behind what was forwarded, in this pipeline.
    latest: Option<(u64, Meaning)>,
    /// The pipeline whose Parses may be left out: it is known not to begin in a failed transaction,
    /// and nothing in it hangs on a Parse.
    calm: u64,
    /// The pipeline that the engine skips.
    skipped: u64,
    /// What is owed may begin or end transactions.
    moving: bool,
    /// Texts mean what they may mean until the transaction ends only.
    resting: bool,
    /// A message waits to know what `""` is.
    waits: bool,
}

impl AutoPrepare {
    /// A session's, with nothing kept.
    pub(crate) fn new(counters: Arc<WorkerCounters>) -> Self {
        let token = uuid::Uuid::new_v4().simple().to_string();
        let short = token.get(..limits::AUTO_PREPARE_TAG_LETTERS).unwrap_or(&token);
        Self {
            tag: format!("fencewire_{short}"),
            counters,
            hasher: RandomState::new(),
            seen: Vec::new(),
            kept: HashMap::new(),
            bytes: 0,
            next: 1,
            trusted_from: 1,
            clock: 0,
            alive: 0,
            spare: Vec::new(),
            coming: VecDeque::new(),
            changes: 0,
            ours: 0,
            settled: Meaning::Engine,
            latest: None,
            calm: 0,
            skipped: 0,
            moving: false,
            resting: false,
            waits: false,
        }
    }

    /// What a number's statement is called at the engine.
    pub(crate) fn name(&self, number: u64) -> String {
        format!("{}_{number}", self.tag)
    }

    /// A portal that nobody has.
    pub(crate) fn nobody(&self) -> &str {
        &self.tag
    }

    /// Whether a statement of the client's is called as one of ours may be.
    pub(crate) fn is_called(&self, name: &[u8]) -> bool {
        let rest = name.strip_prefix(self.tag.as_bytes());
        rest.is_some_and(|rest| rest.starts_with(b"_"))
    }

    /// What becomes of a Parse of `""` with `body` behind its name, in the pipeline `pipeline`,
    /// where nothing else speaks against it. `moves` says whether its text means something else
    /// each time it is parsed.
    pub(crate) fn plan(
        &mut self,
        body: &[u8],
        pipeline: u64,
        moves: impl FnOnce() -> bool,
    ) -> Plan {
        let full = self.coming.len() >= limits::AUTO_PREPARE_PENDING_MAX;
        let long = body.len() > limits::AUTO_PREPARE_TEXT_BYTES_MAX;
        let skipped = self.skipped == pipeline;
        if self.resting || self.calm != pipeline || skipped || full || long {
            return Plan::AsItIs;
        }
        self.clock += 1;
        if let Some(kept) = self.kept.get_mut(body) {
            // Another pipeline's may have failed.
            if !kept.there && kept.pipeline != pipeline {
                return Plan::AsItIs;
            }
            kept.used = self.clock;
            self.counters.auto_prepared(AutoPrepared::Reused);
            return Plan::StandIn(kept.number);
        }
        let came_before = self.comes(body);
        let room = self.alive < limits::AUTO_PREPARE_ALIVE_MAX;
        if !came_before || !room || moves() || !self.make_room(body.len()) {
            return Plan::AsItIs;
        }
        let number = self.next;
        self.next += 1;
        self.alive += 1;
        self.bytes += body.len();
        let kept = Kept { number, there: false, pipeline, used: self.clock };
        self.kept.insert(body.into(), kept);
        self.counters.auto_prepared(AutoPrepared::Named);
        Plan::Name(number)
    }

    /// Whether a text came before, as far as is remembered.
    fn comes(&mut self, body: &[u8]) -> bool {
        if self.seen.is_empty() {
            self.seen.resize(limits::AUTO_PREPARE_SEEN, 0);
        }
        let hash = self.hasher.hash_one(body);
        let groups = limits::AUTO_PREPARE_SEEN / SEEN_TOGETHER;
        let place = (hash % groups as u64) as usize * SEEN_TOGETHER;
        let group = self.seen.get_mut(place..place + SEEN_TOGETHER).unwrap_or_default();
        let came_before = group.contains(&hash);
        if !came_before {
            // The oldest of the group makes room.
            group.rotate_right(1);
            if let Some(newest) = group.first_mut() {
                *newest = hash;
            }
        }
        came_before
    }

    /// Gives up what was used longest ago, until there is room for one more.
    fn make_room(&mut self, bytes: usize) -> bool {
        while self.kept.len() >= limits::AUTO_PREPARE_NAMES_MAX
            || self.bytes + bytes > limits::AUTO_PREPARE_BYTES_MAX
        {
            let over = self.kept.iter().filter(|(_, kept)| kept.there || kept.pipeline == NEVER);
            let Some((oldest, _)) = over.min_by_key(|(_, kept)| kept.used) else { return false };
            let oldest = oldest.clone();
            self.bytes -= oldest.len();
            let gone = self.kept.remove(&oldest).filter(|kept| kept.there);
            self.spare.extend(gone.map(|kept| kept.number));
        }
        true
    }

    /// One of the statements that are to be closed.
    pub(crate) fn next_spare(&mut self) -> Option<u64> {
        self.spare.pop()
    }

    /// Everything that is kept may mean something else.
    pub(crate) fn forget(&mut self) {
        if removed(Removable::AutoForget) {
            return;
        }
        if !self.kept.is_empty() {
            self.counters.auto_prepared(AutoPrepared::Forgotten);
        }
        let there = self.kept.drain().map(|(_, kept)| kept).filter(|kept| kept.there);
        self.spare.extend(there.map(|kept| kept.number));
        self.bytes = 0;
        self.seen.fill(0);
    }

    /// What is forwarded, or was prepared of it.
    pub(crate) fn note(&mut self, traits: Traits) {
        self.moving |= traits.tx != TxEffect::None || traits.unsettles;
        if traits.unsettles {
            self.trusted_from = self.next;
        }
        if traits.unsettles && !removed(Removable::AutoForget) {
            self.forget();
            self.resting = true;
        }
    }

    /// In the pipeline that is being forwarded every Parse must be one.
    pub(crate) const fn not_calm(&mut self) {
        self.calm = 0;
    }

    /// A query ends a pipeline: PostgreSQL 18 may leave a transaction open behind it, which the
    /// Sync behind a Parse ends, and that behind a Close doesn't.
    pub(crate) const fn mixed(&mut self) {
        self.moving = true;
    }

    /// Nothing is owed any more.
    pub(crate) fn settled(&mut self, status: Status) {
        self.moving = false;
        self.resting &= status != Status::Idle;
    }

    /// Whether a message still waits to know what `""` is.
    pub(crate) const fn must_wait(&self) -> bool {
        self.waits && self.changes > 0
    }

    /// The message that is next has not to wait, or not any more, whatever becomes of it. False
    /// where more is unanswered than is kept account of.
    pub(crate) fn goes_on(&mut self) -> bool {
        self.waits = false;
        self.coming.len() < limits::AUTO_PREPARE_UNANSWERED_MAX
    }

    /// What `""` is to a message in the pipeline `pipeline`; `None` while nobody knows, and then it
    /// waits.
    pub(crate) fn meaning(&mut self, pipeline: u64) -> Option<Meaning> {
        let meaning = self.known(pipeline);
        self.waits = meaning.is_none();
        meaning
    }

    fn known(&self, pipeline: u64) -> Option<Meaning> {
        match self.latest {
            // Whatever goes there is dropped.
            _ if pipeline == self.skipped => Some(Meaning::Engine),
            Some((here, meaning)) if here == pipeline => Some(meaning),
            Some(_) | None if self.changes == 0 => Some(self.settled),
            Some(_) | None if self.settled == Meaning::Engine && self.ours == 0 => {
                Some(Meaning::Engine)
            }
            Some(_) | None if removed(Removable::AutoMeaning) => Some(self.settled),
            Some(_) | None => None,
        }
    }

    /// Whether a number's name may have come to mean another text: something was forwarded behind
    /// its Parse that can prepare and deallocate what it likes.
    pub(crate) const fn is_doubtful(&self, meaning: Meaning) -> bool {
        matches!(meaning, Meaning::Ours(number) if number < self.trusted_from)
    }

    /// A message is forwarded in the pipeline `pipeline`, behind `at` of its messages.
    pub(crate) fn awaits(&mut self, pipeline: u64, at: u32, what: Awaited) {
        if pipeline == self.skipped {
            return;
        }
        match what {
            Awaited::Theirs(_) | Awaited::Closing(_) | Awaited::Query => {}
            Awaited::Parse | Awaited::Clearing => self.latest = Some((pipeline, Meaning::Engine)),
            Awaited::Name(number) | Awaited::StandIn(number) => {
                self.latest = Some((pipeline, Meaning::Ours(number)));
            }
            Awaited::Close => {
                let mut meaning = self.known(pipeline).unwrap_or(Meaning::Gone);
                meaning.ended();
                self.latest = Some((pipeline, meaning));
            }
        }
        if let (Awaited::Theirs(more), Some(back)) = (what, self.coming.back_mut())
            && let Awaited::Theirs(count) = &mut back.what
            && back.pipeline == pipeline
        {
            *count = count.saturating_add(more);
            return;
        }
        self.changes += usize::from(what.changes());
        self.ours += usize::from(what.is_ours());
        self.coming.push_back(Coming { pipeline, at, what });
    }

    fn pop(&mut self) -> Option<Coming> {
        let coming = self.coming.pop_front()?;
        self.changes -= usize::from(coming.what.changes());
        self.ours -= usize::from(coming.what.is_ours());
        Some(coming)
    }

    /// The engine runs what stands behind the queries in front, or goes into the COPY of one: there
    /// it answers whatever comes with an error, and nothing may wait for its end.
    pub(crate) fn query_begun(&mut self) {
        while self.coming.front().is_some_and(|coming| coming.what == Awaited::Query) {
            self.pop();
            self.settled.ended();
        }
    }

    /// The engine said ParseComplete or CloseComplete (`tag`) to the client's program.
    pub(crate) fn completed(&mut self, tag: u8) -> Given {
        self.query_begun();
        if let Some(Coming { what: Awaited::Theirs(count @ 2..), .. }) = self.coming.front_mut() {
            *count -= 1;
            return Given::Same;
        }
        let Some(Coming { what, .. }) = self.pop() else { return Given::Same };
        let (expected, given) = match what {
            Awaited::Theirs(_) | Awaited::Query => return Given::Same,
            Awaited::Parse => {
                self.settled = Meaning::Engine;
                (b'1', Given::Same)
            }
            Awaited::Close => {
                self.settled.ended();
                (b'3', Given::Same)
            }
            Awaited::Name(number) => {
                self.settled = Meaning::Ours(number);
                self.is_there(number);
                (b'1', Given::Same)
            }
            Awaited::StandIn(number) => {
                self.settled = Meaning::Ours(number);
                (b'3', Given::ParseComplete)
            }
            Awaited::Closing(_) => {
                self.alive -= 1;
                (b'3', Given::Nothing)
            }
            Awaited::Clearing => {
                self.settled = Meaning::Engine;
                (b'3', Given::Nothing)
            }
        };
        if tag == expected { given } else { Given::Fault }
    }

    fn is_there(&mut self, number: u64) {
        match self.kept.values_mut().find(|kept| kept.number == number) {
            Some(kept) if kept.pipeline != NEVER => kept.there = true,
            // Forgotten meanwhile, or not to be kept.
            Some(_) | None => self.spare.push(number),
        }
    }

    /// The engine had a notice for its client in the pipeline `pipeline`, of which it had answered
    /// `done` messages. Where that is about a text that is being named, its client wants to hear it
    /// at each Parse: the text is sent as it is from now on.
    pub(crate) fn noticed(&mut self, pipeline: u64, done: u32) {
        let Some(Coming { pipeline: here, at, what: Awaited::Name(number) }) = self.coming.front()
        else {
            return;
        };
        if *here == pipeline && done >= *at {
            let kept = self.kept.values_mut().find(|kept| kept.number == *number);
            kept.into_iter().for_each(|kept| kept.pipeline = NEVER);
        }
    }

    /// The engine doesn't have it: its Parse failed, or was skipped.
    fn is_not_there(&mut self, number: u64) {
        self.alive -= 1;
        self.kept.retain(|body, kept| {
            let stays = kept.number != number;
            self.bytes -= if stays { 0 } else { body.len() };
            stays
        });
    }

    /// The engine reported an error in the pipeline `failed`, of which it had answered `done`
    /// messages: what stands behind these failed. What comes up to the end of the pipeline
    /// `pipeline` is skipped.
    pub(crate) fn failed(&mut self, failed: u64, done: u32, pipeline: u64) {
        while self.coming.front().is_some_and(|coming| coming.pipeline <= pipeline) {
            let Some(coming) = self.pop() else { break };
            let itself = coming.pipeline == failed && done >= coming.at;
            self.is_skipped(coming.what, itself);
        }
        self.skipped = pipeline;
        // Nothing more is planned into what is skipped: no answer would undo it.
        self.calm = 0;
        self.latest = self.latest.filter(|(at, _)| *at > pipeline);
    }

    /// What will not be completed: because it failed `itself`, or as it was never looked at.
    fn is_skipped(&mut self, what: Awaited, itself: bool) {
        match what {
            Awaited::Theirs(_) => {}
            Awaited::Parse | Awaited::Close | Awaited::Query | Awaited::Clearing => {
                if itself {
                    self.settled.ended();
                }
            }
            Awaited::Name(number) => {
                self.is_not_there(number);
                if itself {
                    self.settled = Meaning::Gone;
                }
            }
            Awaited::StandIn(_) => {
                if itself {
                    self.settled = Meaning::Gone;
                }
            }
            Awaited::Closing(number) => self.spare.push(number),
        }
    }

    /// The pipeline `pipeline` was answered.
    pub(crate) fn answered(&mut self, pipeline: u64) {
        while self.coming.front().is_some_and(|coming| coming.pipeline <= pipeline) {
            let Some(coming) = self.pop() else { break };
            self.is_skipped(coming.what, coming.what == Awaited::Query);
        }
        self.latest = self.latest.filter(|(at, _)| *at > pipeline);
    }

    /// What an error says of what is kept. Those of conflicts and of cancels say nothing; any other
    /// may come of a statement that is older than what it names, also one of data: parameters are
    /// read by the types that columns had.
    pub(crate) fn reported(&mut self, error: &[u8]) {
        let sqlstate = field(error, b'C').unwrap_or_default();
        let says_nothing = [&b"22012"[..], b"23", b"25", b"40", b"53", b"55", b"57", b"P0"];
        if says_nothing.iter().any(|class| sqlstate.starts_with(class)) {
            return;
        }
        // Its name in the engine's source, in every language; the text isn't.
        if sqlstate == b"0A000" && field(error, b'R') == Some(b"RevalidateCachedQuery") {
            self.counters.auto_prepared(AutoPrepared::ResultChanged);
        }
        self.forget();
    }

    /// An error's body as it reads of the unnamed statement; `None` if it has no name of ours.
    pub(crate) fn without_names(&self, error: &[u8]) -> Option<Vec<u8>> {
        let tag = self.tag.as_bytes();
        let find = |bytes: &[u8]| bytes.windows(tag.len()).position(|at| at == tag);
        let (mut left, mut said) = (error, Vec::new());
        while let Some(at) = find(left) {
            let (in_front, name) = left.split_at(at);
            said.extend_from_slice(in_front);
            let digits = name.get(tag.len()..).unwrap_or_default();
            let number = digits.strip_prefix(b"_").unwrap_or(digits);
            let end = number.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(number.len());
            left = number.get(end..).unwrap_or_default();
        }
        (!said.is_empty()).then(|| [&said[..], left].concat())
    }

    /// The engine reported a setting's new value: texts may be read by it.
    pub(crate) fn setting_changed(&mut self, name: &[u8]) {
        let harmless: [&[u8]; 3] =
            [b"application_name", b"default_transaction_read_only", b"in_hot_standby"];
        if !harmless.contains(&name) {
            self.forget();
        }
    }
}

impl Conversation {
    /// A message is about to be forwarded: where it begins a pipeline, is that known not to be in a
    /// failed transaction? There a Parse must fail where its client expects it to.
    pub(crate) fn note_calm(&mut self) {
        let Some(auto) = &mut self.auto else { return };
        if self.owed.has_open_tail() {
            return;
        }
        let calm = if self.owed.is_empty() {
            self.status != Status::Failed && !self.doubted && !self.implicit
        } else {
            self.status == Status::Idle && !auto.moving
        };
        auto.calm = if calm { self.owed.next_number() } else { 0 };
    }

    /// Whether nothing of a fence is about, nor anything else that has the session's state unknown.
    pub(crate) fn may_auto_prepare(&self) -> bool {
        let word = self.seat.gate().word();
        let lease = self.lease.as_ref();
        word.all_open()
            && lease.is_some_and(|lease| lease.stamp().generation == word.generation())
            && self.mode == Mode::Sql
            && self.forced == Forced::No
            && self.seat.capability().is_none()
            && !self.bearing.must_wait()
            && !self.guard_on
            && !self.lexing_uncertain
            && !self.owed.is_uncertain()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No answer would take back what is planned into a pipeline that has failed already.
    #[test]
    fn nothing_is_planned_into_what_is_skipped() {
        let planned = |fails: bool| {
            let mut auto = AutoPrepare::new(Arc::default());
            let text = b"SELECT 1\0\0\0";
            auto.calm = 1;
            assert_eq!(auto.plan(text, 1, || false), Plan::AsItIs, "it comes for the first time");
            if fails {
                auto.failed(1, 0, 1);
            }
            auto.plan(text, 1, || false)
        };
        assert!(matches!(planned(false), Plan::Name(_)));
        assert_eq!(planned(true), Plan::AsItIs);
    }
}
