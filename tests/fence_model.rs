//! The state machine against a second one, written from the contract's text alone.
//!
//! Random sequences of the eleven commands, with replays, reused ids, stale expectations, failed
//! preconditions, drains that end and crashes of the caller in between, are given to `decide` and
//! to the model below; every answer, state, revision and owner must be the same. Bugs planted in
//! the model show that the sequences would notice. `FENCEWIRE_MODEL_CASES` draws more.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashMap;

use fencewire::base::ids::{CommandId, Generation, Namespace, OperationId, Revision};
use fencewire::fence::command::CommandKey;
use fencewire::fence::proof::{BoundaryClaim, CensusClaim, DrainProof, DrainedClaim};
use fencewire::fence::record::{
    Boundary, BoundaryKind, Census, EngineLock, IncarnationId, LockMode, Releases,
    ValidationResult, WrittenBy,
};
use fencewire::fence::{
    Arguments, Command, CommandKind, ControlView, Decision, DrainEnd, DrainPolicy, Facts,
    FenceState, Identity, OnDeadline, Outcome, Receipt, complete_drain, decide,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use CommandKind as K;
use FenceState as S;

/// What the caller believes of state and revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Belief {
    Right,
    OldRevision,
    OtherState,
}

/// One thing that happens.
#[derive(Debug, Clone)]
enum Step {
    /// A command: kind, operation, id, belief, and a number that picks its arguments and facts.
    Ask { kind: usize, by: u8, id: u8, belief: Belief, twist: u8 },
    /// The drain that runs under the receipt of an earlier request ends, if there is one.
    Drained { back: usize },
    /// An earlier request once more, to the letter.
    Again { back: usize },
}

/// What was answered, in the contract's words.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Said {
    Applied,
    Already,
    Draining,
    Joined,
    Replayed,
    Resumed,
    Historical,
    Refused(&'static str, &'static str),
}

/// A rule that the model is made to get wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    OwnerUnchecked,
    ExpectationUnchecked,
    ReplayRunsAgain,
    ResumesAnyRevision,
    AlreadyAppliedNeedsExpectation,
    AdoptionKeepsRevision,
    NewOperationStartsAnew,
    ConflictUnnoticed,
    ValidationOfAnybody,
}

const BUGS: [Bug; 9] = [
    Bug::OwnerUnchecked,
    Bug::ExpectationUnchecked,
    Bug::ReplayRunsAgain,
    Bug::ResumesAnyRevision,
    Bug::AlreadyAppliedNeedsExpectation,
    Bug::AdoptionKeepsRevision,
    Bug::NewOperationStartsAnew,
    Bug::ConflictUnnoticed,
    Bug::ValidationOfAnybody,
];

/// What a twist makes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Twist {
    Plain,
    SharedSchema,
    WrongIdentity,
    EngineSilent,
    Template,
    NameInUse,
    BadValidation,
    LongSummary,
    NoKey,
    OneApprover,
    NoReason,
    NotConfigured,
    OwnPolicy,
}

fn twist(number: u8) -> Twist {
    const ODD: [Twist; 12] = [
        Twist::SharedSchema,
        Twist::WrongIdentity,
        Twist::EngineSilent,
        Twist::Template,
        Twist::NameInUse,
        Twist::BadValidation,
        Twist::LongSummary,
        Twist::NoKey,
        Twist::OneApprover,
        Twist::NoReason,
        Twist::NotConfigured,
        Twist::OwnPolicy,
    ];
    ODD.get(usize::from(number)).copied().unwrap_or(Twist::Plain)
}

// --- the model, from the text ----------------------------------------------------------------

#[derive(Debug, Clone)]
struct Kept {
    state: S,
    revision: u64,
    owner: u8,
    /// Who recorded the latest validation, and whether it was ok.
    validation: Option<(u8, bool)>,
}

/// Everything of a request but its id.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Request {
    kind: K,
    state: S,
    revision: u64,
    /// Arguments that differ: only these twists are in the request, others are outside it.
    twist: Option<Twist>,
    /// Whom an adoption takes for the owner.
    owner: Option<u8>,
}

#[derive(Debug, Clone)]
struct Answered {
    request: Request,
    draining: bool,
    revision: u64,
}

