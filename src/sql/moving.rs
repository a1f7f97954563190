//! Texts that must be parsed each time, for what the parsing itself does with them.
//!
//! Purpose: the engine turns a literal into a value when it parses the text, so a text with
//! `'today'::date` in it means another day once it is kept (`auto_prepare`); and it has a notice
//! for each name that it cuts, which its client gets at each Parse. Errs to one side: what can't be
//! read, any literal that holds such a word or hides its letters, and any name that may be cut,
//! counts. Pure; called by the PostgreSQL relay before it keeps a text.

use crate::base::limits;

use super::dialect::PgLexing;
use super::lexer::{Lexer, TokenKind};

/// Words that the engine's dates and times are read by, and that mean a moment of now.
const WORDS: [&[u8]; 4] = [b"now", b"today", b"tomorrow", b"yesterday"];

/// Whether a text may mean, or have the engine say, something each time that it is parsed.
#[must_use]
pub fn must_be_parsed_anew(text: &[u8], lexing: PgLexing) -> bool {
    let mut lexer = Lexer::new(text, lexing);
    loop {
        match lexer.next_token() {
            Ok(Some(token)) => {
                let (kind, bytes) = (token.kind, token.bytes(text));
                let plain = matches!(kind, TokenKind::Text | TokenKind::Dollar);
                let name =
                    matches!(kind, TokenKind::Word | TokenKind::Quoted | TokenKind::UnicodeQuoted);
                let hides = kind == TokenKind::EscapedText;
                let anew = hides || plain && moves(bytes) || name && may_be_cut(bytes);
                if anew {
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

/// Whether the engine may keep less of a name, in its own encoding, and say so.
fn may_be_cut(name: &[u8]) -> bool {
    let most = if name.is_ascii() {
        limits::ENGINE_NAME_BYTES_MAX
    } else {
        limits::CONVERTED_NAME_BYTES_MAX
    };
    name.len() > most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_that_means_a_moment_and_a_name_that_is_cut_are_parsed_anew() {
        let moves = |text: &str| must_be_parsed_anew(text.as_bytes(), PgLexing::STANDARD);
        for text in [
            "SELECT 'now'::timestamp",
            "SELECT * FROM t WHERE day = date 'Today'",
            "SELECT $$tomorrow 12:00$$::timestamptz",
            "SELECT 'no'\n'w'::timestamptz",
            "SELECT E'\\x6eow'::timestamp",
            "SELECT U&'\\006eow'::timestamp",
            "SELECT 'yester",
            &format!("SELECT 1 AS {}", "x".repeat(64)),
            &format!("SELECT 1 AS \"{}\"", "é".repeat(8)),
        ] {
            assert!(moves(text), "{text}");
        }
        for text in [
            "SELECT now(), current_date, 'infinity'::timestamp, '2026-12-02'::date",
            "SELECT today FROM tomorrow -- 'now'",
            "SELECT \"now\" FROM t WHERE a = $1",
            &format!("SELECT 1 AS {}", "x".repeat(63)),
            "SELECT 1 AS \"größe\"",
        ] {
            assert!(!moves(text), "{text}");
        }
    }
}
