//! Control arms: one guard removed, so that a test can show that it would notice.
//!
//! Purpose: a test of a guard is worth what it reports without the guard. In debug builds
//! `FENCEWIRE_REMOVE` names guards, separated by commas, that the process then goes without, and
//! `tests/arms_pg.rs` (the classifier: `tests/generated_pg.rs`) and `tests/arms_mysql.rs` expect
//! violations of each. In release builds [`removed`] is a constant `false` and the variable is
//! never read.
//!
//! Callers: the one place of each guard. Nothing here decides what is lost without it.

/// A guard that can be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removable {
    /// The second reading of the gate's word, after a lease was published.
    LeaseRecheck,
    /// A lease ends only by an observed release: without it, the end of the session will do.
    ObservedRelease,
    /// What the engine says about transactions that are open.
    Census,
    /// What the engine says about prepared transactions.
    PreparedCheck,
    /// The injected read-only setting.
    ReadOnlyGuard,
    /// The locks on the namespace's tables.
    EngineLock,
    /// A transaction of an older generation never becomes a writer.
    GenerationCheck,
    /// What the text of a statement shows: without it every program is a read.
    Classifier,
    /// What was held at a closed gate is judged again before it goes on.
    HeldJudgement,
    /// Backends of our own that a broken link left behind on the engine are ended.
    EndStrays,
    /// What still reads when a read drain's time is over is cancelled.
    ReadCancel,
}

impl Removable {
    /// Each of them.
    pub const ALL: [Self; 11] = [
        Self::LeaseRecheck,
        Self::ObservedRelease,
        Self::Census,
        Self::PreparedCheck,
        Self::ReadOnlyGuard,
        Self::EngineLock,
        Self::GenerationCheck,
        Self::Classifier,
        Self::HeldJudgement,
        Self::EndStrays,
        Self::ReadCancel,
    ];

    /// Its name in `FENCEWIRE_REMOVE`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LeaseRecheck => "lease-recheck",
            Self::ObservedRelease => "observed-release",
            Self::Census => "census",
            Self::PreparedCheck => "prepared-check",
            Self::ReadOnlyGuard => "read-only-guard",
            Self::EngineLock => "engine-lock",
            Self::GenerationCheck => "generation-check",
            Self::Classifier => "classifier",
            Self::HeldJudgement => "held-judgement",
            Self::EndStrays => "end-strays",
            Self::ReadCancel => "read-cancel",
        }
    }

    #[cfg(debug_assertions)]
    const fn bit(self) -> u32 {
        1 << (self as u8)
    }
}

/// Whether this process goes without the guard.
#[cfg(not(debug_assertions))]
#[inline(always)]
#[must_use]
pub const fn removed(_guard: Removable) -> bool {
    false
}

/// Whether this process goes without the guard.
#[cfg(debug_assertions)]
#[must_use]
pub fn removed(guard: Removable) -> bool {
    *armed::REMOVED & guard.bit() != 0
}

#[cfg(debug_assertions)]
mod armed {
    use std::sync::LazyLock;

    use super::Removable;

    /// Reads the variable's text. A name that nobody knows is a mistake in a test.
    pub(super) fn parse(text: &str) -> Result<u32, String> {
        let mut bits = 0;
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let known = Removable::ALL.into_iter().find(|guard| guard.name() == name);
            bits |= known.ok_or_else(|| format!("FENCEWIRE_REMOVE: no guard {name:?}"))?.bit();
        }
        Ok(bits)
    }

    #[expect(clippy::panic, reason = "debug builds only: a test that asks for nonsense must stop")]
    pub(super) static REMOVED: LazyLock<u32> = LazyLock::new(|| {
        let text = std::env::var("FENCEWIRE_REMOVE").unwrap_or_default();
        parse(&text).unwrap_or_else(|error| panic!("{error}"))
    });

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn each_name_is_a_bit_of_its_own_and_nonsense_is_reported() {
            let mut seen = 0;
            for guard in Removable::ALL {
                let bits = parse(guard.name()).unwrap();
                assert_eq!((bits.count_ones(), bits & seen), (1, 0), "{guard:?}");
                seen |= bits;
            }
            assert_eq!(parse("census, prepared-check").unwrap().count_ones(), 2);
            assert_eq!(parse("").unwrap(), 0);
            assert!(parse("everything").unwrap_err().contains("no guard"));
        }

        #[test]
        fn nothing_is_removed_unless_asked() {
            assert!(Removable::ALL.into_iter().all(|guard| !super::super::removed(guard)));
        }
    }
}
