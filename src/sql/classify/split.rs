//! Cuts a text into its statements.
//!
//! Purpose: the engine parses a whole simple-query text before it runs any of it, so the statements
//! are what stands between the semicolons outside brackets. Two forms hold semicolons inside: the
//! action list of `CREATE RULE`, in parentheses, and a function body from `BEGIN ATOMIC` to `END`.
//!
//! Invariant: when it is unclear where a statement ends, the text is cut at every semicolon, so
//! that nothing hides inside another statement; a semicolon in brackets that no rule explains makes
//! the text unreadable (the engine has no reading for it either).

use std::ops::Range;

use super::super::lexer::{TokenKind, Unlexable};
use super::phrase::Phrase;

/// The ranges of the statements of `text`; blank ones are left out.
pub(super) fn statements(text: Phrase<'_>) -> Result<Vec<Range<usize>>, Unlexable> {
    let mut found = Vec::new();
    let mut start = 0;
    while start < text.len() {
        if text.is_kind(start, TokenKind::Semicolon) {
            start += 1;
            continue;
        }
        // Only the first one can be the whole text. Looking for its end goes over all of that.
        let whole = if found.is_empty() { atomic_end(text, start) } else { None };
        let end = whole.map_or_else(|| end_of(text, start), Ok)?;
        found.push(start..end);
        start = end + 1;
    }
    Ok(found)
}

/// The next semicolon outside brackets, or the end.
fn end_of(text: Phrase<'_>, start: usize) -> Result<usize, Unlexable> {
    let mut at = start;
    while at < text.len() && !text.is_kind(at, TokenKind::Semicolon) {
        let next = text.after_bracket(at).ok_or(Unlexable)?;
        let inside = text.part(at..next);
        let hidden =
            next > at + 1 && (0..inside.len()).any(|at| inside.is_kind(at, TokenKind::Semicolon));
        if hidden && !is_rule(text, start) {
            return Err(Unlexable);
        }
        at = next;
    }
    Ok(at)
}

/// `CREATE [OR REPLACE] RULE`.
fn is_rule(text: Phrase<'_>, start: usize) -> bool {
    text.is(start, "create") && (text.is(start + 1, "rule") || text.is(start + 3, "rule"))
}

/// The end of the whole text, if all of it is one function with an atomic body.
fn atomic_end(text: Phrase<'_>, start: usize) -> Option<usize> {
    let what = if text.is(start + 1, "or") { start + 3 } else { start + 1 };
    if !text.is(start, "create") || !text.is_any(what, &["function", "procedure"]) {
        return None;
    }
    let mut at = what;
    while !(text.is(at, "begin") && text.is(at + 1, "atomic")) {
        if at >= text.len() || text.is_kind(at, TokenKind::Semicolon) {
            return None;
        }
        at = text.after_bracket(at)?;
    }
    // CASE opens and END closes, unless they are names: behind a dot or AS.
    let mut depth = 1_u32;
    at += 2;
    while depth > 0 && at < text.len() {
        let named = text.is_kind(at - 1, TokenKind::Dot) || text.is(at - 1, "as");
        if text.is(at, "case") && !named {
            depth += 1;
        } else if text.is(at, "end") && !named {
            depth -= 1;
        }
        at += 1;
    }
    let nothing_follows = (at..text.len()).all(|at| text.is_kind(at, TokenKind::Semicolon));
    (depth == 0 && nothing_follows).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::super::super::dialect::PgLexing;
    use super::super::phrase::Tokens;
    use super::*;

    fn count(text: &str) -> Option<usize> {
        let tokens = Tokens::read(text.as_bytes(), PgLexing::STANDARD).unwrap();
        statements(tokens.all()).ok().map(|found| found.len())
    }

    #[test]
    fn cuts_at_semicolons_outside_brackets() {
        assert_eq!(count(" ;; "), Some(0));
        assert_eq!(count("select 1; ; select ';'; "), Some(2));
        assert_eq!(count("create rule r as on insert to t do (select 1; select 2); x"), Some(2));
        assert_eq!(count("create or replace rule r as on insert to t do (a; b)"), Some(1));
        assert_eq!(count("select (1; insert into t values (1))"), None);
    }

    #[test]
    fn an_atomic_body_is_one_statement_only_when_it_ends_the_text() {
        let body = "create function f() returns int begin atomic select case when true then 1 \
                    else 2 end as end; select 2; end";
        assert_eq!(count(body), Some(1));
        assert_eq!(count(&format!("{body};")), Some(1));
        assert_eq!(count(&format!("{body}; drop database d")), Some(4));
        // Not looked for behind another statement: each look goes over the rest of the text.
        assert_eq!(count(&format!("select 1; {body}")), Some(4));
    }
}
