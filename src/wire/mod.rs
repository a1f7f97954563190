//! L4: client-facing relays. Bytes in, bytes out, and the rules W1 to W26 in between.
//!
//! `shared/` has what every protocol needs; `pg/` and `mysql/` never meet. Nothing here
//! knows the store or the admin side; admission is asked of `gate/`.

pub mod mysql;
pub mod pg;
pub mod shared;
