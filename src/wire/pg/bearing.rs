//! The capability that a PostgreSQL session shows: at its login, or by a SET of its own.
//!
//! Purpose: a session is judged by its seat, and a seat bears a capability for its whole life
//! (`gate/admission.rs`). So showing one, or giving it up, is taking another seat at the same gate,
//! and that is done only while nothing is leased here: a lease stays where it was given. A SET that
//! comes while something is owed waits; one inside a transaction is refused. Giving up takes effect
//! when its statement has been answered, RESET ALL and DISCARD ALL included, which go back to what
//! the login showed. Invariant 15.
//!
//! Pure; part of `conversation.rs`. The secret's way in is in `wire/shared/capability.rs`.

use std::sync::{Arc, Mutex, PoisonError};

use crate::base::ids::Generation;
use crate::fence::code::Denial;
use crate::gate::admission::Seat;
use crate::gate::capability::Capability;
use crate::gate::slot::{Order, Slot};
use crate::wire::pg::conversation::{Conversation, Mode};
use crate::wire::pg::refusal::Status;
use crate::wire::shared::capability::{Offered, Orders, same};

/// What the session shows, and is about to.
#[derive(Debug, Default)]
pub(crate) struct Bearing {
    /// What its login showed.
    at_login: Option<Capability>,
    /// What is done when nothing is leased any more.
    next: Option<Next>,
    /// A SET waits until nothing is owed.
    waits: bool,
    /// Slots of seats that were left: whoever found one there before may still give orders to it.
    former: Orders,
    /// The slot of the seat that the session has now, for who must always find that one.
    place: Option<Place>,
}

/// Where a session sits, also once it has taken another seat.
#[derive(Debug, Clone)]
pub(crate) struct Place(
    /// Guards which slot it is, for a look or a replacement.
    Arc<Mutex<Arc<Slot>>>,
);

impl Place {
    fn of(slot: &Arc<Slot>) -> Self {
        Self(Arc::new(Mutex::new(Arc::clone(slot))))
    }

    /// The slot of the seat that the session has now.
    pub(crate) fn slot(&self) -> Arc<Slot> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn moves(&self, slot: &Arc<Slot>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(slot);
    }
}

#[derive(Debug, Clone, Copy)]
enum Next {
    Nothing,
    AsAtLogin,
}

/// What became of what was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The session bears it.
    Borne,
    /// Not yet: what is owed must be answered first.
    Wait,
    /// It isn't a live one of this database, or a transaction is open.
    Refused,
}

impl Bearing {
    /// Of a session whose login showed this.
    pub(crate) fn of(at_login: Option<Capability>) -> Self {
        Self { at_login, ..Self::default() }
    }

    /// Whether a program that would begin now must wait until nothing is owed.
    pub(crate) const fn must_wait(&self) -> bool {
        self.waits || self.next.is_some()
    }
}

impl Conversation {
    /// The client shows a capability.
    pub(crate) fn show(&mut self, offered: &Offered) -> Shown {
        self.bearing.waits = false;
        if self.mode != Mode::Sql {
            return Shown::Refused;
        }
        let Some(capability) = self.seat.gate().present(offered.expose()) else {
            return Shown::Refused;
        };
        if self.seat.capability().is_some_and(|borne| same(borne, &capability)) {
            self.bearing.next = None;
            return Shown::Borne;
        }
        let leased = self.lease.is_some() || !self.elsewhere.is_empty();
        if leased {
            let passing = !self.owed.is_empty() && !self.owed.has_open_tail();
            self.bearing.waits = passing && self.status == Status::Idle;
            return if self.bearing.waits { Shown::Wait } else { Shown::Refused };
        }
        self.sit(self.seat.bearing(capability));
        self.bearing.next = None;
        Shown::Borne
    }

    /// The client is about to give its capability up: one that died doesn't keep it from that.
    pub(crate) fn gives_up(&mut self) {
        let dead = self.seat.capability().is_some_and(|borne| !borne.is_live());
        if dead && self.lease.is_none() {
            self.sit_plainly();
        }
    }

    /// The statement that gives it up is forwarded.
    pub(crate) fn gave_up(&mut self) {
        if self.seat.capability().is_some() {
            self.bearing.next = Some(Next::Nothing);
        }
    }

    /// A statement is forwarded behind which settings are as they were at the login.
    pub(crate) fn resets(&mut self) {
        if self.seat.capability().is_some() || self.bearing.at_login.is_some() {
            self.bearing.next = Some(Next::AsAtLogin);
        }
    }

    /// Nothing is leased: what was to be given up is.
    pub(super) fn bearing_goes_on(&mut self) {
        let capability = match self.bearing.next.take() {
            None => return,
            Some(Next::Nothing) => None,
            Some(Next::AsAtLogin) => self.bearing.at_login.clone(),
        };
        match capability {
            Some(capability) => self.sit(self.seat.bearing(capability)),
            None => self.sit_plainly(),
        }
    }

    fn sit_plainly(&mut self) {
        self.sit(self.seat.take_beside(Arc::clone(self.seat.gate())));
    }

    fn sit(&mut self, seat: Arc<Seat>) {
        let left = std::mem::replace(&mut self.seat, seat);
        self.bearing.former.left(left.slot(), self.seat.slot());
        if let Some(place) = &self.bearing.place {
            place.moves(self.seat.slot());
        }
    }

    /// Where this session sits, from now on to its end.
    pub(crate) fn place(&mut self) -> Place {
        let slot = self.seat.slot();
        self.bearing.place.get_or_insert_with(|| Place::of(slot)).clone()
    }

    /// Takes the orders that were given to this session, each with the generation below which it
    /// holds.
    pub(crate) fn take_orders(&self) -> impl Iterator<Item = (Order, Generation)> {
        let slots = std::iter::once(self.seat.slot()).chain(self.bearing.former.slots());
        slots.map(|slot: &Arc<Slot>| slot.take_orders()).filter(|(order, _)| !order.is_none())
    }

    /// What the guard's own refusal means to this session (W15): one that validates may not write,
    /// whatever the gate.
    pub(crate) fn guard_denial(&self) -> Denial {
        match self.seat.capability() {
            Some(_) => Denial::CapabilityRequired,
            None => Denial::WriteFenced,
        }
    }
}
