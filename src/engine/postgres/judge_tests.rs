//! The census rules over made-up rows: each rule with the row that must pass beside it.

use super::*;
use crate::base::ids::Namespace;
use crate::engine::census::CutoffEntry;

const PID: i32 = 100;

fn identity() -> LiveIdentity {
    LiveIdentity {
        engine_id: "1".to_owned(),
        timeline: 1,
        database_id: "5".to_owned(),
        server_start: EngineTime(1),
        in_recovery: false,
        server_version_num: 150_000,
    }
}

fn cutoff(transactions: &[&str]) -> Cutoff {
    let entry = |transaction: &&str| CutoffEntry {
        transaction: (*transaction).to_owned(),
        pid: PID,
        backend_start: Some(EngineTime(10)),
        backend_type: String::new(),
        user: String::new(),
        application_name: String::new(),
        client: String::new(),
        xact_start: None,
        state: String::new(),
        statement: String::new(),
    };
    Cutoff {
        namespace: Namespace::parse("old/app").unwrap(),
        identity: identity(),
        at: EngineTime(1_000_000),
        entries: transactions.iter().map(entry).collect(),
    }
}

fn idle(pid: i32) -> Backend {
    Backend {
        pid,
        backend_start: Some(EngineTime(10)),
        backend_type: "client backend".to_owned(),
        in_database: true,
        state: "idle".to_owned(),
        ..Backend::default()
    }
}

fn seen(backends: Vec<Backend>, transactions: &[(&str, i32)]) -> Observed {
    Observed {
        transactions: transactions.iter().map(|(t, pid)| ((*t).to_owned(), *pid)).collect(),
        backends: backends.into_iter().map(|b| (b.pid, b)).collect(),
        prepared: Vec::new(),
    }
}

fn session(is_writer: bool, in_program: bool) -> ProxyView {
    let session = ProxySession { session: SessionId(7), is_writer, in_program };
    ProxyView { sessions: HashMap::from([(PID, session)]), ..ProxyView::default() }
}

fn ask(cutoff: &Cutoff, view: &ProxyView, observed: &Observed) -> Result<CensusCounts, Vec<Why>> {
    match judge(cutoff, view, observed, identity(), EngineTime(2_000_000)) {
        CensusOutcome::Clear(clear) => Ok(clear.counts()),
        CensusOutcome::Residue(blockers) => Err(blockers.iter().map(|b| b.why).collect()),
    }
}

#[test]
fn a_reader_of_the_cutoff_is_exempt_and_a_writer_or_stranger_is_not() {
    let (old, still) = (cutoff(&["3/7"]), seen(vec![idle(PID)], &[("3/7", PID)]));
    assert_eq!(ask(&old, &session(false, true), &still).unwrap().readers_exempt, 1);
    // One that runs nothing, by the proxy's count, has been miscounted.
    assert_eq!(ask(&old, &session(false, false), &still), Err(vec![Why::OpenAtCutoff]));
    assert_eq!(ask(&old, &session(true, false), &still), Err(vec![Why::OpenAtCutoff]));
    assert_eq!(ask(&old, &ProxyView::default(), &still), Err(vec![Why::OpenAtCutoff]));
    let ended = seen(vec![idle(PID)], &[]);
    assert!(ask(&old, &session(true, false), &ended).is_ok());
}

#[test]
fn a_reader_with_a_transaction_id_or_write_locks_is_a_writer() {
    for (has_xid, write_locks) in [(true, false), (false, true)] {
        let backend = Backend { has_xid, write_locks, ..idle(PID) };
        let observed = seen(vec![backend], &[("3/8", PID)]);
        assert_eq!(ask(&cutoff(&[]), &session(false, false), &observed), Err(vec![Why::Writing]));
        assert_eq!(ask(&cutoff(&[]), &ProxyView::default(), &observed), Err(vec![Why::Writing]));
    }
    let observed = seen(vec![idle(PID)], &[("3/8", PID)]);
    assert!(ask(&cutoff(&[]), &session(false, true), &observed).is_ok());
}

