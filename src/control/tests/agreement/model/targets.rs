//! Targets (1.9): creation behind its overlay and its marker, capabilities, questions.

use std::collections::VecDeque;

use super::tables::{CAPABLE, CLASSES, CR, OWNED, STALE, SU, TQ, UNMET, failed, refused};
use super::words::{
    Bug, Capability, Creation, Entry, Fate, Gate, Heard, K, Marker, Outside, Purpose, Record,
    Request, S, State, View,
};
use super::{AT_WORK, Model};

/// A creation that the engine has been asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Making {
    request: Request,
    /// Whether an earlier attempt left its marker.
    begun: bool,
    database: u8,
}

/// The gate of a name that has no record.
pub(super) fn open() -> Gate {
    Gate { state: S::Unfenced, owner: None, detail: "", indeterminate: false, creating: false }
}

/// What a creation leaves before its commit (1.11's table).
pub(super) fn is_begun(marker: &Record) -> bool {
    marker.state == S::TargetQuarantined && marker.revision == 1
}

impl Model {
    /// 1.4.1, 4.: the very creation whose marker was left behind.
    pub(super) fn began(&self, request: Request, detail: &str, marker: &Record) -> bool {
        let same = marker.owner == request.by && marker.command == request.id;
        request.kind == K::Create
            && detail == super::BEGUN
            && (same || self.has(Bug::CreationByAnybody))
    }

    /// 1.4.3. An engine that doesn't say which database it is, or where it stands, hasn't said that
    /// it is another one: that is a failure, and none of the contract's codes.
    pub(super) fn precondition(
        &self,
        request: Request,
        record: Option<Record>,
        outside: &Outside,
    ) -> Result<(), Heard> {
        let terms = request.terms;
        match request.kind {
            K::Acquire if outside.silent => Err(failed()),
            K::Acquire if !self.exists || terms.database != outside.database => {
                Err(refused(UNMET, "namespace_identity_mismatch"))
            }
            K::Validate if terms.long => Err(refused(UNMET, "invalid_argument")),
            // "The server adds snapshot": there is none without its engine.
            K::Validate if outside.silent && !self.has(Bug::SnapshotUnneeded) => Err(failed()),
            // Nor one of another database than the target is.
            K::Validate if record.is_some_and(|record| record.database != outside.database) => {
                Err(refused(UNMET, "namespace_identity_mismatch"))
            }
            K::Publish => {
                let of = record.and_then(|record| record.validation);
                let valid = of.is_some_and(|(by, ok)| {
                    (by == request.by || self.has(Bug::AnybodysValidationCounts))
                        && (ok || self.has(Bug::FailedValidationCounts))
                });
                if valid || self.has(Bug::PublishedUnvalidated) {
                    return Ok(());
                }
                Err(refused(UNMET, "validation_receipt_required"))
            }
            K::Acquire
            | K::SetRead
            | K::ClearRead
            | K::Release
            | K::Create
            | K::Seal
            | K::Validate
            | K::Enable
            | K::Abort
            | K::Adopt => Ok(()),
        }
    }

    // --- creation ---

    /// Overlay, marker, database, commit. What an earlier attempt closed has had no sessions, and
    /// its database must still be empty (`docs/CONTRACT.md`, Targets).
    pub(super) fn create(
        &mut self,
        request: Request,
        begun: bool,
        outside: &Outside,
        fates: &mut VecDeque<Fate>,
    ) -> Result<Heard, Heard> {
        if request.terms.template {
            return Err(refused(UNMET, "restore_not_allowed"));
        }
        if !begun && outside.sessions && !self.has(Bug::CreationAmongSessions) {
            return Err(refused(UNMET, "namespace_exists"));
        }
        if !self.has(Bug::CreationOpensMeanwhile) {
            self.show_gate(Gate { creating: true, ..open() });
        }
        let making = Making { request, begun, database: outside.database };
        if outside.silent {
            return Ok(self.uncreated(failed()));
        }
        if self.exists {
            if self.filled {
                return Ok(self.uncreated(refused(UNMET, "namespace_exists")));
            }
            return Ok(self.created(making, outside, fates));
        }
        // "Marker (revision 1)", and only then the database.
        if !begun {
            self.marker = Marker::Holds(self.quarantined(making));
        }
        if outside.creation.makes() {
            (self.exists, self.filled) = (true, false);
        }
        if outside.parks {
            self.making = Some(making);
            return Ok(refused(AT_WORK, ""));
        }
        Ok(self.made(making, outside, fates))
    }

