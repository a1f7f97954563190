//! Control arms: one guard removed, so that a test can show that it would notice.
//!
//! Purpose: a test of a guard is worth what it reports without the guard. In debug builds
//! `FENCEWIRE_REMOVE` names guards, separated by commas, that the process then goes without, and
//! `tests/arms_pg.rs` (the classifier: `tests/generated_pg.rs`) and `tests/arms_mysql.rs` expect
//! violations of each. Those of the library's own rules are removed in its unit tests, which start
//! themselves once more for it (`arm::missed`). In release builds [`removed`] is a constant `false`
//! and the variable is never read.
//!
//! Callers: the one place of each guard. Nothing here decides what is lost without it.

/// A guard that can be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removable {
    /// The second reading of the gate's word, after a lease was published.
    LeaseRecheck,
    /// A lease ends only by an observed release: without it, the end of the session will do.
    ObservedRelease,
    /// What the engine says about transactions that are open.
    Census,
    /// What the engine says about prepared transactions.
    PreparedCheck,
    /// The injected read-only setting.
    ReadOnlyGuard,
    /// The locks on the namespace's tables.
    EngineLock,
    /// A transaction of an older generation never becomes a writer.
    GenerationCheck,
    /// What the text of a statement shows: without it every program is a read.
    Classifier,
    /// What was held at a closed gate is judged again before it goes on.
    HeldJudgement,
    /// Backends of our own that a broken link left behind on the engine are ended.
    EndStrays,
    /// A generation is the one before it plus one: without it, the record's revision will do.
    GenerationGrowth,
    /// A process starts above every generation of the one before it: without it, at 1.
    GenerationStart,
    /// A drain speaks of the generation it began with: without it, of the gate's at its end.
    DrainGeneration,
    /// A commit of which nothing is known is read back: without it, it didn't happen.
    CommitDoubt,
    /// Stopping leaves every gate as it is: without it, gates open so that sessions can finish.
    StopLeavesGates,
    /// Refusals have codes of their own: without it, that of an engine that is read-only.
    OwnCodes,
    /// Gates start closed until every record was read: without it, they start open.
    ClosedStart,
    /// The engine lock is asked for through its holder: without it, not having heard is enough.
    LockConfirm,
    /// The engine lock is of the database that the census is of, by its holder's own word.
    LockIdentity,
    /// Whatever starts work is admitted first: without it, a function call of PostgreSQL's protocol
    /// and COM_DROP_DB pass as if they started none.
    StatementLease,
    /// What the control account may not see is an error: without it, it isn't there.
    SightCheck,
    /// What still reads when a read drain's time is over is cancelled.
    ReadCancel,
    /// A guard counts only where the transaction that it was set in goes on.
    GuardStatus,
    /// A guard is sent ahead only behind a program that leaves its session idle.
    CalmAhead,
    /// A Sync that stands alone releases no lease.
    LoneSync,
    /// A transaction with a cursor WITH HOLD, whose query its COMMIT runs, counts as a writer.
    HoldCursor,
    /// Under a fence no savepoint is set in one program with the BEGIN of a read-write block.
    ReadWriteBlock,
    /// A PostgreSQL session ends where the engine doesn't skip what it was believed to skip.
    UnclearAnswers,
    /// A console runs nothing for who hasn't shown the admin key.
    ConsoleLogin,
    /// A capability dies with the revision it was given for: without it, it lives as long as its
    /// session.
    CapabilityLife,
    /// A target's name is closed before anything of it exists.
    TargetOverlay,
    /// A target's marker is there before its database is.
    TargetMarker,
    /// What ran on a target's engine before its gate was closed has ended before it is made.
    TargetPrograms,
    /// A capability's secret ends at the proxy: without it, what shows one goes to the engine as it
    /// came.
    CapabilitySecret,
    /// A control connection that was denied something is replaced by one with the rights of now.
    FreshRights,
    /// A control account that could do harm by imported code asks nothing where there is any.
    ImportedCode,
    /// A validation is of the database that was made for the target, by the engine's word.
    TargetIdentity,
    /// An import has not ended while an event of its schema is enabled.
    EventCheck,
    /// An aborted target's gate is asked by what may name it: without it, by what does alone.
    AbortedGate,
    /// What a MySQL engine runs at a login by itself is judged in front of the login.
    LoginText,
    /// A login to a database with login triggers is judged and waited for as a write is.
    LoginTriggers,
    /// Who was a standby of a fence's server when the fence went up is remembered.
    StandbyFollow,
    /// Records that were made of a followed engine later don't say who it was before.
    FrozenRecords,
    /// No fence and no target comes to be on an engine that is shut, or that may have to be.
    ShutCommand,
    /// What may write at an acknowledged fence's server under another name is told to roll back.
    DoubleRollback,
    /// An import has not ended while what ran before this process was there runs on.
    OlderPrograms,
    /// What wakes a session's task is the waker of its last turn, or is left anew.
    WakerLook,
    /// A read that ended with the task's budget has left its waker nowhere.
    BudgetLook,
    /// A text is recalled for what it was only under the rules that it was read by.
    RecallRules,
    /// A cutoff counts for the closing that it was taken behind, and for no other.
    CutoffGeneration,
    /// What `auto_prepare` keeps is forgotten behind what may have a text mean something else.
    AutoForget,
    /// What `""` means is waited for where nobody knows it.
    AutoMeaning,
    /// A kept name that something opaque may have given another meaning is judged as opaque.
    AutoDoubt,
}