#[test]
fn a_writers_program_blocks_even_if_its_bytes_have_not_arrived() {
    let observed = seen(vec![idle(PID)], &[]);
    assert_eq!(ask(&cutoff(&[]), &session(true, true), &observed), Err(vec![Why::ProxyWriter]));
    assert!(ask(&cutoff(&[]), &session(true, false), &observed).is_ok());
    assert!(ask(&cutoff(&[]), &session(false, true), &observed).is_ok());
}

#[test]
fn strangers_block_in_a_transaction_and_count_when_idle() {
    let none = ProxyView::default();
    let busy = Backend { state: "active".to_owned(), ..idle(PID) };
    let open = Backend { xact_start: Some(EngineTime(5)), ..idle(PID) };
    let hidden = Backend { state: "disabled".to_owned(), ..idle(PID) };
    for (backend, transactions) in
        [(busy, &[][..]), (open, &[][..]), (hidden.clone(), &[("3/9", PID)][..])]
    {
        let observed = seen(vec![backend], transactions);
        assert_eq!(ask(&cutoff(&[]), &none, &observed), Err(vec![Why::DirectInTransaction]));
    }
    assert_eq!(ask(&cutoff(&[]), &none, &seen(vec![hidden], &[])).unwrap().direct_idle, 1);
    let observed = seen(vec![idle(PID)], &[]);
    assert_eq!(ask(&cutoff(&[]), &none, &observed).unwrap().direct_idle, 1);
    let sole = ProxyView { sole_path_required: true, ..ProxyView::default() };
    assert_eq!(ask(&cutoff(&[]), &sole, &observed), Err(vec![Why::DirectIdle]));
}

#[test]
fn parallel_workers_are_their_leaders() {
    let worker = Backend {
        leader_pid: Some(PID),
        backend_type: "parallel worker".to_owned(),
        state: "active".to_owned(),
        ..idle(200)
    };
    let observed = seen(vec![idle(PID), worker.clone()], &[("4/1", 200)]);
    assert!(ask(&cutoff(&["4/1"]), &session(false, true), &observed).is_ok());
    assert_eq!(
        ask(&cutoff(&["4/1"]), &session(true, true), &observed),
        Err(vec![Why::OpenAtCutoff])
    );
    let orphaned = seen(vec![worker], &[("4/1", 200)]);
    assert_eq!(
        ask(&cutoff(&["4/1"]), &session(false, true), &orphaned),
        Err(vec![Why::OpenAtCutoff])
    );
}

#[test]
fn autovacuum_is_left_out_and_other_workers_are_not() {
    let working = |kind: &str| Backend {
        backend_type: kind.to_owned(),
        has_xid: true,
        write_locks: true,
        ..idle(PID)
    };
    let observed = seen(vec![working("autovacuum worker")], &[("5/1", PID)]);
    assert_eq!(ask(&cutoff(&[]), &ProxyView::default(), &observed).unwrap().maintenance, 1);
    assert!(observed.open_transactions().is_empty());
    for kind in ["logical replication worker", "pg_cron", "walsender", "client backend", ""] {
        let observed = seen(vec![working(kind)], &[("5/1", PID)]);
        assert_eq!(ask(&cutoff(&[]), &ProxyView::default(), &observed), Err(vec![Why::Writing]));
        assert_eq!(observed.open_transactions().len(), 1, "{kind}");
    }
}

#[test]
fn own_and_foreign_databases_are_left_out_and_undescribed_backends_are_not() {
    let own = Backend { own: true, has_xid: true, ..idle(PID) };
    let elsewhere = Backend { in_database: false, has_xid: true, ..idle(PID) };
    for backend in [own, elsewhere] {
        let observed = seen(vec![backend], &[("6/1", PID)]);
        assert!(ask(&cutoff(&[]), &ProxyView::default(), &observed).is_ok());
        assert!(observed.open_transactions().is_empty());
    }
    let undescribed = seen(vec![], &[("6/1", PID)]);
    assert_eq!(undescribed.open_transactions().len(), 1);
    assert_eq!(
        ask(&cutoff(&["6/1"]), &ProxyView::default(), &undescribed),
        Err(vec![Why::OpenAtCutoff])
    );
}

