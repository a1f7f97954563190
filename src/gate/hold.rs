//! Programs that wait at a closed gate: bounded in count, bytes and time, in arrival order.
//!
//! Purpose: wire.md W20. `HoldCore` is the queue as a plain struct; `Holds` puts it behind a
//! lock, one per gate; a [`Place`] is one held program's place in it and leaves with its
//! owner, and [`Kept`] is what its client had sent behind it and isn't worked off yet. A gate that
//! moves calls who waits, in arrival order and at most `limits::HELD_CALLED_MAX` at a
//! time; whoever is called asks admission again and leaves or stays (invariant 9: what waited is
//! judged again). Nothing polls: between two calls a held session isn't touched.
//!
//! Called by `gate/registry.rs` (the gate moved) and `wire/` (through [`Seat::park`]). It admits
//! nothing and knows no time: the owner of a place ends its own waiting.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::ids::Generation;
use crate::base::limits;
use crate::fence::verdict::HoldRule;
use crate::gate::admission::Seat;
use crate::gate::registry::Gate;
use crate::gate::slot::{Order, Slot};

/// One held program.
#[derive(Debug)]
struct Waiting<T> {
    who: T,
    bytes: usize,
    since_ms: u64,
    /// It was called and hasn't said yet what became of it.
    called: bool,
}

/// The queue. `T` is whom to call.
#[derive(Debug)]
struct HoldCore<T> {
    waiting: BTreeMap<u64, Waiting<T>>,
    /// The next arrival's number.
    next: u64,
    bytes: usize,
    /// How many are called at the moment.
    called: usize,
    /// Arrivals from here on, and below `until`, are still to be called.
    from: u64,
    until: u64,
}

impl<T: Clone> HoldCore<T> {
    const fn new() -> Self {
        Self { waiting: BTreeMap::new(), next: 0, bytes: 0, called: 0, from: 0, until: 0 }
    }

    /// Takes a program in, unless there is no room. Answers its number. `kept` of its bytes are in
    /// the account already: they are taken off it with this entry.
    fn enter(
        &mut self,
        who: T,
        (bytes, kept): (usize, usize),
        since_ms: u64,
        held_max: usize,
    ) -> Option<u64> {
        let large = bytes > limits::HELD_PROGRAM_BYTES_MAX;
        let others = self.bytes.saturating_sub(kept);
        let fits = others.saturating_add(bytes) <= limits::HELD_BYTES_MAX;
        if self.waiting.len() >= held_max || large || !fits {
            return None;
        }
        let arrival = self.next;
        self.next += 1;
        self.bytes = others + bytes;
        self.waiting.insert(arrival, Waiting { who, bytes, since_ms, called: false });
        Some(arrival)
    }

    const fn fits(&self, bytes: usize) -> bool {
        self.bytes.saturating_add(bytes) <= limits::HELD_BYTES_MAX
    }

    /// More bytes of a held program's client have come. False when there is no room for them.
    fn grow(&mut self, arrival: u64, bytes: usize) -> bool {
        if !self.fits(bytes) {
            return false;
        }
        let Some(waiting) = self.waiting.get_mut(&arrival) else { return false };
        let grown = waiting.bytes.saturating_add(bytes);
        if grown > limits::HELD_PROGRAM_BYTES_MAX {
            return false;
        }
        waiting.bytes = grown;
        self.bytes += bytes;
        true
    }

    /// A program is about to be taken out, and its bytes aren't gone with it. Answers how many they
    /// are; they stay in the account until [`HoldCore::forget`].
    fn part(&mut self, arrival: u64) -> usize {
        self.waiting.get_mut(&arrival).map_or(0, |waiting| std::mem::take(&mut waiting.bytes))
    }

    /// Bytes that were kept behind a program are gone.
    fn forget(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Takes a program out. Answers who is called in its stead.
    fn leave(&mut self, arrival: u64) -> Vec<T> {
        if let Some(waiting) = self.waiting.remove(&arrival) {
            self.bytes = self.bytes.saturating_sub(waiting.bytes);
            self.called = self.called.saturating_sub(usize::from(waiting.called));
        }
        self.call()
    }

    /// A called program was judged again and stays, in its old place.
    fn stay(&mut self, arrival: u64) -> Vec<T> {
        if let Some(waiting) = self.waiting.get_mut(&arrival) {
            self.called = self.called.saturating_sub(usize::from(waiting.called));
            waiting.called = false;
        }
        self.call()
    }

    /// The gate moved: everybody is called, from the first on.
    fn moved(&mut self) -> Vec<T> {
        self.from = 0;
        self.until = self.next;
        self.call()
    }

    fn call(&mut self) -> Vec<T> {
        let mut calls = Vec::new();
        let due = (Bound::Included(self.from), Bound::Excluded(self.until.max(self.from)));
        for (arrival, waiting) in self.waiting.range_mut(due) {
            if self.called >= limits::HELD_CALLED_MAX {
                return calls;
            }
            self.from = arrival + 1;
            // Who is called already looks at the gate once more before it stays.
            if !waiting.called {
                waiting.called = true;
                self.called += 1;
                calls.push(waiting.who.clone());
            }
        }
        self.from = self.until;
        calls
    }

    fn sight(&self) -> HoldSight {
        HoldSight {
            programs: self.waiting.len(),
            bytes: self.bytes,
            since_ms: self.waiting.values().next().map(|first| first.since_ms),
        }
    }
}

/// What people are shown of a namespace's queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HoldSight {
    /// Programs that are held.
    pub programs: usize,
    /// Their bytes, with what their clients have sent behind them.
    pub bytes: usize,
    /// Since when the first of them waits, in milliseconds of the process's monotonic clock.
    pub since_ms: Option<u64>,
}

