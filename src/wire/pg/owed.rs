//! What the engine still owes: one entry per program whose ReadyForQuery is to come, in order.
//!
//! Purpose: a release is the ReadyForQuery of the last message forwarded with nothing forwarded
//! behind it (wire.md W4), so the relay must know which ReadyForQuery answers what. Their number
//! alone doesn't tell: a COPY FROM STDIN swallows Syncs until it has ended or failed (facts B.11),
//! and where it fails the engine alone knows how many; an error in a pipeline has the engine skip
//! everything to the next Sync, simple queries included; and the proxy's own injected statements
//! have answers too. Pure; used by the relay's two directions.
//!
//! What holds it together: **a ReadyForQuery with nothing in front of it but notices answers a
//! Sync that stood alone, and one with something in front of it answers a program.** So a Sync too
//! many or too few never takes a program's place: no lease is released by another one's answer.
//!
//! Errs to the safe side: where a client sends another program into a COPY that fails, an entry
//! may stay and the lease with it. And where the engine's answers show that it doesn't skip what it
//! was believed to skip, or nobody can tell whether it does, that is [`Unclear`], and the session's
//! end: names, guard and leases hang on it.

use std::collections::VecDeque;

use crate::base::arm::{Removable, removed};
use crate::base::limits;
use crate::gate::admission::Refusal;

/// Whose program an entry stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The client's: its answers go to the client.
    Client,
    /// The proxy's own guard statement: its answers are swallowed.
    Guard,
    /// The statement that undoes the guard: its answers are swallowed.
    Undo,
    /// The proxy's own ROLLBACK or BEGIN around a forced rollback: answers swallowed.
    Own,
}

/// How an entry's ReadyForQuery comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A simple query or function call: answered by itself.
    Simple,
    /// An extended pipeline: answered at its Sync.
    Extended {
        /// Whether a Sync that counts has been forwarded.
        synced: bool,
    },
}

/// What a ReadyForQuery stands behind, and so what it can say of an open block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behind {
    /// A Sync that stood alone: whatever its status, it ends nothing (PostgreSQL 18 says `I` there,
    /// and is still in the transaction that a pipeline began).
    LoneSync,
    /// A pipeline's Sync, which ends any block but the client's own.
    Sync,
    /// A query or call by itself.
    Simple,
    /// A query or call in a pipeline without a Sync: PostgreSQL 18 may leave a block open that
    /// nobody asked for, until the next Sync.
    Mixed,
}

/// What the engine does with the messages that it has can't be known any more: skip, or run them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unclear;

/// COPY data or its end that was forwarded into a pipeline without a COPY that was known of. The
/// engine ignores it, but an error that it raises there (`statement_timeout`) has it skip nothing:
/// it is no message of a pipeline.
#[derive(Debug, Clone, Copy)]
struct Stray {
    /// How many messages of the pipeline stood in front of the first and of the last.
    first: u32,
    last: u32,
    /// An end is among those at `last`.
    ended: bool,
    /// Something stands behind an end, where no COPY takes it.
    goes_on: bool,
}

/// One program whose ReadyForQuery is to come.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) whose: Whose,
    form: Form,
    /// How many Syncs stand here, and nothing else but Flush and COPY messages; 0 in a program.
    /// They do nothing, and the engine may swallow them: they count for nothing.
    alone: u32,
    /// CopyDone and CopyFail that were forwarded in it, less those that ended a COPY by now.
    ends: u32,
    /// How many of these stand in front of its Sync.
    ends_before_sync: u32,
    /// The engine is in a COPY FROM STDIN of it.
    in_copy: bool,
    /// A COPY FROM STDIN of it failed.
    copy_failed: bool,
    /// Messages of a pipeline forwarded in it, each of which the engine answers with one of
    /// ParseComplete, BindComplete, CloseComplete, a description, or the end of an Execute.
    asked: u32,
    /// How many of those came; more, where a query's own answers are among them.
    done: u32,
    /// One of them has the engine begin a transaction; a Close doesn't.
    begins: bool,
    /// COPY messages among them that no COPY has taken.
    stray: Option<Stray>,
    /// One of them failed: the engine skips everything to the next Sync.
    skipping: bool,
    /// A Flush was forwarded in it: an error may come on that, behind every answer.
    flushed: bool,
    /// Something in it may do more to its session than read, or was refused.
    pub(crate) stirs: bool,
    /// A guard that was sent behind another program, for the one that comes next.
    pub(crate) ahead: bool,
    /// The engine has said that the proxy's own SET in it was done.
    pub(crate) confirmed: bool,
    /// The engine runs it in read-only mode, by the proxy's guard.
    pub(crate) guarded: bool,
    /// A statement that can't succeed stands in it for a refused one (wire.md W9).
    pub(crate) refused: Option<Box<Refusal>>,
    /// The engine answered it with an error.
    pub(crate) failed: bool,
    /// It may commit something when it ends.
    pub(crate) may_commit: bool,
    /// Nothing is known of what it may do.
    pub(crate) opaque: bool,
    /// Its number in the session's sequence of programs.
    pub(crate) number: u64,
}

