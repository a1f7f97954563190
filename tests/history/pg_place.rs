//! PostgreSQL as a place of histories: a slot keeps the log, `test_decoding` reads it.
//!
//! Purpose: [`Place`] for the acceptance tests' [`Site`]. Positions are WAL positions; a commit's
//! is the end of its record. Called by `history_pg.rs` and `arms_pg.rs`; judges nothing.

use super::Place;
use super::check::{Change, LogRow};
use crate::acceptance::{Fenced, Site};

/// The table of numbered rows, and a view that hides a function that writes to it.
const TABLES: &str = "
CREATE TABLE h (id bigint, who text);
CREATE FUNCTION hidden_write() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  INSERT INTO h VALUES (current_setting('h.n')::bigint, 'hidden');
  RETURN current_setting('h.n')::bigint;
END $$;
CREATE VIEW hidden AS SELECT hidden_write() AS id;";

impl Place for Site<'_> {
    fn make(&self) {
        self.setup(TABLES);
        let slot = "SELECT pg_create_logical_replication_slot";
        self.sql(&format!("{slot}('h_{}', 'test_decoding')", self.db));
    }

    fn table(&self) -> Vec<i64> {
        let table = self.sql("SELECT id FROM h ORDER BY id");
        table.lines().map(|id| id.parse().unwrap()).collect()
    }

    fn log(&self) -> Vec<LogRow> {
        // Decoding ends where the log is flushed, and these engines don't wait for that.
        self.sql("SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'h', 'end')");
        let sql = format!(
            "SELECT (lsn - '0/0'::pg_lsn)::text, xid::text, data
             FROM pg_logical_slot_get_changes('h_{}', NULL, NULL)",
            self.db
        );
        let log = self.sql(&sql).lines().filter_map(row).collect();
        self.sql(&format!("SELECT pg_drop_replication_slot('h_{}')", self.db));
        log
    }

    fn log_end(&self) -> u64 {
        lsn(&self.sql("SELECT pg_current_wal_insert_lsn()"))
    }

    fn position(&self, boundary: &str) -> u64 {
        lsn(boundary)
    }

    fn drain_ms(&self) -> u64 {
        0
    }

    fn fenced(&self) -> &Fenced<'_> {
        self
    }
}

/// A row of the slot, unless it says nothing of `h`.
fn row(line: &str) -> Option<LogRow> {
    let mut parts = line.splitn(3, '|');
    let mut part = || parts.next().unwrap().to_owned();
    let (lsn, xid, data) = (part().parse().unwrap(), part(), part());
    let change = if data.starts_with("COMMIT") {
        Change::Commit
    } else {
        let (_, values) = data.split_once("INSERT: id[bigint]:")?;
        Change::Insert(values.split(' ').next()?.parse().unwrap())
    };
    Some(LogRow { lsn, xid, change })
}

/// `A/B` as a number.
fn lsn(text: &str) -> u64 {
    let (high, low) = text.split_once('/').unwrap();
    let part = |text| u64::from_str_radix(text, 16).unwrap();
    (part(high) << 32) | part(low)
}
