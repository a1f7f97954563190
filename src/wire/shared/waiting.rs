//! One session's program while it is held at the closed gate, whatever the protocol.
//!
//! Purpose: wire.md W20 as far as it is the same for every protocol: the place in the gate's queue,
//! the time, and what is to become of the program at its next judgement. The relay of a protocol
//! keeps the program's bytes, unsorted; when [`Waiting::is_due`] says so it sorts them again, and
//! a refusal comes back to [`Waiting::park`]. So a held program is admitted by the same code as
//! everything else, or not at all (invariant 9).
//!
//! Called by the relays. It decides nothing about admission, and reads no socket.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::base::fault;
use crate::base::ids::Generation;
use crate::base::limits;
use crate::fence::verdict::HoldRule;
use crate::gate::admission::Seat;
use crate::gate::hold::{Kept, Place};
use crate::telemetry::timer::{Sleep, sleep};
use crate::wire::shared::denials::Denials;

/// How a program's being held ended, for the metric's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parting {
    /// It was judged again and admitted.
    Admitted,
    /// It was judged again and refused by a fence that holds nothing.
    Refused,
    /// Its time ran out.
    Expired,
    /// There was no room for it.
    NoRoom,
    /// Its client cancelled it.
    Cancelled,
    /// Its client went away.
    Gone,
    /// Its session ended: the proxy stops, the route moved, the engine is gone.
    Ended,
}

impl Parting {
    /// The label's value.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Refused => "refused",
            Self::Expired => "expired",
            Self::NoRoom => "no_room",
            Self::Cancelled => "cancelled",
            Self::Gone => "gone",
            Self::Ended => "ended",
        }
    }
}

/// How large a refused program is, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    /// What is there of it, and behind it.
    pub(crate) there: usize,
    /// Its first message, by that one's own word.
    pub(crate) whole: usize,
}

/// What is to become of a held program at the next judgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It may stay.
    Waits,
    /// It is admitted now or refused.
    LastChance(Parting),
    /// It isn't judged any more.
    Cancelled,
}

#[derive(Debug)]
struct Held {
    place: Place,
    hold: Duration,
    fate: Fate,
    /// The gate has moved since the program was judged.
    called: bool,
    /// Set up at the first look, by the task that will be woken.
    timer: Option<Pin<Box<Sleep>>>,
}

/// A session's held program, if it has one. Boxed: sessions hold something rarely.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    held: Option<Box<Held>>,
    /// What its client had sent behind one that isn't held any more.
    kept: Option<Kept>,
}

/// Fault points park or abort; an injected error means nothing here.
fn pass(outcome: Result<(), fault::Fault>) {
    if let Err(fault) = outcome {
        tracing::error!(%fault, "ignored");
    }
}

impl Waiting {
    /// Has a program that was refused under the generation `seen` wait, or go on waiting in its old
    /// place and time. `now_ms` is the process's monotonic clock, for people.
    ///
    /// # Errors
    /// Its time, or the room, has run out; it is held no longer, and counted.
    pub(crate) fn park(
        &mut self,
        (seat, denials): (&Seat, &Denials),
        rule: HoldRule,
        seen: Generation,
        size: Size,
        now_ms: u64,
    ) -> Result<(), Parting> {
        if let Some(held) = &mut self.held {
            if let Fate::LastChance(parting) = held.fate {
                self.leave(parting, denials);
                return Err(parting);
            }
            held.called = false;
            held.place.stay(seen);
            pass(fault::point("wire.held_again"));
            return Ok(());
        }
        let fits = size.whole <= limits::HELD_PROGRAM_BYTES_MAX;
        let bytes = (size.there, &mut self.kept);
        let place = if fits { seat.park(rule, seen, bytes, now_ms) } else { None };
        let Some(place) = place else {
            denials.held(Parting::NoRoom.label());
            return Err(Parting::NoRoom);
        };
        let hold = Duration::from_millis(rule.hold_ms);
        let held = Held { place, hold, fate: Fate::Waits, called: false, timer: None };
        self.held = Some(Box::new(held));
        Ok(())
    }

    /// The program is held no longer, if it was. On the statement path: one look where it wasn't.
    /// Its bytes are counted until [`Waiting::keeps`] says that they are gone.
    #[inline]
    pub(crate) fn leave(&mut self, parting: Parting, denials: &Denials) {
        if let Some(held) = self.held.take() {
            self.kept = Some(held.place.part());
            denials.held(parting.label());
        }
    }

    /// This many bytes of the client are kept unsorted now. What was counted for a program that
    /// isn't held any more is counted no further than that. On the statement path: one look.
    #[inline]
    pub(crate) fn keeps(&mut self, bytes: usize) {
        if let Some(kept) = &mut self.kept
            && !kept.shrink(bytes)
        {
            self.kept = None;
        }
    }

    /// The gate has moved.
    pub(crate) fn call(&mut self) {
        if let Some(held) = &mut self.held {
            held.called = true;
        }
    }

    /// The client wants it cancelled. One that is held no longer is on the engine or answered: then
    /// the cancel has come too late, as it may with the engine itself.
    pub(crate) fn cancel(&mut self) {
        if let Some(held) = &mut self.held {
            held.fate = Fate::Cancelled;
        }
    }

    /// More bytes of the client have come behind it. Without room for them it has its last chance.
    pub(crate) fn grows(&mut self, bytes: usize) {
        if let Some(held) = &mut self.held
            && !held.place.grow(bytes)
            && held.fate == Fate::Waits
        {
            held.fate = Fate::LastChance(Parting::NoRoom);
        }
    }

    /// Whether it is to be judged now. Else the task is woken when its time is up.
    pub(crate) fn is_due(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(held) = &mut self.held else { return false };
        if held.fate == Fate::Waits {
            let hold = held.hold;
            let timer = held.timer.get_or_insert_with(|| Box::pin(sleep(hold)));
            if let Poll::Ready(()) = timer.as_mut().poll(cx) {
                held.fate = Fate::LastChance(Parting::Expired);
            }
        }
        if held.called {
            pass(fault::point("wire.before_second_judgement"));
        }
        held.called || held.fate != Fate::Waits
    }

    /// Whether the gate has moved since it was judged.
    #[inline]
    pub(crate) fn is_called(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.called)
    }

    /// Whether its client has cancelled it.
    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.fate == Fate::Cancelled)
    }
}