struct Model {
    exists: bool,
    kept: Option<Kept>,
    answered: HashMap<(u8, u8), Answered>,
    bug: Option<Bug>,
}

const INVALID: &str = "INVALID_FENCE_TRANSITION";
const UNMET: &str = "FENCE_PRECONDITION_FAILED";

fn finished(state: S) -> bool {
    matches!(state, S::Released | S::TargetWritable | S::TargetAborted)
}

/// From which states (first) to which (second), by the table of commands; a draining one's end.
fn table(kind: K) -> (&'static [S], S, Option<S>) {
    match kind {
        K::AcquireSourceWriteFence => (
            &[S::Unfenced, S::Released, S::TargetWritable],
            S::SourceDraining,
            Some(S::SourceWriteFenced),
        ),
        K::SetSourceReadFence => {
            (&[S::SourceWriteFenced], S::SourceReadDraining, Some(S::SourceReadFenced))
        }
        K::ClearSourceReadFence => {
            (&[S::SourceReadDraining, S::SourceReadFenced], S::SourceWriteFenced, None)
        }
        K::ReleaseSourceWriteFence => {
            (&[S::SourceDraining, S::SourceWriteFenced], S::Released, None)
        }
        K::CreateTargetQuarantined => (&[S::Absent], S::TargetQuarantined, None),
        K::SealTargetImport => {
            (&[S::TargetQuarantined], S::TargetImportDraining, Some(S::TargetValidating))
        }
        K::RecordTargetValidation => (&[S::TargetValidating], S::TargetValidating, None),
        K::PublishTargetReadableWriteFenced => (&[S::TargetValidating], S::TargetWriteFenced, None),
        K::EnableTargetWrites => (&[S::TargetWriteFenced], S::TargetWritable, None),
        K::AbortQuarantinedTarget => (
            &[
                S::TargetQuarantined,
                S::TargetImportDraining,
                S::TargetValidating,
                S::TargetWriteFenced,
            ],
            S::TargetAborted,
            None,
        ),
        K::AdoptFence => (&[], S::UnknownUnavailable, None),
    }
}

fn source_command(kind: K) -> bool {
    kind.number() <= 4
}

fn counts_as_source(state: S) -> bool {
    state.name().starts_with("SOURCE_")
        || matches!(state, S::Released | S::TargetWritable | S::Unfenced)
}

impl Model {
    fn state(&self) -> S {
        match &self.kept {
            Some(kept) => kept.state,
            None if self.exists => S::Unfenced,
            None => S::Absent,
        }
    }

    fn revision(&self) -> u64 {
        self.kept.as_ref().map_or(0, |kept| kept.revision)
    }

