//! One program of a client's: a command with what is known of it.
//!
//! Purpose: W5 to W7 of wire.md: class, effects and reach of a command, whatever they come from: a
//! text, a prepared statement, a name that SQL EXECUTE runs, or the opcode alone. Plain values;
//! made by `client.rs`, decided on by `conversation.rs`. It holds no text.

use crate::base::ids::Namespace;
use crate::sql::{Classified, MyEncoding, Shape, StatementClass, TxEffect};
use crate::wire::mysql::commands::Command;
use crate::wire::mysql::prepared::{Known, Prepared};
use crate::wire::mysql::seats::Reach;

/// A program as judged.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) command: Command,
    pub(crate) class: StatementClass,
    /// What its text is, or the text prepared under its number.
    pub(crate) classified: Option<Classified>,
    /// The number of the prepared statement that it is about.
    pub(crate) number: Option<u32>,
    /// What it runs by SQL EXECUTE, as far as that is known.
    pub(crate) executed: Vec<Known>,
    /// It runs something by SQL EXECUTE that isn't known, or not between what: it may change
    /// anything in the session.
    pub(crate) changes_unknown: bool,
    /// A schema that its opcode names.
    pub(crate) schema: Option<String>,
    /// The number of the character set that a change of user begins with.
    pub(crate) collation: Option<u16>,
    /// The default schema its statement was prepared under, if that is another one now.
    pub(crate) home: Option<Namespace>,
    /// It reaches more than its text tells.
    pub(crate) anywhere: bool,
    /// It ends the session's own XA branch, and can end no other.
    pub(crate) own_end: bool,
}

impl Program {
    /// A command whose opcode tells all.
    pub(crate) const fn of_opcode(command: Command, class: StatementClass) -> Self {
        Self {
            command,
            class,
            classified: None,
            number: None,
            executed: Vec::new(),
            changes_unknown: false,
            schema: None,
            collation: None,
            home: None,
            anywhere: false,
            own_end: false,
        }
    }

    /// A command about a schema that it names in the character set `encoding`.
    pub(crate) fn of_schema(
        command: Command,
        class: StatementClass,
        schema: &[u8],
        encoding: MyEncoding,
    ) -> Self {
        let schema = encoding.reads_name(schema).map(str::to_owned);
        let anywhere = schema.is_none();
        Self { schema, anywhere, ..Self::of_opcode(command, class) }
    }

    /// A text.
    pub(crate) fn of_text(command: Command, classified: Classified, prepared: &Prepared) -> Self {
        let mut program = Self::of_opcode(command, classified.class());
        let names = classified.detail().map(|detail| &detail.executes[..]).unwrap_or_default();
        let changed = |name: &String| {
            classified.detail().is_some_and(|detail| {
                let prepared = detail.my.prepared.iter().any(|(prepared, _)| prepared == name);
                prepared || detail.my.names_unknown || detail.my.deallocated.contains(name)
            })
        };
        for name in names {
            // Prepared anew in this very text, it isn't what it was before.
            let known = prepared.by_name(name).filter(|_| !changed(name)).cloned();
            let class = known.as_ref().map(|known| known.classified.class());
            program.class = program.class.strongest(class.unwrap_or(StatementClass::Unprovable));
            // Where the default schema it was prepared under isn't known, that may be any.
            let placed = known.as_ref().is_some_and(|known| known.home.is_some());
            program.anywhere |= !placed || !program.executed.is_empty();
            program.changes_unknown |= known.is_none() || !classified.shape().single();
            // As many as the classifier tells: at most EXECUTED_NAMES_MAX for each of the ways to
            // read a text, of which there are four.
            program.executed.extend(known);
        }
        program.classified = Some(classified);
        program
    }

    /// A prepared statement, run by its number; `home` is the default schema, if there is one.
    pub(crate) fn of_statement(
        command: Command,
        known: &Known,
        prepared: &Prepared,
        home: Option<&Namespace>,
    ) -> Self {
        let mut program = Self::of_text(command, known.classified.clone(), prepared);
        program.anywhere |= known.home.is_none();
        program.home = known.named_home().filter(|then| Some(*then) != home).cloned();
        program
    }

    /// A statement that nobody has seen.
    pub(crate) fn of_nobody(command: Command) -> Self {
        Self { anywhere: true, ..Self::of_opcode(command, StatementClass::Unprovable) }
    }