/// The queue of one gate.
#[derive(Debug)]
pub(super) struct Holds {
    /// Guards the queue. Taken when a program is parked, grows or leaves, and when the gate moves;
    /// never on the way of a program that isn't held.
    core: Mutex<HoldCore<Arc<Slot>>>,
}

impl Holds {
    pub(super) const fn new() -> Self {
        Self { core: Mutex::new(HoldCore::new()) }
    }

    fn locked(&self) -> MutexGuard<'_, HoldCore<Arc<Slot>>> {
        // Counts and map are changed together without anything in between that could panic.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The gate has moved, and the new word is published.
    pub(super) fn moved(&self) {
        let calls = self.locked().moved();
        call(calls);
    }

    pub(super) fn sight(&self) -> HoldSight {
        self.locked().sight()
    }
}

fn call(slots: Vec<Arc<Slot>>) {
    for slot in slots {
        slot.order(Order::JUDGE_AGAIN, Generation(0));
    }
}

/// One held program's place. Dropping it leaves the queue.
#[derive(Debug)]
pub struct Place {
    gate: Arc<Gate>,
    slot: Arc<Slot>,
    arrival: u64,
}

impl Place {
    /// The program was judged again and stays, in its old place. `seen` is the generation that
    /// refused it: when the gate has moved since, the session is called at once.
    pub fn stay(&self, seen: Generation) {
        let calls = self.gate.holds.locked().stay(self.arrival);
        call(calls);
        self.look(seen);
    }

    /// Counts more bytes of its client. False when there is no room: the program is to be refused.
    #[must_use]
    pub fn grow(&self, bytes: usize) -> bool {
        self.gate.holds.locked().grow(self.arrival, bytes)
    }

    /// Leaves the queue, while its client's bytes are kept.
    #[must_use]
    pub fn part(self) -> Kept {
        let bytes = self.gate.holds.locked().part(self.arrival);
        Kept { gate: Arc::clone(&self.gate), bytes }
    }

