//! What a fuzzer asks of the consoles: any bytes in, a broken property out.
//!
//! Purpose: one function per target, called by `fuzz/` (libFuzzer) and by `tests/fuzz_smoke.rs` (a
//! deterministic mutator). Pure. Not in release builds. It states properties, and decides nothing.

use super::chatter::{self, Asker};
use super::grammar::{Dialect, Keys, Statement, parse};
use super::handshake;

/// The grammar: nothing panics, an error's place is within the text, and what is read prints to a
/// text that reads the same. Small talk and a login's first packet are read on the way.
///
/// # Errors
/// Which property broke.
pub fn console_grammar(data: &[u8]) -> Result<(), String> {
    let _read = handshake::response(data);
    let text = String::from_utf8_lossy(data);
    for dialect in [Dialect::Postgres, Dialect::Mysql] {
        match parse(&text, dialect) {
            Err(wrong) => {
                let end = text.chars().count() + 1;
                if wrong.position == 0 || wrong.position > end {
                    return Err(format!("{wrong:?} is outside of {text:?}"));
                }
            }
            Ok(Statement::Other) => {
                let asker = Asker { user: String::new(), database: String::new(), connection: 1 };
                let _answered = chatter::answer(&text, dialect, &asker);
            }
            Ok(statement) => {
                let written = statement.written(dialect, Keys::Shown).unwrap_or_default();
                let again = parse(&written, dialect);
                if again.as_ref() != Ok(&statement) {
                    return Err(format!("{text:?} is {statement:?}, its {written:?} is {again:?}"));
                }
            }
        }
    }
    Ok(())
}
