//! Every fence command, from request to durable answer.
//!
//! Purpose: [`Control`] holds the parts and runs commands. Each command runs on a task of its own,
//! so that a caller who goes away interrupts nothing; the same request sent twice at once is one
//! command with one answer. Deciding, committing and publishing happen under the namespace's
//! transition lock (`fences/turn.rs`, `fences/commit.rs`); a drain waits outside it (`drain.rs`).
//!
//! Invariants: 3, 10, 11. A command's task that dies between the beginning and the known end of a
//! commit leaves the namespace indeterminate: closed, and open to that command alone.
//!
//! Callers: `admin` (commands), `app` (building). It decides nothing by itself: that is
//! `fence::transition`'s.

mod commit;
mod turn;

pub(super) use commit::Committed;
pub(super) use turn::{Story, drain_label};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use dashmap::DashMap;

use super::answer::{Answer, AnswerCode};
use super::doubles::{AtDoubles, Seen};
use super::health::Health;
use super::line::{Awaited, Entered, Line, Request};
use super::lock_keeper::LockKeeper;
use super::port::EnginePort;
use super::routes::Routes;
use super::runs::Runs;
use super::settings::{NamespaceSettings, Settings, SettingsFor};
use crate::base::clock::Clock;
use crate::base::ids::{EngineName, Namespace};
use crate::base::limits;
use crate::fence::code::{ControlCode, Detail};
use crate::fence::command::{Actor, Command};
use crate::fence::receipt::Fingerprint;
use crate::fence::record::{DrainPolicy, WrittenBy};
use crate::fence::transition::ControlRefusal;
use crate::gate::registry::Gates;
use crate::store::FenceStore;
use crate::store::marker::MarkerDir;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::spawn::spawn_named;

/// Engines by name.
pub type Engines = BTreeMap<EngineName, Arc<dyn EnginePort>>;

/// What [`Control`] is built from.
pub struct Parts {
    /// For the whole process.
    pub settings: Settings,
    /// For each namespace.
    pub settings_for: SettingsFor,
    /// The gates that sessions ask.
    pub gates: Arc<Gates>,
    /// Durable truth.
    pub store: Arc<dyn FenceStore>,
    /// The copies beside it.
    pub markers: MarkerDir,
    /// The engines.
    pub engines: Engines,
    /// Which name means which namespace.
    pub routes: Arc<Routes>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Numbers.
    pub metrics: Arc<Metrics>,
}

/// The use cases. One per process, shared by `Arc`.
pub struct Control {
    pub(super) settings: Settings,
    settings_for: ArcSwap<SettingsFor>,
    pub(super) gates: Arc<Gates>,
    pub(super) store: Arc<dyn FenceStore>,
    pub(super) markers: MarkerDir,
    engines: ArcSwap<Engines>,
    pub(super) routes: Arc<Routes>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) locks: LockKeeper,
    pub(super) recovered: AtomicBool,
    /// Held while it is looked which engines are fenced ones under another name; what was seen.
    pub(super) looking: tokio::sync::Mutex<Seen>,
    /// Where the last look has found servers of source fences under other names.
    pub(super) at_doubles: AtDoubles,
    /// Which run of each engine was seen last.
    pub(super) runs: Runs,
    /// How engines answered last, for people.
    pub(super) health: Health,
    lines: DashMap<Namespace, Arc<Line>>,
}

impl Control {
    /// Puts the parts together. Nothing is read yet: call [`Control::recover`] before listeners
    /// open.
    #[must_use]
    pub fn new(parts: Parts) -> Arc<Self> {
        Arc::new(Self {
            settings: parts.settings,
            settings_for: ArcSwap::from_pointee(parts.settings_for),
            gates: parts.gates,
            store: parts.store,
            markers: parts.markers,
            engines: ArcSwap::from_pointee(parts.engines),
            routes: parts.routes,
            locks: LockKeeper::new(Arc::clone(&parts.clock), Arc::clone(&parts.metrics)),
            clock: parts.clock,
            metrics: parts.metrics,
            recovered: AtomicBool::new(false),
            looking: tokio::sync::Mutex::default(),
            at_doubles: AtDoubles::default(),
            runs: Runs::default(),
            health: Health::default(),
            lines: DashMap::new(),
        })
    }

    /// What holds for one namespace now.
    #[must_use]
    pub fn settings_of(&self, namespace: &Namespace) -> NamespaceSettings {
        let settings_for = self.settings_for.load();
        (**settings_for)(namespace)
    }

    /// Replaces the namespaces' settings; drains that run keep theirs.
    pub fn replace_settings(&self, settings_for: SettingsFor) {
        self.settings_for.store(Arc::new(settings_for));
    }

    /// The engines as configured now.
    #[must_use]
    pub fn engines(&self) -> Engines {
        (**self.engines.load()).clone()
    }

    pub(super) fn store_engines(&self, engines: Engines) {
        self.engines.store(Arc::new(engines));
    }

    /// The engine of a namespace, where it is configured.
    #[must_use]
    pub fn engine_of(&self, namespace: &Namespace) -> Option<Arc<dyn EnginePort>> {
        self.engines.load().get(namespace.engine()).map(Arc::clone)
    }

    pub(super) fn written_by(&self) -> WrittenBy {
        WrittenBy { build: self.settings.build.clone(), instance: self.settings.instance.clone() }
    }

