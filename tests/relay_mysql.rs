//! Transparency: what a client receives through the proxy is what the engine sends.
//!
//! A corpus of raw conversations runs directly and through the proxy, packet by packet with their
//! sequence numbers, on MariaDB and on MySQL (W22, W24). Only what must differ is masked: nonces,
//! connection numbers, the names of the two databases, times. How clients log in over TLS on either
//! side, and what is said when there is no session, have tests of their own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod relay_my;
mod support;

use std::time::Instant;

use relay_my::{Case, Talk};
use support::{Engine, MyCluster, MyFlavour, MyOptions, Proxy, ProxyOptions};

/// Compares the corpus on a server of this flavour with what comes through the proxy.
///
/// `FENCEWIRE_TALK` narrows it to the conversations whose name has that in it.
fn the_corpus_is_the_same_on(flavour: MyFlavour) {
    let options = MyOptions {
        tls: true,
        settings: vec![("max_allowed_packet".into(), "64M".into())],
        ..MyOptions::default()
    };
    let cluster = &MyCluster::start(flavour, options);
    let engines = vec![Engine::my_plain("old", cluster)];
    let options = ProxyOptions { engines, client_tls: "allow".into(), ..ProxyOptions::default() };
    let proxy = &Proxy::start_with(options);
    // Names of one length, so that masking them leaves lengths alone.
    let (here, there) = ("talk_a", "talk_b");
    for db in [here, there] {
        cluster.create_db(db);
        relay_my::prepare(cluster, db);
    }
    let only = std::env::var("FENCEWIRE_TALK").unwrap_or_default();
    let mut differing = Vec::new();
    let mut played = 0;
    for case in relay_my::corpus(flavour) {
        let began = Instant::now();
        if !case.name.contains(&only) {
            continue;
        }
        played += 1;
        // At the same time: most of a conversation is waiting.
        let (expected, seen) = std::thread::scope(|scope| {
            let other = scope.spawn(|| Talk::record(flavour, cluster.port(), here, &case));
            let seen = Talk::record(flavour, proxy.port(), there, &case);
            (other.join().unwrap(), seen)
        });
        let name = &case.name;
        assert!(!expected.is_empty(), "{name} says nothing");
        if let Some(unheard) = expected.iter().find(|heard| heard.starts_with('?')) {
            differing.push(format!("{name}: the engine itself doesn't do that: {unheard}"));
        }
        if !only.is_empty() {
            eprintln!("{name}: {:?}, {} packets", began.elapsed(), expected.len());
            for heard in &expected {
                eprintln!("    {heard}");
            }
        }
        if expected != seen {
            let at = expected.iter().zip(&seen).position(|(a, b)| a != b);
            let at = at.unwrap_or(expected.len().min(seen.len()));
            differing.push(format!(
                "{name}, packet {at}:\n  directly {:?}\n  through  {:?}",
                expected.get(at),
                seen.get(at)
            ));
        }
    }
    eprintln!("{played} conversations on {}", flavour.name());
    let count = differing.len();
    assert!(count == 0, "on {}, {count} differ:\n{}", flavour.name(), differing.join("\n"));
}

#[test]
fn two_hundred_conversations_are_the_same_on_mariadb() {
    the_corpus_is_the_same_on(MyFlavour::MariaDb);
}

#[test]
fn two_hundred_conversations_are_the_same_on_mysql() {
    the_corpus_is_the_same_on(MyFlavour::MySql);
}

#[test]
fn the_corpus_has_two_hundred_conversations() {
    for flavour in MyFlavour::ALL {
        let cases = relay_my::corpus(flavour);
        let names: std::collections::BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
        assert_eq!(names.len(), cases.len(), "two conversations of one name");
        assert!(cases.len() >= 200, "{} conversations on {}", cases.len(), flavour.name());
    }
}

/// The comparison notices a difference: a control arm for the corpus itself.
#[test]
fn a_conversation_that_differs_is_noticed() {
    let cluster = MyCluster::shared(MyFlavour::MariaDb);
    let db = cluster.fresh_db();
    relay_my::prepare(cluster, &db);
    let record = |sql: &'static str| {
        let case = Case::new("control", move |talk: &mut Talk| talk.ask(&[sql]));
        Talk::record(MyFlavour::MariaDb, cluster.port(), &db, &case)
    };
    assert_eq!(record("SELECT 1"), record("SELECT 1"));
    assert_ne!(record("SELECT 1"), record("SELECT 2"));
    assert_ne!(record("SELECT 1"), record("BEGIN"));
}
