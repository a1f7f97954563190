//! What a console answers instead of rows.
//!
//! Purpose: one value with everything that either protocol shows: SQLSTATE, error number, sentence,
//! detail, hint, place. The contract's codes come from `fence/code.rs` (invariant 14); what is no
//! code of the contract (bad grammar, a name that isn't there, a question for a database) has the
//! standard one. Pure. Callers: the rest of `admin/console`.

use super::grammar::{FenceStatement, Wrong};
use crate::admin::door::Closed;
use crate::base::ids::{CommandId, Namespace};
use crate::control::answer::{Answer, AnswerCode};
use crate::control::status::InspectError;
use crate::control::targets::TargetError;
use crate::fence::code::{ControlCode, Detail};
use crate::store::StoreError;

/// An error of a console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Five characters.
    pub sqlstate: &'static str,
    /// MySQL's number.
    pub errno: u16,
    /// The status that admin HTTP has for it; for the metrics.
    pub status: u16,
    /// The sentence; behind a code of the contract where there is one.
    pub message: String,
    /// About which namespace, state, revision and command; the contract's detail.
    pub detail: Option<String>,
    /// What to do.
    pub hint: Option<String>,
    /// Where in the text, in characters from 1.
    pub position: Option<usize>,
}

const HELP: &str = "SHOW HELP lists every statement of this console.";

impl Failure {
    const fn plain(sqlstate: &'static str, errno: u16, status: u16, message: String) -> Self {
        Self { sqlstate, errno, status, message, detail: None, hint: None, position: None }
    }

    fn hinted(self, hint: &str) -> Self {
        Self { hint: Some(hint.to_owned()), ..self }
    }

    /// With a code of the contract.
    pub(super) fn coded(code: ControlCode, detail: Option<Detail>, message: &str) -> Self {
        Self {
            detail: detail.map(|detail| format!("detail {}", detail.name())),
            ..Self::plain(
                code.sqlstate(),
                code.errno(),
                code.http_status(),
                format!("{}: {message}", code.name()),
            )
            .hinted(code.hint())
        }
    }

    /// A precondition, found before a command reached `control`.
    pub(super) fn precondition(detail: Detail, message: &str) -> Self {
        Self::coded(ControlCode::PreconditionFailed, Some(detail), message)
    }

    /// A release of `source` that would have two sides take writes, and that wasn't sent. The
    /// code's own hint would have a new id used: there was none.
    pub(super) fn open_both(source: &Namespace, message: &str) -> Self {
        let failure = Self::precondition(Detail::InvalidArgument, message);
        let detail = failure.detail.unwrap_or_default();
        let hint = "Nothing was sent, and a command id that was told stands for nothing. INSPECT \
                    names the targets.";
        Self { detail: Some(format!("namespace {source}, {detail}")), ..failure }.hinted(hint)
    }

    /// A text that can't be read.
    pub(super) fn wrong(wrong: &Wrong) -> Self {
        let place = format!("{} (at character {})", wrong.message, wrong.position);
        let failure = match wrong.is_value {
            true => Self::precondition(Detail::InvalidArgument, &place),
            false => Self::plain("42601", 1064, 400, place).hinted(HELP),
        };
        Self { position: Some(wrong.position), ..failure }
    }

    /// A question for a database.
    pub(super) fn no_database() -> Self {
        let message = "this is Fencewire's admin console, not a database: it has no tables and no \
                       catalog, and answers SHOW, INSPECT and FENCE only";
        Self::plain("0A000", 1235, 400, message.to_owned()).hinted(HELP)
    }

    /// A setting that a client asked for and that isn't here.
    pub(super) fn no_setting(name: &str) -> Self {
        let name: String = name.chars().take(64).collect();
        let message = format!("this console has no setting {name:?}");
        Self::plain("42704", 1193, 400, message).hinted(HELP)
    }

    /// More prepared statements than a connection may have.
    pub(super) fn too_many(most: usize) -> Self {
        let message = format!(
            "this connection has {most} prepared statements already; close one, or send the text"
        );
        Self::plain("54000", 1461, 429, message)
    }

