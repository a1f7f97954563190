//! Deciding what blocks: pure, over rows that `census` has read.
//!
//! Purpose: one place for the rules of the census, testable without an engine. Whatever is not
//! understood blocks.
//!
//! Who is left out, and why that is safe:
//! - our own control connections, by pid and start time: they run only the statements of this
//!   module, of which none changes a table;
//! - autovacuum workers: they remove versions that nobody can see and write statistics; what a
//!   client reads stays the same. (Functions of expression indexes run inside an ANALYZE, with the
//!   owner's rights; one that writes is beyond the census, and the engine lock stops it.)
//! - backends of other databases, and of none (launchers, writers, archiver): they can't reach
//!   this database's tables;
//! - the operation's own backends and slots, by identity, as the caller names them.
//!
//! Not left out: logical replication workers, background workers of extensions, walsenders that
//! run SQL. Parallel workers are folded into their leader.

use std::collections::{HashMap, HashSet};

use crate::base::arm::{Removable, removed};
use crate::base::ids::SessionId;
use crate::engine::census::{
    Blocker, CensusClear, CensusCounts, CensusOutcome, Cutoff, Orphan, ProxySession, ProxyView, Why,
};
use crate::engine::identity::{BackendKey, EngineTime, LiveIdentity};

/// One row about a backend.
#[derive(Debug, Clone, Default)]
pub(super) struct Backend {
    pub(super) pid: i32,
    pub(super) leader_pid: Option<i32>,
    pub(super) backend_start: Option<EngineTime>,
    pub(super) backend_type: String,
    pub(super) in_database: bool,
    pub(super) user: String,
    pub(super) application_name: String,
    pub(super) client: String,
    pub(super) state: String,
    pub(super) wait: Option<String>,
    pub(super) xact_start: Option<EngineTime>,
    pub(super) statement: String,
    pub(super) has_xid: bool,
    pub(super) write_locks: bool,
    pub(super) streaming: bool,
    pub(super) slot: Option<String>,
    pub(super) own: bool,
}

/// One prepared transaction of this database.
#[derive(Debug, Clone)]
pub(super) struct Prepared {
    pub(super) gid: String,
    pub(super) owner: String,
    pub(super) at: EngineTime,
}

/// Everything that one census read.
#[derive(Debug, Clone, Default)]
pub(super) struct Observed {
    /// Virtual transaction ids of the whole server, with the backend that runs each.
    pub(super) transactions: Vec<(String, i32)>,
    pub(super) backends: HashMap<i32, Backend>,
    pub(super) prepared: Vec<Prepared>,
}

impl Observed {
    /// The leader of a parallel worker, otherwise the pid itself.
    fn owner(&self, pid: i32) -> i32 {
        let leader = self.backends.get(&pid).and_then(|b| b.leader_pid);
        leader.filter(|l| self.backends.contains_key(l)).unwrap_or(pid)
    }

    /// Transactions of this database that count; one whose backend isn't described counts too.
    pub(super) fn open_transactions(&self) -> Vec<(&str, i32, Option<&Backend>)> {
        let counted = |pid: i32| match self.backends.get(&self.owner(pid)) {
            None => true,
            Some(b) => b.in_database && !b.own && !is_maintenance(b),
        };
        self.transactions
            .iter()
            .filter(|(_, pid)| counted(*pid))
            .map(|(transaction, pid)| {
                let owner = self.owner(*pid);
                (transaction.as_str(), *pid, self.backends.get(&owner))
            })
            .collect()
    }
}

/// Kinds of backends that belong to a database and can't change what a client reads there.
fn is_maintenance(backend: &Backend) -> bool {
    matches!(backend.backend_type.as_str(), "autovacuum worker" | "autovacuum launcher")
}

fn is_operation(backend: &Backend, view: &ProxyView) -> bool {
    let key = backend.backend_start.map(|s| BackendKey { pid: backend.pid, backend_start: s });
    key.is_some_and(|key| view.operation_backends.contains(&key))
        || (backend.streaming
            && backend.slot.as_ref().is_some_and(|s| view.operation_slots.contains(s)))
}

/// The orphan that a row shows to be still there. Gone is what is absent, or what the pid can no
/// longer be: a backend never changes its database, a pid of a live session is that session's, and
/// another start time is another process.
fn orphan_at<'v>(backend: &Backend, view: &'v ProxyView) -> Option<&'v Orphan> {
    if !backend.in_database && !backend.backend_type.is_empty() {
        return None;
    }
    view.orphans.iter().find(|orphan| {
        orphan.pid == backend.pid
            && !view.sessions.contains_key(&orphan.pid)
            && orphan.backend_start.is_none_or(|start| backend.backend_start == Some(start))
    })
}

/// What is known of one backend with its parallel workers.
#[derive(Default, Clone, Copy)]
struct Facts {
    in_transaction: bool,
    open_at_cutoff: bool,
    writing: bool,
}

