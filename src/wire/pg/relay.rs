//! Moving bytes: one task for both directions of a session.
//!
//! Purpose: W22. One loop awaits readiness of both sockets, reads once into the thread's buffer,
//! has `client.rs` or `answers.rs` sort the bytes, and writes once. What can't be written stays
//! pending, and its source isn't read until it is gone: backpressure, not buffering. A session
//! without bytes in flight owns no buffer.
//!
//! When the client goes away the engine's socket is only shut down for writing and read to its
//! end, so that what was running is seen to its end (proof.md 2). When the engine goes away with
//! something owed, the lease is dropped without an outcome: invariant 7.
//!
//! While a program is held at the closed gate the client is read on, within the queue's bound, so
//! that its going away is seen.
//!
//! Called by `session.rs`. It decides nothing about statements.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::AsyncWrite;
use tokio::sync::oneshot;

use crate::base::ids::Generation;
use crate::base::limits;
use crate::fence::code::Denial;
use crate::gate::slot::Order;
use crate::telemetry::worker::WorkerCounters;
use crate::tls::Stream;
use crate::wire::pg::answers;
use crate::wire::pg::client::{self, Desk, Rest, Stop};
use crate::wire::pg::conversation::{Action, Conversation, Forced};
use crate::wire::pg::refusal::{self, Severity, Status};
use crate::wire::shared::desk::{self, WorkerDesk};
use crate::wire::shared::outgoing::Outgoing;
use crate::wire::shared::peer::{self, Turns, behind};
use crate::wire::shared::waiting::Parting;

/// The Terminate message.
const TERMINATE: &[u8] = b"X\0\0\0\x04";
/// Why a session is ended, for its client.
const STOPPING: &str = "terminating connection: the proxy is stopping";
const GUARD_FAILED: &str = "terminating connection: writes are fenced, and the engine did not make \
                            this session read-only; the statement was not sent to it";
const UNDO_FAILED: &str = "terminating connection: the fence is lifted, and the engine did not end \
                           the read-only mode that this session had under it";
const UNDO_FAILED_UNKNOWN: &str = "terminating connection: the fence is lifted, and the engine did \
                                   not end the read-only mode that this session had under it; \
                                   whether the statement behind that was run is not known";
const ROUTE_MOVED: &str = "terminating connection: this name leads to another database now";

type Peer = peer::Peer<Rest>;

/// Why a relay ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Both sides are done.
    Done,
    /// The proxy ended it.
    Ended,
    /// A protocol fault of the engine, or the guard failed.
    Fault,
}

/// One session's relay.
pub(crate) struct Relay {
    client: Peer,
    engine: Peer,
    conversation: Conversation,
    counters: Arc<WorkerCounters>,
    blocked: bool,
    /// The client's next program is held at the closed gate, in front of what is held of the
    /// client's bytes.
    parked: bool,
    /// What is held of the client's bytes waits until the client has taken the proxy's answers.
    full: bool,
    finishing: bool,
    impatient: bool,
    broken: Option<String>,
    shut: bool,
    end: Option<End>,
    cancel: Option<oneshot::Receiver<()>>,
    canceller: Box<dyn Fn() -> oneshot::Receiver<()> + Send>,
}

impl Relay {
    /// A relay between two authenticated peers; `from_engine` and `from_client` are bytes read
    /// behind the authentication. `canceller` sends a CancelRequest for this session's backend.
    pub(crate) fn new(
        client: (Stream, BytesMut),
        engine: (Stream, BytesMut),
        conversation: Conversation,
        counters: Arc<WorkerCounters>,
        canceller: Box<dyn Fn() -> oneshot::Receiver<()> + Send>,
    ) -> Self {
        Self {
            // What is there already is sorted in the first turn.
            blocked: !client.1.is_empty(),
            client: Peer::new(client.0, client.1),
            engine: Peer::new(engine.0, engine.1),
            conversation,
            counters,
            parked: false,
            full: false,
            finishing: false,
            impatient: false,
            broken: None,
            shut: false,
            end: None,
            cancel: None,
            canceller,
        }
    }

