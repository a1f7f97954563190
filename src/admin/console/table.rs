//! Rows: what the admin API shows as JSON, as tables.
//!
//! Purpose: each table is a list of columns with a JSON pointer into the view that HTTP answers
//! with (`admin/view.rs`), so that both surfaces say the same, and hide the same literals. Pure.
//! Callers: `console/run.rs`, and the protocols for the columns of a statement that wasn't run yet.

use std::borrow::Cow;

use serde_json::Value;

use super::grammar::{Show, Statement};

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// A whole number.
    Int,
    /// Yes or no.
    Bool,
}

/// One column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: Cow<'static, str>,
    /// What it holds.
    pub kind: Kind,
}

/// One value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// None.
    Null,
    /// Of [`Kind::Text`].
    Text(String),
    /// Of [`Kind::Int`].
    Int(i64),
    /// Of [`Kind::Bool`].
    Bool(bool),
}

/// A result set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows, each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
}

/// A column and where its value is in the view.
type Place = (&'static str, Kind, &'static str);

/// What `SHOW` shows of each table where not every column is asked for: what fits a terminal.
const NAMESPACES: &[Place] = &[
    ("namespace", Kind::Text, "/namespace"),
    ("state", Kind::Text, "/state"),
    ("revision", Kind::Int, "/revision"),
    ("write", Kind::Text, "/admission/write"),
    ("read", Kind::Text, "/admission/read"),
    ("sessions", Kind::Int, "/sessions"),
    ("write_leases", Kind::Int, "/leases/write"),
    ("held", Kind::Int, "/held/programs"),
];
const FENCES: &[Place] = &[
    ("namespace", Kind::Text, "/namespace"),
    ("state", Kind::Text, "/state"),
    ("revision", Kind::Int, "/revision"),
    ("operation_id", Kind::Text, "/operation_id"),
    ("drain", Kind::Text, "/drain/phase"),
    ("blockers", Kind::Int, "/blockers"),
    ("detail", Kind::Text, "/detail"),
];
const SESSIONS: &[Place] = &[
    ("session", Kind::Int, "/session"),
    ("namespace", Kind::Text, "/namespace"),
    ("user", Kind::Text, "/user"),
    ("client", Kind::Text, "/client"),
    ("engine_pid", Kind::Int, "/engine_pid"),
    ("lease", Kind::Text, "/lease/class"),
    ("age_ms", Kind::Int, "/lease/age_ms"),
    ("held_ms", Kind::Int, "/held_ms"),
];
const DRAINS: &[Place] = &[
    ("namespace", Kind::Text, "/line/namespace"),
    ("phase", Kind::Text, "/line/drain/phase"),
    ("session", Kind::Int, "/blocker/session"),
    ("user", Kind::Text, "/blocker/user"),
    ("engine_pid", Kind::Int, "/blocker/engine_pid"),
    ("class", Kind::Text, "/blocker/class"),
    ("age_ms", Kind::Int, "/blocker/age_ms"),
    ("statement", Kind::Text, "/short"),
];
const RECEIPTS: &[Place] = &[
    ("namespace", Kind::Text, "/namespace"),
    ("command", Kind::Text, "/receipt/command"),
    ("outcome", Kind::Text, "/receipt/outcome"),
    ("revision", Kind::Int, "/receipt/revision_after"),
    ("state_after", Kind::Text, "/receipt/state_after"),
    ("applied_at", Kind::Text, "/receipt/applied_at"),
    ("error", Kind::Text, "/error"),
];

const NAMESPACES_ALL: &[Place] = &[
    ("namespace", Kind::Text, "/namespace"),
    ("state", Kind::Text, "/state"),
    ("revision", Kind::Int, "/revision"),
    ("write", Kind::Text, "/admission/write"),
    ("read", Kind::Text, "/admission/read"),
    ("sessions", Kind::Int, "/sessions"),
    ("write_leases", Kind::Int, "/leases/write"),
    ("read_leases", Kind::Int, "/leases/read"),
    ("held", Kind::Int, "/held/programs"),
    ("operation_id", Kind::Text, "/operation_id"),
    ("routes", Kind::Text, "/routes"),
    ("reason", Kind::Text, "/reason"),
];

