//! What the engine still owes: one entry per ReadyForQuery that is to come, in order.
//!
//! Purpose: a release is the ReadyForQuery of the last message forwarded with nothing forwarded
//! behind it (wire.md W4), so the relay must know exactly how many are to come. That is not the
//! number of Syncs: a COPY FROM STDIN swallows those sent before CopyDone (facts B.11), and the
//! proxy's own injected statements have answers too. Pure; used by the relay's two directions.
//!
//! Errs to the safe side: where a client mixes messages in a way whose answers can't be counted,
//! an entry stays and the lease with it.

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
    /// CopyDone or CopyFail was forwarded in it.
    copy_end: bool,
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
            copy_end: false,
            guarded: false,
            refused: None,
            failed: false,
            may_commit: false,
            number,
        }
    }
}

impl Entry {
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
    /// it: the two have one ReadyForQuery.
    pub(crate) fn simple(&mut self, whose: Whose) -> &mut Entry {
        if self.has_open_tail() {
            if let Some(entry) = self.entries.back_mut() {
                entry.form = Form::Simple;
                entry.bare = false;
            }
        } else {
            self.push(whose, Form::Simple, false);
        }
        self.newest()
    }

    /// A message of an extended pipeline (not Sync, not COPY data) is forwarded.
    pub(crate) fn extended(&mut self) -> &mut Entry {
        if self.has_open_tail() {
            if let Some(entry) = self.entries.back_mut() {
                entry.bare = false;
            }
        } else {
            let form = Form::Extended { synced: false };
            self.push(Whose::Client, form, false);
        }
        self.newest()
    }

    /// A Sync is forwarded.
    pub(crate) fn sync(&mut self) {
        if self.copying {
            return;
        }
        if self.has_open_tail() {
            if let Some(entry) = self.entries.back_mut() {
                entry.form = Form::Extended { synced: true };
            }
        } else {
            let form = Form::Extended { synced: true };
            self.push(Whose::Client, form, true);
        }
    }

    /// CopyDone or CopyFail is forwarded.
    pub(crate) fn copy_end(&mut self) {
        self.copying = false;
        if let Some(entry) = self.entries.back_mut() {
            entry.copy_end = true;
        }
    }

    /// The engine went into COPY FROM STDIN: Syncs forwarded since, and before CopyDone, are lost.
    pub(crate) fn copy_in_began(&mut self) {
        let Some(front) = self.entries.front() else { return };
        let mut ended = front.copy_end;
        let simple = front.form == Form::Simple;
        if front.form == (Form::Extended { synced: false }) {
            self.copying = !ended;
            return;
        }
        while !ended {
            match self.entries.get(1) {
                Some(next) if next.bare && next.whose == Whose::Client => {
                    ended = next.copy_end;
                    self.entries.remove(1);
                }
                Some(_) | None => break,
            }
        }
        if simple {
            self.copying = !ended;
            return;
        }
        // The front's own Sync was ignored: the next one that counts ends it.
        let form = match self.entries.remove(1) {
            Some(next) => next.form,
            None => Form::Extended { synced: false },
        };
        self.copying = !ended && form == (Form::Extended { synced: false });
        if let Some(front) = self.entries.front_mut() {
            front.form = form;
        }
    }

    /// The engine reported an error: it is out of COPY, if it was in one.
    pub(crate) fn errored(&mut self) {
        self.copying = false;
    }

    /// A ReadyForQuery came: the front entry is answered.
    pub(crate) fn answered(&mut self) -> Option<Entry> {
        self.copying = false;
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
mod tests {
    use super::*;

    fn counted(script: &str) -> usize {
        let mut owed = Owed::default();
        for step in script.chars() {
            match step {
                'Q' => drop(owed.simple(Whose::Client)),
                'P' => drop(owed.extended()),
                'S' => owed.sync(),
                'c' => owed.copy_end(),
                'G' => owed.copy_in_began(),
                'E' => owed.errored(),
                'Z' => drop(owed.answered()),
                _ => {}
            }
        }
        owed.len()
    }

    fn drop<T>(_: T) {}

    /// Left of the arrow what is forwarded (Q P S d c) and what the engine says (G E Z); the
    /// number is how many ReadyForQuery are still to come.
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
            ("PPPSGddcSZ", 0),
            // The same, with everything sent before the engine says CopyIn.
            ("PPPSddcSGZ", 0),
            ("PPPSdSdcSGZ", 0),
            // And then another pipeline right behind it.
            ("PPPSddcSPPPSGZ", 1),
            ("PPPGddcSZ", 0),
            // The engine gives up in the middle: the late end is ignored, its Sync counts.
            ("PPPSGdEdcSZ", 0),
            ("PPPSGdS", 1),
        ] {
            assert_eq!(counted(script), left, "{script}");
        }
    }
}
