//! How one MySQL or MariaDB session reads text, and how a statement changes that.
//!
//! Purpose: the relay keeps a [`MyLexing`] per session and hands it in with every text. What it
//! can't know is [`Toggle::Unknown`]: the classifier then reads the text both ways and takes the
//! stricter answer, so a session whose modes are in doubt is slower and stricter, never less safe.
//!
//! Invariant: a value that isn't positively known to be harmless is treated as harmful.
//!
//! Called by the relay, the lexer and the cache key. It reads no statement itself.

/// Something of a session that is on, off, or not known to be either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Toggle {
    /// Known to be off.
    Off,
    /// Known to be on.
    On,
    /// May be either.
    Unknown,
}

impl Toggle {
    /// What is known when it may be either of two.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Off, Self::Off) => Self::Off,
            (Self::On, Self::On) => Self::On,
            (Self::Off | Self::On | Self::Unknown, _) => Self::Unknown,
        }
    }
}

impl From<bool> for Toggle {
    fn from(on: bool) -> Self {
        if on { Self::On } else { Self::Off }
    }
}

/// What the client character set means for single bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MyEncoding {
    /// `utf8mb4`, `utf8mb3`, `utf8`: bytes above 0x7f are parts of names or of strings.
    Utf8,
    /// Every byte below 0x80 is its ASCII character. Bytes above may be blanks (0xa0 is one in
    /// `latin1`), so outside quotes and comments they make a text unprovable.
    AsciiSafe,
    /// The second byte of a character may look like a quote or a backslash (gbk, sjis, big5, cp932,
    /// gb18030), or the set isn't known: only texts in ASCII can be read.
    Unsafe,
    /// Not even ASCII is itself (swe7): no text can be read.
    Alien,
}

/// Character sets that are [`MyEncoding::AsciiSafe`], sorted.
const ASCII_SAFE: &[&str] = &[
    "armscii8", "ascii", "binary", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852",
    "cp866", "dec8", "eucjpms", "euckr", "gb2312", "geostd8", "greek", "hebrew", "hp8", "keybcs2",
    "koi8r", "koi8u", "latin1", "latin2", "latin5", "latin7", "macce", "macroman", "tis620",
    "ujis",
];

impl MyEncoding {
    /// Reads the name of a character set as the engine writes it (`utf8mb4`), in any case.
    #[must_use]
    pub fn from_charset(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            "utf8" | "utf8mb3" | "utf8mb4" => Self::Utf8,
            "swe7" => Self::Alien,
            known if ASCII_SAFE.binary_search(&known).is_ok() => Self::AsciiSafe,
            _ => Self::Unsafe,
        }
    }

    /// Reads the collation number of a handshake or of `COM_CHANGE_USER`.
    ///
    /// Numbers that aren't known are [`MyEncoding::Unsafe`]. So are those from 255 on for MariaDB,
    /// which falls back to its own default when it doesn't know one.
    #[must_use]
    pub const fn from_collation(number: u16, flavour: MyFlavour) -> Self {
        match (number, flavour) {
            (33 | 45 | 46 | 76 | 83 | 192..=215 | 223..=247, _) => Self::Utf8,
            (255..=323, MyFlavour::MySql) => Self::Utf8,
            (2 | 5 | 8 | 9 | 11 | 15 | 21 | 27 | 31 | 47..=49 | 63 | 65 | 77 | 94, _) => {
                Self::AsciiSafe
            }
            (10 | 82, _) => Self::Alien,
            (_, MyFlavour::MySql | MyFlavour::MariaDb) => Self::Unsafe,
        }
    }

    /// A name in these bytes as the engine keeps it; `None` where that may be another one. Engines
    /// keep names in UTF-8 of at most three bytes a character, and turn the client's into it: in
    /// another set the same bytes are another name, and a longer character becomes `?`.
    #[must_use]
    pub fn reads_name(self, bytes: &[u8]) -> Option<&str> {
        let name = std::str::from_utf8(bytes).ok()?;
        let kept = self == Self::Utf8 && name.chars().all(|one| u32::from(one) <= 0xFFFF);
        ((kept || name.is_ascii()) && !name.contains('\0')).then_some(name)
    }

    /// What is known when it may be either of two.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Utf8, Self::Utf8) => Self::Utf8,
            (Self::AsciiSafe, Self::AsciiSafe) => Self::AsciiSafe,
            (Self::Alien, _) | (_, Self::Alien) => Self::Alien,
            // A text in ASCII reads the same under both of these; others don't.
            (Self::Utf8 | Self::AsciiSafe | Self::Unsafe, _) => Self::Unsafe,
        }
    }
}

