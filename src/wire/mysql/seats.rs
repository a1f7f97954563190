//! Where a session sits: one seat at the gate of its default schema, and others for as long as its
//! program or transaction reaches other schemas.
//!
//! Purpose: W2, W3 and W7 of wire.md for sessions that choose their schema anew at any time. A
//! program is admitted at the gate of the default schema and at each gate it names, or nowhere;
//! the leases are released together, by the engine's answer. A default schema that is left while a
//! transaction is open keeps its lease.
//!
//! Invariant: at most one seat per gate, since a gate's table has one place per session.
//! Pure; used by `conversation.rs`. It doesn't know what a program is.

use std::sync::Arc;

use crate::base::ids::{Generation, Namespace};
use crate::gate::admission::{Guard, Refusal, Seat};
use crate::gate::capability::Capability;
use crate::gate::drain::Reading;
use crate::gate::lease::Lease;
use crate::gate::registry::{Gate, Gates};
use crate::gate::slot::{Order, Running, Slot, Stamp};
use crate::sql::StatementClass;
use crate::wire::shared::capability::{Orders, same};

/// Schemas whose tables and views list what there is in others.
const LISTING: &[&str] = &["information_schema", "sys"];

/// Which schemas a program reaches beside the default one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reach<'a> {
    /// None.
    Home,
    /// Those among these names that are schemas with a gate.
    Named([&'a [String]; 2], [Option<&'a str>; 3]),
    /// It may be any of the engine that is there.
    Anywhere,
}

/// Seats and leases of one session.
#[derive(Debug)]
pub(crate) struct Seats {
    gates: Arc<Gates>,
    home: Arc<Seat>,
    /// Reads in the default schema list what other schemas have.
    home_lists: bool,
    lease: Option<Lease>,
    elsewhere: Vec<Lease>,
    /// The leases that were held before the last admission, as they were then.
    before: (Option<Stamp>, Vec<Stamp>),
    /// What the session shows: the seat at its namespace's gate bears it.
    capability: Option<Capability>,
    /// Slots of seats at the default schema's gate that were left for others there.
    former: Orders,
    /// The gates of this engine, and how many gates there were when the list was made.
    engine_gates: (u64, Vec<Arc<Gate>>),
    /// One of them is of a schema that the engine may take for the default one.
    has_twin: bool,
}

impl Seats {
    pub(crate) fn new(gates: Arc<Gates>, home: Arc<Seat>) -> Self {
        Self {
            gates,
            home_lists: lists(home.gate().namespace().database()),
            home,
            lease: None,
            elsewhere: Vec::new(),
            before: (None, Vec::new()),
            capability: None,
            former: Orders::default(),
            engine_gates: (0, Vec::new()),
            has_twin: false,
        }
    }

    /// All gates.
    pub(crate) fn gates(&self) -> &Gates {
        &self.gates
    }

    /// The capability that the session shows.
    pub(crate) const fn capability(&self) -> Option<&Capability> {
        self.capability.as_ref()
    }

    /// Shows another capability from now on, or none. Only while nothing is held.
    pub(crate) fn bear(&mut self, capability: Option<Capability>) {
        debug_assert!(!self.is_holding(), "a lease stays with the seat it was given at");
        let unchanged = match (&self.capability, &capability) {
            (None, None) => true,
            (Some(one), Some(other)) => same(one, other),
            (Some(_), None) | (None, Some(_)) => false,
        };
        if unchanged {
            return;
        }
        self.capability = capability;
        let seat = self.seat_at(Arc::clone(self.home.gate()));
        let left = std::mem::replace(&mut self.home, seat);
        // One may be open without a transaction, and so without a lease.
        self.home.set_cursor(left.slot().has_cursor());
        self.former.left(left.slot(), self.home.slot());
    }

