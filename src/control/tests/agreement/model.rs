//! The fence contract once more, written from its text alone: states, the order of decisions
//! (1.4.1), the matrix (1.4.2), arguments (1.4.3), adoption (1.10), markers and restarts (1.11).
//!
//! It shares no type with the code: what both say is compared by the contract's own names. What the
//! text leaves open, or what `docs/CONTRACT.md` decides otherwise, says so where it stands.

use std::collections::{BTreeMap, VecDeque};

/// The states, by the contract's table 1.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Unfenced,
    Absent,
    SourceDraining,
    SourceWriteFenced,
    SourceReadDraining,
    SourceReadFenced,
    Released,
    TargetQuarantined,
    TargetImportDraining,
    TargetValidating,
    TargetWriteFenced,
    TargetWritable,
    TargetAborted,
    Unknown,
}

use State as S;

impl State {
    pub(super) const fn name(self) -> &'static str {
        match self {
            S::Unfenced => "UNFENCED",
            S::Absent => "ABSENT",
            S::SourceDraining => "SOURCE_DRAINING",
            S::SourceWriteFenced => "SOURCE_WRITE_FENCED",
            S::SourceReadDraining => "SOURCE_READ_DRAINING",
            S::SourceReadFenced => "SOURCE_READ_FENCED",
            S::Released => "RELEASED",
            S::TargetQuarantined => "TARGET_QUARANTINED",
            S::TargetImportDraining => "TARGET_IMPORT_DRAINING",
            S::TargetValidating => "TARGET_VALIDATING",
            S::TargetWriteFenced => "TARGET_WRITE_FENCED",
            S::TargetWritable => "TARGET_WRITABLE",
            S::TargetAborted => "TARGET_ABORTED",
            S::Unknown => "UNKNOWN_UNAVAILABLE",
        }
    }

    const fn is_finished(self) -> bool {
        matches!(self, S::Released | S::TargetWritable | S::TargetAborted)
    }

    /// What a drain in this state ends in.
    const fn drained(self) -> Option<Self> {
        match self {
            S::SourceDraining => Some(S::SourceWriteFenced),
            S::SourceReadDraining => Some(S::SourceReadFenced),
            S::TargetImportDraining => Some(S::TargetValidating),
            S::Unfenced
            | S::Absent
            | S::SourceWriteFenced
            | S::SourceReadFenced
            | S::Released
            | S::TargetQuarantined
            | S::TargetValidating
            | S::TargetWriteFenced
            | S::TargetWritable
            | S::TargetAborted
            | S::Unknown => None,
        }
    }
}

/// The commands, in the order of the matrix's columns; adoption last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(dead_code, reason = "the commands of targets are decided here, and not played yet")]
pub(super) enum Kind {
    Acquire,
    SetRead,
    ClearRead,
    Release,
    Create,
    Seal,
    Validate,
    Publish,
    Enable,
    Abort,
    Adopt,
}

use Kind as K;

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            K::Acquire => "AcquireSourceWriteFence",
            K::SetRead => "SetSourceReadFence",
            K::ClearRead => "ClearSourceReadFence",
            K::Release => "ReleaseSourceWriteFence",
            K::Create => "CreateTargetQuarantined",
            K::Seal => "SealTargetImport",
            K::Validate => "RecordTargetValidation",
            K::Publish => "PublishTargetReadableWriteFenced",
            K::Enable => "EnableTargetWrites",
            K::Abort => "AbortQuarantinedTarget",
            K::Adopt => "AdoptFence",
        }
    }
}

/// Who is named as having approved an adoption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Approvers {
    Two,
    OneTwice,
    OneOnly,
}

/// What a request says beyond its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    /// Deadline of its drain, in milliseconds; `None` leaves it to the server.
    pub(super) deadline_ms: Option<u64>,
    pub(super) force: bool,
    /// Acquire: whether it names the database that is there.
    pub(super) right_database: bool,
    /// Adopt: who is taken for the owner, who approved, and whether there is a reason.
    pub(super) owner: u8,
    pub(super) approvers: Approvers,
    pub(super) reason: bool,
}

