//! The label values a metric may carry, each as a closed list.
//!
//! Purpose: no label can grow with traffic. Whatever text a caller passes is looked up in the list
//! of its label and, when absent, counted as `other`; so a namespace name that reaches a label by
//! mistake can't be stored or shown. Called by [`super::metrics`] only. Spelling differences
//! (`AcquireSourceWriteFence`, `acquire_source_write_fence`) mean the same value.

/// The value shown for anything that is not in a label's list.
pub const OTHER: &str = "other";

/// Fence commands.
pub const COMMANDS: &[&str] = &[
    "acquire_source_write_fence",
    "set_source_read_fence",
    "clear_source_read_fence",
    "release_source_write_fence",
    "create_target_quarantined",
    "seal_target_import",
    "record_target_validation",
    "publish_target_readable_write_fenced",
    "enable_target_writes",
    "abort_quarantined_target",
    "adopt_fence",
];

/// Outcomes of a command: success codes, refusals, and `ERROR` for a failure that is no refusal.
pub const OUTCOMES: &[&str] = &[
    "APPLIED",
    "ALREADY_APPLIED",
    "DRAINING",
    "FENCE_STATE_UNAVAILABLE",
    "OPERATION_CAPABILITY_REQUIRED",
    "FENCE_OWNED_BY_ANOTHER_OPERATION",
    "FENCE_REVISION_MISMATCH",
    "INVALID_FENCE_TRANSITION",
    "FENCE_COMMAND_CONFLICT",
    "FENCE_COMMIT_INDETERMINATE",
    "FENCE_PRECONDITION_FAILED",
    "ERROR",
];

/// Codes a client can be refused with.
pub const DENIALS: &[&str] = &[
    "MIGRATION_WRITE_FENCED",
    "MIGRATION_READ_FENCED",
    "MIGRATION_TARGET_QUARANTINED",
    "FENCE_STATE_UNAVAILABLE",
    "OPERATION_CAPABILITY_REQUIRED",
    "TRANSACTION_ROLLED_BACK_BY_FENCE",
    "FENCE_HOLD_EXPIRED",
    "MIGRATION_CUTOVER_PENDING",
    "STALE_TOPOLOGY",
    "EXECUTION_FENCED",
];

/// Surfaces a refusal can cross.
pub const SURFACES: &[&str] = &["pg", "mysql", "admin", "dump", "replication", "lifecycle"];

/// Kinds of drain.
pub const DRAINS: &[&str] = &["write", "read", "import"];

/// What a forced drain did.
pub const FORCED: &[&str] =
    &["rollback", "sql_cancel", "dump_cancel", "stream_termination", "backend_termination"];

/// How a repeated command was answered.
pub const REPLAYS: &[&str] = &["replay", "conflict"];

/// Whether an engine lock that a fence is to have is there.
pub const LOCKS: &[&str] = &["held", "missing"];

/// How a program's being held at a closed gate ended.
pub const PARTINGS: &[&str] =
    &["admitted", "refused", "expired", "no_room", "cancelled", "gone", "ended"];

/// Whether a client connection was taken.
pub const CONNECTIONS: &[&str] = &["accepted", "refused"];

/// Which way bytes were relayed.
pub const DIRECTIONS: &[&str] = &["to_engine", "to_client"];

/// Whether a statement's class was remembered.
pub const LOOKUPS: &[&str] = &["hit", "miss"];

/// What became of an unnamed statement that is kept.
pub const AUTO_PREPARED: &[&str] = &["named", "reused", "forgotten", "result_changed"];

/// Classes of programs.
pub const PROGRAMS: &[&str] = &[
    "read",
    "write",
    "ddl",
    "transaction_control",
    "session",
    "lifecycle",
    "unprovable",
    "stream",
];

/// Roles of a fence record; `unknown` when its state can't be established.
pub const ROLES: &[&str] = &["source", "target", "unknown"];

