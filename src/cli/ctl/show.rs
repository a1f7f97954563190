//! Asking the proxy and printing what it says, for people or as JSON.
//!
//! Purpose: `status`, `inspect`, and the text of a command's answer. Called by the rest of `ctl`.
//! It prints what the proxy says and computes nothing of its own; a field that is absent shows as
//! `-`, so an older or newer proxy still gives a readable table.

use std::time::Duration;

use serde_json::Value;

use super::super::args::InspectArgs;
use super::super::exit;
use super::super::http::{Answer, Client};
use super::super::table::Table;
use super::super::terminal::{Terminal, plain};
use super::{ASK_TIMEOUT, CtlError, cell, fence_path, outcome, proof, text};
use crate::base::ids::Namespace;

/// How often `--watch` asks.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// `ctl status`
///
/// Cancel safety: it changes nothing.
pub(super) async fn status(
    client: &Client,
    as_json: bool,
    terminal: &mut Terminal<'_>,
) -> Result<u8, CtlError> {
    let answer = client.get("/v1/namespaces", ASK_TIMEOUT).await.map_err(CtlError::NoAnswer)?;
    Ok(shown(&answer, as_json, terminal, |body| {
        let headings = [
            "NAMESPACE",
            "STATE",
            "REV",
            "OPERATION",
            "WRITE",
            "READ",
            "SESSIONS",
            "LEASES",
            "BLOCKERS",
            "HELD",
            "ENGINE LOCK",
        ];
        let mut table = Table::new(&headings);
        let fields = [
            "/namespace",
            "/state",
            "/revision",
            "/operation_id",
            "/admission/write",
            "/admission/read",
            "/sessions",
            "/leases",
            "/blockers",
        ];
        for namespace in items(body, "/namespaces") {
            let mut row: Vec<_> = fields.iter().map(|field| text(namespace, field)).collect();
            row.push(held_in_short(namespace.get("held")));
            row.push(lock_in_short(namespace.get("engine_lock")));
            table.row(row);
        }
        if items(body, "/namespaces").is_empty() {
            return "The proxy has met no namespace yet: it meets one at its first session or \
                    command. To see one before that: fencewire ctl inspect ENGINE/DATABASE"
                .to_owned();
        }
        let mut parts = vec![table.render()];
        parts.extend(capabilities_of_all(body));
        parts.join("\n\n")
    }))
}

/// `ctl inspect`
///
/// Cancel safety: it changes nothing.
pub(super) async fn inspect(
    client: &Client,
    args: &InspectArgs,
    as_json: bool,
    terminal: &mut Terminal<'_>,
) -> Result<u8, CtlError> {
    let all = if args.receipts.is_some() { "?receipts=all" } else { "" };
    let path = format!("{}{all}", fence_path(&args.namespace));
    let mut last = None;
    loop {
        let answer = client.get(&path, ASK_TIMEOUT).await.map_err(CtlError::NoAnswer)?;
        if !args.watch || answer.status != 200 {
            let lines = |body: &Value| inspected(&args.namespace, body);
            return Ok(shown(&answer, as_json, terminal, lines));
        }
        let now = inspected(&args.namespace, &answer.body);
        if last.as_ref() != Some(&now) {
            if last.is_some() {
                terminal.say("");
            }
            terminal.say(&now);
            last = Some(now);
        }
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

/// Shows a question's answer: JSON as it came, lines for people, or the refusal.
fn shown(
    answer: &Answer,
    as_json: bool,
    terminal: &mut Terminal<'_>,
    lines: impl Fn(&Value) -> String,
) -> u8 {
    let code = outcome::exit_code(answer);
    if as_json {
        terminal.say(&answer.body.to_string());
    } else if answer.status == 200 {
        terminal.say(&lines(&answer.body));
        return exit::DONE;
    } else {
        terminal.complain(&outcome::refusal(answer, None));
    }
    code
}

pub(super) fn items<'b>(body: &'b Value, pointer: &str) -> &'b [Value] {
    body.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A time of milliseconds, short.
pub(super) fn age(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..120_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        120_000..7_200_000 => format!("{} min", millis / 60_000),
        _ => format!("{} h", millis / 3_600_000),
    }
}

