//! Moving bytes: one task for both directions of a session.
//!
//! Purpose: W22. One loop awaits readiness of both sockets, reads once into the thread's buffer,
//! has `client.rs` or `engine.rs` sort the bytes, and writes once. What can't be written stays
//! pending, and its source isn't read until it is gone: backpressure, not buffering. A session
//! without bytes in flight owns no buffer.
//!
//! When the client goes away the engine's socket is only shut down for writing and read to its
//! end, so that what was running is seen to its end (proof.md 2). When the engine goes away with
//! something owed, the lease is dropped without an outcome: invariant 7.
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
use crate::wire::mysql::client::{self, Desk, Rest, Stop};
use crate::wire::mysql::commands;
use crate::wire::mysql::conversation::Conversation;
use crate::wire::mysql::engine;
use crate::wire::mysql::refusal;
use crate::wire::shared::desk::{self, WorkerDesk};
use crate::wire::shared::forced::{Action, Forced};
use crate::wire::shared::outgoing::Outgoing;
use crate::wire::shared::peer::{self, Turns, behind};
use crate::wire::shared::waiting::Parting;

/// Why a session is ended, for its client.
const STOPPING: &str = "terminating connection: the proxy is stopping; reconnect";
const ROUTE_MOVED: &str =
    "terminating connection: this name leads to another database now; reconnect";
const ENGINE_LOST: &str = "the connection to the engine was lost while a statement was running: it \
     is not known whether it was committed; look whether the change is there before repeating it";
const GUARD_FAILED: &str = "terminating connection: a fence is up, and the engine did not take the \
     proxy's own statements that keep this session from writing; what was not committed is rolled \
     back; reconnect";

type Peer = peer::Peer<Rest>;

/// Why a relay ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Both sides are done.
    Done,
    /// The proxy ended it.
    Ended,
    /// A protocol fault of the engine.
    Fault,
}

/// Has the engine kill what this session runs; the receiver hears when that is done or given up.
pub(crate) type Canceller = Box<dyn Fn() -> oneshot::Receiver<()> + Send>;

/// One session's relay.
pub(crate) struct Relay {
    client: Peer,
    engine: Peer,
    conversation: Conversation,
    counters: Arc<WorkerCounters>,
    blocked: bool,
    /// The client's next command is held at the closed gate, in front of what is held of the
    /// client's bytes.
    parked: bool,
    /// What is held of the client's bytes waits until the client has taken the proxy's answers.
    full: bool,
    route_moved: bool,
    finishing: bool,
    impatient: bool,
    broken: Option<String>,
    shut: bool,
    /// The client has gone away, and the engine was asked to kill what it has running.
    abandoned: bool,
    end: Option<End>,
    cancel: Option<oneshot::Receiver<()>>,
    canceller: Canceller,
    /// What came while a packet of the client's was half-way to the engine: nothing of the proxy's
    /// own may go between its halves. Done as soon as the packet is over.
    late: Late,
}

/// What waits for the end of a packet.
#[derive(Debug, Clone, Copy, Default)]
struct Late {
    /// To ask where the session stands.
    look: bool,
    /// A kill was delivered.
    cancelled: bool,
}

impl Relay {
    /// A relay between two authenticated peers; what was read of each behind the login comes with
    /// it.
    pub(crate) fn new(
        client: (Stream, BytesMut),
        engine: (Stream, BytesMut),
        conversation: Conversation,
        counters: Arc<WorkerCounters>,
        canceller: Canceller,
    ) -> Self {
        Self {
            // A client that doesn't wait for its welcome has its bytes sorted as if held back.
            blocked: !client.1.is_empty(),
            client: Peer::new(client.0, client.1),
            engine: Peer::new(engine.0, engine.1),
            conversation,
            counters,
            parked: false,
            full: false,
            route_moved: false,
            finishing: false,
            impatient: false,
            broken: None,
            shut: false,
            abandoned: false,
            end: None,
            cancel: None,
            late: Late::default(),
            canceller,
        }
    }

    /// Relays until both sides are done.
    ///
    /// # Cancel safety
    /// Not to be cancelled except to abandon the session: a lease that is held then counts as
    /// abandoned.
    pub(crate) async fn run(mut self: Box<Self>) -> End {
        let bell = Arc::clone(&self.conversation.seats.home().slot().ordered);
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
        for (order, before) in self.conversation.seats.take_orders() {
            self.obey_one(order, before);
        }
        self.catch_up();
    }

