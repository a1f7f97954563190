//! What people and programs are shown: namespaces, sessions, drains, capabilities, readiness.
//!
//! Purpose: reading only. An inspection never completes, repairs or advances anything; it reads
//! the store and the gate and asks the engine, within a bound, which database is live.
//!
//! Callers: `admin`, `control/fences.rs` (the view in an answer), `app` (gauges before a scrape).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::answer::{
    Admission, BlockerReport, DrainPhase, DrainReport, HeldReport, NamespaceLine, ReadLeases,
    Sight, Unavailable,
};
use super::drain::blocks;
use super::fences::Control;
use super::port::LiveDatabase;
use crate::base::ids::{Generation, Namespace, Revision, SessionId};
use crate::base::limits;
use crate::fence::code::Detail;
use crate::fence::receipt::Receipt;
use crate::fence::record::{Identity, WrittenBy};
use crate::fence::state::{FenceState, Role};
use crate::fence::transition::ControlView;
use crate::fence::verdict::{HoldRule, Overlay, Policy, Purpose};
use crate::gate::capability::Listed;
use crate::gate::drain::ReadDrain;
use crate::gate::registry::Gate;
use crate::gate::slot::Slot;
use crate::store::StoreError;
use crate::store::reconcile::Reconciled;

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// Neither a database nor a fence record.
    #[error("there is no database {0} and no fence record of it; check the name")]
    NotFound(Namespace),
    /// No engine of that name is configured, and there is no fence record.
    #[error(
        "no engine {:?} is configured; engines: {engines}. A namespace is written engine/database, \
         such as {first}/app; a new engine goes into the settings, then reload",
        namespace.engine().as_str()
    )]
    NoEngine {
        /// What was asked for.
        namespace: Namespace,
        /// The names that there are, separated by commas.
        engines: String,
        /// One of them.
        first: String,
    },
    /// The store can't be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// One inspection.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspection {
    /// Where the namespace stands.
    pub sight: Sight,
    /// The owner's receipts, or all of them, oldest first.
    pub receipts: Vec<Receipt>,
    /// Why the receipts can't be shown, where one of them can't be read.
    pub unreadable: Option<String>,
    /// Why the live database isn't known, where the engine was asked for it.
    pub silence: Option<Silence>,
}

/// Why an engine didn't say which database is live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    /// A stable word: `missing`, or a family of [`crate::engine::EngineError`].
    pub kind: &'static str,
    /// The engine's or the system's words, and what to do.
    pub words: String,
}

/// What this build and process can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether commands may be used.
    pub enabled: bool,
    /// Fences that still take something away, unknown and indeterminate ones included.
    pub active_fences: u64,
    /// This process.
    pub server: WrittenBy,
}

/// A lease that is out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseLine {
    /// Whether it may write.
    pub writer: bool,
    /// The generation it was admitted under.
    pub generation: Generation,
    /// Its age, in milliseconds.
    pub age_ms: u64,
}

/// One session, for a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionLine {
    /// Its number.
    pub session: SessionId,
    /// The namespace it is in.
    pub namespace: Namespace,
    /// The client's address.
    pub client: String,
    /// The role.
    pub user: String,
    /// The client's application name.
    pub application_name: String,
    /// The engine's backend, where it is known.
    pub engine_pid: Option<i32>,
    /// Its lease, if it has one.
    pub lease: Option<LeaseLine>,
    /// Whether its client is gone and its backend isn't known to be.
    pub abandoned: bool,
    /// What it shows a capability for, if it does.
    pub capability: Option<Purpose>,
    /// How long its program has been held at the closed gate, in milliseconds, while one is.
    pub held_ms: Option<u64>,
}

impl Control {
    fn now_monotonic_ms(&self) -> u64 {
        u64::try_from(self.clock.monotonic().as_millis()).unwrap_or(u64::MAX)
    }

    /// What the gate admits now. A gate that wasn't made yet would start from what recovery left.
    fn admission(&self, namespace: &Namespace) -> Admission {
        let pending = self.known_line(namespace).and_then(|line| line.pending());
        let indeterminate = pending.map(|pending| pending.key);
        match self.gates.known(namespace) {
            Some(gate) => admission_of(&gate, indeterminate),
            None => {
                let open = self.ready() && !self.gates.is_shut(namespace.engine());
                let policy = if open { Policy::unfenced() } else { Policy::unknown() };
                Admission {
                    write: policy.writes_open(),
                    read: policy.reads_open(),
                    generation: None,
                    indeterminate,
                }
            }
        }
    }

