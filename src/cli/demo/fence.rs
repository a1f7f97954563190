//! The two fence commands of the play, and what is seen of the drain between them.
//!
//! Purpose: sends the commands as any caller would, watches the drain by inspecting, and tells the
//! evidence as it was stored with the record. Called by `play.rs`.

use std::sync::Arc;
use std::time::Duration;

use super::client::{SLOW_NAME, SlowTransaction};
use super::error::DemoError;
use super::history::{Attempt, Recorder};
use super::narrator::Narrator;
use super::server::SLOW_USER;
use crate::base::ids::{CommandId, Namespace, OperationId, Revision};
use crate::control::answer::BlockerReport;
use crate::control::{Answer, AnswerCode, Control, DrainReport};
use crate::fence::code::ControlCode;
use crate::fence::command::{Actor, ActorSurface, Arguments, Command};
use crate::fence::record::{DrainPolicy, Evidence, FenceRecord, OnDeadline};
use crate::fence::state::FenceState;
use crate::telemetry::spawn::spawn_named;

/// How long the drain may take.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);
/// How long the drain must have been seen waiting for the slow transaction alone.
const SEEN_WAITING: Duration = Duration::from_secs(2);
/// When the slow transaction is committed at the latest.
const PATIENCE: Duration = Duration::from_secs(12);
const LOOK: Duration = Duration::from_millis(150);
/// At most one lasting line about the drain in this time.
const LINE_EVERY: Duration = Duration::from_secs(1);
const ACQUIRE: &str = "AcquireSourceWriteFence";

/// One namespace, commanded by one operation.
pub(super) struct Commander {
    control: Arc<Control>,
    namespace: Namespace,
    operation: OperationId,
    acquire: CommandId,
    release: CommandId,
}

/// What came of acquiring.
pub(super) struct Acquired {
    /// The record as it stands.
    pub(super) record: Box<FenceRecord>,
    /// The slow client's view of its own end.
    pub(super) slow: Attempt,
    /// When the command was sent and answered.
    pub(super) asked: Duration,
    pub(super) fenced: Duration,
}

impl Commander {
    pub(super) fn new(control: &Arc<Control>, namespace: Namespace) -> Self {
        Self {
            control: Arc::clone(control),
            namespace,
            operation: OperationId::fresh(),
            acquire: CommandId::fresh(),
            release: CommandId::fresh(),
        }
    }

    /// The text that only this operation's boundary marker holds.
    pub(super) fn marker(&self) -> String {
        self.operation.to_string()
    }

    fn command(
        &self,
        command: CommandId,
        expected: (FenceState, Revision),
        arguments: Arguments,
    ) -> Command {
        Command {
            namespace: self.namespace.clone(),
            operation: self.operation,
            command,
            expected_state: expected.0,
            expected_revision: expected.1,
            arguments,
        }
    }

    /// The acquire command for what the namespace is now.
    async fn acquire_command(&self) -> Result<Command, DemoError> {
        let before = self.control.inspect(&self.namespace, false).await;
        let sight = before.map_err(|error| refused(ACQUIRE, "no view", &error.to_string()))?.sight;
        let nameless = || refused(ACQUIRE, "no view", "the engine does not name the database");
        let policy = DrainPolicy {
            deadline_ms: u64::try_from(DEADLINE.as_millis()).unwrap_or(u64::MAX),
            on_deadline: OnDeadline::Fail,
            in_flight: None,
            hold_ms: None,
        };
        let arguments = Arguments::AcquireSourceWriteFence {
            identity: sight.live.ok_or_else(nameless)?,
            drain_policy: Some(policy),
        };
        Ok(self.command(self.acquire, (sight.state, sight.revision), arguments))
    }

