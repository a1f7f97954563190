//! What is counted of programs and of the classifier, against traffic that is known.
//!
//! Purpose: `fencewire_programs_total` and `fencewire_classifier_lookups_total` are exact, on both
//! wires: what was admitted is counted once, by its class, however it came; what was refused is
//! counted as a denial and not as a program; what is the proxy's own isn't counted at all.
//!
//! Its control: before the relays counted, each of these numbers was 0.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod acceptance_mysql;
mod support;

use acceptance::{Site, metric};
use acceptance_mysql::{MySite, on_both};
use support::wire::{bind, close, execute, parse, sync};
use support::{MyCluster, MyFlavour, PgCluster, Proxy};

/// The counts of a proxy that nobody else uses.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    programs: Vec<(&'static str, u64)>,
    hits: u64,
    misses: u64,
}

fn programs(proxy: &Proxy) -> Vec<(&'static str, u64)> {
    let count = |class: &&'static str| {
        (*class, metric(proxy, &format!("fencewire_programs_total{{class=\"{class}\"}}")))
    };
    let all = fencewire::telemetry::labels::PROGRAMS.iter().map(count);
    all.filter(|(_, count)| *count > 0).collect()
}

fn counts(proxy: &Proxy) -> Counts {
    let lookups = |result: &str| {
        metric(proxy, &format!("fencewire_classifier_lookups_total{{result=\"{result}\"}}"))
    };
    Counts { programs: programs(proxy), hits: lookups("hit"), misses: lookups("miss") }
}

fn denied(proxy: &Proxy, code: &str, surface: &str) -> u64 {
    let labels = format!("{{code=\"{code}\",surface=\"{surface}\"}}");
    metric(proxy, &format!("fencewire_fence_denials_total{labels}"))
}

#[test]
fn programs_and_lookups_are_counted_exactly_on_postgres() {
    let proxy = Proxy::start(PgCluster::shared());
    let site = Site::new(PgCluster::shared(), &proxy);
    site.setup("CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'");
    let mut client = site.client();
    assert_eq!(counts(&proxy), Counts { programs: vec![], hits: 0, misses: 0 });

    for sql in ["SELECT n FROM t", "SELECT n FROM t", "SELECT n FROM t"] {
        client.query(sql).ok();
    }
    client.query("INSERT INTO t VALUES (1)").ok();
    client.query("INSERT INTO t VALUES (2)").ok();
    client.query("CREATE TABLE u (n int)").ok();
    client.query("BEGIN").ok();
    client.query("ROLLBACK").ok();
    client.query("SET application_name = 'x'").ok();
    client.query(&format!("ALTER DATABASE \"{}\" CONNECTION LIMIT 50", site.db)).ok();
    client.query("SELECT f()").ok();
    // Failing at the engine, it was admitted all the same.
    assert_eq!(acceptance::code(&client.query("SELECT n FROM nowhere")), "42P01");
    // One pipeline is one program.
    client.extended("INSERT INTO t VALUES ($1::text::int)", &[Some("3")]).ok();
    // Prepared once, run twice, the first time in two fetches; and closed.
    let prepared = [parse("s", "SELECT n + 1 FROM t"), sync()].concat();
    let first = [bind("p", "s", &[]), execute("p", 1), execute("p", 1), sync()].concat();
    let second = [bind("", "s", &[]), execute("", 0), close(b'S', "s"), sync()].concat();
    for bytes in [prepared, first, second] {
        client.send_raw(&bytes);
        client.until_ready().ok();
    }
    let expected = vec![
        ("read", 3 + 1 + 2),
        ("write", 2 + 1),
        ("ddl", 1),
        ("transaction_control", 2),
        ("session", 1),
        ("lifecycle", 1),
        ("unprovable", 1),
    ];
    let seen = counts(&proxy);
    assert_eq!(seen, Counts { programs: expected.clone(), hits: 2 + 1, misses: 11 });

    let operation = site.fence();
    client.query("SELECT n FROM t").ok();
    assert_eq!(acceptance::code(&client.query("INSERT INTO t VALUES (4)")), "ZF001");
    assert_eq!(acceptance::code(&client.query("SELECT f()")), "ZF008");
    let late = client.extended("INSERT INTO t VALUES ($1::text::int)", &[Some("5")]);
    assert_eq!(acceptance::code(&late), "ZF001");
    let mut fenced = expected;
    fenced[0].1 += 1;
    assert_eq!(programs(&proxy), fenced, "the guard's own statements, or what was refused, count");
    // What can't be proved has a SQLSTATE of its own, and the fence's code.
    assert_eq!(denied(&proxy, "MIGRATION_WRITE_FENCED", "pg"), 3);
    site.unfence(&operation);
    client.query("INSERT INTO t VALUES (6)").ok();
    fenced[1].1 += 1;
    assert_eq!(programs(&proxy), fenced, "the guard's undoing counts");
}

