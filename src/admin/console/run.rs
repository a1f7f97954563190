//! Running a statement: questions become views, commands become `fence::Command`s.
//!
//! Purpose: what `ctl` does over HTTP, done here: what a command expects of its fence is filled in
//! from an inspection where the statement doesn't say it, and for a replay taken from the receipt,
//! since the same id with another expectation would be another request. Nothing is decided here.
//!
//! Callers: `console/pg.rs`, `console/mysql.rs`. It reaches fences only through `control`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::failure::Failure;
use super::grammar::{CapabilityStatement, Dialect, FenceStatement, Keys, Show, Statement};
use super::help::help;
use super::table::{Table, flat};
use crate::admin::auth::AdminKey;
use crate::admin::door::{self, Closed};
use crate::admin::view::{self, Shown};
use crate::base::ids::{CommandId, Namespace, Revision};
use crate::base::limits;
use crate::control::Control;
use crate::control::answer::{Answer, AnswerCode};
use crate::control::status::{InspectError, Inspection};
use crate::fence::code::ControlCode;
use crate::fence::command::{Actor, ActorSurface, Command, CommandKind};
use crate::fence::receipt::Receipt;
use crate::fence::record::Identity;
use crate::fence::state::{FenceState, Role};
use crate::telemetry::metrics::Metrics;

/// The settings as names and values, without secrets. `app` gives it.
pub type Settings = Arc<dyn Fn() -> Vec<(String, String)> + Send + Sync>;

/// What the consoles work with.
pub struct Desk {
    /// The use cases.
    pub control: Arc<Control>,
    /// The admin key, which is every login's password.
    pub key: AdminKey,
    /// The second key, which adoptions need; `None` means that nothing can be adopted.
    pub adoption_key: Option<AdminKey>,
    /// Numbers.
    pub metrics: Arc<Metrics>,
    /// How things are shown.
    pub shown: Shown,
    /// What `SHOW CONFIG` shows.
    pub settings: Settings,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Desk")
    }
}

/// One wish, ready to be run.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) statement: Statement,
    /// The id under which a command without one of its own runs.
    pub(super) command: CommandId,
}

impl Wish {
    /// Gives a command an id, so that it can be told before the answer is there.
    pub(super) fn new(statement: Statement) -> Self {
        let given = match &statement {
            Statement::Fence(fence) => fence.command,
            Statement::Empty
            | Statement::Show(_)
            | Statement::Inspect(_)
            | Statement::Capability(_)
            | Statement::Other => None,
        };
        Self { command: given.unwrap_or_else(CommandId::fresh), statement }
    }

    /// The id of the command, where this is one.
    pub(super) const fn announced(&self) -> Option<CommandId> {
        match &self.statement {
            Statement::Fence(_) => Some(self.command),
            Statement::Empty
            | Statement::Show(_)
            | Statement::Inspect(_)
            | Statement::Capability(_)
            | Statement::Other => None,
        }
    }
}

impl Desk {
    /// Runs a statement of the console's own.
    ///
    /// Cancel safety: a command that was begun goes on; its id finds it again.
    pub(super) async fn run(
        &self,
        wish: &Wish,
        surface: ActorSurface,
        dialect: Dialect,
    ) -> Result<Table, Failure> {
        let rows = match &wish.statement {
            Statement::Empty | Statement::Other => return Err(Failure::no_database()),
            Statement::Show(show) => self.show(show).await?,
            Statement::Inspect(namespace) => {
                let seen = self.inspect(namespace, false).await;
                flat(&view::inspection(
                    &seen.map_err(|error| Failure::uninspected(&error))?,
                    self.shown,
                ))
            }
            Statement::Fence(fence) => {
                vec![self.command(fence, wish.command, surface, dialect).await?]
            }
            Statement::Capability(wanted) => vec![self.capability(wanted).await?],
        };
        Ok(Table::of(&wish.statement, &rows))
    }

    async fn inspect(&self, namespace: &Namespace, all: bool) -> Result<Inspection, InspectError> {
        self.control.inspect(namespace, all).await
    }

