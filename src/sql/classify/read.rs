//! The proof that a query only reads.
//!
//! Purpose: walk the tokens of a SELECT-like statement and find every way its text could write: a
//! data-modifying word, INTO, a locking clause, a call of a function that isn't known to be
//! harmless. Only what survives the walk is `read`.
//!
//! Why tokens and not a tree: a parser that isn't the engine's own refuses valid texts (operators
//! written OPERATOR(…), newer syntax) and may read others differently than the engine. The walk
//! errs to one side only: a harmless text may look like a call and be refused, but a call can't
//! look like anything else, because in PostgreSQL's grammar a call with parentheses is always a
//! name in front of one (`U&"…" UESCAPE '…'` included, which is a name of several tokens).
//! sqlparser is the second witness (`witness.rs`): where it can read the text, it can veto the
//! walk's `read`, never grant one.
//!
//! Invariants: one pass, no recursion; a name in front of a parenthesis is a call unless the
//! grammar rules it out at that very place (`CallSite::not_a_call` lists the places).
//!
//! It can't see calls without parentheses: casts, operators, row.function, views.

use super::super::builtin::{Callee, Keyword, callee, keyword};
use super::super::lexer::TokenKind;
use super::super::statement::{Part, StatementClass};
use super::super::trusted::Trusted;
use super::phrase::{LowerWord, Phrase};
use super::session;

/// Walks a query. The part's class is `Read`, `Write` or `Unprovable`.
pub(super) fn prove(text: Phrase<'_>, trusted: &Trusted) -> Part {
    let mut part = calls(text, trusted);
    if part.class == StatementClass::Unprovable {
        return part;
    }
    if (0..text.len()).any(|at| writes(text, at)) {
        part.class = part.class.strongest(StatementClass::Write);
    }
    part
}

/// Judges the calls alone: what runs when a statement is merely planned.
pub(super) fn calls(text: Phrase<'_>, trusted: &Trusted) -> Part {
    let mut sum = Part::of(StatementClass::Read);
    for at in 0..text.len() {
        let part = match text.kind(at) {
            Some(TokenKind::Open) => call(text, at, trusted),
            Some(TokenKind::Stray) => Part::of(StatementClass::Unprovable),
            Some(TokenKind::Word) if escapes_a_name(text, at) => {
                Part::of(StatementClass::Unprovable)
            }
            _ => continue,
        };
        sum.class = sum.class.strongest(part.class);
        sum.extra |= part.extra;
        sum.lexing |= part.lexing;
        if part.breaks != sum.breaks && part.class.is_writer() {
            sum.breaks = part.breaks;
        }
    }
    sum
}

/// Functions that write, and change neither a setting nor a definition.
const QUIET_WRITERS: &[&str] = &[
    "nextval",
    "pg_advisory_lock",
    "pg_advisory_lock_shared",
    "pg_advisory_unlock",
    "pg_advisory_unlock_shared",
    "pg_advisory_xact_lock",
    "pg_advisory_xact_lock_shared",
    "pg_notify",
    "pg_try_advisory_lock",
    "pg_try_advisory_lock_shared",
    "pg_try_advisory_xact_lock",
    "pg_try_advisory_xact_lock_shared",
    "setval",
];

/// Whether a query or INSERT, UPDATE, DELETE, MERGE calls what may change settings or definitions,
/// or makes a table of what it selects.
pub(super) fn unsettles(text: Phrase<'_>, trusted: &Trusted) -> bool {
    (0..text.len()).any(|at| match text.kind(at) {
        Some(TokenKind::Stray) => true,
        Some(TokenKind::Open) => calls_unsettling(text, at, trusted),
        Some(TokenKind::Word) if escapes_a_name(text, at) => true,
        Some(TokenKind::Word) => {
            let fills = at > 0 && text.is_any(at - 1, &["insert", "merge"]);
            is_keyword(text, at, "into") && !fills
        }
        _ => false,
    })
}

