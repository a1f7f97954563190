//! Where one PostgreSQL session stands: leases, what is owed, the guard, a forced rollback.
//!
//! Purpose: the pure state behind the relay. `client.rs` sorts what the client sends, `answers.rs`
//! what the engine says; both change it only through what is here, and neither does I/O. Rules W3,
//! W4, W8, W9, W12, W13, W17 of wire.md; invariants 1 and 7. The relay (`relay.rs`) moves bytes.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::BytesMut;

use crate::base::arm::{Removable, removed};
use crate::base::fault;
use crate::base::ids::{Generation, Namespace};
use crate::fence::code::Denial;
use crate::gate::admission::{Guard, Refusal, Seat};
use crate::gate::drain::{Reading, is_dumps};
use crate::gate::lease::Lease;
use crate::gate::registry::Gates;
use crate::gate::slot::Running;
use crate::sql::PgLexing;
use crate::sql::{StatementClass, TxEffect};
use crate::wire::pg::auto_prepare::AutoPrepare;
use crate::wire::pg::bearing::Bearing;
use crate::wire::pg::guard::Armed;
use crate::wire::pg::owed::{Behind, Owed, Whose};
use crate::wire::pg::own_setting::OwnSetting;
use crate::wire::pg::prepared::{Prepared, Traits};
use crate::wire::pg::refusal::{self, Severity, StandIn, Status};
use crate::wire::shared::denials::{Denials, Surface};
pub(crate) use crate::wire::shared::forced::{Action, Forced};
use crate::wire::shared::outgoing::Outgoing;
use crate::wire::shared::waiting::Waiting;

use crate::base::limits;

/// What kind of connection the client asked for (startup parameter `replication`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// An ordinary session.
    Sql,
    /// A walsender that also runs SQL.
    LogicalReplication,
    /// A walsender that refuses SQL: no guard can be set there.
    PhysicalReplication,
}

/// What is thrown away of a refused pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Discard {
    /// Nothing.
    Nothing,
    /// Everything up to Sync, which the proxy answers itself with this status.
    Local(Status),
    /// Everything up to Sync, which the engine answers: it has the stand-in.
    ToSync,
}

/// How a message was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// To be forwarded.
    Free,
    /// To be forwarded; the engine runs it in read-only mode.
    Guarded,
    /// Not yet: something else must be answered first.
    Wait,
}

/// The session's state.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) seat: Arc<Seat>,
    pub(crate) lease: Option<Lease>,
    pub(crate) owed: Owed,
    pub(crate) prepared: Prepared,
    /// What is kept of unnamed statements, where the listener is to (`auto_prepare`).
    pub(crate) auto: Option<Box<AutoPrepare>>,
    /// The capability that the session shows, beside what its seat bears.
    pub(crate) bearing: Bearing,
    pub(crate) status: Status,
    /// The status that a program was last answered with, also where others were still owed.
    pub(crate) seen: Status,
    pub(crate) mode: Mode,
    pub(crate) discard: Discard,
    pub(crate) forced: Forced,
    /// What the client is told of what was, or is being, ended by force.
    pub(crate) forced_why: Denial,
    pub(crate) stand_in: StandIn,
    pub(crate) denials: Arc<Denials>,
    /// The session's lexing rules, as the engine reported them.
    pub(crate) lexing: PgLexing,
    /// The engine's major version, as it reported it; 15 when it can't be read.
    pub(crate) engine_major: u16,
    /// A program that may change the lexing rules is on its way.
    pub(crate) lexing_uncertain: bool,
    /// The client's own `default_transaction_read_only`.
    pub(crate) own: OwnSetting,
    /// The guard has set it on this session, and must undo that once writes are open.
    pub(crate) guard_on: bool,
    /// In this pipeline a guarded statement may have switched the guard off.
    pub(crate) guard_dropped: bool,
    /// A transaction may have been begun behind that, or without a guard: it isn't read-only from
    /// its beginning, whatever its lease's generation is.
    pub(crate) dropped_in_block: bool,
    /// The guard is in force for the program that begins next: the engine has said so, and nothing
    /// of the client's has run since.
    pub(crate) guard_ready: bool,
    /// How often in a row the guard's own statement failed.
    pub(crate) guard_tries: u32,
    /// The client may have an unnamed statement at the engine, which a simple query would drop.
    pub(crate) unnamed: bool,
    /// The open block may be one that a pipeline began by itself (PostgreSQL 18), and that any Sync
    /// ends.
    pub(crate) implicit: bool,
    /// The engine has answered a Sync that stood alone as if nothing were open, though nothing has
    /// ended what was. `status` and the lease stay what the last program's answer made them.
    pub(crate) doubted: bool,
    /// The guard can't be set, or not be undone: the session can't go on.
    pub(crate) guard_failed: bool,
    /// It was its undoing that failed: what stands behind it has been sent.
    pub(crate) undo_failed: bool,
    /// The engine has said a FATAL error: what was running is known not to have been committed.
    pub(crate) fatal_seen: bool,
    /// Leases at other gates that a lifecycle statement reaches (W7), held as long as the own one.
    pub(crate) elsewhere: HashMap<Namespace, Lease>,
    /// A message of the client's is half-way to the engine.
    midway: bool,
    pub(crate) gates: Arc<Gates>,
    /// The client's next program, while it is held at the closed gate.
    pub(crate) held: Waiting,
    /// The name by which the client came leads elsewhere now.
    pub(crate) route_moved: bool,
}

