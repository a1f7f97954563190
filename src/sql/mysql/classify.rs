//! MySQL text to class: readings, the table of command words, the families' common context.
//!
//! Purpose: the MySQL side of [`Classifier::classify`](crate::sql::Classifier::classify). A text is
//! read once for every way the engine may read it, and the stricter answer counts.
//!
//! Invariants: unknown means the most restrictive class (4); a program has the strongest class of
//! its statements (W6); the answer depends on nothing the cache key leaves out (`cache.rs`).
//!
//! Called by the classifier alone. It follows no session state: rules come in, changes are told.

use crate::base::limits;

use super::super::classify::phrase::{LowerWord, Phrase, Tokens};
use super::super::lexer::{TokenKind, Unlexable};
use super::super::statement::{Classified, Detail, GuardBreak, Part, Shape, StatementClass, Sum};
use super::super::trusted::Trusted;
use super::dialect::{MyEncoding, MyLexing, SessionChange, Toggle};
use super::lexer::{Executable, MyLexer, Reading};
use super::read::Walk;
use super::{commands, names, schema, session, split, transaction, witness};

/// Texts inside texts (`EXECUTE IMMEDIATE '…'`, `PREPARE … FROM '…'`) are read this deep.
const NESTING_MAX: u8 = 2;

/// The ways a session may read a text: both for every toggle that isn't known.
pub(in crate::sql) fn readings(lexing: MyLexing, text: &[u8]) -> impl Iterator<Item = Reading> {
    let doubt = |toggle: Toggle, byte: u8| match toggle {
        Toggle::Off => [Some(false), None],
        Toggle::On => [Some(true), None],
        // Where the byte doesn't occur, both readings are the same.
        Toggle::Unknown if text.contains(&byte) => [Some(false), Some(true)],
        Toggle::Unknown => [Some(false), None],
    };
    let quotes = doubt(lexing.ansi_quotes, b'"');
    let escapes = doubt(lexing.no_backslash_escapes, b'\\');
    quotes.into_iter().flatten().flat_map(move |ansi_quotes| {
        escapes.into_iter().flatten().map(move |no_backslash_escapes| Reading {
            server: lexing.server,
            ansi_quotes,
            no_backslash_escapes,
            encoding: lexing.encoding,
            executable: Executable::ByVersion,
        })
    })
}

/// Reads a text in one way and adds up its statements.
pub(in crate::sql) fn summary(
    text: &[u8],
    reading: Reading,
    trusted: &Trusted,
    proofs: bool,
) -> Result<Classified, Unlexable> {
    nested(text, reading, trusted, proofs, 0)
}

fn nested(
    text: &[u8],
    reading: Reading,
    trusted: &Trusted,
    proofs: bool,
    depth: u8,
) -> Result<Classified, Unlexable> {
    let lexer = MyLexer::new(text, reading);
    let tokens = Tokens::collect(text, lexer, !reading.no_backslash_escapes)?;
    let all = tokens.all();
    let mut context = Context { trusted, reading, proofs, depth, detail: Detail::default() };
    names::schemas(all, reading, &mut context.detail.my);
    let mut sum = Sum::default();
    let parts = split::statements(all)?;
    let mut before = context.detail.my.change;
    for (number, range) in parts.iter().enumerate() {
        let one = all.part(range.clone());
        let mut part = context.statement(one);
        if (0..one.len()).any(|at| one.is_kind(at, TokenKind::Semicolon)) {
            // Where a body with semicolons ends is a guess: what stands in it may run at once.
            let class = part.class.strongest(StatementClass::Write);
            part = Part { class, ..context.opaque() };
        }
        sum.add(part);
        if part.lexing && context.detail.my.change == before {
            context.detail.my.change = SessionChange::UNKNOWN; // nobody knows what it set
        }
        if part.extra & Shape::CHANGES_SCHEMA != 0 && !all.is(range.start, "use") {
            context.detail.my.default_schema = None;
        }
        let change = context.detail.my.change;
        let last = number + 1 == parts.len();
        if change != before && !last && !still_reads(change, reading, text) {
            // What follows is read by other rules than these.
            return Err(Unlexable);
        }
        before = change;
    }
    if parts.len() > 1 {
        context.detail.my.kill = None;
    }
    sum.detail = context.detail;
    Ok(sum.finish())
}

/// Whether the rest of a text reads the same behind this change.
fn still_reads(change: SessionChange, reading: Reading, text: &[u8]) -> bool {
    let mode = change.sql_mode.is_none_or(|mode| {
        mode.ansi_quotes == reading.ansi_quotes.into()
            && mode.no_backslash_escapes == reading.no_backslash_escapes.into()
    });
    let encoding = change.encoding.is_none_or(|encoding| {
        encoding == reading.encoding || (text.is_ascii() && encoding != MyEncoding::Alien)
    });
    mode && encoding
}