/// Everything that `inspect` says.
fn inspected(namespace: &Namespace, body: &Value) -> String {
    let mut parts = vec![summary(namespace, body)];
    let blockers = blockers(body);
    if !blockers.is_empty() {
        parts.push(blockers);
        parts.extend(others_unasked(body).map(str::to_owned));
    }
    let live = items(body, "/fence/capabilities");
    if !live.is_empty() {
        parts.push(capabilities(live.iter().map(|one| (namespace.to_string(), one)).collect()));
    }
    let receipts = items(body, "/receipts");
    if !receipts.is_empty() {
        let fields = [
            "/command_id",
            "/command",
            "/outcome",
            "/revision_before",
            "/revision_after",
            "/state_after",
            "/applied_at",
            "/operation_id",
        ];
        let mut table = Table::new(&[
            "COMMAND ID",
            "COMMAND",
            "OUTCOME",
            "FROM",
            "TO",
            "STATE",
            "AT",
            "OPERATION",
        ]);
        for receipt in receipts {
            table.row(fields.iter().map(|field| text(receipt, field)).collect());
        }
        parts.push(table.render());
    }
    let unreadable = text(body, "/receipts_error");
    if unreadable != "-" {
        parts.push(format!("no receipts: {unreadable}"));
    }
    parts.join("\n\n")
}

/// The fence as `name value` lines; what does not apply is left out.
fn summary(namespace: &Namespace, body: &Value) -> String {
    let mut lines = vec![proof::line("namespace", &namespace.to_string())];
    let mut line = |name: &str, value: String| {
        if value != "-" {
            lines.push(proof::line(name, &value));
        }
    };
    let of = |pointer: &str| text(body, pointer);
    line("state", joined(body, &[("", "/fence/state"), ("revision", "/fence/revision")]));
    if of("/fence/state") == "TARGET_ABORTED" {
        line("note", ABORTED_STAYS.to_owned());
    }
    line("why", joined(body, &[("", "/fence/detail"), ("", "/fence/reason")]));
    line("operation", of("/fence/operation_id"));
    let admission = [
        ("write", "/fence/admission/write"),
        ("read", "/fence/admission/read"),
        ("generation", "/fence/admission/generation"),
    ];
    line("admission", joined(body, &admission));
    if body.pointer("/fence/admission/indeterminate").and_then(Value::as_bool) == Some(true) {
        let of = |name: &str| of(&format!("/fence/admission/pending_command/{name}"));
        let (operation, command) = (of("operation_id"), of("command_id"));
        let ids = format!("--operation {operation} --command {command}");
        line("pending", format!("a commit is not settled: replay its command, {ids}"));
    }
    let incarnation = [
        ("engine", "/fence/incarnation/engine_id"),
        ("timeline", "/fence/incarnation/timeline"),
        ("database", "/fence/incarnation/database_id"),
    ];
    let identity = joined(body, &incarnation);
    let silence = of("/identity_error");
    let unknown = match silence.as_str() {
        "-" => "the engine did not say which database this is; see the proxy's log",
        told => told,
    };
    let known = identity != "-";
    line("identity", if known { identity } else { format!("not known: {}", plain(unknown)) });
    let live = if known && silence != "-" { plain(&silence) } else { live_engine(body) };
    line("live engine", live);
    line("since", of("/fence/last_transition_at"));
    line("held", held(body.pointer("/fence/held")));
    line("drain", drain(body));
    line("waits for", of("/drain/reason"));
    line("as of", last_look(body));
    line("policy", policy(body));
    line("validation", of("/fence/validation/result"));
    line("BEWARE", beside(body));
    line("boundary", proof::boundary(body));
    line("lock now", lock_now(body));
    lines.extend(lock_gaps(body));
    let mut proven = proof::lines(body);
    let whose = match of("/fence/state").as_str() {
        "RELEASED" => Some("of the fence that has been released since:"),
        "TARGET_WRITE_FENCED" | "TARGET_WRITABLE" | "TARGET_ABORTED" => {
            Some("of the seal, which ended the import:")
        }
        _ => None,
    };
    if let Some(whose) = whose.filter(|_| !proven.is_empty()) {
        lines.push(proof::line("proof", whose));
    }
    lines.append(&mut proven);
    lines.join("\n")
}

/// What a release of this source would open it beside; `-` where there is nothing.
fn beside(body: &Value) -> String {
    let targets = writable_targets(body);
    if targets.is_empty() {
        return "-".to_owned();
    }
    format!(
        "its operation has enabled writes of {}: releasing this one lets both take writes",
        targets.join(", ")
    )
}

