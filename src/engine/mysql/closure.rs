//! What reaches across schemas, and what a rollback can't undo: named for the evidence.
//!
//! Purpose: a namespace is a schema, and on these servers statements, views, triggers, foreign
//! keys, routines and events go from one schema to another. Foreign keys are known exactly; bodies
//! are searched for names of other schemas, which is a hint for operators and never evidence. The
//! engine lock stops writes into the schema from wherever they come; without it these names are
//! what to look at. Nothing is refused here.
//!
//! Called by `lock` and `preflight`.

use std::collections::BTreeSet;

use super::MyEngine;
use super::connect::Control;
use super::value::{literal, number, words};
use crate::base::limits::CLOSURE_OBJECTS_MAX;
use crate::engine::error::EngineError;

/// How many names are told of each kind.
const NAMES_MAX: usize = 5;

/// What was found; names are `schema.object`.
#[derive(Debug, Default)]
pub(super) struct Closure {
    /// Objects of the schema whose definition names another one.
    pub(super) outward: BTreeSet<String>,
    /// Objects of other schemas whose definition names this one.
    pub(super) inward: BTreeSet<String>,
    /// Tables tied by a foreign key to another schema, in either direction.
    pub(super) foreign_keys: BTreeSet<String>,
    /// Tables whose statements aren't rolled back.
    pub(super) non_transactional: BTreeSet<String>,
    /// Tables whose content is elsewhere.
    pub(super) elsewhere: BTreeSet<String>,
    /// Events of the schema, which run around the proxy.
    pub(super) events: BTreeSet<String>,
    /// More objects exist than were searched.
    pub(super) cut: bool,
}

impl Closure {
    /// One sentence for each kind that was found.
    pub(super) fn sentences(&self) -> Vec<String> {
        let kinds = [
            (&self.non_transactional, "tables without transactions, whose writes aren't undone"),
            (&self.elsewhere, "tables whose rows are in another server"),
            (&self.foreign_keys, "foreign keys across schemas"),
            (&self.outward, "objects that name other schemas"),
            (&self.inward, "objects of other schemas that name this one"),
            (
                &self.events,
                "events, which go on writing around the proxy wherever the engine lock isn't held",
            ),
        ];
        let told = kinds.into_iter().filter(|(names, _)| !names.is_empty());
        let mut told: Vec<String> =
            told.map(|(names, text)| format!("{text}: {}", list(names))).collect();
        if self.cut {
            told.push(format!("only {CLOSURE_OBJECTS_MAX} objects were searched for schema names"));
        }
        told
    }
}

/// Bodies of everything that can hold a statement. Aliases, because the two servers differ in case.
const BODIES: &str = "SELECT TABLE_SCHEMA AS s, TABLE_NAME AS n, VIEW_DEFINITION AS b \
    FROM information_schema.VIEWS UNION ALL \
    SELECT TRIGGER_SCHEMA, TRIGGER_NAME, ACTION_STATEMENT FROM information_schema.TRIGGERS \
    UNION ALL SELECT ROUTINE_SCHEMA, ROUTINE_NAME, ROUTINE_DEFINITION \
    FROM information_schema.ROUTINES UNION ALL \
    SELECT EVENT_SCHEMA, EVENT_NAME, EVENT_DEFINITION FROM information_schema.EVENTS";

const SYSTEM: &str = "('mysql', 'sys', 'information_schema', 'performance_schema')";

impl MyEngine {
    /// Looks; what the control account may not see isn't found.
    pub(super) async fn closure(&self, schema: &str) -> Result<Closure, EngineError> {
        let mut control = self.connections.control().await?;
        let mut found = Closure::default();
        self.bodies(&mut control, schema, &mut found).await?;
        let name = literal(schema);
        let keys = format!(
            "SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME FROM information_schema.KEY_COLUMN_USAGE \
             WHERE REFERENCED_TABLE_SCHEMA <> TABLE_SCHEMA \
             AND (TABLE_SCHEMA = {name} OR REFERENCED_TABLE_SCHEMA = {name})"
        );
        for row in control.rows("closure", &keys).await? {
            found.foreign_keys.insert(format!("{}.{}", words(&row, 0), words(&row, 1)));
        }
        let tables = format!(
            "SELECT t.TABLE_NAME, t.ENGINE, e.TRANSACTIONS = 'YES' \
             FROM information_schema.TABLES t \
             LEFT JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE \
             WHERE t.TABLE_SCHEMA = {name} \
             AND t.TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')"
        );
        for row in control.rows("closure", &tables).await? {
            let (table, engine) = (words(&row, 0), words(&row, 1).to_ascii_uppercase());
            if matches!(engine.as_str(), "FEDERATED" | "CONNECT" | "SPIDER") {
                found.elsewhere.insert(table);
            } else if number(&row, 2) != Some(1) {
                found.non_transactional.insert(table);
            }
        }
        let events = format!(
            "SELECT EVENT_NAME FROM information_schema.EVENTS WHERE EVENT_SCHEMA = {name} \
             AND STATUS = 'ENABLED'"
        );
        for row in control.rows("closure", &events).await? {
            found.events.insert(words(&row, 0));
        }
        Ok(found)
    }

    async fn bodies(
        &self,
        control: &mut Control,
        schema: &str,
        found: &mut Closure,
    ) -> Result<(), EngineError> {
        let what = "closure";
        let sql = format!(
            "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME NOT IN {SYSTEM}"
        );
        let rows = control.rows(what, &sql).await?;
        let schemas: Vec<String> = rows.iter().map(|row| words(row, 0)).collect();
        let sql = format!(
            "SELECT s, n, b FROM ({BODIES}) o WHERE s NOT IN {SYSTEM} LIMIT {}",
            CLOSURE_OBJECTS_MAX + 1
        );
        let rows = control.rows(what, &sql).await?;
        found.cut = rows.len() > CLOSURE_OBJECTS_MAX;
        for row in rows.iter().take(CLOSURE_OBJECTS_MAX) {
            let (owner, body) = (words(row, 0), words(row, 2));
            let name = format!("{owner}.{}", words(row, 1));
            if owner == schema {
                let others = schemas.iter().filter(|other| *other != schema);
                if others.into_iter().any(|other| names(&body, other)) {
                    found.outward.insert(name);
                }
            } else if names(&body, schema) {
                found.inward.insert(name);
            }
        }
        Ok(())
    }
}

/// Whether a body has the schema's name, quoted or bare, with a dot behind it. Too often rather
/// than too seldom: comments and texts count.
fn names(body: &str, schema: &str) -> bool {
    let (body, schema) = (body.to_lowercase(), schema.to_lowercase());
    body.match_indices(&schema).any(|(at, _)| {
        let before = body[..at].chars().next_back();
        let after = body[at + schema.len()..].trim_start_matches('`').trim_start();
        let whole = !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '.'));
        whole && after.starts_with('.')
    })
}

fn list(names: &BTreeSet<String>) -> String {
    let more = if names.len() > NAMES_MAX { ", ..." } else { "" };
    let told: Vec<&str> = names.iter().take(NAMES_MAX).map(String::as_str).collect();
    format!("{}{more}", told.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_found_with_its_dot_only() {
        for body in ["select * from other.o", "select `other`.`o`.`i`", "insert into Other . o"] {
            assert!(names(body, "other"), "{body}");
        }
        for body in ["select other from t", "select x from another.o", "t.other.i", "mother.o"] {
            assert!(!names(body, "other"), "{body}");
        }
    }
}
