//! From tokens to a statement.
//!
//! Purpose: recursive descent over at most `limits::ADMIN_BODY_BYTES_MAX` bytes, without recursion:
//! a statement is a verb, a name and clauses in any order. Every error names what was expected.
//! Called by the consoles through [`parse()`].

use super::lexer::{Piece, Token, tokens};
use super::{
    AdoptionClauses, CAPABILITY_WORDS, CapabilityStatement, Clause, Dialect, FenceStatement, Show,
    Statement, TargetClauses, Wrong, capability_form, clauses, form, words,
};
use crate::base::ids::{CommandId, Namespace, OperationId, Revision};
use crate::base::limits;
use crate::base::secret::Secret;
use crate::fence::command::CommandKind;
use crate::fence::record::{Identity, InFlight, ValidationResult};
use crate::fence::state::FenceState;
use crate::fence::verdict::Purpose;

/// What `SHOW` knows, for its error.
const SHOWN: &str = "NAMESPACES, FENCES, TARGETS, SESSIONS, DRAINS, \
                     RECEIPTS [FOR 'engine/database'], CAPABILITIES, VERSION, CONFIG, STATS or \
                     HELP";

/// Reads a text of at most `limits::ADMIN_BODY_BYTES_MAX` bytes.
///
/// # Errors
/// [`Wrong`], with the place.
pub fn parse(text: &str, dialect: Dialect) -> Result<Statement, Wrong> {
    if text.len() > limits::ADMIN_BODY_BYTES_MAX {
        let message = format!(
            "expected a statement of at most {} bytes, got {}",
            limits::ADMIN_BODY_BYTES_MAX,
            text.len()
        );
        return Err(Wrong { position: 1, message, is_value: false });
    }
    let tokens = match tokens(text, dialect) {
        Ok(tokens) => tokens,
        // A text that isn't ours may have literals of a kind that this lexer doesn't know.
        Err(wrong) if begins_ours(text) => return Err(wrong),
        Err(_) => return Ok(Statement::Other),
    };
    let mut parser = Parser { tokens, next: 0, end: text.chars().count() + 1 };
    while parser.take_sign(';') {}
    let Some(first) = parser.peek() else { return Ok(Statement::Empty) };
    let statement = match &first.piece {
        Piece::Bare(word) if word.eq_ignore_ascii_case("HELP") => {
            parser.next += 1;
            Statement::Show(Show::Help)
        }
        Piece::Bare(word) if word.eq_ignore_ascii_case("SHOW") => match parser.show()? {
            Some(show) => Statement::Show(show),
            None => return Ok(Statement::Other),
        },
        Piece::Bare(word) if word.eq_ignore_ascii_case("INSPECT") => {
            parser.next += 1;
            Statement::Inspect(parser.namespace()?)
        }
        Piece::Bare(word) if word.eq_ignore_ascii_case("FENCE") => {
            parser.next += 1;
            match parser.take_words(&CAPABILITY_WORDS) {
                true => Statement::Capability(parser.capability()?),
                false => Statement::Fence(Box::new(parser.fence()?)),
            }
        }
        Piece::Bare(_) | Piece::Quoted(_) | Piece::Sign(_) => {
            parser.no_command_without_its_word()?;
            return Ok(Statement::Other);
        }
    };
    parser.finish()?;
    Ok(statement)
}

