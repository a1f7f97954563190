//! The lexer of MySQL and MariaDB, byte for byte as far as it decides where tokens end.
//!
//! Purpose: a string or comment that ends elsewhere than in the engine would hide a statement. The
//! rules are those of MySQL 8.0 to 9.7 and MariaDB 10.6 to 11, tried on 9.7.4 and 10.11.19. Where
//! versions differ, or a text can be read in two ways, it is [`Unlexable`], never a guess.
//!
//! What the engine does with an executable comment (`/*! … */`, `/*M! … */`) depends on its flavour
//! and version. A lexer has one [`Executable`] rule; the classifier reads a text that holds such a
//! comment under all three.
//!
//! Invariants: one pass, no recursion, no allocation, progress on every call.
//!
//! Called by the cache key, the classifier and the fingerprint. It doesn't know keywords.

use super::super::lexer::{Scan, Token, TokenKind, Unlexable};
use super::dialect::{MyEncoding, MyFlavour, MyServer};

/// What MariaDB's dumps begin with, for its own client. A server takes it for a comment, as no
/// version is that high; one that ran its inside would stop at the backslash, which is in no
/// statement. So whichever it does, nothing in it is code, and what follows it is read the same.
/// The client takes the backslash out: the second is what it sends, and no statement either.
const SANDBOX_LINES: [&[u8]; 2] =
    [br"/*M!999999\- enable the sandbox mode */", b"/*M!999999 enable the sandbox mode */"];

/// What becomes of the inside of an executable comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sql) enum Executable {
    /// What this flavour and version makes of it.
    ByVersion,
    /// It is code, whatever its version says.
    Always,
    /// It is a comment.
    Never,
}

/// One definite way to read a text: every toggle decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sql) struct Reading {
    pub(in crate::sql) server: MyServer,
    pub(in crate::sql) ansi_quotes: bool,
    pub(in crate::sql) no_backslash_escapes: bool,
    pub(in crate::sql) encoding: MyEncoding,
    pub(in crate::sql) executable: Executable,
}

/// What must come next without a blank: in `a.1b` the part behind the dot is a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Glue {
    Nothing,
    Dot,
    Name,
}

/// Reads tokens off a text, one after the other.
#[derive(Debug, Clone)]
pub(in crate::sql) struct MyLexer<'a> {
    text: &'a [u8],
    at: usize,
    reading: Reading,
    /// Inside an executable comment whose content is code.
    inside: bool,
    saw_executable: bool,
    glue: Glue,
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | 0x09..=0x0d)
}

/// Whether a byte may stand in an unquoted name; bytes above ASCII are checked where they stand.
const fn in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$')
}

impl<'a> MyLexer<'a> {
    pub(in crate::sql) const fn new(text: &'a [u8], reading: Reading) -> Self {
        Self { text, at: 0, reading, inside: false, saw_executable: false, glue: Glue::Nothing }
    }

    /// Whether an executable comment has been met so far, whatever became of it.
    pub(in crate::sql) const fn saw_executable(&self) -> bool {
        self.saw_executable
    }

