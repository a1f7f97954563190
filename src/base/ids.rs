//! Newtypes for the identities that travel through every layer.
//!
//! Purpose: a namespace can't be confused with a route, a generation with a revision. All of them
//! are cheap to clone. They validate on construction and hold no secret.

use std::fmt;
use std::sync::Arc;

/// Why a text is not an identity of the wanted kind. The message says what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?}: expected {expected}")]
pub struct IdError {
    /// What was being read, such as `namespace`.
    pub what: &'static str,
    /// The text as given, cut to a printable length.
    pub text: String,
    /// What would have been right.
    pub expected: &'static str,
}

fn bad(what: &'static str, text: &str, expected: &'static str) -> IdError {
    IdError { what, text: text.chars().take(80).collect(), expected }
}

/// The name of one engine as the configuration gives it: 1 to 63 of `a-z A-Z 0-9 _ - .`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EngineName(Arc<str>);

impl EngineName {
    /// Checks and wraps a name.
    ///
    /// # Errors
    /// [`IdError`] when the name is empty, longer than 63 bytes or has another character.
    pub fn new(name: &str) -> Result<Self, IdError> {
        let good = !name.is_empty()
            && name.len() <= 63
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
        if good {
            Ok(Self(Arc::from(name)))
        } else {
            Err(bad("engine name", name, "1 to 63 letters, digits, '_', '-' or '.'"))
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EngineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One database on one engine, written `engine/database`; what a fence fences.
///
/// The database name is any non-empty text of at most 63 bytes without NUL (PostgreSQL's limit).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace {
    engine: EngineName,
    database: Arc<str>,
}

impl Namespace {
    /// Builds a namespace from its parts.
    ///
    /// # Errors
    /// [`IdError`] when the database name is empty, longer than 63 bytes or holds a NUL.
    pub fn new(engine: EngineName, database: &str) -> Result<Self, IdError> {
        if database.is_empty() || database.len() > 63 || database.contains('\0') {
            return Err(bad("database name", database, "1 to 63 bytes without NUL"));
        }
        Ok(Self { engine, database: Arc::from(database) })
    }

    /// Reads `engine/database`; the first slash separates, so a database name may hold slashes.
    ///
    /// # Errors
    /// [`IdError`] when there is no slash or a part is not valid.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let (engine, database) =
            text.split_once('/').ok_or_else(|| bad("namespace", text, "engine/database"))?;
        Self::new(EngineName::new(engine)?, database)
    }

    /// The engine's name.
    #[must_use]
    pub fn engine(&self) -> &EngineName {
        &self.engine
    }

    /// The database's name on that engine.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.database
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.engine, self.database)
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(uuid::Uuid);

        impl $name {
            /// Wraps a UUID.
            #[must_use]
            pub const fn from_uuid(id: uuid::Uuid) -> Self {
                Self(id)
            }

            /// Reads the hyphenated text form.
            ///
            /// # Errors
            /// [`IdError`] when the text is not a UUID.
            pub fn parse(text: &str) -> Result<Self, IdError> {
                let wanted = "a UUID such as 6e0b8c7e-5d0f-4c7e-9d39-1d2b8f9f3a11";
                uuid::Uuid::try_parse(text).map(Self).map_err(|_| bad($what, text, wanted))
            }

            /// A fresh random identity (version 4).
            #[must_use]
            pub fn fresh() -> Self {
                Self(uuid::Uuid::new_v4())
            }

            /// The UUID inside.
            #[must_use]
            pub const fn uuid(&self) -> uuid::Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }
    };
}

uuid_id!(
    /// The external move that owns a fence. It has no expiry.
    OperationId,
    "operation id"
);
uuid_id!(
    /// One mutating request; `(namespace, operation, command)` is the idempotency key.
    CommandId,
    "command id"
);

/// Durable counter of a fence record: 1 with the first transition, +1 per applied one, 0 = none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision after one more applied transition.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// In-memory counter of a gate; moves on every change of admission. It fits into 48 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Generation(pub u64);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One client session within this process, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_splits_at_the_first_slash() {
        let ns = Namespace::parse("old/a/b").unwrap();
        assert_eq!((ns.engine().as_str(), ns.database()), ("old", "a/b"));
        assert_eq!(ns.to_string(), "old/a/b");
    }

    #[test]
    fn bad_names_say_what_was_expected() {
        assert!(Namespace::parse("app").unwrap_err().to_string().contains("engine/database"));
        assert!(Namespace::parse("old/").is_err());
        assert!(EngineName::new("a b").is_err());
        assert!(OperationId::parse("7").unwrap_err().to_string().contains("UUID"));
    }
}
