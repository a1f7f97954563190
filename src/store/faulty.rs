//! A store that fails on request. Debug builds only.
//!
//! Purpose: the parts above the store are tested against every outcome a commit can have, on any
//! backend, without breaking a disk. It wraps a real store; what it doesn't spoil passes through.
//!
//! Callers: tests of `control` and of the store itself. Release builds don't contain it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{oneshot, watch};

use super::{Commit, CommitError, FenceStore, LoadedFence, Persisted, StoreError, StoreFuture};
use crate::base::ids::{CommandId, Namespace, OperationId};
use crate::fence::receipt::Receipt;

/// What becomes of one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitFault {
    /// It goes through.
    Pass,
    /// It isn't made, and that is known.
    NotCommitted,
    /// It is made, and the answer is lost.
    UnknownCommitted,
    /// It isn't made, and that isn't known.
    UnknownNotCommitted,
    /// It isn't made, or it is, and nothing comes behind it: the process is to die there. See
    /// [`FaultyStore::hung`].
    HangsBefore,
    /// As [`CommitFault::HangsBefore`], once it is durable.
    HangsBehind,
}

/// A store with planned failures.
pub struct FaultyStore {
    inner: Arc<dyn FenceStore>,
    /// Guards what is planned; never held across an await.
    plan: Mutex<Plan>,
    /// How many commits hang.
    hung: watch::Sender<u64>,
}

#[derive(Default)]
struct Plan {
    commits: VecDeque<CommitFault>,
    reads_fail: bool,
    held_load: Option<(HoldAt, oneshot::Sender<()>, oneshot::Receiver<()>)>,
}

/// Where a load of a row is kept back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldAt {
    /// Before the row is read.
    Before,
    /// When it was read, before the answer.
    Behind,
}

/// One load of a row that is kept back. Dropping it lets the load go on.
#[derive(Debug)]
pub struct HeldLoad {
    there: oneshot::Receiver<()>,
    _let_go: oneshot::Sender<()>,
}

impl HeldLoad {
    /// Completes once the load has come to where it is kept back.
    ///
    /// # Cancel safety
    /// Cancel safe: it can be asked again.
    pub async fn reached(&mut self) {
        // An error means that the load is gone, and with it whoever asked.
        let _gone = (&mut self.there).await;
    }
}

impl FaultyStore {
    /// Wraps a store; nothing fails yet.
    #[must_use]
    pub fn new(inner: Arc<dyn FenceStore>) -> Self {
        Self { inner, plan: Mutex::default(), hung: watch::Sender::new(0) }
    }

    /// Plans what becomes of the next commits, in order; later ones go through.
    pub fn plan_commits(&self, faults: impl IntoIterator<Item = CommitFault>) {
        self.lock().commits.extend(faults);
    }

    /// As [`FaultyStore::plan_commits`], in place of whatever was planned.
    pub fn replan(&self, faults: impl IntoIterator<Item = CommitFault>) {
        self.lock().commits = faults.into_iter().collect();
    }

    /// Lets every read fail from now on, or none.
    pub fn fail_reads(&self, fail: bool) {
        self.lock().reads_fail = fail;
    }

    /// Keeps the next load of a row back.
    pub fn hold_load(&self, at: HoldAt) -> HeldLoad {
        let (tell, there) = oneshot::channel();
        let (let_go, wait) = oneshot::channel();
        self.lock().held_load = Some((at, tell, wait));
        HeldLoad { there, _let_go: let_go }
    }

    /// Completes once a commit hangs.
    ///
    /// # Cancel safety
    /// Cancel safe: it only looks.
    pub async fn hung(&self) {
        let mut hung = self.hung.subscribe();
        // The sender is this store's own.
        drop(hung.wait_for(|count| *count > 0).await);
    }

    /// # Cancel safety
    /// Cancel safe: it only counts, and never completes.
    async fn hang<T>(&self) -> T {
        self.hung.send_modify(|count| *count += 1);
        std::future::pending().await
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<'a, T: Send + 'a>(
        &self,
        read: StoreFuture<'a, Result<T, StoreError>>,
    ) -> StoreFuture<'a, Result<T, StoreError>> {
        if self.lock().reads_fail { Box::pin(std::future::ready(Err(injected()))) } else { read }
    }
}

fn injected() -> StoreError {
    StoreError::Unavailable { doing: "answer", reason: "a test injected a fault".to_owned() }
}

impl FenceStore for FaultyStore {
    fn fence_load<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> StoreFuture<'a, Result<LoadedFence, StoreError>> {
        let load = self.read(self.inner.fence_load(namespace));
        let Some((at, tell, wait)) = self.lock().held_load.take() else { return load };
        let held = async move {
            // Nobody listens where the test has ended; nobody holds it any more then, either.
            let _unheard = tell.send(());
            let _let_go = wait.await;
        };
        Box::pin(async move {
            match at {
                HoldAt::Before => {
                    held.await;
                    load.await
                }
                HoldAt::Behind => {
                    let loaded = load.await;
                    held.await;
                    loaded
                }
            }
        })
    }

    fn fence_list(&self) -> StoreFuture<'_, Result<Vec<LoadedFence>, StoreError>> {
        self.read(self.inner.fence_list())
    }

    fn receipt_find<'a>(
        &'a self,
        namespace: &'a Namespace,
        operation: OperationId,
        command: CommandId,
    ) -> StoreFuture<'a, Result<Option<Receipt>, StoreError>> {
        self.read(self.inner.receipt_find(namespace, operation, command))
    }

    fn receipt_list<'a>(
        &'a self,
        namespace: &'a Namespace,
        operation: Option<OperationId>,
    ) -> StoreFuture<'a, Result<Vec<Receipt>, StoreError>> {
        self.read(self.inner.receipt_list(namespace, operation))
    }

    fn fence_commit(&self, commit: Commit) -> StoreFuture<'_, Result<Persisted, CommitError>> {
        let fault = self.lock().commits.pop_front().unwrap_or(CommitFault::Pass);
        match fault {
            CommitFault::Pass => self.inner.fence_commit(commit),
            CommitFault::NotCommitted => {
                Box::pin(std::future::ready(Err(CommitError::NotCommitted(injected()))))
            }
            CommitFault::UnknownNotCommitted => {
                Box::pin(std::future::ready(Err(CommitError::Unknown(injected()))))
            }
            CommitFault::HangsBefore => Box::pin(self.hang()),
            CommitFault::HangsBehind => Box::pin(async move {
                self.inner.fence_commit(commit).await?;
                self.hang().await
            }),
            CommitFault::UnknownCommitted => Box::pin(async move {
                self.inner.fence_commit(commit).await?;
                Err(CommitError::Unknown(injected()))
            }),
        }
    }

    fn receipts_prune<'a>(
        &'a self,
        namespace: &'a Namespace,
        now_ms: u64,
        retention_ms: u64,
    ) -> StoreFuture<'a, Result<u64, StoreError>> {
        self.inner.receipts_prune(namespace, now_ms, retention_ms)
    }
}