    /// A seat beside the home one, at whatever gate: with the capability at its own, and nowhere
    /// else.
    fn seat_at(&self, gate: Arc<Gate>) -> Arc<Seat> {
        let own = |capability: &&Capability| capability.namespace() == gate.namespace();
        let capability = self.capability.as_ref().filter(own).cloned();
        let seat = self.home.take_beside(gate);
        match capability {
            Some(capability) => seat.bearing(capability),
            None => seat,
        }
    }

    /// The seat at the default schema's gate.
    pub(crate) const fn home(&self) -> &Arc<Seat> {
        &self.home
    }

    /// The lease of what runs, if anything does.
    pub(crate) const fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.lease.iter().chain(&self.elsewhere)
    }

    /// Whether any lease is held.
    pub(crate) const fn is_holding(&self) -> bool {
        self.lease.is_some() || !self.elsewhere.is_empty()
    }

    /// Whether one of the leases is a writer's.
    pub(crate) fn is_writing(&self) -> bool {
        self.leases().any(|lease| lease.stamp().writer)
    }

    /// Whether all that runs are guarded reads, by each lease.
    pub(crate) fn is_guarded(&self) -> bool {
        self.is_holding() && self.leases().all(|lease| lease.stamp().is_guarded_read())
    }

    /// Whether every gate that this session holds a lease of, and the default schema's, is open
    /// and of the lease's own generation.
    pub(crate) fn is_at_ease(&self) -> bool {
        self.home.gate().word().all_open()
            && self.leases().all(|lease| {
                let word = lease.seat().gate().word();
                word.all_open() && word.generation() == lease.stamp().generation
            })
    }

    /// The gate that a refusal of the proxy's own speaks of: the default schema's, unless that one
    /// is open and another is closed of which a lease is held.
    pub(crate) fn closed(&self) -> &Gate {
        let home = self.home.gate();
        let closed = |gate: &&Arc<Gate>| !gate.word().all_open();
        let mut held = self.elsewhere.iter().map(|lease| lease.seat().gate());
        Some(home).filter(closed).or_else(|| held.find(closed)).unwrap_or(home)
    }

    /// Whether writes are open at the default schema's gate and at each other one that a program
    /// reaches.
    pub(crate) fn writes_are_open(&mut self, reach: Reach<'_>) -> bool {
        self.refresh();
        let home = self.home.gate();
        let meant = |gate: &&Arc<Gate>| is_meant(gate, reach) || is_twin(gate, home);
        let mut others = self.engine_gates.1.iter().filter(meant);
        home.word().writes_open() && others.all(|gate| gate.word().writes_open())
    }

    /// Whether a program names a schema whose tables list what there is in others, or, `at_home`,
    /// is where that is the default one, while some gate of this engine has its writes closed. The
    /// target whose capability it shows isn't counted where it was admitted there, by that: an
    /// import may write there, and a validation is guarded there in any case.
    pub(crate) fn lists_views(&mut self, at_home: bool, reach: Reach<'_>) -> bool {
        let named = match reach {
            Reach::Home => false,
            // All gates are asked in any case.
            Reach::Anywhere => return false,
            Reach::Named(names, more) => {
                let names = names.into_iter().flatten().map(String::as_str);
                names.chain(more.into_iter().flatten()).any(lists)
            }
        };
        let listed = named || at_home && self.home_lists;
        listed && self.is_closed_beside(reach)
    }

    /// Whether some gate of this engine has its writes closed, beside that of the target whose
    /// capability the session shows, where a program with this reach was admitted by that.
    pub(crate) fn is_closed_beside(&mut self, reach: Reach<'_>) -> bool {
        self.refresh();
        let own = self.capability.as_ref().map(Capability::namespace);
        let home = self.home.gate();
        let closed = |gate: &Arc<Gate>| {
            let admitted = Arc::ptr_eq(gate, home) || is_meant(gate, reach);
            let own = own == Some(gate.namespace()) && admitted;
            !gate.word().writes_open() && gate.may_be_meant() && !own
        };
        self.engine_gates.1.iter().any(closed)
    }

    /// Whether a lease is held at a gate that takes no new write of this session.
    pub(crate) fn holds_closed(&self) -> bool {
        self.leases().any(|lease| {
            let seat = lease.seat();
            let by_right = seat.capability().is_some_and(Capability::is_live);
            !seat.gate().word().writes_open() && !by_right
        })
    }

    /// Whether every gate of this engine is open that the session may be at.
    pub(crate) fn is_engine_at_ease(&mut self) -> bool {
        self.refresh();
        self.engine_gates.1.iter().all(|gate| gate.word().all_open() || !gate.may_be_meant())
    }

    /// Whether a lease of a generation before `before` is held that a drain may wait for.
    pub(crate) fn holds_older(&self, before: Generation) -> bool {
        self.leases().map(Lease::stamp).any(|stamp| {
            let counts = stamp.writer || stamp.running == Running::Unguarded;
            counts && stamp.generation < before
        })
    }

    /// Whether a lease of this namespace's gate is held.
    pub(crate) fn holds_lease_of(&self, namespace: &Namespace) -> bool {
        self.leases().any(|lease| lease.namespace() == namespace)
    }

    /// Whether something reads under a lease of a generation before `before`: a program that runs,
    /// or a dump's transaction.
    pub(crate) fn reads_older(&self, before: Generation) -> bool {
        self.leases().any(|lease| {
            let slot = lease.seat().slot();
            let reads = slot.is_running() || Reading::of(slot) == Some(Reading::Dump);
            reads && lease.stamp().generation < before
        })
    }

    /// Admits a program at every gate it reaches. `begins` says that nothing of it has been
    /// forwarded. With [`Guard::On`] from any gate the guard is on.
    ///
    /// # Errors
    /// The first refusal; leases that were taken for it are given back, others are what they were.
    pub(crate) fn admit(
        &mut self,
        class: StatementClass,
        reach: Reach<'_>,
        now_ms: u64,
    ) -> Result<Guard, Box<Refusal>> {
        self.before.0 = self.lease.as_ref().map(Lease::stamp);
        self.before.1.clear();
        self.before.1.extend(self.elsewhere.iter().map(Lease::stamp));
        let admitted = self.admit_all(class, reach, now_ms);
        if admitted.is_err() {
            self.take_back();
        }
        admitted
    }

    /// Undoes the last admission, of which nothing was forwarded: a lease of before that was made
    /// a running writer's would hold up a drain for a program that never ran.
    pub(crate) fn take_back(&mut self) {
        for lease in self.elsewhere.drain(self.before.1.len().min(self.elsewhere.len())..) {
            lease.unused();
        }
        for (lease, stamp) in self.elsewhere.iter_mut().zip(&self.before.1) {
            lease.taken_back(*stamp);
        }
        match self.before.0 {
            Some(stamp) => {
                if let Some(lease) = &mut self.lease {
                    lease.taken_back(stamp);
                }
            }
            None => {
                if let Some(lease) = self.lease.take() {
                    lease.unused();
                }
            }
        }
    }

    /// Admits a ROLLBACK whose transaction is over: the end of one is never denied.
    pub(crate) fn admit_end(&mut self, now_ms: u64) {
        if self.lease.is_none() {
            self.lease = Some(self.home.begin_end(now_ms).0);
        }
    }

    /// The control arm of the second judgement (`base/arm.rs`): a lease of the home gate without
    /// admission. False unless that guard is removed.
    pub(crate) fn begin_unjudged(&mut self, class: StatementClass, now_ms: u64) -> bool {
        if self.is_holding() {
            return false;
        }
        self.lease = self.home.begin_unjudged(class, now_ms);
        self.lease.is_some()
    }

    /// The sessions at all gates of this engine, as far as they are there now.
    pub(crate) fn sessions_of_engine(&self) -> Vec<Arc<Slot>> {
        let engine = self.home.gate().namespace().engine();
        let mut all = self.gates.all();
        all.retain(|gate| gate.namespace().engine() == engine);
        all.iter().flat_map(|gate| gate.sessions()).collect()
    }

    fn admit_all(
        &mut self,
        class: StatementClass,
        reach: Reach<'_>,
        now_ms: u64,
    ) -> Result<Guard, Box<Refusal>> {
        let mut guard = match &mut self.lease {
            Some(lease) => self.home.extend(lease, class, true)?,
            None => {
                let (lease, guard) = self.home.begin(class, now_ms)?;
                self.lease = Some(lease);
                guard
            }
        };
        self.refresh();
        if matches!(reach, Reach::Home) && !self.has_twin {
            return Ok(guard);
        }
        let home = Arc::clone(self.home.gate());
        let meant = |gate: &&Arc<Gate>| is_meant(gate, reach) || is_twin(gate, &home);
        let gates = std::mem::take(&mut self.engine_gates);
        let mut outcome = Ok(());
        for gate in gates.1.iter().filter(meant) {
            outcome = self.admit_at(gate, class, now_ms).map(|other| {
                if other == Guard::On {
                    guard = Guard::On;
                }
            });
            if outcome.is_err() {
                break;
            }
        }
        self.engine_gates = gates;
        outcome.map(|()| guard)
    }

    fn admit_at(
        &mut self,
        gate: &Arc<Gate>,
        class: StatementClass,
        now_ms: u64,
    ) -> Result<Guard, Box<Refusal>> {
        if Arc::ptr_eq(gate, self.home.gate()) {
            return Ok(Guard::Off);
        }
        let mut held = self.elsewhere.iter_mut();
        if let Some(lease) = held.find(|lease| Arc::ptr_eq(lease.seat().gate(), gate)) {
            return lease.extend(class, true);
        }
        let (lease, guard) = self.seat_at(Arc::clone(gate)).begin(class, now_ms)?;
        self.elsewhere.push(lease);
        Ok(guard)
    }

    /// Brings the list of this engine's gates up to date.
    fn refresh(&mut self) {
        let made = self.gates.made();
        if self.engine_gates.0 != made {
            let engine = self.home.gate().namespace().engine().clone();
            let mut all = self.gates.all();
            all.retain(|gate| *gate.namespace().engine() == engine);
            self.engine_gates = (made, all);
            self.look_for_twins();
        }
    }

    fn look_for_twins(&mut self) {
        let home = self.home.gate();
        self.has_twin = self.engine_gates.1.iter().any(|gate| is_twin(gate, home));
    }

    /// The engine has shown that nothing is left of what the leases stand for.
    pub(crate) fn release(&mut self) {
        self.set_unsure(false);
        if let Some(lease) = self.lease.take() {
            lease.answered();
        }
        for lease in self.elsewhere.drain(..) {
            lease.answered();
        }
    }

    /// Nothing runs; a transaction is open, or may be.
    pub(crate) fn pause(&mut self) {
        for lease in self.lease.iter_mut().chain(&mut self.elsewhere) {
            lease.paused();
        }
    }

    /// Whether the leases are held only because the last answer told no status.
    pub(crate) fn set_unsure(&self, unsure: bool) {
        for lease in self.leases() {
            lease.seat().slot().set_unsure(unsure);
        }
    }

    /// The default schema is another one now.
    pub(crate) fn move_home(&mut self, namespace: &Namespace) {
        if self.home.gate().namespace() == namespace {
            return;
        }
        let gate = self.gates.gate(namespace);
        let there = |lease: &Lease| Arc::ptr_eq(lease.seat().gate(), &gate);
        let held = self.elsewhere.iter().position(there).map(|at| self.elsewhere.swap_remove(at));
        let home = match &held {
            Some(lease) => Arc::clone(lease.seat()),
            None => self.seat_at(gate),
        };
        self.elsewhere.extend(std::mem::replace(&mut self.lease, held));
        self.home = home;
        self.home_lists = lists(namespace.database());
        self.look_for_twins();
    }

    /// Takes the orders that were given at any seat, with the generation below which they hold.
    pub(crate) fn take_orders(&self) -> Vec<(Order, Generation)> {
        let others = self.elsewhere.iter().map(|lease| lease.seat().slot().take_orders());
        let mut orders = vec![self.home.slot().take_orders()];
        orders.extend(others);
        orders.extend(self.former.slots().map(|slot| slot.take_orders()));
        orders.retain(|(order, _)| !order.is_none());
        orders
    }
}

