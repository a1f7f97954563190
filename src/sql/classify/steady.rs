//! Whether a text can be run again as it was read once, and what may change how texts are read.
//!
//! Purpose: `auto_prepare` keeps a text as a statement of the engine's, which is right as long as
//! the text would be read the same way. Two bits of a shape say what of that a text can show:
//! `REPEATABLE` (it may be kept) and `UNSETTLES` (what was kept before it is forgotten).
//! Invariant: whatever isn't shown to change neither settings nor definitions unsettles.
//!
//! Called by `classify.rs` for every statement. Literals aren't looked at here, because the key of
//! the classifier's cache leaves them out: `moving.rs` does. Triggers, views and other sessions
//! can't be seen.

use super::super::lexer::TokenKind;
use super::super::statement::{Part, Shape, StatementClass};
use super::super::trusted::Trusted;
use super::phrase::Phrase;
use super::{plan, read};

/// The bits of one statement, whose class is known. Where nobody asks for them, those that have
/// nothing kept.
pub(super) fn bits(text: Phrase<'_>, part: Part, proofs: bool, trusted: &Trusted) -> u32 {
    if !trusted.asks_steadiness() {
        return Shape::UNSETTLES;
    }
    let first = (0..text.len()).find(|&at| !text.is_kind(at, TokenKind::Open)).unwrap_or(0);
    let changes_rows = first == 0 && text.is_any(0, &["insert", "update", "delete", "merge"]);
    if changes_rows || text.is_any(first, plan::QUERY) {
        let known = matches!(part.class, StatementClass::Read | StatementClass::Write);
        let steady = known && proofs && !part.lexing && !read::unsettles(text, trusted);
        return if steady { Shape::REPEATABLE } else { Shape::UNSETTLES };
    }
    let looks = text.is_any(first, &["show", "fetch", "move", "close", "explain", "declare"]);
    match part.class {
        StatementClass::TransactionControl => 0,
        StatementClass::Read if looks && !part.lexing => 0,
        StatementClass::Read
        | StatementClass::Session
        | StatementClass::Stream
        | StatementClass::Write
        | StatementClass::Ddl
        | StatementClass::Lifecycle
        | StatementClass::Unprovable => Shape::UNSETTLES,
    }
}
