//! The data-plane decision: may this work run now, and must the engine be told to refuse writes?
//!
//! Purpose: one pure function, [`judge`], over what the gate publishes ([`Policy`]), what is asked
//! and what the session's transaction already holds. Invariants 2 and 4 of `docs/INVARIANTS.md`
//! rest on it. Called by `gate/`; tests call it directly. It reads no clock, touches no session and
//! doesn't register leases: that is the gate's critical section.

use crate::base::ids::{Generation, OperationId, Revision};
use crate::fence::code::Denial;
use crate::fence::record::InFlight;
use crate::fence::state::{FenceState, OperationClass, admits};
use crate::sql::StatementClass;

/// An in-memory closure on top of the durable state (contract 1.3, overlays). Never persisted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlay {
    /// Nothing on top: the durable state alone decides.
    None,
    /// A closing write command is being persisted: writes and lifecycle are denied.
    Installing,
    /// A read fence is being persisted: reads and streams are denied, writes as before.
    ClosingReads,
    /// A quarantined target is being created: everything is denied.
    CreatingTarget,
    /// A commit's outcome is not known: everything is denied.
    Indeterminate,
}

impl Overlay {
    /// What is closing, for the client's error; `None` when the state alone decides.
    #[must_use]
    pub const fn in_words(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Installing => Some("a write fence is going up"),
            Self::ClosingReads => Some("a read fence is going up"),
            Self::CreatingTarget => Some("a target is being created"),
            Self::Indeterminate => Some("a command's outcome is not known yet"),
        }
    }
}

/// Whether, and how long, a program that a closed write gate would refuse is held instead
/// (wire.md W20).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldRule {
    /// The longest time that a program is held, in milliseconds; 0 holds nothing.
    pub hold_ms: u64,
    /// How many programs of the namespace are held at once.
    pub held_max: usize,
}

impl HoldRule {
    /// Nothing is held.
    pub const NONE: Self = Self { hold_ms: 0, held_max: 0 };
}

/// What a gate publishes beside its word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The durable (or derived) state.
    pub state: FenceState,
    /// The closure on top of it.
    pub overlay: Overlay,
    /// The rule for writers of an older generation.
    pub in_flight: InFlight,
    /// Whether refused programs are held first.
    pub hold: HoldRule,
    /// Revision of the record, 0 without one.
    pub revision: Revision,
    /// The owner, if there is a record.
    pub operation: Option<OperationId>,
}

impl Policy {
    /// The policy of a namespace about which nothing is known yet: everything is denied.
    #[must_use]
    pub const fn unknown() -> Self {
        Self {
            state: FenceState::UnknownUnavailable,
            overlay: Overlay::None,
            in_flight: InFlight::Finish,
            hold: HoldRule::NONE,
            revision: Revision(0),
            operation: None,
        }
    }

    /// The policy of a namespace that has no record.
    #[must_use]
    pub const fn unfenced() -> Self {
        Self {
            state: FenceState::Unfenced,
            overlay: Overlay::None,
            in_flight: InFlight::Finish,
            hold: HoldRule::NONE,
            revision: Revision(0),
            operation: None,
        }
    }

    /// Whether work of one class may begin now, outside any transaction.
    ///
    /// # Errors
    /// The denial a client gets.
    pub fn admits(&self, class: StatementClass) -> Result<(), Denial> {
        let work = work_of(class);
        self.overlay.admits(work).and_then(|()| admits(self.state, work)).map_err(|denial| {
            match (denial, class) {
                (Denial::WriteFenced, StatementClass::Lifecycle) => Denial::Lifecycle,
                (Denial::WriteFenced, StatementClass::Unprovable) => Denial::Unprovable,
                (other, _) => other,
            }
        })
    }

    /// Whether work of one purpose may begin now under a capability, as far as state and overlay
    /// decide. That the capability lives is the gate's to say.
    ///
    /// # Errors
    /// The denial.
    pub fn admits_purpose(&self, purpose: Purpose) -> Result<(), Denial> {
        let work = purpose.work();
        self.overlay.admits(work).and_then(|()| admits(self.state, work))
    }

