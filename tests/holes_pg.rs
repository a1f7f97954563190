//! Holes that were found by attacking the fence, each with the way that led through it.
//!
//! Purpose: one test per hole. All of them go through the proxy (or through another database of
//! the same engine) and had committed something after an acknowledged fence. What can't be closed
//! at this layer is listed in `docs/CONTRACT.md`, section Limits.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use acceptance::{
    Latch, PATIENCE, Site, applied, blockers, code, fail_after, force_after, still_draining,
};
use support::proxy::uuid;
use support::wire::{Answer, bind, copy_data, copy_done, execute, fields, parse, query, sync};
use support::{Engine, PgCluster, Proxy, ProxyOptions, Wire, poll};

/// What read-only mode and the engine lock leave open together: a sequence, the catalog, a large
/// object, each behind a view.
const OPAQUE: &str = "
CREATE SEQUENCE s;
CREATE FUNCTION counted() RETURNS int LANGUAGE sql VOLATILE AS $f$ SELECT nextval('s')::int $f$;
CREATE VIEW counting AS SELECT counted() AS n;
CREATE FUNCTION off() RETURNS text LANGUAGE sql VOLATILE AS
    $f$ SELECT set_config('default_transaction_read_only', 'off', false) $f$;
CREATE VIEW switching AS SELECT off() AS n;
CREATE FUNCTION late() RETURNS int LANGUAGE plpgsql VOLATILE AS $f$
BEGIN PERFORM pg_advisory_xact_lock_shared(77); RETURN nextval('s'); END $f$;
CREATE VIEW belated AS SELECT late() AS n;
CREATE VIEW object AS SELECT lo_create(0) AS n;
CREATE FUNCTION f() RETURNS int LANGUAGE sql VOLATILE AS $f$ SELECT 1 $f$;
";

fn site() -> Site<'static> {
    let site = Site::shared();
    site.setup(OPAQUE);
    site
}

#[track_caller]
fn assert_unchanged(site: &Site<'_>) {
    assert_eq!(site.rows(), "");
    assert_eq!(site.sql("SELECT last_value, is_called FROM s"), "1|f", "a value was drawn");
    assert_eq!(site.sql("SELECT count(*) FROM pg_largeobject_metadata"), "0");
}

#[track_caller]
fn assert_typed(answer: &Answer, what: &str) {
    assert!(code(answer).starts_with("ZF"), "{what}: {answer:?}");
}

/// The control arm of every test here: without a fence the same way changes something.
#[track_caller]
fn assert_moved(site: &Site<'_>) {
    assert_eq!(site.sql("SELECT is_called FROM s"), "t", "the attack does nothing at all");
}

#[test]
fn every_spelling_of_false_is_a_session_with_a_guard() {
    let site = site();
    let operation = site.fence();
    for value in ["f", "FALSE", "of", "n", "0"] {
        let parameters = [("replication", value)];
        let mut client =
            Wire::try_connect(site.proxy.port(), "wire", &site.db, &parameters).unwrap();
        assert_typed(&client.query("SELECT n FROM counting"), value);
    }
    assert_unchanged(&site);
    site.unfence(&operation);
    let mut client =
        Wire::try_connect(site.proxy.port(), "wire", &site.db, &[("replication", "f")]).unwrap();
    client.query("SELECT n FROM counting").ok();
    assert_moved(&site);
}

/// A block that leaves read-only mode on its own, in any version.
const LEAVES: &str = "DO $$ BEGIN COMMIT; SET TRANSACTION READ WRITE; PERFORM nextval('s'); END $$";

#[test]
fn a_parse_that_the_engine_skipped_does_not_rename_the_unnamed_statement() {
    let site = site();
    let mut client = site.client();
    client.send_raw(&[parse("", LEAVES), sync()].concat());
    client.until_ready().ok();
    let operation = site.fence();
    client.send_raw(&[parse("e", "no sql"), parse("", "SELECT 1"), sync()].concat());
    assert_eq!(code(&client.until_ready()), "42601");
    client.send_raw(&[bind("", "", &[]), execute("", 0), sync()].concat());
    assert_typed(&client.until_ready(), "the old unnamed statement");
    assert_unchanged(&site);
    site.unfence(&operation);
    client.send_raw(&[bind("", "", &[]), execute("", 0), sync()].concat());
    client.until_ready().ok();
    assert_moved(&site);
}

