//! What isn't understood may do anything: to every schema, and to the session.

use super::super::super::statement::{MyDetail, Shape};
use super::*;
use crate::base::limits;

fn my(text: &str, lexing: MyLexing) -> MyDetail {
    under(text.as_bytes(), lexing).detail().cloned().unwrap_or_default().my
}

/// Nobody knows where it reaches, or what the session is behind it.
fn assumes_everything(text: &str, lexing: MyLexing) -> bool {
    let found = under(text.as_bytes(), lexing);
    let shape = found.shape();
    found.class().is_writer()
        && shape.changes_schema()
        && shape.changes_lexing()
        && shape.commits_implicitly()
        && found.detail().is_some_and(|detail| {
            let my = &detail.my;
            detail.any_database
                && my.any_schema
                && my.names_unknown
                && my.default_schema.is_none()
                && my.change == SessionChange::UNKNOWN
        })
}

#[test]
fn a_text_that_is_not_understood_may_do_everything() {
    let many = vec!["execute s"; limits::EXECUTED_NAMES_MAX + 1].join("; ");
    for text in [
        "nonsense",
        "'x'",
        "select '",
        "select 1; nonsense",
        "begin select 1",
        "begin not atomic execute immediate concat('create table b','.x (n int)'); end",
        "begin not atomic drop database b; end",
        "create procedure p() begin select 1; end",
        "create or replace definer = `a`@`b` procedure p() begin select 1; end",
        "create definer = current_user aggregate function f() returns int begin return 1; end",
        "create trigger g before insert on t for each row begin set @a = 1; end",
        "alter definer = a@b event e do begin select 1; end",
        "create procedure p() select 1 as begin; use b; select 1 as end",
        "create procedure p() begin select 1 as begin; end; use b; select 1 as end",
        "set statement sql_mode='' for execute s",
        "set statement sql_mode='' for prepare s from 'select 1'",
        "set statement `sql_mödé`='' for execute s",
        "set statement a=1 for set statement b=2 for select 1",
        "set statement a=1",
        "set `sql_mödé`=''",
        "set session sql_mödé=''",
        "set @@session.`sql_mode `=''",
        "set @a=1, `autocommit `=0",
        "set sql_mode='', `sql_mödé`='ANSI_QUOTES'",
        "set `sql_mödé`='ANSI_QUOTES', sql_mode=''",
        "set names utf8mb4, `character_set_clïent`=gbk",
        "set `character_set_clïent`=gbk, names utf8mb4",
        "set x y",
        "set session transaction_réad_only=0",
        "execute `é`",
        "execute é",
        "execute `e `",
        "execute immediate @a",
        "execute immediate concat('use ', 'b')",
        "prepare from",
        "prepare 's' from 'select 1'",
        "explain create table t (n int)",
        "use",
        "use a b",
        "xa nonsense",
        &many,
    ] {
        for lexing in [maria(), oracle()] {
            assert!(assumes_everything(text, lexing), "{text}: {:?}", my(text, lexing));
        }
    }
}

/// Over all cases: where every effect on the session is assumed, so is every schema.
#[test]
fn every_effect_on_the_session_means_any_schema() {
    let mut seen = 0;
    for (_, lexing, text) in cases() {
        let shape: Shape = under(text.as_bytes(), lexing).shape();
        let everything = shape.changes_schema() && shape.changes_lexing() && shape.commits();
        // The one text inside another that is read, and names its schemas.
        let inner = text.to_lowercase().contains("execute immediate '");
        if everything && !inner {
            assert!(assumes_everything(text, lexing), "{text}");
            seen += 1;
        }
    }
    assert!(seen > 50, "only {seen}");
}

/// The word of what has a body counts in its place alone: no table is taken for one.
#[test]
fn nothing_hides_behind_a_table_named_like_what_has_a_body() {
    for head in [
        "create table event",
        "create or replace table procedure",
        "create temporary table function",
        "create definer = current_user view trigger as",
        "create definer = event sql security invoker view v as",
        "alter table event rename to",
    ] {
        let text = format!("{head} select 1 as begin; use b; create table x.y (n int); end");
        for lexing in [maria(), oracle()] {
            assert!(!under(text.as_bytes(), lexing).shape().single(), "{text}");
            assert_eq!(my(&text, lexing).schemas, ["x", "b"], "{text}");
        }
    }
}

