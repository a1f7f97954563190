//! What is known of a program: its class, its shape, and rarely a detail.
//!
//! Purpose: plain values that the relay and the fence verdict decide by. Invariant: a program has
//! the strongest class among its statements (W6), and [`StatementClass::Unprovable`] is the
//! strongest of all.
//!
//! Made by `classify`, read by gate, wire and fence. It holds no text and judges nothing.

use std::fmt;
use std::sync::Arc;

use super::mysql::{MyLexing, SessionChange};
use crate::base::arm::{Removable, removed};
use crate::base::limits::{CLASSIFIED_DATABASES_MAX, CLASSIFIED_SCHEMAS_MAX, EXECUTED_NAMES_MAX};

/// What a statement may do, as far as its text proves it. Ordered from weakest to strongest.
///
/// The order answers "which class must the whole program be admitted as": transaction control and
/// session settings touch no data, a read is fenced by fewer states than a stream, every writer is
/// above every non-writer, and what nobody understood is above all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StatementClass {
    /// `BEGIN`, `COMMIT`, `SAVEPOINT` and their kin, without `AND CHAIN`.
    TransactionControl,
    /// Session state only: `SET`, `LISTEN`, `PREPARE`, the empty program.
    Session,
    /// Proved to change nothing.
    Read,
    /// Replication and base backup.
    Stream,
    /// Changes data, or lifts a read-only setting.
    Write,
    /// Changes the schema.
    Ddl,
    /// Creates, drops or alters a database, or settings that reach beyond this session's database.
    Lifecycle,
    /// May write; nothing proves that it doesn't.
    Unprovable,
}

impl StatementClass {
    /// Whether a closed write gate must keep this out.
    #[must_use]
    pub const fn is_writer(self) -> bool {
        match self {
            Self::TransactionControl | Self::Session | Self::Read | Self::Stream => false,
            Self::Write | Self::Ddl | Self::Lifecycle | Self::Unprovable => true,
        }
    }

    /// The stronger of two classes.
    #[must_use]
    pub fn strongest(self, other: Self) -> Self {
        self.max(other)
    }

    /// The name people see: `read`, `transaction control`, ….
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TransactionControl => "transaction control",
            Self::Session => "session",
            Self::Read => "read",
            Self::Stream => "stream",
            Self::Write => "write",
            Self::Ddl => "ddl",
            Self::Lifecycle => "lifecycle",
            Self::Unprovable => "unprovable",
        }
    }
}

impl fmt::Display for StatementClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a program does to the transaction it runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TxEffect {
    /// Nothing.
    None,
    /// `BEGIN`, `START TRANSACTION`.
    Begin,
    /// `COMMIT`, `END`, also `… AND CHAIN`.
    Commit,
    /// `ROLLBACK`, `ABORT`, also `… AND CHAIN`.
    Rollback,
    /// `SAVEPOINT`.
    Savepoint,
    /// `ROLLBACK TO` or `RELEASE`.
    RollbackToOrRelease,
    /// `PREPARE TRANSACTION`.
    Prepare,
    /// Several statements, at least one of them with an effect; or a text nobody could read.
    Mixed,
}

/// What the relay must know about the form of a program. A few bits, cheap to copy.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape(u32);

