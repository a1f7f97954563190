//! The capability that a MySQL session shows: at its login, or by a SET of its own.
//!
//! Purpose: the twin of `wire/pg/bearing.rs`. A session sits at several gates here, so its seats
//! remember the capability, and whichever of them is at its own namespace's gate bears it; at every
//! other gate the session is judged as anybody (invariant 15). Showing one is taking other seats,
//! which is done only while nothing is leased. A session with a default schema can show that one's;
//! one without, any of its engine. Giving up takes effect when its statement has been answered;
//! COM_RESET_CONNECTION goes back to what the login showed, and COM_CHANGE_USER is a login.
//!
//! Pure; part of `conversation.rs`. The secret's way in is in `wire/shared/capability.rs`.

use crate::base::ids::Namespace;
use crate::fence::code::Denial;
use crate::gate::capability::Capability;
use crate::gate::registry::Gates;
use crate::wire::mysql::conversation::{Conversation, Stand};
use crate::wire::mysql::effects::NO_SCHEMA;
use crate::wire::mysql::program::Program;
use crate::wire::shared::capability::{Offered, same};

/// What the session shows, and is about to, beside what its seats bear.
#[derive(Debug, Default)]
pub(crate) struct Bearing {
    at_login: Option<Capability>,
    /// What is done when nothing is leased any more.
    next: Option<Next>,
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
    /// The engine must say first whether a transaction is open.
    Ask,
    /// It isn't a live one that counts here, or a transaction is open.
    Refused,
}

/// Finds the live capability whose secret is offered: of this namespace, or of any of its engine
/// where it is the place of sessions without a schema. Looks for gates, and makes none.
pub(crate) fn find(gates: &Gates, namespace: &Namespace, offered: &Offered) -> Option<Capability> {
    if namespace.database() != NO_SCHEMA {
        return gates.known(namespace)?.present(offered.expose());
    }
    let all = gates.all();
    let mut all = all.iter().filter(|gate| gate.namespace().engine() == namespace.engine());
    all.find_map(|gate| match gate.capabilities_alive() {
        0 => None,
        _ => gate.present(offered.expose()),
    })
}

/// Finds all that are offered; the last of them counts. `Err` when one of them isn't alive here.
pub(crate) fn find_all(
    gates: &Gates,
    namespace: &Namespace,
    offered: &[Offered],
) -> Result<Option<Capability>, ()> {
    let mut found = None;
    for one in offered {
        found = Some(find(gates, namespace, one).ok_or(())?);
    }
    Ok(found)
}

impl Bearing {
    /// Whether the seats change as soon as nothing is leased.
    pub(crate) const fn is_changing(&self) -> bool {
        self.next.is_some()
    }
}

impl Conversation {
    /// The login showed this.
    pub(crate) fn begin_bearing(&mut self, capability: Option<Capability>) {
        self.seats.bear(capability.clone());
        self.bearing = Bearing { at_login: capability, next: None };
    }

    /// The client shows capabilities: one by a SET, or those of a COM_CHANGE_USER.
    pub(crate) fn show(&mut self, offered: &[Offered], program: &Program) -> Shown {
        let home = self.seats.home().gate().namespace();
        let schema = match (&program.schema, self.lost) {
            (Some(schema), _) if !schema.is_empty() => schema.as_str(),
            (Some(_), _) | (None, true) => NO_SCHEMA,
            (None, false) => home.database(),
        };
        let Ok(namespace) = Namespace::new(home.engine().clone(), schema) else {
            return Shown::Refused;
        };
        let Ok(Some(capability)) = find_all(self.seats.gates(), &namespace, offered) else {
            return Shown::Refused;
        };
        if !self.seats.capability().is_some_and(|borne| same(borne, &capability)) {
            match (self.seats.is_holding(), self.stand) {
                (true, Stand::Unknown) => return Shown::Ask,
                (true, Stand::Inside { .. } | Stand::Outside) => return Shown::Refused,
                (false, _) => self.seats.bear(Some(capability)),
            }
        }
        self.bearing.next = None;
        Shown::Borne
    }

    /// The client is about to give its capability up: one that died doesn't keep it from that.
    pub(crate) fn gives_up(&mut self) {
        let dead = self.seats.capability().is_some_and(|borne| !borne.is_live());
        if dead && !self.seats.is_holding() {
            self.seats.bear(None);
        }
    }

    /// The statement that gives it up is forwarded.
    pub(crate) fn gave_up(&mut self) {
        if self.seats.capability().is_some() {
            self.bearing.next = Some(Next::Nothing);
        }
    }

    /// A change of user is forwarded: a login, with what it showed or nothing.
    pub(crate) fn changes_user(&mut self, showed: bool) {
        self.bearing.at_login = self.seats.capability().filter(|_| showed).cloned();
        self.resets();
    }

    /// A command is forwarded behind which the session is as at its login.
    pub(crate) fn resets(&mut self) {
        if self.seats.capability().is_some() || self.bearing.at_login.is_some() {
            self.bearing.next = Some(Next::AsAtLogin);
        }
    }

    /// Nothing is leased: what was to be given up is.
    pub(super) fn bearing_goes_on(&mut self) {
        match self.bearing.next.take() {
            None => {}
            Some(Next::Nothing) => self.seats.bear(None),
            Some(Next::AsAtLogin) => self.seats.bear(self.bearing.at_login.clone()),
        }
    }

    /// What the guard's own refusal means to this session (W15): one that validates may not write,
    /// whatever the gate.
    pub(crate) fn guard_denial(&self) -> Denial {
        match self.seats.capability() {
            Some(_) => Denial::CapabilityRequired,
            None => Denial::WriteFenced,
        }
    }

    /// Whether a refusal takes the open transaction with it: where nothing more can run in it. A
    /// write that a live validation may not do is an error like any other (W10).
    pub(super) fn ends_transaction(&self, denial: Denial) -> bool {
        let lives = || self.seats.capability().is_some_and(Capability::is_live);
        match denial {
            Denial::ReadFenced | Denial::TargetQuarantined => true,
            Denial::CapabilityRequired => self.seats.capability().is_some() && !lives(),
            Denial::WriteFenced
            | Denial::StaleTransaction
            | Denial::StateUnavailable
            | Denial::Lifecycle
            | Denial::Unprovable
            | Denial::RolledBack
            | Denial::HoldExpired
            | Denial::CutoverPending
            | Denial::StaleTopology
            | Denial::ExecutionFenced => false,
        }
    }
}
