//! Strict reading of a request's JSON body.
//!
//! Purpose: every mistake is answered with a sentence that names the field: an unknown one, a
//! missing one, a value of the wrong kind. `null` counts as absent. Pure.
//!
//! Callers: `admin/http/fences.rs`, `admin/http/targets.rs`.

use serde_json::{Map, Value};

use crate::base::ids::{CommandId, OperationId, Revision};
use crate::fence::record::{DrainPolicy, Identity, InFlight, OnDeadline, ValidationResult};
use crate::fence::state::FenceState;
use crate::fence::verdict::Purpose;

/// What is wrong with a body, in a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct BadBody(String);

/// One JSON object that is read field by field; what is left at the end is unknown.
pub(super) struct Fields {
    /// Where the object is, as `drain_policy.`; empty for the body itself.
    within: String,
    left: Map<String, Value>,
}

fn bad<T>(message: String) -> Result<T, BadBody> {
    Err(BadBody(message))
}

fn state(text: &str) -> Result<FenceState, BadBody> {
    let states = FenceState::ALL.map(FenceState::name).join(", ");
    let wrong = || bad(format!("field expected_state: {text:?} is no state; one of {states}"));
    FenceState::parse(text).map_or_else(wrong, Ok)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

impl Fields {
    /// Reads a body.
    pub(super) fn of_body(bytes: &[u8]) -> Result<Self, BadBody> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return bad("the body is empty; send a JSON object".to_owned());
        }
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(left)) => Ok(Self { within: String::new(), left }),
            Ok(other) => bad(format!("the body is {}; send a JSON object", kind(&other))),
            Err(error) => bad(format!("the body is not JSON: {error}")),
        }
    }

    fn name(&self, field: &str) -> String {
        format!("{}{field}", self.within)
    }

    fn optional(&mut self, field: &str) -> Option<Value> {
        #[cfg(test)]
        asked::note(self.name(field));
        self.left.remove(field).filter(|value| !value.is_null())
    }

    fn required(&mut self, field: &str) -> Result<Value, BadBody> {
        let name = self.name(field);
        self.optional(field).map_or_else(|| bad(format!("field {name} is missing")), Ok)
    }

    fn text(&self, field: &str, value: &Value) -> Result<String, BadBody> {
        let Some(text) = value.as_str() else {
            let name = self.name(field);
            return bad(format!("field {name} is {}; it must be a string", kind(value)));
        };
        Ok(text.to_owned())
    }

    fn number(&self, field: &str, value: &Value) -> Result<u64, BadBody> {
        value.as_u64().map_or_else(
            || {
                let name = self.name(field);
                bad(format!("field {name} must be a whole number from 0, not {value}"))
            },
            Ok,
        )
    }

    fn object(&self, field: &str, value: Value) -> Result<Self, BadBody> {
        let name = self.name(field);
        let Value::Object(left) = value else {
            return bad(format!("field {name} is {}; it must be an object", kind(&value)));
        };
        Ok(Self { within: format!("{name}."), left })
    }

    /// Everything must have been read.
    pub(super) fn done(self) -> Result<(), BadBody> {
        match self.left.keys().next() {
            Some(unknown) => bad(format!("field {} is unknown; leave it out", self.name(unknown))),
            None => Ok(()),
        }
    }

    /// `operation_id`.
    pub(super) fn operation(&mut self) -> Result<OperationId, BadBody> {
        let value = self.required("operation_id")?;
        let text = self.text("operation_id", &value)?;
        OperationId::parse(&text).or_else(|error| bad(format!("field operation_id: {error}")))
    }

    /// `command_id`.
    pub(super) fn command(&mut self) -> Result<CommandId, BadBody> {
        let value = self.required("command_id")?;
        let text = self.text("command_id", &value)?;
        CommandId::parse(&text).or_else(|error| bad(format!("field command_id: {error}")))
    }

    /// `expected_state` and `expected_revision`.
    pub(super) fn expectation(&mut self) -> Result<(FenceState, Revision), BadBody> {
        let value = self.required("expected_state")?;
        let text = self.text("expected_state", &value)?;
        let state = state(&text)?;
        Ok((state, self.revision()?))
    }

    /// A required string.
    pub(super) fn required_text(&mut self, field: &str) -> Result<String, BadBody> {
        let value = self.required(field)?;
        self.text(field, &value)
    }

    /// An optional string.
    pub(super) fn optional_text(&mut self, field: &str) -> Result<Option<String>, BadBody> {
        let value = self.optional(field);
        value.map(|value| self.text(field, &value)).transpose()
    }

    /// `result` of a validation.
    pub(super) fn validation_result(&mut self) -> Result<ValidationResult, BadBody> {
        let text = self.required_text("result")?;
        let wrong = || bad(format!("field result: {text:?} is none of ok, failed"));
        ValidationResult::parse(&text).map_or_else(wrong, Ok)
    }

    /// `expected_revision` by itself.
    pub(super) fn revision(&mut self) -> Result<Revision, BadBody> {
        let value = self.required("expected_revision")?;
        Ok(Revision(self.number("expected_revision", &value)?))
    }

    /// `expected_state` where it needn't be said.
    pub(super) fn optional_state(&mut self) -> Result<Option<FenceState>, BadBody> {
        let text = self.optional_text("expected_state")?;
        text.map(|text| state(&text)).transpose()
    }

    /// `purpose` of a capability; an import's unless it is said.
    pub(super) fn purpose(&mut self) -> Result<Purpose, BadBody> {
        let Some(text) = self.optional_text("purpose")? else { return Ok(Purpose::Import) };
        let wrong = || bad(format!("field purpose: {text:?} is none of import, validation"));
        Purpose::parse(&text).map_or_else(wrong, Ok)
    }

    /// `stmts`: a list of strings.
    pub(super) fn statements(&mut self) -> Result<Vec<String>, BadBody> {
        let Value::Array(items) = self.required("stmts")? else {
            return bad("field stmts must be a list of statements".to_owned());
        };
        items.iter().map(|item| self.text("stmts", item)).collect()
    }

    /// `current_operation_id`: whom the caller takes for the owner.
    pub(super) fn current_operation(&mut self) -> Result<OperationId, BadBody> {
        let text = self.required_text("current_operation_id")?;
        OperationId::parse(&text)
            .or_else(|error| bad(format!("field current_operation_id: {error}")))
    }

    /// `approvers`: a list of strings; how many there must be is the contract's to say.
    pub(super) fn approvers(&mut self) -> Result<Vec<String>, BadBody> {
        let Value::Array(items) = self.required("approvers")? else {
            return bad("field approvers must be a list of two names".to_owned());
        };
        items.iter().map(|item| self.text("approvers", item)).collect()
    }

    /// `expected_namespace_identity`.
    pub(super) fn identity(&mut self) -> Result<Identity, BadBody> {
        let field = "expected_namespace_identity";
        let value = self.required(field)?;
        let mut inner = self.object(field, value)?;
        let engine_id = inner.required("engine_id")?;
        let engine_id = inner.text("engine_id", &engine_id)?;
        let database_id = inner.required("database_id")?;
        let database_id = inner.text("database_id", &database_id)?;
        let timeline = match inner.optional("timeline") {
            None => None,
            Some(value) => {
                let number = inner.number("timeline", &value)?;
                let fits = u32::try_from(number);
                Some(fits.or_else(|_| bad(format!("field {field}.timeline is too large")))?)
            }
        };
        inner.done()?;
        Ok(Identity { engine_id, timeline, database_id })
    }

    /// `drain_policy`; absent is not the same as the default spelled out.
    pub(super) fn drain_policy(&mut self) -> Result<Option<DrainPolicy>, BadBody> {
        let Some(value) = self.optional("drain_policy") else {
            return Ok(None);
        };
        let mut inner = self.object("drain_policy", value)?;
        let deadline = inner.required("deadline_ms")?;
        let deadline_ms = inner.number("deadline_ms", &deadline)?;
        let on_deadline = match inner.optional("on_deadline") {
            None => OnDeadline::Fail,
            Some(value) => {
                let text = inner.text("on_deadline", &value)?;
                OnDeadline::parse(&text).map_or_else(
                    || {
                        bad(format!(
                            "field drain_policy.on_deadline: {text:?} is none of fail, \
                             force_rollback"
                        ))
                    },
                    Ok,
                )?
            }
        };
        let in_flight = match inner.optional("in_flight") {
            None => None,
            Some(value) => {
                let text = inner.text("in_flight", &value)?;
                let wrong = || {
                    bad(format!("field drain_policy.in_flight: {text:?} is none of finish, refuse"))
                };
                Some(InFlight::parse(&text).map_or_else(wrong, Ok)?)
            }
        };
        let hold_ms = match inner.optional("hold_ms") {
            None => None,
            Some(value) => Some(inner.number("hold_ms", &value)?),
        };
        inner.done()?;
        Ok(Some(DrainPolicy { deadline_ms, on_deadline, in_flight, hold_ms }))
    }
}

