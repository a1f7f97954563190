//! What every protocol's relay needs.

pub mod denials;
pub(crate) mod desk;
pub mod listener;
pub(crate) mod waiting;
pub mod workers;
