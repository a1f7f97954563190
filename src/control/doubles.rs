//! Fenced databases that may be reached under another engine's name.
//!
//! Purpose: a fence closes a namespace by its name. When names and servers have been swapped or
//! spelled anew while the proxy was down, the fenced database is behind another name, whose gate
//! nothing has closed. So while a source fence or a target stands, each other engine is asked which
//! server it is: all of its namespaces stay closed when it is the fenced one, and also while it
//! hasn't said so, where it is new or the fence's own engine isn't seen to be the one that was
//! fenced (invariant 4). Otherwise one that is silent at a start is open, and asked until it has
//! answered. While a fence stands each is asked now and then whether it is what it was.
//!
//! What an engine said last counts until it says something else, however long it is silent:
//!
//! | its last word            | says it now    | silent, own engine seen | silent, it isn't seen |
//! | ------------------------ | -------------- | ----------------------- | --------------------- |
//! | none                     | as below       | left, followed          | shut, followed        |
//! | the fenced server        | shut           | shut                    | shut                  |
//! | a standby of it          | open, followed | left, and asked on      | shut                  |
//! | a later timeline of it   | as below       | as below                | as below              |
//! | another server           | open           | left                    | left                  |
//!
//! "Own engine seen": under the fence's own name the fenced server answers, with the fenced
//! database in it. "Left" is what it was: an engine that is new, or was shut, stays shut. A later
//! timeline is the fenced server (promoted) where that engine is followed, or the own name leads
//! to it too; elsewhere it is another server (forked before the fence). Followed is whose last
//! word, when the fence's first command was about to be committed or at any time behind it, was a
//! standby's: so that command asks them all before it, and a look takes up what was said before
//! it hears what is said now. Followed is also who was asked by this process and had never said a
//! word to it when a fence went up, or at its first look at that engine under one: it may be a
//! standby, and be promoted before it speaks. That errs for a fork that was silent just then: it is
//! shut until the release, or a restart at which it answers. Its silence alone says nothing where
//! it says by now that it is who a record of it says: then what it was is known. Such a record was
//! there when the engine came to be followed (a later one may be of the promoted standby itself),
//! and is of the fence's operation, or of before the fence and stands still (`tells_who`). Nor does
//! a fence or a target come to be on an engine that is shut, or is found to have to be, or hasn't
//! said who it is (`doubles/commands.rs`): its record would speak for it behind a restart.
//!
//! At an engine that is found to be the server of an acknowledged write fence, or to have a later
//! timeline and be followed for its silence, what may write is told to roll back: it began between
//! its promotion and the look. That errs for a fork as its closing does. So is it when the drain of
//! such a fence is proven, if the engine was found before. Not for a fence that isn't acknowledged,
//! nor for a target, nor, where a session writes to one database only (PostgreSQL), in others than
//! the fenced one. Where an engine is shut because it is silent nothing is: it may end by itself.
//! The order is no evidence that anything has ended: `docs/CONTRACT.md` says what isn't reached.
//!
//! Of several fences that shut an engine the one that is told is the one that it is, or may be by
//! its own word; only shut before, and silent, it may be of any.
//!
//! Callers: `control/recovery.rs` before listeners open, `control/orphans.rs` now and then while an
//! engine is shut or a fence stands, `control/fences/turn.rs` before a fence goes up and
//! `control/drain/completion.rs` when it is proven, `app` after a reload. Closing needs no
//! evidence; opening takes the engine's own word, or the end of the fence.

mod commands;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

pub(super) use commands::NotHere;
use words::{is_double, may_be_double, may_be_promoted, was_promoted};

use super::fences::{Control, Engines};
use super::port::{EnginePort, LiveDatabase, Server};
use super::truth::is_source_fenced;
use crate::base::arm::{Removable, removed};
use crate::base::ids::{EngineName, Namespace, OperationId};
use crate::base::limits;
use crate::base::run::EngineRun;
use crate::fence::record::{FenceRecord, Identity};
use crate::fence::state::{FenceState, Role};
use crate::gate::registry::Gate;
use crate::gate::slot::{Order, Running, Slot};
use crate::store::{LoadedFence, Row, StoreError};
use crate::telemetry::spawn::spawn_named;