impl Entry {
    const fn new(whose: Whose, form: Form, alone: u32, number: u64) -> Self {
        Self {
            whose,
            form,
            alone,
            ends: 0,
            ends_before_sync: 0,
            in_copy: false,
            copy_failed: false,
            asked: 0,
            done: 0,
            begins: false,
            stray: None,
            skipping: false,
            flushed: false,
            stirs: false,
            ahead: false,
            confirmed: false,
            guarded: false,
            refused: None,
            failed: false,
            may_commit: false,
            opaque: false,
            number,
        }
    }

    /// The next entry turned out to be the end of this one's program.
    fn absorb(&mut self, next: Self) {
        self.form = next.form;
        self.ends_before_sync = self.ends.saturating_add(next.ends_before_sync);
        self.ends = self.ends.saturating_add(next.ends);
        for at in next.stray.iter().flat_map(|stray| [stray.first, stray.last]) {
            self.goes_astray(self.asked.saturating_add(at), true);
        }
        self.asked = self.asked.saturating_add(next.asked);
        self.begins |= next.begins;
        self.flushed |= next.flushed;
        self.guarded |= next.guarded;
        self.may_commit |= next.may_commit;
        self.opaque |= next.opaque;
        self.stirs |= next.stirs;
        self.refused = self.refused.take().or(next.refused);
        self.number = next.number;
    }

    /// How many messages of a pipeline were forwarded in it.
    pub(crate) const fn asked(&self) -> u32 {
        self.asked
    }

    /// How many of those the engine has answered.
    pub(crate) const fn done(&self) -> u32 {
        self.done
    }

    /// Whether it stands for Syncs that nothing else belongs to.
    pub(crate) const fn is_lone(&self) -> bool {
        self.alone > 0
    }

    /// Something at `at` that no COPY may take; `goes_on` if none can.
    fn goes_astray(&mut self, at: u32, goes_on: bool) {
        let new = Stray { first: at, last: at, ended: false, goes_on };
        let stray = self.stray.get_or_insert(new);
        stray.first = stray.first.min(at);
        if stray.last < at {
            (stray.last, stray.ended) = (at, false);
        }
        stray.goes_on |= goes_on || stray.ended;
    }

    /// COPY data or its end (`ends`) is forwarded behind what it has. In front of its COPY's end it
    /// is that one's, as far as a COPY is under way or may be.
    fn takes_copy(&mut self, ends: bool) {
        let synced = self.form == (Form::Extended { synced: true });
        if !self.skipping && (synced || self.lacks_sync()) {
            if self.in_copy || synced {
                if self.ends > 0 {
                    self.goes_astray(self.asked, true);
                }
            } else {
                self.goes_astray(self.asked, false);
                if let Some(stray) = &mut self.stray {
                    stray.ended |= ends;
                }
            }
        }
        self.ends = self.ends.saturating_add(u32::from(ends));
    }

    /// Whether an error that comes now may have been raised at a COPY message that no COPY took.
    fn errs_astray(&self) -> bool {
        let at =
            |stray: Stray| self.done >= stray.first && (self.done <= stray.last || stray.goes_on);
        !self.in_copy && !self.skipping && self.stray.is_some_and(at)
    }

