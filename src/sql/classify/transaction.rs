//! Transaction control.
//!
//! Purpose: what each statement does to the transaction, and which of them open something
//! read-write. The design's W18 has all of these be writers; here `BEGIN … READ WRITE` is none,
//! because drivers begin every transaction so: what comes in such a block has the guard in front,
//! as in one from before a fence. `AND CHAIN` stays one.

use super::super::lexer::TokenKind;
use super::super::statement::{GuardBreak, Part, StatementClass, TxEffect};
use super::phrase::Phrase;

fn control(tx: TxEffect, breaks: GuardBreak) -> Part {
    Part { tx, breaks, ..Part::of(StatementClass::TransactionControl) }
}

/// `BEGIN`, `START TRANSACTION`. Inside a block the engine warns, and takes the mode all the same.
pub(super) fn begin(text: Phrase<'_>) -> Part {
    let read_write = text.has_pair("read", "write");
    let breaks = if read_write { GuardBreak::ReadWriteBlock } else { GuardBreak::None };
    control(TxEffect::Begin, breaks)
}

/// `AND CHAIN` without `NO`: the next transaction inherits the mode, so it may be read-write.
fn chains(text: Phrase<'_>) -> bool {
    text.has_pair("and", "chain")
}

/// `COMMIT`, `END`, `COMMIT PREPARED`.
pub(super) fn commit(text: Phrase<'_>) -> Part {
    if text.is(1, "prepared") {
        return Part { commits: true, ..Part::of(StatementClass::Write) };
    }
    let mut part = control(TxEffect::Commit, GuardBreak::End);
    part.commits = true;
    if chains(text) {
        part.class = StatementClass::Write;
    }
    part
}

/// `ROLLBACK`, `ABORT`, `ROLLBACK TO`, `ROLLBACK PREPARED`.
pub(super) fn rollback(text: Phrase<'_>) -> Part {
    if text.is(1, "prepared") {
        return Part::of(StatementClass::Write);
    }
    if text.has("to") {
        return control(TxEffect::RollbackToOrRelease, GuardBreak::End);
    }
    let mut part = control(TxEffect::Rollback, GuardBreak::End);
    if chains(text) {
        part.class = StatementClass::Write;
    }
    part
}

pub(super) fn savepoint() -> Part {
    control(TxEffect::Savepoint, GuardBreak::None)
}

pub(super) fn release() -> Part {
    control(TxEffect::RollbackToOrRelease, GuardBreak::End)
}

/// `PREPARE TRANSACTION 'gid'`, as told apart from a prepared statement called `transaction`.
pub(super) fn is_prepare_transaction(text: Phrase<'_>) -> bool {
    text.is(1, "transaction") && !text.is(2, "as") && !text.is_kind(2, TokenKind::Open)
}

/// The transaction lives on without its session and is committed from anywhere: a writer.
pub(super) fn prepare_transaction() -> Part {
    Part {
        tx: TxEffect::Prepare,
        commits: true,
        breaks: GuardBreak::End,
        ..Part::of(StatementClass::Write)
    }
}
