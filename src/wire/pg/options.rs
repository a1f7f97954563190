//! The startup parameter `options`: a capability taken out of it, the rest as it was.
//!
//! Purpose: `PGOPTIONS="-c fencewire.capability=…"` is how psql, pg_dump and pg_restore present
//! one. The engine must not see it, and must see every other option byte for byte (W1 of
//! `docs/CONTRACT.md`, promise 1), so the text is split as PostgreSQL splits it (white space,
//! backslashes) and its switches are read as PostgreSQL reads them (`getopt`: letters in one word,
//! arguments attached or apart). Pure; used by `startup.rs`. It judges nothing.

use std::ops::Range;

use crate::wire::shared::capability::{Offered, POSTGRES_NAME};

/// The letters with an argument, of versions 15 to 18. `-` stands for `--name=value`.
const WITH_ARGUMENT: &[u8] = b"BCDcdfhklNprStvW-";

/// One word: its characters, each with where it begins in the text, and where the word ends there.
struct Word {
    letters: Vec<(u8, usize)>,
    place: Range<usize>,
}

/// Takes what is offered out of an `options` text. `None` when nothing is: the text stays as it is.
pub(crate) fn take(options: &[u8]) -> Option<(Vec<u8>, Vec<Offered>)> {
    let (mut offered, mut gone) = (Vec::new(), Vec::new());
    let mut words = words(options).into_iter();
    while let Some(word) = words.next() {
        let [(b'-', _), rest @ ..] = word.letters.as_slice() else { continue };
        if matches!(rest, [(b'-', _)]) {
            break; // the engine reads no switches behind it
        }
        let Some(at) = rest.iter().position(|(letter, _)| WITH_ARGUMENT.contains(letter)) else {
            continue;
        };
        let Some(((switch, begins), attached)) = rest.get(at..).and_then(<[_]>::split_first) else {
            continue;
        };
        let (argument, ends): (Vec<u8>, usize) = if attached.is_empty() {
            let Some(next) = words.next() else { break };
            (next.letters.iter().map(|(letter, _)| *letter).collect(), next.place.end)
        } else {
            (attached.iter().map(|(letter, _)| *letter).collect(), word.place.end)
        };
        if !matches!(switch, b'c' | b'-') {
            continue;
        }
        let Some(value) = value(&argument) else { continue };
        offered.push(Offered::new(value));
        // Of several letters in one word the others stay.
        let from = if at == 0 { word.place.start } else { *begins };
        gone.push(from..ends);
    }
    if offered.is_empty() {
        return None;
    }
    Some((without(options, &gone), offered))
}

/// The value, if it is the capability's: names are compared without regard to case, and a hyphen
/// in one is an underscore, of which this name has none.
fn value(argument: &[u8]) -> Option<&[u8]> {
    let at = argument.iter().position(|byte| *byte == b'=')?;
    let (name, value) = argument.split_at_checked(at)?;
    name.eq_ignore_ascii_case(POSTGRES_NAME).then(|| value.get(1..).unwrap_or_default())
}

/// The text without these places, and without the blanks behind each.
fn without(options: &[u8], gone: &[Range<usize>]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(options.len());
    let mut at = 0;
    for place in gone {
        kept.extend_from_slice(options.get(at..place.start).unwrap_or_default());
        let behind = options.get(place.end..).unwrap_or_default();
        let blanks = behind.iter().take_while(|byte| is_blank(**byte)).count();
        // A switch of which only the letters in front stay must not grow onto the next word.
        let glued = kept.last().is_some_and(|byte| !is_blank(*byte));
        at = place.end + if glued { 0 } else { blanks };
    }
    kept.extend_from_slice(options.get(at..).unwrap_or_default());
    kept
}

/// C's `isspace`.
const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

