//! The one place where work is admitted: publish the lease, read the gate again, or take it back.
//!
//! Purpose: invariant 2, deciding and registering are one critical section with respect to a
//! closing gate, without a lock (wire.md W1 to W3). A session publishes its lease in its own slot
//! and then reads the word again; a closing gate changes the word and then reads the slots. Both
//! are sequentially consistent, so at least one of the two sees the other: either the session sees
//! the closed word and takes its lease back, or the drain sees the lease and waits for it.
//!
//! Called by `wire/`. It allocates nothing but the refusal, and touches no line that another
//! session writes.

use std::sync::Arc;

use crate::base::arm::{Removable, removed};
use crate::base::fault;
use crate::base::ids::{Namespace, SessionId};
use crate::fence::code::Denial;
use crate::fence::verdict::{Held, Verdict, judge, judge_bearing};
use crate::gate::capability::Capability;
use crate::gate::lease::Lease;
use crate::gate::registry::{Gate, Published};
use crate::gate::shared::spin;
use crate::gate::slot::{Bears, Card, Running, Slot, Stamp};
use crate::gate::word::Word;
use crate::sql::StatementClass;

/// A session's seat at a gate: the gate and its slot in the gate's table.
#[derive(Debug)]
pub struct Seat {
    gate: Arc<Gate>,
    slot: Arc<Slot>,
    /// What the session has shown at this gate. A seat's whole life, so that the statement path
    /// needs no synchronisation to look.
    capability: Option<Capability>,
}

/// A typed refusal, with what the client is told about the fence.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// Which one.
    pub denial: Denial,
    /// The namespace that refused.
    pub namespace: Namespace,
    /// What was published when it was refused.
    pub published: Arc<Published>,
}

/// Whether an admitted program needs the engine in read-only mode (wire.md W17).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// The gate is open: nothing is injected.
    Off,
    /// Writes are closed: the engine must refuse them for this program.
    On,
}

impl Seat {
    /// Takes a seat: from now on the gate's drains look at this session's slot.
    #[must_use]
    pub fn take(gate: Arc<Gate>, id: SessionId, card: impl Into<Arc<Card>>) -> Arc<Self> {
        let slot = Arc::new(Slot::new(id, card));
        gate.join(Arc::clone(&slot));
        Arc::new(Self { gate, slot, capability: None })
    }

    /// As [`Seat::take`], for a session that has shown a capability at this gate: from now on it
    /// is judged by that, and by nothing else.
    #[must_use]
    pub fn take_bearing(
        gate: Arc<Gate>,
        id: SessionId,
        card: impl Into<Arc<Card>>,
        capability: Capability,
    ) -> Arc<Self> {
        Self::take(gate, id, card).bearing(capability)
    }

    /// Takes the place of this seat for the same session, which has now shown a capability. Only
    /// while nothing is leased here: a lease stays with the seat that it was given at.
    #[must_use]
    pub fn bearing(&self, capability: Capability) -> Arc<Self> {
        let (slot, gate) = (&self.slot, Arc::clone(&self.gate));
        debug_assert!(slot.stamp().is_none(), "a lease would be out of the drains' sight");
        let (card, bell) = (slot.card(), Arc::clone(&slot.ordered));
        let bears = Bears { number: capability.number(), purpose: capability.purpose() };
        let bearing = Arc::new(Slot::with_bell(slot.id(), card, bell, Some(bears)));
        bearing.has_backend_of(slot);
        gate.join(Arc::clone(&bearing));
        Arc::new(Self { gate, slot: bearing, capability: Some(capability) })
    }

    /// The capability that the session has shown here.
    #[must_use]
    pub const fn capability(&self) -> Option<&Capability> {
        self.capability.as_ref()
    }

    /// Takes a seat at another gate for the session that has this one. A capability is of one
    /// namespace and doesn't go with it.
    #[must_use]
    pub fn take_beside(&self, gate: Arc<Gate>) -> Arc<Self> {
        let slot = &self.slot;
        let bell = Arc::clone(&slot.ordered);
        let beside = Arc::new(Slot::with_bell(slot.id(), slot.card(), bell, None));
        beside.has_backend_of(slot);
        gate.join(Arc::clone(&beside));
        Arc::new(Self { gate, slot: beside, capability: None })
    }

