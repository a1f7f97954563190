//! Values that do not print.
//!
//! Purpose: a password can be carried through settings and errors without ever reaching a log.
//! It holds text only. It does not wipe memory, and it has no comparison: nothing of ours compares
//! secrets through this type.

use std::fmt;

/// A text that neither `Debug` nor `Display` shows.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, for the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_the_text() {
        let shown = format!("{:?}", Secret::new("hunter2".to_owned()));
        assert!(!shown.contains("hunter2"));
    }
}