    /// Something of the protocol that this console doesn't do.
    pub(super) fn no_such_request(what: &str) -> Self {
        let message = format!("this console doesn't take {what}");
        Self::plain("0A000", 1047, 400, message).hinted(HELP)
    }

    /// The wait for an answer was given up; the command goes on.
    pub(super) fn cancelled(command: Option<CommandId>) -> Self {
        let (message, hint) = match command {
            None => ("the statement was cancelled".to_owned(), None),
            Some(id) => (
                format!("the wait was cancelled; command {id} goes on"),
                Some(format!("INSPECT shows where it is; COMMAND '{id}' waits for it again.")),
            ),
        };
        Self { hint, ..Self::plain("57014", 1317, 408, message) }
    }

    /// A closed door.
    pub(super) fn closed(why: &Closed) -> Self {
        match why {
            Closed::Off => Self::precondition(Detail::FenceDisabled, &why.to_string()),
            Closed::NoKey => Self::precondition(Detail::AdminAuthRequired, &why.to_string()),
            Closed::NoEngine(_) => Self::plain("3D000", 1049, 404, why.to_string())
                .hinted("SHOW NAMESPACES lists those that are known."),
        }
    }

    /// An inspection that shows nothing.
    pub(super) fn uninspected(error: &InspectError) -> Self {
        match error {
            InspectError::NotFound(_) | InspectError::NoEngine { .. } => {
                Self::plain("3D000", 1049, 404, error.to_string())
                    .hinted("SHOW NAMESPACES lists those that are known.")
            }
            InspectError::Store(StoreError::Corrupt { detail, .. }) => {
                Self::coded(ControlCode::StateUnavailable, Some(*detail), &error.to_string())
            }
            InspectError::Store(
                StoreError::Unavailable { .. }
                | StoreError::Inconsistent { .. }
                | StoreError::BadName { .. }
                | StoreError::Schema { .. },
            ) => Self::unavailable(error.to_string()),
        }
    }

    /// A capability that wasn't given out.
    pub(super) fn not_given(error: &TargetError, namespace: &Namespace) -> Self {
        match error {
            TargetError::Refused(refusal) => {
                let failure = Self::coded(refusal.code, refusal.detail, &refusal.message);
                let about = std::iter::once(format!("namespace {namespace}"));
                let about: Vec<String> = about.chain(failure.detail).collect();
                Self { detail: Some(about.join(", ")), ..failure }
            }
            TargetError::Failed(words) => Self::plain("58000", 1105, 503, words.clone())
                .hinted("Send the same statement again."),
        }
    }

    /// Neither done nor refused: the same again is right.
    pub(super) fn unavailable(message: String) -> Self {
        Self::plain("58000", 1105, 503, message)
            .hinted("Send the same command again, with the same COMMAND id.")
    }

    /// A command that was refused or couldn't be done.
    #[must_use]
    pub fn answered(answer: &Answer, statement: &FenceStatement, id: CommandId) -> Self {
        let message = answer.message.clone().unwrap_or_else(|| "no reason was given".to_owned());
        let failure = match answer.code {
            AnswerCode::Control(code) => Self::coded(code, answer.detail, &message),
            AnswerCode::Failed => Self::unavailable(message),
        };
        let mut about = vec![format!("namespace {}", statement.namespace)];
        if let Some(sight) = &answer.sight {
            about.push(format!("state {}, revision {}", sight.state.name(), sight.revision.0));
            let owner = sight.record.as_ref().map(|record| record.operation);
            about.extend(owner.map(|owner| format!("operation {owner}")));
        }
        about.push(format!("command {id}"));
        about.extend(failure.detail);
        Self { detail: Some(about.join(", ")), ..failure }
    }

    /// In one line, for a protocol that has no fields.
    #[must_use]
    pub fn one_line(&self) -> String {
        let more = [("", &self.detail), ("hint: ", &self.hint)];
        let more = more.iter().filter_map(|(label, text)| {
            text.as_ref().map(|text| format!("{label}{}", text.trim_end_matches('.')))
        });
        let more: Vec<String> = more.collect();
        match more.is_empty() {
            true => self.message.clone(),
            false => format!("{} ({})", self.message, more.join("; ")),
        }
    }
}