    /// The rules in bytes, for the cache key.
    pub(in crate::sql) const fn rules(&self) -> [u8; 7] {
        let version = self.reading.server.version.to_le_bytes();
        let modes =
            (self.reading.ansi_quotes as u8) | (self.reading.no_backslash_escapes as u8) << 1;
        let how = (self.reading.executable as u8) << 2 | (self.reading.encoding as u8) << 4;
        let flavour = self.reading.server.flavour as u8;
        [version[0], version[1], version[2], version[3], modes, how, flavour]
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn take(&mut self, bytes: usize, kind: TokenKind) -> TokenKind {
        self.at += bytes;
        kind
    }

    fn skip_while(&mut self, wanted: impl Fn(u8) -> bool) {
        let rest = self.rest();
        self.at += rest.iter().position(|byte| !wanted(*byte)).unwrap_or(rest.len());
    }

    /// Skips blanks and comments; steps into and out of executable ones.
    fn skip_space(&mut self) -> Result<(), Unlexable> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(blank), _) if is_blank(blank) => self.at += 1,
                (Some(b'#'), _) => self.skip_line()?,
                (Some(b'-'), Some(b'-')) if self.dashes_begin_comment()? => self.skip_line()?,
                (Some(b'/'), Some(b'*')) => self.block_comment()?,
                (Some(b'*'), Some(b'/')) if self.inside => {
                    self.inside = false;
                    self.at += 2;
                }
                _ => return Ok(()),
            }
        }
    }

    /// `--` begins a comment before a blank, a control character or the end.
    fn dashes_begin_comment(&self) -> Result<bool, Unlexable> {
        match self.peek(2) {
            None => Ok(true),
            // A one-byte character set may have blanks and controls up there.
            Some(high) if high >= 0x80 && self.reading.encoding != MyEncoding::Utf8 => {
                Err(Unlexable)
            }
            Some(byte) => Ok(is_blank(byte) || byte.is_ascii_control()),
        }
    }

    /// To the line feed; a carriage return doesn't end it. A NUL would.
    fn skip_line(&mut self) -> Result<(), Unlexable> {
        self.skip_while(|byte| byte != b'\n' && byte != 0);
        if self.peek(0) == Some(0) { Err(Unlexable) } else { Ok(()) }
    }

    fn block_comment(&mut self) -> Result<(), Unlexable> {
        for line in SANDBOX_LINES {
            if self.rest().starts_with(line) {
                self.at += line.len();
                return Ok(());
            }
        }
        let maria = self.peek(2) == Some(b'M') && self.peek(3) == Some(b'!');
        if maria || self.peek(2) == Some(b'!') {
            return self.executable_comment(maria);
        }
        if self.peek(2) == Some(b'+') {
            return self.hint();
        }
        self.at += 2;
        self.skip_comment(false)
    }

    /// Skips to behind the closing `*/`; `nested`: one level of comments inside counts.
    fn skip_comment(&mut self, nested: bool) -> Result<(), Unlexable> {
        let mut deep = false;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b'/'), Some(b'*')) if nested && !deep => {
                    deep = true;
                    self.at += 2;
                }
                (Some(b'*'), Some(b'/')) => {
                    self.at += 2;
                    if !deep {
                        return Ok(());
                    }
                    deep = false;
                }
                (Some(_), _) => self.at += 1,
                (None, _) => return Err(Unlexable),
            }
        }
    }

    /// An optimizer hint has a lexer of its own, in which a quoted name may hold `*/`: quotes must
    /// be closed where this comment ends.
    fn hint(&mut self) -> Result<(), Unlexable> {
        let from = self.at + 3;
        self.at += 2;
        self.skip_comment(false)?;
        let inside = self.text.get(from..self.at.saturating_sub(2)).unwrap_or_default();
        let mut open = None;
        for &byte in inside {
            match open {
                None if matches!(byte, b'\'' | b'"' | b'`') => open = Some(byte),
                Some(quote) if quote == byte => open = None,
                None | Some(_) => {}
            }
        }
        if open.is_some() { Err(Unlexable) } else { Ok(()) }
    }

    fn executable_comment(&mut self, maria: bool) -> Result<(), Unlexable> {
        self.saw_executable = true;
        let is_maria = self.reading.server.flavour == MyFlavour::MariaDb;
        let known = !maria || is_maria;
        let body = self.at + if maria { 4 } else { 3 };
        let digits = self.text.get(body..).unwrap_or_default();
        let digits = digits.iter().take(6).take_while(|byte| byte.is_ascii_digit()).count();
        let (length, version) =
            if digits < 5 { (0, 0) } else { (digits, self.number(body, digits)) };
        let runs = match self.reading.executable {
            Executable::Always => true,
            Executable::Never => false,
            Executable::ByVersion if !known => {
                self.at += 2;
                return self.skip_comment(false); // a plain comment, which doesn't nest
            }
            Executable::ByVersion => {
                let foreign = is_maria && !maria && (50_700..=99_999).contains(&version);
                version <= self.reading.server.version && !foreign
            }
        };
        self.at = body + length;
        if runs {
            self.inside = true;
            return Ok(());
        }
        self.skip_comment(true)
    }

    fn number(&self, from: usize, digits: usize) -> u32 {
        let digits = self.text.get(from..from + digits).unwrap_or_default();
        digits.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit.wrapping_sub(b'0')))
    }

    fn read(&mut self, first: u8) -> Result<TokenKind, Unlexable> {
        match first {
            b'\'' => self.read_string(1, TokenKind::Text),
            b'"' if self.reading.ansi_quotes => self.read_quoted(b'"'),
            b'"' => self.read_string(1, TokenKind::Text),
            b'`' => self.read_quoted(b'`'),
            b'@' => self.read_variable(),
            b'0'..=b'9' => self.read_number(),
            b'.' if self.peek(1).is_some_and(|byte| byte.is_ascii_digit()) => self.read_real(),
            b'.' => Ok(self.take(1, TokenKind::Dot)),
            b':' if self.peek(1) == Some(b'=') => Ok(self.take(2, TokenKind::Operator)),
            b':' => Ok(self.take(1, TokenKind::Colon)),
            b',' => Ok(self.take(1, TokenKind::Comma)),
            // MariaDB quotes names with brackets in a mode of its own; nothing else has them.
            b'[' | b']' => Err(Unlexable),
            b';' if self.inside => Err(Unlexable), // the next statement begins outside the comment
            b';' => Ok(self.take(1, TokenKind::Semicolon)),
            b'(' => Ok(self.take(1, TokenKind::Open)),
            b')' => Ok(self.take(1, TokenKind::Close)),
            b'?' => Ok(self.take(1, TokenKind::Parameter)),
            b'\\' if self.peek(1) == Some(b'N') => Ok(self.take(2, TokenKind::Number)),
            b'n' | b'N' if self.peek(1) == Some(b'\'') => self.read_string(2, TokenKind::Text),
            b'x' | b'X' | b'b' | b'B' if self.peek(1) == Some(b'\'') => self.read_bits(),
            b'$' if self.is_dollar_quote() => Err(Unlexable),
            name if in_name(name) || name >= 0x80 => Ok(self.read_word()),
            b'!' | b'%' | b'&' | b'*' | b'+' | b'-' | b'/' | b'<' | b'=' | b'>' | b'^' | b'{'
            | b'|' | b'}' | b'~' => Ok(self.take(1, TokenKind::Operator)),
            _ => Ok(self.take(1, TokenKind::Stray)),
        }
    }

    /// MySQL 9 reads `$tag$ … $tag$` as a string; older ones and MariaDB as a name.
    fn is_dollar_quote(&self) -> bool {
        let name = self.rest().iter().skip(1).take_while(|byte| in_name(**byte) || **byte >= 0x80);
        self.reading.server.flavour == MyFlavour::MySql
            && name.into_iter().any(|byte| *byte == b'$')
    }

    /// An unquoted name or keyword. Bytes above ASCII belong to it only as whole characters of
    /// UTF-8 that every `utf8` has; anything else is a stray byte.
    fn read_word(&mut self) -> TokenKind {
        let start = self.at;
        loop {
            self.skip_while(in_name);
            let rest = self.rest();
            let Some(&high) = rest.first() else { break };
            if high < 0x80 || self.reading.encoding != MyEncoding::Utf8 {
                break;
            }
            let length = if high >= 0xe0 { 3 } else { 2 };
            let whole = rest.get(..length).is_some_and(|c| std::str::from_utf8(c).is_ok());
            if high >= 0xf0 || !whole {
                break;
            }
            self.at += length;
        }
        if self.at == start {
            return self.take(1, TokenKind::Stray);
        }
        TokenKind::Word
    }

    /// A string; two quotes are one, a backslash takes the next byte along unless the mode is on.
    fn read_string(&mut self, prefix: usize, kind: TokenKind) -> Result<TokenKind, Unlexable> {
        let quote = self.peek(prefix - 1).ok_or(Unlexable)?;
        self.at += prefix;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b'\\'), Some(_)) if !self.reading.no_backslash_escapes => self.at += 2,
                (Some(byte), Some(next)) if byte == quote && next == quote => self.at += 2,
                (Some(byte), _) if byte == quote => return Ok(self.take(1, kind)),
                (Some(_), _) => self.at += 1,
                (None, _) => return Err(Unlexable),
            }
        }
    }

    /// A quoted name: two quotes are one, nothing is escaped, a NUL can't be in it.
    fn read_quoted(&mut self, quote: u8) -> Result<TokenKind, Unlexable> {
        self.at += 1;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(byte), Some(next)) if byte == quote && next == quote => self.at += 2,
                (Some(byte), _) if byte == quote => return Ok(self.take(1, TokenKind::Quoted)),
                (Some(0) | None, _) => return Err(Unlexable),
                (Some(_), _) => self.at += 1,
            }
        }
    }

    fn read_bits(&mut self) -> Result<TokenKind, Unlexable> {
        self.at += 2;
        self.skip_while(|byte| byte.is_ascii_hexdigit());
        if self.peek(0) == Some(b'\'') { Ok(self.take(1, TokenKind::Bits)) } else { Err(Unlexable) }
    }

    /// `@@`, `@name` (dots included) or `@'name'`.
    fn read_variable(&mut self) -> Result<TokenKind, Unlexable> {
        match self.peek(1) {
            Some(b'@') => Ok(self.take(2, TokenKind::Setting)),
            Some(b'`') => self.quoted_variable(b'`'),
            Some(b'"') if self.reading.ansi_quotes => self.quoted_variable(b'"'),
            Some(b'\'' | b'"') => {
                self.at += 1;
                self.read_string(1, TokenKind::Variable)
            }
            Some(high) if high >= 0x80 => Ok(self.take(1, TokenKind::Stray)),
            _ => {
                self.at += 1;
                self.skip_while(|byte| in_name(byte) || byte == b'.');
                if self.peek(0).is_some_and(|byte| byte >= 0x80) {
                    return Ok(TokenKind::Stray);
                }
                Ok(TokenKind::Variable)
            }
        }
    }

    fn quoted_variable(&mut self, quote: u8) -> Result<TokenKind, Unlexable> {
        self.at += 1;
        self.read_quoted(quote)?;
        Ok(TokenKind::Variable)
    }

    /// Digits, which may turn out to begin a name: `1a`, `0x1g`.
    fn read_number(&mut self) -> Result<TokenKind, Unlexable> {
        let start = self.at;
        let prefixed = |lexer: &mut Self, wanted: fn(&u8) -> bool| {
            lexer.at += 2;
            lexer.skip_while(|byte| wanted(&byte));
            let long_enough = lexer.at > start + 2;
            let ends = lexer.peek(0).is_none_or(|byte| !in_name(byte) && byte < 0x80);
            long_enough && ends
        };
        let is_prefixed = match (self.peek(0), self.peek(1)) {
            (Some(b'0'), Some(b'x')) => prefixed(self, u8::is_ascii_hexdigit),
            (Some(b'0'), Some(b'b')) => prefixed(self, |byte| matches!(byte, b'0' | b'1')),
            _ => false,
        };
        if is_prefixed {
            return Ok(TokenKind::Number);
        }
        self.at = start;
        self.skip_while(|byte| byte.is_ascii_digit());
        match self.peek(0) {
            Some(b'.') => self.read_real(),
            Some(b'e' | b'E') if self.exponent() => Ok(TokenKind::Number),
            Some(byte) if in_name(byte) || byte >= 0x80 => Ok(self.read_word()),
            _ => Ok(TokenKind::Number),
        }
    }

    /// From the dot on.
    fn read_real(&mut self) -> Result<TokenKind, Unlexable> {
        self.at += 1;
        self.skip_while(|byte| byte.is_ascii_digit());
        if matches!(self.peek(0), Some(b'e' | b'E')) && !self.exponent() {
            return Err(Unlexable);
        }
        Ok(TokenKind::Number)
    }

    /// Steps over `e+1`; stays where it is when no digit follows.
    fn exponent(&mut self) -> bool {
        let signed = usize::from(matches!(self.peek(1), Some(b'+' | b'-')));
        if !self.peek(1 + signed).is_some_and(|byte| byte.is_ascii_digit()) {
            return false;
        }
        self.at += 1 + signed;
        self.skip_while(|byte| byte.is_ascii_digit());
        true
    }
}