    /// Relays until both sides are done.
    ///
    /// # Cancel safety
    /// Not to be cancelled except to abandon the session: a lease that is held then counts as
    /// abandoned.
    pub(crate) async fn run(mut self: Box<Self>) -> End {
        let bell = Arc::clone(&self.conversation.seat.slot().ordered);
        let (mut turns, mut listens) = (Turns::default(), false);
        if !self.engine.held.is_empty() {
            poll_fn(|cx| {
                self.sort_engine_with(cx, &[]);
                Poll::Ready(())
            })
            .await;
        }
        loop {
            let end = poll_fn(|cx| {
                if turns.has_new_waker(cx) {
                    listens = false;
                    self.client.disarm();
                    self.engine.disarm();
                }
                if bell.poll(cx, &mut listens).is_ready() {
                    return Poll::Ready(None);
                }
                match desk::lend(|desk| self.poll_step(cx, desk)) {
                    Some(poll) => poll.map(Some),
                    None => Poll::Ready(Some(End::Fault)),
                }
            })
            .await;
            match end {
                Some(end) => {
                    self.conversation.leave_hold(Parting::Ended);
                    return end;
                }
                None => self.obey(),
            }
        }
    }

    #[cold]
    fn obey(&mut self) {
        let orders: Vec<_> = self.conversation.take_orders().collect();
        for (order, before) in orders {
            self.obey_one(order, before);
        }
    }

    #[cold]
    fn obey_one(&mut self, order: Order, before: Generation) {
        if order.has(Order::ROLL_BACK) {
            self.note_midway();
            let midway = self.client.rest.bytes > 0;
            let action =
                self.conversation.order_roll_back(before, midway, &mut self.engine.pending);
            if action == Action::Cancel && self.cancel.is_none() {
                self.cancel = Some((self.canceller)());
            }
        }
        if order.has(Order::STOP_WRITING)
            && self.conversation.order_stop() == Action::Cancel
            && self.cancel.is_none()
        {
            self.cancel = Some((self.canceller)());
        }
        if order.has(Order::STOP_READING) {
            let midway = self.client.rest.bytes > 0;
            let engine = &mut self.engine.pending;
            let action = self.conversation.order_stop_reading(before, midway, engine);
            if action == Action::Cancel && self.cancel.is_none() {
                self.cancel = Some((self.canceller)());
            }
        }
        if order.has(Order::JUDGE_AGAIN) {
            self.conversation.held.call();
        }
        if order.has(Order::CANCEL_HELD) {
            self.conversation.held.cancel();
        }
        self.conversation.route_moved |= order.has(Order::ROUTE_MOVED);
        self.finishing |= order.has(Order::FINISH);
        let older = self.conversation.holds_older(before);
        let mut give_up = order.has(Order::GIVE_UP) && older;
        if order.has(Order::GIVE_UP_READING) && self.conversation.reads_older(before) {
            self.conversation.forced_why = Denial::ReadFenced;
            give_up = true;
        }
        if give_up || order.has(Order::END) {
            self.end_now(give_up);
        }
    }

    /// The end without waiting for a client that may have stopped reading. A lease that is held
    /// counts as abandoned until the engine shows the backend gone.
    #[cold]
    fn end_now(&mut self, by_force: bool) {
        if !by_force && self.conversation.forced == Forced::No {
            self.stop_serving(STOPPING);
        } else {
            let refusal = self.conversation.refusal(self.conversation.forced_why);
            if self.is_between_messages() {
                self.conversation.tell(&mut self.client.pending, &refusal, Severity::Fatal);
            }
            self.conversation.leave_hold(Parting::Ended);
            self.end = Some(End::Ended);
        }
        self.impatient = true;
    }

    /// Whether the client can be told something. In the middle of a message an error would be read
    /// as the rest of it, and a row that was cut as a whole one: then there is only the close.
    const fn is_between_messages(&self) -> bool {
        self.engine.rest.bytes == 0 || !self.engine.rest.pass
    }

    /// 57P01 for the client, and the end.
    #[cold]
    fn stop_serving(&mut self, why: &str) {
        if self.is_between_messages() {
            let out = &mut self.client.pending;
            refusal::plain_error(out, Severity::Fatal, "57P01", why, "Reconnect.");
        }
        // Its place is somebody else's from here on, however long this client takes to read.
        self.conversation.leave_hold(Parting::Ended);
        self.forget_held();
        self.end = Some(End::Ended);
    }

