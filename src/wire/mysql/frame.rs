//! Packet headers of the MySQL protocol: three bytes of length, one of sequence.
//!
//! Purpose: find where packets begin and end without looking at what the proxy has no reason to
//! understand (wire.md W22). A payload of 16 MiB less one byte goes on in the next packet, which
//! may be empty. Pure. Used by both directions of the relay, by the login and by what the proxy
//! says itself. It doesn't know what a command or an answer is.

use bytes::BytesMut;

/// Bytes of a header.
pub(crate) const HEADER: usize = 4;

/// The longest payload of one packet; one of exactly this length goes on in the next packet.
pub(crate) const PAYLOAD_MAX: usize = 0xff_ffff;

/// One packet's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Bytes of payload that follow.
    pub(crate) payload: usize,
    /// Its number within the command.
    pub(crate) sequence: u8,
}

impl Header {
    /// Whether the payload goes on in the next packet.
    pub(crate) const fn goes_on(self) -> bool {
        self.payload == PAYLOAD_MAX
    }
}

/// Reads a header, `None` when there are fewer than four bytes yet.
pub(crate) fn header(bytes: &[u8]) -> Option<Header> {
    let [a, b, c, sequence, ..] = *bytes else { return None };
    let payload = usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16;
    Some(Header { payload, sequence })
}

/// Appends a payload as one packet, or as several from 16 MiB on. Returns the next sequence.
pub(crate) fn put(out: &mut BytesMut, mut sequence: u8, payload: &[u8]) -> u8 {
    let mut rest = payload;
    loop {
        let (part, behind) = rest.split_at(rest.len().min(PAYLOAD_MAX));
        // At most PAYLOAD_MAX: three bytes hold it.
        let [a, b, c, ..] = part.len().to_le_bytes();
        out.extend_from_slice(&[a, b, c, sequence]);
        out.extend_from_slice(part);
        sequence = sequence.wrapping_add(1);
        rest = behind;
        if part.len() < PAYLOAD_MAX {
            return sequence;
        }
    }
}

/// Splits a NUL-terminated text off the front; `None` when there is no NUL.
pub(crate) fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((bytes.get(..end)?, bytes.get(end + 1..)?))
}

/// Splits a length-encoded number off the front; `None` when it isn't whole, or is no number.
pub(crate) fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let width = match first {
        0..=0xfa => return Some((u64::from(*first), rest)),
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        0xfb | 0xff => return None,
    };
    let (digits, rest) = rest.split_at_checked(width)?;
    let value = digits.iter().rev().fold(0, |value, digit| value << 8 | u64::from(*digit));
    Some((value, rest))
}

/// Splits a length-encoded text off the front; `None` when it isn't whole.
pub(crate) fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = number(bytes)?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}

/// Appends a length-encoded number.
pub(crate) fn put_number(out: &mut Vec<u8>, value: u64) {
    let [a, b, c, ..] = value.to_le_bytes();
    match value {
        0..=0xfa => out.push(a),
        0xfb..=0xffff => out.extend_from_slice(&[0xfc, a, b]),
        0x1_0000..=0xff_ffff => out.extend_from_slice(&[0xfd, a, b, c]),
        _ => {
            out.push(0xfe);
            out.extend_from_slice(&value.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_length_and_sequence() {
        let found = Header { payload: 0x0201, sequence: 7 };
        assert_eq!(header(&[1, 2, 0, 7, 9]), Some(found));
        assert_eq!(header(&[1, 2, 0]), None);
        assert!(!found.goes_on());
        assert!(header(&[0xff, 0xff, 0xff, 0]).unwrap().goes_on());
    }

    #[test]
    fn sixteen_megabytes_end_with_an_empty_packet() {
        let mut out = BytesMut::new();
        assert_eq!(put(&mut out, 255, &vec![7; PAYLOAD_MAX]), 1);
        assert_eq!(out[..4], [0xff, 0xff, 0xff, 255]);
        assert_eq!(out[4 + PAYLOAD_MAX..], [0, 0, 0, 0]);
        out.clear();
        assert_eq!(put(&mut out, 3, b"ab"), 4);
        assert_eq!(out[..], [2, 0, 0, 3, b'a', b'b']);
        out.clear();
        assert_eq!(put(&mut out, 0, b""), 1);
        assert_eq!(out[..], [0, 0, 0, 0]);
    }

    #[test]
    fn numbers_come_back_as_they_were_put() {
        for value in [0, 0xfa, 0xfb, 0xffff, 0x1_0000, 0xff_ffff, 0x100_0000, u64::MAX] {
            let mut bytes = Vec::new();
            put_number(&mut bytes, value);
            bytes.push(42);
            assert_eq!(number(&bytes), Some((value, &[42][..])), "{value}");
        }
        for short in [&[][..], &[0xfb], &[0xff, 1], &[0xfc, 1], &[0xfd, 1, 2], &[0xfe, 1]] {
            assert_eq!(number(short), None, "{short:?}");
        }
    }

    #[test]
    fn splits_texts() {
        assert_eq!(text(b"ab\0c"), Some((&b"ab"[..], &b"c"[..])));
        assert_eq!(text(b"abc"), None);
        assert_eq!(counted(b"\x02abc"), Some((&b"ab"[..], &b"c"[..])));
        assert_eq!(counted(b"\x04abc"), None);
    }
}