    async fn show(&self, show: &Show) -> Result<Vec<Value>, Failure> {
        // The columns differ, not the rows.
        let rows_of = if let Show::Verbose(show) = show { show } else { show };
        Ok(match rows_of {
            Show::Namespaces => self.lines(),
            Show::Fences => self.lines().into_iter().filter(has_fence).collect(),
            Show::Targets => {
                self.lines().iter().filter(|line| is_target(line)).flat_map(capabilities).collect()
            }
            Show::Sessions => self.sessions(),
            Show::Drains => {
                self.lines().iter().filter(|line| drains(line)).flat_map(blockers).collect()
            }
            Show::Receipts(Some(namespace)) => {
                let seen = self.inspect(namespace, true).await;
                receipts(namespace, &seen.map_err(|error| Failure::uninspected(&error))?)
            }
            Show::Receipts(None) => self.all_receipts().await,
            Show::Capabilities => flat(&view::capabilities(&self.control.capabilities())),
            Show::Help => help(),
            // In a box there is none; see the grammar.
            Show::Verbose(_) => Vec::new(),
            Show::Version => vec![json!(concat!("fencewire ", env!("CARGO_PKG_VERSION")))],
            Show::Config => {
                (self.settings)().iter().map(|(name, value)| json!([name, value])).collect()
            }
            Show::Stats => {
                self.control.refresh_gauges();
                samples(&self.metrics.encode())
            }
        })
    }