    fn is(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn ask(&mut self, by: u8, id: u8, request: &Request, twist: Twist) -> Said {
        if let Some(before) =
            self.answered.get(&(by, id)).filter(|_| !self.is(Bug::ReplayRunsAgain))
        {
            if before.request != *request && !self.is(Bug::ConflictUnnoticed) {
                return Said::Refused("FENCE_COMMAND_CONFLICT", "");
            }
            if !before.draining {
                return Said::Replayed;
            }
            let (_, during, _) = table(before.request.kind);
            let same = self.revision() == before.revision || self.is(Bug::ResumesAnyRevision);
            let on = self.state() == during && same;
            return if on { Said::Resumed } else { Said::Historical };
        }
        let said = self.fresh(by, request, twist);
        if matches!(said, Said::Applied | Said::Already | Said::Draining | Said::Joined) {
            let draining = matches!(said, Said::Draining | Said::Joined);
            let (request, revision) = (request.clone(), self.revision());
            self.answered.insert((by, id), Answered { request, draining, revision });
        }
        said
    }

    fn fresh(&mut self, by: u8, request: &Request, twist: Twist) -> Said {
        let (state, revision) = (self.state(), self.revision());
        let expected = (request.state == state && request.revision == revision)
            || self.is(Bug::ExpectationUnchecked);
        if request.kind == K::AdoptFence {
            return self.adopt(by, request, twist, expected);
        }
        let (from, to, end) = table(request.kind);
        let repeats = request.kind == K::RecordTargetValidation;
        let goal = (!repeats).then_some(end.unwrap_or(to));
        if let Some(kept) = &self.kept {
            let foreign = kept.owner != by && !finished(kept.state);
            if foreign && !self.is(Bug::OwnerUnchecked) {
                return Said::Refused("FENCE_OWNED_BY_ANOTHER_OPERATION", "");
            }
            if kept.owner == by {
                let strict = self.is(Bug::AlreadyAppliedNeedsExpectation) && !expected;
                if goal == Some(state) && !strict {
                    return Said::Already;
                }
                if end.is_some() && state == to {
                    return if expected { Said::Joined } else { mismatch() };
                }
                if finished(state) {
                    return Said::Refused(INVALID, "operation_finished");
                }
            }
        }
        if request.kind == K::CreateTargetQuarantined && state != S::Absent {
            return Said::Refused(UNMET, "namespace_exists");
        }
        if source_command(request.kind) != counts_as_source(state) {
            return Said::Refused(INVALID, "role_mismatch");
        }
        if !from.contains(&state) {
            return Said::Refused(INVALID, "");
        }
        if !expected {
            return mismatch();
        }
        if let Some(detail) = self.unmet(by, request.kind, twist) {
            return Said::Refused(UNMET, detail);
        }
        self.apply(by, request.kind, to, twist);
        if end.is_some() { Said::Draining } else { Said::Applied }
    }

    fn unmet(&self, by: u8, kind: K, twist: Twist) -> Option<&'static str> {
        match (kind, twist) {
            (K::AcquireSourceWriteFence | K::CreateTargetQuarantined, Twist::SharedSchema) => {
                Some("shared_schema_unsupported")
            }
            (K::AcquireSourceWriteFence, Twist::WrongIdentity | Twist::EngineSilent) => {
                Some("namespace_identity_mismatch")
            }
            (K::CreateTargetQuarantined, Twist::Template) => Some("restore_not_allowed"),
            (K::CreateTargetQuarantined, Twist::NameInUse) => Some("namespace_exists"),
            (K::RecordTargetValidation, Twist::LongSummary) => Some("invalid_argument"),
            (K::PublishTargetReadableWriteFenced, _) => {
                let found = self.kept.as_ref().and_then(|kept| kept.validation);
                let any = self.is(Bug::ValidationOfAnybody);
                let good = found.is_some_and(|(who, ok)| ok && (who == by || any));
                (!good).then_some("validation_receipt_required")
            }
            _ => None,
        }
    }

    fn apply(&mut self, by: u8, kind: K, to: S, twist: Twist) {
        let old = self.kept.take();
        let again = self.is(Bug::NewOperationStartsAnew);
        let same = old.as_ref().is_some_and(|kept| kept.owner == by);
        let revision = old.as_ref().filter(|_| same || !again).map_or(0, |kept| kept.revision) + 1;
        let mut validation = old.filter(|_| same).and_then(|kept| kept.validation);
        if kind == K::RecordTargetValidation {
            validation = Some((by, twist != Twist::BadValidation));
        }
        self.kept = Some(Kept { state: to, revision, owner: by, validation });
    }

    fn adopt(&mut self, by: u8, request: &Request, twist: Twist, expected: bool) -> Said {
        let exact = self.is(Bug::AdoptionKeepsRevision);
        let Some(kept) = &mut self.kept else { return Said::Refused(INVALID, "") };
        if finished(kept.state) {
            return Said::Refused(INVALID, "operation_finished");
        }
        if request.owner != Some(kept.owner) {
            return Said::Refused("FENCE_OWNED_BY_ANOTHER_OPERATION", "");
        }
        if by == kept.owner {
            return Said::Refused(INVALID, "");
        }
        if !expected {
            return mismatch();
        }
        if matches!(twist, Twist::NoKey | Twist::OneApprover | Twist::NoReason) {
            return Said::Refused(UNMET, "adoption_not_authorised");
        }
        if twist == Twist::NotConfigured {
            return Said::Refused(UNMET, "namespace_config_missing");
        }
        kept.owner = by;
        kept.revision += u64::from(!exact);
        Said::Applied
    }

