//! What clients and drivers say to a database before anybody types anything.
//!
//! Purpose: answer what `psql`, `mysql`, JDBC and the drivers ask at connect and around statements,
//! so that they work; refuse everything else with a sentence, at once. Nothing here has an effect:
//! a `BEGIN` begins nothing, a `SET` sets nothing. Pure. Called by the consoles for what isn't of
//! the grammar. It isn't a database, and doesn't imitate a catalog.

use super::failure::Failure;
use super::grammar::Dialect;
use super::table::{Column, Kind, Table};

/// What such a text is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chat {
    /// Done; the command's tag.
    Done(&'static str),
    /// A transaction's begin, of the client's own making.
    Begin,
    /// Its end.
    End(&'static str),
    /// Rows.
    Rows(Table),
    /// MySQL's `KILL QUERY n`: the wait of that connection is given up.
    Kill(u32),
}

/// Who asks.
#[derive(Debug, Clone)]
pub struct Asker {
    /// The name it logged in with.
    pub user: String,
    /// The database it named.
    pub database: String,
    /// Its connection's number.
    pub connection: u32,
}

/// The version of PostgreSQL whose clients' manners are kept.
pub const PG_VERSION: &str = "16.0 (fencewire admin console)";
/// The version of MySQL likewise.
pub const MYSQL_VERSION: &str = "8.0.0-fencewire-admin-console";

/// What PostgreSQL's clients ask by `SHOW`.
const PG_SETTINGS: &[(&str, &str)] = &[
    ("application_name", ""),
    ("client_encoding", "UTF8"),
    ("client_min_messages", "notice"),
    ("datestyle", "ISO, MDY"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    ("extra_float_digits", "1"),
    ("in_hot_standby", "off"),
    ("integer_datetimes", "on"),
    ("intervalstyle", "postgres"),
    ("is_superuser", "off"),
    ("lc_collate", "C"),
    ("lc_messages", "C"),
    ("max_identifier_length", "63"),
    ("search_path", "public"),
    ("server_encoding", "UTF8"),
    ("server_version", PG_VERSION),
    ("server_version_num", "160000"),
    ("standard_conforming_strings", "on"),
    ("statement_timeout", "0"),
    ("timezone", "UTC"),
    ("transaction_isolation", "read committed"),
    ("transaction_read_only", "off"),
];

/// What MySQL's clients ask by `@@name` and `SHOW VARIABLES`.
const MYSQL_SETTINGS: &[(&str, &str)] = &[
    ("auto_increment_increment", "1"),
    ("autocommit", "1"),
    ("character_set_client", "utf8mb4"),
    ("character_set_connection", "utf8mb4"),
    ("character_set_database", "utf8mb4"),
    ("character_set_results", "utf8mb4"),
    ("character_set_server", "utf8mb4"),
    ("collation_connection", "utf8mb4_general_ci"),
    ("collation_database", "utf8mb4_general_ci"),
    ("collation_server", "utf8mb4_general_ci"),
    ("default_storage_engine", "none"),
    ("init_connect", ""),
    ("interactive_timeout", "28800"),
    ("license", "Apache-2.0 OR MIT"),
    ("lower_case_table_names", "0"),
    ("max_allowed_packet", "65536"),
    ("net_buffer_length", "16384"),
    ("net_write_timeout", "60"),
    ("performance_schema", "0"),
    ("query_cache_size", "0"),
    ("query_cache_type", "OFF"),
    ("socket", ""),
    ("sql_mode", "STRICT_TRANS_TABLES"),
    ("system_time_zone", "UTC"),
    ("time_zone", "UTC"),
    ("transaction_isolation", "READ-COMMITTED"),
    ("transaction_read_only", "0"),
    ("tx_isolation", "READ-COMMITTED"),
    ("tx_read_only", "0"),
    ("version", MYSQL_VERSION),
    ("version_comment", "Fencewire admin console; SHOW HELP"),
    ("wait_timeout", "28800"),
];

/// Answers a text that is none of the console's own.
///
/// # Errors
/// A [`Failure`] that says that this is no database, or has no such setting.
pub fn answer(text: &str, dialect: Dialect, asker: &Asker) -> Result<Chat, Failure> {
    let text = bare(text);
    let words: Vec<String> =
        text.split_whitespace().take(8).map(|word| word.to_ascii_lowercase()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        // Never done, and never said to be.
        ["set", "fence" | "read" | "write" | "writes" | "target", ..] => {
            Err(Failure::no_database())
        }
        ["set", ..] => Ok(Chat::Done("SET")),
        ["reset", ..] => Ok(Chat::Done("RESET")),
        ["begin", ..] | ["start", "transaction", ..] => Ok(Chat::Begin),
        ["commit" | "end", ..] => Ok(Chat::End("COMMIT")),
        ["rollback" | "abort", ..] => Ok(Chat::End("ROLLBACK")),
        ["discard", ..] => Ok(Chat::Done("DISCARD ALL")),
        ["deallocate", ..] => Ok(Chat::Done("DEALLOCATE")),
        ["close", ..] => Ok(Chat::Done("CLOSE CURSOR")),
        ["unlisten", ..] => Ok(Chat::Done("UNLISTEN")),
        ["kill", "query", number] if dialect == Dialect::Mysql => {
            number.parse().map(Chat::Kill).map_err(|_| Failure::no_setting(number))
        }
        ["use", ..] if dialect == Dialect::Mysql => Ok(Chat::Done("USE")),
        ["select", ..] => select(text, dialect, asker).map(Chat::Rows),
        ["show", rest @ ..] if dialect == Dialect::Postgres => pg_show(rest).map(Chat::Rows),
        ["show", rest @ ..] => mysql_show(rest, text).map(Chat::Rows),
        _ => Err(Failure::no_database()),
    }
}

/// A text without comments and blanks around it, and without its semicolon. Executable comments of
/// MySQL are comments here.
fn bare(text: &str) -> &str {
    let mut text = text.trim();
    loop {
        let rest = match () {
            () if text.starts_with("/*") => text.split_once("*/").map(|(_, rest)| rest),
            () if text.starts_with("--") || text.starts_with('#') => {
                Some(text.split_once('\n').map_or("", |(_, rest)| rest))
            }
            () => None,
        };
        match rest {
            Some(rest) => text = rest.trim_start(),
            None => return text.trim_end_matches(|c: char| c == ';' || c.is_whitespace()),
        }
    }
}

fn setting(name: &str, dialect: Dialect) -> Option<&'static str> {
    let table = match dialect {
        Dialect::Postgres => PG_SETTINGS,
        Dialect::Mysql => MYSQL_SETTINGS,
    };
    let found = table.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, value)| *value)
}

