//! The pinned table of words that may stand in front of a parenthesis.
//!
//! Purpose: the allow list behind every proved read. The table is a text file beside this module,
//! read once per process into a sorted slice; its header says how it was made.
//!
//! Called by the proof of reads. It decides nothing about a statement.

use std::sync::LazyLock;

use super::super::trusted::Trusted;
use super::dialect::{MyFlavour, MyServer};

/// What a word in front of a parenthesis does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Callee {
    /// Calls a built-in function that changes nothing, or one that was declared harmless.
    Harmless,
    /// Belongs to the grammar and calls nothing.
    Grammar,
    /// Changes a sequence.
    Writer,
    /// Nothing is known.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    grammar: bool,
    /// Only with the parenthesis right behind the word.
    glued: bool,
    /// In hundreds: `major * 100 + minor`.
    since: u32,
    until: u32,
}

/// A word and what it is on MariaDB and on MySQL.
type Row = (&'static str, Option<Entry>, Option<Entry>);

static WORDS: LazyLock<Box<[Row]>> = LazyLock::new(|| {
    let lines = include_str!("words.txt").lines();
    let rows = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.map(|line| {
        let mut parts = line.split(' ');
        let word = parts.next().unwrap_or_default();
        (word, parts.next().and_then(entry), parts.next().and_then(entry))
    })
    .collect()
});

/// One column; a number that can't be read is a version no engine has.
fn entry(text: &str) -> Option<Entry> {
    let grammar = text.starts_with('k');
    let rest = text.strip_prefix(['k', 'f'])?;
    let glued = rest.starts_with('+');
    let rest = rest.trim_start_matches('+');
    let number = |text: &str| text.parse().ok();
    let (since, until) = match rest.strip_prefix('<') {
        Some(until) => (0, number(until).unwrap_or(0)),
        None if rest.is_empty() => (0, u32::MAX),
        None => (number(rest).unwrap_or(u32::MAX), u32::MAX),
    };
    Some(Entry { grammar, glued, since, until })
}

/// Looks an unquoted, unqualified word up; `word` in lower case, `glued`: the parenthesis stands
/// right behind it.
pub(super) fn callee(word: &str, glued: bool, server: MyServer, trusted: &Trusted) -> Callee {
    if server.flavour == MyFlavour::MariaDb && matches!(word, "nextval" | "setval") {
        return Callee::Writer;
    }
    if server.flavour == MyFlavour::MariaDb && word == "lastval" {
        return Callee::Harmless;
    }
    let row = WORDS.binary_search_by(|(name, ..)| (*name).cmp(word)).ok();
    let row = row.and_then(|at| WORDS.get(at));
    let entry = row.and_then(|(_, maria, mysql)| match server.flavour {
        MyFlavour::MariaDb => *maria,
        MyFlavour::MySql => *mysql,
    });
    let version = server.version / 100;
    match entry {
        Some(entry) if version < entry.since || version >= entry.until => declared(word, trusted),
        Some(entry) if entry.glued && !glued => declared(word, trusted),
        Some(entry) if entry.grammar => Callee::Grammar,
        Some(_) => Callee::Harmless,
        None => declared(word, trusted),
    }
}

/// A stored function, found in the session's default schema.
pub(super) fn declared(word: &str, trusted: &Trusted) -> Callee {
    if trusted.contains(None, word) { Callee::Harmless } else { Callee::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(word: &str, glued: bool, greeting: &str) -> Callee {
        callee(word, glued, MyServer::from_greeting(greeting), &Trusted::default())
    }

    #[test]
    fn the_table_is_sorted_and_readable() {
        assert!(WORDS.is_sorted_by(|a, b| a.0 < b.0));
        assert!(WORDS.len() > 700);
        for (word, maria, mysql) in &*WORDS {
            assert!(maria.is_some() || mysql.is_some(), "{word}");
        }
    }

    #[test]
    fn words_differ_by_engine_version_and_blank() {
        let (maria, mysql) = ("5.5.5-10.11.19-MariaDB", "9.7.4");
        assert_eq!(of("concat", false, maria), Callee::Harmless);
        assert_eq!(of("count", true, mysql), Callee::Harmless);
        assert_eq!(of("count", false, mysql), Callee::Unknown, "may be somebody's own `count`");
        assert_eq!(of("in", false, mysql), Callee::Grammar);
        assert_eq!(of("nextval", true, maria), Callee::Writer);
        assert_eq!(of("nextval", true, mysql), Callee::Unknown);
        assert_eq!(of("md5", true, "8.0.36"), Callee::Harmless);
        assert_eq!(of("md5", true, mysql), Callee::Unknown, "9.6 took it out");
        assert_eq!(of("to_vector", true, "8.0.36"), Callee::Unknown);
        assert_eq!(of("natural_sort_key", true, "5.5.5-10.6.1-MariaDB"), Callee::Unknown);
        assert_eq!(of("json_value", true, maria), Callee::Harmless);
    }
}