fn calls_unsettling(text: Phrase<'_>, open: usize, trusted: &Trusted) -> bool {
    let Some(site) = CallSite::before(text, open) else { return false };
    if site.not_a_call() || is_place_of_dml(text, site.first, site.last) {
        return false;
    }
    match site.callee(trusted) {
        Callee::Harmless => false,
        Callee::Writer => {
            let name = LowerWord::of(text, site.last);
            QUIET_WRITERS.binary_search(&name.as_str()).is_err()
        }
        Callee::SetConfig | Callee::Unknown => true,
    }
}

/// `ON CONFLICT (…)` and `SET (…) = …`.
fn is_place_of_dml(text: Phrase<'_>, first: usize, last: usize) -> bool {
    let conflict = text.is(last, "conflict") && first > 0 && is_keyword(text, first - 1, "on");
    first == last && (conflict || text.is(last, "set"))
}

/// `U&"…" UESCAPE '!'` is one name of three tokens. A parenthesis behind it makes a call that
/// doesn't look like one, so such a name is taken for one wherever it stands.
fn escapes_a_name(text: Phrase<'_>, at: usize) -> bool {
    at > 0 && text.is_kind(at - 1, TokenKind::UnicodeQuoted) && text.is(at, "uescape")
}

/// Whether the word at `at` begins a part of the query that writes or locks rows.
fn writes(text: Phrase<'_>, at: usize) -> bool {
    if !text.is_kind(at, TokenKind::Word) || is_dotted(text, at) {
        return false;
    }
    text.is_any(at, &["insert", "update", "delete", "merge", "into"])
        || (text.is(at, "for") && text.is_any(at + 1, &["update", "share", "no", "key"]))
}

/// Behind a dot any word is the name of a column or function.
fn is_dotted(text: Phrase<'_>, at: usize) -> bool {
    at > 0 && text.is_kind(at - 1, TokenKind::Dot)
}

/// A keyword in its own right, not a name behind a dot.
fn is_keyword(text: Phrase<'_>, at: usize, word: &str) -> bool {
    text.is(at, word) && !is_dotted(text, at)
}

/// Whether an expression may begin right behind the parenthesis that closes at `close`: that of
/// `DISTINCT ON (…)` and of `OPERATOR(…)`, or one whose opening isn't in sight.
fn call_may_follow(text: Phrase<'_>, close: usize) -> bool {
    let Some(open) = text.mate(close) else { return true };
    let Some(before) = open.checked_sub(1) else { return false };
    text.is(before, "operator")
        || (text.is(before, "on") && before > 0 && text.is(before - 1, "distinct"))
}

/// What the parenthesis at `open` means for the class.
fn call(text: Phrase<'_>, open: usize, trusted: &Trusted) -> Part {
    let harmless = Part::of(StatementClass::Read);
    let Some(site) = CallSite::before(text, open) else { return harmless };
    if site.not_a_call() {
        return harmless;
    }
    match site.callee(trusted) {
        Callee::Harmless => harmless,
        Callee::Writer => Part::of(StatementClass::Write),
        Callee::SetConfig => session::set_config(text, open),
        Callee::Unknown => Part::of(StatementClass::Unprovable),
    }
}

/// A name, possibly qualified, with a parenthesis behind it.
#[derive(Debug, Clone, Copy)]
struct CallSite<'a> {
    text: Phrase<'a>,
    /// The first token of the name, qualifiers included.
    first: usize,
    /// The last one.
    last: usize,
    open: usize,
    /// The dots lead back to something that isn't a name: `(x).f(`.
    broken: bool,
}

impl<'a> CallSite<'a> {
    /// The name in front of the parenthesis at `open`, if there is one.
    fn before(text: Phrase<'a>, open: usize) -> Option<Self> {
        let last = open.checked_sub(1)?;
        if !text.is_name(last) {
            return None;
        }
        let mut first = last;
        let mut broken = false;
        while is_dotted(text, first) {
            match first.checked_sub(2) {
                Some(qualifier) if text.is_name(qualifier) => first = qualifier,
                _ => {
                    broken = true;
                    break;
                }
            }
        }
        Some(Self { text, first, last, open, broken })
    }