    /// The engine answers the creation that it hasn't.
    pub(crate) fn go_on(&mut self, outside: &Outside, fates: &mut VecDeque<Fate>) -> Heard {
        let making = self.making.take().expect("a creation");
        self.made(making, outside, fates)
    }

    fn made(&mut self, making: Making, outside: &Outside, fates: &mut VecDeque<Fate>) -> Heard {
        self.blind = outside.unreadable;
        let heard = match outside.creation {
            Creation::Made if !outside.silent => self.created(making, outside, fates),
            Creation::Made | Creation::Speechless | Creation::Unknown { .. } => {
                self.uncreated(failed())
            }
            // Only a first attempt knows that nothing of it can still come to be.
            Creation::Exists if making.begun => self.uncreated(failed()),
            Creation::Exists => self.unmarked(making, refused(UNMET, "namespace_exists")),
            Creation::Refused => self.unmarked(making, refused(UNMET, "invalid_argument")),
            Creation::NotAsked => self.unmarked(making, failed()),
        };
        self.blind = false;
        heard
    }

    fn created(&mut self, making: Making, outside: &Outside, fates: &mut VecDeque<Fate>) -> Heard {
        let next = Record { database: outside.database, ..self.quarantined(making) };
        self.marker = Marker::Holds(next);
        let entry = Entry {
            request: making.request,
            outcome: "APPLIED",
            before: 0,
            after: 1,
            state: S::TargetQuarantined,
        };
        let before = self.view();
        let other = self.commit(before, Some(next), entry, fates);
        other.unwrap_or_else(|| super::answered(entry, false))
    }

    /// Nothing was made: the name is as it was, unless an earlier attempt closed it.
    fn unmarked(&mut self, making: Making, heard: Heard) -> Heard {
        if !making.begun && !self.has(Bug::RefusalKeepsName) {
            self.marker = Marker::Missing;
        }
        self.uncreated(heard)
    }

    fn uncreated(&mut self, heard: Heard) -> Heard {
        let view = self.view();
        self.settle(view);
        heard
    }

    /// What holds when a commit didn't come to be: what store and marker say. While the store can't
    /// be read, a creation that has left its marker keeps the name closed.
    pub(super) fn settle(&mut self, view: View) {
        let closed = self.gate.creating && self.blind && view != View::Nothing;
        if !closed {
            self.show(view);
        }
    }

    fn quarantined(&mut self, making: Making) -> Record {
        self.serial += 1;
        Record {
            state: S::TargetQuarantined,
            revision: 1,
            owner: making.request.by,
            command: making.request.id,
            database: making.database,
            validation: None,
            serial: self.serial,
        }
    }

    // --- capabilities ---

    pub(super) fn end_capabilities(&mut self) {
        if !self.has(Bug::CapabilityOutlivesRevision) {
            self.capabilities.iter_mut().for_each(|one| one.live = false);
        }
        self.question = self.question.map(|_| self.has(Bug::AnswerOfThePast));
    }

