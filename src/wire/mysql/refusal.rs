//! What the proxy says itself on the MySQL wire: typed errors, and commands of its own.
//!
//! Purpose: builds the bytes; W8, W10, W16 of wire.md. An error carries the number, the SQLSTATE
//! and one text with what happened, to what, and what to do. Sequence numbers are the caller's to
//! know: an answer counts on from the last packet of its command.
//!
//! It decides nothing. Used by the relay and the startup.

use bytes::{BufMut as _, BytesMut};

use crate::gate::admission::Refusal;
use crate::wire::mysql::commands;
use crate::wire::mysql::frame::PAYLOAD_MAX;

/// The engine's refusal in a read-only transaction.
pub(crate) const READ_ONLY_TRANSACTION: u16 = 1792;
/// The engine's refusal while it is read-only as a whole.
pub(crate) const READ_ONLY_SERVER: u16 = 1290;
/// A statement was interrupted.
pub(crate) const INTERRUPTED: u16 = 1317;

/// The engine's word to a connection that was killed: MariaDB's, and MySQL's.
pub(crate) const KILLED: [u16; 2] = [1927, 1053];

/// Longest text of an error that clients are sure to show: the engines' own buffer, less its end.
const TEXT_BYTES_MAX: usize = 511;

/// Appends one packet. The payload must be shorter than 16 MiB.
fn packet(out: &mut BytesMut, sequence: u8, write: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_bytes(0, 4);
    write(out);
    let length = out.len() - start - 4;
    debug_assert!(length < PAYLOAD_MAX, "the proxy's own packets are short");
    let [a, b, c, ..] = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    if let Some(header) = out.get_mut(start..start + 4) {
        header.copy_from_slice(&[a, b, c, sequence]);
    }
}

/// Appends an ERR packet.
pub(crate) fn error(out: &mut BytesMut, sequence: u8, errno: u16, sqlstate: &str, text: &str) {
    let cut = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    packet(out, sequence, |out| {
        out.put_u8(0xff);
        out.put_u16_le(errno);
        out.put_u8(b'#');
        out.put_slice(sqlstate.as_bytes());
        out.put_slice(text.get(..cut.unwrap_or_default()).unwrap_or_default().as_bytes());
    });
}

/// Appends the typed error of a refusal (W16). `sqlstate` is the code the client gets: the
/// denial's own, or what the compat table maps it to. `unread`: the refused text was read no
/// further than this, in bytes.
pub(crate) fn typed_error(
    out: &mut BytesMut,
    sequence: u8,
    refusal: &Refusal,
    sqlstate: &str,
    unread: Option<usize>,
) {
    error(out, sequence, refusal.denial.errno(), sqlstate, &text(refusal, unread));
}

/// The text of one.
pub(crate) fn typed_text(refusal: &Refusal) -> String {
    text(refusal, None)
}

fn text(refusal: &Refusal, unread: Option<usize>) -> String {
    let denial = refusal.denial;
    let policy = &refusal.published.policy;
    let detail = denial.detail().map(|detail| format!(", detail {detail}")).unwrap_or_default();
    let operation =
        policy.operation.map(|operation| format!(", operation {operation}")).unwrap_or_default();
    // The durable state is older than the closure: alone it would read like an open fence.
    let closing = policy.overlay.in_words().map(|w| format!(" ({w})")).unwrap_or_default();
    let why = unread.map(|bytes| {
        format!("; its text is longer than the {bytes} bytes that are read here, send shorter ones")
    });
    let why = why.unwrap_or_default();
    format!(
        "{}: {}{why} (namespace {}, state {}{closing}, revision {}{operation}{detail}; {})",
        denial.code(),
        denial.sentence(),
        refusal.namespace,
        policy.state.name(),
        policy.revision,
        denial.hint()
    )
}

/// Appends a command of the proxy's own. Commands begin at sequence number 0.
pub(crate) fn command(out: &mut BytesMut, opcode: u8, argument: &[u8]) {
    packet(out, 0, |out| {
        out.put_u8(opcode);
        out.put_slice(argument);
    });
}

/// Appends a statement of the proxy's own, `attributes` where query attributes were agreed on:
/// then the text stands behind an empty list of them (facts B33).
pub(crate) fn query(out: &mut BytesMut, sql: &str, attributes: bool) {
    packet(out, 0, |out| {
        out.put_u8(commands::QUERY);
        if attributes {
            // No parameters, in one set.
            out.put_slice(&[0, 1]);
        }
        out.put_slice(sql.as_bytes());
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::ids::{Generation, Namespace};
    use crate::fence::code::Denial;
    use crate::fence::verdict::{Overlay, Policy};
    use crate::gate::registry::Published;

    fn refusal(denial: Denial, overlay: Overlay) -> Refusal {
        let policy = Policy { overlay, ..Policy::unfenced() };
        Refusal {
            denial,
            namespace: Namespace::parse("old/app").unwrap(),
            published: Arc::new(Published { generation: Generation(1), policy }),
        }
    }

    #[test]
    fn a_typed_error_has_number_code_and_all_that_a_person_needs() {
        let mut out = BytesMut::new();
        let refused = refusal(Denial::WriteFenced, Overlay::Installing);
        typed_error(&mut out, 1, &refused, "ZF001", None);
        let length = usize::from(out[0]) | usize::from(out[1]) << 8;
        assert_eq!((length, out[2], out[3]), (out.len() - 4, 0, 1));
        let payload = &out[4..];
        assert_eq!(payload[..3], [0xff, 0xe5, 0x25], "9701");
        assert_eq!(&payload[3..9], b"#ZF001");
        let text = std::str::from_utf8(&payload[9..]).unwrap();
        assert_eq!(
            text,
            "MIGRATION_WRITE_FENCED: writes are fenced while this database is being moved \
             (namespace old/app, state UNFENCED (a write fence is going up), revision 0; \
             Do not retry blindly; reconnect when the operator says the move is over.)"
        );
    }

    #[test]
    fn every_denial_fits_into_what_clients_show_and_is_not_a_clients_own_number() {
        for denial in Denial::ALL {
            assert!(typed_text(&refusal(denial, Overlay::Indeterminate)).len() < 400, "{denial:?}");
            assert!((9701..=9713).contains(&denial.errno()));
        }
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let mut out = BytesMut::new();
        error(&mut out, 3, 1105, "HY000", &"ä".repeat(400));
        assert_eq!(out.len(), 4 + 9 + 510);
        assert!(std::str::from_utf8(&out[13..]).is_ok());
    }

    #[test]
    fn own_statements_stand_behind_an_empty_list_where_attributes_were_agreed() {
        let mut out = BytesMut::new();
        query(&mut out, "ROLLBACK", false);
        query(&mut out, "ROLLBACK", true);
        command(&mut out, commands::PING, &[]);
        assert_eq!(&out[..], b"\x09\0\0\0\x03ROLLBACK\x0b\0\0\0\x03\0\x01ROLLBACK\x01\0\0\0\x0e");
    }
}
