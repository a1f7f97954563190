//! What `SHOW HELP` shows.
//!
//! Purpose: every statement there is, and what it does, in rows that a terminal of 100 columns
//! doesn't break, the frames of `psql` and `mysql` included: a long form goes on in the next row,
//! between its clauses. Pure. No invariant is its. Caller: `console/run.rs`. How a statement is
//! written is `console/grammar.rs`'s.

use serde_json::{Value, json};

use super::grammar;
use crate::fence::command::CommandKind;

/// Columns of the statement's part of a row.
const STATEMENT_COLUMNS: usize = 56;
/// Columns of the other part; with both frames of `mysql` and its three bars a row has 100.
const TEXT_COLUMNS: usize = 37;

/// Every statement there is.
pub(super) fn help() -> Vec<Value> {
    let questions = [
        ("SHOW NAMESPACES", "every database with a fence, a session or a route"),
        ("SHOW FENCES", "those with a fence: state, owner, drain, blockers"),
        ("SHOW TARGETS", "targets of moves, a row per live capability"),
        ("SHOW SESSIONS", "client sessions and what they hold"),
        ("SHOW DRAINS", "what each running drain waits for, a row per blocker"),
        ("SHOW RECEIPTS [FOR 'engine/database']", "the durable answers to commands"),
        ("SHOW CAPABILITIES", "what this version can do"),
        ("SHOW CONFIG", "the settings in force, without secrets"),
        ("SHOW STATS", "every metric"),
        ("SHOW VERSION", "the version of this proxy"),
        ("SHOW HELP", "this list (HELP works too where the client doesn't keep it for itself)"),
        ("SHOW ... VERBOSE", "the same with every column"),
        ("INSPECT 'engine/database'", "everything about one fence: state, evidence, receipts"),
    ];
    let mut rows: Vec<Value> = Vec::new();
    for (statement, text) in questions {
        rows.extend(entry(&[statement.to_owned()], text));
    }
    for kind in CommandKind::ALL {
        rows.extend(entry(&grammar::form(kind), what(kind)));
        if kind == CommandKind::CreateTargetQuarantined {
            let text = "give out a capability of a target; its secret is shown this once";
            rows.extend(entry(&grammar::capability_form(), text));
        }
    }
    rows
}

/// The rows of one statement.
fn entry(form: &[String], text: &str) -> Vec<Value> {
    let statement = wrapped(form.iter().map(String::as_str), STATEMENT_COLUMNS, "  ");
    let text = wrapped(text.split(' '), TEXT_COLUMNS, "");
    let at = |lines: &[String], row: usize| lines.get(row).cloned().unwrap_or_default();
    let rows = statement.len().max(text.len());
    (0..rows).map(|row| json!([at(&statement, row), at(&text, row)])).collect()
}

/// Pieces with blanks between them, in lines of at most `columns` where the pieces are that short;
/// all but the first line begin with `indent`.
fn wrapped<'a>(pieces: impl Iterator<Item = &'a str>, columns: usize, indent: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for piece in pieces {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + piece.chars().count() <= columns => {
                line.push(' ');
                line.push_str(piece);
            }
            Some(_) => lines.push(format!("{indent}{piece}")),
            None => lines.push(piece.to_owned()),
        }
    }
    lines
}

const fn what(kind: CommandKind) -> &'static str {
    match kind {
        CommandKind::AcquireSourceWriteFence => "close writes and prove that nothing writes",
        CommandKind::SetSourceReadFence => "close reads too, behind a write fence",
        CommandKind::ClearSourceReadFence => "open reads again; writes stay closed",
        CommandKind::ReleaseSourceWriteFence => "open writes again",
        CommandKind::CreateTargetQuarantined => "make an empty target that nobody can reach",
        CommandKind::SealTargetImport => "end the import for good",
        CommandKind::RecordTargetValidation => "record what a validation found",
        CommandKind::PublishTargetReadableWriteFenced => "open the target for reads",
        CommandKind::EnableTargetWrites => "open the target for writes; irreversible",
        CommandKind::AbortQuarantinedTarget => "give the target up",
        CommandKind::AdoptFence => "move a fence to another operation; needs the second key",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_is_wider_than_a_terminal_of_100_columns() {
        for row in help() {
            let [statement, text] = [0, 1].map(|at| row[at].as_str().unwrap().chars().count());
            assert!(statement <= STATEMENT_COLUMNS && text <= TEXT_COLUMNS, "{row}");
        }
        assert_eq!("|  |  |".len() + STATEMENT_COLUMNS + TEXT_COLUMNS, 100);
    }

    /// What is read down both columns is every form, whole.
    #[test]
    fn every_statement_is_there_with_all_its_clauses() {
        let rows = help();
        let read = |at: usize| {
            let cells = rows.iter().map(|row| row[at].as_str().unwrap().trim());
            cells.filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join(" ")
        };
        let (statements, texts) = (read(0), read(1));
        for kind in CommandKind::ALL {
            assert!(statements.contains(&grammar::form(kind).join(" ")), "{statements}");
            assert!(texts.contains(what(kind)), "{texts}");
        }
        assert!(statements.contains(&grammar::capability_form().join(" ")), "{statements}");
    }
}