    /// The table's word on work of a purpose, by what is published.
    fn capable(&self, purpose: Purpose) -> &'static str {
        if self.gate.indeterminate {
            return SU;
        }
        if self.gate.creating {
            return TQ;
        }
        let row = CAPABLE.iter().find(|(state, _)| *state == self.gate.state);
        row.expect("every state has a row").1[purpose as usize]
    }

    /// "Refusals: OPERATION_CAPABILITY_REQUIRED (other state), FENCE_OWNED_BY_ANOTHER_OPERATION,
    /// FENCE_REVISION_MISMATCH."
    fn may_have(
        &self,
        purpose: Purpose,
        by: u8,
        revision: u64,
    ) -> Result<(), (&'static str, &'static str)> {
        match self.capable(purpose) {
            "" => {}
            SU if self.gate.indeterminate => return Err((SU, "indeterminate_commit")),
            SU => return Err((SU, self.gate.detail)),
            _ => return Err((CR, "")),
        }
        let (_, owner, at) = self.bound;
        if owner != Some(by) && !self.has(Bug::CapabilityForAnyone) {
            return Err((OWNED, ""));
        }
        if at != revision && !self.has(Bug::CapabilityAtAnyRevision) {
            return Err((STALE, ""));
        }
        Ok(())
    }

    /// Gives one out, or says why not.
    pub(crate) fn issue(
        &mut self,
        purpose: Purpose,
        by: u8,
        revision: u64,
    ) -> (&'static str, &'static str) {
        if let Err(refusal) = self.may_have(purpose, by, revision) {
            return refusal;
        }
        self.capabilities.push(Capability { purpose, live: true });
        self.borne = true;
        ("", "")
    }

    /// The last one that was given out, by this process: sessions end with theirs.
    pub(crate) fn last(&self) -> Option<Capability> {
        self.capabilities.last().copied().filter(|_| self.borne)
    }

    /// How many were given out, and one of them.
    pub(crate) fn given(&self) -> usize {
        self.capabilities.len()
    }

    pub(crate) fn capability(&self, place: usize) -> Capability {
        self.capabilities[place]
    }

    /// Whether a session that shows this one may do this (`docs/CONTRACT.md`, Targets:
    /// everything but lifecycle and streams, which are judged as anybody's; a validation reads).
    pub(crate) fn bearer_may(&self, one: Capability, class: usize) -> &'static str {
        let name = CLASSES[class];
        if matches!(name, "lifecycle" | "stream") {
            return self.admits(class);
        }
        let sealed = matches!(self.gate.state, S::TargetImportDraining | S::TargetValidating);
        if sealed && one.purpose == Purpose::Import && self.has(Bug::ImportBehindSeal) {
            return "";
        }
        if self.has(Bug::CapabilityReachesEverything) && self.gate.state == S::TargetWritable {
            return "";
        }
        match self.capable(one.purpose) {
            "" => {}
            denial => return denial,
        }
        let writes = matches!(name, "write" | "ddl") && one.purpose == Purpose::Validation;
        if !one.live || writes && !self.has(Bug::ValidationMayWrite) {
            return CR;
        }
        ""
    }

    pub(super) fn bears(&self) -> Option<[&'static str; 5]> {
        let one = self.last()?;
        Some(std::array::from_fn(|class| self.bearer_may(one, class)))
    }

    // --- questions ---

    /// A question of a validation; `parks` is one that the engine hasn't answered.
    pub(crate) fn ask_question(
        &mut self,
        by: u8,
        (state, revision): (Option<State>, u64),
        silent: bool,
        parks: bool,
    ) -> (&'static str, &'static str) {
        if let Err(refusal) = self.may_have(Purpose::Validation, by, revision) {
            return refusal;
        }
        if state.is_some_and(|state| state != self.gate.state) {
            return (STALE, "");
        }
        if silent {
            return ("ERROR", "");
        }
        if parks {
            self.question = Some(true);
            return (AT_WORK, "");
        }
        ("", "")
    }

    /// "Each call re-checks liveness; every revision move invalidates it."
    pub(crate) fn answer_question(&mut self) -> (&'static str, &'static str) {
        match self.question.take() {
            Some(false) => (STALE, ""),
            Some(true) | None => ("", ""),
        }
    }
}
