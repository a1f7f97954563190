//! What a fuzzer asks of the lexer and the classifier: any bytes in, a broken property out.
//!
//! Purpose: one function per target, called by `fuzz/` (libFuzzer) and by `tests/fuzz_smoke.rs` (a
//! deterministic mutator). Pure. Not in release builds. It states properties, and decides nothing.

use std::sync::Arc;

use super::classify::Classifier;
use super::dialect::{Encoding, Lexing};
use super::lexer::{Lexer, Token, TokenKind, Unlexable};
use super::statement::{Classified, StatementClass};
use super::trusted::Trusted;

/// The first byte chooses lexing rules, the rest is the text.
fn rules(data: &[u8]) -> Option<(Lexing, &[u8])> {
    let (first, text) = data.split_first()?;
    let encoding = if first & 2 == 0 { Encoding::AsciiSafe } else { Encoding::Unsafe };
    Some((Lexing { standard_conforming_strings: first & 1 == 0, encoding }, text))
}

fn tokens(text: &[u8], lexing: Lexing) -> Result<Vec<Token>, Unlexable> {
    let mut lexer = Lexer::new(text, lexing);
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
    let mut end = 0;
    for token in &tokens {
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
fn turned(text: &[u8], lexing: Lexing) -> Option<Vec<u8>> {
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