    /// What is held at the gate now. A gate without a word on holding shows what its next fence
    /// would do by the settings.
    fn held_report(&self, namespace: &Namespace) -> HeldReport {
        let gate = self.gates.known(namespace);
        let rule = match &gate {
            Some(gate) if !gate.word().writes_open() => gate.published().policy.hold,
            Some(_) | None => {
                let settings = self.settings_of(namespace);
                HoldRule { hold_ms: settings.hold_ms, held_max: settings.held_max }
            }
        };
        let held = gate.map(|gate| gate.held()).unwrap_or_default();
        let oldest = held.since_ms.map(|since| self.now_monotonic_ms().saturating_sub(since));
        HeldReport {
            programs: held.programs as u64,
            bytes: held.bytes as u64,
            oldest_ms: oldest,
            since_ms: oldest.map(|age| self.clock.now_ms().saturating_sub(age)),
            hold_ms: rule.hold_ms,
            held_max: rule.held_max as u64,
        }
    }

    /// The drain of a namespace: the one that runs, or, where nobody waits, who would block it.
    pub(super) fn drain_report(&self, namespace: &Namespace) -> DrainReport {
        let line = self.known_line(namespace);
        let running = line.as_ref().and_then(|line| line.drain().0);
        let Some(gate) = self.gates.known(namespace) else {
            return running.unwrap_or_default();
        };
        let slots = gate.sessions();
        let read_leases = ReadLeases::among(&slots);
        let imports = slots.iter().filter(|slot| slot.purpose() == Some(Purpose::Import));
        let import_writers = imports.filter(|slot| slot.stamp().is_some()).count() as u64;
        if let Some(running) = running {
            return DrainReport { read_leases, import_writers, ..running };
        }
        let published = gate.published();
        if published.policy.writes_open() {
            return DrainReport { read_leases, ..DrainReport::default() };
        }
        let now_ms = self.now_monotonic_ms();
        if let Some(mut reads) = ReadDrain::of(Arc::clone(&gate))
            && published.policy.state == FenceState::SourceReadDraining
        {
            let blocking = reads.blockers();
            let shown = blocking.iter().take(limits::BLOCKERS_SHOWN_MAX);
            return DrainReport {
                read_leases,
                blockers: shown.map(|slot| BlockerReport::of_reader(slot, now_ms, None)).collect(),
                more_blockers: blocking.len().saturating_sub(limits::BLOCKERS_SHOWN_MAX) as u64,
                ..DrainReport::default()
            };
        }
        let blocking: Vec<_> =
            slots.iter().filter(|slot| blocks(slot, published.generation)).collect();
        let now = DrainReport {
            active_writers: blocking.len() as u64,
            read_leases,
            import_writers,
            blockers: blocking
                .iter()
                .take(limits::BLOCKERS_SHOWN_MAX)
                .map(|slot| BlockerReport::of_slot(slot, now_ms, None))
                .collect(),
            more_blockers: blocking.len().saturating_sub(limits::BLOCKERS_SHOWN_MAX) as u64,
            ..DrainReport::default()
        };
        let draining = published.policy.state == FenceState::SourceDraining;
        let last = line.filter(|_| draining).and_then(|l| l.unproven(published.policy.revision));
        match last {
            Some(last) => with_last_look(now, last, &slots),
            None => now,
        }
    }

    /// The capabilities that are alive at a gate, if there is one.
    fn capabilities_of(&self, namespace: &Namespace) -> Vec<Listed> {
        self.gates.known(namespace).map(|gate| gate.capabilities_listed()).unwrap_or_default()
    }

    /// Why nothing is admitted although no fence is up: the engine is, or may be, a fenced one.
    fn why_shut(&self, namespace: &Namespace, state: FenceState) -> Option<Unavailable> {
        let shut = self.gates.shut_engines();
        let reason = shut.get(namespace.engine()).filter(|_| !state.is_active())?.clone();
        Some(Unavailable { detail: Detail::NamespaceIdentityMismatch, reason, marker: None })
    }