    /// What its ReadyForQuery stands behind. PostgreSQL begins no transaction for a Close: a Sync
    /// behind nothing else is as empty as one that stands alone.
    pub(crate) const fn behind(&self) -> Behind {
        match self.form {
            Form::Extended { .. } if self.alone > 0 => Behind::LoneSync,
            Form::Extended { .. } if !self.begins && !self.skipping => Behind::LoneSync,
            Form::Extended { .. } => Behind::Sync,
            Form::Simple if self.asked > 0 => Behind::Mixed,
            Form::Simple => Behind::Simple,
        }
    }

    /// Whether it is a guarded program of the client's, forwarded to its end, behind which the
    /// session is idle again, whether it succeeds or fails: nothing of it may begin a transaction
    /// or take COPY data, and one ReadyForQuery answers it.
    pub(crate) fn is_calm(&self) -> bool {
        let reads = !self.stirs && !self.may_commit && !self.opaque && self.refused.is_none();
        let copies = self.in_copy || self.copy_failed || self.ends > 0 || self.stray.is_some();
        let ended = match self.behind() {
            Behind::Sync | Behind::Simple => !self.lacks_sync(),
            Behind::LoneSync | Behind::Mixed => false,
        };
        let calm = reads && ended || removed(Removable::CalmAhead);
        self.whose == Whose::Client && self.guarded && calm && !copies && !self.skipping
    }

    /// Whether the engine has begun to run a query of the client's by itself: it has no unnamed
    /// statement any more then. One that it can't read, or skips, leaves that as it is.
    pub(crate) fn has_run_a_query(&self) -> bool {
        self.whose == Whose::Client && self.behind() == Behind::Simple && self.done > 0
    }

    /// An unfinished pipeline: the engine answers it at a Sync, or rolls it back at the end of the
    /// client's sending.
    pub(crate) const fn lacks_sync(&self) -> bool {
        matches!(self.form, Form::Extended { synced: false })
    }
}

/// The queue of entries.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    entries: VecDeque<Entry>,
    /// How many of them are programs.
    programs: usize,
    /// The engine has said something since its last ReadyForQuery, beside what it says unasked.
    spoken: bool,
    /// Which program an answer belongs to isn't certain any more, until nothing is owed: from here
    /// on every program counts until a ReadyForQuery of one comes.
    uncertain: bool,
    /// The number of the newest entry.
    number: u64,
}

impl Owed {
    /// Whether an answer too many may be owed: nobody else can tell what the engine still says.
    pub(crate) fn is_uncertain(&self) -> bool {
        self.uncertain
    }