/// Fault points of the statement path park or abort; an injected error means nothing here.
fn pass(outcome: Result<(), fault::Fault>) {
    if let Err(fault) = outcome {
        tracing::error!(%fault, "ignored");
    }
}

impl Conversation {
    /// A session right after the engine's first ReadyForQuery.
    pub(crate) fn new(
        seat: Arc<Seat>,
        gates: Arc<Gates>,
        mode: Mode,
        denials: Arc<Denials>,
    ) -> Self {
        Self {
            seat,
            lease: None,
            owed: Owed::default(),
            prepared: Prepared::default(),
            auto: None,
            bearing: Bearing::default(),
            status: Status::Idle,
            seen: Status::Idle,
            mode,
            discard: Discard::Nothing,
            forced: Forced::No,
            forced_why: Denial::RolledBack,
            stand_in: StandIn::fresh(),
            denials,
            lexing: PgLexing::from_parameters("on", "UTF8"),
            engine_major: 15,
            lexing_uncertain: false,
            own: OwnSetting::default(),
            guard_on: false,
            guard_dropped: false,
            dropped_in_block: false,
            guard_ready: false,
            guard_tries: 0,
            unnamed: false,
            implicit: false,
            doubted: false,
            guard_failed: false,
            undo_failed: false,
            fatal_seen: false,
            elsewhere: HashMap::new(),
            midway: false,
            gates,
            held: Waiting::default(),
            route_moved: false,
        }
    }

    /// Whether a program that would begin now must wait until nothing is owed: with the gate
    /// closed, a guard to undo, a forced rollback or new lexing rules, the session's true state
    /// must be known first. With the gate open pipelines flow.
    pub(crate) fn must_wait(&self) -> bool {
        if self.auto.as_deref().is_some_and(AutoPrepare::must_wait) {
            return true;
        }
        if self.owed.has_open_tail() {
            return false;
        }
        if self.owed.is_empty() {
            // A cancel that is still on its way would meet the next program.
            return self.forced.is_under_way() || self.owed.is_full();
        }
        let word = self.seat.gate().word();
        !word.all_open()
            || self.lease.as_ref().is_some_and(|l| l.stamp().generation != word.generation())
            || self.guard_on
            || self.lexing_uncertain
            || self.forced != Forced::No
            || self.bearing.must_wait()
            || self.owed.is_full()
    }