    #[cold]
    fn obey_one(&mut self, order: Order, before: Generation) {
        let conversation = &mut self.conversation;
        let mut action = Action::None;
        if order.has(Order::LOOK) {
            self.late.look = true;
        }
        if order.has(Order::ROLL_BACK) {
            let midway = !self.client.rest.is_over();
            action = conversation.order_roll_back(before, midway, &mut self.engine.pending);
        }
        if order.has(Order::STOP_WRITING) && action == Action::None {
            action = conversation.order_stop();
        }
        if order.has(Order::STOP_READING) && action == Action::None {
            let midway = !self.client.rest.is_over();
            action = conversation.order_stop_reading(before, midway, &mut self.engine.pending);
        }
        if action == Action::Cancel && self.cancel.is_none() {
            self.cancel = Some((self.canceller)());
        }
        if order.has(Order::JUDGE_AGAIN) {
            self.conversation.held.call();
        }
        if order.has(Order::CANCEL_HELD) {
            self.conversation.held.cancel();
        }
        self.route_moved |= order.has(Order::ROUTE_MOVED);
        self.finishing |= order.has(Order::FINISH);
        let mut give_up = order.has(Order::GIVE_UP) && self.conversation.holds_older(before);
        if order.has(Order::GIVE_UP_READING) && self.conversation.reads_older(before) {
            self.conversation.forced_why = Denial::ReadFenced;
            give_up = true;
        }
        if give_up || order.has(Order::END) {
            self.end_now(give_up);
        }
    }

    /// The end without waiting for a client that may have stopped reading. A lease that is held
    /// counts as abandoned until the engine shows the connection gone.
    #[cold]
    fn end_now(&mut self, by_force: bool) {
        if !by_force && self.conversation.forced == Forced::No {
            self.stop_serving(STOPPING);
        } else {
            let refusal = self.conversation.refusal(self.conversation.forced_why);
            self.say_last(|conversation, sequence, to_client| {
                conversation.tell(to_client, sequence, &refusal);
            });
            self.conversation.leave_hold(Parting::Ended);
            self.end = Some(End::Ended);
        }
        self.impatient = true;
    }

    /// The last word to the client, in front of the close. In the middle of a packet an error would
    /// be read as the rest of it, and a row that was cut as a whole one: then there is only the
    /// close.
    #[cold]
    fn say_last(&mut self, say: impl FnOnce(&Conversation, u8, &mut BytesMut)) {
        if self.engine.rest.is_over() || !self.engine.rest.pass {
            let sequence = self.conversation.next_sequence();
            say(&self.conversation, sequence, &mut self.client.pending);
        }
    }

    /// 1053 for the client, and the end.
    #[cold]
    fn stop_serving(&mut self, text: &str) {
        self.say_last(|_, sequence, to_client| {
            refusal::error(to_client, sequence, 1053, "08S01", text);
        });
        // Its place is somebody else's from here on, however long this client takes to read.
        self.conversation.leave_hold(Parting::Ended);
        self.forget_held();
        self.end = Some(End::Ended);
    }

    /// What the client has sent and wasn't sorted yet is dropped.
    #[cold]
    fn forget_held(&mut self) {
        self.client.held = BytesMut::new();
        self.conversation.held.keeps(0);
    }

