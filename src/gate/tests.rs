//! Schedules of one session against one closing gate, each guard with its control arm.
//!
//! The atomic steps of an admission are few (`admission::Step`), so every place where a gate can
//! close between them is tried, not a random sample of them.

use std::sync::Arc;

use super::admission::{Guard, Seat, Step};
use super::drain::{Drain, ReadDrain};
use super::registry::{Authority, Gate, Gates};
use super::slot::{Card, Order, Running};
use crate::base::ids::{Generation, Namespace, SessionId};
use crate::fence::code::Denial;
use crate::fence::record::InFlight;
use crate::fence::verdict::Overlay;
use crate::sql::StatementClass;
use crate::store::LoadedFence;

const STEPS: [Step; 3] = [Step::Read, Step::Decided, Step::Published];

fn open_gate() -> Arc<Gate> {
    let gates = Gates::new(Generation(1));
    gates.recovered();
    gates.gate(&Namespace::parse("old/app").unwrap())
}

fn close(gate: &Gate) {
    gate.overlay(Overlay::Installing, InFlight::Finish);
}

fn reopen(gate: &Gate) {
    let loaded = LoadedFence::of_an_empty_store(gate.namespace().clone());
    gate.apply(Authority::Loaded(&loaded), InFlight::Finish);
}

fn seat(gate: &Arc<Gate>, id: u64) -> Arc<Seat> {
    Seat::take(Arc::clone(gate), SessionId(id), Card::default())
}

#[test]
fn invariant_03_without_a_record_a_gate_only_closes() {
    let gate = open_gate();
    close(&gate);
    let closed = gate.word();
    gate.overlay(Overlay::None, InFlight::Finish);
    assert_eq!(gate.word(), closed, "an overlay that is none opens nothing");
    gate.overlay(Overlay::Indeterminate, InFlight::Refuse);
    gate.close_as_unknown();
    assert!(!gate.published().policy.reads_open());
    reopen(&gate);
    assert!(gate.word().all_open(), "control arm: what the store says opens it");
}

/// Closes the gate at one step of a writer's admission, and looks as a drain does right then.
/// Answers whether the writer was admitted, and whether the drain saw it.
fn race<const LOOK_AGAIN: bool>(when: Step) -> (bool, bool) {
    let gate = open_gate();
    let seat = seat(&gate, 1);
    let mut seen = None;
    let admitted = seat
        .admit_by::<LOOK_AGAIN>(StatementClass::Write, None, true, |step| {
            if step == when && seen.is_none() {
                close(&gate);
                let mut drain = Drain::of(Arc::clone(&gate)).unwrap();
                seen = Some(drain.look().is_none());
            }
        })
        .is_ok();
    (admitted, seen.unwrap())
}

#[test]
fn invariant_02_a_writer_is_refused_or_seen_wherever_the_gate_closes() {
    for when in STEPS {
        let (admitted, seen) = race::<true>(when);
        assert!(!admitted || seen, "admitted and not seen: closed at {when:?}");
    }
    let gate = open_gate();
    let seat = seat(&gate, 1);
    let admitted = seat.begin(StatementClass::Write, 0).unwrap();
    close(&gate);
    let mut drain = Drain::of(Arc::clone(&gate)).unwrap();
    assert!(drain.look().is_none(), "closed behind the admission: the drain waits");
    admitted.0.answered();
    assert!(drain.look().is_some());
}

#[test]
fn invariant_02_control_arm_without_the_second_look_a_writer_slips_through() {
    let slipped = STEPS.into_iter().any(|when| {
        let (admitted, seen) = race::<false>(when);
        admitted && !seen
    });
    assert!(slipped, "the schedules can't tell a gate with its guard from one without");
}

#[test]
fn invariant_06_nothing_joins_a_drain_that_is_over() {
    let gate = open_gate();
    close(&gate);
    let mut drain = Drain::of(Arc::clone(&gate)).unwrap();
    assert!(drain.look().is_some());
    let seat = seat(&gate, 1);
    let refusal = seat.begin(StatementClass::Write, 0).unwrap_err();
    assert_eq!(refusal.denial, Denial::WriteFenced);
    let (reader, guard) = seat.begin(StatementClass::Read, 0).unwrap();
    assert_eq!(guard, Guard::On);
    assert!(drain.look().is_some(), "a reader isn't waited for");
    reader.answered();
}

