//! The rules of the census, one by one.

use std::collections::HashSet;

use super::*;
use crate::base::ids::Namespace;

fn identity() -> LiveIdentity {
    LiveIdentity {
        engine_id: "e".to_owned(),
        timeline: 0,
        database_id: "app".to_owned(),
        server_start: EngineTime(1),
        in_recovery: false,
        server_version_num: 101_119,
    }
}

fn sleeping(id: u32) -> Thread {
    Thread { id, schema: Some("app".to_owned()), command: "Sleep".to_owned(), ..Thread::default() }
}

fn transaction(name: &str) -> Option<Transaction> {
    Some(Transaction { name: name.to_owned(), began: EngineTime(5), rolling_back: false })
}

fn in_transaction(id: u32) -> Thread {
    Thread { transaction: transaction("77"), ..sleeping(id) }
}

fn proxied_by(id: u32, is_writer: bool) -> ProxyView {
    let session = ProxySession { session: SessionId(1), is_writer, in_program: !is_writer };
    ProxyView { sessions: HashMap::from([(key(id), session)]), ..ProxyView::default() }
}

fn whys(cutoff: &[Thread], threads: &[Thread], view: &ProxyView) -> Vec<Why> {
    let observed = |threads: &[Thread]| Observed {
        schema: "app".to_owned(),
        threads: threads.iter().map(|thread| (thread.id, thread.clone())).collect(),
        ..Observed::default()
    };
    let then = observed(cutoff);
    let entries = then.open_transactions().into_iter().map(|(transaction, thread)| {
        crate::engine::CutoffEntry {
            transaction,
            pid: key(thread.id),
            backend_start: None,
            backend_type: String::new(),
            user: String::new(),
            application_name: String::new(),
            client: String::new(),
            xact_start: None,
            state: String::new(),
            statement: String::new(),
        }
    });
    let cutoff = Cutoff {
        namespace: Namespace::parse("old/app").unwrap(),
        identity: identity(),
        at: EngineTime(3),
        entries: entries.collect(),
    };
    match judge(&cutoff, view, &observed(threads), identity(), EngineTime(9)) {
        CensusOutcome::Clear(_) => Vec::new(),
        CensusOutcome::Residue(blockers) => blockers.iter().map(|b| b.why).collect(),
    }
}

/// The import's own, of a session in another schema that an earlier process had.
#[test]
fn what_has_run_since_before_this_process_blocks_an_import_whatever_its_schema() {
    let away = |elder, command: &str| Thread {
        schema: Some("util".to_owned()),
        command: command.to_owned(),
        elder,
        ..Thread { id: 7, ..Thread::default() }
    };
    let import = ProxyView { is_import: true, ..ProxyView::default() };
    assert_eq!(whys(&[], &[away(true, "Query")], &import), [Why::OlderProgram]);
    assert_eq!(whys(&[], &[away(false, "Query")], &import), []);
    let source = ProxyView::default();
    assert_eq!(whys(&[], &[away(true, "Query")], &source), [], "its tables stay locked");
    let here = Thread { elder: true, ..in_transaction(7) };
    assert_eq!(whys(&[], &[here], &import), [Why::DirectInTransaction], "what it is says more");
    let applier = Thread { user: "system user".to_owned(), ..away(false, "Query") };
    assert!(applier.is_busy() && applier.is_applier());
    let with_client = |client: &str| Thread { client: client.to_owned(), ..applier.clone() };
    assert!(with_client("connecting host").is_applier(), "the receiver, by information_schema");
    for client in ["10.0.0.7:1", "localhost", "connecting"] {
        assert!(!with_client(client).is_applier(), "an account of that name: {client}");
    }
    let other = Thread { user: "app".to_owned(), ..with_client("connecting host") };
    assert!(!other.is_applier());
}

#[test]
fn a_transaction_of_the_cutoff_blocks_unless_a_reader_of_ours_has_it() {
    let open = [in_transaction(7)];
    assert_eq!(whys(&open, &open, &ProxyView::default()), [Why::OpenAtCutoff]);
    assert_eq!(whys(&open, &open, &proxied_by(7, true)), [Why::OpenAtCutoff]);
    assert_eq!(whys(&open, &open, &proxied_by(7, false)), []);
    // By the proxy's account nothing of it is open, so that account is wrong.
    let session = ProxySession { session: SessionId(1), is_writer: false, in_program: false };
    let sessions = HashMap::from([(key(7), session)]);
    let view = ProxyView { sessions, ..ProxyView::default() };
    assert_eq!(whys(&open, &open, &view), [Why::OpenAtCutoff]);
    assert_eq!(whys(&[], &open, &view), [], "begun behind the fence, under its rules");
    let other = Thread { transaction: transaction("78"), ..sleeping(7) };
    assert_eq!(whys(&open, &[other], &ProxyView::default()), [Why::DirectInTransaction]);
}

#[test]
fn a_table_lock_tells_a_writer_whatever_its_schema() {
    let elsewhere = Thread { schema: Some("other".to_owned()), ..in_transaction(7) };
    assert_eq!(whys(&[], std::slice::from_ref(&elsewhere), &ProxyView::default()), []);
    let writing = Thread { lock: TableLock::Write, ..elsewhere };
    assert_eq!(whys(&[], std::slice::from_ref(&writing), &ProxyView::default()), [Why::Writing]);
    assert_eq!(whys(&[], &[writing], &proxied_by(7, false)), [Why::Writing]);
}

