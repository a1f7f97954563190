//! The PostgreSQL relay.
pub(crate) mod frame;
pub(crate) mod owed;
pub(crate) mod prepared;
pub(crate) mod refusal;