    /// Whether a program that was denied outside any transaction is held first: only what an opened
    /// write gate would admit is, so that waiting can help. Where writes are open by the time this
    /// is asked, nothing would end the waiting, and nothing is held.
    #[must_use]
    pub fn holds(&self, denial: Denial) -> Option<HoldRule> {
        match denial {
            Denial::WriteFenced | Denial::Lifecycle | Denial::Unprovable
                if self.hold.hold_ms > 0 && !self.writes_open() =>
            {
                Some(self.hold)
            }
            Denial::WriteFenced
            | Denial::Lifecycle
            | Denial::Unprovable
            | Denial::StaleTransaction
            | Denial::ReadFenced
            | Denial::TargetQuarantined
            | Denial::StateUnavailable
            | Denial::CapabilityRequired
            | Denial::RolledBack
            | Denial::HoldExpired
            | Denial::CutoverPending
            | Denial::StaleTopology
            | Denial::ExecutionFenced => None,
        }
    }

    /// Whether writes may begin: the contract's NormalWrite column with the overlay on top.
    #[must_use]
    pub fn writes_open(&self) -> bool {
        self.admits(StatementClass::Write).is_ok()
    }

    /// Whether reads may begin: the contract's NormalRead column with the overlay on top.
    #[must_use]
    pub fn reads_open(&self) -> bool {
        self.admits(StatementClass::Read).is_ok()
    }

    /// Whether every class may begin.
    #[must_use]
    pub fn all_open(&self) -> bool {
        self.writes_open()
            && self.reads_open()
            && self.admits(StatementClass::Lifecycle).is_ok()
            && self.admits(StatementClass::Stream).is_ok()
    }
}

/// The contract's operation class for a statement class.
const fn work_of(class: StatementClass) -> OperationClass {
    match class {
        StatementClass::Read | StatementClass::Session | StatementClass::TransactionControl => {
            OperationClass::NormalRead
        }
        StatementClass::Stream => OperationClass::Stream,
        StatementClass::Write | StatementClass::Ddl | StatementClass::Unprovable => {
            OperationClass::NormalWrite
        }
        StatementClass::Lifecycle => OperationClass::Lifecycle,
    }
}

impl Overlay {
    fn admits(self, work: OperationClass) -> Result<(), Denial> {
        let observing = matches!(work, OperationClass::Maintenance | OperationClass::Observability);
        let writing = matches!(
            work,
            OperationClass::NormalWrite
                | OperationClass::Vacuum
                | OperationClass::CapabilityImport
                | OperationClass::Lifecycle
        );
        let reading = matches!(work, OperationClass::NormalRead | OperationClass::Stream);
        match self {
            Self::None => Ok(()),
            // Reads are closed behind a write fence alone; an overlay never opens anything.
            Self::Installing | Self::ClosingReads if writing => Err(Denial::WriteFenced),
            Self::ClosingReads if reading => Err(Denial::ReadFenced),
            Self::CreatingTarget if !observing => Err(Denial::TargetQuarantined),
            Self::Indeterminate if !observing => Err(Denial::StateUnavailable),
            Self::Installing | Self::ClosingReads | Self::CreatingTarget | Self::Indeterminate => {
                Ok(())
            }
        }
    }
}

/// What a capability is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Filling a quarantined target.
    Import,
    /// Reading a target that is not published, or not writable yet.
    Validation,
}

impl Purpose {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Import, Self::Validation];

    /// `import` or `validation`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Import => "import",
            Self::Validation => "validation",
        }
    }

    /// Reads the name; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|purpose| purpose.name() == text)
    }

    /// The contract's operation class of its work.
    #[must_use]
    pub const fn work(self) -> OperationClass {
        match self {
            Self::Import => OperationClass::CapabilityImport,
            Self::Validation => OperationClass::CapabilityValidate,
        }
    }
}

/// What a session's open transaction (or unfinished program) already holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Whether it was admitted as a writer.
    pub writer: bool,
    /// The generation it began under.
    pub generation: Generation,
}

/// The answer of [`judge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may run.
    Admit {
        /// The engine must be in read-only mode for it (wire.md W17).
        guard: bool,
    },
    /// It may not.
    Refuse(Denial),
}

