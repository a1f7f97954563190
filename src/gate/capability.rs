//! Capabilities: one operation's right to import into, or to validate, one target.
//!
//! Purpose: while a target isn't published, only sessions that show a live capability run anything
//! there (contract 1.9). A capability is bound to namespace, operation, purpose and revision, and
//! dies when what the gate publishes moves in state, owner or revision. [`Gate::issue`] makes one
//! and hands its secret out once; [`Gate::present`] finds it again by the secret. Only the secret's
//! SHA-256 is kept, it is compared in constant time, and never stored: a restart forgets them all.
//!
//! A session bears one by its seat (`admission::Seat::take_bearing`, `Seat::bearing`), and is then
//! judged by `fence::verdict::judge_bearing` at each program, the liveness looked at each time. A
//! seat without one pays a comparison with nothing.
//!
//! Invariant 15 (`docs/INVARIANTS.md`). Callers: `control` issues, `wire` presents. What a secret
//! looks like on a wire, and keeping it from engine and log, is the wire's.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::base::arm::{Removable, removed};
use crate::base::ids::{Namespace, OperationId, Revision};
use crate::base::limits;
use crate::base::secret::Secret;
use crate::fence::code::Denial;
pub use crate::fence::verdict::Purpose;
use crate::fence::verdict::{Overlay, Policy};
use crate::gate::registry::Gate;
use crate::gate::slot::Slot;

/// What every capability's secret begins with, so that one that leaked is recognised.
pub const SECRET_PREFIX: &str = "fwc_";

/// What a capability is bound to, shared by all who bear it.
#[derive(Debug)]
struct Grant {
    namespace: Namespace,
    purpose: Purpose,
    operation: OperationId,
    revision: Revision,
    /// Which of this gate's it is, from 1 in each run of the proxy.
    number: u64,
    live: AtomicBool,
}

/// A capability that was shown to the gate that gave it. It can't be made elsewhere.
#[derive(Debug, Clone)]
pub struct Capability(Arc<Grant>);

impl Capability {
    /// Whose target.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.0.namespace
    }

    /// What for.
    #[must_use]
    pub fn purpose(&self) -> Purpose {
        self.0.purpose
    }

    /// Whose.
    #[must_use]
    pub fn operation(&self) -> OperationId {
        self.0.operation
    }

    /// At which revision of the record.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.0.revision
    }

    /// Which of its gate's capabilities it is: 1, 2, … in each run of the proxy. It names one
    /// where it is listed and in the audit trail, and opens nothing.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// Whether it still counts: nothing about the target has moved since it was given. Once it
    /// doesn't, it never does again.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.0.live.load(Ordering::SeqCst) || removed(Removable::CapabilityLife)
    }

    /// Whether it counts at a gate that publishes this policy.
    pub(super) fn lives_at(&self, namespace: &Namespace, policy: &Policy) -> bool {
        let bound =
            policy.operation == Some(self.operation()) && policy.revision == self.revision();
        *namespace == self.0.namespace
            && self.is_live()
            && (bound || removed(Removable::CapabilityLife))
    }
}

/// A capability just made, with its secret. The secret is nowhere else.
#[derive(Debug)]
pub struct Issued {
    secret: Secret,
    capability: Capability,
}

impl Issued {
    /// What a session shows. Give it to whoever asked, once; keep it nowhere.
    #[must_use]
    pub const fn secret(&self) -> &Secret {
        &self.secret
    }

    /// What it is bound to.
    #[must_use]
    pub const fn capability(&self) -> &Capability {
        &self.capability
    }
}

/// Why none was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssueError {
    /// The state, or what is going on on top of it, has no such work.
    #[error("there is no {} work now ({})", purpose.name(), denial.code())]
    NotNow {
        /// What for.
        purpose: Purpose,
        /// What such work is answered.
        denial: Denial,
    },
    /// The fence is another operation's.
    #[error("the target is another operation's")]
    OtherOwner,
    /// The record has moved, or hasn't yet.
    #[error("the target is at revision {}", at.0)]
    OtherRevision {
        /// Where it is.
        at: Revision,
    },
    /// As many as may be are alive.
    #[error(
        "{} capabilities of this revision are alive, which is as many as may be; use one of them, \
         any number of sessions may; if their secrets are lost, the target's next step or a \
         restart of the proxy ends all of them",
        limits::CAPABILITIES_ALIVE_MAX
    )]
    TooMany,
    /// As many questions as may be are being answered.
    #[error(
        "{} questions are being answered at this target, which is as many as may be at once; ask \
         again when one of them is",
        limits::VALIDATION_QUESTIONS_MAX
    )]
    TooManyQuestions,
    /// The system gave no random bytes.
    #[error("the system gave no random bytes: {0}")]
    NoRandom(String),
}

