//! PostgreSQL's lexer, byte for byte as far as it decides where tokens end.
//!
//! Purpose: everything else in this layer works on these tokens, so a string or comment that ends
//! elsewhere than in the engine would hide a statement. The rules are those of versions 15 to 18;
//! where they differ, the reading is one that the engine either shares or answers with a syntax
//! error for the whole text. What can't be a valid text at all (an open string, a number with
//! letters behind it) is [`Unlexable`], never a guess.
//!
//! Invariants: one pass, no recursion, no allocation, progress on every call.
//!
//! Called by the cache key, the splitter and the fingerprint. It doesn't know keywords.

use super::dialect::PgLexing;

/// What a token is. Punctuation that the classifier never looks at is [`TokenKind::Operator`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum TokenKind {
    /// Unquoted identifier or keyword.
    Word,
    /// `"…"`; MySQL's `` `…` ``.
    Quoted,
    /// `U&"…"`: its text isn't decoded.
    UnicodeQuoted,
    /// `'…'`, with its continuations on later lines.
    Text,
    /// `E'…'`, `U&'…'`: its text isn't decoded.
    EscapedText,
    /// `$tag$…$tag$`.
    Dollar,
    /// `B'…'` or `X'…'`.
    Bits,
    Number,
    /// `$1`; MySQL's `?`.
    Parameter,
    /// MySQL only: `@name`, `@'name'`, or the sign alone.
    Variable,
    /// MySQL only: `@@`, in front of a setting's name.
    Setting,
    Operator,
    /// `::`.
    Cast,
    Colon,
    Dot,
    Comma,
    Semicolon,
    Open,
    Close,
    OpenSquare,
    CloseSquare,
    /// A byte that no token begins with.
    Stray,
}

impl TokenKind {
    /// Whether the token stands for a value and nothing else.
    pub(super) const fn is_literal(self) -> bool {
        match self {
            Self::Text
            | Self::EscapedText
            | Self::Dollar
            | Self::Bits
            | Self::Number
            | Self::Parameter => true,
            Self::Word
            | Self::Quoted
            | Self::UnicodeQuoted
            | Self::Variable
            | Self::Setting
            | Self::Operator
            | Self::Cast
            | Self::Colon
            | Self::Dot
            | Self::Comma
            | Self::Semicolon
            | Self::Open
            | Self::Close
            | Self::OpenSquare
            | Self::CloseSquare
            | Self::Stray => false,
        }
    }
}

/// A token: its kind and where it stands, in bytes from the start of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) start: u32,
    pub(super) end: u32,
}

impl Token {
    /// The bytes of this token, quotes included. `text` is the text it was read from.
    pub(super) fn bytes<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        text.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// The text has no valid reading: something is left open, or malformed in a way the engine refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unlexable;

/// Gives a text's tokens in their order, by the rules of one family of engines.
pub(super) trait Scan {
    /// The next token, or `None` at the end of the text.
    fn next_token(&mut self) -> Result<Option<Token>, Unlexable>;
}

impl Scan for Lexer<'_> {
    fn next_token(&mut self) -> Result<Option<Token>, Unlexable> {
        Lexer::next_token(self)
    }
}

/// Reads tokens off a text, one after the other.
#[derive(Debug, Clone)]
pub(super) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    lexing: PgLexing,
}

const fn begins_name(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

/// Which bytes a name may hold behind its first one.
pub(super) const NAME_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    loop {
        table[byte as usize] = begins_name(byte) || byte.is_ascii_digit() || byte == b'$';
        if byte == u8::MAX {
            break table;
        }
        byte += 1;
    }
};

const fn continues_name(byte: u8) -> bool {
    NAME_BYTES[byte as usize]
}

/// Blanks of any version: 16 added the vertical tab, which 15 answers with a syntax error.
const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

const fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

const fn is_operator(byte: u8) -> bool {
    matches!(
        byte,
        b'~' | b'!'
            | b'@'
            | b'#'
            | b'^'
            | b'&'
            | b'|'
            | b'`'
            | b'?'
            | b'+'
            | b'-'
            | b'*'
            | b'/'
            | b'%'
            | b'<'
            | b'>'
            | b'='
    )
}

impl<'a> Lexer<'a> {
    pub(super) const fn new(text: &'a [u8], lexing: PgLexing) -> Self {
        Self { text, at: 0, lexing }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn skip_while(&mut self, wanted: impl Fn(u8) -> bool) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        self.at += rest.iter().position(|byte| !wanted(*byte)).unwrap_or(rest.len());
    }

