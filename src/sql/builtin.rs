//! The pinned tables: keywords by category, and built-in functions that don't write.
//!
//! Purpose: the allow list behind every proved read. The tables are text files beside this module,
//! read once per process into sorted slices; their headers say how they were made.
//!
//! Called by `classify`. It doesn't decide anything about a statement.

use std::sync::LazyLock;

use super::trusted::Trusted;

/// How PostgreSQL 15's grammar treats a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keyword {
    /// Never a name unless quoted or behind a dot.
    Reserved,
    /// Column name, never an unquoted function's name.
    ColumnName,
    /// Function or type name, not a column's.
    FunctionName,
    /// Keyword and name alike, or a keyword only of later versions.
    Unreserved,
}

static FUNCTIONS: LazyLock<Box<[(&str, u16)]>> =
    LazyLock::new(|| rows(include_str!("tables/builtin_functions.txt"), since));
static KEYWORDS: LazyLock<Box<[(&str, Keyword)]>> =
    LazyLock::new(|| rows(include_str!("tables/keywords.txt"), category));

fn rows<V>(text: &'static str, value: fn(&str) -> V) -> Box<[(&'static str, V)]> {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
            (name, value(rest))
        })
        .collect()
}

/// A version that doesn't read as a number is one no engine has.
fn since(text: &str) -> u16 {
    if text.is_empty() { 0 } else { text.parse().unwrap_or(u16::MAX) }
}

fn category(text: &str) -> Keyword {
    match text {
        "R" => Keyword::Reserved,
        "C" => Keyword::ColumnName,
        "T" => Keyword::FunctionName,
        _ => Keyword::Unreserved,
    }
}

/// `information_schema`'s own helpers, which drivers call in their metadata queries.
const INFORMATION_SCHEMA: &[&str] = &[
    "_pg_char_max_length",
    "_pg_char_octet_length",
    "_pg_datetime_precision",
    "_pg_expandarray",
    "_pg_index_position",
    "_pg_interval_type",
    "_pg_numeric_precision",
    "_pg_numeric_precision_radix",
    "_pg_numeric_scale",
    "_pg_truetypid",
    "_pg_truetypmod",
];

/// Built-in functions that write, take a transaction id, move the log, steal a slot or change what
/// other sessions do: everything the engine's read-only mode lets through (facts, section 3) and
/// what it stops. Calls of these are `write`; sorted.
const WRITERS: &[&str] = &[
    "brin_desummarize_range",
    "brin_summarize_new_values",
    "brin_summarize_range",
    "currtid2",
    "gin_clean_pending_list",
    "lo_creat",
    "lo_create",
    "lo_export",
    "lo_from_bytea",
    "lo_import",
    "lo_open",
    "lo_put",
    "lo_truncate",
    "lo_truncate64",
    "lo_unlink",
    "lowrite",
    "nextval",
    "pg_backup_start",
    "pg_backup_stop",
    "pg_cancel_backend",
    "pg_clear_attribute_stats",
    "pg_clear_relation_stats",
    "pg_copy_logical_replication_slot",
    "pg_copy_physical_replication_slot",
    "pg_create_logical_replication_slot",
    "pg_create_physical_replication_slot",
    "pg_create_restore_point",
    "pg_current_xact_id",
    "pg_drop_replication_slot",
    "pg_import_system_collations",
    "pg_log_standby_snapshot",
    "pg_logical_emit_message",
    "pg_logical_slot_get_binary_changes",
    "pg_logical_slot_get_changes",
    "pg_logical_slot_peek_binary_changes",
    "pg_logical_slot_peek_changes",
    "pg_nextoid",
    "pg_notify",
    "pg_promote",
    "pg_reload_conf",
    "pg_replication_origin_advance",
    "pg_replication_origin_create",
    "pg_replication_origin_drop",
    "pg_replication_origin_session_reset",
    "pg_replication_origin_session_setup",
    "pg_replication_origin_xact_reset",
    "pg_replication_origin_xact_setup",
    "pg_replication_slot_advance",
    "pg_restore_attribute_stats",
    "pg_restore_relation_stats",
    "pg_rotate_logfile",
    "pg_stat_reset",
    "pg_stat_reset_backend_stats",
    "pg_stat_reset_replication_slot",
    "pg_stat_reset_shared",
    "pg_stat_reset_single_function_counters",
    "pg_stat_reset_single_table_counters",
    "pg_stat_reset_slru",
    "pg_stat_reset_subscription_stats",
    "pg_switch_wal",
    "pg_sync_replication_slots",
    "pg_terminate_backend",
    "pg_wal_replay_pause",
    "pg_wal_replay_resume",
    "setval",
    "txid_current",
];

