//! Acceptance 22: which fences count as active.

use super::*;

#[tokio::test]
async fn acceptance_22_active_fences_are_all_that_take_something_away() {
    let rig = Rig::new().await;
    let active = |rig: &Rig| rig.control.capabilities().active_fences;
    assert_eq!(active(&rig), 0);
    let (_seat, lease) = rig.writer(1, 11);
    assert_eq!(code(&rig.run(at_once(1, 1)).await), ControlCode::Draining);
    assert_eq!(active(&rig), 1, "a drain counts");
    lease.answered();
    rig.run(at_once(1, 1)).await;
    assert_eq!(active(&rig), 1, "a fence counts");
    rig.run(release(1, 2, FenceState::SourceWriteFenced, 2)).await;
    assert_eq!(active(&rig), 0, "a released one doesn't");
}

#[tokio::test]
async fn acceptance_22_an_unknown_commit_is_active_though_nothing_is_fenced() {
    let rig = Rig::new().await;
    rig.store.plan_commits([CommitFault::UnknownNotCommitted]);
    assert_eq!(code(&rig.run(patient(1, 1)).await), ControlCode::CommitIndeterminate);
    assert_eq!(rig.gate().published().policy.state, FenceState::Unfenced);
    assert_eq!(rig.control.capabilities().active_fences, 1);
    rig.control.refresh_gauges();
    assert!(rig.metrics.encode().contains("\nfencewire_fence_active 1\n"));
}

#[tokio::test]
async fn acceptance_22_a_state_that_nobody_knows_is_active() {
    let rig = Rig::new().await;
    rig.run(patient(1, 1)).await;
    // The same markers over a store that has lost everything.
    let as_store: Arc<dyn FenceStore> = Arc::new(MemoryStore::new());
    let control = build(&RigParts {
        dir: rig.dir.path(),
        store: &as_store,
        engine: &rig.engine,
        metrics: &rig.metrics,
        clock: &rig.clock,
        settings: &rig.settings,
    });
    control.recover().await.unwrap();
    assert_eq!(control.capabilities().active_fences, 1);
    control.refresh_gauges();
    let text = rig.metrics.encode();
    let unknown = r#"fencewire_fence_namespaces{role="unknown",state="UNKNOWN_UNAVAILABLE"} 1"#;
    assert!(text.contains(unknown), "{text}");
}

/// Nothing ends an aborted target: an age that grows for ever would be an alert for ever.
#[tokio::test]
async fn an_aborted_target_is_active_and_has_no_age() {
    let rig = Rig::new().await;
    rig.engine.missing();
    rig.run(super::targets::create(1)).await;
    let age = |rig: &Rig| {
        rig.control.refresh_gauges();
        let text = rig.metrics.encode();
        let line = text.lines().find(|line| line.starts_with("fencewire_fence_oldest_active_age"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap()
    };
    rig.until("an age", |rig| age(rig) > 0.0).await;
    let abort = Command {
        expected_state: FenceState::TargetQuarantined,
        arguments: Arguments::AbortQuarantinedTarget,
        expected_revision: Revision(1),
        ..super::targets::create(2)
    };
    assert_eq!(code(&rig.run(abort).await), ControlCode::Applied);
    assert!(age(&rig) == 0.0, "{}", age(&rig));
    assert_eq!(rig.control.capabilities().active_fences, 1, "it still admits nothing");
}