const FENCES_ALL: &[Place] = &[
    ("namespace", Kind::Text, "/namespace"),
    ("state", Kind::Text, "/state"),
    ("revision", Kind::Int, "/revision"),
    ("operation_id", Kind::Text, "/operation_id"),
    ("write", Kind::Text, "/admission/write"),
    ("read", Kind::Text, "/admission/read"),
    ("drain", Kind::Text, "/drain/phase"),
    ("deadline_at", Kind::Text, "/drain/deadline_at"),
    ("blockers", Kind::Int, "/blockers"),
    ("held", Kind::Int, "/held/programs"),
    ("pending_command", Kind::Text, "/admission/pending_command/command_id"),
    ("detail", Kind::Text, "/detail"),
    ("reason", Kind::Text, "/reason"),
];

/// One row per live capability; `/line` is the target's line, `/capability` the capability.
const TARGETS: &[Place] = &[
    ("namespace", Kind::Text, "/line/namespace"),
    ("state", Kind::Text, "/line/state"),
    ("revision", Kind::Int, "/line/revision"),
    ("operation_id", Kind::Text, "/line/operation_id"),
    ("write", Kind::Text, "/line/admission/write"),
    ("read", Kind::Text, "/line/admission/read"),
    ("capability", Kind::Int, "/capability/number"),
    ("purpose", Kind::Text, "/capability/purpose"),
    ("issued_at", Kind::Text, "/capability/issued_at"),
    ("sessions", Kind::Int, "/capability/sessions"),
];

const SESSIONS_ALL: &[Place] = &[
    ("session", Kind::Int, "/session"),
    ("namespace", Kind::Text, "/namespace"),
    ("client", Kind::Text, "/client"),
    ("user", Kind::Text, "/user"),
    ("application_name", Kind::Text, "/application_name"),
    ("engine_pid", Kind::Int, "/engine_pid"),
    ("lease", Kind::Text, "/lease/class"),
    ("generation", Kind::Int, "/lease/generation"),
    ("age_ms", Kind::Int, "/lease/age_ms"),
    ("abandoned", Kind::Bool, "/abandoned"),
    ("held_ms", Kind::Int, "/held_ms"),
];

/// One row per blocker; `/line` is the namespace's line, `/blocker` the blocker.
const DRAINS_ALL: &[Place] = &[
    ("namespace", Kind::Text, "/line/namespace"),
    ("state", Kind::Text, "/line/state"),
    ("phase", Kind::Text, "/line/drain/phase"),
    ("command_id", Kind::Text, "/line/drain/command_id"),
    ("deadline_at", Kind::Text, "/line/drain/deadline_at"),
    ("session", Kind::Int, "/blocker/session"),
    ("client", Kind::Text, "/blocker/client"),
    ("user", Kind::Text, "/blocker/user"),
    ("application_name", Kind::Text, "/blocker/application_name"),
    ("engine_pid", Kind::Int, "/blocker/engine_pid"),
    ("class", Kind::Text, "/blocker/class"),
    ("age_ms", Kind::Int, "/blocker/age_ms"),
    ("statement", Kind::Text, "/blocker/statement"),
    ("why", Kind::Text, "/blocker/why"),
    ("more_blockers", Kind::Int, "/line/drain/more_blockers"),
    ("reason", Kind::Text, "/line/drain/reason"),
];

const RECEIPTS_ALL: &[Place] = &[
    ("namespace", Kind::Text, "/namespace"),
    ("operation_id", Kind::Text, "/receipt/operation_id"),
    ("command_id", Kind::Text, "/receipt/command_id"),
    ("command", Kind::Text, "/receipt/command"),
    ("outcome", Kind::Text, "/receipt/outcome"),
    ("revision_before", Kind::Int, "/receipt/revision_before"),
    ("revision_after", Kind::Int, "/receipt/revision_after"),
    ("state_after", Kind::Text, "/receipt/state_after"),
    ("applied_at", Kind::Text, "/receipt/applied_at"),
    ("instance_id", Kind::Text, "/receipt/instance_id"),
    ("error", Kind::Text, "/error"),
];

