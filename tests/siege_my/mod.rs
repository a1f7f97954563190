//! A siege of a write fence on MariaDB and MySQL: random sessions, with the real engine as oracle.
//!
//! Purpose: what hostile readers of the wire do by hand, done by dice. Sessions walk at random over
//! commands ([`session`]) whose texts are composed by a grammar ([`texts`]); meanwhile the schema
//! `d` is fenced and released ([`stage`]). Behind an acknowledged fence nothing in `d` may change:
//! the engine is asked behind every single step.
//!
//! Invariants: a campaign is made by its seed alone, step by step in one thread; what is judged is
//! what the engine shows, never what an answer says.
//!
//! What is left out of the alphabet, since `docs/CONTRACT.md` names it as a limit:
//! - routines, views, triggers, foreign keys, defaults and MERGE tables of `a` that reach `d` (what
//!   a view, trigger, foreign key, stored function or procedure reaches isn't named);
//! - functions that write to sequences or MyISAM tables, in transactions from before the fence
//!   (tables without transactions don't take part in the guard's savepoints), and whatever draws
//!   from them while a text is prepared, with the gate open (it isn't among the leases);
//! - the scheduler's events, KILL by number, sessions around the proxy, commands of privileged
//!   accounts, and a fence of a schema that nobody has come to.
//!
//! Who uses it: `tests/siege_mysql.rs`.

#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

pub mod session;
pub mod stage;
pub mod texts;

/// Numbers that follow from a seed (SplitMix64).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.roll() % end as u64).unwrap()
    }

    /// True this many times in a hundred.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// Pieces as one text.
pub fn cat(pieces: &[&[u8]]) -> Vec<u8> {
    pieces.concat()
}