    fn poll_step(&mut self, cx: &mut Context<'_>, desk: &mut WorkerDesk) -> Poll<End> {
        // A read that came back pending has left the waker with its socket, and isn't tried again
        // within this call.
        let (mut engine_quiet, mut client_quiet) = (false, false);
        loop {
            let mut progress = self.poll_cancel(cx);
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
            let over = !self.client.reads && !self.conversation.wants_word();
            if over && to_engine_clear && self.engine.pending.is_empty() && !self.shut {
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

    /// The engine's word on a guard is read in front of a client that doesn't take its answers: of
    /// these there are no more by then.
    fn awaits_ahead(&self) -> bool {
        self.conversation.awaits_ahead()
            && self.engine.rest.bytes == 0
            && self.client.pending.len() < limits::SCRATCH_BYTES
    }

    fn poll_cancel(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(cancel) = &mut self.cancel else { return false };
        let Poll::Ready(delivered) = Pin::new(cancel).poll(cx) else { return false };
        self.cancel = None;
        if delivered.is_err() && self.conversation.may_meet_a_stop() {
            self.end_now(true);
            return true;
        }
        self.late.cancelled = true;
        self.catch_up();
        true
    }

    /// Does what waited for the end of a packet of the client's. A client that never ends it has
    /// its connection to the engine ended by the control side, where the fence forces.
    fn catch_up(&mut self) {
        let started = !self.client.rest.is_over();
        if started && !self.conversation.tracker.is_owing() {
            return;
        }
        let late = std::mem::take(&mut self.late);
        if late.look {
            self.conversation.look(&mut self.engine.pending);
        }
        if late.cancelled {
            self.conversation.cancel_delivered(&mut self.engine.pending);
        }
    }

    /// The client is read while nothing waits to be written: its bytes on the way to the engine,
    /// or the proxy's own answers on the way back.
    fn may_read_client(&self) -> bool {
        let waits = self.blocked || self.full;
        self.client.reads && !waits && self.client.pending.len() < limits::SCRATCH_BYTES
    }

    fn after_step(&mut self) {
        self.catch_up();
        if self.conversation.guard.failed {
            tracing::error!(
                session = %self.conversation.seats.home().slot().id(),
                "the engine refused the read-only guard; the session is ended"
            );
            self.stop_serving(GUARD_FAILED);
            // A client that doesn't read must not keep a transaction open that nobody can end.
            self.impatient = true;
            self.end = Some(End::Fault);
        }
        if self.finishing && self.conversation.is_idle() && self.client.rest.is_over() {
            refusal::command(&mut self.engine.pending, commands::QUIT, &[]);
            self.stop_serving(STOPPING);
        }
        if !self.client.writes && self.client.reads {
            // Nobody reads the answers any more: see what is running to its end.
            self.client.reads = false;
        }
        if (self.finishing || !self.client.reads) && !self.shut && self.engine.writes {
            self.conversation.look(&mut self.engine.pending);
        }
        let left = !self.client.reads && !self.shut && self.client.rest.is_over();
        if left && self.conversation.leaves_open() {
            self.conversation.roll_back(0, true, &mut self.engine.pending);
        }
        if !self.client.reads {
            self.after_step_abandoned();
        }
        if self.full && !self.client.writes {
            // Nor the ones that are still to be made, to commands that were refused.
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

    /// An engine that has a guard to read takes a client for there that has gone, in whatever it
    /// waits for: a lock, a SLEEP that no text shows. So the read in front of it is killed, once.
    /// There is no transaction that this could end, and nothing of the client's comes behind it.
    #[cold]
    fn after_step_abandoned(&mut self) {
        let goes_on = self.conversation.is_armed_ahead() && self.broken.is_none();
        if goes_on && !self.abandoned {
            // Whether it was delivered changes nothing here.
            drop((self.canceller)());
        }
        self.abandoned = goes_on;
    }

    /// Nothing of a held program was forwarded: it goes with its client, and where the client's
    /// name leads elsewhere now the client is sent there (W21).
    #[cold]
    fn after_step_parked(&mut self) {
        if !self.client.reads {
            self.parked = false;
            self.conversation.leave_hold(Parting::Gone);
            self.forget_held();
        } else if self.route_moved && self.end.is_none() {
            refusal::command(&mut self.engine.pending, commands::QUIT, &[]);
            self.stop_serving(ROUTE_MOVED);
        }
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
        let mut out = Outgoing::new(chunk, &mut self.client.pending);
        let sorted = engine::sort(
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
                tracing::error!(%fault, "session ended");
                self.end = Some(End::Fault);
                chunk.len()
            }
        }
    }

    /// The engine's end of file, or its connection broke. Where something that may have committed
    /// was running, the client is told that nobody knows; else it sees the close.
    #[cold]
    fn engine_gone(&mut self) {
        if let Some(what) = self.broken.take() {
            self.say_last(|_, sequence, to_client| {
                refusal::error(to_client, sequence, 1835, "HY000", &what);
            });
            return;
        }
        if let Some(denial) = self.conversation.cut_reading() {
            let refusal = self.conversation.refusal(denial);
            self.say_last(|conversation, sequence, to_client| {
                conversation.tell(to_client, sequence, &refusal);
            });
        } else if self.conversation.may_have_committed() && self.client.writes {
            self.say_last(|_, sequence, to_client| {
                refusal::error(to_client, sequence, 9790, "08007", ENGINE_LOST);
            });
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
        if self.parked {
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