impl Removable {
    /// Each of them.
    pub const ALL: [Self; 53] = [
        Self::LeaseRecheck,
        Self::ObservedRelease,
        Self::Census,
        Self::PreparedCheck,
        Self::ReadOnlyGuard,
        Self::EngineLock,
        Self::GenerationCheck,
        Self::Classifier,
        Self::HeldJudgement,
        Self::EndStrays,
        Self::GenerationGrowth,
        Self::GenerationStart,
        Self::DrainGeneration,
        Self::CommitDoubt,
        Self::StopLeavesGates,
        Self::OwnCodes,
        Self::ClosedStart,
        Self::LockConfirm,
        Self::LockIdentity,
        Self::StatementLease,
        Self::SightCheck,
        Self::ReadCancel,
        Self::GuardStatus,
        Self::CalmAhead,
        Self::LoneSync,
        Self::HoldCursor,
        Self::ReadWriteBlock,
        Self::UnclearAnswers,
        Self::ConsoleLogin,
        Self::CapabilityLife,
        Self::TargetOverlay,
        Self::TargetMarker,
        Self::TargetPrograms,
        Self::CapabilitySecret,
        Self::FreshRights,
        Self::ImportedCode,
        Self::TargetIdentity,
        Self::EventCheck,
        Self::AbortedGate,
        Self::LoginText,
        Self::LoginTriggers,
        Self::StandbyFollow,
        Self::FrozenRecords,
        Self::ShutCommand,
        Self::DoubleRollback,
        Self::OlderPrograms,
        Self::WakerLook,
        Self::BudgetLook,
        Self::RecallRules,
        Self::CutoffGeneration,
        Self::AutoForget,
        Self::AutoMeaning,
        Self::AutoDoubt,
    ];

    /// Its name in `FENCEWIRE_REMOVE`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LeaseRecheck => "lease-recheck",
            Self::ObservedRelease => "observed-release",
            Self::Census => "census",
            Self::PreparedCheck => "prepared-check",
            Self::ReadOnlyGuard => "read-only-guard",
            Self::EngineLock => "engine-lock",
            Self::GenerationCheck => "generation-check",
            Self::Classifier => "classifier",
            Self::HeldJudgement => "held-judgement",
            Self::EndStrays => "end-strays",
            Self::GenerationGrowth => "generation-growth",
            Self::GenerationStart => "generation-start",
            Self::DrainGeneration => "drain-generation",
            Self::CommitDoubt => "commit-doubt",
            Self::StopLeavesGates => "stop-leaves-gates",
            Self::OwnCodes => "own-codes",
            Self::ClosedStart => "closed-start",
            Self::LockConfirm => "lock-confirm",
            Self::LockIdentity => "lock-identity",
            Self::StatementLease => "statement-lease",
            Self::SightCheck => "sight-check",
            Self::ReadCancel => "read-cancel",
            Self::GuardStatus => "guard-status",
            Self::CalmAhead => "calm-ahead",
            Self::LoneSync => "lone-sync",
            Self::HoldCursor => "hold-cursor",
            Self::ReadWriteBlock => "read-write-block",
            Self::UnclearAnswers => "unclear-answers",
            Self::ConsoleLogin => "console-login",
            Self::CapabilityLife => "capability-life",
            Self::TargetOverlay => "target-overlay",
            Self::TargetMarker => "target-marker",
            Self::TargetPrograms => "target-programs",
            Self::CapabilitySecret => "capability-secret",
            Self::FreshRights => "fresh-rights",
            Self::ImportedCode => "imported-code",
            Self::TargetIdentity => "target-identity",
            Self::EventCheck => "event-check",
            Self::AbortedGate => "aborted-gate",
            Self::LoginText => "login-text",
            Self::LoginTriggers => "login-triggers",
            Self::StandbyFollow => "standby-follow",
            Self::FrozenRecords => "frozen-records",
            Self::ShutCommand => "shut-command",
            Self::DoubleRollback => "double-rollback",
            Self::OlderPrograms => "older-programs",
            Self::WakerLook => "waker-look",
            Self::BudgetLook => "budget-look",
            Self::RecallRules => "recall-rules",
            Self::CutoffGeneration => "cutoff-generation",
            Self::AutoForget => "auto-forget",
            Self::AutoMeaning => "auto-meaning",
            Self::AutoDoubt => "auto-doubt",
        }
    }

    #[cfg(debug_assertions)]
    const fn bit(self) -> u64 {
        1 << (self as u8)
    }
}

