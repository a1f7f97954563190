//! What two ends of a MySQL connection can agree on, and what of it this proxy relays.
//!
//! Purpose: W24. Capability bits change how packets look, so the engine's offer goes to clients
//! only as far as it is in [`RELAYED`] and [`RELAYED_EXTENDED`]: a bit that isn't known here is
//! taken out, whatever it means. Compression is among what is taken out: the proxy looks at each
//! packet's header, would have to unpack and pack again, and the link it saves is the short one
//! between proxy and engine or client. Used by `startup.rs` and by whoever reads answers.

/// Bits as both ends agreed on them: the low half is the protocol's, the high half MariaDB's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Capabilities(pub(crate) u64);

/// Clear in MariaDB's greeting, and in the login of its clients: then the high half counts.
pub(crate) const MYSQL: u32 = 1;
pub(crate) const FOUND_ROWS: u32 = 1 << 1;
pub(crate) const LONG_FLAG: u32 = 1 << 2;
pub(crate) const CONNECT_WITH_DB: u32 = 1 << 3;
pub(crate) const NO_SCHEMA: u32 = 1 << 4;
pub(crate) const ODBC: u32 = 1 << 6;
pub(crate) const LOCAL_FILES: u32 = 1 << 7;
pub(crate) const IGNORE_SPACE: u32 = 1 << 8;
pub(crate) const PROTOCOL_41: u32 = 1 << 9;
pub(crate) const INTERACTIVE: u32 = 1 << 10;
pub(crate) const SSL: u32 = 1 << 11;
pub(crate) const IGNORE_SIGPIPE: u32 = 1 << 12;
pub(crate) const TRANSACTIONS: u32 = 1 << 13;
pub(crate) const RESERVED: u32 = 1 << 14;
pub(crate) const SECURE_CONNECTION: u32 = 1 << 15;
pub(crate) const MULTI_STATEMENTS: u32 = 1 << 16;
pub(crate) const MULTI_RESULTS: u32 = 1 << 17;
pub(crate) const PS_MULTI_RESULTS: u32 = 1 << 18;
pub(crate) const PLUGIN_AUTH: u32 = 1 << 19;
pub(crate) const CONNECT_ATTRS: u32 = 1 << 20;
pub(crate) const PLUGIN_AUTH_LENENC: u32 = 1 << 21;
pub(crate) const EXPIRED_PASSWORDS: u32 = 1 << 22;
pub(crate) const SESSION_TRACK: u32 = 1 << 23;
pub(crate) const DEPRECATE_EOF: u32 = 1 << 24;
pub(crate) const OPTIONAL_RESULTSET_METADATA: u32 = 1 << 25;
pub(crate) const QUERY_ATTRIBUTES: u32 = 1 << 27;
pub(crate) const MULTI_FACTOR: u32 = 1 << 28;
pub(crate) const VERIFY_SERVER_CERT: u32 = 1 << 30;
pub(crate) const REMEMBER_OPTIONS: u32 = 1 << 31;

/// What the proxy can relay. Not in it: COMPRESS (bit 5), zstd (bit 26), and bit 29, which MySQL
/// keeps for extensions. TLS is each side's own affair.
pub(crate) const RELAYED: u32 = MYSQL
    | FOUND_ROWS
    | LONG_FLAG
    | CONNECT_WITH_DB
    | NO_SCHEMA
    | ODBC
    | LOCAL_FILES
    | IGNORE_SPACE
    | PROTOCOL_41
    | INTERACTIVE
    | IGNORE_SIGPIPE
    | TRANSACTIONS
    | RESERVED
    | SECURE_CONNECTION
    | MULTI_STATEMENTS
    | MULTI_RESULTS
    | PS_MULTI_RESULTS
    | PLUGIN_AUTH
    | CONNECT_ATTRS
    | PLUGIN_AUTH_LENENC
    | EXPIRED_PASSWORDS
    | SESSION_TRACK
    | DEPRECATE_EOF
    | OPTIONAL_RESULTSET_METADATA
    | QUERY_ATTRIBUTES
    | MULTI_FACTOR
    | VERIFY_SERVER_CERT
    | REMEMBER_OPTIONS;

/// MariaDB's own bits: progress reports.
pub(crate) const EXT_PROGRESS: u32 = 1;
/// COM_STMT_BULK_EXECUTE.
pub(crate) const EXT_BULK: u32 = 1 << 2;
/// Column definitions with an extended type.
pub(crate) const EXT_METADATA: u32 = 1 << 3;
/// Column definitions of a prepared statement are sent again only when they changed.
pub(crate) const EXT_CACHE_METADATA: u32 = 1 << 4;
/// A result per row of a bulk execution.
pub(crate) const EXT_BULK_UNIT_RESULTS: u32 = 1 << 5;

/// Of MariaDB's own bits, what the proxy can relay. Not in it: COM_MULTI (bit 1), withdrawn.
pub(crate) const RELAYED_EXTENDED: u32 =
    EXT_PROGRESS | EXT_BULK | EXT_METADATA | EXT_CACHE_METADATA | EXT_BULK_UNIT_RESULTS;

impl Capabilities {
    /// From the protocol's 32 bits and MariaDB's.
    pub(crate) const fn of(low: u32, extended: u32) -> Self {
        Self((extended as u64) << 32 | low as u64)
    }

    /// Whether a bit of the protocol's own is agreed on.
    pub(crate) const fn has(self, bit: u32) -> bool {
        self.0 & bit as u64 != 0
    }

    /// Whether a bit of MariaDB's own is agreed on.
    pub(crate) const fn has_extended(self, bit: u32) -> bool {
        (self.0 >> 32) & bit as u64 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_and_unknown_bits_are_never_relayed() {
        for bit in [5, 26, 29] {
            assert_eq!(RELAYED & 1 << bit, 0, "bit {bit}");
        }
        assert_eq!(RELAYED & SSL, 0, "TLS is each side's own");
        assert_eq!(RELAYED_EXTENDED & 1 << 1, 0);
        assert_eq!(RELAYED.count_ones(), 28);
        let both = Capabilities::of(SSL, EXT_BULK);
        assert!(both.has(SSL) && both.has_extended(EXT_BULK));
        assert!(!both.has(EXT_BULK) && !both.has_extended(EXT_PROGRESS));
    }
}