impl Terms {
    /// What of it is in a request of this kind.
    pub(super) fn of(self, kind: Kind) -> Self {
        let plain = Self {
            deadline_ms: None,
            force: false,
            right_database: true,
            owner: 0,
            approvers: Approvers::Two,
            reason: true,
        };
        let Self { deadline_ms, force, right_database, owner, approvers, reason } = self;
        match kind {
            K::Acquire => Self { deadline_ms, force, right_database, ..plain },
            K::SetRead | K::Seal => Self { deadline_ms, force, ..plain },
            K::Adopt => Self { owner, approvers, reason, ..plain },
            K::ClearRead
            | K::Release
            | K::Create
            | K::Validate
            | K::Publish
            | K::Enable
            | K::Abort => plain,
        }
    }
}

/// One request, its identity included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) by: u8,
    pub(super) id: u8,
    pub(super) kind: Kind,
    pub(super) state: State,
    pub(super) revision: u64,
    pub(super) terms: Terms,
}

/// What becomes of one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Lands,
    KnownLost,
    UnknownLanded,
    UnknownLost,
}

/// What was answered, in the contract's words; `ERROR` is a failure that is none of its codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) code: &'static str,
    pub(super) detail: &'static str,
    pub(super) replayed: bool,
    pub(super) receipt: Option<Line>,
}

/// A receipt as anybody is shown it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Line {
    pub(super) by: u8,
    pub(super) id: u8,
    pub(super) kind: &'static str,
    pub(super) outcome: &'static str,
    pub(super) before: u64,
    pub(super) after: u64,
    pub(super) state: &'static str,
}

/// A receipt, as far as the contract fixes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) request: Request,
    pub(super) outcome: &'static str,
    pub(super) before: u64,
    pub(super) after: u64,
    pub(super) state: State,
}

impl Entry {
    fn line(self) -> Line {
        let Self { request, outcome, before, after, state } = self;
        let Request { by, id, kind, .. } = request;
        Line { by, id, kind: kind.name(), outcome, before, after, state: state.name() }
    }
}

/// A record. Two of the same revision differ in their serial number, as real ones do in times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) state: State,
    pub(super) revision: u64,
    pub(super) owner: u8,
    serial: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marker {
    Missing,
    Garbled,
    Holds(Record),
}

/// Row and marker together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum View {
    Nothing,
    Known(Record),
    Unavailable { detail: &'static str, marker: Option<Record> },
}

/// What is durable.
#[derive(Debug, Clone)]
pub(super) struct Durable {
    record: Option<Record>,
    receipts: BTreeMap<(u8, u8), Entry>,
}

/// What the gate shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gate {
    state: State,
    owner: Option<u8>,
    indeterminate: bool,
}

/// What is true outside when a command comes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outside {
    /// The database exists.
    pub(super) exists: bool,
    /// The engine doesn't answer.
    pub(super) silent: bool,
    /// The store can't be read.
    pub(super) unreadable: bool,
    /// The caller showed the second key.
    pub(super) key: bool,
    /// Something keeps a write drain, or a read drain, from its end.
    pub(super) writes_held: bool,
    pub(super) reads_held: bool,
}

impl Outside {
    /// Whether a drain in this state can't come to its end.
    pub(super) fn holds(&self, state: State) -> bool {
        if state == S::SourceReadDraining {
            self.reads_held
        } else {
            self.writes_held || self.silent
        }
    }
}

/// A rule that the model is made to get wrong, so that the comparison must fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bug {
    OwnerUnchecked,
    ExpectationUnchecked,
    ReplayRunsAgain,
    ResumesSuperseded,
    GoalNeedsExpectation,
    ConflictUnnoticed,
    AdoptionKeepsRevision,
    AdoptionWithoutKey,
    NewMoveStartsAnew,
    DoubtForgotten,
    LandedTakenForLost,
    MarkerIgnored,
    RestartAdvances,
    RestartKeepsDoubt,
    DrainEndsByTime,
    StaleMayWrite,
    StreamsStay,
}

