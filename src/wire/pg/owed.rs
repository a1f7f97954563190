//! What the engine still owes: one entry per ReadyForQuery that is to come, in order.
//!
//! Purpose: a release is the ReadyForQuery of the last message forwarded with nothing forwarded
//! behind it (wire.md W4), so the relay must know exactly how many are to come. That is not the
//! number of Syncs: a COPY FROM STDIN swallows those sent before CopyDone (facts B.11), an error in
//! a pipeline has the engine skip everything to the next Sync, simple queries included, and the
//! proxy's own injected statements have answers too. Pure; used by the relay's two directions.
//!
//! Errs to the safe side: where a client mixes messages in a way whose answers can't be counted
//! (Syncs among the data of a COPY that fails), an entry stays and the lease with it.

use std::collections::VecDeque;

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

/// One ReadyForQuery to come.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) whose: Whose,
    form: Form,
    /// Nothing but Sync, Flush and COPY messages in it.
    bare: bool,
    /// CopyData was forwarded in it.
    data: bool,
    /// CopyDone and CopyFail that were forwarded in it, less those that ended a COPY by now.
    ends: u32,
    /// How many of these stand in front of its Sync.
    ends_before_sync: u32,
    /// Its Sync stands behind CopyData.
    synced_behind_data: bool,
    /// The engine is, or was last, in a COPY FROM STDIN of it that hasn't gone well yet.
    in_copy: bool,
    /// Messages of a pipeline forwarded in it, each of which the engine answers with one of
    /// ParseComplete, BindComplete, CloseComplete, a description, or the end of an Execute.
    asked: u32,
    /// How many of those came; more, where a query's own answers are among them.
    done: u32,
    /// One of them failed: the engine skips everything to the next Sync.
    skipping: bool,
    /// Syncs that the COPY under way has swallowed, if it hasn't failed in front of them.
    doubtful: u32,
    /// ReadyForQuery that may come beside its own: doubtful Syncs of a COPY that failed.
    more: u32,
    /// The engine runs it in read-only mode, by the proxy's guard.
    pub(crate) guarded: bool,
    /// A statement that can't succeed stands in it for a refused one (wire.md W9).
    pub(crate) refused: Option<Box<Refusal>>,
    /// The engine answered it with an error.
    pub(crate) failed: bool,
    /// It may commit something when it ends.
    pub(crate) may_commit: bool,
    /// Its number in the session's sequence of programs.
    pub(crate) number: u64,
}

impl Entry {
    const fn new(whose: Whose, form: Form, bare: bool, number: u64) -> Self {
        Self {
            whose,
            form,
            bare,
            data: false,
            ends: 0,
            ends_before_sync: 0,
            synced_behind_data: false,
            in_copy: false,
            asked: 0,
            done: 0,
            skipping: false,
            doubtful: 0,
            more: 0,
            guarded: false,
            refused: None,
            failed: false,
            may_commit: false,
            number,
        }
    }
}

impl Entry {
    /// The next entry turned out to be the end of this one's program.
    fn absorb(&mut self, next: Self) {
        self.form = next.form;
        self.bare &= next.bare;
        self.ends_before_sync = self.ends.saturating_add(next.ends_before_sync);
        self.ends = self.ends.saturating_add(next.ends);
        self.synced_behind_data = self.data || next.synced_behind_data;
        self.data |= next.data;
        self.asked = self.asked.saturating_add(next.asked);
        self.guarded |= next.guarded;
        self.may_commit |= next.may_commit;
        self.refused = self.refused.take().or(next.refused);
        self.number = next.number;
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
    /// The engine is in COPY FROM STDIN and ignores Syncs.
    copying: bool,
    /// Which entry an answer belongs to isn't certain any more, until nothing is owed: from here on
    /// whatever is forwarded counts, and nothing is taken back.
    uncertain: bool,
    /// The number of the newest entry.
    number: u64,
}

impl Owed {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

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
        self.copying = false;
        if self.has_open_tail() {
            if let Some(entry) = self.entries.back_mut() {
                if !entry.skipping {
                    entry.form = Form::Simple;
                }
                entry.bare = false;
            }
        } else {
            self.push(whose, Form::Simple, false);
        }
        self.newest()
    }

    /// A message of an extended pipeline (not Sync, not COPY data) is forwarded.
    pub(crate) fn extended(&mut self) -> &mut Entry {
        self.copying = false;
        if self.has_open_tail() {
            if let Some(entry) = self.entries.back_mut() {
                entry.bare = false;
            }
        } else {
            let form = Form::Extended { synced: false };
            self.push(Whose::Client, form, false);
        }
        let entry = self.newest();
        entry.asked = entry.asked.saturating_add(1);
        entry
    }

