//! What a row and a marker mean together. Pure.
//!
//! Purpose: the table of the contract's section 1.11, as one function. It alone may say that a
//! namespace has no fence, because it alone has seen both places.
//!
//! Invariants: 3, 4. Callers: `control/recovery.rs` at the start, `control/fences.rs` before each
//! command. It repairs nothing itself: it says what to rewrite.

use super::marker::Marker;
use super::{LoadedFence, Persisted, Row};
use crate::base::ids::{Namespace, Revision};
use crate::fence::code::Detail;
use crate::fence::record::FenceRecord;
use crate::fence::state::FenceState;
use crate::fence::transition::ControlView;

/// What to do about the marker. The store's row is never repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// Leave it.
    Nothing,
    /// Write it anew from the record, which is the truth.
    RewriteMarker,
}

/// What is known after both were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reconciled {
    /// The control state.
    pub view: ControlView,
    /// The key to the gate, where the state is known; `None` keeps it closed.
    pub persisted: Option<Persisted>,
    /// What to do about the marker.
    pub repair: Repair,
    /// `consistent`, `None` without a record, or the name of the unavailable detail.
    pub provenance: Option<&'static str>,
}

/// Compares a row with its marker.
///
/// `exists` is whether the database itself exists; pass `true` where that isn't known, which can
/// only make the answer stricter.
#[must_use]
pub fn reconcile(loaded: LoadedFence, marker: Marker, exists: bool) -> Reconciled {
    match loaded.row {
        Row::Absent => without_row(loaded.namespace, marker, exists),
        Row::Good(persisted) => with_row(persisted, marker),
        Row::Bad { detail, reason } => {
            let marker = match marker {
                Marker::Found(record) => Some(record),
                Marker::Missing | Marker::Undecodable { .. } => None,
            };
            unavailable(detail, reason, marker, Revision(0))
        }
    }
}

fn without_row(namespace: Namespace, marker: Marker, exists: bool) -> Reconciled {
    match marker {
        Marker::Missing => Reconciled {
            view: ControlView::NoRecord { exists },
            persisted: Some(Persisted::nothing(namespace)),
            repair: Repair::Nothing,
            provenance: None,
        },
        Marker::Undecodable { reason } => {
            let reason = format!("there is no record, and a marker that cannot be read ({reason})");
            unavailable(Detail::CorruptRecord, reason, None, Revision(0))
        }
        // Whether its database was made by then is for the replay to see.
        Marker::Found(record) if is_begun_creation(&record) => {
            let reason = format!(
                "command {} of operation {} began to create this target and was not committed; \
                 replay it. If that operation is gone: drop the database if it is there and empty, \
                 stop the proxy, move the file {} out of the state folder, and start it",
                record.last_command,
                record.operation,
                super::marker::file_of(&record.namespace).display()
            );
            unavailable(Detail::IncompleteTargetCreation, reason, Some(record), Revision(0))
        }
        Marker::Found(record) => {
            let reason = format!(
                "the store has no record, the marker one in state {} at revision {}: the store was \
                 lost or restored; {}",
                record.state,
                record.revision,
                way_out(&record)
            );
            unavailable(Detail::MetastoreBehindMarker, reason, Some(record), Revision(0))
        }
    }
}

/// What to do where only the marker knows: a finished operation has no owner to hand over.
fn way_out(marker: &FenceRecord) -> String {
    if !marker.state.is_operation_finished() {
        return "adopt from the marker or restore the newer store".to_owned();
    }
    format!(
        "restore the newer store; or, as the operation had finished, look that no move of {} is \
         running, stop the proxy, move the file {} out of the state folder, and start it",
        marker.namespace,
        super::marker::file_of(&marker.namespace).display()
    )
}

fn is_begun_creation(marker: &FenceRecord) -> bool {
    marker.state == FenceState::TargetQuarantined && marker.revision == Revision(1)
}

fn with_row(persisted: Persisted, marker: Marker) -> Reconciled {
    let Some(record) = persisted.record().cloned() else {
        // A good row has a record; without one, nothing is known.
        let reason = "the row holds no record".to_owned();
        return unavailable(Detail::CorruptRecord, reason, None, Revision(0));
    };
    let repair = match marker {
        Marker::Missing | Marker::Undecodable { .. } => Repair::RewriteMarker,
        Marker::Found(copy) if *copy == record => Repair::Nothing,
        Marker::Found(copy) if copy.revision < record.revision => Repair::RewriteMarker,
        Marker::Found(copy) => {
            let reason = format!(
                "the store has revision {} (state {}), the marker revision {} (state {}): the \
                 store was restored or replaced; {}",
                record.revision,
                record.state,
                copy.revision,
                copy.state,
                way_out(&copy)
            );
            let detail = Detail::MetastoreBehindMarker;
            return unavailable(detail, reason, Some(copy), record.revision);
        }
    };
    Reconciled {
        view: ControlView::Record(Box::new(record)),
        persisted: Some(persisted),
        repair,
        provenance: Some("consistent"),
    }
}