/// Decides one program or statement (wire.md W3, W14; contract 1.7).
///
/// `now` is the gate's current generation, `held` what the session's transaction or unfinished
/// program already has, `None` outside both.
#[must_use]
pub fn judge(
    policy: &Policy,
    now: Generation,
    class: StatementClass,
    held: Option<Held>,
) -> Verdict {
    let Some(held) = held else {
        return match policy.admits(class) {
            Ok(()) => Verdict::Admit { guard: !policy.writes_open() },
            Err(denial) => Verdict::Refuse(denial),
        };
    };
    if !class.is_writer() {
        return judge_reader(policy, class, held);
    }
    let current = held.generation == now;
    match (held.writer, policy.admits(class)) {
        (true, Ok(())) => Verdict::Admit { guard: false },
        (true, Err(denial)) => match (policy.in_flight, policy.overlay) {
            (_, Overlay::Indeterminate | Overlay::CreatingTarget) => Verdict::Refuse(denial),
            (InFlight::Finish, _) if lets_writers_finish(policy.state) => {
                Verdict::Admit { guard: false }
            }
            (InFlight::Finish | InFlight::Refuse, _) => Verdict::Refuse(denial),
        },
        (false, Ok(())) if current => Verdict::Admit { guard: false },
        (false, Ok(())) => Verdict::Refuse(Denial::StaleTransaction),
        (false, Err(denial)) => Verdict::Refuse(denial),
    }
}

/// As [`judge`], for a session that shows a capability for `purpose`. `lives` says whether it is
/// the live one of this namespace, its owner and its revision.
///
/// The end of a transaction is never denied. Streams and lifecycle are nobody's under a capability:
/// they are judged as without one. Everything else is the purpose's work, and a capability that
/// died makes nothing of it admissible, whatever the state admits to others.
#[must_use]
pub fn judge_bearing(
    policy: &Policy,
    now: Generation,
    class: StatementClass,
    held: Option<Held>,
    (purpose, lives): (Purpose, bool),
) -> Verdict {
    let guard = match purpose {
        Purpose::Import => false,
        Purpose::Validation => !held.is_some_and(|held| held.writer),
    };
    match class {
        StatementClass::TransactionControl if held.is_some() => return Verdict::Admit { guard },
        StatementClass::Stream | StatementClass::Lifecycle => {
            return judge(policy, now, class, held);
        }
        StatementClass::Read
        | StatementClass::Session
        | StatementClass::TransactionControl
        | StatementClass::Write
        | StatementClass::Ddl
        | StatementClass::Unprovable => {}
    }
    if let Err(denial) = policy.admits_purpose(purpose) {
        return Verdict::Refuse(denial);
    }
    let writes = class.is_writer();
    if !lives || writes && purpose == Purpose::Validation {
        return Verdict::Refuse(Denial::CapabilityRequired);
    }
    // A reader's transaction becomes a writer's only under its own generation, here as anywhere.
    match held {
        Some(held) if writes && !held.writer && held.generation != now => {
            Verdict::Refuse(Denial::StaleTransaction)
        }
        Some(_) | None => Verdict::Admit { guard },
    }
}

/// Whether a writer admitted before this state came may run on to its end: on a source, always; on
/// a target or where nothing is known, never.
const fn lets_writers_finish(state: FenceState) -> bool {
    match state {
        FenceState::Unfenced
        | FenceState::Absent
        | FenceState::SourceDraining
        | FenceState::SourceWriteFenced
        | FenceState::SourceReadDraining
        | FenceState::SourceReadFenced
        | FenceState::Released => true,
        FenceState::TargetQuarantined
        | FenceState::TargetImportDraining
        | FenceState::TargetValidating
        | FenceState::TargetWriteFenced
        | FenceState::TargetWritable
        | FenceState::TargetAborted
        | FenceState::UnknownUnavailable => false,
    }
}

