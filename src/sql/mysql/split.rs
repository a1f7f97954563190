//! Cuts a text into its statements.
//!
//! Purpose: the engine runs the statements of a text one after the other, each as far as the next
//! semicolon outside brackets. Stored bodies hold semicolons inside: from `BEGIN` to its `END`.
//!
//! Invariant: when it is unclear where a statement ends, the text is cut at every semicolon, so
//! that nothing hides inside another statement. A body is taken as one statement only if the
//! statement around it is a writer anyway; every effect is assumed of it.

use std::ops::Range;

use super::super::classify::phrase::Phrase;
use super::super::lexer::{TokenKind, Unlexable};

/// What may have a body: the word behind CREATE or ALTER and its options.
const BODIES: &[&str] = &["procedure", "function", "trigger", "event", "package"];

/// What else may stand behind a DEFINER.
const OTHERS: &[&str] = &["aggregate", "sql", "view"];

/// The ranges of the statements of `text`; blank ones are left out.
pub(super) fn statements(text: Phrase<'_>) -> Result<Vec<Range<usize>>, Unlexable> {
    let mut found = Vec::new();
    let mut start = 0;
    // Looking for the end of a body goes over the whole rest of the text, which a text of nothing
    // but such beginnings must not have done each time. Behind one that doesn't close, none is one.
    let mut bodies = true;
    while start < text.len() {
        if text.is_kind(start, TokenKind::Semicolon) {
            start += 1;
            continue;
        }
        let body = if bodies { body_end(text, start) } else { Body::None };
        let end = match body {
            Body::Ends(end) => end,
            Body::Open => {
                bodies = false;
                end_of(text, start)?
            }
            Body::None => end_of(text, start)?,
        };
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
        if (at..next).any(|at| text.is_kind(at, TokenKind::Semicolon)) {
            return Err(Unlexable);
        }
        at = next;
    }
    Ok(at)
}

/// Whether the statement at `start` defines something with a body.
pub(super) fn has_body(text: Phrase<'_>, start: usize) -> bool {
    if text.is(start, "begin") && text.is(start + 1, "not") {
        return true;
    }
    if !text.is_any(start, &["create", "alter"]) {
        return false;
    }
    let mut at = start + 1;
    if text.is(at, "or") && text.is(at + 1, "replace") {
        at += 2;
    }
    if text.is(at, "definer") && text.bytes(at + 1) == b"=" {
        // `a`@`b` or a role: never a bracket. The first word that can't be one settles it.
        let plain = |at: &usize| {
            !matches!(text.kind(*at), Some(TokenKind::Open | TokenKind::Semicolon) | None)
        };
        let head = (at + 3..at + 8).take_while(plain);
        let mut words = head.filter(|&at| text.is_any(at, BODIES) || text.is_any(at, OTHERS));
        at = words.next().unwrap_or(at);
    }
    at += usize::from(text.is(at, "aggregate"));
    text.is_any(at, BODIES)
}

/// What is found of a statement's body.
enum Body {
    /// It has none.
    None,
    /// It ends in front of this place.
    Ends(usize),
    /// It begins, and where it ends is unclear.
    Open,
}

/// The place behind the END that closes the body which begins in this statement.
fn body_end(text: Phrase<'_>, start: usize) -> Body {
    if !has_body(text, start) {
        return Body::None;
    }
    let mut at = start;
    while !text.is(at, "begin") {
        if at >= text.len() || text.is_kind(at, TokenKind::Semicolon) {
            return Body::None;
        }
        match text.after_bracket(at) {
            Some(next) => at = next,
            None => return Body::None,
        }
    }
    closing(text, at).map_or(Body::Open, Body::Ends)
}

/// The place behind the END for the BEGIN at `at`.
fn closing(text: Phrase<'_>, mut at: usize) -> Option<usize> {
    let mut depth = 0_u32;
    while at < text.len() {
        if text.is_any(at, &["begin", "case"]) {
            depth += 1;
        } else if text.is(at, "end") {
            if text.is_any(at + 1, &["if", "loop", "while", "repeat", "for"]) {
                at += 1; // closes what wasn't counted
            } else {
                at += usize::from(text.is(at + 1, "case"));
                depth = depth.checked_sub(1)?;
            }
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    // A label may stand behind the END.
    at += usize::from(text.is_name(at));
    let ends = at >= text.len() || text.is_kind(at, TokenKind::Semicolon);
    (depth == 0 && ends).then_some(at)
}
