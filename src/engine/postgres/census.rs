//! Reading the census from PostgreSQL.
//!
//! Purpose: the cutoff, and the observations that `judge` decides about.
//!
//! The views used here are not MVCC: `pg_locks` and `pg_stat_activity` show shared memory as it is
//! while being read, whatever the snapshot, so a repeatable-read transaction or one big statement
//! would promise a consistency that it doesn't have, and would leave the order of reading to the
//! planner. Instead each question is its own autocommit statement on one connection, and the
//! *order* is what makes them sound together:
//!
//! 1. identity: all later statements run on the same connection, so on the same server run;
//! 2. virtual transaction ids from `pg_locks`: one that is absent has ended, or was prepared;
//! 3. `pg_stat_activity` with write locks: a backend vanishes from it only after its transaction;
//! 4. `pg_prepared_xacts` last: a transaction that was prepared is visible there before its virtual
//!    id is released, so what step 2 missed by a PREPARE is found here.
//!
//! The four are sent in one go: a connection's backend runs what it is sent one statement behind
//! the other, and commits each before it reads the next, so their order is the engine's and no
//! answer is needed for the next question. What an engine that turns out to be another one, or a
//! standby, has answered to steps 2 to 4 is thrown away unread.
//!
//! All facts that must hold (gone, ended) are final for the things named by the cutoff; the rest
//! (nobody writes just now) is a sample, which is why the drain asks again after the boundary.

use std::collections::HashMap;

use tokio_postgres::Row;

use super::connect::{Control, Question};
use super::judge::{Backend, Observed, Prepared, judge};
use super::{IDENTITY, PgEngine, Seen, micros};
use crate::base::ids::Namespace;
use crate::base::limits::STATEMENT_CHARS_MAX;
use crate::engine::census::{CensusOutcome, Cutoff, CutoffEntry, ProxyView};
use crate::engine::error::EngineError;
use crate::engine::identity::{BackendKey, EngineTime};

/// Holders only: whoever waits for another's virtual transaction has a share lock on it.
const TRANSACTIONS: &str = "SELECT virtualtransaction, pid FROM pg_locks \
    WHERE locktype = 'virtualxid' AND granted AND mode = 'ExclusiveLock' AND pid IS NOT NULL";

/// Every backend of the server; texts only of this database's. Without a parameter, so that the
/// engine plans it once where it is prepared.
const BACKENDS: &str = concat!(
    "WITH here AS (SELECT oid FROM pg_database WHERE datname = current_database()), ",
    "writing AS (SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'relation' AND granted ",
    "AND database = (SELECT oid FROM here) ",
    "AND mode NOT IN ('AccessShareLock', 'RowShareLock', 'SIReadLock')) ",
    "SELECT a.pid, a.leader_pid, ",
    micros!("a.backend_start"),
    ", a.backend_type, coalesce(a.datid = (SELECT oid FROM here), false), ",
    "coalesce(a.usename::text, ''), coalesce(a.application_name, ''), ",
    "coalesce(host(a.client_addr) || ':' || a.client_port, 'local'), coalesce(a.state, ''), ",
    "nullif(concat_ws('/', a.wait_event_type, a.wait_event), ''), ",
    micros!("a.xact_start"),
    ", CASE WHEN a.datid = (SELECT oid FROM here) THEN left(a.query, 200) ELSE '' END, ",
    "a.backend_xid IS NOT NULL, w.pid IS NOT NULL, ",
    "coalesce(r.state IN ('streaming', 'catchup', 'backup'), false), s.slot_name::text ",
    "FROM pg_stat_activity a LEFT JOIN writing w ON w.pid = a.pid ",
    "LEFT JOIN pg_stat_replication r ON r.pid = a.pid ",
    "LEFT JOIN pg_replication_slots s ON s.active_pid = a.pid",
);

const _: () = assert!(STATEMENT_CHARS_MAX == 200);

const PREPARED: &str = concat!(
    "SELECT gid, owner::text, ",
    micros!("prepared"),
    " FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared",
);

impl PgEngine {
    /// Every transaction open in the namespace's database now; taken just after its write
    /// admission has closed.
    ///
    /// Left out: our own control connections, and backends whose work can't change what a client
    /// reads (see `judge`). Parallel workers count as their leader.
    ///
    /// # Errors
    /// Any [`EngineError`] but `Changed`; `Unexpected` when the engine is a standby, where nothing
    /// can be fenced.
    pub async fn cutoff(&self, namespace: &Namespace) -> Result<Cutoff, EngineError> {
        let mut control = self.connections.control(self.database_of(namespace)?).await?;
        let (seen, rows) = self.look(&mut control).await?;
        if seen.identity.in_recovery {
            let words = format!("it is a standby; {namespace} can be fenced at its primary only");
            return Err(self.unexpected("cutoff", words));
        }
        let observed = self.observed(&control, rows)?;
        let entries = observed.open_transactions().into_iter().map(entry).collect();
        Ok(Cutoff { namespace: namespace.clone(), identity: seen.identity, at: seen.now, entries })
    }

