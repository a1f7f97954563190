//! What the proxy says itself on the PostgreSQL wire: typed errors, ready signals, stand-ins.
//!
//! Purpose: builds the bytes with pgwire's message types, so that no layout is written twice.
//! Rules W8, W9, W16 of wire.md. Used by the relay and the startup. It decides nothing.

use std::sync::OnceLock;

use bytes::BytesMut;
use pgwire::messages::Message;
use pgwire::messages::extendedquery::{Bind, Close, Execute, Parse, Sync};
use pgwire::messages::response::{ErrorResponse, ReadyForQuery, TransactionStatus};
use pgwire::messages::simplequery::Query;

use crate::fence::code::Denial;
use crate::gate::admission::Refusal;

/// The SQLSTATE of the engine's refusal in a read-only transaction.
pub(crate) const READ_ONLY_SQLSTATE: &str = "25006";
/// The SQLSTATE of a cancelled statement.
pub(crate) const CANCELLED_SQLSTATE: &str = "57014";
/// The SQLSTATE of the stand-in's syntax error.
const SYNTAX_SQLSTATE: &str = "42601";

/// How severe an error is for the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The session goes on.
    Error,
    /// The session ends behind it.
    Fatal,
}

impl Severity {
    const fn text(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
        }
    }
}

/// Encodes one message. pgwire's encoders fail only for values that don't fit their own limits;
/// ours are short, so a failure would leave the buffer short of one message and is logged.
fn put<M: Message>(out: &mut BytesMut, message: &M) {
    if let Err(error) = message.encode(out) {
        tracing::error!(%error, "a message of the proxy's own could not be encoded");
    }
}

/// Appends an error that isn't a fence's: `sqlstate`, what happened, and what to do.
pub(crate) fn plain_error(
    out: &mut BytesMut,
    severity: Severity,
    sqlstate: &str,
    message: &str,
    hint: &str,
) {
    let mut fields = vec![
        (b'S', severity.text().to_owned()),
        (b'V', severity.text().to_owned()),
        (b'C', sqlstate.to_owned()),
        (b'M', message.to_owned()),
    ];
    if !hint.is_empty() {
        fields.push((b'H', hint.to_owned()));
    }
    fields.push((b'R', "fencewire".to_owned()));
    put(out, &ErrorResponse::new(fields));
}

/// Appends the typed error of a refusal (W16). `sqlstate` is the code the client gets: the
/// denial's own, or what the compat table maps it to.
pub(crate) fn typed_error(
    out: &mut BytesMut,
    severity: Severity,
    refusal: &Refusal,
    sqlstate: &str,
) {
    let denial = refusal.denial;
    typed(out, severity, refusal, (sqlstate, denial.sentence(), denial.hint()));
}

/// Appends the typed error of a login that is refused: `triggers` would run at it, unguarded; none
/// are given where the engine couldn't say.
pub(crate) fn login_error(
    out: &mut BytesMut,
    refusal: &Refusal,
    sqlstate: &str,
    triggers: &[String],
) {
    let names: Vec<String> = triggers.iter().map(|name| format!("{name:?}")).collect();
    let (sentence, hint) = if names.is_empty() {
        (
            "writes are closed, and the engine does not tell the proxy whether a login trigger \
             would run at this login, with nothing to keep it from writing, so no login is admitted"
                .to_owned(),
            "Retry shortly. The operator: see that the engine is up, and that the proxy's control \
             role can log in to this database.",
        )
    } else {
        (
            format!(
                "{}; this database has a login trigger ({}), which would run at this login, where \
                 nothing keeps it from writing",
                refusal.denial.sentence(),
                names.join(", ")
            ),
            "Log in when the operator says the move is over. The operator: ALTER EVENT TRIGGER ... \
             DISABLE lets logins through before that; do it as superuser, directly at the engine, \
             with PGOPTIONS='-c event_triggers=off' (else that login runs the trigger as well).",
        )
    };
    typed(out, Severity::Fatal, refusal, (sqlstate, &sentence, hint));
}