fn begins_ours(text: &str) -> bool {
    let first: String = text.trim_start().chars().take_while(char::is_ascii_alphabetic).collect();
    ["SHOW", "INSPECT", "FENCE", "HELP"].iter().any(|ours| first.eq_ignore_ascii_case(ours))
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    /// Where the text ends, in characters from 1.
    end: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn peek_word(&self) -> Option<&str> {
        match &self.peek()?.piece {
            Piece::Bare(word) => Some(word),
            Piece::Quoted(_) | Piece::Sign(_) => None,
        }
    }

    fn take_sign(&mut self, sign: char) -> bool {
        let there = self.peek().is_some_and(|token| token.piece == Piece::Sign(sign));
        self.next += usize::from(there);
        there
    }

    fn take_word(&mut self, wanted: &str) -> bool {
        let there = self.peek_word().is_some_and(|word| word.eq_ignore_ascii_case(wanted));
        self.next += usize::from(there);
        there
    }

    /// Takes all of them or none.
    fn take_words(&mut self, wanted: &[&str]) -> bool {
        let start = self.next;
        let all = wanted.iter().all(|word| self.take_word(word));
        if !all {
            self.next = start;
        }
        all
    }

    fn position(&self) -> usize {
        self.peek().map_or(self.end, |token| token.position)
    }

    /// An error at the next token.
    fn expected(&self, what: &str) -> Wrong {
        let found = match self.peek().map(|token| &token.piece) {
            None => "the end of the statement".to_owned(),
            Some(Piece::Bare(word)) => format!("{:?}", short(word)),
            Some(Piece::Quoted(text)) => format!("the literal '{}'", short(text)),
            Some(Piece::Sign(sign @ ('$' | '?' | '%'))) => {
                format!("{sign:?} (statements here take no parameters; write the value itself)")
            }
            Some(Piece::Sign(sign)) => format!("{sign:?}"),
        };
        let message = format!("expected {what}, found {found}");
        Wrong { position: self.position(), message, is_value: false }
    }

    fn word(&mut self, wanted: &str) -> Result<(), Wrong> {
        if self.take_word(wanted) { Ok(()) } else { Err(self.expected(wanted)) }
    }

    /// A literal, in quotes or bare.
    fn literal(&mut self, what: &str) -> Result<(usize, String), Wrong> {
        let Some(token) = self.peek() else { return Err(self.expected(what)) };
        let found = match &token.piece {
            Piece::Bare(text) | Piece::Quoted(text) => (token.position, text.clone()),
            Piece::Sign(_) => return Err(self.expected(what)),
        };
        self.next += 1;
        Ok(found)
    }

    /// A literal in quotes: free text is never taken for a word.
    fn text(&mut self, what: &str) -> Result<String, Wrong> {
        let quoted = self.peek().is_some_and(|token| matches!(&token.piece, Piece::Quoted(_)));
        if quoted { Ok(self.literal(what)?.1) } else { Err(self.expected(what)) }
    }

    fn namespace(&mut self) -> Result<Namespace, Wrong> {
        let (position, text) = self.literal("a namespace, such as 'old/app'")?;
        Namespace::parse(&text).map_err(|error| value(position, error.to_string()))
    }

    fn number(&mut self, what: &str) -> Result<u64, Wrong> {
        let (position, text) = self.literal(what)?;
        let wrong = || value(position, format!("expected {what}, got '{}'", short(&text)));
        text.parse().map_err(|_| wrong())
    }

    fn finish(&mut self) -> Result<(), Wrong> {
        let mut closed = false;
        while self.take_sign(';') {
            closed = true;
        }
        match (self.peek(), closed) {
            (None, _) => Ok(()),
            (Some(_), true) => Err(self.expected("one statement at a time")),
            (Some(_), false) => Err(self.expected("the end of the statement")),
        }
    }

    /// `None`: a `SHOW` that isn't ours.
    fn show(&mut self) -> Result<Option<Show>, Wrong> {
        self.next += 1;
        let Some(word) = self.peek_word() else { return Err(self.expected(SHOWN)) };
        let show = match word.to_ascii_uppercase().as_str() {
            "NAMESPACES" => Show::Namespaces,
            "FENCES" => Show::Fences,
            "TARGETS" => Show::Targets,
            "SESSIONS" => Show::Sessions,
            "DRAINS" => Show::Drains,
            "RECEIPTS" => Show::Receipts(None),
            "CAPABILITIES" => Show::Capabilities,
            "HELP" => Show::Help,
            "VERSION" => Show::Version,
            "CONFIG" => Show::Config,
            "STATS" => Show::Stats,
            _ => return Ok(None),
        };
        self.next += 1;
        let of_one = show == Show::Receipts(None) && self.take_word("FOR");
        let show = if of_one { Show::Receipts(Some(self.namespace()?)) } else { show };
        let verbose = self.take_word("VERBOSE") || self.take_word("EXTENDED");
        Ok(Some(if verbose { Show::Verbose(Box::new(show)) } else { show }))
    }

    fn kind(&mut self) -> Result<CommandKind, Wrong> {
        let start = self.next;
        let mut half = None;
        for kind in CommandKind::ALL {
            self.next = start;
            let wanted = words(kind);
            let matched = wanted.iter().take_while(|word| self.take_word(word)).count();
            if matched == wanted.len() {
                return Ok(kind);
            }
            if matched > 0 {
                half = Some((self.next, wanted[matched]));
            }
        }
        self.next = start;
        if let Some((next, wanted)) = half {
            self.next = next;
            return Err(self.expected(wanted));
        }
        if self.take_word(CAPABILITY_WORDS[0]) {
            return Err(self.expected(CAPABILITY_WORDS[1]));
        }
        let all = CommandKind::ALL.map(|kind| words(kind).join(" ")).join(", ");
        Err(self.expected(&format!("one of {all}, {}", CAPABILITY_WORDS.join(" "))))
    }

    /// A command without its first word is never taken for a client's small talk: a `SET READ ON …`
    /// that is answered `SET` would look as if it had been done.
    fn no_command_without_its_word(&mut self) -> Result<(), Wrong> {
        let start = self.next;
        let named = self.kind();
        // PostgreSQL's ABORT is a rollback.
        let rolls_back = matches!(named, Ok(CommandKind::AbortQuarantinedTarget))
            && !self.peek_word().is_some_and(|word| word.eq_ignore_ascii_case("ON"));
        self.next = start;
        match named {
            Ok(kind) if !rolls_back => {
                Err(self.expected(&format!("FENCE in front of {}", words(kind).join(" "))))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn fence(&mut self) -> Result<FenceStatement, Wrong> {
        let kind = self.kind()?;
        self.take_word("ON");
        let namespace = self.namespace()?;
        let mut read = Read::default();
        let mut given: Vec<Clause> = Vec::new();
        while self.peek().is_some_and(|token| token.piece != Piece::Sign(';')) {
            let at = self.position();
            let clause = self.clause(kind)?;
            if given.contains(&clause) {
                let message = format!("{} is given twice", clause.word());
                return Err(Wrong { position: at, message, is_value: false });
            }
            self.next += 1;
            self.read(clause, &mut read)?;
            given.push(clause);
        }
        let missing = clauses(kind).iter().find(|c| c.is_required() && !given.contains(c));
        if let Some(missing) = missing {
            return Err(self.expected(missing.form()));
        }
        let Some(operation) = read.operation else {
            return Err(self.expected(Clause::Operation.form()));
        };
        Ok(FenceStatement {
            kind,
            namespace,
            operation,
            command: read.command,
            expect: read.expect,
            identity: read.identity,
            deadline_ms: read.deadline_ms,
            force_rollback: read.force,
            in_flight: read.in_flight,
            hold_ms: read.hold_ms,
            beside_target: read.beside,
            adoption: read.from.map(|from| AdoptionClauses {
                from,
                approvers: read.approvers,
                incident: read.incident,
                reason: read.reason,
                key: read.key,
            }),
            target: read.target,
            validation: read.result.map(|result| (result, read.summary)),
        })
    }

    fn capability(&mut self) -> Result<CapabilityStatement, Wrong> {
        self.take_word("ON");
        let namespace = self.namespace()?;
        let (mut operation, mut purpose, mut revision) = (None, None, None);
        while self.peek().is_some_and(|token| token.piece != Piece::Sign(';')) {
            let at = self.position();
            let twice = |word: &str| {
                let message = format!("{word} is given twice");
                Err(Wrong { position: at, message, is_value: false })
            };
            if self.take_word("OPERATION") {
                if operation.replace(self.operation("the operation's id")?).is_some() {
                    return twice("OPERATION");
                }
            } else if self.take_word("PURPOSE") {
                if purpose.replace(self.one_of("IMPORT or VALIDATION", Purpose::parse)?).is_some() {
                    return twice("PURPOSE");
                }
            } else if self.take_word("REVISION") {
                let number = Revision(self.number("a revision, a whole number from 0")?);
                if revision.replace(number).is_some() {
                    return twice("REVISION");
                }
            } else {
                let form = capability_form().join(" ");
                let what =
                    format!("one of OPERATION, PURPOSE, REVISION or the end (as in: {form})");
                return Err(self.expected(&what));
            }
        }
        let Some(operation) = operation else {
            return Err(self.expected(Clause::Operation.form()));
        };
        let purpose = purpose.unwrap_or(Purpose::Import);
        Ok(CapabilityStatement { namespace, operation, purpose, revision })
    }

    /// Which clause comes next; it isn't taken yet.
    fn clause(&self, kind: CommandKind) -> Result<Clause, Wrong> {
        let known = clauses(kind);
        let word = self.peek_word();
        let found = known
            .iter()
            .find(|clause| word.is_some_and(|word| word.eq_ignore_ascii_case(clause.word())));
        found.copied().ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|clause| clause.word()).collect();
            let what =
                format!("one of {} or the end (as in: {})", names.join(", "), form(kind).join(" "));
            self.expected(&what)
        })
    }

    fn read(&mut self, clause: Clause, read: &mut Read) -> Result<(), Wrong> {
        match clause {
            Clause::Operation => read.operation = Some(self.operation("the operation's id")?),
            Clause::Command => {
                let (position, text) = self.literal("the command's id, a UUID")?;
                let id = CommandId::parse(&text);
                read.command = Some(id.map_err(|error| value(position, error.to_string()))?);
            }
            Clause::Expect => read.expect = Some(self.expectation()?),
            Clause::Identity => read.identity = Some(self.identity()?),
            Clause::Deadline => read.deadline_ms = Some(self.duration()?),
            Clause::Force => {
                self.word("ROLLBACK")?;
                read.force = true;
            }
            Clause::InFlight => {
                self.word("FLIGHT")?;
                read.in_flight = Some(self.one_of("FINISH or REFUSE", InFlight::parse)?);
            }
            Clause::Hold => read.hold_ms = Some(self.duration()?),
            Clause::Beside => {
                self.word("TARGET")?;
                read.beside = true;
            }
            Clause::From => read.from = Some(self.operation("the id of the owner")?),
            Clause::Approvers => {
                read.approvers.push(self.text("a name in quotes")?);
                while self.take_sign(',') {
                    read.approvers.push(self.text("a name in quotes")?);
                }
            }
            Clause::Incident => read.incident = self.text("the incident in quotes")?,
            Clause::Reason => read.reason = self.text("the reason in quotes")?,
            Clause::Key => {
                // Whatever is wrong, what stands here is not shown.
                let quoted = matches!(self.peek().map(|t| &t.piece), Some(Piece::Quoted(_)));
                if !quoted {
                    let message = "expected the adoption key in quotes".to_owned();
                    return Err(Wrong { position: self.position(), message, is_value: false });
                }
                read.key = Some(Secret::new(self.text("the adoption key in quotes")?));
            }
            Clause::Owner => read.target.owner = Some(self.text("a role in quotes")?),
            Clause::Encoding => read.target.encoding = Some(self.text("a name in quotes")?),
            Clause::Locale => read.target.locale = Some(self.text("a name in quotes")?),
            Clause::Template => read.target.template = Some(self.text("a name in quotes")?),
            Clause::Result => {
                read.result = Some(self.one_of("OK or FAILED", ValidationResult::parse)?);
            }
            Clause::Summary => read.summary = Some(self.text("the summary in quotes")?),
        }
        Ok(())
    }

    fn operation(&mut self, what: &str) -> Result<OperationId, Wrong> {
        let (position, text) = self.literal(&format!("{what}, a UUID"))?;
        OperationId::parse(&text).map_err(|error| value(position, error.to_string()))
    }

    fn one_of<T>(&mut self, what: &str, read: fn(&str) -> Option<T>) -> Result<T, Wrong> {
        let found = self.peek_word().and_then(|word| read(&word.to_ascii_lowercase()));
        let found = found.ok_or_else(|| self.expected(what))?;
        self.next += 1;
        Ok(found)
    }

    fn expectation(&mut self) -> Result<(FenceState, Revision), Wrong> {
        self.word("STATE")?;
        let (position, text) = self.literal("a state, such as UNFENCED")?;
        let state = FenceState::parse(&text.to_ascii_uppercase()).ok_or_else(|| {
            let states = FenceState::ALL.map(FenceState::name).join(", ");
            value(position, format!("'{}' is no state; one of {states}", short(&text)))
        })?;
        self.word("REVISION")?;
        Ok((state, Revision(self.number("a revision, a whole number from 0")?)))
    }

    fn identity(&mut self) -> Result<Identity, Wrong> {
        let (_, engine_id) = self.literal("the engine's id")?;
        self.word("DATABASE")?;
        let (_, database_id) = self.literal("the database's id")?;
        let timeline = match self.take_word("TIMELINE") {
            false => None,
            true => {
                let position = self.position();
                let number = self.number("a timeline, a whole number")?;
                let fits = u32::try_from(number);
                let wrong = |_| value(position, format!("{number} is too large for a timeline"));
                Some(fits.map_err(wrong)?)
            }
        };
        Ok(Identity { engine_id, timeline, database_id })
    }

    /// A duration in milliseconds.
    fn duration(&mut self) -> Result<u64, Wrong> {
        const FORM: &str = "a duration such as 30s, 500ms, 2m or 1h";
        let (position, text) = self.literal(FORM)?;
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let factor = match unit.to_ascii_lowercase().as_str() {
            "ms" => Some(1),
            "s" => Some(1_000),
            "m" | "min" => Some(60_000),
            "h" => Some(3_600_000),
            _ => None,
        };
        let ms = number.parse::<u64>().ok().zip(factor).and_then(|(n, f)| n.checked_mul(f));
        ms.ok_or_else(|| value(position, format!("expected {FORM}, got '{}'", short(&text))))
    }
}

/// What has been read of a command's clauses.
#[derive(Default)]
struct Read {
    operation: Option<OperationId>,
    command: Option<CommandId>,
    expect: Option<(FenceState, Revision)>,
    identity: Option<Identity>,
    deadline_ms: Option<u64>,
    force: bool,
    in_flight: Option<InFlight>,
    hold_ms: Option<u64>,
    beside: bool,
    from: Option<OperationId>,
    approvers: Vec<String>,
    incident: String,
    reason: String,
    key: Option<Secret>,
    target: TargetClauses,
    result: Option<ValidationResult>,
    summary: Option<String>,
}

fn value(position: usize, message: String) -> Wrong {
    Wrong { position, message, is_value: true }
}

/// The beginning of a text, for an error.
fn short(text: &str) -> String {
    let mut kept: String = text.chars().take(40).collect();
    if kept.len() < text.len() {
        kept.push('…');
    }
    kept
}