/// A fence that stands, and the database it was acquired on; or a target, and the one that was made
/// for it.
struct Standing {
    namespace: Namespace,
    operation: OperationId,
    identity: Identity,
    role: Role,
    state: FenceState,
    /// Targets of the same operation that take writes: a release would have both do.
    beside: Vec<Namespace>,
    /// Who engines were by other records ([`tells_who`]), as far as they are there by now.
    recorded: Vec<(EngineName, Identity)>,
}

impl Standing {
    fn recorded_of(&self, engine: &EngineName) -> Vec<Identity> {
        let its = self.recorded.iter().filter(|(name, _)| name == engine);
        its.map(|(_, identity)| identity.clone()).collect()
    }

    /// Whose open work is cut where an engine is this fence's server, once it is acknowledged: a
    /// PostgreSQL session writes to its own database, a MySQL one to any. `None` for a target,
    /// whose writes nobody was told to be closed.
    fn cut(&self) -> Option<Cut> {
        match (self.role, self.identity.timeline) {
            (Role::Target, _) => None,
            (Role::Source, Some(_)) => Some(Cut::Database(self.namespace.database().to_owned())),
            (Role::Source, None) => Some(Cut::Every),
        }
    }
}

/// Why an engine is followed behind a fence.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Followed {
    /// It was a standby of the fence's server while that fence stood.
    Standby,
    /// It had said nothing when that fence went up or was first looked at; what it was then nobody
    /// knows, but for who it was by the records of it that there were by then. Later ones say
    /// nothing of that time: they may be of the standby that was promoted meanwhile.
    Unheard(Vec<Identity>),
}

impl Followed {
    /// Whether the engine still is, by its last word.
    fn holds(&self, said: Option<&Server>) -> bool {
        match self {
            Self::Standby => true,
            Self::Unheard(recorded) => !said.is_some_and(|said| is_as_recorded(said, recorded)),
        }
    }
}

/// How much a reason says of why an engine is shut. Of those of several fences the first that says
/// most is told, at every look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    /// It was shut before, and is silent; by its own word it is not this fence's server.
    ShutBefore,
    /// It may be this fence's server, for all that it has said.
    MayBe,
    /// It is this fence's server.
    Fenced,
}

/// The engines that one look finds to be shut, and why.
type Found = BTreeMap<EngineName, (Weight, String)>;

fn keep(found: &mut Found, engine: &EngineName, weight: Weight, why: String) {
    if found.get(engine).is_none_or(|(had, _)| *had < weight) {
        found.insert(engine.clone(), (weight, why));
    }
}

/// Whose open work is cut at an engine that is a fence's server.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cut {
    /// That of the database of this name.
    Database(String),
    /// That of each.
    Every,
}

/// Where a source fence's server was found under other names by the last look.
#[derive(Debug)]
struct Doubled {
    /// Whose fence it was. A later one of the same namespace is another operation's, and may have
    /// gone up when these engines were servers of their own.
    operation: OperationId,
    engines: BTreeSet<EngineName>,
    cut: Cut,
}

impl Doubled {
    fn reaches(&self, namespace: &Namespace) -> bool {
        let within = match &self.cut {
            Cut::Database(name) => name == namespace.database(),
            Cut::Every => true,
        };
        within && self.engines.contains(namespace.engine())
    }
}

/// What a look has found.
#[derive(Default)]
struct Findings {
    shut: Found,
    doubled: BTreeMap<Namespace, Doubled>,
}

