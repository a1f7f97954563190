//! Text to class: the entry functions, the table of command words, the way through the cache.
//!
//! Purpose: [`Classifier::classify`] answers what a program is. The command word settles what it
//! can; queries are proved by `classify/read.rs`; every other form has its family's file. What no
//! rule knows is `unprovable`.
//!
//! Invariants: unknown means the most restrictive class (4); a program has the strongest class of
//! its statements (W6); the answer depends on nothing the cache key leaves out (`cache.rs`).
//!
//! Called by the relays, one classifier per worker thread, without locks. It follows no session
//! state: lexing rules come in, and what a prepared name stands for is the caller's to know.

mod lifecycle;
pub(super) mod phrase;
mod plan;
mod read;
mod session;
mod split;
mod steady;
mod transaction;
pub(super) mod witness;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::cache::{Cache, CacheStats, KeyMaker};
use super::dialect::{Lexing, PgLexing};
use super::lexer::{Lexer, TokenKind, Unlexable};
use super::mysql::{self, Executable, MyLexer, MyLexing, Reading};
use super::recall::{Holes, Recall, Rules};
use super::statement::{Classified, Detail, Part, Shape, StatementClass, Sum};
use super::trusted::Trusted;
use crate::base::arm::{Removable, removed};
use phrase::{LowerWord, Phrase, Tokens};

/// Texts longer than this, in bytes, are judged by their command words only.
pub const MAX_PROVABLE_TEXT: usize = 256 * 1024;

/// More cache entries than this per classifier aren't kept (about 64 bytes each).
const CACHE_ENTRIES_MAX: usize = 1 << 20;

/// The first and the last major version of PostgreSQL whose functions are known.
const VERSIONS_KNOWN: (u16, u16) = (15, 18);

/// How the class of a statement follows from its first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// The word alone settles it.
    Is(StatementClass),
    Query,
    Begin,
    Commit,
    Rollback,
    Savepoint,
    Release,
    Set,
    Reset,
    Discard,
    Prepare,
    Execute,
    Explain,
    Declare,
    Copy,
    Call,
    Do,
    Lock,
    Create,
    Alter,
    Drop,
    OnObject,
    SecurityLabel,
    Reassign,
    /// `IMPORT FOREIGN SCHEMA`: two words, then settled.
    Pair(&'static str, StatementClass),
}

/// Every command of PostgreSQL 15 to 18 by its first word, sorted. A word that isn't here is
/// `unprovable`.
const VERBS: &[(&str, Rule)] = &[
    ("abort", Rule::Rollback),
    ("alter", Rule::Alter),
    ("analyse", Rule::Is(StatementClass::Write)),
    ("analyze", Rule::Is(StatementClass::Write)),
    ("begin", Rule::Begin),
    ("call", Rule::Call),
    ("checkpoint", Rule::Is(StatementClass::Write)),
    ("close", Rule::Is(StatementClass::Read)),
    ("cluster", Rule::Is(StatementClass::Write)),
    ("comment", Rule::OnObject),
    ("commit", Rule::Commit),
    ("copy", Rule::Copy),
    ("create", Rule::Create),
    ("deallocate", Rule::Is(StatementClass::Session)),
    ("declare", Rule::Declare),
    ("delete", Rule::Is(StatementClass::Write)),
    ("discard", Rule::Discard),
    ("do", Rule::Do),
    ("drop", Rule::Drop),
    ("end", Rule::Commit),
    ("execute", Rule::Execute),
    ("explain", Rule::Explain),
    ("fetch", Rule::Is(StatementClass::Read)),
    ("grant", Rule::OnObject),
    ("import", Rule::Pair("foreign", StatementClass::Ddl)),
    ("insert", Rule::Is(StatementClass::Write)),
    ("listen", Rule::Is(StatementClass::Session)),
    ("load", Rule::Is(StatementClass::Write)),
    ("lock", Rule::Lock),
    ("merge", Rule::Is(StatementClass::Write)),
    ("move", Rule::Is(StatementClass::Read)),
    ("notify", Rule::Is(StatementClass::Write)),
    ("prepare", Rule::Prepare),
    ("reassign", Rule::Reassign),
    ("refresh", Rule::Is(StatementClass::Write)),
    ("reindex", Rule::Is(StatementClass::Write)),
    ("release", Rule::Release),
    ("reset", Rule::Reset),
    ("revoke", Rule::OnObject),
    ("rollback", Rule::Rollback),
    ("savepoint", Rule::Savepoint),
    ("security", Rule::SecurityLabel),
    ("select", Rule::Query),
    ("set", Rule::Set),
    ("show", Rule::Is(StatementClass::Read)),
    ("start", Rule::Begin),
    ("table", Rule::Query),
    ("truncate", Rule::Is(StatementClass::Write)),
    ("unlisten", Rule::Is(StatementClass::Session)),
    ("update", Rule::Is(StatementClass::Write)),
    ("vacuum", Rule::Is(StatementClass::Write)),
    ("values", Rule::Query),
    ("with", Rule::Query),
];

