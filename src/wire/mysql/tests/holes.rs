//! Ways by which a session could come out of step with its engine, or to another gate, unseen.

use super::super::frame::HEADER;
use super::*;
use crate::base::limits;
use crate::sql::StatementClass;
use crate::sql::Toggle;

const MORE: u16 = IDLE | 8;

/// The answer to a text of two statements.
fn two() -> Vec<u8> {
    [ok(MORE), packet(2, &ok_payload(IDLE))].concat()
}

fn asks_for_a_file(stage: &mut Stage) {
    stage.run(&query("load data local infile 'x' into table t"), &packet(1, b"\xfbx"));
}

/// An engine that gives a file up takes commands, which must not pass as pieces of it.
#[test]
fn an_answer_in_the_middle_of_a_file_ends_the_session() {
    for answer in [err(2, 1156, "Got packets out of order"), packet(2, &ok_payload(MORE))] {
        let mut stage = Stage::new(1 << 25);
        asks_for_a_file(&mut stage);
        stage.faults(&answer);
    }
    // A report on its progress is none.
    let mut stage = Stage::with(1 << 25, 0);
    asks_for_a_file(&mut stage);
    stage.client(&[packet(2, b"1"), packet(3, b"")].concat());
    stage.engine(&packet(4, &ok_payload(IDLE)));
    assert!(!stage.holds());
}

/// At a number that it doesn't expect an engine stops reading a file, or a long command.
#[test]
fn packets_of_a_file_and_of_a_long_command_come_in_their_order() {
    for junk in [packet(99, b"\x01\0\0\x63"), packet(0, b"\x03insert into t values (1)")] {
        let mut stage = Stage::new(1 << 25);
        asks_for_a_file(&mut stage);
        let fine = packet(2, b"1");
        stage.client(&fine);
        assert_eq!(stage.sent(), fine);
        assert_eq!(stage.breaks(&junk), "Got packets out of order");
        assert!(stage.sent().is_empty());
    }
    let mut long = b"\x03select '".to_vec();
    long.resize(PAYLOAD_MAX + 10, b'x');
    let mut bytes = packet(0, &long);
    bytes[HEADER + PAYLOAD_MAX + 3] = 7;
    let mut stage = Stage::new(1 << 25);
    assert_eq!(stage.breaks(&bytes), "Got packets out of order");
    asks_for_a_file(&mut Stage::new(1));
}

/// Engines don't agree on how a change of user reads without SECURE_CONNECTION.
#[test]
fn a_login_whose_proofs_have_no_length_is_refused() {
    for (agreed, taken) in [
        (bits::PROTOCOL_41 | bits::SECURE_CONNECTION, true),
        (bits::PROTOCOL_41, false),
        (bits::PROTOCOL_41 | bits::PLUGIN_AUTH_LENENC, false),
    ] {
        let mut login = agreed.to_le_bytes().to_vec();
        login.extend_from_slice(&[0; 28]);
        login.extend_from_slice(b"u\0\0");
        assert_eq!(Login::parse(&login).is_some(), taken, "{agreed:#x}");
    }
}

/// The engine may read a schema's name where none is read here.
#[test]
fn a_change_of_user_to_an_unreadable_schema_is_at_no_gate_for_sure() {
    for (argument, known) in [
        (&b"v\0\0b\0\x2d\0"[..], true),
        (b"v\0\0\0\x2d\0", true),
        (b"v\0\0b", false),
        (b"v\0\0\xff\0\x2d\0", false),
    ] {
        let mut stage = Stage::new(1 << 25);
        stage.client(&command(0x11, argument));
        stage.engine(&packet(1, &ok_payload(IDLE)));
        assert_eq!(stage.conversation.lost, !known, "{argument:?}");
    }
}

#[test]
fn a_step_of_a_login_is_bounded() {
    let mut stage = Stage::new(1 << 25);
    stage.client(&command(0x11, b"v\0\0b\0\x2d\0"));
    stage.engine(&packet(1, b"\xfemysql_native_password\0abcdefghijklmnopqrst\0"));
    stage.sent();
    let long = packet(2, &vec![7; limits::LOGIN_PACKET_BYTES_MAX + 1]);
    assert_eq!(stage.breaks(&long[..HEADER]), "a packet longer than any of a login");
    assert!(stage.sent().is_empty());
}