    fn lines(&self) -> Vec<Value> {
        let mut view = view::namespaces(&self.control.namespaces(), self.shown);
        match view["namespaces"].take() {
            Value::Array(lines) => lines,
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_) => Vec::new(),
        }
    }

    fn sessions(&self) -> Vec<Value> {
        let (lines, more) = self.control.sessions();
        let view = view::sessions(&lines, more);
        let mut rows = view["sessions"].as_array().cloned().unwrap_or_default();
        if more > 0 {
            rows.push(json!({ "namespace": format!("(and {more} more sessions)") }));
        }
        rows
    }

    /// The receipts of every namespace with a fence, as far as a bounded time goes.
    async fn all_receipts(&self) -> Vec<Value> {
        let until = Instant::now() + Duration::from_millis(limits::CONSOLE_RECEIPTS_MS);
        let fenced = self.control.namespaces().into_iter().map(|line| line.namespace);
        let mut fenced = fenced.filter(|name| self.control.has_fence_state(name)).peekable();
        let mut rows = Vec::new();
        while Instant::now() < until
            && let Some(namespace) = fenced.next()
        {
            match self.inspect(&namespace, true).await {
                Ok(seen) => rows.extend(receipts(&namespace, &seen)),
                Err(error) => {
                    let (name, error) = (namespace.to_string(), error.to_string());
                    rows.push(json!({ "namespace": name, "error": error }));
                }
            }
        }
        if fenced.peek().is_some() {
            let more = fenced.count();
            let name = format!("(and {more} more namespaces; use SHOW RECEIPTS FOR)");
            rows.push(json!({ "namespace": name }));
        }
        rows
    }

    /// Gives a capability out; its secret is in this row and nowhere else, as over HTTP.
    async fn capability(&self, wanted: &CapabilityStatement) -> Result<Value, Failure> {
        let closed = |why: Closed| Failure::closed(&why);
        let CapabilityStatement { namespace, operation, purpose, revision } = wanted;
        door::is_on(&self.control).map_err(closed)?;
        door::may_command(&self.control, Some(&self.key), namespace).map_err(closed)?;
        let revision = match revision {
            Some(revision) => *revision,
            None => {
                let seen = self.inspect(namespace, false).await;
                seen.map_err(|error| Failure::uninspected(&error))?.sight.revision
            }
        };
        match self.control.issue_capability(namespace, *purpose, *operation, revision) {
            Ok(issued) => Ok(view::issued(&issued)),
            Err(error) => Err(Failure::not_given(&error, namespace)),
        }
    }

    /// Runs a command; its answer as a row.
    async fn command(
        &self,
        fence: &FenceStatement,
        id: CommandId,
        surface: ActorSurface,
        dialect: Dialect,
    ) -> Result<Value, Failure> {
        let closed = |why: Closed| Failure::closed(&why);
        door::is_on(&self.control).map_err(closed)?;
        door::may_command(&self.control, Some(&self.key), &fence.namespace).map_err(closed)?;
        let seen = match self.inspect(&fence.namespace, fence.command.is_some()).await {
            Ok(seen) => Some(seen),
            // There is nothing yet: what a target's creation starts from.
            Err(InspectError::NotFound(_))
                if fence.kind == CommandKind::CreateTargetQuarantined =>
            {
                None
            }
            Err(error) => return Err(Failure::uninspected(&error)),
        };
        if let Some(failure) = seen.as_ref().and_then(|seen| must_not_open_both(fence, seen)) {
            return Err(failure);
        }
        let arguments = fence.arguments(seen.as_ref().and_then(identity).as_ref());
        let arguments = arguments.ok_or_else(|| {
            let silence = seen.as_ref().and_then(|seen| seen.silence.as_ref());
            let why = silence.map_or("the engine didn't say", |silence| silence.words.as_str());
            Failure::unavailable(format!(
                "the proxy can't say which database this is now, so no command was sent: {why}"
            ))
        })?;
        let mut answered = None;
        for (expected_state, expected_revision) in expectations(fence, seen.as_ref()) {
            let command = Command {
                namespace: fence.namespace.clone(),
                operation: fence.operation,
                command: id,
                expected_state,
                expected_revision,
                arguments: arguments.clone(),
            };
            let actor = self.actor(fence, surface);
            let answer = self.control.execute(actor, command).await;
            let conflict = answer.code == AnswerCode::Control(ControlCode::CommandConflict);
            answered = Some((answer, (expected_state, expected_revision)));
            // A conflict changed nothing, so the next thing it may have expected can be tried.
            if !conflict {
                break;
            }
        }
        match answered {
            Some((answer, _)) if !answer.code.is_success() => {
                Err(Failure::answered(&answer, fence, id))
            }
            Some((answer, expect)) => Ok(self.row(fence, id, &answer, expect, dialect)),
            // There is always one expectation.
            None => Err(Failure::unavailable("nothing was sent; this is a bug".to_owned())),
        }
    }

    fn actor(&self, fence: &FenceStatement, surface: ActorSurface) -> Actor {
        let given = fence.adoption.as_ref().and_then(|adoption| adoption.key.as_ref());
        let given = given.map(|key| key.expose().as_bytes());
        Actor {
            surface,
            name: "admin key".to_owned(),
            has_adoption_key: door::is_second_key(self.adoption_key.as_ref(), given),
        }
    }

    fn row(
        &self,
        fence: &FenceStatement,
        id: CommandId,
        answer: &Answer,
        expect: (FenceState, Revision),
        dialect: Dialect,
    ) -> Value {
        let draining =
            answer.code == AnswerCode::Control(ControlCode::Draining) && !answer.is_overtaken();
        let hint = draining.then(|| {
            let replay =
                FenceStatement { command: Some(id), expect: Some(expect), ..fence.clone() };
            ways_on(&replay, dialect)
        });
        let drain = answer.sight.as_ref().map(|sight| &sight.drain);
        let blockers = drain.map(|drain| drain.blockers.len() as u64 + drain.more_blockers);
        json!({
            "answer": view::answer(answer, self.shown),
            "namespace": fence.namespace.to_string(),
            "operation": fence.operation.to_string(),
            "command": id.to_string(),
            "blockers": blockers,
            "hint": hint,
        })
    }
}

