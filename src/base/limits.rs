//! Every bound, by name, with its unit last.
//!
//! Purpose: a bound is found, reviewed and changed in one place. Relations between bounds that
//! must hold are asserted at compile time at the end. Each part adds its own section.
//!
//! Callers: every layer. Values an operator may set are in the configuration; what is here bounds
//! those too.

// --- control plane -------------------------------------------------------------------------

/// Default deadline of a write or import drain, in milliseconds.
pub const WRITE_DRAIN_DEFAULT_MS: u64 = 30_000;

/// How often admission may change in the life of one process before the next one's generations
/// could meet its own, where the clock doesn't help: 16 million times.
pub const GENERATIONS_PER_START: u64 = 1 << 24;

/// Default deadline of a read drain, in milliseconds.
pub const READ_DRAIN_DEFAULT_MS: u64 = 30_000;

/// Longest deadline a drain policy may name, in milliseconds: one day.
pub const DRAIN_DEADLINE_MAX_MS: u64 = 24 * 60 * 60 * 1000;

/// Longest hold a drain policy may name, in milliseconds: ten minutes.
pub const HOLD_MAX_MS: u64 = 10 * 60 * 1000;

/// Least time given to forced work to be seen to end, in milliseconds.
pub const FORCED_RELEASE_GRACE_MS: u64 = 10_000;

/// Longest summary of a validation, in bytes.
pub const VALIDATION_SUMMARY_BYTES: usize = 4096;

/// Longest approver, incident reference or reason of an adoption, in bytes.
pub const ADOPTION_TEXT_BYTES: usize = 1024;

/// Longest name among the options of a created target, in bytes.
pub const CREATE_OPTION_BYTES: usize = 63;

/// Capabilities alive at one gate; further ones are refused.
pub const CAPABILITIES_ALIVE_MAX: usize = 64;

/// Random bytes of a capability's secret.
pub const CAPABILITY_RANDOM_BYTES: usize = 32;

/// How long an engine may take to make a target's database, in milliseconds.
pub const TARGET_CREATE_MS: u64 = 60_000;

/// Rows that a validation's question is answered with, over all its statements.
pub const VALIDATION_ROWS_MAX: usize = 10_000;

/// Bytes of names and values that a validation's question is answered with.
pub const VALIDATION_BYTES_MAX: usize = 16 << 20;

/// Statements of one validation's question.
pub const VALIDATION_STATEMENTS_MAX: usize = 100;

/// Questions of validations that are answered at one target at once; further ones are refused.
pub const VALIDATION_QUESTIONS_MAX: usize = 16;

/// How long a validation's question may take, in milliseconds: five minutes.
pub const VALIDATION_QUERY_MS: u64 = 5 * 60 * 1000;

/// Longest text that is looked at as a capability's secret, in bytes.
pub const CAPABILITY_TEXT_BYTES_MAX: usize = 128;

/// Most changes of ownership one record keeps; beyond, adoption is refused.
pub const ADOPTIONS_MAX: usize = 64;

/// How long receipts of other than the owning operation are kept by default, in milliseconds.
pub const RECEIPT_RETENTION_DEFAULT_MS: u64 = 30 * 24 * 60 * 60 * 1000;

// --- store ---------------------------------------------------------------------------------

/// Longest wait for another process's lock on the embedded store, in milliseconds.
pub const STORE_BUSY_TIMEOUT_MS: u64 = 5_000;

/// Requests that may wait for the embedded store's thread at once.
pub const STORE_QUEUE_REQUESTS: usize = 256;

/// Largest stored record or receipt, in bytes; larger ones are refused before they are written.
pub const STORED_RECORD_BYTES: usize = 1024 * 1024;

/// Largest marker file that is read, in bytes.
pub const MARKER_BYTES: u64 = 2 * 1024 * 1024;

/// Most receipts one listing answers with.
pub const RECEIPT_LIST_MAX: usize = 10_000;

// --- classification ------------------------------------------------------------------------

/// Most schema names that one classified MySQL program carries; beyond, it may reach any.
pub const CLASSIFIED_SCHEMAS_MAX: usize = 32;

// --- relations of the above ----------------------------------------------------------------

