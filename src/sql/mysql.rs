//! The MySQL family's side of this layer: lexing rules, lexer, classification.
//!
//! Purpose: what `lexer.rs` and `classify/` are for PostgreSQL, for MySQL and MariaDB. What both
//! families share (tokens, phrases, the cache, the plain values of `statement.rs`) stands outside.
//!
//! Called by the classifier, which dispatches on the lexing rules it gets.

mod dialect;

pub use dialect::{MyEncoding, MyFlavour, MyLexing, MyServer, SessionChange, SqlMode, Toggle};
