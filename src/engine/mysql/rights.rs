//! What the control account may do, from `SHOW GRANTS`.
//!
//! Purpose: an account that may not see a table is told nothing about it, so "no tables" and "no
//! sessions" are answers only where the rights are known. Both servers list the privileges of the
//! active roles along with the account's own.
//!
//! Only grants on everything (`*.*`) and on whole schemas count: a grant on single tables says
//! nothing about the others. Called by `lock`, `census` and `preflight`.

use super::connect::Control;
use super::value::words;
use crate::engine::error::EngineError;

/// Privileges on everything and on one schema, in capitals.
#[derive(Debug, Default)]
pub(super) struct Rights {
    everywhere: Vec<String>,
    schema: Vec<String>,
    revoked: Vec<String>,
}

impl Rights {
    /// Reads them for a schema.
    pub(super) async fn read(control: &mut Control, schema: &str) -> Result<Self, EngineError> {
        let rows = control.rows("rights", "SHOW GRANTS").await?;
        let mut rights = Self::default();
        for row in &rows {
            rights.take(&words(row, 0), schema);
        }
        Ok(rights)
    }

    /// Whether the privilege is had on the whole schema.
    pub(super) fn has(&self, privilege: &str) -> bool {
        let named = |list: &[String]| {
            list.iter().any(|one| one == privilege || one == "ALL PRIVILEGES" || one == "ALL")
        };
        (named(&self.everywhere) && !named(&self.revoked)) || named(&self.schema)
    }

    /// Whether a server-wide privilege is had.
    pub(super) fn has_global(&self, privilege: &str) -> bool {
        let all = ["ALL PRIVILEGES", "ALL", privilege];
        self.everywhere.iter().any(|one| all.contains(&one.as_str()))
    }

    fn take(&mut self, grant: &str, schema: &str) {
        let (revoke, rest) = match (grant.strip_prefix("GRANT "), grant.strip_prefix("REVOKE ")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return,
        };
        let Some((list, object)) = rest.split_once(" ON ") else {
            return;
        };
        let object = object.split(if revoke { " FROM " } else { " TO " }).next().unwrap_or("");
        let privileges = privileges(list);
        if object == "*.*" {
            self.everywhere.extend(privileges);
        } else if let Some(name) = object.strip_suffix(".*") {
            let pattern = name.trim_matches('`').replace("``", "`");
            // A pattern of a revoke is no pattern, but refusing too much is the safe side.
            if matches_like(&pattern, schema) {
                let list = if revoke { &mut self.revoked } else { &mut self.schema };
                list.extend(privileges);
            }
        }
    }
}

/// What README and OPERATIONS ask for. Code that runs with these reads, and reaches nothing else:
/// it can't even call a function, which would take EXECUTE.
const READING: [&str; 14] = [
    "USAGE",
    "SELECT",
    "LOCK TABLES",
    "SHOW VIEW",
    "SHOW DATABASES",
    "TRIGGER",
    "EVENT",
    "PROCESS",
    "CREATE",
    "BINLOG MONITOR",
    "REPLICATION CLIENT",
    "CONNECTION ADMIN",
    "CONNECTION_ADMIN",
    "XA_RECOVER_ADMIN",
];

/// Whether a line of `SHOW GRANTS` gives more than reading takes, or can't be told not to: a role,
/// a privilege that isn't known here.
pub(super) fn is_more_than_reading(grant: &str) -> bool {
    match (grant.strip_prefix("GRANT ").and_then(|rest| rest.split_once(" ON ")), grant) {
        (Some((list, _)), _) => list.split(',').any(|one| !READING.contains(&one.trim())),
        (None, other) => !other.starts_with("REVOKE "),
    }
}

/// Bounds what is told of one grant.
const GRANT_CHARS_MAX: usize = 300;

/// A line of `SHOW GRANTS` for people: what is given, where and to whom, without how the account
/// proves itself.
pub(super) fn in_words(grant: &str) -> String {
    let told = grant.split(" IDENTIFIED ").next().unwrap_or_default();
    told.chars().take(GRANT_CHARS_MAX).collect()
}

/// The privileges of a list; those on columns are left out.
fn privileges(list: &str) -> Vec<String> {
    let mut depth = 0_u32;
    let separated = list.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    let names = separated.map(|one| one.trim().to_ascii_uppercase());
    names.filter(|one| !one.contains('(')).collect()
}

