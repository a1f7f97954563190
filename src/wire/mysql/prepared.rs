//! What is remembered of prepared statements, by number and by name.
//!
//! Purpose: an EXECUTE is judged by the text that was prepared under its number (wire.md W5, W11;
//! facts B17, B18): the number exists once the engine has said it, and the gate is asked at the
//! EXECUTE, because the PREPARE may be older than the fence. What isn't remembered is unprovable.
//!
//! A prepared statement keeps the default schema it was prepared under, so that is remembered too.
//! Pure; used by `conversation.rs` and its two directions. It keeps no texts.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::base::ids::Namespace;
use crate::base::limits;
use crate::sql::{Classified, MyEncoding, MyFlavour, MyLexing};

/// The number that means "the statement prepared last" (MariaDB).
const LAST: u32 = u32::MAX;

/// Hashes the numbers of statements, which each EXECUTE looks up. The engine counts them up: no
/// client can choose some that fall together, so the hash needn't be keyed.
#[derive(Debug, Default, Clone, Copy)]
struct ByNumber(u64);

impl Hasher for ByNumber {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        let mixed = self.0.rotate_left(32) ^ u64::from(number);
        self.0 = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// What is remembered of one statement.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// What its text is.
    pub(crate) classified: Classified,
    /// The default schema at the time, which names without a schema mean; `None` if that wasn't
    /// known.
    pub(crate) home: Option<Namespace>,
    /// There was none: all that it reaches is named in its text.
    pub(crate) nowhere: bool,
    /// The rules that its text was read by, unless all read it alike.
    pub(crate) rules: Option<MyLexing>,
}

impl Known {
    /// The default schema that names without one mean in it; `None` also where there was none.
    pub(crate) fn named_home(&self) -> Option<&Namespace> {
        self.home.as_ref().filter(|_| !self.nowhere)
    }

    /// Whether it is still what it was read as, in a session with these rules. The engine reads a
    /// text anew when a table of it has changed: by the rules of now; MariaDB by the modes of the
    /// PREPARE and the character set of now.
    pub(crate) fn holds(&self, now: MyLexing) -> bool {
        let Some(then) = self.rules else { return now.encoding != MyEncoding::Alien };
        then.covers(match now.server.flavour {
            MyFlavour::MySql => now,
            MyFlavour::MariaDb => MyLexing {
                ansi_quotes: then.ansi_quotes,
                no_backslash_escapes: then.no_backslash_escapes,
                ..now
            },
        })
    }
}

/// Prepared statements of a session.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    by_number: HashMap<u32, Known, BuildHasherDefault<ByNumber>>,
    /// By SQL PREPARE: plain ASCII names in lower case, of at most 64 bytes. One that isn't here is
    /// nobody's, or may be one of several.
    by_name: HashMap<Box<str>, Known>,
    /// Forwarded, and not yet answered.
    pending: Option<Known>,
    last: Option<u32>,
}

impl Prepared {
    /// A COM_STMT_PREPARE is forwarded.
    pub(crate) fn preparing(&mut self, known: Known) {
        self.pending = Some(known);
        self.last = None;
    }

    /// The engine has given it a number.
    pub(crate) fn prepared(&mut self, id: u32) {
        let Some(known) = self.pending.take() else { return };
        self.last = Some(id);
        self.by_number.remove(&id);
        if self.by_number.len() < limits::PREPARED_NAMES_MAX {
            self.by_number.insert(id, known);
        }
    }

    /// The engine has refused it.
    pub(crate) fn failed(&mut self) {
        self.pending = None;
    }

    /// The number that the engine knows a statement by; `None` if that isn't known.
    pub(crate) fn number(&self, id: u32) -> Option<u32> {
        if id == LAST { self.last } else { Some(id) }
    }

    /// What a number stands for; `None` if that isn't known.
    pub(crate) fn look(&self, id: u32) -> Option<&Known> {
        self.by_number.get(&self.number(id)?)
    }

