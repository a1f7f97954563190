//! What a command waits for, told while it runs.
//!
//! Purpose: a drain may take its whole deadline, and whoever sent the command shall see meanwhile
//! who is in the way: a line at once when that changes, one now and then when it doesn't, and on a
//! terminal a live line beneath. All of it is on stderr. Called by `command`. It only asks and
//! prints; what the proxy doesn't answer leaves what was printed as it is.

use std::future::Future;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::super::http::{Answer, Client, HttpError};
use super::super::terminal::{Terminal, plain};
use super::command::millis;
use super::{ASK_TIMEOUT, fence_path, show, text};
use crate::base::ids::Namespace;

/// How often the proxy is asked.
const LIVE_INTERVAL: Duration = Duration::from_millis(500);
/// How often is said that nothing has changed.
const REMIND_INTERVAL: Duration = Duration::from_secs(10);
/// Blockers that are named; the others are counted.
const NAMED_MAX: usize = 5;
/// Characters of a line about a blocker.
const LINE_CHARS_MAX: usize = 160;

/// Waits for a command's answer and tells on stderr what it waits for.
///
/// Cancel safety: as the sending of a command: the command goes on at the proxy.
pub(super) async fn tell(
    client: &Client,
    namespace: &Namespace,
    answer: impl Future<Output = Result<Answer, HttpError>>,
    terminal: &mut Terminal<'_>,
) -> Result<Answer, HttpError> {
    let mut answer = std::pin::pin!(answer);
    let started = Instant::now();
    let fence = fence_path(namespace);
    let mut told = Told::default();
    loop {
        let next = async {
            tokio::time::sleep(LIVE_INTERVAL).await;
            client.get(&fence, ASK_TIMEOUT).await
        };
        tokio::select! {
            biased;
            answer = &mut answer => {
                terminal.live_line("");
                return answer;
            }
            seen = next => {
                // A question without an answer leaves the line as it is; the command's own
                // answer is what counts.
                let Ok(seen) = seen else { continue };
                let elapsed = started.elapsed();
                if let Some(lines) = told.news(namespace, &seen.body, elapsed, terminal.live) {
                    terminal.live_line("");
                    terminal.complain(&lines);
                }
                terminal.live_line(&live_line(namespace, &seen.body, elapsed));
            }
        }
    }
}

/// What was told last, and when.
#[derive(Default)]
struct Told {
    what: Option<String>,
    at: Duration,
}

impl Told {
    /// Lines to print, where something changed since the last ones, or they were long ago and no
    /// live line shows that time goes on.
    fn news(
        &mut self,
        namespace: &Namespace,
        body: &Value,
        elapsed: Duration,
        live: bool,
    ) -> Option<String> {
        let blockers = show::items(body, "/drain/blockers");
        let what = what(body, blockers);
        let same = self.what.as_ref() == Some(&what);
        if same && (live || elapsed.saturating_sub(self.at) < REMIND_INTERVAL) {
            return None;
        }
        let state = text(body, "/fence/state");
        // What was recorded before this command, if it isn't recorded yet.
        let still = if state.ends_with("DRAINING") { "" } else { "still " };
        let gone = show::age(millis(elapsed));
        let mut head = format!("{gone} gone: {namespace} is {still}{state}");
        head.push_str(&left(body, elapsed));
        head.push_str(&format!("; {}", waits_for(body, blockers)));
        let mut lines = vec![plain(&head)];
        if !same {
            lines.extend(named(body, blockers));
        }
        (self.what, self.at) = (Some(what), elapsed);
        Some(lines.join("\n"))
    }
}

/// What is to be told anew when it changes: ages and statements aren't.
fn what(body: &Value, blockers: &[Value]) -> String {
    let mut what = format!("{} {}", text(body, "/fence/state"), text(body, "/drain/reason"));
    if blockers.is_empty() {
        what.push_str(&text(body, "/drain/phase"));
    }
    for blocker in blockers {
        let of = |name: &str| text(blocker, &format!("/{name}"));
        what.push_str(&format!("|{} {} {}", of("session"), of("engine_pid"), of("class")));
    }
    what
}

/// In the words of somebody who doesn't know the phases.
fn waits_for(body: &Value, blockers: &[Value]) -> String {
    let more = body.pointer("/drain/more_blockers").and_then(Value::as_u64).unwrap_or(0);
    let count = blockers.len() as u64 + more;
    let reason = text(body, "/drain/reason");
    if count > 0 && reason != "-" {
        return format!("in the way: {count}; {reason}");
    }
    if count > 0 {
        return format!("in the way: {count}");
    }
    if reason != "-" {
        return reason;
    }
    match text(body, "/drain/phase").as_str() {
        "leases" => "waiting for the proxy's own sessions",
        "census" => "asking the engine who else is in the way",
        "engine_lock" => "taking the engine's locks",
        "boundary" => "reading the boundary, and asking the engine again",
        "completing" => "committing the proof",
        _ => "waiting for the answer",
    }
    .to_owned()
}

/// A line for each of the first blockers.
fn named(body: &Value, blockers: &[Value]) -> Vec<String> {
    let line = |blocker: &Value| {
        let of = |name: &str| text(blocker, &format!("/{name}"));
        let age = blocker.get("age_ms").and_then(Value::as_u64);
        let age = age.map_or_else(String::new, |age| format!(", {}", show::age(age)));
        let who = match of("session").as_str() {
            "-" => "not through the proxy".to_owned(),
            session => format!("session {session}"),
        };
        let line = format!(
            "  {who}, user {}, client {}, backend {}{age}: {}; {}",
            of("user"),
            of("client"),
            of("engine_pid"),
            of("why"),
            of("statement")
        );
        plain(&line).chars().take(LINE_CHARS_MAX).collect::<String>()
    };
    let mut lines: Vec<String> = blockers.iter().take(NAMED_MAX).map(line).collect();
    let more = body.pointer("/drain/more_blockers").and_then(Value::as_u64).unwrap_or(0);
    let more = blockers.len().saturating_sub(NAMED_MAX) as u64 + more;
    if more > 0 {
        lines.push(format!("  and {more} more (ctl inspect names them)"));
    }
    lines.extend(show::others_unasked(body).map(|note| format!("  {note}")));
    lines
}

/// The time to the deadline.
fn left(body: &Value, elapsed: Duration) -> String {
    let deadline = body.pointer("/drain/drain_policy/deadline_ms").and_then(Value::as_u64);
    let kept = || body.pointer("/fence/drain_policy/deadline_ms").and_then(Value::as_u64);
    match deadline.or_else(kept).map(|deadline| deadline.checked_sub(millis(elapsed))) {
        Some(Some(left)) => format!(", {} left", show::age(left)),
        Some(None) => ", past the deadline".to_owned(),
        None => String::new(),
    }
}

/// What a drain is waiting for, in one line of at most 78 characters.
fn live_line(namespace: &Namespace, body: &Value, elapsed: Duration) -> String {
    let blockers = show::items(body, "/drain/blockers");
    let age = |blocker: &Value| blocker.get("age_ms").and_then(Value::as_u64).unwrap_or(0);
    let noun = if blockers.len() == 1 { "blocker" } else { "blockers" };
    let mut line = format!("{}, {} {noun}", text(body, "/fence/state"), blockers.len());
    if let Some(oldest) = blockers.iter().max_by_key(|blocker| age(blocker)) {
        let session = text(oldest, "/session");
        line.push_str(&format!(", oldest {} (session {session})", show::age(age(oldest))));
    }
    line.push_str(&left(body, elapsed));
    line.push_str(&format!(": {namespace}"));
    plain(&line).chars().take(78).collect()
}
