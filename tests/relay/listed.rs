//! The list of the protocol's edges, and what of the corpus (or which other test) is about each.
//!
//! Numbers and words are those of the list; `tests/relay_pg.rs` checks that all of it is there.

/// Number, what it is about, and conversations by name or tests by `file::name`.
pub const LISTED: &[(u32, &str, &[&str])] = &[
    (
        1,
        "several Syncs in flight",
        &["extended: a pipeline with several Syncs", "extended: several Syncs and nothing else"],
    ),
    (
        2,
        "a tail without its Sync",
        &[
            "cancel: in a pipeline without Sync",
            "pipeline: the client ends without Sync",
            "faults_pg::pgbouncer_714_and_759_a_pipeline_without_its_sync_is_busy",
        ],
    ),
    (3, "Flush is no boundary", &["extended: Flush", "pipeline: a portal resumed over Flushes"]),
    (
        4,
        "errors in extended mode",
        &["extended: everything up to Sync is skipped", "extended: an error in each phase"],
    ),
    (
        5,
        "injected refusals",
        &["bypass_pg::w09_a_refused_statement_takes_the_earlier_ones_of_its_pipeline_with_it"],
    ),
    (
        6,
        "transactions of a string",
        &["simple: BEGIN inside a string", "simple: several statements"],
    ),
    (7, "transactions of a pipeline", &["pipeline: what must be alone"]),
    (8, "what commits at its Execute", &["edge: what commits at its Execute"]),
    (
        9,
        "COMMIT without Sync, procedures that commit",
        &["extended: COMMIT without Sync", "cancel: in a procedure that has committed"],
    ),
    (
        10,
        "COMMIT answered ROLLBACK",
        &["simple: COMMIT answered ROLLBACK", "simple: a deferred constraint fails at COMMIT"],
    ),
    (
        11,
        "COPY in",
        &[
            "copy: in, Syncs and Flushes among the data",
            "copy: in by a pipeline, data behind Sync",
            "copy: in by a pipeline that fails, late data",
            "copy: a Query in the middle is fatal",
            "copy: in, then a statement of the same string",
            "relay_pg::a_client_that_vanishes_in_its_copy_leaves_nothing_and_frees_its_backend",
        ],
    ),
    (12, "COPY out and both", &["copy: out", "replication: a stream, and SQL behind it"]),
    (13, "FunctionCall", &["call: values", "call: errors", "call: several in flight"]),
    (
        14,
        "Describe and Close",
        &["extended: Close and Describe of unknown names", "edge: Close behind a failure"],
    ),
    (15, "names", &["extended: named and unnamed statements", "edge: names taken away by SQL"]),
    (
        16,
        "portals and cursors",
        &["extended: portals suspended and resumed", "pipeline: a held cursor as a portal"],
    ),
    (17, "empty statements", &["simple: empty", "extended: empty", "pipeline: empty statements"]),
    (
        18,
        "cancels",
        &[
            "cancel: early",
            "cancel: late",
            "cancel: a wrong key",
            "relay_pg::a_cancel_hits_the_statement_it_was_sent_for_and_nothing_else",
        ],
    ),
    (
        19,
        "first bytes",
        &[
            "direct TLS: rows",
            "TLS: rows",
            "relay_pg::encryption_requests_are_answered_and_the_startup_behind_them_is_read",
            "relay_pg::plaintext_behind_an_encryption_request_ends_the_connection",
        ],
    ),
    (
        20,
        "versions and options of the protocol",
        &[
            "start: protocol 3.2",
            "start: protocol 3.9999",
            "start: unknown protocol options",
            "cancel: protocol 3.2",
        ],
    ),
    (
        21,
        "startup parameters",
        &["start: options", "start: an unknown setting", "edge: 10,001 bytes of startup"],
    ),
    (
        22,
        "replication sessions",
        &["start: replication, logical", "replication: physical", "edge: a walsender that writes"],
    ),
    (23, "authentication", &["faults_pg::pgt_proxy_6_and_pgdog_1453_a_login_bound_to_its_channel"]),
    (
        24,
        "SQLSTATEs",
        &["codes_pg::acceptance_19_fence_codes_are_distinct_from_every_other_refusal"],
    ),
    (
        25,
        "ParameterStatus",
        &["simple: ParameterStatus", "settings: in transactions and by functions"],
    ),
    (
        26,
        "notices and notifications",
        &["notices: at COMMIT", "notifications: two hundred from outside"],
    ),
    (27, "death of an idle backend", &["simple: the engine ends the session"]),
    (28, "session state", &["edge: DISCARD ALL and what it leaves", "simple: cursors"]),
    (29, "DISCARD ALL", &["start: options", "edge: DISCARD ALL and what it leaves"]),
    (
        30,
        "PREPARE TRANSACTION",
        &["edge: PREPARE TRANSACTION and COMMIT PREPARED", "edge: PREPARE TRANSACTION of nothing"],
    ),
    (
        31,
        "backends lost in a COMMIT",
        &[
            "relay_pg::a_commit_that_waits_for_a_standby_is_told_as_the_engine_tells_it",
            "relay_pg::killed_before_its_first_ready_a_session_is_told_as_the_engine_tells_it",
            "killed: in a trigger at COMMIT",
        ],
    ),
    (
        32,
        "clients gone in a statement",
        &["bypass_pg::orphan_an_insert_whose_client_is_gone_is_waited_for"],
    ),
    (
        33,
        "oversize",
        &[
            "relay_pg::a_client_that_breaks_the_protocol_is_told_and_others_go_on",
            "relay_pg::a_value_of_any_size_passes_both_ways_in_little_memory",
        ],
    ),
    (
        34,
        "errors without a code, and several",
        &["relay_pg::errors_without_a_code_and_several_at_the_end_are_passed_on"],
    ),
    (35, "timeouts in transactions", &["killed: idle in a transaction for too long"]),
    (
        36,
        "trust in the status",
        &["faults_pg::pgbouncer_714_and_759_a_pipeline_without_its_sync_is_busy"],
    ),
];
