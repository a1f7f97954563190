//! Sending a fence command: expectation, request, answer.
//!
//! Purpose: a command can be replayed from what was printed, whatever happens after it was sent.
//! Its id is printed before anything is sent; what it expects of the fence is read from the proxy,
//! and for a replay taken from the receipt, since the same id with another expectation would be
//! another request.
//! Called by `ctl`. The answer comes when the drain is proven or its deadline has passed; nothing
//! here ends a drain, and an interrupted `ctl` leaves it running.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::args::{
    AcquireArgs, AdoptArgs, CommandArgs, CreateArgs, CtlArgs, CtlCommand, Expectation, ReleaseArgs,
    SealArgs, SetReadArgs, ValidateArgs,
};
use super::super::exit;
use super::super::http::{Answer, Client, HttpError};
use super::super::terminal::{Terminal, plain};
use super::show::Told;
use super::{ASK_TIMEOUT, CtlError, fence_path, outcome, progress, show, text};
use crate::base::ids::{CommandId, Namespace, OperationId};

/// A drain policy's deadline when options ask for a policy without naming one.
const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);
/// What the proxy may need beyond a deadline: forcing, a second wait, the census, two commits.
const ANSWER_GRACE: Duration = Duration::from_secs(120);
/// Bound on the answer when the deadline is the proxy's own, which is at most a day but is known
/// to be longer than this only by whoever set it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3600);

/// Which command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Acquire,
    Release,
    SetRead,
    ClearRead,
    Create,
    Seal,
    Validate,
    Publish,
    Enable,
    Abort,
    Adopt,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Acquire => "acquire-write-fence",
            Self::Release => "release-write-fence",
            Self::SetRead => "set-read-fence",
            Self::ClearRead => "clear-read-fence",
            Self::Create => "create-quarantined",
            Self::Seal => "seal-import",
            Self::Validate => "validate",
            Self::Publish => "publish",
            Self::Enable => "enable-writes",
            Self::Abort => "abort",
            Self::Adopt => "adopt",
        }
    }

    /// Below the namespace's fence.
    const fn route(self) -> &'static str {
        match self {
            Self::Acquire => "source/acquire-write-fence",
            Self::Release => "source/release-write-fence",
            Self::SetRead => "source/set-read-fence",
            Self::ClearRead => "source/clear-read-fence",
            Self::Create => "target/create-quarantined",
            Self::Seal => "target/seal-import",
            Self::Validate => "target/validation-receipt",
            Self::Publish => "target/publish-readable",
            Self::Enable => "target/enable-writes",
            Self::Abort => "target/abort",
            Self::Adopt => "adopt",
        }
    }

    /// The command that gives up what this one's drain is about.
    const fn undo(self) -> Self {
        match self {
            Self::SetRead => Self::ClearRead,
            Self::Seal => Self::Abort,
            Self::Acquire
            | Self::Release
            | Self::ClearRead
            | Self::Create
            | Self::Validate
            | Self::Publish
            | Self::Enable
            | Self::Abort
            | Self::Adopt => Self::Release,
        }
    }

    /// States that the command can have started from, likeliest first, for a replay.
    const fn starts(self) -> &'static [&'static str] {
        match self {
            Self::Acquire => {
                &["RELEASED", "TARGET_WRITABLE", "SOURCE_DRAINING", "SOURCE_WRITE_FENCED"]
            }
            Self::Release => &["SOURCE_WRITE_FENCED", "SOURCE_DRAINING", "RELEASED"],
            Self::SetRead => &["SOURCE_WRITE_FENCED", "SOURCE_READ_DRAINING", "SOURCE_READ_FENCED"],
            Self::ClearRead => {
                &["SOURCE_READ_FENCED", "SOURCE_READ_DRAINING", "SOURCE_WRITE_FENCED"]
            }
            Self::Create => &["ABSENT"],
            Self::Seal => &["TARGET_QUARANTINED", "TARGET_IMPORT_DRAINING", "TARGET_VALIDATING"],
            Self::Validate => &["TARGET_VALIDATING"],
            Self::Publish => &["TARGET_VALIDATING", "TARGET_WRITE_FENCED"],
            Self::Enable => &["TARGET_WRITE_FENCED", "TARGET_WRITABLE"],
            Self::Abort => &[
                "TARGET_QUARANTINED",
                "TARGET_IMPORT_DRAINING",
                "TARGET_VALIDATING",
                "TARGET_WRITE_FENCED",
                "TARGET_ABORTED",
            ],
            Self::Adopt => &[
                "SOURCE_WRITE_FENCED",
                "SOURCE_DRAINING",
                "SOURCE_READ_FENCED",
                "SOURCE_READ_DRAINING",
                "TARGET_QUARANTINED",
                "TARGET_IMPORT_DRAINING",
                "TARGET_VALIDATING",
                "TARGET_WRITE_FENCED",
            ],
        }
    }
}