fn unavailable(
    detail: Detail,
    reason: String,
    marker: Option<Box<FenceRecord>>,
    row_revision: Revision,
) -> Reconciled {
    Reconciled {
        view: ControlView::UnknownUnavailable { detail, reason, marker, row_revision },
        persisted: None,
        repair: Repair::Nothing,
        provenance: Some(detail.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::sample;

    fn at(revision: u64) -> FenceRecord {
        FenceRecord { revision: Revision(revision), ..sample::record(FenceState::SourceDraining) }
    }

    fn found(record: FenceRecord) -> Marker {
        Marker::Found(Box::new(record))
    }

    fn undecodable() -> Marker {
        Marker::Undecodable { reason: "torn".to_owned() }
    }

    fn good(record: FenceRecord) -> Row {
        Row::Good(Persisted::of(record))
    }

    fn bad(detail: Detail) -> Row {
        Row::Bad { detail, reason: "test".to_owned() }
    }

    /// The view's state or detail, whether there is a key to the gate, and the repair.
    fn seen(row: Row, marker: Marker, exists: bool) -> (&'static str, bool, Repair) {
        let loaded = LoadedFence { namespace: sample::namespace(), row };
        let reconciled = reconcile(loaded, marker, exists);
        let name = match &reconciled.view {
            ControlView::UnknownUnavailable { detail, .. } => detail.name(),
            view @ (ControlView::NoRecord { .. } | ControlView::Record(_)) => view.state().name(),
        };
        (name, reconciled.persisted.is_some(), reconciled.repair)
    }

    #[test]
    fn every_row_of_the_table() {
        use Repair::{Nothing, RewriteMarker};
        let created = || FenceRecord {
            revision: Revision(1),
            ..sample::record(FenceState::TargetQuarantined)
        };
        let other = || FenceRecord { operation: sample::operation(9), ..at(5) };
        let behind = ("metastore_behind_marker", false, Nothing);
        let corrupt = ("corrupt_record", false, Nothing);
        let ours = ("SOURCE_DRAINING", true, Nothing);
        let rewritten = ("SOURCE_DRAINING", true, RewriteMarker);
        let incomplete = ("incomplete_target_creation", false, Nothing);
        let cases = [
            (Row::Absent, Marker::Missing, true, ("UNFENCED", true, Nothing)),
            (Row::Absent, Marker::Missing, false, ("ABSENT", true, Nothing)),
            (Row::Absent, undecodable(), true, corrupt),
            (Row::Absent, found(created()), false, incomplete),
            (Row::Absent, found(created()), true, incomplete),
            (Row::Absent, found(at(5)), false, behind),
            (good(at(5)), found(at(5)), true, ours),
            (good(at(5)), Marker::Missing, true, rewritten),
            (good(at(5)), found(at(4)), true, rewritten),
            (good(at(5)), undecodable(), true, rewritten),
            (good(at(5)), found(at(6)), true, behind),
            (good(at(5)), found(other()), true, behind),
            (bad(Detail::CorruptRecord), found(at(5)), true, corrupt),
            (
                bad(Detail::UnsupportedFormatVersion),
                Marker::Missing,
                true,
                ("unsupported_format_version", false, Nothing),
            ),
        ];
        for (row, marker, exists, expected) in cases {
            let what = format!("{row:?} with {marker:?}");
            assert_eq!(seen(row, marker, exists), expected, "{what}");
        }
    }

    #[test]
    fn the_way_out_is_one_that_works() {
        let said = |marker: FenceRecord| {
            let loaded = LoadedFence { namespace: sample::namespace(), row: Row::Absent };
            match reconcile(loaded, found(marker), true).view {
                ControlView::UnknownUnavailable { reason, .. } => reason,
                view @ (ControlView::NoRecord { .. } | ControlView::Record(_)) => {
                    panic!("{view:?}")
                }
            }
        };
        assert!(said(at(5)).contains("adopt from the marker"));
        // A finished operation can't be adopted: the file is named instead.
        let finished = said(sample::record(FenceState::Released));
        assert!(finished.contains("move the file markers/old/app.fence out"), "{finished}");
        assert!(!finished.contains("adopt"), "{finished}");
        let begun = said(FenceRecord {
            revision: Revision(1),
            ..sample::record(FenceState::TargetQuarantined)
        });
        assert!(begun.contains("replay it") && begun.contains("app.fence out"), "{begun}");
    }

    #[test]
    fn a_store_behind_its_marker_hands_both_on_for_adoption() {
        let loaded = LoadedFence { namespace: sample::namespace(), row: good(at(5)) };
        match reconcile(loaded, found(at(6)), true).view {
            ControlView::UnknownUnavailable { marker, row_revision, .. } => {
                assert_eq!(marker.map(|record| record.revision), Some(Revision(6)));
                assert_eq!(row_revision, Revision(5));
            }
            view @ (ControlView::NoRecord { .. } | ControlView::Record(_)) => panic!("{view:?}"),
        }
    }
}
