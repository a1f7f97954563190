//! Session state: `SET` in all its forms, and what it changes for later texts.
//!
//! Purpose: most settings are harmless. The ones that decide whether a transaction may write are
//! the guard itself: touching them is `write`, whatever the value and the quoting. Settings of the
//! whole server are `lifecycle`. Modes, character set and autocommit are told, so that the relay
//! reads later texts by the right rules.
//!
//! Values are expressions, and an expression may call a function: it must be proved.

use super::super::classify::phrase::Phrase;
use super::super::lexer::TokenKind;
use super::super::statement::{GuardBreak, Part, Shape, StatementClass};
use super::classify::Context;
use super::dialect::{MyEncoding, SessionChange, SqlMode, Toggle};
use super::lexer::Reading;
use super::names;

/// Settings that lift or stand for the read-only guard, or write to the log by themselves.
const GUARD: &[&str] = &[
    "completion_type",
    "gtid_next",
    "gtid_seq_no",
    "pseudo_replica_mode",
    "pseudo_slave_mode",
    "sql_log_bin",
    "transaction_read_only",
    "tx_read_only",
    "wsrep_on",
    "wsrep_osu_method",
];

/// Settings that decide how a text is read.
const LEXING: &[&str] = &["sql_mode", "character_set_client"];

/// Scopes that reach beyond the session.
const WIDE: &[&str] = &["global", "persist", "persist_only"];

/// Scopes that don't.
const NARROW: &[&str] = &["session", "local"];

const SESSION: Part = Part::of(StatementClass::Session);

/// A setting of the whole server, and with it of every schema.
fn wide(context: &mut Context<'_>) -> Part {
    context.detail.any_database = true;
    context.detail.my.any_schema = true;
    Part::of(StatementClass::Lifecycle)
}

/// `SET …`. The part's class is the strongest of its assignments.
pub(super) fn set(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    if text.is(1, "password") || (text.is(1, "default") && text.is(2, "role")) {
        return Part { extra: Shape::COMMITS_IMPLICITLY, ..Part::of(StatementClass::Ddl) };
    }
    if text.is(1, "statement") {
        return statement(text, context);
    }
    if text.is(1, "resource") && text.is(2, "group") {
        return Part::of(StatementClass::Write);
    }
    if text.is(1, "role") && !assigns(text, 1) {
        return SESSION;
    }
    let scoped = usize::from(text.is_any(1, NARROW) || text.is_any(1, WIDE));
    if text.is(1 + scoped, "transaction") && !assigns(text, 1 + scoped) {
        return transaction(text, scoped == 1, context);
    }
    let mut sum = Part::of(StatementClass::Session);
    let mut change = SessionChange::default();
    let before = std::mem::take(&mut context.detail.my.change);
    let mut at = 1;
    let mut items = 0;
    while at < text.len() {
        items += 1;
        let end = end_of_item(text, at);
        let part = item(text.part(at..end), context, &mut change);
        sum.class = sum.class.strongest(part.class);
        sum.lexing |= part.lexing;
        sum.extra |= part.extra;
        if part.breaks != GuardBreak::None {
            sum.breaks = part.breaks;
        }
        at = end + 1;
    }
    let wide = (1..text.len()).any(|at| text.is_any(at, WIDE));
    if wide && items > 1 && change != SessionChange::default() {
        // A scope counts for what follows without one, or doesn't: see each server's manual.
        change = SessionChange::UNKNOWN;
    }
    // Of one that isn't understood it is said there; nothing beside it is known better.
    let opaque = context.detail.my.change != SessionChange::default();
    let change = if opaque { SessionChange::UNKNOWN } else { change };
    let lifts = SessionChange { read_only: Some(Toggle::Off), ..SessionChange::default() };
    if items == 1 && sum.class == StatementClass::Write && change == lifts {
        sum.extra |= Shape::ONLY_LIFTS;
    }
    context.detail.my.change = before.then(change);
    sum
}

/// The comma outside brackets that ends an assignment, or the end.
fn end_of_item(text: Phrase<'_>, from: usize) -> usize {
    let mut at = from;
    while at < text.len() && !text.is_kind(at, TokenKind::Comma) {
        at = text.after_bracket(at).unwrap_or(text.len());
    }
    at
}

fn assigns(text: Phrase<'_>, at: usize) -> bool {
    matches!(text.bytes(at + 1), b"=" | b":=")
}