fn typed(
    out: &mut BytesMut,
    severity: Severity,
    refusal: &Refusal,
    (sqlstate, sentence, hint): (&str, &str, &str),
) {
    let denial = refusal.denial;
    let policy = &refusal.published.policy;
    let detail = denial.detail().map(|detail| format!(", detail {detail}")).unwrap_or_default();
    let operation =
        policy.operation.map(|operation| format!(", operation {operation}")).unwrap_or_default();
    // The durable state is older than the closure: alone it would read like an open fence.
    let closing = policy.overlay.in_words().map(|w| format!(" ({w})")).unwrap_or_default();
    let fields = vec![
        (b'S', severity.text().to_owned()),
        (b'V', severity.text().to_owned()),
        (b'C', sqlstate.to_owned()),
        (b'M', format!("{}: {sentence}", denial.code())),
        (
            b'D',
            format!(
                "namespace {}, state {}{closing}, revision {}{operation}{detail}",
                refusal.namespace,
                policy.state.name(),
                policy.revision
            ),
        ),
        (b'H', hint.to_owned()),
        (b'R', "fencewire".to_owned()),
    ];
    put(out, &ErrorResponse::new(fields));
}

/// Appends ReadyForQuery.
pub(crate) fn ready(out: &mut BytesMut, status: Status) {
    let status = match status {
        Status::Idle => TransactionStatus::Idle,
        Status::Open => TransactionStatus::Transaction,
        Status::Failed => TransactionStatus::Error,
    };
    put(out, &ReadyForQuery::new(status));
}

/// Appends a simple query of the proxy's own.
pub(crate) fn query(out: &mut BytesMut, text: &str) {
    put(out, &Query::new(text.to_owned()));
}

/// The transaction status that ReadyForQuery carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// `I`: outside a transaction.
    Idle,
    /// `T`: in a transaction block.
    Open,
    /// `E`: in a failed transaction block.
    Failed,
}

impl Status {
    /// From the byte on the wire; anything else counts as open, the side that keeps leases.
    pub(crate) const fn from_byte(byte: u8) -> Self {
        match byte {
            b'I' => Self::Idle,
            b'E' => Self::Failed,
            _ => Self::Open,
        }
    }
}

/// A statement that can't succeed, and by which it is known again in the engine's error (W9).
///
/// The token is random per session and never shown to the client, so no client can make an error
/// that is taken for the stand-in's. It is made when it is first needed: most sessions end without.
#[derive(Debug)]
pub(crate) struct StandIn {
    token: OnceLock<String>,
}

impl StandIn {
    /// A fresh one.
    pub(crate) const fn fresh() -> Self {
        Self { token: OnceLock::new() }
    }

    fn token(&self) -> &str {
        self.token.get_or_init(|| format!("fencewire_{}", uuid::Uuid::new_v4().simple()))
    }

    fn sql(&self, denial: Denial) -> String {
        format!("{} a fence refused this statement ({})", self.token(), denial.sqlstate())
    }

    /// Appends it as a simple query.
    pub(crate) fn as_query(&self, out: &mut BytesMut, denial: Denial) {
        put(out, &Query::new(self.sql(denial)));
    }

    /// Appends it as a Parse. It has a name, so that the client's unnamed statement stays.
    pub(crate) fn as_parse(&self, out: &mut BytesMut, denial: Denial) {
        put(out, &Parse::new(Some(self.token().to_owned()), self.sql(denial), Vec::new()));
    }

    /// Appends a statement of the proxy's own as a pipeline up to its Sync. Unlike a simple query
    /// it leaves the client's unnamed statement and portal as they are. It closes its own names
    /// before and behind, because an attempt that failed half-way may have left one.
    pub(crate) fn as_pipeline(&self, out: &mut BytesMut, sql: &str) {
        let name = || Some(self.token().to_owned());
        let close = |out: &mut BytesMut| {
            put(out, &Close::new(b'P', name()));
            put(out, &Close::new(b'S', name()));
        };
        close(out);
        put(out, &Parse::new(name(), sql.to_owned(), Vec::new()));
        put(out, &Bind::new(name(), name(), Vec::new(), Vec::new(), Vec::new()));
        put(out, &Execute::new(name(), 0));
        close(out);
        put(out, &Sync::new());
    }

