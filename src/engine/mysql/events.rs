//! Events that an import brought along: what writes behind a seal without any session.
//!
//! Purpose: a target has no engine lock behind its seal, and the event scheduler doesn't come by
//! the proxy. So an import has not ended while an event of its schema is enabled. Asked in front of
//! the process list: what the scheduler had begun by then is a thread there, and blocks as such.
//! Events of other schemas aren't looked for (`closure` names them).
//!
//! Callers: `census`, for the drain of an import only. Nothing is disabled here.

use mysql_async::Row;

use super::MyEngine;
use super::connect::Control;
use super::judge::{Thread, blocker};
use super::rights::Rights;
use super::value::{literal, quoted, words};
use crate::base::limits::BLOCKERS_SHOWN_MAX;
use crate::engine::census::{Blocker, Why};
use crate::engine::error::EngineError;
use crate::engine::identity::EngineTime;

impl MyEngine {
    /// The enabled events of a schema, as blockers; the first hundred and one.
    ///
    /// # Errors
    /// `Denied` where the account may not see events: they would not be listed (M4).
    pub(super) async fn enabled_events(
        &self,
        control: &mut Control,
        schema: &str,
    ) -> Result<Vec<Blocker>, EngineError> {
        let mut may_see = Rights::read(control, schema).await?.has("EVENT");
        if !may_see && control.renewed().await? {
            may_see = Rights::read(control, schema).await?.has("EVENT");
        }
        if !may_see {
            let name = quoted(schema);
            return Err(EngineError::Denied {
                engine: self.name().clone(),
                what: "census",
                words: format!("the events of {name} are not shown to the control account"),
                hint: format!("run: GRANT EVENT ON {name}.* TO the control account"),
            });
        }
        let sql = format!(
            "SELECT EVENT_NAME, DEFINER FROM information_schema.EVENTS \
             WHERE EVENT_SCHEMA = {} AND STATUS = 'ENABLED' ORDER BY EVENT_NAME LIMIT {}",
            literal(schema),
            BLOCKERS_SHOWN_MAX + 1
        );
        let rows = control.rows("census", &sql).await?;
        Ok(rows.iter().map(|row| named(schema, row)).collect())
    }
}

fn named(schema: &str, row: &Row) -> Blocker {
    let event = Thread { command: "enabled".to_owned(), user: words(row, 1), ..Thread::default() };
    Blocker {
        pid: None,
        backend_type: "event".to_owned(),
        object: Some(format!("{}.{}", quoted(schema), quoted(&words(row, 0)))),
        ..blocker(&event, None, Why::Event, EngineTime(0))
    }
}
