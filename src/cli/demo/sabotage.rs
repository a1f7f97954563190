//! Control arms of the demo as a whole.
//!
//! Purpose: a demo that can only succeed proves nothing. In debug builds the variable
//! `FENCEWIRE_DEMO_SABOTAGE` spoils one thing, and the demo must then say what was violated and end
//! with code 1; `tests/demo.rs` runs each of them. Release builds don't read it.
//!
//! Called by `play.rs`.

/// What is spoilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(debug_assertions), allow(dead_code, reason = "made in debug builds only"))]
pub(super) enum Sabotage {
    /// Nothing.
    None,
    /// The fence is released again behind the play's back, as soon as it stands.
    OpenGate,
    /// The engine lock is off, so that a direct session can write behind the boundary.
    NoEngineLock,
    /// A transfer counts as acknowledged that nobody wrote.
    LostAcknowledgement,
}

impl Sabotage {
    #[cfg(debug_assertions)]
    pub(super) fn wanted(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        match variable("FENCEWIRE_DEMO_SABOTAGE").as_deref() {
            Some("open-gate") => Self::OpenGate,
            Some("no-engine-lock") => Self::NoEngineLock,
            Some("lost-acknowledgement") => Self::LostAcknowledgement,
            Some(_) | None => Self::None,
        }
    }

    #[cfg(not(debug_assertions))]
    pub(super) const fn wanted(_variable: &dyn Fn(&str) -> Option<String>) -> Self {
        Self::None
    }
}