const _: () = assert!(MARKER_BYTES > STORED_RECORD_BYTES as u64);
const _: () = assert!(STORED_RECORD_BYTES > 8 * VALIDATION_SUMMARY_BYTES);
const _: () = assert!(ADOPTIONS_MAX * 4 * ADOPTION_TEXT_BYTES < STORED_RECORD_BYTES);
const _: () = assert!(WRITE_DRAIN_DEFAULT_MS <= DRAIN_DEADLINE_MAX_MS);
const _: () = assert!(READ_DRAIN_DEFAULT_MS <= DRAIN_DEADLINE_MAX_MS);

// --- engines: control connections and locks ------------------------------------------------

/// Most control connections to one engine that serve queries at the same time; further callers
/// wait. Lock holders come on top: one per namespace that is fenced with `hold`.
pub const CONTROL_CONNECTIONS_MAX: usize = 8;
/// Most databases of one engine whose idle control connection is kept open.
pub const CONTROL_KEPT_MAX: usize = 16;
/// Most questions that one control connection keeps prepared; there are fewer texts.
pub const CONTROL_PREPARED_MAX: usize = 32;
/// First wait before a connection attempt that follows a failed one, in milliseconds; doubles.
pub const CONTROL_BACKOFF_FIRST_MS: u64 = 50;
/// Longest wait before a connection attempt that follows failed ones, in milliseconds.
/// Well within [`RECOVERY_SERVER_MS`]: who waits no longer must get its attempt.
pub const CONTROL_BACKOFF_MAX_MS: u64 = 500;
/// How much longer than the engine's own statement timeout its answer is waited for, in
/// milliseconds.
pub const CONTROL_ANSWER_GRACE_MS: u64 = 3_000;
// A connection that has gone mute is replaced within a drain, which else would drop the wait and
// leave it in its place.
const _: () =
    assert!(CONTROL_STATEMENT_TIMEOUT_MS + CONTROL_ANSWER_GRACE_MS < WRITE_DRAIN_DEFAULT_MS / 2);
/// What a MySQL server may take to open one table for the engine lock, in milliseconds, on top of
/// what it waits for others.
pub const LOCK_TABLE_OPENS_MS: u64 = 20;
/// Most rounds of listing and locking tables before the schema counts as unstable.
pub const LOCK_ROUNDS_MAX: u32 = 8;
/// How long a drain waits before its first census for the connection that its lock will be taken
/// on, where that is being opened already, in milliseconds; then it is opened when it is needed.
pub const HOLDER_OPENING_MS: u64 = 500;
/// How often the holder of a MySQL engine lock asks its server whether it is there, in
/// milliseconds: a lock that went with its connection is noticed within about this.
pub const LOCK_HOLDER_PING_MS: u64 = 300;
/// Least pause between two looks at MySQL's cache of transactions, in milliseconds; the server
/// refreshes it only after 100 ms without a reader.
pub const INNODB_TRX_PAUSE_MS: u64 = 150;
/// Most views, triggers, routines and events that are searched for names of other schemas.
pub const CLOSURE_OBJECTS_MAX: usize = 2_000;
/// Longest statement text, in characters, that a blocker or an activity row carries.
pub const STATEMENT_CHARS_MAX: i32 = 200;
/// Own backends that are remembered after their connection ended (their server side may linger).
pub const OWN_BACKENDS_MAX: usize = 256;
/// Own backends whose connection ended here and of which the engine hasn't said yet that they are
/// gone; the oldest is forgotten beyond.
pub const STRAYS_MAX: usize = 256;
/// Idle time on a control connection after which the engine's side asks whether we are still
/// there, in seconds; see `CONTROL_KEEPALIVES`.
pub const CONTROL_KEEPALIVE_IDLE_S: u32 = 5;
/// Pause between two such questions without an answer, in seconds.
pub const CONTROL_KEEPALIVE_PAUSE_S: u32 = 3;
/// Unanswered questions after which either side gives the connection up.
pub const CONTROL_KEEPALIVES: u32 = 3;
/// Silence on a session's TCP connection, to its client or its engine, after which the other side
/// is asked whether it is still there, in seconds. See `SESSION_KEEPALIVES`.
pub const SESSION_KEEPALIVE_IDLE_S: u64 = 60;
/// Pause between two such questions without an answer, in seconds.
pub const SESSION_KEEPALIVE_PAUSE_S: u64 = 10;
/// Unanswered questions after which the session's connection is given up.
pub const SESSION_KEEPALIVES: u32 = 6;
/// How often programs are looked for that wait for the fence's own engine lock, in milliseconds;
/// one that is found at two looks in a row is asked about.
pub const LOCK_WAITERS_LOOK_MS: u64 = 100;
/// How long a parked fault point waits for its file (debug builds), in milliseconds.
pub const FAULT_PARK_MAX_MS: u64 = 120_000;

