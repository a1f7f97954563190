//! The checks that every surface makes before a command reaches `control`.
//!
//! Purpose: HTTP and the consoles refuse the same things for the same reasons: the feature is off,
//! no admin key is configured, there is no such engine. Pure but for what it asks of `control`.
//! Callers: `admin/http/fences.rs`, `admin/console`. Who holds the admin key is `admin/auth.rs`'s.

use crate::admin::auth::AdminKey;
use crate::base::ids::Namespace;
use crate::control::Control;

/// Why no command can be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Closed {
    /// `[fence] enabled = false`.
    #[error("the fence feature is off ([fence] enabled = false); existing fences are enforced")]
    Off,
    /// There is no admin key.
    #[error("no admin key is configured, so command routes are off; set [admin] key_file")]
    NoKey,
    /// The namespace is on an engine that isn't configured, and has no fence; what to say of it.
    #[error("{0}")]
    NoEngine(String),
}

/// Whether the feature is on.
pub(super) fn is_on(control: &Control) -> Result<(), Closed> {
    if control.capabilities().enabled { Ok(()) } else { Err(Closed::Off) }
}

/// Whether a namespace may be commanded at all, the feature being on.
pub(super) fn may_command(
    control: &Control,
    key: Option<&AdminKey>,
    namespace: &Namespace,
) -> Result<(), Closed> {
    if key.is_none() {
        return Err(Closed::NoKey);
    }
    if control.engine_of(namespace).is_none() && !control.has_fence_state(namespace) {
        return Err(Closed::NoEngine(control.no_engine(namespace).to_string()));
    }
    Ok(())
}

/// Whether `given` is the adoption key. Nobody has it where none is configured.
pub(super) fn is_second_key(key: Option<&AdminKey>, given: Option<&[u8]>) -> bool {
    match (key, given) {
        (Some(key), Some(given)) => key.is(given),
        (Some(_) | None, _) => false,
    }
}