impl Shape {
    const TX_MASK: u32 = 0b111;
    const EMPTY: u32 = 1 << 3;
    const SINGLE: u32 = 1 << 4;
    const COMMITS: u32 = 1 << 5;
    const BREAKS_GUARD: u32 = 1 << 6;
    const RESET_THEN_MORE: u32 = 1 << 7;
    const END_THEN_MORE: u32 = 1 << 8;
    const CHANGES_LEXING: u32 = 1 << 9;
    pub(super) const COMMITS_IMPLICITLY: u32 = 1 << 10;
    pub(super) const CHANGES_AUTOCOMMIT: u32 = 1 << 11;
    pub(super) const KEEPS_LOCKS: u32 = 1 << 12;
    pub(super) const CHANGES_SCHEMA: u32 = 1 << 13;
    pub(super) const XA: u32 = 1 << 14;
    pub(super) const OPENS_CURSOR: u32 = 1 << 15;
    pub(super) const CAPABILITY: u32 = 1 << 16;
    pub(super) const RESETS_SESSION: u32 = 1 << 17;
    pub(super) const HOLDS_CURSOR: u32 = 1 << 18;
    pub(super) const OWNS_READ_ONLY: u32 = 1 << 19;
    pub(super) const DISOWNS_READ_ONLY: u32 = 1 << 20;
    pub(super) const ONLY_LIFTS: u32 = 1 << 21;
    pub(super) const BEGINS_BRANCH: u32 = 1 << 22;
    pub(super) const UNSETTLES: u32 = 1 << 23;
    pub(super) const REPEATABLE: u32 = 1 << 24;
    pub(super) const WAITS: u32 = 1 << 25;
    /// What is true of a text only if it is by each reading.
    const IN_EACH: u32 =
        Self::EMPTY | Self::SINGLE | Self::ONLY_LIFTS | Self::BEGINS_BRANCH | Self::REPEATABLE;

    /// No statement at all; every other bit clear.
    pub(super) const fn nothing() -> Self {
        Self(Self::EMPTY)
    }

    /// A text that couldn't be read: everything that might be true of it is. But not that it names
    /// the capability, which would have it refused at open gates: a secret in it is found by its
    /// form (`wire/shared/capability.rs`). Nor that it sets the session's read-only default: what
    /// the engine reports of that tells.
    pub(super) const fn unreadable() -> Self {
        Self(
            TxEffect::Mixed as u32
                | Self::COMMITS
                | Self::BREAKS_GUARD
                | Self::RESET_THEN_MORE
                | Self::END_THEN_MORE
                | Self::CHANGES_LEXING
                | Self::COMMITS_IMPLICITLY
                | Self::CHANGES_AUTOCOMMIT
                | Self::KEEPS_LOCKS
                | Self::WAITS
                | Self::CHANGES_SCHEMA
                | Self::XA
                | Self::OPENS_CURSOR
                | Self::HOLDS_CURSOR
                | Self::UNSETTLES,
        )
    }

