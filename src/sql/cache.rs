//! The key of a text, and the fixed table that remembers classes by key.
//!
//! Purpose: most programs differ from an earlier one only in literals, blanks and comments. Their
//! key is a keyed 128-bit hash of the token stream with literals collapsed, so a hit costs one
//! pass over the text and no allocation.
//!
//! Invariants: two texts with one key have one class, because the classifier looks at nothing the
//! key leaves out. Where it does look at literals (anything but the plain statements below, and
//! any text with `set_config` in it), literals stay in the key. The hash is keyed with random
//! numbers of this process, so a client can't build two texts with one key. The table never grows.
//!
//! Called by the classifier alone.

use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};

use super::dialect::PgLexing;
use super::lexer::{Lexer, Scan, Token, TokenKind, Unlexable};
use super::mysql::MyLexer;
use super::recall::Holes;
use super::statement::Classified;

/// First words of statements whose class never depends on a literal.
const LITERAL_BLIND: &[&[u8]] = &[
    b"abort",
    b"begin",
    b"close",
    b"commit",
    b"declare",
    b"delete",
    b"end",
    b"fetch",
    b"insert",
    b"lock",
    b"merge",
    b"move",
    b"release",
    b"rollback",
    b"savepoint",
    b"select",
    b"show",
    b"start",
    b"table",
    b"truncate",
    b"update",
    b"values",
    b"with",
];

/// First words of MySQL statements whose class never depends on a literal.
const MYSQL_BLIND: &[&[u8]] = &[
    b"begin",
    b"call",
    b"commit",
    b"delete",
    b"desc",
    b"describe",
    b"do",
    b"explain",
    b"handler",
    b"insert",
    b"replace",
    b"rollback",
    b"savepoint",
    b"select",
    b"show",
    b"start",
    b"table",
    b"update",
    b"use",
    b"values",
    b"with",
];

/// A byte that no name holds and no tag is: a parenthesis stands right behind a word.
const GLUED: u8 = 0x1f;

/// Identifies a text up to what its class depends on.
pub(super) type Key = u128;

/// The two keyed hash functions of one classifier.
#[derive(Debug)]
pub(super) struct KeyMaker {
    low: RandomState,
    high: RandomState,
}

impl KeyMaker {
    pub(super) fn new() -> Self {
        Self { low: RandomState::new(), high: RandomState::new() }
    }

    /// The key of a text, and where it has literals that the key leaves out (`holes`). `oversized`
    /// texts are judged by their verbs only, so they have keys of their own.
    pub(super) fn key(
        &self,
        text: &[u8],
        lexing: PgLexing,
        oversized: bool,
        holes: &mut Holes,
    ) -> Result<Key, Unlexable> {
        holes.clear();
        if let Some(key) = self.pass(text, lexing, (oversized, false), holes)? {
            holes.blind = true;
            return Ok(key);
        }
        holes.clear();
        self.pass(text, lexing, (oversized, true), holes)?.ok_or(Unlexable)
    }

    /// The key of a MySQL text, and whether it holds an executable comment. Everything the rules
    /// say is part of the key: literals, names and functions all depend on them.
    pub(super) fn mysql_key(
        &self,
        text: &[u8],
        lexer: &MyLexer<'_>,
        oversized: bool,
        holes: &mut Holes,
    ) -> Result<(Key, bool), Unlexable> {
        let rules = lexer.rules();
        let mut pass = |keep: bool| {
            holes.clear();
            let mut feed = Feed::new(self.low.build_hasher(), self.high.build_hasher());
            // PostgreSQL's keys begin with a zero or a one.
            feed.bytes(&[2 + u8::from(keep), u8::from(oversized)]);
            feed.bytes(&rules);
            let mut scan = lexer.clone();
            let key = mysql_pass(feed, (&mut scan, holes), text, keep)?;
            Ok(key.map(|key| (key, scan.saw_executable())))
        };
        match pass(false)? {
            Some(found) => {
                holes.blind = true;
                Ok(found)
            }
            None => pass(true)?.ok_or(Unlexable),
        }
    }