    fn qualified(&self) -> bool {
        self.first != self.last || self.broken
    }

    fn before_is(&self, word: &str) -> bool {
        self.first > 0 && is_keyword(self.text, self.first - 1, word)
    }

    /// Whether the grammar allows no call here.
    fn not_a_call(&self) -> bool {
        if self.broken {
            return false;
        }
        // `::numeric(…)`, CAST(x AS numeric(…)), AS alias(…), INTO table(…): a type or a name.
        let behind_cast = self.first > 0 && self.text.is_kind(self.first - 1, TokenKind::Cast);
        if behind_cast || self.before_is("as") || self.before_is("into") {
            return true;
        }
        if self.qualified() {
            return false;
        }
        self.is_plain_keyword()
            || self.is_operator_name()
            || self.follows_bracket()
            || self.is_query_name()
            || self.is_clause()
            || self.is_table_alias()
    }

    /// Words that can't name a function unless quoted or qualified: `IN (`, `VALUES (`, `EXISTS (`.
    fn is_plain_keyword(&self) -> bool {
        if !self.text.is_kind(self.last, TokenKind::Word) {
            return false;
        }
        match keyword(LowerWord::of(self.text, self.last).as_str()) {
            Some(Keyword::Reserved | Keyword::ColumnName) => true,
            Some(Keyword::FunctionName | Keyword::Unreserved) | None => false,
        }
    }

    /// `OPERATOR(pg_catalog.~)`. An operator of another schema is somebody's own.
    fn is_operator_name(&self) -> bool {
        let inner = self.open + 1;
        self.text.is(self.last, "operator")
            && self.text.is(inner, "pg_catalog")
            && self.text.is_kind(inner + 1, TokenKind::Dot)
            && self.text.is_kind(inner + 2, TokenKind::Operator)
            && self.text.is_kind(inner + 3, TokenKind::Close)
    }

    /// Right behind a closing parenthesis stands an alias, `OVER (`, `FILTER (` or `WITHIN`, but
    /// never a call, with the exceptions of [`call_may_follow`].
    fn follows_bracket(&self) -> bool {
        let Some(close) = self.first.checked_sub(1) else { return false };
        self.text.is_kind(close, TokenKind::Close) && !call_may_follow(self.text, close)
    }

    /// The name of a WITH query and its columns: behind WITH `[RECURSIVE]`, or followed by
    /// `) AS [[NOT] MATERIALIZED] (` and a query.
    fn is_query_name(&self) -> bool {
        let Some(before) = self.first.checked_sub(1) else { return false };
        let behind_with = before > 0 && is_keyword(self.text, before - 1, "with");
        if behind_with && self.text.is(before, "ordinality") {
            return true;
        }
        let Some(close) = self.text.mate(self.open) else { return false };
        let mut at = close + 1;
        if !self.text.is(at, "as") {
            return false;
        }
        if is_keyword(self.text, before, "with")
            || (behind_with && self.text.is(before, "recursive"))
        {
            return true;
        }
        at += 1;
        if self.text.is(at, "not") {
            at += 1;
        }
        if self.text.is(at, "materialized") {
            at += 1;
        }
        // A column definition list, `f(x) AS (a int)`, can't begin with these.
        let query = self.text.is_any(at + 1, &["select", "with", "table"])
            || self.text.is_kind(at + 1, TokenKind::Open)
            || (self.text.is(at + 1, "values") && self.text.is_kind(at + 2, TokenKind::Open));
        self.text.is_kind(at, TokenKind::Open) && query
    }