    fn poll_step(&mut self, cx: &mut Context<'_>, desk: &mut WorkerDesk) -> Poll<End> {
        // A read that came back pending has left the waker with its socket, and isn't tried again
        // within this call.
        let (mut engine_quiet, mut client_quiet) = (false, false);
        loop {
            let mut progress = false;
            if self.poll_cancel(cx) {
                progress = true;
            }
            let to_client_clear = self.client.poll_flush(cx).is_ready();
            let to_engine_clear = self.engine.poll_flush(cx).is_ready();
            if let Some(end) = self.end
                && (to_client_clear || self.impatient)
            {
                // Best effort: a TLS client is told of the close where that needs no waiting.
                let _unheard = Pin::new(&mut self.client.stream).poll_shutdown(cx);
                return Poll::Ready(end);
            }
            if self.end.is_none() {
                if (to_client_clear || self.awaits_ahead()) && self.engine.reads && !engine_quiet {
                    engine_quiet = !self.read_engine(cx, desk);
                    progress |= !engine_quiet;
                }
                let answers_taken = self.full && to_client_clear;
                if answers_taken || self.blocked && !self.conversation.must_wait() {
                    (self.blocked, self.full) = (false, false);
                    self.sort_client(cx, desk, 0);
                    progress = true;
                }
                if self.parked && self.conversation.held.is_due(cx) {
                    self.parked = false;
                    self.sort_client(cx, desk, 0);
                    progress = true;
                }
                if to_engine_clear && !client_quiet && self.may_read_client() {
                    client_quiet = !self.read_client(cx, desk);
                    progress |= !client_quiet;
                }
                self.after_step();
            }
            if self.end.is_some() || !self.engine.pending.is_empty() && to_engine_clear {
                progress = true;
            }
            let over = !self.client.reads && self.engine.pending.is_empty();
            if over && to_engine_clear && !self.shut {
                if self.take_back() {
                    continue;
                }
                match Pin::new(&mut self.engine.stream).poll_shutdown(cx) {
                    Poll::Ready(_) => self.shut = true,
                    Poll::Pending => {}
                }
            }
            if !progress {
                return Poll::Pending;
            }
        }
    }

    /// The client has left without a goodbye.
    #[cold]
    fn take_back(&mut self) -> bool {
        let mut out = Outgoing::new(&[], &mut self.engine.pending);
        let takes = self.end.is_none() && self.conversation.take_back(&mut out);
        let _nothing = out.finish();
        takes
    }

    /// The engine's word on a guard is read in front of a client that doesn't take its answers: of
    /// these there are no more by then, and what else comes is bounded.
    fn awaits_ahead(&self) -> bool {
        self.conversation.awaits_ahead()
            && self.engine.rest.bytes == 0
            && self.client.pending.len() < limits::SCRATCH_BYTES
    }

    fn poll_cancel(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(cancel) = &mut self.cancel else { return false };
        if Pin::new(cancel).poll(cx).is_pending() {
            return false;
        }
        self.cancel = None;
        self.note_midway();
        self.conversation.cancel_delivered(&mut self.engine.pending);
        true
    }

    fn note_midway(&mut self) {
        self.conversation.set_midway(self.client.rest.bytes > 0, &mut self.engine.pending);
    }

    /// The client is read while nothing waits to be written: its bytes on the way to the engine,
    /// or the proxy's own answers on the way back.
    ///
    /// What waits for an answer that may never come is read on a little: else its going away
    /// couldn't be seen.
    fn may_read_client(&self) -> bool {
        let waits = self.blocked && !self.waits_in_vain() || self.full;
        self.client.reads && !waits && self.client.pending.len() < limits::SCRATCH_BYTES
    }

    fn waits_in_vain(&self) -> bool {
        let uncertain = self.conversation.owed.is_uncertain();
        uncertain && self.client.held.len() < limits::SCRATCH_BYTES
    }

    fn after_step(&mut self) {
        self.note_midway();
        if self.conversation.guard_failed {
            self.end_unguarded();
        }
        if self.finishing
            && self.conversation.owed.is_empty()
            && (self.conversation.status == Status::Idle || self.conversation.doubted)
            && self.client.rest.bytes == 0
        {
            self.engine.pending.extend_from_slice(TERMINATE);
            self.stop_serving(STOPPING);
        }
        if !self.client.writes && self.client.reads {
            // Nobody reads the answers any more: see what is running to its end.
            self.client.reads = false;
        }
        if self.full && !self.client.writes {
            // Nor the ones that are still to be made, to programs that were refused.
            self.full = false;
            self.forget_held();
        }
        if self.parked {
            self.after_step_parked();
        }
        if !self.engine.reads && self.end.is_none() {
            self.end = Some(End::Done);
        }
    }

