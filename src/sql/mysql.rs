//! The MySQL family's side of this layer: lexing rules, lexer, classification.
//!
//! Purpose: what `lexer.rs` and `classify/` are for PostgreSQL, for MySQL and MariaDB. What both
//! families share (tokens, phrases, the cache, the plain values of `statement.rs`) stands outside.
//!
//! Called by the classifier, which dispatches on the lexing rules it gets.

mod classify;
mod commands;
mod dialect;
mod lexer;
mod login;
mod names;
mod read;
mod schema;
mod session;
mod split;
mod transaction;
mod witness;
mod words;

#[cfg(test)]
mod tests;

pub use dialect::{MyEncoding, MyFlavour, MyLexing, MyServer, SessionChange, SqlMode, Toggle};

pub use login::read_login_text;

pub(super) use classify::{readings, summary};
pub(super) use lexer::{Executable, MyLexer, Reading};