/// A reader inside a transaction or unfinished program. Its end (COMMIT, ROLLBACK) is never denied:
/// nothing can be written by it that wasn't admitted before.
fn judge_reader(policy: &Policy, class: StatementClass, held: Held) -> Verdict {
    let admit = Verdict::Admit { guard: !held.writer && !policy.writes_open() };
    match (class, policy.admits(class)) {
        (StatementClass::TransactionControl, _) | (_, Ok(())) => admit,
        (_, Err(denial)) => Verdict::Refuse(denial),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Generation = Generation(7);
    const OLD: Generation = Generation(6);

    fn fenced(in_flight: InFlight) -> Policy {
        Policy { state: FenceState::SourceWriteFenced, in_flight, ..Policy::unfenced() }
    }

    fn held(writer: bool, generation: Generation) -> Option<Held> {
        Some(Held { writer, generation })
    }

    #[test]
    fn a_closed_write_gate_names_the_kind_of_refusal() {
        let policy = fenced(InFlight::Finish);
        for (class, denial) in [
            (StatementClass::Write, Denial::WriteFenced),
            (StatementClass::Ddl, Denial::WriteFenced),
            (StatementClass::Lifecycle, Denial::Lifecycle),
            (StatementClass::Unprovable, Denial::Unprovable),
        ] {
            assert_eq!(judge(&policy, NOW, class, None), Verdict::Refuse(denial));
        }
        for class in [
            StatementClass::Read,
            StatementClass::Session,
            StatementClass::TransactionControl,
            StatementClass::Stream,
        ] {
            assert_eq!(judge(&policy, NOW, class, None), Verdict::Admit { guard: true });
        }
    }

    #[test]
    fn an_older_transaction_never_becomes_a_writer() {
        let open = Policy::unfenced();
        let write = StatementClass::Write;
        assert_eq!(
            judge(&open, NOW, write, held(false, OLD)),
            Verdict::Refuse(Denial::StaleTransaction)
        );
        assert_eq!(judge(&open, NOW, write, held(false, NOW)), Verdict::Admit { guard: false });
        assert_eq!(
            judge(&fenced(InFlight::Finish), NOW, write, held(false, OLD)),
            Verdict::Refuse(Denial::WriteFenced)
        );
    }

    #[test]
    fn writers_in_flight_finish_or_are_refused_by_rule() {
        let write = StatementClass::Write;
        assert_eq!(
            judge(&fenced(InFlight::Finish), NOW, write, held(true, OLD)),
            Verdict::Admit { guard: false }
        );
        assert_eq!(
            judge(&fenced(InFlight::Refuse), NOW, write, held(true, OLD)),
            Verdict::Refuse(Denial::WriteFenced)
        );
        let read = StatementClass::Read;
        assert_eq!(
            judge(&fenced(InFlight::Refuse), NOW, read, held(true, OLD)),
            Verdict::Admit { guard: false }
        );
    }

    #[test]
    fn unknown_state_denies_new_work_but_lets_a_transaction_end() {
        let policy = Policy::unknown();
        for class in [StatementClass::Read, StatementClass::Write, StatementClass::Session] {
            assert_eq!(judge(&policy, NOW, class, None), Verdict::Refuse(Denial::StateUnavailable));
        }
        let end = StatementClass::TransactionControl;
        assert_eq!(judge(&policy, NOW, end, held(true, OLD)), Verdict::Admit { guard: false });
        assert_eq!(
            judge(&policy, NOW, StatementClass::Write, held(true, OLD)),
            Verdict::Refuse(Denial::StateUnavailable)
        );
    }

    #[test]
    fn only_what_an_open_write_gate_would_admit_is_held_and_only_by_rule() {
        let rule = HoldRule { hold_ms: 5, held_max: 1 };
        let holding = Policy { hold: rule, ..fenced(InFlight::Finish) };
        let held: Vec<_> =
            Denial::ALL.into_iter().filter(|denial| holding.holds(*denial).is_some()).collect();
        assert_eq!(held, [Denial::WriteFenced, Denial::Lifecycle, Denial::Unprovable]);
        let refusing = fenced(InFlight::Finish);
        assert!(Denial::ALL.into_iter().all(|denial| refusing.holds(denial).is_none()));
        // The rule outlives its fence: at an open gate nothing would ever call the program.
        let open = Policy { hold: rule, ..Policy::unfenced() };
        assert!(Denial::ALL.into_iter().all(|denial| open.holds(denial).is_none()));
        let closing = Policy { overlay: Overlay::Installing, ..open };
        assert_eq!(closing.holds(Denial::WriteFenced), Some(rule));
    }

    #[test]
    fn reads_that_close_leave_a_transaction_its_end_and_open_nothing() {
        let overlay = Overlay::ClosingReads;
        for policy in [
            Policy { overlay, ..fenced(InFlight::Finish) },
            Policy { overlay, ..Policy::unfenced() },
            Policy { state: FenceState::SourceReadDraining, ..fenced(InFlight::Finish) },
            Policy { state: FenceState::SourceReadFenced, ..fenced(InFlight::Finish) },
        ] {
            assert!(!policy.reads_open() && !policy.writes_open());
            let refused = |denial| Verdict::Refuse(denial);
            for class in [StatementClass::Read, StatementClass::Session, StatementClass::Stream] {
                assert_eq!(judge(&policy, NOW, class, None), refused(Denial::ReadFenced));
                let held = held(false, OLD);
                assert_eq!(judge(&policy, NOW, class, held), refused(Denial::ReadFenced));
            }
            let end = StatementClass::TransactionControl;
            assert_eq!(judge(&policy, NOW, end, None), refused(Denial::ReadFenced));
            assert_eq!(judge(&policy, NOW, end, held(false, OLD)), Verdict::Admit { guard: true });
            let write = StatementClass::Write;
            assert_eq!(judge(&policy, NOW, write, None), refused(Denial::WriteFenced));
        }
    }

    #[test]
    fn a_capability_admits_its_purpose_in_its_states_and_nothing_when_dead() {
        let class = StatementClass::Write;
        for state in FenceState::ALL {
            let policy = Policy { state, ..Policy::unfenced() };
            let import = judge_bearing(&policy, NOW, class, None, (Purpose::Import, true));
            let imports =
                matches!(state, FenceState::TargetQuarantined | FenceState::TargetImportDraining);
            assert_eq!(import == Verdict::Admit { guard: false }, imports, "import in {state}");
            let validation = (Purpose::Validation, true);
            let read = judge_bearing(&policy, NOW, StatementClass::Read, None, validation);
            let reads =
                matches!(state, FenceState::TargetValidating | FenceState::TargetWriteFenced);
            assert_eq!(read == Verdict::Admit { guard: true }, reads, "validation in {state}");
            for class in [StatementClass::Write, StatementClass::Ddl, StatementClass::Unprovable] {
                let write = judge_bearing(&policy, NOW, class, None, validation);
                assert!(matches!(write, Verdict::Refuse(_)), "{class:?} validating in {state}");
                if reads {
                    assert_eq!(write, Verdict::Refuse(Denial::CapabilityRequired));
                }
            }
            for (purpose, class) in
                [(Purpose::Import, class), (Purpose::Validation, StatementClass::Read)]
            {
                let dead = judge_bearing(&policy, NOW, class, None, (purpose, false));
                assert!(matches!(dead, Verdict::Refuse(_)), "{purpose:?}, dead, in {state}");
                let drops =
                    judge_bearing(&policy, NOW, StatementClass::Lifecycle, None, (purpose, true));
                let plain = judge(&policy, NOW, StatementClass::Lifecycle, None);
                assert_eq!(drops, plain, "a capability is no right to drop what it fills");
            }
        }
    }

    #[test]
    fn a_transaction_under_a_capability_that_died_can_only_end() {
        let policy = Policy { state: FenceState::TargetImportDraining, ..Policy::unfenced() };
        let dead = (Purpose::Import, false);
        let end = StatementClass::TransactionControl;
        let ended = judge_bearing(&policy, NOW, end, held(true, OLD), dead);
        assert_eq!(ended, Verdict::Admit { guard: false });
        let more = judge_bearing(&policy, NOW, StatementClass::Write, held(true, OLD), dead);
        assert_eq!(more, Verdict::Refuse(Denial::CapabilityRequired));
        assert_eq!(
            judge_bearing(&policy, NOW, end, None, dead),
            Verdict::Refuse(Denial::CapabilityRequired)
        );
    }

    #[test]
    fn overlays_close_imports_too_and_old_readers_do_not_become_importers() {
        let state = FenceState::TargetQuarantined;
        let import = (Purpose::Import, true);
        let write = StatementClass::Write;
        for (overlay, denial) in [
            (Overlay::Installing, Denial::WriteFenced),
            (Overlay::CreatingTarget, Denial::TargetQuarantined),
            (Overlay::Indeterminate, Denial::StateUnavailable),
        ] {
            let policy = Policy { state, overlay, ..Policy::unfenced() };
            for held in [None, held(true, OLD), held(false, NOW)] {
                let verdict = judge_bearing(&policy, NOW, write, held, import);
                assert_eq!(verdict, Verdict::Refuse(denial), "{overlay:?} {held:?}");
            }
        }
        let policy = Policy { state, ..Policy::unfenced() };
        assert_eq!(
            judge_bearing(&policy, NOW, write, held(false, OLD), import),
            Verdict::Refuse(Denial::StaleTransaction)
        );
        assert_eq!(
            judge_bearing(&policy, NOW, write, held(false, NOW), import),
            Verdict::Admit { guard: false }
        );
    }

    #[test]
    fn the_installing_overlay_closes_writes_before_anything_is_durable() {
        let policy = Policy { overlay: Overlay::Installing, ..Policy::unfenced() };
        assert!(!policy.writes_open());
        assert!(policy.reads_open());
        assert_eq!(
            judge(&policy, NOW, StatementClass::Write, held(true, OLD)),
            Verdict::Admit { guard: false }
        );
    }
}
