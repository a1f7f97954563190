//! Gates by namespace: what is published, and who has a session there.
//!
//! Purpose: wraps [`GateCore`] for many threads. A gate's word and policy change only in
//! [`Gate::apply`] (from the store) and [`Gate::overlay`] (closing, on the command path): invariant
//! 3. Gates start closed (invariant 4). Called by `control/` for changes and `wire/` for seats. The
//! statement path is in `gate/admission.rs`; nothing here is on it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use dashmap::DashMap;
use tokio::sync::Notify;

use crate::base::arm::{Removable, removed};
use crate::base::ids::{EngineName, Generation, Namespace, SessionId};
use crate::fence::record::InFlight;
use crate::fence::state::FenceState;
use crate::fence::verdict::{HoldRule, Overlay, Policy};
use crate::gate::capability::Capabilities;
use crate::gate::core::GateCore;
use crate::gate::hold::{HoldSight, Holds};
use crate::gate::logins::{AtLogin, Logins};
use crate::gate::shared::SharedWord;
use crate::gate::slot::Slot;
use crate::gate::word::Word;
use crate::store::{LoadedFence, Persisted, Row};

/// A policy together with the generation it was published under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The generation.
    pub generation: Generation,
    /// The policy.
    pub policy: Policy,
}

/// Where a change of admission may come from.
#[derive(Debug, Clone, Copy)]
pub enum Authority<'a> {
    /// A transition that the store has just committed.
    Committed(&'a Persisted),
    /// What the store holds, as read from it.
    Loaded(&'a LoadedFence),
}

/// What a closed gate does with work that it doesn't simply admit or refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The rule for writers of an older generation.
    pub in_flight: InFlight,
    /// Whether refused programs are held first; `None` keeps the rule that is published.
    pub hold: Option<HoldRule>,
}

impl From<InFlight> for Rules {
    fn from(in_flight: InFlight) -> Self {
        Self { in_flight, hold: None }
    }
}

/// The in-memory view of one namespace's fence that every admission reads.
#[derive(Debug)]
pub struct Gate {
    namespace: Namespace,
    word: SharedWord,
    pub(super) published: ArcSwap<Published>,
    /// Guards transitions: the generation and policy from which word and `published` are made.
    core: Mutex<GateCore>,
    /// Guards joining and leaving; the statement path never takes it. In order, so that drains look
    /// at slots in one and the same order each time, which models need.
    sessions: Mutex<BTreeMap<SessionId, Arc<Slot>>>,
    /// Signalled at each release while writes are closed.
    pub(super) released: Notify,
    /// Programs that wait for this gate.
    pub(super) holds: Holds,
    /// The capabilities that live here.
    pub(super) capabilities: Capabilities,
    /// What is known of code that runs at a login.
    pub(super) at_login: AtLogin,
    /// See [`Gates::looks`].
    looks: Arc<AtomicU64>,
    /// The engine has said that an aborted target's database isn't there.
    is_gone: AtomicBool,
    /// Something came by that would pass if it were.
    is_asked: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while holding one of these locks can't leave the map or core half changed: each
    // critical section is a single insertion, removal or replacement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gate {
    fn new(
        namespace: Namespace,
        first: Generation,
        policy: Option<Policy>,
        (looks, logins): (Arc<AtomicU64>, Arc<Logins>),
    ) -> Self {
        let mut core = GateCore::closed(first);
        if let Some(policy) = policy {
            core.publish(policy);
        }
        let published = Published { generation: core.generation(), policy: core.policy().clone() };
        Self {
            namespace,
            word: SharedWord::new(Word::pack(published.generation, &published.policy).0),
            published: ArcSwap::from_pointee(published),
            core: Mutex::new(core),
            sessions: Mutex::new(BTreeMap::new()),
            released: Notify::new(),
            holds: Holds::new(),
            capabilities: Capabilities::default(),
            at_login: AtLogin::new(logins),
            looks,
            is_gone: AtomicBool::new(false),
            is_asked: AtomicBool::new(false),
        }
    }

    /// As [`Gates::looks`].
    pub(super) fn looks(&self) -> u64 {
        self.looks.load(Ordering::SeqCst)
    }

    /// The namespace it guards.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The word as it is now.
    #[must_use]
    pub fn word(&self) -> Word {
        Word(self.word.load())
    }

    /// Policy and generation as published.
    #[must_use]
    pub fn published(&self) -> Arc<Published> {
        self.published.load_full()
    }

    /// Publishes what the store says, removing any overlay. Returns the generation in force.
    ///
    /// `rules` are those for writers admitted before and for programs that come now.
    pub fn apply(&self, authority: Authority<'_>, rules: impl Into<Rules>) -> Generation {
        let record = match authority {
            Authority::Committed(persisted) => persisted.record(),
            Authority::Loaded(loaded) => match loaded.row() {
                Row::Good(persisted) => persisted.record(),
                Row::Absent => None,
                Row::Bad { .. } => return self.publish(Policy::unknown(), rules.into()),
            },
        };
        let policy = record.map_or_else(Policy::unfenced, |record| Policy {
            state: record.state,
            revision: record.revision,
            operation: Some(record.operation),
            ..Policy::unfenced()
        });
        self.publish(policy, rules.into())
    }

