//! CREATE, ALTER, DROP: schema changes, and the ones that reach other databases.
//!
//! Purpose: tell `ddl` from `lifecycle`, and name the databases of the latter, since those are
//! admitted against the fences of every database they touch (W7). Invariant: a database that can't
//! be named as the engine names it makes `any_database` true.

use super::super::lexer::TokenKind;
use super::super::statement::{Detail, Part, StatementClass};
use super::phrase::Phrase;
use super::{Context, plan};

const LIFECYCLE: Part = Part::of(StatementClass::Lifecycle);
const DDL: Part = Part::of(StatementClass::Ddl);

fn note(text: Phrase<'_>, at: usize, detail: &mut Detail) {
    let plain = || text.plain_text(at).and_then(|name| std::str::from_utf8(name).ok());
    match text.name(at).or_else(|| plain().map(str::to_owned)) {
        Some(name) => detail.reach_database(name),
        None => detail.any_database = true,
    }
}

pub(super) fn create(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    if !text.is(1, "database") {
        return plan::create(text, context);
    }
    note(text, 2, &mut context.detail);
    for at in 3..text.len() {
        if text.is(at, "template") {
            let value = if text.bytes(at + 1) == b"=" { at + 2 } else { at + 1 };
            note(text, value, &mut context.detail);
        }
    }
    LIFECYCLE
}

pub(super) fn alter(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    if text.is(1, "database") {
        note(text, 2, &mut context.detail);
        if text.is(3, "rename") && text.is(4, "to") {
            note(text, 5, &mut context.detail);
        }
        return LIFECYCLE;
    }
    if text.is(1, "system") {
        context.detail.any_database = true;
        return LIFECYCLE;
    }
    let role = text.is_any(1, &["role", "user", "group"]) && !text.is(2, "mapping");
    // Settings of a role hold in its later sessions, in one database or in all.
    if role && (2..text.len()).any(|at| text.is_any(at, &["set", "reset"])) {
        match (2..text.len()).find(|&at| text.is(at, "in") && text.is(at + 1, "database")) {
            Some(at) => note(text, at + 2, &mut context.detail),
            None => context.detail.any_database = true,
        }
        return LIFECYCLE;
    }
    DDL
}

pub(super) fn drop(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    if text.is(1, "database") {
        let exists = text.is(2, "if") && text.is(3, "exists");
        note(text, if exists { 4 } else { 2 }, &mut context.detail);
        return LIFECYCLE;
    }
    if text.is(1, "owned") { owned(context) } else { DDL }
}

/// `COMMENT`, `SECURITY LABEL`, `GRANT`, `REVOKE`: schema changes, but for those `ON DATABASE`,
/// which any session of the engine may send.
pub(super) fn on_object(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    let Some(on) = (1..text.len()).find(|&at| text.is(at, "on")) else { return DDL };
    if !text.is(on + 1, "database") {
        return DDL;
    }
    let mut at = on + 2;
    note(text, at, &mut context.detail);
    while text.is_kind(at + 1, TokenKind::Comma) {
        at += 2;
        note(text, at, &mut context.detail);
    }
    LIFECYCLE
}

/// `REASSIGN OWNED`, `DROP OWNED`: databases a role owns, and grants on any, go with it.
pub(super) fn owned(context: &mut Context<'_>) -> Part {
    context.detail.any_database = true;
    LIFECYCLE
}
