//! Writing the marker and reading the boundary.
//!
//! Purpose: a position at or above everything committed before, flushed to the engine's disk. The
//! marker's own commit is synchronous, so earlier commits of sessions that don't wait for the disk
//! are flushed with it; and it gives a target's confirmed position something to reach on an idle
//! system. Called by `control` between two censuses. It doesn't look at targets.
//!
//! With synchronous standbys configured and absent, the marker's commit waits for them whatever the
//! statement timeout is (it is off by then), and the question ends at the proxy's own bound: there
//! is no boundary until they are back, or the engine is told not to wait for them.

use tokio_postgres::types::Type;

use super::connect::Question;
use super::{IDENTITY, PgEngine, Seen, micros};
use crate::base::ids::{Namespace, OperationId, Revision};
use crate::engine::boundary::Boundary;
use crate::engine::error::EngineError;
use crate::engine::identity::{EngineTime, Lsn};

/// What the marker message is called in the log; targets and decoders look for it.
pub const MARKER_PREFIX: &str = "fencewire";

/// Transactional: it appears in decoding exactly when its transaction has committed.
const MARK: &str = "SELECT pg_logical_emit_message(true, $1, $2::text)::text";

const FLUSHED: &str =
    concat!("SELECT pg_current_wal_flush_lsn()::text, ", micros!("clock_timestamp()"));

impl PgEngine {
    /// Writes a marker in the namespace's database and reads the position up to which the log is
    /// flushed afterwards.
    ///
    /// Cancel safety: a marker may be left in the log without a boundary; a later one supersedes
    /// it, since readers go by the boundary.
    ///
    /// # Errors
    /// Any [`EngineError`]; `Unexpected` when the position is below the marker.
    pub async fn mark_boundary(
        &self,
        namespace: &Namespace,
        operation: OperationId,
        revision: Revision,
    ) -> Result<Boundary, EngineError> {
        let what = "boundary";
        let text = serde_json::json!({
            "namespace": namespace.to_string(),
            "operation": operation.to_string(),
            "revision": revision.0,
        })
        .to_string();
        let mut control = self.connections.control(self.database_of(namespace)?).await?;
        let marks = [(&MARKER_PREFIX as _, Type::TEXT), (&text as _, Type::TEXT)];
        // The marker is committed before the engine reads what comes behind it.
        let questions: [Question<'_>; 3] = [(MARK, &marks), (FLUSHED, &[]), (IDENTITY, &[])];
        let [marked, flushed, seen] = control.pipelined(what, questions).await?;
        let row = control.single(what, marked)?;
        let marker: String = row.try_get(0).map_err(|e| control.odd(what, &e))?;
        let row = control.single(what, flushed)?;
        let flushed: String = row.try_get(0).map_err(|e| control.odd(what, &e))?;
        let at = EngineTime(row.try_get(1).map_err(|e| control.odd(what, &e))?);
        let row = control.single(what, seen)?;
        let seen = Seen::of(&row).map_err(|e| control.odd(what, &e))?;
        let parse = |text: &str| {
            Lsn::parse(text).ok_or_else(|| self.unexpected(what, format!("log position {text:?}")))
        };
        let (marker, lsn) = (parse(&marker)?, parse(&flushed)?);
        if lsn < marker {
            let words = format!("flushed up to {lsn}, though the marker at {marker} is committed");
            return Err(self.unexpected(what, words));
        }
        Ok(Boundary {
            namespace: namespace.clone(),
            operation,
            revision,
            engine_id: seen.identity.engine_id,
            timeline: seen.identity.timeline,
            marker,
            lsn,
            at,
        })
    }
}
