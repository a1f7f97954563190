//! MariaDB and MySQL as places of histories: the binary log, decoded by the server's own program.
//!
//! Purpose: [`Place`] for the acceptance tests' [`MySite`]. A position is the number of a GTID: one
//! server writes the whole log, so numbers are in the log's order. Called by `history_mysql.rs`
//! and `arms_mysql.rs`; judges nothing.
//!
//! Rows of an XA branch are in the log when it is prepared, and count as committed at the number of
//! its XA COMMIT. A test below decodes what both servers' programs print.

use std::process::{Command, Stdio};

use crate::acceptance::{Fenced, PATIENCE};
use crate::acceptance_mysql::MySite;
use crate::history::check::{Change, LogRow};
use crate::history::{End, Place};
use crate::support::my_cluster::binlog_program;
use crate::support::my_wire::MyAnswer;
use crate::support::{MyFlavour, poll};

/// The table of numbered rows; a view that hides a function that writes to it; a procedure that
/// makes its own transaction read-write. Bodies have semicolons: one statement each.
const TABLES: &[&str] = &[
    "CREATE TABLE h (id bigint, who text)",
    "CREATE FUNCTION hidden_write() RETURNS bigint MODIFIES SQL DATA \
     BEGIN INSERT INTO h VALUES (@h_n, 'hidden'); RETURN @h_n; END",
    "CREATE VIEW hidden AS SELECT hidden_write() AS id",
    "CREATE PROCEDURE writing(n bigint) \
     BEGIN START TRANSACTION READ WRITE; INSERT INTO h VALUES (n, 'call'); COMMIT; END",
];

impl Place for MySite<'_> {
    fn make(&self) {
        let mut direct = self.direct();
        for statement in TABLES {
            direct.query(statement).ok();
        }
    }

    fn table(&self) -> Vec<i64> {
        // What a client sent before it hung up may still be running.
        let gone = format!(
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
             WHERE DB = '{}' AND USER = 'wire'",
            self.db
        );
        let seen = poll(PATIENCE, || (self.cluster.sql("mysql", &gone) == "0").then_some(()));
        assert!(seen.is_some(), "sessions of {} are left", self.db);
        let table = self.sql("SELECT id FROM h ORDER BY id");
        table.lines().map(|id| id.parse().unwrap()).collect()
    }

    fn log(&self) -> Vec<LogRow> {
        let logs = self.sql("SHOW BINARY LOGS");
        let first = logs.split(['\t', '\n']).next().unwrap();
        let output = Command::new(binlog_program(self.cluster.flavour()))
            .args(["--no-defaults", "--read-from-remote-server", "--to-last-log", "--user=root"])
            .args(["--base64-output=DECODE-ROWS", "--verbose"])
            .arg(format!("--socket={}", self.cluster.socket().display()))
            .arg(first)
            .stdin(Stdio::null())
            .output()
            .expect("the program that reads binary logs does not start");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "the binary log can't be read: {errors}");
        decoded(&String::from_utf8_lossy(&output.stdout), &self.db)
    }

    fn log_end(&self) -> u64 {
        let set = match self.cluster.flavour() {
            MyFlavour::MariaDb => "SELECT @@gtid_binlog_pos",
            MyFlavour::MySql => "SELECT @@gtid_executed",
        };
        last(&self.sql(set))
    }

    fn position(&self, boundary: &str) -> u64 {
        // A server that nobody replicates to has one source of numbers and no holes in them.
        let one = match self.cluster.flavour() {
            MyFlavour::MariaDb => !boundary.contains(','),
            MyFlavour::MySql => boundary.matches([':', ',']).count() == 1,
        };
        assert!(one, "not one range of numbers: {boundary}");
        last(boundary)
    }

    fn drain_ms(&self) -> u64 {
        // Each look at the transactions waits for the engine's own cache of them to be renewed.
        2_000
    }

    fn fenced(&self) -> &Fenced<'_> {
        self
    }
}

/// What an answer means for what it was about: the proxy's codes by SQLSTATE, the engine's by
/// number.
pub(crate) fn end_of(answer: &MyAnswer) -> End {
    match &answer.error {
        None => End::Acknowledged,
        Some(error) if error.state == "08007" => End::Lost(error.state.clone()),
        Some(error) if error.state.starts_with("ZF") => End::Refused(error.state.clone()),
        Some(error) => End::Refused(error.code.to_string()),
    }
}

/// The last number of a set of GTIDs.
fn last(set: &str) -> u64 {
    let number = set.rsplit(['-', ':']).next().unwrap_or_default();
    number.trim().parse().unwrap_or_else(|e| panic!("no GTID: {set:?}: {e}"))
}