on_both!(programs_and_lookups_are_counted_exactly);

fn programs_and_lookups_are_counted_exactly(flavour: MyFlavour) {
    let proxy = Proxy::start_my(MyCluster::shared(flavour));
    let site = MySite::new(MyCluster::shared(flavour), &proxy);
    site.sql("CREATE FUNCTION f() RETURNS int DETERMINISTIC RETURN 1");
    let mut client = site.client();
    assert_eq!(counts(&proxy), Counts { programs: vec![], hits: 0, misses: 0 });

    for _ in 0..3 {
        client.query("SELECT n FROM t").ok();
    }
    client.query("INSERT INTO t VALUES (1)").ok();
    client.query("INSERT INTO t VALUES (2)").ok();
    client.query("CREATE TABLE u (n int)").ok();
    client.query("BEGIN").ok();
    client.query("ROLLBACK").ok();
    client.query("SET @x = 1").ok();
    client.query(&format!("ALTER DATABASE {} CHARACTER SET utf8mb4", site.db)).ok();
    client.query("SELECT f()").ok();
    // Failing at the engine, it was admitted all the same.
    assert_eq!(client.query("SELECT n FROM nowhere").code(), 1146);
    // Prepared once, run twice.
    let prepared = client.prepare("INSERT INTO t VALUES (?)").unwrap().unwrap();
    for value in ["3", "4"] {
        client.command(&prepared.execute(&[Some(value)]));
        client.answer(&[]).unwrap().ok();
    }
    // COM_INIT_DB is a program; COM_PING does nothing.
    client.command(&[&[0x02], site.db.as_bytes()].concat());
    client.answer(&[]).unwrap().ok();
    client.command(&[0x0e]);
    client.answer(&[]).unwrap().ok();
    let expected = vec![
        ("read", 3 + 1),
        ("write", 2 + 2),
        ("ddl", 1),
        ("transaction_control", 2),
        ("session", 1 + 1),
        ("lifecycle", 1),
        ("unprovable", 1),
    ];
    let seen = counts(&proxy);
    assert_eq!(seen, Counts { programs: expected.clone(), hits: 2 + 1 + 1, misses: 9 });

    let operation = site.fence();
    client.query("SELECT n FROM t").ok();
    assert_eq!(client.query("INSERT INTO t VALUES (5)").code(), 9701);
    client.command(&prepared.execute(&[Some("6")]));
    assert_eq!(client.answer(&[]).unwrap().code(), 9701);
    let mut fenced = expected;
    fenced[0].1 += 1;
    assert_eq!(programs(&proxy), fenced, "the guard's own statements, or what was refused, count");
    assert_eq!(denied(&proxy, "MIGRATION_WRITE_FENCED", "mysql"), 2);
    site.unfence(&operation);
    client.query("INSERT INTO t VALUES (7)").ok();
    fenced[1].1 += 1;
    assert_eq!(programs(&proxy), fenced, "the guard's undoing counts");
}