    /// The next token, or `None` at the end of the text.
    pub(super) fn next_token(&mut self) -> Result<Option<Token>, Unlexable> {
        self.skip_space()?;
        let start = self.at;
        let Some(first) = self.peek(0) else { return Ok(None) };
        let kind = self.read(first)?;
        let place = |at: usize| u32::try_from(at).map_err(|_| Unlexable);
        Ok(Some(Token { kind, start: place(start)?, end: place(self.at)? }))
    }

    /// Skips blanks and comments.
    fn skip_space(&mut self) -> Result<(), Unlexable> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(blank), _) if is_blank(blank) => self.at += 1,
                (Some(b'-'), Some(b'-')) => self.skip_while(|byte| !is_line_end(byte)),
                (Some(b'/'), Some(b'*')) => self.skip_block_comment()?,
                _ => return Ok(()),
            }
        }
    }

    /// Block comments nest.
    fn skip_block_comment(&mut self) -> Result<(), Unlexable> {
        let mut depth = 0_usize;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b'/'), Some(b'*')) => {
                    depth += 1;
                    self.at += 2;
                }
                (Some(b'*'), Some(b'/')) => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                (Some(_), _) => self.at += 1,
                (None, _) => return Err(Unlexable),
            }
        }
    }

    fn read(&mut self, first: u8) -> Result<TokenKind, Unlexable> {
        match first {
            b'\'' => {
                let escapes = !self.lexing.standard_conforming_strings;
                self.read_text(1, escapes, TokenKind::Text)
            }
            b'"' => self.read_quoted(1, TokenKind::Quoted),
            b'$' => self.read_dollar(),
            b'0'..=b'9' => self.read_number(),
            b'.' if self.peek(1).is_some_and(|byte| byte.is_ascii_digit()) => self.read_number(),
            b':' if self.peek(1) == Some(b':') => Ok(self.take(2, TokenKind::Cast)),
            b':' => Ok(self.take(1, TokenKind::Colon)),
            b'.' => Ok(self.take(1, TokenKind::Dot)),
            b',' => Ok(self.take(1, TokenKind::Comma)),
            b';' => Ok(self.take(1, TokenKind::Semicolon)),
            b'(' => Ok(self.take(1, TokenKind::Open)),
            b')' => Ok(self.take(1, TokenKind::Close)),
            b'[' => Ok(self.take(1, TokenKind::OpenSquare)),
            b']' => Ok(self.take(1, TokenKind::CloseSquare)),
            // The wire ends a text at a NUL; one inside means this isn't what the engine sees.
            0 => Err(Unlexable),
            name if begins_name(name) => self.read_name(name),
            operator if is_operator(operator) => Ok(self.read_operator()),
            _ => Ok(self.take(1, TokenKind::Stray)),
        }
    }

    fn take(&mut self, bytes: usize, kind: TokenKind) -> TokenKind {
        self.at += bytes;
        kind
    }

    /// A name, or one of the strings that begin with a letter. The prefix counts only at the very
    /// start of a name, which is where this is called.
    fn read_name(&mut self, first: u8) -> Result<TokenKind, Unlexable> {
        match (first.to_ascii_lowercase(), self.peek(1), self.peek(2)) {
            (b'e', Some(b'\''), _) => self.read_text(2, true, TokenKind::EscapedText),
            (b'b' | b'x', Some(b'\''), _) => self.read_bits(),
            (b'u', Some(b'&'), Some(b'"')) => self.read_quoted(3, TokenKind::UnicodeQuoted),
            (b'u', Some(b'&'), Some(b'\'')) => {
                if !self.lexing.standard_conforming_strings {
                    return Err(Unlexable); // the engine refuses these, too
                }
                self.read_text(3, false, TokenKind::EscapedText)
            }
            _ => {
                self.skip_while(continues_name);
                Ok(TokenKind::Word)
            }
        }
    }

    /// A string in single quotes, its opening `prefix` bytes long. Parts separated by white space
    /// with a line end in it are one string, read by the rules of its first part.
    fn read_text(
        &mut self,
        prefix: usize,
        escapes: bool,
        kind: TokenKind,
    ) -> Result<TokenKind, Unlexable> {
        self.at += prefix;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b'\''), Some(b'\'')) => self.at += 2,
                (Some(b'\''), _) => {
                    self.at += 1;
                    if !self.continue_text() {
                        return Ok(kind);
                    }
                }
                (Some(b'\\'), Some(_)) if escapes => self.at += 2,
                (Some(_), _) => self.at += 1,
                (None, _) => return Err(Unlexable),
            }
        }
    }

    /// Bit strings have no doubled quotes and no escapes, but continuations.
    fn read_bits(&mut self) -> Result<TokenKind, Unlexable> {
        self.at += 2;
        loop {
            match self.peek(0) {
                Some(b'\'') => {
                    self.at += 1;
                    if !self.continue_text() {
                        return Ok(TokenKind::Bits);
                    }
                }
                Some(_) => self.at += 1,
                None => return Err(Unlexable),
            }
        }
    }

    /// Behind a closing quote: steps over the next opening one if the string goes on there.
    /// Only blanks and line comments may stand between, with at least one line end.
    fn continue_text(&mut self) -> bool {
        let mut at = self.at;
        let mut line_ended = false;
        loop {
            match (self.text.get(at).copied(), self.text.get(at + 1).copied()) {
                (Some(byte), _) if is_line_end(byte) => {
                    line_ended = true;
                    at += 1;
                }
                (Some(byte), _) if is_blank(byte) => at += 1,
                (Some(b'-'), Some(b'-')) => {
                    while self.text.get(at).is_some_and(|&byte| !is_line_end(byte)) {
                        at += 1;
                    }
                }
                (Some(b'\''), _) if line_ended => {
                    self.at = at + 1;
                    return true;
                }
                _ => return false,
            }
        }
    }

    fn read_quoted(&mut self, prefix: usize, kind: TokenKind) -> Result<TokenKind, Unlexable> {
        self.at += prefix;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b'"'), Some(b'"')) => self.at += 2,
                (Some(b'"'), _) => return Ok(self.take(1, kind)),
                (Some(_), _) => self.at += 1,
                (None, _) => return Err(Unlexable),
            }
        }
    }

    /// `$1`, `$tag$…$tag$`, or a lone dollar.
    fn read_dollar(&mut self) -> Result<TokenKind, Unlexable> {
        if self.peek(1).is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
            self.skip_while(|byte| byte.is_ascii_digit());
            self.refuse_junk()?;
            return Ok(TokenKind::Parameter);
        }
        let mut tag_end = self.at + 1;
        if self.peek(1).is_some_and(begins_name) {
            let inside = |byte: &u8| continues_name(*byte) && *byte != b'$';
            while self.text.get(tag_end).is_some_and(inside) {
                tag_end += 1;
            }
        }
        if self.text.get(tag_end) != Some(&b'$') {
            return Ok(self.take(1, TokenKind::Stray));
        }
        let tag = self.text.get(self.at..=tag_end).unwrap_or_default();
        self.at = tag_end + 1;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some(next) = rest.iter().position(|&byte| byte == b'$') else {
                return Err(Unlexable);
            };
            self.at += next;
            if rest.get(next..).is_some_and(|rest| rest.starts_with(tag)) {
                return Ok(self.take(tag.len(), TokenKind::Dollar));
            }
            self.at += 1;
        }
    }

    /// Decimal, fractional and exponent forms, and the prefixed and underscored integers of 16.
    fn read_number(&mut self) -> Result<TokenKind, Unlexable> {
        let digits = |byte: u8| byte.is_ascii_digit() || byte == b'_';
        if self.peek(0) == Some(b'0')
            && matches!(self.peek(1), Some(b'x' | b'X' | b'o' | b'O' | b'b' | b'B'))
        {
            self.at += 2;
            self.skip_while(|byte| byte.is_ascii_hexdigit() || byte == b'_');
        } else {
            self.skip_while(digits);
            if self.peek(0) == Some(b'.') && self.peek(1) != Some(b'.') {
                self.at += 1;
                self.skip_while(digits);
            }
            if matches!(self.peek(0), Some(b'e' | b'E')) {
                let signed = usize::from(matches!(self.peek(1), Some(b'+' | b'-')));
                if !self.peek(1 + signed).is_some_and(|byte| byte.is_ascii_digit()) {
                    return Err(Unlexable);
                }
                self.at += 1 + signed;
                self.skip_while(digits);
            }
        }
        self.refuse_junk()?;
        Ok(TokenKind::Number)
    }

    /// From 15 on a number or parameter with a letter right behind it is an error.
    fn refuse_junk(&self) -> Result<(), Unlexable> {
        if self.peek(0).is_some_and(begins_name) { Err(Unlexable) } else { Ok(()) }
    }

    /// A run of operator characters, ended by a comment that begins inside it.
    fn read_operator(&mut self) -> TokenKind {
        self.at += 1;
        while let Some(byte) = self.peek(0) {
            let comment = matches!((byte, self.peek(1)), (b'-', Some(b'-')) | (b'/', Some(b'*')));
            if comment || !is_operator(byte) {
                break;
            }
            self.at += 1;
        }
        TokenKind::Operator
    }
}