/// All fence states of the contract.
pub const STATES: &[&str] = &[
    "UNFENCED",
    "ABSENT",
    "SOURCE_DRAINING",
    "SOURCE_WRITE_FENCED",
    "SOURCE_READ_DRAINING",
    "SOURCE_READ_FENCED",
    "RELEASED",
    "TARGET_QUARANTINED",
    "TARGET_IMPORT_DRAINING",
    "TARGET_VALIDATING",
    "TARGET_WRITE_FENCED",
    "TARGET_WRITABLE",
    "TARGET_ABORTED",
    "UNKNOWN_UNAVAILABLE",
];

/// Admin routes, as templates without names in them, and the consoles beside them.
pub const ROUTES: &[&str] = &[
    "console/postgres",
    "console/mysql",
    "/",
    "/healthz",
    "/readyz",
    "/metrics",
    "/v1/fence/capabilities",
    "/v1/namespaces",
    "/v1/namespaces/{engine}/{database}/fence",
    "/v1/namespaces/{engine}/{database}/fence/source/acquire-write-fence",
    "/v1/namespaces/{engine}/{database}/fence/source/set-read-fence",
    "/v1/namespaces/{engine}/{database}/fence/source/clear-read-fence",
    "/v1/namespaces/{engine}/{database}/fence/source/release-write-fence",
    "/v1/namespaces/{engine}/{database}/fence/target/create-quarantined",
    "/v1/namespaces/{engine}/{database}/fence/target/import-capability",
    "/v1/namespaces/{engine}/{database}/fence/target/seal-import",
    "/v1/namespaces/{engine}/{database}/fence/target/validation-receipt",
    "/v1/namespaces/{engine}/{database}/fence/target/publish-readable",
    "/v1/namespaces/{engine}/{database}/fence/target/enable-writes",
    "/v1/namespaces/{engine}/{database}/fence/target/abort",
    "/v1/namespaces/{engine}/{database}/fence/target/validation-query",
    "/v1/namespaces/{engine}/{database}/fence/adopt",
    "/v1/sessions",
    "/v1/events",
    "/v1/openapi.json",
    "/v1/reload",
];

/// HTTP statuses the admin surface answers with.
pub const STATUSES: &[&str] = &[
    "200", "202", "204", "400", "401", "403", "404", "405", "408", "409", "412", "413", "415",
    "423", "429", "500", "503",
];

/// The listed value that `text` means, or [`OTHER`]. Case, `_` and `-` do not matter.
#[must_use]
pub fn bounded(text: &str, list: &'static [&'static str]) -> &'static str {
    let plain = |text: &str| -> Vec<u8> {
        let kept = text.bytes().filter(|byte| !matches!(byte, b'_' | b'-'));
        kept.map(|byte| byte.to_ascii_lowercase()).collect()
    };
    // The exact spelling is the usual case and needs no allocation.
    if let Some(found) = list.iter().find(|known| **known == text) {
        return found;
    }
    // Nothing in a list is longer than this, so a long text is not worth looking at.
    if text.len() > 128 {
        return OTHER;
    }
    let wanted = plain(text);
    list.iter().find(|known| plain(known) == wanted).copied().unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_does_not_matter_and_strangers_become_other() {
        let acquire = "acquire_source_write_fence";
        assert_eq!(bounded("AcquireSourceWriteFence", COMMANDS), acquire);
        assert_eq!(bounded("acquire-source-write-fence", COMMANDS), acquire);
        assert_eq!(bounded("old/app", COMMANDS), OTHER);
        assert_eq!(bounded("", STATES), OTHER);
        assert_eq!(bounded(&"x".repeat(1000), STATES), OTHER);
    }

    #[test]
    fn no_list_has_a_value_twice() {
        for list in [
            COMMANDS,
            OUTCOMES,
            DENIALS,
            SURFACES,
            DRAINS,
            FORCED,
            REPLAYS,
            PARTINGS,
            CONNECTIONS,
            DIRECTIONS,
            LOOKUPS,
            AUTO_PREPARED,
            PROGRAMS,
            ROLES,
            STATES,
            ROUTES,
            STATUSES,
        ] {
            let unique: std::collections::BTreeSet<_> = list.iter().collect();
            assert_eq!(unique.len(), list.len());
        }
    }
}