/// MariaDB's `SET STATEMENT a = 1 FOR statement`: a writer (W18) that may be more than that.
fn statement(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    let mut part = Part { breaks: GuardBreak::Setting, ..Part::of(StatementClass::Write) };
    let Some(at) = text.find(2, "for") else { return context.opaque() };
    if text.is(at + 1, "set") && text.is(at + 2, "statement") {
        // Nothing here goes into itself: a text may have a hundred thousand of these.
        return context.opaque();
    }
    let settings = text.part(2..at);
    let lexes = |at| names::folded(settings, at).is_none_or(|name| LEXING.contains(&&*name));
    let lexes = (0..settings.len()).any(|at| settings.is_name(at) && lexes(at));
    if lexes && text.is_any(at + 1, &["prepare", "execute"]) {
        return context.opaque(); // a text inside is read by those rules
    }
    let set = context.walk().calls(settings);
    let before = context.detail.my.change;
    let inner = context.statement(text.rest(at + 1));
    if inner.lexing || context.detail.my.change != before {
        // What was set for the statement is put back over what the statement sets.
        context.detail.my.change = SessionChange::UNKNOWN;
    }
    part.class = part.class.strongest(inner.class);
    if set.class == StatementClass::Unprovable {
        part.class = StatementClass::Unprovable;
    }
    // Modes set for one statement don't change how it was read, and are gone behind it.
    let extra = inner.extra & !Shape::ONLY_LIFTS;
    Part { class: part.class, breaks: part.breaks, extra, ..inner }
}

/// `SET [scope] TRANSACTION …`.
fn transaction(text: Phrase<'_>, scoped: bool, context: &mut Context<'_>) -> Part {
    let writable = text.has_pair("read", "write");
    let read_only = text.has_pair("read", "only");
    if scoped && text.is_any(1, WIDE) {
        return wide(context);
    }
    if scoped && (writable || read_only) {
        context.detail.my.change.read_only = Some(read_only.into());
    }
    if writable {
        let extra = if scoped && !read_only { Shape::ONLY_LIFTS } else { 0 };
        return Part { extra, breaks: GuardBreak::Setting, ..Part::of(StatementClass::Write) };
    }
    Part::of(if scoped { StatementClass::Session } else { StatementClass::TransactionControl })
}

/// One assignment.
fn item(text: Phrase<'_>, context: &mut Context<'_>, change: &mut SessionChange) -> Part {
    if text.is_kind(0, TokenKind::Variable) && assigns(text, 0) {
        let part = value(text.rest(2), context);
        let extra = if is_capability(text.bytes(0)) { Shape::CAPABILITY } else { 0 };
        return Part { extra: part.extra | extra, ..part };
    }
    if text.is(0, "names") || text.is_any(0, &["charset"]) && !assigns(text, 0) {
        return charset(text, 1, context, change);
    }
    if text.is_any(0, &["character", "char"]) && text.is(1, "set") {
        return charset(text, 2, context, change);
    }
    let marked = text.is_kind(0, TokenKind::Setting);
    let mut at = usize::from(marked);
    let mut part = SESSION;
    // `@@scope.name`, or `SCOPE name`; a setting of such a name alone is assigned to right away.
    let scoped = if marked {
        text.is_kind(at + 1, TokenKind::Dot)
    } else {
        !assigns(text, at) && !text.is_kind(at + 1, TokenKind::Dot)
    };
    let scoped = scoped && (text.is_any(at, WIDE) || text.is_any(at, NARROW));
    let wide_scope = scoped && text.is_any(at, WIDE);
    let before = *change;
    if scoped {
        if wide_scope {
            part = wide(context);
        }
        at += if marked { 2 } else { 1 };
    }
    let Some(name) = names::folded(text, at) else { return context.opaque() };
    if text.is_kind(at + 1, TokenKind::Dot) {
        // A structured setting, `hot_cache.key_buffer_size`: of the server.
        let assigned = text.rest(at + 4);
        return strongest(wide(context), value(assigned, context));
    }
    if !assigns(text, at) {
        return context.opaque();
    }
    let given = text.rest(at + 2);
    let mut touched = touch(&name, given, context, change, scoped || !marked);
    if wide_scope {
        // Sessions that are there keep what they have.
        *change = before;
        touched.lexing = false;
        touched.extra &= !Shape::CHANGES_AUTOCOMMIT;
    }
    strongest(strongest(part, touched), value(given, context))
}

/// Whether a variable is the proxy's own, `@name` with or without quotes.
fn is_capability(variable: &[u8]) -> bool {
    let name = variable.strip_prefix(b"@").unwrap_or_default();
    let name = match name {
        [b'`' | b'\'' | b'"', inner @ .., _] => inner,
        plain => plain,
    };
    name.eq_ignore_ascii_case(b"fencewire_capability")
}

fn strongest(one: Part, other: Part) -> Part {
    let breaks = if one.breaks == GuardBreak::None { other.breaks } else { one.breaks };
    Part {
        class: one.class.strongest(other.class),
        lexing: one.lexing || other.lexing,
        extra: one.extra | other.extra,
        breaks,
        ..one
    }
}