#[test]
fn the_guard_leaves_the_unnamed_statement_and_portal_to_the_client() {
    let site = site();
    let mut client = site.client();
    client.query("BEGIN").ok();
    let two = "SELECT 1 UNION ALL SELECT 2";
    client.send_raw(&[parse("", two), bind("", "", &[]), execute("", 1), sync()].concat());
    client.until_ready().ok();
    let operation = site.fence();
    client.send_raw(&[execute("", 1), sync()].concat());
    assert_eq!(client.until_ready().ok().cell(), "2", "the suspended portal goes on");
    client.query("COMMIT").ok();
    client.send_raw(&[parse("", "SELECT 3"), sync()].concat());
    client.until_ready().ok();
    client.send_raw(&[bind("", "", &[]), execute("", 0), sync()].concat());
    assert_eq!(client.until_ready().ok().cell(), "3");
    assert_eq!(client.query("SELECT count(*) FROM pg_prepared_statements").ok().cell(), "0");
    site.unfence(&operation);
}

#[test]
fn a_name_that_sql_gave_to_another_statement_is_judged_by_that() {
    let site = site();
    let mut client = site.client();
    client.send_raw(&[parse("a", "SELECT 1"), sync()].concat());
    client.until_ready().ok();
    client.query("DEALLOCATE a").ok();
    client.query("PREPARE a AS SELECT lo_create(0)").ok();
    let operation = site.fence();
    client.send_raw(&[bind("", "a", &[]), execute("", 0), sync()].concat());
    assert_typed(&client.until_ready(), "the name's second statement");
    assert_unchanged(&site);
    site.unfence(&operation);
}

#[test]
fn a_string_can_not_begin_a_second_transaction_behind_what_nobody_read() {
    let site = site();
    let operation = site.fence();
    let string = "SELECT n FROM switching; COMMIT; SELECT n FROM counting";
    assert_typed(&site.client().query(string), string);
    // Over two programs the guard is set again in between.
    let mut client = site.client();
    client.query("SELECT n FROM switching; COMMIT").ok();
    assert_typed(&client.query("SELECT n FROM counting"), "the next program");
    assert_unchanged(&site);
    site.unfence(&operation);
    site.client().query(string).ok();
    assert_moved(&site);
}

#[test]
fn a_read_from_before_the_fence_that_draws_from_a_sequence_is_waited_for() {
    let site = site();
    let latch = Latch::shut(&site);
    let mut client = site.client();
    client.send_raw(&query("SELECT n FROM belated"));
    site.wait_at_latch(client.backend_pid());
    let body = site.acquire_body(&uuid(), &fail_after(300));
    still_draining(&site.acquire(&body));
    latch.open();
    client.until_ready().ok();
    let answer = site.acquire_at_last(&body);
    let drawn = site.sql("SELECT last_value, is_called FROM s");
    assert_eq!(drawn, "1|t", "before the acknowledgement, not after it");
    applied(&answer);
}