impl Findings {
    /// Notes that an engine is a fence's server.
    fn is_fenced(&mut self, engine: &EngineName, fence: &Standing, why: String) {
        keep(&mut self.shut, engine, Weight::Fenced, why);
        if let Some(cut) = fence.cut() {
            let none = Doubled { operation: fence.operation, engines: BTreeSet::new(), cut };
            let doubled = self.doubled.entry(fence.namespace.clone()).or_insert(none);
            doubled.engines.insert(engine.clone());
        }
    }
}

/// What the last look has found of each source fence; a look replaces it, drains read it.
#[derive(Default)]
pub(super) struct AtDoubles(ArcSwap<BTreeMap<Namespace, Doubled>>);

/// What is known from one look to the next. One at a time looks.
#[derive(Default)]
pub(super) struct Seen {
    /// What each configured engine said last, however long ago.
    last: BTreeMap<EngineName, Server>,
    /// Engines that are open and may be fenced ones for all that they have ever said, or become
    /// one by a promotion.
    unanswered: BTreeSet<EngineName>,
    /// Engines that were asked, and have never said anything.
    unheard: BTreeSet<EngineName>,
    /// Engines whose later timeline is the fence's server, and not a fork from before it.
    followed: BTreeMap<(EngineName, Namespace), Followed>,
    /// Something was heard that no look has gone by yet.
    news: bool,
}

impl Seen {
    /// Takes up what the engines say that were asked. Who was a standby, or silent, when a fence
    /// went up is remembered before the word of its promotion takes that one's place.
    fn hear<'a>(
        &mut self,
        fences: &[Standing],
        asked: impl Iterator<Item = &'a EngineName>,
        servers: &BTreeMap<EngineName, Server>,
    ) {
        self.follow(fences);
        self.last.extend(servers.iter().map(|(name, server)| (name.clone(), server.clone())));
        self.unheard.extend(asked.cloned());
        self.unheard.retain(|name| !self.last.contains_key(name));
        self.follow(fences);
        self.followed.retain(|(_, fenced), _| fences.iter().any(|one| one.namespace == *fenced));
    }

    fn follow(&mut self, fences: &[Standing]) {
        if removed(Removable::StandbyFollow) {
            return;
        }
        for fence in fences {
            let Standing { namespace, identity, .. } = fence;
            for name in &self.unheard {
                let pair = (name.clone(), namespace.clone());
                let unheard = || Followed::Unheard(fence.recorded_of(name));
                self.followed.entry(pair).or_insert_with(unheard);
            }
            if removed(Removable::FrozenRecords) {
                let of_fence = self.followed.iter_mut().filter(|((_, of), _)| of == namespace);
                for ((name, _), followed) in of_fence {
                    if let Followed::Unheard(recorded) = followed {
                        *recorded = fence.recorded_of(name);
                    }
                }
            }
            let standbys = self.last.iter().filter(|(_, last)| is_its_standby(last, identity));
            let pairs = standbys.map(|(name, _)| (name.clone(), namespace.clone()));
            self.followed.extend(pairs.map(|pair| (pair, Followed::Standby)));
        }
    }

    /// What is known of an engine beside a fence by what it has said, as if it had been asked just
    /// now, were open, and the fence's own engine weren't seen.
    fn known(&self, name: &EngineName, fence: &Standing) -> Known<'_> {
        let said = self.last.get(name);
        let followed = self.followed.get(&(name.clone(), fence.namespace.clone()));
        Known {
            said,
            silent: false,
            shut: false,
            followed: followed.is_some_and(|followed| followed.holds(said)),
            in_place: false,
            own: self.last.get(fence.namespace.engine()),
        }
    }

    /// In words, why an engine is a fence's server, or is taken for it for its silence.
    fn why_fenced(&self, name: &EngineName, fence: &Standing) -> String {
        let (said, own) = (self.last.get(name), self.last.get(fence.namespace.engine()));
        let is = said.is_some_and(|said| has_the_fenced(said, &fence.identity, false, own));
        let pair = (name.clone(), fence.namespace.clone());
        match self.followed.get(&pair) {
            Some(Followed::Unheard(_)) if !is => may_be_promoted(name, fence),
            Some(Followed::Standby) if !is => was_promoted(name, fence),
            Some(Followed::Unheard(_) | Followed::Standby) | None => is_double(name, fence),
        }
    }

    /// Forgets what engines have said that are configured no more.
    fn keep_configured(&mut self, engines: &Engines) {
        self.last.retain(|engine, _| engines.contains_key(engine));
        self.unheard.retain(|engine| engines.contains_key(engine));
    }
}

