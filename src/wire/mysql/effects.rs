//! What programs change in a session: lexing rules, default schema, prepared names, settings.
//!
//! Purpose: W5 and W7 of wire.md: a text is read by the rules the session has when the engine reads
//! it, and admitted at the gate of the schema it means. What a program changes is taken from its
//! text, once it has been answered, and from the engine's own word where session tracking was
//! agreed on. What isn't known is treated as if it were everything it could be.
//!
//! Pure; part of `conversation.rs`.

use crate::base::ids::Namespace;
use crate::sql::{Classified, MyEncoding, MyLexing, SqlMode, StatementClass, Toggle};
use crate::wire::mysql::answers::Change;
use crate::wire::mysql::commands::Command;
use crate::wire::mysql::conversation::{Conversation, SchemaTold, Stand, Whose};
use crate::wire::mysql::prepared::Known;
use crate::wire::mysql::program::Program;
use crate::wire::mysql::seats::is_alike;

/// Where a session that has no default schema sits: a schema that every engine has and that nobody
/// can write to. What it does elsewhere is admitted there.
pub(crate) const NO_SCHEMA: &str = "information_schema";

impl Conversation {
    /// The default schema, if it is known.
    pub(crate) fn home(&self) -> Option<Namespace> {
        (!self.lost).then(|| self.seats.home().gate().namespace().clone())
    }

    /// The default schema as it was last known; `None` where there is none.
    pub(crate) fn default_schema(&self) -> Option<&Namespace> {
        (!self.no_schema).then(|| self.seats.home().gate().namespace())
    }

    /// The default schema is this one now.
    pub(crate) fn move_to(&mut self, schema: &str) {
        let engine = self.seats.home().gate().namespace().engine().clone();
        self.no_schema = schema.is_empty();
        let schema = if self.no_schema { NO_SCHEMA } else { schema };
        match Namespace::new(engine, schema) {
            Ok(namespace) => {
                self.seats.move_home(&namespace);
                self.lost = false;
            }
            // Longer than a namespace's name can be.
            Err(_) => self.lost = true,
        }
    }

    /// A result begins to end: what an earlier one told isn't the last word.
    pub(crate) fn result_ends(&mut self) {
        if let Some(Whose::Client { schema_told, .. }) = &mut self.owed {
            *schema_told = match *schema_told {
                SchemaTold::Nothing | SchemaTold::Same => SchemaTold::Nothing,
                SchemaTold::Earlier | SchemaTold::Last => SchemaTold::Earlier,
            };
        }
    }

    /// The engine has told a change of the session.
    pub(crate) fn changed(&mut self, change: Change<'_>) {
        match change {
            Change::Schema(name) => {
                let home = self.seats.home().gate().namespace().database();
                let same = !self.lost && !self.no_schema && home.as_bytes() == name;
                match std::str::from_utf8(name) {
                    Ok(name) => self.move_to(name),
                    Err(_) => self.lost = true,
                }
                if let Some(Whose::Client { schema_told, .. }) = &mut self.owed {
                    let unmoved = matches!(schema_told, SchemaTold::Nothing | SchemaTold::Same);
                    *schema_told =
                        if same && unmoved { SchemaTold::Same } else { SchemaTold::Last };
                }
            }
            // A routine tells what it sets, and not that it is put back behind it: such news is a
            // doubt. What the text sets itself is taken from the text.
            Change::Variable(b"character_set_client", _) => {
                self.lexing.encoding =
                    self.lexing.encoding.or(charset_told(self.lexing.encoding, change));
            }
            Change::Variable(b"sql_mode", value) => {
                let mode = std::str::from_utf8(value).map_or(SqlMode::UNKNOWN, SqlMode::from_value);
                self.lexing.ansi_quotes = self.lexing.ansi_quotes.or(mode.ansi_quotes);
            }
            Change::Variable(..) | Change::Other => {}
        }
    }

    fn escapes_told(&self) -> Toggle {
        self.status.no_backslash_escapes().into()
    }

    /// The rules that the next text is read by. Bit 0x200 of the status isn't believed alone: a
    /// routine that sets `sql_mode` leaves it behind, while the engine puts the mode back (MySQL
    /// 9.7 and MariaDB 10.11, in procedures, functions, triggers and views over them). Where it
    /// isn't what the texts say, either may be.
    pub(crate) fn lexing(&self) -> MyLexing {
        let no_backslash_escapes = self.lexing.no_backslash_escapes.or(self.escapes_told());
        MyLexing { no_backslash_escapes, ..self.lexing }
    }