    const fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }

    /// The program has no statement: nothing but blanks, comments and semicolons.
    #[must_use]
    pub const fn empty(self) -> bool {
        self.has(Self::EMPTY)
    }

    /// The program is exactly one statement.
    #[must_use]
    pub const fn single(self) -> bool {
        self.has(Self::SINGLE)
    }

    /// The effect on the transaction; [`TxEffect::Mixed`] when several statements have one.
    #[must_use]
    pub const fn tx(self) -> TxEffect {
        match self.0 & Self::TX_MASK {
            0 => TxEffect::None,
            1 => TxEffect::Begin,
            2 => TxEffect::Commit,
            3 => TxEffect::Rollback,
            4 => TxEffect::Savepoint,
            5 => TxEffect::RollbackToOrRelease,
            6 => TxEffect::Prepare,
            _ => TxEffect::Mixed,
        }
    }

    /// Some statement ends a transaction with its changes kept (`COMMIT`, `END`,
    /// `PREPARE TRANSACTION`, `COMMIT PREPARED`), or may do so inside (`CALL`, `DO`).
    #[must_use]
    pub const fn commits(self) -> bool {
        self.has(Self::COMMITS)
    }

    /// Some statement may drop a read-only guard for what follows the program: `RESET ALL`,
    /// `DISCARD ALL`, the end of a transaction or savepoint, or anything that touches a read-only
    /// setting.
    #[must_use]
    pub const fn breaks_guard(self) -> bool {
        self.has(Self::BREAKS_GUARD)
    }

    /// Either of [`Shape::reset_then_more`] and [`Shape::end_then_more`].
    #[must_use]
    pub const fn guard_broken_inside(self) -> bool {
        self.reset_then_more() || self.end_then_more()
    }

    /// A statement other than transaction control follows a `RESET ALL` or `DISCARD ALL`.
    #[must_use]
    pub const fn reset_then_more(self) -> bool {
        self.has(Self::RESET_THEN_MORE)
    }

    /// A statement other than transaction control follows one that ends a transaction or savepoint,
    /// or begins a read-write one; or a savepoint follows one of these: a block that is begun
    /// behind an end has the mode of the session's default, which what ran before may have lifted.
    #[must_use]
    pub const fn end_then_more(self) -> bool {
        self.has(Self::END_THEN_MORE)
    }

    /// Texts behind this program may be read by other lexing rules than texts before it.
    ///
    /// Such a change is undone when its transaction rolls back (and a `SET LOCAL` at any end), so
    /// after a program with this bit the next transaction end counts as well. What a function
    /// does inside isn't seen here: an unprovable program may change the rules, too.
    #[must_use]
    pub const fn changes_lexing(self) -> bool {
        self.has(Self::CHANGES_LEXING)
    }

    /// MySQL: some statement ends a transaction that is open, with its changes kept, because of
    /// what it is: `BEGIN`, DDL, `LOCK TABLES`, `SET autocommit = 1` and their kin. It does so
    /// although it fails itself. With no transaction open it has no such effect.
    #[must_use]
    pub const fn commits_implicitly(self) -> bool {
        self.has(Self::COMMITS_IMPLICITLY)
    }

    /// MySQL: `autocommit` may be another one behind this program.
    #[must_use]
    pub const fn changes_autocommit(self) -> bool {
        self.has(Self::CHANGES_AUTOCOMMIT)
    }

    /// MySQL: some statement takes locks or opens handlers that outlive it and that no status flag
    /// shows: `LOCK TABLES`, `GET_LOCK`, `HANDLER … OPEN`, a temporary table.
    #[must_use]
    pub const fn keeps_locks(self) -> bool {
        self.has(Self::KEEPS_LOCKS)
    }

    /// MySQL: one statement that takes no such locks, and calls no function that waits (`SLEEP`,
    /// `GET_LOCK`): by its text. What a view calls isn't seen, nor a wait for a table.
    #[must_use]
    pub const fn is_calm(self) -> bool {
        self.single() && !self.keeps_locks() && !self.has(Self::WAITS) && !self.changes_schema()
    }

    /// MySQL: the session's default schema may be another one behind this program: `USE`, or
    /// `DROP DATABASE`, or a body nobody reads. See [`MyDetail::default_schema`].
    #[must_use]
    pub const fn changes_schema(self) -> bool {
        self.has(Self::CHANGES_SCHEMA)
    }

    /// MySQL: some statement is `XA …` other than `XA RECOVER`.
    #[must_use]
    pub const fn xa(self) -> bool {
        self.has(Self::XA)
    }

    /// MySQL: a single statement that is `XA START` or `XA BEGIN`, and by no reading of it anything
    /// else.
    #[must_use]
    pub const fn begins_branch(self) -> bool {
        self.has(Self::BEGINS_BRANCH) && self.single()
    }

    /// PostgreSQL: some statement is `DECLARE … CURSOR`: rows may wait behind the program.
    #[must_use]
    pub const fn opens_cursor(self) -> bool {
        self.has(Self::OPENS_CURSOR)
    }

    /// PostgreSQL: some statement is `DECLARE … CURSOR WITH HOLD`, whose query the COMMIT runs.
    #[must_use]
    pub const fn holds_cursor(self) -> bool {
        self.has(Self::HOLDS_CURSOR)
    }

    /// Some statement sets or resets the session's capability, in whatever way.
    #[must_use]
    pub const fn sets_capability(self) -> bool {
        self.has(Self::CAPABILITY)
    }

    /// PostgreSQL: some statement is `RESET ALL` or `DISCARD ALL`: settings are as they were at the
    /// session's start.
    #[must_use]
    pub const fn resets_session(self) -> bool {
        self.has(Self::RESETS_SESSION)
    }

    /// PostgreSQL: some statement sets `default_transaction_read_only` for the session.
    #[must_use]
    pub const fn owns_read_only(self) -> bool {
        self.has(Self::OWNS_READ_ONLY)
    }

    /// PostgreSQL: some statement puts `default_transaction_read_only` back to what it was at the
    /// session's start.
    #[must_use]
    pub const fn disowns_read_only(self) -> bool {
        self.has(Self::DISOWNS_READ_ONLY)
    }

    /// MySQL: a single statement that does nothing but lift the session's own read-only setting,
    /// from the next transaction on: `SET SESSION TRANSACTION READ WRITE`,
    /// `SET tx_read_only = 0`.
    #[must_use]
    pub const fn only_lifts_read_only(self) -> bool {
        self.has(Self::ONLY_LIFTS) && self.single()
    }

    /// PostgreSQL: some statement may have the same text mean something else behind it: settings,
    /// definitions, and whatever can't be shown to touch neither. What triggers and views do isn't
    /// seen.
    #[must_use]
    pub const fn unsettles(self) -> bool {
        self.has(Self::UNSETTLES)
    }

    /// PostgreSQL: a single query, INSERT, UPDATE, DELETE or MERGE that unsettles nothing.
    #[must_use]
    pub const fn repeatable(self) -> bool {
        self.has(Self::REPEATABLE) && self.single()
    }

    /// What may be true of either.
    const fn or(self, other: Self) -> Self {
        let both = self.0 & other.0;
        let any = self.0 | other.0;
        let kept = any & !(Self::TX_MASK | Self::IN_EACH);
        let tx = if self.0 & Self::TX_MASK == other.0 & Self::TX_MASK {
            self.0 & Self::TX_MASK
        } else {
            TxEffect::Mixed as u32
        };
        Self(kept | tx | (both & Self::IN_EACH))
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shape")
            .field("empty", &self.empty())
            .field("single", &self.single())
            .field("tx", &self.tx())
            .field("commits", &self.commits())
            .field("breaks_guard", &self.breaks_guard())
            .field("reset_then_more", &self.reset_then_more())
            .field("end_then_more", &self.end_then_more())
            .field("changes_lexing", &self.changes_lexing())
            .field("commits_implicitly", &self.commits_implicitly())
            .field("changes_autocommit", &self.changes_autocommit())
            .field("keeps_locks", &self.keeps_locks())
            .field("waits", &self.has(Self::WAITS))
            .field("changes_schema", &self.changes_schema())
            .field("xa", &self.xa())
            .field("begins_branch", &self.begins_branch())
            .field("opens_cursor", &self.opens_cursor())
            .field("holds_cursor", &self.holds_cursor())
            .field("sets_capability", &self.sets_capability())
            .field("resets_session", &self.resets_session())
            .field("owns_read_only", &self.owns_read_only())
            .field("disowns_read_only", &self.disowns_read_only())
            .field("only_lifts_read_only", &self.only_lifts_read_only())
            .field("unsettles", &self.unsettles())
            .field("repeatable", &self.repeatable())
            .finish()
    }
}

