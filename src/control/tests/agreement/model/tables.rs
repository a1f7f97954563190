//! The contract's tables: who may command what (1.4.2), and what each state admits (1.3).

use super::words::{Entry, Heard, K, Kind, S, State};

/// The matrix 1.4.2, letter by letter, for the owner of the record or where there is none.
/// Columns: Acquire, SetRead, ClearRead, Release, Create, Seal, Validate, Publish, Enable, Abort.
#[rustfmt::skip]
pub(super) const OWN: [(State, &str); 13] = [
    (S::Unfenced,              "D     INV   INV   INV   EX    INV/r INV/r INV/r INV/r INV/r"),
    (S::Absent,                "INV/r INV/r INV/r INV/r A     INV   INV   INV   INV   INV"),
    (S::SourceDraining,        "J     INV   INV   A     EX    INV/r INV/r INV/r INV/r INV/r"),
    (S::SourceWriteFenced,     "AA    D     AA    A     EX    INV/r INV/r INV/r INV/r INV/r"),
    (S::SourceReadDraining,    "INV   J     A     INV   EX    INV/r INV/r INV/r INV/r INV/r"),
    (S::SourceReadFenced,      "INV   AA    A     INV   EX    INV/r INV/r INV/r INV/r INV/r"),
    (S::Released,              "INV/f INV/f INV/f AA    INV/f INV/f INV/f INV/f INV/f INV/f"),
    (S::TargetQuarantined,     "INV/r INV/r INV/r INV/r AA    D     INV   INV   INV   A"),
    (S::TargetImportDraining,  "INV/r INV/r INV/r INV/r EX    J     INV   INV   INV   A"),
    (S::TargetValidating,      "INV/r INV/r INV/r INV/r EX    AA    A     A     INV   A"),
    (S::TargetWriteFenced,     "INV/r INV/r INV/r INV/r EX    INV   INV   AA    A     A"),
    (S::TargetWritable,        "INV/f INV/f INV/f INV/f INV/f INV/f INV/f INV/f AA    INV/f"),
    (S::TargetAborted,         "INV/f INV/f INV/f INV/f INV/f INV/f INV/f INV/f INV/f AA"),
];

/// The same for another operation, where the record's one has finished.
#[rustfmt::skip]
pub(super) const OTHER: [(State, &str); 3] = [
    (S::Released,              "D     INV   INV   INV   EX    INV/r INV/r INV/r INV/r INV/r"),
    (S::TargetWritable,        "D     INV   INV   INV   EX    INV/r INV/r INV/r INV/r INV/r"),
    (S::TargetAborted,         "INV/r INV/r INV/r INV/r EX    INV   INV   INV   INV   INV"),
];

/// What table 1.3 says of one state, by code; empty is admitted.
pub(crate) const CLASSES: [&str; 5] = ["read", "write", "ddl", "lifecycle", "stream"];
pub(super) const WF: &str = "MIGRATION_WRITE_FENCED";
pub(super) const RF: &str = "MIGRATION_READ_FENCED";
pub(super) const TQ: &str = "MIGRATION_TARGET_QUARANTINED";
pub(super) const SU: &str = "FENCE_STATE_UNAVAILABLE";
pub(super) const CR: &str = "OPERATION_CAPABILITY_REQUIRED";

#[rustfmt::skip]
pub(super) const ADMITS: [(State, [&str; 5]); 14] = [
    (S::Unfenced,             ["", "", "", "", ""]),
    (S::Absent,               ["", "", "", "", ""]),
    (S::SourceDraining,       ["", WF, WF, WF, ""]),
    (S::SourceWriteFenced,    ["", WF, WF, WF, ""]),
    (S::SourceReadDraining,   [RF, WF, WF, WF, RF]),
    (S::SourceReadFenced,     [RF, WF, WF, WF, RF]),
    (S::Released,             ["", "", "", "", ""]),
    (S::TargetQuarantined,    [TQ, TQ, TQ, TQ, TQ]),
    (S::TargetImportDraining, [TQ, TQ, TQ, TQ, TQ]),
    (S::TargetValidating,     [TQ, TQ, TQ, TQ, TQ]),
    (S::TargetWriteFenced,    ["", WF, WF, WF, ""]),
    (S::TargetWritable,       ["", "", "", "", ""]),
    (S::TargetAborted,        [TQ, TQ, TQ, TQ, TQ]),
    (S::Unknown,              [SU, SU, SU, SU, SU]),
];

/// What table 1.3 says of work under a live capability: import, and validation's reads. Running
/// calls alone go on while an import drains; nothing new begins.
#[rustfmt::skip]
pub(super) const CAPABLE: [(State, [&str; 2]); 14] = [
    (S::Unfenced,             [CR, CR]),
    (S::Absent,               [CR, CR]),
    (S::SourceDraining,       [CR, CR]),
    (S::SourceWriteFenced,    [CR, CR]),
    (S::SourceReadDraining,   [CR, CR]),
    (S::SourceReadFenced,     [CR, CR]),
    (S::Released,             [CR, CR]),
    (S::TargetQuarantined,    ["", CR]),
    (S::TargetImportDraining, [CR, CR]),
    (S::TargetValidating,     [CR, ""]),
    (S::TargetWriteFenced,    [CR, ""]),
    (S::TargetWritable,       [CR, CR]),
    (S::TargetAborted,        [CR, CR]),
    (S::Unknown,              [SU, SU]),
];

pub(super) const UNMET: &str = "FENCE_PRECONDITION_FAILED";
pub(super) const INVALID: &str = "INVALID_FENCE_TRANSITION";
pub(super) const DOUBT: &str = "FENCE_COMMIT_INDETERMINATE";
pub(super) const BEHIND: &str = "metastore_behind_marker";
pub(super) const BEGUN: &str = "incomplete_target_creation";
pub(super) const OWNED: &str = "FENCE_OWNED_BY_ANOTHER_OPERATION";
pub(super) const STALE: &str = "FENCE_REVISION_MISMATCH";

pub(super) fn refused(code: &'static str, detail: &'static str) -> Heard {
    Heard { code, detail, replayed: false, receipt: None }
}

pub(super) fn failed() -> Heard {
    refused("ERROR", "")
}

pub(super) fn answered(entry: Entry, replayed: bool) -> Heard {
    Heard { code: entry.outcome, detail: "", replayed, receipt: Some(entry.line()) }
}

/// The state that a command whose cell is `A` or `D` goes to.
pub(super) const fn to(kind: Kind, from: State) -> State {
    match kind {
        K::Acquire => S::SourceDraining,
        K::SetRead => S::SourceReadDraining,
        K::ClearRead => S::SourceWriteFenced,
        K::Release => S::Released,
        K::Create => S::TargetQuarantined,
        K::Seal => S::TargetImportDraining,
        K::Publish => S::TargetWriteFenced,
        K::Enable => S::TargetWritable,
        K::Abort => S::TargetAborted,
        K::Validate | K::Adopt => from,
    }
}
