//! Which engine the demo is played on, and what differs between engines in words and codes.
//!
//! Purpose: one enum that the rest of the demo asks; servers, statements and logs that differ are
//! in modules with twin names (`server/`, `bank/`). Called by all of `demo`. No I/O.

/// Whose server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Kind {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    MariaDb,
    /// Oracle's MySQL.
    MySql,
}

impl Kind {
    /// What `--engine` takes; `None` for a word that names none.
    pub(in crate::cli) fn named(word: &str) -> Option<Self> {
        match word {
            "postgres" => Some(Self::Postgres),
            "mariadb" => Some(Self::MariaDb),
            "mysql" => Some(Self::MySql),
            _ => None,
        }
    }

    /// Its name for people.
    pub(super) const fn shown(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::MariaDb => "MariaDB",
            Self::MySql => "MySQL",
        }
    }

    /// The scheme of the proxy's URLs for it.
    pub(super) const fn scheme(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::MariaDb | Self::MySql => "mysql",
        }
    }

    /// The code of a statement that couldn't have a lock in time: a SQLSTATE, or an error number
    /// where the SQLSTATE says nothing.
    pub(super) const fn lock_code(self) -> &'static str {
        match self {
            Self::Postgres => "55P03",
            Self::MariaDb | Self::MySql => "1205",
        }
    }

    /// One of two wordings of the same statement.
    pub(super) const fn wording(self, postgres: &'static str, mysql: &'static str) -> &'static str {
        match self {
            Self::Postgres => postgres,
            Self::MariaDb | Self::MySql => mysql,
        }
    }
}