/// Names a program carries that the relay must look up. Rare.
///
/// Names are folded as the engine folds identifiers: unquoted ones to lower case, quoted ones as
/// they stand, both cut to 63 bytes at a character's start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Detail {
    /// SQL `PREPARE`: the name and the class of the statement behind it. A failing `PREPARE`
    /// leaves an earlier statement of that name in place, so the stronger class counts until the
    /// engine has answered.
    pub prepares: Vec<(String, StatementClass)>,
    /// Prepared statements that the program executes. Their class isn't in the program's own.
    pub executes: Vec<String>,
    /// Databases that a lifecycle statement names.
    pub databases: Vec<String>,
    /// A lifecycle statement reaches databases it doesn't name in a readable way, or a text that
    /// couldn't be read speaks of some.
    pub any_database: bool,
    /// PostgreSQL: that is only because the text wasn't read, or not to its end.
    pub unread: bool,
    /// MySQL only; empty for PostgreSQL.
    pub my: MyDetail,
}

/// What only a MySQL or MariaDB program carries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MyDetail {
    /// Every name that may stand for a schema: what is in front of a dot, and what `USE`,
    /// `CREATE DATABASE`, `SHOW TABLES FROM` name. Aliases and tables in front of columns are among
    /// them, since a text alone can't tell; a name that is no namespace's schema says nothing.
    ///
    /// As written, quotes undone, each once, at most
    /// [`CLASSIFIED_SCHEMAS_MAX`].
    /// Whether `Shop` and `shop` are one is the engine's `lower_case_table_names` to say.
    pub schemas: Vec<String>,
    /// The program reaches schemas that `schemas` doesn't tell: too many names, one that can't be
    /// decoded, a body nobody reads, or a statement about the whole server.
    pub any_schema: bool,
    /// What `USE` makes the session's default schema, if that is the last thing the program does to
    /// it. `None` while [`Shape::changes_schema`] is set: it isn't known.
    pub default_schema: Option<String>,
    /// What the program sets in its session.
    pub change: SessionChange,
    /// `PREPARE name FROM …`: the name in lower case, and what its text is (unreadable when it
    /// comes from a variable). A failing `PREPARE` drops an earlier statement of that name. What
    /// such a program may do counts when it is executed: see [`Detail::executes`]. A text that is
    /// read in several ways has each name once, with the strictest of its readings.
    pub prepared: Vec<(String, Classified)>,
    /// `DEALLOCATE PREPARE`, names in lower case.
    pub deallocated: Vec<String>,
    /// The program may prepare anything, or end it, under any name: one that can't be compared
    /// here as the engine compares it, more names than are told here, or a text nobody reads.
    pub names_unknown: bool,
    /// The program is one `KILL` of one connection by its number.
    pub kill: Option<Kill>,
}

