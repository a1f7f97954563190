//! A session's slot: where it publishes its lease for every drain to see (wire.md W2).
//!
//! Purpose: one atomic word per session, written by that session alone and read by drains, beside
//! what people are shown about the session. Invariant 7 (`docs/INVARIANTS.md`): a lease without an
//! outcome is not finished; the slot of a session that ended without one stays in the gate's table
//! as abandoned until the engine shows that the backend is gone. Called by `gate/admission.rs` and
//! read by `gate/drain.rs`; it decides nothing.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::ids::{EngineName, Generation, SessionId};
use crate::base::run::EngineRun;
use crate::fence::verdict::Purpose;
use crate::gate::bell::Bell;
use crate::gate::shared::SharedWord;

const WRITER: u64 = 1;
const READER: u64 = 1 << 1;
const RUNNING: u64 = 1 << 2;
const GUARDED: u64 = 1 << 3;
const STREAM: u64 = 1 << 4;
const GENERATION_SHIFT: u32 = 8;

/// Whether a program is on the engine right now, and under what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Running {
    /// None: the session is between programs, in an open transaction.
    No,
    /// One that the engine runs in read-only mode, by the proxy's guard.
    Guarded,
    /// One that nothing but its class keeps from writing.
    Unguarded,
}

/// A published claim: "work of this kind, admitted under this generation, is running".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Whether it may write.
    pub writer: bool,
    /// The generation it was admitted under.
    pub generation: Generation,
    /// What runs under it at this moment.
    pub running: Running,
    /// It was taken for a replica's stream.
    pub stream: bool,
}

impl Stamp {
    /// Whether a guarded read runs under it, and nothing that may write or streams.
    #[must_use]
    pub const fn is_guarded_read(self) -> bool {
        matches!(self.running, Running::Guarded) && !self.writer && !self.stream
    }

    const fn pack(self) -> u64 {
        let kind = if self.writer { WRITER } else { READER };
        let running = match self.running {
            Running::No => 0,
            Running::Guarded => RUNNING | GUARDED,
            Running::Unguarded => RUNNING,
        };
        let stream = if self.stream { STREAM } else { 0 };
        (self.generation.0 << GENERATION_SHIFT) | kind | running | stream
    }

    const fn unpack(bits: u64) -> Option<Self> {
        if bits & (WRITER | READER) == 0 {
            return None;
        }
        let running = match (bits & RUNNING != 0, bits & GUARDED != 0) {
            (false, _) => Running::No,
            (true, true) => Running::Guarded,
            (true, false) => Running::Unguarded,
        };
        let generation = Generation(bits >> GENERATION_SHIFT);
        let (writer, stream) = (bits & WRITER != 0, bits & STREAM != 0);
        Some(Self { writer, generation, running, stream })
    }
}

/// What people are shown about a session; replaced as a whole, off the statement path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Card {
    /// The client's address as `host:port`, or the socket path.
    pub client: String,
    /// The database role.
    pub user: String,
    /// The client's `application_name`.
    pub application_name: String,
    /// The listener's default engine and the name that the client asked for, from which a route
    /// was taken.
    pub came_by: Option<(EngineName, String)>,
}

/// Something the control side wants of a session; bits, so that asking twice is asking once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order(u32);

impl Order {
    /// Roll back what is running or open, if it was admitted before the order's generation.
    pub const ROLL_BACK: Self = Self(1);
    /// End the session as soon as it is between transactions.
    pub const FINISH: Self = Self(1 << 1);
    /// End the session now.
    pub const END: Self = Self(1 << 2);

    /// The backend was ended by force: end the session if it still holds a lease older than the
    /// order's generation, without waiting for a client that may have stopped reading.
    pub const GIVE_UP: Self = Self(1 << 3);

    /// The running program waits for the fence's own engine lock: it tries to write. Stop it. Given
    /// by [`Slot::order_stop`], which says which program.
    pub const STOP_WRITING: Self = Self(1 << 4);