    /// Acquires the fence while `slow` is open, and commits `slow` once the drain was seen waiting
    /// for it.
    ///
    /// # Cancel safety
    /// The command runs on; the slow transaction is dropped.
    pub(super) async fn acquire(
        &self,
        mut slow: SlowTransaction,
        recorder: &Arc<Recorder>,
        narrator: &mut Narrator<'_, '_>,
    ) -> Result<Acquired, DemoError> {
        let command = self.acquire_command().await?;
        let asked = recorder.now();
        let (control, its_recorder) = (Arc::clone(&self.control), Arc::clone(recorder));
        // On a task of its own, so that the time of the answer is not that of the next look.
        let mut sent = spawn_named("demo-acquire", async move {
            let answer = control.execute(actor(), command).await;
            (answer, its_recorder.now())
        });
        let mut watch = Watch { asked, alone_since: None, last_line: None };
        let mut ticks = tokio::time::interval(LOOK);
        let answered = loop {
            tokio::select! {
                answered = &mut sent => break answered,
                _ = ticks.tick() => {
                    let seen = self.control.inspect(&self.namespace, false).await;
                    if let Ok(seen) = seen
                        && watch.look(&seen.sight.drain, recorder.now(), narrator)
                        && slow.is_open()
                    {
                        watch.tell_commit(recorder.now(), narrator);
                        slow.commit(recorder).await;
                    }
                }
            }
        };
        let (answer, fenced) =
            answered.map_err(|death| refused(ACQUIRE, "nothing", &death.to_string()))?;
        let slow = slow.commit(recorder).await;
        applied(ACQUIRE, &answer)?;
        let now = self.control.inspect(&self.namespace, false).await;
        let now = now.map_err(|error| refused(ACQUIRE, "APPLIED", &error.to_string()))?;
        let record = now.sight.record.ok_or_else(|| refused(ACQUIRE, "APPLIED", "no record"))?;
        Ok(Acquired { record, slow, asked, fenced })
    }

    /// Releases the fence that `record` describes.
    ///
    /// # Cancel safety
    /// The command runs on.
    pub(super) async fn release(&self, record: &FenceRecord) -> Result<(), DemoError> {
        let expected = (record.state, record.revision);
        let command = self.command(self.release, expected, Arguments::ReleaseSourceWriteFence);
        let answer = self.control.execute(actor(), command).await;
        applied("ReleaseSourceWriteFence", &answer)
    }
}

fn actor() -> Actor {
    Actor { surface: ActorSurface::Move, name: "demo".to_owned(), has_adoption_key: false }
}

fn refused(command: &'static str, code: &'static str, words: &str) -> DemoError {
    DemoError::Fence { command, code, words: words.to_owned() }
}

fn applied(command: &'static str, answer: &Answer) -> Result<(), DemoError> {
    if answer.code == AnswerCode::Control(ControlCode::Applied) {
        return Ok(());
    }
    let words = answer.message.as_deref().unwrap_or("no reason was given");
    Err(refused(command, answer.code.name(), words))
}

/// Follows a drain.
struct Watch {
    asked: Duration,
    /// When the slow transaction was first seen to be the only one waited for.
    alone_since: Option<Duration>,
    last_line: Option<Duration>,
}

impl Watch {
    /// Tells one look at the drain; answers whether the slow transaction has been waited for
    /// long enough.
    fn look(
        &mut self,
        drain: &DrainReport,
        now: Duration,
        narrator: &mut Narrator<'_, '_>,
    ) -> bool {
        let text = in_words(drain);
        narrator.live(&format!("{}  {text}", self.label(now)));
        let due = self.last_line.is_none_or(|last| now.saturating_sub(last) >= LINE_EVERY);
        if due && drain.command.is_some() {
            narrator.line(&self.label(now), &text);
            self.last_line = Some(now);
        }
        let alone = match drain.blockers.as_slice() {
            [one] => {
                let slow = one.application_name == SLOW_NAME || one.user == SLOW_USER;
                slow && drain.more_blockers == 0
            }
            [] | [_, ..] => false,
        };
        if alone {
            self.alone_since.get_or_insert(now);
        }
        let seen = self.alone_since.is_some_and(|from| now.saturating_sub(from) >= SEEN_WAITING);
        seen || now.saturating_sub(self.asked) >= PATIENCE
    }

    fn label(&self, now: Duration) -> String {
        format!("{:.1} s", now.saturating_sub(self.asked).as_secs_f64())
    }

    fn tell_commit(&self, now: Duration, narrator: &mut Narrator<'_, '_>) {
        let text = "the slow client sends COMMIT, which a writer from before the fence may";
        narrator.line(&self.label(now), text);
    }
}

