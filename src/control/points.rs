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
    /// A target's marker is there before anything else of it is.
    AfterFirstMarker,
    AfterCreate,
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

/// The names of one command's boundaries. A command that opens has no overlay and no drain; those
/// names are never passed.
macro_rules! names {
    ($point:expr, $command:literal) => {
        match $point {
            Point::AfterOverlay => concat!("control.", $command, ".after_overlay"),
            Point::AfterFirstMarker => concat!("control.", $command, ".after_first_marker"),
            Point::AfterCreate => concat!("control.", $command, ".after_create"),
            Point::BeforeCommit => concat!("control.", $command, ".before_commit"),
            Point::AfterCommit => concat!("control.", $command, ".after_commit"),
            Point::AfterMarker => concat!("control.", $command, ".after_marker"),
            Point::BeforePublish => concat!("control.", $command, ".before_publish"),
            Point::BeforeDrain => concat!("control.", $command, ".before_drain"),
            Point::AfterCutoff => concat!("control.", $command, ".after_cutoff"),
            Point::AfterLeases => concat!("control.", $command, ".after_leases"),
            Point::AfterCensus => concat!("control.", $command, ".after_census"),
            Point::AfterLock => concat!("control.", $command, ".after_lock"),
            Point::AfterBoundary => concat!("control.", $command, ".after_boundary"),
            Point::AfterSecondCensus => concat!("control.", $command, ".after_second_census"),
            Point::AfterDrain => concat!("control.", $command, ".after_drain"),
            Point::BeforeFinalCommit => concat!("control.", $command, ".before_final_commit"),
            Point::AfterFinalCommit => concat!("control.", $command, ".after_final_commit"),
            Point::AfterFinalMarker => concat!("control.", $command, ".after_final_marker"),
            Point::BeforeResponse => concat!("control.", $command, ".before_response"),
        }
    };
}

impl Point {
    const fn name(self, kind: CommandKind) -> &'static str {
        match kind {
            CommandKind::AcquireSourceWriteFence => names!(self, "acquire"),
            CommandKind::ReleaseSourceWriteFence => names!(self, "release"),
            CommandKind::SetSourceReadFence => names!(self, "set_read"),
            CommandKind::ClearSourceReadFence => names!(self, "clear_read"),
            CommandKind::CreateTargetQuarantined => names!(self, "create_target"),
            CommandKind::SealTargetImport => names!(self, "seal_import"),
            CommandKind::RecordTargetValidation => names!(self, "validate"),
            CommandKind::PublishTargetReadableWriteFenced => names!(self, "publish"),
            CommandKind::EnableTargetWrites => names!(self, "enable_writes"),
            CommandKind::AbortQuarantinedTarget => names!(self, "abort"),
            CommandKind::AdoptFence => names!(self, "adopt"),
        }
    }

    /// Passes the point.
    pub(super) async fn pass(self, kind: CommandKind) {
        if let Err(fault) = fault::point_async(self.name(kind)).await {
            tracing::warn!(%fault, "a fault point on the command path can only abort or park");
        }
    }
}