/// What one look goes by.
struct Answers<'a> {
    /// What the engines that answered have said.
    servers: &'a BTreeMap<EngineName, Server>,
    /// Which were shut before they were asked.
    shut: &'a BTreeMap<EngineName, String>,
}

/// Asks with a bound; `None` where there is no answer.
pub(super) async fn bounded<T, E: std::fmt::Display>(
    engine: &EngineName,
    question: impl Future<Output = Result<T, E>>,
) -> Option<T> {
    match tokio::time::timeout(Duration::from_millis(limits::RECOVERY_SERVER_MS), question).await {
        Ok(Ok(answer)) => Some(answer),
        Ok(Err(error)) => {
            tracing::debug!(%engine, %error, "the engine did not say who it is");
            None
        }
        Err(_) => {
            tracing::debug!(%engine, "the engine did not say in time who it is");
            None
        }
    }
}

/// Whether a server is the one that a fence was acquired on.
pub(super) fn is_the_fenced(server: &Server, identity: &Identity) -> bool {
    server.run.engine_id == identity.engine_id
        && (identity.timeline.is_none() || identity.timeline == server.run.timeline)
        && !server.standby
}

/// Whether a server has the fenced database in it as it was at the fence: it is that server, or one
/// that was promoted since. A later timeline alone doesn't say so: a server that was forked from it
/// before the fence, as targets may be, has one as well. It was seen as a standby or wasn't heard
/// (`followed`), or is what the fenced engine's own name leads to by now.
fn has_the_fenced(
    server: &Server,
    identity: &Identity,
    followed: bool,
    own: Option<&Server>,
) -> bool {
    let promoted = server.run.engine_id == identity.engine_id
        && !server.standby
        && server.run.timeline > identity.timeline
        && (followed || own.is_some_and(|own| !own.standby && is_one(&own.run, &server.run)));
    is_the_fenced(server, identity) || promoted
}

/// Whether these are of one server on one timeline.
fn is_one(one: &EngineRun, other: &EngineRun) -> bool {
    one.engine_id == other.engine_id && one.timeline == other.timeline
}

/// Whether a server is a standby of the fenced one, which may be promoted behind the fence.
fn is_its_standby(server: &Server, identity: &Identity) -> bool {
    server.standby && server.run.engine_id == identity.engine_id
}

/// What one engine is beside one fence. The table is the module's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// The fenced server: it is shut.
    Fenced,
    /// It may be, for all that it says: it is shut.
    MayBe,
    /// Open, or shut by the other fences; it must be asked again.
    AskedOn,
    /// Another server, for all that it has ever said.
    Another,
}

/// Whether this is who the engine was by records that aren't the fence's own: then what it was when
/// nobody heard it is known, and it goes its own way.
fn is_as_recorded(said: &Server, recorded: &[Identity]) -> bool {
    let is = |identity: &Identity| is_the_fenced(said, identity) && identity.timeline.is_some();
    recorded.iter().any(is)
}

