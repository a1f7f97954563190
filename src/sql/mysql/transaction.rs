//! Transaction control, XA and table locks.
//!
//! Purpose: what each statement does to the transaction, and which of them open something
//! read-write (W18): those are writers whatever their form. The guard is a setting of the session
//! here, so the end of a transaction doesn't drop it.

use super::super::classify::phrase::Phrase;
use super::super::statement::{GuardBreak, Part, Shape, StatementClass, TxEffect};
use super::classify::Context;
use super::dialect::MyFlavour;
use super::split;

fn control(tx: TxEffect) -> Part {
    Part { tx, ..Part::of(StatementClass::TransactionControl) }
}

const BEGIN: Part = Part {
    tx: TxEffect::Begin,
    extra: Shape::COMMITS_IMPLICITLY,
    ..Part::of(StatementClass::TransactionControl)
};

/// `BEGIN [WORK]`; anything behind it makes it a block, whose statements nobody reads.
pub(super) fn begin(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    if text.len() == 1 || (text.len() == 2 && text.is(1, "work")) {
        return BEGIN;
    }
    if split::has_body(text, 0) {
        return Part { class: StatementClass::Write, ..context.opaque() };
    }
    context.opaque()
}

/// `START TRANSACTION …`; the other forms start replication.
pub(super) fn start(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    if !text.is(1, "transaction") {
        return context.server_wide(StatementClass::Lifecycle);
    }
    if text.has_pair("read", "write") {
        return Part { class: StatementClass::Write, breaks: GuardBreak::Setting, ..BEGIN };
    }
    BEGIN
}

/// `AND CHAIN` without `NO`: the next transaction inherits the mode, so it may be read-write.
fn end(text: Phrase<'_>, tx: TxEffect) -> Part {
    let mut part = control(tx);
    if text.has_pair("and", "chain") {
        part.class = StatementClass::Write;
        part.breaks = GuardBreak::End;
    }
    part
}

/// `COMMIT [WORK] [AND [NO] CHAIN] [[NO] RELEASE]`.
pub(super) fn commit(text: Phrase<'_>) -> Part {
    Part { commits: true, ..end(text, TxEffect::Commit) }
}

/// `ROLLBACK`, `ROLLBACK TO`.
pub(super) fn rollback(text: Phrase<'_>) -> Part {
    if text.has("to") {
        control(TxEffect::RollbackToOrRelease)
    } else {
        end(text, TxEffect::Rollback)
    }
}

pub(super) fn savepoint() -> Part {
    control(TxEffect::Savepoint)
}

pub(super) fn release() -> Part {
    control(TxEffect::RollbackToOrRelease)
}

/// A prepared branch lives on without its session and is ended from anywhere: PREPARE, COMMIT and
/// ROLLBACK are writers. The relay knows whether a ROLLBACK is about the session's own branch.
pub(super) fn xa(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    if text.is(1, "recover") {
        return Part::of(StatementClass::Read);
    }
    let part = Part { extra: Shape::XA, ..Part::of(StatementClass::Write) };
    if text.is_any(1, &["start", "begin"]) {
        let (class, extra) = (StatementClass::TransactionControl, Shape::XA | Shape::BEGINS_BRANCH);
        return Part { class, tx: TxEffect::Begin, extra, ..part };
    }
    if text.is(1, "end") {
        return Part { class: StatementClass::TransactionControl, ..part };
    }
    if text.is(1, "prepare") {
        // MySQL parts the branch from its session: its second phase is asked for at every gate, and
        // what that would refuse isn't prepared.
        context.detail.my.any_schema |= context.reading.server.flavour == MyFlavour::MySql;
        return Part { tx: TxEffect::Prepare, commits: true, ..part };
    }
    context.detail.my.any_schema = true;
    match (text.is(1, "commit"), text.is(1, "rollback")) {
        (true, _) => Part { tx: TxEffect::Commit, commits: true, ..part },
        (_, true) => Part { tx: TxEffect::Rollback, ..part },
        (false, false) => context.opaque(),
    }
}

/// `LOCK TABLES … READ` keeps writers out and changes nothing; any other lock is a writer's.
pub(super) fn lock(text: Phrase<'_>, context: &mut Context<'_>) -> Part {
    let locks = Shape::COMMITS_IMPLICITLY | Shape::KEEPS_LOCKS;
    if !text.is_any(1, &["table", "tables"]) {
        let part = context.server_wide(StatementClass::Write); // LOCK INSTANCE FOR BACKUP
        return Part { extra: locks, ..part };
    }
    let class = if text.has("write") { StatementClass::Write } else { StatementClass::Read };
    Part { extra: locks, ..Part::of(class) }
}

/// Ends the transaction only if tables were locked.
pub(super) const fn unlock() -> Part {
    Part { extra: Shape::COMMITS_IMPLICITLY, ..Part::of(StatementClass::Session) }
}
