//! Deciding what blocks on MySQL and MariaDB: pure, over rows that `census` has read.
//!
//! Purpose: one place for the rules of the census, testable without an engine; the twin of
//! `postgres::judge`. Whatever is not understood blocks.
//!
//! A session belongs to the namespace when its default schema is it, when the proxy or an orphan
//! says so, or when it has a lock on one of its tables. Sessions with another default schema can
//! write here too; where the engine doesn't show their table locks (MariaDB without the
//! `metadata_lock_info` plugin) this census doesn't see them, and the engine lock alone does.
//! Behind an import's seal that lock is given back. So whoever has been running something since
//! before this process was there counts then, whatever its schema: an earlier process may have
//! admitted it to the import, and its next statement may write here.
//!
//! Who is left out, and why that is safe: our own threads, by id and run; the server's daemons,
//! which are no sessions; replication's senders, which only read the log (counted as streams); the
//! operation's own threads, as the caller names them; sessions of the proxy's at other schemas that
//! only keep tables locked for reading: their next program is admitted at the gate.

use std::collections::HashMap;

use super::value::{key, of_key};
use crate::base::arm::{Removable, removed};
use crate::base::ids::SessionId;
use crate::engine::census::{
    Blocker, CensusClear, CensusCounts, CensusOutcome, Cutoff, Orphan, ProxySession, ProxyView, Why,
};
use crate::engine::identity::{BackendKey, EngineTime, LiveIdentity};

/// The strongest lock that a thread has on a table of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum TableLock {
    #[default]
    None,
    Read,
    Write,
}

/// One transaction of the engine's cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Transaction {
    /// The engine's own name of it.
    pub(super) name: String,
    pub(super) began: EngineTime,
    pub(super) rolling_back: bool,
}

/// One thread with what is known about its transaction.
#[derive(Debug, Clone, Default)]
pub(super) struct Thread {
    pub(super) id: u32,
    pub(super) user: String,
    pub(super) client: String,
    pub(super) schema: Option<String>,
    pub(super) command: String,
    pub(super) state: String,
    pub(super) statement: String,
    pub(super) transaction: Option<Transaction>,
    pub(super) lock: TableLock,
    /// The first table of the schema on which it has that lock.
    pub(super) table: Option<String>,
    pub(super) own: bool,
    /// It has been busy since before this process was there.
    pub(super) elder: bool,
}

/// One prepared XA branch that isn't shown to belong elsewhere.
#[derive(Debug, Clone)]
pub(super) struct Prepared {
    pub(super) xid: String,
}

/// Everything that one census read.
#[derive(Debug, Clone, Default)]
pub(super) struct Observed {
    pub(super) schema: String,
    pub(super) threads: HashMap<u32, Thread>,
    pub(super) prepared: Vec<Prepared>,
    /// The namespace's engine lock is ours, and stood while the threads were listed.
    pub(super) locked: bool,
    /// Why writers around the schema's own sessions would not be seen, if that is so.
    pub(super) blind: Option<&'static str>,
}

impl Thread {
    /// A client's session that runs something, as opposed to waiting for its client.
    pub(super) fn is_busy(&self) -> bool {
        !matches!(self.command.as_str(), "Sleep" | "Daemon") && !self.is_stream()
    }

    /// Sends the binary log to a replica.
    fn is_stream(&self) -> bool {
        self.command.starts_with("Binlog Dump")
    }

    /// Ended by somebody, or undoing by itself. Not every process list says that a thread was
    /// killed; the transaction does.
    fn is_killed(&self) -> bool {
        self.command == "Killed" || self.transaction.as_ref().is_some_and(|t| t.rolling_back)
    }

    /// Has nothing open and stands in front of a table. Under a lock of ours on all of the schema's
    /// tables it has changed none that isn't committed, and changes none before the lock is gone.
    fn waits_for_a_table(&self) -> bool {
        self.state == "Waiting for table metadata lock"
            && self.transaction.is_none()
            && self.lock == TableLock::None
    }

    /// Has nothing open but tables that it keeps locked against writers (`LOCK TABLES … READ`). One
    /// of the proxy's comes by the gate before it does anything.
    fn idles_under_a_read_lock(&self) -> bool {
        self.command == "Sleep" && self.transaction.is_none() && self.lock == TableLock::Read
    }

    /// An applier or receiver of replication, which is nobody's session: it has no peer. MySQL's
    /// process list in `information_schema` gives the receiver a client's words in place of one,
    /// which no session has: a client's is a name or an address.
    pub(super) fn is_applier(&self) -> bool {
        self.user == "system user" && matches!(self.client.as_str(), "" | "connecting host")
    }

    /// Threads of the server itself: schedulers and the like, not the appliers of replication.
    fn is_daemon(&self) -> bool {
        self.command == "Daemon"
    }

    /// Its transaction's name with the thread's, which is what a cutoff keeps.
    pub(super) fn open(&self) -> Option<String> {
        let transaction = self.transaction.as_ref()?;
        Some(format!("{}/{}", self.id, transaction.name))
    }
}

impl Observed {
    /// Whether a thread may have to do with the schema.
    pub(super) fn is_here(&self, thread: &Thread) -> bool {
        thread.schema.as_deref() == Some(&self.schema) || thread.lock != TableLock::None
    }

    /// Transactions that count for a cutoff.
    pub(super) fn open_transactions(&self) -> Vec<(String, &Thread)> {
        let mut open: Vec<(String, &Thread)> = self
            .threads
            .values()
            .filter(|thread| !thread.own && !thread.is_daemon() && self.is_here(thread))
            .filter_map(|thread| Some((thread.open()?, thread)))
            .collect();
        open.sort_by_key(|(_, thread)| thread.id);
        open
    }
}

