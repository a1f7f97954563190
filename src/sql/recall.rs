//! Texts that came before, as they stood: what such a text is is known without reading it again.
//!
//! Purpose: clients send the same text over and over, byte for byte, or with other numbers and
//! strings in it. Finding that out costs a comparison; the key of `cache.rs` costs a pass of the
//! lexer and two hashes. This stands in front of it, and answers nothing that it wouldn't.
//!
//! **Why an answer is the same.** What a text is depends on its bytes, on the rules it is read by
//! and on what is trusted; the classifier's list is its own, and the engine's version stands beside
//! the rules ([`Rules`]). Everything here is compared byte for byte, but for the insides of
//! [`Holes`]. A hole is a literal that the text's key leaves out, of one of two plain forms: digits
//! alone, or a string of plain bytes, with nothing behind it that could belong to it. Another text
//! that has digits for the digits and such a string for the string, and is else the same, is read
//! into the same tokens: no lexer looks at which digit it is but behind a leading zero, where a
//! letter must follow, nor at which plain byte stands in a string. So its key is the same, and two
//! texts with one key have one class (`cache.rs`).
//!
//! Texts whose literals are part of their key aren't remembered, nor such as can be read in several
//! ways. The first may have passwords in them, or a capability's secret; of the others the insides
//! of holes aren't kept.
//!
//! Invariants: unknown means read it (4): what isn't found goes the long way. The table never grows
//! and a text's room is used again; a client that chooses its texts can drive others out, no more.
//!
//! Called by the classifier alone.

use super::dialect::Lexing;
use super::lexer::{Token, TokenKind};
use super::statement::Classified;
use crate::base::arm::{Removable, removed};

/// Longer texts aren't remembered, in bytes: reading one costs little beside sending it.
const TEXT_BYTES_MAX: usize = 1024;

/// Holes of one text; further literals must be the same.
const HOLES_MAX: usize = 8;

/// Texts of one group: those that begin alike and are about as long.
const WAYS: usize = 4;

/// Groups of a table; a power of two.
const GROUPS: usize = 256;

/// What a text's class depends on beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) lexing: Lexing,
    /// The version whose built-in functions are believed.
    pub(super) engine_major: u16,
}

/// Where a text has literals that don't matter.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Holes {
    /// No literal of the text matters. Else it isn't remembered: its literals may be secrets.
    pub(super) blind: bool,
    count: usize,
    places: [Hole; HOLES_MAX],
}

#[derive(Debug, Clone, Copy, Default)]
struct Hole {
    start: u16,
    end: u16,
}

/// A byte of a plain string: read alike by every rule, wherever it stands.
const fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && !matches!(byte, b'\'' | b'"' | b'\\')
}

/// What may stand in front of a hole: no token that begins with it goes on with a digit or quote.
const fn may_precede(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'(' | b',' | b'=' | b'<' | b'>' | b'+' | b'-')
}

/// What may stand behind one: no literal goes on with it.
const fn may_follow(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b')' | b',' | b';')
}

/// How long the plain literal is that a text begins with; `None` where it begins with none.
fn literal(text: &[u8]) -> Option<usize> {
    let (first, rest) = text.split_first()?;
    if *first == b'\'' {
        let inside = rest.iter().position(|byte| !is_plain(*byte))?;
        return (rest.get(inside) == Some(&b'\'')).then_some(inside + 2);
    }
    let digits = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    (digits > 0).then_some(digits)
}

impl Holes {
    /// None at all, as long as nothing is known of the text.
    pub(super) fn clear(&mut self) {
        (self.blind, self.count) = (false, 0);
    }

    /// The key of `text` leaves this token out. It becomes a hole if it is plain.
    #[inline]
    pub(super) fn note(&mut self, token: &Token, text: &[u8]) {
        if !matches!(token.kind, TokenKind::Number | TokenKind::Text) {
            return;
        }
        let (start, end) = (token.start as usize, token.end as usize);
        let before = start.checked_sub(1).and_then(|at| text.get(at));
        let alone = before.is_some_and(|byte| may_precede(*byte))
            && text.get(end).is_none_or(|byte| may_follow(*byte));
        let plain = alone && literal(token.bytes(text)) == Some(end - start);
        let (Ok(start), Ok(end)) = (u16::try_from(start), u16::try_from(end)) else { return };
        if let Some(place) = self.places.get_mut(self.count).filter(|_| plain) {
            *place = Hole { start, end };
            self.count += 1;
        }
    }

