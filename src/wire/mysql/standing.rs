//! What a program is where its session stands: what its text alone doesn't tell.
//!
//! Purpose: W6, W14 and W17 of wire.md where the same words are one thing in one session and
//! another in the next: the end of a session's own XA branch or of a stranger's, a setting lifted
//! between transactions or within one, a dump's BEGIN. Each is narrower than its text's class, and
//! only where the engine itself lets it be nothing else.
//!
//! Called by `client.rs` and `conversation.rs`. Pure; it changes no state.

use crate::gate::admission::Seat;
use crate::gate::capability::{Capability, Purpose};
use crate::gate::drain::is_dumps;
use crate::sql::{MyFlavour, Shape, StatementClass, TxEffect};
use crate::wire::mysql::conversation::{Conversation, Stand};
use crate::wire::mysql::program::Program;
use crate::wire::mysql::seats::Reach;

impl Conversation {
    /// The program as what it is here.
    pub(crate) fn where_it_stands(&self, program: Program) -> Program {
        if matches!(self.stand, Stand::Inside { .. }) && self.may_end_own(&program) {
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
            shape.xa() && matches!(shape.tx(), TxEffect::Commit | TxEffect::Rollback)
        };
        // Unprovable is what may be more than that.
        let known = program.class != StatementClass::Unprovable;
        self.xa && known && program.alone().is_some_and(ends)
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
