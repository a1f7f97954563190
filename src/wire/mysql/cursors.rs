//! Open cursors of prepared statements, and how a read fence closes them.
//!
//! Purpose: rows that wait in a cursor are a read that hasn't ended, also while no command runs and
//! no transaction is open. Known by the engine's status flags, so that nothing is taken for open
//! that isn't. A read fence whose time is over closes them by COM_STMT_RESET; a FETCH that comes
//! later is answered with the fence's code, also when reads are open again.
//!
//! Rows of other schemas than the default one hold no lease there while nobody fetches: their FETCH
//! is admitted at those gates, and so refused (`client.rs`).
//!
//! Pure; part of `conversation.rs`.

use bytes::BytesMut;

use crate::base::ids::Generation;
use crate::base::limits;
use crate::fence::code::Denial;
use crate::wire::mysql::commands::{self, Command, Reply};
use crate::wire::mysql::conversation::{Conversation, Outcome, Whose};
use crate::wire::mysql::program::Program;
use crate::wire::mysql::refusal;
use crate::wire::shared::forced::Forced;

/// One open cursor.
#[derive(Debug)]
struct Cursor {
    /// Its statement's number.
    statement: u32,
    /// The generation it was opened under.
    generation: Generation,
}

/// Cursors of a session.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    open: Vec<Cursor>,
    /// To be closed, as soon as nothing is owed.
    closing: Vec<u32>,
    /// Statements whose cursor a read fence has closed: their clients don't know that yet.
    cut: Vec<u32>,
}

impl Cursors {
    /// Whether one is open that was opened before `before`.
    pub(crate) fn any_older(&self, before: Generation) -> bool {
        self.open.iter().any(|cursor| cursor.generation < before)
    }

    /// Takes those that were opened before `before` to be closed. False if there are none.
    pub(crate) fn cut(&mut self, before: Generation) -> bool {
        let mut any = false;
        self.open.retain(|cursor| {
            let due = cursor.generation < before;
            if due {
                any = true;
                self.closing.push(cursor.statement);
            }
            !due
        });
        any
    }

    /// What a FETCH from a cursor that a read fence has closed is refused with.
    pub(crate) fn refuses(&self, program: &Program) -> Option<Denial> {
        let cut = |number| self.cut.contains(&number) || self.closing.contains(&number);
        let fetches = program.command == Command::Fetch && program.number.is_some_and(cut);
        fetches.then_some(Denial::ReadFenced)
    }

    fn forget(&mut self, statement: u32) {
        self.open.retain(|cursor| cursor.statement != statement);
        self.closing.retain(|closing| *closing != statement);
        self.cut.retain(|cut| *cut != statement);
    }
}

impl Conversation {
    /// A command about a prepared statement has been answered.
    pub(crate) fn note_cursor(&mut self, program: &Program, outcome: Outcome) {
        let Some(number) = program.number else { return };
        let status = match outcome {
            Outcome::Well(status) => status,
            Outcome::Badly(_) => None,
        };
        match (program.command, status) {
            (Command::Execute | Command::BulkExecute, status) => {
                self.cursors.forget(number);
                let opened = status.is_some_and(|status| status.cursor_exists());
                let generation = self.seats.lease().map(|lease| lease.stamp().generation);
                if let (true, Some(generation)) = (opened, generation)
                    && self.cursors.open.len() < limits::PREPARED_NAMES_MAX
                {
                    self.cursors.open.push(Cursor { statement: number, generation });
                }
            }
            (Command::Fetch, Some(status)) if status.last_row_sent() => {
                self.cursors.forget(number);
            }
            (Command::ResetStatement, Some(_)) => self.cursors.forget(number),
            (_, _) => return,
        }
        self.show_cursors();
    }

    /// A prepared statement was closed, and its cursor with it.
    pub(crate) fn statement_gone(&mut self, number: Option<u32>) {
        if let Some(number) = number {
            self.cursors.forget(number);
            self.show_cursors();
        }
    }

    /// The session was reset.
    pub(crate) fn cursors_gone(&mut self) {
        self.cursors = Cursors::default();
        self.show_cursors();
    }

    /// Has the engine close the next cursor that a read fence cuts, if there is one.
    pub(crate) fn close_cut(&mut self, to_engine: &mut BytesMut) {
        if self.tracker.is_owing() || self.forced != Forced::No {
            return;
        }
        let Some(statement) = self.cursors.closing.pop() else {
            return self.show_cursors();
        };
        self.cursors.cut.push(statement);
        let argument = statement.to_le_bytes();
        refusal::command(to_engine, commands::RESET_STATEMENT, &argument);
        self.tracker.expect(Reply::Ok);
        self.owed = Some(Whose::Cursor);
    }

    /// What drains see: a cursor that is being closed is open until the engine has said so.
    fn show_cursors(&self) {
        let any = !self.cursors.open.is_empty() || !self.cursors.closing.is_empty();
        if self.owed.is_none() || any {
            self.seats.home().set_cursor(any);
        }
    }

    /// What the client of a replica's stream is told in place of an end that a read fence made.
    pub(crate) fn cut_stream(&self) -> Option<Denial> {
        let streams = matches!(self.running(), Some(Command::BinlogDump | Command::BinlogDumpGtid));
        self.cut_reading().filter(|_| streams)
    }

    /// What a client is told whose connection to the engine ends while a read fence stops what it
    /// runs.
    pub(crate) fn cut_reading(&self) -> Option<Denial> {
        let cut = matches!(self.forced, Forced::Stopping { .. }) && self.running().is_some();
        cut.then_some(self.forced_why).filter(|why| *why == Denial::ReadFenced)
    }
}