/// One command as asked for.
pub(super) struct Request {
    kind: Kind,
    namespace: Namespace,
    operation: OperationId,
    command: CommandId,
    /// Whether `command` was given, so that this may be a replay.
    replayed: bool,
    expect: Option<Expectation>,
    deadline: Option<Duration>,
    force_rollback: bool,
    hold: Option<Duration>,
    adoption: Option<Adoption>,
    /// Whether a release may open a source beside a target that takes writes.
    beside_target: bool,
    /// Fields of text, each under the name of its option.
    texts: Vec<(&'static str, String)>,
    /// The options by which `ctl` found the proxy and the keys, for the lines that it prints.
    found_by: String,
}

/// Who takes over from whom, and why.
struct Adoption {
    from: OperationId,
    approvers: Vec<String>,
    incident: String,
    reason: String,
}

impl Request {
    fn new(kind: Kind, args: &CommandArgs) -> Self {
        Self {
            kind,
            namespace: args.namespace.clone(),
            operation: args.operation,
            command: args.command.unwrap_or_else(CommandId::fresh),
            replayed: args.command.is_some(),
            expect: args.expect.clone(),
            deadline: None,
            force_rollback: false,
            hold: None,
            adoption: None,
            beside_target: false,
            texts: Vec::new(),
            found_by: String::new(),
        }
    }

    /// `create-quarantined`
    pub(super) fn create(args: &CreateArgs) -> Self {
        let CreateArgs { common, owner, encoding, locale, template } = args;
        let given =
            [("owner", owner), ("encoding", encoding), ("locale", locale), ("template", template)];
        let texts = given.into_iter().filter_map(|(name, text)| Some((name, text.clone()?)));
        Self { texts: texts.collect(), ..Self::new(Kind::Create, common) }
    }

    /// `seal-import`
    pub(super) fn seal(args: &SealArgs) -> Self {
        Self {
            deadline: args.deadline,
            force_rollback: args.force_rollback,
            ..Self::new(Kind::Seal, &args.common)
        }
    }

    /// `validate`
    pub(super) fn validate(args: &ValidateArgs) -> Self {
        let mut texts = vec![("result", args.result.clone())];
        texts.extend(args.summary.clone().map(|summary| ("summary", summary)));
        Self { texts, ..Self::new(Kind::Validate, &args.common) }
    }

    /// `publish`
    pub(super) fn publish(args: &CommandArgs) -> Self {
        Self::new(Kind::Publish, args)
    }

    /// `enable-writes`
    pub(super) fn enable(args: &CommandArgs) -> Self {
        Self::new(Kind::Enable, args)
    }

    /// `abort`
    pub(super) fn abort(args: &CommandArgs) -> Self {
        Self::new(Kind::Abort, args)
    }

    /// `acquire-write-fence`
    pub(super) fn acquire(args: &AcquireArgs) -> Self {
        Self {
            deadline: args.deadline,
            force_rollback: args.force_rollback,
            hold: args.hold,
            ..Self::new(Kind::Acquire, &args.common)
        }
    }