    /// Say where you stand: a lease is held only because the engine's last answer, an error, told
    /// no status. The engine is asked again.
    pub const LOOK: Self = Self(1 << 8);

    /// The gate moved while a program of this session was held: ask admission again.
    pub const JUDGE_AGAIN: Self = Self(1 << 5);

    /// The client wants its held program cancelled.
    pub const CANCEL_HELD: Self = Self(1 << 6);

    /// The name by which the client came leads elsewhere now: nothing of this session is held any
    /// more, what is held ends with it (W21).
    pub const ROUTE_MOVED: Self = Self(1 << 7);

    /// Reads are fenced and their time is over: stop what reads under a lease older than the
    /// order's generation, and roll back a transaction that keeps a cursor. The client is told
    /// the read fence's code.
    pub const STOP_READING: Self = Self(1 << 9);

    /// As [`Order::GIVE_UP`], for what reads under an older lease.
    pub const GIVE_UP_READING: Self = Self(1 << 10);

    /// Whether `self` includes `other`.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether nothing is asked.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Which capability a session shows, without anything that could be shown again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bears {
    /// Its number at the gate ([`crate::gate::capability::Capability::number`]).
    pub number: u64,
    /// What it is for.
    pub purpose: Purpose,
}

/// What the control side is told of a session.
#[derive(Debug)]
struct Told {
    card: Arc<Card>,
    /// The run of the engine that the backend belongs to, once that is known.
    run: Option<Arc<EngineRun>>,
}

/// One session's place in its gate's table.
#[derive(Debug)]
pub struct Slot {
    id: SessionId,
    /// Which capability the session shows, if it does.
    bears: Option<Bears>,
    /// It is a login's: no session listens to orders yet.
    at_login: bool,
    lease: SharedWord,
    /// How often nothing has come to run unguarded. See [`Slot::pauses`].
    pauses: AtomicU64,
    since_ms: AtomicU64,
    engine_pid: AtomicI32,
    /// How often the control side had seen a new run of some engine when the last exchange began
    /// that this session's engine has answered, plus one; 0 before there was one.
    alive: AtomicU64,
    abandoned: AtomicBool,
    /// The lease is held only because the engine's last answer told no status.
    unsure: AtomicBool,
    /// Rows that the client hasn't fetched wait in the engine.
    cursor: AtomicBool,
    /// Since when a program of the session is held, plus one; 0 while none is.
    held_since: AtomicU64,
    orders: AtomicU32,
    order_generation: AtomicU64,
    /// [`Slot::pauses`] of the program that [`Order::STOP_WRITING`] is meant for.
    to_stop: AtomicU64,
    /// Wakes the session's task when an order comes. One for all slots of a session.
    pub(crate) ordered: Arc<Bell>,
    /// Guards what the control side is told; off the statement path, each time for one look or
    /// replacement. A lock, because it costs a session that comes and goes nothing to end.
    told: Mutex<Told>,
}

impl Slot {
    /// A slot without a lease.
    #[must_use]
    pub fn new(id: SessionId, card: impl Into<Arc<Card>>) -> Self {
        Self::with_bell(id, card.into(), Arc::new(Bell::default()), None)
    }

