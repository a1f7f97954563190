//! Random sequences of all that can happen to one namespace's fence, beside a model of the
//! contract that was written from its text alone.
//!
//! `model.rs` is the contract, `world.rs` the real controller over a real store and real markers,
//! `steps.rs` what happens, `play.rs` plays it on both. Commands of sources and of targets come
//! right and wrong, once and again, from several operations; commits fail, land unheard or get
//! lost; creations come to nothing, to something, or nobody knows to what; callers go away, the
//! process dies, between two commands or in one; store and marker are lost, spoilt and put back;
//! sessions write, read and idle, import and validate by capabilities; the engine is busy, silent,
//! or another one. After each step the answer, the view, every receipt, every capability and what
//! the gate admits must be what the contract says: `VIOLATION` says where it isn't.
//! `FENCEWIRE_AGREEMENT_CASES` draws more, `FENCEWIRE_AGREEMENT_SEED` (up to 255) others.

mod model;
mod play;
mod steps;
mod world;

use std::cell::RefCell;

use model::Bug;
use play::{Seen, play};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use steps::{Step, steps};

use super::*;

type Sequence = (bool, Vec<Step>);

fn run(bug: Option<Bug>, cases: u32) -> Result<Seen, TestError<Sequence>> {
    let config = Config {
        cases,
        max_shrink_iters: if bug.is_some() { 0 } else { 400 },
        failure_persistence: None,
        ..Config::default()
    };
    let seed = std::env::var("FENCEWIRE_AGREEMENT_SEED").map_or(20, |text| text.parse().unwrap());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    // What only a target shows is looked for where one is made.
    let target = bug.is_some_and(Bug::is_of_targets);
    let exists = any::<bool>().prop_map(move |exists| exists && !target);
    let sequences = (exists, steps(if target { 9 } else { 4 }));
    let seen = RefCell::new(Seen::new());
    runner.run(&sequences, |(exists, steps)| {
        seen.borrow_mut().append(&mut play(exists, &steps, bug)?);
        Ok(())
    })?;
    Ok(seen.into_inner())
}