    /// Asks what is left of the cutoff, and what else could commit in its namespace.
    ///
    /// The view must have been taken before the call. `Residue` names everything that blocks;
    /// the caller waits or ends it and asks again, within its own bounds.
    ///
    /// # Errors
    /// `Changed` when the engine is no longer the cutoff's; otherwise any [`EngineError`]. No
    /// error proves anything.
    pub async fn census(
        &self,
        cutoff: &Cutoff,
        view: &ProxyView,
    ) -> Result<CensusOutcome, EngineError> {
        let mut control = self.connections.control(self.database_of(&cutoff.namespace)?).await?;
        let (seen, rows) = self.look(&mut control).await?;
        if let Some(words) = cutoff.identity.difference(&seen.identity) {
            return Err(EngineError::Changed {
                engine: self.name().clone(),
                words,
                was: Box::new(cutoff.identity.clone()),
                now: Box::new(seen.identity),
            });
        }
        let observed = self.observed(&control, rows)?;
        Ok(judge(cutoff, view, &observed, seen.identity, seen.now))
    }

    /// Steps 1 to 4 of the header, 2 to 4 unread.
    async fn look(&self, control: &mut Control) -> Result<(Seen, [Vec<Row>; 3]), EngineError> {
        let questions: [Question<'_>; 4] =
            [(IDENTITY, &[]), (TRANSACTIONS, &[]), (BACKENDS, &[]), (PREPARED, &[])];
        let [seen, transactions, backends, prepared] =
            control.pipelined("census", questions).await?;
        Ok((self.sees_all(control, seen)?, [transactions, backends, prepared]))
    }

    /// Steps 2 to 4 of the header.
    pub(super) async fn observe(&self, control: &mut Control) -> Result<Observed, EngineError> {
        let questions: [Question<'_>; 3] = [(TRANSACTIONS, &[]), (BACKENDS, &[]), (PREPARED, &[])];
        let rows = control.pipelined("census", questions).await?;
        self.observed(control, rows)
    }

    /// Reads the answers to steps 2 to 4.
    fn observed(
        &self,
        control: &Control,
        [running, present, prepared_rows]: [Vec<Row>; 3],
    ) -> Result<Observed, EngineError> {
        let what = "census";
        let odd = |e: tokio_postgres::Error| control.odd(what, &e);
        let mut transactions = Vec::new();
        for row in running {
            let read = || Ok((row.try_get(0)?, row.try_get(1)?));
            transactions.push(read().map_err(odd)?);
        }
        let mut backends = HashMap::new();
        for row in present {
            let mut backend = backend(&row).map_err(odd)?;
            backend.own = backend.backend_start.is_some_and(|backend_start| {
                self.connections.is_own(BackendKey { pid: backend.pid, backend_start })
            });
            backends.insert(backend.pid, backend);
        }
        let mut prepared = Vec::new();
        for row in prepared_rows {
            let read = || {
                Ok(Prepared {
                    gid: row.try_get(0)?,
                    owner: row.try_get(1)?,
                    at: EngineTime(row.try_get(2)?),
                })
            };
            prepared.push(read().map_err(odd)?);
        }
        Ok(Observed { transactions, backends, prepared })
    }
}

fn backend(row: &Row) -> Result<Backend, tokio_postgres::Error> {
    Ok(Backend {
        pid: row.try_get(0)?,
        leader_pid: row.try_get(1)?,
        backend_start: row.try_get::<_, Option<i64>>(2)?.map(EngineTime),
        backend_type: row.try_get::<_, Option<String>>(3)?.unwrap_or_default(),
        in_database: row.try_get(4)?,
        user: row.try_get(5)?,
        application_name: row.try_get(6)?,
        client: row.try_get(7)?,
        state: row.try_get(8)?,
        wait: row.try_get(9)?,
        xact_start: row.try_get::<_, Option<i64>>(10)?.map(EngineTime),
        statement: row.try_get::<_, Option<String>>(11)?.unwrap_or_default(),
        has_xid: row.try_get(12)?,
        write_locks: row.try_get(13)?,
        streaming: row.try_get(14)?,
        slot: row.try_get(15)?,
        own: false,
    })
}

fn entry((transaction, pid, backend): (&str, i32, Option<&Backend>)) -> CutoffEntry {
    let text = |f: fn(&Backend) -> &String| backend.map(f).cloned().unwrap_or_default();
    CutoffEntry {
        transaction: transaction.to_owned(),
        pid,
        backend_start: backend.and_then(|b| b.backend_start),
        backend_type: text(|b| &b.backend_type),
        user: text(|b| &b.user),
        application_name: text(|b| &b.application_name),
        client: text(|b| &b.client),
        xact_start: backend.and_then(|b| b.xact_start),
        state: text(|b| &b.state),
        statement: text(|b| &b.statement),
    }
}
