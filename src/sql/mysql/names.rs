//! Names and plain values in a MySQL statement.
//!
//! Purpose: what stands for a schema, what a name or a string is once its quotes are undone.
//!
//! Called by the families of `mysql/classify.rs`. It doesn't know what a statement is.

use super::super::classify::phrase::Phrase;
use super::super::lexer::TokenKind;
use super::super::statement::MyDetail;
use super::dialect::MyEncoding;
use super::lexer::Reading;

/// The longest name that engines take, in characters. Longer ones are nobody's, and aren't kept.
const NAME_CHARS_MAX: usize = 64;

/// A name as the engine keeps it, its quotes undone; `None` when it isn't one, or when the engine
/// may keep another one for these bytes.
pub(super) fn name(text: Phrase<'_>, at: usize, reading: Reading) -> Option<String> {
    let bytes = text.bytes(at);
    let quoted = text.is_kind(at, TokenKind::Quoted);
    let inner = if quoted { bytes.get(1..bytes.len().checked_sub(1)?)? } else { bytes };
    if !quoted && !text.is_kind(at, TokenKind::Word) {
        return None;
    }
    let name = reading.encoding.reads_name(inner)?;
    let quote = std::str::from_utf8(bytes.get(..1)?).unwrap_or_default();
    let name = if quoted { name.replace(&quote.repeat(2), quote) } else { name.to_owned() };
    (name.chars().nth(NAME_CHARS_MAX).is_none()).then_some(name)
}

/// A name in lower case, where the engine compares without case. `None` for one that can't be
/// compared here as every engine does: beyond plain letters some take accents, width and blanks at
/// the end for nothing, and the client's character set comes in between.
pub(super) fn folded(text: Phrase<'_>, at: usize) -> Option<String> {
    let bytes = text.bytes(at);
    let quoted = text.is_kind(at, TokenKind::Quoted);
    let inner = if quoted { bytes.get(1..bytes.len().checked_sub(1)?)? } else { bytes };
    if !quoted && !text.is_kind(at, TokenKind::Word) {
        return None;
    }
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
    let comparable = (1..=NAME_CHARS_MAX).contains(&inner.len()) && inner.iter().all(plain);
    let name = std::str::from_utf8(inner).ok().filter(|_| comparable)?;
    Some(name.to_ascii_lowercase())
}

/// Every name that may stand for a schema: the first of names with dots between.
///
/// Which of them are tables or aliases in front of a column, only the engine knows.
///
/// A byte that can't be read as part of a name may be one to the engine (an unquoted name in the
/// client's own character set), and a name beyond ASCII that isn't in UTF-8 is another one there:
/// then any schema may be meant.
pub(super) fn schemas(text: Phrase<'_>, reading: Reading, into: &mut MyDetail) {
    for at in 0..text.len() {
        let foreign = reading.encoding != MyEncoding::Utf8 && !text.bytes(at).is_ascii();
        into.any_schema |= text.is_kind(at, TokenKind::Stray) || (foreign && text.is_name(at));
    }
    for dot in 1..text.len() {
        if !text.is_kind(dot, TokenKind::Dot) || !text.is_name(dot - 1) {
            continue;
        }
        let before = dot.checked_sub(2).and_then(|at| text.kind(at));
        if matches!(before, Some(TokenKind::Dot | TokenKind::Setting)) {
            continue;
        }
        named(text, dot - 1, reading, into);
    }
}

/// The schema that is named at `at`.
pub(super) fn named(text: Phrase<'_>, at: usize, reading: Reading, into: &mut MyDetail) {
    match name(text, at, reading) {
        Some(name) => into.name_schema(name),
        None => into.any_schema = true,
    }
}

/// The bytes that a plain string stands for; `None` for anything else, introducers included.
pub(super) fn string(text: Phrase<'_>, at: usize, reading: Reading) -> Option<Vec<u8>> {
    let bytes = text.bytes(at);
    let quote = *bytes.first()?;
    if !text.is_kind(at, TokenKind::Text) || !matches!(quote, b'\'' | b'"') {
        return None;
    }
    let inner = bytes.get(1..bytes.len().checked_sub(1)?)?;
    let mut value = Vec::with_capacity(inner.len());
    let mut rest = inner.iter().copied();
    while let Some(byte) = rest.next() {
        let escapes = byte == b'\\' && !reading.no_backslash_escapes;
        match byte {
            _ if escapes => match rest.next()? {
                b'0' => value.push(0),
                b'b' => value.push(8),
                b'n' => value.push(b'\n'),
                b'r' => value.push(b'\r'),
                b't' => value.push(b'\t'),
                b'Z' => value.push(26),
                kept @ (b'%' | b'_') => value.extend([b'\\', kept]),
                other => value.push(other),
            },
            doubled if doubled == quote => {
                rest.next();
                value.push(quote);
            }
            plain => value.push(plain),
        }
    }
    Some(value)
}
