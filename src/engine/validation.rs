//! Questions of a validation: texts that only read, and what they answer, within bounds.
//!
//! Purpose: the contract's `validation-query`. A text is sent only where the classifier proves it
//! to be one single read, on a connection of its own that serves this one question and is then
//! closed, in a read-only transaction that is rolled back. So what a text hides, the engine
//! refuses, and what lifts the engine's refusal is undone. A control account whose rights go beyond
//! the database asks only where nothing imported can run with them: no rollback undoes a program.
//!
//! Invariant 12: kept control connections take no part. Made by `engine::postgres` and
//! `engine::mysql`; asked by `control/targets.rs`, which holds it against the gate.

use super::error::EngineError;
use crate::base::limits;
use crate::sql::{Classifier, Lexing, StatementClass};

/// What one statement answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadTable {
    /// The names of its columns.
    pub columns: Vec<String>,
    /// Its rows, as the engine writes values; `None` is NULL. Bytes that aren't UTF-8 are written
    /// as `\x` and hexadecimal digits.
    pub rows: Vec<Vec<Option<String>>>,
}

/// Why there is no answer. `statement` counts from 1.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// It isn't shown to be a read, or the engine found it to write.
    #[error("statement {statement} is not a read: {words}; a validation only reads")]
    Writes {
        /// Which one.
        statement: usize,
        /// What it is taken for, or the engine's words.
        words: String,
    },
    /// Not one statement, or one that the engine can't run.
    #[error("statement {statement}: {words}")]
    Sql {
        /// Which one.
        statement: usize,
        /// What is wrong.
        words: String,
    },
    /// The database has code of its own, and the control account could do more by it than read.
    #[error(
        "the question is not asked: this database has, or can't be shown not to have, {what} of \
         its own, so it may run imported code with the rights of the proxy's control account, \
         which {rights}; ask in a session that shows a validation capability, with an account of \
         your own, or give the proxy a control account without these rights"
    )]
    ImportedCode {
        /// What may run.
        what: &'static str,
        /// What the account is or may do.
        rights: String,
    },
    /// There are more rows than are given, of all statements together.
    #[error(
        "there are more than {} rows, which is as many as one question is answered with; nothing \
         is cut off, ask for less",
        limits::VALIDATION_ROWS_MAX
    )]
    TooManyRows,
    /// The rows are larger than what is given.
    #[error(
        "the rows have more than {} bytes, which is as many as one question is answered with; \
         nothing is cut off, ask for less",
        limits::VALIDATION_BYTES_MAX
    )]
    TooManyBytes,
    /// The engine couldn't be asked.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Whether each text is one single read, before the first of them is sent.
///
/// # Errors
/// [`ReadError::Writes`] and [`ReadError::Sql`].
pub(super) fn must_read(
    classifier: &mut Classifier,
    lexing: Lexing,
    statements: &[String],
) -> Result<(), ReadError> {
    for (index, text) in statements.iter().enumerate() {
        let statement = index + 1;
        let found = classifier.classify(text.as_bytes(), lexing);
        match found.class() {
            StatementClass::Read => {}
            class @ (StatementClass::TransactionControl
            | StatementClass::Session
            | StatementClass::Stream
            | StatementClass::Write
            | StatementClass::Ddl
            | StatementClass::Lifecycle
            | StatementClass::Unprovable) => {
                let empty = found.shape().empty();
                let words = if empty { "it is empty".to_owned() } else { format!("it is {class}") };
                return Err(if empty {
                    ReadError::Sql { statement, words }
                } else {
                    ReadError::Writes { statement, words }
                });
            }
        }
        if !found.shape().single() {
            let words = "it is several statements; send each as one of its own".to_owned();
            return Err(ReadError::Sql { statement, words });
        }
    }
    Ok(())
}

/// Collects rows within the bounds of one question.
#[derive(Default)]
pub(super) struct Collected {
    tables: Vec<ReadTable>,
    rows: usize,
    bytes: usize,
}

impl Collected {
    /// Begins the next statement's answer.
    pub(super) fn begin(&mut self) {
        self.tables.push(ReadTable::default());
    }

    pub(super) fn columns(&mut self, names: Vec<String>) -> Result<(), ReadError> {
        self.count(names.iter().map(String::len).sum())?;
        if let Some(table) = self.tables.last_mut() {
            table.columns = names;
        }
        Ok(())
    }

    pub(super) fn row(&mut self, row: Vec<Option<String>>) -> Result<(), ReadError> {
        self.rows += 1;
        if self.rows > limits::VALIDATION_ROWS_MAX {
            return Err(ReadError::TooManyRows);
        }
        let bytes = row.iter().map(|value| 8 + value.as_ref().map_or(0, String::len)).sum();
        self.count(bytes)?;
        if let Some(table) = self.tables.last_mut() {
            table.rows.push(row);
        }
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), ReadError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > limits::VALIDATION_BYTES_MAX {
            return Err(ReadError::TooManyBytes);
        }
        Ok(())
    }

    pub(super) fn done(self) -> Vec<ReadTable> {
        self.tables
    }
}

/// Bytes as text.
pub(super) fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("\\x".to_owned(), |text, byte| format!("{text}{byte:02x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::sql::Trusted;

    fn judged(text: &str) -> Result<(), ReadError> {
        let mut classifier = Classifier::new(Arc::new(Trusted::default()), 0);
        must_read(&mut classifier, Lexing::STANDARD, &["select 1".to_owned(), text.to_owned()])
    }

    #[test]
    fn only_single_reads_are_sent() {
        for good in ["select count(*) from t", "select 1;", "show all", "table t"] {
            assert!(judged(good).is_ok(), "{good}: {:?}", judged(good));
        }
        for write in [
            "delete from t",
            "with x as (delete from t returning 1) select * from x",
            "select pg_terminate_backend(1)",
            "select f()",
            "commit",
            "set role app",
            "select 1; drop table t",
            "drop database app",
        ] {
            let error = judged(write).unwrap_err();
            assert!(matches!(error, ReadError::Writes { statement: 2, .. }), "{write}: {error}");
        }
        for wrong in ["", "-- nothing", "select 1; select 2"] {
            let error = judged(wrong).unwrap_err();
            assert!(matches!(error, ReadError::Sql { statement: 2, .. }), "{wrong}: {error}");
        }
    }

    #[test]
    fn rows_and_bytes_are_bounded_over_all_statements_and_never_cut() {
        let mut all = Collected::default();
        let row = || vec![Some("x".to_owned()), None];
        for _ in 0..2 {
            all.begin();
            for _ in 0..limits::VALIDATION_ROWS_MAX / 2 {
                all.row(row()).unwrap();
            }
        }
        assert!(matches!(all.row(row()), Err(ReadError::TooManyRows)));
        let mut all = Collected::default();
        all.begin();
        let half = || vec![Some("x".repeat(limits::VALIDATION_BYTES_MAX / 2))];
        all.row(half()).unwrap();
        assert!(matches!(all.row(half()), Err(ReadError::TooManyBytes)));
    }

    #[test]
    fn bytes_that_are_no_text_are_written_in_hexadecimal() {
        assert_eq!(shown("ä".as_bytes()), "ä");
        assert_eq!(shown(b"\xff\x00a"), "\\xff0061");
    }
}