impl MyDetail {
    /// Takes a schema's name in, within the bound.
    pub(super) fn name_schema(&mut self, name: String) {
        if self.schemas.contains(&name) {
            return;
        }
        if self.schemas.len() >= CLASSIFIED_SCHEMAS_MAX {
            self.any_schema = true;
        } else {
            self.schemas.push(name);
        }
    }

    /// What it prepares under a name: where there are several of that name, any of them.
    fn prepares(&self, name: &str) -> Option<Classified> {
        let mut found = self.prepared.iter().filter(|(known, _)| known == name);
        let first = found.next().map(|(_, text)| text.clone());
        first.map(|first| found.fold(first, |all, (_, text)| all.or(text.clone())))
    }

    /// What may be true of either reading.
    fn or(&self, other: &Self) -> Self {
        let mut both = self.clone();
        for name in &other.schemas {
            both.name_schema(name.clone());
        }
        both.any_schema |= other.any_schema;
        both.names_unknown |= other.names_unknown;
        if self.default_schema != other.default_schema {
            both.default_schema = None;
        }
        both.change = self.change.or(other.change);
        both.prepared = Vec::new();
        for (name, _) in self.prepared.iter().chain(&other.prepared) {
            if both.prepared.iter().any(|(known, _)| known == name) {
                continue;
            }
            if both.prepared.len() == EXECUTED_NAMES_MAX {
                both.names_unknown = true;
                break;
            }
            let found = match (self.prepares(name), other.prepares(name)) {
                (Some(one), Some(two)) => one.or(two),
                // By the other reading it is what it was before, whatever that is.
                (Some(_), None) | (None, _) => Classified::unreadable_mysql(),
            };
            both.prepared.push((name.clone(), found));
        }
        for name in &other.deallocated {
            if !both.deallocated.contains(name) {
                both.deallocated.push(name.clone());
            }
        }
        if self.kill != other.kill {
            both.kill = None;
        }
        both
    }
}

/// `KILL [HARD|SOFT] [CONNECTION|QUERY] number`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    /// The connection's number as the program writes it.
    pub connection: u64,
    /// Only its statement is to end.
    pub query_only: bool,
    /// MariaDB's `SOFT`: not where it could leave a table inconsistent.
    pub soft: bool,
}

impl Detail {
    /// MySQL: a text, or a part of one, that nobody reads. It may reach every schema and set
    /// everything in its session. This is the one place that says so: half of it is a hole.
    pub(super) fn assume_everything(&mut self) {
        self.any_database = true;
        self.my.any_schema = true;
        self.my.names_unknown = true;
        self.my.default_schema = None;
        self.my.change = SessionChange::UNKNOWN;
    }