impl Bug {
    pub(super) const ALL: [Self; 17] = [
        Self::OwnerUnchecked,
        Self::ExpectationUnchecked,
        Self::ReplayRunsAgain,
        Self::ResumesSuperseded,
        Self::GoalNeedsExpectation,
        Self::ConflictUnnoticed,
        Self::AdoptionKeepsRevision,
        Self::AdoptionWithoutKey,
        Self::NewMoveStartsAnew,
        Self::DoubtForgotten,
        Self::LandedTakenForLost,
        Self::MarkerIgnored,
        Self::RestartAdvances,
        Self::RestartKeepsDoubt,
        Self::DrainEndsByTime,
        Self::StaleMayWrite,
        Self::StreamsStay,
    ];
}

/// The matrix 1.4.2, letter by letter, for the owner of the record or where there is none.
/// Columns: Acquire, SetRead, ClearRead, Release, Create, Seal, Validate, Publish, Enable, Abort.
#[rustfmt::skip]
const OWN: [(State, &str); 13] = [
    (S::Unfenced,              "D     INV   INV   INV   EX    INV/r INV/r INV/r INV/r INV/r"),
    (S::Absent,                "INV/r INV/r INV/r INV/r A     INV   INV   INV   INV   INV"),
    (S::SourceDraining,        "J     INV   INV   A     EX    INV/r INV/r INV/r INV/r INV/r"),
    (S::SourceWriteFenced,     "AA    D     AA    A     EX    INV/r INV/r INV/r INV/r INV/r"),
    (S::SourceReadDraining,    "INV   J     A     INV   EX    INV/r INV/r INV/r INV/r INV/r"),
    (S::SourceReadFenced,      "INV   AA    A     INV   EX    INV/r INV/r INV/r INV/r INV/r"),
    (S::Released,              "INV/f INV/f INV/f AA    INV/f INV/f INV/f INV/f INV/f INV/f"),
    (S::TargetQuarantined,     "INV/r INV/r INV/r INV/r AA    D     INV   INV   INV   A"),
    (S::TargetImportDraining,  "INV/r INV/r INV/r INV/r EX    J     INV   INV   INV   A"),
    (S::TargetValidating,      "INV/r INV/r INV/r INV/r EX    AA    A     A     INV   A"),
    (S::TargetWriteFenced,     "INV/r INV/r INV/r INV/r EX    INV   INV   AA    A     A"),
    (S::TargetWritable,        "INV/f INV/f INV/f INV/f INV/f INV/f INV/f INV/f AA    INV/f"),
    (S::TargetAborted,         "INV/f INV/f INV/f INV/f INV/f INV/f INV/f INV/f INV/f AA"),
];

/// The same for another operation, where the record's one has finished.
#[rustfmt::skip]
const OTHER: [(State, &str); 3] = [
    (S::Released,              "D     INV   INV   INV   EX    INV/r INV/r INV/r INV/r INV/r"),
    (S::TargetWritable,        "D     INV   INV   INV   EX    INV/r INV/r INV/r INV/r INV/r"),
    (S::TargetAborted,         "INV/r INV/r INV/r INV/r EX    INV   INV   INV   INV   INV"),
];

/// What table 1.3 says of one state, by code; empty is admitted.
pub(super) const CLASSES: [&str; 5] = ["read", "write", "ddl", "lifecycle", "stream"];
const WF: &str = "MIGRATION_WRITE_FENCED";
const RF: &str = "MIGRATION_READ_FENCED";
const TQ: &str = "MIGRATION_TARGET_QUARANTINED";
const SU: &str = "FENCE_STATE_UNAVAILABLE";