    /// The session's slot.
    #[must_use]
    pub fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// The gate.
    #[must_use]
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Admits new work outside any transaction. `now_ms` is the process's monotonic clock, for
    /// people.
    ///
    /// # Errors
    /// [`Refusal`] when the gate doesn't admit the class.
    pub fn begin(
        self: &Arc<Self>,
        class: StatementClass,
        now_ms: u64,
    ) -> Result<(Lease, Guard), Box<Refusal>> {
        let (stamp, guard) = self.admit(class, None, true)?;
        self.slot.note_since(now_ms);
        Ok((Lease::new(Arc::clone(self), stamp), guard))
    }

    /// Admits what may only end a transaction that is open without a lease: one of the proxy's own
    /// making, behind a forced rollback. Like the end of any transaction it is never denied.
    pub fn begin_end(self: &Arc<Self>, now_ms: u64) -> (Lease, Guard) {
        let class = StatementClass::TransactionControl;
        loop {
            let generation = self.gate.word().generation();
            let held = Stamp { writer: false, generation, running: Running::No, stream: false };
            // Refused only where the gate moved on the way.
            if let Ok((stamp, guard)) = self.admit(class, Some(held), true) {
                self.slot.note_since(now_ms);
                return (Lease::new(Arc::clone(self), stamp), guard);
            }
        }
    }

    /// What admission would be if a held program went on without being judged again: the control
    /// arm of invariant 9, and nothing else (`base/arm.rs`). `None` unless that guard is removed.
    #[must_use]
    pub fn begin_unjudged(self: &Arc<Self>, class: StatementClass, now_ms: u64) -> Option<Lease> {
        if !removed(Removable::HeldJudgement) {
            return None;
        }
        let generation = self.gate.word().generation();
        let stamp = Stamp {
            writer: class.is_writer(),
            generation,
            running: Running::Unguarded,
            stream: false,
        };
        self.slot.publish(Some(stamp));
        self.slot.note_since(now_ms);
        Some(Lease::new(Arc::clone(self), stamp))
    }

    /// Admits more work under a lease that is held: the next statement of a transaction or of an
    /// unfinished program. `begins` says that nothing of its program has been forwarded. A reader's
    /// lease becomes a writer's only under its own generation (W3).
    ///
    /// # Errors
    /// [`Refusal`]; the lease stays as it was.
    pub fn extend(
        &self,
        lease: &mut Lease,
        class: StatementClass,
        begins: bool,
    ) -> Result<Guard, Box<Refusal>> {
        let held = lease.stamp();
        let covered = held.writer || !class.is_writer();
        let known = held.running == Running::Unguarded;
        let word = self.gate.word();
        let plain = self.capability.is_none();
        if plain && covered && known && word.all_open() && word.generation() == held.generation {
            return Ok(Guard::Off);
        }
        let (stamp, guard) = self.admit(class, Some(held), begins)?;
        lease.set_stamp(stamp);
        Ok(guard)
    }

    /// Judges new work that would run beside what a lease of this seat covers already. Safe because
    /// that lease has been published since before this look: a gate that closes later waits for it.
    pub(super) fn judge_new(&self, class: StatementClass) -> Result<(), Box<Refusal>> {
        loop {
            match self.decide(self.gate.word(), class, None) {
                Decided::Again => spin(),
                Decided::Admit(_) => return Ok(()),
                Decided::Refuse(refusal) => return Err(refusal),
            }
        }
    }

    fn admit(
        &self,
        class: StatementClass,
        held: Option<Stamp>,
        begins: bool,
    ) -> Result<(Stamp, Guard), Box<Refusal>> {
        self.admit_by::<true>(class, held, begins, |_| {})
    }

