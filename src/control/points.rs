//! Named fault points of the command path.
//!
//! Purpose: crash tests kill the process at each of these; see `base/fault.rs`. A point that is
//! told to fail only says so in the log: between two steps of a command there is nothing that an
//! error could undo, so the way to test them is to abort or to park. Those inside a drain are
//! passed once in each of its rounds.

use crate::base::fault;
use crate::fence::command::CommandKind;

/// A boundary of one command. The full name is `control.<command>.<boundary>`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Point {
    AfterOverlay,
    BeforeCommit,
    AfterCommit,
    AfterMarker,
    BeforePublish,
    BeforeDrain,
    AfterCutoff,
    AfterLeases,
    AfterCensus,
    AfterLock,
    AfterBoundary,
    AfterSecondCensus,
    AfterDrain,
    BeforeFinalCommit,
    AfterFinalCommit,
    AfterFinalMarker,
    BeforeResponse,
}

impl Point {
    const fn acquire(self) -> &'static str {
        match self {
            Self::AfterOverlay => "control.acquire.after_overlay",
            Self::BeforeCommit => "control.acquire.before_commit",
            Self::AfterCommit => "control.acquire.after_commit",
            Self::AfterMarker => "control.acquire.after_marker",
            Self::BeforePublish => "control.acquire.before_publish",
            Self::BeforeDrain => "control.acquire.before_drain",
            Self::AfterCutoff => "control.acquire.after_cutoff",
            Self::AfterLeases => "control.acquire.after_leases",
            Self::AfterCensus => "control.acquire.after_census",
            Self::AfterLock => "control.acquire.after_lock",
            Self::AfterBoundary => "control.acquire.after_boundary",
            Self::AfterSecondCensus => "control.acquire.after_second_census",
            Self::AfterDrain => "control.acquire.after_drain",
            Self::BeforeFinalCommit => "control.acquire.before_final_commit",
            Self::AfterFinalCommit => "control.acquire.after_final_commit",
            Self::AfterFinalMarker => "control.acquire.after_final_marker",
            Self::BeforeResponse => "control.acquire.before_response",
        }
    }

    /// A release has no overlay and no drain; those names are never passed.
    const fn release(self) -> &'static str {
        match self {
            Self::AfterOverlay => "control.release.after_overlay",
            Self::BeforeCommit => "control.release.before_commit",
            Self::AfterCommit => "control.release.after_commit",
            Self::AfterMarker => "control.release.after_marker",
            Self::BeforePublish => "control.release.before_publish",
            Self::BeforeDrain => "control.release.before_drain",
            Self::AfterCutoff => "control.release.after_cutoff",
            Self::AfterLeases => "control.release.after_leases",
            Self::AfterCensus => "control.release.after_census",
            Self::AfterLock => "control.release.after_lock",
            Self::AfterBoundary => "control.release.after_boundary",
            Self::AfterSecondCensus => "control.release.after_second_census",
            Self::AfterDrain => "control.release.after_drain",
            Self::BeforeFinalCommit => "control.release.before_final_commit",
            Self::AfterFinalCommit => "control.release.after_final_commit",
            Self::AfterFinalMarker => "control.release.after_final_marker",
            Self::BeforeResponse => "control.release.before_response",
        }
    }

    const fn name(self, kind: CommandKind) -> &'static str {
        match kind {
            CommandKind::AcquireSourceWriteFence => self.acquire(),
            // Every other command that runs in this version commits once, as a release does.
            CommandKind::ReleaseSourceWriteFence
            | CommandKind::SetSourceReadFence
            | CommandKind::ClearSourceReadFence
            | CommandKind::CreateTargetQuarantined
            | CommandKind::SealTargetImport
            | CommandKind::RecordTargetValidation
            | CommandKind::PublishTargetReadableWriteFenced
            | CommandKind::EnableTargetWrites
            | CommandKind::AbortQuarantinedTarget
            | CommandKind::AdoptFence => self.release(),
        }
    }

    /// Passes the point.
    pub(super) async fn pass(self, kind: CommandKind) {
        if let Err(fault) = fault::point_async(self.name(kind)).await {
            tracing::warn!(%fault, "a fault point on the command path can only abort or park");
        }
    }
}
