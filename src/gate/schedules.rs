//! Every schedule of a session against a closing gate, tried by loom on the real code.
//!
//! Purpose: invariants 2 and 6 under every interleaving, and every reordering that the memory model
//! allows, of the words of `gate/shared.rs`: what `gate/tests.rs` tries at three named steps of one
//! thread. `make test` runs it (`cargo test --lib --features loom gate::schedules`).
//!
//! Three control arms: without the second look, with words that aren't in one order for all, and
//! with a drain that looks before the gate is closed, a schedule must be found that breaks the
//! invariant. Loom says so by panicking.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use loom::thread;

use super::admission::{Guard, Seat};
use super::drain::{Drain, ReadDrain};
use super::registry::{Authority, Gate, Gates};
use super::shared::UNORDERED;
use super::slot::Card;
use crate::base::ids::{Generation, Namespace, SessionId};
use crate::fence::record::InFlight;
use crate::fence::verdict::Overlay;
use crate::sql::StatementClass;
use crate::store::LoadedFence;

/// The switch of a control arm is the process's: one model at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

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

/// What a drain found when it looked once.
#[derive(Clone, Copy)]
struct Looked {
    clear: bool,
    generation: Generation,
}

fn look(gate: &Arc<Gate>) -> Looked {
    let mut drain = Drain::of(Arc::clone(gate)).expect("the gate is closed");
    Looked { clear: drain.look().is_some(), generation: drain.generation() }
}

/// What a model is run for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    /// It must hold in every schedule.
    Proof,
    /// It must hold in every schedule with at most so many preemptions.
    Bounded(usize),
    /// Control arm: a schedule must be found in which it doesn't hold.
    Violation,
    /// The same, with words that are only acquired and released.
    Unordered,
}

fn tried(wanted: For, model: fn()) {
    let expect_violation = matches!(wanted, For::Violation | For::Unordered);
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut builder = loom::model::Builder::new();
    if let For::Bounded(preemptions) = wanted {
        builder.preemption_bound = Some(preemptions);
    }
    let schedules = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&schedules);
    UNORDERED.store(wanted == For::Unordered, Ordering::SeqCst);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        builder.check(move || {
            counted.fetch_add(1, Ordering::SeqCst);
            model();
        });
    }));
    UNORDERED.store(false, Ordering::SeqCst);
    eprintln!("{} schedules", schedules.load(Ordering::SeqCst));
    match ended {
        Ok(()) => assert!(!expect_violation, "no schedule breaks it: the model sees nothing"),
        Err(panic) if expect_violation => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default();
            assert!(said.contains("VIOLATION"), "it broke for another reason: {said}");
        }
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// A writer against a gate that closes, is looked at, and opens again.
fn writer<const LOOK_AGAIN: bool>() {
    let gate = open_gate();
    let seat = Seat::take(Arc::clone(&gate), SessionId(1), Card::default());
    let its = Arc::clone(&seat);
    let session = thread::spawn(move || {
        let admitted = its.admit_by::<LOOK_AGAIN>(StatementClass::Write, None, true, |_| {});
        admitted.map(|(stamp, _)| stamp.generation).ok()
    });
    close(&gate);
    let looked = look(&gate);
    reopen(&gate);
    let admitted = session.join().unwrap();
    if let (Some(generation), true) = (admitted, looked.clear) {
        assert!(
            generation >= looked.generation,
            "VIOLATION: a writer of generation {generation} behind a drain of {}",
            looked.generation
        );
    }
}

#[test]
fn invariant_02_a_writer_is_refused_or_seen_in_every_schedule() {
    tried(For::Proof, writer::<true>);
}

#[test]
fn invariant_02_control_arm_without_the_second_look() {
    tried(For::Violation, writer::<false>);
}

#[test]
fn invariant_02_control_arm_with_words_in_no_common_order() {
    tried(For::Unordered, writer::<true>);
}

