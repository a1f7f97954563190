//! What `ctl` asks of a target beside commands: capabilities, and questions of its validation.
//!
//! Purpose: a capability's secret goes to stdout and nowhere else, so that a script can keep it in
//! a variable; a question's rows are shown as tables. Neither has a command id: nothing is changed.
//! Called by `ctl`.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::args::{CapabilityArgs, QueryArgs, TargetArgs};
use super::super::exit;
use super::super::http::{Answer, Client, HttpError};
use super::super::table::Table;
use super::super::terminal::{Terminal, plain};
use super::{ASK_TIMEOUT, CtlError, cell, fence_path, outcome, text};

/// A little more than the proxy's own bound on a question's answer.
const QUERY_TIMEOUT: Duration = Duration::from_secs(330);

/// `ctl import-capability`
///
/// Cancel safety: it changes nothing but that a capability may live that nobody has. An answer that
/// is lost leaves the same, and says so.
pub(super) async fn capability(
    client: &Client,
    args: &CapabilityArgs,
    as_json: bool,
    terminal: &mut Terminal<'_>,
) -> Result<u8, CtlError> {
    let mut more = json!({});
    if let Some(purpose) = &args.purpose {
        more["purpose"] = json!(purpose);
    }
    let asked = ask(client, &args.target, "import-capability", more, ASK_TIMEOUT).await;
    let asked = asked.map_err(|error| match error {
        CtlError::NoAnswer(error @ (HttpError::Lost { .. } | HttpError::NotJson { .. })) => {
            CtlError::NoSecret { error, namespace: args.target.namespace.clone() }
        }
        CtlError::NoAnswer(_)
        | CtlError::NoSecret { .. }
        | CtlError::Unknown { .. }
        | CtlError::Unusable(_)
        | CtlError::Usage(_)
        | CtlError::Refused(_) => error,
    })?;
    let told = |body: &Value, terminal: &mut Terminal<'_>| {
        let (purpose, revision) = (text(body, "/purpose"), text(body, "/revision"));
        terminal.complain(&format!(
            "a capability for {purpose} at revision {revision} of {}; it is shown this once",
            args.target.namespace
        ));
        terminal.say(&text(body, "/secret"));
    };
    Ok(shown(&asked, as_json, terminal, told))
}

/// `ctl validation-query`
///
/// Cancel safety: it changes nothing.
pub(super) async fn query(
    client: &Client,
    args: &QueryArgs,
    as_json: bool,
    terminal: &mut Terminal<'_>,
) -> Result<u8, CtlError> {
    let more = json!({ "stmts": args.statements });
    let asked = ask(client, &args.target, "validation-query", more, QUERY_TIMEOUT).await?;
    let told = |body: &Value, terminal: &mut Terminal<'_>| {
        let results = body.get("results").and_then(Value::as_array);
        for (index, result) in results.into_iter().flatten().enumerate() {
            if index > 0 {
                terminal.say("");
            }
            terminal.say(&table(result));
        }
    };
    Ok(shown(&asked, as_json, terminal, told))
}

fn table(result: &Value) -> String {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let names: Vec<String> = list(&result["cols"]).iter().map(|one| cell(Some(one))).collect();
    let names: Vec<String> = names.iter().map(|name| plain(name)).collect();
    // The values are what was asked for; the proxy bounds how much it answers.
    let headings: Vec<_> = names.iter().map(String::as_str).collect();
    let mut table = Table::new(&headings).whole();
    for row in list(&result["rows"]) {
        table.row(list(&row).iter().map(|value| cell(Some(value))).collect());
    }
    table.render()
}

async fn ask(
    client: &Client,
    target: &TargetArgs,
    route: &str,
    more: Value,
    limit: Duration,
) -> Result<Answer, CtlError> {
    let fence = fence_path(&target.namespace);
    let revision = match target.revision {
        Some(revision) => revision,
        None => {
            let seen = client.get(&fence, ASK_TIMEOUT).await.map_err(CtlError::NoAnswer)?;
            let Some(revision) = seen.body.pointer("/fence/revision").and_then(Value::as_u64)
            else {
                return Ok(seen);
            };
            revision
        }
    };
    let mut body = more;
    body["operation_id"] = json!(target.operation.to_string());
    body["expected_revision"] = json!(revision);
    let path = format!("{fence}/target/{route}");
    client.post(&path, &body, limit).await.map_err(CtlError::NoAnswer)
}

fn shown(
    answer: &Answer,
    as_json: bool,
    terminal: &mut Terminal<'_>,
    told: impl Fn(&Value, &mut Terminal<'_>),
) -> u8 {
    let code = outcome::exit_code(answer);
    if as_json {
        terminal.say(&answer.body.to_string());
    } else if answer.status == 200 {
        told(&answer.body, terminal);
        return exit::DONE;
    } else {
        terminal.complain(&outcome::refusal(answer, None));
    }
    code
}