    /// The drain under a receipt ends; false when there is none such.
    fn drained(&mut self, by: u8, id: u8) -> bool {
        let (state, revision) = (self.state(), self.revision());
        let Some(answered) = self.answered.get_mut(&(by, id)) else { return false };
        let (_, during, end) = table(answered.request.kind);
        let on = answered.draining && answered.revision == revision && state == during;
        let (true, Some(end), Some(kept)) = (on, end, &mut self.kept) else { return false };
        kept.state = end;
        kept.revision += 1;
        answered.draining = false;
        answered.revision = kept.revision;
        true
    }
}

fn mismatch() -> Said {
    Said::Refused("FENCE_REVISION_MISMATCH", "")
}

// --- the real one ----------------------------------------------------------------------------

fn namespace() -> Namespace {
    Namespace::parse("old/app").unwrap()
}

fn operation(number: u8) -> OperationId {
    OperationId::from_uuid(uuid::Uuid::from_u128(0x1000 + u128::from(number)))
}

fn command_id(number: u8) -> CommandId {
    CommandId::from_uuid(uuid::Uuid::from_u128(0x2000 + u128::from(number)))
}

fn identity(database: &str) -> Identity {
    Identity { engine_id: "7".to_owned(), timeline: Some(1), database_id: database.to_owned() }
}

fn policy(deadline_ms: u64) -> DrainPolicy {
    DrainPolicy { deadline_ms, on_deadline: OnDeadline::Fail, in_flight: None, hold_ms: None }
}

fn written_by() -> WrittenBy {
    WrittenBy { build: "test".to_owned(), instance: "model".to_owned() }
}

fn boundary() -> Boundary {
    Boundary {
        kind: BoundaryKind::Lsn,
        value: "0/1000".to_owned(),
        engine_id: "7".to_owned(),
        timeline: Some(1),
        marker: true,
    }
}

fn facts(twist: Twist) -> Facts {
    Facts {
        written_by: written_by(),
        indeterminate: None,
        live_identity: (twist != Twist::EngineSilent).then(|| identity("5")),
        shared_schema: twist == Twist::SharedSchema,
        name_in_use: twist == Twist::NameInUse,
        fresh_incarnation: IncarnationId(uuid::Uuid::from_u128(3)),
        snapshot: Some(boundary()),
        default_write_drain: policy(1000),
        default_read_drain: policy(1000),
        adoption_key_matched: twist != Twist::NoKey,
        namespace_configured: twist != Twist::NotConfigured,
        lock_gaps: Vec::new(),
    }
}

fn arguments(kind: K, twist: Twist, owner: OperationId) -> Arguments {
    let drain_policy = (twist == Twist::OwnPolicy).then(|| policy(1000));
    match kind {
        K::AcquireSourceWriteFence => {
            let database = if twist == Twist::WrongIdentity { "6" } else { "5" };
            Arguments::AcquireSourceWriteFence { identity: identity(database), drain_policy }
        }
        K::SetSourceReadFence => Arguments::SetSourceReadFence { drain_policy },
        K::ClearSourceReadFence => Arguments::ClearSourceReadFence,
        K::ReleaseSourceWriteFence => Arguments::ReleaseSourceWriteFence,
        K::CreateTargetQuarantined => Arguments::CreateTargetQuarantined {
            owner: None,
            encoding: None,
            locale: None,
            template: (twist == Twist::Template).then(|| "full".to_owned()),
        },
        K::SealTargetImport => Arguments::SealTargetImport { drain_policy },
        K::RecordTargetValidation => Arguments::RecordTargetValidation {
            result: if twist == Twist::BadValidation {
                ValidationResult::Failed
            } else {
                ValidationResult::Ok
            },
            summary: (twist == Twist::LongSummary).then(|| "x".repeat(4097)),
        },
        K::PublishTargetReadableWriteFenced => Arguments::PublishTargetReadableWriteFenced,
        K::EnableTargetWrites => Arguments::EnableTargetWrites,
        K::AbortQuarantinedTarget => Arguments::AbortQuarantinedTarget,
        K::AdoptFence => Arguments::AdoptFence {
            current_operation: owner,
            approvers: if twist == Twist::OneApprover {
                vec!["ada".to_owned(), " ada ".to_owned()]
            } else {
                vec!["ada".to_owned(), "grace".to_owned()]
            },
            incident_ref: "INC".to_owned(),
            reason: if twist == Twist::NoReason { "  " } else { "lost" }.to_owned(),
        },
    }
}