fn words(options: &[u8]) -> Vec<Word> {
    let mut words = Vec::new();
    let mut at = 0;
    loop {
        let rest = options.get(at..).unwrap_or_default();
        at += rest.iter().take_while(|byte| is_blank(**byte)).count();
        if at >= options.len() {
            return words;
        }
        let start = at;
        let (mut letters, mut escaped) = (Vec::new(), None);
        while let Some(byte) = options.get(at).copied() {
            if is_blank(byte) && escaped.is_none() {
                break;
            }
            if byte == b'\\' && escaped.is_none() {
                escaped = Some(at);
            } else {
                letters.push((byte, escaped.take().unwrap_or(at)));
            }
            at += 1;
        }
        words.push(Word { letters, place: start..at });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn taken(options: &str) -> Option<(String, Vec<Vec<u8>>)> {
        let (kept, offered) = take(options.as_bytes())?;
        let offered = offered.iter().map(|one| one.expose().to_vec()).collect();
        Some((String::from_utf8(kept).unwrap(), offered))
    }

    fn split(options: &[u8]) -> Vec<Vec<u8>> {
        let letters = |word: Word| word.letters.into_iter().map(|(letter, _)| letter).collect();
        words(options).into_iter().map(letters).collect()
    }

    #[test]
    fn every_spelling_is_taken_and_the_rest_stays() {
        for (options, kept, value) in [
            ("-c fencewire.capability=x", "", "x"),
            ("-cfencewire.capability=x", "", "x"),
            ("--fencewire.capability=x", "", "x"),
            ("--FENCEWIRE.Capability=x", "", "x"),
            ("-c\tfencewire.capability=x -c a=b", "-c a=b", "x"),
            ("-c a=b  --fencewire.capability=x  -c d=e", "-c a=b  -c d=e", "x"),
            ("-c a=b -c fencewire.capability=", "-c a=b ", ""),
            ("-c fencewire.capability=x\\ y\\\\z -e", "-e", "x y\\z"),
            ("-\\c fencewire.capability=x -e", "-e", "x"),
            ("-ec fencewire.capability=x -F", "-e -F", "x"),
            ("-eFcfencewire.capability=x", "-eF", "x"),
            ("-e\\cfencewire.capability=x -F", "-e -F", "x"),
            ("-B 8 -c fencewire.capability=x", "-B 8 ", "x"),
        ] {
            let expected = Some((kept.to_owned(), vec![value.as_bytes().to_vec()]));
            assert_eq!(taken(options), expected, "{options}");
        }
        let twice = taken("-c fencewire.capability=x -c fencewire.capability=y").unwrap();
        assert_eq!(twice, (String::new(), vec![b"x".to_vec(), b"y".to_vec()]));
    }

    #[test]
    fn what_is_no_setting_of_it_stays_whole() {
        for options in [
            "",
            "  ",
            "-c a=b",
            "-c fencewire.capability",
            "--fencewire.capability",
            "-c fencewire.capability.x=y",
            "-c a=fencewire.capability=x",
            "-B --fencewire.capability=x",
            "-- -c fencewire.capability=x",
            "fencewire.capability=x",
            "-c -c fencewire.capability=x",
            "-c",
            "\\",
        ] {
            assert_eq!(taken(options), None, "{options:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_none_keeps_what_was_taken(
            options in proptest::collection::vec(
                prop_oneof![
                    Just("fencewire.capability=s"), Just("-c"), Just(" "), Just("\\"),
                    Just("--"), Just("-"), Just("e"), Just("a=b"), Just("\u{ff}"), Just("\t"),
                ],
                0..24,
            ),
        ) {
            let options = options.concat();
            let options = options.as_bytes();
            if let Some((kept, offered)) = take(options) {
                prop_assert!(kept.len() + offered.len() * 22 <= options.len());
                prop_assert!(take(&kept).is_none(), "{options:?} became {kept:?}");
            }
        }

        #[test]
        fn other_options_are_the_same_words_and_bytes(
            before in proptest::collection::vec("[ab\\\\é=]{1,6}", 0..5),
            after in proptest::collection::vec("[ab\\\\é=]{1,6}", 0..5),
            blank in "[ \t\n]{1,3}", long in any::<bool>(),
        ) {
            let option = |name: &String| format!("-c x.{name}=1{blank}");
            let (before, after): (String, String) =
                (before.iter().map(option).collect(), after.iter().map(option).collect());
            let ours = if long { "--fencewire.capability=s" } else { "-cfencewire.capability=s" };
            let (kept, offered) = take(format!("{before}{ours}{blank}{after}").as_bytes()).unwrap();
            prop_assert_eq!(offered, vec![Offered::new(b"s")]);
            let kept = String::from_utf8(kept).unwrap();
            prop_assert_eq!(&kept, &format!("{before}{after}"));
            prop_assert_eq!(split(kept.as_bytes()), split(format!("{before}{after}").as_bytes()));
        }
    }
}
