//! Who keeps a drain waiting, by name.
//!
//! Purpose: joins what the proxy knows of its sessions with what the engine says about their
//! backends, for people and for the census. Also settles sessions that the proxy lost, once the
//! engine has shown that their backends are gone (invariant 7).
//!
//! Callers: `control/drain.rs`; `control/orphans.rs` and `control/status.rs` for their parts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Run;
use crate::base::ids::{Generation, Namespace};
use crate::base::limits;
use crate::base::run::EngineRun;
use crate::control::answer::{BlockerReport, DrainReport};
use crate::control::port::EnginePort;
use crate::engine::{Activity, Blocker, EngineTime, Orphan, ProxySession, ProxyView};
use crate::gate::drain::{Drain, Drained, Reading};
use crate::gate::registry::{Gate, Gates};
use crate::gate::slot::Slot;

/// An instant of the engine's clock, in milliseconds since the Unix epoch.
fn engine_ms(at: EngineTime) -> u64 {
    u64::try_from(at.0 / 1000).unwrap_or(0)
}

/// Why a drain goes on where the engine names nobody who is in the lock's way.
pub(super) const NOBODY_SHOWN: &str = "the engine did not grant its lock on every table in time, \
    and shows nobody who holds one; it is asked again. See the engine's process list for who waits \
    for whom";

const LOGIN: &str = "a login that the engine works on may run a login trigger of the database; \
    force does not reach it: wait, or end that backend with pg_terminate_backend";

const LOST_LOGIN: &str = "a login was lost while the engine worked on it, and may run a login \
    trigger of the database; it counts until this proxy is restarted, or the database's login \
    triggers are disabled";

const fn why_lost(pid: i32) -> &'static str {
    if pid == 0 {
        "its connection is gone, the client's or the engine's, and the engine never told its \
         process id; it counts until this proxy is restarted"
    } else {
        "its connection is gone, the client's or the engine's, and its last program may still run; \
         it counts until the engine shows that the backend is gone"
    }
}

impl DrainReport {
    /// The reason of a DRAINING answer, in a sentence that ends with what to do.
    pub(in crate::control) fn why_not(&self, then: &str) -> String {
        let blockers = self.blockers.len() as u64 + self.more_blockers;
        let first = self.blockers.first().map(BlockerReport::in_words);
        match (&self.reason, first) {
            (Some(reason), _) => format!("{reason}; {then}"),
            (None, Some(first)) => {
                format!("{blockers} still to wait for, first: {first}; {then}")
            }
            (None, None) => format!("the drain is not proven yet; {then}"),
        }
    }
}

impl BlockerReport {
    /// One line about it, without its statement (which may hold an application's data).
    pub(super) fn in_words(&self) -> String {
        let backend =
            self.engine_pid.map_or_else(|| "no backend".to_owned(), |pid| format!("backend {pid}"));
        let session = self.session.map_or_else(String::new, |id| format!("session {id}, "));
        format!("{} ({session}{backend}, user {:?}): {}", self.class, self.user, self.why)
    }

    fn of_engine(blocker: &Blocker) -> Self {
        // In front: tables of people's cut the sentence.
        let object = blocker.object.as_ref().map(|object| format!("{object}: "));
        Self {
            session: blocker.session,
            client: blocker.client.clone(),
            user: blocker.user.clone(),
            application_name: blocker.application_name.clone(),
            engine_pid: blocker.pid,
            engine_started_at_ms: blocker.backend_start.map(engine_ms),
            class: blocker.why.as_str(),
            age_ms: blocker.age_ms,
            statement: blocker.statement.clone(),
            why: format!("{}{}", object.unwrap_or_default(), blocker.why.sentence()),
        }
    }