impl Scan for MyLexer<'_> {
    fn next_token(&mut self) -> Result<Option<Token>, Unlexable> {
        let glue = std::mem::replace(&mut self.glue, Glue::Nothing);
        if glue == Glue::Nothing {
            self.skip_space()?;
        }
        let start = self.at;
        let Some(first) = self.peek(0) else {
            // An executable comment that isn't closed is an error in the engine, too.
            return if self.inside { Err(Unlexable) } else { Ok(None) };
        };
        if first == 0 {
            // The engine ends the text at a NUL; clients that count it in send one at the end.
            let nothing = self.rest().iter().all(|byte| *byte == 0 || is_blank(*byte));
            return if nothing && !self.inside { Ok(None) } else { Err(Unlexable) };
        }
        let kind = match glue {
            Glue::Dot => self.take(1, TokenKind::Dot),
            Glue::Name => self.read_word(),
            Glue::Nothing => self.read(first)?,
        };
        let named = |byte: u8| in_name(byte) || byte >= 0x80;
        if glue == Glue::Dot {
            self.glue = Glue::Name;
        } else if kind == TokenKind::Word
            && self.peek(0) == Some(b'.')
            && self.peek(1).is_some_and(named)
        {
            self.glue = Glue::Dot;
        }
        let place = |at: usize| u32::try_from(at).map_err(|_| Unlexable);
        let token = Token { kind, start: place(start)?, end: place(self.at)? };
        Ok(Some(token))
    }
}
