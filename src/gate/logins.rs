//! Logins while the engine works on them: code of the database's may run there.
//!
//! Purpose: from PostgreSQL 17 on a login trigger runs at each login, before anything that the
//! proxy could guard. So a login enters a list for as long as the engine has the next word: from
//! what is sent to it until it asks for more, is ready, or closes. Under a closed write gate it is
//! refused where the database has such triggers. In front of a client's answer nothing is listed: a
//! client can't hold up a drain by being slow.
//!
//! Whether there are triggers the control side asks the engine ([`Gate::login_question`]), in each
//! drain and when a login wants to know. Until it has answered, a closed gate lets no login
//! through, but while a source's drain runs, which waits for those that are on the way and isn't
//! over before the engine has answered it (invariant 4). Where the answer is
//! "none", which it always is before PostgreSQL 17, logins are nobody's business. At a target that
//! is so for the login that has asked only: an import, which the closed gate lets in, may make one.
//! So it is where the engine has no such database: another may be made by that name.
//!
//! Invariants: 2 (a login is listed before it looks at the gate, a drain closes the gate before it
//! looks at the list), 4, 7 (a login that is dropped without its end stays listed). Called by
//! `wire/pg/`; drains look at the list. It makes no gate: nobody has proved a password here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::base::arm::{Removable, removed};
use crate::base::ids::{Namespace, SessionId};
use crate::base::limits;
use crate::fence::code::Denial;
use crate::fence::state::{FenceState, Role};
use crate::fence::verdict::{Verdict, judge, judge_bearing};
use crate::gate::admission::Refusal;
use crate::gate::capability::Capability;
use crate::gate::registry::{Gate, Gates};
use crate::gate::slot::{Card, Slot};
use crate::sql::StatementClass;
use crate::telemetry::timer;

/// What is behind these locks is whole after every step: each is one insertion or replacement.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A question to the engine for a database's login triggers: begun at this moment, and at this
/// closing of the gate. What it finds is of no use for a later closing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginQuestion {
    closing: u64,
    number: u64,
}

/// What the engine has said.
#[derive(Debug, Clone)]
struct Found {
    /// The question's number: later ones know better.
    number: u64,
    triggers: Arc<[String]>,
    /// There was no such database: it has no triggers, but nothing is known of the next one.
    missing: bool,
}

impl Found {
    /// Whether nothing runs at a login, for whoever comes while writes are closed.
    fn lasting_none(&self) -> bool {
        self.triggers.is_empty() && !self.missing
    }
}

#[derive(Debug, Default)]
struct Known {
    /// How often writes were closed.
    closings: u64,
    /// How many questions were begun.
    questions: u64,
    /// `None`: not known for this closing.
    found: Option<Found>,
    /// A login wants to know.
    wanted: bool,
}

/// What one gate knows of login triggers.
#[derive(Debug)]
pub(super) struct AtLogin {
    logins: Arc<Logins>,
    /// Guards what is known; held for a look or a replacement.
    known: Mutex<Known>,
    /// Signalled when a question has ended.
    told: Notify,
}

impl AtLogin {
    pub(super) fn new(logins: Arc<Logins>) -> Self {
        Self { logins, known: Mutex::default(), told: Notify::new() }
    }

    /// Has the engine asked again. Answers which question will be the next one.
    fn want(&self) -> u64 {
        let mut known = locked(&self.known);
        known.wanted = true;
        known.questions + 1
    }

    /// Writes are about to be closed: what was found before doesn't count.
    pub(super) fn closing(&self) {
        let mut known = locked(&self.known);
        known.closings += 1;
        known.found = None;
    }
}

impl Gate {
    /// A question for this database's login triggers is about to be sent to the engine.
    pub fn login_question(&self) -> LoginQuestion {
        let mut known = locked(&self.at_login.known);
        known.questions += 1;
        LoginQuestion { closing: known.closings, number: known.questions }
    }

    /// Notes the engine's answer: the names of the triggers that are enabled. `None` when it gave
    /// none; then whoever waits asks again, or gives up.
    pub fn note_login_triggers(&self, question: LoginQuestion, triggers: Option<Vec<String>>) {
        self.note_found(question, triggers.map(|triggers| (triggers, false)));
    }

    /// Notes that the engine has no such database. Logins that wait for this answer are left to the
    /// engine, which refuses them in its own words; those that come later ask anew.
    pub fn note_no_database(&self, question: LoginQuestion) {
        self.note_found(question, Some((Vec::new(), true)));
    }