#[rustfmt::skip]
const ADMITS: [(State, [&str; 5]); 14] = [
    (S::Unfenced,             ["", "", "", "", ""]),
    (S::Absent,               ["", "", "", "", ""]),
    (S::SourceDraining,       ["", WF, WF, WF, ""]),
    (S::SourceWriteFenced,    ["", WF, WF, WF, ""]),
    (S::SourceReadDraining,   [RF, WF, WF, WF, RF]),
    (S::SourceReadFenced,     [RF, WF, WF, WF, RF]),
    (S::Released,             ["", "", "", "", ""]),
    (S::TargetQuarantined,    [TQ, TQ, TQ, TQ, TQ]),
    (S::TargetImportDraining, [TQ, TQ, TQ, TQ, TQ]),
    (S::TargetValidating,     [TQ, TQ, TQ, TQ, TQ]),
    (S::TargetWriteFenced,    ["", WF, WF, WF, ""]),
    (S::TargetWritable,       ["", "", "", "", ""]),
    (S::TargetAborted,        [TQ, TQ, TQ, TQ, TQ]),
    (S::Unknown,              [SU, SU, SU, SU, SU]),
];

const UNMET: &str = "FENCE_PRECONDITION_FAILED";
const INVALID: &str = "INVALID_FENCE_TRANSITION";
const DOUBT: &str = "FENCE_COMMIT_INDETERMINATE";
const BEHIND: &str = "metastore_behind_marker";

fn refused(code: &'static str, detail: &'static str) -> Heard {
    Heard { code, detail, replayed: false, receipt: None }
}

fn failed() -> Heard {
    refused("ERROR", "")
}

fn answered(entry: Entry, replayed: bool) -> Heard {
    Heard { code: entry.outcome, detail: "", replayed, receipt: Some(entry.line()) }
}

/// The state that a command whose cell is `A` or `D` goes to.
const fn to(kind: Kind, from: State) -> State {
    match kind {
        K::Acquire => S::SourceDraining,
        K::SetRead => S::SourceReadDraining,
        K::ClearRead => S::SourceWriteFenced,
        K::Release => S::Released,
        K::Create => S::TargetQuarantined,
        K::Seal => S::TargetImportDraining,
        K::Publish => S::TargetWriteFenced,
        K::Enable => S::TargetWritable,
        K::Abort => S::TargetAborted,
        K::Validate | K::Adopt => from,
    }
}

/// Everything of one namespace that anybody could see.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scene {
    /// `NOT_FOUND` where there is neither database nor record.
    pub(super) state: &'static str,
    pub(super) revision: u64,
    pub(super) owner: Option<u8>,
    pub(super) detail: &'static str,
    pub(super) marker_agrees: Option<bool>,
    pub(super) pending: Option<(u8, u8)>,
    pub(super) admits: [&'static str; 5],
    /// Kinds, outcomes and revisions by operation and id.
    pub(super) receipts: Vec<Line>,
    pub(super) owners_receipts: Vec<Line>,
}

/// One namespace of one proxy.
pub(super) struct Model {
    durable: Durable,
    marker: Marker,
    gate: Gate,
    generation: u64,
    pending: Option<Request>,
    /// Row and marker put aside.
    saved: Option<(Durable, Marker)>,
    serial: u64,
    pub(super) bug: Option<Bug>,
}