    /// A Sync is forwarded.
    pub(crate) fn sync(&mut self) {
        if self.copying {
            let among = self.entries.iter().any(|entry| entry.data);
            if let Some(front) = self.entries.front_mut()
                && among
            {
                front.doubtful = front.doubtful.saturating_add(1);
            }
            return;
        }
        if self.has_open_tail() {
            if let Some(entry) = self.entries.back_mut() {
                entry.form = Form::Extended { synced: true };
                entry.ends_before_sync = entry.ends;
                entry.synced_behind_data = entry.data;
            }
        } else {
            let form = Form::Extended { synced: true };
            self.push(Whose::Client, form, true);
        }
    }

    /// CopyData is forwarded.
    pub(crate) fn copy_data(&mut self) {
        if let Some(entry) = self.entries.back_mut() {
            entry.data = true;
        }
    }

    /// CopyDone or CopyFail is forwarded.
    pub(crate) fn copy_end(&mut self) {
        self.copying = false;
        if let Some(entry) = self.entries.back_mut() {
            entry.ends = entry.ends.saturating_add(1);
        }
    }

    /// The engine went into COPY FROM STDIN: Syncs forwarded since, and before CopyDone, are lost.
    pub(crate) fn copy_in_began(&mut self) {
        let uncertain = self.uncertain;
        let Some(front) = self.entries.front_mut().filter(|_| !uncertain) else { return };
        front.in_copy = true;
        if front.ends > 1 {
            // Either may have been sent for nothing.
            self.uncertain = true;
            return;
        }
        let (form, mut ends, mut data) = (front.form, front.ends, front.data);
        if form == (Form::Extended { synced: false }) {
            self.copying = ends == 0 && front.asked.saturating_sub(front.done) <= 1;
            return;
        }
        let synced = form == (Form::Extended { synced: true });
        // An Execute's with more of its program behind it has ended or failed, or the session is
        // lost: no Sync of it was swallowed.
        let more = front.asked.saturating_sub(front.done) > u32::from(synced);
        if more || synced && front.ends_before_sync > 0 {
            return;
        }
        let mut doubtful = u32::from(synced && front.synced_behind_data);
        while ends == 0 {
            match self.entries.get(1) {
                Some(next) if next.bare && next.whose == Whose::Client => {
                    doubtful = doubtful.saturating_add(u32::from(data));
                    data |= next.data;
                    ends = next.ends;
                    self.entries.remove(1);
                }
                Some(_) | None => break,
            }
        }
        // A pipeline's own Sync was ignored: what comes up to the next one that counts is the same
        // program.
        let next = if synced { self.entries.remove(1) } else { None };
        let alone = self.entries.len() == 1;
        let Some(front) = self.entries.front_mut() else { return };
        front.data |= data;
        front.ends = ends;
        front.doubtful = doubtful;
        if synced {
            front.form = Form::Extended { synced: false };
        }
        if let Some(next) = next {
            front.absorb(next);
        }
        // With another program behind it it has failed, or the session is lost.
        let synced = front.form == (Form::Extended { synced: true });
        self.copying = alone && front.ends == 0 && !synced;
    }

    /// The engine has answered one message of a pipeline, or one statement, in full: if it was in a
    /// COPY, that one has gone well.
    pub(crate) fn completed(&mut self) {
        self.copying = false;
        if let Some(front) = self.entries.front_mut() {
            front.done = front.done.saturating_add(1);
            if std::mem::take(&mut front.in_copy) {
                front.ends = front.ends.saturating_sub(1);
                front.ends_before_sync = front.ends_before_sync.saturating_sub(1);
                front.doubtful = 0;
                // A second end: sent ahead for another COPY, or for nothing.
                self.uncertain |= front.ends > 0;
            }
        }
    }

    /// The engine reported an error: it is out of COPY, if it was in one. If the error was that of
    /// a message of a pipeline the engine skips everything to the next Sync, and so one
    /// ReadyForQuery answers all of it.
    pub(crate) fn errored(&mut self) {
        self.copying = false;
        let uncertain = self.uncertain;
        let Some(front) = self.entries.front_mut().filter(|_| !uncertain) else { return };
        let failed = front.done < front.asked;
        front.asked = front.done;
        front.in_copy = false;
        let doubtful = std::mem::take(&mut front.doubtful);
        if doubtful > 0 {
            // Those behind what failed count, and nobody here knows which these are.
            front.more = front.more.saturating_add(doubtful);
            self.uncertain = true;
        } else if failed {
            front.skipping = true;
            if front.form == Form::Simple {
                self.skip_to_sync();
            }
        }
    }

