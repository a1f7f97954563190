//! The second witness: sqlparser reads what the walk called a read.
//!
//! Purpose: catch a hole in the walk. The parser gets the tokens written out again, with literals
//! replaced, so that it sees the strings and comments as the engine does and its answer depends on
//! nothing the cache key leaves out. If it can read the text and finds a write in it, the walk's
//! `read` becomes `unprovable`. It never makes anything a read.
//!
//! Invariants: only texts of bounded size, nesting and number of operators reach the parser, since
//! its trees are dropped by recursion; a panic in it counts as a veto.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use sqlparser::ast::{
    Expr, ObjectName, Query, Select, SetExpr, Statement, TableFactor, Visit, Visitor,
};
use sqlparser::dialect::{Dialect, PostgreSqlDialect};
use sqlparser::parser::Parser;

use super::super::builtin::{Callee, callee};
use super::super::lexer::TokenKind;
use super::super::trusted::Trusted;
use super::phrase::Phrase;

/// Larger texts are left to the walk alone.
pub(in crate::sql) const TOKENS_MAX: usize = 4_000;
/// Chains of operators make trees as deep as they are long.
pub(in crate::sql) const OPERATORS_MAX: usize = 250;
/// Words that deepen the tree as operators do.
pub(in crate::sql) const INFIX: &[&str] = &[
    "and",
    "at",
    "between",
    "collate",
    "except",
    "ilike",
    "in",
    "intersect",
    "is",
    "isnull",
    "join",
    "like",
    "not",
    "notnull",
    "or",
    "overlaps",
    "similar",
    "union",
];
/// The parser's own limit on nesting.
const NESTING_MAX: usize = 50;

/// Whether the parser reads the text and contradicts that it only reads.
pub(super) fn vetoes(text: Phrase<'_>, trusted: &Trusted) -> bool {
    let Some(written) = write_out(text) else { return false };
    contradicts(&written, &PostgreSqlDialect {}, &|name| suspect(name, trusted))
}

/// Parses a text and looks for anything but reading in it; `suspect` judges the names of functions.
pub(in crate::sql) fn contradicts(
    written: &str,
    dialect: &dyn Dialect,
    suspect: &dyn Fn(&ObjectName) -> bool,
) -> bool {
    let witness = || {
        let parsed = Parser::new(dialect)
            .with_recursion_limit(NESTING_MAX)
            .try_with_sql(written)
            .and_then(|mut parser| parser.parse_statements());
        match parsed {
            Ok(statements) => contradict(&statements, suspect),
            Err(_) => false,
        }
    };
    catch_unwind(AssertUnwindSafe(witness)).unwrap_or(true)
}

/// The tokens as text: names and operators as they stand, every literal a neutral one.
fn write_out(text: Phrase<'_>) -> Option<String> {
    let mut operators = 0_usize;
    let mut written = String::new();
    if text.len() > TOKENS_MAX {
        return None;
    }
    for at in 0..text.len() {
        let bytes = std::str::from_utf8(text.bytes(at)).ok()?;
        match text.kind(at)? {
            TokenKind::Text | TokenKind::EscapedText | TokenKind::Dollar => written.push_str("'x'"),
            TokenKind::Bits => written.push_str("B'1'"),
            TokenKind::Number => written.push('1'),
            TokenKind::UnicodeQuoted => written.push_str("\"u\""),
            TokenKind::Operator | TokenKind::Cast => {
                operators += 1;
                written.push_str(bytes);
            }
            TokenKind::Word => {
                operators += usize::from(text.is_any(at, INFIX));
                written.push_str(bytes);
            }
            TokenKind::Dot | TokenKind::OpenSquare => {
                operators += usize::from(text.is_kind(at, TokenKind::OpenSquare));
                written.push_str(bytes);
            }
            TokenKind::Quoted
            | TokenKind::Parameter
            | TokenKind::Variable
            | TokenKind::Setting
            | TokenKind::Colon
            | TokenKind::Comma
            | TokenKind::Semicolon
            | TokenKind::Open
            | TokenKind::Close
            | TokenKind::CloseSquare
            | TokenKind::Stray => written.push_str(bytes),
        }
        let glued = text.is_kind(at, TokenKind::Dot) || text.is_kind(at + 1, TokenKind::Dot);
        if !glued {
            written.push(' ');
        }
    }
    (operators <= OPERATORS_MAX).then_some(written)
}

fn contradict(statements: &[Statement], suspect: &dyn Fn(&ObjectName) -> bool) -> bool {
    let [Statement::Query(query)] = statements else { return true };
    query.visit(&mut Search { suspect }).is_break()
}