impl Model {
    pub(super) fn new(bug: Option<Bug>) -> Self {
        Self {
            durable: Durable { record: None, receipts: BTreeMap::new() },
            marker: Marker::Missing,
            gate: Gate { state: S::Unfenced, owner: None, indeterminate: false },
            generation: 1,
            pending: None,
            saved: None,
            serial: 0,
            bug,
        }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// The table of 1.11. Bad rows aren't in it: see the suites on spoilt stores.
    fn view(&self) -> View {
        let unavailable = |detail, marker| View::Unavailable { detail, marker };
        match (self.durable.record, self.marker) {
            (None, Marker::Missing) => View::Nothing,
            (None, Marker::Garbled) => unavailable("corrupt_record", None),
            (None, Marker::Holds(_)) if self.has(Bug::MarkerIgnored) => View::Nothing,
            (None, Marker::Holds(marker)) => unavailable(BEHIND, Some(marker)),
            (Some(record), Marker::Holds(marker))
                if marker != record
                    && marker.revision >= record.revision
                    && !self.has(Bug::MarkerIgnored) =>
            {
                unavailable(BEHIND, Some(marker))
            }
            (Some(record), _) => View::Known(record),
        }
    }

    /// Reads both, and writes a marker anew that lags.
    fn load(&mut self) -> View {
        let view = self.view();
        if let View::Known(record) = view {
            self.marker = Marker::Holds(record);
        }
        view
    }

    /// Publishes: the write generation moves with state, owner and the doubt (1.7).
    fn show(&mut self, view: View) {
        let (state, owner) = match view {
            View::Nothing => (S::Unfenced, None),
            View::Known(record) => (record.state, Some(record.owner)),
            View::Unavailable { .. } => (S::Unknown, None),
        };
        self.show_gate(Gate { state, owner, indeterminate: false });
    }

    fn show_gate(&mut self, gate: Gate) {
        if gate != self.gate {
            self.generation += 1;
        }
        self.gate = gate;
    }

    /// A new process over what is durable: the doubt is gone, nothing is advanced.
    pub(super) fn restart(&mut self) {
        if !self.has(Bug::RestartKeepsDoubt) {
            self.pending = None;
        }
        let mut view = self.load();
        if let (true, View::Known(record)) = (self.has(Bug::RestartAdvances), &mut view)
            && let Some(end) = record.state.drained()
        {
            (record.state, record.revision) = (end, record.revision + 1);
            self.durable.record = Some(*record);
            self.marker = Marker::Holds(*record);
        }
        self.show(view);
        self.generation += 1;
    }

    // --- what is done to the files ---

    pub(super) fn save(&mut self) {
        self.saved = Some((self.durable.clone(), self.marker));
    }

    pub(super) fn put_store_back(&mut self) -> bool {
        let Some((durable, _)) = &self.saved else { return false };
        self.durable = durable.clone();
        true
    }

    pub(super) fn put_marker_back(&mut self) -> bool {
        match self.saved {
            Some((_, marker @ (Marker::Holds(_) | Marker::Garbled))) => self.marker = marker,
            Some((_, Marker::Missing)) | None => return false,
        }
        true
    }

    pub(super) fn lose_store(&mut self) {
        self.durable = Durable { record: None, receipts: BTreeMap::new() };
    }

    pub(super) fn lose_marker(&mut self) {
        self.marker = Marker::Missing;
    }

    pub(super) fn garble_marker(&mut self) {
        self.marker = Marker::Garbled;
    }

    // --- what can be seen ---

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn admits(&self, class: usize) -> &'static str {
        if self.gate.indeterminate {
            return SU;
        }
        let row = ADMITS.iter().find(|(state, _)| *state == self.gate.state);
        let said = row.expect("every state has a row").1[class];
        if self.has(Bug::StreamsStay) && CLASSES[class] == "stream" && said == RF {
            return "";
        }
        said
    }

    /// Whether a transaction that began under a generation may write now, and why not (1.7).
    pub(super) fn may_rise(&self, since: u64) -> (&'static str, &'static str) {
        match self.admits(1) {
            "" if since == self.generation || self.has(Bug::StaleMayWrite) => ("", ""),
            "" => (WF, "stale_transaction"),
            closed => (closed, ""),
        }
    }

    /// What the next command would expect, and whom an adoption would take for the owner.
    pub(super) fn expected(&self, outside: &Outside) -> (State, u64, u8) {
        let of = |record: &Record| (record.state, record.revision, record.owner);
        match self.view() {
            View::Nothing if outside.exists || outside.silent => (S::Unfenced, 0, 9),
            View::Nothing => (S::Absent, 0, 9),
            View::Known(record) => of(&record),
            View::Unavailable { marker: Some(record), .. } => of(&record),
            View::Unavailable { marker: None, .. } => (S::Unknown, 0, 9),
        }
    }

