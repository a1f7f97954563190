//! The fence contract once more, written from its text alone: states, the order of decisions
//! (1.4.1), the matrix (1.4.2), arguments (1.4.3), targets (1.9), adoption (1.10), markers and
//! restarts (1.11).
//!
//! It shares no type with the code: what both say is compared by the contract's own names. What the
//! text leaves open, or what `docs/CONTRACT.md` decides otherwise, says so where it stands.

mod tables;
mod targets;
mod words;

use std::collections::{BTreeMap, VecDeque};

pub(super) use tables::CLASSES;
use tables::{
    ADMITS, BEGUN, BEHIND, DOUBT, INVALID, OTHER, OWN, OWNED, RF, STALE, SU, TQ, UNMET, WF,
    answered, failed, refused, to,
};
use targets::Making;
pub(super) use words::{
    Approvers, Bug, Capability, Creation, Entry, Fate, Heard, Kind, Line, Outside, Purpose,
    Request, State, Terms,
};
use words::{Durable, Gate, K, Marker, Record, S, View};

/// What stands for the answer of a command that its process died in.
pub(super) const DIED: &str = "DIED";
/// What stands for the answer of a creation that the engine hasn't answered.
pub(super) const AT_WORK: &str = "AT_WORK";

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
    /// Which of the capabilities given out can still be shown.
    pub(super) shown: Vec<bool>,
    /// What a session with the last of them may begin.
    pub(super) bears: Option<[&'static str; 5]>,
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
    /// Whether there is a database of that name, and whether anything is in it.
    pub(super) exists: bool,
    pub(super) filled: bool,
    /// The creation that the engine hasn't answered.
    making: Option<Making>,
    capabilities: Vec<Capability>,
    /// Whether a session can have shown the last of them.
    borne: bool,
    /// Whether what the question that is being answered rests on still counts.
    question: Option<bool>,
    /// The store can't be read behind the creation that goes on.
    blind: bool,
    /// State, owner and revision as published, to which capabilities are bound.
    bound: (State, Option<u8>, u64),
    pub(super) bug: Option<Bug>,
}

