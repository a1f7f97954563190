//! What a text is beside its class, as its shape tells.

use super::*;

#[test]
fn shapes() {
    let shape = |text: &str| of(text).shape();
    assert!(shape(" ; -- x").empty() && !shape("select 1").empty());
    assert!(shape("select 1;").single() && !shape("select 1; select 2").single());
    for text in ["commit", "select 1; commit", "xa prepare 'x'", "xa commit 'x'", "call p()"] {
        assert!(shape(text).commits(), "{text}");
    }
    for text in [
        "begin",
        "start transaction",
        "create table t (a int)",
        "alter table nosuch add x int",
        "truncate t",
        "drop table t",
        "grant select on d.* to u",
        "analyze table t",
        "flush status",
        "lock tables t read",
        "unlock tables",
        "set autocommit = 1",
        "set password = 'x'",
        "create database d",
        "call p()",
        "nonsense",
    ] {
        assert!(shape(text).commits_implicitly(), "{text}");
    }
    for text in [
        "select 1",
        "insert into t values (1)",
        "set names utf8mb4",
        "use d",
        "drop temporary table t",
        "savepoint a",
        "set @a = 1",
    ] {
        assert!(!shape(text).commits_implicitly(), "{text}");
    }
    for text in ["set autocommit = 0", "set @@autocommit = 1", "call p()", "nonsense"] {
        assert!(shape(text).changes_autocommit(), "{text}");
    }
    assert!(!shape("set names utf8mb4").changes_autocommit());
    for text in ["lock tables t read", "select get_lock('a', 1)", "handler t open"] {
        assert!(shape(text).keeps_locks(), "{text}");
    }
    assert!(shape("create temporary table t (a int)").keeps_locks());
    assert!(!shape("select 1").keeps_locks());
    for text in ["select 1", "select * from t where n = ?", "select @a := 1", "show tables"] {
        assert!(shape(text).is_calm(), "{text}");
    }
    for text in [
        "select sleep(1)",
        "select 1 from t where GET_LOCK('a', -1)",
        "select master_pos_wait('a', 4)",
        "select 1; select 2",
        "lock tables t read",
        "use d",
        "nonsense",
    ] {
        assert!(!shape(text).is_calm(), "{text}");
    }
    assert!(shape("xa start 'x'").xa() && !shape("xa recover").xa());
    assert!(shape("xa start 'x'").begins_branch() && shape("XA BEGIN X'78'").begins_branch());
    // To an engine that skips the comment it is a BEGIN.
    let either = "/*!999999 xa */ begin /*!999999 'x' */";
    for text in ["begin", "xa end 'x'", "xa start 'x'; select 1", either, "nonsense"] {
        assert!(!shape(text).begins_branch(), "{text}");
    }
    assert!(shape("use d").changes_schema() && shape("drop database d").changes_schema());
    assert!(!shape("select 1 from d.t").changes_schema());
}