/// How the class of a statement follows from its first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// The word alone settles it.
    Is(StatementClass),
    /// The same, and it ends an open transaction.
    Commits(StatementClass),
    /// A statement about the whole server.
    Server,
    Query,
    Begin,
    Commit,
    Rollback,
    Savepoint,
    Release,
    Start,
    Xa,
    Lock,
    Unlock,
    Set,
    Use,
    Show,
    Explain,
    Do,
    Call,
    Handler,
    Prepare,
    Execute,
    Deallocate,
    Kill,
    Load,
    Flush,
    Create,
    Alter,
    Drop,
}

/// Every command of MySQL 8.0 to 9.7 and MariaDB 10.6 to 11 by its first word, sorted. A word that
/// isn't here is `unprovable`.
const VERBS: &[(&str, Rule)] = &[
    ("alter", Rule::Alter),
    ("analyze", Rule::Commits(StatementClass::Write)),
    ("backup", Rule::Server),
    ("begin", Rule::Begin),
    ("binlog", Rule::Server),
    ("cache", Rule::Commits(StatementClass::Write)),
    ("call", Rule::Call),
    ("change", Rule::Server),
    ("check", Rule::Commits(StatementClass::Write)),
    ("checksum", Rule::Is(StatementClass::Read)),
    ("clone", Rule::Server),
    ("commit", Rule::Commit),
    ("create", Rule::Create),
    ("deallocate", Rule::Deallocate),
    ("delete", Rule::Is(StatementClass::Write)),
    ("desc", Rule::Explain),
    ("describe", Rule::Explain),
    ("do", Rule::Do),
    ("drop", Rule::Drop),
    ("execute", Rule::Execute),
    ("explain", Rule::Explain),
    ("flush", Rule::Flush),
    ("get", Rule::Is(StatementClass::Session)),
    ("grant", Rule::Commits(StatementClass::Ddl)),
    ("handler", Rule::Handler),
    ("help", Rule::Is(StatementClass::Read)),
    ("import", Rule::Server),
    ("insert", Rule::Is(StatementClass::Write)),
    ("install", Rule::Server),
    ("kill", Rule::Kill),
    ("load", Rule::Load),
    ("lock", Rule::Lock),
    ("optimize", Rule::Commits(StatementClass::Write)),
    ("prepare", Rule::Prepare),
    ("purge", Rule::Server),
    ("release", Rule::Release),
    ("rename", Rule::Commits(StatementClass::Ddl)),
    ("repair", Rule::Commits(StatementClass::Write)),
    ("replace", Rule::Is(StatementClass::Write)),
    ("reset", Rule::Server),
    ("resignal", Rule::Is(StatementClass::Session)),
    ("restart", Rule::Server),
    ("revoke", Rule::Commits(StatementClass::Ddl)),
    ("rollback", Rule::Rollback),
    ("savepoint", Rule::Savepoint),
    ("select", Rule::Query),
    ("set", Rule::Set),
    ("show", Rule::Show),
    ("shutdown", Rule::Server),
    ("signal", Rule::Is(StatementClass::Session)),
    ("start", Rule::Start),
    ("stop", Rule::Server),
    ("table", Rule::Query),
    ("truncate", Rule::Commits(StatementClass::Ddl)),
    ("uninstall", Rule::Server),
    ("unlock", Rule::Unlock),
    ("update", Rule::Is(StatementClass::Write)),
    ("use", Rule::Use),
    ("values", Rule::Query),
    ("with", Rule::Query),
    ("xa", Rule::Xa),
];

/// What the families need besides the statement itself.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) trusted: &'a Trusted,
    pub(super) reading: Reading,
    /// Off for texts that are too long: then only command words count.
    proofs: bool,
    depth: u8,
    pub(super) detail: Detail,
}

