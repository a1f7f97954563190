//! Classes remembered per prepared statement and portal of one session.
//!
//! Purpose: a Bind is judged by what was parsed under its name (wire.md W5), and names come and go
//! in an order only the engine decides: a Parse counts once ParseComplete came, a Close once
//! CloseComplete came, and an error skips the rest of its pipeline. Until then a name may mean its
//! old or its new statement, and the stronger of the two is taken. Pure; used by the relay. It
//! doesn't keep statement texts.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::base::limits;
use crate::sql::{Classified, Detail, StatementClass, TxEffect};

/// What the relay must know about a program's form, for messages that have none as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Traits {
    pub(crate) tx: TxEffect,
    pub(crate) breaks_guard: bool,
    pub(crate) reset_then_more: bool,
    pub(crate) end_then_more: bool,
    pub(crate) changes_lexing: bool,
    /// It may reach other databases, whose gates are asked as well (W7).
    pub(crate) databases: bool,
    /// Rows may wait in a cursor behind it.
    pub(crate) opens_cursor: bool,
    /// The COMMIT of its transaction may run a cursor's query, without a guard.
    pub(crate) holds_cursor: bool,
    /// Settings are behind it as they were at the login, the capability among them.
    pub(crate) resets_session: bool,
    /// It sets `default_transaction_read_only` for the session.
    pub(crate) owns_read_only: bool,
    /// It puts that back to what it was at the login.
    pub(crate) disowns_read_only: bool,
    /// It may do anything to its session: DO, CALL, and what can't be shown to read.
    pub(crate) opaque: bool,
    /// Behind it the same text may mean something else (`auto_prepare.rs`).
    pub(crate) unsettles: bool,
    /// A single statement that may be kept at the engine under a name of the proxy's.
    pub(crate) repeatable: bool,
}

impl Traits {
    /// A message that does nothing to transaction, guard or lexing: Describe, Close, Execute.
    pub(crate) const fn plain() -> Self {
        Self {
            tx: TxEffect::None,
            breaks_guard: false,
            reset_then_more: false,
            end_then_more: false,
            changes_lexing: false,
            databases: false,
            opens_cursor: false,
            holds_cursor: false,
            resets_session: false,
            owns_read_only: false,
            disowns_read_only: false,
            opaque: false,
            unsettles: false,
            repeatable: false,
        }
    }

    /// A statement nobody has seen.
    pub(crate) const fn unknown() -> Self {
        Self {
            tx: TxEffect::Mixed,
            breaks_guard: true,
            reset_then_more: false,
            end_then_more: false,
            changes_lexing: true,
            databases: true,
            opens_cursor: true,
            holds_cursor: true,
            resets_session: false,
            owns_read_only: false,
            disowns_read_only: false,
            opaque: true,
            unsettles: true,
            repeatable: false,
        }
    }

    /// Whether what has them opens and ends no transaction, and leaves its session's settings and
    /// cursors as they are, as far as its text shows.
    pub(crate) const fn are_calm(self) -> bool {
        let Self {
            tx,
            breaks_guard,
            reset_then_more,
            end_then_more,
            changes_lexing,
            databases,
            opens_cursor,
            holds_cursor,
            resets_session,
            owns_read_only,
            disowns_read_only,
            opaque,
            // Of kept texts only.
            unsettles: _,
            repeatable: _,
        } = self;
        let moves = !matches!(tx, TxEffect::None) || end_then_more || opens_cursor || holds_cursor;
        let sets = breaks_guard || reset_then_more || changes_lexing || resets_session;
        let owns = owns_read_only || disowns_read_only;
        !(moves || sets || owns || databases || opaque)
    }

    pub(crate) fn of(classified: &Classified) -> Self {
        let (class, shape) = (classified.class(), classified.shape());
        // Of writes those of code: DO and CALL may commit inside.
        let runs_code = class.is_writer() && shape.commits();
        Self {
            tx: shape.tx(),
            breaks_guard: shape.breaks_guard(),
            reset_then_more: shape.reset_then_more(),
            end_then_more: shape.end_then_more(),
            changes_lexing: shape.changes_lexing(),
            databases: classified.detail().is_some_and(Detail::reaches_databases),
            opens_cursor: shape.opens_cursor(),
            holds_cursor: shape.holds_cursor(),
            resets_session: shape.resets_session(),
            owns_read_only: shape.owns_read_only(),
            disowns_read_only: shape.disowns_read_only(),
            opaque: runs_code || class == StatementClass::Unprovable,
            unsettles: shape.unsettles(),
            repeatable: shape.repeatable(),
        }
    }
}

