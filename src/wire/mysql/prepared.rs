//! What is remembered of prepared statements, by number and by name.
//!
//! Purpose: an EXECUTE is judged by the text that was prepared under its number (wire.md W5, W11;
//! facts B17, B18): the number exists once the engine has said it, and the gate is asked at the
//! EXECUTE, because the PREPARE may be older than the fence. What isn't remembered is unprovable.
//!
//! A prepared statement keeps the default schema it was prepared under, so that is remembered too.
//! Pure; used by `client.rs` and `replies.rs`. It keeps no texts.

use std::collections::HashMap;
use std::sync::Arc;

use crate::base::limits;
use crate::sql::{Classified, StatementClass};

/// The number that means "the statement prepared last" (MariaDB).
const LAST: u32 = u32::MAX;

/// What is remembered of one statement.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// What its text is.
    pub(crate) classified: Classified,
    /// The default schema at the time, empty without one. Names without a schema mean this one.
    pub(crate) schema: Arc<str>,
}

/// Prepared statements of a session.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    by_number: HashMap<u32, Known>,
    /// By SQL PREPARE, names in lower case. Never forgotten, only strengthened: whether a later
    /// PREPARE or DEALLOCATE of the name worked isn't known where several statements are one text.
    by_name: HashMap<Box<str>, StatementClass>,
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

    /// What a number stands for; `None` if that isn't known.
    pub(crate) fn look(&self, id: u32) -> Option<&Known> {
        let id = if id == LAST { self.last? } else { id };
        self.by_number.get(&id)
    }

    /// A COM_STMT_CLOSE is forwarded. The engine reads it before anything sent later.
    pub(crate) fn closed(&mut self, id: u32) {
        let id = if id == LAST { self.last.take().unwrap_or(LAST) } else { id };
        self.by_number.remove(&id);
    }

    /// A text with SQL PREPARE is forwarded: the name may stand for this from now on.
    pub(crate) fn named(&mut self, name: &str, class: StatementClass) {
        let name = name.to_lowercase().into_boxed_str();
        if let Some(known) = self.by_name.get_mut(&name) {
            *known = known.strongest(class);
        } else if self.by_name.len() < limits::PREPARED_NAMES_MAX {
            self.by_name.insert(name, class);
        }
    }

    /// The class of what SQL EXECUTE runs by this name.
    pub(crate) fn class_of(&self, name: &str) -> StatementClass {
        let known = self.by_name.get(name.to_lowercase().as_str());
        known.copied().unwrap_or(StatementClass::Unprovable)
    }

    /// The session was reset: the engine has forgotten all of them.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{Classifier, Lexing, Trusted};

    fn known(text: &str) -> Known {
        let mut classifier = Classifier::new(Arc::new(Trusted::default()), 0);
        let classified = classifier.classify(text.as_bytes(), Lexing::STANDARD);
        Known { classified, schema: Arc::from("app") }
    }

    fn class(prepared: &Prepared, id: u32) -> Option<StatementClass> {
        prepared.look(id).map(|known| known.classified.class())
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
    fn names_are_unprovable_until_known_and_only_grow() {
        let mut prepared = Prepared::default();
        assert_eq!(prepared.class_of("s"), StatementClass::Unprovable);
        prepared.named("S", StatementClass::Read);
        assert_eq!(prepared.class_of("s"), StatementClass::Read);
        prepared.named("s", StatementClass::Write);
        prepared.named("s", StatementClass::Read);
        assert_eq!(prepared.class_of("S"), StatementClass::Write);
        prepared.reset();
        assert_eq!(prepared.class_of("s"), StatementClass::Unprovable);
    }
}
