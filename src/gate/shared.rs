//! The two kinds of words of the handshake between sessions and drains.
//!
//! Purpose: a gate's word and a slot's lease are all that a session and a closing gate say to each
//! other (`gate/admission.rs`). Both are sequentially consistent, and both go through this type, so
//! that `gate/schedules.rs` can have loom try every schedule of the real code (`make test` builds
//! the library's tests once more for it, with the feature `loom`).
//!
//! Used by `gate/registry.rs` and `gate/slot.rs`. Nothing else is modelled: locks and
//! notifications are the system's own in both builds.

#[cfg(feature = "loom")]
pub(super) use modelled::{SharedWord, spin};

#[cfg(not(feature = "loom"))]
pub(super) use real::{SharedWord, spin};

#[cfg(not(feature = "loom"))]
mod real {
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A word that several threads read and write, in one order that all of them see.
    #[derive(Debug)]
    pub(in crate::gate) struct SharedWord(AtomicU64);

    impl SharedWord {
        pub(in crate::gate) const fn new(value: u64) -> Self {
            Self(AtomicU64::new(value))
        }

        pub(in crate::gate) fn load(&self) -> u64 {
            self.0.load(Ordering::SeqCst)
        }

        pub(in crate::gate) fn store(&self, value: u64) {
            self.0.store(value, Ordering::SeqCst);
        }
    }

    /// Waits a moment for another thread's next step.
    pub(in crate::gate) fn spin() {
        std::hint::spin_loop();
    }
}

#[cfg(feature = "loom")]
mod modelled {
    use loom::sync::atomic::{AtomicU64, Ordering, fence};

    /// Control arm: the words are only acquired and released, not in one order for all.
    #[cfg(test)]
    pub(in crate::gate) static UNORDERED: std::sync::atomic::AtomicBool =
        std::sync::atomic::AtomicBool::new(false);

    /// Whether the model's words go without the fences.
    fn unordered() -> bool {
        #[cfg(test)]
        return UNORDERED.load(Ordering::SeqCst);
        #[cfg(not(test))]
        false
    }

    /// As the real one. Loom takes a sequentially consistent load or store for an acquiring or
    /// releasing one, and models the order among them only for fences; so it is spelled with
    /// fences, as compilers spell it where the machine has nothing better.
    #[derive(Debug)]
    pub(in crate::gate) struct SharedWord(AtomicU64);

    impl SharedWord {
        pub(in crate::gate) fn new(value: u64) -> Self {
            Self(AtomicU64::new(value))
        }

        pub(in crate::gate) fn load(&self) -> u64 {
            if !unordered() {
                fence(Ordering::SeqCst);
            }
            self.0.load(Ordering::Acquire)
        }

        pub(in crate::gate) fn store(&self, value: u64) {
            self.0.store(value, Ordering::Release);
            if !unordered() {
                fence(Ordering::SeqCst);
            }
        }
    }

    /// Lets another thread take its next step.
    pub(in crate::gate) fn spin() {
        loom::thread::yield_now();
    }
}

#[cfg(all(test, feature = "loom"))]
pub(super) use modelled::UNORDERED;