#[cfg(test)]
mod tests {
    use super::TokenKind::*;
    use super::*;

    fn read(text: &str, lexing: PgLexing) -> Result<Vec<(TokenKind, String)>, Unlexable> {
        let mut lexer = Lexer::new(text.as_bytes(), lexing);
        let mut tokens = Vec::new();
        while let Some(token) = lexer.next_token()? {
            let bytes = token.bytes(text.as_bytes()).to_vec();
            tokens.push((token.kind, String::from_utf8(bytes).unwrap()));
        }
        Ok(tokens)
    }

    fn kinds(text: &str) -> Vec<TokenKind> {
        read(text, PgLexing::STANDARD).unwrap().into_iter().map(|(kind, _)| kind).collect()
    }

    fn off() -> PgLexing {
        PgLexing { standard_conforming_strings: false, ..PgLexing::STANDARD }
    }

    #[test]
    fn plain_tokens() {
        use TokenKind::Text;
        assert_eq!(
            kinds("select a.b::int, $1, 'x' || \"Y\" from t;"),
            [
                Word, Word, Dot, Word, Cast, Word, Comma, Parameter, Comma, Text, Operator, Quoted,
                Word, Word, Semicolon
            ]
        );
        assert_eq!(kinds("a[1:2]"), [Word, OpenSquare, Number, Colon, Number, CloseSquare]);
    }

