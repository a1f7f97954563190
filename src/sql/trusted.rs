//! What the operator declared harmless, and which engine version the declarations are about.
//!
//! Purpose: W18's `trusted_functions`. A name written `schema.name` matches exactly that call; a
//! bare `name` matches calls without a schema (whatever the search path finds, so the operator
//! vouches for all of them). Names are compared as the engine folds them.
//!
//! Called by the classifier. It doesn't check that such a function exists.

use std::collections::HashSet;

/// Functions and procedures declared harmless, plus the engine's major version.
#[derive(Debug, Clone)]
pub struct Trusted {
    names: HashSet<String>,
    engine_major: u16,
    asks_steadiness: bool,
}

impl Default for Trusted {
    fn default() -> Self {
        Self::new(Vec::<String>::new())
    }
}

impl Trusted {
    /// Takes names as they were written in the configuration: `name` or `schema.name`, without
    /// quotes, already in the case the engine stores.
    pub fn new<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        Self { names, engine_major: 15, asks_steadiness: false }
    }

    /// Says which major version the engine has. Built-in functions of later versions than this
    /// aren't believed: on an older engine such a name can only be somebody's own function.
    #[must_use]
    pub fn with_engine_major(mut self, major: u16) -> Self {
        self.engine_major = major;
        self
    }

    /// The major version that built-in names are judged by; 15 unless told otherwise.
    #[must_use]
    pub const fn engine_major(&self) -> u16 {
        self.engine_major
    }

    /// Says whether anybody asks which texts may be kept (`auto_prepare`): to know it costs another
    /// walk through each text that is new. Unless told so no text may be.
    #[must_use]
    pub const fn asking_steadiness(mut self, asks: bool) -> Self {
        self.asks_steadiness = asks;
        self
    }

    pub(super) const fn asks_steadiness(&self) -> bool {
        self.asks_steadiness
    }

    pub(super) fn contains(&self, schema: Option<&str>, name: &str) -> bool {
        if self.names.is_empty() {
            return false;
        }
        match schema {
            None => self.names.contains(name),
            Some(schema) => self.names.contains(&format!("{schema}.{name}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declared_name_matches_only_the_form_it_was_declared_in() {
        let trusted = Trusted::new(["app.total", "slugify"]);
        assert!(trusted.contains(Some("app"), "total"));
        assert!(trusted.contains(None, "slugify"));
        assert!(!trusted.contains(None, "total"));
        assert!(!trusted.contains(Some("public"), "slugify"));
    }
}