    /// A session whose lease is waited for; `activity` is the engine's word about its backend.
    pub(in crate::control) fn of_slot(
        slot: &Slot,
        now_ms: u64,
        activity: Option<&Activity>,
    ) -> Self {
        let pid = slot.engine_pid();
        let (class, why) = if slot.is_login() && slot.is_abandoned() {
            ("orphan", LOST_LOGIN)
        } else if slot.is_login() {
            ("login", LOGIN)
        } else if slot.is_abandoned() {
            ("orphan", why_lost(pid))
        } else if slot.stamp().is_some_and(|stamp| stamp.writer) {
            ("writer", "a write admitted before the gate closed has not ended")
        } else {
            let why = "a read admitted before the gate closed runs without the guard, and no \
                       engine lock would stop a function in it from writing";
            ("reader", why)
        };
        Self::named(slot, now_ms, activity, (class, why))
    }

    /// A session that a read drain waits for.
    pub(in crate::control) fn of_reader(
        slot: &Slot,
        now_ms: u64,
        activity: Option<&Activity>,
    ) -> Self {
        let named = match Reading::of(slot) {
            _ if slot.is_login() && slot.is_abandoned() => ("orphan", LOST_LOGIN),
            _ if slot.is_login() => ("login", LOGIN),
            _ if slot.is_abandoned() => ("orphan", why_lost(slot.engine_pid())),
            Some(Reading::Stream) => ("stream", "a replica's stream is being ended"),
            Some(Reading::Dump) => ("dump", "a dump that began before reads closed has not ended"),
            Some(Reading::Sql) | None if !slot.is_running() => {
                ("cursor", "a cursor or portal that was opened before reads closed is open")
            }
            Some(Reading::Sql) | None => {
                ("reader", "a read admitted before reads closed has not ended")
            }
        };
        Self::named(slot, now_ms, activity, named)
    }

    fn named(
        slot: &Slot,
        now_ms: u64,
        activity: Option<&Activity>,
        (class, why): (&'static str, &str),
    ) -> Self {
        let card = slot.card();
        let pid = slot.engine_pid();
        let own_age = now_ms.saturating_sub(slot.since_ms());
        Self {
            session: Some(slot.id()),
            client: card.client.clone(),
            user: card.user.clone(),
            application_name: card.application_name.clone(),
            engine_pid: (pid != 0).then_some(pid),
            engine_started_at_ms: activity.map(|seen| engine_ms(seen.backend.backend_start)),
            class,
            age_ms: Some(activity.and_then(|seen| seen.transaction_ms).unwrap_or(own_age)),
            statement: activity.map(|seen| seen.statement.clone()).unwrap_or_default(),
            why: why.to_owned(),
        }
    }
}

/// Whether a slot's lease is a writer's that a drain of `generation` waits for.
pub(in crate::control) fn blocks(slot: &Slot, generation: Generation) -> bool {
    slot.stamp().is_some_and(|stamp| stamp.writer && stamp.generation < generation)
}

/// What the proxy knows about its sessions at this moment, for a census of the run `now`. Of a
/// session that is known to be of another run nothing is said: its number is somebody else's here.
pub(in crate::control) fn proxy_view(
    gate: &Gate,
    drain: &Drain,
    sole_path_required: bool,
    now: &EngineRun,
) -> ProxyView {
    let mut sessions = HashMap::new();
    let mut orphans = Vec::new();
    for slot in gate.sessions() {
        let pid = slot.engine_pid();
        if pid == 0 || slot.run().is_some_and(|run| !run.is_same_run(now)) {
            continue;
        }
        if slot.is_abandoned() {
            orphans.push(Orphan { pid, session: slot.id(), backend_start: None });
        } else {
            let is_writer = drain.waits_for(&slot);
            let in_program = slot.stamp().is_some();
            let session = ProxySession { session: slot.id(), is_writer, in_program };
            sessions.insert(pid, session);
        }
    }
    ProxyView { sessions, orphans, sole_path_required, ..ProxyView::default() }
}

/// Backends of live sessions at the other gates of a namespace's engine, for a census of the run
/// `now`: of those only that are known to be of it.
fn elsewhere(gates: &Gates, namespace: &Namespace, now: &EngineRun) -> HashSet<i32> {
    let mut others = gates.all();
    others.retain(|gate| {
        let other = gate.namespace();
        other.engine() == namespace.engine() && other != namespace
    });
    let slots = others.iter().flat_map(|gate| gate.sessions());
    slots
        .filter(|slot| !slot.is_abandoned() && slot.run().is_some_and(|run| run.is_same_run(now)))
        .map(|slot| slot.engine_pid())
        .filter(|pid| *pid != 0)
        .collect()
}

/// The engine's word about some sessions' backends; `None` where it isn't asked or doesn't answer.
pub(in crate::control) async fn activity_of(
    engine: &dyn EnginePort,
    namespace: &Namespace,
    slots: &[Arc<Slot>],
) -> Option<HashMap<i32, Activity>> {
    let pids: Vec<i32> =
        slots.iter().map(|slot| slot.engine_pid()).filter(|pid| *pid != 0).collect();
    if pids.is_empty() {
        return None;
    }
    match engine.activity(&pids).await {
        Ok(seen) => Some(seen.into_iter().map(|one| (one.backend.pid, one)).collect()),
        Err(error) => {
            // Only their names are missing; the leases block by themselves.
            tracing::debug!(%namespace, %error, "blockers without names");
            None
        }
    }
}

impl Run<'_> {
    pub(super) fn proxy_view(&self, now: &EngineRun) -> ProxyView {
        let sole_path = self.ticket.settings.sole_path_required;
        let view = proxy_view(&self.gate, &self.drain, sole_path, now);
        let elsewhere = match self.engine.reaches_every_database() {
            true => elsewhere(&self.control.gates, &self.line.namespace, now),
            false => HashSet::new(),
        };
        ProxyView { is_import: self.is_import(), elsewhere, ..view }
    }