/// What the families need besides the statement itself.
#[derive(Debug)]
struct Context<'a> {
    trusted: &'a Trusted,
    /// Off for texts that are too long: then only command words count.
    proofs: bool,
    detail: Detail,
}

impl Context<'_> {
    /// A query: the walk proves it, the parser may veto.
    fn query(&self, text: Phrase<'_>) -> Part {
        if !self.proofs {
            return Part::of(StatementClass::Unprovable);
        }
        let mut part = read::prove(text, self.trusted);
        if part.class == StatementClass::Read && witness::vetoes(text, self.trusted) {
            part.class = StatementClass::Unprovable;
        }
        part
    }

    /// Expressions without a statement of their own, such as arguments: the walk alone.
    fn expression(&self, text: Phrase<'_>) -> Part {
        if self.proofs {
            read::prove(text, self.trusted)
        } else {
            Part::of(StatementClass::Unprovable)
        }
    }

    fn statement(&mut self, text: Phrase<'_>) -> Part {
        let part = self.ruled(text);
        let steady = steady::bits(text, part, self.proofs, self.trusted);
        Part { extra: part.extra | steady, ..part }
    }

    fn ruled(&mut self, text: Phrase<'_>) -> Part {
        let unprovable = Part::of(StatementClass::Unprovable);
        if text.is_kind(0, TokenKind::Open) {
            return self.query(text);
        }
        if !text.is_kind(0, TokenKind::Word) {
            return unprovable;
        }
        let verb = LowerWord::of(text, 0);
        let Ok(at) = VERBS.binary_search_by(|(word, _)| (*word).cmp(verb.as_str())) else {
            return unprovable;
        };
        let Some(&(_, rule)) = VERBS.get(at) else { return unprovable };
        match rule {
            Rule::Is(class) => Part::of(class),
            Rule::Pair(second, class) if text.is(1, second) => {
                // REASSIGN OWNED: databases are among what a role owns.
                self.detail.any_database |= class == StatementClass::Lifecycle;
                Part::of(class)
            }
            Rule::Pair(..) => unprovable,
            Rule::Query => self.query(text),
            Rule::Begin => transaction::begin(text),
            Rule::Commit => transaction::commit(text),
            Rule::Rollback => transaction::rollback(text),
            Rule::Savepoint => transaction::savepoint(),
            Rule::Release => transaction::release(),
            Rule::Set => session::set(text),
            Rule::Reset => session::reset(text),
            Rule::Discard => session::discard(text),
            Rule::Prepare if transaction::is_prepare_transaction(text) => {
                transaction::prepare_transaction()
            }
            Rule::Prepare => plan::prepare(text, self),
            Rule::Execute => plan::execute(text, self),
            Rule::Explain => plan::explain(text, self),
            Rule::Declare if plan::declares_hold(text) => {
                let extra = Shape::OPENS_CURSOR | Shape::HOLDS_CURSOR;
                Part { extra, ..plan::declare(text, self) }
            }
            Rule::Declare => Part { extra: Shape::OPENS_CURSOR, ..plan::declare(text, self) },
            Rule::Copy => plan::copy(text, self),
            Rule::Call => plan::call(text, self),
            Rule::Do => plan::run_block(),
            Rule::Lock => plan::lock(text),
            Rule::OnObject => lifecycle::on_object(text, self),
            Rule::SecurityLabel if text.is(1, "label") => lifecycle::on_object(text, self),
            Rule::Reassign if text.is(1, "owned") => lifecycle::owned(self),
            Rule::SecurityLabel | Rule::Reassign => unprovable,
            Rule::Create => lifecycle::create(text, self),
            Rule::Alter => lifecycle::alter(text, self),
            Rule::Drop => lifecycle::drop(text, self),
        }
    }
}

