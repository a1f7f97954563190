//! Literals whose meaning moves: `'now'`, `'today'` and their kin.
//!
//! Purpose: the engine turns a literal into a value when it parses the text, so a text with
//! `'today'::date` in it means another day once it is kept (`auto_prepare`). Errs to one side: what
//! can't be read, and any literal that holds such a word or hides its letters, counts as moving.
//! Pure; called by the PostgreSQL relay before it keeps a text.

use super::dialect::PgLexing;
use super::lexer::{Lexer, TokenKind};

/// Words that the engine's dates and times are read by, and that mean a moment of now.
const WORDS: [&[u8]; 4] = [b"now", b"today", b"tomorrow", b"yesterday"];

/// Whether some literal of a text may mean something else each time the text is parsed.
#[must_use]
pub fn has_moving_literal(text: &[u8], lexing: PgLexing) -> bool {
    let mut lexer = Lexer::new(text, lexing);
    loop {
        match lexer.next_token() {
            Ok(Some(token)) => {
                let plain = matches!(token.kind, TokenKind::Text | TokenKind::Dollar);
                let hides = token.kind == TokenKind::EscapedText;
                if hides || plain && moves(token.bytes(text)) {
                    return true;
                }
            }
            Ok(None) => return false,
            Err(_unlexable) => return true,
        }
    }
}

/// A continued literal may have such a word in two parts, and a backslash may be an escape.
fn moves(literal: &[u8]) -> bool {
    let hides = literal.iter().any(|byte| matches!(byte, b'\n' | b'\r' | b'\\'));
    let holds = |word: &&[u8]| literal.windows(word.len()).any(|at| at.eq_ignore_ascii_case(word));
    hides || WORDS.iter().any(holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_that_means_a_moment_moves_and_a_call_does_not() {
        let moves = |text: &str| has_moving_literal(text.as_bytes(), PgLexing::STANDARD);
        for text in [
            "SELECT 'now'::timestamp",
            "SELECT * FROM t WHERE day = date 'Today'",
            "SELECT $$tomorrow 12:00$$::timestamptz",
            "SELECT 'no'\n'w'::timestamptz",
            "SELECT E'\\x6eow'::timestamp",
            "SELECT U&'\\006eow'::timestamp",
            "SELECT 'yester",
        ] {
            assert!(moves(text), "{text}");
        }
        for text in [
            "SELECT now(), current_date, 'infinity'::timestamp, '2026-12-02'::date",
            "SELECT today FROM tomorrow -- 'now'",
            "SELECT \"now\" FROM t WHERE a = $1",
        ] {
            assert!(!moves(text), "{text}");
        }
    }
}