/// The number of the GTID that a line begins a transaction with.
fn gtid(line: &str) -> Option<u64> {
    if let Some(text) = line.strip_prefix("SET @@SESSION.GTID_NEXT= '") {
        // Behind the last transaction stands AUTOMATIC.
        return text.split_once('\'')?.0.rsplit_once(':')?.1.parse().ok();
    }
    let text = line.strip_prefix('#').filter(|line| !line.starts_with("Q>"))?;
    let (_, behind) = text.split_once("\tGTID ")?;
    behind.split(' ').next()?.rsplit_once('-')?.1.parse().ok()
}

/// What the text of a decoded log says of the table `h` of a schema.
fn decoded(text: &str, db: &str) -> Vec<LogRow> {
    let (mut rows, mut lsn, mut xid) = (Vec::new(), 0, String::new());
    let table = format!("### INSERT INTO `{db}`.`h`");
    let mut inside = false;
    for line in text.lines() {
        let words = line.trim_end_matches("/*!*/;").trim_end();
        if let Some(number) = gtid(line) {
            (lsn, xid) = (number, number.to_string());
        } else if line.starts_with("### INSERT INTO") {
            inside = words == table;
        } else if let Some(id) = line.strip_prefix("###   @1=").filter(|_| inside) {
            let id = id.split(' ').next().unwrap().parse().unwrap();
            rows.push(LogRow { lsn, xid: xid.clone(), change: Change::Insert(id) });
        } else if let Some(branch) = words.strip_prefix("XA START ") {
            branch.clone_into(&mut xid);
        } else if let Some(branch) = words.strip_prefix("XA COMMIT ") {
            let xid = branch.trim_end_matches(" ONE PHASE").to_owned();
            rows.push(LogRow { lsn, xid, change: Change::Commit });
        } else if words == "COMMIT" {
            rows.push(LogRow { lsn, xid: xid.clone(), change: Change::Commit });
        }
    }
    rows
}

#[test]
fn what_the_servers_programs_print_is_decoded() {
    let mariadb = "#261201  3:58:14 server id 1  end_log_pos 853 CRC32 0xa 	GTID 0-1-4 trans\n\
        START TRANSACTION\n#Q> INSERT INTO h VALUES (2,'a'),(3,'b')\n\
        ### INSERT INTO `d`.`h`\n### SET\n###   @1=2\n###   @2='a'\n\
        ### INSERT INTO `d`.`h`\n### SET\n###   @1=3\n###   @2='b'\nCOMMIT/*!*/;\n\
        #261201  3:58:14 server id 1  end_log_pos 1307 CRC32 0x1 	GTID 0-1-5 trans\n\
        XA START X'78',X'',1/*!*/;\n### INSERT INTO `d`.`h`\n### SET\n###   @1=6\n\
        XA END X'78',X'',1\n/*!*/;\nXA PREPARE X'78',X'',1\n/*!*/;\n\
        #261201  3:58:14 server id 1  end_log_pos 1614 CRC32 0x1 	GTID 0-1-6 trans\n\
        XA COMMIT X'78',X'',1\n/*!*/;\n";
    let mysql = "SET @@SESSION.GTID_NEXT= '96533f9f-ed3b-11f1-8f2b-02fc00000001:4'/*!*/;\n\
        BEGIN\n/*!*/;\n### INSERT INTO `d`.`h`\n### SET\n###   @1=2\n###   @2='a'\n\
        ### INSERT INTO `d`.`h`\n### SET\n###   @1=3\n###   @2='b'\n\
        ### INSERT INTO `e`.`h`\n### SET\n###   @1=4\n###   @2='b'\nCOMMIT/*!*/;\n\
        SET @@SESSION.GTID_NEXT= '96533f9f-ed3b-11f1-8f2b-02fc00000001:5'/*!*/;\n\
        XA START X'78',X'',1\n/*!*/;\n### INSERT INTO `d`.`h`\n### SET\n###   @1=6\n\
        XA END X'78',X'',1\n/*!*/;\nXA PREPARE X'78',X'',1\n/*!*/;\n\
        SET @@SESSION.GTID_NEXT= '96533f9f-ed3b-11f1-8f2b-02fc00000001:6'/*!*/;\n\
        XA COMMIT X'78',X'',1\n/*!*/;\nSET @@SESSION.GTID_NEXT= 'AUTOMATIC' /* added */ /*!*/;";
    let row = |lsn, xid: &str, change| LogRow { lsn, xid: xid.to_owned(), change };
    let expected = [
        row(4, "4", Change::Insert(2)),
        row(4, "4", Change::Insert(3)),
        row(4, "4", Change::Commit),
        row(5, "X'78',X'',1", Change::Insert(6)),
        row(6, "X'78',X'',1", Change::Commit),
    ];
    for text in [mariadb, mysql] {
        assert_eq!(decoded(text, "d"), expected);
    }
    assert_eq!((last("0-45991-10"), last("9653-ed3b:1-12"), last("9653-ed3b:7")), (10, 12, 7));
}
