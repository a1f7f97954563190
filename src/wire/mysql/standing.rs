//! What a program is where its session stands: what its text alone doesn't tell.
//!
//! Purpose: W6, W14 and W17 of wire.md where the same words are one thing in one session and
//! another in the next: the end of a session's own XA branch or of a stranger's, a setting lifted
//! between transactions or within one, a dump's BEGIN. Each is narrower than its text's class, and
//! only where the engine itself lets it be nothing else.
//!
//! A branch that the engine has rolled back (a deadlock) is remembered here, since the status tells
//! of no transaction any more: what may have ended it in the engine has it forgotten, so that a
//! stranger's is never taken for it. Its leases have been released by then, by the engine's word
//! that no transaction is open: nothing that it wrote is left, nor a lock.
//!
//! Called by `client.rs` and `conversation.rs`. Pure.

use crate::gate::admission::Seat;
use crate::gate::capability::{Capability, Purpose};
use crate::gate::drain::is_dumps;
use crate::sql::{MyFlavour, Shape, StatementClass, TxEffect};
use crate::wire::mysql::conversation::{Conversation, Outcome, Stand, Whose};
use crate::wire::mysql::program::Program;
use crate::wire::mysql::seats::Reach;

/// The session's own XA branch, as far as its programs and their answers tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Branch {
    /// There is none, or nobody knows.
    None,
    /// The engine has begun it, and nothing since could have ended it.
    Begun,
    /// The same, and it has told by an error that it has rolled back what was done in it, or may
    /// have. Then it takes nothing but XA ROLLBACK from the session, and refuses the end of any
    /// other branch (MariaDB 1400, MySQL 1399).
    Failed,
}

/// Errors with which an engine may roll back an XA branch, or tells that it has: a wait for a lock
/// that was too long, a deadlock, and the answers to XA END behind such.
const ROLLED_BACK: [u16; 5] = [1205, 1213, 1402, 1613, 1614];

/// Errors of an XA ROLLBACK with which nothing is ended: the branch isn't known, or can't be ended
/// in this state.
const NOT_ENDED: [u16; 3] = [1397, 1399, 1400];

impl Conversation {
    /// A program of the client's has been answered.
    pub(crate) fn note_branch(&mut self, program: &Program, outcome: Outcome) {
        let errno = match outcome {
            Outcome::Well(_) => None,
            Outcome::Badly(errno) => Some(errno),
        };
        let begins = program.alone().is_some_and(Shape::begins_branch);
        let inside = matches!(self.stand, Stand::Inside { .. });
        let rolls_back = program.alone().is_some_and(|shape| shape.tx() == TxEffect::Rollback);
        let stays = program.ends_no_branch()
            || (rolls_back && errno.is_some_and(|errno| NOT_ENDED.contains(&errno)));
        self.branch = match (self.branch, errno) {
            (_, None) if begins && inside => Branch::Begun,
            (Branch::Begun | Branch::Failed, _) if !stays => Branch::None,
            (Branch::Begun, Some(errno)) if ROLLED_BACK.contains(&errno) => Branch::Failed,
            // The engine takes nothing in such a branch: so there is none.
            (Branch::Failed, None) if program.runs() => Branch::None,
            (known @ (Branch::None | Branch::Begun | Branch::Failed), _) => known,
        };
    }

    /// Something has been answered: a statement of the proxy's own that ran well may have been an
    /// end.
    pub(crate) fn note_own_statement(&mut self, well: bool) {
        if well && !matches!(self.owed, Some(Whose::Client { .. } | Whose::Ping)) {
            self.branch = Branch::None;
        }
    }

    /// Whether it is about the session's own branch, which the engine has rolled back: XA END or
    /// XA ROLLBACK. No guard goes in front of it, which the engine would refuse there.
    pub(crate) fn is_about_failed(&self, program: &Program) -> bool {
        let about =
            |shape: Shape| shape.xa() && matches!(shape.tx(), TxEffect::None | TxEffect::Rollback);
        self.branch == Branch::Failed
            && self.stand == Stand::Outside
            && program.class == StatementClass::TransactionControl
            && program.alone().is_some_and(about)
    }

    /// The program as what it is here.
    pub(crate) fn where_it_stands(&self, program: Program) -> Program {
        let own = match self.stand {
            Stand::Inside { .. } => self.xa,
            Stand::Outside => self.branch == Branch::Failed,
            Stand::Unknown => false,
        };
        if own && self.may_end_own(&program) {
            // Inside one, both engines refuse the end of any other branch (1399, 1400): the end of
            // the own one is judged as any transaction's.
            let class = StatementClass::TransactionControl;
            return Program { class, own_end: true, ..program };
        }
        let lifts = program.alone().is_some_and(Shape::only_lifts_read_only);
        if lifts && program.class == StatementClass::Write && self.stand == Stand::Outside {
            // Each program outside a transaction has the guard set anew in front of it.
            return Program { class: StatementClass::Session, ..program };
        }
        program
    }

    /// Whether it is the end of the session's own XA branch if one is open.
    pub(crate) fn may_end_own(&self, program: &Program) -> bool {
        let ends = |shape: Shape| {
            let own = match shape.tx() {
                TxEffect::Commit => self.xa,
                TxEffect::Rollback => self.xa || self.branch == Branch::Failed,
                TxEffect::None
                | TxEffect::Begin
                | TxEffect::Savepoint
                | TxEffect::RollbackToOrRelease
                | TxEffect::Prepare
                | TxEffect::Mixed => false,
            };
            shape.xa() && own
        };
        // Unprovable is what may be more than that.
        let known = program.class != StatementClass::Unprovable;
        known && program.alone().is_some_and(ends)
    }

    /// Whether an XA PREPARE that the gates let pass would give up leases of a closed gate: MySQL
    /// parts a session from what it has prepared, and its second phase would be refused, here and
    /// in any other session. MariaDB keeps the branch with its session, and so are the leases.
    pub(crate) fn leaves_a_branch(&self, program: &Program) -> bool {
        let prepares = program.tx() == TxEffect::Prepare;
        prepares && self.flavour() == MyFlavour::MySql && self.seats.holds_closed()
    }

    /// Whether it begins the transaction of a dump that may come to what lists other schemas. Begun
    /// read-only it needs no savepoint for that, which MariaDB doesn't give a transaction that has
    /// read tables of Aria, as its own are. A dump writes nothing.
    pub(crate) fn begins_a_dump(&mut self, program: &Program) -> bool {
        let begins = program.alone().is_some_and(|shape| shape.tx() == TxEffect::Begin)
            && program.class == StatementClass::TransactionControl;
        begins
            && !self.xa
            && self.flavour() == MyFlavour::MariaDb
            && is_dumps(self.seats.home().slot())
            && self.seats.is_closed_beside(Reach::Home)
    }

    /// Whether a text is read to its end however long it is, up to the 16 MiB of a packet: an
    /// import's, where its beginning would be judged at the closed gate of another schema too.
    pub(crate) fn reads_whole(&mut self) -> bool {
        let imports = |one: &Capability| one.purpose() == Purpose::Import && one.is_live();
        let bears = Seat::capability(self.seats.home()).is_some_and(imports);
        bears && self.seats.is_closed_beside(Reach::Home)
    }

    const fn flavour(&self) -> MyFlavour {
        self.lexing.server.flavour
    }
}