    /// The gate changes its word and then calls the queue; a program enters the queue and then
    /// reads the word. So one of the two sees the other, and no call is lost.
    fn look(&self, seen: Generation) {
        if self.gate.word().generation() != seen {
            self.slot.order(Order::JUDGE_AGAIN, Generation(0));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.slot.note_held(None);
        let calls = self.gate.holds.locked().leave(self.arrival);
        call(calls);
    }
}

/// Bytes of a client whose program isn't held any more, in the namespace's account for as long as
/// they are kept. Dropping it takes them off.
#[derive(Debug)]
pub struct Kept {
    gate: Arc<Gate>,
    bytes: usize,
}

impl Kept {
    /// No more than this many bytes are kept any more. Answers whether any are.
    pub fn shrink(&mut self, bytes: usize) -> bool {
        let gone = self.bytes.saturating_sub(bytes);
        if gone > 0 {
            self.gate.holds.locked().forget(gone);
            self.bytes -= gone;
        }
        self.bytes > 0
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

impl Seat {
    /// Parks a program of this session that the gate has refused under the generation `seen`.
    /// `bytes` is what is there of it and behind it; what is `kept` is part of that, and is taken
    /// over. `now_ms` is the process's monotonic clock, for people. `None` when there is no room:
    /// then what is kept stays so. When the gate moves, the session is given the order
    /// [`Order::JUDGE_AGAIN`]; what is held carries no lease.
    #[must_use]
    pub fn park(
        &self,
        rule: HoldRule,
        seen: Generation,
        (bytes, kept): (usize, &mut Option<Kept>),
        now_ms: u64,
    ) -> Option<Place> {
        let (gate, slot) = (Arc::clone(self.gate()), Arc::clone(self.slot()));
        let here = kept.as_ref().filter(|kept| Arc::ptr_eq(&kept.gate, &gate));
        let sizes = (bytes, here.map_or(0, |kept| kept.bytes));
        let entered = gate.holds.locked().enter(Arc::clone(&slot), sizes, now_ms, rule.held_max);
        let place = Place { arrival: entered?, gate, slot };
        if let Some(mut kept) = kept.take()
            && sizes.1 > 0
        {
            // They are in the account as this program's now.
            kept.bytes = 0;
        }
        place.slot.note_held(Some(now_ms));
        place.look(seen);
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(count: u64) -> HoldCore<u64> {
        let mut core = HoldCore::new();
        for who in 0..count {
            assert_eq!(core.enter(who, (1, 0), who, usize::MAX), Some(who));
        }
        core
    }

    #[test]
    fn w20_held_programs_are_called_in_arrival_order_and_few_at_a_time() {
        let window = limits::HELD_CALLED_MAX as u64;
        let mut core = filled(3 * window);
        let mut order = core.moved();
        assert_eq!(order.len() as u64, window);
        for done in 0..3 * window {
            order.extend(core.leave(done));
            assert!(core.called <= limits::HELD_CALLED_MAX);
        }
        assert_eq!(order, (0..3 * window).collect::<Vec<_>>());
        assert_eq!((core.sight(), core.called), (HoldSight::default(), 0));
    }

    #[test]
    fn who_stays_keeps_its_place_and_is_called_again_when_the_gate_moves_again() {
        let mut core = filled(3);
        assert_eq!(core.moved(), [0, 1, 2]);
        for who in 0..3 {
            assert!(core.stay(who).is_empty(), "one move, one call");
        }
        core.enter(3, (1, 0), 3, usize::MAX);
        core.leave(1);
        assert_eq!(core.moved(), [0, 2, 3]);
    }

    #[test]
    fn who_comes_after_a_move_is_not_called_for_it() {
        let window = limits::HELD_CALLED_MAX as u64;
        let mut core = filled(window + 1);
        core.moved();
        let late = core.enter(999, (1, 0), 0, usize::MAX).unwrap();
        assert_eq!(core.leave(0), [window]);
        assert!(core.leave(1).is_empty());
        assert!(core.leave(late).is_empty());
    }

    #[test]
    fn who_goes_while_called_makes_room_for_the_next() {
        let window = limits::HELD_CALLED_MAX as u64;
        let mut core = filled(window + 3);
        core.moved();
        // One that wasn't called goes: nobody is called for it, and nobody calls it.
        assert!(core.leave(window).is_empty());
        assert_eq!(core.leave(5), [window + 1]);
        assert_eq!(core.stay(6), [window + 2]);
        assert!(core.leave(6).is_empty(), "it had said so already");
    }

    #[test]
    fn count_and_bytes_are_bounded() {
        let mut core = filled(0);
        assert_eq!(core.enter(0, (1, 0), 0, 0), None, "no room at all");
        assert_eq!(core.enter(0, (1, 0), 7, 2), Some(0));
        assert_eq!(core.enter(1, (1, 0), 8, 2), Some(1));
        assert_eq!(core.enter(2, (1, 0), 9, 2), None);
        assert_eq!(core.sight(), HoldSight { programs: 2, bytes: 2, since_ms: Some(7) });
        core.leave(0);
        let large = limits::HELD_PROGRAM_BYTES_MAX;
        assert_eq!(core.enter(2, (large + 1, 0), 9, 9), None, "a program has a bound of its own");
        let many = limits::HELD_BYTES_MAX / large;
        for _ in 1..many {
            assert!(core.enter(0, (large, 0), 9, many + 1).is_some());
        }
        assert!(core.enter(0, (large - 1, 0), 9, many + 1).is_some());
        assert!(!core.grow(1, 1), "the namespace's bytes are used up");
        for arrival in 2..=u64::try_from(many).unwrap() + 1 {
            core.leave(arrival);
        }
        assert!(core.grow(1, limits::HELD_PROGRAM_BYTES_MAX - 1));
        assert!(!core.grow(1, 1), "the program's are");
        assert!(!core.grow(2, 1), "gone");
        core.leave(1);
        assert_eq!(core.sight(), HoldSight::default());
    }

    #[test]
    fn bytes_that_are_kept_stay_in_the_account_until_they_are_gone() {
        let mut core = filled(0);
        assert_eq!(core.enter(0, (100, 0), 0, 9), Some(0));
        let kept = core.part(0);
        core.leave(0);
        assert_eq!((kept, core.sight()), (100, HoldSight { bytes: 100, ..HoldSight::default() }));
        core.forget(40);
        // The next program of the same bytes takes them over instead of counting them twice.
        assert_eq!(core.enter(0, (60, 60), 0, 9), Some(1));
        assert_eq!(core.sight().bytes, 60);
        let room = limits::HELD_BYTES_MAX - 60;
        core.bytes += room;
        assert!(core.enter(1, (1, 0), 0, 9).is_none(), "there is no room");
        core.bytes -= room;
        assert_eq!(core.part(1), 60);
        core.leave(1);
        core.forget(60);
        assert_eq!(core.sight(), HoldSight::default());
    }
}