/// `LIKE` as in the names of grants: `%`, `_`, and a backslash that takes their meaning away.
fn matches_like(pattern: &str, name: &str) -> bool {
    let mut pattern = pattern.chars();
    match pattern.next() {
        None => name.is_empty(),
        Some('%') => {
            let rest = pattern.as_str();
            let mut tails = name.char_indices().map(|(at, _)| &name[at..]);
            tails.any(|tail| matches_like(rest, tail)) || matches_like(rest, "")
        }
        Some(wanted) => {
            let (wanted, any) = match wanted {
                '\\' => (pattern.next().unwrap_or('\\'), false),
                '_' => ('_', true),
                plain => (plain, false),
            };
            let mut rest = name.chars();
            rest.next().is_some_and(|found| any || found == wanted)
                && matches_like(pattern.as_str(), rest.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(grants: &[&str]) -> Rights {
        let mut rights = Rights::default();
        for grant in grants {
            rights.take(grant, "app_1");
        }
        rights
    }

    #[test]
    fn grants_on_everything_and_on_the_schema_count() {
        assert!(of(&["GRANT SELECT, LOCK TABLES ON *.* TO `c`@`%`"]).has("LOCK TABLES"));
        assert!(of(&["GRANT ALL PRIVILEGES ON `app\\_1`.* TO `c`@`%`"]).has("SELECT"));
        assert!(of(&["GRANT SELECT ON `app%`.* TO `c`@`%` WITH GRANT OPTION"]).has("SELECT"));
        assert!(of(&["GRANT PROCESS ON *.* TO `c`@`%`"]).has_global("PROCESS"));
    }

    #[test]
    fn grants_on_less_than_the_schema_do_not() {
        for grant in [
            "GRANT SELECT ON `app_1`.`t` TO `c`@`%`",
            "GRANT SELECT (`a`, `b`), INSERT ON `app_1`.* TO `c`@`%`",
            "GRANT SELECT ON `other`.* TO `c`@`%`",
            "GRANT `r`@`%` TO `c`@`%`",
            "GRANT PROXY ON ''@'' TO 'c'@'%'",
        ] {
            assert!(!of(&[grant]).has("SELECT"), "{grant}");
        }
    }

    #[test]
    fn what_reading_does_not_take_is_told() {
        for grant in [
            "GRANT USAGE ON *.* TO `c`@`%` IDENTIFIED BY PASSWORD '*0'",
            "GRANT SELECT, LOCK TABLES, PROCESS, BINLOG MONITOR ON *.* TO `c`@`%`",
            "GRANT CONNECTION_ADMIN,XA_RECOVER_ADMIN ON *.* TO `c`@`%`",
            "REVOKE SELECT ON `app`.* FROM `c`@`%`",
        ] {
            assert!(!is_more_than_reading(grant), "{grant}");
        }
        for grant in [
            "GRANT ALL PRIVILEGES ON *.* TO `c`@`%`",
            "GRANT SELECT, FILE ON *.* TO `c`@`%`",
            "GRANT INSERT ON `other`.* TO `c`@`%`",
            "GRANT SELECT, INSERT (`a`, `b`) ON `app`.`t` TO `c`@`%`",
            "GRANT EXECUTE ON `app`.* TO `c`@`%`",
            "GRANT `r`@`%` TO `c`@`%`",
            "SET DEFAULT ROLE `r` FOR `c`@`%`",
            "",
        ] {
            assert!(is_more_than_reading(grant), "{grant}");
        }
    }

    #[test]
    fn a_grant_is_told_without_its_password() {
        let grant = "GRANT FILE ON *.* TO `c`@`%` IDENTIFIED BY PASSWORD '*A4B6' REQUIRE SSL";
        assert_eq!(in_words(grant), "GRANT FILE ON *.* TO `c`@`%`");
        let public = "GRANT SELECT, INSERT ON `test`.* TO PUBLIC";
        assert_eq!(in_words(public), public);
        assert!(is_more_than_reading(public), "whoever has it, it is had");
    }

    #[test]
    fn a_partial_revoke_takes_the_global_grant_away() {
        let grants = ["GRANT SELECT ON *.* TO `c`@`%`", "REVOKE SELECT ON `app_1`.* FROM `c`@`%`"];
        assert!(!of(&grants).has("SELECT"));
    }
}