    fn note_found(&self, question: LoginQuestion, found: Option<(Vec<String>, bool)>) {
        let mut known = locked(&self.at_login.known);
        let is_newer = known.found.as_ref().is_none_or(|found| found.number < question.number);
        if let Some((triggers, missing)) = found
            && is_newer
            && known.closings == question.closing
        {
            let (number, triggers) = (question.number, triggers.into());
            known.found = Some(Found { number, triggers, missing });
        }
        drop(known);
        self.at_login.told.notify_waiters();
        self.released.notify_waiters();
    }

    /// The triggers that are known to run at a login while writes are closed as they are now;
    /// `None` while that isn't known.
    #[must_use]
    pub fn login_triggers(&self) -> Option<Arc<[String]>> {
        locked(&self.at_login.known).found.as_ref().map(|found| Arc::clone(&found.triggers))
    }

    /// Whether a login has wanted to know since the last call.
    pub fn takes_login_question(&self) -> bool {
        std::mem::take(&mut locked(&self.at_login.known).wanted)
    }

    /// Logins that the engine works on, and that may run something; with those that were lost.
    pub(super) fn logins(&self) -> Vec<Arc<Slot>> {
        if locked(&self.at_login.known).found.as_ref().is_some_and(Found::lasting_none) {
            return Vec::new();
        }
        self.at_login.logins.of(self.namespace())
    }

    /// A login is judged as a write is; `None` when one may begin.
    fn denies_login(&self, capability: Option<&Capability>) -> Option<Box<Refusal>> {
        let published = self.published();
        let (policy, now) = (&published.policy, published.generation);
        let class = StatementClass::Write;
        let verdict = match capability {
            None => judge(policy, now, class, None),
            Some(capability) => {
                let lives = capability.lives_at(self.namespace(), policy);
                judge_bearing(policy, now, class, None, (capability.purpose(), lives))
            }
        };
        let denial = match verdict {
            Verdict::Admit { guard: false } => return None,
            Verdict::Admit { guard: true } => Denial::WriteFenced,
            Verdict::Refuse(denial) => denial,
        };
        Some(Box::new(Refusal { denial, namespace: self.namespace().clone(), published }))
    }
}

#[derive(Debug, Default)]
struct Listed {
    at_engine: BTreeMap<SessionId, (Namespace, Arc<Slot>)>,
    /// Lost ones, one for each namespace: none of them ever ends.
    lost: BTreeMap<Namespace, Arc<Slot>>,
    /// One that was lost where no more namespaces are kept: it counts everywhere.
    lost_anywhere: Option<Arc<Slot>>,
}

/// All logins of this process that an engine works on.
#[derive(Debug, Default)]
pub(super) struct Logins {
    /// Guards the lists; held for one look or step. There are as many logins as sessions may be.
    listed: Mutex<Listed>,
    /// Wakes whoever asks engines for login triggers.
    pub(super) asked: Notify,
}

impl Logins {
    fn of(&self, namespace: &Namespace) -> Vec<Arc<Slot>> {
        let listed = locked(&self.listed);
        let here =
            listed.at_engine.values().filter(|(at, _)| at == namespace).map(|(_, slot)| slot);
        let lost = listed.lost.get(namespace).into_iter().chain(&listed.lost_anywhere);
        here.chain(lost).cloned().collect()
    }

    fn enter(&self, namespace: &Namespace, slot: &Arc<Slot>) {
        slot.publish_login(true);
        let mut listed = locked(&self.listed);
        listed.at_engine.insert(slot.id(), (namespace.clone(), Arc::clone(slot)));
    }

    fn leave(&self, slot: &Slot) {
        locked(&self.listed).at_engine.remove(&slot.id());
        slot.publish_login(false);
    }

    fn lose(&self, namespace: &Namespace, slot: &Arc<Slot>) {
        slot.abandon();
        let mut listed = locked(&self.listed);
        listed.at_engine.remove(&slot.id());
        if listed.lost.contains_key(namespace) || listed.lost.len() < limits::LOGINS_LOST_MAX {
            listed.lost.insert(namespace.clone(), Arc::clone(slot));
        } else {
            listed.lost_anywhere = Some(Arc::clone(slot));
        }
    }
}

/// Why a login gets no further.
#[derive(Debug, Clone)]
pub struct LoginRefusal {
    /// The gate's word.
    pub refusal: Box<Refusal>,
    /// The triggers that would run; empty when the engine couldn't be asked for them.
    pub triggers: Arc<[String]>,
}