#[test]
fn invariant_06_a_reader_of_before_stays_a_reader() {
    let gate = open_gate();
    let seat = seat(&gate, 1);
    let (mut lease, guard) = seat.begin(StatementClass::Read, 0).unwrap();
    assert_eq!(guard, Guard::Off);
    close(&gate);
    let denial = |result: Result<Guard, Box<super::admission::Refusal>>| result.unwrap_err().denial;
    assert_eq!(denial(seat.extend(&mut lease, StatementClass::Write, true)), Denial::WriteFenced);
    reopen(&gate);
    assert_eq!(
        denial(seat.extend(&mut lease, StatementClass::Write, true)),
        Denial::StaleTransaction
    );
    assert_eq!(seat.extend(&mut lease, StatementClass::Read, true).unwrap(), Guard::Off);
    lease.answered();
    let (fresh, _) = seat.begin(StatementClass::Write, 0).unwrap();
    fresh.answered();
}

#[test]
fn invariant_07_a_lease_without_an_outcome_blocks_until_the_engine_was_asked() {
    let gate = open_gate();
    let seat = seat(&gate, 1);
    let (lease, _) = seat.begin(StatementClass::Write, 0).unwrap();
    close(&gate);
    let mut drain = Drain::of(Arc::clone(&gate)).unwrap();
    drop(lease);
    drop(seat);
    assert!(
        drain.look().is_none(),
        "dropped is not finished, and the session's end changes nothing"
    );
    assert_eq!(gate.session_count(), 1);
    assert!(gate.settle(SessionId(1)));
    let drained = drain.look().unwrap();
    assert_eq!((drained.by_answer(), drained.by_engine()), (0, 1));
    assert!(!gate.settle(SessionId(1)), "settled once");
}

/// A session that was lost, and that the drain doesn't wait for, is none of its releases.
#[test]
fn the_engines_word_about_a_stranger_is_no_release_of_the_drain() {
    let gate = open_gate();
    let (writer, reader) = (seat(&gate, 1), seat(&gate, 2));
    let (lease, _) = writer.begin(StatementClass::Write, 0).unwrap();
    close(&gate);
    let mut drain = Drain::of(Arc::clone(&gate)).unwrap();
    let (guarded, guard) = reader.begin(StatementClass::Read, 0).unwrap();
    assert_eq!(guard, Guard::On);
    drop(guarded);
    drop(reader);
    assert!(gate.settle(SessionId(2)));
    lease.answered();
    let drained = drain.look().unwrap();
    assert_eq!((drained.by_answer(), drained.by_engine()), (1, 0));
    // Nor does the later loss of the writer's session change how that lease ended.
    let mut again = Drain::of(Arc::clone(&gate)).unwrap();
    assert_eq!(again.look().unwrap().by_answer(), 0);
    let (guarded, _) = writer.begin(StatementClass::Read, 0).unwrap();
    drop(guarded);
    drop(writer);
    assert!(gate.settle(SessionId(1)));
    let drained = drain.look().unwrap();
    assert_eq!((drained.by_answer(), drained.by_engine()), (1, 0));
}

#[test]
fn invariant_07_control_arm_a_live_lease_cannot_be_settled() {
    let gate = open_gate();
    let seat = seat(&gate, 1);
    let (lease, _) = seat.begin(StatementClass::Write, 0).unwrap();
    close(&gate);
    assert!(!gate.settle(SessionId(1)));
    assert!(Drain::of(Arc::clone(&gate)).unwrap().look().is_none());
    lease.answered();
    drop(seat);
    assert_eq!(gate.session_count(), 0);
}

#[test]
fn a_seat_that_goes_takes_no_other_out_of_the_drains_sight() {
    let gate = open_gate();
    let earlier = seat(&gate, 1);
    let later = seat(&gate, 1);
    let (lease, _) = later.begin(StatementClass::Write, 0).unwrap();
    drop(earlier);
    close(&gate);
    let mut drain = Drain::of(Arc::clone(&gate)).unwrap();
    assert!(drain.look().is_none(), "VIOLATION: a writer that the drain doesn't see");
    lease.answered();
    drop(later);
    assert_eq!(gate.session_count(), 0);
}

#[test]
fn an_open_gate_has_nothing_to_drain() {
    assert!(Drain::of(open_gate()).is_none());
}

#[test]
fn a_gate_nothing_is_known_about_admits_nothing() {
    let gates = Gates::new(Generation(1));
    let gate = gates.gate(&Namespace::parse("old/app").unwrap());
    let seat = seat(&gate, 1);
    let refusal = seat.begin(StatementClass::Read, 0).unwrap_err();
    assert_eq!(refusal.denial, Denial::StateUnavailable);
}

#[test]
fn the_wait_ends_with_the_release_and_not_before() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let gate = open_gate();
        let seat = seat(&gate, 1);
        let (lease, _) = seat.begin(StatementClass::Write, 0).unwrap();
        close(&gate);
        let mut drain = Drain::of(Arc::clone(&gate)).unwrap();
        let mut wait = Box::pin(drain.wait());
        let first = futures_poll(&mut wait).await;
        assert!(first.is_none(), "nothing was released yet");
        lease.answered();
        let drained = wait.await;
        assert_eq!((drained.by_answer(), drained.by_engine()), (1, 0));
    });
}