/// Nobody knows what runs under a name that isn't known.
#[test]
fn an_unknown_name_may_move_the_session() {
    each(|stage| {
        let other = stage.other("old/b");
        stage.run(&query("prepare s from 'use b'; do 1"), &two());
        assert!(!stage.conversation.lost);
        stage.run(&query("execute s"), &ok(IDLE));
        assert!(stage.conversation.lost);
        other.overlay(Overlay::Installing, InFlight::Finish);
        stage.client(&query("insert into t values (1)"));
        assert_eq!(stage.sent(), query("SELECT DATABASE()"));
        stage.engine(&rows(b"b", IDLE));
        assert!((9701..=9708).contains(&stage.told().0));
        assert!(stage.sent().is_empty());
    });
}

#[test]
fn of_several_names_in_one_text_each_counts() {
    for text in ["execute s; execute b", "execute s; use app", "use app; execute s"] {
        each(|stage| {
            stage.run(&query("prepare s from 'use b'"), &ok(IDLE));
            stage.run(&query("prepare b from 'select 1'"), &ok(IDLE));
            stage.run(&query("execute b"), &ok(IDLE));
            assert!(!stage.conversation.lost);
            stage.run(&query(text), &two());
            assert!(stage.conversation.lost, "{text}");
            stage.run(&query("use app"), &ok(IDLE));
            assert!(!stage.conversation.lost);
        });
    }
}

#[test]
fn a_name_alone_moves_the_session_where_it_says() {
    each(|stage| {
        let other = stage.other("old/b");
        stage.run(&query("prepare s from 'use b'"), &ok(IDLE));
        stage.run(&query("execute s"), &ok(IDLE));
        assert!(!stage.conversation.lost);
        assert_eq!((stage.gate.session_count(), other.session_count()), (0, 1));
    });
}

#[test]
fn an_unknown_name_may_change_how_texts_are_read() {
    each(|stage| {
        stage.run(&query("set sql_mode = ''"), &ok(IDLE));
        stage.run(&query("prepare s from 'set sql_mode = ansi_quotes'; do 1"), &two());
        assert_eq!(stage.conversation.lexing.ansi_quotes, Toggle::Off);
        stage.run(&query("execute s"), &ok(IDLE));
        assert_eq!(stage.conversation.lexing.ansi_quotes, Toggle::Unknown);
    });
}

/// MariaDB lets a procedure prepare and execute a USE.
#[test]
fn behind_a_call_neither_the_schema_nor_a_name_is_known() {
    for program in ["call p()", "begin not atomic prepare s from 'use b'; end"] {
        for answer in [ok(IDLE), err(1, 1305, "no")] {
            each(|stage| {
                stage.run(&query("prepare s from 'select 1'"), &ok(IDLE));
                assert!(stage.conversation.prepared.by_name("s").is_some());
                stage.run(&query(program), &answer);
                assert!(stage.conversation.lost, "{program}");
                assert!(stage.conversation.prepared.by_name("s").is_none(), "{program}");
            });
        }
    }
}

/// MySQL answers these although nobody reads an answer.
#[test]
fn a_command_too_short_to_be_one_ends_the_session() {
    for bytes in
        [command(0x19, b"\x01\0\0"), command(0x18, b"\x01\0\0\0\0"), command(0x1a, b"\x01\0\0")]
    {
        let mut stage = Stage::new(1 << 25);
        assert_eq!(stage.breaks(&bytes), "Malformed communication packet");
        assert!(stage.sent().is_empty());
    }
    let mut stage = Stage::new(1 << 25);
    let fine = [command(0x18, b"\x01\0\0\0\0\0"), command(0x19, b"\x01\0\0\0")].concat();
    stage.client(&fine);
    assert_eq!(stage.sent(), fine);
}

/// An error that a piece of a parameter may have been answered by isn't taken for the answer to
/// what follows.
#[test]
fn an_error_behind_a_command_without_answer_may_be_its_own() {
    for (opcode, argument, number, its) in [
        (0x18, &b"\x01\0\0\0\0\0x"[..], 1820, true),
        (0x18, b"\x01\0\0\0\0\0x", 1153, true),
        (0x18, b"\x01\0\0\0\0\0x", 1062, false),
        (0x19, b"\x01\0\0\0", 1820, true),
        (0x19, b"\x01\0\0\0", 1153, false),
    ] {
        let mut stage = Stage::new(1 << 25);
        stage.client(&[command(opcode, argument), query("insert into t values (1)")].concat());
        let error = err(1, number, "x");
        if its {
            stage.faults(&error);
            assert!(stage.holds());
        } else {
            stage.engine(&error);
            assert_eq!(stage.said(), error);
            // It is about that one answer alone.
            stage.client(&query("insert into t values (1)"));
            stage.engine(&err(1, 1820, "x"));
            assert_eq!(stage.said(), err(1, 1820, "x"));
        }
    }
}