    /// The receipt of a request, if it is the unproven drain of now.
    pub(super) fn running(&self, request: Request) -> Option<Entry> {
        let entry = self.durable.receipts.get(&(request.by, request.id)).copied();
        entry.filter(|entry| entry.request == request && self.is_draining(entry))
    }

    /// The owner's unproven drain, if there is one.
    pub(super) fn is_draining(&self, entry: &Entry) -> bool {
        match self.view() {
            View::Known(record) => self.is_still(entry, &record),
            View::Nothing | View::Unavailable { .. } => false,
        }
    }

    fn is_still(&self, entry: &Entry, record: &Record) -> bool {
        record.state == entry.state
            && record.state.drained().is_some()
            && (record.revision == entry.after || self.has(Bug::ResumesSuperseded))
    }

    pub(super) fn scene(&self, outside: &Outside) -> Scene {
        let receipts: Vec<Line> =
            self.durable.receipts.values().map(|entry| entry.line()).collect();
        let mut scene = Scene {
            state: S::Unfenced.name(),
            revision: 0,
            owner: None,
            detail: "",
            marker_agrees: None,
            pending: self.pending.map(|request| (request.by, request.id)),
            admits: std::array::from_fn(|class| self.admits(class)),
            receipts: receipts.clone(),
            owners_receipts: Vec::new(),
        };
        match self.view() {
            View::Nothing if !outside.exists && !outside.silent => {
                scene.state = "NOT_FOUND";
                scene.receipts.clear();
            }
            View::Nothing => {}
            View::Known(record) => {
                scene.state = record.state.name();
                scene.revision = record.revision;
                scene.owner = Some(record.owner);
                scene.marker_agrees = Some(self.marker == Marker::Holds(record));
                let own = receipts.into_iter().filter(|line| line.by == record.owner);
                scene.owners_receipts = own.collect();
            }
            View::Unavailable { detail, .. } => {
                scene.state = S::Unknown.name();
                scene.detail = detail;
            }
        }
        scene
    }

    // --- commands ---

    /// One command, from its coming to its answer.
    pub(super) fn ask(
        &mut self,
        request: Request,
        outside: &Outside,
        fates: &mut VecDeque<Fate>,
    ) -> Heard {
        // 0. "The same command" is the same request: its id with another body is another one.
        let doubted = self.pending.filter(|_| !self.has(Bug::DoubtForgotten));
        if doubted.is_some_and(|pending| pending != request) {
            return refused(DOUBT, "indeterminate_commit");
        }
        if outside.unreadable {
            let same = self.pending.is_some();
            return if same { refused(DOUBT, "indeterminate_commit") } else { failed() };
        }
        let view = self.load();
        self.pending = None;
        // 3. Replay.
        if let Some(entry) = self.durable.receipts.get(&(request.by, request.id)).copied()
            && let Some(heard) = self.replay(request, entry, view, outside, fates)
        {
            return heard;
        }
        let decided = self.decide(request, view, outside, fates);
        decided.unwrap_or_else(|refusal| {
            self.show(view);
            refusal
        })
    }

    fn replay(
        &mut self,
        request: Request,
        entry: Entry,
        view: View,
        outside: &Outside,
        fates: &mut VecDeque<Fate>,
    ) -> Option<Heard> {
        if entry.request != request && !self.has(Bug::ConflictUnnoticed) {
            self.show(view);
            return Some(refused("FENCE_COMMAND_CONFLICT", ""));
        }
        if entry.outcome != "DRAINING" && self.has(Bug::ReplayRunsAgain) {
            return None;
        }
        self.show(view);
        let View::Known(record) = view else { return Some(answered(entry, true)) };
        if entry.outcome == "DRAINING" && self.is_still(&entry, &record) {
            return Some(self.drain(entry, true, outside, fates));
        }
        Some(answered(entry, true))
    }