    #[test]
    fn comments_nest_and_begin_inside_operators() {
        assert_eq!(kinds("1 /* a /* b */ ; */ 2 -- ; x\n3"), [Number, Number, Number]);
        assert_eq!(kinds("1 @-- x\n 2"), [Number, Operator, Number]);
        assert_eq!(kinds("1 */* c */ 2"), [Number, Operator, Number]);
        assert_eq!(kinds("1 /*/ 2 */ 3"), [Number, Number]);
        assert_eq!(kinds("1 --x\r2"), [Number, Number]);
        assert_eq!(read("1 /* /* */", PgLexing::STANDARD), Err(Unlexable));
    }

    #[test]
    fn backslashes_count_only_where_the_engine_counts_them() {
        use TokenKind::Text;
        assert_eq!(kinds(r"'a\' , 'b'"), [Text, Comma, Text]);
        assert_eq!(kinds(r"E'a\' , \'b'"), [EscapedText]);
        assert_eq!(kinds(r"e'a''b\\'"), [EscapedText]);
        assert_eq!(read(r"'a\' , \'b'", off()).unwrap().len(), 1);
        assert_eq!(kinds(r"U&'\0041\' 'b'"), [EscapedText, Text]);
        assert_eq!(read(r"U&'x'", off()), Err(Unlexable));
        assert_eq!(kinds(r"N'a\'"), [Word, Text]);
        assert_eq!(kinds(r"typE'a\'"), [Word, Text]);
        assert_eq!(read("'open", PgLexing::STANDARD), Err(Unlexable));
    }

    #[test]
    fn a_string_goes_on_behind_a_line_end_by_its_first_rules() {
        use TokenKind::Text;
        assert_eq!(kinds("'a'\n 'b'"), [Text]);
        assert_eq!(kinds("'a' 'b'"), [Text, Text]);
        assert_eq!(kinds("E'a' -- note\n  'b\\' ; c'"), [EscapedText]);
        assert_eq!(kinds("'a' /* c */\n 'b'"), [Text, Text]);
        assert_eq!(kinds("B'1'\n'0'"), [Bits]);
        assert_eq!(kinds("B'1''0'"), [Bits, Text]);
    }

    #[test]
    fn dollar_quotes() {
        assert_eq!(kinds("$$ ; ' $a$ $$ 1"), [Dollar, Number]);
        assert_eq!(kinds("$a$ $$ $b$ $a$"), [Dollar]);
        assert_eq!(kinds("$é1$ ; $é1$"), [Dollar]);
        assert_eq!(kinds("a$b$ c"), [Word, Word]);
        assert_eq!(kinds("$1$$x$$"), [Parameter, Dollar]);
        assert_eq!(kinds("$ 1"), [Stray, Number]);
        assert_eq!(read("$a$ x $b$", PgLexing::STANDARD), Err(Unlexable));
    }

    #[test]
    fn names_in_quotes() {
        assert_eq!(
            kinds(r#""a""b" U&"d\0061t" u & "x""#),
            [Quoted, UnicodeQuoted, Word, Operator, Quoted]
        );
        assert_eq!(read("\"open", PgLexing::STANDARD), Err(Unlexable));
    }

    #[test]
    fn numbers_and_their_junk() {
        for good in ["1", "1.5", ".5", "1.", "1e5", "1.5E-3", "0x1F", "0b01", "0o7", "1_000"] {
            assert_eq!(kinds(good), [Number], "{good}");
        }
        for bad in ["1a", "1and", "1e", "1e+", "$1a", "0xg", "1.5é"] {
            assert_eq!(read(bad, PgLexing::STANDARD), Err(Unlexable), "{bad}");
        }
        assert_eq!(kinds("1..2"), [Number, Dot, Number]);
        assert_eq!(read("a\0b", PgLexing::STANDARD), Err(Unlexable));
    }
}
