//! The boundary: read under the lock, moved by the next write, and what it is without GTIDs.

use fencewire::base::ids::{OperationId, Revision};
use fencewire::engine::LogPosition;

use crate::site::{LONG, Site, own, thread};
use crate::support::MyFlavour;

on_both!(
    it_stands_still_under_the_lock_and_moves_with_the_next_write,
    a_lost_lock_gives_none,
    without_a_log_there_is_none_and_the_fence_can_be_proven,
);

async fn read(site: &Site<'_>) -> (LogPosition, bool) {
    let (operation, revision) = (OperationId::fresh(), Revision(4));
    let read = site.engine.mark_boundary(&site.namespace(), operation, revision).await.unwrap();
    assert_eq!((read.operation(), read.revision()), (operation, revision));
    assert_eq!(read.namespace(), &site.namespace());
    (read.position().clone(), read.is_locked())
}

async fn it_stands_still_under_the_lock_and_moves_with_the_next_write(flavour: MyFlavour) {
    // A server of its own: others' writes move the position too.
    let cluster = own(flavour, &[]);
    let site = Site::new(&cluster);
    let mut client = site.client();
    client.query("INSERT INTO t VALUES (1)").ok();
    let lock = site.engine.take_lock(&site.namespace(), LONG).await.unwrap();
    let first = read(&site).await;
    assert!(matches!(first, (LogPosition::Gtid(_), true)), "{first:?}");
    client.query("SET SESSION lock_wait_timeout = 1").ok();
    assert_eq!(client.query("INSERT INTO t VALUES (2)").code(), 1205);
    assert_eq!(read(&site).await, first);
    lock.release().await.unwrap();
    client.query("INSERT INTO t VALUES (3)").ok();
    let (moved, locked) = read(&site).await;
    assert!(moved != first.0 && !locked, "{moved:?}");
    let LogPosition::Gtid(set) = first.0 else { panic!("{first:?}") };
    // The earlier set lies within the later one, by the server's own reckoning.
    if flavour == MyFlavour::MySql {
        let within = format!("SELECT GTID_SUBSET('{set}', @@gtid_executed)");
        assert_eq!(site.sql(&within), "1");
        let within = format!("SELECT GTID_SUBSET(@@gtid_executed, '{set}')");
        assert_eq!(site.sql(&within), "0");
    }
}

async fn a_lost_lock_gives_none(flavour: MyFlavour) {
    let site = Site::shared(flavour);
    let lock = site.engine.take_lock(&site.namespace(), LONG).await.unwrap();
    let holder = lock.backend().pid.cast_unsigned();
    site.sql(&format!("KILL {holder}"));
    site.gone(holder);
    let refused =
        site.engine.mark_boundary(&site.namespace(), OperationId::fresh(), Revision(1)).await;
    assert!(refused.is_err(), "{refused:?}");
    drop(lock);
}

async fn without_a_log_there_is_none_and_the_fence_can_be_proven(flavour: MyFlavour) {
    let off = match flavour {
        MyFlavour::MySql => ("disable_log_bin", "1"),
        MyFlavour::MariaDb => ("skip_log_bin", "1"),
    };
    let cluster = own(flavour, &[off]);
    let site = Site::new(&cluster);
    assert_eq!(read(&site).await, (LogPosition::Off, false));
    let lock = site.engine.take_lock(&site.namespace(), LONG).await.unwrap();
    assert_eq!(read(&site).await, (LogPosition::Off, true));
    lock.release().await.unwrap();
    if flavour == MyFlavour::MySql {
        let cluster = own(flavour, &[("gtid_mode", "OFF"), ("enforce_gtid_consistency", "OFF")]);
        let site = Site::new(&cluster);
        let mut client = site.client();
        let (first, _) = read(&site).await;
        assert!(matches!(&first, LogPosition::Binlog(at) if at.contains(':')), "{first:?}");
        client.query("INSERT INTO t VALUES (1)").ok();
        assert_ne!(read(&site).await.0, first, "thread {}", thread(&client));
    }
}