/// One login, from its startup packet to the engine's first ReadyForQuery.
#[derive(Debug)]
pub struct Login {
    gates: Arc<Gates>,
    namespace: Namespace,
    /// Once there is one: gates are never taken away.
    gate: Option<Arc<Gate>>,
    capability: Option<Capability>,
    slot: Arc<Slot>,
    at_engine: bool,
    runs_nothing: bool,
}

impl Login {
    /// A login that the engine hasn't heard of. `capability` is what it shows.
    #[must_use]
    pub fn new(
        gates: Arc<Gates>,
        namespace: Namespace,
        capability: Option<Capability>,
        (id, card): (SessionId, impl Into<Arc<Card>>),
    ) -> Self {
        let slot = Arc::new(Slot::of_login(id, card.into()));
        let (gate, at_engine, runs_nothing) = (None, false, false);
        Self { gates, namespace, gate, capability, slot, at_engine, runs_nothing }
    }

    /// Notes when it began, in milliseconds of the process's monotonic clock: for people.
    pub fn began(&self, now_ms: u64) {
        self.slot.note_since(now_ms);
    }

    /// The engine runs no trigger at it, being a physical replica's, which is in no database: it is
    /// neither listed nor refused here.
    pub const fn runs_nothing(&mut self) {
        self.runs_nothing = true;
    }

    /// The session's number.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.slot.id()
    }

    /// Whether the engine has the next word.
    #[must_use]
    pub const fn is_at_engine(&self) -> bool {
        self.at_engine
    }

    /// Lists the login as the engine's to work on. Call it before anything of it is sent there.
    /// Waits where writes are closed and it isn't known what would run, for at most
    /// [`limits::LOGIN_LOOK_MS`].
    ///
    /// # Errors
    /// [`LoginRefusal`]: nothing may be sent.
    ///
    /// # Cancel safety
    /// Cancel safe: it is listed, or it isn't, as [`Login::is_at_engine`] says.
    pub async fn hands_over(&mut self) -> Result<(), LoginRefusal> {
        if self.runs_nothing || removed(Removable::LoginTriggers) {
            return Ok(());
        }
        let bound = Duration::from_millis(limits::LOGIN_LOOK_MS);
        let ends = timer::Instant::now() + bound;
        let mut wanted = 0;
        loop {
            self.enter();
            let Some(gate) = self.gate() else { return Ok(()) };
            // Registered before looking: an answer between the look and the wait isn't lost.
            let told = gate.at_login.told.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            let Some(refusal) = gate.denies_login(self.capability.as_ref()) else { return Ok(()) };
            let found = locked(&gate.at_login.known).found.clone();
            // At a target only an answer to this login's own question counts.
            let remembers = refusal.published.policy.state.role() != Some(Role::Target);
            let answers = |found: &Found| wanted != 0 && found.number >= wanted;
            // A drain that isn't over waits for whoever is listed, for as long as nothing is known.
            let draining = refusal.published.policy.state == FenceState::SourceDraining;
            if draining && found.is_none() {
                // Its answer lets the drain look past whoever else is listed by then.
                gate.at_login.want();
                self.gates.logins.asked.notify_one();
                return Ok(());
            }
            if found.as_ref().is_some_and(|found| {
                found.triggers.is_empty() && (answers(found) || remembers && found.lasting_none())
            }) {
                return Ok(());
            }
            self.returned();
            let late = timer::Instant::now() >= ends;
            match found {
                Some(found) if !found.triggers.is_empty() && (late || answers(&found)) => {
                    return Err(LoginRefusal { refusal, triggers: found.triggers });
                }
                Some(_) | None if late => return Err(not_known(&refusal)),
                Some(_) | None => {}
            }
            // Asked anew for each login that is refused: an operator may have disabled them.
            let next = gate.at_login.want();
            wanted = if wanted == 0 { next } else { wanted };
            self.gates.logins.asked.notify_one();
            let _late = timer::timeout_at(ends, told).await;
        }
    }

    fn gate(&mut self) -> Option<Arc<Gate>> {
        if self.gate.is_none() {
            self.gate = self.gates.known(&self.namespace);
        }
        self.gate.clone()
    }

    fn enter(&mut self) {
        self.gates.logins.enter(&self.namespace, &self.slot);
        self.at_engine = true;
    }

    /// The engine has had its word: it asks for more, is ready, or has closed.
    pub fn returned(&mut self) {
        if self.at_engine {
            self.at_engine = false;
            self.gates.logins.leave(&self.slot);
            self.wake_drains();
        }
    }

    fn wake_drains(&mut self) {
        if let Some(gate) = self.gate() {
            gate.released.notify_waiters();
        }
    }
}