/// Whether a record in this state says who its engine is. One that is over says who it was once:
/// the name may have been given since to a standby, whose promotion has the same timeline's number
/// again. The fence's own operation has a target in service on the server that it was made on.
pub(super) const fn tells_who(state: FenceState, same_operation: bool) -> bool {
    match state {
        FenceState::SourceDraining
        | FenceState::SourceWriteFenced
        | FenceState::SourceReadDraining
        | FenceState::SourceReadFenced
        | FenceState::TargetQuarantined
        | FenceState::TargetImportDraining
        | FenceState::TargetValidating
        | FenceState::TargetWriteFenced => true,
        FenceState::TargetWritable => same_operation,
        FenceState::Released
        | FenceState::TargetAborted
        | FenceState::Unfenced
        | FenceState::Absent
        | FenceState::UnknownUnavailable => false,
    }
}

/// What is known of one engine beside one fence.
pub(super) struct Known<'a> {
    /// What it has ever said last.
    pub(super) said: Option<&'a Server>,
    /// That this is longer ago than the question that was just asked.
    pub(super) silent: bool,
    /// It was shut before it was asked.
    pub(super) shut: bool,
    /// It was a standby of the fenced server while the fence stood, or may have been one.
    pub(super) followed: bool,
    /// The fence's own engine is seen to be the one that was fenced.
    pub(super) in_place: bool,
    /// What the fence's own engine said last.
    pub(super) own: Option<&'a Server>,
}

pub(super) fn beside(identity: &Identity, known: &Known<'_>) -> Beside {
    let fenced = |said| has_the_fenced(said, identity, known.followed, known.own);
    let is_standby = known.said.is_some_and(|said| is_its_standby(said, identity));
    let may_become = is_standby || known.said.is_none();
    if known.said.is_some_and(fenced) {
        Beside::Fenced
    } else if known.silent && (known.shut || !known.in_place && may_become) {
        Beside::MayBe
    } else if may_become {
        Beside::AskedOn
    } else {
        Beside::Another
    }
}

/// Whether an engine can't be the fenced one, by its kind alone.
fn is_of_another_kind(engine: &dyn EnginePort, identity: &Identity) -> bool {
    identity.timeline.is_some() != engine.has_timelines()
}

/// Whether a fence in this state is one whose server is looked for. That of an aborted target
/// isn't: its database may be gone, and nothing would ever end this.
fn is_looked_for(state: FenceState) -> bool {
    state.is_active() && state != FenceState::TargetAborted
}

fn standing(rows: &[LoadedFence]) -> Vec<Standing> {
    let record_of = |row: &'_ LoadedFence| match row.row() {
        Row::Good(persisted) => persisted.record().cloned(),
        // Nothing can be compared; such a namespace is closed as unknown.
        Row::Absent | Row::Bad { .. } => None,
    };
    let records: Vec<_> = rows.iter().filter_map(record_of).collect();
    let beside = |fence: &FenceRecord| {
        let open = records.iter().filter(|one| one.state == FenceState::TargetWritable);
        open.filter(|one| one.operation == fence.operation && fence.role == Role::Source)
            .map(|one| one.namespace.clone())
            .collect()
    };
    let recorded = |fence: &FenceRecord| {
        let known = records.iter().filter(|one| {
            let same_operation = one.operation == fence.operation;
            let earlier = one.created_at_ms <= fence.created_at_ms;
            // A later source's record may be of the promoted standby, fenced while it was silent.
            let counts = earlier || (same_operation && one.role == Role::Target);
            one.namespace != fence.namespace && counts && tells_who(one.state, same_operation)
        });
        let named =
            |one: &FenceRecord| Some((one.namespace.engine().clone(), one.identity.clone()?));
        known.filter_map(named).collect()
    };
    let looked_for = records.iter().filter(|record| is_looked_for(record.state));
    let mut standing: Vec<_> = looked_for
        .filter_map(|record| {
            Some(Standing {
                namespace: record.namespace.clone(),
                operation: record.operation,
                identity: record.identity.clone()?,
                role: record.role,
                state: record.state,
                beside: beside(record),
                recorded: recorded(record),
            })
        })
        .collect();
    // A store has them in any order; which fence is told of shouldn't change from look to look.
    standing.sort_by(|one, other| one.namespace.cmp(&other.namespace));
    standing
}