#[test]
fn a_killed_thread_and_an_orphan_block_until_they_are_gone() {
    let killed = Thread { command: "Killed".to_owned(), ..sleeping(7) };
    assert_eq!(whys(&[], std::slice::from_ref(&killed), &ProxyView::default()), [Why::RollingBack]);
    assert_eq!(whys(&[], &[killed], &proxied_by(7, false)), [Why::RollingBack]);
    let mut undoing = in_transaction(7);
    undoing.transaction.as_mut().unwrap().rolling_back = true;
    assert_eq!(whys(&[], &[undoing], &ProxyView::default()), [Why::RollingBack]);
    let orphan = Orphan { pid: key(7), session: SessionId(2), backend_start: None };
    let view = ProxyView { orphans: vec![orphan], ..ProxyView::default() };
    let anywhere = Thread { schema: None, ..sleeping(7) };
    assert_eq!(whys(&[], &[anywhere], &view), [Why::Orphan]);
    assert_eq!(whys(&[], &[sleeping(8)], &view), []);
}

#[test]
fn idle_sessions_streams_daemons_and_our_own_do_not_block() {
    let sole = ProxyView { sole_path_required: true, ..ProxyView::default() };
    assert_eq!(whys(&[], &[sleeping(7)], &ProxyView::default()), []);
    assert_eq!(whys(&[], &[sleeping(7)], &sole), [Why::DirectIdle]);
    let stream = Thread { command: "Binlog Dump GTID".to_owned(), ..sleeping(7) };
    let daemon = Thread { command: "Daemon".to_owned(), ..sleeping(8) };
    let own = Thread { own: true, command: "Query".to_owned(), ..sleeping(9) };
    assert_eq!(whys(&[], &[stream, daemon, own], &sole), []);
    let busy = Thread { command: "Query".to_owned(), ..sleeping(7) };
    assert_eq!(
        whys(&[], std::slice::from_ref(&busy), &ProxyView::default()),
        [Why::DirectInTransaction]
    );
    assert_eq!(whys(&[], &[busy], &proxied_by(7, true)), [Why::ProxyWriter]);
}

/// `LOCK TABLES app.t READ` in a session of the proxy's whose own schema is another.
#[test]
fn a_session_of_another_schema_that_only_keeps_readers_locks_does_not_block() {
    let view = ProxyView { elsewhere: HashSet::from([key(7)]), ..ProxyView::default() };
    let locks = Thread {
        schema: Some("other".to_owned()),
        lock: TableLock::Read,
        command: "Sleep".to_owned(),
        ..sleeping(7)
    };
    let one = std::slice::from_ref::<Thread>;
    assert_eq!(whys(&[], one(&locks), &view), []);
    assert_eq!(whys(&[], one(&locks), &ProxyView::default()), [Why::DirectInTransaction]);
    let stranger = Thread { id: 8, ..locks.clone() };
    assert_eq!(whys(&[], &[stranger], &view), [Why::DirectInTransaction]);
    for (more, why) in [
        (Thread { command: "Query".to_owned(), ..locks.clone() }, Why::DirectInTransaction),
        (Thread { transaction: transaction("79"), ..locks.clone() }, Why::DirectInTransaction),
        (Thread { lock: TableLock::Write, ..locks.clone() }, Why::Writing),
        (Thread { command: "Killed".to_owned(), ..locks.clone() }, Why::RollingBack),
    ] {
        assert_eq!(whys(&[], one(&more), &view), [why]);
    }
    let orphan = Orphan { pid: key(7), session: SessionId(2), backend_start: None };
    let lost = ProxyView { orphans: vec![orphan], ..view };
    assert_eq!(whys(&[], &[locks], &lost), [Why::Orphan]);
}

#[test]
fn thread_ids_above_two_billion_are_met_again() {
    let high = u32::MAX - 1;
    assert_eq!(whys(&[], &[in_transaction(high)], &proxied_by(high, true)), [Why::ProxyWriter]);
    assert_eq!(whys(&[], &[in_transaction(high)], &proxied_by(high, false)), []);
}

/// The engine's own words of a thread that waits for a table.
#[test]
fn who_waits_for_our_lock_with_nothing_open_blocks_nobody() {
    let waits = Thread {
        command: "Query".to_owned(),
        state: "Waiting for table metadata lock".to_owned(),
        ..sleeping(7)
    };
    let judged = |thread: &Thread, locked: bool, sole: bool| {
        let view = ProxyView { sole_path_required: sole, ..ProxyView::default() };
        let threads = HashMap::from([(7, thread.clone())]);
        let observed =
            Observed { schema: "app".to_owned(), threads, locked, ..Observed::default() };
        let cutoff = Cutoff {
            namespace: Namespace::parse("old/app").unwrap(),
            identity: identity(),
            at: EngineTime(3),
            entries: Vec::new(),
        };
        match judge(&cutoff, &view, &observed, identity(), EngineTime(9)) {
            CensusOutcome::Clear(_) => Vec::new(),
            CensusOutcome::Residue(blockers) => blockers.iter().map(|b| b.why).collect(),
        }
    };
    assert_eq!(judged(&waits, true, false), []);
    assert_eq!(judged(&waits, false, false), [Why::DirectInTransaction], "not our lock");
    assert_eq!(judged(&waits, true, true), [Why::DirectIdle]);
    let open = Thread { transaction: transaction("78"), ..waits.clone() };
    assert_eq!(judged(&open, true, false), [Why::DirectInTransaction]);
    for lock in [TableLock::Read, TableLock::Write] {
        assert_ne!(judged(&Thread { lock, ..waits.clone() }, true, false), []);
    }
    let elsewhere = Thread { state: "updating".to_owned(), ..waits };
    assert_eq!(judged(&elsewhere, true, false), [Why::DirectInTransaction]);
}
