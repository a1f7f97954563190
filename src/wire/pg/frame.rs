//! Frame headers of the PostgreSQL protocol, version 3: one type byte, a length that counts itself.
//!
//! Purpose: find where messages begin and end without looking at what the proxy has no reason to
//! understand (wire.md W22). Pure. Used by both directions of the relay. It doesn't know what a
//! type means beyond the few names below.

use bytes::{BufMut as _, BytesMut};

use crate::base::limits::FRAME_LENGTH_MAX;

/// Bytes of a header: type and length.
pub(crate) const HEADER: usize = 5;

/// One frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The message type.
    pub(crate) tag: u8,
    /// Bytes of the body that follow the header.
    pub(crate) body: usize,
}

/// A length field that can't be: less than four, or more than PostgreSQL takes or sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("message of type {tag:#04x} with length {length}: expected 4 to {FRAME_LENGTH_MAX}")]
pub(crate) struct BadLength {
    pub(crate) tag: u8,
    pub(crate) length: i32,
}

/// Reads a header, `None` when there are fewer than five bytes yet.
pub(crate) fn header(bytes: &[u8]) -> Result<Option<Header>, BadLength> {
    let [tag, a, b, c, d, ..] = *bytes else { return Ok(None) };
    let length = i32::from_be_bytes([a, b, c, d]);
    match usize::try_from(length) {
        Ok(length) if (4..=FRAME_LENGTH_MAX).contains(&length) => {
            Ok(Some(Header { tag, body: length - 4 }))
        }
        Ok(_) | Err(_) => Err(BadLength { tag, length }),
    }
}

/// Splits a NUL-terminated text off the front; `None` when there is no NUL.
pub(crate) fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((bytes.get(..end)?, bytes.get(end + 1..)?))
}

/// Appends a message. Its body is at most a gigabyte: it came as part of one of a client's.
pub(crate) fn put(out: &mut BytesMut, tag: u8, body: &[u8]) {
    out.put_u8(tag);
    out.put_u32(u32::try_from(body.len() + 4).unwrap_or(u32::MAX));
    out.put_slice(body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_type_and_body_length() {
        assert_eq!(header(b"Q\0\0\0\x06ab"), Ok(Some(Header { tag: b'Q', body: 2 })));
        assert_eq!(header(b"Q\0\0\0"), Ok(None));
        assert_eq!(header(b"S\0\0\0\x04"), Ok(Some(Header { tag: b'S', body: 0 })));
    }

    #[test]
    fn refuses_lengths_that_cannot_be() {
        assert!(header(b"Q\0\0\0\x03").is_err());
        assert!(header(b"Q\xff\xff\xff\xff").is_err());
        assert!(header(b"Q\x7f\xff\xff\xff").is_err());
        assert!(header(b"D\x3f\xff\xff\xff").is_ok());
    }

    #[test]
    fn splits_texts() {
        assert_eq!(text(b"ab\0c"), Some((&b"ab"[..], &b"c"[..])));
        assert_eq!(text(b"abc"), None);
    }
}