    /// Admission with its steps laid open: tests close the gate at each of them (`at`), and prove
    /// with `LOOK_AGAIN = false` that the second look is what the invariant rests on.
    pub(super) fn admit_by<const LOOK_AGAIN: bool>(
        &self,
        class: StatementClass,
        held: Option<Stamp>,
        begins: bool,
        mut at: impl FnMut(Step),
    ) -> Result<(Stamp, Guard), Box<Refusal>> {
        loop {
            let lived = self.capability_lives();
            let word = self.gate.word();
            at(Step::Read);
            let guard = match self.decide(word, class, held) {
                Decided::Again => {
                    spin();
                    continue;
                }
                Decided::Admit(guard) => guard,
                Decided::Refuse(refusal) => return Err(refusal),
            };
            let stamp = Stamp {
                writer: class.is_writer() || held.is_some_and(|held| held.writer),
                generation: held.map_or(word.generation(), |held| held.generation),
                running: match (held, begins, guard) {
                    (Some(held), false, Guard::On) => held.running,
                    (_, _, Guard::On) => Running::Guarded,
                    // A stream runs no statement of the client's: it needs no guard.
                    (None, _, Guard::Off) if class == StatementClass::Stream => Running::Guarded,
                    (_, _, Guard::Off) => Running::Unguarded,
                },
                stream: class == StatementClass::Stream || held.is_some_and(|held| held.stream),
            };
            if Some(stamp) == held {
                return Ok((stamp, guard));
            }
            at(Step::Decided);
            Self::pass(fault::point("gate.before_publish"));
            self.slot.publish(Some(stamp));
            at(Step::Published);
            let blind = !LOOK_AGAIN || removed(Removable::LeaseRecheck);
            if blind || self.gate.word() == word && self.capability_lives() == lived {
                return Ok((stamp, guard));
            }
            self.slot.publish(held);
            self.wake_drains();
        }
    }

    /// Whether there is no capability that died. One may die without a movement of the word, behind
    /// a recorded validation.
    fn capability_lives(&self) -> bool {
        self.capability.as_ref().is_none_or(Capability::is_live)
    }

    /// The point parks or aborts; an injected error means nothing here.
    fn pass(outcome: Result<(), fault::Fault>) {
        if let Err(fault) = outcome {
            tracing::error!(%fault, "ignored");
        }
    }

    fn decide(&self, word: Word, class: StatementClass, held: Option<Stamp>) -> Decided {
        let fresh = held.is_none_or(|held| held.generation == word.generation());
        if self.capability.is_none() && word.all_open() && fresh {
            return Decided::Admit(Guard::Off);
        }
        let published = self.gate.published();
        if Word::pack(published.generation, &published.policy) != word {
            return Decided::Again;
        }
        let held = held.map(|stamp| {
            let any = removed(Removable::GenerationCheck);
            let generation = if any { published.generation } else { stamp.generation };
            Held { writer: stamp.writer, generation }
        });
        let (policy, now) = (&published.policy, published.generation);
        let verdict = match &self.capability {
            None => judge(policy, now, class, held),
            Some(capability) => {
                let lives = capability.lives_at(self.gate.namespace(), policy);
                judge_bearing(policy, now, class, held, (capability.purpose(), lives))
            }
        };
        match verdict {
            Verdict::Admit { guard: true } => Decided::Admit(Guard::On),
            Verdict::Admit { guard: false } => Decided::Admit(Guard::Off),
            Verdict::Refuse(denial) => Decided::Refuse(Box::new(Refusal {
                denial,
                namespace: self.gate.namespace().clone(),
                published,
            })),
        }
    }

    pub(super) fn publish(&self, stamp: Stamp) {
        self.slot.publish(Some(stamp));
        self.wake_drains();
    }

    /// Notes that a cursor of the session is open, or that none is any more. Say that one is while
    /// the program that opens it runs, and that none is behind the engine's word.
    pub fn set_cursor(&self, open: bool) {
        if self.slot.has_cursor() != open {
            self.slot.set_cursor(open);
            self.wake_drains();
        }
    }

    pub(super) fn release(&self) {
        self.slot.publish(None);
        self.wake_drains();
    }

    /// Wakes drains, if there can be any: with writes open nobody waits for a release.
    pub(super) fn wake_drains(&self) {
        if !self.gate.word().writes_open() {
            self.gate.released.notify_waiters();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.gate.leave(&self.slot);
    }
}

/// The steps of an admission, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The word has been read.
    Read,
    /// It was decided to admit.
    Decided,
    /// The lease is published.
    Published,
}

enum Decided {
    Again,
    Admit(Guard),
    Refuse(Box<Refusal>),
}
