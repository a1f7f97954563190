//! L2: what the process says about itself: metrics, log lines, audit events, named tasks.
//!
//! Purpose: one place for every number and line that leaves the process. Other parts call these
//! functions with plain values; this module knows nothing of fences or engines beyond the names of
//! their labels. Called by every layer from L2 up. It does not serve `/metrics` (the admin surface
//! does) and it never lets a namespace, an operation or a caller become a label value.

pub mod audit;
pub mod changes;
pub mod labels;
pub mod metrics;
pub mod spawn;
pub mod table;
pub mod timer;
pub mod trace;
pub mod worker;