/// What is remembered of one statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) class: StatementClass,
    pub(crate) traits: Traits,
}

impl Known {
    /// What SQL PREPARE stands for. It takes queries and their kin only, no lifecycle statement.
    const fn by_sql(class: StatementClass) -> Self {
        Self {
            class,
            traits: Traits {
                databases: false,
                opens_cursor: false,
                holds_cursor: false,
                opaque: matches!(class, StatementClass::Unprovable),
                ..Traits::unknown()
            },
        }
    }
}

#[derive(Debug)]
enum Change {
    Parse(Box<[u8]>, Known),
    Close(Box<[u8]>),
    /// A Close of a portal or of the unnamed statement: answered, but changes no name.
    Nothing,
}

/// Named and unnamed statements and portals of a session.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    unnamed: Option<Known>,
    /// Looked up at every Bind. Sessions have few names: comparing them is cheaper than hashing.
    named: BTreeMap<Box<[u8]>, Known>,
    /// By SQL PREPARE. Only strengthened: whether DEALLOCATE worked isn't known.
    by_sql: HashMap<Box<[u8]>, StatementClass>,
    /// The strongest of those that found no room there: any name may stand for it.
    by_sql_beyond: Option<StatementClass>,
    pending: VecDeque<(u64, Change)>,
    /// What the Parses among these mean, by name: looked up at every Bind.
    coming: HashMap<Box<[u8]>, Coming>,
    /// The same of the unnamed statement, which most pipelines parse anew.
    coming_unnamed: Option<Coming>,
    /// Pipelines with changes that came when too many were pending already, and how many each has.
    /// While there are any, no name is known; and all are forgotten with the last of them.
    unseen: VecDeque<(u64, u64)>,
    /// What is bound under a name may run in a later pipeline, and drop the guard then.
    portals: Vec<(Box<[u8]>, Known)>,
    /// What the unnamed portal may be, of pipelines that were answered or failed.
    unnamed_portal: Option<Known>,
    /// What is bound to it in a pipeline that wasn't answered.
    unnamed_bound: Option<Bound>,
    /// The pipeline that the engine skips to its Sync: nothing more of it will be completed.
    skipped: u64,
    /// Too many names: what isn't remembered is taken for unprovable.
    overflowed: bool,
}

/// The Parses of one name that are pending.
#[derive(Debug)]
struct Coming {
    count: usize,
    /// The newest, with its pipeline.
    last: (u64, Known),
    /// What earlier ones, of whichever pipeline, may mean.
    earlier: Option<Known>,
}

impl Coming {
    /// One more, in front of which these stand.
    fn add(&mut self, last: (u64, Known)) {
        self.count += 1;
        let before = std::mem::replace(&mut self.last, last).1;
        self.earlier = either(self.earlier, Some(before));
    }

    /// The oldest is over: whether it was the last.
    const fn is_last(&mut self) -> bool {
        self.count -= 1;
        self.count == 0
    }
}

/// What a pipeline that wasn't answered binds to the unnamed portal.
#[derive(Debug)]
struct Bound {
    pipeline: u64,
    last: Known,
    /// By earlier Binds of the same pipeline: what it is if a later one fails.
    earlier: Option<Known>,
}

/// A name as the engine keeps it: it looks only at the first 63 bytes (NAMEDATALEN), so two longer
/// names with the same beginning are one statement, or one portal.
fn kept(name: &[u8]) -> &[u8] {
    name.get(..limits::ENGINE_NAME_BYTES_MAX).unwrap_or(name)
}