    /// One pass; `None` when literals turn out to matter and `keep` is off.
    fn pass(
        &self,
        text: &[u8],
        lexing: PgLexing,
        (oversized, keep): (bool, bool),
        holes: &mut Holes,
    ) -> Result<Option<Key>, Unlexable> {
        let mut feed = Feed::new(self.low.build_hasher(), self.high.build_hasher());
        // How a kept literal reads depends on the rules; a collapsed one has none.
        let rules = u8::from(keep && lexing.standard_conforming_strings);
        feed.bytes(&[u8::from(keep), rules, u8::from(oversized)]);
        let mut lexer = Lexer::new(text, lexing);
        let mut at_start = true;
        let mut after_literal = false;
        let mut comma_waits = false;
        while let Some(token) = lexer.next_token()? {
            if !keep && literals_matter(&token, text, at_start) {
                return Ok(None);
            }
            at_start =
                token.kind == TokenKind::Semicolon || (at_start && token.kind == TokenKind::Open);
            let collapses = !keep && token.kind.is_literal();
            if collapses {
                holes.note(&token, text);
            }
            // `1, 2, 3` counts as one literal: lists differ in length from call to call.
            if !keep && token.kind == TokenKind::Comma && after_literal && !comma_waits {
                comma_waits = true;
                continue;
            }
            if collapses && comma_waits {
                comma_waits = false;
                continue;
            }
            if comma_waits {
                feed.byte(tag(TokenKind::Comma));
                comma_waits = false;
            }
            feed.token(&token, text, collapses);
            after_literal = collapses;
        }
        Ok(Some(feed.finish()))
    }
}