    /// Steps 4 to 15.
    fn decide(
        &mut self,
        request: Request,
        view: View,
        outside: &Outside,
        fates: &mut VecDeque<Fate>,
    ) -> Result<Heard, Heard> {
        // 4. and 5.
        let adopts = request.kind == K::Adopt;
        let record = match view {
            View::Unavailable { detail, marker } => match marker {
                Some(marker) if adopts && detail == BEHIND => Some(marker),
                Some(_) | None => return Err(refused(SU, detail)),
            },
            View::Nothing => None,
            View::Known(record) => Some(record),
        };
        if adopts {
            return self.adopt(request, record, view, outside, fates);
        }
        let now = record.map_or(
            if outside.exists || outside.silent { S::Unfenced } else { S::Absent },
            |record| record.state,
        );
        let revision = record.map_or(0, |record| record.revision);
        let own =
            record.is_none_or(|record| record.owner == request.by || self.has(Bug::OwnerUnchecked));
        // 6.
        if !own && !now.is_finished() {
            return Err(refused("FENCE_OWNED_BY_ANOTHER_OPERATION", ""));
        }
        let table: &[(State, &str)] = if own { &OWN } else { &OTHER };
        let row = table.iter().find(|(state, _)| *state == now).expect("a row").1;
        let expects = request.state == now && request.revision == revision
            || self.has(Bug::ExpectationUnchecked);
        let stale = || Err(refused("FENCE_REVISION_MISMATCH", ""));
        let entry =
            |outcome, state, after| Entry { request, outcome, before: revision, after, state };
        match row.split_whitespace().nth(request.kind as usize).expect("a cell") {
            "INV" => Err(refused(INVALID, "")),
            "INV/f" => Err(refused(INVALID, "operation_finished")),
            "INV/r" => Err(refused(INVALID, "role_mismatch")),
            "EX" => Err(refused(UNMET, "namespace_exists")),
            "AA" if !expects && self.has(Bug::GoalNeedsExpectation) => stale(),
            "AA" => {
                let entry = entry("ALREADY_APPLIED", now, revision);
                Ok(self.commit(view, None, entry, fates).unwrap_or_else(|| answered(entry, false)))
            }
            _ if !expects => stale(),
            "J" => {
                let entry = entry("DRAINING", now, revision);
                let other = self.commit(view, None, entry, fates);
                Ok(other.unwrap_or_else(|| self.drain(entry, false, outside, fates)))
            }
            cell @ ("A" | "D") => {
                precondition(request, outside)?;
                let old = if own || !self.has(Bug::NewMoveStartsAnew) { revision } else { 0 };
                let state = to(request.kind, now);
                let next = self.record(state, old + 1, request.by);
                let outcome = if cell == "A" { "APPLIED" } else { "DRAINING" };
                let entry = entry(outcome, state, next.revision);
                let other = self.commit(view, Some(next), entry, fates);
                Ok(other.unwrap_or_else(|| match cell {
                    "A" => answered(entry, false),
                    _ => self.drain(entry, false, outside, fates),
                }))
            }
            other => panic!("the matrix says {other:?}"),
        }
    }

    /// 1.10, in its own order.
    fn adopt(
        &mut self,
        request: Request,
        record: Option<Record>,
        view: View,
        outside: &Outside,
        fates: &mut VecDeque<Fate>,
    ) -> Result<Heard, Heard> {
        let Some(record) = record else { return Err(refused(INVALID, "")) };
        if record.state.is_finished() {
            return Err(refused(INVALID, "operation_finished"));
        }
        if request.terms.owner != record.owner {
            return Err(refused("FENCE_OWNED_BY_ANOTHER_OPERATION", ""));
        }
        if request.by == record.owner {
            return Err(refused(INVALID, ""));
        }
        let expects = request.state == record.state && request.revision == record.revision;
        if !expects && !self.has(Bug::ExpectationUnchecked) {
            return Err(refused("FENCE_REVISION_MISMATCH", ""));
        }
        let authorised = (outside.key || self.has(Bug::AdoptionWithoutKey))
            && request.terms.approvers == Approvers::Two
            && request.terms.reason;
        if !authorised {
            return Err(refused(UNMET, "adoption_not_authorised"));
        }
        let moves = u64::from(!self.has(Bug::AdoptionKeepsRevision));
        let next = self.record(record.state, record.revision + moves, request.by);
        let entry = Entry {
            request,
            outcome: "APPLIED",
            before: record.revision,
            after: next.revision,
            state: record.state,
        };
        let other = self.commit(view, Some(next), entry, fates);
        Ok(other.unwrap_or_else(|| answered(entry, false)))
    }