/// A command's answer: the view of it, with `namespace`, `operation`, `command` and `hint` beside.
const ANSWER: &[Place] = &[
    ("outcome", Kind::Text, "/answer/outcome"),
    ("namespace", Kind::Text, "/namespace"),
    ("state", Kind::Text, "/answer/fence/state"),
    ("revision", Kind::Int, "/answer/fence/revision"),
    ("operation_id", Kind::Text, "/operation"),
    ("command_id", Kind::Text, "/command"),
    ("replayed", Kind::Bool, "/answer/replayed"),
    ("state_after", Kind::Text, "/answer/receipt/state_after"),
    ("revision_after", Kind::Int, "/answer/receipt/revision_after"),
    ("boundary", Kind::Text, "/answer/fence/frozen_boundary/value"),
    ("blockers", Kind::Int, "/blockers"),
    ("reason", Kind::Text, "/answer/reason"),
    ("hint", Kind::Text, "/hint"),
];

/// A capability that was given out: what to show at a login first, whole on a terminal's line.
const GIVEN: &[Place] = &[
    ("capability", Kind::Text, "/secret"),
    ("purpose", Kind::Text, "/purpose"),
    ("revision", Kind::Int, "/revision"),
    ("number", Kind::Int, "/number"),
];

/// Names and values.
const PAIRS: &[Place] = &[("name", Kind::Text, "/0"), ("value", Kind::Text, "/1")];
const HELP: &[Place] = &[("statement", Kind::Text, "/0"), ("what_it_does", Kind::Text, "/1")];
const VERSION: &[Place] = &[("version", Kind::Text, "")];

const fn places(statement: &Statement) -> &'static [Place] {
    match statement {
        Statement::Empty | Statement::Other => &[],
        Statement::Inspect(_) => PAIRS,
        Statement::Fence(_) => ANSWER,
        Statement::Capability(_) => GIVEN,
        Statement::Show(Show::Verbose(show)) => shown(show, true),
        Statement::Show(show) => shown(show, false),
    }
}

const fn shown(show: &Show, all: bool) -> &'static [Place] {
    match (show, all) {
        (Show::Namespaces, false) => NAMESPACES,
        (Show::Namespaces, true) => NAMESPACES_ALL,
        (Show::Fences, false) => FENCES,
        (Show::Fences, true) => FENCES_ALL,
        (Show::Targets, _) => TARGETS,
        (Show::Sessions, false) => SESSIONS,
        (Show::Sessions, true) => SESSIONS_ALL,
        (Show::Drains, false) => DRAINS,
        (Show::Drains, true) => DRAINS_ALL,
        (Show::Receipts(_), false) => RECEIPTS,
        (Show::Receipts(_), true) => RECEIPTS_ALL,
        (Show::Capabilities | Show::Config | Show::Stats, _) => PAIRS,
        (Show::Help, _) => HELP,
        (Show::Version, _) => VERSION,
        // The grammar puts no box into a box.
        (Show::Verbose(_), _) => &[],
    }
}

/// The columns that a statement of ours answers with; none for those that answer no rows.
#[must_use]
pub fn columns(statement: &Statement) -> Vec<Column> {
    let column = |(name, kind, _): &Place| Column { name: Cow::Borrowed(name), kind: *kind };
    places(statement).iter().map(column).collect()
}

impl Table {
    /// The rows of a statement, each from one JSON value.
    #[must_use]
    pub fn of(statement: &Statement, rows: &[Value]) -> Self {
        let row = |value: &Value| {
            let cell = |(_, kind, at): &Place| cell(*kind, value.pointer(at));
            places(statement).iter().map(cell).collect()
        };
        Self { columns: columns(statement), rows: rows.iter().map(row).collect() }
    }

