//! L1: what a statement is. Text in, class and shape out; no async, no clock, no input or output.
//!
//! Purpose: layer A of the enforcement (see docs/ARCHITECTURE.md): tell, before the engine sees a
//! program, whether it may write, what it does to the transaction, and whether it can drop the
//! read-only guard that stands under the proxy's reads.
//!
//! Invariants: unknown means the most restrictive class (4); nothing a client sends makes this
//! module panic, recurse without bound, or keep memory beyond its fixed cache.
//!
//! What it deliberately doesn't know: views, triggers, row policies, user operators and casts,
//! functions reached as `row.function`, and overloads of a built-in name. A text can't show these.
//! The guard and the engine's own evidence stand below this layer for exactly that reason.
//!
//! Called by the relays (one [`Classifier`] per worker), the fence verdict (classes only) and the
//! checker. `sqlparser` is used here and nowhere else.

mod builtin;
mod cache;
mod classify;
mod dialect;
mod fingerprint;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod fuzzing;
mod lexer;
mod moving;
mod mysql;
mod recall;
mod statement;
mod trusted;

pub use cache::CacheStats;
pub use classify::{Classifier, MAX_PROVABLE_TEXT};
pub use dialect::{Encoding, Lexing, PgLexing};
pub use fingerprint::{FINGERPRINT_CHARS_MAX, fingerprint};
pub use moving::must_be_parsed_anew;
pub use mysql::{
    MyEncoding, MyFlavour, MyLexing, MyServer, SessionChange, SqlMode, Toggle, read_login_text,
};
pub use statement::{Classified, Detail, Kill, MyDetail, Shape, StatementClass, TxEffect};
pub use trusted::Trusted;