    /// A slot of a session that has another one: an order at either wakes it.
    pub(super) fn with_bell(
        id: SessionId,
        card: Arc<Card>,
        bell: Arc<Bell>,
        bears: Option<Bears>,
    ) -> Self {
        Self {
            id,
            bears,
            at_login: false,
            lease: SharedWord::new(0),
            pauses: AtomicU64::new(0),
            since_ms: AtomicU64::new(0),
            engine_pid: AtomicI32::new(0),
            alive: AtomicU64::new(0),
            abandoned: AtomicBool::new(false),
            unsure: AtomicBool::new(false),
            cursor: AtomicBool::new(false),
            held_since: AtomicU64::new(0),
            orders: AtomicU32::new(0),
            order_generation: AtomicU64::new(0),
            to_stop: AtomicU64::new(0),
            ordered: bell,
            told: Mutex::new(Told { card, run: None }),
        }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        // Each use is one look or one replacement: a panic leaves nothing half done.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot of a login that the engine may run code in. Nobody listens to its orders.
    #[must_use]
    pub(super) fn of_login(id: SessionId, card: Arc<Card>) -> Self {
        Self { at_login: true, ..Self::new(id, card) }
    }

    /// Whether it is a login's ([`crate::gate::logins`]), and not yet a session's.
    #[must_use]
    pub const fn is_login(&self) -> bool {
        self.at_login
    }

    /// Publishes a login as a writer that is older than every closing, or as nothing.
    pub(super) fn publish_login(&self, at_engine: bool) {
        let (generation, running) = (Generation(0), Running::Unguarded);
        let stamp = Stamp { writer: true, generation, running, stream: false };
        self.publish(at_engine.then_some(stamp));
    }

    /// The session's number.
    #[must_use]
    pub const fn id(&self) -> SessionId {
        self.id
    }

    /// What the session's capability is for; `None` for a session without one.
    #[must_use]
    pub fn purpose(&self) -> Option<Purpose> {
        self.bears.map(|bears| bears.purpose)
    }

    /// Which capability the session shows; `None` for a session without one.
    #[must_use]
    pub const fn bears(&self) -> Option<Bears> {
        self.bears
    }

    /// The engine's process id of this session, 0 while there is none.
    #[must_use]
    pub fn engine_pid(&self) -> i32 {
        self.engine_pid.load(Ordering::Acquire)
    }

    /// Notes the engine's process id (from BackendKeyData).
    pub fn set_engine_pid(&self, pid: i32) {
        self.engine_pid.store(pid, Ordering::Release);
    }

    /// Notes that the engine has answered an exchange of this session that began when the gates
    /// had counted `looks` ([`Gates::looks`]): its backend was alive after that.
    ///
    /// [`Gates::looks`]: crate::gate::registry::Gates::looks
    pub fn note_alive(&self, looks: u64) {
        let alive = looks.saturating_add(1);
        if self.alive.load(Ordering::Acquire) < alive {
            self.alive.store(alive, Ordering::Release);
        }
    }

    /// The count at the beginning of the last exchange that was answered.
    #[must_use]
    pub fn alive(&self) -> Option<u64> {
        self.alive.load(Ordering::Acquire).checked_sub(1)
    }

    /// The run of the engine that the backend belongs to; `None` while it isn't known, and where
    /// it can't be.
    #[must_use]
    pub fn run(&self) -> Option<Arc<EngineRun>> {
        self.told().run.clone()
    }

    /// Notes the run, once it is known. A connection has one backend, so it stays.
    pub fn set_run(&self, run: Arc<EngineRun>) {
        self.told().run = Some(run);
    }

    /// Takes over what is known of the backend from another slot of the same session.
    pub fn has_backend_of(&self, other: &Self) {
        self.set_engine_pid(other.engine_pid());
        self.alive.store(other.alive.load(Ordering::Acquire), Ordering::Release);
        let run = other.run();
        self.told().run = run;
    }

    /// What people are shown.
    #[must_use]
    pub fn card(&self) -> Arc<Card> {
        Arc::clone(&self.told().card)
    }

    /// Replaces what people are shown.
    pub fn set_card(&self, card: Card) {
        self.told().card = Arc::new(card);
    }

    /// The lease as published at this moment.
    #[must_use]
    pub fn stamp(&self) -> Option<Stamp> {
        Stamp::unpack(self.lease.load())
    }

    /// Whether a program is on the engine right now.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.lease.load() & RUNNING != 0
    }

    /// How often a lease of this slot was published under which nothing runs unguarded, or none: it
    /// moves behind the end of each program, so that one program can be told from the next.
    /// Sequentially consistent, as the lease itself is (`gate/programs.rs`).
    #[must_use]
    pub fn pauses(&self) -> u64 {
        self.pauses.load(Ordering::SeqCst)
    }