/// Which twists are part of the request, and so of its fingerprint.
fn in_request(kind: K, twist: Twist) -> Option<Twist> {
    let there = match kind {
        K::AcquireSourceWriteFence => matches!(twist, Twist::WrongIdentity | Twist::OwnPolicy),
        K::SetSourceReadFence | K::SealTargetImport => twist == Twist::OwnPolicy,
        K::CreateTargetQuarantined => twist == Twist::Template,
        K::RecordTargetValidation => matches!(twist, Twist::BadValidation | Twist::LongSummary),
        K::AdoptFence => matches!(twist, Twist::OneApprover | Twist::NoReason),
        K::ClearSourceReadFence
        | K::ReleaseSourceWriteFence
        | K::PublishTargetReadableWriteFenced
        | K::EnableTargetWrites
        | K::AbortQuarantinedTarget => false,
    };
    there.then_some(twist)
}

struct Real {
    view: ControlView,
    receipts: HashMap<CommandKey, Receipt>,
}

impl Real {
    fn ask(&mut self, command: &Command, facts: &Facts) -> Said {
        let receipt = self.receipts.get(&command.key());
        match decide(1_000, &self.view, command, receipt, facts) {
            Decision::Replay(_) => Said::Replayed,
            Decision::Resume(_) => Said::Resumed,
            Decision::Historical(_) => Said::Historical,
            Decision::Refuse(refusal) => Said::Refused(
                refusal.code.name(),
                refusal.detail.map_or("", |detail| detail.name()),
            ),
            Decision::Commit { replaces, next, receipt, drains } => {
                assert_eq!(replaces, self.view.revision());
                let said = match (receipt.outcome, next.is_some()) {
                    (Outcome::Applied, true) => Said::Applied,
                    (Outcome::AlreadyApplied, false) => Said::Already,
                    (Outcome::Draining, true) => Said::Draining,
                    (Outcome::Draining, false) => Said::Joined,
                    other => panic!("no such commit: {other:?}"),
                };
                assert_eq!(drains, receipt.outcome == Outcome::Draining);
                if let Some(next) = next {
                    next.check().unwrap();
                    self.view = ControlView::Record(next);
                }
                self.receipts.insert(command.key(), receipt);
                said
            }
        }
    }

    fn drained(&mut self, key: CommandKey) -> bool {
        let (Some(receipt), Some(record)) = (self.receipts.get(&key), self.view.record()) else {
            return false;
        };
        let end = if record.state == S::SourceReadDraining {
            DrainEnd::Reads(drained())
        } else if record.state == S::TargetImportDraining {
            DrainEnd::Import(proof())
        } else {
            DrainEnd::Writes(proof())
        };
        match complete_drain(2_000, record, receipt, end, &written_by()) {
            Ok((next, receipt)) => {
                next.check().unwrap();
                self.view = ControlView::Record(Box::new(next));
                self.receipts.insert(key, receipt);
                true
            }
            Err(_) => false,
        }
    }
}

fn drained() -> DrainedClaim {
    DrainedClaim {
        namespace: namespace(),
        generation: Generation(7),
        releases: Releases { by_answer: 0, by_engine: 0 },
        forced: Vec::new(),
    }
}

fn proof() -> DrainProof {
    let clear =
        Census { at_engine_clock: "2025-06-15T15:06:40.000Z".to_owned(), ..Census::default() };
    let lock = EngineLock {
        mode: LockMode::Hold,
        outcome: "granted".to_owned(),
        tables: 1,
        gaps: Vec::new(),
    };
    let census = CensusClaim {
        namespace: namespace(),
        generation: Generation(7),
        identity: identity("5"),
        before: clear.clone(),
        after: clear,
        direct_sessions: Vec::new(),
        engine_lock: lock,
        non_transactional_tables: Vec::new(),
    };
    let claim =
        BoundaryClaim { namespace: namespace(), generation: Generation(7), boundary: boundary() };
    DrainProof::assemble(drained(), census, claim, 1_500).unwrap()
}

// --- side by side ------------------------------------------------------------------------------

