//! What the same words are in one session and in another: own XA branches, a setting lifted between
//! transactions, a savepoint that can't be had.

use super::*;

/// MariaDB gives a transaction no savepoint once a table of Aria takes part in it.
const NO_SAVEPOINTS: u16 = 1178;

/// A transaction of an open schema with a write in it, while another schema is fenced.
fn beside_a_fence(stage: &mut Stage) -> Arc<Gate> {
    let other = stage.other("old/d");
    stage.run(&query("begin"), &ok(OPEN));
    stage.run(&query("insert into t values (1)"), &ok(OPEN));
    other.overlay(Overlay::Installing, InFlight::Finish);
    other
}

#[test]
fn w17_a_savepoint_that_cannot_be_had_costs_its_program_alone() {
    let lists = query("select table_name from information_schema.tables");
    for (errno, tries) in [(NO_SAVEPOINTS, 1), (1399, 1), (1317, 5)] {
        each(|stage| {
            beside_a_fence(stage);
            // Each of them by itself: what was refused before is tried anew.
            for _ in 0..2 {
                stage.client(&lists);
                for _ in 0..tries {
                    assert!(stage.sent()[5..].starts_with(b"SAVEPOINT fencewire_"));
                    stage.engine(&err(1, errno, "no"));
                    assert_eq!(stage.sent(), ping(), "{errno}");
                    stage.engine(&ok(OPEN));
                }
                assert!(stage.sent().is_empty(), "{errno}");
                assert_eq!(stage.told(), (9708, 1), "{errno}");
                assert!(!stage.conversation.guard.failed, "the session goes on");
            }
            stage.run(&query("insert into t values (2)"), &ok(OPEN));
            stage.run(&query("commit"), &ok(IDLE));
            assert!(!stage.holds());
        });
    }
}

/// In an older transaction of the fenced schema too: its end is its client's.
#[test]
fn w17_an_older_transaction_without_savepoints_reads_no_more_and_ends() {
    each(|stage| {
        stage.run(&query("begin"), &ok(OPEN));
        stage.run(&query("select n from aria"), &rows(b"1", OPEN));
        stage.close();
        stage.client(&query("select * from v"));
        stage.sent();
        stage.engine(&err(1, NO_SAVEPOINTS, "no"));
        stage.sent();
        stage.engine(&ok(OPEN));
        assert_eq!((stage.told().0, stage.sent()), (9708, vec![]));
        stage.run(&query("commit"), &ok(IDLE));
    });
}

/// What lists other schemas needs no savepoint in a dump: its transaction begins read-only.
#[test]
fn w17_a_dump_begins_read_only_while_another_schema_is_closed() {
    let begin = "START TRANSACTION /*!40100 WITH CONSISTENT SNAPSHOT */";
    for (program, guarded) in [("mariadb-dump", true), ("mysqldump", true), ("mariadb", false)] {
        let card = Card { application_name: program.to_owned(), ..Card::default() };
        let mut stage = Stage::of(1 << 25, card);
        let other = stage.other("old/d");
        stage.run(&query(begin), &ok(OPEN));
        stage.run(&query("commit"), &ok(IDLE));
        other.overlay(Overlay::Installing, InFlight::Finish);
        if !guarded {
            stage.run(&query(begin), &ok(OPEN));
            continue;
        }
        stage.client(&query(begin));
        stage.guarded(true);
        assert_eq!(stage.sent(), query(begin));
        stage.engine(&ok(OPEN_READ_ONLY));
        stage.said();
        stage.run(&query("select * from information_schema.triggers"), &rows(b"1", OPEN_READ_ONLY));
        stage.run(&query("rollback"), &ok(IDLE));
    }
}

