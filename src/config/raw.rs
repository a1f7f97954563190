//! The configuration as written: TOML tables with the place of every value.
//!
//! Purpose: syntax, types and unknown keys, nothing else; `check` judges the values. Called by
//! `config` only. The types have no `Debug`, because a URL in here may hold a password.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

/// A text with its place.
pub(super) type Text = Option<Spanned<String>>;
/// A whole number with its place; signed, so that a negative one gets our own message.
pub(super) type Number = Option<Spanned<i64>>;
/// A yes or no with its place.
pub(super) type Flag = Option<Spanned<bool>>;

/// The whole file.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Raw {
    pub(super) proxy: RawProxy,
    pub(super) log: RawLog,
    pub(super) store: RawStore,
    pub(super) admin: RawAdmin,
    pub(super) engine: Vec<Spanned<RawEngine>>,
    pub(super) listen: Vec<Spanned<RawListen>>,
    pub(super) route: Vec<Spanned<RawRoute>>,
    pub(super) fence: RawFence,
    pub(super) namespace: BTreeMap<Spanned<String>, RawFence>,
    pub(super) compat: RawCompat,
}

/// `[proxy]`
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawProxy {
    pub(super) instance: Text,
    pub(super) state_dir: Text,
    pub(super) shutdown_grace_ms: Number,
    pub(super) max_sessions: Number,
    pub(super) workers: Number,
}

/// `[log]`
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLog {
    pub(super) level: Text,
    pub(super) format: Text,
}

/// `[store]`
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawStore {
    pub(super) url: Text,
}

/// `[admin]`
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawAdmin {
    pub(super) http: Text,
    pub(super) postgres: Text,
    pub(super) mysql: Text,
    pub(super) key_file: Text,
    pub(super) key_env: Text,
    pub(super) adoption_key_file: Text,
    pub(super) tls_cert: Text,
    pub(super) tls_key: Text,
    pub(super) client_ca: Text,
    pub(super) open_metrics: Flag,
    pub(super) show_literals: Flag,
}

/// `[[engine]]`
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawEngine {
    pub(super) name: Text,
    pub(super) url: Text,
    pub(super) password_file: Text,
    pub(super) password_env: Text,
    pub(super) tls: Text,
    pub(super) ca_file: Text,
    pub(super) connect_timeout_ms: Number,
}

/// `[[listen]]`
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawListen {
    pub(super) protocol: Text,
    pub(super) address: Text,
    pub(super) default_engine: Text,
    pub(super) auth: Text,
    pub(super) tls: Text,
    pub(super) cert_file: Text,
    pub(super) key_file: Text,
    pub(super) client_ca_file: Text,
    pub(super) proxy_protocol: Flag,
    pub(super) auto_prepare: Flag,
}

/// `[[route]]`
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawRoute {
    pub(super) name: Text,
    pub(super) engine: Text,
    pub(super) database: Text,
}

/// `[fence]` and each `[namespace."engine/database"]`
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawFence {
    pub(super) enabled: Flag,
    pub(super) write_drain_ms: Number,
    pub(super) read_drain_ms: Number,
    pub(super) in_flight: Text,
    pub(super) hold_ms: Number,
    pub(super) max_held: Number,
    pub(super) sole_path: Text,
    pub(super) authority: Text,
    pub(super) engine_lock: Text,
    pub(super) trusted_functions: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) receipt_retention_days: Number,
}

/// `[compat]`
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawCompat {
    pub(super) sqlstate: BTreeMap<Spanned<String>, Spanned<String>>,
}

/// A syntax problem: where, and in words that repeat no value.
pub(super) struct SyntaxProblem {
    /// Byte range in the text, when known.
    pub(super) span: Option<Range<usize>>,
    /// What was wrong.
    pub(super) message: String,
}

/// Reads the text.
pub(super) fn parse(text: &str) -> Result<Raw, SyntaxProblem> {
    toml::from_str(text).map_err(|error| SyntaxProblem {
        span: error.span(),
        message: without_values(error.message()),
    })
}

/// Cuts quoted values out of a deserialiser's message: a password in the wrong place must not show.
fn without_values(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    let mut message = cut_value(first);
    // The deserialiser's names of types are not the words of whoever writes the file.
    for (theirs, ours) in [
        ("expected a sequence", "expected a list, such as [\"a\", \"b\"]"),
        ("expected i64", "expected a whole number"),
        ("expected a map", "expected a table"),
        ("expected a boolean", "expected true or false"),
    ] {
        if let Some(head) = message.strip_suffix(theirs) {
            message = format!("{head}{ours}");
        }
    }
    message
}

fn cut_value(first: &str) -> String {
    match (first.find("string \""), first.rfind("\", expected")) {
        (Some(start), Some(end)) if start < end => {
            let (head, tail) = (first.get(..start), first.get(end + 1..));
            format!("{}a text{}", head.unwrap_or_default(), tail.unwrap_or_default())
        }
        (Some(start), _) => format!("{}a text", first.get(..start).unwrap_or_default()),
        (None, _) => first.to_owned(),
    }
}

/// The line (from 1) at a byte offset.
pub(super) fn line_at(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset.min(text.len())).unwrap_or_default();
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

/// The key written at a byte offset, with its table, for problems that carry only a place.
pub(super) fn key_at(text: &str, offset: usize) -> String {
    let own = text.lines().nth(line_at(text, offset) - 1).unwrap_or_default().trim();
    if !own.contains('=') && !own.starts_with(['[', ']', '"', '\'']) {
        return "syntax".to_owned();
    }
    let mut table = String::new();
    let mut key = String::new();
    for line in text.lines().take(line_at(text, offset)) {
        let line = line.trim();
        if line.starts_with('[') && !line.contains('=') && line.contains(']') {
            let end = line.rfind(']').unwrap_or(line.len());
            table = line.get(..end).unwrap_or_default().trim_matches(['[', ']']).trim().to_owned();
            key.clear();
        } else if let Some((name, _)) = line.split_once('=') {
            let name = name.trim();
            let plain = |c: char| c.is_ascii_alphanumeric() || "_-.\"".contains(c);
            if !name.is_empty() && name.len() <= 63 && name.chars().all(plain) {
                name.clone_into(&mut key);
            }
        }
    }
    match (table.is_empty(), key.is_empty()) {
        (true, true) => "syntax".to_owned(),
        (true, false) => key,
        (false, true) => table,
        (false, false) => format!("{table}.{key}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found() {
        let text = "a = 1\n[proxy]\nworkers = 2\n[[engine]]\nname = \"x\"\n";
        assert_eq!(line_at(text, 0), 1);
        let offset = text.find("2\n").unwrap();
        assert_eq!((line_at(text, offset), key_at(text, offset)), (3, "proxy.workers".into()));
        let offset = text.find("\"x\"").unwrap();
        assert_eq!(key_at(text, offset), "engine.name");
        assert_eq!(line_at(text, usize::MAX), 6);
    }

    #[test]
    fn values_are_cut_out_of_messages() {
        let cut = without_values("invalid type: string \"pw\", expected i64");
        assert_eq!(cut, "invalid type: a text, expected a whole number");
        let list = without_values("invalid type: string \"f\", expected a sequence");
        assert!(list.starts_with("invalid type: a text, expected a list"), "{list}");
        assert_eq!(without_values("unknown field `x`"), "unknown field `x`");
        assert!(!without_values("invalid value: string \"pw\"").contains("pw"));
    }
}
