//! The proof that a query only reads.
//!
//! Purpose: walk the tokens of a SELECT-like statement and find every way its text could write: a
//! data-modifying word, INTO anything but user variables, a locking clause, a sequence, a call of
//! a function that isn't known to be harmless. Only what survives the walk is `read`.
//!
//! Why tokens and not a tree: as in `classify/read.rs`. The walk errs to one side only: in this
//! grammar a call is always a name in front of a parenthesis, except `NEXT VALUE FOR` and
//! `sequence.nextval`, which are looked for by themselves.
//!
//! It can't see views over functions, virtual columns, or triggers of a read (there are none).

use super::super::classify::phrase::{LowerWord, Phrase};
use super::super::lexer::TokenKind;
use super::super::statement::{GuardBreak, Part, Shape, StatementClass};
use super::super::trusted::Trusted;
use super::dialect::{MyEncoding, MyFlavour, MyServer};
use super::words::{Callee, callee, declared};

/// Words of MariaDB's grammar that make a geometry of their arguments.
pub(super) const SHAPES: &[&str] = &[
    "geometrycollection",
    "linestring",
    "multilinestring",
    "multipoint",
    "multipolygon",
    "point",
    "polygon",
];

/// Functions that wait for something else than tables, rows and the processor.
const WAITING: &[&str] = &[
    "get_lock",
    "master_gtid_wait",
    "master_pos_wait",
    "sleep",
    "source_pos_wait",
    "wait_for_executed_gtid_set",
];

/// What the walk needs besides the tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk<'a> {
    pub(super) server: MyServer,
    /// The client's character set: names that are trusted are in UTF-8.
    pub(super) encoding: MyEncoding,
    pub(super) trusted: &'a Trusted,
}

/// A call nobody knows: the function may have lifted the guard for the statements behind it.
const UNKNOWN_CALL: Part =
    Part { breaks: GuardBreak::Reset, ..Part::of(StatementClass::Unprovable) };

impl Walk<'_> {
    /// Walks a query. The part's class is `Read`, `Write` or `Unprovable`.
    pub(super) fn prove(&self, text: Phrase<'_>) -> Part {
        let mut part = self.calls(text);
        if part.class == StatementClass::Unprovable {
            return part;
        }
        if (0..text.len()).any(|at| writes(text, at)) {
            part.class = part.class.strongest(StatementClass::Write);
        }
        part
    }

    /// Judges the calls alone: expressions, and statements that are proved by other means.
    pub(super) fn calls(&self, text: Phrase<'_>) -> Part {
        let mut sum = Part::of(StatementClass::Read);
        for at in 0..text.len() {
            let part = match text.kind(at) {
                Some(TokenKind::Open) => self.call(text, at),
                Some(TokenKind::Stray) => Part::of(StatementClass::Unprovable),
                Some(TokenKind::Word) => sequence(text, at),
                _ => continue,
            };
            sum.class = sum.class.strongest(part.class);
            sum.extra |= part.extra;
            if part.breaks == GuardBreak::Reset {
                sum.breaks = GuardBreak::Reset;
            }
        }
        sum
    }

    /// What the parenthesis at `open` means for the class.
    fn call(&self, text: Phrase<'_>, open: usize) -> Part {
        let harmless = Part::of(StatementClass::Read);
        let Some(last) = open.checked_sub(1).filter(|&at| text.is_name(at)) else {
            return harmless;
        };
        match self.callee(text, last, open) {
            Callee::Harmless if text.is_any(last, WAITING) => {
                let locks = text.is(last, "get_lock");
                let extra = if locks { Shape::KEEPS_LOCKS | Shape::WAITS } else { Shape::WAITS };
                Part { extra, ..harmless }
            }
            Callee::Harmless | Callee::Grammar => harmless,
            Callee::Writer => Part::of(StatementClass::Write),
            Callee::Unknown if not_a_call(text, last, open) => harmless,
            Callee::Unknown if self.makes_geometry(text, last, open) => harmless,
            Callee::Unknown => UNKNOWN_CALL,
        }
    }

    /// MariaDB's words for shapes, which are its own only with the arguments they take: with others
    /// the engine looks for a stored function.
    fn makes_geometry(&self, text: Phrase<'_>, last: usize, open: usize) -> bool {
        let maria = self.server.flavour == MyFlavour::MariaDb;
        let Some(close) = text.mate(open).filter(|_| maria && !is_dotted(text, last)) else {
            return false;
        };
        if text.is(last, "point") {
            let arguments = text.part(open + 1..close);
            let mut commas = 0;
            let mut at = 0;
            while let Some(next) = arguments.after_bracket(at) {
                commas += usize::from(arguments.is_kind(at, TokenKind::Comma));
                at = next;
            }
            return commas == 1;
        }
        text.is_any(last, SHAPES) && close > open + 1
    }

    fn callee(&self, text: Phrase<'_>, last: usize, open: usize) -> Callee {
        let word = folded(text, last);
        let certain = |at| text.bytes(at).is_ascii() || self.encoding == MyEncoding::Utf8;
        if word.as_str().is_empty() || !certain(last) {
            return Callee::Unknown;
        }
        if is_dotted(text, last) {
            let Some(schema) = last.checked_sub(2).filter(|&at| text.is_name(at) && certain(at))
            else {
                return Callee::Unknown;
            };
            let Some(schema) = text.name(schema) else { return Callee::Unknown };
            let known = last.checked_sub(3).is_none_or(|at| !text.is_kind(at, TokenKind::Dot))
                && self.trusted.contains(Some(&schema), word.as_str());
            return if known { Callee::Harmless } else { Callee::Unknown };
        }
        if text.is_kind(last, TokenKind::Quoted) {
            // Quoted, even `now`() is looked for among stored functions.
            return declared(word.as_str(), self.trusted);
        }
        callee(word.as_str(), text.touches(last, open), self.server, self.trusted)
    }
}