/// Of the session's own branch, and in an open schema, whatever other schema is closed.
#[test]
fn w14_an_xa_branch_is_ended_by_its_own_session_as_any_transaction_is() {
    for ending in ["xa commit 'x' one phase", "xa rollback 'x'", "XA ROLLBACK X'78'"] {
        each(|stage| {
            let other = stage.other("old/d");
            other.overlay(Overlay::Installing, InFlight::Finish);
            // A stranger's, or anybody's where it isn't known.
            for any in ["xa commit 'x' one phase", "xa commit 'x'", "xa rollback 'x'"] {
                stage.client(&query(any));
                assert_eq!((stage.told().0, stage.sent()), (9701, vec![]), "{any}");
            }
            stage.run(&query("xa start 'x'"), &ok(OPEN));
            stage.run(&query("insert into t values (1)"), &ok(OPEN));
            stage.run(&query("xa end 'x'"), &ok(OPEN));
            stage.run(&query(ending), &ok(IDLE));
            assert!(!stage.holds());
            stage.client(&query(ending));
            assert_eq!((stage.told().0, stage.sent()), (9701, vec![]), "it has none any more");
        });
    }
    // Beside another statement it may be anybody's by the time it runs.
    let mut stage = Stage::new(1 << 25);
    stage.run(&query("xa start 'x'"), &ok(OPEN));
    stage.close();
    stage.client(&query("xa rollback 'x'; xa rollback 'z'"));
    assert!(matches!(stage.told().0, 9701 | 9708));
    assert!(stage.sent().is_empty());
    // Behind an error nobody knows whether it is open: the engine is asked.
    stage.open();
    let other = stage.other("old/d");
    other.overlay(Overlay::Installing, InFlight::Finish);
    stage.run(&query("xa end 'y'"), &err(1, 1397, "unknown XID"));
    stage.client(&query("xa rollback 'x'"));
    assert_eq!(stage.sent(), ping());
    stage.engine(&ok(OPEN));
    assert_eq!(stage.sent(), query("xa rollback 'x'"));
}

/// MySQL parts a session from the branch that it has prepared.
#[test]
fn w14_nothing_is_prepared_on_mysql_that_could_not_be_ended() {
    for (flavour, own) in
        [(MyFlavour::MySql, true), (MyFlavour::MySql, false), (MyFlavour::MariaDb, true)]
    {
        let mut stage = Stage::new(1 << 25);
        stage.conversation.lexing.server.flavour = flavour;
        let other = stage.other("old/d");
        stage.run(&query("xa start 'x'"), &ok(OPEN));
        stage.run(&query("insert into t values (1)"), &ok(OPEN));
        stage.run(&query("xa end 'x'"), &ok(OPEN));
        if own {
            stage.close();
        } else {
            other.overlay(Overlay::Installing, InFlight::Finish);
        }
        let prepares = query("xa prepare 'x'");
        if flavour == MyFlavour::MariaDb {
            // The branch stays its session's, and so do the leases.
            stage.run(&prepares, &ok(OPEN));
            assert!(stage.holds());
            stage.run(&query("xa commit 'x'"), &ok(IDLE));
        } else {
            stage.client(&prepares);
            assert_eq!((stage.told(), stage.sent()), ((9701, 1), vec![]));
            assert!(stage.holds(), "it is the drain's work still");
            stage.run(&query("xa rollback 'x'"), &ok(IDLE));
        }
        assert!(!stage.holds());
    }
}

/// As Connector/J's `setReadOnly(false)` says it at each return to a pool.
#[test]
fn w17_the_clients_own_setting_is_lifted_between_transactions_and_the_guard_stays() {
    for sql in [
        "SET SESSION TRANSACTION READ WRITE",
        "set local transaction isolation level repeatable read, read write",
        "set session transaction_read_only = 0",
        "SET @@session.tx_read_only=OFF",
        "set tx_read_only = 0",
    ] {
        each(|stage| {
            stage.run(&query("set session transaction read only"), &ok(IDLE));
            stage.close();
            stage.client(&query(sql));
            stage.guarded(false);
            assert_eq!(stage.sent(), query(sql));
            stage.engine(&ok(IDLE));
            stage.said();
            stage.client(&query("select * from v"));
            stage.guarded(false);
            stage.reads_ahead(&query("select * from v"), &rows(b"1", IDLE));
            stage.open();
            stage.client(&query("insert into t values (1)"));
            assert_eq!(stage.sent(), query(UNDO), "the client's own is off");
            stage.engine(&ok(IDLE));
            assert_eq!(stage.sent(), query("insert into t values (1)"));
        });
    }
}