    /// The text names another database. Of more than [`CLASSIFIED_DATABASES_MAX`] the rest counts
    /// as any: each has a gate made for it, and is looked for at each gate.
    pub(super) fn reach_database(&mut self, name: String) {
        if self.databases.contains(&name) {
            return;
        }
        if self.databases.len() < CLASSIFIED_DATABASES_MAX {
            self.databases.push(name);
        } else {
            self.any_database = true;
        }
    }

    /// Whether the program reaches, or may reach, databases besides the session's own.
    #[must_use]
    pub const fn reaches_databases(&self) -> bool {
        self.any_database || !self.databases.is_empty()
    }

    /// What may be true of either reading.
    fn or(&self, other: &Self) -> Self {
        let both = |one: &[String], two: &[String]| {
            let mut all = one.to_vec();
            all.extend(two.iter().filter(|name| !one.contains(name)).cloned());
            all
        };
        let mut prepares = self.prepares.clone();
        prepares.extend(other.prepares.iter().cloned());
        let mut all = Self {
            prepares,
            executes: both(&self.executes, &other.executes),
            databases: self.databases.clone(),
            any_database: self.any_database || other.any_database,
            unread: self.unread && other.unread,
            my: self.my.or(&other.my),
        };
        for name in &other.databases {
            all.reach_database(name.clone());
        }
        all
    }

    fn is_empty(&self) -> bool {
        self.prepares.is_empty()
            && self.executes.is_empty()
            && !self.reaches_databases()
            && self.my == MyDetail::default()
    }
}

/// What is known of one program. Cloning copies two words and at most one reference count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classified {
    class: StatementClass,
    shape: Shape,
    detail: Option<Arc<Detail>>,
}

impl Classified {
    /// A text that can't be read as the engine would read it, or not to its end.
    pub(super) fn unreadable(any_database: bool) -> Self {
        let detail = Detail { any_database, unread: true, ..Detail::default() };
        let detail = any_database.then(|| Arc::new(detail));
        Self { class: StatementClass::Unprovable, shape: Shape::unreadable(), detail }
    }

    /// What may be true when a text can be read in two ways.
    pub(super) fn or(self, other: Self) -> Self {
        if self == other {
            return self;
        }
        let detail = match (self.detail, other.detail) {
            (None, None) => None,
            (one, two) => {
                let empty = Arc::new(Detail::default());
                let (one, two) = (one.unwrap_or_else(|| Arc::clone(&empty)), two.unwrap_or(empty));
                Some(Arc::new(one.or(&two)))
            }
        };
        Self { class: self.class.strongest(other.class), shape: self.shape.or(other.shape), detail }
    }

    /// The strongest class among the statements.
    #[must_use]
    pub const fn class(&self) -> StatementClass {
        self.class
    }

    /// The form of the program.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// The same for a MySQL text: of which schemas it speaks and what it sets isn't known either.
    pub(crate) fn unreadable_mysql() -> Self {
        let mut detail = Detail::default();
        detail.assume_everything();
        let detail = Some(Arc::new(detail));
        Self { class: StatementClass::Unprovable, shape: Shape::unreadable(), detail }
    }

    /// The lexing rules behind this program when it ran without an error; `rules` are those it was
    /// classified under. After an error they may be either: [`MyLexing::or`].
    #[must_use]
    pub fn lexing_after(&self, rules: MyLexing) -> MyLexing {
        match self.detail() {
            Some(detail) => rules.after(&detail.my.change),
            None if self.shape.changes_lexing() => rules.uncertain(),
            None => rules,
        }
    }

    /// Names to look up, if there are any.
    #[must_use]
    pub fn detail(&self) -> Option<&Detail> {
        self.detail.as_deref()
    }
}

/// How a statement ends what a guard was set in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GuardBreak {
    None,
    /// Settings go back to their start values.
    Reset,
    /// PostgreSQL's RESET ALL: the same for the next transaction. The running one keeps its mode,
    /// and statements behind it in the same text are of the same transaction.
    ResetDefaults,
    /// A transaction or savepoint ends.
    End,
    /// A block begins that isn't read-only. As behind an end, neither may anything run in it, nor a
    /// savepoint be set, before the guard is in force there.
    ReadWriteBlock,
    /// The statement touches a read-only setting itself (its class is a writer's).
    Setting,
}