    /// The engine didn't confirm the guard, or its end: the session can't go on, and its client is
    /// told why, and what is known of its last statement.
    #[cold]
    fn end_unguarded(&mut self) {
        tracing::error!(
            session = %self.conversation.seat.slot().id(), undo = self.conversation.undo_failed,
            "the engine refused the read-only guard, or its undoing; the session is ended"
        );
        let unknown = self.conversation.owed.iter().any(|entry| entry.may_commit);
        let (sqlstate, why, hint) = match (self.conversation.undo_failed, unknown) {
            (true, true) => ("08007", UNDO_FAILED_UNKNOWN, "Reconnect; look whether it was run."),
            (true, false) => ("57P01", UNDO_FAILED, "Reconnect; repeat what was not answered."),
            (false, _) => ("57P01", GUARD_FAILED, "Reconnect, and repeat the statement."),
        };
        if self.end.is_none() && self.is_between_messages() {
            let out = &mut self.client.pending;
            refusal::plain_error(out, Severity::Fatal, sqlstate, why, hint);
        }
        self.end = Some(End::Fault);
    }

    /// Nothing of a held program was forwarded: it goes with its client, and where the client's
    /// name leads elsewhere now the client is sent there (W21).
    #[cold]
    fn after_step_parked(&mut self) {
        if !self.client.reads {
            self.parked = false;
            self.conversation.leave_hold(Parting::Gone);
            self.forget_held();
        } else if self.conversation.route_moved && self.end.is_none() {
            self.engine.pending.extend_from_slice(TERMINATE);
            self.stop_serving(ROUTE_MOVED);
        }
    }

    /// What the client has sent and wasn't sorted yet is dropped.
    #[cold]
    fn forget_held(&mut self) {
        self.client.held = BytesMut::new();
        self.conversation.held.keeps(0);
    }

    /// False when there is nothing to read now.
    fn read_engine(&mut self, cx: &mut Context<'_>, desk: &mut WorkerDesk) -> bool {
        let count = match self.engine.poll_read(cx, &mut desk.scratch) {
            Poll::Pending => return false,
            Poll::Ready(Ok(count)) if count > 0 => count,
            Poll::Ready(Ok(_) | Err(_)) => {
                self.engine.reads = false;
                self.engine_gone();
                return true;
            }
        };
        let fresh = desk.scratch.get(..count).unwrap_or_default();
        if self.engine.held.is_empty() {
            let consumed = self.sort_engine(cx, fresh);
            self.engine.hold(fresh.get(consumed..).unwrap_or_default());
        } else {
            self.sort_engine_with(cx, fresh);
        }
        true
    }

    /// Sorts what is held of the engine's bytes, and `fresh` ones behind it.
    #[cold]
    fn sort_engine_with(&mut self, cx: &mut Context<'_>, fresh: &[u8]) {
        let mut all = std::mem::take(&mut self.engine.held);
        all.extend_from_slice(fresh);
        let consumed = self.sort_engine(cx, &all);
        self.engine.held = behind(all, consumed);
    }

    /// Answers how many bytes are done with.
    fn sort_engine(&mut self, cx: &mut Context<'_>, chunk: &[u8]) -> usize {
        self.note_midway();
        let mut out = Outgoing::new(chunk, &mut self.client.pending);
        let sorted = answers::sort(
            &mut self.conversation,
            &mut self.engine.rest,
            &mut out,
            &mut self.engine.pending,
        );
        let direct = out.finish();
        let bytes = chunk.get(direct).unwrap_or_default();
        self.client.write(cx, bytes);
        self.counters.relayed_to_client(chunk.len() as u64);
        match sorted {
            Ok(consumed) => consumed,
            Err(fault) => {
                let session = self.conversation.seat.slot().id();
                tracing::error!(%session, %fault, "session ended");
                self.tell_fault(cx, &fault);
                self.end = Some(End::Fault);
                chunk.len()
            }
        }
    }