    fn all(&self) -> &[Hole] {
        self.places.get(..self.count).unwrap_or_default()
    }
}

#[derive(Debug)]
struct Seen {
    rules: Rules,
    text: Vec<u8>,
    holes: Holes,
    known: Classified,
}

impl Seen {
    fn is(&self, text: &[u8], rules: Rules) -> bool {
        (self.rules == rules || removed(Removable::RecallRules)) && self.has_form_of(text)
    }

    #[inline]
    fn has_form_of(&self, text: &[u8]) -> bool {
        let (mut mine, mut theirs, mut behind) = (self.text.as_slice(), text, 0);
        for hole in self.holes.all() {
            let (start, end) = (usize::from(hole.start), usize::from(hole.end));
            let Some((same, rest)) = mine.split_at_checked(start - behind) else { return false };
            let Some(their_rest) = theirs.strip_prefix(same) else { return false };
            let Some(length) = literal(their_rest) else { return false };
            // Digits for digits, and a string for a string.
            if (their_rest.first() == Some(&b'\'')) != (rest.first() == Some(&b'\'')) {
                return false;
            }
            mine = rest.get(end - start..).unwrap_or_default();
            theirs = their_rest.get(length..).unwrap_or_default();
            behind = end;
        }
        mine == theirs
    }
}

/// A table of a fixed number of texts. Looking up and replacing take constant time, and in the long
/// run no allocation.
#[derive(Debug)]
pub(super) struct Recall {
    groups: Box<[[Option<Seen>; WAYS]]>,
    /// Whose turn it is to be replaced.
    next: usize,
}

impl Recall {
    /// A table; with `entries` of the classifier's cache below its own size it remembers nothing,
    /// so that a classifier without a cache has none at all.
    pub(super) fn new(entries: usize) -> Self {
        let count = if entries < GROUPS * WAYS { 0 } else { GROUPS };
        let groups = std::iter::repeat_with(|| [const { None }; WAYS]).take(count).collect();
        Self { groups, next: 0 }
    }

    /// A text's group, by its first bytes and its length in sixteens. Anybody can find texts of one
    /// group; that costs them the room of each other, and nothing else.
    #[inline]
    fn group(&mut self, text: &[u8]) -> Option<&mut [Option<Seen>; WAYS]> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let mut mixed = (text.len() / 16) as u64;
        let (words, _) = text.as_chunks::<8>();
        for word in words.iter().take(3) {
            mixed = (mixed.rotate_left(5) ^ u64::from_le_bytes(*word))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        let place = (mixed >> 32) as usize & (GROUPS - 1);
        self.groups.get_mut(place)
    }

    /// What a text is, if it or one of its form came before under these rules.
    #[inline]
    pub(super) fn find(&mut self, text: &[u8], rules: Rules) -> Option<Classified> {
        let group = self.group(text)?;
        let seen = group.iter().flatten().find(|seen| seen.is(text, rules))?;
        Some(seen.known.clone())
    }