impl Model {
    pub(super) fn new(exists: bool, bug: Option<Bug>) -> Self {
        Self {
            durable: Durable { record: None, receipts: BTreeMap::new() },
            marker: Marker::Missing,
            gate: targets::open(),
            generation: 1,
            pending: None,
            saved: None,
            serial: 0,
            exists,
            filled: false,
            making: None,
            capabilities: Vec::new(),
            borne: false,
            question: None,
            blind: false,
            bound: (S::Unfenced, None, 0),
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
            (None, Marker::Holds(marker)) if targets::is_begun(&marker) => {
                if self.has(Bug::CreationForgotten) {
                    return View::Nothing;
                }
                unavailable(BEGUN, Some(marker))
            }
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

    /// Publishes: the generation moves with state, owner and the doubt (1.7), capabilities end
    /// with state, owner and revision (1.9).
    fn show(&mut self, view: View) {
        let (state, owner, revision, detail) = match view {
            View::Nothing => (S::Unfenced, None, 0, ""),
            View::Known(record) => (record.state, Some(record.owner), record.revision, ""),
            View::Unavailable { detail, .. } => (S::Unknown, None, 0, detail),
        };
        if self.bound != (state, owner, revision) {
            self.end_capabilities();
        }
        self.bound = (state, owner, revision);
        self.show_gate(Gate { state, owner, detail, indeterminate: false, creating: false });
    }

    fn show_gate(&mut self, gate: Gate) {
        if (Gate { detail: "", ..gate }) != (Gate { detail: "", ..self.gate }) {
            self.generation += 1;
        }
        self.gate = gate;
    }

    /// A new process over what is durable: the doubt is gone, nothing is advanced.
    pub(super) fn restart(&mut self) {
        if !self.has(Bug::RestartKeepsDoubt) {
            self.pending = None;
        }
        (self.making, self.question, self.borne) = (None, None, false);
        if !self.has(Bug::CapabilityOutlivesProcess) {
            self.capabilities.iter_mut().for_each(|one| one.live = false);
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

    /// Whether no fence stands, or may.
    pub(super) fn is_idle(&self) -> bool {
        match self.view() {
            _ if self.pending.is_some() => false,
            View::Nothing => true,
            View::Known(record) => record.state.is_finished(),
            View::Unavailable { detail, .. } => detail == BEGUN,
        }
    }

    /// Whether the latest validation was ok.
    pub(super) fn is_valid(&self) -> bool {
        let record = self.durable.record;
        record.and_then(|record| record.validation).is_some_and(|(_, ok)| ok)
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
        if self.gate.creating {
            return TQ;
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
            View::Nothing if self.exists || outside.silent => (S::Unfenced, 0, 9),
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

    /// Whether this drain can't come to its end (1.7, 1.8): also where the evidence would be of
    /// another database than the record is of.
    pub(super) fn holds(&self, entry: &Entry, outside: &Outside) -> bool {
        if entry.state == S::SourceReadDraining {
            return outside.reads_held;
        }
        let another = match self.view() {
            View::Known(record) => record.database != outside.database,
            View::Nothing | View::Unavailable { .. } => false,
        };
        let imports = entry.state == S::TargetImportDraining;
        let waits = outside.writes_held && !(imports && self.has(Bug::SealWaitsForNobody));
        waits || outside.silent || another && !(imports && self.has(Bug::SealOfAnother))
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
            shown: self.capabilities.iter().map(|one| one.live).collect(),
            bears: self.bears(),
        };
        if self.gate.creating {
            // "A namespace being created reports TARGET_QUARANTINED with the durable revision it
            // has so far."
            scene.state = S::TargetQuarantined.name();
            return scene;
        }
        match self.view() {
            View::Nothing if !self.exists && !outside.silent => {
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

    /// The matrix of 1.4.2.
    fn cell(&self, own: bool, now: State, kind: Kind) -> &'static str {
        if self.has(Bug::EnableUndone) && now == S::TargetWritable && kind == K::Abort {
            return "A";
        }
        let table: &[(State, &'static str)] = if own { &OWN } else { &OTHER };
        let row = table.iter().find(|(state, _)| *state == now).expect("a row").1;
        row.split_whitespace().nth(kind as usize).expect("a cell")
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
                Some(marker) if self.began(request, detail, &marker) => {
                    return self.create(request, true, outside, fates);
                }
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
            if self.exists || outside.silent { S::Unfenced } else { S::Absent },
            |record| record.state,
        );
        let revision = record.map_or(0, |record| record.revision);
        let own =
            record.is_none_or(|record| record.owner == request.by || self.has(Bug::OwnerUnchecked));
        // 6.
        if !own && !now.is_finished() {
            return Err(refused(OWNED, ""));
        }
        let expects = request.state == now && request.revision == revision
            || self.has(Bug::ExpectationUnchecked);
        let stale = || Err(refused(STALE, ""));
        let entry =
            |outcome, state, after| Entry { request, outcome, before: revision, after, state };
        match self.cell(own, now, request.kind) {
            "INV" => Err(refused(INVALID, "")),
            "INV/f" => Err(refused(INVALID, "operation_finished")),
            "INV/r" => Err(refused(INVALID, "role_mismatch")),
            // `docs/CONTRACT.md`: an engine that is silent hasn't said that the name is taken.
            "EX" if record.is_none() && outside.silent => Err(failed()),
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
                if request.kind == K::Create {
                    return self.create(request, false, outside, fates);
                }
                self.precondition(request, record, outside)?;
                let old = if own || !self.has(Bug::NewMoveStartsAnew) { revision } else { 0 };
                let state = to(request.kind, now);
                let own = record.filter(|record| record.owner == request.by);
                let next = self.next(request, own, (state, old + 1), outside);
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
            return Err(refused(OWNED, ""));
        }
        if request.by == record.owner {
            return Err(refused(INVALID, ""));
        }
        let expects = request.state == record.state && request.revision == record.revision;
        if !expects && !self.has(Bug::ExpectationUnchecked) {
            return Err(refused(STALE, ""));
        }
        let authorised = (outside.key || self.has(Bug::AdoptionWithoutKey))
            && request.terms.approvers == Approvers::Two
            && request.terms.reason;
        if !authorised {
            return Err(refused(UNMET, "adoption_not_authorised"));
        }
        let moves = u64::from(!self.has(Bug::AdoptionKeepsRevision));
        let at = (record.state, record.revision + moves);
        let next = self.next(request, Some(record), at, outside);
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

    /// The record that a command makes of the operation's own, or begins anew.
    fn next(
        &mut self,
        request: Request,
        own: Option<Record>,
        (state, revision): (State, u64),
        outside: &Outside,
    ) -> Record {
        self.serial += 1;
        let kept = own.filter(|_| request.kind != K::Acquire);
        let mut next = Record {
            state,
            revision,
            owner: request.by,
            command: request.id,
            database: kept.map_or(outside.database, |record| record.database),
            validation: kept.and_then(|record| record.validation),
            serial: self.serial,
        };
        if request.kind == K::Validate {
            next.validation = Some((request.by, request.terms.good));
        }
        next
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
                self.settle(before);
                Some(failed())
            }
            Fate::Lands => {
                self.keep(next, entry);
                let view = next.map_or(before, View::Known);
                if let Some(next) = next {
                    self.marker = Marker::Holds(next);
                }
                self.show(view);
                if entry.state == S::TargetAborted && self.has(Bug::AbortFreesName) {
                    (self.durable.record, self.marker) = (None, Marker::Missing);
                    self.show(View::Nothing);
                }
                None
            }
            fate @ (Fate::DiesBefore | Fate::DiesBehind) => {
                if fate == Fate::DiesBehind {
                    self.keep(next, entry);
                }
                Some(refused(DIED, ""))
            }
            fate @ (Fate::UnknownLanded | Fate::UnknownLost) => {
                if fate == Fate::UnknownLanded && !self.has(Bug::LandedTakenForLost) {
                    self.keep(next, entry);
                }
                self.pending = Some(entry.request);
                self.show_gate(Gate { indeterminate: true, creating: false, ..self.gate });
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
            if self.holds(&entry, outside) && !by_time || !self.is_still(&entry, &record) {
                return answered(entry, replayed);
            }
            let end = record.state.drained().expect("a draining state");
            self.serial += 1;
            let serial = self.serial;
            let (revision, command) = (record.revision + 1, entry.request.id);
            let next = Record { state: end, revision, command, serial, ..record };
            let done = Entry { outcome: "APPLIED", after: next.revision, state: end, ..entry };
            match self.commit(View::Known(record), Some(next), done, fates) {
                None => return answered(done, replayed),
                // Known not to have landed: looked again, until the deadline.
                Some(heard) if heard.code == "ERROR" && !entry.request.is_at_once() => {}
                Some(heard) if heard.code == "ERROR" => return answered(entry, replayed),
                Some(heard) => return heard,
            }
        }
    }
}