    /// One row of texts, or none.
    #[must_use]
    pub fn texts(columns: Vec<(String, Option<String>)>) -> Self {
        let (names, values): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let column = |name: String| Column { name: Cow::Owned(name), kind: Kind::Text };
        let cell = |value: Option<String>| value.map_or(Cell::Null, Cell::Text);
        Self {
            columns: names.into_iter().map(column).collect(),
            rows: vec![values.into_iter().map(cell).collect()],
        }
    }

    /// The same without its rows.
    #[must_use]
    pub fn without_rows(self) -> Self {
        Self { rows: Vec::new(), ..self }
    }
}

fn cell(kind: Kind, value: Option<&Value>) -> Cell {
    match (kind, value) {
        (_, None | Some(Value::Null)) => Cell::Null,
        // A list under a number is how many there are.
        (Kind::Int, Some(Value::Array(items))) => Cell::Int(number(items.len() as u64)),
        (Kind::Int, Some(value)) => match (value.as_i64(), value.as_u64()) {
            (Some(number), _) => Cell::Int(number),
            (None, Some(large)) => Cell::Int(number(large)),
            (None, None) => Cell::Null,
        },
        (Kind::Bool, Some(value)) => value.as_bool().map_or(Cell::Null, Cell::Bool),
        (Kind::Text, Some(value)) => Cell::Text(text(value)),
    }
}

fn number(large: u64) -> i64 {
    i64::try_from(large).unwrap_or(i64::MAX)
}

/// A value as people read it: lists of texts joined, anything deeper as JSON.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().all(|item| !item.is_object()) => {
            items.iter().map(text).collect::<Vec<_>>().join(", ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

/// A view as rows of names and values: `frozen_boundary.value`, `receipts.0.outcome`.
#[must_use]
pub fn flat(value: &Value) -> Vec<Value> {
    let mut rows = Vec::new();
    let mut left = vec![(String::new(), value)];
    // Deepest first, in order: what was pushed last is looked at next.
    while let Some((name, value)) = left.pop() {
        let inner = |part: &str| match name.is_empty() {
            true => part.to_owned(),
            false => format!("{name}.{part}"),
        };
        match value {
            Value::Object(fields) => {
                left.extend(fields.iter().rev().map(|(part, value)| (inner(part), value)));
            }
            Value::Array(items) if items.iter().any(Value::is_object) => {
                let numbered = items.iter().enumerate().rev();
                left.extend(numbered.map(|(index, value)| (inner(&index.to_string()), value)));
            }
            Value::Null => rows.push(serde_json::json!([name, null])),
            Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                rows.push(serde_json::json!([name, text(value)]));
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_view_is_flattened_in_order() {
        let view = json!({ "a": { "b": 1, "c": null }, "d": ["x", "y"], "e": [{ "f": true }] });
        let rows = flat(&view);
        let expected = [
            json!(["a.b", "1"]),
            json!(["a.c", null]),
            json!(["d", "x, y"]),
            json!(["e.0.f", "true"]),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn cells_take_their_columns_kind() {
        assert_eq!(cell(Kind::Int, Some(&json!([1, 2, 3]))), Cell::Int(3));
        assert_eq!(cell(Kind::Int, Some(&json!(u64::MAX))), Cell::Int(i64::MAX));
        assert_eq!(cell(Kind::Int, Some(&json!("x"))), Cell::Null);
        assert_eq!(cell(Kind::Bool, Some(&json!(true))), Cell::Bool(true));
        assert_eq!(cell(Kind::Text, Some(&json!(["a", "b"]))), Cell::Text("a, b".to_owned()));
        assert_eq!(cell(Kind::Text, Some(&json!({ "a": 1 }))), Cell::Text("{\"a\":1}".to_owned()));
        assert_eq!(cell(Kind::Text, None), Cell::Null);
    }

    #[test]
    fn every_row_is_as_long_as_its_columns() {
        let shows = [Show::Namespaces, Show::Fences, Show::Sessions, Show::Drains, Show::Version];
        let all = shows.iter().cloned().map(|show| Show::Verbose(Box::new(show)));
        for show in all.chain(shows.iter().cloned()) {
            let table = Table::of(&Statement::Show(show), &[json!({}), json!("x")]);
            assert!(!table.columns.is_empty());
            assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
        }
    }
}
