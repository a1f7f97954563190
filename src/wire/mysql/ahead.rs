//! The guard for the program that comes next, sent behind the one that runs now.
//!
//! Purpose: W17 of wire.md without its round trip, the twin of what `wire/pg/guard.rs` does. Where
//! a guarded program only reads, the `SET SESSION TRANSACTION READ ONLY` for the next one goes out
//! behind it, in the same write. When that one comes its guard is confirmed, as a rule, and it
//! waits for nothing. What is known by then is what a guard in front would tell: the engine has set
//! it outside of transactions, by the status of its own OK, behind all that the session ran before;
//! and nothing of the client's has run since, but for what runs no SQL. One that failed counts for
//! nothing, nor against the session: in front of the next program there is another.
//!
//! This is the one place where two commands are with the engine. Both engines leave the second one
//! where it is until the first is answered: in plaintext, over TLS, in a pool of threads, behind
//! errors, kills, timeouts and answers that nobody takes (tried; compression is never agreed on).
//! But a program that reads from its client would take the guard for what it asked for: nothing is
//! sent behind these. Nor behind what is longer than an engine reads at least: it would close the
//! connection with the guard unread, and the reset could overtake its error. And an engine that
//! waits wouldn't see its client go away: it looks whether there is anything to read. Nothing is
//! sent behind a text that says that it waits, and the relay has other reads killed in the end.
//!
//! Pure; part of `conversation.rs`. It judges no statement.

use crate::base::arm::{Removable, removed};
use crate::base::limits;
use crate::sql::{StatementClass, Toggle, TxEffect};
use crate::wire::mysql::capabilities as bits;
use crate::wire::mysql::commands::{Command, Reply};
use crate::wire::mysql::conversation::{Conversation, Inbound, Stand, Whose};
use crate::wire::mysql::guard::SET_READ_ONLY;
use crate::wire::mysql::program::Program;
use crate::wire::mysql::refusal;
use crate::wire::mysql::standing::Branch;
use crate::wire::shared::forced::Forced;
use crate::wire::shared::outgoing::Outgoing;

/// What is known of the guard that was sent ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// There is none.
    No,
    /// It is behind the program that runs.
    Sent,
    /// It is being answered, in a session that may be or isn't in a transaction of the client's.
    Owed {
        /// The program left one open: the guard isn't of what comes next.
        spoilt: bool,
    },
}

/// The bits of a COM_STMT_EXECUTE's flags that ask for a cursor.
const CURSOR: u8 = 0b111;

/// Where they stand, behind the opcode and the statement's number.
const EXECUTE_FLAGS: usize = 5;

impl Conversation {
    /// Sends the guard for the program that comes next behind the one that was forwarded just now;
    /// `payload` is the whole of it. Its leases are held until the guard is answered as well.
    pub(crate) fn arm_ahead(&mut self, payload: &[u8], out: &mut Outgoing<'_>) {
        if self.guard.on && self.may_arm_ahead(payload) {
            self.guard.ahead = Ahead::Sent;
            let attributes = self.begun.agreed.has(bits::QUERY_ATTRIBUTES);
            out.inject(|buffer| refusal::query(buffer, SET_READ_ONLY, attributes));
        }
    }

    pub(super) fn may_arm_ahead(&self, payload: &[u8]) -> bool {
        // With autocommit off a read begins a transaction, and the guard would be set in it.
        let outside = self.stand == Stand::Outside && self.status.is_autocommit();
        let guarded =
            matches!(self.owed, Some(Whose::Client { guarded: true, wrapped: false, .. }))
                && self.seats.is_guarded();
        // Behind a change of the seat the next program may have none.
        let seated = self.seats.capability().is_none() && !self.bearing.is_changing();
        let alone = !self.xa && self.branch == Branch::None && self.inbound == Inbound::Commands;
        outside
            && guarded
            && seated
            && alone
            // A session that is read-only by itself has nothing undone at opening.
            && self.guard.own == Toggle::Off
            && self.forced == Forced::No
            && !self.lost
            && !self.guard.failed
            && !self.seats.home().gate().word().writes_open()
            && payload.len() <= limits::GUARD_AHEAD_PROGRAM_BYTES_MAX
            && (self.is_calm(payload) || removed(Removable::CalmAhead))
            && !removed(Removable::ReadOnlyGuard)
    }

    /// Whether the program that runs is one read and nothing else, and waits for nothing but tables
    /// and rows: whatever becomes of it the session is outside of transactions, and nothing more is
    /// read from the client for it.
    fn is_calm(&self, payload: &[u8]) -> bool {
        let Some(program) = &self.program else { return false };
        // A cursor's rows are fetched behind it.
        let cursor = || payload.get(EXECUTE_FLAGS).is_none_or(|flags| flags & CURSOR != 0);
        let form = matches!(program.command, Command::Query | Command::Prepare)
            || program.command == Command::Execute && !cursor();
        form && program.class == StatementClass::Read
            && program.tx() == TxEffect::None
            && program.executed.is_empty()
            && !program.changes_unknown
            && !program.commits_implicitly()
            && program.classified.as_ref().is_some_and(|text| {
                let prepares = text.detail().is_some_and(|all| !all.my.prepared.is_empty());
                text.shape().is_calm() && !prepares
            })
    }

    /// The client's program has been answered: what the engine answers next is the guard behind it.
    /// False where there is none.
    pub(crate) fn goes_on_to_ahead(&mut self) -> bool {
        if self.guard.ahead != Ahead::Sent {
            return false;
        }
        let spoilt = matches!(self.stand, Stand::Inside { .. });
        self.guard.ahead = Ahead::Owed { spoilt };
        self.tracker.expect(Reply::Results);
        self.owed = Some(Whose::Ahead);
        true
    }

    /// The engine has answered it. Its OK tells whether a transaction is open, also behind a
    /// program whose error didn't.
    pub(crate) fn ahead_answered(&mut self, well: bool) {
        let spoilt = self.guard.ahead == Ahead::Owed { spoilt: true };
        let outside = self.stand == Stand::Outside && !spoilt;
        self.guard.ahead = Ahead::No;
        self.guard.ready = well && (outside || removed(Removable::GuardStatus));
    }

    /// Whether a guard is behind the program that runs.
    pub(crate) fn is_armed_ahead(&self) -> bool {
        self.guard.ahead == Ahead::Sent
    }

    /// Whether nothing is owed but a guard that was sent ahead. Its answer is read whether or not
    /// the client takes what the program before has said: leases hang on it.
    pub(crate) fn awaits_ahead(&self) -> bool {
        self.owed == Some(Whose::Ahead)
    }

    /// Whether a confirmed guard is in force behind this command as well: nothing of the client's
    /// runs for it.
    pub(super) const fn keeps_guard(program: &Program) -> bool {
        matches!(program.command, Command::Ping | Command::ResetStatement | Command::SetOption)
    }
}