// The wire, client side and engine side.

/// Longest packet of a MySQL login: names, and the 64 KiB of attributes that MySQL takes.
pub const LOGIN_PACKET_BYTES_MAX: usize = 128 << 10;
/// Bits of the proxy's own RSA key, as MySQL's own.
pub const RSA_KEY_BITS: usize = 2_048;
/// Longest startup packet taken from a client, in bytes with its length: PostgreSQL's own limit,
/// which is 10,000 behind the length.
pub const STARTUP_PACKET_BYTES_MAX: usize = 10_004;
/// Time a client has from connecting to the end of authentication, as PostgreSQL's default.
pub const STARTUP_TIMEOUT_MS: u64 = 60_000;
/// How often a worker looks whether a login's time is up, in milliseconds, while it has any: a
/// login's limits are kept to within this.
pub const PATIENCE_LOOK_MS: u64 = 250;
/// Longest wait of a login behind a closed gate for the engine's word on login triggers.
pub const LOGIN_LOOK_MS: u64 = 5_000;
/// How long the end of a login whose client is gone is waited for; behind that it counts as lost.
pub const LOGIN_SEEN_OUT_MS: u64 = 60_000;
/// Databases of which a lost login is kept by name; one more counts at every database.
pub const LOGINS_LOST_MAX: usize = 1_024;
/// Longest message, by its length field: a little above the gigabyte that PostgreSQL takes of a
/// client or allocates for a row. Nothing is ever buffered to it.
pub const FRAME_LENGTH_MAX: usize = (1 << 30) + 64;
/// Longest statement text that is read to its end before it is forwarded; longer ones are judged
/// by their beginning and are at least unprovable.
pub const STATEMENT_INSPECT_BYTES_MAX: usize = 1 << 20;
/// Longest beginning of a Bind, Execute, Describe or Close that is searched for its names.
pub const NAMES_INSPECT_BYTES_MAX: usize = 16 << 10;
/// Longest engine message (error, parameter status) that is read whole; longer ones pass unread.
pub const ENGINE_MESSAGE_INSPECT_BYTES_MAX: usize = 64 << 10;
/// One read from a socket. The buffer is the thread's, lent to a session while it has bytes.
pub const SCRATCH_BYTES: usize = 64 << 10;
/// ReadyForQuery answers a session may be owed before its client is no longer read.
pub const OWED_MAX: usize = 16_384;
/// Texts of a session that are kept at its engine under names of the proxy's (`auto_prepare`).
pub const AUTO_PREPARE_NAMES_MAX: usize = 256;
/// Bytes of these texts, in the proxy's memory.
pub const AUTO_PREPARE_BYTES_MAX: usize = 256 << 10;
/// Longest such text, in bytes, with its types.
pub const AUTO_PREPARE_TEXT_BYTES_MAX: usize = 16 << 10;
/// Statements of the proxy's that one engine session may have, those among them that are forgotten
/// and not closed yet.
pub const AUTO_PREPARE_ALIVE_MAX: usize = 2 * AUTO_PREPARE_NAMES_MAX;
/// Forgotten ones that are closed in front of each new one.
pub const AUTO_PREPARE_CLOSES: usize = 4;
/// Texts of a session that came once and are known again, by eight bytes each.
pub const AUTO_PREPARE_SEEN: usize = 512;
/// Answers of the engine that a session's kept statements may wait for; beyond, every Parse is
/// forwarded as it is.
pub const AUTO_PREPARE_PENDING_MAX: usize = 4_096;
/// Unanswered messages that change what `""` is, of one session; one more ends it. The engine
/// answers thousands at once, so only what never ends a pipeline it skips gets there.
pub const AUTO_PREPARE_UNANSWERED_MAX: usize = 65_536;
/// Random letters in the names of a session's kept statements.
pub const AUTO_PREPARE_TAG_LETTERS: usize = 8;
/// Names of prepared statements remembered per session.
pub const PREPARED_NAMES_MAX: usize = 65_536;
/// Parse and Close messages of a session that may wait for the engine's answer and are remembered;
/// beyond, no name of the session is known until they are answered.
pub const PREPARED_PENDING_MAX: usize = 65_536;
/// SQL EXECUTEs of one MySQL text that are looked up; a further one is unprovable.
pub const EXECUTED_NAMES_MAX: usize = 16;
/// Bytes of a statement's or portal's name that the engine looks at: NAMEDATALEN less one.
pub const ENGINE_NAME_BYTES_MAX: usize = 63;
/// A longer name of a statement or portal that isn't ASCII can't be followed: the engine converts
/// it to its own encoding before it cuts it, to at most three or four bytes for each.
pub const CONVERTED_NAME_BYTES_MAX: usize = 15;
/// Named portals remembered per session.
pub const PORTALS_MAX: usize = 1_024;
/// Accepted connections waiting for one worker.
pub const ACCEPT_QUEUE_MAX: usize = 1_024;
/// Pause after a failed accept (no descriptor is free, mostly) before the next, in milliseconds.
pub const ACCEPT_RETRY_MS: u64 = 50;
/// Statements of one MySQL engine that are being stopped at the same time; the others wait for
/// their turn. Fewer than [`CONTROL_CONNECTIONS_MAX`], which drains need as well.
pub const KILLS_AT_ONCE: usize = 4;
/// How long a login under a closed gate waits for the engine's `init_connect`, in milliseconds;
/// then what the engine said last counts.
pub const LOGIN_TEXT_TIMEOUT_MS: u64 = 2_000;
/// How long a CancelRequest may take to be delivered to the engine.
pub const CANCEL_TIMEOUT_MS: u64 = 5_000;
/// How often an injected ROLLBACK is tried before the backend is left to be terminated.
pub const FORCED_ROLLBACK_TRIES_MAX: u32 = 3;
/// How often in a row the guard's own statement may fail (be cancelled, or time out) before the
/// session is ended.
pub const GUARD_TRIES_MAX: u32 = 5;
/// How often in a row a rollback to the guard's savepoint may fail before the whole transaction is
/// rolled back.
pub const UNWRAP_TRIES_MAX: u32 = 3;
/// How many rounds with the engine a program may wait for the guard before the session is ended: a
/// question, a COMMIT, the setting, and every failure that is allowed, twice over.
pub const GUARD_ROUNDS_MAX: u32 = 20;
/// Behind longer programs no guard is sent for the next one: what an engine reads of a packet is
/// at least its `net_buffer_length`, 16 KiB unless somebody has set it lower.
pub const GUARD_AHEAD_PROGRAM_BYTES_MAX: usize = 16_000;
/// How long sessions that were told to end are waited for when the proxy stops.
pub const STOP_LINGER_MS: u64 = 2_000;
/// Pause between two looks at the sessions that are left when the proxy stops, in milliseconds.
pub const STOP_LOOK_MS: u64 = 20;
/// Threads of the control side: admin, drains, control connections.
pub const CONTROL_THREADS: usize = 2;
/// The engine's bound of one control statement.
pub const CONTROL_STATEMENT_TIMEOUT_MS: u64 = 10_000;
/// Statement texts whose class one worker remembers.
pub const CLASSIFIER_CACHE_ENTRIES: usize = 16_384;

