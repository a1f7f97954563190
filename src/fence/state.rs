//! The fourteen states of a namespace and what each of them admits.
//!
//! Purpose: one exhaustive table answers "may this class of work run in this state". The table has
//! no wildcard arm, so a new state or class can't be forgotten.
//!
//! Invariants: 4 (unknown admits nothing but maintenance and observability), 14.
//!
//! Callers: `fence::verdict`, `fence::transition`, `gate`, `admin`. It knows neither overlays nor
//! generations nor capabilities: those are the gate's, and only ever take admission away.

use super::code::Denial;

/// Which end of a move a fence record stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The database that is being left.
    Source,
    /// The database that is being filled.
    Target,
}

impl Role {
    /// `SOURCE` or `TARGET`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Source => "SOURCE",
            Self::Target => "TARGET",
        }
    }

    /// Reads the name; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Source, Self::Target].into_iter().find(|role| role.name() == text)
    }
}

/// Where a namespace stands. Eleven of the fourteen are durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FenceState {
    /// No record, and the namespace exists.
    Unfenced,
    /// No record and no namespace.
    Absent,
    /// Writes are closed; earlier writers may still be running.
    SourceDraining,
    /// Writes are closed and proven drained.
    SourceWriteFenced,
    /// Reads are closed too; earlier readers may still be running.
    SourceReadDraining,
    /// Reads and writes are closed and proven drained.
    SourceReadFenced,
    /// The move was rolled back; everything is open.
    Released,
    /// The target exists for its operation alone.
    TargetQuarantined,
    /// The import is closed; calls that began earlier may still be running.
    TargetImportDraining,
    /// The target is complete and is being checked.
    TargetValidating,
    /// The target is readable, not writable.
    TargetWriteFenced,
    /// The target is in service. Irreversible.
    TargetWritable,
    /// The target was given up; nothing is admitted.
    TargetAborted,
    /// Derived, never stored: the control state can't be established.
    UnknownUnavailable,
}

impl FenceState {
    /// All states in the order of their wire numbers.
    pub const ALL: [Self; 14] = [
        Self::Unfenced,
        Self::Absent,
        Self::SourceDraining,
        Self::SourceWriteFenced,
        Self::SourceReadDraining,
        Self::SourceReadFenced,
        Self::Released,
        Self::TargetQuarantined,
        Self::TargetImportDraining,
        Self::TargetValidating,
        Self::TargetWriteFenced,
        Self::TargetWritable,
        Self::TargetAborted,
        Self::UnknownUnavailable,
    ];