    /// The same at less cost, for outside of transactions: there the client has no unnamed portal,
    /// and this one's ends with the Sync. If it fails half-way its name may be left, which
    /// [`StandIn::as_pipeline`] closes.
    pub(crate) fn as_short_pipeline(&self, out: &mut BytesMut, sql: &str) {
        let name = || Some(self.token().to_owned());
        put(out, &Parse::new(name(), sql.to_owned(), Vec::new()));
        put(out, &Bind::new(None, name(), Vec::new(), Vec::new(), Vec::new()));
        put(out, &Execute::new(None, 0));
        put(out, &Close::new(b'S', name()));
        put(out, &Sync::new());
    }

    /// Whether an ErrorResponse body is this stand-in's. None is that was never sent.
    pub(crate) fn caused(&self, error: &[u8]) -> bool {
        let Some(token) = self.token.get() else { return false };
        field(error, b'C') == Some(SYNTAX_SQLSTATE.as_bytes())
            && error.windows(token.len()).any(|window| window == token.as_bytes())
    }
}

/// One field of an ErrorResponse body.
pub(crate) fn field(body: &[u8], wanted: u8) -> Option<&[u8]> {
    let mut rest = body;
    while let Some((&tag, after)) = rest.split_first() {
        if tag == 0 {
            return None;
        }
        let (value, next) = super::frame::text(after)?;
        if tag == wanted {
            return Some(value);
        }
        rest = next;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::ids::{Generation, Namespace};
    use crate::fence::verdict::{Overlay, Policy};
    use crate::gate::registry::Published;

    /// A fence is announced before its record is committed: the state alone would tell a client
    /// that it was refused by an open database.
    #[test]
    fn a_refusal_while_a_fence_goes_up_says_so() {
        let detail = |overlay| {
            let policy = Policy { overlay, ..Policy::unfenced() };
            let refusal = Refusal {
                denial: Denial::WriteFenced,
                namespace: Namespace::parse("old/app").unwrap(),
                published: Arc::new(Published { generation: Generation(1), policy }),
            };
            let mut out = BytesMut::new();
            typed_error(&mut out, Severity::Error, &refusal, "ZF001");
            let body = out.get(5..).unwrap_or_default();
            String::from_utf8(field(body, b'D').unwrap().to_vec()).unwrap()
        };
        let going_up = "namespace old/app, state UNFENCED (a write fence is going up), revision 0";
        assert_eq!(detail(Overlay::Installing), going_up);
        assert_eq!(detail(Overlay::None), "namespace old/app, state UNFENCED, revision 0");
    }

    #[test]
    fn fields_are_found_and_missing_ones_are_none() {
        let body = b"SERROR\0VERROR\0C42601\0Msyntax error\0\0";
        assert_eq!(field(body, b'C'), Some(&b"42601"[..]));
        assert_eq!(field(body, b'H'), None);
        assert_eq!(field(b"", b'C'), None);
        assert_eq!(field(b"C42601", b'C'), None);
    }

    #[test]
    fn only_its_own_token_counts() {
        let (mine, other) = (StandIn::fresh(), StandIn::fresh());
        let body = format!("SERROR\0C42601\0Msyntax error at or near \"{}\"\0\0", mine.token());
        assert!(mine.caused(body.as_bytes()));
        assert!(!other.caused(body.as_bytes()), "never sent");
        assert_ne!(mine.token(), other.token());
        assert!(!other.caused(body.as_bytes()), "another's");
        let wrong = body.replace("42601", "42P01");
        assert!(!mine.caused(wrong.as_bytes()));
    }
}
