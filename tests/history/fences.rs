//! Fences that rise and fall by the dice.
//!
//! Purpose: one cycle is one operation: acquire under some policy, perhaps replayed, perhaps
//! released before it was proven; every answer and its time goes into the history. Called by
//! `lane.rs`, whatever the engine. That a replay has no second effect is checked here, everything
//! else later.

use std::time::Duration;

use serde_json::Value;

use super::{Dice, Fence, History, PATIENCE, Place, forces};
use crate::acceptance::{fail_after, force_after};
use crate::support::poll;
use crate::support::proxy::uuid;

/// What a cycle does.
#[derive(Debug, Clone, Copy)]
enum Plan {
    /// A long deadline; replayed until proven.
    Clean,
    /// A deadline that passes; then replayed until proven.
    Short,
    /// A deadline that passes; then released, proven or not.
    GiveUp,
    /// Transactions that outlive the deadline are rolled back.
    Force,
    /// Released while the acquire waits.
    Race,
    /// The same command sent twice at once.
    Twice,
}

const PLANS: [Plan; 6] =
    [Plan::Clean, Plan::Short, Plan::GiveUp, Plan::Force, Plan::Race, Plan::Twice];

/// One cycle.
pub fn cycle<P: Place>(site: &P, history: &History, dice: &mut Dice) {
    let plan = PLANS[usize::try_from(dice.below(6)).unwrap()];
    let policy = match plan {
        Plan::Clean | Plan::Race | Plan::Twice => fail_after(10_000),
        Plan::Short => fail_after(site.drain_ms() + 1 + dice.below(60)),
        Plan::GiveUp => fail_after(1 + dice.below(60 + site.drain_ms())),
        Plan::Force => force_after(1 + dice.below(150)),
    };
    let policy = held_sometimes(policy, dice);
    let operation = uuid();
    let body = site.fenced().acquire_body(&operation, &policy);
    let mut cycle = Cycle {
        site,
        history,
        operation,
        fence: Fence {
            asked: history.now(),
            closed: None,
            fenced: None,
            boundary: None,
            log_end: 0,
            releasing: Duration::MAX,
            released: Duration::MAX,
            forces: forces(&policy),
            plan: format!("{plan:?} {policy}"),
        },
        last: String::new(),
    };
    match plan {
        Plan::Clean | Plan::Short | Plan::Force => {
            cycle.until_proven(&body);
            history.wait_more(10 + dice.below(40));
            if cycle.fence.fenced.is_some() {
                cycle.replay(&body);
            }
        }
        Plan::GiveUp => {
            cycle.acquire(&body);
            history.wait_more(dice.below(30));
        }
        Plan::Race => {
            let wait = dice.below(20);
            cycle.race(&body, wait);
        }
        Plan::Twice => {
            cycle.twice(&body);
            history.wait_more(10 + dice.below(30));
        }
    }
    if cycle.fence.released == Duration::MAX {
        cycle.release();
    }
    history.fences.lock().unwrap().push(cycle.fence);
    history.wait_more(20 + dice.below(60));
}

/// One fence of three holds what it would refuse, so shortly that some of it is too late and some
/// meets the release, or the next fence.
fn held_sometimes(mut policy: Value, dice: &mut Dice) -> Value {
    if dice.below(3) == 0 {
        policy["hold_ms"] = (1 + dice.below(60)).into();
    }
    policy
}

/// What of a receipt must be the same at each replay.
fn receipt(answer: &Value) -> [Value; 5] {
    ["command_id", "outcome", "revision_before", "revision_after", "state_after"]
        .map(|name| answer["receipt"][name].clone())
}

struct Cycle<'a, P> {
    site: &'a P,
    history: &'a History,
    operation: String,
    fence: Fence,
    /// Why the last answer was no proof.
    last: String,
}