    /// Whether a program that may name any database of the engine must be admitted here too. An
    /// aborted target alone is left out, and only while its database is gone by the engine's own
    /// word: that state is never left, so nothing can be proven of it later. Has the engine asked
    /// again.
    #[must_use]
    pub fn may_be_meant(&self) -> bool {
        let published = self.published.load();
        let Policy { state, overlay, .. } = published.policy;
        if state != FenceState::TargetAborted || overlay != Overlay::None {
            return true;
        }
        self.is_asked.store(true, Ordering::SeqCst);
        !self.is_gone.load(Ordering::SeqCst) && !removed(Removable::AbortedGate)
    }

    /// Whether something came by since the last call that an aborted target alone may be in the way
    /// of.
    pub fn takes_question(&self) -> bool {
        self.is_asked.swap(false, Ordering::SeqCst)
    }

    /// Notes whether an aborted target's database is gone, by the engine's word; answers what was
    /// known before. Has no effect in any other state.
    pub fn set_gone(&self, gone: bool) -> bool {
        self.is_gone.swap(gone, Ordering::SeqCst)
    }

    /// Puts a closing overlay on top of what is published. Closing needs no evidence;
    /// [`Overlay::None`], which would open, changes nothing: that is [`Gate::apply`]'s alone.
    pub fn overlay(&self, overlay: Overlay, rules: impl Into<Rules>) -> Generation {
        let mut core = locked(&self.core);
        if overlay == Overlay::None {
            return core.generation();
        }
        let policy = Policy { overlay, ..core.policy().clone() };
        self.publish_locked(&mut core, policy, rules.into())
    }

    /// What opening without the store's word would be: the control arm of invariant 13, and nothing
    /// else (`base/arm.rs`). Changes nothing unless that guard is removed.
    pub fn open_unasked(&self) {
        if removed(Removable::StopLeavesGates) {
            self.publish(Policy::unfenced(), InFlight::Finish.into());
        }
    }

    /// Denies everything: nothing is known about the namespace any more.
    pub fn close_as_unknown(&self) -> Generation {
        self.publish(Policy::unknown(), Policy::unknown().in_flight.into())
    }

    fn publish(&self, policy: Policy, rules: Rules) -> Generation {
        let mut core = locked(&self.core);
        self.publish_locked(&mut core, policy, rules)
    }

    /// Looks at the policy while nothing can be published.
    pub(super) fn while_published<T>(&self, look: impl FnOnce(&Policy) -> T) -> T {
        look(locked(&self.core).policy())
    }

    /// Capabilities end before anything else, where state, owner or revision move (invariant 15):
    /// whoever was admitted by one has its lease published before the word moves, and is waited
    /// for. Then policy first, word second: a reader that sees the new word and an older policy
    /// waits for the pair to agree (`gate/admission.rs`). Who is held is called last: whoever
    /// enters the queue too late to be called sees the new word.
    fn publish_locked(&self, core: &mut GateCore, policy: Policy, rules: Rules) -> Generation {
        let before = core.generation();
        let hold = rules.hold.unwrap_or(core.policy().hold);
        let policy = Policy { in_flight: rules.in_flight, hold, ..policy };
        let bound = |policy: &Policy| (policy.state, policy.operation, policy.revision);
        if bound(core.policy()) != bound(&policy) && !removed(Removable::CapabilityLife) {
            self.capabilities.end();
        }
        if core.policy().writes_open() && !policy.writes_open() {
            self.at_login.closing();
        }
        let generation = core.publish(policy.clone());
        let word = Word::pack(generation, &policy);
        self.published.store(Arc::new(Published { generation, policy }));
        self.word.store(word.0);
        self.released.notify_waiters();
        if generation != before {
            self.holds.moved();
        }
        generation
    }

    /// What is held at this gate now.
    #[must_use]
    pub fn held(&self) -> HoldSight {
        self.holds.sight()
    }

    pub(super) fn join(&self, slot: Arc<Slot>) {
        locked(&self.sessions).insert(slot.id(), slot);
    }

    /// Removes a session, unless it left a lease without an outcome: that one stays and counts.
    pub(super) fn leave(&self, slot: &Slot) {
        if slot.is_abandoned() {
            return;
        }
        let mut sessions = locked(&self.sessions);
        // A seat that took this one's place under the same number keeps it.
        if sessions.get(&slot.id()).is_some_and(|there| std::ptr::eq(Arc::as_ptr(there), slot)) {
            sessions.remove(&slot.id());
        }
    }