/// Names are compared without regard to case: whether the engine does is its own setting, and
/// asking one gate too many is the safe side.
fn is_meant(gate: &Gate, reach: Reach<'_>) -> bool {
    let database = gate.namespace().database();
    match reach {
        Reach::Home => false,
        Reach::Anywhere => gate.may_be_meant(),
        Reach::Named(names, more) => {
            let names = names.into_iter().flatten().map(String::as_str);
            names.chain(more.into_iter().flatten()).any(|name| is_alike(name, database))
        }
    }
}

/// Whether a program in a session at `home` may reach a gate's schema; what names a schema that
/// lists others may reach those.
pub(super) fn is_reached(gate: &Gate, home: &Namespace, reach: Reach<'_>) -> bool {
    let listing = match reach {
        Reach::Home | Reach::Anywhere => false,
        Reach::Named(names, more) => {
            let names = names.into_iter().flatten().map(String::as_str);
            let mut all = names.chain(more.into_iter().flatten());
            all.any(lists)
        }
    };
    is_alike(gate.namespace().database(), home.database())
        || is_meant(gate, reach)
        || listing && gate.may_be_meant()
}

/// Whether another gate is of a schema that the engine may take for the default one, written
/// otherwise.
fn is_twin(gate: &Gate, home: &Gate) -> bool {
    let (one, other) = (gate.namespace().database(), home.namespace().database());
    one != other && is_alike(one, other)
}