/// What would have a source and its target take writes at once is refused unless the statement says
/// that it is meant, as by `ctl`. The proxy would do it: which target is of which source it doesn't
/// know, and so HTTP, for orchestrators, is as the contract has it.
fn must_not_open_both(fence: &FenceStatement, seen: &Inspection) -> Option<Failure> {
    let targets = &seen.sight.writable_targets;
    // They are the fence's operation's; another one is refused by the command itself.
    let own = seen.sight.record.as_ref().is_some_and(|record| record.operation == fence.operation);
    if fence.kind != CommandKind::ReleaseSourceWriteFence
        || fence.beside_target
        || targets.is_empty()
        || !own
    {
        return None;
    }
    let names: Vec<_> = targets.iter().map(Namespace::to_string).collect();
    let message = format!(
        "no command was sent: operation {} has enabled writes of {}. If {} was its source, a \
         release would have both take writes, and neither would have all of them. To go back, move \
         the target's data to the source under a new operation. If they have nothing to do with \
         each other, or nothing can reach the source any more, say BESIDE TARGET",
        fence.operation,
        names.join(", "),
        fence.namespace
    );
    Some(Failure::open_both(&fence.namespace, &message))
}

/// What may be done about a drain that isn't proven.
fn ways_on(replay: &FenceStatement, dialect: Dialect) -> String {
    let written = |fence: &FenceStatement| fence.written(dialect, Keys::Hidden);
    let mut ways = "SHOW DRAINS names what it waits for. ".to_owned();
    let fresh = FenceStatement { command: None, expect: None, ..replay.clone() };
    let (forces, back) = match replay.kind {
        CommandKind::SealTargetImport => (true, CommandKind::AbortQuarantinedTarget),
        CommandKind::SetSourceReadFence => (false, CommandKind::ClearSourceReadFence),
        CommandKind::AcquireSourceWriteFence
        | CommandKind::ClearSourceReadFence
        | CommandKind::ReleaseSourceWriteFence
        | CommandKind::CreateTargetQuarantined
        | CommandKind::RecordTargetValidation
        | CommandKind::PublishTargetReadableWriteFenced
        | CommandKind::EnableTargetWrites
        | CommandKind::AbortQuarantinedTarget
        | CommandKind::AdoptFence => (true, CommandKind::ReleaseSourceWriteFence),
    };
    if forces && !replay.force_rollback {
        let force = FenceStatement { force_rollback: true, ..fresh.clone() };
        let force = written(&force);
        ways.push_str(&format!("To roll back the proxy's sessions among them: {force}; "));
    }
    let back = written(&FenceStatement { kind: back, ..fresh });
    let replay = written(replay);
    ways.push_str(&format!(
        "To back out: {back}; Or wait for them or end them, and send the same command again: \
         {replay};"
    ));
    ways
}

/// Which database the caller of a next command has to name: the fence's own while it is owned, the
/// live one otherwise.
fn identity(seen: &Inspection) -> Option<Identity> {
    let record = seen.sight.record.as_deref();
    let owned = record.filter(|record| !record.state.is_operation_finished());
    let named = owned.and_then(|record| record.identity.as_ref()).or(seen.sight.live.as_ref());
    // The timeline isn't part of who the database is to a caller; `ctl` doesn't send it either.
    named.map(|one| Identity { timeline: None, ..one.clone() })
}

/// What the command may expect of the fence, likeliest first; at least one.
fn expectations(fence: &FenceStatement, seen: Option<&Inspection>) -> Vec<(FenceState, Revision)> {
    if let Some(expect) = fence.expect {
        return vec![expect];
    }
    let Some(seen) = seen else { return vec![(FenceState::Absent, Revision(0))] };
    let replayed = fence.command.and_then(|id| {
        let mine =
            |receipt: &&Receipt| receipt.command == id && receipt.operation == fence.operation;
        seen.receipts.iter().find(mine)
    });
    match replayed.map(|receipt| receipt.revision_before) {
        None => vec![(seen.sight.state, seen.sight.revision)],
        Some(Revision(0)) if fence.kind == CommandKind::CreateTargetQuarantined => {
            vec![(FenceState::Absent, Revision(0))]
        }
        Some(Revision(0)) => vec![(FenceState::Unfenced, Revision(0))],
        Some(before) => starts(fence.kind).iter().map(|state| (*state, before)).collect(),
    }
}

