//! L0: names, bounds, time, secrets, fault points and control arms. No domain, no input or output.
//!
//! Every layer may import this one; it imports nothing of ours.

pub mod arm;
pub mod clock;
pub mod fault;
pub mod ids;
pub mod limits;
pub mod run;
pub mod secret;