    /// The stable name, such as `SOURCE_WRITE_FENCED`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unfenced => "UNFENCED",
            Self::Absent => "ABSENT",
            Self::SourceDraining => "SOURCE_DRAINING",
            Self::SourceWriteFenced => "SOURCE_WRITE_FENCED",
            Self::SourceReadDraining => "SOURCE_READ_DRAINING",
            Self::SourceReadFenced => "SOURCE_READ_FENCED",
            Self::Released => "RELEASED",
            Self::TargetQuarantined => "TARGET_QUARANTINED",
            Self::TargetImportDraining => "TARGET_IMPORT_DRAINING",
            Self::TargetValidating => "TARGET_VALIDATING",
            Self::TargetWriteFenced => "TARGET_WRITE_FENCED",
            Self::TargetWritable => "TARGET_WRITABLE",
            Self::TargetAborted => "TARGET_ABORTED",
            Self::UnknownUnavailable => "UNKNOWN_UNAVAILABLE",
        }
    }

    /// Reads the name; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == text)
    }

    /// The number in binary encodings, 1 to 14; 0 is never a state.
    #[must_use]
    pub const fn wire_number(self) -> u8 {
        match self {
            Self::Unfenced => 1,
            Self::Absent => 2,
            Self::SourceDraining => 3,
            Self::SourceWriteFenced => 4,
            Self::SourceReadDraining => 5,
            Self::SourceReadFenced => 6,
            Self::Released => 7,
            Self::TargetQuarantined => 8,
            Self::TargetImportDraining => 9,
            Self::TargetValidating => 10,
            Self::TargetWriteFenced => 11,
            Self::TargetWritable => 12,
            Self::TargetAborted => 13,
            Self::UnknownUnavailable => 14,
        }
    }

    /// Reads a wire number; `None` for 0 and for anything above 14.
    #[must_use]
    pub fn from_wire_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.wire_number() == number)
    }

    /// The role a record in this state has; `None` where there is no record.
    #[must_use]
    pub const fn role(self) -> Option<Role> {
        match self {
            Self::SourceDraining
            | Self::SourceWriteFenced
            | Self::SourceReadDraining
            | Self::SourceReadFenced
            | Self::Released => Some(Role::Source),
            Self::TargetQuarantined
            | Self::TargetImportDraining
            | Self::TargetValidating
            | Self::TargetWriteFenced
            | Self::TargetWritable
            | Self::TargetAborted => Some(Role::Target),
            Self::Unfenced | Self::Absent | Self::UnknownUnavailable => None,
        }
    }

    /// Whether a record may be stored in this state.
    #[must_use]
    pub const fn is_durable(self) -> bool {
        self.role().is_some()
    }

    /// Whether the owning operation has no further command for this namespace.
    #[must_use]
    pub const fn is_operation_finished(self) -> bool {
        matches!(self, Self::Released | Self::TargetWritable | Self::TargetAborted)
    }

    /// Whether the state counts in `active_fences`: it still takes something away from clients.
    #[must_use]
    pub const fn is_active(self) -> bool {
        !matches!(self, Self::Unfenced | Self::Absent | Self::Released | Self::TargetWritable)
    }

    /// Whether a record in this state must carry a proof of its drain: `Some(true)` it must,
    /// `Some(false)` it can't have one yet, `None` it may (it ended before or after the proof).
    #[must_use]
    pub const fn is_proven(self) -> Option<bool> {
        match self {
            Self::SourceWriteFenced
            | Self::SourceReadDraining
            | Self::SourceReadFenced
            | Self::TargetValidating
            | Self::TargetWriteFenced
            | Self::TargetWritable => Some(true),
            Self::SourceDraining
            | Self::TargetQuarantined
            | Self::TargetImportDraining
            | Self::Unfenced
            | Self::Absent
            | Self::UnknownUnavailable => Some(false),
            Self::Released | Self::TargetAborted => None,
        }
    }

    /// Whether earlier work may still be running behind a closed gate.
    #[must_use]
    pub const fn is_draining(self) -> bool {
        matches!(self, Self::SourceDraining | Self::SourceReadDraining | Self::TargetImportDraining)
    }
}

impl std::fmt::Display for FenceState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What kind of work asks to run.
///
/// The nine classes of the contract, and beside them the finer ones the wire tells apart:
/// `Ddl`, `Unprovable` and `Dump`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OperationClass {
    /// A client's write.
    NormalWrite,
    /// A client's change of schema.
    Ddl,
    /// A client's statement that may write and can't be shown not to.
    Unprovable,
    /// Work that can't change logical content: checkpoints, health checks, position reads.
    Maintenance,
    /// VACUUM and its like: takes a write transaction; skipped rather than failed by schedulers.
    Vacuum,
    /// CREATE, DROP, ALTER of the namespace itself, and settings that reach it.
    Lifecycle,
    /// Writes of the owning operation's import, under a live capability.
    CapabilityImport,
    /// Reads of the owning operation's validation, under a live capability.
    CapabilityValidate,
    /// A client's read, cursors and change listening included.
    NormalRead,
    /// A dump session: a long read that must never look complete when it is cut.
    Dump,
    /// A replication or change stream.
    Stream,
    /// Statistics and metrics; never counted as a lease.
    Observability,
}

impl OperationClass {
    /// All classes, in the order of the enum.
    pub const ALL: [Self; 12] = [
        Self::NormalWrite,
        Self::Ddl,
        Self::Unprovable,
        Self::Maintenance,
        Self::Vacuum,
        Self::Lifecycle,
        Self::CapabilityImport,
        Self::CapabilityValidate,
        Self::NormalRead,
        Self::Dump,
        Self::Stream,
        Self::Observability,
    ];

    /// The name in logs and metrics, such as `normal_write`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NormalWrite => "normal_write",
            Self::Ddl => "ddl",
            Self::Unprovable => "unprovable",
            Self::Maintenance => "maintenance",
            Self::Vacuum => "vacuum",
            Self::Lifecycle => "lifecycle",
            Self::CapabilityImport => "capability_import",
            Self::CapabilityValidate => "capability_validate",
            Self::NormalRead => "normal_read",
            Self::Dump => "dump",
            Self::Stream => "stream",
            Self::Observability => "observability",
        }
    }
}

/// How a state treats a whole group of classes; the rows of the table below.
#[derive(Clone, Copy)]
struct Row {
    read: Column,
    write: Column,
    import: Column,
    validate: Column,
}

/// One group's answer.
#[derive(Clone, Copy)]
enum Column {
    Open,
    Write,
    Read,
    Quarantine,
    Unknown,
    Capability,
}