fn pg_show(rest: &[&str]) -> Result<Table, Failure> {
    let name = match rest {
        ["transaction", "isolation", "level"] => "transaction_isolation",
        ["time", "zone"] => "timezone",
        [name] => name,
        _ => return Err(Failure::no_database()),
    };
    let value = setting(name, Dialect::Postgres).ok_or_else(|| Failure::no_setting(name))?;
    Ok(Table::texts(vec![(name.to_owned(), Some(value.to_owned()))]))
}

/// `SHOW [SESSION|GLOBAL] VARIABLES [LIKE 'x' | WHERE …]`, `SHOW WARNINGS` and the like.
fn mysql_show(rest: &[&str], text: &str) -> Result<Table, Failure> {
    let rest = match rest {
        ["session" | "global" | "full" | "extended", rest @ ..] => rest,
        rest => rest,
    };
    let pairs = |rows: Vec<(&str, &str)>| {
        let row = |(name, value): (&str, &str)| {
            vec![
                super::table::Cell::Text(name.to_owned()),
                super::table::Cell::Text(value.to_owned()),
            ]
        };
        Table {
            columns: named(&["Variable_name", "Value"]),
            rows: rows.into_iter().map(row).collect(),
        }
    };
    match rest {
        ["variables", ..] => {
            // Whoever names none wants all; `WHERE` and patterns get those that they name.
            let lower = text.to_ascii_lowercase();
            let named = |name: &str| lower.contains(&format!("'{name}'"));
            let all = !lower.contains('\'');
            let rows = MYSQL_SETTINGS.iter().copied();
            Ok(pairs(rows.filter(|(name, _)| all || named(name)).collect()))
        }
        ["status", ..] => Ok(pairs(Vec::new())),
        ["warnings" | "errors", ..] => {
            Ok(Table { columns: named(&["Level", "Code", "Message"]), rows: Vec::new() })
        }
        ["databases" | "schemas", ..] => {
            Ok(Table::texts(vec![("Database".to_owned(), Some("fencewire".to_owned()))]))
        }
        ["tables", ..] => Ok(Table { columns: named(&["Tables_in_fencewire"]), rows: Vec::new() }),
        ["collation", ..] => Ok(Table {
            columns: named(&["Collation", "Charset", "Id", "Default", "Compiled", "Sortlen"]),
            rows: Vec::new(),
        }),
        ["engines" | "plugins", ..] => Ok(pairs(Vec::new())),
        _ => Err(Failure::no_database()),
    }
}