    /// Whether what the command wanted is so now, in its own operation, whoever brought it about.
    fn reached(&self, body: &Value) -> bool {
        let of = |name: &str| body.pointer(&format!("/fence/{name}")).and_then(Value::as_str);
        let states: &[&str] = match self.kind {
            Kind::Acquire => &["SOURCE_WRITE_FENCED", "SOURCE_READ_DRAINING", "SOURCE_READ_FENCED"],
            Kind::SetRead => &["SOURCE_READ_FENCED"],
            Kind::Seal => &["TARGET_VALIDATING", "TARGET_WRITE_FENCED", "TARGET_WRITABLE"],
            Kind::Release
            | Kind::ClearRead
            | Kind::Create
            | Kind::Validate
            | Kind::Publish
            | Kind::Enable
            | Kind::Abort
            | Kind::Adopt => &[],
        };
        of("state").is_some_and(|state| states.contains(&state))
            && of("operation_id") == Some(&self.operation.to_string())
    }

    /// `release-write-fence`
    pub(super) fn release(args: &ReleaseArgs) -> Self {
        let ReleaseArgs { common, beside_target } = args;
        Self { beside_target: *beside_target, ..Self::new(Kind::Release, common) }
    }

    /// Refuses to send what would have a source and its target take writes at once, unless that is
    /// what was asked for. The proxy would do it: which target is of which source it doesn't know.
    fn must_not_open_both(&self, seen: &Value) -> Result<(), CtlError> {
        let targets = show::writable_targets(seen);
        // They are the fence's operation's; another one is refused by the proxy.
        let own = seen.pointer("/fence/operation_id") == Some(&json!(self.operation.to_string()));
        if self.kind != Kind::Release || self.beside_target || targets.is_empty() || !own {
            return Ok(());
        }
        Err(CtlError::Refused(format!(
            "No command was sent: operation {} has enabled writes of {}. If {} was its source, \
             a release would have both take writes, and neither would have all of them. To go \
             back, move the target's data to the source under a new operation. If they have \
             nothing to do with each other, or nothing can reach the source any more, say \
             --beside-target",
            self.operation,
            plain(&targets.join(", ")),
            self.namespace
        )))
    }

    /// `set-read-fence`
    pub(super) fn set_read(args: &SetReadArgs) -> Self {
        Self { deadline: args.deadline, ..Self::new(Kind::SetRead, &args.common) }
    }

    /// `clear-read-fence`
    pub(super) fn clear_read(args: &CommandArgs) -> Self {
        Self::new(Kind::ClearRead, args)
    }

    /// `adopt`
    pub(super) fn adopt(args: &AdoptArgs) -> Self {
        let common = CommandArgs {
            namespace: args.namespace.clone(),
            operation: args.operation,
            command: args.command,
            expect: args.expect.clone(),
        };
        let adoption = Adoption {
            from: args.from,
            approvers: args.approver.clone(),
            incident: args.incident.clone(),
            reason: args.reason.clone(),
        };
        Self { adoption: Some(adoption), ..Self::new(Kind::Adopt, &common) }
    }

    /// What its answer is the answer to, for the answer's text.
    const fn told(&self) -> Told {
        match self.kind {
            Kind::Validate => Told::Validation,
            Kind::Publish | Kind::Enable | Kind::Abort => Told::BehindASeal,
            Kind::Acquire
            | Kind::Release
            | Kind::SetRead
            | Kind::ClearRead
            | Kind::Create
            | Kind::Seal
            | Kind::Adopt => Told::Itself,
        }
    }

    /// Has every line that is printed find the same proxy with the same keys. A key's own text is
    /// never among the options.
    pub(super) fn found_by(self, args: &CtlArgs) -> Self {
        let mut found_by = String::new();
        if let Some(url) = &args.admin_url {
            found_by.push_str(&format!(" --admin-url {}", quoted(url)));
        }
        let second = if let CtlCommand::Adopt(adopt) = &args.command {
            adopt.second_key.as_deref()
        } else {
            None
        };
        for (option, file) in [("key-file", args.key_file.as_deref()), ("second-key", second)] {
            if let Some(file) = file {
                found_by.push_str(&format!(" --{option} {}", quoted(&file.to_string_lossy())));
            }
        }
        Self { found_by, ..self }
    }

    fn path(&self) -> String {
        format!("{}/{}", fence_path(&self.namespace), self.kind.route())
    }