/// Which of the two families the engine is: they differ in executable comments and functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MyFlavour {
    /// Oracle MySQL and Percona Server.
    MySql,
    /// MariaDB.
    MariaDb,
}

/// The engine's flavour and version, as its greeting tells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MyServer {
    /// MySQL or MariaDB.
    pub flavour: MyFlavour,
    /// `major * 10000 + minor * 100 + patch`: 101119 is 10.11.19.
    pub version: u32,
}

impl MyServer {
    /// Reads the version text of a greeting: `9.7.4-2`, `5.5.5-10.11.19-MariaDB-log`.
    ///
    /// Parts that aren't numbers count as zero, which believes in fewer built-in functions.
    #[must_use]
    pub fn from_greeting(text: &str) -> Self {
        let maria = text.to_ascii_lowercase().contains("mariadb");
        let flavour = if maria { MyFlavour::MariaDb } else { MyFlavour::MySql };
        let text = if maria { text.strip_prefix("5.5.5-").unwrap_or(text) } else { text };
        let mut version = 0_u32;
        for (part, most) in text.split(['.', '-']).take(3).zip([99, 99, 99]) {
            version = version * 100 + part.parse::<u32>().unwrap_or(0).min(most);
        }
        Self { flavour, version }
    }
}

/// The lexing rules of one MySQL or MariaDB session at the moment a text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MyLexing {
    /// The engine that runs the text.
    pub server: MyServer,
    /// `ANSI_QUOTES` in `sql_mode`: `"…"` is a name, not a string. No status bit tells it.
    pub ansi_quotes: Toggle,
    /// `NO_BACKSLASH_ESCAPES` in `sql_mode`; also bit 0x200 of the server status.
    pub no_backslash_escapes: Toggle,
    /// `character_set_client`.
    pub encoding: MyEncoding,
}

impl MyLexing {
    /// What a session has that changed nothing: no special modes, `utf8mb4`.
    #[must_use]
    pub const fn standard(server: MyServer) -> Self {
        Self {
            server,
            ansi_quotes: Toggle::Off,
            no_backslash_escapes: Toggle::Off,
            encoding: MyEncoding::Utf8,
        }
    }

    /// The same session when nothing is known any more of its modes and character set. Where no
    /// text could be read none can be now.
    #[must_use]
    pub const fn uncertain(self) -> Self {
        Self {
            server: self.server,
            ansi_quotes: Toggle::Unknown,
            no_backslash_escapes: Toggle::Unknown,
            encoding: self.encoding.or(MyEncoding::Unsafe),
        }
    }

    /// The rules behind a program with this change, if it ran without an error.
    #[must_use]
    pub fn after(self, change: &SessionChange) -> Self {
        let mode = change.sql_mode.unwrap_or(SqlMode {
            ansi_quotes: self.ansi_quotes,
            no_backslash_escapes: self.no_backslash_escapes,
        });
        Self {
            server: self.server,
            ansi_quotes: mode.ansi_quotes,
            no_backslash_escapes: mode.no_backslash_escapes,
            encoding: change.encoding.unwrap_or(self.encoding),
        }
    }

    /// What is known when it may be these rules or those: the program failed half way.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self {
            server: self.server,
            ansi_quotes: self.ansi_quotes.or(other.ansi_quotes),
            no_backslash_escapes: self.no_backslash_escapes.or(other.no_backslash_escapes),
            encoding: self.encoding.or(other.encoding),
        }
    }

    /// Whether a text that was read by these rules reads the same by those of `now`: each way in
    /// which it may be read now is one in which it was.
    #[must_use]
    pub fn covers(self, now: Self) -> bool {
        let toggle = |then: Toggle, now: Toggle| then == Toggle::Unknown || then == now;
        // What can't be read byte by byte is proved of nothing but ASCII.
        let encoding = match (self.encoding, now.encoding) {
            (MyEncoding::Alien, _) => true,
            (MyEncoding::Unsafe, now) => now != MyEncoding::Alien,
            (MyEncoding::Utf8 | MyEncoding::AsciiSafe, now) => now == self.encoding,
        };
        encoding
            && toggle(self.ansi_quotes, now.ansi_quotes)
            && toggle(self.no_backslash_escapes, now.no_backslash_escapes)
    }

    /// Whether this text reads the same by all rules but those of a set in which not even ASCII is
    /// itself.
    #[must_use]
    pub fn reads_alike(text: &[u8]) -> bool {
        text.is_ascii() && !text.iter().any(|byte| matches!(byte, b'"' | b'\\'))
    }

    /// Whether this text can't be read byte by byte under these rules.
    pub(in crate::sql) fn hides(self, text: &[u8]) -> bool {
        match self.encoding {
            MyEncoding::Utf8 | MyEncoding::AsciiSafe => false,
            MyEncoding::Unsafe => !text.is_ascii(),
            MyEncoding::Alien => true,
        }
    }
}

