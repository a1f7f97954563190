//! The gate's one atomic word: generation and what is open, packed (wire.md W1).
//!
//! Purpose: every admission reads this word and nothing else while everything is open. Pure; used
//! by `gate/` only. Bits 0..8 are flags, bits 8..64 the generation (56 bits: a generation a
//! nanosecond lasts two years, and they move with commands, not with time).

use crate::base::ids::Generation;
use crate::fence::verdict::Policy;

/// New writes may begin.
const WRITES: u64 = 1;
/// Every class may begin: the fast path's one test.
const ALL: u64 = 1 << 1;
/// New reads may begin.
const READS: u64 = 1 << 2;
const GENERATION_SHIFT: u32 = 8;

/// One reading of the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word(pub(super) u64);

impl Word {
    /// Packs a policy under a generation.
    #[must_use]
    pub fn pack(generation: Generation, policy: &Policy) -> Self {
        let writes = if policy.writes_open() { WRITES } else { 0 };
        let all = if policy.all_open() { ALL } else { 0 };
        let reads = if policy.reads_open() { READS } else { 0 };
        Self((generation.0 << GENERATION_SHIFT) | writes | all | reads)
    }

    /// The generation in it.
    #[must_use]
    pub const fn generation(self) -> Generation {
        Generation(self.0 >> GENERATION_SHIFT)
    }

    /// Whether every class may begin.
    #[must_use]
    pub const fn all_open(self) -> bool {
        self.0 & ALL != 0
    }

    /// Whether new writes may begin.
    #[must_use]
    pub const fn writes_open(self) -> bool {
        self.0 & WRITES != 0
    }

    /// Whether new reads may begin.
    #[must_use]
    pub const fn reads_open(self) -> bool {
        self.0 & READS != 0
    }
}