    /// Whether no answer is to come, but perhaps to Syncs that do nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.programs == 0
    }

    /// Whether one program is owed, and no more.
    pub(crate) const fn has_one(&self) -> bool {
        self.programs == 1
    }

    /// Whether nothing is owed but one calm program ([`Entry::is_calm`]).
    pub(crate) fn is_one_calm(&self) -> bool {
        self.entries.len() == 1 && !self.uncertain && self.front().is_some_and(Entry::is_calm)
    }

    /// Whether nothing of the client's is owed.
    pub(crate) fn is_free_of_programs(&self) -> bool {
        self.entries.iter().all(|entry| entry.whose != Whose::Client)
    }

    /// Whether nothing is owed but a guard that was sent ahead.
    pub(crate) fn is_one_ahead(&self) -> bool {
        self.entries.len() == 1 && self.front().is_some_and(|entry| entry.ahead)
    }

    /// Whether so much is owed that nothing more may be sent. Syncs that do nothing count as well:
    /// each has an answer, and a client may send a CopyDone behind each, which keeps them apart.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= limits::OWED_MAX
    }

    /// Whether nothing at all can come.
    pub(crate) fn is_silent(&self) -> bool {
        self.entries.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn front(&self) -> Option<&Entry> {
        self.entries.front()
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut Entry> {
        self.entries.front_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Whether messages of an extended pipeline were forwarded behind the last Sync.
    pub(crate) fn has_open_tail(&self) -> bool {
        matches!(self.entries.back(), Some(Entry { form: Form::Extended { synced: false }, .. }))
    }

    /// A simple query or function call is forwarded. One sent inside an unfinished pipeline ends
    /// it: the two have one ReadyForQuery. In one that has failed it is skipped.
    pub(crate) fn simple(&mut self, whose: Whose) -> &mut Entry {
        if self.has_open_tail() {
            if let Some(entry) = self.entries.back_mut()
                && !entry.skipping
            {
                entry.form = Form::Simple;
            }
        } else {
            self.push(whose, Form::Simple, 0);
        }
        self.newest()
    }

    /// A message of an extended pipeline (not Sync, not Close, not COPY data) is forwarded.
    pub(crate) fn extended(&mut self) -> &mut Entry {
        let entry = self.closing();
        entry.begins = true;
        entry
    }

    /// A Close is forwarded.
    pub(crate) fn closing(&mut self) -> &mut Entry {
        if !self.has_open_tail() {
            self.push(Whose::Client, Form::Extended { synced: false }, 0);
        }
        let entry = self.newest();
        entry.asked = entry.asked.saturating_add(1);
        entry
    }

    /// A Flush is forwarded.
    pub(crate) fn flush(&mut self) {
        if self.has_open_tail()
            && let Some(entry) = self.entries.back_mut()
        {
            entry.flushed = true;
        }
    }

    /// A Sync is forwarded.
    pub(crate) fn sync(&mut self) {
        let open = self.has_open_tail();
        match self.entries.back_mut() {
            Some(entry) if open => {
                entry.form = Form::Extended { synced: true };
                entry.ends_before_sync = entry.ends;
            }
            // One entry however many: a client may send Syncs without end into a COPY.
            Some(entry) if entry.alone > 0 && entry.ends == 0 => {
                entry.alone = entry.alone.saturating_add(1);
            }
            Some(_) | None => self.push(Whose::Client, Form::Extended { synced: true }, 1),
        }
    }

    /// CopyData is forwarded, or CopyDone or CopyFail (`ends`).
    pub(crate) fn copy(&mut self, ends: bool) {
        if let Some(entry) = self.entries.back_mut() {
            entry.takes_copy(ends);
        }
    }

    /// Whether COPY data or its end forwarded now would stand in a guarded pipeline and not be a
    /// COPY's, as far as is known, nor be skipped: an error there would take the guard away, with
    /// what follows on its way already.
    pub(crate) fn copy_unguards(&self) -> bool {
        let unguards = |entry: &Entry| entry.guarded && !entry.in_copy && !entry.skipping;
        self.has_open_tail() && self.entries.back().is_some_and(unguards)
    }

    /// The engine says something that isn't ReadyForQuery, nor what it says unasked (notices,
    /// notifications, parameters). Answers whether another entry is in front now: no Sync in front
    /// of what is spoken of is answered any more.
    pub(crate) fn speaks(&mut self) -> bool {
        self.spoken = true;
        let before = self.entries.len();
        while self.entries.front().is_some_and(Entry::is_lone) {
            self.entries.pop_front();
        }
        self.entries.len() != before
    }

    /// Whether the engine is in a COPY FROM STDIN, as far as it has said.
    pub(crate) fn is_in_copy(&self) -> bool {
        self.entries.front().is_some_and(|front| front.in_copy)
    }

    /// The engine went into COPY FROM STDIN.
    pub(crate) fn copy_in_began(&mut self) {
        if let Some(front) = self.entries.front_mut() {
            front.in_copy = true;
        }
    }

    /// The engine has answered one message of a pipeline, or one statement, in full: if it was in a
    /// COPY, that one has gone well.
    pub(crate) fn completed(&mut self) {
        let Some(front) = self.entries.front_mut() else { return };
        front.done = front.done.saturating_add(1);
        if std::mem::take(&mut front.in_copy) {
            let done = front.done;
            // What stood behind its Execute it took, up to an end.
            front.stray = front.stray.filter(|stray| stray.last > done || stray.goes_on);
            if let Some(stray) = front.stray.as_mut().filter(|stray| !stray.goes_on) {
                stray.first = stray.first.max(done.saturating_add(1));
            }
            self.copy_ended();
        }
    }

    /// A COPY has gone well: every Sync in front of its end was swallowed.
    fn copy_ended(&mut self) {
        let uncertain = self.uncertain;
        let Some(front) = self.entries.front_mut().filter(|_| !uncertain) else { return };
        let synced = front.form == (Form::Extended { synced: true });
        if synced && front.ends_before_sync > 0 {
            front.ends_before_sync -= 1;
            front.ends -= 1;
            // Another end: one of the two was sent for nothing, or for another COPY.
            self.uncertain = front.ends > 0;
            return;
        }
        while front_ends(&self.entries) == 0
            && self.entries.get(1).is_some_and(|next| next.alone > 0)
        {
            if let (Some(next), Some(front)) = (self.take(1), self.entries.front_mut()) {
                front.ends = next.ends;
            }
        }
        let next = if synced { self.take_next() } else { None };
        let Some(front) = self.entries.front_mut() else { return };
        front.ends = front.ends.saturating_sub(1);
        if synced {
            // Its own Sync is among them: what comes up to the next one is the same program.
            front.form = Form::Extended { synced: false };
        }
        if front.ends > 0 && synced {
            front.goes_astray(front.asked, true);
        }
        if let Some(next) = next {
            front.absorb(next);
        }
    }

    /// What stands behind the front; of several Syncs the first.
    fn take_next(&mut self) -> Option<Entry> {
        match self.entries.get_mut(1) {
            Some(next) if next.alone > 1 => {
                next.alone -= 1;
                Some(Entry::new(next.whose, next.form, 1, next.number))
            }
            Some(_) => self.take(1),
            None => None,
        }
    }

    fn take(&mut self, at: usize) -> Option<Entry> {
        let entry = if at == 0 { self.entries.pop_front() } else { self.entries.remove(at) }?;
        self.programs -= usize::from(!entry.is_lone());
        Some(entry)
    }

    /// The engine reported an error: it is out of COPY, if it was in one. If the error was that of
    /// a message of a pipeline the engine skips everything to the next Sync, and so one
    /// ReadyForQuery answers all of it. With all that was asked answered, an error in front of a
    /// pipeline's Sync or query came on a Flush (`statement_timeout`), which has it skip as well.
    ///
    /// # Errors
    /// [`Unclear`] where it may have come on COPY data or its end outside a COPY, which doesn't.
    pub(crate) fn errored(&mut self) -> Result<(), Unclear> {
        // Where the ends of programs are uncertain it may be another entry's.
        let any = self.uncertain && self.entries.iter().any(|entry| entry.stray.is_some());
        let Some(front) = self.entries.front_mut() else { return Ok(()) };
        if front.errs_astray() || any && !front.in_copy {
            return Err(Unclear);
        }
        front.copy_failed |= std::mem::take(&mut front.in_copy);
        let answered = front.done >= front.asked;
        let failed = !answered || front.lacks_sync();
        front.asked = front.done;
        // The Flush's, and what stands behind is skipped; or the query's own, and it isn't.
        self.uncertain |= answered && front.flushed && front.form == Form::Simple;
        if failed {
            front.skipping = true;
            if front.form == Form::Simple && !self.uncertain {
                self.skip_to_sync();
            }
        }
        Ok(())
    }

    /// The front's pipeline failed before the simple query that ended it.
    fn skip_to_sync(&mut self) {
        let mut last = None;
        while last.as_ref().is_none_or(|last: &Entry| last.form != Form::Extended { synced: true })
            && self.entries.get(1).is_some_and(|next| next.whose == Whose::Client)
        {
            last = self.take_next();
        }
        let Some(front) = self.entries.front_mut() else { return };
        front.form = match &last {
            Some(last) if last.form != Form::Simple => last.form,
            Some(_) | None => Form::Extended { synced: false },
        };
        // The skipped ones' names are forgotten with its own (`prepared.rs`).
        front.number = last.map_or(front.number, |last| last.number);
    }

    /// A ReadyForQuery came: the entry that it answers, if that has no further one to come.
    ///
    /// # Errors
    /// [`Unclear`] where something was said in front of it, and the program that this was said for
    /// has neither had its Sync nor its query: the engine has ended it all the same, and runs what
    /// it was believed to skip.
    pub(crate) fn answered(&mut self) -> Result<Option<Entry>, Unclear> {
        let spoken = std::mem::take(&mut self.spoken);
        let Some(front) = self.entries.front_mut() else { return Ok(None) };
        if spoken && front.alone == 0 && front.lacks_sync() {
            return Err(Unclear);
        }
        Ok(match (spoken, front.alone) {
            (_, 2..) => {
                front.alone -= 1;
                None
            }
            // Whatever it was said for, what is in front hasn't ended.
            (false, 0) => None,
            (false, 1) | (true, _) => {
                let ended = self.take(0);
                let doubted = |ended: &Entry| ended.copy_failed && self.is_doubted(ended);
                self.uncertain |= ended.as_ref().is_some_and(doubted);
                self.uncertain &= !self.is_empty();
                ended
            }
        })
    }

    /// Of the Syncs forwarded into a COPY that failed, those behind its failure count, and nobody
    /// here knows which these are. Behind an Execute the engine skips to the first of them: then a
    /// program behind them may be skipped, or not.
    fn is_doubted(&self, failed: &Entry) -> bool {
        failed.form != Form::Simple && failed.ends_before_sync == 0 && !self.is_empty()
    }

    /// The number a message forwarded now would belong to.
    pub(crate) fn next_number(&self) -> u64 {
        if self.has_open_tail() { self.number } else { self.number + 1 }
    }

    fn push(&mut self, whose: Whose, form: Form, alone: u32) {
        self.number += 1;
        self.programs += usize::from(alone == 0);
        if self.entries.len() == self.entries.capacity() && self.entries.len() < 2 {
            // Most sessions never have a second one, or a third under a fence: room for four would
            // stay with each of them.
            self.entries.reserve_exact(1);
        }
        self.entries.push_back(Entry::new(whose, form, alone, self.number));
    }

    fn newest(&mut self) -> &mut Entry {
        if self.entries.is_empty() {
            // Only reachable if a caller above stopped pushing: an entry too many is the safe side.
            self.push(Whose::Client, Form::Simple, 0);
        }
        let last = self.entries.len() - 1;
        &mut self.entries[last]
    }
}

fn front_ends(entries: &VecDeque<Entry>) -> u32 {
    entries.front().map_or(0, |front| front.ends)
}

#[cfg(test)]
pub(super) mod model;

#[cfg(test)]
mod tests {
    use super::*;

    /// How many programs are left; `None` if the answers show that nobody can tell.
    fn counted(script: &str) -> Option<usize> {
        let mut owed = Owed::default();
        for step in script.chars() {
            if "G1EZ".contains(step) {
                owed.speaks();
            }
            match step {
                'Q' => drop(owed.simple(Whose::Client)),
                'P' => drop(owed.extended()),
                'S' => owed.sync(),
                'd' | 'c' => owed.copy(step == 'c'),
                '1' => owed.completed(),
                'G' => owed.copy_in_began(),
                'E' => owed.errored().ok()?,
                'Z' | 'z' => drop(owed.answered().ok()?),
                _ => {}
            }
        }
        Some(owed.iter().filter(|entry| !entry.is_lone()).count())
    }

    fn drop<T>(_: T) {}

    /// What is forwarded (Q P S d c) and what the engine says (G E, 1 for the answer to a P, Z for
    /// a ReadyForQuery behind something, z for one behind nothing), in the order in which the
    /// relay sees it; how many programs are left then (Syncs that stand alone count for nothing).
    #[test]
    fn counts_what_postgres_answers() {
        for (script, left) in [
            ("QZ", 0),
            ("QQZ", 1),
            ("PPPSZ", 0),
            ("PPPSPPPSZ", 1),
            ("PPP", 1),
            ("PQZ", 0),
            ("SSzz", 0),
            ("SSz", 0),
            // COPY in a simple query: data, end; Syncs before CopyDone are ignored.
            ("QGddc1Z", 0),
            ("QGdSc1Z", 0),
            ("QSGdc1Z", 0),
            ("QGddcS1Zz", 0),
            // tokio-postgres: P B E Sync, then data, CopyDone, Sync: one answer.
            ("PPPS11GddcS1Z", 0),
            // The same, with everything sent before the engine says CopyIn.
            ("PPPSddcS11G1Z", 0),
            ("PPPSdSdcS11G1Z", 0),
            // And then another pipeline right behind it.
            ("PPPSddcSPPPS11G1Z", 1),
            ("PPP11GddcS1Z", 0),
            // The engine gives up in the middle: the late end is ignored, its Sync counts.
            ("PPPS11GdEdcSZ", 0),
            ("PPPS11GdS", 1),
            // All of the COPY in front of its one Sync.
            ("PPPddcS11G1Z", 0),
            ("PPPddcSPPPS11G1Z", 1),
            ("PPPddcS11G1SZ", 0),
            // An error in a pipeline: everything to the next Sync is skipped, queries included.
            ("PQSEZ", 0),
            ("PQES", 1),
            ("PQESZ", 0),
            ("PEQSZ", 0),
            ("PEQQPQSZ", 0),
            ("PQSQEZ", 1),
            ("PQQPQPSQSEZ", 1),
            ("PPPQS11EZ", 0),
            ("PQPEPQSZ", 0),
            ("PQPEPQQSZQZ", 0),
            // The error was the query's own: nothing is skipped.
            ("PQS1EZ", 0),
            ("PQS1EZz", 0),
            ("P1QSEZ", 0),
            ("QSEZ", 0),
            ("PPPQS111EZ", 0),
            ("PQQS1EZ", 1),
            ("PPPQQS111EZ", 1),
            // Control arm: without an error the query and the Sync have an answer each.
            ("PQS1Z", 0),
            // An end sent for nothing in front of a COPY's own: nothing is left over that could
            // have an error behind it skip what isn't skipped.
            ("PPcPSdcS11G1Z", 0),
            ("PPcPSdcS11G1ZQEZ", 0),
            ("PPcPSdcS11G1ZQEZPQQQS11ZEZ", 1),
            // All of a COPY in front of its own Sync, and a program behind it: that one's to come.
            ("PPPdcSPPPS11G1Z", 1),
            // A COPY that fails before it reads a byte: every Sync behind it is answered, and none
            // of those answers is that of the program behind them.
            ("QSQGEZz", 1),
            ("QSSSQGEZzzz", 1),
            ("QSQGEZzZ", 0),
            ("PPPSSPPPS11GEZz", 1),
            ("PPPSSPPPS11GEZzZ", 0),
            // One that has failed by the time of the Sync.
            ("QGdSQEZz", 1),
            ("QGdSQEZzZ", 0),
            // Syncs among the data of a COPY that goes well, and of one that fails.
            ("QGdSdSc1Z", 0),
            ("QdSdScG1Z", 0),
            ("PPPS11GdSdScS1Z", 0),
            ("QGdSEScSZ", 0),
            ("QdScSQGEZzz", 1),
            ("QdScSQGEZzzZ", 0),
            ("PPPSdScSQ11GEZZ", 0),
            ("PPPSdScSQ11GEZ", 1),
            ("PPP11GdSEcSZ", 0),
            // An error that comes on a Flush (H): statement_timeout, noticed there. All that was
            // asked is answered by then, and yet everything to the next Sync is skipped.
            ("P1HEQQSZ", 0),
            ("P1HEPPSZ", 0),
            ("P1HEQSZQ", 1),
            ("P1HEQSZQ1Z", 0),
            // Control arm: the query's own error, as above.
            ("P1HQEZ", 0),
        ] {
            assert_eq!(counted(script), Some(left), "{script}");
        }
    }

    /// The same signs: where the engine may run what it was believed to skip, and where it can't.
    #[test]
    fn what_nobody_can_count_is_told_from_what_can_be() {
        for (script, clear) in [
            // Ready in a pipeline that has no Sync: it doesn't skip.
            ("P1HEZ", false),
            ("P1HcEZ", false),
            ("PEZ", false),
            // With the rest on its way already it can't be told by then.
            ("PHcPPPS1E", false),
            ("PHcQ1E", false),
            ("PHdPPPS1E", false),
            ("PcPc1E", false),
            ("PcPc11E", false),
            // In front of a stray one it is a message's own, and behind it too.
            ("PcPPSE", true),
            ("PcPPS11EZ", true),
            ("PPPcQSEZ", true),
            // A COPY took what stands behind its Execute, up to the end and no further.
            ("PPPdcQS11G1EZ", true),
            ("PPPdcPQS11G1EZ", true),
            ("PPPdcdQS11G1E", false),
            ("PPPdccQS11G1E", false),
            ("PPPdcQS11E", true),
            ("PPPdcQS11GEZ", true),
            // Its Sync among what it took: a second end is in the same pipeline.
            ("PPPS11GdccQ1E", false),
            ("PPPS11GdcS1EZ", true),
            // Late, behind an error: skipped, or with nothing under way.
            ("PPPS11GEdcSZ", true),
            ("P1HEcSZ", true),
            ("QGEZdc", true),
        ] {
            assert_eq!(counted(script).is_some(), clear, "{script}");
        }
    }
}
