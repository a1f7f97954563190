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
//! it says by now that it is who a record of it says (of the fence's operation, or of before the
//! fence; not an aborted target's): then what it was is known.
//!
//! Transactions that write at an engine that is found to be the fenced server are rolled back: they
//! began between its promotion and the look. Where it only may be, they may end by themselves.
//!
//! Of several fences that shut an engine the one that is told is the one that it is, or may be by
//! its own word; only shut before, and silent, it may be of any.
//!
//! Callers: `control/recovery.rs` before listeners open, `control/orphans.rs` now and then while an
//! engine is shut or a fence stands, `control/fences/turn.rs` before a fence goes up, `app` after a
//! reload. Closing needs no evidence; opening takes the engine's own word, or the end of the fence.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::fences::{Control, Engines};
use super::notes::listed;
use super::port::{EnginePort, LiveDatabase, Server};
use crate::base::arm::{Removable, removed};
use crate::base::ids::{EngineName, Namespace};
use crate::base::limits;
use crate::base::run::EngineRun;
use crate::fence::record::{FenceRecord, Identity};
use crate::fence::state::{FenceState, Role};
use crate::gate::registry::Gate;
use crate::gate::slot::Order;
use crate::store::{LoadedFence, Row, StoreError};
use crate::telemetry::spawn::spawn_named;

/// A fence that stands, and the database it was acquired on; or a target, and the one that was made
/// for it.
struct Standing {
    namespace: Namespace,
    identity: Identity,
    /// Targets of the same operation that take writes: a release would have both do.
    beside: Vec<Namespace>,
    /// Who engines were by other records: the same operation's, and those of before this fence.
    recorded: Vec<(EngineName, Identity)>,
}

/// Why an engine is followed behind a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Followed {
    /// It was a standby of the fence's server while that fence stood.
    Standby,
    /// It had said nothing when that fence went up or was first looked at; what it was then nobody
    /// knows.
    Unheard,
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
        for Standing { namespace, identity, .. } in fences {
            for name in &self.unheard {
                let pair = (name.clone(), namespace.clone());
                self.followed.entry(pair).or_insert(Followed::Unheard);
            }
            let standbys = self.last.iter().filter(|(_, last)| is_its_standby(last, identity));
            let pairs = standbys.map(|(name, _)| (name.clone(), namespace.clone()));
            self.followed.extend(pairs.map(|pair| (pair, Followed::Standby)));
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

/// Whether this is who the engine was by a record that isn't the fence's own: then what it was when
/// nobody heard it is known, and it goes its own way.
fn is_as_recorded(name: &EngineName, said: &Server, fence: &Standing) -> bool {
    let is = |identity: &Identity| is_the_fenced(said, identity) && identity.timeline.is_some();
    fence.recorded.iter().any(|(engine, identity)| engine == name && is(identity))
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
        let others = records.iter().filter(|one| one.state != FenceState::TargetAborted);
        let known = others.filter(|one| {
            let earlier = one.created_at_ms <= fence.created_at_ms;
            one.namespace != fence.namespace && (earlier || one.operation == fence.operation)
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
                identity: record.identity.clone()?,
                beside: beside(record),
                recorded: recorded(record),
            })
        })
        .collect();
    // A store has them in any order; which fence is told of shouldn't change from look to look.
    standing.sort_by(|one, other| one.namespace.cmp(&other.namespace));
    standing
}

/// What ends a fence that shuts another engine; not where that would have two sides take writes.
fn way_out(fence: &Standing) -> String {
    let fenced = &fence.namespace;
    if fence.beside.is_empty() {
        return format!(
            "release the fence of {fenced} first (a target: enable its writes, or abort it)"
        );
    }
    format!(
        "take the engine out of the settings. Don't release the fence of {fenced} for it: its \
         operation has enabled writes of {}, and both would take writes",
        listed(&fence.beside)
    )
}

/// Closes a gate of an engine that is shut: by what the gate itself shows. Needs no evidence.
fn close(gate: &Gate) {
    if gate.published().policy.state != FenceState::UnknownUnavailable {
        gate.close_as_unknown();
    }
}

/// Has transactions that write rolled back which began before this server was seen to be a fenced
/// one: the fence is acknowledged, and none of them may commit.
fn roll_back_writers(gate: &Gate) {
    let generation = gate.word().generation();
    let writers = gate.sessions().into_iter();
    for slot in writers.filter(|slot| slot.stamp().is_some_and(|stamp| stamp.writer)) {
        slot.order(Order::ROLL_BACK, generation);
    }
}

fn is_double(engine: &EngineName, fence: &Standing) -> String {
    let Standing { namespace: fenced, identity, .. } = fence;
    let timeline =
        identity.timeline.map_or_else(String::new, |number| format!(", timeline {number}"));
    format!(
        "engine {engine} is the server that {fenced} was fenced on ({}{timeline}): it is there \
         under another name now. Nothing is admitted on {engine} while that fence stands. Put the \
         urls back under the names they had and restart, or {}",
        identity.engine_id,
        way_out(fence)
    )
}