fn named(names: &[&'static str]) -> Vec<Column> {
    names.iter().map(|name| Column { name: (*name).into(), kind: Kind::Text }).collect()
}

/// `SELECT` of constants, settings and a few functions.
fn select(text: &str, dialect: Dialect, asker: &Asker) -> Result<Table, Failure> {
    let list = text.get("select".len()..).unwrap_or("");
    let list = without_limit(list.trim());
    let mut columns = Vec::new();
    for item in items(list).ok_or_else(Failure::no_database)? {
        let (expression, name) = named_item(item);
        columns.push((name.to_owned(), value(expression, dialect, asker)?));
    }
    Ok(Table::texts(columns))
}

fn without_limit(list: &str) -> &str {
    let lower = list.to_ascii_lowercase();
    match lower.rfind(" limit ") {
        Some(at) if lower[at + 7..].trim().bytes().all(|byte| byte.is_ascii_digit()) => {
            list[..at].trim_end()
        }
        Some(_) | None => list,
    }
}

/// The items of a list without parentheses other than `()`, at most 64; `None` for anything else.
fn items(list: &str) -> Option<Vec<&str>> {
    let mut found = Vec::new();
    let (mut start, mut quote) = (0, None);
    for (at, sign) in list.char_indices() {
        match (quote, sign) {
            (Some(open), sign) if sign == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"' | '`') => quote = Some(sign),
            (None, ',') => {
                found.push(list[start..at].trim());
                start = at + 1;
            }
            (None, _) => {}
        }
    }
    found.push(list[start..].trim());
    (quote.is_none() && found.len() <= 64).then_some(found)
}

/// An item's expression and the name of its column.
fn named_item(item: &str) -> (&str, &str) {
    let lower = item.to_ascii_lowercase();
    let split = lower.rfind(" as ").map(|at| (&item[..at], &item[at + 4..]));
    let (expression, name) = split.unwrap_or((item, item));
    let quotes = ['\'', '"', '`'];
    (expression.trim(), name.trim().trim_matches(quotes))
}

fn value(expression: &str, dialect: Dialect, asker: &Asker) -> Result<Option<String>, Failure> {
    let lower = expression.to_ascii_lowercase();
    if let Some(name) = lower.strip_prefix("@@") {
        let name = ["session.", "global.", "local."]
            .iter()
            .find_map(|scope| name.strip_prefix(scope))
            .unwrap_or(name);
        let found = setting(name, Dialect::Mysql).ok_or_else(|| Failure::no_setting(name))?;
        return Ok(Some(found.to_owned()));
    }
    let number = lower.strip_prefix(['-', '+']).unwrap_or(&lower);
    if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(Some(lower));
    }
    let quoted = expression.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    if let Some(literal) = quoted.filter(|literal| !literal.contains('\'')) {
        return Ok(Some(literal.to_owned()));
    }
    let called = lower.strip_prefix("pg_catalog.").unwrap_or(&lower);
    let called = called.strip_suffix("()").map_or(called, str::trim_end);
    let version = match dialect {
        Dialect::Postgres => format!("PostgreSQL {PG_VERSION}"),
        Dialect::Mysql => MYSQL_VERSION.to_owned(),
    };
    Ok(match called {
        "null" => None,
        "true" => Some("t".to_owned()),
        "false" => Some("f".to_owned()),
        "version" => Some(version),
        "current_database" | "database" | "schema" | "current_catalog" => {
            Some(asker.database.clone())
        }
        "current_schema" => Some("public".to_owned()),
        "current_user" | "user" | "session_user" | "system_user" => Some(asker.user.clone()),
        "connection_id" | "pg_backend_pid" => Some(asker.connection.to_string()),
        _ => return Err(Failure::no_database()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::console::table::Cell;

    fn ask(text: &str, dialect: Dialect) -> Result<Chat, Failure> {
        let (user, database) = ("ops".to_owned(), "fencewire".to_owned());
        answer(text, dialect, &Asker { user, database, connection: 7 })
    }

    #[track_caller]
    fn one(text: &str, dialect: Dialect) -> Vec<String> {
        let Ok(Chat::Rows(table)) = ask(text, dialect) else { panic!("{text}") };
        let text = |cell: &Cell| match cell {
            Cell::Text(text) => text.clone(),
            Cell::Null | Cell::Int(_) | Cell::Bool(_) => format!("{cell:?}"),
        };
        table.rows[0].iter().map(text).collect()
    }

    #[test]
    fn what_clients_say_at_connect_is_answered() {
        let pg = Dialect::Postgres;
        for (text, said) in [
            ("SET extra_float_digits = 3", Chat::Done("SET")),
            ("set application_name to 'x';", Chat::Done("SET")),
            ("BEGIN", Chat::Begin),
            ("START TRANSACTION ISOLATION LEVEL READ COMMITTED", Chat::Begin),
            ("COMMIT;", Chat::End("COMMIT")),
            ("DISCARD ALL", Chat::Done("DISCARD ALL")),
            ("/* ping */ -- x\n ROLLBACK", Chat::End("ROLLBACK")),
        ] {
            assert_eq!(ask(text, pg), Ok(said), "{text}");
        }
        assert_eq!(one("SELECT 1", pg), ["1"]);
        assert_eq!(one("select 1 as one, 'a,b' as \"x\"", pg), ["1", "a,b"]);
        assert_eq!(one("SHOW TRANSACTION ISOLATION LEVEL", pg), ["read committed"]);
        assert_eq!(one("show server_version", pg), [PG_VERSION]);
        assert!(one("SELECT version()", pg)[0].starts_with("PostgreSQL 16"));
        assert_eq!(one("SELECT current_database(), current_user", pg), ["fencewire", "ops"]);

        let my = Dialect::Mysql;
        assert!(one("select @@version_comment limit 1", my)[0].contains("Fencewire"));
        assert_eq!(one("SELECT @@max_allowed_packet, @@session.autocommit", my), ["65536", "1"]);
        let java = "/* mysql-connector-j */SELECT  @@session.auto_increment_increment AS \
                    auto_increment_increment, @@character_set_client AS character_set_client";
        assert_eq!(one(java, my), ["1", "utf8mb4"]);
        assert_eq!(one("SELECT DATABASE()", my), ["fencewire"]);
        assert_eq!(one("SELECT CONNECTION_ID()", my), ["7"]);
        assert_eq!(one("SHOW VARIABLES LIKE 'sql_mode'", my)[0], "sql_mode");
        assert_eq!(ask("KILL QUERY 12", my), Ok(Chat::Kill(12)));
        assert_eq!(ask("SET NAMES utf8mb4", my), Ok(Chat::Done("SET")));
    }

    #[test]
    fn what_is_for_a_database_is_refused_at_once() {
        for text in [
            "SELECT c.relname FROM pg_catalog.pg_class c WHERE c.relkind IN ('r','p','')",
            "SELECT $$",
            "SELECT $1",
            "SELECT 'unclosed",
            "INSERT INTO t VALUES (1)",
            "SELECT pg_sleep(1)",
            "DROP DATABASE app",
            "select",
            "SET FENCE WRITE ON 'old/app'",
            "\u{0}\u{1}",
        ] {
            for dialect in [Dialect::Postgres, Dialect::Mysql] {
                let failure = ask(text, dialect).unwrap_err();
                assert_eq!((failure.sqlstate, failure.errno), ("0A000", 1235), "{text}");
                assert!(failure.message.contains("not a database"), "{text}");
            }
        }
        assert_eq!(ask("SHOW data_directory", Dialect::Postgres).unwrap_err().sqlstate, "42704");
        assert_eq!(ask("SELECT @@datadir", Dialect::Mysql).unwrap_err().errno, 1193);
    }
}