/// Whether two such names are one to the engine where they are one here. Others may be one that
/// differ in a part which the engine cuts off, in its encoding: nothing is known under them. What
/// is ASCII as far as it is kept is cut to that in every encoding.
fn is_followed(name: &[u8]) -> bool {
    kept(name).is_ascii() || name.len() <= limits::CONVERTED_NAME_BYTES_MAX
}

impl Prepared {
    /// A Parse is forwarded in the pipeline with number `pipeline`.
    pub(crate) fn parsed(&mut self, name: &[u8], known: Known, pipeline: u64) {
        if pipeline == self.skipped {
            return;
        }
        if !is_followed(name) {
            return self.push(pipeline, Change::Nothing);
        }
        let name = kept(name);
        let full = self.named.len() + self.pending.len() >= limits::PREPARED_NAMES_MAX;
        if !name.is_empty() && full {
            // Its earlier meaning isn't the one it will have: no name is known until it is settled.
            self.push_unseen(pipeline);
        } else {
            self.push(pipeline, Change::Parse(name.into(), known));
        }
    }

    /// A change that there is no room for is on its way.
    fn push_unseen(&mut self, pipeline: u64) {
        match self.unseen.back_mut() {
            Some((number, count)) if *number == pipeline => *count += 1,
            Some(_) | None => self.unseen.push_back((pipeline, 1)),
        }
    }

    /// Remembers a change that is on its way, as long as there is room.
    fn push(&mut self, pipeline: u64, change: Change) {
        if !self.unseen.is_empty() || self.pending.len() >= limits::PREPARED_PENDING_MAX {
            return self.push_unseen(pipeline);
        }
        if let Change::Parse(name, known) = &change {
            let last = (pipeline, *known);
            let first = Coming { count: 1, last, earlier: None };
            if !name.is_empty() {
                let coming = self.coming.entry(name.clone());
                coming.and_modify(|coming| coming.add(last)).or_insert(first);
            } else if let Some(coming) = &mut self.coming_unnamed {
                coming.add(last);
            } else {
                self.coming_unnamed = Some(first);
            }
        }
        self.pending.push_back((pipeline, change));
    }

    /// The oldest change of all that are pending has happened, or never will.
    fn pop(&mut self) -> Option<Change> {
        let (_, change) = self.pending.pop_front()?;
        let Change::Parse(name, _) = &change else { return Some(change) };
        if name.is_empty() {
            self.coming_unnamed.take_if(Coming::is_last);
        } else if self.coming.get_mut(name).is_some_and(Coming::is_last) {
            self.coming.remove(name);
        }
        Some(change)
    }

    /// The last change that nobody remembers is over: any name may stand for anything. What SQL
    /// prepared under it says nothing of it either, until a Parse has shown what it means.
    fn forget(&mut self) {
        self.named.clear();
        self.by_sql.clear();
        self.unnamed = None;
        self.overflowed = true;
    }

    fn completed_unseen(&mut self) {
        let Some((_, count)) = self.unseen.front_mut() else { return };
        *count -= 1;
        if *count == 0 {
            self.unseen.pop_front();
        }
        if self.unseen.is_empty() {
            self.forget();
        }
    }

    /// A Close is forwarded; `statement` is the statement's name, `None` for a portal.
    pub(crate) fn closing(&mut self, statement: Option<&[u8]>, pipeline: u64) {
        if pipeline == self.skipped {
            return;
        }
        let change = match statement {
            Some(name) if !name.is_empty() && is_followed(name) => Change::Close(kept(name).into()),
            Some(_) | None => Change::Nothing,
        };
        self.push(pipeline, change);
    }

    /// The engine said ParseComplete or CloseComplete: the oldest pending change has happened.
    pub(crate) fn completed(&mut self) {
        match self.pop() {
            Some(Change::Parse(name, known)) if name.is_empty() => self.unnamed = Some(known),
            Some(Change::Parse(name, known)) => {
                self.named.insert(name, known);
            }
            Some(Change::Close(name)) => {
                self.named.remove(&name);
            }
            Some(Change::Nothing) => {}
            None => self.completed_unseen(),
        }
    }

    /// The engine reported an error in the pipeline with this number. A client may send into it
    /// for as long as it likes without a Sync: none of that is remembered.
    pub(crate) fn failed(&mut self, pipeline: u64) {
        self.unnamed_answered(pipeline, true);
        self.answered(pipeline);
        self.skipped = pipeline;
    }

