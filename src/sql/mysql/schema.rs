//! CREATE, ALTER and DROP: what they define, and which schemas they are about.
//!
//! Purpose: a schema is what MySQL calls a database. Statements that make, change or drop a whole
//! one are `lifecycle` and name it; settings of the server are `lifecycle` and name all; the rest
//! is `ddl`. Nearly all of them end an open transaction.

use super::super::classify::phrase::Phrase;
use super::super::statement::{Part, Shape, StatementClass};
use super::classify::Context;
use super::names;

const DDL: Part = Part { extra: Shape::COMMITS_IMPLICITLY, ..Part::of(StatementClass::Ddl) };

/// The place of the word that says what is created, dropped or altered.
fn what(text: Phrase<'_>) -> usize {
    let mut at = 1;
    if text.is(at, "or") {
        at += 2; // OR REPLACE
    }
    at
}

/// A statement about one whole schema, named behind `at`.
fn whole_schema(text: Phrase<'_>, at: usize, context: &mut Context<'_>) -> Part {
    let mut at = at + 1;
    if text.is(at, "if") {
        at += if text.is(at + 1, "not") { 3 } else { 2 };
    }
    match names::name(text, at, context.reading) {
        Some(name) => {
            context.detail.reach_database(name.clone());
            context.detail.my.name_schema(name);
        }
        None => {
            context.detail.any_database = true;
            context.detail.my.any_schema = true;
        }
    }
    Part { extra: Shape::COMMITS_IMPLICITLY, ..Part::of(StatementClass::Lifecycle) }
}

fn is_schema(text: Phrase<'_>, at: usize) -> bool {
    text.is_any(at, &["database", "schema"])
}

pub(super) fn create(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    let at = what(text);
    if is_schema(text, at) {
        return whole_schema(text, at, context);
    }
    if text.is(at, "temporary") {
        return Part { extra: Shape::KEEPS_LOCKS, ..DDL };
    }
    DDL
}

pub(super) fn drop(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    if is_schema(text, 1) {
        let part = whole_schema(text, 1, context);
        // The default schema may be the one that goes.
        return Part { extra: part.extra | Shape::CHANGES_SCHEMA, ..part };
    }
    if text.is(1, "prepare") {
        return super::commands::deallocate(text, context);
    }
    if text.is(1, "temporary") {
        return Part::of(StatementClass::Ddl);
    }
    DDL
}

pub(super) fn alter(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    if is_schema(text, 1) {
        // Without a name it is the default one, whose gate is asked in any case. Which words begin
        // an option and which may be a name differs between servers: each is taken for a name.
        return whole_schema(text, 1, context);
    }
    if text.is(1, "instance") {
        return context.server_wide(StatementClass::Lifecycle);
    }
    DDL
}
