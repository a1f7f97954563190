//! What a fuzzer asks of the lexer and the classifier: any bytes in, a broken property out.
//!
//! Purpose: one function per target, called by `fuzz/` (libFuzzer) and by `tests/fuzz_smoke.rs` (a
//! deterministic mutator). Pure. Not in release builds. It states properties, and decides nothing.

use std::sync::Arc;

use super::classify::Classifier;
use super::dialect::{Encoding, PgLexing};
use super::lexer::{Lexer, Scan, Token, TokenKind, Unlexable};
use super::mysql::{self, MyEncoding, MyLexer, MyLexing, MyServer};
use super::statement::{Classified, StatementClass};
use super::trusted::Trusted;

/// The first byte chooses lexing rules, the rest is the text.
fn rules(data: &[u8]) -> Option<(PgLexing, &[u8])> {
    let (first, text) = data.split_first()?;
    let encoding = if first & 2 == 0 { Encoding::AsciiSafe } else { Encoding::Unsafe };
    Some((PgLexing { standard_conforming_strings: first & 1 == 0, encoding }, text))
}

fn tokens(text: &[u8], lexing: PgLexing) -> Result<Vec<Token>, Unlexable> {
    all_of(text, Lexer::new(text, lexing))
}

fn all_of(text: &[u8], mut lexer: impl Scan) -> Result<Vec<Token>, Unlexable> {
    let mut all = Vec::new();
    // A token has at least one byte: more than the text has bytes can't be.
    for _ in 0..=text.len() {
        match lexer.next_token()? {
            Some(token) => all.push(token),
            None => return Ok(all),
        }
    }
    Ok(all)
}

/// Tokens lie in order inside the text, none is empty, and reading them ends.
///
/// # Errors
/// The property that doesn't hold.
pub fn lexer(data: &[u8]) -> Result<(), String> {
    let Some((lexing, text)) = rules(data) else { return Ok(()) };
    let Ok(tokens) = tokens(text, lexing) else { return Ok(()) };
    in_order(text, &tokens)
}

fn in_order(text: &[u8], tokens: &[Token]) -> Result<(), String> {
    let mut end = 0;
    for token in tokens {
        let (from, to) = (token.start as usize, token.end as usize);
        if from < end || to <= from || to > text.len() {
            return Err(format!("token {token:?} behind byte {end} of {}", text.len()));
        }
        end = to;
    }
    if tokens.len() > text.len() {
        return Err("the lexer doesn't end".to_owned());
    }
    Ok(())
}

fn fresh() -> Classifier {
    Classifier::new(Arc::new(Trusted::default()), 16)
}

/// The text with the case of every unquoted name turned.
fn turned(text: &[u8], lexing: PgLexing) -> Option<Vec<u8>> {
    let mut turned = text.to_vec();
    for token in tokens(text, lexing).ok()?.iter().filter(|t| t.kind == TokenKind::Word) {
        for byte in turned.get_mut(token.start as usize..token.end as usize)? {
            *byte ^= if byte.is_ascii_alphabetic() { 0x20 } else { 0 };
        }
    }
    Some(turned)
}

/// A program's class doesn't depend on the cache, on comments around it or on the case of its
/// names, and a write behind it makes it a writer.
///
/// # Errors
/// The property that doesn't hold.
pub fn classifier(data: &[u8]) -> Result<(), String> {
    let Some((lexing, text)) = rules(data) else { return Ok(()) };
    let mut classifier = fresh();
    let first: Classified = classifier.classify(text, lexing);
    let ask = |text: &[u8]| fresh().classify(text, lexing).class();
    let expect = |what: &str, found: StatementClass, wanted: bool| {
        if wanted { Ok(()) } else { Err(format!("{} became {found} {what}", first.class())) }
    };
    let again = classifier.classify(text, lexing).class();
    expect("when it was asked again", again, again == first.class())?;
    let commented = ask(&[b"/* a /* b */ */ -- c\n".as_slice(), text, b"\n-- d"].concat());
    expect("between comments", commented, commented == first.class())?;
    if let Some(turned) = turned(text, lexing) {
        let turned = ask(&turned);
        expect("in other letters", turned, turned == first.class())?;
    }
    let more = ask(&[text, b"\n; DELETE FROM t"].concat());
    expect("with a write behind it", more, more.is_writer())
}

/// As [`rules`], for the MySQL family: flavour, modes and character set.
fn my_rules(data: &[u8]) -> Option<(MyLexing, &[u8])> {
    let (first, text) = data.split_first()?;
    let greeting = if first & 1 == 0 { "5.5.5-10.11.19-MariaDB-log" } else { "9.7.4-2" };
    let standard = MyLexing::standard(MyServer::from_greeting(greeting));
    let encoding = match first >> 3 & 3 {
        0 => MyEncoding::Utf8,
        1 => MyEncoding::AsciiSafe,
        2 => MyEncoding::Unsafe,
        _ => MyEncoding::Alien,
    };
    let lexing = MyLexing {
        ansi_quotes: (first & 2 != 0).into(),
        no_backslash_escapes: (first & 4 != 0).into(),
        encoding,
        ..standard
    };
    Some((lexing, text))
}

/// The twin of [`lexer`] for the MySQL family.
///
/// # Errors
/// The property that doesn't hold.
pub fn mysql_lexer(data: &[u8]) -> Result<(), String> {
    let Some((lexing, text)) = my_rules(data) else { return Ok(()) };
    for reading in mysql::readings(lexing, text) {
        if let Ok(tokens) = all_of(text, MyLexer::new(text, reading)) {
            in_order(text, &tokens)?;
        }
    }
    Ok(())
}

/// The twin of [`classifier`] for the MySQL family, where moreover a session of which less is known
/// never gets a milder answer.
///
/// # Errors
/// The property that doesn't hold.
pub fn mysql_classifier(data: &[u8]) -> Result<(), String> {
    let Some((lexing, text)) = my_rules(data) else { return Ok(()) };
    let mut classifier = fresh();
    let first = classifier.classify(text, lexing).class();
    let ask = |text: &[u8], lexing| fresh().classify(text, lexing).class();
    let expect = |what: &str, found: StatementClass, wanted: bool| {
        if wanted { Ok(()) } else { Err(format!("{first} became {found} {what}")) }
    };
    let again = classifier.classify(text, lexing).class();
    expect("when it was asked again", again, again == first)?;
    // At a NUL the engine's text ends: behind it nothing may stand.
    let behind = if text.contains(&0) { b"".as_slice() } else { b"\n-- d" };
    let commented = ask(&[b"/* a */ -- c\n".as_slice(), text, behind].concat(), lexing);
    expect("between comments", commented, commented == first)?;
    let more = ask(&[text, b"\n; DELETE FROM t"].concat(), lexing);
    expect("with a write behind it", more, more.is_writer())?;
    // Where not even ASCII is itself no text can be read: less can't be known.
    if lexing.encoding == MyEncoding::Alien {
        return expect("although it can't be read", first, first == StatementClass::Unprovable);
    }
    let doubtful = ask(text, lexing.uncertain());
    expect("when less is known", doubtful, doubtful.is_writer() || !first.is_writer())
}