    /// The same, of which nothing is known any more but that it runs.
    pub(crate) fn forgotten(self) -> Self {
        let class = StatementClass::Unprovable;
        Self { class, changes_unknown: true, anywhere: true, ..self }
    }

    /// Whether it runs SQL, and may so do something that its class doesn't tell.
    pub(crate) const fn runs(&self) -> bool {
        matches!(self.command, Command::Query | Command::Execute | Command::BulkExecute)
    }

    /// Whether the engine may run a stored function for it: MariaDB evaluates some while it
    /// prepares a text, or opens a view whose fields are listed.
    pub(crate) const fn evaluates(&self) -> bool {
        self.runs() || matches!(self.command, Command::Prepare | Command::FieldList)
    }

    /// Whether it has or runs several statements, or nobody knows.
    pub(crate) fn is_several(&self) -> bool {
        self.shapes().any(|shape| !shape.single() && !shape.empty())
            || (self.classified.is_none() && self.runs())
            || self.changes_unknown
    }

    /// The form of a text that is sent as it stands, is exactly one statement and runs no other.
    pub(crate) fn alone(&self) -> Option<Shape> {
        let plain = self.command == Command::Query && self.executed.is_empty();
        let shape = self.classified.as_ref().filter(|_| plain)?.shape();
        (shape.single() && !self.changes_unknown).then_some(shape)
    }

    /// Whether the session's XA branch, if one is open, isn't ended by it, however it is answered.
    pub(crate) fn ends_no_branch(&self) -> bool {
        if !self.runs() {
            return matches!(
                self.command,
                Command::Ping
                    | Command::Statistics
                    | Command::InitDb
                    | Command::Prepare
                    | Command::ResetStatement
                    | Command::Fetch
            );
        }
        // What is left of XA is START, BEGIN and END. A procedure may have any of them within.
        let ends = |shape: Shape| {
            let goes_on = matches!(shape.tx(), TxEffect::None | TxEffect::Begin);
            !goes_on || shape.commits() || shape.commits_implicitly()
        };
        let known = self.class != StatementClass::Unprovable && !self.is_several();
        known && !self.shapes().any(ends)
    }

    fn shapes(&self) -> impl Iterator<Item = Shape> {
        let executed = self.executed.iter().map(|known| known.classified.shape());
        self.classified.iter().map(Classified::shape).chain(executed)
    }

    /// What it does to a transaction.
    pub(crate) fn tx(&self) -> TxEffect {
        if (self.classified.is_none() || self.changes_unknown) && self.runs() {
            return TxEffect::Mixed;
        }
        if !self.runs() {
            return TxEffect::None;
        }
        let mut effects = self.shapes().map(Shape::tx).filter(|tx| *tx != TxEffect::None);
        match (effects.next(), effects.next()) {
            (None, _) => TxEffect::None,
            (Some(effect), None) => effect,
            (Some(_), Some(_)) => TxEffect::Mixed,
        }
    }

    /// Whether it may end an open transaction with its changes kept, without saying so.
    pub(crate) fn commits_implicitly(&self) -> bool {
        self.runs() && (self.changes_unknown || self.shapes().any(Shape::commits_implicitly))
    }

    /// The schemas it reaches beside the default one.
    pub(crate) fn reach(&self) -> Reach<'_> {
        if self.own_end {
            return Reach::Home;
        }
        // Where there are more it reaches everything.
        let executed = self.executed.first();
        let texts = [self.classified.as_ref(), executed.map(|known| &known.classified)];
        let details = texts.map(|text| text.and_then(Classified::detail).map(|all| &all.my));
        if self.anywhere || details.into_iter().flatten().any(|detail| detail.any_schema) {
            return Reach::Anywhere;
        }
        let names = details.map(|detail| detail.map_or(&[][..], |detail| &detail.schemas[..]));
        let then = executed.and_then(Known::named_home).map(Namespace::database);
        let home = self.home.as_ref().map(Namespace::database);
        let more = [self.schema.as_deref(), home, then];
        if names.iter().all(|names| names.is_empty()) && more.iter().all(Option::is_none) {
            return Reach::Home;
        }
        Reach::Named(names, more)
    }
}