/// Whether this is a schema whose reads list what other schemas have.
fn lists(name: &str) -> bool {
    LISTING.iter().any(|schema| is_alike(name, schema))
}

/// Whether two names may be one to an engine that folds them: character by character, beyond ASCII
/// too, and rather once too often.
pub(super) fn is_alike(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other) || one.chars().map(folded).eq(other.chars().map(folded))
}

fn folded(c: char) -> char {
    let upper = c.to_uppercase().next().unwrap_or(c);
    upper.to_lowercase().next().unwrap_or(upper)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::SessionId;
    use crate::fence::code::Denial;
    use crate::fence::record::InFlight;
    use crate::fence::sample;
    use crate::fence::state::FenceState;
    use crate::fence::verdict::Overlay;
    use crate::gate::registry::Authority;
    use crate::gate::slot::Card;
    use crate::store::LoadedFence;

    fn seats(names: &[&str]) -> (Seats, Vec<Arc<Gate>>) {
        let gates = Arc::new(Gates::new(Generation(1)));
        gates.recovered();
        let all: Vec<_> =
            names.iter().map(|name| gates.gate(&Namespace::parse(name).unwrap())).collect();
        let home = Seat::take(Arc::clone(&all[0]), SessionId(1), Card::default());
        (Seats::new(gates, home), all)
    }

    fn name(text: &str) -> Vec<String> {
        vec![text.to_owned()]
    }

    fn named(names: &[String]) -> Reach<'_> {
        Reach::Named([names, &[]], [None; 3])
    }

    #[test]
    fn a_program_is_admitted_everywhere_or_nowhere() {
        let (mut seats, gates) = seats(&["e/a", "e/b", "f/b"]);
        gates[1].overlay(Overlay::Installing, InFlight::Finish);
        gates[2].overlay(Overlay::Installing, InFlight::Finish);
        let write = StatementClass::Write;
        assert_eq!(seats.admit(write, Reach::Home, 0).unwrap(), Guard::Off);
        seats.release();
        for reach in [named(&name("B")), Reach::Named([&[], &[]], [None, Some("b"), None])] {
            let refused = seats.admit(write, reach, 0).unwrap_err();
            assert_eq!(refused.denial, Denial::WriteFenced);
            assert_eq!(refused.namespace, Namespace::parse("e/b").unwrap());
            assert!(!seats.is_holding());
        }
        assert!(seats.admit(write, Reach::Anywhere, 0).is_err());
        let read = StatementClass::Read;
        assert_eq!(seats.admit(read, named(&name("b")), 0).unwrap(), Guard::On);
        assert_eq!(gates[1].session_count(), 1);
        // Refused in a transaction: what was held before stays.
        assert!(seats.admit(write, named(&name("b")), 0).is_err());
        assert!(seats.is_holding());
        seats.release();
        assert_eq!((gates[0].session_count(), gates[1].session_count()), (1, 0));
    }

    /// What another gate refused never ran: a lease of before is what it was, for a drain too.
    #[test]
    fn a_lease_of_before_is_what_it_was_where_another_gate_refuses() {
        let (mut seats, gates) = seats(&["e/a", "e/b", "e/c"]);
        let stamps = |gates: &[Arc<Gate>]| -> Vec<_> {
            gates.iter().map(|gate| gate.sessions().first().and_then(|s| s.stamp())).collect()
        };
        let (write, read) = (StatementClass::Write, StatementClass::Read);
        let both = ["b".to_owned(), "c".to_owned()];
        seats.admit(read, named(&name("b")), 0).unwrap();
        seats.pause();
        let before = stamps(&gates);
        assert!(before[1].is_some_and(|stamp| !stamp.writer) && before[2].is_none());
        gates[2].overlay(Overlay::Installing, InFlight::Finish);
        assert!(seats.admit(write, named(&both), 0).is_err());
        assert_eq!(stamps(&gates), before);
        // The same where every gate lets it pass, and what is behind it doesn't.
        assert_eq!(seats.admit(read, named(&both), 0).unwrap(), Guard::On);
        assert_eq!(seats.closed().namespace(), &Namespace::parse("e/c").unwrap());
        seats.take_back();
        assert_eq!(stamps(&gates), before);
        assert!(seats.is_holding());
        seats.release();
        seats.admit(read, Reach::Home, 0).unwrap();
        seats.take_back();
        assert!(!seats.is_holding());
        assert_eq!(seats.closed().namespace(), &Namespace::parse("e/a").unwrap());
    }

    /// An aborted target is closed to all that may name it, and in nobody's way once it is gone.
    #[test]
    fn invariant_15_an_aborted_target_is_left_out_only_where_it_is_gone() {
        let (mut seats, gates) = seats(&["e/a", "e/b"]);
        let mut record = sample::record(FenceState::TargetAborted);
        record.namespace = gates[1].namespace().clone();
        let loaded = LoadedFence::of_a_record(record);
        gates[1].apply(Authority::Loaded(&loaded), InFlight::Finish);
        let write = StatementClass::Unprovable;
        let refused = seats.admit(write, Reach::Anywhere, 0);
        assert!(refused.is_err(), "VIOLATION: an aborted target that is there may be reached");
        assert!(gates[1].takes_question() && !gates[1].takes_question());
        assert!(!seats.writes_are_open(Reach::Anywhere) && !seats.is_engine_at_ease());
        assert!(!gates[1].set_gone(true));
        assert_eq!(seats.admit(write, Reach::Anywhere, 0).unwrap(), Guard::Off);
        seats.release();
        assert!(seats.writes_are_open(Reach::Anywhere) && seats.is_engine_at_ease());
        assert!(gates[1].takes_question(), "it is asked for again");
        let refused = seats.admit(write, named(&name("B")), 0).unwrap_err();
        assert_eq!(refused.denial, Denial::TargetQuarantined);
        // Not known is not gone.
        gates[1].close_as_unknown();
        assert!(seats.admit(write, Reach::Anywhere, 0).is_err());
    }

    #[cfg(debug_assertions)]
    #[test]
    fn invariant_15_an_aborted_target_that_is_never_asked_for_is_reported() {
        let check = "wire::mysql::seats::tests::\
                     invariant_15_an_aborted_target_is_left_out_only_where_it_is_gone";
        crate::base::arm::missed(check, &[("aborted-gate", "an aborted target that is there")])
            .unwrap();
    }

    #[test]
    fn a_default_schema_left_in_a_transaction_keeps_its_lease_and_is_found_again() {
        let (mut seats, gates) = seats(&["e/a", "e/b"]);
        let (a, b) = (Namespace::parse("e/a").unwrap(), Namespace::parse("e/b").unwrap());
        seats.admit(StatementClass::Write, Reach::Home, 0).unwrap();
        let writes = |gate: &Gate| {
            gate.sessions().first().and_then(|slot| slot.stamp()).is_some_and(|s| s.writer)
        };
        seats.move_home(&b);
        assert!(writes(&gates[0]) && !writes(&gates[1]));
        seats.admit(StatementClass::Write, Reach::Home, 0).unwrap();
        assert!(writes(&gates[0]) && writes(&gates[1]));
        seats.move_home(&a);
        assert!(writes(&gates[0]) && writes(&gates[1]));
        assert_eq!((gates[0].session_count(), gates[1].session_count()), (1, 1));
        seats.release();
        assert!(!writes(&gates[0]));
        assert_eq!((gates[0].session_count(), gates[1].session_count()), (1, 0));
    }

    #[test]
    fn a_name_is_meant_in_any_case_beyond_ascii_too() {
        for (one, other) in [
            ("Kunden", "kunden"),
            ("KÄUFE", "käufe"),
            ("ÉTÉ", "été"),
            ("ЗАКАЗЫ", "заказы"),
            ("ΤΕΛΟΣ", "τελος"),
            ("\u{212A}unden", "kunden"),
            ("İs", "is"),
        ] {
            assert!(is_alike(one, other) && is_alike(other, one), "{one} {other}");
        }
        for (one, other) in [("käufe", "kaufe"), ("a", "ab"), ("заказы", "заказ")] {
            assert!(!is_alike(one, other), "{one} {other}");
        }
    }

    /// With `lower_case_table_names` other than 0 both are one schema.
    #[test]
    fn a_default_schema_is_asked_for_at_the_gates_of_all_its_spellings() {
        let (mut seats, gates) = seats(&["e/a", "e/B", "e/b"]);
        let write = StatementClass::Write;
        gates[2].overlay(Overlay::Installing, InFlight::Finish);
        seats.admit(write, Reach::Home, 0).unwrap();
        seats.release();
        seats.move_home(gates[1].namespace());
        assert!(seats.admit(write, Reach::Home, 0).is_err() && !seats.is_holding());
        // A spelling whose gate is made later is found as well.
        seats.move_home(gates[0].namespace());
        seats.admit(write, Reach::Home, 0).unwrap();
        seats.release();
        let late = seats.gates.gate(&Namespace::parse("e/A").unwrap());
        late.overlay(Overlay::Installing, InFlight::Finish);
        assert!(seats.admit(write, Reach::Home, 0).is_err());
    }

    #[test]
    fn an_order_at_any_gate_is_heard() {
        let (mut seats, gates) = seats(&["e/a", "e/b"]);
        seats.admit(StatementClass::Write, named(&name("b")), 0).unwrap();
        gates[1].sessions()[0].order(Order::ROLL_BACK, Generation(9));
        let orders = seats.take_orders();
        assert_eq!(orders.len(), 1);
        assert!(orders[0].0.has(Order::ROLL_BACK) && orders[0].1 == Generation(9));
        assert!(seats.take_orders().is_empty());
        seats.release();
    }
}