/// One that is alive, found by its secret's digest; one that is lent has no secret.
#[derive(Debug)]
struct Kept {
    digest: Option<[u8; 32]>,
    capability: Capability,
    /// When it was given out, in milliseconds since the epoch. Shown, never judged by.
    issued_at_ms: u64,
}

/// A live capability as it is listed: everything but what would let somebody show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// See [`Capability::number`].
    pub number: u64,
    /// What for.
    pub purpose: Purpose,
    /// Whose.
    pub operation: OperationId,
    /// At which revision of the record.
    pub revision: Revision,
    /// When it was given out, in milliseconds since the epoch.
    pub issued_at_ms: u64,
    /// How many sessions bear it now.
    pub sessions: u64,
}

/// The capabilities alive at one gate.
#[derive(Debug, Default)]
pub(super) struct Capabilities {
    /// Guards the list. Taken inside the gate's own lock, and never the other way round.
    kept: Mutex<Vec<Kept>>,
    /// How many were ever given out with a secret.
    given: AtomicU64,
}

impl Capabilities {
    fn with<T>(&self, change: impl FnOnce(&mut Vec<Kept>) -> T) -> T {
        // A panic here can't leave the list half changed: each use is one push, look or clearing.
        change(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends all of them.
    pub(super) fn end(&self) {
        self.with(|kept| {
            for one in kept.drain(..) {
                one.capability.0.live.store(false, Ordering::SeqCst);
            }
        });
    }

    fn end_one(&self, capability: &Capability) {
        capability.0.live.store(false, Ordering::SeqCst);
        self.with(|kept| kept.retain(|one| !Arc::ptr_eq(&one.capability.0, &capability.0)));
    }

    /// Those with a secret and those without are counted apart.
    fn keep(&self, one: Kept) -> Result<(), IssueError> {
        let digest = one.digest;
        let (most, error) = match digest {
            Some(_) => (limits::CAPABILITIES_ALIVE_MAX, IssueError::TooMany),
            None => (limits::VALIDATION_QUESTIONS_MAX, IssueError::TooManyQuestions),
        };
        self.with(|kept| {
            let alike = kept.iter().filter(|one| one.digest.is_some() == digest.is_some());
            if alike.count() >= most {
                return Err(error);
            }
            kept.push(one);
            Ok(())
        })
    }

    /// Looks at every one, whichever it is.
    fn find(&self, digest: &[u8; 32]) -> Option<Capability> {
        self.with(|kept| {
            let mut found = None;
            for one in kept.iter() {
                if one.digest.is_some_and(|known| bool::from(known.ct_eq(digest))) {
                    found = Some(one.capability.clone());
                }
            }
            found
        })
    }

    fn next_number(&self) -> u64 {
        self.given.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Those that have a secret, in the order they were given out.
    fn listed(&self, sessions: impl Fn(u64) -> u64) -> Vec<Listed> {
        self.with(|kept| {
            let shown = kept.iter().filter(|one| one.digest.is_some());
            shown
                .map(|Kept { capability, issued_at_ms, .. }| Listed {
                    number: capability.number(),
                    purpose: capability.purpose(),
                    operation: capability.operation(),
                    revision: capability.revision(),
                    issued_at_ms: *issued_at_ms,
                    sessions: sessions(capability.number()),
                })
                .collect()
        })
    }

    fn count(&self) -> usize {
        self.with(|kept| kept.len())
    }
}

impl Gate {
    /// Makes a capability for the owner at the revision that is published. Nothing can be published
    /// meanwhile. `now_ms` is the time that it is listed with, in milliseconds since the epoch.
    ///
    /// # Errors
    /// [`IssueError`]; nothing was made.
    pub fn issue(
        &self,
        purpose: Purpose,
        operation: OperationId,
        revision: Revision,
        now_ms: u64,
    ) -> Result<Issued, IssueError> {
        let mut random = [0; limits::CAPABILITY_RANDOM_BYTES];
        getrandom::fill(&mut random).map_err(|error| IssueError::NoRandom(error.to_string()))?;
        let text = format!("{SECRET_PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(random));
        let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        let capability = self.grant(Some((digest, now_ms)), purpose, operation, revision)?;
        Ok(Issued { secret: Secret::new(text), capability })
    }

    /// As [`Gate::issue`], for one question of the proxy's own: nobody can show it, and it has no
    /// place among those that are shown. Give it back by [`Gate::revoke`].
    ///
    /// # Errors
    /// [`IssueError`]; nothing was made.
    pub fn lend(
        &self,
        purpose: Purpose,
        operation: OperationId,
        revision: Revision,
    ) -> Result<Capability, IssueError> {
        self.grant(None, purpose, operation, revision)
    }

    fn grant(
        &self,
        secret: Option<([u8; 32], u64)>,
        purpose: Purpose,
        operation: OperationId,
        revision: Revision,
    ) -> Result<Capability, IssueError> {
        self.while_published(|policy| {
            must_be_issuable(policy, purpose, operation, revision)?;
            let (digest, issued_at_ms) = match secret {
                Some((digest, at_ms)) => (Some(digest), at_ms),
                None => (None, 0),
            };
            // Under the gate's lock: no two take one number. One that isn't kept leaves a hole.
            let number = digest.map_or(0, |_| self.capabilities.next_number());
            let capability = Capability(Arc::new(Grant {
                namespace: self.namespace().clone(),
                purpose,
                operation,
                revision,
                number,
                live: AtomicBool::new(true),
            }));
            let kept = Kept { digest, capability: capability.clone(), issued_at_ms };
            self.capabilities.keep(kept)?;
            Ok(capability)
        })
    }

    /// The live capability of this gate whose secret this is; `None` for anything else. Neither
    /// time nor answer tells how near a text was.
    #[must_use]
    pub fn present(&self, text: &[u8]) -> Option<Capability> {
        if text.len() > limits::CAPABILITY_TEXT_BYTES_MAX {
            return None;
        }
        let digest: [u8; 32] = Sha256::digest(text).into();
        self.capabilities.find(&digest)
    }

    /// Ends one capability before its revision does: nobody shows it any more.
    pub fn revoke(&self, capability: &Capability) {
        self.capabilities.end_one(capability);
    }

    /// The live capabilities that were given out, oldest first; at most
    /// [`limits::CAPABILITIES_ALIVE_MAX`]. Those lent for a question aren't among them.
    #[must_use]
    pub fn capabilities_listed(&self) -> Vec<Listed> {
        let slots = self.sessions();
        let bearing = |number| {
            let bears = |slot: &&Arc<Slot>| slot.bears().is_some_and(|one| one.number == number);
            slots.iter().filter(bears).count() as u64
        };
        self.capabilities.listed(bearing)
    }

    /// How many capabilities are alive here.
    #[must_use]
    pub fn capabilities_alive(&self) -> usize {
        self.capabilities.count()
    }
}

fn must_be_issuable(
    policy: &Policy,
    purpose: Purpose,
    operation: OperationId,
    revision: Revision,
) -> Result<(), IssueError> {
    let not_now = |denial| Err(IssueError::NotNow { purpose, denial });
    if let Err(denial) = policy.admits_purpose(purpose) {
        return not_now(denial);
    }
    // TARGET_IMPORT_DRAINING still runs calls that began earlier; nothing new is given there.
    if policy.overlay != Overlay::None || policy.state.is_draining() {
        return not_now(Denial::CapabilityRequired);
    }
    if policy.operation != Some(operation) {
        return Err(IssueError::OtherOwner);
    }
    if policy.revision != revision {
        return Err(IssueError::OtherRevision { at: policy.revision });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{Generation, SessionId};
    use crate::fence::code::Denial;
    use crate::fence::record::{FenceRecord, InFlight};
    use crate::fence::sample;
    use crate::fence::state::FenceState;
    use crate::gate::admission::{Guard, Seat};
    use crate::gate::drain::Drain;
    use crate::gate::registry::{Authority, Gates};
    use crate::gate::slot::Card;
    use crate::sql::StatementClass;
    use crate::store::LoadedFence;

    const WRITE: StatementClass = StatementClass::Write;
    const READ: StatementClass = StatementClass::Read;

    fn apply(gate: &Gate, record: &FenceRecord) {
        let loaded = LoadedFence::of_a_record(record.clone());
        gate.apply(Authority::Loaded(&loaded), InFlight::Finish);
    }

    fn target(state: FenceState) -> (Arc<Gate>, FenceRecord) {
        let record = sample::record(state);
        let gates = Gates::new(Generation(1));
        let gate = gates.gate(&record.namespace);
        apply(&gate, &record);
        (gate, record)
    }

    fn issue(gate: &Gate, record: &FenceRecord, purpose: Purpose) -> Issued {
        gate.issue(purpose, record.operation, record.revision, 0).unwrap()
    }

    fn bearer(gate: &Arc<Gate>, capability: Capability) -> Arc<Seat> {
        Seat::take_bearing(Arc::clone(gate), SessionId(1), Card::default(), capability)
    }

    fn denied(seat: &Arc<Seat>, class: StatementClass) -> Option<Denial> {
        match seat.begin(class, 0) {
            Ok((lease, _)) => {
                lease.unused();
                None
            }
            Err(refusal) => Some(refusal.denial),
        }
    }

    #[test]
    fn only_a_session_that_shows_the_secret_imports() {
        let (gate, record) = target(FenceState::TargetQuarantined);
        let plain = Seat::take(Arc::clone(&gate), SessionId(2), Card::default());
        assert_eq!(denied(&plain, WRITE), Some(Denial::TargetQuarantined));
        assert_eq!(denied(&plain, READ), Some(Denial::TargetQuarantined));
        let issued = issue(&gate, &record, Purpose::Import);
        let text = issued.secret().expose();
        assert!(text.starts_with(SECRET_PREFIX) && text.len() == 47, "{}", text.len());
        let shown = gate.present(text.as_bytes()).unwrap();
        assert_eq!(
            (shown.purpose(), shown.operation(), shown.revision(), shown.namespace()),
            (Purpose::Import, record.operation, record.revision, &record.namespace)
        );
        for wrong in [&text[..46], &text.to_uppercase(), "", &format!("{text} ")] {
            assert!(gate.present(wrong.as_bytes()).is_none(), "{} bytes", wrong.len());
        }
        assert!(gate.present(&vec![b'x'; 1 << 20]).is_none());
        let seat = bearer(&gate, shown);
        for class in [WRITE, READ, StatementClass::Ddl, StatementClass::Unprovable] {
            let (lease, guard) = seat.begin(class, 0).unwrap();
            assert_eq!(guard, Guard::Off, "{class:?}");
            lease.answered();
        }
        assert_eq!(denied(&seat, StatementClass::Lifecycle), Some(Denial::TargetQuarantined));
        assert_eq!(denied(&seat, StatementClass::Stream), Some(Denial::TargetQuarantined));
        assert_eq!(denied(&plain, WRITE), Some(Denial::TargetQuarantined), "nor by standing near");
    }

    #[test]
    fn nothing_that_prints_shows_the_secret() {
        let (gate, record) = target(FenceState::TargetQuarantined);
        let issued = issue(&gate, &record, Purpose::Import);
        let text = issued.secret().expose();
        let random = text.strip_prefix(SECRET_PREFIX).unwrap();
        let shown = gate.present(text.as_bytes()).unwrap();
        let printed = format!("{issued:?} {:?} {shown:?} {gate:?}", issued.secret());
        assert!(!printed.contains(random), "{printed}");
    }

    #[test]
    fn one_is_given_to_the_owner_at_the_revision_in_its_state_only() {
        let (gate, record) = target(FenceState::TargetQuarantined);
        let (owner, revision) = (record.operation, record.revision);
        let other = sample::operation(9);
        assert_eq!(
            gate.issue(Purpose::Import, other, revision, 0).unwrap_err(),
            IssueError::OtherOwner
        );
        assert_eq!(
            gate.issue(Purpose::Import, owner, revision.next(), 0).unwrap_err(),
            IssueError::OtherRevision { at: revision }
        );
        let not_now = |purpose, denial| IssueError::NotNow { purpose, denial };
        assert_eq!(
            gate.issue(Purpose::Validation, owner, revision, 0).unwrap_err(),
            not_now(Purpose::Validation, Denial::CapabilityRequired)
        );
        gate.overlay(Overlay::Installing, InFlight::Refuse);
        assert_eq!(
            gate.issue(Purpose::Import, owner, revision, 0).unwrap_err(),
            not_now(Purpose::Import, Denial::WriteFenced)
        );
        for state in FenceState::ALL.into_iter().filter(|state| state.is_durable()) {
            let (gate, record) = target(state);
            for purpose in Purpose::ALL {
                let given = gate.issue(purpose, record.operation, record.revision, 0).is_ok();
                let wanted = match purpose {
                    Purpose::Import => state == FenceState::TargetQuarantined,
                    Purpose::Validation => matches!(
                        state,
                        FenceState::TargetValidating | FenceState::TargetWriteFenced
                    ),
                };
                assert_eq!(given, wanted, "{purpose:?} in {state}");
            }
        }
    }

    #[test]
    fn as_many_as_may_be_live_at_once() {
        let (gate, record) = target(FenceState::TargetQuarantined);
        for _ in 0..limits::CAPABILITIES_ALIVE_MAX {
            drop(issue(&gate, &record, Purpose::Import));
        }
        let more = gate.issue(Purpose::Import, record.operation, record.revision, 0);
        assert_eq!(more.unwrap_err(), IssueError::TooMany);
        assert_eq!(gate.capabilities_alive(), limits::CAPABILITIES_ALIVE_MAX);
        apply(&gate, &FenceRecord { revision: record.revision.next(), ..record });
        assert_eq!(gate.capabilities_alive(), 0);
    }

    #[test]
    fn a_question_takes_no_place_among_those_that_are_shown() {
        let (gate, record) = target(FenceState::TargetValidating);
        for _ in 0..limits::CAPABILITIES_ALIVE_MAX {
            drop(issue(&gate, &record, Purpose::Validation));
        }
        let lend = || gate.lend(Purpose::Validation, record.operation, record.revision);
        let mut lent: Vec<_> =
            (0..limits::VALIDATION_QUESTIONS_MAX).map(|_| lend().unwrap()).collect();
        assert_eq!(lend().unwrap_err(), IssueError::TooManyQuestions);
        gate.revoke(&lent.pop().unwrap());
        lent.push(lend().unwrap());
        let more = gate.issue(Purpose::Validation, record.operation, record.revision, 0);
        assert_eq!(more.unwrap_err(), IssueError::TooMany);
        assert!(IssueError::TooMany.to_string().contains("restart"));
        apply(&gate, &FenceRecord { revision: record.revision.next(), ..record });
        assert!(lent.iter().all(|one| !one.is_live()), "they die with the revision as well");
    }

    /// A session with a capability, whose record then moves as `moved` says, while its transaction
    /// is open.
    fn outlives(purpose: Purpose, moved: impl FnOnce(&mut FenceRecord)) -> bool {
        let (state, class) = match purpose {
            Purpose::Import => (FenceState::TargetQuarantined, WRITE),
            Purpose::Validation => (FenceState::TargetValidating, READ),
        };
        let (gate, mut record) = target(state);
        let issued = issue(&gate, &record, purpose);
        let text = issued.secret().expose().to_owned();
        let seat = bearer(&gate, gate.present(text.as_bytes()).unwrap());
        let (mut lease, _) = seat.begin(class, 0).unwrap();
        lease.paused();
        record.revision = record.revision.next();
        moved(&mut record);
        apply(&gate, &record);
        let goes_on = lease.extend(class, true).is_ok();
        let ends = lease.extend(StatementClass::TransactionControl, true);
        assert!(ends.is_ok(), "the end of a transaction is never denied");
        lease.answered();
        let begins = denied(&seat, class).is_none();
        goes_on || begins || gate.present(text.as_bytes()).is_some()
    }

    #[test]
    fn invariant_15_a_capability_dies_with_the_revision() {
        for purpose in Purpose::ALL {
            // The bare revision, as by a recorded validation: the gate's word doesn't move.
            let revision = outlives(purpose, |_| {});
            assert!(!revision, "VIOLATION: {purpose:?} outlives its revision");
            let owner = outlives(purpose, |record| record.operation = sample::operation(7));
            assert!(!owner, "VIOLATION: {purpose:?} outlives its owner");
        }
    }

    /// Control arm: without the guard the very check above reports it.
    #[test]
    #[cfg(debug_assertions)]
    fn invariant_15_a_capability_that_outlives_its_revision_is_reported() {
        let test = "gate::capability::tests::invariant_15_a_capability_dies_with_the_revision";
        crate::base::arm::missed(test, &[("capability-life", "Import outlives")]).unwrap();
    }

    #[test]
    fn one_of_another_target_is_none() {
        let (gate, record) = target(FenceState::TargetQuarantined);
        let gates = Gates::new(Generation(1));
        let namespace = Namespace::parse("new/other").unwrap();
        let other = gates.gate(&namespace);
        apply(&other, &FenceRecord { namespace, ..record.clone() });
        let issued = issue(&gate, &record, Purpose::Import);
        assert!(other.present(issued.secret().expose().as_bytes()).is_none());
        let seat = bearer(&other, issued.capability().clone());
        assert_eq!(denied(&seat, WRITE), Some(Denial::CapabilityRequired));
    }

    #[test]
    fn a_validation_reads_and_never_writes() {
        for state in [FenceState::TargetValidating, FenceState::TargetWriteFenced] {
            let (gate, record) = target(state);
            let issued = issue(&gate, &record, Purpose::Validation);
            let seat = bearer(&gate, issued.capability().clone());
            let (mut lease, guard) = seat.begin(READ, 0).unwrap();
            assert_eq!(guard, Guard::On, "the engine refuses what the text doesn't show");
            for class in [WRITE, StatementClass::Ddl, StatementClass::Unprovable] {
                assert_eq!(denied(&seat, class), Some(Denial::CapabilityRequired), "{class:?}");
                let more = lease.extend(class, false).unwrap_err();
                assert_eq!(more.denial, Denial::CapabilityRequired);
            }
            lease.answered();
        }
    }

    #[test]
    fn a_session_may_show_one_later_and_keeps_its_place() {
        let (gate, record) = target(FenceState::TargetQuarantined);
        let plain = Seat::take(Arc::clone(&gate), SessionId(2), Card::default());
        plain.slot().set_engine_pid(77);
        let issued = issue(&gate, &record, Purpose::Import);
        let seat = plain.bearing(issued.capability().clone());
        drop(plain);
        assert_eq!(gate.session_count(), 1);
        assert_eq!(seat.slot().engine_pid(), 77);
        assert_eq!(seat.slot().purpose(), Some(Purpose::Import));
        assert_eq!(denied(&seat, WRITE), None);
        drop(seat);
        assert_eq!(gate.session_count(), 0);
    }

    #[test]
    fn a_seal_waits_for_what_an_import_has_open() {
        let (gate, mut record) = target(FenceState::TargetQuarantined);
        let issued = issue(&gate, &record, Purpose::Import);
        let seat = bearer(&gate, issued.capability().clone());
        let (mut lease, _) = seat.begin(WRITE, 0).unwrap();
        gate.overlay(Overlay::Installing, InFlight::Refuse);
        assert_eq!(lease.extend(WRITE, true).unwrap_err().denial, Denial::WriteFenced);
        record.state = FenceState::TargetImportDraining;
        record.revision = record.revision.next();
        record.drain_policy = Some(sample::policy());
        record.drain_started_at_ms = Some(1);
        apply(&gate, &record);
        let mut drain = Drain::of(Arc::clone(&gate)).unwrap();
        assert!(drain.look().is_none(), "the transaction is still open");
        assert_eq!(lease.extend(WRITE, true).unwrap_err().denial, Denial::CapabilityRequired);
        lease.extend(StatementClass::TransactionControl, true).unwrap();
        lease.answered();
        assert_eq!(drain.look().unwrap().by_answer(), 1);
    }
}