/// One pass over a MySQL text; `None` when literals turn out to matter and `keep` is off.
///
/// Words keep their case, since names of schemas are told as written. Whether a parenthesis stands
/// right behind a word decides what is called, so it is in the key, too.
fn mysql_pass(
    mut feed: Feed,
    (scan, holes): (&mut MyLexer<'_>, &mut Holes),
    text: &[u8],
    keep: bool,
) -> Result<Option<Key>, Unlexable> {
    let mut at_start = true;
    let mut after_literal = false;
    let mut comma_waits = false;
    let mut word_end = u32::MAX;
    while let Some(token) = scan.next_token()? {
        if !keep && at_start && mysql_literals_matter(&token, text) {
            return Ok(None);
        }
        at_start =
            token.kind == TokenKind::Semicolon || (at_start && token.kind == TokenKind::Open);
        let collapses = !keep && token.kind.is_literal();
        if collapses {
            holes.note(&token, text);
        }
        // `1, 2, 3` counts as one literal: lists differ in length from call to call.
        if !keep && token.kind == TokenKind::Comma && after_literal && !comma_waits {
            comma_waits = true;
            continue;
        }
        if collapses && comma_waits {
            comma_waits = false;
            continue;
        }
        if comma_waits {
            feed.byte(tag(TokenKind::Comma));
            comma_waits = false;
        }
        if token.kind == TokenKind::Open && word_end == token.start {
            feed.byte(GLUED);
        }
        word_end = if token.kind == TokenKind::Word { token.end } else { u32::MAX };
        if token.kind == TokenKind::Word {
            feed.byte(tag(TokenKind::Word));
            feed.bytes(token.bytes(text));
        } else {
            feed.token(&token, text, collapses);
        }
        after_literal = collapses;
    }
    Ok(Some(feed.finish()))
}

/// Whether some literal of a MySQL statement that begins with this token may decide its class.
fn mysql_literals_matter(token: &Token, text: &[u8]) -> bool {
    let bytes = token.bytes(text);
    match token.kind {
        TokenKind::Word => !MYSQL_BLIND.iter().any(|word| bytes.eq_ignore_ascii_case(word)),
        TokenKind::Semicolon | TokenKind::Open => false,
        TokenKind::Quoted
        | TokenKind::UnicodeQuoted
        | TokenKind::Text
        | TokenKind::EscapedText
        | TokenKind::Dollar
        | TokenKind::Bits
        | TokenKind::Number
        | TokenKind::Parameter
        | TokenKind::Variable
        | TokenKind::Setting
        | TokenKind::Operator
        | TokenKind::Cast
        | TokenKind::Colon
        | TokenKind::Dot
        | TokenKind::Comma
        | TokenKind::Close
        | TokenKind::OpenSquare
        | TokenKind::CloseSquare
        | TokenKind::Stray => true,
    }
}

/// Whether this token tells that some literal of the text may decide about its class.
fn literals_matter(token: &Token, text: &[u8], at_start: bool) -> bool {
    let bytes = token.bytes(text);
    match token.kind {
        TokenKind::Word => {
            bytes.eq_ignore_ascii_case(b"set_config")
                || (at_start && !LITERAL_BLIND.iter().any(|word| bytes.eq_ignore_ascii_case(word)))
        }
        TokenKind::Quoted => bytes == b"\"set_config\"" || at_start,
        TokenKind::UnicodeQuoted => true,
        TokenKind::Semicolon | TokenKind::Open => false,
        TokenKind::Text
        | TokenKind::EscapedText
        | TokenKind::Dollar
        | TokenKind::Bits
        | TokenKind::Number
        | TokenKind::Parameter
        | TokenKind::Variable
        | TokenKind::Setting
        | TokenKind::Operator
        | TokenKind::Cast
        | TokenKind::Colon
        | TokenKind::Dot
        | TokenKind::Comma
        | TokenKind::Close
        | TokenKind::OpenSquare
        | TokenKind::CloseSquare
        | TokenKind::Stray => at_start,
    }
}

const fn tag(kind: TokenKind) -> u8 {
    kind as u8 + 1
}

/// Collects small pieces on the stack, so that the hash functions get few and larger ones.
struct Feed {
    low: DefaultHasher,
    high: DefaultHasher,
    buffer: [u8; 256],
    used: usize,
}

impl Feed {
    const fn new(low: DefaultHasher, high: DefaultHasher) -> Self {
        Self { low, high, buffer: [0; 256], used: 0 }
    }

    /// Every token is self-delimiting: a tag, and for those with text its length; a word ends at
    /// the next tag, because every byte of a name is above every tag.
    fn token(&mut self, token: &Token, text: &[u8], collapses: bool) {
        if collapses {
            // Parameters, numbers and strings look alike on purpose.
            self.byte(tag(TokenKind::Text));
            return;
        }
        let bytes = token.bytes(text);
        self.byte(tag(token.kind));
        match token.kind {
            TokenKind::Word => self.name(bytes),
            TokenKind::Quoted
            | TokenKind::UnicodeQuoted
            | TokenKind::Text
            | TokenKind::EscapedText
            | TokenKind::Dollar
            | TokenKind::Bits
            | TokenKind::Number
            | TokenKind::Parameter
            | TokenKind::Variable
            | TokenKind::Operator
            | TokenKind::Stray => {
                self.length(bytes.len());
                self.bytes(bytes);
            }
            TokenKind::Setting
            | TokenKind::Cast
            | TokenKind::Colon
            | TokenKind::Dot
            | TokenKind::Comma
            | TokenKind::Semicolon
            | TokenKind::Open
            | TokenKind::Close
            | TokenKind::OpenSquare
            | TokenKind::CloseSquare => {}
        }
    }

    /// A name, in lower case.
    fn name(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(64) {
            if self.buffer.len() - self.used < piece.len() {
                self.flush();
            }
            let room = self.buffer.get_mut(self.used..).unwrap_or_default();
            for (to, from) in room.iter_mut().zip(piece) {
                *to = from.to_ascii_lowercase();
            }
            self.used += piece.len();
        }
    }

    fn byte(&mut self, byte: u8) {
        if self.used == self.buffer.len() {
            self.flush();
        }
        if let Some(place) = self.buffer.get_mut(self.used) {
            *place = byte;
        }
        self.used += 1;
    }

    fn length(&mut self, bytes: usize) {
        // Tokens stand at 32-bit places: nothing is cut off here.
        self.bytes(&(bytes as u32).to_le_bytes());
    }

    fn bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.buffer.get_mut(self.used..).unwrap_or_default();
            let fits = room.len().min(bytes.len());
            if let (Some(to), Some(from)) = (room.get_mut(..fits), bytes.get(..fits)) {
                to.copy_from_slice(from);
            }
            self.used += fits;
            bytes = bytes.get(fits..).unwrap_or_default();
            if self.used == self.buffer.len() {
                self.flush();
            }
        }
    }

    fn flush(&mut self) {
        let filled = self.buffer.get(..self.used).unwrap_or_default();
        self.low.write(filled);
        self.high.write(filled);
        self.used = 0;
    }

    fn finish(mut self) -> Key {
        self.flush();
        (u128::from(self.high.finish()) << 64) | u128::from(self.low.finish())
    }
}

/// How well a cache did since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    /// Texts answered from the cache.
    pub hits: u64,
    /// Texts that had to be classified. Unreadable ones count in neither.
    pub misses: u64,
    /// Entries in use now.
    pub entries: usize,
}

#[derive(Debug)]
struct Slot {
    key: Key,
    used: u64,
    known: Classified,
}

/// Entries one key can be kept in; the one unused for longest is replaced.
const WAYS: usize = 4;

/// A table of a fixed number of entries. Looking up and replacing take constant time.
#[derive(Debug)]
pub(super) struct Cache {
    slots: Box<[Option<Slot>]>,
    clock: u64,
    stats: CacheStats,
}