    /// Names the sessions whose leases are waited for, with the engine's word where it answers.
    /// Names are for people: where the last lease ends meanwhile that is the answer, and the
    /// engine's isn't waited for.
    pub(super) async fn name_writers(&mut self) -> Option<Drained> {
        let slots = self.drain.blockers();
        self.report.active_writers = slots.len() as u64;
        self.in_census.clear();
        let shown: Vec<Arc<Slot>> =
            slots.iter().take(limits::BLOCKERS_SHOWN_MAX).map(Arc::clone).collect();
        let asked = activity_of(self.engine.as_ref(), &self.line.namespace, &shown);
        let activity = tokio::select! {
            biased;
            drained = self.drain.wait() => return Some(drained),
            activity = asked => activity,
        };
        if activity.is_some() {
            // The engine answers: a question that failed before is no reason any more.
            self.report.reason = None;
        }
        let activity = activity.unwrap_or_default();
        let now = self.control.clock.monotonic().as_millis();
        let now_ms = u64::try_from(now).unwrap_or(u64::MAX);
        self.report.blockers = shown
            .iter()
            .map(|slot| BlockerReport::of_slot(slot, now_ms, activity.get(&slot.engine_pid())))
            .collect();
        self.report.more_blockers = (slots.len() - shown.len()) as u64;
        None
    }

    /// Names what the engine found.
    pub(super) fn name_residue(&mut self, blockers: &[Blocker]) {
        self.report.active_writers = self.drain.blockers().len() as u64;
        self.in_census = blockers.iter().filter_map(|blocker| blocker.session).collect();
        let shown = blockers.iter().take(limits::BLOCKERS_SHOWN_MAX);
        self.report.blockers = shown.map(BlockerReport::of_engine).collect();
        self.report.more_blockers =
            blockers.len().saturating_sub(limits::BLOCKERS_SHOWN_MAX) as u64;
    }

    /// Takes lost sessions out of the table whose backends the engine no longer has.
    pub(super) async fn settle_orphans(&mut self) {
        let (engine, fenced) = (self.engine.as_ref(), self.ticket.identity.as_ref());
        let settled = self.control.settle(&self.gate, engine, fenced).await;
        if let Err(error) = settled {
            self.note_fault(Some(error));
        }
    }
}
