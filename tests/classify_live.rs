//! What PostgreSQL's own clients send, recorded from a live engine, is classified as reads.
//!
//! Purpose: under a write fence people look at the database with psql and dump it with pg_dump;
//! none of what these send may be refused. The statements are recorded from the engine's log, so
//! they are those of the installed version and no text of theirs is kept here.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;

use fencewire::sql::{Classifier, Lexing, Trusted};
use support::tools::{Target, run};
use support::{Options, PgCluster};

const SCHEMA: &str = "
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE parent (id int PRIMARY KEY, m mood, p positive, t text COLLATE \"C\");
CREATE TABLE child (id serial PRIMARY KEY, parent int REFERENCES parent,
  x int GENERATED ALWAYS AS (1) STORED);
CREATE INDEX child_parent ON child (parent) WHERE parent > 0;
CREATE TABLE part (a int) PARTITION BY RANGE (a);
CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (10);
CREATE VIEW v AS SELECT * FROM parent;
CREATE MATERIALIZED VIEW mv AS SELECT * FROM parent;
CREATE FUNCTION f(a int) RETURNS int LANGUAGE sql AS 'SELECT a';
CREATE PROCEDURE p(a int) LANGUAGE sql AS 'SELECT a';
CREATE RULE r AS ON INSERT TO v DO INSTEAD NOTHING;
CREATE FUNCTION tf() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER tr BEFORE INSERT ON child FOR EACH ROW EXECUTE FUNCTION tf();
ALTER TABLE child ENABLE ROW LEVEL SECURITY;
CREATE POLICY pol ON child USING (true);
CREATE SEQUENCE sq;
CREATE PUBLICATION pub FOR TABLE parent;
CREATE STATISTICS st ON id, m FROM parent;
COMMENT ON TABLE parent IS 'x';
INSERT INTO parent VALUES (1, 'ok', 1, 'x');
";

const COMMANDS: [&str; 40] = [
    "\\d",
    "\\d+",
    "\\d child",
    "\\d+ child",
    "\\d+ part",
    "\\d+ v",
    "\\d mv",
    "\\dt+",
    "\\di+",
    "\\dv+",
    "\\ds+",
    "\\df+",
    "\\dT+",
    "\\dD",
    "\\dn+",
    "\\du+",
    "\\l+",
    "\\dp",
    "\\dx",
    "\\dy",
    "\\dRp+",
    "\\dRs",
    "\\dF",
    "\\dC",
    "\\do",
    "\\dO",
    "\\dc",
    "\\dd",
    "\\ddp",
    "\\dew",
    "\\des",
    "\\det",
    "\\dP+",
    "\\dX",
    "\\db+",
    "\\dL",
    "\\dA",
    "\\sf f",
    "\\sv v",
    "\\z",
];

/// The statements in the engine's log behind `mark`, in order.
fn logged(cluster: &PgCluster, mark: &str) -> Vec<String> {
    let log = std::fs::read_to_string(cluster.log_file()).unwrap();
    let log = log.split(mark).nth(1).expect("the mark is in the log");
    let mut statements = Vec::new();
    let mut current: Option<String> = None;
    for line in log.lines() {
        let begins = ["LOG:  statement: ", "LOG:  execute "]
            .iter()
            .find_map(|prefix| line.split_once(prefix).map(|(_, rest)| (*prefix, rest)));
        match (begins, &mut current) {
            (Some((prefix, rest)), _) => {
                statements.extend(current.take());
                let text = if prefix.starts_with("LOG:  execute") {
                    rest.split_once(": ").map_or("", |(_, text)| text)
                } else {
                    rest
                };
                current = Some(text.to_owned());
            }
            (None, Some(text)) if line.starts_with('\t') => {
                text.push('\n');
                text.push_str(line.trim_start_matches('\t'));
            }
            (None, _) => statements.extend(current.take()),
        }
    }
    statements.extend(current);
    statements
}

#[test]
fn psql_and_pg_dump_only_read_where_they_only_read() {
    let cluster = PgCluster::start(Options {
        settings: vec![("log_statement".to_owned(), "all".to_owned())],
        ..Options::default()
    });
    cluster.create_db("shop");
    cluster.sql("shop", SCHEMA);
    cluster.sql("shop", "SELECT 'here it begins'");
    let target =
        Target { cluster: &cluster, port: cluster.port(), client_tls: false, engine_tls: false };
    let script = cluster.socket_dir().join("commands.psql");
    std::fs::write(&script, COMMANDS.join("\n") + "\n").unwrap();
    // The superuser: it sees every branch of the catalog queries.
    let mut psql = target.psql("shop");
    run(psql.env("PGUSER", "fencewire").env("PGPASSWORD", "fencewire").arg("-f").arg(&script));
    let mut dump = target.tool("pg_dump", "shop");
    run(dump.env("PGUSER", "fencewire").env("PGPASSWORD", "fencewire"));

    let statements = logged(&cluster, "here it begins'");
    assert!(statements.len() > 100, "only {} statements were recorded", statements.len());
    let mut classifier = Classifier::new(Arc::new(Trusted::default()), 1024);
    classifier.for_engine(u16::try_from(cluster.version()).unwrap());
    let mut wrong = Vec::new();
    for text in &statements {
        let found = classifier.classify(text.as_bytes(), Lexing::STANDARD);
        let prepares_writer = found
            .detail()
            .is_some_and(|detail| detail.prepares.iter().any(|(_, class)| class.is_writer()));
        if found.class().is_writer() || prepares_writer {
            wrong.push(format!("{}: {text}", found.class()));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), statements.len(), wrong.join("\n\n"));
    let control = classifier.classify(b"INSERT INTO parent VALUES (2)", Lexing::STANDARD);
    assert!(control.class().is_writer());
}