impl<P: Place> Cycle<'_, P> {
    fn note(&mut self, answer: &(u16, Value)) {
        self.note_at(answer, self.history.now());
    }

    fn note_at(&mut self, answer: &(u16, Value), at: Duration) {
        match answer.0 {
            202 => {
                self.fence.closed.get_or_insert(at);
                self.last = format!("{} {}", answer.1["reason"], answer.1["drain"]["blockers"]);
            }
            200 => {
                self.fence.closed.get_or_insert(at);
                let boundary = &answer.1["fence"]["frozen_boundary"]["value"];
                if self.fence.fenced.is_none() {
                    self.fence.boundary = boundary.as_str().map(|at| self.site.position(at));
                }
                self.fence.fenced.get_or_insert(at);
            }
            _ => self.history.fault(format!("an acquire was refused: {:#}", answer.1)),
        }
    }

    /// Whether the operation's record is there: admission is closed before it is.
    fn stands(&self) -> bool {
        self.site.fenced().inspect()["fence"]["operation_id"] == self.operation.as_str()
    }

    /// Sends the acquire, notes its answer, and says its status.
    fn acquire(&mut self, body: &Value) -> u16 {
        let site = self.site;
        let answer = self.watching(|| site.fenced().acquire(body));
        self.note(&answer);
        answer.0
    }

    /// Does something that raises the fence, and notes when it was first seen: before its answer,
    /// which may wait for a drain.
    fn watching<T: Send>(&mut self, raise: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let raised = scope.spawn(raise);
            // Patience can't run out before the acquire's own ends it.
            let _ = poll(PATIENCE, || {
                if self.fence.closed.is_none() && self.stands() {
                    self.fence.closed = Some(self.history.now());
                }
                (self.fence.closed.is_some() || raised.is_finished()).then_some(())
            });
            raised.join().unwrap()
        })
    }

    /// Replays until it is applied.
    fn until_proven(&mut self, body: &Value) {
        let done = poll(PATIENCE, || (self.acquire(body) != 202).then_some(()));
        if done.is_none() {
            self.history.late(format!("never proven ({}): {}", self.fence.plan, self.last));
        }
    }

    /// A final command replayed: the same receipt, said to be replayed.
    fn replay(&self, body: &Value) {
        let (first, second) = (self.site.fenced().acquire(body), self.site.fenced().acquire(body));
        let same = receipt(&first.1) == receipt(&second.1);
        if first.0 != 200 || !same || second.1["replayed"] != true {
            self.history.fault(format!("a replay differs: {:#} {:#}", first.1, second.1));
        }
    }

    /// Releases while the acquire waits for its drain.
    fn race(&mut self, body: &Value, wait: u64) {
        let (site, history) = (self.site, self.history);
        let (answer, at) = std::thread::scope(|scope| {
            let acquire = scope.spawn(|| (site.fenced().acquire(body), history.now()));
            let closed = poll(PATIENCE, || self.stands().then_some(()));
            match closed {
                Some(()) => self.fence.closed = Some(history.now()),
                None => history.late(format!("not closed: {:#}", site.fenced().inspect())),
            }
            history.wait_more(wait);
            self.release();
            acquire.join().unwrap()
        });
        self.note_at(&answer, at);
    }

    /// The same command twice at once: one effect.
    fn twice(&mut self, body: &Value) {
        let site = self.site;
        let answers = self.watching(|| {
            std::thread::scope(|scope| {
                let twice = [(); 2].map(|()| scope.spawn(|| site.fenced().acquire(body)));
                twice.map(|one| one.join().unwrap())
            })
        });
        for answer in &answers {
            self.note(answer);
        }
        let receipts = answers.each_ref().map(|answer| receipt(&answer.1));
        let finals = answers.iter().all(|answer| answer.0 == 200);
        if finals && receipts[0] != receipts[1] {
            self.history.fault(format!("one command, two receipts: {receipts:?}"));
        }
    }

    /// Releases; the record may move between looking and asking, then once more.
    fn release(&mut self) {
        self.fence.log_end = self.site.log_end();
        self.fence.releasing = self.history.now();
        let mut last = (0, Value::Null);
        let done = poll(PATIENCE, || {
            last = self.site.fenced().release(&self.site.fenced().release_body(&self.operation));
            (last.0 == 200).then_some(())
        });
        self.fence.released = self.history.now();
        if done.is_none() {
            self.history.late(format!("not released: {:#}", last.1));
        }
    }
}