#[test]
fn names_that_can_not_be_compared_are_nobodys() {
    for name in ["`é`", "é", "`e `", "`a-b`", "``", &format!("`{}`", "x".repeat(65))] {
        for text in [format!("prepare {name} from 'select 1'"), format!("drop prepare {name}")] {
            let found = my(&text, maria());
            assert!(found.names_unknown && !found.any_schema, "{text}");
            assert!(found.prepared.is_empty() && found.deallocated.is_empty(), "{text}");
        }
    }
    let found = my("prepare `S$_1` from 'select 1'", maria());
    assert!(!found.names_unknown && found.prepared[0].0 == "s$_1", "{found:?}");
    // As many as are told; of more nobody keeps an account.
    let many = vec!["prepare s from 'select 1'"; 50].join("; ");
    let found = my(&many, maria());
    assert!(found.names_unknown && found.prepared.len() == limits::EXECUTED_NAMES_MAX);
}

#[test]
fn names_of_schemas_are_told_where_the_engine_keeps_them_so() {
    let latin = MyLexing { encoding: MyEncoding::AsciiSafe, ..maria() };
    for (text, lexing) in [
        ("use `é`", latin),
        ("use `😀`", maria()),
        ("select 1 from `😀`.t", maria()),
        ("show tables from `é`", latin),
        ("drop database `é`", latin),
    ] {
        let found = my(text, lexing);
        assert!(found.any_schema && found.schemas.is_empty(), "{text}");
    }
    let text = format!("select 1 from `{}`.t", "x".repeat(900_000));
    assert!(my(&text, maria()).schemas.is_empty());
    let moved = under("use `é`".as_bytes(), latin);
    assert!(moved.shape().changes_schema() && !moved.class().is_writer());
    assert_eq!(my("use `é`", maria()).default_schema.as_deref(), Some("é"));
    // Which words begin an option differs between servers.
    for lexing in [maria(), oracle()] {
        assert_eq!(my("alter database comment charset latin1", lexing).schemas, ["comment"]);
    }
}

/// What is kept of a text has bounds: the classifier remembers many of them.
#[test]
fn what_is_kept_of_a_text_is_bounded() {
    let drops: Vec<_> = (0..1_000).map(|n| format!("drop schema q{n:05}")).collect();
    let names = 0..limits::EXECUTED_NAMES_MAX;
    let executes = names.map(|n| format!("execute e{n}")).collect::<Vec<_>>().join(";");
    let inside = format!("execute immediate '{executes}'");
    let twice = format!("{executes}; execute immediate 'execute f'");
    for lexing in [maria(), oracle()] {
        let found = under(drops.join(";").as_bytes(), lexing);
        let detail = found.detail().unwrap();
        assert_eq!(detail.databases.len(), limits::CLASSIFIED_DATABASES_MAX);
        assert!(detail.any_database && detail.my.any_schema);
        for (text, everything) in [(&inside, false), (&twice, true)] {
            let found = under(text.as_bytes(), lexing);
            assert_eq!(found.detail().unwrap().executes.len(), limits::EXECUTED_NAMES_MAX);
            assert_eq!(found.class() == StatementClass::Unprovable, everything);
            assert_eq!(assumes_everything(text, lexing), everything);
        }
    }
}

/// Under another character set a trusted function's schema is another one.
#[test]
fn a_trusted_name_counts_in_its_own_character_set() {
    let trusted = Arc::new(Trusted::new(["é.tidy"]));
    for (encoding, class) in [
        (MyEncoding::Utf8, StatementClass::Read),
        (MyEncoding::AsciiSafe, StatementClass::Unprovable),
    ] {
        let lexing = MyLexing { encoding, ..maria() };
        let mut classifier = Classifier::new(Arc::clone(&trusted), 0);
        let found = classifier.classify("select `é`.tidy()".as_bytes(), lexing);
        assert_eq!(found.class(), class, "{encoding:?}");
    }
}