    /// Remembers a text that wasn't found, in the place of another one of its group; but none whose
    /// literals matter, and no inside of a hole: what clients write there is theirs.
    pub(super) fn keep(&mut self, text: &[u8], rules: Rules, holes: &Holes, known: &Classified) {
        if !holes.blind {
            return;
        }
        self.next = (self.next + 1) % WAYS;
        let next = self.next;
        let Some(group) = self.group(text) else { return };
        let free = group.iter().position(Option::is_none).unwrap_or(next);
        let Some(place) = group.get_mut(free) else { return };
        let mut room = place.take().map_or_else(Vec::new, |old| old.text);
        room.clear();
        room.extend_from_slice(text);
        for hole in holes.all() {
            let inside = usize::from(hole.start) + 1..usize::from(hole.end);
            room.get_mut(inside).unwrap_or_default().fill(b'0');
        }
        *place = Some(Seen { rules, text: room, holes: *holes, known: known.clone() });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::cache::KeyMaker;
    use super::super::classify::Classifier;
    use super::super::dialect::PgLexing;
    use super::super::mysql::{MyFlavour, MyLexing, MyServer};
    use super::super::statement::StatementClass;
    use super::super::trusted::Trusted;
    use super::*;

    const fn maria() -> MyServer {
        MyServer { flavour: MyFlavour::MariaDb, version: 101_119 }
    }

    /// No literal matters, and none may differ.
    const BLIND: Holes = Holes { blind: true, count: 0, places: [Hole { start: 0, end: 0 }; 8] };
    const RULES: Rules = Rules { lexing: Lexing::STANDARD, engine_major: 15 };

    /// Whether `later` is taken for one of the form of `first`.
    fn recalled(first: &str, later: &str) -> bool {
        let mut holes = Holes::default();
        let keys = KeyMaker::new();
        let key = |text: &str, holes: &mut Holes| {
            keys.key(text.as_bytes(), PgLexing::STANDARD, false, holes)
        };
        let Ok(one) = key(first, &mut holes) else { return false };
        let mut recall = Recall::new(GROUPS * WAYS);
        let known = Classified::unreadable(false);
        recall.keep(first.as_bytes(), RULES, &holes, &known);
        let found = recall.find(first.as_bytes(), RULES);
        assert_eq!(found, holes.blind.then_some(known.clone()), "{first}");
        let text = later.as_bytes();
        let seen = Seen { rules: RULES, text: first.into(), holes, known };
        let is = holes.blind && seen.is(text, RULES);
        if is {
            let other = key(later, &mut Holes::default());
            assert_eq!(other, Ok(one), "VIOLATION: {later:?} is no {first:?}");
        }
        is
    }

    #[test]
    fn the_same_text_and_texts_with_other_plain_literals_are_recalled() {
        for (first, later) in [
            ("select 1", "select 22"),
            ("select a from t where id = 0;", "select a from t where id = 00123;"),
            ("select 'a', 1", "select '', 20"),
            ("insert into t values (1, 'it is', -3)", "insert into t values (0, 'x y', -44)"),
            ("select 'a' 'b'", "select 'c' 'd'"),
            ("select a.b2 from t3 where x=1", "select a.b2 from t3 where x=5"),
        ] {
            assert!(recalled(first, later), "{later} by {first}");
        }
    }

    #[test]
    fn what_differs_in_anything_else_is_not() {
        for (first, later) in [
            ("select a from t1", "select a from t2"),
            ("select 1", "select 1x"),
            ("select 1", "select 0x1"),
            ("select 1", "select 1.5"),
            ("select 1", "select 1, 2"),
            ("select 1", "select 'a'"),
            ("select 'a'", "select 1"),
            ("select 'a'", "select 'a''b'"),
            ("select 'a'", r"select 'a\'"),
            ("select 'a'", "select 'a\"b'"),
            ("select 'a'", "select 'é'"),
            ("select 'a'", "select 'a"),
            ("select 1", "select "),
            ("select 1;", "select 1; delete from t"),
            ("select 1e5", "select 2e5"),
            ("select 1.5", "select 2.5"),
            ("select b'1'", "select b'0'"),
            ("select e'a'", "select e'b'"),
            ("select $1", "select $2"),
            ("select t.1", "select t.2"),
            ("explain (analyze 1) select 1", "explain (analyze 0) select 1"),
            ("select set_config('a', 'b', true)", "select set_config('c', 'b', true)"),
            ("create table t (a char(1))", "create table t (a char(2))"),
        ] {
            assert!(!recalled(first, later), "{later} by {first}");
        }
    }

    #[test]
    fn the_same_text_under_other_rules_is_read_anew() {
        let mut recall = Recall::new(GROUPS * WAYS);
        let text = b"select 'a', count(*)";
        recall.keep(text, RULES, &BLIND, &Classified::unreadable(false));
        let off = PgLexing { standard_conforming_strings: false, ..PgLexing::STANDARD };
        for rules in [
            Rules { lexing: off.into(), ..RULES },
            Rules { lexing: MyLexing::standard(maria()).into(), ..RULES },
            Rules { engine_major: 16, ..RULES },
        ] {
            let found = recall.find(text, rules);
            assert_eq!(found, None, "VIOLATION: recalled under {rules:?}");
        }
        let known = recall.find(text, RULES).map(|known| known.class());
        assert_eq!(known, Some(StatementClass::Unprovable));
    }

    #[cfg(debug_assertions)]
    #[test]
    fn control_arm_a_text_that_is_recalled_whatever_its_rules_are_is_reported() {
        let test = "sql::recall::tests::the_same_text_under_other_rules_is_read_anew";
        crate::base::arm::missed(test, &[("recall-rules", "recalled under")]).unwrap();
    }

    #[test]
    fn what_a_client_wrote_into_a_literal_isn_t_kept() {
        let mut holes = Holes::default();
        let text = "insert into people values (4711, 'hunter2')";
        let key =
            KeyMaker::new().key(text.as_bytes(), PgLexing::STANDARD, false, &mut holes).unwrap();
        assert!(key != 0 && holes.blind);
        let mut recall = Recall::new(GROUPS * WAYS);
        recall.keep(text.as_bytes(), RULES, &holes, &Classified::unreadable(false));
        let kept = format!("{:?}", recall.groups.iter().flatten().flatten().next().unwrap().text);
        let kept = kept.replace(", ", " ");
        assert!(!kept.contains("104 117 110"), "{kept}");
        assert!(kept.contains("39 48 48"), "{kept}");
    }

    #[test]
    fn the_table_never_grows_and_a_small_cache_has_none() {
        let mut recall = Recall::new(GROUPS * WAYS);
        let known = Classified::unreadable(false);
        for number in 0..WAYS * 3 {
            let text = format!("select a, b, c, d, e, f, g from table_{number:02}");
            recall.keep(text.as_bytes(), RULES, &BLIND, &known);
        }
        let seen: usize = recall.groups.iter().map(|group| group.iter().flatten().count()).sum();
        assert_eq!(seen, WAYS, "one group");
        let long = vec![b' '; TEXT_BYTES_MAX + 1];
        recall.keep(&long, RULES, &BLIND, &known);
        assert_eq!(recall.find(&long, RULES), None);
        assert_eq!(Recall::new(64).groups.len(), 0);
    }

    /// The text with another value in the place of each number, or of each string.
    fn with(text: &str, value: &str) -> String {
        let (mut out, mut rest) = (String::new(), text);
        while let Some(at) = rest.find(|c: char| c == '\'' || c.is_ascii_digit()) {
            let (head, tail) = rest.split_at(at);
            out.push_str(head);
            let quoted = tail.strip_prefix('\'').map(|inside| inside.find('\'').map(|end| end + 2));
            let length = match quoted {
                Some(Some(length)) => length,
                Some(None) => tail.len(),
                None => tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len()),
            };
            let (old, behind) = tail.split_at(length);
            out.push_str(if value.starts_with('\'') == old.starts_with('\'') {
                value
            } else {
                old
            });
            rest = behind;
        }
        out + rest
    }