const fn row(read: Column, write: Column, import: Column, validate: Column) -> Row {
    Row { read, write, import, validate }
}

const fn table(state: FenceState) -> Row {
    use Column::{
        Capability as CR, Open, Quarantine as TQ, Read as RF, Unknown as SU, Write as WF,
    };
    match state {
        FenceState::Unfenced => row(Open, Open, CR, CR),
        // Not refused here: the engine's own "no such database" is the right answer.
        FenceState::Absent => row(Open, Open, CR, CR),
        FenceState::SourceDraining => row(Open, WF, CR, CR),
        FenceState::SourceWriteFenced => row(Open, WF, CR, CR),
        FenceState::SourceReadDraining => row(RF, WF, CR, CR),
        FenceState::SourceReadFenced => row(RF, WF, CR, CR),
        FenceState::Released => row(Open, Open, CR, CR),
        FenceState::TargetQuarantined => row(TQ, TQ, Open, CR),
        // Running calls only: new ones fail because their capability died with the revision.
        FenceState::TargetImportDraining => row(TQ, TQ, Open, CR),
        FenceState::TargetValidating => row(TQ, TQ, CR, Open),
        FenceState::TargetWriteFenced => row(Open, WF, CR, Open),
        FenceState::TargetWritable => row(Open, Open, CR, CR),
        FenceState::TargetAborted => row(TQ, TQ, CR, CR),
        FenceState::UnknownUnavailable => row(SU, SU, SU, SU),
    }
}