/// A COPY swallows Syncs until it fails, and answers those behind its failure: counted by their
/// number, the answer of one of them was taken for that of a program behind it, which then ran on
/// without a lease. And an error is skipped behind only where it was a pipeline's own.
#[test]
fn a_program_behind_a_copy_keeps_its_lease_whatever_became_of_the_syncs() {
    let site = site();
    site.setup("CREATE TABLE copied (n int)");
    let write = "DO $$ BEGIN PERFORM pg_advisory_xact_lock_shared(77); \
                 CREATE TABLE belated_one (); PERFORM nextval('s'); END $$";
    let copy = |sql| [parse("", sql), bind("", "", &[]), execute("", 0)].concat();
    let (from, unread) = ("COPY copied FROM STDIN", "COPY copied FROM STDIN (FREEZE)");
    let pipelined = [copy(write), sync()].concat();
    let program = || query(write);
    let none = Vec::new();
    let rows = parse("", "SELECT generate_series(1, 9)");
    let suspended = [rows, bind("", "", &[]), execute("", 1)].concat();
    let ways: [(&str, Vec<u8>, Vec<u8>); 6] = [
        (
            "a portal that is suspended in front of an error",
            none.clone(),
            [suspended, query("SELECT nosuch"), program(), sync()].concat(),
        ),
        (
            "the end of the COPY in front of its own Sync",
            none.clone(),
            [copy(from), copy_done(), sync(), pipelined.clone()].concat(),
        ),
        ("unread, a query", none.clone(), [query(unread), sync(), program()].concat()),
        (
            "unread, a pipeline",
            none.clone(),
            [copy(unread), sync(), sync(), pipelined.clone()].concat(),
        ),
        (
            "unread, several Syncs",
            none,
            [query(unread), sync(), sync(), sync(), pipelined].concat(),
        ),
        ("failed by then", query(from), [copy_data(b"not a number\n"), sync(), program()].concat()),
    ];
    for (way, first, then) in ways {
        let latch = Latch::shut(&site);
        let mut client = site.client();
        if !first.is_empty() {
            client.send_raw(&first);
            assert_eq!(client.read_frame().0, b'G', "{way}");
        }
        client.send_raw(&then);
        site.wait_at_latch(client.backend_pid());
        let operation = uuid();
        let body = site.acquire_body(&operation, &fail_after(300));
        let answer = site.acquire(&body);
        let seen = still_draining(&answer);
        assert_eq!(seen["drain"]["active_writers"], 1, "{way}: {seen:#}");
        latch.open();
        site.acquire_at_last(&body);
        site.sql("SELECT 'belated_one'::regclass");
        site.unfence(&operation);
        site.sql("DROP TABLE belated_one");
    }
}

/// A Flush that breaks the protocol has the engine skip everything to the next Sync: the guard's
/// own statement with it, whose Sync is answered as if all had gone well.
#[test]
fn a_broken_flush_does_not_take_the_guard_away() {
    let site = site();
    let operation = site.fence();
    for message in [b'H', b'S'] {
        let mut client = site.client();
        client.send(message, b"\0");
        client.send_raw(&query("SELECT n FROM counting"));
        assert!(client.closed_within(PATIENCE), "{}", char::from(message));
    }
    assert_unchanged(&site);
    site.unfence(&operation);
    site.client().query("SELECT n FROM counting").ok();
    assert_moved(&site);
}

#[test]
fn a_large_object_made_by_a_view_waits_behind_the_engine_lock_and_is_stopped() {
    let site = site();
    let operation = site.fence();
    assert_eq!(site.inspect()["fence"]["evidence"]["engine_lock"]["mode"], "hold");
    let answer = site.client().query("SELECT n FROM object");
    assert_typed(&answer, "lo_create behind a view");
    assert_unchanged(&site);
    site.unfence(&operation);
    site.client().query("SELECT n FROM object").ok();
    assert_eq!(site.sql("SELECT count(*) FROM pg_largeobject_metadata"), "1");
}

#[test]
fn the_evidence_names_functions_that_the_fence_can_not_see_through() {
    let site = site();
    site.setup(
        "CREATE FUNCTION lift() RETURNS int LANGUAGE plpgsql VOLATILE AS
             $f$ BEGIN RESET transaction_read_only; RETURN nextval('s'); END $f$;
         CREATE FUNCTION explain() RETURNS int LANGUAGE plpgsql AS
             $f$ BEGIN EXECUTE 'explain (analyse) create table u as table t'; RETURN 1; END $f$;
         CREATE FUNCTION lower(text) RETURNS text LANGUAGE sql AS $f$ SELECT $1 $f$",
    );
    let operation = site.fence();
    let gaps = site.inspect()["fence"]["evidence"]["engine_lock"]["gaps"].to_string();
    for name in ["public.lift", "public.explain", "public.lower"] {
        assert!(gaps.contains(name), "{name}: {gaps}");
    }
    assert!(!gaps.contains("public.counted"), "{gaps}");
    site.unfence(&operation);
}

