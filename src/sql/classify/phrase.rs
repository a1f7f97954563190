//! A statement as a row of tokens, with the questions the families ask of it.
//!
//! Purpose: positions, words, names and matching parentheses without a tree. Invariant: every
//! question about a position outside the statement is answered with "no".
//!
//! Called by every file of `classify`. It knows no SQL beyond names and brackets.

use std::ops::Range;

use super::super::dialect::PgLexing;
use super::super::lexer::{Lexer, Scan, Token, TokenKind, Unlexable};

/// The longest identifier the engine keeps, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// A text read to its end, brackets matched.
#[derive(Debug)]
pub(in crate::sql) struct Tokens<'a> {
    text: &'a [u8],
    /// A backslash means something in a plain string.
    escapes: bool,
    tokens: Vec<Token>,
    /// For a bracket the index of its partner, for anything else its own index.
    mates: Vec<u32>,
}

impl<'a> Tokens<'a> {
    /// Reads a text. Brackets that don't match are an error: the engine refuses such a text whole.
    pub(super) fn read(text: &'a [u8], lexing: PgLexing) -> Result<Self, Unlexable> {
        let escapes = !lexing.standard_conforming_strings;
        Self::collect(text, Lexer::new(text, lexing), escapes)
    }

    /// The same for any family: `escapes` says that a backslash means something in a string.
    pub(in crate::sql) fn collect(
        text: &'a [u8],
        mut lexer: impl Scan,
        escapes: bool,
    ) -> Result<Self, Unlexable> {
        let (mut tokens, mut mates, mut open) = (Vec::new(), Vec::new(), Vec::<u32>::new());
        while let Some(token) = lexer.next_token()? {
            let here = u32::try_from(tokens.len()).map_err(|_| Unlexable)?;
            let closes = partner_of(token.kind);
            let mut mate = here;
            if let Some(wanted) = closes {
                mate = open.pop().ok_or(Unlexable)?;
                let partner: Option<&Token> = tokens.get(mate as usize);
                if partner.is_none_or(|partner| partner.kind != wanted) {
                    return Err(Unlexable);
                }
                if let Some(other) = mates.get_mut(mate as usize) {
                    *other = here;
                }
            } else if matches!(token.kind, TokenKind::Open | TokenKind::OpenSquare) {
                open.push(here);
            }
            tokens.push(token);
            mates.push(mate);
        }
        if open.is_empty() { Ok(Self { text, escapes, tokens, mates }) } else { Err(Unlexable) }
    }

    /// The whole text as one phrase.
    pub(in crate::sql) fn all(&self) -> Phrase<'_> {
        Phrase { tokens: self, from: 0, to: self.tokens.len() }
    }
}

/// The bracket that this one closes.
fn partner_of(kind: TokenKind) -> Option<TokenKind> {
    if kind == TokenKind::Close {
        Some(TokenKind::Open)
    } else if kind == TokenKind::CloseSquare {
        Some(TokenKind::OpenSquare)
    } else {
        None
    }
}

/// A run of tokens; positions count from its first one.
#[derive(Debug, Clone, Copy)]
pub(in crate::sql) struct Phrase<'a> {
    tokens: &'a Tokens<'a>,
    from: usize,
    to: usize,
}

impl<'a> Phrase<'a> {
    pub(in crate::sql) const fn len(self) -> usize {
        self.to - self.from
    }

    /// The part in `range`, clipped to this phrase.
    pub(in crate::sql) fn part(self, range: Range<usize>) -> Self {
        let to = self.from.saturating_add(range.end).min(self.to);
        let from = self.from.saturating_add(range.start).min(to);
        Self { tokens: self.tokens, from, to }
    }

    /// From a position to the end.
    pub(in crate::sql) fn rest(self, from: usize) -> Self {
        self.part(from..self.len())
    }

    pub(in crate::sql) fn token(self, at: usize) -> Option<Token> {
        let at = self.from.checked_add(at)?;
        if at < self.to { self.tokens.tokens.get(at).copied() } else { None }
    }

