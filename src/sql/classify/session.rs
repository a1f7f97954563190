//! Session state: `SET`, `RESET`, `DISCARD`, and the same by `set_config`.
//!
//! Purpose: settings are harmless but for two kinds. The ones that decide whether a transaction may
//! write are the guard itself: touching them is `write`, whatever the value and the quoting. The
//! ones that change how texts are lexed are reported, so that the relay reads later texts by the
//! right rules.

use super::super::lexer::TokenKind;
use super::super::statement::{GuardBreak, Part, Shape, StatementClass};
use super::phrase::{LowerWord, Phrase};

/// Settings that decide whether writes go through, or which of their triggers fire.
const GUARD: &[&str] =
    &["default_transaction_read_only", "session_replication_role", "transaction_read_only"];

/// Settings that move the ends of strings.
const LEXING: &[&str] = &["backslash_quote", "client_encoding", "standard_conforming_strings"];

/// The effect of touching one setting, whose name the engine compares without regard to case.
///
/// A name that isn't plain ASCII is `unprovable`: under a single-byte server encoding such letters
/// may fold to others.
pub(super) fn touch(setting: &[u8], harmless: StatementClass) -> Part {
    let is_one_of =
        |names: &[&str]| names.iter().any(|name| setting.eq_ignore_ascii_case(name.as_bytes()));
    if !setting.is_ascii() || setting.is_empty() {
        return Part { lexing: true, ..Part::of(StatementClass::Unprovable) };
    }
    if is_one_of(GUARD) {
        let default = setting.eq_ignore_ascii_case(GUARD[0].as_bytes());
        let extra = if default { Shape::OWNS_READ_ONLY } else { 0 };
        return Part { breaks: GuardBreak::Setting, extra, ..Part::of(StatementClass::Write) };
    }
    Part { lexing: is_one_of(LEXING), ..Part::of(harmless) }
}

/// The setting named at `at`, which may have a prefix: `ext.name`. No such setting of the engine's
/// is special; the one of the proxy's own is told.
fn touch_named(text: Phrase<'_>, at: usize) -> Part {
    if text.is_kind(at + 1, TokenKind::Dot) {
        let named = |at, name| LowerWord::of(text, at).as_str().eq_ignore_ascii_case(name);
        let own = named(at, "fencewire") && named(at + 2, "capability");
        let extra = if own { Shape::CAPABILITY } else { 0 };
        return Part { extra, ..Part::of(StatementClass::Session) };
    }
    match text.kind(at) {
        Some(TokenKind::Word) => touch(text.bytes(at), StatementClass::Session),
        Some(TokenKind::Quoted) => {
            let name = LowerWord::of(text, at);
            touch(name.as_str().as_bytes(), StatementClass::Session)
        }
        _ => touch(&[], StatementClass::Session),
    }
}

/// `SET …` in all its forms.
pub(super) fn set(text: Phrase<'_>) -> Part {
    let mut at = 1;
    while text.is_any(at, &["session", "local"]) {
        at += 1;
    }
    let assigns = text.is(at + 1, "to") || text.bytes(at + 1) == b"=";
    if assigns || text.is_kind(at + 1, TokenKind::Dot) {
        let part = touch_named(text, at);
        return match (text.is(1, "local"), text.is(at + 2, "default")) {
            // Its transaction ends it.
            (true, _) => Part { extra: part.extra & !Shape::OWNS_READ_ONLY, ..part },
            (false, true) => disown(part),
            (false, false) => part,
        };
    }
    if text.is_any(at, &["transaction", "characteristics"]) {
        return mode(text.rest(at));
    }
    if text.is(at, "names") {
        return Part { lexing: true, ..Part::of(StatementClass::Session) };
    }
    let special = ["time", "catalog", "schema", "role", "authorization", "xml", "constraints"];
    if text.is_any(at, &special) {
        return Part::of(StatementClass::Session);
    }
    touch_named(text, at)
}