#[test]
fn w17_the_guard_is_lifted_by_nothing_else() {
    for sql in [
        "set transaction read write",
        "start transaction read write",
        "set session transaction read write; select * from v",
        "select 1; set session transaction read write",
        "set session tx_read_only = 0, @a = 1",
        "set @a = 1, session tx_read_only = 0",
        "set session tx_read_only = @a",
        "set session tx_read_only = (select n from v)",
        "set statement sql_mode = '' for set session transaction read write",
        "set session transaction read write /*!999999 ; insert into t values (1) */",
        "set global transaction read write",
        "set @@global.tx_read_only = 0",
        "execute immediate 'set session transaction read write'",
        "begin not atomic set session transaction read write; end",
    ] {
        each(|stage| {
            stage.close();
            stage.client(&query(sql));
            assert!(matches!(stage.told().0, 9701 | 9707 | 9708), "{sql}");
            assert!(stage.sent().is_empty(), "{sql}");
        });
    }
    // Nor within a transaction, where no guard goes in front of what follows.
    let mut stage = Stage::new(1 << 25);
    stage.run(&query("begin"), &ok(OPEN));
    stage.close();
    stage.client(&query("set session transaction read write"));
    assert_eq!((stage.told().0, stage.sent()), (9701, vec![]));
}

/// A branch of an open schema that the engine has rolled back, and the session has heard so.
fn deadlocked(stage: &mut Stage, errno: u16) {
    stage.run(&query("xa start 'x'"), &ok(OPEN));
    stage.run(&query("update t set n = 1"), &ok(OPEN));
    stage.run(&query("update t set n = 2"), &err(1, errno, "rolled back"));
}

/// Sends it, and answers the question whether a transaction is open: none is.
fn asks_first(stage: &mut Stage, sql: &str) {
    stage.client(&query(sql));
    assert_eq!(stage.sent(), ping(), "{sql}");
    stage.engine(&ok(IDLE));
}

#[test]
fn w14_a_branch_that_the_engine_rolled_back_is_ended_by_its_own_session() {
    for (errno, at_the_end) in [(1213, 1399), (1213, 1614), (1205, 1613), (1402, 1402)] {
        each(|stage| {
            let other = stage.other("old/d");
            other.overlay(Overlay::Installing, InFlight::Finish);
            deadlocked(stage, errno);
            asks_first(stage, "xa rollback 'x'");
            assert_eq!(stage.sent(), query("xa rollback 'x'"));
            stage.engine(&ok(IDLE));
            stage.said();
            assert!(!stage.holds());
            stage.client(&query("xa rollback 'x'"));
            assert_eq!((stage.told().0, stage.sent()), (9701, vec![]), "it has none any more");
            // As transaction managers do it, and with what ends it in no other way between.
            deadlocked(stage, errno);
            stage.run(&query("xa end 'x'"), &err(1, at_the_end, "rolled back"));
            asks_first(stage, "xa commit 'x' one phase");
            for no in ["xa commit 'x' one phase", "xa commit 'x'", "xa rollback 'x'; select 1"] {
                if no != "xa commit 'x' one phase" {
                    stage.client(&query(no));
                }
                assert!(matches!(stage.told().0, 9701 | 9708), "{no}");
                assert!(stage.sent().is_empty(), "{no}");
            }
            stage.run(&query("xa rollback 'y'"), &err(1, 1397, "unknown XID"));
            asks_first(stage, "xa rollback 'x'");
            assert_eq!(stage.sent(), query("xa rollback 'x'"));
            stage.engine(&ok(IDLE));
            assert!(!stage.holds());
        });
    }
}