    pub(in crate::sql) fn kind(self, at: usize) -> Option<TokenKind> {
        self.token(at).map(|token| token.kind)
    }

    pub(in crate::sql) fn is_kind(self, at: usize, kind: TokenKind) -> bool {
        self.kind(at) == Some(kind)
    }

    /// The token's bytes, quotes included; empty outside the phrase.
    pub(in crate::sql) fn bytes(self, at: usize) -> &'a [u8] {
        self.token(at).map_or(&[], |token| token.bytes(self.tokens.text))
    }

    /// Whether the token is this unquoted word (`word` in lower case).
    pub(in crate::sql) fn is(self, at: usize, word: &str) -> bool {
        self.is_kind(at, TokenKind::Word) && self.bytes(at).eq_ignore_ascii_case(word.as_bytes())
    }

    /// Whether the token is one of these unquoted words.
    pub(in crate::sql) fn is_any(self, at: usize, words: &[&str]) -> bool {
        words.iter().any(|word| self.is(at, word))
    }

    /// Whether nothing stands between two tokens, not even a blank.
    pub(in crate::sql) fn touches(self, at: usize, next: usize) -> bool {
        let ends = self.token(at).map(|token| token.end);
        ends.is_some() && ends == self.token(next).map(|token| token.start)
    }

    /// Whether these two words stand next to each other anywhere.
    pub(in crate::sql) fn has_pair(self, first: &str, second: &str) -> bool {
        (0..self.len()).any(|at| self.is(at, first) && self.is(at + 1, second))
    }

    /// Whether `name` stands somewhere as a word.
    pub(in crate::sql) fn has(self, word: &str) -> bool {
        (0..self.len()).any(|at| self.is(at, word))
    }

    /// The bracket that closes or opens the one at `at`, if it lies in this phrase.
    pub(in crate::sql) fn mate(self, at: usize) -> Option<usize> {
        self.token(at)?;
        let mate = *self.tokens.mates.get(self.from + at)? as usize;
        (self.from..self.to).contains(&mate).then(|| mate - self.from)
    }

    /// The first place at or behind `from` where `word` stands outside all brackets.
    pub(in crate::sql) fn find(self, from: usize, word: &str) -> Option<usize> {
        let mut at = from;
        while at < self.len() {
            if self.is(at, word) {
                return Some(at);
            }
            at = self.after_bracket(at)?;
        }
        None
    }

    /// The position behind the token, or behind the closing bracket when it opens one.
    pub(in crate::sql) fn after_bracket(self, at: usize) -> Option<usize> {
        if matches!(self.kind(at)?, TokenKind::Open | TokenKind::OpenSquare) {
            return self.mate(at).map(|close| close + 1);
        }
        Some(at + 1)
    }

    pub(in crate::sql) fn is_name(self, at: usize) -> bool {
        matches!(
            self.kind(at),
            Some(TokenKind::Word | TokenKind::Quoted | TokenKind::UnicodeQuoted)
        )
    }

    /// A name as the engine stores it: unquoted in lower case, doubled quotes undone, cut to 63
    /// bytes. `None` when it isn't a name, isn't UTF-8, or is one that this layer doesn't decode.
    pub(in crate::sql) fn name(self, at: usize) -> Option<String> {
        let bytes = self.bytes(at);
        let mut name = if self.is_kind(at, TokenKind::Word) {
            std::str::from_utf8(bytes).ok()?.to_ascii_lowercase()
        } else if self.is_kind(at, TokenKind::Quoted) {
            // PostgreSQL's quote, or either of MySQL's.
            let quote = std::str::from_utf8(bytes.get(..1)?).ok()?;
            let inner = bytes.get(1..bytes.len().checked_sub(1)?)?;
            std::str::from_utf8(inner).ok()?.replace(&quote.repeat(2), quote)
        } else {
            return None;
        };
        if name.len() > NAME_BYTES_MAX {
            let cut = (0..=NAME_BYTES_MAX).rev().find(|&end| name.is_char_boundary(end))?;
            name.truncate(cut);
        }
        Some(name)
    }

    /// The value of a string written without any escape, doubled quote or continuation.
    pub(in crate::sql) fn plain_text(self, at: usize) -> Option<&'a [u8]> {
        let bytes = self.bytes(at);
        if self.is_kind(at, TokenKind::Text) {
            let inner = bytes.get(1..bytes.len().checked_sub(1)?)?;
            let escapes = self.tokens.escapes;
            let special = |byte: &u8| *byte == b'\'' || (escapes && *byte == b'\\');
            return (!inner.iter().any(special)).then_some(inner);
        }
        if self.is_kind(at, TokenKind::Dollar) {
            let tag = bytes.iter().skip(1).position(|&byte| byte == b'$')? + 2;
            return bytes.get(tag..bytes.len().checked_sub(tag)?);
        }
        None
    }
}

