//! The second witness: sqlparser reads what the walk called a read.
//!
//! Purpose and invariants are those of `classify/witness.rs`: it gets the tokens written out again
//! with literals replaced, and may turn a `read` into `unprovable`, never the other way round.
//! Texts that it can't read are left to the walk: its MySQL dialect lacks much of both engines'.

use sqlparser::ast::ObjectName;
use sqlparser::dialect::MySqlDialect;

use super::super::classify::phrase::Phrase;
use super::super::classify::witness::{INFIX, OPERATORS_MAX, TOKENS_MAX, contradicts};
use super::super::lexer::TokenKind;
use super::read::{SHAPES, Walk};
use super::words::{Callee, callee, declared};

/// Whether the parser reads the text and contradicts that it only reads.
pub(super) fn vetoes(text: Phrase<'_>, walk: Walk<'_>) -> bool {
    let Some(written) = write_out(text) else { return false };
    contradicts(&written, &MySqlDialect {}, &|name| suspect(name, walk))
}

/// Whether a name in front of arguments may be a function that isn't known to be harmless.
fn suspect(name: &ObjectName, walk: Walk<'_>) -> bool {
    let parts: Vec<_> = name.0.iter().filter_map(|part| part.as_ident()).collect();
    let lower = |value: &str| value.to_ascii_lowercase();
    let known = match parts.as_slice() {
        [name] if name.quote_style.is_some() => declared(&lower(&name.value), walk.trusted),
        // Blanks before the parenthesis and the number of arguments were the walk's questions.
        [name] if SHAPES.contains(&lower(&name.value).as_str()) => Callee::Harmless,
        [name] => callee(&lower(&name.value), true, walk.server, walk.trusted),
        [schema, name] if walk.trusted.contains(Some(&schema.value), &lower(&name.value)) => {
            Callee::Harmless
        }
        _ => Callee::Unknown,
    };
    match known {
        Callee::Harmless | Callee::Grammar => false,
        Callee::Writer | Callee::Unknown => true,
    }
}

/// The tokens as text: names and operators as they stand, every literal a neutral one, and without
/// `INTO @variable`, which the walk has judged.
fn write_out(text: Phrase<'_>) -> Option<String> {
    let mut operators = 0_usize;
    let mut written = String::new();
    if text.len() > TOKENS_MAX {
        return None;
    }
    let mut at = 0;
    while at < text.len() {
        if text.is(at, "into") {
            at += 1;
            while matches!(text.kind(at), Some(TokenKind::Variable | TokenKind::Comma)) {
                at += 1;
            }
            continue;
        }
        let bytes = std::str::from_utf8(text.bytes(at)).ok()?;
        match text.kind(at)? {
            TokenKind::Text => written.push_str("'x'"),
            TokenKind::Bits | TokenKind::Number | TokenKind::Parameter => written.push('1'),
            TokenKind::Variable => written.push_str("@v"),
            // By ANSI_QUOTES; the parser's own dialect would take it for a string.
            TokenKind::Quoted if bytes.starts_with('"') => written.push_str("`q`"),
            TokenKind::Operator => {
                operators += 1;
                written.push_str(bytes);
            }
            TokenKind::Word => {
                operators += usize::from(text.is_any(at, INFIX));
                written.push_str(bytes);
            }
            TokenKind::Quoted
            | TokenKind::Setting
            | TokenKind::Dot
            | TokenKind::Colon
            | TokenKind::Comma
            | TokenKind::Semicolon
            | TokenKind::Open
            | TokenKind::Close => written.push_str(bytes),
            // PostgreSQL's, and what belongs to no token.
            TokenKind::UnicodeQuoted
            | TokenKind::EscapedText
            | TokenKind::Dollar
            | TokenKind::Cast
            | TokenKind::OpenSquare
            | TokenKind::CloseSquare
            | TokenKind::Stray => return None,
        }
        // Operators of two characters come as two tokens; names glued by dots as several.
        let glued = text.touches(at, at + 1)
            && (text.is_kind(at, TokenKind::Operator) && text.is_kind(at + 1, TokenKind::Operator)
                || text.is_kind(at, TokenKind::Setting)
                || text.is_kind(at, TokenKind::Dot)
                || text.is_kind(at + 1, TokenKind::Dot));
        if !glued {
            written.push(' ');
        }
        at += 1;
    }
    (operators <= OPERATORS_MAX).then_some(written)
}

#[cfg(test)]
mod tests {
    use super::super::super::classify::phrase::Tokens;
    use super::super::super::trusted::Trusted;
    use super::super::dialect::{MyEncoding, MyServer};
    use super::super::lexer::{Executable, MyLexer, Reading};
    use super::*;

    fn with<T>(text: &str, ask: impl Fn(Phrase<'_>, Walk<'_>) -> T) -> T {
        let server = MyServer::from_greeting("9.7.4");
        let reading = Reading {
            server,
            ansi_quotes: false,
            no_backslash_escapes: false,
            encoding: MyEncoding::Utf8,
            executable: Executable::ByVersion,
        };
        let lexer = MyLexer::new(text.as_bytes(), reading);
        let tokens = Tokens::collect(text.as_bytes(), lexer, true).unwrap();
        ask(tokens.all(), Walk { server, encoding: MyEncoding::Utf8, trusted: &Trusted::default() })
    }

    #[test]
    fn contradicts_what_it_can_read() {
        for text in [
            "insert into t values (1)",
            "select * from t for update",
            "select * from own_function(1)",
            "select a, d.f(b) from t",
            "select nextval(s)",
            "select f(1)",
            "select 1; select 2",
            "update t set a = 1",
        ] {
            assert!(with(text, vetoes), "{text}");
        }
    }

    #[test]
    fn is_silent_about_reads_and_what_it_can_t_read() {
        for text in [
            "select coalesce(a, 'x;drop') from t where b in (1, 2) and lower(c) = ?",
            "select count(*) over (partition by b), if(a, 1, 2), replace(a, 'b', 'c') from t",
            "select a into @x, @y from t",
            "select @a := 1, @@session.autocommit, a->'$.b' from t",
            "select this is not (sql",
            "select a from t procedure analyse()",
        ] {
            let closed = text.matches('(').count() == text.matches(')').count();
            assert!(!closed || !with(text, vetoes), "{text}");
        }
    }

    #[test]
    fn long_chains_never_reach_the_parser() {
        for link in [" + 1", " and 1", " union select 1", " in (1)"] {
            let long = format!("select 1{}", link.repeat(OPERATORS_MAX + 1));
            assert!(with(&long, |text, _| write_out(text).is_none()), "{link}");
        }
        let long = format!("select 1{}", ", 1".repeat(TOKENS_MAX));
        assert!(with(&long, |text, _| write_out(text).is_none()));
    }

    #[test]
    fn values_and_comments_never_reach_the_parser() {
        let text = "select 'a''b', \"s\", 42, x'1f', ?, @a /* ; */ from `t`.u where a>=1 # x";
        let expected = "select 'x' , 'x' , 1 , 1 , 1 , @v from `t`.u where a >= 1 ";
        assert_eq!(with(text, |text, _| write_out(text)).as_deref(), Some(expected));
    }
}