    /// `None` when no option asks for one: the proxy's defaults are then used.
    fn drain_policy(&self) -> Option<Value> {
        if self.deadline.is_none() && !self.force_rollback && self.hold.is_none() {
            return None;
        }
        let on_deadline = if self.force_rollback { "force_rollback" } else { "fail" };
        let deadline = self.deadline.unwrap_or(DEADLINE_DEFAULT);
        let mut policy = json!({ "deadline_ms": millis(deadline), "on_deadline": on_deadline });
        if let (Some(hold), Some(fields)) = (self.hold, policy.as_object_mut()) {
            fields.insert("hold_ms".to_owned(), json!(millis(hold)));
        }
        Some(policy)
    }

    fn body(&self, expect: &Expectation, identity: Option<&Value>) -> Value {
        let mut body = json!({
            "operation_id": self.operation.to_string(),
            "command_id": self.command.to_string(),
            "expected_state": expect.state,
            "expected_revision": expect.revision,
        });
        if let Some(fields) = body.as_object_mut() {
            if let Some(identity) = identity {
                fields.insert("expected_namespace_identity".to_owned(), identity.clone());
            }
            if let Some(adoption) = &self.adoption {
                let from = adoption.from.to_string();
                fields.insert("current_operation_id".to_owned(), json!(from));
                fields.insert("approvers".to_owned(), json!(adoption.approvers));
                fields.insert("incident_ref".to_owned(), json!(adoption.incident));
                fields.insert("reason".to_owned(), json!(adoption.reason));
            }
            for (name, text) in &self.texts {
                fields.insert((*name).to_owned(), json!(text));
            }
            if let Some(policy) = self.drain_policy() {
                fields.insert("drain_policy".to_owned(), policy);
            }
        }
        body
    }

    /// The command line that sends the same command again.
    fn replay_line(&self, expect: &Expectation) -> String {
        let mut line = format!(
            "fencewire ctl {} {} --operation {} --command {} --expect {}@{}",
            self.kind.name(),
            quoted(&self.namespace.to_string()),
            self.operation,
            self.command,
            expect.state,
            expect.revision
        );
        if let Some(deadline) = self.deadline {
            line.push_str(&format!(" --deadline {}ms", millis(deadline)));
        }
        if self.force_rollback {
            line.push_str(" --force-rollback");
        }
        for (name, text) in &self.texts {
            line.push_str(&format!(" --{name} {}", quoted(text)));
        }
        if let Some(adoption) = &self.adoption {
            line.push_str(&format!(" --from {}", adoption.from));
            for approver in &adoption.approvers {
                line.push_str(&format!(" --approver {}", quoted(approver)));
            }
            let (incident, reason) = (quoted(&adoption.incident), quoted(&adoption.reason));
            line.push_str(&format!(" --incident {incident} --reason {reason}"));
        }
        if let Some(hold) = self.hold {
            line.push_str(&format!(" --hold {}ms", millis(hold)));
        }
        if self.beside_target {
            line.push_str(" --beside-target");
        }
        line.push_str(&self.found_by);
        line
    }

    /// The command line of a fresh command of the same operation that ends what still writes.
    fn force_line(&self) -> String {
        let mut line = format!(
            "fencewire ctl {} {} --operation {}",
            self.kind.name(),
            quoted(&self.namespace.to_string()),
            self.operation
        );
        if let Some(deadline) = self.deadline {
            line.push_str(&format!(" --deadline {}ms", millis(deadline)));
        }
        line.push_str(" --force-rollback");
        if let Some(hold) = self.hold {
            line.push_str(&format!(" --hold {}ms", millis(hold)));
        }
        line.push_str(&self.found_by);
        line
    }