/// From 17 on a login runs code, in front of every program that could be guarded.
#[test]
fn the_evidence_names_login_triggers() {
    let site = site();
    if site.sql("SELECT current_setting('server_version_num')::int >= 170000") != "t" {
        return;
    }
    site.setup(
        "CREATE FUNCTION noted() RETURNS event_trigger LANGUAGE plpgsql AS
             $f$ BEGIN PERFORM 1; END $f$",
    );
    site.sql("CREATE EVENT TRIGGER at_login ON login EXECUTE FUNCTION noted()");
    let operation = site.fence();
    let gaps = site.inspect()["fence"]["evidence"]["engine_lock"]["gaps"].to_string();
    assert!(gaps.contains("login triggers") && gaps.contains("at_login"), "{gaps}");
    site.unfence(&operation);
    site.sql("ALTER EVENT TRIGGER at_login DISABLE");
    let operation = site.fence();
    let gaps = site.inspect()["fence"]["evidence"]["engine_lock"]["gaps"].to_string();
    assert!(!gaps.contains("at_login"), "{gaps}");
    site.unfence(&operation);
}

#[test]
fn another_database_can_not_reach_a_fenced_one_by_whatever_statement() {
    let (site, other) = (site(), site());
    let operation = site.fence();
    let db = &site.db;
    let mut client = other.client();
    client.query("SET ROLE app").ok();
    for sql in [
        format!("SELECT f(); ALTER DATABASE {db} SET work_mem = '1MB'"),
        format!("COMMENT ON DATABASE {db} IS 'mine'"),
        format!("GRANT CONNECT ON DATABASE {db} TO wire"),
        format!("REVOKE CONNECT ON DATABASE {db} FROM PUBLIC"),
        "REASSIGN OWNED BY app TO wire".to_owned(),
        format!("SELECT f(); ALTER ROLE wire IN DATABASE {db} SET work_mem = '1MB'"),
    ] {
        assert_eq!(code(&client.query(&sql)), "ZF007", "{sql}");
    }
    // Its own database stays its own.
    client.query(&format!("SELECT f(); COMMENT ON DATABASE {} IS 'mine'", other.db)).ok();
    client.query("CREATE TABLE u (n int); COMMENT ON TABLE u IS 'mine'; DROP TABLE u").ok();
    site.unfence(&operation);
    client.query(&format!("SELECT f(); COMMENT ON DATABASE {db} IS 'mine'")).ok();
}

#[test]
fn a_change_from_another_database_is_waited_for_though_nobody_has_been_here_yet() {
    let (site, other) = (site(), site());
    let mut client = other.client();
    client.query("SET ROLE app").ok();
    client.query("BEGIN").ok();
    client.query(&format!("ALTER DATABASE {} SET work_mem = '1MB'", site.db)).ok();
    let body = site.acquire_body(&uuid(), &fail_after(300));
    still_draining(&site.acquire(&body));
    client.query("COMMIT").ok();
    applied(&site.acquire_at_last(&body));
}

#[test]
fn cancels_that_hit_the_guard_neither_let_a_program_through_nor_end_the_session() {
    let site = site();
    let operation = site.fence();
    let mut client = site.client();
    for _ in 0..40 {
        client.send_raw(&query("SELECT n FROM counting"));
        client.cancel();
        let seen = code(&client.until_ready());
        assert!(["ZF001", "57014"].contains(&seen.as_str()), "{seen}");
    }
    // A cancel sent late may still be on its way.
    let answered = poll(PATIENCE, || (code(&client.query("SELECT 1")).is_empty()).then_some(()));
    assert!(answered.is_some());
    assert_unchanged(&site);
    site.unfence(&operation);
}

/// One statement in each of the forms that a driver may give it, each to its end. By name it is
/// `name`, which is known.
fn forms(name: &str, sql: &str) -> [Vec<u8>; 3] {
    let run = |statement| [bind("", statement, &[]), execute("", 0), sync()].concat();
    [query(sql), [parse("", sql), run("")].concat(), run(name)]
}