/// In a session at an open schema: what nobody understands may write to one that is fenced.
#[test]
fn what_is_not_understood_is_asked_at_every_gate() {
    let swallows = "create procedure p() select 1 as begin; use b; select 1 as end";
    for text in [
        "nonsense",
        "select '",
        "begin not atomic execute immediate @a; end",
        "create procedure p() begin select 1; end",
        swallows,
        "create table event select 1 as begin; use b; select 1 as end",
        "set statement sql_mode='' for execute s",
        "set statement `é`='' for execute s",
        "set `sql_mödé`=''",
        "execute `é`",
        "execute nobody",
        "execute immediate concat('use ', 'b')",
        "explain create table t (n int)",
        "use a b",
    ] {
        each(|stage| {
            let other = stage.other("old/b");
            stage.run(&query("prepare s from 'insert into b.t values (1)'"), &ok(IDLE));
            other.overlay(Overlay::Installing, InFlight::Finish);
            stage.client(&query(text));
            assert!((9701..=9708).contains(&stage.told().0), "{text}");
            assert!(stage.sent().is_empty(), "{text}");
            assert!(!stage.holds(), "{text}");
        });
    }
}

/// Engines compare names otherwise than byte by byte: beyond plain ones nothing is known.
#[test]
fn a_name_that_can_not_be_compared_forgets_all_names() {
    for (text, known) in [
        ("prepare t from 'select 1'", true),
        ("prepare `é` from 'select 1'", false),
        ("prepare `s ` from 'select 1'", false),
        ("drop prepare `é`", false),
        ("begin not atomic prepare s from 'use b'; end", false),
    ] {
        let mut stage = Stage::new(1 << 25);
        stage.run(&query("prepare s from 'select 1'"), &ok(IDLE));
        stage.run(&query(text), &ok(IDLE));
        assert_eq!(stage.conversation.prepared.by_name("S").is_some(), known, "{text}");
    }
}