/// Which fields were asked for on this thread, so that the API's description can be held against
/// the reader.
#[cfg(test)]
pub(super) mod asked {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    thread_local! {
        static NAMES: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
    }

    pub(super) fn note(name: String) {
        NAMES.with_borrow_mut(|names| names.insert(name));
    }

    pub(in crate::admin::http) fn forget() {
        NAMES.with_borrow_mut(BTreeSet::clear);
    }

    pub(in crate::admin::http) fn names() -> BTreeSet<String> {
        NAMES.with_borrow(BTreeSet::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<(), BadBody> {
        let mut fields = Fields::of_body(body.as_bytes())?;
        fields.operation()?;
        fields.expectation()?;
        fields.drain_policy()?;
        fields.done()
    }

    const HEAD: &str = r#""operation_id": "6e0b8c7e-5d0f-4c7e-9d39-1d2b8f9f3a11""#;

    #[test]
    fn every_mistake_names_its_field() {
        let rest = r#""expected_state": "UNFENCED", "expected_revision": 0"#;
        for (body, names) in [
            (String::new(), "the body is empty"),
            ("[]".to_owned(), "an array"),
            ("{".to_owned(), "not JSON"),
            ("{}".to_owned(), "operation_id is missing"),
            (r#"{"operation_id": null}"#.to_owned(), "operation_id is missing"),
            (r#"{"operation_id": 7}"#.to_owned(), "operation_id is a number"),
            (r#"{"operation_id": "7"}"#.to_owned(), "operation_id: operation id"),
            (format!("{{{HEAD}}}"), "expected_state is missing"),
            (format!(r#"{{{HEAD}, "expected_state": "OPEN"}}"#), "UNFENCED, ABSENT"),
            (
                format!(r#"{{{HEAD}, "expected_state": "ABSENT", "expected_revision": -1}}"#),
                "expected_revision must be a whole number",
            ),
            (format!(r#"{{{HEAD}, {rest}, "x": 1}}"#), "field x is unknown"),
            (
                format!(r#"{{{HEAD}, {rest}, "drain_policy": {{"deadline": 1}}}}"#),
                "drain_policy.deadline_ms is missing",
            ),
            (
                format!(r#"{{{HEAD}, {rest}, "drain_policy": {{"deadline_ms": 1, "y": 1}}}}"#),
                "field drain_policy.y is unknown",
            ),
            (
                format!(
                    r#"{{{HEAD}, {rest},
                        "drain_policy": {{"deadline_ms": 1, "on_deadline": "kill"}}}}"#
                ),
                "none of fail",
            ),
        ] {
            let error = read(&body).unwrap_err().to_string();
            assert!(error.contains(names), "{body}: {error}");
        }
        assert_eq!(read(&format!(r#"{{{HEAD}, {rest}, "drain_policy": null}}"#)), Ok(()));
    }
}
