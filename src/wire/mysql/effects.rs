//! What programs change in a session: lexing rules, default schema, prepared names, settings.
//!
//! Purpose: W5 and W7 of wire.md: a text is read by the rules the session has when the engine reads
//! it, and admitted at the gate of the schema it means. What a program changes is taken from its
//! text, once it has been answered, and from the engine's own word where session tracking was
//! agreed on. What isn't known is treated as if it were everything it could be.
//!
//! Pure; part of `conversation.rs`.

use crate::base::ids::Namespace;
use crate::sql::{Classified, MyEncoding, SqlMode, StatementClass, Toggle};
use crate::wire::mysql::answers::Change;
use crate::wire::mysql::commands::Command;
use crate::wire::mysql::conversation::{Conversation, Stand, Whose};
use crate::wire::mysql::prepared::Known;
use crate::wire::mysql::program::Program;

/// Where a session that has no default schema sits: a schema that every engine has and that nobody
/// can write to. What it does elsewhere is admitted there.
pub(crate) const NO_SCHEMA: &str = "information_schema";

impl Conversation {
    /// The default schema, if it is known.
    pub(crate) fn home(&self) -> Option<Namespace> {
        (!self.lost).then(|| self.seats.home().gate().namespace().clone())
    }

    /// The default schema is this one now.
    pub(crate) fn move_to(&mut self, schema: &str) {
        let engine = self.seats.home().gate().namespace().engine().clone();
        let schema = if schema.is_empty() { NO_SCHEMA } else { schema };
        match Namespace::new(engine, schema) {
            Ok(namespace) => {
                self.seats.move_home(&namespace);
                self.lost = false;
            }
            // Longer than a namespace's name can be.
            Err(_) => self.lost = true,
        }
    }

    /// The engine has told a change of the session.
    pub(crate) fn changed(&mut self, change: Change<'_>) {
        match change {
            Change::Schema(name) => {
                match std::str::from_utf8(name) {
                    Ok(name) => self.move_to(name),
                    Err(_) => self.lost = true,
                }
                if let Some(Whose::Client { schema_told, .. }) = &mut self.owed {
                    *schema_told = true;
                }
            }
            Change::Variable(b"character_set_client", value) => {
                let name = std::str::from_utf8(value).unwrap_or_default();
                self.lexing.encoding = MyEncoding::from_charset(name);
            }
            Change::Variable(b"sql_mode", value) => {
                let mode = std::str::from_utf8(value).map_or(SqlMode::UNKNOWN, SqlMode::from_value);
                self.lexing.ansi_quotes = mode.ansi_quotes;
            }
            Change::Variable(..) | Change::Other => {}
        }
    }

    /// A program of the client's has been answered, well or with an error.
    pub(crate) fn apply(&mut self, program: &Program, well: bool, schema_told: bool) {
        self.schema_unasked = true;
        match program.command {
            Command::Query | Command::Execute | Command::BulkExecute => {
                if program.classified.is_none() {
                    self.lexing = self.lexing.uncertain();
                    self.guard.note_own(Toggle::Unknown, well, false);
                    self.lost |= !schema_told;
                }
                let executed = program.executed.iter().map(|known| &known.classified);
                for text in program.classified.iter().chain(executed) {
                    self.apply_text(text, well, schema_told);
                }
                if program.changes_unknown {
                    self.apply_text(&Classified::unreadable_mysql(), well, schema_told);
                }
            }
            Command::Prepare if !well => self.prepared.failed(),
            Command::InitDb if well && !schema_told => match program.schema.clone() {
                Some(schema) => self.move_to(&schema),
                None => self.lost = true,
            },
            Command::DropDb if well => self.leave_dropped(),
            Command::ChangeUser | Command::ResetConnection => {
                self.apply_reset(program, well, schema_told);
            }
            Command::Quit
            | Command::Prepare
            | Command::Fetch
            | Command::LongData
            | Command::Close
            | Command::ResetStatement
            | Command::InitDb
            | Command::CreateDb
            | Command::DropDb
            | Command::FieldList
            | Command::Refresh
            | Command::Shutdown
            | Command::Statistics
            | Command::ProcessInfo
            | Command::ProcessKill
            | Command::Debug
            | Command::Ping
            | Command::SetOption
            | Command::RegisterReplica
            | Command::BinlogDump
            | Command::BinlogDumpGtid
            | Command::Refused(_) => {}
        }
    }

    fn apply_text(&mut self, text: &Classified, well: bool, schema_told: bool) {
        let shape = text.shape();
        if text.class() == StatementClass::Unprovable
            || (shape.commits() && shape.changes_autocommit())
            || text.detail().is_some_and(|detail| detail.my.names_unknown)
        {
            // A procedure's body, or a block's, may PREPARE.
            self.prepared.names_unknown();
        }
        self.xa |= shape.xa() && self.stand != Stand::Outside;
        let Some(detail) = text.detail() else {
            self.lost |= shape.changes_schema() && !schema_told;
            return;
        };
        let detail = &detail.my;
        // What the engine told by a status bit is true already.
        let told = self.lexing.no_backslash_escapes;
        let after = self.lexing.after(&detail.change);
        self.lexing = if well { after } else { self.lexing.or(after) };
        if well {
            self.lexing.no_backslash_escapes = told;
        }
        if let Some(kill) = detail.kill.filter(|kill| well && kill.query_only) {
            self.killed_query(kill.connection);
        }
        if let Some(own) = detail.change.read_only {
            self.guard.note_own(own, well, shape.single());
        }
        let alone = shape.single();
        if shape.changes_schema() && !schema_told {
            match &detail.default_schema {
                Some(schema) if well => self.move_to(&schema.clone()),
                Some(_) if alone => {}
                Some(_) => self.lost = true,
                None if well && self.status.schema_dropped() => self.leave_dropped(),
                // A DROP that failed has done nothing; a body may have moved before it failed.
                None => self.lost |= !alone || well || text.class() != StatementClass::Lifecycle,
            }
        }
        for (name, classified) in &detail.prepared {
            match (alone, well) {
                (true, true) => {
                    let known = Known { classified: classified.clone(), home: self.home() };
                    self.prepared.named(name, Some(known));
                }
                (true, false) => self.prepared.unnamed(name),
                (false, _) => self.prepared.named(name, None),
            }
        }
        for name in detail.deallocated.iter().filter(|_| alone && well) {
            self.prepared.unnamed(name);
        }
    }

    fn leave_dropped(&mut self) {
        if self.status.schema_dropped() {
            self.move_to("");
        }
    }

    fn apply_reset(&mut self, program: &Program, well: bool, schema_told: bool) {
        let change_user = program.command == Command::ChangeUser;
        if !well && !change_user {
            return;
        }
        // A change of user that failed may have begun.
        self.prepared.reset();
        self.cursors_gone();
        self.guard.reset();
        let told = self.lexing.no_backslash_escapes;
        self.lexing = self.lexing.uncertain();
        if well {
            self.lexing.no_backslash_escapes = told;
        }
        if change_user && !well {
            self.lost = true;
        } else if change_user {
            match &program.schema {
                Some(schema) => self.move_to(&schema.clone()),
                // One that can't be read here may be read by the engine.
                None => self.lost |= !schema_told,
            }
            // As at a login.
            if let Some(collation) = program.collation {
                let flavour = self.lexing.server.flavour;
                self.lexing.encoding = MyEncoding::from_collation(collation, flavour);
            }
        }
    }
}