    /// Every session in the table, abandoned ones included.
    #[must_use]
    pub fn sessions(&self) -> Vec<Arc<Slot>> {
        locked(&self.sessions).values().cloned().collect()
    }

    /// How many sessions are in the table.
    #[must_use]
    pub fn session_count(&self) -> usize {
        locked(&self.sessions).len()
    }

    /// Takes an abandoned session out of the table because the engine has shown that its backend
    /// is gone. Only `control/drain.rs` calls this, with that evidence in hand.
    pub fn settle(&self, session: SessionId) -> bool {
        let mut sessions = locked(&self.sessions);
        let abandoned = sessions.get(&session).is_some_and(|slot| slot.is_abandoned());
        if abandoned {
            sessions.remove(&session);
            drop(sessions);
            self.released.notify_waiters();
        }
        abandoned
    }
}

/// All gates of this process.
#[derive(Debug)]
pub struct Gates {
    gates: DashMap<Namespace, Arc<Gate>>,
    /// How many were ever made: whoever keeps a list sees by it that there are more.
    made: AtomicU64,
    recovered: AtomicBool,
    /// Engines at which new gates start closed, and why, in a sentence.
    shut: ArcSwap<BTreeMap<EngineName, String>>,
    /// How often a new run of some engine was seen. Moves after the engine's answer.
    looks: Arc<AtomicU64>,
    /// Logins that engines work on.
    pub(super) logins: Arc<Logins>,
    first: Generation,
}

impl Gates {
    /// No gates, and every new one closed until [`Gates::recovered`].
    ///
    /// `first` is the generation new gates start from. It must be above every generation that an
    /// earlier process of this instance used (invariant 5): the caller takes it from the clock.
    #[must_use]
    pub fn new(first: Generation) -> Self {
        let (gates, made) = (DashMap::new(), AtomicU64::new(0));
        let (recovered, looks) = (AtomicBool::new(false), Arc::default());
        let (shut, logins) = (ArcSwap::default(), Arc::default());
        Self { gates, made, recovered, shut, looks, logins, first }
    }

    /// The gate of a namespace, made on first use: closed before recovery has listed every durable
    /// record, open (no record) after it.
    #[must_use]
    pub fn gate(&self, namespace: &Namespace) -> Arc<Gate> {
        if let Some(gate) = self.known(namespace) {
            return gate;
        }
        let entry = self.gates.entry(namespace.clone()).or_insert_with(|| {
            self.made.fetch_add(1, Ordering::SeqCst);
            // Asked here, with the entry locked: whoever opens an engine's gates sees this one.
            let recovered = self.recovered.load(Ordering::SeqCst);
            let open =
                (recovered || removed(Removable::ClosedStart)) && !self.is_shut(namespace.engine());
            let policy = open.then(Policy::unfenced);
            let shared = (Arc::clone(&self.looks), Arc::clone(&self.logins));
            Arc::new(Gate::new(namespace.clone(), self.first, policy, shared))
        });
        Arc::clone(&entry)
    }

    /// The gate of a namespace if one was made; looking doesn't make one.
    #[must_use]
    pub fn known(&self, namespace: &Namespace) -> Option<Arc<Gate>> {
        self.gates.get(namespace).map(|gate| Arc::clone(&gate))
    }

    /// How often the control side has seen a new run of some engine. Whoever reads this before an
    /// exchange with an engine knows by it what had been seen before.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::SeqCst)
    }

    /// Counts one more, after the answer that showed it.
    pub fn looked(&self) -> u64 {
        self.looks.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Says that every durable record and marker has been read and applied.
    pub fn recovered(&self) {
        self.recovered.store(true, Ordering::SeqCst);
    }

    /// Has the gates of these engines, and of no others, start closed from now on, for the reasons
    /// given. Gates that were made before stay as they are.
    pub fn shut(&self, engines: BTreeMap<EngineName, String>) {
        self.shut_as(|_| engines.clone());
    }

    /// As [`Gates::shut`], told by the engines that are shut now; nobody comes in between. `next`
    /// may be asked more than once.
    pub fn shut_as(
        &self,
        next: impl Fn(&BTreeMap<EngineName, String>) -> BTreeMap<EngineName, String>,
    ) {
        self.shut.rcu(|current| Arc::new(next(current)));
    }

    /// The engines whose gates start closed, and why.
    #[must_use]
    pub fn shut_engines(&self) -> Arc<BTreeMap<EngineName, String>> {
        self.shut.load_full()
    }

    /// Whether an engine's gates start closed.
    #[must_use]
    pub fn is_shut(&self, engine: &EngineName) -> bool {
        self.shut.load().contains_key(engine)
    }

    /// How many gates were ever made. They are never taken away.
    #[must_use]
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::SeqCst)
    }

    /// Every gate.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Gate>> {
        self.gates.iter().map(|entry| Arc::clone(entry.value())).collect()
    }
}
