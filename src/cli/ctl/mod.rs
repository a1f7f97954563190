//! `fencewire ctl`: the admin surface from a shell.
//!
//! Purpose: finds the proxy and the key, runs one command, ends with the documented exit code.
//! `command` sends commands, `progress` says what they wait for meanwhile, `target` has what a
//! target knows beside commands, `show` asks and prints, `proof` tells what a proof rests on,
//! `outcome` turns answers into exit codes and advice. Called by `cli`. It decides nothing about
//! fences: what may be done is the proxy's say.

mod command;
mod outcome;
mod progress;
mod proof;
mod show;
mod target;

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::args::{AdoptArgs, CtlArgs, CtlCommand};
use super::http::{Client, HttpError, segment};
use super::terminal::Terminal;
use super::{exit, not_yet};
use crate::base::ids::Namespace;
use crate::base::secret::Secret;
use crate::config::{
    ADMIN_HTTP, ADMIN_KEY_VARIABLE, ADOPTION_KEY_VARIABLE, Machine, Surroundings as _,
};

/// Environment variable of the admin address.
const ADMIN_URL_VARIABLE: &str = "FENCEWIRE_ADMIN_URL";
/// Bound on a question's answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a command ended without the proxy's own answer.
#[derive(Debug, thiserror::Error)]
enum CtlError {
    /// It can't be sent like this.
    #[error("{0}")]
    Usage(String),
    /// No answer, and nothing changed.
    #[error(
        "{0}. Nothing was changed. Is the proxy running, and is FENCEWIRE_ADMIN_URL (or \
         --admin-url) its admin address?"
    )]
    NoAnswer(HttpError),
    /// No answer to a request for a capability.
    #[error(
        "{error}. Its secret is lost, and can't be asked for again. A capability that nobody has \
         may live now: it harms nobody, and ends with the target's next step. Ask for another one; \
         ctl inspect {namespace} lists those that live"
    )]
    NoSecret {
        /// What happened.
        error: HttpError,
        /// Whose.
        namespace: Namespace,
    },
    /// No answer, and the command may have been applied.
    #[error("{error}. The command may have been applied. Replay the same one:\n  {replay}")]
    Unknown {
        /// What happened.
        error: HttpError,
        /// The command line to run.
        replay: String,
    },
    /// An answer without what is needed from it.
    #[error("{0}")]
    Unusable(String),
    /// The engine's own refusal: asking again doesn't help, what it names must be put right.
    #[error("{0}")]
    Refused(String),
}

impl CtlError {
    fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => exit::USAGE,
            Self::NoAnswer(HttpError::BadAddress(_)) => exit::USAGE,
            Self::NoAnswer(
                HttpError::Unreachable { .. } | HttpError::Lost { .. } | HttpError::NotJson { .. },
            ) => exit::UNREACHABLE,
            Self::Unknown { .. } | Self::NoSecret { .. } | Self::Unusable(_) => exit::UNKNOWN,
            Self::Refused(_) => exit::REFUSED,
        }
    }
}

/// Runs one `ctl` command; the result is the exit code.
pub(super) fn run(args: &CtlArgs, terminal: &mut Terminal<'_>) -> u8 {
    let name = match &args.command {
        CtlCommand::Status
        | CtlCommand::Inspect(_)
        | CtlCommand::AcquireWriteFence(_)
        | CtlCommand::ReleaseWriteFence(_)
        | CtlCommand::SetReadFence(_)
        | CtlCommand::ClearReadFence(_)
        | CtlCommand::CreateQuarantined(_)
        | CtlCommand::ImportCapability(_)
        | CtlCommand::SealImport(_)
        | CtlCommand::ValidationQuery(_)
        | CtlCommand::Validate(_)
        | CtlCommand::Publish(_)
        | CtlCommand::EnableWrites(_)
        | CtlCommand::Abort(_)
        | CtlCommand::Adopt(_) => None,
        CtlCommand::Route(_) => Some("route"),
    };
    if let Some(name) = name {
        return not_yet(&format!("ctl {name}"), terminal);
    }
    let client = match client(args, terminal) {
        Ok(client) => client,
        Err(error) => return report(&error, args.json, terminal),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let error = CtlError::Usage(format!("the system gave no event queue: {error}"));
            return report(&error, args.json, terminal);
        }
    };
    let done = runtime.block_on(dispatch(args, &client, terminal));
    done.unwrap_or_else(|error| report(&error, args.json, terminal))
}

