//! What fits nowhere else: replication's commands, damage, order.

use super::{Answer, Case, Talk};
use crate::support::MyFlavour;
use crate::support::my_wire::packets;

pub fn cases(flavour: MyFlavour) -> Vec<Case> {
    let mut cases = vec![
        Case::new("others: a replica without the right", |talk: &mut Talk| {
            talk.command(b"\x15\x09\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", Answer::One);
            talk.command(&[14], Answer::One);
        }),
        Case::new("others: a binary log without the right", |talk: &mut Talk| {
            talk.command(b"\x12\x04\0\0\0\x01\0\x07\0\0\0binlog.000001", Answer::One);
        }),
        Case::new("others: an empty packet", |talk: &mut Talk| {
            talk.send_raw(&packets(&[], &mut 0));
            talk.packet();
            if talk.is_open() {
                talk.ask(&["SELECT 1"]);
            }
        }),
        Case::new("others: a NUL behind a statement", |talk: &mut Talk| {
            talk.query(b"SELECT 1\0");
            talk.read(Answer::Results);
            talk.query(b"SELECT 1\0; SELECT 2");
            talk.read(Answer::Results);
        }),
        Case::new("others: bytes that are no text", |talk: &mut Talk| {
            talk.query(b"SELECT '\xff\xfe', \x80");
            talk.read(Answer::Results);
            talk.query(b"\xef\xbb\xbfSELECT 1");
            talk.read(Answer::Results);
        }),
        Case::new("others: a hundred statements", |talk: &mut Talk| {
            for n in 0..100 {
                talk.ask(&[format!("SELECT {n}, REPEAT('x', {n})").as_str()]);
            }
        }),
    ];
    for (name, sql) in [
        ("nowhere in a dot", "SELECT DB.r.n FROM DB.r ORDER BY 1 LIMIT 1"),
        ("quoted names", "SELECT `n` FROM `r` AS `x` ORDER BY `x`.`n`"),
        ("a string with both quotes", "SELECT 'it''s', \"a \\\" b\", _utf8mb4'x', N'y'"),
        ("numbers of all forms", "SELECT 0x41, 0b11, 1.5e-3, .5, 1., -0, 18446744073709551615"),
        ("an interval", "SELECT DATE '2026-01-31' + INTERVAL 1 MONTH, TIME '01:02:03'"),
        ("match and like", "SELECT 'abc' LIKE 'a%', 'abc' REGEXP '^a', 'a' IN ('a', 'b')"),
        ("a case", "SELECT CASE n WHEN 1 THEN 'x' ELSE 'y' END FROM r ORDER BY n"),
        ("a join", "SELECT a.n, b.s FROM r a LEFT JOIN r b ON a.n = b.n + 1 ORDER BY a.n"),
        ("a window", "SELECT n, ROW_NUMBER() OVER (ORDER BY n) FROM r"),
        (
            "a recursion",
            "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x WHERE n < 9) \
             SELECT * FROM x",
        ),
    ] {
        cases.push(Case::new(format!("others: {name}"), move |talk: &mut Talk| talk.ask(&[sql])));
    }
    if flavour == MyFlavour::MariaDb {
        cases.push(Case::new("others: progress not agreed on", |talk: &mut Talk| {
            talk.ask(&["ALTER TABLE m ENGINE = MyISAM", "CHECK TABLE m"]);
        }));
    }
    cases
}