/// Targets of the fence's operation that take writes, or may.
pub(super) fn writable_targets(body: &Value) -> Vec<String> {
    let names = items(body, "/fence/writable_targets").iter();
    names.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Labelled values that are there, separated by commas; `-` when none is.
fn joined(body: &Value, parts: &[(&str, &str)]) -> String {
    let known: Vec<_> = parts
        .iter()
        .map(|(label, pointer)| (label, text(body, pointer)))
        .filter(|(_, value)| value != "-")
        .map(|(label, value)| format!("{label} {value}").trim().to_owned())
        .collect();
    if known.is_empty() { "-".to_owned() } else { known.join(", ") }
}

/// What answers under the fence's name now, where that isn't what the fence is about.
fn live_engine(body: &Value) -> String {
    let fields = ["engine_id", "timeline", "database_id"];
    let of = |pointer: &str, field: &str| text(body, &format!("{pointer}/{field}"));
    let (fenced, live) = ("/fence/incarnation", "/fence/incarnation/current");
    let same = |field: &str| of(fenced, field) == of(live, field);
    if of(live, "engine_id") == "-" || fields.iter().all(|field| same(field)) {
        return "-".to_owned();
    }
    let parts = [
        ("engine", "/fence/incarnation/current/engine_id"),
        ("timeline", "/fence/incarnation/current/timeline"),
        ("database", "/fence/incarnation/current/database_id"),
    ];
    format!("DIFFERS: {}; nothing that the fence says is about it", joined(body, &parts))
}

/// How many programs wait at the gate, and the longest wait.
fn held_in_short(held: Option<&Value>) -> String {
    let number = |name: &str| held.and_then(|held| held.get(name)).and_then(Value::as_u64);
    match (number("programs"), number("oldest_ms")) {
        (Some(programs), Some(oldest)) => format!("{programs}, {}", age(oldest)),
        (Some(programs), None) => programs.to_string(),
        (None, _) => "-".to_owned(),
    }
}

/// Whether the engine's tables are locked for a fence, in a cell; `-` where no lock is wanted.
fn lock_in_short(lock: Option<&Value>) -> String {
    match lock.and_then(|lock| lock.get("held")).and_then(Value::as_bool) {
        None => "-",
        Some(true) => "held",
        Some(false) => "NOT HELD",
    }
    .to_owned()
}

/// As [`held_in_short`], in words and with the rule; `-` where nothing is held or would be.
fn held(held: Option<&Value>) -> String {
    let number = |name: &str| held.and_then(|held| held.get(name)).and_then(Value::as_u64);
    let (Some(programs), Some(hold)) = (number("programs"), number("hold_ms")) else {
        return "-".to_owned();
    };
    let since = match (number("oldest_ms"), held.and_then(|held| held.get("since"))) {
        (Some(oldest), Some(since)) => {
            format!(", the first for {} (since {})", age(oldest), cell(Some(since)))
        }
        (_, _) => String::new(),
    };
    let most = number("max_held").map(|most| format!(", at most {most} for {}", age(hold)));
    match (programs, hold) {
        (0, 0) => "-".to_owned(),
        (_, _) => {
            let programs =
                if programs == 1 { "1 program".into() } else { format!("{programs} programs") };
            format!("{programs}{since}{}", most.unwrap_or_default())
        }
    }
}

/// Who is still inside, and where a running drain stands.
fn drain(body: &Value) -> String {
    let phase = text(body, "/drain/phase");
    let state = text(body, "/fence/state");
    if phase == "idle" && ["SOURCE_DRAINING", "SOURCE_READ_DRAINING"].contains(&state.as_str()) {
        return "nobody waits for it now: replay the last command to go on".to_owned();
    }
    let mut parts = vec![
        ("writers", "/drain/active_writers"),
        ("readers", "/drain/read_leases/sql"),
        ("dumps", "/drain/read_leases/dump"),
        ("streams", "/drain/read_leases/replication"),
    ];
    if phase != "idle" {
        parts.push(("phase", "/drain/phase"));
        parts.push(("until", "/drain/deadline_at"));
    }
    joined(body, &parts)
}

/// When what is shown of the engine was seen, where nobody asks it now; `-` where somebody does.
fn last_look(body: &Value) -> String {
    match text(body, "/drain/blockers_as_of").as_str() {
        "-" => "-".to_owned(),
        at => format!("{at}: what the engine said when it was last asked; a replay asks it again"),
    }
}

/// The drain's policy in words.
fn policy(body: &Value) -> String {
    let Some(policy) = body.pointer("/fence/drain_policy").filter(|policy| policy.is_object())
    else {
        return "-".to_owned();
    };
    let mut words = match policy.get("deadline_ms").and_then(Value::as_u64) {
        Some(deadline) => format!("after {} ", age(deadline)),
        None => String::new(),
    };
    match policy.get("on_deadline").and_then(Value::as_str) {
        Some("force_rollback") => words.push_str("roll back what still writes"),
        Some("fail") => words.push_str("answer DRAINING and stay closed"),
        other => words.push_str(other.unwrap_or("-")),
    }
    for (name, field) in [("in flight", "in_flight"), ("hold ms", "hold_ms")] {
        let value = cell(policy.get(field));
        if value != "-" {
            words.push_str(&format!(", {name} {value}"));
        }
    }
    words
}

/// The engine lock as it is now, which may differ from what the proof saw.
fn lock_now(body: &Value) -> String {
    match body.pointer("/fence/engine_lock/held").and_then(Value::as_bool) {
        None => "-".to_owned(),
        Some(true) => format!("held, {} tables", text(body, "/fence/engine_lock/tables")),
        Some(false) => "NOT held; the proxy keeps trying, see its log".to_owned(),
    }
}

/// When the lock was missing while the fence stood: what the proof says holds for its moment.
fn lock_gaps(body: &Value) -> Vec<String> {
    let gaps = items(body, "/fence/engine_lock/gaps");
    proof::lock_gaps(gaps.iter().filter_map(Value::as_str))
}

/// Whether any blocker is a session of the proxy.
pub(super) fn blocked_by_sessions(body: &Value) -> bool {
    let session = |blocker: &Value| blocker.get("session").is_some_and(Value::is_u64);
    items(body, "/drain/blockers").iter().any(session)
}

/// The live capabilities of every namespace, where there is one.
fn capabilities_of_all(body: &Value) -> Option<String> {
    let lines = items(body, "/namespaces").iter();
    let all: Vec<_> = lines
        .flat_map(|line| {
            let name = text(line, "/namespace");
            items(line, "/capabilities").iter().map(move |one| (name.clone(), one))
        })
        .collect();
    (!all.is_empty()).then(|| capabilities(all))
}

/// A table of live capabilities. What would let somebody show one isn't known any more.
fn capabilities(all: Vec<(String, &Value)>) -> String {
    let headings =
        ["CAPABILITY", "OF", "PURPOSE", "OPERATION", "REV", "ISSUED AT", "SESSIONS THAT BEAR IT"];
    let mut table = Table::new(&headings);
    for (namespace, one) in all {
        let of = |name: &str| cell(one.get(name));
        table.row(vec![
            of("number"),
            namespace,
            of("purpose"),
            of("operation_id"),
            of("revision"),
            of("issued_at"),
            of("sessions"),
        ]);
    }
    table.render()
}

/// What blockers don't tell yet: while sessions of the proxy write, the engine isn't asked.
pub(super) fn others_unasked(body: &Value) -> Option<&'static str> {
    let early = |blocker: &Value| {
        let class = blocker.get("class").and_then(Value::as_str);
        class.is_some_and(|class| matches!(class, "writer" | "reader" | "login"))
    };
    let write_drain = text(body, "/fence/state") != "SOURCE_READ_DRAINING";
    (write_drain && items(body, "/drain/blockers").iter().any(early)).then_some(
        "These are the proxy's own sessions. The engine is asked about all others once they have \
         ended, and may name more then.",
    )
}