/// Classifies programs and remembers what it found, within a fixed number of entries.
#[derive(Debug)]
pub struct Classifier {
    /// What is trusted of the engine that the next text is for.
    trusted: Arc<Trusted>,
    /// The same of other versions that were met; at most one for each version known.
    others: Vec<Arc<Trusted>>,
    keys: KeyMaker,
    cache: Cache,
    recall: Recall,
}

impl Classifier {
    /// A classifier with room for `cache_entries` remembered programs: rounded down to a multiple
    /// of four, at most 1,048,576, and no cache at all below four.
    #[must_use]
    pub fn new(trusted: Arc<Trusted>, cache_entries: usize) -> Self {
        let cache = Cache::new(cache_entries.min(CACHE_ENTRIES_MAX));
        let recall = Recall::new(cache_entries);
        Self { trusted, others: Vec::new(), keys: KeyMaker::new(), cache, recall }
    }

    /// Says which major version the engine has that the next texts are for: its built-in functions
    /// are believed, those of later versions aren't. Versions beyond the newest known count as
    /// that one, those before 15 as 15.
    pub fn for_engine(&mut self, major: u16) {
        let major = major.clamp(VERSIONS_KNOWN.0, VERSIONS_KNOWN.1);
        if self.trusted.engine_major() == major {
            return;
        }
        let known = self.others.iter().position(|other| other.engine_major() == major);
        let next = match known {
            Some(at) => self.others.swap_remove(at),
            None => Arc::new(Trusted::clone(&self.trusted).with_engine_major(major)),
        };
        self.others.push(std::mem::replace(&mut self.trusted, next));
    }

    /// What a program is: the text of one simple query or of one Parse, without the closing NUL,
    /// under the lexing rules the session has when the engine reads it.
    ///
    /// A text the engine can't read either (an open string, brackets that don't match, bytes the
    /// encoding may hide a quote in) is `unprovable` with every effect assumed. A program already
    /// seen costs one comparison where only plain literals differ (`recall.rs`), else one pass over
    /// its text, and no allocation.
    pub fn classify(&mut self, text: &[u8], lexing: impl Into<Lexing>) -> Classified {
        let lexing = lexing.into();
        let rules = Rules { lexing, engine_major: self.trusted.engine_major() };
        if let Some(known) = self.recall.find(text, rules) {
            self.cache.recalled();
            return known;
        }
        self.read(text, rules)
    }

    /// Whether a text is answered without being read.
    #[cfg(test)]
    pub(super) fn recalls(&mut self, text: &[u8], lexing: Lexing) -> bool {
        let rules = Rules { lexing, engine_major: self.trusted.engine_major() };
        self.recall.find(text, rules).is_some()
    }