/// A client that knows the statements which [`forms`] name.
fn prepared(site: &Site<'_>) -> Wire {
    let mut client = site.client();
    let names = [("s", "SELECT n FROM switching"), ("c", "SELECT n FROM counting")];
    for (name, sql) in names {
        client.send_raw(&[parse(name, sql), sync()].concat());
        client.until_ready().ok();
    }
    client
}

/// The guard for a program is set behind the one before it, and each of those lifts the default.
#[test]
fn what_lifts_the_default_does_not_reach_the_program_behind_it() {
    let site = site();
    let mut client = prepared(&site);
    let operation = site.fence();
    let lifts = forms("s", "SELECT n FROM switching");
    let draws = forms("c", "SELECT n FROM counting");
    for _ in 0..10 {
        for (lift, draw) in lifts.iter().flat_map(|lift| draws.iter().map(move |d| (lift, d))) {
            // One behind the answer to the other, at once; and both in one write.
            client.send_raw(lift);
            let lifted = client.until_ready().ok();
            let reported = lifted.frames.iter().any(|(tag, _)| *tag == b'S');
            assert!(reported, "nothing was lifted: {lifted:?}");
            client.send_raw(draw);
            assert_eq!(code(&client.until_ready()), "ZF001", "{draw:?}");
            client.send_raw(&[lift.clone(), draw.clone(), draw.clone()].concat());
            assert_eq!(client.until_ready().ok().cell(), "off");
            assert_eq!(code(&client.until_ready()), "ZF001", "{draw:?}");
            assert_eq!(code(&client.until_ready()), "ZF001", "{draw:?}");
        }
    }
    assert_unchanged(&site);
    site.unfence(&operation);
    client.send_raw(&draws[0]);
    client.until_ready().ok();
    assert_moved(&site);
}

/// Cancels that meet programs, guards behind them, or nothing, from before a fence to behind it.
/// Every other program lifts the default, and the one behind it draws from a sequence.
#[test]
fn a_session_under_a_rain_of_cancels_draws_nothing_while_the_fence_stands() {
    let site = site();
    let mut client = prepared(&site);
    let (cancels, cancel) = (client.canceller(), client.canceller());
    let drawn = || site.sql("SELECT last_value FROM s").parse::<u64>().unwrap();
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let ran = |more: u64| {
        let from = rounds.load(Ordering::SeqCst);
        let seen = poll(PATIENCE, || (rounds.load(Ordering::SeqCst) >= from + more).then_some(()));
        assert!(seen.is_some(), "the session stands still");
    };
    let (fenced, released) = std::thread::scope(|scope| {
        let _ends = Ends(&stop);
        scope.spawn(|| {
            let lifts = forms("s", "SELECT n FROM switching");
            let draws = forms("c", "SELECT n FROM counting");
            let mut round = 0_usize;
            while !stop.load(Ordering::SeqCst) {
                let (lift, draw) = (&lifts[round % 3], &draws[round / 3 % 3]);
                let at_once = round.is_multiple_of(2);
                client.send_raw(lift);
                if at_once {
                    client.send_raw(draw);
                }
                for at in 0..2 {
                    let seen = code(&client.until_ready());
                    assert!(["", "ZF001", "57014"].contains(&seen.as_str()), "{seen}");
                    if at == 0 && !at_once {
                        client.send_raw(draw);
                    }
                }
                round += 1;
                rounds.fetch_add(1, Ordering::SeqCst);
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                cancels();
            }
        });
        ran(50);
        let before = drawn();
        ran(50);
        assert!(drawn() > before, "control arm: without a fence it draws");
        let operation = site.fence();
        let fenced = drawn();
        ran(200);
        cancel();
        ran(1);
        let released = drawn();
        site.unfence(&operation);
        ran(50);
        assert!(drawn() > released, "control arm: behind the fence it draws again");
        (fenced, released)
    });
    assert_eq!(fenced, released, "VIOLATION: a value was drawn under a fence");
}