    /// Asks admission for a message of class `class`, and arms or disarms the guard in front of
    /// it if it begins a program. With [`Entry::Wait`] the message must not be forwarded yet: it
    /// is judged again once nothing is owed.
    ///
    /// # Errors
    /// The refusal; nothing was forwarded and no lease was taken.
    pub(crate) fn enter(
        &mut self,
        class: StatementClass,
        traits: Traits,
        now_ms: u64,
        out: &mut Outgoing<'_>,
    ) -> Result<Entry, Box<Refusal>> {
        pass(fault::point("wire.before_admission"));
        let begins = !self.owed.has_open_tail();
        let fresh = self.lease.is_none();
        // With answers still owed, what runs is the earlier program, and stays what it was.
        let alone = begins && self.owed.is_empty();
        let guard = match &mut self.lease {
            Some(lease) => self.seat.extend(lease, class, alone)?,
            None => {
                // Behind a forced rollback the transaction is one of the proxy's own.
                let ends_own =
                    class == StatementClass::TransactionControl && self.status != Status::Idle;
                let (lease, guard) = match self.begin_unjudged(class, now_ms) {
                    Some(lease) => (lease, Guard::Off),
                    None if ends_own => self.seat.begin_end(now_ms),
                    None => self.seat.begin(class, now_ms)?,
                };
                self.lease = Some(lease);
                guard
            }
        };
        let guard = match self.enter_hold(guard, traits, alone) {
            Ok(guard) => guard,
            Err(refusal) => {
                self.unused(fresh);
                return Err(refusal);
            }
        };
        if begins {
            self.guard_dropped = false;
        }
        if guard == Guard::On && self.escapes_guard(class, traits) {
            self.unused(fresh);
            return Err(Box::new(self.refusal(Denial::Unprovable)));
        }
        if begins && self.arm(guard, out) == Armed::NotYet {
            return Ok(Entry::Wait);
        }
        if traits.breaks_guard {
            self.guard_dropped |= guard == Guard::On;
            self.dropped_in_block = true;
        }
        pass(fault::point("wire.after_admission"));
        Ok(if guard == Guard::On { Entry::Guarded } else { Entry::Free })
    }

    /// A cursor WITH HOLD is run by its transaction's COMMIT, which first gives up every savepoint
    /// with what was set behind it, the guard too. Only a transaction that was begun in read-only
    /// mode keeps that: any other that has such a cursor counts as a writer, which drains wait for,
    /// and which gets none under a fence.
    fn enter_hold(
        &mut self,
        guard: Guard,
        traits: Traits,
        alone: bool,
    ) -> Result<Guard, Box<Refusal>> {
        let now = self.seat.gate().word().generation();
        let holds = traits.holds_cursor && !removed(Removable::HoldCursor);
        match &mut self.lease {
            Some(lease) if holds => {
                let older = self.dropped_in_block || lease.stamp().generation != now;
                if guard == Guard::On && !older {
                    return Ok(guard);
                }
                self.seat.extend(lease, StatementClass::Write, alone)
            }
            Some(_) | None => Ok(guard),
        }
    }

    /// Gives up a lease that nothing was forwarded under.
    #[cold]
    fn unused(&mut self, fresh: bool) {
        if fresh && let Some(lease) = self.lease.take() {
            lease.unused();
        }
    }

    /// Whether a guarded statement could run after another one switched the guard off; or a
    /// savepoint be set then: in a block whose top has no guard it would hold that of all that
    /// follows, and be given up by COMMIT.
    fn escapes_guard(&self, class: StatementClass, traits: Traits) -> bool {
        let marks = matches!(traits.tx, TxEffect::Savepoint | TxEffect::Mixed)
            && !removed(Removable::ReadWriteBlock);
        let behind = self.guard_dropped && (class != StatementClass::TransactionControl || marks);
        // The next transaction of the same string begins by the session's settings, which what
        // ran before (a function behind a view) may have changed.
        let inside = traits.reset_then_more || traits.end_then_more;
        behind || inside
    }

    /// A ReadyForQuery came: whose block is it that is open, if one is?
    pub(crate) fn note_block(&mut self, status: Status, behind: Behind) {
        let may_be = match behind {
            Behind::Mixed => true,
            Behind::Sync => false,
            Behind::Simple | Behind::LoneSync => self.implicit,
        };
        if behind != Behind::LoneSync {
            self.seen = status;
            self.implicit = may_be && status == Status::Open;
        }
    }

    /// A refusal of the proxy's own making, with what the gate publishes now.
    #[cold]
    pub(crate) fn refusal(&self, denial: Denial) -> Refusal {
        let gate = self.seat.gate();
        Refusal { denial, namespace: gate.namespace().clone(), published: gate.published() }
    }