    /// The pipeline with this number was answered: what it had pending and didn't complete was
    /// skipped.
    pub(crate) fn answered(&mut self, pipeline: u64) {
        self.unnamed_answered(pipeline, false);
        while self.pending.front().is_some_and(|(number, _)| *number <= pipeline) {
            self.pop();
        }
        let unseen = !self.unseen.is_empty();
        while self.unseen.front().is_some_and(|(number, _)| *number <= pipeline) {
            self.unseen.pop_front();
        }
        if unseen && self.unseen.is_empty() {
            self.forget();
        }
    }

    /// What a name means for a Bind in the pipeline `pipeline`; `None` when it isn't known.
    pub(crate) fn look(&self, name: &[u8], pipeline: u64) -> Option<Known> {
        if !self.unseen.is_empty() || !is_followed(name) {
            return None;
        }
        let name = kept(name);
        let settled = if name.is_empty() { self.unnamed } else { self.named.get(name).copied() };
        // The name may be SQL PREPARE's by now: a DEALLOCATE of the earlier one isn't followed.
        let by_sql = self.by_sql.get(name).copied().into_iter().chain(self.by_sql_beyond);
        let by_sql = by_sql.reduce(StatementClass::strongest).map(Known::by_sql);
        let meaning = either(settled, by_sql);
        let coming = match name {
            [] => self.coming_unnamed.as_ref(),
            name => self.coming.get(name),
        };
        match coming {
            // In the same pipeline an earlier failure skips the Bind as well.
            Some(coming) if coming.last.0 == pipeline => Some(coming.last.1),
            // It may be one that isn't remembered.
            Some(_) | None if self.overflowed && settled.is_none() => None,
            Some(coming) => either(meaning, either(coming.earlier, Some(coming.last.1))),
            None => meaning,
        }
    }

    /// A simple query with SQL PREPARE is forwarded.
    pub(crate) fn prepared_by_sql(&mut self, name: &str, class: StatementClass) {
        let name = kept(name.as_bytes());
        if self.by_sql.len() >= limits::PREPARED_NAMES_MAX && !self.by_sql.contains_key(name) {
            self.overflowed = true;
            let beyond = self.by_sql_beyond.map(|old| StatementClass::strongest(old, class));
            self.by_sql_beyond = beyond.or(Some(class));
            return;
        }
        self.by_sql
            .entry(name.into())
            .and_modify(|old| *old = StatementClass::strongest(*old, class))
            .or_insert(class);
    }

    /// The class of SQL EXECUTE of a name: the stronger of all it may mean.
    pub(crate) fn executed_by_sql(&self, name: &str) -> StatementClass {
        let by_wire = self.look(name.as_bytes(), u64::MAX).map(|known| known.class);
        match (self.by_sql.get(kept(name.as_bytes())).copied(), by_wire) {
            _ if self.overflowed || !is_followed(name.as_bytes()) => StatementClass::Unprovable,
            (Some(a), Some(b)) => StatementClass::strongest(a, b),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => StatementClass::Unprovable,
        }
    }

    /// A Bind is forwarded in the pipeline with number `pipeline`.
    pub(crate) fn bound(&mut self, portal: &[u8], known: Known, pipeline: u64) {
        if pipeline == self.skipped || !is_followed(portal) {
            return;
        }
        let portal = kept(portal);
        if portal.is_empty() {
            let before = self.unnamed_bound.take();
            let mut bound = Bound { pipeline, last: known, earlier: None };
            match before {
                Some(before) if before.pipeline == pipeline => {
                    bound.earlier = either(before.earlier, Some(before.last));
                }
                Some(before) => self.unnamed_may_be(&before),
                None => {}
            }
            self.unnamed_bound = Some(bound);
        } else if let Some(named) = self.portals.iter_mut().find(|(name, _)| **name == *portal) {
            named.1 = either(Some(named.1), Some(known)).unwrap_or(known);
        } else if self.portals.len() < limits::PORTALS_MAX {
            self.portals.push((portal.into(), known));
        }
    }