    /// The long way. What the cache knew already is remembered as it stands: it came before.
    fn read(&mut self, text: &[u8], rules: Rules) -> Classified {
        let (hits, mut holes) = (self.cache.stats().hits, Holes::default());
        let (found, once) = match rules.lexing {
            Lexing::Postgres(lexing) => (self.classify_postgres(text, lexing, &mut holes), true),
            Lexing::MySql(lexing) => self.classify_mysql(text, lexing, &mut holes),
        };
        if once && self.cache.stats().hits > hits {
            self.recall.keep(text, rules, &holes, &found);
        }
        found
    }

    /// Reads a MySQL text in every way its engine may, and takes the stricter answer. Says whether
    /// there was only one, by which it can be remembered.
    fn classify_mysql(
        &mut self,
        text: &[u8],
        rules: MyLexing,
        holes: &mut Holes,
    ) -> (Classified, bool) {
        if removed(Removable::Classifier) {
            return (believed(), false);
        }
        if rules.hides(text) {
            return (Classified::unreadable_mysql(), false);
        }
        let oversized = text.len() > MAX_PROVABLE_TEXT;
        let mut answer: Option<Classified> = None;
        let mut add = |found: Classified| {
            answer = Some(match answer.take() {
                Some(before) => before.or(found),
                None => found,
            });
        };
        let mut ways = 0;
        for reading in mysql::readings(rules, text) {
            let (found, executable) = self.read_mysql(text, reading, oversized, holes);
            add(found);
            ways += 1;
            if executable {
                for executable in [Executable::Always, Executable::Never] {
                    let reading = Reading { executable, ..reading };
                    add(self.read_mysql(text, reading, oversized, holes).0);
                    ways += 1;
                }
            }
        }
        (answer.unwrap_or_else(Classified::unreadable_mysql), ways == 1)
    }

    /// One reading of a MySQL text, and whether it holds an executable comment.
    fn read_mysql(
        &mut self,
        text: &[u8],
        reading: Reading,
        oversized: bool,
        holes: &mut Holes,
    ) -> (Classified, bool) {
        let lexer = MyLexer::new(text, reading);
        let Ok((key, executable)) = self.keys.mysql_key(text, &lexer, oversized, holes) else {
            return (Classified::unreadable_mysql(), false); // nothing is stricter
        };
        if let Some(known) = self.cache.find(key) {
            return (known, executable);
        }
        let found = mysql::summary(text, reading, &self.trusted, !oversized)
            .unwrap_or_else(|_: Unlexable| Classified::unreadable_mysql());
        self.cache.keep(key, found.clone());
        (found, executable)
    }

    fn classify_postgres(
        &mut self,
        text: &[u8],
        lexing: PgLexing,
        holes: &mut Holes,
    ) -> Classified {
        if removed(Removable::Classifier) {
            return believed();
        }
        if lexing.hides(text) {
            return Classified::unreadable(speaks_of_databases(text));
        }
        let oversized = text.len() > MAX_PROVABLE_TEXT;
        let Ok(key) = self.keys.key(text, lexing, oversized, holes) else {
            return Classified::unreadable(false); // the engine refuses this text whole
        };
        // Keys are keyed hashes: the version may stand in any of their bits.
        let key = key ^ u128::from(self.trusted.engine_major());
        if let Some(known) = self.cache.find(key) {
            return known;
        }
        let found = summary(text, lexing, &self.trusted, !oversized)
            .unwrap_or_else(|_: Unlexable| Classified::unreadable(false));
        self.cache.keep(key, found.clone());
        found
    }

    /// What is known of a program of which only the beginning is at hand: always `unprovable`, with
    /// every effect assumed, since the rest may hold anything. Of other databases only the prefix
    /// can tell.
    pub fn classify_prefix(&mut self, prefix: &[u8], lexing: impl Into<Lexing>) -> Classified {
        match lexing.into() {
            Lexing::Postgres(_) => Classified::unreadable(speaks_of_databases(prefix)),
            Lexing::MySql(_) => Classified::unreadable_mysql(),
        }
    }

