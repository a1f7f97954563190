//! Texts that must not be printed.
//!
//! Purpose: a password or key that finds its way into a log line or an error prints as `***`. The
//! only way to the text is [`Secret::expose`], which is easy to search for.
//!
//! Callers: `config`, `engine`, `tls`, `admin`. It does not wipe memory.

use std::fmt;

/// A text that prints as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself. Never put it into an error, a log line or a view.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_way_of_printing_shows_the_text() {
        let secret = Secret::new("hunter2".to_owned());
        let printed = format!("{secret} {secret:?} {:#?}", Some(&secret));
        assert!(!printed.contains("hunter2"), "{printed}");
        assert_eq!(printed.matches("***").count(), 3);
        assert_eq!(secret.expose(), "hunter2");
    }
}