/// Has the threads of a scope end, whatever became of what it is for.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_row_of_pipelines_under_a_fence_gets_every_answer_once_and_in_order() {
    let site = site();
    let operation = site.fence();
    let mut client = site.client();
    let one = |sql: &str| [parse("", sql), bind("", "", &[]), execute("", 0), sync()].concat();
    let (read, write) = (|n: u32| format!("SELECT {n}"), "INSERT INTO t VALUES (1)");
    let all = |n| [one(&read(n)), one(write), query(&read(n)), sync()].concat();
    client.send_raw(&(0..20).flat_map(all).collect::<Vec<u8>>());
    for n in 0..20 {
        assert_eq!(client.until_ready().ok().cell(), n.to_string());
        assert_eq!(code(&client.until_ready()), "ZF001");
        assert_eq!(client.until_ready().ok().cell(), n.to_string());
        assert_eq!(client.until_ready().frames.len(), 1, "a bare Sync");
    }
    assert_eq!(client.query("SELECT 'last'").ok().cell(), "last", "nothing is left over");
    assert_unchanged(&site);
    site.unfence(&operation);
}

#[test]
fn a_client_with_a_tiny_statement_timeout_is_refused_and_kept() {
    let site = site();
    let operation = site.fence();
    let mut client = site.client();
    client.query("SET statement_timeout = 5").ok();
    for _ in 0..50 {
        let seen = code(&client.query("SELECT n FROM counting"));
        assert!(["ZF001", "57014"].contains(&seen.as_str()), "{seen}");
    }
    assert_unchanged(&site);
    site.unfence(&operation);
}

/// The session that a foreign table opens doesn't come through the proxy: it waits at the engine
/// lock, and who waits for it can be cancelled. Nobody can tell that it is a write (a limit).
#[test]
fn a_foreign_table_over_a_writing_view_waits_at_the_engine_lock() {
    let site = site();
    site.setup(
        "CREATE FUNCTION w() RETURNS int LANGUAGE plpgsql VOLATILE AS
             $f$ BEGIN INSERT INTO public.t VALUES (66); RETURN 1; END $f$;
         CREATE VIEW writing AS SELECT w() AS n",
    );
    let (port, db) = (site.cluster.port(), &site.db);
    site.sql(&format!(
        "CREATE EXTENSION postgres_fdw;
         CREATE SERVER here FOREIGN DATA WRAPPER postgres_fdw
             OPTIONS (host '127.0.0.1', port '{port}', dbname '{db}');
         CREATE USER MAPPING FOR wire SERVER here
             OPTIONS (user 'wire', password_required 'false');
         CREATE FOREIGN TABLE remote (n int) SERVER here OPTIONS (table_name 'writing');
         GRANT SELECT ON remote TO wire"
    ));
    let mut client = site.client();
    client.query("SELECT n FROM remote").ok();
    assert_eq!(site.rows(), "66", "the control: without a fence it writes");
    let operation = site.fence();
    client.send_raw(&query("SELECT n FROM remote"));
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postgres_fdw'
                 AND wait_event_type = 'Lock' AND datname = current_database()";
    site.wait_sql(waits, "1");
    assert_eq!(site.rows(), "66");
    client.cancel();
    assert_eq!(code(&client.until_ready()), "57014");
    site.wait_sql(waits, "0");
    assert_eq!(site.rows(), "66");
    site.unfence(&operation);
    client.query("SELECT n FROM remote").ok();
    assert_eq!(site.rows(), "66,66");
}

/// A client whose pipeline has opened a block by itself, which a query at its end leaves open.
#[track_caller]
fn left_open(site: &Site<'_>, sql: &str, end: &str) -> Wire {
    let mut client = site.client();
    client.send_raw(&[parse("", sql), bind("", "", &[]), execute("", 0), query(end)].concat());
    assert_eq!(client.until_ready().ok().status, 'T', "{sql}");
    client
}