/// Whether this process goes without the guard.
#[cfg(not(debug_assertions))]
#[inline(always)]
#[must_use]
pub const fn removed(_guard: Removable) -> bool {
    false
}

/// Whether this process goes without the guard.
#[cfg(debug_assertions)]
#[must_use]
pub fn removed(guard: Removable) -> bool {
    *armed::REMOVED & guard.bit() != 0
}

/// Runs one test of this very test program in processes of its own: as built, where it must pass,
/// and without each guard, where it must fail and say `VIOLATION: ` and what comes with the guard.
/// For tests, in debug builds.
///
/// # Errors
/// What the test said, where it was something else.
#[cfg(debug_assertions)]
pub fn missed(test: &str, guards: &[(&str, &str)]) -> Result<(), String> {
    let without = guards.iter().map(|(guard, what)| (Some(*guard), *what));
    for (removed, what) in std::iter::once((None, "")).chain(without) {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut once = std::process::Command::new(program);
        once.args([test, "--exact", "--nocapture", "--test-threads=1"]);
        once.env_remove("FENCEWIRE_REMOVE").env_remove("FENCEWIRE_FAULT");
        once.envs(removed.map(|guard| ("FENCEWIRE_REMOVE", guard)));
        let ended = once.output().map_err(|error| error.to_string())?;
        let (out, err) = (ended.stdout.as_slice(), ended.stderr.as_slice());
        let said = format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err));
        let told = said.contains(&format!("VIOLATION: {what}"));
        let as_wanted = match removed {
            None => ended.status.success() && said.contains("1 passed"),
            Some(_) => !ended.status.success() && said.contains("1 failed") && told,
        };
        if !as_wanted {
            return Err(format!("{test} without {removed:?}, wanted {what:?}:\n{said}"));
        }
    }
    Ok(())
}

#[cfg(debug_assertions)]
mod armed {
    use std::sync::LazyLock;

    use super::Removable;

    /// Reads the variable's text. A name that nobody knows is a mistake in a test.
    pub(super) fn parse(text: &str) -> Result<u64, String> {
        let mut bits = 0;
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let known = Removable::ALL.into_iter().find(|guard| guard.name() == name);
            bits |= known.ok_or_else(|| format!("FENCEWIRE_REMOVE: no guard {name:?}"))?.bit();
        }
        Ok(bits)
    }

    #[expect(clippy::panic, reason = "debug builds only: a test that asks for nonsense must stop")]
    pub(super) static REMOVED: LazyLock<u64> = LazyLock::new(|| {
        let text = std::env::var("FENCEWIRE_REMOVE").unwrap_or_default();
        parse(&text).unwrap_or_else(|error| panic!("{error}"))
    });

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn each_name_is_a_bit_of_its_own_and_nonsense_is_reported() {
            let mut seen = 0_u64;
            for guard in Removable::ALL {
                let bits = parse(guard.name()).unwrap();
                assert_eq!((bits.count_ones(), bits & seen), (1, 0), "{guard:?}");
                seen |= bits;
            }
            assert_eq!(parse("census, prepared-check").unwrap().count_ones(), 2);
            assert_eq!(parse("").unwrap(), 0);
            assert!(parse("everything").unwrap_err().contains("no guard"));
        }

        #[test]
        fn nothing_is_removed_unless_asked() {
            assert!(Removable::ALL.into_iter().all(|guard| !super::super::removed(guard)));
        }
    }
}
