//! Attributes: where the text begins in a COM_QUERY that carries some, and a capability among those
//! of a connection.
//!
//! Purpose: facts B33: with CLIENT_QUERY_ATTRIBUTES agreed on, a list of parameters stands in front
//! of the text, and a proxy that took it for the text would judge garbage. A list that can't be
//! read has no text: the program is then one that nobody could read. Connection attributes are
//! shown by the engine (`performance_schema`), so a capability's secret is taken out of them, and
//! the others go on as they are. Pure; used by `client.rs` and at the login.

use crate::wire::mysql::frame::{counted, number, put_number};
use crate::wire::shared::capability::{MYSQL_ATTRIBUTE, Offered, holds_secret};

/// The text of a COM_QUERY behind its first byte, or `None` if where it begins can't be told.
pub(crate) fn text(payload: &[u8]) -> Option<&[u8]> {
    let (parameters, rest) = number(payload)?;
    let (sets, rest) = number(rest)?;
    if parameters == 0 {
        return Some(rest);
    }
    let parameters = usize::try_from(parameters).ok().filter(|_| sets == 1)?;
    let (nulls, rest) = rest.split_at_checked(parameters.div_ceil(8))?;
    let (&[1], mut rest) = rest.split_at_checked(1)? else { return None };
    // Each type takes two bytes and a name at least: the payload bounds the list.
    let mut kinds = Vec::new();
    for _ in 0..parameters {
        let (kind, behind) = rest.split_at_checked(2)?;
        kinds.push(*kind.first()?);
        rest = counted(behind)?.1;
    }
    for (at, kind) in kinds.into_iter().enumerate() {
        let is_null = nulls.get(at / 8).is_some_and(|byte| byte & (1 << (at % 8)) != 0);
        if !is_null {
            rest = behind_value(kind, rest)?;
        }
    }
    Some(rest)
}

/// Takes capabilities out of a list of connection attributes, with whatever is behind the list.
/// `None` when there are none: the bytes stay as they are.
pub(crate) fn take(bytes: &[u8]) -> Option<(Vec<u8>, Vec<Offered>)> {
    let (mut offered, mut kept, mut found) = (Vec::new(), Vec::new(), bytes.to_vec());
    if let Some((mut list, behind)) = counted(bytes) {
        while let Some((name, value, rest)) = pair(list) {
            if name == MYSQL_ATTRIBUTE {
                offered.push(Offered::new(value));
            } else {
                kept.extend_from_slice(list.get(..list.len() - rest.len()).unwrap_or_default());
            }
            list = rest;
        }
        kept.extend_from_slice(list);
        if !offered.is_empty() {
            found.clear();
            put_number(&mut found, kept.len() as u64);
            found.extend_from_slice(&kept);
            found.extend_from_slice(behind);
        }
    }
    if holds_secret(&found) {
        // Under another name, or in a list that isn't whole.
        offered.push(Offered::unclear());
    }
    (!offered.is_empty()).then_some((found, offered))
}

fn pair(list: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (name, rest) = counted(list)?;
    let (value, rest) = counted(rest)?;
    Some((name, value, rest))
}

/// What follows a value of this type, in the binary protocol.
fn behind_value(kind: u8, bytes: &[u8]) -> Option<&[u8]> {
    let width = match kind {
        // TINY, SHORT and YEAR, LONG and INT24 and FLOAT, LONGLONG and DOUBLE, NULL.
        1 => 1,
        2 | 13 => 2,
        3 | 4 | 9 => 4,
        5 | 8 => 8,
        6 => 0,
        // Times carry their length; 0, 4, 7, 8, 11 and 12 are in use.
        7 | 10 | 11 | 12 => 1 + usize::from(*bytes.first()?),
        // Texts and blobs of all kinds, decimals, JSON, geometries.
        0 | 15 | 16 | 245..=255 => return counted(bytes).map(|(_, rest)| rest),
        _ => return None,
    };
    bytes.get(width..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_stands_behind_the_list() {
        assert_eq!(text(b"\0\x01select 1"), Some(&b"select 1"[..]));
        // One string, one null, one integer, one time.
        let list =
            b"\x04\x01\x02\x01\xfe\0\x01a\xfe\0\x01b\x03\0\x01c\x0c\0\0\x02hi\x01\0\0\0\x04abcd";
        assert_eq!(text(&[list, &b"do 1"[..]].concat()), Some(&b"do 1"[..]));
    }

    #[test]
    fn a_capability_is_taken_out_of_a_connections_attributes() {
        let taken = |bytes: &[u8]| {
            let (kept, offered) = take(bytes)?;
            Some((kept, offered.iter().map(|one| one.expose().to_vec()).collect::<Vec<_>>()))
        };
        assert_eq!(taken(b"\x06\x03_os\x01x\x07"), None);
        assert_eq!(taken(b""), None);
        assert_eq!(taken(b"\x20\x01a"), None);
        let full = [&[29], b"\x03_os\x01x\x14fencewire_capability\x01s\x07".as_slice()].concat();
        assert_eq!(taken(&full), Some((b"\x06\x03_os\x01x\x07".to_vec(), vec![b"s".to_vec()])));
        let secret = format!("fwc_{}", "x".repeat(43));
        let hidden = [&[51, 2, b'a', b'b', 47], secret.as_bytes()].concat();
        assert_eq!(taken(&hidden), Some((hidden.clone(), vec![b"?".to_vec()])));
    }

    #[test]
    fn a_list_that_cannot_be_read_has_no_text() {
        for bytes in [
            &b""[..],
            b"\0",
            b"\x01\x02\0\x01\xfe\0\0\x01a",
            b"\x01\x01\0\x00\xfe\0\0\x01a",
            b"\x01\x01\0\x01\x80\0\0aselect 1",
            b"\x01\x01\0\x01\xfe\0\0\x09a",
            b"\xff\x01select 1",
        ] {
            assert_eq!(text(bytes), None, "{bytes:02x?}");
        }
    }
}