    /// The session begins, or begins anew: no routine has run in it.
    pub(crate) fn escapes_begin(&mut self) {
        self.lexing.no_backslash_escapes = self.escapes_told();
        self.escapes_true = true;
    }

    /// A program of the client's has been answered, and what its text sets is known.
    fn settle_escapes(&mut self, program: &Program, well: bool) {
        let (known, told) = (self.lexing.no_backslash_escapes, self.escapes_told());
        if may_run_a_routine(program) {
            // An error tells no status: what the routine left is seen with a later answer.
            self.escapes_true &= well && known == told;
        } else if well && known == told && sets_escapes(program) {
            // The engine has set the bit anew along with the mode.
            self.escapes_true = true;
        } else if well && known == Toggle::Unknown && self.escapes_true {
            self.lexing.no_backslash_escapes = told;
        } else {
            self.escapes_true &= !well || known == told;
        }
    }

    /// A program of the client's has been answered, well or with an error.
    pub(crate) fn apply(&mut self, program: &Program, well: bool, schema_told: bool) {
        self.apply_program(program, well, schema_told);
        self.settle_escapes(program, well);
    }

    fn apply_program(&mut self, program: &Program, well: bool, schema_told: bool) {
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
            Command::DropDb if well && !schema_told => {
                let named = program.schema.as_ref().map(std::slice::from_ref);
                self.lost |= self.may_be_home(named);
            }
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
        let all = detail;
        let detail = &all.my;
        let after = self.lexing.after(&detail.change);
        self.lexing = if well { after } else { self.lexing.or(after) };
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
                // Both engines say "dropped" of any schema, the default one or not.
                None if well && alone && text.class() == StatementClass::Lifecycle => {
                    let known = !detail.any_schema && !all.any_database;
                    self.lost |= self.may_be_home(known.then_some(&all.databases[..]));
                }
                // A DROP that failed has done nothing; a body may have moved before it failed.
                None => self.lost |= !alone || well || text.class() != StatementClass::Lifecycle,
            }
        }
        for (name, classified) in &detail.prepared {
            let once = detail.prepared.iter().filter(|(other, _)| other == name).count() == 1;
            match (alone && once, well) {
                (true, true) => {
                    let (home, rules) = (self.home(), Some(self.read_by));
                    let (classified, nowhere) = (classified.clone(), self.no_schema);
                    let known = Known { classified, home, nowhere, rules };
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

    /// Whether the default schema may be one of these, which a program has named; `None`: it is
    /// about any.
    fn may_be_home(&self, named: Option<&[String]>) -> bool {
        let home = self.seats.home().gate().namespace().database();
        let Some(named) = named.filter(|named| !named.is_empty()) else { return true };
        named.iter().any(|name| is_alike(name, home))
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
        self.lexing = self.lexing.uncertain();
        self.escapes_true = false;
        if well {
            self.escapes_begin();
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

/// The character set of clients' texts, if this change tells it; else what was known.
pub(crate) fn charset_told(known: MyEncoding, change: Change<'_>) -> MyEncoding {
    match change {
        Change::Variable(b"character_set_client", value) => {
            MyEncoding::from_charset(std::str::from_utf8(value).unwrap_or_default())
        }
        Change::Variable(..) | Change::Schema(_) | Change::Other => known,
    }
}

/// Whether something stored in the engine may run in it: a view, a trigger, a function. A text
/// that is prepared counts, by its class, and so does a list of fields.
fn may_run_a_routine(program: &Program) -> bool {
    if !program.evaluates() {
        return false;
    }
    let tame = program.classified.as_ref().is_some_and(|text| {
        matches!(text.class(), StatementClass::TransactionControl | StatementClass::Session)
    });
    !tame || !program.executed.is_empty() || program.changes_unknown
}

/// Whether the text itself sets the session's mode, to something that is known.
fn sets_escapes(program: &Program) -> bool {
    let detail = program.classified.as_ref().and_then(|text| text.detail());
    let mode = detail.and_then(|detail| detail.my.change.sql_mode);
    mode.is_some_and(|mode| mode.no_backslash_escapes != Toggle::Unknown)
}
