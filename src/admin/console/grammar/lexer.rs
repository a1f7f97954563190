//! Words, literals and signs of a console's text.
//!
//! Purpose: cut the text. Nothing fails here but a literal or comment that doesn't close, so that
//! the parser can say what it expected where. Called by `grammar/parse.rs`. It knows no keywords.

use super::{Dialect, Wrong};

/// One piece of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// A run of letters, digits and `_/.@:+-`: a keyword, a bare name, a number, a duration.
    Bare(String),
    /// What was in quotes.
    Quoted(String),
    /// Any other character.
    Sign(char),
}

/// A piece and where it begins, in characters from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) piece: Piece,
    pub(super) position: usize,
}

struct Reader<'t> {
    rest: std::iter::Peekable<std::str::Chars<'t>>,
    position: usize,
    dialect: Dialect,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        self.position += 1;
        self.rest.next()
    }

    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    /// Whether the two next characters are these.
    fn sees(&self, first: char, second: char) -> bool {
        let mut ahead = self.rest.clone();
        ahead.next() == Some(first) && ahead.next() == Some(second)
    }

    fn skip_line(&mut self) {
        while let Some(sign) = self.peek()
            && sign != '\n'
        {
            self.next();
        }
    }

    fn skip_block(&mut self) -> Result<(), Wrong> {
        let start = self.position;
        self.next();
        self.next();
        while !self.sees('*', '/') {
            if self.next().is_none() {
                return Err(unclosed(start, "comment"));
            }
        }
        self.next();
        self.next();
        Ok(())
    }

    /// Skips blanks and comments.
    fn skip(&mut self) -> Result<(), Wrong> {
        loop {
            match self.peek() {
                Some(sign) if sign.is_whitespace() => {
                    self.next();
                }
                Some('-') if self.sees('-', '-') => self.skip_line(),
                Some('#') if self.dialect == Dialect::Mysql => self.skip_line(),
                Some('/') if self.sees('/', '*') => self.skip_block()?,
                Some(_) | None => return Ok(()),
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, Wrong> {
        let start = self.position;
        self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                None => return Err(unclosed(start, "literal")),
                Some('\\') if self.dialect == Dialect::Mysql => match self.next() {
                    None => return Err(unclosed(start, "literal")),
                    Some(escaped) => text.push(unescaped(escaped)),
                },
                Some(sign) if sign == quote => match self.peek() {
                    Some(again) if again == quote => {
                        self.next();
                        text.push(quote);
                    }
                    Some(_) | None => return Ok(text),
                },
                Some(sign) => text.push(sign),
            }
        }
    }

    fn bare(&mut self) -> String {
        let mut text = String::new();
        while let Some(sign) = self.peek()
            && is_bare(sign)
            && !self.sees('-', '-')
            && !self.sees('/', '*')
        {
            text.push(sign);
            self.next();
        }
        text
    }
}

fn is_bare(sign: char) -> bool {
    sign.is_alphanumeric() || "_/.@:+-".contains(sign)
}

const fn unescaped(escaped: char) -> char {
    match escaped {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        '0' => '\0',
        other => other,
    }
}

fn unclosed(position: usize, what: &str) -> Wrong {
    Wrong { position, message: format!("this {what} isn't closed"), is_value: false }
}

/// Cuts a text.
pub(super) fn tokens(text: &str, dialect: Dialect) -> Result<Vec<Token>, Wrong> {
    let mut reader = Reader { rest: text.chars().peekable(), position: 1, dialect };
    let mut found = Vec::new();
    loop {
        reader.skip()?;
        let position = reader.position;
        let piece = match reader.peek() {
            None => return Ok(found),
            Some(quote @ ('\'' | '"')) => Piece::Quoted(reader.quoted(quote)?),
            Some(sign) if is_bare(sign) => Piece::Bare(reader.bare()),
            Some(sign) => {
                reader.next();
                Piece::Sign(sign)
            }
        };
        found.push(Token { piece, position });
    }
}
