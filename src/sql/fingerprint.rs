//! A statement as people see it in tables and logs: one line, no values.
//!
//! Purpose: group and show programs without showing data. Comments go, blanks fold, unquoted words
//! become lower case, every literal becomes `?`. It isn't a key: it is cut, and two programs may
//! share one.
//!
//! Called by telemetry and the admin views. It decides nothing.

use super::dialect::Lexing;
use super::lexer::{Lexer, Scan, TokenKind};
use super::mysql::{self, MyLexer};

/// The most characters a fingerprint has, the closing `…` of a cut one included.
pub const FINGERPRINT_CHARS_MAX: usize = 240;

/// One line that names a program without its values.
///
/// A text that can't be read to its end is shown as far as it can, then `…`; so no part of an
/// unclosed string is ever shown.
#[must_use]
pub fn fingerprint(text: &str, lexing: impl Into<Lexing>) -> String {
    let bytes = text.as_bytes();
    match lexing.into() {
        Lexing::Postgres(rules) if !rules.hides(bytes) => show(text, Lexer::new(bytes, rules)),
        Lexing::MySql(rules) if !rules.hides(bytes) => {
            let mut readings = mysql::readings(rules, bytes);
            match (readings.next(), readings.next()) {
                (Some(reading), None) => show(text, MyLexer::new(bytes, reading)),
                // What is a name in one reading is a value in the other.
                (Some(_) | None, _) => "…".to_owned(),
            }
        }
        Lexing::Postgres(_) | Lexing::MySql(_) => "…".to_owned(),
    }
}

fn show(text: &str, mut lexer: impl Scan) -> String {
    let mut line = String::new();
    let mut chars = 0;
    let mut last = None;
    loop {
        let token = match lexer.next_token() {
            Ok(Some(token)) => token,
            Ok(None) => return line,
            Err(_) => break,
        };
        let piece = text.get(token.start as usize..token.end as usize).unwrap_or("?");
        let shown = if token.kind == TokenKind::Word {
            piece.to_ascii_lowercase()
        } else if token.kind.is_literal() && token.kind != TokenKind::Parameter {
            "?".to_owned()
        } else {
            piece.to_owned()
        };
        let space = last.is_some_and(|last| spaced(last, token.kind));
        let length = shown.chars().count() + usize::from(space);
        if chars + length >= FINGERPRINT_CHARS_MAX {
            break;
        }
        if space {
            line.push(' ');
        }
        line.push_str(&shown);
        chars += length;
        last = Some(token.kind);
    }
    line.push('…');
    line
}

/// Whether a blank stands between two tokens.
fn spaced(left: TokenKind, right: TokenKind) -> bool {
    use TokenKind::{
        Cast, Close, CloseSquare, Colon, Comma, Dot, Open, OpenSquare, Quoted, Semicolon, Word,
    };
    let opened = matches!(left, Open | OpenSquare | Dot | Cast | Colon);
    let closing =
        matches!(right, Close | CloseSquare | Comma | Semicolon | Dot | Cast | Colon | OpenSquare);
    let call = matches!((left, right), (Word | Quoted, Open));
    !(opened || closing || call)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_comments_and_layout_go() {
        let text =
            "SELECT  a.\"B\", 'secret', $1 /* c */ FROM t WHERE x = 5::int -- y\n AND f (1);";
        assert_eq!(
            fingerprint(text, Lexing::STANDARD),
            "select a.\"B\", ?, $1 from t where x = ?::int and f(?);"
        );
    }

    #[test]
    fn a_cut_or_unreadable_text_shows_no_more_than_its_readable_part() {
        let long = format!("select {}", "column_name, ".repeat(100));
        let cut = fingerprint(&long, Lexing::STANDARD);
        assert!(cut.chars().count() <= FINGERPRINT_CHARS_MAX && cut.ends_with('…'));
        assert_eq!(fingerprint("select 'open secret", Lexing::STANDARD), "select…");
        let hidden = super::super::dialect::PgLexing::from_parameters("on", "SJIS");
        assert_eq!(fingerprint("select 'ä'", hidden), "…");
    }
}
