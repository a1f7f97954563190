//! The proof of a drain: three pieces of evidence that speak of one thing.
//!
//! Purpose: a drain is believed when the gate saw every lease end, the engine said that nothing
//! else is left, before and after, and a log position was read in between, all of the same
//! namespace, generation, engine and timeline. [`DrainProof::assemble`] is the only way to get a
//! proof, and asserts exactly that; [`DrainProof::check_loaded`] asserts it again on what was
//! stored.
//!
//! Invariant 8: a proof comes from evidence of one gate and one generation.
//!
//! Callers: `control` assembles (it takes the gate's and the engine's own witnesses by value and
//! hands their claims here); `FenceRecord::check` checks on load. Elapsed time is no argument of
//! anything here.

use crate::base::ids::{Generation, Namespace};

use super::record::{
    Boundary, Census, EngineLock, Evidence, FenceRecord, Forced, Identity, Releases,
};
use super::state::Role;

/// What the gate claims: no lease at or below `generation` is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainedClaim {
    /// Whose gate.
    pub namespace: Namespace,
    /// The generation whose closing was drained.
    pub generation: Generation,
    /// How the leases ended.
    pub releases: Releases,
    /// What had to be forced for it.
    pub forced: Vec<Forced>,
}

/// What the engine claims: nothing that began earlier can still commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CensusClaim {
    /// Which database was asked about.
    pub namespace: Namespace,
    /// The gate's generation when the first census began.
    pub generation: Generation,
    /// The database that answered both times, as its engine identified it.
    pub identity: Identity,
    /// Before the boundary.
    pub before: Census,
    /// After the boundary.
    pub after: Census,
    /// Idle sessions around the proxy, one description each.
    pub direct_sessions: Vec<String>,
    /// What came of the engine's own locks.
    pub engine_lock: EngineLock,
    /// Tables whose engine has no transactions.
    pub non_transactional_tables: Vec<String>,
}

/// What the log claims: its position between the two censuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundaryClaim {
    /// Which database it was read for.
    pub namespace: Namespace,
    /// The gate's generation when it was read.
    pub generation: Generation,
    /// The position, with the engine and timeline that gave it.
    pub boundary: Boundary,
}

/// Why evidence isn't a proof. Always a fault of ours or a changed engine, never of a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The pieces are of different things.
    #[error(
        "the drain of {namespace} is not proven: {piece} speaks of {found}, the gate of \
         {expected}; replay the command"
    )]
    Mismatch {
        /// Whose drain.
        namespace: Namespace,
        /// Which piece, and which of its claims.
        piece: &'static str,
        /// What it says.
        found: String,
        /// What it should have said.
        expected: String,
    },
    /// A census that found something can't be part of a proof.
    #[error(
        "the drain of {namespace} is not proven: the census {when} the boundary still found \
         {prepared} prepared, {orphans} orphaned, {writers} writing; replay the command"
    )]
    NotClear {
        /// Whose drain.
        namespace: Namespace,
        /// `before` or `after`.
        when: &'static str,
        /// Prepared transactions.
        prepared: u64,
        /// Orphans.
        orphans: u64,
        /// Writers.
        writers: u64,
    },
}

/// A proven drain. Not `Clone`: one proof completes one drain.
#[derive(Debug, PartialEq, Eq)]
pub struct DrainProof {
    namespace: Namespace,
    identity: Identity,
    evidence: Evidence,
}

impl DrainProof {
    /// Puts the three pieces together.
    ///
    /// # Errors
    /// [`ProofError::Mismatch`] when they don't speak of the same namespace, generation, engine
    /// and timeline; [`ProofError::NotClear`] when a census found something.
    pub fn assemble(
        drained: DrainedClaim,
        census: CensusClaim,
        boundary: BoundaryClaim,
        proven_at_ms: u64,
    ) -> Result<Self, ProofError> {
        let namespace = drained.namespace;
        let same = |piece, found: String, expected: String| {
            if found == expected {
                Ok(())
            } else {
                let namespace = namespace.clone();
                Err(ProofError::Mismatch { namespace, piece, found, expected })
            }
        };
        let position = &boundary.boundary;
        same("the census (namespace)", census.namespace.to_string(), namespace.to_string())?;
        same("the boundary (namespace)", boundary.namespace.to_string(), namespace.to_string())?;
        let generation = drained.generation;
        same("the census (generation)", census.generation.to_string(), generation.to_string())?;
        same("the boundary (generation)", boundary.generation.to_string(), generation.to_string())?;
        same(
            "the boundary (engine)",
            position.engine_id.clone(),
            census.identity.engine_id.clone(),
        )?;
        same(
            "the boundary (timeline)",
            timeline_text(position.timeline),
            timeline_text(census.identity.timeline),
        )?;
        must_be_clear(&namespace, "before", &census.before)?;
        must_be_clear(&namespace, "after", &census.after)?;
        let evidence = Evidence {
            generation,
            releases: drained.releases,
            forced: drained.forced,
            census_before: census.before,
            census_after: census.after,
            direct_sessions: census.direct_sessions,
            engine_lock: census.engine_lock,
            non_transactional_tables: census.non_transactional_tables,
            boundary: boundary.boundary,
            proven_at_ms,
        };
        Ok(Self { namespace, identity: census.identity, evidence })
    }