    /// Unreserved words in their clauses, where no name of a function can stand.
    fn is_clause(&self) -> bool {
        let Some(before) = self.first.checked_sub(1) else { return false };
        let text = self.text;
        let behind = |words: &[&str]| words.iter().any(|word| is_keyword(text, before, word));
        match LowerWord::of(text, self.last).as_str() {
            _ if !text.is_kind(self.last, TokenKind::Word) => false,
            "by" => behind(&["group", "order", "partition"]),
            "sets" => behind(&["grouping"]),
            "cube" | "rollup" => {
                behind(&["by"]) && before > 0 && is_keyword(text, before - 1, "group")
            }
            "zone" => behind(&["time"]) && before > 0 && is_keyword(text, before - 1, "at"),
            "first" | "next" => behind(&["fetch"]),
            "varying" => behind(&["character", "char", "nchar", "bit"]),
            "materialized" => behind(&["not"]) && before > 0 && is_keyword(text, before - 1, "as"),
            "join" => {
                behind(&["left", "right", "full", "inner", "outer", "cross", "natural"])
                    || self.follows_operand(before)
            }
            "ilike" => {
                let negated = before > 0 && is_keyword(text, before, "not");
                self.follows_operand(if negated { before - 1 } else { before })
            }
            _ => false,
        }
    }

    /// Whether the token at `at` ends an operand, so that what follows is an infix keyword.
    fn follows_operand(&self, at: usize) -> bool {
        let Some(kind) = self.text.kind(at) else { return false };
        if kind == TokenKind::Word {
            return is_dotted(self.text, at)
                || keyword(LowerWord::of(self.text, at).as_str()).is_none();
        }
        if kind == TokenKind::Close {
            return !call_may_follow(self.text, at);
        }
        kind.is_literal()
            || matches!(kind, TokenKind::Quoted | TokenKind::UnicodeQuoted | TokenKind::CloseSquare)
    }

    /// `FROM table alias(a, b)`: two names in a row behind FROM or JOIN, the first not a keyword.
    fn is_table_alias(&self) -> bool {
        let Some(before) = self.first.checked_sub(1) else { return false };
        if !self.text.is_name(before) {
            return false;
        }
        let mut start = before;
        while is_dotted(self.text, start) {
            match start.checked_sub(2) {
                Some(qualifier) if self.text.is_name(qualifier) => start = qualifier,
                _ => return false,
            }
        }
        let named = self.text.is_kind(start, TokenKind::Quoted)
            || (self.text.is_kind(start, TokenKind::Word)
                && !LowerWord::of(self.text, start).as_str().is_empty()
                && keyword(LowerWord::of(self.text, start).as_str()).is_none());
        named
            && start.checked_sub(1).is_some_and(|at| {
                is_keyword(self.text, at, "from") || is_keyword(self.text, at, "join")
            })
    }

    /// Looks the function up by its name as the engine folds it.
    fn callee(&self, trusted: &Trusted) -> Callee {
        let name = LowerWord::of(self.text, self.last);
        if self.broken || name.as_str().is_empty() {
            return Callee::Unknown;
        }
        match self.last - self.first {
            0 => callee(None, name.as_str(), trusted),
            2 => {
                let schema = LowerWord::of(self.text, self.first);
                if schema.as_str().is_empty() {
                    return Callee::Unknown;
                }
                callee(Some(schema.as_str()), name.as_str(), trusted)
            }
            _ => Callee::Unknown,
        }
    }
}

/// Whether `text` begins with the name of a procedure that was declared harmless.
pub(super) fn names_trusted(text: Phrase<'_>, trusted: &Trusted) -> bool {
    let open = (0..text.len()).find(|&at| text.is_kind(at, TokenKind::Open));
    let Some(site) = open.and_then(|open| CallSite::before(text, open)) else { return false };
    let name = LowerWord::of(text, site.last);
    if site.first != 0 || site.broken || name.as_str().is_empty() {
        return false;
    }
    match site.last {
        0 => trusted.contains(None, name.as_str()),
        2 => trusted.contains(Some(LowerWord::of(text, 0).as_str()), name.as_str()),
        _ => false,
    }
}