fn play(exists: bool, steps: &[Step], bug: Option<Bug>) -> Result<(), TestCaseError> {
    let mut model = Model { exists, kept: None, answered: HashMap::new(), bug };
    let view = ControlView::NoRecord { exists };
    let mut real = Real { view, receipts: HashMap::new() };
    let mut asked: Vec<(Command, Request, u8, u8, Twist)> = Vec::new();
    for step in steps {
        let before = real.view.revision();
        match step {
            Step::Drained { back } => {
                let Some((command, _, by, id, _)) = asked.iter().rev().nth(*back) else { continue };
                let (theirs, ours) = (real.drained(command.key()), model.drained(*by, *id));
                prop_assert_eq!(theirs, ours, "{:?}", step);
            }
            Step::Ask { kind, by, id, belief, twist: number } => {
                let (kind, twist) = (K::ALL[*kind], twist(*number));
                let (mut state, mut revision) = (model.state(), model.revision());
                match belief {
                    Belief::Right => {}
                    Belief::OldRevision => revision = revision.saturating_sub(1),
                    Belief::OtherState => state = S::Released,
                }
                // An adoption that believes wrongly names nobody's operation.
                let owner = model.kept.as_ref().map_or(9, |kept| kept.owner);
                let owner = if *number == 40 { 9 } else { owner };
                let named = (kind == K::AdoptFence).then_some(owner);
                let request =
                    Request { kind, state, revision, twist: in_request(kind, twist), owner: named };
                let command = Command {
                    namespace: namespace(),
                    operation: operation(*by),
                    command: command_id(*id),
                    expected_state: state,
                    expected_revision: Revision(revision),
                    arguments: arguments(kind, twist, operation(owner)),
                };
                let theirs = real.ask(&command, &facts(twist));
                let ours = model.ask(*by, *id, &request, twist);
                prop_assert_eq!(theirs, ours, "{:?} at {:?} {}", step, state, revision);
                asked.push((command, request, *by, *id, twist));
            }
            Step::Again { back } => {
                let earlier = asked.iter().rev().nth(*back);
                let Some((command, request, by, id, twist)) = earlier else { continue };
                let theirs = real.ask(command, &facts(*twist));
                let ours = model.ask(*by, *id, request, *twist);
                prop_assert_eq!(theirs, ours, "again: {:?}", request);
            }
        }
        prop_assert_eq!(real.view.state(), model.state(), "{:?}", step);
        prop_assert_eq!(real.view.revision().0, model.revision(), "{:?}", step);
        prop_assert!(real.view.revision() >= before, "the revision went back");
        let owner = real.view.record().map(|record| record.operation);
        prop_assert_eq!(owner, model.kept.as_ref().map(|kept| operation(kept.owner)));
    }
    Ok(())
}

fn step() -> impl Strategy<Value = Step> {
    let belief = prop_oneof![
        8 => Just(Belief::Right),
        1 => Just(Belief::OldRevision),
        1 => Just(Belief::OtherState),
    ];
    let by = prop_oneof![3 => Just(1_u8), 2 => Just(2_u8)];
    // What ends an operation is asked less often, so that sequences come far.
    let kind = prop_oneof![
        12 => 0..K::ALL.len(),
        2 => Just(4_usize),
        2 => Just(5),
        4 => Just(6),
        4 => Just(7),
        4 => Just(10),
    ];
    let ask = (kind, by, 0_u8..40, belief, 0_u8..60)
        .prop_map(|(kind, by, id, belief, twist)| Step::Ask { kind, by, id, belief, twist });
    let drained = (0_usize..4).prop_map(|back| Step::Drained { back });
    let again = (0_usize..12).prop_map(|back| Step::Again { back });
    prop_oneof![6 => ask, 2 => drained, 2 => again]
}

fn run(bug: Option<Bug>, cases: u32) -> Result<(), TestError<(bool, Vec<Step>)>> {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let sequences = (any::<bool>(), prop::collection::vec(step(), 1..120));
    runner.run(&sequences, |(exists, steps)| play(exists, &steps, bug))
}

#[test]
fn the_machine_answers_as_the_contract_says() {
    let cases = std::env::var("FENCEWIRE_MODEL_CASES").map_or(600, |text| text.parse().unwrap());
    if let Err(error) = run(None, cases) {
        panic!("{error}");
    }
}

#[test]
fn a_bug_in_either_is_noticed() {
    for bug in BUGS {
        assert!(run(Some(bug), 3000).is_err(), "the sequences don't notice {bug:?}");
    }
}