    /// Appends a typed error for the client, and counts it.
    #[cold]
    pub(crate) fn tell(&self, to_client: &mut BytesMut, refusal: &Refusal, severity: Severity) {
        let surface = match self.mode {
            Mode::Sql if is_dumps(self.seat.slot()) => Surface::Dump,
            Mode::Sql => Surface::Pg,
            Mode::LogicalReplication | Mode::PhysicalReplication => Surface::Replication,
        };
        self.denials.count(refusal.denial, surface);
        let sqlstate = self.denials.sqlstate(refusal.denial);
        refusal::typed_error(to_client, severity, refusal, sqlstate);
    }

    /// Refuses a simple query or function call (W8, W9). The message itself is dropped.
    #[cold]
    pub(crate) fn refuse_simple(
        &mut self,
        refusal: Box<Refusal>,
        out: &mut Outgoing<'_>,
        to_client: &mut BytesMut,
    ) {
        if self.owed.is_silent() && self.status == Status::Idle {
            self.tell(to_client, &refusal, Severity::Error);
            refusal::ready(to_client, Status::Idle);
            return;
        }
        let denial = refusal.denial;
        self.owed.simple(Whose::Client).refused = Some(refusal);
        out.inject(|buffer| self.stand_in.as_query(buffer, denial));
    }

    /// Refuses a message of a pipeline, and with it the rest up to Sync (W8, W9).
    #[cold]
    pub(crate) fn refuse_extended(
        &mut self,
        refusal: Box<Refusal>,
        out: &mut Outgoing<'_>,
        to_client: &mut BytesMut,
    ) {
        if self.owed.is_silent() && self.status == Status::Idle {
            self.tell(to_client, &refusal, Severity::Error);
            self.discard = Discard::Local(Status::Idle);
            return;
        }
        let denial = refusal.denial;
        let entry = self.owed.extended();
        (entry.refused, entry.stirs) = (Some(refusal), true);
        self.discard = Discard::ToSync;
        out.inject(|buffer| self.stand_in.as_parse(buffer, denial));
    }

    /// The first program after a forced rollback (W12). Returns whether the message is dealt with;
    /// if not, it goes the usual way.
    #[inline]
    pub(crate) fn after_forced(
        &mut self,
        effect: TxEffect,
        extended: bool,
        out: &mut Outgoing<'_>,
        to_client: &mut BytesMut,
    ) -> bool {
        let Forced::RolledBack { .. } = self.forced else { return false };
        self.first_after_forced(effect, extended, out, to_client)
    }

    #[cold]
    fn first_after_forced(
        &mut self,
        effect: TxEffect,
        extended: bool,
        out: &mut Outgoing<'_>,
        to_client: &mut BytesMut,
    ) -> bool {
        self.forced = Forced::No;
        let refusal = Box::new(self.refusal(self.forced_why));
        match effect {
            TxEffect::Commit | TxEffect::Prepare => {
                // What it would commit is gone, and so is the transaction: an error, then idle.
                self.tell(to_client, &refusal, Severity::Error);
                if extended {
                    self.discard = Discard::Local(Status::Idle);
                } else {
                    refusal::ready(to_client, Status::Idle);
                }
                true
            }
            TxEffect::Rollback => {
                // The engine is given a transaction to roll back: the answer is its own.
                self.own_query("BEGIN", out);
                self.status = Status::Open;
                false
            }
            TxEffect::None
            | TxEffect::Begin
            | TxEffect::Savepoint
            | TxEffect::RollbackToOrRelease
            | TxEffect::Mixed => {
                // The client believes to be in a transaction: from here it is in a failed one, the
                // engine's own, so that nothing of what follows runs outside of one.
                self.own_query("BEGIN", out);
                self.status = Status::Open;
                if extended {
                    self.refuse_extended(refusal, out, to_client);
                } else {
                    self.refuse_simple(refusal, out, to_client);
                }
                true
            }
        }
    }

    /// Where the client leaves in the middle of an idle transaction while writes are closed, that
    /// is rolled back in front of the goodbye: the engine's answer ends the lease. Else only the
    /// end of the backend would, which a drain can but ask the engine for. False where none is.
    pub(crate) fn take_back(&mut self, out: &mut Outgoing<'_>) -> bool {
        let Some(lease) = &self.lease else { return false };
        let open = lease.seat().gate().word().writes_open();
        let idle = self.owed.is_empty() && !self.midway && self.discard == Discard::Nothing;
        let inside = matches!(self.status, Status::Open | Status::Failed) && !self.doubted;
        let takes = !open && idle && inside && self.forced == Forced::No;
        if takes {
            self.own_query("ROLLBACK", out);
        }
        takes
    }

