//! The store in memory, for tests of the parts above and for a proxy that shall forget.
//!
//! Purpose: the same rules as every backend, on bytes encoded like theirs, without a disk.
//!
//! Invariants: 5, 10. Nothing survives the process, so `serve` never uses it for real fences.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::commit::{FoundReceipt, prepare};
use super::record::{decode_receipt, decode_record};
use super::{
    Commit, CommitError, FenceStore, LoadedFence, Persisted, Row, StoreError, StoreFuture, row_of,
};
use crate::base::ids::{CommandId, Namespace, OperationId};
use crate::base::limits;
use crate::fence::receipt::Receipt;

/// Bytes with the columns that a table would have beside them.
#[derive(Debug, Clone)]
pub(in crate::store) struct RawRow {
    pub(in crate::store) format_version: i64,
    pub(in crate::store) revision: i64,
    pub(in crate::store) at_ms: u64,
    pub(in crate::store) bytes: Vec<u8>,
}

type ReceiptKey = (String, OperationId, CommandId);

#[derive(Debug, Default)]
struct Tables {
    fences: BTreeMap<String, RawRow>,
    receipts: BTreeMap<ReceiptKey, RawRow>,
}

/// Fences and receipts in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    /// Guards both tables, so that a commit is one step. Never held across an await.
    tables: Mutex<Tables>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        // A panic inside can't leave a half commit: both writes come after the last check.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(in crate::store) fn put_fence(&self, name: &str, row: RawRow) {
        self.lock().fences.insert(name.to_owned(), row);
    }

    #[cfg(test)]
    pub(in crate::store) fn put_receipt(&self, receipt: &Receipt, row: RawRow) {
        let key = (receipt.namespace.to_string(), receipt.operation, receipt.command);
        self.lock().receipts.insert(key, row);
    }
}

impl Tables {
    fn row(&self, namespace: &Namespace) -> Row {
        let Some(raw) = self.fences.get(&namespace.to_string()) else { return Row::Absent };
        row_of(decode_record(namespace, raw.format_version, raw.revision, &raw.bytes))
    }

    fn receipt(
        &self,
        namespace: &Namespace,
        operation: OperationId,
        command: CommandId,
    ) -> FoundReceipt {
        let Some(raw) = self.receipts.get(&(namespace.to_string(), operation, command)) else {
            return Ok(None);
        };
        decode_receipt(namespace, operation, command, raw.format_version, raw.revision, &raw.bytes)
            .map(Some)
    }

    fn commit(&mut self, commit: Commit) -> Result<Persisted, CommitError> {
        let namespace = commit.namespace.clone();
        let (operation, command) = (commit.receipt.operation, commit.receipt.command);
        let at_ms = commit.receipt.applied_at_ms;
        let row = self.row(&namespace);
        let found = self.receipt(&namespace, operation, command);
        let prepared = prepare(commit, row, found)?;
        let format_version = prepared.format_version;
        if let Some((bytes, revision)) = prepared.record {
            let raw = RawRow { format_version, revision, at_ms, bytes };
            self.fences.insert(namespace.to_string(), raw);
        }
        let revision = prepared.receipt_revision;
        let raw = RawRow { format_version, revision, at_ms, bytes: prepared.receipt };
        self.receipts.insert((namespace.to_string(), operation, command), raw);
        Ok(prepared.answer)
    }

    fn list_receipts(
        &self,
        namespace: &Namespace,
        operation: Option<OperationId>,
    ) -> Result<Vec<Receipt>, StoreError> {
        let name = namespace.to_string();
        let wanted = |key: &ReceiptKey| {
            key.0 == name && operation.is_none_or(|operation| operation == key.1)
        };
        let mut found: Vec<_> = self.receipts.iter().filter(|(key, _)| wanted(key)).collect();
        found.sort_by_key(|(key, raw)| (raw.at_ms, raw.revision, key.2));
        let keys = found.into_iter().map(|(key, _)| key).take(limits::RECEIPT_LIST_MAX);
        keys.filter_map(|key| self.receipt(namespace, key.1, key.2).transpose())
            .collect::<Result<_, _>>()
            .map_err(|bad| bad.of_receipt(namespace))
    }
}

impl FenceStore for MemoryStore {
    fn fence_load<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> StoreFuture<'a, Result<LoadedFence, StoreError>> {
        let row = self.lock().row(namespace);
        Box::pin(std::future::ready(Ok(LoadedFence { namespace: namespace.clone(), row })))
    }

    fn fence_list(&self) -> StoreFuture<'_, Result<Vec<LoadedFence>, StoreError>> {
        let tables = self.lock();
        let load = |name: &String| {
            let namespace = Namespace::parse(name).map_err(|error| StoreError::BadName {
                name: name.clone(),
                reason: error.to_string(),
            })?;
            Ok(LoadedFence { row: tables.row(&namespace), namespace })
        };
        let loaded = tables.fences.keys().map(load).collect();
        drop(tables);
        Box::pin(std::future::ready(loaded))
    }

    fn receipt_find<'a>(
        &'a self,
        namespace: &'a Namespace,
        operation: OperationId,
        command: CommandId,
    ) -> StoreFuture<'a, Result<Option<Receipt>, StoreError>> {
        let found = self.lock().receipt(namespace, operation, command);
        Box::pin(std::future::ready(found.map_err(|bad| bad.of_receipt(namespace))))
    }

    fn receipt_list<'a>(
        &'a self,
        namespace: &'a Namespace,
        operation: Option<OperationId>,
    ) -> StoreFuture<'a, Result<Vec<Receipt>, StoreError>> {
        let listed = self.lock().list_receipts(namespace, operation);
        Box::pin(std::future::ready(listed))
    }

    fn fence_commit(&self, commit: Commit) -> StoreFuture<'_, Result<Persisted, CommitError>> {
        let committed = self.lock().commit(commit);
        Box::pin(std::future::ready(committed))
    }

    fn receipts_prune<'a>(
        &'a self,
        namespace: &'a Namespace,
        now_ms: u64,
        retention_ms: u64,
    ) -> StoreFuture<'a, Result<u64, StoreError>> {
        let mut tables = self.lock();
        let owner = match tables.row(namespace) {
            Row::Absent => None,
            Row::Good(persisted) => persisted.record().map(|record| record.operation),
            // Whose receipts these are can't be told: keep them all.
            Row::Bad { .. } => return Box::pin(std::future::ready(Ok(0))),
        };
        let name = namespace.to_string();
        let oldest_kept_ms = now_ms.saturating_sub(retention_ms);
        let before = tables.receipts.len();
        tables.receipts.retain(|key, raw| {
            key.0 != name || Some(key.1) == owner || raw.at_ms >= oldest_kept_ms
        });
        let gone = before - tables.receipts.len();
        drop(tables);
        Box::pin(std::future::ready(Ok(gone as u64)))
    }
}