    /// The same of a PostgreSQL text that can hold one statement only, a Parse's: of other
    /// databases that speaks by its first word, or not at all.
    pub fn classify_prefix_of_one(
        &mut self,
        prefix: &[u8],
        lexing: impl Into<PgLexing>,
    ) -> Classified {
        let may = may_begin_lifecycle(prefix, lexing.into());
        Classified::unreadable(may && speaks_of_databases(prefix))
    }

    /// What a text is in a PostgreSQL replication session (a walsender). Its own commands come
    /// first, anything else is SQL as in every session.
    pub fn classify_replication(&mut self, text: &[u8], lexing: impl Into<PgLexing>) -> Classified {
        let lexing = lexing.into();
        match replication_class(text, lexing) {
            Some(class) => {
                let mut sum = Sum::default();
                sum.add(Part::of(class));
                sum.finish()
            }
            None => self.classify(text, lexing),
        }
    }

    /// Counters since this classifier was made.
    #[must_use]
    pub const fn stats(&self) -> CacheStats {
        self.cache.stats()
    }
}

/// A read, whatever it is: for the control arm.
fn believed() -> Classified {
    let mut sum = Sum::default();
    sum.add(Part::of(StatementClass::Read));
    sum.finish()
}

/// Whether an unreadable text holds a word that every lifecycle statement has. Encodings hide
/// quotes, never letters of keywords.
fn speaks_of_databases(text: &[u8]) -> bool {
    let holds = |word: &[u8]| text.windows(word.len()).any(|at| at.eq_ignore_ascii_case(word));
    holds(b"database") || holds(b"alter")
}

/// The first words of statements that may reach other databases.
const REACHING: &[&str] =
    &["alter", "comment", "create", "drop", "grant", "reassign", "revoke", "security"];

/// Whether a text's first statement may be one about databases. Where no word is reached, it may.
/// Rules of lexing move the ends of strings, and none stands in front of the first word.
fn may_begin_lifecycle(text: &[u8], lexing: PgLexing) -> bool {
    let mut lexer = Lexer::new(text, lexing);
    loop {
        match lexer.next_token() {
            Ok(Some(token)) if token.kind == TokenKind::Semicolon => {}
            Ok(Some(token)) => {
                let word = token.bytes(text);
                return REACHING.iter().any(|verb| word.eq_ignore_ascii_case(verb.as_bytes()));
            }
            Ok(None) | Err(Unlexable) => return true,
        }
    }
}

/// Reads a text and adds up its statements.
fn summary(
    text: &[u8],
    lexing: PgLexing,
    trusted: &Trusted,
    proofs: bool,
) -> Result<Classified, Unlexable> {
    let tokens = Tokens::read(text, lexing)?;
    let all = tokens.all();
    let mut context = Context { trusted, proofs, detail: Detail::default() };
    let mut sum = Sum::default();
    for range in split::statements(all)? {
        sum.add(context.statement(all.part(range)));
    }
    sum.detail = context.detail;
    Ok(sum.finish())
}

/// The class of a replication command, if the text is one and nothing follows it.
fn replication_class(text: &[u8], lexing: PgLexing) -> Option<StatementClass> {
    let tokens = Tokens::read(text, lexing).ok()?;
    let all = tokens.all();
    if !all.is_kind(0, TokenKind::Word) || split::statements(all).ok()?.len() != 1 {
        return None;
    }
    match LowerWord::of(all, 0).as_str() {
        "identify_system" | "read_replication_slot" | "timeline_history" => {
            Some(StatementClass::Read)
        }
        "start_replication" | "base_backup" | "upload_manifest" => Some(StatementClass::Stream),
        "create_replication_slot" | "drop_replication_slot" | "alter_replication_slot" => {
            Some(StatementClass::Write)
        }
        _ => None,
    }
}