    fn unnamed_may_be(&mut self, bound: &Bound) {
        let any = either(bound.earlier, Some(bound.last));
        self.unnamed_portal = either(self.unnamed_portal, any);
    }

    /// The pipeline `pipeline` was answered: what it bound last to the unnamed portal is that now;
    /// if it failed, any of what it bound may be.
    fn unnamed_answered(&mut self, pipeline: u64, failed: bool) {
        let Some(bound) = self.unnamed_bound.take_if(|bound| bound.pipeline <= pipeline) else {
            return;
        };
        if failed {
            self.unnamed_may_be(&bound);
        } else {
            self.unnamed_portal = Some(bound.last);
        }
    }

    /// What an Execute of a portal in the pipeline `pipeline` runs; `None` for a portal that isn't
    /// known (a cursor declared in SQL, one too many).
    pub(crate) fn portal(&self, portal: &[u8], pipeline: u64) -> Option<Known> {
        let portal = Some(kept(portal)).filter(|_| is_followed(portal))?;
        if !portal.is_empty() {
            let named = self.portals.iter().find(|(name, _)| **name == *portal);
            return named.map(|(_, known)| *known);
        }
        match &self.unnamed_bound {
            // In the same pipeline an earlier failure skips the Execute as well.
            Some(bound) if bound.pipeline == pipeline => Some(bound.last),
            Some(bound) => either(self.unnamed_portal, either(bound.earlier, Some(bound.last))),
            None => self.unnamed_portal,
        }
    }

    /// The transaction ended: portals are gone.
    pub(crate) fn transaction_ended(&mut self) {
        if !self.portals.is_empty() {
            self.portals.clear();
        }
        self.unnamed_portal = None;
        self.unnamed_bound = None;
    }
}