    fn answer_timeout(&self) -> Duration {
        match (self.kind, self.deadline, self.drain_policy()) {
            (
                Kind::Release
                | Kind::ClearRead
                | Kind::Create
                | Kind::Validate
                | Kind::Publish
                | Kind::Enable
                | Kind::Abort
                | Kind::Adopt,
                _,
                _,
            ) => ANSWER_GRACE,
            (Kind::Acquire | Kind::SetRead | Kind::Seal, None, None) => ANSWER_TIMEOUT,
            // Forcing waits twice more, at least ten seconds and at least as long each time.
            (Kind::Acquire | Kind::SetRead | Kind::Seal, deadline, _) => {
                deadline.unwrap_or(DEADLINE_DEFAULT).saturating_mul(3) + ANSWER_GRACE
            }
        }
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A word for a shell, quoted where it needs to be.
fn quoted(word: &str) -> String {
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"/_-.:".contains(&byte);
    if word.bytes().all(safe) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Sends the command and shows its answer.
///
/// Cancel safety: once sent, the command goes on at the proxy; the printed id replays it.
pub(super) async fn send(
    client: &Client,
    request: &Request,
    as_json: bool,
    terminal: &mut Terminal<'_>,
) -> Result<u8, CtlError> {
    let all = if request.replayed { "?receipts=all" } else { "" };
    let path = format!("{}{all}", fence_path(&request.namespace));
    let seen = client.get(&path, ASK_TIMEOUT).await.map_err(CtlError::NoAnswer)?;
    // What is to be created isn't there to be seen.
    let absent = request.kind == Kind::Create && seen.status == 404;
    if seen.status != 200 && !absent {
        return Ok(finish(request, &seen, None, as_json, terminal));
    }
    request.must_not_open_both(&seen.body)?;
    let identity = match request.kind {
        Kind::Acquire => Some(identity(&seen.body)?),
        Kind::Release
        | Kind::SetRead
        | Kind::ClearRead
        | Kind::Create
        | Kind::Seal
        | Kind::Validate
        | Kind::Publish
        | Kind::Enable
        | Kind::Abort
        | Kind::Adopt => None,
    };
    let mut expectations = expectations(request, &seen.body)?.into_iter().peekable();
    // In front of what is sent: whoever is cut off behind it knows by what to ask again.
    let first = format!("command {}", request.command);
    if as_json {
        terminal.complain(&first);
    } else {
        terminal.say(&first);
    }
    while let Some(expect) = expectations.next() {
        let replay = request.replay_line(&expect);
        let body = request.body(&expect, identity.as_ref());
        let path = request.path();
        let answer = client.post(&path, &body, request.answer_timeout());
        let sent = progress::tell(client, &request.namespace, answer, terminal).await;
        let answer = sent.map_err(|error| match error {
            HttpError::BadAddress(_) | HttpError::Unreachable { .. } => CtlError::NoAnswer(error),
            HttpError::Lost { .. } | HttpError::NotJson { .. } => {
                CtlError::Unknown { error, replay: replay.clone() }
            }
        })?;
        let conflict = outcome::code(&answer.body) == "FENCE_COMMAND_CONFLICT";
        // A conflict changed nothing, so the next thing it may have expected can be tried.
        if conflict && expectations.peek().is_some() {
            continue;
        }
        return Ok(finish(request, &answer, Some(&replay), as_json, terminal));
    }
    // There is always one expectation; see `expectations`.
    Err(CtlError::Unusable("nothing was sent; this is a bug in ctl".to_owned()))
}

/// Which database this is, as the proxy says.
fn identity(body: &Value) -> Result<Value, CtlError> {
    let incarnation = body.pointer("/fence/incarnation").or_else(|| body.get("incarnation"));
    let part = |name: &str| incarnation.and_then(|i| i.get(name)).filter(|value| !value.is_null());
    match (part("engine_id"), part("database_id")) {
        (Some(engine), Some(database)) => {
            Ok(json!({ "engine_id": engine, "database_id": database }))
        }
        (_, _) => Err(nameless(body)),
    }
}

/// Why there is no identity to send, in the engine's own words where the proxy has them.
fn nameless(body: &Value) -> CtlError {
    let told = text(body, "/identity_error");
    if told == "-" {
        return CtlError::Unusable(
            "the proxy can't say which database this is now, so no command was sent. Is the engine \
             reachable from the proxy, and does the database exist? See ctl status and the log."
                .to_owned(),
        );
    }
    let words = format!("No command was sent: {}", plain(&told));
    match text(body, "/identity_error_kind").as_str() {
        "denied" | "missing" => CtlError::Refused(words),
        _ => CtlError::Unusable(format!("{words}. Send it again when the engine answers.")),
    }
}

/// What the command may expect of the fence, likeliest first; at least one.
fn expectations(request: &Request, body: &Value) -> Result<Vec<Expectation>, CtlError> {
    if let Some(expect) = &request.expect {
        return Ok(vec![expect.clone()]);
    }
    if request.kind == Kind::Create {
        return Ok(vec![Expectation { state: "ABSENT".to_owned(), revision: 0 }]);
    }
    let receipt = receipt(request, body).filter(|_| request.replayed);
    if let Some(before) = receipt.and_then(|receipt| receipt.get("revision_before")?.as_u64()) {
        let expectation = |state: &str| Expectation { state: state.to_owned(), revision: before };
        if before == 0 {
            return Ok(vec![expectation("UNFENCED")]);
        }
        return Ok(request.kind.starts().iter().map(|state| expectation(state)).collect());
    }
    let fence = body.get("fence").filter(|fence| !fence.is_null());
    let Some(fence) = fence else {
        return Ok(vec![Expectation { state: "UNFENCED".to_owned(), revision: 0 }]);
    };
    let state = fence.get("state").and_then(Value::as_str);
    let revision = fence.get("revision").and_then(Value::as_u64);
    match (state, revision) {
        (Some(state), Some(revision)) => {
            Ok(vec![Expectation { state: state.to_owned(), revision }])
        }
        (_, _) => Err(CtlError::Unusable(
            "the proxy's answer names no state and revision, so no command was sent. Are ctl and \
             the proxy of the same version?"
                .to_owned(),
        )),
    }
}

/// The receipt of this very command, if the proxy has one.
fn receipt<'b>(request: &Request, body: &'b Value) -> Option<&'b Value> {
    let (command, operation) = (request.command.to_string(), request.operation.to_string());
    let field = |receipt: &Value, name: &str, wanted: &str| {
        receipt.get(name).and_then(Value::as_str) == Some(wanted)
    };
    body.get("receipts")?.as_array()?.iter().find(|receipt| {
        field(receipt, "command_id", &command) && field(receipt, "operation_id", &operation)
    })
}

/// Prints a command's answer and gives its exit code.
fn finish(
    request: &Request,
    answer: &Answer,
    replay: Option<&str>,
    as_json: bool,
    terminal: &mut Terminal<'_>,
) -> u8 {
    let mut code = outcome::exit_code(answer);
    // A drain that something else has ended since is no reason to wait, or to back out of anything.
    let history = code == exit::DRAINING && show::is_history(&answer.body);
    if history {
        code = if request.reached(&answer.body) { exit::DONE } else { exit::REFUSED };
    }
    if as_json {
        terminal.say(&answer.body.to_string());
        return code;
    }
    let applied = || show::applied(&request.namespace, request.told(), &answer.body);
    match code {
        _ if history => terminal.say(&applied()),
        exit::DONE => terminal.say(&applied()),
        exit::DRAINING => {
            terminal.say(&applied());
            let reads = matches!(request.kind, Kind::SetRead | Kind::Seal);
            let unforced = request.kind == Kind::SetRead;
            let undo = request.kind.undo();
            let back = format!(
                "fencewire ctl {} {} --operation {}{}",
                undo.name(),
                quoted(&request.namespace.to_string()),
                request.operation,
                request.found_by
            );
            // Force reaches sessions of the proxy only; a session around it has no number here.
            let ours = show::blocked_by_sessions(&answer.body);
            let force = if request.force_rollback || unforced || !ours {
                String::new()
            } else {
                let line = request.force_line();
                format!("or roll back the sessions above that have a number:\n  {line}\n")
            };
            terminal.complain(&format!(
                "The drain is not proven; {} stay closed. End or wait for what blocks it, then \
                 replay the same command:\n  {}\n{force}or back out:\n  {back}",
                if reads { "reads and writes" } else { "writes" },
                replay.unwrap_or_default()
            ));
        }
        _ => terminal.complain(&outcome::refusal(answer, replay)),
    }
    code
}
