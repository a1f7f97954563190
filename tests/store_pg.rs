//! A store that can't be believed, before PostgreSQL: acceptance 12, on the built program.
//!
//! What is spoilt, and what must follow, is in `acceptance/spoilt.rs`, and for targets in
//! `targets/spoilt.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod support;
mod targets;

use std::sync::atomic::{AtomicU32, Ordering};

use acceptance::code;
use acceptance::spoilt::{self, Ground};
use support::{PgCluster, Proxy, Wire};

struct Postgres;

impl Postgres {
    /// Asks the engine, around the proxy.
    fn direct(db: &str, sql: &str) -> String {
        PgCluster::shared().sql(db, sql)
    }
}

impl Ground for Postgres {
    fn proxy(&self) -> Proxy {
        Proxy::start(PgCluster::shared())
    }

    fn database(&self) -> String {
        let db = PgCluster::shared().fresh_db();
        Self::direct(&db, "SET ROLE app; CREATE TABLE t (n int)");
        db
    }

    fn target(&self) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        format!("spoilt{}", COUNT.fetch_add(1, Ordering::SeqCst))
    }

    fn rows(&self, db: &str) -> String {
        Self::direct(db, "SELECT coalesce(string_agg(n::text, ',' ORDER BY n), '') FROM t")
    }

    fn refusal(&self, proxy: &Proxy, db: &str, sql: &str) -> String {
        match Wire::try_connect(proxy.port(), "wire", db, &[]) {
            Ok(mut client) => code(&client.query(sql)),
            Err(fields) => fields[&'C'].clone(),
        }
    }
}

#[test]
fn acceptance_12_what_cannot_be_believed_is_unavailable_and_says_why() {
    spoilt::what_cannot_be_believed_is_unavailable_and_says_why(&Postgres);
}

#[test]
fn acceptance_12_a_store_that_was_rolled_back_or_lost_opens_nothing() {
    spoilt::a_store_that_was_rolled_back_or_lost_opens_nothing(&Postgres);
}

#[test]
fn acceptance_12_a_marker_that_lags_or_cannot_be_read_is_written_anew() {
    spoilt::a_marker_that_lags_or_cannot_be_read_is_written_anew(&Postgres);
}

#[test]
fn acceptance_12_a_receipt_that_cannot_be_read_is_never_taken_for_none() {
    spoilt::a_receipt_that_cannot_be_read_is_never_taken_for_none(&Postgres);
}

#[test]
fn acceptance_12_a_target_that_cannot_be_believed_is_unavailable_and_says_why() {
    targets::spoilt::a_target_that_cannot_be_believed_is_unavailable_and_says_why(&Postgres);
}

#[test]
fn acceptance_12_a_store_that_was_rolled_back_or_lost_opens_no_target() {
    targets::spoilt::a_store_that_was_rolled_back_or_lost_opens_no_target(&Postgres);
}

#[test]
fn acceptance_12_a_targets_marker_that_lags_or_cannot_be_read_is_written_anew() {
    targets::spoilt::a_marker_that_lags_or_cannot_be_read_is_written_anew(&Postgres);
}

#[test]
fn acceptance_12_a_targets_receipt_that_cannot_be_read_is_never_taken_for_none() {
    targets::spoilt::a_receipt_that_cannot_be_read_is_never_taken_for_none(&Postgres);
}
