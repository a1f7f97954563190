//! Random fences under load on MariaDB and MySQL: table, binary log and histories must agree
//! (proof.md section 7). The twin of `history_pg.rs`, which also tests the checker itself.
//!
//! `FENCEWIRE_HISTORY_SEED` replays a seed that a failure printed (dice and plans are the same; the
//! machine's own timing isn't). `FENCEWIRE_SOAK_CYCLES` runs that many fence cycles on either
//! server (`make soak`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod acceptance;
mod acceptance_mysql;
mod history;
#[path = "history/my_clients.rs"]
mod my_clients;
#[path = "history/my_place.rs"]
mod my_place;
mod support;

use acceptance_mysql::{MySite, on_both, own};
use history::lane::{self, Plan};
use support::MyFlavour;

/// Half of the cycles of `make test` on either server.
const PLAN: Plan = Plan { lanes: 4, lane_cycles: 25, holds: true };

on_both!(histories_table_log_and_boundaries_agree);

fn histories_table_log_and_boundaries_agree(flavour: MyFlavour) {
    println!("{}:", flavour.name());
    let (cluster, proxy) = own(flavour);
    lane::play(|| MySite::new(&cluster, &proxy), PLAN);
    let log = std::fs::read_to_string(proxy.log_file()).unwrap();
    assert!(!log.contains("panicked"), "{}", proxy.log_tail());
}