/// What counts of two things a name may mean: the stronger class, and what either of them may do.
fn either(a: Option<Known>, b: Option<Known>) -> Option<Known> {
    let (Some(a), Some(b)) = (a, b) else { return a.or(b) };
    let tx = if a.traits.tx == b.traits.tx { a.traits.tx } else { TxEffect::Mixed };
    let (one, other) = (a.traits, b.traits);
    let traits = Traits {
        tx,
        breaks_guard: one.breaks_guard || other.breaks_guard,
        reset_then_more: one.reset_then_more || other.reset_then_more,
        end_then_more: one.end_then_more || other.end_then_more,
        changes_lexing: one.changes_lexing || other.changes_lexing,
        databases: one.databases || other.databases,
        opens_cursor: one.opens_cursor || other.opens_cursor,
        holds_cursor: one.holds_cursor || other.holds_cursor,
        resets_session: one.resets_session || other.resets_session,
        owns_read_only: one.owns_read_only || other.owns_read_only,
        disowns_read_only: one.disowns_read_only && other.disowns_read_only,
        opaque: one.opaque || other.opaque,
        unsettles: one.unsettles || other.unsettles,
        repeatable: one.repeatable && other.repeatable,
    };
    Some(Known { class: StatementClass::strongest(a.class, b.class), traits })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(class: StatementClass) -> Known {
        Known { class, traits: Traits::plain() }
    }

    #[test]
    fn a_name_counts_for_its_own_pipeline_at_once_and_for_others_once_completed() {
        let mut prepared = Prepared::default();
        prepared.parsed(b"s", known(StatementClass::Write), 1);
        prepared.completed();
        prepared.answered(1);
        prepared.closing(Some(b"s"), 2);
        prepared.parsed(b"s", known(StatementClass::Read), 2);
        assert_eq!(prepared.look(b"s", 2), Some(known(StatementClass::Read)));
        // A later pipeline can't know yet whether pipeline 2 worked: the stronger counts.
        assert_eq!(prepared.look(b"s", 3), Some(known(StatementClass::Write)));
        prepared.completed();
        prepared.completed();
        prepared.answered(2);
        assert_eq!(prepared.look(b"s", 3), Some(known(StatementClass::Read)));
    }

    #[test]
    fn a_failed_parse_leaves_the_old_statement() {
        let mut prepared = Prepared::default();
        prepared.parsed(b"s", known(StatementClass::Write), 1);
        prepared.completed();
        prepared.answered(1);
        prepared.parsed(b"s", known(StatementClass::Read), 2);
        prepared.answered(2);
        assert_eq!(prepared.look(b"s", 3), Some(known(StatementClass::Write)));
    }

    /// A client may send Parse and Close without end into one pipeline that isn't answered.
    #[test]
    fn what_is_pending_is_bounded_and_beyond_that_no_name_is_known() {
        let (mut prepared, max) = (Prepared::default(), limits::PREPARED_PENDING_MAX);
        prepared.parsed(b"old", known(StatementClass::Read), 1);
        prepared.completed();
        prepared.answered(1);
        for _ in 0..max {
            prepared.parsed(b"", known(StatementClass::Read), 2);
        }
        let class = |prepared: &Prepared, name: &[u8], pipeline| {
            prepared.look(name, pipeline).map(|known| known.class)
        };
        assert_eq!(class(&prepared, b"old", 2), Some(StatementClass::Read), "control arm");
        prepared.closing(Some(b"old"), 2);
        prepared.parsed(b"old", known(StatementClass::Write), 2);
        prepared.parsed(b"", known(StatementClass::Write), 2);
        assert!(prepared.pending.len() <= max, "{}", prepared.pending.len());
        for name in [&b"old"[..], b""] {
            assert_eq!(class(&prepared, name, 2), None, "not known from here on");
        }
        for _ in 0..max + 3 {
            prepared.completed();
        }
        prepared.answered(2);
        for name in [&b"old"[..], b""] {
            assert_eq!(class(&prepared, name, 3), None, "nor once it has happened");
        }
        assert_eq!(prepared.executed_by_sql("old"), StatementClass::Unprovable);
        prepared.parsed(b"old", known(StatementClass::Read), 3);
        assert_eq!(class(&prepared, b"old", 3), Some(StatementClass::Read), "but anew it is");
    }

    /// A Parse that finds no room in the middle of a pipeline: an earlier one of that pipeline
    /// isn't what its name means any more.
    #[test]
    fn a_name_that_finds_no_room_has_no_older_meaning_in_its_pipeline() {
        let class = |room: usize| {
            let mut prepared = Prepared::default();
            for name in 0..8 {
                prepared.parsed(&[name + 1], known(StatementClass::Read), 1);
                prepared.completed();
            }
            prepared.answered(1);
            for _ in 8..limits::PREPARED_NAMES_MAX - 2 - room {
                prepared.closing(None, 2);
            }
            prepared.parsed(b"s", known(StatementClass::Read), 2);
            prepared.closing(Some(b"s"), 2);
            prepared.parsed(b"s", known(StatementClass::Write), 2);
            prepared.look(b"s", 2).map(|known| known.class)
        };
        assert_eq!(class(0), None, "VIOLATION: a write by the name of a read");
        assert_eq!(class(1), Some(StatementClass::Write), "control arm: with room for it");
    }

    /// What isn't remembered of a session may be what a name means that SQL has prepared as well.
    #[test]
    fn what_sql_prepared_says_nothing_of_a_name_once_names_are_forgotten() {
        let mut prepared = Prepared::default();
        prepared.prepared_by_sql("s", StatementClass::Read);
        prepared.parsed(b"s", known(StatementClass::Write), 1);
        prepared.completed();
        prepared.answered(1);
        let class =
            |prepared: &Prepared, pipeline| prepared.look(b"s", pipeline).map(|known| known.class);
        assert_eq!(class(&prepared, 2), Some(StatementClass::Write), "control arm: known");
        for _ in 0..=limits::PREPARED_PENDING_MAX {
            prepared.closing(None, 2);
        }
        prepared.answered(2);
        assert_eq!(class(&prepared, 3), None, "VIOLATION: the write is a read of SQL's");
        // Another pipeline's Parse may fail, and then it still is.
        prepared.parsed(b"s", known(StatementClass::Read), 3);
        assert_eq!(class(&prepared, 4), None);
        prepared.completed();
        prepared.answered(3);
        assert_eq!(class(&prepared, 4), Some(StatementClass::Read), "known anew");
    }

    #[test]
    fn what_sql_prepared_beyond_the_bound_counts_for_every_name() {
        let mut prepared = Prepared::default();
        prepared.parsed(b"s", known(StatementClass::Read), 1);
        prepared.completed();
        prepared.answered(1);
        prepared.prepared_by_sql("t", StatementClass::Read);
        for name in 1..limits::PREPARED_NAMES_MAX {
            prepared.prepared_by_sql(&name.to_string(), StatementClass::Read);
        }
        let class =
            |prepared: &Prepared, name: &[u8]| prepared.look(name, 2).map(|known| known.class);
        assert_eq!(class(&prepared, b"s"), Some(StatementClass::Read), "control arm");
        prepared.prepared_by_sql("t", StatementClass::Write);
        assert_eq!(class(&prepared, b"t"), Some(StatementClass::Write), "VIOLATION: has a place");
        prepared.prepared_by_sql("s", StatementClass::Write);
        assert_eq!(class(&prepared, b"s"), Some(StatementClass::Write), "VIOLATION: has none");
    }

    /// A portal lives on in a block, and what it runs may drop the guard in a later program.
    #[test]
    fn a_portal_is_what_was_bound_to_it_and_every_way_it_may_have_failed_counts() {
        let ends = Traits { breaks_guard: true, ..Traits::plain() };
        let end = Known { class: StatementClass::TransactionControl, traits: ends };
        let read = known(StatementClass::Read);
        let breaks = |prepared: &Prepared, portal: &[u8], pipeline| {
            prepared.portal(portal, pipeline).map(|known| known.traits.breaks_guard)
        };
        for portal in [&b""[..], b"p"] {
            let mut prepared = Prepared::default();
            prepared.bound(portal, end, 1);
            assert_eq!(breaks(&prepared, portal, 1), Some(true));
            prepared.answered(1);
            assert_eq!(breaks(&prepared, portal, 2), Some(true), "VIOLATION: an end unseen");
            // Not known yet, then failed, then skipped: the old one may be there still.
            prepared.bound(portal, read, 2);
            assert_eq!(breaks(&prepared, portal, 3), Some(true), "VIOLATION: not answered yet");
            prepared.failed(2);
            prepared.bound(portal, read, 2);
            prepared.answered(2);
            assert_eq!(breaks(&prepared, portal, 3), Some(true), "VIOLATION: it was skipped");
            prepared.transaction_ended();
            assert_eq!(breaks(&prepared, portal, 4), None);
        }
        let mut prepared = Prepared::default();
        prepared.bound(b"", end, 1);
        prepared.bound(b"", read, 1);
        assert_eq!(breaks(&prepared, b"", 1), Some(false), "control arm: the second, or none");
        assert_eq!(breaks(&prepared, b"", 2), Some(true), "VIOLATION: if the second fails");
        prepared.failed(1);
        assert_eq!(breaks(&prepared, b"", 2), Some(true), "VIOLATION: the second failed");
        prepared.bound(b"", read, 3);
        prepared.answered(3);
        assert_eq!(breaks(&prepared, b"", 4), Some(false), "control arm: known anew");
    }

    /// Looked up at every Bind, whatever is pending: not by walking through that.
    #[test]
    fn a_name_that_is_not_pending_is_not_searched_for_there() {
        let mut prepared = Prepared::default();
        for _ in 0..200_000 {
            prepared.parsed(b"", known(StatementClass::Read), 1);
            assert_eq!(prepared.look(b"x", 1), None);
        }
    }

    #[test]
    fn what_is_sent_into_a_failed_pipeline_is_not_remembered() {
        let mut prepared = Prepared::default();
        let send = |prepared: &mut Prepared, pipeline| {
            for name in [&b""[..], b"s"] {
                prepared.parsed(name, known(StatementClass::Read), pipeline);
                prepared.closing(Some(name), pipeline);
            }
            prepared.closing(None, pipeline);
        };
        send(&mut prepared, 1);
        assert_eq!(prepared.pending.len(), 5);
        prepared.failed(1);
        send(&mut prepared, 1);
        assert_eq!(prepared.pending.len(), 0);
        prepared.answered(1);
        send(&mut prepared, 2);
        assert_eq!(prepared.pending.len(), 5, "control arm: the next pipeline counts");
    }

    #[test]
    fn a_skipped_parse_leaves_the_old_unnamed_statement() {
        let mut prepared = Prepared::default();
        prepared.parsed(b"", known(StatementClass::Write), 1);
        assert_eq!(prepared.look(b"", 1), Some(known(StatementClass::Write)));
        prepared.completed();
        prepared.answered(1);
        // Skipped: something before it in its pipeline failed.
        prepared.parsed(b"", known(StatementClass::Read), 2);
        assert_eq!(prepared.look(b"", 2), Some(known(StatementClass::Read)), "skipped with it");
        assert_eq!(prepared.look(b"", 3), Some(known(StatementClass::Write)), "not known yet");
        prepared.answered(2);
        assert_eq!(prepared.look(b"", 3), Some(known(StatementClass::Write)));
    }

    #[test]
    fn a_name_taken_over_by_sql_counts_as_both() {
        let mut prepared = Prepared::default();
        prepared.parsed(b"s", known(StatementClass::Read), 1);
        prepared.completed();
        prepared.answered(1);
        // DEALLOCATE s; PREPARE s AS INSERT …
        prepared.prepared_by_sql("s", StatementClass::Write);
        assert_eq!(prepared.look(b"s", 2).unwrap().class, StatementClass::Write);
    }

    #[test]
    fn what_either_statement_may_do_counts() {
        let mut prepared = Prepared::default();
        let resets = Traits { breaks_guard: true, ..Traits::plain() };
        prepared.parsed(b"s", Known { class: StatementClass::Session, traits: resets }, 1);
        prepared.completed();
        prepared.answered(1);
        prepared.parsed(b"s", known(StatementClass::Write), 2);
        let both = Known { class: StatementClass::Write, traits: resets };
        assert_eq!(prepared.look(b"s", 3), Some(both));
    }

    #[test]
    fn names_that_the_engine_takes_for_one_are_one() {
        let (mut prepared, long) = (Prepared::default(), [b'x'; 63]);
        let [a, b] = [&b"a"[..], "é".as_bytes()].map(|end| [&long[..], end].concat());
        prepared.parsed(&a, known(StatementClass::Read), 1);
        prepared.completed();
        prepared.closing(Some(&b), 2);
        prepared.completed();
        prepared.parsed(&b, known(StatementClass::Write), 3);
        prepared.completed();
        let class = |name: &[u8]| prepared.look(name, 4).map(|known| known.class);
        assert_eq!(class(&a), Some(StatementClass::Write));
        assert_eq!(class(&long), Some(StatementClass::Write));
        assert_eq!(class(&long[1..]), None);
    }

    /// In Latin 1 these are two names, and in the engine's UTF-8 one, once it has cut them.
    #[test]
    fn names_that_the_engine_may_take_for_one_are_not_known() {
        let [a, b] = [b"a", b"b"].map(|end| [&[0xe9; 40][..], end].concat());
        let mut prepared = Prepared::default();
        for name in [&a, &b] {
            prepared.parsed(name, known(StatementClass::Read), 1);
            prepared.bound(name, known(StatementClass::Read), 1);
            prepared.closing(Some(name), 1);
            prepared.completed();
            prepared.completed();
            assert_eq!(prepared.look(name, 1), None, "VIOLATION: known by one of its names");
            assert_eq!(prepared.portal(name, 1), None);
        }
        assert!(prepared.pending.is_empty());
        let short = [&[0xe9; 14][..], b"a"].concat();
        prepared.parsed(&short, known(StatementClass::Read), 2);
        assert!(prepared.look(&short, 2).is_some(), "control arm: nothing is cut off");
    }

    #[test]
    fn unknown_names_are_unprovable() {
        let prepared = Prepared::default();
        assert_eq!(prepared.look(b"nope", 1), None);
        assert_eq!(prepared.executed_by_sql("nope"), StatementClass::Unprovable);
        assert_eq!(prepared.portal(b"", 1), None);
    }
}