    pub(super) fn line(&self, namespace: &Namespace) -> Arc<Line> {
        if let Some(line) = self.lines.get(namespace) {
            return Arc::clone(&line);
        }
        let make = || Arc::new(Line::new(namespace.clone()));
        Arc::clone(&self.lines.entry(namespace.clone()).or_insert_with(make))
    }

    pub(super) fn known_line(&self, namespace: &Namespace) -> Option<Arc<Line>> {
        self.lines.get(namespace).map(|line| Arc::clone(&line))
    }

    /// Runs a command and answers when it is answered: for a drain, when it is proven or its
    /// deadline has passed.
    ///
    /// # Cancel safety
    /// Cancel safe: the command runs on; sending it again joins it or finds its receipt.
    pub async fn execute(self: &Arc<Self>, actor: Actor, command: Command) -> Arc<Answer> {
        if !self.ready() {
            // A command would publish what it reads, and so open a gate before its time.
            return Arc::new(Answer::failed(
                "fences are still being read from the store; send the command again when /readyz \
                 says so"
                    .to_owned(),
            ));
        }
        let request = Request { key: command.key(), fingerprint: Fingerprint::of(&command) };
        let known = self.lines.contains_key(&command.namespace);
        if !known && self.lines.len() >= limits::NAMESPACES_SEEN_MAX {
            return Arc::new(Answer::failed(
                "commands for too many different namespaces were sent to this process; restart it \
                 to forget those that have no fence"
                    .to_owned(),
            ));
        }
        let line = self.line(&command.namespace);
        let awaited = match line.enter(request) {
            Entered::Joined(awaited) => awaited,
            Entered::Full => {
                return Arc::new(Answer::failed(format!(
                    "{} commands for {} are in work already; wait for one to be answered",
                    limits::COMMANDS_IN_WORK_MAX,
                    command.namespace
                )));
            }
            Entered::First(answer, awaited) => {
                let control = Arc::clone(self);
                drop(spawn_named("fence-command", async move {
                    let done = control.supervise(&line, request, actor, command).await;
                    // Answer first: who comes in between joins a command that is answered.
                    answer.send_replace(Some(Arc::new(done)));
                    line.leave(&request);
                }));
                awaited
            }
        };
        wait(awaited).await
    }

    /// Runs the command on a task whose death is noticed.
    async fn supervise(
        self: &Arc<Self>,
        line: &Arc<Line>,
        request: Request,
        actor: Actor,
        command: Command,
    ) -> Answer {
        let (control, its_line) = (Arc::clone(self), Arc::clone(line));
        let (its_actor, its_command) = (actor.clone(), command.clone());
        let work = spawn_named("fence-command-work", async move {
            control.run(&its_line, request, &its_actor, &its_command).await
        });
        match work.await {
            Ok(answer) => answer,
            Err(death) => {
                let answer = self.died(line, request, &death.to_string());
                self.leave_lock_of_the_dead(line).await;
                self.tell(&actor, &command, &Story::new(), &answer);
                answer
            }
        }
    }

    fn died(&self, line: &Line, request: Request, how: &str) -> Answer {
        let key = request.key;
        tracing::error!(
            namespace = %line.namespace, operation = %key.operation, command = %key.command, how,
            "a fence command's task died; replay the same command, and report this as a bug"
        );
        if line.pending() == Some(request) {
            return Answer::refused(indeterminate(line, request));
        }
        Answer::failed(format!(
            "command {} on {} died before it was answered ({how}); what it committed stands, \
             replay the same command to learn it",
            key.command, line.namespace
        ))
    }

    /// Whether recovery is complete, so that listeners may serve.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.recovered.load(Ordering::SeqCst)
    }
}

/// The policy a command brings, where its kind has one.
pub(super) const fn drain_policy(command: &Command) -> Option<DrainPolicy> {
    use crate::fence::command::Arguments as A;
    match &command.arguments {
        A::AcquireSourceWriteFence { drain_policy, .. }
        | A::SetSourceReadFence { drain_policy }
        | A::SealTargetImport { drain_policy } => *drain_policy,
        A::ClearSourceReadFence
        | A::ReleaseSourceWriteFence
        | A::CreateTargetQuarantined { .. }
        | A::RecordTargetValidation { .. }
        | A::PublishTargetReadableWriteFenced
        | A::EnableTargetWrites
        | A::AbortQuarantinedTarget
        | A::AdoptFence { .. } => None,
    }
}

/// The refusal of everything but the command whose commit isn't known.
pub(super) fn indeterminate(line: &Line, pending: Request) -> ControlRefusal {
    ControlRefusal {
        code: ControlCode::CommitIndeterminate,
        detail: Some(Detail::IndeterminateCommit),
        message: format!(
            "it is not known whether command {} of operation {} on {} was committed; everything is \
             closed and nothing else is accepted until that very command is replayed",
            pending.key.command, pending.key.operation, line.namespace
        ),
    }
}

async fn wait(mut awaited: Awaited) -> Arc<Answer> {
    let answered = awaited.wait_for(Option::is_some).await;
    match answered.map(|answer| answer.clone()) {
        Ok(Some(answer)) => answer,
        // The supervisor ends without an answer only when the process is stopping.
        Ok(None) | Err(_) => Arc::new(Answer {
            code: AnswerCode::Failed,
            detail: None,
            replayed: false,
            sight: None,
            receipt: None,
            message: Some(
                "the proxy is stopping; what the command committed stands, replay it after the \
                 restart"
                    .to_owned(),
            ),
        }),
    }
}