/// What one statement is; programs are summed up from these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) class: StatementClass,
    pub(super) tx: TxEffect,
    pub(super) commits: bool,
    pub(super) breaks: GuardBreak,
    pub(super) lexing: bool,
    /// More bits of the program's [`Shape`]: those that not every dialect has.
    pub(super) extra: u32,
}

impl Part {
    /// A statement that has a class and no other effect.
    pub(super) const fn of(class: StatementClass) -> Self {
        Self {
            class,
            tx: TxEffect::None,
            commits: false,
            breaks: GuardBreak::None,
            lexing: false,
            extra: 0,
        }
    }
}

/// Adds up the statements of a program in their order.
#[derive(Debug, Default)]
pub(super) struct Sum {
    class: Option<StatementClass>,
    statements: u32,
    effect: Option<TxEffect>,
    bits: u32,
    reset_seen: bool,
    end_seen: bool,
    /// Filled by the classifier while it goes through the statements.
    pub(super) detail: Detail,
}

impl Sum {
    pub(super) fn add(&mut self, part: Part) {
        self.class = Some(self.class.map_or(part.class, |so_far| so_far.strongest(part.class)));
        self.statements = self.statements.saturating_add(1);
        if part.tx != TxEffect::None {
            self.effect = Some(part.tx);
        }
        if part.class != StatementClass::TransactionControl {
            self.set(self.reset_seen, Shape::RESET_THEN_MORE);
            self.set(self.end_seen, Shape::END_THEN_MORE);
        }
        // It would hold the guard of all that follows, and be given up by COMMIT.
        let marks = part.tx == TxEffect::Savepoint && !removed(Removable::ReadWriteBlock);
        self.set((self.end_seen || self.reset_seen) && marks, Shape::END_THEN_MORE);
        self.set(part.commits, Shape::COMMITS);
        self.set(part.lexing, Shape::CHANGES_LEXING);
        self.bits |= part.extra;
        self.set(part.breaks != GuardBreak::None, Shape::BREAKS_GUARD);
        match part.breaks {
            GuardBreak::Reset => self.reset_seen = true,
            GuardBreak::End | GuardBreak::ReadWriteBlock => self.end_seen = true,
            GuardBreak::None | GuardBreak::Setting | GuardBreak::ResetDefaults => {}
        }
    }

    fn set(&mut self, on: bool, bit: u32) {
        if on {
            self.bits |= bit;
        }
    }

    pub(super) fn finish(self) -> Classified {
        let detail = (!self.detail.is_empty()).then(|| Arc::new(self.detail));
        let Some(class) = self.class else {
            let class = StatementClass::Session;
            return Classified { class, shape: Shape::nothing(), detail };
        };
        let mut bits = self.bits;
        let tx = match (self.effect, self.statements) {
            (None, _) => TxEffect::None,
            (Some(effect), 1) => effect,
            (Some(_), _) => TxEffect::Mixed,
        };
        if self.statements == 1 {
            bits |= Shape::SINGLE;
        }
        Classified { class, shape: Shape(bits | tx as u32), detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_writer_is_stronger_than_every_other_class() {
        use StatementClass::*;
        let order = [TransactionControl, Session, Read, Stream, Write, Ddl, Lifecycle, Unprovable];
        for (at, &one) in order.iter().enumerate() {
            for &other in &order[at..] {
                assert_eq!(one.strongest(other), other);
                assert_eq!(other.strongest(one), other);
                assert!(!one.is_writer() || other.is_writer());
            }
        }
    }

    #[test]
    fn the_effect_survives_its_bits() {
        use TxEffect::*;
        for tx in [None, Begin, Commit, Rollback, Savepoint, RollbackToOrRelease, Prepare, Mixed] {
            assert_eq!(Shape(tx as u32 | Shape::SINGLE).tx(), tx);
        }
    }
}