    /// Tells the client, as far as it takes it at once.
    #[cold]
    fn tell_fault(&mut self, cx: &mut Context<'_>, fault: &answers::EngineFault) {
        let mut told = std::mem::take(&mut self.client.pending);
        let hint = "The connection is closed, and its transaction is rolled back unless the \
                    engine had ended it: look whether a change is there before repeating it. Send \
                    COPY data and CopyDone inside a COPY only.";
        refusal::plain_error(&mut told, Severity::Fatal, "08P01", &fault.to_string(), hint);
        self.client.write(cx, &told);
    }

    /// The engine's end of file, or its connection broke. Where something that may have committed
    /// was running, the client is told that nobody knows (08007); else it sees the close, as it
    /// does when the engine closed because the client itself ended in an unfinished pipeline.
    #[cold]
    fn engine_gone(&mut self) {
        if !self.is_between_messages() {
            return;
        }
        if let Some(what) = self.broken.take() {
            client::protocol_error(&mut self.client.pending, &what);
            return;
        }
        let shut = self.shut;
        let mut owed = self.conversation.owed.iter();
        let unknown = owed.any(|entry| entry.may_commit && !(shut && entry.lacks_sync()));
        if unknown && !self.conversation.fatal_seen && self.client.writes {
            refusal::plain_error(
                &mut self.client.pending,
                Severity::Fatal,
                "08007",
                "the connection to the engine was lost while a statement was running: it is not \
                 known whether it was committed",
                "Look whether the change is there before repeating it.",
            );
        }
    }

    /// False when there is nothing to read now.
    fn read_client(&mut self, cx: &mut Context<'_>, desk: &mut WorkerDesk) -> bool {
        let count = match self.client.poll_read(cx, &mut desk.scratch) {
            Poll::Pending => return false,
            Poll::Ready(Ok(count)) if count > 0 => count,
            Poll::Ready(Ok(_) | Err(_)) => {
                self.client.reads = false;
                self.client.held = BytesMut::new();
                return true;
            }
        };
        self.counters.relayed_to_engine(count as u64);
        if self.parked || self.blocked {
            // Read on, to see the client go away; judged again it is when it is called.
            let fresh = desk.scratch.get(..count).unwrap_or_default();
            self.client.held.extend_from_slice(fresh);
            self.conversation.held.grows(count);
        } else {
            self.sort_client(cx, desk, count);
        }
        true
    }

    /// Sorts what is held and `count` fresh bytes of the desk's buffer.
    fn sort_client(&mut self, cx: &mut Context<'_>, desk: &mut WorkerDesk, count: usize) {
        let now_ms = desk.now_ms();
        let WorkerDesk { scratch, classifier, counters, .. } = desk;
        let fresh = scratch.get(..count).unwrap_or_default();
        let mut tools = Desk { classifier, now_ms, counters };
        if self.client.held.is_empty() {
            let consumed = self.sort_client_chunk(cx, &mut tools, fresh);
            self.client.hold(fresh.get(consumed..).unwrap_or_default());
        } else {
            let mut all = std::mem::take(&mut self.client.held);
            all.extend_from_slice(fresh);
            let consumed = self.sort_client_chunk(cx, &mut tools, &all);
            self.client.held = behind(all, consumed);
        }
        self.conversation.held.keeps(self.client.held.len());
    }

    /// Answers how many bytes are done with.
    fn sort_client_chunk(
        &mut self,
        cx: &mut Context<'_>,
        desk: &mut Desk<'_>,
        chunk: &[u8],
    ) -> usize {
        let mut out = Outgoing::new(chunk, &mut self.engine.pending);
        let (consumed, stop) = client::sort(
            &mut self.conversation,
            &mut self.client.rest,
            desk,
            &mut out,
            &mut self.client.pending,
        );
        let direct = out.finish();
        let bytes = chunk.get(direct).unwrap_or_default();
        self.engine.write(cx, bytes);
        match stop {
            None | Some(Stop::More) => consumed,
            Some(Stop::Blocked) => {
                self.blocked = true;
                consumed
            }
            Some(Stop::Held) => {
                self.parked = true;
                consumed
            }
            Some(Stop::Full) => {
                self.full = true;
                consumed
            }
            Some(Stop::Broken(what)) => {
                // Told once the engine has answered what came before.
                self.broken = Some(what);
                self.client.reads = false;
                chunk.len()
            }
        }
    }
}