    /// When the lease was taken, in milliseconds of the process's monotonic clock.
    #[must_use]
    pub fn since_ms(&self) -> u64 {
        self.since_ms.load(Ordering::Acquire)
    }

    /// Whether the session ended without an observed release of its lease.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::SeqCst)
    }

    /// Whether the lease may be one that nothing needs any more: see [`Order::LOOK`].
    #[must_use]
    pub fn is_unsure(&self) -> bool {
        self.unsure.load(Ordering::SeqCst)
    }

    /// Notes that the engine's last answer told no status, or that a later one has. Whoever sets
    /// it looks at the gate afterwards: a drain closes the gate first and then looks here.
    pub fn set_unsure(&self, unsure: bool) {
        // The session alone writes it: where it is so already, there is nothing to be seen.
        if self.unsure.load(Ordering::SeqCst) != unsure {
            self.unsure.store(unsure, Ordering::SeqCst);
        }
    }

    /// Whether a cursor or a suspended portal of this session is open: rows that its client hasn't
    /// fetched wait in the engine, also while no program runs.
    #[must_use]
    pub fn has_cursor(&self) -> bool {
        self.cursor.load(Ordering::SeqCst)
    }

    /// Whether something reads through this session at this moment: a program runs, or a cursor is
    /// open. The lease is looked at first: whoever opens a cursor says so while its program runs.
    #[must_use]
    pub fn is_reading(&self) -> bool {
        self.is_running() || self.has_cursor()
    }

    pub(super) fn set_cursor(&self, open: bool) {
        self.cursor.store(open, Ordering::SeqCst);
    }

    /// Since when a program of this session is held at the closed gate, in milliseconds of the
    /// process's monotonic clock; `None` while none is.
    #[must_use]
    pub fn held_since_ms(&self) -> Option<u64> {
        self.held_since.load(Ordering::SeqCst).checked_sub(1)
    }

    pub(super) fn note_held(&self, since_ms: Option<u64>) {
        let noted = since_ms.map_or(0, |since| since.saturating_add(1));
        self.held_since.store(noted, Ordering::SeqCst);
    }

    /// Gives an order that concerns leases older than `before` and wakes the session.
    pub fn order(&self, order: Order, before: Generation) {
        self.order_generation.fetch_max(before.0, Ordering::SeqCst);
        self.orders.fetch_or(order.0, Ordering::SeqCst);
        self.ordered.ring();
    }

    /// Orders the program stopped that ran when [`Slot::pauses`] was `pauses`, and no later one.
    /// `before` is as for [`Slot::order`].
    pub fn order_stop(&self, pauses: u64, before: Generation) {
        self.to_stop.store(pauses, Ordering::SeqCst);
        self.order(Order::STOP_WRITING, before);
    }

    /// Takes the orders given so far, with the generation below which they hold. An order to stop a
    /// program that has ended, or one that was admitted to write here, is left out. For the
    /// session's own task, which alone ends programs: what is true of the program stays so until
    /// that task lets another one begin.
    pub fn take_orders(&self) -> (Order, Generation) {
        let mut orders = self.orders.swap(0, Ordering::SeqCst);
        if orders & Order::STOP_WRITING.0 != 0 && !self.runs_what_is_to_stop() {
            orders &= !Order::STOP_WRITING.0;
        }
        (Order(orders), Generation(self.order_generation.load(Ordering::SeqCst)))
    }

    fn runs_what_is_to_stop(&self) -> bool {
        let reads = |stamp: Stamp| !stamp.writer && stamp.running != Running::No;
        self.pauses() == self.to_stop.load(Ordering::SeqCst) && self.stamp().is_some_and(reads)
    }

    pub(super) fn publish(&self, stamp: Option<Stamp>) {
        self.lease.store(stamp.map_or(0, Stamp::pack));
        if stamp.is_none_or(|stamp| stamp.running != Running::Unguarded) {
            self.pauses.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(super) fn note_since(&self, ms: u64) {
        self.since_ms.store(ms, Ordering::Release);
    }

    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
    }
}
