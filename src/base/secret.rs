//! Values that do not print.
//!
//! Purpose: a password or key can be carried through settings and errors without ever reaching a
//! log. Every layer may hold one; only the place that sends it to a peer calls [`Secret::expose`].
//! It does not wipe memory and does not compare in constant time.

use std::fmt;

/// A text that shows as `***` wherever it is formatted.
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
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_prints() {
        let secret = Secret::new("hunter2".to_owned());
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(secret.expose(), "hunter2");
    }
}
