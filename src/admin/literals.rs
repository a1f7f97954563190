//! Statements as shown to people: literals replaced.
//!
//! Purpose: a blocker's statement helps to find who sent it, but may hold an application's data.
//! Whatever can't be told apart with certainty is hidden to the end. Pure. Called by
//! `admin/view.rs`; it is no classifier and nothing is decided by it.

/// The statement with every literal replaced by `?`.
pub(super) fn hidden(statement: &str) -> String {
    let mut out = String::with_capacity(statement.len());
    let mut rest = statement;
    while let Some(first) = rest.chars().next() {
        let before = out.chars().next_back();
        let after_word = before.is_some_and(is_word);
        let taken = match first {
            '\'' => {
                let escapes = before.is_some_and(|c| matches!(c, 'e' | 'E'));
                out.push('?');
                quoted(rest, escapes)
            }
            '"' => {
                let taken = closing(rest, '"');
                out.push_str(rest.get(..taken).unwrap_or(rest));
                taken
            }
            '$' if !after_word => match dollar(rest) {
                Some(taken) => {
                    out.push('?');
                    taken
                }
                None => copy(&mut out, first),
            },
            '0'..='9' if !after_word && before != Some('$') => {
                out.push('?');
                rest.find(|c: char| !is_word(c) && c != '.').unwrap_or(rest.len())
            }
            // A comment may hold anything.
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.len(),
            _ => copy(&mut out, first),
        };
        rest = rest.get(taken..).unwrap_or("");
    }
    out
}

fn copy(out: &mut String, c: char) -> usize {
    out.push(c);
    c.len_utf8()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Length of a text in `quote`s from its first one; the rest where it isn't closed.
fn closing(text: &str, quote: char) -> usize {
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = characters.next() {
        if c == quote {
            if characters.peek().is_some_and(|(_, next)| *next == quote) {
                characters.next();
            } else {
                return at + c.len_utf8();
            }
        }
    }
    text.len()
}

/// Length of a string literal. A backslash ends what is certain, unless escapes are known to
/// apply: then it takes the next character with it.
fn quoted(text: &str, escapes: bool) -> usize {
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = characters.next() {
        match c {
            '\\' if escapes => {
                characters.next();
            }
            '\\' => return text.len(),
            '\'' if characters.peek().is_some_and(|(_, next)| *next == '\'') => {
                characters.next();
            }
            '\'' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Length of a dollar-quoted text; `None` for a parameter such as `$1` or a lone sign.
fn dollar(text: &str) -> Option<usize> {
    let end = text.get(1..)?.find('$')? + 2;
    let tag = text.get(..end)?;
    let name = tag.trim_matches('$');
    if !name.chars().all(is_word) || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let body = text.get(end..)?;
    Some(body.find(tag).map_or(text.len(), |at| end + at + tag.len()))
}

#[cfg(test)]
mod tests {
    use super::hidden;

    #[test]
    fn literals_go_and_names_stay() {
        for (statement, shown) in [
            (
                "update t1 set a = 'o''brien', b=42 where c = $1",
                "update t1 set a = ?, b=? where c = $1",
            ),
            (
                "select \"Order 66\" from x.y2 where z > 1.5e3",
                "select \"Order 66\" from x.y2 where z > ?",
            ),
            ("select E'a\\'b', 'c'", "select E?, ?"),
            ("select 'a\\' , 'secret'", "select ?"),
            ("do $x$ begin 'secret' end $x$ , 7", "do ? , ?"),
            ("insert into t values ('cut off he", "insert into t values (?"),
            ("select 1 -- secret\nfrom t", "select ? \nfrom t"),
            ("select /* secret */ 1", "select "),
            ("select $$open", "select ?"),
        ] {
            assert_eq!(hidden(statement), shown);
        }
    }
}