/// Polls once.
async fn futures_poll<F: std::future::Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(cx) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[test]
fn orders_are_seen_once_with_the_highest_generation() {
    let gate = open_gate();
    let seat = seat(&gate, 1);
    seat.slot().order(Order::ROLL_BACK, Generation(7));
    seat.slot().order(Order::FINISH, Generation(5));
    let (order, before) = seat.slot().take_orders();
    assert!(order.has(Order::ROLL_BACK) && order.has(Order::FINISH) && !order.has(Order::END));
    assert_eq!(before, Generation(7));
    assert!(seat.slot().take_orders().0.is_none());
}

#[test]
fn an_order_to_stop_meets_the_program_it_names_and_no_other() {
    let gate = open_gate();
    let seat = seat(&gate, 1);
    let slot = seat.slot();
    let stops = || slot.take_orders().0.has(Order::STOP_WRITING);
    let (mut lease, _) = seat.begin(StatementClass::Read, 0).unwrap();
    let first = slot.pauses();
    slot.order_stop(first, Generation(1));
    assert!(stops() && !stops(), "it runs, and an order is obeyed once");
    // Between programs, and with the next one of the same transaction.
    lease.paused();
    slot.order_stop(first, Generation(1));
    assert!(!stops(), "nothing runs");
    slot.order_stop(slot.pauses(), Generation(1));
    assert!(!stops(), "nothing runs, whatever the count");
    lease.extend(StatementClass::Read, true).unwrap();
    slot.order_stop(first, Generation(1));
    slot.order(Order::FINISH, Generation(1));
    let (orders, _) = slot.take_orders();
    assert!(!orders.has(Order::STOP_WRITING), "the program it names has ended");
    assert!(orders.has(Order::FINISH), "other orders stand");
    slot.order_stop(slot.pauses(), Generation(1));
    assert!(stops());
    // A writer of before the fence is the drain's matter.
    lease.extend(StatementClass::Write, true).unwrap();
    slot.order_stop(slot.pauses(), Generation(1));
    assert!(!stops());
    lease.answered();
    slot.order_stop(slot.pauses(), Generation(1));
    assert!(!stops(), "no lease");
}

#[test]
fn a_drain_waits_for_unguarded_reads_and_for_no_others() {
    let gate = open_gate();
    let seats = [seat(&gate, 1), seat(&gate, 2), seat(&gate, 3)];
    let (running, _) = seats[0].begin(StatementClass::Read, 0).unwrap();
    let (mut idle, _) = seats[1].begin(StatementClass::Read, 0).unwrap();
    idle.paused();
    close(&gate);
    let (guarded, guard) = seats[2].begin(StatementClass::Read, 0).unwrap();
    assert_eq!(guard, Guard::On);
    let mut drain = Drain::of(Arc::clone(&gate)).unwrap();
    let waited: Vec<SessionId> = drain.blockers().iter().map(|slot| slot.id()).collect();
    assert_eq!(waited, [SessionId(1)]);
    // The idle one goes on: its next program is guarded, and isn't waited for.
    assert_eq!(seats[1].extend(&mut idle, StatementClass::Read, true).unwrap(), Guard::On);
    running.answered();
    assert!(drain.look().is_some());
    idle.answered();
    guarded.answered();
}

#[test]
fn a_read_that_begins_in_an_open_transaction_is_refused_or_seen_as_well() {
    for when in [Step::Read, Step::Decided, Step::Published] {
        let gate = open_gate();
        let seat = seat(&gate, 1);
        let (mut lease, _) = seat.begin(StatementClass::Read, 0).unwrap();
        lease.paused();
        let held = Some(lease.stamp());
        let mut seen = None;
        let (_, guard) = seat
            .admit_by::<true>(StatementClass::Read, held, true, |step| {
                if step == when && seen.is_none() {
                    close(&gate);
                    let mut drain = Drain::of(Arc::clone(&gate)).unwrap();
                    seen = Some(drain.look().is_none());
                }
            })
            .unwrap();
        assert!(guard == Guard::On || seen == Some(true), "unguarded and not seen: {when:?}");
        lease.answered();
    }
}

#[test]
fn a_read_behind_a_stream_is_seen_as_unguarded() {
    let gate = open_gate();
    let seat = seat(&gate, 1);
    let (mut lease, _) = seat.begin(StatementClass::Stream, 0).unwrap();
    assert_eq!(lease.stamp().running, Running::Guarded, "a stream needs no guard");
    assert_eq!(seat.extend(&mut lease, StatementClass::Read, false).unwrap(), Guard::Off);
    close(&gate);
    assert!(Drain::of(Arc::clone(&gate)).unwrap().look().is_none());
    lease.answered();
}

