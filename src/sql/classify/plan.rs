//! Statements around another one: EXPLAIN, PREPARE, EXECUTE, DECLARE, COPY, CALL, LOCK.
//!
//! Purpose: their class is that of what they carry. Invariant: what they carry is one of the few
//! plannable statements or a query; anything else makes them `unprovable`, and nothing recurses.

use super::super::lexer::TokenKind;
use super::super::statement::{GuardBreak, Part, StatementClass};
use super::phrase::Phrase;
use super::{Context, read};

const UNPROVABLE: Part = Part::of(StatementClass::Unprovable);

/// The first words of a query.
pub(super) const QUERY: &[&str] = &["select", "table", "values", "with"];

/// Whether a query begins here, parentheses in front of it included.
fn begins_query(text: Phrase<'_>) -> bool {
    let first = (0..text.len()).find(|&at| !text.is_kind(at, TokenKind::Open));
    first.is_some_and(|at| text.is_any(at, QUERY))
}

/// What EXPLAIN and PREPARE may carry.
fn carried(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    if begins_query(text) {
        return context.query(text);
    }
    if text.is_any(0, &["insert", "update", "delete", "merge", "refresh"]) {
        return Part::of(StatementClass::Write);
    }
    if text.is(0, "create") {
        return create(text, context);
    }
    if text.is(0, "execute") {
        return execute(text, context);
    }
    if text.is(0, "declare") {
        return declare(text, context);
    }
    UNPROVABLE
}

/// CREATE with anything but a database: `CREATE TABLE … AS EXECUTE p` names a prepared statement.
pub(super) fn create(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    for at in 0..text.len() {
        if text.is(at, "as") && text.is(at + 1, "execute") {
            let Some(name) = text.name(at + 2) else { return UNPROVABLE };
            context.detail.executes.push(name);
        }
    }
    Part::of(StatementClass::Ddl)
}

/// EXPLAIN runs its statement only with ANALYZE. Without, the planner still evaluates calls that
/// are declared immutable or stable, so unknown ones stay unprovable.
pub(super) fn explain(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    let mut at = 1;
    let mut runs = false;
    if text.is_kind(at, TokenKind::Open) && !begins_query(text.rest(at)) {
        let Some(close) = text.mate(at) else { return UNPROVABLE };
        runs = option_runs(text.part(at + 1..close));
        at = close + 1;
    } else {
        while text.is_any(at, &["analyze", "analyse", "verbose"]) {
            runs |= !text.is(at, "verbose");
            at += 1;
        }
    }
    let inner = text.rest(at);
    let part = carried(inner, context);
    if runs || !context.proofs || inner.is(0, "execute") {
        return part;
    }
    let known = begins_query(inner)
        || inner.is_any(0, &["insert", "update", "delete", "merge", "refresh"])
        || inner.is_any(0, &["create", "declare"]);
    let planned = read::calls(inner, context.trusted);
    if !known || planned.class == StatementClass::Unprovable {
        return UNPROVABLE;
    }
    Part::of(StatementClass::Read)
}

/// Whether a parenthesised option list of EXPLAIN asks for the statement to be run.
fn option_runs(options: Phrase<'_>) -> bool {
    let mut at = 0;
    while at < options.len() {
        let named = options.is_any(at, &["analyze", "analyse"])
            || matches!(options.kind(at), Some(TokenKind::Quoted | TokenKind::UnicodeQuoted));
        let end = (at..options.len())
            .find(|&at| options.is_kind(at, TokenKind::Comma))
            .unwrap_or(options.len());
        if named {
            let value = options.plain_text(at + 1).unwrap_or_else(|| options.bytes(at + 1));
            let off = [&b"false"[..], b"off", b"0"];
            let is_off = off.iter().any(|word| value.eq_ignore_ascii_case(word));
            if !(is_off && end == at + 2) {
                return true;
            }
        }
        at = end + 1;
    }
    false
}

/// `PREPARE name [(types)] AS statement`: session state; what it may do counts when it runs.
pub(super) fn prepare(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    let (Some(name), Some(as_at)) = (text.name(1), text.find(2, "as")) else { return UNPROVABLE };
    let inner = text.rest(as_at + 1);
    let plannable =
        begins_query(inner) || inner.is_any(0, &["insert", "update", "delete", "merge"]);
    let part = if plannable { carried(inner, context) } else { UNPROVABLE };
    // A later EXECUTE by class alone must not hide that the lexing rules change behind it.
    let class = if part.lexing { StatementClass::Unprovable } else { part.class };
    context.detail.prepares.push((name, class));
    Part::of(StatementClass::Session)
}

/// `EXECUTE name [(arguments)]`: a read as far as the arguments go; the name is in the detail.
pub(super) fn execute(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    let Some(name) = text.name(1) else { return UNPROVABLE };
    context.detail.executes.push(name);
    // The arguments in their parentheses; the name in front would look like a call.
    let mut part = context.expression(text.rest(2));
    part.lexing = true;
    part
}

/// `DECLARE name … CURSOR … FOR query`.
pub(super) fn declare(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    let cursor = (2..text.len()).find(|&at| text.is(at, "cursor"));
    let query = cursor.and_then(|at| text.find(at, "for")).map(|at| text.rest(at + 1));
    match query {
        Some(query) if begins_query(query) => context.query(query),
        Some(_) | None => UNPROVABLE,
    }
}

/// Whether it is a DECLARE … WITH HOLD: the word stands in front of the query's FOR, and nowhere
/// else there. (WITHOUT is another word.)
pub(super) fn declares_hold(text: Phrase<'_>) -> bool {
    let before = |with: usize| text.find(2, "for").is_none_or(|query| with < query);
    text.find(2, "with").is_some_and(before)
}

/// COPY reads only towards the client: a table, or a query that is itself a read.
pub(super) fn copy(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    let write = Part::of(StatementClass::Write);
    let (source, to) = if text.is_kind(1, TokenKind::Open) {
        let Some(close) = text.mate(1) else { return UNPROVABLE };
        (Some(text.part(2..close)), close + 1)
    } else {
        let Some(to) = text.find(1, "to") else { return write };
        if text.find(1, "from").is_some_and(|from| from < to) {
            return write;
        }
        (None, to)
    };
    if !text.is(to, "to") || !text.is_any(to + 1, &["stdout", "stdin"]) {
        return write;
    }
    match source {
        None => Part::of(StatementClass::Read),
        Some(query) if begins_query(query) => context.query(query),
        Some(inner) if inner.is_any(0, &["insert", "update", "delete", "merge"]) => write,
        Some(_) => UNPROVABLE,
    }
}

/// CALL may commit and start again read-write inside; only a procedure declared harmless passes.
pub(super) fn call(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    let mut part = Part::of(StatementClass::Write);
    let target = text.rest(1);
    if context.proofs && read::names_trusted(target, context.trusted) {
        part = context.expression(target);
    }
    part.commits = true;
    part.breaks = GuardBreak::End;
    part.lexing = true;
    part
}

/// DO runs code that nobody reads; it may do all that CALL may.
pub(super) const fn run_block() -> Part {
    Part { commits: true, breaks: GuardBreak::End, lexing: true, ..Part::of(StatementClass::Write) }
}

/// Only the two modes that readers take themselves don't count as a writer's.
pub(super) fn lock(text: Phrase<'_>) -> Part {
    let in_at = text.find(1, "in").unwrap_or(text.len());
    let shared = text.is_any(in_at + 1, &["access", "row"])
        && text.is(in_at + 2, "share")
        && text.is(in_at + 3, "mode");
    Part::of(if shared { StatementClass::Read } else { StatementClass::Write })
}