/// `SET TRANSACTION …` and `SET SESSION CHARACTERISTICS AS TRANSACTION …`.
///
/// The second is `default_transaction_read_only` in other words, so it is `write` with READ ONLY
/// too: where the guard has set that already the engine reports no change, and the guard's undoing
/// would take away what the session has asked for.
fn mode(text: Phrase<'_>) -> Part {
    let of_session = !text.is(0, "transaction") && text.has_pair("read", "only");
    if of_session || text.has_pair("read", "write") {
        let extra = if text.is(0, "transaction") { 0 } else { Shape::OWNS_READ_ONLY };
        return Part { breaks: GuardBreak::Setting, extra, ..Part::of(StatementClass::Write) };
    }
    if text.is(0, "transaction") {
        Part::of(StatementClass::TransactionControl)
    } else {
        Part::of(StatementClass::Session)
    }
}

const fn back_to_start_values(breaks: GuardBreak) -> Part {
    Part {
        breaks,
        lexing: true,
        extra: Shape::RESETS_SESSION | Shape::DISOWNS_READ_ONLY,
        ..Part::of(StatementClass::Session)
    }
}

/// The setting goes back to what it was at the session's start.
const fn disown(part: Part) -> Part {
    let owns = part.extra & Shape::OWNS_READ_ONLY != 0;
    let disowns = if owns { Shape::DISOWNS_READ_ONLY } else { 0 };
    Part { extra: part.extra & !Shape::OWNS_READ_ONLY | disowns, ..part }
}

/// `RESET ALL`, `RESET setting` and the forms with more words.
///
/// RESET ALL gives the next transaction its old mode back, and leaves that of the running one
/// alone (`transaction_read_only` is among the settings that it doesn't touch). A text is one
/// transaction up to a COMMIT in it, which is told by itself: so what a pool's reset says behind
/// RESET ALL in the same text is guarded as what it says in front.
pub(super) fn reset(text: Phrase<'_>) -> Part {
    if text.is(1, "all") {
        return back_to_start_values(GuardBreak::ResetDefaults);
    }
    // RESET TIME ZONE, SESSION AUTHORIZATION, TRANSACTION ISOLATION LEVEL.
    if text.len() > 2 && text.is_any(1, &["time", "session", "transaction"]) {
        return Part::of(StatementClass::Session);
    }
    disown(touch_named(text, 1))
}

/// `DISCARD ALL` resets every setting, and ends its transaction at once; the other forms drop
/// caches and temporary objects.
pub(super) fn discard(text: Phrase<'_>) -> Part {
    if text.is(1, "all") {
        back_to_start_values(GuardBreak::Reset)
    } else {
        Part::of(StatementClass::Session)
    }
}

/// A call of `set_config` whose parenthesis opens at `open`: only a plain first argument tells
/// which setting it is, or the one statement that looks a single setting up by such a name.
pub(super) fn set_config(text: Phrase<'_>, open: usize) -> Part {
    let named = text.is_kind(open + 2, TokenKind::Comma);
    let setting = if named { text.plain_text(open + 1) } else { None };
    touch(setting.or_else(|| looked_up(text)).unwrap_or_default(), StatementClass::Read)
}

/// `SELECT set_config(name, '…', false) FROM pg_settings WHERE name = 'setting'`, to the token:
/// pg_dump sends it, so that servers without the setting don't mind.
fn looked_up(text: Phrase<'_>) -> Option<&[u8]> {
    const FORM: &[&str] = &[
        "select",
        "set_config",
        "(",
        "name",
        ",",
        "",
        ",",
        "false",
        ")",
        "from",
        "pg_settings",
        "where",
        "name",
        "=",
        "",
    ];
    let fits = |(at, wanted): (usize, &&str)| match *wanted {
        "" => text.kind(at).is_some_and(TokenKind::is_literal),
        sign if sign.len() == 1 => text.bytes(at) == sign.as_bytes(),
        word => text.is(at, word),
    };
    let fits = text.len() == FORM.len() && FORM.iter().enumerate().all(fits);
    if fits { text.plain_text(FORM.len() - 1) } else { None }
}