#[test]
fn invariant_02_control_arm_a_drain_that_looks_before_the_gate_is_closed() {
    tried(For::Violation, || {
        let gate = open_gate();
        let seat = Seat::take(Arc::clone(&gate), SessionId(1), Card::default());
        let its = Arc::clone(&seat);
        let session = thread::spawn(move || {
            its.admit_by::<true>(StatementClass::Write, None, true, |_| {}).is_ok()
        });
        let clear = gate.sessions().iter().all(|slot| slot.stamp().is_none());
        close(&gate);
        assert!(!(session.join().unwrap() && clear), "VIOLATION: a writer that wasn't seen");
    });
}

#[test]
fn invariant_02_the_next_read_of_an_open_transaction_is_guarded_or_seen() {
    tried(For::Proof, || {
        let gate = open_gate();
        let seat = Seat::take(Arc::clone(&gate), SessionId(1), Card::default());
        let (mut lease, _) = seat.begin(StatementClass::Read, 0).unwrap();
        lease.paused();
        let its = Arc::clone(&seat);
        let session = thread::spawn(move || {
            let guard = its.extend(&mut lease, StatementClass::Read, true).ok();
            (lease, guard)
        });
        close(&gate);
        let looked = look(&gate);
        let (lease, guard) = session.join().unwrap();
        assert!(
            guard == Some(Guard::On) || !looked.clear,
            "VIOLATION: a read without a guard that wasn't seen"
        );
        lease.answered();
    });
}

/// A read against a gate that is closed to reads and looked at. From an open gate: what a closed
/// one publishes beside its word isn't modelled.
fn reader<const LOOK_AGAIN: bool>() {
    let gate = open_gate();
    let seat = Seat::take(Arc::clone(&gate), SessionId(1), Card::default());
    let its = Arc::clone(&seat);
    let session = thread::spawn(move || {
        its.admit_by::<LOOK_AGAIN>(StatementClass::Read, None, true, |_| {}).is_ok()
    });
    gate.overlay(Overlay::ClosingReads, InFlight::Finish);
    let clear = ReadDrain::of(Arc::clone(&gate)).expect("closed").look().is_some();
    let admitted = session.join().unwrap();
    assert!(!(admitted && clear), "VIOLATION: a read that wasn't seen");
}

#[test]
fn invariant_02_a_read_is_refused_or_seen_in_every_schedule() {
    tried(For::Proof, reader::<true>);
}

#[test]
fn invariant_02_control_arm_a_read_without_the_second_look() {
    tried(For::Violation, reader::<false>);
}

#[test]
fn invariant_06_what_is_drained_stays_drained_while_leases_come_and_go() {
    tried(For::Proof, || {
        let gate = open_gate();
        let seat = Seat::take(Arc::clone(&gate), SessionId(1), Card::default());
        let its = Arc::clone(&seat);
        let session = thread::spawn(move || {
            if let Ok((lease, _)) = its.begin(StatementClass::Write, 0) {
                lease.answered();
            }
            its.begin(StatementClass::Write, 0).ok().map(|(lease, _)| lease)
        });
        close(&gate);
        let looked = look(&gate);
        // A later look may find a lease on its way back, but none that was given.
        let lease = session.join().unwrap();
        assert!(
            lease.is_none() || !looked.clear,
            "VIOLATION: a lease joined a drain that was over"
        );
        lease.into_iter().for_each(super::lease::Lease::answered);
        assert!(look(&gate).clear, "VIOLATION: a lease that was answered is still published");
    });
}

#[test]
fn invariant_02_two_writers_and_a_closing_gate() {
    tried(For::Bounded(3), || {
        let gate = open_gate();
        let writer = |id: u64| {
            let seat = Seat::take(Arc::clone(&gate), SessionId(id), Card::default());
            thread::spawn(move || {
                let lease = seat.begin(StatementClass::Write, 0).ok().map(|(lease, _)| lease);
                (seat, lease)
            })
        };
        let sessions = [writer(1), writer(2)];
        close(&gate);
        let looked = look(&gate);
        let ended = sessions.map(|session| session.join().unwrap());
        let admitted = ended.iter().any(|(_, lease)| lease.is_some());
        assert!(!(admitted && looked.clear), "VIOLATION: a writer that wasn't seen");
        for (_, lease) in ended {
            lease.into_iter().for_each(super::lease::Lease::answered);
        }
    });
}