/// Largest program that is held at a closed gate, with what its client has sent behind it, in
/// bytes. A larger one is refused as if there were no room.
pub const HELD_PROGRAM_BYTES_MAX: usize = 4 << 20;
/// Bytes of all programs that one namespace holds.
pub const HELD_BYTES_MAX: usize = 64 << 20;
/// Held programs of one namespace that are being judged again at the same time, when its gate has
/// moved. They are called in arrival order; the next is called when one of these has its verdict.
pub const HELD_CALLED_MAX: usize = 32;
/// Default of the programs that one namespace holds.
pub const HELD_DEFAULT_MAX: usize = 1_000;

const _: () = assert!(HELD_PROGRAM_BYTES_MAX > STATEMENT_INSPECT_BYTES_MAX + SCRATCH_BYTES);
const _: () = assert!(HELD_BYTES_MAX > HELD_PROGRAM_BYTES_MAX);
const _: () = assert!(STARTUP_PACKET_BYTES_MAX < SCRATCH_BYTES);
const _: () = assert!(AUTO_PREPARE_TEXT_BYTES_MAX < AUTO_PREPARE_BYTES_MAX);
const _: () = assert!(NAMES_INSPECT_BYTES_MAX <= STATEMENT_INSPECT_BYTES_MAX);

// --- commands, drains and the admin API ----------------------------------------------------