    #[cold]
    fn own_query(&mut self, sql: &str, out: &mut Outgoing<'_>) {
        self.owed.simple(Whose::Own);
        out.inject(|buffer| refusal::query(buffer, sql));
    }

    /// Whether the session holds a lease of a generation before `before` that a drain may wait
    /// for: a writer's, or one under which a read runs without the guard.
    pub(crate) fn holds_older(&self, before: Generation) -> bool {
        let stamp = self.lease.as_ref().map(Lease::stamp);
        stamp.is_some_and(|stamp| {
            let counts = stamp.writer || stamp.running == Running::Unguarded;
            counts && stamp.generation < before
        })
    }

    /// The order to stop a program that waits for the fence's own engine lock: it tries to write
    /// under a fence, so it is cancelled and gets the fence's code (promise 7: never a hang).
    ///
    /// An order for a program that is cancelled already comes too late for it: then the cancel may
    /// reach the engine between two statements and do nothing. So a cancel that was delivered
    /// doesn't keep a later order from sending another one.
    #[cold]
    pub(crate) fn order_stop(&mut self) -> Action {
        let reader = self.lease.as_ref().is_some_and(|lease| !lease.stamp().writer);
        if !reader || self.owed.is_empty() {
            return Action::None;
        }
        match self.forced {
            Forced::No | Forced::Stopping { delivered: true } => {
                self.forced = Forced::Stopping { delivered: false };
                self.forced_why = Denial::WriteFenced;
                Action::Cancel
            }
            Forced::Stopping { delivered: false }
            | Forced::Cancelling { .. }
            | Forced::RollingBack { .. }
            | Forced::RolledBack { .. } => Action::None,
        }
    }

    /// The order to roll back what was admitted before `before`. `midway` says that a message is
    /// only partly forwarded.
    pub(crate) fn order_roll_back(
        &mut self,
        before: Generation,
        midway: bool,
        to_engine: &mut BytesMut,
    ) -> Action {
        if !self.holds_older(before) {
            return Action::None;
        }
        match self.forced {
            Forced::No | Forced::Stopping { delivered: true } => {}
            // What is on its way stops the statement, and now the rollback follows.
            Forced::Stopping { delivered: false } => {
                self.forced_why = Denial::RolledBack;
                self.forced = Forced::Cancelling { delivered: false, told: false };
                return Action::None;
            }
            Forced::Cancelling { .. } | Forced::RollingBack { .. } | Forced::RolledBack { .. } => {
                return Action::None;
            }
        }
        self.forced_why = Denial::RolledBack;
        if self.owed.is_empty() && !midway {
            self.roll_back(0, false, to_engine);
            return Action::None;
        }
        self.forced = Forced::Cancelling { delivered: false, told: false };
        Action::Cancel
    }

    /// Whether something reads under a lease of a generation before `before`: a program that runs,
    /// or a transaction that keeps a cursor or is a dump's.
    pub(crate) fn reads_older(&self, before: Generation) -> bool {
        let slot = self.seat.slot();
        let dumps = Reading::of(slot) == Some(Reading::Dump);
        self.lease
            .as_ref()
            .is_some_and(|lease| lease.stamp().generation < before && (slot.is_reading() || dumps))
    }

    /// The order to stop what was admitted to read before `before`, because reads are fenced. A
    /// running program is cancelled; where only a cursor is open, its transaction is rolled back,
    /// and the client learns that at its next program. `midway` says that a message is only partly
    /// forwarded.
    ///
    /// As for [`Conversation::order_stop`], an order may come again behind a cancel that met
    /// nothing.
    pub(crate) fn order_stop_reading(
        &mut self,
        before: Generation,
        midway: bool,
        to_engine: &mut BytesMut,
    ) -> Action {
        if !self.reads_older(before) {
            return Action::None;
        }
        match self.forced {
            Forced::No | Forced::Stopping { delivered: true } => {}
            Forced::Stopping { delivered: false }
            | Forced::Cancelling { .. }
            | Forced::RollingBack { .. }
            | Forced::RolledBack { .. } => return Action::None,
        }
        self.forced_why = Denial::ReadFenced;
        if self.owed.is_empty() && !midway {
            self.roll_back(0, false, to_engine);
            return Action::None;
        }
        self.forced = Forced::Stopping { delivered: false };
        Action::Cancel
    }

