//! Values of rows as texts and numbers, and names as SQL.
//!
//! Purpose: every question of this folder uses the text protocol, so that one small reader will do
//! and no value can fail to convert. Called by the other files of this folder.

use mysql_async::{Row, Value};

/// A column as text; `None` for NULL and for a column that isn't there.
pub(super) fn text(row: &Row, column: usize) -> Option<String> {
    match row.as_ref(column)? {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::Int(number) => Some(number.to_string()),
        Value::UInt(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Double(number) => Some(number.to_string()),
        other @ (Value::Date(..) | Value::Time(..)) => Some(other.as_sql(true)),
    }
}

/// The same, empty for NULL.
pub(super) fn words(row: &Row, column: usize) -> String {
    text(row, column).unwrap_or_default()
}

/// A column as bytes; empty for NULL.
pub(super) fn bytes(row: &Row, column: usize) -> Vec<u8> {
    match row.as_ref(column) {
        Some(Value::Bytes(bytes)) => bytes.clone(),
        _ => words(row, column).into_bytes(),
    }
}

/// A column as a whole number; a fraction is cut off.
pub(super) fn number(row: &Row, column: usize) -> Option<i64> {
    let text = text(row, column)?;
    let whole = text.split('.').next().unwrap_or_default();
    whole.parse().ok()
}

/// A thread's id as the wire tells it: 32 bits.
pub(super) fn thread(row: &Row, column: usize) -> Option<u32> {
    let wide = number(row, column)?;
    u32::try_from(wide & i64::from(u32::MAX)).ok()
}

/// A name between backticks.
pub(super) fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A text literal; control connections have an empty `sql_mode`, so a backslash escapes.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// The key under which the proxy's tables know a thread: its 32 bits, read as a signed number.
pub(in crate::engine) fn key(thread: u32) -> i32 {
    thread.cast_signed()
}

/// The thread of a key.
pub(in crate::engine) fn of_key(key: i32) -> u32 {
    key.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_can_hold_anything() {
        assert_eq!(quoted("a`b"), "`a``b`");
        assert_eq!(literal(r"it's \"), r"'it''s \\'");
    }

    #[test]
    fn a_thread_survives_the_signed_tables() {
        for thread in [0, 7, u32::MAX, 1 << 31] {
            assert_eq!(of_key(key(thread)), thread);
        }
    }
}
