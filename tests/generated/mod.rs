//! Generated ways around a write fence.
//!
//! Purpose: [`case`] makes one case from one number: an entry of [`atoms`], something around it
//! ([`wraps`]), a spelling ([`spelling`]), and a [`positions::Position`] it is tried from.
//! [`stage::Stage`] plays cases without a fence and under one, and asks the engine what changed.
//!
//! Invariants: a number always makes the same case; a case is judged only by what the engine shows
//! and by the codes that came.
//!
//! Who uses it: `tests/generated_pg.rs`.

#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

pub mod atoms;
pub mod positions;
pub mod spelling;
pub mod stage;
pub mod wraps;

use std::fmt::Write as _;

use atoms::{ATOMS, Atom};
use positions::Position;

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

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// Some bytes, and how many answers end what comes back.
#[derive(Clone)]
pub struct Step {
    pub bytes: Vec<u8>,
    pub ready: usize,
}

impl Step {
    pub fn new(bytes: Vec<u8>, ready: usize) -> Self {
        Self { bytes, ready }
    }

    fn and(mut self, more: Vec<u8>) -> Self {
        self.bytes.extend(more);
        self
    }
}

/// One case.
pub struct Case {
    pub seed: u64,
    pub atom: &'static Atom,
    pub position: Position,
    /// Run beforehand by the owner of the database.
    pub setup: Vec<String>,
    /// Startup parameters.
    pub startup: Vec<(String, String)>,
    /// The session acts as `app`, who is no superuser.
    pub role: bool,
    /// The session begins behind the fence.
    pub fresh: bool,
    pub before: Vec<Step>,
    pub attack: Vec<Step>,
    /// A FunctionCall at the end of the attack.
    pub call: Option<(&'static str, &'static [&'static str])>,
}

impl Case {
    fn empty(seed: u64, atom: &'static Atom, position: Position) -> Self {
        Self {
            seed,
            atom,
            position,
            setup: Vec::new(),
            startup: Vec::new(),
            role: false,
            fresh: false,
            before: Vec::new(),
            attack: Vec::new(),
            call: None,
        }
    }

    /// What a person needs to see of it.
    pub fn told(&self) -> String {
        let mut out = format!("{:?}, {:?}", self.position, self.atom.form);
        if self.role {
            out.push_str(", as app");
        }
        for (name, value) in &self.startup {
            write!(out, ", {name}={value}").unwrap();
        }
        for sql in &self.setup {
            write!(out, "\n    made: {sql}").unwrap();
        }
        for (what, steps) in [("before", &self.before), ("attack", &self.attack)] {
            for step in steps {
                write!(out, "\n    {what}: {}", step.bytes.escape_ascii()).unwrap();
            }
        }
        out
    }
}

/// The case of a number: the position and the entry are a part of it, so that a run of numbers
/// meets every pair.
pub fn case(base: u64, number: usize) -> Option<Case> {
    let pair = number % (ATOMS.len() * Position::ALL.len());
    let atom = &ATOMS[pair % ATOMS.len()];
    let position = Position::ALL[(pair / ATOMS.len() + pair % ATOMS.len()) % Position::ALL.len()];
    let seed = Dice::new(base ^ (number as u64).wrapping_mul(0x2545_f491_4f6c_dd1d)).roll();
    positions::made(seed, number, atom, position)
}
