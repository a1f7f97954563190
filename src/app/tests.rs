//! The composition root: what a start begins with, and what a stop leaves behind.

use super::*;
use crate::base::ids::SessionId;
use crate::config::Flags;
use crate::fence::record::InFlight;
use crate::fence::verdict::Overlay;
use crate::gate::admission::Seat;
use crate::gate::slot::Card;
use crate::sql::StatementClass;

#[test]
fn invariant_05_generations_fit_into_the_gates_word() {
    let folder = tempfile::tempdir().unwrap();
    let mut claimed = StateDir::claim(folder.path()).unwrap();
    let in_2100 = first_generation(&mut claimed, 4_102_444_800_000).unwrap();
    assert!(in_2100.0 < 1 << 56, "the gate's word has 56 bits for it");
}

/// A whole proxy, started and stopped; its engine isn't there, which neither needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invariant_13_stopping_leaves_every_gate_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let flags = Flags {
        listen: vec!["postgres://127.0.0.1:6432".to_owned()],
        engine: vec!["old=postgres://app:app@127.0.0.1:1/app".to_owned()],
        state_dir: Some(folder.path().join("state")),
        admin: Some("127.0.0.1:6480".to_owned()),
    };
    let mut config = Config::from_flags(&flags, &config::Machine).unwrap();
    let any_port = || config::ListenAddress::Tcp { host: "127.0.0.1".to_owned(), port: 0 };
    config.listens[0].address = any_port();
    config.admin.http = any_port();
    let control = ControlSettings::new(&config.proxy.instance);
    let app = App::start(config, control).await.unwrap();
    let gates = Arc::clone(&app.gates);
    let gate = |name: &str| gates.gate(&Namespace::parse(name).unwrap());
    gate("old/fenced").overlay(Overlay::Installing, InFlight::Finish);
    gate("old/doubtful").overlay(Overlay::Indeterminate, InFlight::Refuse);
    gate("old/unknown").close_as_unknown();
    let words = || gates.all().iter().map(|gate| gate.word()).collect::<Vec<_>>();
    let before = words();
    app.stop().await;
    assert_eq!(words(), before, "VIOLATION: invariant 13: stopping moved a gate");
    for gate in gates.all() {
        let seat = Seat::take(gate, SessionId(1), Card::default());
        let admitted = seat.begin(StatementClass::Write, 0).is_ok();
        assert!(!admitted, "VIOLATION: invariant 13: a write behind the stop");
    }
}

#[cfg(debug_assertions)]
#[test]
fn invariant_13_a_stop_that_opens_gates_is_reported() {
    let check = "app::tests::invariant_13_stopping_leaves_every_gate_as_it_is";
    crate::base::arm::missed(check, &[("stop-leaves-gates", "invariant 13")]).unwrap();
}