/// As [`is_double`], of an engine that may be promoted or forked for all that was heard of it.
fn may_be_promoted(engine: &EngineName, fence: &Standing) -> String {
    let Standing { namespace: fenced, identity, .. } = fence;
    format!(
        "engine {engine} has the id of the server that {fenced} was fenced on ({}) and a later \
         timeline, and had said nothing yet when that fence went up, or when this process first \
         looked at it: it may have been a standby, and promoted since. Nothing is admitted on \
         {engine} while that fence stands. If it was made from that server before the fence, and \
         is no promoted standby, restart the proxy while {engine} answers; or {}",
        identity.engine_id,
        way_out(fence)
    )
}

fn may_be_double(
    engine: &EngineName,
    fence: &Standing,
    (in_place, said): (bool, Option<&Server>),
) -> String {
    let fenced = &fence.namespace;
    let own = fenced.engine();
    let standby = said.is_some_and(|said| is_its_standby(said, &fence.identity));
    let may_be = if standby {
        format!(
            "was a standby of the server that {fenced} was fenced on, and may be promoted by now"
        )
    } else {
        format!("may be the server that {fenced} was fenced on, under another name")
    };
    let (unseen, whose) = if in_place {
        (String::new(), "its control connection")
    } else {
        let unseen = format!("engine {own} is not seen to be that server now, and ");
        (unseen, "the control connections of both")
    };
    format!(
        "engine {engine} {may_be}: {unseen}engine {engine} does not answer its control \
         connection. Nothing is admitted on {engine} until it says which server it is. See to \
         {whose}, or {}",
        way_out(fence)
    )
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
        let found = self.doubles(&fences, &engines, answers, &mut seen).await;
        let is_fenced = |engine: &EngineName| {
            found.get(engine).is_some_and(|(weight, _)| *weight == Weight::Fenced)
        };
        let found: BTreeMap<_, _> =
            found.iter().map(|(engine, (_, why))| (engine.clone(), why.clone())).collect();
        for (engine, why) in found.iter().filter(|(engine, why)| before.get(*engine) != Some(why)) {
            tracing::error!(%engine, "{why}");
        }
        self.gates.shut_as(|current| {
            let newer = current.iter().filter(|(engine, _)| !engines.contains_key(*engine));
            newer.chain(&found).map(|(engine, why)| (engine.clone(), why.clone())).collect()
        });
        let now = self.gates.shut_engines();
        for gate in self.gates.all() {
            let engine = gate.namespace().engine();
            if now.contains_key(engine) {
                close(&gate);
                if is_fenced(engine) {
                    roll_back_writers(&gate);
                }
            } else if let Some(why) = before.get(engine) {
                self.open_again(gate.namespace(), why).await;
            }
        }
        Ok(self.gates.shut_engines())
    }

    /// Before a fence goes up: asks who is a standby of the server that it will stand on, so that
    /// one that is promoted behind it is known, and one that was promoted before is another server.
    /// Takes two seconds per question at most, and up to two more while a look is under way.
    ///
    /// # Cancel safety
    /// Cancel safe.
    ///
    /// # Errors
    /// [`StoreError`] when the fences that stand can't be listed; nothing was heard then.
    pub(super) async fn hear_of_standbys(
        self: &Arc<Self>,
        namespace: &Namespace,
    ) -> Result<(), StoreError> {
        let mut engines = self.engines();
        let Some(kind) = engines.get(namespace.engine()).map(|own| own.has_timelines()) else {
            return Ok(());
        };
        engines.retain(|_, engine| engine.has_timelines() == kind);
        if engines.len() < 2 {
            return Ok(());
        }
        let servers = self.servers(&engines).await;
        let patience = Duration::from_millis(limits::RECOVERY_SERVER_MS);
        // Whoever looks so long has asked them by itself, and its words count.
        if let Ok(mut seen) = tokio::time::timeout(patience, self.looking.lock()).await {
            // Behind the answers, as in a look.
            let fences = standing(&self.store.fence_list().await?);
            seen.hear(&fences, engines.keys(), &servers);
            seen.news = true;
        }
        Ok(())
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
    ) -> Found {
        let mut found = Found::new();
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
                let (said, at) = (seen.last.get(name), seen.last.get(own));
                let followed = seen.followed.get(&(name.clone(), fence.namespace.clone()));
                let recorded = said.is_some_and(|said| is_as_recorded(name, said, fence));
                let followed = followed.filter(|why| **why != Followed::Unheard || !recorded);
                let known = Known {
                    said,
                    silent: !servers.contains_key(name),
                    shut: shut.contains_key(name),
                    followed: followed.is_some(),
                    in_place,
                    own: at,
                };
                match beside(identity, &known) {
                    Beside::Fenced => {
                        let is = said.is_some_and(|said| has_the_fenced(said, identity, false, at));
                        let unheard = followed == Some(&Followed::Unheard) && !is;
                        let tell = if unheard { may_be_promoted } else { is_double };
                        keep(&mut found, name, Weight::Fenced, tell(name, fence));
                    }
                    Beside::MayBe => {
                        let may = said.is_none_or(|said| is_its_standby(said, identity));
                        let weight = if may { Weight::MayBe } else { Weight::ShutBefore };
                        let why = may_be_double(name, fence, (in_place, said));
                        keep(&mut found, name, weight, why);
                    }
                    Beside::AskedOn => {
                        seen.unanswered.insert(name.clone());
                    }
                    Beside::Another => {}
                }
            }
        }
        seen.unanswered.retain(|name| !found.contains_key(name));
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
