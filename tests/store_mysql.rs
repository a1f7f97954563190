//! A store that can't be believed, before MariaDB and MySQL 9: acceptance 12, on the built program.
//!
//! What is spoilt, and what must follow, is in `acceptance/spoilt.rs`, and for targets in
//! `targets/spoilt.rs`; here is what a client of these servers is told.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod acceptance_mysql;
mod support;
mod targets;

use std::sync::atomic::{AtomicU32, Ordering};

use acceptance::spoilt::{self, Ground};
use acceptance_mysql::on_both;
use support::my_wire::{MyError, MyFailed, MyLogin};
use support::{MyCluster, MyFlavour, MyWire, Proxy};

on_both!(
    acceptance_12_what_cannot_be_believed_is_unavailable_and_says_why,
    acceptance_12_a_store_that_was_rolled_back_or_lost_opens_nothing,
    acceptance_12_a_marker_that_lags_or_cannot_be_read_is_written_anew,
    acceptance_12_a_receipt_that_cannot_be_read_is_never_taken_for_none,
    acceptance_12_a_target_that_cannot_be_believed_is_unavailable_and_says_why,
    acceptance_12_a_store_that_was_rolled_back_or_lost_opens_no_target,
    acceptance_12_a_targets_marker_that_lags_or_cannot_be_read_is_written_anew,
    acceptance_12_a_targets_receipt_that_cannot_be_read_is_never_taken_for_none,
);

impl Ground for MyFlavour {
    fn proxy(&self) -> Proxy {
        Proxy::start_my(MyCluster::shared(*self))
    }

    fn database(&self) -> String {
        let db = MyCluster::shared(*self).fresh_db();
        MyCluster::shared(*self).sql(&db, "CREATE TABLE t (n int)");
        db
    }

    fn target(&self) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let grants = "GRANT CREATE ON *.* TO fencewire@'127.0.0.1'; \
                      GRANT ALL ON `spoilt%`.* TO wire@'127.0.0.1'";
        MyCluster::shared(*self).sql("mysql", grants);
        format!("spoilt{}", COUNT.fetch_add(1, Ordering::SeqCst))
    }

    fn rows(&self, db: &str) -> String {
        let sql = "SELECT coalesce(group_concat(n ORDER BY n), '') FROM t";
        MyCluster::shared(*self).sql(db, sql)
    }

    fn refusal(&self, proxy: &Proxy, db: &str, sql: &str) -> String {
        let error = match MyWire::login(proxy.port(), &MyLogin::of("wire", db)) {
            Ok(mut client) => client.query(sql).error,
            Err(MyFailed::Refused(error)) => Some(error),
            Err(MyFailed::Closed(error)) => panic!("no word before the close: {error}"),
        };
        error.map(|error| state(&error)).unwrap_or_default()
    }
}

/// Its SQLSTATE, which must be the one that its number stands for where it is one of ours.
fn state(error: &MyError) -> String {
    if !error.state.starts_with("ZF") {
        return error.state.clone();
    }
    assert_eq!(error.state, format!("ZF{:03}", error.code - 9700), "{error:?}");
    error.state.clone()
}

fn acceptance_12_what_cannot_be_believed_is_unavailable_and_says_why(flavour: MyFlavour) {
    spoilt::what_cannot_be_believed_is_unavailable_and_says_why(&flavour);
}

fn acceptance_12_a_store_that_was_rolled_back_or_lost_opens_nothing(flavour: MyFlavour) {
    spoilt::a_store_that_was_rolled_back_or_lost_opens_nothing(&flavour);
}

fn acceptance_12_a_marker_that_lags_or_cannot_be_read_is_written_anew(flavour: MyFlavour) {
    spoilt::a_marker_that_lags_or_cannot_be_read_is_written_anew(&flavour);
}

fn acceptance_12_a_receipt_that_cannot_be_read_is_never_taken_for_none(flavour: MyFlavour) {
    spoilt::a_receipt_that_cannot_be_read_is_never_taken_for_none(&flavour);
}

fn acceptance_12_a_target_that_cannot_be_believed_is_unavailable_and_says_why(flavour: MyFlavour) {
    targets::spoilt::a_target_that_cannot_be_believed_is_unavailable_and_says_why(&flavour);
}

fn acceptance_12_a_store_that_was_rolled_back_or_lost_opens_no_target(flavour: MyFlavour) {
    targets::spoilt::a_store_that_was_rolled_back_or_lost_opens_no_target(&flavour);
}

fn acceptance_12_a_targets_marker_that_lags_or_cannot_be_read_is_written_anew(flavour: MyFlavour) {
    targets::spoilt::a_marker_that_lags_or_cannot_be_read_is_written_anew(&flavour);
}

fn acceptance_12_a_targets_receipt_that_cannot_be_read_is_never_taken_for_none(flavour: MyFlavour) {
    targets::spoilt::a_receipt_that_cannot_be_read_is_never_taken_for_none(&flavour);
}