/// The orphan that a thread is; ids aren't reused within a run, and one that a live session of ours
/// has is of a later run.
fn orphan_at<'v>(thread: &Thread, view: &'v ProxyView) -> Option<&'v Orphan> {
    let id = key(thread.id);
    view.orphans.iter().find(|orphan| orphan.pid == id && !view.sessions.contains_key(&id))
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
    let mut orphans_left = 0;
    let mut threads: Vec<&Thread> = observed.threads.values().collect();
    threads.sort_by_key(|thread| thread.id);
    for thread in threads {
        let orphan = orphan_at(thread, view);
        orphans_left += usize::from(orphan.is_some());
        let session = view.sessions.get(&key(thread.id));
        let elder = view.is_import && thread.elder;
        let here = orphan.is_some() || session.is_some() || observed.is_here(thread);
        let idles = thread.idles_under_a_read_lock() && view.elsewhere.contains(&key(thread.id));
        let exempt = session.is_none() && orphan.is_none() && idles;
        if thread.own || !(elder || here && !exempt) {
            continue;
        }
        let old = thread
            .open()
            .is_some_and(|open| cutoff.entries.iter().any(|entry| entry.transaction == open));
        let why = match (orphan, session) {
            (Some(_), _) => Some(Why::Orphan),
            (None, Some(session)) => proxied(thread, *session, old, &mut counts),
            (None, None) if elder && !observed.is_here(thread) => Some(Why::OlderProgram),
            (None, None) => {
                let run = identity.server_start;
                let waits = observed.locked && thread.waits_for_a_table();
                direct(thread, view, (old, waits), run, &mut counts)
            }
        };
        if let Some(why) = why {
            let session = orphan.map(|o| o.session).or(session.map(|s| s.session));
            blockers.push(blocker(thread, session, why, now));
        }
    }
    counts.orphans_gone = view.orphans.len().saturating_sub(orphans_left);
    if removed(Removable::Census) {
        blockers.clear();
    }
    if !removed(Removable::PreparedCheck) {
        blockers.extend(observed.prepared.iter().map(prepared));
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
        blind: observed.blind,
    })
}

fn proxied(
    thread: &Thread,
    session: ProxySession,
    old: bool,
    counts: &mut CensusCounts,
) -> Option<Why> {
    counts.proxied += 1;
    if thread.is_killed() {
        Some(Why::RollingBack)
    } else if old && (session.is_writer || !session.in_program) {
        // Of one that has nothing open by the proxy's account, that account is wrong.
        Some(Why::OpenAtCutoff)
    } else if thread.lock == TableLock::Write {
        Some(Why::Writing)
    } else if session.is_writer
        && (session.in_program || thread.transaction.is_some() || thread.is_busy())
    {
        Some(Why::ProxyWriter)
    } else {
        counts.readers_exempt += usize::from(old);
        None
    }
}

fn direct(
    thread: &Thread,
    view: &ProxyView,
    (old, waits): (bool, bool),
    run: EngineTime,
    counts: &mut CensusCounts,
) -> Option<Why> {
    let named = BackendKey { pid: key(thread.id), backend_start: run };
    let is_operation = |backend: &BackendKey| {
        backend.pid == named.pid && super::same_run(backend.backend_start, run)
    };
    if view.operation_backends.iter().any(is_operation) {
        counts.operation += 1;
        None
    } else if thread.is_stream() {
        counts.streams += 1;
        None
    } else if thread.is_killed() {
        Some(Why::RollingBack)
    } else if old {
        Some(Why::OpenAtCutoff)
    } else if thread.lock == TableLock::Write {
        Some(Why::Writing)
    } else if thread.transaction.is_some()
        || thread.lock == TableLock::Read
        || (thread.is_busy() && !waits)
    {
        Some(Why::DirectInTransaction)
    } else if thread.is_daemon() {
        None
    } else if view.sole_path_required {
        Some(Why::DirectIdle)
    } else {
        counts.direct_idle += 1;
        None
    }
}

pub(super) fn blocker(
    thread: &Thread,
    session: Option<SessionId>,
    why: Why,
    now: EngineTime,
) -> Blocker {
    Blocker {
        session,
        pid: Some(key(thread.id)),
        backend_start: None,
        backend_type: "thread".to_owned(),
        user: thread.user.clone(),
        application_name: String::new(),
        client: thread.client.clone(),
        state: if thread.command == "Sleep" && thread.transaction.is_some() {
            "idle in transaction".to_owned()
        } else {
            thread.command.clone()
        },
        wait: Some(thread.state.clone()).filter(|state| !state.is_empty()),
        why,
        age_ms: thread.transaction.as_ref().map(|transaction| now.ms_since(transaction.began)),
        statement: thread.statement.clone(),
        object: thread.table.clone(),
    }
}

pub(super) fn prepared(prepared: &Prepared) -> Blocker {
    let branch = Thread { command: "prepared".to_owned(), ..Thread::default() };
    let named = blocker(&branch, None, Why::Prepared, EngineTime(0));
    Blocker {
        pid: None,
        backend_type: "prepared XA branch".to_owned(),
        object: Some(prepared.xid.clone()),
        ..named
    }
}

/// The thread that a blocker names, for logs.
pub(super) fn thread_of(blocker: &Blocker) -> Option<u32> {
    blocker.pid.map(of_key)
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