/// Whether work of `class` may run in `state`, as far as the state alone decides.
///
/// # Errors
/// The denial to give the client. `Unprovable` work gets [`Denial::Unprovable`] only where reads
/// are open and writes closed: there, and only there, an engine-side guard may still let it run.
pub const fn admits(state: FenceState, class: OperationClass) -> Result<(), Denial> {
    let row = table(state);
    let (column, write_denial) = match class {
        OperationClass::Maintenance | OperationClass::Observability => return Ok(()),
        OperationClass::NormalWrite | OperationClass::Ddl | OperationClass::Vacuum => {
            (row.write, Denial::WriteFenced)
        }
        OperationClass::Lifecycle => (row.write, Denial::Lifecycle),
        OperationClass::Unprovable => match row.read {
            // Where nothing may read, a guard against writing can't make it admissible.
            Column::Read | Column::Write | Column::Capability => (row.read, Denial::Unprovable),
            Column::Open | Column::Quarantine | Column::Unknown => (row.write, Denial::Unprovable),
        },
        OperationClass::CapabilityImport => (row.import, Denial::WriteFenced),
        OperationClass::CapabilityValidate => (row.validate, Denial::WriteFenced),
        OperationClass::NormalRead | OperationClass::Dump | OperationClass::Stream => {
            (row.read, Denial::WriteFenced)
        }
    };
    match column {
        Column::Open => Ok(()),
        Column::Write => Err(write_denial),
        Column::Read => Err(Denial::ReadFenced),
        Column::Quarantine => Err(Denial::TargetQuarantined),
        Column::Unknown => Err(Denial::StateUnavailable),
        Column::Capability => Err(Denial::CapabilityRequired),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contract's table: read, write, ddl, import, validation read, maintenance, vacuum,
    /// lifecycle, dump, stream, observability; its remarks and footnotes left out.
    const ADMISSION: &str = "
UNFENCED               | ok | ok | ok | CR | CR | ok | ok | ok | ok | ok | ok
ABSENT                 | ok | ok | ok | CR | CR | ok | ok | ok | ok | ok | ok
SOURCE_DRAINING        | ok | WF | WF | CR | CR | ok | WF | WF | ok | ok | ok
SOURCE_WRITE_FENCED    | ok | WF | WF | CR | CR | ok | WF | WF | ok | ok | ok
SOURCE_READ_DRAINING   | RF | WF | WF | CR | CR | ok | WF | WF | RF | RF | ok
SOURCE_READ_FENCED     | RF | WF | WF | CR | CR | ok | WF | WF | RF | RF | ok
RELEASED               | ok | ok | ok | CR | CR | ok | ok | ok | ok | ok | ok
TARGET_QUARANTINED     | TQ | TQ | TQ | ok | CR | ok | TQ | TQ | TQ | TQ | ok
TARGET_IMPORT_DRAINING | TQ | TQ | TQ | ok | CR | ok | TQ | TQ | TQ | TQ | ok
TARGET_VALIDATING      | TQ | TQ | TQ | CR | ok | ok | TQ | TQ | TQ | TQ | ok
TARGET_WRITE_FENCED    | ok | WF | WF | CR | ok | ok | WF | WF | ok | ok | ok
TARGET_WRITABLE        | ok | ok | ok | CR | CR | ok | ok | ok | ok | ok | ok
TARGET_ABORTED         | TQ | TQ | TQ | CR | CR | ok | TQ | TQ | TQ | TQ | ok
UNKNOWN_UNAVAILABLE    | SU | SU | SU | SU | SU | ok | SU | SU | SU | SU | ok
";

    const COLUMNS: [OperationClass; 11] = [
        OperationClass::NormalRead,
        OperationClass::NormalWrite,
        OperationClass::Ddl,
        OperationClass::CapabilityImport,
        OperationClass::CapabilityValidate,
        OperationClass::Maintenance,
        OperationClass::Vacuum,
        OperationClass::Lifecycle,
        OperationClass::Dump,
        OperationClass::Stream,
        OperationClass::Observability,
    ];

    fn code(text: &str) -> Option<&'static str> {
        match text {
            "ok" => None,
            "WF" => Some("MIGRATION_WRITE_FENCED"),
            "RF" => Some("MIGRATION_READ_FENCED"),
            "TQ" => Some("MIGRATION_TARGET_QUARANTINED"),
            "SU" => Some("FENCE_STATE_UNAVAILABLE"),
            "CR" => Some("OPERATION_CAPABILITY_REQUIRED"),
            other => panic!("no code is written {other:?}"),
        }
    }

    #[test]
    fn every_cell_of_the_admission_table() {
        let mut states = Vec::new();
        for line in ADMISSION.lines().filter(|line| !line.is_empty()) {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let state = FenceState::parse(cells[0]).unwrap();
            states.push(state);
            for (class, cell) in COLUMNS.into_iter().zip(&cells[1..]) {
                let found = admits(state, class).err().map(Denial::code);
                assert_eq!(found, code(cell), "{} in {state}", class.name());
            }
        }
        assert_eq!(states, FenceState::ALL);
    }

    #[test]
    fn lifecycle_and_unprovable_have_numbers_of_their_own() {
        let fenced = FenceState::SourceWriteFenced;
        assert_eq!(admits(fenced, OperationClass::Lifecycle), Err(Denial::Lifecycle));
        assert_eq!(admits(fenced, OperationClass::Unprovable), Err(Denial::Unprovable));
        assert_eq!(admits(fenced, OperationClass::NormalWrite), Err(Denial::WriteFenced));
    }

    #[test]
    fn unprovable_work_is_never_admitted_where_a_read_or_a_write_would_not_be() {
        for state in FenceState::ALL {
            let unprovable = admits(state, OperationClass::Unprovable);
            let read = admits(state, OperationClass::NormalRead);
            let write = admits(state, OperationClass::NormalWrite);
            match (read, write) {
                (Ok(()), Ok(())) => assert_eq!(unprovable, Ok(()), "{state}"),
                // A guard may only help where reads are open.
                (Ok(()), Err(_)) => assert_eq!(unprovable, Err(Denial::Unprovable), "{state}"),
                (Err(denial), _) => assert_eq!(unprovable, Err(denial), "{state}"),
            }
        }
    }

    #[test]
    fn names_and_numbers_read_back() {
        for (index, state) in FenceState::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(state.wire_number()), index + 1);
            assert_eq!(FenceState::from_wire_number(state.wire_number()), Some(state));
            assert_eq!(FenceState::parse(state.name()), Some(state));
        }
        assert_eq!(FenceState::from_wire_number(0), None);
        assert_eq!(FenceState::from_wire_number(15), None);
        assert_eq!(FenceState::parse("source_write_fenced"), None);
    }

    #[test]
    fn predicates_are_the_contracts() {
        let those = |predicate: fn(FenceState) -> bool| -> Vec<_> {
            FenceState::ALL.into_iter().filter(|s| predicate(*s)).map(FenceState::name).collect()
        };
        assert_eq!(
            those(FenceState::is_operation_finished),
            ["RELEASED", "TARGET_WRITABLE", "TARGET_ABORTED"]
        );
        assert_eq!(
            those(|state| !state.is_active()),
            ["UNFENCED", "ABSENT", "RELEASED", "TARGET_WRITABLE"]
        );
        assert_eq!(
            those(FenceState::is_draining),
            ["SOURCE_DRAINING", "SOURCE_READ_DRAINING", "TARGET_IMPORT_DRAINING"]
        );
        assert_eq!(
            those(|state| !state.is_durable()),
            ["UNFENCED", "ABSENT", "UNKNOWN_UNAVAILABLE"]
        );
    }
}
