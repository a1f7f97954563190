//! Reading the boundary of MySQL and MariaDB.
//!
//! Purpose: the position of the binary log, read *by the thread that holds the engine lock* where
//! there is one: its answer shows that the lock stood at that moment, whatever became of it later.
//!
//! No marker is written. What a marker is for, a target that can tell when it has everything, the
//! set of transaction ids does by itself: it names the last change exactly, on an idle server too.
//! Anything that could be written would need rights on tables, or leave foreign ids in the set
//! that other tools take for a fault. The evidence says `marker: false`.
//!
//! MySQL with GTIDs: `@@gtid_executed`, to be compared as a set. MariaDB: `@@gtid_binlog_pos`.
//! Without GTIDs file and offset; without a binary log nothing, and the fence is proven all the
//! same. Sets move without row changes too (`FLUSH`, `ANALYZE`): a later set is no violation yet.

use mysql_async::Row;

use super::connect::{Control, Flavour};
use super::holder::Holder;
use super::value::{number, words};
use super::{MyEngine, NOW};
use crate::base::ids::{Namespace, OperationId, Revision};
use crate::engine::boundary::{LogBoundary, LogPosition};
use crate::engine::error::EngineError;
use crate::engine::identity::EngineTime;

/// Who is asked.
enum Voice<'a> {
    /// The holder of the lock.
    Holder(Holder),
    /// Any control connection, where there is no lock.
    Control(&'a mut Control),
}

impl Voice<'_> {
    async fn rows(&mut self, engine: &MyEngine, sql: &str) -> Result<Vec<Row>, EngineError> {
        let what = "boundary";
        match self {
            Self::Control(control) => control.rows(what, sql).await,
            Self::Holder(holder) => holder.rows(sql).await.unwrap_or_else(|| {
                let words = "the engine lock was lost while the boundary was read".to_owned();
                Err(engine.unexpected(what, words))
            }),
        }
    }

    async fn first(&mut self, engine: &MyEngine, sql: &str) -> Result<String, EngineError> {
        Ok(self.rows(engine, sql).await?.first().map(|row| words(row, 0)).unwrap_or_default())
    }
}

impl MyEngine {
    /// Reads the log's position, under the namespace's engine lock if this engine holds one.
    ///
    /// # Errors
    /// Any [`EngineError`]; `Unexpected` when the lock went away meanwhile.
    pub async fn mark_boundary(
        &self,
        namespace: &Namespace,
        operation: OperationId,
        revision: Revision,
    ) -> Result<LogBoundary, EngineError> {
        let schema = self.schema_of(namespace)?;
        let mut control = self.connections.control().await?;
        let engine_id = self.see(&mut control, schema).await?.identity.engine_id;
        let flavour = control.flavour();
        let version = control.version();
        let holder = self.connections.holders().get(namespace).cloned();
        let mut voice = match holder {
            Some(holder) => Voice::Holder(holder),
            None => Voice::Control(&mut control),
        };
        let locked = matches!(voice, Voice::Holder(_));
        let position = self.position(&mut voice, flavour, version).await?;
        let rows = voice.rows(self, NOW).await?;
        let at = EngineTime(rows.first().and_then(|row| number(row, 0)).unwrap_or(0));
        Ok(LogBoundary {
            namespace: namespace.clone(),
            operation,
            revision,
            engine_id,
            position,
            locked,
            at,
        })
    }

    async fn position(
        &self,
        voice: &mut Voice<'_>,
        flavour: Flavour,
        version: i32,
    ) -> Result<LogPosition, EngineError> {
        if voice.first(self, "SELECT @@log_bin").await? != "1" {
            return Ok(LogPosition::Off);
        }
        let set = match flavour {
            Flavour::MariaDb => voice.first(self, "SELECT @@gtid_binlog_pos").await?,
            // With GTIDs off the variable keeps what it had when they were on.
            Flavour::MySql if voice.first(self, "SELECT @@gtid_mode").await? == "ON" => {
                voice.first(self, "SELECT @@gtid_executed").await?
            }
            Flavour::MySql => String::new(),
        };
        if !set.is_empty() {
            return Ok(LogPosition::Gtid(set.replace(['\n', ' '], "")));
        }
        let show = match flavour {
            Flavour::MySql if version >= 80_200 => "SHOW BINARY LOG STATUS",
            Flavour::MySql | Flavour::MariaDb => "SHOW MASTER STATUS",
        };
        let rows = voice.rows(self, show).await?;
        let Some(row) = rows.first() else {
            return Err(self.unexpected("boundary", "the log tells no position".to_owned()));
        };
        Ok(LogPosition::Binlog(format!("{}:{}", words(row, 0), words(row, 1))))
    }
}