/// One line about a drain.
fn in_words(drain: &DrainReport) -> String {
    let count = drain.blockers.len() as u64 + drain.more_blockers;
    let oldest = drain.blockers.iter().max_by_key(|blocker| blocker.age_ms);
    match (count, oldest) {
        (_, None) => match &drain.reason {
            Some(reason) => reason.clone(),
            None => format!("drain: {}", drain.phase.name().replace('_', " ")),
        },
        (1, Some(one)) => format!("waits for {}", blocker_in_words(one)),
        (count, Some(one)) => format!("waits for {count}, the oldest {}", blocker_in_words(one)),
    }
}

fn blocker_in_words(blocker: &BlockerReport) -> String {
    let session =
        blocker.session.map_or_else(|| "no session".to_owned(), |id| format!("session {id}"));
    let backend = blocker.engine_pid.map_or_else(String::new, |pid| format!(", pid {pid}"));
    let age = blocker
        .age_ms
        .map_or_else(String::new, |ms| format!(", open {}.{} s", ms / 1000, ms % 1000 / 100));
    let BlockerReport { user, application_name, statement, .. } = blocker;
    // MariaDB and MySQL don't say what an idle session ran last.
    let last = if statement.is_empty() { String::new() } else { format!(": {statement}") };
    format!("{session}{backend}, user {user} ({application_name}){age}{last}")
}

/// Tells the stored evidence.
pub(super) fn tell(evidence: &Evidence, narrator: &mut Narrator<'_, '_>) {
    let boundary = &evidence.boundary;
    let marker = if boundary.marker { "behind a marker written for it" } else { "no marker" };
    let timeline = boundary.timeline.map_or_else(|| "-".to_owned(), |number| number.to_string());
    narrator.line(
        "boundary",
        &format!("{} {}, {marker}, timeline {timeline}", boundary.kind.name(), boundary.value),
    );
    for (label, census) in
        [("census before", &evidence.census_before), ("census after", &evidence.census_after)]
    {
        narrator.line(
            label,
            &format!(
                "transactions {} (waited for {}), writers {}, prepared {}, orphans {}",
                census.virtual_transactions,
                census.waited_for,
                census.writers,
                census.prepared,
                census.orphans
            ),
        );
    }
    let lock = &evidence.engine_lock;
    narrator.line(
        "engine lock",
        &format!("{}, {} tables; {}", lock.mode.name(), lock.tables, lock.outcome),
    );
    let releases = evidence.releases;
    narrator.line(
        "releases",
        &format!(
            "open writers seen to end: {} by the engine's answer, {} by its census, {} forced",
            releases.by_answer,
            releases.by_engine,
            evidence.forced.len()
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::SessionId;
    use crate::control::answer::DrainPhase;

    #[test]
    fn a_drain_is_told_by_its_oldest_blocker() {
        let blocker = |id, age_ms| BlockerReport {
            session: Some(SessionId(id)),
            user: "bank".to_owned(),
            application_name: "slow batch".to_owned(),
            engine_pid: Some(71),
            age_ms: Some(age_ms),
            statement: "INSERT INTO transfers VALUES (1)".to_owned(),
            ..BlockerReport::default()
        };
        let mut drain = DrainReport { phase: DrainPhase::EngineLock, ..DrainReport::default() };
        assert_eq!(in_words(&drain), "drain: engine lock");
        drain.blockers = vec![blocker(7, 2_345)];
        let one = "session 7, pid 71, user bank (slow batch), open 2.3 s: \
                   INSERT INTO transfers VALUES (1)";
        assert_eq!(in_words(&drain), format!("waits for {one}"));
        drain.blockers.push(blocker(8, 10));
        drain.more_blockers = 3;
        assert_eq!(in_words(&drain), format!("waits for 5, the oldest {one}"));
        drain.blockers = vec![BlockerReport { statement: String::new(), ..blocker(7, 2_345) }];
        drain.more_blockers = 0;
        let idle = "waits for session 7, pid 71, user bank (slow batch), open 2.3 s";
        assert_eq!(in_words(&drain), idle);
    }
}