/// In a drain of its own schema. The engine would refuse what the guard sends.
#[test]
fn w14_a_branch_that_the_engine_rolled_back_holds_nothing_and_ends_without_the_guard() {
    each(|stage| {
        stage.run(&query("xa start 'x'"), &ok(OPEN));
        stage.run(&query("update t set n = 1"), &ok(OPEN));
        stage.close();
        stage.client(&query("update t set n = 2"));
        assert_eq!(stage.sent(), query("update t set n = 2"));
        stage.engine(&err(1, 1213, "deadlock"));
        assert!(stage.holds(), "an error tells nothing");
        assert_eq!(stage.sent(), ping());
        stage.engine(&ok(IDLE));
        assert!(!stage.holds(), "the engine's word");
        stage.said();
        stage.run(&query("xa end 'x'"), &err(1, 1614, "rolled back"));
        asks_first(stage, "xa rollback 'x'");
        assert_eq!(stage.sent(), query("xa rollback 'x'"));
        stage.engine(&ok(IDLE));
        assert!(!stage.holds());
        // What follows has the guard in front.
        stage.said();
        stage.client(&query("select * from v"));
        stage.guarded(true);
    });
}

/// Where the engine may have no branch of this session's any more, or never had, the end of one is
/// a stranger's.
#[test]
fn w14_a_branch_that_may_have_ended_is_nobodys() {
    let deadlock = || err(1, 1213, "deadlock");
    let update = || query("update t set n = 1");
    let start = || (query("xa start 'x'"), ok(OPEN));
    let either = query("/*!999999 xa */ begin /*!999999 'x' */");
    let failed = |more: (Vec<u8>, Vec<u8>)| vec![start(), (update(), deadlock()), more];
    let gone = |more: &str| failed((query(more), err(1, 1614, "rolled back")));
    for steps in [
        vec![(update(), deadlock())],
        vec![(query("begin"), ok(OPEN)), (update(), deadlock())],
        vec![
            (query("begin"), ok(OPEN)),
            (query("xa start 'x'"), err(1, 1400, "outside")),
            (update(), deadlock()),
        ],
        vec![(either, ok(OPEN)), (update(), deadlock())],
        vec![(query("xa start 'x'; select 1"), ok(OPEN)), (update(), deadlock())],
        vec![start(), (update(), err(1, 1146, "no such table"))],
        gone("xa commit 'x'"),
        gone("xa commit 'x' one phase"),
        gone("xa prepare 'x'"),
        gone("call p()"),
        gone("xa end 'x'; xa rollback 'x'"),
        failed((query("xa rollback 'x'"), err(1, 1402, "rolled back"))),
        failed((query("xa rollback 'x'"), ok(IDLE))),
        failed((query("select 1"), ok(IDLE))),
        failed((query("rollback"), ok(IDLE))),
        failed((command(0x1f, &[]), ok(IDLE))),
        failed((command(0x1f, &[]), err(1, 1047, "unknown command"))),
    ] {
        each(|stage| {
            for (program, answer) in &steps {
                stage.client(program);
                if stage.sent() == ping() {
                    stage.engine(&ok(IDLE));
                    assert_eq!(&stage.sent(), program);
                }
                stage.engine(answer);
            }
            stage.said();
            let other = stage.other("old/d");
            other.overlay(Overlay::Installing, InFlight::Finish);
            stage.client(&query("xa rollback 'x'"));
            let steps = steps.iter().map(|(sent, _)| String::from_utf8_lossy(sent));
            let steps: Vec<_> = steps.collect();
            for _ in 0..2 {
                match stage.sent() {
                    sent if sent == ping() => stage.engine(&ok(IDLE)),
                    // Behind a CALL the schema may be another one.
                    sent if sent == query("SELECT DATABASE()") => {
                        stage.engine(&rows(b"app", IDLE));
                    }
                    sent => assert!(sent.is_empty(), "VIOLATION: {steps:?}"),
                }
            }
            assert!(stage.sent().is_empty(), "VIOLATION: {steps:?}");
            assert_eq!(stage.told().0, 9701, "{steps:?}");
        });
    }
}