impl Context<'_> {
    /// A statement nobody could read, or whose body may hold anything: every effect is assumed, on
    /// every schema. A method, so that nobody can take the part and forget what goes with it.
    pub(super) fn opaque(&mut self) -> Part {
        self.detail.assume_everything();
        Self::every_effect()
    }

    /// A statement with a text inside it that was read: every effect on the session is assumed, and
    /// the schemas and settings are those that the text inside names. `None` where that executes
    /// more names than are told: nothing is known then.
    pub(super) fn runs(&mut self, inner: &Classified) -> Option<Part> {
        if let Some(detail) = inner.detail() {
            let into = &mut self.detail;
            if into.executes.len() + detail.executes.len() > limits::EXECUTED_NAMES_MAX {
                return None;
            }
            for name in &detail.my.schemas {
                into.my.name_schema(name.clone());
            }
            into.my.any_schema |= detail.my.any_schema;
            into.my.change = into.my.change.then(detail.my.change);
            for name in &detail.databases {
                into.reach_database(name.clone());
            }
            into.any_database |= detail.any_database;
            into.executes.extend(detail.executes.iter().cloned());
        }
        self.detail.my.names_unknown = true;
        Some(Self::every_effect())
    }

    /// A statement with a text inside it that is read and not run: of which schemas it speaks. An
    /// engine may look into them, and run a function, while it reads the text.
    pub(super) fn speaks_of(&mut self, inner: &Classified) {
        if let Some(detail) = inner.detail() {
            for name in &detail.my.schemas {
                self.detail.my.name_schema(name.clone());
            }
            self.detail.my.any_schema |= detail.my.any_schema;
        }
    }

    const fn every_effect() -> Part {
        Part {
            commits: true,
            breaks: GuardBreak::Reset,
            lexing: true,
            extra: Shape::COMMITS_IMPLICITLY
                | Shape::CHANGES_AUTOCOMMIT
                | Shape::CHANGES_SCHEMA
                | Shape::KEEPS_LOCKS,
            ..Part::of(StatementClass::Unprovable)
        }
    }

    pub(super) const fn walk(&self) -> Walk<'_> {
        let Reading { server, encoding, .. } = self.reading;
        Walk { server, encoding, trusted: self.trusted }
    }

    /// A query, or a part of one: proved by the walk.
    pub(super) fn query(&self, text: Phrase<'_>) -> Part {
        if self.proofs {
            return self.walk().prove(text);
        }
        // Too long to prove.
        Part { breaks: GuardBreak::Reset, ..Part::of(StatementClass::Unprovable) }
    }

    /// A whole query: the walk proves it, the parser may veto.
    fn whole_query(&self, text: Phrase<'_>) -> Part {
        let mut part = self.query(text);
        if part.class == StatementClass::Read && witness::vetoes(text, self.walk()) {
            part.class = StatementClass::Unprovable;
            part.breaks = GuardBreak::Reset;
        }
        part
    }

    /// Expressions without a statement of their own.
    pub(super) fn expression(&self, text: Phrase<'_>) -> Part {
        if text.len() == 0 { Part::of(StatementClass::Read) } else { self.query(text) }
    }

    /// A statement about the whole server, and with it about every schema.
    pub(super) fn server_wide(&mut self, class: StatementClass) -> Part {
        self.detail.my.any_schema = true;
        self.detail.any_database |= class == StatementClass::Lifecycle;
        Part { extra: Shape::COMMITS_IMPLICITLY, ..Part::of(class) }
    }

    /// What a text inside this one is.
    pub(super) fn inner(&self, text: &[u8]) -> Classified {
        if self.depth + 1 >= NESTING_MAX {
            return Classified::unreadable_mysql();
        }
        let found = nested(text, self.reading, self.trusted, self.proofs, self.depth + 1);
        found.unwrap_or_else(|_: Unlexable| Classified::unreadable_mysql())
    }

    pub(super) fn statement(&mut self, text: Phrase<'_>) -> Part {
        if text.is_kind(0, TokenKind::Open) {
            return self.whole_query(text);
        }
        if !text.is_kind(0, TokenKind::Word) {
            return self.opaque();
        }
        let verb = LowerWord::of(text, 0);
        let at = VERBS.binary_search_by(|(word, _)| (*word).cmp(verb.as_str())).ok();
        let Some(&(_, rule)) = at.and_then(|at| VERBS.get(at)) else {
            return self.opaque();
        };
        match rule {
            Rule::Is(class) => Part::of(class),
            Rule::Commits(class) => Part { extra: Shape::COMMITS_IMPLICITLY, ..Part::of(class) },
            Rule::Server => self.server_wide(StatementClass::Lifecycle),
            Rule::Query => self.whole_query(text),
            Rule::Begin => transaction::begin(text, self),
            Rule::Commit => transaction::commit(text),
            Rule::Rollback => transaction::rollback(text),
            Rule::Savepoint => transaction::savepoint(),
            Rule::Release => transaction::release(),
            Rule::Start => transaction::start(text, self),
            Rule::Xa => transaction::xa(text, self),
            Rule::Lock => transaction::lock(text, self),
            Rule::Unlock => transaction::unlock(),
            Rule::Set => session::set(text, self),
            Rule::Use => commands::use_schema(text, self),
            Rule::Show => commands::show(text, self),
            Rule::Explain => commands::explain(text, self),
            Rule::Do => commands::run_expressions(text, self),
            Rule::Call => commands::call(text, self),
            Rule::Handler => commands::handler(text, self),
            Rule::Prepare => commands::prepare(text, self),
            Rule::Execute => commands::execute(text, self),
            Rule::Deallocate => commands::deallocate(text, self),
            Rule::Kill => commands::kill(text, self),
            Rule::Load => commands::load(text),
            Rule::Flush => self.server_wide(StatementClass::Write),
            Rule::Create => schema::create(text, self),
            Rule::Alter => schema::alter(text, self),
            Rule::Drop => schema::drop(text, self),
        }
    }
}

#[cfg(test)]
mod verbs {
    #[test]
    fn verbs_are_sorted_so_that_they_can_be_found() {
        assert!(super::VERBS.is_sorted_by(|a, b| a.0 < b.0));
    }
}