/// Whether a name in front of arguments may be a function that isn't known to be harmless.
fn suspect(name: &ObjectName, trusted: &Trusted) -> bool {
    let parts: Vec<String> = name
        .0
        .iter()
        .filter_map(|part| part.as_ident())
        .map(|ident| match ident.quote_style {
            Some(_) => ident.value.clone(),
            None => ident.value.to_ascii_lowercase(),
        })
        .collect();
    let known = match parts.as_slice() {
        [name] => callee(None, name, trusted),
        [schema, name] => callee(Some(schema), name, trusted),
        _ => Callee::Unknown,
    };
    match known {
        // set_config was judged by its arguments.
        Callee::Harmless | Callee::SetConfig => false,
        // The parser gives grammar words such as COALESCE as functions: not its question.
        Callee::Unknown => match parts.as_slice() {
            [name] => super::super::builtin::keyword(name).is_none(),
            _ => true,
        },
        Callee::Writer => true,
    }
}

/// Stops at the first thing that isn't reading.
struct Search<'a> {
    suspect: &'a dyn Fn(&ObjectName) -> bool,
}

impl Search<'_> {
    fn step(found: bool) -> ControlFlow<()> {
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Visitor for Search<'_> {
    type Break = ();

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<()> {
        Self::step(!matches!(statement, Statement::Query(_)))
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let writes = matches!(
            *query.body,
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_)
        );
        Self::step(writes || !query.locks.is_empty())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        Self::step(select.into.is_some())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        Self::step((self.suspect)(&function.name))
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Function { name, .. } | TableFactor::Table { name, args: Some(_), .. } =
            factor
        {
            return Self::step((self.suspect)(name));
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::dialect::PgLexing;
    use super::super::phrase::Tokens;
    use super::*;

    fn vetoed(text: &str) -> bool {
        let tokens = Tokens::read(text.as_bytes(), PgLexing::STANDARD).unwrap();
        vetoes(tokens.all(), &Trusted::default())
    }

    #[test]
    fn contradicts_what_it_can_read() {
        for text in [
            "insert into t values (1)",
            "select * into u from t",
            "select * from t for update",
            "select * from (select * from t for share) x",
            "with x as (delete from t returning 1) select * from x",
            "select nextval('s')",
            "select * from own_function(1)",
            "select a, public.f(b) from t",
            "select 1; select 2",
        ] {
            assert!(vetoed(text), "{text}");
        }
    }

    #[test]
    fn is_silent_about_reads_and_what_it_can_t_read() {
        for text in [
            "select coalesce(a, 'x;drop') from t where b in (1, 2) and lower(c) = $1",
            "select count(*) filter (where a > 1) over (partition by b) from t",
            "select a operator(pg_catalog.~) 'x' from t",
            "select this is not (sql",
        ] {
            let Ok(tokens) = Tokens::read(text.as_bytes(), PgLexing::STANDARD) else { continue };
            assert!(!vetoes(tokens.all(), &Trusted::default()), "{text}");
        }
    }

    fn written(text: &str) -> Option<String> {
        write_out(Tokens::read(text.as_bytes(), PgLexing::STANDARD).unwrap().all())
    }

    #[test]
    fn long_chains_never_reach_the_parser() {
        for link in
            [" + 1", " and 1", "::int", "[1]", " union select 1", " at time zone b", " in (1)"]
        {
            assert!(
                written(&format!("select 1{}", link.repeat(OPERATORS_MAX + 1))).is_none(),
                "{link}"
            );
            assert!(written(&format!("select 1{}", link.repeat(9))).is_some(), "{link}");
        }
        assert!(written(&format!("select 1{}", ", 1".repeat(TOKENS_MAX))).is_none());
    }

    #[test]
    fn the_deepest_tree_that_reaches_the_parser_fits_a_small_stack() {
        let chains = [" + 1", " and 1", "::int", " is null", " in (1)"]
            .map(|link| format!("select a{}", link.repeat(OPERATORS_MAX)));
        let deep = format!("select {}1{}", "(".repeat(1_500), ")".repeat(1_500));
        let small = std::thread::Builder::new().stack_size(1 << 20).spawn(move || {
            for text in chains.iter().chain([&deep]) {
                assert!(!vetoed(text), "{}", &text[..20]);
            }
        });
        small.unwrap().join().unwrap();
    }

    #[test]
    fn values_and_comments_never_reach_the_parser() {
        let text =
            "select 'a''b', E'\\'', $q$;$q$, 42, X'1f', U&\"x\" -- c\n from /* ; */ t.u where a=$1";
        let expected = "select 'x' , 'x' , 'x' , 1 , B'1' , \"u\" from t.u where a = $1 ";
        assert_eq!(written(text).as_deref(), Some(expected));
    }
}
