//! L4: the operator-facing surface.
//!
//! Purpose: commands and questions about fences from outside the data path: who may ask
//! ([`auth`]), what is shown ([`view`]), and the HTTP API ([`http`]). Called by `app`. It reaches
//! fences only through `control`. (see docs/ARCHITECTURE.md)

pub mod auth;
pub mod http;
mod literals;
pub mod view;