/// A table of what blocks the drain, or nothing.
fn blockers(body: &Value) -> String {
    let blockers = items(body, "/drain/blockers");
    if blockers.is_empty() {
        return String::new();
    }
    let headings =
        ["SESSION", "CLIENT", "USER", "APPLICATION", "PID", "CLASS", "AGE", "WHY", "STATEMENT"];
    let mut table = Table::new(&headings);
    for blocker in blockers {
        let of = |name: &str| cell(blocker.get(name));
        let since = blocker.get("age_ms").and_then(Value::as_u64);
        table.row(vec![
            of("session"),
            of("client"),
            of("user"),
            of("application_name"),
            of("engine_pid"),
            of("class"),
            since.map_or_else(|| "-".to_owned(), age),
            of("why"),
            Some(of("statement")).filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table.render()
}

/// What an aborted target is good for.
const ABORTED_STAYS: &str = "it stays closed, and its name isn't freed: drop the database around \
                             the proxy; the next target needs another name";

/// Whose the evidence of a target's record is.
const SEALS_PROOF: &str =
    "of the seal, which ended the import; this command has proven nothing anew:";

/// What a command's answer is the answer to, as far as its text depends on that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// One that makes a proof, or that has none to show.
    Itself,
    /// One behind a seal, whose record carries the seal's proof.
    BehindASeal,
    /// A validation that is recorded, which is one as well.
    Validation,
}

impl Told {
    const fn is_behind_a_seal(self) -> bool {
        match self {
            Self::Itself => false,
            Self::BehindASeal | Self::Validation => true,
        }
    }
}

/// What was recorded, where the code alone would say less.
fn told_of(what: Told, body: &Value) -> String {
    match what {
        Told::Itself | Told::BehindASeal => String::new(),
        Told::Validation => match text(body, "/fence/validation/result").as_str() {
            "failed" => ": recorded that the validation FAILED".to_owned(),
            result => format!(": recorded that the validation is {result}"),
        },
    }
}

/// The answer of a command that was applied, or that drains.
pub(super) fn applied(namespace: &Namespace, what: Told, body: &Value) -> String {
    let how = if is_replayed(body) { ", replayed" } else { "" };
    let (state, revision) = (text(body, "/fence/state"), text(body, "/fence/revision"));
    let code = outcome::code(body);
    let told = told_of(what, body);
    let head = format!("{namespace} is {state} at revision {revision} ({code}{how}{told})");
    let mut lines = vec![plain(&head)];
    if let Some(note) = overtaken(body).filter(|_| is_history(body)) {
        lines.push(plain(&note));
        return lines.join("\n");
    }
    let blockers = blockers(body);
    let note = text(body, "/reason");
    if code != "DRAINING" && note != "-" {
        lines.push(proof::line("note", &note));
    }
    if code == "DRAINING" {
        let specific = text(body, "/drain/reason");
        let why = if specific == "-" { text(body, "/reason") } else { specific };
        // Without a reason of its own, the table below says it all.
        if why != "-" && (blockers.is_empty() || why == text(body, "/drain/reason")) {
            lines.push(proof::line("waits for", &why));
        }
    } else if state != "RELEASED" {
        let mut proven = Vec::new();
        let boundary = proof::boundary(body);
        if boundary != "-" {
            proven.push(proof::line("boundary", &boundary));
        }
        proven.append(&mut proof::lines(body));
        if what.is_behind_a_seal() && !proven.is_empty() {
            lines.push(proof::line("proof", SEALS_PROOF));
        }
        lines.append(&mut proven);
        lines.extend(lock_gaps(body));
    }
    if !blockers.is_empty() {
        lines.push(String::new());
        lines.push(blockers);
        lines.extend(others_unasked(body).map(str::to_owned));
    }
    lines.join("\n")
}

fn is_replayed(body: &Value) -> bool {
    body.get("replayed").and_then(Value::as_bool) == Some(true)
}

/// Whether an answer is of the past: a replay's, of a command that something else has overtaken, or
/// a drain's that was overtaken while it ran.
pub(super) fn is_history(body: &Value) -> bool {
    let known = text(body, "/fence/state") != "UNKNOWN_UNAVAILABLE";
    let drained = outcome::code(body) == "DRAINING" && known;
    (is_replayed(body) || drained) && overtaken(body).is_some()
}

/// What to say when an answer's command is no longer what is true: the state is another one, the
/// fence another operation's, or the drain another command's.
fn overtaken(body: &Value) -> Option<String> {
    let differ = |one: &str, other: &str| one != "-" && other != "-" && one != other;
    let (then, now) = (text(body, "/receipt/state_after"), text(body, "/fence/state"));
    let (own, owner) = (text(body, "/receipt/operation_id"), text(body, "/fence/operation_id"));
    let (at, revision) = (text(body, "/receipt/revision_after"), text(body, "/fence/revision"));
    let anothers = differ(&own, &owner);
    let drains_anew = outcome::code(body) == "DRAINING" && differ(&at, &revision);
    if !differ(&then, &now) && !anothers && !drains_anew {
        return None;
    }
    let whose = if anothers { format!(" of operation {owner}") } else { String::new() };
    Some(if is_replayed(body) {
        format!(
            "OUTDATED: this command took effect at revision {at} ({then}); the fence has changed \
             since, and nothing was done now. What holds is {now}{whose}."
        )
    } else {
        format!(
            "OVERTAKEN: this command took effect at revision {at} ({then}), and a later command \
             has changed the fence while it drained. What holds is {now}{whose}."
        )
    })
}