    /// The front's pipeline failed before the simple query that ended it.
    fn skip_to_sync(&mut self) {
        let mut last = None;
        while last.as_ref().is_none_or(|last: &Entry| last.form != Form::Extended { synced: true })
            && self.entries.get(1).is_some_and(|next| next.whose == Whose::Client)
        {
            last = self.entries.remove(1);
        }
        let Some(front) = self.entries.front_mut() else { return };
        front.form = match &last {
            Some(last) if last.form != Form::Simple => last.form,
            Some(_) | None => Form::Extended { synced: false },
        };
        // The skipped ones' names are forgotten with its own (`prepared.rs`).
        front.number = last.map_or(front.number, |last| last.number);
    }

    /// A ReadyForQuery came: the front entry is answered, unless more may come for it.
    pub(crate) fn answered(&mut self) -> Option<Entry> {
        self.copying = false;
        if let Some(front) = self.entries.front_mut()
            && front.more > 0
        {
            front.more -= 1;
            return None;
        }
        self.uncertain &= self.entries.len() > 1;
        self.entries.pop_front()
    }

    /// The number a message forwarded now would belong to.
    pub(crate) fn next_number(&self) -> u64 {
        if self.has_open_tail() { self.number } else { self.number + 1 }
    }

    fn push(&mut self, whose: Whose, form: Form, bare: bool) {
        self.number += 1;
        self.entries.push_back(Entry::new(whose, form, bare, self.number));
    }

    fn newest(&mut self) -> &mut Entry {
        if self.entries.is_empty() {
            // Only reachable if a caller above stopped pushing: an entry too many is the safe side.
            self.push(Whose::Client, Form::Simple, false);
        }
        let last = self.entries.len() - 1;
        &mut self.entries[last]
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(script: &str) -> usize {
        let mut owed = Owed::default();
        for step in script.chars() {
            match step {
                'Q' => drop(owed.simple(Whose::Client)),
                'P' => drop(owed.extended()),
                'S' => owed.sync(),
                'd' => owed.copy_data(),
                'c' => owed.copy_end(),
                '1' => owed.completed(),
                'G' => owed.copy_in_began(),
                'E' => owed.errored(),
                'Z' => drop(owed.answered()),
                _ => {}
            }
        }
        owed.len()
    }

    fn drop<T>(_: T) {}

    /// What is forwarded (Q P S d c) and what the engine says (G E Z, and 1 for the answer to a P),
    /// in the order in which the relay sees it; how many ReadyForQuery are still to come then.
    #[test]
    fn counts_what_postgres_answers() {
        for (script, left) in [
            ("QZ", 0),
            ("QQZ", 1),
            ("PPPSZ", 0),
            ("PPPSPPPSZ", 1),
            ("PPP", 1),
            ("PQZ", 0),
            ("SSZZ", 0),
            // COPY in a simple query: data, end; Syncs before CopyDone are ignored.
            ("QGddcZ", 0),
            ("QGdScZ", 0),
            ("QSGdcZ", 0),
            ("QGddcSZZ", 0),
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
            ("PPPddcS11G1SZ", 1),
            // An error in a pipeline: everything to the next Sync is skipped, queries included.
            ("PQSEZ", 0),
            ("PQES", 1),
            ("PQESZ", 0),
            ("PEQSZ", 0),
            ("PEQQPQSZ", 0),
            ("PQSQEZ", 1),
            ("PQQPQPSQSEZ", 2),
            ("PPPQS11EZ", 0),
            ("PQPEPQSZ", 0),
            ("PQPEPQQSZQZ", 0),
            // The error was the query's own: nothing is skipped.
            ("PQS1EZ", 1),
            ("PQS1EZZ", 0),
            ("P1QSEZ", 1),
            ("QSEZ", 1),
            ("PPPQS111EZ", 1),
            // Control arm: without an error the query and the Sync have an answer each.
            ("PQS1Z", 1),
            // Syncs among the data of a COPY that goes well, and of one that fails: which of these
            // count the engine alone knows. One too many is owed, never one too few.
            ("QGdSdSc1Z", 0),
            ("QdSdScG1Z", 0),
            ("PPPS11GdSdScS1Z", 0),
            ("QGdSEScSZ", 3),
            ("QdScSQG EZZZ", 1),
            ("PPPSdScSQ11GEZZ", 1),
            ("PPPSdScSQ11GEZ", 2),
            ("PPP11GdSEcSZ", 1),
        ] {
            assert_eq!(counted(script), left, "{script}");
        }
    }
}