/// States that a command with a record can have started from, likeliest first, for a replay.
const fn starts(kind: CommandKind) -> &'static [FenceState] {
    use FenceState::{
        Released, SourceDraining, SourceReadDraining, SourceReadFenced, SourceWriteFenced,
        TargetAborted, TargetImportDraining, TargetQuarantined, TargetValidating, TargetWritable,
        TargetWriteFenced,
    };
    match kind {
        CommandKind::AcquireSourceWriteFence => {
            &[Released, TargetWritable, SourceDraining, SourceWriteFenced]
        }
        CommandKind::ReleaseSourceWriteFence => &[SourceWriteFenced, SourceDraining, Released],
        CommandKind::SetSourceReadFence => {
            &[SourceWriteFenced, SourceReadDraining, SourceReadFenced]
        }
        CommandKind::ClearSourceReadFence => {
            &[SourceReadFenced, SourceReadDraining, SourceWriteFenced]
        }
        CommandKind::CreateTargetQuarantined => &[TargetQuarantined],
        CommandKind::SealTargetImport => {
            &[TargetQuarantined, TargetImportDraining, TargetValidating]
        }
        CommandKind::RecordTargetValidation => &[TargetValidating],
        CommandKind::PublishTargetReadableWriteFenced => &[TargetValidating, TargetWriteFenced],
        CommandKind::EnableTargetWrites => &[TargetWriteFenced, TargetWritable],
        CommandKind::AbortQuarantinedTarget => &[
            TargetQuarantined,
            TargetImportDraining,
            TargetValidating,
            TargetWriteFenced,
            TargetAborted,
        ],
        CommandKind::AdoptFence => &[
            SourceWriteFenced,
            SourceDraining,
            SourceReadFenced,
            SourceReadDraining,
            TargetQuarantined,
            TargetImportDraining,
            TargetValidating,
            TargetWriteFenced,
        ],
    }
}

fn has_fence(line: &Value) -> bool {
    line["state"] != FenceState::Unfenced.name()
        || !line["detail"].is_null()
        || line["admission"]["indeterminate"] == true
}

fn drains(line: &Value) -> bool {
    let draining = [
        FenceState::SourceDraining,
        FenceState::SourceReadDraining,
        FenceState::TargetImportDraining,
    ];
    draining.iter().any(|state| line["state"] == state.name())
        || !line["drain"]["command_id"].is_null()
}

fn is_target(line: &Value) -> bool {
    let target = |state: &FenceState| state.role() == Some(Role::Target);
    FenceState::ALL.iter().filter(|state| target(state)).any(|one| line["state"] == one.name())
}

/// One value per live capability of a target, or one without where none is.
fn capabilities(line: &Value) -> Vec<Value> {
    let of = |capability: Value| json!({ "line": line, "capability": capability });
    match line["capabilities"].as_array().filter(|all| !all.is_empty()) {
        Some(all) => all.iter().map(|one| of(one.clone())).collect(),
        None => vec![of(Value::Null)],
    }
}

/// Characters of a statement where not all of it is asked for.
const SHORT_CHARS: usize = 30;

/// One value per blocker of a namespace, or one without where nothing blocks.
fn blockers(line: &Value) -> Vec<Value> {
    let of = |blocker: Value| {
        let statement = blocker["statement"].as_str().unwrap_or_default();
        let mut short: String = statement.chars().take(SHORT_CHARS).collect();
        if short.len() < statement.len() {
            short.push('…');
        }
        json!({ "line": line, "blocker": blocker, "short": short })
    };
    match line["drain"]["blockers"].as_array().filter(|all| !all.is_empty()) {
        Some(all) => all.iter().map(|blocker| of(blocker.clone())).collect(),
        None => vec![of(Value::Null)],
    }
}

fn receipts(namespace: &Namespace, seen: &Inspection) -> Vec<Value> {
    let name = namespace.to_string();
    let row = |receipt: &Receipt| json!({ "namespace": name, "receipt": view::receipt(receipt) });
    let mut rows: Vec<Value> = seen.receipts.iter().map(row).collect();
    if let Some(error) = &seen.unreadable {
        rows.push(json!({ "namespace": name, "error": error }));
    }
    rows
}

/// The samples of a metrics text, without its comments.
fn samples(text: &str) -> Vec<Value> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, value)| json!([name, value]))
        .collect()
}
