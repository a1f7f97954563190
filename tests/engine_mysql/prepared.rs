//! Prepared XA branches: they outlive their session and the server, and table locks miss them.

use fencewire::engine::{ProxyView, Why};

use crate::site::{LONG, Site, own, thread};
use crate::support::{MyCluster, MyFlavour, MyOptions};

on_both!(
    a_branch_blocks_attached_and_detached_until_it_is_ended,
    a_branch_of_another_schema_blocks_where_that_cannot_be_shown,
    a_branch_blocks_after_a_crash_too,
);

fn prepare(site: &Site<'_>, xid: &str) -> crate::support::MyWire {
    let mut client = site.client();
    for verb in [
        &format!("XA START {xid}"),
        "INSERT INTO t VALUES (7)",
        &format!("XA END {xid}"),
        &format!("XA PREPARE {xid}"),
    ] {
        client.query(verb).ok();
    }
    client
}

async fn a_branch_blocks_attached_and_detached_until_it_is_ended(flavour: MyFlavour) {
    let cluster = own(flavour, &[]);
    let site = Site::new(&cluster);
    let cutoff = site.cutoff().await;
    let client = prepare(&site, "'left'");
    let blockers = site.census(&cutoff, &ProxyView::default()).await.unwrap_err();
    let branch = blockers.iter().find(|blocker| blocker.why == Why::Prepared).unwrap();
    assert_eq!((branch.object.as_deref(), branch.pid), (Some("'left'"), None));

    // Its session goes, the branch stays.
    let id = thread(&client);
    drop(client);
    site.gone(id);
    let whys = site.whys(&cutoff, &ProxyView::default()).await;
    assert_eq!(whys, [Why::Prepared]);
    site.sql("XA ROLLBACK 'left'");
    site.clear_at_last(&cutoff, &ProxyView::default()).await;

    // A name that isn't plain text is told in the form that XA COMMIT takes.
    let client = prepare(&site, "X'00FF',X'27',5");
    let blockers = site.census(&cutoff, &ProxyView::default()).await.unwrap_err();
    let branch = blockers.iter().find(|blocker| blocker.why == Why::Prepared).unwrap();
    let name = branch.object.clone().unwrap();
    assert_eq!(name, "X'00FF',X'27',5");
    drop(client);
    site.level("the branch can be ended", "SELECT 1");
    let ended = crate::support::poll(crate::site::PATIENCE, || {
        site.cluster.try_sql(&site.db, &format!("XA COMMIT {name}")).ok()
    });
    assert!(ended.is_some(), "the name doesn't work");
    site.clear_at_last(&cutoff, &ProxyView::default()).await;
    site.engine.take_lock(&site.namespace(), LONG).await.unwrap().release().await.unwrap();
}

async fn a_branch_of_another_schema_blocks_where_that_cannot_be_shown(flavour: MyFlavour) {
    let cluster = own(flavour, &[]);
    let (site, other) = (Site::new(&cluster), Site::new(&cluster));
    let cutoff = site.cutoff().await;
    let mut control = cluster_account(&cluster, flavour);
    let client = prepare(&other, "'theirs'");
    let id = thread(&client);
    drop(client);
    other.gone(id);
    match flavour {
        // Nothing tells whose it is.
        MyFlavour::MariaDb => {
            assert_eq!(site.whys(&cutoff, &ProxyView::default()).await, [Why::Prepared]);
        }
        // The engine's list of locks does.
        MyFlavour::MySql => {
            site.clear_at_last(&cutoff, &ProxyView::default()).await;
            let theirs = other.cutoff().await;
            assert_eq!(other.whys(&theirs, &ProxyView::default()).await, [Why::Prepared]);
        }
    }
    control.query("SELECT 1").ok();
    other.sql("XA ROLLBACK 'theirs'");
    site.clear_at_last(&cutoff, &ProxyView::default()).await;
}

fn cluster_account(cluster: &MyCluster, flavour: MyFlavour) -> crate::support::MyWire {
    assert_eq!(cluster.flavour(), flavour);
    crate::support::MyWire::connect(cluster.port(), "wire", "information_schema")
}

async fn a_branch_blocks_after_a_crash_too(flavour: MyFlavour) {
    let options = MyOptions { durable: true, ..MyOptions::default() };
    let mut cluster = MyCluster::start(flavour, options);
    let (engine, namespace, db) = {
        let site = Site::new(&cluster);
        drop(prepare(&site, "'left'"));
        (site.engine.clone(), site.namespace(), site.db.clone())
    };
    cluster.kill();
    cluster.start_again();
    let cutoff = engine.cutoff(&namespace).await.unwrap();
    let site = Site { cluster: &cluster, db, engine };
    assert_eq!(site.whys(&cutoff, &ProxyView::default()).await, [Why::Prepared]);
    site.sql("XA COMMIT 'left'");
    site.clear_at_last(&cutoff, &ProxyView::default()).await;
    assert_eq!(site.sql("SELECT n FROM t"), "7");
}