/// How often one command decides again because somebody else committed first.
pub const DECIDE_ROUNDS_MAX: u32 = 8;
/// Commands of one namespace that may be in work at once; further ones are refused.
pub const COMMANDS_IN_WORK_MAX: usize = 64;
/// Gates up to which a statement that names another database has a gate made for it; beyond, only
/// gates that are there are asked. A statement that may reach any database asks at all of them.
pub const GATES_BY_NAME_MAX: u64 = 4_096;
/// Databases that one PostgreSQL text is followed to by name; one that names more may reach any.
pub const CLASSIFIED_DATABASES_MAX: usize = 32;
/// Namespaces for which commands may have been seen; further new names are refused.
pub const NAMESPACES_SEEN_MAX: usize = 65_536;
/// First pause between two looks of a drain at the engine, in milliseconds; doubles.
pub const DRAIN_LOOK_FIRST_MS: u64 = 10;
/// How long a drain waits for writers before it asks the engine for their names, in milliseconds:
/// most end before, and nobody has to be named.
pub const DRAIN_UNNAMED_MS: u64 = 50;
/// First pause of these after which the engine is asked whether backends of lost sessions are gone,
/// in milliseconds; doubles.
pub const DRAIN_LOST_LOOK_FIRST_MS: u64 = 2;
/// How long after its time a drain may still wait for an answer of the engine that is under way,
/// in milliseconds; then it answers DRAINING without it.
pub const DRAIN_ANSWER_GRACE_MS: u64 = 5_000;
/// How long the word of an engine holds for those who ask whether the proxy is ready, and how long
/// the engine has for it, in milliseconds.
pub const HEALTH_ASK_MS: u64 = 5_000;
/// Longest pause between two looks of a drain at the engine, in milliseconds.
pub const DRAIN_LOOK_MAX_MS: u64 = 500;
/// How long a target's creation waits for programs that ran on its engine before its name was
/// closed, in milliseconds; then it is refused, and nothing was made.
pub const TARGET_PROGRAMS_WAIT_MS: u64 = 30_000;
/// Sessions that such a refusal names; further ones are only counted.
pub const TARGET_PROGRAMS_NAMED_MAX: usize = 8;
/// Blockers that a view names; further ones are only counted.
pub const BLOCKERS_SHOWN_MAX: usize = 100;
/// Forced ends that one proof names; further ones are in the log only.
pub const FORCED_NAMED_MAX: usize = 1_000;
/// Default wait of one attempt at the engine lock, in milliseconds, per table.
pub const ENGINE_LOCK_TIMEOUT_MS: u64 = 900;
/// How long an opening transition waits for the engine lock to be given back, in milliseconds;
/// after that its connection is dropped, which ends the lock too.
pub const ENGINE_LOCK_RELEASE_MS: u64 = 5_000;
/// First pause before a lost engine lock is tried again, in milliseconds; doubles.
pub const ENGINE_LOCK_RETRY_FIRST_MS: u64 = 100;
/// Longest pause before a lost engine lock is tried again, in milliseconds.
pub const ENGINE_LOCK_RETRY_MAX_MS: u64 = 5_000;
/// Gaps of one engine lock that are kept for view.
pub const ENGINE_LOCK_GAPS_MAX: usize = 32;
/// How long a start waits for each engine lock before it goes on and tries in the background, in
/// milliseconds.
pub const RECOVERY_LOCK_WAIT_MS: u64 = 3_000;
/// How long a start waits for each engine to say which server it is, in milliseconds.
pub const RECOVERY_SERVER_MS: u64 = 2_000;
/// Pause between two looks at which run of its engine new sessions are of, in milliseconds.
pub const RUN_LOOK_MS: u64 = 1_000;
/// Most such looks that are left out in a row at an engine that doesn't answer.
pub const RUN_LOOK_REST_MAX: u32 = 64;
/// How long an inspection waits for the engine's word on identity, in milliseconds.
pub const INSPECT_ENGINE_MS: u64 = 3_000;
/// Pause between two sweeps for backends that the proxy lost, in milliseconds.
pub const ORPHAN_SWEEP_MS: u64 = 3_000;
/// Largest body of an admin request, in bytes.
pub const ADMIN_BODY_BYTES_MAX: usize = 64 << 10;
/// How long an admin connection may take to send a request's head, in milliseconds; one that says
/// nothing is closed then, so that silent ones don't take the place of somebody with the key.
pub const ADMIN_HEAD_MS: u64 = 10_000;
/// How long the body of an admin request may take to arrive, in milliseconds.
pub const ADMIN_BODY_MS: u64 = 10_000;
/// Admin connections open at once; further ones wait to be accepted.
pub const ADMIN_CONNECTIONS_MAX: usize = 256;
/// Longest time, in milliseconds, that a reader of the admin API may take nothing of an answer.
pub const ADMIN_STALL_MS: u64 = 10_000;
/// Silence of an admin connection after which its peer is asked for a sign of life, in seconds, and
/// the pause between two such questions.
pub const ADMIN_KEEPALIVE_S: u64 = 30;
/// Longest message of a console's client, in bytes; a statement is at most
/// [`ADMIN_BODY_BYTES_MAX`] of it.
pub const CONSOLE_MESSAGE_BYTES_MAX: usize = 2 * ADMIN_BODY_BYTES_MAX;
/// Prepared statements that one connection of a console may have.
pub const CONSOLE_STATEMENTS_MAX: usize = 256;
/// Bytes of an answer that wait for a console's client before more of it is made.
pub const CONSOLE_WRITE_BYTES: usize = 256 << 10;
/// How long a listing of all receipts may take, in milliseconds; the rest is only counted.
pub const CONSOLE_RECEIPTS_MS: u64 = 10_000;
/// Listeners of `/v1/events`; each has one of the admin connections.
pub const EVENT_LISTENERS_MAX: usize = 32;
const _: () = assert!(EVENT_LISTENERS_MAX * 4 <= ADMIN_CONNECTIONS_MAX);
/// Shortest time between two events, in milliseconds.
pub const EVENTS_PAUSE_MS: u64 = 500;
/// How often what nobody announces is looked at while somebody listens, in milliseconds.
pub const EVENTS_LOOK_MS: u64 = 5_000;
/// After this many milliseconds without an event a listener gets a sign of life.
pub const EVENTS_QUIET_MS: u64 = 15_000;
/// Namespaces in one event; those with a fence come first.
pub const EVENTS_NAMESPACES_MAX: usize = 200;
/// Sessions that one listing shows; further ones are only counted.
pub const SESSIONS_SHOWN_MAX: usize = 10_000;

// Each takes a few hundred bytes, and a record that is too large could never be committed.
const _: () = assert!(FORCED_NAMED_MAX * 512 < STORED_RECORD_BYTES);
const _: () = assert!(CONTROL_BACKOFF_FIRST_MS <= CONTROL_BACKOFF_MAX_MS);
const _: () = assert!(CONTROL_BACKOFF_MAX_MS * 2 <= RECOVERY_SERVER_MS);
const _: () = assert!(DRAIN_LOOK_FIRST_MS <= DRAIN_LOOK_MAX_MS);
const _: () = assert!(0 < DRAIN_LOST_LOOK_FIRST_MS && DRAIN_LOST_LOOK_FIRST_MS < DRAIN_UNNAMED_MS);
const _: () = assert!(ENGINE_LOCK_RETRY_FIRST_MS <= ENGINE_LOCK_RETRY_MAX_MS);