/// The guard was set in such a block, and confirmed; the Sync behind it had ended the block, and
/// the guard with it. The next program ran in a transaction of its own, which wrote.
#[test]
fn a_block_that_a_pipeline_left_open_does_not_take_the_guard_away() {
    for (guard, refused, drawn) in [("", "ZF001", "f"), ("guard-status", "", "t")] {
        let proxy = Proxy::without_18(guard);
        let site = Site::new(PgCluster::shared_18(), &proxy);
        site.setup(OPAQUE);
        let mut before = left_open(&site, "SELECT 1", "SELECT 2");
        let operation = site.fence();
        let drew = || site.sql("SELECT is_called FROM s");
        assert_eq!(drew(), "f");
        let told = code(&before.query("SELECT n FROM counting"));
        let what = format!("without {guard:?}, open since before the fence");
        assert_eq!(told, refused, "VIOLATION: {what}");
        assert_eq!(drew(), drawn, "VIOLATION: {what}");
        // RESET takes back what the guard had set for the session.
        let mut behind = left_open(&site, "SELECT 1", "RESET ALL");
        let told = code(&behind.query("SELECT n FROM counting"));
        let what = format!("without {guard:?}, begun behind the fence");
        assert_eq!((told.as_str(), drew().as_str()), (refused, drawn), "VIOLATION: {what}");
        site.unfence(&operation);
    }
}

/// What a reader has written unseen is its client's to roll back: the guard doesn't commit it.
#[test]
fn the_guard_does_not_commit_what_a_pipeline_left_open() {
    let proxy = Proxy::without_18("");
    let site = Site::new(PgCluster::shared_18(), &proxy);
    site.setup(
        "CREATE FUNCTION w() RETURNS int LANGUAGE plpgsql VOLATILE AS
             $f$ BEGIN INSERT INTO t VALUES (66); RETURN 1; END $f$;
         CREATE VIEW writing AS SELECT w() AS n",
    );
    let mut client = left_open(&site, "SELECT n FROM writing", "SELECT 2");
    let body = site.acquire_body(&uuid(), &fail_after(300));
    still_draining(&site.acquire(&body));
    client.query("ROLLBACK").ok();
    applied(&site.acquire_at_last(&body));
    assert_eq!(site.rows(), "", "it was rolled back");
}

/// Behind such a block PostgreSQL 18 answers a Sync that stands alone with `I`, and is still in the
/// transaction: taken for a release, nothing but the client's own next word ended the drain.
#[test]
fn a_sync_that_ends_nothing_keeps_the_lease_and_force_rolls_back_behind_it() {
    for (guard, forced) in [("", "rollback"), ("lone-sync", "backend_termination")] {
        let proxy = Proxy::without_18(guard);
        let site = Site::new(PgCluster::shared_18(), &proxy);
        let mut client = left_open(&site, "INSERT INTO t VALUES (1)", "SELECT 1");
        client.send_raw(&sync());
        assert_eq!(client.until_ready().status, 'I');
        let pid = client.backend_pid();
        let open = format!("SELECT state FROM pg_stat_activity WHERE pid = {pid}");
        assert_eq!(site.sql(&open), "idle in transaction", "no such engine any more");
        let operation = uuid();
        let waiting = site.acquire(&site.acquire_body(&operation, &fail_after(300)));
        let named = blockers(still_draining(&waiting));
        let whom = (&named[0]["engine_pid"], named[0]["session"].is_null());
        assert_eq!(whom, (&pid.into(), false), "{named:#?}");
        let answer = site.acquire(&site.acquire_body(&operation, &force_after(100)));
        let evidence = applied(&answer)["fence"]["evidence"]["forced"].to_string();
        assert!(evidence.contains(forced), "without {guard:?}: {evidence}");
        assert_eq!(site.rows(), "");
        if guard.is_empty() {
            assert_eq!(named[0]["class"], "writer", "{named:#?}");
            assert_eq!(code(&client.query("COMMIT")), "ZF009");
            client.query("SELECT 1").ok();
        } else {
            assert!(client.closed_within(PATIENCE), "terminated by the engine's word alone");
        }
    }
}

