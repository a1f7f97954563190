//! From an answer of the admin surface to an exit code and to what to do next.
//!
//! Purpose: one table for both. Called by the rest of `ctl`. It matches stable codes, never texts;
//! an answer without a code is judged by its HTTP status.

use serde_json::Value;

use super::super::exit;
use super::super::http::Answer;
use super::super::terminal::plain;
use super::text;

/// The stable code in an answer, or nothing.
pub(super) fn code(body: &Value) -> &str {
    body.get("outcome").and_then(Value::as_str).unwrap_or_default()
}

/// The exit code of a command's answer.
pub(super) fn exit_code(answer: &Answer) -> u8 {
    match code(&answer.body) {
        "APPLIED" | "ALREADY_APPLIED" => exit::DONE,
        "DRAINING" => exit::DRAINING,
        "FENCE_STATE_UNAVAILABLE" | "FENCE_COMMIT_INDETERMINATE" => exit::UNKNOWN,
        "" if answer.status < 300 => exit::DONE,
        "" if answer.status >= 500 || answer.status == 429 => exit::UNKNOWN,
        _ => exit::REFUSED,
    }
}

/// What to do about an answer that is no success. `replay` is the command line that sends the same
/// command again; questions have none.
pub(super) fn advice(answer: &Answer, replay: Option<&str>) -> String {
    let detail = answer.body.get("detail").and_then(Value::as_str).unwrap_or_default();
    let again = |why: &str| match replay {
        Some(replay) => format!("{why} Replay the same command:\n  {replay}"),
        None => why.to_owned(),
    };
    match (code(&answer.body), detail) {
        ("FENCE_COMMIT_INDETERMINATE", _) => again(
            "The proxy does not know whether a commit landed; until that is settled it takes only \
             a replay of that pending command.",
        ),
        ("FENCE_STATE_UNAVAILABLE", _) => again(
            "The fence's state can't be established, so everything is closed; see inspect and the \
             proxy's log.",
        ),
        ("FENCE_OWNED_BY_ANOTHER_OPERATION", _) => {
            "Another operation owns this fence; inspect names it. Let it finish, or send commands \
             under its id; if it is gone, ctl adopt gives the fence a new owner."
                .to_owned()
        }
        ("FENCE_REVISION_MISMATCH", _) => {
            "The fence changed in between; see inspect, then send a new command (without \
             --command)."
                .to_owned()
        }
        ("OPERATION_CAPABILITY_REQUIRED", _) => {
            "The target is not in a state for this, or what was asked is not a read; see inspect."
                .to_owned()
        }
        ("FENCE_COMMAND_CONFLICT", _) => {
            "This command id was used for another request. A replay needs the same options and the \
             same --expect; a new request needs a new id (leave --command out)."
                .to_owned()
        }
        ("INVALID_FENCE_TRANSITION", "operation_finished") => {
            "This operation has finished here; a new move needs a new operation id.".to_owned()
        }
        ("INVALID_FENCE_TRANSITION", _) => {
            "The fence is not in a state that this command starts from; see inspect.".to_owned()
        }
        ("FENCE_PRECONDITION_FAILED", "admin_auth_required") => {
            "The proxy has no admin key, so its command routes are off; set key_file or key_env \
             in its [admin] section."
                .to_owned()
        }
        ("FENCE_PRECONDITION_FAILED", "namespace_identity_mismatch") => {
            "The database is not the one that was inspected (restored, recreated or failed over?); \
             inspect it again before any command."
                .to_owned()
        }
        ("FENCE_PRECONDITION_FAILED", _) => {
            "Put the cause named above right, then send a new command.".to_owned()
        }
        // The answer has said what wasn't done, and why.
        ("ERROR", _) => again("Put the cause named above right."),
        (_, _) => by_status(answer.status, again),
    }
}

fn by_status(status: u16, again: impl Fn(&str) -> String) -> String {
    match status {
        401 | 403 => {
            "Set FENCEWIRE_ADMIN_KEY (or --key-file) to it; a generated one is admin.key in the \
             proxy's state directory."
                .to_owned()
        }
        404 => {
            "The proxy knows no such namespace, or its fence commands are off ([fence] enabled); \
             see ctl status."
                .to_owned()
        }
        status if status >= 500 || status == 429 => {
            again("The proxy could not answer; see its log.")
        }
        _ => "See the proxy's log for the reason.".to_owned(),
    }
}

/// An answer that is no success, as lines for people.
pub(super) fn refusal(answer: &Answer, replay: Option<&str>) -> String {
    let known = code(&answer.body);
    let head = if known.is_empty() { format!("HTTP {}", answer.status) } else { known.to_owned() };
    let mut line = plain(&head);
    let detail = text(&answer.body, "/detail");
    if detail != "-" {
        line.push_str(&format!(" ({})", plain(&detail)));
    }
    let error = text(&answer.body, "/error");
    if error != "-" {
        line.push_str(&format!(": {}", plain(&error)));
    }
    format!("{line}\n{}", advice(answer, replay))
}