    async fn sight_from(
        &self,
        namespace: &Namespace,
        truth: Reconciled,
        live: Option<Identity>,
    ) -> Result<Sight, StoreError> {
        let (state, revision) = (truth.view.state(), truth.view.revision());
        let marker_consistent =
            truth.view.record().map(|_| truth.repair == crate::store::reconcile::Repair::Nothing);
        // What is being created is shown as what it will be, not as what its marker says so far.
        let creating = self.gates.known(namespace).is_some_and(|gate| is_created(&gate));
        let state = if creating { FenceState::TargetQuarantined } else { state };
        let shut = self.why_shut(namespace, state);
        let (record, unavailable) = match truth.view {
            ControlView::UnknownUnavailable { .. } if creating => (None, None),
            ControlView::Record(record) => (Some(record), None),
            ControlView::NoRecord { .. } => (None, None),
            ControlView::UnknownUnavailable { detail, reason, marker, .. } => {
                (None, Some(Unavailable { detail, reason, marker }))
            }
        };
        let writable_targets = match &record {
            Some(record) if record.role == Role::Source && state != FenceState::Released => {
                self.writable_targets(record.operation).await?
            }
            Some(_) | None => Vec::new(),
        };
        Ok(Sight {
            namespace: namespace.clone(),
            state,
            revision,
            record,
            unavailable: unavailable.or(shut),
            live,
            admission: self.admission(namespace),
            held: self.held_report(namespace),
            drain: self.drain_report(namespace),
            lock: self.locks.report(namespace),
            capabilities: self.capabilities_of(namespace),
            writable_targets,
            marker_consistent,
            server: self.written_by(),
        })
    }

    /// The view in a command's answer; `None` where there is nothing or nothing can be read.
    pub(super) async fn sight(
        &self,
        namespace: &Namespace,
        live: Option<Identity>,
    ) -> Option<Sight> {
        let truth = self.truth(namespace, false).await.ok()?;
        let nothing = matches!(truth.view, ControlView::NoRecord { .. }) && live.is_none();
        if nothing { None } else { self.sight_from(namespace, truth, live).await.ok() }
    }

    /// What to say of a namespace whose engine isn't configured.
    #[must_use]
    pub fn no_engine(&self, namespace: &Namespace) -> InspectError {
        let engines = self.engines();
        let names: Vec<&str> = engines.keys().map(|name| name.as_str()).collect();
        InspectError::NoEngine {
            namespace: namespace.clone(),
            engines: names.join(", "),
            // A configuration without any engine doesn't start.
            first: names.first().copied().unwrap_or("old").to_owned(),
        }
    }