/// What the sequences must have met, so that agreement says something.
const MET: &[&str] = &[
    "UNFENCED ",
    "NOT_FOUND ",
    "SOURCE_DRAINING ",
    "SOURCE_WRITE_FENCED ",
    "SOURCE_READ_DRAINING ",
    "SOURCE_READ_FENCED ",
    "RELEASED ",
    "UNKNOWN_UNAVAILABLE metastore_behind_marker",
    "UNKNOWN_UNAVAILABLE corrupt_record",
    "AcquireSourceWriteFence APPLIED",
    "SetSourceReadFence APPLIED",
    "SetSourceReadFence DRAINING",
    "ClearSourceReadFence APPLIED",
    "ReleaseSourceWriteFence APPLIED",
    "ReleaseSourceWriteFence FENCE_OWNED_BY_ANOTHER_OPERATION",
    "AdoptFence APPLIED",
    "APPLIED  again",
    "ALREADY_APPLIED  ",
    "ALREADY_APPLIED  again",
    "DRAINING  ",
    "DRAINING  again",
    "FENCE_REVISION_MISMATCH  ",
    "FENCE_COMMAND_CONFLICT  ",
    "FENCE_COMMIT_INDETERMINATE indeterminate_commit ",
    "FENCE_STATE_UNAVAILABLE metastore_behind_marker ",
    "FENCE_STATE_UNAVAILABLE corrupt_record ",
    "FENCE_PRECONDITION_FAILED namespace_identity_mismatch ",
    "FENCE_PRECONDITION_FAILED adoption_not_authorised ",
    "INVALID_FENCE_TRANSITION  ",
    "INVALID_FENCE_TRANSITION operation_finished ",
    "INVALID_FENCE_TRANSITION role_mismatch ",
    "ERROR  ",
    "rise  ",
    "rise MIGRATION_WRITE_FENCED ",
    "rise MIGRATION_WRITE_FENCED stale_transaction",
    "rise FENCE_STATE_UNAVAILABLE ",
    "TARGET_QUARANTINED ",
    "TARGET_IMPORT_DRAINING ",
    "TARGET_VALIDATING ",
    "TARGET_WRITE_FENCED ",
    "TARGET_WRITABLE ",
    "TARGET_ABORTED ",
    "UNKNOWN_UNAVAILABLE incomplete_target_creation",
    "CreateTargetQuarantined APPLIED",
    "CreateTargetQuarantined ERROR",
    "CreateTargetQuarantined AT_WORK",
    "behind CreateTargetQuarantined APPLIED",
    "behind CreateTargetQuarantined ERROR",
    "SealTargetImport APPLIED",
    "SealTargetImport DRAINING",
    "RecordTargetValidation APPLIED",
    "RecordTargetValidation ERROR",
    "PublishTargetReadableWriteFenced APPLIED",
    "EnableTargetWrites APPLIED",
    "AbortQuarantinedTarget APPLIED",
    "FENCE_STATE_UNAVAILABLE incomplete_target_creation ",
    "FENCE_PRECONDITION_FAILED namespace_exists ",
    "FENCE_PRECONDITION_FAILED invalid_argument ",
    "FENCE_PRECONDITION_FAILED restore_not_allowed ",
    "FENCE_PRECONDITION_FAILED validation_receipt_required ",
    "DIED  ",
    "issue Import  ",
    "issue Validation  ",
    "issue Import OPERATION_CAPABILITY_REQUIRED ",
    "issue Import FENCE_OWNED_BY_ANOTHER_OPERATION ",
    "issue Import FENCE_REVISION_MISMATCH ",
    "issue Import FENCE_STATE_UNAVAILABLE indeterminate_commit",
    "issue Import FENCE_STATE_UNAVAILABLE incomplete_target_creation",
    "work Import ",
    "work Import OPERATION_CAPABILITY_REQUIRED",
    "work Validation ",
    "more Import write ",
    "question  ",
    "question OPERATION_CAPABILITY_REQUIRED ",
    "question FENCE_OWNED_BY_ANOTHER_OPERATION ",
    "question FENCE_REVISION_MISMATCH ",
    "answer ",
    "answer FENCE_REVISION_MISMATCH",
];

#[test]
fn acceptance_13_the_controller_and_the_contract_agree() {
    let cases = std::env::var("FENCEWIRE_AGREEMENT_CASES");
    let seen = match run(None, cases.map_or(150, |text| text.parse().unwrap())) {
        Ok(seen) => seen,
        Err(error) => panic!("{error}"),
    };
    let missed: Vec<_> = MET.iter().filter(|name| !seen.contains(**name)).collect();
    assert!(missed.is_empty(), "the sequences never met {missed:?}; they met {seen:#?}");
}

/// Plays each of these bugs until it is noticed.
fn notices(of_targets: bool) {
    // One alone: `FENCEWIRE_AGREEMENT_BUG`, by its name.
    let only = std::env::var("FENCEWIRE_AGREEMENT_BUG").ok();
    let chosen = |bug: &Bug| {
        bug.is_of_targets() == of_targets
            && only.as_ref().is_none_or(|only| format!("{bug:?}") == *only)
    };
    let played = Bug::ALL.into_iter().filter(chosen);
    let missed: Vec<Bug> = played.filter(|bug| run(Some(*bug), 600).is_ok()).collect();
    assert!(missed.is_empty(), "the sequences don't notice {missed:?}");
}

#[test]
fn a_contract_read_wrongly_is_noticed() {
    notices(false);
}

#[test]
fn a_contract_of_targets_read_wrongly_is_noticed() {
    notices(true);
}

/// The guards of the code, removed one by one.
#[cfg(debug_assertions)]
#[test]
fn a_controller_without_a_guard_is_noticed() {
    let check = "control::tests::agreement::acceptance_13_the_controller_and_the_contract_agree";
    let guards =
        ["commit-doubt", "generation-check", "capability-life", "target-overlay", "target-marker"];
    let guards = guards.map(|guard| (guard, "contract"));
    crate::base::arm::missed(check, &guards).unwrap();
}