/// The two parts of `sql_mode` that move the ends of strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlMode {
    /// See [`MyLexing::ansi_quotes`].
    pub ansi_quotes: Toggle,
    /// See [`MyLexing::no_backslash_escapes`].
    pub no_backslash_escapes: Toggle,
}

/// Modes that stand for several, `ANSI_QUOTES` among them.
const ANSI_MODES: &[&str] =
    &["ansi", "ansi_quotes", "db2", "maxdb", "mssql", "oracle", "postgresql"];

impl SqlMode {
    /// Nothing known.
    pub const UNKNOWN: Self =
        Self { ansi_quotes: Toggle::Unknown, no_backslash_escapes: Toggle::Unknown };

    /// Reads a value as the engine reports it, or as a statement writes it: names and commas.
    ///
    /// Anything else, a number included, is [`SqlMode::UNKNOWN`].
    #[must_use]
    pub fn from_value(value: &str) -> Self {
        let readable = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b',' | b'2');
        if !value.bytes().all(readable) {
            return Self::UNKNOWN;
        }
        let lower = value.to_ascii_lowercase();
        let has = |names: &[&str]| lower.split(',').any(|name| names.contains(&name));
        Self {
            ansi_quotes: has(ANSI_MODES).into(),
            no_backslash_escapes: has(&["no_backslash_escapes"]).into(),
        }
    }
}

/// What a program sets in its session, as far as its text tells. `None`: it doesn't touch that.
///
/// It holds if the program runs without an error; on an error each of these may or may not have
/// happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionChange {
    /// `SET sql_mode`.
    pub sql_mode: Option<SqlMode>,
    /// `SET NAMES`, `SET CHARACTER SET`, `SET character_set_client`.
    pub encoding: Option<MyEncoding>,
    /// `SET autocommit`.
    pub autocommit: Option<Toggle>,
    /// `SET SESSION TRANSACTION READ ONLY|WRITE` and the variables behind it: what the session's
    /// transactions are from then on. `SET TRANSACTION …` without a scope isn't told here.
    pub read_only: Option<Toggle>,
}

impl SessionChange {
    /// Everything may be anything now.
    pub const UNKNOWN: Self = Self {
        sql_mode: Some(SqlMode::UNKNOWN),
        encoding: Some(MyEncoding::Unsafe),
        autocommit: Some(Toggle::Unknown),
        read_only: Some(Toggle::Unknown),
    };

    /// What may be set when it may be either of two: what one of them doesn't touch stays as it
    /// was, which isn't known here.
    pub(in crate::sql) fn or(self, other: Self) -> Self {
        fn either<T: PartialEq>(one: Option<T>, two: Option<T>, unknown: T) -> Option<T> {
            if one == two { one } else { Some(unknown) }
        }
        Self {
            sql_mode: either(self.sql_mode, other.sql_mode, SqlMode::UNKNOWN),
            encoding: either(self.encoding, other.encoding, MyEncoding::Unsafe),
            autocommit: either(self.autocommit, other.autocommit, Toggle::Unknown),
            read_only: either(self.read_only, other.read_only, Toggle::Unknown),
        }
    }

    /// Both, one after the other.
    #[must_use]
    pub fn then(self, later: Self) -> Self {
        Self {
            sql_mode: later.sql_mode.or(self.sql_mode),
            encoding: later.encoding.or(self.encoding),
            autocommit: later.autocommit.or(self.autocommit),
            read_only: later.read_only.or(self.read_only),
        }
    }
}