/// A write-fenced gate: reads are open, and guarded.
fn write_fenced() -> Arc<Gate> {
    let gate = open_gate();
    close(&gate);
    gate
}

fn close_reads(gate: &Gate) {
    gate.overlay(Overlay::ClosingReads, InFlight::Finish);
}

fn waited(drain: &mut ReadDrain) -> Vec<SessionId> {
    drain.blockers().iter().map(|slot| slot.id()).collect()
}

#[test]
fn a_read_drain_waits_for_what_runs_for_cursors_and_for_dumps_and_for_no_idle_transaction() {
    let gate = write_fenced();
    assert!(ReadDrain::of(Arc::clone(&gate)).is_none(), "reads are open");
    let dumper = Card { application_name: "pg_dump".to_owned(), ..Card::default() };
    let seats = [seat(&gate, 1), seat(&gate, 2), seat(&gate, 3)];
    let dump = Seat::take(Arc::clone(&gate), SessionId(4), dumper);
    let (running, guard) = seats[0].begin(StatementClass::Read, 0).unwrap();
    assert_eq!(guard, Guard::On, "a guarded read is a read");
    let (mut idle, _) = seats[1].begin(StatementClass::Read, 0).unwrap();
    idle.paused();
    let (mut declared, _) = seats[2].begin(StatementClass::Read, 0).unwrap();
    seats[2].set_cursor(true);
    declared.paused();
    let (mut dumped, _) = dump.begin(StatementClass::Read, 0).unwrap();
    dumped.paused();
    close_reads(&gate);
    let mut drain = ReadDrain::of(Arc::clone(&gate)).unwrap();
    assert_eq!(waited(&mut drain), [SessionId(1), SessionId(3), SessionId(4)]);
    // The idle one goes nowhere but to its end.
    let refused = seats[1].extend(&mut idle, StatementClass::Read, true).unwrap_err();
    assert_eq!(refused.denial, Denial::ReadFenced);
    assert!(seats[1].extend(&mut idle, StatementClass::TransactionControl, true).is_ok());
    running.answered();
    dumped.answered();
    idle.answered();
    assert_eq!(waited(&mut drain), [SessionId(3)]);
    seats[2].set_cursor(false);
    let drained = drain.look().unwrap();
    assert_eq!((drained.by_answer(), drained.by_engine()), (3, 0), "the idle one isn't counted");
    declared.answered();
}

#[test]
fn invariant_02_a_read_is_refused_or_seen_wherever_reads_close() {
    let race = |look_again: bool, when: Step| {
        let gate = write_fenced();
        let seat = seat(&gate, 1);
        let mut seen = None;
        let at = |step| {
            if step == when && seen.is_none() {
                close_reads(&gate);
                let mut drain = ReadDrain::of(Arc::clone(&gate)).unwrap();
                seen = Some(drain.look().is_none());
            }
        };
        let read = StatementClass::Read;
        let admitted = if look_again {
            seat.admit_by::<true>(read, None, true, at).is_ok()
        } else {
            seat.admit_by::<false>(read, None, true, at).is_ok()
        };
        (admitted, seen.unwrap())
    };
    for when in STEPS {
        let (admitted, seen) = race(true, when);
        assert!(!admitted || seen, "admitted and not seen: closed at {when:?}");
    }
    let slipped = STEPS.into_iter().any(|when| race(false, when) == (true, false));
    assert!(
        slipped,
        "control arm: the schedules can't tell a gate with its guard from one without"
    );
}

#[test]
fn invariant_07_a_lost_reader_counts_until_the_engine_was_asked() {
    let gate = write_fenced();
    let seat = seat(&gate, 1);
    let (mut lease, _) = seat.begin(StatementClass::Read, 0).unwrap();
    lease.paused();
    close_reads(&gate);
    let mut drain = ReadDrain::of(Arc::clone(&gate)).unwrap();
    assert!(drain.look().is_some(), "idle");
    drop(lease);
    drop(seat);
    assert!(drain.look().is_none(), "its backend may run yet");
    assert!(gate.settle(SessionId(1)));
    assert_eq!(drain.look().unwrap().by_engine(), 1);
}

#[test]
fn the_end_of_a_transaction_without_a_lease_is_never_denied() {
    let gate = write_fenced();
    close_reads(&gate);
    let seat = seat(&gate, 1);
    let control = StatementClass::TransactionControl;
    assert_eq!(seat.begin(control, 0).unwrap_err().denial, Denial::ReadFenced);
    let (lease, guard) = seat.begin_end(0);
    assert_eq!(guard, Guard::On);
    lease.answered();
    assert!(ReadDrain::of(gate).unwrap().look().is_some());
}