impl Drop for Login {
    fn drop(&mut self) {
        if self.at_engine {
            self.gates.logins.lose(&self.namespace, &self.slot);
            self.wake_drains();
        }
    }
}

/// What is told where the engine didn't say in time which triggers it has.
fn not_known(refusal: &Refusal) -> LoginRefusal {
    let refusal = Refusal { denial: Denial::StateUnavailable, ..refusal.clone() };
    LoginRefusal { refusal: Box::new(refusal), triggers: Arc::from([]) }
}

impl Gates {
    /// Waits until a login wants to know a database's triggers; [`Gate::takes_login_question`]
    /// says of which.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn login_asked(&self) {
        self.logins.asked.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::Generation;
    use crate::fence::record::InFlight;
    use crate::fence::sample;
    use crate::fence::state::FenceState;
    use crate::fence::verdict::Overlay;
    use crate::gate::drain::Drain;
    use crate::gate::registry::Authority;
    use crate::store::LoadedFence;

    fn gates() -> Arc<Gates> {
        let gates = Gates::new(Generation(1));
        gates.recovered();
        Arc::new(gates)
    }

    fn namespace() -> Namespace {
        Namespace::parse("e/d").unwrap()
    }

    fn login(gates: &Arc<Gates>, number: u64) -> Login {
        login_to(gates, namespace(), number)
    }

    fn login_to(gates: &Arc<Gates>, at: Namespace, number: u64) -> Login {
        let named = (SessionId(number), Card::default());
        Login::new(Arc::clone(gates), at, None, named)
    }

    fn closed(gates: &Gates) -> Arc<Gate> {
        let gate = gates.gate(&namespace());
        gate.overlay(Overlay::Installing, InFlight::Finish);
        gate
    }

    fn tell(gate: &Gate, triggers: &[&str]) {
        let question = gate.login_question();
        let triggers = triggers.iter().map(|name| (*name).to_owned()).collect();
        gate.note_login_triggers(question, Some(triggers));
    }

    /// Answers whoever asks, as the control side does.
    async fn answer(gates: &Gates, gate: &Gate, triggers: &[&str]) {
        loop {
            gates.login_asked().await;
            if gate.takes_login_question() {
                tell(gate, triggers);
            }
        }
    }

    #[tokio::test]
    async fn an_open_gate_and_none_at_all_let_every_login_through() {
        let gates = gates();
        let mut first = login(&gates, 1);
        first.hands_over().await.unwrap();
        assert!(gates.known(&namespace()).is_none(), "a login makes no gate");
        let _open = gates.gate(&namespace());
        let mut second = login(&gates, 2);
        second.hands_over().await.unwrap();
        // Both began before the gate closes, one of them before there was a gate.
        let mut drain = Drain::of(closed(&gates)).unwrap();
        assert_eq!(drain.blockers().len(), 2);
        first.returned();
        second.returned();
        assert!(drain.look().is_some());
    }

    #[tokio::test]
    async fn behind_a_closed_gate_triggers_keep_logins_out_until_they_are_disabled() {
        let gates = gates();
        let gate = closed(&gates);
        let mut drain = Drain::of(Arc::clone(&gate)).unwrap();
        let mut asking = login(&gates, 1);
        let refused = tokio::select! {
            refused = asking.hands_over() => refused.unwrap_err(),
            () = answer(&gates, &gate, &["at_login"]) => unreachable!(),
        };
        assert_eq!((refused.refusal.denial, refused.triggers.len()), (Denial::WriteFenced, 1));
        assert!(!asking.is_at_engine() && drain.look().is_some());
        tokio::select! {
            passed = asking.hands_over() => passed.unwrap(),
            () = answer(&gates, &gate, &[]) => unreachable!(),
        }
        // Known now, and nothing is asked for those that follow.
        login(&gates, 2).hands_over().await.unwrap();
        assert!(!gate.takes_login_question());
        assert!(drain.look().is_some(), "nothing runs at a login");
    }

