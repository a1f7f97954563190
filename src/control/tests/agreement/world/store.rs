//! What a process of the real thing is built on: a clock, and a store that keeps paused time still.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::*;
use crate::fence::receipt::Receipt;
use crate::store::{Commit, CommitError, LoadedFence, Persisted, StoreError, StoreFuture};

/// Wall time that is another at each look, and the paused clock.
#[derive(Debug)]
pub(super) struct TickingClock {
    pub(super) ticks: Arc<AtomicU64>,
    pub(super) started: Instant,
}

impl Clock for TickingClock {
    fn now_ms(&self) -> u64 {
        1_750_000_000_000 + self.ticks.fetch_add(1, Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Keeps paused time from running ahead while the store's own thread works.
pub(super) struct SteadyStore(pub(super) Arc<SqliteStore>);

async fn steady<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let handle = Handle::current();
    tokio::task::spawn_blocking(move || handle.block_on(work)).await.unwrap()
}

impl FenceStore for SteadyStore {
    fn fence_load<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> StoreFuture<'a, Result<LoadedFence, StoreError>> {
        let (store, namespace) = (Arc::clone(&self.0), namespace.clone());
        Box::pin(steady(async move { store.fence_load(&namespace).await }))
    }

    fn fence_list(&self) -> StoreFuture<'_, Result<Vec<LoadedFence>, StoreError>> {
        let store = Arc::clone(&self.0);
        Box::pin(steady(async move { store.fence_list().await }))
    }

    fn receipt_find<'a>(
        &'a self,
        namespace: &'a Namespace,
        operation: OperationId,
        command: CommandId,
    ) -> StoreFuture<'a, Result<Option<Receipt>, StoreError>> {
        let (store, namespace) = (Arc::clone(&self.0), namespace.clone());
        Box::pin(steady(async move { store.receipt_find(&namespace, operation, command).await }))
    }

    fn receipt_list<'a>(
        &'a self,
        namespace: &'a Namespace,
        operation: Option<OperationId>,
    ) -> StoreFuture<'a, Result<Vec<Receipt>, StoreError>> {
        let (store, namespace) = (Arc::clone(&self.0), namespace.clone());
        Box::pin(steady(async move { store.receipt_list(&namespace, operation).await }))
    }

    fn fence_commit(&self, commit: Commit) -> StoreFuture<'_, Result<Persisted, CommitError>> {
        let store = Arc::clone(&self.0);
        Box::pin(steady(async move { store.fence_commit(commit).await }))
    }

    fn receipts_prune<'a>(
        &'a self,
        namespace: &'a Namespace,
        now_ms: u64,
        retention_ms: u64,
    ) -> StoreFuture<'a, Result<u64, StoreError>> {
        let (store, namespace) = (Arc::clone(&self.0), namespace.clone());
        Box::pin(steady(
            async move { store.receipts_prune(&namespace, now_ms, retention_ms).await },
        ))
    }
}