/// Closes a gate of an engine that is shut: by what the gate itself shows. Needs no evidence.
fn close(gate: &Gate) {
    if gate.published().policy.state != FenceState::UnknownUnavailable {
        gate.close_as_unknown();
    }
}

/// Whether a session may have a write on the engine that nothing has guarded: a writer, or a read
/// that runs and may hide one. Of one that is lost no order is heard.
fn may_write(slot: &Slot) -> bool {
    slot.stamp().is_some_and(|stamp| stamp.writer || stamp.running == Running::Unguarded)
}

/// Tells sessions to roll back whose work began before their gate was closed, at a server that is
/// an acknowledged fence's.
fn roll_back(gate: &Gate) {
    if removed(Removable::DoubleRollback) {
        return;
    }
    let generation = gate.word().generation();
    for slot in gate.sessions().into_iter().filter(|slot| may_write(slot)) {
        slot.order(Order::ROLL_BACK, generation);
    }
}

impl Control {
    /// Shuts the engines that are or may be a fenced one under another name, and opens those that
    /// are seen not to be. Answers which are shut, and why.
    ///
    /// # Cancel safety
    /// Cancel safe: an engine that was to be opened is opened by the next look.
    ///
    /// # Errors
    /// [`StoreError`] when the fences can't be listed; everything stays as it is then.
    pub(super) async fn look_for_doubles(
        self: &Arc<Self>,
    ) -> Result<Arc<BTreeMap<EngineName, String>>, StoreError> {
        let mut seen = self.looking.lock().await;
        let mut fences = standing(&self.store.fence_list().await?);
        // At the start they are asked in any case, so that sessions are known to be of these runs.
        let asks = !fences.is_empty() || !self.ready();
        // One sight of the engines for the whole look: one that comes meanwhile stays shut.
        let engines = self.engines();
        let before = self.gates.shut_engines();
        let servers = if asks { self.servers(&engines).await } else { BTreeMap::new() };
        if asks {
            // Behind the answers: who was promoted since a fence went up was heard before it did.
            fences = standing(&self.store.fence_list().await?);
        }
        seen.hear(&fences, engines.keys().filter(|_| asks), &servers);
        seen.keep_configured(&engines);
        seen.news = false;
        let answers = Answers { servers: &servers, shut: &before };
        let findings = self.doubles(&fences, &engines, answers, &mut seen).await;
        let found: BTreeMap<_, _> =
            findings.shut.iter().map(|(engine, (_, why))| (engine.clone(), why.clone())).collect();
        for (engine, why) in found.iter().filter(|(engine, why)| before.get(*engine) != Some(why)) {
            tracing::error!(%engine, "{why}");
        }
        self.gates.shut_as(|current| {
            let newer = current.iter().filter(|(engine, _)| !engines.contains_key(*engine));
            newer.chain(&found).map(|(engine, why)| (engine.clone(), why.clone())).collect()
        });
        let now = self.gates.shut_engines();
        let gates = self.gates.all();
        let is_shut = |gate: &Gate| now.contains_key(gate.namespace().engine());
        gates.iter().filter(|gate| is_shut(gate)).for_each(|gate| close(gate));
        self.roll_back_behind(&fences, findings.doubled);
        for gate in gates.iter().filter(|gate| !is_shut(gate)) {
            if let Some(why) = before.get(gate.namespace().engine()) {
                self.open_again(gate.namespace(), why).await;
            }
        }
        Ok(self.gates.shut_engines())
    }

    /// Publishes where fences' servers were found, whose gates are closed by now, and has open work
    /// there rolled back behind those that are acknowledged.
    fn roll_back_behind(&self, fences: &[Standing], doubled: BTreeMap<Namespace, Doubled>) {
        // Before it is looked who is acknowledged: a drain that is proven meanwhile publishes that
        // first, and looks here then.
        self.at_doubles.0.store(Arc::new(doubled));
        for fence in fences {
            if is_source_fenced(fence.state) || self.is_acknowledged_now(&fence.namespace) {
                self.roll_back_at_doubles(&fence.namespace, |one| one == fence.operation);
            }
        }
    }