    /// What imports there may make a trigger between two logins.
    #[tokio::test]
    async fn at_a_target_that_has_no_triggers_each_login_asks() {
        for (state, asks) in [
            (FenceState::SourceWriteFenced, false),
            (FenceState::TargetQuarantined, true),
            (FenceState::TargetWriteFenced, true),
            (FenceState::TargetAborted, true),
        ] {
            let gates = gates();
            let record = sample::record(state);
            let at = record.namespace.clone();
            let gate = gates.gate(&at);
            let loaded = LoadedFence::of_a_record(record);
            gate.apply(Authority::Loaded(&loaded), InFlight::Finish);
            let mut first = login_to(&gates, at.clone(), 1);
            tokio::select! {
                passed = first.hands_over() => passed.unwrap(),
                () = answer(&gates, &gate, &[]) => unreachable!(),
            }
            first.returned();
            let mut second = login_to(&gates, at, 2);
            tokio::select! {
                ended = second.hands_over() => {
                    let refused = ended.err().map(|refused| refused.triggers.len());
                    assert_eq!(refused, asks.then_some(1), "VIOLATION: {state:?}");
                }
                () = answer(&gates, &gate, &["made_since"]) => unreachable!(),
            }
        }
    }

    #[tokio::test]
    async fn a_database_that_is_gone_is_left_to_the_engine_and_not_remembered() {
        let gates = gates();
        let gate = closed(&gates);
        let mut asking = login(&gates, 1);
        let gone = async {
            gates.login_asked().await;
            assert!(gate.takes_login_question());
            gate.note_no_database(gate.login_question());
            std::future::pending::<()>().await;
        };
        tokio::select! {
            passed = asking.hands_over() => passed.unwrap(),
            () = gone => unreachable!(),
        }
        let mut drain = Drain::of(Arc::clone(&gate)).unwrap();
        assert!(asking.is_at_engine() && drain.look().is_none(), "it is the engine's for now");
        asking.returned();
        assert!(drain.look().is_some());
        // Another may have been made by that name.
        tokio::select! {
            ended = asking.hands_over() => assert!(ended.is_err(), "VIOLATION: it is remembered"),
            () = answer(&gates, &gate, &["at_login"]) => unreachable!(),
        }
    }

    #[tokio::test]
    async fn a_login_has_its_age_and_a_physical_replicas_is_not_listed() {
        let gates = gates();
        let _open = gates.gate(&namespace());
        let mut first = login(&gates, 1);
        first.began(7);
        first.hands_over().await.unwrap();
        let mut drain = Drain::of(closed(&gates)).unwrap();
        assert_eq!(drain.blockers().iter().map(|slot| slot.since_ms()).collect::<Vec<_>>(), [7]);
        first.returned();
        let mut replica = login(&gates, 2);
        replica.runs_nothing();
        tell(&gates.gate(&namespace()), &["at_login"]);
        replica.hands_over().await.unwrap();
        assert!(!replica.is_at_engine() && drain.blockers().is_empty());
    }

    #[cfg(debug_assertions)]
    #[test]
    fn control_arm_a_target_that_is_remembered_to_have_no_triggers_is_reported() {
        let check = "gate::logins::tests::at_a_target_that_has_no_triggers_each_login_asks";
        crate::base::arm::missed(check, &[("login-triggers", "")]).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn invariant_04_a_login_is_refused_where_nobody_knows_what_would_run() {
        let gates = gates();
        let _gate = closed(&gates);
        let refused = login(&gates, 1).hands_over().await.unwrap_err();
        assert_eq!(refused.refusal.denial, Denial::StateUnavailable);
        assert!(refused.triggers.is_empty());
    }

    #[test]
    fn what_was_found_is_of_one_closing_and_of_the_latest_question() {
        let gates = gates();
        let gate = closed(&gates);
        let early = gate.login_question();
        tell(&gate, &["at_login"]);
        gate.note_login_triggers(early, Some(Vec::new()));
        assert_eq!(gate.login_triggers().unwrap().len(), 1, "an older question knows less");
        let before = gate.login_question();
        gate.at_login.closing();
        gate.note_login_triggers(before, Some(Vec::new()));
        assert!(gate.login_triggers().is_none(), "it was asked before writes were closed");
    }

    #[tokio::test]
    async fn lost_logins_are_kept_once_for_a_database_and_within_a_bound() {
        let gates = gates();
        for number in 0..3 {
            login(&gates, number).hands_over().await.unwrap();
        }
        assert_eq!(gates.logins.of(&namespace()).len(), 1);
        for number in 0..limits::LOGINS_LOST_MAX as u64 + 1 {
            let at = Namespace::parse(&format!("e/d{number}")).unwrap();
            let named = (SessionId(number), Card::default());
            Login::new(Arc::clone(&gates), at, None, named).hands_over().await.unwrap();
        }
        let elsewhere = Namespace::parse("e/elsewhere").unwrap();
        assert_eq!(gates.logins.of(&elsewhere).len(), 1, "it may be anywhere");
    }
}