    /// Checks stored evidence against the record it came with.
    ///
    /// # Errors
    /// [`ProofError`] when the boundary isn't the evidence's own, is of another engine or timeline
    /// than the source was acquired on, or a census wasn't clear.
    pub fn check_loaded(record: &FenceRecord, evidence: &Evidence) -> Result<(), ProofError> {
        let namespace = &record.namespace;
        must_be_clear(namespace, "before", &evidence.census_before)?;
        must_be_clear(namespace, "after", &evidence.census_after)?;
        let mismatch = |piece, found: String, expected: String| {
            Err(ProofError::Mismatch { namespace: namespace.clone(), piece, found, expected })
        };
        match record.role {
            Role::Source => {
                if record.frozen_boundary.as_ref() != Some(&evidence.boundary) {
                    let found = format!("{:?}", record.frozen_boundary);
                    let expected = format!("{:?}", evidence.boundary);
                    return mismatch("the stored boundary", found, expected);
                }
            }
            Role::Target => {
                if record.frozen_boundary.is_some() {
                    let found = "a target's boundary".to_owned();
                    return mismatch("the stored boundary", found, "none".to_owned());
                }
            }
        }
        let Some(identity) = &record.identity else {
            return Ok(());
        };
        let (engine_id, timeline) = (&evidence.boundary.engine_id, evidence.boundary.timeline);
        if identity.engine_id != *engine_id {
            let expected = identity.engine_id.clone();
            return mismatch("the stored boundary (engine)", engine_id.clone(), expected);
        }
        if identity.timeline.is_some() && identity.timeline != timeline {
            let (found, expected) = (timeline_text(timeline), timeline_text(identity.timeline));
            return mismatch("the stored boundary (timeline)", found, expected);
        }
        Ok(())
    }

    /// Whose drain.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The database that it was proven on.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What it rests on.
    #[must_use]
    pub const fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// Takes the evidence out, to be stored with the record.
    #[must_use]
    pub fn into_evidence(self) -> Evidence {
        self.evidence
    }
}

fn timeline_text(timeline: Option<u32>) -> String {
    timeline.map_or_else(|| "no timeline".to_owned(), |number| number.to_string())
}

fn must_be_clear(
    namespace: &Namespace,
    when: &'static str,
    census: &Census,
) -> Result<(), ProofError> {
    if census.is_clear() {
        return Ok(());
    }
    Err(ProofError::NotClear {
        namespace: namespace.clone(),
        when,
        prepared: census.prepared,
        orphans: census.orphans,
        writers: census.writers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::sample;
    use crate::fence::state::FenceState;

    type Spoil<'a> = &'a dyn Fn(&mut Pieces);
    type Pieces = (DrainedClaim, CensusClaim, BoundaryClaim);

    fn assemble(edit: impl FnOnce(&mut Pieces)) -> Result<DrainProof, ProofError> {
        let ns = sample::namespace();
        let mut pieces = (sample::drained(&ns), sample::census(&ns), sample::boundary_claim(&ns));
        edit(&mut pieces);
        DrainProof::assemble(pieces.0, pieces.1, pieces.2, sample::NOW_MS)
    }

    #[test]
    fn pieces_of_one_drain_make_a_proof() {
        let proof = assemble(|_| ()).unwrap();
        assert_eq!(proof.namespace(), &sample::namespace());
        assert_eq!(proof.evidence().generation, Generation(7));
        assert_eq!(proof.evidence().boundary, sample::boundary());
    }

    #[test]
    fn pieces_of_different_things_do_not() {
        let other = || Namespace::parse("old/other").unwrap();
        let spoils: [(&str, Spoil<'_>); 8] = [
            ("the census (namespace)", &|p| p.1.namespace = other()),
            ("the boundary (namespace)", &|p| p.2.namespace = other()),
            ("the census (namespace)", &|p| p.0.namespace = other()),
            ("the census (generation)", &|p| p.1.generation = Generation(6)),
            ("the boundary (generation)", &|p| p.2.generation = Generation(8)),
            ("the boundary (engine)", &|p| p.2.boundary.engine_id.push('9')),
            ("the boundary (timeline)", &|p| p.2.boundary.timeline = Some(2)),
            ("the boundary (timeline)", &|p| p.1.identity.timeline = None),
        ];
        for (expected, spoil) in spoils {
            match assemble(spoil) {
                Err(ProofError::Mismatch { piece, .. }) => assert_eq!(piece, expected),
                other => panic!("{expected}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_census_that_found_something_does_not_prove() {
        let spoils: [&dyn Fn(&mut Pieces); 6] = [
            &|p| p.1.before.prepared = 1,
            &|p| p.1.before.orphans = 1,
            &|p| p.1.before.writers = 1,
            &|p| p.1.after.prepared = 1,
            &|p| p.1.after.orphans = 1,
            &|p| p.1.after.writers = 1,
        ];
        for spoil in spoils {
            assert!(matches!(assemble(spoil), Err(ProofError::NotClear { .. })));
        }
    }

    #[test]
    fn a_stored_proof_is_checked_again() {
        let sound = sample::record(FenceState::SourceWriteFenced);
        let spoils: [&dyn Fn(&mut FenceRecord); 6] = [
            &|r| r.frozen_boundary = None,
            &|r| r.frozen_boundary.as_mut().unwrap().value.push('0'),
            &|r| r.identity.as_mut().unwrap().engine_id.push('0'),
            &|r| r.identity.as_mut().unwrap().timeline = Some(2),
            &|r| r.evidence.as_mut().unwrap().census_after.writers = 1,
            &|r| r.evidence = None,
        ];
        for spoil in spoils {
            let mut record = sound.clone();
            spoil(&mut record);
            assert!(record.check().is_err(), "{record:?}");
        }
    }
}