#[test]
fn an_orphan_blocks_until_its_pid_can_only_be_somebody_else() {
    let orphan = |start: Option<i64>| ProxyView {
        orphans: vec![Orphan {
            pid: PID,
            session: SessionId(9),
            backend_start: start.map(EngineTime),
        }],
        ..ProxyView::default()
    };
    let observed = seen(vec![idle(PID)], &[]);
    for start in [None, Some(10)] {
        assert_eq!(ask(&cutoff(&[]), &orphan(start), &observed), Err(vec![Why::Orphan]));
    }
    assert_eq!(ask(&cutoff(&[]), &orphan(Some(9)), &observed).unwrap().orphans_gone, 1);
    assert_eq!(ask(&cutoff(&[]), &orphan(None), &seen(vec![], &[])).unwrap().orphans_gone, 1);
    let elsewhere = Backend { in_database: false, ..idle(PID) };
    let moved = seen(vec![elsewhere], &[]);
    assert_eq!(ask(&cutoff(&[]), &orphan(None), &moved).unwrap().orphans_gone, 1);
    let starting = Backend { pid: PID, ..Backend::default() };
    assert_eq!(
        ask(&cutoff(&[]), &orphan(None), &seen(vec![starting], &[])),
        Err(vec![Why::Orphan])
    );
    let reused = ProxyView { sessions: session(false, false).sessions, ..orphan(None) };
    assert_eq!(ask(&cutoff(&[]), &reused, &observed).unwrap().orphans_gone, 1);
}

#[test]
fn the_operations_own_are_exempt_by_identity_only() {
    let stream = Backend {
        backend_type: "walsender".to_owned(),
        state: "active".to_owned(),
        streaming: true,
        slot: Some("move".to_owned()),
        ..idle(PID)
    };
    let ours = ProxyView { operation_slots: vec!["move".to_owned()], ..ProxyView::default() };
    let observed = seen(vec![stream.clone()], &[]);
    assert_eq!(ask(&cutoff(&[]), &ours, &observed).unwrap().operation, 1);
    assert_eq!(ask(&cutoff(&[]), &ProxyView::default(), &observed).unwrap().streams, 1);
    let sole = ProxyView { sole_path_required: true, ..ProxyView::default() };
    assert_eq!(ask(&cutoff(&[]), &sole, &observed), Err(vec![Why::DirectIdle]));
    let speaking = Backend { streaming: false, ..stream };
    let observed = seen(vec![speaking], &[]);
    assert_eq!(ask(&cutoff(&[]), &ours, &observed), Err(vec![Why::DirectInTransaction]));

    let copying = Backend { has_xid: true, ..idle(PID) };
    let named = |start| ProxyView {
        operation_backends: vec![BackendKey { pid: PID, backend_start: EngineTime(start) }],
        ..ProxyView::default()
    };
    let observed = seen(vec![copying], &[("7/1", PID)]);
    assert_eq!(ask(&cutoff(&[]), &named(10), &observed).unwrap().operation, 1);
    assert_eq!(ask(&cutoff(&[]), &named(11), &observed), Err(vec![Why::Writing]));
}

#[test]
fn a_prepared_transaction_blocks_and_has_no_pid() {
    let prepared =
        Prepared { gid: "g1".to_owned(), owner: "app".to_owned(), at: EngineTime(1_500_000) };
    let observed = Observed { prepared: vec![prepared], ..Observed::default() };
    let outcome =
        judge(&cutoff(&[]), &ProxyView::default(), &observed, identity(), EngineTime(2_000_000));
    let CensusOutcome::Residue(blockers) = outcome else { panic!("clear") };
    assert_eq!((blockers[0].pid, blockers[0].age_ms), (None, Some(500)));
    assert_eq!(blockers[0].object.as_deref(), Some("g1"));
}