/// What the engine alone knows to be open is reached by force, too: a read's lease, and a write
/// that nobody saw.
#[test]
fn force_ends_a_transaction_that_wrote_behind_a_reads_lease() {
    let site = site();
    site.setup(
        "CREATE FUNCTION w() RETURNS int LANGUAGE plpgsql VOLATILE AS
             $f$ BEGIN INSERT INTO public.t VALUES (66); RETURN 1; END $f$;
         CREATE VIEW writing AS SELECT w() AS n",
    );
    let mut client = site.client();
    client.query("BEGIN").ok();
    client.query("SELECT n FROM writing").ok();
    // Control arm: a transaction that has only read is left alone.
    let mut reader = site.client();
    reader.query("BEGIN").ok();
    reader.query("SELECT 1").ok();
    let answer = site.acquire(&site.acquire_body(&uuid(), &force_after(100)));
    let evidence = applied(&answer)["fence"]["evidence"]["forced"].to_string();
    assert!(evidence.contains("backend_termination"), "{evidence}");
    assert!(client.closed_within(PATIENCE));
    assert_eq!(site.rows(), "");
    reader.query("SELECT 1").ok();
    reader.query("COMMIT").ok();
}

/// What pools say between two clients, as one text: RESET ALL in it leaves its transaction as it
/// is. They got ZF008 for what stands behind that.
#[test]
fn a_pools_reset_in_one_text_passes_and_is_guarded_to_its_end() {
    let proxy = Proxy::without_18("");
    for site in [site(), Site::new(PgCluster::shared_18(), &proxy)] {
        if site.sql("SELECT to_regclass('s') IS NULL") == "t" {
            site.setup(OPAQUE);
        }
        let mut client = site.client();
        client.query("CREATE TEMP TABLE mine (n int)").ok();
        let operation = site.fence();
        for reset in [
            // deadpool-postgres and bb8; Npgsql; asyncpg.
            "CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; \
             SELECT pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES;",
            "SET SESSION AUTHORIZATION DEFAULT;RESET ALL;CLOSE ALL;UNLISTEN *;\
             SELECT pg_advisory_unlock_all();DISCARD SEQUENCES;DISCARD TEMP",
            "SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL;",
        ] {
            assert_eq!(code(&client.query(reset)), "", "{reset}");
            // The next program has a guard of its own.
            assert_eq!(code(&client.query("SELECT n FROM counting")), "ZF001", "{reset}");
        }
        for behind in ["RESET ALL; SELECT n FROM counting", "RESET ALL; BEGIN; TABLE counting"] {
            assert_eq!(code(&client.query(behind)), "ZF001", "{behind}");
            client.query("ROLLBACK");
            client.query("BEGIN").ok();
            assert_eq!(code(&client.query(behind)), "ZF001", "{behind}, in a transaction");
            client.query("ROLLBACK").ok();
        }
        for more in ["RESET ALL; COMMIT; SELECT n FROM counting", "DISCARD ALL; TABLE counting"] {
            assert_eq!(code(&client.query(more)), "ZF008", "{more}");
        }
        assert_unchanged(&site);
        site.unfence(&operation);
        client.query("RESET ALL; SELECT n FROM counting").ok();
        assert_moved(&site);
    }
}

/// It just saw its connection close.
#[test]
fn a_session_whose_guard_can_not_be_undone_is_told_why_it_ends() {
    let proxy = Proxy::start_with(ProxyOptions {
        engines: vec![Engine::plain("old", PgCluster::shared())],
        env: vec![("FENCEWIRE_FAULT".into(), "wire.undo=error".into())],
        ..ProxyOptions::default()
    });
    let site = Site::new(PgCluster::shared(), &proxy);
    let mut client = site.client();
    let operation = site.fence();
    client.query("SELECT count(*) FROM t").ok();
    site.unfence(&operation);
    client.send_raw(&query("SELECT count(*) FROM t"));
    // The engine's answer may be there before.
    let told = loop {
        let (tag, body) = client.read_frame();
        if tag == b'E' {
            break fields(&body);
        }
    };
    assert_eq!(told[&'C'], "57P01");
    assert!(told[&'S'] == "FATAL" && told[&'M'].contains("fence is lifted"), "{told:?}");
    assert!(client.closed_within(PATIENCE));
}