/// A name in lower case, quotes undone: the engine compares names of functions without case.
fn folded(text: Phrase<'_>, at: usize) -> LowerWord {
    let mut word = LowerWord::of(text, at);
    word.fold();
    word
}

/// `NEXT VALUE FOR s`, and ORACLE mode's `s.nextval`.
fn sequence(text: Phrase<'_>, at: usize) -> Part {
    let next = text.is(at, "next") && text.is(at + 1, "value") && text.is(at + 2, "for");
    let dotted = text.is(at, "nextval") && is_dotted(text, at);
    Part::of(if next || dotted { StatementClass::Write } else { StatementClass::Read })
}

/// Whether the word at `at` begins a part of the query that writes or locks rows.
fn writes(text: Phrase<'_>, at: usize) -> bool {
    if !text.is_kind(at, TokenKind::Word) || is_dotted(text, at) {
        return false;
    }
    if text.is(at, "into") {
        return !text.is_kind(at + 1, TokenKind::Variable);
    }
    let function = text.is_kind(at + 1, TokenKind::Open);
    text.is_any(at, &["update", "delete", "load"])
        || (text.is_any(at, &["insert", "replace"]) && !function)
        || (text.is(at, "for") && text.is_any(at + 1, &["update", "share"]))
        || (text.is(at, "lock") && text.is(at + 1, "in"))
        || text.is_any(at, &["outfile", "dumpfile"])
}

/// Behind a dot any word is the name of a column or function.
pub(super) fn is_dotted(text: Phrase<'_>, at: usize) -> bool {
    at > 0 && text.is_kind(at - 1, TokenKind::Dot)
}

/// Whether the grammar allows no call here: the name is an alias, a type, or a clause's word.
fn not_a_call(text: Phrase<'_>, last: usize, open: usize) -> bool {
    if is_dotted(text, last) {
        return false;
    }
    let Some(before) = last.checked_sub(1) else { return false };
    let behind = |word: &str| text.is(before, word) && !is_dotted(text, before);
    if behind("as") {
        return true; // AS alias(…), CAST(… AS type(…))
    }
    // Right behind an operand no expression begins: `'$' COLUMNS (`, `) alias (`, `) AGAINST (`.
    let operand = text.kind(before).is_some_and(|kind| {
        kind == TokenKind::Close || (kind.is_literal() && kind != TokenKind::Parameter)
    });
    if operand && !is_charset(text, last) {
        return true;
    }
    if behind("procedure") && text.is(last, "analyse") {
        return true;
    }
    json_table(text, last, open) || against(text, last) || is_query_name(text, before, open)
}

/// `MATCH a, t.b AGAINST (`: the columns need no parentheses.
fn against(text: Phrase<'_>, last: usize) -> bool {
    if !text.is(last, "against") || last.checked_sub(1).is_none_or(|at| !text.is_name(at)) {
        return false;
    }
    let column = |at: usize| {
        !text.is(at, "match")
            && (text.is_name(at)
                || matches!(text.kind(at), Some(TokenKind::Dot | TokenKind::Comma)))
    };
    let before = (0..last).rev().find(|&at| !column(at));
    before.is_some_and(|at| text.is(at, "match"))
}

/// `_utf8'x'` and its kin stand where an operand does, but take one themselves.
fn is_charset(text: Phrase<'_>, at: usize) -> bool {
    text.bytes(at).first() == Some(&b'_')
}

/// `JSON_TABLE(… COLUMNS (…))`: no call has such arguments.
fn json_table(text: Phrase<'_>, last: usize, open: usize) -> bool {
    if !text.is(last, "json_table") {
        return false;
    }
    let Some(close) = text.mate(open) else { return false };
    let columns = text.part(open + 1..close).find(0, "columns");
    columns.is_some_and(|at| text.is_kind(open + 1 + at + 1, TokenKind::Open))
}

/// `WITH name (columns) AS (`.
fn is_query_name(text: Phrase<'_>, before: usize, open: usize) -> bool {
    let Some(close) = text.mate(open) else { return false };
    if !text.is(close + 1, "as") || !text.is_kind(close + 2, TokenKind::Open) {
        return false;
    }
    let begins = text.is(before, "with") || text.is(before, "recursive");
    // `x, name (columns) AS (SELECT …)`: an alias of a call can't be a parenthesis.
    begins || text.is_kind(before, TokenKind::Comma)
}
