//! What a FunctionCall may do: the functions by which libpq reads large objects only read.
//!
//! Purpose: pg_dump and `\lo_export` open and read large objects by FunctionCall, and a dump must
//! go on under a write fence. Every other function is a write: there is no text that could be
//! judged.
//! Invariants: a function is known by its OID, which PostgreSQL never changes for these (they are
//! below 10000, assigned by hand); what can't be read whole is a write.
//!
//! Called by `client.rs`, which still puts the read-only guard in front of what is a read.

use crate::sql::StatementClass;

/// How much of a body the decision needs, in bytes.
pub(super) const INSPECTED: usize = 32;

/// `lo_open(oid, int4)`.
const LO_OPEN: u32 = 952;

/// The flag of `lo_open` that asks for reading.
const INV_READ: u32 = 0x0004_0000;

/// `lo_close`, `loread`, `lo_lseek`, `lo_tell`, `lo_lseek64`, `lo_tell64`.
const READERS: [u32; 6] = [953, 954, 956, 958, 3170, 3171];

/// The class of a FunctionCall by the beginning of its body.
pub(super) fn class(body: &[u8]) -> StatementClass {
    let reads = match take4(body) {
        Some((LO_OPEN, rest)) => opens_for_reading(rest),
        Some((oid, _)) => READERS.contains(&oid),
        None => false,
    };
    if reads { StatementClass::Read } else { StatementClass::Write }
}

/// Binary arguments (told once, as libpq does, or for each, as the JDBC driver does); two of four
/// bytes, the second being `INV_READ` and nothing else.
fn opens_for_reading(rest: &[u8]) -> bool {
    let once = rest.strip_prefix(&[0, 1, 0, 1]);
    let Some(rest) = once.or_else(|| rest.strip_prefix(&[0, 2, 0, 1, 0, 1])) else { return false };
    let Some(rest) = rest.strip_prefix(&[0, 2, 0, 0, 0, 4]) else { return false };
    let Some((_object, rest)) = take4(rest) else { return false };
    let Some((4, rest)) = take4(rest) else { return false };
    matches!(take4(rest), Some((INV_READ, _)))
}

fn take4(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (four, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*four), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(oid: u32, rest: &[u8]) -> Vec<u8> {
        [&oid.to_be_bytes()[..], rest].concat()
    }

    fn open(mode: u32) -> Vec<u8> {
        let mut body = call(LO_OPEN, &[0, 1, 0, 1, 0, 2, 0, 0, 0, 4, 0, 0, 16, 146, 0, 0, 0, 4]);
        body.extend(mode.to_be_bytes());
        body.extend([0, 1]);
        body
    }

    #[test]
    fn reading_large_objects_is_a_read_and_nothing_else_is() {
        assert!(open(INV_READ).len() <= INSPECTED);
        assert_eq!(class(&open(INV_READ)), StatementClass::Read);
        let each = [&open(INV_READ)[..4], &[0, 2, 0, 1, 0, 1], &open(INV_READ)[8..]].concat();
        assert_eq!(class(&each), StatementClass::Read, "a format for each argument");
        for oid in READERS {
            assert_eq!(class(&call(oid, &[])), StatementClass::Read, "{oid}");
        }
        // INV_WRITE, both, lowrite, lo_create, nextval, and functions of somebody's own.
        for mode in [0x0002_0000, 0x0006_0000, 0, u32::MAX] {
            assert_eq!(class(&open(mode)), StatementClass::Write, "{mode:x}");
        }
        for oid in [955, 715, 957, 964, 1574, 16_500] {
            assert_eq!(class(&call(oid, &[])), StatementClass::Write, "{oid}");
        }
        let text = call(LO_OPEN, &[0, 0, 0, 2, 0, 0, 0, 4, b'4', b'2', b'4', b'2']);
        assert_eq!(class(&text), StatementClass::Write, "arguments as text");
        for length in 0..open(INV_READ).len() - 2 {
            assert_eq!(class(&open(INV_READ)[..length]), StatementClass::Write, "cut at {length}");
        }
    }
}