/// A text that is read in two ways prepares what either says. By ANSI_QUOTES everything behind
/// COMMENT is one name; without, the table moves to the fenced schema.
#[test]
fn a_name_that_two_readings_prepare_is_the_stricter_of_both() {
    let text = r#"prepare s from 'alter table app.zz comment="\\"", rename to d.zz2 -- "'"#;
    each(|stage| {
        let other = stage.other("old/d");
        stage.run(&query(text), &ok(IDLE));
        let known = stage.conversation.prepared.by_name("s").unwrap();
        let my = &known.classified.detail().unwrap().my;
        assert!(my.schemas.iter().any(|name| name == "d"), "{my:?}");
        other.overlay(Overlay::Installing, InFlight::Finish);
        stage.client(&query("execute s"));
        assert!((9701..=9708).contains(&stage.told().0));
        assert!(stage.sent().is_empty());
    });
    // What only one of them prepares may be what it was before.
    let mut stage = Stage::new(1 << 25);
    stage.run(&query("prepare s from 'insert into t values (1)'"), &ok(IDLE));
    stage.run(&query(r#"prepare s from 'select 1' # " \" "#), &ok(IDLE));
    let class = |stage: &Stage| {
        stage.conversation.prepared.by_name("s").map(|known| known.classified.class())
    };
    assert_eq!(class(&stage), Some(StatementClass::Read));
    stage.run(&query(r#"prepare "s" from 'select 1'"#), &ok(IDLE));
    assert_ne!(class(&stage), Some(StatementClass::Read));
}

/// A schema's name is known by the character set that it is written in.
#[test]
fn a_schema_in_another_character_set_is_nobodys() {
    let utf8 = || Stage::new(1 << 25);
    let latin1 = || {
        let mut stage = utf8();
        stage.run(&query("set names latin1"), &ok(IDLE));
        stage
    };
    for (mut stage, schema, known) in [
        (utf8(), "é", true),
        (utf8(), "\u{1f600}", false),
        (utf8(), "e\0x", false),
        (latin1(), "é", false),
        (latin1(), "e", true),
    ] {
        stage.run(&command(2, schema.as_bytes()), &ok(IDLE));
        assert_eq!(stage.conversation.lost, !known, "{schema}");
        stage.run(&query("use app"), &ok(IDLE));
        assert!(!stage.conversation.lost);
        stage.run(&query(&format!("use `{schema}`")), &ok(IDLE));
        assert_eq!(stage.conversation.lost, !known, "{schema}");
    }
    for (collation, known) in [(45, true), (8, false)] {
        let mut stage = utf8();
        let argument = [b"v\0\0\xc3\xa9\0", &[collation, 0][..]].concat();
        stage.client(&command(0x11, &argument));
        stage.engine(&packet(1, &ok_payload(IDLE)));
        assert_eq!(stage.conversation.lost, !known, "{collation}");
    }
}

/// MariaDB opens every view for it, and runs deterministic functions of what it opens.
#[test]
fn what_lists_other_schemas_is_guarded_while_one_is_fenced() {
    each(|stage| {
        let other = stage.other("old/b");
        other.overlay(Overlay::Installing, InFlight::Finish);
        let lists = query("select count(*) from information_schema.columns");
        stage.client(&lists);
        stage.guarded(true);
        assert_eq!(stage.sent(), lists);
        stage.engine(&rows(b"9", IDLE));
        stage.said();
        stage.client(&prepare("table `Information_Schema`.views"));
        stage.guarded(false);
        stage.sent();
        stage.engine(&prepared(1));
        stage.said();
        for writes in [
            "insert into t select count(*) from information_schema.columns",
            "select f() from sys.version",
        ] {
            stage.client(&query(writes));
            assert_eq!((stage.told().0, stage.sent()), (9708, vec![]), "{writes}");
        }
        assert!(!stage.holds());
        // Nothing else is touched by a fence elsewhere.
        stage.client(&query("insert into t values (1)"));
        assert_eq!(stage.sent(), query(UNDO));
        stage.engine(&ok(IDLE));
        assert_eq!(stage.sent(), query("insert into t values (1)"));
        stage.engine(&ok(IDLE));
        stage.said();
        // A session without a default schema is nowhere; one that uses it needn't name it.
        stage.conversation.move_to("");
        stage.run(&query("select n from c.t"), &rows(b"1", IDLE));
        stage.conversation.move_to("information_schema");
        stage.client(&query("select * from columns"));
        stage.guarded(false);
        stage.sent();
        stage.engine(&rows(b"9", IDLE));
        stage.said();
        // Prepared there, and run where the session has none any more.
        stage.client(&prepare("select * from columns"));
        stage.sent();
        stage.engine(&ok(IDLE));
        stage.sent();
        stage.engine(&prepared(2));
        stage.said();
        stage.conversation.move_to("");
        stage.client(&execute(2));
        assert_ne!(stage.sent(), execute(2), "VIOLATION: run without the guard");
    });
    let mut stage = Stage::new(1 << 25);
    stage.conversation.lexing.server = MYSQL;
    let other = stage.other("old/b");
    other.overlay(Overlay::Installing, InFlight::Finish);
    stage.run(&query("select 1 from information_schema.columns"), &rows(b"1", IDLE));
}

/// The bytes of one character end in a backslash where they are read by another character set.
#[test]
fn a_text_that_mariadb_reads_anew_by_another_character_set_is_not_known() {
    let text = "update t join (select '誠\\' as c) q join b.u set b.u.n = 9 -- ' as c) q set n = 1";
    for (set, refused) in [("utf8mb4", false), ("gbk", true)] {
        let mut stage = Stage::new(1 << 25);
        stage.run(&query("set sql_mode=''"), &ok(IDLE));
        stage.run(&query("set names utf8mb4"), &ok(IDLE));
        stage.run(&prepare(text), &prepared(7));
        stage.run(&query(&format!("set names {set}")), &ok(IDLE));
        let other = stage.other("old/b");
        other.overlay(Overlay::Installing, InFlight::Finish);
        stage.client(&execute(7));
        if refused {
            assert_eq!((stage.told().0, stage.sent()), (9708, vec![]), "VIOLATION: {set}");
        } else {
            assert_eq!(stage.sent(), execute(7));
        }
    }
}

const MYSQL: MyServer = MyServer { flavour: MyFlavour::MySql, version: 90_704 };

/// MySQL reads a prepared text anew, by the session's modes of then, when its table has changed.
#[test]
fn a_text_that_may_be_read_anew_by_other_rules_is_not_known() {
    const ESCAPES: u16 = IDLE | 0x200;
    let text = r"update t join (select '\' as c) q join b.u set b.u.n = 9 -- ' as c) q set t.n = 1";
    for (text, server, refused) in [
        (text, Some(MYSQL), true),
        ("update t set n = 1", Some(MYSQL), false),
        // MariaDB keeps the modes with the statement.
        (text, None, false),
    ] {
        let mut stage = Stage::new(1 << 25);
        stage.conversation.lexing.server = server.unwrap_or(stage.conversation.lexing.server);
        stage.run(&query("set sql_mode=''"), &ok(IDLE));
        stage.run(&prepare(text), &prepared(7));
        stage.run(&query("prepare s from 'delete from t'"), &ok(IDLE));
        let other = stage.other("old/b");
        other.overlay(Overlay::Installing, InFlight::Finish);
        stage.run(&execute(7), &ok(IDLE));
        stage.run(&query("execute s"), &ok(IDLE));
        stage.run(&query("set sql_mode='NO_BACKSLASH_ESCAPES'"), &ok(ESCAPES));
        stage.client(&execute(7));
        if refused {
            assert_eq!((stage.told().0, stage.sent()), (9708, vec![]));
        } else {
            assert_eq!(stage.sent(), execute(7));
            stage.engine(&ok(ESCAPES));
            stage.said();
        }
        stage.client(&query("execute s"));
        let by_name = server.is_some();
        assert_eq!(stage.sent().is_empty(), by_name, "{text}");
    }
}

/// What is prepared in a session that has no default schema names all that it reaches, and keeps
/// it that way wherever it is run; what is prepared at one that lists others stays there.
#[test]
fn a_statement_keeps_the_default_schema_that_it_had_or_had_not() {
    each(|stage| {
        let answer = rows(b"1", IDLE);
        stage.conversation.move_to("");
        stage.run(&prepare("select n from c.t"), &prepared(1));
        stage.run(&query("prepare s from 'select n from c.t'"), &ok(IDLE));
        stage.conversation.move_to("information_schema");
        stage.run(&prepare("select * from columns"), &prepared(2));
        stage.run(&query("prepare l from 'select * from columns'"), &ok(IDLE));
        stage.other("old/b").overlay(Overlay::Installing, InFlight::Finish);
        for home in ["", "app"] {
            stage.conversation.move_to(home);
            stage.run(&execute(1), &answer);
            stage.run(&query("execute s"), &answer);
        }
        for (at, home) in ["", "app"].into_iter().enumerate() {
            for lists in [execute(2), query("execute l")] {
                stage.conversation.move_to(home);
                stage.client(&lists);
                let first = at == 0 && lists == execute(2);
                let asked = if first { query(ASK) } else { query(GUARD) };
                assert_eq!(stage.sent(), asked, "VIOLATION: run without the guard at {home:?}");
                if first {
                    stage.engine(&rows(b"0", IDLE));
                    assert_eq!(stage.sent(), query(GUARD));
                }
                stage.engine(&ok(IDLE));
                assert_eq!(stage.sent(), lists);
                stage.engine(&answer);
                stage.said();
                // A write elsewhere undoes it, so that each is asked for anew.
                stage.conversation.move_to("app");
                stage.client(&query("insert into t values (1)"));
                assert_eq!(stage.sent(), query(UNDO));
                stage.engine(&ok(IDLE));
                stage.sent();
                stage.engine(&ok(IDLE));
                stage.said();
            }
        }
    });
}

/// A name that was prepared where the default schema wasn't known may mean any.
#[test]
fn a_name_prepared_nobody_knows_where_reaches_anything() {
    each(|stage| {
        stage.conversation.lost = true;
        stage.run(&query("prepare s from 'insert into t values (1)'"), &ok(IDLE));
        stage.run(&query("use app"), &ok(IDLE));
        stage.other("old/b").overlay(Overlay::Installing, InFlight::Finish);
        stage.client(&query("execute s"));
        assert!(stage.sent().is_empty(), "VIOLATION: it may be of the fenced schema");
        assert_eq!(stage.told().0, 9701);
    });
}
