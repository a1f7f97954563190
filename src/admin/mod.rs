//! L4: the operator-facing surface.
//!
//! Purpose: commands and questions about fences from outside the data path: who may ask
//! ([`auth`]), what is shown ([`view`]), the HTTP API ([`http`]) and the SQL consoles
//! ([`console`]). Called by `app`. It reaches fences only through `control`.
//! (see docs/ARCHITECTURE.md)

mod accept;
pub mod auth;
pub mod console;
mod door;
pub mod http;
mod literals;
pub mod view;