/// Cancel safety: dropping it leaves a command that was sent running at the proxy.
async fn dispatch(
    args: &CtlArgs,
    client: &Client,
    terminal: &mut Terminal<'_>,
) -> Result<u8, CtlError> {
    let request = match &args.command {
        CtlCommand::Status => return show::status(client, args.json, terminal).await,
        CtlCommand::Inspect(inspect) => {
            return show::inspect(client, inspect, args.json, terminal).await;
        }
        CtlCommand::ImportCapability(wanted) => {
            return target::capability(client, wanted, args.json, terminal).await;
        }
        CtlCommand::ValidationQuery(query) => {
            return target::query(client, query, args.json, terminal).await;
        }
        CtlCommand::Route(_) => return Ok(not_yet("ctl", terminal)),
        CtlCommand::AcquireWriteFence(acquire) => command::Request::acquire(acquire),
        CtlCommand::ReleaseWriteFence(release) => command::Request::release(release),
        CtlCommand::Adopt(adopt) => command::Request::adopt(adopt),
        CtlCommand::SetReadFence(set) => command::Request::set_read(set),
        CtlCommand::ClearReadFence(clear) => command::Request::clear_read(clear),
        CtlCommand::CreateQuarantined(create) => command::Request::create(create),
        CtlCommand::SealImport(seal) => command::Request::seal(seal),
        CtlCommand::Validate(validate) => command::Request::validate(validate),
        CtlCommand::Publish(publish) => command::Request::publish(publish),
        CtlCommand::EnableWrites(enable) => command::Request::enable(enable),
        CtlCommand::Abort(abort) => command::Request::abort(abort),
    };
    command::send(client, &request.found_by(args), args.json, terminal).await
}

fn client(args: &CtlArgs, terminal: &Terminal<'_>) -> Result<Client, CtlError> {
    let url = args.admin_url.clone().or_else(|| (terminal.variable)(ADMIN_URL_VARIABLE));
    let url = url.unwrap_or_else(|| format!("http://{ADMIN_HTTP}"));
    let key = match &args.key_file {
        Some(path) => key_of(path, "admin key")?,
        None => (terminal.variable)(ADMIN_KEY_VARIABLE).ok_or_else(|| {
            CtlError::Usage(format!(
                "the admin key is missing: set {ADMIN_KEY_VARIABLE}, or name its file with \
                 --key-file (a generated one is admin.key in the proxy's state directory)"
            ))
        })?,
    };
    let client =
        Client::new(&url, Secret::new(key)).map_err(|error| CtlError::Usage(error.to_string()))?;
    match &args.command {
        CtlCommand::Adopt(adopt) => Ok(client.with_adoption_key(adoption_key(adopt, terminal)?)),
        CtlCommand::Status
        | CtlCommand::Inspect(_)
        | CtlCommand::AcquireWriteFence(_)
        | CtlCommand::ReleaseWriteFence(_)
        | CtlCommand::SetReadFence(_)
        | CtlCommand::ClearReadFence(_)
        | CtlCommand::CreateQuarantined(_)
        | CtlCommand::ImportCapability(_)
        | CtlCommand::SealImport(_)
        | CtlCommand::ValidationQuery(_)
        | CtlCommand::Validate(_)
        | CtlCommand::Publish(_)
        | CtlCommand::EnableWrites(_)
        | CtlCommand::Abort(_)
        | CtlCommand::Route(_) => Ok(client),
    }
}

/// A key as its file has it, without the blanks around it.
fn key_of(path: &Path, what: &str) -> Result<String, CtlError> {
    let unreadable = |why: &str| {
        let path = path.display();
        CtlError::Usage(format!("{path}: the {what} can't be read from it: {why}"))
    };
    let bytes = Machine.read(path).map_err(|error| unreadable(&error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| unreadable("it is not text"))?;
    Ok(text.trim().to_owned())
}

/// The second key: from its file, the environment, or whoever sits at the terminal.
fn adoption_key(args: &AdoptArgs, terminal: &Terminal<'_>) -> Result<Secret, CtlError> {
    let given = match &args.second_key {
        Some(path) => Some(key_of(path, "adoption key")?),
        None => (terminal.variable)(ADOPTION_KEY_VARIABLE),
    };
    let asked = || {
        let prompt = "adoption key (it is not shown): ";
        rpassword::prompt_password(prompt).map_err(|error| {
            CtlError::Usage(format!(
                "the adoption key is missing: set {ADOPTION_KEY_VARIABLE}, name its file with \
                 --second-key, or run this at a terminal ({error})"
            ))
        })
    };
    Ok(Secret::new(given.map_or_else(asked, Ok)?.trim().to_owned()))
}

/// Shows an error that is not the proxy's own answer.
fn report(error: &CtlError, as_json: bool, terminal: &mut Terminal<'_>) -> u8 {
    if as_json {
        terminal.say(&json!({ "error": error.to_string() }).to_string());
    } else {
        terminal.complain(&error.to_string());
    }
    error.code()
}

/// The path of a namespace's fence.
fn fence_path(namespace: &Namespace) -> String {
    let (engine, database) = (namespace.engine().as_str(), namespace.database());
    format!("/v1/namespaces/{}/{}/fence", segment(engine), segment(database))
}

/// The text at a JSON pointer; numbers too, `-` when there is nothing.
fn text(value: &Value, pointer: &str) -> String {
    cell(value.pointer(pointer))
}

/// A value as a person reads it in a table cell.
fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => if *flag { "yes" } else { "no" }.to_owned(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Array(items)) => items.len().to_string(),
        Some(Value::Object(fields)) if fields.is_empty() => "-".to_owned(),
        Some(Value::Object(fields)) => {
            let pairs = fields.iter().map(|(key, value)| format!("{key} {}", cell(Some(value))));
            pairs.collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests;