    /// Inspects one namespace.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    ///
    /// # Errors
    /// [`InspectError`].
    pub async fn inspect(
        &self,
        namespace: &Namespace,
        all_receipts: bool,
    ) -> Result<Inspection, InspectError> {
        let truth = self.truth(namespace, false).await?;
        let mut live = None;
        let mut silence = None;
        let bound = Duration::from_millis(limits::INSPECT_ENGINE_MS);
        let engine = self.engine_of(namespace);
        let no_record = matches!(truth.view, ControlView::NoRecord { .. });
        match &engine {
            Some(engine) => match tokio::time::timeout(bound, engine.identity(namespace)).await {
                Ok(Ok(LiveDatabase::Exists(identity))) => live = Some(identity),
                Ok(Ok(LiveDatabase::Missing)) if no_record => {
                    return Err(InspectError::NotFound(namespace.clone()));
                }
                Ok(Ok(LiveDatabase::Missing)) => {
                    let words = format!("engine {} has no such database", namespace.engine());
                    silence = Some(Silence { kind: "missing", words });
                }
                Ok(Err(error)) => {
                    silence = Some(Silence { kind: error.family(), words: error.to_string() });
                }
                Err(_) => {
                    let words = format!(
                        "engine {} did not say which database it is within {bound:?}: it is \
                         overloaded or blocked",
                        namespace.engine()
                    );
                    silence = Some(Silence { kind: "timeout", words });
                }
            },
            None if no_record => return Err(self.no_engine(namespace)),
            None => {}
        }
        let owner = truth.view.record().map(|record| record.operation);
        let listed = match (all_receipts, owner) {
            (true, _) => self.store.receipt_list(namespace, None).await,
            (false, Some(owner)) => self.store.receipt_list(namespace, Some(owner)).await,
            (false, None) => Ok(Vec::new()),
        };
        let (receipts, unreadable) = match listed {
            Ok(receipts) => (receipts, None),
            // What holds now is known all the same, and is what somebody looks for who looks here.
            Err(error @ StoreError::Corrupt { .. }) => (Vec::new(), Some(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        let sight = self.sight_from(namespace, truth, live).await?;
        Ok(Inspection { sight, receipts, unreadable, silence })
    }

    /// Whether any fence state exists for a namespace: then it can be inspected even where
    /// commands are off.
    #[must_use]
    pub fn has_fence_state(&self, namespace: &Namespace) -> bool {
        self.gates
            .known(namespace)
            .is_some_and(|gate| gate.published().policy.state != FenceState::Unfenced)
    }

    /// Every namespace with a fence, a session or a route, sorted by name.
    #[must_use]
    pub fn namespaces(&self) -> Vec<NamespaceLine> {
        let table = self.routes.table();
        let mut names: std::collections::BTreeSet<Namespace> =
            self.gates.all().iter().map(|gate| gate.namespace().clone()).collect();
        names.extend(table.routes.values().cloned());
        // A statement that names a database gives it a gate; that alone is nothing to show.
        names.into_iter().map(|namespace| self.line_of(namespace)).filter(is_something).collect()
    }

    fn line_of(&self, namespace: Namespace) -> NamespaceLine {
        let gate = self.gates.known(&namespace);
        let published = gate.as_ref().map(|gate| gate.published());
        let slots = gate.map(|gate| gate.sessions()).unwrap_or_default();
        let policy = published.map(|published| published.policy.clone());
        let stamps: Vec<_> = slots.iter().filter_map(|slot| slot.stamp()).collect();
        let policy_state = policy.as_ref().map(|policy| policy.state);
        NamespaceLine {
            state: policy.as_ref().map_or(FenceState::Unfenced, shown_state),
            revision: policy.as_ref().map_or(Revision(0), |policy| policy.revision),
            operation: policy.and_then(|policy| policy.operation),
            admission: self.admission(&namespace),
            sessions: slots.len() as u64,
            leases: stamps.len() as u64,
            writers: stamps.iter().filter(|stamp| stamp.writer).count() as u64,
            orphans: slots.iter().filter(|slot| slot.is_abandoned()).count() as u64,
            held: self.held_report(&namespace),
            lock: self.locks.report(&namespace),
            drain: self.drain_report(&namespace),
            capabilities: self.capabilities_of(&namespace),
            routes: self.routes.table().leading_to(&namespace),
            unavailable: self.known_line(&namespace).and_then(|line| line.unavailable()).or_else(
                || {
                    let shut = self.why_shut(&namespace, FenceState::Unfenced)?;
                    let closed = policy_state == Some(FenceState::UnknownUnavailable);
                    closed.then_some((shut.detail, shut.reason))
                },
            ),
            namespace,
        }
    }

    /// Sessions of all namespaces, at most `limits::SESSIONS_SHOWN_MAX`, and how many more.
    #[must_use]
    pub fn sessions(&self) -> (Vec<SessionLine>, u64) {
        let now_ms = self.now_monotonic_ms();
        let mut lines = Vec::new();
        let mut more = 0;
        for gate in self.gates.all() {
            for slot in gate.sessions() {
                if lines.len() == limits::SESSIONS_SHOWN_MAX {
                    more += 1;
                    continue;
                }
                let card = slot.card();
                let pid = slot.engine_pid();
                let age_ms = now_ms.saturating_sub(slot.since_ms());
                lines.push(SessionLine {
                    session: slot.id(),
                    namespace: gate.namespace().clone(),
                    client: card.client.clone(),
                    user: card.user.clone(),
                    application_name: card.application_name.clone(),
                    engine_pid: (pid != 0).then_some(pid),
                    lease: slot.stamp().map(|stamp| LeaseLine {
                        writer: stamp.writer,
                        generation: stamp.generation,
                        age_ms,
                    }),
                    abandoned: slot.is_abandoned(),
                    capability: slot.purpose(),
                    held_ms: slot.held_since_ms().map(|since| now_ms.saturating_sub(since)),
                });
            }
        }
        lines.sort_by_key(|line| line.session);
        (lines, more)
    }

    /// What this build and process can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        let active = self.gates.all().iter().filter(|gate| is_active(gate)).count();
        Capabilities {
            enabled: self.settings.fence_enabled,
            active_fences: active as u64,
            server: self.written_by(),
        }
    }

    /// Sets the gauges that are counted at scrape time.
    pub fn refresh_gauges(&self) {
        let gates = self.gates.all();
        let states: Vec<(&str, &str)> = gates
            .iter()
            .map(|gate| gate.published().policy.state)
            .filter(|state| *state != FenceState::Unfenced)
            .map(|state| (state.role().map_or("unknown", |role| role_label(role)), state.name()))
            .collect();
        self.metrics.fence.namespaces(states);
        let active: Vec<_> = gates.iter().filter(|gate| is_active(gate)).collect();
        let since = |gate: &&Arc<Gate>| self.known_line(gate.namespace())?.active_since_ms();
        let oldest = active.iter().copied().filter_map(|gate| since(&gate)).min();
        let now = self.clock.now_ms();
        let age = oldest.map(|since| Duration::from_millis(now.saturating_sub(since)));
        self.metrics.fence.active(active.len() as u64, age);
        let (wanted, held) = self.locks.counts();
        self.metrics.fence.locks(wanted, held);
        self.metrics.engine.engines(self.engines().len());
        let held: Vec<_> = gates.iter().map(|gate| gate.held()).collect();
        let since = held.iter().filter_map(|sight| sight.since_ms).min();
        let waited = since.map(|since| self.now_monotonic_ms().saturating_sub(since));
        self.metrics.fence.held(
            held.iter().map(|sight| sight.programs).sum(),
            held.iter().map(|sight| sight.bytes).sum(),
            waited.map(Duration::from_millis),
        );
        let orphans = gates.iter().flat_map(|gate| gate.sessions());
        self.metrics.engine.orphans(orphans.filter(|slot| slot.is_abandoned()).count());
    }

    /// Whether listeners may serve, and why not.
    ///
    /// # Errors
    /// A sentence for `/readyz`.
    pub fn readiness(&self) -> Result<(), &'static str> {
        if self.recovered.load(Ordering::SeqCst) {
            Ok(())
        } else {
            Err("recovery has not finished: fences are being read from the store")
        }
    }
}

/// What the proxy sees of its own sessions now, and behind it what the engine alone had named when
/// it was last asked: nothing of a session that is gone, or whose lease it was.
fn with_last_look(now: DrainReport, last: DrainReport, slots: &[Arc<Slot>]) -> DrainReport {
    let named = |id: &SessionId| now.blockers.iter().any(|one| one.session == Some(*id));
    let there = |id: &SessionId| slots.iter().any(|slot| slot.id() == *id);
    let mut blockers = now.blockers.clone();
    let counts = |one: &BlockerReport| {
        !["writer", "reader", "login", "orphan"].contains(&one.class)
            && one.session.as_ref().is_none_or(|id| there(id) && !named(id))
    };
    blockers.extend(last.blockers.into_iter().filter(counts));
    let more = blockers.len().saturating_sub(limits::BLOCKERS_SHOWN_MAX) as u64;
    blockers.truncate(limits::BLOCKERS_SHOWN_MAX);
    DrainReport {
        blockers,
        more_blockers: now.more_blockers.max(last.more_blockers) + more,
        as_of_ms: last.as_of_ms,
        reason: last.reason,
        ..now
    }
}

/// Whether there is anything to say about a namespace beyond its name.
fn is_something(line: &NamespaceLine) -> bool {
    line.state != FenceState::Unfenced
        || line.admission.indeterminate.is_some()
        || line.unavailable.is_some()
        || !line.routes.is_empty()
        || line.sessions > 0
        || line.held.programs > 0
        || line.drain.phase != DrainPhase::Idle
}

const fn role_label(role: Role) -> &'static str {
    match role {
        Role::Source => "source",
        Role::Target => "target",
    }
}

/// Whether a target of this name is being created.
fn is_created(gate: &Gate) -> bool {
    gate.published().policy.overlay == Overlay::CreatingTarget
}

fn shown_state(policy: &Policy) -> FenceState {
    match policy.overlay {
        Overlay::CreatingTarget => FenceState::TargetQuarantined,
        Overlay::None | Overlay::Installing | Overlay::ClosingReads | Overlay::Indeterminate => {
            policy.state
        }
    }
}

fn is_active(gate: &Gate) -> bool {
    let policy = &gate.published().policy;
    policy.state.is_active()
        || matches!(policy.overlay, Overlay::Indeterminate | Overlay::CreatingTarget)
}

fn admission_of(
    gate: &Gate,
    indeterminate: Option<crate::fence::command::CommandKey>,
) -> Admission {
    let published = gate.published();
    Admission {
        write: published.policy.writes_open(),
        read: published.policy.reads_open(),
        generation: Some(published.generation),
        indeterminate,
    }
}