/// The value's own class: session state, unless a call in it can't be proved, or it reads tables: a
/// view may call what nobody sees here, so that it must have what guards a read.
pub(super) fn value(text: Phrase<'_>, context: &Context<'_>) -> Part {
    let part = context.expression(text);
    let tables = (0..text.len()).any(|at| text.is_any(at, &["from", "table"]));
    if part.class == StatementClass::Read && !tables {
        return Part { class: StatementClass::Session, ..part };
    }
    part
}

/// What assigning to a setting does, besides what its value does.
fn touch(
    name: &str,
    given: Phrase<'_>,
    context: &Context<'_>,
    change: &mut SessionChange,
    for_session: bool,
) -> Part {
    if GUARD.contains(&name) {
        if name.ends_with("_read_only") && for_session {
            change.read_only = Some(toggle(given));
        }
        return Part { breaks: GuardBreak::Setting, ..Part::of(StatementClass::Write) };
    }
    match name {
        "sql_mode" => {
            if let Some(mode) = sql_mode(given, context.reading) {
                change.sql_mode = Some(mode);
                return Part { lexing: true, ..SESSION };
            }
            SESSION
        }
        "character_set_client" => {
            change.encoding = Some(encoding(given, 0, context.reading));
            Part { lexing: true, ..SESSION }
        }
        "autocommit" => {
            change.autocommit = Some(toggle(given));
            Part { extra: Shape::CHANGES_AUTOCOMMIT | Shape::COMMITS_IMPLICITLY, ..SESSION }
        }
        _ => SESSION,
    }
}

/// `NAMES x [COLLATE y]`, `CHARACTER SET x`.
fn charset(text: Phrase<'_>, at: usize, context: &Context<'_>, change: &mut SessionChange) -> Part {
    change.encoding = Some(encoding(text, at, context.reading));
    let part = value(text.rest(at), context);
    Part { lexing: true, ..part }
}

fn encoding(text: Phrase<'_>, at: usize, reading: Reading) -> MyEncoding {
    let value = names::string(text, at, reading).and_then(|value| String::from_utf8(value).ok());
    let alone = text.len() == at + 1 || text.is(at + 1, "collate");
    match value.or_else(|| names::folded(text, at)) {
        Some(name) if alone => MyEncoding::from_charset(&name),
        // BINARY is a word of its own and a set; DEFAULT is whatever the server has.
        Some(_) | None => MyEncoding::Unsafe,
    }
}

fn toggle(given: Phrase<'_>) -> Toggle {
    if given.len() != 1 {
        return Toggle::Unknown;
    }
    let value = given.bytes(0);
    let value = match value {
        [b'\'' | b'"', inner @ .., _] => inner,
        plain => plain,
    };
    let is = |words: &[&str]| words.iter().any(|word| value.eq_ignore_ascii_case(word.as_bytes()));
    if is(&["1", "on", "true"]) {
        Toggle::On
    } else if is(&["0", "off", "false"]) {
        Toggle::Off
    } else {
        Toggle::Unknown
    }
}

/// The new mode, or `None` when the two that matter stay as they are.
fn sql_mode(given: Phrase<'_>, reading: Reading) -> Option<SqlMode> {
    if given.len() == 1 {
        let value = names::string(given, 0, reading);
        let value = value.and_then(|value| String::from_utf8(value).ok());
        return Some(match value.or_else(|| names::folded(given, 0)) {
            Some(value) if !value.eq_ignore_ascii_case("default") => SqlMode::from_value(&value),
            Some(_) | None => SqlMode::UNKNOWN,
        });
    }
    if keeps_modes(given, reading) { None } else { Some(SqlMode::UNKNOWN) }
}

/// `CONCAT(@@sql_mode, ',STRICT_TRANS_TABLES')`, as drivers write it: modes are added, none of the
/// two that matter.
fn keeps_modes(given: Phrase<'_>, reading: Reading) -> bool {
    let from = if given.is_any(3, NARROW) && given.is_kind(4, TokenKind::Dot) { 5 } else { 3 };
    let form = given.is(0, "concat")
        && given.is_kind(1, TokenKind::Open)
        && given.is_kind(2, TokenKind::Setting)
        && given.is(from, "sql_mode")
        && given.is_kind(from + 1, TokenKind::Comma)
        && given.is_kind(from + 3, TokenKind::Close)
        && given.len() == from + 4;
    let value = names::string(given, from + 2, reading);
    let value = value.and_then(|value| String::from_utf8(value).ok());
    let neutral = SqlMode { ansi_quotes: Toggle::Off, no_backslash_escapes: Toggle::Off };
    // The comma in front keeps the first name from growing onto the last one that is there.
    form && value
        .is_some_and(|value| value.starts_with(',') && SqlMode::from_value(&value) == neutral)
}
