//! The other commands: SHOW, EXPLAIN, USE, prepared texts, CALL, KILL and their kin.
//!
//! Purpose: what each may do, and what the relay must know of it.

use crate::base::limits;

use super::super::classify::phrase::Phrase;
use super::super::lexer::TokenKind;
use super::super::statement::{
    Classified, GuardBreak, Kill, Part, Shape, StatementClass, TxEffect,
};
use super::classify::Context;
use super::dialect::MyFlavour;
use super::{names, session};

const READ: Part = Part::of(StatementClass::Read);

/// Whether a query begins here, parentheses in front of it included.
fn begins_query(text: Phrase<'_>) -> bool {
    let first = (0..text.len()).find(|&at| !text.is_kind(at, TokenKind::Open));
    first.is_some_and(|at| text.is_any(at, &["select", "table", "values", "with"]))
}

/// `USE schema`.
pub(super) fn use_schema(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    let Some(name) = names::name(text, 1, context.reading).filter(|_| text.len() == 2) else {
        return unknown_schema(text, context);
    };
    context.detail.my.name_schema(name.clone());
    context.detail.my.default_schema = Some(name);
    Part { extra: Shape::CHANGES_SCHEMA, ..Part::of(StatementClass::Session) }
}

/// `USE` of a schema whose name may be another one to the engine: where the session is then, only
/// the engine knows.
fn unknown_schema(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    if text.len() != 2 || !text.is_name(1) {
        return context.opaque();
    }
    context.detail.my.any_schema = true;
    context.detail.my.default_schema = None;
    Part { extra: Shape::CHANGES_SCHEMA, ..Part::of(StatementClass::Session) }
}

/// `SHOW …` reads, unless its WHERE calls something. A schema may stand behind FROM or IN.
pub(super) fn show(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    for at in 1..text.len() {
        if text.is_any(at, &["from", "in", "database", "schema"]) && text.is_name(at + 1) {
            names::named(text, at + 1, context.reading, &mut context.detail.my);
        }
    }
    context.walk().calls(text)
}

/// `EXPLAIN`, `DESCRIBE`: of a table, of a query, of another connection.
pub(super) fn explain(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    let mut at = 1;
    while at < text.len() {
        if text.is_any(at, &["extended", "partitions", "analyze"]) && text.len() > at + 1 {
            at += 1;
        } else if text.is(at, "format") && text.bytes(at + 1) == b"=" {
            at += 3;
        } else if text.is(at, "into") && text.is_kind(at + 1, TokenKind::Variable) {
            at += 2;
        } else if text.is(at, "for") && text.is_any(at + 1, &["database", "schema"]) {
            names::named(text, at + 2, context.reading, &mut context.detail.my);
            at += 3;
        } else {
            break;
        }
    }
    let inner = text.rest(at);
    if begins_query(inner) {
        return context.query(inner);
    }
    if inner.is(0, "for") && inner.is(1, "connection") {
        return READ;
    }
    if inner.is_any(0, &["insert", "update", "delete", "replace"]) {
        // The engine refuses these in a read-only session, too.
        return Part::of(StatementClass::Write);
    }
    // A table, and perhaps a column or a pattern: nothing that could hold a call.
    let table = inner.is_name(0)
        && !(0..inner.len()).any(|at| inner.is_kind(at, TokenKind::Open))
        && inner.len() <= 6;
    if table { READ } else { context.opaque() }
}

/// `DO expression, …`.
pub(super) fn run_expressions(text: Phrase<'_>, context: &Context<'_>) -> Part {
    context.query(text.rest(1))
}

/// CALL may commit and start again read-write inside, and leave autocommit off; only a procedure
/// declared harmless passes. Modes and character set it can't leave behind: the engine puts them
/// back. But MariaDB lets it prepare and execute a USE, and that stays.
pub(super) fn call(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    let mut part = Part::of(StatementClass::Write);
    let target = text.rest(1);
    let open = (0..target.len()).find(|&at| target.is_kind(at, TokenKind::Open));
    let named = open.unwrap_or(target.len());
    let trusted = match named {
        1 => names::folded(target, 0).is_some_and(|name| context.trusted.contains(None, &name)),
        3 => names::folded(target, 2)
            .zip(names::name(target, 0, context.reading))
            .is_some_and(|(name, schema)| context.trusted.contains(Some(&schema), &name)),
        _ => false,
    };
    if trusted {
        part = context.expression(target.rest(named));
    } else if context.expression(target.rest(named)).class == StatementClass::Unprovable {
        part.class = StatementClass::Unprovable;
    }
    let moves = !trusted && context.reading.server.flavour == MyFlavour::MariaDb;
    Part {
        commits: true,
        breaks: GuardBreak::Reset,
        extra: part.extra
            | if moves { Shape::CHANGES_SCHEMA } else { 0 }
            // What is declared harmless ends no transaction of its caller's.
            | if trusted { 0 } else { Shape::COMMITS_IMPLICITLY }
            | Shape::CHANGES_AUTOCOMMIT
            | Shape::KEEPS_LOCKS,
        ..part
    }
}