    /// The property that all of this rests on: whatever came before, what a text is said to be is
    /// what it is to somebody who has never seen another one.
    #[test]
    fn what_is_recalled_is_what_reading_says() {
        const VALUES: [&str; 14] = [
            "7",
            "00",
            "1234567890123",
            "0x1f",
            "1e3",
            "1.5",
            "1_0",
            "1a",
            "''",
            "'it'",
            "'a''b'",
            r"'a\'",
            "'\"'",
            "'; drop table t; --'",
        ];
        let trusted = Arc::new(Trusted::default());
        let mysql = MyServer { flavour: MyFlavour::MySql, version: 90_704 };
        let families: [(&str, &[Lexing]); 2] = [
            (include_str!("classify/cases.txt"), &[Lexing::STANDARD]),
            (
                include_str!("mysql/cases.txt"),
                &[MyLexing::standard(maria()).into(), MyLexing::standard(mysql).into()],
            ),
        ];
        let (mut recalled, mut compared) = (0, 0);
        let mut known = Classifier::new(Arc::clone(&trusted), GROUPS * WAYS);
        for (cases, lexings) in families {
            let texts = cases.lines().filter_map(|line| Some(line.split_once('|')?.1.trim()));
            for (text, lexing) in texts.flat_map(|text| lexings.iter().map(move |how| (text, how)))
            {
                for _ in 0..3 {
                    known.classify(text.as_bytes(), *lexing);
                }
                for value in VALUES {
                    let other = with(text, value);
                    recalled += usize::from(known.recalls(other.as_bytes(), *lexing));
                    let found = known.classify(other.as_bytes(), *lexing);
                    let fresh = Classifier::new(Arc::clone(&trusted), 0)
                        .classify(other.as_bytes(), *lexing);
                    assert_eq!(found, fresh, "VIOLATION: {other:?} behind {text:?}, {lexing:?}");
                    compared += 1;
                }
            }
        }
        assert!(recalled > 1_000 && compared > 2 * recalled, "{recalled} of {compared}");
    }
}