/// A word in lower case on the stack; empty when it is longer than any known name or not ASCII.
#[derive(Debug, Clone, Copy)]
pub(in crate::sql) struct LowerWord {
    bytes: [u8; NAME_BYTES_MAX],
    len: usize,
}

impl LowerWord {
    /// Folds an unquoted word, or takes a quoted name as it stands.
    pub(in crate::sql) fn of(phrase: Phrase<'_>, at: usize) -> Self {
        let bytes = phrase.bytes(at);
        let none = Self { bytes: [0; NAME_BYTES_MAX], len: 0 };
        let (inner, fold) = match phrase.kind(at) {
            Some(TokenKind::Word) => (bytes, true),
            Some(TokenKind::Quoted) => {
                (bytes.get(1..bytes.len().saturating_sub(1)).unwrap_or_default(), false)
            }
            _ => return none,
        };
        if inner.len() > NAME_BYTES_MAX || !inner.is_ascii() {
            return none;
        }
        let mut word = none;
        word.len = inner.len();
        for (to, from) in word.bytes.iter_mut().zip(inner) {
            *to = if fold { from.to_ascii_lowercase() } else { *from };
        }
        word
    }

    /// Lower case, quoted or not.
    pub(in crate::sql) fn fold(&mut self) {
        self.bytes.make_ascii_lowercase();
    }

    pub(in crate::sql) fn as_str(&self) -> &str {
        std::str::from_utf8(self.bytes.get(..self.len).unwrap_or_default()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Result<Tokens<'_>, Unlexable> {
        Tokens::read(text.as_bytes(), PgLexing::STANDARD)
    }

    #[test]
    fn brackets_find_each_other_or_the_text_is_refused() {
        let read = tokens("f(a[1], (b))").unwrap();
        let all = read.all();
        assert_eq!((all.mate(1), all.mate(all.len() - 1)), (Some(all.len() - 1), Some(1)));
        assert_eq!(all.part(0..3).mate(1), None, "the partner lies outside");
        for bad in ["(", ")", "(a]", "[)", "((a)"] {
            assert!(tokens(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_fold_as_the_engine_folds_them() {
        let read = tokens(r#"Abc "D""e" U&"x""#).unwrap();
        let all = read.all();
        assert_eq!(all.name(0).as_deref(), Some("abc"));
        assert_eq!(all.name(1).as_deref(), Some("D\"e"));
        assert_eq!(all.name(2), None);
        let long = "é".repeat(40);
        let read = tokens(&long).unwrap();
        assert_eq!(read.all().name(0).unwrap(), "é".repeat(31));
    }

    #[test]
    fn only_plain_strings_have_a_value() {
        let read = tokens(r"'a' $t$b$t$ 'it''s' E'x' 'c\d'").unwrap();
        let all = read.all();
        let values: Vec<_> = (0..5).map(|at| all.plain_text(at)).collect();
        assert_eq!(values, [Some(&b"a"[..]), Some(b"b"), None, None, Some(br"c\d")]);
        let off = PgLexing { standard_conforming_strings: false, ..PgLexing::STANDARD };
        let read = Tokens::read(br"'c\d'", off).unwrap();
        assert_eq!(read.all().plain_text(0), None);
    }
}
