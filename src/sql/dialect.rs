//! How one session's engine reads text: the rules that move the ends of strings and comments.
//!
//! Purpose: the relay keeps the rules of its session, made from what the engine reports, and hands
//! them in with every text. Each family has rules of its own: [`PgLexing`] here, [`MyLexing`] in
//! `mysql/dialect.rs`; [`Lexing`] is either.
//!
//! Called by the lexer and the relay. It doesn't follow `SET` statements: the relay takes the
//! values from the engine's reports.

use super::mysql::MyLexing;

/// Whether every byte below 0x80 in a text of this encoding stands for its ASCII character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Yes: UTF-8, the single-byte sets and the EUC family.
    AsciiSafe,
    /// No: the second byte of a character may look like a quote or a backslash (SJIS, BIG5, GBK,
    /// UHC, GB18030, JOHAB, SHIFT_JIS_2004), or the name isn't known.
    Unsafe,
}

/// Names of client encodings that are [`Encoding::AsciiSafe`], lower case, letters and digits only
/// (the engine ignores everything else in such a name), sorted.
const ASCII_SAFE: &[&str] = &[
    "abc",
    "alt",
    "euccn",
    "eucjis2004",
    "eucjp",
    "euckr",
    "euctw",
    "iso88591",
    "iso885910",
    "iso885913",
    "iso885914",
    "iso885915",
    "iso885916",
    "iso88592",
    "iso88593",
    "iso88594",
    "iso88595",
    "iso88596",
    "iso88597",
    "iso88598",
    "iso88599",
    "koi8",
    "koi8r",
    "koi8u",
    "latin1",
    "latin10",
    "latin2",
    "latin3",
    "latin4",
    "latin5",
    "latin6",
    "latin7",
    "latin8",
    "latin9",
    "muleinternal",
    "sqlascii",
    "tcvn",
    "tcvn5712",
    "unicode",
    "utf8",
    "vscii",
    "win",
    "win1250",
    "win1251",
    "win1252",
    "win1253",
    "win1254",
    "win1255",
    "win1256",
    "win1257",
    "win1258",
    "win866",
    "win874",
    "windows1250",
    "windows1251",
    "windows1252",
    "windows1253",
    "windows1254",
    "windows1255",
    "windows1256",
    "windows1257",
    "windows1258",
    "windows866",
    "windows874",
];

/// The lexing rules of one session, of whichever family its engine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lexing {
    /// PostgreSQL.
    Postgres(PgLexing),
    /// MySQL or MariaDB.
    MySql(MyLexing),
}

impl Lexing {
    /// What a PostgreSQL session has that changed nothing.
    pub const STANDARD: Self = Self::Postgres(PgLexing::STANDARD);
}

impl From<PgLexing> for Lexing {
    fn from(rules: PgLexing) -> Self {
        Self::Postgres(rules)
    }
}

impl From<MyLexing> for Lexing {
    fn from(rules: MyLexing) -> Self {
        Self::MySql(rules)
    }
}

/// The lexing rules of one PostgreSQL session at the moment a text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PgLexing {
    /// `standard_conforming_strings`: a backslash in `'…'` is an ordinary character.
    pub standard_conforming_strings: bool,
    /// What `client_encoding` means for single bytes.
    pub encoding: Encoding,
}

impl PgLexing {
    /// What a session has that changed nothing: conforming strings, an ASCII-safe encoding.
    pub const STANDARD: Self =
        Self { standard_conforming_strings: true, encoding: Encoding::AsciiSafe };

    /// Reads the two values as the engine reports them (`ParameterStatus`).
    ///
    /// Anything but `on` counts as off for the first; an encoding name that isn't known to be safe
    /// is [`Encoding::Unsafe`].
    #[must_use]
    pub fn from_parameters(standard_conforming_strings: &str, client_encoding: &str) -> Self {
        let is_safe = |name: &str| {
            let name: String = name
                .chars()
                .filter(char::is_ascii_alphanumeric)
                .map(|c| c.to_ascii_lowercase())
                .collect();
            ASCII_SAFE.binary_search(&name.as_str()).is_ok()
        };
        // What nearly every session has, and nothing to look up.
        let safe = client_encoding == "UTF8" || is_safe(client_encoding);
        Self {
            standard_conforming_strings: standard_conforming_strings == "on",
            encoding: if safe { Encoding::AsciiSafe } else { Encoding::Unsafe },
        }
    }

    /// Whether this text can't be read byte by byte under these rules.
    pub(super) fn hides(self, text: &[u8]) -> bool {
        self.encoding == Encoding::Unsafe && !text.is_ascii()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_encodings_are_read_as_the_engine_reads_them() {
        assert!(ASCII_SAFE.is_sorted() && ASCII_SAFE.contains(&"utf8"));
        for safe in ["UTF8", "utf-8", "LATIN1", "SQL_ASCII", "EUC_JIS_2004", "WIN1252", "KOI8R"] {
            let lexing = PgLexing::from_parameters("on", safe);
            assert_eq!(lexing, PgLexing::STANDARD, "{safe}");
        }
        let trailing = ["SJIS", "BIG5", "GBK", "UHC", "GB18030", "JOHAB", "SHIFT_JIS_2004", "new"];
        for name in trailing {
            assert_eq!(PgLexing::from_parameters("on", name).encoding, Encoding::Unsafe, "{name}");
        }
        assert!(!PgLexing::from_parameters("off", "UTF8").standard_conforming_strings);
    }

    #[test]
    fn an_unsafe_encoding_hides_only_texts_beyond_ascii() {
        let lexing = PgLexing::from_parameters("on", "SJIS");
        assert!(lexing.hides(b"select '\x95\\'") && !lexing.hides(b"select 1"));
        assert!(!PgLexing::STANDARD.hides("select 'ä'".as_bytes()));
    }
}