/// Applies the rules. Identity has been compared with the cutoff's by the caller.
pub(super) fn judge(
    cutoff: &Cutoff,
    view: &ProxyView,
    observed: &Observed,
    identity: LiveIdentity,
    now: EngineTime,
) -> CensusOutcome {
    let mut counts = CensusCounts { cutoff: cutoff.entries.len(), ..CensusCounts::default() };
    let mut blockers = Vec::new();
    let (facts, unknown) = gather(cutoff, observed);
    blockers.extend(unknown.into_iter().map(|pid| stranger(pid, view)));
    let mut orphans_left = 0;
    let mut backends: Vec<&Backend> = observed.backends.values().collect();
    backends.sort_by_key(|b| (b.xact_start.is_none(), b.xact_start, b.pid));
    for backend in backends {
        let orphan = orphan_at(backend, view);
        orphans_left += usize::from(orphan.is_some());
        let counted = backend.in_database || orphan.is_some();
        if !counted || backend.own || observed.owner(backend.pid) != backend.pid {
            continue;
        }
        let known = facts.get(&backend.pid).copied().unwrap_or_default();
        let session = view.sessions.get(&backend.pid);
        let why = match orphan {
            Some(_) => Some(Why::Orphan),
            None if is_maintenance(backend) => {
                counts.maintenance += 1;
                None
            }
            None if is_operation(backend, view) => {
                counts.operation += 1;
                None
            }
            None => match session {
                Some(session) => proxied(backend, *session, known, &mut counts),
                None => direct(backend, view, known, &mut counts),
            },
        };
        if let Some(why) = why {
            let session = orphan.map(|o| o.session).or(session.map(|s| s.session));
            blockers.push(blocker(backend, session, why, now));
        }
    }
    counts.orphans_gone = view.orphans.len().saturating_sub(orphans_left);
    if removed(Removable::Census) {
        blockers.clear();
    }
    if !removed(Removable::PreparedCheck) {
        blockers.extend(observed.prepared.iter().map(|p| prepared(p, now)));
    }
    if !blockers.is_empty() {
        return CensusOutcome::Residue(blockers);
    }
    CensusOutcome::Clear(CensusClear {
        namespace: cutoff.namespace.clone(),
        identity,
        cutoff_at: cutoff.at,
        at: now,
        counts,
        blind: None,
    })
}

/// Facts by owner, and the pids that run a transaction of the cutoff and aren't described.
fn gather(cutoff: &Cutoff, observed: &Observed) -> (HashMap<i32, Facts>, Vec<i32>) {
    let old: HashSet<&str> = cutoff.entries.iter().map(|e| e.transaction.as_str()).collect();
    let mut facts: HashMap<i32, Facts> = HashMap::new();
    let mut unknown = Vec::new();
    for (transaction, pid) in &observed.transactions {
        let fact = facts.entry(observed.owner(*pid)).or_default();
        fact.in_transaction = true;
        fact.open_at_cutoff |= old.contains(transaction.as_str());
        if old.contains(transaction.as_str()) && !observed.backends.contains_key(pid) {
            unknown.push(*pid);
        }
    }
    for backend in observed.backends.values() {
        let fact = facts.entry(observed.owner(backend.pid)).or_default();
        fact.writing |= backend.has_xid || backend.write_locks;
        // `active` without a transaction is a statement about to begin; `disabled` and empty tell
        // nothing, there the transaction id alone decides.
        let busy = !matches!(backend.state.as_str(), "idle" | "disabled" | "");
        fact.in_transaction |= backend.xact_start.is_some() || (busy && !backend.streaming);
    }
    (facts, unknown)
}

fn proxied(
    backend: &Backend,
    session: ProxySession,
    known: Facts,
    counts: &mut CensusCounts,
) -> Option<Why> {
    counts.proxied += 1;
    // A session that runs nothing, by the proxy's count, can't be in a transaction from before the
    // cutoff: the count is wrong then, and the engine is right.
    if (session.is_writer || !session.in_program) && known.open_at_cutoff {
        Some(Why::OpenAtCutoff)
    } else if known.writing {
        Some(Why::Writing)
    } else if session.is_writer
        && (session.in_program || known.in_transaction || backend.state == "active")
    {
        Some(Why::ProxyWriter)
    } else {
        counts.readers_exempt += usize::from(known.open_at_cutoff);
        None
    }
}

fn direct(
    backend: &Backend,
    view: &ProxyView,
    known: Facts,
    counts: &mut CensusCounts,
) -> Option<Why> {
    if known.open_at_cutoff {
        Some(Why::OpenAtCutoff)
    } else if known.writing {
        Some(Why::Writing)
    } else if known.in_transaction {
        Some(Why::DirectInTransaction)
    } else if view.sole_path_required {
        Some(Why::DirectIdle)
    } else {
        counts.streams += usize::from(backend.streaming);
        counts.direct_idle += usize::from(!backend.streaming);
        None
    }
}

pub(super) fn blocker(
    backend: &Backend,
    session: Option<SessionId>,
    why: Why,
    now: EngineTime,
) -> Blocker {
    Blocker {
        session,
        pid: Some(backend.pid),
        backend_start: backend.backend_start,
        backend_type: backend.backend_type.clone(),
        user: backend.user.clone(),
        application_name: backend.application_name.clone(),
        client: backend.client.clone(),
        state: backend.state.clone(),
        wait: backend.wait.clone(),
        why,
        age_ms: backend.xact_start.or(backend.backend_start).map(|start| now.ms_since(start)),
        statement: backend.statement.clone(),
        object: None,
    }
}

fn stranger(pid: i32, view: &ProxyView) -> Blocker {
    let session = view.sessions.get(&pid).map(|s| s.session);
    let backend = Backend { pid, state: "ending".to_owned(), ..Backend::default() };
    blocker(&backend, session, Why::OpenAtCutoff, EngineTime(0))
}

pub(super) fn prepared(prepared: &Prepared, now: EngineTime) -> Blocker {
    let backend = Backend {
        backend_type: "prepared transaction".to_owned(),
        user: prepared.owner.clone(),
        state: "prepared".to_owned(),
        xact_start: Some(prepared.at),
        ..Backend::default()
    };
    let named = blocker(&backend, None, Why::Prepared, now);
    Blocker { pid: None, object: Some(prepared.gid.clone()), ..named }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