    /// Whether a message of the client's is half-way to the engine now. Where it has ended, what
    /// waited for that goes on.
    pub(crate) fn set_midway(&mut self, midway: bool, to_engine: &mut BytesMut) {
        let ended = std::mem::replace(&mut self.midway, midway) && !midway;
        if ended && self.owed.is_empty() && self.forced != Forced::No {
            self.forced_goes_on(to_engine);
        }
    }

    /// The cancel was delivered, or could not be.
    pub(crate) fn cancel_delivered(&mut self, to_engine: &mut BytesMut) {
        self.forced = self.forced.after_cancel();
        if self.owed.is_empty() {
            self.forced_goes_on(to_engine);
        }
    }

    #[cold]
    fn roll_back(&mut self, tries: u32, told: bool, to_engine: &mut BytesMut) {
        self.forced = Forced::RollingBack { tries: tries + 1, told };
        self.owed.simple(Whose::Own);
        refusal::query(to_engine, "ROLLBACK");
    }

    /// Takes a forced rollback one step on, once nothing is owed.
    #[cold]
    fn forced_goes_on(&mut self, to_engine: &mut BytesMut) {
        // Nothing of the proxy's own between the halves of a message: it would become part of it,
        // and the message's end the beginning of others.
        if self.midway {
            return;
        }
        match (self.forced, self.status) {
            (Forced::Cancelling { delivered: true, .. }, Status::Idle)
            | (Forced::Stopping { delivered: true }, _) => self.forced = Forced::No,
            (Forced::Cancelling { delivered: true, told }, Status::Open | Status::Failed) => {
                self.roll_back(0, told, to_engine);
            }
            (Forced::RollingBack { told, .. }, Status::Idle) => {
                self.forced = Forced::RolledBack { told };
            }
            (Forced::RollingBack { tries, told }, Status::Open | Status::Failed)
                if tries < limits::FORCED_ROLLBACK_TRIES_MAX =>
            {
                self.roll_back(tries, told, to_engine);
            }
            // Not delivered yet, given up (the control side terminates the backend), or nothing.
            (
                Forced::Cancelling { .. }
                | Forced::Stopping { .. }
                | Forced::RollingBack { .. }
                | Forced::RolledBack { .. }
                | Forced::No,
                Status::Idle | Status::Open | Status::Failed,
            ) => {}
        }
    }

    /// A ReadyForQuery came for the last thing forwarded: status is the truth, and with `I` the
    /// lease is released by answer (wire.md W4). But a Sync that stood alone ends nothing: where
    /// something was open, it is until a program is answered.
    pub(crate) fn quiet(&mut self, status: Status, behind: Behind, to_engine: &mut BytesMut) {
        let lone = behind == Behind::LoneSync && !removed(Removable::LoneSync);
        if lone && status == Status::Idle && self.seen != Status::Idle {
            self.settle(self.seen);
            self.doubted = true;
        } else {
            self.settle(status);
        }
        if self.forced != Forced::No {
            self.forced_goes_on(to_engine);
        }
    }

    fn settle(&mut self, status: Status) {
        self.status = status;
        self.doubted = false;
        self.lexing_uncertain = false;
        self.own.settled(status);
        if let Some(auto) = &mut self.auto {
            auto.settled(status);
        }
        if status != Status::Open {
            self.seat.set_cursor(false);
        }
        if status == Status::Idle {
            self.prepared.transaction_ended();
            self.dropped_in_block = false;
            if let Some(lease) = self.lease.take() {
                lease.answered();
            }
            if !self.elsewhere.is_empty() {
                for (_, lease) in self.elsewhere.drain() {
                    lease.answered();
                }
            }
            self.bearing_goes_on();
        } else if let Some(lease) = &mut self.lease {
            lease.paused();
        }
    }
}
