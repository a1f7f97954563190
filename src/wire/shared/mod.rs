//! What every protocol's relay needs.

pub mod accepted;
pub mod address;
pub(crate) mod capability;
pub mod denials;
pub(crate) mod desk;
pub mod directory;
pub(crate) mod forced;
#[cfg(test)]
pub(crate) mod idle;
pub mod listener;
pub mod outgoing;
pub(crate) mod patience;
pub(crate) mod peer;
pub mod sessions;
pub(crate) mod waiting;
pub mod workers;