/// The category of a word in lower case, or `None` for an ordinary name.
pub(super) fn keyword(word: &str) -> Option<Keyword> {
    let at = KEYWORDS.binary_search_by(|(name, _)| (*name).cmp(word)).ok()?;
    KEYWORDS.get(at).map(|&(_, category)| category)
}

/// What is known of a function that is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Callee {
    /// On the allow list, or declared harmless.
    Harmless,
    /// Known to write.
    Writer,
    /// `set_config`: its arguments decide.
    SetConfig,
    /// Nothing is known.
    Unknown,
}

/// Looks a function up; both names as the engine folds them.
pub(super) fn callee(schema: Option<&str>, name: &str, trusted: &Trusted) -> Callee {
    let builtin_schema = matches!(schema, None | Some("pg_catalog"));
    // Nobody declares set_config harmless: it is the key to the guard.
    if builtin_schema && name == "set_config" {
        return Callee::SetConfig;
    }
    if trusted.contains(schema, name) {
        return Callee::Harmless;
    }
    if schema == Some("information_schema") {
        let known = INFORMATION_SCHEMA.binary_search(&name).is_ok();
        return if known { Callee::Harmless } else { Callee::Unknown };
    }
    if name.starts_with("dblink") {
        return Callee::Writer;
    }
    if !builtin_schema {
        return Callee::Unknown;
    }
    if WRITERS.binary_search(&name).is_ok() {
        return Callee::Writer;
    }
    match FUNCTIONS.binary_search_by(|(known, _)| (*known).cmp(name)) {
        Ok(at) if FUNCTIONS.get(at).is_some_and(|&(_, since)| since <= trusted.engine_major()) => {
            Callee::Harmless
        }
        Ok(_) | Err(_) => Callee::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_and_disjoint() {
        assert!(FUNCTIONS.is_sorted_by(|a, b| a.0 < b.0), "builtin_functions.txt");
        assert!(KEYWORDS.is_sorted_by(|a, b| a.0 < b.0), "keywords.txt");
        assert!(WRITERS.is_sorted() && INFORMATION_SCHEMA.is_sorted());
        assert!(FUNCTIONS.len() > 2000 && KEYWORDS.len() > 450);
        for writer in WRITERS {
            assert!(!FUNCTIONS.iter().any(|(name, _)| name == writer), "{writer} is on both lists");
        }
        assert!(!FUNCTIONS.iter().any(|(_, since)| *since == u16::MAX), "an unreadable version");
    }

    #[test]
    fn what_runs_handed_sql_is_not_on_the_allow_list() {
        let trusted = Trusted::default();
        for name in
            ["query_to_xml", "table_to_xml", "cursor_to_xml", "ts_stat", "ts_rewrite", "no_such"]
        {
            assert_eq!(callee(None, name, &trusted), Callee::Unknown, "{name}");
        }
        assert_eq!(callee(Some("pg_catalog"), "lower", &trusted), Callee::Harmless);
        assert_eq!(callee(Some("public"), "lower", &trusted), Callee::Unknown);
        assert_eq!(callee(Some("ext"), "dblink_exec", &trusted), Callee::Writer);
    }

    #[test]
    fn later_functions_are_believed_only_of_later_engines() {
        let old = Trusted::default();
        let new = Trusted::default().with_engine_major(18);
        assert_eq!(callee(None, "uuidv7", &old), Callee::Unknown);
        assert_eq!(callee(None, "uuidv7", &new), Callee::Harmless);
    }

    #[test]
    fn set_config_can_not_be_declared_harmless() {
        let trusted = Trusted::new(["set_config", "pg_catalog.set_config"]);
        assert_eq!(callee(None, "set_config", &trusted), Callee::SetConfig);
    }
}
