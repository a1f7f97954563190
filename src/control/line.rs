//! The line of commands before one namespace.
//!
//! Purpose: what a command must know of its neighbours: the transition lock, the commit that isn't
//! known to have landed, the commands in work (for those that join), the drains that run, and the
//! cutoff taken since the gate closed. Process memory only; everything durable is in the store.
//!
//! Invariants: 10, 11. Callers: `control` alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::answer::{Answer, DrainReport};
use super::port::Observation;
use crate::base::arm::{Removable, removed};
use crate::base::ids::{Generation, Namespace, Revision};
use crate::base::limits;
use crate::fence::code::Detail;
use crate::fence::command::CommandKey;
use crate::fence::receipt::Fingerprint;

/// Where those who joined a command wait for its answer.
pub(super) type Awaited = watch::Receiver<Option<Arc<Answer>>>;

/// The exact request that a pending commit belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Request {
    pub(super) key: CommandKey,
    pub(super) fingerprint: Fingerprint,
}

#[derive(Default)]
struct Inner {
    pending: Option<Request>,
    unavailable: Option<(Detail, String)>,
    in_work: HashMap<Request, Awaited>,
    drains: HashMap<CommandKey, DrainReport>,
    cutoff: Option<(Generation, Arc<dyn Observation>)>,
    /// What the last drain that was answered without a proof had found, under this revision.
    unproven: Option<(Revision, DrainReport)>,
    /// Since when the fence is active, in milliseconds since the Unix epoch.
    active_since_ms: Option<u64>,
}

/// One namespace's line.
pub(super) struct Line {
    pub(super) namespace: Namespace,
    /// Held from reading the store to publishing what was committed; never while a drain waits.
    pub(super) transition: tokio::sync::Mutex<()>,
    /// The revision last published here: a drain that sees it move was superseded.
    published: watch::Sender<Revision>,
    /// Guards plain maps and options, each changed in one step; never held across an await.
    inner: Mutex<Inner>,
}

/// The place of one drain among those that run. Dropping it ends what is shown of the drain, also
/// where its task dies.
pub(super) struct DrainPlace<'a> {
    line: &'a Line,
    command: CommandKey,
}

impl Drop for DrainPlace<'_> {
    fn drop(&mut self) {
        self.line.inner().drains.remove(&self.command);
    }
}

/// What became of somebody who came with a command.
pub(super) enum Entered {
    /// The same request is in work: wait for its answer.
    Joined(Awaited),
    /// It is in work now, under this sender.
    First(watch::Sender<Option<Arc<Answer>>>, Awaited),
    /// Too many are in work.
    Full,
}

impl Line {
    pub(super) fn new(namespace: Namespace) -> Self {
        Self {
            namespace,
            transition: tokio::sync::Mutex::new(()),
            published: watch::Sender::new(Revision(0)),
            inner: Mutex::new(Inner::default()),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Every critical section below is a single change, so a panic can't leave it half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Comes with a request: joins its like, or is the first.
    pub(super) fn enter(&self, request: Request) -> Entered {
        let mut inner = self.inner();
        if let Some(awaited) = inner.in_work.get(&request) {
            return Entered::Joined(awaited.clone());
        }
        if inner.in_work.len() >= limits::COMMANDS_IN_WORK_MAX {
            return Entered::Full;
        }
        let (answer, awaited) = watch::channel(None);
        inner.in_work.insert(request, awaited.clone());
        Entered::First(answer, awaited)
    }

    pub(super) fn leave(&self, request: &Request) {
        self.inner().in_work.remove(request);
    }

    pub(super) fn pending(&self) -> Option<Request> {
        self.inner().pending
    }

    pub(super) fn set_pending(&self, pending: Option<Request>) {
        self.inner().pending = pending;
    }

    pub(super) fn unavailable(&self) -> Option<(Detail, String)> {
        self.inner().unavailable.clone()
    }

    pub(super) fn set_unavailable(&self, why: Option<(Detail, String)>) {
        self.inner().unavailable = why;
    }

    pub(super) fn active_since_ms(&self) -> Option<u64> {
        self.inner().active_since_ms
    }

    pub(super) fn set_active_since_ms(&self, since: Option<u64>) {
        self.inner().active_since_ms = since;
    }

    /// Tells running drains which revision is in force.
    pub(super) fn publish(&self, revision: Revision) {
        self.published.send_replace(revision);
    }

    pub(super) fn follow(&self) -> watch::Receiver<Revision> {
        self.published.subscribe()
    }

    /// The cutoff taken under this generation, if there is one.
    pub(super) fn cutoff(&self, generation: Generation) -> Option<Arc<dyn Observation>> {
        let inner = self.inner();
        let any = removed(Removable::CutoffGeneration);
        inner
            .cutoff
            .as_ref()
            .filter(|(of, _)| any || *of == generation)
            .map(|(_, seen)| Arc::clone(seen))
    }

    pub(super) fn set_cutoff(&self, cutoff: Option<(Generation, Arc<dyn Observation>)>) {
        self.inner().cutoff = cutoff;
    }

    /// Shows a drain's progress.
    pub(super) fn show_drain(&self, command: CommandKey, report: DrainReport) {
        self.inner().drains.insert(command, report);
    }

    /// The place of a drain among those that run, for as long as it does.
    pub(super) fn drain_place(&self, command: CommandKey) -> DrainPlace<'_> {
        DrainPlace { line: self, command }
    }

    /// Keeps what a drain of this revision had found when it was answered without a proof.
    pub(super) fn keep_unproven(&self, revision: Revision, report: DrainReport) {
        self.inner().unproven = Some((revision, report));
    }

    /// What was found last under this revision, where no drain has proven anything since.
    pub(super) fn unproven(&self, revision: Revision) -> Option<DrainReport> {
        let inner = self.inner();
        inner.unproven.as_ref().filter(|(of, _)| *of == revision).map(|(_, seen)| seen.clone())
    }

    /// The drain that is furthest towards its deadline's end, where several run; how many run.
    pub(super) fn drain(&self) -> (Option<DrainReport>, usize) {
        let inner = self.inner();
        let latest = inner.drains.values().max_by_key(|report| report.deadline_at_ms).cloned();
        (latest, inner.drains.len())
    }
}