    fn record(&mut self, state: State, revision: u64, owner: u8) -> Record {
        self.serial += 1;
        Record { state, revision, owner, serial: self.serial }
    }

    /// 15., and 1.11 for what may go wrong. `None` when it is durable and published.
    fn commit(
        &mut self,
        before: View,
        next: Option<Record>,
        entry: Entry,
        fates: &mut VecDeque<Fate>,
    ) -> Option<Heard> {
        // INSTALLING goes up before a closing commit, and comes down again if it is known not to
        // have landed: a transaction of in between stays unable to write.
        let installs = next.is_some_and(|next| {
            matches!(next.state, S::SourceDraining | S::TargetImportDraining)
                && entry.outcome == "DRAINING"
        });
        self.generation += u64::from(installs);
        match fates.pop_front().unwrap_or(Fate::Lands) {
            Fate::KnownLost => {
                self.generation += u64::from(installs);
                self.show(before);
                Some(failed())
            }
            Fate::Lands => {
                self.keep(next, entry);
                let view = next.map_or(before, View::Known);
                if let Some(next) = next {
                    self.marker = Marker::Holds(next);
                }
                self.show(view);
                None
            }
            fate @ (Fate::UnknownLanded | Fate::UnknownLost) => {
                if fate == Fate::UnknownLanded && !self.has(Bug::LandedTakenForLost) {
                    self.keep(next, entry);
                }
                self.pending = Some(entry.request);
                self.show_gate(Gate { indeterminate: true, ..self.gate });
                Some(refused(DOUBT, "indeterminate_commit"))
            }
        }
    }

    fn keep(&mut self, next: Option<Record>, entry: Entry) {
        if let Some(next) = next {
            self.durable.record = Some(next);
        }
        self.durable.receipts.insert((entry.request.by, entry.request.id), entry);
    }

    /// A drain that runs to its end or to its deadline.
    pub(super) fn drain(
        &mut self,
        entry: Entry,
        replayed: bool,
        outside: &Outside,
        fates: &mut VecDeque<Fate>,
    ) -> Heard {
        loop {
            let View::Known(record) = self.view() else { return answered(entry, replayed) };
            let by_time = self.has(Bug::DrainEndsByTime);
            if outside.holds(entry.state) && !by_time || !self.is_still(&entry, &record) {
                return answered(entry, replayed);
            }
            let end = record.state.drained().expect("a draining state");
            let next = self.record(end, record.revision + 1, record.owner);
            let done = Entry { outcome: "APPLIED", after: next.revision, state: end, ..entry };
            match self.commit(View::Known(record), Some(next), done, fates) {
                None => return answered(done, replayed),
                // Known not to have landed: looked again, until the deadline.
                Some(heard) if heard.code == "ERROR" => {}
                Some(heard) => return heard,
            }
        }
    }
}

/// 1.4.3. An engine that doesn't say which database it is hasn't said that it is another one: that
/// is a failure, and none of the contract's codes.
fn precondition(request: Request, outside: &Outside) -> Result<(), Heard> {
    if request.kind != K::Acquire {
        return Ok(());
    }
    if outside.silent {
        return Err(failed());
    }
    if !request.terms.right_database {
        return Err(refused(UNMET, "namespace_identity_mismatch"));
    }
    Ok(())
}