impl Cache {
    /// A cache of at most `entries` entries (rounded down to whole groups of four); none at all
    /// below four.
    pub(super) fn new(entries: usize) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(entries / WAYS * WAYS, || None);
        Self { slots: slots.into_boxed_slice(), clock: 0, stats: CacheStats::default() }
    }

    pub(super) const fn stats(&self) -> CacheStats {
        self.stats
    }

    /// A text was recalled as it stands (`recall.rs`): a hit without a look.
    pub(super) const fn recalled(&mut self) {
        self.stats.hits += 1;
    }

    fn group(&mut self, key: Key) -> &mut [Option<Slot>] {
        let groups = self.slots.len() / WAYS;
        if groups == 0 {
            return &mut [];
        }
        // The low half is a hash by itself, and a division of 128 bits is slow.
        let place = (key as u64 % groups as u64) as usize * WAYS;
        self.slots.get_mut(place..place + WAYS).unwrap_or_default()
    }

    pub(super) fn find(&mut self, key: Key) -> Option<Classified> {
        self.clock += 1;
        let now = self.clock;
        let hit = self.group(key).iter_mut().flatten().find(|slot| slot.key == key);
        let known = hit.map(|slot| {
            slot.used = now;
            slot.known.clone()
        });
        if known.is_some() {
            self.stats.hits += 1;
        } else {
            self.stats.misses += 1;
        }
        known
    }

    /// Remembers a class. The key isn't in the table: it was looked up just before.
    pub(super) fn keep(&mut self, key: Key, known: Classified) {
        let used = self.clock;
        let oldest =
            self.group(key).iter_mut().min_by_key(|slot| slot.as_ref().map_or(0, |slot| slot.used));
        if let Some(place) = oldest {
            let fresh = place.is_none();
            *place = Some(Slot { key, used, known });
            self.stats.entries += usize::from(fresh);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(one: &str, other: &str) -> bool {
        let maker = KeyMaker::new();
        let key = |text: &str| {
            maker.key(text.as_bytes(), PgLexing::STANDARD, false, &mut Holes::default()).unwrap()
        };
        key(one) == key(other)
    }

    #[test]
    fn literals_blanks_comments_and_case_don_t_make_another_key() {
        assert!(LITERAL_BLIND.is_sorted());
        assert!(same("select * from t where a = 1", "SELECT  *\nFROM t /* x */ WHERE a=$1 -- y"));
        assert!(same("select 1 where a in (1, 2, 3)", "select 1 where a in ('x')"));
        assert!(same("insert into t values (E'\\'', $$;$$)", "insert into t values (1, 2)"));
        assert!(!same("select \"A\"", "select \"a\""));
        assert!(!same("select ab", "select a b"));
        assert!(!same("select a from t", "select a from u"));
        assert!(!same("select a, b", "select a b"));
        assert!(!same("select (1, a)", "select (1 a)"));
    }

    #[test]
    fn no_byte_of_a_name_looks_like_a_tag() {
        let last = tag(TokenKind::Stray);
        assert!(last < GLUED);
        assert!(super::super::lexer::NAME_BYTES.iter().position(|is| *is) > Some(last.into()));
        assert!(!same("select a, b", "select ab"));
        assert!(!same("select \"a\" b", "select \"a\"b c"));
    }

    #[test]
    fn literals_stay_where_they_decide() {
        for (one, other) in [
            ("select set_config('a', '1', false)", "select set_config('b', '1', false)"),
            ("select \"set_config\"('a', '1', false)", "select \"set_config\"('b', '1', false)"),
            ("explain (analyze 'on') select 1", "explain (analyze 'off') select 1"),
            (
                "select 1; create database a template 'x'",
                "select 1; create database a template 'y'",
            ),
        ] {
            assert!(!same(one, other), "{one}");
        }
    }

    #[test]
    fn keys_differ_between_processes_and_classifiers() {
        let key = || {
            let mut holes = Holes::default();
            KeyMaker::new().key(b"select 1", PgLexing::STANDARD, false, &mut holes).unwrap()
        };
        assert_ne!(key(), key());
    }

    #[test]
    fn the_table_never_grows_and_forgets_the_longest_unused() {
        let mut cache = Cache::new(4);
        for key in 0..4 {
            assert_eq!(cache.find(key), None);
            cache.keep(key, Classified::unreadable(false));
        }
        assert!(cache.find(0).is_some());
        for key in 10..12 {
            cache.find(key);
            cache.keep(key, Classified::unreadable(false));
        }
        assert!(cache.find(0).is_some(), "used last, kept");
        assert!(cache.find(1).is_none(), "unused for longest, gone");
        assert_eq!(cache.stats().entries, 4);
        assert_eq!(cache.slots.len(), 4);
        let mut none = Cache::new(3);
        none.keep(1, Classified::unreadable(false));
        assert_eq!((none.find(1), none.stats().entries), (None, 0));
    }
}