/// `HANDLER t OPEN|READ|CLOSE`: reads past the transaction, and stays open.
pub(super) fn handler(text: Phrase<'_>, context: &Context<'_>) -> Part {
    let part = context.query(text);
    if text.has("open") { Part { extra: part.extra | Shape::KEEPS_LOCKS, ..part } } else { part }
}

/// `PREPARE name FROM 'text'`: what the text may do counts when it runs. But MariaDB runs some
/// functions of it at once, while it reads it (`ROUND(1.55, f())`, also behind a view): it is a
/// read, or what nobody can prove, at the schemas that the text names.
pub(super) fn prepare(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    if !text.is_name(1) || !text.is(2, "from") {
        return context.opaque();
    }
    let literal = (text.len() == 4).then(|| names::string(text, 3, context.reading)).flatten();
    let found = match literal {
        Some(inner) => context.inner(&inner),
        None => Classified::unreadable_mysql(),
    };
    context.speaks_of(&found);
    let class = match found.class() {
        StatementClass::Unprovable => StatementClass::Unprovable,
        StatementClass::TransactionControl
        | StatementClass::Session
        | StatementClass::Read
        | StatementClass::Stream
        | StatementClass::Write
        | StatementClass::Ddl
        | StatementClass::Lifecycle => StatementClass::Read,
    };
    let few = context.detail.my.prepared.len() < limits::EXECUTED_NAMES_MAX;
    match names::folded(text, 1).filter(|_| few) {
        Some(name) => context.detail.my.prepared.push((name, found)),
        None => context.detail.my.names_unknown = true,
    }
    let part = session::value(text.rest(3), context);
    Part { class: part.class.strongest(class), ..part }
}

/// `EXECUTE name`: its class isn't in the program's own. `EXECUTE IMMEDIATE` is a writer (W18), and
/// whatever its text is.
pub(super) fn execute(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    if !text.is(1, "immediate") {
        let few = context.detail.executes.len() < limits::EXECUTED_NAMES_MAX;
        let Some(name) = names::folded(text, 1).filter(|_| few) else { return context.opaque() };
        context.detail.executes.push(name);
        return context.expression(text.rest(2));
    }
    let literal =
        names::string(text, 2, context.reading).filter(|_| text.len() == 3 || text.is(3, "using"));
    let Some(literal) = literal else { return context.opaque() };
    let inner = context.inner(&literal);
    let Some(part) = context.runs(&inner) else { return context.opaque() };
    Part {
        class: StatementClass::Write.strongest(inner.class()),
        tx: if inner.shape().tx() == TxEffect::None { TxEffect::None } else { TxEffect::Mixed },
        ..part
    }
}

/// `DEALLOCATE PREPARE name`, `DROP PREPARE name`.
pub(super) fn deallocate(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    let few = context.detail.my.deallocated.len() < limits::EXECUTED_NAMES_MAX;
    match names::folded(text, 2).filter(|_| few) {
        Some(name) => context.detail.my.deallocated.push(name),
        None => context.detail.my.names_unknown = true,
    }
    Part::of(StatementClass::Session)
}

/// `KILL [HARD|SOFT] [CONNECTION|QUERY] number` changes no data: it ends a session or its
/// statement, as a cancel request does. Every other form, by user or by query, is a writer.
pub(super) fn kill(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    let mut at = 1 + usize::from(text.is_any(1, &["hard", "soft"]));
    let soft = text.is(1, "soft");
    let query_only = text.is(at, "query");
    at += usize::from(text.is_any(at, &["query", "connection"]));
    let number = std::str::from_utf8(text.bytes(at)).ok().and_then(|digits| digits.parse().ok());
    let Some(connection) = number.filter(|_| text.len() == at + 1) else {
        return Part::of(StatementClass::Write);
    };
    context.detail.my.kill = Some(Kill { connection, query_only, soft });
    Part::of(StatementClass::Session)
}

/// `LOAD DATA`, `LOAD XML`; `LOAD INDEX INTO CACHE` ends a transaction, too.
pub(super) fn load(text: Phrase<'_>) -> Part {
    let extra = if text.is(1, "index") { Shape::COMMITS_IMPLICITLY } else { 0 };
    Part { extra, ..Part::of(StatementClass::Write) }
}