    fn is_acknowledged_now(&self, namespace: &Namespace) -> bool {
        let gate = self.gates.known(namespace);
        gate.is_some_and(|gate| is_source_fenced(gate.published().policy.state))
    }

    /// What may still write at engines that the last look has found to be this source fence's
    /// server is told to roll back. For an acknowledged fence only, and one of these operations,
    /// which have had it one after the other. Proves nothing.
    pub(super) fn roll_back_at_doubles(
        &self,
        fence: &Namespace,
        is_its: impl Fn(OperationId) -> bool,
    ) {
        let at_doubles = self.at_doubles.0.load();
        let found = at_doubles.get(fence).filter(|found| is_its(found.operation));
        let Some(doubled) = found else { return };
        for gate in self.gates.all() {
            if doubled.reaches(gate.namespace()) {
                roll_back(&gate);
            }
        }
    }

    /// Publishes what the store knows of a namespace whose engine isn't shut any more. Where that
    /// can't be read the engine stays shut, so that the next look tries again.
    async fn open_again(&self, namespace: &Namespace, why: &str) {
        let line = self.line(namespace);
        let _turn = line.transition.lock().await;
        // A commit that isn't known keeps the gate closed until its command is replayed.
        if line.pending().is_some() {
            return;
        }
        match self.truth(namespace, false).await {
            Ok(truth) => self.publish_truth(&line, &truth).await,
            Err(error) => {
                tracing::warn!(%namespace, %error, "it stays closed until the store can be read");
                self.gates.shut_as(|current| {
                    let mut next = current.clone();
                    next.insert(namespace.engine().clone(), why.to_owned());
                    next
                });
            }
        }
    }

    async fn doubles(
        &self,
        fences: &[Standing],
        engines: &Engines,
        Answers { servers, shut }: Answers<'_>,
        seen: &mut Seen,
    ) -> Findings {
        let mut found = Findings::default();
        seen.unanswered.clear();
        for fence in fences {
            let (own, identity) = (fence.namespace.engine(), &fence.identity);
            let in_place = match (engines.get(own), servers.get(own)) {
                (Some(engine), Some(server)) if is_the_fenced(server, identity) => {
                    match bounded(own, engine.identity(&fence.namespace)).await {
                        Some(LiveDatabase::Exists(live)) => identity.is_met_by(&live),
                        Some(LiveDatabase::Missing) | None => false,
                    }
                }
                (_, _) => false,
            };
            for (name, engine) in engines {
                if name == own || is_of_another_kind(engine.as_ref(), identity) {
                    continue;
                }
                let known = Known {
                    silent: !servers.contains_key(name),
                    shut: shut.contains_key(name),
                    in_place,
                    ..seen.known(name, fence)
                };
                match beside(identity, &known) {
                    Beside::Fenced => {
                        let why = seen.why_fenced(name, fence);
                        found.is_fenced(name, fence, why);
                    }
                    Beside::MayBe => {
                        let said = known.said;
                        let may = said.is_none_or(|said| is_its_standby(said, identity));
                        let weight = if may { Weight::MayBe } else { Weight::ShutBefore };
                        let why = may_be_double(name, fence, (in_place, said));
                        keep(&mut found.shut, name, weight, why);
                    }
                    Beside::AskedOn => {
                        seen.unanswered.insert(name.clone());
                    }
                    Beside::Another => {}
                }
            }
        }
        seen.unanswered.retain(|name| !found.shut.contains_key(name));
        found
    }

