//! A statement as text, in one canonical spelling.
//!
//! Purpose: what a console shows for a replay, and the other half of the round trip that tests
//! check. Called by the consoles. A second key is shown as `***` unless a test asks for it.

use super::{
    CAPABILITY_WORDS, CapabilityStatement, Clause, Dialect, FenceStatement, Show, Statement,
    clauses, words,
};

/// Whether a second key is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// As `***`.
    Hidden,
    /// As it is; for tests of the round trip.
    Shown,
}

fn quoted(text: &str, dialect: Dialect) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('\'');
    for sign in text.chars() {
        match (sign, dialect) {
            ('\'', _) => out.push_str("''"),
            ('\\', Dialect::Mysql) => out.push_str("\\\\"),
            (sign, _) => out.push(sign),
        }
    }
    out.push('\'');
    out
}

impl Statement {
    /// The canonical text; `None` for what isn't of this grammar.
    #[must_use]
    pub fn written(&self, dialect: Dialect, keys: Keys) -> Option<String> {
        match self {
            Self::Empty => Some(String::new()),
            Self::Show(show) => Some(show.written(dialect)),
            Self::Inspect(namespace) => {
                Some(format!("INSPECT {}", quoted(&namespace.to_string(), dialect)))
            }
            Self::Fence(fence) => Some(fence.written(dialect, keys)),
            Self::Capability(wish) => Some(wish.written(dialect)),
            Self::Other => None,
        }
    }
}

impl Show {
    fn written(&self, dialect: Dialect) -> String {
        let what = match self {
            Self::Namespaces => "NAMESPACES",
            Self::Fences => "FENCES",
            Self::Targets => "TARGETS",
            Self::Sessions => "SESSIONS",
            Self::Drains => "DRAINS",
            Self::Receipts(None) => "RECEIPTS",
            Self::Receipts(Some(namespace)) => {
                return format!("SHOW RECEIPTS FOR {}", quoted(&namespace.to_string(), dialect));
            }
            Self::Capabilities => "CAPABILITIES",
            Self::Help => "HELP",
            Self::Version => "VERSION",
            Self::Config => "CONFIG",
            Self::Stats => "STATS",
            Self::Verbose(show) => return format!("{} VERBOSE", show.written(dialect)),
        };
        format!("SHOW {what}")
    }
}

impl CapabilityStatement {
    fn written(&self, dialect: Dialect) -> String {
        let mut line = format!(
            "FENCE {} ON {} OPERATION {} PURPOSE {}",
            CAPABILITY_WORDS.join(" "),
            quoted(&self.namespace.to_string(), dialect),
            quoted(&self.operation.to_string(), dialect),
            self.purpose.name().to_ascii_uppercase()
        );
        if let Some(revision) = self.revision {
            line.push_str(&format!(" REVISION {}", revision.0));
        }
        line
    }
}

impl FenceStatement {
    /// The canonical text.
    #[must_use]
    pub fn written(&self, dialect: Dialect, keys: Keys) -> String {
        let namespace = quoted(&self.namespace.to_string(), dialect);
        let mut line = format!("FENCE {} ON {namespace}", words(self.kind).join(" "));
        for clause in clauses(self.kind) {
            if let Some(text) = self.clause(*clause, dialect, keys) {
                line.push(' ');
                line.push_str(&text);
            }
        }
        line
    }

    fn clause(&self, clause: Clause, dialect: Dialect, keys: Keys) -> Option<String> {
        let word = clause.word();
        let literal = |text: &str| format!("{word} {}", quoted(text, dialect));
        let optional = |text: &Option<String>| text.as_deref().map(literal);
        let adoption = self.adoption.as_ref();
        match clause {
            Clause::Operation => Some(literal(&self.operation.to_string())),
            Clause::Command => self.command.map(|id| literal(&id.to_string())),
            Clause::Expect => self.expect.map(|(state, revision)| {
                format!("EXPECT STATE {} REVISION {}", state.name(), revision.0)
            }),
            Clause::Identity => self.identity.as_ref().map(|identity| {
                let database = quoted(&identity.database_id, dialect);
                let mut text = format!("{} DATABASE {database}", literal(&identity.engine_id));
                if let Some(timeline) = identity.timeline {
                    text.push_str(&format!(" TIMELINE {timeline}"));
                }
                text
            }),
            Clause::Deadline => self.deadline_ms.map(|ms| format!("DEADLINE {ms}ms")),
            Clause::Force => self.force_rollback.then(|| "FORCE ROLLBACK".to_owned()),
            Clause::InFlight => {
                self.in_flight.map(|rule| format!("IN FLIGHT {}", rule.name().to_ascii_uppercase()))
            }
            Clause::Hold => self.hold_ms.map(|ms| format!("HOLD {ms}ms")),
            Clause::Beside => self.beside_target.then(|| "BESIDE TARGET".to_owned()),
            Clause::From => adoption.map(|adoption| literal(&adoption.from.to_string())),
            Clause::Approvers => adoption.map(|adoption| {
                let names = adoption.approvers.iter().map(|name| quoted(name, dialect));
                format!("{word} {}", names.collect::<Vec<_>>().join(", "))
            }),
            Clause::Incident => adoption.map(|adoption| literal(&adoption.incident)),
            Clause::Reason => adoption.map(|adoption| literal(&adoption.reason)),
            Clause::Key => adoption?.key.as_ref().map(|key| match keys {
                Keys::Hidden => literal("***"),
                Keys::Shown => literal(key.expose()),
            }),
            Clause::Owner => optional(&self.target.owner),
            Clause::Encoding => optional(&self.target.encoding),
            Clause::Locale => optional(&self.target.locale),
            Clause::Template => optional(&self.target.template),
            Clause::Result => self
                .validation
                .as_ref()
                .map(|(result, _)| format!("RESULT {}", result.name().to_ascii_uppercase())),
            Clause::Summary => self.validation.as_ref()?.1.as_deref().map(literal),
        }
    }
}