    /// A COM_STMT_CLOSE is forwarded. The engine reads it before anything sent later.
    pub(crate) fn closed(&mut self, id: u32) {
        let id = if id == LAST { self.last.take().unwrap_or(LAST) } else { id };
        self.by_number.remove(&id);
    }

    /// SQL PREPARE has worked: the name stands for this, or (`None`) may stand for it or another.
    pub(crate) fn named(&mut self, name: &str, known: Option<Known>) {
        let name = name.to_ascii_lowercase().into_boxed_str();
        self.by_name.remove(&name);
        if let Some(known) = known.filter(|_| self.by_name.len() < limits::PREPARED_NAMES_MAX) {
            self.by_name.insert(name, known);
        }
    }

    /// Something ran that may have prepared anything under any name.
    pub(crate) fn names_unknown(&mut self) {
        self.by_name = HashMap::new();
    }

    /// The engine has forgotten a name.
    pub(crate) fn unnamed(&mut self, name: &str) {
        self.by_name.remove(name.to_ascii_lowercase().as_str());
    }

    /// What SQL EXECUTE runs by this name; `None` if that isn't known.
    pub(crate) fn by_name(&self, name: &str) -> Option<&Known> {
        self.by_name.get(name.to_ascii_lowercase().as_str())
    }

    /// The session was reset: the engine has forgotten all of them.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sql::{Classifier, Lexing, StatementClass, Trusted};

    fn known(text: &str) -> Known {
        let mut classifier = Classifier::new(Arc::new(Trusted::default()), 0);
        let classified = classifier.classify(text.as_bytes(), Lexing::STANDARD);
        let home = Some(Namespace::parse("old/app").unwrap());
        Known { classified, home, nowhere: false, rules: None }
    }

    fn class(prepared: &Prepared, id: u32) -> Option<StatementClass> {
        prepared.look(id).map(|known| known.classified.class())
    }

    fn class_of(prepared: &Prepared, name: &str) -> Option<StatementClass> {
        prepared.by_name(name).map(|known| known.classified.class())
    }

    #[test]
    fn a_number_counts_once_the_engine_has_said_it() {
        let mut prepared = Prepared::default();
        prepared.preparing(known("select 1"));
        assert_eq!(class(&prepared, 1), None);
        prepared.prepared(1);
        assert_eq!(class(&prepared, 1), Some(StatementClass::Read));
        prepared.preparing(known("delete from t"));
        prepared.failed();
        prepared.prepared(2);
        assert_eq!(class(&prepared, 2), None);
        prepared.closed(1);
        assert_eq!(class(&prepared, 1), None);
    }

    #[test]
    fn the_last_one_is_the_last_that_worked_and_none_behind_a_failure() {
        let mut prepared = Prepared::default();
        assert_eq!(class(&prepared, LAST), None);
        prepared.preparing(known("delete from t"));
        prepared.prepared(7);
        assert_eq!(class(&prepared, LAST), Some(StatementClass::Write));
        prepared.preparing(known("select 1"));
        prepared.failed();
        assert_eq!(class(&prepared, LAST), None);
        assert_eq!(class(&prepared, 7), Some(StatementClass::Write));
        prepared.preparing(known("select 1"));
        prepared.prepared(8);
        prepared.closed(LAST);
        assert_eq!((class(&prepared, LAST), class(&prepared, 8)), (None, None));
    }

    #[test]
    fn names_are_known_only_while_they_can_mean_one_thing() {
        let mut prepared = Prepared::default();
        assert_eq!(class_of(&prepared, "s"), None);
        prepared.named("S", Some(known("select 1")));
        assert_eq!(class_of(&prepared, "s"), Some(StatementClass::Read));
        prepared.named("s", Some(known("delete from t")));
        assert_eq!(class_of(&prepared, "S"), Some(StatementClass::Write));
        prepared.named("s", None);
        assert_eq!(class_of(&prepared, "s"), None);
        prepared.named("s", Some(known("select 1")));
        prepared.unnamed("S");
        assert_eq!(class_of(&prepared, "s"), None);
        prepared.named("s", Some(known("select 1")));
        prepared.reset();
        assert_eq!(class_of(&prepared, "s"), None);
    }
}