    /// Whether it must be looked again: an engine is shut, hasn't answered, or may be promoted; a
    /// fence went up; or while one stands an engine says by now that it is another server than
    /// before.
    pub(super) async fn must_look(self: &Arc<Self>) -> bool {
        if !self.gates.shut_engines().is_empty() || self.looking.lock().await.news {
            return true;
        }
        let gates = self.gates.all();
        if !gates.iter().any(|gate| is_looked_for(gate.published().policy.state)) {
            return !self.looking.lock().await.unanswered.is_empty();
        }
        let engines = self.engines();
        // With one engine of each kind there is no other name that it could have.
        let of_kind = |kind| engines.values().filter(|one| one.has_timelines() == kind).count();
        if of_kind(true) < 2 && of_kind(false) < 2 {
            return false;
        }
        {
            let seen = self.looking.lock().await;
            let may_be_promoted = |name| seen.last.get(name).is_none_or(|last| last.standby);
            if !seen.unanswered.is_empty() || engines.keys().any(may_be_promoted) {
                return true;
            }
        }
        let now = self.servers(&engines).await;
        let seen = self.looking.lock().await;
        let same =
            |one: &Server, was: &Server| is_one(&one.run, &was.run) && one.standby == was.standby;
        now.iter().any(|(name, one)| !seen.last.get(name).is_some_and(|was| same(one, was)))
    }

    /// Which server each engine is, as far as they say so in time. All are asked at once.
    async fn servers(self: &Arc<Self>, engines: &Engines) -> BTreeMap<EngineName, Server> {
        let ask = |(name, engine): (EngineName, Arc<dyn EnginePort>)| {
            let control = Arc::clone(self);
            spawn_named("engine-look", async move {
                let server = bounded(&name, control.server_of(&name, engine.as_ref())).await;
                server.map(|server| (name, server))
            })
        };
        let named = engines.iter().map(|(name, engine)| (name.clone(), Arc::clone(engine)));
        let asked: Vec<_> = named.map(ask).collect();
        let mut servers = BTreeMap::new();
        for answer in asked {
            // One that died has said nothing.
            servers.extend(answer.await.ok().flatten());
        }
        servers
    }

    /// Replaces the engines; drains and locks that run keep theirs. While a source fence stands, a
    /// new engine is shut until it has said which server it is, with all gates of its name; then
    /// the locks of fences whose engine is there again are taken.
    pub fn replace_engines(self: &Arc<Self>, engines: Engines) {
        let old = self.engines();
        let fenced = self.gates.all().iter().any(|gate| gate.published().policy.state.is_active());
        self.gates.shut_as(|current| {
            let mut shut = current.clone();
            for name in engines.keys().filter(|name| fenced && !old.contains_key(*name)) {
                let why = format!("engine {name} is new, and is being asked which server it is");
                shut.insert(name.clone(), why);
            }
            shut
        });
        // The name may have gates, of a fence that is over or of an earlier engine; those that are
        // made from here on start closed.
        let shut = self.gates.shut_engines();
        let mut gates = self.gates.all();
        // What an earlier engine of a name has said of databases isn't said of the new one's.
        for gate in gates.iter().filter(|gate| !old.contains_key(gate.namespace().engine())) {
            gate.set_gone(false);
        }
        gates.retain(|gate| shut.contains_key(gate.namespace().engine()));
        gates.iter().for_each(|gate| close(gate));
        self.store_engines(engines);
        let control = Arc::clone(self);
        drop(spawn_named("engines-replaced", async move { control.take_up_engines().await }));
    }

    async fn take_up_engines(self: &Arc<Self>) {
        if let Err(error) = self.look_for_doubles().await {
            tracing::warn!(%error, "engines that are new stay shut until the store can be read");
        }
        for gate in self.gates.all() {
            // Every fence has one since it was read or commanded.
            let Some(line) = self.known_line(gate.namespace()) else {
                continue;
            };
            let _turn = line.transition.lock().await;
            if let Ok(truth) = self.truth(gate.namespace(), false).await {
                self.hold_lock(&line, truth.view.record());
            }
        }
    }
}
